"""Store entries on a Redis server.

Each operation of `omoide.stores.operations` runs on a snapshot of what it needs, and its changes are
committed at once. Pages, the change feed and recall read the server in their own ways, because they concern
more than a few entries.
"""

from __future__ import annotations

try:
    import redis as _redis  # noqa: F401
except ImportError as error:
    from omoide.errors import MissingExtra

    raise MissingExtra("redis://", "redis") from error

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar
from urllib.parse import urlunsplit

import msgspec

from omoide import clock, forks
from omoide.core.entry import Entry, Filter, RecallRequest, RecallResult, Scope
from omoide.embedders import Embedder, choose
from omoide.errors import Invalid, MissingExtra, ReadOnly
from omoide.forks import ForkListener
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores import damage, operations, records, semantics
from omoide.stores import recall as recall_engine
from omoide.stores.async_store import AsyncStore
from omoide.stores.factory import StoreURL, embedder_for
from omoide.stores.recall import Candidates, QueryEncoder, words_only
from omoide.stores.records import (
    Access,
    Change,
    EraseReceipt,
    Feed,
    Finding,
    Link,
    Owner,
    Page,
    Query,
    ReindexResult,
    RepairResult,
    Stats,
    check_arguments,
    model_key,
)
from omoide.stores.redaction import mask_url
from omoide.stores.redis import layout, maintenance
from omoide.stores.redis import repair as repairing
from omoide.stores.redis.connection import Command, RedisConnections
from omoide.stores.redis.layout import DEFAULT_PREFIX, NamespaceKeys, partition_for, split_ids, store_key
from omoide.stores.redis.snapshot import RedisSnapshot, batches
from omoide.stores.redis.transaction import RedisTransaction, TransactionRunner
from omoide.stores.reindex import ProgressCallback, bound_notice, outdated_notice
from omoide.stores.semantics import StoreSettings
from omoide.stores.state_store import EmbedderGate, StateStore

if TYPE_CHECKING:
    from omoide.stores.redis.cache import RedisCandidateSource

T = TypeVar("T")

OPTIONS: tuple[str, ...] = ("prefix", "cluster", "ssl_ca_certs", "ssl_cert_reqs", "ssl_check_hostname")
"""Options of a `redis://` URL beside the settings of all stores."""

_BOOLEANS = {"yes": True, "1": True, "true": True, "no": False, "0": False, "false": False}
_PAGE_BATCH = 200
_CHANGES_BATCH = 1_000

_log = logging.getLogger("omoide")


def open_at(address: StoreURL, embedder: Any, settings: StoreSettings) -> AsyncStore:
    """Open the store at a URL."""
    prefix = address.options.get("prefix", DEFAULT_PREFIX)
    if not layout.is_valid_prefix(prefix):
        raise Invalid("prefix", f"is {prefix!r}", "use up to 64 letters without spaces and braces")
    server = _connect(address, settings)
    try:
        name = stored_embedder(server, prefix) if embedder == "auto" else None
        store = RedisStore(server, prefix, embedder_for(embedder, name), settings)
    except BaseException:
        server.close()
        raise
    return AsyncStore(store, address.url)


def _connect(address: StoreURL, settings: StoreSettings) -> RedisConnections:
    parts, options = address.parts, address.options
    database = parts.path.strip("/")
    if database and not database.isdecimal():
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
    name = f"{parts.scheme}://{parts.hostname or 'localhost'}:{port}/{database or 0}"  # without a password
    url = urlunsplit((parts.scheme, parts.netloc, parts.path, "", ""))
    return RedisConnections(url, name, timeout=settings.timeout, cluster=cluster, options=tls)


