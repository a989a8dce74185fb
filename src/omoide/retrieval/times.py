"""Parse the times that a text refers to.

Dates may be absolute ("8 May 2023", "2023-05", "summer 2022"), without a year ("in May"), relative to now
("yesterday", "two weeks ago", "last Friday"), or relative to a date ("three days before 5 June"). They are
English; ISO dates work in every language.
"""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

_YEARS_BACK = 6
"""Number of years, up to the current one, that a date without a year may refer to."""

MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october",
    "november", "december",
)  # fmt: skip
_MONTH_NUMBERS = {short: at for at, name in enumerate(MONTHS, 1) for short in (name, name[:3])} | {"sept": 9}
_DAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SEASONS = {"spring": (3, 5), "summer": (6, 8), "autumn": (9, 11), "fall": (9, 11), "winter": (12, 2)}
_HOLIDAYS = {
    "christmas": (12, 18, 31), "xmas": (12, 18, 31), "halloween": (10, 25, 31), "thanksgiving": (11, 20, 30),
    "valentine": (2, 10, 16), "new year's": (12, 30, 31), "new years": (12, 30, 31),
}  # fmt: skip
_COUNTS = {
    name: at
    for at, name in enumerate(
        "zero one two three four five six seven eight nine ten eleven twelve".split()  # noqa: SIM905
    )
} | {"a": 1, "an": 1, "the": 1, "couple": 2, "few": 3, "several": 4}

_MONTH = r"(?P<month>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?" + (
    r"|sep(?:t(?:ember)?)?|oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY_NUMBER = r"(?P<day>[0-3]?\d)(?:st|nd|rd|th)?\b"
_YEAR = r"(?P<year>(?:19|20)\d\d)\b"
_COUNT = r"(?P<count>\d{1,3}|an?|the|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve" + (
    r"|(?:a )?couple(?: of)?|(?:a )?few|several)"
)
_UNIT = r"(?P<unit>day|week|weekend|month|year)s?\b"
_PERIOD = r"(?P<period>week(?:end)?|month|year|monday|tuesday|wednesday|thursday|friday|saturday|sunday" + (
    r"|spring|summer|autumn|fall|winter|night)\b"
)

_PART = r"(?P<part>\b(?:early|mid|late|(?:the )?(?:beginning|start|middle|end) of)[ -])"

# The most specific first: characters that one pattern used are not available to the next ones, so the year of
# "5 May 2023" is not found again as a year.
_DATE_PATTERNS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("iso", r"\b(?P<year>(?:19|20)\d\d)-(?P<month>[01]\d)(?:-(?P<day>[0-3]\d))?\b"),
        ("date", rf"\b{_DAY_NUMBER}(?: of)? {_MONTH},?(?: (?:of )?{_YEAR})?"),
        ("date", rf"\b{_MONTH} {_DAY_NUMBER}(?:,? {_YEAR})?"),
        ("date", rf"{_PART}?\b{_MONTH},?(?: of)? {_YEAR}"),
        ("season", rf"\b(?P<season>spring|summer|autumn|fall|winter)(?: of|,)? {_YEAR}"),
        ("holiday", rf"\b(?P<holiday>{'|'.join(_HOLIDAYS)})(?:'?s)?(?: (?:of |in )?{_YEAR})?"),
        ("past", rf"\b(?:(?:last|past|previous) {_COUNT} {_UNIT})"),
        ("ago", rf"\b{_COUNT} {_UNIT} ago\b"),
        ("relative", rf"\b(?P<which>last|this|next|previous|past) {_PERIOD}"),
        ("word", r"\b(?P<word>yesterday|today|tonight|tomorrow)\b"),
        ("date", rf"\b(?:in|during|since|until|by|early|mid|late|before|after|of|last|this)[ -]{_MONTH}"),
        ("season", r"\b(?:in|during|over|since|that|the)(?: the)? (?P<season>spring|summer|autumn|winter)\b"),
        ("year", rf"\b{_YEAR}"),
    )
)
_SHIFT = re.compile(
    rf"\b(?P<many>{_COUNT} {_UNIT} )?(?P<way>before|after|prior to|following|since|until|by) (?:the )?$"
)
_UNIT_DAYS = {"day": 1, "week": 7, "weekend": 7, "month": 30, "year": 365}


