"""Capabilities are what an agent can do now: plugins come and go, agents are copied and stored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from omoide import (
    Agent,
    Checkpoint,
    Context,
    Plugin,
    Signal,
    action,
    checkpoint,
    identity,
    memory,
    receive,
    restore,
)
from omoide.core.agent import mount, unmount
from omoide.core.state import PARENT, Parent
from omoide.errors import Invalid, InvalidDefinition, MountFailed, NotFound, WrongType


@action
def fetch(ctx: Context, url: str = "") -> dict[str, Any]:
    return {"fetched": url}


@action
def parse(ctx: Context) -> None:
    return None


class Slice(msgspec.Struct):
    """A slice with a default."""

    count: int = 0


class WebPlugin(Plugin):
    """Offers `fetch`."""

    name = "web"
    actions = (fetch,)
    schema = Slice

    def mount(self, agent: Agent, config: Any) -> Any:
        return {"count": 1}, memory.ensure_space(agent, "web:cache", {})

    def router(self, config: Any) -> Any:
        return [("web.fetch", fetch)]


# The action itself


def test_an_action_is_asked_for_by_itself() -> None:
    """Wherever a name is taken, the action may stand."""
    agent = identity.add_action(Agent.new("a", plugins=[WebPlugin]), parse)
    assert identity.actions(agent) == ["parse", "fetch"]
    assert identity.supports_action(agent, fetch)
    assert identity.supports_action(agent, parse)
    assert identity.of(agent).supports_action(parse)
    assert [one.agent.id for one in identity.route([agent], action=fetch)] == [agent.id]
    assert identity.best([agent], action=parse) is not None
    agent = identity.remove_action(agent, parse)
    assert not identity.supports_action(agent, parse)
    with pytest.raises(WrongType, match="action"):
        identity.add_action(agent, 5)  # type: ignore[arg-type]
    assert not identity.supports_action(agent, action(name="other")(lambda ctx: None))


# Without an identity


def test_an_agent_without_identity_can_do_what_it_can_do() -> None:
    """Its actions are those of its plugins and its definition, asked for or chosen by."""
    agent = Agent.new("a", plugins=[WebPlugin], actions=[parse])
    assert identity.actions(agent) == ["parse", "fetch"]
    assert identity.capabilities(agent) == {"actions": ["parse", "fetch"], "tags": [], "io": {}, "limits": {}}
    assert identity.supports_action(agent, "fetch")
    (candidate,) = identity.route([agent], action="fetch")
    assert candidate.reason == "a: offers fetch; has no age yet"
    assert identity.route([agent], action="fetch", tags=["web"]) == []
    assert identity.get(agent) is None


# I/O flags


def with_io(id: str, **io: Any) -> Agent:
    return identity.ensure(Agent.new("a", id=id), capabilities={"io": io})


IO_AGENTS = [with_io("net", network=True, filesystem=False), with_io("quiet", network=False), with_io("bare")]


@pytest.mark.parametrize(
    ("io", "found"),
    [
        ({"network": True}, ["net"]),
        ({"network": False}, ["quiet", "bare"]),
        ({"network": True, "filesystem": False}, ["net"]),
        ({"filesystem": True}, []),
        ({}, ["net", "quiet", "bare"]),
    ],
)
def test_agents_are_chosen_by_what_they_need_access_to(io: dict[str, bool], found: list[str]) -> None:
    """A flag that is not declared is not needed, so it counts as False."""
    assert [one.agent.id for one in identity.route(IO_AGENTS, io=io)] == found
    best = identity.best(IO_AGENTS, io=io)
    assert (best and best.agent.id) == (found[0] if found else None)


def test_the_reason_names_the_flags() -> None:
    """And a value other than a flag has to be equal."""
    (candidate,) = identity.route(IO_AGENTS, io={"network": True, "filesystem": False})
    assert "io filesystem is False; io network is True" in candidate.reason
    scoped = with_io("scoped", network="internal")
    assert len(identity.route([scoped], io={"network": "internal"})) == 1
    assert identity.route([scoped], io={"network": True}) == []
    with pytest.raises(WrongType, match="io"):
        identity.route(IO_AGENTS, io=["network"])  # type: ignore[arg-type]


# Plugins that come and go


def test_capabilities_follow_the_plugins() -> None:
    """A mounted plugin brings actions, routes and its slice; unmounted, it takes them along."""
    bare = identity.ensure(Agent.new("a"))
    agent = mount(bare, WebPlugin)
    assert identity.actions(agent) == ["fetch"]
    assert agent.state["web"] == {"count": 1}
    assert memory.has_space(agent, "web:cache")
    after, directives = receive(agent, Signal(type="web.fetch", data={"url": "x"}))
    assert (after.state["fetched"], directives) == ("x", [])
    assert (bare.state.get("web"), [*identity.actions(bare)]) == (None, [])
    gone = unmount(after, "web")
    assert identity.actions(gone) == []
    assert "web" not in gone.state
    assert gone.state["fetched"] == "x"
    assert gone.definition == bare.definition
    assert receive(gone, Signal(type="web.fetch"))[1][0].kind == "RoutingError"  # type: ignore[attr-defined]
    assert mount(gone, WebPlugin).definition == agent.definition


def test_a_plugin_is_mounted_in_every_form_that_a_definition_takes() -> None:
    """A class, an instance, or a class with its configuration; with an alias it goes by its label."""
    forms: list[Any] = [WebPlugin, WebPlugin(), (WebPlugin, {})]
    for form in forms:
        assert identity.supports_action(mount(Agent.new("a"), form), fetch)
    second = type("Other", (Plugin,), {"name": "other"})({}, alias="b")
    agent = mount(Agent.new("a"), second)
    assert [plugin.label for plugin in agent.definition.plugins][-1] == "other:b"
    assert unmount(agent, "other:b").definition == Agent.new("a").definition


@pytest.mark.parametrize(
    ("attempt", "error", "problem"),
    [
        (lambda: mount(mount(Agent.new("a"), WebPlugin), WebPlugin), InvalidDefinition, "duplicate"),
        (
            lambda: mount(Agent.new("a", actions=[fetch_other()]), WebPlugin),
            InvalidDefinition,
            "offered twice",
        ),
        (lambda: mount(Agent.new("a"), Broken), MountFailed, "broken"),
        (lambda: mount(Agent.new("a"), "web"), WrongType, "plugins"),  # type: ignore[arg-type]
        (lambda: unmount(Agent.new("a"), "web"), NotFound, "thread, identity, memory"),
        (lambda: unmount(Agent.new("a", plugins=[WebPlugin, Needing]), "web"), InvalidDefinition, "requires"),
        (
            lambda: unmount(Agent.new("a", plugins=[WebPlugin], routes=[("x", "fetch")]), "web"),
            InvalidDefinition,
            "fetch",
        ),
    ],
    ids=["twice", "same action", "fails", "a name", "unknown", "required", "route"],
)
def test_what_does_not_fit_changes_nothing(
    attempt: Callable[[], object], error: type[Exception], problem: str
) -> None:
    """The rules of a definition hold for it, and the error names the plugin."""
    with pytest.raises(error, match=problem):
        attempt()


def test_a_slot_outlives_its_plugin() -> None:
    """An agent without the plugin of its memory keeps the memory."""
    agent = unmount(memory.world_put(Agent.new("a"), "k", 1), "memory")
    assert memory.world_get(agent, "k") == 1
    assert [plugin.label for plugin in agent.definition.plugins] == ["thread", "identity"]


def fetch_other() -> Any:
    return action(name="fetch")(lambda ctx: None)


class Broken(Plugin):
    """Cannot be mounted."""

    name = "broken"

    def mount(self, agent: Agent, config: Any) -> Any:
        raise RuntimeError("no")


class Needing(Plugin):
    """Needs another plugin."""

    name = "needing"
    requires = ("plugin:web",)


def test_an_action_in_the_command_of_a_mount_does_not_mount() -> None:
    """A command still cannot change the definition of its agent."""

    @action
    def grow(ctx: Context) -> Agent:
        return mount(ctx.agent, WebPlugin)

    agent, (error,) = Agent.new("a").cmd(grow)
    assert agent.definition == Agent.new("a").definition
    assert error.kind == "InvalidState"  # type: ignore[attr-defined]


# Copies


def test_a_clone_is_another_agent_with_the_same_state() -> None:
    """Its identity says that it was cloned, and is one generation on; it has no parent."""
    agent = memory.world_put(Agent.new("a", id="first", plugins=[WebPlugin]), "k", 1)
    agent = PARENT.put(identity.ensure(agent, profile={"age": 3, "generation": 2}), Parent(id="mother"))
    copy = agent.clone(id="second", now=7)
    assert (copy.id, copy.name, copy.definition) == ("second", "a", agent.definition)
    assert identity.of(copy).profile == {"age": 3, "generation": 3, "origin": "cloned"}
    assert identity.of(copy).updated_at == 7
    assert PARENT.get(copy) is None
    assert memory.of(copy) == memory.of(agent)
    assert identity.actions(copy) == ["fetch"]
    assert identity.get_profile(agent, "origin") is None
    assert agent.clone().id not in (agent.id, agent.clone().id)
    assert copy.clone().state["__identity__"].profile["generation"] == 4


def test_a_clone_of_an_agent_without_identity_says_so_too() -> None:
    """Unless the agent has no identity plugin: then it gets none."""
    copy = Agent.new("a").clone()
    assert identity.of(copy).profile == {"age": None, "generation": 1, "origin": "cloned"}
    bare = Agent.new("a", default_plugins=False).clone()
    assert identity.get(bare) is None
    with pytest.raises(Invalid, match="id"):
        Agent.new("a").clone(id=5)  # type: ignore[arg-type]


# Stored


def test_a_checkpoint_holds_the_computed_snapshot() -> None:
    """What the plugins offered when it was made, whose code the reader does not have."""
    agent = identity.ensure(Agent.new("a", plugins=[WebPlugin]), capabilities={"actions": ["parse"]})
    saved = checkpoint(agent)
    assert saved.snapshot == identity.snapshot(agent)
    assert saved.snapshot is not None
    assert saved.snapshot["capabilities"]["actions"] == ["parse", "fetch"]
    assert Checkpoint.from_json(saved.to_json()) == saved
    assert restore(saved, agent.definition) == agent
    bare = checkpoint(Agent.new("a", plugins=[WebPlugin]))
    assert bare.snapshot is not None
    assert bare.snapshot["capabilities"] == {"actions": ["fetch"], "tags": [], "io": {}, "limits": {}}


def test_a_checkpoint_without_a_snapshot_is_read() -> None:
    """Those of before have none."""
    agent = identity.ensure(Agent.new("a"))
    plain = msgspec.json.decode(checkpoint(agent).to_json())
    del plain["snapshot"]
    old = Checkpoint.from_json(msgspec.json.encode(plain | {"version": 2}))
    assert old.snapshot is None
    assert restore(old, agent.definition) == agent
