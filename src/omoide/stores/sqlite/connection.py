"""Connect to a SQLite file, migrate its schema and map its errors.

Every `sqlite3` error becomes one of ours here, and nowhere else. One connection writes, behind a lock; any
number of connections read. All of them see whole transactions only. None is open during a fork.

Each migration is a number and the statements that lead to it; a file is migrated when it is opened, in one
transaction. The change log contains no content.
"""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from errno import EROFS
from pathlib import Path
from threading import Condition, Lock, RLock, get_ident
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from omoide import forks
from omoide.errors import (
    Busy,
    Closed,
    Corrupted,
    DiskFull,
    Forked,
    ReadOnly,
    Replaced,
    StoreFailed,
    WrongVersion,
)
from omoide.forks import ForkListener
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores.sql import rows
from omoide.stores.sql.database import AdvisoryLock, Dialect

T = TypeVar("T")

APPLICATION_ID = 0x6F6D6F69  # "omoi", in the header of every file of ours
_BUSY_TIMEOUT = 5.0  # seconds that SQLite itself waits for others; ours is above it

_DIALECT = Dialect(
    contains_bytes="instr(body, ?) > 0",
    table_order_hint="NOT INDEXED",
    join_order_hint="CROSS",
    no_index_prefix="+",
)

DAMAGE = (sqlite3.Error, UnicodeError)
"""What SQLite raises where a file is damaged; its message, or an id, may be damaged text."""

_WRITE_ERRORS = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}

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
    """
    ALTER TABLE entries ADD COLUMN user_id TEXT;
    ALTER TABLE entries ADD COLUMN key TEXT;
    ALTER TABLE tombstones ADD COLUMN user_id TEXT;
    ALTER TABLE documents ADD COLUMN user_id TEXT;
    ALTER TABLE receipts ADD COLUMN superseded TEXT;
    CREATE INDEX by_user ON entries (owner, user_id, type, live, time) WHERE user_id IS NOT NULL;
    CREATE INDEX by_key ON entries (owner, key, live, time) WHERE key IS NOT NULL;
    CREATE UNIQUE INDEX by_slot ON entries
        (owner, key, coalesce(user_id, ''), coalesce(session, ''), coalesce(project, ''))
        WHERE key IS NOT NULL AND live IN (1, 2);
    """,
    """
    ALTER TABLE leases ADD COLUMN ttl INTEGER NOT NULL DEFAULT 600000;
    ALTER TABLE entries ADD COLUMN checksum INTEGER;
    ALTER TABLE versions ADD COLUMN checksum INTEGER;
    ALTER TABLE documents ADD COLUMN checksum INTEGER;
    ALTER TABLE document_log ADD COLUMN checksum INTEGER;
    """,
)

VERSION = len(MIGRATIONS)


def schema_version(db: sqlite3.Connection) -> int:
    """Return the number of the last migration of a file."""
    number: int = db.execute("PRAGMA user_version").fetchone()[0]
    return number


def check_application(db: sqlite3.Connection, name: str) -> None:
    """Raise `StoreFailed` for another program's database, and `WrongVersion` for one of a newer Omoide."""
    # In this order: another process that makes the store meanwhile sets both at once.
    (has_tables,) = db.execute("SELECT EXISTS (SELECT 1 FROM sqlite_schema)").fetchone()
    (application,) = db.execute("PRAGMA application_id").fetchone()
    if application != APPLICATION_ID and has_tables:
        raise StoreFailed(name, "is another program's database", "choose another path")
    if application == APPLICATION_ID:
        check_version(db, name)


def check_version(db: sqlite3.Connection, name: str) -> None:
    """Raise `WrongVersion` for the schema of a newer Omoide."""
    found = schema_version(db)
    if found > VERSION:
        raise WrongVersion(
            name,
            f"has schema {found}, and this Omoide knows schemas up to {VERSION}",
            "use the newer Omoide that made it; nothing was changed",
        )


def migrate(db: sqlite3.Connection, name: str, version: int = VERSION) -> int:
    """Migrate a file inside the caller's transaction; return the version it had, or 0 if it was new."""
    check_application(db, name)  # again: another process may have been faster
    old = schema_version(db)
    for number in range(old, version):
        for statement in MIGRATIONS[number].split(";"):
            if statement.strip():
                db.execute(statement)
        db.execute(f"PRAGMA user_version = {number + 1}")
    if old < version:
        db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    return old


