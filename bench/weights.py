"""Which weights find the most, and how much do they find in conversations they were not chosen on?

`python -m bench.weights locomo10.json --embedder local` chooses the weights of the second stage on all but
some of the conversations and counts what they find in those left out, fold by fold; then it chooses them on
all and prints them. The loss is that of a choice among the best rows of the first stage, with bounds that
keep any sign from taking over. Intervals are bootstrapped over questions. No language model takes part.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from omoide.embedders import Embedder, Embedding, choose
from omoide.eval import datasets
from omoide.retrieval import ranking, text
from omoide.retrieval.pool import Array, CandidatePool
from omoide.retrieval.queries import ParsedQuery, parse_query
from omoide.retrieval.ranking import FeatureWeights, RankingWeights, score
from omoide.retrieval.text import extract_features

FOLDS = 5
ADVERSARIAL = "5"
ADVERSARIAL_WEIGHT = 0.25
"""Questions about what was never said count less: what they should find is what they must not mislead to."""
RIDGE = 1e-3
BOUNDS = {
    "vector": (0.05, 2.0),
    "window": (0.1, 2.0),
    "own": (0.05, 2.0),
    "date": (0.0, 3.5),
    "first_person": (0.0, 0.6),
    "speaker": (0.5, 3.0),
    "crowd": (-1.0, -0.15),
}
"""Signs that other data needs more than this one does, and signs that say more here than elsewhere."""
SKIPPED = {"role", "reply", "recency", "confidence", "importance"}
"""Signs that do not vary here: they keep their weights."""


class Asked(NamedTuple):
    """One question: the signs of the best rows, and which of them answer it."""

    conversation: int
    category: str
    signs: Array
    gold: Array
    wanted: int


class Fitted(NamedTuple):
    """Questions as one block: [questions, rows, signs] and [questions, rows]."""

    signs: Array
    gold: Array
    share: Array


def main() -> int:
    """Choose, count and print."""
    parser = argparse.ArgumentParser(prog="bench.weights", description="Choose weights by cross-validation.")
    parser.add_argument("data", type=Path, help="the file of LoCoMo")
    parser.add_argument("--embedder", default="local", help="local or none")
    parser.add_argument("--folds", type=int, default=FOLDS)
    given = parser.parse_args()
    embedder = choose(given.embedder)
    names, asked, shipped = collect(datasets.load_locomo(given.data), embedder)
    folds = np.array([one.conversation % given.folds for one in asked])
    found = np.zeros(len(asked))
    for fold in range(given.folds):
        chosen = fit(names, [one for one, at in zip(asked, folds, strict=True) if at != fold])
        for at in np.flatnonzero(folds == fold):
            found[at] = recall(asked[at], chosen)
    print(f"{len(asked)} questions, {given.folds} folds of whole conversations, embedder {given.embedder}")
    report("chosen, held out", asked, found)
    report("shipped", asked, shipped)
    print("\nchosen on all:")
    for name, weight in zip(names, fit(names, asked), strict=True):
        print(f"  {name:<8} {weight:+.2f}")
    return 0


def collect(data: datasets.Dataset, embedder: Embedder | None) -> tuple[list[str], list[Asked], Array]:
    """The signs of the best rows for every question, and R@10 of every question with the weights shipped."""
    names: list[str] = []
    asked: list[Asked] = []
    shipped: list[float] = []
    for number, conversation in enumerate(data.conversations):
        pool = pool_of(conversation.turns, embedder)
        places = {turn.id: at for at, turn in enumerate(conversation.turns)}
        now = max(turn.at or 0 for turn in conversation.turns) + 3_600_000
        for question in conversation.questions:
            gold = [places[ref] for ref in question.evidence]
            read = parse_query(question.text, now=now, speakers=pool.speakers)
            vector = None if embedder is None else embedder.embed([read.encoder_text], query=True)[0]
            columns, rows = signs_of(read, pool, vector)
            names = names or [name for name in columns if name not in SKIPPED]
            block = np.stack([columns[name] for name in names], axis=1).astype(np.float32)
            asked.append(Asked(number, question.category, block, np.isin(rows, gold), len(gold)))
            best = score(read, pool, vector=vector).top(10)
            shipped.append(float(np.isin(best, gold).sum()) / len(gold))
    return names, asked, np.array(shipped)


def pool_of(turns: tuple[datasets.DatasetTurn, ...], embedder: Embedder | None) -> CandidatePool:
    """A conversation as a store would hold it."""
    more: dict[str, Any] = {}
    if embedder is not None:
        vectors = embedder.embed([turn.text for turn in turns])
        more = {"vectors": [one.pooled.tobytes() for one in vectors], "dim": embedder.dim}
        if vectors[0].tokens is not None:
            kept = [*map(_telling, vectors)]
            more["tokens"] = lambda rows: [kept[at] for at in rows]
    return CandidatePool.build(
        [extract_features(turn.text).to_bytes() for turn in turns],
        time=[turn.at or 0 for turn in turns],
        thread=[turn.session for turn in turns],
        seq=datasets.session_positions(turns),
        role=[turn.role for turn in turns],
        speaker=[turn.speaker for turn in turns],
        **more,
    )


def _telling(one: Embedding) -> Array:
    if one.tokens is None or one.words is None:
        return np.zeros((0, 64), np.int8)
    return one.tokens[text.content_token_indexes(one.words)]


def signs_of(
    read: ParsedQuery, pool: CandidatePool, vector: Embedding | None
) -> tuple[ranking.FeatureColumns, Array]:
    """What the second stage sees of the best rows, and which rows those are."""
    weights = RankingWeights.default(vectors=vector is not None, tokens=pool.token_loader is not None)
    seen = ranking.first_stage(read, pool, vector, k1=weights.k1, b=weights.b)
    first = msgspec.structs.asdict(weights.first)
    total = sum((column * first[name] for name, column in seen.columns.items()), np.zeros(pool.size))
    rows = np.argsort(-total, kind="stable")[: weights.depth]
    return ranking.second_stage(read, pool, vector, seen, total, rows), rows


def fit(names: list[str], asked: list[Asked]) -> Array:
    """The weights that make the answers likeliest, by Newton's method within the bounds."""
    block = _block(asked)
    spread = block.signs.reshape(-1, len(names)).std(axis=0) + 1e-6
    signs = block.signs / spread
    low, high = (np.array([BOUNDS.get(name, (-9.0, 9.0))[at] for name in names]) * spread for at in (0, 1))
    weights = np.clip(np.zeros(len(names)), low, high)
    loss = _loss(signs, block, weights)
    for _ in range(40):
        slope, curve = _slope(signs, block, weights)
        free = ~(((weights <= low) & (slope > 0)) | ((weights >= high) & (slope < 0)))
        step = np.zeros(len(names))
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], -slope[free])
        tried = (np.clip(weights + step / 2**half, low, high) for half in range(12))
        better = next((one for one in tried if _loss(signs, block, one) < loss - 1e-9), None)
        if better is None:
            break
        weights, loss = better, _loss(signs, block, better)
    chosen: Array = weights / spread
    return chosen


