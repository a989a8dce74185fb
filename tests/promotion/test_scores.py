"""The importance score and its explanation."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.core import MEMORY_TYPES
from omoide.errors import Invalid, InvalidRecord, WrongType
from omoide.promotion import score_context_item
from omoide.shortterm import AccessLog, ContextItem, Score, Weights, WorkingContext, score
from omoide.shortterm.importance import SALIENCE, reaches
from omoide.testing import reproducible

MINUTE = 60_000
LATER = 1000 * MINUTE


def of(type: str | None = "fact", confidence: float = 0.7, count: int = 1, minutes: float = 0) -> float:
    return score(LATER - int(minutes * MINUTE), count, confidence, type, LATER).total


@pytest.mark.parametrize(
    ("type", "confidence", "count", "total", "promoted"),
    [
        ("fact", 0.7, 1, 0.58, False),
        ("fact", 0.7, 2, 0.61, True),
        ("fact", 0.8, 1, 0.605, True),
        ("fact", 0.9, 1, 0.63, True),
        ("discovery", 0.7, 1, 0.605, True),
        ("assumption", 0.7, 4, 0.595, False),
        ("assumption", 0.7, 5, 0.625, True),
        ("unknown", 0.7, 5, 0.6, True),
        (None, 0.7, 5, 0.6, True),
    ],
)
def test_the_worked_examples_come_out_right(
    type: str | None, confidence: float, count: int, total: float, promoted: bool
) -> None:
    """Used just now; what equals the threshold on paper reaches it, although rounding puts it below."""
    assert of(type, confidence, count) == pytest.approx(total, abs=1e-12)
    assert reaches(of(type, confidence, count), 0.6) is promoted


def test_a_hair_below_is_enough_and_a_thousandth_is_not() -> None:
    """The tolerance is there for rounding only."""
    assert of("unknown", 0.7, 5) < 0.6
    assert reaches(of("unknown", 0.7, 5), 0.6)
    assert not reaches(0.599, 0.6)


@pytest.mark.parametrize(
    ("minutes", "recency"),
    [
        *((0, 1), (0.99, 1), (30, 0.5), (60, 1 / 3), (60.99, 1 / 3), (120, 0.2), (180, 1 / 7), (300, 1 / 11)),
        *((-30, 1), (-500, 1)),
    ],
)
def test_recency_fades_by_whole_minutes(minutes: float, recency: float) -> None:
    """Half of it is left after half an hour; the future counts as now."""
    found = score(LATER - int(minutes * MINUTE), 1, 0.7, "fact", LATER)
    assert found.recency == pytest.approx(recency)
    assert 0 <= found.total <= 1


@pytest.mark.parametrize(("count", "frequency"), [(0, 0), (1, 0.1), (10, 1), (11, 1), (10_000, 1)])
def test_ten_uses_are_as_good_as_more(count: int, frequency: float) -> None:
    """Frequency grows to that."""
    assert score(0, count, 0.7, "fact", 0).frequency == frequency


def test_some_kinds_matter_more() -> None:
    """A kind that refines another matters as much as that; what is not named matters little."""
    ones = {name for name in MEMORY_TYPES if SALIENCE[name] == 1.0}
    assert ones == {
        "decision",
        "architectural_decision",
        "implementation_decision",
        "convention",
        "coding_standard",
        "architectural_convention",
        "agent_rule",
        "process_convention",
        "lesson_learned",
        "risk",
    }
    others = {"discovery": 0.8, "fact": 0.7, "hypothesis": 0.5, "assumption": 0.4}
    assert {name: SALIENCE[name] for name in others} == others
    for name in ("unknown", "error", "bug", "task", "alternative", "memory_item", None):
        assert score(0, 1, 0.7, name, 0).salience == 0.3


def test_a_score_says_what_made_it() -> None:
    """Each part with its value, its weight, what it added, and words for it."""
    found = score(LATER - 30 * MINUTE, 2, 0.8, "architectural_decision", LATER)
    assert [(part.name, part.weight) for part in found.parts] == [
        ("recency", 0.2),
        ("frequency", 0.3),
        ("confidence", 0.25),
        ("salience", 0.25),
    ]
    assert sum(part.contribution for part in found.parts) == pytest.approx(found.total)
    assert str(found) == (
        "0.610 = recency 0.50 × 0.2 = 0.100 (used 30 min ago) + frequency 0.20 × 0.3 = 0.060 (used 2 times)"
        " + confidence 0.80 × 0.25 = 0.200 (confidence 80%)"
        " + salience 1.00 × 0.25 = 0.250 (an architectural decision)"
    )
    assert "(used within the last minute)" in str(score(0, 1, 1.0, None, 0))
    assert "(used once)" in str(score(0, 1, 1.0, None, 0))
    assert "(of no type)" in str(score(0, 1, 1.0, None, 0))


def test_the_present_is_asked_for_where_nobody_says() -> None:
    """From the clock in use."""
    with reproducible(at=30 * MINUTE):
        assert score(0, 1, 0.7, "fact").recency == 0.5


def test_confidence_is_brought_into_range() -> None:
    """Too sure is sure."""
    assert score(0, 1, 7, "fact", 0).confidence == 1
    assert score(0, 1, -7, "fact", 0).confidence == 0


def test_weights_can_be_chosen() -> None:
    """So can what is often and what is recent; the total stays within 1."""
    only_salience = Weights(recency=0, frequency=0, confidence=0, salience=1)
    assert score(0, 1, 0.7, "discovery", 0, only_salience).total == 0.8
    heavy = Weights(recency=5, frequency=5, confidence=5, salience=5)
    assert score(0, 10, 1.0, "risk", 0, heavy).total == 1
    quick = Weights(frequency_cap=2, half_minutes=1)
    found = score(0, 2, 0.7, "fact", MINUTE, quick)
    assert (found.frequency, found.recency) == (1, 0.5)


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        *(({name: -0.1}, f"{name} is -0.1; pass 0 or more") for name in ("recency", "frequency")),
        *(({name: -0.1}, f"{name} is -0.1; pass 0 or more") for name in ("confidence", "salience")),
        ({"recency": float("nan")}, "recency is nan"),
        ({"recency": float("inf")}, "recency is inf"),
        ({"recency": "much"}, "recency must be a number"),
        ({"frequency_cap": 0}, "frequency_cap is 0"),
        ({"frequency_cap": 2.5}, "frequency_cap must be an int"),
        ({"half_minutes": 0}, "half_minutes is 0"),
        ({"half_minutes": -1}, "half_minutes is -1"),
        ({"age": 1}, "age is an unknown field"),
    ],
)
def test_weights_that_cannot_be_are_refused(fields: dict[str, Any], problem: str) -> None:
    """None is negative, and what is divided by is more than 0."""
    with pytest.raises(InvalidRecord, match=f"invalid weights: {problem}"):
        Weights.new(fields)


def test_figures_that_cannot_be_are_refused() -> None:
    """The error names the part."""
    with pytest.raises(Invalid, match="access_count is -1"):
        score(0, -1, 0.7, "fact", 0)
    with pytest.raises(Invalid, match="confidence is nan"):
        score(0, 1, float("nan"), "fact", 0)
    with pytest.raises(WrongType, match="last_accessed must be milliseconds"):
        score("now", 1, 0.7, "fact", 0)  # type: ignore[arg-type]


WEIGHT = st.floats(0, 3)


@given(
    st.integers(0, 10**9),
    st.integers(0, 50),
    st.floats(0, 1),
    st.sampled_from([*MEMORY_TYPES, None]),
    st.integers(0, 10**9),
    st.builds(Weights, recency=WEIGHT, frequency=WEIGHT, confidence=WEIGHT, salience=WEIGHT),
)
def test_more_never_matters_less(
    last: int, count: int, confidence: float, type: str | None, now: int, weights: Weights
) -> None:
    """From 0 to 1; another use, a later one and more confidence never lower it; and it can be kept."""
    found = score(last, count, confidence, type, now, weights)
    assert 0 <= found.total <= 1
    assert all(0 <= part.value <= 1 for part in found.parts)
    for more in (
        score(last, count + 1, confidence, type, now, weights),
        score(last + MINUTE, count, confidence, type, now, weights),
        score(last, count, min(confidence + 0.1, 1), type, now, weights),
    ):
        assert reaches(more.total, found.total)
    assert Score.from_json(found.to_json()) == found


def item_of(context: WorkingContext) -> ContextItem:
    found = context.item("framework")
    assert found is not None
    return found


def test_a_context_item_is_scored_by_itself_and_by_the_log() -> None:
    """The larger count, and when the log saw it last, if it did."""
    item = item_of(WorkingContext.new().put("framework", "Phoenix", source="tool", now=0)[0])
    bare = score_context_item(item, AccessLog.new(), LATER)
    assert (bare.access_count, bare.minutes) == (1, 1000)
    log = AccessLog.new().record("framework", now=LATER).record(("memory", "framework"), now=0)
    seen = score_context_item(item, log, LATER)
    assert (seen.access_count, seen.minutes) == (1, 0)
    for _ in range(4):
        log = log.record("framework", now=LATER - 30 * MINUTE)
    often = score_context_item(item, log, LATER)
    assert (often.access_count, often.minutes) == (5, 30)
    heavy = Weights(recency=0, frequency=0, confidence=0, salience=1)
    assert score_context_item(item, log, LATER, heavy).total == 0.7
