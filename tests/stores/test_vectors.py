"""An entry may come with a vector of its own instead of the embedder's."""

from __future__ import annotations

import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import FEW
from tests.support.stores import ADA, KINDS, a_store, keep, open_core, write_request

from omoide import RecallRequest, Scope
from omoide.errors import Conflict, Invalid
from omoide.stores.postgres.store import PostgresStore
from omoide.stores.redis.store import RedisStore
from omoide.testing import HashEmbedder

EMBEDDER = HashEmbedder(64)
WITH = {"embedder": EMBEDDER}


def vector_of(text: str) -> list[float]:
    """The vector that the store's embedder would give a text."""
    return [float(number) for number in EMBEDDER.embed([text])[0].pooled]


def nearest(store: Any, text: str) -> str:
    """The entry that only its vector can lead to."""
    request = RecallRequest(agent_id="ada", query=text, limit=1)
    found = store.recall(request)
    return str(found.entries[0].id)


def fill(store: Any) -> None:
    """Entries that say nothing of harbours; one is told to be about them."""
    store.write_with_vector(write_request("Note seven.", id="given"), vector_of("harbour lights at night"))
    for number in range(5):
        keep(store, f"Kettle and cups {number}.", id=f"other{number}")


@pytest.mark.parametrize("kind", KINDS)
def test_an_entry_is_found_by_the_vector_that_came_with_it(kind: str, tmp_path: Path) -> None:
    """Nothing in its words is asked for; without the vector, another entry leads."""
    with a_store(kind, tmp_path, **WITH) as store:
        fill(store)
        assert nearest(store, "harbour lights at night") == "given"
        assert store.stats(ADA).without_vectors == 0
        assert store.check() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_vector_stays_as_long_as_the_content(kind: str, tmp_path: Path) -> None:
    """Another revision of the same words keeps it, other words lose it, and reindexing leaves it alone."""
    with a_store(kind, tmp_path, **WITH) as store:
        fill(store)
        assert store.write(write_request("Note seven.", id="given", tags=["x"])).rev == 2
        assert nearest(store, "harbour lights at night") == "given"
        store.supersede("given", ADA)
        store.reinstate("given", ADA)
        store.reindex()
        store.reindex(HashEmbedder(64))
        assert nearest(store, "harbour lights at night") == "given"
        keep(store, "Note eight.", id="given", tags=["x"])
        assert vectors(store)["given"] == pytest.approx(vector_of("Note eight."))
        assert store.check() == []


@pytest.mark.parametrize("kind", KINDS)
def test_another_vector_for_the_same_content_is_another_revision(kind: str, tmp_path: Path) -> None:
    """It counts at once; the same vector again changes nothing."""
    with a_store(kind, tmp_path, **WITH) as store:
        fill(store)
        same = vector_of("harbour lights at night")
        again = store.write_with_vector(write_request("Note seven.", id="given"), same)
        assert (again.outcome, again.rev) == ("unchanged", 1)
        other = store.write_with_vector(write_request("Note seven.", id="given"), vector_of("mountain snow"))
        assert (other.outcome, other.rev) == ("stored", 2)
        assert nearest(store, "mountain snow") == "given"
        said = "Kettle and cups 1."
        own = store.write_with_vector(write_request(said, id="other1"), vector_of(said))
        assert (own.outcome, own.rev) == ("stored", 2)  # from now on it is the caller's


@pytest.mark.parametrize("kind", KINDS)
def test_another_embedder_knows_nothing_of_it(kind: str, tmp_path: Path) -> None:
    """Vectors of two models are never compared: reindexing with another gives every entry a new one."""
    with a_store(kind, tmp_path, **WITH) as store:
        fill(store)
        store.reindex(HashEmbedder(32))
        assert all(len(vector) == 32 for vector in vectors(store).values())
        assert store.check() == []


def test_the_vector_outlives_the_process_and_other_terms(tmp_path: Path) -> None:
    """A file that is opened again has it, also after the terms of all entries were made anew."""
    with a_store("sqlite", tmp_path, **WITH) as store:
        fill(store)
    db = sqlite3.connect(tmp_path / "memory.db")
    db.execute("UPDATE entries SET features = x'0000000000000000'")
    db.execute("DELETE FROM postings")
    db.execute("INSERT OR REPLACE INTO settings VALUES ('features', 'another')")
    db.commit()
    db.close()
    with a_store("sqlite", tmp_path, **WITH) as store:
        store.reindex()
        assert nearest(store, "harbour lights at night") == "given"
        assert vectors(store)["given"] == pytest.approx(vector_of("harbour lights at night"))
        assert store.check() == []


def test_two_that_have_a_file_open_see_the_same_vector(tmp_path: Path) -> None:
    """What one held in memory is not what it goes by once the other gave a vector."""
    with a_store("sqlite", tmp_path, **WITH) as one, a_store("sqlite", tmp_path, **WITH) as two:
        fill(one)
        assert nearest(two, "harbour lights at night") == "given"
        one.write_with_vector(write_request("Note seven.", id="given"), vector_of("mountain snow"))
        assert nearest(two, "mountain snow") == "given"


