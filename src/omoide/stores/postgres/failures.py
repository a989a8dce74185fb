"""What does an error of PostgreSQL's mean to the caller?

Every error of the driver is turned into one of ours here, and nowhere else.
"""

from __future__ import annotations

import psycopg
from psycopg import errors

from omoide.errors import (
    Busy,
    Corrupted,
    DiskFull,
    ReadOnly,
    StoreFailed,
    StoreUnreachable,
    Uncertain,
)

_ROOM = "free some space and try again; nothing was lost"
_CROWDED = ("too many clients", "too many connections", "remaining connection slots")
_FINAL = ("authentication", "does not exist", "no pg_hba", "resolve", "translate host")


def translated(error: psycopg.Error, name: str, *, committing: bool = False) -> StoreFailed:
    """Our error for one of the driver's; while a commit is under way, its fate may be unknown."""
    text = _text(error)
    if is_lost(error):
        if committing:
            return Uncertain(
                name,
                f"was lost while it was to keep something ({text})",
                "read it again, or write it again with the same id or idempotency key",
            )
        return _unreachable(error, name, text)
    match error:
        case errors.DiskFull() | errors.OutOfMemory():
            return DiskFull(name, f"has no room left ({text})", _ROOM)
        case errors.TooManyConnections() | errors.ConfigurationLimitExceeded():
            return _crowded(name, text)
        case errors.LockNotAvailable() | errors.QueryCanceled():
            return Busy(
                name, f"did not answer in time ({text})", "try again, or open it with a longer timeout"
            )
        case errors.DeadlockDetected() | errors.SerializationFailure():
            return Busy(name, f"was asked for the same by others ({text})", "try again; nothing was changed")
        case errors.ReadOnlySqlTransaction() | errors.InsufficientPrivilege():
            return ReadOnly(
                name,
                f"cannot be written to ({text})",
                "use a primary server, and a role that may write here",
            )
        case errors.DataCorrupted() | errors.IndexCorrupted():
            return Corrupted(name, f"is damaged ({text})", "restore a backup; `omoide doctor` says more")
        case errors.UndefinedTable() | errors.InvalidSchemaName():
            return StoreFailed(name, f"lacks its tables ({text})", "open it again, and they are made")
        case _:
            pass
    if "No space left on device" in text:
        return DiskFull(name, f"has no room left ({text})", _ROOM)
    return StoreFailed(name, f"failed ({text})", "`omoide doctor` says more")


def is_lost(error: psycopg.Error) -> bool:
    """Whether there is no server at the other end, or not any more."""
    if isinstance(error, (errors.AdminShutdown, errors.CrashShutdown, errors.CannotConnectNow)):
        return True
    if isinstance(error, (errors.ConnectionTimeout, errors.ConnectionException)):
        return True
    return isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError)) and error.sqlstate is None


def is_worth_waiting(error: psycopg.Error) -> bool:
    """Whether a server that does not answer now may answer in a moment: it starts, or starts again."""
    text = str(error)
    return is_lost(error) and not any(sign in text for sign in _FINAL)


def _unreachable(error: psycopg.Error, name: str, text: str) -> StoreFailed:
    if any(sign in text for sign in _CROWDED):  # a connection that is refused comes without a code
        return _crowded(name, text)
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


def _crowded(name: str, text: str) -> Busy:
    return Busy(
        name,
        f"has no connection left ({text})",
        "try again, open it with a smaller ?pool=, or use a pooler",
    )


def _text(error: psycopg.Error) -> str:
    """What an error says, in one line."""
    primary = error.diag.message_primary
    return " ".join((primary or str(error) or type(error).__name__).split())
