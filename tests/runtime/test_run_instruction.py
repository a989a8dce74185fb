"""Effectful actions run beside the agent, and their results are merged."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    server_of,
    sig,
    to_plain,
)

from omoide import Action, Context, action, memory
from omoide.core import Instruction
from omoide.core.state import IDENTITY, MEMORY
from omoide.directives import Emit, MemoryUpsert, RunInstruction
from omoide.errors import ActionFailed, Dropped, WrongType
from omoide.runtime import Runtime
from omoide.testing import eventually


class Gate:
    """What an effectful action waits for."""

    def __init__(self) -> None:
        self.open = anyio.Event()
        self.entered = anyio.Event()

    def action(self, what: Callable[[Context], Any], name: str = "touch") -> Action:
        """An effectful action that looks at its context, waits, and then returns something."""

        async def touch(ctx: Context) -> Any:
            self.entered.set()
            await self.open.wait()
            return what(ctx)

        return action(name=name, effectful=True)(touch)


@pytest.fixture
def gate() -> Gate:
    """A gate that is closed."""
    return Gate()


async def test_an_effectful_action_runs_beside_the_agent(gate: Gate) -> None:
    """The call does not wait, other signals are handled, and the result is merged in the end."""
    touch = gate.action(lambda ctx: {"touched": True})
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": touch, "up": count_signals}))
        assert "touched" not in (await runtime.call("a", sig("go"))).state
        await gate.entered.wait()
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        gate.open.set()
        await runtime.stop("a")
    assert runtime.stats()["handled"] == 2


async def test_a_result_is_merged_into_the_agent_as_it_is_by_then(gate: Gate) -> None:
    """What changed meanwhile stays, and the action saw the agent as it was when it began."""
    seen: list[Any] = []

    def look(ctx: Context) -> dict[str, Any]:
        seen.append(ctx.state.get("count"))
        return {"touched": {"by": "hand"}}

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": gate.action(look), "up": count_signals}))
        await runtime.call("a", sig("up"))
        await runtime.call("a", sig("go"))
        await gate.entered.wait()
        await runtime.call("a", sig("up"))
        gate.open.set()
        await eventually(lambda: "touched" in server_of(runtime).agent.state)
        assert to_plain((await runtime.state("a")).state) == {"count": 2, "touched": {"by": "hand"}}
    assert seen == [1]


async def test_directives_of_an_effectful_action_are_carried_out(
    gate: Gate, recorder: SignalRecorder
) -> None:
    """After what it returned was merged."""
    touch = gate.action(lambda ctx: ({"touched": True}, [Emit(signal=sig("done"))]))
    gate.open.set()
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": touch, "done": recorder}))
        await runtime.call("a", sig("go"))
        await eventually(lambda: recorder.types == ["done"])
        assert (await runtime.state("a")).state["touched"] is True


async def test_the_action_knows_the_signal_that_led_to_it() -> None:
    """Also where its directive had to wait for others before it."""
    seen: list[str] = []

    @action(effectful=True)
    async def touch(ctx: Context) -> None:
        assert ctx.signal is not None
        seen.append(ctx.signal.type)

    first = Emit(signal=sig("x"), dispatch={"bus": True})
    waiting = action_returning(first, RunInstruction(instruction=Instruction(action="touch")))
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"now": touch, "later": waiting}, actions=[touch]))
        await runtime.call("a", sig("now"))
        await runtime.call("a", sig("later"))
    assert seen == ["now", "later"]


async def test_a_plain_effectful_action_holds_up_nobody() -> None:
    """It runs in a thread."""
    threads: list[bool] = []

    @action(effectful=True)
    def touch(ctx: Context) -> dict[str, Any]:
        threads.append(threading.current_thread() is threading.main_thread())
        return {"touched": True}

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": touch}))
        server = runtime.whereis("a")
        assert server is not None
        await runtime.call("a", sig("go"))
        await eventually(lambda: server.agent.state.get("touched"))
    assert threads == [False]


async def test_an_effectful_action_that_fails_is_reported(errors: ErrorRecorder, gate: Gate) -> None:
    """With its name; the agent is as it was, and goes on."""
    gate.open.set()

    def refuse(ctx: Context) -> None:
        raise OSError("no paper")

    async with Runtime() as runtime:
        before = an_agent("a", {"go": gate.action(refuse), "up": count_signals})
        await runtime.start(before, on_error=errors)
        await runtime.call("a", sig("go"))
        await eventually(lambda: errors)
        assert [(one.context, one.action, one.kind) for one in errors] == [("run", "touch", "OSError")]
        assert (await runtime.state("a")).state == before.state
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


@pytest.mark.parametrize("result", [7, "done", ({}, "no list"), {1: 2}, ({"a": 1}, ["no directive"])])
async def test_what_cannot_be_merged_is_reported(result: Any, errors: ErrorRecorder, gate: Gate) -> None:
    """And nothing of it is."""
    gate.open.set()
    async with Runtime() as runtime:
        before = an_agent("a", {"go": gate.action(lambda ctx: result), "up": count_signals})
        await runtime.start(before, on_error=errors)
        await runtime.call("a", sig("go"))
        await eventually(lambda: errors)
        assert [one.context for one in errors] == ["result"]
        assert (await runtime.state("a")).state == before.state


# Results for another action


def take_action(taken: list[Any]) -> Action:
    """An action that takes what an effectful one brought."""

    @action
    def take(ctx: Context, action: str, status: str, result: Any, error: str | None) -> dict[str, Any]:
        taken.append((action, status, to_plain(result), error, ctx.signal and ctx.signal.type))
        return {"taken": status}

    return take


def run_then_take(**params: Any) -> Any:
    """An action that has another one run, and its result taken."""
    instruction = Instruction(action="touch", params=params)
    return action_returning(RunInstruction(instruction=instruction, result_action="take"))


async def test_a_result_is_given_to_the_action_that_was_named(gate: Gate) -> None:
    """And is not merged itself; that action knows the signal that it all began with."""
    taken: list[Any] = []
    touch = gate.action(lambda ctx: ({"found": 7}, []))
    gate.open.set()
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": run_then_take()}, actions=[touch, take_action(taken)]))
        await runtime.call("a", sig("go"))
        await eventually(lambda: taken)
        assert taken == [("touch", "ok", {"found": 7}, None, "go")]
        assert to_plain((await runtime.state("a")).state) == {"taken": "ok"}


async def test_a_failure_is_given_to_the_action_that_was_named(gate: Gate, errors: ErrorRecorder) -> None:
    """With what went wrong: a raise, a cancellation that was not the agent's, or wrong parameters."""
    taken: list[Any] = []

    def refuse(ctx: Context) -> None:
        raise OSError("no paper")

    def give_up(ctx: Context) -> None:
        raise anyio.get_cancelled_exc_class()

    gate.open.set()
    for what, params in ((refuse, {}), (give_up, {}), (refuse, {"no": "such"})):
        async with Runtime() as runtime:
            parts = [gate.action(what), take_action(taken)]
            await runtime.start(
                an_agent("a", {"go": run_then_take(**params)}, actions=parts), on_error=errors
            )
            await runtime.call("a", sig("go"))
            await runtime.stop("a")
    assert [(status, result) for _, status, result, _, _ in taken] == [("error", None)] * 3
    assert "no paper" in taken[0][3]
    assert "cancelled" in taken[1][3]
    assert "no" in taken[2][3]
    assert errors == []


