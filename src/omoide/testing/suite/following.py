"""Can a copy in another form keep in step with a store?"""

from __future__ import annotations

from omoide import clock
from omoide.core.entry import Entry
from omoide.stores.protocols import Erases, Links, Projects, RecordsAccess, Store, Supersedes, Takes
from omoide.stores.records import Access, Feed, Link
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, Full, Offered, keep, note


class Copy:
    """What somebody knows who has heard the feed and nothing else."""

    def __init__(self) -> None:
        self.seq = 0
        self.entries: dict[str, Entry] = {}
        self.links: dict[str, set[tuple[str, str]]] = {}

    def hear(self, feed: Feed) -> None:
        for id in (*feed.gone, *(entry.id for entry in feed.entries)):
            self.entries.pop(id, None)
            self.links.pop(id, None)
        self.entries.update((entry.id, entry) for entry in feed.entries)
        for link in feed.links:
            self.links.setdefault(link.source, set()).add((link.relation, link.target))
        self.seq = feed.seq


class Following(Offered):
    """The feed with content."""

    async def follow(self, full: Full, copy: Copy, limit: int = 10_000) -> None:
        """Hear everything that is new."""
        more = True
        while more:
            feed = await full.changed("default", after=copy.seq, limit=limit)
            assert feed.seq > copy.seq or not feed.more
            copy.hear(feed)
            more = feed.more

    async def test_what_changed_is_told_as_it_is_now(self, store: Store) -> None:
        """Each entry once; then nothing, until something changes again."""
        full = self.offering(store, Projects, Supersedes)
        await keep(full, "Tea.", id="a")
        await keep(full, "Cocoa.", id="b")
        latest = (await keep(full, "Coffee.", id="a")).entry
        feed = await full.changed("default")
        assert {entry.id: entry for entry in feed.entries}["a"] == latest
        assert (len(feed.entries), feed.more, feed.gone) == (2, False, ())
        rest = await full.changed("default", after=feed.seq)
        assert (rest.entries, rest.links, rest.gone, rest.seq, rest.more) == ((), (), (), feed.seq, False)
        assert rest.life == feed.life
        gone = await full.supersede("b", ADA)
        assert (await full.changed("default", after=feed.seq)).entries == (gone,)

    async def test_what_was_erased_is_named(self, store: Store) -> None:
        """By its id alone, also where another entry of that id was written since."""
        full = self.offering(store, Projects, Erases)
        for id in "abc":
            await keep(full, id=id)
        before = (await full.changed("default")).seq
        await full.erase(ADA, id="a")
        await full.erase(ADA, id="b")
        again = (await keep(full, "Anew.", id="b")).entry
        for after in (0, before):
            feed = await full.changed("default", after=after)
            assert sorted(feed.gone) == ["a", "b"]
            assert again in feed.entries
            assert "a" not in {entry.id for entry in feed.entries}
            assert feed.fresh == ({"c"} if after == 0 else set())

    async def test_an_early_portion_tells_what_became_of_an_id(self, store: Store) -> None:
        """As it is now, though that entry was erased and another one has its id."""
        full = self.offering(store, Projects, Erases)
        await keep(full, "Tea.", id="a")
        await keep(full, "Cocoa.", id="b")
        await full.erase(ADA, id="a")
        again = (await keep(full, "Anew.", id="a")).entry
        feed = await full.changed("default", limit=1)
        assert (feed.entries, feed.more) == ((again,), True)

    async def test_what_was_not_there_before_is_named(self, store: Store) -> None:
        """So that nobody looks for what an entry was before; one that only changed is not among them."""
        full = self.offering(store, Projects, Takes, Supersedes)
        await keep(full, id="a")
        await keep(full, id="b")
        feed = await full.changed("default")
        assert feed.fresh == {"a", "b"}
        await keep(full, "Coffee.", id="a")
        await keep(full, "Cocoa.", id="c")
        await keep(full, "Cocoa with milk.", id="c")
        await full.take([note("From elsewhere.", id="d", rev=3)])
        await full.supersede("b", ADA)
        assert (await full.changed("default", after=feed.seq)).fresh == {"c", "d"}

    async def test_links_come_with_the_entries_they_begin_at(self, store: Store) -> None:
        """A link that is made, removed, or lost with its other end is a change of that entry."""
        full = self.offering(store, Projects, Links, Erases)
        for id in "abc":
            await keep(full, id=id)
        copy = Copy()
        await self.follow(full, copy)
        await full.link(Link(source="a", relation="refines", target="b"), ADA)
        await full.link(Link(source="a", relation="confirms", target="c"), ADA)
        await self.follow(full, copy)
        assert copy.links == {"a": {("refines", "b"), ("confirms", "c")}}
        await full.unlink(Link(source="a", relation="confirms", target="c"), ADA)
        await self.follow(full, copy)
        assert copy.links == {"a": {("refines", "b")}}
        await full.erase(ADA, id="b")
        await self.follow(full, copy)
        assert copy.links == {}

    async def test_a_feed_comes_in_portions(self, store: Store) -> None:
        """Whatever their size, a copy that has heard them all has everything."""
        full = self.offering(store, Projects, Supersedes, Erases)
        for at in range(9):
            await keep(full, f"Tea {at}.", id=f"e{at}")
            if at % 3 == 1:
                await full.supersede(f"e{at - 1}", ADA)
        await full.erase(ADA, id="e4")
        for limit in (1, 2, 5, 100):
            copy = Copy()
            await self.follow(full, copy, limit)
            assert sorted(copy.entries.values(), key=lambda entry: entry.id) == sorted(
                await full.list_entries(ADA), key=lambda entry: entry.id
            )
        first = await full.changed("default", limit=2)
        assert first.more is True
        assert len(first.entries) <= 2

    async def test_a_namespace_is_followed_alone(self, store: Store) -> None:
        """Another one's changes are not told, and do not count against the limit."""
        full = self.offering(store, Projects)
        for at in range(4):
            await keep(full, id=f"far{at}", namespace="elsewhere")
        await keep(full, id="a")
        feed = await full.changed("default", limit=1)
        assert ([entry.id for entry in feed.entries], feed.more) == (["a"], False)
        assert (await full.changed("nowhere")).entries == ()

    async def test_uses_are_told_with_what_changed(self, store: Store) -> None:
        """And those since a moment, of whatever did not change."""
        full = self.offering(store, Projects, RecordsAccess)
        with clock.using(FrozenClock(1_000)) as time:
            for id in "abc":
                await keep(full, id=id)
            await full.record_access(["a", "b"], ADA)
            time.advance(100)
            await full.record_access(["b"], ADA)
            feed = await full.changed("default")
            assert feed.access == {"a": Access(count=1, last=1_000), "b": Access(count=2, last=1_100)}
            quiet = await full.changed("default", after=feed.seq)
            assert quiet.access == {}
            later = await full.changed("default", after=feed.seq, used_since=1_050)
            assert (later.entries, later.access) == ((), {"b": Access(count=2, last=1_100)})