class RedisStore(StateStore, ForkListener):
    """A store on a Redis server, for several threads, processes and machines at once."""

    UNREACHABLE: ClassVar[tuple[str, ...]] = (
        "replicas that have not caught up",
        "backups made before, and files of an earlier run of the server",
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
        self._place = self._transactions.place
        self._store_key = store_key(prefix, "store")
        self._check_store()
        self._reset()
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Start with empty caches and free locks; those of the parent may be held for ever."""
        self._reset()

    def _reset(self) -> None:
        self._server.reset()
        self._source: RedisCandidateSource | None = None
        self._source_lock = Lock()
        self._embedder_gate = EmbedderGate()

    def _check_store(self) -> None:
        maintenance.check_server(self._server, self.settings)
        maintenance.ensure_store(self._server, self._store_key, read_only=self.settings.read_only)
        self._transactions.find_shards()
        self._transactions.model = model_key(self.embedder)
        self._is_index_current = self._check_index()
        bound_to = stored_embedder(self._server, self._prefix, other_than=self._transactions.model)
        if self.embedder is not None and bound_to is not None:
            notice = bound_notice(self._transactions.place, bound_to, self.embedder)
            _log.warning("%s: %s", self._server.name, notice)
        elif not self._is_index_current:
            _log.warning("%s: %s", self._server.name, outdated_notice(self._transactions.place))

    def _check_index(self) -> bool:
        """Return True if the stored terms are those of this version of Omoide."""
        version = self._server.execute("HGET", self._store_key, "features")
        return version in (None, str(FEATURES_VERSION).encode())

    def close(self) -> None:
        """Close all connections."""
        if not self._server.closed:
            self._server.close()

    def _run_read(self, operation: Callable[[RedisSnapshot], T]) -> T:
        return self._transactions.run_read(operation)

    def _run_write(self, operation: Callable[[RedisTransaction], T], *, rollback: bool = False) -> T:
        del rollback  # the server is changed by the commit alone
        return self._transactions.run_write(operation)

    # Writes

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Count one use of each of these entries, unless the store is read only."""
        if self.settings.read_only:
            check_arguments(ids=ids, scope=scope)
        else:
            super().record_access(ids, scope)

    def erase(
        self, scope: Scope, *, id: str | Sequence[str] | None = None, reason: str | None = None
    ) -> EraseReceipt:
        """Erase one entry or several, or everything in a scope, permanently."""
        receipt = super().erase(scope, id=id, reason=reason)
        aside = damage.file_notices(self.set_aside_files())
        receipt = receipt.replace(unreachable=(*receipt.unreachable, *aside))
        return maintenance.with_pending_files(self._server, receipt)

    def scrub(self) -> EraseReceipt:
        """Have the server rewrite its files without what was erased."""
        receipt = EraseReceipt(at=clock.now(), unreachable=self.UNREACHABLE)
        return maintenance.scrub(self._server, receipt)

    # Reads

    def recall(self, request: RecallRequest) -> RecallResult:
        """Return the entries that answer best."""
        check_arguments(recall_request=request)
        if not recall_engine.has_numpy():
            return recall_engine.recall_by_words(request, self, self.settings)
        result = recall_engine.recall(request, self._cached_source(), self.embedder, self.settings)
        self._is_index_current = self._is_index_current or self._check_index()
        if self._is_index_current:
            return result
        return result.replace(notices=(*result.notices, outdated_notice(self._transactions.place)))

    def _candidates(
        self, scope: Scope, filter: Filter, at: int, encode_query: QueryEncoder
    ) -> Candidates | None:
        """Build the candidates of a scope; by words if its namespace has the vectors of another embedder."""

        def build(state: RedisSnapshot) -> Candidates | None:
            bound_to = self._bound_to(state, scope.namespace)
            if self.embedder is None or bound_to is None:
                return operations.candidates(state, scope, filter, at, encode_query, self.embedder)
            found = operations.candidates(state, scope, filter, at, words_only(encode_query), None)
            notice = bound_notice(self._transactions.place, bound_to, self.embedder)
            return None if found is None else found._replace(notices=(notice,))

        return self._run_read(build)

    def _bound_to(self, state: RedisSnapshot, namespace: str) -> str | None:
        """Return the embedder whose vectors a namespace has, if it is another than the store's own."""
        model, vectors = state.model_of(namespace)
        if self._server.integer(vectors, "count of vectors") <= 0 or model == model_key(self.embedder):
            return None
        return layout.embedder_name(model)

    def _cached_source(self) -> RedisCandidateSource:
        from omoide.stores.redis.cache import RedisCandidateSource  # needs NumPy

        with self._source_lock:
            if self._source is None:
                self._source = RedisCandidateSource(self._transactions, self.embedder, self._candidates)
            return self._source

    def query(self, query: Query) -> Page:
        """Return a page of the entries that pass a filter, newest first."""
        check_arguments(query=query)
        if query.as_of is not None:
            return super().query(query)
        return self._transactions.run_read(lambda state: _query_page(state, query))

    def stats(self, scope: Scope) -> Stats:
        """Count the entries, versions and links of a scope."""
        check_arguments(scope=scope)
        now = clock.now()

        def count(state: RedisSnapshot) -> Stats:
            bound_to = self._bound_to(state, scope.namespace)
            found = operations.stats(state, scope, self.embedder, now)
            return found if bound_to is None else found.replace(embedder=bound_to)

        stats = self._transactions.run_read(count)
        unchecked = maintenance.count_unchecked(self._transactions, self._store_key, self.known_namespaces())
        stats = stats.replace(unchecked=unchecked, set_aside=len(self.set_aside_files()))
        return stats.replace(**maintenance.sizes(self._server, self._transactions.keys(scope.namespace)))

    def owners(self, scope: Scope) -> list[Owner]:
        """Return the users, agents and projects that have entries in a scope."""
        check_arguments(scope=scope)
        now = clock.now()
        return self._transactions.run_read(lambda state: operations.owners(state, scope, now))

    def namespaces(self) -> list[str]:
        """Return the namespaces that have an entry or a document, sorted."""
        return [name for name in self.known_namespaces() if self._has_records(name)]

    def known_namespaces(self) -> list[str]:
        """Return the namespaces in which anything was ever written, sorted."""
        return _known_namespaces(self._server, self._prefix)

    def _has_records(self, namespace: str) -> bool:
        keys = self._transactions.keys(namespace)
        return any(self._server.read([["HLEN", keys("rows")], ["HLEN", keys("docs")]]))

    def kinds(self, namespace: str) -> list[str]:
        """Return the kinds of the documents in a namespace, sorted."""
        check_arguments(namespace=namespace)
        keys = self._transactions.keys(namespace)
        kinds = sorted(layout.decode_ids(self._server.read([["SMEMBERS", keys("kinds")]])[0]))
        sizes = self._server.read([["ZCARD", keys("kind", kind)] for kind in kinds]) if kinds else []
        return [kind for kind, size in zip(kinds, sizes, strict=True) if size]

    def changes(
        self,
        namespace: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = 1000,
        scope: Scope | None = None,
    ) -> list[Change]:
        """Return the changes after a sequence number, in the order of their commits."""
        check_arguments(namespace=namespace, after=after, until=until, limit=limit, optional_scope=scope)
        found: list[Change] = []
        while len(found) < limit:
            size = limit if scope is None else _CHANGES_BATCH
            command = _changes_command(self._transactions.keys(namespace), after, size, until)
            (lines,) = self._server.read([command])
            changes = _to_changes(self._server.name, namespace, lines)
            found += self._run_read(partial(operations.changes_in, changes=changes, scope=scope))
            if len(lines) < size:
                break
            after = _seq_of(lines[-1])
        return found[:limit]

    def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """Return what changed after a sequence number, in its current form."""
        check_arguments(namespace=namespace, after=after, limit=limit, used_since=used_since)
        # Read each time: a server that was emptied has another generation.
        generation = maintenance.ensure_store(self._server, self._store_key, read_only=True)
        snapshot = self._transactions.snapshot()
        return _read_feed(snapshot, namespace, after, limit, used_since, generation)

    # Maintenance

    def findings(self) -> list[Finding]:
        """Report on the version, role, persistence and eviction policy of the server."""
        return maintenance.findings(self._server)

    def check(self) -> list[str]:
        """Return the inconsistencies of the store; empty when it is sound."""
        unknown = repairing.namespaces_with_keys(self._transactions).difference(self.known_namespaces())
        return [f"namespace {name!r} is not in the list of all" for name in sorted(unknown)] + [
            problem
            for name in self.known_namespaces()
            for problem in maintenance.check(self._transactions, name)
        ]

    def repair(self, path: Path | None = None) -> RepairResult:
        """Set damaged values aside in a file, and rebuild what is derived from the others.

        Raises:
            Invalid: There are damaged values and no path for them.
        """
        result = repairing.repair(self._transactions, self._store_key, path)
        self._is_index_current = True
        return result

    def set_aside_files(self) -> list[str]:
        """Return the files with values that a repair set aside."""
        return repairing.files(self._server, self._store_key)

    def reindex(self, embedder: Any = None, progress: ProgressCallback | None = None) -> ReindexResult:
        """Rebuild the index data of all entries while in use, with another embedder if one is given."""
        chosen = self.embedder if embedder is None else choose(embedder)
        if self.settings.read_only:
            raise ReadOnly(self._server.name, "was opened to be read only", "open it without mode=ro")
        run = maintenance.RedisReindex(self._transactions, self._store_key, chosen, progress)
        with run.hold_claim():
            run.prepare(self.known_namespaces())
            with self._embedder_gate.closed():  # what is written from now on has the new vectors
                for namespace in self.known_namespaces():
                    run.switch(namespace)
                with self._source_lock:
                    self.embedder, self._source = chosen, None
                    self._transactions.model = model_key(chosen)
            result = run.finish(self.known_namespaces())
        self._is_index_current = True
        return result


def stored_embedder(server: RedisConnections, prefix: str, *, other_than: str = "") -> str | None:
    """Return the name of the embedder whose vectors a store has, or of one other than a given one."""
    for namespace in _known_namespaces(server, prefix):
        meta = NamespaceKeys(prefix, namespace)("meta")
        model, vectors = server.execute("HMGET", meta, "model", "vectors")
        name = layout.decode_text(model)
        if vectors not in (None, b"0") and name != other_than:
            return layout.embedder_name(name)
    return None


def _known_namespaces(server: RedisConnections, prefix: str) -> list[str]:
    return sorted(layout.decode_ids(server.execute("SMEMBERS", store_key(prefix, "namespaces"))))


# Pages


def _query_page(snapshot: RedisSnapshot, query: Query) -> Page:
    """Read the next page from the index by time, a batch at a time."""
    before = operations.FIRST_PAGE if query.cursor is None else records.decode_cursor(query.cursor)
    passes = semantics.entry_predicate(query.filter, query.at)
    matches: list[tuple[tuple[int, ...], Entry]] = []
    count = min(_PAGE_BATCH, query.limit + 1)
    offset = 0
    while len(matches) <= query.limit:
        ids = _read_ids_by_time(snapshot, query, before[0], offset, count)
        offset += len(ids)
        entries = snapshot.find_many(query.scope.namespace, ids)
        for id in ids:
            stored = entries.get(id)
            if stored is not None and query.scope.contains(stored.entry) and passes(stored.entry):
                position = (semantics.time_of(stored.entry), stored.number)
                if position < before:
                    matches.append((position, stored.entry))
        if len(ids) < count:
            break
        count = _PAGE_BATCH
    return operations.build_page(matches, query.limit)


def _read_ids_by_time(
    snapshot: RedisSnapshot, query: Query, until: int, offset: int, count: int
) -> list[str]:
    scope, filter = query.scope, query.filter
    keys = snapshot.keys(scope.namespace)
    partition = partition_for(scope) if filter.key is None else layout.key_partition(filter.key)
    until = until if filter.until is None else min(until, filter.until)
    times = [str(until), str(filter.since or 0)]
    members, stamp = snapshot.fetch(
        [
            ["ZREVRANGEBYSCORE", keys("time", partition), *times, "LIMIT", str(offset), str(count)],
            ["HGET", keys("watch"), partition],
        ]
    )
    snapshot.expect(scope.namespace, "watch", partition, stamp)
    return [layout.member_id(member) for member in members]


# Change feed

LogLine = tuple[bytes, list[bytes]]
"""An entry of the stream: its id, and its fields and values."""


def _read_feed(
    snapshot: RedisSnapshot, namespace: str, after: int, limit: int, used_since: int | None, generation: str
) -> Feed:
    keys = snapshot.keys(namespace)
    meta, after_lines, size, lines = snapshot.fetch(
        [
            ["HMGET", keys("meta"), "seq", "stones"],
            _change_command(keys, after),
            ["HLEN", keys("rows")],
            _changes_command(keys, after, limit + 1),
        ]
    )
    more = len(lines) > limit
    if more and after == 0 and size + snapshot.integer(meta[1], "count of tombstones") <= limit:
        # From the start, a namespace that fits is returned whole, however often its entries changed.
        meta, lines = snapshot.fetch(
            [["HMGET", keys("meta"), "seq", "stones"], _changes_command(keys, after, None)]
        )
        more = False
    changes = _to_changes(snapshot.place, namespace, lines[:limit] if more else lines)
    ids = operations.latest_ids(change.id for change in changes)
    entries = snapshot.find_many(namespace, ids)
    written = {(change.id, change.rev) for change in changes if change.op == "write"}
    new = {id for id, stored in entries.items() if (id, stored.first_rev) in written}
    seq = _seq_of(lines[limit - 1]) if more else snapshot.integer(meta[0], "sequence number")
    (seq_lines,) = snapshot.fetch([_change_command(keys, seq)])
    return Feed(
        generation=generation,
        seq=seq,
        after_fingerprint=_fingerprint(namespace, after_lines),
        seq_fingerprint=_fingerprint(namespace, seq_lines),
        more=more,
        entries=tuple(stored.entry for stored in entries.values()),
        links=tuple(_links_from(snapshot, namespace, [*entries])),
        access=_access_counts(snapshot, namespace, entries, used_since),
        erased_ids=tuple(dict.fromkeys(change.id for change in changes if change.op == "erase")),
        new_ids=frozenset(new - snapshot.erased_ids(namespace, new)),
    )


def _changes_command(keys: NamespaceKeys, after: int, limit: int | None, until: int | None = None) -> Command:
    count = [] if limit is None else ["COUNT", str(min(limit, 1 << 40))]
    return ["XRANGE", keys("log"), f"({after}-0", "+" if until is None else f"{until}-0", *count]


def _change_command(keys: NamespaceKeys, seq: int) -> Command:
    return ["XRANGE", keys("log"), f"{seq}-0", f"{seq}-0"]


def _to_changes(place: str, namespace: str, lines: Sequence[LogLine]) -> list[Change]:
    """Decode changes; a damaged one is left out, and logged."""
    changes: list[Change] = []
    for line in lines:
        seq = _seq_of(line)
        try:
            id, op, rev, at = layout.decode_change(line[1][1])
            changes.append(Change(seq=seq, namespace=namespace, id=id, op=op, rev=rev, at=at))
        except records.DECODE_ERRORS:
            _log.warning("%s", records.damaged(place, "change", seq))
    return changes


def _seq_of(line: LogLine) -> int:
    return int(line[0].split(b"-")[0])


def _fingerprint(namespace: str, lines: Sequence[LogLine]) -> str:
    """Return a hash of a change, by which a reader notices that the log is another one."""
    if not lines:
        return ""
    raw = lines[0][1][1]
    try:
        change = [namespace, *layout.decode_change(raw)]
    except records.DECODE_ERRORS:
        change = [namespace, raw]
    return blake2b(msgspec.json.encode(change), digest_size=8).hexdigest()


def _links_from(snapshot: RedisSnapshot, namespace: str, ids: Sequence[str]) -> list[Link]:
    """Fetch all links that start at these entries."""
    keys = snapshot.keys(namespace)
    (count,) = snapshot.fetch([["HLEN", keys("links")]])
    if not count or not ids:
        return []
    fields: set[bytes] = set()
    for some in batches(ids):
        replies = snapshot.fetch([["SMEMBERS", keys("ends", id)] for id in some])
        for id, ends in zip(some, replies, strict=True):
            fields.update(field for field in ends if split_ids(field, 3)[0] == id)
    links = []
    for few in batches(sorted(fields)):
        (values,) = snapshot.fetch([["HMGET", keys("links"), *few]])
        for field, raw in zip(few, values, strict=True):
            with suppress(*records.DECODE_ERRORS):  # a check tells of it
                if raw is not None:
                    links.append(layout.decode_link(field, raw))
    return sorted(links, key=lambda link: (link.source, link.relation, link.target))


def _access_counts(
    snapshot: RedisSnapshot, namespace: str, changed: Iterable[str], since: int | None
) -> dict[str, Access]:
    """Fetch the use of the changed entries, and of those used since a moment."""
    keys = snapshot.keys(namespace)
    ids = dict.fromkeys(changed)
    if since is not None:
        (recent,) = snapshot.fetch([["ZRANGEBYSCORE", keys("used"), str(since), "+inf"]])
        ids.update(dict.fromkeys(layout.decode_ids(recent)))
    uses: dict[str, Access] = {}
    for some in batches([*ids]):
        counts, lasts = snapshot.fetch([["HMGET", keys("access"), *some], ["ZMSCORE", keys("used"), *some]])
        for id, count, last in zip(some, counts, lasts, strict=True):
            if count is not None and count.isdigit():
                uses[id] = Access(count=int(count), last=None if last is None else int(float(last)))
    return uses
