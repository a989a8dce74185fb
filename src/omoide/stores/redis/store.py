"""RedisStore: open, pages, feed.

By the rules of the reference: each operation fetches the part of the state that it needs, does with it what
the store in memory would do, and hands in what changed.
"""

from __future__ import annotations

try:
    import redis as _redis  # noqa: F401
except ImportError as error:
    from omoide.errors import MissingExtra

    raise MissingExtra("redis://", "redis") from error

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlunsplit
from weakref import WeakSet

import msgspec

from omoide import clock
from omoide.core.entry import Entry, Filter, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.core.frozen import EMPTY_MAP
from omoide.embedders import Embedder
from omoide.errors import EmbedderChanged, Invalid, MissingExtra
from omoide.retrieval import features
from omoide.stores import recall as recalling
from omoide.stores import records, semantics
from omoide.stores.async_store import AsyncStore
from omoide.stores.memory import MemoryStore
from omoide.stores.recall import Candidates, QueryEncoder
from omoide.stores.records import Access, Change, EraseReceipt, Feed, Finding, Link, Page, Query, Stats
from omoide.stores.redaction import mask_url
from omoide.stores.redis import layout, maintenance
from omoide.stores.redis.connection import Command, RedisConnections
from omoide.stores.redis.layout import NamespaceKeys, partition_for, split_ids, store_key
from omoide.stores.redis.snapshot import batches
from omoide.stores.redis.transaction import RedisTransaction, TransactionRunner
from omoide.stores.state import StoreState
from omoide.stores.url import StoreURL, embedder_for
from omoide.stores.validation import StoreSettings, validate_arguments

if TYPE_CHECKING:
    from omoide.stores.redis.cache import RedisCandidateSource


# feeding: What changed, and what did it become?


LogLine = tuple[bytes, list[bytes]]


def read_changes(
    server: RedisConnections, keys: NamespaceKeys, namespace: str, after: int, limit: int
) -> list[Change]:
    """The changes after a sequence number, in the order of their commits."""
    (lines,) = server.read([_changes_command(keys, after, limit)])
    return [_to_change(namespace, line) for line in lines]


def read_feed(
    unit: RedisTransaction, namespace: str, after: int, limit: int, used_since: int | None, life: str
) -> Feed:
    """What changed after a sequence number, and what it became since."""
    keys = unit.changes_in(namespace).keys
    meta, here, size, lines = unit.fetch(
        [
            ["HMGET", keys("meta"), "seq", "stones"],
            _change_command(keys, after),
            ["HLEN", keys("rows")],
            _changes_command(keys, after, limit + 1),
        ]
    )
    more = len(lines) > limit
    if more and after == 0 and size + int(meta[1] or 0) <= limit:
        # What is asked for from the start and fits is told at once, however often it changed.
        meta, lines = unit.fetch(
            [["HMGET", keys("meta"), "seq", "stones"], _changes_command(keys, after, None)]
        )
        more = False
    told = [_to_change(namespace, line) for line in (lines[:limit] if more else lines)]
    latest = dict.fromkeys(change.id for change in reversed(told))
    ids = [*reversed(latest)]
    held = unit.find_many(namespace, ids)
    written = {(change.id, change.rev) for change in told if change.op == "write"}
    born = {id for id, one in held.items() if (id, one.first_rev) in written}
    seq = told[-1].seq if more else int(meta[0] or 0)
    (there,) = unit.fetch([_change_command(keys, seq)])
    return Feed(
        generation=life,
        seq=seq,
        after_fingerprint=_mark(namespace, here),
        seq_fingerprint=_mark(namespace, there),
        more=more,
        entries=tuple(held[id].entry for id in ids if id in held),
        links=tuple(_links_from(unit, namespace, [id for id in ids if id in held])),
        access=_access_counts(unit, namespace, held, used_since),
        erased_ids=tuple(dict.fromkeys(change.id for change in told if change.op == "erase")),
        new_ids=frozenset(born - unit.erased_ids(namespace, born)),
    )


