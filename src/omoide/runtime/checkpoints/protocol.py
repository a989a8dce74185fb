"""Save agents to a checkpoint store, and load them.

A `CheckpointStore` holds checkpoints, and the journals of the threads that they point to. Every write names
the revision that it builds on, and happens wholly or not at all. `save_agent` and `load_agent` need nothing
else; what is optional is in the small protocols beside it.

The entries of a thread go to its journal first, and only those that it lacks; then the checkpoint, which says
how far the journal counts. What a crash leaves in between is past that point: it is ignored when the agent is
loaded, and replaced when the agent is saved again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.agent import Agent, check_agent
from omoide.core.checkpoint import (
    CHECKPOINT_VERSION,
    Checkpoint,
    PendingSchedule,
    checkpoint,
    mount_missing_plugins,
    restore,
)
from omoide.core.codec import MapField
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP, FrozenList, FrozenMap
from omoide.core.state import THREAD
from omoide.core.thread import Thread, ThreadEntry
from omoide.core.value import Count, Id, Millis, Value, check_revision
from omoide.errors import CheckpointFailed, Conflict, NotFound, RestoreFailed, WrongType
from omoide.ids import check

ThreadEntries = Sequence[ThreadEntry]


class StoredCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint in a store, or none, and its revision; 0 if there never was one."""

    checkpoint: Checkpoint | None = None
    rev: int = 0


class ThreadJournal(msgspec.Struct, frozen=True):
    """The entries of a thread in a store, and the revision of the journal; 0 if there never was one."""

    entries: tuple[ThreadEntry, ...] = ()
    rev: int = 0


@runtime_checkable
class CheckpointStore(Protocol):
    """A store of checkpoints and of thread journals."""

    async def load(self, id: str) -> StoredCheckpoint:
        """Return the checkpoint of an agent; raise `RestoreFailed` if it is damaged or of a newer Omoide."""

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Replace the checkpoint of a revision, also by None; return its own revision, which is higher."""

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """Return the journal of an agent's thread, without what a crash left half-written at its end."""

    async def append_thread(
        self, id: str, thread_id: str, entries: ThreadEntries, *, expected_rev: int, after: int | None = None
    ) -> int:
        """Append to a journal of a revision, after the first `after` entries or all; return its new one."""


@runtime_checkable
class SupportsCheckpointDelete(Protocol):
    """A checkpoint store that can delete agents."""

    async def delete(self, id: str) -> bool:
        """Delete an agent and the journals of its threads, and return whether there was one."""


@runtime_checkable
class SupportsCheckpointList(Protocol):
    """A checkpoint store that can list its agents."""

    async def ids(self) -> list[str]:
        """Return the ids of the agents that can be loaded, in order."""


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


class SavedAgent(NamedTuple):
    """An agent as it was last saved, the revision to build on, and the schedules that were pending."""

    agent: Agent
    rev: int
    schedules: Sequence[PendingSchedule] = ()


async def save_agent(
    agent: Agent,
    store: CheckpointStore,
    *,
    expected_rev: int | None = None,
    force: bool = False,
    schedules: Iterable[PendingSchedule] = (),
) -> int:
    """Save an agent, and return the revision of its checkpoint.

    After an error other than `Conflict`, `load_agent` returns the agent that was saved before, or this one,
    as a whole.

    Args:
        agent: The agent.
        store: The checkpoint store.
        expected_rev: The revision to build on, 0 for a new agent; None for any.
        force: True to write a checkpoint also where the stored one is equal.
        schedules: The schedules and cron jobs of the agent that are pending.

    Raises:
        Conflict: The agent was saved since the expected revision; nothing has changed.
        CheckpointFailed: The thread lacks entries that were saved before.
    """
    check_agent(agent)
    _check_checkpoint_store(store)
    saved = checkpoint(agent).replace(schedules=[*schedules])
    stored = await store.load(agent.id)
    rev = 0 if stored.checkpoint is None else stored.checkpoint.rev
    check_revision(f"checkpoint {agent.id!r}", expected_rev, rev)
    agent_thread, stored_rev = THREAD.get(agent), stored.rev
    if agent_thread is not None and saved.thread is not None:
        mark, stored_rev = await _flush_journal(agent.id, agent_thread, stored, store)
        saved = saved.replace(
            journal={field: getattr(mark, field) for field in JournalMark.__struct_fields__}
        )
    if not force and stored.checkpoint == saved.replace(rev=rev):
        return rev
    # Last: the checkpoint makes the journal entries above count.
    await store.save(agent.id, saved.replace(rev=rev + 1), expected_rev=stored_rev)
    return rev + 1


