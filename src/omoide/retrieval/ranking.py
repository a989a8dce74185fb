"""Rank rows by weighted features, in two stages, and explain the score.

A feature is a column with one number per row. Lexical and vector scores are z-scores, so a weight of 1 is one
standard deviation; other features lie between 0 and 1. The first stage scores every row; the second scores
the best rows again, with token vectors and with the rows around them.

The default weights were chosen by cross-validation on several unlike sets (`training/weights.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import NamedTuple, Protocol, Self

import msgspec
import numpy as np

from omoide.retrieval import text
from omoide.retrieval.pool import (
    ASSISTANT,
    USER,
    Array,
    CandidatePool,
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
from omoide.retrieval.queries import ParsedQuery

DAY_MS = 86_400_000
MAX_LATENESS_MS = 7 * DAY_MS
"""Time after an interval in which the agreement of a date falls from 1 to 0; events are told afterwards."""
MAX_LEXICAL_SCORE = 3.0
"""Bound of the z-scores of words beside vectors.

Most rows share no word with the query, so one that does lies far outside, and would hide those that are close
in meaning.
"""
MAX_SAMPLED_TERMS = 16_384
"""Number of terms of the pool that are sampled to estimate term frequencies."""
MAX_PRECOMPUTED_ROWS = 2_000
"""Rows up to which the rarity of all rows is computed at once."""
RARITY_SPREAD = 0.5
"""Typical standard deviation of rarity; the measured one of a small pool would be noise."""
MAX_RARITY = 2.0
"""Bound of the absolute value of the rarity feature."""
_KIND_FLAGS = {
    "when": text.MENTIONS_TIME,
    "count": text.MENTIONS_NUMBER,
    "where": text.MENTIONS_PLACE,
    "who": text.MENTIONS_NAME,
    "why": text.MENTIONS_REASON,
}
FeatureColumns = dict[str, Array]


class QueryEmbedding(Protocol):
    """The part of an `Embedding` that ranking uses; retrieval does not import embedders."""

    @property
    def pooled(self) -> Array: ...
    @property
    def tokens(self) -> Array | None: ...
    @property
    def words(self) -> tuple[str, ...] | None: ...


class Center(NamedTuple):
    """The mean vectors of texts and of questions: what all of them share tells none of them apart."""

    texts: Array
    questions: Array

    @classmethod
    def of(cls, center: bytes) -> Self | None:
        """Return the center from its bytes, those of the mean of texts first; None for no bytes."""
        return cls(*np.frombuffer(center, "<f4").reshape(2, -1)) if center else None


class FirstStage(NamedTuple):
    """The features of every row."""

    columns: FeatureColumns
    lexical: LexicalMatch
    term_weights: dict[int, float]
    """Inverse document frequency of each query term, by term id."""


def z_scores(column: Array, subset: Array | None = None, *, limit: float | None = None) -> Array:
    """Return the column in standard deviations from the mean of a subset; zeros if it does not vary.

    With a limit, values further from the mean than that are cut.
    """
    base = column if subset is None else column[subset]
    if not len(base):
        return np.zeros(len(column))
    mean = base.sum() / len(base)
    deviation = base - mean
    spread = sqrt(float(deviation @ deviation) / len(base))
    if spread <= 1e-9:
        return np.zeros(len(column))
    scaled: Array = (deviation if subset is None else column - mean) / spread
    return scaled if limit is None else np.clip(scaled, -limit, limit)


def first_stage(
    query: ParsedQuery, pool: CandidatePool, vector: QueryEmbedding | None, *, k1: float, b: float
) -> FirstStage:
    """Compute the features of every row."""
    live = None if live_count(pool) == pool.size else pool.live  # None saves a copy of every column
    ids = [text.term_id(term) for term in query.terms]
    match = lexical_match(ids, pool, k1=k1, b=b)
    limit = None if vector is None else MAX_LEXICAL_SCORE
    columns: FeatureColumns = {
        "window": z_scores(match.window_score, live, limit=limit),
        "own": z_scores(match.own_score, live, limit=limit),
        "share": match.has_term @ match.idf / max(float(match.idf.sum()), 1e-9),
    }
    if vector is not None:
        cosine = cosine_similarity(vector.pooled, pool)
        columns["vector"] = z_scores(cosine, live)
        columns["cosine"] = cosine
    columns["asks"] = pool.derive("asks", _question_flags)
    columns["instruction"] = (
        _flag_column(pool.column("flags"), text.IS_INSTRUCTION) if query.is_request else np.zeros(pool.size)
    )
    columns["date"] = date_agreement(query, pool)
    columns |= _speaker_features(query, pool)
    columns |= _role_features(query, pool, columns.get("vector", 0.0) + columns["window"])
    term_weights = dict(zip(ids, match.idf.tolist(), strict=True))
    return FirstStage(columns | pool.derive("boosts", _boost_features), match, term_weights)


def second_stage(
    query: ParsedQuery,
    pool: CandidatePool,
    vector: QueryEmbedding | None,
    first: FirstStage,
    total: Array,
    rows: Array,
    center: Center | None = None,
) -> FeatureColumns:
    """Compute the features of the best rows, relative to each other."""
    columns = {name: column[rows] for name, column in first.columns.items()}
    if vector is not None:
        columns["centered"] = _centered_cosines(vector, pool, rows, center)
    neighbours = neighbours_of(pool)
    flags = pool.column("flags")
    columns |= _episode_features(total, neighbours, rows)
    columns["kind"] = kind_feature(query, flags[rows])
    columns["rarity"] = _rarity_feature(pool, rows)
    if "vector" in columns:
        # Mean of the row, counted twice, and the rows right before and after it, as far as they exist.
        adjacent = neighbours.table[rows, :2]
        adjacent_sum = np.append(first.columns["vector"], 0.0)[adjacent].sum(axis=1)
        columns["wide"] = (2 * columns["vector"] + adjacent_sum) / (2 + (adjacent < pool.size).sum(axis=1))
    return columns | _context_features(pool, vector, first, rows, neighbours)


def _centered_cosines(
    vector: QueryEmbedding, pool: CandidatePool, rows: Array, center: Center | None
) -> Array:
    """Return the cosine of each row's closest vector after the means are taken away; zeros without means."""
    if center is None:
        return np.zeros(len(rows))
    is_needed = np.zeros(pool.size, np.bool_)
    is_needed[rows] = True
    places = np.flatnonzero(is_needed[pool.vector_rows])
    own, asked = pool.vectors[places] - center.texts, vector.pooled - center.questions
    lengths = np.linalg.norm(own, axis=1) * np.linalg.norm(asked)
    cosines = np.full(pool.size, -1.0)  # of rows without a vector
    np.maximum.at(cosines, pool.vector_rows[places], own @ asked / np.maximum(lengths, 1e-9))
    return cosines[rows]


