"""Tests of choosing an embedder by name."""

import subprocess
import sys
from typing import Any

import pytest

from omoide.embedders import LOCAL_ENCODER, Embedder, HashEmbedder, LocalEmbedder, choose
from omoide.errors import Invalid


def count_letters(texts: list[str]) -> list[list[float]]:
    return [[len(text)] for text in texts]


def python(program: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
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


def test_the_local_encoder_is_the_default_and_loaded_once() -> None:
    """Whoever chooses it again, by name or by default, gets the one that is loaded."""
    found = choose()
    assert isinstance(found, LocalEmbedder)
    assert found.name == LOCAL_ENCODER
    assert choose("local") is choose("auto") is found


@pytest.mark.parametrize("wrong", ["", "best", "Local", 3, HashEmbedder, LocalEmbedder, b"local"], ids=repr)
def test_what_is_no_embedder_is_refused_with_the_choices(wrong: Any) -> None:
    """The error tells what could have been passed."""
    with pytest.raises(Invalid, match="'auto', 'local', 'none', 'provider:model'"):
        choose(wrong)


@pytest.mark.parametrize("removed", ["minilm", "static"])
def test_embedders_of_earlier_versions_are_refused_with_the_remedy(removed: str) -> None:
    """The error says what to use instead, and how stores get its vectors."""
    with pytest.raises(Invalid, match=f"'{removed}' was removed; use 'local', then run: omoide reindex"):
        choose(removed)


def test_without_the_extra_there_is_none_unless_it_is_named() -> None:
    """Without the packages `auto` is none, and every embedder that is named tells what to install."""
    program = """
import sys
for missing in ("numpy", "onnxruntime", "tokenizers", "pydantic_ai"):
    sys.modules[missing] = None
from omoide.embedders import choose
print(choose())
def mine(texts): return [[1.0]]
for name in ("local", "openai:text-embedding-3-small", mine):
    try:
        choose(name)
    except ImportError as error:
        print(type(error).__name__, error)
"""
    needs = "needs packages that are not installed; pip install"
    assert python(program) == [
        "None",
        f"MissingExtra the local encoder {needs} 'omoide[vector]'",
        f"MissingExtra an embedder {needs} 'omoide[vector]'",
        f"MissingExtra an embedder {needs} 'omoide[vector]'",
    ]


def test_choosing_loads_nothing_that_is_not_chosen() -> None:
    """The module itself brings none of the packages of the extra."""
    program = """
import sys
from omoide.embedders import choose
choose("none")
print([name for name in ("numpy", "onnxruntime", "tokenizers", "pydantic_ai") if name in sys.modules])
"""
    assert python(program) == ["[]"]
