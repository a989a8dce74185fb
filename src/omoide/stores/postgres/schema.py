"""Define the PostgreSQL schema and migrate databases to it.

All tables lie in one schema of the database, by default `omoide`. Each migration is a number and the
statements that lead to it; the first client that opens the store migrates it in one transaction, while others
wait for a lock. The change log contains no content.
"""

from __future__ import annotations

from secrets import randbelow

from omoide import ids
from omoide.errors import Corrupted, StoreFailed, WrongVersion
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores.sql import rows
from omoide.stores.sql.database import AdvisoryLock, Database

TABLES = (
    "access",
    "document_log",
    "documents",
    "entries",
    "leases",
    "links",
    "log",
    "models",
    "owners",
    "postings",
    "receipts",
    "settings",
    "supports",
    "tokens",
    "tombstones",
    "vectors",
    "versions",
)

MIGRATION_LOCK = AdvisoryLock("schema")

# "C" compares bytes, whatever the language of the database.
_TEXT = 'TEXT COLLATE "C"'

# The server keeps samples of what is in a column, also of what was erased since: of these it takes none.
_NO_STATISTICS = ";".join(
    f"ALTER TABLE {table} ALTER COLUMN {column} SET STATISTICS 0"
    for table, columns in {
        "entries": ("speaker", "twin", "body", "features"),
        "versions": ("body",),
        "vectors": ("pooled", "code"),
        "tokens": ("tokens",),
        "receipts": ("print",),
        "documents": ("body",),
        "document_log": ("body",),
    }.items()
    for column in columns
)

