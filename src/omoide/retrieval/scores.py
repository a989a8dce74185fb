"""Lexical, vector and neighbour scores; bit codes.

Neighbours follow one another in a thread. The window of a row is the row and up to two neighbours on each
side, as many as fit into a bound of words: a window of long messages would drown what was asked for.

BM25 with the row's window as the document: what a turn is about is often said by the turn before it.

The cosine of pooled vectors for every row; for the best rows, how close the closest word in the row is to
each word of the question.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

from omoide.retrieval.pool import Array, CandidatePool

# neighbours: Which rows were said next to each other?


NEIGHBOUR_OFFSETS = (-1, 1, -2, 2)
WINDOW_WORDS = 120
SEGMENT_TERMS = 45
"""Terms of a segment: about 80 words."""
EPISODE_GAP_MS = 4 * 3_600_000
"""A pause, in milliseconds, after which the same thread goes on with another episode."""
CONTEXT_ROWS = 4
CONTEXT_WORDS = 120
"""How far the context of a row reaches, in rows and in words from middle to middle."""
DECAY_PER_WORD = 0.25 / CONTEXT_WORDS
"""What a word of distance takes away."""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """For each row, its neighbours; `size` of the pool stands for nobody."""

    order: Array
    """The rows of all threads, one after another."""
    position: Array
    """[rows]: where each row stands in the order, -1 for rows of no thread."""
    run: Array
    """[order]: which uninterrupted stretch of a thread each belongs to."""
    midpoint: Array
    """[order]: how many words were said before its middle."""
    table: Array
    """[rows, 4]: the row before, after, two before, two after."""
    episode: Array
    """[rows]: which episode of which thread it belongs to, -1 for none."""
    episode_count: int


@dataclass(frozen=True, slots=True)
class ContextWindow:
    """For some rows, the rows around them: [rows, 2 * CONTEXT_STEPS]."""

    rows: Array
    """`size` of the pool where there is none."""
    proximity: Array
    """From 1 downwards with every word between them, 0 where there is none."""


@dataclass(frozen=True, slots=True)
class Segments:
    """The rows cut into segments of about equal size; most rows are one segment."""

    rows: Array
    """[segments]: the row of each segment."""
    term_segments: Array
    """[terms]: the segment of each term, `count` for terms of dropped rows."""
    window_targets: Array
    """[segments + 1, 5]: to whose windows each segment lends its terms: its own, then its neighbours'."""
    window_sizes: Array
    """[segments]: the terms in each window."""
    count: int
    mean_window_size: float


def neighbours_of(pool: CandidatePool) -> Neighbours:
    """The neighbours of every row."""
    return pool.derive("around", _build_neighbours)


def _build_neighbours(pool: CandidatePool) -> Neighbours:
    size = pool.size
    thread, seq, time = pool.column("thread"), pool.column("seq"), pool.column("time")
    order = np.lexsort((seq, thread))
    order = order[pool.live[order] & (thread[order] >= 0)]
    place = np.full(size, -1, np.int64)
    place[order] = np.arange(len(order))
    threads, positions, times, length = thread[order], seq[order], time[order], pool.column("length")[order]
    other = np.ones(len(order), np.bool_)
    other[1:] = threads[1:] != threads[:-1]
    apart = other.copy()
    apart[1:] |= positions[1:] - positions[:-1] > pool.max_gap
    pause = other.copy()
    pause[1:] |= np.abs(times[1:] - times[:-1]) > EPISODE_GAP_MS
    run = np.cumsum(apart)
    table = np.full((size, len(NEIGHBOUR_OFFSETS)), size, np.int64)
    for at, step in enumerate(NEIGHBOUR_OFFSETS):
        distance = abs(step)
        same = run[distance:] == run[:-distance]
        same &= positions[distance:] - positions[:-distance] <= pool.max_gap
        earlier, later = order[:-distance][same], order[distance:][same]
        if step < 0:
            table[later, at] = earlier
        else:
            table[earlier, at] = later
    episode = np.full(size, -1, np.int64)
    episode[order] = np.cumsum(pause) - 1
    return Neighbours(
        order=order,
        position=place,
        run=run,
        midpoint=np.cumsum(length) - length / 2,
        table=table,
        episode=episode,
        episode_count=int(pause.sum()),
    )


def context_window(pool: CandidatePool, rows: Array) -> ContextWindow:
    """The rows around these, and how near each is."""
    near = neighbours_of(pool)
    steps = np.array([step for step in range(-CONTEXT_ROWS, CONTEXT_ROWS + 1) if step])
    if not len(near.order):
        shape = (len(rows), len(steps))
        return ContextWindow(rows=np.full(shape, pool.size), proximity=np.zeros(shape, np.float32))
    place = near.position[rows][:, None]
    other = place + steps
    inside = (place >= 0) & (other >= 0) & (other < len(near.order))
    other = np.clip(other, 0, len(near.order) - 1)
    distance = np.abs(near.midpoint[other] - near.midpoint[place])
    inside &= (near.run[other] == near.run[place]) & (distance <= CONTEXT_WORDS)
    return ContextWindow(
        rows=np.where(inside, near.order[other], pool.size),
        proximity=np.where(inside, 1.0 - DECAY_PER_WORD * distance, 0.0).astype(np.float32),
    )


