"""A PostgreSQL server recalls the same entries in the same order as a SQLite file."""

from __future__ import annotations

import random
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.servers import postgres
from tests.support.stores import a_store, postgres_url, write_request

from omoide import Filter, RecallRequest, Scope, clock
from omoide.stores import open_store
from omoide.stores.sql import candidates
from omoide.testing import FrozenClock, HashEmbedder

WORDS = ("tea", "coffee", "Lisbon", "harbour", "moved", "lights", "never", "green", "Maria", "train", "2023")
SESSIONS = (None, "s1", "s2")
TYPES = (None, "fact", "decision", "bug")
NOW = 1_763_000_000_000

FILTERS = (
    Filter(),
    Filter(types=["fact", "decision"]),
    Filter(tags=["x"]),
    Filter(tags_any=["x", "y"], min_confidence=0.5),
    Filter(since=NOW - 50_000, until=NOW - 5_000),
    Filter(include_superseded=True, include_stale=True, include_expired=True),
)
SCOPES = (Scope(agent_id="ada"), Scope(agent_id="ada", session_id="s1"), Scope(), Scope(agent_id="bob"))


def fill(stores: list[Any], seed: int, count: int) -> None:
    """Let the same life happen in each store: entries, changes, threads, superseded and erased ones."""
    for store in stores:
        chance = random.Random(seed)
        with clock.override(FrozenClock(NOW)) as time:
            for at in range(count):
                time.advance(7)
                said = " ".join(chance.choices(WORDS, k=chance.randrange(2, 9)))
                fields: dict[str, Any] = {
                    "agent_id": chance.choice(("ada", "ada", "bob")),
                    "session_id": chance.choice(SESSIONS),
                    "type": chance.choice(TYPES),
                    "tags": chance.sample(("x", "y"), chance.randrange(3)),
                    "confidence": chance.choice((0.3, 0.6, 0.79)),
                    "occurred_at": NOW - chance.randrange(100_000),
                }
                if chance.random() < 0.4:
                    fields["message"] = {"thread": "t", "seq": at, "speaker": chance.choice(("Maria", "Bob"))}
                if chance.random() < 0.1:
                    fields["expires_at"] = NOW - 1
                store.write(write_request(f"{said} {at}", id=f"e{at}", **fields))
            for at in chance.sample(range(count), count // 8):
                store.supersede(f"e{at}", Scope())
            for at in chance.sample(range(count), count // 8):
                store.erase(Scope(), id=f"e{at}")


def answers(store: Any, query: str, limit: int = 10) -> list[list[tuple[str, float]]]:
    """What is found from each scope, through each filter, and with which score."""
    return [
        [
            (hit.entry.id, round(hit.score, 4))
            for hit in store.recall(
                RecallRequest.for_scope(scope, query, limit=limit, filter=filter, at=NOW + 10_000)
            ).hits
        ]
        for scope in SCOPES
        for filter in FILTERS
    ]


@pytest.mark.parametrize("vectors", [False, True], ids=["words", "vectors"])
@pytest.mark.parametrize("held", [candidates.MAX_CACHED_ENTRIES, 5], ids=["shelf", "wide"])
def test_the_same_is_found_as_in_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, held: int, vectors: bool
) -> None:
    """Ids and scores are equal, from every scope and through every filter, in small scopes and wide ones."""
    monkeypatch.setattr(candidates, "MAX_CACHED_ENTRIES", held)
    options: dict[str, Any] = {"embedder": HashEmbedder(64) if vectors else "none"}
    with ExitStack() as stack:
        stores = [stack.enter_context(a_store(kind, tmp_path, **options)) for kind in ("sqlite", "postgres")]
        fill(stores, seed=random.randrange(1 << 30), count=90)
        for query in ("green tea in Lisbon", "what did Maria say in 2023"):
            for _ in range(2):  # the second time from what is held
                assert answers(stores[1], query) == answers(stores[0], query)
            stores[1].write(write_request(f"{query} again", id="last"))
            stores[0].write(write_request(f"{query} again", id="last"))


@settings(max_examples=max(8, settings().max_examples // 4))
@given(
    seed=st.integers(0, 1 << 30), held=st.sampled_from([3, 20_000]), query=st.lists(st.sampled_from(WORDS))
)
def test_whatever_is_kept_the_same_is_found(seed: int, held: int, query: list[str]) -> None:
    """For any life and any question, a server and a file answer the same."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setattr(candidates, "MAX_CACHED_ENTRIES", held)
        stores = [
            stack.enter_context(a_store(kind, Path(folder), embedder=HashEmbedder(64)))
            for kind in ("sqlite", "postgres")
        ]
        fill(stores, seed, count=12)
        said = " ".join(query) or "anything"
        assert answers(stores[1], said, limit=4) == answers(stores[0], said, limit=4)


@pytest.fixture
def indexed_url(tmp_path: Path) -> str:
    """The address of a store in a database of its own, where pgvector may index codes."""
    server = postgres()
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("DROP DATABASE IF EXISTS indexed WITH (FORCE)")
        db.execute("CREATE DATABASE indexed")
    return postgres_url(tmp_path).replace("/postgres?", "/indexed?")


def test_an_index_of_pgvector_finds_nearly_the_same(
    indexed_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the codes are too many to hold, the index proposes what comparing all of them would.

    HNSW is approximate and built by chance: now and then a row cannot be reached, which shifts the scores.
    """
    monkeypatch.setattr(candidates, "MAX_CACHED_ENTRIES", 5)
    queries = ("green tea in Lisbon", "what did Maria say in 2023")
    with open_store(indexed_url, embedder=HashEmbedder(64)) as opened:
        fill([opened.sync], seed=random.randrange(1 << 30), count=120)
        by_memory = [answers(opened.sync, query) for query in queries]
        assert {one.name: one for one in opened.sync.findings()}["pgvector"].state == "note"
    schema = indexed_url.rpartition("schema=")[2]
    with psycopg.connect(indexed_url.partition("?")[0], autocommit=True) as db:
        db.execute("CREATE EXTENSION vector")
        db.execute("ALTER DATABASE indexed SET enable_sort = off")  # so few would be sorted, not looked up
        db.execute(f'CREATE INDEX ON "{schema}".vectors USING hnsw ((code::bit(64)) bit_hamming_ops)')
    monkeypatch.setattr(candidates, "MAX_CODES_IN_MEMORY", 0)
    asked_of: list[int] = []
    ask = candidates.LargeScopeIndex._by_index

    def noted(self: Any, *args: Any) -> Any:
        found = ask(self, *args)
        asked_of.append(len(found))
        return found

    monkeypatch.setattr(candidates.LargeScopeIndex, "_by_index", noted)
    with open_store(indexed_url, embedder=HashEmbedder(64)) as opened:
        assert {one.name: one for one in opened.sync.findings()}["pgvector"].state == "ok"
        by_index = [answers(opened.sync, query) for query in queries]
        pairs = [
            ({id for id, _ in mine}, {id for id, _ in others})
            for ours, exact in zip(by_index, by_memory, strict=True)
            for mine, others in zip(ours, exact, strict=True)
        ]
        assert sum(len(mine & others) for mine, others in pairs) >= 0.9 * sum(len(all) for _, all in pairs)
        opened.sync.write(write_request("Quite another thing.", id="another"))
        assert answers(opened.sync, "Quite another thing")[0][0][0] == "another"
    assert max(asked_of) > 0


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_wide_scope_of_which_nothing_holds_any_more_is_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Once all of it rests on what was replaced, nothing is found, and nothing fails."""
    monkeypatch.setattr(candidates, "MAX_CACHED_ENTRIES", 2)
    with a_store(kind, tmp_path) as store:
        store.write(write_request("Tea is green.", id="premise"))
        for id in ("a", "b"):
            store.write(
                write_request("So is this tea.", id=id, evidence=[{"kind": "entry", "ref": "premise"}])
            )
        assert len(store.recall(RecallRequest(agent_id="ada", query="tea")).entries) == 3
        store.supersede("premise", Scope())
        assert store.recall(RecallRequest(agent_id="ada", query="tea")).entries == ()
