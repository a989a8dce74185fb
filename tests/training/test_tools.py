"""Tests of the data sets, and of the programs that fit and evaluate."""

import json
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import calibrate, center, diagram, metrics, sets, weights
from training.evaluate import Answer
from training.index import CachedEmbedder, Index
from training.sets import Conversation, Question

from omoide import WriteRequest, open_store
from omoide.core.entry import RecallRequest, Scope
from omoide.embedders import Embedding, HashEmbedder
from omoide.eval.datasets import DatasetTurn
from omoide.eval.runner import AGENT_ID
from omoide.retrieval.ranking import Center
from omoide.retrieval.relevance import Calibration, LogisticModel

EARLIER = ("w1-", "w2-", "w3-", "w4-")
"""Prefixes of the 170 dialogues from which at least 40 are held out."""
LONG = 5
"""Words from which a turn is a text of its own; anybody says "yes" and "what is it"."""

DIALOGUE = {
    "id": "d1",
    "kind": "chat",
    "sessions": [
        {
            "date": "2025-01-09T10:00",
            "turns": [{"s": "Ann", "t": "I live in Rome."}, {"s": "Ben", "t": "Nice!"}],
        },
        {"date": "2025-06-09T10:00", "turns": [{"s": "Ann", "t": "We moved to Oslo."}]},
    ],
    "questions": [
        {"q": "Where does Ann live?", "gold": ["2:1"], "old": ["1:1"], "type": "update"},
        {"q": "Does Ann have a dog?", "gold": [], "type": "unanswerable"},
    ],
}


def all_dialogues() -> list[Conversation]:
    return [one for held_out in (True, False) for one in sets.load_dialogues(held_out=held_out)]


def all_personas() -> list[Conversation]:
    return [one for held_out in (True, False) for one in sets.load_personas(held_out=held_out)]


def evaluation_texts() -> set[str]:
    """Return every statement and question of the sets that are for evaluation alone."""
    loaded = [*sets.load_facts(5_000), *sets.load_code(), *sets.load_languages()]
    loaded += [one for name in sets.PAIR_SETS for one in sets.load_pairs(name, 0)]
    turns = {turn.text for one in loaded for turn in one.turns}
    return turns | {question.text for one in loaded for question in one.questions}


def test_what_is_held_out_exists() -> None:
    """Every held-out id is that of a dialogue or a persona, and at least 40 of the first are kept aside."""
    held_out = sets.held_out_ids()
    assert held_out <= {one.id for one in [*all_dialogues(), *all_personas()]}
    assert sum(id.startswith(EARLIER) for id in held_out) >= 40


def test_dialogues_have_distinct_ids() -> None:
    """No two dialogues or personas, and no two turns of one, have the same id."""
    dialogues = [*all_dialogues(), *all_personas()]
    assert len({one.id for one in dialogues}) == len(dialogues)
    assert [one.id for one in dialogues if len({turn.id for turn in one.turns}) < len(one.turns)] == []


def test_every_label_points_to_a_turn() -> None:
    """Every turn that a question of any set names exists, and what was replaced is not the answer."""
    loaded = [
        *all_dialogues(),
        *all_personas(),
        *sets.load_facts(500),
        *sets.load_code(),
        *sets.load_languages(),
    ]
    wrong = [
        (one.id, question.text)
        for one in loaded
        for question in one.questions
        if not {*question.gold, *question.rivals} <= {turn.id for turn in one.turns}
        or {*question.gold} & {*question.rivals}
    ]
    assert wrong == []


def test_questions_without_answers_are_the_unanswerable_ones() -> None:
    """A question has no answer exactly if its kind says so."""
    questions = [question for one in [*all_dialogues(), *all_personas()] for question in one.questions]
    assert [one.text for one in questions if (one.kind == "unanswerable") != (not one.gold)] == []


