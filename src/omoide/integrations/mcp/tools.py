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
from omoide.core.entry import DELETED, Entry, Scope
from omoide.core.requests import Filter
from omoide.core.state import Context
from omoide.errors import Invalid
from omoide.integrations.mcp import schemas
from omoide.integrations.mcp.schemas import Answer
from omoide.longterm.lineage import DEEPEST as DEEPEST_ORIGIN
from omoide.longterm.lineage import Traced
from omoide.longterm.relations import DEEPEST as FARTHEST
from omoide.longterm.relations import IMPLICIT, RELATIONS
from omoide.service import agents
from omoide.stores.protocols import Counts, KeepsHistory, Links, Queries
from omoide.stores.records import Query
from omoide.tools import memory_tools
from omoide.tools.context import (
    ALL,
    QUERY,
    WRITE,
    AnyKind,
    Limit,
    MemoryId,
    Setting,
    WithTags,
    desk_of,
    kinds,
    labels,
    moment,
    shown,
    text,
)
from omoide.tools.memory import held
from omoide.verbs import offering

# calling: What does a tool know when an MCP client calls it?


READER = "reader"
"""Who asks where no agent is named; nothing can be written then."""


class Call(Context):
    """The surroundings of one call, as memory tools expect them of a turn."""

    def __init__(self, house: House) -> None:
        super().__init__(house.agent)
        self.house = house
        self.store = house.store
        self.scope = house.scope
        # A repeated call has another name here: what it says again is known by its words.
        self.idempotency_key = ids.new("call_")


