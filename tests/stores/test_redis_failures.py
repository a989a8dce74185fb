"""A failing Redis server is reported with a remedy, and nothing is half written."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from redis import Redis, exceptions
from tests.support.proxies import Proxy
from tests.support.servers import redis as redis_server
from tests.support.store_process import ROOT
from tests.support.stores import ADA, a_store, keep, list_ids, recall_ids, redis_url, write_request

from omoide import Scope, errors
from omoide.errors import (
    Busy,
    Closed,
    Conflict,
    DiskFull,
    Invalid,
    OmoideError,
    ReadOnly,
    StoreFailed,
    StoreUnreachable,
    Uncertain,
)
from omoide.stores import open_store
from omoide.stores.redis import transaction
from omoide.stores.redis.connection import CLIENT_ERRORS, COMMIT_SCRIPT, _script_digest, map_error
from omoide.testing import HashEmbedder, RedisServer
from omoide.testing.servers import free_port

PASSWORD = "a word nobody says"


def at(url: str, **options: Any) -> Any:
    return open_store(url, **{"embedder": "none", **options}).sync


@pytest.fixture
def own() -> Iterator[RedisServer]:
    """A server that a test may treat badly."""
    with RedisServer() as server:
        yield server


def test_a_server_that_is_away_is_named_with_what_to_do() -> None:
    """Nothing but the address is shown of the URL."""
    port = free_port()
    with pytest.raises(StoreUnreachable, match="cannot be reached") as told:
        at(f"redis://ada:hunter2@127.0.0.1:{port}/0")
    assert told.value.store == f"redis://127.0.0.1:{port}/0"
    assert "check that it runs" in told.value.remedy
    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize("said", ["", ":wrong-one@", "nobody:wrong-one@"])
def test_a_wrong_password_is_told_and_never_shown(said: str) -> None:
    """Also where none was given."""
    with RedisServer() as server:
        with Redis.from_url(server.url) as client:
            client.config_set("requirepass", PASSWORD)
        with pytest.raises(StoreUnreachable, match="password") as told:
            at(server.url.replace("redis://", f"redis://{said}"))
        assert "wrong-one" not in str(told.value) + repr(told.value.__cause__)
        right = server.url.replace("redis://", f"redis://:{PASSWORD.replace(' ', '%20')}@")
        store = at(right)
        keep(store, id="a")
        assert list_ids(store) == ["a"]
        store.close()


def test_a_server_that_hangs_is_not_waited_for_longer_than_allowed(own: RedisServer) -> None:
    """A write may still be done once it goes on, which the error says; then everything works again."""
    store = at(own.url, timeout=0.2)
    keep(store, id="a")
    own.pause()
    try:
        for attempt in (lambda: list_ids(store), lambda: keep(store, id="b")):
            with pytest.raises((StoreUnreachable, Uncertain), match=r"longer timeout|kept once"):
                attempt()
    finally:
        own.resume()
    keep(store, id="c")
    assert {*list_ids(store)} - {"b"} == {"a", "c"}
    assert store.check() == []
    store.close()


def test_a_full_server_refuses_and_keeps_what_it_has(own: RedisServer) -> None:
    """Nothing is half written, reading goes on, and erasing makes room."""
    store = at(own.url)
    with Redis.from_url(own.url) as client:
        keep(store, "Tea.", id="a")
        client.config_set("maxmemory", client.info("memory")["used_memory"] + 400_000)
        kept = ["a"]

        def fill() -> None:
            for n in range(1_000):
                keep(store, f"Number {n} " + "tea " * 2_000, id=f"n{n}")
                kept.append(f"n{n}")

        with pytest.raises(DiskFull, match="maxmemory"):
            fill()
        before = client.dbsize(), store.changes("default")[-1]
        with pytest.raises(DiskFull):
            store.write_many([write_request(f"More {n} " + "tea " * 2_000) for n in range(20)])
        assert (client.dbsize(), store.changes("default")[-1]) == before
        assert list_ids(store) == kept
        assert store.check() == []
        assert len(store.erase(Scope()).ids) == len(kept)
        keep(store, "There is room.", id="again")
    store.close()


def test_a_replica_is_read_and_never_written(own: RedisServer) -> None:
    """A write says where to go instead."""
    store = at(own.url)
    keep(store, "Tea.", id="a")
    with RedisServer(replicaof=f"127.0.0.1 {own.port}") as copy:
        with Redis.from_url(copy.url) as client:
            while client.info("replication")["master_link_status"] != "up":
                client.ping()
        replica = at(copy.url, read_only=True)
        assert (list_ids(replica), recall_ids(replica, "tea")) == (["a"], ["a"])
        assert [one.state for one in replica.findings() if one.name == "role"] == ["problem"]
        replica.close()
        with pytest.raises(ReadOnly, match="primary"):
            at(copy.url)
    store.close()


def test_a_store_that_is_only_read_takes_nothing(tmp_path: Path) -> None:
    """Neither memories nor documents nor uses."""
    with a_store("redis", tmp_path) as store:
        keep(store, "Tea.", id="a")
        with a_store("redis", tmp_path, read_only=True) as reader:
            assert recall_ids(reader, "tea") == ["a"]
            reader.record_access(["a"], ADA)
            for attempt in (lambda: keep(reader), lambda: reader.erase(ADA)):
                with pytest.raises(ReadOnly, match="mode=ro"):
                    attempt()
        assert store.access("a", ADA).count == 0


def test_a_closed_store_says_so(tmp_path: Path) -> None:
    """Closing twice is no error."""
    with a_store("redis", tmp_path) as store:
        store.close()
        with pytest.raises(Closed, match="open it again"):
            list_ids(store)


@pytest.mark.parametrize("many", [1, 3])
def test_a_lost_answer_does_not_write_twice(many: int) -> None:
    """The same commit is asked for again, and the server knows that it was done."""
    server = redis_server()
    with Proxy(server.port) as proxy:
        store = at(f"redis://127.0.0.1:{proxy.port}/0?prefix=lost{many}:")
        keep(store, "Tea.", id="a")
        proxy.marked, proxy.lose = _script_digest(COMMIT_SCRIPT).encode(), many
        assert keep(store, "Coffee.", id="a", expected_rev=1).rev == 2
        assert proxy.lose == 0
        store.record_access(["a"], ADA)
        proxy.lose = many
        store.append("session", _document(store), ["once"], ADA)
        assert store.load("session", "d", ADA).log == ("once",)
        assert [change.op for change in store.changes("default")] == ["write", "write"]
        assert store.get("a", ADA).rev == 2
        store.close()


def _document(store: Any) -> str:
    from omoide.stores.records import Document

    return str(store.save(Document(kind="session", id="d", agent_id="ada", body=1)).id)


def test_a_write_whose_fate_is_unknown_is_told_so() -> None:
    """After several tries the caller learns that it may have been kept; it was, and only once."""
    with Proxy(redis_server().port) as proxy:
        store = at(f"redis://127.0.0.1:{proxy.port}/0?prefix=unknown:")
        keep(store, "Tea.", id="a")
        proxy.marked, proxy.lose = _script_digest(COMMIT_SCRIPT).encode(), 4
        with pytest.raises(Uncertain, match="idempotency key"):
            keep(store, "Coffee.", id="b")
        assert [change.id for change in store.changes("default")] == ["a", "b"]
        keep(store, "Cocoa.", id="c")
        assert list_ids(store) == ["a", "b", "c"]
        store.close()


def test_a_server_that_comes_back_is_found_again(own: RedisServer) -> None:
    """With what it had; what was held in memory of another life is forgotten."""
    store = at(own.url)
    keep(store, "Tea.", id="a")
    assert recall_ids(store, "tea") == ["a"]
    own.kill()
    for attempt in (lambda: recall_ids(store, "tea"), lambda: keep(store, id="never")):
        with pytest.raises(StoreUnreachable, match="reached"):
            attempt()
    own.start()
    assert recall_ids(store, "tea") == ["a"]
    with Redis.from_url(own.url) as client:
        client.flushall()
    keep(store, "Coffee.", id="b")
    assert recall_ids(store, "tea or coffee") == ["b"]
    assert store.change_feed("default").seq == 1
    assert store.namespaces() == ["default"]
    store.close()


def test_scripts_that_the_server_forgot_are_sent_again(tmp_path: Path) -> None:
    """As after a restart, or SCRIPT FLUSH."""
    with a_store("redis", tmp_path) as store, Redis.from_url(redis_server().url) as client:
        keep(store, id="a")
        client.script_flush()
        keep(store, id="b")
        assert list_ids(store) == ["a", "b"]


def test_who_is_overtaken_all_the_time_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as it was allowed to wait; nothing of it is written."""
    monkeypatch.setattr(transaction.TransactionRunner, "_commit", lambda *_, **__: "changed")
    with a_store("redis", tmp_path, timeout=0.05) as store:
        with pytest.raises(Busy, match="try again"):
            keep(store, id="a")
        monkeypatch.undo()
        assert list_ids(store) == []


