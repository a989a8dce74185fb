"""Order the first hits of a recall anew by the scores of a reranker.

A reranker, such as a cross-encoder, reads the query and a memory together. It is slower than recall itself,
so it scores only the first hits, and each of them says what that took.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from inspect import iscoroutinefunction
from math import isfinite
from typing import Any, Protocol, TypeAlias

import msgspec

from omoide.core.entry import Hit, Reason
from omoide.errors import Invalid, OmoideError, RerankerFailed
from omoide.stores.records import text_of

RERANKER_PART = "reranker"
DEFAULT_RERANK_DEPTH = 20
_SCORES_REMEDY = "return one finite number for each text, in order"

RerankFunction: TypeAlias = Callable[[str, list[str]], Sequence[float]]
"""Takes a query and texts, and returns a score for each text; a higher one is better."""


class RerankModel(Protocol):
    """An object that reranks; its `name`, if it has one, stands in explanations."""

    def rerank(self, query: str, texts: list[str]) -> Sequence[float]:
        """Return a score for each text; a higher one is better. It may be called from any thread."""


Reranker: TypeAlias = RerankFunction | RerankModel


def check_reranker(reranker: object) -> None:
    """Raise `Invalid` unless this is a function, or an object with a method `rerank`, that is not async."""
    function = getattr(reranker, "rerank", reranker)
    if isinstance(reranker, type) or not callable(function):
        raise Invalid(
            "reranker",
            f"is {reranker!r}",
            "pass a function (query, texts) -> scores, or an object with such a method `rerank`",
        )
    if iscoroutinefunction(function):
        raise Invalid("reranker", "is async", "pass a function that returns the scores themselves")


def rerank(query: str, hits: Sequence[Hit], reranker: Any, depth: int) -> list[Hit]:
    """Return the hits, the first `depth` of them in the order of the reranker's scores.

    The scores that these hits had are dealt out anew in that order, so that scores still fall from hit to
    hit. The part `reranker` of each explanation is the difference.

    Raises:
        RerankerFailed: The reranker raised, or returned something other than one finite score per hit.
    """
    first = hits[:depth]
    if not first:
        return [*hits]
    name = _name_of(reranker)
    started = time.perf_counter()
    scores = _scores(name, reranker, query, [text_of(hit.entry) for hit in first])
    cost = f"{name}, {(time.perf_counter() - started) * 1000:.0f} ms for {len(first)} hits"
    order = sorted(range(len(first)), key=lambda at: -scores[at])  # stable: equal scores keep their order
    totals = sorted((hit.score for hit in first), reverse=True)
    reranked = [
        _with_score(first[at], total, rank, f"scored {scores[at]:.4g} by {cost}")
        for rank, (at, total) in enumerate(zip(order, totals, strict=True), 1)
    ]
    return [*reranked, *hits[depth:]]


def _with_score(hit: Hit, score: float, rank: int, note: str) -> Hit:
    reason = Reason(part=RERANKER_PART, value=score - hit.score, rank=rank, note=note)
    reasons = sorted((*hit.why.reasons, reason), key=lambda one: -abs(one.value))
    why = msgspec.structs.replace(hit.why, reasons=tuple(reasons))
    return msgspec.structs.replace(hit, score=score, rank=rank, why=why)


def _scores(name: str, reranker: Any, query: str, texts: list[str]) -> list[float]:
    try:
        output = getattr(reranker, "rerank", reranker)(query, texts)
        scores = [float(score) for score in output]
    except OmoideError:
        raise
    except Exception as error:
        # Only the type: the message of a provider may quote the texts.
        remedy = "see the cause of this error, and check the reranker"
        raise RerankerFailed(name, f"raised {type(error).__name__}", remedy) from error
    if len(scores) != len(texts):
        raise RerankerFailed(name, f"gave {len(scores)} scores for {len(texts)} texts", _SCORES_REMEDY)
    if not all(map(isfinite, scores)):
        raise RerankerFailed(name, "gave scores that are not finite", _SCORES_REMEDY)
    return scores


def _name_of(reranker: Any) -> str:
    """Return the name of a model, of a function, or of the class of an object."""
    for attribute in ("name", "__qualname__"):
        name = getattr(reranker, attribute, None)
        if isinstance(name, str) and name.strip():
            return name
    return type(reranker).__name__
