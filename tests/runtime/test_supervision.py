"""An agent that fails is restarted as its options say, and harms no other."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from anyio.lowlevel import checkpoint
from tests.support.runtime_agents import (
    GatedCheckpointStore,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    fail,
    note_data,
    server_of,
    sig,
    to_plain,
    wait_until_gone,
)

from omoide import Agent, Context, Plugin, Signal
from omoide.directives import Emit, SpawnAgent, Stop
from omoide.errors import Closed, Dropped, Invalid, NotRunning, RestoreFailed
from omoide.runtime import AgentOptions, DroppedSignal, Runtime
from omoide.strategy import Direct
from omoide.testing import eventually

ENDS = {
    "crash": crash,
    "fail": fail,
    "failed": action_returning(Stop(reason="out of paper")),
    "normal": action_returning(Stop()),
    "done": action_returning(Stop(reason="shutdown")),
}


def mortal(id: str = "a", **more: Any) -> Agent:
    """An agent that can end in many ways."""
    return an_agent(id, {**ENDS, "up": count_signals, "note": note_data, **more}, state={"count": 10})


# Whether it is started again


@pytest.mark.parametrize("how", ["crash", "fail", "failed", "normal", "done", "jido.agent.stop"])
@pytest.mark.parametrize("restart", ["permanent", "transient", "temporary"])
async def test_terms_say_who_is_started_again(restart: str, how: str) -> None:
    """Always, after a failure, or never."""
    again = restart == "permanent" or (restart == "transient" and how in ("crash", "fail", "failed"))
    async with Runtime() as runtime:
        await runtime.start(mortal(), restart=restart, on_error="stop")
        server = server_of(runtime)
        await runtime.call("a", sig("up"))
        await runtime.cast("a", sig(how))
        if again:
            await eventually(lambda: len(server.restart_times) == 1)
            assert (await runtime.call("a", sig("up"))).state["count"] == 11
        else:
            await wait_until_gone(runtime, "a")
            assert runtime.ids() == []


@pytest.mark.parametrize("restart", ["permanent", "transient"])
@pytest.mark.parametrize("how", ["stop", "hibernate", "kill"])
async def test_who_was_asked_to_end_is_not_started_again(
    restart: str, how: str, checkpoints: GatedCheckpointStore
) -> None:
    """Whatever the terms say."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(mortal(), restart=restart)
        server = server_of(runtime)
        if how == "kill":
            server.kill()
        else:
            await getattr(runtime, how)("a")
        await server.ended.wait()
        assert (runtime.ids(), len(server.restart_times)) == ([], 0)


async def test_an_action_that_fails_is_no_reason_to_start_again() -> None:
    """Unless the policy says so: the agent keeps its state."""
    async with Runtime() as runtime:
        await runtime.start(mortal())
        await runtime.call("a", sig("up"))
        await runtime.call("a", sig("fail"))
        assert (await runtime.call("a", sig("up"))).state["count"] == 12
        assert len(server_of(runtime).restart_times) == 0


async def test_the_signals_that_wait_are_handled_in_the_next_life() -> None:
    """In order; the one that it crashed over is reported, and who called with it is told."""
    told: list[str] = []

    async def ask() -> None:
        with pytest.raises(Dropped, match="crashed with SystemExit") as caught:
            await runtime.call("a", sig("crash"))
        told.append(caught.value.reason)

    async with Runtime() as runtime, anyio.create_task_group() as group:
        await runtime.start(mortal())
        group.start_soon(ask)
        await checkpoint()
        for number in range(5):
            await runtime.cast("a", sig("note", number))
        after = await runtime.call("a", sig("up"))
        assert to_plain(after.state["noted"]) == [*range(5)]
        assert after.state["count"] == 11
    assert told == ["the agent crashed with SystemExit"]
    assert [(drop.signal.type, drop.accepted) for drop in runtime.dropped_signals] == [("crash", True)]


