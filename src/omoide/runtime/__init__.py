"""How do agents live?"""

from __future__ import annotations

from omoide.runtime.mailbox import Drop
from omoide.runtime.policy import EmitErrors, LogErrors, MaxErrors, StopOnError, Terms
from omoide.runtime.providers import Answered, Failed, Inline, Provider, Providers, StoreProvider, Table
from omoide.runtime.runtime import Runtime
from omoide.runtime.server import AgentServer
from omoide.runtime.sessions import Conversations
from omoide.runtime.tasks import Exit, Waiting
from omoide.runtime.transport import Bus, Transport
from omoide.runtime.vaults import FileVault, StoreVault, Vault

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
