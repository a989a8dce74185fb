"""How much does a candidate for promotion matter?

The formula and its weights are those of `shortterm.importance`; here they meet what a session holds.
"""

from __future__ import annotations

from omoide.shortterm.access_log import AccessLog
from omoide.shortterm.context import ContextItem
from omoide.shortterm.importance import DEFAULT, SALIENCE, Part, Score, Weights, reaches, score

__all__ = ["SALIENCE", "Part", "Score", "Weights", "reaches", "score", "score_context_item"]


def score_context_item(
    item: ContextItem, log: AccessLog, now: int | None = None, weights: Weights = DEFAULT
) -> Score:
    """How much a value of the working context matters, by its own figures and those of the log.

    It was used as often as the larger of the two says, and last when the log says so, if it knows it.
    """
    seen = log.get_stats(item.key)
    return score(
        item.last_accessed if seen.recency is None else seen.recency,
        max(seen.frequency, item.access_count),
        item.confidence,
        item.suggested_type,
        now,
        weights,
    )
