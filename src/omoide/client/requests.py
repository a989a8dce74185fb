"""What does each verb ask of a service?

One function a verb, and each only says what is to be sent and what comes back. Who sends it, and whether
somebody waits, is another matter.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

import msgspec

from omoide.core import codec
from omoide.core.entry import Entry, Scope
from omoide.core.frozen import freeze
from omoide.core.requests import Filter
from omoide.longterm.conflicts import Disagreement
from omoide.longterm.lineage import Provenance
from omoide.longterm.relations import Related, Relation
from omoide.longterm.upkeep import PruneReport, ReviewReport
from omoide.promotion.plan import Run
from omoide.service import schemas
from omoide.service.agents import Card, Choice
from omoide.sessions.context import Context
from omoide.stores.records import Change, EraseReceipt, Page, Version
from omoide.turns.preview import Preflight

T = TypeVar("T")
V = TypeVar("V")

EVERYWHERE = Scope()


class Ask(Generic[T]):
    """One request: where it goes, what it carries, and how its answer is read."""

    __slots__ = ("body", "headers", "path", "query", "read")

    def __init__(
        self,
        path: str,
        scope: Scope,
        read: Callable[[bytes, Mapping[str, str]], T],
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        expected_rev: int | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        self.path = f"/v1/{path}"
        self.read = read
        self.query = _given(_whose(scope) | dict(query or {}))
        self.body = None if body is None else {name: _plain(value) for name, value in _given(body).items()}
        headers = {
            "If-Match": None if expected_rev is None else f'"{expected_rev}"',
            "Idempotency-Key": idempotency_key,
        }
        self.headers: dict[str, str] = _given(headers)


def remember(
    content: str,
    scope: Scope,
    *,
    expected_rev: int | None = None,
    idempotency_key: str | None = None,
    **fields: Any,
) -> Ask[schemas.Receipt]:
    """Keep a memory. Fields are those of `Entry`, and `supersedes` and `dedupe`."""
    return Ask(
        "remember",
        scope,
        _value(schemas.Receipt),
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
) -> Ask[schemas.Recalled]:
    """The memories that answer a question best. What narrows it are fields of `Filter`."""
    wanted = narrowing if filter is None else _said(filter) | narrowing
    body = {"query": query, "limit": limit, "filter": wanted or None, "max_tokens": max_tokens}
    return Ask("recall", scope, _value(schemas.Recalled), body=body)


def forget(
    id: str,
    scope: Scope,
    *,
    reason: str | None = None,
    replacement: str | None = None,
    expected_rev: int | None = None,
) -> Ask[Entry]:
    """Forget a memory, or replace it by another; `restore` brings it back."""
    body = {"id": id, "reason": reason, "replacement": replacement}
    return Ask("forget", scope, _value(Entry), body=body, expected_rev=expected_rev)


def restore(id: str, scope: Scope, *, expected_rev: int | None = None) -> Ask[Entry]:
    """Bring a forgotten memory back."""
    return Ask("restore", scope, _value(Entry), body={"id": id}, expected_rev=expected_rev)


def erase(scope: Scope, *, id: str | None = None, reason: str | None = None) -> Ask[EraseReceipt]:
    """Remove a memory, or everything in the scope, for good; the receipt says what could not be reached."""
    body = {"id": id, "everything": id is None, "reason": reason}
    return Ask("erase", scope, _value(EraseReceipt), body=body)


def get(id: str, scope: Scope, *, as_of: int | None = None) -> Ask[Entry]:
    """One memory, now or as it was."""
    return Ask("entry", scope, _value(Entry), query={"id": id, "as_of": as_of})


def page(scope: Scope, *, cursor: str | None = None, limit: int = 200, **narrowing: Any) -> Ask[Page]:
    """Some memories, newest first, and the cursor with which the next ones are asked for."""
    return Ask("entries", scope, _value(Page), query={"cursor": cursor, "limit": limit, **narrowing})


def history(id: str, scope: Scope) -> Ask[tuple[Version, ...]]:
    """The versions of a memory, oldest first."""
    return Ask("history", scope, _of(schemas.Versions, lambda found: found.versions), query={"id": id})


def changes(scope: Scope = EVERYWHERE, *, after: int = 0, limit: int = 100) -> Ask[tuple[Change, ...]]:
    """What changed in a namespace after a number."""
    query = {"after": after, "limit": limit}
    return Ask("changes", scope, _of(schemas.Changes, lambda found: found.changes), query=query)


def events(scope: Scope = EVERYWHERE, *, after: int = 0) -> Ask[Change]:
    """What changes in a namespace, as it happens; each change is read by itself."""
    return Ask("events", scope, _value(Change), query={"after": after})


def relate(source: str, relation: str, target: str, scope: Scope) -> Ask[Relation]:
    """Say how one memory is related to another."""
    return Ask(
        "relate", scope, _value(Relation), body={"source": source, "relation": relation, "target": target}
    )


def related(
    id: str, scope: Scope, relation: str | None = None, *, depth: int = 1, limit: int = 100
) -> Ask[tuple[Related, ...]]:
    """What a memory is related to, nearest first."""
    query = {"id": id, "relation": relation, "depth": depth, "limit": limit}
    return Ask("related", scope, _of(schemas.Relatives, lambda found: found.related), query=query)


def provenance(id: str, scope: Scope) -> Ask[Provenance]:
    """Where a memory comes from, back to what was said."""
    return Ask("provenance", scope, _value(Provenance), query={"id": id})


def conflicts(scope: Scope, *, limit: int = 100) -> Ask[tuple[Disagreement, ...]]:
    """Memories that cannot be true together."""
    return Ask(
        "conflicts", scope, _of(schemas.Conflicts, lambda found: found.conflicts), query={"limit": limit}
    )


def review(scope: Scope, *, limit: int = 50) -> Ask[ReviewReport]:
    """What contradicts, what no longer holds, what is not known, and what will soon expire."""
    return Ask("review", scope, _value(ReviewReport), query={"limit": limit})


def prune(
    scope: Scope,
    *,
    older_than_ms: int | None = None,
    max_confidence: float | None = None,
    max_access: int | None = None,
    types: Iterable[str] = (),
    limit: int = 1_000,
    dry_run: bool = True,
) -> Ask[PruneReport]:
    """Find memories that are old, unsure or unused; with `dry_run` false they are forgotten."""
    body = {
        "older_than_ms": older_than_ms,
        "max_confidence": max_confidence,
        "max_access": max_access,
        "types": tuple(types),
        "limit": limit,
        "dry_run": dry_run,
    }
    return Ask("prune", scope, _value(PruneReport), body=body)


def sparql(
    query: str,
    scope: Scope,
    *,
    bindings: Mapping[str, Any] | None = None,
    limit: int = 1_000,
    timeout: float = 10.0,
) -> Ask[Any]:
    """What a query in SPARQL finds in the scope, as an `Answer`."""
    body = {"query": query, "bindings": bindings, "limit": limit, "timeout": timeout}
    return Ask("sparql", scope, _answer, body=body)


def sessions(scope: Scope = EVERYWHERE) -> Ask[tuple[schemas.Conversation, ...]]:
    """The sessions of a namespace, the one that was used last first."""
    return Ask("sessions", scope, _of(schemas.Conversations, lambda found: found.sessions))


def transcript(id: str, scope: Scope = EVERYWHERE) -> Ask[schemas.Transcript]:
    """What was said in a session."""
    return Ask("transcript", scope, _value(schemas.Transcript), query={"id": id})


def context(
    id: str, scope: Scope = EVERYWHERE, *, hint: str | None = None, budget: int = 32_000
) -> Ask[Context]:
    """What a model should know about a session, in so many tokens."""
    return Ask("context", scope, _value(Context), query={"id": id, "hint": hint, "budget": budget})


def promote(
    session: str, scope: Scope = EVERYWHERE, *, dry_run: bool = True, threshold: float | None = None
) -> Ask[schemas.Promoted]:
    """Show what of a session would become lasting memory; with `dry_run` false it becomes it."""
    body = {"session": session, "dry_run": dry_run, "threshold": threshold}
    return Ask("promote", scope, _value(schemas.Promoted), body=body)


def undo_promotion(session: str, scope: Scope = EVERYWHERE, *, run: str | None = None) -> Ask[Run]:
    """Take the last promotion of a session back, or the one that is named."""
    return Ask("undo-promotion", scope, _value(Run), body={"session": session, "run": run})


def preflight(session: str, message: str, scope: Scope = EVERYWHERE) -> Ask[Preflight]:
    """What a model would be sent in a session; no model is asked."""
    return Ask("preflight", scope, _value(Preflight), body={"session": session, "message": message})


def agents(scope: Scope = EVERYWHERE) -> Ask[tuple[Card, ...]]:
    """Everybody who rests in a namespace."""
    return Ask("agents", scope, _of(schemas.Agents, lambda found: found.agents))


def identity(id: str, scope: Scope = EVERYWHERE) -> Ask[Card]:
    """What an agent shows of itself."""
    return Ask("identity", scope, _value(Card), query={"id": id})


def spaces(id: str, scope: Scope = EVERYWHERE) -> Ask[dict[str, schemas.Partition]]:
    """What an agent believes and wants, by the names of the spaces."""
    named = _of(schemas.Partitions, lambda found: {space.name: space for space in found.spaces})
    return Ask("spaces", scope, named, query={"id": id})


def who_can(
    action: str | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, float] | None = None,
    scope: Scope = EVERYWHERE,
) -> Ask[tuple[Choice, ...]]:
    """Who of those at rest can do something, best first."""
    body = {"action": action, "tags": tuple(tags), "limits": limits}
    return Ask("who-can", scope, _of(schemas.Choices, lambda found: found.choices), body=body)


def status(scope: Scope = EVERYWHERE, *, check: bool = False) -> Ask[schemas.Status]:
    """How much a scope holds, and with `check` whether the store is sound."""
    return Ask("status", scope, _value(schemas.Status), query={"check": check})


def _whose(scope: Scope) -> dict[str, Any]:
    return {
        "namespace": scope.namespace,
        "agent": scope.agent_id,
        "session": scope.session_id,
        "project": scope.project_id,
    }


def _given(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _said(filter: Filter) -> dict[str, Any]:
    """What a filter says beyond what is usual."""
    usual = Filter()
    names = Filter.__struct_fields__
    return {name: getattr(filter, name) for name in names if getattr(filter, name) != getattr(usual, name)}


def _plain(value: Any) -> Any:
    """A value as it is sent: in the words of the codec, which the service reads with the same codec."""
    if isinstance(value, msgspec.Struct):
        return codec.to_builtins(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return codec.dump(freeze(value))


def _value(kind: type[T]) -> Callable[[bytes, Mapping[str, str]], T]:
    return lambda data, headers: codec.decode(data, kind)


def _of(kind: type[V], part: Callable[[V], T]) -> Callable[[bytes, Mapping[str, str]], T]:
    return lambda data, headers: part(codec.decode(data, kind))


def _answer(data: bytes, headers: Mapping[str, str]) -> Any:
    from omoide.graph.results import read_results

    found = read_results(data, limit=len(data))
    return msgspec.structs.replace(found, truncated="omoide-truncated" in headers)
