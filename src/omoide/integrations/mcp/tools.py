"""Tools beyond those of omoide.tools.

The store and the scope, which whoever started the server has fixed. The client says neither.

Beside the parameters that `omoide.tools` has already.

The query runs in a process of its own, which holds nothing but the memories that the server may see, and is
stopped when its time is over.

Five by default, for a model chooses better among few; all of them where the program asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from omoide.longterm.lineage import MAX_DEPTH as DEEPEST_ORIGIN
from omoide.longterm.lineage import TracedEvidence
from omoide.longterm.relations import IMPLICIT, RELATIONS
from omoide.longterm.relations import MAX_DEPTH as FARTHEST
from omoide.service import agents
from omoide.stores.protocols import SupportsLinks, SupportsQuery
from omoide.stores.records import Query
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

# calling: What does a tool know when an MCP client calls it?


READER_ID = "reader"
"""Who asks where no agent is named; nothing can be written then."""


class CallContext(Context):
    """The surroundings of one call, as memory tools expect them of a turn."""

    def __init__(self, server: ServerContext) -> None:
        super().__init__(server.agent)
        self.server = server
        self.store = server.store
        self.scope = server.scope
        # A repeated call has another name here: what it says again is known by its words.
        self.idempotency_key = ids.new("call_")


class ServerContext:
    """Whose memory a server serves."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self.store = store
        self.scope = scope
        id = scope.agent_id or READER_ID
        self.agent = Agent.new(Definition.new(READER_ID), id=id)
        self._graph: Any = None

    @property
    def is_writable(self) -> bool:
        """Whether what is remembered would have an owner."""
        return self.scope.agent_id is not None

    def new_call(self) -> CallContext:
        """The surroundings of a new call."""
        return CallContext(self)

    def graph(self) -> Any:
        """The graph over the store, in memory; it is built when first asked for, and then kept up."""
        if self._graph is None:
            from omoide import graph

            self._graph = graph.open(self.store)
        return self._graph


# params: What does a model have to say to look around in a memory?


MAX_QUERY_LENGTH = 10_000
MAX_ROWS = 200
SPARQL_TIMEOUT = 10.0
"""How long a query in SPARQL may take."""

NO_LIMITS: Mapping[str, Any] = {}

ActionName = Annotated[str, Meta(description="What has to be done, by the name of an action; empty for any.")]
RequiredTags = Annotated[
    tuple[str, ...], Meta(description="Tags that the agent has to carry.", max_length=20)
]
Limits = Annotated[
    Mapping[str, Any], Meta(description='What has to be allowed for, such as {"max_tokens": 8000}.')
]
Cursor = Annotated[str, Meta(description="Where the next page begins, as the page before told.")]
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
Steps = Annotated[int, Meta(ge=1, le=FARTHEST, description="How many steps far.")]
Depth = Annotated[int, Meta(ge=1, le=DEEPEST_ORIGIN, description="How far to go back.")]
Sparql = Annotated[
    str,
    Meta(
        description="A SELECT, ASK, CONSTRUCT or DESCRIBE query in SPARQL 1.1. At most 10000 bytes. "
        "Known prefixes: jido, rdf, rdfs, xsd, owl, omoide."
    ),
]
Rows = Annotated[int, Meta(ge=1, le=MAX_ROWS, description="How many rows or triples at most.")]


# knowing: How does a model learn what memory it has, and who can do something?


MAX_ACTION_LENGTH = 200


def status_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def memory_status(ctx: CallContext) -> dict[str, Any]:
        """Tell whose memory this is, how much it holds of which types, and whether it can be written to."""
        desk = tool_context(ctx, setting, "memory_status", QUERY_CAPABILITY)
        able: SupportsQuery = require(desk.store, SupportsQuery, "count")
        figures = await able.stats(desk.read_scope)
        return {
            "scope": scope_fields(desk.read_scope),
            "memories": figures.live,
            "forgotten": figures.superseded,
            "stale": figures.stale,
            "expired": figures.expired,
            "by_type": {str(name): count for name, count in figures.by_type.items() if name is not None},
            "searched_by": "words and meaning" if figures.embedder else "words",
            "writable": ctx.server.is_writable,
        }

    return memory_status


def who_can_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def who_can(
        ctx: CallContext, action: ActionName = "", tags: RequiredTags = (), limits: Limits = NO_LIMITS
    ) -> dict[str, Any]:
        """Find the agents that can do something, the most experienced first, each with the reason."""
        desk = tool_context(ctx, setting, "who_can", QUERY_CAPABILITY)
        wanted = bounded_text(action, "action", MAX_ACTION_LENGTH) or None
        found = await agents.who_can(
            desk.store, wanted, clean_tags(tags), limits, namespace=desk.read_scope.namespace
        )
        return {
            "agents": [
                {"id": one.id, "name": one.name, "reason": one.reason}
                | ({} if one.age is None else {"age": one.age})
                for one in found
            ],
            "count": len(found),
        }

    return who_can


