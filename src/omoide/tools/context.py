"""ToolContext: scopes, capability check, parameters.

The store, the scope and the ids come from the turn. A program can set how far the tools reach; a model
cannot.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from omoide.core import entry as memory_types
from omoide.core.entry import MEMORY_TYPES, Entry, Evidence, Scope
from omoide.core.frozen import check_str
from omoide.core.thread import Thread
from omoide.core.value import check_choice, check_instance
from omoide.errors import Invalid, MissingScope, MissingStore, NotCapable
from omoide.longterm.relations import RELATIONS

# desk: What may a memory tool touch in this turn?


REACHES = ("session", "project", "agent")
QUERY_CAPABILITY = "CanQueryMemory"
WRITE_CAPABILITY = "CanWriteMemory"
_ALIASES = {QUERY_CAPABILITY: "can_query_memory", WRITE_CAPABILITY: "can_write_memory"}


class ToolConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a program sets the tools up."""

    reach: str | None = None
    """How far they see; None for as far as the agent's memory policy says."""
    strict: bool = False
    """Whether memories that are incomplete or contradict others are refused."""

    def __post_init__(self) -> None:
        if self.reach is not None:
            check_choice(self.reach, "reach", REACHES)
        check_instance(self.strict, "strict", kind=bool)


class ToolContext(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool works with during one call."""

    store: Any
    read_scope: Scope
    """What it may read."""
    owned_scope: Scope
    """What it may change: the agent's own part of what it may read."""
    write_scope: Scope
    """Where new memories go: they carry the session and the project of the turn."""
    idempotency_key: str
    """What this call is called, today and when it is repeated after a crash."""
    evidence: tuple[Evidence, ...] = ()
    """Where the user asked for what is being done."""


def tool_context(ctx: Any, config: ToolConfig, tool: str, capability: str) -> ToolContext:
    """The desk for a call, if the agent may use the tool and the turn has a memory."""
    _check_capability(ctx, tool, capability)
    store, scope = getattr(ctx, "store", None), getattr(ctx, "scope", None)
    if store is None:
        raise MissingStore()
    if scope is None:
        raise Invalid("memory", f"of agent {ctx.agent.id!r} is off", "declare memory=True or a MemoryPolicy")
    agent_id = scope.agent_id or ctx.agent.id
    home = Scope(
        namespace=scope.namespace,
        agent_id=agent_id,
        session_id=getattr(ctx, "session_id", None) or scope.session_id,
        project_id=getattr(getattr(ctx, "request", None), "project_id", None) or scope.project_id,
    )
    seen = _read_scope(config.reach, getattr(ctx, "reach", None) or scope, home)
    return ToolContext(
        store=store,
        read_scope=seen,
        owned_scope=seen.replace(agent_id=agent_id),
        write_scope=home,
        idempotency_key=str(getattr(ctx, "idempotency_key", "")),
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
            return Scope(namespace=home.namespace, project_id=home.project_id)
        case "agent":
            return Scope(namespace=home.namespace, agent_id=home.agent_id)
        case _:
            return scope


def _check_capability(ctx: Any, tool: str, capability: str) -> None:
    """An identity that declares nothing leaves everything open; one that declares something means it."""
    actions, tags = ctx.identity.actions(), ctx.identity.tags()
    if (actions or tags) and not (tool in actions or {capability, _ALIASES[capability]} & {*tags}):
        raise NotCapable(ctx.agent.id, capability)


def _request_evidence(ctx: Any) -> tuple[Evidence, ...]:
    """The place of the user's words in the thread."""
    thread: Thread = ctx.thread
    wanted = getattr(ctx, "request_id", None)
    for seq in range(len(thread.entries) - 1, -1, -1):
        entry = thread.entries[seq]
        said = entry.payload
        if entry.kind == "message" and said.get("role") == "user" and said.get("request_id") == wanted:
            return (Evidence(kind="message", ref=f"{thread.id}:{seq}"),)
    return ()


# params: What does a model have to say to use the memory, and how strictly is it taken?


ALL_TYPES = "all"
MAX_LIMIT = 50
MAX_TAG_BYTES = 100
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
        description="What kind of knowledge it is: fact is established, assumption is taken for granted, "
        "hypothesis is to be tested, unknown is an open question.",
        extra_json_schema={"enum": [*MEMORY_TYPES]},
    ),
]
MemoryTypeFilter = Annotated[
    str,
    Meta(
        description="The kind of knowledge to look for, with the kinds that refine it; all for every kind.",
        extra_json_schema={"enum": [ALL_TYPES, *MEMORY_TYPES]},
    ),
]
# Some providers want a type beside every choice.
Level = Annotated[Literal["high", "medium", "low"], Meta(extra_json_schema={"type": "string"})]
Confidence = Annotated[
    float | Level, Meta(description="How sure it is: a number from 0 to 1, or high, medium or low.")
]
MinConfidence = Annotated[
    float | Level,
    Meta(description="Leave out what is less sure: a number from 0 to 1, or high, medium or low."),
]
Rationale = Annotated[str, Meta(description="Why it is so, or why it was decided. At most 2000 bytes.")]
Key = Annotated[
    str,
    Meta(
        description="A short name for what it is about, such as database. Two memories of one kind with the "
        "same key and different content contradict each other."
    ),
]
Tags = Annotated[
    tuple[str, ...], Meta(description="Words to find it by. At most 20, of 100 bytes each.", max_length=20)
]
TagFilter = Annotated[
    tuple[str, ...], Meta(description="Only what carries all of these tags.", max_length=20)
]
QueryText = Annotated[
    str, Meta(description="What to look for, in plain words; empty for the newest. At most 1000 bytes.")
]
Limit = Annotated[int, Meta(ge=1, le=MAX_LIMIT, description="How many memories at most.")]
MemoryId = Annotated[str, Meta(min_length=1, description="The id of a memory, as recall gives it.")]
Reason = Annotated[str, Meta(description="Why. At most 500 bytes.")]
ReplacementId = Annotated[
    str, Meta(description="The id of the memory that takes its place; empty where none does.")
]
RelationName = Annotated[
    str,
    Meta(
        description="How the source relates to the target. "
        + " ".join(f"{one.name}: the source {one.meaning}." for one in RELATIONS.values()),
        extra_json_schema={"enum": [*RELATIONS]},
    ),
]


