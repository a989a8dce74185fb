"""Shared stores stay correct when two operations happen at the same moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.support.servers import postgres
from tests.support.stores import ADA, KINDS, a_store, postgres_url

from omoide import Entry, RecallRequest, Scope, WriteRequest
from omoide.core import MessageRef
from omoide.errors import Busy, Uncertain
from omoide.stores import open_store
from omoide.stores.postgres.connection import PostgresSession
from omoide.stores.sql import candidates, writes
from omoide.testing import HashEmbedder, RedisServer

_WAIT_S = 10.0


def keep_entry(store: Any, id: str, namespace: str = "default", key: str | None = None) -> None:
    """Keep an entry of Ada's."""
    entry = Entry(id=id, agent_id="ada", namespace=namespace, content=f"The cat {id} sleeps.")
    store.write(WriteRequest(entry=entry, idempotency_key=key))


def find_ids(store: Any) -> list[str]:
    """The ids of what Ada's question finds."""
    hits = store.recall(RecallRequest(agent_id="ada", query="where is the cat?")).hits
    return sorted(hit.entry.id for hit in hits)


def before(patch: pytest.MonkeyPatch, start: str, act: Callable[[], object]) -> None:
    """Do something before each statement that starts so, once all before it are carried out."""
    plain = PostgresSession.execute

    def execute(self: PostgresSession, statement: str, parameters: Sequence[Any] = (), /) -> Any:
        if statement.startswith(start):
            pipeline: Any = self.connection._pipeline
            pipeline.sync()
            act()
        return plain(self, statement, parameters)

    patch.setattr(PostgresSession, "execute", execute)


def together(*works: Callable[[], object]) -> list[BaseException]:
    """What goes wrong when some things are done at once."""
    errors: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(3 * _WAIT_S)
    return errors


def vectors(store: Any) -> list[tuple[int, int]]:
    """The slot and the size of each vector, by the numbers of their entries."""
    with store._db.read_transaction() as db:
        return list(db.execute("SELECT key % 8, length(pooled) FROM vectors ORDER BY key").fetchall())


def test_an_erasure_and_a_note_of_uses_do_not_wait_for_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A write elsewhere brings uses of an entry along, while the entry is being erased."""
    there = Scope(namespace="b", agent_id="ada")
    with a_store("postgres", tmp_path) as erasing, a_store("postgres", tmp_path) as using:
        keep_entry(erasing, "e", "b")
        using.record_access(["e"], there)
        using.change_feed("b")
        using.record_access(["e"], there)
        reached, half = threading.Event(), threading.Event()

        def wait() -> None:
            if threading.current_thread().name == "erasing":
                reached.set()
                half.wait(0.5)

        def erase() -> None:
            threading.current_thread().name = "erasing"
            erasing.erase(there, id="e")

        def write() -> None:
            reached.wait(_WAIT_S)
            keep_entry(using, "w", "a")

        before(monkeypatch, "DELETE FROM entries", wait)
        assert together(erase, write) == []


def test_old_keys_are_forgotten_by_two_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two namespaces use an expired idempotency key again, and each purges what is too old."""
    with a_store("postgres", tmp_path) as store:
        keep_entry(store, "1", "a", "key")
        keep_entry(store, "1", "b", "key")
        with store._db.write_transaction() as db:
            db.execute("UPDATE receipts SET at = 0")
        both = threading.Barrier(2)
        before(monkeypatch, "DELETE FROM receipts WHERE", lambda: both.wait(_WAIT_S))
        assert (
            together(lambda: keep_entry(store, "2", "a", "key"), lambda: keep_entry(store, "2", "b", "key"))
            == []
        )


