"""What can be asked of a store?

`Store` is all that an agent needs, and all that an own store has to have. What else a store can do is said by
the small protocols beside it; `isinstance(store, Erases)` asks.

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

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


@runtime_checkable
class Store(Protocol):
    """Keeps entries and gives the right ones back."""

    async def write(self, request: WriteRequest) -> WriteResult:
        """Keep an entry: a new one, or the next revision of the one with its id."""
        ...

    async def recall(self, request: RecallRequest) -> RecallResult:
        """The entries that answer the request best, never more than its limit; none is no error."""
        ...

    async def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first, with what is superseded or expired."""
        ...


@runtime_checkable
class SupportsGet(Protocol):
    """Finds an entry by its id."""

    async def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """The entry, superseded or not; `NotFound` where the scope does not hold it."""
        ...


@runtime_checkable
class SupportsQuery(Protocol):
    """Lists entries by what is known of them."""

    async def query(self, query: Query) -> Page:
        """The entries that fit, newest first, a page at a time."""
        ...


@runtime_checkable
class SupportsLinks(Protocol):
    """Keeps typed links between entries, and finds them from both ends."""

    async def link(self, link: Link, scope: Scope) -> Link:
        """Keep a link; the scope must hold both ends."""
        ...

    async def unlink(self, link: Link, scope: Scope) -> bool:
        """Remove a link; whether there was one."""
        ...

    async def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """The links from and to an entry, oldest first, as far as the scope holds their other end."""
        ...


@runtime_checkable
class SupportsSupersede(Protocol):
    """Forgets, and takes it back."""

    async def supersede(
        self,
        id: str,
        scope: Scope,
        *,
        by: str | None = None,
        reason: str | None = None,
        expected_rev: int | None = None,
    ) -> Entry:
        """Mark an entry as replaced by another, or by nothing; it stays, and is not recalled."""
        ...

    async def reinstate(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Bring a superseded entry back."""
        ...


@runtime_checkable
class SupportsAccess(Protocol):
    """Counts what is used."""

    async def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Note that entries were used; ids that the scope does not hold are passed over."""
        ...

    async def access(self, id: str, scope: Scope) -> Access:
        """How often an entry was used, and when last."""
        ...


@runtime_checkable
class SupportsErase(Protocol):
    """Removes for good."""

    async def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in the scope, with all versions, vectors, links and terms."""
        ...

    async def scrub(self) -> EraseReceipt:
        """Clear what erased content may have left in the files."""
        ...


@runtime_checkable
class SupportsHistory(Protocol):
    """Knows how an entry came to be what it is."""

    async def history(self, id: str, scope: Scope) -> list[Version]:
        """The versions of an entry, oldest first; an erased one ends in a version without an entry."""
        ...


@runtime_checkable
class SupportsChanges(Protocol):
    """Tells what changed."""

    async def changes(self, namespace: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """The changes after a sequence number, in the order in which they were committed."""
        ...


@runtime_checkable
class SupportsWait(Protocol):
    """Tells at once that something changed, so that nobody has to ask again and again."""

    async def wait(self, namespace: str, *, after: int, timeout: float) -> bool:
        """Wait for a change after a sequence number, at most so many seconds; whether there is one."""
        ...


@runtime_checkable
class SupportsFeed(Protocol):
    """Tells what changed, and what it became, so that a copy in another form can keep in step."""

    async def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """What changed after a sequence number, at most `limit` changes at a time, seen in one moment."""
        ...


@runtime_checkable
class SupportsImport(Protocol):
    """Takes over memories from another store."""

    async def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Keep entries exactly as they were elsewhere, all or none; how many were new.

        One that is here already and the same is passed over; `IdTaken` where it is not the same.
        """
        ...


@runtime_checkable
class SupportsBatchWrite(Protocol):
    """Keeps many entries at once."""

    async def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Keep all of them, or none."""
        ...


@runtime_checkable
class SupportsVectors(Protocol):
    """Keeps entries with vectors that were made elsewhere, by the model of the store's own embedder."""

    async def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Keep an entry that is found by this vector as long as its content stays what it is."""
        ...


@runtime_checkable
class SupportsStats(Protocol):
    """Knows figures about itself."""

    async def stats(self, scope: Scope) -> Stats:
        """Figures about a scope."""
        ...


@runtime_checkable
class SupportsDocuments(Protocol):
    """Keeps documents with revisions: sessions, checkpoints."""

    async def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """The document with what was appended to it, or None."""
        ...

    async def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace the document, and what was appended to it."""
        ...

    async def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Add to a document without writing it anew; its new revision."""
        ...


@runtime_checkable
class SupportsDocumentList(Protocol):
    """Knows which documents it keeps."""

    async def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """The documents of a kind, by their ids, without their logs; `after` is the last id of a page."""
        ...


@runtime_checkable
class SupportsNamespaces(Protocol):
    """Knows which namespaces it has, so that all of it can be gone through."""

    async def namespaces(self) -> list[str]:
        """The namespaces that hold an entry or a document, in order."""
        ...

    async def kinds(self, namespace: str) -> list[str]:
        """The kinds of the documents in a namespace, in order."""
        ...


@runtime_checkable
class SupportsLeases(Protocol):
    """Lets one worker at a time hold a document."""

    async def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """The document's lease for `ttl_ms` from now, new or renewed; None while somebody else holds it."""
        ...

    async def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Give a lease back; whether the owner held it."""
        ...


@runtime_checkable
class SupportsClose(Protocol):
    """Has something to give back in the end."""

    async def close(self) -> None:
        """Write what is buffered and let go of files and connections."""
        ...
