"""Embedder protocol.

A name, a size, and one method. The name is stored beside every vector, and only vectors of one name are
compared with each other, so it has to change whenever the vectors would.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias, runtime_checkable

# installed: Is a package there to be imported?


def is_installed(*packages: str) -> bool:
    """Whether all of the packages could be imported; none of them is imported yet."""
    return all(find_spec(package) is not None for package in packages)


# protocol: What does an embedder have to offer?


if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Vector: TypeAlias = NDArray[np.float32]
    TokenVectors: TypeAlias = NDArray[np.int8]

TOKEN_SIZE = 64
"""How many numbers a token vector has, whatever the encoder: stores keep them side by side."""


class Embedding(NamedTuple):
    """One text as vectors.

    `pooled` is a NumPy array of as many numbers as the embedder's `dim`; it has length 1, or is all zeros
    where there was nothing to embed. `tokens`, where the encoder has them, is a NumPy array of int8 in the
    shape [t, 64]: a row for each of t tokens, whose 127th part is nearly of length 1. `words` has the
    lower-cased word of the text that each row belongs to.
    """

    pooled: Vector
    tokens: TokenVectors | None = None
    words: tuple[str, ...] | None = None


@runtime_checkable
class Embedder(Protocol):
    """Turns texts into vectors, from any thread; the vectors of a text depend on that text alone."""

    @property
    def name(self) -> str:
        """What made the vectors; other vectors, another name."""
        ...

    @property
    def dim(self) -> int:
        """How many numbers a pooled vector has."""
        ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """The texts as vectors, in order; `query` says that they are questions and not memories."""
        ...
