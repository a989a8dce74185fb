"""Deep, cyclic, huge and misleading data is handled in bounded time."""

from __future__ import annotations

import copy
import inspect
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from omoide import (
    Agent,
    Checkpoint,
    Definition,
    Identity,
    Memory,
    Signal,
    Space,
    Thread,
    action,
    directives,
    errors,
    identity,
    memory,
    receive,
    restore,
    thread,
)
from omoide.core import FrozenList, FrozenMap
from omoide.core.frozen import MAX_STORED_DEPTH


@action
def noop(ctx: Any) -> None:
    """Do nothing."""


TAKING: dict[str, Callable[[Any], Any]] = {
    "FrozenMap": lambda given: FrozenMap({"k": given}),
    "FrozenMap.set": lambda given: FrozenMap[str, Any]().set("k", given),
    "FrozenMap.update": lambda given: FrozenMap[str, Any]().update({"k": given}),
    "FrozenMap |": lambda given: FrozenMap[str, Any]() | {"k": given},
    "| FrozenMap": lambda given: FrozenMap[str, Any]().__ror__({"k": given}),
    "FrozenList": lambda given: FrozenList([given]),
    "FrozenList.append": lambda given: FrozenList().append(given),
    "FrozenList.extend": lambda given: FrozenList().extend([given]),
    "FrozenList.insert": lambda given: FrozenList().insert(0, given),
    "FrozenList.set": lambda given: FrozenList([0]).set(0, given),
    "FrozenList.change": lambda given: FrozenList([{"id": "a"}]).change("a", lambda old: given),
    "FrozenList +": lambda given: FrozenList[Any]().__add__([given]),
    "list + FrozenList": lambda given: FrozenList[Any]().__radd__([given]),
    "Space": lambda given: Space(data={"k": given}),
    "Signal": lambda given: Signal(type="a", data=given, id="s", time=0),
    "world_put": lambda given: Memory(id="m").world_put("k", given).world(),
    "append_to_space": lambda given: Memory(id="m").append_to_space("tasks", given).tasks(),
    "put_extension": lambda given: Identity().put_extension("p", {"k": given}).extensions,
    "thread.append": lambda given: (
        Thread(id="t").append({"id": "e", "payload": {"k": given}}).entries[0].payload
    ),
    "Agent.new": lambda given: Agent.new("a", state={"k": given}).state,
    "route": lambda given: Definition.new("a", actions=[noop], routes=[("go", (noop, {"k": given}))]).routes,
}


@pytest.mark.parametrize("take", TAKING.values(), ids=TAKING)
def test_nothing_that_was_given_can_be_changed_afterwards(take: Callable[[Any], Any]) -> None:
    """Whatever takes data keeps its own: changing the original, at any depth, changes nothing inside."""
    given: dict[str, Any] = {"deep": {"list": [1]}}
    taken = take(given)
    before = repr(taken)
    given["deep"]["list"].append(2)
    given["new"] = 3
    assert repr(taken) == before
    hash(taken)


def test_no_public_method_of_a_list_takes_items_unfrozen() -> None:
    """What a FrozenList offers besides is reading."""
    reading = {"at", "count", "extends", "find_by_id", "id_of", "index", "to_python"}
    changing = {"append", "change", "delete", "extend", "insert", "remove", "set"}
    assert {name for name in dir(FrozenList) if not name.startswith("_")} == reading | changing


def test_data_that_refers_to_itself_many_times_is_refused_in_time() -> None:
    """A list held twice by a list that is held twice, and so on, counts as what it would be written as."""
    bomb: Any = [0]
    for _ in range(40):
        bomb = [bomb, bomb]
    with pytest.raises(errors.Unsupported, match="freeze it in parts"):
        FrozenMap({"bomb": bomb})


def test_an_agent_that_keeps_its_past_inside_its_present_is_stopped_while_it_can_be_saved() -> None:
    """An action that would nest too deeply is an Error, and the agent can still be written and read."""

    @action
    def look_back(ctx: Any) -> Memory:
        kept: Memory = ctx.memory.world_put("before", ctx.memory.world())
        return kept

    agent, effects = Agent.new("nostalgic").cmd(look_back)
    for _ in range(2 * MAX_STORED_DEPTH):
        agent, effects = agent.cmd(look_back)
    assert [effect.kind for effect in effects if isinstance(effect, directives.Error)] == ["Unsupported"]
    assert Agent.from_json(agent.to_json()) == agent
    assert repr(memory.world(agent))


def test_a_space_may_hold_the_state_of_an_agent_but_not_all_of_its_past() -> None:
    """Such a space is changed like any other; state in state is refused while the agent can be saved."""
    agent = memory.world_put(Agent.new("a", state={"n": 1}), "k", 1)
    agent = memory.put_space(agent, "copy", Space(data=agent.state))
    assert memory.get_in_space(memory.put_in_space(agent, "copy", "x", 1), "copy", "x") == 1
    for _ in range(MAX_STORED_DEPTH):
        try:
            agent = memory.put_space(agent, "past", Space(data=agent.state))
        except errors.Unsupported:
            break
    else:
        pytest.fail("the state was nested without end")
    assert Agent.from_json(agent.to_json()) == agent


def test_values_of_our_own_cannot_be_nested_without_end() -> None:
    """A space that holds a space that holds a space is refused before it is too deep to be freed."""

    def nested() -> Space:
        space = Space()
        for _ in range(10 * MAX_STORED_DEPTH):
            space = Space(data=space)
        return space

    with pytest.raises(errors.Unsupported, match="nested deeper"):
        nested()


