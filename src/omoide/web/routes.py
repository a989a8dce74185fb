"""Handlers of the REST routes; `endpoints` tells how they get their arguments."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from functools import partial
from importlib.metadata import version
from time import monotonic
from typing import Annotated, Any

import anyio
import msgspec
from msgspec import Meta
from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from omoide import clock, verbs
from omoide.core.entry import Entry, Filter, RecallFields, Scope
from omoide.core.value import check_choice
from omoide.documents.writer import DocumentResult, add_document
from omoide.errors import Invalid
from omoide.longterm import lineage, relations, upkeep
from omoide.longterm.conflicts import find_conflicts
from omoide.longterm.lineage import Provenance
from omoide.longterm.relations import Relation
from omoide.longterm.upkeep import PruneReport, ReviewReport
from omoide.promotion.plan import PromotionRun
from omoide.service import agents as hibernated
from omoide.service.agents import AgentInfo
from omoide.service.auth import ALL_NAMESPACES
from omoide.service.owners import describe_elsewhere
from omoide.service.schemas import (
    AgentsResponse,
    ChangesResponse,
    ConflictsResponse,
    HistoryResponse,
    NamespacesResponse,
    OwnersResponse,
    PinsResponse,
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
from omoide.sessions.storage import SessionRecord, SessionStore, session_not_found, spec_of
from omoide.sessions.storage import sessions as list_sessions
from omoide.stores.async_store import AsyncStore, run_in_thread
from omoide.stores.protocols import (
    SupportsDocuments,
    SupportsFeed,
    SupportsGet,
    SupportsOwners,
    SupportsQuery,
    SupportsWait,
)
from omoide.stores.records import Change, EraseReceipt, Page, Query
from omoide.stores.redaction import mask_url
from omoide.turns.preview import Preflight
from omoide.verbs import require
from omoide.web import schemas
from omoide.web.endpoints import erase_route, query_route, read_route, write_route
from omoide.web.middleware import (
    InvalidParameter,
    JSONResponse,
    allowed_namespaces,
    is_allowed,
    require_right,
)
from omoide.web.schemas import AGENT_SCOPE


@read_route("/agents", scope=AGENT_SCOPE)
async def agents(state: State, memory_scope: Scope) -> AgentsResponse:
    """List the hibernated agents of a namespace."""
    found = await hibernated.list_agents(state.store, namespace=memory_scope.namespace)
    return AgentsResponse(agents=tuple(info for info in found if memory_scope.agent_id in (None, info.id)))


@read_route("/identity", 404, scope=AGENT_SCOPE)
async def identity(state: State, memory_scope: Scope, id: str) -> AgentInfo:
    """Return the public description of an agent."""
    _check_agent(memory_scope, id)
    return await hibernated.get_agent(state.store, id, namespace=memory_scope.namespace)


@read_route("/spaces", 404, scope=AGENT_SCOPE)
async def spaces(state: State, memory_scope: Scope, id: str) -> SpacesResponse:
    """Return the spaces of an agent's memory."""
    _check_agent(memory_scope, id)
    by_name = await hibernated.get_spaces(state.store, id, namespace=memory_scope.namespace)
    return SpacesResponse(
        spaces=tuple(SpaceInfo(name=name, data=space.data, rev=space.rev) for name, space in by_name.items())
    )


def _check_agent(scope: Scope, id: str) -> None:
    """Raise unless an agent is the one of the scope."""
    if scope.agent_id not in (None, id):
        raise hibernated.agent_not_found(id, scope.namespace)


@query_route("/who-can", scope=AGENT_SCOPE)
async def who_can(state: State, memory_scope: Scope, payload: schemas.WhoCanBody) -> WhoCanResponse:
    """List the hibernated agents that can do an action, best first, each with the reason."""
    matches = await hibernated.who_can(
        state.store,
        payload.action,
        payload.tags,
        payload.limits or {},
        payload.io or {},
        namespace=memory_scope.namespace,
    )
    return WhoCanResponse(
        choices=tuple(match for match in matches if memory_scope.agent_id in (None, match.id))
    )


AGENT_ENDPOINTS = [agents, identity, spaces, who_can]


