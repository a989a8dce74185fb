"""Check the consistency of a store, compute its statistics, and rebuild its index."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from omoide.core.entry import Entry, Scope, passages_of
from omoide.embedders import Embedder
from omoide.errors import Corrupted, StoreFailed
from omoide.retrieval.text import FEATURES_VERSION, has_parts
from omoide.stores import records, semantics
from omoide.stores.records import Owner, ReindexResult, Stats
from omoide.stores.reindex import (
    LAST_BATCH,
    SPACE_FACTOR,
    ProgressCallback,
    ReindexClaim,
    check_space,
    lost_claim,
)
from omoide.stores.sql import rows
from omoide.stores.sql.database import SLOTS, Database, SQLConnections
from omoide.stores.sql.rows import MODELS_LOCK, VECTORS_LOCK, entries_lock
from omoide.stores.sql.writes import decode_terms

_BATCH = 256
_MAX_SEQ = (1 << 63) - 1
_MAX_PROBLEMS = 20
_DELETED_BATCH = 2_000  # vectors deleted in one transaction, so that neither others nor the log wait for it

_CONSISTENCY_CHECKS = {
    "entries whose owner is unknown": """
        SELECT count(*) FROM entries WHERE owner NOT IN (SELECT no FROM owners)""",
    "postings of entries that do not exist or do not count": """
        SELECT count(*) FROM postings p LEFT JOIN entries e ON e.no = p.no
        WHERE e.no IS NULL OR e.live IN (0, 3) OR e.owner != p.owner""",
    "vectors of entries that do not exist": f"""
        SELECT count(*) FROM vectors WHERE key / {SLOTS} NOT IN (SELECT no FROM entries)""",
    "token vectors without vectors": """
        SELECT count(*) FROM tokens WHERE key NOT IN (SELECT key FROM vectors)""",
    "vectors of unknown embedders": f"""
        SELECT count(*) FROM vectors WHERE key % {SLOTS} NOT IN (SELECT slot FROM models)""",
    "versions of entries that do not exist": """
        SELECT count(*) FROM versions WHERE no NOT IN (SELECT no FROM entries)""",
    "versions that are not older than their entry": """
        SELECT count(*) FROM versions v JOIN entries e ON e.no = v.no WHERE v.rev >= e.rev""",
    "entries with gaps between their versions": """
        SELECT count(*) FROM entries e
        WHERE e.rev - e.first != (SELECT count(*) FROM versions v WHERE v.no = e.no)""",
    "links whose ends do not exist": """
        SELECT count(*) FROM links l WHERE 2 > (SELECT count(*) FROM entries e
        WHERE e.namespace = l.namespace AND e.id IN (l.source, l.target))
        + CASE WHEN l.source = l.target THEN 1 ELSE 0 END""",
    "entries whose last change is not in the log": """
        SELECT count(*) FROM entries e WHERE NOT EXISTS
        (SELECT 1 FROM log l WHERE l.no = e.no AND l.id = e.id AND l.rev = e.rev)""",
    "documents with gaps in their logs": """
        SELECT count(*) FROM (SELECT 1 FROM document_log GROUP BY document
        HAVING min(n) != 1 OR max(n) != count(*)) AS gaps""",
    "documents' entries without a document": """
        SELECT count(*) FROM document_log WHERE document NOT IN (SELECT no FROM documents)""",
}


def check(db: Database) -> list[str]:
    """Return the inconsistencies of a store; empty if it is sound."""
    if not rows.is_index_current(db):
        return ["the terms of all entries are those of another version: reindex"]
    problems = []
    for name, statement in _CONSISTENCY_CHECKS.items():
        count = db.execute(statement).fetchone()[0]
        if count:
            problems.append(f"{name}: {count}")
    for problem in _check_values(db):
        problems.append(problem)
        if len(problems) > _MAX_PROBLEMS:
            return problems
    return problems + rows.check_staleness(db)


def _check_values(db: Database) -> Iterator[str]:
    """Yield what is wrong with single entries, versions and documents."""
    for no, *row in db.execute(f"SELECT no, {rows.ENTRY_COLUMNS} FROM entries"):
        try:
            entry = rows.decode_row(db, row)
        except Corrupted as error:
            yield error.problem
        else:
            yield from _check_entry(db, no, entry)
    for damaged in (*damaged_versions(db), *damaged_documents(db)):
        yield damaged.problem


def damaged_versions(db: Database) -> Iterator[Corrupted]:
    """Yield the errors of the versions that are damaged."""
    for *row, id in db.execute(
        "SELECT v.no, v.rev, v.changed, v.body, v.checksum, e.id FROM versions v"
        " JOIN entries e ON e.no = v.no"
    ):
        try:
            rows.decode_version(db, id, row)
        except Corrupted as error:
            yield error


def damaged_documents(db: Database) -> Iterator[Corrupted]:
    """Yield the errors of the documents, and items of their logs, that are damaged."""
    for row in db.execute(rows.SELECT_DOCUMENTS):
        try:
            rows.decode_document(db, row)
        except Corrupted as error:
            yield error
    for *row, kind, id in db.execute(
        "SELECT l.document, l.n, l.body, l.checksum, d.kind, d.id FROM document_log l"
        " JOIN documents d ON d.no = l.document"
    ):
        try:
            rows.decode_log_item(db, kind, id, row)
        except Corrupted as error:
            yield error


def count_unchecked(db: Database) -> int:
    """Return the number of rows that have no checksum yet."""
    tables = ("entries", "versions", "documents", "document_log")
    counts = " + ".join(f"(SELECT count(*) FROM {table} WHERE checksum IS NULL)" for table in tables)
    return int(db.execute(f"SELECT {counts}").fetchone()[0])


def _check_entry(db: Database, no: int, entry: Entry) -> list[str]:
    """Compare an entry with its columns, index terms and dependencies."""
    columns = db.execute(f"SELECT {rows.ALL_COLUMNS} FROM entries WHERE no=?", (no,)).fetchone()
    owner, at, seq, blob = (columns[position] for position in rows.UNDERIVED)
    problems = []
    if type(owner) is not int:
        return [f"entry {entry.id!r}: its owner is damaged"]
    if rows.owner_name(db, owner) != (entry.namespace, entry.agent_id):
        problems.append(f"entry {entry.id!r}: its owner is another")
    found = records.index_entry(entry)
    if found.features != blob:
        problems.append(f"entry {entry.id!r}: its terms are not those of its text")
    elif rows.entry_columns(entry, owner, at, seq, found)[:-1] != tuple(columns[:-1]):
        problems.append(f"entry {entry.id!r}: its columns differ from its body")
    wanted = set() if entry.superseded_by is not None else {*found.terms}
    for term in wanted:
        row = db.execute(
            "SELECT 1 FROM postings WHERE owner=? AND term=? AND no=?", (owner, term, no)
        ).fetchone()
        if row is None:
            problems.append(f"entry {entry.id!r}: a term is not in the index")
            break
    cursor = db.execute("SELECT id FROM supports WHERE no=? AND present = 1", (no,))
    if {id for (id,) in cursor} != semantics.premises(entry):
        problems.append(f"entry {entry.id!r}: its stored dependencies differ from its evidence")
    return problems


def namespaces(db: Database) -> list[str]:
    """List the namespaces that contain an entry or a document."""
    cursor = db.execute(
        "SELECT namespace FROM owners WHERE EXISTS (SELECT 1 FROM entries WHERE owner = owners.no)"
        " UNION SELECT namespace FROM documents ORDER BY namespace"
    )
    return [name for (name,) in cursor]


def owners(db: Database, scope: Scope, now: int) -> list[Owner]:
    """Count the entries of each user, agent and project in a scope."""
    condition, parameters = rows.scope_condition(db, scope) or ("1=0", [])
    cursor = db.execute(
        "SELECT user_id, agent, project, count(*),"
        " count(CASE WHEN live = 1 AND (expires IS NULL OR expires > ?) THEN 1 END)"
        " FROM entries JOIN owners ON owners.no = entries.owner"
        f" WHERE {condition} GROUP BY user_id, agent, project",
        (now, *parameters),
    )
    return semantics.sorted_owners(scope.namespace, cursor.fetchall())


def stats(db: Database, scope: Scope, now: int, size_bytes: int) -> Stats:
    """Compute the statistics of a scope."""
    condition, parameters = rows.scope_condition(db, scope) or ("1=0", [])
    by_type, entries, live, stale, expired = {}, 0, 0, 0, 0
    for name, count, live_count, stale_count, expired_count in db.execute(
        "SELECT type, count(*), count(CASE WHEN live = 1 THEN 1 END), count(CASE WHEN live = 2 THEN 1 END),"
        " count(CASE WHEN live = 1 AND expires <= ? THEN 1 END)"
        f" FROM entries WHERE {condition} GROUP BY type",
        (now, *parameters),
    ):
        by_type[rows.writable(name)] = count
        entries, live, stale = entries + count, live + live_count, stale + stale_count
        expired += expired_count
    numbers = f"SELECT no FROM entries WHERE {condition}"
    (versions,) = db.execute(f"SELECT count(*) FROM versions WHERE no IN ({numbers})", parameters).fetchone()
    names = f"SELECT id FROM entries WHERE {condition}"
    (links,) = db.execute(
        f"SELECT count(*) FROM links WHERE namespace=? AND source IN ({names})",
        (scope.namespace, *parameters),
    ).fetchone()
    model, without = rows.serving_model(db), 0
    if model is not None:
        (without,) = db.execute(
            f"SELECT count(*) FROM entries e WHERE {condition} AND live = 1 AND NOT EXISTS"
            f" (SELECT 1 FROM vectors v WHERE v.key = e.no * {SLOTS} + ?)",
            (*parameters, model.slot),
        ).fetchone()
    return Stats(
        entries=entries,
        live=live - expired,
        superseded=entries - live - stale,
        stale=stale,
        expired=expired,
        versions=versions + entries,
        links=links,
        by_type=by_type,
        without_vectors=without,
        embedder=None if model is None else model.name,
        unchecked=count_unchecked(db),
        last_seq=rows.latest_change(db, scope.namespace)[1],
        size_bytes=size_bytes,
    )


class SQLReindex:
    """A run that rebuilds the terms and vectors of all entries while the store is in use.

    New vectors are written beside the serving ones, in batches. Once every entry has them, they take over in
    one transaction; then the replaced ones are deleted, again in batches. An interrupted run continues where
    it stopped. What is written meanwhile is embedded at the end.
    """

    def __init__(
        self,
        connections: SQLConnections,
        embedder: Embedder | None,
        progress: ProgressCallback | None = None,
        free_bytes: Callable[[Database], int | None] = lambda _db: None,
    ) -> None:
        self._connections = connections
        self._embedder = embedder
        self._progress = progress
        self._free_bytes = free_bytes
        self._claim = ReindexClaim.create()
        self._model: rows.EmbeddingModel | None = None
        self._embedded = self._updated_terms = 0

    def run(self) -> ReindexResult:
        """Reindex the store.

        Raises:
            Busy: Another run reindexes it.
            DiskFull: The new vectors do not fit beside the old ones.
        """
        with self._connections.write_transaction(MODELS_LOCK) as db:
            self._take_claim(db)
            if self._embedder is not None:
                self._model = rows.add_model(db, self._embedder)
        try:
            self._update_all()
            self._switch()
            self._delete_replaced()
            self._embed_missing()
            with self._connections.read_transaction() as db:
                return self._result(db)
        finally:
            with suppress(StoreFailed):  # the claim ends with this process
                self._release_claim()

    # The claim

    def _take_claim(self, db: Database) -> None:
        row = db.execute("SELECT value FROM settings WHERE name='reindex'").fetchone()
        if row is not None and (other := ReindexClaim.decode(row[0])).is_held(self._connections.name):
            raise other.refusal(self._connections.name)
        rows.put_setting(db, "reindex", self._claim.encode())

    def _renew_claim(self, db: Database) -> None:
        renewed = self._claim.renew()
        cursor = db.execute(
            "UPDATE settings SET value=? WHERE name='reindex' AND value=?",
            (renewed.encode(), self._claim.encode()),
        )
        if cursor.rowcount != 1:
            raise lost_claim(self._connections.name)
        self._claim = renewed

    def _release_claim(self) -> None:
        with self._connections.write_transaction(MODELS_LOCK) as db:
            row = db.execute("SELECT value FROM settings WHERE name='reindex'").fetchone()
            if row is not None and ReindexClaim.decode(row[0]).owner == self._claim.owner:
                db.execute("DELETE FROM settings WHERE name='reindex'")

    # Terms and vectors

    def _update_all(self) -> None:
        """Update all entries once, in batches."""
        with self._connections.read_transaction() as db:
            (total,) = db.execute("SELECT count(*) FROM entries").fetchone()
        last, done, has_room = -1, 0, False
        while True:
            with self._connections.read_transaction() as db:
                batch = db.execute(
                    "SELECT no, body, namespace, features FROM entries WHERE no > ? ORDER BY no LIMIT ?",
                    (last, _BATCH),
                ).fetchall()
                without_vectors = self._without_vectors(db, [row[0] for row in batch])
                without_vectors |= self._undivided(db, [(row[0], row[1], row[3]) for row in batch])
            if not batch:
                return
            todo = self._index([(row[0], row[1], row[2]) for row in batch], without_vectors)
            outdated = [
                item for item, row in zip(todo, batch, strict=True)
                if item.no in without_vectors or item.data.features != bytes(row[3])
            ]  # fmt: skip
            if outdated:
                has_room = has_room or self._check_space(outdated)
                self._write(outdated)
            last, done = batch[-1][0], done + len(batch)
            if self._progress is not None:
                self._progress(done, max(total, done))

    def _without_vectors(self, db: Database, numbers: Sequence[int]) -> set[int]:
        """Return the entries that lack a vector of the embedder."""
        if self._model is None or not numbers:
            return set()
        slot = self._model.slot
        found: set[int] = set()
        for some in rows.batches([no * SLOTS + slot for no in numbers]):
            marks = ",".join("?" * len(some))
            found.update(
                key // SLOTS for (key,) in db.execute(f"SELECT key FROM vectors WHERE key IN ({marks})", some)
            )
        return {*numbers} - found

    def _undivided(self, db: Database, batch: Sequence[tuple[int, bytes, bytes]]) -> set[int]:
        """Return the entries of several parts whose vectors are of the whole, and were not supplied."""
        if self._model is None:
            return set()
        found = {
            no * SLOTS + self._model.slot: no
            for no, body, features in batch
            if not has_parts(bytes(features)) and passages_of(self._decode(no, body))
        }
        if not found:
            return set()
        marks = ",".join("?" * len(found))
        cursor = db.execute(f"SELECT key FROM vectors WHERE given=0 AND key IN ({marks})", [*found])
        return {found[key] for (key,) in cursor}

    def _index(
        self, entries: Sequence[tuple[int, bytes, str]], without_vectors: Collection[int]
    ) -> list[_IndexedRow]:
        """Compute the terms of entries, and the vectors of those that lack them."""
        decoded = [self._decode(no, body) for no, body, _ in entries]
        lacking = [entry for entry, row in zip(decoded, entries, strict=True) if row[0] in without_vectors]
        embedded = iter(records.index_entries(lacking, self._embedder))
        return [
            _IndexedRow(
                no, body, namespace, next(embedded) if no in without_vectors else records.index_entry(entry)
            )
            for entry, (no, body, namespace) in zip(decoded, entries, strict=True)
        ]

    def _decode(self, no: int, body: bytes) -> Entry:
        try:
            return records.decode_entry(body)
        except records.DECODE_ERRORS as error:
            raise records.damaged(self._connections.name, "entry in row", no) from error

    def _check_space(self, first: Sequence[_IndexedRow]) -> bool:
        """Raise `DiskFull` if vectors as large as the first ones do not fit; return True if they do."""
        size = sum(len(item.data.pooled or b"") + len(item.data.tokens or b"") for item in first)
        if self._model is None or not size:
            return False
        texts = sum(len(item.body) for item in first if item.data.pooled)
        with self._connections.read_transaction() as db:
            free = self._free_bytes(db)
            if free is None:
                return True
            (lacking,) = db.execute(
                "SELECT coalesce(sum(length(e.body)), 0) FROM entries e WHERE NOT EXISTS"
                " (SELECT 1 FROM vectors v WHERE v.key = e.no * ? + ?)",
                (SLOTS, self._model.slot),
            ).fetchone()
        check_space(self._connections.name, int(SPACE_FACTOR * size * lacking / texts), free)
        return True

    def _write(self, indexed: Sequence[_IndexedRow]) -> None:
        namespaces = sorted({item.namespace for item in indexed})
        with self._connections.write_transaction(VECTORS_LOCK, *map(entries_lock, namespaces)) as db:
            self._renew_claim(db)
            for item in indexed:
                self._update_index(db, item)

    def _update_index(self, db: Database, item: _IndexedRow) -> None:
        row = db.execute(
            "SELECT owner, live, features FROM entries WHERE no=? AND body=?", (item.no, item.body)
        ).fetchone()
        # Changed meanwhile, or erased and its number given to another: what was read must leave no trace.
        if row is None:
            return
        owner, live, blob = row
        if blob != item.data.features:
            if not semantics.is_superseded(live):
                rows.delete_postings(db, owner, item.no, decode_terms(blob))
                rows.insert_postings(db, item.data.postings(owner, item.no))
            db.execute("UPDATE entries SET features=? WHERE no=?", (item.data.features, item.no))
            self._updated_terms += 1
        if self._model is not None and item.data.pooled is not None:
            rows.put_vectors(db, item.no, self._model, item.data)
            self._embedded += 1

    # The switch

    def _switch(self) -> None:
        """Let the new vectors serve, once no entry lacks one."""
        limit = LAST_BATCH
        while True:
            with self._connections.read_transaction() as db:
                namespaces = {namespace for _, _, namespace in self._rows_to_embed(db, limit + 1)}
            locks = (VECTORS_LOCK._replace(shared=False), *map(entries_lock, sorted(namespaces)))
            with self._connections.write_transaction(*locks) as db:
                db.lock(MODELS_LOCK)
                self._renew_claim(db)
                lacking = self._rows_to_embed(db, limit + 1)
                # Only entries of locked namespaces: no lock may be taken after that of the vectors.
                if len(lacking) <= limit and namespaces.issuperset(row[2] for row in lacking):
                    for item in self._index(lacking, {no for no, _, _ in lacking}):
                        self._update_index(db, item)
                    rows.put_setting(db, "features", str(FEATURES_VERSION))
                    if self._model is not None:
                        rows.activate_model(db, self._model)
                    rows.renew_generation(db)
                    return
            self._embed_missing()
            limit *= 2  # writers that are faster than the embedder wait in the end

    def _embed_missing(self) -> None:
        """Embed what was written meanwhile; what comes while this runs is left."""
        with self._connections.read_transaction() as db:
            (newest,) = db.execute("SELECT coalesce(max(written), 0) FROM entries").fetchone()
            lacking = self._rows_to_embed(db, _BATCH, newest)
        while lacking:
            self._write(self._index(lacking, {no for no, _, _ in lacking}))
            with self._connections.read_transaction() as db:
                lacking = self._rows_to_embed(db, _BATCH, newest)

    def _rows_to_embed(
        self, db: Database, limit: int, newest: int = _MAX_SEQ
    ) -> list[tuple[int, bytes, str]]:
        """Return some entries that lack a vector of the embedder, written up to a sequence number."""
        if self._model is None:
            return []
        cursor = db.execute(
            "SELECT e.no, e.body, e.namespace FROM entries e WHERE e.written <= ? AND NOT EXISTS"
            " (SELECT 1 FROM vectors v WHERE v.key = e.no * ? + ?) ORDER BY e.no DESC LIMIT ?",
            (newest, SLOTS, self._model.slot, limit),
        )
        return [(no, bytes(body), namespace) for no, body, namespace in cursor.fetchall()]

    def _delete_replaced(self) -> None:
        if self._model is None:
            return
        last: int | None = -1
        while last is not None:
            with self._connections.write_transaction(VECTORS_LOCK._replace(shared=False)) as db:
                self._renew_claim(db)
                last = rows.delete_replaced_vectors(db, last, _DELETED_BATCH)

    def _result(self, db: Database) -> ReindexResult:
        (entries,) = db.execute("SELECT count(*) FROM entries").fetchone()
        (given,) = db.execute("SELECT count(*) FROM vectors WHERE given = 1").fetchone()
        model = rows.serving_model(db)
        return ReindexResult(
            embedder=None if model is None else model.name,
            entries=entries,
            embedded=self._embedded,
            updated_terms=self._updated_terms,
            given_vectors=given,
        )


class _IndexedRow(NamedTuple):
    """An entry as it was read, with new index data."""

    no: int
    body: bytes
    namespace: str
    data: records.IndexData