async def test_an_action_that_does_not_exist_is_reported(gate: Gate, errors: ErrorRecorder) -> None:
    """Whether it was to be run, or to take the result."""
    gate.open.set()
    touch = gate.action(lambda ctx: None)
    instruct = RunInstruction(instruction=Instruction(action="touch"), result_action="nobody")
    nothing = RunInstruction(instruction=Instruction(action="nobody"))
    async with Runtime() as runtime:
        agent = an_agent(
            "a", {"go": action_returning(instruct, nothing), "up": count_signals}, actions=[touch]
        )
        await runtime.start(agent, on_error=errors)
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(errors) == 2)
        assert "nobody" in errors.messages
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


# What changed meanwhile


def write_world(ctx: Context) -> Any:
    """Change a belief."""
    return ctx.memory.world_put("door", "open")


@pytest.mark.parametrize("form", ["memory", "mapping"])
async def test_a_slot_that_changed_meanwhile_is_not_overwritten(
    form: str, gate: Gate, errors: ErrorRecorder
) -> None:
    """Neither where the action returned the slot's value nor where it named its key."""

    def stale(ctx: Context) -> Any:
        new = ctx.memory.world_put("window", "shut")
        return new if form == "memory" else {MEMORY.key: new, "more": 1}

    async with Runtime() as runtime:
        agent = an_agent("a", {"go": gate.action(stale), "write": write_world})
        await runtime.start(agent, on_error=errors)
        await runtime.call("a", sig("go"))
        await gate.entered.wait()
        await runtime.call("a", sig("write"))
        gate.open.set()
        await eventually(lambda: errors)
        assert errors.kinds == ["Conflict"]
        assert MEMORY.key in errors.messages
        after = await runtime.state("a")
        assert (memory.world_get(after, "door"), memory.world_get(after, "window")) == ("open", None)
        assert "more" not in after.state


