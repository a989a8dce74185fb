"""Omoide gives agents a memory they can explain and an identity others can route to."""

from __future__ import annotations

from omoide import clock, directives, errors, identity, ids, memory, strategy, thread
from omoide.core.action import Action, Instruction, action
from omoide.core.agent import Agent, cmd
from omoide.core.checkpoint import Checkpoint, checkpoint, restore
from omoide.core.context import Context
from omoide.core.definition import Definition
from omoide.core.frozen import FrozenList, FrozenMap
from omoide.core.identity import Identity
from omoide.core.memory import Memory
from omoide.core.memory_types import MEMORY_TYPES
from omoide.core.plugin import Externalize, Plugin
from omoide.core.receiving import receive
from omoide.core.router import Route
from omoide.core.signal import Signal
from omoide.core.space import Space
from omoide.core.strategy import Direct, Strategy
from omoide.core.strategy_state import StrategyState
from omoide.core.thread import Thread, ThreadEntry

__version__ = "0.1.0"

__all__ = [
    "MEMORY_TYPES",
    "Action",
    "Agent",
    "Checkpoint",
    "Context",
    "Definition",
    "Direct",
    "Externalize",
    "FrozenList",
    "FrozenMap",
    "Identity",
    "Instruction",
    "Memory",
    "Plugin",
    "Route",
    "Signal",
    "Space",
    "Strategy",
    "StrategyState",
    "Thread",
    "ThreadEntry",
    "action",
    "checkpoint",
    "clock",
    "cmd",
    "directives",
    "errors",
    "identity",
    "ids",
    "memory",
    "receive",
    "restore",
    "strategy",
    "thread",
]
