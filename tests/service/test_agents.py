"""Hibernated agents are read from their checkpoints, in any state."""

from __future__ import annotations

import pytest

from omoide import Agent, Checkpoint, memory
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
