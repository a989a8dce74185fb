"""The context of memory tools: store, scopes, capability check and parameters.

Store, scope and ids come from the turn. A program can set the reach of the tools; a model cannot.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from omoide.core import entry as memory_types
from omoide.core.entry import DEFAULT_MIN_RELEVANCE, MEMORY_TYPES, Entry, Evidence, Hit, Scope
from omoide.core.frozen import check_str
from omoide.core.thread import Thread
from omoide.core.value import check_choice, check_instance
from omoide.errors import Invalid, MissingScope, MissingStore, NotCapable
from omoide.longterm.relations import RELATIONS

REACHES = ("session", "project", "user", "agent")
QUERY_CAPABILITY = "CanQueryMemory"
WRITE_CAPABILITY = "CanWriteMemory"
MAX_REASONS = 3
"""Number of reasons that a model is shown why a memory was found: those that weigh most."""
_ALIASES = {QUERY_CAPABILITY: "can_query_memory", WRITE_CAPABILITY: "can_write_memory"}


class ToolConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of the memory tools, made by the program."""

    reach: str | None = None
    """`session`, `project`, `user` or `agent`; None for the scope of the agent's memory policy."""
    strict: bool = False
    """Refuse memories that are incomplete or contradict others."""

    def __post_init__(self) -> None:
        if self.reach is not None:
            check_choice(self.reach, "reach", REACHES)
        check_instance(self.strict, "strict", kind=bool)


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """Store, scopes and evidence of one tool call."""

    store: Any
    read_scope: Scope
    """The memories that the tool may read."""
    owned_scope: Scope
    """The memories that it may change: the agent's own among those it may read."""
    write_scope: Scope
    """The scope of new memories, with the session and the project of the turn."""
    idempotency_key: str
    """The key of this call, which stays the same when it is repeated after a crash."""
    min_relevance: float | None = DEFAULT_MIN_RELEVANCE
    """Least relevance of what the tool recalls, unless the call gives another; None for any."""
    evidence: tuple[Evidence, ...] = ()
    """The user's message that the turn answers."""


def tool_context(ctx: Any, config: ToolConfig, tool: str, capability: str) -> ToolContext:
    """Return the context of a call; raise if the agent may not use the tool or the turn has no memory."""
    _check_capability(ctx, tool, capability)
    store, scope = getattr(ctx, "store", None), getattr(ctx, "scope", None)
    if store is None:
        raise MissingStore()
    if scope is None:
        raise Invalid("memory", f"of agent {ctx.agent.id!r} is off", "declare memory=True or a MemoryPolicy")
    # A memory has one owner, even if the scope that the agent reads spans several agents.
    agent_id = scope.agent_id or ctx.agent.id
    home = Scope(
        namespace=scope.namespace,
        agent_id=agent_id,
        session_id=getattr(ctx, "session_id", None) or scope.session_id,
        project_id=getattr(getattr(ctx, "request", None), "project_id", None) or scope.project_id,
        user_id=getattr(getattr(ctx, "request", None), "user_id", None) or scope.user_id,
    )
    read_scope = _read_scope(config.reach, getattr(ctx, "reach", None) or scope, home)
    return ToolContext(
        store=store,
        read_scope=read_scope,
        owned_scope=read_scope.replace(agent_id=agent_id),
        write_scope=home,
        idempotency_key=str(getattr(ctx, "idempotency_key", "")),
        min_relevance=getattr(ctx, "min_relevance", DEFAULT_MIN_RELEVANCE),
        evidence=_request_evidence(ctx),
    )


def _read_scope(reach: str | None, scope: Scope, home: Scope) -> Scope:
    match reach:
        case "session":
            if home.session_id is None:
                raise MissingScope("session")
            return home.replace(project_id=None)
        case "project":
            if home.project_id is None:
                raise Invalid("project_id", "is missing for tools that reach the project", "pass project_id=")
            return Scope(namespace=home.namespace, user_id=home.user_id, project_id=home.project_id)
        case "user":
            if home.user_id is None:
                raise Invalid("user_id", "is missing for tools that reach the user", "pass user_id=")
            return Scope(namespace=home.namespace, user_id=home.user_id)
        case "agent":
            return Scope(namespace=home.namespace, user_id=home.user_id, agent_id=home.agent_id)
        case _:
            return scope


def _check_capability(ctx: Any, tool: str, capability: str) -> None:
    """Raise unless the identity declares the tool or its capability, or declares nothing at all."""
    actions, tags = ctx.identity.actions(), ctx.identity.tags()
    if (actions or tags) and not (tool in actions or {capability, _ALIASES[capability]} & {*tags}):
        raise NotCapable(ctx.agent.id, capability)


def _request_evidence(ctx: Any) -> tuple[Evidence, ...]:
    """Return the user's message of this request in the thread."""
    thread: Thread = ctx.thread
    sender = ("user", getattr(ctx, "request_id", None))
    # From the end: the message is among the newest entries of a thread that may be long.
    for seq in range(len(thread.entries) - 1, -1, -1):
        entry = thread.entries[seq]
        message = entry.payload
        if entry.kind == "message" and (message.get("role"), message.get("request_id")) == sender:
            return (Evidence(kind="message", ref=f"{thread.id}:{seq}"),)
    return ()


# Parameters

