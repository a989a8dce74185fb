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
from omoide.runtime.checkpoints.protocol import (
    StoredCheckpoint,
    ThreadJournal,
    damaged_error,
    parse_checkpoint,
    parse_entries,
)

# disk: How is something written so that a crash leaves it whole, and what if the disk refuses?


if sys.platform != "win32":
    import fcntl

MAX_NAME_LENGTH = 120
LOCK_FOLDER = ".locks"
SAFE_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")

DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
READ_ONLY_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}


def file_name(id: str) -> str:
    """An id as the name of a file: no two share one, not even where case is ignored, and none leads away."""
    name = "".join(chr(byte) if byte in SAFE_BYTES else f"%{byte:02x}" for byte in id.encode())
    return (
        name
        if len(name) <= MAX_NAME_LENGTH
        else f"{name[: MAX_NAME_LENGTH // 2]}~{sha256(id.encode()).hexdigest()}"
    )


@contextmanager
def map_os_errors(name: str) -> Iterator[None]:
    """What the system says about files, in words of ours."""
    try:
        yield
    except OSError as error:
        told = error.strerror or str(error)
        if error.errno in DISK_FULL_ERRNOS:
            raise DiskFull(name, f"has no room left ({told})", "free some space and try again") from error
        if error.errno in READ_ONLY_ERRNOS:
            raise ReadOnly(name, f"cannot be written to ({told})", "check who may use it") from error
        raise StoreFailed(name, f"cannot be used ({told})", "check the path") from error