def _context_features(
    pool: CandidatePool, vector: QueryEmbedding | None, first: FirstStage, rows: Array, neighbours: Neighbours
) -> FeatureColumns:
    """Compute the coverage of the query by each row and its context, by token vectors or else by terms."""
    context = context_window(pool, rows)
    if vector is None or vector.tokens is None or vector.words is None or pool.token_loader is None:
        has_term = np.append(
            first.lexical.has_term, np.zeros((1, len(first.term_weights)), np.float32), axis=0
        )
        coverage = _best_nearby_match(has_term[rows], has_term, context.rows, context.proximity)
        return {"cover": z_scores(coverage @ first.lexical.idf)}
    content = text.content_token_indexes(vector.words)
    weights = token_weights([vector.words[at] for at in content], pool, first.term_weights)
    # Token vectors of all rows that are compared are loaded at once; `index` maps a row to its place among
    # them. The last element of mask and index stands for "no row".
    mask = np.zeros(pool.size + 1, np.bool_)
    mask[context.rows] = True
    mask[rows] = True
    mask[-1] = False
    needed = np.flatnonzero(mask)
    similarity = max_similarity(vector.tokens[content], pool.tokens_of(needed), weights)
    similarity = np.append(similarity, np.zeros((1, len(content)), np.float32), axis=0)
    index = np.full(pool.size + 1, len(needed))
    index[needed] = np.arange(len(needed))
    row_similarity = similarity @ weights
    own, before = index[rows], neighbours.table[rows, 0]
    follows_question = np.append(pool.column("flags"), 0)[before] & text.IS_QUESTION > 0
    # The row before is scaled with the mean and deviation of the rows themselves.
    both = z_scores(
        np.append(row_similarity[own], row_similarity[index[before]]).astype(np.float64), np.arange(len(rows))
    )
    return {
        "tokens": both[: len(rows)],
        "match": row_similarity[own].astype(np.float64),
        "context": z_scores(
            _best_nearby_match(similarity[own], similarity, index[context.rows], context.proximity) @ weights
        ),
        "before": np.where(follows_question, both[len(rows) :], 0.0),
    }


