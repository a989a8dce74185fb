"""A change that would be lost without a word is an error that names it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
import pytest

from omoide import Action, Agent, Context, Memory, Plugin, action, identity, memory, thread
from omoide.core import FrozenMap, Instruction, state
from omoide.core.action import Directive, Error
from omoide.core.definition import Outcome
from omoide.core.state import DeleteKeys, Parent, SetPath
from omoide.errors import MountFailed, NotFound, WrongType
from omoide.strategy import Direct

Config = FrozenMap[str, Any]


def plugin(mount: Callable[[Agent, Config], Any]) -> type[Plugin]:
    """A plugin called `rag` that is mounted like this."""
    return type("Rag", (Plugin,), {"name": "rag", "mount": lambda self, *given: mount(*given)})


def run(result: Callable[[Context], Any], agent: Agent | None = None) -> tuple[Agent, list[Directive]]:
    """Run an action with this result on an agent."""
    before = Agent.new("a") if agent is None else agent
    return before.cmd(action(name="act")(lambda ctx: result(ctx)))


def error_of(outcome: tuple[Agent, list[Directive]]) -> Error:
    (error,) = outcome[1]
    assert isinstance(error, Error)
    return error


FORGOTTEN: dict[str, Callable[[Agent], Agent]] = {
    "ensure": memory.ensure,
    "ensure_space": lambda agent: memory.ensure_space(agent, "rag:cache", {}),
    "put_in_space": lambda agent: memory.put_in_space(memory.ensure(agent), "world", "k", 1),
    "world_put": lambda agent: memory.world_put(agent, "pointers", {}),
    "identity": lambda agent: identity.put_extension(agent, "rag", {}),
    "thread": lambda agent: thread.append(agent, {"kind": "note"}),
    "cmd": lambda agent: agent.cmd(action(name="act")(lambda ctx: {"rag": 1}))[0],
    "replace": lambda agent: agent.replace(state={"rag": 1}),
}


@pytest.mark.parametrize("change", FORGOTTEN.values(), ids=FORGOTTEN)
@pytest.mark.parametrize(
    "answer",
    [lambda agent: None, lambda agent: {"n": 1}, lambda agent: agent, lambda agent: ({"n": 1}, agent)],
    ids=["None", "slice", "agent", "both"],
)
def test_a_mount_that_keeps_its_changed_agent_to_itself_is_reported(
    change: Callable[[Agent], Agent], answer: Callable[[Agent], Any]
) -> None:
    """What it wrote is lost, so a warning names the plugin; where warnings are errors, there is no agent."""

    def mount(agent: Agent, config: Config) -> Any:
        change(agent)
        return answer(agent)

    with pytest.warns(UserWarning, match="plugin 'rag' of agent 'a': mount changed.*return the agent"):
        Agent.new("a", plugins=[plugin(mount)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(MountFailed, match="return the agent"):
            Agent.new("a", plugins=[plugin(mount)])


@pytest.mark.parametrize("change", FORGOTTEN.values(), ids=FORGOTTEN)
def test_a_mount_that_returns_its_changed_agent_is_heard(change: Callable[[Agent], Agent]) -> None:
    """Reading, and a change that is returned, are no loss; the agent is an ordinary one afterwards."""

    def mount(agent: Agent, config: Config) -> Any:
        memory.world(agent), identity.actions(agent), memory.of(agent)
        return change(agent)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent = Agent.new("a", plugins=[plugin(mount)])
    assert type(agent) is Agent
    assert type(memory.world_put(agent, "k", 1)) is Agent


class Items(msgspec.Struct):
    """A state with tasks of its own."""

    tasks: list[int] = []


@pytest.mark.parametrize("key", ["world", "tasks"])
@pytest.mark.parametrize(
    "result",
    [
        lambda key: {key: {"temperature": 22}},
        lambda key: (None, [SetPath(path=[key, "x"], value=1)]),
        lambda key: (None, [state.SetState(attrs={key: []})]),
    ],
    ids=["mapping", "path", "merge"],
)
def test_a_space_at_the_top_of_the_state_is_reported(key: str, result: Callable[[str], Any]) -> None:
    """An action that means the memory writes beside it; the error says how to write into it."""
    agent = memory.ensure(Agent.new("a"))
    after, directives = run(lambda ctx: result(key), agent)
    assert key in after.state
    error = error_of((after, directives))
    assert (error.context, error.field) == ("result", f"state.{key}")
    assert "ctx.memory" in error.message
    assert run(lambda ctx: result(key), after)[1] == []


def test_a_key_called_like_a_space_is_fine_where_somebody_owns_it() -> None:
    """By the schema, by a plugin, or because the agent was made with it."""
    owner = type("Owner", (Plugin,), {"name": "world"})
    for agent in (
        Agent.new("a", schema=Items),
        Agent.new("a", state={"tasks": [0]}),
    ):
        assert run(lambda ctx: {"tasks": [1]}, agent)[1] == []
    assert run(lambda ctx: {"world": {"n": 1}}, Agent.new("a", plugins=[owner]))[1] == []


@pytest.mark.parametrize(
    ("slot", "change"),
    [
        (memory, lambda old: old.world_put("k", 1)),
        (identity, lambda old: old.add_tag("web")),
        (thread, lambda old: old.append({"kind": "note"})),
    ],
    ids=["memory", "identity", "thread"],
)
def test_an_update_of_what_is_not_there_says_to_ensure_it(slot: Any, change: Callable[[Any], Any]) -> None:
    """The function is given None, and where it cannot take that the error names the remedy."""
    with pytest.raises(NotFound, match="ensure"):
        slot.update(Agent.new("a"), change)
    with pytest.raises(WrongType, match="ensure"):
        slot.update(Agent.new("a"), lambda old: old)
    ensured = slot.ensure(Agent.new("a"))
    assert slot.get(slot.update(ensured, change)).rev == 1


def test_an_update_hides_no_error_of_the_function() -> None:
    """Another error of the function comes out as it is."""

    def fail(old: Memory | None) -> Memory:
        raise AttributeError("mine")

    with pytest.raises(AttributeError, match="mine"):
        memory.update(Agent.new("a"), fail)
    with pytest.raises(AttributeError, match="NoneType"):
        memory.update(memory.ensure(Agent.new("a")), lambda old: None.gone)  # type: ignore[attr-defined]


# Actions that return an agent


def test_an_action_may_return_an_agent() -> None:
    """The functions on agents can be used inside an action; directives may come with the agent."""

    def act(ctx: Context) -> Any:
        agent = memory.world_put(ctx.agent, "door", "open")
        return identity.add_tag(agent, "web")

    after, directives = run(act)
    assert (memory.world_get(after, "door"), [*identity.tags(after)]) == ("open", ["web"])
    assert directives == []
    asked = state.SetState(attrs={"n": 1})
    after, directives = run(lambda ctx: (act(ctx), [asked]))
    assert (after.state["n"], memory.world_get(after, "door")) == (1, "open")


def _return(result: object, ctx: Context) -> object:
    return result


def test_the_agent_that_an_action_returns_is_its_own() -> None:
    """Another agent, or one with another definition, is no result."""
    for other in (Agent.new("a", id="other"), Agent.new("b")):
        after, directives = run(partial(_return, other), agent := Agent.new("a"))
        assert after is agent
        assert error_of((after, directives)).kind == "InvalidState"


def test_an_agent_returned_by_an_action_may_not_lose_its_thread() -> None:
    """The rules of a result hold for each part of the agent's state."""
    agent = thread.append(Agent.new("a"), {"kind": "note"})
    _, directives = run(lambda ctx: ctx.agent.replace(state={}), agent)
    assert "__thread__" in error_of((agent, directives)).message


