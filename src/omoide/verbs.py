"""Remember, recall, forget, reinstate and erase memories in any store, and reindex it.

`omoide.blocking` has the same functions for programs without an event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import wraps
from hashlib import sha256
from typing import Any, ParamSpec, TypedDict, TypeVar, Unpack

from omoide import clock, ids
from omoide.core.entry import (
    DEFAULT_NAMESPACE,
    About,
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
    about_tags,
)
from omoide.core.value import check_instance, check_texts
from omoide.errors import Conflict, Invalid, NotFound
from omoide.stores.adapter import ASYNC_TYPES, as_store, check_store
from omoide.stores.protocols import (
    AnyStore,
    Store,
    SupportsDocuments,
    SupportsErase,
    SupportsGet,
    SupportsReindex,
    SupportsSupersede,
)
from omoide.stores.records import PINS_KIND, Document, EraseReceipt, ReindexResult
from omoide.stores.reindex import ProgressCallback

__all__ = [
    "erase",
    "erase_user",
    "forget",
    "pin",
    "pinned",
    "recall",
    "reindex",
    "reinstate",
    "remember",
    "unpin",
]

P = ParamSpec("P")
T = TypeVar("T")

MAX_PINS = 50
_MAX_ATTEMPTS = 20
"""Attempts to change pins that another writer changes at the same time."""

_WRITE_FIELDS = frozenset({"expected_rev", "idempotency_key", "dedupe", "supersedes"})
_FILTER_FIELDS = frozenset(Filter.__struct_fields__)


class MemoryFields(EntryOptions, total=False):
    """Optional fields of a new memory that every interface accepts."""

    dedupe: bool
    supersedes: str | None
    about: About
    """What the memory is about: `lib/web.ex`, `module:Shop.Web`, several, or names by kind; kept as tags."""


class RememberOptions(MemoryFields, total=False):
    """Optional fields of `Entry` and of `WriteRequest`."""

    message: MessageRef | Mapping[str, Any] | None
    created_at: clock.Time
    expected_rev: int | None
    idempotency_key: str | None


class FilterFields(TypedDict, total=False):
    """Fields of `Filter`, and what memories are about."""

    about: About

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


def async_store(store: object, hint: str = "") -> Any:
    """Return a store with async methods; a type that is known to have them is not looked at again.

    Raises:
        WrongType: It is no store; `hint` ends the remedy.
    """
    return store if type(store) in ASYNC_TYPES else check_store(store, hint)


def _takes_store(
    agent_verb: str,
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Check the store of a verb before its other arguments, and name the verb that takes an agent instead."""

    def decorate(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @wraps(verb)
        async def call(*args: P.args, **kwargs: P.kwargs) -> T:
            # A call that was meant for the other verb has other arguments, and would fail because of those.
            if args:
                async_store(args[0], f"; for an agent call {agent_verb}")
            return await verb(*args, **kwargs)

        return call

    return decorate


@_takes_store("omoide.write(spec, content, store=…)")
async def remember(
    store: AnyStore, content: str, scope: Scope, **options: Unpack[RememberOptions]
) -> WriteResult:
    """Store a memory.

    A memory whose scope, type and content are already stored is not stored twice: the result then has the
    outcome `duplicate_of`. Pass an `id` to write a new revision instead, or `dedupe=False`.

    With a `key` such as `home_city` the memory is the value of a slot of exactly this scope: it supersedes
    the value before, and the result has the outcome `superseded`. `expected_rev` is then the revision of the
    live value, 0 for none.
    """
    able: Store = async_store(store)
    return await able.write(build_write_request(content, scope, {**options}))


@_takes_store("omoide.turns.recall(spec, input, store=…)")
async def recall(
    store: AnyStore, query: str, scope: Scope, limit: int = 5, **options: Unpack[RecallOptions]
) -> RecallResult:
    """Return the memories that answer a query best, with the reasons for each."""
    able: Store = async_store(store)
    return await able.recall(build_recall_request(query, scope, limit, {**options}))


async def forget(
    store: AnyStore,
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


async def reinstate(store: AnyStore, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
    """Make a forgotten memory current again."""
    able: SupportsSupersede = require(store, SupportsSupersede, "reinstate")
    return await able.reinstate(id, scope, expected_rev=expected_rev)


async def erase(
    store: AnyStore, scope: Scope, *, id: str | Sequence[str] | None = None, reason: str | None = None
) -> EraseReceipt:
    """Erase a memory, or the whole scope if no `id` is given, permanently.

    Several ids are erased all at once or not at all, with one receipt. It lists the copies that could not be
    reached, such as backups.
    """
    able: SupportsErase = require(store, SupportsErase, "erase")
    return await able.erase(scope, id=id, reason=reason)


async def erase_user(
    store: AnyStore, user_id: str, *, namespace: str = DEFAULT_NAMESPACE, reason: str | None = None
) -> EraseReceipt:
    """Erase all that a namespace holds of a user permanently: of every agent, session and project.

    Memories in all their versions go, and with them sessions, transcripts and notes, links, vectors, receipts
    of idempotency keys and leases. What belongs to other users, or to none, stays as it is.

    Args:
        store: the store.
        user_id: the user.
        namespace: the tenant; users of the same id in other namespaces are others.
        reason: a text that is stored with the id of each memory.

    Raises:
        Invalid: the user is missing, or the store cannot erase.
    """
    # A scope without a user would be the whole namespace.
    scope = Scope(namespace=namespace, user_id=ids.check(user_id, "user_id"))
    return await erase(store, scope, reason=reason)


async def pin(store: AnyStore, id: str, scope: Scope) -> Entry:
    """Pin a memory: it stands in every prompt of its agent, for its user if it has one.

    A turn shows what is pinned in the scope that the policy of the agent reads. Where a newer memory
    supersedes it, that one is shown. Pinning it again changes nothing.

    Raises:
        NotFound: the scope has no such memory.
        Invalid: it is forgotten or expired, or the agent has too many pins for this user.
    """
    reader: SupportsGet = require(store, SupportsGet, "pin")
    entry = await reader.get(id, scope)
    if id not in await _shown(reader, (id,), scope):
        raise Invalid("id", f"names {id!r}, which is forgotten or expired", "restore it first")

    async def add(before: tuple[str, ...]) -> tuple[str, ...]:
        if id in before:
            return before
        if len(before) >= MAX_PINS:  # what is erased, forgotten or expired takes no room
            shown = await _shown(reader, before, Scope(namespace=entry.namespace))
            before = tuple(one for one in before if one in shown)
        return (*before, id)

    await _change_pins(store, entry, add)
    return entry


async def unpin(store: AnyStore, id: str, scope: Scope) -> Entry:
    """Unpin a memory; it stays stored, and one that is not pinned stays as it is.

    The id may be that of the memory that was pinned, or of the newer one that is shown in its place.
    """
    reader: SupportsGet = require(store, SupportsGet, "unpin")
    entry = await reader.get(id, scope)

    async def remove(before: tuple[str, ...]) -> tuple[str, ...]:
        shown = await _shown(reader, (id, *before), Scope(namespace=entry.namespace))
        newest = shown[id].id if id in shown else id
        return tuple(one for one in before if one != id and (one not in shown or shown[one].id != newest))

    await _change_pins(store, entry, remove)
    return entry


async def pinned(store: AnyStore, scope: Scope) -> list[Entry]:
    """Return the pinned memories of a scope: of each agent and user the first pinned first.

    A scope that names no agent or no user has those of all. A store without documents has none.
    """
    check_instance(scope, "scope", kind=Scope)
    able: Store = async_store(store)
    return await _find_pinned(able, scope, await _list_pins(able, scope))


async def shown_pins(store: Store, scope: Scope, agent_id: str) -> list[Entry]:
    """Return the pinned memories that a prompt of an agent shows, its own before those of other agents.

    They are those of exactly the user of the scope, or of no user where it names none.
    """
    if not isinstance(store, SupportsDocuments):
        return []
    if scope.agent_id is None:
        found = [one for one in await _list_pins(store, scope) if one.user_id == scope.user_id]
        found.sort(key=lambda document: document.agent_id != agent_id)
    else:
        document = await store.load(PINS_KIND, _pins_id(scope), Scope(namespace=scope.namespace))
        found = [] if document is None else [document]
    return await _find_pinned(store, scope, found)


async def _list_pins(store: Store, scope: Scope) -> list[Document]:
    """Return the documents with the pins of the agents and users in a scope."""
    if not isinstance(store, SupportsDocuments):
        return []
    owners = Scope(namespace=scope.namespace, user_id=scope.user_id, agent_id=scope.agent_id)
    found: list[Document] = []
    while page := await store.documents(PINS_KIND, owners, after=found[-1].id if found else None):
        found += page
    return found


async def _find_pinned(store: Store, scope: Scope, documents: Sequence[Document]) -> list[Entry]:
    if not isinstance(store, SupportsGet):
        return []
    ids = [id for document in documents for id in document.body]
    shown = await _shown(store, ids, scope)
    return [*{entry.id: entry for entry in shown.values()}.values()]


async def _shown(store: SupportsGet, ids: Sequence[str], scope: Scope) -> dict[str, Entry]:
    """Return what is shown of pinned memories: each in its newest form, if that is live and in the scope."""
    shown: dict[str, Entry] = {}
    for id in ids:
        with suppress(NotFound):  # it was erased, or is not in this scope
            entry = await _newest(store, id, scope)
            if entry.is_live(clock.now()):
                shown[id] = entry
    return shown


async def _newest(store: SupportsGet, id: str, scope: Scope) -> Entry:
    """Return a memory, or the one that superseded it."""
    entry, seen = await store.get(id, scope), {id}
    while entry.superseded_by is not None and entry.superseded_by not in seen:
        seen.add(entry.superseded_by)
        entry = await store.get(entry.superseded_by, scope)
    return entry


async def _change_pins(
    store: AnyStore, entry: Entry, change: Callable[[tuple[str, ...]], Awaitable[tuple[str, ...]]]
) -> None:
    documents: SupportsDocuments = require(store, SupportsDocuments, "pin")
    id, scope = _pins_id(entry.scope), Scope(namespace=entry.namespace)
    for attempt in range(_MAX_ATTEMPTS):
        document = await documents.load(PINS_KIND, id, scope)
        before: tuple[str, ...] = () if document is None else tuple(document.body)
        after = await change(before)
        if after == before:
            return
        if len(after) > MAX_PINS:
            raise Invalid(
                "id", f"would be pin {len(after)} of agent {entry.agent_id!r}", "unpin another first"
            )
        new = Document(
            kind=PINS_KIND,
            id=id,
            namespace=entry.namespace,
            user_id=entry.user_id,
            agent_id=entry.agent_id,
            body=after,
        )
        try:
            await documents.save(new, expected_rev=0 if document is None else document.rev)
        except Conflict:
            if attempt + 1 == _MAX_ATTEMPTS:
                raise
            continue
        return


def _pins_id(owner: Scope) -> str:
    return sha256(f"{owner.agent_id}\0{owner.user_id or ''}".encode()).hexdigest()[:32]


async def reindex(
    store: AnyStore, embedder: Any = None, *, progress: ProgressCallback | None = None
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
    options = with_about(options)
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
    options = with_about(options)
    filter_fields = {name: options.pop(name) for name in [*options] if name in _FILTER_FIELDS}
    if filter_fields:
        if "filter" in options:
            raise Invalid("filter", f"is given beside {', '.join(filter_fields)}", "pass one or the other")
        options["filter"] = Filter.new(filter_fields)
    return RecallRequest.for_scope(scope, query, limit=limit, **options)


def with_about(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options with tags in place of `about`: stores keep tags, and filter by them."""
    options = dict(options)
    about = options.pop("about", None)
    if about is not None:
        options["tags"] = (*check_texts(options.get("tags") or (), "tags"), *about_tags(about))
    return options


def _check_scope(scope: object, options: dict[str, Any]) -> None:
    check_instance(scope, "scope", kind=Scope)
    # Otherwise an option would silently move the memory out of the scope that the caller named.
    for name in Scope.__struct_fields__:
        if name in options:
            raise Invalid(name, "is given beside the scope", "put it into the scope")


def require(store: Any, protocol: Any, operation: str) -> Any:
    """Return the store, with async methods, if it implements a protocol.

    Raises:
        Invalid: It does not; the message names the operation and the protocol.
    """
    if type(store) not in ASYNC_TYPES:
        store = as_store(store)
    if not isinstance(store, protocol):
        raise Invalid(
            "store", f"{store!r} cannot {operation}", f"use a store that implements {protocol.__name__}"
        )
    return store
