"""Is what was erased gone from everything a store can be asked?"""

from __future__ import annotations

import pytest

from omoide import clock
from omoide.core.scope import Scope
from omoide.errors import Erased, NotFound
from omoide.stores.protocols import (
    Claims,
    Documents,
    Erases,
    Feeds,
    Gets,
    KeepsHistory,
    Links,
    Queries,
    RecordsAccess,
    Store,
)
from omoide.stores.records import Access, Document, Link
from omoide.testing import FrozenClock
from omoide.testing.suite.offered import ADA, BOB, ELSEWHERE, Offered, found, keep, listed, recall


class Erasing(Offered):
    """Erasing."""

    async def test_an_erased_entry_is_gone(self, store: Store) -> None:
        """Listing and recalling do not see it any more; the receipt says what went."""
        full = self.offering(store, Erases)
        await keep(full, "Tea.", id="a")
        await keep(full, "Coffee.", id="a")
        await keep(full, "Cocoa.", id="b")
        with clock.using(FrozenClock(7_000)):
            receipt = await full.erase(ADA, id="a", reason="asked to")
        assert (receipt.ids, receipt.versions, receipt.at, receipt.reason) == (("a",), 2, 7_000, "asked to")
        assert await listed(full) == ["b"]
        assert await recall(full, "coffee") == ["b"]

    async def test_an_erased_entry_leaves_a_tombstone_without_content(self, store: Store) -> None:
        """Its history ends in a version that has the time and the reason and nothing else."""
        full = self.offering(store, Erases, KeepsHistory, Gets, Queries)
        with clock.using(FrozenClock(1_000)) as time:
            await keep(full, "Tea.", id="a")
            time.advance(100)
            await full.erase(ADA, id="a", reason="asked to")
            told = await full.history("a", ADA)
            assert [version.entry for version in told] == [None]
            assert (told[-1].id, told[-1].at, told[-1].reason) == ("a", 1_100, "asked to")
            with pytest.raises(NotFound):
                await full.get("a", ADA)
            with pytest.raises(Erased) as caught:
                await full.get("a", ADA, as_of=1_050)
            assert (caught.value.at, caught.value.reason) == (1_100, "asked to")
            assert await found(full, as_of=1_050) == []

    async def test_a_tombstone_is_shown_to_those_whose_entry_it_was(self, store: Store) -> None:
        """Another scope hears that there is nothing, and not that something was erased."""
        full = self.offering(store, Erases, KeepsHistory, Gets)
        with clock.using(FrozenClock(1_000)):
            await keep(full, id="a", session_id="s")
            await full.erase(ADA, id="a")
            for scope in (BOB, ELSEWHERE, Scope(agent_id="ada", session_id="t")):
                with pytest.raises(NotFound):
                    await full.history("a", scope)
                for moment in (None, 1_000):
                    with pytest.raises(NotFound) as caught:
                        await full.get("a", scope, as_of=moment)
                    assert not isinstance(caught.value, Erased)

    async def test_only_what_the_scope_holds_can_be_erased(self, store: Store) -> None:
        """Ids from elsewhere, and ids that are gone already, are not found."""
        full = self.offering(store, Erases)
        await keep(full, id="a")
        for scope, id in ((BOB, "a"), (ELSEWHERE, "a"), (ADA, "nobody's")):
            with pytest.raises(NotFound):
                await full.erase(scope, id=id)
        assert await listed(full) == ["a"]
        await full.erase(ADA, id="a")
        with pytest.raises(NotFound):
            await full.erase(ADA, id="a")

    async def test_a_scope_can_be_erased_as_a_whole(self, store: Store) -> None:
        """Session, agent or namespace: what lies inside goes, all else stays; nothing inside is fine."""
        full = self.offering(store, Erases)
        await keep(full, id="a", session_id="s")
        await keep(full, id="b", session_id="t")
        await keep(full, id="c", agent_id="bob", session_id="s")
        await keep(full, id="d", namespace="elsewhere", session_id="s")
        assert (await full.erase(Scope(agent_id="ada", session_id="s"))).ids == ("a",)
        assert await listed(full, Scope()) == ["b", "c"]
        assert (await full.erase(ADA)).ids == ("b",)
        assert (await full.erase(ADA)).ids == ()
        assert (await full.erase(Scope())).ids == ("c",)
        assert await listed(full, ELSEWHERE) == ["d"]

    async def test_an_erased_id_can_be_written_anew(self, store: Store) -> None:
        """By anybody in the namespace, from revision one; it has nothing of the one before."""
        full = self.offering(store, Erases, Gets)
        await keep(full, "Tea.", id="a", idempotency_key="k")
        await keep(full, "Coffee.", id="a")
        await full.erase(ADA, id="a")
        anew = await keep(full, "Cocoa.", id="a", agent_id="bob", expected_rev=0)
        assert (anew.outcome, anew.rev) == ("stored", 1)
        assert await full.get("a", BOB) == anew.entry
        with pytest.raises(NotFound):
            await full.get("a", ADA)

    async def test_the_history_of_an_erased_id_goes_on(self, store: Store) -> None:
        """The tombstone stays in front of what was written after it."""
        full = self.offering(store, Erases, KeepsHistory)
        with clock.using(FrozenClock(1_000)) as time:
            await keep(full, "Tea.", id="a")
            time.advance(1)
            await full.erase(ADA, id="a")
            time.advance(1)
            anew = (await keep(full, "Cocoa.", id="a")).entry
            told = await full.history("a", ADA)
        assert [version.entry for version in told] == [None, anew]
        assert [version.at for version in told] == [1_001, 1_002]

    async def test_links_and_uses_go_with_the_entry(self, store: Store) -> None:
        """Neither end knows the link any more, and an entry of the same id begins without them."""
        full = self.offering(store, Erases, Links, RecordsAccess)
        for name in "ab":
            await keep(full, id=name)
        await full.link(Link(source="a", relation="refines", target="b"), ADA)
        await full.record_access(["a"], ADA)
        assert (await full.erase(ADA, id="a")).links == 1
        assert await full.links("b", ADA) == []
        await keep(full, id="a")
        assert await full.links("a", ADA) == []
        assert await full.access("a", ADA) == Access()

    async def test_a_successor_that_is_erased_does_not_bring_back_the_old(self, store: Store) -> None:
        """What was superseded stays superseded."""
        full = self.offering(store, Erases)
        await keep(full, "Tea.", id="old")
        await keep(full, "Coffee.", id="new", supersedes="old")
        await full.erase(ADA, id="new")
        assert await recall(full) == []
        assert await listed(full) == ["old"]

    async def test_a_repeated_request_does_not_bring_back_what_was_erased(self, store: Store) -> None:
        """Its receipt went with the entry: the same key gives no content that is gone."""
        full = self.offering(store, Erases)
        await keep(full, "Tea.", id="a", idempotency_key="k")
        await full.erase(ADA, id="a")
        again = await keep(full, "Tea.", id="a", idempotency_key="k")
        assert (again.outcome, again.rev) == ("stored", 1)
        assert await listed(full) == ["a"]

    async def test_documents_go_with_the_scope(self, store: Store) -> None:
        """Erasing a session, agent or namespace removes its documents; erasing one entry does not."""
        full = self.offering(store, Erases, Documents)
        await full.save(Document(kind="session", id="d", agent_id="ada", session_id="s", body="Tea."))
        await full.save(Document(kind="session", id="e", agent_id="bob", body="Coffee."))
        await keep(full, id="a", session_id="s")
        assert (await full.erase(ADA, id="a")).documents == 0
        assert (await full.erase(Scope(agent_id="ada", session_id="s"))).documents == 1
        assert await full.load("session", "d", ADA) is None
        assert await full.load("session", "e", BOB) is not None

    async def test_leases_go_with_the_scope(self, store: Store) -> None:
        """Who held a document that is gone does not stand in the way of the next of its id."""
        full = self.offering(store, Erases, Documents, Claims)
        session = Scope(agent_id="ada", session_id="s")
        for scope in (session, ADA, Scope()):
            await full.save(Document(kind="session", id="d", agent_id="ada", session_id="s"))
            await full.save(Document(kind="session", id="e", agent_id="ada", namespace="elsewhere"))
            held = await full.claim("session", "d", ADA, owner="w1", ttl_ms=60_000)
            assert held is not None
            assert held.token == 1
            await full.claim("session", "e", ELSEWHERE, owner="w1", ttl_ms=60_000)
            await full.erase(scope)
            again = await full.claim("session", "d", ADA, owner="w2", ttl_ms=60_000)
            assert again is not None
            assert await full.claim("session", "e", ELSEWHERE, owner="w2", ttl_ms=60_000) is None
            await full.save(Document(kind="session", id="d", agent_id="ada", session_id="s"))
            await full.erase(scope)

    async def test_a_namespace_goes_with_all_its_leases(self, store: Store) -> None:
        """Also with those of documents that were claimed and never saved."""
        full = self.offering(store, Erases, Claims)
        await full.claim("session", "d", ADA, owner="w1", ttl_ms=60_000)
        await full.erase(Scope())
        assert await full.claim("session", "d", ADA, owner="w2", ttl_ms=60_000) is not None

    async def test_an_erasure_names_the_transcripts_that_may_hold_it(self, store: Store) -> None:
        """The threads it was said in, in any of its versions, and those that its evidence points to."""
        full = self.offering(store, Erases)
        await keep(full, "Tea.", id="a", message={"thread": "t0", "seq": 1})
        evidence = [{"kind": "message", "ref": ref} for ref in ("t1:4", "t2", "a:b:12", "t1:5", "t3:x")] + [
            {"kind": "document", "ref": "t9:1"},
            {"kind": "entry", "ref": "t8:1"},
        ]
        await keep(full, "Coffee.", id="a", message={"thread": "t1", "seq": 2}, evidence=evidence)
        await keep(full, "Coffee.", id="b", message={"thread": "t7", "seq": 2})
        await keep(full, "Cocoa.", id="c")
        told = [line for line in (await full.erase(ADA, id="a")).unreachable if "transcript" in line]
        assert told == [f"transcript {thread}" for thread in ("t0", "t1", "t2", "a:b", "t3:x")]
        assert not any("transcript" in line for line in (await full.erase(ADA, id="c")).unreachable)

    async def test_a_transcript_that_is_erased_as_well_is_not_named(self, store: Store) -> None:
        """Whoever erases a session with its thread has nothing left to look after there."""
        full = self.offering(store, Erases, Documents)

        async def left(scope: Scope, id: str | None = None) -> list[str]:
            for name, thread in (("a", "mine"), ("b", "bob's"), ("c", "absent"), ("d", "mine")):
                where = {"session_id": "s", "project_id": "p"}
                await keep(full, id=name, message={"thread": thread, "seq": 1}, **where)
            await full.save(Document(kind="thread", id="mine", agent_id="ada", session_id="s"))
            await full.save(Document(kind="thread", id="bob's", agent_id="bob"))
            await full.save(Document(kind="session", id="absent", agent_id="ada", session_id="s"))
            receipt = await full.erase(scope, id=id)
            return [line for line in receipt.unreachable if line.startswith("transcript")]

        assert await left(ADA, id="a") == ["transcript mine"]
        assert await left(Scope(agent_id="ada", session_id="s")) == ["transcript bob's", "transcript absent"]
        assert await left(ADA) == ["transcript bob's", "transcript absent"]
        assert await left(Scope(project_id="p")) == [
            "transcript mine", "transcript bob's", "transcript absent",
        ]  # fmt: skip
        assert await left(Scope()) == ["transcript absent"]

    async def test_the_feed_tells_of_an_erasure_and_keeps_no_content(self, store: Store) -> None:
        """The changes before it stay told, the erasure is the last."""
        full = self.offering(store, Erases, Feeds)
        await keep(full, "Tea.", id="a")
        await full.erase(ADA, id="a")
        assert [(change.id, change.op) for change in await full.changes("default")][-1] == ("a", "erase")

    async def test_scrubbing_is_always_possible(self, store: Store) -> None:
        """It says whether anything is left to do, and touches nothing that was not erased."""
        full = self.offering(store, Erases)
        await keep(full, id="a")
        await keep(full, id="b")
        await full.erase(ADA, id="a")
        receipt = await full.scrub()
        assert receipt.scrubbed is (receipt.pending == ())
        assert await listed(full) == ["b"]
