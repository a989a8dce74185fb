"""Keep scopes of a Redis store in memory, and bring them up to date before each use.

A cache knows the commit that it covers. One round trip returns what came, changed and went since then, so
that what another process erased is gone. Needs NumPy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, RLock
from typing import Any

import numpy as np

from omoide import clock
from omoide.core.entry import Entry, Filter, Scope
from omoide.embedders import Embedder
from omoide.retrieval.pool import Array, CacheRow, ScopeCache
from omoide.stores import records, semantics
from omoide.stores.recall import Candidates, QueryEncoder, words_only
from omoide.stores.records import TOKEN_DIM
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Command, KeyArgument
from omoide.stores.redis.layout import decode_ids, partition_for
from omoide.stores.redis.snapshot import batches
from omoide.stores.redis.transaction import TransactionRunner
from omoide.stores.reindex import bound_notice

RECOMMENDED_SCOPE_SIZE = 10_000
"""Entries of a scope above which recall adds a notice."""

MAX_CACHED_ENTRIES = 200_000
"""Entries that all caches of a store hold together."""

MAX_CACHED_SCOPES = 4_096
_SYNC_LIMIT = 1_000  # entries that the server returns in one script

_NO_FILTER = Filter()

UncachedCandidates = Callable[[Scope, Filter, int, QueryEncoder], Candidates | None]


class RedisScopeCache:
    """The columns of a scope, with its entries and token vectors."""

    def __init__(self, dim: int, epoch: int) -> None:
        self.columns = ScopeCache(0, dim)
        self.epoch = epoch
        """The epoch of the connections: after a broken one, another server may answer."""
        self.horizon = -1
        """Up to when expired entries were taken out of the indexes of the server."""
        self.serving = ""
        """The embedder of the namespace, as of the last sync."""
        self.bound_to = ""
        """The embedder whose vectors the namespace has, if it is another one."""
        self.entries: dict[int, Entry] = {}
        self._numbers: dict[str, int] = {}
        self._tokens: dict[int, bytes] = {}

    def discard(self, id: str) -> None:
        """Remove an entry, if it is here."""
        number = self._numbers.pop(id, None)
        if number is not None:
            self.columns.remove(number)
            self.entries.pop(number, None)
            self._tokens.pop(number, None)

    def add_rows(self, rows: list[tuple[Entry, CacheRow, bytes | None]]) -> bool:
        """Add entries with their columns and tokens; False if one was written before those here."""
        rows.sort(key=lambda row: _write_order_of(row[1]))
        columns = self.columns
        if rows and columns.write_order and _write_order_of(rows[0][1]) < columns.write_order[-1]:
            return False
        for entry, row, tokens in rows:
            number = row[0]
            self.entries[number], self._numbers[entry.id] = entry, number
            if tokens is not None:
                self._tokens[number] = tokens
        if columns.write_order:
            for _, row, _ in rows:
                columns.append(row)
        else:
            columns.fill([row for _, row, _ in rows])
        columns.pool.token_loader = self._load_tokens if self._tokens else None
        return True

    def _load_tokens(self, places: Array) -> list[Array]:
        empty = np.zeros((0, TOKEN_DIM), np.int8)
        blobs = [self._tokens.get(self.columns.numbers[place]) for place in places]
        return [
            empty if blob is None else np.frombuffer(blob, np.int8).reshape(-1, TOKEN_DIM) for blob in blobs
        ]


class RedisCacheSlot:
    """The cache of one scope, and its lock."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.cache: RedisScopeCache | None = None
        self.speakers: Sequence[str] = ()

    @property
    def size(self) -> int:
        return 0 if self.cache is None else self.cache.columns.pool.size


