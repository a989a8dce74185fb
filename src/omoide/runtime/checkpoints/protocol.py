"""Vault protocol; save and restore.

`Vault` keeps checkpoints, and the journals of the threads that they point to. Every write names the revision
it builds on, and is done wholly or not at all. `put_aside` and `taken_up` need nothing else; what is optional
is said by the small protocols beside it.

The entries of its thread go to a journal first, and only those that it lacks; then the checkpoint, which says
how far the journal counts. What a crash leaves behind in between is past that point: it is not seen when the
agent is taken up, and replaced when it is put aside again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, Protocol, runtime_checkable

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.agent import Agent, check_agent
from omoide.core.checkpoint import CHECKPOINT_VERSION, Checkpoint, checkpoint, mount_missing_plugins, restore
from omoide.core.codec import MapField
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP, FrozenList, FrozenMap
from omoide.core.state import THREAD
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.value import Count, Id, Millis, Value
from omoide.errors import CheckpointFailed, Conflict, NotFound, RestoreFailed, WrongType
from omoide.ids import check

# protocol: What can be asked of whoever keeps agents at rest?


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint as a vault holds it, or none; where there never was one, the revision is 0."""

    checkpoint: Checkpoint | None = None
    rev: int = 0


class ThreadJournal(msgspec.Struct, frozen=True):
    """The entries of a thread as a vault holds them; where there never was one, the revision is 0."""

    entries: tuple[ThreadEntry, ...] = ()
    rev: int = 0


@runtime_checkable
class CheckpointStore(Protocol):
    """Keeps agents at rest."""

    async def load(self, id: str) -> StoredCheckpoint:
        """What is kept of an agent; `RestoreFailed` where it is damaged, or written by a newer Omoide."""
        ...

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint, or none, in place of the one of this revision; its own, which is higher."""
        ...

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """The journal of an agent's thread; what a crash left half-written at its end is no part of it."""
        ...

    async def append_thread(
        self,
        id: str,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        *,
        expected_rev: int,
        after: int | None = None,
    ) -> int:
        """Add to a journal of this revision, after so many of its entries or all; its new one, higher."""
        ...


@runtime_checkable
class SupportsCheckpointDelete(Protocol):
    """Lets go of an agent."""

    async def delete(self, id: str) -> bool:
        """Remove an agent and the journals of its threads; whether there was one."""
        ...


@runtime_checkable
class SupportsCheckpointList(Protocol):
    """Knows whom it keeps."""

    async def ids(self) -> list[str]:
        """The ids of the agents that can be taken up, in order."""
        ...


# resting: How is a living agent put to rest, and woken as exactly the one it was?


class JournalMark(Value, frozen=True, kw_only=True):
    """A thread without its entries, and how far its journal counts."""

    rev: Count = 0
    """The revision of the journal."""
    count: Count = 0
    last: Id | None = None
    """The id of the last entry that counts."""
    created_at: Millis
    updated_at: Millis
    metadata: MapField = EMPTY_MAP


async def save_agent(
    agent: Agent, store: CheckpointStore, *, expected_rev: int | None = None, force: bool = False
) -> int:
    """Keep an agent in a vault, and say at which revision it is there.

    One that is there exactly so is not written again, unless `anew` says that it is to be. `Conflict` where
    somebody else put it aside since the revision expected, 0 for a new one; then nothing changed. After any
    other error `taken_up` gives the one that was kept before, or this one, as a whole.
    """
    check_agent(agent)
    _check_checkpoint_store(store)
    saved = checkpoint(agent)
    kept = await store.load(agent.id)
    found = 0 if kept.checkpoint is None else kept.checkpoint.rev
    Conflict.check(f"checkpoint {agent.id!r}", expected_rev, found)
    log, at = THREAD.get(agent), kept.rev
    if log is not None and saved.thread is not None:
        mark, at = await _flush_journal(agent.id, log, kept, store)
        saved = saved.replace(
            journal={field: getattr(mark, field) for field in JournalMark.__struct_fields__}
        )
    if not force and kept.checkpoint == saved.replace(rev=found):
        return found
    await store.save(agent.id, saved.replace(rev=found + 1), expected_rev=at)
    return found + 1


