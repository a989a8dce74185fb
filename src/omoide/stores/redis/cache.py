"""Which entries of a scope does this process hold in memory, and are they still so?

A shelf knows the commit that it covers. Before each use the server tells in one step what came, changed and
went since, so that what another process erased is gone.

"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from threading import Lock, RLock
from typing import Any

import numpy as np

from omoide import clock
from omoide.core.entry import Entry, Filter, Scope
from omoide.embedders import Embedder
from omoide.retrieval.pool import Array
from omoide.stores import semantics
from omoide.stores.pool import TOKEN_DIM
from omoide.stores.recall import Candidates, QueryEncoder
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Command, KeyArgument
from omoide.stores.redis.layout import decode_ids, partition_for
from omoide.stores.redis.snapshot import batches
from omoide.stores.redis.transaction import TransactionRunner
from omoide.stores.sql.cache import ScopeCache

RECOMMENDED_SCOPE_SIZE = 10_000
"""Entries of a scope up to which this store is meant to be used."""

MAX_CACHED_ENTRIES = 200_000
"""Entries that all shelves of a store hold together, at most."""

MAX_CACHED_SCOPES = 4_096
_SYNC_LIMIT = 1_000  # entries that the server hands over in one step

_NO_FILTER = Filter()
_EMBEDDER_CHANGED_NOTICE = "the store holds another embedder's vectors: open it again to recall by meaning"

UncachedCandidates = Callable[
    [Scope, Filter, int, int, QueryEncoder], AbstractContextManager[Candidates | None]
]


class RedisScopeCache(ScopeCache):
    """A scope as columns, with its entries."""

    def __init__(self, dim: int) -> None:
        super().__init__(0, dim)
        self.epoch = -1
        self.horizon = -1
        self.has_foreign_vectors = False
        self.entries: dict[int, Entry] = {}
        self._numbers: dict[str, int] = {}
        self._tokens: dict[int, bytes] = {}
        self.pool.token_loader = None

    def add_entry(self, id: str, entry: Entry, number: int, tokens: bytes | None) -> None:
        """Keep an entry beside its columns."""
        self.entries[number], self._numbers[id] = entry, number
        if tokens is not None:
            self._tokens[number] = tokens

    def discard_entry(self, id: str) -> None:
        """Hold an entry no more, if it is here."""
        no = self._numbers.pop(id, None)
        if no is not None:
            self.remove(no)
            self.entries.pop(no, None)
            self._tokens.pop(no, None)

    def attach_tokens(self) -> None:
        """Let the pool find token vectors here, if there are any."""
        empty = np.zeros((0, TOKEN_DIM), np.int8)

        def read(places: Array) -> list[Array]:
            blobs = [self._tokens.get(self.numbers[place]) for place in places]
            return [
                empty if blob is None else np.frombuffer(blob, np.int8).reshape(-1, TOKEN_DIM)
                for blob in blobs
            ]

        self.pool.token_loader = read if self._tokens else None


class RedisCacheSlot:
    """What is held of one scope, and the lock for it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.cache: RedisScopeCache | None = None
        self.speakers: Sequence[str] = ()