class House:
    """Whose memory a server serves."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self.store = store
        self.scope = scope
        id = scope.agent_id or READER
        self.agent = Agent.new(Definition.new(READER), id=id)
        self._graph: Any = None

    @property
    def writable(self) -> bool:
        """Whether what is remembered would have an owner."""
        return self.scope.agent_id is not None

    def call(self) -> Call:
        """The surroundings of a new call."""
        return Call(self)

    def graph(self) -> Any:
        """The graph over the store, in memory; it is built when first asked for, and then kept up."""
        if self._graph is None:
            from omoide import graph

            self._graph = graph.open(self.store)
        return self._graph


# params: What does a model have to say to look around in a memory?


MOST_QUERY = 10_000
MOST_ROWS = 200
SECONDS = 10.0
"""How long a query in SPARQL may take."""

NO_LIMITS: Mapping[str, Any] = {}

ActionName = Annotated[str, Meta(description="What has to be done, by the name of an action; empty for any.")]
WantedTags = Annotated[tuple[str, ...], Meta(description="Tags that the agent has to carry.", max_length=20)]
Limits = Annotated[
    Mapping[str, Any], Meta(description='What has to be allowed for, such as {"max_tokens": 8000}.')
]
Cursor = Annotated[str, Meta(description="Where the next page begins, as the page before told.")]
Forgotten = Annotated[bool, Meta(description="With those that were forgotten, replaced, or no longer hold.")]
Relations = Annotated[
    str,
    Meta(
        description="Only by this relation; all for every one.",
        extra_json_schema={"enum": [ALL, *RELATIONS, *IMPLICIT]},
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
Rows = Annotated[int, Meta(ge=1, le=MOST_ROWS, description="How many rows or triples at most.")]


# knowing: How does a model learn what memory it has, and who can do something?


MOST_ACTION = 200


def status_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def memory_status(ctx: Call) -> dict[str, Any]:
        """Tell whose memory this is, how much it holds of which types, and whether it can be written to."""
        desk = desk_of(ctx, setting, "memory_status", QUERY)
        able: Counts = offering(desk.store, Counts, "count")
        figures = await able.stats(desk.seen)
        return {
            "scope": whose(desk.seen),
            "memories": figures.live,
            "forgotten": figures.superseded,
            "stale": figures.stale,
            "expired": figures.expired,
            "by_type": {str(name): count for name, count in figures.by_type.items() if name is not None},
            "searched_by": "words and meaning" if figures.embedder else "words",
            "writable": ctx.house.writable,
        }

    return memory_status


def who_can_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def who_can(
        ctx: Call, action: ActionName = "", tags: WantedTags = (), limits: Limits = NO_LIMITS
    ) -> dict[str, Any]:
        """Find the agents that can do something, the most experienced first, each with the reason."""
        desk = desk_of(ctx, setting, "who_can", QUERY)
        wanted = text(action, "action", MOST_ACTION) or None
        found = await agents.who_can(desk.store, wanted, labels(tags), limits, namespace=desk.seen.namespace)
        return {
            "agents": [
                {"id": one.id, "name": one.name, "reason": one.reason}
                | ({} if one.age is None else {"age": one.age})
                for one in found
            ],
            "count": len(found),
        }

    return who_can


def whose(scope: Scope) -> dict[str, str]:
    """A scope in plain words, without what it leaves open."""
    named = {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "project": scope.project_id,
        "session": scope.session_id,
    }
    return {name: value for name, value in named.items() if value is not None}


# looking: How does a model look closer at its memories?


def get_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def get(ctx: Call, memory_id: MemoryId) -> dict[str, Any]:
        """Read one memory with everything known of it, whether it still holds or not."""
        desk = desk_of(ctx, setting, "get", QUERY)
        entry = await held(desk, memory_id.strip(), desk.seen)
        answer: dict[str, Any] = {"memory": whole(entry)}
        if isinstance(desk.store, Links):
            links = await desk.store.links(entry.id, desk.seen)
            answer["links"] = [
                {"source_id": one.source, "relation": one.relation, "target_id": one.target} for one in links
            ]
        return answer

    return get


def list_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(name="list", effectful=True, idempotent=True, tags=("memory",))
    async def list_memories(
        ctx: Call,
        type: AnyKind = ALL,
        tags: WithTags = (),
        limit: Limit = 10,
        cursor: Cursor = "",
        forgotten: Forgotten = False,
    ) -> dict[str, Any]:
        """List memories, newest first, a page at a time."""
        desk = desk_of(ctx, setting, "list", QUERY)
        able: Queries = offering(desk.store, Queries, "list memories")
        filter = Filter(
            types=kinds(type),
            tags=labels(tags),
            include_superseded=forgotten,
            include_stale=forgotten,
            include_expired=forgotten,
        )
        page = await able.query(Query(scope=desk.seen, filter=filter, limit=limit, cursor=cursor or None))
        answer: dict[str, Any] = {"memories": [whole(entry) for entry in page.entries]}
        answer["count"] = len(page.entries)
        return answer if page.cursor is None else {**answer, "cursor": page.cursor}

    return list_memories


def history_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def history(ctx: Call, memory_id: MemoryId) -> dict[str, Any]:
        """Show the versions of a memory, oldest first."""
        desk = desk_of(ctx, setting, "history", QUERY)
        able: KeepsHistory = offering(desk.store, KeepsHistory, "tell the past of a memory")
        versions = await able.history(memory_id.strip(), desk.seen)
        return {
            "versions": [
                {"rev": one.rev, "at": moment(one.at)}
                | ({"erased": True} if one.entry is None else {"memory": whole(one.entry)})
                for one in versions
            ]
        }

    return history


def related_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def related(
        ctx: Call, memory_id: MemoryId, relation: Relations = ALL, depth: Steps = 1, limit: Limit = 10
    ) -> dict[str, Any]:
        """Find the memories that one is related to, nearest first."""
        desk = desk_of(ctx, setting, "related", QUERY)
        first = await held(desk, memory_id.strip(), desk.seen)
        wanted = None if relation == ALL else relation
        found = await longterm.related(desk.store, first.id, desk.seen, wanted, depth=depth, limit=limit)
        return {
            "related": [
                {
                    "memory": whole(one.entry),
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


def provenance_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def provenance(ctx: Call, memory_id: MemoryId, depth: Depth = 5) -> dict[str, Any]:
        """Show where a memory comes from, back to what was said, what a tool gave, or a document."""
        desk = desk_of(ctx, setting, "provenance", QUERY)
        entry = await held(desk, memory_id.strip(), desk.seen)
        found = await longterm.provenance(desk.store, entry.id, desk.seen, depth=depth)
        return {"tree": str(found), "sources": [_source(one) for one in found.sources()]}

    return provenance


def restore_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def restore(ctx: Call, memory_id: MemoryId) -> dict[str, Any]:
        """Bring a forgotten memory back: it is recalled again, and what rests on it holds again."""
        desk = desk_of(ctx, setting, "restore", WRITE)
        entry = await held(desk, memory_id.strip(), desk.own)
        back = await verbs.restore(desk.store, entry.id, desk.own)
        told = "It is recalled again." if entry.superseded_by else "It was not forgotten."
        return {"restored": True, "memory": whole(back), "message": told}

    return restore


def whole(entry: Entry) -> dict[str, Any]:
    """A memory with what is known about whether it still holds."""
    gone = entry.superseded_by
    return shown(
        entry,
        rev=entry.rev,
        importance=entry.importance,
        occurred_at=None if entry.occurred_at is None else moment(entry.occurred_at),
        expires_at=None if entry.expires_at is None else moment(entry.expires_at),
        forgotten=True if gone == DELETED else None,
        replaced_by=None if gone == DELETED else gone,
        reason=entry.superseded_reason,
        stale=entry.stale or None,
    )


def _source(one: Traced) -> dict[str, Any]:
    said = one.evidence.quote if one.said is None else str(one.said)
    source = {"kind": one.evidence.kind, "ref": one.evidence.ref, "status": one.status, "said": said}
    return {name: value for name, value in source.items() if value}


# querying: How does a model ask its memory in SPARQL?


def sparql_tool(setting: Setting) -> Action:
    """The tool, set up as the program wants it."""

    @action(effectful=True, idempotent=True, tags=("memory",))
    async def sparql(ctx: Call, query: Sparql, limit: Rows = 50) -> dict[str, Any]:
        """Ask the memories in SPARQL, as instances of the Jido ontology. A query cannot change anything."""
        desk = desk_of(ctx, setting, "sparql", QUERY)
        asked = text(query, "query", MOST_QUERY)
        if not asked:
            raise Invalid("query", "is empty", "write a SELECT, ASK, CONSTRUCT or DESCRIBE query")
        graph = ctx.house.graph()
        answer = await graph.sparql(asked, desk.seen, limit=limit, timeout=SECONDS, isolated=True)
        found: dict[str, Any] = {"kind": answer.kind}
        match answer.kind:
            case "truth":
                found["truth"] = answer.truth
            case "rows":
                found["rows"] = [_row(row) for row in answer.rows]
            case _:
                found["triples"] = [str(triple) for triple in answer.triples]
        return {**found, "more": True} if answer.truncated else found

    return sparql


def _row(row: Any) -> dict[str, str]:
    terms = {name: row.term(name) for name in row}
    return {name: term.value for name, term in terms.items() if term is not None}


# offers: Which tools does a server offer, and what may each of them do?


READ = "read"
OFFERED_WRITE = "write"

Maker = Callable[[Setting], Action]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A tool, and what clients and people are told about it."""

    make: Maker
    title: str
    shape: type[Answer]
    right: str = READ
    """What a token has to allow."""
    destructive: bool = False
    """Whether something may be recalled no more after it."""


