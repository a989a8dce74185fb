"""Cron expressions fire at the right times."""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omoide import clock
from omoide.errors import Invalid
from omoide.runtime import next_after, scheduler

BERLIN, LORD_HOWE, APIA = "Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia"


def ms(text: str) -> int:
    """Milliseconds of a moment, which is UTC unless it says otherwise."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def format_time(at: int, zone: str = "UTC") -> str:
    return datetime.fromtimestamp(at / 1000, ZoneInfo(zone)).isoformat(" ")


def next_times(line: str, start: str, count: int, zone: str = "UTC") -> list[str]:
    """The next moments of a line, as a clock in the zone shows them."""
    found, at = list[str](), ms(start)
    for _ in range(count):
        at = next_after(line, at, zone)
        found.append(format_time(at, zone))
    return found


def days(line: str, start: str, count: int) -> list[str]:
    return [moment[:10] for moment in next_times(line, start, count)]


# An oracle that shares no code: fields are predicates, and time is tried out moment by moment.


def fits(item: str, value: int, low: int, high: int) -> bool:
    if "/" in item:
        span, _, step = item.partition("/")
        first, _, last = ("", "", "") if span == "*" else span.partition("-")
        start = int(first or low)
        return start <= value <= int(last or high) and (value - start) % int(step) == 0
    if "-" in item:
        first, _, last = item.partition("-")
        return int(first) <= value <= int(last)
    return item == "*" or int(item) == value


def any_fits(field: str, value: int, low: int, high: int) -> bool:
    return any(fits(item, value, low, high) for item in field.split(","))


def fires(line: str, local: datetime) -> bool:
    second, minute, hour, day, month, weekday = line.split()
    in_month = any_fits(day, local.day, 1, 31)
    sunday_twice = [0, 7] if local.isoweekday() == 7 else [local.isoweekday()]
    in_week = any(any_fits(weekday, number, 0, 6) for number in sunday_twice)
    day_fits = in_month or in_week if "*" not in day + weekday else in_month and in_week
    return (
        day_fits
        and any_fits(second, local.second, 0, 59)
        and any_fits(minute, local.minute, 0, 59)
        and any_fits(hour, local.hour, 0, 23)
        and any_fits(month, local.month, 1, 12)
    )


def items(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    spans = st.tuples(number, number).map(sorted).map(lambda pair: f"{pair[0]}-{pair[1]}")
    steps = st.integers(1, high - low + 1)
    stepped = st.tuples(st.one_of(st.just("*"), spans, number.map(str)), steps).map(
        lambda two: f"{two[0]}/{two[1]}"
    )
    return st.one_of(number.map(str), spans, stepped)


def field(low: int, high: int) -> st.SearchStrategy[str]:
    return st.one_of(st.just("*"), st.lists(items(low, high), min_size=1, max_size=3).map(",".join))


DAYS = st.tuples(field(1, 28), st.just("*"), field(0, 6)).map(" ".join)
MOMENTS = st.integers(ms("1970-01-01"), ms("2100-01-01"))


@given(st.tuples(field(0, 59), field(0, 23), DAYS).map(" ".join), MOMENTS)
@example("0 0 1 * 1/6", ms("1970-01-02"))
def test_a_line_of_minutes_fires_as_trying_every_minute_says(line: str, at: int) -> None:
    """The answer is the first minute after the moment that fits, if all minutes are tried one by one."""
    found = next_after(line, at)
    minute = datetime.fromtimestamp(at // 60_000 * 60, UTC) + timedelta(minutes=1)
    for _ in range(2_000):
        if fires(f"0 {line}", minute):
            assert format_time(found) == minute.isoformat(" ")
            return
        minute += timedelta(minutes=1)
    assert found >= minute.timestamp() * 1000
    assert fires(f"0 {line}", datetime.fromtimestamp(found / 1000, UTC))


@given(st.tuples(field(0, 59), field(0, 59), st.just("* * * *")).map(" ".join), MOMENTS)
def test_a_line_of_seconds_fires_as_trying_every_second_says(line: str, at: int) -> None:
    """With six fields the first is the second."""
    second = datetime.fromtimestamp(at // 1000, UTC) + timedelta(seconds=1)
    while not fires(line, second):
        second += timedelta(seconds=1)
    assert format_time(next_after(line, at)) == second.isoformat(" ")


@given(st.tuples(field(1, 31), field(1, 12), field(0, 6)).map(" ".join), MOMENTS)
def test_a_line_of_days_fires_as_trying_every_day_says(line: str, at: int) -> None:
    """Days of the month and of the week: either, where both are restricted, and otherwise both."""
    day = datetime.fromtimestamp(at // 86_400_000 * 86_400, UTC) + timedelta(days=1)
    for _ in range(366 * 9):
        if fires(f"0 0 0 {line}", day):
            assert format_time(next_after(f"0 0 {line}", at)) == day.isoformat(" ")
            return
        day += timedelta(days=1)
    try:
        assert next_after(f"0 0 {line}", at) >= day.timestamp() * 1000
    except Invalid as error:
        assert "never fires" in str(error)  # noqa: PT017 - some of these lines do


def scan_times(line: str, start: int, end: int, zone: ZoneInfo) -> list[int]:
    """Every moment of a line, found minute by minute."""
    rhythm = all(any_fits(line.split()[1], hour, 0, 23) for hour in range(24))
    found, before = list[int](), datetime.fromtimestamp(start, zone).replace(tzinfo=None)
    for second in range(start + 60, end, 60):
        moment = datetime.fromtimestamp(second, zone)
        local = moment.replace(tzinfo=None, fold=0)
        left_out = local - before - timedelta(minutes=1)
        skipped = (
            before + timedelta(minutes=number) for number in range(1, 1 + left_out // timedelta(minutes=1))
        )
        late = not rhythm and any(fires(f"0 {line}", gone) for gone in skipped)
        if late or (fires(f"0 {line}", local) and (rhythm or not moment.fold)):
            found.append(second)
        before = local
    return found


@given(
    st.tuples(field(0, 59), field(0, 5), st.just("* * *")).map(" ".join),
    st.sampled_from(
        [
            (BERLIN, "2024-03-30T22:00"),
            (BERLIN, "2024-10-26T22:00"),
            ("America/New_York", "2025-03-09T05:00"),
            ("America/New_York", "2025-11-02T03:00"),
            (LORD_HOWE, "2024-10-05T12:00"),  # half an hour forward
            (LORD_HOWE, "2025-04-05T11:00"),  # half an hour back
            ("America/Sao_Paulo", "2018-11-04T01:00"),  # midnight is left out
            ("Asia/Kathmandu", "2024-01-01T00:00"),
        ]
    ),
)
def test_where_clocks_change_a_line_fires_as_trying_every_minute_says(
    line: str, where: tuple[str, str]
) -> None:
    """Through the night in which clocks go forward or back, no moment is missing and none is too many."""
    zone, begin = where
    start = ms(begin) // 1000
    expected = scan_times(line, start, start + 9 * 3600, ZoneInfo(zone))
    found, at = list[int](), start * 1000
    while (at := next_after(line, at, zone)) < (start + 9 * 3600) * 1000:
        found.append(at // 1000)
    assert found == expected


@given(
    st.integers(ms("2024-10-27T00:00"), ms("2024-10-27T02:00")),
    st.sampled_from(["*/20 * * * *", "15,45 2 * * *"]),
)
def test_from_wherever_one_asks_the_answer_is_the_next(at: int, line: str) -> None:
    """Inside the hour that comes twice, any moment has the same successor as in the whole list."""
    start = ms("2024-10-26T22:00") // 1000
    whole = scan_times(line, start, start + 30 * 3600, ZoneInfo(BERLIN))
    assert next_after(line, at, BERLIN) == next(second * 1000 for second in whole if second * 1000 > at)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("*/15 * * * *", ["10:15", "10:30", "10:45"]),
        ("5/20 * * * *", ["10:05", "10:25", "10:45"]),
        ("10-12 * * * *", ["10:10", "10:11", "10:12"]),
        ("0 8,20 * * *", ["20:00", "08:00", "20:00"]),
        ("@hourly", ["11:00", "12:00", "13:00"]),
        ("@HOURLY", ["11:00", "12:00", "13:00"]),
    ],
)
def test_lists_ranges_and_steps(line: str, expected: list[str]) -> None:
    """They mean what they mean in every cron."""
    assert [moment[11:16] for moment in next_times(line, "2024-05-01T10:00", 3)] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 0 * * mon", ["2024-05-06", "2024-05-13"]),
        ("0 0 * * MON-WED", ["2024-05-06", "2024-05-07"]),
        ("0 0 * * 0", ["2024-05-05", "2024-05-12"]),
        ("0 0 * * 7", ["2024-05-05", "2024-05-12"]),
        ("0 0 * * sat-sun", ["2024-05-04", "2024-05-05"]),
        ("0 0 * * 6-7", ["2024-05-04", "2024-05-05"]),
        ("0 0 * * 5-7/2", ["2024-05-03", "2024-05-05"]),
        ("0 0 1 jan,Jul ?", ["2024-07-01", "2025-01-01"]),
        ("0 0 ? * 3", ["2024-05-08", "2024-05-15"]),
        ("0 0 13 * fri", ["2024-05-03", "2024-05-10"]),
        ("0 0 */2 * fri", ["2024-05-03", "2024-05-17"]),
        ("0 0 3 * */2", ["2024-08-03", "2024-09-03"]),
        ("0 0 31 * *", ["2024-05-31", "2024-07-31"]),
        ("0 0 29 2 *", ["2028-02-29", "2032-02-29"]),
        ("0 0 30 2 fri", ["2025-02-07", "2025-02-14"]),
        ("@weekly", ["2024-05-05", "2024-05-12"]),
        ("@monthly", ["2024-06-01", "2024-07-01"]),
        ("@yearly", ["2025-01-01", "2026-01-01"]),
        ("@annually", ["2025-01-01", "2026-01-01"]),
        ("@daily", ["2024-05-02", "2024-05-03"]),
        ("@midnight", ["2024-05-02", "2024-05-03"]),
    ],
)
def test_days_months_and_their_names(line: str, expected: list[str]) -> None:
    """Names count as numbers, Sunday is 0 and 7, and a day that a month lacks is passed over."""
    assert days(line, "2024-05-01T10:00", 2) == expected


def test_a_rare_day_is_found_without_trying_all_others() -> None:
    """The 29th of February that is a Sunday comes every 28 years, or 40 where a leap year is left out."""
    assert days("0 0 29 2 */7", "2050-01-01", 3) == ["2060-02-29", "2088-02-29", "2128-02-29"]
    assert days("0 0 29 2 *", "2096-03-01", 1) == ["2104-02-29"]


def test_the_answer_is_later_than_the_moment_asked_for() -> None:
    """A line that fires now gives the next time, even if a millisecond is left."""
    assert next_after("0 12 * * *", ms("2024-05-01T12:00")) == ms("2024-05-02T12:00")
    assert next_after("0 12 * * *", ms("2024-05-01T12:00") - 1) == ms("2024-05-01T12:00")
    assert next_after("* * * * * *", ms("2024-05-01T12:00") + 999) == ms("2024-05-01T12:00:01")


def test_the_time_of_day_is_that_of_the_zone() -> None:
    """Nine in the morning is another moment in summer than in winter."""
    assert next_after("0 9 * * *", ms("2024-01-10"), BERLIN) == ms("2024-01-10T08:00")
    assert next_after("0 9 * * *", ms("2024-07-10"), BERLIN) == ms("2024-07-10T07:00")


def test_a_time_that_is_left_out_fires_after_the_gap_once() -> None:
    """There is no half past two that night and no quarter past; three o'clock is one moment."""
    for line in ("30 2 * * *", "15,30 2 * * *", "0,30 2-3 * * *"):
        assert next_times(line, "2024-03-30T12:00", 1, BERLIN) == ["2024-03-31 03:00:00+02:00"]
    assert next_times("15,30 2 * * *", "2024-03-31T01:00", 1, BERLIN) == ["2024-04-01 02:15:00+02:00"]
    assert next_times("0 0 * * *", "2018-11-03T12:00", 2, "America/Sao_Paulo") == [
        "2018-11-04 01:00:00-02:00",
        "2018-11-05 00:00:00-02:00",
    ]