def test_no_evaluation_text_was_trained_on() -> None:
    """No statement or question for evaluation is part of what the encoder was trained on."""
    trained = [*sets.load_dialogues(held_out=False), *sets.load_personas(held_out=False)]
    texts = {turn.text for one in trained for turn in one.turns}
    texts |= {question.text for one in trained for question in one.questions}
    shared = texts & evaluation_texts()
    assert [one for one in shared if len(one.split()) >= LONG] == []  # anybody asks "Where do I live?"


def test_held_out_dialogues_share_no_text_with_the_others() -> None:
    """No question, and no turn beyond a few words, is in a held-out dialogue and in another one."""
    held_out, trained = (
        {question.text for one in part for question in one.questions}
        | {turn.text for one in part for turn in one.turns if len(turn.text.split()) >= LONG}
        for part in (sets.load_dialogues(held_out=True), sets.load_dialogues(held_out=False))
    )
    assert held_out & trained == set()


def test_labelled_pairs_are_none_of_the_evaluated_ones() -> None:
    """No statement or question that the models of order are fitted on is part of an evaluation set."""
    statements = {text for older, newer, _ in sets.load_relations() for text in (older, newer)}
    for one in sets.load_successions(0, np.random.default_rng(0)):
        statements |= {turn.text for turn in one.turns} | {question.text for question in one.questions}
    assert statements & evaluation_texts() == set()


def test_a_dialogue_is_read_turn_by_turn() -> None:
    """Turns are named by session and position, and keep their speakers and their order in time."""
    one = sets.to_conversation(DIALOGUE)
    assert [(turn.id, turn.session, turn.speaker) for turn in one.turns] == [
        ("1:1", "s1", "Ann"), ("1:2", "s1", "Ben"), ("2:1", "s2", "Ann"),
    ]  # fmt: skip
    times = [turn.at or 0 for turn in one.turns]
    assert times == sorted(times)
    assert one.questions[0] == Question("Where does Ann live?", ("2:1",), "update", ("1:1",))


def test_joined_dialogues_keep_turns_and_labels() -> None:
    """A long scope has all turns of its dialogues in order of time, and labels point to the same texts."""
    dialogues = [one for one in sets.load_dialogues(held_out=True) if one.kind == "chat"][:3]
    (joined,) = sets.join_conversations(dialogues, 3)
    assert sorted(turn.text for turn in joined.turns) == sorted(
        turn.text for one in dialogues for turn in one.turns
    )
    times = [turn.at or 0 for turn in joined.turns]
    assert times == sorted(times)
    assert _answers([joined]) == _answers(dialogues)


def _answers(conversations: Sequence[Conversation]) -> list[list[str]]:
    texts = [{turn.id: turn.text for turn in one.turns} for one in conversations]
    return [
        [own[id] for id in question.gold]
        for one, own in zip(conversations, texts, strict=True)
        for question in one.questions
    ]


@pytest.mark.parametrize("name", sets.PAIR_SETS)
def test_a_pair_stands_among_facts(name: str) -> None:
    """Each pair is in a scope of its own with the facts asked for, in order of time."""
    pairs = sets.load_pairs(name, 7)
    assert {len(one.turns) for one in pairs} == {9}
    assert all([turn.at for turn in one.turns] == sorted(turn.at or 0 for turn in one.turns) for one in pairs)
    (question,) = pairs[0].questions
    assert {*question.gold, *question.rivals} <= {turn.id for turn in pairs[0].turns}


def test_foreign_questions_name_the_people_of_the_conversation() -> None:
    """A foreign question is one of another conversation of the kind, with the names of this one."""
    other = sets.to_conversation(
        {
            "id": "d2",
            "kind": "chat",
            "sessions": [
                {"date": "2025-01-09T10:00", "turns": [{"s": "Cleo", "t": "Hi"}, {"s": "Dan", "t": "Yo"}]}
            ],
            "questions": [{"q": "Did Dan see Cleo's boat?", "gold": ["1:1"], "type": "single"}],
        }
    )
    foreign, _ = sets.foreign_questions([sets.to_conversation(DIALOGUE), other])
    assert foreign == [Question("Did Ben see Ann's boat?", (), "foreign")]


