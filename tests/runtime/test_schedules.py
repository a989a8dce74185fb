"""Schedules and cron jobs send an agent signals later."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.runtime_agents import Errors, Heard, an_agent, asks_for, counting, crash, plain, sig

from omoide.directives import Cron, CronCancel, Schedule
from omoide.runtime import Runtime
from omoide.testing import ManualTiming

MINUTE = 60_000


async def test_a_signal_comes_after_its_delay_and_not_before(heard: Heard) -> None:
    """Once, as an event of its own: what was said stays, id and time are new."""
    said = sig("alarm", {"why": "tea"}, subject="kitchen", source="/clock", extensions={"loud": True})
    timing = ManualTiming(5_000)
    async with Runtime(timing=timing) as runtime:
        agent = an_agent("a", {"go": asks_for(Schedule(delay_ms=100, message=said)), "alarm": heard})
        await runtime.start(agent)
        await runtime.call("a", sig("go"))
        await timing.advance(99)
        assert heard == []
        await timing.advance(1)
        assert heard.types == ["alarm"]
        await timing.advance(10_000)
        (told,) = heard
        assert told.id != said.id
        assert (told.data, told.subject, told.source) == (said.data, "kitchen", "/clock")
        assert told.extensions == {"loud": True}


@pytest.mark.parametrize("message", ["wake up", {"type": "alarm"}, ["a", 1], 7, None])
async def test_what_is_no_signal_is_wrapped_in_one(message: Any, heard: Heard) -> None:
    """Its type says that it was scheduled, and its data holds the message."""
    timing = ManualTiming(0)
    async with Runtime(timing=timing) as runtime:
        wanted = Schedule(delay_ms=10, message=message)
        await runtime.start(an_agent("a", {"go": asks_for(wanted), "jido.agent.scheduled": heard}))
        await runtime.call("a", sig("go"))
        await timing.advance(10)
        assert heard.data == [{"message": message}]
        assert heard[0].source == "/omoide/agents/a"


async def test_what_is_due_at_once_still_comes_as_a_letter(heard: Heard) -> None:
    """A delay of nothing is no way around the mailbox, and messages of one moment keep their order."""
    timing = ManualTiming(0)
    said = [Schedule(delay_ms=delay, message=sig(f"n{delay}")) for delay in (20, 0, 10)]
    both = [Schedule(delay_ms=20, message=sig("last"))]
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": asks_for(*said, *both), "*": heard}))
        await runtime.call("a", sig("go"))
        await timing.advance(20)
        assert heard.types[-4:] == ["n0", "n10", "n20", "last"]


async def test_a_cron_job_tells_again_and_again_until_it_is_cancelled(heard: Heard) -> None:
    """At the times of its line; cancelling a job that is not there is no error."""
    timing, errors = ManualTiming(0), Errors()
    job = Cron(expression="*/5 * * * *", message=sig("tick"), job_id="j")
    routes = {
        "go": asks_for(job),
        "end": asks_for(CronCancel(job_id="j"), CronCancel(job_id="never was")),
        "tick": heard,
    }
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", routes), on_error=errors)
        await runtime.call("a", sig("go"))
        await timing.advance(5 * MINUTE - 1)
        assert heard == []
        await timing.advance(10 * MINUTE + 1)
        assert heard.types == ["tick"] * 3
        assert len({signal.id for signal in heard}) == 3
        await runtime.call("a", sig("end"))
        await timing.advance(60 * MINUTE)
        assert heard.types == ["tick"] * 3
        assert errors == []


async def test_a_cron_message_that_is_no_signal_is_wrapped_with_the_job(heard: Heard) -> None:
    """So that an agent with several jobs knows which of them it was."""
    timing = ManualTiming(0)
    job = Cron(expression="* * * * *", message={"do": "this"}, job_id="j")
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": asks_for(job), "jido.agent.scheduled": heard}))
        await runtime.call("a", sig("go"))
        await timing.advance(MINUTE)
        assert heard.data == [{"message": {"do": "this"}, "job_id": "j"}]


async def test_a_job_of_the_same_id_is_replaced(heard: Heard) -> None:
    """Jobs of other ids go on beside it."""
    timing = ManualTiming(0)
    jobs = {
        "first": Cron(expression="* * * * *", message=sig("first"), job_id="j"),
        "second": Cron(expression="*/2 * * * *", message=sig("second"), job_id="j"),
        "other": Cron(expression="*/2 * * * *", message=sig("other"), job_id="o"),
    }
    routes: dict[str, Any] = {f"start.{name}": asks_for(job) for name, job in jobs.items()}
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {**routes, "*": heard}))
        for name in jobs:
            await runtime.call("a", sig(f"start.{name}"))
        await timing.advance(4 * MINUTE)
        assert sorted(heard.types) == ["other"] * 2 + ["second"] * 2


async def test_a_time_zone_goes_for_a_job(heard: Heard) -> None:
    """Noon in Vienna is eleven in winter."""
    timing = ManualTiming(0)
    noon = Cron(expression="0 12 * * *", message=sig("noon"), timezone="Europe/Vienna")
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": asks_for(noon), "noon": heard}))
        await runtime.call("a", sig("go"))
        await timing.advance(11 * 60 * MINUTE - 1)
        assert heard == []
        await timing.advance(1)
        assert heard.types == ["noon"]


@pytest.mark.parametrize(
    "wrong",
    [
        Cron(expression="61 * * * *", message=1),
        Cron(expression="@sometimes", message=1),
        Cron(expression="0 0 30 2 *", message=1),
        Cron(expression="* * * * *", message=1, timezone="Mars/Olympus"),
    ],
)
async def test_a_line_that_cannot_fire_is_reported(wrong: Cron, errors: Errors) -> None:
    """And replaces nothing: a job of the same id goes on."""
    timing, heard = ManualTiming(0), Heard()
    good = Cron(expression="* * * * *", message=sig("tick"), job_id="j")
    routes = {"go": asks_for(good), "wrong": asks_for(wrong.replace(job_id="j")), "tick": heard}
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", routes), on_error=errors)
        await runtime.call("a", sig("go"))
        await runtime.call("a", sig("wrong"))
        assert [one.context for one in errors] == ["directive"]
        await timing.advance(MINUTE)
        assert heard.types == ["tick"]


async def test_timers_and_jobs_end_with_the_life_that_began_them(heard: Heard) -> None:
    """An agent that is started again is not told what it asked for before."""
    timing = ManualTiming(0)
    routes = {
        "go": asks_for(
            Schedule(delay_ms=10, message=sig("late")),
            Cron(expression="* * * * *", message=sig("tick"), job_id="j"),
        ),
        "late": heard,
        "tick": heard,
        "crash": crash,
        "up": counting,
    }
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", routes))
        await runtime.call("a", sig("go"))
        await runtime.cast("a", sig("crash"))
        await timing.advance(5 * MINUTE)
        assert heard == []
        assert plain((await runtime.call("a", sig("up"))).state) == {"count": 1}
        assert len(runtime.timers) == 0


async def test_an_agent_that_ends_does_not_wait_for_its_timers() -> None:
    """And leaves none behind."""
    timing = ManualTiming(0)
    later = Schedule(delay_ms=10**9, message="never")
    every = Cron(expression="@yearly", message="never")
    async with Runtime(timing=timing) as runtime:
        await runtime.start(an_agent("a", {"go": asks_for(later, every)}))
        await runtime.call("a", sig("go"))
        assert len(runtime.timers) == 2
        await runtime.stop("a")
        assert len(runtime.timers) == 0
        assert len(runtime.dropped_signals) == 0
