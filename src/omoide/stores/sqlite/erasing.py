"""How does content leave the file for good?

The file is opened with secure_delete, so what is deleted is overwritten; what the write-ahead log still holds
goes when it is emptied, which waits for readers.
"""

from __future__ import annotations

import sqlite3

import msgspec

from omoide.core.scope import Scope
from omoide.stores import bodies, rules
from omoide.stores.records import EraseReceipt
from omoide.stores.sqlite import rows
from omoide.stores.sqlite.writing import terms_in

_PATIENCE_MS = 300  # for readers; whoever reads longer leaves something for scrub()

_NAMED = 20

UNREACHABLE = ("backups made before", "exports and copies", "what other programs read")


def erase(
    db: sqlite3.Connection, scope: Scope, *, id: str | None, reason: str | None, now: int
) -> EraseReceipt:
    """Remove an entry, or all that a scope holds."""
    if id is not None:
        numbers = [rows.get(db, id, scope)[0]]
        documents = 0
    else:
        condition, parameters = rows.where(scope, rows.owners_in(db, scope))
        found = db.execute(f"SELECT no FROM entries WHERE {condition} ORDER BY no", parameters)
        numbers = [no for (no,) in found.fetchall()]
        documents = _erase_documents(db, scope)
    ids, versions, links = [], 0, 0
    for no in numbers:
        name, old, cut = _erase_one(db, no, scope.namespace, reason, now)
        ids.append(name)
        versions += old
        links += cut
    return EraseReceipt(
        ids=tuple(ids),
        versions=versions,
        links=links,
        documents=documents,
        at=now,
        reason=reason,
        unreachable=(*_quoting(db, scope, ids), *UNREACHABLE),
    )


def _quoting(db: sqlite3.Connection, scope: Scope, ids: list[str]) -> list[str]:
    """What is left in the store that may repeat what was erased."""
    found = []
    for id in ids[:_NAMED]:
        named = db.execute(
            "SELECT body FROM entries WHERE namespace=? AND instr(body, ?) > 0 LIMIT ?",
            (scope.namespace, msgspec.json.encode(id), _NAMED),
        )
        entries = [bodies.unpack(body) for (body,) in named]
        found += [f"entry {e.id!r}, whose evidence is {id!r}" for e in entries if rules.rests_on(e, id)]
    (documents,) = db.execute(
        "SELECT count(*) FROM documents WHERE namespace=?", (scope.namespace,)
    ).fetchone()
    if ids and documents:
        found.append(f"documents of the namespace that may quote it: {documents}")
    return found


def _erase_one(
    db: sqlite3.Connection, no: int, namespace: str, reason: str | None, now: int
) -> tuple[str, int, int]:
    owner, live, blob, body = db.execute(
        "SELECT owner, live, features, body FROM entries WHERE no=?", (no,)
    ).fetchone()
    entry = bodies.unpack(body)
    if live:
        rows.unpost(db, owner, no, terms_in(blob))
    rows.drop_vectors(db, no)
    versions = db.execute("DELETE FROM versions WHERE no=?", (no,)).rowcount + 1
    links = db.execute(
        "DELETE FROM links WHERE namespace=? AND (source=? OR target=?)", (namespace, entry.id, entry.id)
    ).rowcount
    db.execute("DELETE FROM access WHERE no=?", (no,))
    db.execute("DELETE FROM receipts WHERE namespace=? AND id=?", (namespace, entry.id))
    db.execute("DELETE FROM entries WHERE no=?", (no,))
    db.execute(
        "INSERT INTO tombstones VALUES (?,?,?,?,?,?,?,?)",
        (namespace, entry.id, entry.agent_id, entry.session_id, entry.project_id, entry.rev, now, reason),
    )
    rows.log(db, entry, no, "erase", now)
    return entry.id, versions, links


def _erase_documents(db: sqlite3.Connection, scope: Scope) -> int:
    """Documents belong to an agent and a session, never to a project."""
    if scope.project_id is not None:
        return 0
    condition, parameters = "namespace=?", [scope.namespace]
    for column, value in (("agent", scope.agent_id), ("session", scope.session_id)):
        if value is not None:
            condition += f" AND {column}=?"
            parameters.append(value)
    found = db.execute(f"SELECT no FROM documents WHERE {condition}", parameters).fetchall()
    db.executemany("DELETE FROM document_log WHERE document=?", found)
    db.executemany("DELETE FROM documents WHERE no=?", found)
    return len(found)


def empty_log(db: sqlite3.Connection) -> bool:
    """Empty the write-ahead log, outside of a transaction; whether nobody stood in the way."""
    (patience,) = db.execute("PRAGMA busy_timeout").fetchone()
    db.execute(f"PRAGMA busy_timeout = {_PATIENCE_MS}")
    try:
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        db.execute(f"PRAGMA busy_timeout = {int(patience)}")
    return not busy
