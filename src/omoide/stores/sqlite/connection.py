"""Connections and error mapping.

Every `sqlite3` error is turned into one of ours here, and nowhere else.

One connection writes, behind a lock; as many read as there are readers at once. Both see whole transactions
only. A process that was forked opens its own.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EROFS
from pathlib import Path
from threading import Lock, RLock
from typing import Any, TypeVar
from urllib.parse import quote

from omoide.errors import Busy, Closed, Corrupted, DiskFull, ReadOnly, StoreFailed
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores.sql import rows
from omoide.stores.sql.database import AdvisoryLock, Dialect
from omoide.stores.sqlite import schema

_WRITE_ERRORS = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds the file, so that trying again may help."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def map_error(error: sqlite3.Error, name: str) -> StoreFailed:
    """Our error for one of SQLite's."""
    full, code = getattr(error, "sqlite_errorcode", 0) or 0, _code(error)
    if is_busy(error):
        return Busy(name, "is held by another process", "try again, or open it with a longer timeout")
    if code == sqlite3.SQLITE_FULL or full in _WRITE_ERRORS:
        return DiskFull(
            name, f"has no room left ({error})", "free some space and try again; nothing was lost"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return ReadOnly(name, f"cannot be written to ({error})", "check the permissions of file and folder")
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return Corrupted(name, f"is damaged ({error})", "restore a backup; `omoide doctor` says more")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreFailed(name, f"cannot be opened ({error})", "check that its folder exists and is yours")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return Closed(name, "is closed", "open it again")
    return StoreFailed(name, f"failed ({error})", "`omoide doctor` says more")


@contextmanager
def map_errors(name: str) -> Iterator[None]:
    """A block in which SQLite's errors become ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise map_error(error, name) from error


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


T = TypeVar("T")

_INHERITED: list[object] = []
"""Connections that came across a fork: never used, and never closed, which would touch the parent's files."""

_BUSY_TIMEOUT = 5.0  # seconds that SQLite itself waits for others; ours is above it


_DIALECT = Dialect(
    contains_bytes="instr(body, ?) > 0",
    table_order_hint="NOT INDEXED",
    join_order_hint="CROSS",
    no_index_prefix="+",
)


class SQLiteConnection(sqlite3.Connection):
    """A connection that remembers the numbers of owners, which never change once they are committed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.owners: dict[tuple[str, str], int] = {}

    @property
    def dialect(self) -> Dialect:
        """What SQLite says differently."""
        return _DIALECT

    def lock(self, *locks: AdvisoryLock) -> None:
        """Keep others from something; nobody else writes meanwhile."""

    def prepare_search(self, count: int) -> None:
        """Prepare an index; there is none."""


class SQLiteConnections:
    """The connections of one store to its file."""

    def __init__(
        self,
        path: Path,
        *,
        power_safe: bool = False,
        read_only: bool = False,
        max_pages: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.path = path
        self.name = str(path)
        self.read_only = read_only
        self._power_safe = power_safe
        self._max_pages = max_pages
        self._timeout = timeout
        self.closed = False
        self._reset()
        if not read_only:
            create_private_file(path)
        try:
            with map_errors(self.name):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _reset(self) -> None:
        self._process = os.getpid()
        self._lock = RLock()
        self._idle_lock = Lock()
        self._idle: list[SQLiteConnection] = []
        self._writer: SQLiteConnection | None = None

    def _prepare(self) -> None:
        if self.read_only:
            db = self._acquire()
            if schema.version(db) != schema.VERSION:
                raise ReadOnly(
                    self.name, "has an older schema", "open it once for writing to carry it forward"
                )
            self._release(db)
            return
        with self.write_transaction() as db:
            found = schema.migrate(db, self.name)
            rows.migrate_staleness(db, found)
            if found == 0:
                db.execute("INSERT INTO settings VALUES ('features', ?)", (str(FEATURES_VERSION),))

    @contextmanager
    def read_transaction(self) -> Iterator[SQLiteConnection]:
        """A block that sees the store as it is at one moment."""
        db = self._acquire()
        try:
            self._execute_with_retry(db, "BEGIN")
            yield db
            db.execute("COMMIT")
        except sqlite3.Error as error:
            raise map_error(error, self.name) from error
        finally:
            if _leave_transaction(db):
                self._release(db)

    def read_once(self, read: Callable[[SQLiteConnection], T]) -> T:
        """What one statement finds, which needs no transaction of its own."""
        db = self._acquire()
        try:
            return read(db)
        except sqlite3.Error as error:
            raise map_error(error, self.name) from error
        finally:
            self._release(db)

    @contextmanager
    def write_transaction(self, *locks: AdvisoryLock) -> Iterator[SQLiteConnection]:
        """A block that changes the store as a whole, or not at all."""
        self._check_open()
        if self.read_only:
            raise ReadOnly(self.name, "was opened for reading only", "open it without mode=ro")
        with self._lock:
            self._check_open()  # it may have been closed while others were writing
            try:
                db = self._writer = self._writer or self._connect(writer=True)
                self._execute_with_retry(db, "BEGIN IMMEDIATE")
                yield db
                self._execute_with_retry(db, "COMMIT")
            except sqlite3.Error as error:
                raise map_error(error, self.name) from error
            finally:
                if self._writer is not None and not _leave_transaction(self._writer):
                    self._writer = None

    @contextmanager
    def exclusive_writer(self) -> Iterator[SQLiteConnection]:
        """The writer outside of a transaction, for what SQLite only does there."""
        self._check_open()
        with self._lock, map_errors(self.name):
            self._check_open()
            self._writer = self._writer or self._connect(writer=True)
            yield self._writer

    def close(self) -> None:
        """Let go of the file."""
        self.closed = True
        if self._process != os.getpid():
            return
        with self._lock, self._idle_lock:
            for db in self._idle:
                db.close()
            self._idle.clear()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def _execute_with_retry(self, db: sqlite3.Connection, statement: str) -> None:
        """Run a statement that others may hold up, until our own patience ends."""
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                db.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error):
                    raise
                if time.monotonic() > deadline:
                    raise Busy(
                        self.name,
                        f"was held by another process for {self._timeout:g} s",
                        "try again, or open it with a longer timeout",
                    ) from error

    def _acquire(self) -> SQLiteConnection:
        self._check_open()
        with self._idle_lock:
            if self._idle:
                return self._idle.pop()
        with map_errors(self.name):
            return self._connect(writer=False)

    def _release(self, db: SQLiteConnection) -> None:
        with self._idle_lock:
            if self.closed:
                db.close()
            else:
                self._idle.append(db)

    def _check_open(self) -> None:
        if self.closed:
            raise Closed(self.name, "is closed", "open it again")
        if self._process != os.getpid():
            _INHERITED.extend([*self._idle, self._writer])
            self._reset()

    def _connect(self, *, writer: bool) -> SQLiteConnection:
        mode = "ro" if self.read_only else "rwc"
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                db = sqlite3.connect(
                    f"file:{quote(str(self.path))}?mode={mode}",
                    uri=True,
                    isolation_level=None,
                    check_same_thread=False,
                    timeout=min(_BUSY_TIMEOUT, self._timeout),
                    cached_statements=256,
                    factory=SQLiteConnection,
                )
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
                continue
            try:
                self._configure(db, writer=writer)
                return db
            except sqlite3.OperationalError as error:
                db.close()
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            except BaseException:
                db.close()
                raise

    def _configure(self, db: sqlite3.Connection, *, writer: bool) -> None:
        schema.check_application(db, self.name)  # before anything is changed
        if not self.read_only:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'FULL' if self._power_safe else 'NORMAL'}")
        db.execute("PRAGMA cache_size = -65536" if writer else "PRAGMA cache_size = -16384")
        db.execute("PRAGMA mmap_size = 268435456")
        db.execute("PRAGMA temp_store = MEMORY")
        if writer:
            db.execute("PRAGMA secure_delete = ON")
            db.execute("PRAGMA journal_size_limit = 67108864")
            db.execute("PRAGMA wal_autocheckpoint = 4000")  # hot pages are written once for many commits
            if self._max_pages is not None:
                db.execute(f"PRAGMA max_page_count = {int(self._max_pages)}")
        else:
            db.execute("PRAGMA query_only = ON")


def _leave_transaction(db: SQLiteConnection) -> bool:
    """Whether a connection is out of its transaction; one that cannot leave it is closed, which undoes it."""
    if not db.in_transaction:
        return True
    db.owners.clear()  # one of them may just have been undone
    try:
        db.execute("ROLLBACK")
    except sqlite3.Error:
        db.close()
        return False
    return True


def create_private_file(path: Path) -> None:
    """Make a new file that nobody but its owner can read; what SQLite puts beside it gets the same rights."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
    except OSError as error:
        remedy = "check that its folder exists and is yours"
        kind = ReadOnly if isinstance(error, PermissionError) or error.errno == EROFS else StoreFailed
        raise kind(str(path), f"cannot be opened ({error})", remedy) from error
