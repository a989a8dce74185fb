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
from omoide.retrieval.pool import ASSISTANT, USER, Array, CandidatePool
from omoide.retrieval.query import ParsedQuery
from omoide.retrieval.scores import (
    LexicalMatch,
    Neighbours,
    context_window,
    cosine_similarity,
    document_frequency,
    inverse_document_frequency,
    lexical_match,
    live_count,
    max_similarity,
    neighbours_of,
)

# signals: Which signs that a row answers the question are there?


DAY_MS = 86_400_000
MAX_LATENESS_MS = 7 * DAY_MS
"""How long after a time what is said of it still agrees with it, less and less."""
MAX_SAMPLED_TERMS = 16_384
"""Terms of the pool from which it is told how rare each is."""
MAX_PRECOMPUTED_ROWS = 2_000
"""Rows up to which what is known of each is worked out for all of them at once."""
RARITY_SPREAD = 0.5
"""How far the rareness of rows usually lies apart; in a small pool it would be chance to measure it."""
MAX_RARITY = 2.0
"""How much rareness may say for or against a row."""
_KIND_FLAGS = {
    "when": features.MENTIONS_TIME,
    "count": features.MENTIONS_NUMBER,
    "where": features.MENTIONS_PLACE,
    "who": features.MENTIONS_NAME,
    "why": features.MENTIONS_REASON,
}
FeatureColumns = dict[str, Array]


class QueryEmbedding(Protocol):
    """What an embedder gives for a text."""

    @property
    def pooled(self) -> Array: ...
    @property
    def tokens(self) -> Array | None: ...
    @property
    def words(self) -> tuple[str, ...] | None: ...


class FirstStage(NamedTuple):
    """The signs of every row."""

    columns: FeatureColumns
    lexical: LexicalMatch
    term_weights: dict[int, float]
    """How rare each term of the question is."""


def z_scores(column: Array, subset: Array | None = None) -> Array:
    """The column in standard deviations from its mean; all zero when it does not vary."""
    base = column if subset is None else column[subset]
    if not len(base):
        return np.zeros(len(column))
    mean = base.sum() / len(base)
    away = base - mean
    spread = sqrt(float(away @ away) / len(base))
    if spread <= 1e-9:
        return np.zeros(len(column))
    scaled: Array = (away if subset is None else column - mean) / spread
    return scaled


def first_stage(
    query: ParsedQuery, pool: CandidatePool, vector: QueryEmbedding | None, *, k1: float, b: float
) -> FirstStage:
    """The signs of every row."""
    live = None if live_count(pool) == pool.size else pool.live
    ids = [text.term_id(term) for term in query.terms]
    matched = lexical_match(ids, pool, k1=k1, b=b)
    columns: FeatureColumns = {
        "window": z_scores(matched.window_score, live),
        "own": z_scores(matched.own_score, live),
    }
    if vector is not None:
        columns["vector"] = z_scores(cosine_similarity(vector.pooled, pool), live)
    columns["asks"] = pool.derive("asks", _question_flags)
    columns["date"] = date_agreement(query, pool.column("time"))
    columns |= _speaker_features(query, pool)
    columns |= _role_features(query, pool, columns.get("vector", 0.0) + columns["window"])
    rare = dict(zip(ids, matched.idf.tolist(), strict=True))
    return FirstStage(columns | pool.derive("boosts", _boost_features), matched, rare)


def second_stage(
    query: ParsedQuery,
    pool: CandidatePool,
    vector: QueryEmbedding | None,
    first: FirstStage,
    total: Array,
    rows: Array,
) -> FeatureColumns:
    """The signs of the best rows, among themselves."""
    found = {name: column[rows] for name, column in first.columns.items()}
    near = neighbours_of(pool)
    flags = pool.column("flags")
    found |= _episode_features(total, near, rows)
    found["kind"] = _kind_feature(query, flags[rows])
    found["rarity"] = _rarity_feature(pool, rows)
    if "vector" in found:
        beside = near.table[rows, :2]
        lent = np.append(first.columns["vector"], 0.0)[beside].sum(axis=1)
        found["wide"] = (2 * found["vector"] + lent) / (2 + (beside < pool.size).sum(axis=1))
    return found | _context_features(pool, vector, first, rows, near)


