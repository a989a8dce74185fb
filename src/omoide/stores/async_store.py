"""Run the operations of a synchronous store from an event loop.

Stores are synchronous inside; `AsyncStore` runs each operation in a worker thread. Its methods come from the
protocols, where each operation is declared once. `AsyncStore.sync` is the store itself, for scripts and for
`omoide.blocking`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable
from contextvars import copy_context
from functools import partial, wraps
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, Self, TypeVar, overload

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


class ThreadedOperation(Generic[P, T]):
    """An async method that calls the method of the same name of the synchronous store."""

    def __init__(self, declaration: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._declaration = declaration
        self.__doc__ = declaration.__doc__

    @overload
    def __get__(self, store: None, owner: type) -> ThreadedOperation[P, T]: ...
    @overload
    def __get__(self, store: AsyncStore, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, store: AsyncStore | None, owner: type) -> Any:
        if store is None:
            return self
        name = self._declaration.__name__

        @wraps(self._declaration)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await run_in_thread(getattr(store.sync, name), *args, **kwargs)

        return call


class AsyncStore:
    """The async interface of a synchronous store."""

    def __init__(self, sync: MemoryStore | RedisStore | SQLStore, url: str) -> None:
        self.sync = sync
        self.url = url

    def __repr__(self) -> str:
        return f"<store {mask_url(self.url)}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        from anyio import CancelScope

        with CancelScope(shield=True):  # the store is closed even if the block was cancelled
            await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sync.close()

    async def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Count one use of each entry; ids outside the scope are ignored."""
        # Read here: an iterator must not be consumed in another thread.
        await run_in_thread(self.sync.record_access, [*ids], scope)

    write = ThreadedOperation(protocols.Store.write)
    recall = ThreadedOperation(protocols.Store.recall)
    list_entries = ThreadedOperation(protocols.Store.list_entries)
    write_many = ThreadedOperation(protocols.SupportsBatchWrite.write_many)
    write_with_vector = ThreadedOperation(protocols.SupportsBatchWrite.write_with_vector)
    get = ThreadedOperation(protocols.SupportsGet.get)
    query = ThreadedOperation(protocols.SupportsQuery.query)
    history = ThreadedOperation(protocols.SupportsQuery.history)
    stats = ThreadedOperation(protocols.SupportsQuery.stats)
    link = ThreadedOperation(protocols.SupportsLinks.link)
    unlink = ThreadedOperation(protocols.SupportsLinks.unlink)
    links = ThreadedOperation(protocols.SupportsLinks.links)
    supersede = ThreadedOperation(protocols.SupportsSupersede.supersede)
    reinstate = ThreadedOperation(protocols.SupportsSupersede.reinstate)
    access = ThreadedOperation(protocols.SupportsAccess.access)
    erase = ThreadedOperation(protocols.SupportsErase.erase)
    scrub = ThreadedOperation(protocols.SupportsErase.scrub)
    changes = ThreadedOperation(protocols.SupportsFeed.changes)
    change_feed = ThreadedOperation(protocols.SupportsFeed.change_feed)
    import_entries = ThreadedOperation(protocols.SupportsImport.import_entries)
    load = ThreadedOperation(protocols.SupportsDocuments.load)
    save = ThreadedOperation(protocols.SupportsDocuments.save)
    append = ThreadedOperation(protocols.SupportsDocuments.append)
    documents = ThreadedOperation(protocols.SupportsDocuments.documents)
    namespaces = ThreadedOperation(protocols.SupportsDocuments.namespaces)
    kinds = ThreadedOperation(protocols.SupportsDocuments.kinds)
    claim = ThreadedOperation(protocols.SupportsLeases.claim)
    release = ThreadedOperation(protocols.SupportsLeases.release)
    close = ThreadedOperation(protocols.SupportsClose.close)
