"""Choose the ranking weights on several unlike sets at once, with one objective.

    python -m training.weights --embedder auto --locomo locomo10.json

The weights of the second stage are chosen in folds of whole conversations, and R@10 is counted on the fold
left out; then they are chosen on all and printed in the form in which they stand in `ranking.py`. The loss is
that of a choice among the best rows of the first stage, with bounds that keep any feature from taking over.
Each set has a share of the loss, whatever its size, so that no set decides alone. Messages and plain facts
have weights of their own where there are token vectors. All dialogues and personas are those that the encoder
was not trained on. Intervals are 95 % bootstrap intervals over questions.
"""

from __future__ import annotations

import argparse
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from omoide.retrieval.pool import Array
from omoide.retrieval.ranking import FeatureWeights, RankingWeights, first_stage, has_messages, second_stage
from training import metrics, sets
from training.index import Index, IndexedConversation
from training.sets import Conversation, Question

FOLDS = 5
SHARES = {
    "messages": {
        "LoCoMo": 1.0,
        "joined chat": 0.5,
        "joined assistant": 0.5,
        "joined notes": 0.2,
        "facts among 500": 0.15,
        "facts among 5000": 0.1,
        "code": 0.05,
    },
    "facts": {
        "facts among 500": 1.0,
        "facts among 5000": 1.0,
        "personas": 1.0,
        "code": 0.3,
        "facts in de": 0.1,
        "facts in fr": 0.1,
        "facts in es": 0.1,
    },
}
"""The share of each set in the loss, for messages and for plain facts; other sets are counted only."""
ADVERSARIAL = "5"
ADVERSARIAL_WEIGHT = 0.25
"""Questions of LoCoMo about what was never said count less: what they find is what misleads."""
RIDGE = 1e-3
STEPS, HALVINGS = 40, 12
NAMES = FeatureWeights.__struct_fields__
BOUNDS = {
    "vector": (0.05, 2.0),
    "window": (0.05, 2.0),
    "own": (0.0, 2.0),
    "date": (0.0, 3.5),
    "first_person": (0.0, 0.6),
    "speaker": (0.5, 3.0),
    "crowd": (-1.0, -0.1),
    "elsewhere": (-5.0, -2.0),
    "cosine": (0.0, 12.0),
    "centered": (0.0, 0.0),
    "match": (0.0, 12.0),
    "share": (0.0, 9.0),
}
"""Bounds of features that other data needs more, or less, than these sets do."""
FACT_BOUNDS = BOUNDS | {
    "vector": (0.0, 2.0), "centered": (0.0, 12.0), "asks": (-1.5, -0.3), "share": (0.3, 9.0)
}  # fmt: skip
FREE = (-9.0, 9.0)
KEPT = ("recency", "confidence", "importance")
"""Features that do not vary here: they keep their weights."""
KEPT_OF_FACTS = ("window", "wide", "tokens", "context", "date")
"""Features that repeat others where rows have no neighbours, and one of the times, which are made up here."""


class Reading(NamedTuple):
    """The features of the best rows for one reading of a question."""

    rows: Array
    columns: Array
    """[rows, features]"""


class Sample(NamedTuple):
    """One question: its readings, and the rows that answer it."""

    set: str
    group: str
    """The group of weights that recall uses: `messages` or `facts`."""
    fold: int
    kind: str
    readings: tuple[Reading, ...]
    gold: frozenset[int]


class Block(NamedTuple):
    """Samples as arrays: [samples, rows, features], [samples, rows], [samples, rows] and [samples]."""

    columns: Array
    gold: Array
    """The share of each row in the answer; rows sum to 1."""
    absent: Array
    """Minus infinity, nearly, where a sample has no such row."""
    share: Array


def load_sets(locomo: Path | None) -> dict[str, list[Conversation]]:
    """Load the sets by name."""
    named = {} if locomo is None else {"LoCoMo": sets.load_locomo_conversations(locomo)}
    for kind, size in sets.LONG_SIZES.items():
        own = [one for one in sets.load_dialogues(held_out=True) if one.kind == kind]
        named |= {kind: own, f"joined {kind}": sets.join_conversations(own, size)}
    named |= {f"facts among {count}": sets.load_facts(count) for count in (500, 5_000)}
    named |= {"personas": sets.load_personas(held_out=True), "code": sets.load_code()}
    return named | {f"facts in {one.kind}": [one] for one in sets.load_languages()}


def fold_of(name: str, conversation: int, question: int) -> int:
    """Return the fold of a question, so that dialogues are in the same one alone and joined."""
    if name in sets.LONG_SIZES:
        return conversation // sets.LONG_SIZES[name] % FOLDS
    is_one = name.startswith("facts") or name == "code"
    return (question if is_one else conversation) % FOLDS


def collect(
    index: Index, name: str, conversations: Sequence[Conversation], first: dict[str, float]
) -> Iterator[Sample]:
    """Yield the questions of one set, with the features of the best rows of the first stage."""
    for number, scope in enumerate(index.add_all(conversations)):
        group = "messages" if has_messages(scope.pool) else "facts"
        for position, question in enumerate(scope.conversation.questions):
            if question.gold:
                readings = tuple(_readings(scope, question, first))
                gold = frozenset(scope.rows_of(question.gold))
                fold = fold_of(name, number, position)
                yield Sample(name, group, fold, question.kind, readings, gold)


