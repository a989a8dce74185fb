"""A damaged, full, protected, older or newer file is reported, and never made worse."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from base64 import b64decode
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.support.store_process import OPTIONS, start
from tests.support.stores import ADA, a_store, keep, list_ids, open_core, recall_ids

from omoide import Filter, RecallRequest, Scope
from omoide.errors import (
    Busy,
    Corrupted,
    DiskFull,
    Invalid,
    NotFound,
    ReadOnly,
    StoreFailed,
    WrongVersion,
)
from omoide.stores import Document, Link, Query, open_store
from omoide.stores.sqlite import connection
from omoide.stores.sqlite.salvage import repair_file
from omoide.testing import HashEmbedder


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A file with a life behind it, closed."""
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        for n in range(60):
            keep(store, f"Tea number {n} of many, with some words around it.", id=f"e{n}")
        keep(store, "Changed.", id="e3")
        store.supersede("e4", ADA)
        store.erase(ADA, id="e5")
        store.link(Link(source="e6", relation="refines", target="e7"), ADA)
        store.save(Document(kind="session", id="d", agent_id="ada", body="Tea."))
    return tmp_path / "memory.db"


def whole(path: Path) -> list[Any]:
    """All that a file holds."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert store.check() == []
        return [store.list_entries(Scope()), store.changes("default"), store.load("session", "d", ADA)]


def find_problems(path: Path) -> list[str]:
    """Use every part of a file; what is found to be wrong, if nothing is raised."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        store.list_entries(Scope())
        recall_ids(store, "tea", limit=100)
        store.changes("default")
        store.load("session", "d", ADA)
        problems: list[str] = store.check()
        return problems


# Damage


@pytest.mark.parametrize("junk", [b"\0" * 100, b"This is no database at all. " * 20], ids=["zeros", "text"])
def test_a_damaged_header_is_reported(path: Path, junk: bytes) -> None:
    """Opening fails with the remedy, and does not touch the file."""
    data = bytearray(path.read_bytes())
    data[: len(junk)] = junk
    path.write_bytes(data)
    with pytest.raises(Corrupted) as caught:
        open_core("sqlite", path.parent, **OPTIONS)
    assert caught.value.remedy
    assert path.read_bytes() == data


@pytest.mark.parametrize("seed", range(12))
def test_damage_in_the_middle_is_reported(path: Path, seed: int) -> None:
    """It is either found by a check or reported as damage, and never as anything else."""
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    for page in range(1 + seed % 3, pages, 3):
        data[page * 4096 : page * 4096 + 600] = bytes((seed * 37 + at * 13) % 256 for at in range(600))
    path.write_bytes(data)
    try:
        problems = find_problems(path)
    except Corrupted as error:
        problems = [str(error)]
    assert problems


def test_a_file_that_was_cut_off_is_reported(path: Path) -> None:
    """Half a file is no file."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2 // 4096 * 4096 + 100])
    try:
        problems = find_problems(path)
    except Corrupted as error:
        problems = [str(error)]
    assert problems


def test_an_undamaged_copy_brings_everything_back(path: Path, tmp_path: Path) -> None:
    """A backup made while the store is in use is a whole store."""
    before = whole(path)
    copy = tmp_path / "copies" / "memory.db"
    copy.parent.mkdir()
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        store.backup(copy)
        keep(store, "Later.", id="later")
        with pytest.raises(StoreFailed):
            store.backup(copy)
    assert whole(copy) == before


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    """As SQLite itself takes it."""
    (tmp_path / "memory.db").touch()
    with a_store("sqlite", tmp_path) as store:
        keep(store, id="a")
        assert list_ids(store) == ["a"]


@pytest.mark.parametrize("size", [0, 50, 101, 4096, 20_000])
def test_a_file_without_a_memory_is_never_repaired_to_an_empty_store(path: Path, size: int) -> None:
    """What is left of it stays where it is, and the error names the store; an empty file is a new store."""
    path.write_bytes(path.read_bytes()[:size])
    before = {file: file.read_bytes() for file in path.parent.iterdir()}
    if size == 0:
        assert repair_file(path) is None
    else:
        with pytest.raises(Corrupted, match=rf"'{path}' has no memory that can be read"):
            repair_file(path)
    assert {file: file.read_bytes() for file in path.parent.iterdir()} == before


def test_a_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """It is refused, and nothing in it changes."""
    path = tmp_path / "memory.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE entries (x)")
    db.commit()
    db.close()
    data = path.read_bytes()
    with pytest.raises(StoreFailed):
        open_core("sqlite", tmp_path)
    assert path.read_bytes() == data


# Damaged rows


def edit(path: Path, statement: str, *parameters: object) -> None:
    """Change a closed file behind the store's back."""
    db = sqlite3.connect(path)
    db.execute(statement, parameters)
    db.commit()
    db.close()


DAMAGES = {
    "a body that is no JSON": "UPDATE entries SET body = x'7b22' WHERE id = 'e7'",
    "a body that says something else": (
        "UPDATE entries SET body = CAST(replace(CAST(body AS TEXT), 'number 7', 'number 8') AS BLOB)"
        " WHERE id = 'e7'"
    ),
    "another status": "UPDATE entries SET live = 2 WHERE id = 'e7'",
    "another time of change": "UPDATE entries SET changed = 7 WHERE id = 'e7'",
    "no checksum that agrees": "UPDATE entries SET checksum = checksum + 1 WHERE id = 'e7'",
}


