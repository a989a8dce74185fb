"""Build the request of each verb of the client.

One function per route; it describes what is sent and how the response is parsed, and sends nothing itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date
from typing import Any, Generic, TypedDict, TypeVar, Unpack

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Filter, Scope
from omoide.core.frozen import freeze
from omoide.documents.writer import DocumentResult
from omoide.longterm.conflicts import Disagreement
from omoide.longterm.lineage import Provenance
from omoide.longterm.relations import Related, Relation
from omoide.longterm.upkeep import PruneReport, ReviewReport
from omoide.promotion.plan import PromotionRun
from omoide.service import schemas
from omoide.service.agents import AgentInfo, AgentMatch
from omoide.sessions.context import SessionContext
from omoide.stores.records import Change, EraseReceipt, Owner, Page, Version
from omoide.turns.preview import Preflight
from omoide.verbs import FilterFields, MemoryFields, with_about

T = TypeVar("T")
V = TypeVar("V")

DEFAULT_SCOPE = Scope()


class PageFields(TypedDict, total=False):
    """Query parameters of a page of memories."""

    type: str | None
    tag: str | None
    key: str | None
    min_confidence: float
    since: clock.Time | None
    until: clock.Time | None
    as_of: clock.Time | None
    include_superseded: bool


class ServiceRequest(Generic[T]):
    """Path, query, headers and body of a request, and the parser of its response."""

    __slots__ = ("body", "headers", "parse", "path", "query")

    def __init__(
        self,
        path: str,
        scope: Scope,
        parse: Callable[[bytes, Mapping[str, str]], T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        expected_rev: int | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        self.path = f"/v1/{path}"
        self.parse = parse
        self.query = _without_none(schemas.scope_fields(scope) | _with_plain_times(query or {}))
        self.body: dict[str, Any] | None = None
        if body is not None:
            self.body = {
                name: _to_json_value(value) for name, value in _with_plain_times(_without_none(body)).items()
            }
        headers = {
            "If-Match": None if expected_rev is None else f'"{expected_rev}"',
            "Idempotency-Key": idempotency_key,
        }
        self.headers: dict[str, str] = _without_none(headers)


def remember(
    content: str,
    scope: Scope,
    *,
    expected_rev: int | None = None,
    idempotency_key: str | None = None,
    **options: Unpack[MemoryFields],
) -> ServiceRequest[schemas.RememberResponse]:
    """Store a memory.

    Args:
        content: the text.
        scope: owner of the memory; it must name an agent.
        expected_rev: revision that is stored now; `Conflict` if it is another one.
        idempotency_key: a repeated request with the same key is applied once.
        options: fields of `Entry`, and `supersedes` and `dedupe`.
    """
    return ServiceRequest(
        "remember",
        scope,
        _decode_as(schemas.RememberResponse),
        body={"content": content, **with_about(options)},
        expected_rev=expected_rev,
        idempotency_key=idempotency_key,
    )


def add_document(
    name: str, text: str, scope: Scope, *, format: str | None = None, tags: Iterable[str] = ()
) -> ServiceRequest[DocumentResult]:
    """Add the text of a document as passages; `format` is `text`, `markdown` or `html`."""
    body = {"name": name, "text": text, "format": format, "tags": tuple(tags)}
    return ServiceRequest("documents", scope, _decode_as(DocumentResult), body=body)


def recall(
    query: str,
    scope: Scope,
    limit: int = 5,
    *,
    filter: Filter | None = None,
    max_tokens: int | None = None,
    min_relevance: float | None = None,
    at: clock.Time | None = None,
    **options: Unpack[FilterFields],
) -> ServiceRequest[schemas.RecallResponse]:
    """Return the memories that match a query best; `options` are fields of `Filter`."""
    fields = {**({} if filter is None else _filter_fields(filter)), **_with_plain_times(with_about(options))}
    body = {
        "query": query,
        "limit": limit,
        "filter": fields or None,
        "max_tokens": max_tokens,
        "min_relevance": min_relevance,
        "at": at,
    }
    return ServiceRequest("recall", scope, _decode_as(schemas.RecallResponse), body=body)


def forget(
    id: str,
    scope: Scope,
    *,
    reason: str | None = None,
    replacement: str | None = None,
    expected_rev: int | None = None,
) -> ServiceRequest[Entry]:
    """Forget a memory, or replace it by another one; `reinstate` brings it back."""
    body = {"id": id, "reason": reason, "replacement": replacement}
    return ServiceRequest("forget", scope, _decode_as(Entry), body=body, expected_rev=expected_rev)


def reinstate(id: str, scope: Scope, *, expected_rev: int | None = None) -> ServiceRequest[Entry]:
    """Bring a forgotten memory back."""
    return ServiceRequest("restore", scope, _decode_as(Entry), body={"id": id}, expected_rev=expected_rev)


def pin(id: str, scope: Scope) -> ServiceRequest[Entry]:
    """Put a memory into every prompt of its agent."""
    return ServiceRequest("pin", scope, _decode_as(Entry), body={"id": id})


def unpin(id: str, scope: Scope) -> ServiceRequest[Entry]:
    """Take a memory out of every prompt; it stays stored."""
    return ServiceRequest("unpin", scope, _decode_as(Entry), body={"id": id})


def pinned(scope: Scope) -> ServiceRequest[tuple[Entry, ...]]:
    """Return the pinned memories of a scope, those of each agent and user the first pinned first."""
    return ServiceRequest("pins", scope, _decode_part(schemas.PinsResponse, lambda body: body.entries))


def erase(
    scope: Scope, *, id: str | Sequence[str] | None = None, reason: str | None = None
) -> ServiceRequest[EraseReceipt]:
    """Erase a memory, or everything in the scope, permanently.

    Several ids are erased all at once or not at all. The receipt names what could not be reached, such as
    backups.
    """
    chosen = id if id is None or isinstance(id, str) else list(id)
    body = {"id": chosen, "everything": id is None, "reason": reason}
    return ServiceRequest("erase", scope, _decode_as(EraseReceipt), body=body)


def erase_user(
    user_id: str, *, namespace: str = DEFAULT_NAMESPACE, reason: str | None = None
) -> ServiceRequest[EraseReceipt]:
    """Erase all that a namespace holds of a user permanently: of every agent, session and project."""
    return erase(Scope(namespace=namespace, user_id=ids.check(user_id, "user_id")), reason=reason)


def get(id: str, scope: Scope, *, as_of: clock.Time | None = None) -> ServiceRequest[Entry]:
    """Return one memory, as it is or as it was at a time."""
    return ServiceRequest("entry", scope, _decode_as(Entry), query={"id": id, "as_of": as_of})


def page(
    scope: Scope, *, cursor: str | None = None, limit: int = 200, **filters: Unpack[PageFields]
) -> ServiceRequest[Page]:
    """Return a page of memories, newest first, with the cursor of the next page."""
    return ServiceRequest(
        "entries", scope, _decode_as(Page), query={"cursor": cursor, "limit": limit, **filters}
    )


def history(id: str, scope: Scope) -> ServiceRequest[tuple[Version, ...]]:
    """Return the versions of a memory, oldest first."""
    return ServiceRequest(
        "history", scope, _decode_part(schemas.HistoryResponse, lambda body: body.versions), query={"id": id}
    )


def changes(
    scope: Scope = DEFAULT_SCOPE, *, after: int = 0, limit: int = 100
) -> ServiceRequest[tuple[Change, ...]]:
    """Return the changes of a namespace after a sequence number."""
    query = {"after": after, "limit": limit}
    return ServiceRequest(
        "changes", scope, _decode_part(schemas.ChangesResponse, lambda body: body.changes), query=query
    )


def events(scope: Scope = DEFAULT_SCOPE, *, after: int = 0) -> ServiceRequest[Change]:
    """Stream the changes of a namespace; each event is parsed on its own."""
    return ServiceRequest("events", scope, _decode_as(Change), query={"after": after})


def relate(source: str, relation: str, target: str, scope: Scope) -> ServiceRequest[Relation]:
    """Relate one memory to another."""
    return ServiceRequest(
        "relate", scope, _decode_as(Relation), body={"source": source, "relation": relation, "target": target}
    )


def related(
    id: str, scope: Scope, relation: str | None = None, *, depth: int = 1, limit: int = 100
) -> ServiceRequest[tuple[Related, ...]]:
    """Return the memories that one is related to, nearest first."""
    query = {"id": id, "relation": relation, "depth": depth, "limit": limit}
    return ServiceRequest(
        "related", scope, _decode_part(schemas.RelatedResponse, lambda body: body.related), query=query
    )


def provenance(id: str, scope: Scope) -> ServiceRequest[Provenance]:
    """Return the provenance of a memory."""
    return ServiceRequest("provenance", scope, _decode_as(Provenance), query={"id": id})


def conflicts(scope: Scope, *, limit: int = 100) -> ServiceRequest[tuple[Disagreement, ...]]:
    """Return the pairs of memories that contradict each other."""
    return ServiceRequest(
        "conflicts",
        scope,
        _decode_part(schemas.ConflictsResponse, lambda body: body.conflicts),
        query={"limit": limit},
    )


def review(scope: Scope, *, limit: int = 50) -> ServiceRequest[ReviewReport]:
    """Return conflicts, stale memories, open questions, and memories that expire soon."""
    return ServiceRequest("review", scope, _decode_as(ReviewReport), query={"limit": limit})


def prune(
    scope: Scope,
    *,
    older_than_ms: int | None = None,
    max_confidence: float | None = None,
    max_access: int | None = None,
    types: Iterable[str] = (),
    limit: int = 1_000,
    dry_run: bool = True,
) -> ServiceRequest[PruneReport]:
    """Find old, low-confidence or unused memories; forget them unless `dry_run`."""
    body = {
        "older_than_ms": older_than_ms,
        "max_confidence": max_confidence,
        "max_access": max_access,
        "types": tuple(types),
        "limit": limit,
        "dry_run": dry_run,
    }
    return ServiceRequest("prune", scope, _decode_as(PruneReport), body=body)


def sparql(
    query: str,
    scope: Scope,
    *,
    bindings: Mapping[str, Any] | None = None,
    limit: int = 1_000,
    timeout: float = 10.0,
) -> ServiceRequest[Any]:
    """Run a SPARQL query over the scope; returns a result of `omoide.graph`."""
    body = {"query": query, "bindings": bindings, "limit": limit, "timeout": timeout}
    return ServiceRequest("sparql", scope, _decode_sparql, body=body)


def sessions(scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[tuple[schemas.SessionInfo, ...]]:
    """Return the sessions of a namespace, last used first."""
    return ServiceRequest(
        "sessions", scope, _decode_part(schemas.SessionsResponse, lambda body: body.sessions)
    )


def transcript(id: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[schemas.TranscriptResponse]:
    """Return a session with the entries of its thread."""
    return ServiceRequest("transcript", scope, _decode_as(schemas.TranscriptResponse), query={"id": id})


def context(
    id: str, scope: Scope = DEFAULT_SCOPE, *, hint: str | None = None, budget: int = 32_000
) -> ServiceRequest[SessionContext]:
    """Assemble the context of a session for a model, within a token budget."""
    return ServiceRequest(
        "context", scope, _decode_as(SessionContext), query={"id": id, "hint": hint, "budget": budget}
    )


def promote(
    session: str, scope: Scope = DEFAULT_SCOPE, *, dry_run: bool = True, threshold: float | None = None
) -> ServiceRequest[schemas.PromotionResponse]:
    """Plan which short-term memory of a session becomes long-term memory; apply it unless `dry_run`."""
    body = {"session": session, "dry_run": dry_run, "threshold": threshold}
    return ServiceRequest("promote", scope, _decode_as(schemas.PromotionResponse), body=body)


def undo_promotion(
    session: str, scope: Scope = DEFAULT_SCOPE, *, run: str | None = None
) -> ServiceRequest[PromotionRun]:
    """Undo a promotion of a session: the named run, or the last one."""
    return ServiceRequest(
        "undo-promotion", scope, _decode_as(PromotionRun), body={"session": session, "run": run}
    )


def preflight(session: str, message: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[Preflight]:
    """Return what a model would be sent in a session, without calling it."""
    return ServiceRequest(
        "preflight", scope, _decode_as(Preflight), body={"session": session, "message": message}
    )


def agents(scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[tuple[AgentInfo, ...]]:
    """Return the hibernated agents of a namespace."""
    return ServiceRequest("agents", scope, _decode_part(schemas.AgentsResponse, lambda body: body.agents))


def identity(id: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[AgentInfo]:
    """Return the public description of an agent."""
    return ServiceRequest("identity", scope, _decode_as(AgentInfo), query={"id": id})


def spaces(id: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[dict[str, schemas.SpaceInfo]]:
    """Return the spaces of an agent's memory by name."""
    parse = _decode_part(schemas.SpacesResponse, lambda body: {space.name: space for space in body.spaces})
    return ServiceRequest("spaces", scope, parse, query={"id": id})