ALL_TYPES = "all"
MAX_LIMIT = 50
MAX_TAG_BYTES = 100
# The values that the graph assumes for the levels of the ontology; see `graph.vocabulary.LEVELS`.
CONFIDENCE_LEVELS = {"high": 0.9, "medium": 0.6, "low": 0.3}

Content = Annotated[
    str,
    Meta(
        description="One self-contained statement, understandable without this conversation. "
        "At most 2000 bytes."
    ),
]
MemoryType = Annotated[
    str,
    Meta(
        description="Kind of knowledge: fact is established, assumption is taken for granted, "
        "hypothesis is to be tested, unknown is an open question; a preference is a fact.",
        extra_json_schema={"enum": [*MEMORY_TYPES]},
    ),
]
MemoryTypeFilter = Annotated[
    str,
    Meta(
        description="Kind of knowledge, with the kinds that refine it; all for every kind.",
        extra_json_schema={"enum": [ALL_TYPES, *MEMORY_TYPES]},
    ),
]
# Some model providers require a type beside every enum.
Level = Annotated[Literal["high", "medium", "low"], Meta(extra_json_schema={"type": "string"})]
Confidence = Annotated[float | Level, Meta(description="A number from 0 to 1, or high, medium or low.")]
MinConfidence = Annotated[
    float | Level,
    Meta(description="Minimum: a number from 0 to 1, or high, medium or low."),
]
MinRelevance = Annotated[float | None, Meta(description="Minimum relevance to the query, from 0 to 1.")]
Rationale = Annotated[str, Meta(description="Why it is so, or why it was decided. At most 2000 bytes.")]
Key = Annotated[
    str,
    Meta(
        description="The name of what has one value at a time, such as home_city: the next memory with "
        "this key replaces this one. Empty for everything else."
    ),
]
Tags = Annotated[
    tuple[str, ...], Meta(description="Words to find it by. At most 20, of 100 bytes each.", max_length=20)
]
TagFilter = Annotated[
    tuple[str, ...], Meta(description="Only memories with all of these tags.", max_length=20)
]
TimeText = Annotated[
    str,
    Meta(description="When it happened, such as 2026-05-08; empty for now or unknown."),
]
SinceText = Annotated[str, Meta(description="Only memories from this time on, such as 2026-05-08.")]
UntilText = Annotated[str, Meta(description="Only memories up to this time, such as 2026-05-08.")]
QueryText = Annotated[
    str, Meta(description="What to look for, in plain words; empty for the newest. At most 1000 bytes.")
]
Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="Maximum number of memories.")]
MemoryId = Annotated[str, Meta(min_length=1, description="The id of a memory, as recall gives it.")]
Reason = Annotated[str, Meta(description="Why. At most 500 bytes.")]
ReplacementId = Annotated[str, Meta(description="The id of the memory that replaces it; empty for none.")]
RelationName = Annotated[
    str,
    Meta(
        description="How the source relates to the target. "
        + " ".join(f"{one.name}: the source {one.meaning}." for one in RELATIONS.values()),
        extra_json_schema={"enum": [*RELATIONS]},
    ),
]


def bounded_text(value: str, field: str, max_bytes: int) -> str:
    """Return text without the space around it; raise if it is too long."""
    text = check_str(value, field).strip()
    size = len(text.encode())
    if size > max_bytes:
        raise Invalid(field, f"has {size} bytes", f"use at most {max_bytes}")
    return text


def type_filter(value: str) -> tuple[str, ...]:
    """Return the types to search; none means all."""
    return () if value == ALL_TYPES else (memory_types.check_memory_type(value),)


def clean_tags(value: tuple[str, ...]) -> tuple[str, ...]:
    """Return tags without the space around them, without empty ones and duplicates."""
    tags = [bounded_text(tag, "tags", MAX_TAG_BYTES) for tag in value]
    return tuple(dict.fromkeys(tag for tag in tags if tag))


def parse_confidence(value: float | str, field: str = "confidence") -> float:
    """Convert a number, which is clamped to 0 and 1, or a level to a confidence."""
    return clamp_unit(CONFIDENCE_LEVELS[value] if isinstance(value, str) else value, field)


def clamp_unit(value: float, field: str) -> float:
    """Clamp a number to 0 and 1; raise if it is none."""
    if value != value:
        raise Invalid(field, "is no number", "pass a number from 0 to 1")
    return min(max(float(value), 0.0), 1.0)


# Results


def entry_data(entry: Entry, **more: Any) -> dict[str, Any]:
    """Return a memory as data for a model, without the fields that are None."""
    fields = {
        "id": entry.id,
        "content": entry.content,
        "key": entry.key,
        "type": entry.type,
        "confidence": entry.confidence,
        "created_at": iso_time(entry.created_at),
        "source": entry.source,
        "rationale": entry.rationale,
        "tags": list(entry.tags) or None,
        **more,
    }
    return {name: value for name, value in fields.items() if value is not None}


def hit_data(hit: Hit) -> dict[str, Any]:
    """Return a recalled memory as data for a model, with its relevance and what updates it."""
    relevance = None if hit.relevance is None else round(hit.relevance, 2)
    why = msgspec.structs.replace(hit.why, reasons=hit.why.reasons[:MAX_REASONS])
    return entry_data(hit.entry, relevance=relevance, newer=hit.newer, why=str(why))


def iso_time(at: int) -> str:
    """Format a time in ISO 8601, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