async def load_agent(id: str, definition: Definition, store: CheckpointStore) -> tuple[Agent, int]:
    """The agent as it was last put aside, and the revision to build on.

    `NotFound` where none was ever put aside. Whatever else is wrong is a `RestoreFailed`, and no agent.
    """
    _check_checkpoint_store(store)
    kept = await store.load(check(id))
    saved = kept.checkpoint
    if saved is None:
        raise NotFound("agent at rest", id, "check the id and the checkpoint store, or start a new one")
    if saved.id != id:
        raise RestoreFailed(f"agent {id!r}", f"the checkpoint in its place is of {saved.id!r}")
    agent = restore(saved, definition)
    if saved.thread is not None and not THREAD.has(agent):
        agent = THREAD.put(agent, await _load_thread(saved, saved.thread, store))
    return mount_missing_plugins(agent, saved), saved.rev


async def _flush_journal(
    id: str, thread: Thread, stored: StoredCheckpoint, store: CheckpointStore
) -> tuple[JournalMark, int]:
    """The mark of a journal that has all entries, and the revision at which the checkpoint is now."""
    old = _check_mark(thread, stored.checkpoint)
    rev, kept_rev = old.rev, stored.rev
    if len(thread.entries) > old.count:
        try:
            rev = await store.append_thread(id, thread.id, thread.entries[old.count :], expected_rev=rev)
        except Conflict:
            rev, kept_rev = await _replace_journal_tail(id, thread, old, stored, store)
    last = thread.last()
    mark = JournalMark(
        rev=rev,
        count=len(thread.entries),
        last=None if last is None else last.id,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
        metadata=thread.metadata,
    )
    return mark, kept_rev


