"""Which signs that a row answers the question are there?

Each sign is a column, one number for every row. The arms (vector, window, own, tokens, near, episode) are z-scores
over the pool, the others lie between 0 and 1.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from omoide.retrieval import features, words
from omoide.retrieval.lexical import lexical
from omoide.retrieval.neighbours import around
from omoide.retrieval.pool import ASSISTANT, USER, Array, Pool
from omoide.retrieval.query import Query
from omoide.retrieval.vectors import cosine, maxsim

DAY = 86_400_000
Columns = dict[str, Array]


class Embedded(Protocol):
    """What an embedder gives for a text."""

    @property
    def pooled(self) -> Array: ...
    @property
    def tokens(self) -> Array | None: ...
    @property
    def words(self) -> tuple[str, ...] | None: ...


def z(column: Array, among: Array | None = None) -> Array:
    """The column in standard deviations from its mean; all zero when it does not vary."""
    base = column if among is None else column[among]
    if not len(base):
        return np.zeros(len(column))
    spread = float(base.std())
    return (column - base.mean()) / spread if spread > 1e-9 else np.zeros(len(column))


def first(query: Query, pool: Pool, vector: Embedded | None, *, k1: float, b: float) -> Columns:
    """The signs of every row."""
    live = pool.live if not pool.live.all() else None
    ids = [words.term_id(term) for term in query.terms]
    matched = lexical(ids, pool, k1=k1, b=b)
    columns: Columns = {"window": z(matched.window, live), "own": z(matched.own, live)}
    if vector is not None:
        columns["vector"] = z(cosine(vector.pooled, pool), live)
    columns["asks"] = (pool.column("flags") & features.ASKS > 0).astype(np.float64)
    columns["speaker"] = _speaker(query, pool)
    columns["date"] = agreement(query, pool.column("time"))
    columns["role"] = _role(query, pool)
    columns["reply"] = _reply(columns.get("vector", 0.0) + columns["window"], pool)
    return columns | _boosts(pool)


def second(
    query: Query, pool: Pool, vector: Embedded | None, columns: Columns, total: Array, rows: Array
) -> Columns:
    """The signs of the best rows, among themselves."""
    found = {name: column[rows] for name, column in columns.items()}
    near = around(pool)
    base = columns["vector"] if "vector" in columns else columns["window"]
    padded = np.append(base, -np.inf)
    beside = np.maximum(padded[near.table[rows, 0]], padded[near.table[rows, 1]])
    found["near"] = np.where(np.isfinite(beside), beside, base[rows])
    found["episode"] = _episode(total, near.episode, near.episodes, rows)
    found["length"] = np.log1p(np.minimum(pool.column("length")[rows], 60)) / np.log(61)
    if vector is not None and vector.tokens is not None and vector.words is not None and pool.tokens is not None:
        held = list(pool.tokens(rows))
        found["tokens"] = z(maxsim(vector.tokens, token_weights(vector.words, pool), held))
    return found


def token_weights(tokens: tuple[str, ...], pool: Pool) -> Array:
    """How much each token of the question counts: by how rare its word is; little for a stop word."""
    found = []
    for word in tokens:
        split = words.words(word)
        term = words.term_of(split[0]) if split else ""
        found.append(_rarity(words.term_id(term), pool) if term else 0.5 if split else 0.1)
    return np.array(found, np.float32)


def _rarity(term: int, pool: Pool) -> float:
    known = pool.statistics.frequencies.get(term) if pool.statistics else None
    total = pool.statistics.count if pool.statistics else pool.size
    frequency = int((pool.terms == term).sum()) if known is None else known
    return float(np.log1p((max(total - frequency, 0) + 0.5) / (frequency + 0.5)))


def _speaker(query: Query, pool: Pool) -> Array:
    if len(query.named) != 1:
        return np.zeros(pool.size)
    return (pool.column("speaker") == next(iter(query.named))).astype(np.float64)


def agreement(query: Query, time: Array) -> Array:
    """How well the time of each row agrees with the times the question names; a little later still agrees."""
    found = np.zeros(len(time))
    for start, end, weight in query.times:
        late = np.clip((time - end) / (7 * DAY), 0, None)
        found = np.maximum(found, np.where(time >= start, weight * np.clip(1 - late, 0, 1), 0.0))
    return found


def _role(query: Query, pool: Pool) -> Array:
    role = pool.column("role")
    asked = role == (ASSISTANT if query.addressed else USER)
    held = role[pool.live]
    both = (held == USER).any() and (held == ASSISTANT).any()
    return asked.astype(np.float64) if both else np.zeros(pool.size)


def _reply(base: Array, pool: Pool) -> Array:
    role = np.append(pool.column("role"), -1)
    after = around(pool).table[:, 1]
    padded = np.append(base, 0.0)
    return np.where((role[:-1] == USER) & (role[after] == ASSISTANT), np.maximum(padded[after], 0.0), 0.0)


def _episode(total: Array, episode: Array, episodes: int, rows: Array) -> Array:
    if not episodes:
        return np.zeros(len(rows))
    best = np.full(episodes + 1, -np.inf)
    np.maximum.at(best, episode, total)  # rows of no episode share the last place, which nobody reads
    found = best[episode[rows]]
    return np.where(episode[rows] >= 0, found, total[rows])


def _boosts(pool: Pool) -> Columns:
    time = pool.column("time")
    held = time[pool.live]
    oldest, newest = (int(held.min()), int(held.max())) if len(held) else (0, 0)
    importance = np.nan_to_num(pool.importance, nan=0.5)
    return {
        "recency": (time - oldest) / max(newest - oldest, 1),
        "confidence": np.clip(pool.confidence, 0.0, 1.0),
        "importance": np.clip(importance, 0.0, 1.0),
    }