def bounded_text(value: str, field: str, max_bytes: int) -> str:
    """A text without the space around it, if it is no longer than allowed."""
    said = check_str(value, field).strip()
    size = len(said.encode())
    if size > max_bytes:
        raise Invalid(field, f"has {size} bytes", f"use at most {max_bytes}")
    return said


def type_filter(value: str) -> tuple[str, ...]:
    """The types that are looked for; none named means all."""
    return () if value == ALL_TYPES else (memory_types.check_memory_type(value),)


def clean_tags(value: tuple[str, ...]) -> tuple[str, ...]:
    """Tags without the space around them; empty ones are none."""
    said = [bounded_text(tag, "tags", MAX_TAG_BYTES) for tag in value]
    return tuple(dict.fromkeys(tag for tag in said if tag))


def parse_confidence(value: float | str, field: str = "confidence") -> float:
    """A confidence from a number, which is brought between 0 and 1, or from a level."""
    if isinstance(value, str):
        return CONFIDENCE_LEVELS[value]
    if value != value:
        raise Invalid(field, "is no number", "pass a number from 0 to 1")
    return min(max(float(value), 0.0), 1.0)


# showing: How is a memory shown to a model?


def entry_data(entry: Entry, **more: Any) -> dict[str, Any]:
    """A memory as data that a model reads, without what it does not have."""
    whole = {
        "id": entry.id,
        "content": entry.content,
        "type": entry.type,
        "confidence": entry.confidence,
        "created_at": iso_time(entry.created_at),
        "source": entry.source,
        "rationale": entry.rationale,
        "tags": list(entry.tags) or None,
        **more,
    }
    return {name: value for name, value in whole.items() if value is not None}


def iso_time(at: int) -> str:
    """A moment in ISO 8601, UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
