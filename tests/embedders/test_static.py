"""Tests of the static word vectors."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.embedders import StaticEmbedder
from omoide.embedders.static import TABLE_FILE, TOKENIZER_FILE, read_table
from omoide.errors import ModelUnavailable


@pytest.fixture(scope="session")
def static() -> StaticEmbedder:
    return StaticEmbedder()


def table(path: Path, **tensors: object) -> Path:
    described = json.dumps({"__metadata__": {"made": "by a test"}, **tensors}).encode()
    path.write_bytes(len(described).to_bytes(8, "little") + described + bytes(range(16)))
    return path


def test_what_is_alike_is_near(static: StaticEmbedder) -> None:
    """A question is nearer to its answer than to something else."""
    question, answer, other = static.embed(
        ["preferred timezone", "User prefers Chicago time", "I baked a cake"]
    )
    assert question.pooled @ answer.pooled > question.pooled @ other.pooled + 0.1


def test_the_order_of_words_does_not_count(static: StaticEmbedder) -> None:
    """A text is the mean of its words: the same words in another order are nearly the same vector."""
    one, other = static.embed(["dogs chase cats", "cats chase dogs"])
    assert one.pooled @ other.pooled > 0.95


def test_there_are_no_token_vectors(static: StaticEmbedder) -> None:
    """Only pooled vectors of the promised size are given."""
    (found,) = static.embed(["dogs chase cats"], query=True)
    assert found.pooled.shape == (static.dim,) == (256,)
    assert found.pooled.dtype == np.float32
    assert found[1:] == (None, None)


def test_marks_of_the_tokenizer_in_a_text_are_text(static: StaticEmbedder) -> None:
    """A text that says </s> is not the empty text."""
    empty, mark = static.embed(["", "</s>"])
    assert not empty.pooled.any()
    assert mark.pooled.any()


@given(st.lists(st.text(st.characters(codec=None), max_size=40), max_size=6))
def test_any_text_can_be_embedded(static: StaticEmbedder, texts: list[str]) -> None:
    """Whatever the characters, each text gets a vector of length 1, or of 0 where there was nothing."""
    found = static.embed(texts)
    lengths = [np.linalg.norm(one.pooled) for one in found]
    assert lengths == pytest.approx([1.0 if text else 0.0 for text in texts], abs=1e-5)


def test_texts_are_embedded_alike_alone_and_together(static: StaticEmbedder) -> None:
    """The vector of a text does not depend on the texts beside it."""
    texts = ["dogs", "dogs chase cats", "x" * 100_000]
    together = static.embed(texts)
    for text, found in zip(texts, together, strict=True):
        assert np.array_equal(static.embed([text])[0].pooled, found.pooled)


def test_a_table_is_read_as_it_is_described(tmp_path: Path) -> None:
    """The numbers start after the description, in the shape that it tells."""
    tensor = {"dtype": "F16", "shape": [2, 3], "data_offsets": [4, 16]}
    path = table(tmp_path / "table", weights=tensor)
    assert np.array_equal(read_table(path), np.arange(4, 16, dtype=np.uint8).view("<f2").reshape(2, 3))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff" * 64,
        b"\x02" + bytes(7) + b"{}",
        b"\x05" + bytes(7) + b"[1,2]",
    ],
    ids=["empty", "no description", "no tensor", "no mapping"],
)
def test_a_damaged_table_is_named_with_the_remedy(tmp_path: Path, content: bytes) -> None:
    """What is no table is refused, and the error says what to do."""
    (tmp_path / TABLE_FILE).parent.mkdir()
    (tmp_path / TABLE_FILE).write_bytes(content)
    (tmp_path / TOKENIZER_FILE).parent.mkdir()
    (tmp_path / TOKENIZER_FILE).write_text('{"version": "1.0", "model": {"type": "WordLevel", "vocab": {}}}')
    with pytest.raises(ModelUnavailable, match="reinstall wordllama"):
        StaticEmbedder(tmp_path)


def test_numbers_of_another_kind_are_refused(tmp_path: Path) -> None:
    """A table of other numbers than the promised ones is not misread."""
    tensor = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}
    with pytest.raises(ValueError, match="F32"):
        read_table(table(tmp_path / "table", weights=tensor))
