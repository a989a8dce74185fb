"""Is what an embedder gave a vector for each text?"""

from __future__ import annotations

from typing import Any

from omoide.errors import EmbedderFailed, MissingExtra

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("an embedder", "vector") from error

from omoide.embedders.unit import unit

NOTHING = "something that is no list of vectors"
REMEDY = "give one list of numbers for each text, in order"


def checked(name: str, given: Any, count: int, dim: int | None) -> NDArray[np.float32]:
    """What an embedder gave for `count` texts, as rows of length 1; `dim` is the size they must have."""
    try:
        rows = np.asarray(given, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderFailed(name, f"gave {NOTHING} ({error})", REMEDY) from error
    if rows.ndim != 2:
        raise EmbedderFailed(name, f"gave {NOTHING}", REMEDY)
    if len(rows) != count:
        raise EmbedderFailed(name, f"gave {len(rows)} vectors for {count} texts", REMEDY)
    size = rows.shape[1]
    if not size or size != (dim or size):
        raise EmbedderFailed(
            name,
            f"gave vectors of {size} numbers" + (f", not {dim}" if dim else ""),
            "give vectors of one size; another model needs another name",
        )
    if not np.isfinite(rows).all():
        raise EmbedderFailed(name, "gave numbers that are not finite", "give finite numbers only")
    largest = np.abs(rows).max(axis=1, keepdims=True)  # float32 could not hold the squares of large numbers
    return unit((rows / np.where(largest > 0, largest, 1.0)).astype(np.float32))
