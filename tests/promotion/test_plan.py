"""Everything in short-term memory gets the right verdict."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.promotion import (
    NOW,
    SAID,
    SCOPE,
    fact,
    item,
    only_candidate,
    plan_of,
    short_term,
    verdicts,
)

from omoide import Evidence, Scope
from omoide.core import MEMORY_TYPES
from omoide.errors import Invalid
from omoide.promotion import PromotionMark, PromotionPlan, PromotionPolicy
from omoide.promotion.plan import TRUNCATION_SUFFIX, digest, entry_id_for_value
from omoide.shortterm.context import SOURCES

LONGEST = 64 * 1024
"""How many bytes a memory may have."""
UNIT = st.floats(0, 1)
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)
VALUES = st.none() | st.booleans() | st.integers(-9, 9) | TEXT
NOTED = st.dictionaries(
    st.sampled_from(["framework", "current_task", "pending_questions", "a", "b", "c", "d"]),
    st.fixed_dictionaries(
        {
            "value": VALUES,
            "source": st.sampled_from(SOURCES),
            "confidence": UNIT,
            "memory_type": st.none() | st.sampled_from(sorted(MEMORY_TYPES)),
            "now": st.integers(NOW - 10_000_000, NOW),
        }
    ),
)
WAITING = st.lists(UNIT, max_size=8)


# Verdicts


def test_everything_has_a_verdict_and_a_reason() -> None:
    """What is promoted is told from what is too unimportant, of no type, known, or taken back."""
    memory = short_term(
        {
            "framework": fact("Phoenix"),
            "weather": {"value": "fine", "confidence": 1.0},
            "active_file": fact("a.py", confidence=0.1),
            "language": fact("Elixir"),
            "root": fact("here"),
        },
        waiting=[item("high", 0.9), item("low", 0.1)],
        decided=[item("chosen", 0.0)],
    )
    marks = {"language": PromotionMark(key="language", id="mem_old", digest=digest("Elixir"))}
    held = [entry_id_for_value("s1", "root", "here", None)]
    plan = plan_of(memory, marks=marks, undone_ids=held)
    assert verdicts(plan) == {
        "framework": "promote",
        "weather": "untyped",
        "active_file": "below",
        "language": "unchanged",
        "root": "held",
        "high": "promote",
        "low": "below",
        "chosen": "promote",
    }
    reasons = {one.key or one.id: one.why for one in plan.candidates}
    assert all(reasons.values())
    assert "memory_type" in reasons["weather"]
    assert "mem_old" in reasons["language"]
    assert "0.6" in reasons["low"]
    assert "undone" in reasons["root"]
    assert "decided" in reasons["chosen"]
    for part in ("recency", "frequency", "confidence", "salience"):
        assert part in reasons["framework"]


def test_a_plan_can_be_read() -> None:
    """Printed, it has a line for each candidate with its verdict, score, words and reason."""
    plan = plan_of(short_term({"framework": fact("Phoenix")}, waiting=[item("low", 0.1, content="x" * 99)]))
    head, *lines = str(plan).split("\n")
    assert head == "1 of 2 reach 0.6"
    assert lines[0].startswith("promote   0.630 fact")
    assert "'framework: Phoenix'" in lines[0]
    assert lines[1].startswith("below     0.100")
    assert "x" * 61 not in lines[1]


@given(NOTED, WAITING, WAITING, st.integers(1, 5), UNIT)
def test_nothing_is_forgotten_and_nothing_unworthy_chosen(
    noted: Any, waiting: list[float], decided: list[float], most: int, threshold: float
) -> None:
    """Each item is there once, the most important first; the best are promoted, and every decision."""
    memory = short_term(
        noted,
        [item(f"w{at}", score) for at, score in enumerate(waiting)],
        [item(f"d{at}", score) for at, score in enumerate(decided)],
    )
    plan = plan_of(memory, PromotionPolicy(max_items=most, threshold=threshold))
    known = [*noted, *(f"w{at}" for at in range(len(waiting))), *(f"d{at}" for at in range(len(decided)))]
    assert sorted(one.key or one.id for one in plan.candidates) == sorted(known)
    scores = [one.score for one in plan.candidates]
    assert scores == sorted(scores, reverse=True)
    chosen = [one for one in plan.to_promote if one.origin != "decision"]
    assert len(chosen) <= most
    assert {one.id for one in plan.candidates if one.origin == "decision"} <= {
        one.id for one in plan.to_promote
    }
    assert all(one.score >= threshold - 1e-6 for one in chosen)
    assert all(one.entry.type is not None for one in chosen if one.origin == "context")
    worthy = [one for one in plan.candidates if one.verdict in ("promote", "later") and one not in chosen]
    assert len(chosen) == most or [one for one in worthy if one.origin != "decision"] == []
    for one in plan.candidates:
        if one.verdict == "below":
            assert one.score < threshold
        if one.verdict == "later":
            assert all(one.score <= other.score for other in chosen)


# How many


def test_a_run_takes_the_best_and_the_rest_waits() -> None:
    """Beyond the cap the verdict is `later`, in the order of importance."""
    memory = short_term(waiting=[item(f"w{at:02}", 0.7 + at / 100) for at in range(25)])
    plan = plan_of(memory)
    assert [one.id for one in plan.to_promote] == [f"w{at:02}" for at in range(24, 4, -1)]
    assert [one.id for one in plan.candidates if one.verdict == "later"] == [
        f"w0{at}" for at in range(4, -1, -1)
    ]
    assert plan_of(memory, PromotionPolicy(max_items=1)).to_promote[0].id == "w24"


def test_what_the_agent_decided_does_not_count_against_the_cap() -> None:
    """Fifty decisions are promoted in one run that takes two others, whatever they would score."""
    memory = short_term(
        waiting=[item(f"w{at}", 0.7) for at in range(3)],
        decided=[item(f"d{at}", 0.0) for at in range(50)],
    )
    plan = plan_of(memory, PromotionPolicy(max_items=2))
    assert len([one for one in plan.to_promote if one.origin == "decision"]) == 50
    assert len(plan.to_promote) == 52
    assert len(plan.candidates) == 53


# How much is enough


@pytest.mark.parametrize(
    ("trigger", "least"),
    [("demand", 0.6), ("interval", 0.6), ("turn", 0.6), ("pause", 0.6), ("capacity", 0.6), ("close", 0.4)],
)
def test_less_is_enough_when_the_session_ends(trigger: str, least: float) -> None:
    """Something of importance 0.4 to 0.6 is promoted at the close, and at no other time."""
    scores = {"a": 0.39, "b": 0.4, "c": 0.59, "d": 0.6}
    plan = plan_of(short_term(waiting=[item(id, one) for id, one in scores.items()]), trigger=trigger)
    assert (plan.threshold, plan.trigger) == (least, trigger)
    assert sorted(one.id for one in plan.to_promote) == [id for id, one in scores.items() if one >= least]


def test_thresholds_can_be_chosen() -> None:
    """A policy has its own ones, and one given for a run comes first."""
    memory = short_term(waiting=[item("a", 0.2), item("b", 0.5)])
    policy = PromotionPolicy(threshold=0.5, closing_threshold=0.1)
    assert [one.id for one in plan_of(memory, policy).to_promote] == ["b"]
    assert [one.id for one in plan_of(memory, policy, trigger="close").to_promote] == ["b", "a"]
    assert plan_of(memory, policy, threshold=0.9).to_promote == ()
    assert len(plan_of(memory, policy, threshold=0).to_promote) == 2


def test_what_equals_the_threshold_reaches_it() -> None:
    """An unknown of confidence 0.7 that was used five times scores 0.6 on paper, and less in floats."""
    memory = short_term()
    held = memory.context
    for _ in range(5):
        held, _ = held.put("pending_questions", "Why?", now=NOW)
    plan = plan_of(memory.replace(context=held))
    assert only_candidate(plan).score < 0.6
    assert only_candidate(plan).verdict == "promote"


@pytest.mark.parametrize("source", SOURCES)
def test_what_is_no_kind_of_memory_is_never_promoted(source: str) -> None:
    """A value without a type stays where it is, however important, and however low the threshold."""
    memory = short_term({"mood": {"value": "fine", "source": source, "confidence": 1.0}})
    assert only_candidate(plan_of(memory, threshold=0.0)).verdict == "untyped"
    assert only_candidate(plan_of(memory, trigger="close")).verdict == "untyped"


# What it becomes


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("Phoenix 1.7", "framework: Phoenix 1.7"),
        ("", "framework: "),
        (7, "framework: 7"),
        (False, "framework: false"),
        (None, "framework: null"),
        (["a", "b"], 'framework: ["a","b"]'),
        ({"name": "Phoenix", "version": 1.7}, 'framework: {"name":"Phoenix","version":1.7}'),
        ("déjà", "framework: déjà"),
    ],
)
def test_a_memory_says_what_it_is_about(value: Any, text: str) -> None:
    """The key stands before the value, also where the value is no text; both are kept as data too."""
    entry = only_candidate(plan_of(short_term({"framework": fact(value)}))).entry
    assert entry.content == text
    assert (entry.metadata["key"], entry.metadata["value"]) == ("framework", value)


def test_a_long_value_is_cut_and_says_so() -> None:
    """At most 64 KiB are remembered, no character is split, and the key is always there."""
    memory = short_term()
    held, _ = memory.context.replace(max_tokens=1_000_000).put(
        "log", "é" * LONGEST, memory_type="fact", now=NOW
    )
    entry = only_candidate(plan_of(memory.replace(context=held))).entry
    assert entry.content.startswith("log: é")
    assert entry.content.endswith(TRUNCATION_SUFFIX)
    assert LONGEST - 1 <= len(entry.content.encode()) <= LONGEST
    assert "�" not in entry.content
    assert "value" not in entry.metadata


def test_what_just_fits_is_not_cut() -> None:
    """A text of exactly 64 KiB stays whole."""
    memory = short_term()
    room = memory.context.replace(max_tokens=1_000_000)
    for size, cut in ((LONGEST - len("log: "), False), (LONGEST - len("log: ") + 1, True)):
        held, _ = room.put("log", "x" * size, memory_type="fact", now=NOW)
        entry = only_candidate(plan_of(memory.replace(context=held))).entry
        assert len(entry.content.encode()) == LONGEST
        assert entry.content.endswith(TRUNCATION_SUFFIX) is cut


@pytest.mark.parametrize(("said", "source"), [("explicit", "user"), ("tool", "tool"), ("inferred", "agent")])
def test_the_source_of_a_value_becomes_that_of_the_memory(said: str, source: str) -> None:
    """What somebody said is the user's, what a tool found the tool's, and the rest the agent's."""
    plan = plan_of(short_term({"framework": fact("Phoenix", source=said)}))
    assert only_candidate(plan).entry.source == source


