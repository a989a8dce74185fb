"""Hold the candidates of a scope as NumPy columns, with their neighbours and their lexical and vector scores.

A pool is cheap to build from what a store indexes, and cheap to change: rows are appended and dropped in
place. Values derived from the columns (neighbours, windows) are computed on first use and discarded with the
next change. `ScopeCache` keeps the pool of a scope between queries: the store that fills it knows the change
that it covers, and applies later changes before each use.

Neighbours follow one another in a thread. The window of a row is the row and up to two neighbours on each
side, within a limit of words: the terms of long messages would outweigh those of the row. The lexical score
is BM25 with the window as the document, because the topic of a turn is often named by the turn before it. The
vector score is the cosine of pooled vectors for every row, and MaxSim over token vectors for the best rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from math import log1p
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from omoide.retrieval import text

Array = npt.NDArray[Any]
TokenLoader = Callable[[Array], Sequence[Array]]

CacheRow = tuple[Any, ...]
"""Columns: number, features, time, thread, seq, role, speaker, confidence, importance, expiry, vector, write
order."""

T = TypeVar("T")

USER, ASSISTANT, OTHER = 0, 1, -1

NEIGHBOUR_OFFSETS = (-1, 1, -2, 2)  # nearest first: they enter a window while it has room
WINDOW_WORDS = 120
SEGMENT_TERMS = 45
"""Terms per segment: about 80 words."""
EPISODE_GAP_MS = 4 * 3_600_000
"""Length of a pause after which a thread continues with another episode."""
CONTEXT_ROWS = 4
CONTEXT_WORDS = 120
"""Extent of a row's context, in rows and in words between the midpoints."""
DECAY_PER_WORD = 0.25 / CONTEXT_WORDS
"""Loss of proximity for each word of distance: 0.75 is left at the edge of the context."""
SEGMENT_TOKENS = 128
"""Tokens per comparison of MaxSim; a longer row would contain a close token for almost any query."""
MAX_ROWS_WITHOUT_BLAS = 5_000
"""Rows up to which `einsum` is used; below that, starting the threads of BLAS costs more than it saves."""

_NO_TOKENS: Array = np.zeros((0, 1), np.int8)
_MAX_CACHED_ROWS = 4_096
"""Rows whose token vectors are cached after loading, about 1 kB each."""
_ROLES = {"user": USER, "human": USER, "assistant": ASSISTANT, "ai": ASSISTANT, "model": ASSISTANT}

_INTEGER_COLUMNS = {
    name: at
    for at, name in enumerate(
        ("count", "length", "flags", "time", "thread", "seq", "role", "speaker", "entry", "part")
    )
}


PART_ROLES = ("user", "assistant")
"""Roles of the parts of a memory, in order."""


class PoolRow(NamedTuple):
    """One memory as a row of the pool."""

    features: bytes
    """The blob of `omoide.retrieval.text.Features`."""
    time: int = 0
    thread: str | None = None
    seq: int = 0
    role: str | None = None
    speaker: str | None = None
    confidence: float = 1.0
    importance: float | None = None
    vectors: bytes = b""
    """Pooled vectors as float32, one or several; empty if the memory has not been embedded."""


@dataclass(frozen=True, slots=True)
class ScopeStatistics:
    """Term statistics of the whole scope, for a pool that holds only a part of it."""

    count: int
    frequencies: Mapping[int, int] = field(default_factory=dict)
    """Number of memories that contain a term, by term id."""


