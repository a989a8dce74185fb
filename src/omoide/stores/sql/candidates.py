"""Find candidates for a query in the database, with caches in memory.

A scope of moderate size is cached whole (`ScopeCache`). Of a large scope only row numbers, times and one bit
per vector dimension stay in memory (`LargeScopeIndex`): the text index and the vector codes each propose some
hundred entries, neighbouring messages are added, and the exact vectors are read for these alone.

A cache records the last change it covers. Before each use the later changes are applied, inside the same read
transaction, so that entries erased by another process are gone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, reduce
from itertools import chain, combinations
from math import log
from operator import itemgetter
from threading import Lock, RLock
from types import NoneType
from typing import Any, NamedTuple

import msgspec
import numpy as np

from omoide import clock
from omoide.core.entry import Entry, Filter, Scope
from omoide.embedders import Embedder, Embedding
from omoide.embedders.vectors import bit_codes, mean_vector, to_bit_string, to_uint64_rows
from omoide.retrieval.pool import Array, CacheRow, ScopeCache, ScopeStatistics
from omoide.retrieval.queries import SpeakerNames
from omoide.stores import semantics
from omoide.stores.recall import Candidates, EncodedQuery, QueryEncoder, words_only
from omoide.stores.records import TOKEN_DIM
from omoide.stores.reindex import bound_notice, outdated_notice
from omoide.stores.sql import rows
from omoide.stores.sql.database import SLOTS, Database, SQLConnections

MAX_CACHED_ENTRIES = 10_000
"""Maximum number of entries of a cached scope; larger scopes use `LargeScopeIndex`."""

MAX_CACHED_ROWS = 200_000
"""Maximum number of rows in all scope caches of a store."""

MAX_LARGE_SCOPE_ROWS = 4_000_000
"""Maximum number of rows in all large scope indexes of a store."""

MAX_CACHE_SLOTS = 4_096

PROPOSALS_PER_RETRIEVER = 100
"""Entries that each retriever proposes."""

PROPOSALS_PER_SPEAKER = 80
"""How many of these are entries of the speaker that a query names, if there are as many."""

RARE_TERM_LIMIT = 512
"""Number of entries from which a term counts as common."""

COMMON_TERM_LIMIT = 4_000
"""Maximum number of postings read for a common term, newest first."""

MAX_PAIR_POSTINGS = 6_000
"""Maximum number of postings compared for pairs of common terms."""

MAX_CODES_IN_MEMORY = 250_000
"""Scope size up to which codes stay in memory although the database has a vector index."""

MAX_CODES_READ = 2_000
"""Maximum number of codes read to compare the entries of the named speakers."""

_MAX_CHANGES = 2_000  # changes from which on a cache is filled anew
_TRIM_INTERVAL = 16  # new slots between two checks of the total size
_MAX_SQL_TAGS = 8  # tags that the database looks for itself; the rest is checked on what it finds
_CODE_BATCH = 8_192
_SAMPLE_STEP = 16
_MAX_INT64 = (1 << 63) - 1  # beyond which PostgreSQL does not count

_SELECT = f"""SELECT e.no, e.features, e.time, e.thread, e.seq, e.role, e.speaker, e.confidence, e.importance,
    e.expires, v.pooled, e.written FROM entries e LEFT JOIN vectors v ON v.key = e.no * {SLOTS} + ? WHERE """

_ANY: set[Any] = {int, float, str, bytes, NoneType}
_COLUMN_TYPES: tuple[set[Any], ...] = (
    {int}, {bytes}, {int}, _ANY, _ANY, _ANY, _ANY, {float}, {float, NoneType}, {int, NoneType},
    {bytes, NoneType}, {int},
)  # fmt: skip
"""The types that each column of a `CacheRow` may have."""

_NO_FILTER = Filter()


class CacheSlot:
    """The cache of one scope and its lock."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.cache: ScopeCache | None = None
        self.large_index: LargeScopeIndex | None = None
        self.speakers: Sequence[str] = ()

    def clear(self) -> None:
        """Drop the cache."""
        self.cache = self.large_index = None


class CandidateRequest(NamedTuple):
    """A query for candidates: the scope's rows, the filter, and the slot of the vectors."""

    db: Database
    scope: Scope
    where: rows.WhereClause
    filter: Filter
    at: int
    limit: int
    encode_query: QueryEncoder
    slot: int
    dim: int
    notices: tuple[str, ...]

    def allowed_numbers(self) -> Array:
        """Return the numbers of the entries that pass the filter."""
        return matching_numbers(self.db, self.where, self.filter, self.at)


class Search(NamedTuple):
    """A query to the retrievers of a large scope, each of which proposes `size` rows of the mask."""

    vector: Embedding | None
    mask: Array
    size: int


