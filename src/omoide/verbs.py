"""Remember, recall, forget, reinstate and erase memories in any store, and reindex it.

`omoide.blocking` has the same functions for programs without an event loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from omoide import clock
from omoide.core.entry import (
    Entry,
    EntryOptions,
    Filter,
    MessageRef,
    RecallFields,
    RecallRequest,
    RecallResult,
    Scope,
    WriteRequest,
    WriteResult,
)
from omoide.core.value import check_instance
from omoide.errors import Invalid
from omoide.stores.protocols import Store, SupportsErase, SupportsReindex, SupportsSupersede
from omoide.stores.records import EraseReceipt, ReindexResult
from omoide.stores.reindex import ProgressCallback

__all__ = ["erase", "forget", "recall", "reindex", "reinstate", "remember"]

_WRITE_FIELDS = frozenset({"expected_rev", "idempotency_key", "dedupe", "supersedes"})
_FILTER_FIELDS = frozenset(Filter.__struct_fields__)


class MemoryFields(EntryOptions, total=False):
    """Optional fields of a new memory that every interface accepts."""

    dedupe: bool
    supersedes: str | None


class RememberOptions(MemoryFields, total=False):
    """Optional fields of `Entry` and of `WriteRequest`."""

    message: MessageRef | Mapping[str, Any] | None
    created_at: clock.Time
    expected_rev: int | None
    idempotency_key: str | None


class FilterFields(TypedDict, total=False):
    """Fields of `Filter`."""

    types: Sequence[str]
    tags: Sequence[str]
    tags_any: Sequence[str]
    key: str | None
    min_confidence: float
    since: clock.Time | None
    until: clock.Time | None
    include_superseded: bool
    include_stale: bool
    include_expired: bool


class RecallOptions(FilterFields, RecallFields, total=False):
    """Optional fields of `RecallRequest` and of `Filter`."""


async def remember(
    store: Store, content: str, scope: Scope, **options: Unpack[RememberOptions]
) -> WriteResult:
    """Store a memory.

    A memory whose scope, type and content are already stored is not stored twice: the result then has the
    outcome `duplicate_of`. Pass an `id` to write a new revision instead, or `dedupe=False`.

    With a `key` such as `home_city` the memory is the value of a slot of exactly this scope: it supersedes
    the value before, and the result has the outcome `superseded`. `expected_rev` is then the revision of the
    live value, 0 for none.
    """
    return await store.write(build_write_request(content, scope, {**options}))


async def recall(
    store: Store, query: str, scope: Scope, limit: int = 5, **options: Unpack[RecallOptions]
) -> RecallResult:
    """Return the memories that answer a query best, with the reasons for each."""
    return await store.recall(build_recall_request(query, scope, limit, {**options}))


async def forget(
    store: Store,
    id: str,
    scope: Scope,
    *,
    reason: str | None = None,
    replacement: str | None = None,
    expected_rev: int | None = None,
) -> Entry:
    """Take a memory out of recall, or supersede it by another one; `reinstate` undoes this.

    Args:
        store: the store, which must support superseding.
        id: the memory.
        scope: a scope that contains it.
        reason: a text that is stored with it.
        replacement: the id of the memory that supersedes it.
        expected_rev: the revision that it must have; `Conflict` is raised otherwise.
    """
    able: SupportsSupersede = require(store, SupportsSupersede, "forget")
    return await able.supersede(id, scope, by=replacement, reason=reason, expected_rev=expected_rev)


async def reinstate(store: Store, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
    """Make a forgotten memory current again."""
    able: SupportsSupersede = require(store, SupportsSupersede, "reinstate")
    return await able.reinstate(id, scope, expected_rev=expected_rev)


async def erase(
    store: Store, scope: Scope, *, id: str | None = None, reason: str | None = None
) -> EraseReceipt:
    """Erase a memory, or the whole scope if no `id` is given, permanently.

    The receipt lists the copies that could not be reached, such as backups.
    """
    able: SupportsErase = require(store, SupportsErase, "erase")
    return await able.erase(scope, id=id, reason=reason)


async def reindex(
    store: Store, embedder: Any = None, *, progress: ProgressCallback | None = None
) -> ReindexResult:
    """Give a store the vectors of an embedder, and the terms of this version, while it is in use.

    Args:
        store: The store.
        embedder: A name, an embedder or a function; by default the one that the store was opened with.
        progress: Called with the number of finished and of all memories.

    Raises:
        Busy: Another run reindexes the store.
        DiskFull: The new vectors do not fit beside the old ones.
    """
    able: SupportsReindex = require(store, SupportsReindex, "reindex")
    return await able.reindex(embedder, progress)


def build_write_request(content: str, scope: Scope, options: dict[str, Any]) -> WriteRequest:
    """Build the request of `remember` from its arguments; `options` is consumed."""
    _check_scope(scope, options)
    request_fields = {name: options.pop(name) for name in [*options] if name in _WRITE_FIELDS}
    entry = Entry.new(
        agent_id=scope.require_agent_id(),
        session_id=scope.session_id,
        project_id=scope.project_id,
        user_id=scope.user_id,
        namespace=scope.namespace,
        content=content,
        **options,
    )
    # An explicit id names the memory to write; without one, equal content is the same memory.
    return WriteRequest.new({"dedupe": "id" not in options, **request_fields}, entry=entry)


def build_recall_request(query: str, scope: Scope, limit: int, options: dict[str, Any]) -> RecallRequest:
    """Build the request of `recall` from its arguments; `options` is consumed."""
    _check_scope(scope, options)
    filter_fields = {name: options.pop(name) for name in [*options] if name in _FILTER_FIELDS}
    if filter_fields:
        if "filter" in options:
            raise Invalid("filter", f"is given beside {', '.join(filter_fields)}", "pass one or the other")
        options["filter"] = Filter.new(filter_fields)
    return RecallRequest.for_scope(scope, query, limit=limit, **options)


def _check_scope(scope: object, options: dict[str, Any]) -> None:
    check_instance(scope, "scope", kind=Scope)
    # Otherwise an option would silently move the memory out of the scope that the caller named.
    for name in Scope.__struct_fields__:
        if name in options:
            raise Invalid(name, "is given beside the scope", "put it into the scope")


def require(store: Any, protocol: Any, operation: str) -> Any:
    """Return the store if it implements a protocol.

    Raises:
        Invalid: It does not; the message names the operation and the protocol.
    """
    if not isinstance(store, protocol):
        raise Invalid(
            "store", f"{store!r} cannot {operation}", f"use a store that implements {protocol.__name__}"
        )
    return store
