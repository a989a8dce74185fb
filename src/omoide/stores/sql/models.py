"""Whose vectors does the database hold?

Each embedder has a slot. One serves; another may be filled beside it until it takes over.
"""

from __future__ import annotations

from typing import NamedTuple

from omoide import ids
from omoide.embedders import Embedder
from omoide.errors import EmbedderChanged
from omoide.stores.indexing import Indexed
from omoide.stores.sql import rows
from omoide.stores.sql.database import MODELS, SLOTS, VECTORS, Database

_PUT = """INSERT INTO vectors (key, pooled, given) VALUES (?,?,?)
    ON CONFLICT (key) DO UPDATE SET pooled = excluded.pooled, given = excluded.given"""
_PUT_CODED = """INSERT INTO vectors (key, pooled, given, code) VALUES (?,?,?,CAST(? AS BIT VARYING))
    ON CONFLICT (key) DO UPDATE SET pooled = excluded.pooled, given = excluded.given, code = excluded.code"""
_PUT_TOKENS = """INSERT INTO tokens (key, tokens) VALUES (?,?)
    ON CONFLICT (key) DO UPDATE SET tokens = excluded.tokens"""


class Model(NamedTuple):
    """An embedder whose vectors are kept."""

    slot: int
    name: str
    dim: int
    serving: bool


def serving(db: Database) -> Model | None:
    """The embedder whose vectors answer questions."""
    return next((model for model in known(db) if model.serving), None)


def of(db: Database, embedder: Embedder | None) -> Model | None:
    """The place of an embedder's vectors, if it serves."""
    if embedder is None:
        return None
    row = db.execute(
        "SELECT slot FROM models WHERE name=? AND dim=? AND serving=1", (embedder.name, embedder.dim)
    ).fetchone()
    return None if row is None else Model(int(row[0]), embedder.name, embedder.dim, True)


def is_known(db: Database, model: Model) -> bool:
    """Whether the place of an embedder's vectors is still its own."""
    return any(one[:3] == model[:3] for one in known(db))


def known(db: Database) -> list[Model]:
    """All whose vectors are kept."""
    found = db.execute("SELECT slot, name, dim, serving FROM models ORDER BY slot")
    return [Model(slot, name, dim, bool(on)) for slot, name, dim, on in found]


def check(db: Database, embedder: Embedder, name: str) -> None:
    """Raise when a store holds vectors of another embedder."""
    current = serving(db)
    if current is None or (current.name, current.dim) == (embedder.name, embedder.dim):
        return
    if db.execute("SELECT 1 FROM vectors LIMIT 1").fetchone() is not None:
        raise EmbedderChanged(name, current.name, current.dim, embedder.name, embedder.dim)


def claim(db: Database, embedder: Embedder | None) -> Model | None:
    """The place for an embedder's vectors; a store without vectors becomes its own. None: it is another's."""
    found = of(db, embedder)
    if found is not None:
        return found
    if embedder is None:
        return None
    db.hold(MODELS)
    found = of(db, embedder)  # somebody may have been faster
    if found is not None:
        return found
    if serving(db) is not None:  # whoever serves may be about to keep a first vector
        db.hold(VECTORS._replace(shared=False))
    if db.execute("SELECT 1 FROM vectors LIMIT 1").fetchone() is not None:
        return None
    db.execute("DELETE FROM models WHERE serving=1")  # one that is being filled keeps its slot
    renew(db)
    return add(db, embedder, serving=True)


def add(db: Database, embedder: Embedder, *, serving: bool = False) -> Model:
    """A slot for an embedder, the one it had if it was here before."""
    models = known(db)
    for model in models:
        if (model.name, model.dim) == (embedder.name, embedder.dim):
            return model
    taken = {model.slot for model in models}
    slot = next((slot for slot in range(SLOTS) if slot not in taken), None)
    if slot is None:  # given up half-way, all but one of them
        slot = next(model.slot for model in models if not model.serving)
        db.execute("DELETE FROM models WHERE slot=?", (slot,))
    _drop(db, f"key % {SLOTS} = ?", slot)  # whatever lies there is another's
    db.execute(
        "INSERT INTO models (slot, name, dim, serving) VALUES (?,?,?,?)",
        (slot, embedder.name, embedder.dim, int(serving)),
    )
    return Model(slot, embedder.name, embedder.dim, serving)


def take_over(db: Database, model: Model) -> None:
    """Let an embedder's vectors answer from now on, and drop those of all others."""
    db.execute("UPDATE models SET serving = CASE WHEN slot = ? THEN 1 ELSE 0 END", (model.slot,))
    _drop(db, f"key % {SLOTS} != ?", model.slot)
    db.execute("DELETE FROM models WHERE slot != ?", (model.slot,))


def put_vectors(db: Database, no: int, model: Model, found: Indexed, *, fresh: bool = False) -> None:
    """Keep an entry's vectors, if it has any; those of the embedder never replace one that was given."""
    key = no * SLOTS + model.slot
    if found.pooled is None:
        return
    if not found.given and not fresh and rows.given_vector(db, key) is not None:
        return
    vector: tuple[object, ...] = (key, found.pooled, int(found.given))
    if db.words.codes:
        from omoide.stores.sql import coding  # needs NumPy, as every embedder does

        db.execute(_PUT_CODED, (*vector, coding.written(found.pooled, model.dim)))
    else:
        db.execute(_PUT, vector)
    if found.tokens is not None:
        db.execute(_PUT_TOKENS, (key, found.tokens))


def renew(db: Database) -> None:
    """Tell everybody who holds something of the store in memory that it does not count any more."""
    put(db, "life", ids.uuid7())


def put(db: Database, name: str, value: str) -> None:
    """Note something about the store itself."""
    db.execute(
        "INSERT INTO settings (name, value) VALUES (?,?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


def _drop(db: Database, condition: str, slot: int) -> None:
    db.execute(f"DELETE FROM vectors WHERE {condition}", (slot,))
    db.execute(f"DELETE FROM tokens WHERE {condition}", (slot,))
