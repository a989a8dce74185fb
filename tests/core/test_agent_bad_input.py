"""Wrong arguments to functions on agents raise a typed error and change nothing."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from omoide import (
    Agent,
    Context,
    Definition,
    Identity,
    Signal,
    Thread,
    action,
    cmd,
    identity,
    receive,
    strategy,
    thread,
)
from omoide.errors import Conflict, Invalid, InvalidDefinition, NotFound, OmoideError, WrongType


@action
def act(ctx: Context) -> None:
    """Do nothing."""


class Own(msgspec.Struct):
    """A state with a key that has to be given."""

    needed: int


Call = Callable[[Any], object]

ON_AGENTS: dict[str, Call] = {
    "cmd": lambda a: cmd(a, act),
    "receive": lambda a: receive(a, Signal(type="a")),
    "identity.get": lambda a: identity.get(a),
    "identity.of": lambda a: identity.of(a),
    "identity.put": lambda a: identity.put(a, Identity.new()),
    "identity.update": lambda a: identity.update(a, lambda old: Identity.new()),
    "identity.ensure": lambda a: identity.ensure(a),
    "identity.has_identity": lambda a: identity.has_identity(a),
    "identity.drift": lambda a: identity.drift(a),
    "identity.age": lambda a: identity.age(a),
    "identity.evolve": lambda a: identity.evolve(a),
    "identity.get_profile": lambda a: identity.get_profile(a, "age"),
    "identity.put_profile": lambda a: identity.put_profile(a, "age", 1),
    "identity.capabilities": lambda a: identity.capabilities(a),
    "identity.actions": lambda a: identity.actions(a),
    "identity.tags": lambda a: identity.tags(a),
    "identity.supports_action": lambda a: identity.supports_action(a, "x"),
    "identity.has_tag": lambda a: identity.has_tag(a, "x"),
    "identity.add_action": lambda a: identity.add_action(a, "x"),
    "identity.remove_action": lambda a: identity.remove_action(a, "x"),
    "identity.add_tag": lambda a: identity.add_tag(a, "x"),
    "identity.set_limit": lambda a: identity.set_limit(a, "x", 1),
    "identity.set_io": lambda a: identity.set_io(a, "x", 1),
    "identity.get_extension": lambda a: identity.get_extension(a, "x"),
    "identity.put_extension": lambda a: identity.put_extension(a, "x", {}),
    "identity.update_extension": lambda a: identity.update_extension(a, "x", lambda old: {}),
    "identity.merge_extension": lambda a: identity.merge_extension(a, "x", {}),
    "identity.snapshot": lambda a: identity.snapshot(a),
    "identity.add_known_agent": lambda a: identity.add_known_agent(a, identity.ensure(Agent.new("b"))),
    "identity.add_known_agent of": lambda a: identity.add_known_agent(Agent.new("b"), a),
    "identity.add_known_snapshot": lambda a: identity.add_known_snapshot(a, "bob", {}),
    "identity.known_agents": lambda a: identity.known_agents(a),
    "identity.route": lambda a: identity.route([a]),
    "strategy.get": lambda a: strategy.get(a),
    "strategy.of": lambda a: strategy.of(a),
    "strategy.put": lambda a: strategy.put(a, strategy.StrategyState()),
    "strategy.update": lambda a: strategy.update(a, lambda old: strategy.StrategyState()),
    "strategy.ensure": lambda a: strategy.ensure(a),
    "strategy.has_strategy": lambda a: strategy.has_strategy(a),
    "thread.get": lambda a: thread.get(a),
    "thread.of": lambda a: thread.of(a),
    "thread.put": lambda a: thread.put(a, Thread.new()),
    "thread.update": lambda a: thread.update(a, lambda old: Thread.new()),
    "thread.ensure": lambda a: thread.ensure(a),
    "thread.has_thread": lambda a: thread.has_thread(a),
    "thread.append": lambda a: thread.append(a, {}),
    "thread.entries": lambda a: thread.entries(a),
    "thread.get_entry": lambda a: thread.get_entry(a, 0),
    "thread.last": lambda a: thread.last(a),
    "thread.slice": lambda a: thread.slice(a, 0, 1),
    "thread.filter_by_kind": lambda a: thread.filter_by_kind(a, "x"),
}


@pytest.mark.parametrize("call", ON_AGENTS.values(), ids=ON_AGENTS)
@pytest.mark.parametrize("given", [None, "agent", {}, {"state": {}}], ids=["None", "text", "map", "alike"])
def test_every_function_on_agents_takes_agents_only(call: Call, given: object) -> None:
    """Anything else is a wrong type, and the error says to pass an agent."""
    with pytest.raises(WrongType, match="Agent"):
        call(given)


def test_every_public_function_on_agents_is_tried_here() -> None:
    """A new function of the three modules has to be added to the list."""
    other = {
        "KEY",
        "Candidate",
        "Direct",
        "Route",
        "Strategy",
        "StrategyState",
        "best",
        "identity_evolve",
        "key",
    }
    for module in (identity, strategy, thread):
        own = module.__name__.rpartition(".")[2]
        assert {f"{own}.{name}" for name in module.__all__ if name not in other} <= {*ON_AGENTS}


WRITES: dict[str, Callable[..., Agent]] = {
    "evolve": lambda a, **o: identity.evolve(a, years=1, **o),
    "put_profile": lambda a, **o: identity.put_profile(a, "generation", 1, **o),
    "add_action": lambda a, **o: identity.add_action(a, "x", **o),
    "remove_action": lambda a, **o: identity.remove_action(a, "x", **o),
    "add_tag": lambda a, **o: identity.add_tag(a, "x", **o),
    "set_limit": lambda a, **o: identity.set_limit(a, "x", 1, **o),
    "set_io": lambda a, **o: identity.set_io(a, "x", 1, **o),
    "put_extension": lambda a, **o: identity.put_extension(a, "x", {}, **o),
    "update_extension": lambda a, **o: identity.update_extension(a, "x", lambda old: {}, **o),
    "merge_extension": lambda a, **o: identity.merge_extension(a, "x", {}, **o),
    "append": lambda a, **o: thread.append(a, {}, **o),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
@pytest.mark.parametrize("expected", [0, 2, 99])
def test_a_stale_revision_is_a_conflict(write: Callable[..., Agent], expected: int) -> None:
    """Every write says both revisions and leaves the agent as it was; the right one goes through."""
    agent = thread.append(identity.set_limit(Agent.new("a", id="me"), "max", 1), {})
    before = agent.to_json()
    with pytest.raises(Conflict) as raised:
        write(agent, expected_rev=expected)
    assert (raised.value.expected, raised.value.actual) == (expected, 1)
    assert agent.to_json() == before
    write(agent, expected_rev=1)


DEFINITIONS: dict[str, dict[str, Any]] = {
    "name": {"name": 5},
    "empty name": {"name": " "},
    "description": {"description": 5},
    "schema": {"schema": 5},
    "schema without fields": {"schema": int},
    "one action and no list": {"actions": act},
    "actions": {"actions": 5},
    "function for action": {"actions": [act.run]},
    "two actions of one name": {"actions": [act, action(name="act")(cast("Any", lambda ctx: None))]},
    "plugins": {"plugins": 5},
    "default_plugins": {"default_plugins": 5},
    "routes": {"routes": 5},
    "one route and no list": {"routes": ("a.b", act)},
    "route without target": {"routes": [("a.b",)]},
    "route with a bad pattern": {"routes": [("a..b", act)]},
    "route with a star inside": {"routes": [("a*", act)]},
    "route with a bad target": {"routes": [("a.b", 5)]},
    "route with a bad priority": {"routes": [("a.b", act, 1_000)]},
    "route to no command": {"routes": [("a.b", ("strategy_cmd",))]},
    "strategy": {"strategy": 5},
    "strategy without methods": {"strategy": object()},
    "on_before_cmd": {"on_before_cmd": 5},
    "on_after_cmd": {"on_after_cmd": "hook"},
    "unknown part": {"memory": True},
}


@pytest.mark.parametrize("parts", DEFINITIONS.values(), ids=DEFINITIONS)
def test_an_agent_defined_wrongly_is_refused(parts: dict[str, Any]) -> None:
    """Each part of a definition is checked before any agent is made."""
    named = {"name": "a", **parts}
    with pytest.raises(Invalid) as raised:
        Agent.new(named.pop("name"), **named)
    assert raised.value.remedy


@pytest.mark.parametrize(
    "fields",
    [
        {"name": 5},
        {"description": 5},
        {"schema": Own},
        {"plugins": [5]},
        {"plugins": (5,)},
        {"actions": (5,)},
        {"routes": (("a.b", act),)},
        {"strategy": 5},
        {"on_after_cmd": 5},
    ],
    ids=str,
)
def test_a_definition_made_without_new_is_checked_too(fields: dict[str, Any]) -> None:
    """There is no way around the checks."""
    with pytest.raises(Invalid) as raised:
        Definition(**{"name": "a", **fields})
    assert raised.value.remedy


AGENTS: dict[str, tuple[Callable[[], object], str]] = {
    "no name": (lambda: Agent.new(cast("str", None)), "name"),
    "control character in the id": (lambda: Agent.new("a", id="a\n"), "id"),
    "id too long": (lambda: Agent.new("a", id="x" * 513), "id"),
    "state": (lambda: Agent.new("a", state=cast("Any", 5)), "state"),
    "state as list": (lambda: Agent.new("a", state=cast("Any", [1])), "state"),
    "value no codec holds": (lambda: Agent.new("a", state={"own": object()}), "state.own"),
    "key that is no text": (lambda: Agent.new("a", state=cast("Any", {5: 1})), "state.5"),
    "empty key": (lambda: Agent.new("a", state={" ": 1}), "state key"),
    "missing key of the schema": (lambda: Agent.new("a", schema=Own), "state.needed"),
    "now": (lambda: Agent.new("a", now=-1), "now"),
    "parts beside a definition": (lambda: Agent.new(Definition.new("a"), schema=Own), "schema"),
    "Agent: id": (lambda: Agent(id="", name="a"), "id"),
    "Agent: id that is no text": (lambda: Agent(id=cast("str", 5), name="a"), "id"),
    "Agent: name": (lambda: Agent(id="me", name=""), "name"),
    "Agent: description": (lambda: Agent(id="me", name="a", description=cast("str", 5)), "description"),
    "Agent: state": (lambda: Agent(id="me", name="a", state=cast("Any", 5)), "state"),
    "Agent: definition": (lambda: Agent(id="me", name="a", definition=cast("Any", 5)), "definition"),
    "from_json: definition": (
        lambda: Agent.from_json(Agent.new("a").to_json(), cast("Any", 5)),
        "definition",
    ),
}


@pytest.mark.parametrize(("make", "field"), AGENTS.values(), ids=AGENTS)
def test_an_agent_made_wrongly_is_refused_by_name(make: Callable[[], object], field: str) -> None:
    """Each argument is checked, and the error names it and says what to do."""
    with pytest.raises(Invalid) as raised:
        make()
    assert raised.value.field == field
    assert raised.value.remedy


FUNCTIONS: dict[str, Callable[[Agent], object]] = {
    "identity.update": lambda a: identity.update(a, cast("Any", 5)),
    "identity.update_extension": lambda a: identity.update_extension(a, "x", cast("Any", None)),
    "thread.update": lambda a: thread.update(a, cast("Any", "f")),
}


@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=FUNCTIONS)
def test_what_is_no_function_cannot_be_applied(call: Callable[[Agent], object]) -> None:
    """The error says that a function is wanted."""
    with pytest.raises(WrongType, match="function"):
        call(Agent.new("a"))


def test_a_function_that_raises_is_not_hushed_up() -> None:
    """An error of the caller's own function is the caller's, and the agent stays as it was."""
    agent = identity.ensure(Agent.new("a", id="me"))
    before = agent.to_json()
    with pytest.raises(ZeroDivisionError):
        identity.update_extension(agent, "x", lambda old: {"y": 1 / 0})
    assert agent.to_json() == before


def test_an_agent_nobody_introduced_is_not_found() -> None:
    """Without an identity there is nothing to know of another agent."""
    with pytest.raises(NotFound, match=r"identity\.ensure"):
        identity.add_known_agent(Agent.new("a"), Agent.new("b", id="bob"))


def test_every_refusal_is_one_of_ours_and_a_python_error_of_its_kind() -> None:
    """Callers may catch either."""
    with pytest.raises(TypeError) as wrong_type:
        identity.age(cast("Agent", None))
    with pytest.raises(ValueError, match="days") as wrong_value:
        identity.evolve(Agent.new("a"), days=-1)
    with pytest.raises(LookupError) as missing:
        identity.add_known_agent(Agent.new("a"), Agent.new("b"))
    with pytest.raises(InvalidDefinition) as undefined:
        Agent.new("a", default_plugins={"x": False})
    for raised in (wrong_type, wrong_value, missing, undefined):
        assert isinstance(raised.value, OmoideError)
