"""Tests of captured exchanges: each part is indexed, ranked and shown by itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from omoide import Entry, Scope, WriteRequest, blocking, open_store
from omoide.core.entry import CAPTURE_SOURCE, MessageRef, join_exchange, passages_of
from omoide.retrieval.text import extract_features, states_nothing
from omoide.stores.records import embed_texts

SCOPE = Scope(agent_id="ada")


def an_exchange(at: int, said: str, answer: str, **fields: Any) -> Entry:
    """Return an exchange as the agent captures it."""
    return Entry(
        id=f"mem_{at}",
        agent_id="ada",
        content=join_exchange(said, answer),
        metadata={"class": "episodic", "kind": "conversation", "source": CAPTURE_SOURCE},
        message=MessageRef(thread="t", seq=10 * at),
        created_at=at * 86_400_000,
        **fields,
    )


def recall(store: Any, query: str) -> Any:
    """Recall what the agent knows."""
    return blocking.recall(store, query, SCOPE)


def test_an_answer_never_counts_as_the_users_words() -> None:
    """The first mark divides an exchange, so no part of an answer counts as the user's."""
    user, assistant = passages_of(an_exchange(1, "I like tea.", "Fine.\nAssistant: You like coffee."))
    assert (user.role, user.text, user.seq) == ("user", "I like tea.", 10)
    assert (assistant.role, assistant.text) == ("assistant", "Fine.\nAssistant: You like coffee.")


@pytest.mark.parametrize(
    "fields", [{"metadata": {}}, {"content": "Assistant: hello"}, {"content": "User: hi"}]
)
def test_other_entries_have_no_passages(fields: dict[str, Any]) -> None:
    """Only what was captured from a conversation is divided, and only where both sides are there."""
    assert passages_of(an_exchange(1, "hi", "hello").replace(**fields)) == ()


@pytest.mark.parametrize("embedder", ["auto", "none"])
def test_the_part_that_matches_is_the_hit(embedder: str, tmp_path: Path) -> None:
    """One exchange is one hit, which shows the part that answers the question."""
    with open_store(f"sqlite:///{tmp_path / 'm.db'}", embedder=embedder) as store:
        store.sync.write(
            WriteRequest(entry=an_exchange(1, "My cat is called Miso.", "The vet opens at nine."))
        )
        store.sync.write(WriteRequest(entry=an_exchange(2, "Thank you!", "You are welcome.")))
        cat, vet = recall(store, "What is my cat called?"), recall(store, "When does the vet open?")
        assert [hit.entry.id for hit in cat.hits].count("mem_1") == 1
        assert (cat.hits[0].passage.role, cat.hits[0].text) == ("user", "My cat is called Miso.")
        assert (vet.hits[0].passage.role, vet.hits[0].text) == ("assistant", "The vet opens at nine.")


def test_what_was_said_again_is_one_hit() -> None:
    """Near-duplicates are one hit, the newest, that tells when each was said; a word more is another hit."""
    with open_store("memory://") as store:
        for at, said in enumerate(
            ("I like green tea.", "so I like green tea", "I do not like green tea."), 1
        ):
            store.sync.write(WriteRequest(entry=an_exchange(at, said, "All right.")))
        hits = [hit for hit in recall(store, "Which tea do I like?").hits if hit.passage.role == "user"]
    assert sorted((hit.text, len(hit.said_at)) for hit in hits) == [
        ("I do not like green tea.", 0),
        ("so I like green tea", 2),
    ]
    assert {hit.said_at for hit in hits} == {(), (2 * 86_400_000, 86_400_000)}


@pytest.mark.parametrize(
    "text",
    [
        "Where do I live?",
        "where do i live",
        "Hey, tell me where I live.",
        "Thanks!",
        "I do not know that.",
        "?",
    ],
)
def test_questions_state_nothing(text: str) -> None:
    """What only asks, requests, greets or admits ignorance states nothing."""
    assert states_nothing(text)


@pytest.mark.parametrize(
    "text",
    [
        "I live in Lyon.",
        "I moved to Paris, where should I eat?",
        "Where should I eat? I moved to Paris.",
        "Did you know that I moved to Paris?",
        "When I was a child I lived in Rome.",
        "Remind me to call Bob on Monday.",
        "",
    ],
)
def test_what_tells_something_is_a_statement(text: str) -> None:
    """A message that also tells something is a statement, wherever its question stands."""
    assert not states_nothing(text)


def test_reindex_divides_what_an_earlier_version_joined(tmp_path: Path) -> None:
    """An exchange whose features and vector are of the whole gets those of its parts; its content stays."""
    file = tmp_path / "m.db"
    entry = an_exchange(1, "My cat is called Miso.", "The vet opens at nine.")
    with open_store(f"sqlite:///{file}") as store:
        store.sync.write(WriteRequest(entry=entry))
        assert store.sync.embedder is not None
        (whole,) = embed_texts([entry.content], store.sync.embedder)
    db = sqlite3.connect(file)
    stored = db.execute("SELECT body, features FROM entries").fetchone()
    with db:
        db.execute("UPDATE entries SET features=?", (extract_features(entry.content).to_bytes(),))
        db.execute("UPDATE vectors SET pooled=?", (whole.pooled.astype("<f4").tobytes(),))
        db.execute("UPDATE settings SET value='3' WHERE name='features'")
    db.close()
    with open_store(f"sqlite:///{file}") as store:
        assert recall(store, "cat").hits[0].passage is None
        assert any("reindex" in notice for notice in recall(store, "cat").notices)
        store.sync.reindex()
        assert recall(store, "When does the vet open?").hits[0].text == "The vet opens at nine."
    db = sqlite3.connect(file)
    assert db.execute("SELECT body, features FROM entries").fetchone() == stored
    ((size,),) = db.execute("SELECT length(pooled) FROM vectors").fetchall()
    assert size == 3 * whole.pooled.size * 4  # a row of zeros between the two
    db.close()
