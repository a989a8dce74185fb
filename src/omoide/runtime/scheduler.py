"""Run timers, and compute when cron expressions fire.

A cron expression has five fields (minute, hour, day, month, weekday), or six with the second first. Times are
local times of a time zone. Where clocks go forward, a time inside the gap fires at the first moment after it;
where they go back, a time that comes twice fires the first time. An expression for every hour keeps its
rhythm instead: it skips the gap, and fires in both of the repeated hours.

`Timing` is the clock of the runtime, which tests replace. `Timers` fires any number of timers in one task:
`at` goes by the wall clock, `after` counts elapsed milliseconds. When the wall clock is set back, nothing
fires twice, and a delay grows by no more than what passed since the timers last looked: a few seconds, and
not the hour that the clock was wrong.
"""

from __future__ import annotations

import logging
from calendar import monthrange
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo

import anyio
import msgspec
from anyio.lowlevel import checkpoint

from omoide import clock
from omoide.core.frozen import check_text
from omoide.core.value import check_count, check_function, check_number
from omoide.errors import Invalid

MAX_EXPRESSION_LENGTH = 500
"""The number of characters that an expression may have."""

ALIASES = {
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
_MAX_MONTH_DAYS = (0, 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")

FIRE_BATCH = 256
"""The number of timers that fire before other tasks get their turn."""
MAX_CANCELLED = 64
"""The number of cancelled timers that may stay in a heap before it is rebuilt."""
NEVER = clock.MAX_TIMESTAMP + 1
_log = logging.getLogger("omoide")


class _CronField(NamedTuple):
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()


_DAY, _WEEKDAY = _CronField("day", 1, 31), _CronField("weekday", 0, 7, _WEEKDAYS)
_FIELDS = (
    _CronField("second", 0, 59),
    _CronField("minute", 0, 59),
    _CronField("hour", 0, 23),
    _DAY,
    _CronField("month", 1, 12, _MONTHS),
    _WEEKDAY,
)


class _CronExpression(msgspec.Struct, frozen=True):
    """The values that each field of a cron expression allows, in order."""

    seconds: tuple[int, ...]
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    either_day: bool
    every_hour: bool

    def first_match(self, start: datetime) -> datetime | None:
        """Return the first matching local time at or after `start`."""
        if start.month in self.months and self._matches_day(start.date()):
            at = (start.hour, start.minute, start.second)
            for hour in self.hours:
                for minute in self.minutes if hour >= start.hour else ():
                    for second in self.seconds if (hour, minute) >= at[:2] else ():
                        if (hour, minute, second) >= at:
                            return start.replace(hour=hour, minute=minute, second=second)
        day = self._next_day(start.date())
        if day is None:
            return None
        return datetime(day.year, day.month, day.day, self.hours[0], self.minutes[0], self.seconds[0])  # noqa: DTZ001

    def _next_day(self, day: date) -> date | None:
        year, month, first = day.year, day.month, day.day + 1
        while year <= date.max.year:
            if month in self.months:
                for number in range(first, monthrange(year, month)[1] + 1):
                    if self._matches_day(candidate := date(year, month, number)):
                        return candidate
            year, month, first = year + month // 12, month % 12 + 1, 1
        return None

    def _matches_day(self, day: date) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month or in_week if self.either_day else in_month and in_week


def next_after(expression: str, at: int, timezone: str = "UTC") -> int:
    """Return the first moment after `at` at which a cron expression fires, in milliseconds UTC.

    Args:
        expression: Five fields, six with the second first, or a word such as `@hourly`.
        at: The moment to start from, in milliseconds UTC.
        timezone: The IANA name of the time zone that the expression is in.

    Raises:
        Invalid: The expression or time zone is wrong, or does not fire before the year 10000.
    """
    cron, zone = _parse(_check_length(expression)), _zone(timezone)
    second = clock.check(at, "at") // 1000
    try:
        fire = min(_next_fire(cron, start, second, zone) for start in _search_starts(cron, second, zone))
        return clock.check(fire * 1000, "at")
    except (OverflowError, ValueError):  # a local time, or the moment found, is beyond the last year
        raise Invalid(
            "expression", f"{expression!r} does not fire before the year 10000", "ask for an earlier time"
        ) from None


def check_expression(expression: str, timezone: str = "UTC") -> None:
    """Raise `Invalid` unless the expression can be parsed and fires, and the time zone is known."""
    _parse(_check_length(expression))
    _zone(timezone)


def _next_fire(cron: _CronExpression, start: datetime, after: int, zone: tzinfo) -> int:
    """Return the first second after `after` at which an expression fires, searching from a local time on."""
    while (local := cron.first_match(start)) is not None:
        # PEP 495: fold 0 is the earlier of a repeated time; inside a gap it maps after fold 1.
        early, late = _second(local, zone, 0), _second(local, zone, 1)
        start = local + _SECOND
        if early > late:  # the local time falls into a gap
            end = _find_transition(late, early, zone)
            if cron.every_hour:
                start = _local(end, zone)
                continue
            early = end
        if early > after:
            return early
        if cron.every_hour and late > after:
            return late
    raise OverflowError


def _search_starts(cron: _CronExpression, second: int, zone: tzinfo) -> list[datetime]:
    """Return the local times to search from; two if an hourly expression may fire in a repeated hour."""
    local = _local(second, zone)
    starts = [local + _SECOND]
    again = _second(local, zone, 1)
    if cron.every_hour and second < again:
        starts.append(_local(_find_transition(second, again, zone), zone))
    return starts


def _local(second: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(second, zone).replace(tzinfo=None, fold=0)


def _second(local: datetime, zone: tzinfo, fold: int) -> int:
    offset = local.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()
    return (local - _EPOCH - offset) // _SECOND


def _find_transition(before: int, after: int, zone: tzinfo) -> int:
    """Return the first second after the offset of a zone changes between two seconds, by bisection."""

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


def _check_length(expression: str) -> str:
    text = check_text(expression, "expression", "use 5 fields, or @hourly")
    if len(text) > MAX_EXPRESSION_LENGTH:
        raise Invalid("expression", f"has {len(text)} characters", f"use at most {MAX_EXPRESSION_LENGTH}")
    return text


@lru_cache(maxsize=1024)
def _parse(expression: str) -> _CronExpression:
    text = expression.strip().lower()
    if text.startswith("@") and text not in ALIASES:
        raise Invalid("expression", f"{expression!r} is not a known alias", f"use {', '.join(ALIASES)}")
    parts = ALIASES.get(text, text).split()
    if len(parts) not in (5, 6):
        raise Invalid(
            "expression", f"{expression!r} has {len(parts)} fields", "use 5, or 6 with seconds first"
        )
    if len(parts) == 5:
        parts = ["0", *parts]
    seconds, minutes, hours, days, months, weekdays = map(_parse_values, parts, _FIELDS)
    # The rule of cron: where both days are restricted, one of them has to match; else both have to.
    either = not set("*?") & {*parts[3], *parts[5]}
    if not either and not any(day <= _MAX_MONTH_DAYS[month] for day in days for month in months):
        raise Invalid("expression", f"{expression!r} never fires", "use a day that one of the months has")
    week = tuple(sorted({day % 7 for day in weekdays}))
    return _CronExpression(seconds, minutes, hours, days, months, week, either, len(hours) == 24)


def _parse_values(part: str, field: _CronField) -> tuple[int, ...]:
    """Return all values that a field allows, sorted."""
    return tuple(sorted({value for item in part.split(",") for value in _parse_range(item, field)}))


def _parse_range(item: str, field: _CronField) -> range:
    span, slash, step = item.partition("/")
    first, dash, last = span.partition("-")
    end = field.high - (field is _WEEKDAY)  # 7 is Sunday, too, but only where it is written
    if span == "*" or (item == "?" and field in (_DAY, _WEEKDAY)):
        low, high = field.low, end
    else:
        low = _parse_number(first, field, item)
        high = _parse_number(last, field, item) if dash else max(low, end) if slash else low
    if field is _WEEKDAY and high == 0:
        high = 7 if low else 0  # sat-sun
    if low > high:
        raise Invalid(f"expression.{field.name}", f"{item!r} runs backwards", "write it as two ranges")
    every = _parse_step(step, field, item) if slash else 1
    return range(low, high + 1, every)


def _parse_number(text: str, field: _CronField, item: str) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    number = _parse_digits(text)
    if number is None or not field.low <= number <= field.high:
        names = f" or {field.names[0]} to {field.names[-1]}" if field.names else ""
        raise Invalid(
            f"expression.{field.name}", f"holds {item!r}", f"use {field.low} to {field.high}{names}, or *"
        )
    return number


def _parse_step(text: str, field: _CronField, item: str) -> int:
    step, longest = _parse_digits(text), field.high - field.low + 1
    if step is None or not 0 < step <= longest:
        raise Invalid(f"expression.{field.name}", f"holds {item!r}", f"use a step from 1 to {longest}")
    return step


def _parse_digits(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 4 else None


class Timing(Protocol):
    """A clock that can also wait."""

    def now(self) -> int:
        """Return the current time in milliseconds since 1970 UTC."""

    async def wait(self, until: int) -> None:
        """Return at a moment, or earlier: the caller checks the time again. Other tasks run meanwhile."""


class SystemTiming:
    """The clock of `omoide.clock`; it sleeps in slices, so that it notices when the system clock was set."""

    def __init__(self, max_sleep: float = 5.0) -> None:
        if not check_number(max_sleep, "max_sleep") > 0:
            raise Invalid("max_sleep", f"is {max_sleep}", "pass seconds above 0")
        self._max_sleep = max_sleep

    def now(self) -> int:
        """Return the current time in milliseconds since 1970 UTC."""
        return clock.now()

    async def wait(self, until: int) -> None:
        """Sleep until a moment, but no longer than one slice."""
        await anyio.sleep(min(max(0, until - clock.now()) / 1000, self._max_sleep))


class Timer:
    """A call that is made at about `when`, unless it is cancelled."""

    __slots__ = ("_call", "_queue", "when")

    def __init__(self, when: int, call: Callable[[], object], queue: _TimerQueue) -> None:
        self.when = when
        self._call: Callable[[], object] | None = call
        self._queue = queue

    @property
    def active(self) -> bool:
        """True until the call was made or cancelled."""
        return self._call is not None

    def cancel(self) -> None:
        """Cancel the call; a timer that fired or was cancelled before is no error."""
        if self._call is not None:
            self._call = None
            self._queue.discard_one()

    def _fire(self) -> None:
        # Cleared first: a call that cancels its own timer must not count it as cancelled.
        call, self._call = self._call, None
        try:
            if call is not None:
                call()
        except Exception as error:
            _log.error("the callback of a timer failed with %s", type(error).__name__)


class _TimerQueue:
    """Timers by their moments; those of the same moment in the order in which they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._count = count()

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, when: int, call: Callable[[], object], shift: int = 0) -> Timer:
        timer = Timer(when, check_function(call, "call"), self)
        heappush(self._heap, (when + shift, next(self._count), timer))
        return timer

    def next_due(self) -> int | None:
        """Return the moment of the next timer, or None."""
        while self._heap and not self._heap[0][2].active:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Timer:
        return heappop(self._heap)[2]

    def discard_one(self) -> None:
        self._cancelled += 1
        # Cancelled timers stay in the heap; rebuilding it at half keeps the cost per timer constant.
        if self._cancelled > MAX_CANCELLED and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].active]
            heapify(self._heap)
            self._cancelled = 0


class Timers:
    """Any number of timers in one task: start `run` in a task group, and set timers in the same loop."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing: Timing = SystemTiming() if timing is None else timing
        # Apart, because a clock that is set back delays wall clock timers and not elapsed ones.
        self._wall, self._elapsed = _TimerQueue(), _TimerQueue()
        self._last_now = self.timing.now()
        self._set_back = 0
        self._until = NEVER
        self._wait_scope: anyio.CancelScope | None = None
        self._running = False

    def __len__(self) -> int:
        return len(self._wall) + len(self._elapsed)

    def at(self, when: int, call: Callable[[], object]) -> Timer:
        """Call a function when the wall clock reaches a moment, or at once if that has passed."""
        timer = self._wall.add(clock.check(when, "when"), call)
        self._wake_if_earlier(when)
        return timer

    def after(self, ms: int, call: Callable[[], object]) -> Timer:
        """Call a function when so many milliseconds have passed."""
        due = self._now() + check_count(ms, "ms")
        timer = self._elapsed.add(due, call, self._set_back)
        self._wake_if_earlier(due)
        return timer

    async def run(self) -> None:
        """Fire timers until cancelled; the rest wait for the next run."""
        if self._running:
            raise Invalid("timers", "are run by another task", "run them once")
        self._running = True
        try:
            while True:
                if self._fire_due():
                    await checkpoint()
                else:
                    await self._wait()
        finally:
            self._running = False

    def _fire_due(self) -> int:
        """Fire up to a batch of due timers, the earliest first, and return their number."""
        now, fired = self._now(), 0
        while fired < FIRE_BATCH and (queue := self._due_queue(now)) is not None:
            queue.pop()._fire()
            fired += 1
        return fired

    def _due_queue(self, now: int) -> _TimerQueue | None:
        when, number = min((self._next_wall(), 0), (self._next_elapsed(), 1))
        return None if when > now else (self._wall, self._elapsed)[number]

    async def _wait(self) -> None:
        self._until = min(self._next_wall(), self._next_elapsed())
        with anyio.CancelScope() as self._wait_scope:
            if self._until > clock.MAX_TIMESTAMP:
                await anyio.sleep_forever()
            await self.timing.wait(self._until)
        self._wait_scope = None

    def _wake_if_earlier(self, when: int) -> None:
        """Wake the task if it waits for a later moment."""
        if self._wait_scope is not None and when < self._until:
            self._wait_scope.cancel()

    def _now(self) -> int:
        now = self.timing.now()
        # Elapsed timers are kept relative to the sum of all steps back, so that none of them delays a timer.
        self._set_back += max(0, self._last_now - now)
        self._last_now = now
        return now

    def _next_wall(self) -> int:
        first = self._wall.next_due()
        return NEVER if first is None else first

    def _next_elapsed(self) -> int:
        first = self._elapsed.next_due()
        return NEVER if first is None else first - self._set_back