@pytest.mark.parametrize("kind", KINDS)
def test_erasing_removes_the_vector(kind: str, tmp_path: Path) -> None:
    """The next entry under the id has the vector of its own words."""
    with a_store(kind, tmp_path, **WITH) as store:
        fill(store)
        store.erase(ADA, id="given")
        keep(store, "Note seven.", id="given")
        assert vectors(store)["given"] == pytest.approx(vector_of("Note seven."))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("vector", "said"),
    [
        ([1.0] * 63, "has 63 numbers, and those of hash-64 64"),
        ([0.0] * 64, "all zeros"),
        ([float("inf")] * 64, "no list of finite numbers"),
        (["a"] * 64, "no list of finite numbers"),
        ([[1.0] * 64], "no list of finite numbers"),
        ("harbour", "no list of finite numbers"),
        (None, "no list of finite numbers"),
        (1.0, "no list of finite numbers"),
    ],
)
def test_a_vector_that_cannot_be_compared_is_refused(
    kind: str, tmp_path: Path, vector: Any, said: str
) -> None:
    """The error says what is wrong, both sizes where it is the size, and nothing is kept."""
    with a_store(kind, tmp_path, **WITH) as store:
        with pytest.raises(Invalid, match=said):
            store.write_with_vector(write_request(id="a"), vector)
        assert store.list_entries(ADA) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_without_an_embedder_takes_no_vector(kind: str, tmp_path: Path) -> None:
    """It has nothing to compare it with, and says so."""
    with a_store(kind, tmp_path) as store:
        with pytest.raises(Invalid, match="the store has no embedder"):
            store.write_with_vector(write_request(id="a"), [1.0] * 64)
        assert store.list_entries(ADA) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_vector_of_what_the_guard_took_out_is_refused(kind: str, tmp_path: Path) -> None:
    """What must not be kept is not kept in the form of numbers either."""
    with a_store(kind, tmp_path, guard=lambda entry: entry.replace(content="[hidden]"), **WITH) as store:
        with pytest.raises(Invalid, match="guard"):
            store.write_with_vector(write_request("My card is 4000.", id="a"), vector_of("card 4000"))
        assert store.list_entries(ADA) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_write_that_fails_leaves_the_vector_as_it_was(kind: str, tmp_path: Path) -> None:
    """Entry and vector change together, or not at all."""
    with a_store(kind, tmp_path, **WITH) as store:
        fill(store)
        with pytest.raises(Conflict):
            store.write_with_vector(
                write_request("Note seven.", id="given", expected_rev=9), vector_of("snow")
            )
        assert vectors(store)["given"] == pytest.approx(vector_of("harbour lights at night"))


def test_a_store_whose_file_went_to_another_embedder_takes_no_vector(tmp_path: Path) -> None:
    """It would be kept beside vectors that it cannot be compared with."""
    with a_store("sqlite", tmp_path, **WITH) as one:
        fill(one)
        with a_store("sqlite", tmp_path, **WITH) as two:
            two.reindex(HashEmbedder(32))
        with pytest.raises(Invalid, match="reindex the store"):
            one.write_with_vector(write_request(id="new"), [1.0] * 64)
        assert "new" not in {entry.id for entry in one.list_entries(ADA)}


@FEW
@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.sampled_from(["One.", "Two."]), st.integers(0, 2)), max_size=12
    )
)
def test_both_stores_keep_the_same_vectors(steps: list[tuple[str, str, int]]) -> None:
    """Whatever is written with and without vectors, a file holds what the reference holds."""
    with tempfile.TemporaryDirectory() as folder:
        stores = [open_core(kind, Path(folder), **WITH) for kind in KINDS]
        try:
            for store in stores:
                for id, content, which in steps:
                    if which:
                        store.write_with_vector(write_request(content, id=id), vector_of(f"topic {which}"))
                    else:
                        store.write(write_request(content, id=id, tags=["plain"]))
                store.reindex()
            found = [vectors(store) for store in stores]
            revisions = [[(entry.id, entry.rev) for entry in store.list_entries(ADA)] for store in stores]
            for others, told in zip(found[1:], revisions[1:], strict=True):
                assert (found[0].keys(), revisions[0]) == (others.keys(), told)
                for id, vector in found[0].items():
                    assert vector == pytest.approx(others[id])
        finally:
            for store in stores:
                store.close()


def vectors(store: Any) -> dict[str, list[float]]:
    """The vector that is kept of each entry."""
    if hasattr(store, "path"):
        db = sqlite3.connect(store.path)
        joined = "SELECT e.id, v.pooled FROM entries e JOIN vectors v ON v.key / 8 = e.no"
        found = db.execute(joined).fetchall()
        db.close()
    elif isinstance(store, PostgresStore):
        with store._db.read_transaction() as rows:
            joined = "SELECT e.id, v.pooled FROM entries e JOIN vectors v ON v.key / 8 = e.no"
            found = rows.execute(joined).fetchall()
    elif isinstance(store, RedisStore):
        found = store._transactions.run_read(
            lambda state: [
                (one.entry.id, one.index_data.pooled)
                for one in state.entries_in(Scope())
                if one.index_data.pooled
            ]
        )
    else:
        found = [(id, one.index_data.pooled) for (_, id), one in store._state.entries.items()]
    return {id: np.frombuffer(pooled, "<f4").tolist() for id, pooled in found}
