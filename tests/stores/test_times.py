"""Tests of the times that callers pass, and of questions that name a time."""

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

from omoide import Entry, Filter, RecallRequest, Scope, blocking, clock, open_store
from omoide.errors import Invalid

NOON = int(datetime(2026, 5, 8, 12, tzinfo=UTC).timestamp() * 1000)
MIDNIGHT = NOON - 12 * 3_600_000
ADA = Scope(agent_id="ada")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (NOON, NOON),
        (str(NOON), NOON),
        (datetime(2026, 5, 8, 12, tzinfo=UTC), NOON),
        (datetime(2026, 5, 8, 12), NOON),  # noqa: DTZ001  # a naive one is UTC
        (datetime(2026, 5, 8, 14, tzinfo=timezone(timedelta(hours=2))), NOON),
        (date(2026, 5, 8), MIDNIGHT),
        ("2026-05-08", MIDNIGHT),
        ("2026-05-08T12:00Z", NOON),
        ("2026-05-08t12:00z", NOON),
        ("2026-05-08 12:00", NOON),
        ("2026-05-08T14:00+02:00", NOON),
        (1_000, 1_000),
    ],
    ids=repr,
)
def test_a_time_is_passed_in_any_form(given: Any, expected: int) -> None:
    """Milliseconds, datetimes, dates and ISO text are the same time, in every record."""
    assert Entry(agent_id="ada", content="Tea.", occurred_at=given).occurred_at == expected
    assert Entry.new(agent_id="ada", content="Tea.", created_at=given).created_at == expected
    assert Filter.new(since=given).since == expected
    assert RecallRequest.for_scope(ADA, "tea", at=given).at == expected


@pytest.mark.parametrize("day", [date(2026, 5, 8), "2026-05-08"])
def test_until_a_day_is_until_its_end(day: Any) -> None:
    """The last day of a range belongs to it."""
    assert Filter.new(until=day).until == MIDNIGHT + 86_400_000 - 1


@pytest.mark.parametrize("field", ["occurred_at", "created_at", "expires_at"])
@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (1_778_241_600, "looks like seconds"),
        ("1778241600", "looks like seconds"),
        (-1, "before 1970"),
        (datetime(1969, 12, 31, tzinfo=UTC), "before 1970"),
        (NOON * 1_000, "after the year 9999"),
        ("next week", "not a time"),
        ("2026-13-40", "not a time"),
        (1.5, "must be"),
        (True, "must be"),
    ],
    ids=repr,
)
def test_an_implausible_time_is_refused(field: str, wrong: Any, problem: str) -> None:
    """The error names the field and the remedy."""
    with pytest.raises(Invalid, match=problem) as caught:
        Entry.new(agent_id="ada", content="Tea.", **{field: wrong})
    assert (caught.value.field, bool(caught.value.remedy)) == (field, True)


def test_nothing_happens_after_the_year_3000() -> None:
    """What expires may do so late, but what happened then is a mistake."""
    late = datetime(3001, 1, 1, tzinfo=UTC)
    assert Entry.new(agent_id="ada", content="Tea.", expires_at=late).expires_at
    with pytest.raises(Invalid, match="after the year 3000"):
        Entry.new(agent_id="ada", content="Tea.", occurred_at=late)


def test_what_lies_outside_does_not_displace_what_lies_inside() -> None:
    """A memory of the time asked for stands before a closer one of another time; the day after is outside."""
    with clock.override(lambda: NOON), open_store("memory://", embedder="none") as store:
        for text, day in (
            ("I had lunch with Ann at the river, a long lunch with Ann.", "2026-05-08"),
            ("Ann and I had lunch with her sister.", "2026-05-07"),
            ("I had lunch with Ann, lunch with Ann again.", "2026-03-01"),
            ("I fixed the bicycle.", "2026-05-06"),
        ):
            blocking.remember(store, text, ADA, occurred_at=day)
        found = blocking.recall(store, "What lunch did I have with Ann yesterday?", ADA)
        parts = [{reason.part: reason.value for reason in hit.why.reasons} for hit in found.hits]
    assert found.hits[0].entry.content == "Ann and I had lunch with her sister."
    assert parts[0]["date"] > 0
    assert all(other["date"] < 0 for other in parts[1:])


def test_the_time_of_telling_is_tolerant() -> None:
    """Without `occurred_at`, what was noted some days later still agrees a little."""
    with open_store("memory://", embedder="none") as store:
        blocking.remember(store, "I had lunch with Ann.", ADA, created_at="2026-05-10")
        blocking.remember(store, "I fixed the bicycle.", ADA, created_at="2026-03-01")
        found = blocking.recall(store, "What happened on 8 May 2026?", ADA, at=NOON + 5 * 86_400_000)
    assert "date" in {reason.part for reason in found.hits[0].why.reasons}
    assert found.hits[0].entry.content == "I had lunch with Ann."


def test_a_changed_time_is_indexed() -> None:
    """A revision that only adds when it happened is compared exactly from then on."""
    with open_store("memory://", embedder="none") as store:
        at = "2026-05-10"
        blocking.remember(store, "I had lunch with Ann.", ADA, id="lunch", created_at=at)
        blocking.remember(store, "I had tea with Bob.", ADA, id="tea", occurred_at="2026-05-08")
        blocking.remember(store, "I had lunch with Ann.", ADA, id="lunch", created_at=at, occurred_at=at)
        found = blocking.recall(store, "What happened on 8 May 2026?", ADA, at=NOON)
    dates = {hit.entry.id: {r.part: r.value for r in hit.why.reasons}["date"] for hit in found.hits}
    assert dates["tea"] > 0 > dates["lunch"]
