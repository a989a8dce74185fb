"""Store entries in a relational database.

`SQLStore` has every operation of a store, written once for SQLite and PostgreSQL: it validates the arguments,
opens a transaction with the locks the operation needs, and calls the statements in `writes`, `queries`,
`documents` and `maintenance`. Subclasses add what differs: opening, backup, scrubbing, health.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from omoide import clock, forks
from omoide.core.entry import Entry, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.core.frozen import EMPTY_MAP, freeze
from omoide.embedders import Embedder, choose
from omoide.errors import Invalid, Uncertain
from omoide.forks import ForkListener
from omoide.stores import damage, semantics
from omoide.stores import recall as recalling
from omoide.stores.records import (
    Access,
    Change,
    Document,
    EraseReceipt,
    Feed,
    Finding,
    IndexData,
    Lease,
    Link,
    Owner,
    Page,
    Query,
    ReindexResult,
    RepairResult,
    Stats,
    Version,
    check_arguments,
    index_entries,
    index_with_vector,
)
from omoide.stores.reindex import ProgressCallback, bound_notice, outdated_notice
from omoide.stores.semantics import StoreSettings
from omoide.stores.sql import maintenance, queries, rows, writes
from omoide.stores.sql import repair as repairing
from omoide.stores.sql.database import AdvisoryLock, Database, SQLConnections
from omoide.stores.sql.rows import VECTORS_LOCK, document_locks, entries_lock, namespace_locks

if TYPE_CHECKING:
    from omoide.stores.sql.candidates import SQLCandidateSource

_log = logging.getLogger("omoide")

_ACCESS_BUFFER_SIZE = 512

AccessCounts = dict[tuple[int, str], tuple[int, int]]
"""By entry number and id, how often an entry was used and when last."""


class AccessBuffer:
    """Access counts that are not yet written, so that reading need not wait for a write transaction."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts: AccessCounts = {}

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: tuple[int, str], count: int, last: int) -> None:
        """Count uses of an entry."""
        with self._lock:
            earlier, latest = self._counts.get(key, (0, 0))
            self._counts[key] = (earlier + count, max(last, latest))

    def get(self, key: tuple[int, str]) -> tuple[int, int | None]:
        """Return the buffered count of an entry and when it was last used."""
        return self._counts.get(key, (0, None))

    def discard(self, ids: Collection[str]) -> None:
        """Drop the counts of erased entries, whose numbers may be given to others."""
        with self._lock:
            self._counts = {key: uses for key, uses in self._counts.items() if key[1] not in ids}

    @contextmanager
    def drain(self) -> Iterator[Callable[[], AccessCounts]]:
        """Yield a function that takes all counts out; put them back if the block fails.

        Take them last in the write transaction: until then other threads see them, and erasing drops them.
        """
        taken: AccessCounts = {}

        def take() -> AccessCounts:
            with self._lock:
                taken.update(self._counts)
                self._counts = {}
            return taken

        try:
            yield take
        except Uncertain:  # the commit may have succeeded: counting too few is better than counting twice
            raise
        except BaseException:
            for key, (count, last) in taken.items():
                self.add(key, count, last)
            raise


