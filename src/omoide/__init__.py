"""Omoide gives agents a memory they can explain and an identity others can route to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from omoide import blocking, clock, directives, errors, identity, ids, memory, strategy, thread
from omoide.core.action import Action, Instruction, action
from omoide.core.agent import Agent, cmd
from omoide.core.checkpoint import Checkpoint, checkpoint, restore
from omoide.core.context import Context
from omoide.core.definition import Definition
from omoide.core.entry import Entry, Evidence, MessageRef
from omoide.core.frozen import FrozenList, FrozenMap
from omoide.core.identity import Identity
from omoide.core.memory import Memory
from omoide.core.memory_types import MEMORY_TYPES
from omoide.core.plugin import Externalize, Plugin
from omoide.core.recalling import Filter, RecallRequest, RecallResult
from omoide.core.receiving import receive
from omoide.core.router import Route
from omoide.core.scope import Scope
from omoide.core.signal import Signal
from omoide.core.space import Space
from omoide.core.strategy import Direct, Strategy
from omoide.core.strategy_state import StrategyState
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.writing import WriteRequest, WriteResult
from omoide.stores.protocols import Store
from omoide.verbs import erase, forget, recall, remember

if TYPE_CHECKING:
    from omoide.stores.opening import open_store

__version__ = "0.1.0"

__all__ = [
    "MEMORY_TYPES",
    "Action",
    "Agent",
    "Checkpoint",
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
    "MessageRef",
    "Plugin",
    "RecallRequest",
    "RecallResult",
    "Route",
    "Scope",
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
    "checkpoint",
    "clock",
    "cmd",
    "directives",
    "erase",
    "errors",
    "forget",
    "identity",
    "ids",
    "memory",
    "open_store",
    "recall",
    "receive",
    "remember",
    "restore",
    "strategy",
    "thread",
]


def __getattr__(name: str) -> Any:
    """What only programs with a store need is loaded when it is asked for."""
    if name == "open_store":
        from omoide.stores.opening import open_store

        return open_store
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
