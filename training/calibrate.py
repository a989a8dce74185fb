"""Fit the calibration of an embedder: relevance, and outdated statements.

    python -m training.calibrate --embedder none
    python -m training.calibrate --embedder auto

Relevance is fitted on the dialogues that the encoder was not trained on, and on questions about plain facts:
the first hits of questions with an answer, of questions without one, and of questions about another
conversation. Whether one statement replaces another is fitted on pairs of hits in dialogues and long scopes,
and on labelled pairs without a question. The figures come from two folds of whole conversations, each
predicted by models that did not see it; what is written to `calibrations.json` is fitted on all. Words alone
come first: recall needs them beside those of an embedder.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from omoide.core.entry import DEFAULT_MIN_RELEVANCE
from omoide.eval.datasets import DatasetTurn, parse_time
from omoide.retrieval import relevance
from omoide.retrieval.pool import Array
from omoide.retrieval.queries import parse_query
from omoide.retrieval.ranking import ScoreTable, score
from omoide.retrieval.relevance import Calibration, LogisticModel, Network
from training import diagram, metrics, sets
from training.index import Index, IndexedConversation, Readings
from training.metrics import Bin
from training.sets import Conversation, Question

CALIBRATIONS = Path(relevance.__file__).with_name("calibrations.json")
PICTURES = sets.HERE.parent / "docs" / "pictures"

# The features of the models; products and squares are written as in `LogisticModel`. Those that an embedder
# does not have are left out.
RELEVANCE = (
    "cosine", "match", "share", "rare", "share*rare", "speaker", "other_speaker", "date", "asks", "kind",
    "has_kind", "length", "cosine*match", "worst", "best", "nearby", "terms", "cosine*length", "before",
    "after", "thread",
)  # fmt: skip
RELEVANCE_BY_WORDS = ("share*terms", "rare", "nearby", "asks", "date", "speaker")
RISING = {
    "cosine", "match", "share", "rare", "share*rare", "cosine*match", "worst", "best", "nearby",
    "share*terms", "cosine*length", "date", "speaker", "kind", "before", "after",
}  # fmt: skip
FALLING = {"other_speaker", "asks"}
"""Features of relevance whose direction is sure; one that would be fitted the other way is left out."""
OUTDATED = (
    "shared", "left_older", "left_newer", "addition", "number", "place", "name", "speaker", "asks",
    "relevance_newer", "gap", "similarity", "forward", "backward", "similarity*one", "similarity*least",
    "similarity*change", "change*one", "score_lead", "similarity_lead", "closeness_lead", "logit_older",
    "logit_newer", "logit_least", "top_older", "top_newer", "place_older", "place_newer", "ahead", "ahead^2",
    "current", "similarity_lead*score_lead", "forward*score_lead", "shared*score_lead",
    "closeness_lead*one", "closeness_lead*change", "names_left", "names_left*score_lead", "change", "least",
    "one", "relevance_older", "forward*similarity", "number*change", "place*change", "shared*change",
    "similarity*number",
)  # fmt: skip
_SIDES = (
    "relevance", "logit", "top", "place", "length", "kind", "cosine", "match", "worst", "first_person",
    "number", "spot", "name", "time",
)  # fmt: skip
ORDER = (
    "shared", "left_older", "left_newer", "common", "told", "kept", "alone_older", "alone_newer",
    "words_left", "names_left", "change", "addition", "asks", "number", "place", "name", "kind", "speaker",
    "thread", "gap", "similarity", "forward", "backward", "similarity_lead", "closeness_lead", "score_lead",
    "ahead", "least", "logit_least", "lost", "lost_most", "won", "won_most", "both_match", "both_worst",
    "one", "many", "current", "terms", "asks_when", "asks_count", "asks_where", "asks_who", "asks_what",
    *(f"{name}_{side}" for name in _SIDES for side in ("older", "newer")),
)  # fmt: skip
"""Features of a network: it finds the products that matter."""

RIDGE = 1e-3
STEPS = 60
DEPTH = 10
"""Hits of each question that relevance is fitted on."""
BESIDE_ANSWER = 0.1
"""Weight of hits beside an answer, which often help although they are not labelled."""
DIALOGUE_WEIGHT = 4.0
"""Weight of hits in dialogues, where relevance is harder to tell than among facts."""
UNITS, NETWORKS = 16, 3
"""Hidden units of a network, and the number of networks that are averaged."""
PASSES, BATCH = 12, 512
LEARNING_RATE, DECAY = 0.01, 1e-3
REPLACED_WEIGHT, BOTH_WEIGHT, OTHER_WEIGHT = 4.0, 2.0, 1.0
"""Weights of pairs: an answer and what it replaced, two answers, an answer and a newer hit that is none."""
RELATION_RELEVANCE = 0.25
"""Relevance of statements that are labelled without a question."""
RELATION_QUESTIONS = ("What is it?", "Tell me about it.")
"""One that expects a single value and one that does not: the label holds for either."""
RELATION_TIMES = ("2025-01-01", "2025-05-01")
FACT_COUNT = 500
SUCCESSION_OTHERS = (0, 1, 3, 12, 30, 300, 1_000)
"""Numbers of facts beside a labelled pair with a question."""
SINGLE_OTHERS = (1, 1, 1, 3, 3, 12)
"""Numbers of facts beside the newer statement of a pair alone."""


class Hits(NamedTuple):
    """The first hits of one question, with what relevance is fitted on."""

    scope: IndexedConversation
    label: str
    """`answerable`, `unanswerable` or `foreign`."""
    readings: Readings
    rows: Array
    gold: Array
    features: Mapping[str, Array]


class Examples(NamedTuple):
    """Pairs of statements, and whether the newer one replaces the older one."""

    features: dict[str, Array]
    outdated: Array
    weights: Array
    order_weights: Array
    """Weights for the order, which two statements that are both true may have either way."""


def collect_hits(index: Index, conversations: Sequence[Conversation]) -> Iterator[Hits]:
    """Yield the first hits of every question about these conversations, and of foreign questions."""
    foreign = sets.foreign_questions(conversations)
    for scope, others in zip(index.add_all(conversations), foreign, strict=True):
        for question in (*scope.conversation.questions, *others):
            label = "answerable" if question.gold else question.kind  # unanswerable or foreign
            readings = scope.readings(question.text)
            rows = score_rows(scope, readings).top(DEPTH)
            if len(rows) and has_terms(readings):
                features = relevance.relevance_features(readings[0][0], scope.pool, readings[0][1], rows)
                gold = np.isin(rows, scope.rows_of(question.gold))
                yield Hits(scope, label, readings, rows, gold, features)


def has_terms(readings: Readings) -> bool:
    """Return True if a question has a word to compare; without one, relevance is not known."""
    return any(query.terms for query, _ in readings)


def score_rows(scope: IndexedConversation, readings: Readings) -> ScoreTable:
    """Score all rows for a question, as recall does."""
    return ScoreTable.best_of(
        [score(query, scope.pool, vector=vector, center=scope.center) for query, vector in readings]
    )


def estimate(scope: IndexedConversation, readings: Readings, rows: Array, calibration: Calibration) -> Array:
    """Estimate the relevance of some rows, as recall does."""
    values = relevance.estimate(readings, scope.pool, rows.tolist(), calibration, floor=DEFAULT_MIN_RELEVANCE)
    assert values is not None
    return values


def fit_relevance(hits: Sequence[Hits]) -> LogisticModel:
    """Fit the model of relevance: what tells answers apart, then how likely each value of it is.

    With vectors, hits beside an answer weigh less in the first step; in the second, all hits weigh the same,
    so that relevance is a share of hits.
    """
    # A question about two people has two readings, and its hits do not say which of them they answer.
    single = [one for one in hits if len(one.readings) == 1]
    features = {name: np.concatenate([one.features[name] for one in single]) for name in single[0].features}
    gold = np.concatenate([one.gold for one in single]).astype(np.float64)
    has_vectors = "cosine" in features
    names = RELEVANCE if has_vectors else RELEVANCE_BY_WORDS
    weights = np.concatenate([_hit_weights(one) for one in single]) if has_vectors else np.ones(len(gold))
    model = fit_directed(features, names, gold, weights)
    likely = np.clip(model.probabilities(features), 1e-9, 1 - 1e-9)
    scaled = fit_logistic({"logit": np.log(likely / (1 - likely))}, ("logit",), gold, np.ones(len(gold)))
    slope = scaled.weights["logit"]
    return LogisticModel(
        _round(scaled.bias + slope * model.bias),
        {name: _round(slope * weight) for name, weight in model.weights.items()},
    )


def _hit_weights(hits: Hits) -> Array:
    beside = BESIDE_ANSWER if hits.label == "answerable" else 1.0
    is_dialogue = hits.scope.conversation.kind in sets.LONG_SIZES
    return np.where(hits.gold, 1.0, beside) * (DIALOGUE_WEIGHT if is_dialogue else 1.0)


def fit_directed(
    features: Mapping[str, Array], names: Sequence[str], target: Array, weights: Array
) -> LogisticModel:
    """Fit a logistic model, and leave out features that go the wrong way, the strongest first."""
    names = [*names]
    while True:
        model = fit_logistic(features, names, target, weights)
        wrong = {
            name: abs(weight) * float(relevance.column_of(features, name).std())
            for name, weight in model.weights.items()
            if (name in RISING and weight < 0) or (name in FALLING and weight > 0)
        }
        if not wrong:
            return model
        names.remove(max(wrong, key=lambda name: wrong[name]))


def fit_logistic(
    features: Mapping[str, Array], names: Sequence[str], target: Array, weights: Array, ridge: float = RIDGE
) -> LogisticModel:
    """Fit a logistic model by Newton's method."""
    used = [name for name in names if all(part in features for part in name.removesuffix("^2").split("*"))]
    columns = np.stack([relevance.column_of(features, name) for name in used], axis=1)
    center, spread = columns.mean(axis=0), columns.std(axis=0) + 1e-9
    scaled = np.concatenate([np.ones((len(columns), 1)), (columns - center) / spread], axis=1)
    share = weights / weights.sum()
    penalty = ridge * np.append(0.0, np.ones(len(used)))
    chosen = np.zeros(len(used) + 1)
    for _ in range(STEPS):
        likely = 1.0 / (1.0 + np.exp(-np.clip(scaled @ chosen, -30.0, 30.0)))
        slope = scaled.T @ (share * (likely - target)) + penalty * chosen
        curve = (scaled * (share * likely * (1 - likely))[:, None]).T @ scaled + np.diag(penalty)
        step = np.linalg.solve(curve + 1e-12 * np.eye(len(chosen)), slope)
        chosen -= step
        if np.abs(step).max() < 1e-8:
            break
    slopes = chosen[1:] / spread
    bias = float(chosen[0] - slopes @ center)
    return LogisticModel(
        _round(bias), {name: _round(value) for name, value in zip(used, slopes, strict=True)}
    )


