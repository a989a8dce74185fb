"""Tests of recall in scopes that are too large to cache."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import ADA, a_store, keep

from omoide import Filter, RecallRequest
from omoide.retrieval.queries import parse_query
from omoide.stores.recall import EncodedQuery
from omoide.stores.sql import candidates
from omoide.testing import HashEmbedder

NOW = 1_763_000_000_000


def proposed(store: Any, query: str) -> set[str]:
    """The ids of the candidates for a query, of which three are wanted."""

    def encode(speakers: Sequence[str]) -> EncodedQuery:
        parsed = parse_query(query, now=NOW, speakers=[*speakers])
        if store.embedder is None:
            return EncodedQuery(parsed, None)
        main, *others = [
            EncodedQuery(one, store.embedder.embed([one.encoder_text], query=True)[0])
            for one in (parsed, *parsed.readings)
        ]
        return main._replace(readings=tuple(others))

    source = store._candidate_source()
    with source.candidates(ADA, Filter(), NOW, 3, encode) as found:
        return {entry.id for entry in found.load_entries(range(found.pool.size))}


@pytest.fixture(autouse=True)
def _small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(candidates, "MAX_CACHED_ENTRIES", 5)
    monkeypatch.setattr(candidates, "PROPOSALS_PER_RETRIEVER", 4)
    monkeypatch.setattr(candidates, "PROPOSALS_PER_SPEAKER", 2)


@pytest.fixture(params=["sqlite", "postgres"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of the store."""
    return str(request.param)


@pytest.fixture(params=["words", "vectors"])
def store(request: pytest.FixtureRequest, kind: str, tmp_path: Path) -> Iterator[Any]:
    """A store in which thirty others speak of bicycles."""
    embedder: Any = HashEmbedder(64) if request.param == "vectors" else "none"
    with a_store(kind, tmp_path, embedder=embedder) as opened:
        for number in range(30):
            say(opened, f"Person{number}", "My bicycle is green.", id=f"other {number}")
        yield opened


def say(store: Any, speaker: str, text: str, id: str, **fields: Any) -> None:
    """Write a message of a thread of its speaker."""
    message = {"thread": speaker, "seq": int(fields.pop("seq", 0)), "speaker": speaker}
    keep(store, text, id=id, message=message, occurred_at=NOW, **fields)


def recalled(store: Any, query: str, **fields: Any) -> list[str]:
    """The ids of the best entries for a query."""
    request = RecallRequest.for_scope(ADA, query, limit=3, at=NOW + 1_000, **fields)
    return [entry.id for entry in store.recall(request).entries]


def test_the_named_speaker_is_heard_among_many(store: Any) -> None:
    """However many others say the same, and say it later."""
    say(store, "Ann", "My bicycle is red and rusty.", id="ann's")
    for number in range(30, 60):
        say(store, f"Person{number}", "My bicycle is green.", id=f"other {number}")
    assert "ann's" in proposed(store, "What is Ann's bicycle like?")


def test_each_of_two_named_speakers_is_heard(store: Any) -> None:
    """Also where the other one has more to say."""
    say(store, "Ben", "I fly a bicycle kite.", id="ben's")
    for number in range(20):
        say(store, "Ann", f"I have bicycle number {number}.", id=f"ann's {number}", seq=10 * number)
    assert "ben's" in proposed(store, "Which bicycle do Ann and Ben have?")


def test_filters_hold_for_the_entries_of_the_named_speaker(store: Any) -> None:
    """What a filter, an end or a replacement excludes does not come back because of its speaker."""
    say(store, "Ann", "My bicycle is red.", id="plain", seq=1)
    say(store, "Ann", "My bicycle was blue.", id="expired", seq=2, expires_at=NOW + 10)
    say(store, "Ann", "My bicycle is yellow.", id="superseded", seq=3)
    say(store, "Ann", "My bicycle is violet.", id="erased", seq=4)
    say(store, "Ann", "My bicycle is white.", id="tagged", seq=5, tags=["x"])
    query = "What is Ann's bicycle like?"
    assert {*recalled(store, query)} <= {"plain", "superseded", "erased", "tagged"}
    store.supersede("superseded", ADA)
    store.erase(ADA, id="erased")
    found = recalled(store, query)
    assert {*found[:2]} == {"plain", "tagged"}
    assert found[2].startswith("other")
    assert recalled(store, query, filter=Filter(tags=["x"])) == ["tagged"]


def test_a_speaker_is_known_by_what_there_is_to_recall(store: Any) -> None:
    """One who comes is heard at once; the name of one who is gone is a word like any other."""
    query = "Does Zoe sing?"
    keep(store, "The choir is looking for Zoe.", id="about")
    assert recalled(store, query)[0] == "about"
    say(store, "Zoe", "I sing.", id="zoe's")
    assert recalled(store, query)[0] == "zoe's"
    store.erase(ADA, id="zoe's")
    assert recalled(store, query)[0] == "about"


def test_a_word_that_was_common_is_found_again_once_it_is_rare(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counted frequencies hold until so much has changed that the word may have become rare."""
    monkeypatch.setattr(candidates, "RARE_TERM_LIMIT", 8)
    for number in range(40):
        keep(store, "Fly a kite.", id=f"kite {number}")
    query = "Which kite, bicycle or green thing?"
    assert recalled(store, query)
    for number in range(1, 40):
        store.erase(ADA, id=f"kite {number}")
        assert recalled(store, query)  # so few changes at a time are applied to what is in memory
    assert "kite 0" in proposed(store, query)
