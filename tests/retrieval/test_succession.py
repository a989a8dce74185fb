"""Tests of succession: the newer of two statements about one subject comes first."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omoide.retrieval.pool import CandidatePool
from omoide.retrieval.queries import parse_query
from omoide.retrieval.relevance import Calibration, LogisticModel, Network, arrange, calibrations, compare
from omoide.retrieval.text import extract_features

NOW = 1_700_000_000_000
DAY = 86_400_000
ALWAYS, NEVER = LogisticModel(9.0, {}), LogisticModel(-9.0, {})
SAME_SUBJECT = LogisticModel(-2.0, {"shared": 20.0})


def build_network(bias: float, shared: float = 0.0) -> Network:
    """Return a network of one unit that sees the share of common words."""
    numbers = ([0.0, 1.0], [shared / 9, bias / 9], [9.0, 0.0])
    return Network(("shared",), *(np.array(one, "<f4").tobytes() for one in numbers))


ALWAYS_VALUES, NO_VALUES, LIKE_VALUES = build_network(9), build_network(-9), build_network(-2, 20)


def build_calibration(outdated: LogisticModel, order: Network | None = NO_VALUES) -> Calibration:
    return Calibration(embedder=None, relevance=ALWAYS, outdated=outdated, order=order)


def build_pool(texts: Sequence[str], days: Sequence[int]) -> CandidatePool:
    """Build a pool with vectors that say nothing, as those of texts that are all alike."""
    vector = np.ones(1, np.float32).tobytes()
    return CandidatePool.build(
        [extract_features(one).to_bytes() for one in texts],
        time=[NOW - DAY * (1000 - day) for day in days],
        vectors=[vector] * len(texts),
        dim=1,
    )


def arrange_all(
    query: str,
    pool: CandidatePool,
    outdated: LogisticModel = NEVER,
    relevance: Sequence[float] | None = None,
    order: Network | None = NO_VALUES,
) -> tuple[list[int], dict[int, int]]:
    """Arrange all rows in their order, each a little worse than the one before unless relevance says more."""
    likelihood = np.full(pool.size, 0.5) if relevance is None else np.array(relevance)
    scores = -0.1 * np.arange(pool.size)
    calibration = build_calibration(outdated, order)
    return arrange(parse_query(query, now=NOW), pool, range(pool.size), scores, likelihood, calibration)


DESKS = ["My desk is on floor two.", "My desk is on floor five.", "My desk is on floor six."]


def test_of_two_hits_that_stand_out_the_newer_comes_first() -> None:
    """Both answer the question far better than the rest; no model of the order is known."""
    pool = build_pool([*DESKS[:2], "We had soup.", "We had tea."], [1, 2, 9, 8])
    order, newer = arrange_all("Where is my desk?", pool, relevance=[0.6, 0.5, 0.05, 0.04], order=None)
    assert order == [1, 0, 2, 3]
    assert newer == {}


def test_where_an_earlier_state_is_asked_for_the_older_comes_first() -> None:
    """The past is asked for in words, and the order of time turns round."""
    pool = build_pool([*DESKS[:2], "We had soup."], [2, 1, 9])
    order, _ = arrange_all("Where did my desk use to be?", pool, relevance=[0.6, 0.5, 0.05], order=None)
    assert order == [1, 0, 2]


def test_where_many_hits_fit_about_equally_well_their_order_stays() -> None:
    """A crowd of good hits is a crowd of events, and none replaces another."""
    pool = build_pool([f"We went to the lake, trip {number}." for number in range(6)], range(6))
    assert arrange_all("When did we go to the lake?", pool)[0] == [0, 1, 2, 3, 4, 5]


def test_a_hit_that_stands_out_alone_stays_first() -> None:
    """A newer hit that fits far worse does not come before the answer."""
    pool = build_pool([DESKS[0], "We had soup.", "We had tea.", "We had rice."], [1, 9, 8, 7])
    assert arrange_all("Where is my desk?", pool, relevance=[0.7, 0.05, 0.05, 0.05])[0] == [0, 1, 2, 3]


def test_of_values_of_one_thing_the_newest_comes_first_and_none_is_marked() -> None:
    """Hits that the model takes for values of what is asked are ordered by time, wherever they stood."""
    pool = build_pool(["We had soup.", *DESKS, "We had tea.", "We had rice."], [9, 1, 2, 3, 4, 8])
    order, newer = arrange_all("Where is my desk?", pool, order=LIKE_VALUES)
    assert order == [0, 3, 2, 1, 4, 5]
    assert newer == {}
    order, _ = arrange_all("Where did my desk use to be?", pool, order=LIKE_VALUES)
    assert order == [0, 1, 2, 3, 4, 5]


def test_a_newer_value_comes_first_although_it_lacks_the_words_of_the_question() -> None:
    """The newer statement often says it in other words; the model tells whether it is one."""
    pool = build_pool(["My favourite tea is Earl Grey.", "For me rooibos, it is what I always take."], [1, 2])
    assert arrange_all("What is my favourite tea?", pool, order=ALWAYS_VALUES)[0] == [1, 0]


def test_a_newer_hit_without_the_number_that_is_asked_for_stays_below() -> None:
    """Seventeen is not eighteen: a row of another number is no other value of the same thing."""
    pool = build_pool(["Room 17 is blue.", "Room 18 is green."], [1, 2])
    assert arrange_all("Which colour is room 17?", pool, order=ALWAYS_VALUES)[0] == [0, 1]
    assert arrange_all("Which colour is the room?", pool, order=ALWAYS_VALUES)[0] == [1, 0]


def test_no_hit_is_outdated_by_one_that_lacks_the_words_of_the_question() -> None:
    """To say that something is outdated takes more than to order it."""
    pool = build_pool(["The kitchen window is cracked.", "The kitchen is blue."], [1, 2])
    assert arrange_all("Which kitchen window is cracked?", pool, outdated=ALWAYS)[1] == {}
    assert arrange_all("What about the kitchen?", pool, outdated=ALWAYS)[1] == {0: 1}


def test_an_outdated_hit_names_the_newest_one_and_comes_after_it() -> None:
    """Of several newer statements the last one counts."""
    pool = build_pool([*DESKS, "Soup.", "Tea."], [1, 2, 3, 4, 5])
    order, newer = arrange_all("Where is my desk?", pool, SAME_SUBJECT)
    assert newer == {0: 2, 1: 2}
    assert order.index(2) < min(order.index(0), order.index(1))


def test_nothing_is_outdated_where_several_answers_are_asked_for() -> None:
    """A question for several things has several answers that are all true."""
    pool = build_pool(["My sister Ann is five.", "My sister Zoe is eight."], [1, 2])
    assert arrange_all("How old are my sisters?", pool, SAME_SUBJECT)[1] == {}


def test_statements_of_one_time_keep_their_order() -> None:
    """Without an earlier and a later there is nothing to order."""
    assert arrange_all("Where is my desk?", build_pool(DESKS[:2], [4, 4]), ALWAYS) == ([0, 1], {})


def test_a_question_of_a_time_keeps_the_order_of_the_scores() -> None:
    """Which hits are of that time is in the scores; the newest of all is no better an answer."""
    pool = build_pool(DESKS[:2], [970, 999])
    for query in ("Where was my desk last month?", "Where was my desk in October 2023?"):
        order, newer = arrange_all(query, pool, outdated=ALWAYS, relevance=[0.6, 0.5])
        assert (order, newer) == ([0, 1], {})


def test_without_relevance_the_order_stays() -> None:
    """An embedder without a calibration changes nothing."""
    pool, query = build_pool(["one", "two"], [1, 2]), parse_query("one or two?", now=NOW)
    assert arrange(query, pool, [0, 1], np.zeros(2), None, None) == ([0, 1], {})


@given(st.lists(st.tuples(st.text(min_size=1, max_size=30), st.integers(0, 20)), max_size=24), st.booleans())
def test_no_hit_is_lost(rows: list[tuple[str, int]], always: bool) -> None:
    """Whatever the texts: each hit stays once, and what is outdated is older than what replaces it."""
    pool = build_pool([text for text, _ in rows], [day for _, day in rows])
    order, newer = arrange_all("what?", pool, ALWAYS if always else NEVER)
    assert sorted(order) == [*range(len(rows))]
    assert all(rows[older][1] < rows[later][1] for older, later in newer.items())


def test_pairs_are_compared_in_the_order_of_time() -> None:
    """Each pair has the earlier row first; the features say what they share and what is left."""
    pool = build_pool(["My desk is on floor two.", "My desk is on floor five."], [2, 1])
    pairs = compare(parse_query("desk?", now=NOW), pool, np.arange(2), np.zeros(2), np.ones(2))
    assert (pairs.older.tolist(), pairs.newer.tolist()) == ([1], [0])
    assert 0.3 < pairs.features["shared"][0] < 1


def test_a_pair_says_what_it_keeps_of_the_question_and_what_it_tells_beyond() -> None:
    """A newer statement that names the older value speaks of the same thing, in other words."""
    pool = build_pool(["Karim drives a Volvo.", "Karim has a Skoda, the Volvo is scrap."], [1, 2])
    asked = parse_query("What does Karim drive?", now=NOW)
    features = compare(asked, pool, np.arange(2), np.zeros(2), np.ones(2)).features
    assert features["told"][0] > 0
    assert features["kept"][0] < 1
    assert features["lost"][0] == features["cosine_older"][0] == 0  # nothing is known of the vector


def test_the_order_of_the_package_uses_features_that_exist() -> None:
    """Each feature of the network is one of a pair of rows."""
    pool = build_pool(DESKS[:2], [1, 2])
    provided = compare(parse_query("desk?", now=NOW), pool, np.arange(2), np.zeros(2), np.ones(2)).features
    for calibration in calibrations():
        if calibration.order is not None:
            assert set(calibration.order.names) <= provided.keys()
            assert 0 <= calibration.order.probabilities(provided)[0] <= 1
