"""Find hits that a newer hit on the same subject replaces, and put the newer one first.

Two statements compete if they speak of the same subject and say something different of it: "I live in
Berlin", later "We moved to Paris". Whether they do is estimated from the similarity of their vectors and
words, from how well both answer the question, and from words of change ("no longer", "switched"). The order
follows the probability that the newer answer is the one asked for; the stronger claim that the older one is
outdated needs more evidence, because statements may both be true.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from omoide.retrieval import text
from omoide.retrieval.pool import Array, CandidatePool, chunked_matmul
from omoide.retrieval.queries import ParsedQuery
from omoide.retrieval.relevance import Calibration, term_rarity_by_id

MAX_ROWS = 20
"""Number of the best rows that are compared with each other."""


OUTDATED_FROM = 0.85
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
    if calibration is None or calibration.order is None or relevance is None or len(rows) < 2:
        return order, {}
    compared = np.asarray(rows[:MAX_ROWS], np.int64)
    pairs = compare(query, pool, compared, scores[:MAX_ROWS], relevance[:MAX_ROWS])
    if not len(pairs.older):
        return order, {}
    precedes = calibration.order.probabilities(pairs.features) > 0.5
    before, after = (pairs.older, pairs.newer) if query.tense == "past" else (pairs.newer, pairs.older)
    # From the first to the last in the wanted direction of time, so that the last one ends up on top.
    time = pool.column("time")[compared]
    for row in np.argsort(-time if query.tense == "past" else time, kind="stable").tolist():
        targets = {*after[precedes & (before == row)].tolist()}
        place = next((at for at, other in enumerate(order) if other in targets), None)
        if place is not None and order.index(row) > place:
            order.remove(row)
            order.insert(place, row)
    newer: dict[int, int] = {}
    if calibration.outdated is not None and not query.expects_many:
        replaced = calibration.outdated.probabilities(pairs.features) > OUTDATED_FROM
        outdated = zip(pairs.older[replaced].tolist(), pairs.newer[replaced].tolist(), strict=True)
        newer = dict(sorted(outdated, key=lambda pair: time[pair[1]]))  # the last one of several counts
    return order, newer


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