def _readings(scope: IndexedConversation, question: Question, first: dict[str, float]) -> Iterator[Reading]:
    pool = scope.pool
    weights = RankingWeights.default(
        vectors=scope.embedder is not None, tokens=pool.token_loader is not None, messages=has_messages(pool)
    )
    by_name = msgspec.structs.asdict(weights.first) | first
    for query, vector in scope.readings(question.text):
        seen = first_stage(query, pool, vector, k1=weights.k1, b=weights.b)
        total = sum((column * by_name[name] for name, column in seen.columns.items()), np.zeros(pool.size))
        rows = np.argsort(-total, kind="stable")[: weights.depth]
        columns = second_stage(query, pool, vector, seen, total, rows, scope.center)
        zeros = np.zeros(len(rows))
        stacked = [columns.get(name, zeros) for name in NAMES]
        yield Reading(rows, np.stack(stacked, axis=1).astype(np.float32))


def to_block(samples: Sequence[Sample], shares: dict[str, float]) -> Block:
    """Join the readings of samples that an answer is among."""
    counts: dict[str, int] = defaultdict(int)
    for one in samples:
        counts[one.set] += 1
    readings, weights = [], []
    for one in samples:
        own = ADVERSARIAL_WEIGHT if one.set == "LoCoMo" and one.kind == ADVERSARIAL else 1.0
        share = shares.get(one.set, 0.0) * own / counts[one.set] / len(one.readings)
        for reading in one.readings:
            is_gold = np.isin(reading.rows, [*one.gold])
            if share and is_gold.any():
                readings.append((reading.columns, is_gold / is_gold.sum()))
                weights.append(share)
    depth = max(len(gold) for _, gold in readings)
    columns = np.zeros((len(readings), depth, readings[0][0].shape[1]))
    gold, absent = np.zeros((len(readings), depth)), np.zeros((len(readings), depth))
    for at, (own_columns, own_gold) in enumerate(readings):
        columns[at, : len(own_gold)], gold[at, : len(own_gold)] = own_columns, own_gold
        absent[at, len(own_gold) :] = -1e9
    share_of_each = np.array(weights)
    return Block(columns, gold, absent, share_of_each / share_of_each.sum())


def fit(block: Block, bounds: Sequence[tuple[float, float]]) -> Array:
    """Return the weights that make the answers likeliest, by Newton's method within the bounds.

    A feature that is the same everywhere gets the weight 0, within its bounds.
    """
    count = block.columns.shape[2]
    spread = block.columns[block.absent == 0].std(axis=0) + 1e-6
    scaled = block._replace(columns=block.columns / spread)
    low, high = (np.array([bound[at] for bound in bounds]) * spread for at in (0, 1))
    weights = np.clip(np.zeros(count), low, high)
    loss = _loss(scaled, weights)
    for _ in range(STEPS):
        slope, curve = _derivatives(scaled, weights)
        free = ~(((weights <= low) & (slope > 0)) | ((weights >= high) & (slope < 0)))
        step = np.zeros(count)
        step[free] = np.linalg.solve(curve[np.ix_(free, free)], -slope[free])
        tried = (np.clip(weights + step / 2**halving, low, high) for halving in range(HALVINGS))
        better = next((one for one in tried if _loss(scaled, one) < loss - 1e-9), None)
        if better is None:
            break
        weights, loss = better, _loss(scaled, better)
    chosen: Array = weights / spread
    return chosen


def _loss(block: Block, weights: Array) -> float:
    logits = block.columns @ weights + block.absent
    logits -= logits.max(axis=1, keepdims=True)
    likely = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    fit = (block.gold * np.where(block.absent < 0, 0.0, likely)).sum(axis=1) @ block.share
    return float(RIDGE * weights @ weights - fit)


