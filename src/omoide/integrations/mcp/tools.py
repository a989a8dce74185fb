"""Tools of the MCP server, besides those of `omoide.tools`.

Store and scope are fixed when the server starts; no argument of a tool can change them. Five tools are
offered by default, because models choose better among few. SPARQL queries run in a separate process that
holds only the memories of the scope and is killed after a timeout.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from omoide import ids, longterm, verbs
from omoide.core.action import Action, action
from omoide.core.agent import Agent
from omoide.core.definition import Definition
from omoide.core.entry import DELETED, Entry, Filter, Scope
from omoide.core.state import Context
from omoide.errors import Invalid
from omoide.integrations.mcp import schemas
from omoide.integrations.mcp.schemas import ToolOutput
from omoide.longterm.lineage import MAX_DEPTH as MAX_PROVENANCE_DEPTH
from omoide.longterm.lineage import TracedEvidence
from omoide.longterm.relations import IMPLICIT, RELATIONS
from omoide.longterm.relations import MAX_DEPTH as MAX_RELATION_DEPTH
from omoide.service import agents
from omoide.service.schemas import scope_fields
from omoide.stores.protocols import SupportsLinks, SupportsQuery
from omoide.stores.records import Link, Query
from omoide.tools import memory_tools
from omoide.tools.context import (
    ALL_TYPES,
    QUERY_CAPABILITY,
    WRITE_CAPABILITY,
    Limit,
    MemoryId,
    MemoryTypeFilter,
    TagFilter,
    ToolConfig,
    bounded_text,
    clean_tags,
    entry_data,
    iso_time,
    tool_context,
    type_filter,
)
from omoide.tools.memory import require_entry
from omoide.verbs import require

READER_ID = "reader"
"""Agent id of a server whose scope names no agent; it cannot write."""


class CallContext(Context):
    """Context of one tool call, with what memory tools expect of a turn."""

    def __init__(self, server: ServerContext) -> None:
        super().__init__(server.agent)
        self.server = server
        self.store = server.store
        self.scope = server.scope
        # A client sees everything with its relevance, unless it asks for less.
        self.min_relevance = None
        # MCP does not say whether a call is a retry, so every call gets a key of its own; a repeated
        # memory is recognized by its content instead.
        self.idempotency_key = ids.new("call_")


class ServerContext:
    """Store, scope and agent of a server."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self.store = store
        self.scope = scope
        id = scope.agent_id or READER_ID
        self.agent = Agent.new(Definition.new(READER_ID), id=id)
        self._graph: Any = None

    @property
    def is_writable(self) -> bool:
        """True if the scope names an agent, which would own new memories."""
        return self.scope.agent_id is not None

    def new_call(self) -> CallContext:
        """Return the context of a new call."""
        return CallContext(self)

    def graph(self) -> Any:
        """Return the graph view of the store, which is built on first use and then kept up to date."""
        if self._graph is None:
            from omoide import graph

            self._graph = graph.open(self.store)
        return self._graph


_CONFIG = ToolConfig()
MAX_QUERY_LENGTH = 10_000
MAX_ROWS = 200
SPARQL_TIMEOUT = 10.0
"""Seconds that a SPARQL query may take."""

NO_LIMITS: Mapping[str, Any] = {}

ActionName = Annotated[str, Meta(description="Name of an action; empty for any.")]
RequiredTags = Annotated[tuple[str, ...], Meta(description="Tags to carry.", max_length=20)]
Limits = Annotated[Mapping[str, Any], Meta(description='What to allow for: {"max_tokens": 8000}.')]
IoFlags = Annotated[Mapping[str, Any], Meta(description='Access: {"network": false}.')]
Cursor = Annotated[str, Meta(description="The cursor that the page before gave.")]
IncludeForgotten = Annotated[
    bool, Meta(description="With those that were forgotten, replaced, or no longer hold.")
]
Relations = Annotated[
    str,
    Meta(
        description="Only by this relation; all for every one.",
        extra_json_schema={"enum": [ALL_TYPES, *RELATIONS, *IMPLICIT]},
    ),
]
Steps = Annotated[int, Meta(ge=1, le=MAX_RELATION_DEPTH, description="How many steps far.")]
Depth = Annotated[int, Meta(ge=1, le=MAX_PROVENANCE_DEPTH, description="How far to go back.")]
Sparql = Annotated[
    str,
    Meta(
        description="A SELECT, ASK, CONSTRUCT or DESCRIBE query in SPARQL 1.1. At most 10000 bytes. "
        "Known prefixes: jido, rdf, rdfs, xsd, owl, omoide."
    ),
]
KeyFilter = Annotated[str, Meta(description="Only memories with this key.")]
Rows = Annotated[int, Meta(ge=1, le=MAX_ROWS, description="How many rows or triples at most.")]


