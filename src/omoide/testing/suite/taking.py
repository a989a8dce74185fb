"""Does a store take over entries as they were elsewhere?"""

from __future__ import annotations

from typing import Any

import pytest

from omoide import clock
from omoide.core.entry import Entry
from omoide.errors import IdTaken, Invalid, NotFound, WrongType
from omoide.stores.protocols import (
    Erases,
    Feeds,
    Gets,
    KeepsHistory,
    Links,
    Projects,
    Queries,
    RecordsAccess,
    Store,
    Supersedes,
    Takes,
)
from omoide.stores.records import Access, Link
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, BOB, Offered, found, keep, note, recall


def elsewhere(id: str, content: str = "Tea from far away.", /, **fields: Any) -> Entry:
    """An entry that another store kept."""
    return note(content, **{"id": id, "rev": 4, "created_at": 5, **fields})


class Taking(Offered):
    """Taking over."""

    async def test_entries_are_kept_exactly(self, store: Store) -> None:
        """Revision, times and what superseded them included; they are found like any other."""
        full = self.offering(store, Takes, Gets, Queries, KeepsHistory)
        told = elsewhere("a", "Green tea.", type="fact", confidence=0.3, tags=["x"], metadata={"n": [1]})
        gone = elsewhere("b", superseded_by="a", superseded_at=9, superseded_reason="better known")
        assert await full.take([told, gone]) == 2
        assert await full.get("a", ADA) == told
        assert await full.get("b", ADA) == gone
        assert await recall(full, "green tea") == ["a"]
        assert await found(full) == ["a"]
        assert [(version.rev, version.entry) for version in await full.history("a", ADA)] == [(4, told)]
        after = await keep(full, "Black tea.", id="a", expected_rev=4)
        assert (after.rev, after.entry.created_at) == (5, 5)

    async def test_what_is_here_already_is_passed_over(self, store: Store) -> None:
        """So that taking twice is taking once; figures of what is here stay as they are."""
        full = self.offering(store, Takes, RecordsAccess)
        entries = [elsewhere("a"), elsewhere("b")]
        assert await full.take(entries[:1], access={"a": Access(count=3, last=7)}) == 1
        assert await full.take([*entries, *entries], access={"a": Access(count=9, last=9)}) == 1
        assert await full.list_entries(ADA) == entries
        assert await full.access("a", ADA) == Access(count=3, last=7)
        assert await full.take([]) == 0

    async def test_another_entry_under_the_same_id_stands_in_the_way(self, store: Store) -> None:
        """And then nothing is taken at all."""
        full = self.offering(store, Takes)
        kept = (await keep(full, id="a")).entry
        for other in (
            elsewhere("a"),
            kept.replace(content="Else."),
            kept.replace(rev=2),
            elsewhere("a", agent_id="bob"),
        ):
            with pytest.raises(IdTaken):
                await full.take([elsewhere("new"), other])
        with pytest.raises(IdTaken):
            await full.take([elsewhere("twice"), elsewhere("twice", "Otherwise.")])
        assert await full.list_entries(ADA) == [kept]
        assert await full.list_entries(BOB) == []

    async def test_links_and_figures_come_along(self, store: Store) -> None:
        """With the moments they had; ends may be here already."""
        full = self.offering(store, Takes, Links, RecordsAccess)
        await keep(full, id="here")
        link = Link(source="a", relation="refines", target="here", created_at=3)
        figures = {"a": Access(count=2, last=8), "b": Access(count=1), "nobody's": Access(count=1)}
        assert await full.take([elsewhere("a"), elsewhere("b")], [link, link], figures) == 2
        assert await full.links("here", ADA) == [link]
        assert [await full.access(id, ADA) for id in ("a", "b", "here")] == [
            Access(count=2, last=8),
            Access(count=1),
            Access(),
        ]
        with clock.using(FrozenClock(50)):
            await full.record_access(["b"], ADA)
        assert await full.access("b", ADA) == Access(count=2, last=50)

    async def test_a_link_without_its_ends_is_refused(self, store: Store) -> None:
        """And nothing is taken with it."""
        full = self.offering(store, Takes)
        for ends in (("a", "nobody's"), ("nobody's", "a")):
            with pytest.raises(NotFound):
                await full.take([elsewhere("a")], [Link(source=ends[0], relation="refines", target=ends[1])])
        assert await full.list_entries(ADA) == []

    async def test_what_is_taken_over_is_judged_here(self, store: Store) -> None:
        """Whether it is stale depends on what it rests on in this store."""
        full = self.offering(store, Takes, Supersedes, Links, Erases)
        await keep(full, id="p")
        await full.supersede("p", ADA)
        rests = elsewhere("a", evidence=[{"kind": "entry", "ref": "p"}])
        await full.take(
            [rests, elsewhere("b", stale=True), elsewhere("c", evidence=[{"kind": "entry", "ref": "b"}])]
        )
        assert [entry.stale for entry in await full.list_entries(ADA)] == [False, True, False, False]
        assert await full.take([rests]) == 0
        doubt = Link(source="b", relation="invalidated_by", target="a")
        assert await full.take([rests], [doubt]) == 0
        assert [entry.stale for entry in await full.list_entries(ADA)] == [False, True, True, True]
        await full.erase(ADA, id="p")
        await full.take([elsewhere("p")])
        assert [entry.stale for entry in await full.list_entries(ADA) if entry.id == "a"] == [False]

    async def test_taking_over_is_told(self, store: Store) -> None:
        """As writing is, so that copies and other processes hear of it."""
        full = self.offering(store, Takes, Feeds, Projects)
        await full.take([elsewhere("a"), elsewhere("b")], [Link(source="a", relation="refines", target="b")])
        told = await full.changes("default")
        assert [(change.op, change.id, change.rev) for change in told] == [
            ("write", "a", 4),
            ("write", "b", 4),
            ("link", "a", 4),
        ]
        assert len((await full.changed("default")).entries) == 2

    async def test_one_namespace_is_taken_over_at_a_time(self, store: Store) -> None:
        """Links say no namespace, so that their entries have to."""
        full = self.offering(store, Takes)
        with pytest.raises(Invalid):
            await full.take([elsewhere("a"), elsewhere("b", namespace="elsewhere")])
        with pytest.raises(Invalid):
            await full.take([], [Link(source="a", relation="refines", target="b")])
        bad: list[Any] = [{"id": "a"}, None, "a"]
        for entry in bad:
            with pytest.raises(WrongType):
                await full.take([elsewhere("a"), entry])
        assert await full.list_entries(ADA) == []