async def test_a_slot_that_nobody_else_touched_is_put_in_place(gate: Gate, errors: ErrorRecorder) -> None:
    """Another slot that changed meanwhile is no hindrance."""

    def learn(ctx: Context) -> Any:
        return ctx.memory.world_put("window", "shut")

    def introduce(ctx: Context) -> Any:
        return ctx.identity.put_profile("age", 7)

    async with Runtime() as runtime:
        agent = an_agent("a", {"go": gate.action(learn), "age": introduce})
        await runtime.start(agent, on_error=errors)
        await runtime.call("a", sig("go"))
        await gate.entered.wait()
        await runtime.call("a", sig("age"))
        gate.open.set()
        await eventually(lambda: memory.world_get(server_of(runtime).agent, "window"))
        after = await runtime.state("a")
        assert IDENTITY.get_or_new(after).age == 7
        assert errors == []


async def test_an_agent_that_an_action_returns_brings_what_it_changed(
    gate: Gate, errors: ErrorRecorder
) -> None:
    """And nothing else: what others changed meanwhile stays, removed keys go, and maps are replaced."""

    def learn(ctx: Context) -> Any:
        agent = memory.world_put(ctx.agent, "window", "shut")
        state = {key: value for key, value in agent.state.items() if key != "old"}
        return agent.replace(state={**state, "plan": {"b": 2}})

    async with Runtime() as runtime:
        given = {"old": 1, "plan": {"a": 1}, "count": 0}
        agent = an_agent("a", {"go": gate.action(learn), "up": count_signals}, state=given)
        await runtime.start(agent, on_error=errors)
        await runtime.call("a", sig("go"))
        await gate.entered.wait()
        await runtime.call("a", sig("up"))
        gate.open.set()
        await eventually(lambda: memory.world_get(server_of(runtime).agent, "window"))
        after = await runtime.state("a")
        assert {key: value for key, value in after.state.items() if key != MEMORY.key} == {
            "count": 1,
            "plan": {"b": 2},
        }
        assert errors == []


