"""What does a test need that a program does not?

A clock that stands still until it is moved, and ids that count.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count

from omoide import clock, ids
from omoide.errors import Invalid


class FrozenClock:
    """A clock that shows `at` milliseconds and only moves when told to."""

    def __init__(self, at: int = 1_000) -> None:
        self.at = clock.check(at, "at")

    def __call__(self) -> int:
        return self.at

    def advance(self, ms: int) -> int:
        """Move on by some milliseconds; the new time."""
        if type(ms) is not int or ms < 0:
            raise Invalid("ms", f"is {ms!r}", "pass whole milliseconds; set .at to move a clock back")
        self.at += ms
        return self.at


def counting_ids() -> ids.IdSource:
    """Ids that count up for each prefix: `mem_1`, `mem_2`, `task_1`."""
    counters: dict[str, Iterator[int]] = {}
    return lambda prefix: f"{prefix}{next(counters.setdefault(prefix, count(1)))}"


@contextmanager
def reproducible(at: int = 1_000) -> Iterator[FrozenClock]:
    """A block in which time stands still and ids count, so that every run gives the same values."""
    with clock.using(FrozenClock(at)) as frozen, ids.using(counting_ids()):
        yield frozen