async def _replace_journal_tail(
    id: str, thread: Thread, old: JournalMark, stored: StoredCheckpoint, store: CheckpointStore
) -> tuple[int, int]:
    """The revisions of journal and checkpoint, after entries that do not count gave way to those that do.

    Somebody else may just have written those entries, to count them next. Saving the old checkpoint anew
    makes sure that they cannot any more; and the journal gets a new revision even where nothing is missing,
    so that nobody replaces what counts from now on.
    """
    journal = await store.read_thread(id, thread.id)
    pairs = zip(journal.entries, thread.entries, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    if same < min(old.count, len(journal.entries)):
        raise _thread_checkpoint_error(
            "thread_mismatch", f"entry {same} of the journal of {thread.id!r} is another"
        )
    rev = await store.save(id, stored.checkpoint, expected_rev=stored.rev)
    missing = thread.entries[same:]
    return await store.append_thread(id, thread.id, missing, expected_rev=journal.rev, after=same), rev


def _check_mark(thread: Thread, saved: Checkpoint | None) -> JournalMark:
    """How far the journal of this thread counts, if the thread still holds all that."""
    pointer = None if saved is None else saved.thread
    if saved is None or pointer is None or pointer["id"] != thread.id:
        return JournalMark(created_at=0, updated_at=0)
    if thread.rev < pointer["rev"]:
        raise _thread_checkpoint_error(
            "thread_rev_regression", f"it is at {thread.rev}, and was put aside at {pointer['rev']}"
        )
    mark = _read_mark(saved, pointer)
    if len(thread.entries) < mark.count:
        raise _thread_checkpoint_error(
            "thread_history_truncated", f"{len(thread.entries)} entries are left of {mark.count} put aside"
        )
    if mark.last is not None and thread.entries[mark.count - 1].id != mark.last:
        raise _thread_checkpoint_error(
            "thread_mismatch", f"entry {mark.count - 1} is not the one that was put aside"
        )
    return mark


def _read_mark(saved: Checkpoint, pointer: FrozenMap[str, Any]) -> JournalMark:
    """What the checkpoint says of its thread; where that is no more than the pointer, all entries count."""
    if saved.journal is None:
        return JournalMark(count=pointer["rev"], created_at=0, updated_at=0)
    try:
        return JournalMark(**saved.journal)
    except (TypeError, ValueError) as error:
        raise RestoreFailed(f"agent {saved.id!r}", f"its journal: {error}") from error


async def _load_thread(saved: Checkpoint, pointer: FrozenMap[str, Any], store: CheckpointStore) -> Thread:
    """The thread that a checkpoint points to."""
    id, mark = pointer["id"], _read_mark(saved, pointer)
    found = (await store.read_thread(saved.id, id)).entries if mark.count else ()
    if mark.count and not found:
        raise _thread_restore_error(saved, "missing_thread", f"there is no journal of thread {id!r}")
    if len(found) < mark.count:
        raise _thread_restore_error(
            saved, "thread_history_truncated", f"{len(found)} entries are left of {mark.count}"
        )
    entries = found[: mark.count]
    if mark.last is not None and (not entries or entries[-1].id != mark.last):
        raise _thread_restore_error(
            saved, "thread_mismatch", f"entry {mark.count - 1} is not the one that was put aside"
        )
    created, updated = mark.created_at, mark.updated_at
    if saved.journal is None:
        created, updated = (entries[0].at, entries[-1].at) if entries else (clock.now(),) * 2
    try:
        return Thread(
            id=id,
            rev=pointer["rev"],
            created_at=created,
            updated_at=updated,
            entries=FrozenList(entries),
            metadata=mark.metadata,
        )
    except ValueError as error:
        raise RestoreFailed(f"agent {saved.id!r}", f"its thread: {error}") from error


def _thread_restore_error(saved: Checkpoint, problem: str, detail: str) -> RestoreFailed:
    return RestoreFailed(f"agent {saved.id!r}", f"{problem}: {detail}; bring it back from a backup")


def _thread_checkpoint_error(problem: str, detail: str) -> CheckpointFailed:
    return CheckpointFailed("thread", f"{problem}: {detail}; take up the agent that was put aside")


def _check_checkpoint_store(store: object) -> None:
    if not isinstance(store, CheckpointStore):
        raise WrongType(
            "store", "a CheckpointStore", store, "pass a DocumentCheckpointStore or a FileCheckpointStore"
        )


# written: How is a checkpoint read back, and what if it cannot be?


def parse_checkpoint(id: str, data: bytes | str) -> Checkpoint:
    """The checkpoint that was written as JSON; one from a newer Omoide is told from a damaged one."""
    try:
        plain = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise damaged_error(id, f"its checkpoint is not readable JSON ({error})") from error
    version = plain.get("version") if isinstance(plain, dict) else None
    if isinstance(version, int) and version > CHECKPOINT_VERSION:
        raise RestoreFailed(
            f"agent {id!r}",
            f"its checkpoint has version {version}, this reads 1 to {CHECKPOINT_VERSION}; use a newer Omoide",
        )
    try:
        return codec.from_builtins(plain, Checkpoint)
    except ValueError as error:
        raise damaged_error(id, f"its checkpoint: {error}") from error


def parse_entries(id: str, lines: Iterable[Any]) -> tuple[ThreadEntry, ...]:
    """The entries of a journal, each written as JSON; a number is how many of those before it count."""
    entries: list[ThreadEntry] = []
    for line in lines:
        try:
            plain = msgspec.json.decode(line)
            if isinstance(plain, int) and 0 <= plain <= len(entries):
                del entries[plain:]
                continue
            entry = codec.from_builtins(plain, ThreadEntry)
        except (TypeError, ValueError, RecursionError) as error:
            raise damaged_error(id, f"its journal, entry {len(entries)}: {error}") from error
        if entry.seq != len(entries):
            raise damaged_error(id, f"its journal has entry {entry.seq} where {len(entries)} belongs")
        entries.append(entry)
    return tuple(entries)


def damaged_error(id: str, detail: str) -> RestoreFailed:
    """The error for what was kept and cannot be read."""
    return RestoreFailed(f"agent {id!r}", f"{detail}; bring it back from a backup, or delete it")
