"""Whose vectors does the file hold?

Each embedder has a slot. One serves; another may be filled beside it until it takes over.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from omoide.embedders import Embedder
from omoide.errors import EmbedderChanged
from omoide.stores.sqlite.schema import SLOTS


class Model(NamedTuple):
    """An embedder whose vectors are kept."""

    slot: int
    name: str
    dim: int
    serving: bool


def serving(db: sqlite3.Connection) -> Model | None:
    """The embedder whose vectors answer questions."""
    return next((model for model in known(db) if model.serving), None)


def slot_of(db: sqlite3.Connection, name: str) -> int | None:
    """The slot of an embedder, if it serves."""
    row = db.execute("SELECT slot FROM models WHERE name=? AND serving=1", (name,)).fetchone()
    return None if row is None else int(row[0])


def known(db: sqlite3.Connection) -> list[Model]:
    """All whose vectors are kept."""
    found = db.execute("SELECT slot, name, dim, serving FROM models ORDER BY slot")
    return [Model(slot, name, dim, bool(on)) for slot, name, dim, on in found]


def settle(db: sqlite3.Connection, embedder: Embedder, name: str) -> Model:
    """The slot of an embedder in a file; in a file without vectors it is the first to serve."""
    current = serving(db)
    if current is None:
        return add(db, embedder, serving=True)
    if current.name != embedder.name:
        raise EmbedderChanged(name, current.name, embedder.name)
    if current.dim != embedder.dim:
        raise EmbedderChanged(name, f"{current.name} ({current.dim})", f"{embedder.name} ({embedder.dim})")
    return current


def add(db: sqlite3.Connection, embedder: Embedder, *, serving: bool = False) -> Model:
    """A slot for an embedder, the one it had if it was here before."""
    models = known(db)
    for model in models:
        if model.name == embedder.name:
            return model
    slot = next(slot for slot in range(SLOTS) if slot not in {model.slot for model in models})
    db.execute("INSERT INTO models VALUES (?,?,?,?)", (slot, embedder.name, embedder.dim, int(serving)))
    return Model(slot, embedder.name, embedder.dim, serving)


def take_over(db: sqlite3.Connection, model: Model) -> None:
    """Let an embedder's vectors answer from now on, and drop those of all others."""
    db.execute("UPDATE models SET serving = (slot = ?)", (model.slot,))
    others = f"key % {SLOTS} != ?"
    db.execute(f"DELETE FROM vectors WHERE {others}", (model.slot,))
    db.execute(f"DELETE FROM tokens WHERE {others}", (model.slot,))
    db.execute("DELETE FROM models WHERE slot != ?", (model.slot,))


def kept_in(path: Path) -> str | None:
    """The name of the embedder whose vectors a file holds, if it is a file of ours and holds any."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)) as db:
            row = db.execute("SELECT name FROM models WHERE serving = 1").fetchone()
    except sqlite3.Error:
        return None  # opening it for good says what is wrong
    return None if row is None else str(row[0])
