"""How do agents live?"""

from __future__ import annotations

from omoide.runtime.bus import Bus
from omoide.runtime.conversations import Conversations
from omoide.runtime.drops import Drop
from omoide.runtime.ending import Exit
from omoide.runtime.policies import EmitErrors, LogErrors, MaxErrors, StopOnError
from omoide.runtime.providers import (
    Answered,
    Failed,
    Inline,
    Provider,
    Providers,
    StoreProvider,
    Table,
)
from omoide.runtime.runtime import Runtime
from omoide.runtime.server import AgentServer
from omoide.runtime.terms import Terms
from omoide.runtime.transport import Transport
from omoide.runtime.vaults import FileVault, StoreVault, Vault
from omoide.runtime.waiting import Waiting

__all__ = [
    "AgentServer",
    "Answered",
    "Bus",
    "Conversations",
    "Drop",
    "EmitErrors",
    "Exit",
    "FileVault",
    "Failed",
    "Inline",
    "LogErrors",
    "MaxErrors",
    "Provider",
    "Providers",
    "Runtime",
    "StopOnError",
    "StoreProvider",
    "StoreVault",
    "Table",
    "Terms",
    "Transport",
    "Vault",
    "Waiting",
]
