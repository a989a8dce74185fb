"""What does an error of SQLite's mean to the caller?

Every `sqlite3` error is turned into one of ours here, and nowhere else.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from omoide.errors import Busy, Closed, Corrupted, DiskFull, ReadOnly, StoreFailed

_WRITING = {
    sqlite3.SQLITE_IOERR_WRITE,
    sqlite3.SQLITE_IOERR_FSYNC,
    sqlite3.SQLITE_IOERR_TRUNCATE,
    sqlite3.SQLITE_IOERR_SHMSIZE,
}


def is_busy(error: sqlite3.Error) -> bool:
    """Whether somebody else holds the file, so that trying again may help."""
    return _code(error) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL)


def translated(error: sqlite3.Error, name: str) -> StoreFailed:
    """Our error for one of SQLite's."""
    full, code = getattr(error, "sqlite_errorcode", 0) or 0, _code(error)
    if is_busy(error):
        return Busy(name, "is held by another process", "try again, or open it with a longer timeout")
    if code == sqlite3.SQLITE_FULL or full in _WRITING:
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
def translating(name: str) -> Iterator[None]:
    """A block in which SQLite's errors become ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, name) from error


def _code(error: sqlite3.Error) -> int:
    return (getattr(error, "sqlite_errorcode", 0) or 0) & 0xFF
