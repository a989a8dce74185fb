"""Connect to a PostgreSQL server and map its errors.

Every error of the driver becomes one of ours here, and nowhere else. A pool lends a connection for each
transaction. Readers see one snapshot. Writers first take advisory locks, so that the sequence numbers of a
namespace grow in commit order. No session state survives a transaction, so that a pooler such as PgBouncer
may stand in between. A forked process opens connections of its own.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from re import compile as pattern
from threading import BoundedSemaphore, Lock
from typing import Any, TypeVar
from weakref import WeakSet

import psycopg
from psycopg import errors, pq
from psycopg.abc import PQGen
from psycopg.adapt import Loader
from psycopg.types.numeric import Int8BinaryDumper

from omoide import forks
from omoide.errors import (
    Busy,
    Closed,
    Corrupted,
    DiskFull,
    ReadOnly,
    StoreFailed,
    StoreUnreachable,
    Uncertain,
)
from omoide.forks import ForkListener
from omoide.stores.postgres import schema as tables
from omoide.stores.sql.database import AdvisoryLock, Cursor, Dialect

_DISK_FULL_REMEDY = "free some space and try again; nothing was lost"
_TOO_MANY_CONNECTIONS = ("too many clients", "too many connections", "remaining connection slots")
_PERMANENT_FAILURES = ("authentication", "does not exist", "no pg_hba", "resolve", "translate host")


def map_error(error: psycopg.Error, name: str, *, committing: bool = False) -> StoreFailed:
    """Return our error for one of the driver; while committing, the outcome may be unknown (`Uncertain`)."""
    text = _error_text(error)
    if is_connection_lost(error):
        if committing:
            return Uncertain(
                name,
                f"was lost while it was to keep something ({text})",
                "read it again, or write it again with the same id or idempotency key",
            )
        return _connection_failed(error, name, text)
    match error:
        case errors.DiskFull() | errors.OutOfMemory():
            return DiskFull(name, f"has no room left ({text})", _DISK_FULL_REMEDY)
        case errors.TooManyConnections() | errors.ConfigurationLimitExceeded():
            return _too_many_connections(name, text)
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return Busy(
                name, f"did not answer in time ({text})", "try again, or open it with a longer timeout"
            )
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return Busy(name, f"was asked for the same by others ({text})", "try again; nothing was changed")
        case errors.ReadOnlySqlTransaction() | errors.InsufficientPrivilege():
            return ReadOnly(
                name, f"cannot be written to ({text})", "use a primary server, and a role that may write here"
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return Corrupted(name, f"is damaged ({text})", "restore a backup; `omoide doctor` says more")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return StoreFailed(name, f"lacks its tables ({text})", "open it again, and they are made")
        case _:
            pass
    if "No space left on device" in text:
        return DiskFull(name, f"has no room left ({text})", _DISK_FULL_REMEDY)
    return StoreFailed(name, f"failed ({text})", "`omoide doctor` says more")


def is_connection_lost(error: psycopg.Error) -> bool:
    """Return True if there is no server at the other end, or no longer."""
    if isinstance(error, (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)):
        return True
    if isinstance(error, (errors.ConnectionTimeout, errors.ConnectionException)):
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and error.sqlstate is None


def is_transient(error: psycopg.Error) -> bool:
    """Return True if a server that does not answer may do so soon, because it starts or restarts."""
    text = str(error)
    return is_connection_lost(error) and not any(sign in text for sign in _PERMANENT_FAILURES)


def _connection_failed(error: psycopg.Error, name: str, text: str) -> StoreFailed:
    if any(
        sign in text for sign in _TOO_MANY_CONNECTIONS
    ):  # a connection that is refused comes without a code
        return _too_many_connections(name, text)
    if "password authentication failed" in text or "no password supplied" in text:
        return StoreUnreachable(name, f"does not let us in ({text})", "check user and password in its URL")
    if "does not exist" in text:
        return StoreUnreachable(name, f"is not there ({text})", "create the database, or name another")
    if "no pg_hba.conf entry" in text:
        return StoreUnreachable(
            name, f"does not let us in ({text})", "allow this host in pg_hba.conf, or use sslmode=require"
        )
    if "does not support SSL" in text:
        return StoreUnreachable(name, f"speaks no TLS ({text})", "set it up there, or leave sslmode out")
    if "invalid" in text and "value" in text:
        return StoreUnreachable(name, f"cannot be reached so ({text})", "correct it in the URL")
    if "timeout" in text or "timed out" in text:
        return StoreUnreachable(
            name, f"does not answer ({text})", "check that it runs and is not overloaded, or wait longer"
        )
    return StoreUnreachable(name, f"cannot be reached ({text})", "check host and port, and that it runs")


def _too_many_connections(name: str, text: str) -> Busy:
    return Busy(
        name, f"has no connection left ({text})", "try again, open it with a smaller ?pool=, or use a pooler"
    )


def _error_text(error: psycopg.Error) -> str:
    """Return the message of an error on one line."""
    primary = error.diag.message_primary
    return " ".join((primary or str(error) or type(error).__name__).split())


T = TypeVar("T")

# What goes wrong in a pipeline is raised; that the rest of it was dropped is no news.
logging.getLogger("psycopg").addFilter(lambda record: "error ignored" not in str(record.msg))

RECONNECT_TIMEOUT = 5.0
"""Seconds to wait for a server that answered before and may be restarting."""

_RETRY_DELAY = 0.05
_TIMEOUT_FACTOR = (
    1.25  # times that the server may wait for others: it is the one to say that they held on too long
)
_MAX_PREPARED_PARAMETERS = 24  # parameters up to which a statement comes again and is worth preparing
_MAX_PREPARED_STATEMENTS = 512  # that a connection keeps prepared

_TABLE_REFERENCE = pattern(rf"\b(FROM|JOIN|INTO|UPDATE|TABLE|ON)\s+({'|'.join(tables.TABLES)})\b(?!\.)")

_POSTINGS_INSERT = pattern(r"INSERT INTO (postings) \(([^)]*)\) VALUES \([?,]+\)")

_NUMBER_LIST = pattern(rf"\b(no|key) IN \(\?(?:,\?){{{_MAX_PREPARED_PARAMETERS},}}\)")

_DEAD_ROWS = pattern(r"\d+")  # how many rows are dead and cannot be removed comes first in a detail of VACUUM

DIALECT = Dialect(
    contains_bytes="position(? IN body) > 0",
    key_share_lock="FOR KEY SHARE",
    skip_locked="FOR UPDATE SKIP LOCKED",
    supports_lateral=True,
    stores_codes=True,
)


class _PostgresConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection whose server has to answer within a time."""

    answer_timeout: float | None = None

    def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:
        try:
            return super().wait(gen, interval, self.answer_timeout if timeout is None else timeout)
        except psycopg.errors._WaitTimeout as error:
            # Whatever comes later would be taken for the answer to another question.
            self.pgconn.finish()
            raise psycopg.errors.ConnectionTimeout(
                f"timeout: no answer within {self.answer_timeout:g} s"
            ) from error


