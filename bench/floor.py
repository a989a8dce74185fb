"""What would a bare script do: a row, its words in FTS5 and its vector in SQLite, scanned with NumPy?

Nothing is checked, explained, versioned or logged, and an item is what was said and nothing else. Durability
and caches of SQLite are those of the store that is measured against it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.corpus import Item

Array = NDArray[Any]

RESCORED = 200
_SCHEMA = """
    CREATE TABLE items (no INTEGER PRIMARY KEY, session TEXT, type TEXT, at INTEGER, text TEXT, vector BLOB);
    CREATE INDEX by_session ON items (session);
    CREATE INDEX by_type ON items (type, at);
    CREATE VIRTUAL TABLE words USING fts5(scope, text, content='', tokenize='porter unicode61');
"""


class Floor:
    """Items in one SQLite file."""

    def __init__(self, path: Path, dim: int, *, power_safe: bool = False) -> None:
        fresh = not path.exists()
        self.db = sqlite3.connect(path, isolation_level=None, cached_statements=256)
        self.db.execute("PRAGMA journal_mode = WAL")
        self.db.execute(f"PRAGMA synchronous = {'FULL' if power_safe else 'NORMAL'}")
        self.db.execute("PRAGMA cache_size = -65536")
        self.db.execute("PRAGMA mmap_size = 268435456")
        if fresh:
            self.db.executescript(_SCHEMA)
        self.dim = dim
        self.codes: Array = np.zeros((dim // 64, 0), np.uint64)
        self.numbers: Array = np.zeros(0, np.int64)

    def add(self, item: Item, vector: Array) -> None:
        """Keep one item, durably."""
        self.add_many([(item, vector)])

    def add_many(self, pairs: Sequence[tuple[Item, Array]]) -> None:
        """Keep these items in one transaction."""
        db = self.db
        db.execute("BEGIN IMMEDIATE")
        for item, vector in pairs:
            row = (item.session, item.type, item.at, item.text, vector.tobytes())
            no = db.execute("INSERT INTO items (session, type, at, text, vector) VALUES (?,?,?,?,?)", row)
            words = (no.lastrowid, _token(item.session), item.text)
            db.execute("INSERT INTO words (rowid, scope, text) VALUES (?,?,?)", words)
        db.execute("COMMIT")

    def load(self) -> None:
        """Hold one bit a dimension of every vector, for the search over everything."""
        codes, numbers = [], []
        found = self.db.execute("SELECT no, vector FROM items ORDER BY no")
        while some := found.fetchmany(10_000):
            numbers += [no for no, _ in some]
            codes.append(_bits(self._matrix([blob for _, blob in some])))
        self.numbers, self.codes = np.array(numbers), np.concatenate(codes).T.copy()

    def recall_in(self, session: str, words: Sequence[str], vector: Array, limit: int = 5) -> list[Any]:
        """The best of one session, by words and vector."""
        rows = self.db.execute("SELECT no, vector FROM items WHERE session=?", (session,)).fetchall()
        matched = self.db.execute(
            "SELECT rowid, rank FROM words WHERE words MATCH ?",
            (f"scope:{_token(session)} AND text:({' OR '.join(words)})",),
        )
        return self._best(rows, dict(matched), vector, limit)

    def recall(self, words: Sequence[str], vector: Array, limit: int = 5) -> list[Any]:
        """The best of everything: the nearest by bits and the best by words, rescored."""
        apart = np.zeros(len(self.numbers), np.uint16)
        for codes, wanted in zip(self.codes, _bits(vector[None, :])[0], strict=True):
            apart += np.bitwise_count(codes ^ wanted)
        near = self.numbers[np.argpartition(apart, RESCORED)[:RESCORED]]
        matched: dict[int, float] = dict(
            self.db.execute(
                "SELECT rowid, rank FROM words WHERE words MATCH ? ORDER BY rank LIMIT ?",
                (f"text:({' OR '.join(words)})", RESCORED),
            )
        )
        numbers = [*{*near.tolist(), *matched}]
        marks = ",".join("?" * len(numbers))
        rows = self.db.execute(f"SELECT no, vector FROM items WHERE no IN ({marks})", numbers)  # noqa: S608
        return self._best(rows.fetchall(), matched, vector, limit)

    def newest(self, type_: str, limit: int = 10) -> list[Any]:
        """The newest items of a type."""
        return self.db.execute(
            "SELECT no, session, at, text FROM items WHERE type=? ORDER BY at DESC LIMIT ?", (type_, limit)
        ).fetchall()

    def close(self) -> None:
        """Let go of the file."""
        self.db.close()

    def _best(
        self, rows: Sequence[tuple[int, bytes]], matched: dict[int, float], vector: Array, limit: int
    ) -> list[Any]:
        close = self._matrix([blob for _, blob in rows]) @ vector
        said = np.array([-matched.get(no, 0.0) for no, _ in rows])
        order = np.argsort(-(_z(close) + _z(said)))[:limit]
        best = [rows[int(place)][0] for place in order]
        marks = ",".join("?" * len(best))
        return self.db.execute(
            f"SELECT no, session, at, text FROM items WHERE no IN ({marks})",  # noqa: S608
            best,
        ).fetchall()

    def _matrix(self, blobs: Sequence[bytes]) -> Array:
        return np.frombuffer(b"".join(blobs), np.float32).reshape(-1, self.dim)


def _token(session: str) -> str:
    return session.replace("-", "")


def _bits(vectors: Array) -> Array:
    return np.packbits(vectors > 0, axis=1).view(np.uint64)


def _z(column: Array) -> Array:
    spread = column.std()
    centred: Array = column - column.mean()
    return centred / spread if spread > 1e-9 else centred