async def test_who_fails_too_often_is_given_up() -> None:
    """More than so many times within so many seconds; its signals are reported as dropped."""
    async with Runtime() as runtime:
        await runtime.start(mortal(), max_restarts=2, restart_seconds=60)
        server = server_of(runtime)
        for _ in range(3):
            await runtime.cast("a", sig("crash"))
        await runtime.cast("a", sig("up"))
        await server.ended.wait()
        assert [drop.reason for drop in runtime.dropped_signals] == [
            *["the agent crashed with SystemExit"] * 3,
            "the agent ended (gave up after 2 restarts: crashed: SystemExit)",
        ]
        with pytest.raises(NotRunning):
            await runtime.call("a", sig("up"))


async def test_failures_long_ago_do_not_count() -> None:
    """One that fails again and again, but seldom, is started again each time."""
    async with Runtime() as runtime:
        await runtime.start(mortal(), max_restarts=1, restart_seconds=1e-9)
        for _ in range(20):
            await runtime.cast("a", sig("crash"))
        assert (await runtime.call("a", sig("up"))).state["count"] == 11


async def test_who_may_not_be_restarted_at_all_is_gone_at_once() -> None:
    """With a limit of none."""
    async with Runtime() as runtime:
        await runtime.start(mortal(), max_restarts=0, restart="permanent")
        await runtime.cast("a", sig("crash"))
        await wait_until_gone(runtime, "a")
        assert runtime.ids() == []


async def test_a_strategy_that_cannot_begin_is_given_up_after_some_tries() -> None:
    """It is a crash like others, and harms nobody."""

    class Broken(Direct):
        made = False

        def init(self, agent: Agent, ctx: Context) -> Any:
            if self.made:
                raise OSError("no")
            return agent, []

    agent = an_agent("a", {"up": count_signals}, strategy=Broken())
    Broken.made = True
    async with Runtime() as runtime:
        await runtime.start(agent, restart_seconds=60)
        await runtime.start(mortal("b"))
        server = server_of(runtime)
        await server.ended.wait()
        assert len(server.restart_times) == 4
        assert (await runtime.call("b", sig("up"))).state["count"] == 11


@pytest.mark.parametrize(
    "wrong",
    [
        {"restart": "often"},
        {"max_restarts": -1},
        {"max_restarts": 1.5},
        {"restart_seconds": 0},
        {"restart_seconds": True},
        {"mailbox": 0},
        {"max_directives": 0},
        {"max_children": 0},
        {"save_every": 0},
        {"on_parent_exit": "cry"},
    ],
)
def test_terms_that_make_no_sense_are_refused(wrong: dict[str, Any]) -> None:
    """By the name of the term."""
    with pytest.raises(Invalid, match=next(iter(wrong))):
        AgentOptions(**wrong)


# What a new life begins with


async def test_plugins_and_strategies_begin_anew_with_every_life(recorder: SignalRecorder) -> None:
    """What they subscribed to is heard once, not once for each life."""

    class Beginning(Direct):
        def init(self, agent: Agent, ctx: Context) -> Any:
            return agent, [Emit(signal=sig("begun"))]

    plugin = type("P", (Plugin,), {"name": "p", "subscriptions": ["news"]})
    agent = an_agent(
        "a", {"begun": recorder, "news": recorder, "crash": crash}, plugins=[plugin], strategy=Beginning()
    )
    async with Runtime() as runtime:
        await runtime.start(agent)
        await eventually(lambda: recorder.types == ["begun"])
        await runtime.cast("a", sig("crash"))
        await eventually(lambda: recorder.types == ["begun", "begun"])
        await anyio.wait_all_tasks_blocked()
        await runtime.publish(sig("news"))
        await eventually(lambda: recorder.types == ["begun", "begun", "news"])