@pytest.mark.parametrize("statement", DAMAGES.values(), ids=DAMAGES)
def test_one_damaged_row_does_not_poison_the_store(path: Path, statement: str) -> None:
    """It is `Corrupted` by its id and never read; all others are read, and it can be erased."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        others = [entry for entry in store.list_entries(ADA) if entry.id != "e7"]
    edit(path, statement)
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        with pytest.raises(Corrupted) as caught:
            store.get("e7", ADA)
        assert caught.value.id == "e7"
        assert "doctor --repair" in caught.value.remedy
        assert store.list_entries(ADA) == others
        assert [entry for entry in store.change_feed("default").entries if entry.id in ("e7", "e8")] == [
            entry for entry in others if entry.id == "e8"
        ]
        result = store.recall(RecallRequest(agent_id="ada", query="tea number 7", limit=100))
        assert "e7" not in [entry.id for entry in result.entries]
        assert "e8" in [entry.id for entry in result.entries]
        pages = store.query(Query(scope=ADA, limit=100, filter=Filter(include_superseded=True)))
        assert "e7" not in [entry.id for entry in pages.entries]
        assert any("'e7'" in problem for problem in store.check())
        assert store.erase(ADA, id="e7").ids == ("e7",)
        assert store.check() == []
        assert store.list_entries(ADA) == others


@pytest.mark.parametrize(
    "column",
    ["id", "owner", "session", "user_id", "key", "type", "speaker", "rev", "live", "changed", "features"],
)
def test_a_column_of_damaged_text_does_not_keep_a_scope_from_being_erased(
    tmp_path: Path, column: str
) -> None:
    """Nothing of the row is left, the figures and a check are told, and a repair gets around it, too."""
    for repairs in (True, False):
        folder = tmp_path / str(repairs)
        folder.mkdir()
        with a_store("sqlite", folder, **OPTIONS) as store:
            keep(store, "Tea.", id="first")
            keep(store, "Water and bread.", id="last", session_id="s", user_id="u", key="k")
        damage = f"UPDATE entries SET {column} = CAST(x'ff41' AS TEXT) WHERE id = 'last'"  # noqa: S608
        edit(folder / "memory.db", damage)
        with a_store("sqlite", folder, **OPTIONS) as store:
            assert store.check() != []
            assert store.stats(Scope()).entries in (1, 2)
            if repairs:
                store.repair()
                assert store.check() == []
                assert "first" in list_ids(store)
            else:
                assert len(store.erase(Scope()).ids) == 2
                assert store.check() == []
                assert b"Water and bread" not in (folder / "memory.db").read_bytes()
                assert keep(store, "Water and bread.", id="last").rev == 1


def test_an_entry_whose_agent_is_unknown_can_be_erased(path: Path) -> None:
    """By its id, and with its namespace; its terms go with it."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        others = [entry for entry in store.list_entries(ADA) if entry.id not in ("e7", "e8")]
    edit(path, "UPDATE entries SET owner = 7 WHERE id IN ('e7', 'e8')")
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert store.erase(Scope(), id="e7").ids == ("e7",)
        assert store.history("e7", Scope())[0].entry is None
        assert store.list_entries(ADA) == others
        assert "e8" in store.erase(Scope()).ids
        assert store.check() == []
    assert b"number 8 of many" not in path.read_bytes()


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE entries SET features = zeroblob(length(features)) WHERE id = 'last'",
        "UPDATE entries SET live = 0 WHERE id = 'last'",
        "UPDATE entries SET owner = 7 WHERE id = 'last'",
    ],
)
def test_damaged_terms_do_not_stay_in_the_index(tmp_path: Path, damage: str) -> None:
    """The row can be written over or erased, and its number can be used again."""
    path = tmp_path / "memory.db"
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        keep(store, "Tea.", id="first")
        keep(store, "Tea and bread.", id="last")
    edit(path, damage)
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        if "live" not in damage:  # which makes the row itself damaged
            keep(store, "Tea and butter.", id="last")
            assert store.check() == []
            edit(path, damage)
        store.erase(Scope(), id="last")
        assert store.check() == []
        keep(store, "Tea and bread.", id="new")
        assert store.check() == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE entries SET session = 'other' WHERE id = 'e7'",
        "UPDATE entries SET user_id = 'bob' WHERE id = 'e7'",
        "UPDATE entries SET owner = 7 WHERE id = 'e7'",
        "UPDATE entries SET type = CAST(x'ff' AS TEXT) WHERE id = 'e7'",
        "UPDATE entries SET time = 'soon' WHERE id = 'e7'",
    ],
)
def test_a_damaged_column_never_shows_an_entry_elsewhere(path: Path, change: str) -> None:
    """The body decides where an entry belongs; what differs from it is found by a check, and repaired."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        before = {entry.id: entry for entry in store.list_entries(ADA)}
    edit(path, change)
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert list_ids(store, Scope(session_id="other")) == []
        assert list_ids(store, Scope(user_id="bob")) == []
        assert all(entry == before[entry.id] for entry in store.list_entries(ADA))
        assert store.recall(RecallRequest(agent_id="ada", query="tea number 8")).entries[0].id == "e8"
        assert store.check() != []
        assert store.repair().corrected == 1
        assert store.check() == []
        assert {entry.id: entry for entry in store.list_entries(ADA)} == before


def test_a_damaged_version_is_left_out_of_the_history(path: Path) -> None:
    """The other versions are listed, and the state of its time is `Corrupted`."""
    edit(path, "UPDATE versions SET body = CAST(replace(CAST(body AS TEXT), 'number', 'nomber') AS BLOB)")
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert [version.rev for version in store.history("e3", ADA)] == [2]
        assert any("version 1 of entry 'e3'" in problem for problem in store.check())
        assert store.erase(ADA, id="e3").versions == 2


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE documents SET body = CAST('\"Tee.\"' AS BLOB)",
        "UPDATE documents SET agent = NULL",
        "UPDATE documents SET rev = 7",
        "UPDATE document_log SET body = CAST('2' AS BLOB)",
    ],
)
def test_a_damaged_document_is_reported(path: Path, statement: str) -> None:
    """It is `Corrupted` and never read; another one is listed, and both can be erased."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        store.append("session", "d", [1], ADA)
    edit(path, statement)
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        store.save(Document(kind="session", id="e", agent_id="ada", body="Other."))
        with pytest.raises(Corrupted):
            store.load("session", "d", Scope())
        assert "e" in [document.id for document in store.documents("session", Scope())]
        assert store.check() != []
        assert store.erase(Scope()).documents == 2
        assert store.check() == []


