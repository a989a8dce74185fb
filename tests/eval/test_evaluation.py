"""Tests of an evaluation from end to end."""

import json
from pathlib import Path
from typing import Any

import pytest

from omoide.errors import Invalid
from omoide.eval import METRICS, evaluate
from omoide.eval.__main__ import main

CONVERSATIONS = Path(__file__).parent / "talks.jsonl"


def test_a_real_store_finds_most_of_it() -> None:
    """Without any model, the words alone bring nearly all answers among the first five."""
    found, _ = evaluate("jsonl", CONVERSATIONS, embedder="none")
    assert found["turn"]["all"]["R@5"] >= 75
    assert found["turn"]["4"]["R@5"] >= 75
    assert found["session"]["all"]["R@5"] >= 90
    assert found["settings"]["embedder"] is None


def test_the_store_may_be_named_and_used_again(tmp_path: Path) -> None:
    """In a store of one's own the turns stay, and a second run finds the same."""
    url = f"sqlite:///{tmp_path}/eval.db"
    first, _ = evaluate("jsonl", CONVERSATIONS, store=url, embedder="none")
    second, _ = evaluate("jsonl", CONVERSATIONS, store=url, embedder="none")
    assert first["turn"] == second["turn"]
    assert first["settings"]["store"] == url


def test_json_is_one_object(capsys: pytest.CaptureFixture[str]) -> None:
    """`--json` prints an object with the figures of every group, the latency and the settings."""
    assert main(["jsonl", "--data", str(CONVERSATIONS), "--embedder", "none", "--json"]) == 0
    printed: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert set(printed) == {"turn", "session", "latency_ms", "write_seconds", "settings"}
    assert set(printed["turn"]["all"]) == {*METRICS, "questions"}
    assert {"cat1-4", "all", "1", "2", "3", "4", "5"} == set(printed["turn"])


def test_the_table_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without `--json` people get a table, and nothing but it."""
    arguments = ["jsonl", "--data", str(CONVERSATIONS), "--embedder", "none", "--limit-conversations", "1"]
    assert main([*arguments, "--questions", "2", "--store", "memory://"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("talks: 1 conversations, 12 turns, 2 questions")
    assert captured.err == ""


def test_the_rankings_can_be_kept(tmp_path: Path) -> None:
    """`--details` writes what was found for each question, one object a line."""
    path = tmp_path / "details.jsonl"
    assert main(["jsonl", "--data", str(CONVERSATIONS), "--embedder", "none", "--details", str(path)]) == 0
    lines = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    assert [line["question"] for line in lines][:1] == ["What is the name of Mira's dog?"]
    assert all(len(line["found"]) <= 20 and line["evidence"] for line in lines)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["locomo", "--data", "absent.json"], "absent.json"),
        (["locomo", "--data", str(CONVERSATIONS)], "is not a LoCoMo file"),
        (["jsonl", "--data", str(CONVERSATIONS), "--limit", "5"], "limit is 5"),
        (["jsonl", "--data", str(CONVERSATIONS), "--questions", "0"], "contains no question"),
        (["jsonl", "--data", str(CONVERSATIONS), "--store", "ftp://x"], "ftp"),
        (["jsonl", "--data", str(CONVERSATIONS), "--embedder", "nonsense"], "nonsense"),
    ],
    ids=lambda part: part if isinstance(part, str) else "",
)
def test_wrong_arguments_are_told_in_one_line(
    arguments: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What cannot be done ends with code 2 and one line that names it."""
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert problem in captured.err
    assert captured.err.count("\n") == 1


def test_an_unknown_form_is_refused() -> None:
    """The form of a data file is one that is known."""
    with pytest.raises(Invalid, match="locomo"):
        evaluate("csv", CONVERSATIONS)