class Interval(NamedTuple):
    """A half-open interval of time, in milliseconds."""

    start: int
    end: int
    weight: float = 1.0


def intervals(text: str, now: int) -> tuple[Interval, ...]:
    """Return the times that a text refers to, as seen at the time `now`."""
    lowered = text.lower()
    is_used = [False] * len(lowered)
    result: list[Interval] = []
    # Limited to the year 3000, so that the arithmetic below stays in the range of datetime.
    at_now = datetime.fromtimestamp(min(max(now, 0), 32_503_680_000_000) / 1000, UTC)
    for kind, pattern in _DATE_PATTERNS:
        for match in pattern.finditer(lowered):
            start, end = match.span()
            if any(is_used[start:end]):
                continue
            parsed = _parse_match(kind, match.groupdict(), at_now)
            if parsed:
                is_used[start:end] = [True] * (end - start)
                shift = _SHIFT.search(lowered[:start])
                result.extend(_shift_intervals(parsed, shift) if shift else parsed)
    # An interval that lies before 1970 is empty.
    return tuple(interval for interval in result if interval.start < interval.end)


def _parse_match(kind: str, groups: dict[str, str | None], now: datetime) -> list[Interval]:
    try:
        if kind in ("iso", "date"):
            return _parse_date(groups, now)
        if kind in ("season", "holiday", "year"):
            return _parse_season_or_year(groups, now)
        if kind in ("past", "ago"):
            return _parse_duration(kind, groups, now)
        return _parse_relative(groups, now)
    except (ValueError, OverflowError):  # the 31st of June, the year 1900 before 1970
        return []


def _years(year: str | None, now: datetime) -> list[int]:
    return [int(year)] if year else list(range(now.year, now.year - _YEARS_BACK, -1))