def scope_fields(scope: Scope) -> dict[str, str]:
    """A scope in plain words, without what it leaves open."""
    named = {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "project": scope.project_id,
        "session": scope.session_id,
    }
    return {name: value for name, value in named.items() if value is not None}


# looking: How does a model look closer at its memories?


def get_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def get(ctx: CallContext, memory_id: MemoryId) -> dict[str, Any]:
        """Read one memory with everything known of it, whether it still holds or not."""
        desk = tool_context(ctx, setting, "get", QUERY_CAPABILITY)
        entry = await require_entry(desk, memory_id.strip(), desk.read_scope)
        answer: dict[str, Any] = {"memory": entry_details(entry)}
        if isinstance(desk.store, SupportsLinks):
            links = await desk.store.links(entry.id, desk.read_scope)
            answer["links"] = [
                {"source_id": one.source, "relation": one.relation, "target_id": one.target} for one in links
            ]
        return answer

    return get


def list_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(name="list", effectful=True, idempotent=True, tags=("memory",))
    async def list_memories(
        ctx: CallContext,
        type: MemoryTypeFilter = ALL_TYPES,
        tags: TagFilter = (),
        limit: Limit = 10,
        cursor: Cursor = "",
        forgotten: IncludeForgotten = False,
    ) -> dict[str, Any]:
        """List memories, newest first, a page at a time."""
        desk = tool_context(ctx, setting, "list", QUERY_CAPABILITY)
        able: SupportsQuery = require(desk.store, SupportsQuery, "list memories")
        filter = Filter(
            types=type_filter(type),
            tags=clean_tags(tags),
            include_superseded=forgotten,
            include_stale=forgotten,
            include_expired=forgotten,
        )
        page = await able.query(
            Query(scope=desk.read_scope, filter=filter, limit=limit, cursor=cursor or None)
        )
        answer: dict[str, Any] = {"memories": [entry_details(entry) for entry in page.entries]}
        answer["count"] = len(page.entries)
        return answer if page.cursor is None else {**answer, "cursor": page.cursor}

    return list_memories


def history_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def history(ctx: CallContext, memory_id: MemoryId) -> dict[str, Any]:
        """Show the versions of a memory, oldest first."""
        desk = tool_context(ctx, setting, "history", QUERY_CAPABILITY)
        able: SupportsQuery = require(desk.store, SupportsQuery, "tell the past of a memory")
        versions = await able.history(memory_id.strip(), desk.read_scope)
        return {
            "versions": [
                {"rev": one.rev, "at": iso_time(one.at)}
                | ({"erased": True} if one.entry is None else {"memory": entry_details(one.entry)})
                for one in versions
            ]
        }

    return history


def related_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def related(
        ctx: CallContext,
        memory_id: MemoryId,
        relation: Relations = ALL_TYPES,
        depth: Steps = 1,
        limit: Limit = 10,
    ) -> dict[str, Any]:
        """Find the memories that one is related to, nearest first."""
        desk = tool_context(ctx, setting, "related", QUERY_CAPABILITY)
        first = await require_entry(desk, memory_id.strip(), desk.read_scope)
        wanted = None if relation == ALL_TYPES else relation
        found = await longterm.related(
            desk.store, first.id, desk.read_scope, wanted, depth=depth, limit=limit
        )
        return {
            "related": [
                {
                    "memory": entry_details(one.entry),
                    "relation": one.relation,
                    "direction": one.direction,
                    "via": one.via,
                    "depth": one.depth,
                }
                for one in found
            ],
            "count": len(found),
        }

    return related


def provenance_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def provenance(ctx: CallContext, memory_id: MemoryId, depth: Depth = 5) -> dict[str, Any]:
        """Show where a memory comes from, back to what was said, what a tool gave, or a document."""
        desk = tool_context(ctx, setting, "provenance", QUERY_CAPABILITY)
        entry = await require_entry(desk, memory_id.strip(), desk.read_scope)
        found = await longterm.provenance(desk.store, entry.id, desk.read_scope, depth=depth)
        return {"tree": str(found), "sources": [_source_fields(one) for one in found.sources()]}

    return provenance


def restore_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def restore(ctx: CallContext, memory_id: MemoryId) -> dict[str, Any]:
        """Bring a forgotten memory back: it is recalled again, and what rests on it holds again."""
        desk = tool_context(ctx, setting, "restore", WRITE_CAPABILITY)
        entry = await require_entry(desk, memory_id.strip(), desk.owned_scope)
        back = await verbs.reinstate(desk.store, entry.id, desk.owned_scope)
        told = "It is recalled again." if entry.superseded_by else "It was not forgotten."
        return {"restored": True, "memory": entry_details(back), "message": told}

    return restore


