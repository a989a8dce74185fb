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
from omoide.core.entry import Entry, Scope
from omoide.core.requests import Filter
from omoide.embedders import Embedder
from omoide.retrieval import arms
from omoide.retrieval.pool import Array, Statistics
from omoide.stores import semantics
from omoide.stores.recall import Asked, Candidates, Read
from omoide.stores.sql import cache, rows
from omoide.stores.sql.cache import Shelf
from omoide.stores.sql.database import SLOTS, Connections, Database

# wide: Which entries of a large scope are worth scoring?


PROPOSED = 100
"""Entries that each arm proposes."""

RARE = 512
"""Entries from which on a term is common."""

COMMON = 4_000
"""Postings of a common term that are read at most, the newest first."""

EFFORT = 6_000
"""Postings that are compared for pairs of common terms, at most."""

HELD_CODES = 250_000
"""Entries of a scope whose codes are held in memory even where an index of the database could be asked."""

_BIT_BATCH = 8_192
_FAR = 65_535  # further apart than any two codes are
_LAST = (1 << 63) - 1  # beyond which PostgreSQL does not count


class Wide:
    """What is held in memory of a large scope: numbers, times and one bit a dimension."""

    def __init__(self, slot: int, dim: int) -> None:
        self.slot = slot
        self.life: str | None = None
        self.covers = 0
        self.speakers: list[str] = []
        self._frequencies: dict[int, tuple[int, int]] = {}
        self.numbers: Array = np.zeros(0, np.int64)
        self.times: Array = np.zeros(0, np.int64)
        self.dim = dim
        self.words = -(-dim // 64)
        self.codes: Array = np.zeros((self.words, 0), np.uint64)  # a row for each 64 dimensions
        self.coded: Array = np.zeros(0, np.bool_)
        self._first_end: int | None = None

    def may_expire(self, at: int) -> bool:
        """Whether some of it may have expired by a moment."""
        return self._first_end is not None and self._first_end <= at

    def bring_up(self, db: Database, inside: rows.Where, namespace: str) -> None:
        """Apply what changed since the last use."""
        life, last = rows.state(db, namespace)
        changed: list[int] | None = None
        if self.life == life and last >= self.covers:
            changed = cache.changed_since(db, namespace, self.covers, len(self.numbers) // 4)
        if changed is None:
            condition, parameters = inside
            self._load(db, (f"{condition} AND live=1", parameters))
        elif changed:
            self._change(db, inside, changed)
        self.life, self.covers = life, last

    def _load(self, db: Database, counting: rows.Where) -> None:
        condition, parameters = counting
        # A scope that is most of the file is read in the order of the file, not of an index.
        part = "session" in condition or "project" in condition
        table = "entries" if part else f"entries {db.words.in_order}"
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
        self._first_end = min(ends, default=None)
        self.speakers = [*names]
        self.codes = np.zeros((self.words, len(numbers)), np.uint64)
        self.coded = np.zeros(len(numbers), np.bool_)
        if self.words and numbers and not self._is_searched(db):
            self._code(db, counting)

    def _code(self, db: Database, counting: rows.Where) -> None:
        """Read the codes of all; whose vectors lie between others' has them read by themselves."""
        if db.words.codes:
            condition, parameters = counting
            coded = db.execute(
                f"SELECT e.no, v.code FROM entries e JOIN vectors v ON v.key = e.no * {SLOTS} + ?"
                f" WHERE {condition}",
                (self.slot, *parameters),
            )
            while some := coded.fetchmany(_BIT_BATCH):
                self._place([no for no, _ in some], partial(self._read, some))
            return
        first, last = int(self.numbers[0]) * SLOTS, (int(self.numbers[-1]) + 1) * SLOTS
        found = db.execute(
            f"SELECT key / {SLOTS}, pooled FROM vectors WHERE key >= ? AND key < ? AND key % {SLOTS} = ?",
            (first, last, self.slot),
        )
        while some := found.fetchmany(_BIT_BATCH):
            self._set(some)

    def _read(self, found: Sequence[tuple[int, bytes]], ours: Array) -> Array:
        joined = b"".join(code for (_, code), mine in zip(found, ours, strict=True) if mine)
        return np.frombuffer(joined, np.uint8).reshape(-1, -(-self.dim // 8))

    def _set(self, found: Sequence[tuple[int, bytes]]) -> None:
        """Code the vectors of some entries."""

        def codes(ours: Array) -> Array:
            joined = b"".join(
                arms.one(pooled, self.dim) for (_, pooled), mine in zip(found, ours, strict=True) if mine
            )
            return arms.codes(np.frombuffer(joined, "<f4").reshape(-1, self.dim))

        if found:
            self._place([no for no, _ in found], codes)

    def _place(self, numbers: Sequence[int], codes: Callable[[Array], Array]) -> None:
        """Hold the codes of those of some entries that are held here; `codes` gives theirs."""
        wanted = np.array(numbers, np.int64)
        places = np.searchsorted(self.numbers, wanted)
        places[places == len(self.numbers)] = 0
        known = self.numbers[places] == wanted
        self.codes[:, places[known]] = arms.words(codes(known), self.words).T
        self.coded[places[known]] = True

    def _change(self, db: Database, inside: rows.Where, numbers: Sequence[int]) -> None:
        found = cache.read(db, inside, self.slot, numbers=numbers)
        changed = np.array(sorted(numbers), np.int64)
        places = np.minimum(np.searchsorted(self.numbers, changed), max(len(self.numbers) - 1, 0))
        known = self.numbers[places] == changed if len(self.numbers) else np.zeros(len(changed), np.bool_)
        if known.any():
            keep = np.ones(len(self.numbers), np.bool_)
            keep[places[known]] = False
            self.numbers, self.times = self.numbers[keep], self.times[keep]
            self.codes, self.coded = self.codes[:, keep], self.coded[keep]
        fresh = np.array([row[0] for row in found], np.int64)
        at = np.searchsorted(self.numbers, fresh)
        self.numbers = np.insert(self.numbers, at, fresh)
        self.times = np.insert(self.times, at, [row[2] for row in found])
        self.codes = np.insert(self.codes, at, 0, axis=1)
        self.coded = np.insert(self.coded, at, False)
        self._set([(row[0], row[10]) for row in found if row[10]])
        ends = [row[9] for row in found if row[9] is not None]
        self._first_end = min([*ends, *([] if self._first_end is None else [self._first_end])], default=None)
        if known.any():  # somebody may have fallen silent
            self.speakers = _speakers(db, f"{inside[0]} AND live=1", inside[1])
        else:
            self.speakers = [*dict.fromkeys([*self.speakers, *(row[6] for row in found if row[6])])]

    def propose(
        self,
        db: Database,
        owned: rows.Where,
        asked: Asked,
        allowed: Array | None,
        limit: int,
    ) -> tuple[list[int], Statistics]:
        """The numbers of the entries worth scoring, and what is known of the scope's terms."""
        mask = np.ones(len(self.numbers), np.bool_) if allowed is None else allowed
        by_text, frequencies = self._by_text(db, owned, asked.terms(), mask)
        near = (
            self._by_index(db, owned, asked, mask) if self._is_searched(db) else self._by_vector(asked, mask)
        )
        proposed = [by_text, near, self._by_time(asked, mask)]
        numbers = {int(no) for some in proposed for no in some}
        if len(numbers) < limit:
            numbers.update(int(no) for no in self.numbers[mask][-limit:])
        statistics = Statistics(count=len(self.numbers), frequencies=frequencies)
        return _with_neighbours(db, numbers), statistics

    def _by_text(
        self, db: Database, owned: rows.Where, terms: Sequence[int], mask: Array
    ) -> tuple[Array, dict[int, int]]:
        """Entries with the question's terms: all with a rare one, and those with common ones together."""
        postings = {term: _postings(db, owned, term, RARE) for term in terms}
        frequencies = {term: len(found) for term, found in postings.items() if 0 < len(found) < RARE}
        parts = [(self._rarity(frequencies[term]), postings[term]) for term in frequencies]
        common = [term for term, found in postings.items() if len(found) >= RARE]
        frequencies.update((term, self._frequency(db, owned, term)) for term in common)
        common.sort(key=frequencies.__getitem__)
        numbers, scores = self._scores(parts, mask)
        effort = EFFORT if len(numbers) < PROPOSED else 0  # rare terms have said enough
        for anchor, other in combinations(common, 2):  # the least common pairs come first
            effort -= frequencies[anchor]
            if effort < 0:
                break
            both = self._rarity(frequencies[anchor]) / (len(common) - 1) + self._rarity(frequencies[other])
            parts.append((both, _together(db, owned, anchor, other)))
            numbers, scores = self._scores(parts, mask)
        if common and len(numbers) < PROPOSED:
            newest = _postings(db, owned, common[0], COMMON)
            numbers, scores = self._scores([*parts, (self._rarity(frequencies[common[0]]), newest)], mask)
        return numbers[_largest(scores, PROPOSED)], frequencies

    def _rarity(self, frequency: int) -> float:
        count = len(self.numbers)
        return log(1 + (count - min(frequency, count) + 0.5) / (frequency + 0.5))

    def _scores(self, parts: Sequence[tuple[float, Array]], mask: Array) -> tuple[Array, Array]:
        """The entries that the postings name and the scope holds, and how much speaks for each."""
        found = [np.zeros(0, np.int64), *(pairs[:, 0] for _, pairs in parts)]
        weights = [np.zeros(0), *(weight * pairs[:, 1] / (pairs[:, 1] + 0.9) for weight, pairs in parts)]
        numbers, places = np.unique(np.concatenate(found), return_inverse=True)
        scores = np.bincount(places, np.concatenate(weights), minlength=len(numbers))
        inside = self._within(numbers, mask)
        return numbers[inside], scores[inside]

    def _frequency(self, db: Database, owned: rows.Where, term: int) -> int:
        """In how many entries a common term occurs; counted anew when the scope has grown by a tenth."""
        known = self._frequencies.get(term)
        if known is None or len(self.numbers) > 1.1 * known[1]:
            (count,) = db.execute(
                f"SELECT count(*) FROM postings WHERE {owned[0]} AND term=?", (*owned[1], term)
            ).fetchone()
            known = self._frequencies[term] = (int(count), len(self.numbers))
        return known[0]

    def _within(self, numbers: Array, mask: Array) -> Array:
        if not len(self.numbers):  # what is stale still has terms
            return np.zeros(len(numbers), np.bool_)
        places = np.minimum(np.searchsorted(self.numbers, numbers), max(len(self.numbers) - 1, 0))
        inside: Array = (self.numbers[places] == numbers) & mask[places]
        return inside

    def _by_vector(self, asked: Asked, mask: Array) -> Array:
        if asked.vector is None or not self.words or not self.coded.any():
            return np.zeros(0, np.int64)
        wanted = arms.words(arms.codes(asked.vector.pooled[None, :]), self.words)[0]
        apart = np.zeros(len(self.numbers), np.uint16)
        for column, word in zip(self.codes, wanted, strict=True):
            apart += np.bitwise_count(column ^ word)
        apart[~(self.coded & mask)] = _FAR
        near = np.cumsum(np.bincount(apart, minlength=_FAR + 1)[:_FAR])
        cut = min(int(np.searchsorted(near, PROPOSED)), _FAR - 1)
        nearer = self.numbers[apart < cut]
        ties = self.numbers[apart == cut][len(nearer) - PROPOSED :]
        return np.concatenate([nearer, ties])

    def _is_searched(self, db: Database) -> bool:
        """Whether there is too much to hold the codes of, and an index to ask instead."""
        return bool(db.words.near) and len(self.numbers) > HELD_CODES

    def _by_index(self, db: Database, owned: rows.Where, asked: Asked, mask: Array) -> Array:
        """What an index of the database finds near; some more than wanted, as a filter may take some away."""
        if asked.vector is None or not self.words:
            return np.zeros(0, np.int64)
        wanted = arms.written(asked.vector.pooled.astype("<f4").tobytes(), self.dim)
        db.prepare_search(4 * PROPOSED)
        found = db.execute(
            f"SELECT e.no FROM vectors v JOIN entries e ON e.no = v.key / {SLOTS}"
            f" WHERE e.{owned[0]} AND e.live = 1 AND v.key % {SLOTS} = ?"
            f" ORDER BY {db.words.near.format(dim=self.dim)} LIMIT ?",
            (*owned[1], self.slot, wanted, 4 * PROPOSED),
        )
        numbers = np.array([no for (no,) in found], np.int64)
        return numbers[self._within(numbers, mask)][:PROPOSED] if len(numbers) else numbers

    def _by_time(self, asked: Asked, mask: Array) -> Array:
        """Some of what lies in the times that the question names, the latest first."""
        inside = np.zeros(len(self.numbers), np.bool_)
        for interval in asked.query.times:
            inside |= (self.times >= interval.start) & (self.times < interval.end)
        return self.numbers[inside & mask][-PROPOSED // 4 :]


def _speakers(db: Database, condition: str, parameters: Sequence[object]) -> list[str]:
    found = db.execute(
        f"SELECT DISTINCT speaker FROM entries WHERE {condition} AND speaker IS NOT NULL", parameters
    )
    return [name for (name,) in found]


def _largest(scores: Array, count: int) -> Array:
    if len(scores) <= count:
        return np.arange(len(scores))
    return np.argpartition(-scores, count)[:count]


def _postings(db: Database, owned: rows.Where, term: int, limit: int) -> Array:
    """The newest entries with a term, and how often it occurs in each."""
    found = db.execute(
        f"SELECT no, count FROM postings WHERE {owned[0]} AND term=? ORDER BY no DESC LIMIT ?",
        (*owned[1], term, limit),
    ).fetchall()
    return np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)


def _together(db: Database, owned: rows.Where, one: int, other: int) -> Array:
    """Entries that have two common terms, found from the less common one."""
    mine = owned[0].replace("owner", "a.owner", 1)
    found = db.execute(
        f"SELECT a.no, a.count + b.count FROM postings a {db.words.as_given} JOIN postings b"
        " ON b.owner = a.owner AND b.term = ? AND b.no = a.no"
        f" WHERE {mine} AND a.term = ? LIMIT ?",
        (other, *owned[1], one, COMMON),
    ).fetchall()
    return np.fromiter(chain.from_iterable(found), np.int64, 2 * len(found)).reshape(-1, 2)


def _with_neighbours(db: Database, numbers: set[int]) -> list[int]:
    """The numbers, and those of the messages up to two places before and after."""
    found = set(numbers)
    for some in rows.batches(sorted(numbers)):
        marks = ",".join("?" * len(some))
        near = db.execute(
            f"SELECT n.no FROM entries e {db.words.as_given} JOIN entries n"
            " ON n.owner = e.owner AND n.thread = e.thread"
            f" AND n.seq BETWEEN e.seq - 2 AND CASE WHEN e.seq > {_LAST - 2} THEN {_LAST} ELSE e.seq + 2 END"
            f" WHERE e.no IN ({marks}) AND e.thread IS NOT NULL",
            some,
        )
        found.update(no for (no,) in near)
    return sorted(found)


# source: Which candidates does a database bring to a question?


HELD = 200_000
"""Entries that all shelves of a store hold together, at most."""

HELD_WIDE = 4_000_000
"""Entries of large scopes of which something is held in memory, at most."""

PLACES = 4_096
_TRIM = 16  # new places between two looks at how much is held
_TAGS = 8  # tags that the database looks for itself; the rest is checked on what it finds

_GIVEN_AWAY = "the store holds another embedder's vectors: open it again to recall by meaning"
_ALL = Filter()


class Place:
    """What is held in memory of one scope, and the lock for it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.shelf: Shelf | None = None
        self.wide: Wide | None = None
        self.speakers: Sequence[str] = ()

    def forget(self) -> None:
        """Hold nothing."""
        self.shelf = self.wide = None


class Question(NamedTuple):
    """What is asked, of which rows, and whose vectors answer."""

    db: Database
    scope: Scope
    inside: rows.Where
    filter: Filter
    at: int
    limit: int
    read: Read
    slot: int
    dim: int
    notices: tuple[str, ...]

    def passing(self) -> Array:
        """The numbers of the entries that the filter lets pass."""
        return passing(self.db, self.inside, self.filter, self.at)


class SQLSource:
    """The candidates of a database, with what is held of it in memory."""

    def __init__(self, connections: Connections, embedder: Embedder | None) -> None:
        self._connections = connections
        self._embedder = embedder
        self._lock = Lock()
        self._places: OrderedDict[Scope, Place] = OrderedDict()
        self._made = 0

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Who spoke in a scope when it was last asked about."""
        place = self._places.get(scope)
        return () if place is None else place.speakers

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, read: Read
    ) -> Iterator[Candidates | None]:
        """The candidates of a scope, as it is when the block begins."""
        place = self._place(scope)
        # The lock comes before the transaction: what is seen is never older than what is held.
        with place.lock, self._connections.reading() as db:
            inside = rows.where(db, scope)
            if inside is None:
                yield None
                return
            asked = self._question(db, scope, inside, filter, at, limit, read)
            yield _answer(asked, place)

    def _question(
        self,
        db: Database,
        scope: Scope,
        inside: rows.Where,
        filter: Filter,
        at: int,
        limit: int,
        read: Read,
    ) -> Question:
        model = rows.of(db, self._embedder)
        slot, dim = (-1, 0) if model is None else (model.slot, model.dim)
        given_away = self._embedder is not None and model is None and rows.serving(db) is not None
        notices = (_GIVEN_AWAY,) if given_away else ()
        return Question(db, scope, inside, filter, at, limit, read, slot, dim, notices)

    def _place(self, scope: Scope) -> Place:
        with self._lock:
            place = self._places.pop(scope, None)
            if place is None:
                place = Place()
                self._made += 1
                if self._made % _TRIM == 0:
                    self._trim()
            self._places[scope] = place
            return place

    def _trim(self) -> None:
        """Let go of the places used longest ago, once all of them hold too much."""
        held = sum(place.shelf.pool.size for place in self._places.values() if place.shelf)
        wide = sum(len(place.wide.numbers) for place in self._places.values() if place.wide)
        for scope, place in [*self._places.items()]:
            if held <= HELD and wide <= HELD_WIDE and len(self._places) <= PLACES:
                return
            if place.lock.acquire(blocking=False):  # one that is in use stays
                try:
                    held -= place.shelf.pool.size if place.shelf else 0
                    wide -= len(place.wide.numbers) if place.wide else 0
                    place.forget()
                    del self._places[scope]
                finally:
                    place.lock.release()


def _answer(asked: Question, place: Place) -> Candidates | None:
    filter, at = asked.filter, asked.at
    if filter.include_superseded or filter.include_stale or filter.include_expired:
        return _apart(asked)
    if place.wide is None:
        if place.shelf is None or (place.shelf.slot, place.shelf.pool.dim) != (asked.slot, asked.dim):
            place.shelf = Shelf(asked.slot, asked.dim)
        shelf = place.shelf
        if cache.bring_up(asked.db, shelf, asked.inside, asked.scope.namespace):
            now = clock.now()
            if at < shelf.lost_until or (at > now and shelf.expires_between(now, at)):
                return _apart(asked)  # another moment than the one the shelf is kept for
            shelf.expire(min(at, now))
            place.speakers = shelf.speakers()
            return _from_shelf(asked, shelf)
        place.shelf = None
    if place.wide is None or (place.wide.slot, place.wide.dim) != (asked.slot, asked.dim):
        place.wide = Wide(asked.slot, asked.dim)
    wide = place.wide
    wide.bring_up(asked.db, asked.inside, asked.scope.namespace)
    place.speakers = wide.speakers
    if len(wide.numbers) <= cache.SHELF:  # it has shrunk: the next question is answered from a shelf
        place.wide = None
    return _from_wide(asked, wide)


def _from_shelf(asked: Question, shelf: Shelf) -> Candidates | None:
    if not shelf.numbers:
        return None
    allowed = None if asked.filter == _ALL else np.isin(np.array(shelf.numbers), asked.passing())
    return _candidates(asked, shelf, allowed)


def _from_wide(asked: Question, wide: Wide) -> Candidates | None:
    mask = None
    if asked.filter != _ALL or wide.may_expire(asked.at):
        mask = np.isin(wide.numbers, asked.passing())
    agent = asked.scope.agent_id
    owned = (rows.ANY_OWNER if agent is None else rows.ONE_OWNER, asked.inside[1][:1])
    numbers, statistics = wide.propose(asked.db, owned, asked.read(wide.speakers), mask, asked.limit)
    found = cache.read(asked.db, asked.inside, asked.slot, numbers=numbers)
    shelf = Shelf(asked.slot, asked.dim)
    shelf.fill([row for row in found if row[9] is None or row[9] > asked.at], statistics, reach=2)
    if not shelf.numbers:
        return None
    allowed = None if mask is None else np.isin(np.array(shelf.numbers), wide.numbers[mask])
    # The pool numbers the speakers anew, so the question is read once more; its vector is kept.
    return _candidates(asked, shelf, allowed)


def _apart(asked: Question) -> Candidates | None:
    """The candidates of a question that what is held in memory cannot answer."""
    filter = asked.filter
    found = cache.read(asked.db, asked.inside, asked.slot, lives=rows.lives(filter))
    shelf = Shelf(asked.slot, asked.dim)
    shelf.fill([row for row in found if filter.include_expired or row[9] is None or row[9] > asked.at])
    if not shelf.numbers:
        return None
    return _candidates(asked, shelf, np.isin(np.array(shelf.numbers), asked.passing()))


def _candidates(asked: Question, shelf: Shelf, allowed: Array | None) -> Candidates:
    db = asked.db
    shelf.tokens(db)

    def entries(places: Sequence[int]) -> list[Entry]:
        numbers = [shelf.numbers[place] for place in places]
        found: dict[int, tuple[bytes, int]] = {}
        for some in rows.batches(numbers):
            marks = ",".join("?" * len(some))
            kept = db.execute(f"SELECT no, body, live FROM entries WHERE no IN ({marks})", some)
            found.update((no, (body, live)) for no, body, live in kept)
        return [rows.entry_of(*found[number]) for number in numbers]

    return Candidates(
        shelf.pool, asked.read(shelf.speakers()), allowed, shelf.written, entries, asked.notices
    )


def passing(db: Database, inside: rows.Where, filter: Filter, at: int) -> Array:
    """The numbers of the entries of a scope that a filter lets pass."""
    condition, parameters = inside[0], [*inside[1]]
    condition += rows.standing_in(rows.lives(filter))
    types = semantics.wanted_types(filter)
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
    for tag in filter.tags[:_TAGS]:
        condition += f" AND {db.words.contains}"
        parameters.append(msgspec.json.encode(tag))
    tagged = bool(filter.tags or filter.tags_any)
    found = db.execute(
        f"SELECT no{', body, live' if tagged else ''} FROM entries WHERE {condition}", parameters
    )
    if not tagged:
        return np.array([no for (no,) in found], np.int64)
    passes = semantics.passing(filter, at)
    return np.array([no for no, body, live in found if passes(rows.entry_of(body, live))], np.int64)
