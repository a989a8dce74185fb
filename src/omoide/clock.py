"""What time is it?

Every function that stamps a value takes `now=`, integer milliseconds UTC. Where it is left out the answer
comes from here, and `using` replaces that answer for a block of code, so that a whole run can be repeated
exactly.

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
"""The last millisecond that a year of four digits can say."""

system_ns = time.time_ns
get_override = _clock.get
"""The clock that `using` put in place of the system's, or None."""


def now() -> int:
    """Milliseconds since 1970-01-01 UTC, from the clock in use."""
    clock = get_override()
    return system_ns() // 1_000_000 if clock is None else check(clock(), "clock")


def resolve(at: int | None) -> int:
    """The moment a caller gave, checked, or else the present."""
    return now() if at is None else check(at, "now")


def check(at: object, field: str) -> int:
    """A moment itself, if it is one: integer milliseconds UTC."""
    if type(at) is not int:
        raise WrongType(field, "milliseconds since 1970 as an int", at, "leave it out for the present")
    if at < 0:
        raise Invalid(field, f"is {at}, before 1970", "leave it out for the present")
    if at > MAX_TIMESTAMP:
        raise Invalid(field, f"is {at}, after the year 9999", "pass milliseconds, not smaller units")
    return at


@contextmanager
def override(clock: C) -> Iterator[C]:
    """Tell the time from `clock` inside the block (this thread and task only)."""
    token = _clock.set(clock)
    try:
        yield clock
    finally:
        _clock.reset(token)
