"""Estimate how likely a memory helps to answer a query, whatever else is stored.

The score of a hit compares the rows of one pool; relevance compares a row with the query alone. Its features
do not depend on the other rows: the cosine of the vectors, the closeness of single words, alone and together
with the messages right before and after it, the share of the query's words that the row has, each word
weighted by how rare it is in conversations (`common_terms.txt`), and whether speaker, time and kind agree. A
logistic model turns them into a probability. It is part of a
`Calibration`, which is fitted for one embedder, on conversations that the embedder was not trained on;
vectors of an embedder without one give no relevance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import log
from typing import NamedTuple

import msgspec
import numpy as np

from omoide.retrieval import text
from omoide.retrieval.pool import (
    ASSISTANT,
    OTHER,
    Array,
    CandidatePool,
    chunked_matmul,
    context_window,
    max_similarity,
    neighbours_of,
)
from omoide.retrieval.queries import ParsedQuery
from omoide.retrieval.ranking import QueryEmbedding, date_agreement, kind_feature

RARE = 0.85
"""Rarity from which a word is rare: fewer than about 1 in 2,000 messages have it."""
NAME_RARITY = 0.1
"""Weight of names among the words of a query: they say of whom it asks, and not what."""
MIN_MATCH = 0.45
"""Closeness of words below which a memory that shares a name with the query, and no word, is not about it."""
UNKNOWN_WORD_RARITY = 0.2
"""Weight of an encoder's token that is no content word."""
EARLIER_ROWS = 4
"""Number of messages before a row that may name its subject."""
_BEFORE, _AFTER = 0, 1
"""Columns of the neighbours of a row."""


class LogisticModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A probability that follows from weighted features; `a*b` is the product of two, `a^2` a square."""

    bias: float
    weights: dict[str, float]

    def probabilities(self, features: Mapping[str, Array]) -> Array:
        """Return the probability for each row of the features."""
        logits = self.bias + sum(
            (weight * column_of(features, name) for name, weight in self.weights.items()),
            np.zeros(len(next(iter(features.values())))),
        )
        return np.asarray(1.0 / (1.0 + np.exp(-logits)))


def column_of(features: Mapping[str, Array], name: str) -> Array:
    """Return a feature, or the product or square that the name describes."""
    if name.endswith("^2"):
        return np.asarray(features[name[:-2]] ** 2)
    first, _, second = name.partition("*")
    return np.asarray(features[first] * features[second]) if second else features[first]


MAX_DEVIATION = 4.0
"""Standard deviations from the mean at which a feature of a network is cut."""


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A probability that follows from features through one layer of hidden units.

    Numbers are 32-bit floats, the lowest byte first.
    """

    names: tuple[str, ...]
    """The features, in the order of the numbers."""
    scale: bytes
    """The mean of each feature, then the standard deviation of each."""
    hidden: bytes
    """For each unit its weight of each feature, then its bias."""
    output: bytes
    """The weight of each unit, then the bias."""

    def probabilities(self, features: Mapping[str, Array]) -> Array:
        """Return the probability for each row of the features."""
        mean, deviation = np.frombuffer(self.scale, "<f4").reshape(2, -1)
        hidden = np.frombuffer(self.hidden, "<f4").reshape(-1, len(self.names) + 1)
        output = np.frombuffer(self.output, "<f4")
        columns = (np.stack([features[name] for name in self.names], axis=1) - mean) / deviation
        columns = np.clip(columns, -MAX_DEVIATION, MAX_DEVIATION)
        units = np.tanh(columns @ hidden[:, :-1].T + hidden[:, -1])
        return np.asarray(1.0 / (1.0 + np.exp(-(units @ output[:-1] + output[-1]))))


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The models that were fitted for the vectors of one embedder, or for words alone."""

    embedder: str | None
    """Name of the embedder; None for words alone."""
    center: bytes = b""
    """The mean vector of texts, then that of questions, as 32-bit floats, the lowest byte first."""
    relevance: LogisticModel
    """Whether a memory helps to answer a query."""
    outdated: LogisticModel | None = None
    """Whether the newer of two memories replaces the older one."""
    order: Network | None = None
    """Whether two memories are values of what the query asks for, seen beside the other hits."""


@cache
def _term_rarities() -> dict[int, float]:
    """Return the rarity of the common terms by id, from 0 to 1; other terms have rarity 1."""
    lines = files("omoide.retrieval").joinpath("common_terms.txt").read_text("utf-8").splitlines()
    total = int(lines[0].split()[-1])
    rarities: dict[int, float] = {}
    for line in lines[1:]:
        frequency, *terms = line.split()
        rarity = log(total / int(frequency)) / log(total)
        rarities.update((text.term_id(term), rarity) for term in terms)
    return rarities


def term_rarity(term: str) -> float:
    """Return how rare a term is in conversations, from 0 (in every message) to 1 (in none of them)."""
    return term_rarity_by_id(text.term_id(term))


def term_rarity_by_id(term_id: int) -> float:
    """Return the rarity of the term with this id."""
    return _term_rarities().get(term_id, 1.0)


@cache
def calibrations() -> tuple[Calibration, ...]:
    """Return the calibrations of the package."""
    content = files("omoide.retrieval").joinpath("calibrations.json").read_bytes()
    return msgspec.json.decode(content, type=tuple[Calibration, ...])


def calibration_for(embedder: str | None) -> Calibration | None:
    """Return the calibration for the vectors of an embedder, or for words alone; None if there is none."""
    return next((one for one in calibrations() if one.embedder == embedder), None)


def estimate(
    readings: Sequence[tuple[ParsedQuery, QueryEmbedding | None]],
    pool: CandidatePool,
    rows: Sequence[int],
    calibration: Calibration | None,
    floor: float = 0.0,
) -> Array | None:
    """Return the relevance of some rows for the reading of the query that fits each best; None if not known.

    Args:
        readings: The readings of the query, each with its embedding.
        pool: The candidates.
        rows: Rows of the pool.
        calibration: The models for the pool's vectors.
        floor: The relevance from which a row counts. One that shares a rare word with the query has at least
            this, one that shares nothing but names has less.
    """
    # A greeting, or a query of nothing but small words, asks for nothing that could be compared.
    if calibration is None or not len(rows) or not any(query.terms for query, _ in readings):
        return None
    at = np.asarray(rows, np.int64)
    likelihoods = []
    for query, vector in readings:
        features = relevance_features(query, pool, vector, at)
        likelihood = calibration.relevance.probabilities(features)
        by_words = calibration_for(None)
        if "cosine" in features and by_words is not None:  # rows that have not been embedded yet
            likelihood = np.where(
                features["cosine"] < -0.99, by_words.relevance.probabilities(features), likelihood
            )
        if floor and "match" in features:
            # Names alone make no memory relevant, however close they bring the vectors.
            has_name_only = (features["names"] > 0) & (features["share"] == 0)
            unrelated = has_name_only & (features["match"] < MIN_MATCH)
            likelihood = np.where(unrelated, np.minimum(likelihood, floor / 2), likelihood)
        # A shared word that hardly any other message has is not hidden, whatever the vectors say.
        shares_rare_word = features["rare"] >= RARE
        likelihoods.append(np.where(shares_rare_word, np.maximum(likelihood, floor), likelihood))
    return np.asarray(np.max(likelihoods, axis=0))


def relevance_features(
    query: ParsedQuery, pool: CandidatePool, vector: QueryEmbedding | None, rows: Array
) -> dict[str, Array]:
    """Return the features of relevance of some rows."""
    names = query.name_terms
    content = [term for term in query.terms if term not in names]
    weights = np.array([term_rarity(term) for term in content])
    ids = np.array([text.term_id(term) for term in content], np.int64)
    name_ids = np.array([text.term_id(term) for term in names], np.int64)
    context = context_window(pool, rows)
    around = np.unique(np.append(context.rows.ravel(), rows))
    around = around[around < pool.size]
    # The last row stands for "none".
    found = np.append(has_terms(pool, ids, around), np.zeros((1, len(ids)), np.bool_), axis=0)
    place = np.full(pool.size + 1, len(around))
    place[around] = np.arange(len(around))
    has_term = found[place[rows]]
    near = has_term | (found[place[context.rows]] & (context.proximity > 0)[:, :, None]).any(axis=1)
    total = max(float(weights.sum()), 1e-9)
    flags = pool.column("flags")[rows]
    features = {
        "share": has_term @ weights / total,
        "names": has_terms(pool, name_ids, rows).any(axis=1).astype(np.float64),
        "nearby": near @ weights / total,
        "rare": (has_term * weights).max(axis=1, initial=0.0),
        "terms": np.full(len(rows), min(len(content), 8) / 8),
        "asks": (flags & text.IS_QUESTION > 0).astype(np.float64),
        "kind": kind_feature(query, flags),
        "has_kind": np.full(len(rows), float(query.kind != "what")),
        "date": np.maximum(date_agreement(query, pool)[rows], 0.0),
        "has_date": np.full(len(rows), float(bool(query.times))),
        "length": np.log1p(pool.column("length")[rows]) / 5,
        "thread": (pool.column("thread")[rows] >= 0).astype(np.float64),
    }
    speaker = pool.column("speaker")[rows]
    is_named = np.isin(speaker, [*query.named_speakers])
    features["speaker"] = is_named.astype(np.float64)
    features["other_speaker"] = (~is_named & (speaker >= 0) & bool(query.named_speakers)).astype(np.float64)
    if vector is None or not len(pool.vectors):
        return features
    features["cosine"] = _cosines(vector.pooled, pool, rows)
    return features | _word_features(query, pool, vector, rows)


def _word_features(
    query: ParsedQuery, pool: CandidatePool, vector: QueryEmbedding, rows: Array
) -> dict[str, Array]:
    """Return how close rows come to the words of the query, alone and with the messages beside them."""
    # A message often names its subject only in those before it.
    beside = _rows_beside(pool, rows)
    needed = np.unique(np.append(beside.ravel(), rows))
    needed = needed[needed < pool.size]
    closeness, rarity = _word_closeness(query, pool, vector, needed)
    if closeness is None:
        return {}
    place = np.full(pool.size + 1, len(needed))  # the last row stands for "none"
    place[needed] = np.arange(len(needed))
    closeness = np.append(closeness, np.zeros((1, len(rarity)), np.float32), axis=0)
    own, after, *before = closeness[place[np.column_stack([rows, beside])]].swapaxes(0, 1)
    match = own @ rarity
    columns = {
        "match": match,
        "worst": own.min(axis=1, initial=1.0),
        "best": (own * rarity).max(axis=1, initial=0.0) * len(rarity),
        "before": np.max([own, *before], axis=0) @ rarity - match,
        "after": np.maximum(after, own) @ rarity - match,
    }
    return {name: column.astype(np.float64) for name, column in columns.items()}


def _rows_beside(pool: CandidatePool, rows: Array) -> Array:
    """Return [rows, neighbours]: the message after each row, and those before; its size for none."""
    beside, earlier = [_neighbours(pool, rows, _AFTER)], rows
    for _ in range(EARLIER_ROWS):
        earlier = _neighbours(pool, earlier, _BEFORE)
        beside.append(earlier)
    return np.stack(beside, axis=1)


def _neighbours(pool: CandidatePool, rows: Array, column: int) -> Array:
    known = rows < pool.size
    found = np.full(len(rows), pool.size)
    found[known] = neighbours_of(pool).table[rows[known], column]
    return found


def _word_closeness(
    query: ParsedQuery, pool: CandidatePool, vector: QueryEmbedding, rows: Array
) -> tuple[Array | None, Array]:
    """Return [rows, words]: how close a row comes to each content word of the query; and their rarities.

    The rarities sum to 1. None stands for a closeness that is not known.
    """
    if vector.tokens is None or vector.words is None or pool.token_loader is None:
        return None, np.zeros(0, np.float32)
    tokens = text.content_token_indexes(vector.words)
    rarity = np.array([_word_rarity(vector.words[at], query.name_terms) for at in tokens], np.float32)
    rarity /= max(float(rarity.sum()), 1e-9)
    return max_similarity(vector.tokens[tokens], pool.tokens_of(rows), rarity), rarity


def _word_rarity(word: str, names: frozenset[str]) -> float:
    terms = text.terms(word)
    if not names.isdisjoint(terms):
        return NAME_RARITY
    return max(map(term_rarity, terms), default=UNKNOWN_WORD_RARITY)


def has_terms(pool: CandidatePool, ids: Array, rows: Array) -> Array:
    """Return [rows, terms]: whether each row has each term."""
    sizes = pool.column("count")
    starts = (np.cumsum(sizes) - sizes)[rows]
    own = sizes[rows]
    owner = np.repeat(np.arange(len(rows)), own)
    terms = pool.terms[np.repeat(starts - np.cumsum(own) + own, own) + np.arange(len(owner))]
    found = np.zeros((len(rows), len(ids)), np.bool_)
    for at, term in enumerate(ids.tolist()):
        found[owner[terms == term], at] = True
    return found


def _cosines(vector: Array, pool: CandidatePool, rows: Array) -> Array:
    """Return the cosine of each row's closest vector; -1 for rows without one."""
    best = np.full(pool.size, -1.0)
    is_needed = np.zeros(pool.size, np.bool_)
    is_needed[rows] = True
    places = np.flatnonzero(is_needed[pool.vector_rows])
    np.maximum.at(best, pool.vector_rows[places], pool.vectors[places] @ vector)
    return best[rows]


