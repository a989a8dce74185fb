"""How does a server come to hold many memories before the clock runs?

They are written to a SQLite file by the store itself, and the rows are copied from there: both databases
have the same tables. Once all is there the server counts it and writes it out, as its autovacuum and its
checkpoints would after a while.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg
from psycopg import sql

from bench.both import BATCH
from bench.corpus import Prepared
from omoide import WriteRequest, open_store
from omoide.embedders import HashEmbedder
from omoide.embedders.vectors import to_bit_string

_COPIED = ("owners", "entries", "log", "postings", "models", "vectors")
_COUNTED = {"owners": "no", "entries": "no", "log": "seq"}
"""Tables whose rows the server numbers, and the column of the number."""


def fill(url: str, schema: str, requests: Iterable[WriteRequest]) -> str:
    """Have a schema of a server hold what these requests say; the address of the store."""
    address = f"{url}?schema={schema}&pool=2"
    with open_store(address, embedder=HashEmbedder()):
        pass  # it has made its tables
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        path = Path(folder) / "filled.db"
        write(path, requests)
        _copy(path, url, schema)
    return address


def write(path: Path, requests: Iterable[WriteRequest]) -> None:
    """Have a file hold what these requests say."""
    embedder = Prepared(HashEmbedder())
    rest = iter(requests)
    with open_store(f"sqlite:///{path}", embedder=embedder) as store:
        while some := [*islice(rest, BATCH)]:
            embedder.forget()
            store.sync.write_many(some)


def _copy(path: Path, url: str, schema: str) -> None:
    kept = sqlite3.connect(path)
    with psycopg.connect(url, autocommit=True) as server:
        for table in _COPIED:
            names = [row[1] for row in kept.execute(f"PRAGMA table_info({table})")]
            found: Iterator[Any] = kept.execute(f"SELECT * FROM {table} ORDER BY 1")  # noqa: S608
            if table == "vectors":
                names, found = [*names, "code"], _coded(found)
            into = sql.SQL("COPY {}.{} ({}) FROM STDIN").format(
                sql.Identifier(schema), sql.Identifier(table), sql.SQL(",").join(map(sql.Identifier, names))
            )
            with server.cursor() as cursor, cursor.copy(into) as copy:
                for row in found:
                    copy.write_row(row)
            if table in _COUNTED:
                place, column = sql.Identifier(schema, table), _COUNTED[table]
                last = sql.SQL("SELECT setval(pg_get_serial_sequence({}, {}), (SELECT max({}) FROM {}))")
                server.execute(
                    last.format(
                        sql.Literal(f"{schema}.{table}"), sql.Literal(column), sql.Identifier(column), place
                    )
                )
        for table in _COPIED:
            server.execute(sql.SQL("VACUUM ANALYZE {}").format(sql.Identifier(schema, table)))
        server.execute("CHECKPOINT")
    kept.close()


def _coded(rows: Iterable[Any]) -> Iterator[Any]:
    """Vectors, each with its code."""
    for key, pooled, given in rows:
        yield key, pooled, given, to_bit_string(pooled, len(pooled) // 4)