@contextmanager
def file_lock(root: Path, name: str, timeout: float, *, writing: bool) -> Iterator[None]:
    """A block in which no other thread or process is at the files of this name.

    The locks are files of their own, a few for all, so that none is ever removed while somebody waits for it.
    Whoever only reads does without where none can be made.
    """
    path = root / LOCK_FOLDER / sha256(name.encode()).hexdigest()[:2]
    try:
        make_folder(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if writing or error.errno not in READ_ONLY_ERRNOS:
            raise
        yield
        return
    try:
        _acquire(lock, str(root), timeout)
        yield
    finally:
        os.close(lock)  # which unlocks it


def _acquire(lock: int, name: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while sys.platform != "win32":
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Busy(name, f"was in use for {timeout} s", "try again, or wait longer") from None
            time.sleep(0.002)
        else:
            return


def make_folder(folder: Path) -> None:
    """Make a folder that is nobody else's business, and those above it."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """See to it that the names in a folder survive the machine."""
    if sys.platform != "win32":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    """Put another file in place of one; a crash leaves the old or the new."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(handle, data)
        finally:
            os.close(handle)
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise
    sync_folder(path.parent)


def append_at(path: Path, end: int, data: bytes) -> None:
    """Write at a place in a file and nothing after it; where that fails, nothing is there."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        os.ftruncate(handle, end)
        os.lseek(handle, end, os.SEEK_SET)
        try:
            _write_all(handle, data)
        except OSError:
            with suppress(OSError):
                os.ftruncate(handle, end)
            raise
    finally:
        os.close(handle)
    if end == 0:
        sync_folder(path.parent)


def _write_all(handle: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(handle, left) :]
    os.fsync(handle)


def complete_length(path: Path) -> int:
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

CHECKPOINT_FILE = "checkpoint.json"


class _CheckpointFile(msgspec.Struct, forbid_unknown_fields=True):
    """What `checkpoint.json` holds."""

    id: str
    rev: int
    checkpoint: msgspec.Raw


_decode = msgspec.json.Decoder(_CheckpointFile).decode


class FileCheckpointStore:
    """Agents at rest in a folder, which is made where it is missing and is readable for its owner only."""

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0) -> None:
        self._root = Path(path)
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"FileCheckpointStore({str(self._root)!r})"

    async def load(self, id: str) -> StoredCheckpoint:
        """What is kept of an agent."""
        return await self._run_locked(id, self._load, writing=False)

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint, or none, in place of the one of this revision."""
        return await self._run_locked(id, self._save, checkpoint, expected_rev)

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """The journal of an agent's thread."""
        return await self._run_locked(id, self._read_journal, thread_id, writing=False)

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
        return await self._run_locked(id, self._append, thread_id, entries, expected_rev, after)

    async def delete(self, id: str) -> bool:
        """Remove an agent and the journals of its threads; whether there was something to remove."""
        return await self._run_locked(id, self._delete)

    async def ids(self) -> list[str]:
        """The ids of the agents that can be taken up, in order."""
        return await to_thread.run_sync(self._ids)

    async def _run_locked(self, id: str, step: Callable[..., T], *args: Any, writing: bool = True) -> T:
        """What a step gives, taken in a worker thread while nobody else is at this agent's files."""
        name = file_name(check(id))

        def run() -> T:
            with map_os_errors(str(self._root)), file_lock(self._root, name, self._timeout, writing=writing):
                return step(id, self._root / name, *args)

        return await to_thread.run_sync(run)

    def _load(self, id: str, folder: Path) -> StoredCheckpoint:
        file = _read_file(id, folder / CHECKPOINT_FILE)
        if file is None:
            return StoredCheckpoint()
        held = bytes(file.checkpoint)
        return StoredCheckpoint(None if held == b"null" else parse_checkpoint(id, held), file.rev)

    def _save(self, id: str, folder: Path, checkpoint: Checkpoint | None, expected_rev: int) -> int:
        file = _read_file(id, folder / CHECKPOINT_FILE)
        rev = 0 if file is None else file.rev
        Conflict.check(f"checkpoint {id!r}", expected_rev, rev)
        held = b"null" if checkpoint is None else codec.encode(checkpoint)
        new = _CheckpointFile(id=id, rev=rev + 1, checkpoint=msgspec.Raw(held))
        make_folder(folder)
        replace_file(folder / CHECKPOINT_FILE, msgspec.json.encode(new))
        return rev + 1

    def _read_journal(self, id: str, folder: Path, thread_id: str) -> ThreadJournal:
        path = _journal_path(folder, thread_id)
        end = complete_length(path)
        if end == 0:
            return ThreadJournal()
        head, *lines = path.read_bytes()[:end].splitlines()
        if head != _journal_header(id, thread_id):
            raise damaged_error(id, f"thread_mismatch: the journal in place of {thread_id!r} is another")
        return ThreadJournal(parse_entries(id, lines), end)

    def _append(
        self,
        id: str,
        folder: Path,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        expected_rev: int,
        after: int | None,
    ) -> int:
        path = _journal_path(folder, thread_id)
        end = complete_length(path)
        Conflict.check(f"journal of {thread_id!r}", expected_rev, end)
        lines = [] if end else [_journal_header(id, thread_id)]
        lines += [] if after is None else [str(after).encode()]
        lines += [codec.encode(entry) for entry in entries]
        data = b"".join(line + b"\n" for line in lines)
        make_folder(folder)
        append_at(path, end, data)
        return end + len(data)

    def _delete(self, id: str, folder: Path) -> bool:
        found = [*folder.iterdir()] if folder.is_dir() else []
        found.sort(key=lambda path: path.name != CHECKPOINT_FILE)  # first, so that it never points to nothing
        for path in found:
            path.unlink()
        if folder.is_dir():
            folder.rmdir()
            sync_folder(self._root)
        return bool(found)

    def _ids(self) -> list[str]:
        with map_os_errors(str(self._root)):
            folders = [*self._root.iterdir()] if self._root.is_dir() else []
            found = [_agent_id_of(folder) for folder in folders if folder.name != LOCK_FOLDER]
        return sorted(id for id in found if id is not None)


def _read_file(id: str, path: Path) -> _CheckpointFile | None:
    try:
        file = _decode(path.read_bytes())
    except FileNotFoundError:
        return None
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise damaged_error(id, f"its checkpoint is not readable ({error})") from error
    if file.id != id:
        raise damaged_error(id, f"the checkpoint in its place is of {file.id!r}")
    return file


def _agent_id_of(folder: Path) -> str | None:
    """The id of the agent in a folder, if there is one; a damaged one is there, too."""
    try:
        file = _decode((folder / CHECKPOINT_FILE).read_bytes())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (msgspec.MsgspecError, UnicodeError):
        return unquote(folder.name)
    return None if bytes(file.checkpoint) == b"null" else file.id


def _journal_path(folder: Path, thread_id: str) -> Path:
    return folder / f"thread-{file_name(check(thread_id, 'thread id'))}.jsonl"


def _journal_header(id: str, thread_id: str) -> bytes:
    """The first line of a journal."""
    return msgspec.json.encode({"agent": id, "thread": thread_id})
