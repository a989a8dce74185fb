"""`cmd`: state, directives and failures of an action."""

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.strategies import maps

from omoide import (
    Agent,
    Context,
    Identity,
    Memory,
    Signal,
    Space,
    Thread,
    action,
    cmd,
    directives,
    identity,
    memory,
    thread,
)
from omoide.core import Instruction
from omoide.directives import Directive
from omoide.errors import OmoideError
from omoide.testing import reproducible


@action
def count(ctx: Context, by: int = 1) -> dict[str, Any]:
    """Count on from the state."""
    return {"count": ctx.state.get("count", 0) + by}


@action
def fail(ctx: Context, text: str = "it broke") -> None:
    """Raise."""
    raise ValueError(text)


def action_returning(result: Any) -> Any:
    """An action that returns something that no parameter could carry."""
    return action(name="returning")(cast("Any", lambda ctx: result))


def the_error(effects: list[Directive]) -> directives.Error:
    """The only directive, which has to be an Error."""
    (error,) = effects
    assert isinstance(error, directives.Error)
    return error


def deep_merge(base: Any, changes: Any) -> Any:
    """A deep merge of plain dicts."""
    if not (isinstance(base, dict) and isinstance(changes, dict)):
        return changes
    return {**base, **{key: deep_merge(base.get(key), value) for key, value in changes.items()}}


@given(before=maps, changes=maps)
def test_a_mapping_is_merged_deeply(before: dict[str, Any], changes: dict[str, Any]) -> None:
    """Maps are merged into maps, everything else replaces what was there."""
    agent = Agent.new("a", state={"own": before, "other": 1})
    after, effects = agent.cmd(action_returning({"own": changes}))
    assert after.state == {"own": deep_merge(before, changes), "other": 1}
    assert effects == []
    assert agent.state == {"own": before, "other": 1}


def test_lists_are_replaced_whole() -> None:
    """A list is not a map."""
    agent = Agent.new("a", state={"own": {"list": [1, 2], "kept": True}})
    assert agent.cmd(action_returning({"own": {"list": [3]}}))[0].state == {
        "own": {"list": [3], "kept": True}
    }


def test_our_own_values_are_replaced_whole() -> None:
    """A space in the state is never merged with another."""
    agent = Agent.new("a", state={"space": Space(data={"a": 1}, rev=3)})
    assert agent.cmd(action_returning({"space": Space(data={"b": 2})}))[0].state["space"] == Space(
        data={"b": 2}
    )


@pytest.mark.parametrize(
    ("value", "key"),
    [
        (Memory.new(now=1), "__memory__"),
        (Identity.new(now=1), "__identity__"),
        (Thread.new(now=1), "__thread__"),
    ],
)
def test_a_slot_value_replaces_its_slot(value: Any, key: str) -> None:
    """Returned alone or under its key, it becomes the agent's memory, identity or thread."""
    agent = Agent.new("a", state={"own": 1})
    for result in (value, {key: value}):
        assert agent.cmd(action_returning(result))[0].state == {"own": 1, key: value}


def test_nothing_returned_changes_nothing() -> None:
    """None and an empty mapping leave the state alone."""
    agent = Agent.new("a", state={"own": 1})
    assert agent.cmd(action_returning(None)) == (agent, [])
    assert agent.cmd(action_returning({})) == (agent, [])


@pytest.mark.parametrize("result", [None, {"own": 2}, Memory.new(now=1)])
def test_a_result_may_come_with_directives(result: Any) -> None:
    """The result goes into the state, the directives go out in their order."""
    asked = [directives.Stop(reason="a"), directives.Emit(signal=Signal(type="b"))]
    agent = Agent.new("a", state={"own": 1})
    after, effects = agent.cmd(action_returning((result, asked)))
    assert effects == asked
    assert after == agent.cmd(action_returning(result))[0]


@action
def process_observation(ctx: Context, temp: float) -> Memory:
    """Note a reading and plan its check."""
    return ctx.memory.world_put("temperature", temp).tasks_add("Verify reading")