MAX_ACTION_LENGTH = 200


@action(effectful=True, idempotent=True, tags=("memory",))
async def memory_status(ctx: CallContext) -> dict[str, Any]:
    """Tell whose memory this is, how much it holds of which types, and whether it can be written to."""
    context = tool_context(ctx, _CONFIG, "memory_status", QUERY_CAPABILITY)
    store: SupportsQuery = require(context.store, SupportsQuery, "count")
    stats = await store.stats(context.read_scope)
    return {
        "scope": set_scope_fields(context.read_scope),
        "memories": stats.live,
        "forgotten": stats.superseded,
        "stale": stats.stale,
        "expired": stats.expired,
        "by_type": {str(name): count for name, count in stats.by_type.items() if name is not None},
        "searched_by": "words and meaning" if stats.embedder else "words",
        "writable": ctx.server.is_writable,
    }


@action(effectful=True, idempotent=True, tags=("memory",))
async def who_can(
    ctx: CallContext,
    action: ActionName = "",
    tags: RequiredTags = (),
    limits: Limits = NO_LIMITS,
    io: IoFlags = NO_LIMITS,
) -> dict[str, Any]:
    """Find the agents that can do something, the most experienced first, with the reason."""
    context = tool_context(ctx, _CONFIG, "who_can", QUERY_CAPABILITY)
    name = bounded_text(action, "action", MAX_ACTION_LENGTH) or None
    matches = await agents.who_can(
        context.store, name, clean_tags(tags), limits, io, namespace=context.read_scope.namespace
    )
    return {
        "agents": [
            {"id": match.id, "name": match.name, "reason": match.reason}
            | ({} if match.age is None else {"age": match.age})
            for match in matches
        ],
        "count": len(matches),
    }


def set_scope_fields(scope: Scope) -> dict[str, str]:
    """Return the fields of a scope that are set."""
    return {name: value for name, value in scope_fields(scope).items() if value is not None}


@action(effectful=True, idempotent=True, tags=("memory",))
async def get(ctx: CallContext, memory_id: MemoryId) -> dict[str, Any]:
    """Read one memory with all its fields, also a forgotten or stale one."""
    context = tool_context(ctx, _CONFIG, "get", QUERY_CAPABILITY)
    entry = await require_entry(context, memory_id.strip(), context.read_scope)
    output: dict[str, Any] = {"memory": entry_details(entry)}
    if isinstance(context.store, SupportsLinks):
        links = await context.store.links(entry.id, context.read_scope)
        output["links"] = [_link_fields(link) for link in links]
    return output


@action(name="list", effectful=True, idempotent=True, tags=("memory",))
async def list_memories(
    ctx: CallContext,
    type: MemoryTypeFilter = ALL_TYPES,
    tags: TagFilter = (),
    key: KeyFilter = "",
    limit: Limit = 10,
    cursor: Cursor = "",
    forgotten: IncludeForgotten = False,
) -> dict[str, Any]:
    """List memories, newest first, a page at a time."""
    context = tool_context(ctx, _CONFIG, "list", QUERY_CAPABILITY)
    store: SupportsQuery = require(context.store, SupportsQuery, "list memories")
    filter = Filter(
        types=type_filter(type),
        tags=clean_tags(tags),
        key=key.strip() or None,
        include_superseded=forgotten,
        include_stale=forgotten,
        include_expired=forgotten,
    )
    page = await store.query(
        Query(scope=context.read_scope, filter=filter, limit=limit, cursor=cursor or None)
    )
    output: dict[str, Any] = {"memories": [entry_details(entry) for entry in page.entries]}
    output["count"] = len(page.entries)
    return output if page.cursor is None else {**output, "cursor": page.cursor}


