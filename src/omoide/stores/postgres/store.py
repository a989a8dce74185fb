"""Store entries in a PostgreSQL schema: open, notify (LISTEN/NOTIFY), check and scrub it.

While clients wait, one connection of the store listens and wakes those who wait for a namespace. A
notification may be lost, with its server or in a pooler that does not forward it, so waiting clients also
poll.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from math import ceil
from threading import Lock, Thread
from typing import Any
from urllib.parse import quote, urlencode, urlunsplit

from omoide.errors import Invalid, MissingExtra, OmoideError, ReadOnly, StoreFailed

try:
    import psycopg
except ImportError as error:
    raise MissingExtra("postgresql://", "postgres") from error

import anyio
import psycopg
from anyio import from_thread
from anyio.lowlevel import current_token

from omoide import forks
from omoide.forks import ForkListener
from omoide.stores.async_store import AsyncStore, run_in_thread
from omoide.stores.factory import StoreURL, embedder_for
from omoide.stores.postgres import schema
from omoide.stores.postgres import schema as tables
from omoide.stores.postgres.connection import (
    DIALECT,
    RECONNECT_TIMEOUT,
    PostgresConnections,
    PostgresSession,
    lock_key,
    notify_channel,
    notify_payload,
)
from omoide.stores.records import EraseReceipt, Finding
from omoide.stores.redaction import mask_url
from omoide.stores.semantics import StoreSettings
from omoide.stores.sql import rows
from omoide.stores.sql.database import Database
from omoide.stores.sql.store import SQLStore

POLL_INTERVAL_S = 2.0
"""Seconds between polls of a waiting client."""

_LISTEN_TIMEOUT_S = 0.2  # that the listener waits before it sees whether it is still needed
_IDLE_S = 30.0  # that it stays when nobody waits
_JOIN_TIMEOUT_S = 2.0  # it may be about to ring for the very thread that waits for it
_RETRY_DELAY_S = 0.5  # until it tries again to reach a server that is gone

WakeCallback = Callable[[], object]


class ChangeListener(ForkListener):
    """Wakes clients that wait for a change."""

    def __init__(self, connections: PostgresConnections) -> None:
        self._connections = connections
        self._closed = False
        self.after_fork_in_child()
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Start without a thread and without clients: those of the parent do not exist here."""
        self._lock = Lock()
        self._subscribers: dict[str, list[WakeCallback]] = {}
        self._thread: Thread | None = None

    @contextmanager
    def subscribe(self, namespace: str, wake: WakeCallback) -> Iterator[None]:
        """Call `wake` inside the block when a namespace changes; it may also be called without a change."""
        key = notify_payload(self._connections.schema, namespace)
        with self._lock:
            self._subscribers.setdefault(key, []).append(wake)
            if self._thread is None and not self._closed:
                self._thread = Thread(target=self._listen, name="omoide-listens", daemon=True)
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._subscribers[key].remove(wake)
                if not self._subscribers[key]:
                    del self._subscribers[key]

    def close(self) -> None:
        """Stop listening."""
        with self._lock:
            self._closed, thread = True, self._thread
        if thread is not None:
            thread.join(_JOIN_TIMEOUT_S)

    def _listen(self) -> None:
        while not self._closed:
            try:
                with self._connections.connect_outside_pool() as connection:
                    connection.execute(f"LISTEN {notify_channel(self._connections.schema)}")
                    self._wake(None)  # something may have changed before
                    if self._receive(connection):
                        return
            except (psycopg.Error, OmoideError):
                if self._stop_if_idle(time.monotonic()):
                    return
                time.sleep(_RETRY_DELAY_S)

    def _receive(self, connection: psycopg.Connection[tuple[object, ...]]) -> bool:
        """Wake clients for each notification; return when no client has waited for some time."""
        last_used = time.monotonic()
        while not self._closed:
            for notification in connection.notifies(timeout=_LISTEN_TIMEOUT_S, stop_after=1):
                self._wake(notification.payload)
            if self._subscribers:
                last_used = time.monotonic()
            elif self._stop_if_idle(last_used + _IDLE_S):
                return True
        return True

    def _stop_if_idle(self, until: float) -> bool:
        """End the listener if no client waits and a time has passed; the next client starts another one."""
        with self._lock:
            idle = not self._subscribers and time.monotonic() >= until
            if idle:
                self._thread = None
            return idle

    def _wake(self, key: str | None) -> None:
        with self._lock:
            groups = self._subscribers.values() if key is None else [self._subscribers.get(key, [])]
            callbacks = [wake for subscribers in groups for wake in subscribers]
        for wake in callbacks:
            with suppress(RuntimeError):  # whose event loop is over waits no more
                wake()


