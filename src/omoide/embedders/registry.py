"""Choose an embedder by name."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cache as once
from typing import Any

from omoide.embedders import models
from omoide.embedders.protocol import Embedder, is_installed
from omoide.errors import Invalid
from omoide.forks import ForkSafeLock

EMBEDDER_CHOICES = "'auto', 'minilm', 'static', 'none', 'provider:model', an embedder, or a function"

_log = logging.getLogger("omoide")
_load_lock = ForkSafeLock()  # `cache` alone would let two threads load the same model at once


def choose(embedder: str | Embedder | Callable[[list[str]], Any] | None = "auto") -> Embedder | None:
    """Return the embedder for a name, an embedder or a function, or None for none.

    `auto` is the best that is ready: MiniLM when it has been pulled, else static word vectors, else none.
    MiniLM and the static table are loaded once and shared.

    Raises:
        Invalid: The name is unknown, or the function has no name that is the same in every process.
    """
    if isinstance(embedder, type):
        raise Invalid("embedder", f"is the class {embedder.__name__} itself", f"pass {EMBEDDER_CHOICES}")
    if embedder is None or isinstance(embedder, Embedder):
        return embedder
    if isinstance(embedder, str):
        return _embedder_by_name(embedder)
    if callable(embedder):
        from omoide.embedders.vectors import FunctionEmbedder

        return FunctionEmbedder(_function_name(embedder), embedder)
    raise Invalid("embedder", f"is of type {type(embedder).__name__}", f"pass {EMBEDDER_CHOICES}")


def _embedder_by_name(name: str) -> Embedder | None:
    match name:
        case "auto":
            return _best_available()
        case "none":
            return None
        case "minilm":
            with _load_lock:
                return _load_minilm()
        case "static":
            with _load_lock:
                return _load_static()
        case _ if ":" in name:
            from omoide.embedders.provider import ProviderEmbedder

            return ProviderEmbedder(name)
        case _:
            raise Invalid("embedder", f"{name!r} is unknown", f"pass {EMBEDDER_CHOICES}")


def _best_available() -> Embedder | None:
    if not is_installed("numpy", "tokenizers"):
        return None
    if is_installed("onnxruntime") and models.is_ready(models.model_dir(models.MINILM)):
        return _embedder_by_name("minilm")
    if not is_installed("wordllama"):
        return None
    _warn_static_vectors()
    return _embedder_by_name("static")


@once
def _warn_static_vectors() -> None:
    _log.warning("recall uses static word vectors; for better ones run: omoide models pull")


@once
def _load_minilm() -> Embedder:
    from omoide.embedders.minilm import MiniLMEmbedder

    return MiniLMEmbedder()


@once
def _load_static() -> Embedder:
    from omoide.embedders.static import StaticEmbedder

    return StaticEmbedder()


def _function_name(function: Callable[..., Any]) -> str:
    # The name is stored beside the vectors; a lambda or a local function could be another one next time.
    name = getattr(function, "__qualname__", "")
    if not name or "<" in name:
        raise Invalid(
            "embedder",
            f"{function!r} has no stable name",
            "wrap it: omoide.embedders.FunctionEmbedder('my-encoder-1', function)",
        )
    return f"{function.__module__}.{name}"
