"""Conformance tests of users: what one has, no other one sees, changes, repeats or erases."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest

from omoide import clock
from omoide.core.entry import Entry, Scope
from omoide.errors import Erased, IdTaken, Invalid, KeyReused, NotFound
from omoide.stores.protocols import (
    Store,
    SupportsAccess,
    SupportsBatchWrite,
    SupportsDocuments,
    SupportsErase,
    SupportsFeed,
    SupportsGet,
    SupportsImport,
    SupportsLeases,
    SupportsLinks,
    SupportsQuery,
    SupportsSupersede,
)
from omoide.stores.records import Document, Link
from omoide.testing.store_suite.base import (
    FullStore,
    StoreFixtures,
    list_ids,
    make_entry,
    query_ids,
    recall_ids,
    write_entry,
    write_request,
)

ANN = Scope(user_id="ann")
BEN = Scope(user_id="ben")
EVERYBODY = Scope()
USERS = ("ann", "ben", None)
EVERYTHING = {"include_superseded": True, "include_stale": True, "include_expired": True}


async def write_for_each(store: Store, content: str = "Likes tea.", **fields: Any) -> dict[str | None, Entry]:
    """Write the same entry for two users and for none; return the entries by user."""
    entries = {}
    for user in USERS:
        receipt = await write_entry(store, content, **{"id": f"of-{user}", "user_id": user, **fields})
        entries[user] = receipt.entry
    return entries


class UserSuite(StoreFixtures):
    """Users of one namespace, whose memories, sessions and receipts are their own."""

    # Writes

    async def test_the_same_sentence_of_two_users_is_two_entries(self, store: Store) -> None:
        """Each is a duplicate for its own user only; what belongs to no user is a third one."""
        first = await write_for_each(store)
        assert await list_ids(store, EVERYBODY) == ["of-ann", "of-ben", "of-None"]
        for user, entry in first.items():
            again = await write_entry(store, "Likes tea.", id=f"again-{user}", user_id=user, dedupe=True)
            assert (again.outcome, again.entry) == ("duplicate_of", entry)

    async def test_the_same_key_of_two_users_is_two_receipts(self, store: Store) -> None:
        """Each repeats its own request, and neither meets the payload of the other."""
        first = await write_for_each(store, idempotency_key="request-1")
        for user, entry in first.items():
            own = {"id": f"of-{user}", "user_id": user, "idempotency_key": "request-1"}
            assert (await write_entry(store, "Likes tea.", **own)).entry == entry
            with pytest.raises(KeyReused):
                await write_entry(store, "Likes coffee.", **own)
        assert len(await store.list_entries(EVERYBODY)) == 3

    async def test_a_batch_keeps_users_apart(self, store: Store) -> None:
        """The same sentence, slot and key of three owners in one batch are three entries and receipts."""
        full = self.require(store, SupportsBatchWrite)
        requests = [
            write_request(
                "Berlin.", id=f"of-{user}", user_id=user, key="city", idempotency_key="k", dedupe=True
            )
            for user in USERS
        ]
        receipts = await full.write_many(requests)
        assert [(one.outcome, one.entry.user_id) for one in receipts] == [("stored", user) for user in USERS]
        assert {entry.superseded_by for entry in await full.list_entries(EVERYBODY)} == {None}
        assert await full.write_many(requests) == receipts

    async def test_a_slot_holds_a_value_for_each_user(self, store: Store) -> None:
        """The next value, an expected revision, forgetting and restoring concern one user."""
        full = self.require(store, SupportsSupersede)
        await write_for_each(full, "Berlin.", key="city")
        receipt = await write_entry(full, "Paris.", id="p", key="city", user_id="ann", expected_rev=1)
        assert receipt.metadata["superseded"] == "of-ann"
        await full.supersede("of-ben", BEN)
        assert (await write_entry(full, "Oslo.", id="o", key="city", user_id="ben")).rev == 1
        await full.reinstate("of-ann", ANN)
        live = {
            entry.user_id: entry.content
            for entry in await full.list_entries(EVERYBODY)
            if not entry.superseded_by
        }
        assert live == {"ann": "Berlin.", "ben": "Oslo.", None: "Berlin."}

    async def test_a_write_supersedes_nothing_of_another_user(self, store: Store) -> None:
        """Nor of none, nor the other way round: who reads as the one would lose it, and see no successor."""
        old = await write_for_each(store)
        for user, other in permutations(USERS, 2):
            with pytest.raises((NotFound, Invalid)):
                await write_entry(store, "New.", id="new", user_id=user, supersedes=f"of-{other}")
        assert await store.list_entries(EVERYBODY) == [*old.values()]
        for user in USERS:
            own = {"id": f"new-{user}", "user_id": user, "supersedes": f"of-{user}"}
            assert (await write_entry(store, "New.", **own)).outcome == "superseded"

    async def test_a_successor_is_of_the_same_user(self, store: Store) -> None:
        """Also where the caller sees both."""
        full = self.require(store, SupportsSupersede)
        before = await write_for_each(full)
        for old, new in permutations(USERS, 2):
            for scope in (EVERYBODY, Scope(agent_id="ada"), Scope(user_id=old)):
                with pytest.raises((NotFound, Invalid)):
                    await full.supersede(f"of-{old}", scope, by=f"of-{new}")
        assert await full.list_entries(EVERYBODY) == [*before.values()]

    # Reads

    async def test_a_user_reads_what_is_theirs(self, store: Store) -> None:
        """Listed and recalled; neither what another user has, nor what belongs to none."""
        await write_for_each(store)
        for user in ("ann", "ben"):
            for scope in (Scope(user_id=user), Scope(user_id=user, agent_id="ada")):
                assert await list_ids(store, scope) == [f"of-{user}"]
            assert await recall_ids(store, "tea", user_id=user) == [f"of-{user}"]
            assert await recall_ids(store, "tea", scope="user", user_id=user) == [f"of-{user}"]
        assert len(await list_ids(store, EVERYBODY)) == 3

    async def test_what_belongs_to_no_user_is_not_seen_by_a_read_that_names_one(self, store: Store) -> None:
        """By no operation, with or without its id; a read that names no user sees all."""
        full = self.require(
            store, SupportsGet, SupportsQuery, SupportsLinks, SupportsAccess, SupportsFeed, SupportsSupersede
        )
        shared = (await write_for_each(full))[None]
        await write_entry(full, "Likes tea with milk.", id="shared-2")
        await full.link(Link(source="of-None", relation="refines", target="shared-2"), EVERYBODY)
        for scope in (ANN, Scope(user_id="ann", agent_id="ada")):
            assert await list_ids(full, scope) == ["of-ann"]
            assert await query_ids(full, scope, filter=EVERYTHING) == ["of-ann"]
            assert await query_ids(full, scope, as_of=clock.now()) == ["of-ann"]
            assert [change.id for change in await full.changes("default", scope=scope)] == ["of-ann"]
            assert (await full.stats(scope)).entries == 1
            await full.record_access(["of-None"], scope)
            for call in (full.get, full.history, full.links, full.access, full.supersede, full.reinstate):
                with pytest.raises(NotFound):
                    await call("of-None", scope)
        assert await recall_ids(full, "tea", user_id="ann", filter=EVERYTHING) == ["of-ann"]
        assert await recall_ids(full, "tea", scope="user", user_id="ann") == ["of-ann"]
        assert (await full.access("of-None", EVERYBODY)).count == 0
        assert await full.get("of-None", EVERYBODY) == shared
        assert len(await full.list_entries(EVERYBODY)) == 4

    async def test_links_lead_to_nothing_of_another_user(self, store: Store) -> None:
        """Where a namespace-wide caller linked two users' entries, neither sees the other end."""
        full = self.require(store, SupportsLinks)
        await write_for_each(full)
        link = Link(source="of-ann", relation="refines", target="of-ben")
        with pytest.raises(NotFound):
            await full.link(link, ANN)
        stored = await full.link(link, EVERYBODY)
        assert await full.links("of-ann", ANN) == await full.links("of-ben", BEN) == []
        assert await full.links("of-ann", EVERYBODY) == [stored]
        with pytest.raises(NotFound):
            await full.unlink(link, ANN)

    # Documents

    async def test_the_documents_of_a_user_are_their_own(self, store: Store) -> None:
        """Neither another user nor a caller for one can load, list, change or lease them."""
        full = self.require(store, SupportsDocuments, SupportsLeases)
        for user in USERS:
            await full.save(
                Document(kind="session", id=f"of-{user}", agent_id="ada", user_id=user, body=user)
            )
        for id in ("of-ben", "of-None"):
            assert await full.load("session", id, ANN) is None
            with pytest.raises(NotFound):
                await full.append("session", id, ["x"], ANN)
            with pytest.raises(NotFound):
                await full.claim("session", id, ANN, owner="w", ttl_ms=60_000)
            with pytest.raises(IdTaken):
                await full.save(Document(kind="session", id=id, agent_id="ada", user_id="ann", body="mine"))
        assert [one.id for one in await full.documents("session", ANN)] == ["of-ann"]
        assert await full.append("session", "of-ann", ["x"], ANN) == 2
        for user in USERS:
            found = await full.load("session", f"of-{user}", EVERYBODY)
            assert found is not None
            assert (found.user_id, found.body) == (user, user)

    # Exchange

    async def test_users_come_along_when_entries_are_imported(self, store: Store) -> None:
        """With a slot for each, and the feed names whose each entry is."""
        full = self.require(store, SupportsImport, SupportsFeed)
        entries = [make_entry("Rome.", id=f"in-{user}", user_id=user, key="city", rev=3) for user in USERS]
        assert await full.import_entries(entries) == 3
        feed = await full.change_feed("default")
        assert {entry.id: entry.user_id for entry in feed.entries} == {
            "in-ann": "ann", "in-ben": "ben", "in-None": None,
        }  # fmt: skip
        assert {entry.superseded_by for entry in feed.entries} == {None}
        with pytest.raises(IdTaken):
            await full.import_entries([entries[0].replace(user_id="ben")])

    # Erasing

    async def test_erasing_a_user_takes_everything_with_one_receipt(self, store: Store) -> None:
        """Of all agents, sessions and projects, in every state; others keep theirs, byte by byte."""
        full = self.require(
            store, SupportsErase, SupportsGet, SupportsSupersede, SupportsLinks, SupportsDocuments,
            SupportsLeases, SupportsAccess,
        )  # fmt: skip
        await fill_for_each(full)
        kept = [entry for entry in await full.list_entries(EVERYBODY) if entry.user_id != "ann"]
        own = await list_ids(full, ANN)
        receipt = await full.erase(ANN, reason="asked to")
        assert sorted(receipt.ids) == sorted(own)
        assert (len(own), receipt.versions, receipt.links, receipt.documents) == (5, 7, 2, 2)
        assert receipt.reason == "asked to"
        assert await full.list_entries(ANN) == []
        assert await full.documents("session", ANN) == []
        assert await full.list_entries(EVERYBODY) == kept
        assert [one.id for one in await full.documents("session", EVERYBODY)] == ["s-None", "s-ben"]
        assert [one.id for one in await full.documents("thread", EVERYBODY)] == ["t-None", "t-ben"]
        with pytest.raises(Erased, match="asked to"):
            await full.get("first-ann", ANN, as_of=clock.now())
        for scope in (BEN, Scope(user_id="ann", agent_id="bob")):
            with pytest.raises(NotFound):
                await full.get("first-ann", scope, as_of=clock.now())
        again = await full.erase(ANN)
        assert (again.ids, again.documents) == ((), 0)
        assert again.unreachable  # backups and exports may still have it

    async def test_nothing_of_another_user_is_erased_by_its_id(self, store: Store) -> None:
        """Alone or among ids of one's own, it is not found, and nothing is erased."""
        full = self.require(store, SupportsErase)
        before = await write_for_each(full)
        for ids in ("of-ben", "of-None", ["of-ann", "of-ben"]):
            with pytest.raises(NotFound):
                await full.erase(ANN, id=ids)
        assert await full.list_entries(EVERYBODY) == [*before.values()]

    async def test_what_an_erased_user_left_behind_blocks_nothing(self, store: Store) -> None:
        """No receipt, slot, lease or id of theirs answers or refuses what is written next."""
        full = self.require(
            store, SupportsErase, SupportsSupersede, SupportsLinks, SupportsDocuments, SupportsLeases,
            SupportsAccess,
        )  # fmt: skip
        await fill_for_each(full)
        await full.erase(ANN)
        request = {"id": "first-ann", "user_id": "ann", "idempotency_key": "k"}
        assert (await write_entry(full, "Anything else.", **request)).rev == 1
        assert (await write_entry(full, "Home.", id="h", user_id="ann", key="city")).rev == 1
        assert (await full.access("first-ann", ANN)).count == 0
        assert await full.links("first-ann", EVERYBODY) == []
        document = await full.save(Document(kind="session", id="s-ann", user_id="ben", agent_id="ada"))
        assert document.rev == 1
        assert await full.claim("session", "s-ann", BEN, owner="other", ttl_ms=60_000) is not None
        with pytest.raises(KeyReused):
            await write_entry(full, "Another.", id="x", user_id="ben", idempotency_key="k")


