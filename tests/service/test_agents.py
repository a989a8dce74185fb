"""Hibernated agents are read from their checkpoints, in any state."""

from __future__ import annotations

from typing import Any

import pytest

from omoide import Agent, Checkpoint, Context, Plugin, action, checkpoint, identity, memory
from omoide.errors import RestoreFailed
from omoide.runtime import DocumentCheckpointStore
from omoide.runtime.checkpoints import save_agent
from omoide.service import agents
from omoide.stores import open_store


async def test_an_agent_that_cannot_be_read_hides_no_other() -> None:
    """It is listed with the reason; whoever asks for it alone is told the same."""
    async with open_store("memory://", embedder="none") as store:
        checkpoints = DocumentCheckpointStore(store)
        await save_agent(memory.world_put(Agent.new("cook", id="ada"), "mood", "calm"), checkpoints)
        broken = Checkpoint(id="bob", name="cook", state={"__memory__": "no memory"})
        await checkpoints.save("bob", broken, expected_rev=0)
        ada, bob = await agents.list_agents(store, namespace="default")
        assert (ada.id, ada.problem, "world" in ada.spaces) == ("ada", None, True)
        assert (bob.id, "__memory__" in (bob.problem or "")) == ("bob", True)
        assert await agents.who_can(store, "bake", namespace="default") == []
        with pytest.raises(RestoreFailed, match="__memory__"):
            await agents.get_agent(store, "bob", namespace="default")


@action
def bake(ctx: Context) -> None:
    """Do nothing."""


class OvenPlugin(Plugin):
    """Offers `bake`."""

    name = "oven"
    actions = (bake,)


async def test_a_stored_agent_can_do_what_its_plugins_offered() -> None:
    """As it was when it was saved, with or without an identity, though its code is not loaded."""
    async with open_store("memory://", embedder="none") as store:
        checkpoints = DocumentCheckpointStore(store)
        cook = identity.ensure(
            Agent.new("cook", id="ada", plugins=[OvenPlugin]),
            profile={"age": 3},
            capabilities={"tags": ["kitchen"], "limits": {"loaves": 5}, "io": {"network": True}},
        )
        for agent in (
            cook,
            Agent.new("helper", id="bob", plugins=[OvenPlugin]),
            Agent.new("guest", id="eve"),
        ):
            await save_agent(agent, checkpoints)
        found = await agents.who_can(store, "bake", namespace="default")
        assert [(one.id, one.reason) for one in found] == [
            ("ada", "cook: offers bake; is 3 years old"),
            ("bob", "helper: offers bake; has no age yet"),
        ]
        needed: dict[str, Any] = {"limits": {"loaves": 4}, "io": {"network": True}, "tags": ["kitchen"]}
        assert [one.id for one in await agents.who_can(store, "bake", **needed, namespace="default")] == [
            "ada"
        ]
        quiet = await agents.who_can(store, "bake", io={"network": False}, namespace="default")
        assert [one.id for one in quiet] == ["bob"]
        info = await agents.get_agent(store, "ada", namespace="default")
        assert info.identity == identity.snapshot(cook)
        listed = await agents.list_agents(store, namespace="default")
        assert [one.identity is None for one in listed] == [False, True, True]


async def test_an_agent_that_was_saved_without_a_snapshot_is_judged_by_its_identity() -> None:
    """Its declared actions are known, and those of its plugins are not."""
    async with open_store("memory://", embedder="none") as store:
        checkpoints = DocumentCheckpointStore(store)
        cook = identity.add_action(Agent.new("cook", id="ada", plugins=[OvenPlugin]), "cook")
        old = checkpoint(cook).replace(snapshot=None, version=2)
        await checkpoints.save("ada", old, expected_rev=0)
        assert [one.reason for one in await agents.who_can(store, "cook", namespace="default")] == [
            "cook: declares cook; has no age yet"
        ]
        assert await agents.who_can(store, "bake", namespace="default") == []


async def test_a_stored_space_is_shown_without_what_expired() -> None:
    """As the agent itself would read it."""
    async with open_store("memory://", embedder="none") as store:
        agent = memory.ensure_space(Agent.new("cook", id="ada"), "rag:cache", {"old": 1}, ttl_ms=1, now=0)
        agent = memory.ensure_space(agent, "notes", {"kept": 1})
        await save_agent(agent, DocumentCheckpointStore(store))
        spaces = await agents.get_spaces(store, "ada", namespace="default")
        assert (spaces["rag:cache"].data, spaces["notes"].data) == ({}, {"kept": 1})
