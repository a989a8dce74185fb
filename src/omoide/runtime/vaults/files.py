"""Vault in a folder.

One folder for each agent, with `checkpoint.json` and a journal of lines for each thread. The checkpoint is
replaced as a whole; a journal is only ever added to. Each step is on the disk before it is acknowledged, and
a lock keeps other processes out while it is taken.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from anyio import to_thread

from omoide.core import codec
from omoide.core.checkpoint import Checkpoint
from omoide.core.thread import ThreadEntry
from omoide.errors import Busy, Conflict, DiskFull, ReadOnly, StoreFailed
from omoide.ids import check
from omoide.runtime.vaults.protocol import Journal, Kept, damaged, read_checkpoint, read_entries

# disk: How is something written so that a crash leaves it whole, and what if the disk refuses?


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


# files: How does a folder keep agents at rest?


T = TypeVar("T")

CHECKPOINT = "checkpoint.json"


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """What `checkpoint.json` holds."""

    id: str
    rev: int
    checkpoint: msgspec.Raw


_decode = msgspec.json.Decoder(_File).decode


class FileVault:
    """Agents at rest in a folder, which is made where it is missing and is readable for its owner only."""

    def __init__(self, path: str | os.PathLike[str], *, wait: float = 10.0) -> None:
        self._root = Path(path)
        self._wait = wait

    def __repr__(self) -> str:
        return f"FileVault({str(self._root)!r})"

    async def load(self, id: str) -> Kept:
        """What is kept of an agent."""
        return await self._alone(id, self._load, writing=False)

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint, or none, in place of the one of this revision."""
        return await self._alone(id, self._save, checkpoint, expected_rev)

    async def read_thread(self, id: str, thread_id: str) -> Journal:
        """The journal of an agent's thread."""
        return await self._alone(id, self._read, thread_id, writing=False)

    async def append_thread(
        self,
        id: str,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        *,
        expected_rev: int,
        after: int | None = None,
    ) -> int:
        """Add to a journal of this revision, after so many of its entries or all."""
        return await self._alone(id, self._append, thread_id, entries, expected_rev, after)

    async def delete(self, id: str) -> bool:
        """Remove an agent and the journals of its threads; whether there was something to remove."""
        return await self._alone(id, self._delete)

    async def ids(self) -> list[str]:
        """The ids of the agents that can be taken up, in order."""
        return await to_thread.run_sync(self._ids)

    async def _alone(self, id: str, step: Callable[..., T], *args: Any, writing: bool = True) -> T:
        """What a step gives, taken in a worker thread while nobody else is at this agent's files."""
        name = encoded(check(id))

        def run() -> T:
            with failing(str(self._root)), locked(self._root, name, self._wait, writing=writing):
                return step(id, self._root / name, *args)

        return await to_thread.run_sync(run)

    def _load(self, id: str, folder: Path) -> Kept:
        file = _file(id, folder / CHECKPOINT)
        if file is None:
            return Kept()
        held = bytes(file.checkpoint)
        return Kept(None if held == b"null" else read_checkpoint(id, held), file.rev)

    def _save(self, id: str, folder: Path, checkpoint: Checkpoint | None, expected_rev: int) -> int:
        file = _file(id, folder / CHECKPOINT)
        rev = 0 if file is None else file.rev
        Conflict.check(f"checkpoint {id!r}", expected_rev, rev)
        held = b"null" if checkpoint is None else codec.encode(checkpoint)
        new = _File(id=id, rev=rev + 1, checkpoint=msgspec.Raw(held))
        made(folder)
        replaced(folder / CHECKPOINT, msgspec.json.encode(new))
        return rev + 1

    def _read(self, id: str, folder: Path, thread_id: str) -> Journal:
        path = _journal(folder, thread_id)
        end = complete(path)
        if end == 0:
            return Journal()
        head, *lines = path.read_bytes()[:end].splitlines()
        if head != _head(id, thread_id):
            raise damaged(id, f"thread_mismatch: the journal in place of {thread_id!r} is another")
        return Journal(read_entries(id, lines), end)

    def _append(
        self,
        id: str,
        folder: Path,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        expected_rev: int,
        after: int | None,
    ) -> int:
        path = _journal(folder, thread_id)
        end = complete(path)
        Conflict.check(f"journal of {thread_id!r}", expected_rev, end)
        lines = [] if end else [_head(id, thread_id)]
        lines += [] if after is None else [str(after).encode()]
        lines += [codec.encode(entry) for entry in entries]
        data = b"".join(line + b"\n" for line in lines)
        made(folder)
        added(path, end, data)
        return end + len(data)

    def _delete(self, id: str, folder: Path) -> bool:
        found = [*folder.iterdir()] if folder.is_dir() else []
        found.sort(key=lambda path: path.name != CHECKPOINT)  # first, so that it never points to nothing
        for path in found:
            path.unlink()
        if folder.is_dir():
            folder.rmdir()
            synced(self._root)
        return bool(found)

    def _ids(self) -> list[str]:
        with failing(str(self._root)):
            folders = [*self._root.iterdir()] if self._root.is_dir() else []
            found = [_listed(folder) for folder in folders if folder.name != LOCKS]
        return sorted(id for id in found if id is not None)


def _file(id: str, path: Path) -> _File | None:
    try:
        file = _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise damaged(id, f"its checkpoint is not readable ({error})") from error
    if file.id != id:
        raise damaged(id, f"the checkpoint in its place is of {file.id!r}")
    return file


def _listed(folder: Path) -> str | None:
    """The id of the agent in a folder, if there is one; a damaged one is there, too."""
    try:
        file = _decode((folder / CHECKPOINT).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.MsgspecError, UnicodeError):
        return unquote(folder.name)
    return None if bytes(file.checkpoint) == b"null" else file.id


def _journal(folder: Path, thread_id: str) -> Path:
    return folder / f"thread-{encoded(check(thread_id, 'thread id'))}.jsonl"


def _head(id: str, thread_id: str) -> bytes:
    """The first line of a journal."""
    return msgspec.json.encode({"agent": id, "thread": thread_id})
