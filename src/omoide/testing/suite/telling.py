"""Does a store tell what changed, and keep many entries at once?"""

from __future__ import annotations

import pytest

from omoide import clock
from omoide.core.scope import Scope
from omoide.errors import Conflict, IdTaken
from omoide.stores.protocols import Erases, Feeds, Links, Store, Supersedes, WritesMany
from omoide.stores.records import Change, Link
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, Offered, asked, keep, listed


class Telling(Offered):
    """The feed of changes, and batches."""

    async def test_every_change_is_told_in_order(self, store: Store) -> None:
        """Numbers grow with each change; what changed nothing is not told; no change holds content."""
        full = self.offering(store, Feeds, Supersedes)
        with clock.using(FrozenClock(1_000)) as time:
            await keep(full, "Tea.", id="a")
            await keep(full, "Tea.", id="a")
            time.advance(5)
            await keep(full, "Coffee.", id="a")
            await keep(full, "Cocoa.", id="b", supersedes="a")
            await full.restore("a", ADA)
            told = await full.changes("default")
        assert [(change.id, change.op, change.rev) for change in told if change.id == "a"] == [
            ("a", "write", 1),
            ("a", "write", 2),
            ("a", "supersede", 3),
            ("a", "restore", 4),
        ]
        assert [(change.op, change.rev) for change in told if change.id == "b"] == [("write", 1)]
        assert [change.at for change in told] == [1_000, 1_005, 1_005, 1_005, 1_005]
        numbers = [change.seq for change in told]
        assert numbers == sorted(set(numbers))
        assert set(Change.__struct_fields__) == {"seq", "namespace", "id", "op", "rev", "at"}

    async def test_links_and_erasures_are_told_too(self, store: Store) -> None:
        """Linking, unlinking and erasing appear in the feed."""
        full = self.offering(store, Feeds, Links, Erases)
        await keep(full, id="a")
        await keep(full, id="b")
        await full.link(Link(source="a", relation="refines", target="b"), ADA)
        await full.unlink(Link(source="a", relation="refines", target="b"), ADA)
        await full.erase(ADA, id="b")
        told = await full.changes("default")
        assert [change.op for change in told] == ["write", "write", "link", "unlink", "erase"]
        assert (told[2].id, told[3].id, told[4].id) == ("a", "a", "b")

    async def test_a_reader_goes_on_where_it_stopped(self, store: Store) -> None:
        """`after` and `limit` cut the feed without missing or repeating a change."""
        full = self.offering(store, Feeds)
        for at in range(7):
            await keep(full, id=f"e{at}")
        whole = await full.changes("default")
        parts: list[Change] = []
        while part := await full.changes("default", after=parts[-1].seq if parts else 0, limit=3):
            assert len(part) <= 3
            parts += part
        assert parts == whole
        assert await full.changes("default", after=whole[-1].seq) == []

    async def test_a_namespace_hears_of_itself_only(self, store: Store) -> None:
        """What happens in another namespace is not told."""
        full = self.offering(store, Feeds)
        await keep(full, id="a")
        await keep(full, id="b", namespace="elsewhere")
        assert [(change.namespace, change.id) for change in await full.changes("default")] == [
            ("default", "a")
        ]
        assert [change.id for change in await full.changes("elsewhere")] == ["b"]
        assert await full.changes("nowhere") == []

    async def test_many_entries_are_kept_at_once(self, store: Store) -> None:
        """Receipts come in the order of the requests; a later request sees the earlier ones."""
        full = self.offering(store, WritesMany)
        receipts = await full.write_many(
            [asked(id="a"), asked("Other.", id="b"), asked("Changed.", id="a"), asked("Other.", id="b")]
        )
        assert [(receipt.id, receipt.rev, receipt.outcome) for receipt in receipts] == [
            ("a", 1, "stored"),
            ("b", 1, "stored"),
            ("a", 2, "stored"),
            ("b", 1, "unchanged"),
        ]
        assert await listed(full) == ["b", "a"]
        assert await full.write_many([]) == []

    async def test_many_entries_are_kept_all_or_none(self, store: Store) -> None:
        """When one is refused, none is written."""
        full = self.offering(store, WritesMany)
        before = [(await keep(full, id="a")).entry, (await keep(full, id="x", agent_id="bob")).entry]
        good = [asked("New.", id="n1"), asked("Changed.", id="a", idempotency_key="k")]
        for bad, refusal in ((asked(id="a", expected_rev=9), Conflict), (asked(id="x"), IdTaken)):
            with pytest.raises(refusal):
                await full.write_many([*good, bad, asked(id="n2")])
            assert await full.list_entries(Scope()) == before
        # The key was not used up either.
        assert (await keep(full, "Other.", id="o", idempotency_key="k")).outcome == "stored"
