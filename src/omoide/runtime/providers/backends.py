"""Store values inline in the agent, in tables of the process, or in a memory store.

In a store, a key is an entry of the agent, with an id made from its scope and the key, so that two agents can
use the same key. Text is the content of its entry; any other value is written there as JSON, and restored
from the metadata. Memories that were written another way are found, too, under their ids.

Tables last as long as the process. One with a name is shared by all who name it; without a name each agent
has one of its own for each alias, which no other agent can reach.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from hashlib import blake2b
from threading import RLock
from typing import Any, Concatenate, ParamSpec

import msgspec
from anyio import Lock

from omoide import clock, ids
from omoide.core import codec
from omoide.core import entry as memory_types
from omoide.core.entry import Entry, Filter, RecallRequest, Scope, WriteRequest
from omoide.core.frozen import EMPTY_MAP, FrozenMap, check_text, freeze, freeze_map
from omoide.core.value import check_instance, check_texts
from omoide.errors import Invalid, NotFound, OmoideError, WrongType
from omoide.forks import ForkSafeLock
from omoide.runtime.providers.protocol import (
    NOT_FOUND,
    Outcome,
    ProviderFailure,
    ProviderResult,
    check_fields,
    check_key,
    check_top_k,
    filter_items,
)
from omoide.stores.adapter import as_store, has_methods
from omoide.stores.async_store import run_in_thread
from omoide.stores.factory import open_store
from omoide.stores.protocols import (
    AnyStore,
    Store,
    SupportsBatchWrite,
    SupportsClose,
    SupportsErase,
    SupportsGet,
    SupportsSupersede,
)

InlineData = FrozenMap[str, Any]

P = ParamSpec("P")
Operation = Callable[Concatenate["StoreProvider", Any, P], Coroutine[Any, Any, Outcome]]
_DEFAULT_TOP_K = 5
_FILTER_FIELDS = ("types", "tags", "tags_any", "min_confidence", "since", "until")
_QUERY_FIELDS = ("text", "top_k", "type", *_FILTER_FIELDS)
TableKey = tuple[str, ...]
# Shared by all providers and threads of the process, like a database in memory.
_tables: dict[TableKey, TableItems] = {}
_tables_lock = ForkSafeLock()
_ABSENT = object()


class InlineProvider:
    """Values inside the agent: its state is a frozen map in the agent's memory, and is saved with it."""

    name = "inline"
    instant = True
    keeps_in_memory = True

    def init(self, opts: Mapping[str, Any]) -> InlineData:
        """Return the empty map."""
        return EMPTY_MAP

    def get(self, state: InlineData, key: str, opts: Mapping[str, Any]) -> Outcome:
        """Return the value under a key."""
        return ProviderResult(state, state[key]) if key in state else ProviderFailure(state, NOT_FOUND)

    def put(self, state: InlineData, key: str, value: Any, opts: Mapping[str, Any]) -> Outcome:
        """Return the data with a value under a key; a vector is ignored, since nothing here compares any."""
        try:
            return ProviderResult(state.set(check_key(key), value))
        except Invalid as error:
            return ProviderFailure(state, str(error))

    def delete(self, state: InlineData, key: str, opts: Mapping[str, Any]) -> Outcome:
        """Return the data without a key."""
        return ProviderResult(state.delete(key))

    def query(self, state: InlineData, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Outcome:
        """Return the items that match `prefix` and `where`, by key."""
        try:
            return ProviderResult(state, filter_items(state, query))
        except Invalid as error:
            return ProviderFailure(state, str(error))


def _catch_errors(operation: Operation[P]) -> Operation[P]:
    """Wrap an operation so that it returns errors of Omoide as failures."""

    @wraps(operation)
    async def wrapper(self: StoreProvider, state: Any, /, *args: P.args, **kwargs: P.kwargs) -> Outcome:
        try:
            return await operation(self, state, *args, **kwargs)
        except OmoideError as error:
            return ProviderFailure(state, str(error))

    return wrapper


class StoreProvider:
    """Values as entries of a store, or of the one at a URL, which is opened on first use."""

    def __init__(
        self,
        store: AnyStore | str,
        scope: Scope | None = None,
        *,
        type: str | None = None,
        tags: tuple[str, ...] = (),
        name: str = "store",
    ) -> None:
        if not isinstance(store, str) and not has_methods(as_store(store)):
            raise WrongType("store", "a store or its URL", store)
        self.name = check_text(name, "name")
        self.scope = Scope() if scope is None else check_instance(scope, "scope", kind=Scope)
        self.type = None if type is None else memory_types.check_memory_type(type)
        self.tags = check_texts(tags, "tags")
        self._url = store if isinstance(store, str) else None
        self._store: Store | None = None if isinstance(store, str) else as_store(store)
        self._lock = Lock()

    async def open(self) -> Store:
        """Return the store, and open it if need be."""
        async with self._lock:
            if self._store is None:
                self._store = await run_in_thread(open_store, self._url or "")
            return self._store

    async def close(self) -> None:
        """Close the store, if it was opened here."""
        async with self._lock:
            # A store that was passed belongs to the caller.
            opened: object = None if self._url is None else self._store
            if isinstance(opened, SupportsClose):
                self._store = None
                await opened.close()

    async def init(self, opts: Mapping[str, Any]) -> None:
        """Open the store; raise where that fails or the options name no scope. There is no state."""
        self._resolve_scope(opts)
        await self.open()

    @_catch_errors
    async def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> Outcome:
        """Return the value under a key, or the content of the memory with this id."""
        scope = self._resolve_scope(opts)
        for id in _candidate_ids(scope, key):
            entry = await self._find_entry(id, scope)
            if entry is not None and entry.is_live(clock.now()):
                return ProviderResult(state, _entry_value(entry))
        return ProviderFailure(state, NOT_FOUND)

    @_catch_errors
    async def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> Outcome:
        """Store a value as the next revision of its key's entry; a deleted key is restored.

        The options may give the entry a `type`, further `tags`, and `metadata`.
        """
        scope, store = self._resolve_scope(opts), await self.open()
        request = WriteRequest(entry=self._build_entry(scope, check_key(key), freeze(value, "value"), opts))
        vector = opts.get("embedding")
        if vector is None:
            written = await store.write(request)
        elif isinstance(store, SupportsBatchWrite):
            written = await store.write_with_vector(request, vector)
        else:
            raise Invalid("embedding", "is not supported by this store", "leave it out")
        # A write to a forgotten entry leaves it forgotten, so it is restored.
        if written.entry.superseded_by is not None:
            if not isinstance(store, SupportsSupersede):
                raise Invalid("key", "was forgotten, and this store cannot restore", "use another key")
            await store.reinstate(written.entry.id, scope)
        return ProviderResult(state)

    @_catch_errors
    async def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> Outcome:
        """Forget the entry of a key, or erase it where the options say `{"erase": True}`."""
        scope = self._resolve_scope(opts)
        for id in _candidate_ids(scope, key):
            entry = await self._find_entry(id, scope)
            if entry is not None:
                await self._remove(entry, scope, erase=opts.get("erase") is True)
        return ProviderResult(state)

    @_catch_errors
    async def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Outcome:
        """Return the `top_k` memories that best match `text`, among those of a type or with tags."""
        check_fields(query, _QUERY_FIELDS)
        scope, store = self._resolve_scope(opts), await self.open()
        text = check_text(query.get("text"), "query.text")
        top_k = check_top_k(query, _DEFAULT_TOP_K)
        request = RecallRequest.for_scope(scope, text, limit=top_k, filter=self._build_filter(query))
        hits = sorted((await store.recall(request)).hits, key=lambda hit: -hit.score)
        items = [
            {"key": _entry_key(hit.entry, scope), "score": hit.score, "value": _entry_value(hit.entry)}
            for hit in hits
        ]
        return ProviderResult(state, items[:top_k])

    def _resolve_scope(self, opts: Mapping[str, Any]) -> Scope:
        """Return the scope of an operation: the configured one, with the agent, and an index as session."""
        agent = self.scope.agent_id or opts.get("agent_id")
        if agent is None:
            raise Invalid("agent_id", "is missing", "configure the scope with one, or pass it as an option")
        session, index = self.scope.session_id, opts.get("index")
        if index is not None and session not in (None, index):
            raise Invalid("index", "lies outside of the session that was configured", "leave it out")
        if index is not None:
            session = ids.check(index, "index")
        return msgspec.structs.replace(self.scope, agent_id=ids.check(agent, "agent_id"), session_id=session)

    def _build_entry(self, scope: Scope, key: str, value: Any, opts: Mapping[str, Any]) -> Entry:
        is_text = isinstance(value, str) and bool(value.strip())
        metadata = freeze_map(opts.get("metadata") or {}, "metadata")
        for name in ("key", "value"):
            if name in metadata:
                raise Invalid(f"metadata.{name}", "is reserved for the provider", "use another name")
        kind = opts.get("type")
        return Entry(
            id=_entry_id(scope, key),
            agent_id=scope.require_agent_id(),
            session_id=scope.session_id,
            project_id=scope.project_id,
            user_id=scope.user_id,
            namespace=scope.namespace,
            content=value if is_text else codec.encode(value).decode(),
            # Text is its own value; any other is stored beside its JSON, to be restored with its type.
            metadata=metadata | ({"key": key} if is_text else {"key": key, "value": value}),
            type=self.type if kind is None else kind,
            tags=(*self.tags, *check_texts(opts.get("tags") or (), "tags")),
        )

    def _build_filter(self, query: Mapping[str, Any]) -> Filter:
        fields = {name: query[name] for name in _FILTER_FIELDS if query.get(name) is not None}
        if query.get("type") is not None:
            fields["types"] = (*fields.get("types", ()), query["type"])
        elif self.type is not None:
            fields.setdefault("types", (self.type,))
        fields["tags"] = (*self.tags, *check_texts(fields.get("tags", ()), "query.tags"))
        return Filter.new(fields)

    async def _find_entry(self, id: str, scope: Scope) -> Entry | None:
        """Return the entry with an id, live or not."""
        store = await self.open()
        if not isinstance(store, SupportsGet):
            return next((entry for entry in await store.list_entries(scope) if entry.id == id), None)
        try:
            return await store.get(id, scope)
        except NotFound:
            return None

    async def _remove(self, entry: Entry, scope: Scope, *, erase: bool) -> None:
        store = await self.open()
        try:
            if erase:
                if not isinstance(store, SupportsErase):
                    raise Invalid("erase", "is not supported by this store", "delete without it")
                await store.erase(scope, id=entry.id)
            elif entry.superseded_by is None:
                if not isinstance(store, SupportsSupersede):
                    raise Invalid("key", "cannot be deleted: this store does not forget", "use another store")
                await store.supersede(entry.id, scope)
        except NotFound:
            return  # it was deleted meanwhile


def _entry_id(scope: Scope, key: str) -> str:
    """Return the id of the entry of a key in a scope."""
    parts = [scope.agent_id, scope.session_id, scope.project_id, key]
    if scope.user_id is not None:  # last, so that ids without a user stay as they are
        parts.append(scope.user_id)
    return f"kv_{blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()}"


def _candidate_ids(scope: Scope, key: str) -> list[str]:
    """Return the ids that a key can mean: that of its own entry, and the key itself as the id of a memory."""
    own = _entry_id(scope, check_key(key))
    try:
        return [own, ids.check(key, "key")]
    except Invalid:
        return [own]


def _entry_key(entry: Entry, scope: Scope) -> str:
    """Return the key of an entry, as seen from a scope."""
    key = entry.metadata.get("key")
    return key if isinstance(key, str) and entry.id == _entry_id(scope, key) else entry.id


def _entry_value(entry: Entry) -> Any:
    """Return the value that was put, or the content of a memory that was written another way."""
    key = entry.metadata.get("key")
    own = isinstance(key, str) and entry.id == _entry_id(entry.scope, key)
    return entry.metadata["value"] if own and "value" in entry.metadata else entry.content


class TableItems:
    """The items of one table; every operation is atomic, from any thread."""

    def __init__(self) -> None:
        self._lock = RLock()
        self._values: dict[str, Any] = {}

    def get(self, key: str, default: Any) -> Any:
        """Return the value under a key, or the default."""
        with self._lock:
            return self._values.get(key, default)

    def put(self, key: str, value: Any) -> None:
        """Store a frozen value."""
        with self._lock:
            self._values[key] = value

    def delete(self, key: str) -> None:
        """Remove a key."""
        with self._lock:
            self._values.pop(key, None)

    def copy(self) -> dict[str, Any]:
        """Return a copy of all items."""
        with self._lock:
            return self._values.copy()


def table_items(key: TableKey, *, create: bool = False) -> TableItems:
    """Return the table of a key; a missing one is empty, and is only kept with `create`."""
    with _tables_lock:
        return _tables.setdefault(key, TableItems()) if create else _tables.get(key, TableItems())


def drop_table(name: str) -> bool:
    """Remove a named table with its items, and return whether there was one."""
    with _tables_lock:
        return _tables.pop(("named", name), None) is not None


def drop_tables_of(agent_id: str) -> None:
    """Remove the tables that belong to one agent alone."""
    with _tables_lock:
        for key in [key for key in _tables if key[:2] == ("agent", agent_id)]:
            del _tables[key]


class TableProvider:
    """Values in tables of the process; the option `{"table": name}` names one."""

    name = "table"
    instant = True

    def init(self, opts: Mapping[str, Any]) -> None:
        """Check the name of the table. There is no state."""
        _table_key(opts)

    def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> Outcome:
        """Return the value under a key."""
        value = table_items(_table_key(opts)).get(key, _ABSENT)
        return ProviderFailure(state, NOT_FOUND) if value is _ABSENT else ProviderResult(state, value)

    def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> Outcome:
        """Store a value, frozen; a vector is ignored, since nothing here compares any."""
        try:
            table_items(_table_key(opts), create=True).put(check_key(key), freeze(value, "value"))
        except Invalid as error:
            return ProviderFailure(state, str(error))
        return ProviderResult(state)

    def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> Outcome:
        """Remove a key."""
        table_items(_table_key(opts)).delete(key)
        return ProviderResult(state)

    def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Outcome:
        """Return the items that match `prefix` and `where`, by key."""
        try:
            return ProviderResult(state, filter_items(table_items(_table_key(opts)).copy(), query))
        except Invalid as error:
            return ProviderFailure(state, str(error))


def _table_key(opts: Mapping[str, Any]) -> TableKey:
    """Return the key of a table; that of an agent's own table cannot be reached by a name."""
    name = opts.get("table")
    if name is not None:
        return ("named", check_text(name, "table"))
    return ("agent", str(opts.get("agent_id", "")), str(opts.get("alias", "")))
