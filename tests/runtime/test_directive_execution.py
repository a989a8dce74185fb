"""Directives are executed one after the other, by built-in and custom executors."""

from __future__ import annotations

import logging
from functools import partial
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
    note_data,
    sig,
    to_plain,
    wait_until_gone,
)

from omoide import Agent, Context, action
from omoide.directives import BUILT_IN, Directive, Emit, MemoryQuery, Stop
from omoide.errors import WrongType
from omoide.runtime import BlockingWork, Runtime
from omoide.runtime.executors import BUILT_IN_EXECUTORS
from omoide.strategy import Direct
from omoide.testing import eventually


class Mark(Directive, frozen=True, kw_only=True):
    """A directive that only one program knows."""

    word: str = ""


class MarkMore(Mark, frozen=True, kw_only=True):
    """One that is like it."""


class Marks(list[str]):
    """An executor that keeps the words, in the order in which they came."""

    def __call__(self, directive: Mark, server: Any) -> None:
        self.append(directive.word)


def three(*between: Directive) -> Any:
    """An action that asks for a mark before and a mark after something."""
    return action_returning(Mark(word="before"), *between, Mark(word="after"))


class Held:
    """An executor whose work takes until the gate is open."""

    def __init__(self) -> None:
        self.gate = anyio.Event()
        self.entered = anyio.Event()

    async def work(self) -> None:
        """Wait."""
        self.entered.set()
        await self.gate.wait()

    def __call__(self, directive: Directive, server: Any) -> BlockingWork:
        return BlockingWork(self.work)


class Hold(Directive, frozen=True, kw_only=True):
    """A directive that the others wait for."""


# In order


async def test_directives_are_carried_out_in_the_order_in_which_they_were_returned() -> None:
    """Those of one signal after the other, and those of a later signal after them."""
    marks = Marks()
    numbered = [Mark(word=str(number)) for number in range(100)]
    agent = an_agent("a", {"one": action_returning(*numbered[:50]), "two": action_returning(*numbered[50:])})
    async with Runtime(executors={Mark: marks}) as runtime:
        await runtime.start(agent)
        await runtime.cast("a", sig("one"))
        await runtime.call("a", sig("two"))
        assert marks == [str(number) for number in range(100)]


async def test_one_that_the_others_wait_for_holds_up_directives_and_no_signals() -> None:
    """Signals are handled meanwhile; what they ask for comes after what waits already."""
    marks, held = Marks(), Held()
    agent = an_agent(
        "a", {"go": three(Hold()), "then": action_returning(Mark(word="then")), "up": count_signals}
    )
    async with Runtime(executors={Mark: marks, Hold: held}) as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await runtime.call("a", sig("then"))
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        await anyio.wait_all_tasks_blocked()
        assert marks == ["before"]
        held.gate.set()
        await eventually(lambda: marks == ["before", "after", "then"])


async def test_a_directive_does_not_touch_the_agent() -> None:
    """What an action returns is in the agent before the first directive of it begins."""
    seen: list[Any] = []

    def look(directive: Mark, server: Any) -> None:
        seen.append(server.agent.state["count"])

    agent = an_agent("a", {"up": lambda ctx: (count_signals(ctx), [Mark(), Mark()])})
    async with Runtime(executors={Mark: look}) as runtime:
        await runtime.start(agent)
        after = await runtime.call("a", sig("up"))
        assert seen == [1, 1]
        assert (await runtime.state("a")) is after


async def test_an_executor_knows_which_signal_it_is_about() -> None:
    """Also where the directive had to wait, and the agent has gone on to other signals since."""
    seen: list[str | None] = []

    def look(directive: Mark, server: Any) -> None:
        seen.append(None if server.current_signal is None else server.current_signal.type)

    held = Held()
    agent = an_agent("a", {"go": three(Hold()), "other": count_signals})
    async with Runtime(executors={Mark: look, Hold: held}) as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await runtime.call("a", sig("other"))
        held.gate.set()
        await eventually(lambda: len(seen) == 2)
    assert seen == ["go", "go"]


# Who carries them out