async def fill_for_each(full: FullStore) -> None:
    """Write entries of several agents and in all states, links and documents, for two users and for none."""
    for user in USERS:
        names = {name: f"{name}-{user}" for name in ("first", "second", "value", "next", "rest")}
        own = {"user_id": user}
        await write_entry(full, id=names["first"], idempotency_key="k", session_id=f"s-{user}", **own)
        await write_entry(full, "Changed.", id=names["second"], agent_id="bob", project_id="p", **own)
        await write_entry(full, "Changed again.", id=names["second"], agent_id="bob", project_id="p", **own)
        await write_entry(full, "Berlin.", id=names["value"], key="city", **own)
        await write_entry(full, "Paris.", id=names["next"], key="city", **own)
        evidence = [{"kind": "entry", "ref": names["value"]}]
        await write_entry(full, "Speaks German.", id=names["rest"], evidence=evidence, expires_at=1, **own)
        await full.link(Link(source=names["first"], relation="refines", target=names["next"]), EVERYBODY)
        await full.link(Link(source=names["rest"], relation="refines", target=names["second"]), EVERYBODY)
        await full.record_access([names["first"]], EVERYBODY)
        for kind, letter in (("session", "s"), ("thread", "t")):
            name = f"{letter}-{user}"
            await full.save(Document(kind=kind, id=name, user_id=user, agent_id="ada", body="Said."))
        await full.claim("session", f"s-{user}", EVERYBODY, owner="w", ttl_ms=60_000)