class SQLStore(ForkListener):
    """A store in a database, safe for several threads and processes at once."""

    def __init__(
        self, connections: SQLConnections, embedder: Embedder | None, settings: StoreSettings
    ) -> None:
        self.embedder = embedder
        self.settings = settings
        self._db = connections
        try:
            self._check_index()
        except BaseException:
            self._db.close()
            raise
        self._reset()
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Start with empty buffers and free locks; what was buffered is the parent's to write."""
        self._reset()

    def _reset(self) -> None:
        self._access = AccessBuffer()
        self._source: SQLCandidateSource | None = None
        self._source_lock = Lock()

    def _check_index(self) -> None:
        """Log what keeps recall from finding all that it could."""
        with self._db.read_transaction() as db:
            other = rows.other_model(db, self.embedder)
            is_current = rows.is_index_current(db)
        if other is not None and self.embedder is not None:
            _log.warning("%s: %s", self._db.name, bound_notice(self._db.name, other.name, self.embedder))
        elif not is_current:
            _log.warning("%s: %s", self._db.name, outdated_notice(self._db.name))

    # Writing

    def write(self, request: WriteRequest) -> WriteResult:
        """Write an entry."""
        check_arguments(write_request=request)
        return self._write_many([request])[0]

    def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Write all entries in one transaction, or none."""
        check_arguments(requests=requests)
        return self._write_many(requests)

    def _write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        guarded = [self.settings.guard_request(request) for request in requests]
        return self._write_all(guarded, index_entries([request.entry for request in guarded], self.embedder))

    def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Write an entry with a vector computed elsewhere."""
        check_arguments(write_request=request)
        guarded = self.settings.guard_request(request)
        indexed = index_with_vector(request.entry, guarded.entry, vector, self.embedder)
        return self._write_all([guarded], [indexed])[0]

    def _write_all(self, requests: Sequence[WriteRequest], indexed: Sequence[IndexData]) -> list[WriteResult]:
        now = clock.now()
        namespaces = {request.entry.namespace for request in requests}
        locks = (*self._vector_locks(), *map(entries_lock, sorted(namespaces)))
        with self._access.drain() as take_access, self._db.write_transaction(*locks) as db:
            model = rows.claim_model(db, self.embedder)
            if model is None and any(data.given for data in indexed):
                raise Invalid(
                    "vector", "is not of the embedder that the store has", "reindex the store first"
                )
            batch = writes.WriteBatch(db, model=model, limit=self.settings.session_limit, now=now)
            results = [batch.write(*pair) for pair in zip(requests, indexed, strict=True)]
            batch.flush_postings()
            writes.save_access(db, take_access())  # in the same transaction, which costs no commit of its own
            return batch.with_current_status(results)

    def _vector_locks(self) -> list[AdvisoryLock]:
        """Return the locks that writers of vectors take."""
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
        """Mark an entry as superseded by another one, or forgotten."""
        check_arguments(id=id, scope=scope, by=by, reason=reason)
        reason = self.settings.guard_reason(reason)
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.supersede(
                db, id, scope, by=by, reason=reason, expected_rev=expected_rev, now=clock.now()
            )

    def reinstate(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Make a superseded entry current again."""
        check_arguments(id=id, scope=scope)
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.reinstate(db, id, scope, expected_rev=expected_rev, now=clock.now())

    def link(self, link: Link, scope: Scope) -> Link:
        """Store a link between two entries."""
        check_arguments(link=link, scope=scope)
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.link(db, link, scope, clock.now())

    def unlink(self, link: Link, scope: Scope) -> bool:
        """Delete a link; return False if it did not exist."""
        check_arguments(link=link, scope=scope)
        with self._db.write_transaction(entries_lock(scope.namespace)) as db:
            return writes.unlink(db, link, scope, clock.now())

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Store entries of another store unchanged; return how many were new."""
        check_arguments(imported_entries=entries, imported_links=links, access=access)
        guarded = semantics.prepare_import(entries, links, access, self.settings)
        if not guarded:
            return 0
        with self._db.read_transaction() as db:
            fresh = writes.not_stored(db, guarded)
        indexed = index_entries(fresh, self.embedder)
        now = clock.now()
        with self._db.write_transaction(*self._vector_locks(), entries_lock(guarded[0].namespace)) as db:
            model, limit = rows.claim_model(db, self.embedder), self.settings.session_limit
            batch = writes.WriteBatch(db, model=model, limit=limit, now=now)
            new = writes.import_entries(db, batch, [*zip(fresh, indexed, strict=True)], access)
            writes.import_links(db, guarded[0].namespace, links, now)
            missing = writes.insert_missing_tombstones(
                db, guarded[0].namespace, semantics.missing_premises(entries), now
            )
            writes.propagate_import(db, guarded[0].namespace, new, links, missing, now)
            writes.check_sessions(db, new, limit)
            return len(new)

    # Reading

    def recall(self, request: RecallRequest) -> RecallResult:
        """Return the best matching entries."""
        check_arguments(recall_request=request)
        if not recalling.has_numpy():
            return recalling.recall_by_words(request, self, self.settings)
        return recalling.recall(request, self._candidate_source(), self.embedder, self.settings)

    def _candidate_source(self) -> SQLCandidateSource:
        from omoide.stores.sql.candidates import SQLCandidateSource  # needs NumPy

        with self._source_lock:
            if self._source is None:
                self._source = SQLCandidateSource(self._db, self.embedder)
            return self._source

    def list_entries(self, scope: Scope) -> list[Entry]:
        """List all entries of a scope, oldest first."""
        check_arguments(scope=scope)
        with self._db.read_transaction() as db:
            return queries.list_entries(db, scope)

    def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """Return an entry, as it is or as it was at a time."""
        check_arguments(id=id, scope=scope, as_of=as_of)
        with self._db.read_transaction() as db:
            return queries.get(db, id, scope, as_of)

    def query(self, query: Query) -> Page:
        """Return one page of the entries that match, newest first."""
        check_arguments(query=query)
        if queries.is_single_statement(query):
            return self._db.read_once(lambda db: queries.query(db, query))
        with self._db.read_transaction() as db:
            return queries.query(db, query)

    def history(self, id: str, scope: Scope) -> list[Version]:
        """Return the versions of an entry, oldest first."""
        check_arguments(id=id, scope=scope)
        with self._db.read_transaction() as db:
            return queries.history(db, id, scope)

    def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """Return the links from and to an entry."""
        check_arguments(id=id, scope=scope, relation=relation)
        with self._db.read_transaction() as db:
            return writes.links(db, id, scope, relation)

    def changes(
        self,
        namespace: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = 1000,
        scope: Scope | None = None,
    ) -> list[Change]:
        """Return the changes after a sequence number, in commit order."""
        check_arguments(namespace=namespace, after=after, until=until, limit=limit, optional_scope=scope)
        with self._db.read_transaction() as db:
            return queries.changes(db, namespace, after, until, limit, scope)

    def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """Return what changed after a sequence number and its current state."""
        check_arguments(namespace=namespace, after=after, limit=limit, used_since=used_since)
        self._flush_access()
        with self._db.read_transaction() as db:
            return queries.change_feed(db, namespace, after, limit, used_since)

    def stats(self, scope: Scope) -> Stats:
        """Return statistics of a scope."""
        check_arguments(scope=scope)
        with self._db.read_transaction() as db:
            found = maintenance.stats(db, scope, clock.now(), self._size_bytes(db))
            return found.replace(set_aside=len(self._set_aside_files(db)))

    def owners(self, scope: Scope) -> list[Owner]:
        """Return the users, agents and projects that have entries in a scope."""
        check_arguments(scope=scope)
        with self._db.read_transaction() as db:
            return maintenance.owners(db, scope, clock.now())

    # Access figures: buffered, so that reading does not wait for writing

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Count one use of each entry."""
        check_arguments(ids=ids, scope=scope)
        if self.settings.read_only:
            return
        now = clock.now()
        with self._db.read_transaction() as db:
            matches = [rows.find(db, scope.namespace, id) for id in ids]
        for match in matches:
            if match is not None and scope.contains(match[1]):
                self._access.add((match[0], match[1].id), 1, now)
        if len(self._access) >= _ACCESS_BUFFER_SIZE:
            self._flush_access()

    def access(self, id: str, scope: Scope) -> Access:
        """Return how often an entry was used, including uses not yet written."""
        check_arguments(id=id, scope=scope)
        with self._db.read_transaction() as db:
            no, _ = rows.get(db, id, scope)
            row = db.execute("SELECT count, last FROM access WHERE no=?", (no,)).fetchone()
        written = Access() if row is None else rows.access_of(*row)
        count, last = self._access.get((no, id))
        return Access(count=written.count + count, last=last or written.last)

    def _flush_access(self) -> None:
        """Write the buffered access counts."""
        if self._access:
            with self._access.drain() as take_access, self._db.write_transaction() as db:
                writes.save_access(db, take_access())

    # Erasing and upkeep

    def erase(
        self, scope: Scope, *, id: str | Sequence[str] | None = None, reason: str | None = None
    ) -> EraseReceipt:
        """Erase one entry or several, or everything in a scope, permanently."""
        check_arguments(scope=scope, erased=id, reason=reason)
        reason = self.settings.guard_reason(reason)
        locks = [*namespace_locks(scope.namespace)] if id is None else [entries_lock(scope.namespace)]
        with self._db.write_transaction(*locks) as db:
            receipt = writes.erase(db, scope, id=id, reason=reason, now=clock.now())
            aside = damage.file_notices(self._set_aside_files(db))
            receipt = receipt.replace(unreachable=(*receipt.unreachable, *aside))
        self._access.discard({*receipt.ids})
        return self._scrub_files(receipt, thorough=False)

    def scrub(self) -> EraseReceipt:
        """Remove what erased content may have left in the files."""
        receipt = EraseReceipt(at=clock.now(), unreachable=writes.UNREACHABLE)
        return self._scrub_files(receipt, thorough=True)

    def _scrub_files(self, receipt: EraseReceipt, *, thorough: bool) -> EraseReceipt:
        """Remove erased content from the files; return the completed receipt.

        Args:
            receipt: What was erased.
            thorough: Do it however long it takes; otherwise only what an erasure may wait for.
        """
        raise NotImplementedError

    def _size_bytes(self, db: Database) -> int:
        """Return the size of the store in bytes."""
        raise NotImplementedError

    def findings(self) -> list[Finding]:
        """Return findings about the health of the store."""
        raise NotImplementedError

    def check(self) -> list[str]:
        """Return the inconsistencies of the store; empty if it is sound."""
        with self._db.read_transaction() as db:
            return maintenance.check(db)

    def repair(self, path: Path | None = None) -> RepairResult:
        """Set damaged rows aside in a file, and rebuild what is derived from the others.

        Raises:
            Invalid: There are damaged rows and no path for them.
        """
        with self._db.write_transaction(*self._repair_locks()) as db:
            return repairing.repair(db, path)

    def _repair_locks(self) -> list[AdvisoryLock]:
        """Return the locks on all that a repair may change."""
        with self._db.read_transaction() as db:
            namespaces = maintenance.namespaces(db)
        locks = [lock for namespace in namespaces for lock in namespace_locks(namespace)]
        return [VECTORS_LOCK._replace(shared=False), *locks]

    def set_aside_files(self) -> list[str]:
        """Return the files with rows that a repair set aside, until they are deleted."""
        with self._db.read_transaction() as db:
            return self._set_aside_files(db)

    def _set_aside_files(self, db: Database) -> list[str]:
        """Return the files with rows that a repair set aside."""
        return repairing.files(db)

    def reindex(self, embedder: Any = None, progress: ProgressCallback | None = None) -> ReindexResult:
        """Rebuild terms and vectors of all entries while the store is in use."""
        chosen = self.embedder if embedder is None else choose(embedder)
        result = maintenance.SQLReindex(self._db, chosen, progress, self._free_bytes).run()
        with self._source_lock:
            self.embedder, self._source = chosen, None
        return result

    def _free_bytes(self, db: Database) -> int | None:
        """Return the room for new vectors in bytes; None if it cannot be known."""
        return None

    def close(self) -> None:
        """Flush buffered access counts and close the database."""
        try:
            if not self._db.closed:
                self._flush_access()
        finally:
            self._db.close()

    # Documents

    def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """Return a document with its log, or None."""
        check_arguments(kind=kind, id=id, scope=scope)
        with self._db.read_transaction() as db:
            return rows.load_document(db, kind, id, scope)

    def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace a document and its log."""
        check_arguments(document=document)
        with self._db.write_transaction(
            *document_locks(document.namespace, document.kind, document.id)
        ) as db:
            return rows.save_document(db, document, expected_rev, clock.now())

    def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Append to the log of a document; return the new revision."""
        check_arguments(kind=kind, id=id, entries=entries, scope=scope)
        added = [freeze(item, f"entries[{at}]") for at, item in enumerate(entries)]
        with self._db.write_transaction(*document_locks(scope.namespace, kind, id)) as db:
            return rows.append_to_document(db, kind, id, added, scope, expected_rev, clock.now())

    def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """List documents of a kind by id, without their logs."""
        check_arguments(kind=kind, scope=scope, limit=limit, after_id=after)
        with self._db.read_transaction() as db:
            return queries.list_documents(db, kind, scope, limit, after)

    def namespaces(self) -> list[str]:
        """List the namespaces that contain an entry or a document."""
        with self._db.read_transaction() as db:
            return maintenance.namespaces(db)

    def kinds(self, namespace: str) -> list[str]:
        """List the kinds of documents in a namespace."""
        check_arguments(namespace=namespace)
        with self._db.read_transaction() as db:
            return queries.document_kinds(db, namespace)

    def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """Acquire or renew the lease of a document; return None while another owner holds it."""
        check_arguments(kind=kind, id=id, scope=scope, owner=owner, ttl_ms=ttl_ms)
        with self._db.write_transaction(*document_locks(scope.namespace, kind, id)) as db:
            return rows.claim_lease(db, self._db.name, kind, id, scope, owner, ttl_ms, clock.now())

    def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Release a lease; return False if the owner did not hold it."""
        check_arguments(kind=kind, id=id, scope=scope, owner=owner)
        with self._db.write_transaction(*document_locks(scope.namespace, kind, id)) as db:
            return rows.release_lease(db, kind, id, scope, owner)
