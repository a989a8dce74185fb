"""Immutable values and their pure functions: no I/O, no event loop, no clock of their own.

`frozen` and `codec` hold and encode data; `value` has the base classes and `schema` the schemas of users.
`memory`, `identity`, `thread`, `signal` and `action` define the parts of an agent, `state` holds them in
slots, `definition` declares agents and plugins and runs instructions, `agent` creates agents and runs
commands, `checkpoint` saves and restores them. `entry` has the values of the store contract.

The values that most programs need are names of `omoide`; the others are here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.core.action import Instruction
    from omoide.core.agent import mount, unmount
    from omoide.core.definition import Externalize
    from omoide.core.entry import (
        DELETED,
        MEMORY_TYPES,
        TYPE_WORDS,
        Hit,
        MessageRef,
        Reason,
        Why,
        ontology_class,
    )
    from omoide.core.frozen import FrozenList, FrozenMap, freeze, thaw
    from omoide.core.schema import Schema
    from omoide.core.thread import ThreadEntry
    from omoide.core.value import Value


__all__ = [
    "DELETED",
    "MEMORY_TYPES",
    "TYPE_WORDS",
    "Externalize",
    "FrozenList",
    "FrozenMap",
    "Hit",
    "Instruction",
    "MessageRef",
    "Reason",
    "Schema",
    "ThreadEntry",
    "Value",
    "Why",
    "freeze",
    "mount",
    "ontology_class",
    "thaw",
    "unmount",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "action": ("Instruction",),
        "agent": ("mount", "unmount"),
        "definition": ("Externalize",),
        "entry": (
            "DELETED",
            "MEMORY_TYPES",
            "TYPE_WORDS",
            "Hit",
            "MessageRef",
            "Reason",
            "Why",
            "ontology_class",
        ),
        "frozen": ("FrozenList", "FrozenMap", "freeze", "thaw"),
        "schema": ("Schema",),
        "thread": ("ThreadEntry",),
        "value": ("Value",),
    },
)
