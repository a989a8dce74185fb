"""A store is bound to the embedder whose vectors it has, until it is reindexed.

`data` has two files that an earlier version wrote, with the vectors of the encoders it had: 34 memories each,
among them superseded, stale and expired ones, a long one, and two that came with vectors.
"""

from __future__ import annotations

import gzip
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

import numpy as np
import pytest
from tests.stores.test_vectors import nearest, vector_of
from tests.support.stores import ADA, KINDS, a_store, keep, url, write_request

from omoide import Filter, RecallRequest, Scope, blocking, clock, open_store, verbs
from omoide.embedders import LOCAL_ENCODER, Embedding, FunctionEmbedder, HashEmbedder, choose
from omoide.errors import Busy, DiskFull, Invalid, OmoideError
from omoide.stores import StoreSettings
from omoide.stores.redis import maintenance as redis_maintenance
from omoide.stores.reindex import CLAIM_MS, ReindexClaim
from omoide.stores.sqlite.store import SQLiteStore

FILES = {"minilm": "all-MiniLM-L6-v2-int8-1", "static": "wordllama-256"}
OLD, NEW = HashEmbedder(64), HashEmbedder(32)
OUTDATED_TERMS = "the terms of all entries are those of another version: reindex"
COUNT = 520  # more than two batches


class Counting(HashEmbedder):
    """An embedder that counts the texts of memories."""

    def __init__(self, dim: int = 32) -> None:
        super().__init__(dim)
        self.texts = 0

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        self.texts += 0 if query else len(texts)
        return super().embed(texts, query=query)


class DiskUsage(NamedTuple):
    """What `shutil.disk_usage` returns."""

    total: int
    used: int
    free: int


def ask(store: Any, query: str, **fields: Any) -> Any:
    return store.recall(RecallRequest.new({"agent_id": "ada", "query": query, **fields}))


VECTOR_PARTS = {"vector", "cosine", "centered"}


def uses_vectors(store: Any, query: str = "cup number 17") -> bool:
    parts = {reason.part for hit in ask(store, query).hits for reason in hit.why.reasons}
    return not parts.isdisjoint(VECTOR_PARTS)


def fill(store: Any, size: int = COUNT) -> None:
    store.write_many([write_request(f"cup number {at} of tea", id=f"m{at}") for at in range(size)])


