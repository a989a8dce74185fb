"""Stores that were written before there were users and keys lose nothing, and have both from then on."""

from __future__ import annotations

import signal
import sqlite3
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from tests.support import older_process
from tests.support.servers import postgres
from tests.support.stores import ADA, a_store, keep, open_core, url, write_request

from omoide import Entry, Scope, clock
from omoide.errors import Erased, ReadOnly, WrongVersion
from omoide.stores import Document, open_store
from omoide.stores.postgres import schema as tables
from omoide.stores.redis import layout
from omoide.stores.sqlite import connection
from omoide.testing import FrozenClock, eventually

SCHEMAS = range(1, connection.VERSION)
"""The earlier schemas of a file."""


def make_file(path: Path, schema: int) -> None:
    """Make a file as the Omoide of an earlier schema wrote it."""
    written = Path(__file__).with_name(f"schema_{max(schema, 2)}.sql")
    with sqlite3.connect(path) as db:
        db.executescript(written.read_text("utf-8"))
        if schema == 1:  # the second migration added these tables and nothing else
            for table in ("receipts", "documents", "document_log", "leases"):
                db.execute(f"DROP TABLE {table}")
            db.execute("PRAGMA user_version = 1")
    db.close()


def fill_as_before(store: Any) -> None:
    """Write what the files of earlier schemas hold."""
    with clock.override(FrozenClock(1_000)) as time:

        def write(content: str, id: str, **fields: Any) -> None:
            keep(store, content, id=id, **fields)
            time.advance(10)

        write("The kettle is on.", "plain", idempotency_key="once")
        write(
            "Prices are kept in cents.",
            "placed",
            session_id="s1",
            project_id="shop",
            type="decision",
            tags=["money"],
        )
        write("Berlin is her home.", "old")
        write("Paris is her home.", "new", supersedes="old")
        write("She speaks German.", "derived", evidence=[{"kind": "entry", "ref": "old"}])
        write("A secret.", "gone", session_id="s1")
        store.erase(ADA, id="gone", reason="asked to")
        body = {"turns": 2}
        store.save(
            Document(kind="session", id="conv-1", agent_id="ada", session_id="s1", body=body, log=({"n": 1},))
        )


def check_upgraded(store: Any, *, has_documents: bool = True) -> None:
    """Check that everything is there, and that users and keys work beside it.

    Args:
        store: the store after the upgrade.
        has_documents: False for a schema that had neither documents nor receipts.
    """
    with clock.override(FrozenClock(2_000)):
        entries = {entry.id: entry for entry in store.list_entries(Scope())}
        assert sorted(entries) == ["derived", "new", "old", "placed", "plain"]
        assert all((entry.user_id, entry.key) == (None, None) for entry in entries.values())
        assert (entries["old"].superseded_by, entries["derived"].stale) == ("new", True)
        assert store.list_entries(Scope(agent_id="ada", session_id="s1", project_id="shop")) == [
            entries["placed"]
        ]
        with pytest.raises(Erased, match="asked to"):
            store.get("gone", ADA, as_of=1_055)
        loaded = store.load("session", "conv-1", ADA)
        if has_documents:
            assert (loaded.body, loaded.log, loaded.user_id) == ({"turns": 2}, ({"n": 1},), None)

        # What follows from the content alone is the same as before.
        assert store.write(write_request("Paris is her home.", dedupe=True)).entry.id == "new"
        again = store.write(write_request("The kettle is on.", id="plain", idempotency_key="once"))
        assert (again.outcome, again.rev) == ("stored" if has_documents else "unchanged", 1)

        keep(store, "Rome.", id="r1", key="city", user_id="u", session_id="s1")
        receipt = store.write(write_request("Oslo.", id="r2", key="city", user_id="u", session_id="s1"))
        assert receipt.metadata["superseded"] == "r1"
        assert [entry.id for entry in store.list_entries(Scope(user_id="u"))] == ["r1", "r2"]
        store.save(Document(kind="session", id="conv-2", agent_id="ada", user_id="u", body=1))
        assert [one.id for one in store.documents("session", Scope(user_id="u"))] == ["conv-2"]
        assert sorted(store.erase(Scope(user_id="u")).ids) == ["r1", "r2"]
        assert store.load("session", "conv-2", Scope()) is None
        assert (store.load("session", "conv-1", Scope()) is not None) is has_documents
        with pytest.raises(Erased):
            store.get("r1", Scope(user_id="u"), as_of=1_999)
        assert [one.id for one in store.history("r1", Scope(user_id="u"))] == ["r1"]
    store.reindex()
    assert store.check() == []


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_sqlite_file_of_an_earlier_schema_is_migrated(tmp_path: Path, schema: int) -> None:
    """It opens for reading only after it was migrated."""
    path = tmp_path / "memory.db"
    make_file(path, schema)
    with pytest.raises(ReadOnly):
        open_store(f"sqlite:///{path}?mode=ro", embedder="none")
    with a_store("sqlite", tmp_path) as store:
        check_upgraded(store, has_documents=schema > 1)
    with sqlite3.connect(path) as db:
        assert connection.schema_version(db) == connection.VERSION
    db.close()