@read_route("/sessions")
async def sessions(state: State, memory_scope: Scope) -> SessionsResponse:
    """List the sessions of a namespace, last used first."""
    headers = await list_sessions(
        state.store,
        agent_id=memory_scope.agent_id,
        user_id=memory_scope.user_id,
        namespace=memory_scope.namespace,
    )
    selected = [header for header in headers if _is_session_in(memory_scope, header)]
    selected.sort(key=lambda header: header.updated_at, reverse=True)
    return SessionsResponse(sessions=tuple(map(SessionInfo.from_header, selected)))


@read_route("/transcript", 404)
async def transcript(state: State, memory_scope: Scope, id: str) -> TranscriptResponse:
    """Return a session with the entries of its thread."""
    stored = await SessionStore(state.store, id, memory_scope.namespace).load()
    if stored is None or not _is_session_in(memory_scope, stored[0]):
        raise session_not_found(id, memory_scope.namespace)
    header, thread = stored
    return TranscriptResponse(session=SessionInfo.from_header(header), entries=tuple(thread.entries))


def _is_session_in(scope: Scope, header: SessionRecord) -> bool:
    return (
        scope.agent_id in (None, header.agent_id)
        and scope.user_id in (None, header.user_id)
        and scope.session_id in (None, header.session_id)
        and scope.project_id in (None, header.project_id)
    )


@read_route("/context", 404)
async def context(
    request: Request,
    state: State,
    memory_scope: Scope,
    id: str,
    hint: str | None = None,
    budget: Annotated[int, Meta(ge=1, le=1_000_000)] = 32_000,
) -> SessionContext:
    """Assemble the context of a session for a model, within a token budget."""
    session = await _load_session(request, state, memory_scope, id)
    return await session.assemble_context(hint, budget)


@write_route("/promote", 404, 409)
async def promote(
    request: Request, state: State, memory_scope: Scope, payload: schemas.PromoteBody
) -> PromotionResponse:
    """Plan which short-term memory of a session is promoted, and why; apply it unless `dry_run`."""
    session = await _load_session(request, state, memory_scope, payload.session)
    if payload.dry_run:
        promotion = await session.promote(dry_run=True, threshold=payload.threshold)
    else:
        session.set_promotion(enabled=False)  # leaving the session would promote again
        async with session:
            promotion = await session.promote(threshold=payload.threshold)
    return PromotionResponse(
        dry_run=promotion.dry_run,
        threshold=promotion.plan.threshold,
        candidates=promotion.plan.candidates,
        run=promotion.run,
        notices=session.notices,
    )


@write_route("/undo-promotion", 404, 409)
async def undo_promotion(
    request: Request, state: State, memory_scope: Scope, payload: schemas.UndoPromotionBody
) -> PromotionRun:
    """Undo a promotion of a session: the named run, or the last one."""
    session = await _load_session(request, state, memory_scope, payload.session)
    session.set_promotion(enabled=False)
    async with session:
        return await session.undo_promotion(payload.run)


@query_route("/preflight", 404)
async def preflight(
    request: Request, state: State, memory_scope: Scope, payload: schemas.PreflightBody
) -> Preflight:
    """Return what a model would be sent in a session; no model is called, and nothing is written."""
    session = await _load_session(request, state, memory_scope, payload.session)
    return await session.preflight(payload.message)


async def _load_session(request: Request, state: State, memory_scope: Scope, id: str) -> Session:
    """Load a session of the scope, whose memory may lie in another namespace than its transcript.

    Raises:
        HTTPException: the token lacks the right of the route in the namespace of that memory.
    """
    spec = await spec_of(state.store, id, memory_scope.namespace)
    namespace = None if spec.memory is None else spec.memory.namespace
    context: dict[str, Any] = {namespace[1]: memory_scope.namespace} if isinstance(namespace, tuple) else {}
    session = await Session.load(
        id, spec, store=state.store, namespace=memory_scope.namespace, context=context, model=_no_model
    )
    if not _is_session_in(memory_scope, session.record):
        raise session_not_found(id, memory_scope.namespace)
    await require_right(request, session.memory_namespace)
    return session


def _no_model(request: object, journal: object) -> str:
    """Stands in for the model, which no route calls."""
    raise NotImplementedError


