"""Initial state of an agent and mounting of plugins."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from omoide import Agent, Context, Identity, Memory, Plugin, identity, memory, strategy, thread
from omoide.core import FrozenMap, state
from omoide.core.definition import Outcome
from omoide.errors import InvalidState, MountFailed, OmoideError
from omoide.strategy import Direct, StrategyState

Config = FrozenMap[str, Any]


def rag_plugin(mount: Callable[[Agent, Config], Any], **attributes: Any) -> type[Plugin]:
    """A plugin called `rag` that is mounted like this."""
    return type("Rag", (Plugin,), {"name": "rag", "mount": lambda self, *given: mount(*given), **attributes})


class RagPlugin(Plugin):
    """Writes a custom space, pointers and an identity extension when it is mounted."""

    name = "rag"
    signal_patterns = ("jido.memory.result",)

    def mount(self, agent: Agent, config: Config) -> tuple[dict[str, Any], Agent]:
        agent = memory.ensure_space(memory.ensure(agent), "rag:cache", {})
        pointer = {"provider": config.get("provider", "table"), "index": config.get("index")}
        agent = memory.world_put(agent, "pointers", {"semantic": pointer})
        return {"mounted_at": 7}, identity.put_extension(agent, "rag", {"__public__": {"rag": True}})


def test_what_a_mount_writes_into_memory_and_identity_stays_in_the_agent() -> None:
    """The custom space, the pointers and the extension are there after the mount, beside its slice."""
    agent = Agent.new("a", plugins=[(RagPlugin, {"index": "agent_1"})])
    assert agent.state["rag"] == {"mounted_at": 7}
    assert memory.has_space(agent, "rag:cache")
    assert memory.world_get(agent, "pointers") == {"semantic": {"provider": "table", "index": "agent_1"}}
    assert identity.get_extension(agent, "rag") == {"__public__": {"rag": True}}
    kept = memory.of(agent)
    assert (kept.rev, kept.spaces["world"].rev) == (2, 1)


class Base(msgspec.Struct):
    """The agent's own state."""

    own: int = 1
    both: str = "schema"


class Slice(msgspec.Struct):
    """A slice with defaults."""

    size: int = 10
    name: str = "default"


class Watching(Plugin):
    """Shows in its slice which keys it found when it was mounted."""

    name = "watching"
    schema = Slice

    def mount(self, agent: Agent, config: Config) -> dict[str, Any]:
        return {"name": " ".join(sorted(agent.state)), "size": agent.state["watching"]["size"] + 1}


class Prepared(Direct):
    """A strategy that notes what the mounts left."""

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        return strategy.put(agent, StrategyState(data={"saw": sorted(agent.state)})), []


def test_the_state_is_built_in_a_fixed_order() -> None:
    """Schema, slices, the caller, mounts one after the other, the strategy at last."""
    agent = Agent.new(
        "a",
        schema=Base,
        plugins=[RagPlugin, Watching],
        strategy=Prepared(),
        state={"both": "caller", "watching": {"size": 5}},
    )
    assert (agent.state["own"], agent.state["both"]) == (1, "caller")
    assert agent.state["watching"] == {
        "size": 6,
        "name": "__identity__ __memory__ both own rag watching",
    }
    assert strategy.of(agent).data["saw"] == sorted({*agent.state} - {"__strategy__"})


def test_a_slice_starts_with_the_defaults_of_its_schema() -> None:
    """Also where the plugin mounts nothing."""
    assert Agent.new("a", plugins=[rag_plugin(lambda a, c: None, schema=Slice)]).state == {
        "rag": {"size": 10, "name": "default"}
    }


def test_a_slice_of_the_caller_survives_unless_the_mount_returns_the_same_key() -> None:
    """The mapping of the mount goes over the slice, one level deep."""
    plugin = rag_plugin(lambda agent, config: {"deep": {"mount": 1}, "new": True})
    agent = Agent.new("a", plugins=[plugin], state={"rag": {"deep": {"caller": 1}, "kept": "yes"}})
    assert agent.state["rag"] == {"deep": {"mount": 1}, "new": True, "kept": "yes"}


def test_a_mount_that_returns_nothing_changes_nothing() -> None:
    """None leaves no slice behind."""
    assert Agent.new("a", plugins=[rag_plugin(lambda a, c: None)]).state == {}


def test_a_mount_sees_what_was_mounted_before_it() -> None:
    """And not what comes after."""
    seen: list[set[str]] = []
    late = rag_plugin(lambda agent, config: seen.append({*agent.state}), name="late")
    early = rag_plugin(lambda agent, config: {"a": 1}, name="early")
    Agent.new("a", plugins=[early, late])
    Agent.new("a", plugins=[late, early])
    assert seen == [{"early"}, set()]


ANSWERS: dict[str, Callable[[Agent, Config], Any]] = {
    "agent": lambda agent, config: memory.world_put(agent, "a", 1),
    "mapping and agent": lambda agent, config: ({}, memory.world_put(agent, "a", 1)),
    "None and agent": lambda agent, config: (None, memory.world_put(agent, "a", 1)),
}


@pytest.mark.parametrize("mount", ANSWERS.values(), ids=ANSWERS)
def test_a_mount_may_return_the_changed_agent(mount: Callable[[Agent, Config], Any]) -> None:
    """Alone, or together with its slice."""
    assert memory.world_get(Agent.new("a", plugins=[rag_plugin(mount)]), "a") == 1


