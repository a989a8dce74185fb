"""Tests of the MiniLM encoder."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.embedders import Embedder, Embedding, MiniLMEmbedder, models
from omoide.embedders.quantization import load_projection
from omoide.errors import ModelUnavailable

PUBLISHED = [-0.0213, 0.0172, 0.1252, 0.0508, 0.0045, 0.0576, 0.0505, -0.0068]

SENTENCES = [
    "The dog runs.",
    "the DOGS running",
    "cats sleep!",
    "",
    "a word it has never seen",
    "dogs " * 400,
]


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> MiniLMEmbedder:
    return MiniLMEmbedder(tiny_folder)


def same(one: Embedding, other: Embedding) -> bool:
    assert one.tokens is not None
    assert other.tokens is not None
    return (
        np.array_equal(one.pooled, other.pooled)
        and np.array_equal(one.tokens, other.tokens)
        and one.words == other.words
    )


def test_every_token_has_a_vector_and_its_word(tiny: MiniLMEmbedder) -> None:
    """A word in several pieces has a row for each, all under the word as the text has it, in lower case."""
    (found,) = tiny.embed(["The DOGS running!"])
    assert found.words == ("the", "dogs", "dogs", "running", "running", "!")
    assert found.tokens is not None
    assert found.tokens.shape == (6, 64)
    assert found.tokens.dtype == np.int8


def test_vectors_have_length_one(tiny: MiniLMEmbedder) -> None:
    """Pooled vectors have length 1, and token vectors nearly 127."""
    for found in tiny.embed(SENTENCES):
        assert found.pooled.dtype == np.float32
        assert found.pooled.shape == (tiny.dim,)
        assert np.linalg.norm(found.pooled) == pytest.approx(1, abs=1e-5)
        assert found.tokens is not None
        lengths = np.linalg.norm(found.tokens.astype(float), axis=1)
        assert np.allclose(lengths, 127, atol=4)


def test_pooled_and_token_vectors_come_from_the_last_layer(
    tiny: MiniLMEmbedder, published: dict[str, bytes]
) -> None:
    """They are near those computed by hand from the published model: its mean, and its projected states."""
    ids = np.array([[2, 4, 5, 6, 3]])
    session = onnxruntime.InferenceSession(published["/onnx/model.onnx"])
    rest = {"attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    states = session.run(None, {"input_ids": ids, **rest})[0][0]
    (found,) = tiny.embed(["the dogs"])
    mean = states.mean(axis=0)
    assert found.pooled @ mean / np.linalg.norm(mean) > 0.99
    assert found.tokens is not None
    for row, state in zip(found.tokens.astype(float), states[1:-1] @ load_projection(), strict=True):
        assert row @ state / np.linalg.norm(row) / np.linalg.norm(state) > 0.99


def test_the_vectors_of_a_text_do_not_depend_on_its_neighbours(tiny: MiniLMEmbedder) -> None:
    """Embedded among others, from several threads or alone: a text has the same vectors to the last bit."""
    together = tiny.embed(SENTENCES)
    alone = [tiny.embed([text])[0] for text in SENTENCES]
    with ThreadPoolExecutor(4) as pool:
        threads = list(pool.map(lambda text: tiny.embed([text])[0], SENTENCES * 5))
    assert all(map(same, together, alone))
    assert all(map(same, threads, alone * 5))


def test_the_projection_keeps_lengths() -> None:
    """Its 64 columns are at right angles and have length 1."""
    matrix = load_projection()
    assert matrix.shape == (384, 64)
    assert np.allclose(matrix.T @ matrix, np.eye(64), atol=1e-3)


def test_marks_of_the_encoder_in_a_text_are_text(tiny: MiniLMEmbedder) -> None:
    """A text that says [SEP] has the words of it, and the same shape as any other."""
    (found,) = tiny.embed(["the [SEP] dog"])
    assert found.words == ("the", "[", "sep", "]", "dog")


@given(st.lists(st.text(st.characters(codec=None), max_size=40), max_size=6))
def test_any_text_can_be_embedded(tiny: MiniLMEmbedder, texts: list[str]) -> None:
    """Whatever the characters, each text gets finite vectors and a word for each token."""
    found = tiny.embed(texts)
    assert len(found) == len(texts)
    for one in found:
        assert np.isfinite(one.pooled).all()
        assert one.tokens is not None
        assert one.words is not None
        assert len(one.tokens) == len(one.words)


def test_long_texts_are_cut(tiny: MiniLMEmbedder) -> None:
    """Of a text of a megabyte the first 254 tokens count, and they are found at once."""
    (found,) = tiny.embed(["dog " * 250_000])
    assert found.tokens is not None
    assert len(found.tokens) == 254


def test_an_absent_model_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Without its files the error says where they were looked for, and how to get them."""
    with pytest.raises(ModelUnavailable, match="run: omoide models pull") as caught:
        MiniLMEmbedder(tmp_path / "nowhere")
    assert str(tmp_path) in str(caught.value)


def test_a_damaged_model_is_named_with_the_remedy(tmp_path: Path) -> None:
    """Files that are no model are refused, and the error says what to do."""
    for name in ("model.onnx", "tokenizer.json"):
        (tmp_path / name).write_text("{}")
    models.mark_complete(tmp_path, ["model.onnx", "tokenizer.json"])
    with pytest.raises(ModelUnavailable, match="remove the folder and pull it again"):
        MiniLMEmbedder(tmp_path)


def test_the_real_encoder_knows_what_is_alike(minilm: Embedder) -> None:
    """A question is nearer to its answer than to something else, though they share no word."""
    question, answer, other = minilm.embed(
        ["preferred timezone", "User likes Chicago time", "I baked a cake on Sunday"]
    )
    assert question.pooled @ answer.pooled > question.pooled @ other.pooled + 0.2


def test_the_real_encoder_gives_what_it_always_gave(minilm: Embedder) -> None:
    """Its vectors stay what the name promises: near the first numbers of the published encoder."""
    (found,) = minilm.embed(["Hey Mel! Good to see you! How have you been?"])
    assert found.pooled.shape == (384,)
    assert found.words is not None
    assert found.words[:3] == ("hey", "mel", "!")
    assert found.pooled[:8] == pytest.approx(PUBLISHED, abs=0.02)
