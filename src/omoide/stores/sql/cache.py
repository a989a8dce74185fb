"""Which entries of a scope are held in memory, ready to be scored?

A shelf is a scope of moderate size as columns. It knows the change that it covers: before each use the
changes since are applied, inside the same read transaction, so that what another process erased is gone.

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
"""Entries that a shelf holds at most; larger scopes are searched by `wide`."""

_MAX_CHANGES = 2_000  # changes from which on a shelf is filled anew

_SELECT = f"""SELECT e.no, e.features, e.time, e.thread, e.seq, e.role, e.speaker, e.confidence, e.importance,
    e.expires, v.pooled, e.written FROM entries e LEFT JOIN vectors v ON v.key = e.no * {SLOTS} + ? WHERE """


def attach_token_reader(db: Database, cache: ScopeCache) -> None:
    """Let the pool of a cache read token vectors through this connection from now on."""

    def read(places: Array) -> list[Array]:
        keys = [cache.numbers[place] * SLOTS + cache.slot for place in places]
        found: dict[int, bytes] = {}
        for some in rows.batches(keys):
            marks = ",".join("?" * len(some))
            found.update(db.execute(f"SELECT key, tokens FROM tokens WHERE key IN ({marks})", some))
        empty = np.zeros((0, TOKEN_DIM), np.int8)
        return [
            np.frombuffer(found[key], np.int8).reshape(-1, TOKEN_DIM) if key in found else empty
            for key in keys
        ]

    has_tokens = bool(cache.numbers) and db.execute("SELECT 1 FROM tokens LIMIT 1").fetchone() is not None
    cache.pool.token_loader = read if has_tokens else None


def refresh(db: Database, cache: ScopeCache, where: rows.WhereClause, namespace: str) -> bool:
    """Apply what changed since the shelf was last used; False if the scope is too large for one."""
    life, last = rows.latest_change(db, namespace)
    if cache.generation != life or not _apply_changes(db, cache, where, namespace, last):
        if _exceeds_limit(db, where):
            return False
        cache.expired_until = 0
        cache.fill(read_rows(db, where, cache.slot))
    cache.generation, cache.covered_seq = life, last
    return True


def _apply_changes(
    db: Database, cache: ScopeCache, where: rows.WhereClause, namespace: str, last: int
) -> bool:
    """Apply single changes, if they are not too many."""
    if last == cache.covered_seq:
        return True
    numbers = changed_numbers(db, namespace, cache.covered_seq, _MAX_CHANGES)
    if last < cache.covered_seq or numbers is None or cache.is_sparse():
        return False
    for number in numbers:
        cache.remove(number)
    for found in read_rows(db, where, cache.slot, numbers=numbers):
        if cache.write_order and _write_order_of(found) < cache.write_order[-1]:
            return False  # something came back that belongs before others
        cache.append(found)
    return cache.pool.size <= MAX_CACHED_ENTRIES + _MAX_CHANGES


def changed_numbers(db: Database, namespace: str, after: int, limit: int) -> list[int] | None:
    """The numbers of the entries of a namespace that changed since; None after too many changes."""
    found = db.execute(
        "SELECT no FROM log WHERE namespace = ? AND seq > ? ORDER BY seq LIMIT ?",
        (namespace, after, limit + 1),
    ).fetchall()
    return None if len(found) > limit else [*dict.fromkeys(no for (no,) in found)]


def _exceeds_limit(db: Database, where: rows.WhereClause) -> bool:
    """Whether a scope holds more than fits on a shelf, found before any of it is read."""
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
    """The rows of a scope that count, or some of them, in the order in which they were last written."""
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
    for some in rows.batches(sorted(numbers)):
        marks = ",".join("?" * len(some))
        # Otherwise SQLite walks an index of the scope instead of looking the numbers up.
        mark = db.dialect.no_index_prefix
        looser = condition.replace("owner", f"{mark}owner", 1).replace("session=", f"{mark}session=")
        statement = f"{_SELECT}e.no IN ({marks}) AND {looser}"
        yield from db.execute(statement, (slot, *some, *parameters))


def _write_order_of(row: CacheRow) -> int:
    written: int = row[11]
    return written