def _memory_tool(name: str) -> Maker:
    return lambda setting: memory_tools(name, reach=setting.reach, strict=setting.strict)[0]


USUAL = {
    "remember": Offer(
        make=_memory_tool("remember"), title="Remember", shape=schemas.Remembered, right=OFFERED_WRITE
    ),
    "recall": Offer(make=_memory_tool("recall"), title="Recall", shape=schemas.Recalled),
    "forget": Offer(
        make=_memory_tool("forget"),
        title="Forget",
        shape=schemas.Forgotten,
        right=OFFERED_WRITE,
        destructive=True,
    ),
    "memory_status": Offer(make=status_tool, title="Memory status", shape=schemas.Status),
    "who_can": Offer(make=who_can_tool, title="Who can", shape=schemas.Choices),
}
"""The tools that are always there."""

FURTHER = {
    "get": Offer(make=get_tool, title="Get a memory", shape=schemas.Got),
    "list": Offer(make=list_tool, title="List memories", shape=schemas.Listed),
    "relate": Offer(
        make=_memory_tool("relate"),
        title="Relate memories",
        shape=schemas.Related,
        right=OFFERED_WRITE,
        destructive=True,
    ),
    "related": Offer(make=related_tool, title="Related memories", shape=schemas.Relatives),
    "provenance": Offer(make=provenance_tool, title="Provenance", shape=schemas.Origins),
    "review": Offer(make=_memory_tool("review"), title="Review", shape=schemas.Reviewed),
    "restore": Offer(make=restore_tool, title="Restore", shape=schemas.Restored, right=OFFERED_WRITE),
    "history": Offer(make=history_tool, title="History", shape=schemas.Histories),
    "sparql": Offer(make=sparql_tool, title="SPARQL", shape=schemas.Found),
}
"""The tools that are there when asked for."""

OFFERED_ALL = {**USUAL, **FURTHER}