def _derivatives(block: Block, weights: Array) -> tuple[Array, Array]:
    """Return the first and second derivatives of the loss."""
    logits = block.columns @ weights + block.absent
    chance = np.exp(logits - logits.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    size = block.columns.shape[2]
    flat = block.columns.reshape(-1, size)
    off = ((chance - block.gold) * block.share[:, None]).ravel()
    means = np.einsum("qr,qrs->qs", chance, block.columns)
    curve = (flat * (chance * block.share[:, None]).reshape(-1, 1)).T @ flat
    curve -= (means * block.share[:, None]).T @ means
    return flat.T @ off + 2 * RIDGE * weights, curve + 2 * RIDGE * np.eye(size)


def found(sample: Sample, weights: Array, k: int) -> int:
    """Return the number of answers among the first k rows; a row has the best score of all readings."""
    best: dict[int, float] = {}
    for reading in sample.readings:
        for row, score in zip(reading.rows.tolist(), (reading.columns @ weights).tolist(), strict=True):
            best[row] = max(score, best.get(row, score))
    first = sorted(best, key=lambda row: -best[row])[:k]
    return len(sample.gold.intersection(first))


class Choice(NamedTuple):
    """A group of weights, and what they are chosen on."""

    shares: dict[str, float]
    fitted: tuple[bool, ...]
    """The features whose weights are chosen."""
    bounds: list[tuple[float, float]]
    present: Array
    """The weights that stand in `ranking.py`; features that are not fitted keep them."""

    def choose(self, samples: Sequence[Sample]) -> Array:
        """Return the weights of all features."""
        block = to_block([one for one in samples if one.set in self.shares], self.shares)
        mask = np.array(self.fitted)
        bounds = [bound for bound, is_fitted in zip(self.bounds, self.fitted, strict=True) if is_fitted]
        weights = self.present.copy()
        weights[mask] = fit(block._replace(columns=block.columns[:, :, mask]), bounds)
        return weights


def to_choice(group: str, weights: FeatureWeights, samples: Sequence[Sample]) -> Choice:
    """Return the choice of a group of weights."""
    shares = SHARES[group]
    taking_part = [one for one in samples if one.set in shares]
    varies = np.any([reading.columns.any(axis=0) for one in taking_part for reading in one.readings], axis=0)
    is_facts = group == "facts"
    fitted = [
        bool(is_used) and name not in KEPT and not (is_facts and name in KEPT_OF_FACTS)
        for name, is_used in zip(NAMES, varies, strict=True)
    ]
    bounds = FACT_BOUNDS if is_facts else BOUNDS
    present = np.array([getattr(weights, name) for name in NAMES])
    return Choice(shares, tuple(fitted), [bounds.get(name, FREE) for name in NAMES], present)


def cross_validate(samples: Sequence[Sample], choices: dict[str, Choice]) -> list[Array]:
    """Return, for each sample, weights that were chosen without its fold."""
    chosen = {
        (group, fold): choice.choose([one for one in samples if one.fold != fold])
        for group, choice in choices.items()
        for fold in range(FOLDS)
    }
    return [chosen[one.group, one.fold] for one in samples]


def report(label: str, samples: Sequence[Sample], weights: Sequence[Array]) -> str:
    """Return R@10 and hit@1 of every set as text."""
    groups: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for one, own in zip(samples, weights, strict=True):
        figures = found(one, own, 10) / len(one.gold), float(found(one, own, 1) > 0)
        groups[one.set].append(figures)
        if one.set == "LoCoMo" and one.kind != ADVERSARIAL:
            groups["LoCoMo, categories 1-4"].append(figures)
    lines = [label]
    for name, measured in groups.items():
        recalled, first = (metrics.mean(column) for column in zip(*measured, strict=True))
        lines.append(f"  {name:<24} R@10 {recalled}   hit@1 {first}   n={recalled.n}")
    return "\n".join(lines)


def to_source(weights: FeatureWeights) -> str:
    """Return weights as they are written in `ranking.py`."""
    fields = ", ".join(
        f"{field.name}={value:g}"
        for field in msgspec.structs.fields(FeatureWeights)
        if (value := round(getattr(weights, field.name), 2)) != field.default
    )
    return f"FeatureWeights({fields})"


def main() -> None:
    """Choose, count and print."""
    parser = argparse.ArgumentParser(prog="training.weights", description="Choose ranking weights.")
    parser.add_argument("--embedder", default="auto", help="name of an embedder, or none")
    parser.add_argument("--locomo", type=Path, help="the file of LoCoMo; left out without it")
    parser.add_argument(
        "--first", nargs="+", default=[], metavar="NAME=WEIGHT", help="other weights of the first stage"
    )
    options = parser.parse_args()
    index = Index.of(options.embedder)
    first = {name: float(value) for name, value in (item.split("=") for item in options.first)}
    samples = [
        one
        for name, conversations in load_sets(options.locomo).items()
        for one in collect(index, name, conversations, first)
    ]
    has_vectors = index.embedder is not None
    present = {
        group: RankingWeights.default(vectors=has_vectors, tokens=has_vectors, messages=group == "messages")
        for group in SHARES
    }
    if present["messages"] == present["facts"]:  # without vectors, one group of weights is for all
        present = {"messages": present["messages"]}
        samples = [one._replace(group="messages") for one in samples]
    choices = {
        group: to_choice(group, weights.second or weights.first, samples)
        for group, weights in present.items()
    }
    print(f"embedder {index.name or 'none'}, {len(samples)} questions, {FOLDS} folds of whole conversations")
    print(report("\npresent weights", samples, [choices[one.group].present for one in samples]), flush=True)
    print(report("\nchosen, cross-validated", samples, cross_validate(samples, choices)), flush=True)
    chosen = {group: choice.choose(samples) for group, choice in choices.items()}
    print(report("\nchosen on all", samples, [chosen[one.group] for one in samples]))
    for group, weights in chosen.items():
        named = FeatureWeights(**dict(zip(NAMES, weights.tolist(), strict=True)))
        print(f"\n{group}\n{to_source(named)}")


if __name__ == "__main__":
    main()
