"""Conformance tests of the life cycle of an entry: forget, restore, history, links, erasure."""

from __future__ import annotations

import pytest

from omoide import clock
from omoide.core.entry import Scope
from omoide.errors import Conflict, Erased, IdTaken, Invalid, NotFound
from omoide.stores.protocols import (
    Store,
    SupportsAccess,
    SupportsDocuments,
    SupportsErase,
    SupportsFeed,
    SupportsGet,
    SupportsLeases,
    SupportsLinks,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Access, Document, Link
from omoide.testing import FrozenClock
from omoide.testing.store_suite.base import (
    ADA,
    BOB,
    ELSEWHERE,
    FullStore,
    StoreFixtures,
    list_ids,
    query_ids,
    recall_ids,
    write_entry,
)


class LifecycleSuite(StoreFixtures):
    """Superseding, restoring, linking and erasing entries."""

    # Forget, restore and history

    async def test_what_is_forgotten_stays_and_is_not_recalled(self, store: Store) -> None:
        """It is marked as deleted, with the reason and the time, in a new revision."""
        full = self.require(store, SupportsSupersede)
        with clock.override(FrozenClock(1_000)) as time:
            stored = (await write_entry(full, "Tea.", id="a")).entry
            time.advance(500)
            forgotten = await full.supersede("a", ADA, reason="moved on")
            assert forgotten == stored.replace(
                superseded_by="deleted", superseded_at=1_500, superseded_reason="moved on", rev=2
            )
            assert await recall_ids(full, "tea") == []
            assert await full.list_entries(ADA) == [forgotten]

    async def test_an_entry_can_be_replaced_by_another_that_exists(self, store: Store) -> None:
        """The older one names its successor; the successor itself is not touched."""
        full = self.require(store, SupportsSupersede)
        await write_entry(full, id="old")
        new = (await write_entry(full, id="new")).entry
        assert (await full.supersede("old", ADA, by="new")).superseded_by == "new"
        assert (await full.list_entries(ADA))[-1] == new
        assert await recall_ids(full) == ["new"]

    async def test_forgetting_twice_is_forgetting_once(self, store: Store) -> None:
        """The second time changes nothing."""
        full = self.require(store, SupportsSupersede)
        with clock.override(FrozenClock(1_000)) as time:
            await write_entry(full, id="a")
            once = await full.supersede("a", ADA, reason="first")
            time.advance(10)
            assert await full.supersede("a", ADA, reason="first") == once
            assert await full.list_entries(ADA) == [once]

    async def test_what_was_forgotten_comes_back(self, store: Store) -> None:
        """Restored, it has its content, is recalled again, and has a new revision."""
        full = self.require(store, SupportsSupersede)
        stored = (await write_entry(full, "Tea.", id="a")).entry
        await full.supersede("a", ADA, reason="moved on")
        restored = await full.reinstate("a", ADA)
        assert restored == stored.replace(rev=3)
        assert await recall_ids(full, "tea") == ["a"]
        assert await full.list_entries(ADA) == [restored]

    async def test_only_what_the_scope_holds_can_be_forgotten_or_restored(self, store: Store) -> None:
        """Ids of another scope and unknown ids are not found; nothing changes."""
        full = self.require(store, SupportsSupersede)
        await write_entry(full, id="a")
        await write_entry(full, id="b")
        await full.supersede("b", ADA)
        before = await full.list_entries(ADA)
        for scope in (BOB, ELSEWHERE):
            for id in ("a", "b", "nobody's"):
                with pytest.raises(NotFound):
                    await full.supersede(id, scope)
                with pytest.raises(NotFound):
                    await full.reinstate(id, scope)
        assert await full.list_entries(ADA) == before

    async def test_a_successor_must_be_another_entry_of_the_scope(self, store: Store) -> None:
        """Unknown successors, those of others, and the entry itself are refused."""
        full = self.require(store, SupportsSupersede)
        stored = (await write_entry(full, id="a")).entry
        await write_entry(full, id="bobs", agent_id="bob")
        await write_entry(full, id="far", namespace="elsewhere")
        for by in ("nobody's", "bobs", "far"):
            with pytest.raises(NotFound):
                await full.supersede("a", ADA, by=by)
        with pytest.raises(Invalid):
            await full.supersede("a", ADA, by="a")
        assert await full.list_entries(ADA) == [stored]

    async def test_forgetting_and_restoring_can_expect_a_revision(self, store: Store) -> None:
        """With a stale one they are refused and change nothing."""
        full = self.require(store, SupportsSupersede)
        await write_entry(full, id="a")
        for stale in (0, 2):
            with pytest.raises(Conflict):
                await full.supersede("a", ADA, expected_rev=stale)
        superseded = await full.supersede("a", ADA, expected_rev=1)
        with pytest.raises(Conflict):
            await full.reinstate("a", ADA, expected_rev=1)
        assert await full.list_entries(ADA) == [superseded]
        assert (await full.reinstate("a", ADA, expected_rev=2)).rev == 3

    async def test_forgetting_does_not_change_the_order(self, store: Store) -> None:
        """Neither forgetting nor restoring makes an entry newer than it is."""
        full = self.require(store, SupportsSupersede, SupportsQuery)
        with clock.override(FrozenClock(1_000)):
            for name in "abc":
                await write_entry(full, id=name)
            await full.supersede("a", ADA)
            await full.reinstate("a", ADA)
            assert await list_ids(full) == ["a", "b", "c"]
            assert await query_ids(full) == ["c", "b", "a"]

    async def test_history_tells_every_version_from_the_first(self, store: Store) -> None:
        """Writing, forgetting and restoring each add one, with the time it began."""
        full = self.require(store, SupportsSupersede, SupportsQuery)
        with clock.override(FrozenClock(1_000)) as time:
            expected = [(await write_entry(full, "Tea.", id="a")).entry]
            time.advance(10)
            expected.append((await write_entry(full, "Coffee.", id="a")).entry)
            await write_entry(full, "Coffee.", id="a")
            time.advance(10)
            expected.append(await full.supersede("a", ADA, reason="why not"))
            time.advance(10)
            expected.append(await full.reinstate("a", ADA))
            versions = await full.history("a", ADA)
        assert [version.entry for version in versions] == expected
        assert [(version.id, version.rev, version.at) for version in versions] == [
            ("a", 1, 1_000),
            ("a", 2, 1_010),
            ("a", 3, 1_020),
            ("a", 4, 1_030),
        ]

    async def test_history_is_told_to_those_who_hold_the_entry(self, store: Store) -> None:
        """Another scope gets the same error as for an unknown id."""
        full = self.require(store, SupportsQuery)
        await write_entry(full, id="a")
        for scope, id in ((BOB, "a"), (ELSEWHERE, "a"), (ADA, "nobody's")):
            with pytest.raises(NotFound):
                await full.history(id, scope)

    async def test_an_earlier_moment_knows_what_was_not_yet_forgotten(self, store: Store) -> None:
        """A read as of an earlier time shows whether an entry was superseded then."""
        full = self.require(store, SupportsSupersede, SupportsGet, SupportsQuery)
        with clock.override(FrozenClock(1_000)) as time:
            await write_entry(full, id="a")
            time.advance(100)
            await full.supersede("a", ADA)
            time.advance(100)
            await full.reinstate("a", ADA)
            states = [(await full.get("a", ADA, as_of=at)).superseded_by for at in (1_000, 1_150, 1_200)]
            assert states == [None, "deleted", None]
            assert await query_ids(full, as_of=1_050) == ["a"]
            assert await query_ids(full, as_of=1_150) == []

    # Links

    async def store_with_links(self, store: Store) -> FullStore:
        """Return a store in which a refines b, and c contradicts a."""
        full = self.require(store, SupportsLinks)
        for name in "abc":
            await write_entry(full, id=name, session_id=f"s-{name}")
        with clock.override(FrozenClock(1_000)):
            await full.link(Link(source="a", relation="refines", target="b"), ADA)
            await full.link(Link(source="c", relation="contradicts", target="a"), ADA)
        return full

    async def test_links_are_found_from_both_ends(self, store: Store) -> None:
        """Oldest first, with the moment at which they were made."""
        full = await self.store_with_links(store)
        refines = Link(source="a", relation="refines", target="b", created_at=1_000)
        contradicts = Link(source="c", relation="contradicts", target="a", created_at=1_000)
        assert await full.links("a", ADA) == [refines, contradicts]
        assert await full.links("b", ADA) == [refines]
        assert await full.links("c", ADA) == [contradicts]

    async def test_links_can_be_asked_for_by_relation(self, store: Store) -> None:
        """Only links of that name are given."""
        full = await self.store_with_links(store)
        assert [link.target for link in await full.links("a", ADA, relation="refines")] == ["b"]
        assert await full.links("a", ADA, relation="confirms") == []

    async def test_the_same_link_is_kept_once(self, store: Store) -> None:
        """Linking again is answered with the link there is; the other direction is another link."""
        full = await self.store_with_links(store)
        again = await full.link(Link(source="a", relation="refines", target="b", created_at=9_000), ADA)
        assert again.created_at == 1_000
        assert len(await full.links("b", ADA)) == 1
        await full.link(Link(source="b", relation="refines", target="a"), ADA)
        assert len(await full.links("b", ADA)) == 2

    async def test_a_link_can_be_removed(self, store: Store) -> None:
        """It is gone from both ends; the second time there is nothing to remove."""
        full = await self.store_with_links(store)
        link_to_b = Link(source="a", relation="refines", target="b")
        assert await full.unlink(link_to_b, ADA) is True
        assert await full.unlink(link_to_b, ADA) is False
        assert [link.source for link in await full.links("a", ADA)] == ["c"]
        assert await full.links("b", ADA) == []

    async def test_both_ends_must_lie_in_the_scope(self, store: Store) -> None:
        """A link to an entry outside the scope is refused."""
        full = await self.store_with_links(store)
        await write_entry(full, id="bobs", agent_id="bob")
        await write_entry(full, id="far", namespace="elsewhere")
        for other in ("bobs", "far", "nobody's"):
            for source, target in (("a", other), (other, "a")):
                with pytest.raises(NotFound):
                    await full.link(Link(source=source, relation="refines", target=target), ADA)
        for scope in (BOB, ELSEWHERE, Scope(agent_id="ada", session_id="s-a")):
            with pytest.raises(NotFound):
                await full.link(Link(source="a", relation="confirms", target="b"), scope)
        assert len(await full.links("a", ADA)) == 2

    async def test_links_are_shown_as_far_as_the_scope_holds_them(self, store: Store) -> None:
        """A link whose other end is outside the scope is neither listed nor removable."""
        full = await self.store_with_links(store)
        assert await full.links("a", Scope(agent_id="ada", session_id="s-a")) == []
        for scope in (BOB, ELSEWHERE):
            with pytest.raises(NotFound):
                await full.links("a", scope)
        with pytest.raises(NotFound):
            await full.links("nobody's", ADA)

    # Erasure

    async def test_an_erased_entry_is_gone(self, store: Store) -> None:
        """Listing and recall no longer show it; the receipt says what was erased."""
        full = self.require(store, SupportsErase)
        await write_entry(full, "Tea.", id="a")
        await write_entry(full, "Coffee.", id="a")
        await write_entry(full, "Cocoa.", id="b")
        with clock.override(FrozenClock(7_000)):
            receipt = await full.erase(ADA, id="a", reason="asked to")
        assert (receipt.ids, receipt.versions, receipt.at, receipt.reason) == (("a",), 2, 7_000, "asked to")
        assert await list_ids(full) == ["b"]
        assert await recall_ids(full, "coffee") == ["b"]

    async def test_an_erased_entry_leaves_a_tombstone_without_content(self, store: Store) -> None:
        """Its history ends in a version that has the time and the reason and nothing else."""
        full = self.require(store, SupportsErase, SupportsQuery, SupportsGet)
        with clock.override(FrozenClock(1_000)) as time:
            await write_entry(full, "Tea.", id="a")
            time.advance(100)
            await full.erase(ADA, id="a", reason="asked to")
            versions = await full.history("a", ADA)
            assert [version.entry for version in versions] == [None]
            assert (versions[-1].id, versions[-1].at, versions[-1].reason) == ("a", 1_100, "asked to")
            with pytest.raises(NotFound):
                await full.get("a", ADA)
            with pytest.raises(Erased) as caught:
                await full.get("a", ADA, as_of=1_050)
            assert (caught.value.at, caught.value.reason) == (1_100, "asked to")
            assert await query_ids(full, as_of=1_050) == []

    async def test_a_tombstone_is_shown_to_those_whose_entry_it_was(self, store: Store) -> None:
        """Another scope gets "not found", and does not learn that something was erased."""
        full = self.require(store, SupportsErase, SupportsQuery, SupportsGet)
        with clock.override(FrozenClock(1_000)):
            await write_entry(full, id="a", session_id="s")
            await full.erase(ADA, id="a")
            for scope in (BOB, ELSEWHERE, Scope(agent_id="ada", session_id="t")):
                with pytest.raises(NotFound):
                    await full.history("a", scope)
                for moment in (None, 1_000):
                    with pytest.raises(NotFound) as caught:
                        await full.get("a", scope, as_of=moment)
                    assert not isinstance(caught.value, Erased)

    async def test_only_what_the_scope_holds_can_be_erased(self, store: Store) -> None:
        """Ids of another scope, and ids erased already, are not found."""
        full = self.require(store, SupportsErase)
        await write_entry(full, id="a")
        for scope, id in ((BOB, "a"), (ELSEWHERE, "a"), (ADA, "nobody's")):
            with pytest.raises(NotFound):
                await full.erase(scope, id=id)
        assert await list_ids(full) == ["a"]
        await full.erase(ADA, id="a")
        with pytest.raises(NotFound):
            await full.erase(ADA, id="a")

    async def test_several_entries_are_erased_at_once(self, store: Store) -> None:
        """One receipt names them all; nothing goes if one of them is not found."""
        full = self.require(store, SupportsErase)
        for id in ("a", "b", "c"):
            await write_entry(full, id=id, content=f"Memory {id}.")
        with pytest.raises(NotFound):
            await full.erase(ADA, id=["a", "nobody's", "b"])
        assert await list_ids(full) == ["a", "b", "c"]
        receipt = await full.erase(ADA, id=["c", "a", "c"], reason="asked to")
        assert (receipt.ids, receipt.versions, receipt.reason) == (("c", "a"), 2, "asked to")
        assert await list_ids(full) == ["b"]

    async def test_no_ids_are_not_the_whole_scope(self, store: Store) -> None:
        """An empty list is refused, as None means everything."""
        full = self.require(store, SupportsErase)
        await write_entry(full, id="a")
        with pytest.raises(Invalid, match="id is an empty list"):
            await full.erase(ADA, id=[])
        assert await list_ids(full) == ["a"]

    async def test_a_scope_can_be_erased_as_a_whole(self, store: Store) -> None:
        """A session, agent or namespace is erased, all else stays; an empty scope is no error."""
        full = self.require(store, SupportsErase)
        await write_entry(full, id="a", session_id="s")
        await write_entry(full, id="b", session_id="t")
        await write_entry(full, id="c", agent_id="bob", session_id="s")
        await write_entry(full, id="d", namespace="elsewhere", session_id="s")
        assert (await full.erase(Scope(agent_id="ada", session_id="s"))).ids == ("a",)
        assert await list_ids(full, Scope()) == ["b", "c"]
        assert (await full.erase(ADA)).ids == ("b",)
        assert (await full.erase(ADA)).ids == ()
        assert (await full.erase(Scope())).ids == ("c",)
        assert await list_ids(full, ELSEWHERE) == ["d"]

    async def test_an_erased_id_can_be_written_anew(self, store: Store) -> None:
        """Any agent of the namespace can reuse it, from revision one, with nothing of the erased entry."""
        full = self.require(store, SupportsErase, SupportsGet)
        await write_entry(full, "Tea.", id="a", idempotency_key="k")
        await write_entry(full, "Coffee.", id="a")
        await full.erase(ADA, id="a")
        rewritten = await write_entry(full, "Cocoa.", id="a", agent_id="bob", expected_rev=0)
        assert (rewritten.outcome, rewritten.rev) == ("stored", 1)
        assert await full.get("a", BOB) == rewritten.entry
        with pytest.raises(NotFound):
            await full.get("a", ADA)

    async def test_the_history_of_an_erased_id_goes_on(self, store: Store) -> None:
        """The tombstone stays in front of what was written after it."""
        full = self.require(store, SupportsErase, SupportsQuery)
        with clock.override(FrozenClock(1_000)) as time:
            await write_entry(full, "Tea.", id="a")
            time.advance(1)
            await full.erase(ADA, id="a")
            time.advance(1)
            rewritten = (await write_entry(full, "Cocoa.", id="a")).entry
            versions = await full.history("a", ADA)
        assert [version.entry for version in versions] == [None, rewritten]
        assert [version.at for version in versions] == [1_001, 1_002]

    async def test_links_and_uses_go_with_the_entry(self, store: Store) -> None:
        """Neither end knows the link any more, and an entry of the same id begins without them."""
        full = self.require(store, SupportsErase, SupportsLinks, SupportsAccess)
        for name in "ab":
            await write_entry(full, id=name)
        await full.link(Link(source="a", relation="refines", target="b"), ADA)
        await full.record_access(["a"], ADA)
        assert (await full.erase(ADA, id="a")).links == 1
        assert await full.links("b", ADA) == []
        await write_entry(full, id="a")
        assert await full.links("a", ADA) == []
        assert await full.access("a", ADA) == Access()

    async def test_a_successor_that_is_erased_does_not_bring_back_the_old(self, store: Store) -> None:
        """What was superseded stays superseded."""
        full = self.require(store, SupportsErase)
        await write_entry(full, "Tea.", id="old")
        await write_entry(full, "Coffee.", id="new", supersedes="old")
        await full.erase(ADA, id="new")
        assert await recall_ids(full) == []
        assert await list_ids(full) == ["old"]

    async def test_a_repeated_request_does_not_bring_back_what_was_erased(self, store: Store) -> None:
        """Its receipt went with the entry: the same key gives no content that is gone."""
        full = self.require(store, SupportsErase)
        await write_entry(full, "Tea.", id="a", idempotency_key="k")
        await full.erase(ADA, id="a")
        again = await write_entry(full, "Tea.", id="a", idempotency_key="k")
        assert (again.outcome, again.rev) == ("stored", 1)
        assert await list_ids(full) == ["a"]

    async def test_documents_go_with_the_scope(self, store: Store) -> None:
        """Erasing a session, agent or namespace removes its documents; erasing one entry does not."""
        full = self.require(store, SupportsErase, SupportsDocuments)
        await full.save(Document(kind="session", id="d", agent_id="ada", session_id="s", body="Tea."))
        await full.save(Document(kind="session", id="e", agent_id="bob", body="Coffee."))
        await write_entry(full, id="a", session_id="s")
        assert (await full.erase(ADA, id="a")).documents == 0
        assert (await full.erase(Scope(agent_id="ada", session_id="s"))).documents == 1
        assert await full.load("session", "d", ADA) is None
        assert await full.load("session", "e", BOB) is not None

    async def test_leases_go_with_the_scope(self, store: Store) -> None:
        """The lease of an erased document does not block the next document with its id."""
        full = self.require(store, SupportsErase, SupportsDocuments, SupportsLeases)
        session = Scope(agent_id="ada", session_id="s")
        for scope in (session, ADA, Scope()):
            await full.save(Document(kind="session", id="d", agent_id="ada", session_id="s"))
            await full.save(Document(kind="session", id="e", agent_id="ada", namespace="elsewhere"))
            lease = await full.claim("session", "d", ADA, owner="w1", ttl_ms=60_000)
            assert lease is not None
            assert lease.token == 1
            await full.claim("session", "e", ELSEWHERE, owner="w1", ttl_ms=60_000)
            await full.erase(scope)
            again = await full.claim("session", "d", ADA, owner="w2", ttl_ms=60_000)
            assert again is not None
            assert await full.claim("session", "e", ELSEWHERE, owner="w2", ttl_ms=60_000) is None
            await full.save(Document(kind="session", id="d", agent_id="ada", session_id="s"))
            await full.erase(scope)

    async def test_a_namespace_goes_with_all_its_leases(self, store: Store) -> None:
        """Also with those of documents that were claimed and never saved."""
        full = self.require(store, SupportsErase, SupportsLeases)
        await full.claim("session", "d", ADA, owner="w1", ttl_ms=60_000)
        await full.erase(Scope())
        assert await full.claim("session", "d", ADA, owner="w2", ttl_ms=60_000) is not None

    async def test_an_erasure_names_the_transcripts_that_may_hold_it(self, store: Store) -> None:
        """The threads of all its versions, and those that its evidence refers to."""
        full = self.require(store, SupportsErase)
        await write_entry(full, "Tea.", id="a", message={"thread": "t0", "seq": 1})
        evidence = [{"kind": "message", "ref": ref} for ref in ("t1:4", "t2", "a:b:12", "t1:5", "t3:x")] + [
            {"kind": "document", "ref": "t9:1"},
            {"kind": "entry", "ref": "t8:1"},
        ]
        await write_entry(full, "Coffee.", id="a", message={"thread": "t1", "seq": 2}, evidence=evidence)
        await write_entry(full, "Coffee.", id="b", message={"thread": "t7", "seq": 2})
        await write_entry(full, "Cocoa.", id="c")
        transcripts = [line for line in (await full.erase(ADA, id="a")).unreachable if "transcript" in line]
        assert transcripts == [f"transcript {thread}" for thread in ("t0", "t1", "t2", "a:b", "t3:x")]
        assert not any("transcript" in line for line in (await full.erase(ADA, id="c")).unreachable)

    async def test_a_transcript_that_is_erased_as_well_is_not_named(self, store: Store) -> None:
        """Erasing a session with its thread leaves no transcript to report."""
        full = self.require(store, SupportsErase, SupportsDocuments)

        async def erase_and_report(scope: Scope, id: str | None = None) -> list[str]:
            for name, thread in (("a", "mine"), ("b", "bob's"), ("c", "absent"), ("d", "mine")):
                where = {"session_id": "s", "project_id": "p"}
                await write_entry(full, id=name, message={"thread": thread, "seq": 1}, **where)
            await full.save(Document(kind="thread", id="mine", agent_id="ada", session_id="s"))
            await full.save(Document(kind="thread", id="bob's", agent_id="bob"))
            await full.save(Document(kind="session", id="absent", agent_id="ada", session_id="s"))
            receipt = await full.erase(scope, id=id)
            return [line for line in receipt.unreachable if line.startswith("transcript")]

        assert await erase_and_report(ADA, id="a") == ["transcript mine"]
        assert await erase_and_report(Scope(agent_id="ada", session_id="s")) == [
            "transcript bob's",
            "transcript absent",
        ]
        assert await erase_and_report(ADA) == ["transcript bob's", "transcript absent"]
        assert await erase_and_report(Scope(project_id="p")) == [
            "transcript mine", "transcript bob's", "transcript absent",
        ]  # fmt: skip
        assert await erase_and_report(Scope()) == ["transcript absent"]

    async def test_a_user_is_erased_with_all_documents(self, store: Store) -> None:
        """Entries of every agent and session go, and no entry or document of another user or of none."""
        full = self.require(store, SupportsErase, SupportsDocuments, SupportsGet)
        for user in ("ann", "bob", None):
            for agent in ("ada", "eve"):
                name = f"{user}-{agent}"
                await write_entry(full, id=name, user_id=user, agent_id=agent, session_id=name)
                document = Document(kind="session", id=name, user_id=user, agent_id=agent, session_id=name)
                await full.save(document)
        receipt = await full.erase(Scope(user_id="ann"), reason="asked to")
        assert (sorted(receipt.ids), receipt.documents) == (["ann-ada", "ann-eve"], 2)
        left = ["None-ada", "None-eve", "bob-ada", "bob-eve"]
        assert sorted(await list_ids(full, Scope())) == left
        assert [document.id for document in await full.documents("session", Scope())] == left
        bobs = await full.documents("session", Scope(user_id="bob"))
        assert [(document.id, document.user_id) for document in bobs] == [
            ("bob-ada", "bob"),
            ("bob-eve", "bob"),
        ]
        assert await full.load("session", "bob-ada", Scope(user_id="ann")) is None
        with pytest.raises(Erased):
            await full.get("ann-ada", Scope(user_id="ann"), as_of=clock.now())
        with pytest.raises(NotFound):
            await full.get("ann-ada", Scope(user_id="bob"), as_of=clock.now())
        with pytest.raises(IdTaken):
            await full.save(Document(kind="session", id="bob-ada", user_id="ann", agent_id="ada"))

    async def test_the_feed_tells_of_an_erasure_and_keeps_no_content(self, store: Store) -> None:
        """The earlier changes stay listed, and the erasure is the last one."""
        full = self.require(store, SupportsErase, SupportsFeed)
        await write_entry(full, "Tea.", id="a")
        await full.erase(ADA, id="a")
        assert [(change.id, change.op) for change in await full.changes("default")][-1] == ("a", "erase")

    async def test_scrubbing_is_always_possible(self, store: Store) -> None:
        """It says whether anything is left to do, and touches nothing that was not erased."""
        full = self.require(store, SupportsErase)
        await write_entry(full, id="a")
        await write_entry(full, id="b")
        await full.erase(ADA, id="a")
        receipt = await full.scrub()
        assert receipt.scrubbed is (receipt.pending == ())
        assert await list_ids(full) == ["b"]