@action(effectful=True, idempotent=True, tags=("memory",))
async def history(ctx: CallContext, memory_id: MemoryId) -> dict[str, Any]:
    """Show the versions of a memory, oldest first."""
    context = tool_context(ctx, _CONFIG, "history", QUERY_CAPABILITY)
    store: SupportsQuery = require(context.store, SupportsQuery, "tell the past of a memory")
    versions = await store.history(memory_id.strip(), context.read_scope)
    return {
        "versions": [
            {"rev": version.rev, "at": iso_time(version.at)}
            | ({"erased": True} if version.entry is None else {"memory": entry_details(version.entry)})
            for version in versions
        ]
    }


@action(effectful=True, idempotent=True, tags=("memory",))
async def related(
    ctx: CallContext,
    memory_id: MemoryId,
    relation: Relations = ALL_TYPES,
    depth: Steps = 1,
    limit: Limit = 10,
) -> dict[str, Any]:
    """Find the memories that one is related to, nearest first."""
    context = tool_context(ctx, _CONFIG, "related", QUERY_CAPABILITY)
    entry = await require_entry(context, memory_id.strip(), context.read_scope)
    name = None if relation == ALL_TYPES else relation
    neighbours = await longterm.related(
        context.store, entry.id, context.read_scope, name, depth=depth, limit=limit
    )
    return {
        "related": [
            {
                "memory": entry_details(neighbour.entry),
                "relation": neighbour.relation,
                "direction": neighbour.direction,
                "via": neighbour.via,
                "depth": neighbour.depth,
            }
            for neighbour in neighbours
        ],
        "count": len(neighbours),
    }


@action(effectful=True, idempotent=True, tags=("memory",))
async def provenance(ctx: CallContext, memory_id: MemoryId, depth: Depth = 5) -> dict[str, Any]:
    """Show the provenance of a memory, back to messages, tool results and documents."""
    context = tool_context(ctx, _CONFIG, "provenance", QUERY_CAPABILITY)
    entry = await require_entry(context, memory_id.strip(), context.read_scope)
    provenance_tree = await longterm.provenance(context.store, entry.id, context.read_scope, depth=depth)
    sources = [_source_fields(source) for source in provenance_tree.sources()]
    return {"tree": str(provenance_tree), "sources": sources}


@action(effectful=True, idempotent=True, tags=("memory",))
async def restore(ctx: CallContext, memory_id: MemoryId) -> dict[str, Any]:
    """Bring a forgotten memory back: it is recalled again, and what is derived from it is valid again."""
    context = tool_context(ctx, _CONFIG, "restore", WRITE_CAPABILITY)
    entry = await require_entry(context, memory_id.strip(), context.owned_scope)
    restored = await verbs.reinstate(context.store, entry.id, context.owned_scope)
    message = "It is recalled again." if entry.superseded_by else "It was not forgotten."
    return {"restored": True, "memory": entry_details(restored), "message": message}


def entry_details(entry: Entry) -> dict[str, Any]:
    """Return a memory with its status and validity."""
    superseded_by = entry.superseded_by
    return entry_data(
        entry,
        rev=entry.rev,
        importance=entry.importance,
        occurred_at=None if entry.occurred_at is None else iso_time(entry.occurred_at),
        expires_at=None if entry.expires_at is None else iso_time(entry.expires_at),
        forgotten=True if superseded_by == DELETED else None,
        replaced_by=None if superseded_by == DELETED else superseded_by,
        reason=entry.superseded_reason,
        stale=entry.stale or None,
    )


def _link_fields(link: Link) -> dict[str, str]:
    return {"source_id": link.source, "relation": link.relation, "target_id": link.target}


