"""Tests of choosing an embedder by name."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from omoide.embedders import Embedder, HashEmbedder, MiniLMEmbedder, StaticEmbedder, choose
from omoide.errors import Invalid, ModelUnavailable


def count_letters(texts: list[str]) -> list[list[float]]:
    return [[len(text)] for text in texts]


def python(program: str, **environment: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True, env=environment
    )
    return (done.stdout + done.stderr).splitlines()


def test_none_is_none() -> None:
    """Recall can do without an embedder."""
    assert choose(None) is None
    assert choose("none") is None


def test_an_embedder_is_itself() -> None:
    """What is an embedder already is used as it is, also one that somebody else wrote."""
    mine = HashEmbedder(8)
    assert choose(mine) is mine


def test_a_function_is_named_after_itself() -> None:
    """A function becomes an embedder under the name by which it can be found."""
    found = choose(count_letters)
    assert isinstance(found, Embedder)
    assert found.name == f"{__name__}.count_letters"


def test_a_function_without_a_lasting_name_is_refused() -> None:
    """The name of a lambda says nothing about its vectors, so it has to be given one."""
    with pytest.raises(Invalid, match="FunctionEmbedder"):
        choose(lambda texts: [[1.0] for _ in texts])


def test_models_are_loaded_once(minilm: Embedder) -> None:
    """Who chooses the same model again gets the one that is loaded."""
    assert isinstance(minilm, MiniLMEmbedder)
    assert choose("minilm") is minilm
    assert choose("static") is choose("static")


def test_the_encoder_is_the_best(minilm: Embedder) -> None:
    """Where MiniLM has been pulled, it is chosen."""
    assert choose() is minilm


@pytest.mark.parametrize(
    "wrong", ["", "best", "MiniLM", 3, HashEmbedder, StaticEmbedder, b"minilm"], ids=repr
)
def test_what_is_no_embedder_is_refused_with_the_choices(wrong: Any) -> None:
    """The error tells what could have been passed."""
    with pytest.raises(Invalid, match="'auto', 'minilm', 'static', 'none', 'provider:model'"):
        choose(wrong)


def test_without_the_encoder_the_table_is_used_and_told_once(tmp_path: Path) -> None:
    """One line of the log, however often somebody chooses, says what is used and how to get better."""
    program = "from omoide.embedders import choose; print(choose().name); print(choose('auto').name)"
    assert python(program, OMOIDE_CACHE=str(tmp_path)) == [
        "wordllama-256",
        "wordllama-256",
        "recall uses static word vectors; for better ones run: omoide models pull",
    ]


def test_the_encoder_is_not_replaced_in_silence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Who asks for MiniLM by name gets it, or an error, and never another."""
    sys.modules["omoide.embedders.registry"]._load_minilm.cache_clear()
    monkeypatch.setenv("OMOIDE_CACHE", str(tmp_path))
    with pytest.raises(ModelUnavailable, match="omoide models pull"):
        choose("minilm")


def test_without_the_extra_there_is_none_unless_it_is_named() -> None:
    """Without the packages `auto` is none, and every embedder that is named tells what to install."""
    program = """
import sys
for missing in ("numpy", "onnxruntime", "tokenizers", "wordllama", "pydantic_ai"):
    sys.modules[missing] = None
from omoide.embedders import choose
print(choose())
def mine(texts): return [[1.0]]
for name in ("minilm", "static", "openai:text-embedding-3-small", mine):
    try:
        choose(name)
    except ImportError as error:
        print(type(error).__name__, error)
"""
    needs = "needs packages that are not installed; pip install"
    assert python(program) == [
        "None",
        f"MissingExtra the MiniLM embedder {needs} 'omoide[vector]'",
        f"MissingExtra the static embedder {needs} 'omoide[vector]'",
        f"MissingExtra an embedder {needs} 'omoide[vector]'",
        f"MissingExtra an embedder {needs} 'omoide[vector]'",
    ]


def test_choosing_loads_nothing_that_is_not_chosen() -> None:
    """The module itself brings none of the packages of the extra, and no table brings the encoder's."""
    program = """
import sys
from omoide.embedders import choose
heavy = ("numpy", "onnxruntime", "tokenizers", "wordllama", "onnx", "pydantic_ai")
print([name for name in heavy if name in sys.modules])
choose("static")
print([name for name in heavy if name in sys.modules])
"""
    assert python(program) == ["[]", "['numpy', 'tokenizers']"]


def test_nothing_is_logged_by_choosing_by_name(caplog: pytest.LogCaptureFixture) -> None:
    """Who asks for the table knows what it is."""
    with caplog.at_level(logging.DEBUG):
        assert isinstance(choose("static"), StaticEmbedder)
    assert caplog.records == []
