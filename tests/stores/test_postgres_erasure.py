"""Erased content leaves no trace on a PostgreSQL server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from tests.support.postgres_process import open_core
from tests.support.stores import ADA, keep, recall_ids, write_request

from omoide import Scope
from omoide.errors import Busy
from omoide.stores import Document, Link
from omoide.testing import HashEmbedder, PostgresServer

EMBEDDER = HashEmbedder(64)
TEXT = "zebraquux drinks tea"
MARKERS = ("zebraquux", "metaquux", "tagquux", "whyquux", "refquux", "quotequux", "speakquux", "oldquux")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    with PostgresServer(fsync="off", autovacuum="off") as server:
        yield server


@pytest.fixture
def store(server: PostgresServer) -> Iterator[Any]:
    store = open_core(server.fresh_url(), embedder=EMBEDDER)
    for n in range(30):
        keep(store, f"Something else, number {n}.", id=f"other {n}", message={"thread": "t", "seq": n})
    yield store
    store.close()


def remember(store: Any) -> None:
    """Keep something that is in every table which holds content."""
    keep(store, "It said oldquux before.", id="a", session_id="s")
    keep(
        store,
        f"{TEXT} {'and so on ' * 1_000}zebraquux",
        id="a",
        session_id="s",
        metadata={"key": "metaquux"},
        tags=["tagquux"],
        rationale="whyquux",
        evidence=[{"kind": "entry", "ref": "refquux", "quote": "quotequux"}],
        message={"thread": "t", "seq": 99, "speaker": "speakquux"},
        idempotency_key="k",
    )
    given = write_request("It has a vector of vecquux.", id="v", session_id="s")
    store.write_with_vector(given, EMBEDDER.embed([TEXT])[0].pooled.tolist())
    store.link(Link(source="a", relation="refines", target="other 1"), ADA)
    store.save(Document(kind="k", id="d", agent_id="ada", session_id="s", body={"said": "docquux"}))
    store.append("k", "d", ["logquux"], ADA)
    store.record_access(["a"], ADA)
    recall_ids(store, "zebraquux")


WANTED = (*MARKERS, "docquux", "logquux", "vecquux")


def vector() -> bytes:
    return bytes(EMBEDDER.embed([TEXT])[0].pooled.astype("<f4").tobytes())


def in_tables(server: PostgresServer, schema: str) -> set[str | bytes]:
    """Which markers are in some row, or in what the server has noted about the columns."""
    found: set[str | bytes] = set()
    with psycopg.connect(server.url) as db:
        names = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)).fetchall()
        dumps = [db.execute(f'SELECT * FROM "{schema}".{name}').fetchall() for (name,) in names]  # noqa: S608
        noted = db.execute(
            "SELECT most_common_vals::text, histogram_bounds::text FROM pg_stats WHERE schemaname = %s",
            (schema,),
        ).fetchall()
    values = [value for rows in (*dumps, noted) for row in rows for value in row if value is not None]
    for value in values:
        raw = bytes(value) if isinstance(value, (bytes, memoryview)) else str(value).encode()
        found |= {
            marker for marker in WANTED if marker.encode() in raw or marker.encode().hex().encode() in raw
        }
        found |= {vector()} if vector() in raw or vector().hex().encode() in raw else set()
    return found


def in_files(server: PostgresServer) -> set[str | bytes]:
    """Which markers are in the server's files; its write-ahead log aside."""
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("CHECKPOINT")
    files = [path for path in (server.data / "base").rglob("*") if path.is_file()]
    data = [path.read_bytes() for path in files]
    return {
        marker
        for marker in (*WANTED, vector())
        if any((marker.encode() if isinstance(marker, str) else marker) in one for one in data)
    }


def analyze(server: PostgresServer) -> None:
    """What the server does by itself from time to time: it looks at samples of every table."""
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute("ANALYZE")


def test_an_erased_scope_is_in_no_table(server: PostgresServer, store: Any) -> None:
    """Neither in a row nor in the samples that the server keeps of a column."""
    remember(store)
    analyze(server)
    assert in_tables(server, store._db.schema) >= {*WANTED, vector()}
    receipt = store.erase(Scope(agent_id="ada", session_id="s"))
    assert {*receipt.ids} == {"a", "v"}
    assert receipt.pending
    assert any("write-ahead log" in one for one in receipt.unreachable)
    assert in_tables(server, store._db.schema) == set()
    assert store.check() == []


def test_after_a_scrub_nothing_is_in_the_files(server: PostgresServer, store: Any) -> None:
    """Deleted rows stay in their pages until the tables are written anew; then they are gone."""
    remember(store)
    analyze(server)
    store.erase(Scope(agent_id="ada", session_id="s"))
    assert in_files(server), "there would be nothing to scrub"
    receipt = store.scrub()
    assert (receipt.scrubbed, receipt.pending) == (True, ())
    assert any("write-ahead log" in one for one in receipt.unreachable)
    assert in_files(server) == set()
    assert store.check() == []
    assert len(store.list_entries(ADA)) == 30


def test_a_scrub_says_when_somebody_may_still_see_what_was_erased(server: PostgresServer, store: Any) -> None:
    """While an old transaction lasts, deleted rows stay, and the receipt says so; later they go."""
    keep(store, TEXT, id="a")
    with psycopg.connect(server.url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        store.erase(ADA, id="a")
        receipt = store.scrub()
        assert receipt.scrubbed is False
        assert any("entries" in one for one in receipt.pending)
    cleared = store.scrub()
    assert (cleared.scrubbed, cleared.pending) == (True, ())
    assert "zebraquux" not in in_files(server)


def test_a_scrub_that_others_hold_up_is_busy(server: PostgresServer) -> None:
    """Whoever reads a table keeps it from being written anew; the error is one of ours."""
    store = open_core(server.fresh_url(), timeout=0.3)
    keep(store, TEXT, id="a")
    with psycopg.connect(server.url) as reader:
        reader.execute(f"SELECT * FROM {store._db.schema}.entries")  # noqa: S608
        with pytest.raises(Busy):
            store.scrub()
    assert store.scrub().scrubbed
    store.close()