class AsyncPostgresStore(AsyncStore):
    """The async interface of a PostgreSQL store, whose clients can wait for changes."""

    def __init__(self, sync: PostgresStore, url: str) -> None:
        super().__init__(sync, url)
        self._postgres = sync

    async def wait(self, namespace: str, *, after: int, timeout: float) -> bool:
        """Wait up to `timeout` seconds for a change after a sequence number; return whether there is one."""
        deadline = time.monotonic() + timeout
        token = current_token()
        changed = anyio.Event()

        def wake() -> None:
            from_thread.run_sync(changed.set, token=token)

        with self._postgres.listener.subscribe(namespace, wake):
            while True:
                if await run_in_thread(self._postgres.last_seq, namespace) > after:
                    return True
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    return False
                with anyio.move_on_after(min(remaining, POLL_INTERVAL_S)):
                    await changed.wait()
                changed = anyio.Event()


PENDING_SCRUB = "the space of deleted rows, until the server uses it again: scrub() has the tables rewritten"

_UNREACHABLE = ("the server's write-ahead log and its archives", "replicas that lag behind")


class PostgresStore(SQLStore):
    """A store in a schema of a PostgreSQL database, for many machines at once."""

    _db: PostgresConnections

    def _reset(self) -> None:
        super()._reset()
        self.listener = ChangeListener(self._db)
        """Ring for those who wait for a change."""

    def last_seq(self, namespace: str) -> int:
        """Return the newest sequence number of a namespace, or 0."""
        return self._db.read_once(lambda db: rows.latest_change(db, namespace))[1]

    def close(self) -> None:
        """Flush buffered access counts and close all connections."""
        self.listener.close()
        super().close()

    def findings(self) -> list[Finding]:
        """Return findings about the server."""
        with self._db.read_transaction() as db:
            answers = {
                name: db.execute(statement).fetchone()[0] for name, statement in _SERVER_QUERIES.items()
            }
        return [*_server_findings(answers)]

    def _scrub_files(self, receipt: EraseReceipt, *, thorough: bool) -> EraseReceipt:
        receipt = receipt.replace(unreachable=(*receipt.unreachable, *_UNREACHABLE))
        if not thorough:
            return receipt.replace(pending=(PENDING_SCRUB,))
        if self.settings.read_only:
            raise ReadOnly(self._db.name, "was opened for reading only", "open it without mode=ro")
        # Every table is locked while it is rewritten without erased rows.
        remaining = self._db.rewrite_tables(schema.TABLES)
        return receipt.replace(scrubbed=not remaining, pending=tuple(remaining))

    def _size_bytes(self, db: Database) -> int:
        (size,) = db.execute(
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_catalog.pg_class c"
            " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE n.nspname = ? AND c.relkind IN ('r', 'p')",
            (self._db.schema,),
        ).fetchone()
        return int(size)


_SERVER_QUERIES: dict[str, str] = {
    "version": "SELECT current_setting('server_version')",
    "fsync": "SELECT current_setting('fsync')",
    "synchronous": "SELECT current_setting('synchronous_commit')",
    "replica": "SELECT pg_is_in_recovery()",
    "pgvector": "SELECT max(extversion) FROM pg_catalog.pg_extension WHERE extname = 'vector'",
}


def _server_findings(answers: dict[str, Any]) -> list[Finding]:
    findings = [
        Finding("server", "ok", f"PostgreSQL {answers['version']}"),
        Finding("version", "ok", f"schema {schema.VERSION}, the newest known"),
    ]
    if answers["fsync"] == "off":
        remedy = "set fsync = on in postgresql.conf"
        findings.append(Finding("durability", "problem", f"a power cut may damage everything; {remedy}"))
    else:
        findings.append(Finding("durability", "ok", "what was acknowledged is on the server's disk"))
    if answers["replica"]:
        findings.append(Finding("role", "note", "a replica, which can only be read; open it with mode=ro"))
    if answers["pgvector"]:
        findings.append(Finding("pgvector", "ok", f"version {answers['pgvector']}"))
    else:
        findings.append(
            Finding(
                "pgvector",
                "note",
                "not installed: vectors are compared by the program, which is well up to 250,000 entries"
                " in a scope; above that, CREATE EXTENSION vector and make an index as the docs say",
            )
        )
    return findings


_STORE_OPTIONS = ("schema", "pool", "prepare")
_DRIVER_OPTIONS = ("application_name", "connect_timeout", "host", "hostaddr", "keepalives",
           "keepalives_count",
           "keepalives_idle", "keepalives_interval", "options", "passfile", "port", "service", "sslcert",
           "sslcrl", "sslkey", "sslmode", "sslrootcert", "target_session_attrs",
           "tcp_user_timeout", "user")  # fmt: skip
OPTIONS = (*_STORE_OPTIONS, *_DRIVER_OPTIONS)
"""URL options beside the settings that all stores have."""

DEFAULT_SCHEMA = "omoide"
DEFAULT_POOL_SIZE = 16
"""Maximum number of connections of a store."""

