"""What does a test need that a program does not?

A clock and a timing that stand still until they are moved, ids that count, waiting for what happens
elsewhere, a model that answers by heart, vectors without a model, and suites of tests for stores and
transports.

"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from typing import TYPE_CHECKING, Any

from omoide import clock, ids
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.embedders.vectors import HashEmbedder
    from omoide.testing.doubles import ManualTiming, ScriptedModel, eventually
    from omoide.testing.store_suite import StoreSuite
    from omoide.testing.transport_suite import TransportSuite


__all__ = [
    "FrozenClock",
    "HashEmbedder",
    "ManualTiming",
    "ScriptedModel",
    "StoreSuite",
    "TransportSuite",
    "counting_ids",
    "eventually",
    "reproducible",
]

_LAZY = {
    "HashEmbedder": "omoide.embedders.vectors",  # needs NumPy
    "ManualTiming": "omoide.testing.doubles",
    "ScriptedModel": "omoide.testing.doubles",
    "StoreSuite": "omoide.testing.store_suite",  # needs pytest
    "TransportSuite": "omoide.testing.transport_suite",  # needs pytest
    "eventually": "omoide.testing.doubles",
}


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
    with clock.override(FrozenClock(at)) as frozen, ids.override(counting_ids()):
        yield frozen


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = _LAZY[name]
    if name.endswith("Suite") and home not in sys.modules:
        # A failed assertion of the suite then shows its values, as one in a test file does.
        import_module("pytest").register_assert_rewrite(home)
    return getattr(import_module(home), name)
