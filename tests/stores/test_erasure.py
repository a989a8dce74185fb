"""Erased content leaves no trace in the files."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.stores import ADA, a_store, keep, recall_ids

from omoide import RecallRequest, Scope
from omoide.stores import Document, EraseReceipt, Link
from omoide.testing import HashEmbedder

EMBEDDER = HashEmbedder(64)
ROUNDS = 150


def files(folder: Path) -> dict[str, bytes]:
    """The raw bytes of everything that the store keeps in its folder."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def traces(folder: Path, *markers: str | bytes) -> list[tuple[str, str | bytes]]:
    """In which files a marker is still found, in any case of letters."""
    return [
        (name, marker)
        for name, data in files(folder).items()
        for marker in markers
        if (marker.encode() if isinstance(marker, str) else marker).lower() in data.lower()
    ]


def vectors_of(text: str) -> bytes:
    """The bytes of a text's vector, of which no part may stay."""
    return bytes(EMBEDDER.embed([text])[0].pooled.tobytes())


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with a_store("sqlite", tmp_path, embedder=EMBEDDER) as store:
        for n in range(20):
            keep(store, f"Something else, number {n}.", id=f"other {n}", message={"thread": "t", "seq": n})
        yield store


def test_an_erased_entry_leaves_no_bytes(store: Any, tmp_path: Path) -> None:
    """Content, metadata, tags, rationale, evidence and vector are gone, from the write-ahead log too."""
    text = "zebraquux drinks tea"
    keep(
        store,
        text,
        id="a",
        metadata={"key": "metaquux"},
        tags=["tagquux"],
        rationale="whyquux",
        evidence=[{"kind": "document", "ref": "refquux", "quote": "quotequux"}],
        message={"thread": "t", "seq": 9, "speaker": "speakquux"},
    )
    markers = ["zebraquux", "metaquux", "tagquux", "whyquux", "refquux", "quotequux", "speakquux"]
    assert {marker for _, marker in traces(tmp_path, *markers)} == {*markers}
    assert traces(tmp_path, vectors_of(text))
    receipt: EraseReceipt = store.erase(ADA, id="a")
    assert (receipt.scrubbed, receipt.pending) == (True, ())
    assert receipt.unreachable
    assert traces(tmp_path, *markers, vectors_of(text)) == []
    assert store.check() == []


def test_every_version_goes(store: Any, tmp_path: Path) -> None:
    """What an entry said before it was changed, superseded and restored is erased with it."""
    markers = [f"version{n}quux" for n in range(6)]
    for marker in markers:
        keep(store, f"It said {marker} then.", id="a")
    store.supersede("a", ADA, reason="reasonquux")
    store.reinstate("a", ADA)
    assert store.erase(ADA, id="a").versions == 8
    assert traces(tmp_path, *markers, "reasonquux") == []


def test_what_stands_beside_an_entry_goes_with_it(store: Any, tmp_path: Path) -> None:
    """Links, receipts of idempotent writes, and the neighbours' windows keep nothing of it."""
    keep(store, "Said neighbourquux here.", id="a", idempotency_key="k", message={"thread": "t", "seq": 3})
    store.link(Link(source="a", relation="relationquux", target="other 1"), ADA)
    recall_ids(store, "neighbourquux", limit=20)
    store.erase(ADA, id="a")
    assert traces(tmp_path, "neighbourquux", "relationquux") == []
    assert "a" not in recall_ids(store, "neighbourquux", limit=20)
    assert store.recall(RecallRequest(agent_id="ada", query="neighbourquux")).weak


def test_a_scope_goes_with_its_documents(store: Any, tmp_path: Path) -> None:
    """Saved bodies, older ones, and what was appended leave nothing."""
    session: dict[str, Any] = {"kind": "session", "id": "d", "agent_id": "ada", "session_id": "s"}
    store.save(Document(**session, body={"said": "firstquux"}))
    store.save(Document(**session, body={"said": "secondquux"}))
    store.append("session", "d", [{"said": "appendquux"}], ADA)
    keep(store, "entryquux", id="a", session_id="s")
    receipt = store.erase(Scope(agent_id="ada", session_id="s"))
    assert (receipt.ids, receipt.documents) == (("a",), 1)
    assert traces(tmp_path, "firstquux", "secondquux", "appendquux", "entryquux") == []


def test_long_content_leaves_no_pages_behind(store: Any, tmp_path: Path) -> None:
    """Content that fills many pages is gone from all of them."""
    words = [f"page{n}quux" for n in range(20_000)]
    keep(store, " ".join(words), id="a")
    store.erase(ADA, id="a")
    assert traces(tmp_path, "quux") == []