def _changes_command(keys: NamespaceKeys, after: int, limit: int | None) -> Command:
    count = [] if limit is None else ["COUNT", str(min(limit, 1 << 40))]
    return ["XRANGE", keys("log"), f"({after}-0", "+", *count]


def _change_command(keys: NamespaceKeys, seq: int) -> Command:
    return ["XRANGE", keys("log"), f"{seq}-0", f"{seq}-0"]


def _to_change(namespace: str, line: LogLine) -> Change:
    number, fields = line
    id, op, rev, at = layout.decode_change(fields[1])
    return Change(seq=int(number.split(b"-")[0]), namespace=namespace, id=id, op=op, rev=rev, at=at)


def _mark(namespace: str, lines: Sequence[LogLine]) -> str:
    if not lines:
        return ""
    told = [namespace, *layout.decode_change(lines[0][1][1])]
    return blake2b(msgspec.json.encode(told), digest_size=8).hexdigest()


def _links_from(unit: RedisTransaction, namespace: str, ids: Sequence[str]) -> list[Link]:
    """All links that begin at some entries."""
    keys = unit.changes_in(namespace).keys
    (count,) = unit.fetch([["HLEN", keys("links")]])
    if not count or not ids:
        return []
    fields: set[bytes] = set()
    for some in batches(ids):
        for id, ends in zip(some, unit.fetch([["SMEMBERS", keys("ends", id)] for id in some]), strict=True):
            fields.update(field for field in ends if split_ids(field, 3)[0] == id)
    found = []
    for few in batches(sorted(fields)):
        (values,) = unit.fetch([["HMGET", keys("links"), *few]])
        for field, raw in zip(few, values, strict=True):
            if raw is not None:
                source, target, relation = split_ids(field, 3)
                found.append(Link(source=source, relation=relation, target=target, created_at=int(raw)))
    return sorted(found, key=lambda link: (link.source, link.relation, link.target))


def _access_counts(
    unit: RedisTransaction, namespace: str, held: Mapping[str, Any], since: int | None
) -> dict[str, Access]:
    """How often entries were used: those that changed, and those used since a moment."""
    keys = unit.changes_in(namespace).keys
    names = dict.fromkeys(held)
    if since is not None:
        (recent,) = unit.fetch([["ZRANGEBYSCORE", keys("used"), str(since), "+inf"]])
        names.update(dict.fromkeys(name.decode() for name in recent))
    found: dict[str, Access] = {}
    for some in batches([*names]):
        counts, lasts = unit.fetch([["HMGET", keys("access"), *some], ["ZMSCORE", keys("used"), *some]])
        for id, count, last in zip(some, counts, lasts, strict=True):
            if count is not None:
                found[id] = Access(count=int(count), last=None if last is None else int(float(last)))
    return found


# opening: Which server does a URL mean, and which store on it?


OPTIONS: tuple[str, ...] = ("prefix", "cluster", "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname")
"""What a URL may say beside the settings that all stores have."""

DEFAULT_PREFIX = "omoide:"
_BOOLEANS = {"yes": True, "1": True, "true": True, "no": False, "0": False, "false": False}


def open_at(address: StoreURL, embedder: Any, settings: StoreSettings) -> AsyncStore:
    """The store on a server."""
    prefix = address.options.get("prefix", DEFAULT_PREFIX)
    if not layout.is_valid_prefix(prefix):
        raise Invalid("prefix", f"is {prefix!r}", "use up to 64 letters without spaces and braces")
    server = _connect(address, settings)
    try:
        kept = stored_embedder_name(server, prefix) if embedder == "auto" else None
        store = RedisStore(server, prefix, embedder_for(server.name, embedder, kept), settings)
    except BaseException:
        server.close()
        raise
    return AsyncStore(store, address.url)


