"""The built-in plugins: replaced, configured or left out."""

from typing import Any

import pytest

from omoide import Agent, Definition, Plugin, identity, memory, thread
from omoide.core import FrozenMap
from omoide.core.definition import IdentityPlugin, MemoryPlugin, ThreadPlugin
from omoide.errors import InvalidDefinition, WrongType

KINDS: list[tuple[type[Plugin], str]] = [
    (ThreadPlugin, "thread"),
    (IdentityPlugin, "identity"),
    (MemoryPlugin, "memory"),
]
every_kind = pytest.mark.parametrize(("kind", "name"), KINDS)


class OwnMemory(Plugin):
    """Takes the place of the memory plugin."""

    name = "own_memory"
    state_key = "__memory__"

    def mount(self, agent: Agent, config: FrozenMap[str, Any]) -> Agent:
        return memory.world_put(agent, "greeting", config.get("greeting", "hello"))


class Stray(Plugin):
    """Owns a key of its own and cannot take anyone's place."""

    name = "stray"


def names(overrides: Any) -> list[str]:
    """The plugins of an agent with these overrides."""
    return [plugin.name for plugin in Definition.new("a", default_plugins=overrides).plugins]


@every_kind
def test_a_default_plugin_owns_its_slot_and_brings_its_tag(kind: type[Plugin], name: str) -> None:
    """A singleton without actions and schema, under the reserved key of its name."""
    plugin = kind()
    assert (plugin.name, plugin.key, plugin.capabilities) == (name, f"__{name}__", (name,))
    assert (plugin.singleton, plugin.actions, plugin.schema) == (True, (), None)


@every_kind
def test_a_default_plugin_allocates_nothing(kind: type[Plugin], name: str) -> None:
    """Mounting answers None, and a new agent has an empty state."""
    agent = Agent.new("a")
    assert kind().mount(agent, FrozenMap()) is None
    assert agent.state == {}


@every_kind
def test_a_default_plugin_cannot_be_mounted_twice_or_under_an_alias(kind: type[Plugin], name: str) -> None:
    """It is there already, and there is one of it."""
    with pytest.raises(InvalidDefinition, match="duplicate"):
        Definition.new("a", plugins=[kind])
    with pytest.raises(InvalidDefinition, match="Cannot alias singleton plugin"):
        kind(alias="second")


def test_every_agent_has_the_three_before_its_own() -> None:
    """Thread, identity and memory, then those of the user."""
    mounted = Definition.new("a", plugins=[Stray]).plugins
    assert [plugin.name for plugin in mounted] == ["thread", "identity", "memory", "stray"]


def test_all_none_or_some_of_them() -> None:
    """None and True mean all, False none, and a map leaves out by key."""
    assert names(None) == names(True) == names({}) == ["thread", "identity", "memory"]
    assert names(False) == []
    assert names({"__identity__": False}) == ["thread", "memory"]
    assert names({"__memory__": False, "__thread__": True}) == ["thread", "identity"]


@pytest.mark.parametrize("like", [OwnMemory, OwnMemory({"greeting": "hi"}), (OwnMemory, {"greeting": "hi"})])
def test_a_default_plugin_is_replaced_in_its_place(like: Any) -> None:
    """By a class, an instance, or a class with its configuration."""
    assert names({"__memory__": like}) == ["thread", "identity", "own_memory"]
    agent = Agent.new("a", default_plugins={"__memory__": like})
    assert memory.world_get(agent, "greeting") == ("hello" if like is OwnMemory else "hi")


def test_helpers_work_on_an_agent_without_the_plugins() -> None:
    """They only touch the state."""
    agent = Agent.new("a", default_plugins=False)
    agent = thread.append(identity.add_tag(memory.world_put(agent, "a", 1), "web"), {})
    assert memory.world_get(agent, "a") == 1
    assert identity.has_tag(agent, "web")
    assert len(thread.entries(agent)) == 1


@pytest.mark.parametrize("key", ["memory", "__strategy__", "__parent__", "stray", 5])
def test_an_unknown_key_is_refused_with_those_there_are(key: Any) -> None:
    """Only the three can be overridden."""
    with pytest.raises(InvalidDefinition, match="__thread__, __identity__, __memory__"):
        Definition.new("a", default_plugins={key: False})


def test_a_replacement_has_to_own_the_same_key() -> None:
    """The error says which key to give it."""
    with pytest.raises(InvalidDefinition, match="state_key = '__memory__'"):
        Definition.new("a", default_plugins={"__memory__": Stray})


@pytest.mark.parametrize("wanted", [None, 5, "off", object, (OwnMemory, 5)])
def test_what_is_no_plugin_cannot_replace_one(wanted: Any) -> None:
    """False, a plugin, or a class with its configuration."""
    with pytest.raises(WrongType):
        Definition.new("a", default_plugins={"__memory__": wanted})


@pytest.mark.parametrize("overrides", [5, "off", ["__memory__"]])
def test_overrides_are_a_map(overrides: Any) -> None:
    """Or None, or False."""
    with pytest.raises(WrongType, match="default_plugins"):
        Definition.new("a", default_plugins=overrides)
