"""Pending schedules and cron jobs of an agent survive hibernation."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    GatedCheckpointStore,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    server_of,
    sig,
)

from omoide import Agent, Checkpoint, Context, Plugin, Signal
from omoide.core.checkpoint import PendingSchedule
from omoide.core.definition import Outcome
from omoide.directives import Cron, CronCancel, Directive, Schedule
from omoide.errors import WrongType
from omoide.runtime import Runtime
from omoide.strategy import Direct
from omoide.testing import ManualTiming, eventually

MINUTE, HOUR = 60_000, 3_600_000


def alarm(name: str = "alarm", at: int = MINUTE) -> Schedule:
    return Schedule(delay_ms=at, message=sig(name))


def agent_with(recorder: SignalRecorder, *directives: Directive, **parts: Any) -> Agent:
    """An agent that schedules at `go`, and keeps what comes."""
    routes = {
        "go": action_returning(*directives),
        "alarm": recorder,
        "other": recorder,
        "tick": recorder,
        "cancel": action_returning(CronCancel(job_id="job")),
        "crash": crash,
        "up": count_signals,
    }
    return an_agent("a", routes, **parts)


async def sleep_and_wake(
    agent: Agent, checkpoints: GatedCheckpointStore, *, pause: int, at: int = 0, then: Any = None
) -> None:
    """Let an agent schedule, hibernate, and be thawed after a pause; then let time pass."""
    async with Runtime(checkpoint_store=checkpoints, timing=ManualTiming(at)) as runtime:
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await runtime.hibernate("a")
    timing = ManualTiming(at + pause)
    async with Runtime(checkpoint_store=checkpoints, timing=timing) as runtime:
        await runtime.thaw("a", agent.definition)
        await anyio.wait_all_tasks_blocked()
        await then(runtime, timing)


async def test_a_signal_that_is_not_due_yet_comes_at_its_time(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """Counted from when it was scheduled, in whatever run."""

    async def then(runtime: Runtime, timing: ManualTiming) -> None:
        await timing.advance(39_999)
        assert recorder == []
        await timing.advance(1)
        assert recorder.types == ["alarm"]
        await timing.advance(HOUR)
        assert recorder.types == ["alarm"]

    await sleep_and_wake(agent_with(recorder, alarm()), checkpoints, pause=20_000, then=then)


async def test_what_was_due_meanwhile_comes_at_once_and_in_order(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """The earlier one first; what was sent before the hibernation does not come again."""

    async def then(runtime: Runtime, timing: ManualTiming) -> None:
        await timing.advance(0)
        assert recorder.types == ["alarm", "other"]
        await timing.advance(HOUR)
        assert recorder.types == ["alarm", "other"]

    directives = (alarm("other", 2 * MINUTE), alarm("alarm", MINUTE))
    await sleep_and_wake(agent_with(recorder, *directives), checkpoints, pause=HOUR, then=then)


async def test_a_cron_job_goes_on_and_makes_up_for_nothing(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """It fires at the next time, and can be cancelled by its id."""

    async def then(runtime: Runtime, timing: ManualTiming) -> None:
        await timing.advance(0)
        assert recorder == []
        await timing.advance(HOUR)
        assert recorder.types == ["tick"]
        await timing.advance(HOUR)
        assert recorder.types == ["tick", "tick"]
        await runtime.call("a", sig("cancel"))
        await timing.advance(5 * HOUR)
        assert len(recorder) == 2
        await runtime.hibernate("a")
        await runtime.thaw("a", agent.definition)
        await timing.advance(5 * HOUR)
        assert len(recorder) == 2

    agent = agent_with(recorder, Cron(expression="@hourly", message=sig("tick"), job_id="job"))
    await sleep_and_wake(agent, checkpoints, pause=5 * HOUR + 30 * MINUTE, then=then)


async def test_a_second_hibernation_keeps_what_is_pending_still(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """Once in each run, and never twice."""

    async def then(runtime: Runtime, timing: ManualTiming) -> None:
        for _ in range(3):
            await runtime.hibernate("a")
            await timing.advance(1_000)
            await runtime.thaw("a", agent.definition)
            await anyio.wait_all_tasks_blocked()
        await timing.advance(HOUR)
        assert recorder.types == ["alarm"]

    agent = agent_with(recorder, alarm())
    await sleep_and_wake(agent, checkpoints, pause=0, then=then)


class Ticking(Direct):
    """A strategy that schedules its first tick when it is initialized, and a job."""

    def init(self, agent: Agent, ctx: Context) -> Outcome:
        job = Cron(expression="@hourly", message=sig_of("other"))
        return agent, [Schedule(delay_ms=MINUTE, message=sig_of("tick")), job]


def sig_of(type: str) -> Signal:
    return Signal(type=type, id=type, time=0)


async def test_what_is_scheduled_at_every_start_is_scheduled_once(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """The `init` of a strategy runs again, and what it asks for is pending already."""

    async def then(runtime: Runtime, timing: ManualTiming) -> None:
        await timing.advance(30_000)
        assert recorder.types == ["tick"]
        await timing.advance(HOUR)
        assert sorted(recorder.types) == ["other", "tick"]

    await sleep_and_wake(agent_with(recorder, strategy=Ticking()), checkpoints, pause=30_000, then=then)


class Scheduled(Plugin):
    """Declares a schedule."""

    name = "scheduled"
    schedules = (("@hourly", Signal(type="tick")),)


async def test_the_schedules_of_a_plugin_are_not_saved(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """Every run starts them from the plugin, which may have others by then, or be gone."""

    async def then(runtime: Runtime, timing: ManualTiming) -> None:
        await timing.advance(HOUR)
        assert recorder.types == ["tick"]
        saved = (await checkpoints.load("a")).checkpoint
        assert saved is not None
        assert saved.schedules == []

    await sleep_and_wake(agent_with(recorder, plugins=[Scheduled]), checkpoints, pause=0, then=then)


async def test_an_agent_that_could_not_hibernate_keeps_its_schedules(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """It keeps running, and what it scheduled comes at its time."""
    timing = ManualTiming(0)
    async with Runtime(checkpoint_store=checkpoints, timing=timing) as runtime:
        await runtime.start(agent_with(recorder, alarm()))
        await runtime.call("a", sig("go"))
        checkpoints.fails["save"] = OSError("full")
        with pytest.raises(OSError, match="full"):
            await runtime.hibernate("a")
        checkpoints.fails.clear()
        await runtime.call("a", sig("up"))
        await timing.advance(MINUTE)
        assert recorder.types == ["alarm"]


async def test_a_restart_from_a_checkpoint_has_the_schedules_of_then(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """With the state of the checkpoint comes what was pending with it."""
    timing = ManualTiming(0)
    async with Runtime(checkpoint_store=checkpoints, timing=timing) as runtime:
        await runtime.start(agent_with(recorder, alarm()), restart="permanent")
        await runtime.call("a", sig("go"))
        await runtime.checkpoint("a")
        await runtime.cast("a", sig("crash"))
        await eventually(lambda: server_of(runtime, "a").restart_times)
        await runtime.call("a", sig("up"))
        await timing.advance(MINUTE)
        assert recorder.types == ["alarm"]


async def test_a_schedule_that_cannot_be_resumed_is_an_error(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore, errors: ErrorRecorder
) -> None:
    """The agent runs, and the others are resumed."""
    async with Runtime(checkpoint_store=checkpoints, timing=ManualTiming(0)) as runtime:
        await runtime.start(agent_with(recorder, alarm()))
        await runtime.call("a", sig("go"))
        await runtime.hibernate("a")
    stored = await checkpoints.load("a")
    assert stored.checkpoint is not None
    strange = PendingSchedule(directive=Cron(expression="@hourly", message="x", timezone="Not/Aplace"))
    changed = stored.checkpoint.replace(schedules=[strange, *stored.checkpoint.schedules])
    await checkpoints.save("a", changed, expected_rev=stored.rev)
    timing = ManualTiming(0)
    async with Runtime(checkpoint_store=checkpoints, timing=timing) as runtime:
        await runtime.thaw("a", agent_with(recorder).definition, on_error=errors)
        await timing.advance(MINUTE)
        assert recorder.types == ["alarm"]
        assert "Not/Aplace" in errors.messages


@pytest.mark.parametrize(
    "message",
    [sig_of("x"), {"deep": [1, {"$bytes": "x"}]}, "text", None],
    ids=["signal", "data", "text", "nothing"],
)
def test_a_checkpoint_with_schedules_comes_back_from_json(message: Any) -> None:
    """Whatever the message is."""
    schedules: Any = [
        PendingSchedule(directive=Schedule(delay_ms=5, message=message), due_at=7),
        PendingSchedule(directive=Cron(expression="@hourly", message=message, job_id="j")),
    ]
    saved = Checkpoint(id="a", name="a", schedules=schedules)
    assert Checkpoint.from_json(saved.to_json()) == saved
    with pytest.raises(WrongType, match="Schedule or a Cron"):
        PendingSchedule(directive=CronCancel(job_id="j"))
    with pytest.raises(WrongType, match=r"schedules\[0\]"):
        Checkpoint(id="a", name="a", schedules=[{"directive": 1}])  # type: ignore[arg-type]