def test_a_memory_is_as_old_and_as_sure_as_what_it_was() -> None:
    """Time, confidence, type, importance, evidence and owner are those of the value."""
    memory = short_term(
        {"framework": fact("Phoenix", confidence=0.65, now=NOW - 5_000, memory_type="discovery")}
    )
    one = only_candidate(plan_of(memory, origins={"framework": SAID}))
    entry = one.entry
    assert (entry.created_at, entry.confidence, entry.type) == (NOW - 5_000, 0.65, "discovery")
    assert entry.importance == one.score
    assert entry.evidence == (SAID,)
    assert entry.scope == SCOPE


def test_a_changed_value_is_as_old_as_the_change() -> None:
    """Said again, a value is as old as it was; another one is new."""
    memory = short_term()
    held, _ = memory.context.put("framework", **fact("A", now=NOW - 5_000))
    held, _ = held.put("framework", **fact("A", now=NOW - 3_000))
    assert only_candidate(plan_of(memory.replace(context=held))).entry.created_at == NOW - 5_000
    held, _ = held.put("framework", **fact("B", now=NOW - 1_000))
    assert only_candidate(plan_of(memory.replace(context=held))).entry.created_at == NOW - 1_000


def test_what_waits_keeps_all_it_has() -> None:
    """Time, evidence, rationale and the rest of an item reach its memory; the owner is the session's."""
    seen = (SAID, Evidence(kind="document", ref="readme"))
    waiting = item(
        "w", 0.9, rationale="It is fast.", created_at=NOW - 9, evidence=seen, tags=("a",), type="decision"
    )
    entry = only_candidate(plan_of(short_term(waiting=[waiting]))).entry
    assert entry == waiting.entry.replace(session_id="s1", project_id="shop", importance=0.9)
    assert (entry.created_at, entry.evidence, entry.rationale) == (NOW - 9, seen, "It is fast.")
    decided = only_candidate(plan_of(short_term(decided=[waiting]))).entry
    assert (decided.created_at, decided.evidence, decided.tags) == (NOW - 9, seen, ("a",))