def _connect(address: StoreURL, settings: StoreSettings) -> RedisConnections:
    from omoide.stores.redis.connection import RedisConnections

    parts, options = address.parts, address.options
    if parts.path.strip("/") and not parts.path.strip("/").isdecimal():
        raise Invalid(
            "url", f"{mask_url(address.url)!r} names no database", "write its number: redis://host/0"
        )
    cluster = _BOOLEANS.get(str(options.get("cluster", "no")).lower())
    if cluster is None:
        raise Invalid("cluster", f"is {options['cluster']!r}", "write cluster=yes, or leave it out")
    tls = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if tls and parts.scheme != "rediss":
        raise Invalid(next(iter(tls)), "is for rediss:// only", "leave it out, or use rediss://")
    if "ssl_check_hostname" in tls:
        tls["ssl_check_hostname"] = _BOOLEANS.get(str(tls["ssl_check_hostname"]).lower(), True)
    try:
        port = parts.port or 6379
    except ValueError as error:
        raise Invalid("url", f"{mask_url(address.url)!r} has no such port", "write a number") from error
    where = f"{parts.scheme}://{parts.hostname or 'localhost'}:{port}/{parts.path.strip('/') or 0}"
    plain = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    return RedisConnections(plain, where, timeout=settings.timeout, cluster=cluster, options=tls)


# pages: Which entries fit, newest first, a page at a time?


_PAGE_BATCH = 200


def query_page(state: StoreState, query: Query) -> Page:
    """The next entries that fit."""
    assert isinstance(state, RedisTransaction)
    place = (1 << 63, 1 << 63) if query.cursor is None else records.decode_cursor(query.cursor)
    passes = semantics.entry_predicate(query.filter, query.at)
    found: list[tuple[tuple[int, int], Entry]] = []
    portion = min(_PAGE_BATCH, query.limit + 1)
    since = 0 if query.filter.since is None else query.filter.since
    offset = 0
    while len(found) <= query.limit:
        members = _read_members(state, query, place[0], since, offset, portion)
        offset += len(members)
        ids = [member[layout.STAMP_LENGTH :].decode() for member in members]
        held = state.find_many(query.scope.namespace, ids)
        for id in ids:
            one = held.get(id)
            if one is not None and query.scope.contains(one.entry) and passes(one.entry):
                at = (semantics.time_of(one.entry), one.number)
                if at < place:
                    found.append((at, one.entry))
        if len(members) < portion:
            break
        portion = _PAGE_BATCH
    shown = found[: query.limit]
    cursor = records.encode_cursor(*shown[-1][0]) if len(found) > len(shown) else None
    return Page(entries=tuple(entry for _, entry in shown), cursor=cursor)


def _read_members(
    state: RedisTransaction, query: Query, until: int, since: int, offset: int, count: int
) -> list[bytes]:
    part, name = state.changes_in(query.scope.namespace), partition_for(query.scope)
    until = until if query.filter.until is None else min(until, query.filter.until)
    asked = ["ZREVRANGEBYSCORE", part.keys("time", name), str(until), str(since)]
    members: list[bytes]
    members, stamp = state.fetch(
        [[*asked, "LIMIT", str(offset), str(count)], ["HGET", part.keys("watch"), name]]
    )
    part.expect("watch", name, stamp)
    return members


# store: How does a server answer what a store is asked?


feeding_changes = read_changes
feeding_changed = read_feed


T = TypeVar("T")

SCHEMA_VERSION = "1"

_log = logging.getLogger("omoide")
_OPEN_STORES: WeakSet[RedisStore] = WeakSet()


