"""What does each verb ask of a service?

One function a verb, and each only says what is to be sent and what comes back. Who sends it, and whether
somebody waits, is another matter.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Filter, Scope
from omoide.core.frozen import freeze
from omoide.longterm.conflicts import Disagreement
from omoide.longterm.lineage import Provenance
from omoide.longterm.relations import Related, Relation
from omoide.longterm.upkeep import PruneReport, ReviewReport
from omoide.promotion.plan import PromotionRun
from omoide.service import schemas
from omoide.service.agents import AgentInfo, AgentMatch
from omoide.sessions.context import SessionContext
from omoide.stores.records import Change, EraseReceipt, Page, Version
from omoide.turns.preview import Preflight

T = TypeVar("T")
V = TypeVar("V")

DEFAULT_SCOPE = Scope()


class ServiceRequest(Generic[T]):
    """One request: where it goes, what it carries, and how its answer is read."""

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
        self.query = _without_none(_scope_query(scope) | dict(query or {}))
        self.body = (
            None
            if body is None
            else {name: _to_json_value(value) for name, value in _without_none(body).items()}
        )
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
    **fields: Any,
) -> ServiceRequest[schemas.RememberResponse]:
    """Keep a memory. Fields are those of `Entry`, and `supersedes` and `dedupe`."""
    return ServiceRequest(
        "remember",
        scope,
        _decode_as(schemas.RememberResponse),
        body={"content": content, **fields},
        expected_rev=expected_rev,
        idempotency_key=idempotency_key,
    )


def recall(
    query: str,
    scope: Scope,
    limit: int = 5,
    *,
    filter: Filter | None = None,
    max_tokens: int | None = None,
    **narrowing: Any,
) -> ServiceRequest[schemas.RecallResponse]:
    """The memories that answer a question best. What narrows it are fields of `Filter`."""
    wanted = narrowing if filter is None else _filter_fields(filter) | narrowing
    body = {"query": query, "limit": limit, "filter": wanted or None, "max_tokens": max_tokens}
    return ServiceRequest("recall", scope, _decode_as(schemas.RecallResponse), body=body)


def forget(
    id: str,
    scope: Scope,
    *,
    reason: str | None = None,
    replacement: str | None = None,
    expected_rev: int | None = None,
) -> ServiceRequest[Entry]:
    """Forget a memory, or replace it by another; `restore` brings it back."""
    body = {"id": id, "reason": reason, "replacement": replacement}
    return ServiceRequest("forget", scope, _decode_as(Entry), body=body, expected_rev=expected_rev)


def reinstate(id: str, scope: Scope, *, expected_rev: int | None = None) -> ServiceRequest[Entry]:
    """Bring a forgotten memory back."""
    return ServiceRequest("restore", scope, _decode_as(Entry), body={"id": id}, expected_rev=expected_rev)


def erase(scope: Scope, *, id: str | None = None, reason: str | None = None) -> ServiceRequest[EraseReceipt]:
    """Remove a memory, or everything in the scope, for good; the receipt says what could not be reached."""
    body = {"id": id, "everything": id is None, "reason": reason}
    return ServiceRequest("erase", scope, _decode_as(EraseReceipt), body=body)


def get(id: str, scope: Scope, *, as_of: int | None = None) -> ServiceRequest[Entry]:
    """One memory, now or as it was."""
    return ServiceRequest("entry", scope, _decode_as(Entry), query={"id": id, "as_of": as_of})


def page(
    scope: Scope, *, cursor: str | None = None, limit: int = 200, **narrowing: Any
) -> ServiceRequest[Page]:
    """Some memories, newest first, and the cursor with which the next ones are asked for."""
    return ServiceRequest(
        "entries", scope, _decode_as(Page), query={"cursor": cursor, "limit": limit, **narrowing}
    )


def history(id: str, scope: Scope) -> ServiceRequest[tuple[Version, ...]]:
    """The versions of a memory, oldest first."""
    return ServiceRequest(
        "history",
        scope,
        _decode_part(schemas.HistoryResponse, lambda found: found.versions),
        query={"id": id},
    )


def changes(
    scope: Scope = DEFAULT_SCOPE, *, after: int = 0, limit: int = 100
) -> ServiceRequest[tuple[Change, ...]]:
    """What changed in a namespace after a number."""
    query = {"after": after, "limit": limit}
    return ServiceRequest(
        "changes", scope, _decode_part(schemas.ChangesResponse, lambda found: found.changes), query=query
    )


def events(scope: Scope = DEFAULT_SCOPE, *, after: int = 0) -> ServiceRequest[Change]:
    """What changes in a namespace, as it happens; each change is read by itself."""
    return ServiceRequest("events", scope, _decode_as(Change), query={"after": after})


def relate(source: str, relation: str, target: str, scope: Scope) -> ServiceRequest[Relation]:
    """Say how one memory is related to another."""
    return ServiceRequest(
        "relate", scope, _decode_as(Relation), body={"source": source, "relation": relation, "target": target}
    )


def related(
    id: str, scope: Scope, relation: str | None = None, *, depth: int = 1, limit: int = 100
) -> ServiceRequest[tuple[Related, ...]]:
    """What a memory is related to, nearest first."""
    query = {"id": id, "relation": relation, "depth": depth, "limit": limit}
    return ServiceRequest(
        "related", scope, _decode_part(schemas.RelatedResponse, lambda found: found.related), query=query
    )


def provenance(id: str, scope: Scope) -> ServiceRequest[Provenance]:
    """Where a memory comes from, back to what was said."""
    return ServiceRequest("provenance", scope, _decode_as(Provenance), query={"id": id})


def conflicts(scope: Scope, *, limit: int = 100) -> ServiceRequest[tuple[Disagreement, ...]]:
    """Memories that cannot be true together."""
    return ServiceRequest(
        "conflicts",
        scope,
        _decode_part(schemas.ConflictsResponse, lambda found: found.conflicts),
        query={"limit": limit},
    )


def review(scope: Scope, *, limit: int = 50) -> ServiceRequest[ReviewReport]:
    """What contradicts, what no longer holds, what is not known, and what will soon expire."""
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
    """Find memories that are old, unsure or unused; with `dry_run` false they are forgotten."""
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
    """What a query in SPARQL finds in the scope, as an `Answer`."""
    body = {"query": query, "bindings": bindings, "limit": limit, "timeout": timeout}
    return ServiceRequest("sparql", scope, _decode_sparql, body=body)


def sessions(scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[tuple[schemas.SessionInfo, ...]]:
    """The sessions of a namespace, the one that was used last first."""
    return ServiceRequest(
        "sessions", scope, _decode_part(schemas.SessionsResponse, lambda found: found.sessions)
    )


def transcript(id: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[schemas.TranscriptResponse]:
    """What was said in a session."""
    return ServiceRequest("transcript", scope, _decode_as(schemas.TranscriptResponse), query={"id": id})


def context(
    id: str, scope: Scope = DEFAULT_SCOPE, *, hint: str | None = None, budget: int = 32_000
) -> ServiceRequest[SessionContext]:
    """What a model should know about a session, in so many tokens."""
    return ServiceRequest(
        "context", scope, _decode_as(SessionContext), query={"id": id, "hint": hint, "budget": budget}
    )


def promote(
    session: str, scope: Scope = DEFAULT_SCOPE, *, dry_run: bool = True, threshold: float | None = None
) -> ServiceRequest[schemas.PromotionResponse]:
    """Show what of a session would become lasting memory; with `dry_run` false it becomes it."""
    body = {"session": session, "dry_run": dry_run, "threshold": threshold}
    return ServiceRequest("promote", scope, _decode_as(schemas.PromotionResponse), body=body)


def undo_promotion(
    session: str, scope: Scope = DEFAULT_SCOPE, *, run: str | None = None
) -> ServiceRequest[PromotionRun]:
    """Take the last promotion of a session back, or the one that is named."""
    return ServiceRequest(
        "undo-promotion", scope, _decode_as(PromotionRun), body={"session": session, "run": run}
    )


def preflight(session: str, message: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[Preflight]:
    """What a model would be sent in a session; no model is asked."""
    return ServiceRequest(
        "preflight", scope, _decode_as(Preflight), body={"session": session, "message": message}
    )


def agents(scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[tuple[AgentInfo, ...]]:
    """Everybody who rests in a namespace."""
    return ServiceRequest("agents", scope, _decode_part(schemas.AgentsResponse, lambda found: found.agents))


def identity(id: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[AgentInfo]:
    """What an agent shows of itself."""
    return ServiceRequest("identity", scope, _decode_as(AgentInfo), query={"id": id})


def spaces(id: str, scope: Scope = DEFAULT_SCOPE) -> ServiceRequest[dict[str, schemas.SpaceInfo]]:
    """What an agent believes and wants, by the names of the spaces."""
    named = _decode_part(schemas.SpacesResponse, lambda found: {space.name: space for space in found.spaces})
    return ServiceRequest("spaces", scope, named, query={"id": id})


def who_can(
    action: str | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, float] | None = None,
    scope: Scope = DEFAULT_SCOPE,
) -> ServiceRequest[tuple[AgentMatch, ...]]:
    """Who of those at rest can do something, best first."""
    body = {"action": action, "tags": tuple(tags), "limits": limits}
    return ServiceRequest(
        "who-can", scope, _decode_part(schemas.WhoCanResponse, lambda found: found.choices), body=body
    )


def status(scope: Scope = DEFAULT_SCOPE, *, check: bool = False) -> ServiceRequest[schemas.StatusResponse]:
    """How much a scope holds, and with `check` whether the store is sound."""
    return ServiceRequest("status", scope, _decode_as(schemas.StatusResponse), query={"check": check})


def _scope_query(scope: Scope) -> dict[str, Any]:
    return {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "session": scope.session_id,
        "project": scope.project_id,
    }


def _without_none(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _filter_fields(filter: Filter) -> dict[str, Any]:
    """What a filter says beyond what is usual."""
    usual = Filter()
    names = Filter.__struct_fields__
    return {name: getattr(filter, name) for name in names if getattr(filter, name) != getattr(usual, name)}


def _to_json_value(value: Any) -> Any:
    """A value as it is sent: in the words of the codec, which the service reads with the same codec."""
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

    found = read_results(data, limit=len(data))
    return msgspec.structs.replace(found, truncated="omoide-truncated" in headers)
