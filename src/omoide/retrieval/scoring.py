"""How well does each row answer the question, and why?

Every row is scored by every arm and the scores are blended as z-scores with the signs of agreement; the best
rows are then weighed again, word by word and together with what was said around them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import msgspec
import numpy as np

from omoide.retrieval import signals
from omoide.retrieval.pool import Array, Pool
from omoide.retrieval.query import Query
from omoide.retrieval.signals import Embedded
from omoide.retrieval.weights import Signs, Weights


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
        count = min(limit, int(np.isfinite(self.total).sum()))
        return np.argsort(-self.total, kind="stable")[:count]

    def why(self, row: int) -> dict[str, Part]:
        """What made the score of this row."""
        return {
            name: Part(float(column[row]), int((column > column[row]).sum()) + 1)
            for name, column in self.parts.items()
        }


def score(query: Query, pool: Pool, *, vector: Embedded | None = None, weights: Weights | None = None) -> Scored:
    """Score every row of the pool."""
    if not pool.size:
        return Scored(total=np.zeros(0), parts={})
    if not len(pool.vectors):
        vector = None
    if weights is None:
        deep = vector is not None and vector.tokens is not None and pool.tokens is not None
        weights = Weights.default(vectors=vector is not None, tokens=deep)
    columns = signals.first(query, pool, vector, k1=weights.k1, b=weights.b)
    parts = _weighed(columns, weights.first)
    total = sum(parts.values(), np.zeros(pool.size))
    total[~pool.live] = -np.inf
    if weights.second is not None:
        total = _again(query, pool, vector, weights, weights.second, columns, parts, total)
    return Scored(total=total, parts=parts)


def _weighed(columns: signals.Columns, weights: Signs) -> signals.Columns:
    given = msgspec.structs.asdict(weights)
    return {name: column * given[name] for name, column in columns.items() if given[name]}


def _again(
    query: Query,
    pool: Pool,
    vector: Embedded | None,
    weights: Weights,
    signs: Signs,
    columns: signals.Columns,
    parts: signals.Columns,
    total: Array,
) -> Array:
    """Weigh the best rows again; the others follow them in their order."""
    order = np.argsort(-total, kind="stable")
    rows = order[: min(weights.depth, int(np.isfinite(total).sum()))]
    again = _weighed(signals.second(query, pool, vector, columns, total, rows), signs)
    fresh = sum(again.values(), np.zeros(len(rows)))
    cut = float(total[rows[-1]])
    rest = total - cut + float(fresh.min()) - 1e-6
    rest[rows] = fresh
    for name in {*parts, *again}:
        column = parts.setdefault(name, np.zeros(pool.size))
        column[rows] = again.get(name, 0.0)
    return rest
