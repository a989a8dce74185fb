"""A store and an embedder that others install: `shared://name`, and `embedder="letters"`.

The entry points in `pyproject.toml` give them their names. The store is in memory, and a name opens the same
one in all of a process; any object with the methods of `omoide.Store` would do.
"""

from __future__ import annotations

from string import ascii_lowercase
from typing import Any
from urllib.parse import urlsplit

from omoide import Store, open_store
from omoide.embedders import Embedder, FunctionEmbedder
from omoide.errors import Invalid

_stores: dict[str, Store] = {}


def open_shared(url: str, *, embedder: Any = "auto", **settings: Any) -> Store:
    """Return the store of a name: the one that is open, or a new one."""
    name = urlsplit(url).netloc
    if not name:
        raise Invalid("url", f"{url!r} has no name", "write shared://name")
    if name not in _stores:
        _stores[name] = open_store("memory://", embedder=embedder, **settings)
    return _stores[name]


def letters() -> Embedder:
    """Return an embedder that counts letters."""
    return FunctionEmbedder("letters-1", _count_letters)


def _count_letters(texts: list[str]) -> list[list[int]]:
    return [[text.lower().count(letter) for letter in ascii_lowercase] for text in texts]
