"""Which candidates does a file bring to a question?"""

from __future__ import annotations

import sqlite3
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import msgspec
import numpy as np

from omoide.core.entry import Entry
from omoide.core.recalling import Filter
from omoide.core.scope import Scope
from omoide.retrieval.pool import Array
from omoide.stores import bodies, rules
from omoide.stores.recalling import Candidates, Read
from omoide.stores.sqlite import models, rows, shelves
from omoide.stores.sqlite.connections import Connections
from omoide.stores.sqlite.shelves import Shelf, Shelves
from omoide.stores.sqlite.wide import Wide

_WIDES = 4
_GIVEN_AWAY = "the store has been given to another embedder: open it again to recall by meaning"
_ALL = Filter()


class FileSource:
    """The candidates of a file, with what is held of it in memory."""

    def __init__(self, connections: Connections, slot: int, dim: int, embedder: str | None) -> None:
        self.slot = slot
        self.embedder = embedder
        self.dim = dim
        self._connections = connections
        self._shelves = Shelves()
        self._wides: OrderedDict[Scope, Wide] = OrderedDict()
        self._lock = Lock()

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, read: Read
    ) -> Iterator[Candidates | None]:
        """The candidates of a scope, as it is when the block begins."""
        shelf = self._shelves.take(scope, self.slot, self.dim)
        # The lock comes before the transaction: what is seen is never older than what the shelf covers.
        with shelf.lock, self._connections.reading() as db:
            owners = rows.owners_in(db, scope)
            if not owners:
                yield None
            elif filter.include_superseded or filter.include_expired or at < shelf.lost_until:
                yield self._apart(db, scope, owners, filter, at, read)
            elif scope not in self._wides and shelves.bring_up(db, shelf, scope, owners, at):
                yield self._from_shelf(db, shelf, scope, owners, filter, at, read)
            else:
                wide = self._wide(scope)
                wide.bring_up(db, scope, owners)
                yield self._from_wide(db, wide, scope, owners, filter, at, limit, read)
                if len(wide.numbers) <= shelves.SHELF:
                    with self._lock:  # it has shrunk: the next question is answered from a shelf
                        self._wides.pop(scope, None)

    def _wide(self, scope: Scope) -> Wide:
        with self._lock:
            wide = self._wides.pop(scope, None) or Wide(self.slot, self.dim)
            self._wides[scope] = wide
            while len(self._wides) > _WIDES:
                self._wides.popitem(last=False)
            return wide

    def _from_shelf(
        self,
        db: sqlite3.Connection,
        shelf: Shelf,
        scope: Scope,
        owners: Sequence[int],
        filter: Filter,
        at: int,
        read: Read,
    ) -> Candidates | None:
        if not shelf.numbers:
            return None
        allowed = None
        if filter != _ALL:
            allowed = np.isin(np.array(shelf.numbers), passing(db, scope, owners, filter, at))
        return self._candidates(db, shelf, read, allowed)

    def _from_wide(
        self,
        db: sqlite3.Connection,
        wide: Wide,
        scope: Scope,
        owners: Sequence[int],
        filter: Filter,
        at: int,
        limit: int,
        read: Read,
    ) -> Candidates | None:
        mask = None
        if filter != _ALL or wide.may_expire(at):
            mask = np.isin(wide.numbers, passing(db, scope, owners, filter, at))
        numbers, statistics = wide.propose(db, owners, read(wide.speakers), mask, limit)
        found = shelves.read(db, scope, owners, self.slot, numbers=numbers)
        shelf = Shelf(self.slot, self.dim)
        shelf.fill([row for row in found if row[9] is None or row[9] > at], statistics, reach=2)
        if not shelf.numbers:
            return None
        allowed = None if mask is None else np.isin(np.array(shelf.numbers), wide.numbers[mask])
        # The pool numbers the speakers anew, so the question is read once more, with its vector kept.
        return self._candidates(db, shelf, read, allowed)

    def _apart(
        self,
        db: sqlite3.Connection,
        scope: Scope,
        owners: Sequence[int],
        filter: Filter,
        at: int,
        read: Read,
    ) -> Candidates | None:
        """The candidates of a question that what is held in memory cannot answer."""
        found = shelves.read(db, scope, owners, self.slot, superseded=filter.include_superseded)
        shelf = Shelf(self.slot, self.dim)
        shelf.fill([row for row in found if filter.include_expired or row[9] is None or row[9] > at])
        if not shelf.numbers:
            return None
        allowed = np.isin(np.array(shelf.numbers), passing(db, scope, owners, filter, at))
        return self._candidates(db, shelf, read, allowed)

    def _candidates(
        self, db: sqlite3.Connection, shelf: Shelf, read: Read, allowed: Array | None
    ) -> Candidates:
        shelf.tokens(db)

        def entries(places: Sequence[int]) -> list[Entry]:
            numbers = [shelf.numbers[place] for place in places]
            found: dict[int, bytes] = {}
            for some in rows.batches(numbers):
                marks = ",".join("?" * len(some))
                found.update(db.execute(f"SELECT no, body FROM entries WHERE no IN ({marks})", some))
            return [bodies.unpack(found[number]) for number in numbers]

        notices: tuple[str, ...] = ()
        if self.embedder is not None and models.slot_of(db, self.embedder) != self.slot:
            notices = (_GIVEN_AWAY,)
        return Candidates(shelf.pool, read(shelf.speakers()), allowed, shelf.written, entries, notices)


def passing(db: sqlite3.Connection, scope: Scope, owners: Sequence[int], filter: Filter, at: int) -> Array:
    """The numbers of the entries of a scope that a filter lets pass."""
    condition, parameters = rows.where(scope, owners)
    if not filter.include_superseded:
        condition += " AND live=1"
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
    tags = (*filter.tags, *filter.tags_any)
    for tag in filter.tags:
        condition += " AND instr(body, ?) > 0"
        parameters.append(msgspec.json.encode(tag))
    chosen = "no, body" if tags else "no"
    found = db.execute(f"SELECT {chosen} FROM entries WHERE {condition}", parameters)
    if not tags:
        return np.array([no for (no,) in found], np.int64)
    passes = rules.passing(filter, at)
    kept = [no for no, body in found if passes(bodies.unpack(body))]
    return np.array(kept, np.int64)
