"""Which entries of the thread has a projector covered?

Each projector has a mark in the agent's memory, in the space `projection`. It moves together with what was
projected, in one value, so that neither can be lost without the other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from omoide.core.codec import ListField, MapField
from omoide.core.frozen import EMPTY_LIST, EMPTY_MAP, FrozenMap
from omoide.core.memory import Memory
from omoide.core.value import Count, Id, Millis, Value, check_count
from omoide.errors import Invalid, OmoideError

SPACE = "projection"
"""The space of the memory that holds the marks, by the names of the projectors."""


class Mark(Value, frozen=True, kw_only=True):
    """How far a projector has come in one thread."""

    thread: Id
    at: Millis
    """When it was last written."""
    covers_seq: ListField = EMPTY_LIST
    """The first and the last position covered; empty where none is."""
    pending: MapField = EMPTY_MAP
    """What was asked and not answered yet: `[first, last, at]` by request id."""
    kept: bool = False
    """Whether a provider kept anything of what is being asked."""
    broken: bool = False
    """Whether a request of those being asked failed as a whole."""
    missed: ListField = EMPTY_LIST
    """The keys of those being asked that a provider did not keep."""
    refused: MapField = EMPTY_MAP
    """How often a provider refused a key while it kept others."""
    failures: Count = 0
    """How often the projection failed since it last came further."""
    failed_at: Millis | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.covers_seq:
            _check_span(self.covers_seq, "covers_seq", 2)
        for request, span in self.pending.items():
            _check_span(span, f"pending.{request}", 3)
        for key, times in self.refused.items():
            check_count(times, f"refused.{key}")

    @property
    def next_seq(self) -> int:
        """The position of the first entry that is not covered."""
        return int(self.covers_seq[1]) + 1 if self.covers_seq else 0

    def covering(self, first: int, last: int, at: int) -> Mark:
        """The mark moved to a position; whatever was under way is done with."""
        start = int(self.covers_seq[0]) if self.covers_seq else first
        return Mark(thread=self.thread, at=at, covers_seq=[start, last])

    def asking(self, requests: Mapping[str, list[int]], at: int) -> Mark:
        """The mark with requests under way in place of older ones."""
        return self.replace(pending=requests, at=at, kept=False, broken=False, missed=EMPTY_LIST)

    def failing(self, at: int) -> Mark:
        """The mark where it was, free to be asked for again."""
        free = self.asking({}, at)
        return free.replace(failures=self.failures + 1, failed_at=at)

    def in_flight(self, now: int, retry_ms: int) -> bool:
        """Whether answers are still to be expected; a clock that was set back expects none."""
        return any(0 <= now - span[2] < retry_ms for span in self.pending.values())

    def just_failed(self, now: int, retry_ms: int) -> bool:
        """Whether it is too early to try again without being told to."""
        return self.failed_at is not None and 0 <= now - self.failed_at < retry_ms


def read(memory: Memory, name: str, thread_id: str, now: int) -> Mark:
    """The mark of a projector for a thread; one for another thread, or an unreadable one, begins anew."""
    known = _marks(memory).get(name)
    mark = None if known is None else _read(known)
    return mark if mark is not None and mark.thread == thread_id else Mark(thread=thread_id, at=now)


def every(memory: Memory) -> Iterator[tuple[str, Mark]]:
    """All marks that can be read, with the names of their projectors."""
    for name, known in _marks(memory).items():
        mark = _read(known)
        if mark is not None:
            yield name, mark


def write(memory: Memory, name: str, mark: Mark, now: int) -> Memory:
    """The memory with a mark in it."""
    plain = {
        field.name: getattr(mark, field.name)
        for field in msgspec.structs.fields(Mark)
        if getattr(mark, field.name) != field.default
    }
    return memory.ensure_space(SPACE, {}, now=now).put_in_space(SPACE, name, plain, now=now)


def _marks(memory: Memory) -> FrozenMap[str, Any]:
    space = memory.space(SPACE)
    return space.data if space is not None and isinstance(space.data, FrozenMap) else EMPTY_MAP


def _read(known: object) -> Mark | None:
    """A memory is open to whoever writes into it, so a mark may be anything."""
    if not isinstance(known, FrozenMap):
        return None
    try:
        return Mark(**known)
    except (OmoideError, TypeError):
        return None


def _check_span(span: Any, field: str, size: int) -> None:
    if isinstance(span, (str, Mapping)) or len(span) != size:
        raise Invalid(field, "is no span", f"use {size} numbers")
    for number in span:
        check_count(number, field)
    if span[0] > span[1]:
        raise Invalid(field, "ends before it begins", "leave it to the projection")