SESSION_ENDPOINTS = [sessions, transcript, context, promote, undo_promotion, preflight]


EVENTS_MEDIA_TYPE = "text/event-stream"
EVENT_BATCH_SIZE = 200
EVENT_SILENCE = 15.0
"""Seconds after which a stream without changes sends a comment, which shows whether its client is there."""


@read_route("/events", slots="streams", media_type=EVENTS_MEDIA_TYPE)
async def events(
    request: Request,
    state: State,
    memory_scope: Scope,
    after: Annotated[int, Meta(ge=0, description="The number after which it begins.")] = 0,
) -> StreamingResponse:
    """Stream the changes of a scope as they happen: one event per change, without content.

    The id of an event is its sequence number; pass the last one as `after` to continue. The stream ends when
    the token is revoked or expires.
    """
    store: SupportsFeed = require(state.store, SupportsFeed, "tell what changed")
    is_authorized = partial(is_allowed, request, "read", memory_scope.namespace)
    stream = _change_events(store, memory_scope, after, state.poll_interval, is_authorized)
    # A proxy that buffered the stream would hold events back.
    return StreamingResponse(stream, media_type=EVENTS_MEDIA_TYPE, headers={"X-Accel-Buffering": "no"})


async def _change_events(
    store: SupportsFeed,
    scope: Scope,
    after: int,
    poll_interval: float,
    is_authorized: Callable[[], Awaitable[bool]],
) -> AsyncIterator[bytes]:
    namespace = scope.namespace
    yield b": following\n\n"
    sent_at = monotonic()
    while await is_authorized():
        changes = await store.changes(namespace, after=after, limit=EVENT_BATCH_SIZE)
        if not changes and monotonic() - sent_at > EVENT_SILENCE:
            yield b": waiting\n\n"
            sent_at = monotonic()
        for change in await _changes_within(store, scope, changes, after):
            yield b"id: %d\nevent: %b\ndata: %b\n\n" % (change.seq, change.op.encode(), change.to_json())
            sent_at = monotonic()
        if changes:
            after = changes[-1].seq
        elif isinstance(store, SupportsWait):
            await store.wait(namespace, after=after, timeout=poll_interval)
        else:
            await anyio.sleep(poll_interval)


async def _changes_within(
    store: SupportsFeed, scope: Scope, changes: Sequence[Change], after: int
) -> Sequence[Change]:
    """Return those of a batch of changes that are of a scope."""
    if not changes or scope == Scope(namespace=scope.namespace):
        return changes
    return await store.changes(
        scope.namespace, after=after, until=changes[-1].seq, limit=len(changes), scope=scope
    )


EVENT_ENDPOINTS = [events]


Limit = Annotated[int, Meta(ge=1, le=200, description="At most so many.")]


@read_route("/related", 404, 410)
async def related(
    state: State,
    memory_scope: Scope,
    id: str,
    relation: str | None = None,
    depth: Annotated[int, Meta(ge=1, le=relations.MAX_DEPTH)] = 1,
    limit: Limit = 100,
) -> RelatedResponse:
    """List the memories that one is related to, nearest first."""
    entries = await relations.related(state.store, id, memory_scope, relation, depth=depth, limit=limit)
    return RelatedResponse(related=tuple(entries))


@write_route("/relate", 404, 409, 410)
async def relate(state: State, memory_scope: Scope, payload: schemas.RelateBody) -> Relation:
    """Relate one memory to another."""
    return await relations.relate(state.store, payload.source, payload.relation, payload.target, memory_scope)


@read_route("/provenance", 404, 410)
async def provenance(state: State, memory_scope: Scope, id: str) -> Provenance:
    """Return the provenance of a memory, back to its sources."""
    return await lineage.provenance(state.store, id, memory_scope)


@read_route("/conflicts")
async def conflicts(state: State, memory_scope: Scope, limit: Limit = 100) -> ConflictsResponse:
    """List the pairs of memories that contradict each other."""
    return ConflictsResponse(conflicts=await find_conflicts(state.store, memory_scope, limit=limit))


@read_route("/review")
async def review(state: State, memory_scope: Scope, limit: Limit = 50) -> ReviewReport:
    """List conflicts, stale memories, open questions, and memories that expire soon."""
    return await upkeep.review(state.store, memory_scope, limit=limit)


