"""How does an agent perceive the world?

A sensor is an async generator. Each signal that it yields comes into the agent's mailbox, and it goes on once
there is room for it; anything else that it yields is wrapped in a signal named after it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from omoide.core.directives import StartSensor, StopSensor
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.errors import IdTaken, NotFound, WrongType

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

SENSOR = "sensor"


def start(directive: StartSensor, server: AgentServer) -> None:
    """Start a sensor under a tag."""
    sensor = server.runtime.known.sensor(directive.sensor)
    if (SENSOR, directive.tag) in server.life.named:
        raise IdTaken(directive.tag)
    feel = partial(_felt, directive, sensor, server)
    server.job(feel, "sensor", tag=(SENSOR, directive.tag))


def stop(directive: StopSensor, server: AgentServer) -> None:
    """Stop the sensor under a tag."""
    job = server.life.named.pop((SENSOR, directive.tag), None)
    if job is None:
        known = ", ".join(sorted(tag for kind, tag in server.life.named if kind == SENSOR)) or "none"
        raise NotFound("sensor", directive.tag, f"agent {server.id!r} has: {known}")
    job.cancel()


async def _felt(directive: StartSensor, sensor: Any, server: AgentServer) -> None:
    readings = sensor(directive.config)
    if not isinstance(readings, AsyncGenerator):
        raise WrongType(f"sensor {directive.sensor!r}", "an async generator", readings)
    async with aclosing(readings):  # one that is stopped may have something to put away
        await _passed_on(readings, directive, server)


async def _passed_on(readings: AsyncGenerator[Any], directive: StartSensor, server: AgentServer) -> None:
    async for reading in readings:
        signal = reading if isinstance(reading, Signal) else _wrapped(reading, directive, server)
        await server.runtime.cast(server.id, signal)


def _wrapped(reading: Any, directive: StartSensor, server: AgentServer) -> Signal:
    data = FrozenMap({"tag": directive.tag, "reading": reading})
    return Signal(type=f"sensor.{directive.sensor}", data=data, source=server.source)