def fit_network(
    features: Mapping[str, Array], names: Sequence[str], target: Array, weights: Array
) -> Network:
    """Fit networks from several seeds by stochastic gradients, and join them into one that averages them."""
    columns = np.stack([features[name] for name in names], axis=1)
    mean, deviation = columns.mean(axis=0), columns.std(axis=0) + 1e-6
    columns = np.clip((columns - mean) / deviation, -relevance.MAX_DEVIATION, relevance.MAX_DEVIATION)
    columns = np.append(columns, np.ones((len(columns), 1)), axis=1)
    fitted = [_fit_units(columns, target, weights / weights.mean(), sets.SEED + at) for at in range(NETWORKS)]
    hidden = np.concatenate([units.T for units, _ in fitted])
    output = np.concatenate([own[:-1] for _, own in fitted]) / NETWORKS
    bias = sum(own[-1] for _, own in fitted) / NETWORKS
    arrays = (np.append(mean, deviation), hidden, np.append(output, bias))
    return Network(tuple(names), *(array.astype("<f4").tobytes() for array in arrays))


def _fit_units(columns: Array, target: Array, weights: Array, seed: int) -> tuple[Array, Array]:
    """Return the weights of the features in each unit, and of the units, with the biases last (Adam)."""
    chance = np.random.default_rng(seed)
    size = columns.shape[1]
    layers = [chance.normal(0, size**-0.5, (size, UNITS)), np.append(chance.normal(0, 0.25, UNITS), -2.0)]
    kept = [np.append(np.ones((size - 1, UNITS)), np.zeros((1, UNITS)), axis=0), np.append(np.ones(UNITS), 0)]
    means, squares = ([np.zeros_like(layer) for layer in layers] for _ in range(2))
    batches = [
        batch
        for _ in range(PASSES)
        for batch in np.array_split(chance.permutation(len(columns)), -(-len(columns) // BATCH))
    ]
    for step, batch in enumerate(batches, 1):
        units = np.tanh(columns[batch] @ layers[0])
        likely = 1.0 / (1.0 + np.exp(-(units @ layers[1][:-1] + layers[1][-1])))
        error = (likely - target[batch]) * weights[batch] / len(batch)
        inner = np.outer(error, layers[1][:-1]) * (1 - units * units)
        slopes = [columns[batch].T @ inner, np.append(units.T @ error, error.sum())]
        rate = LEARNING_RATE * (1 - step / (len(batches) + 1))
        for at, slope in enumerate(slopes):
            slope += DECAY * layers[at] * kept[at]
            means[at] = 0.9 * means[at] + 0.1 * slope
            squares[at] = 0.999 * squares[at] + 0.001 * slope**2
            root = np.sqrt(squares[at] / (1 - 0.999**step)) + 1e-8
            layers[at] = layers[at] - rate * means[at] / (1 - 0.9**step) / root
    return layers[0], layers[1]


def _round(value: float) -> float:
    return float(f"{value:.5g}")


def collect_pairs(
    index: Index, conversations: Sequence[Conversation], calibration: Calibration, order_weight: float
) -> Examples:
    """Return pairs of hits of questions about these conversations, weighted for the order."""
    parts = [
        examples
        for scope in index.add_all(conversations)
        for question in scope.conversation.questions
        if question.gold and (examples := _pairs_of_question(scope, question, calibration)) is not None
    ]
    examples = join_examples(parts)
    return examples._replace(order_weights=order_weight * examples.order_weights)


def _pairs_of_question(
    scope: IndexedConversation, question: Question, calibration: Calibration
) -> Examples | None:
    readings = scope.readings(question.text)
    table = score_rows(scope, readings)
    rows = table.top(relevance.MAX_ROWS)
    query = parse_query(question.text, now=scope.asked_at, speakers=scope.pool.speakers)
    if (
        len(rows) < 2 or query.tense == "past" or not has_terms(readings)
    ):  # there the older statement is asked for
        return None
    values = estimate(scope, readings, rows, calibration)
    pairs = relevance.compare(query, scope.pool, rows, table.total[rows], values, readings[0][1])
    gold = np.isin(rows, scope.rows_of(question.gold))
    rival = np.isin(rows, scope.rows_of(question.rivals))
    older, newer = pairs.older, pairs.newer
    both = (gold | rival)[older] & (gold | rival)[newer]
    replaced = rival[older] & gold[newer] & ~gold[older] & (question.kind != "both")
    other = gold[older] & ~gold[newer] & ~rival[newer]
    after_rival = rival[older] & ~gold[newer] & ~rival[newer]
    weights = np.select(
        [replaced, both, other],
        [REPLACED_WEIGHT, BOTH_WEIGHT * (~rival[older] | (question.kind == "both")), OTHER_WEIGHT],
        0.0,
    )
    order_weights = np.select([replaced, other | after_rival], [REPLACED_WEIGHT, OTHER_WEIGHT], 0.0)
    known = (weights > 0) | (order_weights > 0)
    if not known.any():
        return None
    features = {name: column[known] for name, column in pairs.features.items()}
    return Examples(features, replaced[known].astype(np.float64), weights[known], order_weights[known])


def join_examples(parts: Sequence[Examples]) -> Examples:
    """Join examples with the same features."""
    return Examples(
        {name: np.concatenate([one.features[name] for one in parts]) for name in parts[0].features},
        np.concatenate([one.outdated for one in parts]),
        np.concatenate([one.weights for one in parts]),
        np.concatenate([one.order_weights for one in parts]),
    )


def collect_relations(index: Index) -> Examples:
    """Return the labelled pairs of statements, each in a scope of its own."""
    parts = []
    times = [parse_time(date) for date in RELATION_TIMES]
    for number, (*statements, label) in enumerate(sets.load_relations()):
        turns = [
            DatasetTurn(id=id, text=text, at=at) for id, text, at in zip("ab", statements, times, strict=True)
        ]
        scope = index.add(Conversation(f"relation-{number}", "relation", tuple(turns), ()))
        replaces = label == "replaces"
        for text in RELATION_QUESTIONS:
            query = parse_query(text, now=scope.asked_at)
            equal = np.full(2, RELATION_RELEVANCE)
            pairs = relevance.compare(query, scope.pool, np.arange(2), np.zeros(2), equal)
            parts.append(Examples(pairs.features, np.array([float(replaces)]), np.ones(1), np.zeros(1)))
    return join_examples(parts)


class Half(NamedTuple):
    """Half of the held-out dialogues, of the questions about facts, and of the labelled pairs."""

    conversations: list[Conversation]
    people: list[Conversation]
    facts: list[Conversation]
    successions: list[Conversation]
    hits: list[Hits]


def load_halves(index: Index) -> list[Half]:
    """Load both halves, with about as many dialogues of each kind."""
    ordered = sorted(sets.load_dialogues(held_out=True), key=lambda one: (one.kind, one.id))
    personas = sets.load_personas(held_out=True)
    halves = []
    chance = np.random.default_rng(sets.SEED)
    successions = [
        sets.load_successions(others, chance, has_old=has_old)
        for has_old, sizes in ((True, SUCCESSION_OTHERS), (False, SINGLE_OTHERS))
        for others in sizes
    ]
    for at in (0, 1):
        facts = [one._replace(questions=one.questions[at::2]) for one in sets.load_facts(FACT_COUNT)]
        own = ordered[at::2]
        people = personas[at::2]
        large = [one._replace(questions=one.questions[at::2]) for one in sets.load_facts(sets.FACT_COUNT)]
        pairs = [one for group in successions for one in group[at::2]]
        hits = [*collect_hits(index, [*own, *people, *facts])]
        code = [one._replace(questions=one.questions[at::2]) for one in sets.load_code()]
        halves.append(Half(own, people, [*facts, *large, *code], pairs, hits))
    return halves


def fit_calibration(index: Index, halves: Sequence[Half], relations: Examples) -> Calibration:
    """Fit both models on some halves, that of outdated statements on the labelled pairs, too."""
    model = fit_relevance([one for half in halves for one in half.hits])
    known = relevance.calibration_for(index.name)  # has the mean vectors, which the scores depend on
    center = b"" if known is None else known.center
    calibration = Calibration(embedder=index.name, center=center, relevance=model)
    pairs = join_examples([collect_half_pairs(index, half, calibration) for half in halves])
    # Those that replace one another weigh as much with a question as without one.
    scale = pairs.weights[pairs.outdated == 1].sum() / relations.weights[relations.outdated == 1].sum()
    examples = join_examples([pairs, relations._replace(weights=relations.weights * scale)])
    return msgspec.structs.replace(
        calibration,
        outdated=fit_logistic(examples.features, OUTDATED, examples.outdated, examples.weights),
        # Words alone cannot tell the values of one thing from two things that share a word.
        order=None if index.name is None else _fit_order(pairs),
    )


def _fit_order(pairs: Examples) -> Network:
    known = pairs.order_weights > 0
    features = {name: pairs.features[name][known] for name in ORDER}
    return fit_network(features, ORDER, pairs.outdated[known], pairs.order_weights[known])


def collect_half_pairs(index: Index, half: Half, calibration: Calibration) -> Examples:
    """Return the pairs of hits in long scopes, in the dialogues alone, and among facts."""
    scopes = [*sets.join_by_kind(half.conversations), *half.conversations]
    groups = ((scopes, 2.0), (half.people, 2.0), (half.facts, 4.0), (half.successions, 1.0))
    return join_examples([collect_pairs(index, group, calibration, weight) for group, weight in groups])


def report_relevance(hits: Sequence[tuple[Hits, Array]]) -> tuple[str, list[Bin]]:
    """Return the figures of relevance as text, and its reliability."""
    best = {
        label: [float(values.max()) for one, values in hits if one.label == label]
        for label in ("answerable", "unanswerable", "foreign")
    }
    found = [float(values[one.gold].max()) for one, values in hits if one.gold.any()]
    lines = ["relevance: the best hit of answerable questions against that of others"]
    for label in ("unanswerable", "foreign"):
        recognised = metrics.mean(np.array(best[label]) < DEFAULT_MIN_RELEVANCE)
        lines.append(
            f"  {label:<14} AUC {metrics.auc_figure(best['answerable'], best[label])}"
            f"   recognised {recognised}"
        )
    both = [*best["unanswerable"], *best["foreign"]]
    lines.append(f"  {'both':<14} AUC {metrics.auc_figure(best['answerable'], both)}")
    lines.append(
        f"  answers below {DEFAULT_MIN_RELEVANCE}: {metrics.mean(np.array(found) < DEFAULT_MIN_RELEVANCE)}"
    )
    lines.append(f"  5 % of the answers lie below {np.quantile(found, 0.05):.3f}")
    values = np.concatenate([own for _, own in hits])
    gold = np.concatenate([one.gold for one, _ in hits]).astype(np.float64)
    bins = metrics.reliability(values, gold)
    lines.append("  predicted  observed      n")
    lines += [f"  {one.predicted:9.3f} {one.observed:9.3f} {one.n:6}" for one in bins]
    lines.append(f"  AUC of hits {metrics.auc(values[gold > 0], values[gold == 0]):.3f}")
    lines.append(f"  mean distance {metrics.calibration_error(bins):.3f}")
    return "\n".join(lines), bins


def report_succession(parts: Sequence[tuple[Examples, Calibration]]) -> str:
    """Return the figures of the model of outdated statements as text."""
    lines = ["pairs of an answer and what it replaced, against others"]
    for name, floor in (("outdated", relevance.OUTDATED_FROM), ("order", relevance.ORDERED_FROM)):
        if getattr(parts[0][1], name) is None:
            continue
        likely: dict[float, list[float]] = {0.0: [], 1.0: []}
        for examples, calibration in parts:
            model = getattr(calibration, name)
            values = model.probabilities(examples.features)
            counts = (examples.weights if name == "outdated" else examples.order_weights) > 0
            for target, group in likely.items():
                group.extend(values[counts & (examples.outdated == target)].tolist())
        right, wrong = (metrics.mean(np.array(likely[target]) > floor) for target in (1.0, 0.0))
        area = metrics.auc_figure(likely[1.0], likely[0.0])
        lines.append(f"  {name:<9} AUC {area}   above {floor}: {right}, of the others {wrong}")
    return "\n".join(lines)


def write_calibration(calibration: Calibration, path: Path) -> None:
    """Write a calibration into a file, in the place of that of the same embedder."""
    known = msgspec.json.decode(path.read_bytes(), type=list[Calibration]) if path.exists() else []
    known = [one for one in known if one.embedder != calibration.embedder]
    ordered = sorted([*known, calibration], key=lambda one: one.embedder or "")
    path.write_bytes(msgspec.json.format(msgspec.json.encode(ordered)) + b"\n")


def main() -> None:
    """Fit, print the figures, and write the calibration and its diagram."""
    parser = argparse.ArgumentParser(
        prog="training.calibrate", description="Fit the calibration of an embedder."
    )
    parser.add_argument("--embedder", default="auto", help="name of an embedder, or none for words alone")
    parser.add_argument("--out", type=Path, default=CALIBRATIONS, help="file of the calibrations")
    parser.add_argument("--pictures", type=Path, default=PICTURES, help="folder of the diagram")
    options = parser.parse_args()
    index = Index.of(options.embedder)
    halves = load_halves(index)
    relations = collect_relations(index)
    hits: list[tuple[Hits, Array]] = []
    pairs: list[tuple[Examples, Calibration]] = []
    for own, other in (halves, halves[::-1]):
        calibration = fit_calibration(index, [other], relations)
        hits += [(one, estimate(one.scope, one.readings, one.rows, calibration)) for one in own.hits]
        pairs.append((collect_half_pairs(index, own, calibration), calibration))
    print(f"embedder {index.name or 'none'}, two folds of whole conversations")
    text, bins = report_relevance(hits)
    print(text)
    print(report_succession(pairs))
    write_calibration(fit_calibration(index, halves, relations), options.out)
    name = "words alone" if index.name is None else index.name
    file_name = re.sub(r"[^a-z0-9]+", "-", name.lower())
    picture = options.pictures / f"reliability-{file_name}.svg"
    picture.write_text(diagram.to_svg(bins, f"Reliability of relevance, {name}"), "utf-8")
    print(f"wrote {options.out.name} and {picture.name}")


if __name__ == "__main__":
    main()
