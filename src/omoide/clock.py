"""The time source: integer milliseconds since 1970 UTC.

Every function that timestamps a value takes `now=` and uses this clock if it is not given. `override`
replaces the clock for a block of code, so that a whole run is reproducible.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

from omoide.errors import Invalid, WrongType

Clock = Callable[[], int]
C = TypeVar("C", bound=Clock)

_clock: ContextVar[Clock | None] = ContextVar("omoide_clock", default=None)

MAX_TIMESTAMP = 253_402_300_799_999
"""The last millisecond of the year 9999, the last that ISO 8601 writes with four digits."""

# Names of this module, so that `omoide.memory` can inline `now` in its most frequent change.
system_ns = time.time_ns
get_override = _clock.get
"""Returns the clock that `override` set, or None."""


def now() -> int:
    """Return the milliseconds since 1970-01-01 UTC from the current clock."""
    clock = get_override()
    return system_ns() // 1_000_000 if clock is None else check(clock(), "clock")


def resolve(at: int | None) -> int:
    """Return a caller's timestamp, checked, or the present time for None."""
    return now() if at is None else check(at, "now")


def check(at: object, field: str) -> int:
    """Return a timestamp, or raise `Invalid` if it is not integer milliseconds between 1970 and 9999."""
    if type(at) is not int:  # not isinstance: True would pass as 1
        raise WrongType(field, "milliseconds since 1970 as an int", at, "leave it out for the present")
    if at < 0:
        raise Invalid(field, f"is {at}, before 1970", "leave it out for the present")
    if at > MAX_TIMESTAMP:
        raise Invalid(field, f"is {at}, after the year 9999", "pass milliseconds, not smaller units")
    return at


@contextmanager
def override(clock: C) -> Iterator[C]:
    """Use `clock` as the time source inside the block, in this thread and task only."""
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)