MIGRATIONS: tuple[str, ...] = (
    f"""
    CREATE TABLE settings (name {_TEXT} PRIMARY KEY, value {_TEXT} NOT NULL);
    CREATE TABLE owners (
        no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        namespace {_TEXT} NOT NULL, agent {_TEXT} NOT NULL, UNIQUE (namespace, agent));
    CREATE TABLE entries (
        no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        namespace {_TEXT} NOT NULL, id {_TEXT} NOT NULL, owner BIGINT NOT NULL,
        session {_TEXT}, project {_TEXT},
        type {_TEXT} NOT NULL, live SMALLINT NOT NULL, time BIGINT NOT NULL, expires BIGINT,
        confidence DOUBLE PRECISION NOT NULL, importance DOUBLE PRECISION,
        thread {_TEXT}, seq BIGINT, role {_TEXT}, speaker {_TEXT},
        rev BIGINT NOT NULL, changed BIGINT NOT NULL, written BIGINT NOT NULL, twin BYTEA NOT NULL,
        body BYTEA NOT NULL, features BYTEA NOT NULL, first BIGINT NOT NULL DEFAULT 1,
        UNIQUE (namespace, id));
    CREATE INDEX by_type ON entries (owner, type, live, time, no);
    CREATE INDEX by_session ON entries (owner, session, type, live, time, no) WHERE session IS NOT NULL;
    CREATE INDEX by_project ON entries (owner, project, type, live, time, no) WHERE project IS NOT NULL;
    CREATE INDEX by_place ON entries (owner, thread, seq) WHERE thread IS NOT NULL;
    CREATE INDEX by_twin ON entries (twin);
    CREATE TABLE versions (
        no BIGINT NOT NULL, rev BIGINT NOT NULL, changed BIGINT NOT NULL, body BYTEA NOT NULL,
        PRIMARY KEY (no, rev));
    CREATE TABLE links (
        namespace {_TEXT} NOT NULL, source {_TEXT} NOT NULL, relation {_TEXT} NOT NULL,
        target {_TEXT} NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (namespace, source, relation, target));
    CREATE INDEX links_back ON links (namespace, target);
    CREATE TABLE log (
        seq BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        namespace {_TEXT} NOT NULL, id {_TEXT} NOT NULL, no BIGINT NOT NULL,
        op {_TEXT} NOT NULL, rev BIGINT NOT NULL, at BIGINT NOT NULL);
    CREATE INDEX log_by_namespace ON log (namespace, seq);
    CREATE INDEX log_flips ON log (no, seq) WHERE op IN ('stale', 'current', 'erase');
    CREATE TABLE tombstones (
        rowid BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        namespace {_TEXT} NOT NULL, id {_TEXT} NOT NULL, agent {_TEXT} NOT NULL,
        session {_TEXT}, project {_TEXT}, rev BIGINT NOT NULL, at BIGINT NOT NULL, reason {_TEXT});
    CREATE INDEX tombstones_by_id ON tombstones (namespace, id);
    CREATE TABLE postings (
        owner BIGINT NOT NULL, term BIGINT NOT NULL, no BIGINT NOT NULL, count INTEGER NOT NULL,
        PRIMARY KEY (owner, term, no) INCLUDE (count));
    CREATE TABLE models (
        slot SMALLINT PRIMARY KEY, name {_TEXT} NOT NULL, dim INTEGER NOT NULL, serving SMALLINT NOT NULL,
        UNIQUE (name, dim));
    CREATE TABLE supports (
        namespace {_TEXT} NOT NULL, id {_TEXT} NOT NULL, no BIGINT NOT NULL,
        present SMALLINT NOT NULL DEFAULT 1, PRIMARY KEY (namespace, id, no));
    CREATE INDEX supports_by_no ON supports (no);
    CREATE TABLE vectors (
        key BIGINT PRIMARY KEY, pooled BYTEA NOT NULL, given SMALLINT NOT NULL DEFAULT 0, code BIT VARYING);
    ALTER TABLE vectors ALTER COLUMN pooled SET STORAGE EXTERNAL;
    CREATE TABLE tokens (key BIGINT PRIMARY KEY, tokens BYTEA NOT NULL);
    ALTER TABLE tokens ALTER COLUMN tokens SET STORAGE EXTERNAL;
    CREATE TABLE access (no BIGINT PRIMARY KEY, count BIGINT NOT NULL, last BIGINT NOT NULL);
    CREATE INDEX access_by_last ON access (last);
    CREATE TABLE receipts (
        namespace {_TEXT} NOT NULL, key {_TEXT} NOT NULL, print BYTEA NOT NULL, id {_TEXT} NOT NULL,
        rev BIGINT NOT NULL, outcome {_TEXT} NOT NULL, at BIGINT NOT NULL, PRIMARY KEY (namespace, key));
    CREATE INDEX receipts_by_id ON receipts (namespace, id);
    CREATE INDEX receipts_by_age ON receipts (at);
    CREATE TABLE documents (
        no BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        namespace {_TEXT} NOT NULL, kind {_TEXT} NOT NULL, id {_TEXT} NOT NULL,
        agent {_TEXT}, session {_TEXT}, rev BIGINT NOT NULL, at BIGINT NOT NULL, body BYTEA NOT NULL,
        UNIQUE (namespace, kind, id));
    CREATE TABLE document_log (
        document BIGINT NOT NULL, n BIGINT NOT NULL, body BYTEA NOT NULL, PRIMARY KEY (document, n));
    {_NO_STATISTICS};
    CREATE TABLE leases (
        namespace {_TEXT} NOT NULL, kind {_TEXT} NOT NULL, id {_TEXT} NOT NULL, owner {_TEXT} NOT NULL,
        until BIGINT NOT NULL, token BIGINT NOT NULL, PRIMARY KEY (namespace, kind, id));
    """,
    f"""
    ALTER TABLE entries ADD COLUMN user_id {_TEXT}, ADD COLUMN key {_TEXT};
    ALTER TABLE tombstones ADD COLUMN user_id {_TEXT};
    ALTER TABLE documents ADD COLUMN user_id {_TEXT};
    ALTER TABLE receipts ADD COLUMN superseded {_TEXT};
    CREATE INDEX by_user ON entries (owner, user_id, type, live, time, no) WHERE user_id IS NOT NULL;
    CREATE INDEX by_key ON entries (owner, key, live, time, no) WHERE key IS NOT NULL;
    CREATE UNIQUE INDEX by_slot ON entries
        (owner, key, coalesce(user_id, ''), coalesce(session, ''), coalesce(project, ''))
        WHERE key IS NOT NULL AND live IN (1, 2);
    """,
    """
    ALTER TABLE leases ADD COLUMN ttl BIGINT NOT NULL DEFAULT 600000;
    ALTER TABLE entries ADD COLUMN checksum BIGINT;
    ALTER TABLE versions ADD COLUMN checksum BIGINT;
    ALTER TABLE documents ADD COLUMN checksum BIGINT;
    ALTER TABLE document_log ADD COLUMN checksum BIGINT;
    """,
)

