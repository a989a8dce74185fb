"""Tests of functions as embedders."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from omoide.embedders import Embedder, FunctionEmbedder
from omoide.errors import EmbedderFailed, Invalid, WrongType


def lengths(texts: list[str]) -> list[list[float]]:
    return [[len(text), 1.0] for text in texts]


def constant_embedder(value: object) -> FunctionEmbedder:
    return FunctionEmbedder("mine", lambda texts: value)


def test_a_function_becomes_an_embedder() -> None:
    """Its vectors are brought to length 1, in the order of the texts."""
    mine = FunctionEmbedder("mine", lengths)
    assert isinstance(mine, Embedder)
    assert mine.dim == 2
    one, other = mine.embed(["", "abc"])
    assert one.pooled.tolist() == [0, 1]
    assert other.pooled == pytest.approx(np.array([3, 1]) / 10**0.5)
    assert other.pooled.dtype == np.float32


def test_no_texts_need_no_call() -> None:
    """For no texts the function is not asked."""
    assert constant_embedder(None).embed([]) == []


def test_the_size_is_not_asked_for_when_it_is_told() -> None:
    """A size that was given is believed until vectors come."""
    assert FunctionEmbedder("mine", lengths, dim=3).dim == 3
    with pytest.raises(EmbedderFailed, match="vectors of 2 numbers, not 3"):
        FunctionEmbedder("mine", lengths, dim=3).embed(["a"])


def test_a_size_that_changes_is_refused() -> None:
    """Once vectors had a size, all others must have it."""
    mine = FunctionEmbedder("mine", lambda texts: [[1.0] * len(texts) for _ in texts])
    mine.embed(["a"])
    with pytest.raises(EmbedderFailed, match="vectors of 2 numbers, not 1; give vectors of one size"):
        mine.embed(["a", "b"])


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (None, "other than a list of vectors"),
        ("text", "other than a list of vectors"),
        ([["a"]], "other than a list of vectors"),
        ([[1.0], [1.0, 2.0]], "other than a list of vectors"),
        ({"a": [1.0]}, "other than a list of vectors"),
        (1.0, "other than a list of vectors"),
        ([1.0, 2.0], "other than a list of vectors"),
        ([[[1.0]], [[1.0]]], "other than a list of vectors"),
        ([[1.0]], "gave 1 vectors for 2 texts"),
        ([[1.0]] * 3, "gave 3 vectors for 2 texts"),
        ([[], []], "vectors of 0 numbers"),
        ([[1.0], [float("nan")]], "not finite"),
        ([[1.0], [float("inf")]], "not finite"),
        ([[1.0], [10**400]], "other than a list of vectors"),
    ],
    ids=repr,
)
def test_what_is_no_vector_for_each_text_is_refused(value: object, problem: str) -> None:
    """The error names the embedder, says what came, and what should have come."""
    with pytest.raises(EmbedderFailed, match=problem) as caught:
        constant_embedder(value).embed(["a", "b"])
    assert "embedder 'mine'" in str(caught.value)
    assert caught.value.remedy


def test_what_a_function_raises_is_reported_as_ours() -> None:
    """The error says what was raised and leads to it, but repeats no message, which may quote the texts."""

    def broken(texts: list[str]) -> Any:
        raise KeyError(texts[0])

    with pytest.raises(EmbedderFailed, match="'mine' raised KeyError; check the function") as caught:
        FunctionEmbedder("mine", broken).embed(["secret"])
    assert "secret" not in str(caught.value)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_function_that_gives_the_texts_back_does_not_show_them() -> None:
    """What cannot be read as numbers is not repeated in the error."""
    with pytest.raises(EmbedderFailed, match="other than a list of vectors; ") as caught:
        FunctionEmbedder("mine", lambda texts: texts).embed(["secret"])
    assert "secret" not in str(caught.value)


@given(arrays.arrays(np.float64, (3, 4), elements=st.floats(allow_nan=False, allow_infinity=False)))
def test_any_finite_numbers_become_vectors_of_length_one(rows: Any) -> None:
    """However large or small the numbers, the vectors have length 1, or are all zeros."""
    for row, found in zip(rows, constant_embedder(rows).embed(["a", "b", "c"]), strict=True):
        assert float(np.linalg.norm(found.pooled)) == pytest.approx(1.0 if row.any() else 0.0, abs=1e-5)


@pytest.mark.parametrize("name", ["", "  ", None, 3], ids=repr)
def test_a_name_is_needed(name: Any) -> None:
    """The name is stored beside the vectors, so it cannot be left out."""
    with pytest.raises(Invalid, match="name"):
        FunctionEmbedder(name, lengths)


def test_a_function_is_needed() -> None:
    """What cannot be called is refused."""
    with pytest.raises(WrongType, match="function"):
        FunctionEmbedder("mine", [1.0])  # type: ignore[arg-type]


@pytest.mark.parametrize("dim", [0, -1, True, 1.5], ids=repr)
def test_a_size_that_is_none_is_refused(dim: Any) -> None:
    """The size is an integer from 1 upwards, or left out."""
    with pytest.raises(Invalid, match="dim"):
        FunctionEmbedder("mine", lengths, dim)