def _best_nearby_match(own: Array, matches: Array, context_rows: Array, proximity: Array) -> Array:
    """Return, for each row and term, the best match in the row or its context, weighted by proximity."""
    if not own.shape[1]:
        return own
    matches = matches[context_rows.T]
    matches *= proximity.T[:, :, None]
    best: Array = np.maximum(own, matches.max(axis=0))
    return best


def token_weights(tokens: list[str], pool: CandidatePool, term_weights: dict[int, float]) -> Array:
    """Return the weight of each query token: the rarer its word, the higher; they sum to 1."""
    rarities = []
    for word in tokens:
        term = next((term for part in text.words(word) if (term := text.term_of(part))), "")
        term_id = text.term_id(term)
        weight = term_weights.get(term_id) if term else 0.5  # a stop word has no frequency
        rarities.append(
            inverse_document_frequency(term_id, document_frequency(term_id, pool), pool)
            if weight is None
            else weight
        )
    # The root dampens: one rare word must not decide alone.
    weights = np.sqrt(np.array(rarities, np.float32))
    return weights / max(float(weights.sum()), 1e-9)


def date_agreement(query: ParsedQuery, pool: CandidatePool) -> Array:
    """Return the agreement of each row's time with those of the query, from -1 to 1.

    A row that says when it happened agrees inside an interval alone; where only the time of telling is known,
    agreement falls after the end. If rows that say so are inside, those that lie outside disagree.
    """
    time = pool.column("time")
    agreement = np.zeros(len(time))
    if not query.times:
        return agreement
    has_occurred = pool.column("flags") & text.HAS_OCCURRED > 0
    for start, end, weight, _ in query.times:
        late = np.minimum(np.maximum((time - end) / MAX_LATENESS_MS, 0.0), 1.0)
        late = np.where(has_occurred, np.ceil(late) + (time == end), late)
        agreement = np.maximum(agreement, np.where(time >= start, weight * (1.0 - late), 0.0))
    is_inside = has_occurred & (agreement > 0)
    if (is_inside & pool.live).any() and all(interval.is_exact for interval in query.times):
        strength = max(interval.weight for interval in query.times)
        agreement[has_occurred & ~is_inside] = -strength
    return agreement


def _question_flags(pool: CandidatePool) -> Array:
    # Users ask and tell in one message, so where roles are known only pure questions count as such.
    flag = text.STATES_NOTHING if has_roles(pool) else text.IS_QUESTION
    return _flag_column(pool.column("flags"), flag)


def has_messages(pool: CandidatePool) -> bool:
    """Return True if at least half of the rows of the pool are messages of a thread."""
    return pool.derive("has_messages", _find_messages)


def _find_messages(pool: CandidatePool) -> bool:
    return bool((pool.column("thread")[pool.live] >= 0).mean() >= 0.5)


def has_roles(pool: CandidatePool) -> bool:
    """Return True if the pool has messages of users and of assistants."""
    return pool.derive("has_roles", _find_roles)


def _find_roles(pool: CandidatePool) -> bool:
    roles = pool.column("role")[pool.live]
    return bool((roles == USER).any() and (roles == ASSISTANT).any())


def _flag_column(flags: Array, flag: int) -> Array:
    return (flags & flag > 0).astype(np.float64)


