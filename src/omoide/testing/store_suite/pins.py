"""Conformance tests of pinned memories: which are listed, for whom, and what takes them away."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from omoide.core.entry import Scope
from omoide.errors import Invalid, NotFound
from omoide.stores.protocols import Store, SupportsDocuments, SupportsErase, SupportsGet, SupportsSupersede
from omoide.stores.records import PINS_KIND
from omoide.testing.store_suite.base import ADA, BOB, FullStore, StoreFixtures, write_entry
from omoide.verbs import MAX_PINS, erase_user, pin, pinned, unpin

ANN = Scope(agent_id="ada", user_id="ann")
BEN = Scope(agent_id="ada", user_id="ben")


async def write_pinned(full: FullStore, content: str, scope: Scope = ADA, **fields: Any) -> str:
    """Write an entry in a scope, pin it and return its id."""
    owner = {"namespace": scope.namespace, "agent_id": scope.agent_id, "user_id": scope.user_id}
    receipt = await write_entry(full, content, **owner, **fields)
    await pin(full, receipt.entry.id, scope)
    return receipt.entry.id


async def list_pinned(full: FullStore, scope: Scope = ADA) -> list[str]:
    """Return what the pinned entries of a scope say, in their order."""
    return [entry.content for entry in await pinned(full, scope)]


class PinSuite(StoreFixtures):
    """Pinned memories, of which the store keeps a document for each agent and user."""

    async def test_pinned_memories_are_listed_in_the_order_of_pinning(self, store: Store) -> None:
        """Until they are unpinned; doing either again changes nothing, and the entries stay stored."""
        full = self.require(store, SupportsGet, SupportsDocuments)
        assert await list_pinned(full) == []
        ids = [(await write_entry(full, content)).entry.id for content in ("First.", "Second.", "Third.")]
        for id in (ids[2], ids[0], ids[1], ids[2]):
            assert (await pin(full, id, ADA)).id == id
        assert await list_pinned(full) == ["Third.", "First.", "Second."]
        for _ in range(2):
            assert (await unpin(full, ids[0], ADA)).id == ids[0]
        assert await list_pinned(full) == ["Third.", "Second."]
        assert len(await full.list_entries(ADA)) == 3

    async def test_users_and_agents_have_pins_of_their_own(self, store: Store) -> None:
        """No other user, agent or namespace sees them or can change them."""
        full = self.require(store, SupportsGet, SupportsDocuments)
        id = await write_pinned(full, "Ann likes tea.", ANN)
        await write_pinned(full, "Ben likes rum.", BEN)
        for scope in (BEN, BOB.replace(user_id="ann"), ANN.replace(namespace="elsewhere")):
            with pytest.raises(NotFound):
                await pin(full, id, scope)
            with pytest.raises(NotFound):
                await unpin(full, id, scope)
            assert "Ann likes tea." not in await list_pinned(full, scope)
        assert await list_pinned(full, ANN) == ["Ann likes tea."]
        assert await list_pinned(full, BEN) == ["Ben likes rum."]

    async def test_a_scope_that_names_no_owner_lists_the_pins_of_all(self, store: Store) -> None:
        """Of all agents, or of all users of an agent."""
        full = self.require(store, SupportsGet, SupportsDocuments)
        await write_pinned(full, "Ann likes tea.", ANN)
        await write_pinned(full, "Be brief.")
        await write_pinned(full, "Be loud.", BOB)
        await write_pinned(full, "Be rude.", ADA.replace(namespace="elsewhere"))
        assert {*await list_pinned(full, Scope())} == {"Ann likes tea.", "Be brief.", "Be loud."}
        assert {*await list_pinned(full, ADA)} == {"Ann likes tea.", "Be brief."}
        assert await list_pinned(full, Scope(user_id="ann")) == ["Ann likes tea."]

    async def test_a_pin_follows_what_supersedes_it(self, store: Store) -> None:
        """The newest value stands in the place of the pinned one, and either id takes it away."""
        full = self.require(store, SupportsGet, SupportsDocuments, SupportsSupersede)
        for chosen in ("old", "new"):
            old = await write_pinned(full, "Lives in Lyon.", key=f"home {chosen}")
            await write_pinned(full, "Likes tea.", key=f"drink {chosen}")
            await write_entry(full, "Lives in Metz.", key=f"home {chosen}")
            new = (await write_entry(full, "Lives in Paris.", key=f"home {chosen}")).entry.id
            assert (await list_pinned(full))[-2:] == ["Lives in Paris.", "Likes tea."]
            await unpin(full, {"old": old, "new": new}[chosen], ADA)
            assert "Lives in Paris." not in await list_pinned(full)

    async def test_what_is_forgotten_or_expired_is_not_pinned(self, store: Store) -> None:
        """What was pinned before is not listed until it is restored."""
        full = self.require(store, SupportsGet, SupportsDocuments, SupportsSupersede)
        id = await write_pinned(full, "Likes tea.")
        expired = (await write_entry(full, "Likes rum.", expires_at=1)).entry.id
        await full.supersede(id, ADA)
        assert await list_pinned(full) == []
        for gone in (id, expired):
            with pytest.raises(Invalid, match="restore it first"):
                await pin(full, gone, ADA)
        await full.reinstate(id, ADA)
        assert await list_pinned(full) == ["Likes tea."]

    async def test_pins_go_with_their_owner_and_quote_nothing(self, store: Store) -> None:
        """Erasing an entry or a user takes the pins of it, and no receipt says that pins quote it."""
        full = self.require(store, SupportsGet, SupportsDocuments, SupportsErase)
        await write_pinned(full, "Ann likes tea.", ANN)
        erased = await write_pinned(full, "Be loud.")
        await write_pinned(full, "Be brief.")
        receipts = [await full.erase(ADA, id=erased), await erase_user(full, "ann")]
        assert await list_pinned(full, Scope()) == ["Be brief."]
        assert [receipt.documents for receipt in receipts] == [0, 1]
        told = [line for receipt in receipts for line in receipt.unreachable]
        assert not any("may quote" in line for line in told)
        assert [len(one.body) for one in await full.documents(PINS_KIND, ANN)] == []

    async def test_the_number_of_pins_is_limited(self, store: Store) -> None:
        """One too many is refused; what was erased takes no room among the others."""
        full = self.require(store, SupportsGet, SupportsDocuments, SupportsErase)
        ids = [await write_pinned(full, f"Fact {number}.") for number in range(MAX_PINS)]
        await pin(full, ids[-1], ADA)
        with pytest.raises(Invalid, match="unpin another first"):
            await write_pinned(full, "One more.")
        assert len(await pinned(full, ADA)) == MAX_PINS
        await full.erase(ADA, id=ids[1:])
        await write_pinned(full, "The next.")
        assert await list_pinned(full) == ["Fact 0.", "The next."]

    async def test_pins_that_are_set_at_once_are_all_kept(self, store: Store) -> None:
        """A writer that meets another one's change makes its own on top of it."""
        full = self.require(store, SupportsGet, SupportsDocuments)
        ids = [(await write_entry(full, f"Fact {number}.")).entry.id for number in range(3)]
        async with anyio.create_task_group() as group:
            for id in ids:
                group.start_soon(pin, full, id, ADA)
        assert sorted(entry.id for entry in await pinned(full, ADA)) == sorted(ids)
