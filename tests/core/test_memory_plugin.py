"""The memory plugin, and memory changed by actions."""

from typing import Any

import pytest

from omoide import Agent, Checkpoint, Context, Memory, Plugin, action, checkpoint, memory, restore
from omoide.core import Externalize, FrozenMap
from omoide.core.definition import MemoryPlugin
from omoide.errors import Invalid, InvalidDefinition, MountFailed

BARE = Agent.new("weather")


class Notebook(Plugin):
    """A memory of another kind: it begins with a note, and stays out of checkpoints."""

    name = "notebook"
    state_key = "__memory__"
    singleton = True

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Agent:
        return memory.world_put(agent, "note", config.get("note", "none"), now=1)

    def on_checkpoint(self, state: Any, ctx: Context) -> Externalize:
        return Externalize(key="notebook", pointer={"id": state.id})

    def on_restore(self, pointer: Any, ctx: Context) -> Memory:
        return Memory.new(id=pointer["id"], now=9)


class Elsewhere(Plugin):
    name = "elsewhere"
    state_key = "memories"


@action
def process_observation(ctx: Context, temp: float) -> Memory:
    """Note a reading and plan its check."""
    return ctx.memory.world_put("temperature", temp, now=5).tasks_add("Verify reading", id="t1", now=5)


@action
def write_the_state(ctx: Context) -> dict[str, Any]:
    """Return keys named like spaces, which are keys of the state."""
    return {"world": {"temperature": 1}, "tasks": ["x"]}


def test_the_memory_plugin_says_what_it_is() -> None:
    """It is called memory, owns the memory's key, is a singleton, and brings no actions and no schema."""
    plugin = MemoryPlugin()
    assert (plugin.name, plugin.key, plugin.singleton) == ("memory", memory.key(), True)
    assert (tuple(plugin.actions), plugin.schema, tuple(plugin.capabilities)) == ((), None, ("memory",))


def test_mounting_the_memory_plugin_allocates_nothing() -> None:
    """Its mount returns nothing, and a new agent has no memory."""
    assert MemoryPlugin().mount(BARE, FrozenMap()) is None
    assert memory.key() not in BARE.state


def test_every_agent_has_the_memory_plugin() -> None:
    """It is there without being asked for, and named among the capabilities of the plugins."""
    assert MemoryPlugin() in BARE.definition.plugins
    assert "memory" in BARE.definition.plugin_capabilities()


@pytest.mark.parametrize("without", [{"__memory__": False}, False])
def test_an_agent_without_the_plugin_can_still_have_a_memory(without: Any) -> None:
    """The plugin can be left out; the functions on memory only need the state."""
    agent = Agent.new("stateless", default_plugins=without)
    assert MemoryPlugin() not in agent.definition.plugins
    assert memory.world_get(memory.world_put(agent, "k", 1), "k") == 1
    assert memory.tasks_next(memory.tasks_add(agent, "x", id="t")) == {
        "id": "t",
        "text": "x",
        "status": "open",
    }


@pytest.mark.parametrize(
    ("like", "note"),
    [(Notebook, "none"), (Notebook(), "none"), ((Notebook, {"note": "mine"}), "mine")],
    ids=["class", "instance", "with-config"],
)
def test_the_memory_plugin_can_be_replaced(like: Any, note: str) -> None:
    """A class, an instance, or a class with its configuration takes its place under the same key."""
    agent = Agent.new("writer", default_plugins={"__memory__": like})
    assert MemoryPlugin() not in agent.definition.plugins
    assert [plugin.name for plugin in agent.definition.plugins if plugin.key == memory.key()] == ["notebook"]
    assert memory.world_get(agent, "note") == note


@pytest.mark.parametrize("like", [Elsewhere, Elsewhere(), "memory", 5, (Elsewhere, {})])
def test_a_replacement_keeps_the_key_of_the_memory(like: Any) -> None:
    """A plugin that owns another key, or is no plugin, cannot stand in for the memory's."""
    with pytest.raises(Invalid):
        Agent.new("writer", default_plugins={"__memory__": like})


