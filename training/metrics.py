"""Metrics with intervals: means, the area under the ROC curve, and reliability.

Intervals hold 95 % of the values of 1,000 sets of questions that are drawn with replacement (bootstrap).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from omoide.retrieval.pool import Array

DRAWS = 1_000
SEED = 20110311


class Figure(NamedTuple):
    """A figure with its interval, and the number of questions that it was computed from."""

    value: float
    low: float
    high: float
    n: int

    def __str__(self) -> str:
        return f"{100 * self.value:5.1f} [{100 * self.low:.1f}, {100 * self.high:.1f}]"


class Bin(NamedTuple):
    """Predictions of about equal size, and how often they were right."""

    low: float
    high: float
    predicted: float
    observed: float
    n: int


def mean(values: Sequence[float] | Array) -> Figure:
    """Return the mean of some values."""
    return _figure(lambda sample: float(sample.mean()), np.asarray(values, np.float64))


def auc(higher: Sequence[float] | Array, lower: Sequence[float] | Array) -> float:
    """Return the share of pairs in which the first value is higher; equal ones count half."""
    first, second = np.asarray(higher, np.float64), np.sort(np.asarray(lower, np.float64))
    below = np.searchsorted(second, first, "left") + np.searchsorted(second, first, "right")
    return float(below.mean() / 2 / len(second))


def auc_figure(higher: Sequence[float], lower: Sequence[float]) -> Figure:
    """Return the area under the ROC curve with its interval."""
    return _figure(auc, np.asarray(higher, np.float64), np.asarray(lower, np.float64))


def _figure(statistic: Callable[..., float], *samples: Array) -> Figure:
    """Return a statistic of samples; NaN if one of them is empty."""
    n = sum(map(len, samples))
    if not all(map(len, samples)):
        return Figure(float("nan"), float("nan"), float("nan"), n)
    chance = np.random.default_rng(SEED)
    drawn = [
        statistic(*(sample[chance.integers(0, len(sample), len(sample))] for sample in samples))
        for _ in range(DRAWS)
    ]
    low, high = np.quantile(drawn, [0.025, 0.975])
    return Figure(statistic(*samples), float(low), float(high), n)


def reliability(predicted: Array, observed: Array, bins: int = 10) -> list[Bin]:
    """Return the mean prediction and the observed share in bins of equal width, without the empty ones."""
    places = np.minimum((predicted * bins).astype(np.int64), bins - 1)
    return [
        Bin(
            low=at / bins,
            high=(at + 1) / bins,
            predicted=float(predicted[inside].mean()),
            observed=float(observed[inside].mean()),
            n=int(inside.sum()),
        )
        for at in range(bins)
        if (inside := places == at).any()
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the mean distance between prediction and observation, over all predictions."""
    total = sum(one.n for one in bins)
    return sum(one.n * abs(one.predicted - one.observed) for one in bins) / max(total, 1)
