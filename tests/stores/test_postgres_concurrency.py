"""Threads and processes share a store on a PostgreSQL server, and leave nothing behind."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import anyio
import psycopg
import pytest
from tests.support.postgres_process import open_core, start
from tests.support.servers import postgres
from tests.support.stores import ADA, keep, list_ids, recall_ids

from omoide import Filter, Scope
from omoide.errors import Conflict, NotFound
from omoide.stores import Query
from omoide.stores.postgres.connection import PostgresSession
from omoide.testing import eventually

OPERATIONS = 1_000
THREADS = 16


def connections(name: str) -> list[tuple[str, ...]]:
    """Who is connected under a name, and in which state."""
    with psycopg.connect(postgres().url) as db:
        return db.execute(
            "SELECT state, query FROM pg_stat_activity WHERE application_name = %s", (name,)
        ).fetchall()


@pytest.fixture
def name() -> str:
    return f"t{os.getpid()}-{random.randrange(1 << 40)}"


@pytest.fixture
def url(name: str) -> str:
    return f"{postgres().fresh_url()}&application_name={name}"


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    store = open_core(url)
    yield store
    store.close()


def act(store: Any, n: int) -> None:
    """One of the things that a program does, some of which are refused."""
    id = f"e{n % 40}"
    try:
        match n % 9:
            case 0 | 1 | 2:
                keep(store, f"Tea {n}.", id=id)
            case 3:
                recall_ids(store, "tea")
            case 4:
                store.get("nowhere", ADA)
            case 5:
                store.query(Query(scope=ADA, filter=Filter(types=["fact"])))
            case 6:
                keep(store, "No.", id=id, expected_rev=99)
            case 7:
                store.record_access([id], ADA)
            case _:
                store.erase(ADA, id=id)
    except (Conflict, NotFound):
        pass


def test_nothing_is_left_after_many_operations(store: Any, name: str) -> None:
    """A thousand of them by one thread use one connection, and leave it out of any transaction."""
    for n in range(OPERATIONS):
        act(store, n)
        if n % 100 == 99:
            found = connections(name)
            assert len(found) == 1
            assert {state for state, *_ in found} == {"idle"}
    store.close()
    anyio.run(partial(eventually, lambda: connections(name) == []))


def test_sixteen_threads_share_a_store(store: Any, name: str) -> None:
    """Of writes that expect the same revision one wins; there are no more connections than the pool has."""
    keep(store, "0", id="c")
    most = 0

    def raise_by_one(_: int) -> int:
        nonlocal most
        while True:
            seen = store.get("c", ADA)
            try:
                return keep(store, str(int(seen.content) + 1), id="c", expected_rev=seen.rev).rev
            except Conflict:
                most = max(most, len(connections(name)))

    with ThreadPoolExecutor(THREADS) as pool:
        revs = sorted(pool.map(raise_by_one, range(4 * THREADS)))
    assert revs == [*range(2, 4 * THREADS + 2)]
    assert 0 < most <= THREADS
    assert {state for state, *_ in connections(name)} == {"idle"}
    store.close()
    anyio.run(partial(eventually, lambda: connections(name) == []))


def test_what_is_lent_when_a_store_is_closed_is_closed_when_it_comes_back(store: Any, name: str) -> None:
    """No connection outlives its store for longer than the transaction it is in."""
    with store._db.read_transaction():
        store.close()
        assert len(connections(name)) == 1
    anyio.run(partial(eventually, lambda: connections(name) == []))


def test_a_forked_process_uses_connections_of_its_own(url: str) -> None:
    """Both sides of a fork read and write, and the end of the one leaves the other's alone."""
    process = start("fork", url)
    process.communicate(timeout=60)
    assert process.returncode == 0
    store = open_core(url)
    assert sorted(list_ids(store, Scope())) == ["after", "before", "child", "parent"]
    assert store.check() == []
    store.close()


def test_a_child_closes_inherited_sockets_without_a_word_to_the_server(store: Any, name: str) -> None:
    """Its end ends no session of the parent, not even one that is inside a transaction."""
    keep(store, "Tea.", id="a")
    with store._db.write_transaction() as db:
        (session,) = db.execute("SELECT pg_backend_pid()").fetchone()
        child = os.fork()
        if child == 0:
            socket = os.readlink(f"/proc/self/fd/{db.connection.fileno()}")
            db.connection.close()
            os._exit(0 if socket == os.devnull else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert db.execute("SELECT pg_backend_pid()").fetchone() == (session,)
    keep(store, "Tea.", id="b")
    assert sorted(list_ids(store)) == ["a", "b"]


def test_uses_are_noted_while_another_erases_what_was_used(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures that one store writes down do not wait in a circle with an erasure by another."""
    using, erasing = open_core(url, timeout=20), open_core(url, timeout=20)
    used = Scope(namespace="used")
    keep(using, "Tea.", id="e", namespace="used")
    using.record_access(["e"], used)
    keep(using, "Tea.", id="m", namespace="mine")  # takes the figures with it
    using.record_access(["e"], used)
    execute = PostgresSession.execute

    def slowly(self: PostgresSession, statement: str, parameters: Any = (), /) -> Any:
        if statement.startswith("DELETE FROM entries"):
            monkeypatch.undo()
            self.execute("SELECT 1").fetchone()  # all before it is done by now
            noting = pool.submit(keep, using, "Tea.", id="n", namespace="mine")
            while not noting.done() and not waiting():
                pass
            pending.append(noting)
        return execute(self, statement, parameters)

    pending: list[Any] = []
    monkeypatch.setattr(PostgresSession, "execute", slowly)
    with ThreadPoolExecutor(1) as pool:
        try:
            erasing.erase(used, id="e")
            assert pending[0].result(30).id == "n"
        finally:
            for store in (using, erasing):
                store.close()


def waiting() -> bool:
    """Whether anybody waits for a row that another has changed."""
    with psycopg.connect(postgres().url) as db:
        found = db.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'transactionid'")
        return found.fetchone() is not None


def test_a_store_that_was_made_anew_beneath_does_not_mix_owners_up(url: str) -> None:
    """Tables that were dropped and made again, as a restore does, number agents otherwise than before."""
    mine, theirs = open_core(url), None
    keep(mine, "Tea.", id="a", agent_id="ada")
    assert recall_ids(mine, "tea") == ["a"]
    try:
        with psycopg.connect(postgres().url, autocommit=True) as db:
            db.execute(f"DROP SCHEMA {mine._db.schema} CASCADE")
        theirs = open_core(url)
        keep(theirs, "Water.", id="w", agent_id="eve")
        keep(mine, "A secret of Ada's.", id="s", agent_id="ada")
        assert recall_ids(theirs, "secret", agent_id="eve") == ["w"]
        assert list_ids(theirs, Scope(agent_id="ada")) == ["s"]
        assert theirs.check() == []
    finally:
        for store in (mine, theirs):
            if store is not None:
                store.close()
