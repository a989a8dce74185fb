"""Importance score and access log.

The last thousand uses of the working context's keys and of memories. How often and when each was used last is
kept beside them, so asking does not go through the log.

The weighted sum of four parts, each from 0 to 1: how recently it was used, how often, how sure it is, and how
much its kind matters. A score says what each part added to it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar, Self

import msgspec
from immutables import Map

from omoide import clock
from omoide.core import entry
from omoide.core.entry import check_positive
from omoide.core.frozen import EMPTY_LIST, FrozenList, check_text, value_type
from omoide.core.value import (
    Count,
    Millis,
    Name,
    Record,
    Value,
    check_choice,
    check_count,
    check_number,
    set_field,
    shallow_copy,
)
from omoide.errors import Invalid, WrongType

# access log: What was used lately, and how often?


ACCESS_TYPES = ("read", "write", "query")
MEMORY = "memory"

AccessKey = str | tuple[str, str]
"""A key of the working context, or `("memory", id)`."""


@value_type
class AccessEvent(Record, frozen=True, kw_only=True):
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
    def key(self) -> AccessKey:
        """What was used, in the form that `record` takes."""
        return (MEMORY, self.name) if self.is_memory else self.name


class AccessStats(Value, frozen=True, kw_only=True):
    """How often something was used, and when for the last time."""

    frequency: int = 0
    recency: Millis | None = None


UsageCounts = Map[AccessKey, tuple[int, int]]

_NO_COUNTS: UsageCounts = Map()


class AccessLog(Record, frozen=True, kw_only=True):
    """The latest uses of things, up to a number of them."""

    LABEL: ClassVar[str] = "access log"
    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"figures"})

    log: FrozenList[AccessEvent] = EMPTY_LIST
    """The uses, oldest first."""
    max_entries: int = 1000
    figures: Any = _NO_COUNTS
    """How often each thing is in the log, and when it was used last; follows from the log."""

    def _check(self) -> None:
        check_positive(self.max_entries, "max_entries")
        figures = _NO_COUNTS
        for at, access in enumerate(self.log):
            if not isinstance(access, AccessEvent):
                raise WrongType(f"log[{at}]", "an Access", access)
            figures = _count_access(figures, access)
        set_field(self, "figures", figures)
        while len(self.log) > self.max_entries:
            self._drop_oldest()

    @classmethod
    def new(cls, max_entries: Any = 1000) -> Self:  # type: ignore[override]  # it begins empty
        """An empty log."""
        return cls(max_entries=max_entries)

    @property
    def entries(self) -> tuple[AccessEvent, ...]:
        """The uses, newest first."""
        return tuple(self.log)[::-1]

    @property
    def size(self) -> int:
        """How many uses it holds."""
        return len(self.log)

    def record(self, key: AccessKey, access_type: str = "read", now: int | None = None) -> Self:
        """With one more use of a key or of `("memory", id)`; the oldest leaves when there are too many."""
        is_memory, name = _parse_key(key)
        access = AccessEvent(
            name=name, is_memory=is_memory, access_type=access_type, timestamp=clock.resolve(now)
        )
        new = shallow_copy(self)
        set_field(new, "log", self.log.append(access))
        set_field(new, "figures", _count_access(self.figures, access))
        if len(new.log) > self.max_entries:
            new._drop_oldest()
        return new

    def get_frequency(self, key: AccessKey) -> int:
        """How often something is in the log."""
        return self.get_stats(key).frequency

    def get_recency(self, key: AccessKey) -> int | None:
        """When something was used last, or None."""
        return self.get_stats(key).recency

    def get_stats(self, key: AccessKey) -> AccessStats:
        """How often something is in the log, and when it was used last."""
        is_memory, name = _parse_key(key)
        known = self.figures.get((MEMORY, name) if is_memory else name)
        return AccessStats() if known is None else AccessStats(frequency=known[0], recency=known[1])

    def recent_accesses(self, n: int = 10) -> tuple[AccessEvent, ...]:
        """The latest uses, newest first."""
        wanted = min(check_count(n, "n"), len(self.log))
        return tuple(self.log[len(self.log) - wanted :])[::-1]

    def entries_for(self, key: AccessKey) -> tuple[AccessEvent, ...]:
        """The uses of one thing, newest first."""
        is_memory, name = _parse_key(key)
        return tuple(one for one in self.entries if one.name == name and one.is_memory is is_memory)

    def unique_keys(self) -> tuple[AccessKey, ...]:
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
        set_field(self, "log", self.log.delete(0))
        count, last = self.figures[oldest.key]
        figures = (
            self.figures.delete(oldest.key) if count == 1 else self.figures.set(oldest.key, (count - 1, last))
        )
        set_field(self, "figures", figures)


def _count_access(figures: UsageCounts, access: AccessEvent) -> UsageCounts:
    key = access.key
    known = figures.get(key)
    return figures.set(key, (1 if known is None else known[0] + 1, access.timestamp))


def _parse_key(key: object) -> tuple[bool, str]:
    """Whether a memory is meant, and the name of the thing."""
    if isinstance(key, tuple):
        if len(key) != 2 or key[0] != MEMORY:
            raise WrongType("key", 'a key, or ("memory", id)', key)
        return True, check_text(key[1], "id")
    return False, check_text(key, "key")


# importance: How much does something that was noticed matter?


TOLERANCE = 1e-9
"""Sums of fractions that are equal on paper may differ by less than this."""

DEFAULT_SALIENCE = 0.3
"""How much a kind matters that the table does not name."""

_BASE_SALIENCE = {
    "decision": 1.0,
    "convention": 1.0,
    "lesson_learned": 1.0,
    "risk": 1.0,
    "discovery": 0.8,
    "fact": 0.7,
    "hypothesis": 0.5,
    "assumption": 0.4,
}

SALIENCE = MappingProxyType(
    {
        name: next(
            (_BASE_SALIENCE[kind] for kind in (name, *entry.supertypes(name)) if kind in _BASE_SALIENCE),
            DEFAULT_SALIENCE,
        )
        for name in entry.MEMORY_TYPES
    }
)
"""How much each type of memory matters by itself; one that refines another matters as much."""


def _check_non_negative(value: object, field: str) -> float:
    number = _check_finite(value, field)
    if number < 0:
        raise Invalid(field, f"is {number:g}", "pass 0 or more")
    return number


def _check_finite(value: object, field: str) -> float:
    number = check_number(value, field)
    if number != number or number in (float("inf"), float("-inf")):
        raise Invalid(field, f"is {number}", "pass a number")
    return number


class Weights(Record, frozen=True, kw_only=True):
    """How much each part counts, and what is often and recent."""

    LABEL: ClassVar[str] = "weights"

    recency: float = 0.2
    frequency: float = 0.3
    confidence: float = 0.25
    salience: float = 0.25
    frequency_cap: int = 10
    """How many uses are as good as any larger number."""
    half_minutes: float = 30.0
    """After how many minutes recency is half of what it was."""

    def _check(self) -> None:
        for field in ("recency", "frequency", "confidence", "salience"):
            _check_non_negative(getattr(self, field), field)
        check_positive(self.frequency_cap, "frequency_cap")
        if _check_non_negative(self.half_minutes, "half_minutes") == 0:
            raise Invalid("half_minutes", "is 0", "pass more than 0")


DEFAULT_WEIGHTS = Weights()


class ImportancePart(Value, frozen=True, kw_only=True):
    """What one of the four added to a score, and why."""

    name: str
    value: float
    weight: float
    text: str

    @property
    def contribution(self) -> float:
        """What it added."""
        return self.value * self.weight

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} × {self.weight:g} = {self.contribution:.3f} ({self.text})"


class Score(Value, frozen=True, kw_only=True):
    """How much something matters, the four parts of that, and what they were made from."""

    total: float
    recency: float
    frequency: float
    confidence: float
    salience: float
    minutes: Count
    """How long ago it was used, in whole minutes."""
    access_count: Count
    type: str | None = None
    weights: Weights = DEFAULT_WEIGHTS

    @property
    def parts(self) -> tuple[ImportancePart, ...]:
        """What each of the four added, in words as well."""
        words = {
            "recency": _recency_text(self.minutes),
            "frequency": _frequency_text(self.access_count),
            "confidence": f"{self.confidence:.0%} sure",
            "salience": _type_text(self.type),
        }
        return tuple(
            ImportancePart(
                name=name, value=getattr(self, name), weight=getattr(self.weights, name), text=said
            )
            for name, said in words.items()
        )

    def __str__(self) -> str:
        return f"{self.total:.3f} = {' + '.join(map(str, self.parts))}"


def score(
    last_accessed: int,
    access_count: int,
    confidence: float,
    type: str | None,
    now: int | None = None,
    weights: Weights = DEFAULT_WEIGHTS,
) -> Score:
    """How much something matters that was last used at a moment, so often, and is so sure.

    >>> round(score(0, 2, 0.7, "fact", now=0).total, 3)
    0.61
    """
    at, last = clock.resolve(now), clock.check(last_accessed, "last_accessed")
    count = check_count(access_count, "access_count")
    sure = min(max(_check_finite(confidence, "confidence"), 0.0), 1.0)
    minutes = max(at - last, 0) // 60_000
    kind = DEFAULT_SALIENCE if type is None else SALIENCE.get(type, DEFAULT_SALIENCE)
    recency = 1 / (1 + minutes / weights.half_minutes)
    frequency = min(count / weights.frequency_cap, 1.0)
    total = (
        weights.recency * recency
        + weights.frequency * frequency
        + weights.confidence * sure
        + weights.salience * kind
    )
    return Score(
        total=min(total, 1.0),
        recency=recency,
        frequency=frequency,
        confidence=sure,
        salience=kind,
        minutes=minutes,
        access_count=count,
        type=type,
        weights=weights,
    )


def reaches(score: float, threshold: float) -> bool:
    """Whether a score is enough; one that is equal on paper is, whatever rounding made of it.

    >>> reaches(0.5999999999999999, 0.6)
    True
    """
    return score >= threshold - TOLERANCE


def _recency_text(minutes: int) -> str:
    return "used within the last minute" if minutes == 0 else f"used {minutes} min ago"


def _frequency_text(count: int) -> str:
    return "used once" if count == 1 else f"used {count} times"


def _type_text(type: str | None) -> str:
    if type is None:
        return "of no type"
    return f"{'an' if type[:1] in 'aeiou' else 'a'} {type.replace('_', ' ')}"
