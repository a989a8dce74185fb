"""Candidate search, bit-coded vectors.

The text index and the vectors each propose some hundreds, and the neighbours of messages come with them. Of
the vectors only one bit a dimension is held in memory; the exact ones are read for what was proposed.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, combinations
from math import log
from threading import Lock, RLock
from typing import NamedTuple

import msgspec
import numpy as np

from omoide import clock
from omoide.core.entry import Entry, Filter, Scope
from omoide.embedders import Embedder
from omoide.embedders.vectors import bit_codes, mean_vector, to_bit_string, to_uint64_rows
from omoide.retrieval.pool import Array, ScopeStatistics
from omoide.stores import semantics
from omoide.stores.cache import ScopeCache
from omoide.stores.recall import Candidates, EncodedQuery, QueryEncoder
from omoide.stores.sql import cache, rows
from omoide.stores.sql.database import SLOTS, Database, SQLConnections

# wide: Which entries of a large scope are worth scoring?


PROPOSALS_PER_RETRIEVER = 100
"""Entries that each arm proposes."""

RARE_TERM_LIMIT = 512
"""Entries from which on a term is common."""

COMMON_TERM_LIMIT = 4_000
"""Postings of a common term that are read at most, the newest first."""

MAX_PAIR_POSTINGS = 6_000
"""Postings that are compared for pairs of common terms, at most."""

MAX_CODES_IN_MEMORY = 250_000
"""Entries of a scope whose codes are held in memory even where an index of the database could be asked."""

_CODE_BATCH = 8_192
_MAX_DISTANCE = 65_535  # further apart than any two codes are
_MAX_INT64 = (1 << 63) - 1  # beyond which PostgreSQL does not count


class LargeScopeIndex:
    """What is held in memory of a large scope: numbers, times and one bit a dimension."""

    def __init__(self, slot: int, dim: int) -> None:
        self.slot = slot
        self.generation: str | None = None
        self.covered_seq = 0
        self.speakers: list[str] = []
        self._frequencies: dict[int, tuple[int, int]] = {}
        self.numbers: Array = np.zeros(0, np.int64)
        self.times: Array = np.zeros(0, np.int64)
        self.dim = dim
        self.code_words = -(-dim // 64)
        self.codes: Array = np.zeros((self.code_words, 0), np.uint64)  # a row for each 64 dimensions
        self.has_code: Array = np.zeros(0, np.bool_)
        self._first_expiry: int | None = None

    def may_expire(self, at: int) -> bool:
        """Whether some of it may have expired by a moment."""
        return self._first_expiry is not None and self._first_expiry <= at

    def refresh(self, db: Database, where: rows.WhereClause, namespace: str) -> None:
        """Apply what changed since the last use."""
        life, last = rows.latest_change(db, namespace)
        changed: list[int] | None = None
        if self.generation == life and last >= self.covered_seq:
            changed = cache.changed_numbers(db, namespace, self.covered_seq, len(self.numbers) // 4)
        if changed is None:
            condition, parameters = where
            self._load(db, (f"{condition} AND live=1", parameters))
        elif changed:
            self._apply_changes(db, where, changed)
        self.generation, self.covered_seq = life, last

    def _load(self, db: Database, live_rows: rows.WhereClause) -> None:
        condition, parameters = live_rows
        # A scope that is most of the file is read in the order of the file, not of an index.
        part = "session" in condition or "project" in condition
        table = "entries" if part else f"entries {db.dialect.table_order_hint}"
        found = db.execute(f"SELECT no, time, expires, speaker FROM {table} WHERE {condition}", parameters)
        numbers, times, ends, names = [], [], [], dict[str, None]()
        for no, time, end, speaker in found:
            numbers.append(no)
            times.append(time)
            if end is not None:
                ends.append(end)
            if speaker is not None:
                names[speaker] = None
        self.numbers, self.times = np.array(numbers, np.int64), np.array(times, np.int64)
        order = np.argsort(self.numbers)
        self.numbers, self.times = self.numbers[order], self.times[order]
        self._first_expiry = min(ends, default=None)
        self.speakers = [*names]
        self.codes = np.zeros((self.code_words, len(numbers)), np.uint64)
        self.has_code = np.zeros(len(numbers), np.bool_)
        if self.code_words and numbers and not self._uses_vector_index(db):
            self._load_codes(db, live_rows)

    def _load_codes(self, db: Database, live_rows: rows.WhereClause) -> None:
        """Read the codes of all; whose vectors lie between others' has them read by themselves."""
        if db.dialect.stores_codes:
            condition, parameters = live_rows
            coded = db.execute(
                f"SELECT e.no, v.code FROM entries e JOIN vectors v ON v.key = e.no * {SLOTS} + ?"
                f" WHERE {condition}",
                (self.slot, *parameters),
            )
            while some := coded.fetchmany(_CODE_BATCH):
                self._store_codes([no for no, _ in some], partial(self._join_codes, some))
            return
        first, last = int(self.numbers[0]) * SLOTS, (int(self.numbers[-1]) + 1) * SLOTS
        found = db.execute(
            f"SELECT key / {SLOTS}, pooled FROM vectors WHERE key >= ? AND key < ? AND key % {SLOTS} = ?",
            (first, last, self.slot),
        )
        while some := found.fetchmany(_CODE_BATCH):
            self._set_codes(some)

    def _join_codes(self, found: Sequence[tuple[int, bytes]], ours: Array) -> Array:
        joined = b"".join(code for (_, code), mine in zip(found, ours, strict=True) if mine)
        return np.frombuffer(joined, np.uint8).reshape(-1, -(-self.dim // 8))

    def _set_codes(self, found: Sequence[tuple[int, bytes]]) -> None:
        """Code the vectors of some entries."""

        def codes(ours: Array) -> Array:
            joined = b"".join(
                mean_vector(pooled, self.dim) for (_, pooled), mine in zip(found, ours, strict=True) if mine
            )
            return bit_codes(np.frombuffer(joined, "<f4").reshape(-1, self.dim))

        if found:
            self._store_codes([no for no, _ in found], codes)

    def _store_codes(self, numbers: Sequence[int], codes: Callable[[Array], Array]) -> None:
        """Hold the codes of those of some entries that are held here; `codes` gives theirs."""
        wanted = np.array(numbers, np.int64)
        places = np.searchsorted(self.numbers, wanted)
        places[places == len(self.numbers)] = 0
        known = self.numbers[places] == wanted
        self.codes[:, places[known]] = to_uint64_rows(codes(known), self.code_words).T
        self.has_code[places[known]] = True

    def _apply_changes(self, db: Database, where: rows.WhereClause, numbers: Sequence[int]) -> None:
        found = cache.read_rows(db, where, self.slot, numbers=numbers)
        changed = np.array(sorted(numbers), np.int64)
        places = np.minimum(np.searchsorted(self.numbers, changed), max(len(self.numbers) - 1, 0))
        known = self.numbers[places] == changed if len(self.numbers) else np.zeros(len(changed), np.bool_)
        if known.any():
            keep = np.ones(len(self.numbers), np.bool_)
            keep[places[known]] = False
            self.numbers, self.times = self.numbers[keep], self.times[keep]
            self.codes, self.has_code = self.codes[:, keep], self.has_code[keep]
        fresh = np.array([row[0] for row in found], np.int64)
        at = np.searchsorted(self.numbers, fresh)
        self.numbers = np.insert(self.numbers, at, fresh)
        self.times = np.insert(self.times, at, [row[2] for row in found])
        self.codes = np.insert(self.codes, at, 0, axis=1)
        self.has_code = np.insert(self.has_code, at, False)
        self._set_codes([(row[0], row[10]) for row in found if row[10]])
        ends = [row[9] for row in found if row[9] is not None]
        self._first_expiry = min(
            [*ends, *([] if self._first_expiry is None else [self._first_expiry])], default=None
        )
        if known.any():  # somebody may have fallen silent
            self.speakers = _speakers(db, f"{where[0]} AND live=1", where[1])
        else:
            self.speakers = [*dict.fromkeys([*self.speakers, *(row[6] for row in found if row[6])])]

    def propose(
        self,
        db: Database,
        owned: rows.WhereClause,
        query: EncodedQuery,
        allowed: Array | None,
        limit: int,
    ) -> tuple[list[int], ScopeStatistics]:
        """The numbers of the entries worth scoring, and what is known of the scope's terms."""
        mask = np.ones(len(self.numbers), np.bool_) if allowed is None else allowed
        by_text, frequencies = self._by_text(db, owned, query.term_ids(), mask)
        near = (
            self._by_index(db, owned, query, mask)
            if self._uses_vector_index(db)
            else self._by_vector(query, mask)
        )
        proposed = [by_text, near, self._by_time(query, mask)]
        numbers = {int(no) for some in proposed for no in some}
        if len(numbers) < limit:
            numbers.update(int(no) for no in self.numbers[mask][-limit:])
        statistics = ScopeStatistics(count=len(self.numbers), frequencies=frequencies)
        return _with_neighbours(db, numbers), statistics

    def _by_text(
        self, db: Database, owned: rows.WhereClause, terms: Sequence[int], mask: Array
    ) -> tuple[Array, dict[int, int]]:
        """Entries with the question's terms: all with a rare one, and those with common ones together."""
        postings = {term: _postings(db, owned, term, RARE_TERM_LIMIT) for term in terms}
        frequencies = {
            term: len(found) for term, found in postings.items() if 0 < len(found) < RARE_TERM_LIMIT
        }
        parts = [(self._idf(frequencies[term]), postings[term]) for term in frequencies]
        common = [term for term, found in postings.items() if len(found) >= RARE_TERM_LIMIT]
        frequencies.update((term, self._frequency(db, owned, term)) for term in common)
        common.sort(key=frequencies.__getitem__)
        numbers, scores = self._scores(parts, mask)
        effort = (
            MAX_PAIR_POSTINGS if len(numbers) < PROPOSALS_PER_RETRIEVER else 0
        )  # rare terms have said enough
        for anchor, other in combinations(common, 2):  # the least common pairs come first
            effort -= frequencies[anchor]
            if effort < 0:
                break
            both = self._idf(frequencies[anchor]) / (len(common) - 1) + self._idf(frequencies[other])
            parts.append((both, _pair_postings(db, owned, anchor, other)))
            numbers, scores = self._scores(parts, mask)
        if common and len(numbers) < PROPOSALS_PER_RETRIEVER:
            newest = _postings(db, owned, common[0], COMMON_TERM_LIMIT)
            numbers, scores = self._scores([*parts, (self._idf(frequencies[common[0]]), newest)], mask)
        return numbers[_largest(scores, PROPOSALS_PER_RETRIEVER)], frequencies

    def _idf(self, frequency: int) -> float:
        count = len(self.numbers)
        return log(1 + (count - min(frequency, count) + 0.5) / (frequency + 0.5))

    def _scores(self, parts: Sequence[tuple[float, Array]], mask: Array) -> tuple[Array, Array]:
        """The entries that the postings name and the scope holds, and how much speaks for each."""
        found = [np.zeros(0, np.int64), *(pairs[:, 0] for _, pairs in parts)]
        weights = [np.zeros(0), *(weight * pairs[:, 1] / (pairs[:, 1] + 0.9) for weight, pairs in parts)]
        numbers, places = np.unique(np.concatenate(found), return_inverse=True)
        scores = np.bincount(places, np.concatenate(weights), minlength=len(numbers))
        inside = self._contains(numbers, mask)
        return numbers[inside], scores[inside]

    def _frequency(self, db: Database, owned: rows.WhereClause, term: int) -> int:
        """In how many entries a common term occurs; counted anew when the scope has grown by a tenth."""
        known = self._frequencies.get(term)
        if known is None or len(self.numbers) > 1.1 * known[1]:
            (count,) = db.execute(
                f"SELECT count(*) FROM postings WHERE {owned[0]} AND term=?", (*owned[1], term)
            ).fetchone()
            known = self._frequencies[term] = (int(count), len(self.numbers))
        return known[0]

    def _contains(self, numbers: Array, mask: Array) -> Array:
        if not len(self.numbers):  # what is stale still has terms
            return np.zeros(len(numbers), np.bool_)
        places = np.minimum(np.searchsorted(self.numbers, numbers), max(len(self.numbers) - 1, 0))
        inside: Array = (self.numbers[places] == numbers) & mask[places]
        return inside

    def _by_vector(self, query: EncodedQuery, mask: Array) -> Array:
        if query.vector is None or not self.code_words or not self.has_code.any():
            return np.zeros(0, np.int64)
        wanted = to_uint64_rows(bit_codes(query.vector.pooled[None, :]), self.code_words)[0]
        apart = np.zeros(len(self.numbers), np.uint16)
        for column, word in zip(self.codes, wanted, strict=True):
            apart += np.bitwise_count(column ^ word)
        apart[~(self.has_code & mask)] = _MAX_DISTANCE
        near = np.cumsum(np.bincount(apart, minlength=_MAX_DISTANCE + 1)[:_MAX_DISTANCE])
        cut = min(int(np.searchsorted(near, PROPOSALS_PER_RETRIEVER)), _MAX_DISTANCE - 1)
        nearer = self.numbers[apart < cut]
        ties = self.numbers[apart == cut][len(nearer) - PROPOSALS_PER_RETRIEVER :]
        return np.concatenate([nearer, ties])

    def _uses_vector_index(self, db: Database) -> bool:
        """Whether there is too much to hold the codes of, and an index to ask instead."""
        return bool(db.dialect.distance_expression) and len(self.numbers) > MAX_CODES_IN_MEMORY

    def _by_index(self, db: Database, owned: rows.WhereClause, query: EncodedQuery, mask: Array) -> Array:
        """What an index of the database finds near; some more than wanted, as a filter may take some away."""
        if query.vector is None or not self.code_words:
            return np.zeros(0, np.int64)
        wanted = to_bit_string(query.vector.pooled.astype("<f4").tobytes(), self.dim)
        db.prepare_search(4 * PROPOSALS_PER_RETRIEVER)
        found = db.execute(
            f"SELECT e.no FROM vectors v JOIN entries e ON e.no = v.key / {SLOTS}"
            f" WHERE e.{owned[0]} AND e.live = 1 AND v.key % {SLOTS} = ?"
            f" ORDER BY {db.dialect.distance_expression.format(dim=self.dim)} LIMIT ?",
            (*owned[1], self.slot, wanted, 4 * PROPOSALS_PER_RETRIEVER),
        )
        numbers = np.array([no for (no,) in found], np.int64)
        return numbers[self._contains(numbers, mask)][:PROPOSALS_PER_RETRIEVER] if len(numbers) else numbers

    def _by_time(self, query: EncodedQuery, mask: Array) -> Array:
        """Some of what lies in the times that the question names, the latest first."""
        inside = np.zeros(len(self.numbers), np.bool_)
        for interval in query.query.times:
            inside |= (self.times >= interval.start) & (self.times < interval.end)
        return self.numbers[inside & mask][-PROPOSALS_PER_RETRIEVER // 4 :]


def _speakers(db: Database, condition: str, parameters: Sequence[object]) -> list[str]:
    found = db.execute(
        f"SELECT DISTINCT speaker FROM entries WHERE {condition} AND speaker IS NOT NULL", parameters
    )
    return [name for (name,) in found]


def _largest(scores: Array, count: int) -> Array:
    if len(scores) <= count:
        return np.arange(len(scores))
    return np.argpartition(-scores, count)[:count]


def _postings(db: Database, owned: rows.WhereClause, term: int, limit: int) -> Array:
    """The newest entries with a term, and how often it occurs in each."""
    found = db.execute(
        f"SELECT no, count FROM postings WHERE {owned[0]} AND term=? ORDER BY no DESC LIMIT ?",
        (*owned[1], term, limit),
    ).fetchall()
    return np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)


def _pair_postings(db: Database, owned: rows.WhereClause, one: int, other: int) -> Array:
    """Entries that have two common terms, found from the less common one."""
    mine = owned[0].replace("owner", "a.owner", 1)
    found = db.execute(
        f"SELECT a.no, a.count + b.count FROM postings a {db.dialect.join_order_hint} JOIN postings b"
        " ON b.owner = a.owner AND b.term = ? AND b.no = a.no"
        f" WHERE {mine} AND a.term = ? LIMIT ?",
        (other, *owned[1], one, COMMON_TERM_LIMIT),
    ).fetchall()
    return np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)


def _with_neighbours(db: Database, numbers: set[int]) -> list[int]:
    """The numbers, and those of the messages up to two places before and after."""
    found = set(numbers)
    for some in rows.batches(sorted(numbers)):
        marks = ",".join("?" * len(some))
        near = db.execute(
            f"SELECT n.no FROM entries e {db.dialect.join_order_hint} JOIN entries n"
            " ON n.owner = e.owner AND n.thread = e.thread"
            " AND n.seq BETWEEN e.seq - 2"
            f" AND CASE WHEN e.seq > {_MAX_INT64 - 2} THEN {_MAX_INT64} ELSE e.seq + 2 END"
            f" WHERE e.no IN ({marks}) AND e.thread IS NOT NULL",
            some,
        )
        found.update(no for (no,) in near)
    return sorted(found)


# source: Which candidates does a database bring to a question?


MAX_CACHED_ROWS = 200_000
"""Entries that all shelves of a store hold together, at most."""

MAX_LARGE_SCOPE_ROWS = 4_000_000
"""Entries of large scopes of which something is held in memory, at most."""

MAX_CACHE_SLOTS = 4_096
_TRIM_INTERVAL = 16  # new places between two looks at how much is held
_MAX_SQL_TAGS = 8  # tags that the database looks for itself; the rest is checked on what it finds

_EMBEDDER_REPLACED = "the store holds another embedder's vectors: open it again to recall by meaning"
_NO_FILTER = Filter()


class CacheSlot:
    """What is held in memory of one scope, and the lock for it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.cache: ScopeCache | None = None
        self.large_index: LargeScopeIndex | None = None
        self.speakers: Sequence[str] = ()

    def clear(self) -> None:
        """Hold nothing."""
        self.cache = self.large_index = None


class CandidateRequest(NamedTuple):
    """What is asked, of which rows, and whose vectors answer."""

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
        """The numbers of the entries that the filter lets pass."""
        return matching_numbers(self.db, self.where, self.filter, self.at)


class SQLCandidateSource:
    """The candidates of a database, with what is held of it in memory."""

    def __init__(self, connections: SQLConnections, embedder: Embedder | None) -> None:
        self._connections = connections
        self._embedder = embedder
        self._lock = Lock()
        self._slots: OrderedDict[Scope, CacheSlot] = OrderedDict()
        self._slots_created = 0

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
        model = rows.model_of(db, self._embedder)
        slot, dim = (-1, 0) if model is None else (model.slot, model.dim)
        given_away = self._embedder is not None and model is None and rows.serving_model(db) is not None
        notices = (_EMBEDDER_REPLACED,) if given_away else ()
        return CandidateRequest(db, scope, where, filter, at, limit, encode_query, slot, dim, notices)

    def _slot(self, scope: Scope) -> CacheSlot:
        with self._lock:
            place = self._slots.pop(scope, None)
            if place is None:
                place = CacheSlot()
                self._slots_created += 1
                if self._slots_created % _TRIM_INTERVAL == 0:
                    self._trim()
            self._slots[scope] = place
            return place

    def _trim(self) -> None:
        """Let go of the places used longest ago, once all of them hold too much."""
        held = sum(place.cache.pool.size for place in self._slots.values() if place.cache)
        wide = sum(len(place.large_index.numbers) for place in self._slots.values() if place.large_index)
        for scope, place in [*self._slots.items()]:
            if (
                held <= MAX_CACHED_ROWS
                and wide <= MAX_LARGE_SCOPE_ROWS
                and len(self._slots) <= MAX_CACHE_SLOTS
            ):
                return
            if place.lock.acquire(blocking=False):  # one that is in use stays
                try:
                    held -= place.cache.pool.size if place.cache else 0
                    wide -= len(place.large_index.numbers) if place.large_index else 0
                    place.clear()
                    del self._slots[scope]
                finally:
                    place.lock.release()


def _find_candidates(request: CandidateRequest, slot: CacheSlot) -> Candidates | None:
    filter, at = request.filter, request.at
    if filter.include_superseded or filter.include_stale or filter.include_expired:
        return _without_cache(request)
    if slot.large_index is None:
        if slot.cache is None or (slot.cache.slot, slot.cache.pool.dim) != (request.slot, request.dim):
            slot.cache = ScopeCache(request.slot, request.dim)
        shelf = slot.cache
        if cache.refresh(request.db, shelf, request.where, request.scope.namespace):
            now = clock.now()
            if at < shelf.expired_until or (at > now and shelf.expires_between(now, at)):
                return _without_cache(request)  # another moment than the one the shelf is kept for
            shelf.expire(min(at, now))
            slot.speakers = shelf.speakers()
            return _from_cache(request, shelf)
        slot.cache = None
    if slot.large_index is None or (slot.large_index.slot, slot.large_index.dim) != (
        request.slot,
        request.dim,
    ):
        slot.large_index = LargeScopeIndex(request.slot, request.dim)
    wide = slot.large_index
    wide.refresh(request.db, request.where, request.scope.namespace)
    slot.speakers = wide.speakers
    if (
        len(wide.numbers) <= cache.MAX_CACHED_ENTRIES
    ):  # it has shrunk: the next question is answered from a shelf
        slot.large_index = None
    return _from_large_index(request, wide)


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
    numbers, statistics = index.propose(
        request.db, owned, request.encode_query(index.speakers), mask, request.limit
    )
    found = cache.read_rows(request.db, request.where, request.slot, numbers=numbers)
    shelf = ScopeCache(request.slot, request.dim)
    shelf.fill([row for row in found if row[9] is None or row[9] > request.at], statistics, reach=2)
    if not shelf.numbers:
        return None
    allowed = None if mask is None else np.isin(np.array(shelf.numbers), index.numbers[mask])
    # The pool numbers the speakers anew, so the question is read once more; its vector is kept.
    return _build_candidates(request, shelf, allowed)


def _without_cache(request: CandidateRequest) -> Candidates | None:
    """The candidates of a question that what is held in memory cannot answer."""
    filter = request.filter
    found = cache.read_rows(request.db, request.where, request.slot, statuses=rows.allowed_statuses(filter))
    shelf = ScopeCache(request.slot, request.dim)
    shelf.fill([row for row in found if filter.include_expired or row[9] is None or row[9] > request.at])
    if not shelf.numbers:
        return None
    return _build_candidates(request, shelf, np.isin(np.array(shelf.numbers), request.allowed_numbers()))


def _build_candidates(
    request: CandidateRequest, scope_cache: ScopeCache, allowed: Array | None
) -> Candidates:
    db = request.db
    cache.attach_token_reader(db, scope_cache)

    def entries(places: Sequence[int]) -> list[Entry]:
        numbers = [scope_cache.numbers[place] for place in places]
        found: dict[int, tuple[bytes, int]] = {}
        for some in rows.batches(numbers):
            marks = ",".join("?" * len(some))
            kept = db.execute(f"SELECT no, body, live FROM entries WHERE no IN ({marks})", some)
            found.update((no, (body, live)) for no, body, live in kept)
        return [rows.entry_of(*found[number]) for number in numbers]

    return Candidates(
        scope_cache.pool,
        request.encode_query(scope_cache.speakers()),
        allowed,
        scope_cache.write_order,
        entries,
        request.notices,
    )


def matching_numbers(db: Database, where: rows.WhereClause, filter: Filter, at: int) -> Array:
    """The numbers of the entries of a scope that a filter lets pass."""
    condition, parameters = where[0], [*where[1]]
    condition += rows.status_condition(rows.allowed_statuses(filter))
    types = semantics.filter_types(filter)
    if types is not None:
        condition += f" AND type IN ({','.join('?' * len(types))})"
        parameters.extend(types)
    for column, sign, value in (
        ("confidence", ">=", filter.min_confidence or None),
        ("time", ">=", filter.since),
        ("time", "<=", filter.until),
    ):
        if value is not None:
            condition += f" AND {column} {sign} ?"
            parameters.append(value)
    if not filter.include_expired:
        condition += " AND (expires IS NULL OR expires > ?)"
        parameters.append(at)
    for tag in filter.tags[:_MAX_SQL_TAGS]:
        condition += f" AND {db.dialect.contains_bytes}"
        parameters.append(msgspec.json.encode(tag))
    tagged = bool(filter.tags or filter.tags_any)
    found = db.execute(
        f"SELECT no{', body, live' if tagged else ''} FROM entries WHERE {condition}", parameters
    )
    if not tagged:
        return np.array([no for (no,) in found], np.int64)
    passes = semantics.entry_predicate(filter, at)
    return np.array([no for no, body, live in found if passes(rows.entry_of(body, live))], np.int64)
