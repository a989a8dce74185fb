"""Documents, leases, import, projection."""

from __future__ import annotations

from typing import Any

import pytest

from omoide import clock
from omoide.core.entry import Entry, Scope
from omoide.errors import Conflict, IdTaken, Invalid, NotFound, WrongType
from omoide.stores.protocols import (
    Store,
    SupportsAccess,
    SupportsChanges,
    SupportsDocumentList,
    SupportsDocuments,
    SupportsErase,
    SupportsFeed,
    SupportsGet,
    SupportsHistory,
    SupportsImport,
    SupportsLeases,
    SupportsLinks,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Access, Document, Feed, Link
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import (
    ADA,
    BOB,
    ELSEWHERE,
    FullStore,
    StoreFixtures,
    make_entry,
    query_ids,
    recall_ids,
    write_entry,
)

# following: Can a copy in another form keep in step with a store?


class Replica:
    """What somebody knows who has heard the feed and nothing else."""

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


class ProjectionSuite(StoreFixtures):
    """The feed with content."""

    async def catch_up(self, full: FullStore, replica: Replica, limit: int = 10_000) -> None:
        """Hear everything that is new."""
        more = True
        while more:
            feed = await full.change_feed("default", after=replica.seq, limit=limit)
            assert feed.seq > replica.seq or not feed.more
            replica.apply(feed)
            more = feed.more

    async def test_what_changed_is_told_as_it_is_now(self, store: Store) -> None:
        """Each entry once; then nothing, until something changes again."""
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
        gone = await full.supersede("b", ADA)
        assert (await full.change_feed("default", after=feed.seq)).entries == (gone,)

    async def test_what_was_erased_is_named(self, store: Store) -> None:
        """By its id alone, also where another entry of that id was written since."""
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
        """As it is now, though that entry was erased and another one has its id."""
        full = self.require(store, SupportsFeed, SupportsErase)
        await write_entry(full, "Tea.", id="a")
        await write_entry(full, "Cocoa.", id="b")
        await full.erase(ADA, id="a")
        again = (await write_entry(full, "Anew.", id="a")).entry
        feed = await full.change_feed("default", limit=1)
        assert (feed.entries, feed.more) == ((again,), True)

    async def test_what_was_not_there_before_is_named(self, store: Store) -> None:
        """So that nobody looks for what an entry was before; one that only changed is not among them."""
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
        """A link that is made, removed, or lost with its other end is a change of that entry."""
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
        """Whatever their size, a copy that has heard them all has everything."""
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
        """Another one's changes are not told, and do not count against the limit."""
        full = self.require(store, SupportsFeed)
        for at in range(4):
            await write_entry(full, id=f"far{at}", namespace="elsewhere")
        await write_entry(full, id="a")
        feed = await full.change_feed("default", limit=1)
        assert ([entry.id for entry in feed.entries], feed.more) == (["a"], False)
        assert (await full.change_feed("nowhere")).entries == ()

    async def test_uses_are_told_with_what_changed(self, store: Store) -> None:
        """And those since a moment, of whatever did not change."""
        full = self.require(store, SupportsFeed, SupportsAccess)
        with clock.override(FrozenClock(1_000)) as time:
            for id in "abc":
                await write_entry(full, id=id)
            await full.record_access(["a", "b"], ADA)
            time.advance(100)
            await full.record_access(["b"], ADA)
            feed = await full.change_feed("default")
            assert feed.access == {"a": Access(count=1, last=1_000), "b": Access(count=2, last=1_100)}
            quiet = await full.change_feed("default", after=feed.seq)
            assert quiet.access == {}
            later = await full.change_feed("default", after=feed.seq, used_since=1_050)
            assert (later.entries, later.access) == ((), {"b": Access(count=2, last=1_100)})


# holding: Does a store keep documents with revisions, and lend each to one worker at a time?


BODY = {"turns": [{"role": "user", "content": "Grüße"}, {"n": 1.5}], "none": None}


def make_document(**fields: object) -> Document:
    """A document of Ada's."""
    return Document(**{"kind": "session", "id": "d", "agent_id": "ada", "body": BODY, **fields})  # type: ignore[arg-type]


async def list_document_ids(store: FullStore, scope: Scope = ADA, kind: str = "session") -> list[str]:
    """The ids of the documents of a kind in a scope."""
    return [document.id for document in await store.documents(kind, scope)]


class DocumentSuite(StoreFixtures):
    """Documents and leases."""

    async def test_a_document_comes_back_as_it_was_saved(self, store: Store) -> None:
        """With its first revision and the time of saving; one that nobody saved is None."""
        full = self.require(store, SupportsDocuments)
        assert await full.load("session", "d", ADA) is None
        with clock.override(FrozenClock(5_000)):
            saved = await full.save(make_document())
        assert (saved.rev, saved.updated_at, saved.body) == (1, 5_000, BODY)
        assert await full.load("session", "d", ADA) == saved

    async def test_saving_again_is_the_next_revision(self, store: Store) -> None:
        """The body is replaced, and what was appended is cleared."""
        full = self.require(store, SupportsDocuments)
        await full.save(make_document())
        await full.append("session", "d", ["x"], ADA)
        saved = await full.save(make_document(body="short"))
        assert (saved.rev, saved.body, saved.log) == (3, "short", ())
        assert await full.load("session", "d", ADA) == saved

    async def test_appending_adds_to_the_log(self, store: Store) -> None:
        """In order, without writing the body anew; each time is one revision."""
        full = self.require(store, SupportsDocuments)
        await full.save(make_document())
        assert await full.append("session", "d", [{"n": 1}, "two"], ADA) == 2
        assert await full.append("session", "d", [3], ADA, expected_rev=2) == 3
        loaded = await full.load("session", "d", ADA)
        assert loaded is not None
        assert (loaded.body, loaded.log, loaded.rev) == (BODY, ({"n": 1}, "two", 3), 3)

    async def test_a_document_can_expect_a_revision(self, store: Store) -> None:
        """Zero means that it must not exist; with a stale one nothing changes."""
        full = self.require(store, SupportsDocuments)
        with pytest.raises(Conflict):
            await full.save(make_document(), expected_rev=1)
        saved = await full.save(make_document(), expected_rev=0)
        for stale in (0, 2):
            with pytest.raises(Conflict) as caught:
                await full.save(make_document(body="other"), expected_rev=stale)
            assert (caught.value.expected, caught.value.actual) == (stale, 1)
            with pytest.raises(Conflict):
                await full.append("session", "d", ["x"], ADA, expected_rev=stale)
        assert await full.load("session", "d", ADA) == saved
        assert (await full.save(make_document(body="other"), expected_rev=1)).rev == 2

    async def test_nothing_is_appended_to_what_does_not_exist(self, store: Store) -> None:
        """A document has to be saved first."""
        full = self.require(store, SupportsDocuments)
        with pytest.raises(NotFound):
            await full.append("session", "d", ["x"], ADA)
        assert await full.load("session", "d", ADA) is None

    async def test_documents_are_told_apart_by_kind_id_and_namespace(self, store: Store) -> None:
        """The same id under another kind or in another namespace is another document."""
        full = self.require(store, SupportsDocuments)
        saved = [
            await full.save(make_document(**fields))
            for fields in ({}, {"kind": "checkpoint"}, {"id": "D"}, {"namespace": "elsewhere"})
        ]
        assert [document.rev for document in saved] == [1, 1, 1, 1]
        assert await full.load("session", "d", ELSEWHERE) == saved[3]
        assert await full.load("checkpoint", "d", ADA) == saved[1]

    async def test_a_document_is_shown_to_those_whose_it_is(self, store: Store) -> None:
        """From another scope it is not there, and nothing can be added to it."""
        full = self.require(store, SupportsDocuments)
        saved = await full.save(make_document(session_id="s"))
        for scope in (BOB, ELSEWHERE, Scope(agent_id="ada", session_id="t")):
            assert await full.load("session", "d", scope) is None
            with pytest.raises(NotFound):
                await full.append("session", "d", ["x"], scope)
        assert await full.load("session", "d", Scope(agent_id="ada", session_id="s")) == saved
        assert await full.load("session", "d", Scope()) == saved

    async def test_documents_are_listed_by_their_ids(self, store: Store) -> None:
        """As they are now, in the order of their ids and not of their saving, without what was appended."""
        full = self.require(store, SupportsDocuments, SupportsDocumentList)
        assert await full.documents("session", ADA) == []
        for id in ("b", "ä", "a", "B", "a1", "思"):
            await full.save(make_document(id=id, body={"of": id}, log=["first"]))
        await full.append("session", "a", ["x"], ADA)
        found = await full.documents("session", ADA)
        assert [document.id for document in found] == ["B", "a", "a1", "b", "ä", "思"]
        assert [document.body for document in found] == [{"of": document.id} for document in found]
        assert {document.log for document in found} == {()}
        loaded = await full.load("session", "a", ADA)
        assert loaded is not None
        assert loaded.log == ("first", "x")
        assert found[1] == loaded.replace(log=())

    async def test_documents_are_listed_a_page_at_a_time(self, store: Store) -> None:
        """The last id of a page begins the next one, also when its document is gone; past the end is none."""
        full = self.require(store, SupportsDocuments, SupportsDocumentList)
        for at in range(105):
            await full.save(make_document(id=f"d{at:03}"))
        first = await full.documents("session", ADA, limit=2)
        assert [document.id for document in first] == ["d000", "d001"]
        second = await full.documents("session", ADA, limit=2, after="d001")
        assert [document.id for document in second] == ["d002", "d003"]
        between = await full.documents("session", ADA, limit=1, after="d003x")
        assert [document.id for document in between] == ["d004"]
        assert len(await full.documents("session", ADA)) == 100
        assert len(await full.documents("session", ADA, after="d099")) == 5
        assert await full.documents("session", ADA, after="d104") == []

    async def test_a_page_that_cannot_be_is_refused(self, store: Store) -> None:
        """Pages hold one document or more, and begin after an id."""
        full = self.require(store, SupportsDocuments, SupportsDocumentList)
        for wrong in ({"limit": 0}, {"limit": -1}, {"limit": "2"}, {"after": ""}, {"after": 5}):
            with pytest.raises(Invalid) as caught:
                await full.documents("session", ADA, **wrong)
            assert [*wrong] == [caught.value.field]

    async def test_documents_are_listed_for_those_whose_they_are(self, store: Store) -> None:
        """Another kind, agent, session or namespace is not seen; without an agent everybody's are."""
        full = self.require(store, SupportsDocuments, SupportsDocumentList)
        await full.save(make_document(id="a", session_id="s"))
        await full.save(make_document(id="b", session_id="t"))
        await full.save(make_document(id="c", agent_id="bob", session_id="s"))
        await full.save(make_document(id="d", agent_id=None))
        await full.save(make_document(id="e", kind="checkpoint"))
        await full.save(make_document(id="f", namespace="elsewhere"))
        assert await list_document_ids(full) == ["a", "b"]
        assert await list_document_ids(full, BOB) == ["c"]
        assert await list_document_ids(full, Scope(agent_id="ada", session_id="s")) == ["a"]
        assert await list_document_ids(full, Scope(session_id="s")) == ["a", "c"]
        assert await list_document_ids(full, Scope()) == ["a", "b", "c", "d"]
        assert await list_document_ids(full, kind="checkpoint") == ["e"]
        assert await list_document_ids(full, kind="nothing") == []
        assert await list_document_ids(full, ELSEWHERE) == ["f"]
        others = await full.documents("session", BOB, limit=1)
        assert [document.id for document in others] == ["c"]

    async def test_one_worker_at_a_time_holds_a_lease(self, store: Store) -> None:
        """Others get None until it is released or has run out; the token grows with each owner."""
        full = self.require(store, SupportsDocuments, SupportsLeases)
        await full.save(make_document())
        with clock.override(FrozenClock(1_000)) as time:
            first = await full.claim("session", "d", ADA, owner="w1", ttl_ms=100)
            assert first is not None
            assert (first.owner, first.until) == ("w1", 1_100)
            assert await full.claim("session", "d", ADA, owner="w2", ttl_ms=100) is None
            time.advance(50)
            renewed = await full.claim("session", "d", ADA, owner="w1", ttl_ms=100)
            assert renewed is not None
            assert renewed.until == 1_150
            time.advance(99)
            assert await full.claim("session", "d", ADA, owner="w2", ttl_ms=100) is None
            time.advance(1)
            taken = await full.claim("session", "d", ADA, owner="w2", ttl_ms=100)
            assert taken is not None
            assert taken.token > renewed.token >= first.token

    async def test_a_lease_is_given_back_by_its_owner(self, store: Store) -> None:
        """Then the next worker gets it, with a higher token; nobody else can give it back."""
        full = self.require(store, SupportsDocuments, SupportsLeases)
        await full.save(make_document())
        first = await full.claim("session", "d", ADA, owner="w1", ttl_ms=60_000)
        assert await full.release("session", "d", ADA, owner="w2") is False
        assert await full.release("session", "d", ADA, owner="w1") is True
        assert await full.release("session", "d", ADA, owner="w1") is False
        second = await full.claim("session", "d", ADA, owner="w2", ttl_ms=60_000)
        assert first is not None
        assert second is not None
        assert second.token > first.token

    async def test_leases_of_different_documents_do_not_meet(self, store: Store) -> None:
        """Another id, kind or namespace is another lease."""
        full = self.require(store, SupportsDocuments, SupportsLeases)
        places = [
            ("session", "d", ADA),
            ("session", "e", ADA),
            ("checkpoint", "d", ADA),
            ("session", "d", ELSEWHERE),
        ]
        for at, (kind, id, scope) in enumerate(places):
            await full.save(make_document(kind=kind, id=id, namespace=scope.namespace))
            assert await full.claim(kind, id, scope, owner=f"w{at}", ttl_ms=60_000) is not None

    async def test_a_document_is_lent_to_those_whose_it_is(self, store: Store) -> None:
        """Nobody else can lock its owner out of it, or give its lease back."""
        full = self.require(store, SupportsDocuments, SupportsLeases)
        await full.save(make_document(session_id="s"))
        for scope in (BOB, Scope(agent_id="ada", session_id="t")):
            with pytest.raises(NotFound):
                await full.claim("session", "d", scope, owner="eve", ttl_ms=60_000)
        assert await full.claim("session", "d", ADA, owner="w1", ttl_ms=60_000) is not None
        with pytest.raises(NotFound):
            await full.release("session", "d", BOB, owner="w1")
        assert await full.claim("session", "d", ADA, owner="w2", ttl_ms=60_000) is None


# taking: Does a store take over entries as they were elsewhere?


def foreign_entry(id: str, content: str = "Tea from far away.", /, **fields: Any) -> Entry:
    """An entry that another store kept."""
    return make_entry(content, **{"id": id, "rev": 4, "created_at": 5, **fields})


class ImportSuite(StoreFixtures):
    """Taking over."""

    async def test_entries_are_kept_exactly(self, store: Store) -> None:
        """Revision, times and what superseded them included; they are found like any other."""
        full = self.require(store, SupportsImport, SupportsGet, SupportsQuery, SupportsHistory)
        told = foreign_entry("a", "Green tea.", type="fact", confidence=0.3, tags=["x"], metadata={"n": [1]})
        gone = foreign_entry("b", superseded_by="a", superseded_at=9, superseded_reason="better known")
        assert await full.import_entries([told, gone]) == 2
        assert await full.get("a", ADA) == told
        assert await full.get("b", ADA) == gone
        assert await recall_ids(full, "green tea") == ["a"]
        assert await query_ids(full) == ["a"]
        assert [(version.rev, version.entry) for version in await full.history("a", ADA)] == [(4, told)]
        after = await write_entry(full, "Black tea.", id="a", expected_rev=4)
        assert (after.rev, after.entry.created_at) == (5, 5)

    async def test_what_is_here_already_is_passed_over(self, store: Store) -> None:
        """So that taking twice is taking once; figures of what is here stay as they are."""
        full = self.require(store, SupportsImport, SupportsAccess)
        entries = [foreign_entry("a"), foreign_entry("b")]
        assert await full.import_entries(entries[:1], access={"a": Access(count=3, last=7)}) == 1
        assert await full.import_entries([*entries, *entries], access={"a": Access(count=9, last=9)}) == 1
        assert await full.list_entries(ADA) == entries
        assert await full.access("a", ADA) == Access(count=3, last=7)
        assert await full.import_entries([]) == 0

    async def test_another_entry_under_the_same_id_stands_in_the_way(self, store: Store) -> None:
        """And then nothing is taken at all."""
        full = self.require(store, SupportsImport)
        kept = (await write_entry(full, id="a")).entry
        for other in (
            foreign_entry("a"),
            kept.replace(content="Else."),
            kept.replace(rev=2),
            foreign_entry("a", agent_id="bob"),
        ):
            with pytest.raises(IdTaken):
                await full.import_entries([foreign_entry("new"), other])
        with pytest.raises(IdTaken):
            await full.import_entries([foreign_entry("twice"), foreign_entry("twice", "Otherwise.")])
        assert await full.list_entries(ADA) == [kept]
        assert await full.list_entries(BOB) == []

    async def test_links_and_figures_come_along(self, store: Store) -> None:
        """With the moments they had; ends may be here already."""
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
        """And nothing is taken with it."""
        full = self.require(store, SupportsImport)
        for ends in (("a", "nobody's"), ("nobody's", "a")):
            with pytest.raises(NotFound):
                await full.import_entries(
                    [foreign_entry("a")], [Link(source=ends[0], relation="refines", target=ends[1])]
                )
        assert await full.list_entries(ADA) == []

    async def test_what_is_taken_over_is_judged_here(self, store: Store) -> None:
        """Whether it is stale depends on what it rests on in this store."""
        full = self.require(store, SupportsImport, SupportsSupersede, SupportsLinks, SupportsErase)
        await write_entry(full, id="p")
        await full.supersede("p", ADA)
        rests = foreign_entry("a", evidence=[{"kind": "entry", "ref": "p"}])
        await full.import_entries(
            [
                rests,
                foreign_entry("b", stale=True),
                foreign_entry("c", evidence=[{"kind": "entry", "ref": "b"}]),
            ]
        )
        assert [entry.stale for entry in await full.list_entries(ADA)] == [False, True, False, False]
        assert await full.import_entries([rests]) == 0
        doubt = Link(source="b", relation="invalidated_by", target="a")
        assert await full.import_entries([rests], [doubt]) == 0
        assert [entry.stale for entry in await full.list_entries(ADA)] == [False, True, True, True]
        await full.erase(ADA, id="p")
        await full.import_entries([foreign_entry("p")])
        assert [entry.stale for entry in await full.list_entries(ADA) if entry.id == "a"] == [False]

    async def test_taking_over_is_told(self, store: Store) -> None:
        """As writing is, so that copies and other processes hear of it."""
        full = self.require(store, SupportsImport, SupportsChanges, SupportsFeed)
        await full.import_entries(
            [foreign_entry("a"), foreign_entry("b")], [Link(source="a", relation="refines", target="b")]
        )
        told = await full.changes("default")
        assert [(change.op, change.id, change.rev) for change in told] == [
            ("write", "a", 4),
            ("write", "b", 4),
            ("link", "a", 4),
        ]
        assert len((await full.change_feed("default")).entries) == 2

    async def test_one_namespace_is_taken_over_at_a_time(self, store: Store) -> None:
        """Links say no namespace, so that their entries have to."""
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