class RedisCandidateSource:
    """The candidates of a server, with what is held of it in memory."""

    def __init__(self, work: TransactionRunner, embedder: Embedder | None, apart: UncachedCandidates) -> None:
        self._transactions = work
        self._model = work.model
        self._dim = 0 if embedder is None else embedder.dim
        self._uncached_candidates = apart
        self._lock = Lock()
        self._slots: OrderedDict[Scope, RedisCacheSlot] = OrderedDict()

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Who spoke in a scope when it was last asked about."""
        place = self._slots.get(scope)
        return () if place is None else place.speakers

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> Iterator[Candidates | None]:
        """The candidates of a scope, as it is when the block begins."""
        place = self._slot(scope)
        with place.lock:
            shelf = None
            if not (filter.include_superseded or filter.include_stale or filter.include_expired):
                shelf = self._current_cache(place, scope)
                now = clock.now()
                other = at < max(shelf.expired_until, shelf.horizon)
                if other or (at > now and shelf.expires_between(now, at)):
                    shelf = None  # another moment than the one the shelf is kept for
                else:
                    shelf.expire(min(at, now))
                    place.speakers = shelf.speakers()
            if shelf is None:
                with self._uncached_candidates(scope, filter, at, limit, encode_query) as found:
                    yield found
            else:
                yield _candidates(shelf, filter, at, encode_query)

    def _slot(self, scope: Scope) -> RedisCacheSlot:
        with self._lock:
            place = self._slots.pop(scope, None)
            if place is None:
                place = RedisCacheSlot()
                self._evict()
            self._slots[scope] = place
            return place

    def _evict(self) -> None:
        """Let go of the places used longest ago, once all of them hold too much."""
        held = sum(one.cache.pool.size for one in self._slots.values() if one.cache)
        while self._slots and (held > MAX_CACHED_ENTRIES or len(self._slots) >= MAX_CACHED_SCOPES):
            _, old = self._slots.popitem(last=False)
            held -= old.cache.pool.size if old.cache else 0

    def _current_cache(self, slot: RedisCacheSlot, scope: Scope) -> RedisScopeCache:
        """The shelf of a scope, as the server has it now."""
        while True:
            shelf, epoch = slot.cache, self._transactions.server.epoch
            if shelf is None or shelf.epoch != epoch or shelf.is_sparse():
                shelf = slot.cache = RedisScopeCache(self._dim)
                shelf.epoch = epoch
            done = self._sync(shelf, scope)
            if epoch != self._transactions.server.epoch:
                continue  # it was perhaps another server that answered
            if done:
                return shelf
            if done is None:
                slot.cache = None  # begin anew

    def _sync(self, cache: RedisScopeCache, scope: Scope) -> bool | None:
        """Apply what changed; False if more has to be fetched, None if the shelf is of no use."""
        keys, name, cold = (
            self._transactions.keys(scope.namespace),
            partition_for(scope),
            cache.generation is None,
        )
        rows, found = keys("rows"), keys("found")
        since = "-1" if cold else str(cache.covered_seq)
        asks: list[Command] = [
            ["HMGET", keys("meta"), "tick", "life", "horizon", "model", "vectors"],
            ["SINCE", keys("all", name), KeyArgument(rows), KeyArgument(found), since, _SYNC_LIMIT],
        ]
        if not cold:
            asks.append(["ZRANGEBYSCORE", keys("gone"), f"({since}", "+inf"])
        (tick, life, horizon, model, vectors), changed, *gone = self._transactions.server.read(asks)
        now = int(tick or 0)
        if not cold and (cache.generation != (life or b"").decode() or now < cache.covered_seq):
            return None
        for id in decode_ids(gone[0]) if gone else ():
            cache.discard_entry(id)
        ids = decode_ids(changed[0])
        ours = (model or b"").decode() in ("", self._model)
        cache.has_foreign_vectors = bool(self._dim) and not ours and int(vectors or 0) > 0
        values = changed[1:] or self._fetch(rows, found, ids)
        if not self._apply_rows(cache, scope, ids, *values):
            return None
        cache.generation, cache.covered_seq, cache.horizon = (life or b"").decode(), now, int(horizon or -1)
        return len(changed) > 1

    def _fetch(self, rows: bytes, found: bytes, ids: Sequence[str]) -> tuple[list[Any], list[Any]]:
        """What many entries are, a portion at a time; what changes meanwhile comes with the next step."""
        pairs = [
            self._transactions.server.read([["HMGET", rows, *some], ["HMGET", found, *some]])
            for some in batches(ids)
        ]
        return [raw for raws, _ in pairs for raw in raws], [raw for _, raws in pairs for raw in raws]

    def _apply_rows(
        self, cache: RedisScopeCache, scope: Scope, ids: Sequence[str], raws: list[Any], founds: list[Any]
    ) -> bool:
        fresh = []
        for id, raw, blob in zip(ids, raws, founds, strict=True):
            cache.discard_entry(id)
            if raw is None or blob is None:
                continue
            row = layout.decode_row(raw, id)
            entry = row.version.entry
            # What went out since it was listed comes again with what is gone.
            if entry is None or not scope.contains(entry):
                continue
            model, said = layout.decode_index_data(blob)
            mine = bool(model) and model == self._model
            cache.add_entry(id, entry, row.number, said.tokens if mine else None)
            fresh.append(_columns(entry, row, said.features, said.pooled if mine else None))
        fresh.sort(key=lambda found: found[11])
        if fresh and cache.write_order and fresh[0][11] < cache.write_order[-1]:
            return False  # something came back that belongs before others
        if cache.write_order:
            for found in fresh:
                cache.append(found)
        else:
            cache.fill(fresh)
        cache.attach_tokens()
        return True


def _columns(entry: Entry, row: layout.EntryRow, features: bytes, pooled: bytes | None) -> tuple[Any, ...]:
    said = entry.message
    thread, seq, role, speaker = (None, 0, None, None)
    if said is not None:
        thread, seq, role, speaker = said.thread, said.seq, said.role, said.speaker
    return (
        row.number, features, semantics.time_of(entry), thread, seq, role, speaker, entry.confidence,
        entry.importance, entry.expires_at, pooled, row.written_seq,
    )  # fmt: skip


def _candidates(cache: RedisScopeCache, filter: Filter, at: int, read: QueryEncoder) -> Candidates | None:
    if not cache.numbers:
        return None
    allowed = None
    if filter != _NO_FILTER:
        passes = semantics.entry_predicate(filter, at)
        held = (cache.entries.get(no) for no in cache.numbers)
        allowed = np.array([entry is not None and passes(entry) for entry in held], np.bool_)
    notices = []
    if cache.has_foreign_vectors:
        notices.append(_EMBEDDER_CHANGED_NOTICE)
    if len(cache.entries) > RECOMMENDED_SCOPE_SIZE:
        notices.append(
            f"this scope holds {len(cache.entries)} memories, and redis:// is made for {RECOMMENDED_SCOPE_SIZE}: "
            "use postgresql:// for more"
        )
    return Candidates(
        cache.pool,
        read(cache.speakers()),
        allowed,
        cache.write_order,
        lambda places: [cache.entries[cache.numbers[place]] for place in places],
        tuple(notices),
    )
