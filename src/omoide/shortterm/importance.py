"""How much does something that was noticed matter?

The weighted sum of four parts, each from 0 to 1: how recently it was used, how often, how sure it is, and how
much its kind matters. A score says what each part added to it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import ClassVar

from omoide import clock
from omoide.core import memory_types
from omoide.core.contract import Record
from omoide.core.recalling import check_positive
from omoide.core.value import Count, Value, check_count, check_number
from omoide.errors import Invalid

TOLERANCE = 1e-9
"""Sums of fractions that are equal on paper may differ by less than this."""

OTHER = 0.3
"""How much a kind matters that the table does not name."""

_NAMED = {
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
        name: next((_NAMED[kind] for kind in (name, *memory_types.ancestors(name)) if kind in _NAMED), OTHER)
        for name in memory_types.MEMORY_TYPES
    }
)
"""How much each type of memory matters by itself; one that refines another matters as much."""


def _not_below(value: object, field: str) -> float:
    number = _finite(value, field)
    if number < 0:
        raise Invalid(field, f"is {number:g}", "pass 0 or more")
    return number


def _finite(value: object, field: str) -> float:
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
            _not_below(getattr(self, field), field)
        check_positive(self.frequency_cap, "frequency_cap")
        if _not_below(self.half_minutes, "half_minutes") == 0:
            raise Invalid("half_minutes", "is 0", "pass more than 0")


DEFAULT = Weights()


class Part(Value, frozen=True, kw_only=True):
    """What one of the four added to a score, and why."""

    name: str
    value: float
    weight: float
    words: str

    @property
    def contribution(self) -> float:
        """What it added."""
        return self.value * self.weight

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f} × {self.weight:g} = {self.contribution:.3f} ({self.words})"


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
    weights: Weights = DEFAULT

    @property
    def parts(self) -> tuple[Part, ...]:
        """What each of the four added, in words as well."""
        words = {
            "recency": _ago(self.minutes),
            "frequency": _times(self.access_count),
            "confidence": f"{self.confidence:.0%} sure",
            "salience": _named(self.type),
        }
        return tuple(
            Part(name=name, value=getattr(self, name), weight=getattr(self.weights, name), words=said)
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
    weights: Weights = DEFAULT,
) -> Score:
    """How much something matters that was last used at a moment, so often, and is so sure.

    >>> round(score(0, 2, 0.7, "fact", now=0).total, 3)
    0.61
    """
    at, last = clock.resolve(now), clock.check(last_accessed, "last_accessed")
    count = check_count(access_count, "access_count")
    sure = min(max(_finite(confidence, "confidence"), 0.0), 1.0)
    minutes = max(at - last, 0) // 60_000
    kind = OTHER if type is None else SALIENCE.get(type, OTHER)
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


def _ago(minutes: int) -> str:
    return "used within the last minute" if minutes == 0 else f"used {minutes} min ago"


def _times(count: int) -> str:
    return "used once" if count == 1 else f"used {count} times"


def _named(type: str | None) -> str:
    if type is None:
        return "of no type"
    return f"{'an' if type[:1] in 'aeiou' else 'a'} {type.replace('_', ' ')}"