def test_an_action_changes_memory_through_its_context() -> None:
    """It writes `__memory__` with its revisions, not top-level keys, and needs no memory to begin with."""
    bare = Agent.new("a")
    agent, effects = bare.cmd((process_observation, {"temp": 22.5}))
    assert effects == []
    assert set(agent.state) == {"__memory__"}
    assert memory.world_get(agent, "temperature") == 22.5
    assert [task["text"] for task in memory.tasks_open(agent)] == ["Verify reading"]
    changed = memory.of(agent)
    assert (changed.rev, changed.spaces["world"].rev, changed.spaces["tasks"].rev) == (2, 1, 1)
    assert not memory.has_memory(bare)


def test_the_context_always_offers_the_three_values() -> None:
    """Where the agent has none yet, they are fresh ones; where it has, its own."""
    seen: list[Context] = []
    look = action(name="look")(cast("Any", lambda ctx: seen.append(ctx)))
    bare = Agent.new("a")
    full = thread.append(identity.add_tag(memory.world_put(bare, "a", 1), "t"), {})
    bare.cmd(look)
    full.cmd(look)
    assert (seen[0].memory.rev, seen[0].identity.rev, seen[0].thread.rev) == (0, 0, 0)
    assert (seen[1].memory, seen[1].identity) == (memory.get(full), identity.get(full))
    assert seen[1].state == seen[1].agent.state
    assert bare.state == {}


def test_the_signal_is_in_the_context() -> None:
    """None where no signal led here."""
    seen: list[Signal | None] = []
    look = action(name="look")(cast("Any", lambda ctx: seen.append(ctx.signal)))
    signal = Signal(type="a")
    Agent.new("a").cmd(look, signal=signal)
    Agent.new("a").cmd(look)
    assert seen == [signal, None]


def test_every_form_of_an_action_is_understood() -> None:
    """An action, its name, either with parameters, or an instruction."""
    agent = Agent.new("a", actions=[count])
    forms: list[Any] = [count, "count", (count, {}), ("count", {"by": 1}), Instruction(action="count")]
    for form in forms:
        after, effects = agent.cmd(form)
        assert (after.state["count"], effects) == (1, [])
        assert cmd(agent, form) == (after, effects)


def test_a_list_runs_in_order_and_the_state_goes_through_it() -> None:
    """Each action sees what those before it left."""
    agent, effects = Agent.new("a").cmd([count, (count, {"by": 5}), action_returning({"count": 0}), count])
    assert (agent.state["count"], effects) == (1, [])


def test_a_list_goes_on_after_a_failure() -> None:
    """What failed changed nothing, what came before and after stays done."""
    agent, effects = Agent.new("a").cmd([count, fail, "no_such_action", count])
    assert agent.state["count"] == 2
    assert [cast("directives.Error", error).action for error in effects] == ["fail", "no_such_action"]


def test_a_failure_leaves_the_agent_as_it_was() -> None:
    """The error says which action failed, how, and with which exception."""
    agent = Agent.new("a", state={"own": 1})
    after, effects = agent.cmd(fail)
    error = the_error(effects)
    assert after is agent
    assert (error.action, error.context, error.kind) == ("fail", "run", "ValueError")
    assert "it broke" in error.message
    assert "raise ValueError(text)" in error.trace


@given(st.text())
def test_a_failure_is_reported_whatever_its_text(text: str) -> None:
    """Blank, with NUL or broken: the error still names the action, and the rest of the list still runs."""

    @action
    def broken(ctx: Context) -> None:
        raise ValueError(text)

    agent, effects = Agent.new("a").cmd([count, broken, count])
    error = the_error(effects)
    assert (error.action, error.context, error.kind) == ("broken", "run", "ValueError")
    assert error.message
    assert agent.state["count"] == 2
    assert directives.Error.from_json(error.to_json()) == error


