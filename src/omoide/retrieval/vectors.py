"""How close is a row's meaning to the question's?

The cosine of pooled vectors for every row; for the best rows, the sum over the question's words of the closest
word in the row, rarer words counting more.
"""

from __future__ import annotations

import numpy as np

from omoide.retrieval.pool import Array, Pool


def cosine(vector: Array, pool: Pool) -> Array:
    """The cosine of each row's closest vector; of a row without one, the lowest found."""
    found = pool.vectors @ np.asarray(vector, np.float32)
    rows = pool.vector_rows
    if len(rows) == pool.size and (not len(rows) or rows[-1] == pool.size - 1 and rows[0] == 0):
        if np.array_equal(rows, np.arange(pool.size)):
            return found.astype(np.float64)
    best = np.full(pool.size, -np.inf)
    np.maximum.at(best, rows, found)
    lowest = found.min() if len(found) else 0.0
    best[np.isneginf(best)] = lowest
    return best


def maxsim(tokens: Array, weights: Array, rows: list[Array]) -> Array:
    """For each row, the weighted mean over the question's tokens of the closest of the row's tokens."""
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    found = np.zeros(len(rows))
    held = sizes > 0
    if not held.any() or not len(tokens):
        return found
    joined = np.concatenate([row for row in rows if len(row)]).astype(np.float32)
    starts = np.cumsum(sizes[held]) - sizes[held]
    scale = np.float32(1 / (127 * 127))
    close = joined @ (tokens.astype(np.float32).T * scale)
    best = np.maximum.reduceat(close, starts, axis=0)
    found[held] = best @ weights / max(float(weights.sum()), 1e-9)
    return found