async def test_a_new_life_goes_on_from_the_last_checkpoint(checkpoints: GatedCheckpointStore) -> None:
    """Where it was ever saved, and not as it was when it was started."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(mortal())
        await runtime.call("a", sig("up"))
        await runtime.checkpoint("a")
        await runtime.call("a", sig("up"))
        await runtime.cast("a", sig("crash"))
        assert (await runtime.call("a", sig("up"))).state["count"] == 12


@pytest.mark.parametrize("error", [RestoreFailed("a", "thread_mismatch"), OSError("no disk")])
async def test_a_checkpoint_that_cannot_be_read_is_no_reason_to_begin_afresh(
    error: Exception, checkpoints: GatedCheckpointStore
) -> None:
    """The agent is given up, and says why."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await runtime.start(mortal(), save_every=1)
        server = server_of(runtime)
        await runtime.call("a", sig("up"))
        checkpoints.fails["load"] = error
        await runtime.cast("a", sig("crash"))
        await runtime.cast("a", sig("up"))
        await server.ended.wait()
        (_, last) = runtime.dropped_signals
        assert last.reason == f"the agent ended (could not be restored: {type(error).__name__})"


# Nobody else


async def test_a_crash_harms_nobody_else() -> None:
    """Of many agents one crashes again and again; each of the others handles all that it is sent."""
    async with Runtime() as runtime:
        await runtime.start(mortal("bad"), max_restarts=1_000, restart_seconds=60)
        for number in range(20):
            await runtime.start(mortal(f"good-{number}"))
        for _ in range(10):
            await runtime.cast("bad", sig("crash"))
            for number in range(20):
                await runtime.cast(f"good-{number}", sig("up"))
        for number in range(20):
            assert (await runtime.call(f"good-{number}", sig("up"))).state["count"] == 21
        assert (await runtime.call("bad", sig("up"))).state["count"] == 11


def cancel(*given: Any) -> Any:
    """Raise what only somebody who cancels a task should."""
    raise anyio.get_cancelled_exc_class()


def cancelling_plugin(hook: str) -> type[Plugin]:
    """A plugin that does so when it sees a signal of the type `go`."""

    def look(self: Plugin, signal: Signal, ctx: Context) -> Any:
        return cancel() if signal.type == "go" else None if hook == "handle_signal" else []

    return type("P", (Plugin,), {"name": "p", hook: look})


class Ticking(Direct):
    """A strategy that does so at each tick."""

    def tick(self, agent: Agent, ctx: Context) -> Any:
        return cancel()


@pytest.mark.parametrize(
    "parts",
    [
        {"on": {"go": cancel}},
        {"on": {"go": count_signals}, "plugins": [cancelling_plugin("handle_signal")]},
        {"on": {"go": count_signals}, "plugins": [cancelling_plugin("capture")]},
        {"on": {"go": "strategy_tick"}, "strategy": Ticking()},
    ],
)
async def test_a_cancellation_out_of_nowhere_ends_one_agent_only(parts: dict[str, Any]) -> None:
    """It is a crash of whoever raises it: the agent is started again, and nobody else is cancelled."""
    routes = {**parts["on"], "up": count_signals}
    agent = an_agent("a", **{**parts, "on": routes})
    async with Runtime() as runtime:
        await runtime.start(agent)
        await runtime.start(mortal("b"))
        server = server_of(runtime)
        await runtime.cast("a", sig("go"))
        await eventually(lambda: len(server.restart_times) == 1)
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        assert (await runtime.call("b", sig("up"))).state["count"] == 11


# The end


async def test_at_the_end_everybody_finishes_what_they_accepted(recorder: SignalRecorder) -> None:
    """Children too, after their parents; nothing is dropped."""
    kid = an_agent("x", {"work": recorder}, kind="kid")
    boss = an_agent(
        "boss", {"go": action_returning(SpawnAgent(kind="kid", tag="t", id="kid")), "work": recorder}
    )
    for parting in ("stop", "continue"):
        recorder.clear()
        async with Runtime(kinds=[kid.definition], agent_options={"on_parent_exit": parting}) as runtime:
            await runtime.start(boss)
            await runtime.call("boss", sig("go"))
            for id, many in (("boss", 10), ("kid", 200)):
                for _ in range(many):
                    await runtime.cast(id, sig("work"))
        assert len(recorder) == 210
        assert len(runtime.dropped_signals) == 0
        assert runtime.stats()["handled"] == runtime.stats()["accepted"]