def test_a_row_from_before_checksums_is_read_and_counted(path: Path) -> None:
    """It gets a checksum with its next change; where it contradicts its columns, it is `Corrupted`."""
    edit(path, "UPDATE entries SET checksum = NULL")
    edit(path, "UPDATE entries SET live = 0 WHERE id = 'e7'")
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        unchecked = store.stats(ADA).unchecked
        assert unchecked > 50
        with pytest.raises(Corrupted):
            store.get("e7", ADA)
        keep(store, "Changed.", id="e8")
        assert store.stats(ADA).unchecked == unchecked - 1


def damage_value(kind: str, store: Any) -> None:
    """Change one letter of what a server stores of `e7`."""
    if kind == "postgres":
        with store._db.write_transaction() as db:
            (body,) = db.execute("SELECT body FROM entries WHERE id = 'e7'").fetchone()
            body = body.replace(b"number 7", b"number 8")
            db.execute("UPDATE entries SET body = ? WHERE id = 'e7'", (body,))
    else:
        key = store._transactions.keys("default")("rows")
        raw = store._server.execute("HGET", key, "e7")
        store._server.execute("HSET", key, "e7", raw.replace(b"number 7", b"number 8"))


def values_with(store: Any, id: str) -> Iterator[bytes]:
    """The values of hashes on a Redis server under fields that name an entry."""
    for key in store._server.scan(f"{store._prefix}*"):
        if store._server.execute("TYPE", key) == b"hash":
            flat = store._server.execute("HGETALL", key)
            pairs = flat.items() if isinstance(flat, dict) else zip(flat[::2], flat[1::2], strict=True)
            yield from (value for field, value in pairs if id.encode() in field)


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_damaged_value_of_a_server_is_noticed(kind: str, tmp_path: Path) -> None:
    """It is `Corrupted` by its id; the others are listed, and erasing the scope erases or names it."""
    with a_store(kind, tmp_path) as store:
        for n in range(6, 9):
            keep(store, f"Tea number {n}.", id=f"e{n}")
        damage_value(kind, store)
        assert {"e6", "e8"} <= {change.id for change in store.changes("default", scope=ADA)}
        with pytest.raises(Corrupted) as caught:
            store.get("e7", ADA)
        assert caught.value.id == "e7"
        assert list_ids(store) == ["e6", "e8"]
        assert sorted(recall_ids(store, "tea number")) == ["e6", "e8"]
        assert any("'e7'" in problem for problem in store.check())
        assert "doctor --repair" in caught.value.remedy
        assert [entry.id for entry in store.change_feed("default").entries] == ["e6", "e8"]
        pages = store.query(Query(scope=ADA, limit=100))
        assert sorted(entry.id for entry in pages.entries) == ["e6", "e8"]
        assert "e7" in store.erase(ADA).ids
        assert store.check() == []


