"""The `promote`, `undo-promotion` and `context` commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import Result
from tests.support.http_model import serve_model

from omoide.errors import StoreFailed
from omoide.promotion import promoter
from omoide.sessions import Session
from omoide.stores import open_store

Run = Callable[..., Result]
Answer = Callable[..., Any]


def ids(answer: Answer, *options: str) -> set[str]:
    """What is remembered of a kind."""
    return {entry["id"] for entry in answer("list", *options)["entries"]}


def notices(home: Path) -> tuple[str, ...]:
    """What the session says when it is opened the next time."""

    async def opened() -> tuple[str, ...]:
        url = f"sqlite:///{home / 'data' / 'omoide' / 'memory.db'}"
        async with open_store(url, embedder="none") as store:
            session = await Session.load("s1", store=store)
            session.set_promotion(enabled=False)
            async with session:
                return session.notices

    return anyio.run(opened)


@pytest.mark.usefixtures("learnt")
def test_what_would_be_promoted_is_shown_with_the_reasons(omoide: Run, answer: Answer) -> None:
    """Without `--apply` each candidate has a verdict, a score and a reason, and nothing is written."""
    before = answer("list")
    shown = omoide("promote", "s1")
    rows = {row[3]: row for row in (line.split("\t") for line in shown.stdout.splitlines())}
    assert rows["Alex may drink coffee."][:3] == ["below", "0.500", "hypothesis"]
    assert rows["framework: Phoenix 1.7"][0] == "promote"
    assert all(row[4] for row in rows.values())
    assert shown.stderr == "1 of 2 would be promoted; 0.6 is enough.\n--apply promotes them.\n"
    plan = answer("promote", "s1", "--threshold", "0.5")
    assert (plan["dry_run"], plan["threshold"], plan["run"]) == (True, 0.5, None)
    assert {one["verdict"] for one in plan["candidates"]} == {"promote"}
    assert answer("list") == before


@pytest.mark.usefixtures("learnt")
def test_a_promotion_keeps_what_is_good_enough_and_no_more(omoide: Run, answer: Answer, home: Path) -> None:
    """The threshold that is named decides, also when the session is left; a second time nothing is new."""
    done = answer("promote", "s1", "--apply")
    [made] = done["run"]["promoted"]
    assert made["key"] == "framework"
    assert ids(answer, "--type", "fact") == {"tea", made["id"]}
    assert "coffee" not in ids(answer)
    assert omoide("promote", "s1", "--apply").stdout.endswith("  0 memories promoted\n")
    assert notices(home) == ()


@pytest.mark.usefixtures("learnt")
def test_what_cannot_be_promoted_is_named(
    omoide: Run, answer: Answer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A memory that the store refuses has its line and code 4, and the next run takes it."""

    async def refused(*_: object) -> None:
        raise StoreFailed("store", "is full", "make room")

    with monkeypatch.context() as patched:
        patched.setattr(promoter, "_promote_candidate", refused)
        done = omoide("promote", "s1", "--apply", code=4)
    assert "not promoted: mem_" in done.stderr
    assert "is full" in done.stderr
    assert len(answer("promote", "s1", "--apply")["run"]["promoted"]) == 1


@pytest.mark.usefixtures("learnt")
def test_a_promotion_is_taken_back(omoide: Run, answer: Answer, home: Path) -> None:
    """Its memories are forgotten, are not promoted again by themselves, and there is nothing more to undo."""
    omoide("promote", "s1", "--threshold", "0.4", "--apply")
    assert "coffee" in ids(answer)
    run = answer("undo-promotion", "s1")
    assert {one["item"] for one in run["promoted"]} >= {"coffee"}
    assert run["undone_at"] is not None
    assert "coffee" not in ids(answer)
    assert "held" in omoide("promote", "s1", "--threshold", "0.4").stdout
    assert notices(home) == ()


def test_a_promotion_can_be_named(learnt: str, omoide: Run, answer: Answer) -> None:
    """One that came before the last is taken back by its id, and only once."""
    omoide("promote", "s1", "--apply")
    assert omoide("undo-promotion", "s1", learnt).stdout == f"{learnt}  undone, 1 memory\ntea\n"
    assert "tea" not in ids(answer)
    assert len(ids(answer, "--type", "fact")) == 1
    assert "does not exist" in omoide("undo-promotion", "s1", learnt, code=1).stderr


@pytest.mark.usefixtures("learnt")
def test_a_context_holds_what_a_model_should_know(omoide: Run, answer: Answer) -> None:
    """What the session understands, what is remembered, and what was said, with what each part takes."""
    shown = omoide("context", "s1", "--hint", "what does Alex drink?")
    assert '- "framework": "Phoenix 1.7"' in shown.stdout
    assert '"Alex drinks tea."' in shown.stdout
    assert shown.stdout.endswith('user: "Alex drinks tea."\nassistant: "I see."\n')
    context = answer("context", "s1")
    assert context["working_context"] == {"framework": "Phoenix 1.7"}
    assert "tea" in [one["id"] for one in context["long_term_memories"]]
    total = answer("context", "s1", "--hint", "what does Alex drink?")["token_counts"]["total"]
    assert shown.stderr.startswith(f"{total} tokens of 32,000: working ")


