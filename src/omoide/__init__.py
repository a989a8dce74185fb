"""Local-first memory for AI agents.

The names here are the ones that most programs need. `omoide.core` has every value; `strategy`, `clock`,
`ids`, `longterm`, `projection`, `promotion`, `runtime`, `sessions`, `shortterm`, `stores`, `tools`, `turns`,
`client` and `testing` have the names of one part each. Modules that need an event loop, a database or a model
are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide import blocking, directives, errors, identity, memory, thread
from omoide._lazy import attach
from omoide.core.action import Action, action
from omoide.core.agent import Agent, cmd, receive
from omoide.core.checkpoint import Checkpoint, checkpoint, restore
from omoide.core.definition import Definition, Plugin
from omoide.core.entry import (
    Entry,
    Evidence,
    Filter,
    RecallRequest,
    RecallResult,
    Scope,
    WriteRequest,
    WriteResult,
)
from omoide.core.identity import Identity
from omoide.core.memory import Memory, Space
from omoide.core.signal import Signal
from omoide.core.state import Context
from omoide.core.thread import Thread
from omoide.stores.protocols import Store
from omoide.verbs import erase, erase_user, forget, pin, recall, remember, unpin

if TYPE_CHECKING:
    from omoide import graph
    from omoide.documents.writer import add_document
    from omoide.runtime.runtime import Runtime
    from omoide.sessions.session import Session
    from omoide.stores.factory import open_store
    from omoide.turns.memory import write
    from omoide.turns.preview import preflight
    from omoide.turns.runner import chat, stream, turn
    from omoide.turns.spec import AgentSpec, MemoryPolicy


__version__ = "0.1.0"

__all__ = [
    "Action",
    "Agent",
    "AgentSpec",
    "Checkpoint",
    "Context",
    "Definition",
    "Entry",
    "Evidence",
    "Filter",
    "Identity",
    "Memory",
    "MemoryPolicy",
    "Plugin",
    "RecallRequest",
    "RecallResult",
    "Runtime",
    "Scope",
    "Session",
    "Signal",
    "Space",
    "Store",
    "Thread",
    "WriteRequest",
    "WriteResult",
    "action",
    "add_document",
    "blocking",
    "chat",
    "checkpoint",
    "cmd",
    "directives",
    "erase",
    "erase_user",
    "errors",
    "forget",
    "graph",
    "identity",
    "memory",
    "open_store",
    "pin",
    "preflight",
    "recall",
    "receive",
    "remember",
    "restore",
    "stream",
    "thread",
    "turn",
    "unpin",
    "write",
]


__getattr__, __dir__ = attach(
    __name__,
    submodules=(
        "client",
        "documents",
        "embedders",
        "graph",
        "longterm",
        "projection",
        "promotion",
        "runtime",
        "sessions",
        "shortterm",
        "stores",
        "strategy",
        "testing",
        "tools",
        "turns",
    ),
    attributes={
        "documents.writer": ("add_document",),
        "runtime.runtime": ("Runtime",),
        "sessions.session": ("Session",),
        "stores.factory": ("open_store",),
        "turns.memory": ("write",),
        "turns.preview": ("preflight",),
        "turns.runner": ("chat", "stream", "turn"),
        "turns.spec": ("AgentSpec", "MemoryPolicy"),
    },
)