def _block(asked: list[Asked]) -> Fitted:
    held = [one for one in asked if one.gold.any()]
    share = np.array([ADVERSARIAL_WEIGHT if one.category == ADVERSARIAL else 1.0 for one in held])
    gold = np.stack([one.gold / one.gold.sum() for one in held])
    return Fitted(np.stack([one.signs for one in held]).astype(np.float64), gold, share / share.sum())


def _loss(signs: Array, block: Fitted, weights: Array) -> float:
    logits = signs @ weights
    logits -= logits.max(axis=1, keepdims=True)
    likely = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return float(RIDGE * weights @ weights - (block.gold * likely).sum(axis=1) @ block.share)


def _slope(signs: Array, block: Fitted, weights: Array) -> tuple[Array, Array]:
    """First and second derivative of the loss."""
    logits = signs @ weights
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    flat = signs.reshape(-1, signs.shape[2])
    off = ((chance - block.gold) * block.share[:, None]).ravel()
    means = np.einsum("qr,qrs->qs", chance, signs)
    curve = (flat * (chance * block.share[:, None]).reshape(-1, 1)).T @ flat
    curve -= (means * block.share[:, None]).T @ means
    return flat.T @ off + 2 * RIDGE * weights, curve + 2 * RIDGE * np.eye(len(weights))


def recall(one: Asked, weights: Array, k: int = 10) -> float:
    """The share of the answers among the first k."""
    order = np.argsort(-(one.signs @ weights), kind="stable")[:k]
    return float(one.gold[order].sum()) / one.wanted


def report(label: str, asked: list[Asked], found: Array) -> None:
    """R@10 over the categories, with intervals."""
    category = np.array([one.category for one in asked])
    print(f"\n{label}: R@10 in percent, with the interval of 95 % of bootstrapped sets of questions")
    for name, kept in _groups(category):
        chance = np.random.default_rng(20110311)
        held = found[kept]
        means = [held[chance.integers(0, len(held), len(held))].mean() for _ in range(1000)]
        low, high = np.quantile(means, [0.025, 0.975])
        print(f"  {name:<10} {100 * held.mean():5.1f}  [{100 * low:.1f}, {100 * high:.1f}]  n={len(held)}")


def _groups(category: Array) -> Iterator[tuple[str, Array]]:
    yield "cat 1-4", category != ADVERSARIAL
    yield "all", np.ones(len(category), np.bool_)
    for name in sorted(set(category.tolist())):
        yield f"cat {name}", category == name


if __name__ == "__main__":
    known = set(FeatureWeights.__struct_fields__)
    assert known >= BOUNDS.keys() | SKIPPED
    sys.exit(main())