MAX_ROWS = 20
"""Number of the best rows that are compared with each other."""


MAX_COMPETING = 3
"""Number of rows that may compete for one answer."""
LIKELIHOOD_GAP = 0.5
"""Distance of the logits of relevance from which rows stand out from the others."""
MIN_RELEVANCE = 0.015
"""Relevance below which a row does not compete."""
MAX_SPREAD = 1.5
"""Greatest distance of the logits of relevance among rows that compete."""
MAX_SPREAD_BY_WORDS = 0.3
"""The same without vectors: a row with more words of the query answers more of it."""
SCORE_GAP = 2.5
"""Distance of scores from which they do."""
OUTDATED_FROM = 0.97
"""Probability from which an older hit is said to be outdated; statements that are both true must not be."""
ORDERED_FROM = 0.6
"""Probability from which the newer of two hits stands first."""
ANSWERS_FROM = 0.025
"""Relevance from which a hit counts as an answer."""
ORDERED_UNLESS_RELEVANT_FROM = 0.8
"""Probability from which a newer hit that is no answer by itself stands before one that is."""
ANSWERING = 0.5
"""Rarity from which a word of the query counts for what two hits speak of."""
MAX_LEFT = 1
"""Number of such words that only an outdated hit may have, and not the newer one."""
MAX_NEW_SHARE = 0.25
"""Share of the words of an answer, by rarity, up to which it repeats what was told."""
LEAD_OF_ALL = 3.0
"""Lead of the scores of two rows where there is no other."""
_MAX_TOKENS = 64


