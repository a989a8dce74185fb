"""Conformance tests of exchange with other systems: change feed, projection, import."""

from __future__ import annotations

from typing import Any

import pytest

from omoide import clock
from omoide.core.entry import Entry
from omoide.errors import IdTaken, Invalid, NotFound, WrongType
from omoide.stores.protocols import (
    Store,
    SupportsAccess,
    SupportsErase,
    SupportsFeed,
    SupportsGet,
    SupportsImport,
    SupportsLinks,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Access, Change, Feed, Link
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import (
    ADA,
    BOB,
    FullStore,
    StoreFixtures,
    make_entry,
    query_ids,
    recall_ids,
    write_entry,
)


class Replica:
    """A copy of a namespace that is built from the change feed alone."""

    def __init__(self) -> None:
        self.seq = 0
        self.entries: dict[str, Entry] = {}
        self.links: dict[str, set[tuple[str, str]]] = {}

    def apply(self, feed: Feed) -> None:
        for id in (*feed.erased_ids, *(entry.id for entry in feed.entries)):
            self.entries.pop(id, None)
            self.links.pop(id, None)
        self.entries.update((entry.id, entry) for entry in feed.entries)
        for link in feed.links:
            self.links.setdefault(link.source, set()).add((link.relation, link.target))
        self.seq = feed.seq


def foreign_entry(id: str, content: str = "Tea from far away.", /, **fields: Any) -> Entry:
    """Return an entry as another store has it."""
    return make_entry(content, **{"id": id, "rev": 4, "created_at": 5, **fields})


class ExchangeSuite(StoreFixtures):
    """The change feed, the feed with content for projections, and import."""

    # Change feed

    async def test_every_change_is_told_in_order(self, store: Store) -> None:
        """Sequence numbers grow; a write without effect is not listed; no change holds content."""
        full = self.require(store, SupportsFeed, SupportsSupersede)
        with clock.override(FrozenClock(1_000)) as time:
            await write_entry(full, "Tea.", id="a")
            await write_entry(full, "Tea.", id="a")
            time.advance(5)
            await write_entry(full, "Coffee.", id="a")
            await write_entry(full, "Cocoa.", id="b", supersedes="a")
            await full.reinstate("a", ADA)
            changes = await full.changes("default")
        assert [(change.id, change.op, change.rev) for change in changes if change.id == "a"] == [
            ("a", "write", 1),
            ("a", "write", 2),
            ("a", "supersede", 3),
            ("a", "restore", 4),
        ]
        assert [(change.op, change.rev) for change in changes if change.id == "b"] == [("write", 1)]
        assert [change.at for change in changes] == [1_000, 1_005, 1_005, 1_005, 1_005]
        numbers = [change.seq for change in changes]
        assert numbers == sorted(set(numbers))
        assert set(Change.__struct_fields__) == {"seq", "namespace", "id", "op", "rev", "at"}

    async def test_links_and_erasures_are_told_too(self, store: Store) -> None:
        """Linking, unlinking and erasing appear in the change feed."""
        full = self.require(store, SupportsFeed, SupportsLinks, SupportsErase)
        await write_entry(full, id="a")
        await write_entry(full, id="b")
        await full.link(Link(source="a", relation="refines", target="b"), ADA)
        await full.unlink(Link(source="a", relation="refines", target="b"), ADA)
        await full.erase(ADA, id="b")
        changes = await full.changes("default")
        assert [change.op for change in changes] == ["write", "write", "link", "unlink", "erase"]
        assert (changes[2].id, changes[3].id, changes[4].id) == ("a", "a", "b")

    async def test_a_reader_goes_on_where_it_stopped(self, store: Store) -> None:
        """`after` and `limit` cut the feed without missing or repeating a change."""
        full = self.require(store, SupportsFeed)
        for at in range(7):
            await write_entry(full, id=f"e{at}")
        changes = await full.changes("default")
        parts: list[Change] = []
        while part := await full.changes("default", after=parts[-1].seq if parts else 0, limit=3):
            assert len(part) <= 3
            parts += part
        assert parts == changes
        assert await full.changes("default", after=changes[-1].seq) == []

    async def test_a_namespace_hears_of_itself_only(self, store: Store) -> None:
        """Changes of another namespace are not listed."""
        full = self.require(store, SupportsFeed)
        await write_entry(full, id="a")
        await write_entry(full, id="b", namespace="elsewhere")
        assert [(change.namespace, change.id) for change in await full.changes("default")] == [
            ("default", "a")
        ]
        assert [change.id for change in await full.changes("elsewhere")] == ["b"]
        assert await full.changes("nowhere") == []

    # Projection

    async def catch_up(self, full: FullStore, replica: Replica, limit: int = 10_000) -> None:
        """Apply the feed to the replica until nothing is left."""
        more = True
        while more:
            feed = await full.change_feed("default", after=replica.seq, limit=limit)
            assert feed.seq > replica.seq or not feed.more
            replica.apply(feed)
            more = feed.more

    async def test_what_changed_is_told_as_it_is_now(self, store: Store) -> None:
        """Each changed entry comes once, in its current version; then nothing until the next change."""
        full = self.require(store, SupportsFeed, SupportsSupersede)
        await write_entry(full, "Tea.", id="a")
        await write_entry(full, "Cocoa.", id="b")
        latest = (await write_entry(full, "Coffee.", id="a")).entry
        feed = await full.change_feed("default")
        assert {entry.id: entry for entry in feed.entries}["a"] == latest
        assert (len(feed.entries), feed.more, feed.erased_ids) == (2, False, ())
        rest = await full.change_feed("default", after=feed.seq)
        assert (rest.entries, rest.links, rest.erased_ids, rest.seq, rest.more) == (
            (),
            (),
            (),
            feed.seq,
            False,
        )
        assert rest.generation == feed.generation
        superseded = await full.supersede("b", ADA)
        assert (await full.change_feed("default", after=feed.seq)).entries == (superseded,)

    async def test_what_was_erased_is_named(self, store: Store) -> None:
        """By its id alone, also where another entry with that id was written since."""
        full = self.require(store, SupportsFeed, SupportsErase)
        for id in "abc":
            await write_entry(full, id=id)
        before = (await full.change_feed("default")).seq
        await full.erase(ADA, id="a")
        await full.erase(ADA, id="b")
        again = (await write_entry(full, "Anew.", id="b")).entry
        for after in (0, before):
            feed = await full.change_feed("default", after=after)
            assert sorted(feed.erased_ids) == ["a", "b"]
            assert again in feed.entries
            assert "a" not in {entry.id for entry in feed.entries}
            assert feed.new_ids == ({"c"} if after == 0 else set())

    async def test_an_early_portion_tells_what_became_of_an_id(self, store: Store) -> None:
        """A page shows the current entry of an id, though the first one was erased."""
        full = self.require(store, SupportsFeed, SupportsErase)
        await write_entry(full, "Tea.", id="a")
        await write_entry(full, "Cocoa.", id="b")
        await full.erase(ADA, id="a")
        again = (await write_entry(full, "Anew.", id="a")).entry
        feed = await full.change_feed("default", limit=1)
        assert (feed.entries, feed.more) == ((again,), True)

    async def test_what_was_not_there_before_is_named(self, store: Store) -> None:
        """New entries are listed as fresh, so that a projection need not look for older data of them."""
        full = self.require(store, SupportsFeed, SupportsImport, SupportsSupersede)
        await write_entry(full, id="a")
        await write_entry(full, id="b")
        feed = await full.change_feed("default")
        assert feed.new_ids == {"a", "b"}
        await write_entry(full, "Coffee.", id="a")
        await write_entry(full, "Cocoa.", id="c")
        await write_entry(full, "Cocoa with milk.", id="c")
        await full.import_entries([make_entry("From elsewhere.", id="d", rev=3)])
        await full.supersede("b", ADA)
        assert (await full.change_feed("default", after=feed.seq)).new_ids == {"c", "d"}

    async def test_links_come_with_the_entries_they_begin_at(self, store: Store) -> None:
        """A link that is made, removed, or lost with its target is a change of its source."""
        full = self.require(store, SupportsFeed, SupportsLinks, SupportsErase)
        for id in "abc":
            await write_entry(full, id=id)
        copy = Replica()
        await self.catch_up(full, copy)
        await full.link(Link(source="a", relation="refines", target="b"), ADA)
        await full.link(Link(source="a", relation="confirms", target="c"), ADA)
        await self.catch_up(full, copy)
        assert copy.links == {"a": {("refines", "b"), ("confirms", "c")}}
        await full.unlink(Link(source="a", relation="confirms", target="c"), ADA)
        await self.catch_up(full, copy)
        assert copy.links == {"a": {("refines", "b")}}
        await full.erase(ADA, id="b")
        await self.catch_up(full, copy)
        assert copy.links == {}

    async def test_a_feed_comes_in_portions(self, store: Store) -> None:
        """Whatever the size of its pages, a replica that has applied them all is complete."""
        full = self.require(store, SupportsFeed, SupportsSupersede, SupportsErase)
        for at in range(9):
            await write_entry(full, f"Tea {at}.", id=f"e{at}")
            if at % 3 == 1:
                await full.supersede(f"e{at - 1}", ADA)
        await full.erase(ADA, id="e4")
        for limit in (1, 2, 5, 100):
            copy = Replica()
            await self.catch_up(full, copy, limit)
            assert sorted(copy.entries.values(), key=lambda entry: entry.id) == sorted(
                await full.list_entries(ADA), key=lambda entry: entry.id
            )
        first = await full.change_feed("default", limit=2)
        assert first.more is True
        assert len(first.entries) <= 2

    async def test_a_namespace_is_followed_alone(self, store: Store) -> None:
        """Changes of another namespace are not listed, and do not count against the limit."""
        full = self.require(store, SupportsFeed)
        for at in range(4):
            await write_entry(full, id=f"far{at}", namespace="elsewhere")
        await write_entry(full, id="a")
        feed = await full.change_feed("default", limit=1)
        assert ([entry.id for entry in feed.entries], feed.more) == (["a"], False)
        assert (await full.change_feed("nowhere")).entries == ()

    async def test_uses_are_told_with_what_changed(self, store: Store) -> None:
        """Access counts come with changed entries, and, from a given time on, with unchanged ones."""
        full = self.require(store, SupportsFeed, SupportsAccess)
        with clock.override(FrozenClock(1_000)) as time:
            for id in "abc":
                await write_entry(full, id=id)
            await full.record_access(["a", "b"], ADA)
            time.advance(100)
            await full.record_access(["b"], ADA)
            feed = await full.change_feed("default")
            assert feed.access == {"a": Access(count=1, last=1_000), "b": Access(count=2, last=1_100)}
            unchanged = await full.change_feed("default", after=feed.seq)
            assert unchanged.access == {}
            later = await full.change_feed("default", after=feed.seq, used_since=1_050)
            assert (later.entries, later.access) == ((), {"b": Access(count=2, last=1_100)})

    # Import

    async def test_entries_are_kept_exactly(self, store: Store) -> None:
        """Revision, times and supersession are imported as they are; the entries are found like any other."""
        full = self.require(store, SupportsImport, SupportsGet, SupportsQuery)
        live = foreign_entry("a", "Green tea.", type="fact", confidence=0.3, tags=["x"], metadata={"n": [1]})
        superseded = foreign_entry("b", superseded_by="a", superseded_at=9, superseded_reason="better known")
        assert await full.import_entries([live, superseded]) == 2
        assert await full.get("a", ADA) == live
        assert await full.get("b", ADA) == superseded
        assert await recall_ids(full, "green tea") == ["a"]
        assert await query_ids(full) == ["a"]
        assert [(version.rev, version.entry) for version in await full.history("a", ADA)] == [(4, live)]
        after = await write_entry(full, "Black tea.", id="a", expected_rev=4)
        assert (after.rev, after.entry.created_at) == (5, 5)

    async def test_what_is_here_already_is_passed_over(self, store: Store) -> None:
        """Importing twice is importing once; the access counts of existing entries stay."""
        full = self.require(store, SupportsImport, SupportsAccess)
        entries = [foreign_entry("a"), foreign_entry("b")]
        assert await full.import_entries(entries[:1], access={"a": Access(count=3, last=7)}) == 1
        assert await full.import_entries([*entries, *entries], access={"a": Access(count=9, last=9)}) == 1
        assert await full.list_entries(ADA) == entries
        assert await full.access("a", ADA) == Access(count=3, last=7)
        assert await full.import_entries([]) == 0

    async def test_another_entry_under_the_same_id_stands_in_the_way(self, store: Store) -> None:
        """A different entry with the same id refuses the whole import."""
        full = self.require(store, SupportsImport)
        stored = (await write_entry(full, id="a")).entry
        for other in (
            foreign_entry("a"),
            stored.replace(content="Else."),
            stored.replace(rev=2),
            foreign_entry("a", agent_id="bob"),
        ):
            with pytest.raises(IdTaken):
                await full.import_entries([foreign_entry("new"), other])
        with pytest.raises(IdTaken):
            await full.import_entries([foreign_entry("twice"), foreign_entry("twice", "Otherwise.")])
        assert await full.list_entries(ADA) == [stored]
        assert await full.list_entries(BOB) == []

    async def test_links_and_figures_come_along(self, store: Store) -> None:
        """Links and access counts keep their times; the ends of a link may exist already."""
        full = self.require(store, SupportsImport, SupportsLinks, SupportsAccess)
        await write_entry(full, id="here")
        link = Link(source="a", relation="refines", target="here", created_at=3)
        figures = {"a": Access(count=2, last=8), "b": Access(count=1), "nobody's": Access(count=1)}
        assert await full.import_entries([foreign_entry("a"), foreign_entry("b")], [link, link], figures) == 2
        assert await full.links("here", ADA) == [link]
        assert [await full.access(id, ADA) for id in ("a", "b", "here")] == [
            Access(count=2, last=8),
            Access(count=1),
            Access(),
        ]
        with clock.override(FrozenClock(50)):
            await full.record_access(["b"], ADA)
        assert await full.access("b", ADA) == Access(count=2, last=50)

    async def test_a_link_without_its_ends_is_refused(self, store: Store) -> None:
        """Nothing of the import is stored then."""
        full = self.require(store, SupportsImport)
        for ends in (("a", "nobody's"), ("nobody's", "a")):
            with pytest.raises(NotFound):
                await full.import_entries(
                    [foreign_entry("a")], [Link(source=ends[0], relation="refines", target=ends[1])]
                )
        assert await full.list_entries(ADA) == []

    async def test_what_is_taken_over_is_judged_here(self, store: Store) -> None:
        """Staleness depends on the evidence in this store, not on the imported field."""
        full = self.require(store, SupportsImport, SupportsSupersede, SupportsLinks, SupportsErase)
        await write_entry(full, id="p")
        await full.supersede("p", ADA)
        dependent = foreign_entry("a", evidence=[{"kind": "entry", "ref": "p"}])
        await full.import_entries(
            [
                dependent,
                foreign_entry("b", stale=True),
                foreign_entry("c", evidence=[{"kind": "entry", "ref": "b"}]),
            ]
        )
        assert [entry.stale for entry in await full.list_entries(ADA)] == [False, True, False, False]
        assert await full.import_entries([dependent]) == 0
        invalidation = Link(source="b", relation="invalidated_by", target="a")
        assert await full.import_entries([dependent], [invalidation]) == 0
        assert [entry.stale for entry in await full.list_entries(ADA)] == [False, True, True, True]
        await full.erase(ADA, id="p")
        await full.import_entries([foreign_entry("p")])
        assert [entry.stale for entry in await full.list_entries(ADA) if entry.id == "a"] == [False]

    async def test_taking_over_is_told(self, store: Store) -> None:
        """An import appears in the change feed like writes, so that replicas and other processes see it."""
        full = self.require(store, SupportsImport, SupportsFeed)
        await full.import_entries(
            [foreign_entry("a"), foreign_entry("b")], [Link(source="a", relation="refines", target="b")]
        )
        changes = await full.changes("default")
        assert [(change.op, change.id, change.rev) for change in changes] == [
            ("write", "a", 4),
            ("write", "b", 4),
            ("link", "a", 4),
        ]
        assert len((await full.change_feed("default")).entries) == 2

    async def test_one_namespace_is_taken_over_at_a_time(self, store: Store) -> None:
        """Links have no namespace, so the entries of one import must share theirs."""
        full = self.require(store, SupportsImport)
        with pytest.raises(Invalid):
            await full.import_entries([foreign_entry("a"), foreign_entry("b", namespace="elsewhere")])
        with pytest.raises(Invalid):
            await full.import_entries([], [Link(source="a", relation="refines", target="b")])
        bad: list[Any] = [{"id": "a"}, None, "a"]
        for entry in bad:
            with pytest.raises(WrongType):
                await full.import_entries([foreign_entry("a"), entry])
        assert await full.list_entries(ADA) == []
