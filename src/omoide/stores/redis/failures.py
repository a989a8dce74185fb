"""What does an error of Redis' mean to the caller?

Every error of the server and of its client is turned into one of ours here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from omoide.errors import Busy, Corrupted, DiskFull, ReadOnly, StoreFailed, StoreUnreachable, Uncertain

FOREIGN = (
    exceptions.RedisError,
    exceptions.RedisClusterException,
    exceptions.ChildDeadlockedError,
    OSError,
)
"""All that the client may raise."""

REFUSED = (exceptions.AuthenticationError, exceptions.AuthorizationError)

_WORDS: tuple[tuple[type[Exception], str], ...] = (
    (exceptions.NoPermissionError, "NOPERM"),
    (exceptions.OutOfMemoryError, "OOM"),
    (exceptions.BusyLoadingError, "LOADING"),
    (exceptions.ReadOnlyError, "READONLY"),
    (exceptions.ClusterCrossSlotError, "CROSSSLOT"),
    (exceptions.ClusterDownError, "CLUSTERDOWN"),
    (exceptions.MasterDownError, "MASTERDOWN"),
    (exceptions.TryAgainError, "TRYAGAIN"),
    (exceptions.AskError, "MOVED"),
)
"""The words that the client takes off an answer before it raises an error of its own for it."""

_BY_WORD: dict[str, tuple[type[StoreFailed], str, str]] = {
    "OOM": (
        DiskFull,
        "has no memory left",
        "erase something, or raise maxmemory (CONFIG SET maxmemory …); nothing was lost",
    ),
    "READONLY": (ReadOnly, "is a replica, which cannot be written to", "use the address of the primary"),
    "MISCONF": (
        DiskFull,
        "refuses writes, because it cannot save them to its disk",
        "free space where it keeps its files, and look into its log",
    ),
    "LOADING": (Busy, "is still loading its data", "try again in a moment"),
    "BUSY": (Busy, "is busy with a script", "try again in a moment"),
    "MASTERDOWN": (Busy, "has lost its primary", "try again, or use the address of the new primary"),
    "CLUSTERDOWN": (Busy, "is a cluster of which a part is away", "try again when it is whole again"),
    "TRYAGAIN": (Busy, "is a cluster that moves keys", "try again in a moment"),
    "NOREPLICAS": (Busy, "has too few replicas to take writes", "try again when they are back"),
    "MOVED": (StoreFailed, "is one node of a cluster", "open it with ?cluster=yes"),
    "CROSSSLOT": (
        StoreFailed,
        "is a cluster, which cannot change several namespaces at once",
        "write one namespace at a time",
    ),
    "WRONGTYPE": (
        Corrupted,
        "holds something else under a key of ours",
        "let nobody else write under its prefix, or choose another with ?prefix=",
    ),
    "NOPERM": (
        ReadOnly,
        "does not allow this user the command",
        "give the user the rights, see docs/redis.md",
    ),
}
"""What the first word of an answer means."""


def translated(error: Exception, name: str) -> StoreFailed:
    """Our error for one of Redis'."""
    if isinstance(error, exceptions.TimeoutError):
        return StoreUnreachable(
            name, "does not answer in time", "try again, or open it with a longer timeout"
        )
    word = _word(error)
    if word in _BY_WORD:
        kind, problem, remedy = _BY_WORD[word]
        return kind(name, problem, remedy)
    if isinstance(error, REFUSED) or word in ("NOAUTH", "WRONGPASS"):
        return StoreUnreachable(
            name, "refuses the name or the password", "write redis://user:password@host with the right ones"
        )
    if isinstance(error, (exceptions.ConnectionError, OSError)):
        problem = f"cannot be reached ({_reason(error)})"
        return StoreUnreachable(name, problem, "check that it runs and the address")
    return StoreFailed(name, f"failed ({error})", "`omoide doctor` says more")


def uncertain(name: str) -> Uncertain:
    """Our error for a commit that was sent and never answered."""
    return Uncertain(
        name,
        "was lost while it was to keep something",
        "repeat it with the same id or idempotency key: it is kept once",
    )


def was_sent(error: Exception) -> bool:
    """Whether a command may have reached the server before something went wrong."""
    return not isinstance(error, REFUSED) and "connecting to" not in str(error)


def _word(error: Exception) -> str:
    """The word that says what kind of error it is; inside a script, it is not always the first one."""
    for kind, word in _WORDS:
        if isinstance(error, kind):
            return word
    said = str(error).split(" ")
    return said[1] if said[0] == "ERR" and len(said) > 1 else said[0]


def _reason(error: Exception) -> str:
    """What the system says, without where the client wanted to connect."""
    cause = error.__cause__ or error.__context__ or error
    return getattr(cause, "strerror", None) or str(cause) or type(cause).__name__


@contextmanager
def translating(name: str) -> Iterator[None]:
    """A block in which errors of Redis become ours."""
    try:
        yield
    except FOREIGN as error:
        raise translated(error, name) from error
