"""Is the file sound, how full is it, and how is it renewed?"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from omoide import ids
from omoide.core.scope import Scope
from omoide.embedders import Embedder
from omoide.errors import Corrupted, StoreFailed
from omoide.retrieval import features
from omoide.stores import bodies, indexing, standing
from omoide.stores.records import Stats
from omoide.stores.sqlite import models, rows, schema, truth
from omoide.stores.sqlite.connections import Connections, make_private
from omoide.stores.sqlite.failures import translating
from omoide.stores.sqlite.schema import SLOTS
from omoide.stores.sqlite.writing import terms_in

Progress = Callable[[int, int], None]
"""Told how much of how much is done."""

_BATCH = 256

_AGREE = {
    "entries whose owner is unknown": """
        SELECT count(*) FROM entries WHERE owner NOT IN (SELECT no FROM owners)""",
    "postings of entries that do not exist or do not count": """
        SELECT count(*) FROM postings p LEFT JOIN entries e ON e.no = p.no
        WHERE e.no IS NULL OR e.live IN (0, 3) OR e.owner != p.owner""",
    "vectors of entries that do not exist": """
        SELECT count(*) FROM vectors WHERE key / :slots NOT IN (SELECT no FROM entries)""",
    "token vectors without vectors": """
        SELECT count(*) FROM tokens WHERE key NOT IN (SELECT key FROM vectors)""",
    "vectors of unknown embedders": """
        SELECT count(*) FROM vectors WHERE key % :slots NOT IN (SELECT slot FROM models)""",
    "versions of entries that do not exist": """
        SELECT count(*) FROM versions WHERE no NOT IN (SELECT no FROM entries)""",
    "versions that are not older than their entry": """
        SELECT count(*) FROM versions v JOIN entries e ON e.no = v.no WHERE v.rev >= e.rev""",
    "entries with gaps between their versions": """
        SELECT count(*) FROM entries e
        WHERE e.rev - e.first != (SELECT count(*) FROM versions v WHERE v.no = e.no)""",
    "links whose ends do not exist": """
        SELECT count(*) FROM links l WHERE 2 > (SELECT count(*) FROM entries e
        WHERE e.namespace = l.namespace AND e.id IN (l.source, l.target)) + (l.source = l.target)""",
    "entries whose last change is not in the log": """
        SELECT count(*) FROM entries e WHERE NOT EXISTS
        (SELECT 1 FROM log l WHERE l.no = e.no AND l.id = e.id AND l.rev = e.rev)""",
    "documents' entries without a document": """
        SELECT count(*) FROM document_log WHERE document NOT IN (SELECT no FROM documents)""",
}


def is_current(db: sqlite3.Connection) -> bool:
    """Whether the terms in a file are those that this version of Omoide would look for."""
    row = db.execute("SELECT value FROM settings WHERE name='features'").fetchone()
    return row is None or row[0] == str(features.VERSION)


def check(db: sqlite3.Connection) -> list[str]:
    """What is wrong with a file: damage, and parts that do not agree; empty when it is sound."""
    problems = [text for (text,) in db.execute("PRAGMA integrity_check(20)") if text != "ok"]
    if not is_current(db):
        problems.append("the terms of all entries are those of another version: reindex")
        return problems
    for name, statement in _AGREE.items():
        count = db.execute(statement, {"slots": SLOTS}).fetchone()[0]
        if count:
            problems.append(f"{name}: {count}")
    for no, owner, live, body, blob in db.execute("SELECT no, owner, live, body, features FROM entries"):
        problems += _check_entry(db, no, owner, live, body, blob)
        if len(problems) > 20:
            return problems
    return problems + truth.check(db)


def _check_entry(
    db: sqlite3.Connection, no: int, owner: int, live: int, body: bytes, blob: bytes
) -> list[str]:
    entry = bodies.unpack(body)
    problems = []
    if features.read(indexing.text_of(entry)).to_bytes() != blob:
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


def namespaces(db: sqlite3.Connection) -> list[str]:
    """The namespaces that hold an entry or a document, in order; an owner whose entries went stays known."""
    found = db.execute(
        "SELECT namespace FROM owners WHERE EXISTS (SELECT 1 FROM entries WHERE owner = owners.no)"
        " UNION SELECT namespace FROM documents ORDER BY namespace"
    )
    return [name for (name,) in found]


def stats(db: sqlite3.Connection, scope: Scope, now: int) -> Stats:
    """Figures about a scope."""
    condition, parameters = rows.where(db, scope) or ("0", [])
    by_type, entries, live, stale, expired = {}, 0, 0, 0, 0
    for name, count, counting, resting, over in db.execute(
        "SELECT type, count(*), sum(live = 1), sum(live = 2),"
        " sum(live = 1 AND expires IS NOT NULL AND expires <= ?)"
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
    model, without = models.serving(db), 0
    if model is not None:
        (without,) = db.execute(
            f"SELECT count(*) FROM entries e WHERE {condition} AND live = 1 AND NOT EXISTS"
            f" (SELECT 1 FROM vectors v WHERE v.key = e.no * {SLOTS} + ?)",
            (*parameters, model.slot),
        ).fetchone()
    pages, size = (db.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
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
        size_bytes=pages * size,
    )


def backup(connections: Connections, target: Path, progress: Progress | None) -> None:
    """Copy the whole store to another file while it is in use."""
    if target.exists():
        raise StoreFailed(str(target), "exists already", "choose another path, or remove it first")
    part = target.with_name(f"{target.name}.{ids.uuid7()[-8:]}.part")
    try:
        with connections.reading() as db, translating(str(part)):
            rows.last_seq(db)  # from now on one state is seen, whoever writes meanwhile
            _copy(db, part, progress)
        part.rename(target)
    except OSError as error:
        raise StoreFailed(str(target), f"cannot be written ({error})", "choose another path") from error
    finally:
        if part.is_file():
            part.unlink()


def _copy(db: sqlite3.Connection, target: Path, progress: Progress | None) -> None:
    make_private(target)
    with closing(sqlite3.connect(target)) as copy:
        db.backup(copy, pages=2_000, progress=_told(progress))
        copy.execute("PRAGMA journal_mode = DELETE")


def restore_backup(connections: Connections, source: Path, progress: Progress | None) -> None:
    """Put a backup in the place of everything that the store holds, at one stroke."""
    if not source.is_file():
        raise StoreFailed(str(source), "does not exist", "name a file that backup() wrote")
    if source.samefile(connections.path):
        raise StoreFailed(str(source), "is the store itself", "name a file that backup() wrote")
    fresh = connections.path.with_name(f"{connections.path.name}.{ids.uuid7()[-8:]}.restored")
    try:
        with translating(str(source)), closing(_opened(source)) as kept:
            _check_backup(kept, source)
            _copy(kept, fresh, None)
        # What others hold in memory must not outlive the copy: the copy is another life of the file.
        with translating(str(fresh)), closing(sqlite3.connect(fresh, isolation_level=None)) as copy:
            copy.execute("BEGIN")
            truth.carry(copy, schema.migrate(copy, str(fresh)))
            models.renew(copy)
            copy.execute("COMMIT")
            with connections.alone() as db:
                copy.backup(db, pages=-1)
                db.execute("PRAGMA journal_mode = WAL")  # the copy's header said otherwise
    finally:
        fresh.unlink(missing_ok=True)
    if progress is not None:
        progress(1, 1)


def _check_backup(db: sqlite3.Connection, source: Path) -> None:
    schema.check_ours(db, str(source))
    damage = [text for (text,) in db.execute("PRAGMA integrity_check(5)") if text != "ok"]
    if damage or not schema.version(db):
        problem = "; ".join(damage) or "it is empty"
        raise Corrupted(str(source), f"is no sound backup ({problem})", "use another")


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)


def _told(progress: Progress | None) -> Callable[[int, int, int], None] | None:
    if progress is None:
        return None
    return lambda _status, remaining, total: progress(total - remaining, total)


def reindex(
    connections: Connections, embedder: Embedder | None, progress: Progress | None = None
) -> models.Model | None:
    """Give every entry new terms, and new vectors beside the ones that serve, a portion at a time.

    Nothing waits for it, and when it is interrupted it goes on where it was; the new vectors take over once
    every entry has them.
    """
    model = None
    with connections.writing() as db:
        if embedder is not None:
            model = models.add(db, embedder)
        (total,) = db.execute("SELECT count(*) FROM entries").fetchone()
    while True:
        _pass(connections, embedder, model, total, progress)
        with connections.writing() as db:
            if model is not None and _is_missing(db, model):
                continue  # somebody wrote meanwhile
            db.execute("INSERT OR REPLACE INTO settings VALUES ('features', ?)", (str(features.VERSION),))
            if model is not None and not model.serving:
                models.take_over(db, model)
            models.renew(db)
            return model


def _pass(
    connections: Connections,
    embedder: Embedder | None,
    model: models.Model | None,
    total: int,
    progress: Progress | None,
) -> None:
    last, done = -1, 0
    while True:
        with connections.reading() as db:
            found = db.execute(
                "SELECT no, body FROM entries WHERE no > ? ORDER BY no LIMIT ?", (last, _BATCH)
            ).fetchall()
            todo = [row for row in found if not _is_done(db, row[0], row[1], model)]
        if not found:
            return
        if todo:
            fresh = indexing.index([bodies.unpack(body) for _, body in todo], embedder)
            with connections.writing() as db:
                for (no, body), indexed in zip(todo, fresh, strict=True):
                    _renew(db, no, body, indexed, model)
        last, done = found[-1][0], done + len(found)
        if progress is not None:
            progress(done, max(total, done))


def _is_missing(db: sqlite3.Connection, model: models.Model) -> bool:
    found = db.execute(
        "SELECT 1 FROM entries e WHERE NOT EXISTS"
        " (SELECT 1 FROM vectors v WHERE v.key = e.no * ? + ?) LIMIT 1",
        (SLOTS, model.slot),
    )
    return found.fetchone() is not None


def _is_done(db: sqlite3.Connection, no: int, body: bytes, model: models.Model | None) -> bool:
    (blob,) = db.execute("SELECT features FROM entries WHERE no=?", (no,)).fetchone()
    if model is not None:
        key = no * SLOTS + model.slot
        if db.execute("SELECT 1 FROM vectors WHERE key=?", (key,)).fetchone() is None:
            return False
    return bool(features.read(indexing.text_of(bodies.unpack(body))).to_bytes() == blob)


def _renew(
    db: sqlite3.Connection, no: int, body: bytes, found: indexing.Indexed, model: models.Model | None
) -> None:
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
        rows.put_vectors(db, no, model.slot, found)