class CandidatePool:
    """The candidates of one scope; a row keeps its index as long as the pool exists.

    A memory of several parts has a row for each: the column `entry` numbers the memories in the order in
    which they were added, and `part` the parts, with -1 for a memory that is one row.
    """

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
        self._entry_count = 0

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
        """Append one memory and return the index of its first row."""
        first = self.size
        self._extend(
            [row.features], [row.time], [row.thread], [row.seq], [row.role], [row.speaker], [row.confidence],
            [row.importance], [row.vectors],
        )  # fmt: skip
        return first

    def drop(self, index: int) -> None:
        """Drop one row: it is not found any more, and adds nothing to the windows of its neighbours."""
        # A mask, not a deletion: indexes of other rows, which the caller holds, stay valid.
        self._live.view[index] = False
        self._token_cache.pop(index, None)
        self._derived.clear()

    def without(self, rows: Array) -> CandidatePool:
        """Return the pool without these rows; it shares its columns with this one."""
        other = copy(self)
        other._derived = {}
        other._live = _GrowableArray(np.bool_)
        other._live.extend(self.live.copy())
        other._live.view[rows] = False
        return other

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
        """Return an integer column: count, length, flags, time, thread, seq, role, speaker, entry or part."""
        return self._integers.view[:, _INTEGER_COLUMNS[name]]

    def tokens_of(self, rows: Array) -> list[Array]:
        """Return the token vectors of these rows, from the cache or the loader."""
        if self.token_loader is None:
            return [_NO_TOKENS for _ in rows]
        cache = self._token_cache
        indexes = rows.tolist()
        missing = [row for row in indexes if row not in cache]
        if missing:
            if len(cache) > _MAX_CACHED_ROWS:  # bounded without tracking use
                cache.clear()
                missing = indexes
            loaded = self.token_loader(np.array(missing, np.int64))
            part = self.column("part")
            cache.update(
                (row, _part_of(tokens, int(part[row]))) for row, tokens in zip(missing, loaded, strict=True)
            )
        return [cache[row] for row in indexes]

    def derive(self, name: str, make: Callable[[CandidatePool], T]) -> T:
        """Return a value derived from the rows, computed once and discarded by the next change."""
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
        if not len(features):
            return
        first, new_entries = self.size, len(features)
        entry: Array = np.arange(new_entries)
        part: Array | int = -1
        divided = text.indexes_with_parts(features)
        if divided:
            columns = _divide(divided, features, thread, seq, role, speaker, vectors, self)
            features, thread, seq, role, speaker, vectors, entry, part = columns
            time, confidence, importance = (
                None if column is None else [column[at] for at in entry.tolist()]
                for column in (time, confidence, importance)
            )
        count = len(features)
        numbers = np.zeros((count, len(_INTEGER_COLUMNS)), np.int64)
        numbers[:, _INTEGER_COLUMNS["entry"]] = self._entry_count + entry
        numbers[:, _INTEGER_COLUMNS["part"]] = part
        self._entry_count += new_entries
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
        # Blobs of `Features.to_bytes`: a head with length and flags, then the term ids.
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


def _divide(
    divided: Sequence[int],
    features: Sequence[bytes],
    thread: Sequence[str | None] | None,
    seq: Sequence[int] | None,
    role: Sequence[str | None] | None,
    speaker: Sequence[str | None] | None,
    vectors: Sequence[bytes] | None,
    pool: CandidatePool,
) -> tuple[Any, ...]:
    """Return the columns with a row for each part, and for each row its memory and its part."""
    count = len(features)
    parts = {at: text.split_features(features[at]) for at in divided}
    names: list[str | None] = [None] * count if thread is None else [*thread]
    entry = [at for at in range(count) for _ in parts.get(at, (None,))]
    part = [
        number if len(parts.get(at, ())) > 1 else -1
        for at in range(count)
        for number, _ in enumerate(parts.get(at, (None,)))
    ]
    rows = [*zip(entry, part, strict=True)]
    for at in divided:
        if names[at] is None:  # the parts of a memory without a thread are neighbours, too
            names[at] = f"\0{pool.size}:{at}"
    return (
        [parts[at][max(number, 0)] if at in parts else features[at] for at, number in rows],
        [names[at] for at in entry],
        [(0 if seq is None else seq[at]) + max(number, 0) for at, number in rows],
        [PART_ROLES[number] if number >= 0 else None if role is None else role[at] for at, number in rows],
        [None if speaker is None or number > 0 else speaker[at] for at, number in rows],
        None
        if vectors is None
        else [_part_of_vectors(vectors[at], number, 4 * pool.dim) for at, number in rows],
        np.array(entry),
        np.array(part),
    )