class Pairs(NamedTuple):
    """Pairs of rows with different times, as indexes into the compared rows."""

    older: Array
    newer: Array
    features: dict[str, Array]


def arrange(
    query: ParsedQuery,
    pool: CandidatePool,
    rows: Sequence[int],
    scores: Array,
    relevance: Array | None,
    calibration: Calibration | None,
    vector: QueryEmbedding | None = None,
) -> tuple[list[int], dict[int, int]]:
    """Return the order of ranked rows, and for outdated ones the newer row, both as indexes into `rows`.

    Args:
        query: The parsed query.
        pool: The candidates.
        rows: Rows of the pool, best first; the first `MAX_ROWS` are compared.
        scores: The score of each.
        relevance: The relevance of each; None if it is not known.
        calibration: The models for the pool's vectors.
        vector: The embedding of the query.
    """
    order = [*range(len(rows))]
    # The scores know which rows are of the time that is asked for.
    if relevance is None or len(rows) < 2 or query.times:
        return order, {}
    compared = np.asarray(rows[:MAX_ROWS], np.int64)
    time = pool.column("time")[compared]
    pairs = compare(query, pool, compared, scores[:MAX_ROWS], relevance[:MAX_ROWS], vector)
    newer = {} if query.expects_many else _find_outdated(pairs, time, calibration)
    if calibration is None or calibration.order is None:
        spread = MAX_SPREAD if len(pool.vectors) else MAX_SPREAD_BY_WORDS
        size = _standing_out(scores[:MAX_ROWS], relevance[:MAX_ROWS], spread)
        if not query.tense and _terms_left(pool, compared, _telling_terms(query))[0, :size].any():
            size = 1
        direction = 1 if query.tense == "past" else -1
        order[:size] = np.argsort(direction * time[:size], kind="stable").tolist()
    for older, newest in [*_find_values(pairs, time, calibration), *newer.items()]:
        first, second = (older, newest) if query.tense == "past" else (newest, older)
        if order.index(first) > order.index(second):
            order.remove(first)
            order.insert(order.index(second), first)
    return order, newer


