"""Does everything agree, how much is there, and how is it renewed?"""

from __future__ import annotations

from collections.abc import Callable

from omoide.core.entry import Scope
from omoide.embedders import Embedder
from omoide.retrieval import features
from omoide.stores import codec
from omoide.stores import truth as standing
from omoide.stores.records import Stats
from omoide.stores.sql import rows, truth
from omoide.stores.sql.database import MODELS, SLOTS, VECTORS, Connections, Database, entries_in
from omoide.stores.sql.writes import terms_in

Progress = Callable[[int, int], None]
"""Told how much of how much is done."""

_BATCH = 256

_AGREE = {
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


def is_current(db: Database) -> bool:
    """Whether the terms in a store are those that this version of Omoide would look for."""
    row = db.execute("SELECT value FROM settings WHERE name='features'").fetchone()
    return row is None or row[0] == str(features.VERSION)


def check(db: Database) -> list[str]:
    """What is wrong with a store: parts that do not agree; empty when it is sound."""
    if not is_current(db):
        return ["the terms of all entries are those of another version: reindex"]
    problems = []
    for name, statement in _AGREE.items():
        count = db.execute(statement).fetchone()[0]
        if count:
            problems.append(f"{name}: {count}")
    for no, owner, live, body, blob in db.execute("SELECT no, owner, live, body, features FROM entries"):
        problems += _check_entry(db, no, owner, live, body, blob)
        if len(problems) > 20:
            return problems
    return problems + truth.check(db)


def _check_entry(db: Database, no: int, owner: int, live: int, body: bytes, blob: bytes) -> list[str]:
    entry = codec.unpack(body)
    problems = []
    if features.read(codec.text_of(entry)).to_bytes() != blob:
        problems.append(f"entry {entry.id!r}: its terms are not those of its text")
    if standing.is_superseded(live) != (entry.superseded_by is not None):
        problems.append(f"entry {entry.id!r}: row and body disagree on whether it counts")
    wanted = set() if standing.is_superseded(live) else {*terms_in(blob)}
    for term in wanted:
        row = db.execute(
            "SELECT 1 FROM postings WHERE owner=? AND term=? AND no=?", (owner, term, no)
        ).fetchone()
        if row is None:
            problems.append(f"entry {entry.id!r}: a term is not in the index")
            break
    noted = db.execute("SELECT id FROM supports WHERE no=? AND present = 1", (no,))
    if {id for (id,) in noted} != standing.premises(entry):
        problems.append(f"entry {entry.id!r}: what it rests on is not noted as it says")
    return problems


def namespaces(db: Database) -> list[str]:
    """The namespaces that hold an entry or a document, in order; an owner whose entries went stays known."""
    found = db.execute(
        "SELECT namespace FROM owners WHERE EXISTS (SELECT 1 FROM entries WHERE owner = owners.no)"
        " UNION SELECT namespace FROM documents ORDER BY namespace"
    )
    return [name for (name,) in found]


def stats(db: Database, scope: Scope, now: int, size_bytes: int) -> Stats:
    """Figures about a scope of a store of some size."""
    condition, parameters = rows.where(db, scope) or ("1=0", [])
    by_type, entries, live, stale, expired = {}, 0, 0, 0, 0
    for name, count, counting, resting, over in db.execute(
        "SELECT type, count(*), count(CASE WHEN live = 1 THEN 1 END), count(CASE WHEN live = 2 THEN 1 END),"
        " count(CASE WHEN live = 1 AND expires <= ? THEN 1 END)"
        f" FROM entries WHERE {condition} GROUP BY type",
        (now, *parameters),
    ):
        by_type[name] = count
        entries, live, stale = entries + count, live + counting, stale + resting
        expired += over
    inside = f"SELECT no FROM entries WHERE {condition}"
    (versions,) = db.execute(f"SELECT count(*) FROM versions WHERE no IN ({inside})", parameters).fetchone()
    names = f"SELECT id FROM entries WHERE {condition}"
    (links,) = db.execute(
        f"SELECT count(*) FROM links WHERE namespace=? AND source IN ({names})",
        (scope.namespace, *parameters),
    ).fetchone()
    model, without = rows.serving(db), 0
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
    connections: Connections, embedder: Embedder | None, progress: Progress | None = None
) -> rows.Model | None:
    """Give every entry new terms, and new vectors beside the ones that serve, a portion at a time.

    Nothing waits for it, and when it is interrupted it goes on where it was; the new vectors take over once
    every entry has them.
    """
    model = None
    with connections.writing(MODELS) as db:
        if embedder is not None:
            model = rows.add(db, embedder)
        (total,) = db.execute("SELECT count(*) FROM entries").fetchone()
    while True:
        _pass(connections, embedder, model, total, progress)
        with connections.writing(VECTORS._replace(shared=False)) as db:
            db.hold(MODELS)
            if embedder is not None:
                model = rows.add(db, embedder)  # somebody may have given its place away
            if model is not None and _is_missing(db, model):
                continue  # somebody wrote meanwhile
            rows.put(db, "features", str(features.VERSION))
            if model is not None and not model.serving:
                rows.take_over(db, model)
            rows.renew(db)
            return model


def _pass(
    connections: Connections,
    embedder: Embedder | None,
    model: rows.Model | None,
    total: int,
    progress: Progress | None,
) -> None:
    last, done = -1, 0
    while True:
        with connections.reading() as db:
            found = db.execute(
                "SELECT no, body, namespace FROM entries WHERE no > ? ORDER BY no LIMIT ?", (last, _BATCH)
            ).fetchall()
            todo = [row for row in found if not _is_done(db, row[0], row[1], model)]
        if not found:
            return
        if todo:
            fresh = codec.index([codec.unpack(body) for _, body, _ in todo], embedder)
            namespaces = sorted({namespace for _, _, namespace in todo})
            with connections.writing(VECTORS, *map(entries_in, namespaces)) as db:
                if model is not None and not rows.is_known(db, model):
                    return
                for (no, body, _), indexed in zip(todo, fresh, strict=True):
                    _renew(db, no, body, indexed, model)
        last, done = found[-1][0], done + len(found)
        if progress is not None:
            progress(done, max(total, done))


def _is_missing(db: Database, model: rows.Model) -> bool:
    found = db.execute(
        "SELECT 1 FROM entries e WHERE NOT EXISTS"
        " (SELECT 1 FROM vectors v WHERE v.key = e.no * ? + ?) LIMIT 1",
        (SLOTS, model.slot),
    )
    return found.fetchone() is not None


def _is_done(db: Database, no: int, body: bytes, model: rows.Model | None) -> bool:
    (blob,) = db.execute("SELECT features FROM entries WHERE no=?", (no,)).fetchone()
    if model is not None:
        key = no * SLOTS + model.slot
        if db.execute("SELECT 1 FROM vectors WHERE key=?", (key,)).fetchone() is None:
            return False
    return bool(features.read(codec.text_of(codec.unpack(body))).to_bytes() == blob)


def _renew(db: Database, no: int, body: bytes, found: codec.Indexed, model: rows.Model | None) -> None:
    row = db.execute("SELECT owner, live, features FROM entries WHERE no=? AND body=?", (no, body)).fetchone()
    # Changed meanwhile, or erased and its number given to another entry: what was read must leave no trace.
    if row is None:
        return
    owner, live, blob = row
    if blob != found.features:
        if not standing.is_superseded(live):
            rows.unpost(db, owner, no, terms_in(blob))
            rows.post(db, found.postings(owner, no))
        db.execute("UPDATE entries SET features=? WHERE no=?", (found.features, no))
    if model is not None:
        rows.put_vectors(db, no, model, found)
