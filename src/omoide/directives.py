"""Directives that the runtime executes, and state operations that `cmd` applies itself."""

from __future__ import annotations

from omoide.core.action import (
    BUILT_IN,
    MEMORY_RESULT,
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
from omoide.core.state import DeleteKeys, DeletePath, ReplaceState, SetPath, SetState, StateOp

__all__ = [
    "BUILT_IN",
    "MEMORY_RESULT",
    "AdoptChild",
    "Cron",
    "CronCancel",
    "DeleteKeys",
    "DeletePath",
    "Directive",
    "Emit",
    "Error",
    "MemoryDelete",
    "MemoryQuery",
    "MemoryUpsert",
    "ReplaceState",
    "RunInstruction",
    "Schedule",
    "SetPath",
    "SetState",
    "Spawn",
    "SpawnAgent",
    "StartSensor",
    "StateOp",
    "Stop",
    "StopChild",
    "StopSensor",
]
