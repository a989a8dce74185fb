"""Put the newer of competing hits first, and say which hits a newer one replaces.

Where two or three hits stand out from all others, they most often answer the same question, and the newest is
the one that holds: it comes first, or last where the question is for an earlier state. Where many hits fit
about equally well, they are as many events, and keep their order.

The claim that an older hit is outdated is stronger, because statements may both be true. It is estimated for
pairs of hits from the similarity of their vectors and words, from how well both answer the question, and from
words of change ("no longer", "switched").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from omoide.retrieval import text
from omoide.retrieval.pool import Array, CandidatePool, chunked_matmul
from omoide.retrieval.queries import ParsedQuery
from omoide.retrieval.relevance import RARE, Calibration, has_terms, term_rarity_by_id

MAX_ROWS = 20
"""Number of the best rows that are compared with each other."""


MAX_COMPETING = 3
"""Number of rows that may compete for one answer."""
LIKELIHOOD_GAP = 0.5
"""Distance of the logits of relevance from which rows stand out from the others."""
MIN_RELEVANCE = 0.015
"""Relevance below which a row does not compete."""
MAX_SPREAD = 3.5
"""Greatest distance of the logits of relevance among rows that compete."""
MAX_SPREAD_BY_WORDS = 0.3
"""The same without vectors: a row with more words of the query answers more of it."""
SCORE_GAP = 2.5
"""Distance of scores from which they do."""
OUTDATED_FROM = 0.9
"""Probability from which an older hit is said to be outdated; statements that are both true must not be."""
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
) -> tuple[list[int], dict[int, int]]:
    """Return the order of ranked rows, and for outdated ones the newer row, both as indexes into `rows`.

    Args:
        query: The parsed query.
        pool: The candidates.
        rows: Rows of the pool, best first; the first `MAX_ROWS` are compared.
        scores: The score of each.
        relevance: The relevance of each; None if it is not known.
        calibration: The models for the pool's vectors.
    """
    order = [*range(len(rows))]
    if relevance is None or len(rows) < 2:
        return order, {}
    compared = np.asarray(rows[:MAX_ROWS], np.int64)
    time = pool.column("time")[compared]
    newer = {} if query.expects_many else _outdated(query, pool, compared, scores, relevance, calibration)
    spread = MAX_SPREAD if len(pool.vectors) else MAX_SPREAD_BY_WORDS
    size = _standing_out(scores[:MAX_ROWS], relevance[:MAX_ROWS], spread)
    if not query.tense and not _name_the_same(query, pool, compared[:size]):
        size = 1
    direction = 1 if query.tense == "past" else -1
    order[:size] = np.argsort(direction * time[:size], kind="stable").tolist()
    for older, newest in newer.items():
        if query.tense != "past" and order.index(newest) > order.index(older):
            order.remove(newest)
            order.insert(order.index(older), newest)
    return order, newer


def _standing_out(scores: Array, relevance: Array, max_spread: float) -> int:
    """Return the number of the best rows that stand out from all others; 1 if it is only one, or too many."""
    bounded = np.clip(relevance, 1e-4, 1 - 1e-4)
    likelihood = np.log(bounded / (1 - bounded))
    for size in range(2, min(MAX_COMPETING, len(scores)) + 1):
        weakest = likelihood[:size].min()
        if relevance[:size].min() < MIN_RELEVANCE or likelihood[:size].max() - weakest > max_spread:
            return 1
        if size == len(scores) or weakest - likelihood[size:].max() >= LIKELIHOOD_GAP:
            return size
        if scores[:size].min() - scores[size:].max() >= SCORE_GAP:
            return size
    return 1


def _name_the_same(query: ParsedQuery, pool: CandidatePool, rows: Array) -> bool:
    """Return True if all rows have those of the query's names and rare words that the first row has.

    Otherwise they speak of different things: of two functions, servers or people.
    """
    telling = [
        text.term_id(term)
        for term in query.terms
        if term in query.name_terms or term_rarity_by_id(text.term_id(term)) >= RARE
    ]
    if not telling or len(rows) < 2:
        return True
    has_term = has_terms(pool, np.array(telling, np.int64), rows)
    return bool((has_term | ~has_term[0]).all())


def _outdated(
    query: ParsedQuery,
    pool: CandidatePool,
    rows: Array,
    scores: Array,
    relevance: Array,
    calibration: Calibration | None,
) -> dict[int, int]:
    """Return, for each row that a newer one replaces, the newest of those."""
    if calibration is None or calibration.outdated is None:
        return {}
    pairs = compare(query, pool, rows, scores[:MAX_ROWS], relevance[:MAX_ROWS])
    if not len(pairs.older):
        return {}
    is_outdated = calibration.outdated.probabilities(pairs.features) > OUTDATED_FROM
    time = pool.column("time")[rows]
    found = zip(pairs.older[is_outdated].tolist(), pairs.newer[is_outdated].tolist(), strict=True)
    return dict(sorted(found, key=lambda pair: time[pair[1]]))  # the last one of several counts


def compare(query: ParsedQuery, pool: CandidatePool, rows: Array, scores: Array, relevance: Array) -> Pairs:
    """Compare rows pairwise, given the score and the relevance of each."""
    time = pool.column("time")[rows]
    older, newer = np.nonzero(time[:, None] < time[None, :])
    flags = pool.column("flags")[rows]
    speaker = pool.column("speaker")[rows]
    role = pool.column("role")[rows]
    shared, only_older, only_newer = _term_overlap(pool, rows)
    both = {
        "shared": shared[older, newer],
        "left_older": only_older[older, newer],
        "left_newer": only_newer[older, newer],
        "change": (flags[newer] & text.MENTIONS_CHANGE > 0).astype(np.float64),
        "addition": (flags[newer] & text.MENTIONS_ADDITION > 0).astype(np.float64),
        "number": ((flags[older] & flags[newer] & text.MENTIONS_NUMBER) > 0).astype(np.float64),
        "place": ((flags[older] & flags[newer] & text.MENTIONS_PLACE) > 0).astype(np.float64),
        "name": ((flags[older] & flags[newer] & text.MENTIONS_NAME) > 0).astype(np.float64),
        "speaker": (speaker[older] == speaker[newer]).astype(np.float64) * (role[older] == role[newer]),
        "asks": (flags[newer] & text.IS_QUESTION > 0).astype(np.float64),
        "relevance_older": relevance[older],
        "relevance_newer": relevance[newer],
        "least": np.minimum(relevance[older], relevance[newer]),
        "many": np.full(len(older), float(query.expects_many)),
        "ahead": np.clip(scores[older] - scores[newer], -6.0, 6.0),
        "one": np.full(len(older), float(query.expects_one)),
        "current": np.full(len(older), float(query.tense == "current")),
        "past": np.full(len(older), float(query.tense == "past")),
        "gap": np.log1p((time[newer] - time[older]) / 86_400_000) / 6,
    }
    if len(pool.vectors):
        means = _mean_vectors(pool, rows)
        both["similarity"] = (means @ means.T)[older, newer]
        closeness = _token_closeness(pool, rows)
        both["forward"] = closeness[older, newer]
        both["backward"] = closeness[newer, older]
    return Pairs(older, newer, both)


def _mean_vectors(pool: CandidatePool, rows: Array) -> Array:
    means = np.zeros((len(rows), pool.dim))
    for at, row in enumerate(rows.tolist()):
        own = pool.vectors[pool.vector_rows == row]
        if len(own):
            mean = own.mean(axis=0)
            means[at] = mean / max(float(np.linalg.norm(mean)), 1e-9)
    return means


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


def _term_overlap(pool: CandidatePool, rows: Array) -> tuple[Array, Array, Array]:
    """Return the shares of terms, by rarity, that pairs have in common, and that each has alone."""
    sizes = pool.column("count")
    starts = np.cumsum(sizes) - sizes
    sets = [pool.terms[starts[row] : starts[row] + sizes[row]] for row in rows.tolist()]
    terms, inverse = np.unique(np.concatenate([*sets, np.zeros(0, np.int64)]), return_inverse=True)
    owner = np.repeat(np.arange(len(rows)), [len(one) for one in sets])
    has = np.zeros((len(rows), len(terms)))
    has[owner, inverse] = 1.0
    weights = np.array([term_rarity_by_id(int(term)) for term in terms])
    weight = has @ weights
    common = (has * weights) @ has.T
    union = np.maximum(weight[:, None] + weight[None, :] - common, 1e-9)
    older_alone = (weight[:, None] - common) / np.maximum(weight[:, None], 1e-9)
    newer_alone = (weight[None, :] - common) / np.maximum(weight[None, :], 1e-9)
    return common / union, older_alone, newer_alone