async def hang(*given: Any) -> None:
    """Never come back."""
    await anyio.sleep_forever()


HANG = action_returning(Emit(signal=sig("x"), dispatch={"void": True}))


async def test_who_does_not_finish_in_time_is_ended_anyway() -> None:
    """After the deadline, and those who wait for it are told; others have finished by then."""
    dropped: list[DroppedSignal] = []
    runtime = Runtime(dispatchers={"void": hang}, shutdown_timeout=0.01, on_dropped=dropped.append)
    async with runtime:
        await runtime.start(mortal("stuck", hang=HANG))
        await runtime.start(mortal("good"))
        await runtime.call("stuck", sig("hang"))
        with anyio.fail_after(5):
            for _ in range(50):
                await runtime.cast("good", sig("up"))
    assert runtime.ids() == []
    assert [drop.agent_id for drop in dropped] == []
    assert runtime.stats()["handled"] == 51


async def test_one_agent_can_be_given_a_time_to_end() -> None:
    """What it had not handled then is reported."""
    async with Runtime(dispatchers={"void": hang}) as runtime:
        await runtime.start(mortal(hang=HANG))
        await runtime.call("a", sig("hang"))
        with anyio.fail_after(5):
            await runtime.stop("a", timeout=0.01)
        assert runtime.ids() == []
        for wrong in (0, -1, True, "soon"):
            with pytest.raises(Invalid, match="timeout"):
                await runtime.call("a", sig("up"), timeout=wrong)  # type: ignore[arg-type]


async def test_who_waits_for_an_agent_that_is_ended_is_told(checkpoints: GatedCheckpointStore) -> None:
    """A call that waits for the checkpoint is not left waiting for ever."""
    told: list[Exception] = []

    async def ask() -> None:
        try:
            await runtime.call("a", sig("up"))
        except Dropped as error:
            told.append(error)

    checkpoints.gate = anyio.Event()
    async with Runtime(checkpoint_store=checkpoints) as runtime, anyio.create_task_group() as group:
        await runtime.start(mortal(), save_every=1)
        group.start_soon(ask)
        await checkpoints.entered.wait()
        await runtime.stop("a", timeout=0.01)
        await eventually(lambda: told)
    assert "killed" in str(told[0])


async def test_a_runtime_lives_once() -> None:
    """Before and after its block nobody can be started, and closing twice is no error."""
    runtime = Runtime()
    with pytest.raises(Closed):
        await runtime.start(mortal())
    async with runtime:
        await runtime.start(mortal())
        await runtime.close()
        await runtime.close()
        assert runtime.ids() == []
        with pytest.raises(Closed):
            await runtime.start(mortal())
    with pytest.raises(Closed):
        await runtime.__aenter__()


async def test_an_error_in_the_block_comes_out_as_it_is_after_all_have_ended(
    recorder: SignalRecorder,
) -> None:
    """Not wrapped in a group of others, and only when what was accepted is done."""
    runtime = Runtime()

    async def block() -> None:
        async with runtime:
            await runtime.start(an_agent("a", {"go": recorder}))
            for _ in range(50):
                await runtime.cast("a", sig("go"))
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await block()
    assert len(recorder) == 50
    assert runtime.ids() == []


async def test_a_listener_for_drops_that_fails_harms_nobody() -> None:
    """It is told each drop with agent, signal and reason; what it raises is written down."""
    told: list[tuple[str, str, bool]] = []

    def listen(drop: DroppedSignal) -> None:
        told.append((drop.agent_id, drop.signal.type, drop.accepted))
        raise ValueError("I do not care")

    async with Runtime(on_dropped=listen) as runtime:
        await runtime.start(mortal())
        for type in ("crash", "normal", "up", "note"):
            await runtime.cast("a", sig(type))
        await wait_until_gone(runtime, "a")
        assert runtime.ids() == []
    assert told == [("a", type, True) for type in ("crash", "up", "note")]