def _part_of_vectors(vectors: bytes, part: int, size: int) -> bytes:
    """Return the vectors of one part, which a row of zeros divides; all, if they were not divided."""
    if part < 0 or not size:
        return vectors
    rows = np.frombuffer(vectors, "<f4").reshape(-1, size // 4)
    return _part_of(rows, part).tobytes()


def _part_of(rows: Array, part: int) -> Array:
    """Return the rows of one part, which a row of zeros divides; all, if they were not divided."""
    if part < 0:
        return rows
    divider = np.flatnonzero(~rows.any(axis=1))
    if len(divider) != 1:
        return rows
    at = int(divider[0])
    return rows[:at] if part == 0 else rows[at + 1 :]


def _assign_codes(codes: dict[str, int], names: Sequence[str | None] | None) -> list[int] | int:
    """Return a code for each name, numbering new names; -1 for None."""
    if names is None:
        return -1
    for name in dict.fromkeys(names):
        if name is not None:
            codes.setdefault(name, len(codes))
    return [codes.get(name, -1) for name in names]  # type: ignore[arg-type]


class _GrowableArray:
    """An array that grows at its end in amortized constant time per row."""

    def __init__(self, dtype: npt.DTypeLike, width: int | None = None) -> None:
        self._data: Array = np.empty((0,) if width is None else (0, width), dtype)
        self.size = 0

    @property
    def view(self) -> Array:
        return self._data[: self.size]

    def extend(self, values: Array) -> None:
        needed = self.size + len(values)
        # A pool that is built at once keeps the values as they are; one that grows row by row doubles.
        if self.size == 0 and len(values) > 1:
            self._data = np.asarray(values, self._data.dtype)
        elif needed > len(self._data):
            grown = np.empty((max(needed, 2 * len(self._data), 16), *self._data.shape[1:]), self._data.dtype)
            grown[: self.size] = self.view
            grown[self.size : needed] = values
            self._data = grown
        else:
            self._data[self.size : needed] = values
        self.size = needed


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of each row; the `size` of the pool stands for none.

    `size` is the index of a row of zeros that callers append to a column before they index it, so that
    missing neighbours need no mask.
    """

    order: Array
    """The rows of all threads, one thread after another."""
    position: Array
    """[rows]: the index of each row in `order`, -1 for rows without a thread."""
    run: Array
    """[order]: the number of the uninterrupted run of a thread that each belongs to."""
    midpoint: Array
    """[order]: the number of words before the middle of each row."""
    table: Array
    """[rows, 4]: the row before, after, two before, two after."""
    episode: Array
    """[rows]: the number of the episode, -1 for none."""
    episode_count: int


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """The rows around each of some rows: [rows, 2 * CONTEXT_ROWS]."""

    rows: Array
    """The `size` of the pool where there is none."""
    proximity: Array
    """1 and less with every word in between, 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Segments:
    """Long rows cut into segments of about equal size; most rows are one segment."""

    rows: Array
    """[segments]: the row of each segment."""
    term_segments: Array
    """[terms]: the segment of each term, `count` for terms of dropped rows."""
    window_targets: Array
    """[segments + 1, 5]: the windows that contain each segment: its own, then its neighbours'."""
    window_sizes: Array
    """[segments]: the number of terms in each window."""
    count: int
    mean_window_size: float


def neighbours_of(pool: CandidatePool) -> Neighbours:
    """Return the neighbours of every row."""
    return pool.derive("neighbours", _build_neighbours)


def _build_neighbours(pool: CandidatePool) -> Neighbours:
    size = pool.size
    thread, seq, time = pool.column("thread"), pool.column("seq"), pool.column("time")
    order = np.lexsort((seq, thread))  # by thread, then by position: the last key is the first criterion
    order = order[pool.live[order] & (thread[order] >= 0)]
    if not len(order):
        return _no_neighbours(size)
    position = np.full(size, -1, np.int64)
    position[order] = np.arange(len(order))
    threads, positions, times, length = thread[order], seq[order], time[order], pool.column("length")[order]
    is_new_thread = np.ones(len(order), np.bool_)
    is_new_thread[1:] = threads[1:] != threads[:-1]
    is_new_run = is_new_thread.copy()
    # Numbers of dropped messages are missing from a thread; a small gap does not end a run.
    is_new_run[1:] |= positions[1:] - positions[:-1] > pool.max_gap
    is_new_episode = is_new_thread.copy()
    is_new_episode[1:] |= np.abs(times[1:] - times[:-1]) > EPISODE_GAP_MS
    run = np.cumsum(is_new_run)
    table = np.full((size, len(NEIGHBOUR_OFFSETS)), size, np.int64)
    for column, offset in enumerate(NEIGHBOUR_OFFSETS):
        distance = abs(offset)
        same = run[distance:] == run[:-distance]
        same &= positions[distance:] - positions[:-distance] <= pool.max_gap
        earlier, later = order[:-distance][same], order[distance:][same]
        if offset < 0:
            table[later, column] = earlier
        else:
            table[earlier, column] = later
    episode = np.full(size, -1, np.int64)
    episode[order] = np.cumsum(is_new_episode) - 1
    return Neighbours(
        order=order,
        position=position,
        run=run,
        midpoint=np.cumsum(length) - length / 2,
        table=table,
        episode=episode,
        episode_count=int(is_new_episode.sum()),
    )


def _no_neighbours(size: int) -> Neighbours:
    """Return the neighbours of rows that are in no thread."""
    none: Array = np.zeros(0, np.int64)
    return Neighbours(
        order=none,
        position=np.full(size, -1, np.int64),
        run=none,
        midpoint=np.zeros(0),
        table=np.full((size, len(NEIGHBOUR_OFFSETS)), size, np.int64),
        episode=np.full(size, -1, np.int64),
        episode_count=0,
    )


class DistinctRows(NamedTuple):
    """A pool in which each question is asked once, and what was left out of it."""

    pool: CandidatePool
    repeated: Mapping[int, Array]
    """The rows that a row stands for, itself among them, by its index."""


def distinct_rows(pool: CandidatePool) -> DistinctRows:
    """Return the pool without earlier repetitions of the users' questions and of the answers to them.

    What was asked often would otherwise change the statistics by which all rows are compared.
    """
    return pool.derive("distinct", _find_distinct)


def _find_distinct(pool: CandidatePool) -> DistinctRows:
    role = pool.column("role")
    asks = pool.live & (role == USER) & (pool.column("flags") & text.STATES_NOTHING > 0)
    if asks.sum() < 2:
        return DistinctRows(pool, {})
    before = neighbours_of(pool).table[:, 0]
    answers = pool.live & (role == ASSISTANT) & np.append(asks, False)[before]
    rows = np.flatnonzero((asks | answers) & (pool.column("count") > 0))
    keys = repetition_keys(pool, rows)
    order = rows[np.lexsort((rows, pool.column("time")[rows], keys))]
    groups = np.split(order, np.flatnonzero(np.diff(np.sort(keys))) + 1)
    repeated = {int(group[-1]): group for group in groups if len(group) > 1}
    if not repeated:
        return DistinctRows(pool, {})
    return DistinctRows(pool.without(np.concatenate([group[:-1] for group in repeated.values()])), repeated)


def repetition_keys(pool: CandidatePool, rows: Array) -> Array:
    """Return a hash of the role, the speaker and the terms of each of these rows, whatever their order."""
    sizes = pool.column("count")
    own = sizes[rows]
    starts = _term_starts(pool)
    ends = np.cumsum(own)
    at = np.repeat(starts[rows] - ends + own, own) + np.arange(int(own.sum()))
    # Sums of well mixed numbers, in which the order does not count; they wrap around.
    mixed = pool.terms[at].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    sums = np.append(np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64))
    said_by = (pool.column("speaker")[rows] * 4 + pool.column("role")[rows] + 5).astype(np.uint64)
    keys: Array = sums[ends] - sums[ends - own] + said_by * np.uint64(0x94D049BB133111EB)
    return keys


