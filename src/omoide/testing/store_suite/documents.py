"""Conformance tests of documents and their leases."""

from __future__ import annotations

import pytest

from omoide import clock
from omoide.core.entry import Scope
from omoide.errors import Conflict, Invalid, NotFound
from omoide.stores.protocols import Store, SupportsDocuments, SupportsLeases
from omoide.stores.records import Document
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import ADA, BOB, ELSEWHERE, FullStore, StoreFixtures

BODY = {"turns": [{"role": "user", "content": "Grüße"}, {"n": 1.5}], "none": None}


def make_document(**fields: object) -> Document:
    """Return a document of the agent "ada"."""
    return Document(**{"kind": "session", "id": "d", "agent_id": "ada", "body": BODY, **fields})  # type: ignore[arg-type]


async def list_document_ids(store: FullStore, scope: Scope = ADA, kind: str = "session") -> list[str]:
    """Return the ids of the documents of one kind in a scope."""
    return [document.id for document in await store.documents(kind, scope)]


class DocumentSuite(StoreFixtures):
    """Documents with revisions, and leases on them."""

    # Documents

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
        full = self.require(store, SupportsDocuments)
        assert await full.documents("session", ADA) == []
        for id in ("b", "ä", "a", "B", "a1", "思"):
            await full.save(make_document(id=id, body={"of": id}, log=["first"]))
        await full.append("session", "a", ["x"], ADA)
        documents = await full.documents("session", ADA)
        assert [document.id for document in documents] == ["B", "a", "a1", "b", "ä", "思"]
        assert [document.body for document in documents] == [{"of": document.id} for document in documents]
        assert {document.log for document in documents} == {()}
        loaded = await full.load("session", "a", ADA)
        assert loaded is not None
        assert loaded.log == ("first", "x")
        assert documents[1] == loaded.replace(log=())

    async def test_documents_are_listed_a_page_at_a_time(self, store: Store) -> None:
        """The last id of a page begins the next one, also when its document is gone; past the end is none."""
        full = self.require(store, SupportsDocuments)
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
        full = self.require(store, SupportsDocuments)
        for wrong in ({"limit": 0}, {"limit": -1}, {"limit": "2"}, {"after": ""}, {"after": 5}):
            with pytest.raises(Invalid) as caught:
                await full.documents("session", ADA, **wrong)
            assert [*wrong] == [caught.value.field]

    async def test_documents_are_listed_for_those_whose_they_are(self, store: Store) -> None:
        """Another kind, agent, session or namespace is not seen; without an agent everybody's are."""
        full = self.require(store, SupportsDocuments)
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

    # Leases

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
            next_owner = await full.claim("session", "d", ADA, owner="w2", ttl_ms=100)
            assert next_owner is not None
            assert next_owner.token > renewed.token >= first.token

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
