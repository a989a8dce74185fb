"""Tests of the times that a query refers to."""

from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omoide.retrieval import intervals

NOW = int(datetime(2023, 6, 14, 12, tzinfo=UTC).timestamp() * 1000)  # a Wednesday


def days(text: str) -> tuple[str, str]:
    """The first interval, as its first day and the day after it."""
    start, end, *_ = intervals(text, NOW)[0]
    first, last = (datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d") for at in (start, end))
    return first, last


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("on 8 May 2023", "2023-05-08", "2023-05-09"),
        ("on May 8th, 2023", "2023-05-08", "2023-05-09"),
        ("2023-05-08", "2023-05-08", "2023-05-09"),
        ("in 2023-05", "2023-05-01", "2023-06-01"),
        ("in May 2023", "2023-05-01", "2023-06-01"),
        ("in May", "2023-05-01", "2023-06-01"),
        ("late March 2023", "2023-03-18", "2023-04-01"),
        ("summer of 2022", "2022-06-01", "2022-09-01"),
        ("winter 2022", "2022-12-01", "2023-03-01"),
        ("Christmas 2022", "2022-12-18", "2023-01-01"),
        ("in 2022", "2022-01-01", "2023-01-01"),
        ("yesterday", "2023-06-13", "2023-06-14"),
        ("last week", "2023-06-05", "2023-06-12"),
        ("this weekend", "2023-06-17", "2023-06-19"),
        ("last Friday", "2023-06-09", "2023-06-10"),
        ("last Wednesday", "2023-06-07", "2023-06-08"),
        ("last month", "2023-05-01", "2023-06-01"),
        ("last year", "2022-01-01", "2023-01-01"),
        ("last summer", "2022-06-01", "2022-09-01"),
        ("two weeks ago", "2023-05-28", "2023-06-04"),
        ("a couple of months ago", "2023-03-31", "2023-04-30"),
        ("the past two weeks", "2023-05-31", "2023-06-15"),
        ("three days before 5 June 2023", "2023-06-02", "2023-06-03"),
        ("the week before 3 July, 2023", "2023-06-26", "2023-07-03"),
        ("two weeks after 1 May 2023", "2023-05-12", "2023-05-19"),
        ("by July 10, 2022", "1970-01-01", "2022-07-11"),
    ],
)
def test_times_are_understood(text: str, start: str, end: str) -> None:
    """Each way to name a time means the days one would expect."""
    assert days(f"What did she do {text}?") == (start, end)


@pytest.mark.parametrize("text", ["may he go", "a march of time", "version 2", "31 June", "call 555 2000 1"])
def test_what_is_no_time_is_none(text: str) -> None:
    """Words that look like dates are left alone, or at worst mean a whole year or month."""
    assert all(end - start > 20 * 86_400_000 for start, end, *_ in intervals(text, NOW))


@given(st.text(max_size=80), st.integers(0, 2**53))
@example("by", 0)
def test_any_text_at_any_moment_can_be_read(text: str, now: int) -> None:
    """Whatever is asked whenever, intervals run forwards."""
    assert all(start < end for start, end, *_ in intervals(f"{text} last month, 3 years ago", now))