def test_a_day_that_is_left_out_fires_with_the_next() -> None:
    """Samoa had no 30th of December in 2011."""
    assert next_times("0 12 30 12 *", "2011-12-01", 2, APIA) == [
        "2011-12-31 00:00:00+14:00",
        "2012-12-30 12:00:00+14:00",
    ]


def test_a_time_that_comes_twice_fires_once() -> None:
    """The first of the two counts."""
    assert next_times("30 2 * * *", "2024-10-26T12:00", 2, BERLIN) == [
        "2024-10-27 02:30:00+02:00",
        "2024-10-28 02:30:00+01:00",
    ]


def test_a_line_for_every_hour_keeps_its_rhythm() -> None:
    """An hour lies between two moments, whatever the clocks do."""
    for start in ("2024-03-30T20:00", "2024-10-26T20:00"):
        for line in ("30 * * * *", "30 0-23 * * *", "30 */1 * * *"):
            at, found = ms(start), list[int]()
            for _ in range(12):
                at = next_after(line, at, BERLIN)
                found.append(at)
            assert {later - earlier for earlier, later in pairwise(found)} == {3_600_000}


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("60 * * * *", "expression.minute holds '60'; use 0 to 59"),
        ("* 24 * * *", "expression.hour holds '24'"),
        ("* * 0 * *", "expression.day holds '0'; use 1 to 31"),
        ("* * * 13 *", "expression.month holds '13'; use 1 to 12 or jan to dec"),
        ("* * * * 8", "expression.weekday holds '8'"),
        ("60 * * * * *", "expression.second holds '60'"),
        ("* * * mon *", "expression.month holds 'mon'"),
        ("* * L * *", "expression.day holds 'l'"),
        ("* * * * 5#2", "expression.weekday holds '5#2'"),
        ("? * * * *", "expression.minute holds '?'"),
        ("-5 * * * *", "expression.minute holds '-5'"),
        ("1- * * * *", "expression.minute holds '1-'"),
        ("1,,2 * * * *", "expression.minute holds ''"),
        ("*5 * * * *", "expression.minute holds '*5'"),
        ("٣ * * * *", "expression.minute holds"),
        ("+5 * * * *", "expression.minute holds"),
        ("1_0 * * * *", "expression.minute holds"),
        ("*/0 * * * *", "expression.minute holds '*/0'; use a step from 1 to 60"),
        ("*/90 * * * *", "use a step from 1 to 60"),
        ("*/ * * * *", "expression.minute holds '*/'"),
        ("*/2/2 * * * *", "expression.minute holds '*/2/2'"),
        ("30-10 * * * *", "expression.minute '30-10' runs backwards"),
        ("* * * * fri-mon", "expression.weekday 'fri-mon' runs backwards"),
        ("* * * *", "has 4 fields"),
        ("* * * * * * *", "has 7 fields"),
        ("@reboot", "is not a known alias; use @yearly"),
        ("  ", "is empty"),
        ("1," * 300 + "1 * * * *", "characters; use at most 500"),
        ("0 0 31 2 *", "never fires"),
        ("0 0 30,31 2 *", "never fires"),
        ("0 0 31 2,4,6,9,11 ?", "never fires"),
        ("0 0 30 2 */2", "never fires"),
    ],
)
def test_a_wrong_line_is_refused_and_says_where(line: str, problem: str) -> None:
    """The message names the field, what it holds and what it takes."""
    for ask in (lambda: next_after(line, 0), lambda: scheduler.check_expression(line)):
        with pytest.raises(Invalid) as caught:
            ask()
        assert problem in str(caught.value)