# Foreign and older values in the slots


REFUSED: dict[str, Callable[[Context], Any]] = {
    "foreign": lambda ctx: Memory.new().world_put("k", 1).world_put("k", 2).world_put("k", 3),
    "older": lambda ctx: ctx.memory.replace(rev=0),
    "in a mapping": lambda ctx: {"__memory__": Memory.new()},
    "in an agent": lambda ctx: memory.put(ctx.agent, Memory.new()),
    "by a path": lambda ctx: (None, [SetPath(path=["__memory__"], value=Memory.new())]),
}


@pytest.mark.parametrize("result", REFUSED.values(), ids=REFUSED)
def test_a_foreign_or_older_memory_is_refused(result: Callable[[Context], Any]) -> None:
    """As a thread is: what the agent knows would be lost without a word."""
    agent = memory.world_put(memory.world_put(Agent.new("a"), "k", "v"), "k", "w")
    after, directives = run(result, agent)
    assert after is agent
    error = error_of((after, directives))
    assert (error.kind, "ctx.memory" in error.message) == ("InvalidState", True)


def test_a_memory_with_an_older_space_is_refused() -> None:
    """Changes that were made beside the current memory are another branch of its past."""
    base = memory.ensure_space(Agent.new("a"), "facts", {})
    branch = memory.of(base).world_put("a", 1).world_put("a", 2).world_put("a", 3)
    agent = memory.put_in_space(base, "facts", "k", "v")
    after, directives = run(lambda ctx: branch, agent)
    assert after is agent
    assert "facts" in error_of((after, directives)).message