def test_who_writes_alone_gets_through_and_lets_others(tmp_path: Path) -> None:
    """While somebody holds the gate others wait; a dead one's holds for a moment only."""
    with a_store("redis", tmp_path, timeout=0.1) as store, Redis.from_url(redis_server().url) as client:
        keep(store, id="a")
        gate = store._transactions.keys("default")("gate")
        client.set(gate, "somebody", px=60_000)
        with pytest.raises(Busy):
            keep(store, id="b")
        assert list_ids(store) == ["a"]
        client.pexpire(gate, 1)
        while client.exists(gate):
            client.ping()
        keep(store, id="b")
        assert (list_ids(store), client.exists(gate)) == (["a", "b"], 0)


@pytest.mark.parametrize(
    ("settings", "name", "state", "word"),
    [
        ({}, "persistence", "ok", "acknowledged"),
        ({"appendfsync": "everysec"}, "persistence", "note", "appendfsync always"),
        ({"appendfsync": "no"}, "persistence", "problem", "CONFIG SET appendfsync"),
        ({"appendonly": "no"}, "persistence", "problem", "CONFIG SET appendonly yes"),
        ({"maxmemory-policy": "allkeys-lru"}, "memory", "problem", "noeviction"),
    ],
)
def test_the_doctor_tells_how_the_server_keeps_its_data(
    settings: dict[str, str], name: str, state: str, word: str
) -> None:
    """With the exact words that mend it."""
    with RedisServer(**settings) as server:
        store = at(server.url)
        found = {one.name: one for one in store.findings()}
        assert (found[name].state, word in found[name].detail) == (state, True)
        assert found["server"].detail.startswith("Redis 7")
        store.close()