def _speaker_features(query: ParsedQuery, pool: CandidatePool) -> FeatureColumns:
    """Mark rows that the only named speaker said, said in the first person, or cannot have to do with."""
    if len(query.named_speakers) != 1:
        zeros = np.zeros(pool.size)
        return {"speaker": zeros, "first_person": zeros, "elsewhere": zeros}
    (named,) = query.named_speakers
    is_speaker = pool.column("speaker") == named
    flags = pool.column("flags")
    return {
        "speaker": is_speaker.astype(np.float64),
        "first_person": is_speaker * _flag_column(flags, text.FIRST_PERSON),
        "elsewhere": _elsewhere_feature(named, is_speaker, pool),
    }


def _elsewhere_feature(named: int, is_speaker: Array, pool: CandidatePool) -> Array:
    """Mark rows that have no word of a speaker's name: messages of threads without the speaker, and facts.

    A fact counts half: it may be about the speaker without saying so.
    """
    thread = pool.column("thread")
    spoken = is_speaker & pool.live
    elsewhere = np.where(thread >= 0, 1.0, 0.5)
    elsewhere[np.isin(thread, thread[spoken]) | ~spoken.any()] = 0.0
    if elsewhere.any():
        name = [text.term_id(term) for term in text.terms(pool.speakers[named])]
        owners = np.repeat(np.arange(pool.size), pool.column("count"))
        elsewhere[owners[np.isin(pool.terms, name)]] = 0.0
    return elsewhere


def kind_feature(query: ParsedQuery, flags: Array) -> Array:
    """Mark rows that mention the kind of thing the query asks for."""
    mentions = _flag_column(flags, _KIND_FLAGS.get(query.kind, 0))
    if query.kind == "when":  # "just" and "recently" hint at a time, less than a date does
        return np.maximum(mentions, 0.4 * _flag_column(flags, text.MENTIONS_RECENT))
    return mentions


def _role_features(query: ParsedQuery, pool: CandidatePool, base: Array) -> FeatureColumns:
    # Roles say nothing where all rows have the same one.
    role = pool.column("role")
    if not has_roles(pool):
        zeros = np.zeros(pool.size)
        return {"role": zeros, "reply": zeros}
    next_row = neighbours_of(pool).table[:, 1]
    has_reply = (role == USER) & (np.append(role, -1)[next_row] == ASSISTANT)
    return {
        # A memory without a role, such as a fact, counts like the user's.
        "role": (role == ASSISTANT) * (1.0 if query.asks_assistant else -1.0),
        "reply": np.where(has_reply, np.maximum(np.append(base, 0.0)[next_row], 0.0), 0.0),
    }


def _episode_features(total: Array, neighbours: Neighbours, rows: Array) -> FeatureColumns:
    """Return the best score in the same episode, and the logarithm of the number of better rows in it."""
    episode = neighbours.episode[rows]
    in_episode = episode >= 0
    if not in_episode.any():
        zeros = np.zeros(len(rows))
        return {"episode": zeros, "crowd": zeros}
    best = np.full(neighbours.episode_count + 1, -np.inf)  # the last one is for rows without an episode
    np.maximum.at(best, neighbours.episode, total)
    order = np.lexsort((-total[rows], episode))
    starts = np.searchsorted(episode[order], episode[order])
    crowd = np.empty(len(rows))
    crowd[order] = np.log1p(np.arange(len(rows)) - starts)
    return {
        "episode": np.where(in_episode, best[episode], total[rows]),
        "crowd": np.where(in_episode, crowd, 0.0),
    }


def _rarity_feature(pool: CandidatePool, rows: Array) -> Array:
    """Return the mean rarity of each row's terms, relative to the other rows."""
    if pool.size <= MAX_PRECOMPUTED_ROWS:
        rarity = pool.derive("rarity", _mean_rarity_of_all)[rows]
    else:
        rarity = _mean_rarity(pool, rows)
    bounded: Array = np.minimum(np.maximum((rarity - rarity.mean()) / RARITY_SPREAD, -MAX_RARITY), MAX_RARITY)
    return bounded


def _mean_rarity_of_all(pool: CandidatePool) -> Array:
    """Return the mean rarity of every row as `_mean_rarity` does, with one look at each distinct term."""
    sizes = pool.column("count")
    distinct, at = np.unique(pool.terms, return_inverse=True)
    sample = _sample(pool, at)
    counts = np.bincount(sample, minlength=len(distinct))
    owner = np.repeat(np.arange(pool.size), sizes)
    return np.bincount(owner, _rarity(counts, len(sample))[at], minlength=pool.size) / np.maximum(sizes, 1)


