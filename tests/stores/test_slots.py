"""Slots keep one live value whoever writes at the same moment, and cost nothing where no key is given."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.store_process import start
from tests.support.stores import ADA, KINDS, a_store, keep, open_core, url, write_request

from omoide import Entry, Filter, Scope
from omoide.errors import Conflict, OmoideError, Refused
from omoide.stores import Query
from omoide.stores.sql import rows
from omoide.stores.sqlite.connection import SQLiteConnection

SHARED = ("sqlite", "postgres", "redis")
WRITERS = 4
VALUES = 10
BY_KEY = Filter(key="city")


def check_history(store: Any, count: int) -> Entry:
    """Check that of so many values one is live and leads the chain of all others; return it."""
    values = store.list_entries(ADA)
    assert len(values) == count
    live: Entry
    (live,) = (entry for entry in values if entry.superseded_by is None)
    assert [entry.id for entry in store.query(Query(scope=ADA, filter=BY_KEY)).entries] == [live.id]
    successors = {entry.id: entry.superseded_by for entry in values}
    assert len({*successors.values()}) == count  # each superseded one, and none two of them
    assert store.check() == []
    return live


def at_once(*works: Callable[[], Any]) -> list[Any]:
    """The results or errors of works that begin at the same moment."""
    barrier = threading.Barrier(len(works))
    results: list[Any] = [None] * len(works)

    def run(at: int, work: Callable[[], Any]) -> None:
        barrier.wait()
        try:
            results[at] = work()
        except OmoideError as error:
            results[at] = error

    threads = [threading.Thread(target=run, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("kind", KINDS)
def test_threads_leave_one_live_value(kind: str, tmp_path: Path) -> None:
    """Every write succeeds, and each value but the last is superseded by another."""
    with a_store(kind, tmp_path) as store:

        def write(writer: int) -> None:
            for n in range(VALUES):
                keep(store, f"Value {writer} {n}.", id=f"v{writer}-{n}", key="city")

        assert at_once(*(lambda at=at: write(at) for at in range(WRITERS))) == [None] * WRITERS
        check_history(store, WRITERS * VALUES)


@pytest.mark.parametrize("kind", SHARED)
def test_two_handles_leave_one_live_value(kind: str, tmp_path: Path) -> None:
    """Writers that know nothing of each other agree on the value, also while values are restored."""
    with a_store(kind, tmp_path) as one, a_store(kind, tmp_path) as two:

        def write(store: Any, name: str) -> None:
            for n in range(VALUES):
                keep(store, f"Value {name} {n}.", id=f"v{name}-{n}", key="city")
                if n % 3 == 2:
                    store.reinstate(f"v{name}-{n - 1}", ADA)

        assert at_once(lambda: write(one, "a"), lambda: write(two, "b")) == [None, None]
        for store in (one, two):
            live = [entry.id for entry in store.list_entries(ADA) if entry.superseded_by is None]
            assert len(live) == 1
            assert [entry.id for entry in store.query(Query(scope=ADA, filter=BY_KEY)).entries] == live
            assert store.check() == []


@pytest.mark.parametrize("kind", SHARED)
def test_processes_leave_one_live_value(kind: str, tmp_path: Path) -> None:
    """Two processes that write at once lose no value."""
    with a_store(kind, tmp_path) as store:
        keep(store, "First.", id="first", key="city")
        place = str(tmp_path / "memory.db") if kind == "sqlite" else url(kind, tmp_path)
        writers = [start("value", place, name, VALUES) for name in ("a", "b")]
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == b"ready\n"
        for writer in writers:
            writer.communicate(b"go\n")
        assert [writer.returncode for writer in writers] == [0, 0]
        check_history(store, 1 + 2 * VALUES)


@pytest.mark.parametrize("kind", KINDS)
def test_of_writers_that_expect_the_same_value_one_succeeds(kind: str, tmp_path: Path) -> None:
    """The others are told that it is another one by now, and leave no trace."""
    with a_store(kind, tmp_path) as store:
        for expected in (0, 1):
            works = [
                lambda at=at, rev=expected: keep(
                    store, f"Value {rev} {at}.", id=f"v{rev}-{at}", key="city", expected_rev=rev
                )
                for at in range(WRITERS)
            ]
            results = at_once(*works)
            assert sum(isinstance(result, Entry) for result in results) == 1
            assert sum(isinstance(result, Conflict) for result in results) == WRITERS - 1
        check_history(store, 2)


def test_a_write_without_a_key_looks_at_no_slot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a key it is one statement that the index of slots answers; without one there is none."""
    asked: list[str] = []
    plain = SQLiteConnection.execute

    def execute(self: SQLiteConnection, statement: str, *args: Any) -> Any:
        if "key" in statement and statement.lstrip().startswith("SELECT"):
            asked.append(statement)
        return plain(self, statement, *args)

    with a_store("sqlite", tmp_path) as store:
        keep(store, id="plain")
        monkeypatch.setattr(SQLiteConnection, "execute", execute)
        keep(store, "No key.", id="other")
        assert asked == []
        keep(store, "Berlin.", id="a", key="city")
        assert len(asked) == 1
        with store._db.read_transaction() as db:
            plan = plain(db, f"EXPLAIN QUERY PLAN {rows._FIND_SLOT}", (1, "city", "", "", "")).fetchall()
            assert "by_slot" in plan[0][3]
        monkeypatch.undo()
        explained: list[str] = []

        def explain(self: SQLiteConnection, statement: str, *args: Any) -> Any:
            if "ORDER BY time DESC" in statement:
                explained.extend(row[3] for row in plain(self, f"EXPLAIN QUERY PLAN {statement}", *args))
            return plain(self, statement, *args)

        monkeypatch.setattr(SQLiteConnection, "execute", explain)
        store.query(Query(scope=ADA, filter=BY_KEY))
        assert any("by_key" in line or "by_slot" in line for line in explained)


