"""Reading the change feed gives the same as single reads."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.longterm import SHOP, connect, keep

from omoide import Scope
from omoide.errors import Invalid
from omoide.longterm import find_conflicts, prune, queries
from omoide.stores import Link

THEIRS = Scope(agent_id="eve", project_id="shop")
EVERYBODY = Scope(project_id="shop")


async def a_busy_place(store: Any) -> None:
    """Memories of two agents with links of several kinds, some of them removed, and some use."""
    for at in range(6):
        await keep(store, f"m{at}")
        await keep(store, f"t{at}", scope=THEIRS)
    for source, target in (("m0", "m1"), ("m2", "m0"), ("m3", "m4"), ("t0", "t1"), ("m5", "t5")):
        await connect(store, source, "contradicts", target, EVERYBODY)
    await connect(store, "m0", "refines", "m5")
    await store.unlink(Link(source="m3", relation="contradicts", target="m4"), SHOP)
    await store.supersede("m2", SHOP)
    for count, id in enumerate(("m1", "m3", "t1")):
        for _ in range(count + 1):
            await store.record_access([id], EVERYBODY)


def record_reads(store: Any, monkeypatch: Any) -> list[str]:
    """Which of the ways to read were taken."""
    calls: list[str] = []
    for name in ("links", "access", "change_feed"):
        real = getattr(store, name)

        async def spied(*args: Any, name: str = name, real: Any = real, **how: Any) -> Any:
            calls.append(name)
            return await real(*args, **how)

        monkeypatch.setattr(store, name, spied)
    return calls


@pytest.mark.parametrize("portion", [1, 3, 10_000])
async def test_both_ways_give_the_same(store: Any, monkeypatch: Any, portion: int) -> None:
    """Links and uses are the same one by one and all at once, in portions of any size, within the scope."""
    await a_busy_place(store)
    mine = [f"m{at}" for at in range(6)]
    slow = (
        await queries.linked_pairs(store, mine, SHOP, "contradicts"),
        await queries.use_counts(store, mine, SHOP),
        await find_conflicts(store, SHOP),
        await prune(store, SHOP, max_access=1),
    )
    assert slow[0] == {("m0", "m1"), ("m2", "m0")}
    assert slow[1] == {"m0": 0, "m1": 1, "m2": 0, "m3": 2, "m4": 0, "m5": 0}
    assert [one.ids for one in slow[2]] == [("m0", "m1")]
    monkeypatch.setattr(queries, "MAX_SINGLE_READS", 0)
    monkeypatch.setattr(queries, "FEED_LIMIT", portion)
    calls = record_reads(store, monkeypatch)
    fast = (
        await queries.linked_pairs(store, mine, SHOP, "contradicts"),
        await queries.use_counts(store, mine, SHOP),
        await find_conflicts(store, SHOP),
        await prune(store, SHOP, max_access=1),
    )
    assert fast == slow
    assert {*calls} == {"change_feed"}


class Restless:
    """A store in which a link is removed while it is being read."""

    def __init__(self, store: Any) -> None:
        self.link, self.unlink, self.links = store.link, store.unlink, store.links
        self.changes = store.changes
        self._store = store

    async def change_feed(self, namespace: str, **how: Any) -> Any:
        feed = await self._store.change_feed(namespace, **how)
        await self._store.unlink(Link(source="m0", relation="contradicts", target="m1"), SHOP)
        return feed


async def test_what_changes_while_it_is_read_is_told_as_it_became(store: Any, monkeypatch: Any) -> None:
    """A link that was removed before everything was read is not told."""
    for name in ("m0", "m1", "m2"):
        await keep(store, name)
    await connect(store, "m0", "contradicts", "m1")
    monkeypatch.setattr(queries, "MAX_SINGLE_READS", 0)
    monkeypatch.setattr(queries, "FEED_LIMIT", 1)
    assert await queries.linked_pairs(Restless(store), ["m0", "m1", "m2"], SHOP, "contradicts") == set()


async def test_a_small_part_of_a_large_place_is_asked_for_one_by_one(store: Any, monkeypatch: Any) -> None:
    """Where everything would be far more than was wanted, reading it stops, and the answer is the same."""
    await a_busy_place(store)
    monkeypatch.setattr(queries, "MAX_SINGLE_READS", 0)
    monkeypatch.setattr(queries, "FEED_LIMIT", 1)
    monkeypatch.setattr(queries, "MAX_READ_FACTOR", 2)
    calls = record_reads(store, monkeypatch)
    assert await queries.linked_pairs(store, ["m0", "m1"], SHOP, "contradicts") == {("m0", "m1")}
    assert await queries.use_counts(store, ["m3"], SHOP) == {"m3": 2}
    assert (calls.count("links"), calls.count("access")) == (2, 1)
    assert calls.count("change_feed") <= 6


async def test_a_store_that_cannot_tell_says_so() -> None:
    """A store without links or uses is refused by name."""
    with pytest.raises(Invalid, match="cannot relate"):
        await queries.linked_pairs(object(), [], SHOP, "contradicts")
    with pytest.raises(Invalid, match="cannot count the uses"):
        await queries.use_counts(object(), [], SHOP)