def _mean_rarity(pool: CandidatePool, rows: Array) -> Array:
    sampled_terms, counts, sample_size = pool.derive("frequencies", _term_frequencies)
    sizes = pool.column("count")
    row_sizes = sizes[rows]
    owner = np.repeat(np.arange(len(rows)), row_sizes)
    position = np.arange(len(owner)) - np.repeat(np.cumsum(row_sizes) - row_sizes, row_sizes)
    terms = pool.terms[(np.cumsum(sizes) - sizes)[rows][owner] + position]
    if not len(sampled_terms) or not len(terms):
        return np.zeros(len(rows))
    at = np.minimum(np.searchsorted(sampled_terms, terms), len(sampled_terms) - 1)
    frequencies = np.where(sampled_terms[at] == terms, counts[at], 0)
    rarity = _rarity(frequencies, sample_size)
    return np.bincount(owner, rarity, minlength=len(rows)) / np.maximum(row_sizes, 1)


def _rarity(frequencies: Array, sample_size: int) -> Array:
    # A smoothed inverse frequency; terms that are not in the sample count as the rarest.
    rarity: Array = np.log1p((sample_size + 1.0) / (frequencies + 0.5))
    return rarity


def _term_frequencies(pool: CandidatePool) -> tuple[Array, Array, int]:
    sample = _sample(pool, pool.terms)
    distinct, counts = np.unique(sample, return_counts=True)
    return distinct, counts, len(sample)


