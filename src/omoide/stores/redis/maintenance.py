"""Check, reindex, persistence checks."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import msgspec

from omoide import ids
from omoide.core.entry import Entry
from omoide.embedders import Embedder
from omoide.errors import Invalid, ReadOnly, StoreFailed, WrongVersion
from omoide.retrieval import features
from omoide.stores import semantics, truth
from omoide.stores.codec import IndexData, index_entries, text_of
from omoide.stores.records import EraseReceipt, Finding
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Command, RedisConnections
from omoide.stores.redis.layout import SEPARATOR, EntryRow, NamespaceKeys, partitions_of, split_ids
from omoide.stores.redis.snapshot import as_fetched, batches
from omoide.stores.redis.transaction import RedisTransaction, TransactionRunner
from omoide.stores.state import StoreState, entry_of_version
from omoide.stores.truth import LIVE
from omoide.stores.validation import StoreSettings

# checking: Do the lists of a namespace agree with its entries?


_CHECK_BATCH = 200
_MAX_PROBLEMS = 20


def check(server: RedisConnections, keys: NamespaceKeys, namespace: str) -> list[str]:
    """What is wrong with a namespace: parts that do not agree; empty when it is sound."""
    problems: list[str] = []
    for problem in _problems(server, keys):
        problems.append(f"namespace {namespace!r}: {problem}")
        if len(problems) >= _MAX_PROBLEMS:
            break
    return problems


def _problems(server: RedisConnections, keys: NamespaceKeys) -> Iterator[str]:
    told = server.read(
        [
            ["ZRANGE", keys("time", "*"), "0", "-1"],
            *([name, keys(key)] for name, key in (("HLEN", "rows"), ("HLEN", "found"))),
            ["HGET", keys("meta"), "horizon"],
        ]
    )
    members, rows, found, horizon = told
    if not len(members) == rows == found:
        yield f"{rows} entries, {len(members)} in the list of all, {found} with terms"
    for at in range(0, len(members), _CHECK_BATCH):
        some = [member[layout.STAMP_LENGTH :].decode() for member in members[at : at + _CHECK_BATCH]]
        yield from _check_batch(server, keys, some, int(horizon or -1))
    yield from _check_links(server, keys)


def _check_batch(
    server: RedisConnections, keys: NamespaceKeys, ids: Sequence[str], horizon: int
) -> Iterator[str]:
    raws, founds = server.read([["HMGET", keys("rows"), *ids], ["HMGET", keys("found"), *ids]])
    rows: dict[str, EntryRow] = {}
    for id, raw, found in zip(ids, raws, founds, strict=True):
        try:
            rows[id] = layout.decode_row(raw, id)
            model, said = layout.decode_index_data(found)
        except (msgspec.MsgspecError, TypeError, ValueError):
            yield f"entry {id!r} is missing or cannot be read"
            rows.pop(id, None)
            continue
        yield from _check_index_data(id, rows[id], model, said)
    asks = {id: _lookup_commands(keys, id, row) for id, row in rows.items()}
    answers = iter(server.read([ask for some in asks.values() for ask in some])) if asks else iter(())
    for id, some in asks.items():
        yield from _check_indexes(id, rows[id], [next(answers) for _ in some], horizon)


def _check_index_data(id: str, row: EntryRow, model: str, record: IndexData) -> Iterator[str]:
    entry = _entry_of(row)
    if features.extract_features(text_of(entry)).to_bytes() != record.features:
        yield f"entry {id!r}: its terms are not those of its text"
    if (model or None) != (row.model or None) or bool(model) != (record.pooled is not None):
        yield f"entry {id!r}: its vector is not the one that it should have"


def _entry_of(row: EntryRow) -> Entry:
    return entry_of_version(row.version, stale=bool(row.transitions) and row.transitions[-1].stale)


def _lookup_commands(keys: NamespaceKeys, id: str, row: EntryRow) -> list[Command]:
    entry = _entry_of(row)
    no = layout.to_digits(row.number)
    older = [no + b"%d" % rev for rev in range(row.first_rev, entry.rev)]
    return [
        ["HMGET", keys("past"), *(older or [b"-"])],
        ["HGET", keys("same"), semantics.content_key(entry)],
        *(["ZSCORE", keys("time", name), no + id.encode()] for name in partitions_of(entry)),
        *(["ZSCORE", keys("all", name), id] for name in partitions_of(entry)),
        *(["ZSCORE", keys("on", premise), id] for premise in sorted(truth.premises(entry))),
    ]


def _check_indexes(id: str, row: EntryRow, answers: list[Any], horizon: int) -> Iterator[str]:
    entry = _entry_of(row)
    past, same, *scores = answers
    if entry.rev > row.first_rev and None in past:
        yield f"entry {id!r}: a version is missing"
    if same is None or id not in same[layout.STAMP_LENGTH :].decode().split(SEPARATOR):
        yield f"entry {id!r}: it is not known by what it says"
    lists = len(partitions_of(entry))
    times, counted, resting = scores[:lists], scores[lists : 2 * lists], scores[2 * lists :]
    if any(score is None or int(float(score)) != semantics.time_of(entry) for score in times):
        yield f"entry {id!r}: it is not in the lists by time"
    swept = entry.expires_at is not None and entry.expires_at <= horizon
    if truth.status_of(entry) != LIVE and any(score is not None for score in counted):
        yield f"entry {id!r}: it does not count, and is in the lists that recall looks at"
    if truth.status_of(entry) == LIVE and not swept and None in counted:
        yield f"entry {id!r}: it is not in the lists that recall looks at"
    if any(score is None or float(score) != 1 for score in resting):
        yield f"entry {id!r}: what it rests on is not noted as it says"


def _check_links(server: RedisConnections, keys: NamespaceKeys) -> Iterator[str]:
    (fields,) = server.read([["HKEYS", keys("links")]])
    for some in batches(fields):
        asks: list[Command] = []
        for field in some:
            source, target, _ = split_ids(field, 3)
            for end in (source, target):
                asks += [["SISMEMBER", keys("ends", end), field], ["HEXISTS", keys("rows"), end]]
        told = server.read(asks)
        for at, field in enumerate(some):
            if not all(told[4 * at : 4 * at + 4]):
                source, target, relation = split_ids(field, 3)
                yield f"link {source!r} {relation} {target!r}: an end does not exist or does not know it"


# reindexing: How do all entries get new terms and vectors, while the store is in use?


_REINDEX_BATCH = 256

ProgressCallback = Callable[[int, int], None]


def reindex(
    transactions: TransactionRunner,
    namespaces: Sequence[str],
    embedder: Embedder | None,
    progress: ProgressCallback | None,
) -> None:
    """Give every entry new terms, and vectors of this embedder, a portion at a time.

    When it is interrupted, the next time goes on where it was.
    """
    lists = {name: _entry_ids(transactions, name) for name in namespaces}
    total, done = sum(map(len, lists.values())), 0
    for namespace, members in lists.items():
        if embedder is not None and members:
            transactions.run_write(partial(_claim_model, namespace=namespace, model=transactions.model))
        for some in batches(members, _REINDEX_BATCH):
            _reindex_batch(transactions, namespace, some, embedder)
            done += len(some)
            if progress is not None:
                progress(done, total)


def _entry_ids(transactions: TransactionRunner, namespace: str) -> list[str]:
    (found,) = transactions.server.read([["ZRANGE", transactions.keys(namespace)("time", "*"), "0", "-1"]])
    return [member[16:].decode() for member in found]


def _claim_model(state: StoreState, namespace: str, model: str) -> None:
    """Say whose vectors the namespace holds from now on."""
    assert isinstance(state, RedisTransaction)
    part = state.changes_in(namespace)
    part.command("HSET", part.keys("meta"), "model", model)


def _reindex_batch(
    transactions: TransactionRunner, namespace: str, ids: Sequence[str], embedder: Embedder | None
) -> None:
    seen = transactions.run_read(lambda state: _outdated_entries(state, namespace, ids, transactions.model))
    if not seen:
        return
    fresh = dict(zip(seen, index_entries([*seen.values()], embedder), strict=True))
    transactions.run_write(lambda state: _save_index_data(state, namespace, seen, fresh, transactions.model))


def _outdated_entries(state: StoreState, namespace: str, ids: Sequence[str], model: str) -> dict[str, Entry]:
    """The entries whose terms or vectors are not those that they should have."""
    return {
        one.entry.id: one.entry
        for one in state.load_index_data([*state.find_many(namespace, ids).values()])
        if (model and as_fetched(one).model != model) or _features_of(one.entry) != one.index_data.features
    }


def _features_of(entry: Entry) -> bytes:
    return bytes(features.extract_features(text_of(entry)).to_bytes())


def _save_index_data(
    state: StoreState, namespace: str, seen: dict[str, Entry], fresh: dict[str, IndexData], model: str
) -> None:
    """Keep what was made of entries that are still as they were; others were indexed when they changed."""
    assert isinstance(state, RedisTransaction)
    now = state.find_many(namespace, seen.keys())
    state.load_index_data([*now.values()])
    for id, one in now.items():
        if one.entry.rev != seen[id].rev or one.entry.created_at != seen[id].created_at:
            continue
        mine, found = as_fetched(one), fresh[id]
        if found.pooled is None or (mine.has_custom_vector and mine.model == model):
            old = mine.index_data
            found = found._replace(pooled=old.pooled, tokens=old.tokens, given=old.given)
        else:
            mine.model, mine.has_custom_vector = model, False
        mine.index_data, mine.is_index_changed = found, True
        state.changes_in(namespace).changed_entries[id] = mine


# upkeep: Does the server keep what it is given, and how is erased content cleared from its files?


_REWRITE_TIMEOUT_S = 10.0
_MIN_VERSION = (6, 2)

_AOF_PENDING = "the append-only file, until it is rewritten: call scrub()"
_RDB_PENDING = "the snapshot (dump.rdb), until the next one: call scrub()"
_FILES_UNKNOWN = "what the server keeps in its files, of which it tells nothing: have it rewrite them"


def ensure_store(server: RedisConnections, key: bytes, schema: str, *, read_only: bool) -> str:
    """Make sure that a store is one that can be understood, a new one if there is none; its life."""
    if not read_only:
        server.execute("HSETNX", key, "schema", schema)
        server.execute("HSETNX", key, "features", str(features.VERSION))
        server.execute("HSETNX", key, "life", ids.uuid7())
    found, life = server.execute("HMGET", key, "schema", "life")
    if found is not None and found.decode() != schema:
        raise WrongVersion(
            server.name, f"has schema {found.decode()}, and this Omoide knows {schema}", "install a newer one"
        )
    return "" if life is None else str(life.decode())


def check_server(server: RedisConnections, settings: StoreSettings) -> None:
    """Raise when the server is too old, or does not keep what the settings promise."""
    version = _server_info(server).get("redis_version", "")
    if version and tuple(int(part) for part in version.split(".")[:2]) < _MIN_VERSION:
        raise StoreFailed(server.name, f"is Redis {version}", "use 6.2 or newer")
    if settings.durability != "power" or settings.read_only:
        return
    log, often = _server_config(server, "appendonly"), _server_config(server, "appendfsync")
    if log is not None and (log, often) != ("yes", "always"):
        raise Invalid(
            "durability",
            f"is 'power', and the server has appendonly {log} and appendfsync {often}",
            "run CONFIG SET appendonly yes and CONFIG SET appendfsync always, and write both to redis.conf",
        )


def findings(server: RedisConnections, schema: str) -> list[Finding]:
    """What there is to know about the server's upkeep."""
    info = _server_info(server)
    version = info.get("redis_version", "unknown")
    found = [
        Finding("version", "ok", f"schema {schema}, the newest known"),
        Finding("server", "ok", f"Redis {version}"),
    ]
    if info.get("role") in ("slave", "replica"):
        found.append(
            Finding("role", "problem", "a replica, which takes no writes: use the primary's address")
        )
    log = _server_config(server, "appendonly")
    if log is None:
        told = (
            "it does not say how it keeps its data (CONFIG is forbidden): look at what its provider promises"
        )
        return [*found, Finding("persistence", "note", told)]
    return [*found, _persistence_finding(server, log), _eviction_finding(server)]


