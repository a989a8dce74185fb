"""Define the SQLite schema and migrate files to it.

Each migration is a number and the statements that lead to it; a file is migrated when it is opened, in one
transaction. The change log contains no content.
"""

from __future__ import annotations

import sqlite3

from omoide.errors import StoreFailed, WrongVersion

APPLICATION_ID = 0x6F6D6F69  # "omoi", in the header of every file of ours

MIGRATIONS: tuple[str, ...] = (
    """
    CREATE TABLE owners (
        no INTEGER PRIMARY KEY, namespace TEXT NOT NULL, agent TEXT NOT NULL, UNIQUE (namespace, agent));
    CREATE TABLE entries (
        no INTEGER PRIMARY KEY,
        namespace TEXT NOT NULL, id TEXT NOT NULL, owner INTEGER NOT NULL, session TEXT, project TEXT,
        type TEXT NOT NULL, live INTEGER NOT NULL, time INTEGER NOT NULL, expires INTEGER,
        confidence REAL NOT NULL, importance REAL,
        thread TEXT, seq INTEGER, role TEXT, speaker TEXT,
        rev INTEGER NOT NULL, changed INTEGER NOT NULL, written INTEGER NOT NULL, twin BLOB NOT NULL,
        body BLOB NOT NULL, features BLOB NOT NULL,
        UNIQUE (namespace, id));
    CREATE INDEX by_type ON entries (owner, type, live, time);
    CREATE INDEX by_session ON entries (owner, session, type, live, time) WHERE session IS NOT NULL;
    CREATE INDEX by_project ON entries (owner, project, type, live, time) WHERE project IS NOT NULL;
    CREATE INDEX by_place ON entries (owner, thread, seq) WHERE thread IS NOT NULL;
    CREATE INDEX by_twin ON entries (twin);
    CREATE TABLE versions (
        no INTEGER NOT NULL, rev INTEGER NOT NULL, changed INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (no, rev)) WITHOUT ROWID;
    CREATE TABLE links (
        namespace TEXT NOT NULL, source TEXT NOT NULL, relation TEXT NOT NULL, target TEXT NOT NULL,
        at INTEGER NOT NULL, PRIMARY KEY (namespace, source, relation, target)) WITHOUT ROWID;
    CREATE INDEX links_back ON links (namespace, target);
    CREATE TABLE log (
        seq INTEGER PRIMARY KEY, namespace TEXT NOT NULL, id TEXT NOT NULL, no INTEGER NOT NULL,
        op TEXT NOT NULL, rev INTEGER NOT NULL, at INTEGER NOT NULL);
    CREATE TABLE tombstones (
        namespace TEXT NOT NULL, id TEXT NOT NULL, agent TEXT NOT NULL, session TEXT, project TEXT,
        rev INTEGER NOT NULL, at INTEGER NOT NULL, reason TEXT);
    CREATE INDEX tombstones_by_id ON tombstones (namespace, id);
    CREATE TABLE postings (
        owner INTEGER NOT NULL, term INTEGER NOT NULL, no INTEGER NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY (owner, term, no)) WITHOUT ROWID;
    CREATE TABLE models (
        slot INTEGER PRIMARY KEY, name TEXT NOT NULL, dim INTEGER NOT NULL, serving INTEGER NOT NULL,
        UNIQUE (name, dim));
    CREATE TABLE supports (
        namespace TEXT NOT NULL, id TEXT NOT NULL, no INTEGER NOT NULL,
        PRIMARY KEY (namespace, id, no)) WITHOUT ROWID;
    CREATE INDEX supports_by_no ON supports (no);
    CREATE TABLE vectors (key INTEGER PRIMARY KEY, pooled BLOB NOT NULL);
    CREATE TABLE tokens (key INTEGER PRIMARY KEY, tokens BLOB NOT NULL);
    CREATE TABLE access (no INTEGER PRIMARY KEY, count INTEGER NOT NULL, last INTEGER NOT NULL);
    CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
    """,
    """
    CREATE TABLE receipts (
        namespace TEXT NOT NULL, key TEXT NOT NULL, print BLOB NOT NULL, id TEXT NOT NULL,
        rev INTEGER NOT NULL, outcome TEXT NOT NULL, at INTEGER NOT NULL,
        PRIMARY KEY (namespace, key)) WITHOUT ROWID;
    CREATE INDEX receipts_by_id ON receipts (namespace, id);
    CREATE INDEX receipts_by_age ON receipts (at);
    CREATE TABLE documents (
        no INTEGER PRIMARY KEY, namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL,
        agent TEXT, session TEXT, rev INTEGER NOT NULL, at INTEGER NOT NULL, body BLOB NOT NULL,
        UNIQUE (namespace, kind, id));
    CREATE TABLE document_log (
        document INTEGER NOT NULL, n INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (document, n)) WITHOUT ROWID;
    CREATE TABLE leases (
        namespace TEXT NOT NULL, kind TEXT NOT NULL, id TEXT NOT NULL, owner TEXT NOT NULL,
        until INTEGER NOT NULL, token INTEGER NOT NULL, PRIMARY KEY (namespace, kind, id)) WITHOUT ROWID;
    """,
    """
    ALTER TABLE entries ADD COLUMN first INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE supports ADD COLUMN present INTEGER NOT NULL DEFAULT 1;
    CREATE INDEX log_by_namespace ON log (namespace);
    CREATE INDEX log_flips ON log (no, seq) WHERE op IN ('stale', 'current', 'erase');
    CREATE INDEX access_by_last ON access (last);
    INSERT OR IGNORE INTO settings VALUES ('life', lower(hex(randomblob(16))));
    """,
    """
    ALTER TABLE vectors ADD COLUMN given INTEGER NOT NULL DEFAULT 0;
    """,
)

VERSION = len(MIGRATIONS)


def version(db: sqlite3.Connection) -> int:
    """Return the number of the last migration of a file."""
    number: int = db.execute("PRAGMA user_version").fetchone()[0]
    return number


def check_application(db: sqlite3.Connection, name: str) -> None:
    """Raise `StoreFailed` for another program's database, and `WrongVersion` for one of a newer Omoide."""
    application = db.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION_ID and db.execute("SELECT count(*) FROM sqlite_schema").fetchone()[0]:
        raise StoreFailed(name, "is another program's database", "choose another path")
    if application == APPLICATION_ID and version(db) > VERSION:
        raise WrongVersion(
            name,
            f"has schema {version(db)}, and this Omoide knows schemas up to {VERSION}",
            "use the newer Omoide that made it; nothing was changed",
        )


def migrate(db: sqlite3.Connection, name: str) -> int:
    """Migrate a file inside the caller's transaction; return the version it had, or 0 if it was new."""
    check_application(db, name)  # again: another process may have been faster
    old = version(db)
    for number in range(old, VERSION):
        for statement in MIGRATIONS[number].split(";"):
            if statement.strip():
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {number + 1}")
    if old < VERSION:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return old