@write_route("/prune")
async def prune(state: State, memory_scope: Scope, payload: schemas.PruneBody) -> PruneReport:
    """Find old, low-confidence or unused memories; forget them unless `dry_run`."""
    Filter(types=payload.types)  # raises with the list of types if one is unknown
    return await upkeep.prune(state.store, memory_scope, **_given_fields(payload))


SPARQL_RESULTS_MEDIA_TYPE = "application/sparql-results+json"


@query_route("/sparql", 501, slots="processes", media_type=SPARQL_RESULTS_MEDIA_TYPE)
async def sparql(state: State, memory_scope: Scope, payload: schemas.SparqlBody) -> Response:
    """Run a read-only SPARQL query over the scope; a query that takes too long is stopped."""
    view = await state.graph()
    answer = await view.sparql(
        payload.query,
        memory_scope,
        limit=payload.limit,
        timeout=payload.timeout,
        isolated=True,
        bindings=payload.bindings or {},
    )
    headers = {"Omoide-Truncated": "true"} if answer.truncated else {}
    return Response(answer.to_json(), media_type=SPARQL_RESULTS_MEDIA_TYPE, headers=headers)


KNOWLEDGE_ENDPOINTS = [related, relate, provenance, conflicts, review, prune, sparql]


PageLimit = Annotated[int, Meta(ge=1, le=500, description="At most so many.")]
Timestamp = Annotated[str, Meta(description=schemas.TIME_DESCRIPTION)] | None


_ETAG = re.compile(r'(?:W/)?"(\d{1,15})"')


def _expected_rev(request: Request) -> int | None:
    """Return the revision in `If-Match`; None if there is none."""
    header = request.headers.get("if-match")
    if header is None:
        return None
    match = _ETAG.fullmatch(header.strip())
    if match is None:
        raise InvalidParameter("if-match", 'must be one revision in quotes, such as "3"')
    return int(match[1])


def _etag(rev: int) -> dict[str, str]:
    """Return the ETag header of a revision."""
    return {"ETag": f'"{rev}"'}


def _given_fields(body: schemas.RequestBody) -> dict[str, Any]:
    """Return the fields of a body that are not None."""
    fields = msgspec.structs.asdict(body)
    return {name: value for name, value in fields.items() if value is not None}


def parse_timestamp(value: str | None, field: str) -> int | None:
    """Return the time of a query parameter, in which digits alone are milliseconds."""
    parse = clock.parse_end if field == "until" else clock.parse
    return None if value is None else parse(int(value) if value.isdecimal() else value, field)


@write_route(
    "/remember", 404, 409, 410, 412, 502, 507, required=("agent",), headers=("If-Match", "Idempotency-Key")
)
async def remember(
    request: Request, state: State, memory_scope: Scope, payload: schemas.RememberBody
) -> JSONResponse[RememberResponse]:
    """Store a memory of an agent.

    With an `id`, the memory with that id gets a new revision. A repeated request with the same
    `Idempotency-Key` is applied once; `If-Match` refuses the request if the memory has another revision. With
    a `key`, it supersedes the value that the key had in exactly this scope; `If-Match` refers to that value.
    """
    fields = _given_fields(payload)
    fields["expected_rev"] = _expected_rev(request)
    fields["idempotency_key"] = request.headers.get("idempotency-key")
    result = await verbs.remember(state.store, fields.pop("content"), memory_scope, **fields)
    response = RememberResponse(
        outcome=result.outcome,
        entry=result.entry,
        superseded=result.metadata.get("superseded"),
        notices=result.notices,
    )
    return JSONResponse(response, headers=_etag(result.entry.rev))


@write_route("/documents", 404, 409, 410, 412, 501, 502, 507, required=("agent",))
async def documents(state: State, memory_scope: Scope, payload: schemas.DocumentBody) -> DocumentResult:
    """Add a document as passages with their places; one of the same name is compared with what is stored."""
    if payload.format is not None:
        check_choice(payload.format, "format", ("text", "markdown", "html"))
    return await add_document(
        state.store,
        payload.text.encode(),
        memory_scope,
        name=payload.name,
        format=payload.format,
        tags=payload.tags,
    )