def who_can(
    action: str | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, float] | None = None,
    scope: Scope = DEFAULT_SCOPE,
    *,
    io: Mapping[str, bool | str] | None = None,
) -> ServiceRequest[tuple[AgentMatch, ...]]:
    """Return the hibernated agents that can do an action, best first."""
    body = {"action": action, "tags": tuple(tags), "limits": limits, "io": io}
    return ServiceRequest(
        "who-can", scope, _decode_part(schemas.WhoCanResponse, lambda body: body.choices), body=body
    )


def status(scope: Scope = DEFAULT_SCOPE, *, check: bool = False) -> ServiceRequest[schemas.StatusResponse]:
    """Return statistics of a scope; with `check`, the problems of the store as well."""
    return ServiceRequest("status", scope, _decode_as(schemas.StatusResponse), query={"check": check})


def owners(scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[tuple[Owner, ...]]:
    """Return the users, agents and projects that have memories in a scope, with their numbers."""
    return ServiceRequest("owners", scope, _decode_part(schemas.OwnersResponse, lambda body: body.owners))


def namespaces(namespace: str = DEFAULT_NAMESPACE) -> ServiceRequest[tuple[str, ...]]:
    """Return the namespaces that the token may read; `namespace` names one of them."""
    parse = _decode_part(schemas.NamespacesResponse, lambda body: body.namespaces)
    return ServiceRequest("namespaces", Scope(namespace=namespace), parse)


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _filter_fields(filter: Filter) -> dict[str, Any]:
    """Return the fields of a filter that differ from the default."""
    default = Filter()
    names = Filter.__struct_fields__
    return {name: getattr(filter, name) for name in names if getattr(filter, name) != getattr(default, name)}


def _with_plain_times(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields whose dates and times are ISO text."""
    return {name: value.isoformat() if isinstance(value, date) else value for name, value in fields.items()}


def _to_json_value(value: Any) -> Any:
    """Return a value as JSON data, encoded by the codec that the service decodes with."""
    if isinstance(value, msgspec.Struct):
        return codec.to_builtins(value)
    if isinstance(value, (list, tuple)):
        return [_to_json_value(item) for item in value]
    return codec.dump(freeze(value))


def _decode_as(kind: type[T]) -> Callable[[bytes, Mapping[str, str]], T]:
    return lambda data, headers: codec.decode(data, kind)


def _decode_part(kind: type[V], part: Callable[[V], T]) -> Callable[[bytes, Mapping[str, str]], T]:
    return lambda data, headers: part(codec.decode(data, kind))


def _decode_sparql(data: bytes, headers: Mapping[str, str]) -> Any:
    from omoide.graph.results import read_results

    result = read_results(data, limit=len(data))
    return msgspec.structs.replace(result, truncated="omoide-truncated" in headers)