def _source_fields(traced: TracedEvidence) -> dict[str, Any]:
    text = traced.evidence.quote if traced.said is None else str(traced.said)
    source = {"kind": traced.evidence.kind, "ref": traced.evidence.ref, "status": traced.status, "said": text}
    return {name: value for name, value in source.items() if value}


@action(effectful=True, idempotent=True, tags=("memory",))
async def sparql(ctx: CallContext, query: Sparql, limit: Rows = 50) -> dict[str, Any]:
    """Ask the memories in SPARQL, as instances of the Jido ontology. A query cannot change anything."""
    context = tool_context(ctx, _CONFIG, "sparql", QUERY_CAPABILITY)
    sparql_text = bounded_text(query, "query", MAX_QUERY_LENGTH)
    if not sparql_text:
        raise Invalid("query", "is empty", "write a SELECT, ASK, CONSTRUCT or DESCRIBE query")
    graph = ctx.server.graph()
    answer = await graph.sparql(
        sparql_text, context.read_scope, limit=limit, timeout=SPARQL_TIMEOUT, isolated=True
    )
    output: dict[str, Any] = {"kind": answer.kind}
    match answer.kind:
        case "truth":
            output["truth"] = answer.truth
        case "rows":
            output["rows"] = [_row_values(row) for row in answer.rows]
        case _:
            output["triples"] = [str(triple) for triple in answer.triples]
    return {**output, "more": True} if answer.truncated else output


def _row_values(row: Any) -> dict[str, str]:
    terms = {name: row.term(name) for name in row}
    return {name: term.value for name, term in terms.items() if term is not None}


READ_RIGHT = "read"
WRITE_RIGHT = "write"


class ServerTool(msgspec.Struct, frozen=True, kw_only=True):
    """Tool with its title, output and required right."""

    title: str
    output: type[ToolOutput]
    action: Action | None = None
    """None for a tool of `omoide.tools`, which is made for each server."""
    right: str = READ_RIGHT
    """Right that a token needs."""
    destructive: bool = False
    """True if a memory may be recalled no more after the call."""


DEFAULT_TOOLS = {
    "remember": ServerTool(title="Remember", output=schemas.RememberOutput, right=WRITE_RIGHT),
    "recall": ServerTool(title="Recall", output=schemas.RecallOutput),
    "forget": ServerTool(title="Forget", output=schemas.ForgetOutput, right=WRITE_RIGHT, destructive=True),
    "memory_status": ServerTool(title="Memory status", output=schemas.StatusOutput, action=memory_status),
    "who_can": ServerTool(title="Who can", output=schemas.WhoCanOutput, action=who_can),
}
"""Tools that are always offered."""

EXTRA_TOOLS = {
    "get": ServerTool(title="Get a memory", output=schemas.GetOutput, action=get),
    "list": ServerTool(title="List memories", output=schemas.ListOutput, action=list_memories),
    "relate": ServerTool(
        title="Relate memories", output=schemas.RelateOutput, right=WRITE_RIGHT, destructive=True
    ),
    "related": ServerTool(title="Related memories", output=schemas.RelatedOutput, action=related),
    "provenance": ServerTool(title="Provenance", output=schemas.ProvenanceOutput, action=provenance),
    "review": ServerTool(title="Review", output=schemas.ReviewOutput),
    "restore": ServerTool(title="Restore", output=schemas.RestoreOutput, action=restore, right=WRITE_RIGHT),
    "history": ServerTool(title="History", output=schemas.HistoryOutput, action=history),
    "sparql": ServerTool(title="SPARQL", output=schemas.SparqlOutput, action=sparql),
}
"""Tools that are offered with `all_tools`."""

ALL_TOOLS = {**DEFAULT_TOOLS, **EXTRA_TOOLS}


def tool_action(name: str, *, strict: bool = False) -> Action:
    """Return the action of a tool; `strict` applies to the tools of `omoide.tools`."""
    return ALL_TOOLS[name].action or memory_tools(name, strict=strict)[0]
