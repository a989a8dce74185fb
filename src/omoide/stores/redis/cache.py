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
from omoide.core.entry import Entry, Scope
from omoide.core.requests import Filter
from omoide.embedders import Embedder
from omoide.retrieval.pool import Array
from omoide.stores import semantics
from omoide.stores.pool import TOKEN_DIM
from omoide.stores.recall import Candidates, Read
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Ask, Key
from omoide.stores.redis.layout import dimension, texts
from omoide.stores.redis.snapshot import portions
from omoide.stores.redis.transaction import Work
from omoide.stores.sql.cache import Shelf

MANY = 10_000
"""Entries of a scope up to which this store is meant to be used."""

HELD = 200_000
"""Entries that all shelves of a store hold together, at most."""

PLACES = 4_096
_AT_ONCE = 1_000  # entries that the server hands over in one step

_ALL = Filter()
_GIVEN_AWAY = "the store holds another embedder's vectors: open it again to recall by meaning"

Apart = Callable[[Scope, Filter, int, int, Read], AbstractContextManager[Candidates | None]]


class ScopeShelf(Shelf):
    """A scope as columns, with its entries."""

    def __init__(self, dim: int) -> None:
        super().__init__(0, dim)
        self.epoch = -1
        self.horizon = -1
        self.given_away = False
        self.entries: dict[int, Entry] = {}
        self._numbers: dict[str, int] = {}
        self._tokens: dict[int, bytes] = {}
        self.pool.tokens = None

    def hold(self, id: str, entry: Entry, no: int, tokens: bytes | None) -> None:
        """Keep an entry beside its columns."""
        self.entries[no], self._numbers[id] = entry, no
        if tokens is not None:
            self._tokens[no] = tokens

    def let_go(self, id: str) -> None:
        """Hold an entry no more, if it is here."""
        no = self._numbers.pop(id, None)
        if no is not None:
            self.drop(no)
            self.entries.pop(no, None)
            self._tokens.pop(no, None)

    def read_tokens(self) -> None:
        """Let the pool find token vectors here, if there are any."""
        empty = np.zeros((0, TOKEN_DIM), np.int8)

        def read(places: Array) -> list[Array]:
            blobs = [self._tokens.get(self.numbers[place]) for place in places]
            return [
                empty if blob is None else np.frombuffer(blob, np.int8).reshape(-1, TOKEN_DIM)
                for blob in blobs
            ]

        self.pool.tokens = read if self._tokens else None


class Place:
    """What is held of one scope, and the lock for it."""

    def __init__(self) -> None:
        self.lock = RLock()
        self.shelf: ScopeShelf | None = None
        self.speakers: Sequence[str] = ()


