"""Tests of succession: the newer of two statements about one subject comes first."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omoide.retrieval.pool import CandidatePool
from omoide.retrieval.queries import parse_query
from omoide.retrieval.relevance import Calibration, LogisticModel
from omoide.retrieval.succession import arrange, compare
from omoide.retrieval.text import extract_features

NOW = 1_700_000_000_000
DAY = 86_400_000
ALWAYS, NEVER = LogisticModel(9.0, {}), LogisticModel(-9.0, {})
SAME_SUBJECT = LogisticModel(-2.0, {"shared": 20.0})


def build_calibration(order: LogisticModel, outdated: LogisticModel = NEVER) -> Calibration:
    return Calibration(embedder=None, relevance=ALWAYS, order=order, outdated=outdated)


def build_pool(texts: Sequence[str], days: Sequence[int]) -> CandidatePool:
    return CandidatePool.build(
        [extract_features(one).to_bytes() for one in texts], time=[NOW - DAY * (1000 - day) for day in days]
    )


def arrange_all(
    query: str, pool: CandidatePool, calibration: Calibration | None
) -> tuple[list[int], dict[int, int]]:
    scores = -np.arange(pool.size, dtype=float)
    return arrange(
        parse_query(query, now=NOW), pool, range(pool.size), scores, np.full(pool.size, 0.5), calibration
    )


def test_the_newer_statement_on_a_subject_moves_before_the_older_one() -> None:
    """A hit on another subject keeps its place; the newest of three comes first."""
    texts = [
        "My desk is on floor two.",
        "We had soup.",
        "My desk is on floor five.",
        "My desk is on floor six.",
    ]
    order, newer = arrange_all(
        "Where is my desk?", build_pool(texts, [1, 9, 2, 3]), build_calibration(SAME_SUBJECT)
    )
    assert order == [3, 2, 0, 1]
    assert newer == {}


def test_an_outdated_statement_names_the_newest_one() -> None:
    """Of several newer statements the last one counts."""
    texts = ["My desk is on floor two.", "My desk is on floor five.", "My desk is on floor six."]
    calibration = build_calibration(SAME_SUBJECT, SAME_SUBJECT)
    order, newer = arrange_all("Where is my desk?", build_pool(texts, [1, 2, 3]), calibration)
    assert order == [2, 1, 0]
    assert newer == {0: 2, 1: 2}


def test_nothing_is_outdated_where_several_answers_are_asked_for() -> None:
    """A question for several things has several answers that are all true."""
    texts = ["My sister Ann is five.", "My sister Zoe is eight."]
    calibration = build_calibration(SAME_SUBJECT, SAME_SUBJECT)
    assert arrange_all("How old are my sisters?", build_pool(texts, [1, 2]), calibration)[1] == {}


def test_statements_of_one_time_keep_their_order() -> None:
    """Without an earlier and a later there is nothing to order."""
    texts = ["My desk is on floor two.", "My desk is on floor five."]
    calibration = build_calibration(ALWAYS, ALWAYS)
    assert arrange_all("Where is my desk?", build_pool(texts, [4, 4]), calibration) == ([0, 1], {})


def test_without_models_the_order_stays() -> None:
    """An embedder without a calibration changes nothing."""
    pool = build_pool(["one", "two"], [1, 2])
    assert arrange_all("one or two?", pool, None) == ([0, 1], {})


@given(st.lists(st.tuples(st.text(min_size=1, max_size=30), st.integers(0, 20)), max_size=24), st.booleans())
def test_every_hit_stays_and_the_order_of_time_holds(rows: list[tuple[str, int]], always: bool) -> None:
    """Whatever the texts: no hit is lost or doubled, and where all compete the newest come first."""
    pool = build_pool([text for text, _ in rows], [day for _, day in rows])
    order, newer = arrange_all("what?", pool, build_calibration(ALWAYS if always else NEVER, ALWAYS))
    assert sorted(order) == [*range(len(rows))]
    compared = [rows[at][1] for at in order if at < 20]
    assert not always or compared == sorted(compared, reverse=True)
    assert always or order == sorted(order)
    assert all(rows[older][1] < rows[later][1] for older, later in newer.items())


def test_pairs_are_compared_in_the_order_of_time() -> None:
    """Each pair has the earlier row first; the features say what they share and what is left."""
    pool = build_pool(["My desk is on floor two.", "My desk is on floor five."], [2, 1])
    pairs = compare(parse_query("desk?", now=NOW), pool, np.arange(2), np.zeros(2), np.ones(2))
    assert (pairs.older.tolist(), pairs.newer.tolist()) == ([1], [0])
    assert 0.3 < pairs.features["shared"][0] < 1
