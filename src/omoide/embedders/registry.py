"""Choose an embedder by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache as once
from functools import partial
from importlib.util import find_spec
from typing import Any

from omoide.embedders.protocol import Embedder
from omoide.errors import EmbedderFailed, Invalid
from omoide.extensions import EMBEDDERS, extension_names, find_extension, use_extension
from omoide.forks import ForkSafeLock

EMBEDDER_CHOICES = "'auto', 'local', 'none', 'provider:model', an embedder, or a function"
REMOVED_EMBEDDERS = ("minilm", "static")
"""Names of embedders that earlier versions had."""

_load_lock = ForkSafeLock()  # `cache` alone would let two threads load the same model at once


def choose(embedder: str | Embedder | Callable[[list[str]], Any] | None = "auto") -> Embedder | None:
    """Return the embedder for a name, an embedder or a function, or None for none.

    `auto` is the local encoder where the extra `vector` is installed, else none. Other names are those of
    installed distributions, which offer them as entry points of `omoide.embedders`. An encoder that has a
    name is loaded once and shared.

    Raises:
        Invalid: The name is unknown, or the function has no name that is the same in every process.
        ModelUnavailable: The files of the local encoder are missing or damaged.
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
        case "auto" if not _is_installed("numpy", "onnxruntime", "tokenizers"):
            return None
        case "auto" | "local":
            with _load_lock:
                return _load_local()
        case "none":
            return None
        case _ if name in REMOVED_EMBEDDERS:
            raise Invalid(
                "embedder",
                f"{name!r} was removed",
                "use 'local', then run: omoide reindex --store with the path or URL of each store",
            )
        case _ if ":" in name:
            from omoide.embedders.provider import ProviderEmbedder

            return ProviderEmbedder(name)
        case _:
            with _load_lock:
                return _load_extension(name)


def _is_installed(*packages: str) -> bool:
    """Return True if all packages can be imported, without importing them."""
    return all(find_spec(package) is not None for package in packages)


@once
def _load_local() -> Embedder:
    from omoide.embedders.local import LocalEmbedder

    return LocalEmbedder()


@once
def _load_extension(name: str) -> Embedder:
    """Return the embedder of a distribution that offers the name, as an entry point of `omoide.embedders`."""
    fail = partial(EmbedderFailed, name)
    extension = find_extension(EMBEDDERS, name, fail)
    if extension is None:
        others = ", ".join(map(repr, extension_names(EMBEDDERS)))
        installed = f"; installed are {others}" if others else ""
        raise Invalid("embedder", f"{name!r} is unknown", f"pass {EMBEDDER_CHOICES}{installed}")
    embedder = use_extension(extension, fail)
    if isinstance(embedder, type) or not isinstance(embedder, Embedder):
        problem = f"cannot be had: {extension} gave a {type(embedder).__name__}, which is no embedder"
        raise fail(problem, "tell its authors: an embedder has name, dim and embed")
    return embedder


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
