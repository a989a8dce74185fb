"""The Redis store uses documented keys under its prefix, and touches no others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis
from redis.crc import key_slot
from tests.support.servers import redis as redis_server
from tests.support.stores import ADA, a_store, keep, list_ids, recall_ids, redis_url, write_request

from omoide import Filter, Scope, clock
from omoide.errors import Corrupted, Invalid, StoreFailed
from omoide.stores import Document, Link, Query, open_store
from omoide.stores.redis.layout import (
    KEY_TYPES,
    NamespaceKeys,
    escape_namespace,
    is_valid_prefix,
    partition_for,
)
from omoide.testing import FrozenClock, HashEmbedder, RedisServer
from omoide.testing.servers import free_port

WITH: dict[str, Any] = {"embedder": HashEmbedder(32)}
NAMES = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), min_size=1, max_size=12)
SECRET = "xyzzy-plugh"


@pytest.fixture
def server() -> Iterator[Any]:
    """A client that sees what lies on the server."""
    with Redis.from_url(redis_server().url) as client:
        yield client


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Any]:
    with a_store("redis", tmp_path, **WITH) as one:
        yield one


def prefix(folder: Path) -> bytes:
    return redis_url(folder).partition("prefix=")[2].encode()


def live_a_little(store: Any, namespace: str = "default") -> None:
    """Something of everything, most of it about a secret."""
    whole, ada = Scope(namespace=namespace), {"namespace": namespace, "session_id": "s"}
    keep(store, "Tea.", id="a", **ada)
    premise = [{"kind": "entry", "ref": "a"}]
    for words in ("Once.", "Twice."):
        keep(store, f"{SECRET} {words}", id="b", evidence=premise, tags=[SECRET], **ada)
    keep(store, f"{SECRET} again.", id="c", idempotency_key="k", expires_at=1 << 42, **ada)
    store.link(Link(source="b", relation="refines", target="a"), whole)
    store.link(Link(source="a", relation="invalidated_by", target="c"), whole)
    store.supersede("c", whole, by="b", reason="moved on")
    store.reinstate("c", whole)
    store.record_access(["a", "b"], whole)
    store.save(Document(kind="session", id="d", namespace=namespace, agent_id="ada", body={"x": SECRET}))
    store.append("session", "d", [SECRET], whole)
    store.claim("session", "d", whole, owner="w", ttl_ms=1_000)


def dump(server: Any, head: bytes) -> dict[bytes, bytes]:
    """Everything under a prefix, as the server would hand it to another one."""
    return {key: server.dump(key) for key in server.scan_iter(match=head + b"*", count=1_000)}


def content(server: Any, head: bytes) -> str:
    """Everything under a prefix, in plain words: what `dump` writes may be packed."""
    readers = {
        b"hash": server.hgetall,
        b"zset": lambda key: server.zrange(key, 0, -1),
        b"set": server.smembers,
        b"list": lambda key: server.lrange(key, 0, -1),
        b"stream": server.xrange,
        b"string": server.get,
    }
    return repr({key: readers[server.type(key)](key) for key in dump(server, head)})


def test_all_keys_of_a_namespace_lie_in_one_slot(store: Any, server: Any, tmp_path: Path) -> None:
    """So that a cluster can change them in one step, whatever the namespace is called."""
    for namespace in ("default", "a}{b", "{x}", "}", "näh %7B", "store"):
        live_a_little(store, namespace)
        head = f"{prefix(tmp_path).decode()}{{n{escape_namespace(namespace)}}}:".encode()
        found = [key for key in dump(server, prefix(tmp_path)) if key.startswith(head)]
        assert len(found) > 20
        assert {key_slot(key) for key in found} == {key_slot(f"n{escape_namespace(namespace)}".encode())}


def test_a_cluster_can_keep_it(tmp_path: Path) -> None:
    """One that refuses every step which touches two slots; only several namespaces at once are too much."""
    with RedisServer(**{"cluster-enabled": "yes", "cluster-port": free_port()}) as own:
        with Redis.from_url(own.url) as client:
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                client.ping()
        for address in (own.url, f"{own.url}?prefix=c:&cluster=yes"):
            store: Any = open_store(address, **WITH).sync
            for namespace in ("default", "elsewhere"):
                live_a_little(store, namespace)
                assert recall_ids(store, "tea", namespace=namespace)
            assert store.namespaces() == ["default", "elsewhere"]
            assert store.check() == []
            with pytest.raises((StoreFailed, Invalid), match="one namespace"):
                store.write_many([write_request(namespace="one"), write_request(namespace="two")])
            store.erase(Scope(namespace="elsewhere"))
            scrubbed = store.scrub()  # one node cannot answer for the others
            assert scrubbed.scrubbed is ("cluster=yes" not in address), scrubbed.pending
            store.close()


@given(one=NAMES, other=NAMES)
def test_namespaces_never_share_a_key(one: str, other: str) -> None:
    """Two names that differ in a byte have different tags, and no brace is left in one."""
    assert (escape_namespace(one) == escape_namespace(other)) == (one == other)
    assert not {*"{}:"} & {*escape_namespace(one)}


def test_every_key_says_what_it_holds(store: Any, server: Any, tmp_path: Path) -> None:
    """By the word after its namespace."""
    live_a_little(store)
    keys = NamespaceKeys(prefix(tmp_path).decode(), "default")
    mine = [key for key in dump(server, prefix(tmp_path)) if b"{n" in key]
    assert {keys.type_of(key) == server.type(key).decode() for key in mine} == {True}
    assert {key.split(b"}:")[1].split(b":")[0].decode() for key in mine} <= KEY_TYPES.keys()


def test_another_prefix_is_another_store(store: Any, server: Any, tmp_path: Path) -> None:
    """What lies beside a store is neither seen nor touched, not even by erasing all."""
    server.set("somebody else's", "1")
    with a_store("redis", tmp_path / "other", **WITH) as other:
        keep(other, "Cocoa.", id="a")
        before = dump(server, prefix(tmp_path / "other"))
        live_a_little(store)
        store.erase(Scope())
        assert dump(server, prefix(tmp_path / "other")) == before
        assert list_ids(other) == ["a"]
        assert other.namespaces() == ["default"]
    assert server.get("somebody else's") == b"1"


@pytest.mark.parametrize("text", ["", "a b", "{a}", "a{", "a\n", "x" * 65])
def test_a_prefix_without_a_meaning_of_its_own_is_asked_for(text: str) -> None:
    """Braces would decide where a cluster puts everything."""
    assert not is_valid_prefix(text)
    with pytest.raises(Invalid, match="prefix"):
        open_store(f"{redis_server().url}?prefix={text.replace(' ', '%20').replace(chr(10), '%0A')}")


@pytest.mark.parametrize("by_id", [True, False])
def test_what_was_erased_is_nowhere_on_the_server(
    by_id: bool, store: Any, server: Any, tmp_path: Path
) -> None:
    """No field, list, receipt or document holds a word of it; its id is in the tombstone alone."""
    live_a_little(store)
    assert SECRET in content(server, prefix(tmp_path))
    if by_id:
        for id in ("b", "c"):
            store.erase(ADA, id=id)
        store.erase(Scope(agent_id="ada", session_id="none"))
        assert SECRET in content(server, prefix(tmp_path))  # the document
        store.save(Document(kind="session", id="d", agent_id="ada", body={}))
    else:
        store.erase(Scope())
    assert SECRET not in content(server, prefix(tmp_path))
    left = {key.split(b"}:")[1] for key in dump(server, prefix(tmp_path)) if b"{n" in key}
    if not by_id:
        assert {name.split(b":")[0] for name in left} <= {
            *(b"meta", b"log", b"stones", b"watch", b"gone", b"done", b"kinds")
        }
    assert store.check() == []


def test_scrubbing_clears_the_files_too(tmp_path: Path) -> None:
    """An erasure says that the log on the disk still has it; afterwards it has not."""
    with RedisServer(save="3600 1000000") as own:
        store: Any = open_store(own.url, **WITH).sync
        live_a_little(store)
        receipt = store.erase(Scope())
        assert (receipt.scrubbed, len(receipt.pending)) == (False, 2)
        assert "append-only" in receipt.pending[0]
        assert any("replicas" in where for where in receipt.unreachable)
        assert _on_disk(own)
        assert store.scrub().scrubbed
        assert not _on_disk(own)
        store.close()


def test_a_snapshot_that_was_asked_for_is_scrubbed(tmp_path: Path) -> None:
    """Where the server makes none by itself, a receipt says `scrubbed` only once that file is rewritten."""
    with RedisServer() as own:
        store: Any = open_store(own.url, **WITH).sync
        live_a_little(store)
        store._server.execute("SAVE")
        assert "snapshot" in store.erase(Scope()).pending[-1]
        assert store.scrub().scrubbed
        assert not _on_disk(own)
        store.close()


def test_a_snapshot_that_fails_is_not_scrubbed(tmp_path: Path) -> None:
    """A server that cannot write its file keeps the old one, and the receipt says so."""
    with RedisServer(save="3600 1000000") as own:
        store: Any = open_store(own.url, **WITH).sync
        live_a_little(store)
        store._server.execute("SAVE")
        (own.folder / "dump.rdb").rename(own.folder / "moved.rdb")
        (own.folder / "dump.rdb").mkdir()  # the server cannot put a file in its place
        store.erase(Scope())
        receipt = store.scrub()
        assert receipt.scrubbed is False
        assert ["snapshot" in pending for pending in receipt.pending] == [True]
        store.close()


def _on_disk(server: RedisServer) -> bool:
    files = [path for path in server.folder.rglob("*") if path.is_file() and path.name != "log"]
    return any(SECRET.encode() in path.read_bytes() for path in files)


def test_what_expired_long_ago_costs_recall_nothing(store: Any, server: Any, tmp_path: Path) -> None:
    """Writes take it out of the lists that recall looks at; whoever asks about that time still finds it."""
    hour = 3_600_000
    with clock.override(FrozenClock(1_000)) as time:
        for at in range(5):
            keep(store, f"Tea of {at}.", id=f"e{at}", expires_at=2_000 + at)
        keep(store, "Tea for ever.", id="f")
        counting = NamespaceKeys(prefix(tmp_path).decode(), "default")("all", partition_for(ADA))
        assert server.zcard(counting) == 6
        time.at = 3_000 + hour
        assert recall_ids(store, "tea") == ["f"]
        keep(store, "Cocoa.", id="g")
        assert server.zcard(counting) == 2
        assert store.check() == []
        assert {*recall_ids(store, "tea")} == {"f", "g"}
        whole = Filter(include_expired=True)
        assert len(recall_ids(store, "tea", filter=whole, limit=9)) == 7
        assert {*recall_ids(store, "tea", at=2_003, limit=9)} == {"e4", "f", "g"}
        assert len(store.query(Query(scope=ADA, filter=whole)).entries) == 7
        assert list_ids(store) == [*(f"e{at}" for at in range(5)), "f", "g"]
        keep(store, "Tea once more.", id="e1")
        assert {*recall_ids(store, "tea")} == {"f", "g", "e1"}


@pytest.mark.parametrize(
    ("key", "field", "told"),
    [
        ("rows", "a", "cannot be read"),
        ("found", "a", "terms"),
        ("time:aada", None, "by time"),
        ("all:*", None, "recall looks at"),
        ("past", None, "version is missing"),
        ("same", None, "by what it says"),
        ("on:a", None, "dependencies differ"),
        ("ends:b", None, "an end"),
    ],
)
def test_lists_that_do_not_agree_are_found(
    key: str, field: str | None, told: str, store: Any, server: Any, tmp_path: Path
) -> None:
    """Whatever is missing is named, with the entry that misses it."""
    live_a_little(store)
    assert store.check() == []
    name = NamespaceKeys(prefix(tmp_path).decode(), "default")(*key.split(":"))
    assert server.hdel(name, field) if field else server.delete(name)
    assert any(told in problem and "'default'" in problem for problem in store.check())


def test_a_key_that_holds_something_else_changes_nothing(store: Any, server: Any, tmp_path: Path) -> None:
    """It is found before the first write of a commit, which cannot be taken back."""
    keep(store, "Tea.", id="a")
    keys = NamespaceKeys(prefix(tmp_path).decode(), "default")
    server.set(keys("expiry"), "not ours")
    before = content(server, prefix(tmp_path))
    with pytest.raises(Corrupted, match="prefix"):
        keep(store, "Tea again.", id="a", expires_at=1 << 42)
    assert content(server, prefix(tmp_path)) == before