@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_backup_of_an_earlier_schema_can_be_restored(tmp_path: Path, schema: int) -> None:
    """The restored file is migrated on the way."""
    backup = tmp_path / "backup.db"
    make_file(backup, schema)
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Something else.", key="city", user_id="u")
        store.restore_backup(backup)
        check_upgraded(store, has_documents=schema > 1)


def make_postgres(folder: Path, schema: int) -> None:
    """Make tables of an earlier schema of PostgreSQL, which a later one only added columns to."""
    added: dict[str, dict[int, tuple[str, ...]]] = {
        "entries": {2: ("user_id", "key"), 3: ("checksum",)},
        "versions": {3: ("checksum",)},
        "tombstones": {2: ("user_id",)},
        "documents": {2: ("user_id",), 3: ("checksum",)},
        "document_log": {3: ("checksum",)},
        "receipts": {2: ("superseded",)},
        "leases": {3: ("ttl",)},
    }
    with a_store("postgres", folder) as store:
        fill_as_before(store)
        with store._db.write_transaction() as db:
            for table, by_schema in added.items():
                for number, columns in by_schema.items():
                    for column in columns if number > schema else ():
                        db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            db.execute("UPDATE settings SET value = ? WHERE name = 'schema'", (str(schema),))


def postgres_version(store: Any) -> str:
    """The number of the schema of a store on PostgreSQL."""
    with store._db.read_transaction() as db:
        return str(db.execute("SELECT value FROM settings WHERE name = 'schema'").fetchone()[0])


@pytest.mark.parametrize("schema", range(1, tables.VERSION))
def test_a_postgresql_schema_of_before_is_migrated(tmp_path: Path, schema: int) -> None:
    """The rows stay as they are, and the new columns are empty."""
    make_postgres(tmp_path, schema)
    with a_store("postgres", tmp_path) as store:
        assert postgres_version(store) == str(tables.VERSION)
        check_upgraded(store)


def die_at_each(kind: str, folders: dict[int, Path]) -> None:
    """Migrate the store in each folder with a process that is killed after so many statements."""
    started = [older_process.start("migrate_and_die", url(kind, folders[at]), at) for at in folders]
    for process in started:
        assert older_process.finish(process) == (-signal.SIGKILL, "")


def count_statements(migrations: Iterable[str]) -> int:
    """The number of statements of migrations, and of those that write down the number of each."""
    return sum(len([one for one in text.split(";") if one.strip()]) + 1 for text in migrations)


