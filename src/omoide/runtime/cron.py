"""When does a cron line fire next?

A line has five fields (minute, hour, day, month, weekday), or six with the second first. The time of day is
that of a time zone. Where clocks go forward, a time that is left out fires at the first moment after the
gap; where they go back, a time that comes twice fires the first time. A line for every hour keeps its
rhythm instead: it skips what is left out and fires in both of the two hours.
"""

from __future__ import annotations

from calendar import monthrange
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

import msgspec

from omoide import clock
from omoide.core.texts import check_text
from omoide.errors import Invalid

LONGEST = 500
"""So many characters a line may have."""

WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - local times have no zone until they are looked up in one
_SECOND = timedelta(seconds=1)
_LONGEST_MONTHS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_DAY, _WEEKDAY = _Field("day", 1, 31), _Field("weekday", 0, 7, _WEEKDAYS)
_FIELDS = (
    _Field("second", 0, 59),
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _DAY,
    _Field("month", 1, 12, _MONTHS),
    _WEEKDAY,
)


class _Line(msgspec.Struct, frozen=True):
    """What a line stands for: the values of its fields, in order."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool
    every_hour: bool

    def first_from(self, start: datetime) -> datetime | None:
        """The first local time that fits, from `start` on."""
        if start.month in self.months and self._fits(start.date()):
            at = (start.hour, start.minute, start.second)
            for hour in self.hours:
                for minute in self.minutes if hour >= start.hour else ():
                    for second in self.seconds if (hour, minute) >= at[:2] else ():
                        if (hour, minute, second) >= at:
                            return start.replace(hour=hour, minute=minute, second=second)
        day = self._day_after(start.date())
        if day is None:
            return None
        return datetime(day.year, day.month, day.day, self.hours[0], self.minutes[0], self.seconds[0])  # noqa: DTZ001

    def _day_after(self, day: date) -> date | None:
        year, month, first = day.year, day.month, day.day + 1
        while year <= date.max.year:
            if month in self.months:
                for number in range(first, monthrange(year, month)[1] + 1):
                    if self._fits(found := date(year, month, number)):
                        return found
            year, month, first = year + month // 12, month % 12 + 1, 1
        return None

    def _fits(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.either_day else in_month and in_week


def next_after(expression: str, at: int, timezone: str = "UTC") -> int:
    """The first moment after `at` at which a line fires, in milliseconds UTC."""
    line, zone = _parsed(_checked(expression)), _zone(timezone)
    second = clock.check(at, "at") // 1000
    try:
        found = min(_fires(line, start, second, zone) for start in _starts(line, second, zone))
        return clock.check(found * 1000, "at")
    except (OverflowError, ValueError):  # a local time, or the moment found, is beyond the last year
        raise Invalid(
            "expression", f"{expression!r} does not fire before the year 10000", "ask for an earlier time"
        ) from None


def check(expression: str, timezone: str = "UTC") -> None:
    """Raise unless this is a line that fires, in a time zone that is known."""
    _parsed(_checked(expression))
    _zone(timezone)


def _fires(line: _Line, start: datetime, after: int, zone: tzinfo) -> int:
    """The first second after another at which a line fires, looking from a local time on."""
    while (local := line.first_from(start)) is not None:
        early, late = _second(local, zone, 0), _second(local, zone, 1)
        start = local + _SECOND
        if early > late:  # it is left out
            end = _change(late, early, zone)
            if line.every_hour:
                start = _local(end, zone)
                continue
            early = end
        if early > after:
            return early
        if line.every_hour and late > after:
            return late
    raise OverflowError


def _starts(line: _Line, second: int, zone: tzinfo) -> list[datetime]:
    """The local times to look from; two, if a line for every hour has the same hour before it once more."""
    local = _local(second, zone)
    starts = [local + _SECOND]
    again = _second(local, zone, 1)
    if line.every_hour and second < again:
        starts.append(_local(_change(second, again, zone), zone))
    return starts


def _local(second: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(second, zone).replace(tzinfo=None, fold=0)


def _second(local: datetime, zone: tzinfo, fold: int) -> int:
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()
    return (local - _EPOCH - offset) // _SECOND


def _change(before: int, after: int, zone: tzinfo) -> int:
    """The first second after the clocks of a zone were changed, somewhere between two seconds."""

    def offset(second: int) -> timedelta | None:
        return datetime.fromtimestamp(second, zone).utcoffset()

    was = offset(before)
    while after - before > 1:
        middle = (before + after) // 2
        before, after = (middle, after) if offset(middle) == was else (before, middle)
    return after


def _zone(name: str) -> tzinfo:
    if check_text(name, "timezone") == "UTC":
        return UTC  # known without a database of zones
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise Invalid(
            "timezone", f"{name!r} is not known here", "use a name such as Europe/Berlin, or install tzdata"
        ) from None


def _checked(expression: str) -> str:
    text = check_text(expression, "expression", "use 5 fields, or @hourly")
    if len(text) > LONGEST:
        raise Invalid("expression", f"has {len(text)} characters", f"use at most {LONGEST}")
    return text


@lru_cache(maxsize=1024)
def _parsed(expression: str) -> _Line:
    text = expression.strip().lower()
    if text.startswith("@") and text not in WORDS:
        raise Invalid("expression", f"{expression!r} is no word for a time", f"use {', '.join(WORDS)}")
    parts = WORDS.get(text, text).split()
    if len(parts) not in (5, 6):
        raise Invalid(
            "expression", f"{expression!r} has {len(parts)} fields", "use 5, or 6 with seconds first"
        )
    if len(parts) == 5:
        parts = ["0", *parts]
    seconds, minutes, hours, days, months, weekdays = map(_values, parts, _FIELDS)
    either = not set("*?") & {*parts[3], *parts[5]}
    if not either and not any(day <= _LONGEST_MONTHS[month] for day in days for month in months):
        raise Invalid("expression", f"{expression!r} never fires", "use a day that one of the months has")
    week = tuple(sorted({day % 7 for day in weekdays}))
    return _Line(seconds, minutes, hours, days, months, week, either, len(hours) == 24)


def _values(part: str, field: _Field) -> tuple[int, ...]:
    """All values that one field of a line stands for."""
    return tuple(sorted({value for item in part.split(",") for value in _range(item, field)}))


def _range(item: str, field: _Field) -> range:
    span, slash, step = item.partition("/")
    first, dash, last = span.partition("-")
    end = field.high - (field is _WEEKDAY)  # 7 is Sunday once more, for those who write it
    if span == "*" or (item == "?" and field in (_DAY, _WEEKDAY)):
        low, high = field.low, end
    else:
        low = _number(first, field, item)
        high = _number(last, field, item) if dash else max(low, end) if slash else low
    if field is _WEEKDAY and high == 0:
        high = 7 if low else 0  # sat-sun
    if low > high:
        raise Invalid(f"expression.{field.name}", f"{item!r} runs backwards", "write it as two ranges")
    every = _step(step, field, item) if slash else 1
    return range(low, high + 1, every)


def _number(text: str, field: _Field, item: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    number = _digits(text)
    if number is None or not field.low <= number <= field.high:
        names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise Invalid(
            f"expression.{field.name}", f"holds {item!r}", f"use {field.low} to {field.high}{names}, or *"
        )
    return number


def _step(text: str, field: _Field, item: str) -> int:
    step, longest = _digits(text), field.high - field.low + 1
    if step is None or not 0 < step <= longest:
        raise Invalid(f"expression.{field.name}", f"holds {item!r}", f"use a step from 1 to {longest}")
    return step


def _digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None