@pytest.mark.parametrize("has_vectors", [False, True])
def test_recall_is_that_of_a_store(tmp_path: Path, has_vectors: bool) -> None:
    """A question gets the same hits, in the same order, as from a store with the same entries."""
    embedder = HashEmbedder() if has_vectors else None
    scope = Index(None if embedder is None else CachedEmbedder(embedder, tmp_path)).add(
        sets.to_conversation(DIALOGUE)
    )
    core = open_store("memory://", embedder=embedder or "none").sync
    core.write_many([WriteRequest(entry=entry) for entry in scope.entries])
    question = "Where does Ann live now?"
    request = RecallRequest.for_scope(
        Scope(namespace="d1", agent_id=AGENT_ID), question, limit=3, at=scope.asked_at
    )
    expected, found = core.recall(request).hits, scope.answer(question, 3).hits
    assert [hit.entry.id for hit in found] == [hit.entry.id for hit in expected]
    assert [hit.score for hit in found] == pytest.approx([hit.score for hit in expected])


class Counted:
    """An embedder that counts the texts it embeds."""

    name, dim = "counted", 2

    def __init__(self, angle: float = 0.5) -> None:
        self.angle = angle
        self.texts: list[str] = []

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        self.texts.extend(texts)
        pooled = np.array([np.cos(self.angle), np.sin(self.angle)], np.float32)
        return [Embedding(pooled, np.ones((len(text), 64), np.int8), (*text,)) for text in texts]


def test_a_text_is_embedded_once(tmp_path: Path) -> None:
    """Saved embeddings are read again, equal to those of the embedder."""
    first = CachedEmbedder(Counted(), tmp_path)
    made = first.embed(["abc", "de", "abc"])
    first.save()
    counted = Counted()
    read = CachedEmbedder(counted, tmp_path).embed(["de", "abc"])
    assert counted.texts == ["fingerprint"]
    for one, other in zip(read, (made[1], made[0]), strict=True):
        assert one.words == other.words
        assert one.tokens is not None
        assert other.tokens is not None
        assert (one.pooled == other.pooled).all()
        assert (one.tokens == other.tokens).all()


def test_a_changed_model_has_a_cache_of_its_own(tmp_path: Path) -> None:
    """Embeddings of a model with the same name and other vectors are not read."""
    first = CachedEmbedder(Counted(), tmp_path)
    first.embed(["abc"])
    first.save()
    counted = Counted(angle=1.0)
    CachedEmbedder(counted, tmp_path).embed(["abc"])
    assert counted.texts == ["fingerprint", "abc"]


VALUES = st.lists(st.integers(0, 5).map(float), min_size=1, max_size=20)


@given(higher=VALUES, lower=VALUES)
def test_auc_is_the_share_of_ordered_pairs(higher: list[float], lower: list[float]) -> None:
    """The area under the curve is the share of pairs in the right order, equal ones counting half."""
    pairs = [(a > b) + (a == b) / 2 for a in higher for b in lower]
    assert metrics.auc(higher, lower) == pytest.approx(np.mean(pairs))


@given(values=VALUES)
def test_the_interval_holds_the_mean(values: list[float]) -> None:
    """A mean lies in its interval, up to the coarseness of a few values."""
    figure = metrics.mean(values)
    assert min(values) <= figure.low <= figure.high <= max(values)
    assert figure.value == pytest.approx(np.mean(values))
    assert figure.n == len(values)