def test_every_directive_that_ships_has_an_executor() -> None:
    """Built in, so that a runtime without any options knows them all."""
    assert {*BUILT_IN_EXECUTORS} == {*BUILT_IN}


async def test_a_directive_that_nobody_knows_is_written_down_and_ignored(
    errors: ErrorRecorder, caplog: pytest.LogCaptureFixture
) -> None:
    """By its class and without its contents; the next one has its turn, and it is no error."""

    class Unknown(Directive, frozen=True, kw_only=True):
        secret: str = "the secret words"

    marks = Marks()
    async with Runtime(executors={Mark: marks}) as runtime:
        await runtime.start(an_agent("a", {"go": three(Unknown()), "up": count_signals}), on_error=errors)
        with caplog.at_level(logging.WARNING, "omoide"):
            await runtime.call("a", sig("go"))
        assert (marks, errors) == (["before", "after"], [])
        assert "Unknown" in caplog.text
        assert "agent a" in caplog.text
        assert "secret" not in caplog.text
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


async def test_an_async_executor_goes_on_beside_the_agent() -> None:
    """The next directive does not wait for it, and neither does the next signal; the end does."""
    marks, held, done = Marks(), Held(), list[str]()

    async def hold(directive: Hold, server: Any) -> None:
        await held.work()
        done.append(server.id)

    async with Runtime(executors={Mark: marks, Hold: hold}) as runtime:
        await runtime.start(an_agent("a", {"go": three(Hold()), "up": count_signals}))
        await runtime.call("a", sig("go"))
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        assert (marks, done) == (["before", "after"], [])
        held.gate.set()
    assert done == ["a"]


async def test_what_can_be_awaited_is_awaited_beside_the_agent() -> None:
    """Whether a plain function returned it, a partial one, or an object with an async call."""
    done: list[str] = []

    async def later(word: str) -> None:
        done.append(word)

    class Called:
        async def __call__(self, directive: Directive, server: Any) -> None:
            done.append("object")

    async def bound(word: str, directive: Directive, server: Any) -> None:
        done.append(word)

    for executor in (lambda directive, server: later("plain"), partial(bound, "partial"), Called()):
        async with Runtime(executors={Mark: executor}) as runtime:
            await runtime.start(an_agent("a", {"go": action_returning(Mark())}))
            await runtime.call("a", sig("go"))
    assert done == ["plain", "partial", "object"]


async def test_an_executor_may_stop_the_agent() -> None:
    """What comes after its directive is dropped."""
    marks = Marks()
    async with Runtime(executors={Mark: marks, Hold: lambda directive, server: Stop()}) as runtime:
        await runtime.start(an_agent("a", {"go": three(Hold())}))
        await runtime.call("a", sig("go"))
        await wait_until_gone(runtime, "a")
        assert marks == ["before"]


@pytest.mark.parametrize("how", ["plain", "async", "waiting", "awaitable"])
async def test_an_executor_that_raises_harms_nothing_else(how: str, errors: ErrorRecorder) -> None:
    """It is reported; the next directives have their turn, and the agent goes on."""
    marks = Marks()

    async def failing() -> None:
        raise OSError("no paper")

    async def failing_beside(directive: Hold, server: Any) -> None:
        await failing()

    def failing_at_once(directive: Hold, server: Any) -> None:
        raise OSError("no paper")

    executor: Any = {
        "plain": failing_at_once,
        "async": failing_beside,
        "waiting": lambda directive, server: BlockingWork(failing),
        "awaitable": lambda directive, server: failing(),
    }[how]
    async with Runtime(executors={Mark: marks, Hold: executor}) as runtime:
        await runtime.start(an_agent("a", {"go": three(Hold()), "up": count_signals}), on_error=errors)
        await runtime.call("a", sig("go"))
        await eventually(lambda: errors and marks == ["before", "after"])
        assert [(one.context, one.kind) for one in errors] == [("directive", "OSError")]
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