def segments_of(pool: CandidatePool) -> Segments:
    """The segments of all rows and the windows around them."""
    return pool.derive("segments", _build_segments)


def _build_segments(pool: CandidatePool) -> Segments:
    size = pool.size
    terms, length = pool.column("count"), pool.column("length")
    each = np.maximum(1, -(-terms // SEGMENT_TERMS))
    each[terms <= SEGMENT_TERMS * 4 // 3] = 1
    firsts = np.cumsum(each) - each
    count = int(each.sum())
    rows = np.repeat(np.arange(size), each)
    of_term = _segment_of_terms(terms, each, firsts, pool.live, count)
    table = neighbours_of(pool).table
    targets = np.full((count + 1, len(NEIGHBOUR_OFFSETS) + 1), count, np.int64)
    targets[:count, 0] = np.arange(count)
    single = np.append(each == 1, False)
    words = np.append(length, 2 * WINDOW_WORDS)
    total = np.where(each == 1, length, 2 * WINDOW_WORDS)
    firsts_or_none = np.append(firsts, count)
    for at in range(len(NEIGHBOUR_OFFSETS)):
        other = table[:, at]
        fits = single[other] & (total + words[other] <= WINDOW_WORDS)
        total = total + np.where(fits, words[other], 0)
        lender = firsts_or_none[other[fits]]
        targets[lender, at + 1] = firsts[fits]
    sizes = np.bincount(of_term, minlength=count + 1)[:count]
    lent = np.repeat(sizes, len(NEIGHBOUR_OFFSETS) + 1)
    windows = np.bincount(targets[:count].ravel(), lent, minlength=count + 1)[:count]
    living = pool.live[rows]
    mean = float(windows[living].mean()) if living.any() else 1.0
    return Segments(
        rows=rows,
        term_segments=of_term,
        window_targets=targets,
        window_sizes=windows,
        count=count,
        mean_window_size=max(mean, 1.0),
    )


def _segment_of_terms(terms: Array, each: Array, firsts: Array, live: Array, count: int) -> Array:
    row_of_term = np.repeat(np.arange(len(terms)), terms)
    starts = np.cumsum(terms) - terms
    within = np.arange(len(row_of_term)) - starts[row_of_term]
    step = np.maximum(-(-terms // each), 1)
    found = firsts[row_of_term] + within // step[row_of_term]
    return np.where(live[row_of_term], found, count)


# lexical: How well do a row's words, and those said around it, match the question's?


@dataclass(frozen=True, slots=True)
class LexicalMatch:
    """How the rows match the question's terms."""

    window_score: Array
    """[rows]: BM25 of each row together with its window."""
    own_score: Array
    """[rows]: BM25 of each row alone."""
    has_term: Array
    """[rows, terms]: whether the row has the term, in its best segment."""
    idf: Array
    """[terms]: how rare each term is."""


def lexical_match(term_ids: Sequence[int], pool: CandidatePool, *, k1: float, b: float) -> LexicalMatch:
    """How the rows match these terms."""
    size = pool.size
    units = segments_of(pool)
    window, own = np.zeros(units.count), np.zeros(units.count)
    has = np.zeros((units.count, len(term_ids)), np.float32)
    idf = np.zeros(len(term_ids))
    norm = k1 * (1 - b + b * units.window_sizes / units.mean_window_size)
    for at, term in enumerate(term_ids):
        held = _segments_with_term(term, pool, units)
        mine, times = _count_segments(held, units.count)
        idf[at] = inverse_document_frequency(
            term, len(mine) if units.count == size else len(np.unique(units.rows[mine])), pool
        )
        if not len(held):
            continue
        reached, counts = _count_segments(units.window_targets[held].ravel(), units.count)
        window[reached] += idf[at] * counts * (k1 + 1) / (counts + norm[reached])
        has[mine, at] = 1.0
        own[mine] += idf[at] * times * (k1 + 1) / (times + k1)
    if units.count == size:
        return LexicalMatch(window_score=window, own_score=own, has_term=has, idf=idf)
    best = np.lexsort((own, units.rows))[np.searchsorted(units.rows, np.arange(size), side="right") - 1]
    return LexicalMatch(
        window_score=_best_segment_scores(window, units, size),
        own_score=own[best],
        has_term=has[best],
        idf=idf,
    )


def document_frequency(term: int, pool: CandidatePool) -> int:
    """How many rows have the term."""
    units = segments_of(pool)
    return len(np.unique(units.rows[_segments_with_term(term, pool, units)]))


def _segments_with_term(term: int, pool: CandidatePool, units: Segments) -> Array:
    """The segments that have the term, as often as they have it."""
    held: Array = units.term_segments[np.flatnonzero(pool.terms == term)]
    return held[held < units.count]


def _count_segments(found: Array, count: int) -> tuple[Array, Array]:
    """Which segments are among these, and how often; few segments hold a term, so only those are touched."""
    times = np.bincount(found, minlength=count + 1)[:count]
    reached = np.flatnonzero(times)
    return reached, times[reached]


def inverse_document_frequency(term: int, frequency: int, pool: CandidatePool) -> float:
    """How much a term says, by how few rows of the scope have it; `held` have it in the pool."""
    total = live_count(pool)
    if pool.statistics is not None:
        total = max(total, pool.statistics.count)
        frequency = max(frequency, pool.statistics.frequencies.get(term, 0))
    return log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5))


def live_count(pool: CandidatePool) -> int:
    """How many rows are there."""
    return pool.derive("living", lambda pool: int(pool.live.sum()))


def _best_segment_scores(scores: Array, units: Segments, size: int) -> Array:
    """The score of each row's best segment."""
    best: Array = np.maximum.reduceat(scores, np.searchsorted(units.rows, np.arange(size)))
    return best


# vectors: How close is a row's meaning to the question's?


SEGMENT_TOKENS = 128
"""Tokens that are compared at once: a longer row would find a close one for anything."""


MAX_ROWS_WITHOUT_BLAS = 5_000
"""Rows that are compared without BLAS, whose threads cost more than they bring below that."""


def cosine_similarity(vector: Array, pool: CandidatePool) -> Array:
    """The cosine of each row's closest vector; of a row without one, the lowest found."""
    asked = np.asarray(vector, np.float32)
    if len(pool.vectors) <= MAX_ROWS_WITHOUT_BLAS:
        close: Array = np.einsum("ij,j->i", pool.vectors, asked).astype(np.float64)
    else:
        close = (pool.vectors @ asked).astype(np.float64)
    rows = pool.vector_rows
    if pool.derive("one each", _has_one_vector_per_row):
        return close
    held = close[pool.live[rows]]
    best = np.full(pool.size, held.min() if len(held) else 0.0)
    np.maximum.at(best, rows, close)
    return best


def chunked_matmul(left: Array, right: Array) -> Array:
    """The product of two matrices, a portion at a time.

    Whole, it is large enough for BLAS to wake its threads, and on a busy machine they keep each other waiting
    longer than the work takes.
    """
    step = max(1, 250_000 // max(right.size, 1))
    if len(left) <= step:
        return np.asarray(left @ right)
    found = np.empty((len(left), right.shape[1]), np.float32)
    for at in range(0, len(left), step):
        np.matmul(left[at : at + step], right, out=found[at : at + step])
    return found


def _has_one_vector_per_row(pool: CandidatePool) -> bool:
    return len(pool.vector_rows) == pool.size and bool((pool.vector_rows == np.arange(pool.size)).all())


def max_similarity(tokens: Array, rows: Sequence[Array], weights: Array) -> Array:
    """[rows, tokens]: for each token of the question, how close the closest in the row's best segment is."""
    best = np.zeros((len(rows), len(tokens)), np.float32)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    held = np.flatnonzero(sizes)
    if not len(held) or not len(tokens):
        return best
    joined = np.concatenate([row for row in rows if len(row)]).astype(np.float32)
    close = chunked_matmul(joined, tokens.astype(np.float32).T / np.float32(127 * 127))
    sizes = sizes[held]
    starts = np.cumsum(sizes) - sizes
    if sizes.max() <= SEGMENT_TOKENS:
        best[held] = np.maximum.reduceat(close, starts, axis=0)
        return best
    each = -(-sizes // SEGMENT_TOKENS)
    owner = np.repeat(np.arange(len(held)), each)
    cuts = np.concatenate(
        [start + np.arange(n) * SEGMENT_TOKENS for start, n in zip(starts, each, strict=True)]
    )
    parts = np.maximum.reduceat(close, cuts, axis=0)
    order = np.lexsort((parts @ weights, owner))
    last = np.append(np.flatnonzero(np.diff(owner[order])), len(order) - 1)
    best[held] = parts[order[last]]
    return best


# coding: How is a vector told in one bit a dimension?


def bit_codes(vectors: Array) -> Array:
    """A row of bytes for each vector: a bit for each dimension, whether it is positive."""
    packed: Array = np.packbits(vectors > 0, axis=1)
    return packed


def to_uint64_rows(packed: Array, width: int) -> Array:
    """Rows of bytes as rows of so many numbers of 64 bits."""
    padded = np.zeros((len(packed), width * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def mean_vector(pooled: bytes, dim: int) -> bytes:
    """The vector that stands for several, which is their mean."""
    if len(pooled) == 4 * dim:
        return pooled
    mean = np.frombuffer(pooled, "<f4").reshape(-1, dim).mean(axis=0)
    return bytes(mean.astype("<f4").tobytes())


def to_bit_string(pooled: bytes, dim: int) -> str:
    """The code of a vector as a database reads it: a digit for each dimension."""
    packed = bit_codes(np.frombuffer(mean_vector(pooled, dim), "<f4")[None, :])
    return f"{int.from_bytes(packed.tobytes(), 'big'):0{8 * packed.shape[1]}b}"[:dim]