@pytest.mark.parametrize("kind", SHARED)
def test_the_store_itself_admits_one_value(kind: str, tmp_path: Path) -> None:
    """What is held in two slots, or in none, is found by a check."""
    with a_store(kind, tmp_path) as store:
        keep(store, "Berlin.", id="a", key="city")
        keep(store, "Paris.", id="b", key="city")
        if kind == "redis":
            keys = store._transactions.keys("default")
            store._server.execute("DEL", keys("slots"))
            assert any("key" in problem for problem in store.check())
        else:
            with pytest.raises(OmoideError), store._db.write_transaction() as db:
                db.execute("UPDATE entries SET live = 1 WHERE id = ?", ("a",))


@pytest.mark.parametrize("kind", KINDS)
def test_a_guard_sees_the_key(kind: str, tmp_path: Path) -> None:
    """A secret that stands in a key is refused like one in the content."""
    from omoide.stores import refuse_secrets

    with a_store(kind, tmp_path, guard=refuse_secrets()) as store:
        with pytest.raises(Refused, match="key"):
            store.write(write_request("x", key="password: hunter2!x"))
        assert store.list_entries(Scope()) == []


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_slot_survives_a_reopened_store(kind: str, tmp_path: Path) -> None:
    """What fills it is kept with the entries."""
    with a_store(kind, tmp_path) as store:
        keep(store, "Berlin.", id="a", key="city")
    with a_store(kind, tmp_path) as store:
        receipt = store.write(write_request("Paris.", id="b", key="city"))
        assert receipt.metadata["superseded"] == "a"


def test_an_erased_user_leaves_nothing_in_the_file(tmp_path: Path) -> None:
    """Erasing by user takes entries, versions and documents of that user, and of no other."""
    store = open_core("sqlite", tmp_path)
    for user in ("ann", "bob"):
        keep(store, f"Lives with {user}son.", id=f"{user}-1", user_id=user, key="home")
        keep(store, f"Lives near {user}son.", id=f"{user}-2", user_id=user, key="home")
    receipt = store.erase(Scope(user_id="ann"))
    assert sorted(receipt.ids) == ["ann-1", "ann-2"]
    assert [entry.id for entry in store.list_entries(Scope())] == ["bob-1", "bob-2"]
    store.close()
    assert b"annson" not in (tmp_path / "memory.db").read_bytes()