def test_the_memory_plugin_is_mounted_once_and_under_its_own_name() -> None:
    """It has no alias and no double."""
    with pytest.raises(InvalidDefinition, match="Cannot alias singleton plugin"):
        MemoryPlugin(alias="second")
    with pytest.raises(InvalidDefinition, match=r"duplicate.*mount it once"):
        Agent.new("double", plugins=[MemoryPlugin])
    with pytest.raises(InvalidDefinition, match="shares the state key"):
        Agent.new("double", plugins=[Notebook])


def test_a_memory_survives_the_rest_of_its_agent() -> None:
    """A checkpoint keeps the memory, and so does the JSON of the checkpoint."""
    agent = memory.tasks_add(memory.world_put(BARE, "k", {"a": [1]}), "x")
    saved = checkpoint(agent)
    assert saved.state[memory.key()] == memory.get(agent)
    read = Checkpoint.from_json(saved.to_json())
    assert memory.get(restore(read, agent.definition)) == memory.get(agent)
    assert not memory.has_memory(restore(checkpoint(BARE), BARE.definition))


def test_a_memory_may_be_kept_elsewhere() -> None:
    """A plugin of one's own can leave a pointer in the checkpoint and fetch the memory again."""
    agent = Agent.new("writer", default_plugins={"__memory__": Notebook})
    saved = checkpoint(agent)
    assert memory.key() not in saved.state
    restored = memory.get(restore(saved, agent.definition))
    assert restored == Memory.new(id=memory.of(agent).id, now=9)


def test_an_action_that_returns_a_memory_changes_the_memory() -> None:
    """It replaces the memory of the agent, counts as changes there, and touches no other key."""
    agent, effects = BARE.cmd((process_observation, {"temp": 22.5}))
    assert effects == []
    held = memory.of(agent)
    assert held.world() == {"temperature": 22.5}
    assert (held.rev, held.spaces["world"].rev, held.spaces["tasks"].rev, held.updated_at) == (2, 1, 1, 5)
    assert set(agent.state) == {memory.key()}
    again, _ = agent.cmd((process_observation, {"temp": 20.0}))
    assert again == agent  # the id of its task is taken, and nothing stays of what failed


def test_an_action_on_an_agent_without_memory_finds_an_empty_one() -> None:
    """The context always has a memory; looking at it makes none."""
    seen = Context(BARE).memory
    assert seen.world() == {}
    assert seen.tasks() == []
    assert seen.rev == 0
    assert memory.key() not in BARE.state


def test_keys_named_like_spaces_are_keys_of_the_state() -> None:
    """An action that returns `world` and `tasks` writes the state, and the memory stays as it was."""
    agent, _ = memory.world_put(BARE, "temperature", 22).cmd(write_the_state)
    assert (agent.state["world"], agent.state["tasks"]) == ({"temperature": 1}, ["x"])
    assert memory.world(agent) == {"temperature": 22}
    assert memory.of(agent).rev == 1


def test_a_plugin_may_fill_the_memory_when_it_is_mounted() -> None:
    """What a mount writes into a space of its own is there afterwards."""

    class Rag(Plugin):
        name = "rag"

        def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
            agent = memory.ensure_space(agent, "rag:cache", {})
            return {"mounted": True}, memory.world_put(agent, "pointers", {"semantic": "index"})

    agent = Agent.new("reader", plugins=[Rag])
    assert memory.has_space(agent, "rag:cache")
    assert memory.world_get(agent, "pointers") == {"semantic": "index"}
    assert agent.state["rag"] == {"mounted": True}


def test_a_mount_that_breaks_the_memory_makes_no_agent() -> None:
    """A plugin cannot put anything else in the memory's place."""

    class Breaker(Plugin):
        name = "breaker"
        state_key = "__memory__"

        def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Any:
            return {"world": {}}

    with pytest.raises(MountFailed, match="breaker"):
        Agent.new("broken", default_plugins={"__memory__": Breaker})