def entry_details(entry: Entry) -> dict[str, Any]:
    """A memory with what is known about whether it still holds."""
    gone = entry.superseded_by
    return entry_data(
        entry,
        rev=entry.rev,
        importance=entry.importance,
        occurred_at=None if entry.occurred_at is None else iso_time(entry.occurred_at),
        expires_at=None if entry.expires_at is None else iso_time(entry.expires_at),
        forgotten=True if gone == DELETED else None,
        replaced_by=None if gone == DELETED else gone,
        reason=entry.superseded_reason,
        stale=entry.stale or None,
    )


def _source_fields(traced: TracedEvidence) -> dict[str, Any]:
    said = traced.evidence.quote if traced.said is None else str(traced.said)
    source = {"kind": traced.evidence.kind, "ref": traced.evidence.ref, "status": traced.status, "said": said}
    return {name: value for name, value in source.items() if value}


# querying: How does a model ask its memory in SPARQL?


def sparql_tool(setting: ToolConfig) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def sparql(ctx: CallContext, query: Sparql, limit: Rows = 50) -> dict[str, Any]:
        """Ask the memories in SPARQL, as instances of the Jido ontology. A query cannot change anything."""
        desk = tool_context(ctx, setting, "sparql", QUERY_CAPABILITY)
        asked = bounded_text(query, "query", MAX_QUERY_LENGTH)
        if not asked:
            raise Invalid("query", "is empty", "write a SELECT, ASK, CONSTRUCT or DESCRIBE query")
        graph = ctx.server.graph()
        answer = await graph.sparql(
            asked, desk.read_scope, limit=limit, timeout=SPARQL_TIMEOUT, isolated=True
        )
        found: dict[str, Any] = {"kind": answer.kind}
        match answer.kind:
            case "truth":
                found["truth"] = answer.truth
            case "rows":
                found["rows"] = [_row_values(row) for row in answer.rows]
            case _:
                found["triples"] = [str(triple) for triple in answer.triples]
        return {**found, "more": True} if answer.truncated else found

    return sparql


def _row_values(row: Any) -> dict[str, str]:
    terms = {name: row.term(name) for name in row}
    return {name: term.value for name, term in terms.items() if term is not None}


# offers: Which tools does a server offer, and what may each of them do?


READ_RIGHT = "read"
WRITE_RIGHT = "write"

ToolFactory = Callable[[ToolConfig], Action]


class MCPToolDefinition(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and what clients and people are told about it."""

    make: ToolFactory
    title: str
    shape: type[ToolOutput]
    right: str = READ_RIGHT
    """What a token has to allow."""
    destructive: bool = False
    """Whether something may be recalled no more after it."""


def _memory_tool(name: str) -> ToolFactory:
    return lambda setting: memory_tools(name, reach=setting.reach, strict=setting.strict)[0]


DEFAULT_TOOLS = {
    "remember": MCPToolDefinition(
        make=_memory_tool("remember"), title="Remember", shape=schemas.RememberOutput, right=WRITE_RIGHT
    ),
    "recall": MCPToolDefinition(make=_memory_tool("recall"), title="Recall", shape=schemas.RecallOutput),
    "forget": MCPToolDefinition(
        make=_memory_tool("forget"),
        title="Forget",
        shape=schemas.ForgetOutput,
        right=WRITE_RIGHT,
        destructive=True,
    ),
    "memory_status": MCPToolDefinition(make=status_tool, title="Memory status", shape=schemas.StatusOutput),
    "who_can": MCPToolDefinition(make=who_can_tool, title="Who can", shape=schemas.WhoCanOutput),
}
"""The tools that are always there."""

EXTRA_TOOLS = {
    "get": MCPToolDefinition(make=get_tool, title="Get a memory", shape=schemas.GetOutput),
    "list": MCPToolDefinition(make=list_tool, title="List memories", shape=schemas.ListOutput),
    "relate": MCPToolDefinition(
        make=_memory_tool("relate"),
        title="Relate memories",
        shape=schemas.RelateOutput,
        right=WRITE_RIGHT,
        destructive=True,
    ),
    "related": MCPToolDefinition(make=related_tool, title="Related memories", shape=schemas.RelatedOutput),
    "provenance": MCPToolDefinition(make=provenance_tool, title="Provenance", shape=schemas.ProvenanceOutput),
    "review": MCPToolDefinition(make=_memory_tool("review"), title="Review", shape=schemas.ReviewOutput),
    "restore": MCPToolDefinition(
        make=restore_tool, title="Restore", shape=schemas.RestoreOutput, right=WRITE_RIGHT
    ),
    "history": MCPToolDefinition(make=history_tool, title="History", shape=schemas.HistoryOutput),
    "sparql": MCPToolDefinition(make=sparql_tool, title="SPARQL", shape=schemas.SparqlOutput),
}
"""The tools that are there when asked for."""

ALL_TOOLS = {**DEFAULT_TOOLS, **EXTRA_TOOLS}
