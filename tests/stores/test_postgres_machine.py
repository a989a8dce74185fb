"""Any sequence of operations leaves a PostgreSQL server as it leaves the reference store in memory."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule
from tests.stores import test_sqlite_machine as machine
from tests.support.stores import open_core

from omoide import clock


class _AtAServer(machine.StoreMachine):
    """Every operation on the reference, and on one of two stores at a server."""

    def open(self) -> Any:
        return open_core("postgres", self.folder, **self.options)

    @rule(
        name=st.sampled_from(machine.NAMESPACES),
        after=st.sampled_from([0, 0, 1, 5, 20]),
        limit=st.sampled_from([1, 7, 10_000]),
        before=st.none() | st.integers(0, 600),
    )
    def follow(self, name: str, after: int, limit: int, before: int | None) -> None:
        """What was undone leaves gaps between the numbers here, so that places are compared."""
        since = None if before is None else max(0, self.time.at - before)
        stores = (self.reference, self.files[0])
        numbers = [[0, *(change.seq for change in store.changes(name, limit=1 << 40))] for store in stores]
        assert len(numbers[0]) == len(numbers[1])
        at = min(after, len(numbers[0]) - 1)
        with clock.override(self.time):
            ours, theirs = (
                store.change_feed(name, after=known[at], limit=limit, used_since=since)
                for store, known in zip(stores, numbers, strict=True)
            )
        reached = [
            sum(0 < number <= feed.seq for number in known)
            for feed, known in zip((ours, theirs), numbers, strict=True)
        ]
        assert reached[0] == reached[1]
        assert machine.plain(ours)[1:] == machine.plain(theirs)[1:]


class PostgresMachine(_AtAServer):
    """Scopes that are held in memory."""


class WidePostgresMachine(_AtAServer, machine.WideMachine):
    """The same, where every scope of more than two entries is searched as a large one."""


# Each example makes all tables anew.
EXAMPLES = int(os.environ.get("OMOIDE_EXAMPLES", "30"))
FEWER = settings(max_examples=max(5, EXAMPLES // 3))

TestPostgres = PostgresMachine.TestCase
TestPostgres.settings = FEWER
TestWidePostgres = WidePostgresMachine.TestCase
TestWidePostgres.settings = FEWER
