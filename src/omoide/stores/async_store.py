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


class Operation(Generic[P, T]):
    """An async method that calls the method of the same name of the synchronous store."""

    def __init__(self, declaration: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self._declaration = declaration
        self.__doc__ = declaration.__doc__

    @overload
    def __get__(self, store: None, owner: type) -> Operation[P, T]: ...
    @overload
    def __get__(self, store: AsyncStore, owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, store: AsyncStore | None, owner: type) -> Any:
        if store is None:
            return self
        name = self._declaration.__name__

        @wraps(self._declaration)
        async def call(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await store._run(getattr(store.sync, name), *args, **kwargs)

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

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return await run_in_thread(function, *args, **kwargs)

    async def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Count one use of each entry; ids outside the scope are ignored."""
        # Read here: an iterator must not be consumed in another thread.
        await self._run(self.sync.record_access, [*ids], scope)

    write = Operation(protocols.Store.write)
    recall = Operation(protocols.Store.recall)
    list_entries = Operation(protocols.Store.list_entries)
    write_many = Operation(protocols.SupportsBatchWrite.write_many)
    write_with_vector = Operation(protocols.SupportsBatchWrite.write_with_vector)
    get = Operation(protocols.SupportsGet.get)
    query = Operation(protocols.SupportsQuery.query)
    history = Operation(protocols.SupportsQuery.history)
    stats = Operation(protocols.SupportsQuery.stats)
    link = Operation(protocols.SupportsLinks.link)
    unlink = Operation(protocols.SupportsLinks.unlink)
    links = Operation(protocols.SupportsLinks.links)
    supersede = Operation(protocols.SupportsSupersede.supersede)
    reinstate = Operation(protocols.SupportsSupersede.reinstate)
    access = Operation(protocols.SupportsAccess.access)
    erase = Operation(protocols.SupportsErase.erase)
    scrub = Operation(protocols.SupportsErase.scrub)
    changes = Operation(protocols.SupportsFeed.changes)
    change_feed = Operation(protocols.SupportsFeed.change_feed)
    import_entries = Operation(protocols.SupportsImport.import_entries)
    load = Operation(protocols.SupportsDocuments.load)
    save = Operation(protocols.SupportsDocuments.save)
    append = Operation(protocols.SupportsDocuments.append)
    documents = Operation(protocols.SupportsDocuments.documents)
    namespaces = Operation(protocols.SupportsDocuments.namespaces)
    kinds = Operation(protocols.SupportsDocuments.kinds)
    claim = Operation(protocols.SupportsLeases.claim)
    release = Operation(protocols.SupportsLeases.release)
    close = Operation(protocols.SupportsClose.close)


class InlineStore(AsyncStore):
    """An `AsyncStore` whose operations run in the calling thread and never suspend.

    A coroutine that awaits nothing else can be run to its end without an event loop, which is how
    `omoide.blocking` calls the verbs.
    """

    async def _run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        return function(*args, **kwargs)
