"""Read the rows of a scope into a cache and keep it up to date.

A cache records the last change it covers. Before each use the later changes are applied, inside the same read
transaction, so that entries erased by another process are gone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from omoide.retrieval.pool import Array
from omoide.stores import truth
from omoide.stores.cache import CacheRow, ScopeCache
from omoide.stores.pool import TOKEN_DIM
from omoide.stores.sql import rows
from omoide.stores.sql.database import SLOTS, Database

MAX_CACHED_ENTRIES = 10_000
"""Maximum number of entries of a cached scope; larger scopes use `LargeScopeIndex`."""

_MAX_CHANGES = 2_000  # changes from which on a shelf is filled anew

_SELECT = f"""SELECT e.no, e.features, e.time, e.thread, e.seq, e.role, e.speaker, e.confidence, e.importance,
    e.expires, v.pooled, e.written FROM entries e LEFT JOIN vectors v ON v.key = e.no * {SLOTS} + ? WHERE """


def attach_token_reader(db: Database, cache: ScopeCache) -> None:
    """Let the pool of a cache read token vectors through this connection from now on."""

    def read(positions: Array) -> list[Array]:
        keys = [cache.numbers[position] * SLOTS + cache.slot for position in positions]
        found: dict[int, bytes] = {}
        for batch in rows.batches(keys):
            marks = ",".join("?" * len(batch))
            found.update(db.execute(f"SELECT key, tokens FROM tokens WHERE key IN ({marks})", batch))
        empty = np.zeros((0, TOKEN_DIM), np.int8)
        return [
            np.frombuffer(found[key], np.int8).reshape(-1, TOKEN_DIM) if key in found else empty
            for key in keys
        ]

    has_tokens = bool(cache.numbers) and db.execute("SELECT 1 FROM tokens LIMIT 1").fetchone() is not None
    cache.pool.token_loader = read if has_tokens else None


def refresh(db: Database, cache: ScopeCache, where: rows.WhereClause, namespace: str) -> bool:
    """Apply the changes since the cache was last used; return False if the scope is too large to cache."""
    generation, last = rows.latest_change(db, namespace)
    if cache.generation != generation or not _apply_changes(db, cache, where, namespace, last):
        if _exceeds_limit(db, where):
            return False
        cache.expired_until = 0
        cache.fill(read_rows(db, where, cache.slot))
    cache.generation, cache.covered_seq = generation, last
    return True


def _apply_changes(
    db: Database, cache: ScopeCache, where: rows.WhereClause, namespace: str, last: int
) -> bool:
    """Apply single changes; return False if a reload is cheaper or needed."""
    if last == cache.covered_seq:
        return True
    numbers = changed_numbers(db, namespace, cache.covered_seq, _MAX_CHANGES)
    if last < cache.covered_seq or numbers is None or cache.is_sparse():
        return False
    for number in numbers:
        cache.remove(number)
    for row in read_rows(db, where, cache.slot, numbers=numbers):
        if cache.write_order and _write_order_of(row) < cache.write_order[-1]:
            return False  # something came back that belongs before others
        cache.append(row)
    return cache.pool.size <= MAX_CACHED_ENTRIES + _MAX_CHANGES


def changed_numbers(db: Database, namespace: str, after: int, limit: int) -> list[int] | None:
    """Return the row numbers that changed after a sequence number; None if there are too many."""
    found = db.execute(
        "SELECT no FROM log WHERE namespace = ? AND seq > ? ORDER BY seq LIMIT ?",
        (namespace, after, limit + 1),
    ).fetchall()
    return None if len(found) > limit else [*dict.fromkeys(no for (no,) in found)]


def _exceeds_limit(db: Database, where: rows.WhereClause) -> bool:
    """Return True if a scope is too large to cache, without reading its rows."""
    condition, parameters = where
    (count,) = db.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM entries e WHERE {condition} AND live = 1 LIMIT ?) AS held",
        (*parameters, MAX_CACHED_ENTRIES + 1),
    ).fetchone()
    return int(count) > MAX_CACHED_ENTRIES


def read_rows(
    db: Database,
    where: rows.WhereClause,
    slot: int,
    *,
    numbers: Sequence[int] | None = None,
    statuses: Sequence[int] = (truth.LIVE,),
) -> list[CacheRow]:
    """Read the rows of a scope, or some of them, in write order."""
    condition, parameters = where
    condition += rows.status_condition(statuses)
    if numbers is None:
        found = db.execute(f"{_SELECT}{condition}", (slot, *parameters)).fetchall()
    else:
        found = [*_read_numbers(db, condition, parameters, slot, numbers)]
    found.sort(key=_write_order_of)
    return found


def _read_numbers(
    db: Database, condition: str, parameters: Sequence[Any], slot: int, numbers: Sequence[int]
) -> Iterator[CacheRow]:
    """Read single rows in batches."""
    for batch in rows.batches(sorted(numbers)):
        marks = ",".join("?" * len(batch))
        # Otherwise SQLite walks an index of the scope instead of looking the numbers up.
        mark = db.dialect.no_index_prefix
        looser = condition.replace("owner", f"{mark}owner", 1).replace("session=", f"{mark}session=")
        statement = f"{_SELECT}e.no IN ({marks}) AND {looser}"
        yield from db.execute(statement, (slot, *batch, *parameters))


def _write_order_of(row: CacheRow) -> int:
    written: int = row[11]
    return written
