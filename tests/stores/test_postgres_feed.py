"""The feed of a PostgreSQL store has all changes, once and in order."""

from __future__ import annotations

import json
import os
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
from tests.support.postgres_process import open_core, start
from tests.support.servers import postgres
from tests.support.stores import keep, note, write_request

from omoide.stores import Change
from omoide.stores.sql import rows
from omoide.stores.sql.rows import entries_lock

PROCESSES, THREADS = map(int, os.environ.get("OMOIDE_WORKERS", "2x2").split("x"))
WRITES = 60 * max(1, int(os.environ.get("OMOIDE_EXAMPLES", "30")) // 30)


@pytest.fixture
def url() -> str:
    return postgres().fresh_url()


@pytest.fixture
def store(url: str) -> Iterator[Any]:
    store = open_core(url)
    yield store
    store.close()


class Follower:
    """Reads a namespace again and again, and keeps the last number it has seen."""

    def __init__(self, store: Any, namespace: str) -> None:
        self._store = store
        self._namespace = namespace
        self._over = threading.Event()
        self.seen: list[Change] = []
        self._thread = threading.Thread(target=self._follow)

    def look(self) -> bool:
        """Read what is new; whether there was anything."""
        after = self.seen[-1].seq if self.seen else 0
        new = self._store.changes(self._namespace, after=after, limit=7)
        self.seen += new
        return bool(new)

    def _follow(self) -> None:
        while not self._over.is_set():
            self.look()

    def __enter__(self) -> Follower:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._thread.join()


@contextmanager
def hold_transaction(store: Any, namespace: str, id: str) -> Iterator[threading.Event]:
    """A transaction that has its number already, and is committed at the end of the block."""
    entered, done = threading.Event(), threading.Event()

    def write() -> None:
        with store._db.write_transaction(entries_lock(namespace)) as db:
            rows.log_change(db, note(id=id, namespace=namespace), 0, "write", 1)
            rows.last_seq(db)  # waits for the answer, so that the number is taken
            entered.set()
            assert done.wait(60)

    with ThreadPoolExecutor(1) as pool:
        writing = pool.submit(write)
        assert entered.wait(60)
        try:
            yield done
        finally:
            done.set()
        writing.result(60)


def count_lock_waiters(store: Any) -> int:
    with store._db.read_transaction() as db:
        row = db.execute("SELECT count(*) FROM pg_catalog.pg_locks WHERE locktype='advisory' AND NOT granted")
        return int(row.fetchone()[0])


def test_a_commit_that_comes_late_is_seen_by_who_has_seen_later_numbers(store: Any, url: str) -> None:
    """Whoever holds a number back holds back the later ones of its namespace, and of no other."""
    other = open_core(url)
    one, two = Follower(other, "one"), Follower(other, "two")
    with ThreadPoolExecutor(2) as pool:
        with hold_transaction(store, "one", "late"):
            kept = keep(other, "Tea.", id="beside", namespace="two")  # nobody there waits
            two.look()
            assert [change.id for change in two.seen] == [kept.id]
            waiting = pool.submit(keep, store, "Tea.", id="next", namespace="one")
            while not count_lock_waiters(other):
                assert not waiting.done(), "a later number of the namespace was committed before"
            one.look()
            assert one.seen == []
        waiting.result(60)
    one.look()
    assert [change.id for change in one.seen] == ["late", "next"]
    assert one.seen[0].seq < two.seen[0].seq < one.seen[1].seq
    two.look()
    assert len(two.seen) == 1
    other.close()


def test_those_who_wait_for_one_another_are_all_seen(store: Any, url: str) -> None:
    """Many writers of two namespaces, some of both at once and some that hold on: nothing is missed."""
    follower = open_core(url)
    with Follower(follower, "one") as one, Follower(follower, "two") as two:
        processes = [start("spread", url, f"p{at}", THREADS, WRITES) for at in range(PROCESSES)]
        try:
            for n in range(WRITES):
                with hold_transaction(store, ("one", "two")[n % 2], f"late-{n}"):
                    while not count_lock_waiters(store) and any(one.poll() is None for one in processes):
                        pass
            said = [json.loads(process.communicate(timeout=100)[0]) for process in processes]
        finally:
            for process in processes:
                process.kill()
                process.wait()
    kept = Counter((space, id) for report in said for space, id in report)
    for n in range(WRITES):
        kept[("one", "two")[n % 2], f"late-{n}"] += 1
    for name, seen in (("one", one), ("two", two)):
        while seen.look():
            pass
        numbers = [change.seq for change in seen.seen]
        assert numbers == sorted({*numbers})
        assert Counter(change.id for change in seen.seen) == Counter(
            id for space, id in kept.elements() if space == name
        )
        assert [*seen.seen] == store.changes(name, limit=1 << 30)
    follower.close()


def test_batches_of_several_namespaces_do_not_wait_for_each_other_in_a_circle(store: Any) -> None:
    """Whatever order the namespaces are named in, nobody is refused."""
    names = [f"n{at}" for at in range(6)]

    def write(at: int) -> int:
        order = names[at % 6 :] + names[: at % 6]
        if at % 2:
            order.reverse()
        return len(store.write_many([write_request("Tea.", id=f"e{at}", namespace=name) for name in order]))

    with ThreadPoolExecutor(6) as pool:
        assert [*pool.map(write, range(3 * WRITES))] == [6] * (3 * WRITES)
    for name in names:
        assert len(store.changes(name, limit=1 << 30)) == 3 * WRITES
