"""How does a store inside the process look to the event loop?

The store itself is synchronous. Its async face hops to a worker thread once for each operation; `.sync` is
the store without it, for scripts and for `omoide.blocking`.

"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import copy_context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar

from omoide.core.entry import Entry, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.core.frozen import EMPTY_MAP
from omoide.stores.records import (
    Access,
    Change,
    Document,
    EraseReceipt,
    Feed,
    Lease,
    Link,
    Page,
    Query,
    Stats,
    Version,
)
from omoide.stores.redaction import mask_url

if TYPE_CHECKING:
    from anyio import CapacityLimiter

    from omoide.stores.memory import MemoryStore
    from omoide.stores.sql.store import SQLStore


P = ParamSpec("P")
T = TypeVar("T")


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a worker thread, under the clock and the ids of the caller."""
    return await run_in_thread_with_limiter(None, function, *args, **kwargs)


async def run_in_thread_with_limiter(
    limiter: CapacityLimiter | None, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
) -> T:
    """The same, by a limiter of threads other than the one that stores share."""
    from anyio import to_thread  # an event loop is there by now; importing Omoide does not need one

    return await to_thread.run_sync(partial(copy_context().run, function, *args, **kwargs), limiter=limiter)


class AsyncStore:
    """The async face of a store inside the process."""

    def __init__(self, sync: MemoryStore | SQLStore, url: str) -> None:
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

        with CancelScope(shield=True):  # also when the block was cancelled
            await self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.sync.close()

    async def write(self, request: WriteRequest) -> WriteResult:
        """Keep an entry."""
        return await run_in_thread(self.sync.write, request)

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Keep all of these entries, or none."""
        return await run_in_thread(self.sync.write_many, requests)

    async def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Keep an entry that comes with its own vector."""
        return await run_in_thread(self.sync.write_with_vector, request, vector)

    async def recall(self, request: RecallRequest) -> RecallResult:
        """The entries that answer best."""
        return await run_in_thread(self.sync.recall, request)

    async def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first."""
        return await run_in_thread(self.sync.list_entries, scope)

    async def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """An entry, as it is or as it was."""
        return await run_in_thread(self.sync.get, id, scope, as_of=as_of)

    async def query(self, query: Query) -> Page:
        """The entries that fit, newest first, a page at a time."""
        return await run_in_thread(self.sync.query, query)

    async def link(self, link: Link, scope: Scope) -> Link:
        """Keep a link between two entries."""
        return await run_in_thread(self.sync.link, link, scope)

    async def unlink(self, link: Link, scope: Scope) -> bool:
        """Remove a link; whether there was one."""
        return await run_in_thread(self.sync.unlink, link, scope)

    async def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """The links from and to an entry."""
        return await run_in_thread(self.sync.links, id, scope, relation=relation)

    async def supersede(
        self,
        id: str,
        scope: Scope,
        *,
        by: str | None = None,
        reason: str | None = None,
        expected_rev: int | None = None,
    ) -> Entry:
        """Mark an entry as replaced by another, or by nothing."""
        return await run_in_thread(
            self.sync.supersede, id, scope, by=by, reason=reason, expected_rev=expected_rev
        )

    async def reinstate(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Bring a superseded entry back."""
        return await run_in_thread(self.sync.reinstate, id, scope, expected_rev=expected_rev)

    async def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Note that entries were used."""
        await run_in_thread(self.sync.record_access, [*ids], scope)

    async def access(self, id: str, scope: Scope) -> Access:
        """How often an entry was used, and when last."""
        return await run_in_thread(self.sync.access, id, scope)

    async def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in a scope, for good."""
        return await run_in_thread(self.sync.erase, scope, id=id, reason=reason)

    async def scrub(self) -> EraseReceipt:
        """Clear what erased content may have left."""
        return await run_in_thread(self.sync.scrub)

    async def history(self, id: str, scope: Scope) -> list[Version]:
        """The versions of an entry, oldest first."""
        return await run_in_thread(self.sync.history, id, scope)

    async def changes(self, namespace: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """The changes after a sequence number, in the order of their commits."""
        return await run_in_thread(self.sync.changes, namespace, after=after, limit=limit)

    async def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """What changed after a sequence number, and what it became."""
        return await run_in_thread(
            self.sync.change_feed, namespace, after=after, limit=limit, used_since=used_since
        )

    async def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Keep entries exactly as they were elsewhere; how many were new."""
        return await run_in_thread(self.sync.import_entries, entries, links, access)

    async def stats(self, scope: Scope) -> Stats:
        """Figures about a scope."""
        return await run_in_thread(self.sync.stats, scope)

    async def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """A document with what was appended to it, or None."""
        return await run_in_thread(self.sync.load, kind, id, scope)

    async def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace a document."""
        return await run_in_thread(self.sync.save, document, expected_rev=expected_rev)

    async def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Add to a document; its new revision."""
        return await run_in_thread(self.sync.append, kind, id, [*entries], scope, expected_rev=expected_rev)

    async def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """The documents of a kind after an id, by their ids, without their logs."""
        return await run_in_thread(self.sync.documents, kind, scope, limit=limit, after=after)

    async def namespaces(self) -> list[str]:
        """The namespaces that hold an entry or a document, in order."""
        return await run_in_thread(self.sync.namespaces)

    async def kinds(self, namespace: str) -> list[str]:
        """The kinds of the documents in a namespace, in order."""
        return await run_in_thread(self.sync.kinds, namespace)

    async def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """The lease of a document, or None while somebody else holds it."""
        return await run_in_thread(self.sync.claim, kind, id, scope, owner=owner, ttl_ms=ttl_ms)

    async def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Give a lease back; whether the owner held it."""
        return await run_in_thread(self.sync.release, kind, id, scope, owner=owner)

    async def close(self) -> None:
        """Write what is buffered and let go of the file."""
        await run_in_thread(self.sync.close)
