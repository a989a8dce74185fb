"""Does a store know figures about what it holds and what is used?"""

from __future__ import annotations

import pytest

from omoide import clock
from omoide.core.scope import Scope
from omoide.errors import NotFound
from omoide.stores.protocols import (
    Counts,
    Documents,
    Erases,
    Links,
    Namespaces,
    RecordsAccess,
    Store,
    Supersedes,
)
from omoide.stores.records import Access, Document, Link
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, BOB, ELSEWHERE, Offered, keep


class Counting(Offered):
    """Figures and accesses."""

    async def test_figures_count_what_the_scope_holds(self, store: Store) -> None:
        """Entries, live and not, by type; other scopes do not count."""
        full = self.offering(store, Counts, Supersedes, Links)
        with clock.using(FrozenClock(1_000)):
            await keep(full, "One.", id="a", type="fact")
            await keep(full, "Two.", id="a", type="fact")
            await keep(full, id="b", type="bug", session_id="s")
            await keep(full, id="c", expires_at=500)
            await keep(full, id="d", type="fact")
            await full.supersede("d", ADA)
            await keep(full, id="e", agent_id="bob")
            await keep(full, id="f", namespace="elsewhere")
            await full.link(Link(source="a", relation="refines", target="b"), ADA)
            seen = await full.stats(ADA)
            assert (seen.entries, seen.live, seen.superseded, seen.expired) == (4, 2, 1, 1)
            assert (seen.versions, seen.links) == (6, 1)
            assert (await full.stats(Scope(session_id="s"))).entries == 1
            assert (await full.stats(BOB)).entries == 1
            assert (await full.stats(Scope(namespace="nowhere"))).entries == 0

    async def test_figures_name_the_types_of_what_is_live(self, store: Store) -> None:
        """An entry without a type is a plain memory item."""
        full = self.offering(store, Counts)
        await keep(full, id="a", type="fact")
        await keep(full, id="b", type="fact")
        await keep(full, id="c")
        assert (await full.stats(ADA)).by_type == {"fact": 2, "memory_item": 1}

    async def test_all_namespaces_can_be_gone_through(self, store: Store) -> None:
        """Those with an entry or a document, in order, with the kinds of their documents; no others."""
        full = self.offering(store, Namespaces, Documents, Erases)
        assert await full.namespaces() == []
        await keep(full, namespace="b")
        await keep(full, namespace="a")
        await keep(full, namespace="a", agent_id="bob")
        await keep(full, namespace="Ä gone")
        for kind, id in (("thread", "x"), ("session", "x"), ("session", "y")):
            await full.save(Document(kind=kind, id=id, namespace="c"))
        await full.erase(Scope(namespace="Ä gone"))
        assert await full.namespaces() == ["a", "b", "c"]
        assert [await full.kinds(name) for name in ("a", "c", "d")] == [[], ["session", "thread"], []]

    async def test_uses_are_counted(self, store: Store) -> None:
        """How often, and when last; the entry itself stays as it is."""
        full = self.offering(store, RecordsAccess)
        kept = (await keep(full, id="a")).entry
        assert await full.access("a", ADA) == Access()
        with clock.using(FrozenClock(2_000)) as time:
            await full.record_access(["a"], ADA)
            time.advance(500)
            await full.record_access(["a", "nobody's"], ADA)
        assert await full.access("a", ADA) == Access(count=2, last=2_500)
        assert await full.list_entries(ADA) == [kept]

    async def test_uses_count_for_those_who_hold_the_entry(self, store: Store) -> None:
        """From another scope nothing is counted and nothing is told."""
        full = self.offering(store, RecordsAccess)
        await keep(full, id="a")
        for scope in (BOB, ELSEWHERE):
            await full.record_access(["a"], scope)
            with pytest.raises(NotFound):
                await full.access("a", scope)
        assert await full.access("a", ADA) == Access()
