"""Tests of the metrics of recall."""

from math import log2

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.eval import METRICS, measure
from omoide.eval.runner import average_metrics, first_occurrences, percentile

TWENTY = [f"t{rank}" for rank in range(1, 21)]

BY_HAND = [
    # gold, R@5, R@10, R@20, hit@10, all@5, all@10, nDCG@10, MRR
    (["t1"], [1, 1, 1, 1, 1, 1, 1, 1]),
    (["t2"], [1, 1, 1, 1, 1, 1, 1 / log2(3), 1 / 2]),
    (["t10"], [0, 1, 1, 1, 0, 1, 1 / log2(11), 1 / 10]),
    (["t11"], [0, 0, 1, 0, 0, 0, 0, 1 / 11]),
    (["absent"], [0, 0, 0, 0, 0, 0, 0, 0]),
    (["t1", "t2"], [1, 1, 1, 1, 1, 1, 1, 1]),
    (["t5", "t6"], [1 / 2, 1, 1, 1, 0, 1, (1 / log2(6) + 1 / log2(7)) / (1 + 1 / log2(3)), 1 / 5]),
    (["t1", "t15", "absent"], [1 / 3, 1 / 3, 2 / 3, 1, 0, 0, 1 / (1 + 1 / log2(3) + 1 / 2), 1]),
    (TWENTY, [1 / 4, 1 / 2, 1, 1, 0, 0, 1, 1]),
]


@pytest.mark.parametrize(("gold", "figures"), BY_HAND, ids=lambda part: "-".join(map(str, part[:3])))
def test_figures_of_known_rankings(gold: list[str], figures: list[float]) -> None:
    """The figures of one question are those worked out by hand."""
    assert measure(TWENTY, gold) == pytest.approx(dict(zip(METRICS, figures, strict=True)))


def test_nothing_found_is_measured() -> None:
    """An empty ranking has every figure at zero."""
    assert set(measure([], ["t1"]).values()) == {0.0}


@given(
    ranked=st.lists(st.sampled_from(TWENTY), unique=True), gold=st.sets(st.sampled_from(TWENTY), min_size=1)
)
def test_figures_are_shares_in_order(ranked: list[str], gold: set[str]) -> None:
    """Every figure lies between 0 and 1, and looking further never finds less."""
    found = measure(ranked, gold)
    assert all(0 <= value <= 1 + 1e-9 for value in found.values())
    assert found["R@5"] <= found["R@10"] <= found["R@20"]
    assert found["all@5"] <= found["all@10"] <= found["hit@10"]


@given(gold=st.sets(st.sampled_from(TWENTY), min_size=1))
def test_the_best_ranking_is_full_marks(gold: set[str]) -> None:
    """A ranking that begins with everything wanted has an nDCG and an MRR of 1."""
    found = measure([*sorted(gold), *sorted(set(TWENTY) - gold)], gold)
    assert (found["nDCG@10"], found["MRR"], found["R@20"]) == pytest.approx((1, 1, 1))


def test_each_question_counts_the_same() -> None:
    """The mean is over questions, in per cent, however much evidence each has."""
    figures = [measure(TWENTY, ["t1"]), measure(TWENTY, ["t15", "t16", "t17"])]
    assert average_metrics(figures)["R@10"] == 50.0
    assert average_metrics(figures)["R@20"] == 100.0
    assert average_metrics(figures)["MRR"] == round(100 * (1 + 1 / 15) / 2, 2)


def test_a_session_ranks_where_its_best_turn_does() -> None:
    """Sessions come in the order of their first turns; turns without a session are passed over."""
    assert first_occurrences(["s2", None, "s2", "s1", "s2", "s3"]) == ["s2", "s1", "s3"]


def test_percentiles_are_values_that_occurred() -> None:
    """The 95th percentile of 1 to 100 is 95, and of one value that value."""
    assert percentile([float(value) for value in range(100, 0, -1)], 0.95) == 95.0
    assert percentile([7.0], 0.95) == 7.0
