"""A memory is stale exactly when something it depends on is out."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.conftest import FEW, SOAK
from tests.support.staleness import naively_stale
from tests.support.store_process import OPTIONS, start
from tests.support.stores import ADA, KINDS, a_store, keep, recall_ids, write_request

from omoide import Scope, clock
from omoide.errors import Invalid, OmoideError
from omoide.stores import Link
from omoide.stores.sql import candidates, rows
from omoide.stores.state import StateDependencyIndex
from omoide.testing import FrozenClock, HashEmbedder

IDS = tuple("abcdefgh")
BOTH = pytest.mark.parametrize("kind", KINDS)
LATER = 1 << 40
CHAINS, DEPTH = (40, 50) if SOAK else (15, 30)
LONG = 3_000 if SOAK else 1_100
"""More levels than Python lets functions call one another."""

ids = st.sampled_from(IDS)
Step = tuple[str, str, list[str]]
steps: st.SearchStrategy[Step] = st.one_of(
    st.tuples(st.just("write"), ids, st.lists(ids, max_size=3, unique=True)),
    st.tuples(st.just("replace"), ids, st.lists(ids, max_size=2, unique=True)),
    st.tuples(st.sampled_from(["supersede", "reinstate", "erase"]), ids, st.just([])),
    st.tuples(st.sampled_from(["link", "unlink"]), ids, st.lists(ids, min_size=1, max_size=1)),
)


def evidence_on(*premises: str) -> list[dict[str, str]]:
    return [{"kind": "entry", "ref": premise} for premise in premises]


def derive(store: Any, id: str, *premises: str, **fields: Any) -> Any:
    return keep(store, f"Tea of {id}.", id=id, evidence=evidence_on(*premises), **fields)


def stale(store: Any) -> set[str]:
    return {entry.id for entry in store.list_entries(Scope()) if entry.stale}


def expected_stale(store: Any) -> set[str]:
    whole = store.change_feed("default", limit=1 << 40)
    here = {entry.id for entry in whole.entries}
    return naively_stale(whole.entries, whole.links, {*whole.erased_ids} - here)


def act(store: Any, step: Step) -> None:
    verb, id, others = step
    if verb == "write":
        derive(store, id, *others)
    elif verb == "replace":
        derive(store, f"{id}+", *others, supersedes=id)
    elif verb == "erase":
        store.erase(ADA, id=id)
    elif others:
        link = Link(source=id, relation="invalidated_by", target=others[0], created_at=0)
        getattr(store, verb)(link, ADA)
    else:
        getattr(store, verb)(id, ADA)


@FEW
@given(life=st.lists(steps, max_size=30))
def test_stale_is_what_rests_on_something_that_is_out(life: list[Step]) -> None:
    """After every step of any life, in both stores; and later for every moment that is asked about."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        stores = [stack.enter_context(a_store(kind, Path(folder))) for kind in KINDS]
        for store in stores:
            with clock.override(FrozenClock(LATER)):
                store.write_many([write_request(f"Tea of {id}.", id=id) for id in IDS])
        seen: dict[int, set[str]] = {}
        erased: set[str] = set()
        for at, step in enumerate(life, LATER + 1):
            for store in stores:
                with clock.override(FrozenClock(at)), suppress(OmoideError):
                    act(store, step)
            seen[at] = expected_stale(stores[0])
            erased |= {step[1]} if step[0] == "erase" else set()
            assert [stale(store) for store in stores] == [seen[at]] * len(stores), step
        assert stores[1].check() == []
        for store in stores:
            for at, marked in seen.items():
                for id in {*IDS} - erased:
                    assert store.get(id, ADA, as_of=at).stale == (id in marked)
            for entry in store.list_entries(Scope()):
                assert store.history(entry.id, ADA)[-1].entry == entry


# What it costs


