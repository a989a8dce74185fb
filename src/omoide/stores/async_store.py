"""Run the operations of a synchronous store from an event loop.

Stores are synchronous inside; `AsyncStore` runs each operation in a worker thread. Its methods come from the
protocols, where each operation is declared once. `AsyncStore.sync` is the store itself, for scripts and for
`omoide.blocking`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping
from contextvars import copy_context
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from omoide.core.entry import Scope
from omoide.stores import protocols
from omoide.stores.redaction import mask_url

if TYPE_CHECKING:
    from anyio import CapacityLimiter

    from omoide.stores.memory import MemoryStore
    from omoide.stores.redis.store import RedisStore
    from omoide.stores.sql.store import SQLStore


P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a worker thread, with the context variables (clock, ids) of the caller."""
    return await run_in_thread_with_limiter(None, function, *args, **kwargs)


async def run_in_thread_with_limiter(
    limiter: CapacityLimiter | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call a function in a worker thread of another limiter than the one that stores share."""
    from anyio import to_thread  # imported here: `import omoide` must not load an event loop

    return await to_thread.run_sync(partial(copy_context().run, function, *args, **kwargs), limiter=limiter)


def _in_thread(
    declaration: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]:
    """Return the declared method, run by the synchronous store in a worker thread."""
    name = declaration.__name__

    @wraps(declaration, updated=())  # it is no abstract method
    async def call(store: Any, /, *args: P.args, **kwargs: P.kwargs) -> Any:
        return await run_in_thread(getattr(store.sync, name), *args, **kwargs)

    return call


def _read(items: Iterable[T]) -> Iterable[T]:
    """Read items in the calling thread, where an iterator belongs; leave what is no list to the store."""
    return items if isinstance(items, (str, bytes, Mapping)) or not isinstance(items, Iterable) else [*items]


class AsyncStore:
    """The async interface of a synchronous store."""

    def __init__(self, sync: MemoryStore | RedisStore | SQLStore, url: str) -> None:
        self.sync = sync
        self.url = url

    def __repr__(self) -> str:
        return f"<store {mask_url(self.url)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        from anyio import CancelScope

        with CancelScope(shield=True):  # the store is closed even if the block was cancelled
            await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sync.close()

    async def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Count one use of each entry; ids outside the scope are ignored."""
        await run_in_thread(self.sync.record_access, _read(ids), scope)

    async def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Append to the log of a document without rewriting it; return the new revision."""
        items = _read(entries)
        return await run_in_thread(self.sync.append, kind, id, items, scope, expected_rev=expected_rev)

    write = _in_thread(protocols.Store.write)
    recall = _in_thread(protocols.Store.recall)
    list_entries = _in_thread(protocols.Store.list_entries)
    write_many = _in_thread(protocols.SupportsBatchWrite.write_many)
    write_with_vector = _in_thread(protocols.SupportsBatchWrite.write_with_vector)
    get = _in_thread(protocols.SupportsGet.get)
    query = _in_thread(protocols.SupportsQuery.query)
    history = _in_thread(protocols.SupportsQuery.history)
    stats = _in_thread(protocols.SupportsQuery.stats)
    owners = _in_thread(protocols.SupportsOwners.owners)
    link = _in_thread(protocols.SupportsLinks.link)
    unlink = _in_thread(protocols.SupportsLinks.unlink)
    links = _in_thread(protocols.SupportsLinks.links)
    supersede = _in_thread(protocols.SupportsSupersede.supersede)
    reinstate = _in_thread(protocols.SupportsSupersede.reinstate)
    access = _in_thread(protocols.SupportsAccess.access)
    erase = _in_thread(protocols.SupportsErase.erase)
    scrub = _in_thread(protocols.SupportsErase.scrub)
    reindex = _in_thread(protocols.SupportsReindex.reindex)
    changes = _in_thread(protocols.SupportsFeed.changes)
    change_feed = _in_thread(protocols.SupportsFeed.change_feed)
    import_entries = _in_thread(protocols.SupportsImport.import_entries)
    load = _in_thread(protocols.SupportsDocuments.load)
    save = _in_thread(protocols.SupportsDocuments.save)
    documents = _in_thread(protocols.SupportsDocuments.documents)
    namespaces = _in_thread(protocols.SupportsDocuments.namespaces)
    kinds = _in_thread(protocols.SupportsDocuments.kinds)
    claim = _in_thread(protocols.SupportsLeases.claim)
    release = _in_thread(protocols.SupportsLeases.release)
    close = _in_thread(protocols.SupportsClose.close)