def test_a_memory_that_goes_on_is_taken() -> None:
    """Changed, with a space deleted, or with other metadata at the same revision."""
    agent = memory.ensure_space(Agent.new("a"), "facts", {})
    for result in (
        lambda ctx: ctx.memory.world_put("k", 1),
        lambda ctx: ctx.memory.delete_space("facts"),
        lambda ctx: ctx.memory.replace(metadata={"n": 1}),
    ):
        after, directives = run(result, agent)
        assert directives == []
        assert after != agent
    first, directives = run(lambda ctx: Memory.new(now=5))
    assert (memory.of(first).created_at, directives) == (5, [])


# The parent is set once


def test_a_parent_is_set_once() -> None:
    """An action may set it where there is none, and neither it nor a strategy may change it."""
    agent, directives = run(lambda ctx: {"__parent__": Parent(id="mother")})
    assert directives == []
    for result in (
        lambda ctx: {"__parent__": Parent(id="stepmother")},
        lambda ctx: (None, [SetPath(path=["__parent__"], value=Parent(id="x"))]),
        lambda ctx: (None, [DeleteKeys(keys=["__parent__"])]),
    ):
        after, directives = run(result, agent)
        assert after is agent
        assert "__parent__" in error_of((after, directives)).message
    same, directives = run(lambda ctx: {"__parent__": Parent(id="mother")}, agent)
    assert (same, directives) == (agent, [])


def test_a_mount_may_not_change_the_parent() -> None:
    """A plugin sees who spawned the agent, and cannot say otherwise."""

    def mount(agent: Agent, config: Config) -> Agent:
        return state.PARENT.put(agent, Parent(id="me"))

    given = {"__parent__": Parent(id="mother")}
    with pytest.raises(MountFailed, match="__parent__"):
        Agent.new("a", state=given, plugins=[plugin(mount)])


# Hooks


def act_twice() -> Action:
    @action(name="act")
    def act(ctx: Context) -> dict[str, int]:
        return {"n": ctx.state.get("n", 0) + 1}

    return act


def test_a_hook_may_hand_back_what_it_was_given() -> None:
    """It is given a tuple of instructions, and may return it, a part of it, or none of it."""
    act = act_twice()
    for hook, count in (
        (lambda agent, instructions: (agent, instructions), 2),
        (lambda agent, instructions: (agent, instructions[:1]), 1),
        (lambda agent, instructions: (agent, ()), 0),
        (lambda agent, instructions: (agent, [*instructions]), 2),
        (lambda agent, instructions: (agent, (act, {})), 1),
        (lambda agent, instructions: agent, 2),
    ):
        after, directives = Agent.new("a", on_before_cmd=hook).cmd([act, act])
        assert (after.state.get("n", 0), directives) == (count, [])


def test_a_hook_after_a_command_may_hand_back_the_directives() -> None:
    """As a list or a tuple."""
    act = act_twice()
    for hook in (
        lambda agent, instructions, directives: (agent, directives),
        lambda agent, instructions, directives: (agent, tuple(directives)),
    ):
        assert Agent.new("a", on_after_cmd=hook).cmd(act)[1] == []


def test_a_strategy_may_hand_on_what_it_was_given() -> None:
    """The instructions of a hook reach the strategy as a tuple again."""
    seen: list[object] = []

    class Watching(Direct):
        def cmd(self, agent: Agent, instructions: Any, ctx: Context) -> Outcome:
            seen.append(instructions)
            return super().cmd(agent, instructions, ctx)

    hook = lambda agent, instructions: (agent, instructions)  # noqa: E731
    Agent.new("a", strategy=Watching(), on_before_cmd=hook).cmd(act_twice())
    (given,) = seen
    assert isinstance(given, tuple)
    assert [type(one) for one in given] == [Instruction]
