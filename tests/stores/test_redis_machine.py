"""Any sequence of operations leaves a Redis server as it leaves the store in memory."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, rule
from tests.stores import test_sqlite_machine as machine
from tests.support.stores import open_core

from omoide import clock
from omoide.stores import Feed


class RedisMachine(machine.StoreMachine):
    """Every operation on the reference, and on one of two processes' views of a server."""

    @initialize(vectors=st.booleans(), durability=st.just("power"), first=st.lists(machine.first, max_size=8))
    def begin(self, vectors: bool, durability: str, first: list[tuple[str, dict[str, Any]]]) -> None:
        super().begin(vectors, durability, first)

    def open(self) -> Any:
        return open_core("redis", self.folder, durability=self.durability, **self.options)

    @rule(
        name=st.sampled_from(machine.NAMESPACES),
        after=st.sampled_from([0, 0, 1, 5, 20]),
        limit=st.sampled_from([1, 7, 10_000]),
        before=st.none() | st.integers(0, 600),
    )
    def follow(self, name: str, after: int, limit: int, before: int | None) -> None:
        """Each namespace counts its own changes here, and the reference those of all."""
        since = None if before is None else max(0, self.time.at - before)
        numbers = [0, *(change.seq for change in self.reference.changes(name, limit=1 << 40))]
        after = min(after, len(numbers) - 1)
        with clock.override(self.time):
            ours, theirs = (
                store.change_feed(name, after=at, limit=limit, used_since=since)
                for store, at in ((self.reference, numbers[after]), (self.files[0], after))
            )
        assert isinstance(theirs, Feed)
        assert sum(0 < number <= ours.seq for number in numbers) == theirs.seq
        assert machine.plain(ours)[1:] == machine.plain(theirs)[1:]


TestRedis = RedisMachine.TestCase
