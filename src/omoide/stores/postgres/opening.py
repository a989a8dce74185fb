"""Which server, which database and which schema does a URL mean?"""

from __future__ import annotations

import re
from math import ceil
from typing import Any
from urllib.parse import quote, urlencode, urlunsplit

from omoide.errors import Invalid, MissingExtra, ReadOnly, StoreFailed
from omoide.stores.addresses import Address, embedder_for
from omoide.stores.masking import masked
from omoide.stores.settings import Settings

try:
    import psycopg
except ImportError as error:
    raise MissingExtra("postgresql://", "postgres") from error

from omoide.stores.local import LocalStore
from omoide.stores.postgres import schema as tables
from omoide.stores.postgres.connections import PATIENCE, WORDS, Connections, Session, key
from omoide.stores.postgres.store import PostgresStore
from omoide.stores.postgres.waking import WakingStore

_OWN = ("schema", "pool", "prepare")
_SERVER = ("application_name", "connect_timeout", "host", "hostaddr", "keepalives", "keepalives_count",
           "keepalives_idle", "keepalives_interval", "options", "passfile", "port", "service", "sslcert",
           "sslcrl", "sslkey", "sslmode", "sslrootcert", "target_session_attrs",
           "tcp_user_timeout", "user")  # fmt: skip
OPTIONS = (*_OWN, *_SERVER)
"""What a URL may say beside the settings that all stores have."""

SCHEMA = "omoide"
POOL = 16
"""Connections that one store has at most."""

_CONNECT_S = 10
_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def open_at(address: Address, embedder: Any, settings: Settings) -> LocalStore:
    """The store in a schema of a database; whoever opens it first makes its tables."""
    options = dict(address.options)
    schema = _schema(options.pop("schema", SCHEMA))
    size = _size(options.pop("pool", str(POOL)))
    prepare = _switch(options.pop("prepare", "1"))
    name = masked(address.url.partition("?")[0])
    connections = Connections(
        _conninfo(address, options, settings.timeout),
        name if schema == SCHEMA else f"{name}?schema={schema}",
        schema=schema,
        size=size,
        timeout=settings.timeout,
        prepare=prepare,
        read_only=settings.read_only,
    )
    try:
        kept = _prepared(connections, settings)
        core = PostgresStore(connections, embedder_for(connections.name, embedder, kept), settings)
    except BaseException:
        connections.close()
        raise
    return WakingStore(core, address.url)


def _prepared(connections: Connections, settings: Settings) -> str | None:
    """See that the tables are there and of our version; the embedder whose vectors they hold."""
    schema, name = connections.schema, connections.name
    with connections.reading() as db:
        found = tables.version(db, schema)
        tables.check_text(db, name)
        tables.check_known(found, name)
        if found == tables.VERSION:
            tables.check_whole(db, schema, name)
    if found != tables.VERSION:
        if settings.read_only:
            problem = "has an older schema" if found else f"holds no memories in schema {schema!r}"
            raise ReadOnly(name, problem, "open it once without mode=ro")
        with connections.writing() as db:
            tables.migrate(db, schema, name)
            tables.check_whole(db, schema, name)  # what failed is known from here on
            _check_holds(connections)
    connections.patience = PATIENCE
    with connections.reading() as db:
        connections.words = WORDS._replace(near=_near(db, schema))
        (commit,) = db.execute("SELECT current_setting('synchronous_commit')").fetchone()
        if commit == "off":  # then the server answers before anything is on its disk
            connections.terms = ("SET LOCAL synchronous_commit = local",)
        row = db.execute(
            "SELECT name FROM models WHERE serving = 1 AND EXISTS (SELECT 1 FROM vectors)"
        ).fetchone()
    return None if row is None else str(row[0])


def _check_holds(connections: Connections) -> None:
    """Raise where the server, being another than PostgreSQL itself, only pretends to hold anything."""
    number = key(connections.schema, tables.MIGRATING.name)
    with connections.connected() as beside:
        (taken,) = beside.execute(f"SELECT pg_try_advisory_xact_lock({number})").fetchone() or (True,)
    if taken:
        raise StoreFailed(
            connections.name,
            "lets two hold an advisory lock, so that changes would not be told in the order of their commits",
            "use a server that keeps others from what is held",
        )


def _near(db: Session, schema: str) -> str:
    """How codes are compared by an index of pgvector's, where somebody made one."""
    row = db.execute(
        "SELECT n.nspname FROM pg_catalog.pg_extension e"
        " JOIN pg_catalog.pg_namespace n ON n.oid = e.extnamespace"
        " JOIN pg_catalog.pg_indexes i ON i.schemaname = ? AND i.tablename = 'vectors'"
        " WHERE e.extname = 'vector' AND i.indexdef LIKE '%USING hnsw%'",
        (schema,),
    ).fetchone()
    if row is None:
        return ""
    return f'v.code::bit({{dim}}) OPERATOR("{row[0]}".<~>) ?::bit({{dim}})'


def _conninfo(address: Address, options: dict[str, Any], timeout: float) -> str:
    given = {
        "connect_timeout": str(min(_CONNECT_S, ceil(timeout))),
        "application_name": "omoide",
        **options,
        "client_encoding": "utf8",  # whatever the database is in
    }
    parts = address.parts._replace(scheme="postgresql", query=urlencode(given, quote_via=quote))
    try:
        if parts.netloc.count("@") > 1 or "@" in parts.path:
            raise psycopg.ProgrammingError("an @ that ends neither user nor password")
        return psycopg.conninfo.make_conninfo(urlunsplit(parts))
    except psycopg.Error:
        # What the driver says may repeat a part of the password, which then is not where it belongs.
        problem = f"{masked(''.join(address.url.split()))!r} cannot be read"
        remedy = "use postgresql://user:password@host:5432/database, with %40 for @ and the like"
        raise Invalid("url", problem, remedy) from None


def _schema(name: str) -> str:
    if not _NAME.fullmatch(name) or name.startswith("pg_"):
        raise Invalid("schema", f"is {name!r}", "use small letters, digits and _, at most 63")
    return name


def _size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000:
        raise Invalid("pool", f"is {text!r}", "pass a number of connections from 1 to 1000")
    return int(text)


def _switch(text: str) -> bool:
    if text not in ("0", "1"):
        raise Invalid("prepare", f"is {text!r}", "use 1, or 0 behind a pooler that cannot prepare")
    return text == "1"
