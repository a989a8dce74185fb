"""Run agents: mailboxes, supervision, timers, transports, checkpoints and a fleet of runtimes.

`runtime` holds the agents of one process. `server` is the task of one agent, `mailbox` its queue,
`executors` carry out its directives, `policy` has its options and error policies, `supervisor` restarts it.
`tasks` owns its background jobs, `scheduler` its timers and cron jobs,
`registry` maps names to code. `transport` moves signals between agents; `nats` does so between
machines. `checkpoints` stores agents, `providers` are the memory back ends of directives, `sessions` is a
pool of live sessions, and `fleet` lets several runtimes share their agents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.runtime.checkpoints import CheckpointStore, DocumentCheckpointStore, FileCheckpointStore
    from omoide.runtime.mailbox import DroppedSignal
    from omoide.runtime.policy import AgentOptions, EmitErrors, LogErrors, MaxErrors, StopOnError
    from omoide.runtime.providers import (
        InlineProvider,
        Provider,
        ProviderFailure,
        ProviderResult,
        Providers,
        StoreProvider,
        TableProvider,
    )
    from omoide.runtime.runtime import Runtime
    from omoide.runtime.scheduler import SystemTiming, Timers, Timing, check_expression, next_after
    from omoide.runtime.server import AgentServer
    from omoide.runtime.sessions import SessionPool
    from omoide.runtime.tasks import BlockingWork, Exit
    from omoide.runtime.transport import Bus, Transport

__all__ = [
    "AgentOptions",
    "AgentServer",
    "BlockingWork",
    "Bus",
    "CheckpointStore",
    "DocumentCheckpointStore",
    "DroppedSignal",
    "EmitErrors",
    "Exit",
    "FileCheckpointStore",
    "InlineProvider",
    "LogErrors",
    "MaxErrors",
    "Provider",
    "ProviderFailure",
    "ProviderResult",
    "Providers",
    "Runtime",
    "SessionPool",
    "StopOnError",
    "StoreProvider",
    "SystemTiming",
    "TableProvider",
    "Timers",
    "Timing",
    "Transport",
    "check_expression",
    "next_after",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "checkpoints": ("CheckpointStore", "DocumentCheckpointStore", "FileCheckpointStore"),
        "mailbox": ("DroppedSignal",),
        "policy": ("AgentOptions", "EmitErrors", "LogErrors", "MaxErrors", "StopOnError"),
        "providers": (
            "InlineProvider",
            "Provider",
            "ProviderFailure",
            "ProviderResult",
            "Providers",
            "StoreProvider",
            "TableProvider",
        ),
        "runtime": ("Runtime",),
        "scheduler": ("SystemTiming", "Timers", "Timing", "check_expression", "next_after"),
        "server": ("AgentServer",),
        "sessions": ("SessionPool",),
        "tasks": ("BlockingWork", "Exit"),
        "transport": ("Bus", "Transport"),
    },
)