def test_a_memory_without_an_owner_is_not_made() -> None:
    """A scope that names no agent is refused."""
    with pytest.raises(Invalid, match="agent_id"):
        plan_of(short_term({"framework": fact("x")}), scope=Scope(session_id="s1"))


# Ids


@given(VALUES, VALUES)
def test_an_id_follows_from_what_a_value_is(one: Any, other: Any) -> None:
    """The same value has the same id at any time; another value, key, session or past has another."""

    def id_of(value: Any, key: str = "k", session: str = "s1", now: int = NOW, **given: Any) -> str:
        memory = short_term({key: fact(value, now=now)}, session_id=session)
        return only_candidate(plan_of(memory, now=now, **given)).id

    assert id_of(one) == id_of(one, now=NOW + 99_999)
    same = type(one) is type(other) and one == other
    assert (id_of(one) == id_of(other)) is same
    before = {"k": PromotionMark(key="k", id="mem_before", digest="?")}
    assert len({id_of(one), id_of(one, "l"), id_of(one, session="s2"), id_of(one, marks=before)}) == 4


def test_the_order_of_a_mapping_makes_no_new_memory() -> None:
    """Two mappings that are equal are the same value."""
    one, other = ({"a": 1, "b": 2}, {"b": 2, "a": 1})
    marks = {"framework": PromotionMark(key="framework", id="mem_1", digest=digest(one))}
    assert only_candidate(plan_of(short_term({"framework": fact(other)}), marks=marks)).verdict == "unchanged"