def find_echoes(query: ParsedQuery, pool: CandidatePool, rows: Sequence[int]) -> list[bool]:
    """Return for each row whether it is an echo, which does not compete with statements.

    An echo is a message that states nothing, or an answer that repeats what the other rows or the query say.
    """
    at = np.asarray(rows, np.int64)
    role = pool.column("role")[at]
    is_echo = (role != OTHER) & (pool.column("flags")[at] & text.STATES_NOTHING > 0)
    if not query.asks_assistant:
        told = [int(row) for row in at[~is_echo & (role != ASSISTANT)]]
        for answer in np.flatnonzero(~is_echo & (role == ASSISTANT)).tolist():
            is_echo[answer] = _repeats(query, pool, rows[answer], told)
    echoes: list[bool] = is_echo.tolist()
    return echoes


def _repeats(query: ParsedQuery, pool: CandidatePool, row: int, told: Sequence[int]) -> bool:
    """Return True if an answer adds hardly anything to the query, its question and what was told before."""
    time = pool.column("time")
    before = neighbours_of(pool).table[row, 0]
    sources = [other for other in told if time[other] <= time[row]]
    if before < pool.size:
        sources.append(int(before))
    asked = {text.term_id(term) for term in query.terms}
    known = {term for other in sources for term in _terms_of(pool, other)}
    # The words of the query say nothing about an answer: what it adds to them does.
    own = [term for term in _terms_of(pool, row) if term not in asked]
    new = [term for term in own if term not in known]
    return sum(map(term_rarity_by_id, new)) <= MAX_NEW_SHARE * sum(map(term_rarity_by_id, own))


def _terms_of(pool: CandidatePool, row: int) -> list[int]:
    ends = pool.derive("term_ends", lambda pool: np.cumsum(pool.column("count")))
    terms: list[int] = pool.terms[ends[row] - pool.column("count")[row] : ends[row]].tolist()
    return terms


def _standing_out(scores: Array, relevance: Array, max_spread: float) -> int:
    """Return the number of the best rows that stand out from all others; 1 if it is only one, or too many."""
    likelihood = _logits(relevance)
    for size in range(2, min(MAX_COMPETING, len(scores)) + 1):
        weakest = likelihood[:size].min()
        if relevance[:size].min() < MIN_RELEVANCE or likelihood[:size].max() - weakest > max_spread:
            return 1
        if size == len(scores) or weakest - likelihood[size:].max() >= LIKELIHOOD_GAP:
            return size
        if scores[:size].min() - scores[size:].max() >= SCORE_GAP:
            return size
    return 1


def _logits(relevance: Array) -> Array:
    bounded = np.clip(relevance, 1e-4, 1 - 1e-4)
    return np.asarray(np.log(bounded / (1 - bounded)))


def _terms_left(pool: CandidatePool, rows: Array, terms: Sequence[str]) -> Array:
    """Return [rows, rows]: the number of these terms that the first row has and the second lacks."""
    has_term = has_terms(pool, np.array([text.term_id(term) for term in terms], np.int64), rows)
    return np.asarray((has_term[:, None] & ~has_term[None, :]).sum(axis=2))


