"""Signals, weights, blended score, explanation.

Each sign is a column, one number for every row. What the arms say are z-scores, the others lie between 0
and 1.

The defaults were chosen by cross-validation over conversations (`bench/weights.py`). The arms give z-scores,
so a weight of 1 is one standard deviation.

Every row is scored by every arm and the scores are blended as z-scores with the signs of agreement; the best
rows are then weighed again, word by word and together with what was said around them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol, Self

import msgspec
import numpy as np

from omoide.retrieval import features, text
from omoide.retrieval.arms import (
    Around,
    Lexical,
    around,
    closest,
    context,
    cosine,
    frequency,
    lexical,
    living,
    rarity,
)
from omoide.retrieval.pool import ASSISTANT, USER, Array, Pool
from omoide.retrieval.query import Query

# signals: Which signs that a row answers the question are there?


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
    ids = [text.term_id(term) for term in query.terms]
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
    kept = text.content(vector.words)
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
        term = next((term for part in text.words(word) if (term := text.term_of(part))), "")
        number = text.term_id(term)
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


# weights: How much does each sign that a row answers the question count?


class Signs(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weight of each sign; 0 leaves it out."""

    vector: float = 0.0
    wide: float = 0.0
    window: float = 0.0
    own: float = 0.0
    cover: float = 0.0
    tokens: float = 0.0
    context: float = 0.0
    before: float = 0.0
    episode: float = 0.0
    crowd: float = 0.0
    speaker: float = 0.0
    told: float = 0.0
    date: float = 0.0
    kind: float = 0.0
    asks: float = 0.0
    rarity: float = 0.0
    role: float = 0.0
    reply: float = 0.0
    recency: float = 0.02
    confidence: float = 0.05
    importance: float = 0.05


class Weights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights of both stages."""

    first: Signs
    second: Signs | None = None
    """For the best rows of the first stage; None leaves the order as it was."""
    depth: int = 100
    """How many rows the second stage looks at."""
    k1: float = 0.9
    b: float = 0.6

    @classmethod
    def default(cls, *, vectors: bool, tokens: bool) -> Self:
        """The weights for what the embedder gives."""
        if not vectors:
            return cls(first=_WORDS, second=_WORDS_AGAIN)
        return cls(first=_MEANING, second=_TOKENS_AGAIN if tokens else _MEANING_AGAIN)


_WORDS = Signs(window=0.6, speaker=1.0, date=2.0, asks=-1.0, role=1.0, reply=0.3)
_MEANING = Signs(vector=1.0, window=0.6, speaker=1.0, date=2.0, asks=-1.0, role=1.0, reply=0.3)
_WORDS_AGAIN = Signs(
    window=0.25, own=0.15, cover=0.65, episode=0.45, crowd=-0.15, speaker=1.2, told=0.6, date=3.0, kind=1.8,
    asks=-0.7, rarity=0.35, role=1.0, reply=0.3,
)  # fmt: skip
_MEANING_AGAIN = Signs(
    vector=0.1, wide=0.4, window=0.2, own=0.1, cover=0.45, episode=0.3, crowd=-0.15, speaker=1.2, told=0.6,
    date=3.0, kind=1.8, asks=-0.85, rarity=0.35, role=1.0, reply=0.3,
)  # fmt: skip
_TOKENS_AGAIN = Signs(
    vector=0.05, wide=0.2, window=0.15, own=0.1, tokens=0.2, context=0.95, before=0.2, episode=0.2,
    crowd=-0.15, speaker=1.2, told=0.6, date=3.0, kind=1.6, asks=-0.7, rarity=0.3, role=1.0, reply=0.3,
)  # fmt: skip


# scoring: How well does each row answer the question, and why?


SMALL_SCORING = 4_000
"""Rows up to which a column is sorted to tell ranks in it."""


class Part(NamedTuple):
    """What one sign added to a row's score, and the row's rank by it alone, from 1."""

    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Scored:
    """The score of every row, and what it is made of."""

    total: Array
    """Minus infinity for rows that were dropped."""
    parts: dict[str, Array]
    """What each sign added, row by row."""

    def top(self, limit: int) -> Array:
        """The indexes of the best rows, best first; equal rows in the order in which they came."""
        return _best(self.total, limit)

    def why(self, row: int) -> dict[str, Part]:
        """What made the score of this row; what added nothing is left out."""
        return self.whys([row])[0]

    def whys(self, rows: Sequence[int]) -> list[dict[str, Part]]:
        """The same for several rows."""
        found: list[dict[str, Part]] = [{} for _ in rows]
        for name, column in self.parts.items():
            values = column[rows]
            if not values.any():
                continue
            ranks = _ranks(column, values).tolist()
            for parts, value, rank in zip(found, values.tolist(), ranks, strict=True):
                if value:
                    parts[name] = Part(value, rank)
        return found


def _ranks(column: Array, values: Array) -> Array:
    """How many of the column are higher than each value, and one more."""
    if (
        len(column) > SMALL_SCORING
    ):  # sorting a long column takes longer than looking through it for every value
        return np.array([np.count_nonzero(column > value) for value in values]) + 1
    higher: Array = len(column) - np.sort(column).searchsorted(values, side="right") + 1
    return higher


def score(
    query: Query,
    pool: Pool,
    *,
    vector: Embedded | None = None,
    weights: Weights | None = None,
    among: Array | None = None,
) -> Scored:
    """Score every row of the pool; with `among`, the second look is kept for the rows of that mask."""
    if not pool.live.any():
        return Scored(total=np.full(pool.size, -np.inf), parts={})
    with np.errstate(invalid="ignore"):  # some BLAS kernels raise the flag over lanes that nobody reads
        return _score(query, pool, vector, weights, among)


def _score(
    query: Query, pool: Pool, vector: Embedded | None, weights: Weights | None, among: Array | None
) -> Scored:
    if not len(pool.vectors):
        vector = None
    if weights is None:
        deep = vector is not None and vector.tokens is not None and pool.tokens is not None
        weights = Weights.default(vectors=vector is not None, tokens=deep)
    seen = first(query, pool, vector, k1=weights.k1, b=weights.b)
    parts = _weighed(seen.columns, weights.first)
    total = sum(parts.values(), np.zeros(pool.size))
    total[~pool.live] = -np.inf
    if weights.second is not None:
        rows = _best(total if among is None else np.where(among, total, -np.inf), weights.depth)
        if len(rows):
            again = _weighed(second(query, pool, vector, seen, total, rows), weights.second)
            total = _replaced(parts, again, total, rows)
    return Scored(total=total, parts=parts)


def _weighed(columns: Columns, weights: Signs) -> Columns:
    given = msgspec.structs.asdict(weights)
    return {name: column * given[name] for name, column in columns.items() if given[name]}


def _best(total: Array, depth: int) -> Array:
    """The rows with the highest scores, in order."""
    count = min(depth, int(np.isfinite(total).sum()))
    return np.argsort(-total, kind="stable")[:count]


def _replaced(parts: Columns, again: Columns, total: Array, rows: Array) -> Array:
    """The scores with those of the best rows weighed again; all others follow them in their order."""
    fresh = sum(again.values(), np.zeros(len(rows)))
    others = np.delete(total, rows)
    highest = float(others.max()) if len(others) else 0.0
    rest = total - highest + float(fresh.min()) - 1e-6 if np.isfinite(highest) else total.copy()
    rest[rows] = fresh
    for name in dict.fromkeys([*parts, *again]):
        column = parts.setdefault(name, np.zeros(len(total)))
        column[rows] = again.get(name, 0.0)
    return rest
