"""How are memories kept, found, forgotten and erased over HTTP?"""

from __future__ import annotations

from typing import Annotated, Any

from litestar import Request, Response
from litestar.datastructures import State
from litestar.params import QueryParameter

from omoide import verbs
from omoide.core.entry import Entry
from omoide.core.recalling import Filter
from omoide.core.scope import Scope
from omoide.errors import Invalid
from omoide.service.answers import Changes, Recalled, Receipt, Versions
from omoide.stores.protocols import Feeds, Gets, KeepsHistory, Queries
from omoide.stores.records import EraseReceipt, Page, Query
from omoide.web import bodies
from omoide.web.asking import asks, erases, etag, expected_rev, idempotency_key, reads, writes
from omoide.web.telling import Told

Limit = Annotated[int, QueryParameter(ge=1, le=500, description="At most so many.")]
Moment = Annotated[int | None, QueryParameter(ge=0, description="Milliseconds since 1970 UTC.")]


@writes("/remember", 404, 409, 410, 412, 502, 507, needs=("agent",), headers=("If-Match", "Idempotency-Key"))
async def remember(
    request: Request[Any, Any, Any], state: State, within: Scope, asked: bodies.Remember
) -> Response[Receipt]:
    """Keep a memory of an agent.

    With an `id` it becomes the next revision of that memory. `Idempotency-Key` makes a repeated request count
    once, and `If-Match` refuses it where somebody else changed the memory meanwhile.
    """
    fields = asked.given()
    fields["expected_rev"] = expected_rev(request)
    fields["idempotency_key"] = idempotency_key(request)
    written = await verbs.remember(state.store, fields.pop("content"), within, **fields)
    found = Receipt(outcome=written.outcome, entry=written.entry, notices=written.notices)
    return Told(found, headers=etag(written.entry.rev))


@asks("/recall", 502)
async def recall(state: State, within: Scope, asked: bodies.Recall) -> Recalled:
    """The memories that answer a question best, each with why it is there."""
    chosen = Filter() if asked.filter is None else Filter.new(asked.filter.given())
    result = await verbs.recall(
        state.store, asked.query, within, asked.limit, filter=chosen, max_tokens=asked.max_tokens
    )
    return Recalled(hits=result.hits, weak=result.weak, notices=result.notices)


@reads("/entries")
async def entries(
    state: State,
    within: Scope,
    limit: Limit = 50,
    cursor: str | None = None,
    type: str | None = None,
    tag: str | None = None,
    min_confidence: Annotated[float, QueryParameter(ge=0, le=1)] = 0.0,
    since: Moment = None,
    until: Moment = None,
    as_of: Moment = None,
    include_superseded: bool = False,
) -> Page:
    """Memories, newest first; with the cursor of one page the next request goes on."""
    chosen = Filter(
        types=() if type is None else (type,),
        tags=() if tag is None else (tag,),
        min_confidence=min_confidence,
        since=since,
        until=until,
        include_superseded=include_superseded,
    )
    able: Queries = verbs.offering(state.store, Queries, "list memories")
    return await able.query(Query(scope=within, filter=chosen, limit=limit, cursor=cursor, as_of=as_of))


@reads("/entry", 404, 410)
async def entry(state: State, within: Scope, id: str, as_of: Moment = None) -> Response[Entry]:
    """One memory, now or as it was; its revision is the ETag."""
    able: Gets = verbs.offering(state.store, Gets, "find a memory by its id")
    found = await able.get(id, within, as_of=as_of)
    return Told(found, headers=etag(found.rev))


@reads("/history", 404)
async def history(state: State, within: Scope, id: str) -> Versions:
    """The versions of a memory, oldest first."""
    able: KeepsHistory = verbs.offering(state.store, KeepsHistory, "tell what a memory was")
    return Versions(versions=tuple(await able.history(id, within)))


@writes("/forget", 404, 409, 410, 412, 507, headers=("If-Match",))
async def forget(
    request: Request[Any, Any, Any], state: State, within: Scope, asked: bodies.Forget
) -> Response[Entry]:
    """Take a memory out of recall, or replace it by another; `restore` brings it back."""
    found = await verbs.forget(
        state.store,
        asked.id,
        within,
        reason=asked.reason,
        replacement=asked.replacement,
        expected_rev=expected_rev(request),
    )
    return Told(found, headers=etag(found.rev))


@writes("/restore", 404, 409, 410, 412, 507, headers=("If-Match",))
async def restore(
    request: Request[Any, Any, Any], state: State, within: Scope, asked: bodies.Restore
) -> Response[Entry]:
    """Bring a forgotten memory back."""
    found = await verbs.restore(state.store, asked.id, within, expected_rev=expected_rev(request))
    return Told(found, headers=etag(found.rev))


@erases("/erase", 404, 410)
async def erase(state: State, within: Scope, asked: bodies.Erase) -> EraseReceipt:
    """Remove a memory, or with `everything` all that the scope holds, for good.

    The receipt says what could not be reached.
    """
    if (asked.id is None) != asked.everything:
        raise Invalid("id", "is missing, or comes with everything", "name one memory, or say everything")
    return await verbs.erase(state.store, within, id=asked.id, reason=asked.reason)


@reads("/changes")
async def changes(
    state: State, within: Scope, after: Annotated[int, QueryParameter(ge=0)] = 0, limit: Limit = 100
) -> Changes:
    """What changed in a namespace after a number, in the order of the commits; ids, and no content."""
    able: Feeds = verbs.offering(state.store, Feeds, "tell what changed")
    found = await able.changes(within.namespace, after=after, limit=limit)
    return Changes(changes=tuple(found))


HANDLERS = [remember, recall, entries, entry, history, forget, restore, erase, changes]