@pytest.mark.parametrize(
    ("one", "other"), [(True, 1), (False, 0), (None, "null"), ("", None), ([], {}), ("1", 1)]
)
def test_values_that_look_alike_are_told_apart(one: Any, other: Any) -> None:
    """True is not 1, nothing is not an empty text, and a changed value is promoted again."""
    marks = {"framework": PromotionMark(key="framework", id="mem_1", digest=digest(one))}
    assert only_candidate(plan_of(short_term({"framework": fact(other)}), marks=marks)).verdict == "promote"
    assert only_candidate(plan_of(short_term({"framework": fact(one)}), marks=marks)).verdict == "unchanged"


# The policy


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("threshold", value) for value in (-0.1, 1.1, float("nan"), "0.6", None, True)),
        *(("closing_threshold", value) for value in (2, "x")),
        *(("every_ms", value) for value in (0, -1, 1.5, True, "1")),
        *(("max_items", value) for value in (0, -1, True)),
        *(("capacity", 7), ("weights", None), ("enabled", "yes"), ("strict", 1), ("never", True)),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused(field: str, value: Any) -> None:
    """The field is named."""
    with pytest.raises(Invalid, match=field):
        PromotionPolicy.new({field: value})


def test_a_plan_of_nothing_is_empty() -> None:
    """Where nothing is held, nothing is promoted."""
    plan = plan_of(short_term())
    assert (plan.candidates, plan.to_promote) == ((), ())
    assert isinstance(plan, PromotionPlan)
    assert str(plan) == "0 of 0 reach 0.6"
