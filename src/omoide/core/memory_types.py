"""What kinds of memory are there?

The 25 types of the Jido ontology with the type each one refines, as data. The root, `memory_item`, is what an
untyped memory is.
"""

from __future__ import annotations

from types import MappingProxyType

from omoide.errors import NotFound

ROOT = "memory_item"

PARENTS = MappingProxyType(
    {
        "fact": ROOT,
        "assumption": ROOT,
        "hypothesis": ROOT,
        "discovery": ROOT,
        "risk": ROOT,
        "unknown": ROOT,
        "decision": ROOT,
        "architectural_decision": "decision",
        "implementation_decision": "decision",
        "alternative": ROOT,
        "trade_off": ROOT,
        "convention": ROOT,
        "coding_standard": "convention",
        "architectural_convention": "convention",
        "agent_rule": "convention",
        "process_convention": "convention",
        "error": ROOT,
        "bug": "error",
        "failure": "error",
        "incident": "error",
        "root_cause": ROOT,
        "lesson_learned": ROOT,
        "task": ROOT,
        "milestone": ROOT,
        "plan": ROOT,
    }
)

MEMORY_TYPES = tuple(PARENTS)


def check(name: object) -> str:
    """The name itself, if it is a type or the root."""
    if not isinstance(name, str) or (name != ROOT and name not in PARENTS):
        raise NotFound("memory type", name, f"use one of {', '.join(MEMORY_TYPES)}")
    return name


def ancestors(name: str) -> tuple[str, ...]:
    """The types it refines, nearest first, up to the root."""
    found = []
    while check(name) != ROOT:
        name = PARENTS[name]
        found.append(name)
    return tuple(found)


def with_subtypes(name: str) -> tuple[str, ...]:
    """The type and everything that refines it."""
    check(name)
    return (name, *(other for other in MEMORY_TYPES if name in ancestors(other)))


def ontology_class(name: str) -> str:
    """The name of its class in the ontology: `trade_off` is `TradeOff`."""
    return "".join(part.capitalize() for part in check(name).split("_"))
