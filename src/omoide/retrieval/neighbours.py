"""Which rows were said next to each other?

Neighbours follow one another in a thread. The window of a row is the row and up to two neighbours on each
side, as many as fit into a bound of words: a window of long messages would drown what was asked for.
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
"""A pause, in milliseconds, after which the same thread goes on with another episode."""
CONTEXT_STEPS = 4
CONTEXT_WORDS = 120
"""How far the context of a row reaches, in rows and in words from middle to middle."""
FADING = 0.25 / CONTEXT_WORDS
"""What a word of distance takes away."""


@dataclass(frozen=True, slots=True)
class Around:
    """For each row, its neighbours; `size` of the pool stands for nobody."""

    order: Array
    """The rows of all threads, one after another."""
    place: Array
    """[rows]: where each row stands in the order, -1 for rows of no thread."""
    run: Array
    """[order]: which uninterrupted stretch of a thread each belongs to."""
    middle: Array
    """[order]: how many words were said before its middle."""
    table: Array
    """[rows, 4]: the row before, after, two before, two after."""
    episode: Array
    """[rows]: which episode of which thread it belongs to, -1 for none."""
    episodes: int


@dataclass(frozen=True, slots=True)
class Context:
    """For some rows, the rows around them: [rows, 2 * CONTEXT_STEPS]."""

    rows: Array
    """`size` of the pool where there is none."""
    nearness: Array
    """From 1 downwards with every word between them, 0 where there is none."""


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
    """[segments]: the terms in each window."""
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
    place = np.full(size, -1, np.int64)
    place[order] = np.arange(len(order))
    threads, positions, times, length = thread[order], seq[order], time[order], pool.column("length")[order]
    other = np.ones(len(order), np.bool_)
    other[1:] = threads[1:] != threads[:-1]
    apart = other.copy()
    apart[1:] |= positions[1:] - positions[:-1] > pool.reach
    pause = other.copy()
    pause[1:] |= np.abs(times[1:] - times[:-1]) > EPISODE_GAP
    run = np.cumsum(apart)
    table = np.full((size, len(STEPS)), size, np.int64)
    for at, step in enumerate(STEPS):
        distance = abs(step)
        same = run[distance:] == run[:-distance]
        same &= positions[distance:] - positions[:-distance] <= pool.reach
        earlier, later = order[:-distance][same], order[distance:][same]
        if step < 0:
            table[later, at] = earlier
        else:
            table[earlier, at] = later
    episode = np.full(size, -1, np.int64)
    episode[order] = np.cumsum(pause) - 1
    return Around(
        order=order,
        place=place,
        run=run,
        middle=np.cumsum(length) - length / 2,
        table=table,
        episode=episode,
        episodes=int(pause.sum()),
    )


def context(pool: Pool, rows: Array) -> Context:
    """The rows around these, and how near each is."""
    near = around(pool)
    steps = np.array([step for step in range(-CONTEXT_STEPS, CONTEXT_STEPS + 1) if step])
    if not len(near.order):
        shape = (len(rows), len(steps))
        return Context(rows=np.full(shape, pool.size), nearness=np.zeros(shape, np.float32))
    place = near.place[rows][:, None]
    other = place + steps
    inside = (place >= 0) & (other >= 0) & (other < len(near.order))
    other = np.clip(other, 0, len(near.order) - 1)
    distance = np.abs(near.middle[other] - near.middle[place])
    inside &= (near.run[other] == near.run[place]) & (distance <= CONTEXT_WORDS)
    return Context(
        rows=np.where(inside, near.order[other], pool.size),
        nearness=np.where(inside, 1.0 - FADING * distance, 0.0).astype(np.float32),
    )


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
    sizes = np.bincount(of_term, minlength=count + 1)[:count]
    lent = np.repeat(sizes, len(STEPS) + 1)
    windows = np.bincount(targets[:count].ravel(), lent, minlength=count + 1)[:count]
    living = pool.live[rows]
    mean = float(windows[living].mean()) if living.any() else 1.0
    return Segments(
        rows=rows, of_term=of_term, targets=targets, sizes=windows, count=count, mean=max(mean, 1.0)
    )


def _segment_of_terms(terms: Array, each: Array, firsts: Array, live: Array, count: int) -> Array:
    row_of_term = np.repeat(np.arange(len(terms)), terms)
    starts = np.cumsum(terms) - terms
    within = np.arange(len(row_of_term)) - starts[row_of_term]
    step = np.maximum(-(-terms // each), 1)
    found = firsts[row_of_term] + within // step[row_of_term]
    return np.where(live[row_of_term], found, count)