def is_busy(error: Exception) -> bool:
    """Return True if another connection holds the file, so that a retry may help."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def map_error(error: Exception, name: str) -> StoreFailed:
    """Return our error for one of SQLite."""
    full, code = getattr(error, "sqlite_errorcode", 0) or 0, _code(error)
    if is_busy(error):
        return Busy(name, "is held by another process", "try again, or open it with a longer timeout")
    if code == sqlite3.SQLITE_FULL or full in _WRITE_ERRORS:
        return DiskFull(
            name, f"has no room left ({error})", "free some space and try again; nothing was lost"
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        remedy = "check the permissions of file and folder, or open it with mode=ro to read it"
        return ReadOnly(name, f"cannot be written to ({error})", remedy)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or isinstance(error, UnicodeError):
        return Corrupted(name, f"is damaged ({error})", "run `omoide doctor --repair`, or restore a backup")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreFailed(name, f"cannot be opened ({error})", "check that its folder exists and is yours")
    if isinstance(error, sqlite3.ProgrammingError) and "closed" in str(error):
        return Closed(name, "is closed", "open it again")
    return StoreFailed(name, f"failed ({error})", "`omoide doctor` says more")


@contextmanager
def map_errors(name: str) -> Iterator[None]:
    """Map SQLite errors raised in the block to ours."""
    try:
        yield
    except DAMAGE as error:
        raise map_error(error, name) from error


def _code(error: Exception) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF


def _decode_text(raw: bytes) -> str:
    """Decode text also where it is damaged, so that only its own row cannot be read."""
    return raw.decode("utf-8", "surrogateescape")


class SQLiteConnection(sqlite3.Connection):
    """A connection with a cache of owner numbers, which never change once committed."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.owners: dict[tuple[str, str], int] = {}
        self.name = ""
        self.text_factory = _decode_text
        self.file_state: FileState | None = None
        """The state of the file that it relies on, if it takes no locks."""

    @property
    def dialect(self) -> Dialect:
        """SQL dialect of SQLite."""
        return _DIALECT

    def lock(self, *locks: AdvisoryLock) -> None:
        """Do nothing: a SQLite write transaction is exclusive anyway."""

    def prepare_search(self, count: int) -> None:
        """Do nothing: there is no vector index."""


