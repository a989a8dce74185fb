"""A running agent handles every signal once, in order, and reports the outcome."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.runtime_agents import (
    ErrorRecorder,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    fail,
    note_data,
    sig,
    to_plain,
    wait_until_gone,
)

from omoide import Agent, Context, Plugin, Signal, action
from omoide.directives import Directive, Emit, Schedule
from omoide.errors import (
    IdTaken,
    Invalid,
    MissingStore,
    NotFound,
    NotRunning,
    TooManyAgents,
    Unrouted,
    WrongType,
)
from omoide.runtime import AgentOptions, BlockingWork, Bus, Runtime
from omoide.strategy import Direct
from omoide.testing import ManualTiming, eventually

# Calls and casts


async def test_call_gives_the_agent_after_the_signal() -> None:
    """Its state holds what the action did, and it is the state that everybody sees."""
    async with Runtime() as runtime:
        id = await runtime.start(an_agent("a", {"up": count_signals}))
        assert id == "a"
        after = await runtime.call("a", sig("up"))
        assert after.state["count"] == 1
        assert (await runtime.call("a", sig("up"))).state["count"] == 2
        assert (await runtime.state("a")).state["count"] == 2


class Hold(Directive, frozen=True, kw_only=True):
    """A directive that takes its time."""


async def test_call_does_not_wait_for_directives() -> None:
    """It answers once `cmd` is done; what was asked for may still be under way."""
    gate, done = anyio.Event(), list[str]()

    async def hold() -> None:
        await gate.wait()
        done.append("done")

    agent = an_agent("a", {"go": lambda ctx: ({"went": True}, [Hold()])})
    async with Runtime(executors={Hold: lambda directive, server: BlockingWork(hold)}) as runtime:
        await runtime.start(agent)
        with anyio.fail_after(5):
            assert (await runtime.call("a", sig("go"))).state["went"] is True
        assert done == []
        gate.set()
    assert done == ["done"]


async def test_casts_are_handled_in_the_order_of_sending() -> None:
    """Without an answer, but none is lost."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"note": note_data}))
        for number in range(100):
            await runtime.cast("a", sig("note", number))
        after = await runtime.call("a", sig("note", 100))
        assert to_plain(after.state["noted"]) == [*range(101)]


@given(st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=4), st.integers(1, 3))
def test_signals_of_each_sender_keep_their_order(senders: list[list[int]], mailbox: int) -> None:
    """However many send at once, and however small the mailbox is, each is handled once."""

    async def run() -> list[tuple[int, int]]:
        async def send(who: int, numbers: list[int]) -> None:
            for number in numbers:
                await runtime.cast("a", sig("note", [who, number]))

        async with Runtime() as runtime:
            await runtime.start(an_agent("a", {"note": note_data}), mailbox=mailbox)
            async with anyio.create_task_group() as group:
                for who, numbers in enumerate(senders):
                    group.start_soon(send, who, numbers)
            server = runtime.whereis("a")
            assert server is not None
            await runtime.stop("a")
            assert runtime.stats()["accepted"] == runtime.stats()["handled"] == sum(map(len, senders))
            return [(who, number) for who, number in server.agent.state.get("noted", ())]

    noted = anyio.run(run)
    for who, numbers in enumerate(senders):
        assert [number for by, number in noted if by == who] == numbers


async def test_calls_at_the_same_time_get_each_their_own_agent() -> None:
    """Every caller sees the agent as it was after its own signal."""
    seen: list[int] = []
    async with Runtime() as runtime:

        async def ask() -> None:
            seen.append((await runtime.call("a", sig("up"))).state["count"])

        await runtime.start(an_agent("a", {"up": count_signals}))
        async with anyio.create_task_group() as group:
            for _ in range(20):
                group.start_soon(ask)
    assert sorted(seen) == [*range(1, 21)]


async def test_an_agent_is_found_by_its_id_while_it_lives() -> None:
    """And not before or after."""
    async with Runtime() as runtime:
        assert runtime.whereis("a") is None
        await runtime.start(an_agent("a"))
        await runtime.start(an_agent("b"))
        server = runtime.whereis("a")
        assert server is not None
        assert server.id == "a"
        assert runtime.ids() == ["a", "b"]
        await runtime.stop("a")
        assert runtime.whereis("a") is None
        assert runtime.ids() == ["b"]