@pytest.mark.parametrize("how", ["waiting", "async"])
async def test_an_executor_that_crashes_ends_its_agent_and_no_other(how: str) -> None:
    """It is started again, by its terms; what waited is dropped."""
    marks = Marks()

    async def crashing(*given: Any) -> None:
        raise SystemExit(7)

    executor: Any = crashing if how == "async" else lambda directive, server: BlockingWork(crashing)
    async with Runtime(executors={Mark: marks, Hold: executor}) as runtime:
        await runtime.start(
            an_agent("a", {"go": action_returning(Hold()), "up": count_signals}, state={"count": 7})
        )
        await runtime.start(an_agent("b", {"up": count_signals}))
        server = runtime.whereis("a")
        assert server is not None
        await runtime.call("a", sig("up"))
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(server.restart_times) == 1)
        assert (await runtime.call("a", sig("up"))).state["count"] == 8
        assert (await runtime.call("b", sig("up"))).state["count"] == 1


async def test_an_executor_of_ones_own_takes_the_place_of_one_that_is_built_in(
    recorder: SignalRecorder,
) -> None:
    """And one for a class goes for what is derived from it, unless that has its own."""
    sent: list[str] = []
    executors: Any = {Emit: lambda directive, server: sent.append(directive.signal.type)}
    marks, more = Marks(), Marks()
    directives = [Emit(signal=sig("x")), Mark(word="a"), MarkMore(word="b")]
    async with Runtime(executors=executors) as runtime:
        runtime.register(Mark, marks)
        await runtime.start(an_agent("a", {"go": action_returning(*directives), "x": recorder}))
        await runtime.call("a", sig("go"))
        runtime.register(MarkMore, more)
        await runtime.call("a", sig("go"))
    assert (sent, recorder) == (["x", "x"], [])
    assert (marks, more) == (["a", "b", "a"], ["b"])


async def test_an_executor_that_comes_late_is_known_from_then_on() -> None:
    """Though a directive was ignored before."""
    marks = Marks()
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": action_returning(MarkMore(word="x"))}))
        await runtime.call("a", sig("go"))
        runtime.register(Mark, marks)
        await runtime.call("a", sig("go"))
    assert marks == ["x"]


@pytest.mark.parametrize("wrong", [(str, print), (Mark(), print), (Mark, "print")])
def test_what_is_no_executor_is_refused_at_once(wrong: Any) -> None:
    """Before any agent could ask for it."""
    with pytest.raises(WrongType):
        Runtime(executors=dict([wrong]))


# The hard stop


async def test_stop_drops_what_waits(recorder: SignalRecorder) -> None:
    """Directives after it, the signals that it accepted, and jobs under way; each signal is reported."""
    marks, held = Marks(), Held()
    agent = an_agent(
        "a",
        {
            "go": action_returning(Emit(signal=sig("x")), Mark(word="b"), Stop(), Mark(word="c")),
            "x": recorder,
        },
    )
    async with Runtime(executors={Mark: marks, Hold: held}) as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await wait_until_gone(runtime, "a")
        assert (marks, recorder) == (["b"], [])
        assert [(drop.signal.type, drop.accepted) for drop in runtime.dropped_signals] == [("x", True)]


async def test_stop_does_not_wait_for_what_is_under_way() -> None:
    """A job that would take for ever is ended with the agent."""
    held = Held()

    async def hold(directive: Hold, server: Any) -> None:
        await held.work()

    async with Runtime(executors={Hold: hold}) as runtime:
        await runtime.start(an_agent("a", {"hold": action_returning(Hold()), "go": action_returning(Stop())}))
        await runtime.call("a", sig("hold"))
        await held.entered.wait()
        await runtime.call("a", sig("go"))
        await wait_until_gone(runtime, "a")
        assert runtime.ids() == []


# Too many


async def test_directives_beyond_the_limit_are_dropped_and_reported(errors: ErrorRecorder) -> None:
    """The first of them are carried out; one error says how many were too many."""
    marks = Marks()
    numbered = [Mark(word=str(number)) for number in range(7)]
    async with Runtime(executors={Mark: marks}) as runtime:
        await runtime.start(
            an_agent("a", {"go": action_returning(*numbered), "up": count_signals}),
            on_error=errors,
            max_directives=4,
        )
        await runtime.call("a", sig("go"))
        assert marks == ["0", "1", "2", "3"]
        assert [(one.kind, one.context) for one in errors] == [("QueueOverflow", "directive")]
        assert "queue_overflow: 3 directives beyond 4" in errors.messages
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        await runtime.call("a", sig("go"))
        assert len(marks) == 8


