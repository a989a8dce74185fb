"""How does a function that somebody already has become an embedder?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from omoide.embedders.checking import learned, reporting, rows
from omoide.embedders.protocol import Embedded
from omoide.errors import Invalid, WrongType

EmbeddingFunction = Callable[[list[str]], Any]
"""Takes texts and gives a list of numbers, or a row of an array, for each."""


class FromFunction:
    """A function from texts to vectors, under a name that stands for what it computes.

    Where `dim` is left out it is learned from the first vectors. What the function gives is checked: as many
    vectors as texts, all of one size, of finite numbers.
    """

    def __init__(self, name: str, function: EmbeddingFunction, dim: int | None = None) -> None:
        if not isinstance(name, str) or not name.strip():
            raise Invalid(
                "name", f"is {name!r}", "name what computes the vectors, for example 'my-encoder-2'"
            )
        if not callable(function):
            raise WrongType("function", "a function from a list of texts to a list of vectors", function)
        if dim is not None and (type(dim) is not int or dim < 1):
            raise Invalid("dim", f"is {dim!r}", "pass how many numbers a vector has, or leave it out")
        self.name = name
        self._function = function
        self._dim = dim

    @property
    def dim(self) -> int:
        """How many numbers a vector has; asks the function where nobody has said it yet."""
        return self._dim or learned(self.embed)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedded]:
        """The texts as vectors, in order."""
        if not texts:
            return []
        with reporting(self.name, "look into the function"):
            given = self._function(list(texts))
        found = rows(self.name, given, len(texts), self._dim)
        self._dim = found.shape[1]
        return [Embedded(row) for row in found]
