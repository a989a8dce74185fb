"""The embedder protocol.

An embedder has a name, a dimension and one method. The name is stored beside every vector, and only vectors
of one name are compared with each other, so it must change whenever the vectors would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]
    TokenVectors: TypeAlias = NDArray[np.int8]

LOCAL_ENCODER = "omoide-encoder-2"
"""Name of the encoder that is shipped; its number changes whenever the model, and so its vectors, do."""

TOKEN_SIZE = 64
"""Dimension of a token vector, the same for every encoder, because stores concatenate token vectors."""


class Embedding(NamedTuple):
    """The vectors of one text.

    `pooled` is a NumPy array of the embedder's `dim` numbers: of length 1, or all zeros where there was
    nothing to embed. `tokens`, for encoders that have them, is a NumPy array of int8 in the shape [t, 64]:
    one row for each of t tokens, a unit vector times 127. `words` has the lower-cased word of each row.
    """

    pooled: Vector
    tokens: TokenVectors | None = None
    words: tuple[str, ...] | None = None


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors.

    `embed` may be called from any thread. The vectors of a text depend on that text alone, not on its batch.
    """

    @property
    def name(self) -> str:
        """The name of the model; other vectors need another name."""

    @property
    def dim(self) -> int:
        """The dimension of a pooled vector."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order; `query` is true for queries, false for memories."""