class RedisCandidateSource:
    """The `CandidateSource` of a server, with caches in memory."""

    def __init__(
        self,
        transactions: TransactionRunner,
        embedder: Embedder | None,
        uncached_candidates: UncachedCandidates,
    ) -> None:
        self._server = transactions.server
        self._keys = transactions.keys
        self._model = transactions.model
        self._embedder = embedder
        self._place = transactions.place
        self._dim = 0 if embedder is None else embedder.dim
        self._uncached_candidates = uncached_candidates
        self._lock = Lock()
        self._slots: OrderedDict[Scope, RedisCacheSlot] = OrderedDict()

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Return the speakers of a scope as of its last recall."""
        slot = self._slots.get(scope)
        return () if slot is None else slot.speakers

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> Iterator[Candidates | None]:
        """Yield the candidates of a scope, as it is when the block begins."""
        slot = self._slot(scope)
        with slot.lock:
            cache = None
            # The columns hold live entries only.
            if not (filter.include_superseded or filter.include_stale or filter.include_expired):
                cache = self._current_cache(slot, scope)
                if not _expire(cache, at):
                    cache = None
            if cache is None:
                yield self._uncached_candidates(scope, filter, at, encode_query)
            else:
                slot.speakers = cache.columns.speakers()
                notices = []
                if cache.bound_to and self._embedder is not None:
                    encode_query = words_only(encode_query)
                    name = layout.embedder_name(cache.bound_to)
                    notices.append(bound_notice(self._place, name, self._embedder))
                yield _candidates(cache, filter, at, encode_query, notices)

    def _slot(self, scope: Scope) -> RedisCacheSlot:
        with self._lock:
            slot = self._slots.pop(scope, None)
            if slot is None:
                slot = RedisCacheSlot()
                self._evict()
            self._slots[scope] = slot
            return slot

    def _evict(self) -> None:
        """Drop the least recently used slots while all of them hold too much."""
        total = sum(slot.size for slot in self._slots.values())
        while self._slots and (total > MAX_CACHED_ENTRIES or len(self._slots) >= MAX_CACHED_SCOPES):
            _, oldest = self._slots.popitem(last=False)
            total -= oldest.size

    def _current_cache(self, slot: RedisCacheSlot, scope: Scope) -> RedisScopeCache:
        """Return the cache of a scope, as the server has it now."""
        while True:
            cache, epoch = slot.cache, self._server.epoch
            if cache is None or cache.epoch != epoch or cache.columns.is_sparse():
                cache = slot.cache = RedisScopeCache(self._dim, epoch)
            is_complete = self._sync(cache, scope)
            if epoch != self._server.epoch:
                continue  # the answer may be that of another server
            if is_complete:
                return cache
            if is_complete is None:
                slot.cache = None

    def _sync(self, cache: RedisScopeCache, scope: Scope) -> bool | None:
        """Apply what changed; False if there is more to fetch, None if the cache has to be rebuilt."""
        keys, columns = self._keys(scope.namespace), cache.columns
        is_new = columns.generation is None
        since = "-1" if is_new else str(columns.covered_seq)
        rows, data = keys("rows"), keys("found")
        commands: list[Command] = [
            ["HMGET", keys("meta"), "tick", "life", "horizon", "model", "vectors"],
            [
                "CHANGED", keys("all", partition_for(scope)), KeyArgument(rows), KeyArgument(data), since,
                _SYNC_LIMIT,
            ],
        ]  # fmt: skip
        if not is_new:
            commands.append(["ZRANGEBYSCORE", keys("gone"), f"({since}", "+inf"])
        (tick, raw_generation, horizon, model, vectors), changed, *gone = self._server.read(commands)
        now = self._server.integer(tick, "commit counter")
        generation = layout.decode_text(raw_generation)
        if not is_new and (columns.generation != generation or now < columns.covered_seq):
            return None
        serving = layout.decode_text(model)
        if not is_new and serving != cache.serving:
            return None  # all vectors are replaced at once
        for id in decode_ids(gone[0]) if gone else ():
            cache.discard(id)
        ids = decode_ids(changed[0])
        is_foreign = (
            bool(self._dim)
            and serving not in ("", self._model)
            and self._server.integer(vectors, "count of vectors") > 0
        )
        horizon_ms = self._server.integer(horizon, "horizon of expiry", -1)
        cache.serving, cache.bound_to = serving, serving if is_foreign else ""
        raw_rows, raw_data = changed[1:] or self._fetch(rows, data, ids)
        if not self._apply_rows(cache, scope, ids, raw_rows, raw_data):
            return None
        columns.generation, columns.covered_seq, cache.horizon = generation, now, horizon_ms
        return len(changed) > 1

    def _fetch(self, rows: bytes, data: bytes, ids: Sequence[str]) -> tuple[list[Any], list[Any]]:
        """Fetch many entries in batches; what changes meanwhile comes with the next sync."""
        pairs = [self._server.read([["HMGET", rows, *some], ["HMGET", data, *some]]) for some in batches(ids)]
        return [raw for raws, _ in pairs for raw in raws], [raw for _, raws in pairs for raw in raws]

    def _apply_rows(
        self,
        cache: RedisScopeCache,
        scope: Scope,
        ids: Sequence[str],
        raw_rows: Sequence[Any],
        raw_data: Sequence[Any],
    ) -> bool:
        fresh: list[tuple[Entry, CacheRow, bytes | None]] = []
        for id, raw_row, raw in zip(ids, raw_rows, raw_data, strict=True):
            cache.discard(id)
            if raw_row is None or raw is None:
                continue
            try:
                row = layout.decode_row(raw_row, id)
            except records.DECODE_ERRORS:  # a listing tells of it
                continue
            entry = row.version.entry
            # One that is not live any more comes again with the next sync, among those that are gone.
            if entry is None or not scope.contains(entry):
                continue
            data = layout.index_data_of(entry, raw)
            own = data.vectors_of(self._model) if self._model and not cache.bound_to else None
            pooled, tokens = (None, None) if own is None else (own.pooled, own.tokens)
            fresh.append((entry, _cache_row(entry, row, data.features, pooled), tokens))
        return cache.add_rows(fresh)


def _expire(cache: RedisScopeCache, at: int) -> bool:
    """Remove what has expired; False if the cache cannot answer about this moment."""
    columns, now = cache.columns, clock.now()
    if at < max(columns.expired_until, cache.horizon) or (at > now and columns.expires_between(now, at)):
        return False
    columns.expire(min(at, now))
    return True


def _cache_row(entry: Entry, row: layout.EntryRow, features: bytes, pooled: bytes | None) -> CacheRow:
    message = entry.message
    thread, seq, role, speaker = (None, 0, None, None)
    if message is not None:
        thread, seq, role, speaker = message.thread, message.seq, message.role, message.speaker
    return (
        row.number, features, semantics.time_of(entry), thread, seq, role, speaker, entry.confidence,
        entry.importance, entry.expires_at, pooled, row.written_seq,
    )  # fmt: skip


def _write_order_of(row: CacheRow) -> int:
    written: int = row[11]
    return written


def _candidates(
    cache: RedisScopeCache, filter: Filter, at: int, encode_query: QueryEncoder, notices: list[str]
) -> Candidates | None:
    columns, entries = cache.columns, cache.entries
    if not columns.numbers:
        return None
    allowed = None
    if filter != _NO_FILTER:
        passes = semantics.entry_predicate(filter, at)
        rows = (entries.get(number) for number in columns.numbers)
        allowed = np.array([entry is not None and passes(entry) for entry in rows], np.bool_)
    if len(entries) > RECOMMENDED_SCOPE_SIZE:
        notices.append(
            f"this scope holds {len(entries)} memories, and redis:// is made for {RECOMMENDED_SCOPE_SIZE}: "
            "use postgresql:// for more"
        )
    return Candidates(
        columns.pool,
        encode_query(columns.speakers()),
        allowed,
        columns.write_order,
        lambda rows: [entries[columns.numbers[row]] for row in rows],
        tuple(notices),
    )
