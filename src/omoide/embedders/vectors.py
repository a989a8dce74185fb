"""Vector validation; hash and function embedders (needs NumPy)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from omoide.errors import EmbedderFailed, Invalid, MissingExtra, OmoideError, WrongType

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise MissingExtra("an embedder", "vector") from error

from omoide.embedders.protocol import TOKEN_SIZE, Embedder, Embedding

if TYPE_CHECKING:
    from omoide.embedders.protocol import TokenVectors, Vector


# checking: Is what an embedder gave a vector for each text?


NOT_VECTORS = "something that is no list of vectors"
VECTORS_REMEDY = "give one list of numbers for each text, in order"
_EMBEDDING_REMEDY = "give one omoide.embedders.Embedding for each text, in order"
_POOLED_REMEDY = "give `pooled` as a NumPy array, one number after another"
_TOKENS_REMEDY = f"give `tokens` as a NumPy array of int8, {TOKEN_SIZE} for each token, or leave them out"
_WORDS_REMEDY = "give `words` as one text for each row of `tokens`, or leave them out"
_SIZE_REMEDY = "give vectors of one size; another model needs another name"
_UNIT_TOLERANCE = 1e-6  # how far from length 1 a vector of float32 may be and still count as being of it


def embed_and_validate(embedder: Embedder, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
    """The texts as vectors of any embedder, in order, if it keeps what an embedder promises.

    `pooled` is brought to float32 and length 1. No error quotes the texts, not even what the embedder raised:
    that is the cause of ours.
    """
    if not texts:
        return []
    name = embedder.name
    with map_embedder_errors(name, "look into its cause, and into the embedder"):
        found = list(embedder.embed(texts, query=query))
        dim = embedder.dim
    if len(found) != len(texts):
        raise EmbedderFailed(name, f"gave {len(found)} vectors for {len(texts)} texts", _EMBEDDING_REMEDY)
    for one in found:
        _validate_embedding(name, one, dim)
    pooled: Iterable[Vector] = [one.pooled for one in found]
    with np.errstate(all="ignore"):
        right = all(map(_is_unit_float32, pooled))
    if not right:
        pooled = _normalize_rows(name, np.array(pooled, dtype=np.float64))
    return [Embedding(row, *_token_fields(one)) for row, one in zip(pooled, found, strict=True)]


@contextmanager
def map_embedder_errors(name: str, remedy: str) -> Iterator[None]:
    """Turn what an embedder raises into an error of ours that says its type and leads to it."""
    try:
        yield
    except OmoideError:
        raise
    except Exception as error:
        raise EmbedderFailed(name, f"raised {type(error).__name__}", remedy) from error


def to_unit_rows(name: str, output: Any, count: int, dim: int | None) -> NDArray[np.float32]:
    """What an embedder gave for `count` texts, as rows of length 1; `dim` is the size they must have."""
    try:
        found = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderFailed(name, f"gave {NOT_VECTORS}", VECTORS_REMEDY) from error
    if found.ndim != 2:
        raise EmbedderFailed(name, f"gave {NOT_VECTORS}", VECTORS_REMEDY)
    if len(found) != count:
        raise EmbedderFailed(name, f"gave {len(found)} vectors for {count} texts", VECTORS_REMEDY)
    size = found.shape[1]
    if not size or size != (dim or size):
        raise EmbedderFailed(
            name, f"gave vectors of {size} numbers" + (f", not {dim}" if dim else ""), _SIZE_REMEDY
        )
    return _normalize_rows(name, found)


def infer_dim(embed: Callable[[list[str]], list[Embedding]]) -> int:
    """How many numbers the vectors of an embedder have, by making one."""
    return len(embed(["dimension"])[0].pooled)


def _validate_embedding(name: str, embedding: Any, dim: int) -> None:
    if not isinstance(embedding, Embedding):
        raise EmbedderFailed(name, f"gave {type(embedding).__name__} instead of Embedding", _EMBEDDING_REMEDY)
    pooled, tokens, words = embedding
    if not isinstance(pooled, np.ndarray):
        raise EmbedderFailed(name, f"gave `pooled` as {type(pooled).__name__}", _POOLED_REMEDY)
    if pooled.ndim != 1 or pooled.dtype.kind not in "fiu":
        raise EmbedderFailed(name, f"gave `pooled` as {_describe_array(pooled)}", _POOLED_REMEDY)
    if len(pooled) != dim or not dim:
        raise EmbedderFailed(name, f"gave a vector of {len(pooled)} numbers, not {dim}", _SIZE_REMEDY)
    if tokens is None:
        return
    if not isinstance(tokens, np.ndarray):
        raise EmbedderFailed(name, f"gave `tokens` as {type(tokens).__name__}", _TOKENS_REMEDY)
    if tokens.dtype != np.int8 or tokens.ndim != 2 or tokens.shape[1] != TOKEN_SIZE:
        raise EmbedderFailed(name, f"gave `tokens` as {_describe_array(tokens)}", _TOKENS_REMEDY)
    if words is None:
        return
    if not isinstance(words, (tuple, list)) or not all(isinstance(word, str) for word in words):
        raise EmbedderFailed(name, "gave `words` that are no texts", _WORDS_REMEDY)
    if len(words) != len(tokens):
        raise EmbedderFailed(
            name, f"gave {len(words)} words for {len(tokens)} rows of `tokens`", _WORDS_REMEDY
        )


def _token_fields(embedding: Embedding) -> tuple[TokenVectors | None, tuple[str, ...] | None]:
    if embedding.tokens is None or embedding.words is None:
        return embedding.tokens, None
    return embedding.tokens, tuple(embedding.words)


def _describe_array(array: NDArray[Any]) -> str:
    return f"an array of {array.dtype} in the shape {list(array.shape)}"


def _is_unit_float32(pooled: Vector) -> bool:
    """Whether a vector can be taken as it is, which those of a good embedder can."""
    return pooled.dtype == np.float32 and abs(float(np.dot(pooled, pooled)) - 1.0) <= _UNIT_TOLERANCE


def _normalize_rows(name: str, vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise EmbedderFailed(name, "gave numbers that are not finite", "give finite numbers only")
    # Divided first, for the squares of very large or very small numbers cannot be held.
    scaled = vectors / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    right = (np.abs(np.minimum(largest, 2.0) * lengths - 1.0) <= _UNIT_TOLERANCE)[:, 0]
    units = scaled / np.where(lengths > 0, lengths, 1.0)
    units[right] = vectors[right]  # to the last bit
    return units.astype(np.float32)


# function: How does a function that somebody already has become an embedder?


EmbeddingFunction = Callable[[list[str]], Any]
"""Takes texts and gives a list of numbers, or a row of an array, for each."""


class FunctionEmbedder:
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
        return self._dim or infer_dim(self.embed)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """The texts as vectors, in order."""
        if not texts:
            return []
        with map_embedder_errors(self.name, "look into the function"):
            given = self._function(list(texts))
        found = to_unit_rows(self.name, given, len(texts), self._dim)
        self._dim = found.shape[1]
        return [Embedding(row) for row in found]


# unit: How long is a vector, and can it be made to have length 1?


def normalize_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """The same directions with length 1; what is all zeros stays so."""
    lengths = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))
    return np.asarray(vectors / np.maximum(lengths, 1e-12)[..., None], dtype=np.float32)


# hashing: How are vectors made when nothing but NumPy may be used, and every run must give the same?


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

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """The texts as vectors, in order."""
        return [Embedding(self._vector(text)) for text in texts]

    def _vector(self, text: str) -> NDArray[np.float32]:
        hashes = [_hash(word) for word in _WORD.findall(text.casefold())]
        places = [code % self.dim for code in hashes]
        signs = [1.0 if code >> 63 else -1.0 for code in hashes]
        return normalize_vectors(np.bincount(places, signs, self.dim).astype(np.float32))


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
