"""Store agents in a folder.

Each agent has a folder with `checkpoint.json`, and a journal of lines for each thread. The checkpoint is
replaced as a whole; a journal is only appended to. Each step is synced to disk before it is acknowledged, and
a lock file keeps other processes out while it runs.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from anyio import to_thread

from omoide.core import codec
from omoide.core.checkpoint import Checkpoint
from omoide.core.value import check_revision
from omoide.errors import Busy, DiskFull, ReadOnly, StoreFailed
from omoide.ids import check
from omoide.runtime.checkpoints.protocol import (
    StoredCheckpoint,
    ThreadEntries,
    ThreadJournal,
    damaged_error,
    parse_checkpoint,
    parse_entries,
)

if sys.platform != "win32":  # where the store refuses to open
    import fcntl

MAX_NAME_LENGTH = 120
LOCK_FOLDER = ".locks"
SAFE_BYTES = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")

DISK_FULL_ERRNOS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
READ_ONLY_ERRNOS = {errno.EROFS, errno.EACCES, errno.EPERM}

T = TypeVar("T")
CHECKPOINT_FILE = "checkpoint.json"


def file_name(id: str) -> str:
    """Return an id as a file name: unique even where case is ignored, and free of path separators."""
    name = "".join(chr(byte) if byte in SAFE_BYTES else f"%{byte:02x}" for byte in id.encode())
    if len(name) <= MAX_NAME_LENGTH:
        return name
    return f"{name[: MAX_NAME_LENGTH // 2]}~{sha256(id.encode()).hexdigest()}"


@contextmanager
def map_os_errors(name: str) -> Iterator[None]:
    """Map errors of the file system to errors of Omoide."""
    try:
        yield
    except OSError as error:
        detail = error.strerror or str(error)
        if error.errno in DISK_FULL_ERRNOS:
            raise DiskFull(name, f"has no room left ({detail})", "free some space and try again") from error
        if error.errno in READ_ONLY_ERRNOS:
            raise ReadOnly(name, f"cannot be written to ({detail})", "check its permissions") from error
        raise StoreFailed(name, f"cannot be used ({detail})", "check the path") from error


@contextmanager
def file_lock(root: Path, name: str, timeout: float, *, writing: bool) -> Iterator[None]:
    """Hold the lock of a name, against other threads and processes.

    The locks are files of their own, a few for all names, so that none is removed while another process waits
    for it. A reader that may not create one goes without.
    """
    # 256 lock files: agents that share one wait for each other for a moment.
    path = root / LOCK_FOLDER / sha256(name.encode()).hexdigest()[:2]
    try:
        make_folder(path.parent)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        if writing or error.errno not in READ_ONLY_ERRNOS:
            raise
        yield
        return
    process = os.getpid()
    try:
        _acquire(lock, str(root), timeout)
        yield
    finally:
        if os.getpid() == process:
            # Closing is not enough: a child that was forked meanwhile shares the lock.
            fcntl.flock(lock, fcntl.LOCK_UN)
        os.close(lock)


def _acquire(lock: int, name: str, timeout: float) -> None:
    # Polled, because a blocking `flock` cannot time out.
    deadline = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise Busy(name, f"was in use for {timeout} s", "try again, or wait longer") from None
            time.sleep(0.002)
        else:
            return


def make_folder(folder: Path) -> None:
    """Create a folder that only its owner may read, and its parents."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Sync the names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file as a whole; a crash leaves the old or the new one."""
    fresh = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write_all(handle, data)
        finally:
            os.close(handle)
        # Atomic on POSIX, and only after the data is synced.
        fresh.replace(path)
    except OSError:
        with suppress(OSError):
            fresh.unlink()
        raise
    sync_folder(path.parent)


def append_at(path: Path, end: int, data: bytes) -> None:
    """Write at a position and truncate what follows; if that fails, nothing is written there."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        # Cut off a half-written line of an earlier crash first.
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
    remaining = memoryview(data)
    while remaining:
        remaining = remaining[os.write(handle, remaining) :]
    os.fsync(handle)


def complete_length(path: Path) -> int:
    """Return the number of bytes up to the last complete line; 0 where there is no file."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        position = file.seek(0, os.SEEK_END)
        # Read backwards in blocks, because only the last line can be incomplete.
        while position:
            size = min(position, 65_536)
            file.seek(position - size)
            newline = file.read(size).rfind(b"\n")
            if newline >= 0:
                return position - size + newline + 1
            position -= size
    return 0


class _CheckpointFile(msgspec.Struct, forbid_unknown_fields=True):
    """The content of `checkpoint.json`."""

    id: str
    rev: int
    checkpoint: msgspec.Raw