@pytest.mark.parametrize(
    "zone", ["Nowhere/At_all", "Europe", "../../etc/passwd", "/etc/localtime", "x" * 5000, "", "a\0b"]
)
def test_an_unknown_zone_is_refused(zone: str) -> None:
    """No name of a zone opens anything but a zone."""
    with pytest.raises(Invalid, match="timezone"):
        scheduler.check_expression("@daily", zone)


def test_other_types_are_refused() -> None:
    """A line and a zone are text, and a moment is an int."""
    for line, at, zone in ((5, 0, "UTC"), ("@daily", 0.5, "UTC"), ("@daily", -1, "UTC"), ("@daily", 0, None)):
        with pytest.raises(Invalid):
            next_after(line, at, zone)  # type: ignore[arg-type]


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland", "Pacific/Honolulu"])
def test_time_has_an_end(zone: str) -> None:
    """After the year 9999 nothing fires, and that is said."""
    for at in (clock.MAX_TIMESTAMP, clock.MAX_TIMESTAMP - 86_400_000):
        with pytest.raises(Invalid, match="before the year 10000"):
            next_after("0 0 1 6 *", at, zone)


@given(st.text(max_size=30))
def test_any_text_is_a_line_or_refused(text: str) -> None:
    """There is no third way, and a line that is taken fires."""
    try:
        scheduler.check_expression(text)
    except Invalid:
        return
    assert next_after(text, 0) > 0


@given(st.tuples(field(0, 59), field(0, 23), field(1, 31), field(1, 12), field(0, 7)).map(" ".join))
def test_whatever_is_well_formed_fires_or_never_does(line: str) -> None:
    """A line is refused only if none of its months has one of its days."""
    try:
        scheduler.check_expression(line)
    except Invalid as error:
        assert "never fires" in str(error)  # noqa: PT017 - most lines are fine
        assert not any(
            any_fits(line.split()[2], day, 1, 31) and any_fits(line.split()[3], month, 1, 12)
            for month in range(1, 13)
            for day in range(1, monthrange(2024, month)[1] + 1)
        )
