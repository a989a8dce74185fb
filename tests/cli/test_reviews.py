"""The `review`, `conflicts` and `prune` commands."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

Run = Callable[..., Result]
Answer = Callable[..., Any]


@pytest.mark.usefixtures("three")
def test_a_review_shows_what_needs_attention(omoide: Run, answer: Answer) -> None:
    """Contradictions, what no longer holds with the way there, open questions, and what soon expires."""
    assert omoide("review").stdout == "Nothing needs attention.\n"
    omoide("relate", "m1", "contradicts", "m2")
    omoide("remember", "A step.", "--id", "step")
    omoide("relate", "step", "derived_from", "m3")
    omoide("forget", "m3", "--reason", "wrong")
    omoide("remember", "Which host?", "--id", "host", "--type", "unknown")
    omoide("remember", "Down.", "--id", "down", "--expires", "2d")
    shown = omoide("review").stdout
    assert [line for line in shown.splitlines() if line[0] not in " ├└│"] == [
        "Contradictions", "Stale", "Open questions", "Expires soon",
    ]  # fmt: skip
    assert "step depends on m3: forgotten (wrong, " in shown
    report = answer("review")
    assert [(one["one"]["id"], one["other"]["id"]) for one in report["conflicts"]] == [("m1", "m2")]
    assert [one["chains"][0]["path"] for one in report["stale"]] == [["step", "m3"]]
    assert [one["id"] for one in report["open_questions"]] == ["host"]
    assert [one["id"] for one in report["expiring"]] == ["down"]
    assert answer("review", "--soon", "1d")["expiring"] == []
    assert answer("review", "--agent", "other")["conflicts"] == []
    omoide("review", "--soon", "2020-01-01", code=2)
    omoide("review", "--limit", "0", code=2)


def test_a_review_says_that_there_is_more(omoide: Run, answer: Answer) -> None:
    """No more than the limit of each kind is shown."""
    for number in range(3):
        omoide("remember", f"Question {number}?", "--type", "unknown")
    assert answer("review", "--limit", "3")["cut"] is False
    report = answer("review", "--limit", "2")
    assert (len(report["open_questions"]), report["cut"]) == (2, True)
    assert omoide("review", "--limit", "2").stdout.endswith("There is more.\n")


@pytest.fixture
def doubtful(omoide: Run) -> None:
    """Memories some of which can go."""
    omoide("remember", "Sure.", "--id", "sure", "--confidence", "0.9")
    omoide("remember", "A guess.", "--id", "guess", "--confidence", "0.2", "--type", "hypothesis")
    omoide("remember", "Decided.", "--id", "decided", "--confidence", "0.2", "--type", "decision")
    omoide("remember", "A step.", "--id", "step", "--confidence", "0.9")
    omoide("relate", "step", "derived_from", "guess")


@pytest.mark.usefixtures("doubtful")
def test_pruning_shows_first_and_changes_nothing(omoide: Run, answer: Answer) -> None:
    """What would go is shown with its reasons, and with what rests on it."""
    before = answer("list", "--stale", "--forgotten")
    shown = omoide("prune", "--max-confidence", "0.5", "--max-access", "0")
    assert shown.stdout == ("guess\thypothesis\tconfidence 0.2, used 0 times; step becomes stale\tA guess.\n")
    assert shown.stderr == "1 memory would go; 2 stay, 1 protected.\n--apply forgets them.\n"
    assert answer("list", "--stale", "--forgotten") == before
    report = answer("prune", "--max-confidence", "0.5")
    assert (report["dry_run"], report["pruned"], report["protected"]) == (True, [], 1)


@pytest.mark.usefixtures("doubtful")
def test_pruning_forgets_and_can_be_undone(omoide: Run, answer: Answer) -> None:
    """With `--apply` memories are forgotten with their reasons, and `restore` brings them back."""
    done = omoide("prune", "--max-confidence", "0.5", "--apply")
    assert done.stdout.startswith("guess\t")
    assert done.stderr == "1 memory forgotten; 2 stay, 1 protected.\nomoide restore ID brings one back.\n"
    assert answer("show", "guess")["entry"]["superseded_reason"] == "pruned: confidence 0.2"
    assert {entry["id"] for entry in answer("list")["entries"]} == {"sure", "decided"}
    again = omoide("prune", "--max-confidence", "0.5", "--apply")
    assert (again.stdout, again.stderr) == ("", "0 memories forgotten; 2 stay, 1 protected.\n")
    omoide("restore", "guess")
    assert {entry["id"] for entry in answer("list")["entries"]} == {"sure", "decided", "guess", "step"}


@pytest.mark.usefixtures("doubtful")
def test_everything_that_is_asked_for_has_to_hold(omoide: Run, answer: Answer) -> None:
    """Age, confidence, use, type and limit each narrow what can go."""

    def going(*options: str) -> list[str]:
        return [one["entry"]["id"] for one in answer("prune", *options)["candidates"]]

    assert going("--max-confidence", "1") == ["sure", "guess", "step"]
    assert going("--max-confidence", "1", "--older-than", "90d") == []
    assert going("--max-confidence", "1", "--older-than", "2020-01-01") == []
    assert going("--max-confidence", "1", "--type", "hypothesis") == ["guess"]
    assert going("--max-confidence", "1", "--limit", "1") == ["sure"]
    cut = omoide("prune", "--max-confidence", "1", "--limit", "1")
    assert "2 more could go: see --limit.\n" in cut.stderr
    omoide("recall", "A guess.")
    assert "guess" in going("--max-confidence", "1", "--max-access", "0")
    omoide("chat", "Was it a guess?", "--no-capture")
    assert "guess" not in going("--max-confidence", "1", "--max-access", "0")
    assert "guess" in going("--max-confidence", "1", "--max-access", "1")
    assert going("--max-confidence", "1", "--agent", "other") == []


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--older-than", "soon"),
        ("--older-than", "2999-01-01"),
        ("--max-confidence", "2"),
        ("--max-access", "-1"),
    ],
)
@pytest.mark.usefixtures("doubtful")
def test_pruning_needs_criteria_that_make_sense(
    options: tuple[str, ...], omoide: Run, answer: Answer
) -> None:
    """Without any, or with a wrong one, nothing goes."""
    assert omoide("prune", *options, "--apply", code=2).stderr.count("\n") == 1
    assert len(answer("list")["entries"]) == 4


@pytest.mark.usefixtures("doubtful")
def test_pruning_can_be_asked_to_show_first(omoide: Run, answer: Answer) -> None:
    """`--dry-run` is what happens without `--apply`, and both together are refused."""
    asked = ("prune", "--max-confidence", "0.5")
    assert answer(*asked, "--dry-run")["candidates"] == answer(*asked)["candidates"]
    omoide(*asked, "--dry-run", "--apply", code=2)
    assert len(answer("list")["entries"]) == 4


@pytest.mark.usefixtures("three")
def test_contradictions_are_found(omoide: Run, answer: Answer) -> None:
    """Those that somebody declared and those of one key, oldest first, up to a limit; else the code is 1."""
    assert omoide("conflicts", code=1).stderr == "Nothing found.\n"
    omoide("relate", "m2", "contradicts", "m1")
    Path("keys.jsonl").write_text(
        '{"content": "Port 80.", "id": "p1", "metadata": {"key": "port"}, "created_at": 5}\n'
        '{"content": "Port 90.", "id": "p2", "metadata": {"key": "port"}, "created_at": 6}\n'
    )
    omoide("import", "keys.jsonl")
    assert omoide("conflicts").stdout == (
        "port\tp1\tPort 80.\tp2\tPort 90.\ndeclared\tm1\tMemory number 1.\tm2\tMemory number 2.\n"
    )
    found = answer("conflicts")["conflicts"]
    assert [(one["key"], one["one"]["id"], one["other"]["id"]) for one in found] == [
        ("port", "p1", "p2"),
        (None, "m1", "m2"),
    ]
    assert len(answer("conflicts", "--limit", "1")["conflicts"]) == 1
    omoide("conflicts", "--limit", "0", code=2)
    omoide("conflicts", "--agent", "other", code=1)
    omoide("forget", "p1")
    assert len(answer("conflicts")["conflicts"]) == 1