def test_reliability_of_known_predictions() -> None:
    """Bins have the mean prediction and the share of events; empty ones are left out."""
    predicted, observed = np.array([0.02, 0.08, 0.55, 1.0]), np.array([0.0, 1.0, 1.0, 1.0])
    bins = metrics.reliability(predicted, observed)
    assert [(one.predicted, one.observed, one.n) for one in bins] == [
        (pytest.approx(0.05), 0.5, 2), (pytest.approx(0.55), 1.0, 1), (1.0, 1.0, 1),
    ]  # fmt: skip
    assert metrics.calibration_error(bins) == pytest.approx((2 * 0.45 + 0.45 + 0.0) / 4)


def test_a_diagram_has_a_point_for_each_bin_with_enough_hits() -> None:
    """Bins with few hits have a bar and no point."""
    bins = [metrics.Bin(0.0, 0.1, 0.05, 0.04, 90), metrics.Bin(0.5, 0.6, 0.55, 1.0, 2)]
    assert diagram.to_svg(bins, "Reliability").count("<circle") == 1


def answer(ids: list[str], *, relevance: float = 0.5) -> Answer:
    question = Question("?", ("new",), "updates", ("old",))
    return Answer(question, "updates", tuple(ids), (relevance,) * len(ids), {})


@pytest.mark.parametrize(
    ("ids", "has_order"),
    [(["new", "old"], True), (["x", "new"], True), (["old", "new"], False), (["old"], False), ([], False)],
)
def test_the_asked_statement_stands_above_its_rival(ids: list[str], has_order: bool) -> None:
    """An answer is in order if the statement that is asked for was found, above the other one."""
    assert answer(ids).has_order == has_order


def test_relevance_of_an_answer_that_was_not_found() -> None:
    """An answer that is not among the hits has no relevance, whatever that of the others."""
    assert answer(["old", "x"]).answer_relevance is None
    assert answer(["old", "new"], relevance=0.7).answer_relevance == 0.7


def test_logistic_fit_recovers_a_model() -> None:
    """Weights fitted to probabilities of a known model are those of the model."""
    chance = np.random.default_rng(1)
    features = {"a": chance.normal(size=4_000), "b": chance.normal(size=4_000), "absent*a": np.zeros(0)}
    model = LogisticModel(-0.5, {"a": 1.5, "b": -1.0, "a*b": 0.7, "a^2": 0.3})
    # Each example counts as an event and as none, by its probability: the fit has no noise.
    likely = model.probabilities(features)
    twice = {name: np.tile(features[name], 2) for name in ("a", "b")}
    target = np.repeat([1.0, 0.0], 4_000)
    weight = np.concatenate([likely, 1 - likely])
    fitted = calibrate.fit_logistic(twice, ("a", "b", "a*b", "a^2", "c", "a*c"), target, weight, ridge=1e-9)
    assert fitted.bias == pytest.approx(model.bias, abs=1e-3)
    assert fitted.weights == pytest.approx(model.weights, abs=1e-3)


def test_a_feature_in_the_wrong_direction_is_left_out() -> None:
    """A feature that can only speak for relevance has no weight against it, and others keep theirs."""
    chance = np.random.default_rng(3)
    features = {"cosine": chance.normal(size=2_000), "share": chance.normal(size=2_000)}
    target = (chance.random(2_000) < 1 / (1 + np.exp(features["share"] - features["cosine"]))).astype(float)
    model = calibrate.fit_directed(features, ("cosine", "share"), target, np.ones(2_000))
    assert model.weights.keys() == {"cosine"}
    assert model.weights["cosine"] > 0.5


def test_a_network_finds_what_no_sum_of_features_tells() -> None:
    """Two features that say something only together are used; the same data give the same network."""
    chance = np.random.default_rng(4)
    features = {"a": chance.normal(size=20_000), "b": chance.normal(size=20_000)}
    target = (features["a"] * features["b"] > 0).astype(float)
    network = calibrate.fit_network(features, ("a", "b"), target, np.ones(20_000))
    likely = network.probabilities(features)
    assert metrics.auc(likely[target > 0], likely[target == 0]) > 0.95
    assert network == calibrate.fit_network(features, ("a", "b"), target, np.ones(20_000))