def _sample(pool: CandidatePool, terms: Array) -> Array:
    """Return some of the terms of the live rows."""
    if live_count(pool) < pool.size:
        terms = terms[np.repeat(pool.live, pool.column("count"))]
    # Every n-th term, without chance: the same pool gives the same ranking.
    return terms[:: -(-len(terms) // MAX_SAMPLED_TERMS) or 1]


def _boost_features(pool: CandidatePool) -> FeatureColumns:
    time = pool.column("time")
    live_times = time[pool.live]
    oldest, newest = (int(live_times.min()), int(live_times.max())) if len(live_times) else (0, 0)
    return {
        "recency": _bounded((time - oldest) / max(newest - oldest, 1)),
        "confidence": _bounded(pool.confidence),
        "importance": _bounded(np.where(np.isnan(pool.importance), 0.5, pool.importance)),  # unset: neutral
    }


def _bounded(column: Array) -> Array:
    """Return the column within 0 and 1; `np.clip` costs several times as much on short columns."""
    bounded: Array = np.minimum(np.maximum(column, 0.0), 1.0)
    return bounded


class FeatureWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weight of each feature; 0 leaves it out."""

    vector: float = 0.0
    cosine: float = 0.0
    centered: float = 0.0
    share: float = 0.0
    match: float = 0.0
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
    first_person: float = 0.0
    elsewhere: float = 0.0
    date: float = 0.0
    kind: float = 0.0
    asks: float = 0.0
    instruction: float = 0.0
    rarity: float = 0.0
    role: float = 0.0
    reply: float = 0.0
    # Small on purpose: these decide between equals and never more than that.
    recency: float = 0.02
    confidence: float = 0.05
    importance: float = 0.05


class RankingWeights(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The weights of both stages."""

    first: FeatureWeights
    second: FeatureWeights | None = None
    """Weights for the best rows of the first stage; None keeps their order."""
    depth: int = 100
    """Number of rows in the second stage."""
    k1: float = 0.9
    b: float = 0.6

    @classmethod
    def default(cls, *, vectors: bool, tokens: bool, messages: bool = True) -> Self:
        """Return the weights for what the embedder provides, and for messages or single facts."""
        if not vectors:
            return cls(first=_LEXICAL_FIRST, second=_LEXICAL_SECOND)
        if not tokens:
            return cls(first=_VECTOR_FIRST, second=_VECTOR_SECOND)
        return cls(first=_VECTOR_FIRST, second=_MESSAGE_SECOND if messages else _FACT_SECOND)


# Chosen on several unlike sets at once (`training/weights.py`). Absolute similarities carry facts without a
# thread, where nothing around them helps; a bound keeps any feature from deciding alone.
_LEXICAL_FIRST = FeatureWeights(
    window=0.6, speaker=1.0, elsewhere=-2.0, date=2.0, asks=-1.0, instruction=0.5, role=1.5, reply=0.5
)
_VECTOR_FIRST = FeatureWeights(
    vector=1.0, window=0.4, speaker=1.0, elsewhere=-2.0, date=2.0, asks=-0.7, instruction=0.5, role=1.5,
    reply=0.5,
)  # fmt: skip
_LEXICAL_SECOND = FeatureWeights(
    window=0.15, own=0.1, share=3.0, cover=0.75, episode=0.2, crowd=-0.1, speaker=1.5, elsewhere=-3.0,
    first_person=0.6, date=3.4, kind=1.7, asks=-0.8, instruction=1.0, rarity=0.4, role=2.7,
)  # fmt: skip
_VECTOR_SECOND = FeatureWeights(
    vector=0.3, wide=0.4, window=0.1, own=0.1, share=0.5, cover=0.45, episode=0.25, crowd=-0.1,
    speaker=1.5, elsewhere=-3.0, first_person=0.6, date=3.4, kind=1.5, asks=-0.85, instruction=1.0,
    rarity=0.35, role=2.0, reply=0.3,
)  # fmt: skip
_MESSAGE_SECOND = FeatureWeights(
    vector=0.05, cosine=2.9, wide=0.5, window=0.05, share=0.55, tokens=0.15, context=0.9, before=0.25,
    episode=0.25, crowd=-0.1, speaker=1.45, elsewhere=-3.0, first_person=0.6, date=3.5, kind=1.3,
    asks=-0.85, instruction=1.0, rarity=0.3, role=2.7,
)  # fmt: skip
_FACT_SECOND = FeatureWeights(
    cosine=4.5, centered=11.65, match=11.0, share=0.3, speaker=1.45, elsewhere=-3.0, first_person=0.6,
    date=3.5, kind=0.6, asks=-0.3, instruction=1.0, rarity=0.9, role=2.7,
)  # fmt: skip


MAX_COMPARISONS = 2_000_000
"""Comparisons up to which comparing values with whole columns is faster than sorting the columns."""


class ScorePart(NamedTuple):
    """The share of one feature in a row's score, and the row's rank by it alone, from 1."""

    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The score of every row, with the share of each feature."""

    total: Array
    """The score of each row; minus infinity for dropped rows."""
    parts: dict[str, Array]
    """The share of each feature, row by row."""

    @classmethod
    def best_of(cls, tables: Sequence[Self]) -> Self:
        """Merge tables of the same rows: each row has its highest score, with the parts of that."""
        if len(tables) == 1:
            return tables[0]
        totals = np.stack([table.total for table in tables])
        best = totals.argmax(axis=0)
        rows = np.arange(totals.shape[1])
        names = dict.fromkeys(name for table in tables for name in table.parts)
        zeros = np.zeros(totals.shape[1])
        parts = {
            name: np.stack([table.parts.get(name, zeros) for table in tables])[best, rows] for name in names
        }
        return cls(total=totals[best, rows], parts=parts)

    def top(self, limit: int) -> Array:
        """Return the indexes of the best rows, best first; equal rows keep their order."""
        return _top_rows(self.total, limit)

    def explain(self, row: int) -> dict[str, ScorePart]:
        """Return the parts of one row's score that are not zero."""
        return self.explain_rows([row])[0]

    def explain_rows(self, rows: Sequence[int]) -> list[dict[str, ScorePart]]:
        """Return the parts of several rows' scores that are not zero."""
        if not len(rows) or not self.parts:
            return [{} for _ in rows]
        columns = np.stack([*self.parts.values()])
        values = columns[:, rows]
        is_used = np.asarray(values.any(axis=1))
        names = [name for name, used in zip(self.parts, is_used.tolist(), strict=True) if used]
        ranks_of = _ranks(columns[is_used], values[is_used])
        explanations: list[dict[str, ScorePart]] = [{} for _ in rows]
        for name, scores, ranks in zip(names, values[is_used].tolist(), ranks_of.tolist(), strict=True):
            for parts, value, rank in zip(explanations, scores, ranks, strict=True):
                if value:
                    parts[name] = ScorePart(value, rank)
        return explanations


def _ranks(columns: Array, values: Array) -> Array:
    """Return the rank of each value in its column, from 1: [columns, values]."""
    if columns.size * values.shape[1] > MAX_COMPARISONS:
        pairs = zip(columns, values, strict=True)
        return np.stack(
            [len(column) + 1 - np.sort(column).searchsorted(some, side="right") for column, some in pairs]
        )
    higher: Array = np.count_nonzero(columns[:, None, :] > values[:, :, None], axis=2)
    return higher + 1


def score(
    query: ParsedQuery,
    pool: CandidatePool,
    *,
    vector: QueryEmbedding | None = None,
    weights: RankingWeights | None = None,
    mask: Array | None = None,
    center: Center | None = None,
) -> ScoreTable:
    """Score every row of the pool.

    Args:
        query: The parsed query.
        pool: The candidates.
        vector: The embedding of the query's `encoder_text`, if there is an embedder.
        weights: The weights; by default those for what the embedder provides.
        mask: The rows that may enter the second stage; all by default.
        center: The mean vectors of the embedder, if they are known.
    """
    if not pool.live.any():
        return ScoreTable(total=np.full(pool.size, -np.inf), parts={})
    with np.errstate(invalid="ignore"):  # some BLAS kernels set the flag for lanes that are not used
        return _score(query, pool, vector, weights, mask, center)


def _score(
    query: ParsedQuery,
    pool: CandidatePool,
    vector: QueryEmbedding | None,
    weights: RankingWeights | None,
    mask: Array | None,
    center: Center | None,
) -> ScoreTable:
    if not len(pool.vectors):
        vector = None
    if weights is None:
        has_tokens = vector is not None and vector.tokens is not None and pool.token_loader is not None
        weights = RankingWeights.default(
            vectors=vector is not None, tokens=has_tokens, messages=has_messages(pool)
        )
    first = first_stage(query, pool, vector, k1=weights.k1, b=weights.b)
    parts = _apply_weights(first.columns, weights.first)
    total = sum(parts.values(), np.zeros(pool.size))
    total[~pool.live] = -np.inf
    if weights.second is not None:
        center = center if weights.second.centered else None
        rows = _top_rows(total if mask is None else np.where(mask, total, -np.inf), weights.depth)
        if len(rows):
            second_parts = _apply_weights(
                second_stage(query, pool, vector, first, total, rows, center), weights.second
            )
            total = _merge_second_stage(parts, second_parts, total, rows)
    return ScoreTable(total=total, parts=parts)


def _apply_weights(columns: FeatureColumns, weights: FeatureWeights) -> FeatureColumns:
    by_name = msgspec.structs.asdict(weights)
    return {name: column * by_name[name] for name, column in columns.items() if by_name[name]}


def _top_rows(total: Array, depth: int) -> Array:
    """Return the indexes of the highest scores, best first."""
    # A stable sort, so that equal rows keep the order of the pool, which is the same in every store.
    count = min(depth, int(np.isfinite(total).sum()))
    return np.argsort(-total, kind="stable")[:count]


def _merge_second_stage(
    parts: FeatureColumns, second_parts: FeatureColumns, total: Array, rows: Array
) -> Array:
    """Replace the scores of the best rows by those of the second stage; the others follow in their order."""
    second_total = sum(second_parts.values(), np.zeros(len(rows)))
    others = np.delete(total, rows)
    highest = float(others.max()) if len(others) else 0.0
    # The stages have different scales: the other rows are moved right below the lowest second score.
    merged = total - highest + float(second_total.min()) - 1e-6 if np.isfinite(highest) else total.copy()
    merged[rows] = second_total
    for name in dict.fromkeys([*parts, *second_parts]):
        column = parts.setdefault(name, np.zeros(len(total)))
        column[rows] = second_parts.get(name, 0.0)
    return merged