class SQLCandidateSource:
    """Provides candidates from a database, with caches in memory."""

    def __init__(self, connections: SQLConnections, embedder: Embedder | None) -> None:
        self._connections = connections
        self._embedder = embedder
        self._is_index_current = False  # until a query has seen that it is
        self._lock = Lock()
        self._slots: OrderedDict[Scope, CacheSlot] = OrderedDict()
        self._slots_created = 0

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Return the speakers of a scope as of its last query."""
        place = self._slots.get(scope)
        return () if place is None else place.speakers

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> Iterator[Candidates | None]:
        """Yield the candidates of a scope as of the beginning of the block."""
        place = self._slot(scope)
        # The lock comes before the transaction: what is seen is never older than what is held.
        with place.lock, self._connections.read_transaction() as db:
            inside = rows.scope_condition(db, scope)
            if inside is None:
                yield None
                return
            asked = self._build_request(db, scope, inside, filter, at, limit, encode_query)
            yield _find_candidates(asked, place)

    def _build_request(
        self,
        db: Database,
        scope: Scope,
        where: rows.WhereClause,
        filter: Filter,
        at: int,
        limit: int,
        encode_query: QueryEncoder,
    ) -> CandidateRequest:
        """Build the request: by words, with a notice, if the store has vectors of another embedder."""
        model = rows.model_of(db, self._embedder)
        slot, dim = (-1, 0) if model is None else (model.slot, model.dim)
        notices: list[str] = []
        if model is None and self._embedder is not None:
            other = rows.other_model(db, self._embedder)
            if other is not None:
                encode_query = words_only(encode_query)
                notices.append(bound_notice(self._connections.name, other.name, self._embedder))
        if not self._is_index_current:
            self._is_index_current = rows.is_index_current(db)
            if not self._is_index_current and not notices:  # one remedy is enough: it is the same
                notices.append(outdated_notice(self._connections.name))
        return CandidateRequest(db, scope, where, filter, at, limit, encode_query, slot, dim, tuple(notices))

    def _slot(self, scope: Scope) -> CacheSlot:
        with self._lock:
            slot = self._slots.pop(scope, None)
            if slot is None:
                slot = CacheSlot()
                self._slots_created += 1
                if self._slots_created % _TRIM_INTERVAL == 0:
                    self._trim()
            self._slots[scope] = slot
            return slot

    def _trim(self) -> None:
        """Drop the least recently used caches once all together are too large."""
        cached_rows = sum(slot.cache.pool.size for slot in self._slots.values() if slot.cache)
        large_rows = sum(len(slot.large_index.numbers) for slot in self._slots.values() if slot.large_index)
        for scope, slot in [*self._slots.items()]:
            if (
                cached_rows <= MAX_CACHED_ROWS
                and large_rows <= MAX_LARGE_SCOPE_ROWS
                and len(self._slots) <= MAX_CACHE_SLOTS
            ):
                return
            if slot.lock.acquire(blocking=False):  # one that is in use stays
                try:
                    cached_rows -= slot.cache.pool.size if slot.cache else 0
                    large_rows -= len(slot.large_index.numbers) if slot.large_index else 0
                    slot.clear()
                    del self._slots[scope]
                finally:
                    slot.lock.release()


def _find_candidates(request: CandidateRequest, slot: CacheSlot) -> Candidates | None:
    """Answer from the cache of the scope, bringing it up to date, or without one."""
    filter, at = request.filter, request.at
    if filter.include_superseded or filter.include_stale or filter.include_expired:
        return _without_cache(request)
    if slot.large_index is None:
        if slot.cache is None or (slot.cache.slot, slot.cache.pool.dim) != (request.slot, request.dim):
            slot.cache = ScopeCache(request.slot, request.dim)
        scope_cache = slot.cache
        if refresh(request.db, scope_cache, request.where, request.scope.namespace):
            now = clock.now()
            if at < scope_cache.expired_until or (at > now and scope_cache.expires_between(now, at)):
                return _without_cache(request)  # another moment than the one the cache is kept for
            scope_cache.expire(min(at, now))
            slot.speakers = scope_cache.speakers()
            return _from_cache(request, scope_cache)
        slot.cache = None
    if slot.large_index is None or (slot.large_index.slot, slot.large_index.dim) != (
        request.slot,
        request.dim,
    ):
        slot.large_index = LargeScopeIndex(request.slot, request.dim)
    index = slot.large_index
    index.refresh(request.db, request.where, request.scope.namespace)
    slot.speakers = index.speakers
    if len(index.numbers) <= MAX_CACHED_ENTRIES:  # it has shrunk: the next question is answered from a cache
        slot.large_index = None
    return _from_large_index(request, index)


def _from_cache(request: CandidateRequest, scope_cache: ScopeCache) -> Candidates | None:
    if not scope_cache.numbers:
        return None
    allowed = (
        None
        if request.filter == _NO_FILTER
        else np.isin(np.array(scope_cache.numbers), request.allowed_numbers())
    )
    return _build_candidates(request, scope_cache, allowed)


def _from_large_index(request: CandidateRequest, index: LargeScopeIndex) -> Candidates | None:
    mask = None
    if request.filter != _NO_FILTER or index.may_expire(request.at):
        mask = np.isin(index.numbers, request.allowed_numbers())
    agent = request.scope.agent_id
    owned = (rows.ANY_OWNER if agent is None else rows.ONE_OWNER, request.where[1][:1])
    query = request.encode_query(index.speakers)
    numbers, statistics = index.propose(request.db, owned, query, mask, request.limit)
    read = read_rows(request.db, request.where, request.slot, numbers=numbers)
    scope_cache = ScopeCache(request.slot, request.dim)
    scope_cache.fill([row for row in read if row[9] is None or row[9] > request.at], statistics, reach=2)
    if not scope_cache.numbers:
        return None
    allowed = None if mask is None else np.isin(np.array(scope_cache.numbers), index.numbers[mask])
    # The pool numbers the speakers anew, so the query is parsed once more; its vector is kept.
    named = {index.speakers[speaker] for speaker in query.query.named_speakers}
    speakers = [name if name in named else "" for name in scope_cache.speakers()] if named else ()
    return _build_candidates(request, scope_cache, allowed, speakers)


def _without_cache(request: CandidateRequest) -> Candidates | None:
    """Return candidates read for this request alone, for filters and times the cache does not cover."""
    filter = request.filter
    read = read_rows(request.db, request.where, request.slot, statuses=rows.allowed_statuses(filter))
    scope_cache = ScopeCache(request.slot, request.dim)
    scope_cache.fill([row for row in read if filter.include_expired or row[9] is None or row[9] > request.at])
    if not scope_cache.numbers:
        return None
    return _build_candidates(
        request, scope_cache, np.isin(np.array(scope_cache.numbers), request.allowed_numbers())
    )


def _build_candidates(
    request: CandidateRequest,
    scope_cache: ScopeCache,
    allowed: Array | None,
    speakers: Sequence[str] | None = None,
) -> Candidates:
    """Return the rows of a cache as candidates; a query may name all of their speakers, or only these."""
    db = request.db
    attach_token_reader(db, scope_cache)

    def load_entries(positions: Sequence[int]) -> list[Entry | None]:
        numbers = [scope_cache.numbers[position] for position in positions]
        found: dict[int, Entry] = {}
        for batch in rows.batches(numbers):
            marks = ",".join("?" * len(batch))
            cursor = db.execute(f"SELECT no, {rows.ENTRY_COLUMNS} FROM entries WHERE no IN ({marks})", batch)
            for no, *row in cursor:
                found.update((no, entry) for entry in rows.decode_rows(db, [row], request.scope))
        return [found.get(number) for number in numbers]

    return Candidates(
        scope_cache.pool,
        request.encode_query(scope_cache.speakers() if speakers is None else speakers),
        allowed,
        scope_cache.write_order,
        load_entries,
        request.notices,
    )


def matching_numbers(db: Database, where: rows.WhereClause, filter: Filter, at: int) -> Array:
    """Return the numbers of the entries of a scope that pass a filter."""
    condition, parameters = where[0], [*where[1]]
    condition += rows.status_condition(rows.allowed_statuses(filter))
    types = semantics.filter_types(filter)
    if types is not None:
        condition += f" AND type IN ({','.join('?' * len(types))})"
        parameters.extend(types)
    for column, operator, value in (
        ("key", "=", filter.key),
        ("confidence", ">=", filter.min_confidence or None),
        ("time", ">=", filter.since),
        ("time", "<=", filter.until),
    ):
        if value is not None:
            condition += f" AND {column} {operator} ?"
            parameters.append(value)
    if not filter.include_expired:
        condition += " AND (expires IS NULL OR expires > ?)"
        parameters.append(at)
    for tag in filter.tags[:_MAX_SQL_TAGS]:
        condition += f" AND {db.dialect.contains_bytes}"
        parameters.append(msgspec.json.encode(tag))
    has_tags = bool(filter.tags or filter.tags_any)
    cursor = db.execute(
        f"SELECT no{f', {rows.ENTRY_COLUMNS}' if has_tags else ''} FROM entries WHERE {condition}", parameters
    )
    if not has_tags:
        return np.array([no for (no,) in cursor], np.int64)
    passes = semantics.entry_predicate(filter, at)
    return np.array(
        [no for no, *row in cursor for entry in rows.decode_rows(db, [row]) if passes(entry)], np.int64
    )


def attach_token_reader(db: Database, cache: ScopeCache) -> None:
    """Let the pool of a cache read token vectors through this connection from now on."""

    def read(positions: Array) -> list[Array]:
        keys = [cache.numbers[position] * SLOTS + cache.slot for position in positions]
        found: dict[int, bytes] = {}
        for batch in rows.batches(keys):
            marks = ",".join("?" * len(batch))
            found.update(db.execute(f"SELECT key, tokens FROM tokens WHERE key IN ({marks})", batch))
        empty = np.zeros((0, TOKEN_DIM), np.int8)
        return [
            np.frombuffer(found[key], np.int8).reshape(-1, TOKEN_DIM) if key in found else empty
            for key in keys
        ]

    has_tokens = bool(cache.numbers) and db.execute("SELECT 1 FROM tokens LIMIT 1").fetchone() is not None
    cache.pool.token_loader = read if has_tokens else None


def refresh(db: Database, cache: ScopeCache, where: rows.WhereClause, namespace: str) -> bool:
    """Apply the changes since the cache was last used; return False if the scope is too large to cache."""
    generation, last = rows.latest_change(db, namespace)
    if cache.generation != generation or not _apply_changes(db, cache, where, namespace, last):
        if _exceeds_limit(db, where):
            return False
        cache.expired_until = 0
        cache.fill(read_rows(db, where, cache.slot))
    cache.generation, cache.covered_seq = generation, last
    return True


def _apply_changes(
    db: Database, cache: ScopeCache, where: rows.WhereClause, namespace: str, last: int
) -> bool:
    """Apply single changes; return False if a reload is cheaper or needed."""
    if last == cache.covered_seq:
        return True
    numbers = changed_numbers(db, namespace, cache.covered_seq, _MAX_CHANGES)
    if last < cache.covered_seq or numbers is None or cache.is_sparse():
        return False
    for number in numbers:
        cache.remove(number)
    for row in read_rows(db, where, cache.slot, numbers=numbers):
        if cache.write_order and _write_order_of(row) < cache.write_order[-1]:
            return False  # something came back that belongs before others
        cache.append(row)
    return cache.pool.size <= MAX_CACHED_ENTRIES + _MAX_CHANGES


def changed_numbers(db: Database, namespace: str, after: int, limit: int) -> list[int] | None:
    """Return the row numbers that changed after a sequence number; None if there are too many."""
    found = db.execute(
        "SELECT no FROM log WHERE namespace = ? AND seq > ? ORDER BY seq LIMIT ?",
        (namespace, after, limit + 1),
    ).fetchall()
    return None if len(found) > limit else [*dict.fromkeys(no for (no,) in found)]


def _exceeds_limit(db: Database, where: rows.WhereClause) -> bool:
    """Return True if a scope is too large to cache, without reading its rows."""
    condition, parameters = where
    (count,) = db.execute(
        f"SELECT count(*) FROM (SELECT 1 FROM entries e WHERE {condition} AND live = 1 LIMIT ?) AS held",
        (*parameters, MAX_CACHED_ENTRIES + 1),
    ).fetchone()
    return int(count) > MAX_CACHED_ENTRIES


def read_rows(
    db: Database,
    where: rows.WhereClause,
    slot: int,
    *,
    numbers: Sequence[int] | None = None,
    statuses: Sequence[int] = (semantics.LIVE,),
) -> list[CacheRow]:
    """Read the rows of a scope, or some of them, in write order."""
    condition, parameters = where
    condition += rows.status_condition(statuses)
    if numbers is None:
        found = db.execute(f"{_SELECT}{condition}", (slot, *parameters)).fetchall()
    else:
        found = [*_read_numbers(db, condition, parameters, slot, numbers)]
    if found and not _are_sound(found):
        found = [row for row in found if _are_sound([row])]
    found.sort(key=_write_order_of)
    return found


def _are_sound(found: Sequence[CacheRow]) -> bool:
    """Return False if a column of one of these rows is damaged, so that a pool could not compute with it."""
    # Column by column: a set of types costs a tenth of looking at each row.
    columns = zip(*found, strict=True)
    if not all({*map(type, column)} <= types for column, types in zip(columns, _COLUMN_TYPES, strict=True)):
        return False
    return all(size and size % 8 == 0 for size in {*map(len, (row[1] for row in found))})


def _read_numbers(
    db: Database, condition: str, parameters: Sequence[Any], slot: int, numbers: Sequence[int]
) -> Iterator[CacheRow]:
    """Read single rows in batches."""
    for batch in rows.batches(sorted(numbers)):
        marks = ",".join("?" * len(batch))
        # Otherwise SQLite walks an index of the scope instead of looking the numbers up.
        mark = db.dialect.no_index_prefix
        looser = condition.replace("owner", f"{mark}owner", 1)
        for column in ("user_id", "session"):
            looser = looser.replace(f"{column}=", f"{mark}{column}=")
        statement = f"{_SELECT}e.no IN ({marks}) AND {looser}"
        yield from db.execute(statement, (slot, *batch, *parameters))


_write_order_of = itemgetter(11)


class TermFrequency(NamedTuple):
    """The counted frequency of a common term, and the state of the scope at that time."""

    frequency: int
    size: int
    changes: int


class LargeScopeIndex:
    """Numbers, times, speakers and bit codes of the vectors of a large scope, in memory."""

    def __init__(self, slot: int, dim: int) -> None:
        self.slot = slot
        self.generation: str | None = None
        self.covered_seq = 0
        self.speakers = SpeakerNames()
        self._frequencies: dict[int, TermFrequency] = {}
        self._changes = 0
        """Rows of the namespace that have changed: no term can have lost more occurrences since."""
        self.numbers: Array = np.zeros(0, np.int64)
        self.times: Array = np.zeros(0, np.int64)
        self.spoken_by: Array = np.zeros(0, np.int32)
        """The number of each row's speaker, -1 for none."""
        self.dim = dim
        self.code_words = -(-dim // 64)
        self.codes: Array = np.zeros((self.code_words, 0), np.uint64)  # a row for each 64 dimensions
        self.has_code: Array = np.zeros(0, np.bool_)
        self._first_expiry: int | None = None

    def may_expire(self, at: int) -> bool:
        """Return True if a row may have expired by a time."""
        return self._first_expiry is not None and self._first_expiry <= at

    def refresh(self, db: Database, where: rows.WhereClause, namespace: str) -> None:
        """Apply the changes since the last use."""
        generation, last = rows.latest_change(db, namespace)
        changed: list[int] | None = None
        if self.generation == generation and last >= self.covered_seq:
            changed = changed_numbers(db, namespace, self.covered_seq, len(self.numbers) // 4)
        if changed is None:
            condition, parameters = where
            self._load(db, (f"{condition} AND live=1", parameters))
        elif changed:
            self._apply_changes(db, where, changed)
        self.generation, self.covered_seq = generation, last

    def _load(self, db: Database, live_rows: rows.WhereClause) -> None:
        """Load the whole scope."""
        condition, parameters = live_rows
        # A scope that is most of the file is read in the order of the file, not of an index.
        is_partial = any(column in condition for column in ("user_id", "session", "project"))
        table = "entries" if is_partial else f"entries {db.dialect.table_order_hint}"
        cursor = db.execute(f"SELECT no, time, expires, speaker FROM {table} WHERE {condition}", parameters)
        numbers, times, ends, spoken_by, speakers = [], [], [], [], SpeakerNames()
        for no, time, end, speaker in cursor:
            numbers.append(no)
            times.append(time)
            spoken_by.append(-1 if speaker is None else speakers.add(speaker))
            if end is not None:
                ends.append(end)
        order = np.argsort(np.array(numbers, np.int64))
        self.numbers = np.array(numbers, np.int64)[order]
        self.times = np.array(times, np.int64)[order]
        self.spoken_by = np.array(spoken_by, np.int32)[order]
        self._first_expiry = min(ends, default=None)
        self._frequencies.clear()
        self.speakers = speakers
        self.codes = np.zeros((self.code_words, len(numbers)), np.uint64)
        self.has_code = np.zeros(len(numbers), np.bool_)
        if self.code_words and numbers and not self._uses_vector_index(db):
            self._load_codes(db, live_rows)

    def _load_codes(self, db: Database, live_rows: rows.WhereClause) -> None:
        """Load the codes of all rows; without a code column they are computed from the vectors."""
        if db.dialect.stores_codes:
            condition, parameters = live_rows
            codes = db.execute(
                f"SELECT e.no, v.code FROM entries e JOIN vectors v ON v.key = e.no * {SLOTS} + ?"
                f" WHERE {condition}",
                (self.slot, *parameters),
            )
            while batch := codes.fetchmany(_CODE_BATCH):
                self._store_codes([no for no, _ in batch], partial(self._join_codes, batch))
            return
        first, last = int(self.numbers[0]) * SLOTS, (int(self.numbers[-1]) + 1) * SLOTS
        cursor = db.execute(
            f"SELECT key / {SLOTS}, pooled FROM vectors WHERE key >= ? AND key < ? AND key % {SLOTS} = ?",
            (first, last, self.slot),
        )
        while batch := cursor.fetchmany(_CODE_BATCH):
            self._set_codes(batch)

    def _join_codes(self, rows_read: Sequence[tuple[int, bytes]], known: Array) -> Array:
        joined = b"".join(code for (_, code), is_known in zip(rows_read, known, strict=True) if is_known)
        return np.frombuffer(joined, np.uint8).reshape(-1, -(-self.dim // 8))

    def _set_codes(self, vectors: Sequence[tuple[int, bytes]]) -> None:
        """Compute the codes of vectors."""

        def codes(known: Array) -> Array:
            joined = b"".join(
                mean_vector(pooled, self.dim)
                for (_, pooled), is_known in zip(vectors, known, strict=True)
                if is_known
            )
            return bit_codes(np.frombuffer(joined, "<f4").reshape(-1, self.dim))

        if vectors:
            self._store_codes([no for no, _ in vectors], codes)

    def _store_codes(self, numbers: Sequence[int], codes: Callable[[Array], Array]) -> None:
        """Store codes of the rows that belong to the scope; `codes` returns those of a mask."""
        row_numbers = np.array(numbers, np.int64)
        positions = np.searchsorted(self.numbers, row_numbers)
        positions[positions == len(self.numbers)] = 0
        known = self.numbers[positions] == row_numbers
        self.codes[:, positions[known]] = to_uint64_rows(codes(known), self.code_words).T
        self.has_code[positions[known]] = True

    def _apply_changes(self, db: Database, where: rows.WhereClause, numbers: Sequence[int]) -> None:
        """Replace the changed rows."""
        self._changes += len(numbers)
        changed_rows = read_rows(db, where, self.slot, numbers=numbers)
        changed = np.array(sorted(numbers), np.int64)
        positions = np.minimum(np.searchsorted(self.numbers, changed), max(len(self.numbers) - 1, 0))
        known = self.numbers[positions] == changed if len(self.numbers) else np.zeros(len(changed), np.bool_)
        silent = set[int]()
        if known.any():
            keep = np.ones(len(self.numbers), np.bool_)
            keep[positions[known]] = False
            silent = {*self.spoken_by[~keep].tolist()} - {-1}
            self.numbers, self.times = self.numbers[keep], self.times[keep]
            self.spoken_by = self.spoken_by[keep]
            self.codes, self.has_code = self.codes[:, keep], self.has_code[keep]
        fresh = np.array([row[0] for row in changed_rows], np.int64)
        at = np.searchsorted(self.numbers, fresh)
        self.numbers = np.insert(self.numbers, at, fresh)
        self.times = np.insert(self.times, at, [row[2] for row in changed_rows])
        speakers = [-1 if row[6] is None else self.speakers.add(row[6]) for row in changed_rows]
        self.spoken_by = np.insert(self.spoken_by, at, speakers)
        self.codes = np.insert(self.codes, at, 0, axis=1)
        self.has_code = np.insert(self.has_code, at, False)
        self._set_codes([(row[0], row[10]) for row in changed_rows if row[10]])
        ends = [row[9] for row in changed_rows if row[9] is not None]
        self._first_expiry = min(
            [*ends, *([] if self._first_expiry is None else [self._first_expiry])], default=None
        )
        for speaker in silent:
            if not (self.spoken_by == speaker).any():
                self.speakers.remove(speaker)

    def propose(
        self,
        db: Database,
        owned: rows.WhereClause,
        query: EncodedQuery,
        allowed: Array | None,
        limit: int,
    ) -> tuple[list[int], ScopeStatistics]:
        """Return the numbers of entries worth scoring, and the term statistics of the scope."""
        mask = np.ones(len(self.numbers), np.bool_) if allowed is None else allowed
        searches = self._searches(query, mask)
        by_text, frequencies = self._by_text(db, owned, query.term_ids(), searches)
        proposals = [*by_text, *self._by_vector(db, owned, searches), self._by_time(query, mask)]
        numbers: set[int] = {*np.concatenate(proposals).tolist()}
        if len(numbers) < limit:
            numbers.update(self.numbers[mask][-limit:].tolist())
        statistics = ScopeStatistics(count=len(self.numbers), frequencies=frequencies)
        return _with_neighbours(db, numbers), statistics

    def _searches(self, query: EncodedQuery, mask: Array) -> list[Search]:
        """Return a search of all rows, and one of the rows of each speaker that the query names."""
        # Among many conversations the entries of one speaker would be outnumbered.
        spoken = [
            Search(one.vector, np.isin(self.spoken_by, [*speakers]) & mask, PROPOSALS_PER_SPEAKER)
            for one in query.readings or (query,)
            if (speakers := one.query.named_speakers)
        ]
        proposed = max((min(one.size, int(one.mask.sum())) for one in spoken), default=0)
        return [Search(query.vector, mask, PROPOSALS_PER_RETRIEVER - proposed), *spoken]

    def _by_text(
        self,
        db: Database,
        owned: rows.WhereClause,
        terms: Sequence[int],
        searches: Sequence[Search],
    ) -> tuple[list[Array], dict[int, int]]:
        """Propose, for each search, entries with a rare query term, and those that share two common ones."""
        _, mask, size = searches[0]  # the masks of the others are parts of this one
        common = [term for term in dict.fromkeys(terms) if self._is_common(term)]
        postings = {term: _postings(db, owned, term, RARE_TERM_LIMIT) for term in terms if term not in common}
        frequencies = {
            term: len(term_postings)
            for term, term_postings in postings.items()
            if 0 < len(term_postings) < RARE_TERM_LIMIT
        }
        parts = [(self._idf(frequencies[term]), postings[term]) for term in frequencies]
        common += [term for term, term_postings in postings.items() if len(term_postings) >= RARE_TERM_LIMIT]
        frequencies.update((term, self._frequency(db, owned, term)) for term in common)
        common.sort(key=frequencies.__getitem__)
        numbers, scores = self._scores(parts, mask)
        budget = MAX_PAIR_POSTINGS if len(numbers) < size else 0  # rare terms have said enough
        for anchor, other in combinations(common, 2):  # the least common pairs come first
            budget -= frequencies[anchor]
            if budget < 0:
                break
            weight = self._idf(frequencies[anchor]) / (len(common) - 1) + self._idf(frequencies[other])
            parts.append((weight, _pair_postings(db, owned, anchor, other)))
            numbers, scores = self._scores(parts, mask)
        if common and len(numbers) < size:
            newest = _postings(db, owned, common[0], COMMON_TERM_LIMIT)
            numbers, scores = self._scores([*parts, (self._idf(frequencies[common[0]]), newest)], mask)
        proposals = []
        for search in searches:
            inside = self._contains(numbers, search.mask)
            proposals.append(numbers[inside][_largest(scores[inside], search.size)])
        return proposals, frequencies

    def _idf(self, frequency: int) -> float:
        count = len(self.numbers)
        return log(1 + (count - min(frequency, count) + 0.5) / (frequency + 0.5))

    def _scores(self, parts: Sequence[tuple[float, Array]], mask: Array) -> tuple[Array, Array]:
        """Return the entries of the postings that are in the scope, and their text scores."""
        columns = [np.zeros(0, np.int64), *(pairs[:, 0] for _, pairs in parts)]
        weights = [np.zeros(0), *(weight * pairs[:, 1] / (pairs[:, 1] + 0.9) for weight, pairs in parts)]
        numbers, positions = np.unique(np.concatenate(columns), return_inverse=True)
        scores = np.bincount(positions, np.concatenate(weights), minlength=len(numbers))
        inside = self._contains(numbers, mask)
        return numbers[inside], scores[inside]

    def _frequency(self, db: Database, owned: rows.WhereClause, term: int) -> int:
        """Return the document frequency of a common term, recounted when the scope has grown by a tenth."""
        known = self._frequencies.get(term)
        if known is None or len(self.numbers) > 1.1 * known.size:
            (count,) = db.execute(
                f"SELECT count(*) FROM postings WHERE {owned[0]} AND term=?", (*owned[1], term)
            ).fetchone()
            known = self._frequencies[term] = TermFrequency(int(count), len(self.numbers), self._changes)
        return known.frequency

    def _is_common(self, term: int) -> bool:
        """Return True if a term was counted and is common for sure, so that its postings need not be read."""
        known = self._frequencies.get(term)
        return known is not None and known.frequency - (self._changes - known.changes) >= RARE_TERM_LIMIT

    def _contains(self, numbers: Array, mask: Array) -> Array:
        """Return the mask of the numbers that are in the scope and allowed."""
        if not len(self.numbers):  # what is stale still has terms
            return np.zeros(len(numbers), np.bool_)
        positions = np.minimum(np.searchsorted(self.numbers, numbers), max(len(self.numbers) - 1, 0))
        inside: Array = (self.numbers[positions] == numbers) & mask[positions]
        return inside

    def _by_vector(self, db: Database, owned: rows.WhereClause, searches: Sequence[Search]) -> list[Array]:
        """Propose, for each search, the entries whose codes are nearest to that of the vector."""
        if not self.code_words:
            return []
        if self._uses_vector_index(db):
            first, *others = searches
            return [
                self._by_index(db, owned, first),
                *(self._by_codes_read(db, search) for search in others),
            ]
        return [
            _nearest(self.numbers, self._distances(vector, self.codes), self.has_code & mask, size)
            for vector, mask, size in searches
            if vector is not None
        ]

    def _distances(self, vector: Embedding, codes: Array) -> Array:
        code = to_uint64_rows(bit_codes(vector.pooled[None, :]), self.code_words)[0]
        distance = np.zeros(codes.shape[1], np.uint16)
        for at in range(0, self.code_words, 3):  # three words differ in 192 bits at most: bytes are summed
            words = zip(codes[at : at + 3], code[at : at + 3], strict=True)
            distance += reduce(np.add, [np.bitwise_count(column ^ word) for column, word in words])
        return distance

    def _uses_vector_index(self, db: Database) -> bool:
        """Return True if the scope is too large for codes in memory and the database has a vector index."""
        return bool(db.dialect.distance_expression) and len(self.numbers) > MAX_CODES_IN_MEMORY

    def _by_index(self, db: Database, owned: rows.WhereClause, search: Search) -> Array:
        """Propose what the vector index of the database finds.

        It is asked for more than needed, since a filter may drop some.
        """
        if search.vector is None:
            return np.zeros(0, np.int64)
        size = search.size
        code = to_bit_string(search.vector.pooled.astype("<f4").tobytes(), self.dim)
        db.prepare_search(4 * size)
        cursor = db.execute(
            f"SELECT e.no FROM vectors v JOIN entries e ON e.no = v.key / {SLOTS}"
            f" WHERE e.{owned[0]} AND e.live = 1 AND v.key % {SLOTS} = ?"
            f" ORDER BY {db.dialect.distance_expression.format(dim=self.dim)} LIMIT ?",
            (*owned[1], self.slot, code, 4 * size),
        )
        numbers = np.array([no for (no,) in cursor], np.int64)
        return numbers[self._contains(numbers, search.mask)][:size] if len(numbers) else numbers

    def _by_codes_read(self, db: Database, search: Search) -> Array:
        """Propose the nearest entries of a few rows, whose codes are read; of many rows, of the newest."""
        # The vector index would look for all entries first, and find few of the mask among them.
        found: list[tuple[int, bytes]] = []
        for batch in rows.batches(self.numbers[search.mask][-MAX_CODES_READ:].tolist()):
            keys = [number * SLOTS + self.slot for number in batch]
            marks = ",".join("?" * len(keys))
            found += db.execute(f"SELECT key / {SLOTS}, code FROM vectors WHERE key IN ({marks})", keys)
        if not found or search.vector is None:
            return np.zeros(0, np.int64)
        joined = np.frombuffer(b"".join(code for _, code in found), np.uint8).reshape(len(found), -1)
        distance = self._distances(search.vector, to_uint64_rows(joined, self.code_words).T)
        numbers = np.array([number for number, _ in found], np.int64)
        return _nearest(numbers, distance, np.ones(len(numbers), np.bool_), search.size)

    def _by_time(self, query: EncodedQuery, mask: Array) -> Array:
        """Propose entries in the time ranges of the query, latest first."""
        inside = np.zeros(len(self.numbers), np.bool_)
        for interval in query.query.times:
            inside |= (self.times >= interval.start) & (self.times < interval.end)
        return self.numbers[inside & mask][-PROPOSALS_PER_RETRIEVER // 4 :]


def _nearest(numbers: Array, distance: Array, mask: Array, size: int) -> Array:
    """Return the numbers of a mask with the smallest distances, of equal ones the newest."""
    if not mask.all():
        numbers, distance = numbers[mask], distance[mask]
    if len(numbers) <= size:
        return numbers
    # A sample bounds the distance, so that only the rows within the bound are partitioned.
    sample = distance[::_SAMPLE_STEP]
    last = min(4 * size // _SAMPLE_STEP + 8, len(sample) - 1)
    is_near = distance <= np.partition(sample, last)[last]
    if np.count_nonzero(is_near) >= size:
        numbers, distance = numbers[is_near], distance[is_near]
    cut = np.partition(distance, size - 1)[size - 1]
    nearest = numbers[distance < cut]
    ties = numbers[distance == cut][len(nearest) - size :]
    return np.concatenate([nearest, ties])


def _largest(scores: Array, count: int) -> Array:
    if len(scores) <= count:
        return np.arange(len(scores))
    return np.argpartition(-scores, count)[:count]


def _postings(db: Database, owned: rows.WhereClause, term: int, limit: int) -> Array:
    """Return the newest postings of a term: entry numbers and frequencies."""
    found = db.execute(
        f"SELECT no, count FROM postings WHERE {owned[0]} AND term=? ORDER BY no DESC LIMIT ?",
        (*owned[1], term, limit),
    ).fetchall()
    return np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)


def _pair_postings(db: Database, owned: rows.WhereClause, one: int, other: int) -> Array:
    """Return postings of entries that have two common terms, found from the rarer one."""
    mine = owned[0].replace("owner", "a.owner", 1)
    found = db.execute(
        f"SELECT a.no, a.count + b.count FROM postings a {db.dialect.join_order_hint} JOIN postings b"
        " ON b.owner = a.owner AND b.term = ? AND b.no = a.no"
        f" WHERE {mine} AND a.term = ? LIMIT ?",
        (other, *owned[1], one, COMMON_TERM_LIMIT),
    ).fetchall()
    return np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)


def _with_neighbours(db: Database, numbers: set[int]) -> list[int]:
    """Add the messages up to two positions before and after."""
    result = set(numbers)
    for batch in rows.batches(sorted(numbers)):
        marks = ",".join("?" * len(batch))
        cursor = db.execute(
            f"SELECT n.no FROM entries e {db.dialect.join_order_hint} JOIN entries n"
            " ON n.owner = e.owner AND n.thread = e.thread"
            " AND n.seq BETWEEN e.seq - 2"
            f" AND CASE WHEN e.seq > {_MAX_INT64 - 2} THEN {_MAX_INT64} ELSE e.seq + 2 END"
            f" WHERE e.no IN ({marks}) AND e.thread IS NOT NULL",
            batch,
        )
        result.update(chain.from_iterable(cursor))
    return sorted(result)