def test_a_managed_server_need_not_tell_how_it_keeps_its_data(own: RedisServer) -> None:
    """Where CONFIG and INFO are forbidden, that is noted, and everything else works."""
    with Redis.from_url(own.url) as client:
        client.acl_setuser(
            "managed", enabled=True, passwords=["+x"], commands=["+@all", "-config", "-info"], keys="*"
        )
    store = at(own.url.replace("redis://", "redis://managed:x@"))
    keep(store, "Tea.", id="a")
    told = {one.name: one.detail for one in store.findings() if one.state == "note"}
    assert "CONFIG is forbidden" in told["persistence"]
    assert store.erase(ADA).pending == store.scrub().pending != ()
    store.close()


def test_power_loss_is_survived_only_by_a_server_that_can() -> None:
    """One that cannot is refused when the store is opened, with the remedy."""
    with RedisServer(appendfsync="everysec") as server:
        with pytest.raises(Invalid, match="appendfsync always"):
            at(server.url, durability="power")
        with Redis.from_url(server.url) as client:
            client.config_set("appendfsync", "always")
        at(server.url, durability="power").close()


@pytest.mark.parametrize("is_sharded", [False, True])
def test_a_store_that_was_migrated_meanwhile_is_not_written_to(tmp_path: Path, is_sharded: bool) -> None:
    """In a cluster, whose script cannot see the number, it is looked up before each commit."""
    with a_store("redis", tmp_path) as store, Redis.from_url(redis_server().url) as client:
        store._transactions._is_sharded = is_sharded
        keep(store, "Tea.", id="a")
        client.hset(store._store_key, "schema", "99")
        with pytest.raises(errors.WrongVersion, match="nothing was changed"):
            keep(store, "Coffee.", id="b")
        client.hset(store._store_key, "schema", "3")
        assert [entry.id for entry in store.list_entries(ADA)] == ["a"]


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    """It may mean something else by the same keys."""
    with a_store("redis", tmp_path) as store, Redis.from_url(redis_server().url) as client:
        client.hset(store._store_key, "schema", "99")
        with pytest.raises(errors.WrongVersion, match="newer"):
            at(redis_url(tmp_path))


