"""Processes that share a Redis server lose nothing, and see the changes of others at once."""

from __future__ import annotations

import os
import random
import select
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.store_process import OPTIONS, state, step
from tests.support.stores import ADA, a_store, keep, list_ids, recall_ids, write_request

from omoide import RecallRequest, Scope
from omoide.errors import Invalid, StoreFailed
from omoide.stores import open_store
from omoide.stores.redis import cache, snapshot
from omoide.testing import RedisServer

KILLS = int(os.environ.get("OMOIDE_KILLS", "10"))


def test_writers_of_the_same_entries_without_a_revision_lose_no_version(tmp_path: Path) -> None:
    """Each write is a version of its own, told once, whoever was overtaken meanwhile."""
    with a_store("redis", tmp_path) as store, a_store("redis", tmp_path) as other:

        def write(at: int) -> None:
            mine = (store, other)[at % 2]
            for n in range(25):
                rests = [{"kind": "entry", "ref": f"e{(n + 1) % 3}"}]
                keep(mine, f"Tea {at} {n}.", id=f"e{n % 3}", evidence=rests)

        with ThreadPoolExecutor(4) as pool:
            [*pool.map(write, range(4))]
        assert sum(store.get(id, ADA).rev for id in ("e0", "e1", "e2")) == 100
        changes = store.changes("default", limit=1_000)
        assert Counter((change.id, change.rev) for change in changes).most_common(1)[0][1] == 1
        assert all(one.seq + 1 == two.seq for one, two in pairwise(changes))
        said = {version.entry.content for id in ("e0", "e1", "e2") for version in store.history(id, ADA)}
        assert len(said) == 100
        assert store.check() == []


def test_what_is_allowed_once_is_done_once(tmp_path: Path) -> None:
    """Duplicates, repeated requests, leases and full sessions are seen by writers at the same moment."""
    with (
        a_store("redis", tmp_path, session_limit=3) as one,
        a_store("redis", tmp_path, session_limit=3) as two,
    ):

        def at_once(work: Any) -> list[Any]:
            barrier = threading.Barrier(4)

            def run(at: int) -> Any:
                barrier.wait()
                try:
                    return work((one, two)[at % 2], at)
                except Invalid as error:
                    return error

            with ThreadPoolExecutor(4) as pool:
                return [*pool.map(run, range(4))]

        for n in range(8):
            told = at_once(
                lambda store, at, n=n: store.write(write_request(f"Tea {n}.", dedupe=True)).outcome
            )
            assert sorted(told) == ["duplicate_of", "duplicate_of", "duplicate_of", "stored"]
            told = at_once(
                lambda store, at, n=n: store.write(write_request(f"Milk {n}.", idempotency_key=f"k{n}")).id
            )
            assert len({*told}) == 1
            told = at_once(
                lambda store, at, n=n: store.claim("session", f"d{n}", ADA, owner=f"w{at}", ttl_ms=60_000)
            )
            assert len([lease for lease in told if lease is not None]) == 1
            told = at_once(
                lambda store, at, n=n: store.write(write_request(f"Cocoa {at}.", session_id=f"s{n}"))
            )
            assert len([error for error in told if isinstance(error, Invalid)]) == 1
        assert one.check() == []


def test_erasing_a_scope_gets_through_while_others_write(tmp_path: Path) -> None:
    """What was there when it began is gone, and what is kept afterwards was written afterwards."""
    with a_store("redis", tmp_path) as store, a_store("redis", tmp_path) as other:
        done = threading.Event()

        def write() -> int:
            n = 0
            while not done.is_set():
                n += 1
                keep(other, f"Tea {n}.", id=f"e{n}")
            return n

        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(write)
            try:
                for _ in range(5):
                    keep(store, "Cocoa.", id="mine")
                    assert "mine" in store.erase(Scope()).ids
            finally:
                done.set()
            assert writing.result() > 0
        gone = {change.id for change in store.changes("default", limit=100_000) if change.op == "erase"}
        assert not gone & {*list_ids(store)}
        assert store.check() == []


def test_a_scope_larger_than_one_step_is_held_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is fetched in portions, with what changed meanwhile, and the second recall fetches nothing anew."""
    monkeypatch.setattr(cache, "_SYNC_LIMIT", 7)
    monkeypatch.setattr(cache, "RECOMMENDED_SCOPE_SIZE", 30)
    monkeypatch.setattr(snapshot, "MAX_COMMAND_ARGS", 10)
    with a_store("redis", tmp_path, **OPTIONS) as store, a_store("memory", tmp_path, **OPTIONS) as model:
        for one in (store, model):
            for n in range(40):
                keep(one, f"Tea number {n}.", id=f"e{n}", created_at=n)
        for n in range(0, 40, 3):
            for one in (store, model):
                if n % 2:
                    one.erase(ADA, id=f"e{n}")
                else:
                    keep(one, f"Cocoa number {n}.", id=f"e{n}", created_at=n)
            assert recall_ids(store, f"tea {n}", limit=50) == recall_ids(model, f"tea {n}", limit=50)
        told = store.recall(RecallRequest(agent_id="ada", query="tea"))
        assert any("made for 30: use postgresql://" in notice for notice in told.notices)


@pytest.fixture
def own() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.mark.timeout(0)
def test_what_was_acknowledged_survives_the_death_of_the_server(own: RedisServer, tmp_path: Path) -> None:
    """After each `kill -9` every acknowledged step is there, and the one after them wholly or not at all."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    done = 0
    with a_store("memory", tmp_path, **OPTIONS) as model:
        for _ in range(KILLS):
            steps = _kill_while_writing(own, seed, done, chance)
            for n in range(done, done + steps):
                step(model, seed, n)
            done += steps
            store = open_store(own.url, **OPTIONS).sync
            assert store.check() == []
            kept = state(store)
            store.close()
            if kept != state(model):
                step(model, seed, done)
                done += 1
                assert kept == state(model), f"after {done} steps"
    assert done > 0


def _kill_while_writing(server: RedisServer, seed: int, first: int, chance: random.Random) -> int:
    """Write until some moment, kill the server, start it again; how many steps were acknowledged."""
    store = open_store(server.url, durability="power", **OPTIONS).sync
    acknowledged, end = [0], threading.Event()

    def write() -> None:
        with suppress(StoreFailed):
            while not end.is_set():
                _strict(store, seed, first + acknowledged[0])
                acknowledged[0] += 1

    writing = threading.Thread(target=write)
    writing.start()
    select.select([], [], [], chance.random() * 0.3)  # a random moment
    server.kill()
    end.set()
    writing.join()
    store.close()
    server.start()
    return acknowledged[0]


def _strict(store: Any, seed: int, n: int) -> None:
    """The same step, which fails when the server does."""
    failed: list[StoreFailed] = []
    work = store._transactions

    def watched(run: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            try:
                return run(*args, **options)
            except StoreFailed as error:
                failed.append(error)
                raise

        return call

    write, read = type(work).run_write, type(work).run_read
    work.run_write, work.run_read = watched(write.__get__(work)), watched(read.__get__(work))
    try:
        step(store, seed, n)
    finally:
        del work.run_write, work.run_read
    if failed:
        raise failed[0]