def test_a_receipt_names_no_damaged_entry_of_another_agent(tmp_path: Path) -> None:
    """Where it cannot be told whose an entry was, its id is not told either."""
    with a_store("redis", tmp_path) as store:
        keep(store, "Tea number 6.", id="e6", session_id="s")
        keep(store, "Tea number 7.", id="e7", session_id="s", agent_id="bob")
        damage_value("redis", store)
        receipt = store.erase(Scope(agent_id="ada", session_id="s"))
        assert receipt.ids == ("e6",)
        assert not any("e7" in place for place in receipt.unreachable)


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_damaged_value_of_a_server_can_be_erased(kind: str, tmp_path: Path) -> None:
    """By its id and from its own scope only; what depends on it becomes stale, and nothing of it remains."""
    with a_store(kind, tmp_path) as store:
        for n in range(6, 9):
            keep(store, f"Tea number {n}.", id=f"e{n}", session_id="s", user_id="u", key=f"tea{n}")
        keep(store, "Tea number 7.", id="e7", session_id="s", user_id="u", key="tea7", tags=["more"])
        keep(store, "Derived.", id="derived", evidence=[{"kind": "entry", "ref": "e7"}])
        store.link(Link(source="e7", relation="refines", target="e6"), ADA)
        damage_value(kind, store)
        for other in (Scope(agent_id="bob"), Scope(session_id="other")):
            with pytest.raises(NotFound):
                store.get("e7", other)
            with pytest.raises(NotFound):
                store.erase(other, id="e7")
        receipt = store.erase(ADA, id="e7")
        assert (receipt.ids, receipt.versions, receipt.links) == (("e7",), 2, 1)
        assert store.get("derived", ADA).stale
        assert store.check() == []
        assert [version.rev for version in store.history("e7", ADA)] == [2]
        assert store.change_feed("default").erased_ids == ("e7",)
        if kind == "redis":
            assert b"number" not in b"".join(values_with(store, "e7"))
        keep(store, "Again.", id="e7", key="tea7")
        assert sorted(list_ids(store)) == ["derived", "e6", "e7", "e8"]
        assert store.check() == []


@pytest.mark.parametrize("kind", ["postgres", "redis"])
def test_a_repair_of_a_server_needs_a_file(kind: str, tmp_path: Path) -> None:
    """Without one nothing changes; with one the damaged row is there, and the store is sound."""
    with a_store(kind, tmp_path) as store:
        for n in range(6, 9):
            keep(store, f"Tea number {n}.", id=f"e{n}")
        damage_value(kind, store)
        with pytest.raises(Invalid):
            store.repair()
        assert list_ids(store) == ["e6", "e8"]
        assert store.check() != []
        file = tmp_path / "damaged.jsonl"
        result = store.repair(file)
        assert (result.set_aside, result.entries, result.file) == ({"entries": 1}, 2, str(file))
        assert file.stat().st_mode & 0o777 == 0o600
        (line,) = map(json.loads, file.read_text().splitlines())
        assert any(b"number 8" in decoded(value) for value in line["row"].values())
        assert line["table"] == "entries"
        assert store.check() == []
        assert list_ids(store) == ["e6", "e8"]
        assert store.stats(ADA).set_aside == 1
        assert any("damaged.jsonl" in place for place in store.erase(ADA, id="e6").unreachable)
        assert store.repair().file is None


def decoded(value: Any) -> bytes:
    """The bytes of a value in a file of damaged rows."""
    return b64decode(value["base64"]) if isinstance(value, dict) else b""


DERIVED = [
    ("DEL", "time:*"), ("DEL", "time:aada"), ("DEL", "all:*"), ("DEL", "same"), ("DEL", "slots"),
    ("DEL", "on:e6"), ("DEL", "ends:e7"), ("DEL", "expiry"), ("DEL", "invalid"), ("DEL", "keys:e8"),
    ("DEL", "kept"), ("DEL", "log"), ("DEL", "found"), ("DEL", "owners"), ("DEL", "kind:session"),
    ("DEL", "kinds"), ("HDEL", "found", "e7"), ("ZADD", "all:*", "7", "forgotten"),
    ("ZADD", "time:*", "7", "0000000000000001nobody"), ("ZADD", "on:e6", "1", "e8"),
    ("HSET", "found", "e7", "?"), ("HSET", "slots", "ada", "0000000000000001\xff"),
    ("HSET", "meta", "vectors", "many"), ("HSET", "meta", "seq", "0"), ("HSET", "meta", "tick", "x"),
    ("HSET", "meta", "horizon", "x"), ("HSET", "owners", "session\x1fd", "bob\x1f\x1f"),
    ("SADD", "ends:e6", "x"),
]  # fmt: skip


@pytest.mark.parametrize("command", DERIVED, ids=" ".join)
def test_a_repair_on_redis_rebuilds_what_follows_from_bodies(
    command: tuple[str, str, *tuple[str, ...]], tmp_path: Path
) -> None:
    """A check tells of it; afterwards everything is as it was, and nothing is set aside."""
    verb, name, *rest = command
    with a_store("redis", tmp_path, **OPTIONS) as store:
        for n in range(6, 9):
            keep(store, f"Tea number {n}.", id=f"e{n}", key=f"tea{n}", expires_at=(1 << 42) + n)
        keep(store, "Derived.", id="derived", evidence=[{"kind": "entry", "ref": "e6"}])
        keep(store, "Tea number 8 again.", id="e8", key="tea8", idempotency_key="k")
        keep(store, "Forgotten.", id="forgotten")
        store.supersede("forgotten", ADA)
        store.link(Link(source="e7", relation="refines", target="e6"), ADA)
        store.link(Link(source="e8", relation="invalidated_by", target="e6"), ADA)
        store.save(Document(kind="session", id="d", agent_id="ada", body="Tea."))
        before = what_it_holds(store)
        store._server.execute(verb, store._transactions.keys("default")(*name.split(":")), *rest)
        assert store.check() != []
        assert store.repair().file is None
        assert store.check() == []
        assert what_it_holds(store) == before
        keep(store, "Tea number 7 again.", id="e7", key="tea7")
        assert store.erase(Scope()).documents == 1
        assert store.check() == []