@pytest.mark.parametrize(
    "url",
    ["redis://host/name", "redis://host:x/0", "redis://host/0?cluster=maybe", "redis://h/0?ssl_ca_certs=x"],
)
def test_an_address_that_cannot_be_is_refused(url: str) -> None:
    """Before anything is connected."""
    with pytest.raises(Invalid):
        at(url)


def test_every_error_of_the_client_becomes_one_of_ours() -> None:
    """Whatever the package may raise, it has a remedy."""
    kinds = [kind for kind in vars(exceptions).values() if isinstance(kind, type)]
    for kind in kinds:
        if issubclass(kind, Exception) and kind.__name__ != "IncorrectPolicyType":  # not from a server
            assert issubclass(kind, CLIENT_ERRORS)
            error: Any = kind.__new__(kind)
            error.args = ("something",)
            told = map_error(error, "redis://host:1/0")
            assert isinstance(told, StoreFailed), kind
            assert told.remedy


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("OOM command not allowed when used memory > 'maxmemory'.", DiskFull),
        ("READONLY You can't write against a read only replica.", ReadOnly),
        ("MISCONF Redis is configured to save RDB snapshots", DiskFull),
        ("LOADING Redis is loading the dataset in memory", Busy),
        ("CLUSTERDOWN The cluster is down", Busy),
        ("MOVED 1 127.0.0.1:1", StoreFailed),
        ("NOPERM this user has no permissions", ReadOnly),
    ],
)
def test_what_the_server_says_is_understood(said: str, kind: type[OmoideError]) -> None:
    """By its first word, also from inside a script."""
    for text in (said, f"ERR {said} script: 1, on @user_script:1"):
        assert type(map_error(exceptions.ResponseError(text), "redis://h:1/0")) is kind


def test_a_missing_package_is_named() -> None:
    """With the command that installs it."""
    code = "import sys; sys.modules['redis'] = None\nimport omoide; omoide.open_store('redis://127.0.0.1:1')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert "pip install 'omoide[redis]'" in done.stderr


def test_a_forked_process_has_connections_of_its_own(tmp_path: Path) -> None:
    """Both go on, and neither hears the other's answers."""
    with a_store("redis", tmp_path, embedder=HashEmbedder(32)) as store:
        keep(store, "Tea.", id="before")
        recall_ids(store, "tea")
        child = os.fork()
        if child == 0:
            try:
                for n in range(20):
                    keep(store, "Tea.", id=f"child{n}")
                os._exit(0 if "before" in recall_ids(store, "tea", limit=50) else 1)
            finally:
                os._exit(2)
        for n in range(20):
            keep(store, "Tea.", id=f"parent{n}")
        assert os.waitpid(child, 0)[1] == 0
        assert len(list_ids(store)) == 41
        assert len(recall_ids(store, "tea", limit=50)) == 41


def test_a_conflict_is_a_conflict_and_not_a_race(tmp_path: Path) -> None:
    """What was refused on true grounds is not tried again."""
    with a_store("redis", tmp_path) as store:
        keep(store, id="a")
        with pytest.raises(Conflict):
            keep(store, "Other.", id="a", expected_rev=7)
