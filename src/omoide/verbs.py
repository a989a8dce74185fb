"""How does a program remember, recall and forget?

A few verbs over any store. `omoide.blocking` has the same ones for programs without an event loop.

"""

from __future__ import annotations

from typing import Any

from omoide.core.entry import Entry, Filter, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.core.value import check_instance
from omoide.errors import Invalid
from omoide.stores.protocols import Store, SupportsErase, SupportsSupersede
from omoide.stores.records import EraseReceipt

__all__ = ["erase", "forget", "recall", "remember", "reinstate"]

_WRITE_FIELDS = frozenset({"expected_rev", "idempotency_key", "dedupe", "supersedes"})
_FILTER_FIELDS = frozenset(Filter.__struct_fields__)


async def remember(store: Store, content: str, scope: Scope, **fields: Any) -> WriteResult:
    """Keep a memory. Fields are those of `Entry`, and of `WriteRequest` (`supersedes`, `expected_rev` …).

    What the scope holds already, word by word, is not kept twice: the receipt then says `duplicate_of`.
    """
    return await store.write(build_write_request(content, scope, fields))


async def recall(store: Store, query: str, scope: Scope, limit: int = 5, **fields: Any) -> RecallResult:
    """The memories that answer a question best. Fields are those of `RecallRequest` and of `Filter`."""
    return await store.recall(build_recall_request(query, scope, limit, fields))


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
    able: SupportsSupersede = require(store, SupportsSupersede, "forget")
    return await able.supersede(id, scope, by=replacement, reason=reason, expected_rev=expected_rev)


async def reinstate(store: Store, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
    """Bring a forgotten memory back."""
    able: SupportsSupersede = require(store, SupportsSupersede, "restore")
    return await able.reinstate(id, scope, expected_rev=expected_rev)


async def erase(
    store: Store, scope: Scope, *, id: str | None = None, reason: str | None = None
) -> EraseReceipt:
    """Remove a memory, or everything in the scope, for good; the receipt says what could not be reached."""
    able: SupportsErase = require(store, SupportsErase, "erase")
    return await able.erase(scope, id=id, reason=reason)


def build_write_request(content: str, scope: Scope, fields: dict[str, Any]) -> WriteRequest:
    """The request to keep a memory."""
    _check_scope(scope, fields)
    asked = {name: fields.pop(name) for name in [*fields] if name in _WRITE_FIELDS}
    entry = Entry.new(
        agent_id=scope.require_agent_id(),
        session_id=scope.session_id,
        project_id=scope.project_id,
        namespace=scope.namespace,
        content=content,
        **fields,
    )
    # An id of the caller's own says which memory is meant; without one, the same words are the same memory.
    return WriteRequest.new({"dedupe": "id" not in fields, **asked}, entry=entry)


def build_recall_request(query: str, scope: Scope, limit: int, fields: dict[str, Any]) -> RecallRequest:
    """The request to recall."""
    _check_scope(scope, fields)
    narrowing = {name: fields.pop(name) for name in [*fields] if name in _FILTER_FIELDS}
    if narrowing:
        if "filter" in fields:
            raise Invalid("filter", f"comes with {', '.join(narrowing)} besides", "pass one or the other")
        fields["filter"] = Filter.new(narrowing)
    return RecallRequest.for_scope(scope, query, limit=limit, **fields)


def _check_scope(scope: object, fields: dict[str, Any]) -> None:
    check_instance(scope, "scope", kind=Scope)
    for name in Scope.__struct_fields__:
        if name in fields:
            raise Invalid(name, "is given beside the scope", "put it into the scope")


def require(store: Any, protocol: Any, operation: str) -> Any:
    """The store, if it can do what the verb needs."""
    if not isinstance(store, protocol):
        raise Invalid(
            "store", f"{store!r} cannot {operation}", f"use one that has the protocol {protocol.__name__}"
        )
    return store