async def test_what_an_ended_life_began_changes_nothing_any_more(gate: Gate, errors: ErrorRecorder) -> None:
    """An action that was under way when the agent crashed has no result for the new life."""
    touch = gate.action(lambda ctx: {"touched": True})
    async with Runtime() as runtime:
        await runtime.start(
            an_agent("a", {"go": touch, "crash": crash, "up": count_signals}), on_error=errors
        )
        await runtime.call("a", sig("go"))
        await gate.entered.wait()
        await runtime.cast("a", sig("crash"))
        gate.open.set()
        for _ in range(3):
            await runtime.call("a", sig("up"))
        await anyio.wait_all_tasks_blocked()
        assert to_plain((await runtime.state("a")).state) == {"count": 3}
        assert errors == []


async def test_what_had_not_begun_when_the_life_ended_does_not_begin() -> None:
    """Neither an action nor a write into the agent itself, though both would be done in one go."""
    begun: list[str] = []

    @action(effectful=True)
    async def touch(ctx: Context) -> dict[str, Any]:
        begun.append("touched")
        return {"touched": True}

    put = MemoryUpsert(provider="inline", items=[{"key": "k", "value": 1}])
    agent = an_agent("a", {"go": touch, "put": action_returning(put), "crash": crash, "up": count_signals})
    async with Runtime() as runtime:
        await runtime.start(agent)
        for type in ("go", "put", "crash"):
            await runtime.cast("a", sig(type))
        await runtime.call("a", sig("up"))
        await anyio.wait_all_tasks_blocked()
        assert to_plain((await runtime.state("a")).state) == {"count": 1}
        assert begun == []


async def test_stopping_waits_for_what_is_under_way_and_takes_its_result(gate: Gate) -> None:
    """An agent ends after its effects."""
    touch = gate.action(lambda ctx: {"touched": True})
    async with Runtime() as runtime, anyio.create_task_group() as group:
        await runtime.start(an_agent("a", {"go": touch}))
        server = runtime.whereis("a")
        assert server is not None
        await runtime.call("a", sig("go"))
        await gate.entered.wait()
        group.start_soon(runtime.stop, "a")
        await anyio.wait_all_tasks_blocked()
        assert runtime.ids() == ["a"]
        gate.open.set()
        await server.ended.wait()
        assert server.agent.state["touched"] is True


async def test_a_result_is_merged_beside_other_spaces_that_changed_meanwhile(
    gate: Gate, errors: ErrorRecorder
) -> None:
    """What the effect wrote into one space is kept, though a signal wrote into another one."""

    def fetch(ctx: Context) -> Any:
        return ctx.memory.put_in_space("rag:cache", "page", "…")

    async with Runtime() as runtime:
        agent = memory.ensure_space(
            an_agent("a", {"go": gate.action(fetch), "write": write_world}), "rag:cache"
        )
        await runtime.start(agent, on_error=errors)
        await runtime.call("a", sig("go"))
        await gate.entered.wait()
        await runtime.call("a", sig("write"))
        gate.open.set()
        await eventually(lambda: memory.get_in_space(server_of(runtime).agent, "rag:cache", "page"))
        after = await runtime.state("a")
        assert memory.world_get(after, "door") == "open"
        assert errors == []


# Calls that wait for effects


async def test_a_call_waits_for_the_effects_of_its_signal_when_asked(gate: Gate) -> None:
    """The agent that it returns has their results, and other signals are handled meanwhile."""
    touch = gate.action(lambda ctx: {"touched": True})
    agent = an_agent("a", {"go": touch, "up": count_signals})
    async with Runtime() as runtime, anyio.create_task_group() as group:
        await runtime.start(agent)
        returned: list[Any] = []

        async def call() -> None:
            returned.append(await runtime.call("a", sig("go"), raise_errors=True))

        group.start_soon(call)
        await gate.entered.wait()
        assert (await runtime.call("a", sig("up"), raise_errors=True)).state["count"] == 1
        assert returned == []
        gate.open.set()
        await eventually(lambda: returned)
        assert to_plain(returned[0].state) == {"count": 1, "touched": True}


