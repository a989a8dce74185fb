"""Tests of the encoder that is shipped."""

import subprocess
import sys
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from shutil import copytree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.embedders import LOCAL_ENCODER, Embedder, Embedding, choose, local
from omoide.errors import ModelUnavailable

ROOT = Path(__file__).parents[2]
MAX_WHEEL_BYTES = 30_000_000

SENTENCES = [
    "The dog runs.",
    "the DOGS running",
    "cats sleep!",
    "",
    "a floccinaucinihilipilification",
    "dogs " * 400,
]


@pytest.fixture(scope="session")
def encoder() -> Embedder:
    """Return the shipped encoder."""
    found = choose("local")
    assert found is not None
    return found


def same(one: Embedding, other: Embedding) -> bool:
    assert one.tokens is not None
    assert other.tokens is not None
    return (
        np.array_equal(one.pooled, other.pooled)
        and np.array_equal(one.tokens, other.tokens)
        and one.words == other.words
    )


def test_the_encoder_reports_to_nobody(tmp_path: Path) -> None:
    """ONNX Runtime leaves neither a device id nor a queue of events, in the home directory or elsewhere."""
    program = "from omoide.embedders import choose; choose('local').embed(['a text'])"
    folders = {name: str(tmp_path) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR", "USERPROFILE")}
    subprocess.run([sys.executable, "-B", "-c", program], check=True, cwd=tmp_path, env=folders)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_every_token_has_a_vector_and_its_word(encoder: Embedder) -> None:
    """A word in several pieces has a row for each, all under the word as the text has it, in lower case."""
    (found,) = encoder.embed(["The PHOTOGRAPHIST!"])
    assert found.words is not None
    assert dict.fromkeys(found.words) == dict.fromkeys(("the", "photographist", "!"))
    assert found.words.count("photographist") > 1
    assert found.tokens is not None
    assert found.tokens.shape == (len(found.words), 64)
    assert found.tokens.dtype == np.int8


def test_vectors_have_length_one(encoder: Embedder) -> None:
    """Pooled vectors have length 1, and token vectors nearly 127."""
    for found in encoder.embed(SENTENCES):
        assert found.pooled.dtype == np.float32
        assert found.pooled.shape == (encoder.dim,)
        assert np.linalg.norm(found.pooled) == pytest.approx(1, abs=1e-5)
        assert found.tokens is not None
        lengths = np.linalg.norm(found.tokens.astype(float), axis=1)
        assert np.allclose(lengths, 127, atol=4)


def test_the_vectors_of_a_text_do_not_depend_on_its_neighbours(encoder: Embedder) -> None:
    """Embedded among others, from several threads or alone: a text has the same vectors to the last bit."""
    together = encoder.embed(SENTENCES)
    alone = [encoder.embed([text])[0] for text in SENTENCES]
    with ThreadPoolExecutor(4) as pool:
        threads = list(pool.map(lambda text: encoder.embed([text])[0], SENTENCES * 2))
    assert all(map(same, together, alone))
    assert all(map(same, threads, alone * 2))


def test_marks_of_the_encoder_in_a_text_are_text(encoder: Embedder) -> None:
    """A text that says [SEP] has the words of it, and the same shape as any other."""
    (found,) = encoder.embed(["the [SEP] dog"])
    assert found.words is not None
    assert "".join(dict.fromkeys(found.words)) == "the[sep]dog"


@given(st.lists(st.text(st.characters(codec=None), max_size=40), max_size=6))
def test_any_text_can_be_embedded(encoder: Embedder, texts: list[str]) -> None:
    """Whatever the characters, each text gets finite vectors and a word for each token."""
    found = encoder.embed(texts)
    assert len(found) == len(texts)
    for one in found:
        assert np.isfinite(one.pooled).all()
        assert one.tokens is not None
        assert one.words is not None
        assert len(one.tokens) == len(one.words)


def test_long_texts_are_cut(encoder: Embedder) -> None:
    """Of a text of a megabyte the first 254 tokens count, and they are found at once."""
    (found,) = encoder.embed(["dog " * 250_000])
    assert found.tokens is not None
    assert len(found.tokens) == 254


def test_a_question_is_nearer_to_its_answer(encoder: Embedder) -> None:
    """A question is nearer to its answer than to something else, though they share no word."""
    question, answer, other = encoder.embed(
        ["preferred timezone", "User likes Chicago time", "I baked a cake on Sunday"]
    )
    assert question.pooled @ answer.pooled > question.pooled @ other.pooled + 0.1


@pytest.mark.parametrize("name", ["encoder.onnx", "tokenizer.json", "manifest.json"])
@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(path.read_bytes()[:-100]),
        lambda path: path.write_bytes(b"\x7f" + path.read_bytes()[1:]),
    ],
    ids=["missing", "cut short", "altered"],
)
def test_missing_and_damaged_files_are_named_with_the_remedy(
    name: str, damage: Callable[[Path], object], tmp_path: Path
) -> None:
    """No vector comes from a model that is not the shipped one; the error says which file it is."""
    folder = copytree(local.FOLDER, tmp_path / "model")
    damage(folder / name)
    with pytest.raises(ModelUnavailable, match="pip install --force-reinstall 'omoide") as caught:
        local.LocalEmbedder(folder)
    assert name in caught.value.problem
    assert caught.value.model == LOCAL_ENCODER


def test_the_wheel_holds_the_encoder(tmp_path: Path) -> None:
    """Recall by meaning needs no download, and the wheel stays below its limit."""
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.stat().st_size <= MAX_WHEEL_BYTES
    with zipfile.ZipFile(wheel) as archive:
        packed = {info.filename: info.file_size for info in archive.infolist()}
    for path in (local.FOLDER / name for name in ("encoder.onnx", "tokenizer.json", "manifest.json")):
        assert packed[f"omoide/embedders/model/{path.name}"] == path.stat().st_size