def row_terms(pool: CandidatePool, row: int) -> Array:
    """Return the term ids of one row."""
    start = _term_starts(pool)[row]
    return pool.terms[start : start + pool.column("count")[row]]


def _term_starts(pool: CandidatePool) -> Array:
    starts: Array = pool.derive(
        "term_starts", lambda pool: np.cumsum(pool.column("count")) - pool.column("count")
    )
    return starts


def context_window(pool: CandidatePool, rows: Array) -> ContextWindow:
    """Return the rows around these rows, with their proximity."""
    neighbours = neighbours_of(pool)
    offsets = np.array([offset for offset in range(-CONTEXT_ROWS, CONTEXT_ROWS + 1) if offset])
    if not len(neighbours.order):
        shape = (len(rows), len(offsets))
        return ContextWindow(rows=np.full(shape, pool.size), proximity=np.zeros(shape, np.float32))
    position = neighbours.position[rows][:, None]
    around = position + offsets
    inside = (position >= 0) & (around >= 0) & (around < len(neighbours.order))
    around = np.clip(around, 0, len(neighbours.order) - 1)
    distance = np.abs(neighbours.midpoint[around] - neighbours.midpoint[position])
    inside &= (neighbours.run[around] == neighbours.run[position]) & (distance <= CONTEXT_WORDS)
    return ContextWindow(
        rows=np.where(inside, neighbours.order[around], pool.size),
        proximity=np.where(inside, 1.0 - DECAY_PER_WORD * distance, 0.0).astype(np.float32),
    )


