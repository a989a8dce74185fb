"""Schedules and cron jobs send an agent signals later."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    sig,
    to_plain,
)

from omoide.directives import Cron, CronCancel, Schedule
from omoide.runtime import Runtime
from omoide.testing import ManualTiming

MINUTE = 60_000


async def test_a_signal_comes_after_its_delay_and_not_before(recorder: SignalRecorder) -> None:
    """Once, as an event of its own: what was said stays, id and time are new."""
    said = sig("alarm", {"why": "tea"}, subject="kitchen", source="/clock", extensions={"loud": True})
    timing = ManualTiming(5_000)
    async with Runtime(timing=timing) as runtime:
        agent = an_agent(
            "a", {"go": action_returning(Schedule(delay_ms=100, message=said)), "alarm": recorder}
        )
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await timing.advance(99)
        assert recorder == []
        await timing.advance(1)
        assert recorder.types == ["alarm"]
        await timing.advance(10_000)
        (told,) = recorder
        assert told.id != said.id
        assert (told.data, told.subject, told.source) == (said.data, "kitchen", "/clock")
        assert told.extensions == {"loud": True}


@pytest.mark.parametrize("message", ["wake up", {"type": "alarm"}, ["a", 1], 7, None])
async def test_what_is_no_signal_is_wrapped_in_one(message: Any, recorder: SignalRecorder) -> None:
    """Its type says that it was scheduled, and its data holds the message."""
    timing = ManualTiming(0)
    async with Runtime(timing=timing) as runtime:
        wanted = Schedule(delay_ms=10, message=message)
        await runtime.start(an_agent("a", {"go": action_returning(wanted), "jido.agent.scheduled": recorder}))
        await runtime.call("a", sig("go"))
        await timing.advance(10)
        assert recorder.data == [{"message": message}]
        assert recorder[0].source == "/omoide/agents/a"


async def test_what_is_due_at_once_still_comes_as_a_letter(recorder: SignalRecorder) -> None:
    """A delay of nothing is no way around the mailbox, and messages of one moment keep their order."""
    timing = ManualTiming(0)
    said = [Schedule(delay_ms=delay, message=sig(f"n{delay}")) for delay in (20, 0, 10)]
    both = [Schedule(delay_ms=20, message=sig("last"))]
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": action_returning(*said, *both), "*": recorder}))
        await runtime.call("a", sig("go"))
        await timing.advance(20)
        assert recorder.types[-4:] == ["n0", "n10", "n20", "last"]


async def test_a_cron_job_tells_again_and_again_until_it_is_cancelled(recorder: SignalRecorder) -> None:
    """At the times of its line; cancelling a job that is not there is no error."""
    timing, errors = ManualTiming(0), ErrorRecorder()
    job = Cron(expression="*/5 * * * *", message=sig("tick"), job_id="j")
    routes = {
        "go": action_returning(job),
        "end": action_returning(CronCancel(job_id="j"), CronCancel(job_id="never was")),
        "tick": recorder,
    }
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", routes), on_error=errors)
        await runtime.call("a", sig("go"))
        await timing.advance(5 * MINUTE - 1)
        assert recorder == []
        await timing.advance(10 * MINUTE + 1)
        assert recorder.types == ["tick"] * 3
        assert len({signal.id for signal in recorder}) == 3
        await runtime.call("a", sig("end"))
        await timing.advance(60 * MINUTE)
        assert recorder.types == ["tick"] * 3
        assert errors == []


async def test_a_cron_message_that_is_no_signal_is_wrapped_with_the_job(recorder: SignalRecorder) -> None:
    """So that an agent with several jobs knows which of them it was."""
    timing = ManualTiming(0)
    job = Cron(expression="* * * * *", message={"do": "this"}, job_id="j")
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": action_returning(job), "jido.agent.scheduled": recorder}))
        await runtime.call("a", sig("go"))
        await timing.advance(MINUTE)
        assert recorder.data == [{"message": {"do": "this"}, "job_id": "j"}]


async def test_a_job_of_the_same_id_is_replaced(recorder: SignalRecorder) -> None:
    """Jobs of other ids go on beside it."""
    timing = ManualTiming(0)
    jobs = {
        "first": Cron(expression="* * * * *", message=sig("first"), job_id="j"),
        "second": Cron(expression="*/2 * * * *", message=sig("second"), job_id="j"),
        "other": Cron(expression="*/2 * * * *", message=sig("other"), job_id="o"),
    }
    routes: dict[str, Any] = {f"start.{name}": action_returning(job) for name, job in jobs.items()}
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {**routes, "*": recorder}))
        for name in jobs:
            await runtime.call("a", sig(f"start.{name}"))
        await timing.advance(4 * MINUTE)
        assert sorted(recorder.types) == ["other"] * 2 + ["second"] * 2


async def test_a_time_zone_goes_for_a_job(recorder: SignalRecorder) -> None:
    """Noon in Vienna is eleven in winter."""
    timing = ManualTiming(0)
    noon = Cron(expression="0 12 * * *", message=sig("noon"), timezone="Europe/Vienna")
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": action_returning(noon), "noon": recorder}))
        await runtime.call("a", sig("go"))
        await timing.advance(11 * 60 * MINUTE - 1)
        assert recorder == []
        await timing.advance(1)
        assert recorder.types == ["noon"]


@pytest.mark.parametrize(
    "wrong",
    [
        Cron(expression="61 * * * *", message=1),
        Cron(expression="@sometimes", message=1),
        Cron(expression="0 0 30 2 *", message=1),
        Cron(expression="* * * * *", message=1, timezone="Mars/Olympus"),
    ],
)
async def test_a_line_that_cannot_fire_is_reported(wrong: Cron, errors: ErrorRecorder) -> None:
    """And replaces nothing: a job of the same id goes on."""
    timing, recorder = ManualTiming(0), SignalRecorder()
    good = Cron(expression="* * * * *", message=sig("tick"), job_id="j")
    routes = {
        "go": action_returning(good),
        "wrong": action_returning(wrong.replace(job_id="j")),
        "tick": recorder,
    }
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", routes), on_error=errors)
        await runtime.call("a", sig("go"))
        await runtime.call("a", sig("wrong"))
        assert [one.context for one in errors] == ["directive"]
        await timing.advance(MINUTE)
        assert recorder.types == ["tick"]


async def test_timers_and_jobs_end_with_the_life_that_began_them(recorder: SignalRecorder) -> None:
    """An agent that is started again is not told what it asked for before."""
    timing = ManualTiming(0)
    routes = {
        "go": action_returning(
            Schedule(delay_ms=10, message=sig("late")),
            Cron(expression="* * * * *", message=sig("tick"), job_id="j"),
        ),
        "late": recorder,
        "tick": recorder,
        "crash": crash,
        "up": count_signals,
    }
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", routes))
        await runtime.call("a", sig("go"))
        await runtime.cast("a", sig("crash"))
        await timing.advance(5 * MINUTE)
        assert recorder == []
        assert to_plain((await runtime.call("a", sig("up"))).state) == {"count": 1}
        assert len(runtime.timers) == 0


async def test_an_agent_that_ends_does_not_wait_for_its_timers() -> None:
    """And leaves none behind."""
    timing = ManualTiming(0)
    later = Schedule(delay_ms=10**9, message="never")
    every = Cron(expression="@yearly", message="never")
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": action_returning(later, every)}))
        await runtime.call("a", sig("go"))
        assert len(runtime.timers) == 2
        await runtime.stop("a")
        assert len(runtime.timers) == 0
        assert len(runtime.dropped_signals) == 0