@validate_arguments
class RedisStore(MemoryStore):
    """Memories on a Redis server, for several threads, processes and machines at once."""

    UNREACHABLE: ClassVar[tuple[str, ...]] = (
        "replicas that have not caught up",
        "backups and snapshots made before",
        "exports and copies",
        "graphs that have not caught up",
        "what other programs read",
    )

    def __init__(
        self, server: RedisConnections, prefix: str, embedder: Embedder | None, settings: StoreSettings
    ) -> None:
        super().__init__(embedder, settings)
        self._server = server
        self._prefix = prefix
        self._transactions = TransactionRunner(server, prefix, read_only=settings.read_only)
        self._store_key = store_key(prefix, "store")
        self._open()
        self._reset()
        _OPEN_STORES.add(self)

    def _reset(self) -> None:
        """Hold nothing in memory yet; also what a forked process does, whose locks may be held for ever."""
        self._server.reset()
        self._source: RedisCandidateSource | None = None
        self._source_lock = Lock()
        self._embedder_condition = Condition()
        self._embedder_users = 0

    def _open(self) -> None:
        maintenance.check_server(self._server, self.settings)
        maintenance.ensure_store(
            self._server, self._store_key, SCHEMA_VERSION, read_only=self.settings.read_only
        )
        if self.embedder is not None:
            self._check_embedder(self.embedder)
        self._transactions.model = model_of(self.embedder)
        version = self._server.execute("HGET", self._store_key, "features")
        if version not in (None, str(features.VERSION).encode()):
            _log.warning(
                "%s was indexed by another version of Omoide: recall finds less until it is reindexed "
                "(omoide reindex)",
                self._server.name,
            )

    def _check_embedder(self, embedder: Embedder) -> None:
        """Raise when the store holds vectors of another embedder; say whose it will hold."""
        for namespace in self.known_namespaces():
            model, vectors = self._server.execute(
                "HMGET", self._transactions.keys(namespace)("meta"), "model", "vectors"
            )
            if int(vectors or 0) > 0 and model.decode() != model_of(embedder):
                name, dim = parse_model(model)
                raise EmbedderChanged(self._server.name, name, dim, embedder.name, embedder.dim)

    def known_namespaces(self) -> list[str]:
        """The namespaces in which anything was ever written."""
        found = self._server.execute("SMEMBERS", store_key(self._prefix, "namespaces"))
        return sorted(name.decode() for name in found)

    # How the reference works on the server

    def _run_read(self, operation: Callable[[StoreState], T]) -> T:
        return self._transactions.run_read(operation)

    def _run_write(self, operation: Callable[[StoreState], T], *, rollback: bool = False) -> T:
        del rollback  # nothing is changed before all of it is
        return self._transactions.run_write(operation)

    @contextmanager
    def _pin_embedder(self) -> Iterator[None]:
        """A block in which the embedder stays the one whose name vectors are kept under."""
        with self._embedder_condition:
            self._embedder_users += 1
        try:
            yield
        finally:
            with self._embedder_condition:
                self._embedder_users -= 1
                self._embedder_condition.notify_all()

    def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Keep all of these entries, or none."""
        with self._pin_embedder():
            return super().write_many(requests)

    def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Keep an entry that comes with its own vector."""
        with self._pin_embedder():
            return super().write_with_vector(request, vector)

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Keep entries exactly as they were elsewhere; how many were new."""
        with self._pin_embedder():
            return super().import_entries(entries, links, access)

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Note that entries were used."""
        if not self.settings.read_only:
            super().record_access(ids, scope)

    # Reading

    def recall(self, request: RecallRequest) -> RecallResult:
        """The entries that answer best."""
        if not recalling.has_numpy():
            return recalling.recall_by_words(request, self, self.settings.count_tokens)
        return recalling.recall(request, self._cached_source(), self.embedder, self.settings.count_tokens)

    def _cached_source(self) -> RedisCandidateSource:
        from omoide.stores.redis.cache import RedisCandidateSource  # needs NumPy

        with self._source_lock:
            if self._source is None:
                self._source = RedisCandidateSource(
                    self._transactions, self.embedder, self.uncached_candidates
                )
            return self._source

    @contextmanager
    def uncached_candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> Iterator[Candidates | None]:
        """All entries of a scope that count, fetched for this question alone."""
        with super().candidates(scope, filter, at, limit, encode_query) as found:
            yield found

    def query(self, query: Query) -> Page:
        """The entries that fit, newest first."""
        if query.as_of is not None:
            return super().query(query)
        return self._transactions.run_read(lambda state: query_page(state, query))

    def stats(self, scope: Scope) -> Stats:
        """Figures about a scope."""
        found = super().stats(scope)
        return found.replace(**maintenance.sizes(self._server, self._transactions.keys(scope.namespace)))

    def namespaces(self) -> list[str]:
        """The namespaces that hold an entry or a document, in order."""
        return [name for name in self.known_namespaces() if self._has_records(name)]

    def _has_records(self, namespace: str) -> bool:
        keys = self._transactions.keys(namespace)
        return any(self._server.read([["HLEN", keys("rows")], ["HLEN", keys("docs")]]))

    def kinds(self, namespace: str) -> list[str]:
        """The kinds of the documents in a namespace, in order."""
        keys = self._transactions.keys(namespace)
        names = sorted(kind.decode() for kind in self._server.read([["SMEMBERS", keys("kinds")]])[0])
        sizes = self._server.read([["ZCARD", keys("kind", name)] for name in names]) if names else []
        return [name for name, size in zip(names, sizes, strict=True) if size]

    def changes(self, namespace: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """The changes after a sequence number, in the order of their commits."""
        return feeding_changes(self._server, self._transactions.keys(namespace), namespace, after, limit)

    def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """What changed after a sequence number, and what it became."""
        # Asked each time: a server that was emptied lives another life.
        life = maintenance.ensure_store(self._server, self._store_key, SCHEMA_VERSION, read_only=True)
        return feeding_changed(self._transactions.begin(), namespace, after, limit, used_since, life)

    # Erasing and upkeep

    def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in a scope, for good."""
        receipt = super().erase(scope, id=id, reason=reason)
        return maintenance.with_pending_files(self._server, receipt)

    def scrub(self) -> EraseReceipt:
        """Have the server write its files anew, without what was erased."""
        receipt = EraseReceipt(at=clock.now(), unreachable=self.UNREACHABLE)
        return maintenance.scrub(self._server, receipt)

    def findings(self) -> list[Finding]:
        """What there is to know about the server's upkeep."""
        return maintenance.findings(self._server, SCHEMA_VERSION)

    def check(self) -> list[str]:
        """What is wrong with the store; empty when it is sound."""
        return [
            problem
            for name in self.known_namespaces()
            for problem in maintenance.check(self._server, self._transactions.keys(name), name)
        ]

    def reindex(
        self, embedder: Embedder | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Give all entries new terms and vectors, by this embedder if one is given, while in use.

        It serves from the beginning: until an entry has its new vector, it is found by its words.
        """
        chosen = embedder or self.embedder
        with self._embedder_condition:
            self._embedder_condition.wait_for(lambda: not self._embedder_users)
            with self._source_lock:
                self.embedder, self._source = chosen, None
                self._transactions.model = model_of(chosen)
        maintenance.reindex(self._transactions, self.known_namespaces(), chosen, progress)
        self._server.execute("HSET", self._store_key, "features", str(features.VERSION))

    def close(self) -> None:
        """Let go of all connections."""
        if not self._server.closed:
            self._server.close()


def model_of(embedder: Embedder | None) -> str:
    """What tells whose vectors can be compared."""
    return "" if embedder is None else f"{embedder.name}\x1f{embedder.dim}\x1f"


def parse_model(model: bytes) -> tuple[str, int]:
    """The name of an embedder, and how many numbers its vectors have."""
    name, dim, _ = model.decode().split("\x1f")
    return name, int(dim)


def stored_embedder_name(server: RedisConnections, prefix: str) -> str | None:
    """The name of the embedder whose vectors a store holds, if it holds any."""
    work = TransactionRunner(server, prefix)
    for namespace in sorted(server.execute("SMEMBERS", store_key(prefix, "namespaces"))):
        model, vectors = server.execute("HMGET", work.keys(namespace.decode())("meta"), "model", "vectors")
        if int(vectors or 0) > 0:
            return parse_model(model)[0]
    return None


def _after_fork() -> None:
    for store in _OPEN_STORES:
        store._reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
