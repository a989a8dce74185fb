"""How good is a ranking?

Each figure says, for one question, how well the things that answer it stand in what was found; the figures of
many questions are averaged with each question counting the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, log2

METRICS = ("R@5", "R@10", "R@20", "hit@10", "all@5", "all@10", "nDCG@10", "MRR")

Figures = Mapping[str, float]


def measure(ranked: Sequence[str], gold: Iterable[str]) -> dict[str, float]:
    """The figures of one question, each from 0 to 1; `ranked` is what was found, best first, each once."""
    wanted = frozenset(gold)
    ranks = [rank for rank, found in enumerate(ranked, 1) if found in wanted]
    within = {k: sum(rank <= k for rank in ranks) for k in (5, 10, 20)}
    ideal = sum(1 / log2(rank + 1) for rank in range(1, min(len(wanted), 10) + 1))
    return {
        **{f"R@{k}": within[k] / len(wanted) for k in within},
        "hit@10": float(within[10] > 0),
        "all@5": float(within[5] == len(wanted)),
        "all@10": float(within[10] == len(wanted)),
        "nDCG@10": sum(1 / log2(rank + 1) for rank in ranks if rank <= 10) / ideal,
        "MRR": 1 / ranks[0] if ranks else 0.0,
    }


def average(figures: Sequence[Figures]) -> dict[str, float]:
    """The mean of each figure over questions, in per cent."""
    return {name: round(100 * sum(given[name] for given in figures) / len(figures), 2) for name in METRICS}


def firsts(ranked: Iterable[str | None]) -> list[str]:
    """Each name once, where it comes first: a session stands where its best turn does."""
    return list(dict.fromkeys(name for name in ranked if name is not None))


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest of the values that at least this share of them do not exceed."""
    ordered = sorted(values)
    return ordered[max(ceil(len(ordered) * share) - 1, 0)]