def test_a_mount_may_return_the_value_of_the_slot_it_owns() -> None:
    """A replacement of a default plugin starts the agent with a value of its own."""
    mine = Identity.new(profile={"age": 3})
    plugin = rag_plugin(lambda agent, config: mine, name="own_identity", state_key="__identity__")
    assert identity.get(Agent.new("a", default_plugins={"__identity__": plugin})) == mine


def test_a_change_of_the_agent_that_is_not_returned_is_discarded() -> None:
    """Agents are values: only what is returned counts."""

    def mount(agent: Agent, config: Config) -> dict[str, Any]:
        memory.world_put(agent, "lost", 1)
        return {"a": 1}

    assert set(Agent.new("a", plugins=[rag_plugin(mount)]).state) == {"rag"}


def test_a_mount_cannot_change_who_the_agent_is() -> None:
    """Of a returned agent only the state is taken."""
    agent = Agent.new("a", id="me", plugins=[rag_plugin(lambda agent, config: Agent.new("b", id="other"))])
    assert (agent.id, agent.name, agent.definition.name) == ("me", "a", "a")


def test_a_mount_may_write_into_the_thread() -> None:
    """The log may begin with the mount."""
    agent = Agent.new("a", plugins=[rag_plugin(lambda agent, config: thread.append(agent, {"kind": "note"}))])
    assert [entry.kind for entry in thread.entries(agent)] == ["note"]


def test_a_mount_gets_the_frozen_configuration() -> None:
    """As it was given, with nothing to change behind the plugin's back."""
    seen: list[Any] = []
    Agent.new("a", plugins=[(rag_plugin(lambda agent, config: seen.append(config)), {"list": [1]})])
    assert seen == [{"list": [1]}]
    assert isinstance(seen[0], FrozenMap)


def test_now_is_the_time_of_the_mount() -> None:
    """What a mount stamps is stamped with the time the agent is made at."""
    made = memory.of(Agent.new("a", plugins=[rag_plugin(lambda agent, config: memory.ensure(agent))], now=77))
    assert (made.created_at, made.updated_at) == (77, 77)


def fail_mount(agent: Agent, config: Config) -> Any:
    """A mount that fails."""
    raise RuntimeError("no connection")


def with_key(key: str, value: Any) -> Callable[[Agent, Config], Agent]:
    """A mount that returns the agent with a key of the state set."""
    return lambda agent, config: state.with_state(agent, agent.state.set(key, value))


FAILURES: dict[str, tuple[Callable[[Agent, Config], Any], str]] = {
    "raises": (fail_mount, "no connection"),
    "returns a number": (lambda agent, config: 5, "mapping"),
    "returns text": (lambda agent, config: "slice", "mapping"),
    "returns a list": (lambda agent, config: [1], "mapping"),
    "returns three": (lambda agent, config: ({}, agent, []), "mapping"),
    "returns no agent": (lambda agent, config: ({}, "agent"), "Agent"),
    "returns no agent at all": (lambda agent, config: ({}, None), "Agent"),
    "returns a value of another slot": (lambda agent, config: Memory.new(), "mapping"),
    "returns what no codec holds": (lambda agent, config: {"a": object()}, "object"),
    "writes a foreign key": (with_key("foreign", 1), "foreign"),
    "writes a foreign key with None": (with_key("foreign", None), "foreign"),
    "changes a foreign key": (with_key("own", 2), "own"),
    "removes a foreign key": (
        lambda agent, config: state.with_state(agent, agent.state.delete("own")),
        "own",
    ),
    "breaks a slot": (with_key("__memory__", {}), "__memory__"),
}


@pytest.mark.parametrize(("mount", "told"), FAILURES.values(), ids=FAILURES)
def test_a_mount_that_fails_makes_no_agent(mount: Callable[[Agent, Config], Any], told: str) -> None:
    """The error names the plugin and what went wrong, and keeps the cause."""
    with pytest.raises(MountFailed, match=f"(?s)Plugin mount failed.*'rag'.*{told}") as raised:
        Agent.new("a", state={"own": 1}, plugins=[rag_plugin(mount)])
    assert raised.value.plugin == "rag"
    assert raised.value.__cause__ is not None


def test_a_caller_cannot_start_a_slot_with_something_else() -> None:
    """Reserved keys hold their own kind of value."""
    for key in state.SLOTS:
        with pytest.raises(InvalidState, match=key):
            Agent.new("a", state={key: {"world": {}}})


@pytest.mark.parametrize("slice", [5, "text", [1]])
def test_a_caller_cannot_start_a_slice_with_something_else(slice: Any) -> None:
    """A slice with a schema is a map."""
    with pytest.raises(OmoideError, match="rag"):
        Agent.new("a", plugins=[rag_plugin(lambda a, c: None, schema=Slice)], state={"rag": slice})


def test_the_failure_of_an_inner_agent_is_not_wrapped_twice() -> None:
    """A plugin that makes agents of its own reports the plugin that really failed."""
    inner = rag_plugin(fail_mount, name="inner")
    outer = rag_plugin(lambda agent, config: cast("Any", Agent.new("b", plugins=[inner])), name="outer")
    with pytest.raises(MountFailed) as raised:
        Agent.new("a", plugins=[outer])
    assert raised.value.plugin == "inner"
