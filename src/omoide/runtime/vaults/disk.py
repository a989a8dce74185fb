"""How is something written so that a crash leaves it whole, and what if the disk refuses?"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from omoide.errors import Busy, DiskFull, ReadOnly, StoreFailed

if sys.platform != "win32":
    import fcntl

LONGEST = 120
LOCKS = ".locks"
PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")

FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}


def encoded(id: str) -> str:
    """An id as the name of a file: no two share one, not even where case is ignored, and none leads away."""
    name = "".join(chr(byte) if byte in PLAIN else f"%{byte:02x}" for byte in id.encode())
    return name if len(name) <= LONGEST else f"{name[: LONGEST // 2]}~{sha256(id.encode()).hexdigest()}"


@contextmanager
def failing(name: str) -> Iterator[None]:
    """What the system says about files, in words of ours."""
    try:
        yield
    except OSError as error:
        told = error.strerror or str(error)
        if error.errno in FULL:
            raise DiskFull(name, f"has no room left ({told})", "free some space and try again") from error
        if error.errno in FORBIDDEN:
            raise ReadOnly(name, f"cannot be written to ({told})", "check who may use it") from error
        raise StoreFailed(name, f"cannot be used ({told})", "check the path") from error


@contextmanager
def locked(root: Path, name: str, wait: float, *, writing: bool) -> Iterator[None]:
    """A block in which no other thread or process is at the files of this name.

    The locks are files of their own, a few for all, so that none is ever removed while somebody waits for it.
    Whoever only reads does without where none can be made.
    """
    path = root / LOCKS / sha256(name.encode()).hexdigest()[:2]
    try:
        made(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if writing or error.errno not in FORBIDDEN:
            raise
        yield
        return
    try:
        _wait_for(lock, str(root), wait)
        yield
    finally:
        os.close(lock)  # which unlocks it


def _wait_for(lock: int, name: str, wait: float) -> None:
    deadline = time.monotonic() + wait
    while sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Busy(name, f"was in use for {wait} s", "try again, or wait longer") from None
            time.sleep(0.002)
        else:
            return


def made(folder: Path) -> None:
    """Make a folder that is nobody else's business, and those above it."""
    if not folder.is_dir():
        made(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        synced(folder.parent)


def synced(folder: Path) -> None:
    """See to it that the names in a folder survive the machine."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def replaced(path: Path, data: bytes) -> None:
    """Put another file in place of one; a crash leaves the old or the new."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(handle, data)
        finally:
            os.close(handle)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise
    synced(path.parent)


def added(path: Path, end: int, data: bytes) -> None:
    """Write at a place in a file and nothing after it; where that fails, nothing is there."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(handle, end)
        os.lseek(handle, end, os.SEEK_SET)
        try:
            _write(handle, data)
        except OSError:
            with suppress(OSError):
                os.ftruncate(handle, end)
            raise
    finally:
        os.close(handle)
    if end == 0:
        synced(path.parent)


def _write(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
    os.fsync(handle)


def complete(path: Path) -> int:
    """How many bytes of a file of lines are whole lines; 0 where there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        at = file.seek(0, os.SEEK_END)
        while at:
            size = min(at, 65_536)
            file.seek(at - size)
            place = file.read(size).rfind(b"\n")
            if place >= 0:
                return at - size + place + 1
            at -= size
    return 0