@pytest.mark.parametrize("what", ["call", "cast", "state", "stop", "hibernate", "checkpoint"])
async def test_who_does_not_live_cannot_be_asked(what: str) -> None:
    """The error names the id and says what to do; it is a `NotFound`, too."""
    async with Runtime() as runtime:
        given: list[Any] = ["ghost", sig("up")] if what in ("call", "cast") else ["ghost"]
        with pytest.raises(NotRunning, match=r"ghost.*start it") as caught:
            await getattr(runtime, what)(*given)
        assert isinstance(caught.value, NotFound)


async def test_an_agent_may_live_under_another_id() -> None:
    """One value, two lives, which know nothing of each other."""
    agent = an_agent("a", {"up": count_signals})
    async with Runtime() as runtime:
        assert await runtime.start(agent) == "a"
        assert await runtime.start(agent, id="b") == "b"
        await runtime.call("b", sig("up"))
        assert (await runtime.state("b")).id == "b"
        assert "count" not in (await runtime.state("a")).state


async def test_what_cannot_be_started_is_refused() -> None:
    """A taken id, too many agents, unknown terms, no agent, or saving without a place for it."""
    async with Runtime(max_agents=1) as runtime:
        with pytest.raises(WrongType):
            await runtime.start("a")  # type: ignore[arg-type]
        with pytest.raises(Invalid, match=r"rstart.*restart"):
            await runtime.start(an_agent("a"), rstart="permanent")  # type: ignore[call-arg]
        with pytest.raises(Invalid, match="restart"):
            await runtime.start(an_agent("a"), restart="sometimes")
        with pytest.raises(MissingStore):
            await runtime.start(an_agent("a"), save_every=1)
        assert runtime.ids() == []
        await runtime.start(an_agent("a"))
        with pytest.raises(IdTaken, match="a"):
            await runtime.start(an_agent("a"))
        with pytest.raises(TooManyAgents, match="1"):
            await runtime.start(an_agent("b"))
        await runtime.stop("a")
        await runtime.start(an_agent("b"))


@pytest.mark.parametrize("wrong", [None, "up", {"type": "up"}, 1])
async def test_what_is_no_signal_is_refused(wrong: Any) -> None:
    """Before anything is accepted."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"up": count_signals}))
        for ask in (runtime.call, runtime.cast):
            with pytest.raises(WrongType, match="signal"):
                await ask("a", wrong)
        with pytest.raises(WrongType, match="signal"):
            await runtime.publish(wrong)
        assert runtime.stats()["accepted"] == 0


# What has no route, and what fails


async def test_a_signal_without_a_route_names_itself_and_the_routes(errors: ErrorRecorder) -> None:
    """Who calls gets the error; the policy is told as well; the agent goes on."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"up": count_signals, "x.*": count_signals}), on_error=errors)
        with pytest.raises(Unrouted) as caught:
            await runtime.call("a", sig("down"))
        for word in ("down", "up", "x.*", "'a'"):
            assert word in str(caught.value)
        assert caught.value.type == "down"
        assert errors.kinds == ["RoutingError"]
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


async def test_an_action_that_fails_leaves_the_agent_as_it_was(errors: ErrorRecorder) -> None:
    """The caller gets that agent, and the policy the error with the action's name."""
    async with Runtime() as runtime:
        before = an_agent("a", {"fail": fail, "up": count_signals})
        await runtime.start(before, on_error=errors)
        after = await runtime.call("a", sig("fail"))
        assert after.state == before.state
        assert [(one.context, one.action, one.kind) for one in errors] == [("run", "on_fail", "ValueError")]
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


# From the signal to the action


def observer_plugin(handle: Any) -> type[Plugin]:
    """A plugin that looks at signals first."""
    return type("Looking", (Plugin,), {"name": "looking", "handle_signal": lambda self, *args: handle(*args)})


