"""How does a folder keep agents at rest?

One folder for each agent, with `checkpoint.json` and a journal of lines for each thread. The checkpoint is
replaced as a whole; a journal is only ever added to. Each step is on the disk before it is acknowledged, and
a lock keeps other processes out while it is taken.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import msgspec
from anyio import to_thread

from omoide.core import codec
from omoide.core.checkpoint import Checkpoint
from omoide.core.thread import ThreadEntry
from omoide.errors import Conflict
from omoide.ids import check
from omoide.runtime.vaults.disk import (
    LOCKS,
    added,
    complete,
    encoded,
    failing,
    locked,
    made,
    replaced,
    synced,
)
from omoide.runtime.vaults.protocol import Journal, Kept
from omoide.runtime.vaults.written import damaged, read_checkpoint, read_entries

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