def test_vectors_of_an_embedder_that_is_gone_are_gone(store: Any, tmp_path: Path) -> None:
    """After the vectors were renewed and the entry erased, neither the old nor the new one is left."""
    text = "zebraquux drinks tea"
    keep(store, text, id="a")
    store.supersede("a", ADA)
    other = HashEmbedder(48)
    store.reindex(other)
    assert store.erase(ADA, id="a").scrubbed
    new = bytes(other.embed([text])[0].pooled.tobytes())
    assert traces(tmp_path, "zebraquux", vectors_of(text), new) == []


def test_what_another_process_holds_open_does_not_keep_it(store: Any, tmp_path: Path) -> None:
    """A second store on the same file, which has recalled the entry, neither shows nor keeps it."""
    keep(store, "zebraquux", id="a")
    with a_store("sqlite", tmp_path, embedder=EMBEDDER) as other:
        assert recall_ids(other, "zebraquux", limit=1) == ["a"]
        receipt = store.erase(ADA, id="a")
        assert "a" not in recall_ids(other, "zebraquux", limit=50)
        assert receipt.scrubbed
        assert traces(tmp_path, "zebraquux") == []


def test_the_receipt_says_when_a_reader_holds_up_the_scrubbing(store: Any, tmp_path: Path) -> None:
    """What cannot be cleared yet is pending, and `scrub` clears it afterwards."""
    keep(store, "zebraquux", id="a")
    reader = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        receipt = store.erase(ADA, id="a")
        assert receipt.ids == ("a",)
        assert receipt.scrubbed is False
        assert receipt.pending
        reader.execute("COMMIT")
    finally:
        reader.close()
    cleared = store.scrub()
    assert (cleared.scrubbed, cleared.pending) == (True, ())
    assert traces(tmp_path, "zebraquux") == []


def test_a_large_file_is_rewritten_by_scrub(
    store: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An erasure does not wait for it: its receipt says what to do, and `scrub` does it."""
    monkeypatch.setattr("omoide.stores.sqlite.store._REWRITE_LIMIT", 10_000)
    keep(store, "zebraquux", id="a")
    receipt = store.erase(ADA, id="a")
    assert receipt.scrubbed is False
    assert ["call scrub()" in pending for pending in receipt.pending] == [True]
    cleared = store.scrub()
    assert (cleared.scrubbed, cleared.pending) == (True, ())
    assert traces(tmp_path, "zebraquux") == []


def test_while_another_process_reads_erasures_do_not_fill_the_disk(store: Any, tmp_path: Path) -> None:
    """The file is not rewritten into a log that cannot be emptied."""
    for n in range(10):
        keep(store, "tea " * 20_000, id=f"e{n}")
    store.scrub()
    size = (tmp_path / "memory.db").stat().st_size
    reader = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    try:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM sqlite_master").fetchone()
        for n in range(3):
            assert store.erase(ADA, id=f"e{n}").scrubbed is False
        assert (tmp_path / "memory.db-wal").stat().st_size < size
    finally:
        reader.close()
    assert store.scrub().scrubbed


def test_no_trace_is_left_after_a_long_life(store: Any, tmp_path: Path) -> None:
    """After many random writes, changes and erasures, all that was erased is gone and all else is there."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    chance = random.Random(seed)
    said: dict[str, list[str]] = {}
    gone: list[str] = []
    for n in range(ROUNDS):
        id = f"e{chance.randrange(25)}"
        marker = f"m{n}quux"
        match chance.randrange(6):
            case 0 | 1 | 2:
                padding = "tea " * chance.choice((1, 30, 2_000))
                keep(store, f"{padding} {marker}", id=id, idempotency_key=f"k{n}")
                said.setdefault(id, []).append(marker)
            case 3 if id in said:
                store.supersede(id, ADA, reason=marker)
                said[id].append(marker)
            case 4 if id in said:
                store.reinstate(id, ADA)
            case 5 if id in said:
                store.erase(ADA, id=id)
                gone += said.pop(id)
            case _:
                pass
    assert store.scrub().scrubbed
    found = {marker for _, marker in traces(tmp_path, *(f" {m}" for m in gone), *(f'"{m}"' for m in gone))}
    assert found == set()
    for id, markers in said.items():
        assert store.get(id, ADA).content.endswith(tuple(markers))
    assert store.check() == []
    store.erase(ADA)
    store.scrub()
    assert traces(tmp_path, "quux") == []