@query_route("/recall", 502)
async def recall(state: State, memory_scope: Scope, payload: schemas.RecallBody) -> RecallResponse:
    """Return the memories that match a query best, each with the reasons."""
    filter = Filter() if payload.filter is None else Filter.new(_given_fields(payload.filter))
    fields: RecallFields = {
        "filter": filter,
        "max_tokens": payload.max_tokens,
        "min_relevance": payload.min_relevance,
    }
    if payload.at is not None:
        fields["at"] = payload.at
    result = await verbs.recall(state.store, payload.query, memory_scope, payload.limit, **fields)
    found = bool(result.hits or result.withheld)
    elsewhere = () if found else await _elsewhere(state.store, memory_scope)
    return RecallResponse(
        hits=result.hits,
        withheld=result.withheld,
        weak=result.weak,
        notices=(*result.notices, *elsewhere),
    )


async def _elsewhere(store: object, scope: Scope) -> tuple[str, ...]:
    """Return what an empty answer tells of the rest of its namespace, all of which the token may read."""
    if not isinstance(store, SupportsOwners) or scope == Scope(namespace=scope.namespace):
        return ()
    owners = await store.owners(Scope(namespace=scope.namespace))
    text = describe_elsewhere(owners, scope, "{name}={value}")
    return () if text is None else (text,)


@read_route("/entries")
async def entries(
    state: State,
    memory_scope: Scope,
    limit: PageLimit = 50,
    cursor: str | None = None,
    type: str | None = None,
    tag: str | None = None,
    key: str | None = None,
    min_confidence: Annotated[float, Meta(ge=0, le=1)] = 0.0,
    since: Timestamp = None,
    until: Timestamp = None,
    as_of: Timestamp = None,
    include_superseded: bool = False,
) -> Page:
    """List memories, newest first; the cursor of a page continues on the next one."""
    filter = Filter(
        types=() if type is None else (type,),
        tags=() if tag is None else (tag,),
        key=key,
        min_confidence=min_confidence,
        since=parse_timestamp(since, "since"),
        until=parse_timestamp(until, "until"),
        include_superseded=include_superseded,
    )
    store: SupportsQuery = require(state.store, SupportsQuery, "list memories")
    moment = parse_timestamp(as_of, "as_of")
    page = await store.query(
        Query(scope=memory_scope, filter=filter, limit=limit, cursor=cursor, as_of=moment)
    )
    return page if page.entries else page.replace(notices=await _elsewhere(state.store, memory_scope))


@read_route("/entry", 404, 410)
async def entry(state: State, memory_scope: Scope, id: str, as_of: Timestamp = None) -> JSONResponse[Entry]:
    """Return one memory, as it is or as it was; its revision is the ETag."""
    store: SupportsGet = require(state.store, SupportsGet, "find a memory by its id")
    entry = await store.get(id, memory_scope, as_of=parse_timestamp(as_of, "as_of"))
    return JSONResponse(entry, headers=_etag(entry.rev))


@read_route("/history", 404)
async def history(state: State, memory_scope: Scope, id: str) -> HistoryResponse:
    """List the versions of a memory, oldest first."""
    store: SupportsQuery = require(state.store, SupportsQuery, "tell what a memory was")
    return HistoryResponse(versions=tuple(await store.history(id, memory_scope)))


@write_route("/forget", 404, 409, 410, 412, 507, headers=("If-Match",))
async def forget(
    request: Request, state: State, memory_scope: Scope, payload: schemas.ForgetBody
) -> JSONResponse[Entry]:
    """Forget a memory, or replace it by another one; `restore` brings it back."""
    entry = await verbs.forget(
        state.store,
        payload.id,
        memory_scope,
        reason=payload.reason,
        replacement=payload.replacement,
        expected_rev=_expected_rev(request),
    )
    return JSONResponse(entry, headers=_etag(entry.rev))


@write_route("/restore", 404, 409, 410, 412, 507, headers=("If-Match",))
async def restore(
    request: Request, state: State, memory_scope: Scope, payload: schemas.RestoreBody
) -> JSONResponse[Entry]:
    """Bring a forgotten memory back."""
    entry = await verbs.reinstate(state.store, payload.id, memory_scope, expected_rev=_expected_rev(request))
    return JSONResponse(entry, headers=_etag(entry.rev))


