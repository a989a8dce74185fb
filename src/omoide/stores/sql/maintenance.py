"""Check the consistency of a store, compute its statistics, and rebuild its index."""

from __future__ import annotations

from collections.abc import Callable

from omoide.core.entry import Scope
from omoide.embedders import Embedder
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores import records, semantics
from omoide.stores.records import Stats
from omoide.stores.sql import rows
from omoide.stores.sql.database import SLOTS, Database, SQLConnections
from omoide.stores.sql.rows import MODELS_LOCK, VECTORS_LOCK, entries_lock
from omoide.stores.sql.writes import decode_terms

ProgressCallback = Callable[[int, int], None]
"""Called with the number of finished and of all steps."""

_BATCH = 256

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
    "documents' entries without a document": """
        SELECT count(*) FROM document_log WHERE document NOT IN (SELECT no FROM documents)""",
}


def is_index_current(db: Database) -> bool:
    """Return True if the stored terms are those of this version of Omoide."""
    row = db.execute("SELECT value FROM settings WHERE name='features'").fetchone()
    return row is None or row[0] == str(FEATURES_VERSION)


def check(db: Database) -> list[str]:
    """Return the inconsistencies of a store; empty if it is sound."""
    if not is_index_current(db):
        return ["the terms of all entries are those of another version: reindex"]
    problems = []
    for name, statement in _CONSISTENCY_CHECKS.items():
        count = db.execute(statement).fetchone()[0]
        if count:
            problems.append(f"{name}: {count}")
    for no, owner, live, body, blob in db.execute("SELECT no, owner, live, body, features FROM entries"):
        problems += _check_entry(db, no, owner, live, body, blob)
        if len(problems) > 20:
            return problems
    return problems + rows.check_staleness(db)


def _check_entry(db: Database, no: int, owner: int, live: int, body: bytes, blob: bytes) -> list[str]:
    """Compare an entry with its index terms and dependencies."""
    entry = records.decode_entry(body)
    problems = []
    if records.features_of(entry).to_bytes() != blob:
        problems.append(f"entry {entry.id!r}: its terms are not those of its text")
    if semantics.is_superseded(live) != (entry.superseded_by is not None):
        problems.append(f"entry {entry.id!r}: row and body disagree on whether it counts")
    wanted = set() if semantics.is_superseded(live) else {*decode_terms(blob)}
    for term in wanted:
        row = db.execute(
            "SELECT 1 FROM postings WHERE owner=? AND term=? AND no=?", (owner, term, no)
        ).fetchone()
        if row is None:
            problems.append(f"entry {entry.id!r}: a term is not in the index")
            break
    cursor = db.execute("SELECT id FROM supports WHERE no=? AND present = 1", (no,))
    if {id for (id,) in cursor} != semantics.premises(entry):
        problems.append(f"entry {entry.id!r}: what it rests on is not noted as it says")
    return problems


def namespaces(db: Database) -> list[str]:
    """List the namespaces that contain an entry or a document."""
    cursor = db.execute(
        "SELECT namespace FROM owners WHERE EXISTS (SELECT 1 FROM entries WHERE owner = owners.no)"
        " UNION SELECT namespace FROM documents ORDER BY namespace"
    )
    return [name for (name,) in cursor]


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
        by_type[name] = count
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
        last_seq=rows.last_seq(db),
        size_bytes=size_bytes,
    )


def reindex(
    connections: SQLConnections, embedder: Embedder | None, progress: ProgressCallback | None = None
) -> rows.EmbeddingModel | None:
    """Rebuild the terms and vectors of all entries while the store is in use.

    New vectors are written beside the serving ones, in batches, and take over once every entry has them.
    An interrupted run continues where it stopped.
    """
    model = None
    with connections.write_transaction(MODELS_LOCK) as db:
        if embedder is not None:
            model = rows.add_model(db, embedder)
        (total,) = db.execute("SELECT count(*) FROM entries").fetchone()
    while True:
        _reindex_pass(connections, embedder, model, total, progress)
        with connections.write_transaction(VECTORS_LOCK._replace(shared=False)) as db:
            db.lock(MODELS_LOCK)
            if embedder is not None:
                model = rows.add_model(db, embedder)  # somebody may have given its place away
            if model is not None and _has_missing_vectors(db, model):
                continue  # somebody wrote meanwhile
            rows.put_setting(db, "features", str(FEATURES_VERSION))
            if model is not None and not model.serving:
                rows.activate_model(db, model)
            rows.renew_generation(db)
            return model


def _reindex_pass(
    connections: SQLConnections,
    embedder: Embedder | None,
    model: rows.EmbeddingModel | None,
    total: int,
    progress: ProgressCallback | None,
) -> None:
    """Reindex all entries once, in batches."""
    last, done = -1, 0
    while True:
        with connections.read_transaction() as db:
            batch = db.execute(
                "SELECT no, body, namespace FROM entries WHERE no > ? ORDER BY no LIMIT ?", (last, _BATCH)
            ).fetchall()
            todo = [row for row in batch if not _is_indexed(db, row[0], row[1], model)]
        if not batch:
            return
        if todo:
            fresh = records.index_entries([records.decode_entry(body) for _, body, _ in todo], embedder)
            namespaces = sorted({namespace for _, _, namespace in todo})
            with connections.write_transaction(VECTORS_LOCK, *map(entries_lock, namespaces)) as db:
                if model is not None and not rows.has_model(db, model):
                    return
                for (no, body, _), indexed in zip(todo, fresh, strict=True):
                    _update_index(db, no, body, indexed, model)
        last, done = batch[-1][0], done + len(batch)
        if progress is not None:
            progress(done, max(total, done))


def _has_missing_vectors(db: Database, model: rows.EmbeddingModel) -> bool:
    cursor = db.execute(
        "SELECT 1 FROM entries e WHERE NOT EXISTS"
        " (SELECT 1 FROM vectors v WHERE v.key = e.no * ? + ?) LIMIT 1",
        (SLOTS, model.slot),
    )
    return cursor.fetchone() is not None


def _is_indexed(db: Database, no: int, body: bytes, model: rows.EmbeddingModel | None) -> bool:
    (blob,) = db.execute("SELECT features FROM entries WHERE no=?", (no,)).fetchone()
    if model is not None:
        key = no * SLOTS + model.slot
        if db.execute("SELECT 1 FROM vectors WHERE key=?", (key,)).fetchone() is None:
            return False
    return bool(records.features_of(records.decode_entry(body)).to_bytes() == blob)


def _update_index(
    db: Database, no: int, body: bytes, fresh: records.IndexData, model: rows.EmbeddingModel | None
) -> None:
    row = db.execute("SELECT owner, live, features FROM entries WHERE no=? AND body=?", (no, body)).fetchone()
    # Changed meanwhile, or erased and its number given to another entry: what was read must leave no trace.
    if row is None:
        return
    owner, live, blob = row
    if blob != fresh.features:
        if not semantics.is_superseded(live):
            rows.delete_postings(db, owner, no, decode_terms(blob))
            rows.insert_postings(db, fresh.postings(owner, no))
        db.execute("UPDATE entries SET features=? WHERE no=?", (fresh.features, no))
    if model is not None:
        rows.put_vectors(db, no, model, fresh)
