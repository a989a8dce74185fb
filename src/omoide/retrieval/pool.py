"""The candidates of one scope as NumPy columns.

A pool is cheap to build from what a store indexes, and cheap to change: rows are appended and dropped in
place. Values derived from the columns (neighbours, windows) are computed on first use and discarded with the
next change.
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
"""Rows whose token vectors are cached after loading, about 1 kB each."""
_ROLES = {"user": USER, "human": USER, "assistant": ASSISTANT, "ai": ASSISTANT, "model": ASSISTANT}


class PoolRow(NamedTuple):
    """One memory as a row of the pool."""

    features: bytes
    """The blob of `omoide.retrieval.features`."""
    time: int = 0
    thread: str | None = None
    seq: int = 0
    role: str | None = None
    speaker: str | None = None
    confidence: float = 1.0
    importance: float | None = None
    vectors: bytes = b""
    """Its pooled vectors as float32, one or several; empty if it has not been embedded."""


@dataclass(frozen=True, slots=True)
class ScopeStatistics:
    """Term statistics of the whole scope, for a pool that holds only a part of it."""

    count: int
    frequencies: Mapping[int, int] = field(default_factory=dict)
    """The number of memories that contain a term, by term id."""


class CandidatePool:
    """The candidates of one scope; a row keeps its index as long as the pool exists."""

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
        """Loads the token vectors (int8) of the rows with these indexes."""
        self.statistics = statistics
        self.max_gap = max_gap
        """Rows of a thread are neighbours if their positions differ by no more than this."""
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
        """Build a pool from columns; a column left out has its default in every row."""
        pool = cls(dim=dim, token_loader=token_loader, statistics=statistics, max_gap=max_gap)
        pool._extend(features, time, thread, seq, role, speaker, confidence, importance, vectors)
        return pool

    def append(self, row: PoolRow) -> int:
        """Append one row and return its index."""
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
        """Drop one row: it is no longer found, and adds nothing to the windows of its neighbours."""
        self._live.view[index] = False
        self._token_cache.pop(index, None)
        self._derived.clear()

    @property
    def size(self) -> int:
        """The number of rows, dropped ones included."""
        return self._live.size

    @property
    def live(self) -> Array:
        """A mask of the rows that were not dropped."""
        return self._live.view

    @property
    def terms(self) -> Array:
        """The term ids of all rows, one row after the other."""
        return self._terms.view

    @property
    def vectors(self) -> Array:
        """The pooled vectors of all rows, one or several per row."""
        return self._vectors.view

    @property
    def vector_rows(self) -> Array:
        """The row of each vector."""
        return self._vector_rows.view

    @property
    def confidence(self) -> Array:
        return self._floats.view[:, 0]

    @property
    def importance(self) -> Array:
        """The importance of each row, NaN where it has none."""
        return self._floats.view[:, 1]

    def column(self, name: str) -> Array:
        """Return an integer column: count, length, flags, time, thread, seq, role or speaker."""
        return self._integers.view[:, _INTEGER_COLUMNS[name]]

    def tokens_of(self, rows: Array) -> list[Array]:
        """Return the token vectors of these rows, from the cache or the loader."""
        if self.token_loader is None:
            return [_NO_TOKENS for _ in rows]
        cache = self._token_cache
        indexes = rows.tolist()
        missing = [row for row in indexes if row not in cache]
        if missing:
            if len(cache) > _MAX_CACHED_ROWS:
                cache.clear()
                missing = indexes
            cache.update(zip(missing, self.token_loader(np.array(missing, np.int64)), strict=True))
        return [cache[row] for row in indexes]

    def derive(self, name: str, make: Callable[[CandidatePool], T]) -> T:
        """Return a value derived from the rows, computed once for each state of the pool."""
        value: T | None = self._derived.get(name)
        if value is None:
            value = self._derived[name] = make(self)
        return value

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
        is_term = np.ones(len(flat), np.bool_)
        is_term[heads] = False
        self._terms.extend(flat[is_term])

    def _add_vectors(self, vectors: Sequence[bytes], first: int) -> None:
        matrix = np.frombuffer(b"".join(vectors), "<f4").astype(np.float32, copy=False).reshape(-1, self.dim)
        per_row = np.fromiter(map(len, vectors), np.int64, len(vectors)) // (4 * self.dim)
        self._vectors.extend(matrix)
        self._vector_rows.extend(np.repeat(np.arange(first, first + len(vectors)), per_row))


_INTEGER_COLUMNS = {
    name: at
    for at, name in enumerate(("count", "length", "flags", "time", "thread", "seq", "role", "speaker"))
}


def _assign_codes(codes: dict[str, int], names: Sequence[str | None] | None) -> list[int] | int:
    """Return a code for each name, numbering new names; -1 for None."""
    if names is None:
        return -1
    return [-1 if name is None else codes.setdefault(name, len(codes)) for name in names]


class _GrowableArray:
    """An array that grows at its end in amortized constant time per row."""

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
