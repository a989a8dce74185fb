"""What was used lately, and how often?

The last thousand uses of the working context's keys and of memories. How often and when each was used last is
kept beside them, so asking does not go through the log.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import msgspec
from immutables import Map

from omoide import clock
from omoide.core.contract import Record, check_choice
from omoide.core.frozen import EMPTY_LIST, FrozenList
from omoide.core.nesting import own
from omoide.core.recalling import check_positive
from omoide.core.texts import check_text
from omoide.core.value import Millis, Name, Value, check_count, copied, force
from omoide.errors import WrongType

ACCESS_TYPES = ("read", "write", "query")
MEMORY = "memory"

Key = str | tuple[str, str]
"""A key of the working context, or `("memory", id)`."""


@own
class Access(Record, frozen=True, kw_only=True):
    """One use of a key of the working context, or of a memory."""

    LABEL: ClassVar[str] = "access"

    name: Name
    """The key, or the memory's id."""
    is_memory: bool = False
    access_type: str = "read"
    timestamp: Millis = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_choice(self.access_type, "access_type", ACCESS_TYPES)

    @property
    def key(self) -> Key:
        """What was used, in the form that `record` takes."""
        return (MEMORY, self.name) if self.is_memory else self.name


class AccessStats(Value, frozen=True, kw_only=True):
    """How often something was used, and when for the last time."""

    frequency: int = 0
    recency: Millis | None = None


Figures = Map[Key, tuple[int, int]]

_NONE: Figures = Map()


class AccessLog(Record, frozen=True, kw_only=True):
    """The latest uses of things, up to a number of them."""

    LABEL: ClassVar[str] = "access log"
    UNWRITTEN: ClassVar[frozenset[str]] = frozenset({"figures"})

    log: FrozenList[Access] = EMPTY_LIST
    """The uses, oldest first."""
    max_entries: int = 1000
    figures: Any = _NONE
    """How often each thing is in the log, and when it was used last; follows from the log."""

    def _check(self) -> None:
        check_positive(self.max_entries, "max_entries")
        figures = _NONE
        for at, access in enumerate(self.log):
            if not isinstance(access, Access):
                raise WrongType(f"log[{at}]", "an Access", access)
            figures = _added(figures, access)
        force(self, "figures", figures)
        while len(self.log) > self.max_entries:
            self._drop_oldest()

    @classmethod
    def new(cls, max_entries: Any = 1000) -> Self:  # type: ignore[override]  # it begins empty
        """An empty log."""
        return cls(max_entries=max_entries)

    @property
    def entries(self) -> tuple[Access, ...]:
        """The uses, newest first."""
        return tuple(self.log)[::-1]

    @property
    def size(self) -> int:
        """How many uses it holds."""
        return len(self.log)

    def record(self, key: Key, access_type: str = "read", now: int | None = None) -> Self:
        """With one more use of a key or of `("memory", id)`; the oldest leaves when there are too many."""
        is_memory, name = _read(key)
        access = Access(name=name, is_memory=is_memory, access_type=access_type, timestamp=clock.resolve(now))
        new = copied(self)
        force(new, "log", self.log.append(access))
        force(new, "figures", _added(self.figures, access))
        if len(new.log) > self.max_entries:
            new._drop_oldest()
        return new

    def get_frequency(self, key: Key) -> int:
        """How often something is in the log."""
        return self.get_stats(key).frequency

    def get_recency(self, key: Key) -> int | None:
        """When something was used last, or None."""
        return self.get_stats(key).recency

    def get_stats(self, key: Key) -> AccessStats:
        """How often something is in the log, and when it was used last."""
        is_memory, name = _read(key)
        known = self.figures.get((MEMORY, name) if is_memory else name)
        return AccessStats() if known is None else AccessStats(frequency=known[0], recency=known[1])

    def recent_accesses(self, n: int = 10) -> tuple[Access, ...]:
        """The latest uses, newest first."""
        wanted = min(check_count(n, "n"), len(self.log))
        return tuple(self.log[len(self.log) - wanted :])[::-1]

    def entries_for(self, key: Key) -> tuple[Access, ...]:
        """The uses of one thing, newest first."""
        is_memory, name = _read(key)
        return tuple(one for one in self.entries if one.name == name and one.is_memory is is_memory)

    def unique_keys(self) -> tuple[Key, ...]:
        """What is in the log, what was used last first."""
        return tuple(dict.fromkeys(access.key for access in self.entries))

    def access_type_counts(self) -> dict[str, int]:
        """How many uses there are of each type."""
        counts = dict.fromkeys(ACCESS_TYPES, 0)
        for access in self.log:
            counts[access.access_type] += 1
        return counts

    def clear(self) -> Self:
        """The same log, empty."""
        return type(self)(max_entries=self.max_entries)

    def _drop_oldest(self) -> None:
        """Take the first use out of a log that is still being made."""
        oldest = self.log[0]
        force(self, "log", self.log.delete(0))
        count, last = self.figures[oldest.key]
        figures = (
            self.figures.delete(oldest.key) if count == 1 else self.figures.set(oldest.key, (count - 1, last))
        )
        force(self, "figures", figures)


def _added(figures: Figures, access: Access) -> Figures:
    key = access.key
    known = figures.get(key)
    return figures.set(key, (1 if known is None else known[0] + 1, access.timestamp))


def _read(key: object) -> tuple[bool, str]:
    """Whether a memory is meant, and the name of the thing."""
    if isinstance(key, tuple):
        if len(key) != 2 or key[0] != MEMORY:
            raise WrongType("key", 'a key, or ("memory", id)', key)
        return True, check_text(key[1], "id")
    return False, check_text(key, "key")
