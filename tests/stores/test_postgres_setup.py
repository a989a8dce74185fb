"""A PostgreSQL store creates its tables once, and leaves nothing in a connection."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from tests.support.postgres_process import open_core, start
from tests.support.servers import postgres
from tests.support.stores import ADA, keep, list_ids, recall_ids, write_request

from omoide import Filter, Scope
from omoide.errors import Conflict, NotFound, OmoideError, ReadOnly
from omoide.stores import Document, Link, Query
from omoide.stores.postgres import schema
from omoide.testing import HashEmbedder

STARTERS = 8


@pytest.fixture
def url() -> str:
    return postgres().fresh_url()


def test_many_who_start_at_once_make_one_set_of_tables(url: str) -> None:
    """Eight processes open a place where nothing is yet: all of them work, and see one another."""
    processes = [start("first", url, f"p{at}") for at in range(STARTERS)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(b"\n")
            process.stdin.flush()
        said = [process.communicate(timeout=100)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [process.returncode for process in processes] == [0] * STARTERS
    names = {f"p{at}" for at in range(STARTERS)}
    assert all(f"p{at}" in json.loads(words) for at, words in enumerate(said))
    store = open_core(url)
    assert {*list_ids(store)} == names
    assert store.check() == []
    with psycopg.connect(postgres().url) as db:
        found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (store._db.schema,))
        assert sorted(name for (name,) in found) == sorted(schema.TABLES)
        notes = db.execute(f"SELECT name, count(*) FROM {store._db.schema}.settings GROUP BY name")  # noqa: S608
        assert dict(notes.fetchall()) == {"schema": 1, "life": 1, "features": 1}
    store.close()


def test_a_role_that_may_make_nothing_but_in_its_own_schema_is_enough(url: str) -> None:
    """Whoever runs the server makes the schema, and gives it to the one who uses it."""
    server, name = postgres(), url.rpartition("=")[2]
    with psycopg.connect(server.url, autocommit=True) as db:
        db.execute(f"CREATE ROLE owner_{name} LOGIN PASSWORD 'x'")
        db.execute(f"CREATE SCHEMA {name} AUTHORIZATION owner_{name}")
    theirs = f"postgresql://owner_{name}:x@127.0.0.1:{server.port}/postgres"
    with pytest.raises(ReadOnly):
        open_core(f"{theirs}?schema=not_{name}")
    store = open_core(f"{theirs}?schema={name}")
    keep(store, "Tea.", id="a")
    store.erase(ADA, id="a")
    assert store.scrub().scrubbed
    assert store.check() == []
    store.close()


def test_who_only_reads_makes_no_tables(url: str) -> None:
    """Opened with mode=ro, a place without memories is refused and stays as it is."""
    with pytest.raises(ReadOnly, match="open it once without mode=ro"):
        open_core(f"{url}&mode=ro")
    with psycopg.connect(postgres().url) as db:
        found = db.execute("SELECT count(*) FROM pg_namespace WHERE nspname = %s", (url.rpartition("=")[2],))
        assert found.fetchone() == (0,)


def test_a_server_without_pgvector_is_enough(url: str) -> None:
    """Recall by meaning works, and a note says what is missing and how to have it."""
    store = open_core(url, embedder=HashEmbedder(64))
    keep(store, "The harbour at night.", id="a")
    assert recall_ids(store, "harbour") == ["a"]
    told = {finding.name: finding for finding in store.findings()}
    assert told["pgvector"].state == "note"
    assert "CREATE EXTENSION vector" in told["pgvector"].detail
    assert [one.state for one in told.values() if one.name != "durability"].count("problem") == 0
    store.close()


OPERATIONS: dict[str, Callable[[Any], object]] = {
    "write": lambda store: keep(store, "Tea.", id="b"),
    "write of several": lambda store: store.write_many(
        [write_request("Tea.", id=name, namespace=name) for name in ("one", "two")]
    ),
    "conflict": lambda store: keep(store, "Tea.", id="a", expected_rev=99),
    "key": lambda store: keep(store, "Tea.", id="k", idempotency_key="k"),
    "recall": lambda store: recall_ids(store, "tea"),
    "query": lambda store: store.query(Query(scope=ADA)),
    "query of one type": lambda store: store.query(Query(scope=ADA, filter=Filter(types=["fact"]))),
    "missing": lambda store: store.get("nowhere", ADA),
    "link": lambda store: store.link(Link(source="a", relation="refines", target="b"), ADA),
    "supersede": lambda store: store.supersede("b", ADA),
    "restore": lambda store: store.reinstate("b", ADA),
    "access": lambda store: store.record_access(["a"], ADA),
    "changed": lambda store: store.change_feed("default"),
    "save": lambda store: store.save(Document(kind="k", id="d", agent_id="ada", body=1)),
    "append": lambda store: store.append("k", "d", [1, 2], ADA),
    "claim": lambda store: store.claim("k", "d", ADA, owner="o", ttl_ms=1_000),
    "release": lambda store: store.release("k", "d", ADA, owner="o"),
    "stats": lambda store: store.stats(ADA),
    "findings": lambda store: store.findings(),
    "check": lambda store: store.check(),
    "reindex": lambda store: store.reindex(HashEmbedder(32)),
    "erase": lambda store: store.erase(ADA, id="b"),
    "scrub": lambda store: store.scrub(),
    "erase all": lambda store: store.erase(ADA),
    "take": lambda store: store.import_entries([write_request("Tea.", id="t").entry]),
}

LEFT = {
    "prepared": "SELECT count(*) FROM pg_prepared_statements",
    "lock_timeout": "SELECT current_setting('lock_timeout')",
    "search_path": "SELECT current_setting('search_path')",
    "synchronous_commit": "SELECT current_setting('synchronous_commit')",
    "isolation": "SELECT current_setting('default_transaction_isolation')",
    "locks": "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()",
    "tables": "SELECT count(*) FROM pg_class WHERE relpersistence = 't'",
    "listening": "SELECT count(*) FROM pg_listening_channels()",
    "cursors": "SELECT count(*) FROM pg_cursors WHERE name <> ''",
}


def test_nothing_is_left_in_a_connection_between_two_operations(url: str) -> None:
    """A pooler may give the connection to anybody: no setting, lock, statement or channel stays behind."""
    store = open_core(f"{url}&prepare=0&pool=1", embedder=HashEmbedder(64))
    keep(store, "Tea.", id="a")

    def left() -> dict[str, Any]:
        (session,) = store._db._idle
        assert session.connection.info.transaction_status.name == "IDLE"
        return {name: session.connection.execute(asking).fetchone()[0] for name, asking in LEFT.items()}

    clean = left()
    assert (clean["prepared"], clean["locks"], clean["lock_timeout"]) == (0, 0, "0")
    for name, operation in OPERATIONS.items():
        with suppress(Conflict, NotFound):
            operation(store)
        assert left() == clean, name
    store.close()


def test_one_connection_is_enough_for_everything(url: str) -> None:
    """No operation needs a second connection while it holds the first."""
    store = open_core(f"{url}&pool=1", timeout=2, embedder=HashEmbedder(64))
    keep(store, "Tea.", id="a")
    for name, operation in OPERATIONS.items():
        try:
            operation(store)
        except (Conflict, NotFound):
            continue
        except OmoideError as error:
            pytest.fail(f"{name}: {error}")
    store.close()


def test_two_stores_share_one_connection_as_behind_a_pooler(url: str) -> None:
    """Their transactions take turns on the same connection, and neither is mistaken for the other."""
    other = f"{postgres().url}?schema=beside_{os.getpid()}"
    one, two = (open_core(f"{address}&prepare=0&pool=1") for address in (url, other))
    (shared,) = one._db._idle
    two._db._close_idle()
    for n in range(20):
        for store in (one, two):
            shared.schema = store._db.schema
            shared.owners.clear()  # a session belongs to one store; only its connection is shared
            store._db._idle[:] = [shared]
            store._db._open.add(shared.connection)
            keep(store, f"{store._db.schema} {n}", id=f"e{n}", agent_id=store._db.schema)
            assert store._db._idle == [shared]
    for store in (one, two):
        store._db._idle[:] = [shared]
        shared.schema = store._db.schema
        found = store.list_entries(Scope())
        assert {entry.agent_id for entry in found} == {store._db.schema}
        assert len(found) == 20
    two._db._idle.clear()
    two.close()
    one.close()
