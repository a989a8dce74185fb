"""Which rows were said next to each other?

Neighbours are up to two rows before and two after, in the same thread. The window of a row is the row and as
many of its neighbours as fit into a bound of words: a window of long messages would drown what was asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from omoide.retrieval.pool import Array, Pool

STEPS = (-1, 1, -2, 2)
WINDOW_WORDS = 120
SEGMENT_TERMS = 45
"""Terms of a segment: about 80 words."""
EPISODE_GAP = 4 * 3_600_000
"""A pause after which the same thread goes on with another episode."""


@dataclass(frozen=True, slots=True)
class Around:
    """For each row, its neighbours; `size` of the pool stands for nobody."""

    table: Array
    """[rows, 4]: the row before, after, two before, two after."""
    episode: Array
    """[rows]: which episode of which thread it belongs to, -1 for none."""
    episodes: int


@dataclass(frozen=True, slots=True)
class Segments:
    """The rows cut into segments of about equal size; most rows are one segment."""

    rows: Array
    """[segments]: the row of each segment."""
    of_term: Array
    """[terms]: the segment of each term, `count` for terms of dropped rows."""
    targets: Array
    """[segments + 1, 5]: to whose windows each segment lends its terms: its own, then its neighbours'."""
    sizes: Array
    """[segments]: the terms in each window, by weight."""
    count: int
    mean: float


def around(pool: Pool) -> Around:
    """The neighbours of every row."""
    return pool.derive("around", _around)


def _around(pool: Pool) -> Around:
    size = pool.size
    thread, seq, time = pool.column("thread"), pool.column("seq"), pool.column("time")
    order = np.lexsort((seq, thread))
    order = order[pool.live[order] & (thread[order] >= 0)]
    table = np.full((size, len(STEPS)), size, np.int64)
    threads, positions, times = thread[order], seq[order], time[order]
    for at, step in enumerate(STEPS):
        distance = abs(step)
        if len(order) <= distance:
            continue
        earlier, later = order[:-distance], order[distance:]
        near = (threads[:-distance] == threads[distance:]) & (
            positions[distance:] - positions[:-distance] <= pool.reach
        )
        if step < 0:
            table[later[near], at] = earlier[near]
        else:
            table[earlier[near], at] = later[near]
    episode = np.full(size, -1, np.int64)
    episodes = 0
    if len(order):
        fresh = np.ones(len(order), np.bool_)
        fresh[1:] = (threads[1:] != threads[:-1]) | (np.abs(times[1:] - times[:-1]) > EPISODE_GAP)
        codes = np.cumsum(fresh) - 1
        episode[order] = codes
        episodes = int(codes[-1]) + 1
    return Around(table=table, episode=episode, episodes=episodes)


def segments(pool: Pool) -> Segments:
    """The segments of all rows and the windows around them."""
    return pool.derive("segments", _segments)


def _segments(pool: Pool) -> Segments:
    size = pool.size
    terms, length = pool.column("count"), pool.column("length")
    each = np.maximum(1, -(-terms // SEGMENT_TERMS))
    each[terms <= SEGMENT_TERMS * 4 // 3] = 1
    firsts = np.cumsum(each) - each
    count = int(each.sum())
    rows = np.repeat(np.arange(size), each)
    of_term = _segment_of_terms(terms, each, firsts, pool.live, count)
    table = around(pool).table
    # Who lends to whom: a neighbour lends its terms while the window stays within its bound of words.
    targets = np.full((count + 1, len(STEPS) + 1), count, np.int64)
    targets[:count, 0] = np.arange(count)
    single = np.append(each == 1, False)
    words = np.append(length, 2 * WINDOW_WORDS)
    total = np.where(each == 1, length, 2 * WINDOW_WORDS)
    firsts_or_none = np.append(firsts, count)
    for at in range(len(STEPS)):
        other = table[:, at]
        fits = single[other] & (total + words[other] <= WINDOW_WORDS)
        total = total + np.where(fits, words[other], 0)
        lender = firsts_or_none[other[fits]]
        targets[lender, at + 1] = firsts[fits]
    sizes = np.bincount(of_term, minlength=count + 1)
    own = np.bincount(targets[:count].ravel(), np.repeat(sizes[:count], len(STEPS) + 1), minlength=count + 1)[:count]
    living = pool.live[rows]
    mean = float(own[living].mean()) if living.any() else 1.0
    return Segments(rows=rows, of_term=of_term, targets=targets, sizes=own, count=count, mean=max(mean, 1.0))


def _segment_of_terms(terms: Array, each: Array, firsts: Array, live: Array, count: int) -> Array:
    row_of_term = np.repeat(np.arange(len(terms)), terms)
    starts = np.cumsum(terms) - terms
    within = np.arange(len(row_of_term)) - starts[row_of_term]
    step = -(-terms // np.maximum(each, 1))
    found = firsts[row_of_term] + within // np.maximum(step[row_of_term], 1)
    return np.where(live[row_of_term], found, count)
