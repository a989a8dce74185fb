"""Estimate how likely a memory helps to answer a query, whatever else is stored.

The score of a hit compares the rows of one pool; relevance compares a row with the query alone. Its features
do not depend on the other rows: the cosine of the vectors, the closeness of single words, the share of the
query's words that the row has, each word weighted by how rare it is in conversations (`common_terms.txt`),
and whether speaker, time and kind agree. A logistic model turns them into a probability. It is part of a
`Calibration`, which is fitted for one embedder, on conversations that the embedder was not trained on;
vectors of an embedder without one give no relevance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from math import log

import msgspec
import numpy as np

from omoide.retrieval import text
from omoide.retrieval.pool import Array, CandidatePool, context_window, max_similarity
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


class Calibration(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The models that were fitted for the vectors of one embedder, or for words alone."""

    embedder: str | None
    """Name of the embedder; None for words alone."""
    relevance: LogisticModel
    """Whether a memory helps to answer a query."""
    outdated: LogisticModel | None = None
    """Whether the newer of two memories replaces the older one; see `succession`."""


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
    }
    speaker = pool.column("speaker")[rows]
    is_named = np.isin(speaker, [*query.named_speakers])
    features["speaker"] = is_named.astype(np.float64)
    features["other_speaker"] = (~is_named & (speaker >= 0) & bool(query.named_speakers)).astype(np.float64)
    if vector is None or not len(pool.vectors):
        return features
    cosine = _cosines(vector.pooled, pool, rows)
    features["cosine"] = cosine
    if vector.tokens is not None and vector.words is not None and pool.token_loader is not None:
        tokens = text.content_token_indexes(vector.words)
        rarity = np.array([_word_rarity(vector.words[at], names) for at in tokens], np.float32)
        rarity /= max(float(rarity.sum()), 1e-9)
        similarity = max_similarity(vector.tokens[tokens], pool.tokens_of(rows), rarity)
        features["match"] = (similarity @ rarity).astype(np.float64)
        features["worst"] = similarity.min(axis=1, initial=1.0).astype(np.float64)
        features["best"] = (similarity * rarity).max(axis=1, initial=0.0).astype(np.float64) * len(tokens)
    return features


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