def _telling_terms(query: ParsedQuery) -> list[str]:
    """Return the names and rare words of a query: with others, two rows speak of other servers or people."""
    return [term for term in query.terms if term in query.name_terms or term_rarity(term) >= RARE]


def _find_outdated(pairs: Pairs, time: Array, calibration: Calibration | None) -> dict[int, int]:
    """Return, for each row that a newer one replaces, the newest of those."""
    if calibration is None or calibration.outdated is None or not len(pairs.older):
        return {}
    is_outdated = calibration.outdated.probabilities(pairs.features) > OUTDATED_FROM
    is_outdated &= pairs.features["words_left"] <= MAX_LEFT
    return dict(_pairs_in_time(pairs, time, is_outdated))  # the last one of several counts


def _find_values(pairs: Pairs, time: Array, calibration: Calibration | None) -> list[tuple[int, int]]:
    """Return the pairs of an older and a newer row that state values of one thing, the newest last."""
    if calibration is None or calibration.order is None or not len(pairs.older):
        return []
    answers = pairs.features["relevance_newer"] >= np.minimum(pairs.features["relevance_older"], ANSWERS_FROM)
    needed = np.where(answers, ORDERED_FROM, ORDERED_UNLESS_RELEVANT_FROM)
    are_values = calibration.order.probabilities(pairs.features) > needed
    return _pairs_in_time(pairs, time, are_values & (pairs.features["numbers_left"] == 0))


def _pairs_in_time(pairs: Pairs, time: Array, chosen: Array) -> list[tuple[int, int]]:
    found = zip(pairs.older[chosen].tolist(), pairs.newer[chosen].tolist(), strict=True)
    return sorted(found, key=lambda pair: time[pair[1]])


def compare(
    query: ParsedQuery,
    pool: CandidatePool,
    rows: Array,
    scores: Array,
    relevance: Array,
    vector: QueryEmbedding | None = None,
) -> Pairs:
    """Compare rows pairwise, given the score and the relevance of each."""
    time = pool.column("time")[rows]
    older, newer = np.nonzero(time[:, None] < time[None, :])
    single = _single_features(query, pool, rows, scores, relevance)
    joint = _term_features(query, pool, rows) | {"score_lead": _score_lead(scores)}
    closeness = np.zeros((len(rows), 0), np.float32)
    rarity = np.zeros(0, np.float32)
    if len(pool.vectors):
        joint |= _similarity_features(pool, rows)
        if vector is not None:
            known, rarity = _word_closeness(query, pool, vector, rows)
            closeness = np.zeros((len(rows), len(rarity)), np.float32) if known is None else known
        single["cosine"] = np.zeros(len(rows)) if vector is None else _cosines(vector.pooled, pool, rows)
        single["match"] = closeness @ rarity
        single["worst"] = closeness.min(axis=1, initial=1.0)
    features = {name: matrix[older, newer] for name, matrix in joint.items()}
    for name, column in single.items():
        features |= {f"{name}_older": column[older], f"{name}_newer": column[newer]}
    features |= _query_features(query, len(older))
    features |= _closeness_features(closeness[older], closeness[newer], rarity)
    features |= {
        "change": features["change_newer"],
        "addition": features["addition_newer"],
        "asks": features["asks_newer"],
        "number": features["number_older"] * features["number_newer"],
        "place": features["spot_older"] * features["spot_newer"],
        "name": features["name_older"] * features["name_newer"],
        "kind": features["kind_older"] * features["kind_newer"],
        "least": np.minimum(features["relevance_older"], features["relevance_newer"]),
        "logit_least": np.minimum(features["logit_older"], features["logit_newer"]),
        "ahead": np.clip(scores[older] - scores[newer], -6.0, 6.0),
        "gap": np.log1p((time[newer] - time[older]) / 86_400_000) / 6,
        "thread": (pool.column("thread")[rows][older] >= 0).astype(np.float64),
    }
    return Pairs(older, newer, features)