async def load_agent(id: str, definition: Definition, store: CheckpointStore) -> tuple[Agent, int]:
    """Return an agent as it was last saved, and the revision to build on.

    Raises:
        NotFound: The agent was never saved.
        RestoreFailed: Anything else is wrong; there is never a partial agent.
    """
    saved = await load_saved_agent(id, definition, store)
    return saved.agent, saved.rev


async def load_saved_agent(id: str, definition: Definition, store: CheckpointStore) -> SavedAgent:
    """Return an agent as `load_agent` does, with the schedules that were pending when it was saved."""
    _check_checkpoint_store(store)
    stored = await store.load(check(id))
    saved = stored.checkpoint
    if saved is None:
        raise NotFound("saved agent", id, "check the id and the checkpoint store, or start a new one")
    if saved.id != id:
        raise RestoreFailed(f"agent {id!r}", f"the checkpoint in its place is of {saved.id!r}")
    agent = restore(saved, definition)
    if saved.thread is not None and not THREAD.has(agent):
        agent = THREAD.put(agent, await _load_thread(saved, saved.thread, store))
    return SavedAgent(mount_missing_plugins(agent, saved), saved.rev, tuple(saved.schedules))


async def _flush_journal(
    id: str, thread: Thread, stored: StoredCheckpoint, store: CheckpointStore
) -> tuple[JournalMark, int]:
    """Append the missing entries, and return the mark of the journal and the revision of the checkpoint."""
    old = _check_mark(thread, stored.checkpoint)
    rev, checkpoint_rev = old.rev, stored.rev
    if len(thread.entries) > old.count:
        try:
            rev = await store.append_thread(id, thread.id, thread.entries[old.count :], expected_rev=rev)
        # The journal is longer than the checkpoint counts: a crash, or another writer, appended to it.
        except Conflict:
            rev, checkpoint_rev = await _replace_journal_tail(id, thread, old, stored, store)
    last = thread.last()
    mark = JournalMark(
        rev=rev,
        count=len(thread.entries),
        last=None if last is None else last.id,
        created_at=thread.created_at,
        updated_at=thread.updated_at,
        metadata=thread.metadata,
    )
    return mark, checkpoint_rev


