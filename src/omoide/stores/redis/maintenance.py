"""Check, reindex and scrub a store on Redis, and inspect how its server persists data."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any

from omoide import ids
from omoide.core.entry import Entry, passages_of
from omoide.embedders import Embedder
from omoide.errors import Invalid, ReadOnly, StoreFailed
from omoide.retrieval.text import FEATURES_VERSION, has_parts
from omoide.stores.records import (
    EraseReceipt,
    Finding,
    IndexData,
    ReindexResult,
    features_of,
    index_entries,
    index_entry,
    model_key,
)
from omoide.stores.redis import layout
from omoide.stores.redis import repair as repairing
from omoide.stores.redis.connection import RedisConnections
from omoide.stores.redis.layout import NamespaceKeys
from omoide.stores.redis.snapshot import RedisSnapshot, batches
from omoide.stores.redis.transaction import RedisTransaction, TransactionRunner
from omoide.stores.reindex import (
    CLAIM_MS,
    LAST_BATCH,
    SPACE_FACTOR,
    ProgressCallback,
    ReindexClaim,
    check_space,
    lost_claim,
)
from omoide.stores.semantics import StoreSettings
from omoide.stores.state import StoredEntry

_CHECK_BATCH = 200
_MAX_PROBLEMS = 20
_REINDEX_BATCH = 256
_REWRITE_TIMEOUT_S = 10.0
_MIN_VERSION = (6, 2)

_AOF_PENDING = "the append-only file, until it is rewritten: call scrub()"
_RDB_PENDING = "the snapshot (dump.rdb), until the next one: call scrub()"
_CLUSTER_FILES = "the files of each node of the cluster: have every node rewrite them (BGREWRITEAOF, BGSAVE)"
_FILES_UNKNOWN = "what the server keeps in its files, of which it tells nothing: have it rewrite them"

# Opening


def ensure_store(server: RedisConnections, key: bytes, *, read_only: bool) -> str:
    """Create the store unless it exists, check its schema, and return its generation.

    Values of an older schema stay as they are, because they can be read; only its number is raised, so that
    an older Omoide does not write beside what it cannot read.
    """
    if not read_only:
        if server.execute("HSETNX", key, "schema", str(layout.SCHEMA_VERSION)):
            server.execute("HSET", key, layout.SEALED_SETTING, "1")  # a new store has no older values
        stored = server.execute("HGET", key, "schema")
        layout.check_schema(stored, server.name)
        if stored is not None and int(stored) < layout.SCHEMA_VERSION:
            server.execute("HDEL", key, layout.SEALED_SETTING)
            server.execute("HSET", key, "schema", str(layout.SCHEMA_VERSION))
        server.execute("HSETNX", key, "features", str(FEATURES_VERSION))
        server.execute("HSETNX", key, "life", ids.uuid7())
    stored, generation = server.execute("HMGET", key, "schema", "life")
    layout.check_schema(stored, server.name)
    return "" if generation is None else layout.decode_text(generation)


def check_server(server: RedisConnections, settings: StoreSettings) -> None:
    """Raise if the server is too old, or does not persist what the settings promise."""
    version = _server_info(server).get("redis_version", "")
    if version and tuple(int(part) for part in version.split(".")[:2]) < _MIN_VERSION:
        raise StoreFailed(server.name, f"is Redis {version}", "use 6.2 or newer")
    if settings.durability != "power" or settings.read_only:
        return
    aof, fsync = _server_config(server, "appendonly"), _server_config(server, "appendfsync")
    if aof is not None and (aof, fsync) != ("yes", "always"):
        raise Invalid(
            "durability",
            f"is 'power', and the server has appendonly {aof} and appendfsync {fsync}",
            "run CONFIG SET appendonly yes and CONFIG SET appendfsync always, and write both to redis.conf",
        )


# Check


def check(transactions: TransactionRunner, namespace: str) -> list[str]:
    """Return the first inconsistencies of a namespace; empty when it is sound."""
    problems = transactions.run_plan(lambda state: repairing.check(state, namespace))
    return [f"namespace {namespace!r}: {problem}" for problem in dict.fromkeys(problems)][:_MAX_PROBLEMS]


# Reindex


class RedisReindex:
    """A run that rebuilds the index data of all entries while the store is in use.

    New vectors are prepared beside those that serve. Once every entry of a namespace has them, one commit
    lets them serve there; then the replaced ones are dropped. What is written meanwhile is embedded at the
    end. An interrupted run continues where it stopped.
    """

    def __init__(
        self,
        transactions: TransactionRunner,
        store_key: bytes,
        embedder: Embedder | None,
        progress: ProgressCallback | None,
    ) -> None:
        self._transactions = transactions
        self._server = transactions.server
        self._store_key = store_key
        self._embedder = embedder
        self._model = model_key(embedder)
        self._progress = progress
        self._claim_key = layout.store_key(transactions.prefix, "reindex")
        self._claim = ReindexClaim.create()
        self._embedded = self._updated_terms = 0
        self._has_room = False

    @contextmanager
    def hold_claim(self) -> Iterator[None]:
        """Hold the claim of the store during the block.

        Raises:
            Busy: Another run reindexes it.
        """
        key, value = self._claim_key, self._claim.encode()
        held = self._server.execute("GET", key)
        if held is not None and not ReindexClaim.decode(held).is_held(self._server.name):
            self._server.delete_if_equal(key, held)
        if not self._server.execute("SET", key, value, "NX", "PX", str(CLAIM_MS)):
            other = self._server.execute("GET", key)
            raise (self._claim if other is None else ReindexClaim.decode(other)).refusal(self._server.name)
        try:
            yield
        finally:
            with suppress(StoreFailed):  # it ends by itself
                self._server.delete_if_equal(key, self._claim.encode().encode())

    def _renew_claim(self) -> None:
        renewed = self._claim.renew()
        if self._server.execute("GET", self._claim_key) != self._claim.encode().encode():
            raise lost_claim(self._server.name)
        self._server.execute("SET", self._claim_key, renewed.encode(), "PX", str(CLAIM_MS))
        self._claim = renewed

    def prepare(self, namespaces: Sequence[str]) -> None:
        """Give every entry the terms of this version, and vectors of the embedder beside those that serve."""
        by_namespace = {name: self._entry_ids(name) for name in namespaces}
        total, done = sum(map(len, by_namespace.values())), 0
        for namespace, entry_ids in by_namespace.items():
            self._transactions.run_write(partial(self._adopt, namespace))
            for some in batches(entry_ids, _REINDEX_BATCH):
                self._prepare_batch(namespace, some)
                done += len(some)
                if self._progress is not None:
                    self._progress(done, total)

    def _entry_ids(self, namespace: str) -> list[str]:
        members = self._server.read([["ZRANGE", self._transactions.keys(namespace)("time", "*"), "0", "-1"]])[
            0
        ]
        return [layout.member_id(member) for member in members]

    def _adopt(self, namespace: str, state: RedisTransaction) -> None:
        """Make a namespace without vectors that of the embedder; there is nothing to keep serving."""
        model, vectors = state.model_of(namespace)
        if self._model and model != self._model and state.integer(vectors, "count of vectors") <= 0:
            state.expect_model(namespace)
            state.expect_whole(namespace, "meta", "vectors", vectors)
            state.claim_model(namespace, self._model)

    def _prepare_batch(self, namespace: str, entry_ids: Sequence[str]) -> None:
        self._renew_claim()
        outdated = self._transactions.run_read(lambda state: self._find_outdated(state, namespace, entry_ids))
        if not outdated:
            return
        data = self._index(outdated)
        self._check_space(namespace, data)
        self._transactions.run_write(lambda state: self._save(state, namespace, outdated, data))

    def _find_outdated(
        self, state: RedisSnapshot, namespace: str, entry_ids: Sequence[str]
    ) -> dict[str, tuple[Entry, bool]]:
        """Return the entries whose terms or vectors are not the current ones, and whether vectors lack."""
        entries = state.find_many(namespace, entry_ids)
        state.load_index_data([*entries.values()])
        found: dict[str, tuple[Entry, bool]] = {}
        for id, stored in entries.items():
            lacks = bool(self._model) and self._lacks_vectors(stored)
            if lacks or features_of(stored.entry).to_bytes() != stored.index_data.features:
                found[id] = (stored.entry, lacks)
        return found

    def _lacks_vectors(self, stored: StoredEntry) -> bool:
        """Return True if an entry has no vectors of the embedder, or those of the whole, not of its parts."""
        found = stored.index_data.vectors_of(self._model)
        if found is None or found.given or has_parts(stored.index_data.features):
            return found is None
        return bool(passages_of(stored.entry))

    def _index(self, outdated: Mapping[str, tuple[Entry, bool]]) -> dict[str, IndexData]:
        embedded = iter(index_entries([entry for entry, lacks in outdated.values() if lacks], self._embedder))
        return {
            id: next(embedded) if lacks else index_entry(entry) for id, (entry, lacks) in outdated.items()
        }

    def _check_space(self, namespace: str, first: Mapping[str, IndexData]) -> None:
        """Raise `DiskFull` if vectors as large as the first ones do not fit into the memory of the server."""
        size = sum(len(data.pooled or b"") + len(data.tokens or b"") for data in first.values())
        if self._has_room or not size:
            return
        self._has_room = True
        memory = _server_info(self._server, "memory")
        limit, used = int(memory.get("maxmemory", 0)), int(memory.get("used_memory", 0))
        if limit:
            count = int(self._server.execute("HLEN", self._transactions.keys(namespace)("rows")))
            check_space(
                self._server.name, int(SPACE_FACTOR * size * count / len(first)), max(0, limit - used)
            )

    def _save(
        self,
        state: RedisTransaction,
        namespace: str,
        outdated: Mapping[str, tuple[Entry, bool]],
        fresh: Mapping[str, IndexData],
    ) -> None:
        """Save the new index data of entries that are unchanged; others are embedded at the end."""
        serves = state.model_of(namespace)[0] == self._model
        state.expect_model(namespace)
        entries = state.find_many(namespace, outdated.keys())
        state.load_index_data([*entries.values()])
        for id, stored in entries.items():
            before, lacks = outdated[id]
            if stored.entry.rev != before.rev or stored.entry.created_at != before.created_at:
                continue
            data = stored.index_data._replace(features=fresh[id].features)
            found = fresh[id].vectors_of(self._model)
            if lacks and found is not None and self._lacks_vectors(stored):
                data = data.with_vectors(found) if serves else data.with_prepared(found)
                self._embedded += 1
            self._updated_terms += data.features != stored.index_data.features
            state.replace_index_data(stored, data)

    def switch(self, namespace: str) -> None:
        """Let the prepared vectors of a namespace serve, once no entry lacks them."""
        if not self._model:
            return
        since, limit = "-inf", LAST_BATCH
        while True:
            (tick,) = self._server.read([["HGET", self._transactions.keys(namespace)("meta"), "tick"]])
            changed = self._changed_since(namespace, since)
            for some in batches(changed, _REINDEX_BATCH):
                self._prepare_batch(namespace, some)
            since = f"({self._server.integer(tick, 'commit counter')}"
            if self._transactions.run_write(partial(self._try_switch, namespace, since, limit)):
                return
            limit *= 2  # writers that are faster than the embedder wait in the end

    def _changed_since(self, namespace: str, since: str) -> list[str]:
        if since == "-inf":
            return self._entry_ids(namespace)
        keys = self._transactions.keys(namespace)
        live, gone = keys("all", "*"), keys("gone")
        replies = self._server.read([["ZRANGEBYSCORE", key, since, "+inf"] for key in (live, gone)])
        return [*dict.fromkeys(id for reply in replies for id in layout.decode_ids(reply))]

    def _try_switch(self, namespace: str, since: str, limit: int, state: RedisTransaction) -> bool:
        """Change the embedder of a namespace if few entries lack vectors, which are embedded here."""
        keys = state.keys(namespace)
        tick, *replies = state.fetch(
            [
                ["HGET", keys("meta"), "tick"],
                ["ZRANGEBYSCORE", keys("all", "*"), since, "+inf"],
                ["ZRANGEBYSCORE", keys("gone"), since, "+inf"],
            ]
        )
        state.expect_whole(namespace, "meta", "tick", tick)
        changed = [*dict.fromkeys(id for reply in replies for id in layout.decode_ids(reply))]
        outdated = self._find_outdated(state, namespace, changed)
        if len(outdated) > limit:
            return False
        if outdated:
            self._save(state, namespace, outdated, self._index(outdated))
        if state.model_of(namespace)[0] != self._model:
            state.claim_model(namespace, self._model)
        return True

    def finish(self, namespaces: Sequence[str]) -> ReindexResult:
        """Drop the replaced vectors, and embed what was written at the time of the switch."""
        entries = given = 0
        for namespace in namespaces:
            for some in batches(self._entry_ids(namespace), _REINDEX_BATCH):
                self._prepare_batch(namespace, some)
                counts = self._transactions.run_write(partial(self._drop_replaced, namespace, some))
                entries, given = entries + counts[0], given + counts[1]
        self._server.execute("HSET", self._store_key, "features", str(FEATURES_VERSION))
        return ReindexResult(
            embedder=None if self._embedder is None else self._embedder.name,
            entries=entries,
            embedded=self._embedded,
            updated_terms=self._updated_terms,
            given_vectors=given,
        )

    def _drop_replaced(
        self, namespace: str, entry_ids: Sequence[str], state: RedisTransaction
    ) -> tuple[int, int]:
        """Return the numbers of entries and of supplied vectors, which stay beside those that serve."""
        entries = state.find_many(namespace, entry_ids)
        state.load_index_data([*entries.values()])
        given = 0
        for stored in entries.values():
            data = stored.index_data
            own = data.vectors_of(self._model) if self._model else None
            if own is not None and data.with_vectors(own) != data:
                state.replace_index_data(stored, data.with_vectors(own))
            given += data.count_given()
        return len(entries), given


# Scrub


def with_pending_files(server: RedisConnections, receipt: EraseReceipt) -> EraseReceipt:
    """Return a receipt that names the files in which erased content may remain."""
    pending = _pending_files(server)
    return receipt.replace(scrubbed=not pending, pending=pending)


def scrub(server: RedisConnections, receipt: EraseReceipt) -> EraseReceipt:
    """Have the server rewrite its files, and wait for it for a moment."""
    pending = _pending_files(server)
    try:
        for file, command, status in (
            (_AOF_PENDING, "BGREWRITEAOF", "aof_last_bgrewrite_status"),
            (_RDB_PENDING, "BGSAVE", "rdb_last_bgsave_status"),
        ):
            if file in pending:
                _wait_for_rewrite(server, status)  # the server refuses a second one while it writes
                server.execute(command)
                if _wait_for_rewrite(server, status):
                    pending = tuple(other for other in pending if other != file)
    except StoreFailed as error:
        return receipt.replace(pending=(f"{'; '.join(pending)} ({error})",))
    return receipt.replace(scrubbed=not pending, pending=pending)


def _wait_for_rewrite(server: RedisConnections, status: str) -> bool:
    """Wait until the server writes no file, and return whether it says in time that it succeeded."""
    until = time.monotonic() + min(_REWRITE_TIMEOUT_S, server.timeout)
    names = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
    while time.monotonic() < until:
        info = _server_info(server, "persistence")
        if all(info.get(name, "0") == "0" for name in names):
            return info.get(status) == "ok"
        time.sleep(0.01)
    return False


def _pending_files(server: RedisConnections) -> tuple[str, ...]:
    aof, snapshots = _server_config(server, "appendonly"), _server_config(server, "save")
    if server.cluster:
        return (_CLUSTER_FILES,)
    if aof is None:
        return (_FILES_UNKNOWN,)
    # A snapshot that was asked for stays where the server makes none by itself.
    has_snapshot = bool(snapshots) or _server_info(server, "persistence").get("rdb_saves", "0") != "0"
    return tuple(file for file, used in ((_AOF_PENDING, aof == "yes"), (_RDB_PENDING, has_snapshot)) if used)


# Server


def findings(server: RedisConnections) -> list[Finding]:
    """Report on the version, role, persistence and eviction policy of the server."""
    info = _server_info(server)
    version = info.get("redis_version", "unknown")
    found = [
        Finding("version", "ok", f"schema {layout.SCHEMA_VERSION}, the newest known"),
        Finding("server", "ok", f"Redis {version}"),
    ]
    if info.get("role") in ("slave", "replica"):
        found.append(
            Finding("role", "problem", "a replica, which takes no writes: use the primary's address")
        )
    aof = _server_config(server, "appendonly")
    if aof is None:
        detail = (
            "it does not say how it keeps its data (CONFIG is forbidden): look at what its provider promises"
        )
        return [*found, Finding("persistence", "note", detail)]
    return [*found, _persistence_finding(server, aof), _eviction_finding(server)]


def _persistence_finding(server: RedisConnections, aof: str) -> Finding:
    fsync = _server_config(server, "appendfsync")
    remedy = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in redis.conf"
    if aof != "yes":
        snapshots = _server_config(server, "save")
        where = "only in snapshots now and then" if snapshots else "nowhere but in memory"
        return Finding("persistence", "problem", f"changes are kept {where}: {remedy}")
    if fsync == "always":
        return Finding("persistence", "ok", "every change is on the disk before it is acknowledged")
    if fsync == "everysec":
        detail = "a crash of the machine may lose a second: CONFIG SET appendfsync always keeps it too"
        return Finding("persistence", "note", detail)
    return Finding("persistence", "problem", f"the system decides when changes reach the disk: {remedy}")


def _eviction_finding(server: RedisConnections) -> Finding:
    policy = _server_config(server, "maxmemory-policy")
    if policy in (None, "noeviction"):
        return Finding("memory", "ok", "nothing is thrown away when memory is full")
    problem = f"maxmemory-policy is {policy}: memories would be thrown away"
    return Finding(
        "memory", "problem", f"{problem}; CONFIG SET maxmemory-policy noeviction, and in redis.conf"
    )


def count_unchecked(transactions: TransactionRunner, key: bytes, namespaces: Sequence[str]) -> int:
    """Return the number of values of a store that an older version wrote without a checksum."""
    server, count = transactions.server, 0
    if server.execute("HEXISTS", key, layout.SEALED_SETTING):
        return 0
    for namespace in namespaces:
        keys = transactions.keys(namespace)
        for name, at in layout.SEAL_POSITIONS.items():
            count += server.count_unsealed_fields(keys(name), at, layout.SEAL)
        documents = layout.decode_ids(server.execute("HKEYS", keys("docs")))
        for some in batches(sorted(documents)):
            count += server.count_unsealed_items([keys("doclog", id) for id in some], layout.SEAL)
    return count


def sizes(server: RedisConnections, keys: NamespaceKeys) -> dict[str, Any]:
    """Return the last sequence number of a namespace, and the memory that the server uses."""
    last = server.execute("HGET", keys("meta"), "seq")
    used = _server_info(server, "memory").get("used_memory", "0")
    return {"last_seq": server.integer(last, "sequence number"), "size_bytes": int(used)}


def _server_config(server: RedisConnections, name: str) -> str | None:
    """Return a setting of the server; None where it may not be read, as on managed ones."""
    try:
        found = server.client.config_get(name)
    except Exception as error:  # noqa: BLE001 - whatever it is, the setting is unknown
        del error
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value.decode() if isinstance(value, bytes) else value


def _server_info(server: RedisConnections, *section: str) -> dict[str, str]:
    """Return the reply to INFO; empty where the user may not ask."""
    try:
        raw = server.execute("INFO", *section)
    except ReadOnly:
        return {}
    if isinstance(raw, dict):  # the client of a cluster parses it
        return {str(name): str(value) for name, value in raw.items()}
    lines = raw.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
