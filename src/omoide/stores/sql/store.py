"""How does a database answer what a store is asked?"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from omoide import clock
from omoide.core.entry import Entry, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.core.frozen import EMPTY_MAP, freeze
from omoide.embedders import Embedder
from omoide.errors import Invalid, Uncertain
from omoide.stores import recall as recalling
from omoide.stores import validation
from omoide.stores.codec import IndexData, index_entries, index_with_vector
from omoide.stores.records import (
    Access,
    Change,
    Document,
    EraseReceipt,
    Feed,
    Finding,
    Lease,
    Link,
    Page,
    Query,
    Stats,
    Version,
)
from omoide.stores.sql import documents, maintenance, queries, rows, writes
from omoide.stores.sql.database import AdvisoryLock, Database, SQLConnections
from omoide.stores.sql.rows import VECTORS_LOCK, document_locks, entries_lock, namespace_locks
from omoide.stores.validation import StoreSettings, validate_arguments

if TYPE_CHECKING:
    from omoide.stores.sql.candidates import SQLCandidateSource


_log = logging.getLogger("omoide")

_ACCESS_BUFFER_SIZE = 512

_OPEN_STORES: WeakSet[SQLStore] = WeakSet()


@validate_arguments
class SQLStore:
    """Memories in a database, for several threads and processes at once."""

    def __init__(
        self, connections: SQLConnections, embedder: Embedder | None, settings: StoreSettings
    ) -> None:
        self.embedder = embedder
        self.settings = settings
        self._db = connections
        try:
            self._check_embedder()
        except BaseException:
            self._db.close()
            raise
        self._reset()
        _OPEN_STORES.add(self)

    def _reset(self) -> None:
        """Hold nothing in memory yet; also what a forked process does, whose locks may be held for ever."""
        self._pending_access: dict[tuple[int, str], tuple[int, int]] = {}
        self._access_lock = Lock()
        self._source: SQLCandidateSource | None = None
        self._source_lock = Lock()

    def _check_embedder(self) -> None:
        with self._db.read_transaction() as db:
            if self.embedder is not None:
                rows.check_embedder(db, self.embedder, self._db.name)
            if not maintenance.is_index_current(db):
                _log.warning(
                    "%s was indexed by another version of Omoide: recall finds less until it is reindexed "
                    "(omoide reindex)",
                    self._db.name,
                )

    # Writing

    def write(self, request: WriteRequest) -> WriteResult:
        """Keep an entry."""
        return self.write_many([request])[0]

    def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Keep all of these entries, or none."""
        asked = [self.settings.guard_request(request) for request in requests]
        return self._write_all(asked, index_entries([request.entry for request in asked], self.embedder))

    def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Keep an entry that comes with its own vector."""
        asked = self.settings.guard_request(request)
        found = index_with_vector(request.entry, asked.entry, vector, self.embedder)
        return self._write_all([asked], [found])[0]

    def _write_all(self, asked: Sequence[WriteRequest], found: Sequence[IndexData]) -> list[WriteResult]:
        now = clock.now()
        namespaces = {request.entry.namespace for request in asked}
        with self._write_transaction(*self._vector_locks(), *map(entries_lock, sorted(namespaces))) as db:
            model = rows.claim_model(db, self.embedder)
            if model is None and any(one.given for one in found):
                raise Invalid("vector", "is not of the embedder that the store has by now", "open it again")
            batch = writes.WriteBatch(db, model=model, limit=self.settings.session_limit, now=now)
            results = [batch.write(*pair) for pair in zip(asked, found, strict=True)]
            batch.flush_postings()
            return batch.with_current_status(results)

    def _vector_locks(self) -> list[AdvisoryLock]:
        """What those hold who keep vectors."""
        return [] if self.embedder is None else [VECTORS_LOCK]

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
        reason = self.settings.guard_reason(reason)
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.supersede(
                db, id, scope, by=by, reason=reason, expected_rev=expected_rev, now=clock.now()
            )

    def reinstate(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Bring a superseded entry back."""
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.reinstate(db, id, scope, expected_rev=expected_rev, now=clock.now())

    def link(self, link: Link, scope: Scope) -> Link:
        """Keep a link between two entries."""
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.link(db, link, scope, clock.now())

    def unlink(self, link: Link, scope: Scope) -> bool:
        """Remove a link; whether there was one."""
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.unlink(db, link, scope, clock.now())

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Keep entries exactly as they were elsewhere; how many were new."""
        given = validation.prepare_import(entries, links, access, self.settings)
        if not given:
            return 0
        with self._db.read_transaction() as db:
            fresh = writes.not_stored(db, given)
        found = index_entries(fresh, self.embedder)
        now = clock.now()
        with self._db.write_transaction(*self._vector_locks(), entries_lock(given[0].namespace)) as db:
            model, limit = rows.claim_model(db, self.embedder), self.settings.session_limit
            batch = writes.WriteBatch(db, model=model, limit=limit, now=now)
            new = writes.import_entries(db, batch, [*zip(fresh, found, strict=True)], access)
            writes.import_links(db, given[0].namespace, links, now)
            left = writes.insert_missing_tombstones(
                db, given[0].namespace, validation.missing_premises(entries), now
            )
            writes.propagate_import(db, given[0].namespace, new, links, left, now)
            writes.check_sessions(db, new, limit)
            return len(new)

    # Reading

    def recall(self, request: RecallRequest) -> RecallResult:
        """The entries that answer best."""
        if not recalling.has_numpy():
            return recalling.recall_by_words(request, self, self.settings.count_tokens)
        return recalling.recall(request, self._candidate_source(), self.embedder, self.settings.count_tokens)

    def _candidate_source(self) -> SQLCandidateSource:
        from omoide.stores.sql.candidates import SQLCandidateSource  # needs NumPy

        with self._source_lock:
            if self._source is None:
                self._source = SQLCandidateSource(self._db, self.embedder)
            return self._source

    def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first."""
        with self._db.read_transaction() as db:
            return queries.list_entries(db, scope)

    def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """An entry, as it is or as it was."""
        with self._db.read_transaction() as db:
            return queries.get(db, id, scope, as_of)

    def query(self, query: Query) -> Page:
        """The entries that fit, newest first."""
        if queries.is_single_statement(query):
            return self._db.read_once(lambda db: queries.query(db, query))
        with self._db.read_transaction() as db:
            return queries.query(db, query)

    def history(self, id: str, scope: Scope) -> list[Version]:
        """The versions of an entry, oldest first."""
        with self._db.read_transaction() as db:
            return queries.history(db, id, scope)

    def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """The links from and to an entry."""
        with self._db.read_transaction() as db:
            return writes.links(db, id, scope, relation)

    def changes(self, namespace: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """The changes after a sequence number, in the order of their commits."""
        with self._db.read_transaction() as db:
            return queries.changes(db, namespace, after, limit)

    def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """What changed after a sequence number, and what it became; uses noted here count."""
        if self._pending_access:
            with self._write_transaction():
                pass
        with self._db.read_transaction() as db:
            return queries.change_feed(db, namespace, after, limit, used_since)

    def stats(self, scope: Scope) -> Stats:
        """Figures about a scope."""
        with self._db.read_transaction() as db:
            return maintenance.stats(db, scope, clock.now(), self._size_bytes(db))

    # Access figures: buffered, so that reading does not wait for writing

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Note that entries were used."""
        if self.settings.read_only:
            return
        now = clock.now()
        with self._db.read_transaction() as db:
            found = [rows.find(db, scope.namespace, id) for id in ids]
        with self._access_lock:
            for pair in found:
                if pair is not None and scope.contains(pair[1]):
                    key = (pair[0], pair[1].id)
                    count, _ = self._pending_access.get(key, (0, 0))
                    self._pending_access[key] = (count + 1, now)
            full = len(self._pending_access) >= _ACCESS_BUFFER_SIZE
        if full:
            with self._write_transaction():
                pass

    def access(self, id: str, scope: Scope) -> Access:
        """How often an entry was used, and when last; what is not yet written down counts."""
        with self._db.read_transaction() as db:
            no, _ = rows.get(db, id, scope)
            row = db.execute("SELECT count, last FROM access WHERE no=?", (no,)).fetchone()
        kept = Access() if row is None else rows.access_of(*row)
        more, later = self._pending_access.get((no, id), (0, None))
        return Access(count=kept.count + more, last=later or kept.last)

    @contextmanager
    def _write_transaction(self, *locks: AdvisoryLock) -> Iterator[Database]:
        """A block that changes the store, and writes uses down in the end; where it fails, they wait on."""
        noted: dict[tuple[int, str], tuple[int, int]] = {}
        try:
            with self._db.write_transaction(*locks) as db:
                yield db
                if self._pending_access:
                    with self._access_lock:
                        noted, self._pending_access = self._pending_access, {}
                    self._flush_access(db, noted)
        except Uncertain:  # rather too few than twice
            raise
        except BaseException:
            with self._access_lock:
                for key, (count, last) in noted.items():
                    more, later = self._pending_access.get(key, (0, 0))
                    self._pending_access[key] = (count + more, max(last, later))
            raise

    def _flush_access(self, db: Database, pending: Mapping[tuple[int, str], tuple[int, int]]) -> None:
        db.executemany(
            "INSERT INTO access (no, count, last)"
            f" SELECT no, ?, ? FROM entries WHERE no=? AND id=? {db.dialect.key_share_lock}"
            " ON CONFLICT (no) DO UPDATE SET count = access.count + excluded.count,"
            " last = CASE WHEN excluded.last > access.last THEN excluded.last ELSE access.last END",
            [(count, last, no, id) for (no, id), (count, last) in sorted(pending.items())],
        )

    # Erasing and upkeep

    def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in a scope, for good."""
        reason = self.settings.guard_reason(reason)
        holds = [entries_lock(scope.namespace)] if id else [*namespace_locks(scope.namespace)]
        with self._db.write_transaction(*holds) as db:
            receipt = writes.erase(db, scope, id=id, reason=reason, now=clock.now())
        with self._access_lock:  # what is written anew under an id may get the number, too
            gone = {*receipt.ids}
            self._pending_access = {
                key: uses for key, uses in self._pending_access.items() if key[1] not in gone
            }
        return self._scrub_files(receipt)

    def scrub(self) -> EraseReceipt:
        """Clear what erased content may have left in the files."""
        return self._scrub_files(EraseReceipt(at=clock.now(), unreachable=writes.UNREACHABLE))

    def _scrub_files(self, receipt: EraseReceipt) -> EraseReceipt:
        """The receipt, once what was erased is cleared from the files as well as may be."""
        raise NotImplementedError

    def _size_bytes(self, db: Database) -> int:
        """How much room the store takes."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        """What there is to know about the store's upkeep."""
        raise NotImplementedError

    def check(self) -> list[str]:
        """What is wrong with the store; empty when it is sound."""
        with self._db.read_transaction() as db:
            return maintenance.check(db)

    def reindex(
        self, embedder: Embedder | None = None, progress: maintenance.ProgressCallback | None = None
    ) -> None:
        """Give all entries new terms and vectors, by this embedder if one is given, while in use."""
        chosen = embedder or self.embedder
        maintenance.reindex(self._db, chosen, progress)
        with self._source_lock:
            self.embedder, self._source = chosen, None

    def close(self) -> None:
        """Write what is buffered and let go of the file."""
        try:
            if self._pending_access and not self._db.closed:
                with self._write_transaction():
                    pass
        finally:
            self._db.close()

    # Documents

    def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """A document with what was appended to it, or None."""
        with self._db.read_transaction() as db:
            return documents.load(db, kind, id, scope)

    def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace a document."""
        with self._db.write_transaction(
            *document_locks(document.namespace, document.kind, document.id)
        ) as db:
            return documents.save(db, document, expected_rev, clock.now())

    def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Add to a document; its new revision."""
        added = [freeze(item, f"entries[{at}]") for at, item in enumerate(entries)]
        with self._db.write_transaction(*document_locks(scope.namespace, kind, id)) as db:
            return documents.append(db, kind, id, added, scope, expected_rev, clock.now())

    def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """The documents of a kind after the one called `after`, by their ids, without their logs."""
        with self._db.read_transaction() as db:
            return documents.list_documents(db, kind, scope, limit, after)

    def namespaces(self) -> list[str]:
        """The namespaces that hold an entry or a document, in order."""
        with self._db.read_transaction() as db:
            return maintenance.namespaces(db)

    def kinds(self, namespace: str) -> list[str]:
        """The kinds of the documents in a namespace, in order."""
        with self._db.read_transaction() as db:
            return documents.kinds(db, namespace)

    def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """The lease of a document, or None while somebody else holds it."""
        with self._db.write_transaction(*document_locks(scope.namespace, kind, id)) as db:
            return documents.claim(db, kind, id, scope, owner, ttl_ms, clock.now())

    def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Give a lease back; whether the owner held it."""
        with self._db.write_transaction(*document_locks(scope.namespace, kind, id)) as db:
            return documents.release(db, kind, id, scope, owner, clock.now())


def _after_fork() -> None:
    for store in _OPEN_STORES:
        store._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