async def test_a_plugin_may_put_another_signal_in_place() -> None:
    """Routes then see that one."""

    def rename(signal: Signal, ctx: Context) -> Signal | None:
        return sig("up") if signal.type == "old.up" else None

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"up": count_signals}, plugins=[observer_plugin(rename)]))
        assert (await runtime.call("a", sig("old.up"))).state["count"] == 1


async def test_a_plugin_may_choose_the_action_itself() -> None:
    """Then no route is followed, and none is needed."""
    chosen = action(name="chosen")(lambda ctx: {"chosen": True})
    async with Runtime() as runtime:
        plugin = observer_plugin(lambda signal, ctx: chosen)
        await runtime.start(an_agent("a", {"up": count_signals}, plugins=[plugin]))
        assert (await runtime.call("a", sig("up"))).state.get("count") is None
        assert (await runtime.call("a", sig("nobody.knows"))).state["chosen"] is True


async def test_a_plugin_that_fails_ends_the_signal_and_not_the_agent(errors: ErrorRecorder) -> None:
    """The state is as it was, and the policy is told."""

    def refuse(signal: Signal, ctx: Context) -> None:
        if signal.type == "bad":
            raise PermissionError("not this one")

    async with Runtime() as runtime:
        plugin = observer_plugin(refuse)
        await runtime.start(an_agent("a", {"*": count_signals}, plugins=[plugin]), on_error=errors)
        assert "count" not in (await runtime.call("a", sig("bad"))).state
        assert [(one.context, one.kind) for one in errors] == [("signal", "PermissionError")]
        assert (await runtime.call("a", sig("good"))).state["count"] == 1


async def test_all_routes_that_match_are_followed_in_order() -> None:
    """The more specific pattern, then the priority, then the earlier; strategy over agent over plugin."""

    def mark(word: str) -> Any:
        return action(name=f"mark_{word}")(lambda ctx: {"marks": [*ctx.state.get("marks", ()), word]})

    class Routing(Direct):
        def signal_routes(self) -> list[Any]:
            return [("a.b", mark("strategy"))]

    plugin = type("P", (Plugin,), {"name": "p", "router": lambda self, config: [("a.b", mark("plugin"))]})
    low = [("**", mark("any"), 100), ("a.*", mark("one")), ("a.b", mark("agent"))]
    routes = [*low, ("a.b", mark("high"), 60)]
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", routes=routes, plugins=[plugin], strategy=Routing()))
        after = await runtime.call("a", sig("a.b"))
        assert to_plain(after.state["marks"]) == ["high", "strategy", "agent", "plugin", "one", "any"]


async def test_a_strategy_is_ticked_by_a_signal_that_is_routed_so() -> None:
    """And what it returns is carried out like any directive."""
    recorder = SignalRecorder()

    class Ticking(Direct):
        def tick(self, agent: Agent, ctx: Context) -> Any:
            return agent, [Emit(signal=sig("ticked"))]

        def signal_routes(self) -> list[Any]:
            return [("tick", ("strategy_tick",))]

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"ticked": recorder}, strategy=Ticking()))
        await runtime.call("a", sig("tick"))
        await eventually(lambda: recorder.types == ["ticked"])


async def test_what_a_strategy_asks_for_at_its_beginning_is_done(recorder: SignalRecorder) -> None:
    """Directives of `init` are carried out when the agent starts to live."""

    class Beginning(Direct):
        def init(self, agent: Agent, ctx: Context) -> Any:
            return agent, [Emit(signal=sig("begun"))]

    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"begun": recorder}, strategy=Beginning()))
        await eventually(lambda: recorder.types == ["begun"])


async def test_a_plugin_hears_what_it_subscribed_to(recorder: SignalRecorder) -> None:
    """Whatever is published under such a type comes to the agent, until it ends."""
    plugin = type("P", (Plugin,), {"name": "p", "subscriptions": ["news.*"]})
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"news.*": recorder}, plugins=[plugin]))
        await anyio.wait_all_tasks_blocked()
        await runtime.publish(sig("news.one"))
        await runtime.publish(sig("weather.two"))
        await eventually(lambda: recorder.types == ["news.one"])
        await runtime.stop("a")
        await runtime.publish(sig("news.three"))
        assert recorder.types == ["news.one"]