def _persistence_finding(server: RedisConnections, log: str) -> Finding:
    often = _server_config(server, "appendfsync")
    remedy = "CONFIG SET appendonly yes, CONFIG SET appendfsync always, and the same in redis.conf"
    if log != "yes":
        snapshots = _server_config(server, "save")
        told = "only in snapshots now and then" if snapshots else "nowhere but in memory"
        return Finding("persistence", "problem", f"changes are kept {told}: {remedy}")
    if often == "always":
        return Finding("persistence", "ok", "every change is on the disk before it is acknowledged")
    if often == "everysec":
        told = "a crash of the machine may lose a second: CONFIG SET appendfsync always keeps it too"
        return Finding("persistence", "note", told)
    return Finding("persistence", "problem", f"the system decides when changes reach the disk: {remedy}")


def _eviction_finding(server: RedisConnections) -> Finding:
    policy = _server_config(server, "maxmemory-policy")
    if policy in (None, "noeviction"):
        return Finding("memory", "ok", "nothing is thrown away when memory is full")
    told = f"maxmemory-policy is {policy}: memories would be thrown away"
    return Finding("memory", "problem", f"{told}; CONFIG SET maxmemory-policy noeviction, and in redis.conf")


def with_pending_files(server: RedisConnections, receipt: EraseReceipt) -> EraseReceipt:
    """A receipt that says where erased content may still lie."""
    pending = _pending_files(server)
    return receipt.replace(scrubbed=not pending, pending=pending)