_decode = msgspec.json.Decoder(_CheckpointFile).decode


class FileCheckpointStore:
    """Checkpoints in a folder, which is created if it is missing and is readable for its owner only.

    Args:
        path: The folder.
        timeout: Seconds to wait for another process that uses the same agent.

    Raises:
        StoreFailed: On Windows, which lacks the locks that keep processes apart.
    """

    def __init__(self, path: str | os.PathLike[str], *, timeout: float = 10.0) -> None:
        if sys.platform == "win32":
            raise StoreFailed(
                os.fspath(path),
                "needs file locks that Windows does not have",
                "use a DocumentCheckpointStore",
            )
        self._root = Path(path)
        self._timeout = timeout

    def __repr__(self) -> str:
        return f"FileCheckpointStore({str(self._root)!r})"

    async def load(self, id: str) -> StoredCheckpoint:
        """Return the checkpoint of an agent."""
        return await self._run_locked(id, self._load, writing=False)

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Replace the checkpoint of a revision, also by None, and return its own revision."""
        return await self._run_locked(id, self._save, checkpoint, expected_rev)

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """Return the journal of an agent's thread; its revision is its length in bytes."""
        return await self._run_locked(id, self._read_journal, thread_id, writing=False)

    async def append_thread(
        self, id: str, thread_id: str, entries: ThreadEntries, *, expected_rev: int, after: int | None = None
    ) -> int:
        """Append to a journal of a revision, after the first `after` entries or all."""
        return await self._run_locked(id, self._append, thread_id, entries, expected_rev, after)

    async def delete(self, id: str) -> bool:
        """Delete an agent and the journals of its threads, and return whether there was one."""
        return await self._run_locked(id, self._delete)

    async def ids(self) -> list[str]:
        """Return the ids of the agents that can be loaded, in order."""
        return await to_thread.run_sync(self._ids)

    async def _run_locked(self, id: str, step: Callable[..., T], *args: Any, writing: bool = True) -> T:
        """Run a step in a worker thread while it holds the lock of an agent's files."""
        name = file_name(check(id))

        def run() -> T:
            with map_os_errors(str(self._root)), file_lock(self._root, name, self._timeout, writing=writing):
                return step(id, self._root / name, *args)

        return await to_thread.run_sync(run)

    def _load(self, id: str, folder: Path) -> StoredCheckpoint:
        file = _read_file(id, folder / CHECKPOINT_FILE)
        if file is None:
            return StoredCheckpoint()
        data = bytes(file.checkpoint)
        return StoredCheckpoint(None if data == b"null" else parse_checkpoint(id, data), file.rev)

    def _save(self, id: str, folder: Path, checkpoint: Checkpoint | None, expected_rev: int) -> int:
        file = _read_file(id, folder / CHECKPOINT_FILE)
        rev = 0 if file is None else file.rev
        check_revision(f"checkpoint {id!r}", expected_rev, rev)
        data = b"null" if checkpoint is None else codec.encode(checkpoint)
        new = _CheckpointFile(id=id, rev=rev + 1, checkpoint=msgspec.Raw(data))
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
        entries: ThreadEntries,
        expected_rev: int,
        after: int | None,
    ) -> int:
        path = _journal_path(folder, thread_id)
        end = complete_length(path)
        check_revision(f"journal of {thread_id!r}", expected_rev, end)
        lines = [] if end else [_journal_header(id, thread_id)]
        lines += [] if after is None else [str(after).encode()]
        lines += [codec.encode(entry) for entry in entries]
        data = b"".join(line + b"\n" for line in lines)
        make_folder(folder)
        append_at(path, end, data)
        return end + len(data)

    def _delete(self, id: str, folder: Path) -> bool:
        paths = [*folder.iterdir()] if folder.is_dir() else []
        paths.sort(key=lambda path: path.name != CHECKPOINT_FILE)  # first, so that it never points to nothing
        for path in paths:
            path.unlink()
        if folder.is_dir():
            folder.rmdir()
            sync_folder(self._root)
        return bool(paths)

    def _ids(self) -> list[str]:
        with map_os_errors(str(self._root)):
            folders = [*self._root.iterdir()] if self._root.is_dir() else []
            ids = [_agent_id_of(folder) for folder in folders if folder.name != LOCK_FOLDER]
        return sorted(id for id in ids if id is not None)


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
    """Return the id of the agent in a folder, also of a damaged one; None if there is none."""
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
    return msgspec.json.encode({"agent": id, "thread": thread_id})
