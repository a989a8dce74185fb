"""Tests of the validation of embeddings."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from omoide.embedders import Embedder, Embedding, HashEmbedder, embed_and_validate
from omoide.embedders.protocol import TOKEN_SIZE
from omoide.errors import EmbedderFailed, ModelUnavailable

ONE = np.array([1.0, 0.0], np.float32)
TWO = np.zeros((2, TOKEN_SIZE), np.int8)


class Giving:
    """An embedder that gives what it was told to, whatever the texts."""

    name = "own-1"
    dim = 2

    def __init__(self, given: Any) -> None:
        self.given = given

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        return self.given


class Raising(Giving):
    """An embedder that fails with the text in its message."""

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        raise self.given


def test_what_is_right_stays_as_it_is() -> None:
    """Vectors of length 1, their tokens and their words come back to the last bit."""
    mine = HashEmbedder(48)
    texts = ["the dog runs", "no cats", ""]
    for plain, found in zip(mine.embed(texts), embed_and_validate(mine, texts), strict=True):
        assert np.array_equal(plain.pooled, found.pooled)
    (found,) = embed_and_validate(Giving([Embedding(ONE, TWO, ("a", "b"))]), ["a b"])
    assert (found.pooled is ONE, found.tokens is TWO, found.words) == (True, True, ("a", "b"))


def test_no_texts_need_no_call() -> None:
    """For no texts the embedder is not asked."""
    assert embed_and_validate(Raising(RuntimeError()), []) == []


def test_the_embedder_learns_that_it_is_a_question() -> None:
    """`query` is passed on."""

    class Asked(Giving):
        def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
            return [Embedding(np.array([query, not query], np.float32))]

    assert embed_and_validate(Asked(None), ["a"], query=True)[0].pooled.tolist() == [1, 0]
    assert embed_and_validate(Asked(None), ["a"])[0].pooled.tolist() == [0, 1]


@given(arrays.arrays(np.float64, (3, 2), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_other_lengths_and_kinds_of_numbers_are_brought_into_form(rows: Any) -> None:
    """However large or small the numbers, vectors are float32 of length 1, or all zeros."""
    for row, found in zip(
        rows, embed_and_validate(Giving(list(map(Embedding, rows))), ["a", "b", "c"]), strict=True
    ):
        assert found.pooled.dtype == np.float32
        assert float(np.linalg.norm(found.pooled)) == pytest.approx(1.0 if row.any() else 0.0, abs=1e-5)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.int64, np.uint8, ">f4"], ids=str)
def test_numbers_of_any_kind_will_do(kind: Any) -> None:
    """Whole, short and long numbers are taken, in one kind of sequence or another."""

    def found() -> Iterator[Embedding]:
        yield Embedding(np.array([3, 4]).astype(kind))

    assert embed_and_validate(Giving(found()), ["a"])[0].pooled == pytest.approx([0.6, 0.8])


def test_huge_numbers_of_float32_are_brought_to_length_one() -> None:
    """Numbers whose squares float32 cannot hold are no error."""
    huge = np.array([3e30, 4e30], np.float32)
    assert embed_and_validate(Giving([Embedding(huge)]), ["a"])[0].pooled == pytest.approx([0.6, 0.8])


def test_words_may_come_as_a_list_and_go_without_tokens() -> None:
    """Words are a tuple where there are tokens, and nothing where there are none."""
    assert embed_and_validate(Giving([Embedding(ONE, TWO, ["a", "b"])]), ["a b"])[0].words == ("a", "b")  # type: ignore[arg-type]
    assert embed_and_validate(Giving([Embedding(ONE, TWO)]), ["a b"])[0].words is None
    assert embed_and_validate(Giving([Embedding(ONE, None, ("a",))]), ["a b"])[0].words is None


own: Any = Embedding  # with whatever somebody puts in
WRONG = {
    "nothing": (None, "raised TypeError"),
    "none of one": ([], "gave 0 vectors for 1 texts"),
    "two for one": ([own(ONE)] * 2, "gave 2 vectors for 1 texts"),
    "array": ([ONE], "gave ndarray instead of Embedding"),
    "list": ([[1.0, 0.0]], "gave list instead of Embedding"),
    "tuple": ([(ONE, None, None)], "gave tuple instead of Embedding"),
    "dict": ({"a": ONE}, "gave str instead of Embedding"),
    "pooled list": ([own([1.0, 0.0])], "gave `pooled` as list; give `pooled` as a NumPy array"),
    "pooled none": ([own(None)], "gave `pooled` as NoneType"),
    "pooled rows": ([own(np.array([ONE]))], r"`pooled` as an array of float32 in the shape \[1, 2\]"),
    "pooled text": ([own(np.array(["a", "b"]))], "`pooled` as an array of <U1"),
    "pooled bool": ([own(np.array([True, False]))], "`pooled` as an array of bool"),
    "pooled complex": ([own(np.array([1j, 0]))], "`pooled` as an array of complex128"),
    "pooled long": ([own(np.ones(3))], "gave a vector of 3 numbers, not 2; give vectors of one size"),
    "pooled empty": ([own(np.ones(0))], "gave a vector of 0 numbers, not 2"),
    "nan": ([own(np.array([np.nan, 1], np.float32))], "not finite"),
    "infinity": ([own(np.array([np.inf, 1], np.float32))], "not finite"),
    "tokens list": ([own(ONE, [[1] * TOKEN_SIZE])], "gave `tokens` as list; give `tokens` as a NumPy array"),
    "tokens float": (
        [own(ONE, TWO.astype(float))],
        r"`tokens` as an array of float64 in the shape \[2, 64\]",
    ),
    "tokens narrow": ([own(ONE, TWO[:, :32])], r"int8 in the shape \[2, 32\]; give .* 64 for each token"),
    "tokens flat": ([own(ONE, TWO[0])], r"int8 in the shape \[64\]"),
    "words few": ([own(ONE, TWO, ("a",))], "gave 1 words for 2 rows of `tokens`"),
    "words numbers": ([own(ONE, TWO, (1, 2))], "gave `words` that are not texts"),
    "words text": ([own(ONE, TWO, "ab")], "gave `words` that are not texts"),
}


@pytest.mark.parametrize(("value", "problem"), WRONG.values(), ids=WRONG)
def test_what_breaks_the_promise_is_refused(value: Any, problem: str) -> None:
    """The error names the embedder, says what came, and what should have come."""
    with pytest.raises(EmbedderFailed, match=problem) as caught:
        embed_and_validate(Giving(value), ["secret words"])
    assert caught.value.embedder == "own-1"
    assert caught.value.remedy


@pytest.mark.parametrize("kind", [KeyError, ValueError, OSError, RuntimeError, AssertionError])
def test_what_an_embedder_raises_is_told_by_its_type_alone(kind: type[Exception]) -> None:
    """The message may quote what was embedded, so it is only in the cause."""
    with pytest.raises(EmbedderFailed, match=f"'own-1' raised {kind.__name__}; ") as caught:
        embed_and_validate(Raising(kind("cannot embed 'secret words'")), ["secret words"])
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, kind)


def test_what_fails_while_vectors_are_given_one_by_one_is_reported_too() -> None:
    """An embedder may give its vectors one by one, and fail at any of them."""

    def broken() -> Iterator[Embedding]:
        yield Embedding(ONE)
        raise LookupError("secret words")

    with pytest.raises(EmbedderFailed, match="raised LookupError; "):
        embed_and_validate(Giving(broken()), ["a", "b"])


def test_errors_of_ours_and_interrupts_pass() -> None:
    """What already says what to do is not wrapped, and neither is what is no failure."""
    with pytest.raises(ModelUnavailable):
        embed_and_validate(Raising(ModelUnavailable("x", "is away", "pull it")), ["a"])
    with pytest.raises(KeyboardInterrupt):
        embed_and_validate(Raising(KeyboardInterrupt()), ["a"])


def test_a_size_that_cannot_be_told_is_reported() -> None:
    """`dim` belongs to the embedder as well, and may fail as it does."""

    class Sizeless(Giving):
        @property
        def dim(self) -> int:  # type: ignore[override]
            raise ZeroDivisionError

    mine: Any = Sizeless([Embedding(ONE)])
    with pytest.raises(EmbedderFailed, match="raised ZeroDivisionError"):
        embed_and_validate(mine, ["a"])


def test_the_embedder_of_these_tests_is_one() -> None:
    """Nothing but its answers is wrong with it."""
    assert isinstance(Giving(None), Embedder)