def fail(ctx: Context) -> None:
    """Fail."""
    raise OSError("no paper")


async def test_a_call_raises_the_error_of_an_action_when_asked(gate: Gate, errors: ErrorRecorder) -> None:
    """Of a pure action, of an effectful one, and of a result that could not be merged; policies know, too."""

    def stale(ctx: Context) -> Any:
        return ctx.memory.world_put("window", "shut")

    gate.open.set()
    slow = Gate()
    routes = {
        "pure": action(name="pure")(fail),
        "effect": gate.action(fail, "effect"),
        "stale": slow.action(stale, "stale"),
        "write": write_world,
    }
    async with Runtime() as runtime, anyio.create_task_group() as group:
        await runtime.start(an_agent("a", routes), on_error=errors)
        assert await runtime.call("a", sig("pure")) is not None
        caught = []

        async def call(type: str) -> None:
            with pytest.raises(ActionFailed) as raised:
                await runtime.call("a", sig(type), raise_errors=True)
            caught.append((type, raised.value.error.kind, raised.value.error.action, str(raised.value)))

        for type in ("pure", "effect"):
            await call(type)
        group.start_soon(call, "stale")
        await slow.entered.wait()
        await runtime.call("a", sig("write"))
        slow.open.set()
        await eventually(lambda: len(caught) == 3)
    assert [entry[:3] for entry in caught] == [
        ("pure", "OSError", "pure"),
        ("effect", "OSError", "effect"),
        ("stale", "Conflict", "stale"),
    ]
    assert "no paper" in caught[0][3]
    assert "space 'world'" in caught[2][3]
    assert errors.kinds == ["OSError", "OSError", "OSError", "Conflict"]


async def test_a_call_that_waits_is_told_when_the_agent_ends(gate: Gate) -> None:
    """It neither waits for ever nor gets an agent without the results."""
    agent = an_agent("a", {"go": gate.action(lambda ctx: None), "crash": crash})
    async with Runtime() as runtime, anyio.create_task_group() as group:
        await runtime.start(agent)
        dropped: list[str] = []

        async def call() -> None:
            with pytest.raises(Dropped) as raised:
                await runtime.call("a", sig("go"), raise_errors=True)
            dropped.append(raised.value.type)

        group.start_soon(call)
        await gate.entered.wait()
        await runtime.cast("a", sig("crash"))
        await eventually(lambda: dropped == ["go"])


async def test_the_same_signal_may_be_awaited_twice_at_once(gate: Gate) -> None:
    """Each call waits for its own effects."""
    agent = an_agent("a", {"go": gate.action(lambda ctx: {"touched": True})})
    signal, returned = sig("go"), list[Any]()
    async with Runtime() as runtime, anyio.create_task_group() as group:
        await runtime.start(agent)

        async def call() -> None:
            returned.append((await runtime.call("a", signal, raise_errors=True)).state["touched"])

        group.start_soon(call)
        group.start_soon(call)
        await gate.entered.wait()
        gate.open.set()
        await eventually(lambda: returned == [True, True])


async def test_a_call_that_waits_is_told_after_the_save(gate: Gate, checkpoints: Any) -> None:
    """Where each signal is saved, the results of its effects are saved before the reply."""
    gate.open.set()
    agent = an_agent("a", {"go": gate.action(lambda ctx: {"touched": True})})
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(agent, save_every=1)
        after = await runtime.call("a", sig("go"), raise_errors=True)
        saved = (await checkpoints.load("a")).checkpoint
        assert after.state["touched"] is saved.state["touched"] is True


async def test_a_wish_for_errors_is_a_bool() -> None:
    """Anything else is refused before the signal is sent."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"up": count_signals}))
        with pytest.raises(WrongType, match="raise_errors"):
            await runtime.call("a", sig("up"), raise_errors="yes")  # type: ignore[arg-type]
        assert "count" not in (await runtime.state("a")).state
