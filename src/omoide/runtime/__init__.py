"""How do agents live?"""

from __future__ import annotations

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
from omoide.runtime.server import AgentServer
from omoide.runtime.sessions import SessionPool
from omoide.runtime.tasks import BlockingWork, Exit
from omoide.runtime.transport import Bus, Transport
from omoide.runtime.vaults import CheckpointStore, DocumentCheckpointStore, FileCheckpointStore

__all__ = [
    "AgentServer",
    "ProviderResult",
    "Bus",
    "SessionPool",
    "DroppedSignal",
    "EmitErrors",
    "Exit",
    "FileCheckpointStore",
    "ProviderFailure",
    "InlineProvider",
    "LogErrors",
    "MaxErrors",
    "Provider",
    "Providers",
    "Runtime",
    "StopOnError",
    "StoreProvider",
    "DocumentCheckpointStore",
    "TableProvider",
    "AgentOptions",
    "Transport",
    "CheckpointStore",
    "BlockingWork",
]