VERSION = len(MIGRATIONS)


def version(db: Database, schema: str) -> int:
    """Return the number of the last migration; 0 if the schema is empty or missing."""
    columns = db.execute(
        "SELECT a.attname FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        " WHERE n.nspname = ? AND c.relname = 'settings' AND a.attnum > 0 ORDER BY a.attnum",
        (schema,),
    )
    if [column for (column,) in columns] != ["name", "value"]:
        return 0  # there is none, or it is another program's
    settings = dict(
        db.execute("SELECT name, value FROM settings WHERE name IN ('schema', 'life')").fetchall()
    )
    number = str(settings.get("schema"))
    return int(number) if "life" in settings and number.isascii() and number.isdigit() else 0


def check_version(found: int, name: str) -> None:
    """Raise `WrongVersion` for a schema of a newer Omoide."""
    if found > VERSION:
        raise WrongVersion(
            name,
            f"has schema {found}, and this Omoide knows schemas up to {VERSION}",
            "use the newer Omoide that made it; nothing was changed",
        )


def check_tables(db: Database, schema: str, name: str) -> None:
    """Raise `Corrupted` if a table is missing."""
    cursor = db.execute("SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = ?", (schema,))
    missing = sorted({*TABLES} - {table for (table,) in cursor})
    if missing:
        raise Corrupted(name, f"lacks its tables {', '.join(missing)}", "restore a backup")


def check_encoding(db: Database, name: str) -> None:
    """Raise `StoreFailed` if the database cannot store all of Unicode."""
    (encoding,) = db.execute("SELECT current_setting('server_encoding')").fetchone()
    if encoding not in ("UTF8", "SQL_ASCII"):  # the latter keeps whatever it is given
        problem = f"keeps text as {encoding}, which lacks most letters"
        raise StoreFailed(name, problem, "create a database with ENCODING 'UTF8'")


def migrate(db: Database, schema: str, name: str) -> None:
    """Migrate the schema inside the caller's transaction."""
    db.lock(MIGRATION_LOCK)  # another process that starts at the same time waits, and finds it done
    old = version(db, schema)
    check_version(old, name)
    if old == 0:
        _check_no_foreign_tables(db, schema, name)
        cursor = db.execute("SELECT count(*) FROM pg_catalog.pg_namespace WHERE nspname = ?", (schema,))
        if not cursor.fetchone()[0]:  # a role that may not make schemas can be given one
            db.execute(f'CREATE SCHEMA "{schema}"')
    for number in range(old, VERSION):
        for statement in MIGRATIONS[number].split(";"):
            if statement.strip():
                db.execute(statement)
    if old < VERSION:
        rows.put_setting(db, "schema", str(VERSION))
    if old == 0:
        # No two stores number their owners alike: a number remembered from one that was dropped is nobody's.
        db.execute(f"ALTER TABLE owners ALTER COLUMN no RESTART WITH {1 + randbelow(1 << 52)}")
        rows.put_setting(db, "life", ids.uuid7())
        rows.put_setting(db, "features", str(FEATURES_VERSION))


def _check_no_foreign_tables(db: Database, schema: str, name: str) -> None:
    """Raise `StoreFailed` if the schema contains tables of another program."""
    existing = db.execute(
        "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = ? ORDER BY tablename", (schema,)
    ).fetchall()
    foreign = sorted({table for (table,) in existing} & {*TABLES})
    if foreign:
        raise StoreFailed(
            name,
            f"has tables of another program in schema {schema!r}: {', '.join(foreign)}",
            "choose another one with ?schema=name",
        )