class _BitsLoader(Loader):
    """Loads bit strings as bytes, most significant bit first."""

    format = pq.Format.BINARY

    def load(self, data: Any) -> bytes:
        return bytes(data[4:])  # after their number


class _PostgresCursor(psycopg.Cursor[tuple[Any, ...]]):
    """A cursor whose result may still be on its way in a pipeline."""

    @property
    def rowcount(self) -> int:
        """Number of rows changed."""
        pipeline = self.connection._pipeline  # psycopg has no public accessor
        if pipeline is not None:
            pipeline.sync()
        return super().rowcount


class PostgresSession:
    """A connection inside a transaction, as the statements see it."""

    def __init__(self, connection: _PostgresConnection, name: str, schema: str, dialect: Dialect) -> None:
        self.connection = connection
        self.name = name
        self.schema = schema
        self.dialect = dialect
        self.owners: dict[tuple[str, str], int] = {}
        self._tables: object = None
        self.version = 0
        """The number of the last migration when the transaction began; 0 where it was not looked up."""

    def check_tables(self, tables: object) -> None:
        """Drop the owner cache if the tables were recreated since the last transaction."""
        if self._tables != tables:
            self.owners.clear()
            self._tables = tables

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Cursor:
        """Execute a statement; in a pipeline, only reading the result waits for the server."""
        cursor = _PostgresCursor(self.connection)
        cursor.format = pq.Format.BINARY
        statement, parameters = collapse_number_list(statement, parameters)
        prepare = None if len(parameters) <= _MAX_PREPARED_PARAMETERS else False
        cursor.execute(qualify_statement(statement, self.schema), parameters, prepare=prepare)
        return cursor

    def executemany(self, statement: str, parameters: Iterable[Sequence[Any]], /) -> object:
        """Execute a statement once for each parameter tuple."""
        rows = [*parameters]
        postings = _POSTINGS_INSERT.fullmatch(statement)
        if postings is not None and rows:
            # Many rows of nothing but numbers travel as a column each.
            columns = ", ".join(["?::bigint[]"] * (postings[2].count(",") + 1))
            into = f"INSERT INTO {postings[1]} ({postings[2]}) SELECT * FROM unnest({columns})"
            self.execute(into, [f"{{{','.join(map(str, column))}}}" for column in zip(*rows, strict=True)])
        elif rows:
            with self.connection.cursor() as cursor:
                cursor.executemany(qualify_statement(statement, self.schema), rows)
        return None

    def lock(self, *locks: AdvisoryLock) -> None:
        """Acquire advisory locks until the transaction ends."""
        for statement in lock_statements(self.schema, locks):
            self.connection.execute(statement)

    def prepare_search(self, count: int) -> None:
        """Let pgvector scan until it has found `count` rows."""
        self.connection.execute(
            f"SET LOCAL hnsw.ef_search = {int(count)}; SET LOCAL hnsw.iterative_scan = relaxed_order"
        )