@pytest.fixture(params=FILES)
def earlier_file(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file that an earlier version wrote."""
    path = tmp_path / f"{request.param}.db"
    packed = Path(__file__).with_name("data") / f"{request.param}.db.gz"
    path.write_bytes(gzip.decompress(packed.read_bytes()))
    return path


def open_file(path: Path, **options: Any) -> SQLiteStore:
    store = open_store(f"sqlite:///{path}", **options).sync
    assert isinstance(store, SQLiteStore)
    return store


def rows_of(path: Path, statement: str) -> list[Any]:
    db = sqlite3.connect(path)
    found = db.execute(statement).fetchall()
    db.close()
    return found


# Files of earlier versions


def test_a_file_of_an_earlier_encoder_is_recalled_by_words(earlier_file: Path) -> None:
    """Each answer names the two encoders and the command that gives the file new vectors."""
    store = open_file(earlier_file)
    result = ask(store, "where does Ada live, in Braga?")
    assert result.entries[0].content == "Ada moved from Lisbon to Braga in spring."
    assert not uses_vectors(store, "Ada moved to Braga")
    (notice,) = result.notices
    assert f"vectors of {FILES[earlier_file.stem]!r}, not of {LOCAL_ENCODER!r}" in notice
    assert f"run: omoide reindex --store {quote(str(earlier_file))}" in notice
    assert store.check() == [OUTDATED_TERMS]
    store.close()


def test_what_is_written_to_it_has_no_vector_until_it_is_reindexed(earlier_file: Path) -> None:
    """Writing works, also a new revision; a supplied vector could not be compared, and is refused."""
    store = open_file(earlier_file)
    before = rows_of(earlier_file, "SELECT count(*) FROM vectors")
    keep(store, "Dora breeds alpacas.", id="new")
    keep(store, "Ben plays the viola in a quartet.", id="m2")
    assert ask(store, "alpacas").entries[0].id == "new"
    assert ask(store, "viola").entries[0].id == "m2"
    assert store.stats(ADA).without_vectors == 2
    assert rows_of(earlier_file, "SELECT count(*) FROM vectors") == [(before[0][0] - 1,)]
    with pytest.raises(Invalid, match="reindex the store"):
        store.write_with_vector(write_request("Note nine.", id="nine"), [1.0] * 384)
    assert store.check() == [OUTDATED_TERMS]
    store.close()


def test_reindexing_gives_it_the_vectors_of_the_local_encoder(earlier_file: Path) -> None:
    """Every memory gets them: superseded, stale and expired ones too, and a long one several."""
    (entries,) = rows_of(earlier_file, "SELECT count(*) FROM entries")[0]
    store = open_file(earlier_file)
    keep(store, "Dora breeds alpacas.", id="new")
    result = store.reindex()
    assert (result.embedder, result.entries, result.embedded) == (LOCAL_ENCODER, entries + 1, entries + 1)
    assert result.given_vectors == 2
    assert store.check() == []
    assert ask(store, "which animals does Dora raise?").entries[0].id == "new"
    assert ask(store, "Dora's animals").notices == ()
    assert uses_vectors(store, "which animals does Dora raise?")
    assert store.stats(ADA).without_vectors == 0
    store.close()
    own = "SELECT e.id, length(v.pooled) FROM entries e JOIN vectors v ON v.key / 8 = e.no WHERE v.given = 0"
    sizes = dict(rows_of(earlier_file, own))
    assert len(sizes) == entries + 1
    assert sizes["long"] > 1536
    assert {size for id, size in sizes.items() if id != "long"} == {1536}
    again = open_file(earlier_file)
    assert ask(again, "which animals does Dora raise?").notices == ()
    assert again.reindex().embedded == 0
    again.close()


def test_vectors_that_came_with_memories_are_kept(earlier_file: Path) -> None:
    """They stay under their own encoder, which uses them if it comes back, until their content changes."""
    given = (
        "SELECT e.id, v.pooled FROM entries e JOIN vectors v ON v.key / 8 = e.no WHERE given = 1 ORDER BY 1"
    )
    before = rows_of(earlier_file, given)
    assert [id for id, _ in before] == ["given0", "given1"]
    with open_store(f"sqlite:///{earlier_file}") as opened:
        opened.sync.reindex()
        opened.sync.reindex(NEW)
        opened.sync.reindex()
        assert rows_of(earlier_file, given) == before
        assert opened.sync.check() == []
    vector = np.frombuffer(before[0][1], "<f4")
    old = FunctionEmbedder(FILES[earlier_file.stem], lambda texts: [vector for _ in texts], len(vector))
    with open_store(f"sqlite:///{earlier_file}", embedder=old) as opened:
        opened.sync.reindex()
        assert rows_of(earlier_file, given) == before
        keep(opened.sync, "Note seven hundred.", id="given0")
        assert [id for id, _ in rows_of(earlier_file, given)] == ["given1"]
        opened.sync.erase(ADA, id="given1")
        assert rows_of(earlier_file, given) == []


# All stores


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "memory"])
def test_a_store_of_another_embedder_says_how_to_reindex_it(kind: str, tmp_path: Path) -> None:
    """Also with a filter for what is superseded; once reindexed, the open store recalls by meaning."""
    with a_store(kind, tmp_path, embedder=OLD) as old:
        fill(old, 5)
    with a_store(kind, tmp_path, embedder="local") as store:
        for fields in ({}, {"filter": Filter(include_superseded=True)}):
            result = ask(store, "cup number 3", **fields)
            assert result.entries[0].id == "m3"
            assert "vectors of 'hash-64', not of 'omoide-encoder-2'" in result.notices[0]
            assert "run: omoide reindex --store " in result.notices[0]
            parts = {reason.part for hit in result.hits for reason in hit.why.reasons}
            assert parts.isdisjoint(VECTOR_PARTS)
        keep(store, "cup number 9 of cocoa", id="m9")
        assert (store.stats(ADA).embedder, store.stats(ADA).without_vectors) == ("hash-64", 1)
        with a_store(kind, tmp_path) as other:
            assert other.reindex("local").embedded == 6
        assert ask(store, "hot chocolate").notices == ()
        assert uses_vectors(store, "hot chocolate")
        assert (store.stats(ADA).embedder, store.stats(ADA).without_vectors) == (LOCAL_ENCODER, 0)
        assert store.check() == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_old_vectors_serve_until_all_new_ones_are_there(kind: str, tmp_path: Path) -> None:
    """Whoever has the old embedder recalls by meaning meanwhile; afterwards by words, and is told so."""
    seen: list[bool] = []
    with a_store(kind, tmp_path, embedder=OLD) as store:
        fill(store)
        with nullcontext(store) if kind == "memory" else a_store(kind, tmp_path, embedder=OLD) as reader:

            def progress(done: int, total: int) -> None:
                if done < total:
                    seen.append(uses_vectors(reader) and not ask(reader, "cup number 17").notices)

            result = store.reindex(NEW, progress)
            assert seen
            assert all(seen)
            assert (result.embedded, result.entries) == (COUNT, COUNT)
            assert uses_vectors(store)
            if kind != "memory":
                assert "vectors of 'hash-32', not of 'hash-64'" in ask(reader, "cup number 17").notices[0]
                assert not uses_vectors(reader)
            assert store.check() == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_written_meanwhile_is_embedded_at_the_end(kind: str, tmp_path: Path) -> None:
    """New memories, new revisions, superseded and erased ones: none is lost, and none lacks a vector."""
    with a_store(kind, tmp_path, embedder=OLD) as store:
        fill(store)
        with nullcontext(store) if kind == "memory" else a_store(kind, tmp_path, embedder=OLD) as writer:

            def progress(done: int, total: int) -> None:
                if done < total:
                    keep(writer, f"cup number {done} of cocoa", id=f"m{done - 1}")
                    keep(writer, "a cup that is new", id=f"new{done}")
                    writer.supersede(f"m{done - 2}", ADA)
                    writer.erase(ADA, id=f"m{done - 3}")

            store.reindex(NEW, progress)
            stats = store.stats(ADA)
            assert (stats.without_vectors, stats.embedder) == (0, "hash-32")
            assert store.check() == []
            assert "cocoa" in ask(store, "cocoa").entries[0].content


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_writers_that_never_stop_do_not_keep_it_from_ending(kind: str, tmp_path: Path) -> None:
    """In the end they wait for a moment."""
    stop, errors = threading.Event(), list[BaseException]()
    with a_store(kind, tmp_path, embedder=OLD) as store, a_store(kind, tmp_path, embedder=OLD) as other:
        fill(store, 300)

        def write() -> None:
            try:
                for number in count():
                    if stop.is_set():
                        return
                    keep(other, f"cup number {number} of cocoa", id=f"w{number}")
            except OmoideError as error:
                errors.append(error)

        writer = threading.Thread(target=write)
        writer.start()
        try:
            assert store.reindex(NEW).embedder == "hash-32"
        finally:
            stop.set()
            writer.join()
        assert errors == []
        assert store.check() == []
        store.reindex(NEW)
        assert store.stats(ADA).without_vectors == 0


@pytest.mark.parametrize("kind", KINDS)
def test_supplied_vectors_outlive_other_embedders(kind: str, tmp_path: Path) -> None:
    """They answer again when the store is given back to the embedder that they belong to."""
    with a_store(kind, tmp_path, embedder=OLD) as store:
        store.write_with_vector(
            write_request("Note seven.", id="given"), vector_of("harbour lights at night")
        )
        for number in range(5):
            keep(store, f"Kettle and cups {number}.", id=f"other{number}")
        assert store.reindex(NEW).given_vectors == 1
        keep(store, "Note seven.", id="given", tags=["x"])
        assert store.reindex(OLD).given_vectors == 1
        assert nearest(store, "harbour lights at night") == "given"
        store.reindex(NEW)
        keep(store, "Note eight.", id="given", tags=["x"])
        assert store.reindex(OLD).given_vectors == 0
        assert store.check() == []


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_a_run_that_was_killed_is_continued(kind: str, tmp_path: Path) -> None:
    """The old vectors serve after the crash, and what was embedded is not embedded again."""
    with a_store(kind, tmp_path, embedder=OLD) as store:
        fill(store)
        program = (
            "import os, signal, sys\n"
            "from omoide import open_store\n"
            "from omoide.embedders import HashEmbedder\n"
            "def progress(done, total):\n"
            "    os.kill(os.getpid(), signal.SIGKILL)\n"
            "open_store(sys.argv[1], embedder='none').sync.reindex(HashEmbedder(32), progress)\n"
        )
        killed = subprocess.run([sys.executable, "-c", program, url(kind, tmp_path)], check=False)
        assert killed.returncode == -9
        assert uses_vectors(store)
        assert ask(store, "cup number 17").notices == ()
        rest = Counting()
        assert store.reindex(rest).embedded == rest.texts
        assert 0 < rest.texts < COUNT
        assert store.stats(ADA).without_vectors == 0
        assert uses_vectors(store)
        assert store.check() == []


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_a_run_on_another_machine_is_waited_for(kind: str, tmp_path: Path) -> None:
    """Whether it lives cannot be seen from here, so its claim holds until its time is over."""
    claim = ReindexClaim(owner="theirs", host="elsewhere", process=1, until=ReindexClaim.create().until)
    with a_store(kind, tmp_path, embedder=OLD) as store:
        fill(store, 3)
        put_claim(store, claim)
        with pytest.raises(Busy, match="is being reindexed by process 1 on elsewhere"):
            store.reindex(NEW)
        assert store.stats(ADA).embedder == "hash-64"
        put_claim(
            store, ReindexClaim(owner="theirs", host="elsewhere", process=1, until=claim.until - CLAIM_MS)
        )
        assert store.reindex(NEW).embedded == 3


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_a_run_whose_clock_was_ahead_is_waited_for_as_long_as_any_other(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From when this process first saw its claim, by a clock that nobody can set."""
    claim = ReindexClaim(owner="theirs", host="elsewhere", process=1, until=253_000_000_000_000)
    with a_store(kind, tmp_path, embedder=OLD) as store:
        fill(store, 3)
        put_claim(store, claim)
        first_seen = round(clock.monotonic())  # whole seconds, so that the sums below are exact
        for waited in (0.0, CLAIM_MS / 1000 - 1):
            monkeypatch.setattr(clock, "monotonic", lambda waited=waited: first_seen + waited)
            with pytest.raises(Busy):
                store.reindex(NEW)
        monkeypatch.setattr(clock, "monotonic", lambda: first_seen + CLAIM_MS / 1000)
        assert store.reindex(NEW).embedded == 3


def put_claim(store: Any, claim: ReindexClaim) -> None:
    """Have a run of another process hold a store."""
    if hasattr(store, "_server"):
        store._server.execute("SET", f"{store._prefix}{{store}}:reindex", claim.encode())
        return
    with store._db.write_transaction() as db:
        db.execute("DELETE FROM settings WHERE name='reindex'")
        db.execute("INSERT INTO settings (name, value) VALUES ('reindex', ?)", (claim.encode(),))


def test_a_disk_without_room_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names what is needed and what is free, and the old vectors go on serving."""
    with a_store("sqlite", tmp_path, embedder=OLD) as store:
        fill(store)
        monkeypatch.setattr(shutil, "disk_usage", lambda path: DiskUsage(10**6, 10**6 - 10_000, 10_000))
        with pytest.raises(DiskFull, match=r"needs 0\.[1-9] MB for vectors .*, and 0\.0 MB are free"):
            store.reindex(NEW)
        assert rows_of(tmp_path / "memory.db", "SELECT count(*) FROM vectors") == [(COUNT,)]
        assert uses_vectors(store)
        monkeypatch.undo()
        assert store.reindex(NEW).embedded == COUNT


def test_a_server_without_memory_is_told_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a Redis server counts as its disk."""
    with a_store("redis", tmp_path, embedder=OLD) as store:
        fill(store)
        full = {"maxmemory": "1000000", "used_memory": "990000"}
        monkeypatch.setattr(redis_maintenance, "_server_info", lambda server, *section: full)
        with pytest.raises(DiskFull, match=r"needs 0\.[1-9] MB for vectors .*, and 0\.0 MB are free"):
            store.reindex(NEW)
        assert uses_vectors(store)


@pytest.mark.parametrize("kind", ["sqlite", "redis", "postgres"])
def test_terms_of_another_version_are_told_and_renewed(kind: str, tmp_path: Path) -> None:
    """Recall says so until the store is reindexed, which embeds nothing that has its vectors."""
    counting = Counting(64)
    with a_store(kind, tmp_path, embedder=OLD) as store:
        fill(store, 5)
        if kind == "redis":
            store._server.execute("HSET", store._store_key, "features", "another")
        else:
            with store._db.write_transaction() as db:
                db.execute("UPDATE settings SET value='another' WHERE name='features'")
                db.execute("UPDATE entries SET features=?", (bytes(8),))
                db.execute("DELETE FROM postings")
    with a_store(kind, tmp_path, embedder=counting) as store:
        assert "indexed by another version of Omoide; run: omoide reindex" in ask(store, "cup").notices[0]
        result = store.reindex()
        assert (counting.texts, result.embedded) == (0, 0)
        assert result.updated_terms == (0 if kind == "redis" else 5)
        assert ask(store, "cup number 3").notices == ()
        assert ask(store, "cup number 3").entries[0].id == "m3"
        assert store.check() == []


@pytest.mark.anyio
async def test_reindexing_is_a_verb() -> None:
    """With and without `await`, by the name of an embedder or with the store's own."""
    async with open_store("memory://", embedder=OLD) as store:
        keep(store.sync)
        assert (await verbs.reindex(store)).embedded == 0
        assert (await verbs.reindex(store, "local")).embedder == LOCAL_ENCODER
        assert blocking.reindex(store, NEW).embedder == "hash-32"
        assert (await store.stats(Scope())).embedder == "hash-32"


def test_memory_stores_are_never_bound() -> None:
    """The embedder that a store in memory is reindexed with is its own from then on."""
    with open_store("memory://", embedder=OLD) as store:
        keep(store.sync)
        store.sync.reindex(choose("local"))
        assert ask(store.sync, "kettle").notices == ()
        assert store.sync.settings == StoreSettings()
