"""How does a program remember, recall and forget?

A few verbs over any store. `omoide.blocking` has the same ones for programs without an event loop.

"""

from __future__ import annotations

from typing import Any

from omoide.core.entry import Entry, Scope
from omoide.core.requests import Filter, RecallRequest, RecallResult, WriteRequest, WriteResult
from omoide.core.value import check_instance
from omoide.errors import Invalid
from omoide.stores.protocols import Erases, Store, Supersedes
from omoide.stores.records import EraseReceipt

__all__ = ["erase", "forget", "recall", "remember", "restore"]

_OF_WRITES = frozenset({"expected_rev", "idempotency_key", "dedupe", "supersedes"})
_OF_FILTERS = frozenset(Filter.__struct_fields__)


async def remember(store: Store, content: str, scope: Scope, **fields: Any) -> WriteResult:
    """Keep a memory. Fields are those of `Entry`, and of `WriteRequest` (`supersedes`, `expected_rev` …).

    What the scope holds already, word by word, is not kept twice: the receipt then says `duplicate_of`.
    """
    return await store.write(remembering(content, scope, fields))


async def recall(store: Store, query: str, scope: Scope, limit: int = 5, **fields: Any) -> RecallResult:
    """The memories that answer a question best. Fields are those of `RecallRequest` and of `Filter`."""
    return await store.recall(recalling(query, scope, limit, fields))


async def forget(
    store: Store,
    id: str,
    scope: Scope,
    *,
    reason: str | None = None,
    replacement: str | None = None,
    expected_rev: int | None = None,
) -> Entry:
    """Forget a memory, or replace it by another: it is recalled no more, and `restore` brings it back."""
    able: Supersedes = offering(store, Supersedes, "forget")
    return await able.supersede(id, scope, by=replacement, reason=reason, expected_rev=expected_rev)


async def restore(store: Store, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
    """Bring a forgotten memory back."""
    able: Supersedes = offering(store, Supersedes, "restore")
    return await able.restore(id, scope, expected_rev=expected_rev)


async def erase(
    store: Store, scope: Scope, *, id: str | None = None, reason: str | None = None
) -> EraseReceipt:
    """Remove a memory, or everything in the scope, for good; the receipt says what could not be reached."""
    able: Erases = offering(store, Erases, "erase")
    return await able.erase(scope, id=id, reason=reason)


def remembering(content: str, scope: Scope, fields: dict[str, Any]) -> WriteRequest:
    """The request to keep a memory."""
    _check_scope(scope, fields)
    asked = {name: fields.pop(name) for name in [*fields] if name in _OF_WRITES}
    entry = Entry.new(
        agent_id=scope.owner(),
        session_id=scope.session_id,
        project_id=scope.project_id,
        namespace=scope.namespace,
        content=content,
        **fields,
    )
    # An id of the caller's own says which memory is meant; without one, the same words are the same memory.
    return WriteRequest.new({"dedupe": "id" not in fields, **asked}, entry=entry)


def recalling(query: str, scope: Scope, limit: int, fields: dict[str, Any]) -> RecallRequest:
    """The request to recall."""
    _check_scope(scope, fields)
    narrowing = {name: fields.pop(name) for name in [*fields] if name in _OF_FILTERS}
    if narrowing:
        if "filter" in fields:
            raise Invalid("filter", f"comes with {', '.join(narrowing)} besides", "pass one or the other")
        fields["filter"] = Filter.new(narrowing)
    return RecallRequest.within(scope, query, limit=limit, **fields)


def _check_scope(scope: object, fields: dict[str, Any]) -> None:
    check_instance(scope, "scope", kind=Scope)
    for name in Scope.__struct_fields__:
        if name in fields:
            raise Invalid(name, "is given beside the scope", "put it into the scope")


def offering(store: Any, protocol: Any, verb: str) -> Any:
    """The store, if it can do what the verb needs."""
    if not isinstance(store, protocol):
        raise Invalid(
            "store", f"{store!r} cannot {verb}", f"use one that has the protocol {protocol.__name__}"
        )
    return store
