"""Scope parameters and JSON bodies of the REST routes."""

from __future__ import annotations

from typing import Annotated, get_type_hints

import msgspec
from msgspec import Meta

from omoide.core.codec import MapField
from omoide.core.entry import (
    DEFAULT_NAMESPACE,
    MAX_KEY_LENGTH,
    MEMORY_TYPES,
    SOURCES,
    TYPE_WORDS,
    Evidence,
)

ScopeId = Annotated[str, Meta(min_length=1, description="Of this one only; usually of any.")] | None


class ScopeQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Query parameters that name the scope of a request."""

    namespace: Annotated[str, Meta(min_length=1, description="The namespace.")] = DEFAULT_NAMESPACE
    user: ScopeId = None
    agent: ScopeId = None
    session: ScopeId = None
    project: ScopeId = None


SCOPE_PARAMETERS = get_type_hints(ScopeQuery, include_extras=True)
AGENT_SCOPE = ("namespace", "agent")
"""Scope parameters of the routes about hibernated agents, which belong to no user, session or project."""

ID_PATTERN = "^[^\\u0000-\\u001f\\u007f-\\u009f]+$"
"""Pattern of an id."""

NonEmptyText = Annotated[str, Meta(min_length=1)]
IdText = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": ID_PATTERN})]
KeyText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_KEY_LENGTH,
        description="name of a slot, whose next value supersedes the one before",
        extra_json_schema={"pattern": ID_PATTERN},
    ),
]
Count = Annotated[int, Meta(ge=1, le=10_000)]
UnitFloat = Annotated[float, Meta(ge=0.0, le=1.0)]
TIME_DESCRIPTION = "A time as ISO 8601 text, UTC without an offset, or as milliseconds since 1970 UTC."
Timestamp = Annotated[int | str, Meta(description=TIME_DESCRIPTION)]
SourceName = Annotated[str, Meta(extra_json_schema={"enum": [*SOURCES]})]
MemoryTypeName = Annotated[
    str,
    Meta(
        description="a type, or an everyday word that stands for one, such as preference",
        extra_json_schema={"enum": [*MEMORY_TYPES, *TYPE_WORDS]},
    ),
]


class RequestBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """JSON body; unknown fields are refused."""


class RememberBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to store."""

    content: NonEmptyText
    id: IdText | None = None
    key: KeyText | None = None
    type: MemoryTypeName | None = None
    confidence: UnitFloat | None = None
    importance: UnitFloat | None = None
    source: SourceName | None = None
    tags: tuple[NonEmptyText, ...] | None = None
    rationale: str | None = None
    evidence: tuple[Evidence | NonEmptyText, ...] | None = None
    metadata: MapField | None = None
    occurred_at: Timestamp | None = None
    expires_at: Timestamp | None = None
    supersedes: IdText | None = None
    dedupe: bool | None = None


class DocumentBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Text of a document, and its name."""

    name: IdText
    text: NonEmptyText
    format: Annotated[str, Meta(extra_json_schema={"enum": ["text", "markdown", "html"]})] | None = None
    tags: tuple[NonEmptyText, ...] = ()


class FilterBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Filter for entries."""

    types: tuple[MemoryTypeName, ...] | None = None
    tags: tuple[NonEmptyText, ...] | None = None
    tags_any: tuple[NonEmptyText, ...] | None = None
    key: KeyText | None = None
    min_confidence: UnitFloat | None = None
    since: Timestamp | None = None
    until: Timestamp | None = None
    include_superseded: bool | None = None
    include_stale: bool | None = None
    include_expired: bool | None = None


class RecallBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Query for memories."""

    query: NonEmptyText
    limit: Annotated[int, Meta(ge=1, le=100)] = 5
    filter: FilterBody | None = None
    max_tokens: Count | None = None
    min_relevance: UnitFloat | None = None
    at: Timestamp | None = None


class ForgetBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to forget."""

    id: IdText
    reason: str | None = None
    replacement: IdText | None = None


class RestoreBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to bring back."""

    id: IdText


class PinBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory to pin or unpin."""

    id: IdText


class EraseBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Memory or list of memories to erase, or the whole scope with `everything`."""

    id: IdText | Annotated[list[IdText], Meta(min_length=1)] | None = None
    everything: bool = False
    reason: str | None = None


class RelateBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Relation between two memories."""

    source: IdText
    relation: NonEmptyText
    target: IdText


class PruneBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Criteria for pruning; nothing is forgotten unless `dry_run` is false."""

    older_than_ms: Annotated[int, Meta(ge=0)] | None = None
    max_confidence: UnitFloat | None = None
    max_access: Annotated[int, Meta(ge=0)] | None = None
    types: tuple[MemoryTypeName, ...] = ()
    limit: Count = 1_000
    dry_run: bool = True


class SparqlBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """SPARQL query, with values for its variables."""

    query: NonEmptyText
    bindings: dict[str, str | int | float | bool] | None = None
    limit: Count = 1_000
    timeout: Annotated[float, Meta(gt=0, le=60)] = 10.0


class PromoteBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Session to promote; nothing is written unless `dry_run` is false."""

    session: IdText
    dry_run: bool = True
    threshold: UnitFloat | None = None


class UndoPromotionBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Promotion to undo: the named run, or the last one of the session."""

    session: IdText
    run: IdText | None = None


class PreflightBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Message that would be sent in a session."""

    session: IdText
    message: NonEmptyText


class WhoCanBody(RequestBody, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Action, tags, limits and I/O flags that an agent has to support."""

    action: NonEmptyText | None = None
    tags: tuple[NonEmptyText, ...] = ()
    limits: dict[str, int | float] | None = None
    io: dict[str, bool | str] | None = None