def _context_features(
    pool: CandidatePool, vector: QueryEmbedding | None, first: FirstStage, rows: Array, neighbours: Neighbours
) -> FeatureColumns:
    """How well what was said around each row covers the question: word by word, the nearest counting most."""
    beside = context_window(pool, rows)
    if vector is None or vector.tokens is None or vector.words is None or pool.token_loader is None:
        has = np.append(first.lexical.has_term, np.zeros((1, len(first.term_weights)), np.float32), axis=0)
        covered = _best_nearby_match(has[rows], has, beside.rows, beside.proximity)
        return {"cover": z_scores(covered @ first.lexical.idf)}
    kept = text.content_token_indexes(vector.words)
    weights = token_weights([vector.words[at] for at in kept], pool, first.term_weights)
    mask = np.zeros(pool.size + 1, np.bool_)
    mask[beside.rows] = True
    mask[rows] = True
    mask[-1] = False
    wanted = np.flatnonzero(mask)
    close = max_similarity(vector.tokens[kept], pool.tokens_of(wanted), weights)
    close = np.append(close, np.zeros((1, len(kept)), np.float32), axis=0)
    where = np.full(pool.size + 1, len(wanted))
    where[wanted] = np.arange(len(wanted))
    alone = close @ weights
    own, before = where[rows], neighbours.table[rows, 0]
    asked = np.append(pool.column("flags"), 0)[before] & features.IS_QUESTION > 0
    # The row before is measured by the same rule as the rows themselves.
    both = z_scores(np.append(alone[own], alone[where[before]]).astype(np.float64), np.arange(len(rows)))
    return {
        "tokens": both[: len(rows)],
        "context": z_scores(
            _best_nearby_match(close[own], close, where[beside.rows], beside.proximity) @ weights
        ),
        "before": np.where(asked, both[len(rows) :], 0.0),
    }


def _best_nearby_match(own: Array, others: Array, beside: Array, proximity: Array) -> Array:
    """For each row and word, the best match in the row or around it."""
    if not own.shape[1]:
        return own
    others = others[beside.T]
    others *= proximity.T[:, :, None]
    best: Array = np.maximum(own, others.max(axis=0))
    return best


def token_weights(tokens: list[str], pool: CandidatePool, term_weights: dict[int, float]) -> Array:
    """How much each token of the question counts: the more, the rarer its word."""
    found = []
    for word in tokens:
        term = next((term for part in text.words(word) if (term := text.term_of(part))), "")
        number = text.term_id(term)
        rare = term_weights.get(number) if term else 0.5
        found.append(
            inverse_document_frequency(number, document_frequency(number, pool), pool)
            if rare is None
            else rare
        )
    weights = np.sqrt(np.array(found, np.float32))
    return weights / max(float(weights.sum()), 1e-9)


def date_agreement(query: ParsedQuery, time: Array) -> Array:
    """How well the time of each row agrees with the times the question names; a little later still agrees."""
    found = np.zeros(len(time))
    for start, end, weight in query.times:
        late = np.minimum(np.maximum((time - end) / MAX_LATENESS_MS, 0.0), 1.0)
        found = np.maximum(found, np.where(time >= start, weight * (1.0 - late), 0.0))
    return found


def _question_flags(pool: CandidatePool) -> Array:
    return _flag_column(pool.column("flags"), features.IS_QUESTION)


def _flag_column(flags: Array, flag: int) -> Array:
    return (flags & flag > 0).astype(np.float64)


def _speaker_features(query: ParsedQuery, pool: CandidatePool) -> FeatureColumns:
    """Whether the one person named said it, and of themselves."""
    if len(query.named_speakers) != 1:
        nothing = np.zeros(pool.size)
        return {"speaker": nothing, "told": nothing}
    mine = pool.column("speaker") == next(iter(query.named_speakers))
    flags = pool.column("flags")
    return {
        "speaker": mine.astype(np.float64),
        "told": mine * _flag_column(flags, features.FIRST_PERSON),
    }


def _kind_feature(query: ParsedQuery, flags: Array) -> Array:
    """Whether the row tells a thing of the kind asked for."""
    found = _flag_column(flags, _KIND_FLAGS.get(query.kind, 0))
    if query.kind == "when":
        return np.maximum(found, 0.4 * _flag_column(flags, features.MENTIONS_RECENT))
    return found


def _role_features(query: ParsedQuery, pool: CandidatePool, base: Array) -> FeatureColumns:
    role = pool.column("role")
    held = role[pool.live]
    if not ((held == USER).any() and (held == ASSISTANT).any()):
        nothing = np.zeros(pool.size)
        return {"role": nothing, "reply": nothing}
    after = neighbours_of(pool).table[:, 1]
    replied = (role == USER) & (np.append(role, -1)[after] == ASSISTANT)
    return {
        "role": (role == (ASSISTANT if query.asks_assistant else USER)).astype(np.float64),
        "reply": np.where(replied, np.maximum(np.append(base, 0.0)[after], 0.0), 0.0),
    }