@pytest.mark.parametrize("schema", [1, 4])
def test_a_file_whose_migration_was_killed_is_as_before(tmp_path: Path, schema: int) -> None:
    """Whichever statement was the last, nothing of it is left, and the next process migrates it."""
    count = count_statements(connection.MIGRATIONS[schema:])
    folders = {number: tmp_path / str(number) for number in (1, count // 2, count)}
    for folder in folders.values():
        folder.mkdir()
        make_file(folder / "memory.db", schema)
    with sqlite3.connect(folder / "memory.db") as db:
        before = [*db.iterdump()]
    db.close()
    die_at_each("sqlite", folders)
    for folder in folders.values():
        with sqlite3.connect(folder / "memory.db") as db:
            assert connection.schema_version(db) == schema
            assert [*db.iterdump()] == before
        db.close()
        with a_store("sqlite", folder) as store:
            check_upgraded(store, has_documents=schema > 1)


def test_a_postgresql_migration_that_was_killed_leaves_nothing(tmp_path: Path) -> None:
    """The server undoes it, and the next process migrates the tables."""
    count = count_statements(tables.MIGRATIONS[1:]) - 1  # one number is written for all of them
    folders = {number: tmp_path / str(number) for number in (1, count)}
    for folder in folders.values():
        make_postgres(folder, 1)
    die_at_each("postgres", folders)
    for folder in folders.values():
        with pytest.raises(ReadOnly, match="older schema"):
            open_core("postgres", folder, read_only=True)
        with a_store("postgres", folder) as store:
            check_upgraded(store)


@pytest.mark.parametrize("kind", ["sqlite", "postgres", "redis"])
def test_a_process_of_an_older_version_is_refused_once_the_store_was_migrated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It had the store open all the time: whatever it tries, nothing is written."""
    process = older_process.start("keep_open", url(kind, tmp_path))
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    older_process.add_migration(monkeypatch.setattr)
    with a_store(kind, tmp_path) as store:
        before = everything_of(store)
        _, output = older_process.finish(process, "\n")
        outcomes = dict(line.split(": ") for line in output.splitlines())
        assert len(outcomes) == 9
        assert set(outcomes.values()) == {"WrongVersion"}
        assert everything_of(store) == before
        assert keep(store, "Paris.", id="new", user_id="ann").rev == 1


async def test_a_migration_waits_for_writes_that_have_begun(tmp_path: Path) -> None:
    """Such a write is whole; the next one of the older process finds the newer number."""
    with a_store("postgres", tmp_path) as older:
        keep(older, "Tea.", id="a")
        with older._db.write_transaction() as db:
            db.execute("SELECT 1").fetchone()
            process = older_process.start("migrate_later", url("postgres", tmp_path))
            with psycopg.connect(postgres().url, autocommit=True) as admin:
                waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                await eventually(lambda: admin.execute(waiting).fetchone() == (1,), timeout=30)
            assert postgres_version(older) == str(tables.VERSION)
            db.execute("UPDATE entries SET importance = 0.5 WHERE id = 'a'")
        assert older_process.finish(process) == (0, "migrated\n")
        with pytest.raises(WrongVersion):
            keep(older, "Coffee.", id="b")


def everything_of(store: Any) -> tuple[object, ...]:
    """All entries with their history, the documents, and the changes of a store."""
    entries = store.list_entries(Scope())
    return (
        entries,
        [store.history(entry.id, entry.scope) for entry in entries],
        [store.load("session", one.id, Scope()) for one in store.documents("session", Scope())],
        store.changes("default"),
    )


def without_checksum(raw: bytes, start: int = 0) -> bytes:
    """A value of Redis without the checksum that begins at a position."""
    return raw[:start] + raw[start + 5 :] if raw[start : start + 1] == b"\xc1" else raw


def without_last_field(raw: bytes) -> bytes:
    """A value of Redis as it was before its last field was added."""
    start = layout.STAMP_LENGTH
    return raw[:start] + msgspec.msgpack.encode(msgspec.msgpack.decode(raw[start:])[:-1])


def without_users(raw: bytes) -> bytes:
    """Tombstones as they were before they had a user."""
    start = layout.STAMP_LENGTH
    return raw[:start] + msgspec.msgpack.encode([one[:-1] for one in msgspec.msgpack.decode(raw[start:])])


def without_user(raw: bytes) -> bytes:
    """The owner of a document as it was before it had a user."""
    return raw.rsplit(layout.SEPARATOR.encode(), 1)[0]


OLD_VALUES: dict[int, dict[str, Callable[[bytes], bytes]]] = {
    2: {
        "rows": partial(without_checksum, start=3 * layout.STAMP_LENGTH),
        "past": without_checksum,
        "docs": partial(without_checksum, start=layout.STAMP_LENGTH),
    },
    1: {
        "stones": without_users,
        "docs": without_last_field,
        "owners": without_user,
        "receipts": without_last_field,
    },
}
"""How values were before the schema that came after each."""


def make_redis(folder: Path, schema: int) -> None:
    """Make a store on Redis as the Omoide of an earlier schema wrote it."""
    with a_store("redis", folder) as store:
        fill_as_before(store)
        server, keys = store._server, store._transactions.keys("default")
        steps = [
            (name, older)
            for at, by_name in OLD_VALUES.items()
            for name, older in by_name.items()
            if at >= schema
        ]
        for name, older in steps:
            flat = server.execute("HGETALL", keys(name))
            pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
            for field, raw in [*pairs]:
                assert older(raw) != raw
                server.execute("HSET", keys(name), field, older(raw))
        log = store._transactions.snapshot().log_key(("default", "session", "conv-1"))
        for at, raw in enumerate(server.execute("LRANGE", log, "0", "-1")):
            server.execute("LSET", log, str(at), without_checksum(raw))
        server.execute("HSET", store._store_key, "schema", str(schema))


@pytest.mark.parametrize("schema", range(1, layout.SCHEMA_VERSION))
def test_a_redis_store_of_an_earlier_schema_is_read_as_it_is(tmp_path: Path, schema: int) -> None:
    """Opened for reading it stays of its schema; opened for writing it gets the number of this one."""
    make_redis(tmp_path, schema)
    with a_store("redis", tmp_path, read_only=True) as store:
        assert len(store.list_entries(Scope())) == 5
        assert store._server.execute("HGET", store._store_key, "schema") == str(schema).encode()
    with a_store("redis", tmp_path) as store:
        check_upgraded(store)
        number = store._server.execute("HGET", store._store_key, "schema")
        assert int(number) == layout.SCHEMA_VERSION


def remove_checksums(store: Any) -> int:
    """Make all values of a Redis store those of schema 2; return their number."""
    server, keys, count = store._server, store._transactions.keys("default"), 0
    for name, at in layout.SEAL_POSITIONS.items():
        flat = server.execute("HGETALL", keys(name))
        for field, raw in flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True):
            server.execute("HSET", keys(name), field, raw[:at] + raw[at + 5 :])
            count += 1
    for key in server.scan(keys("doclog").decode() + "*"):
        for at, raw in enumerate(server.execute("LRANGE", key, 0, -1)):
            server.execute("LSET", key, at, raw[5:])
            count += 1
    server.execute("HSET", store._store_key, "schema", "2")
    return count


def test_values_of_redis_without_a_checksum_are_counted(tmp_path: Path) -> None:
    """Opened for reading and after an upgrade, until they change or a repair gives each of them one."""
    with a_store("redis", tmp_path) as store:
        fill_as_before(store)
        keep(store, "The kettle is off.", id="plain")
        assert store.stats(Scope()).unchecked == 0
        older = remove_checksums(store)
        assert older > 8
    with a_store("redis", tmp_path) as store:
        assert store.stats(Scope()).unchecked == older
        assert store.stats(Scope(namespace="other")).unchecked == older
        keep(store, "The kettle is hot.", id="plain")
        assert store.stats(Scope()).unchecked == older - 1
        assert store.repair().checked == older - 1
        assert store.stats(Scope()).unchecked == 0


def test_an_entry_without_user_and_key_is_encoded_as_before(tmp_path: Path) -> None:
    """Its stored bytes name neither."""
    from omoide.stores.records import decode_entry, encode_entry

    entry = Entry(id="a", agent_id="ada", content="x", created_at=1, rev=1)
    assert b"user_id" not in encode_entry(entry)
    assert b"key" not in encode_entry(entry)
    mine = entry.replace(user_id="u", key="city")
    assert decode_entry(encode_entry(mine)) == mine
