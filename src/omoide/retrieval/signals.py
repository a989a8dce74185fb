"""Which signs that a row answers the question are there?

Each sign is a column, one number for every row. What the arms say are z-scores, the others lie between 0
and 1.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple, Protocol

import numpy as np

from omoide.retrieval import features, words
from omoide.retrieval.lexical import Lexical, frequency, lexical, living, rarity
from omoide.retrieval.neighbours import Around, around, context
from omoide.retrieval.pool import ASSISTANT, USER, Array, Pool
from omoide.retrieval.query import Query
from omoide.retrieval.vectors import closest, cosine

DAY = 86_400_000
LATE = 7 * DAY
"""How long after a time what is said of it still agrees with it, less and less."""
SAMPLED = 16_384
"""Terms of the pool from which it is told how rare each is."""
SMALL = 2_000
"""Rows up to which what is known of each is worked out for all of them at once."""
SPREAD = 0.5
"""How far the rareness of rows usually lies apart; in a small pool it would be chance to measure it."""
MOST = 2.0
"""How much rareness may say for or against a row."""
_TELLING = {
    "when": features.TELLS_TIME,
    "count": features.TELLS_NUMBER,
    "where": features.TELLS_PLACE,
    "who": features.TELLS_NAME,
    "why": features.TELLS_REASON,
}
Columns = dict[str, Array]


class Embedded(Protocol):
    """What an embedder gives for a text."""

    @property
    def pooled(self) -> Array: ...
    @property
    def tokens(self) -> Array | None: ...
    @property
    def words(self) -> tuple[str, ...] | None: ...


class First(NamedTuple):
    """The signs of every row."""

    columns: Columns
    lexical: Lexical
    weights: dict[int, float]
    """How rare each term of the question is."""


def z(column: Array, among: Array | None = None) -> Array:
    """The column in standard deviations from its mean; all zero when it does not vary."""
    base = column if among is None else column[among]
    if not len(base):
        return np.zeros(len(column))
    mean = base.sum() / len(base)
    away = base - mean
    spread = sqrt(float(away @ away) / len(base))
    if spread <= 1e-9:
        return np.zeros(len(column))
    scaled: Array = (away if among is None else column - mean) / spread
    return scaled


def first(query: Query, pool: Pool, vector: Embedded | None, *, k1: float, b: float) -> First:
    """The signs of every row."""
    live = None if living(pool) == pool.size else pool.live
    ids = [words.term_id(term) for term in query.terms]
    matched = lexical(ids, pool, k1=k1, b=b)
    columns: Columns = {"window": z(matched.window, live), "own": z(matched.own, live)}
    if vector is not None:
        columns["vector"] = z(cosine(vector.pooled, pool), live)
    columns["asks"] = pool.derive("asks", _asks)
    columns["date"] = agreement(query, pool.column("time"))
    columns |= _speaker(query, pool)
    columns |= _roles(query, pool, columns.get("vector", 0.0) + columns["window"])
    rare = dict(zip(ids, matched.idf.tolist(), strict=True))
    return First(columns | pool.derive("boosts", _boosts), matched, rare)


def second(
    query: Query, pool: Pool, vector: Embedded | None, seen: First, total: Array, rows: Array
) -> Columns:
    """The signs of the best rows, among themselves."""
    found = {name: column[rows] for name, column in seen.columns.items()}
    near = around(pool)
    flags = pool.column("flags")
    found |= _episode(total, near, rows)
    found["kind"] = _kind(query, flags[rows])
    found["rarity"] = _rarity(pool, rows)
    if "vector" in found:
        beside = near.table[rows, :2]
        lent = np.append(seen.columns["vector"], 0.0)[beside].sum(axis=1)
        found["wide"] = (2 * found["vector"] + lent) / (2 + (beside < pool.size).sum(axis=1))
    return found | _context(pool, vector, seen, rows, near)


def _context(pool: Pool, vector: Embedded | None, seen: First, rows: Array, near: Around) -> Columns:
    """How well what was said around each row covers the question: word by word, the nearest counting most."""
    beside = context(pool, rows)
    if vector is None or vector.tokens is None or vector.words is None or pool.tokens is None:
        has = np.append(seen.lexical.has, np.zeros((1, len(seen.weights)), np.float32), axis=0)
        covered = _faded(has[rows], has, beside.rows, beside.nearness)
        return {"cover": z(covered @ seen.lexical.idf)}
    kept = words.content(vector.words)
    weights = token_weights([vector.words[at] for at in kept], pool, seen.weights)
    mask = np.zeros(pool.size + 1, np.bool_)
    mask[beside.rows] = True
    mask[rows] = True
    mask[-1] = False
    wanted = np.flatnonzero(mask)
    close = closest(vector.tokens[kept], pool.tokens_of(wanted), weights)
    close = np.append(close, np.zeros((1, len(kept)), np.float32), axis=0)
    where = np.full(pool.size + 1, len(wanted))
    where[wanted] = np.arange(len(wanted))
    alone = close @ weights
    own, before = where[rows], near.table[rows, 0]
    asked = np.append(pool.column("flags"), 0)[before] & features.ASKS > 0
    # The row before is measured by the same rule as the rows themselves.
    both = z(np.append(alone[own], alone[where[before]]).astype(np.float64), np.arange(len(rows)))
    return {
        "tokens": both[: len(rows)],
        "context": z(_faded(close[own], close, where[beside.rows], beside.nearness) @ weights),
        "before": np.where(asked, both[len(rows) :], 0.0),
    }


def _faded(mine: Array, others: Array, beside: Array, nearness: Array) -> Array:
    """For each row and word, the best match in the row or around it."""
    if not mine.shape[1]:
        return mine
    others = others[beside.T]
    others *= nearness.T[:, :, None]
    best: Array = np.maximum(mine, others.max(axis=0))
    return best


def token_weights(tokens: list[str], pool: Pool, known: dict[int, float]) -> Array:
    """How much each token of the question counts: the more, the rarer its word."""
    found = []
    for word in tokens:
        term = next((term for part in words.words(word) if (term := words.term_of(part))), "")
        number = words.term_id(term)
        rare = known.get(number) if term else 0.5
        found.append(rarity(number, frequency(number, pool), pool) if rare is None else rare)
    weights = np.sqrt(np.array(found, np.float32))
    return weights / max(float(weights.sum()), 1e-9)


def agreement(query: Query, time: Array) -> Array:
    """How well the time of each row agrees with the times the question names; a little later still agrees."""
    found = np.zeros(len(time))
    for start, end, weight in query.times:
        late = np.minimum(np.maximum((time - end) / LATE, 0.0), 1.0)
        found = np.maximum(found, np.where(time >= start, weight * (1.0 - late), 0.0))
    return found


def _asks(pool: Pool) -> Array:
    return _has(pool.column("flags"), features.ASKS)


def _has(flags: Array, flag: int) -> Array:
    return (flags & flag > 0).astype(np.float64)


def _speaker(query: Query, pool: Pool) -> Columns:
    """Whether the one person named said it, and of themselves."""
    if len(query.named) != 1:
        nothing = np.zeros(pool.size)
        return {"speaker": nothing, "told": nothing}
    mine = pool.column("speaker") == next(iter(query.named))
    flags = pool.column("flags")
    return {
        "speaker": mine.astype(np.float64),
        "told": mine * _has(flags, features.FIRST_PERSON),
    }


def _kind(query: Query, flags: Array) -> Array:
    """Whether the row tells a thing of the kind asked for."""
    found = _has(flags, _TELLING.get(query.kind, 0))
    if query.kind == "when":
        return np.maximum(found, 0.4 * _has(flags, features.TELLS_RECENT))
    return found


def _roles(query: Query, pool: Pool, base: Array) -> Columns:
    role = pool.column("role")
    held = role[pool.live]
    if not ((held == USER).any() and (held == ASSISTANT).any()):
        nothing = np.zeros(pool.size)
        return {"role": nothing, "reply": nothing}
    after = around(pool).table[:, 1]
    replied = (role == USER) & (np.append(role, -1)[after] == ASSISTANT)
    return {
        "role": (role == (ASSISTANT if query.addressed else USER)).astype(np.float64),
        "reply": np.where(replied, np.maximum(np.append(base, 0.0)[after], 0.0), 0.0),
    }


def _episode(total: Array, near: Around, rows: Array) -> Columns:
    """How good the best row of the same episode is, and how many of its rows are better."""
    episode = near.episode[rows]
    inside = episode >= 0
    if not inside.any():
        nothing = np.zeros(len(rows))
        return {"episode": nothing, "crowd": nothing}
    best = np.full(near.episodes + 1, -np.inf)  # rows of no episode share the last place
    np.maximum.at(best, near.episode, total)
    order = np.lexsort((-total[rows], episode))
    starts = np.searchsorted(episode[order], episode[order])
    crowd = np.empty(len(rows))
    crowd[order] = np.log1p(np.arange(len(rows)) - starts)
    return {
        "episode": np.where(inside, best[episode], total[rows]),
        "crowd": np.where(inside, crowd, 0.0),
    }


def _rarity(pool: Pool, rows: Array) -> Array:
    """How rare the terms of these rows are, on average, against that of all of them."""
    if pool.size <= SMALL:
        found = pool.derive("rarity", lambda pool: _rareness(pool, np.arange(pool.size)))[rows]
    else:
        found = _rareness(pool, rows)
    rare: Array = np.minimum(np.maximum((found - found.mean()) / SPREAD, -MOST), MOST)
    return rare


def _rareness(pool: Pool, rows: Array) -> Array:
    known, counts, sampled = pool.derive("frequencies", _frequencies)
    sizes = pool.column("count")
    mine = sizes[rows]
    owner = np.repeat(np.arange(len(rows)), mine)
    within = np.arange(len(owner)) - np.repeat(np.cumsum(mine) - mine, mine)
    asked = pool.terms[(np.cumsum(sizes) - sizes)[rows][owner] + within]
    if not len(known) or not len(asked):
        return np.zeros(len(rows))
    at = np.minimum(np.searchsorted(known, asked), len(known) - 1)
    times = np.where(known[at] == asked, counts[at], 0)
    rare = np.log1p((sampled + 1.0) / (times + 0.5))
    return np.bincount(owner, rare, minlength=len(rows)) / np.maximum(mine, 1)


def _frequencies(pool: Pool) -> tuple[Array, Array, int]:
    terms = pool.terms
    if living(pool) < pool.size:
        terms = terms[np.repeat(pool.live, pool.column("count"))]
    terms = terms[:: -(-len(terms) // SAMPLED) or 1]
    known, counts = np.unique(terms, return_counts=True)
    return known, counts, len(terms)


def _boosts(pool: Pool) -> Columns:
    time = pool.column("time")
    held = time[pool.live]
    oldest, newest = (int(held.min()), int(held.max())) if len(held) else (0, 0)
    return {
        "recency": np.clip((time - oldest) / max(newest - oldest, 1), 0.0, 1.0),
        "confidence": np.clip(pool.confidence, 0.0, 1.0),
        "importance": np.clip(np.nan_to_num(pool.importance, nan=0.5), 0.0, 1.0),
    }