class Looks:
    """Counts the entries that are looked at to find out what is stale."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for ledger in (StateDependencyIndex, rows.SQLDependencyIndex):
            for name in ("statuses", "dependents", "premises"):
                monkeypatch.setattr(ledger, name, self.counting(getattr(ledger, name)))

    def counting(self, look: Any) -> Any:
        def counted(ledger: Any, ids: Collection[str]) -> Any:
            found = look(ledger, ids)
            found = [*found] if isinstance(found, Iterator) else found
            self.count += len(found)
            return found

        return counted

    def of(self, act: Any, *args: Any) -> int:
        before = self.count
        act(*args)
        return self.count - before


def chains(count: int, depth: int) -> list[Any]:
    """Roots, and below each of them memories that rest on the one above."""
    return [
        write_request("Tea.", id=f"{at}-{level}", evidence=evidence_on(f"{at}-{level - 1}") if level else [])
        for at in range(count)
        for level in range(depth)
    ]


@BOTH
def test_only_what_is_affected_is_looked_at(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Going out and coming back cost a few looks for each entry affected, however many others there are."""
    with a_store(kind, tmp_path) as store:
        store.write_many([*chains(CHAINS, DEPTH), write_request(id="hub")])
        looks = Looks(monkeypatch)
        for _ in range(2):
            assert looks.of(store.supersede, "0-0", ADA) <= 2 * DEPTH
            assert len(stale(store)) == DEPTH - 1
            assert looks.of(store.supersede, "0-10", ADA) <= 4, "nothing changed for what rests on it"
            assert looks.of(store.reinstate, "0-10", ADA) <= 5 * DEPTH, "it is stale still"
            assert looks.of(store.reinstate, "0-0", ADA) <= 5 * DEPTH
            assert stale(store) == set()
        store.write_many(
            [write_request("Tea.", id=f"{at}-0", evidence=evidence_on("hub")) for at in range(CHAINS)]
        )
        small = looks.of(store.supersede, "1-0", ADA) + looks.of(store.reinstate, "1-0", ADA)
        large = looks.of(store.supersede, "hub", ADA) + looks.of(store.reinstate, "hub", ADA)
        assert large <= 1.2 * CHAINS * DEPTH / (DEPTH - 1) * small
        assert looks.of(keep, store, "Cocoa.") <= 1
        store.link(Link(source="2-1", relation="invalidated_by", target="hub"), ADA)
        there_and_back = looks.of(store.supersede, "2-0", ADA) + looks.of(store.reinstate, "2-0", ADA)
        assert there_and_back <= 20, "what is invalidated stays so"


@BOTH
def test_a_chain_may_be_long(kind: str, tmp_path: Path) -> None:
    """More than a thousand memories that rest on one another are no deeper than two."""
    with a_store(kind, tmp_path) as store:
        store.write_many(chains(1, LONG))
        store.supersede("0-0", ADA)
        assert len(stale(store)) == LONG - 1
        store.reinstate("0-0", ADA)
        assert stale(store) == set()


# As a whole, and for everybody


CAUSES: dict[str, Callable[[Any], object]] = {
    "supersede": lambda store: store.supersede("a", ADA),
    "link": lambda store: store.link(Link(source="a", relation="invalidated_by", target="b"), ADA),
    "erase": lambda store: store.erase(ADA, id="a"),
    "write": lambda store: derive(store, "n", superseded_by="a"),
    "take": lambda store: store.import_entries([write_request(id="n", superseded_by="a").entry]),
}


@pytest.mark.parametrize("cause", CAUSES)
def test_what_follows_happens_together_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cause: str
) -> None:
    """When it cannot be carried through, the cause has not happened either."""

    def fail(*_: object) -> None:
        raise Invalid("test", "stops here", "nothing")

    with a_store("sqlite", tmp_path) as store:
        derive(store, "a")
        derive(store, "b", "a", "n")
        before = store.list_entries(ADA), store.changes("default")
        with monkeypatch.context() as patch:
            patch.setattr(rows.SQLDependencyIndex, "save_statuses", fail)
            with pytest.raises(Invalid, match="stops here"):
                CAUSES[cause](store)
        assert (store.list_entries(ADA), store.changes("default")) == before
        assert store.check() == []
        CAUSES[cause](store)
        assert stale(store) - {"a"} == {"b"}


