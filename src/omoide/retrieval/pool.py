"""Which memories are candidates, and what is known of each?

The candidates of one scope as columns, cheap to build from what a store keeps and cheap to change: rows are
appended and dropped in place. What follows from the columns (neighbours, windows) is worked out when it is
first needed and forgotten with the next change.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
TokenLoader = Callable[[Array], Sequence[Array]]
T = TypeVar("T")

USER, ASSISTANT, OTHER = 0, 1, -1
_NO_TOKENS: Array = np.zeros((0, 1), np.int8)
_MAX_CACHED_ROWS = 4_096
"""Rows whose token vectors a pool keeps once they were fetched, about 1 kB each."""
_ROLES = {"user": USER, "human": USER, "assistant": ASSISTANT, "ai": ASSISTANT, "model": ASSISTANT}


class PoolRow(NamedTuple):
    """One memory, as the pool wants it."""

    features: bytes
    """What `omoide.retrieval.features` made of its text."""
    time: int = 0
    thread: str | None = None
    seq: int = 0
    role: str | None = None
    speaker: str | None = None
    confidence: float = 1.0
    importance: float | None = None
    vectors: bytes = b""
    """Its pooled vectors as float32, one or several; none if it has not been embedded."""


@dataclass(frozen=True, slots=True)
class ScopeStatistics:
    """What is known of the whole scope when the pool holds only a part of it."""

    count: int
    frequencies: Mapping[int, int] = field(default_factory=dict)
    """In how many memories a term occurs, by the term's number."""


