"""How well do a row's words, and those said around it, match the question's?

BM25 with the row's window as the document: what a turn is about is often said by the turn before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log1p

import numpy as np

from omoide.retrieval.neighbours import Segments, segments
from omoide.retrieval.pool import Array, Pool


@dataclass(frozen=True, slots=True)
class Lexical:
    """How the rows match the question's terms."""

    window: Array
    """[rows]: BM25 of each row together with its window."""
    own: Array
    """[rows]: BM25 of each row alone."""
    has: Array
    """[rows, terms]: whether the row has the term, in its best segment."""
    idf: Array
    """[terms]: how rare each term is."""


def lexical(ids: Sequence[int], pool: Pool, *, k1: float, b: float) -> Lexical:
    """How the rows match these terms."""
    size = pool.size
    units = segments(pool)
    window, own = np.zeros(units.count), np.zeros(units.count)
    has = np.zeros((units.count, len(ids)), np.float32)
    idf = np.zeros(len(ids))
    norm = k1 * (1 - b + b * units.sizes / units.mean)
    for at, term in enumerate(ids):
        held = _holding(term, pool, units)
        mine, times = _counted(held, units.count)
        idf[at] = rarity(term, len(mine) if units.count == size else len(np.unique(units.rows[mine])), pool)
        if not len(held):
            continue
        reached, counts = _counted(units.targets[held].ravel(), units.count)
        window[reached] += idf[at] * counts * (k1 + 1) / (counts + norm[reached])
        has[mine, at] = 1.0
        own[mine] += idf[at] * times * (k1 + 1) / (times + k1)
    if units.count == size:
        return Lexical(window=window, own=own, has=has, idf=idf)
    best = np.lexsort((own, units.rows))[np.searchsorted(units.rows, np.arange(size), side="right") - 1]
    return Lexical(window=_highest(window, units, size), own=own[best], has=has[best], idf=idf)


def frequency(term: int, pool: Pool) -> int:
    """How many rows have the term."""
    units = segments(pool)
    return len(np.unique(units.rows[_holding(term, pool, units)]))


def _holding(term: int, pool: Pool, units: Segments) -> Array:
    """The segments that have the term, as often as they have it."""
    held: Array = units.of_term[np.flatnonzero(pool.terms == term)]
    return held[held < units.count]


def _counted(found: Array, count: int) -> tuple[Array, Array]:
    """Which segments are among these, and how often; few segments hold a term, so only those are touched."""
    times = np.bincount(found, minlength=count + 1)[:count]
    reached = np.flatnonzero(times)
    return reached, times[reached]


def rarity(term: int, held: int, pool: Pool) -> float:
    """How much a term says, by how few rows of the scope have it; `held` have it in the pool."""
    total = living(pool)
    if pool.statistics is not None:
        total = max(total, pool.statistics.count)
        held = max(held, pool.statistics.frequencies.get(term, 0))
    return log1p((max(total - held, 0) + 0.5) / (held + 0.5))


def living(pool: Pool) -> int:
    """How many rows are there."""
    return pool.derive("living", lambda pool: int(pool.live.sum()))


def _highest(scores: Array, units: Segments, size: int) -> Array:
    """The score of each row's best segment."""
    best: Array = np.maximum.reduceat(scores, np.searchsorted(units.rows, np.arange(size)))
    return best