@pytest.mark.parametrize(("field", "value"), [("seq", "0"), ("seq", "x"), ("tick", "x"), ("vectors", "?")])
def test_a_damaged_counter_on_redis_refuses_commits(field: str, value: str, tmp_path: Path) -> None:
    """Before anything is written, because nothing can be taken back; a repair restores it."""
    with a_store("redis", tmp_path) as store:
        keep(store, "Tea.", id="a", key="k")
        keys = store._transactions.keys("default")
        store._server.execute("HSET", keys("meta"), field, value)
        with pytest.raises(Corrupted, match="doctor --repair"):
            keep(store, "Tea again.", id="a", key="other")
        with pytest.raises(Corrupted):
            store.erase(ADA, id="a")
        assert store._server.execute("HLEN", keys("slots")) == 1
        assert store.get("a", ADA).content == "Tea."
        store.repair()
        assert store.check() == []
        assert keep(store, "Tea again.", id="a", key="other").rev == 2


def what_it_holds(store: Any) -> list[Any]:
    """Entries, histories, links, documents and what is recalled."""
    entries = store.list_entries(ADA)
    return [
        sorted(entries, key=lambda entry: entry.id),
        [store.history(entry.id, ADA) for entry in entries if entry.id == "e8"],
        store.links("e6", ADA),
        store.documents("session", ADA),
        sorted(recall_ids(store, "tea number", limit=9)),
        keep(store, "Tea number 8 again.", id="e8", key="tea8", idempotency_key="k").rev,
    ]


def test_a_repair_on_redis_sets_any_damaged_value_aside(tmp_path: Path) -> None:
    """Versions, documents, items of logs, receipts, leases, tombstones, changes and links: the rest stays."""
    with a_store("redis", tmp_path, **OPTIONS) as store:
        for n in range(3):
            keep(store, f"Tea {n}.", id="e1", idempotency_key=f"k{n}")
        keep(store, "Tea.", id="e2")
        store.erase(ADA, id=keep(store, "Gone.", id="gone").id)
        store.link(Link(source="e1", relation="refines", target="e2"), ADA)
        for id in ("d1", "d2"):
            store.save(Document(kind="session", id=id, agent_id="ada", body="Tea."))
            store.append("session", id, ["one", "two", "three"], ADA)
        store.claim("session", "d1", ADA, owner="o", ttl_ms=1000)
        keys, server = store._transactions.keys("default"), store._server
        past = sorted(server.execute("HKEYS", keys("past")))
        number = past[0][:16].decode()
        for field in (f"{number}1", "k1", "gone", "session\x1fd1", "e1\x1fe2\x1frefines"):
            for name in ("past", "receipts", "stones", "docs", "links", "leases"):
                for one in server.execute("HKEYS", keys(name)):
                    if field in one.decode():
                        server.execute("HSET", keys(name), one, "?" * 30)
        server.execute("HSET", keys("receipts"), server.execute("HKEYS", keys("receipts"))[0], "?")
        server.execute("LSET", keys("doclog", "session\x1fd2"), "1", "?")
        server.execute("XADD", keys("log"), "99-0", "c", "?")
        server.execute("HSET", keys("access"), "e2", "?")
        for act in (store.repair, lambda: store.claim("session", "d1", ADA, owner="p", ttl_ms=1)):
            with pytest.raises((Invalid, Corrupted)):
                act()
        result = store.repair(tmp_path / "aside")
        assert result.set_aside == {
            "versions": 1, "links": 1, "tombstones": 1, "receipts": 1, "documents": 1, "document_log": 4,
            "leases": 1, "access": 1, "log": 1,
        }  # fmt: skip
        assert store.check() == []
        assert [version.rev for version in store.history("e1", ADA)] == [2, 3]
        assert store.load("session", "d2", ADA).log == ("one", "three")
        assert store.load("session", "d1", ADA) is None
        assert store.links("e1", ADA) == []


# Repair


def test_a_repair_sets_damaged_rows_aside(path: Path) -> None:
    """They are in a private file that later receipts name; all others stay, and the store is sound."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        others = [entry for entry in store.list_entries(ADA) if entry.id != "e7"]
        store.append("session", "d", [1, 2], ADA)
    for statement in (DAMAGES["a body that says something else"], "UPDATE versions SET body = x'00'"):
        edit(path, statement)
    edit(path, "UPDATE document_log SET body = CAST('3' AS BLOB) WHERE n = 1")
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        result = store.repair()
        assert result.set_aside == {"entries": 1, "versions": 2, "document_log": 1}
        assert (result.entries, result.links) == (58, 1)
        assert store.check() == []
        assert store.list_entries(ADA) == others
        assert store.load("session", "d", ADA).log == (2,)
        file = Path(result.file)
        assert file.parent == path.parent
        assert file.stat().st_mode & 0o777 == 0o600
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        assert "number 8 of many" in b64decode(lines[0]["row"]["body"]["base64"]).decode()
        assert store.stats(ADA).set_aside == 1
        assert any(file.name in place for place in store.erase(ADA, id="e8").unreachable)
        assert store.repair().file is None
        file.unlink()
        assert store.stats(ADA).set_aside == 0
        assert not any(file.name in place for place in store.erase(ADA, id="e9").unreachable)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET session = 'other', type = 'wrong' WHERE id = 'e7'",
        "UPDATE entries SET live = 2 WHERE id = 'e7'",
        "UPDATE entries SET features = x'00', confidence = 0.5, role = 'x'",
        "UPDATE entries SET id = 'f7' WHERE id = 'e7'",
        "UPDATE owners SET agent = 'adb'",
        "UPDATE supports SET id = 'x'",
        "DELETE FROM owners",
        "DELETE FROM postings",
        "DELETE FROM log WHERE id = 'e7'",
        "UPDATE entries SET checksum = NULL",
    ],
)
def test_a_repair_restores_what_follows_from_bodies(path: Path, statement: str) -> None:
    """Columns, owners, terms and dependencies come back, and nothing is set aside."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        keep(store, "Derived.", id="derived", evidence=[{"kind": "entry", "ref": "e4"}])
        before = store.list_entries(ADA)
    edit(path, statement)
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert store.repair().file is None
        assert store.check() == []
        assert store.list_entries(ADA) == before
        assert recall_ids(store, "tea number 7", limit=1) == ["e7"]
        assert store.stats(ADA).unchecked == 0


