"""Which embedder shall be used?"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache as once
from threading import RLock
from typing import Any

from omoide.embedders import models
from omoide.embedders.protocol import Embedder, installed
from omoide.errors import Invalid

NAMES = "'auto', 'minilm', 'static', 'none', 'provider:model', an embedder, or a function"

_log = logging.getLogger("omoide")
_loading = RLock()


def choose(embedder: str | Embedder | Callable[[list[str]], Any] | None = "auto") -> Embedder | None:
    """The embedder that is meant, or None for none.

    `auto` is the best that is ready: MiniLM when it has been pulled, else the table of static vectors, else
    none. MiniLM and the table are loaded once and shared.
    """
    if isinstance(embedder, type):
        raise Invalid("embedder", f"is the class {embedder.__name__} itself", f"pass {NAMES}")
    if embedder is None or isinstance(embedder, Embedder):
        return embedder
    if isinstance(embedder, str):
        return _named(embedder)
    if callable(embedder):
        from omoide.embedders.vectors import FromFunction

        return FromFunction(_name(embedder), embedder)
    raise Invalid("embedder", f"is of type {type(embedder).__name__}", f"pass {NAMES}")


def _named(name: str) -> Embedder | None:
    match name:
        case "auto":
            return _best()
        case "none":
            return None
        case "minilm":
            with _loading:
                return _minilm()
        case "static":
            with _loading:
                return _static()
        case _ if ":" in name:
            from omoide.embedders.provider import Provider

            return Provider(name)
        case _:
            raise Invalid("embedder", f"is {name!r}, which is none", f"pass {NAMES}")


def _best() -> Embedder | None:
    if not installed("numpy", "tokenizers"):
        return None
    if installed("onnxruntime") and models.ready(models.folder(models.MINILM)):
        return _named("minilm")
    if not installed("wordllama"):
        return None
    _tell()
    return _named("static")


@once
def _tell() -> None:
    _log.warning("recall uses static word vectors; for better ones run: omoide models pull")


@once
def _minilm() -> Embedder:
    from omoide.embedders.minilm import MiniLM

    return MiniLM()


@once
def _static() -> Embedder:
    from omoide.embedders.static import Static

    return Static()


def _name(function: Callable[..., Any]) -> str:
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise Invalid(
            "embedder",
            f"is {function!r}, which has no name that lasts",
            "wrap it: omoide.embedders.vectors.FromFunction('my-encoder-1', function)",
        )
    return f"{function.__module__}.{name}"
