"""Declare the store protocol and the optional capabilities of stores.

`Store` is what an agent needs, and all that a custom store has to implement. Each `Supports…` protocol is one
optional capability; `isinstance(store, SupportsErase)` tells whether a store has it.

These signatures are the declaration of each operation: `AsyncStore` takes its methods from them, and the
synchronous stores implement the same operations without `async`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from omoide.core.entry import Entry, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.core.frozen import EMPTY_MAP
from omoide.stores.adapter import check_store
from omoide.stores.records import (
    Access,
    Change,
    Document,
    EraseReceipt,
    Feed,
    Lease,
    Link,
    Owner,
    Page,
    Query,
    ReindexResult,
    Stats,
    Version,
)
from omoide.stores.reindex import ProgressCallback


@runtime_checkable
class Store(Protocol):
    """A memory store: writes entries, recalls the best matches, and lists a scope.

    `await Store.write(store, request)` and the like work on every kind of store: an object, a module or a
    class, or `(module_or_class, options)`, with async or plain functions.
    """

    @abstractmethod
    async def write(self, request: WriteRequest) -> WriteResult:
        """Write a new entry, or the next revision of the entry with the same id."""
        result: WriteResult = await check_store(self).write(request)
        return result

    @abstractmethod
    async def recall(self, request: RecallRequest) -> RecallResult:
        """Return the best matching entries, at most `request.limit`; an empty result is no error."""
        result: RecallResult = await check_store(self).recall(request)
        return result

    if TYPE_CHECKING:

        @abstractmethod
        async def list_entries(self, scope: Scope) -> list[Entry]:
            """List all entries of a scope, oldest first, including superseded and expired ones."""

    else:  # the scope may be left out of `Store.list_entries(store)`, and not by those who implement it

        @abstractmethod
        async def list_entries(self, scope: Scope | None = None) -> list[Entry]:
            """List all entries of a scope, oldest first, including superseded and expired ones."""
            return await check_store(self).list_entries(Scope() if scope is None else scope)


class PlainStore(Protocol):
    """A memory store whose methods are plain functions."""

    def write(self, request: WriteRequest) -> WriteResult:
        """Write a new entry, or the next revision of the entry with the same id."""

    def recall(self, request: RecallRequest) -> RecallResult:
        """Return the best matching entries, at most `request.limit`."""

    def list_entries(self, scope: Scope) -> list[Entry]:
        """List all entries of a scope, oldest first."""


AnyStore: TypeAlias = Store | PlainStore | ModuleType | type | tuple[Any, Mapping[str, Any] | None]
"""Everything that serves as a store."""


@runtime_checkable
class SupportsGet(Protocol):
    """Reads single entries by id."""

    async def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """Return an entry, superseded or not.

        Args:
            as_of: Return the version that was current at this time (milliseconds) instead of the newest one.

        Raises:
            NotFound: The scope does not contain the entry.
            Erased: The entry existed at `as_of` and was erased since.
        """


@runtime_checkable
class SupportsQuery(Protocol):
    """Lists entries by filter, with their versions and statistics."""

    async def query(self, query: Query) -> Page:
        """Return one page of the entries that match, newest first."""

    async def history(self, id: str, scope: Scope) -> list[Version]:
        """Return the versions of an entry, oldest first; that of an erased entry has no content."""

    async def stats(self, scope: Scope) -> Stats:
        """Return statistics of a scope."""


@runtime_checkable
class SupportsOwners(Protocol):
    """Lists who has memories."""

    async def owners(self, scope: Scope) -> list[Owner]:
        """Return the users, agents and projects that have entries in a scope, with their numbers, sorted."""


@runtime_checkable
class SupportsLinks(Protocol):
    """Stores typed links between entries and finds them from both ends."""

    async def link(self, link: Link, scope: Scope) -> Link:
        """Store a link between two entries of the scope; an existing one is returned unchanged."""

    async def unlink(self, link: Link, scope: Scope) -> bool:
        """Delete a link; return False if it did not exist."""

    async def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """Return the links from and to an entry, oldest first, whose other end is in the scope."""


@runtime_checkable
class SupportsSupersede(Protocol):
    """Supersedes entries reversibly."""

    async def supersede(
        self,
        id: str,
        scope: Scope,
        *,
        by: str | None = None,
        reason: str | None = None,
        expected_rev: int | None = None,
    ) -> Entry:
        """Mark an entry as superseded; it stays stored and is no longer recalled.

        Args:
            by: Id of the entry that replaces it, or None to forget it without a replacement.
            expected_rev: Revision that the caller read last.

        Raises:
            Conflict: The entry has another revision than `expected_rev`.
        """

    async def reinstate(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Make a superseded entry current again."""


