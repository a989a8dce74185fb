"""Stores that were written before there were users and keys lose nothing, and have both from then on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.support.stores import ADA, a_store, keep, write_request

from omoide import Entry, Scope, clock
from omoide.errors import Erased, ReadOnly
from omoide.stores import Document, open_store
from omoide.stores.postgres import schema
from omoide.stores.redis import layout
from omoide.stores.sqlite import connection
from omoide.testing import FrozenClock

OLD_FILE = Path(__file__).with_name("schema_4.sql")
"""A file of schema 4, as the Omoide of that schema wrote it."""


def fill_as_before(store: Any) -> None:
    """Write what `schema_4.sql` holds."""
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


def check_upgraded(store: Any) -> None:
    """Check that everything is there, and that users and keys work beside it."""
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
        assert (loaded.body, loaded.log, loaded.user_id) == ({"turns": 2}, ({"n": 1},), None)

        # What follows from the content alone is the same as before.
        assert store.write(write_request("Paris is her home.", dedupe=True)).entry.id == "new"
        again = store.write(write_request("The kettle is on.", id="plain", idempotency_key="once"))
        assert (again.outcome, again.rev) == ("stored", 1)

        keep(store, "Rome.", id="r1", key="city", user_id="u", session_id="s1")
        receipt = store.write(write_request("Oslo.", id="r2", key="city", user_id="u", session_id="s1"))
        assert receipt.metadata["superseded"] == "r1"
        assert [entry.id for entry in store.list_entries(Scope(user_id="u"))] == ["r1", "r2"]
        store.save(Document(kind="session", id="conv-2", agent_id="ada", user_id="u", body=1))
        assert [one.id for one in store.documents("session", Scope(user_id="u"))] == ["conv-2"]
        assert sorted(store.erase(Scope(user_id="u")).ids) == ["r1", "r2"]
        assert store.load("session", "conv-2", Scope()) is None
        assert store.load("session", "conv-1", Scope()) is not None
        with pytest.raises(Erased):
            store.get("r1", Scope(user_id="u"), as_of=1_999)
        assert [one.id for one in store.history("r1", Scope(user_id="u"))] == ["r1"]
    store.reindex()
    assert store.check() == []


def test_a_sqlite_file_of_schema_4_is_migrated(tmp_path: Path) -> None:
    """It opens for reading only after it was migrated."""
    path = tmp_path / "memory.db"
    with sqlite3.connect(path) as db:
        db.executescript(OLD_FILE.read_text("utf-8"))
    db.close()
    with pytest.raises(ReadOnly):
        open_store(f"sqlite:///{path}?mode=ro", embedder="none")
    with a_store("sqlite", tmp_path) as store:
        check_upgraded(store)
    with sqlite3.connect(path) as db:
        assert connection.schema_version(db) == connection.VERSION
    db.close()


def test_a_backup_of_schema_4_can_be_restored(tmp_path: Path) -> None:
    """The restored file is migrated on the way."""
    backup = tmp_path / "backup.db"
    with sqlite3.connect(backup) as db:
        db.executescript(OLD_FILE.read_text("utf-8"))
    db.close()
    with a_store("sqlite", tmp_path) as store:
        keep(store, "Something else.", key="city", user_id="u")
        store.restore_backup(backup)
        check_upgraded(store)


def test_a_postgresql_schema_of_before_is_migrated(tmp_path: Path) -> None:
    """The rows stay as they are, and the new columns are empty."""
    with a_store("postgres", tmp_path) as store:
        fill_as_before(store)
        with store._db.write_transaction() as db:
            for table, columns in {
                "entries": ("user_id", "key", "checksum"),
                "versions": ("checksum",),
                "tombstones": ("user_id",),
                "documents": ("user_id", "checksum"),
                "document_log": ("checksum",),
                "receipts": ("superseded",),
                "leases": ("ttl",),
            }.items():
                for column in columns:
                    db.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
            db.execute("UPDATE settings SET value = '1' WHERE name = 'schema'")
    with a_store("postgres", tmp_path) as store:
        with store._db.read_transaction() as db:
            (version,) = db.execute("SELECT value FROM settings WHERE name = 'schema'").fetchone()
        assert version == str(schema.VERSION)
        check_upgraded(store)


def without_last_field(raw: bytes) -> bytes:
    """A value of Redis as it was before its last field was added."""
    start = layout.STAMP_LENGTH
    value = raw[start + 5 :] if raw[start : start + 1] == b"\xc1" else raw[start:]
    return raw[:start] + msgspec.msgpack.encode(msgspec.msgpack.decode(value)[:-1])


def without_users(raw: bytes) -> bytes:
    """Tombstones as they were before they had a user."""
    start = layout.STAMP_LENGTH
    return raw[:start] + msgspec.msgpack.encode([one[:-1] for one in msgspec.msgpack.decode(raw[start:])])


def without_user(raw: bytes) -> bytes:
    """The owner of a document as it was before it had a user."""
    return raw.rsplit(layout.SEPARATOR.encode(), 1)[0]


OLD_VALUES: dict[str, Callable[[bytes], bytes]] = {
    "stones": without_users,
    "docs": without_last_field,
    "owners": without_user,
    "receipts": without_last_field,
}


def test_a_redis_store_of_schema_1_is_read_as_it_is(tmp_path: Path) -> None:
    """Opened for reading it stays of schema 1; opened for writing it becomes one of schema 3."""
    with a_store("redis", tmp_path) as store:
        fill_as_before(store)
        server, keys = store._server, store._transactions.keys("default")
        for name, older in OLD_VALUES.items():
            flat = server.execute("HGETALL", keys(name))
            pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
            for field, raw in [*pairs]:
                server.execute("HSET", keys(name), field, older(raw))
        server.execute("HSET", store._store_key, "schema", "1")
    with a_store("redis", tmp_path, read_only=True) as store:
        assert len(store.list_entries(Scope())) == 5
        assert store._server.execute("HGET", store._store_key, "schema") == b"1"
    with a_store("redis", tmp_path) as store:
        check_upgraded(store)
        assert store._server.execute("HGET", store._store_key, "schema") == b"3"


def test_an_entry_without_user_and_key_is_encoded_as_before(tmp_path: Path) -> None:
    """Its stored bytes name neither."""
    from omoide.stores.records import decode_entry, encode_entry

    entry = Entry(id="a", agent_id="ada", content="x", created_at=1, rev=1)
    assert b"user_id" not in encode_entry(entry)
    assert b"key" not in encode_entry(entry)
    mine = entry.replace(user_id="u", key="city")
    assert decode_entry(encode_entry(mine)) == mine