def test_a_write_under_way_gets_the_vectors_of_the_embedder_that_takes_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reindex ends while a write by the old embedder has not been committed yet."""
    old, new = HashEmbedder(dim=16), HashEmbedder(dim=32)
    with (
        a_store("postgres", tmp_path, embedder=old) as store,
        a_store("postgres", tmp_path, embedder=old) as other,
    ):
        keep_entry(store, "1")
        inside, finish = threading.Event(), writes.WriteBatch.flush_postings

        def slow(self: writes.WriteBatch) -> None:
            finish(self)
            inside.set()
            threading.Event().wait(0.5)

        def reindex() -> None:
            inside.wait(_WAIT_S)
            other.reindex(new)

        monkeypatch.setattr(writes.WriteBatch, "flush_postings", slow)
        assert together(lambda: keep_entry(store, "2", "elsewhere"), reindex) == []
        assert other.check() == []
        assert [size for _, size in vectors(other)] == [4 * 32, 4 * 32]


@pytest.mark.parametrize("kind", KINDS)
def test_of_two_reindexings_the_second_is_refused(kind: str, tmp_path: Path) -> None:
    """One that is under way is finished, and then the next one may begin."""
    with a_store(kind, tmp_path, embedder=HashEmbedder(dim=16)) as store:
        keep_entry(store, "1")
        keep_entry(store, "2")
        with nullcontext(store) if kind == "memory" else a_store(kind, tmp_path) as other:
            refused: list[Busy] = []

            def progress(now: int, total: int) -> None:
                with pytest.raises(Busy, match="is being reindexed by process") as caught:
                    other.reindex(HashEmbedder(dim=64))
                refused.append(caught.value)

            store.reindex(HashEmbedder(dim=32), progress)
            assert refused
            assert store.check() == []
            assert store.stats(ADA).embedder == HashEmbedder(dim=32).name
            assert other.reindex(HashEmbedder(dim=64)).embedder == HashEmbedder(dim=64).name


def test_the_last_place_of_a_conversation_has_neighbours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large scope holds a message at the highest place there is."""
    monkeypatch.setattr(candidates, "MAX_CACHED_ENTRIES", 1)
    with a_store("postgres", tmp_path) as store:
        for back in range(3):
            message = MessageRef(thread="t", seq=(1 << 63) - 1 - back)
            store.write(
                WriteRequest(entry=Entry(id=f"m{back}", agent_id="ada", content="A cat.", message=message))
            )
        assert find_ids(store) == ["m0", "m1", "m2"]


def test_a_schema_made_anew_shows_nobody_what_is_anothers(tmp_path: Path) -> None:
    """The tables are dropped, and another process makes them again, while a connection remembers owners."""
    url = postgres_url(tmp_path)
    schema = url.partition("schema=")[2]
    with a_store("postgres", tmp_path) as store:
        keep_entry(store, "1")
        keep_entry(store, "2")
        with psycopg.connect(postgres().url, autocommit=True) as connection:
            connection.execute(f'DROP SCHEMA "{schema}" CASCADE'.encode())
        with a_store("postgres", tmp_path) as other:
            other.write(WriteRequest(entry=Entry(id="b", agent_id="bob", content="Bob's secret.")))
            assert store.list_entries(ADA) == []
            keep_entry(store, "3")
            bobs = other.list_entries(Scope(agent_id="bob"))
            assert [entry.id for entry in bobs] == ["b"]
            assert other.check() == []


def test_a_commit_that_was_sent_and_broke_off_is_uncertain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The connection breaks in the very call that sends the commit."""
    with a_store("postgres", tmp_path) as store:
        keep_entry(store, "1")
        plain = psycopg.Connection.execute

        def execute(self: Any, query: Any, *args: Any, **options: Any) -> Any:
            told = plain(self, query, *args, **options)
            if query == "COMMIT" and self._pipeline is not None:
                raise psycopg.OperationalError("the connection is lost")
            return told

        with monkeypatch.context() as patch:
            patch.setattr(psycopg.Connection, "execute", execute)
            with pytest.raises(Uncertain):
                keep_entry(store, "2")
        assert {entry.id for entry in store.list_entries(ADA)} >= {"1"}


def test_what_a_restarted_redis_has_lost_is_not_recalled() -> None:
    """The server dies while nobody asks, comes back with less, and others write as much as was lost."""
    with RedisServer(appendonly="no") as server:
        store: Any = open_store(server.url, embedder="none").sync
        other: Any = open_store(server.url, embedder="none").sync
        keep_entry(store, "base")
        other._server.client.save()
        keep_entry(store, "lost")
        assert find_ids(store) == ["base", "lost"]
        server.kill()
        server.start()
        keep_entry(other, "new")
        assert find_ids(store) == ["base", "new"]
        store.close()
        other.close()


def test_uses_that_could_not_be_written_down_are_written_later(tmp_path: Path) -> None:
    """Somebody holds the table of uses for longer than the store waits."""
    schema = postgres_url(tmp_path).partition("schema=")[2]
    with a_store("postgres", tmp_path, timeout=0.5) as store:
        keep_entry(store, "1")
        store.record_access(["1", "1"], ADA)
        with psycopg.connect(postgres().url) as connection:
            connection.execute(f'LOCK TABLE "{schema}".access'.encode())
            with pytest.raises(Busy):
                keep_entry(store, "2")
        assert store.access("1", ADA).count == 2
        keep_entry(store, "2")
    with a_store("postgres", tmp_path) as store:
        assert store.access("1", ADA).count == 2
