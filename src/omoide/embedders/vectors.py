"""Validation, normalization and bit codes of vectors; embedders that need NumPy only."""

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


NOT_VECTORS = "something other than a list of vectors"
VECTORS_REMEDY = "give one list of numbers for each text, in order"
_EMBEDDING_REMEDY = "give one omoide.embedders.Embedding for each text, in order"
_POOLED_REMEDY = "give `pooled` as a NumPy array, one number after another"
_TOKENS_REMEDY = f"give `tokens` as a NumPy array of int8, {TOKEN_SIZE} for each token, or leave them out"
_WORDS_REMEDY = "give `words` as one text for each row of `tokens`, or leave them out"
_SIZE_REMEDY = "give vectors of one size; another model needs another name"
_UNIT_TOLERANCE = 1e-6  # a float32 vector this close to length 1 counts as normalized


def embed_and_validate(embedder: Embedder, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
    """Embed texts with any embedder, and check that it keeps the promises of the protocol.

    `pooled` is converted to float32 of length 1. No error quotes the texts; what the embedder raised is the
    cause of the error.

    Raises:
        EmbedderFailed: The embedder raised, or returned something other than one valid embedding per text.
    """
    if not texts:
        return []
    name = embedder.name
    with map_embedder_errors(name, "see the cause of this error, and check the embedder"):
        embeddings = list(embedder.embed(texts, query=query))
        dim = embedder.dim
    if len(embeddings) != len(texts):
        raise EmbedderFailed(
            name, f"gave {len(embeddings)} vectors for {len(texts)} texts", _EMBEDDING_REMEDY
        )
    for embedding in embeddings:
        _validate_embedding(name, embedding, dim)
    pooled: Iterable[Vector] = [embedding.pooled for embedding in embeddings]
    # Vectors that need no conversion, the common case, are passed on without a copy.
    with np.errstate(all="ignore"):  # NaN and infinity are reported below, by name
        is_normalized = all(map(_is_unit_float32, pooled))
    if not is_normalized:
        pooled = _normalize_rows(name, np.array(pooled, dtype=np.float64))
    return [
        Embedding(row, *_token_fields(embedding)) for row, embedding in zip(pooled, embeddings, strict=True)
    ]


@contextmanager
def map_embedder_errors(name: str, remedy: str) -> Iterator[None]:
    """Raise `EmbedderFailed` for any foreign exception of an embedder, naming its type only."""
    try:
        yield
    except OmoideError:
        raise
    except Exception as error:
        # Only the type: the message of a provider may quote the text.
        raise EmbedderFailed(name, f"raised {type(error).__name__}", remedy) from error


def to_unit_rows(name: str, output: Any, count: int, dim: int | None) -> NDArray[np.float32]:
    """Convert an embedder's output for `count` texts to a float32 matrix with rows of length 1.

    Raises:
        EmbedderFailed: It is no matrix of finite numbers, or has other than `count` rows of `dim` numbers.
    """
    try:
        matrix = np.asarray(output, dtype=np.float64)
    except (TypeError, ValueError, OverflowError) as error:
        raise EmbedderFailed(name, f"gave {NOT_VECTORS}", VECTORS_REMEDY) from error
    if matrix.ndim != 2:
        raise EmbedderFailed(name, f"gave {NOT_VECTORS}", VECTORS_REMEDY)
    if len(matrix) != count:
        raise EmbedderFailed(name, f"gave {len(matrix)} vectors for {count} texts", VECTORS_REMEDY)
    size = matrix.shape[1]
    if not size or size != (dim or size):
        raise EmbedderFailed(
            name, f"gave vectors of {size} numbers" + (f", not {dim}" if dim else ""), _SIZE_REMEDY
        )
    return _normalize_rows(name, matrix)


def infer_dim(embed: Callable[[list[str]], list[Embedding]]) -> int:
    """Return the dimension of an embedder's vectors, by making one."""
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
        raise EmbedderFailed(name, "gave `words` that are not texts", _WORDS_REMEDY)
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
    """Return True if a vector needs no conversion."""
    return pooled.dtype == np.float32 and abs(float(np.dot(pooled, pooled)) - 1.0) <= _UNIT_TOLERANCE


def _normalize_rows(name: str, vectors: NDArray[np.float64]) -> NDArray[np.float32]:
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    if not np.isfinite(largest).all():
        raise EmbedderFailed(name, "gave numbers that are not finite", "give finite numbers only")
    # Scale first: the squares of very large or very small numbers overflow or vanish.
    scaled = vectors / np.where(largest > 0, largest, 1.0)
    lengths = np.sqrt(np.einsum("ij,ij->i", scaled, scaled))[:, None]
    # Bounded before the product, which could overflow; beyond 2 it is no unit vector anyway.
    is_unit = (np.abs(np.minimum(largest, 2.0) * lengths - 1.0) <= _UNIT_TOLERANCE)[:, 0]
    units = scaled / np.where(lengths > 0, lengths, 1.0)
    units[is_unit] = vectors[is_unit]  # a vector of length 1 stays the same to the last bit
    return units.astype(np.float32)


EmbeddingFunction = Callable[[list[str]], Any]
"""A function that takes texts and returns a sequence of numbers, or a row of an array, for each."""


class FunctionEmbedder:
    """An embedder made of a function and a name for its vectors.

    The output is validated: as many vectors as texts, all of one size, of finite numbers.

    Args:
        name: The name to store beside the vectors; choose another when the vectors change.
        function: Takes a list of texts, returns a vector for each.
        dim: The dimension; learned from the first vectors if left out.
    """

    def __init__(self, name: str, function: EmbeddingFunction, dim: int | None = None) -> None:
        if not isinstance(name, str) or not name.strip():
            raise Invalid(
                "name", f"is {name!r}", "name what computes the vectors, for example 'my-encoder-2'"
            )
        if not callable(function):
            raise WrongType("function", "a function from a list of texts to a list of vectors", function)
        if dim is not None and (type(dim) is not int or dim < 1):
            raise Invalid("dim", f"is {dim!r}", "pass the number of dimensions, or leave it out")
        self.name = name
        self._function = function
        self._dim = dim

    @property
    def dim(self) -> int:
        """The dimension of a vector; embeds one text to learn it if no vector was made yet."""
        return self._dim or infer_dim(self.embed)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order."""
        if not texts:
            return []
        with map_embedder_errors(self.name, "check the function"):
            output = self._function(list(texts))
        vectors = to_unit_rows(self.name, output, len(texts), self._dim)
        self._dim = vectors.shape[1]
        return [Embedding(row) for row in vectors]


def normalize_vectors(vectors: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scale vectors to length 1; zero vectors stay zero."""
    lengths = np.sqrt(np.einsum("...i,...i->...", vectors, vectors))
    return np.asarray(vectors / np.maximum(lengths, 1e-12)[..., None], dtype=np.float32)


def bit_codes(vectors: NDArray[Any]) -> NDArray[Any]:
    """Quantize vectors to one bit per dimension (its sign), packed into bytes."""
    packed: NDArray[Any] = np.packbits(vectors > 0, axis=1)
    return packed


def to_uint64_rows(packed: NDArray[Any], width: int) -> NDArray[Any]:
    """Pad rows of bytes to `width` 64-bit numbers."""
    padded = np.zeros((len(packed), width * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def mean_vector(pooled: bytes, dim: int) -> bytes:
    """Return the mean of the vectors of one row, as float32 bytes."""
    if len(pooled) == 4 * dim:
        return pooled
    mean = np.frombuffer(pooled, "<f4").reshape(-1, dim).mean(axis=0)
    return bytes(mean.astype("<f4").tobytes())


def to_bit_string(pooled: bytes, dim: int) -> str:
    """Return the bit code of a row's mean vector as a string of digits, the form that PostgreSQL reads."""
    packed = bit_codes(np.frombuffer(mean_vector(pooled, dim), "<f4")[None, :])
    return f"{int.from_bytes(packed.tobytes(), 'big'):0{8 * packed.shape[1]}b}"[:dim]


_WORD = re.compile(r"\w+")


class HashEmbedder:
    """A deterministic bag-of-words embedder for tests and benchmarks.

    The hash of a word gives it a dimension and a sign; a text is the sum of its words. Texts that share words
    are close; meaning beyond shared words is not represented.
    """

    def __init__(self, dim: int = 256) -> None:
        if type(dim) is not int or dim < 1:
            raise Invalid("dim", f"is {dim!r}", "pass the number of dimensions, for example 256")
        self.name = f"hash-{dim}"
        self.dim = dim

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        """Return the embeddings of the texts, in order."""
        return [Embedding(self._vector(text)) for text in texts]

    def _vector(self, text: str) -> NDArray[np.float32]:
        hashes = [_hash(word) for word in _WORD.findall(text.casefold())]
        places = [code % self.dim for code in hashes]
        signs = [1.0 if code >> 63 else -1.0 for code in hashes]
        return normalize_vectors(np.bincount(places, signs, self.dim).astype(np.float32))


def truncate_text(text: str, limit: int) -> str:
    """Return the first `limit` characters of a text, as valid Unicode."""
    return text[:limit].encode("utf-8", "replace").decode("utf-8")


@lru_cache(maxsize=1 << 16)
def _hash(word: str) -> int:
    return int.from_bytes(blake2b(word.encode("utf-8", "replace"), digest_size=8).digest())