@write_route("/pin", 404, 409, 410, 507)
async def pin(state: State, memory_scope: Scope, payload: schemas.PinBody) -> Entry:
    """Put a memory into every prompt of its agent."""
    return await verbs.pin(state.store, payload.id, memory_scope)


@write_route("/unpin", 404, 409, 410, 507)
async def unpin(state: State, memory_scope: Scope, payload: schemas.PinBody) -> Entry:
    """Take a memory out of every prompt; it stays stored."""
    return await verbs.unpin(state.store, payload.id, memory_scope)


@read_route("/pins")
async def pins(state: State, memory_scope: Scope) -> PinsResponse:
    """List the pinned memories of a scope, those of each agent and user the first pinned first."""
    return PinsResponse(entries=tuple(await verbs.pinned(state.store, memory_scope)))


@erase_route("/erase", 404, 410)
async def erase(state: State, memory_scope: Scope, payload: schemas.EraseBody) -> EraseReceipt:
    """Erase a memory, or with `everything` the whole scope, permanently.

    Several ids are erased all at once or not at all. The receipt names what could not be reached, such as
    backups.
    """
    if (payload.id is None) != payload.everything:
        raise Invalid("id", "is missing, or comes with everything", "name one memory, or say everything")
    return await verbs.erase(state.store, memory_scope, id=payload.id, reason=payload.reason)


@read_route("/changes")
async def changes(
    state: State, memory_scope: Scope, after: Annotated[int, Meta(ge=0)] = 0, limit: PageLimit = 100
) -> ChangesResponse:
    """List the changes of a scope after a sequence number, in commit order: ids, and no content."""
    store: SupportsFeed = require(state.store, SupportsFeed, "tell what changed")
    part = None if memory_scope == Scope(namespace=memory_scope.namespace) else memory_scope
    changes = await store.changes(memory_scope.namespace, after=after, limit=limit, scope=part)
    return ChangesResponse(changes=tuple(changes))


MEMORY_ENDPOINTS = [
    *(remember, documents, recall, entries, entry, history, forget, restore, pin, unpin, pins, erase, changes)
]


@read_route("/status")
async def status(
    request: Request,
    state: State,
    memory_scope: Scope,
    check: Annotated[bool, Meta(description="Whether to look if the store is sound.")] = False,
) -> StatusResponse:
    """Return statistics of the scope; with `check`, also the problems of an integrity check.

    What is about the whole store (its URL, its size, its damage, and a check) needs the right `admin` in all
    namespaces; others see the kind of the store.
    """
    store: SupportsQuery = require(state.store, SupportsQuery, "tell figures about itself")
    sees_store = await is_allowed(request, "admin", ALL_NAMESPACES)
    if check and not sees_store:
        raise HTTPException(403, "a check is of all namespaces; use a token with admin in '*'")
    stats = await store.stats(memory_scope)
    name = mask_url(str(state.store)).removeprefix("<store ").removesuffix(">")
    if not sees_store:
        stats = stats.replace(size_bytes=0, unchecked=0, set_aside=0)
        name = name.partition(":")[0]
    problems: tuple[str, ...] = ()
    if check and isinstance(state.store, AsyncStore):
        problems = tuple(await run_in_thread(state.store.sync.check))
    return StatusResponse(version=version("omoide"), store=name, stats=stats, problems=problems)


@read_route("/owners")
async def owners(state: State, memory_scope: Scope) -> OwnersResponse:
    """List the users, agents and projects that have memories in a scope, with their numbers."""
    store: SupportsOwners = require(state.store, SupportsOwners, "list who has memories")
    return OwnersResponse(owners=tuple(await store.owners(memory_scope)))


@read_route("/namespaces", scope=("namespace",))
async def namespaces(request: Request, state: State, memory_scope: Scope) -> NamespacesResponse:
    """List the namespaces with memories or documents that the token may read."""
    store: SupportsDocuments = require(state.store, SupportsDocuments, "list its namespaces")
    allowed = await allowed_namespaces(request, "read", await store.namespaces())
    return NamespacesResponse(namespaces=tuple(allowed))


STATUS_ENDPOINTS = [status, owners, namespaces]