class FileId(NamedTuple):
    """The identity of a file, whatever its name."""

    device: int
    inode: int

    @classmethod
    def of(cls, path: str) -> FileId | None:
        """Return the identity of the file at a path, or None if there is none; no descriptor is opened."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return cls(status.st_dev, status.st_ino)


class FileState(NamedTuple):
    """What differs once another process has opened a file to write, or has written it."""

    inode: int
    size: int
    modified: int
    has_log: bool

    @classmethod
    def of(cls, path: Path) -> FileState | None:
        """Return the state of the file at a path, or None if there is none."""
        try:
            status = os.stat(path)
        except OSError:
            return None
        return cls(status.st_ino, status.st_size, status.st_mtime_ns, _size(f"{path}-wal") > 0)


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def may_write(path: Path) -> bool:
    """Return True if this user may write a file, and the files that SQLite puts beside it."""
    real = os.path.realpath(path)
    return os.access(real, os.W_OK) and os.access(os.path.dirname(real), os.W_OK)


def not_writable(name: str) -> ReadOnly:
    """Return the error for a file that this user may only read."""
    return ReadOnly(
        name,
        "may only be read by this user",
        "get write permission for the file and its folder, or name another store",
    )


_refused: set[FileId] = set()
"""Files to which this process inherited open connections through a fork."""


class OperationGate:
    """Counts running operations, and keeps new ones out during a fork."""

    def __init__(self) -> None:
        self._changed = Condition(RLock())  # the handler of a signal may fork in a thread that has it
        self._users: dict[int, int] = {}  # number of nested operations by thread
        self._closed = False

    def enter(self) -> int:
        """Begin an operation; return the key for `leave`."""
        thread = get_ident()
        with self._changed:
            # A thread that is inside an operation may nest another: the fork waits for both.
            while self._closed and thread not in self._users:
                self._changed.wait()
            self._users[thread] = self._users.get(thread, 0) + 1
        return thread

    def leave(self, key: int) -> None:
        """End an operation."""
        with self._changed:
            count = self._users.get(key, 0)
            if count > 1:
                self._users[key] = count - 1
            else:
                self._users.pop(key, None)
                self._changed.notify_all()

    def close(self, deadline: float) -> bool:
        """Keep new operations out and wait for those of other threads; return True if none is left."""
        thread = get_ident()
        with self._changed:
            self._closed = True
            # The thread that forks cannot end its own operation here: waiting for it would never end.
            while any(user != thread for user in self._users):
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            return not self._users

    def open(self) -> None:
        """Let operations begin again."""
        with self._changed:
            self._closed = False
            self._changed.notify_all()


class SQLiteConnections(ForkListener):
    """The connections of a store to its file.

    SQLite counts the locks on a file once for the whole process, and a child does not inherit POSIX locks. A
    child that uses an inherited connection, or opens another one beside it, therefore trusts locks that it
    does not have, and closing an inherited one rolls back a transaction of the parent. So no connection is
    open during a fork: both processes open their own afterwards, on demand. Where an operation takes longer
    than the fork waits, the parent goes on and the child refuses the file.

    For the same reason nothing but SQLite opens the file once it exists: closing any descriptor of a file
    drops all POSIX locks that the process has on it.

    A user who may not write the file, or its folder, shares the locks of those who have it open. Where nobody
    has, SQLite could not make the files through which it locks: then the file is read without locks, and a
    read during which it was changed fails with `Busy`.
    """

    def __init__(
        self,
        path: Path,
        *,
        power_safe: bool = False,
        read_only: bool = False,
        max_pages: int | None = None,
        timeout: float = 60.0,
    ) -> None:
        self.name = str(path)
        self.path = Path(os.path.realpath(path))  # a link that points elsewhere later is noticed by its name
        self.read_only = read_only
        self._power_safe = power_safe
        self._max_pages = max_pages
        self._timeout = timeout
        self._file: FileId | None = None
        self.closed = False
        self._reset()
        forks.register(self)
        if not read_only:
            create_private_file(self.path)
        check_single_name(self.path)
        try:
            with map_errors(self.name):
                self._prepare()
        except BaseException:
            self.close()
            raise

    def _reset(self) -> None:
        self._process = os.getpid()
        self._gate = OperationGate()
        self._lock = RLock()
        self._idle_lock = Lock()
        self._open: set[SQLiteConnection] = set()
        self._idle: list[SQLiteConnection] = []
        self._writer: SQLiteConnection | None = None
        self._side_files: tuple[FileId | None, FileId | None] | None = None

    def _prepare(self) -> None:
        if self.read_only:
            with self._lend() as db:
                if schema_version(db) != VERSION:
                    raise ReadOnly(
                        self.name, "has an older schema", "open it once for writing to carry it forward"
                    )
            return
        with self.write_transaction() as db:
            version = migrate(db, self.name, VERSION)
            rows.migrate_staleness(db, version)
            if version == 0:
                db.execute("INSERT INTO settings VALUES ('features', ?)", (str(FEATURES_VERSION),))

    @contextmanager
    def read_transaction(self) -> Iterator[SQLiteConnection]:
        """Open a read transaction that sees one snapshot."""
        with self._lend() as db:
            self._execute_with_retry(db, "BEGIN")
            yield db
            self._check_inherited(db)
            db.execute("COMMIT")

    def read_once(self, read: Callable[[SQLiteConnection], T]) -> T:
        """Run a single read statement without a transaction."""
        with self._lend() as db:
            return read(db)

    @contextmanager
    def write_transaction(self, *locks: AdvisoryLock) -> Iterator[SQLiteConnection]:
        """Open a write transaction that commits when the block succeeds."""
        with self._lend_writer() as db:
            try:
                self._execute_with_retry(db, "BEGIN IMMEDIATE")
                check_version(db, self.name)  # a newer Omoide may have migrated the file since it was opened
                self._side_files = self._side_files or self._find_side_files()
                yield db
                self._check_inherited(db)
                self._check_file()
                self._execute_with_retry(db, "COMMIT")
            except BaseException:
                # One of them may just have been undone, by SQLite itself where a statement failed.
                db.owners.clear()
                raise
            finally:
                self._end_write(db)

    def _end_write(self, db: SQLiteConnection) -> None:
        self._check_process()
        if db in self._open and not _leave_transaction(db):
            self._open.discard(db)
            self._writer = self._side_files = None

    @contextmanager
    def exclusive_writer(self) -> Iterator[SQLiteConnection]:
        """Yield the writer outside a transaction, for statements that SQLite allows only there."""
        with self._lend_writer() as db:
            if self._side_files is not None:
                self._check_file()
            yield db

    @contextmanager
    def _lend_writer(self) -> Iterator[SQLiteConnection]:
        self._check_open()
        if self.read_only and not may_write(self.path):
            raise not_writable(self.name)
        if self.read_only:
            raise ReadOnly(self.name, "was opened for reading only", "open it without mode=ro")
        gate, lock = self._gate, self._lock  # after a fork inside the block the child has others
        key = gate.enter()
        try:
            with lock, map_errors(self.name):
                self._check_open()  # it may have been closed while others were writing
                self._writer = self._writer or self._connect(writer=True)
                yield self._writer
        finally:
            gate.leave(key)

    def close(self) -> None:
        """Close all connections."""
        self._check_process()
        self.closed = True
        key = self._gate.enter()
        try:
            with self._lock, self._idle_lock:
                self._close_idle()
        finally:
            self._gate.leave(key)

    def _close_idle(self) -> None:
        for db in [*self._idle, *([] if self._writer is None else [self._writer])]:
            db.close()
            self._open.discard(db)
        self._idle.clear()
        self._writer = self._side_files = None

    def before_fork(self, deadline: float) -> None:
        """Wait for running operations, and close all connections."""
        if self._gate.close(deadline):
            self._close_idle()

    def after_fork_in_parent(self) -> None:
        """Let operations begin again."""
        self._gate.open()

    def after_fork_in_child(self) -> None:
        """Leave inherited connections alone, and refuse their file."""
        for db in self._open:
            forks.leak(db)
        if self._open and self._file is not None:
            _refused.add(self._file)
        self._reset()

    def _check_process(self) -> None:
        if os.getpid() != self._process:  # C code forked, so that no listener was called
            forks.check_process()

    def _check_inherited(self, db: SQLiteConnection) -> None:
        """Raise `Forked` in a child that was forked inside a transaction."""
        self._check_process()
        if db not in self._open:
            raise self._fork_error()

    def _fork_error(self) -> Forked:
        return Forked(
            self.name,
            "was in use when this process was forked, so its locks cannot be trusted here",
            "open it after the fork, or start the process with spawn",
        )

    def _check_file(self) -> None:
        """Raise `Replaced` if a commit would go to files that are no longer at their paths."""
        if FileId.of(self.name) != self._file or self._find_side_files() != self._side_files:
            raise self._replacement_error()

    def _find_side_files(self) -> tuple[FileId | None, FileId | None]:
        """Return the identities of the log, and of the file by which processes lock it."""
        return FileId.of(f"{self.path}-wal"), FileId.of(f"{self.path}-shm")

    def _replacement_error(self) -> Replaced:
        return Replaced(
            self.name,
            "was replaced or deleted while it was open",
            "open it again; this operation changed nothing",
        )

    def _execute_with_retry(self, db: sqlite3.Connection, statement: str) -> None:
        """Execute a statement, retrying while the file is busy until the timeout ends."""
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

    @contextmanager
    def _lend(self) -> Iterator[SQLiteConnection]:
        """Lend a connection for reading."""
        self._check_open()
        gate = self._gate
        key = gate.enter()
        try:
            with map_errors(self.name):
                db = self._pop_idle() or self._connect(writer=False)
                try:
                    with self._check_state(db):
                        yield db
                finally:
                    self._take_back(db)
        finally:
            gate.leave(key)

    def _pop_idle(self) -> SQLiteConnection | None:
        """Return an idle connection, but none that relies on a state that the file no longer has."""
        with self._idle_lock:
            while self._idle:
                db = self._idle.pop()
                if self._is_current(db):
                    return db
                self._open.discard(db)
                db.close()
        return None

    def _is_current(self, db: SQLiteConnection) -> bool:
        return db.file_state is None or db.file_state == FileState.of(self.path)

    @contextmanager
    def _check_state(self, db: SQLiteConnection) -> Iterator[None]:
        """Raise `Busy` if the file changed while a connection without locks read it."""
        cause: Exception | None = None
        try:
            yield
        except Exception as error:
            if self._is_current(db):
                raise
            cause = error
        if not self._is_current(db):
            raise Busy(self.name, "was changed while it was read", "try again") from cause

    def _take_back(self, db: SQLiteConnection) -> None:
        self._check_process()
        if db not in self._open:  # a child leaves what it inherited as it is
            return
        usable = _leave_transaction(db)
        with self._idle_lock:
            if usable and not self.closed:
                self._idle.append(db)
                return
        self._open.discard(db)
        db.close()

    def _check_open(self) -> None:
        self._check_process()
        if self.closed:
            raise Closed(self.name, "is closed", "open it again")

    def _connect(self, *, writer: bool) -> SQLiteConnection:
        mode, state = self._access_mode()
        deadline = time.monotonic() + self._timeout
        file = FileId.of(self.name)
        if file in _refused:
            raise self._fork_error()
        if self._file not in (None, file):
            raise self._replacement_error()
        self._file = file
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
                db.name, db.file_state = self.name, state
                self._configure(db, writer=writer)
                self._open.add(db)
                return db
            except sqlite3.OperationalError as error:
                db.close()
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            except BaseException:
                db.close()
                raise

    def _access_mode(self) -> tuple[str, FileState | None]:
        """Return how SQLite opens the file, and the state that it may not leave if that is without locks."""
        if not self.read_only:
            return "rw", None
        if may_write(self.path) or None not in self._find_side_files():
            return "ro", None
        if _size(f"{self.path}-wal") or _size(f"{self.path}-journal"):
            raise ReadOnly(
                self.name,
                "has changes in its log, which this user may not bring into the file",
                "have a user who may write it run `omoide doctor`, or get write permission for its folder",
            )
        return "ro&immutable=1", FileState.of(self.path)

    def _configure(self, db: SQLiteConnection, *, writer: bool) -> None:
        check_application(db, self.name)  # before anything is changed
        if not self.read_only:
            db.execute("PRAGMA journal_mode = WAL")
            db.execute(f"PRAGMA synchronous = {'FULL' if self._power_safe else 'NORMAL'}")
        db.execute("PRAGMA cache_size = -65536" if writer else "PRAGMA cache_size = -16384")
        if db.file_state is None:  # a file without locks may be truncated at any time
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
    """Roll back an open transaction; return False if that failed and the connection was closed."""
    if not db.in_transaction:
        return True
    try:
        db.execute("ROLLBACK")
    except sqlite3.Error:
        db.close()
        return False
    return True


def check_single_name(path: Path) -> None:
    """Raise `StoreFailed` if a file has several hard links: SQLite would keep a log for each of them."""
    try:
        names = os.stat(path).st_nlink
    except OSError:
        return  # SQLite says what is wrong with it
    if names > 1:
        raise StoreFailed(
            str(path), f"has {names} names (hard links)", "remove the others, or use symbolic links"
        )


def create_private_file(path: Path, wanted: Path | None = None) -> None:
    """Create a file that only its owner can read, unless it exists; its side files get the same mode.

    Errors name the file that is wanted, if this is a temporary one beside it.
    """
    try:
        if sys.platform == "linux":
            # Without a descriptor: another thread may open the file at once, and closing one drops its locks.
            os.mknod(path, 0o600 | stat.S_IFREG)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        return
    except OSError as error:
        remedy = "check that its folder exists and is yours"
        kind = ReadOnly if isinstance(error, PermissionError) or error.errno == EROFS else StoreFailed
        raise kind(str(wanted or path), f"cannot be created ({error.strerror})", remedy) from error