class CandidatePool:
    """The candidates of one scope. Rows keep their index for as long as the pool lives."""

    def __init__(
        self,
        *,
        dim: int = 0,
        token_loader: TokenLoader | None = None,
        statistics: ScopeStatistics | None = None,
        max_gap: int = 8,
    ) -> None:
        self.dim = dim
        self.token_loader = token_loader
        """Gives the token vectors (int8) of the rows with these indexes."""
        self.statistics = statistics
        self.max_gap = max_gap
        """Rows of a thread are neighbours when their positions differ by no more than this."""
        self.speakers: list[str] = []
        self._speaker_codes: dict[str, int] = {}
        self._thread_codes: dict[str, int] = {}
        self._terms = _GrowableArray(np.int64)
        self._integers = _GrowableArray(np.int64, len(_INTEGER_COLUMNS))
        self._floats = _GrowableArray(np.float64, 2)
        self._live = _GrowableArray(np.bool_)
        self._vectors = _GrowableArray(np.float32, dim)
        self._vector_rows = _GrowableArray(np.int64)
        self._derived: dict[str, Any] = {}
        self._token_cache: dict[int, Array] = {}

    @classmethod
    def build(
        cls,
        features: Sequence[bytes],
        *,
        time: Sequence[int] | None = None,
        thread: Sequence[str | None] | None = None,
        seq: Sequence[int] | None = None,
        role: Sequence[str | None] | None = None,
        speaker: Sequence[str | None] | None = None,
        confidence: Sequence[float] | None = None,
        importance: Sequence[float | None] | None = None,
        vectors: Sequence[bytes] | None = None,
        dim: int = 0,
        token_loader: TokenLoader | None = None,
        statistics: ScopeStatistics | None = None,
        max_gap: int = 8,
    ) -> CandidatePool:
        """A pool of these rows, given column by column; a column left out has its default in every row."""
        pool = cls(dim=dim, token_loader=token_loader, statistics=statistics, max_gap=max_gap)
        pool._extend(features, time, thread, seq, role, speaker, confidence, importance, vectors)
        return pool

    def append(self, row: PoolRow) -> int:
        """Add one row and give its index."""
        self._extend(
            [row.features],
            [row.time],
            [row.thread],
            [row.seq],
            [row.role],
            [row.speaker],
            [row.confidence],
            [row.importance],
            [row.vectors],
        )
        return self.size - 1

    def drop(self, index: int) -> None:
        """Take one row out: it is found no more and lends its neighbours nothing."""
        self._live.view[index] = False
        self._token_cache.pop(index, None)
        self._derived.clear()

    @property
    def size(self) -> int:
        """Rows, dropped ones included."""
        return self._live.size

    @property
    def live(self) -> Array:
        """Which rows are still there."""
        return self._live.view

    @property
    def terms(self) -> Array:
        """The terms of all rows, one after the other."""
        return self._terms.view

    @property
    def vectors(self) -> Array:
        """The pooled vectors, one or several a row."""
        return self._vectors.view

    @property
    def vector_rows(self) -> Array:
        """Whose each vector is."""
        return self._vector_rows.view

    @property
    def confidence(self) -> Array:
        return self._floats.view[:, 0]

    @property
    def importance(self) -> Array:
        """NaN where nobody said."""
        return self._floats.view[:, 1]

    def column(self, name: str) -> Array:
        """One of the columns of numbers: count, length, flags, time, thread, seq, role, speaker."""
        return self._integers.view[:, _INTEGER_COLUMNS[name]]

    def tokens_of(self, rows: Array) -> list[Array]:
        """The token vectors of these rows; they are fetched once."""
        if self.token_loader is None:
            return [_NO_TOKENS for _ in rows]
        held = self._token_cache
        wanted = rows.tolist()
        missing = [row for row in wanted if row not in held]
        if missing:
            if len(held) > _MAX_CACHED_ROWS:
                held.clear()
                missing = wanted
            held.update(zip(missing, self.token_loader(np.array(missing, np.int64)), strict=True))
        return [held[row] for row in wanted]

    def derive(self, name: str, make: Callable[[CandidatePool], T]) -> T:
        """What follows from the rows, worked out once for each state of the pool."""
        found: T | None = self._derived.get(name)
        if found is None:
            found = self._derived[name] = make(self)
        return found

    def _extend(
        self,
        features: Sequence[bytes],
        time: Sequence[int] | None,
        thread: Sequence[str | None] | None,
        seq: Sequence[int] | None,
        role: Sequence[str | None] | None,
        speaker: Sequence[str | None] | None,
        confidence: Sequence[float] | None,
        importance: Sequence[float | None] | None,
        vectors: Sequence[bytes] | None,
    ) -> None:
        count = len(features)
        if not count:
            return
        first = self.size
        numbers = np.zeros((count, len(_INTEGER_COLUMNS)), np.int64)
        self._add_terms(features, numbers)
        if time is not None:
            numbers[:, _INTEGER_COLUMNS["time"]] = time
        if seq is not None:
            numbers[:, _INTEGER_COLUMNS["seq"]] = seq
        numbers[:, _INTEGER_COLUMNS["thread"]] = _assign_codes(self._thread_codes, thread)
        numbers[:, _INTEGER_COLUMNS["speaker"]] = _assign_codes(self._speaker_codes, speaker)
        numbers[:, _INTEGER_COLUMNS["role"]] = (
            [_ROLES.get(name or "", OTHER) for name in role] if role else OTHER
        )
        self.speakers = list(self._speaker_codes)
        measures = np.full((count, 2), np.nan)
        measures[:, 0] = 1.0 if confidence is None else confidence
        if importance is not None:
            measures[:, 1] = [np.nan if value is None else value for value in importance]
        if vectors is not None and self.dim:
            self._add_vectors(vectors, first)
        self._integers.extend(numbers)
        self._floats.extend(measures)
        self._live.extend(np.ones(count, np.bool_))
        self._derived.clear()

    def _add_terms(self, features: Sequence[bytes], numbers: Array) -> None:
        flat = np.frombuffer(b"".join(features), "<i8").astype(np.int64, copy=False)
        sizes = np.fromiter(map(len, features), np.int64, len(features)) // 8
        heads = np.cumsum(sizes) - sizes
        numbers[:, _INTEGER_COLUMNS["count"]] = sizes - 1
        numbers[:, _INTEGER_COLUMNS["length"]] = flat[heads] & 0xFFFFFFFF
        numbers[:, _INTEGER_COLUMNS["flags"]] = flat[heads] >> 32
        kept = np.ones(len(flat), np.bool_)
        kept[heads] = False
        self._terms.extend(flat[kept])

    def _add_vectors(self, vectors: Sequence[bytes], first: int) -> None:
        matrix = np.frombuffer(b"".join(vectors), "<f4").astype(np.float32, copy=False).reshape(-1, self.dim)
        each = np.fromiter(map(len, vectors), np.int64, len(vectors)) // (4 * self.dim)
        self._vectors.extend(matrix)
        self._vector_rows.extend(np.repeat(np.arange(first, first + len(vectors)), each))


_INTEGER_COLUMNS = {
    name: at
    for at, name in enumerate(("count", "length", "flags", "time", "thread", "seq", "role", "speaker"))
}


def _assign_codes(codes: dict[str, int], names: Sequence[str | None] | None) -> list[int] | int:
    """The number of each name, new ones numbered on; -1 for none."""
    if names is None:
        return -1
    return [-1 if name is None else codes.setdefault(name, len(codes)) for name in names]


class _GrowableArray:
    """An array that grows at its end, at a constant price per row."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._data: Array = np.empty((0,) if width is None else (0, width), dtype)
        self.size = 0

    @property
    def view(self) -> Array:
        return self._data[: self.size]

    def extend(self, more: Array) -> None:
        needed = self.size + len(more)
        if self.size == 0 and len(more) > 1:
            self._data = np.array(more, self._data.dtype)
        elif needed > len(self._data):
            grown = np.empty((max(needed, 2 * len(self._data), 16), *self._data.shape[1:]), self._data.dtype)
            grown[: self.size] = self.view
            grown[self.size : needed] = more
            self._data = grown
        else:
            self._data[self.size : needed] = more
        self.size = needed
