"""The time source: integer milliseconds since 1970 UTC.

Every function that timestamps a value takes `now=` and uses this clock if it is not given. `override`
replaces the clock for a block of code, so that a whole run is reproducible.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, date, datetime, timedelta
from typing import TypeVar

from omoide.errors import Invalid, WrongType

Clock = Callable[[], int]
C = TypeVar("C", bound=Clock)

Time = int | datetime | date | str
"""A time as callers pass it: milliseconds, a datetime (UTC if it is naive), a date, or ISO 8601 text."""

_clock: ContextVar[Clock | None] = ContextVar("omoide_clock", default=None)

MAX_TIMESTAMP = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that ISO 8601 writes with four digits."""

_TIME_REMEDY = "pass milliseconds, a datetime or ISO text"
_SECONDS = range(1_000_000_000, 10_000_000_000)
"""Seconds of the years 2001 to 2286; as milliseconds these would be of January to April 1970."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_DIGITS = 8
"""Digits of a date without separators; more are a number of milliseconds."""

_MAX_OBSERVATIONS = 10_000
"""Claims of others that are remembered; one that is forgotten is waited for anew."""

_observed: OrderedDict[tuple[str, ...], tuple[object, float]] = OrderedDict()

# Names of this module, so that `omoide.memory` can inline `now` in its most frequent change.
system_ns = time.time_ns
get_override = _clock.get
"""Returns the clock that `override` set, or None."""
_BOOTTIME: int | None = getattr(time, "CLOCK_BOOTTIME", None)


def now() -> int:
    """Return the milliseconds since 1970-01-01 UTC from the current clock."""
    clock = get_override()
    return system_ns() // 1_000_000 if clock is None else check(clock(), "clock")


def monotonic() -> float:
    """Return seconds of a clock that cannot be set; where there is one, it includes suspend time."""
    return time.monotonic() if _BOOTTIME is None else time.clock_gettime(_BOOTTIME)


def resolve(at: int | None) -> int:
    """Return a caller's timestamp, checked, or the present time for None."""
    return now() if at is None else check(at, "now")


def check(at: object, field: str) -> int:
    """Return a timestamp, or raise `Invalid` if it is not integer milliseconds between 1970 and 9999."""
    if type(at) is not int:  # not isinstance: True would pass as 1
        raise WrongType(field, "milliseconds since 1970 as an int", at, "pass milliseconds")
    if at < 0:
        raise Invalid(field, f"is {at}, before 1970", "pass milliseconds since 1970")
    if at > MAX_TIMESTAMP:
        raise Invalid(field, f"is {at}, after the year 9999", "pass milliseconds, not smaller units")
    return at


def parse(at: object, field: str) -> int:
    """Return a time as milliseconds since 1970 UTC; a date is its first millisecond.

    Raises:
        Invalid: if it is no time between 1970 and 9999, or looks like seconds.
    """
    moment = _parse_text(at, field) if isinstance(at, str) else at
    if isinstance(moment, date):
        return _to_milliseconds(moment, field)
    if type(moment) is not int:
        raise WrongType(field, "milliseconds since 1970 as an int, a datetime or ISO text", at, _TIME_REMEDY)
    if moment in _SECONDS:
        raise Invalid(field, f"is {moment}, which looks like seconds", _TIME_REMEDY)
    return check(moment, field)


def parse_end(at: object, field: str) -> int:
    """Return a time like `parse`; a date is its last millisecond."""
    moment = _parse_text(at, field) if isinstance(at, str) else at
    is_day = isinstance(moment, date) and not isinstance(moment, datetime)
    return parse(moment, field) + (86_400_000 - 1 if is_day else 0)


def _parse_text(text: str, field: str) -> int | date:
    """Return the number, date or time that a text denotes."""
    stripped = text.strip()
    try:
        if stripped.isdecimal() and len(stripped) > _DAY_DIGITS:
            return int(stripped)
        # Without a time of day it is a date, whichever of its forms ISO 8601 allows.
        if not any(sign in stripped for sign in "Tt: "):
            return date.fromisoformat(stripped)
        return datetime.fromisoformat(stripped.upper())
    except ValueError:
        raise Invalid(
            field, f"is {text[:100]!r}, not a time", "write it like 2026-05-08 or 2026-05-08T13:56Z"
        ) from None


def _to_milliseconds(moment: date, field: str) -> int:
    if not isinstance(moment, datetime):
        moment = datetime(moment.year, moment.month, moment.day, tzinfo=UTC)
    elif moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = (moment - _EPOCH) // timedelta(milliseconds=1)
    if milliseconds < 0:
        raise Invalid(field, f"is {moment.isoformat()}, before 1970", "pass a later time")
    return milliseconds


def is_believed(place: tuple[str, ...], claim: object, ttl_ms: int) -> bool:
    """Return True until this process has seen the same claim in a place for `ttl_ms`."""
    now = monotonic()
    known = _observed.get(place)
    if known is None or known[0] != claim:
        _observed[place] = known = (claim, now)
        if len(_observed) > _MAX_OBSERVATIONS:
            _observed.popitem(last=False)
    return now - known[1] < ttl_ms / 1000


@contextmanager
def override(clock: C) -> Iterator[C]:
    """Use `clock` as the time source inside the block, in this thread and task only."""
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)
