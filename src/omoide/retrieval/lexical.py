"""How well do a row's words, and those said around it, match the question's?

BM25 with the row's window as the document: what a turn is about is often said by the turn before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from omoide.retrieval.neighbours import segments
from omoide.retrieval.pool import Array, Pool


@dataclass(frozen=True, slots=True)
class Lexical:
    """BM25 of every row, with its window and alone, and the weight of every term of the question."""

    window: Array
    own: Array
    idf: Array


def lexical(ids: Sequence[int], pool: Pool, *, k1: float, b: float, weights: Sequence[float] | None = None) -> Lexical:
    """BM25 for these terms."""
    size = pool.size
    units = segments(pool)
    postings = [np.flatnonzero(pool.terms == term) for term in ids]
    idf = _idf(ids, [units.of_term[found] for found in postings], units.rows, units.count, pool)
    weighted = idf if weights is None else idf * np.asarray(weights)
    window = np.zeros(units.count)
    own = np.zeros(units.count)
    norm = k1 * (1 - b + b * units.sizes / units.mean)
    lengths = units.sizes  # one length for both: alone, a turn is too short for its length to say anything
    del lengths
    for found, weight in zip(postings, weighted, strict=True):
        if not len(found):
            continue
        held = units.of_term[found]
        counts = np.bincount(units.targets[held].ravel(), minlength=units.count + 1)[: units.count]
        window += weight * counts * (k1 + 1) / (counts + norm)
        mine = np.bincount(held, minlength=units.count + 1)[: units.count]
        own += weight * mine * (k1 + 1) / (mine + k1)
    if units.count == size:
        return Lexical(window=window, own=own, idf=idf)
    return Lexical(window=_best(window, units.rows, size), own=_best(own, units.rows, size), idf=idf)


def _best(scores: Array, rows: Array, size: int) -> Array:
    starts = np.searchsorted(rows, np.arange(size))
    best: Array = np.maximum.reduceat(scores, starts)
    return best


def _idf(ids: Sequence[int], held: list[Array], rows: Array, none: int, pool: Pool) -> Array:
    known: Mapping[int, int] = pool.statistics.frequencies if pool.statistics else {}
    total = pool.statistics.count if pool.statistics else int(pool.live.sum())
    found = np.empty(len(ids))
    for at, (term, units) in enumerate(zip(ids, held, strict=True)):
        frequency = known.get(term)
        if frequency is None:
            frequency = len(np.unique(rows[units[units < none]]))
        found[at] = np.log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5))
    return found
