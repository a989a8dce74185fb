"""After a crash of the server, everything acknowledged is there once, and nothing half written."""

from __future__ import annotations

import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any

import anyio
import pytest
from tests.support.postgres_process import open_core
from tests.support.stores import ADA, keep, write_request

from omoide import Filter, RecallRequest, Scope
from omoide.errors import Busy, StoreFailed, StoreUnreachable, Uncertain
from omoide.stores import Document, Query
from omoide.testing import PostgresServer, eventually

CRASHES = max(2, int(os.environ.get("OMOIDE_KILLS", "10")) // 5)
THREADS = 6
ALL = Scope()
EVERYTHING = Filter(include_superseded=True, include_expired=True)


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


class Writer:
    """Writes until it is told to stop, and notes what it was told of each write."""

    def __init__(self, store: Any, name: str) -> None:
        self._store = store
        self.name = name
        self.kept: list[str] = []
        self.unsure: list[str] = []
        self.refused: list[str] = []
        self.errors: list[StoreFailed] = []
        self.broken: list[BaseException] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        n = 0
        try:
            while not self._over.is_set():
                n += 1
                self._step(f"{self.name}-{n}", n)
        except BaseException as error:
            self.broken.append(error)
            raise

    def _step(self, id: str, n: int) -> None:
        try:
            self._write(id, n)
            self.kept.append(id)
        except Uncertain as error:
            self.errors.append(error)
            (self.unsure if n % 2 else self.kept).append(id)
            while n % 2 == 0 and not self._over.is_set():  # said again, it is there once
                with suppress(StoreUnreachable, Busy, Uncertain):
                    self._write(id, n)
                    return
            if n % 2 == 0:
                self.kept.remove(id)
                self.unsure.append(id)
        except (StoreUnreachable, Busy) as error:
            self.errors.append(error)
            self.refused.append(id)

    def _write(self, id: str, n: int) -> None:
        """One entry, or three that belong together; by its id, or by a key."""
        match n % 4:
            case 0:
                self._store.write(write_request(f"Tea {id}.", idempotency_key=id, tags=[id]))
            case 1 | 2:
                keep(self._store, f"Tea {id}.", id=id, tags=[id])
            case _:
                parts = [("default", "a"), ("other", "b"), ("default", "c")]
                self._store.write_many(
                    [
                        write_request(f"Tea {id}.", id=f"{id}{part}", namespace=name, tags=[id])
                        for name, part in parts
                    ]
                )


def count_entries(store: Any) -> Counter[str]:
    """How many entries each write left behind."""
    return Counter(
        entry.tags[0] for name in ("default", "other") for entry in store.list_entries(Scope(namespace=name))
    )


def size(id: str) -> int:
    """How many entries a write is."""
    return 3 if int(id.rpartition("-")[2]) % 4 == 3 else 1


@pytest.mark.timeout(0)
def test_what_was_acknowledged_survives_the_crash_of_the_server(server: PostgresServer) -> None:
    """After each crash all that was acknowledged is there once, what failed is not, and work goes on."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    stores = [open_core(server.fresh_url(), timeout=20)]
    stores.append(open_core(f"{server.url}?schema={stores[0]._db.schema}", timeout=20))
    told: list[StoreFailed] = []
    for crash in range(CRASHES):
        writers = [Writer(stores[at % 2], f"w{crash}{at}") for at in range(THREADS)]
        for writer in writers:
            writer.__enter__()
        try:
            enough = 30 + chance.randrange(60)
            wait_for(lambda: sum(len(one.kept) for one in writers) >= enough)  # noqa: B023
            server.kill()
            if crash % 2:  # some of them come while there is nobody
                wait_for(lambda: any(one.errors for one in writers))  # noqa: B023
            server.start()
            before = [len(one.kept) for one in writers]
            wait_for(lambda: all(len(one.kept) > many for one, many in zip(writers, before, strict=True)))  # noqa: B023
        finally:
            for writer in writers:
                writer.__exit__()
        assert [one.broken for one in writers] == [[]] * THREADS
        kept = count_entries(stores[crash % 2])
        for writer in writers:
            told += writer.errors
            assert {id: kept[id] for id in writer.kept} == {id: size(id) for id in writer.kept}
            assert {id: kept[id] for id in writer.refused if kept[id]} == {}, "said that nothing was changed"
            assert all(kept[id] in (0, size(id)) for id in writer.unsure)
        assert stores[0].check() == []
        numbers = [change.seq for change in stores[1].changes("default", limit=1 << 30)]
        assert numbers == sorted({*numbers})
    assert told, "nobody noticed"
    for error in told:
        assert error.remedy
        assert server.password not in str(error)
        assert "a-test" not in str(error)
    for store in stores:
        store.close()


def wait_for(look: Callable[[], bool]) -> None:
    """Wait until something is so."""
    anyio.run(partial(eventually, look, timeout=60, interval=0.002))


def test_every_operation_finds_a_server_that_was_started_again(server: PostgresServer) -> None:
    """Connections that were lost while nobody used them are replaced without a word to the caller."""
    store = open_core(server.fresh_url())
    keep(store, "Tea.", id="a")
    store.save(Document(kind="k", id="d", agent_id="ada", body=1))
    facts = Query(scope=ADA, filter=Filter(types=["fact"]))
    operations = {
        "query of one type": lambda: store.query(facts),
        "query": lambda: store.query(Query(scope=ADA)),
        "get": lambda: store.get("a", ADA),
        "write": lambda: keep(store, "Tea.", id="b"),
        "recall": lambda: store.recall(RecallRequest(agent_id="ada", query="tea")),
        "load": lambda: store.load("k", "d", ADA),
        "append": lambda: store.append("k", "d", ["x"], ADA),
        "changes": lambda: store.changes("default"),
        "stats": lambda: store.stats(ALL),
        "findings": store.findings,
        "scrub": store.scrub,
        "check": store.check,
    }
    for name, operation in operations.items():
        store.get("a", ADA)
        server.kill()
        server.start()
        try:
            operation()
        except StoreFailed as error:
            pytest.fail(f"{name}: {error}")
    store.close()
