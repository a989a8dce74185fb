"""How does a model look closer at its memories?"""

from __future__ import annotations

from typing import Any

from omoide import verbs
from omoide.core.action import Action, action
from omoide.core.entry import DELETED, Entry
from omoide.core.recalling import Filter
from omoide.integrations.mcp.calling import Call
from omoide.integrations.mcp.params import Cursor, Depth, Forgotten, Relations, Steps
from omoide.longterm import tracing
from omoide.longterm.provenance import Traced
from omoide.stores.protocols import KeepsHistory, Links, Queries
from omoide.stores.records import Query
from omoide.tools.desk import QUERY, WRITE, Setting, desk_of
from omoide.tools.forgetting import held
from omoide.tools.params import ALL, AnyKind, Limit, MemoryId, WithTags, kinds, labels
from omoide.tools.showing import moment, shown
from omoide.verbs import offering


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
        found = await tracing.related(desk.store, first.id, desk.seen, wanted, depth=depth, limit=limit)
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
        found = await tracing.provenance(desk.store, entry.id, desk.seen, depth=depth)
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