@pytest.mark.usefixtures("learnt")
def test_a_context_fits_its_budget(omoide: Run, answer: Answer) -> None:
    """What has no room is left out, and that is told."""
    small = answer("context", "s1", "--budget", "60")
    assert small["token_counts"]["total"] <= 60
    assert small["long_term_memories"] == []
    assert "too long for the budget" in omoide("context", "s1", "--budget", "60").stderr
    omoide("context", "s1", "--budget", "0", code=2)


@pytest.mark.usefixtures("learnt")
def test_a_context_reaches_as_far_as_is_said(omoide: Run, answer: Answer) -> None:
    """Memories of other sessions are there for the agent, and not for the session."""
    omoide("remember", "Alex lives in Ghent.", "--id", "ghent")

    def known(reach: str) -> set[str]:
        found = answer("context", "s1", "--hint", "where does Alex live?", "--reach", reach)
        return {one["id"] for one in found["long_term_memories"]}

    assert "ghent" in known("agent")
    assert "ghent" not in known("session")
    assert "the session has none" in omoide("context", "s1", "--reach", "project", code=2).stderr


@pytest.mark.usefixtures("learnt")
@pytest.mark.parametrize("command", ["promote", "undo-promotion", "context"])
def test_a_session_that_is_not_there_is_named(command: str, omoide: Run) -> None:
    """An unknown session, and one of another namespace, has code 1."""
    assert "session 'nobody' does not exist" in omoide(command, "nobody", code=1).stderr
    omoide(command, "s1", "--namespace", "elsewhere", code=1)


@pytest.mark.parametrize("command", [["promote"], ["undo-promotion"], ["context"], ["sessions", "show"]])
def test_a_session_of_somebody_else_is_not_there(command: list[str], omoide: Run) -> None:
    """A user or an agent that is named has to be that of the session; who names none sees all."""
    omoide("chat", "My cat is called Miso.", "--session", "s1", "--user", "ann", "--agent", "vet")
    for option, other in (("--user", "ben"), ("--agent", "sales")):
        assert "'s1' does not exist" in omoide(*command, "s1", option, other, code=1).stderr
    nothing_to_undo = 1 if command == ["undo-promotion"] else 0
    for own in ([], ["--user", "ann"], ["--agent", "vet"]):
        assert "'s1'" not in omoide(*command, "s1", *own, code=nothing_to_undo).stderr


@pytest.mark.usefixtures("learnt")
def test_a_threshold_lies_between_zero_and_one(omoide: Run) -> None:
    """Any other number is refused."""
    for wrong in ("1.1", "-0.1", "nan", "much"):
        omoide("promote", "s1", f"--threshold={wrong}", "--apply", code=2)


@pytest.mark.usefixtures("learnt")
def test_showing_first_can_be_asked_for(omoide: Run, answer: Answer) -> None:
    """`--dry-run` is what happens without `--apply`, and both together are refused."""
    assert answer("promote", "s1", "--dry-run") == answer("promote", "s1")
    refused = omoide("promote", "s1", "--dry-run", "--apply", code=2).stderr
    assert refused == "omoide: --apply comes with --dry-run; choose one of them\n"
    assert answer("promote", "s1")["run"] is None


def test_a_model_is_asked_for_memories_if_that_is_said(omoide: Run, answer: Answer) -> None:
    """With `--extract`, in a dry run as well, and what it cost is told; without it no model is called."""
    quoted = [{"message": 0, "quote": "I moved to Paris"}]
    memory = {
        "content": "The user lives in Paris.",
        "type": "fact",
        "confidence": 0.9,
        "evidence": quoted,
        "rationale": None,
        "relation": "adds",
        "target": None,
    }
    found = json.dumps({"memories": [memory]})
    with serve_model("Noted.", found, found) as site:
        model = ("--model", "openai-chat:local", "--base-url", site.url)
        omoide("chat", "I moved to Paris.", *model, "--session", "s1")
        assert "Paris" not in omoide("promote", "s1").stdout
        shown = omoide("promote", "s1", "--extract")
        assert "The user lives in Paris." in shown.stdout
        assert "1 found in 2 messages; 11 tokens in, 7 out." in shown.stderr
        done = answer("promote", "s1", "--extract", "--apply")
        assert done["extraction"] == {
            "messages": 2,
            "memories": 1,
            "requests": 1,
            "input_tokens": 11,
            "output_tokens": 7,
            "end": 2,
            "problem": None,
        }
        assert len(site.requests) == 3
    assert [entry["content"] for entry in answer("list", "--type", "fact")["entries"]] == [
        "The user lives in Paris."
    ]


@pytest.mark.usefixtures("learnt")
def test_an_agent_without_a_model_extracts_nothing(omoide: Run) -> None:
    """The error says so before anything is promoted."""
    assert "needs a model" in omoide("promote", "s1", "--extract", "--apply", code=2).stderr
