"""How is a vector told in one bit a dimension?"""

from __future__ import annotations

import numpy as np

from omoide.retrieval.pool import Array


def codes(vectors: Array) -> Array:
    """A row of bytes for each vector: a bit for each dimension, whether it is positive."""
    packed: Array = np.packbits(vectors > 0, axis=1)
    return packed


def words(packed: Array, count: int) -> Array:
    """Rows of bytes as rows of so many numbers of 64 bits."""
    padded = np.zeros((len(packed), count * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def one(pooled: bytes, dim: int) -> bytes:
    """The vector that stands for several, which is their mean."""
    if len(pooled) == 4 * dim:
        return pooled
    mean = np.frombuffer(pooled, "<f4").reshape(-1, dim).mean(axis=0)
    return bytes(mean.astype("<f4").tobytes())


def written(pooled: bytes, dim: int) -> str:
    """The code of a vector as a database reads it: a digit for each dimension."""
    packed = codes(np.frombuffer(one(pooled, dim), "<f4")[None, :])
    return f"{int.from_bytes(packed.tobytes(), 'big'):0{8 * packed.shape[1]}b}"[:dim]