class PostgresConnections(ForkListener):
    """A connection pool of a store."""

    def __init__(
        self,
        conninfo: str,
        name: str,
        *,
        schema: str,
        size: int,
        timeout: float,
        prepare: bool = True,
        read_only: bool = False,
    ) -> None:
        self.name = name
        self.schema = schema
        self.read_only = read_only
        self.closed = False
        self._conninfo = conninfo
        self._size = size
        self._timeout = timeout
        self._prepare = prepare
        self._tables_query = f"SELECT to_regclass('\"{schema}\".owners')::oid, '0'"
        self._schema_locks: tuple[AdvisoryLock, ...] = ()
        self.dialect = DIALECT
        self.reconnect_timeout = 0.0  # one that was never there is not waited for
        self.transaction_settings: tuple[str, ...] = ()
        """Statements that hold for each transaction that changes something, found when it was opened."""
        self._reset()
        forks.register(self)

    def _reset(self) -> None:
        self._lock = Lock()
        self._idle: list[PostgresSession] = []
        self._open: WeakSet[_PostgresConnection] = WeakSet()
        self._pool_slots = BoundedSemaphore(self._size)

    def after_fork_in_child(self) -> None:
        """Close the sockets of the parent's connections without a word to the server, and start anew."""
        for connection in list(self._open):
            forks.leak(connection)  # its destructor would say goodbye for the parent
            with suppress(psycopg.Error, OSError):
                forks.detach_descriptor(connection.fileno())
        self._reset()

    def watch_version(self) -> None:
        """From now on keep the tables from being migrated during a write, and refuse those of a newer Omoide.

        Before the tables exist there is no number to read, and who migrates them holds the lock alone.
        """
        self._tables_query = (
            f"SELECT to_regclass('\"{self.schema}\".owners')::oid,"
            f" (SELECT value FROM \"{self.schema}\".settings WHERE name = 'schema')"
        )
        self._schema_locks = (tables.MIGRATION_LOCK._replace(shared=True),)

    @contextmanager
    def read_transaction(self) -> Iterator[PostgresSession]:
        """Open a read transaction that sees one snapshot."""
        with self._borrow("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as db:
            yield db

    @contextmanager
    def write_transaction(self, *locks: AdvisoryLock) -> Iterator[PostgresSession]:
        """Open a write transaction that holds `locks` and commits when the block succeeds."""
        if self.read_only:
            self._check_open()
            raise ReadOnly(self.name, "was opened for reading only", "open it without mode=ro")
        # What is held is in the same breath as the begin, and no statement sees what was before.
        lock_timeout = f"SET LOCAL lock_timeout = {max(1, int(self._timeout * 1_000))}"
        begin = [
            "BEGIN ISOLATION LEVEL READ COMMITTED",
            lock_timeout,
            *self.transaction_settings,
            *lock_statements(self.schema, (*locks, *self._schema_locks)),
        ]
        with self._borrow("; ".join(begin), commits=False) as db:
            connection, committed, sent = db.connection, None, False
            try:
                with connection.pipeline():
                    yield db
                    sent = True  # it may get there, and the answer not back
                    committed = connection.execute("COMMIT")
                    for lock in locks:
                        if lock.namespace is not None:
                            connection.execute(notify_statement(self.schema, lock.namespace))
            except psycopg.Error as error:
                if not sent:
                    raise
                if committed is None or committed.statusmessage != "COMMIT":
                    db.owners.clear()  # one of them may just have been undone
                    raise map_error(error, self.name, committing=True) from error
                # It is stored; only those who wait were not notified at once.
            if committed is not None and committed.statusmessage != "COMMIT":
                db.owners.clear()  # one of them has just been undone
                raise StoreFailed(self.name, "undid what was to be kept", "try again; nothing was changed")

    def read_once(self, read: Callable[[PostgresSession], T]) -> T:
        """Run a single read statement without a transaction; retry if an idle connection was lost."""
        deadline = time.monotonic() + min(self.reconnect_timeout, self._timeout)
        while True:
            try:
                with self._borrow(None) as db:
                    return read(db)
            except StoreUnreachable as error:
                # Nothing said before that the connection was lost while nobody used it.
                lost = isinstance(error.__cause__, psycopg.Error) and is_transient(error.__cause__)
                if not lost or time.monotonic() > deadline:
                    raise
                if not self._close_idle():
                    time.sleep(_RETRY_DELAY)

    def close(self) -> None:
        """Close all connections."""
        forks.check_process()
        self.closed = True
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            _close(db)

    def connect_outside_pool(self, **options: Any) -> _PostgresConnection:
        """Open a connection outside the pool."""
        try:
            return self._connect(**options)
        except psycopg.Error as error:
            raise map_error(error, self.name) from error

    def rewrite_tables(self, names: Iterable[str]) -> list[str]:
        """Rewrite tables without deleted rows; return what could not be removed, and why."""
        remaining: list[str] = []
        try:
            with self._connect() as connection:
                connection.answer_timeout = None  # it takes as long as there is to write
                if self._prepare:  # a pooler would pass it on to others
                    connection.execute(f"SET lock_timeout = {int(self._timeout * 1_000)}")
                connection.add_notice_handler(lambda notice: remaining.extend(_vacuum_warnings(notice)))
                for name in names:
                    connection.execute(f'VACUUM (FULL, VERBOSE) "{self.schema}".{name}')
        except psycopg.Error as error:
            raise map_error(error, self.name) from error
        return remaining

    @contextmanager
    def _borrow(self, begin: str | None, *, commits: bool = True) -> Iterator[PostgresSession]:
        """Lend a connection for one transaction, or wait until one is free."""
        self._check_open()
        pool_slots = self._pool_slots
        if not pool_slots.acquire(timeout=self._timeout):
            raise Busy(
                self.name,
                f"has all its {self._size} connections in use for {self._timeout:g} s",
                "try again, or open it with a larger ?pool=",
            )
        db: PostgresSession | None = None
        try:
            db = self._begin_transaction(begin)
            tables.check_version(db.version, self.name)
            yield db
            if begin is not None and commits:
                db.connection.execute("COMMIT")
        except psycopg.Error as error:
            raise map_error(error, self.name) from error
        finally:
            if db is not None:
                self._release(db)
            pool_slots.release()

    def _begin_transaction(self, begin: str | None) -> PostgresSession:
        """Return a connection in a new transaction; a lost connection is replaced."""
        deadline = time.monotonic() + min(self.reconnect_timeout, self._timeout)
        while True:
            db: PostgresSession | None = None
            try:
                db = self._acquire()
                if begin is not None:
                    cursor = db.connection.execute(f"{begin}; {self._tables_query}")
                    while cursor.nextset():
                        pass
                    found, version = cursor.fetchone() or (None, None)
                    db.check_tables(found)
                    db.version = int(version or 0)
                return db
            except psycopg.Error as error:
                if db is not None:
                    _close(db)
                if not is_transient(error) or time.monotonic() > deadline:
                    raise
                if not self._close_idle():
                    time.sleep(_RETRY_DELAY)

    def _acquire(self) -> PostgresSession:
        with self._lock:
            if self._idle:
                db = self._idle.pop()
                db.dialect = self.dialect  # found out after the first connection was made
                return db
        return PostgresSession(self._connect(), self.name, self.schema, self.dialect)

    def _close_idle(self) -> bool:
        """Close all idle connections, which were probably lost together; return False if there were none."""
        with self._lock:
            idle, self._idle = self._idle, []
        for db in idle:
            _close(db)
        return bool(idle)

    def _release(self, db: PostgresSession) -> None:
        if not _leave_transaction(db):
            _close(db)
            return
        with self._lock:
            if not self.closed and db.connection in self._open:  # a child leaves what it inherited
                self._idle.append(db)
                return
        _close(db)

    def _check_open(self) -> None:
        forks.check_process()
        if self.closed:
            raise Closed(self.name, "is closed", "open it again")

    def _connect(self, **options: Any) -> _PostgresConnection:
        connection = _PostgresConnection.connect(self._conninfo, autocommit=True, **options)
        self._open.add(connection)
        connection.answer_timeout = _TIMEOUT_FACTOR * self._timeout
        connection.prepare_threshold = 5 if self._prepare else None
        connection.prepared_max = _MAX_PREPARED_STATEMENTS
        connection.adapters.register_dumper(int, Int8BinaryDumper)  # one kind of number, one plan
        connection.adapters.register_loader("varbit", _BitsLoader)
        return connection


def _vacuum_warnings(notice: psycopg.errors.Diagnostic) -> Iterator[str]:
    """Yield what VACUUM could not remove, because a transaction may still see it."""
    dead = _DEAD_ROWS.match(notice.message_detail or "")
    if notice.severity_nonlocalized == "WARNING":
        yield f"{notice.message_primary}"
    elif dead is not None and int(dead[0]):
        yield f"rows that a transaction may still see, until the next scrub(): {notice.message_primary}"


def lock_statements(schema: str, locks: Iterable[AdvisoryLock]) -> list[str]:
    """Return the statements that acquire locks, in a fixed order to avoid deadlocks."""
    keys = sorted({(lock_key(schema, hold.name), hold.shared) for hold in locks})
    return [f"SELECT pg_advisory_xact_lock{'_shared' * shared}({key})" for key, shared in keys]


def notify_channel(schema: str) -> str:
    """Return the channel of change notifications."""
    return f"omoide_{lock_key(schema, 'changes') & 0xFFFF_FFFF:08x}"


def notify_payload(schema: str, namespace: str) -> str:
    """Return the notification payload of a namespace; a digest, which does not reveal its name."""
    return f"{lock_key(schema, f'changes {namespace}'):x}"


def notify_statement(schema: str, namespace: str) -> str:
    """Return the statement that notifies of a change.

    It runs after the commit: a NOTIFY inside a transaction makes the server serialize all commits.
    """
    return f"SELECT pg_notify('{notify_channel(schema)}', '{notify_payload(schema, namespace)}')"


@lru_cache(4_096)
def lock_key(schema: str, name: str) -> int:
    """Return the number of an advisory lock."""
    digest = blake2b(f"{schema} {name}".encode(), digest_size=8, person=b"omoide").digest()
    return int.from_bytes(digest, "big", signed=True)


def collapse_number_list(statement: str, parameters: Sequence[Any]) -> tuple[str, Sequence[Any]]:
    """Pass a long list of numbers as one array parameter, so that the statement is planned once."""
    match = _NUMBER_LIST.search(statement) if len(parameters) > _MAX_PREPARED_PARAMETERS else None
    if match is None:
        return statement, parameters
    before = statement.count("?", 0, match.start())
    after = before + match[0].count("?")
    numbers = f"{{{','.join(map(str, parameters[before:after]))}}}"
    whole = f"{statement[: match.start()]}{match[1]} = ANY(?::bigint[]){statement[match.end() :]}"
    return whole, (*parameters[:before], numbers, *parameters[after:])


@lru_cache(2_048)
def qualify_statement(statement: str, schema: str) -> str:
    """Qualify table names with the schema and use the driver's parameter style."""
    qualified = _TABLE_REFERENCE.sub(rf'\1 "{schema}".\2', statement.replace("%", "%%"))
    return qualified.replace("?", "%s")


def _leave_transaction(db: PostgresSession) -> bool:
    """Roll back an open transaction; return False if the connection cannot be used again."""
    connection = db.connection
    if connection.closed or connection.broken:
        return False
    if connection.info.transaction_status == pq.TransactionStatus.IDLE:
        return True
    db.owners.clear()  # one of them may just have been undone
    try:
        connection.execute("ROLLBACK")
    except psycopg.Error:
        return False
    return True


def _close(db: PostgresSession) -> None:
    with suppress(psycopg.Error):
        db.connection.close()
