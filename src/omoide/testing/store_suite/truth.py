"""Conformance tests of truth maintenance: entries derived from others become stale and current again."""

from __future__ import annotations

from typing import Any

from omoide import clock
from omoide.core.entry import Filter, Scope, WriteResult
from omoide.stores.protocols import (
    Store,
    SupportsBatchWrite,
    SupportsErase,
    SupportsFeed,
    SupportsGet,
    SupportsLinks,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Link
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import (
    ADA,
    FullStore,
    StoreFixtures,
    query_ids,
    recall_ids,
    write_entry,
    write_request,
)


def entry_evidence(*premises: str) -> list[dict[str, str]]:
    """Return evidence that names entries."""
    return [{"kind": "entry", "ref": premise} for premise in premises]


async def derive_entry(store: Store, id: str, *premises: str, **fields: Any) -> WriteResult:
    """Write an entry derived from others."""
    return await write_entry(store, f"Tea of {id}.", id=id, evidence=entry_evidence(*premises), **fields)


async def stale_ids(store: Store, scope: Scope = ADA) -> list[str]:
    """Return the ids of the stale entries in a scope."""
    return sorted(entry.id for entry in await store.list_entries(scope) if entry.stale)


class StalenessSuite(StoreFixtures):
    """Truth maintenance over evidence and `invalidated_by` links."""

    async def store_with_chain(self, store: Store, *capabilities: type) -> FullStore:
        """Return a store in which c is derived from b, b from a, and d from nothing."""
        full = self.require(store, SupportsSupersede, SupportsGet, *capabilities)
        await derive_entry(full, "a")
        await derive_entry(full, "b", "a")
        await derive_entry(full, "c", "b")
        await derive_entry(full, "d")
        return full

    async def test_what_rests_on_a_forgotten_memory_is_stale(self, store: Store) -> None:
        """Entries derived from it, at any distance, become stale without a new revision."""
        full = await self.store_with_chain(store)
        await full.supersede("a", ADA)
        assert await stale_ids(full) == ["b", "c"]
        assert [(await full.get(id, ADA)).rev for id in ("a", "b", "c")] == [2, 1, 1]
        assert await recall_ids(full, "tea", limit=10) == ["d"]
        assert not (await full.get("b", ADA)).is_live(0)

    async def test_what_was_stale_counts_again(self, store: Store) -> None:
        """Restoring an entry makes everything derived from it current again."""
        full = await self.store_with_chain(store)
        before = await full.list_entries(ADA)
        await full.supersede("a", ADA)
        await full.reinstate("a", ADA)
        assert await stale_ids(full) == []
        assert [entry for entry in await full.list_entries(ADA) if entry.id != "a"] == [
            entry for entry in before if entry.id != "a"
        ]
        assert sorted(await recall_ids(full, "tea", limit=10)) == ["a", "b", "c", "d"]

    async def test_one_reason_is_enough_to_stay_stale(self, store: Store) -> None:
        """An entry derived from two others is current only while both are."""
        full = await self.store_with_chain(store)
        await derive_entry(full, "e", "b", "d")
        await full.supersede("a", ADA)
        await full.supersede("d", ADA)
        await full.reinstate("a", ADA)
        assert await stale_ids(full) == ["e"]
        await full.reinstate("d", ADA)
        assert await stale_ids(full) == []

    async def test_a_replaced_memory_takes_along_what_rests_on_it(self, store: Store) -> None:
        """Entries derived from a superseded entry become stale in the same transaction."""
        full = await self.store_with_chain(store)
        await write_entry(full, "New.", id="n", supersedes="a")
        assert await stale_ids(full) == ["b", "c"]
        await full.supersede("c", ADA, by="d")
        assert await stale_ids(full) == ["b", "c"]
        await full.reinstate("a", ADA)
        assert await stale_ids(full) == []
        assert (await full.get("c", ADA)).superseded_by == "d"

    async def test_a_restored_memory_may_be_stale(self, store: Store) -> None:
        """It is stale if an entry it is derived from was forgotten in the meantime."""
        full = await self.store_with_chain(store)
        assert (await full.supersede("b", ADA)).stale is False
        await full.supersede("a", ADA)
        assert await stale_ids(full) == ["b", "c"]
        assert (await full.reinstate("b", ADA)).stale is True
        assert await stale_ids(full) == ["b", "c"]

    async def test_memories_may_rest_on_one_another(self, store: Store) -> None:
        """A cycle of evidence neither keeps its entries current nor makes them stale."""
        full = self.require(store, SupportsSupersede, SupportsGet)
        await derive_entry(full, "root")
        await derive_entry(full, "x", "y", "root")
        await derive_entry(full, "y", "x")
        await derive_entry(full, "self", "self")
        assert await stale_ids(full) == []
        await full.supersede("root", ADA)
        assert await stale_ids(full) == ["x", "y"]
        await full.reinstate("root", ADA)
        assert await stale_ids(full) == []
        assert (await full.supersede("self", ADA)).stale is True
        assert (await full.reinstate("self", ADA)).stale is False

    async def test_what_is_invalidated_does_not_count(self, store: Store) -> None:
        """An `invalidated_by` link makes its source stale, and everything derived from the source."""
        full = await self.store_with_chain(store, SupportsLinks)
        link = Link(source="a", relation="invalidated_by", target="d")
        await full.link(link, ADA)
        assert await stale_ids(full) == ["a", "b", "c"]
        await full.link(Link(source="a", relation="refines", target="d"), ADA)
        await full.unlink(Link(source="a", relation="refines", target="d"), ADA)
        assert await stale_ids(full) == ["a", "b", "c"]
        await full.unlink(link, ADA)
        assert await stale_ids(full) == []

    async def test_the_evidence_of_the_present_version_counts(self, store: Store) -> None:
        """An entry rewritten with other evidence depends on that alone."""
        full = await self.store_with_chain(store)
        await full.supersede("a", ADA)
        rewritten = await derive_entry(full, "b", "d")
        assert (rewritten.entry.stale, rewritten.notices) == (False, ())
        assert await stale_ids(full) == []
        again = await derive_entry(full, "b", "a", "d")
        assert again.entry.stale is True
        assert await stale_ids(full) == ["b", "c"]
        await derive_entry(full, "b")
        await full.supersede("d", ADA)
        assert await stale_ids(full) == []

    async def test_a_memory_can_be_stale_from_the_start(self, store: Store) -> None:
        """The receipt says so; a `stale` field set by the caller is ignored."""
        full = await self.store_with_chain(store)
        await full.supersede("a", ADA)
        late = await derive_entry(full, "late", "b")
        assert late.entry.stale is True
        assert any("stale" in notice for notice in late.notices)
        assert await full.get("late", ADA) == late.entry
        claimed = await write_entry(full, id="lie", stale=True)
        assert (claimed.entry.stale, claimed.notices) == (False, ())
        assert (
            await write_entry(full, id="lie", stale=True, created_at=claimed.entry.created_at)
        ).outcome == "unchanged"

    async def test_what_never_was_makes_nothing_stale(self, store: Store) -> None:
        """References to unknown ids, other namespaces or other kinds of evidence have no effect."""
        full = self.require(store, SupportsSupersede, SupportsGet)
        await derive_entry(full, "a", "nobody's")
        await derive_entry(full, "far", namespace="elsewhere")
        await derive_entry(full, "b", "far")
        await write_entry(
            full, id="c", evidence=[{"kind": "document", "ref": "d"}, {"kind": "tool", "ref": "d"}]
        )
        await derive_entry(full, "d")
        await full.supersede("far", Scope(namespace="elsewhere"))
        await full.supersede("d", ADA)
        assert await stale_ids(full) == []
        # Now it is there, and is stale itself.
        await derive_entry(full, "nobody's", "d")
        assert await stale_ids(full) == ["a", "nobody's"]

    async def test_what_rests_on_an_erased_memory_is_stale(self, store: Store) -> None:
        """It is current again once an entry with the erased id is written."""
        full = await self.store_with_chain(store, SupportsErase, SupportsLinks)
        await full.erase(ADA, id="a")
        assert await stale_ids(full) == ["b", "c"]
        late = await derive_entry(full, "late", "a")
        assert late.entry.stale is True
        await derive_entry(full, "a")
        assert await stale_ids(full) == []
        await full.link(Link(source="a", relation="invalidated_by", target="d"), ADA)
        assert await stale_ids(full) == ["a", "b", "c", "late"]
        await full.erase(ADA, id="d")
        assert await stale_ids(full) == []

    async def test_stale_memories_are_shown_to_those_who_ask(self, store: Store) -> None:
        """`include_stale` adds stale entries, `include_superseded` adds superseded ones, stale or not."""
        full = await self.store_with_chain(store, SupportsQuery)
        await full.supersede("c", ADA)
        await full.supersede("a", ADA)  # b is stale, c is both
        for include_superseded, include_stale, expected in (
            (False, False, ["d"]),
            (False, True, ["b", "d"]),
            (True, False, ["a", "c", "d"]),
            (True, True, ["a", "b", "c", "d"]),
        ):
            filter = Filter(include_superseded=include_superseded, include_stale=include_stale)
            assert sorted(await query_ids(full, filter=filter)) == expected
            assert sorted(await recall_ids(full, "tea", limit=10, filter=filter)) == expected
        page = await query_ids(full, filter=Filter(include_stale=True, types=("memory_item",)), limit=1)
        assert page == ["d"] or page == ["b"]

    async def test_a_stale_memory_is_no_twin(self, store: Store) -> None:
        """The same content can be stored again, on other evidence, despite `dedupe`."""
        full = await self.store_with_chain(store)
        await full.supersede("a", ADA)
        rewritten = await write_entry(full, "Tea of b.", id="again", dedupe=True)
        assert (rewritten.outcome, rewritten.id) == ("stored", "again")

    async def test_becoming_stale_and_current_is_told(self, store: Store) -> None:
        """The change feed lists each transition after its cause, and nothing that did not change."""
        full = await self.store_with_chain(store, SupportsFeed)
        before = (await full.changes("default"))[-1].seq
        await full.supersede("a", ADA)
        await full.supersede("b", ADA)
        await full.reinstate("a", ADA)
        changes = [(change.op, change.id) for change in await full.changes("default", after=before)]
        assert changes == [
            ("supersede", "a"),
            ("stale", "b"),
            ("stale", "c"),
            ("supersede", "b"),
            ("restore", "a"),
            ("current", "b"),
        ]

    async def test_an_earlier_moment_knows_what_was_not_yet_stale(self, store: Store) -> None:
        """A read as of an earlier time shows whether an entry was stale then."""
        full = self.require(store, SupportsSupersede, SupportsGet, SupportsQuery)
        with clock.override(FrozenClock(1_000)) as time:
            await derive_entry(full, "a")
            await derive_entry(full, "b", "a")
            time.advance(100)
            await full.supersede("a", ADA)
            time.advance(100)
            await full.reinstate("a", ADA)
            states = [(await full.get("b", ADA, as_of=at)).stale for at in (1_050, 1_100, 1_199, 1_200)]
            assert states == [False, True, True, False]
            assert [await query_ids(full, as_of=at) for at in (1_050, 1_150)] == [["b", "a"], []]
            await full.supersede("a", ADA)
            await write_entry(full, "Tea at last.", id="b")
            versions = [version.entry for version in await full.history("b", ADA)]
            assert [entry.stale for entry in versions if entry is not None] == [True, False]

    async def test_one_that_is_written_after_an_erasure_has_no_past(self, store: Store) -> None:
        """It inherits no staleness of the erased entry, under the same id or another."""
        full = self.require(store, SupportsSupersede, SupportsGet, SupportsErase, SupportsQuery)
        for id in ("b", "c"):
            with clock.override(FrozenClock(1_000)) as time:
                await derive_entry(full, f"p{id}")
                await derive_entry(full, "b", f"p{id}")
                await full.supersede(f"p{id}", ADA)
                time.advance(100)
                await full.erase(ADA, id="b")
                await derive_entry(full, id)
                await write_entry(full, "More tea.", id=id)
                assert (await full.get(id, ADA, as_of=1_100)).stale is False
                versions = [version.entry for version in await full.history(id, ADA)]
                assert [entry.stale for entry in versions if entry is not None] == [False, False]
                await full.erase(ADA, id=id)

    async def test_figures_tell_how_many_are_stale(self, store: Store) -> None:
        """Statistics count each entry once: live, superseded, stale or expired."""
        full = await self.store_with_chain(store, SupportsQuery)
        await derive_entry(full, "old", expires_at=1)
        await full.supersede("c", ADA)
        await full.supersede("a", ADA)
        stats = await full.stats(ADA)
        assert (stats.entries, stats.live, stats.superseded, stats.stale, stats.expired) == (5, 1, 2, 1, 1)

    async def test_many_entries_at_once_are_stale_in_the_end(self, store: Store) -> None:
        """The receipts of a batch show the state after the whole batch."""
        full = self.require(store, SupportsBatchWrite, SupportsSupersede, SupportsGet)
        receipts = await full.write_many(
            [
                write_request("Tea of c.", id="c", evidence=entry_evidence("b")),
                write_request("Tea of b.", id="b", evidence=entry_evidence("a")),
                write_request("Tea of a.", id="a"),
                write_request("Tea of n.", id="n", supersedes="a"),
            ]
        )
        assert [receipt.entry.stale for receipt in receipts] == [True, True, False, False]
        assert await stale_ids(full) == ["b", "c"]
