"""Importance score, and the access log that it is computed from.

The access log has the last thousand accesses of keys of the working context and of memories. Frequency and
recency of each are maintained beside it, so that a lookup does not scan the log.

The score is a weighted sum of four parts, each from 0 to 1: recency, frequency, confidence and salience of
the memory type. A score explains what each part contributed.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any, ClassVar, Self

import msgspec

from omoide import clock
from omoide.core import entry
from omoide.core.entry import check_positive
from omoide.core.frozen import EMPTY_LIST, FrozenList, check_text, value_type
from omoide.core.maps import Items, delete_item, set_item
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

ACCESS_TYPES = ("read", "write", "query")
MEMORY = "memory"

AccessKey = str | tuple[str, str]
"""A key of the working context, or `("memory", id)`."""


@value_type
class AccessEvent(Record, frozen=True, kw_only=True):
    """One access of a key of the working context or of a memory."""

    LABEL: ClassVar[str] = "access"

    name: Name
    """The key, or the id of the memory."""
    is_memory: bool = False
    access_type: str = "read"
    timestamp: Millis = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_choice(self.access_type, "access_type", ACCESS_TYPES)

    @property
    def key(self) -> AccessKey:
        """The accessed thing in the form that `AccessLog.record` takes."""
        return (MEMORY, self.name) if self.is_memory else self.name


class AccessStats(Value, frozen=True, kw_only=True):
    """Frequency of a key, and the timestamp of its last access."""

    frequency: int = 0
    recency: Millis | None = None


UsageCounts = Items[AccessKey, tuple[int, int]]

_NO_COUNTS: UsageCounts = {}


class AccessLog(Record, frozen=True, kw_only=True):
    """The latest accesses, up to a maximum number."""

    LABEL: ClassVar[str] = "access log"
    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"figures"})

    log: FrozenList[AccessEvent] = EMPTY_LIST
    """Accesses, oldest first."""
    max_entries: int = 1000
    figures: Any = _NO_COUNTS
    """Frequency and last access by key; derived from the log."""

    def _check(self) -> None:
        check_positive(self.max_entries, "max_entries")
        figures = _NO_COUNTS
        for at, access in enumerate(self.log):
            if not isinstance(access, AccessEvent):
                raise WrongType(f"log[{at}]", "an AccessEvent", access)
            figures = _count_access(figures, access)
        # Derived from the log and never stored (see EXCLUDED_FIELDS), so the two cannot disagree.
        set_field(self, "figures", figures)
        while len(self.log) > self.max_entries:
            self._drop_oldest()

    @classmethod
    def new(cls, max_entries: Any = 1000) -> Self:  # type: ignore[override]  # it begins empty
        """Return an empty log."""
        return cls(max_entries=max_entries)

    @property
    def entries(self) -> tuple[AccessEvent, ...]:
        """Accesses, newest first."""
        return tuple(self.log)[::-1]

    @property
    def size(self) -> int:
        """Number of accesses in the log."""
        return len(self.log)

    def record(self, key: AccessKey, access_type: str = "read", now: int | None = None) -> Self:
        """Return the log with one more access of a key or `("memory", id)`; a full log drops its oldest."""
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
        """Return the number of accesses in the log."""
        return self.get_stats(key).frequency

    def get_recency(self, key: AccessKey) -> int | None:
        """Return the timestamp of the last access, or None."""
        return self.get_stats(key).recency

    def get_stats(self, key: AccessKey) -> AccessStats:
        """Return frequency and recency of a key."""
        is_memory, name = _parse_key(key)
        counts = self.figures.get((MEMORY, name) if is_memory else name)
        return AccessStats() if counts is None else AccessStats(frequency=counts[0], recency=counts[1])

    def recent_accesses(self, n: int = 10) -> tuple[AccessEvent, ...]:
        """Return the latest accesses, newest first."""
        size = min(check_count(n, "n"), len(self.log))
        return tuple(self.log[len(self.log) - size :])[::-1]

    def entries_for(self, key: AccessKey) -> tuple[AccessEvent, ...]:
        """Return the accesses of one key, newest first."""
        is_memory, name = _parse_key(key)
        return tuple(event for event in self.entries if event.name == name and event.is_memory is is_memory)

    def unique_keys(self) -> tuple[AccessKey, ...]:
        """Return the distinct keys, the most recently accessed first."""
        return tuple(dict.fromkeys(access.key for access in self.entries))

    def access_type_counts(self) -> dict[str, int]:
        """Return the number of accesses of each type."""
        counts = dict.fromkeys(ACCESS_TYPES, 0)
        for access in self.log:
            counts[access.access_type] += 1
        return counts

    def clear(self) -> Self:
        """Return an empty log of the same capacity."""
        return type(self)(max_entries=self.max_entries)

    def _drop_oldest(self) -> None:
        """Remove the first access in place; only for a log that is still being constructed."""
        oldest = self.log[0]
        set_field(self, "log", self.log.delete(0))
        # The last access stays as it is: an access that remains in the log is not older than this one.
        count, last = self.figures[oldest.key]
        figures = (
            delete_item(self.figures, oldest.key)
            if count == 1
            else set_item(self.figures, oldest.key, (count - 1, last))
        )
        set_field(self, "figures", figures)


def _count_access(figures: UsageCounts, access: AccessEvent) -> UsageCounts:
    key = access.key
    counts = figures.get(key)
    return set_item(figures, key, (1 if counts is None else counts[0] + 1, access.timestamp))


def _parse_key(key: object) -> tuple[bool, str]:
    """Return True if the key names a memory, and the name."""
    if isinstance(key, tuple):
        if len(key) != 2 or key[0] != MEMORY:
            raise WrongType("key", 'a key, or ("memory", id)', key)
        return True, check_text(key[1], "id")
    return False, check_text(key, "key")


# An `unknown` with confidence 0.7 and five accesses scores 0.6, the default threshold; in floating point the
# sum is 0.5999999999999999.
TOLERANCE = 1e-9
"""Largest difference of two sums that are equal but for rounding."""

DEFAULT_SALIENCE = 0.3
"""Salience of a type that the table does not list."""

# Weights, cap, half-life and salience are those of the importance scorer in JidoCode.
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
"""Salience of each memory type; a subtype has that of its nearest listed ancestor."""


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
    """Weight of each part of the score, and the scale of frequency and recency."""

    LABEL: ClassVar[str] = "weights"

    recency: float = 0.2
    frequency: float = 0.3
    confidence: float = 0.25
    salience: float = 0.25
    frequency_cap: int = 10
    """Number of accesses from which on frequency is 1."""
    half_minutes: float = 30.0
    """Minutes after which recency is 0.5."""

    def _check(self) -> None:
        for field in ("recency", "frequency", "confidence", "salience"):
            _check_non_negative(getattr(self, field), field)
        check_positive(self.frequency_cap, "frequency_cap")
        if _check_non_negative(self.half_minutes, "half_minutes") == 0:
            raise Invalid("half_minutes", "is 0", "pass more than 0")


DEFAULT_WEIGHTS = Weights()


class ImportancePart(Value, frozen=True, kw_only=True):
    """Contribution of one part to a score, with an explanation."""

    name: str
    value: float
    weight: float
    text: str

    @property
    def contribution(self) -> float:
        """Value times weight."""
        return self.value * self.weight

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} × {self.weight:g} = {self.contribution:.3f} ({self.text})"


class Score(Value, frozen=True, kw_only=True):
    """Importance with its four parts and the figures they were computed from."""

    total: float
    recency: float
    frequency: float
    confidence: float
    salience: float
    minutes: Count
    """Whole minutes since the last access."""
    access_count: Count
    type: str | None = None
    weights: Weights = DEFAULT_WEIGHTS

    @property
    def parts(self) -> tuple[ImportancePart, ...]:
        """The four parts with their contributions and explanations."""
        explanations = {
            "recency": _recency_text(self.minutes),
            "frequency": _frequency_text(self.access_count),
            "confidence": f"confidence {self.confidence:.0%}",
            "salience": _type_text(self.type),
        }
        return tuple(
            ImportancePart(
                name=name, value=getattr(self, name), weight=getattr(self.weights, name), text=text
            )
            for name, text in explanations.items()
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
    """Return the importance of something from its usage, confidence and type.

    Args:
        last_accessed: timestamp of the last access in milliseconds; one in the future counts as now.
        access_count: number of accesses.
        confidence: clamped to 0 to 1.
        type: memory type; None and unknown types have the default salience.
        now: current timestamp.
        weights: weights of the parts.

    >>> round(score(0, 2, 0.7, "fact", now=0).total, 3)
    0.61
    """
    at, last = clock.resolve(now), clock.check(last_accessed, "last_accessed")
    count = check_count(access_count, "access_count")
    certainty = min(max(_check_finite(confidence, "confidence"), 0.0), 1.0)
    # Whole minutes and no negative ones: a clock that was set back must not raise recency above 1.
    minutes = max(at - last, 0) // 60_000
    known_type = "" if type is None else entry.TYPE_WORDS.get(type, type)
    salience = SALIENCE.get(known_type, DEFAULT_SALIENCE)
    recency = 1 / (1 + minutes / weights.half_minutes)
    frequency = min(count / weights.frequency_cap, 1.0)
    total = (
        weights.recency * recency
        + weights.frequency * frequency
        + weights.confidence * certainty
        + weights.salience * salience
    )
    return Score(
        # Weights may add up to more than 1.
        total=min(total, 1.0),
        recency=recency,
        frequency=frequency,
        confidence=certainty,
        salience=salience,
        minutes=minutes,
        access_count=count,
        type=type,
        weights=weights,
    )


def reaches(score: float, threshold: float) -> bool:
    """Return True if a score reaches the threshold, within rounding.

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