def test_a_failure_that_cannot_even_be_printed_is_reported() -> None:
    """An exception whose text raises is still an Error of its action."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    @action
    def broken(ctx: Context) -> None:
        raise Mute

    error = the_error(Agent.new("a").cmd(broken)[1])
    assert (error.action, error.kind) == ("broken", "Mute")


@given(st.text().filter(lambda key: key != "by"))
def test_a_wrong_parameter_is_reported_by_name(key: str) -> None:
    """The error names action and parameter, whatever the parameter is called, and nothing ran."""
    agent = Agent.new("a")
    after, effects = agent.cmd([(count, {key: 1})])
    error = the_error(effects)
    assert after is agent
    assert error.context in ("params", "normalize")
    assert error.action == "count" or error.context == "normalize"
    assert error.field is not None


def test_parameters_of_another_type_are_reported_by_name() -> None:
    """The field is the parameter."""
    error = the_error(Agent.new("a").cmd((count, {"by": "one"}))[1])
    assert (error.action, error.field, error.context) == ("count", "by", "params")
    assert error.kind == "InvalidParams"
    assert error.trace == ""


@pytest.mark.parametrize(
    "wanted", [5, None, "", "no_such_action", {"a": 1}, (count, 5), (count,), [count, 5], [[count]]]
)
def test_what_is_no_action_is_an_error_of_normalizing(wanted: Any) -> None:
    """Nothing runs, nothing is raised, the agent is the same."""
    agent = Agent.new("a")
    after, effects = agent.cmd(wanted)
    error = the_error(effects)
    assert after is agent
    assert (error.context, error.message != "") == ("normalize", True)


def test_an_empty_list_does_nothing() -> None:
    """There is nothing to run."""
    agent = Agent.new("a")
    assert agent.cmd([]) == (agent, [])


RESULTS: dict[str, Any] = {
    "number": 5,
    "text": "text",
    "list": [1],
    "object": object(),
    "key that is no text": {5: 1},
    "value no codec holds": {"own": object()},
    "pair without directives": ({}, 5),
    "pair with text": ({}, "ab"),
    "three": ({}, [], []),
    "directive that is none": ({}, ["stop"]),
    "slot with a map": {"__memory__": {}},
    "slot with another value": {"__identity__": Memory.new()},
    "slot by operation": (None, [directives.SetPath(path=("__thread__", "rev"), value=1)]),
    "empty state key": {" ": 1},
}


@pytest.mark.parametrize("result", RESULTS.values(), ids=RESULTS)
def test_a_result_that_is_none_is_refused(result: Any) -> None:
    """The state stays as it was, and the error blames the result of the action."""
    agent = Agent.new("a", state={"own": 1})
    after, effects = agent.cmd(action_returning(result))
    error = the_error(effects)
    assert after is agent
    assert (error.context, error.action) == ("result", "returning")


def test_an_action_can_append_to_the_thread_but_not_shorten_it() -> None:
    """Entries that are lost, dropped behind a higher revision, or rewritten are refused."""
    agent = thread.append(Agent.new("a"), [{"kind": "a"}, {"kind": "b"}])
    before = thread.of(agent)
    rewritten = Thread(id=before.id).append([{"kind": "x"}] * 9)
    for forged in (Thread(id=before.id), Thread(id=before.id, rev=99), rewritten):
        after, effects = agent.cmd(action_returning(forged))
        assert the_error(effects).field == "state.__thread__"
        assert [entry.kind for entry in thread.slice(after, 0, 1)] == ["a", "b"]
    after, effects = agent.cmd(action(name="note")(cast("Any", lambda ctx: ctx.thread.append({"kind": "c"}))))
    assert effects == []
    assert [entry.kind for entry in thread.filter_by_kind(after, [*"abc"])] == ["a", "b", "c"]


def test_now_decides_every_time_in_the_result() -> None:
    """With `now` and a source of ids, a command gives the same value every time."""
    observe = (process_observation, {"temp": 22.5})
    with reproducible():
        agent = thread.ensure(Agent.new("a"))
    with reproducible():
        first, _ = agent.cmd(observe, now=77)
    with reproducible(at=5_000):
        assert agent.cmd(observe, now=77)[0] == first
    changed = memory.of(first)
    assert (changed.created_at, changed.updated_at) == (77, 77)
    assert [entry.at for entry in thread.entries(first)] == [77, 77]


@pytest.mark.parametrize("now", [-1, 1.5, "now", True])
def test_a_wrong_now_is_refused(now: Any) -> None:
    """Time is whole milliseconds from 1970 on."""
    with pytest.raises(OmoideError, match="now"):
        Agent.new("a").cmd(count, now=now)


def test_only_agents_have_commands() -> None:
    """The function refuses what is no agent."""
    with pytest.raises(OmoideError, match="must be an Agent"):
        cmd(cast("Agent", "a"), count)