def _episode_features(total: Array, neighbours: Neighbours, rows: Array) -> FeatureColumns:
    """How good the best row of the same episode is, and how many of its rows are better."""
    episode = neighbours.episode[rows]
    inside = episode >= 0
    if not inside.any():
        nothing = np.zeros(len(rows))
        return {"episode": nothing, "crowd": nothing}
    best = np.full(neighbours.episode_count + 1, -np.inf)  # rows of no episode share the last place
    np.maximum.at(best, neighbours.episode, total)
    order = np.lexsort((-total[rows], episode))
    starts = np.searchsorted(episode[order], episode[order])
    crowd = np.empty(len(rows))
    crowd[order] = np.log1p(np.arange(len(rows)) - starts)
    return {
        "episode": np.where(inside, best[episode], total[rows]),
        "crowd": np.where(inside, crowd, 0.0),
    }


def _rarity_feature(pool: CandidatePool, rows: Array) -> Array:
    """How rare the terms of these rows are, on average, against that of all of them."""
    if pool.size <= MAX_PRECOMPUTED_ROWS:
        found = pool.derive("rarity", lambda pool: _mean_rarity(pool, np.arange(pool.size)))[rows]
    else:
        found = _mean_rarity(pool, rows)
    rare: Array = np.minimum(np.maximum((found - found.mean()) / RARITY_SPREAD, -MAX_RARITY), MAX_RARITY)
    return rare


def _mean_rarity(pool: CandidatePool, rows: Array) -> Array:
    known, counts, sampled = pool.derive("frequencies", _term_frequencies)
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


