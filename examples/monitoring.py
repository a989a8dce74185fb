"""An agent that watches a boiler and raises an alarm in time.

A sensor brings a reading every minute. The agent notes it, and a cron job ticks its strategy every five
minutes: then projectors make of what happened what the agent knows, an alarm and a task among it. A reading
that is nonsense is an error, which the policy sends to the agent as a signal. Time is moved by hand, so that
twenty minutes are over at once. Run it with `python examples/monitoring.py`.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from typing import Any, NamedTuple

import anyio

from omoide import Agent, Context, Memory, Signal, Thread, action, clock, memory, thread
from omoide.directives import Cron, Directive, Emit, StartSensor
from omoide.projection import ConversationSummary, NextActions, ProjectionContext, ProjectionStrategy
from omoide.runtime import EmitErrors, Runtime
from omoide.testing import ManualTiming

EIGHT_O_CLOCK = 1_767_254_430_000  # and half a minute, so that no reading falls on a tick
MINUTE = 60_000
READINGS = [61.0, 62.5, 61.5, 63.0, 74.0, "n/a", 88.0, 91.5, 93.0, 90.0, 79.0, 66.0, 62.0, 61.0, 60.5]
TOO_HOT = 85.0


class Watch(NamedTuple):
    """The agent after its watch, what it knew at each tick, and who was called."""

    agent: Agent
    ticks: list[str]
    called: list[str]


@action
def begin_watch(ctx: Context, every_ms: int = MINUTE) -> tuple[None, list[Directive]]:
    """Ask for the sensor, and for a tick every five minutes."""
    return None, [
        StartSensor(sensor="thermometer", tag="boiler", config={"every_ms": every_ms}),
        Cron(expression="*/5 * * * *", message=Signal(type="watch.tick"), job_id="tick"),
    ]


@action
def note_reading(ctx: Context, tag: str, reading: float) -> dict[str, Any]:
    """Keep the last reading in the world, and every one in the thread."""
    return {
        memory.key(): ctx.memory.world_put(tag, {"celsius": reading}),
        thread.key(): ctx.thread.append({"kind": "reading", "payload": {"celsius": reading}}),
    }


@action
def note_message(ctx: Context, text: str) -> Thread:
    """Keep what a person said."""
    return ctx.thread.append({"kind": "message", "payload": {"role": "user", "content": text}})


@action
def note_trouble(ctx: Context, kind: str) -> Memory:
    """Count what went wrong."""
    return ctx.memory.world_put("troubles", ctx.memory.world_get("troubles", 0) + 1)


class Alarms:
    """Raises an alarm while the boiler is too hot, and plans what is to be done about it."""

    name = "alarms"

    def project(
        self, memory: Memory, thread: Thread, ctx: ProjectionContext
    ) -> tuple[Memory, list[Directive]]:
        """The memory with an alarm, or without the one that is over; who has to know is called."""
        readings = [entry for entry in ctx.fresh if entry.kind == "reading"]
        if not readings:
            return memory, []
        hottest = max(readings, key=lambda entry: entry.payload["celsius"])
        celsius, alarm = hottest.payload["celsius"], memory.world_get("alarm")
        if celsius > TOO_HOT and alarm is None:
            memory = memory.world_put("alarm", {"celsius": celsius, "at": hottest.at, "seq": hottest.seq})
            memory = memory.tasks_add("Look after the boiler", id="look-after")
            call = Signal(type="alarm.raised", data={"celsius": celsius})
            return memory, [Emit(signal=call, dispatch={"pager": "the engineer"})]
        if celsius <= TOO_HOT and alarm is not None:
            return memory.world_delete("alarm"), []
        return memory, []


def watcher() -> Agent:
    """An agent that knows what to do about readings, messages, ticks and troubles."""
    return Agent.new(
        "watcher",
        id="boiler-watch",
        strategy=ProjectionStrategy([ConversationSummary(), NextActions(), Alarms()], after=1_000),
        routes=[
            ("watch.begin", begin_watch),
            ("watch.tick", ("strategy_tick",)),
            ("watch.trouble", note_trouble),
            ("sensor.thermometer", note_reading),
            ("person.said", note_message),
        ],
    )


def known(agent: Agent) -> str:
    """What the agent knows, in a line."""
    alarm = memory.world_get(agent, "alarm")
    state = "no alarm" if alarm is None else f"ALARM: {alarm['celsius']} °C at {at(alarm['at'])}"
    tasks = ", ".join(task["text"] for task in memory.tasks_open(agent)) or "nothing"
    return f"{memory.world_get(agent, 'boiler')['celsius']} °C; {state}; to do: {tasks}"


def at(ms: int) -> str:
    """The time of day of a moment."""
    minutes = ms // MINUTE % (24 * 60)
    return f"{minutes // 60:02}:{minutes % 60:02}"


async def watch(timing: ManualTiming) -> Watch:
    """Twenty minutes with a boiler."""
    ticks: list[str] = []
    called: list[str] = []

    async def thermometer(config: Mapping[str, Any]) -> AsyncGenerator[Any]:
        for reading in READINGS:
            await timing.wait(timing.now() + config["every_ms"])
            yield reading

    async def page(signal: Signal, who: str) -> None:
        called.append(f"{at(timing.now())} {who}: the boiler has {signal.data['celsius']} °C")

    runtime = Runtime(timing=timing, sensors={"thermometer": thermometer}, dispatchers={"pager": page})
    async with runtime:
        id = await runtime.start(watcher(), on_error=EmitErrors("watch.trouble"))
        await runtime.call(id, Signal(type="watch.begin"))
        said = "Pump 2 was serviced on Monday. Remember to check its filter."
        await runtime.call(id, Signal(type="person.said", data={"text": said}))
        for _ in range(4):
            await timing.advance(5 * MINUTE)
            ticks.append(f"{at(timing.now())} {known(await runtime.state(id))}")
        return Watch(await runtime.state(id), ticks, called)


def main() -> Watch:
    """Watch, and tell what was seen."""
    # The runtime writes down what goes wrong; here it goes wrong on purpose.
    logging.getLogger("omoide.runtime").addHandler(logging.NullHandler())
    timing = ManualTiming(EIGHT_O_CLOCK)
    with clock.override(timing):
        seen = anyio.run(watch, timing)
    for line in seen.ticks:
        print(line)
    for line in seen.called:
        print("called at", line)
    print("summary:", memory.world_get(seen.agent, "summary")["content"])
    print("readings:", sum(entry.kind == "reading" for entry in thread.entries(seen.agent)))
    print("troubles:", memory.world_get(seen.agent, "troubles"), "(one reading was no number)")
    return seen


if __name__ == "__main__":
    main()