def segments_of(pool: CandidatePool) -> Segments:
    """Return the segments of all rows, with their windows."""
    return pool.derive("segments", _build_segments)


def _build_segments(pool: CandidatePool) -> Segments:
    size = pool.size
    terms, length = pool.column("count"), pool.column("length")
    per_row = np.maximum(1, -(-terms // SEGMENT_TERMS))
    per_row[terms <= SEGMENT_TERMS * 4 // 3] = 1  # slightly longer rows are not cut
    first = np.cumsum(per_row) - per_row
    count = int(per_row.sum())
    rows = np.repeat(np.arange(size), per_row)
    term_segments = _segment_of_terms(terms, per_row, first, pool.live, count)
    table = neighbours_of(pool).table
    window_targets = np.full((count + 1, len(NEIGHBOUR_OFFSETS) + 1), count, np.int64)
    window_targets[:count, 0] = np.arange(count)
    # The appended element stands for "no neighbour": not single, and too long to fit. Rows of several
    # segments count as too long as well: they are in no other window, and their windows hold no other row.
    is_single = np.append(per_row == 1, False)
    words = np.append(length, 2 * WINDOW_WORDS)
    total = np.where(per_row == 1, length, 2 * WINDOW_WORDS)
    first_or_none = np.append(first, count)
    for at in range(len(NEIGHBOUR_OFFSETS)):
        neighbour = table[:, at]
        is_included = is_single[neighbour] & (total + words[neighbour] <= WINDOW_WORDS)
        total = total + np.where(is_included, words[neighbour], 0)
        included = first_or_none[neighbour[is_included]]
        window_targets[included, at + 1] = first[is_included]
    # Index `count` collects what belongs to no segment, and is cut off.
    sizes = np.bincount(term_segments, minlength=count + 1)[:count]
    added = np.repeat(sizes, len(NEIGHBOUR_OFFSETS) + 1)
    window_sizes = np.bincount(window_targets[:count].ravel(), added, minlength=count + 1)[:count]
    is_live = pool.live[rows]
    mean = float(window_sizes[is_live].mean()) if is_live.any() else 1.0
    return Segments(
        rows=rows,
        term_segments=term_segments,
        window_targets=window_targets,
        window_sizes=window_sizes,
        count=count,
        mean_window_size=max(mean, 1.0),
    )


def _segment_of_terms(terms: Array, per_row: Array, first: Array, live: Array, count: int) -> Array:
    row_of_term = segment = np.repeat(np.arange(len(terms)), terms)
    if count > len(terms):
        starts = np.cumsum(terms) - terms
        position = np.arange(len(row_of_term)) - starts[row_of_term]
        step = np.maximum(-(-terms // per_row), 1)
        segment = first[row_of_term] + position // step[row_of_term]
    return segment if live.all() else np.where(live[row_of_term], segment, count)


@dataclass(frozen=True, slots=True)
class LexicalMatch:
    """The match of every row with the terms of a query."""

    window_score: Array
    """[rows]: BM25 of each row's window."""
    own_score: Array
    """[rows]: BM25 of each row alone."""
    has_term: Array
    """[rows, terms]: 1 where the row's best segment has the term."""
    idf: Array
    """[terms]: the inverse document frequency of each term."""


def lexical_match(term_ids: Sequence[int], pool: CandidatePool, *, k1: float, b: float) -> LexicalMatch:
    """Match every row with these terms by BM25; `k1` and `b` are its parameters."""
    size = pool.size
    segments = segments_of(pool)
    window, own = np.zeros(segments.count), np.zeros(segments.count)
    has_term = np.zeros((segments.count, len(term_ids)), np.float32)
    idf = np.zeros(len(term_ids))
    norm = k1 * (1 - b + b * segments.window_sizes / segments.mean_window_size)
    for at, term in enumerate(term_ids):
        occurrences = _segments_with_term(term, pool, segments)
        matching, matches = _count_segments(occurrences, segments.count)
        idf[at] = inverse_document_frequency(
            term, len(matching) if segments.count == size else len(np.unique(segments.rows[matching])), pool
        )
        if not len(occurrences):
            continue
        windows, counts = _count_segments(segments.window_targets[occurrences].ravel(), segments.count)
        window[windows] += idf[at] * counts * (k1 + 1) / (counts + norm[windows])
        has_term[matching, at] = 1.0
        # Without normalization by length (b = 0): segments are of about equal size.
        own[matching] += idf[at] * matches * (k1 + 1) / (matches + k1)
    if segments.count == size:
        return LexicalMatch(window_score=window, own_score=own, has_term=has_term, idf=idf)
    # Sorted by row, then by score: the last segment of each row is its best one.
    best = np.lexsort((own, segments.rows))[np.searchsorted(segments.rows, np.arange(size), side="right") - 1]
    return LexicalMatch(
        window_score=_best_segment_scores(window, segments, size),
        own_score=own[best],
        has_term=has_term[best],
        idf=idf,
    )


def document_frequency(term: int, pool: CandidatePool) -> int:
    """Return the number of rows with the term."""
    segments = segments_of(pool)
    return len(np.unique(segments.rows[_segments_with_term(term, pool, segments)]))


def _segments_with_term(term: int, pool: CandidatePool, segments: Segments) -> Array:
    """Return the segments with the term, repeated for each occurrence."""
    occurrences: Array = segments.term_segments[np.flatnonzero(pool.terms == term)]
    return occurrences[occurrences < segments.count]


def _count_segments(segments: Array, count: int) -> tuple[Array, Array]:
    """Return the distinct segments with their counts; most segments lack a term, so zeros are dropped."""
    counts = np.bincount(segments, minlength=count + 1)[:count]
    distinct = np.flatnonzero(counts)
    return distinct, counts[distinct]


def inverse_document_frequency(term: int, frequency: int, pool: CandidatePool) -> float:
    """Return the inverse document frequency of a term that `frequency` rows of the pool have.

    Statistics of the whole scope are used where their counts are higher than those of the pool.
    """
    total = live_count(pool)
    if pool.statistics is not None:
        total = max(total, pool.statistics.count)
        frequency = max(frequency, pool.statistics.frequencies.get(term, 0))
    # The form of Lucene: the 1 inside the logarithm keeps it positive for terms that most rows have.
    return log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5))


def live_count(pool: CandidatePool) -> int:
    """Return the number of live rows."""
    return pool.derive("live_count", lambda pool: int(pool.live.sum()))


def _best_segment_scores(scores: Array, segments: Segments, size: int) -> Array:
    """Return the score of each row's best segment."""
    best: Array = np.maximum.reduceat(scores, np.searchsorted(segments.rows, np.arange(size)))
    return best


def cosine_similarity(vector: Array, pool: CandidatePool) -> Array:
    """Return the cosine of each row's closest vector; rows without a vector get the lowest one found."""
    query = np.asarray(vector, np.float32)
    if len(pool.vectors) <= MAX_ROWS_WITHOUT_BLAS:
        similarity: Array = np.einsum("ij,j->i", pool.vectors, query).astype(np.float64)
    else:
        similarity = (pool.vectors @ query).astype(np.float64)
    rows = pool.vector_rows
    if pool.derive("one_vector_per_row", _has_one_vector_per_row):
        return similarity
    live = similarity[pool.live[rows]]
    best = np.full(pool.size, live.min() if len(live) else 0.0)
    np.maximum.at(best, rows, similarity)
    return best


def chunked_matmul(left: Array, right: Array) -> Array:
    """Return the product of two matrices, computed in chunks.

    The whole product is large enough for BLAS to use threads, and on a busy machine they wait for each other
    longer than the computation takes.
    """
    step = max(1, 250_000 // max(right.size, 1))
    if len(left) <= step:
        return np.asarray(left @ right)
    product = np.empty((len(left), right.shape[1]), np.float32)
    for start in range(0, len(left), step):
        np.matmul(left[start : start + step], right, out=product[start : start + step])
    return product


def _has_one_vector_per_row(pool: CandidatePool) -> bool:
    return len(pool.vector_rows) == pool.size and bool((pool.vector_rows == np.arange(pool.size)).all())


def max_similarity(tokens: Array, rows: Sequence[Array], weights: Array) -> Array:
    """Return, for each row and query token, the similarity of the closest token in the row's best segment.

    This is MaxSim, the late interaction of ColBERT; `weights` of the query tokens choose the best segment.
    """
    best = np.zeros((len(rows), len(tokens)), np.float32)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    present = np.flatnonzero(sizes)
    if not len(present) or not len(tokens):
        return best
    joined = np.concatenate([row for row in rows if len(row)]).astype(np.float32)
    # Token vectors are unit vectors times 127, so the product is scaled back to a cosine.
    similarity = chunked_matmul(joined, tokens.astype(np.float32).T / np.float32(127 * 127))
    sizes = sizes[present]
    starts = np.cumsum(sizes) - sizes
    if sizes.max() <= SEGMENT_TOKENS:
        best[present] = np.maximum.reduceat(similarity, starts, axis=0)
        return best
    per_row = -(-sizes // SEGMENT_TOKENS)
    owner = np.repeat(np.arange(len(present)), per_row)
    cuts = np.concatenate(
        [start + np.arange(n) * SEGMENT_TOKENS for start, n in zip(starts, per_row, strict=True)]
    )
    parts = np.maximum.reduceat(similarity, cuts, axis=0)
    order = np.lexsort((parts @ weights, owner))
    last = np.append(np.flatnonzero(np.diff(owner[order])), len(order) - 1)
    best[present] = parts[order[last]]
    return best


class ScopeCache:
    """The live entries of a scope as columns, and the change that they cover."""

    def __init__(self, slot: int, dim: int) -> None:
        self.slot = slot
        """Slot of the embedder whose vectors the columns hold; a store may have vectors of several."""
        self.pool = CandidatePool(dim=dim)
        self.generation: str | None = None
        self.covered_seq = 0
        self.numbers: list[int] = []
        self.write_order: list[int] = []
        self.expired_until = 0
        """Latest expiry among the removed rows; queries as of an earlier time cannot use the cache."""
        self._positions: dict[int, range] | None = None  # made for the first change
        self._expires: dict[int, int] = {}

    def fill(
        self, cache_rows: Sequence[CacheRow], statistics: ScopeStatistics | None = None, reach: int = 8
    ) -> None:
        """Replace all rows."""
        columns = [*zip(*cache_rows, strict=True)] if cache_rows else [()] * 12
        no, features, time, thread, seq, role, speaker, confidence, importance, expires, pooled, written = (
            columns
        )
        self.pool = CandidatePool.build(
            features,
            time=time,
            thread=thread,
            seq=[position or 0 for position in seq],
            role=role,
            speaker=speaker,
            confidence=confidence,
            importance=importance,
            vectors=[vector or b"" for vector in pooled],
            dim=self.pool.dim,
            statistics=statistics,
            max_gap=reach,
        )
        self.numbers, self.write_order = [*no], [*written]
        if self.pool.size > len(no):
            entry = self.pool.column("entry").tolist()
            self.numbers = [no[at] for at in entry]
            self.write_order = [written[at] for at in entry]
        self._positions = None
        self._expires = {number: at for number, at in zip(no, expires, strict=True) if at is not None}

    def append(self, values: CacheRow) -> None:
        """Add a row."""
        no, features, time, thread, seq, role, speaker, confidence, importance, expires, pooled, written = (
            values
        )
        row = PoolRow(
            features=features,
            time=time,
            thread=thread,
            seq=seq or 0,
            role=role,
            speaker=speaker,
            confidence=confidence,
            importance=importance,
            vectors=pooled or b"",
        )
        added = self._rows_of_numbers()[no] = range(self.pool.append(row), self.pool.size)
        self.numbers += [no] * len(added)
        self.write_order += [written] * len(added)
        if expires is not None:
            self._expires[no] = expires

    def remove(self, number: int) -> None:
        """Remove a row, if it is here."""
        positions = self._rows_of_numbers().pop(number, range(0))
        self._expires.pop(number, None)
        for position in positions:
            self.pool.drop(position)

    def _rows_of_numbers(self) -> dict[int, range]:
        """Return the rows of each number."""
        if self._positions is None:
            self._positions = {}
            for at, number in enumerate(self.numbers):
                known = self._positions.get(number)
                self._positions[number] = range(at if known is None else known.start, at + 1)
        return self._positions

    def expire(self, at: int) -> None:
        """Remove the rows that have expired at a time."""
        for number, end in [*self._expires.items()]:
            if end <= at:
                self.expired_until = max(self.expired_until, end)
                self.remove(number)

    def is_sparse(self) -> bool:
        """Return True if most of the rows were removed, so that the cache should be filled again."""
        return self.pool.size > 2 * int(self.pool.live.sum()) + 64

    def expires_between(self, earlier: int, later: int) -> bool:
        """Return True if a row expires after `earlier` and not after `later`."""
        return any(earlier < end <= later for end in self._expires.values())

    def speakers(self) -> list[str]:
        """Return the speakers by number; an empty name for one all of whose rows are removed."""
        # A name that no live row has must not change how a query is parsed.
        names = self.pool.speakers
        if self.pool.live.all():
            return names
        present = {*np.unique(self.pool.column("speaker")[self.pool.live]).tolist()}
        return [name if code in present else "" for code, name in enumerate(names)]
