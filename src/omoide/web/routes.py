"""All REST routes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.metadata import version
from typing import Annotated, Any

import anyio
from litestar import Request, Response
from litestar.datastructures import State
from litestar.params import QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from omoide import verbs
from omoide.core.entry import Entry, Filter, Scope
from omoide.errors import Invalid, NotFound
from omoide.longterm import conflicts as disagreeing
from omoide.longterm import relations, upkeep
from omoide.longterm.lineage import Provenance
from omoide.longterm.lineage import provenance as traced
from omoide.longterm.relations import Relation
from omoide.longterm.upkeep import PruneReport, ReviewReport
from omoide.promotion.plan import PromotionRun
from omoide.service import agents as resting
from omoide.service.agents import AgentInfo
from omoide.service.schemas import (
    AgentsResponse,
    ChangesResponse,
    ConflictsResponse,
    HistoryResponse,
    PromotionResponse,
    RecallResponse,
    RelatedResponse,
    RememberResponse,
    SessionInfo,
    SessionsResponse,
    SpaceInfo,
    SpacesResponse,
    StatusResponse,
    TranscriptResponse,
    WhoCanResponse,
)
from omoide.sessions.context import SessionContext
from omoide.sessions.session import Session
from omoide.sessions.storage import SessionStore, session_not_found, spec_of
from omoide.sessions.storage import sessions as listed
from omoide.stores.async_store import AsyncStore, run_in_thread
from omoide.stores.protocols import (
    SupportsFeed,
    SupportsGet,
    SupportsQuery,
    SupportsWait,
)
from omoide.stores.records import EraseReceipt, Page, Query
from omoide.stores.redaction import mask_url
from omoide.turns.preview import Preflight
from omoide.verbs import require
from omoide.web import schemas
from omoide.web.middleware import JSONResponse, is_allowed
from omoide.web.openapi import SPARQL_RESULTS_MEDIA_TYPE
from omoide.web.schemas import (
    erase_route,
    etag,
    expected_rev,
    idempotency_key,
    query_route,
    read_route,
    write_route,
)

# agents: How is it asked over HTTP who rests in a store, and who can do something?


@read_route("/agents")
async def agents(state: State, within: Scope) -> AgentsResponse:
    """Everybody who rests in a namespace."""
    return AgentsResponse(agents=tuple(await resting.list_agents(state.store, namespace=within.namespace)))


@read_route("/identity", 404)
async def identity(state: State, within: Scope, id: str) -> AgentInfo:
    """What an agent shows of itself."""
    return await resting.get_agent(state.store, id, namespace=within.namespace)


@read_route("/spaces", 404)
async def spaces(state: State, within: Scope, id: str) -> SpacesResponse:
    """What an agent believes and wants."""
    found = await resting.get_spaces(state.store, id, namespace=within.namespace)
    return SpacesResponse(
        spaces=tuple(SpaceInfo(name=name, data=one.data, rev=one.rev) for name, one in found.items())
    )


@query_route("/who-can")
async def who_can(state: State, within: Scope, asked: schemas.WhoCanBody) -> WhoCanResponse:
    """Who of those at rest can do something, best first, each with the reason."""
    found = await resting.who_can(
        state.store, asked.action, asked.tags, asked.limits or {}, namespace=within.namespace
    )
    return WhoCanResponse(choices=tuple(found))


AGENT_HANDLERS = [agents, identity, spaces, who_can]


# conversations: How are sessions looked at over HTTP, and what they know promoted?


@read_route("/sessions")
async def sessions(state: State, within: Scope) -> SessionsResponse:
    """The sessions of a namespace, the one that was used last first."""
    found = await listed(state.store, agent_id=within.agent_id, namespace=within.namespace)
    kept = [one for one in found if within.project_id in (None, one.project_id)]
    kept.sort(key=lambda one: one.updated_at, reverse=True)
    return SessionsResponse(sessions=tuple(map(SessionInfo.from_header, kept)))


@read_route("/transcript", 404)
async def transcript(state: State, within: Scope, id: str) -> TranscriptResponse:
    """What was said in a session."""
    kept = await SessionStore(state.store, id, within.namespace).load()
    if kept is None or within.agent_id not in (None, kept[0].agent_id):
        raise session_not_found(id)
    header, thread = kept
    return TranscriptResponse(session=SessionInfo.from_header(header), entries=tuple(thread.entries))


@read_route("/context", 404)
async def context(
    state: State,
    within: Scope,
    id: str,
    hint: str | None = None,
    budget: Annotated[int, QueryParameter(ge=1, le=1_000_000)] = 32_000,
) -> SessionContext:
    """What a model should know about a session, in so many tokens."""
    return await (await _load_session(state, within, id)).assemble_context(hint, budget)


@write_route("/promote", 404, 409)
async def promote(state: State, within: Scope, asked: schemas.PromoteBody) -> PromotionResponse:
    """Show what of a session would become lasting memory, and why; with `dry_run` false it becomes it."""
    session = await _load_session(state, within, asked.session)
    if asked.dry_run:
        done = await session.promote(dry_run=True, threshold=asked.threshold)
    else:
        session.set_promotion(enabled=False)  # what is asked for is promoted, and nothing more on leaving
        async with session:
            done = await session.promote(threshold=asked.threshold)
    return PromotionResponse(
        dry_run=done.dry_run,
        threshold=done.plan.threshold,
        candidates=done.plan.candidates,
        run=done.run,
        notices=session.notices,
    )


@write_route("/undo-promotion", 404, 409)
async def undo_promotion(state: State, within: Scope, asked: schemas.UndoPromotionBody) -> PromotionRun:
    """Take the last promotion of a session back, or the one that is named."""
    session = await _load_session(state, within, asked.session)
    session.set_promotion(enabled=False)
    async with session:
        return await session.undo_promotion(asked.run)


@query_route("/preflight", 404)
async def preflight(state: State, within: Scope, asked: schemas.PreflightBody) -> Preflight:
    """What a model would be sent; no model is asked, and nothing is written."""
    return await (await _load_session(state, within, asked.session)).preflight(asked.message)


async def _load_session(state: State, within: Scope, id: str) -> Session:
    spec = await spec_of(state.store, id, within.namespace)
    if within.agent_id not in (None, spec.id):
        raise NotFound("session", id, "it is of another agent")
    named = None if spec.memory is None else spec.memory.namespace
    given: dict[str, Any] = {named[1]: within.namespace} if isinstance(named, tuple) else {}
    return await Session.load(
        id, spec, store=state.store, namespace=within.namespace, context=given, llm=_no_model
    )


def _no_model(request: object, journal: object) -> str:
    """Answers in the place of a model that nothing here asks."""
    raise NotImplementedError


SESSION_HANDLERS = [sessions, transcript, context, promote, undo_promotion, preflight]


# events: How does somebody hear over HTTP that something changed?


EVENT_BATCH_SIZE = 200


@read_route("/events")
async def events(
    request: Request[Any, Any, Any],
    state: State,
    within: Scope,
    after: Annotated[int, QueryParameter(ge=0, description="The number after which it begins.")] = 0,
) -> ServerSentEvent:
    """What changes in a namespace, as it happens: one event a change, without content.

    Each has its number as id; whoever comes back says the last one as `after`. The stream ends when the token
    no longer counts.
    """
    able: SupportsFeed = require(state.store, SupportsFeed, "tell what changed")
    still = partial(is_allowed, request, "read", within.namespace)
    return ServerSentEvent(_change_events(able, within.namespace, after, state.poll_seconds, still))


async def _change_events(
    store: SupportsFeed,
    namespace: str,
    after: int,
    poll_interval: float,
    is_authorized: Callable[[], Awaitable[bool]],
) -> AsyncIterator[ServerSentEventMessage]:
    yield ServerSentEventMessage(comment="following", data=None)
    while await is_authorized():
        found = await store.changes(namespace, after=after, limit=EVENT_BATCH_SIZE)
        for change in found:
            after = change.seq
            yield ServerSentEventMessage(id=str(change.seq), event=change.op, data=change.to_json().decode())
        if not found and isinstance(store, SupportsWait):
            await store.wait(namespace, after=after, timeout=poll_interval)
        elif not found:
            await anyio.sleep(poll_interval)


EVENT_HANDLERS = [events]


# knowledge: How is it asked over HTTP what memories rest on, and what they have to do with each other?


Limit = Annotated[int, QueryParameter(ge=1, le=200, description="At most so many.")]


@read_route("/related", 404, 410)
async def related(
    state: State,
    within: Scope,
    id: str,
    relation: str | None = None,
    depth: Annotated[int, QueryParameter(ge=1, le=relations.MAX_DEPTH)] = 1,
    limit: Limit = 100,
) -> RelatedResponse:
    """What a memory is related to, nearest first."""
    found = await relations.related(state.store, id, within, relation, depth=depth, limit=limit)
    return RelatedResponse(related=tuple(found))


@write_route("/relate", 404, 409, 410)
async def relate(state: State, within: Scope, asked: schemas.RelateBody) -> Relation:
    """Say how one memory is related to another."""
    return await relations.relate(state.store, asked.source, asked.relation, asked.target, within)


@read_route("/provenance", 404, 410)
async def provenance(state: State, within: Scope, id: str) -> Provenance:
    """Where a memory comes from, back to what was said."""
    return await traced(state.store, id, within)


@read_route("/conflicts")
async def conflicts(state: State, within: Scope, limit: Limit = 100) -> ConflictsResponse:
    """Memories that cannot be true together."""
    return ConflictsResponse(conflicts=await disagreeing.find_conflicts(state.store, within, limit=limit))


@read_route("/review")
async def review(state: State, within: Scope, limit: Limit = 50) -> ReviewReport:
    """What contradicts, what no longer holds, what is not known, and what will soon expire."""
    return await upkeep.review(state.store, within, limit=limit)


@write_route("/prune")
async def prune(state: State, within: Scope, asked: schemas.PruneBody) -> PruneReport:
    """Find memories that are old, unsure or unused; with `dry_run` false they are forgotten."""
    Filter(types=asked.types)  # says which types there are, where one is none
    return await upkeep.prune(state.store, within, **asked.to_kwargs())


@query_route("/sparql", 501, 504)
async def sparql(state: State, within: Scope, asked: schemas.SparqlBody) -> Response[bytes]:
    """Ask what the scope holds in SPARQL; nothing can be changed, and what takes too long is stopped."""
    view = await state.graph()
    answer = await view.sparql(
        asked.query,
        within,
        limit=asked.limit,
        timeout=asked.timeout,
        isolated=True,
        bindings=asked.bindings or {},
    )
    headers = {"Omoide-Truncated": "true"} if answer.truncated else {}
    return Response(answer.to_json(), media_type=SPARQL_RESULTS_MEDIA_TYPE, headers=headers)


KNOWLEDGE_HANDLERS = [related, relate, provenance, conflicts, review, prune, sparql]


# memories: How are memories kept, found, forgotten and erased over HTTP?


PageLimit = Annotated[int, QueryParameter(ge=1, le=500, description="At most so many.")]
Timestamp = Annotated[int | None, QueryParameter(ge=0, description="Milliseconds since 1970 UTC.")]


@write_route(
    "/remember", 404, 409, 410, 412, 502, 507, needs=("agent",), headers=("If-Match", "Idempotency-Key")
)
async def remember(
    request: Request[Any, Any, Any], state: State, within: Scope, asked: schemas.RememberBody
) -> Response[RememberResponse]:
    """Keep a memory of an agent.

    With an `id` it becomes the next revision of that memory. `Idempotency-Key` makes a repeated request count
    once, and `If-Match` refuses it where somebody else changed the memory meanwhile.
    """
    fields = asked.to_kwargs()
    fields["expected_rev"] = expected_rev(request)
    fields["idempotency_key"] = idempotency_key(request)
    written = await verbs.remember(state.store, fields.pop("content"), within, **fields)
    found = RememberResponse(outcome=written.outcome, entry=written.entry, notices=written.notices)
    return JSONResponse(found, headers=etag(written.entry.rev))


@query_route("/recall", 502)
async def recall(state: State, within: Scope, asked: schemas.RecallBody) -> RecallResponse:
    """The memories that answer a question best, each with why it is there."""
    chosen = Filter() if asked.filter is None else Filter.new(asked.filter.to_kwargs())
    result = await verbs.recall(
        state.store, asked.query, within, asked.limit, filter=chosen, max_tokens=asked.max_tokens
    )
    return RecallResponse(hits=result.hits, weak=result.weak, notices=result.notices)


@read_route("/entries")
async def entries(
    state: State,
    within: Scope,
    limit: PageLimit = 50,
    cursor: str | None = None,
    type: str | None = None,
    tag: str | None = None,
    min_confidence: Annotated[float, QueryParameter(ge=0, le=1)] = 0.0,
    since: Timestamp = None,
    until: Timestamp = None,
    as_of: Timestamp = None,
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
    able: SupportsQuery = verbs.require(state.store, SupportsQuery, "list memories")
    return await able.query(Query(scope=within, filter=chosen, limit=limit, cursor=cursor, as_of=as_of))


@read_route("/entry", 404, 410)
async def entry(state: State, within: Scope, id: str, as_of: Timestamp = None) -> Response[Entry]:
    """One memory, now or as it was; its revision is the ETag."""
    able: SupportsGet = verbs.require(state.store, SupportsGet, "find a memory by its id")
    found = await able.get(id, within, as_of=as_of)
    return JSONResponse(found, headers=etag(found.rev))


@read_route("/history", 404)
async def history(state: State, within: Scope, id: str) -> HistoryResponse:
    """The versions of a memory, oldest first."""
    able: SupportsQuery = verbs.require(state.store, SupportsQuery, "tell what a memory was")
    return HistoryResponse(versions=tuple(await able.history(id, within)))


@write_route("/forget", 404, 409, 410, 412, 507, headers=("If-Match",))
async def forget(
    request: Request[Any, Any, Any], state: State, within: Scope, asked: schemas.ForgetBody
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
    return JSONResponse(found, headers=etag(found.rev))


@write_route("/restore", 404, 409, 410, 412, 507, headers=("If-Match",))
async def restore(
    request: Request[Any, Any, Any], state: State, within: Scope, asked: schemas.RestoreBody
) -> Response[Entry]:
    """Bring a forgotten memory back."""
    found = await verbs.reinstate(state.store, asked.id, within, expected_rev=expected_rev(request))
    return JSONResponse(found, headers=etag(found.rev))


@erase_route("/erase", 404, 410)
async def erase(state: State, within: Scope, asked: schemas.EraseBody) -> EraseReceipt:
    """Remove a memory, or with `everything` all that the scope holds, for good.

    The receipt says what could not be reached.
    """
    if (asked.id is None) != asked.everything:
        raise Invalid("id", "is missing, or comes with everything", "name one memory, or say everything")
    return await verbs.erase(state.store, within, id=asked.id, reason=asked.reason)


@read_route("/changes")
async def changes(
    state: State, within: Scope, after: Annotated[int, QueryParameter(ge=0)] = 0, limit: PageLimit = 100
) -> ChangesResponse:
    """What changed in a namespace after a number, in the order of the commits; ids, and no content."""
    able: SupportsFeed = verbs.require(state.store, SupportsFeed, "tell what changed")
    found = await able.changes(within.namespace, after=after, limit=limit)
    return ChangesResponse(changes=tuple(found))


MEMORY_HANDLERS = [remember, recall, entries, entry, history, forget, restore, erase, changes]


# standing: How is it asked over HTTP whether everything is in order?


@read_route("/status")
async def status(
    state: State,
    within: Scope,
    check: Annotated[bool, QueryParameter(description="Whether to look if the store is sound.")] = False,
) -> StatusResponse:
    """How much the scope holds, and with `check` whether the store is sound, which takes a while."""
    able: SupportsQuery = require(state.store, SupportsQuery, "tell figures about itself")
    stats = await able.stats(within)
    problems: tuple[str, ...] = ()
    if check and isinstance(state.store, AsyncStore):
        problems = tuple(await run_in_thread(state.store.sync.check))
    name = mask_url(str(state.store)).removeprefix("<store ").removesuffix(">")
    return StatusResponse(version=version("omoide"), store=name, stats=stats, problems=problems)


STATUS_HANDLERS = [status]