def _term_frequencies(pool: CandidatePool) -> tuple[Array, Array, int]:
    terms = pool.terms
    if live_count(pool) < pool.size:
        terms = terms[np.repeat(pool.live, pool.column("count"))]
    terms = terms[:: -(-len(terms) // MAX_SAMPLED_TERMS) or 1]
    known, counts = np.unique(terms, return_counts=True)
    return known, counts, len(terms)


def _boost_features(pool: CandidatePool) -> FeatureColumns:
    time = pool.column("time")
    held = time[pool.live]
    oldest, newest = (int(held.min()), int(held.max())) if len(held) else (0, 0)
    return {
        "recency": np.clip((time - oldest) / max(newest - oldest, 1), 0.0, 1.0),
        "confidence": np.clip(pool.confidence, 0.0, 1.0),
        "importance": np.clip(np.nan_to_num(pool.importance, nan=0.5), 0.0, 1.0),
    }


# weights: How much does each sign that a row answers the question count?


class FeatureWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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


class RankingWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights of both stages."""

    first: FeatureWeights
    second: FeatureWeights | None = None
    """For the best rows of the first stage; None leaves the order as it was."""
    depth: int = 100
    """How many rows the second stage looks at."""
    k1: float = 0.9
    b: float = 0.6

    @classmethod
    def default(cls, *, vectors: bool, tokens: bool) -> Self:
        """The weights for what the embedder gives."""
        if not vectors:
            return cls(first=_LEXICAL_FIRST, second=_LEXICAL_SECOND)
        return cls(first=_VECTOR_FIRST, second=_TOKEN_SECOND if tokens else _VECTOR_SECOND)


_LEXICAL_FIRST = FeatureWeights(window=0.6, speaker=1.0, date=2.0, asks=-1.0, role=1.0, reply=0.3)
_VECTOR_FIRST = FeatureWeights(vector=1.0, window=0.6, speaker=1.0, date=2.0, asks=-1.0, role=1.0, reply=0.3)
_LEXICAL_SECOND = FeatureWeights(
    window=0.25, own=0.15, cover=0.65, episode=0.45, crowd=-0.15, speaker=1.2, told=0.6, date=3.0, kind=1.8,
    asks=-0.7, rarity=0.35, role=1.0, reply=0.3,
)  # fmt: skip
_VECTOR_SECOND = FeatureWeights(
    vector=0.1, wide=0.4, window=0.2, own=0.1, cover=0.45, episode=0.3, crowd=-0.15, speaker=1.2, told=0.6,
    date=3.0, kind=1.8, asks=-0.85, rarity=0.35, role=1.0, reply=0.3,
)  # fmt: skip
_TOKEN_SECOND = FeatureWeights(
    vector=0.05, wide=0.2, window=0.15, own=0.1, tokens=0.2, context=0.95, before=0.2, episode=0.2,
    crowd=-0.15, speaker=1.2, told=0.6, date=3.0, kind=1.6, asks=-0.7, rarity=0.3, role=1.0, reply=0.3,
)  # fmt: skip


# scoring: How well does each row answer the question, and why?


MAX_SORTED_ROWS = 4_000
"""Rows up to which a column is sorted to tell ranks in it."""


class ScorePart(NamedTuple):
    """What one sign added to a row's score, and the row's rank by it alone, from 1."""

    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The score of every row, and what it is made of."""

    total: Array
    """Minus infinity for rows that were dropped."""
    parts: dict[str, Array]
    """What each sign added, row by row."""

    def top(self, limit: int) -> Array:
        """The indexes of the best rows, best first; equal rows in the order in which they came."""
        return _top_rows(self.total, limit)

    def explain(self, row: int) -> dict[str, ScorePart]:
        """What made the score of this row; what added nothing is left out."""
        return self.explain_rows([row])[0]

    def explain_rows(self, rows: Sequence[int]) -> list[dict[str, ScorePart]]:
        """The same for several rows."""
        found: list[dict[str, ScorePart]] = [{} for _ in rows]
        for name, column in self.parts.items():
            values = column[rows]
            if not values.any():
                continue
            ranks = _ranks(column, values).tolist()
            for parts, value, rank in zip(found, values.tolist(), ranks, strict=True):
                if value:
                    parts[name] = ScorePart(value, rank)
        return found


def _ranks(column: Array, values: Array) -> Array:
    """How many of the column are higher than each value, and one more."""
    if (
        len(column) > MAX_SORTED_ROWS
    ):  # sorting a long column takes longer than looking through it for every value
        return np.array([np.count_nonzero(column > value) for value in values]) + 1
    higher: Array = len(column) - np.sort(column).searchsorted(values, side="right") + 1
    return higher


def score(
    query: ParsedQuery,
    pool: CandidatePool,
    *,
    vector: QueryEmbedding | None = None,
    weights: RankingWeights | None = None,
    mask: Array | None = None,
) -> ScoreTable:
    """Score every row of the pool; with `among`, the second look is kept for the rows of that mask."""
    if not pool.live.any():
        return ScoreTable(total=np.full(pool.size, -np.inf), parts={})
    with np.errstate(invalid="ignore"):  # some BLAS kernels raise the flag over lanes that nobody reads
        return _score(query, pool, vector, weights, mask)


def _score(
    query: ParsedQuery,
    pool: CandidatePool,
    vector: QueryEmbedding | None,
    weights: RankingWeights | None,
    mask: Array | None,
) -> ScoreTable:
    if not len(pool.vectors):
        vector = None
    if weights is None:
        deep = vector is not None and vector.tokens is not None and pool.token_loader is not None
        weights = RankingWeights.default(vectors=vector is not None, tokens=deep)
    seen = first_stage(query, pool, vector, k1=weights.k1, b=weights.b)
    parts = _apply_weights(seen.columns, weights.first)
    total = sum(parts.values(), np.zeros(pool.size))
    total[~pool.live] = -np.inf
    if weights.second is not None:
        rows = _top_rows(total if mask is None else np.where(mask, total, -np.inf), weights.depth)
        if len(rows):
            again = _apply_weights(second_stage(query, pool, vector, seen, total, rows), weights.second)
            total = _merge_second_stage(parts, again, total, rows)
    return ScoreTable(total=total, parts=parts)


def _apply_weights(columns: FeatureColumns, weights: FeatureWeights) -> FeatureColumns:
    given = msgspec.structs.asdict(weights)
    return {name: column * given[name] for name, column in columns.items() if given[name]}


def _top_rows(total: Array, depth: int) -> Array:
    """The rows with the highest scores, in order."""
    count = min(depth, int(np.isfinite(total).sum()))
    return np.argsort(-total, kind="stable")[:count]


def _merge_second_stage(
    parts: FeatureColumns, second_parts: FeatureColumns, total: Array, rows: Array
) -> Array:
    """The scores with those of the best rows weighed again; all others follow them in their order."""
    fresh = sum(second_parts.values(), np.zeros(len(rows)))
    others = np.delete(total, rows)
    highest = float(others.max()) if len(others) else 0.0
    rest = total - highest + float(fresh.min()) - 1e-6 if np.isfinite(highest) else total.copy()
    rest[rows] = fresh
    for name in dict.fromkeys([*parts, *second_parts]):
        column = parts.setdefault(name, np.zeros(len(total)))
        column[rows] = second_parts.get(name, 0.0)
    return rest