@pytest.mark.parametrize("size", [1, 20_000], ids=["wide", "shelf"])
def test_what_another_process_forgot_takes_its_dependents_out_of_recall(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    """Also where they were held in memory here."""
    monkeypatch.setattr(candidates, "MAX_CACHED_ENTRIES", size)
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        derive(store, "a")
        derive(store, "b", "a")
        derive(store, "c", "b")
        derive(store, "d")
        assert sorted(recall_ids(store, "tea")) == ["a", "b", "c", "d"]
        with start("forget", tmp_path / "memory.db", "a") as process:
            assert process.wait(60) == 0
        assert recall_ids(store, "tea") == ["d"]
        store.reinstate("a", ADA)
        assert sorted(recall_ids(store, "tea")) == ["a", "b", "c", "d"]


# Beside it


@BOTH
def test_a_sessions_limit_does_not_count_what_is_stale(kind: str, tmp_path: Path) -> None:
    """As it does not count what is forgotten."""
    with a_store(kind, tmp_path, session_limit=2) as store:
        derive(store, "a")
        derive(store, "b", "a", session_id="s")
        derive(store, "c", session_id="s")
        with pytest.raises(Invalid, match="would hold 3"):
            derive(store, "d", session_id="s")
        with pytest.raises(Invalid, match="would hold 3"):
            store.import_entries([write_request(id="d", session_id="s").entry])
        store.supersede("a", ADA)
        derive(store, "d", session_id="s")
        assert len(store.list_entries(Scope(session_id="s"))) == 3


@BOTH
def test_a_repeated_request_says_what_is_stale_now(kind: str, tmp_path: Path) -> None:
    """The receipt is the first one, but for that; and a caller's word on it makes no other request."""
    with a_store(kind, tmp_path) as store:
        derive(store, "a")
        request = write_request("Tea.", id="b", evidence=evidence_on("a"), idempotency_key="k", created_at=5)
        first = store.write(request)
        store.supersede("a", ADA)
        again = store.write(request.replace(entry=request.entry.replace(stale=True)))
        assert (first.entry.stale, again.entry.stale) == (False, True)
        assert again.entry.replace(stale=False) == first.entry
        assert again.outcome == first.outcome
        assert store.list_entries(ADA)[1].rev == 1
        keep(store, "Other tea.", id="b", evidence=evidence_on("a"))
        assert store.write(request).entry == again.entry


def test_being_stale_is_not_written_into_an_entry(tmp_path: Path) -> None:
    """It is known from the row alone, so that no version has to be written when it changes."""
    with a_store("sqlite", tmp_path) as store:
        derive(store, "a")
        derive(store, "b", "a")
        store.supersede("a", ADA)
        derive(store, "b", "a", tags=["new"])
    db = sqlite3.connect(tmp_path / "memory.db")
    bodies = db.execute("SELECT body FROM entries UNION ALL SELECT body FROM versions").fetchall()
    db.close()
    assert len(bodies) == 4
    assert not any(b"stale" in bytes(body) for (body,) in bodies)


def test_new_terms_and_vectors_leave_what_is_stale_as_it_is(tmp_path: Path) -> None:
    """And what comes back afterwards is found by them."""
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        derive(store, "a")
        derive(store, "b", "a")
        store.supersede("a", ADA)
        store.reindex(HashEmbedder(16))
        assert (stale(store), store.check()) == ({"b"}, [])
        store.reinstate("a", ADA)
        assert sorted(recall_ids(store, "tea")) == ["a", "b"]
        assert store.check() == []


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET live = 2 WHERE id = 'd'",
        "UPDATE entries SET live = 1 WHERE id = 'b'",
        "UPDATE supports SET present = 0 WHERE id = 'a'",
        "UPDATE entries SET live = 1 WHERE id = 'a'",
    ],
)
def test_a_check_finds_what_is_stale_without_reason(tmp_path: Path, damage: str) -> None:
    """And what is not although it should be."""
    with a_store("sqlite", tmp_path) as store:
        derive(store, "a")
        derive(store, "b", "a")
        derive(store, "d")
        store.supersede("a", ADA)
        assert store.check() == []
    db = sqlite3.connect(tmp_path / "memory.db")
    db.execute(damage)
    db.commit()
    db.close()
    with a_store("sqlite", tmp_path) as store:
        assert store.check() != []