async def _replace_journal_tail(
    id: str, thread: Thread, old: JournalMark, stored: StoredCheckpoint, store: CheckpointStore
) -> tuple[int, int]:
    """Replace journal entries that do not count, and return the revisions of journal and checkpoint.

    Another writer may just have appended those entries, to count them next. Saving the old checkpoint again
    makes sure that it cannot any more; and the journal gets a new revision even where nothing is missing, so
    that no other writer replaces what counts from now on.
    """
    journal = await store.read_thread(id, thread.id)
    pairs = zip(journal.entries, thread.entries, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    # Entries that the checkpoint counts are never replaced.
    if same < min(old.count, len(journal.entries)):
        raise _thread_checkpoint_error(
            "thread_mismatch", f"entry {same} of the journal of {thread.id!r} is another"
        )
    # Before the journal is cut: a writer that lost this race cannot count the old tail any more.
    rev = await store.save(id, stored.checkpoint, expected_rev=stored.rev)
    missing = thread.entries[same:]
    return await store.append_thread(id, thread.id, missing, expected_rev=journal.rev, after=same), rev


def _check_mark(thread: Thread, saved: Checkpoint | None) -> JournalMark:
    """Return how far the journal of a thread counts; raise unless the thread still has all those entries."""
    pointer = None if saved is None else saved.thread
    if saved is None or pointer is None or pointer["id"] != thread.id:
        return JournalMark(created_at=0, updated_at=0)
    if thread.rev < pointer["rev"]:
        raise _thread_checkpoint_error(
            "thread_rev_regression", f"it is at {thread.rev}, and was saved at {pointer['rev']}"
        )
    mark = _read_mark(saved, pointer)
    if len(thread.entries) < mark.count:
        raise _thread_checkpoint_error(
            "thread_history_truncated", f"{len(thread.entries)} entries are left of {mark.count} saved"
        )
    if mark.last is not None and thread.entries[mark.count - 1].id != mark.last:
        raise _thread_checkpoint_error(
            "thread_mismatch", f"entry {mark.count - 1} is not the one that was saved"
        )
    return mark


def _read_mark(saved: Checkpoint, pointer: FrozenMap[str, Any]) -> JournalMark:
    """Return the mark in a checkpoint; one that only points to a thread counts all entries."""
    if saved.journal is None:
        return JournalMark(count=pointer["rev"], created_at=0, updated_at=0)
    try:
        return JournalMark(**saved.journal)
    except (TypeError, ValueError) as error:
        raise RestoreFailed(f"agent {saved.id!r}", f"its journal: {error}") from error


async def _load_thread(saved: Checkpoint, pointer: FrozenMap[str, Any], store: CheckpointStore) -> Thread:
    """Return the thread that a checkpoint points to."""
    id, mark = pointer["id"], _read_mark(saved, pointer)
    stored_entries = (await store.read_thread(saved.id, id)).entries if mark.count else ()
    if mark.count and not stored_entries:
        raise _thread_restore_error(saved, "missing_thread", f"there is no journal of thread {id!r}")
    if len(stored_entries) < mark.count:
        raise _thread_restore_error(
            saved, "thread_history_truncated", f"{len(stored_entries)} entries are left of {mark.count}"
        )
    # What follows was appended by a save that did not finish.
    entries = stored_entries[: mark.count]
    if mark.last is not None and (not entries or entries[-1].id != mark.last):
        raise _thread_restore_error(
            saved, "thread_mismatch", f"entry {mark.count - 1} is not the one that was saved"
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
    return RestoreFailed(f"agent {saved.id!r}", f"{problem}: {detail}; restore it from a backup")


def _thread_checkpoint_error(problem: str, detail: str) -> CheckpointFailed:
    return CheckpointFailed("thread", f"{problem}: {detail}; load the agent that was saved")


def _check_checkpoint_store(store: object) -> None:
    if not isinstance(store, CheckpointStore):
        raise WrongType(
            "store", "a CheckpointStore", store, "pass a DocumentCheckpointStore or a FileCheckpointStore"
        )


def parse_checkpoint(id: str, data: bytes | str) -> Checkpoint:
    """Return the checkpoint in JSON; an error tells a newer format from damage."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise damaged_error(id, f"its checkpoint is not readable JSON ({error})") from error
    version = document.get("version") if isinstance(document, dict) else None
    if isinstance(version, int) and version > CHECKPOINT_VERSION:
        raise RestoreFailed(
            f"agent {id!r}",
            f"its checkpoint has version {version}, this reads 1 to {CHECKPOINT_VERSION}; use a newer Omoide",
        )
    try:
        return codec.from_builtins(document, Checkpoint)
    except ValueError as error:
        raise damaged_error(id, f"its checkpoint: {error}") from error


def parse_entries(id: str, lines: Iterable[Any]) -> tuple[ThreadEntry, ...]:
    """Return the entries of a journal, each in JSON; a number says how many of those before it count."""
    entries: list[ThreadEntry] = []
    for line in lines:
        try:
            value = msgspec.json.decode(line)
            if isinstance(value, int) and 0 <= value <= len(entries):
                del entries[value:]
                continue
            entry = codec.from_builtins(value, ThreadEntry)
        except (TypeError, ValueError, RecursionError) as error:
            raise damaged_error(id, f"its journal, entry {len(entries)}: {error}") from error
        if entry.seq != len(entries):
            raise damaged_error(id, f"its journal has entry {entry.seq} where {len(entries)} belongs")
        entries.append(entry)
    return tuple(entries)


def damaged_error(id: str, detail: str) -> RestoreFailed:
    """Return the error for stored data that cannot be read."""
    return RestoreFailed(f"agent {id!r}", f"{detail}; restore it from a backup, or delete it")
