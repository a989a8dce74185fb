"""How are vectors made when nothing but NumPy may be used, and every run must give the same?"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from hashlib import blake2b

from omoide.embedders.protocol import Embedded
from omoide.errors import Invalid, MissingExtra

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("the hash embedder", "vector") from error

from omoide.embedders.unit import unit

_WORD = re.compile(r"\w+")


class HashEmbedder:
    """Every word has a place and a sign, taken from its hash; a text is the sum of its words.

    Texts that share words are near each other, and nothing else is known of their meaning. It is for tests
    and benchmarks.
    """

    def __init__(self, dim: int = 256) -> None:
        if type(dim) is not int or dim < 1:
            raise Invalid("dim", f"is {dim!r}", "pass how many numbers a vector shall have, for example 256")
        self.name = f"hash-{dim}"
        self.dim = dim

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedded]:
        """The texts as vectors, in order."""
        return [Embedded(self._vector(text)) for text in texts]

    def _vector(self, text: str) -> NDArray[np.float32]:
        hashes = [_hash(word) for word in _WORD.findall(text.casefold())]
        places = [code % self.dim for code in hashes]
        signs = [1.0 if code >> 63 else -1.0 for code in hashes]
        return unit(np.bincount(places, signs, self.dim).astype(np.float32))


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
