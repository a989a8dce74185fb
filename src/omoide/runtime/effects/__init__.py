"""How is each directive carried out?

An executor takes a directive and the server of the agent that asked for it. A plain function does it at once,
and may return `Waiting(work)` where the next directive has to wait, or a `Stop`; an async one goes on beside
the agent's letters.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from omoide.core.directives import (
    AdoptChild,
    Cron,
    CronCancel,
    Directive,
    Emit,
    Error,
    MemoryDelete,
    MemoryQuery,
    MemoryUpsert,
    RunInstruction,
    Schedule,
    Spawn,
    SpawnAgent,
    StartSensor,
    Stop,
    StopChild,
    StopSensor,
)
from omoide.runtime.effects import children, instructing, scheduling, sending, sensing

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

Executor = Callable[[Any, Any], Any]


def _report(directive: Error, server: AgentServer) -> None:
    server.report(directive)


def _stop(directive: Stop, server: AgentServer) -> Stop:
    return directive


def _ask(directive: Any, server: AgentServer) -> None:
    server.adapters.ask(directive, server)


BUILT_IN: dict[type[Directive], Executor] = {
    AdoptChild: children.adopt,
    Cron: scheduling.repeat,
    CronCancel: scheduling.cancel,
    Emit: sending.emit,
    Error: _report,
    MemoryDelete: _ask,
    MemoryQuery: _ask,
    MemoryUpsert: _ask,
    RunInstruction: instructing.run,
    Schedule: scheduling.schedule,
    Spawn: children.spawn,
    SpawnAgent: children.spawn_agent,
    StartSensor: sensing.start,
    Stop: _stop,
    StopChild: children.stop,
    StopSensor: sensing.stop,
}