async def test_a_plugin_is_told_what_it_scheduled(recorder: SignalRecorder) -> None:
    """At the times of its cron lines."""
    plugin = type("P", (Plugin,), {"name": "p", "schedules": [("* * * * *", sig("minute"))]})
    timing = ManualTiming(0)
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"minute": recorder}, plugins=[plugin]))
        await timing.advance(180_000)
        assert recorder.types == ["minute"] * 3


# Agents among themselves


async def test_an_agent_that_never_rests_leaves_others_their_turn(recorder: SignalRecorder) -> None:
    """One that tells itself something again and again does not hold up anybody else."""
    busy = an_agent("busy", {"again": action_returning(Emit(signal=sig("again")))})
    async with Runtime() as runtime:
        await runtime.start(busy)
        await runtime.start(an_agent("other", {"up": count_signals}))
        await runtime.cast("busy", sig("again"))
        with anyio.fail_after(5):
            for _ in range(10):
                await runtime.call("other", sig("up"))
            await runtime.stop("busy", timeout=0.01)
        assert runtime.ids() == ["other"]
        assert [drop.agent_id for drop in runtime.dropped_signals] == ["busy"]


async def test_the_terms_of_a_runtime_go_for_all_its_agents(errors: ErrorRecorder) -> None:
    """Unless one is started with others."""
    own = ErrorRecorder()
    async with Runtime(agent_options={"on_error": errors, "mailbox": 7}) as runtime:
        await runtime.start(an_agent("a", {"fail": fail}))
        await runtime.start(an_agent("b", {"fail": fail}), on_error=own)
        await runtime.call("a", sig("fail"))
        await runtime.call("b", sig("fail"))
        a, b = runtime.whereis("a"), runtime.whereis("b")
        assert a is not None
        assert b is not None
        assert (len(errors), len(own)) == (1, 1)
        assert a.options.mailbox == b.options.mailbox == 7
    assert Runtime(agent_options=AgentOptions(mailbox=3)).agent_options.mailbox == 3


async def test_stopping_lets_an_agent_finish(recorder: SignalRecorder) -> None:
    """What it accepted is handled first, and what it asked for is done."""
    async with Runtime() as runtime:
        await runtime.start(
            an_agent("a", {"go": action_returning(Emit(signal=sig("done"))), "done": recorder})
        )
        for _ in range(50):
            await runtime.cast("a", sig("go"))
        await runtime.stop("a")
        assert len(recorder) == 50
        assert len(runtime.dropped_signals) == 0


async def test_an_agent_that_ends_itself_answers_the_last_call() -> None:
    """The caller gets the agent, and afterwards nobody is there."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"up": count_signals}))
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        assert (await runtime.call("a", sig("jido.agent.stop"))).state["count"] == 1
        await wait_until_gone(runtime, "a")
        with pytest.raises(NotRunning):
            await runtime.call("a", sig("up"))


async def test_a_message_for_later_is_for_the_agent_that_asked(recorder: SignalRecorder) -> None:
    """An agent that is gone by then is told nothing, also where another has its id now."""
    timing = ManualTiming(0)
    first = an_agent("a", {"go": action_returning(Schedule(delay_ms=100, message=sig("late")))})
    async with Runtime(timing=timing) as runtime:
        await runtime.start(first)
        await runtime.call("a", sig("go"))
        await runtime.stop("a")
        await runtime.start(an_agent("a", {"late": recorder}))
        await timing.advance(1_000)
        assert recorder == []


async def test_a_runtime_that_cannot_begin_leaves_nothing_behind(tmp_path: Path) -> None:
    """No task goes on, and what was opened for it is closed."""
    before = asyncio.all_tasks()
    runtime = Runtime(transport=Bus(), providers={"p": f"sqlite:///{tmp_path / 'p.db'}"})
    with pytest.raises(Invalid, match="bus is not open"):
        await runtime.__aenter__()
    assert asyncio.all_tasks() == before
    assert runtime.providers.resolve("p", an_agent()).provider._store is None