_CONNECT_TIMEOUT_S = 10
_SCHEMA_NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")


def open_at(address: StoreURL, embedder: Any, settings: StoreSettings) -> AsyncStore:
    """Open the store in a schema of a database; the first client creates its tables."""
    options = dict(address.options)
    schema = _parse_schema(options.pop("schema", DEFAULT_SCHEMA))
    size = _parse_pool_size(options.pop("pool", str(DEFAULT_POOL_SIZE)))
    prepare = _parse_flag(options.pop("prepare", "1"))
    name = mask_url(address.url.partition("?")[0])
    connections = PostgresConnections(
        _conninfo(address, options, settings.timeout),
        name if schema == DEFAULT_SCHEMA else f"{name}?schema={schema}",
        schema=schema,
        size=size,
        timeout=settings.timeout,
        prepare=prepare,
        read_only=settings.read_only,
    )
    try:
        stored = _prepare(connections, settings)
        sync = PostgresStore(connections, embedder_for(embedder, stored), settings)
    except BaseException:
        connections.close()
        raise
    return AsyncPostgresStore(sync, address.url)


def _prepare(connections: PostgresConnections, settings: StoreSettings) -> str | None:
    """Check and migrate the tables; return the embedder whose vectors they contain."""
    schema, name = connections.schema, connections.name
    with connections.read_transaction() as db:
        version = tables.version(db, schema)
        tables.check_encoding(db, name)
        tables.check_version(version, name)
        if version == tables.VERSION:
            tables.check_tables(db, schema, name)
    if version != tables.VERSION:
        if settings.read_only:
            problem = "has an older schema" if version else f"holds no memories in schema {schema!r}"
            raise ReadOnly(name, problem, "open it once without mode=ro")
        with connections.write_transaction() as db:
            tables.migrate(db, schema, name)
            tables.check_tables(db, schema, name)  # what failed is known from here on
            _check_advisory_locks(connections)
    connections.reconnect_timeout = RECONNECT_TIMEOUT
    connections.watch_version()
    with connections.read_transaction() as db:
        connections.dialect = DIALECT._replace(distance_expression=_distance_expression(db, schema))
        (commit,) = db.execute("SELECT current_setting('synchronous_commit')").fetchone()
        if commit == "off":  # then the server answers before anything is on its disk
            connections.transaction_settings = ("SET LOCAL synchronous_commit = local",)
        row = db.execute(
            "SELECT name FROM models WHERE serving = 1 AND EXISTS (SELECT 1 FROM vectors)"
        ).fetchone()
    return None if row is None else str(row[0])


def _check_advisory_locks(connections: PostgresConnections) -> None:
    """Raise `StoreFailed` if the server ignores advisory locks, as some imitations of PostgreSQL do."""
    number = lock_key(connections.schema, tables.MIGRATION_LOCK.name)
    with connections.connect_outside_pool() as other:
        (acquired,) = other.execute(f"SELECT pg_try_advisory_xact_lock({number})").fetchone() or (True,)
    if acquired:
        raise StoreFailed(
            connections.name,
            "lets two clients hold one advisory lock, so that changes would not be reported in commit order",
            "use a server that keeps others from what is held",
        )


def _distance_expression(db: PostgresSession, schema: str) -> str:
    """Return the expression that compares codes by a pgvector index, or an empty one if there is none."""
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


def _conninfo(address: StoreURL, options: dict[str, Any], timeout: float) -> str:
    parameters = {
        "connect_timeout": str(min(_CONNECT_TIMEOUT_S, ceil(timeout))),
        "application_name": "omoide",
        **options,
        "client_encoding": "utf8",  # whatever the database is in
    }
    parts = address.parts._replace(scheme="postgresql", query=urlencode(parameters, quote_via=quote))
    try:
        if parts.netloc.count("@") > 1 or "@" in parts.path:
            raise psycopg.ProgrammingError("an @ that ends neither user nor password")
        return psycopg.conninfo.make_conninfo(urlunsplit(parts))
    except psycopg.Error:
        # What the driver says may repeat a part of the password, which then is not where it belongs.
        problem = f"{mask_url(''.join(address.url.split()))!r} cannot be read"
        remedy = "use postgresql://user:password@host:5432/database, with %40 for @ and the like"
        raise Invalid("url", problem, remedy) from None


def _parse_schema(name: str) -> str:
    if not _SCHEMA_NAME.fullmatch(name) or name.startswith("pg_"):
        raise Invalid("schema", f"is {name!r}", "use small letters, digits and _, at most 63")
    return name


def _parse_pool_size(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 0 < int(text) <= 1_000:
        raise Invalid("pool", f"is {text!r}", "pass a number of connections from 1 to 1000")
    return int(text)


def _parse_flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise Invalid("prepare", f"is {text!r}", "use 1, or 0 behind a pooler that cannot prepare")
    return text == "1"
