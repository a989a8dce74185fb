"""What shape do the answers of the tools have?

Clients read them as data; the schemas are made from these.

"""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class Answer(msgspec.Struct, kw_only=True):
    """What every answer may hold."""

    notices: list[str] | UnsetType = UNSET


class Memory(msgspec.Struct, kw_only=True):
    """A memory."""

    id: str
    content: str
    confidence: float
    created_at: str
    type: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    rationale: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    why: str | list[str] | UnsetType = UNSET


class Remembered(Answer, kw_only=True):
    """What became of something that was to be kept."""

    remembered: bool
    memory_id: str
    message: str
    memory_type: str | UnsetType = UNSET
    contradicts: list[str] | UnsetType = UNSET


class Recalled(Answer, kw_only=True):
    """What was found."""

    memories: list[Memory]
    count: int
    note: str | UnsetType = UNSET


class Forgotten(Answer, kw_only=True):
    """What became of something that was to be forgotten."""

    forgotten: bool
    memory_id: str
    message: str
    reason: str | UnsetType = UNSET
    replacement_id: str | UnsetType = UNSET
    at: str | UnsetType = UNSET


class Status(Answer, kw_only=True):
    """What memory there is."""

    scope: dict[str, str]
    memories: int
    forgotten: int
    stale: int
    expired: int
    by_type: dict[str, int]
    searched_by: str
    writable: bool


class Able(msgspec.Struct, kw_only=True):
    """An agent that can do it."""

    id: str
    name: str
    reason: str
    age: int | UnsetType = UNSET


class Choices(Answer, kw_only=True):
    """Who can do it."""

    agents: list[Able]
    count: int


class Related(Answer, kw_only=True):
    """That two memories are related now."""

    related: bool
    source_id: str
    relation: str
    target_id: str
    message: str


class Reviewed(Answer, kw_only=True):
    """What needs attention."""

    conflicts: list[dict[str, Any]]
    stale: list[Memory]
    open_questions: list[Memory]
    expiring: list[Memory]
    message: str


class Got(Answer, kw_only=True):
    """One memory."""

    memory: Memory
    links: list[dict[str, str]] | UnsetType = UNSET


class Listed(Answer, kw_only=True):
    """A page of memories."""

    memories: list[Memory]
    count: int
    cursor: str | UnsetType = UNSET


class Histories(Answer, kw_only=True):
    """The versions of a memory."""

    versions: list[dict[str, Any]]


class Relatives(Answer, kw_only=True):
    """What a memory is related to."""

    related: list[dict[str, Any]]
    count: int


class Origins(Answer, kw_only=True):
    """Where a memory comes from."""

    tree: str
    sources: list[dict[str, str]]


class Restored(Answer, kw_only=True):
    """A memory that is back."""

    restored: bool
    memory: Memory
    message: str


class Found(Answer, kw_only=True):
    """What a query found."""

    kind: str
    rows: list[dict[str, str]] | UnsetType = UNSET
    truth: bool | UnsetType = UNSET
    triples: list[str] | UnsetType = UNSET
    more: bool | UnsetType = UNSET


def schema_of(shape: type[Answer]) -> dict[str, Any]:
    """The JSON Schema of an answer, in one piece, without what only repeats its names."""
    _, parts = msgspec.json.schema_components([shape], ref_template="{name}")
    plain: dict[str, Any] = _inlined(parts[shape.__name__], parts)
    return plain


def _inlined(node: Any, parts: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inlined(one, parts) for one in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(parts[node["$ref"]], parts)
    return {
        name: {key: _inlined(one, parts) for key, one in inner.items()}
        if name == "properties"
        else _inlined(inner, parts)
        for name, inner in node.items()
        if name not in ("title", "description")
    }
