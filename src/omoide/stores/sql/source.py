"""Which candidates does a database bring to a question?"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, RLock
from typing import NamedTuple

import msgspec
import numpy as np

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.recalling import Filter
from omoide.core.scope import Scope
from omoide.embedders import Embedder
from omoide.retrieval.pool import Array
from omoide.stores import rules
from omoide.stores.recalling import Candidates, Read
from omoide.stores.sql import models, rows, shelves
from omoide.stores.sql.database import Connections, Database
from omoide.stores.sql.shelves import Shelf
from omoide.stores.sql.wide import Wide

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
        model = models.of(db, self._embedder)
        slot, dim = (-1, 0) if model is None else (model.slot, model.dim)
        given_away = self._embedder is not None and model is None and models.serving(db) is not None
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
        if shelves.bring_up(asked.db, shelf, asked.inside, asked.scope.namespace):
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
    if len(wide.numbers) <= shelves.SHELF:  # it has shrunk: the next question is answered from a shelf
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
    found = shelves.read(asked.db, asked.inside, asked.slot, numbers=numbers)
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
    found = shelves.read(asked.db, asked.inside, asked.slot, lives=rows.lives(filter))
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
    types = rules.wanted_types(filter)
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
    passes = rules.passing(filter, at)
    return np.array([no for no, body, live in found if passes(rows.entry_of(body, live))], np.int64)
