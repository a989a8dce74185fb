"""How is a result told to a model?

As text: what is text stays as it is, data becomes JSON without what is empty. A tool that did its work never
fails because of what it returned.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from enum import Enum
from typing import Any

import msgspec

from omoide.core.agent import Agent
from omoide.core.identity import Identity
from omoide.core.memory import Memory
from omoide.core.slot import SLOTS
from omoide.core.thread import Thread

DONE = "done"
DEPTH = 32


def told(result: Any) -> str:
    """A result as a model reads it."""
    if result is None or isinstance(result, (Agent, Identity, Memory, Thread)):
        return DONE
    if isinstance(result, str):
        return clean(result)
    try:
        return msgspec.json.encode(_plain(result, 0), order="sorted").decode()
    except (TypeError, ValueError, RecursionError) as error:
        return f"It ran; its result cannot be shown ({type(error).__name__}: {clean(str(error))})."


def clean(text: str) -> str:
    """Text that can be written down, whatever it was."""
    return text.replace("\0", "␀").encode(errors="replace").decode()


def _plain(value: Any, depth: int) -> Any:
    """Data in the types of JSON."""
    if depth > DEPTH:
        raise ValueError("it is nested too deeply")
    match value:
        case None | bool() | int():
            return value
        case float():
            return value if value == value and abs(value) != float("inf") else str(value)
        case str():
            return clean(value)
        case Enum():
            return _plain(value.value, depth + 1)
        case datetime() | date():
            return value.isoformat()
        case bytes():
            return b64encode(value).decode()
        case Mapping():
            return {
                clean(str(key)): _plain(inner, depth + 1) for key, inner in value.items() if key not in SLOTS
            }
        case list() | tuple() | set() | frozenset():
            return [_plain(inner, depth + 1) for inner in value]
        case _:
            return _taken_apart(value, depth)


def _taken_apart(value: Any, depth: int) -> Any:
    if hasattr(value, "to_python"):
        return _plain(value.to_python(), depth + 1)
    if isinstance(value, msgspec.Struct):
        given = {name: getattr(value, name) for name in value.__struct_fields__}
    elif hasattr(value, "model_dump"):
        given = value.model_dump()
    elif is_dataclass(value) and not isinstance(value, type):
        given = {field.name: getattr(value, field.name) for field in fields(value)}
    else:
        raise TypeError(f"{type(value).__name__} is no data")
    plain = {name: _plain(inner, depth + 1) for name, inner in given.items()}
    return {name: inner for name, inner in plain.items() if inner not in (None, [], {}, "")}