async def test_a_limit_counts_what_waits_and_not_what_comes_one_by_one(errors: ErrorRecorder) -> None:
    """Ten thousand may wait, unless the terms say otherwise; those of several signals count together."""
    marks, held = Marks(), Held()
    agent = an_agent("a", {"hold": action_returning(Hold()), "go": action_returning(*[Mark()] * 5_000)})
    async with Runtime(executors={Mark: marks, Hold: held}) as runtime:
        await runtime.start(agent, on_error=errors)
        await runtime.call("a", sig("hold"))
        for _ in range(2):
            await runtime.call("a", sig("go"))
        assert errors == []
        await runtime.call("a", sig("go"))
        assert "5000 directives beyond 10000" in errors.messages
        held.gate.set()
        await eventually(lambda: len(marks) == 10_000)
        await runtime.call("a", sig("go"))
        assert len(errors) == 1


async def test_a_memory_request_beyond_the_limit_is_answered_all_the_same(recorder: SignalRecorder) -> None:
    """With an error, so that nobody waits for it in vain."""
    asked = [MemoryQuery(query={}, provider="table", request_id=f"r{number}") for number in range(4)]
    async with Runtime() as runtime:
        await runtime.start(
            an_agent("a", {"go": action_returning(*asked), "jido.memory.result": recorder}), max_directives=2
        )
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 4)
        told = {data["request_id"]: (data["status"], data.get("error")) for data in recorder.data}
    assert [told[f"r{number}"][0] for number in range(4)] == ["ok", "ok", "error", "error"]
    assert told["r3"][1] == "queue_overflow"


# From one life to the next


async def test_what_waited_in_one_life_does_not_come_in_the_next() -> None:
    """Even if what it waited for is done in the very moment in which the agent is started again."""
    marks, held, again = Marks(), Held(), Held()

    class Beginning(Direct):
        def init(self, agent: Agent, ctx: Context) -> Any:
            return agent, [Hold(), Mark(word="of the new life")]

    lives: list[Held] = [held, again]
    executors: Any = {Mark: marks, Hold: lambda directive, server: BlockingWork(lives.pop(0).work)}
    async with Runtime(executors=executors) as runtime:
        await runtime.start(
            an_agent("a", {"go": three(), "crash": crash, "note": note_data}, strategy=Beginning())
        )
        await runtime.call("a", sig("go"))
        await held.entered.wait()
        await runtime.cast("a", sig("crash"))
        held.gate.set()
        await again.entered.wait()
        await anyio.wait_all_tasks_blocked()
        assert marks == []
        again.gate.set()
        await eventually(lambda: marks == ["of the new life"])
        assert to_plain((await runtime.call("a", sig("note", 1))).state["noted"]) == [1]


async def test_what_waits_for_something_cancelled_has_failed(errors: ErrorRecorder) -> None:
    """A cancellation that is not the agent's own is an error like others: nobody else is cancelled."""
    marks = Marks()

    async def given_up() -> None:
        raise anyio.get_cancelled_exc_class()

    async def beside(directive: Hold, server: Any) -> None:
        await given_up()

    @action(effectful=True)
    async def touching(ctx: Context) -> None:
        await given_up()

    waiting = an_agent("a", {"go": three(Hold()), "touch": touching, "up": count_signals})
    for executor in (beside, lambda directive, server: BlockingWork(given_up)):
        errors.clear()
        marks.clear()
        async with Runtime(executors={Mark: marks, Hold: executor}) as runtime:
            await runtime.start(waiting, on_error=errors)
            await runtime.start(an_agent("b", {"up": count_signals}))
            await runtime.call("a", sig("go"))
            await runtime.call("a", sig("touch"))
            await eventually(lambda: len(errors) == 2)
            assert marks == ["before", "after"]
            assert "cancelled" in errors.messages
            assert (await runtime.call("a", sig("up"))).state["count"] == 1
            assert (await runtime.call("b", sig("up"))).state["count"] == 1