def scrub(server: RedisConnections, receipt: EraseReceipt) -> EraseReceipt:
    """Have the server write its files anew, and wait a moment for it."""
    pending = _pending_files(server)
    try:
        for what, command in ((_AOF_PENDING, "BGREWRITEAOF"), (_RDB_PENDING, "BGSAVE")):
            if what in pending:
                pending = _rewrite_file(server, command, what, pending)
    except StoreFailed as error:
        return receipt.replace(pending=(f"{'; '.join(pending)} ({error})",))
    return receipt.replace(scrubbed=not pending, pending=pending)


def _rewrite_file(
    server: RedisConnections, command: str, what: str, pending: tuple[str, ...]
) -> tuple[str, ...]:
    _wait_for_rewrite(server)
    server.execute(command)
    return tuple(one for one in pending if one != what) if _wait_for_rewrite(server) else pending


def _wait_for_rewrite(server: RedisConnections) -> bool:
    """Whether the server is done with its files within a moment."""
    until = time.monotonic() + min(_REWRITE_TIMEOUT_S, server.timeout)
    names = ("aof_rewrite_in_progress", "aof_rewrite_scheduled", "rdb_bgsave_in_progress")
    while time.monotonic() < until:
        info = _server_info(server, "persistence")
        if all(info.get(name, "0") == "0" for name in names):
            return info.get("aof_last_bgrewrite_status", "ok") == "ok"
        time.sleep(0.01)
    return False