@pytest.mark.parametrize(
    ("damage", "options"),
    [
        ("UPDATE entries SET id = 'other' WHERE no = 1", {"id": "tea"}),
        ("UPDATE entries SET key = 'other' WHERE no = 1", {"key": "drink"}),
    ],
)
def test_a_repair_keeps_what_was_written_in_the_place_of_a_damaged_row(
    tmp_path: Path, damage: str, options: dict[str, str]
) -> None:
    """A row that cannot go back to its id or its slot is set aside, and the repair succeeds."""
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        keep(store, "Tea.", id="tea", key="drink")
        keep(store, "Bread.", id="bread")
    edit(tmp_path / "memory.db", damage)
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        keep(store, "Coffee.", **{"id": "coffee", **options})
        kept = [entry for entry in store.list_entries(ADA) if entry.content != "Tea."]
        assert store.repair().set_aside == {"entries": 1}
        assert store.check() == []
        assert store.list_entries(ADA) == kept


@pytest.mark.parametrize("column", ["versions.no", "versions.rev", "document_log.document", "document_log.n"])
def test_a_repair_sets_rows_aside_whose_keys_are_damaged_text(path: Path, column: str) -> None:
    """They are deleted by what they are, not by what they should be."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        store.append("session", "d", [1], ADA)
        others = store.list_entries(ADA)
    table, name = column.split(".")
    first = f"SELECT min({name}) FROM {table}"  # noqa: S608
    one = f"({name}) IN ({first}) AND body IN (SELECT body FROM {table} LIMIT 1)"  # noqa: S608
    edit(path, f"UPDATE {table} SET {name} = CAST(x'ff41' AS TEXT) WHERE {one}")  # noqa: S608
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert store.check() != []
        assert {*store.repair().set_aside} == {table}
        assert store.check() == []
        assert store.list_entries(ADA) == others


@pytest.mark.parametrize(
    "column",
    [
        *("log.id", "log.op", "log.rev", "log.at", "tombstones.rev", "tombstones.at", "tombstones.reason"),
        *("access.count", "access.last", "links.source", "links.relation"),
    ],
)
def test_damaged_text_beside_entries_stops_nothing(path: Path, column: str) -> None:
    """The feeds, histories and counts go on without it, and its scope can be erased."""
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        store.record_access(["e6"], ADA)
        store.link(Link(source="e6", relation="invalidated_by", target="e7"), ADA)
    table, name = column.split(".")
    condition = "relation = 'invalidated_by'" if table == "links" else "1=1"
    edit(path, f"UPDATE {table} SET {name} = CAST(x'ff41' AS TEXT) WHERE {condition}")  # noqa: S608
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        for change in store.changes("default"):
            assert change.to_json()
        assert len(store.change_feed("default", used_since=0).entries) in (0, 59)
        for id in ("e5", "e6"):
            with suppress(NotFound):
                store.history(id, ADA)
        store.access("e6", ADA)
        assert len(store.erase(Scope()).ids) == 59


# Versions


def set_back(db: sqlite3.Connection) -> None:
    """Make a file what it was before it knew what is stale."""
    for index in ("log_by_namespace", "log_flips", "access_by_last", "by_user", "by_key", "by_slot"):
        db.execute(f"DROP INDEX {index}")
    for table in ("entries", "tombstones", "documents"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN user_id")
    db.execute("ALTER TABLE entries DROP COLUMN key")
    for table in ("entries", "versions", "documents", "document_log"):
        db.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
    db.execute("ALTER TABLE receipts DROP COLUMN superseded")
    db.execute("ALTER TABLE leases DROP COLUMN ttl")
    db.execute("ALTER TABLE entries DROP COLUMN first")
    db.execute("ALTER TABLE supports DROP COLUMN present")
    db.execute("ALTER TABLE vectors DROP COLUMN given")
    db.execute("DELETE FROM log WHERE op IN ('stale', 'current')")
    db.execute("UPDATE entries SET live = CASE live WHEN 2 THEN 1 WHEN 3 THEN 0 ELSE live END")
    db.execute("DELETE FROM settings WHERE name = 'life'")
    db.execute("PRAGMA user_version = 2")


def test_an_older_file_finds_out_what_is_stale(tmp_path: Path) -> None:
    """What rests on something forgotten or erased is not recalled any more, by its present evidence."""
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        for id, *premises in (("a",), ("b", "a"), ("c", "b"), ("d", "a"), ("e", "x"), ("x",), ("f", "a")):
            keep(store, f"Tea {id}.", id=id, evidence=[{"kind": "entry", "ref": ref} for ref in premises])
        keep(store, "Tea on its own.", id="d")
        store.supersede("a", ADA)
        store.supersede("f", ADA)
        store.erase(ADA, id="x")
        before = store.list_entries(ADA)
        assert [entry.id for entry in before if entry.stale] == ["b", "c", "e", "f"]
    db = sqlite3.connect(tmp_path / "memory.db")
    set_back(db)
    db.commit()
    db.close()
    shutil.copy(tmp_path / "memory.db", tmp_path / "backup.db")
    (tmp_path / "other").mkdir()
    with a_store("sqlite", tmp_path / "other", **OPTIONS) as store:
        store.restore_backup(tmp_path / "backup.db")
        assert store.list_entries(ADA) == before
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        assert store.list_entries(ADA) == before
        assert store.check() == []
        assert recall_ids(store, "tea") == ["d"]
        store.reinstate("a", ADA)
        assert sorted(recall_ids(store, "tea")) == ["a", "b", "c", "d"]
        assert store.check() == []


def test_an_older_file_is_carried_forward(path: Path) -> None:
    """Everything that it held is there in the new schema, and what is new works."""
    before = whole(path)
    db = sqlite3.connect(path)
    set_back(db)
    for table in ("receipts", "documents", "document_log", "leases"):
        db.execute(f"DROP TABLE {table}")
    db.execute("PRAGMA user_version = 1")
    db.commit()
    db.close()
    with pytest.raises(ReadOnly):
        open_store(f"sqlite:///{path}?mode=ro", embedder="none")
    assert whole(path)[:2] == before[:2]
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert store.save(Document(kind="session", id="new", agent_id="ada", body=1)).rev == 1
        assert keep(store, "Again.", id="k", idempotency_key="k").rev == 1


def test_every_migration_starts_where_the_one_before_ended(tmp_path: Path) -> None:
    """A file of any older schema opens and is sound."""
    for version in range(connection.VERSION + 1):
        folder = tmp_path / str(version)
        folder.mkdir()
        db = sqlite3.connect(folder / "memory.db")
        for statements in connection.MIGRATIONS[:version]:
            db.executescript(statements)
        db.execute(f"PRAGMA user_version = {version}")
        db.execute(f"PRAGMA application_id = {connection.APPLICATION_ID}")
        db.commit()
        db.close()
        with a_store("sqlite", folder, **OPTIONS) as store:
            keep(store, id="a")
            assert store.check() == []


def test_the_repair_of_an_older_file_that_is_sound_keeps_the_file(tmp_path: Path) -> None:
    """It is migrated as it is, not copied; one that only says that it is older is copied."""
    path = tmp_path / "memory.db"
    for version in range(1, connection.VERSION + 1):
        with closing(sqlite3.connect(path)) as db:
            for statements in connection.MIGRATIONS[:version]:
                db.executescript(statements)
            db.execute(f"PRAGMA user_version = {version}")
            db.execute(f"PRAGMA application_id = {connection.APPLICATION_ID}")
        assert repair_file(path) is None
        assert [*tmp_path.iterdir()] == [path]
        path.unlink()
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        keep(store, id="a")
    edit(path, f"PRAGMA user_version = {connection.VERSION - 1}")
    assert repair_file(path) is not None
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        assert list_ids(store) == ["a"]
        assert store.check() == []


def test_a_newer_file_is_left_alone(path: Path) -> None:
    """It is refused, for reading and for writing, and nothing in it changes."""
    before = whole(path)
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {connection.VERSION + 1}")
    db.commit()
    db.close()
    for mode in ("", "?mode=ro"):
        with pytest.raises(WrongVersion):
            open_store(f"sqlite:///{path}{mode}", embedder="none")
    db = sqlite3.connect(path)
    db.execute(f"PRAGMA user_version = {connection.VERSION}")
    db.commit()
    db.close()
    assert whole(path) == before


# Embedders


def test_another_embedder_recalls_by_words_until_the_vectors_are_renewed(path: Path) -> None:
    """Vectors of different embedders are never compared; `reindex` is the way over."""
    before = whole(path)
    for other in (HashEmbedder(16), HashEmbedder(64)):
        with a_store("sqlite", path.parent, embedder=other) as store:
            result = store.recall(RecallRequest(agent_id="ada", query="number 17"))
            assert result.entries[0].id == "e17"
            assert "vectors of 'hash-32'" in result.notices[0]
    assert whole(path) == before
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        store.reindex(HashEmbedder(64))
        assert recall_ids(store, "number 17", limit=1) == ["e17"]
        assert store.check() == []
    with a_store("sqlite", path.parent, embedder=HashEmbedder(64)) as store:
        assert recall_ids(store, "number 18", limit=1) == ["e18"]
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        notice = store.recall(RecallRequest(agent_id="ada", query="number 18")).notices[0]
        assert "vectors of 'hash-64'" in notice


def test_a_store_can_be_used_without_its_embedder(path: Path) -> None:
    """Recall goes by words then, and what is written meanwhile gets its vector when it is renewed."""
    with a_store("sqlite", path.parent, embedder="none") as store:
        keep(store, "Cocoa and nothing else.", id="cocoa")
        keep(store, "Changed again.", id="e3")
        assert recall_ids(store, "cocoa and nothing else", limit=1) == ["cocoa"]
    with a_store("sqlite", path.parent, **OPTIONS) as store:
        assert recall_ids(store, "cocoa and nothing else", limit=1) == ["cocoa"]
        assert store.stats(ADA).without_vectors == 2
        store.reindex(HashEmbedder(32))
        assert store.stats(ADA).without_vectors == 0
        assert store.check() == []


# Protection


def test_a_store_opened_for_reading_is_not_written_to(path: Path) -> None:
    """Everything can be read, nothing can be changed, and the file stays as it is."""
    before = whole(path)
    data = path.read_bytes()
    store = open_store(f"sqlite:///{path}?mode=ro", **OPTIONS).sync
    assert recall_ids(store, "number 17", limit=1) == ["e17"]
    assert store.list_entries(Scope()) == before[0]
    for change in (
        lambda: keep(store, id="new"),
        lambda: store.supersede("e1", ADA),
        lambda: store.erase(ADA),
        lambda: store.link(Link(source="e1", relation="refines", target="e2"), ADA),
        lambda: store.save(Document(kind="session", id="d", agent_id="ada", body=2)),
        lambda: store.reindex(HashEmbedder(32)),
    ):
        with pytest.raises(ReadOnly):
            change()
    store.record_access(["e1"], ADA)
    store.close()
    assert path.read_bytes() == data
    assert whole(path) == before


def test_what_does_not_exist_cannot_be_read(tmp_path: Path) -> None:
    """Opening for reading makes no file."""
    with pytest.raises((StoreFailed, Invalid)):
        open_store(f"sqlite:///{tmp_path / 'none.db'}?mode=ro", embedder="none")
    assert list(tmp_path.iterdir()) == []


def test_a_backup_without_a_folder_names_the_path_it_was_given(path: Path) -> None:
    """No temporary name and no error number is in the error."""
    target = path.parent / "nowhere" / "copy.db"
    message = rf"'{target}' cannot be created \(No such file or directory\)"
    with a_store("sqlite", path.parent, **OPTIONS) as store, pytest.raises(StoreFailed, match=message):
        store.backup(target)


def test_a_store_that_is_held_for_too_long_says_so(path: Path) -> None:
    """Who cannot wait any longer gets `Busy`; afterwards everything goes on."""
    holder = sqlite3.connect(path, isolation_level=None)
    with a_store("sqlite", path.parent, timeout=0.2, **OPTIONS) as store:
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(Busy):
            keep(store, id="new")
        assert recall_ids(store, "number 17", limit=1) == ["e17"]
        holder.execute("ROLLBACK")
        holder.close()
        assert keep(store, id="new").rev == 1


# Room


def test_a_full_store_says_so_and_loses_nothing(tmp_path: Path) -> None:
    """What was acknowledged is there, the rest is not, and with more room it goes on."""
    acknowledged: list[str] = []
    with a_store("sqlite", tmp_path, max_pages=120, **OPTIONS) as store:
        with pytest.raises(DiskFull):
            acknowledged.extend(keep(store, f"Number {n}. " + "Tea. " * 200, id=f"n{n}").id for n in count())
        assert acknowledged
        assert list_ids(store) == acknowledged
        assert recall_ids(store, "number 0", limit=1) == ["n0"]
        store.erase(ADA, id="n0")
        acknowledged.remove("n0")
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        assert store.check() == []
        assert list_ids(store) == acknowledged
        assert keep(store, "More.", id="more").rev == 1


def test_a_full_disk_says_so_and_loses_nothing(tmp_path: Path) -> None:
    """A process whose files may not grow gets `DiskFull`; what was acknowledged is there."""
    process = start("fill", tmp_path / "memory.db", 1 << 20)
    said, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    *acknowledged, error = json.loads(said)
    assert error == "DiskFull"
    assert len(acknowledged) > 1
    with a_store("sqlite", tmp_path, **OPTIONS) as store:
        assert store.check() == []
        assert list_ids(store) == acknowledged
        assert keep(store, "More.", id="more").rev == 1


@pytest.mark.parametrize("size", [300_000, 1 << 20, 3 << 20])
def test_erasing_makes_room_on_a_full_disk(size: int, tmp_path: Path) -> None:
    """What is erased goes, and there is room again, although erasing itself needs some in the log."""
    process = start("erase_when_full", tmp_path / "memory.db", size)
    answer, _ = process.communicate(timeout=100)
    assert process.returncode == 0
    erased, scrubbed, pending, left = json.loads(answer)
    assert erased > 1
    assert (scrubbed, pending) == (True, [])
    assert left == ["after"]
    assert all(b"tea tea" not in path.read_bytes() for path in tmp_path.iterdir())


def test_the_files_are_the_owners_alone(tmp_path: Path) -> None:
    """Memories are private: nobody else can read a new file, nor what SQLite puts beside it."""
    if os.name != "posix":
        pytest.skip("permissions are those of POSIX")
    with a_store("sqlite", tmp_path) as store:
        keep(store, id="a")
        assert {oct(path.stat().st_mode & 0o077) for path in tmp_path.iterdir()} == {"0o0"}
