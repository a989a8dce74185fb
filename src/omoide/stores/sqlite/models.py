"""Whose vectors does the file hold?

Each embedder has a slot. One serves; another may be filled beside it until it takes over.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from omoide import ids
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


def of(db: sqlite3.Connection, embedder: Embedder | None) -> Model | None:
    """The place of an embedder's vectors, if it serves."""
    if embedder is None:
        return None
    row = db.execute(
        "SELECT slot FROM models WHERE name=? AND dim=? AND serving=1", (embedder.name, embedder.dim)
    ).fetchone()
    return None if row is None else Model(int(row[0]), embedder.name, embedder.dim, True)


def known(db: sqlite3.Connection) -> list[Model]:
    """All whose vectors are kept."""
    found = db.execute("SELECT slot, name, dim, serving FROM models ORDER BY slot")
    return [Model(slot, name, dim, bool(on)) for slot, name, dim, on in found]


def check(db: sqlite3.Connection, embedder: Embedder, name: str) -> None:
    """Raise when a file holds vectors of another embedder."""
    current = serving(db)
    if current is None or (current.name, current.dim) == (embedder.name, embedder.dim):
        return
    if db.execute("SELECT 1 FROM vectors LIMIT 1").fetchone() is not None:
        raise EmbedderChanged(name, current.name, current.dim, embedder.name, embedder.dim)


def claim(db: sqlite3.Connection, embedder: Embedder | None) -> int | None:
    """The slot for an embedder's vectors; a file without vectors becomes its own. None: it is another's."""
    found = of(db, embedder)
    if found is not None:
        return found.slot
    if embedder is None or db.execute("SELECT 1 FROM vectors LIMIT 1").fetchone() is not None:
        return None
    db.execute("DELETE FROM models WHERE serving=1")  # one that is being filled keeps its slot
    renew(db)
    return add(db, embedder, serving=True).slot


def add(db: sqlite3.Connection, embedder: Embedder, *, serving: bool = False) -> Model:
    """A slot for an embedder, the one it had if it was here before."""
    models = known(db)
    for model in models:
        if (model.name, model.dim) == (embedder.name, embedder.dim):
            return model
    taken = {model.slot for model in models}
    slot = next((slot for slot in range(SLOTS) if slot not in taken), None)
    if slot is None:  # given up half-way, all but one of them
        slot = next(model.slot for model in models if not model.serving)
        _drop(db, f"key % {SLOTS} = ?", slot)
        db.execute("DELETE FROM models WHERE slot=?", (slot,))
    db.execute("INSERT INTO models VALUES (?,?,?,?)", (slot, embedder.name, embedder.dim, int(serving)))
    return Model(slot, embedder.name, embedder.dim, serving)


def take_over(db: sqlite3.Connection, model: Model) -> None:
    """Let an embedder's vectors answer from now on, and drop those of all others."""
    db.execute("UPDATE models SET serving = (slot = ?)", (model.slot,))
    _drop(db, f"key % {SLOTS} != ?", model.slot)
    db.execute("DELETE FROM models WHERE slot != ?", (model.slot,))


def renew(db: sqlite3.Connection) -> None:
    """Tell everybody who holds something of the file in memory that it does not count any more."""
    db.execute("INSERT OR REPLACE INTO settings VALUES ('life', ?)", (ids.uuid7(),))


def _drop(db: sqlite3.Connection, condition: str, slot: int) -> None:
    db.execute(f"DELETE FROM vectors WHERE {condition}", (slot,))
    db.execute(f"DELETE FROM tokens WHERE {condition}", (slot,))


def kept_in(path: Path) -> str | None:
    """The name of the embedder whose vectors a file holds, if it is a file of ours and holds any."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=5)) as db:
            row = db.execute(
                "SELECT name FROM models WHERE serving = 1 AND EXISTS (SELECT 1 FROM vectors)"
            ).fetchone()
    except sqlite3.Error:
        return None  # opening it for good says what is wrong
    return None if row is None else str(row[0])
