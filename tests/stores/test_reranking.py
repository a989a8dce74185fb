"""A reranker orders the first hits of a recall anew, in every store."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import KINDS, a_store, keep, open_core, recall_ids

from omoide import Entry, RecallRequest
from omoide.core import Hit
from omoide.errors import Invalid, RerankerFailed
from omoide.stores import recall
from omoide.stores.recall import withhold

TEAS = tuple(f"{'tea ' * (5 - at)}leaf {at}." for at in range(5))
"""Memories that answer "tea" ever less."""


def by_number(query: str, texts: list[str]) -> list[float]:
    """Score texts by the number at their end: the reverse of what recall finds."""
    return [float(text.rstrip(".")[-1]) for text in texts]


class CrossEncoder:
    """A model with a name, which records what it is asked."""

    name = "cross-1"

    def __init__(self) -> None:
        self.asked: list[tuple[str, list[str]]] = []

    def rerank(self, query: str, texts: list[str]) -> list[float]:
        self.asked.append((query, texts))
        return by_number(query, texts)


def fill(store: Any) -> None:
    for at, content in reversed(list(enumerate(TEAS))):  # the best is the newest, too
        keep(store, content, id=f"m{at}")


def hits_of(store: Any, **fields: Any) -> tuple[Hit, ...]:
    result = store.recall(RecallRequest.new({"agent_id": "ada", "query": "tea", **fields}))
    return tuple(result.hits)


@pytest.mark.parametrize("kind", KINDS)
def test_the_first_hits_follow_the_scores_of_the_reranker(kind: str, tmp_path: Path) -> None:
    """The first three are in its order, and those beyond them stay where they were."""
    with a_store(kind, tmp_path) as store:
        fill(store)
        assert recall_ids(store, "tea") == ["m0", "m1", "m2", "m3", "m4"]
    with a_store(kind, tmp_path, reranker=by_number, rerank_depth=3) as store:
        if kind == "memory":
            fill(store)
        assert recall_ids(store, "tea") == ["m2", "m1", "m0", "m3", "m4"]


def test_a_hit_beyond_the_limit_can_be_lifted_into_it(tmp_path: Path) -> None:
    """The reranker sees as many hits as its depth says, and the limit of the request comes afterwards."""
    with a_store("memory", tmp_path, reranker=by_number) as store:
        fill(store)
        assert recall_ids(store, "tea", limit=1) == ["m4"]


def test_reranked_hits_say_by_whom_and_at_what_cost(tmp_path: Path) -> None:
    """Each of them has a part with the model, its score and milliseconds; the others have none."""
    model = CrossEncoder()
    with a_store("memory", tmp_path, reranker=model, rerank_depth=2) as store:
        fill(store)
        hits = hits_of(store)
    parts = [[one for one in hit.why.reasons if one.part == "reranker"] for hit in hits]
    assert [len(part) for part in parts] == [1, 1, 0, 0, 0]
    assert [part[0].rank for part in parts[:2]] == [1, 2]
    note = parts[0][0].note or ""
    assert note.startswith("scored 1 by cross-1, ")
    assert note.endswith(" ms for 2 hits")
    assert model.asked == [("tea", [TEAS[0], TEAS[1]])]


def test_scores_fall_from_hit_to_hit_and_are_explained(tmp_path: Path) -> None:
    """Reranked scores stay in order, ranks are counted, and the parts of a score still add up to it."""
    with a_store("memory", tmp_path, reranker=by_number, rerank_depth=4) as store:
        fill(store)
        hits = hits_of(store)
    assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]
    assert all(one.score >= other.score for one, other in pairwise(hits))
    for hit in hits:
        assert sum(reason.value for reason in hit.why.reasons) == pytest.approx(hit.score, abs=0.05)


def test_equal_scores_change_nothing(tmp_path: Path) -> None:
    """A reranker that finds all alike leaves the order of recall; scores may be any sequence of numbers."""
    with a_store("memory", tmp_path, reranker=lambda query, texts: tuple(1 for _ in texts)) as store:
        fill(store)
        assert recall_ids(store, "tea") == ["m0", "m1", "m2", "m3", "m4"]


def test_an_empty_store_asks_no_reranker(tmp_path: Path) -> None:
    """Where there are no hits there is nothing to score."""
    model = CrossEncoder()
    with a_store("memory", tmp_path, reranker=model) as store:
        assert recall_ids(store, "tea") == []
    assert model.asked == []


def test_recall_without_numpy_is_reranked_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hits that were found by words alone go through the same reranker."""
    monkeypatch.setattr(recall, "has_numpy", lambda: False)
    with a_store("memory", tmp_path, reranker=by_number) as store:
        fill(store)
        assert recall_ids(store, "tea", limit=2) == ["m4", "m3"]


def raise_key_error(query: str, texts: list[str]) -> list[float]:
    raise KeyError(query)


@pytest.mark.parametrize(
    ("reranker", "problem"),
    [
        (raise_key_error, "'raise_key_error' raised KeyError; see the cause"),
        (lambda query, texts: [1.0], "gave 1 scores for 5 texts; return one finite number"),
        (lambda query, texts: [math.nan for _ in texts], "gave scores that are not finite"),
        (lambda query, texts: ["high" for _ in texts], "raised ValueError"),
        (lambda query, texts: None, "raised TypeError"),
    ],
)
def test_a_reranker_that_fails_is_named(
    reranker: Callable[[str, list[str]], Sequence[float]], problem: str, tmp_path: Path
) -> None:
    """Its exception becomes ours, with what happened and what to do, and no word of the memories."""
    with a_store("memory", tmp_path, reranker=reranker) as store:
        fill(store)
        with pytest.raises(RerankerFailed, match=problem) as caught:
            recall_ids(store, "tea")
        assert "leaf" not in str(caught.value)


async def later(query: str, texts: list[str]) -> list[float]:
    return []


@pytest.mark.parametrize(
    "reranker", ["cohere:rerank", 5, CrossEncoder, later], ids=["name", "number", "class", "coroutine"]
)
def test_what_cannot_rerank_is_refused(reranker: Any, tmp_path: Path) -> None:
    """A name, a number, a class and an async function are refused when the store is opened."""
    with pytest.raises(Invalid, match="reranker"):
        open_core("memory", tmp_path, reranker=reranker)
    assert inspect.iscoroutinefunction(later)


@pytest.mark.parametrize("depth", [0, -1, True, "many"])
def test_the_depth_is_a_number_of_hits(depth: Any, tmp_path: Path) -> None:
    """It is at least one."""
    with pytest.raises(Invalid, match="rerank_depth"):
        open_core("memory", tmp_path, reranker=by_number, rerank_depth=depth)


def hit(id: str, relevance: float | None) -> Hit:
    return Hit(entry=Entry(id=id, agent_id="ada", content="Tea."), relevance=relevance)


@pytest.mark.parametrize(
    ("floor", "shown"), [(None, "abcd"), (0.0, "abcd"), (0.3, "abd"), (0.5, "ad"), (1.0, "d")]
)
def test_hits_below_the_relevance_of_the_request_are_withheld(floor: float | None, shown: str) -> None:
    """What is exactly as relevant as required is shown, and so is what has no relevance."""
    hits = [hit("a", 0.5), hit("b", 0.3), hit("c", 0.29), hit("d", None)]
    request = RecallRequest(agent_id="ada", query="tea", min_relevance=floor)
    kept, withheld = withhold(request, hits)
    assert "".join(one.entry.id for one in kept) == shown
    assert sorted((*kept, *withheld), key=lambda one: one.entry.id) == hits
