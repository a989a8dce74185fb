"""Immutable values and their pure functions: no I/O, no event loop, no clock of their own.

`frozen`, `vector` and `codec` hold and encode data; `value` has the base classes and `schema` the schemas of
users. `memory`, `identity`, `thread`, `signal` and `action` are what an agent is made of, `state` keeps them
together, `execution` runs instructions, `definition` declares agents and plugins, `agent` and `checkpoint`
are the agents themselves. `entry` has the values of the store contract.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.core.action import Action, Directive, Instruction
    from omoide.core.agent import Agent, Candidate
    from omoide.core.checkpoint import Checkpoint
    from omoide.core.definition import Definition, Externalize, Plugin
    from omoide.core.entry import (
        DELETED,
        MEMORY_TYPES,
        Entry,
        Evidence,
        Filter,
        Hit,
        MessageRef,
        Reason,
        RecallRequest,
        RecallResult,
        Scope,
        Why,
        WriteRequest,
        WriteResult,
        ontology_class,
    )
    from omoide.core.execution import Direct, Route, Strategy
    from omoide.core.frozen import FrozenList, FrozenMap, freeze, thaw
    from omoide.core.identity import Identity
    from omoide.core.memory import Memory, Space
    from omoide.core.schema import Schema
    from omoide.core.signal import Signal
    from omoide.core.state import Context, StrategyState
    from omoide.core.thread import Thread, ThreadEntry
    from omoide.core.value import Value


__all__ = [
    "DELETED",
    "MEMORY_TYPES",
    "Action",
    "Agent",
    "Candidate",
    "Checkpoint",
    "Context",
    "Definition",
    "Direct",
    "Directive",
    "Entry",
    "Evidence",
    "Externalize",
    "Filter",
    "FrozenList",
    "FrozenMap",
    "Hit",
    "Identity",
    "Instruction",
    "Memory",
    "MessageRef",
    "Plugin",
    "Reason",
    "RecallRequest",
    "RecallResult",
    "Route",
    "Schema",
    "Scope",
    "Signal",
    "Space",
    "Strategy",
    "StrategyState",
    "Thread",
    "ThreadEntry",
    "Value",
    "Why",
    "WriteRequest",
    "WriteResult",
    "freeze",
    "ontology_class",
    "thaw",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "action": ("Action", "Directive", "Instruction"),
        "agent": ("Agent", "Candidate"),
        "checkpoint": ("Checkpoint",),
        "definition": ("Definition", "Externalize", "Plugin"),
        "entry": (
            "DELETED",
            "MEMORY_TYPES",
            "Entry",
            "Evidence",
            "Filter",
            "Hit",
            "MessageRef",
            "Reason",
            "RecallRequest",
            "RecallResult",
            "Scope",
            "Why",
            "WriteRequest",
            "WriteResult",
            "ontology_class",
        ),
        "execution": ("Direct", "Route", "Strategy"),
        "frozen": ("FrozenList", "FrozenMap", "freeze", "thaw"),
        "identity": ("Identity",),
        "memory": ("Memory", "Space"),
        "schema": ("Schema",),
        "signal": ("Signal",),
        "state": ("Context", "StrategyState"),
        "thread": ("Thread", "ThreadEntry"),
        "value": ("Value",),
    },
)
