"""How long is a vector, and can it be made to have length 1?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def unit(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same directions with length 1; what is all zeros stays so."""
    lengths = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))
    return np.asarray(vectors / np.maximum(lengths, 1e-12)[..., None], dtype=np.float32)