@runtime_checkable
class SupportsAccess(Protocol):
    """Counts how often entries are used."""

    async def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Count one use of each entry; ids outside the scope are ignored."""

    async def access(self, id: str, scope: Scope) -> Access:
        """Return how often an entry was used, and when last."""


@runtime_checkable
class SupportsErase(Protocol):
    """Erases entries permanently."""

    async def erase(
        self, scope: Scope, *, id: str | Sequence[str] | None = None, reason: str | None = None
    ) -> EraseReceipt:
        """Erase entries with their versions, vectors, links and terms, all at once or none.

        Args:
            scope: Scope of the entries.
            id: Id of one entry, or of several; None for the whole scope.
            reason: Text that stays with the ids.
        """

    async def scrub(self) -> EraseReceipt:
        """Remove what erased content may have left in the store's files."""


@runtime_checkable
class SupportsReindex(Protocol):
    """Rebuilds its index with another embedder."""

    async def reindex(self, embedder: Any = None, progress: ProgressCallback | None = None) -> ReindexResult:
        """Give every entry the terms of this version, and vectors of an embedder, while the store is in use.

        The old vectors serve until all new ones are there. An interrupted run continues where it stopped.

        Args:
            embedder: A name, an embedder or a function; by default the one that the store was opened with.
            progress: Called with the number of finished and of all entries.

        Raises:
            Busy: Another run reindexes the store.
            DiskFull: The new vectors do not fit beside the old ones.
        """


@runtime_checkable
class SupportsFeed(Protocol):
    """Provides a change feed."""

    async def changes(
        self,
        namespace: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = 1000,
        scope: Scope | None = None,
    ) -> list[Change]:
        """Return the changes after a sequence number, in commit order, without content.

        Args:
            until: Search no further than this sequence number; one who follows a small scope reads part by
                part, so that no part is searched twice.
            scope: Return only changes of entries that are in this scope, or were until they were erased.
        """

    async def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """Return what changed after a sequence number and its current state, from one consistent snapshot.

        Args:
            limit: Maximum number of changes to read; `Feed.more` tells whether others follow.
            used_since: Also return access counts of entries used since this time (milliseconds).
        """


@runtime_checkable
class SupportsWait(Protocol):
    """Notifies waiting clients of changes, so that they need not poll."""

    async def wait(self, namespace: str, *, after: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a change after a sequence number; return whether there is one."""


@runtime_checkable
class SupportsImport(Protocol):
    """Imports entries of another store."""

    async def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Store entries unchanged, with their revisions and times, all or none; return how many were new.

        Raises:
            IdTaken: An entry with the same id and different content is already stored.
        """


@runtime_checkable
class SupportsBatchWrite(Protocol):
    """Writes several entries at once, or entries with precomputed vectors."""

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Write all entries in one transaction, or none."""

    async def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Write an entry with a vector computed elsewhere by the model of the store's embedder.

        The vector is used as long as the entry's content does not change.
        """


@runtime_checkable
class SupportsDocuments(Protocol):
    """Stores documents with revisions (sessions, checkpoints) beside entries."""

    async def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """Return a document with its log, or None."""

    async def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace a document and its log."""

    async def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Append to the log of a document without rewriting it; return the new revision."""

    async def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """List documents of a kind by id, without their logs; `after` is the last id of the previous page."""

    async def namespaces(self) -> list[str]:
        """List the namespaces that contain an entry or a document, sorted."""

    async def kinds(self, namespace: str) -> list[str]:
        """List the kinds of documents in a namespace, sorted."""


@runtime_checkable
class SupportsLeases(Protocol):
    """Grants leases, so that one worker at a time owns a document."""

    async def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """Acquire or renew a document's lease for `ttl_ms`; return None while another owner holds it."""

    async def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Release a lease; return False if the owner did not hold it."""


@runtime_checkable
class SupportsClose(Protocol):
    """Holds resources that have to be released."""

    async def close(self) -> None:
        """Flush buffers and close files and connections."""
