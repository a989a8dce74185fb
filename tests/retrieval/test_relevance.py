"""Tests of relevance: how likely a memory helps to answer, whatever else is stored."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.embedders import HashEmbedder, choose
from omoide.retrieval import relevance
from omoide.retrieval.pool import Array, CandidatePool
from omoide.retrieval.queries import parse_query
from omoide.retrieval.text import extract_features

NOW = 1_700_000_000_000
TEXTS = (
    "I moved to Lisbon in May.",
    "My sister plays the bassoon in an orchestra.",
    "The staging database listens on port 5433.",
    "We had soup.",
)
BY_TOKENS = ("match", "worst", "best", "before", "after")
"""Features that an embedder with vectors of tokens provides."""


def build_pool(texts: tuple[str, ...], embedder: HashEmbedder | None = None) -> CandidatePool:
    more: dict[str, Any] = {}
    if embedder is not None:
        vectors = [one.pooled.tobytes() for one in embedder.embed(texts)]
        more = {"vectors": vectors, "dim": embedder.dim}
    return CandidatePool.build([extract_features(one).to_bytes() for one in texts], **more)


def estimate(query: str, texts: tuple[str, ...], floor: float = 0.0) -> Array:
    found = relevance.estimate(
        [(parse_query(query, now=NOW), None)],
        build_pool(texts),
        range(len(texts)),
        relevance.calibration_for(None),
        floor,
    )
    assert found is not None
    return found


def test_relevance_does_not_depend_on_what_else_is_stored() -> None:
    """The same memory has the same relevance alone, among a few, and among hundreds."""
    query = "Which port does the staging database use?"
    alone = estimate(query, TEXTS[2:3])[0]
    assert estimate(query, TEXTS)[2] == pytest.approx(alone)
    many = (*(f"Note {number} about soup and bread." for number in range(500)), TEXTS[2])
    assert estimate(query, many)[-1] == pytest.approx(alone)


def test_a_memory_with_the_words_of_the_question_is_more_relevant_than_one_without() -> None:
    """Words that are shared count, and rare ones more."""
    found = estimate("Who plays the bassoon?", TEXTS)
    assert found.argmax() == 1
    assert found[1] > 2 * found[3]


def test_a_rare_shared_word_keeps_a_memory_above_the_floor() -> None:
    """What hardly any message mentions is not hidden when it is asked for."""
    query = "bassoon prices at the shop downtown for beginners this autumn"
    assert estimate(query, TEXTS, floor=0.4)[1] >= 0.4
    assert estimate(query, TEXTS, floor=0.4)[3] < 0.4


def test_a_shared_name_is_no_shared_word() -> None:
    """Who is asked about does not say what is asked."""
    texts = ("Bob likes pizza.", "My dentist moved to the old station.")
    named, _ = estimate("Did our neighbour Bob repair the bassoon?", texts, floor=0.4)
    assert named < 0.4


def test_without_a_calibration_relevance_is_unknown() -> None:
    """A foreign embedder gives no relevance rather than a wrong one."""
    assert relevance.calibration_for("an-encoder-of-somebody-1") is None
    pool = build_pool(TEXTS)
    assert relevance.estimate([(parse_query("port", now=NOW), None)], pool, [0], None) is None


@pytest.mark.parametrize("query", ["hello", "Hi, thanks!", "Who are you?", "?!", "Bob"])
def test_a_query_without_content_says_nothing_of_relevance(query: str) -> None:
    """A greeting asks for nothing: what is recalled for it is neither relevant nor irrelevant."""
    pool, readings = build_pool(TEXTS), [(parse_query(query, now=NOW, speakers=["Bob"]), None)]
    assert relevance.estimate(readings, pool, [0], relevance.calibration_for(None)) is None


@given(st.text(max_size=80), st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=4))
def test_relevance_is_a_probability_for_any_texts(query: str, texts: list[str]) -> None:
    """Hostile texts give numbers from 0 to 1, one for each memory."""
    found = estimate(f"bassoon {query}", tuple(texts))
    assert found.shape == (len(texts),)
    assert ((found >= 0) & (found <= 1)).all()


@given(st.floats(-5, 5), st.floats(-5, 5), st.floats(-5, 5))
def test_a_logistic_model_weights_features_products_and_squares(bias: float, one: float, two: float) -> None:
    """The probability is the logistic function of the weighted sum."""
    model = relevance.LogisticModel(bias, {"a": 1.0, "a*b": one, "b^2": two})
    a, b = np.array([0.5]), np.array([2.0])
    expected = 1 / (1 + np.exp(-(bias + 0.5 + one * 1.0 + two * 4.0)))
    assert model.probabilities({"a": a, "b": b})[0] == pytest.approx(expected)


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-3, 3))
def test_a_network_weights_units_of_weighted_features(first: float, second: float, bias: float) -> None:
    """The probability is the logistic function of units that see features as deviations from their mean."""
    numbers = ([1.0, 2.0], [first, 0.5, second, -0.5], [1.5, -2.0, bias])
    network = relevance.Network(("a",), *(np.array(one, "<f4").tobytes() for one in numbers))
    units = np.tanh(np.array([first, second]) * (2.0 - 1.0) / 2.0 + np.array([0.5, -0.5]))
    expected = 1 / (1 + np.exp(-(units @ np.array([1.5, -2.0]) + bias)))
    near, far, further = network.probabilities({"a": np.array([2.0, 1e3, 1e6])})
    assert near == pytest.approx(expected, rel=1e-4)
    assert far == further  # what lies far outside says no more than the limit


def test_an_answer_is_more_relevant_after_the_question_that_names_its_subject() -> None:
    """A short answer does not repeat what it was asked, so the messages before it count."""
    texts = ("What is your dog called, and what breed is it?", "Pixel. A whippet.", "Nice!")
    together, alone = (estimate_messages("What breed is the dog?", texts, thread) for thread in ("t", None))
    assert together[1] > 1.5 * alone[1]


def estimate_messages(query: str, texts: tuple[str, ...], thread: str | None) -> Array:
    """Estimate the relevance of texts by the encoder, as messages of a thread or each for itself."""
    encoder = choose("auto")
    assert encoder is not None
    embedded = encoder.embed(texts)
    pool = CandidatePool.build(
        [extract_features(one).to_bytes() for one in texts],
        thread=[thread or str(number) for number in range(len(texts))],
        seq=[*range(len(texts))],
        vectors=[one.pooled.astype(np.float32).tobytes() for one in embedded],
        dim=encoder.dim,
        token_loader=lambda rows: [np.asarray(embedded[row].tokens) for row in rows.tolist()],
    )
    parsed = parse_query(query, now=NOW)
    (asked,) = encoder.embed([parsed.encoder_text], query=True)
    found = relevance.estimate(
        [(parsed, asked)], pool, range(len(texts)), relevance.calibration_for(encoder.name)
    )
    assert found is not None
    return found


def test_the_calibrations_of_the_package_name_features_that_exist() -> None:
    """Each model uses features that its embedder provides, so that none is silently left out."""
    pool, embedder = build_pool(TEXTS, HashEmbedder()), HashEmbedder()
    query = parse_query("port", now=NOW)
    by_words = relevance.relevance_features(query, pool, None, np.arange(2))
    by_vector = relevance.relevance_features(query, pool, embedder.embed(["port"])[0], np.arange(2))
    assert by_words.keys() < by_vector.keys()
    for calibration in relevance.calibrations():
        provided = set(by_words) if calibration.embedder is None else {*by_vector, *BY_TOKENS}
        used = {part for name in calibration.relevance.weights for part in name.removesuffix("^2").split("*")}
        assert used <= provided
