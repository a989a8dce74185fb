"""How close is a row's meaning to the question's?

The cosine of pooled vectors for every row; for the best rows, how close the closest word in the row is to
each word of the question.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from omoide.retrieval.pool import Array, Pool

SEGMENT = 128
"""Tokens that are compared at once: a longer row would find a close one for anything."""


SMALL = 5_000
"""Rows that are compared without BLAS, whose threads cost more than they bring below that."""


def cosine(vector: Array, pool: Pool) -> Array:
    """The cosine of each row's closest vector; of a row without one, the lowest found."""
    asked = np.asarray(vector, np.float32)
    if len(pool.vectors) <= SMALL:
        close: Array = np.einsum("ij,j->i", pool.vectors, asked).astype(np.float64)
    else:
        close = (pool.vectors @ asked).astype(np.float64)
    rows = pool.vector_rows
    if pool.derive("one each", _one_each):
        return close
    held = close[pool.live[rows]]
    best = np.full(pool.size, held.min() if len(held) else 0.0)
    np.maximum.at(best, rows, close)
    return best


def product(left: Array, right: Array) -> Array:
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


def _one_each(pool: Pool) -> bool:
    return len(pool.vector_rows) == pool.size and bool((pool.vector_rows == np.arange(pool.size)).all())


def closest(tokens: Array, rows: Sequence[Array], weights: Array) -> Array:
    """[rows, tokens]: for each token of the question, how close the closest in the row's best segment is."""
    best = np.zeros((len(rows), len(tokens)), np.float32)
    sizes = np.fromiter(map(len, rows), np.int64, len(rows))
    held = np.flatnonzero(sizes)
    if not len(held) or not len(tokens):
        return best
    joined = np.concatenate([row for row in rows if len(row)]).astype(np.float32)
    close = product(joined, tokens.astype(np.float32).T / np.float32(127 * 127))
    sizes = sizes[held]
    starts = np.cumsum(sizes) - sizes
    if sizes.max() <= SEGMENT:
        best[held] = np.maximum.reduceat(close, starts, axis=0)
        return best
    each = -(-sizes // SEGMENT)
    owner = np.repeat(np.arange(len(held)), each)
    cuts = np.concatenate([start + np.arange(n) * SEGMENT for start, n in zip(starts, each, strict=True)])
    parts = np.maximum.reduceat(close, cuts, axis=0)
    order = np.lexsort((parts @ weights, owner))
    last = np.append(np.flatnonzero(np.diff(owner[order])), len(order) - 1)
    best[held] = parts[order[last]]
    return best
