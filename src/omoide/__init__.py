"""Omoide gives agents a memory they can explain and an identity others can route to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide import blocking, clock, directives, errors, identity, ids, memory, strategy, thread
from omoide._lazy import attach
from omoide.core.action import Action, Instruction, action
from omoide.core.agent import Agent, cmd, receive
from omoide.core.checkpoint import Checkpoint, checkpoint, restore
from omoide.core.definition import Definition, Externalize, Plugin
from omoide.core.entry import (
    MEMORY_TYPES,
    Entry,
    Evidence,
    Filter,
    MessageRef,
    RecallRequest,
    RecallResult,
    Scope,
    WriteRequest,
    WriteResult,
)
from omoide.core.execution import Direct, Route, Strategy
from omoide.core.frozen import FrozenList, FrozenMap
from omoide.core.identity import Identity
from omoide.core.memory import Memory, Space
from omoide.core.signal import Signal
from omoide.core.state import Context, StrategyState
from omoide.core.thread import Thread, ThreadEntry
from omoide.stores.protocols import Store
from omoide.verbs import erase, forget, recall, remember

if TYPE_CHECKING:
    from omoide import graph, longterm, projection, promotion, runtime, sessions, shortterm, tools, turns
    from omoide.client.client import AsyncClient, Client
    from omoide.runtime.runtime import Runtime
    from omoide.sessions.session import Session
    from omoide.stores.factory import open_store
    from omoide.turns.memory import write
    from omoide.turns.preview import preflight
    from omoide.turns.runner import chat, stream, turn
    from omoide.turns.spec import AgentSpec, MemoryPolicy


__version__ = "0.1.0"

__all__ = [
    "MEMORY_TYPES",
    "Action",
    "Agent",
    "AgentSpec",
    "AsyncClient",
    "Checkpoint",
    "Client",
    "Context",
    "Definition",
    "Direct",
    "Entry",
    "Evidence",
    "Externalize",
    "Filter",
    "FrozenList",
    "FrozenMap",
    "Identity",
    "Instruction",
    "Memory",
    "MemoryPolicy",
    "MessageRef",
    "Plugin",
    "RecallRequest",
    "RecallResult",
    "Route",
    "Runtime",
    "Scope",
    "Session",
    "Signal",
    "Space",
    "Store",
    "Strategy",
    "StrategyState",
    "Thread",
    "ThreadEntry",
    "WriteRequest",
    "WriteResult",
    "action",
    "blocking",
    "chat",
    "checkpoint",
    "clock",
    "cmd",
    "directives",
    "erase",
    "errors",
    "forget",
    "graph",
    "identity",
    "ids",
    "longterm",
    "memory",
    "open_store",
    "preflight",
    "projection",
    "promotion",
    "recall",
    "receive",
    "remember",
    "restore",
    "runtime",
    "sessions",
    "shortterm",
    "strategy",
    "stream",
    "thread",
    "tools",
    "turn",
    "turns",
    "write",
]


__getattr__, __dir__ = attach(
    __name__,
    submodules=(
        "graph",
        "longterm",
        "projection",
        "promotion",
        "runtime",
        "sessions",
        "shortterm",
        "tools",
        "turns",
    ),
    attributes={
        "client": ("AsyncClient", "Client"),
        "runtime.runtime": ("Runtime",),
        "sessions.session": ("Session",),
        "stores.factory": ("open_store",),
        "turns.memory": ("write",),
        "turns.preview": ("preflight",),
        "turns.runner": ("chat", "stream", "turn"),
        "turns.spec": ("AgentSpec", "MemoryPolicy"),
    },
)