_PAIR_FLAGS = {
    "change": text.MENTIONS_CHANGE,
    "addition": text.MENTIONS_ADDITION,
    "asks": text.IS_QUESTION,
    "number": text.MENTIONS_NUMBER,
    "spot": text.MENTIONS_PLACE,
    "name": text.MENTIONS_NAME,
    "time": text.MENTIONS_TIME,
    "first_person": text.FIRST_PERSON,
}


def _single_features(
    query: ParsedQuery, pool: CandidatePool, rows: Array, scores: Array, relevance: Array
) -> dict[str, Array]:
    """Return the features of single rows."""
    flags = pool.column("flags")[rows]
    said = {name: (flags & flag > 0).astype(np.float64) for name, flag in _PAIR_FLAGS.items()}
    return said | {
        "relevance": relevance,
        "logit": _logits(relevance),
        "top": scores - scores.max(initial=-np.inf),
        "place": 1 / (1 + np.arange(len(rows))),
        "length": np.log1p(pool.column("length")[rows]) / 5,
        "kind": kind_feature(query, flags),
    }


def _query_features(query: ParsedQuery, count: int) -> dict[str, Array]:
    """Return what the query asks for, the same for each of so many pairs."""
    asked = {f"asks_{kind}": float(query.kind == kind) for kind in ("when", "count", "where", "who", "what")}
    asked |= {
        "one": float(query.expects_one),
        "many": float(query.expects_many),
        "current": float(query.tense == "current"),
        "terms": min(len(query.terms), 8) / 8,
    }
    return {name: np.full(count, value) for name, value in asked.items()}


def _closeness_features(older: Array, newer: Array, rarity: Array) -> dict[str, Array]:
    """Return how much less close one row of a pair comes to the words of the query, and how close both do."""
    lost, won, both = np.maximum(older - newer, 0), np.maximum(newer - older, 0), np.minimum(older, newer)
    count = len(rarity)
    return {
        "lost": lost @ rarity,
        "lost_most": (lost * rarity * count).max(axis=1, initial=0.0),
        "won": won @ rarity,
        "won_most": (won * rarity * count).max(axis=1, initial=0.0),
        "both_match": both @ rarity,
        "both_worst": both.min(axis=1, initial=1.0),
    }


def _similarity_features(pool: CandidatePool, rows: Array) -> dict[str, Array]:
    """Return [rows, rows]: how alike rows are by their vectors, and how much more than others."""
    means = _mean_vectors(pool, rows)
    similarity = means @ means.T
    closeness = _token_closeness(pool, rows)
    return {
        "similarity": similarity,
        "forward": closeness,
        "backward": closeness.T,
        "similarity_lead": _similarity_lead(similarity),
        "closeness_lead": _similarity_lead((closeness + closeness.T) / 2),
    }


def _highest_other(values: Array, lowest: float) -> Array:
    """Return [rows, columns]: the highest value of each row in any other column, or `lowest`."""
    places = np.arange(len(values))
    best = values.argmax(axis=1)
    rest = values.copy()
    rest[places, best] = -np.inf
    highest, second = values[places, best], rest.max(axis=1)
    others = np.where(best[:, None] == places[None, :], second[:, None], highest[:, None])
    return np.asarray(np.maximum(others, lowest))


def _similarity_lead(similarity: Array) -> Array:
    """Return [rows, rows]: how much more alike two rows are than either is to any other row."""
    others = _highest_other(similarity - np.diag(np.full(len(similarity), np.inf)), 0.0)
    return np.asarray(similarity - np.maximum(others, others.T))


def _score_lead(scores: Array) -> Array:
    """Return [rows, rows]: how far the lower score of two rows lies above that of any other row."""
    least = np.minimum(scores[:, None], scores[None, :])
    if len(scores) < 3:
        return np.full_like(least, LEAD_OF_ALL)
    first, second, third = np.argsort(-scores, kind="stable")[:3]
    rows = np.arange(len(scores))
    has_first, has_second = ((rows[:, None] == one) | (rows[None, :] == one) for one in (first, second))
    other = np.where(~has_first, scores[first], np.where(~has_second, scores[second], scores[third]))
    return np.asarray(np.clip(least - other, -6.0, 6.0))