def _parse_date(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    month_text = (groups["month"] or "").rstrip(".")
    month = int(month_text) if month_text.isdigit() else _MONTH_NUMBERS[month_text]
    day_text = groups.get("day")
    day = int(day_text) if day_text else None
    result = []
    for year in _years(groups.get("year"), now):
        first, last = (day, day) if day else _month_part(groups.get("part"), monthrange(year, month)[1])
        if last <= monthrange(year, month)[1]:
            result.append(_days_interval(datetime(year, month, first, tzinfo=UTC), last - first + 1))
    return result


def _month_part(part: str | None, days: int) -> tuple[int, int]:
    if part is None:
        return 1, days
    # The parts overlap: such words are vague.
    if "early" in part or "beginning" in part or "start" in part:
        return 1, 12
    if "mid" in part:
        return 9, 22
    return 18, days


def _parse_season_or_year(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    result = []
    for year in _years(groups.get("year"), now):
        if season := groups.get("season"):
            first, last = _SEASONS[season]
            start = datetime(year, first, 1, tzinfo=UTC)
            result.append(_interval(start, _month_start(year + (last < first), last + 1)))
        elif holiday := groups.get("holiday"):
            month, begin, end = _HOLIDAYS[holiday]
            result.append(_days_interval(datetime(year, month, begin, tzinfo=UTC), end - begin + 1))
        else:
            result.append(_interval(datetime(year, 1, 1, tzinfo=UTC), datetime(year + 1, 1, 1, tzinfo=UTC)))
    return result


def _parse_duration(kind: str, groups: dict[str, str | None], now: datetime) -> list[Interval]:
    days = _parse_count(groups["count"]) * _UNIT_DAYS[groups["unit"] or "day"]
    if kind == "past":
        return [_interval(now - timedelta(days=days), now + timedelta(days=1))]
    # "Three weeks ago" is seldom exact: a quarter of the distance either way.
    slack = days / 4 if days > 2 else 0.5
    return [_interval(now - timedelta(days=days + slack), now - timedelta(days=days - slack))]


def _parse_count(text: str | None) -> int:
    number = (text or "one").removeprefix("a ").removesuffix(" of") or "one"
    return int(number) if number.isdigit() else _COUNTS.get(number, 1)


def _parse_relative(groups: dict[str, str | None], now: datetime) -> list[Interval]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    word = groups.get("word")
    if word:
        return [_days_interval(today + timedelta(days={"yesterday": -1, "tomorrow": 1}.get(word, 0)), 1)]
    which, period = groups["which"], groups["period"] or "week"
    step = {"this": 0, "next": 1}.get(which or "last", -1)
    if period in _DAYS:
        # "Last Friday" said on a Friday is a week ago, and "next Friday" a week ahead.
        days = (_DAYS.index(period) - today.weekday()) % 7 or (7 if step else 0)
        return [
            _days_interval(today + timedelta(days=days if step >= 0 else days - 7 if days != 7 else -7), 1)
        ]
    if period in _SEASONS:
        return _relative_season(period, step, today)
    if period == "night":
        return [_days_interval(today + timedelta(days=step), 1)]
    if period == "month":
        month = today.year * 12 + today.month - 1 + step
        year, number = month // 12, month % 12 + 1
        return [_interval(_month_start(year, number), _month_start(year, number + 1))]
    if period == "year":
        return [_interval(_month_start(today.year + step, 1), _month_start(today.year + step + 1, 1))]
    monday = today + timedelta(days=7 * step - today.weekday())
    return [
        _days_interval(monday + timedelta(days=5), 2) if period == "weekend" else _days_interval(monday, 7)
    ]


def _relative_season(name: str, step: int, today: datetime) -> list[Interval]:
    first, last = _SEASONS[name]
    for year in (today.year, today.year - 1):  # "last summer" is over: in May it is that of the year before
        start, end = datetime(year, first, 1, tzinfo=UTC), _month_start(year + (last < first), last + 1)
        if step >= 0 or end <= today:
            return [_interval(start, end)]
    return []


def _shift_intervals(intervals: list[Interval], shift: re.Match[str]) -> list[Interval]:
    """Move intervals by the distance before or after them; without a distance, open them to that side."""
    earlier = shift["way"] in ("before", "prior to", "until", "by")
    if shift["many"]:
        distance = _parse_count(shift["count"]) * _UNIT_DAYS[shift["unit"]] * 86_400_000
        slack = max(distance // 4, 86_400_000)
        if shift["count"] == "the":  # "the week before" is the week itself
            return [
                Interval(start - distance, start) if earlier else Interval(end, end + distance)
                for start, end, _ in intervals
            ]
        if earlier:
            return [Interval(start - distance - slack, start - distance + slack) for start, _, _ in intervals]
        return [Interval(end + distance - slack, end + distance + slack) for _, end, _ in intervals]
    # An open interval is a weak hint, so it has half the weight. Without a year, only the latest date counts.
    if earlier:
        until = shift["way"] in ("until", "by")
        return [Interval(0, end if until else start, 0.5) for start, end, _ in intervals[:1]]
    return [Interval(end, 2**62, 0.5) for _, end, _ in intervals[:1]]


def _month_start(year: int, month: int) -> datetime:
    return datetime(year + (month - 1) // 12, (month - 1) % 12 + 1, 1, tzinfo=UTC)


def _days_interval(start: datetime, days: int) -> Interval:
    return _interval(start, start + timedelta(days=days))


def _interval(start: datetime, end: datetime) -> Interval:
    return Interval(int(start.timestamp() * 1000), int(end.timestamp() * 1000))
