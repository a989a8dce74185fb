"""How well does each row answer the question, and why?

Every row is scored by every arm and the scores are blended as z-scores with the signs of agreement; the best
rows are then weighed again, word by word and together with what was said around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from omoide.retrieval import signals
from omoide.retrieval.pool import Array, Pool
from omoide.retrieval.query import Query
from omoide.retrieval.signals import Embedded
from omoide.retrieval.weights import Signs, Weights

SMALL = 4_000
"""Rows up to which a column is sorted to tell ranks in it."""


class Part(NamedTuple):
    """What one sign added to a row's score, and the row's rank by it alone, from 1."""

    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of every row, and what it is made of."""

    total: Array
    """Minus infinity for rows that were dropped."""
    parts: dict[str, Array]
    """What each sign added, row by row."""

    def top(self, limit: int) -> Array:
        """The indexes of the best rows, best first; equal rows in the order in which they came."""
        return _best(self.total, limit)

    def why(self, row: int) -> dict[str, Part]:
        """What made the score of this row; what added nothing is left out."""
        return self.whys([row])[0]

    def whys(self, rows: Sequence[int]) -> list[dict[str, Part]]:
        """The same for several rows."""
        found: list[dict[str, Part]] = [{} for _ in rows]
        for name, column in self.parts.items():
            values = column[rows]
            if not values.any():
                continue
            ranks = _ranks(column, values).tolist()
            for parts, value, rank in zip(found, values.tolist(), ranks, strict=True):
                if value:
                    parts[name] = Part(value, rank)
        return found


def _ranks(column: Array, values: Array) -> Array:
    """How many of the column are higher than each value, and one more."""
    if len(column) > SMALL:  # sorting a long column takes longer than looking through it for every value
        return np.array([np.count_nonzero(column > value) for value in values]) + 1
    higher: Array = len(column) - np.sort(column).searchsorted(values, side="right") + 1
    return higher


def score(
    query: Query,
    pool: Pool,
    *,
    vector: Embedded | None = None,
    weights: Weights | None = None,
    among: Array | None = None,
) -> Scored:
    """Score every row of the pool; with `among`, the second look is kept for the rows of that mask."""
    if not pool.live.any():
        return Scored(total=np.full(pool.size, -np.inf), parts={})
    with np.errstate(invalid="ignore"):  # some BLAS kernels raise the flag over lanes that nobody reads
        return _score(query, pool, vector, weights, among)


def _score(
    query: Query, pool: Pool, vector: Embedded | None, weights: Weights | None, among: Array | None
) -> Scored:
    if not len(pool.vectors):
        vector = None
    if weights is None:
        deep = vector is not None and vector.tokens is not None and pool.tokens is not None
        weights = Weights.default(vectors=vector is not None, tokens=deep)
    seen = signals.first(query, pool, vector, k1=weights.k1, b=weights.b)
    parts = _weighed(seen.columns, weights.first)
    total = sum(parts.values(), np.zeros(pool.size))
    total[~pool.live] = -np.inf
    if weights.second is not None:
        rows = _best(total if among is None else np.where(among, total, -np.inf), weights.depth)
        if len(rows):
            again = _weighed(signals.second(query, pool, vector, seen, total, rows), weights.second)
            total = _replaced(parts, again, total, rows)
    return Scored(total=total, parts=parts)


def _weighed(columns: signals.Columns, weights: Signs) -> signals.Columns:
    given = msgspec.structs.asdict(weights)
    return {name: column * given[name] for name, column in columns.items() if given[name]}


def _best(total: Array, depth: int) -> Array:
    """The rows with the highest scores, in order."""
    count = min(depth, int(np.isfinite(total).sum()))
    return np.argsort(-total, kind="stable")[:count]


def _replaced(parts: signals.Columns, again: signals.Columns, total: Array, rows: Array) -> Array:
    """The scores with those of the best rows weighed again; all others follow them in their order."""
    fresh = sum(again.values(), np.zeros(len(rows)))
    others = np.delete(total, rows)
    highest = float(others.max()) if len(others) else 0.0
    rest = total - highest + float(fresh.min()) - 1e-6 if np.isfinite(highest) else total.copy()
    rest[rows] = fresh
    for name in dict.fromkeys([*parts, *again]):
        column = parts.setdefault(name, np.zeros(len(total)))
        column[rows] = again.get(name, 0.0)
    return rest
