"""Support for tests of code that uses Omoide.

`FrozenClock`, `counting_ids` and `reproducible` fix time and ids. `doubles` has `ScriptedModel`,
`ManualTiming` and `eventually`; `store_suite` and `transport_suite` are conformance tests for your own
stores and transports; `servers` starts real PostgreSQL, Redis and NATS servers.
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
    """A clock that shows `at` milliseconds until it is advanced."""

    def __init__(self, at: int = 1_000) -> None:
        self.at = clock.check(at, "at")

    def __call__(self) -> int:
        return self.at

    def advance(self, ms: int) -> int:
        """Advance the clock by `ms` milliseconds and return the new time."""
        if type(ms) is not int or ms < 0:
            raise Invalid("ms", f"is {ms!r}", "pass whole milliseconds; set .at to move a clock back")
        self.at += ms
        return self.at


def counting_ids() -> ids.IdSource:
    """Return a source of ids that count up for each prefix: `mem_1`, `mem_2`, `task_1`."""
    counters: dict[str, Iterator[int]] = {}
    return lambda prefix: f"{prefix}{next(counters.setdefault(prefix, count(1)))}"


@contextmanager
def reproducible(at: int = 1_000) -> Iterator[FrozenClock]:
    """Freeze time and count ids inside the block, so that every run gives the same values."""
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