class RedisSource:
    """The candidates of a server, with what is held of it in memory."""

    def __init__(self, work: Work, embedder: Embedder | None, apart: Apart) -> None:
        self._work = work
        self._model = work.model
        self._dim = 0 if embedder is None else embedder.dim
        self._apart = apart
        self._lock = Lock()
        self._places: OrderedDict[Scope, Place] = OrderedDict()

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
        with place.lock:
            shelf = None
            if not (filter.include_superseded or filter.include_stale or filter.include_expired):
                shelf = self._up_to_date(place, scope)
                now = clock.now()
                other = at < max(shelf.lost_until, shelf.horizon)
                if other or (at > now and shelf.expires_between(now, at)):
                    shelf = None  # another moment than the one the shelf is kept for
                else:
                    shelf.expire(min(at, now))
                    place.speakers = shelf.speakers()
            if shelf is None:
                with self._apart(scope, filter, at, limit, read) as found:
                    yield found
            else:
                yield _candidates(shelf, filter, at, read)

    def _place(self, scope: Scope) -> Place:
        with self._lock:
            place = self._places.pop(scope, None)
            if place is None:
                place = Place()
                self._trim()
            self._places[scope] = place
            return place

    def _trim(self) -> None:
        """Let go of the places used longest ago, once all of them hold too much."""
        held = sum(one.shelf.pool.size for one in self._places.values() if one.shelf)
        while self._places and (held > HELD or len(self._places) >= PLACES):
            _, old = self._places.popitem(last=False)
            held -= old.shelf.pool.size if old.shelf else 0

    def _up_to_date(self, place: Place, scope: Scope) -> ScopeShelf:
        """The shelf of a scope, as the server has it now."""
        while True:
            shelf, epoch = place.shelf, self._work.server.epoch
            if shelf is None or shelf.epoch != epoch or shelf.is_sparse():
                shelf = place.shelf = ScopeShelf(self._dim)
                shelf.epoch = epoch
            done = self._brought_up(shelf, scope)
            if epoch != self._work.server.epoch:
                continue  # it was perhaps another server that answered
            if done:
                return shelf
            if done is None:
                place.shelf = None  # begin anew

    def _brought_up(self, shelf: ScopeShelf, scope: Scope) -> bool | None:
        """Apply what changed; False if more has to be fetched, None if the shelf is of no use."""
        keys, name, cold = self._work.keys(scope.namespace), dimension(scope), shelf.life is None
        rows, found = keys("rows"), keys("found")
        since = "-1" if cold else str(shelf.covers)
        asks: list[Ask] = [
            ["HMGET", keys("meta"), "tick", "life", "horizon", "model", "vectors"],
            ["SINCE", keys("all", name), Key(rows), Key(found), since, _AT_ONCE],
        ]
        if not cold:
            asks.append(["ZRANGEBYSCORE", keys("gone"), f"({since}", "+inf"])
        (tick, life, horizon, model, vectors), changed, *gone = self._work.server.read(asks)
        now = int(tick or 0)
        if not cold and (shelf.life != (life or b"").decode() or now < shelf.covers):
            return None
        for id in texts(gone[0]) if gone else ():
            shelf.let_go(id)
        ids = texts(changed[0])
        ours = (model or b"").decode() in ("", self._model)
        shelf.given_away = bool(self._dim) and not ours and int(vectors or 0) > 0
        values = changed[1:] or self._fetched(rows, found, ids)
        if not self._apply(shelf, scope, ids, *values):
            return None
        shelf.life, shelf.covers, shelf.horizon = (life or b"").decode(), now, int(horizon or -1)
        return len(changed) > 1

    def _fetched(self, rows: bytes, found: bytes, ids: Sequence[str]) -> tuple[list[Any], list[Any]]:
        """What many entries are, a portion at a time; what changes meanwhile comes with the next step."""
        pairs = [
            self._work.server.read([["HMGET", rows, *some], ["HMGET", found, *some]])
            for some in portions(ids)
        ]
        return [raw for raws, _ in pairs for raw in raws], [raw for _, raws in pairs for raw in raws]

    def _apply(
        self, shelf: ScopeShelf, scope: Scope, ids: Sequence[str], raws: list[Any], founds: list[Any]
    ) -> bool:
        fresh = []
        for id, raw, blob in zip(ids, raws, founds, strict=True):
            shelf.let_go(id)
            if raw is None or blob is None:
                continue
            row = layout.row(raw, id)
            entry = row.version.entry
            # What went out since it was listed comes again with what is gone.
            if entry is None or not scope.holds(entry):
                continue
            model, said = layout.found(blob)
            mine = bool(model) and model == self._model
            shelf.hold(id, entry, row.no, said.tokens if mine else None)
            fresh.append(_columns(entry, row, said.features, said.pooled if mine else None))
        fresh.sort(key=lambda found: found[11])
        if fresh and shelf.written and fresh[0][11] < shelf.written[-1]:
            return False  # something came back that belongs before others
        if shelf.written:
            for found in fresh:
                shelf.put(found)
        else:
            shelf.fill(fresh)
        shelf.read_tokens()
        return True


def _columns(entry: Entry, row: layout.Row, features: bytes, pooled: bytes | None) -> tuple[Any, ...]:
    said = entry.message
    thread, seq, role, speaker = (None, 0, None, None)
    if said is not None:
        thread, seq, role, speaker = said.thread, said.seq, said.role, said.speaker
    return (
        row.no, features, semantics.time_of(entry), thread, seq, role, speaker, entry.confidence,
        entry.importance, entry.expires_at, pooled, row.written,
    )  # fmt: skip


def _candidates(shelf: ScopeShelf, filter: Filter, at: int, read: Read) -> Candidates | None:
    if not shelf.numbers:
        return None
    allowed = None
    if filter != _ALL:
        passes = semantics.passing(filter, at)
        held = (shelf.entries.get(no) for no in shelf.numbers)
        allowed = np.array([entry is not None and passes(entry) for entry in held], np.bool_)
    notices = []
    if shelf.given_away:
        notices.append(_GIVEN_AWAY)
    if len(shelf.entries) > MANY:
        notices.append(
            f"this scope holds {len(shelf.entries)} memories, and redis:// is made for {MANY}: "
            "use postgresql:// for more"
        )
    return Candidates(
        shelf.pool,
        read(shelf.speakers()),
        allowed,
        shelf.written,
        lambda places: [shelf.entries[shelf.numbers[place]] for place in places],
        tuple(notices),
    )
