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
from omoide._lazy import attach
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.embedders.vectors import HashEmbedder
    from omoide.testing.doubles import ManualTiming, ScriptedModel, eventually
    from omoide.testing.servers import NatsCluster, NatsServer, PgBouncerServer, PostgresServer, RedisServer
    from omoide.testing.store_suite import StoreSuite
    from omoide.testing.transport_suite import TransportSuite

__all__ = [
    "FrozenClock",
    "HashEmbedder",
    "ManualTiming",
    "NatsCluster",
    "NatsServer",
    "PgBouncerServer",
    "PostgresServer",
    "RedisServer",
    "ScriptedModel",
    "StoreSuite",
    "TransportSuite",
    "counting_ids",
    "eventually",
    "reproducible",
]

_SUITES = {"StoreSuite": "omoide.testing.store_suite", "TransportSuite": "omoide.testing.transport_suite"}

_load, __dir__ = attach(
    __name__,
    attributes={
        "omoide.embedders.vectors": ("HashEmbedder",),  # needs NumPy
        "doubles": ("ManualTiming", "ScriptedModel", "eventually"),
        "servers": ("NatsCluster", "NatsServer", "PgBouncerServer", "PostgresServer", "RedisServer"),
        "store_suite": ("StoreSuite",),  # needs pytest
        "transport_suite": ("TransportSuite",),  # needs pytest
    },
)


def __getattr__(name: str) -> Any:
    home = _SUITES.get(name)
    if home is not None and home not in sys.modules:
        # pytest rewrites assertions of test files only; a failed one of a suite shall show its values, too.
        import_module("pytest").register_assert_rewrite(home)
    return _load(name)


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
