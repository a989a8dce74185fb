"""JSON Schemas of the tools, and the structured outputs that they are made from.

Clients put the schemas into the model's prompt, so they are kept short.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class ToolOutput(msgspec.Struct, kw_only=True):
    """Fields that every output may have."""

    notices: list[str] | UnsetType = UNSET


class MemoryOutput(msgspec.Struct, kw_only=True):
    """Memory."""

    id: str
    content: str
    confidence: float
    created_at: str
    key: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    source: str | UnsetType = UNSET
    rationale: str | UnsetType = UNSET
    tags: list[str] | UnsetType = UNSET
    relevance: float | UnsetType = UNSET
    newer: str | UnsetType = UNSET
    why: str | list[str] | UnsetType = UNSET


class RememberOutput(ToolOutput, kw_only=True):
    """Output of `remember`."""

    remembered: bool
    memory_id: str
    message: str
    memory_type: str | UnsetType = UNSET
    replaced: str | UnsetType = UNSET
    contradicts: list[str] | UnsetType = UNSET


class RecallOutput(ToolOutput, kw_only=True):
    """Output of `recall`."""

    memories: list[MemoryOutput]
    count: int
    withheld: int | UnsetType = UNSET
    note: str | UnsetType = UNSET


class ForgetOutput(ToolOutput, kw_only=True):
    """Output of `forget`."""

    forgotten: bool
    memory_id: str
    message: str
    reason: str | UnsetType = UNSET
    replacement_id: str | UnsetType = UNSET
    at: str | UnsetType = UNSET


class StatusOutput(ToolOutput, kw_only=True):
    """Output of `memory_status`."""

    scope: dict[str, str]
    memories: int
    forgotten: int
    stale: int
    expired: int
    by_type: dict[str, int]
    searched_by: str
    writable: bool


class CapableAgent(msgspec.Struct, kw_only=True):
    """Agent that can do the action."""

    id: str
    name: str
    reason: str
    age: int | UnsetType = UNSET


class WhoCanOutput(ToolOutput, kw_only=True):
    """Output of `who_can`."""

    agents: list[CapableAgent]
    count: int


class RelateOutput(ToolOutput, kw_only=True):
    """Output of `relate`."""

    related: bool
    source_id: str
    relation: str
    target_id: str
    message: str


class ReviewOutput(ToolOutput, kw_only=True):
    """Output of `review`."""

    conflicts: list[dict[str, Any]]
    stale: list[MemoryOutput]
    open_questions: list[MemoryOutput]
    expiring: list[MemoryOutput]
    message: str


class GetOutput(ToolOutput, kw_only=True):
    """Output of `get`."""

    memory: MemoryOutput
    links: list[dict[str, str]] | UnsetType = UNSET


class ListOutput(ToolOutput, kw_only=True):
    """Output of `list`: a page of memories."""

    memories: list[MemoryOutput]
    count: int
    cursor: str | UnsetType = UNSET


class HistoryOutput(ToolOutput, kw_only=True):
    """Output of `history`."""

    versions: list[dict[str, Any]]


class RelatedOutput(ToolOutput, kw_only=True):
    """Output of `related`."""

    related: list[dict[str, Any]]
    count: int


class ProvenanceOutput(ToolOutput, kw_only=True):
    """Output of `provenance`."""

    tree: str
    sources: list[dict[str, str]]


class RestoreOutput(ToolOutput, kw_only=True):
    """Output of `restore`."""

    restored: bool
    memory: MemoryOutput
    message: str


class SparqlOutput(ToolOutput, kw_only=True):
    """Output of `sparql`."""

    kind: str
    rows: list[dict[str, str]] | UnsetType = UNSET
    truth: bool | UnsetType = UNSET
    triples: list[str] | UnsetType = UNSET
    more: bool | UnsetType = UNSET


def input_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of parameters without its title, empty lists, empty defaults and null.

    They only repeat that a parameter may be left out.
    """
    short = {key: value for key, value in schema.items() if key != "title" and value != []}
    parameters = schema["properties"].items()
    return short | {"properties": {name: _input_parameter(parameter) for name, parameter in parameters}}


def _input_parameter(parameter: Mapping[str, Any]) -> dict[str, Any]:
    short = dict(parameter)
    if "default" in short and short["default"] in (None, "", []):
        del short["default"]
    choices = [choice for choice in short.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        del short["anyOf"]
        short |= choices[0]
    return short


def output_schema(output: type[ToolOutput]) -> dict[str, Any]:
    """Return the JSON Schema of an output, without references, titles and descriptions."""
    _, parts = msgspec.json.schema_components([output], ref_template="{name}")
    schema: dict[str, Any] = _inline_refs(parts[output.__name__], parts)
    return schema


def _inline_refs(node: Any, parts: dict[str, Any]) -> Any:
    if isinstance(node, list):
        return [_inline_refs(item, parts) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inline_refs(parts[node["$ref"]], parts)
    return {
        name: {key: _inline_refs(item, parts) for key, item in inner.items()}
        if name == "properties"
        else _inline_refs(inner, parts)
        for name, inner in node.items()
        if name not in ("title", "description")
    }
