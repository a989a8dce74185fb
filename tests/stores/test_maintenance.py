"""Vectors are renewed, and files copied and restored, while a store is in use."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from omoide import Entry, RecallRequest, Scope, WriteRequest, open_store
from omoide.embedders import Embedding, HashEmbedder
from omoide.errors import EmbedderFailed, StoreFailed
from omoide.stores.sqlite.store import SQLiteStore

ADA = Scope(agent_id="ada")
COUNT = 600  # more than two portions of the reindexing


class Stumbling:
    """An embedder that fails after some calls."""

    def __init__(self, calls: int) -> None:
        self._inner = HashEmbedder(32)
        self.name, self.dim, self.left = self._inner.name, self._inner.dim, calls

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        if self.left == 0:
            raise RuntimeError("the power went")
        self.left -= 1
        return self._inner.embed(texts, query=query)


def open_file(path: Path, embedder: object = "none") -> SQLiteStore:
    store = open_store(f"sqlite:///{path}", embedder=embedder).sync
    assert isinstance(store, SQLiteStore)
    return store


def entry(at: int, content: str | None = None) -> WriteRequest:
    return WriteRequest(
        entry=Entry(id=f"m{at}", agent_id="ada", content=content or f"cup number {at} of tea")
    )


def first(store: SQLiteStore, query: str) -> str:
    return store.recall(RecallRequest(agent_id="ada", query=query)).entries[0].id


@pytest.fixture
def filled_file(tmp_path: Path) -> Path:
    """A file with vectors of one embedder."""
    path = tmp_path / "memory.db"
    store = open_file(path, HashEmbedder(64))
    store.write_many([entry(at) for at in range(COUNT)])
    store.close()
    return path


def test_reindexing_tells_how_far_it_is(filled_file: Path) -> None:
    """Progress grows to the whole."""
    store, seen = open_file(filled_file), []
    store.reindex(HashEmbedder(32), lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1] == (COUNT, COUNT)
    assert len(seen) > 2
    store.close()


def test_an_interrupted_reindexing_leaves_the_old_vectors_serving(filled_file: Path) -> None:
    """Whoever opens the file after a failure half-way finds it as it was."""
    store = open_file(filled_file)
    with pytest.raises(EmbedderFailed):
        store.reindex(Stumbling(1))
    store.close()
    again = open_file(filled_file, HashEmbedder(64))
    assert first(again, "cup number 17") == "m17"
    assert again.check() == []
    again.close()


def test_an_interrupted_reindexing_goes_on_where_it_was(filled_file: Path) -> None:
    """What has its new vectors is not embedded again."""
    store = open_file(filled_file)
    with pytest.raises(EmbedderFailed):
        store.reindex(Stumbling(2))
    rest = Stumbling(1)  # one call is enough for what is left
    store.reindex(rest)
    assert rest.left == 0
    assert store.stats(ADA).without_vectors == 0
    assert store.check() == []
    store.close()


def test_what_is_written_while_reindexing_gets_new_vectors_too(filled_file: Path) -> None:
    """Nobody has to wait, and nothing is left behind."""
    store, other = open_file(filled_file), open_file(filled_file, HashEmbedder(64))

    def meanwhile(done: int, total: int) -> None:
        if done < total:
            other.write(entry(done - 1, "changed to coffee meanwhile"))
            other.write(entry(COUNT + done, "a new cup of cocoa"))

    store.reindex(HashEmbedder(32), meanwhile)
    assert store.stats(ADA).without_vectors == 0
    assert store.check() == []
    assert "coffee" in store.get(first(store, "changed coffee"), ADA).content
    store.close()
    other.close()


def test_a_store_whose_vectors_were_replaced_says_so(filled_file: Path) -> None:
    """The handle of the old embedder still answers, with a notice, and writes no vectors of its own."""
    old, new = open_file(filled_file, HashEmbedder(64)), open_file(filled_file)
    assert old.recall(RecallRequest(agent_id="ada", query="tea")).notices == ()
    new.reindex(HashEmbedder(32))
    result = old.recall(RecallRequest(agent_id="ada", query="cup number 5"))
    assert result.entries[0].id == "m5"
    assert "vectors of 'hash-32', not of 'hash-64'" in result.notices[0]
    old.write(entry(1000))
    assert new.stats(ADA).without_vectors == 1
    assert new.check() == []
    old.close()
    new.close()


def test_a_backup_put_back_replaces_everything(filled_file: Path, tmp_path: Path) -> None:
    """Also for another handle that had answered from what came after the backup."""
    store, other = open_file(filled_file), open_file(filled_file)
    copy = tmp_path / "copy.db"
    store.backup(copy)
    store.write(entry(0, "something quite different about llamas"))
    assert first(other, "llamas") == "m0"
    store.restore_backup(copy)
    assert store.get("m0", ADA).content == "cup number 0 of tea"
    assert other.recall(RecallRequest(agent_id="ada", query="llamas")).weak
    assert other.check() == []
    other.write(entry(0, "llamas again"))
    assert first(store, "llamas") == "m0"
    store.close()
    other.close()


@pytest.mark.parametrize(
    "content", [None, b"", b"not a database at all, but long enough to look like something" * 20]
)
def test_what_is_no_backup_is_refused(filled_file: Path, tmp_path: Path, content: bytes | None) -> None:
    """Nothing is replaced by a file that is missing, empty or something else."""
    source = tmp_path / "backup.db"
    if content is not None:
        source.write_bytes(content)
    store = open_file(filled_file)
    with pytest.raises(StoreFailed) as caught:
        store.restore_backup(source)
    assert caught.value.remedy == "name a file that backup() wrote"
    assert store.stats(ADA).entries == COUNT
    store.close()


class Meanwhile(HashEmbedder):
    """An embedder that lets something happen the first time it is asked."""

    def __init__(self, dim: int, happens: Callable[[], object]) -> None:
        super().__init__(dim)
        self._happens: Callable[[], object] | None = happens

    def embed(self, texts: Sequence[str], *, query: bool = False) -> list[Embedding]:
        happens, self._happens = self._happens, None
        if happens is not None:
            happens()
        return super().embed(texts, query=query)


def test_what_is_erased_while_reindexing_does_not_come_back_in_another_entry(tmp_path: Path) -> None:
    """An entry that gets the number of an erased one gets nothing of its words."""
    store, other = open_file(tmp_path / "memory.db"), open_file(tmp_path / "memory.db")
    store.write(entry(1, "a secret about llamas"))

    def replace() -> None:
        other.erase(ADA, id="m1")
        other.write(entry(2, "a cup of tea"))

    store.reindex(Meanwhile(32, replace))
    assert store.check() == []
    plain = HashEmbedder(32).embed(["a cup of tea"])[0].pooled
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db:
        assert db.execute("SELECT pooled FROM vectors").fetchall() == [(plain.tobytes(),)]
    store.close()
    other.close()


def test_the_first_vectors_of_one_embedder_leave_the_slot_of_another_alone(tmp_path: Path) -> None:
    """Writing with one embedder while another fills a file that had no vectors mixes nothing."""
    plain = open_file(tmp_path / "memory.db")
    plain.write(entry(1))
    writer = open_file(tmp_path / "memory.db", HashEmbedder(64))
    plain.reindex(Meanwhile(32, lambda: writer.write(entry(2))))
    assert plain.check() == []
    assert plain.stats(ADA).without_vectors == 0
    with closing(sqlite3.connect(tmp_path / "memory.db")) as db:
        assert {len(pooled) for (pooled,) in db.execute("SELECT pooled FROM vectors")} == {4 * 32}
    assert first(plain, "cup number 2") == first(writer, "cup number 2") == "m2"
    plain.close()
    writer.close()
