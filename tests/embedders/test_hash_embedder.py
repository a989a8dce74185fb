"""Tests of the hash embedder."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.embedders import Embedder, HashEmbedder
from omoide.errors import Invalid


def test_texts_that_share_words_are_near() -> None:
    """Case and order do not count, shared words do."""
    one, again, near, far = HashEmbedder().embed(
        ["The dog runs", "runs the DOG", "the dog sleeps", "no cats"]
    )
    assert np.array_equal(one.pooled, again.pooled)
    assert 0.5 < one.pooled @ near.pooled < 0.8
    assert abs(one.pooled @ far.pooled) < 0.3


@given(st.lists(st.text(st.characters(codec=None), max_size=40), max_size=6), st.integers(1, 300))
def test_any_text_can_be_embedded(texts: list[str], dim: int) -> None:
    """Each text gets a vector of the promised size whose length is 1, or 0 where its words cancel out."""
    for found in HashEmbedder(dim).embed(texts):
        assert found.pooled.shape == (dim,)
        assert found.pooled.dtype == np.float32
        assert round(float(np.linalg.norm(found.pooled)), 4) in {0.0, 1.0}


def test_every_process_gives_the_same_vectors() -> None:
    """The seed of Python's own hashes does not matter."""
    program = (
        "from omoide.embedders.vectors import HashEmbedder;"
        "print(HashEmbedder(8).embed(['the dog runs'])[0].pooled.tolist())"
    )
    printed = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert printed.stdout.strip() == str(HashEmbedder(8).embed(["the dog runs"])[0].pooled.tolist())


def test_it_is_an_embedder_whose_name_tells_its_size() -> None:
    """Vectors of different sizes never share a name."""
    assert isinstance(HashEmbedder(), Embedder)
    assert HashEmbedder(16).name != HashEmbedder(32).name


@pytest.mark.parametrize("dim", [0, -1, True, 1.5, "8"], ids=repr)
def test_a_size_that_is_none_is_refused(dim: int) -> None:
    """The size is an integer from 1 upwards."""
    with pytest.raises(Invalid, match="dim"):
        HashEmbedder(dim)
