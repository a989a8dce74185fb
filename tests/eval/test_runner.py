"""Tests of writing a data set, asking its questions and counting the results."""

from collections.abc import Sequence
from math import log2
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from omoide import Entry, RecallRequest, RecallResult, WriteRequest
from omoide.core import MessageRef
from omoide.eval import METRICS, datasets, runner

CONVERSATIONS = Path(__file__).parent / "talks.jsonl"

RANKINGS = {
    "What is the name of Mira's dog?": ["f6", "f1", "f11"],
    "When did Jonas paddle across the lake?": ["f5"],
    "What has Mira's dog Pixel to do with her life?": ["f1", "f2", "f6", "f3", "f4", "f5", "f7", "f11"],
    "Would Mira enjoy looking at stars?": ["f1", "f2", "f3"],
    "What did Jonas make in the pottery course?": ["f7", "f12", "f8"],
    "What must not be in my food?": ["a2", "a1"],
    "How much may the kitchen cost?": ["a5"],
    "When do the fitters come, and what is the budget?": ["a7", "a8", "a5"],
    "On which port is the gateway?": ["p5"],
    "When are releases cut?": ["p1", "p2", "p3", "p4", "p5", "p6"],
}


class Prescribed:
    """A store that finds what it was told to find."""

    def __init__(self) -> None:
        self.written: dict[tuple[str, str], Entry] = {}
        self.asked: list[RecallRequest] = []
        self.closed = False

    def write_many(self, requests: Sequence[WriteRequest]) -> list[Any]:
        self.written |= {(request.entry.namespace, request.entry.id): request.entry for request in requests}
        return list(requests)

    def recall(self, request: RecallRequest) -> RecallResult:
        self.asked.append(request)
        found = [self.written[request.namespace, id] for id in RANKINGS[request.query]]
        return RecallResult(request=request, entries=tuple(found[: request.limit]))

    def stats(self, scope: object) -> Any:
        return SimpleNamespace(embedder="prescribed")

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def core(monkeypatch: pytest.MonkeyPatch) -> Prescribed:
    made = Prescribed()
    monkeypatch.setattr(runner, "open_store", lambda url, embedder: SimpleNamespace(sync=made))
    return made


def test_turns_become_entries_with_their_place() -> None:
    """A turn of a session is a message of its thread, dated; a plain fact is neither."""
    friends, assistant, facts = datasets.load_jsonl(CONVERSATIONS).conversations
    fifth = list(runner.to_entries(friends))[5]
    assert (fifth.id, fifth.namespace, fifth.session_id) == ("f6", "friends", None)
    assert fifth.message == MessageRef(thread="s2", seq=1, speaker="Mira")
    assert fifth.occurred_at == fifth.created_at == datasets.parse_time("2024-04-20T18:30:01")
    assert next(runner.to_entries(assistant)).message == MessageRef(thread="a", seq=0, role="user")
    first = next(runner.to_entries(facts))
    assert (first.message, first.occurred_at) == (None, None)


def test_questions_are_asked_after_the_last_turn(core: Prescribed) -> None:
    """A question sees one conversation, and is asked an hour after it ended unless it says when."""
    runner.evaluate("jsonl", CONVERSATIONS)
    asked = {request.query: request for request in core.asked if request.limit == 20}
    dog = asked["What is the name of Mira's dog?"]
    assert (dog.namespace, dog.scope, dog.session_id) == ("friends", "agent", None)
    assert dog.at == datasets.parse_time("2024-06-05T10:15:03")
    assert asked["When are releases cut?"].at == datasets.parse_time("2025-05-01")
    assert len(asked) == len(RANKINGS)


def test_known_rankings_give_the_figures_worked_out_by_hand(core: Prescribed) -> None:
    """Each group of questions has the mean of their figures, in per cent."""
    found, _ = runner.evaluate("jsonl", CONVERSATIONS)
    pixel = (1 + 1 / log2(4) + 1 / log2(9)) / (1 + 1 / log2(3) + 1 / log2(4))
    both = (1 + 1 / log2(4)) / (1 + 1 / log2(3))
    turn = found["turn"]
    assert list(turn) == ["cat1-4", "all", "1", "2", "3", "4", "5"]
    assert {name: figures["questions"] for name, figures in turn.items()} == {
        "cat1-4": 9, "all": 10, "1": 2, "2": 2, "3": 1, "4": 4, "5": 1
    }  # fmt: skip
    assert turn["1"] == pytest.approx(
        {
            "R@5": 100 * (2 / 3 + 1) / 2,
            "R@10": 100,
            "R@20": 100,
            "hit@10": 100,
            "all@5": 50,
            "all@10": 100,
            "nDCG@10": 100 * (pixel + both) / 2,
            "MRR": 100,
            "questions": 2,
        },
        abs=0.01,
    )
    assert [turn["3"][name] for name in METRICS] == [0.0] * 8
    assert turn["4"]["MRR"] == 100 * (1 / 2 + 1 + 1 / 2 + 1) / 4
    assert turn["2"]["R@5"] == 50.0
    assert turn["cat1-4"]["R@10"] == pytest.approx(100 * 8 / 9, abs=0.01)
    assert turn["all"]["R@10"] == 90.0


def test_sessions_rank_where_their_best_turns_do(core: Prescribed) -> None:
    """By sessions, only questions about conversations of several sessions count."""
    found, _ = runner.evaluate("jsonl", CONVERSATIONS)
    session = found["session"]
    assert session["all"]["questions"] == 8
    # The first dog question finds s2 before s1, which holds the answer.
    assert session["4"]["MRR"] == pytest.approx(100 * (1 / 2 + 1 + 1) / 3, abs=0.01)
    assert session["3"]["hit@10"] == 0.0
    assert session["1"]["all@5"] == 100.0
    assert {request.limit for request in core.asked} == {20, runner.SESSION_LIMIT}


def test_a_report_tells_its_settings(core: Prescribed) -> None:
    """The report says what was measured, with which embedder, and how long a recall took."""
    found, answers = runner.evaluate("jsonl", CONVERSATIONS, limit=30)
    assert found["settings"] == {
        "data": "talks", "conversations": 3, "turns": 26, "questions": 10, "skipped": 1,
        "embedder": "prescribed", "store": "a temporary file", "limit": 30,
    }  # fmt: skip
    assert 0 <= found["latency_ms"]["median"] <= found["latency_ms"]["p95"]
    assert [answer.found for answer in answers] == [tuple(ranking) for ranking in RANKINGS.values()]
    assert core.closed


def test_a_table_has_a_line_for_each_group(core: Prescribed) -> None:
    """People get the same figures, rounded to one place."""
    found, _ = runner.evaluate("jsonl", CONVERSATIONS)
    lines = runner.format_table(found).splitlines()
    assert lines[0] == "talks: 3 conversations, 26 turns, 10 questions (1 without evidence left out)"
    assert [line.split()[:4] for line in lines if line.startswith("turn cat1-4")] == [
        ["turn", "cat1-4", "9", "74.1"]
    ]
    assert sum(line.startswith(("turn", "session")) for line in lines) == 7 + 7


def test_progress_is_told(core: Prescribed) -> None:
    """Writing and asking tell how far they are, up to the end."""
    told: list[tuple[str, int, int]] = []
    runner.evaluate("jsonl", CONVERSATIONS, progress=lambda *step: told.append(step))
    assert told[-1] == ("asking questions", 10, 10)
    assert ("writing turns", 26, 26) in told