def _pending_files(server: RedisConnections) -> tuple[str, ...]:
    log, snapshots = _server_config(server, "appendonly"), _server_config(server, "save")
    if log is None:
        return (_FILES_UNKNOWN,)
    return tuple(
        what for what, there in ((_AOF_PENDING, log == "yes"), (_RDB_PENDING, bool(snapshots))) if there
    )


def sizes(server: RedisConnections, keys: NamespaceKeys) -> dict[str, Any]:
    """How far the log of a namespace goes, and how much memory the server uses."""
    last = server.execute("HGET", keys("meta"), "seq")
    used = _server_info(server, "memory").get("used_memory", "0")
    return {"last_seq": int(last or 0), "size_bytes": int(used)}


def _server_config(server: RedisConnections, name: str) -> str | None:
    """A setting of the server, if it tells."""
    try:
        found = server.client.config_get(name)
    except Exception as error:  # noqa: BLE001 - whatever it is, the server does not tell
        del error
        return None
    value = found.get(name) if isinstance(found, dict) else None
    return value.decode() if isinstance(value, bytes) else value


def _server_info(server: RedisConnections, *section: str) -> dict[str, str]:
    """What the server says of itself, as far as it does."""
    try:
        raw = server.execute("INFO", *section)
    except ReadOnly:  # a user who may not ask
        return {}
    if isinstance(raw, dict):  # the client has read it
        return {str(name): str(value) for name, value in raw.items()}
    lines = raw.decode(errors="replace").splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
