"""The thread of an agent: an append-only log.

Entries are added and never changed, each with its position. `omoide.thread` offers the same operations on an
agent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Self

import msgspec

from omoide import clock, ids
from omoide.core.codec import MapField
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenList, FrozenMap, value_type
from omoide.core.value import (
    CHANGED_MEANWHILE,
    Count,
    Id,
    Millis,
    Name,
    RevisionedValue,
    Value,
    check_revision,
    check_texts,
    merge_changes,
    set_field,
    shallow_copy,
)
from omoide.errors import Conflict, Invalid, WrongType

ENTRY_KINDS = (
    "message",
    "tool_call",
    "tool_result",
    "signal_in",
    "signal_out",
    "instruction_start",
    "instruction_end",
    "note",
    "error",
    "checkpoint",
)
"""Conventional kinds; any other name is allowed."""


@value_type
class ThreadEntry(Value, frozen=True, kw_only=True):
    """An entry of a thread."""

    id: Id = msgspec.field(default_factory=lambda: ids.new("entry_"))
    seq: Count = 0
    at: Millis = msgspec.field(default_factory=clock.now)
    kind: Name = "note"
    payload: MapField = EMPTY_MAP
    refs: MapField = EMPTY_MAP


ThreadEntryLike = ThreadEntry | Mapping[str, Any]


@value_type
class Thread(RevisionedValue, frozen=True, kw_only=True):
    """A log of entries, whose revision is the number of entries ever appended."""

    id: Id = msgspec.field(default_factory=lambda: ids.new("thread_"))
    entries: FrozenList[ThreadEntry] = EMPTY_LIST
    metadata: MapField = EMPTY_MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rev == 0:
            set_field(self, "rev", len(self.entries))
        if self.rev < len(self.entries):
            raise Invalid("rev", f"is {self.rev} for {len(self.entries)} entries", "leave it out")
        for seq, entry in enumerate(self.entries):
            if not isinstance(entry, ThreadEntry):
                raise WrongType(f"entries[{seq}]", "a ThreadEntry", entry)
            if entry.seq != seq:  # the position is the number; `get_entry` relies on it
                raise Invalid(f"entries[{seq}].seq", f"is {entry.seq}", "add entries with append")

    @property
    def stats(self) -> FrozenMap[str, int]:
        """Counts about the log."""
        return FrozenMap({"entry_count": len(self.entries)})

    def append(
        self,
        entries: ThreadEntryLike | Iterable[ThreadEntryLike],
        *,
        expected_rev: int | None = None,
        now: int | None = None,
    ) -> Self:
        """Return the thread with one or more entries at the end.

        Args:
            entries: an entry or a mapping of its fields, or several; `seq` is set to the next position.
            expected_rev: the revision that the thread must have; `Conflict` is raised otherwise.
            now: the time of entries that have none, in milliseconds.
        """
        check_revision(f"thread {self.id!r}", expected_rev, self.rev)
        at = clock.resolve(now)
        added = [entries] if isinstance(entries, (ThreadEntry, Mapping)) else _to_list(entries)
        first = len(self.entries)
        new_entries = [_to_entry(entry, first + position, at) for position, entry in enumerate(added)]
        if not new_entries:
            return self
        new = self._next_revision(at, len(new_entries))
        log = self.entries
        set_field(
            new, "entries", log.append(new_entries[0]) if len(new_entries) == 1 else log.extend(new_entries)
        )
        return new

    def merge(self, base: Thread | None, other: Thread) -> Thread:
        """Return the thread with the entries that were appended to an older version of it at the same time.

        Args:
            base: the thread that both began with; None if there was none.
            other: what became of it there. If it does not continue `base`, it is returned as it is.

        Raises:
            Conflict: if both changed the metadata.
        """
        if base is not None and not other.extends(base):
            return other
        begun, metadata = (0, EMPTY_MAP) if base is None else (len(base.entries), base.metadata)
        merged_metadata = merge_changes(
            metadata,
            self.metadata,
            other.metadata,
            lambda: Conflict("metadata", begun, self.rev, CHANGED_MEANWHILE),
        )
        new = shallow_copy(self.append(other.entries[begun:], now=max(self.updated_at, other.updated_at)))
        set_field(new, "metadata", merged_metadata)
        return new

    def extends(self, older: Thread) -> bool:
        """Return True if the thread is an older one with entries added."""
        return self.id == older.id and self.rev >= older.rev and self.entries.extends(older.entries)

    def get_entry(self, seq: int) -> ThreadEntry | None:
        """Return the entry at a position, or None."""
        if type(seq) is not int:
            raise WrongType("seq", "an int", seq)
        return self.entries[seq] if 0 <= seq < len(self.entries) else None

    def last(self) -> ThreadEntry | None:
        """Return the newest entry, or None."""
        return self.entries[-1] if self.entries else None

    def slice(self, first: int, last: int) -> list[ThreadEntry]:
        """Return the entries from `first` to `last`, both included."""
        for field, seq in (("first", first), ("last", last)):
            if type(seq) is not int:
                raise WrongType(field, "an int", seq)
        return [*self.entries[max(first, 0) : max(last + 1, 0)]]

    def filter_by_kind(self, kinds: str | Iterable[str]) -> list[ThreadEntry]:
        """Return the entries of one kind, or of several."""
        names = check_texts([kinds] if isinstance(kinds, str) else kinds, "kinds")
        return [entry for entry in self.entries if entry.kind in names]


def _to_list(entries: object) -> list[Any]:
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Iterable):
        raise WrongType("entries", "a ThreadEntry, a mapping, or a list of them", entries)
    return [*entries]


def _to_entry(entry: object, seq: int, at: int) -> ThreadEntry:
    if isinstance(entry, ThreadEntry):
        return entry if entry.seq == seq else msgspec.structs.replace(entry, seq=seq)
    if not isinstance(entry, Mapping):
        raise WrongType("entry", "a ThreadEntry or a mapping", entry)
    for key in entry:
        if key not in ThreadEntry.__struct_fields__:
            known = ", ".join(ThreadEntry.__struct_fields__)
            raise Invalid(f"entry.{key}", "is an unknown field", f"use {known}; data goes in payload")
    return ThreadEntry(**{"at": at, **entry, "seq": seq})
