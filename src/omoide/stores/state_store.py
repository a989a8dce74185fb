"""Implement the operations of a store over a state.

`StateStore` is what the stores in memory and on Redis share: it checks and guards arguments, indexes entries,
and runs the functions of `omoide.stores.operations` in transactions of the subclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition
from typing import Any, ClassVar, TypeVar

from omoide import clock
from omoide.core.entry import Entry, Filter, Scope, WriteRequest, WriteResult
from omoide.core.frozen import EMPTY_MAP, freeze
from omoide.embedders import Embedder
from omoide.stores import operations, semantics
from omoide.stores.recall import Candidates, QueryEncoder
from omoide.stores.records import (
    Access,
    Document,
    EraseReceipt,
    IndexData,
    Lease,
    Link,
    Page,
    Query,
    Version,
    check_arguments,
    index_entries,
    index_with_vector,
)
from omoide.stores.semantics import StoreSettings
from omoide.stores.state import StateReader, StoreState

T = TypeVar("T")


class EmbedderGate:
    """Keeps the embedder of a store the same between the embedding and the writing of entries."""

    def __init__(self) -> None:
        self._condition = Condition()
        self._users = 0
        self._is_closed = False

    @contextmanager
    def use(self) -> Iterator[None]:
        """Keep the embedder during the block."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_closed)
            self._users += 1
        try:
            yield
        finally:
            with self._condition:
                self._users -= 1
                self._condition.notify_all()

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Wait for those who use the embedder, and keep others out during the block, which may change it."""
        with self._condition:
            self._is_closed = True
            self._condition.wait_for(lambda: not self._users)
        try:
            yield
        finally:
            with self._condition:
                self._is_closed = False
                self._condition.notify_all()


class StateStore(ABC):
    """A synchronous store whose state is read and changed in transactions."""

    UNREACHABLE: ClassVar[tuple[str, ...]]
    """Copies of erased content that the store cannot erase."""

    _place: str
    """The name of the store, which no other has."""

    def __init__(self, embedder: Embedder | None, settings: StoreSettings) -> None:
        self.embedder = embedder
        self._embedder_gate = EmbedderGate()
        self.settings = settings

    @abstractmethod
    def _run_read(self, operation: Callable[[StateReader], T]) -> T:
        """Run an operation that changes nothing, on a consistent state."""

    @abstractmethod
    def _run_write(self, operation: Callable[[StoreState], T], *, rollback: bool = False) -> T:
        """Run an operation, and apply all of its changes or none.

        Args:
            operation: Reads and changes the state; it may run more than once.
            rollback: Whether the operation may fail after it changed something.
        """

    # Writes

    def write(self, request: WriteRequest) -> WriteResult:
        """Write an entry."""
        check_arguments(write_request=request)
        return self.write_many([request])[0]

    def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Write all of these entries, or none."""
        check_arguments(requests=requests)
        guarded = [self.settings.guard_request(request) for request in requests]
        with self._embedder_gate.use():
            data = index_entries([request.entry for request in guarded], self.embedder)
            return self._write_all(guarded, data)

    def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Write an entry with a vector of the caller's."""
        check_arguments(write_request=request)
        guarded = self.settings.guard_request(request)
        with self._embedder_gate.use():
            data = index_with_vector(request.entry, guarded.entry, vector, self.embedder)
            return self._write_all([guarded], [data])[0]

    def _write_all(
        self, requests: Sequence[WriteRequest], index_data: Sequence[IndexData]
    ) -> list[WriteResult]:
        now, limit = clock.now(), self.settings.session_limit
        compound = len(requests) > 1 or any(request.supersedes is not None for request in requests)
        return self._run_write(
            lambda state: operations.write_all(state, requests, index_data, now, limit),
            rollback=compound or limit is not None,
        )

    def supersede(
        self,
        id: str,
        scope: Scope,
        *,
        by: str | None = None,
        reason: str | None = None,
        expected_rev: int | None = None,
    ) -> Entry:
        """Mark an entry as replaced by another, or by nothing."""
        check_arguments(id=id, scope=scope, by=by, reason=reason)
        now, reason = clock.now(), self.settings.guard_reason(reason)
        return self._run_write(
            lambda state: operations.supersede(
                state, id, scope, by=by, reason=reason, expected_rev=expected_rev, now=now
            )
        )

    def reinstate(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Undo superseding an entry."""
        check_arguments(id=id, scope=scope)
        now = clock.now()
        return self._run_write(lambda state: operations.reinstate(state, id, scope, expected_rev, now))

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Add entries of another store as they are, and return how many were new."""
        check_arguments(imported_entries=entries, imported_links=links, access=access)
        prepared = semantics.prepare_import(entries, links, access, self.settings)
        if not prepared:
            return 0
        missing = semantics.missing_premises(entries)
        now, limit = clock.now(), self.settings.session_limit
        with self._embedder_gate.use():
            data = index_entries(prepared, self.embedder)
            return self._run_write(
                lambda state: operations.import_entries(
                    state, prepared, data, links, access, missing, now, limit
                ),
                rollback=True,
            )

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Count one use of each of these entries."""
        check_arguments(ids=ids, scope=scope)
        now, used = clock.now(), [*ids]
        self._run_write(lambda state: operations.record_access(state, used, scope, now))

    def link(self, link: Link, scope: Scope) -> Link:
        """Link two entries."""
        check_arguments(link=link, scope=scope)
        now = clock.now()
        return self._run_write(lambda state: operations.add_link(state, link, scope, now))

    def unlink(self, link: Link, scope: Scope) -> bool:
        """Remove a link and return whether it existed."""
        check_arguments(link=link, scope=scope)
        now = clock.now()
        return self._run_write(lambda state: operations.remove_link(state, link, scope, now))

    def erase(
        self, scope: Scope, *, id: str | Sequence[str] | None = None, reason: str | None = None
    ) -> EraseReceipt:
        """Erase one entry or several, or everything in a scope, permanently."""
        check_arguments(scope=scope, erased=id, reason=reason)
        now, reason = clock.now(), self.settings.guard_reason(reason)
        return self._run_write(
            lambda state: operations.erase(
                state, scope, id=id, reason=reason, now=now, unreachable=self.UNREACHABLE
            )
        )

    # Reads

    def list_entries(self, scope: Scope) -> list[Entry]:
        """Return everything in a scope, oldest first."""
        check_arguments(scope=scope)
        return self._run_read(lambda state: operations.list_entries(state, scope))

    def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """Return an entry, as of a moment if one is given."""
        check_arguments(id=id, scope=scope, as_of=as_of)
        return self._run_read(lambda state: operations.get_entry(state, id, scope, as_of))

    def query(self, query: Query) -> Page:
        """Return a page of the entries that pass a filter, newest first."""
        check_arguments(query=query)
        return self._run_read(lambda state: operations.query(state, query))

    def history(self, id: str, scope: Scope) -> list[Version]:
        """Return the versions of an entry, oldest first."""
        check_arguments(id=id, scope=scope)
        return self._run_read(lambda state: operations.history(state, id, scope))

    def access(self, id: str, scope: Scope) -> Access:
        """Return how often an entry was used, and when last."""
        check_arguments(id=id, scope=scope)
        return self._run_read(lambda state: operations.require_entry(state, id, scope).access)

    def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """Return the links from and to an entry, oldest first."""
        check_arguments(id=id, scope=scope, relation=relation)
        return self._run_read(lambda state: operations.links_of(state, id, scope, relation))

    # Documents

    def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """Return a document with its log, or None."""
        check_arguments(kind=kind, id=id, scope=scope)
        return self._run_read(lambda state: operations.load_document(state, kind, id, scope))

    def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """Return the documents of a kind without their logs, ordered by id."""
        check_arguments(kind=kind, scope=scope, limit=limit, after_id=after)
        return self._run_read(lambda state: operations.list_documents(state, kind, scope, limit, after))

    def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Create or replace a document."""
        check_arguments(document=document)
        now = clock.now()
        return self._run_write(lambda state: operations.save_document(state, document, expected_rev, now))

    def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Append items to the log of a document and return its new revision."""
        check_arguments(kind=kind, id=id, entries=entries, scope=scope)
        items = [freeze(item, f"entries[{at}]") for at, item in enumerate(entries)]
        now = clock.now()
        return self._run_write(
            lambda state: operations.append_document(state, kind, id, items, scope, expected_rev, now)
        )

    def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """Acquire or renew the lease of a document; None while another owner holds it."""
        check_arguments(kind=kind, id=id, scope=scope, owner=owner, ttl_ms=ttl_ms)
        place, now = self._place, clock.now()
        return self._run_write(
            lambda state: operations.claim_document(state, place, kind, id, scope, owner, ttl_ms, now)
        )

    def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """End a lease and return whether the owner held it."""
        check_arguments(kind=kind, id=id, scope=scope, owner=owner)
        return self._run_write(lambda state: operations.release_document(state, kind, id, scope, owner))

    def _candidates(
        self, scope: Scope, filter: Filter, at: int, encode_query: QueryEncoder
    ) -> Candidates | None:
        """Build the candidates of a scope for one recall."""
        return self._run_read(
            lambda state: operations.candidates(state, scope, filter, at, encode_query, self.embedder)
        )