def toy_block(true: Sequence[float]) -> weights.Block:
    """Return choices among rows whose probabilities follow from known weights."""
    chance = np.random.default_rng(2)
    columns = chance.normal(size=(600, 8, len(true)))
    absent = np.zeros((600, 8))
    absent[::2, 5:] = -1e9
    columns[absent < 0] = 0.0
    gold = np.exp(columns @ np.array(true) + absent)
    gold /= gold.sum(axis=1, keepdims=True)
    return weights.Block(columns, gold, absent, np.full(600, 1 / 600))


def test_ranking_weights_are_recovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights chosen on rows drawn by known weights are those weights."""
    monkeypatch.setattr(weights, "RIDGE", 1e-9)
    true = (1.2, -0.8, 0.4)
    assert weights.fit(toy_block(true), [weights.FREE] * 3) == pytest.approx(true, abs=1e-2)


def test_ranking_weights_stay_within_bounds() -> None:
    """A weight that the data draw beyond a bound is at the bound."""
    chosen = weights.fit(toy_block((1.2, -0.8, 0.4)), [(0.0, 0.5), (-0.1, 1.0), weights.FREE])
    assert chosen[:2] == pytest.approx([0.5, -0.1])


def test_a_row_counts_by_its_best_reading() -> None:
    """A question with two readings finds what either of them ranks first."""
    readings = tuple(
        weights.Reading(np.array(rows), np.array([[3.0], [1.0]], np.float32)) for rows in ([0, 1], [2, 1])
    )
    sample = weights.Sample("chat", "messages", 0, "single", readings, frozenset({2}))
    assert weights.found(sample, np.array([1.0]), 2) == 1
    assert weights.found(sample, np.array([-1.0]), 1) == 0


def test_a_dialogue_is_in_one_fold() -> None:
    """A dialogue is in the same fold alone and in a long scope."""
    folds = {weights.fold_of("chat", number, 0) for number in range(6, 12)}
    assert folds == {weights.fold_of("joined chat", 1, 3)}


def test_a_calibration_replaces_that_of_its_embedder(tmp_path: Path) -> None:
    """Writing a calibration keeps those of other embedders, and there is one for each."""
    path = tmp_path / "calibrations.json"
    for embedder, bias in (("a", 1.0), (None, 2.0), ("a", 3.0)):
        calibrate.write_calibration(Calibration(embedder=embedder, relevance=LogisticModel(bias, {})), path)
    written = json.loads(path.read_text("utf-8"))
    assert [(one["embedder"], one["relevance"]["bias"]) for one in written] == [(None, 2.0), ("a", 3.0)]


def test_a_center_is_written_as_the_mean_vectors(tmp_path: Path) -> None:
    """The means of texts and of questions are read back as they were computed, each from its own texts."""
    embedder = CachedEmbedder(HashEmbedder(8), tmp_path)
    texts, questions = center.mean_vectors(embedder)
    assert texts.shape == questions.shape == (8,)
    assert not np.allclose(texts, questions)
    numbers = np.concatenate([texts, questions]).astype("<f4").tobytes()
    path = tmp_path / "calibrations.json"
    calibrate.write_calibration(
        Calibration(embedder="hash", center=numbers, relevance=LogisticModel(0.0, {})), path
    )
    (written,) = msgspec.json.decode(path.read_bytes(), type=list[Calibration])
    read = Center.of(written.center)
    assert read is not None
    assert np.allclose(read.texts, texts, atol=1e-6)
    assert np.allclose(read.questions, questions, atol=1e-6)
    assert Center.of(b"") is None


def test_code_is_asked_where_nothing_was_said() -> None:
    """Lines without a session are plain facts: turns without a thread, at distinct times."""
    (one,) = sets.load_code()
    assert {turn.session for turn in one.turns} == {None}
    assert len({turn.at for turn in one.turns}) == len(one.turns)
    assert isinstance(one.turns[0], DatasetTurn)