def _mean_vectors(pool: CandidatePool, rows: Array) -> Array:
    place = np.full(pool.size, -1)
    place[rows] = np.arange(len(rows))
    owners = place[pool.vector_rows]
    needed = np.flatnonzero(owners >= 0)
    sums = np.zeros((len(rows), pool.dim))
    np.add.at(sums, owners[needed], pool.vectors[needed])
    return np.asarray(sums / np.maximum(np.linalg.norm(sums, axis=1), 1e-9)[:, None])


def _token_closeness(pool: CandidatePool, rows: Array) -> Array:
    """Return [rows, rows]: the mean over the tokens of one of the closest token of the other."""
    closeness = np.zeros((len(rows), len(rows)))
    tokens = [one[:_MAX_TOKENS] for one in pool.tokens_of(rows)]
    sizes = np.array([*map(len, tokens)])
    present = np.flatnonzero(sizes)
    if not len(present):
        return closeness
    joined = np.concatenate([tokens[at] for at in present]).astype(np.float32)
    starts = np.cumsum(sizes[present]) - sizes[present]
    # Token vectors are unit vectors times 127.
    similarity = chunked_matmul(joined, joined.T / np.float32(127 * 127))
    best = np.maximum.reduceat(similarity, starts, axis=1)
    means = np.add.reduceat(best, starts, axis=0) / sizes[present][:, None]
    closeness[np.ix_(present, present)] = means
    return closeness


def _term_features(query: ParsedQuery, pool: CandidatePool, rows: Array) -> dict[str, Array]:
    """Return [rows, rows]: what the terms of two rows have in common and what each has alone, by rarity."""
    sizes = pool.column("count")
    starts = np.cumsum(sizes) - sizes
    sets = [pool.terms[starts[row] : starts[row] + sizes[row]] for row in rows.tolist()]
    terms, inverse = np.unique(np.concatenate([*sets, np.zeros(0, np.int64)]), return_inverse=True)
    owner = np.repeat(np.arange(len(rows)), [len(one) for one in sets])
    has = np.zeros((len(rows), len(terms)))
    has[owner, inverse] = 1.0
    rarity = np.array([term_rarity_by_id(int(term)) for term in terms])
    asked = np.isin(terms, [text.term_id(term) for term in query.terms])
    whole, common = has @ rarity, (has * rarity) @ has.T
    own, told = has * (rarity * asked), has * (rarity * ~asked)
    alone = np.minimum(told.sum(axis=1)[:, None] - told @ has.T, 8.0) / 8
    content = [
        term for term in query.terms if term not in query.name_terms and term_rarity(term) >= ANSWERING
    ]
    numbers_left = _left(has, terms, [term for term in query.terms if any(map(str.isdigit, term))])
    speaker, role = pool.column("speaker")[rows], pool.column("role")[rows]
    return {
        "shared": common / np.maximum(whole[:, None] + whole[None, :] - common, 1e-9),
        "left_older": (whole[:, None] - common) / np.maximum(whole[:, None], 1e-9),
        "left_newer": (whole[None, :] - common) / np.maximum(whole[None, :], 1e-9),
        "common": np.minimum(common, 4.0) / 4,
        "told": np.minimum((told * (rarity >= ANSWERING)) @ has.T, 3.0) / 3,  # beyond what is asked for
        "kept": (own @ has.T + 0.5) / (own.sum(axis=1)[:, None] + 0.5),
        "alone_older": alone,
        "alone_newer": alone.T,
        "numbers_left": numbers_left,
        "words_left": _left(has, terms, content) + 2 * numbers_left,  # 17 is not 18
        "names_left": np.minimum(_left(has, terms, _telling_terms(query)), 2.0),
        "speaker": (speaker[:, None] == speaker[None, :]) * (role[:, None] == role[None, :]) * 1.0,
    }


def _left(has: Array, terms: Array, asked: Sequence[str]) -> Array:
    """Return [rows, rows]: the number of asked terms that the first row has and the second lacks."""
    own = has[:, np.isin(terms, [text.term_id(term) for term in asked])]
    return np.asarray(own.sum(axis=1)[:, None] - own @ own.T)