def test_very_many_items_of_one_id_are_found_changed_and_removed_in_time() -> None:
    """Ten thousand items that share an id cost no more than going through the list."""
    size = 10_000
    full: FrozenList[Any] = FrozenList([{"id": "same", "n": at} for at in range(size)])
    assert len(full.find_by_id("same")) == size
    changed = full.change("same", lambda item: item.set("n", -1))
    assert {item["n"] for item in changed} == {-1}
    for at in range(100):
        changed = changed.append({"id": "same", "n": at})
    assert len(changed.find_by_id("same")) == size + 100
    assert len(changed.remove("same")) == 0


LOSING: dict[str, Callable[[Thread], Any]] = {
    "delete": lambda log: ({}, [directives.DeleteKeys(keys=["__thread__"])]),
    "none": lambda log: {"__thread__": None},
    "another": lambda log: Thread(),
    "shorter": lambda log: Thread(id=log.id),
    "forged": lambda log: Thread(id=log.id).append([{"kind": "forged"}] * 20),
}


@pytest.mark.parametrize("lose", LOSING.values(), ids=LOSING)
def test_an_action_cannot_lose_or_rewrite_what_happened(lose: Callable[[Thread], Any]) -> None:
    """Whichever way it tries, the log stays, and the attempt is an Error."""
    agent = thread.append(Agent.new("a"), [{"kind": "note"}] * 10)

    @action
    def forget(ctx: Any) -> Any:
        return lose(ctx.thread)

    after, effects = agent.cmd(forget)
    assert [entry.kind for entry in thread.entries(after)][:10] == ["note"] * 10
    assert isinstance(effects[0], directives.Error)


def test_replacing_the_state_keeps_the_slots_that_it_does_not_speak_of() -> None:
    """An action that starts over with its own data keeps memory, identity and log."""
    agent = memory.world_put(thread.append(Agent.new("a", state={"n": 1}), {"kind": "note"}), "k", 1)

    @action
    def start_over(ctx: Any) -> Any:
        return {}, [directives.ReplaceState(state={"fresh": True})]

    after, effects = agent.cmd(start_over)
    assert (effects, after.state.get("n"), after.state["fresh"]) == ([], None, True)
    assert memory.world_get(after, "k") == 1
    assert thread.entries(after)[0].kind == "note"


def test_a_hook_cannot_put_another_agent_in_place_of_this_one() -> None:
    """What a hook returns is this agent with a state that it may have."""
    other = Agent.new("other")
    agent = Agent.new("a", on_after_cmd=lambda agent, done, effects: (other, effects), actions=[noop])
    after, effects = agent.cmd(noop)
    assert after is agent
    assert isinstance(effects[0], directives.Error)
    assert effects[0].context == "hook"


@dataclass
class Shape:
    """The state of an agent."""

    n: int = 0


def test_a_checkpoint_is_checked_when_it_is_restored() -> None:
    """A state that the agent could never have had is not restored."""
    definition = Definition.new("a", schema=Shape)
    with pytest.raises(errors.RestoreFailed, match=r"state\.n"):
        restore(Checkpoint(id="a", name="a", state={"n": "many"}), definition)
    with pytest.raises(errors.RestoreFailed, match="Memory"):
        restore(Checkpoint(id="a", name="a", state={"__memory__": {"world": {}}}), definition)


def test_changing_a_routed_action_after_the_fact_changes_nothing() -> None:
    """The parameters of a route are the ones it was declared with."""
    params = {"n": 1}

    @action
    def count(ctx: Any, n: int) -> dict[str, int]:
        return {"n": n}

    agent = Agent.new("a", routes=[("go", (count, params))])
    params["n"] = 99
    after, _ = receive(agent, Signal(type="go"))
    assert after.state["n"] == 1


@pytest.mark.parametrize("error", [errors.Conflict("x", 1, 2), errors.Unsupported("a.b", "is odd", "fix it")])
def test_errors_survive_the_way_to_another_process(error: errors.OmoideError) -> None:
    """Words and attributes are the same after a copy, which goes the way that pickling goes."""
    again = copy.copy(error)
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_threads_that_share_a_value_see_and_make_the_same() -> None:
    """Finding by id builds an index inside a shared list; whoever comes first, all get the right answer."""
    agent = memory.put_space(
        Agent.new("a"), "log", Space(data=[{"id": str(n), "n": n} for n in range(2_000)])
    )
    results: list[Any] = []

    def work(start: int) -> None:
        mine = agent
        for n in range(start, 2_000, 8):
            mine = memory.update_in_space(mine, "log", str(n), lambda item: item.set("n", -item["n"]))
        log = memory.of(mine).spaces["log"].data
        results.append([item["n"] for item in log] == [-n if n % 8 == start else n for n in range(2_000)])

    workers = [threading.Thread(target=work, args=(start,)) for start in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert results == [True] * 8


@pytest.mark.parametrize(
    "function", [memory.append_to_space, memory.tasks_add, identity.add_tag], ids=lambda f: f.__name__
)
def test_functions_on_agents_say_what_they_take(function: Callable[..., Any]) -> None:
    """Their signature begins with the agent and they live where they are imported from."""
    assert next(iter(inspect.signature(function).parameters)) == "agent"
    assert function.__module__ in ("omoide.memory", "omoide.identity")
    assert function.__qualname__ == function.__name__


def test_a_change_that_changes_nothing_gives_the_same_agent_back() -> None:
    """So that callers can tell by identity whether anything happened."""
    agent = identity.add_tag(memory.ensure_space(Agent.new("a"), "log", []), "web")
    assert memory.ensure_space(agent, "log", []) is agent
    assert memory.remove_from_space(agent, "log", "nobody") is agent
    assert identity.add_tag(agent, "web") is agent
