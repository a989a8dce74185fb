"""Read set: what an operation fetched and must still hold.

It notes everything that it was told, so that a commit can make sure that it still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from omoide import clock
from omoide.core.entry import Entry, Scope
from omoide.core.requests import WriteRequest
from omoide.stores import semantics, truth
from omoide.stores.codec import Indexed
from omoide.stores.records import Access, Link, Version
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Ask, Connections, Key
from omoide.stores.redis.layout import (
    NOW,
    SEPARATOR,
    Arg,
    Keys,
    Row,
    about,
    dimension,
    dimensions,
    joined,
    parted,
    texts,
)
from omoide.stores.state import DocumentKey, Kept, LinkKey, Receipt, State, marked
from omoide.stores.state import Key as Name
from omoide.stores.truth import LIVE

# held: How does an entry look that was fetched from the server?


FRESH = 1 << 60
"""Numbers from here on are not given yet: the server adds what is above this to its last one."""


class Held(Kept):
    """An entry as it is; what it is found by, how often it was used and its past come when asked for."""

    def __init__(self, row: Row, fetch: Callable[[Held], Indexed], used: Callable[[Held], Access]) -> None:
        self.no = row.no
        self.written = row.written
        self.versions = [row.version]
        self.flips = row.flips
        self.model = row.model
        """Whose vector it has; nobody's if it has none."""
        self.given = row.given
        self.was: Entry | None = None if row.no >= FRESH else marked(row.version, stale=self.stale)
        """As it is kept, before what is about to change."""
        self.had = "" if self.was is None else row.model
        self.older: list[Version] = []
        """Versions that this commit makes old ones."""
        self.renewed = False
        """Whether what it is found by is written anew."""
        self._first = row.first
        self._fetch = fetch
        self._used = used
        self._found: Indexed | None = None

    @property
    def first(self) -> int:
        """The first revision that was kept here."""
        return self._first

    @property
    def is_complete(self) -> bool:
        """Whether all of its versions are here."""
        return self.versions[0].rev == self._first

    @property
    def found(self) -> Indexed:
        """What it is found by."""
        if self._found is None:
            self._found = self._fetch(self)
        return self._found

    @found.setter
    def found(self, value: Indexed) -> None:
        self._found = value

    @property
    def is_described(self) -> bool:
        """Whether it is known what it is found by."""
        return self._found is not None

    @property
    def access(self) -> Access:
        """How often it was used, and when last."""
        return self._used(self)

    @access.setter
    def access(self, value: Access) -> None:
        raise NotImplementedError  # uses are added up by the server

    @property
    def embedded(self) -> bool:
        """Whether it has a vector."""
        return bool(self.model)


# parts: What will a commit check and change in one namespace?


MANY = 1_000
"""Arguments of one command."""


def numbered(number: int) -> bytes | int:
    """A number for a command: as it is, or the place of the change that it will be the number of."""
    return number - FRESH if number >= FRESH else layout.digits(number)


class Part:
    """The share of one namespace in a commit."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.checks: dict[tuple[bytes, bytes], bytes] = {}
        """What was read: the beginning of each field's value, nothing where there was none."""
        self.notes: list[bytes] = []
        self.dirty: dict[str, Held] = {}
        self.watched: set[str] = set()
        """What `watch` says has changed."""
        self._frees: dict[tuple[str, bytes], list[Arg]] = {}
        self._commands: list[list[Any]] = []

    @property
    def changes(self) -> bool:
        """Whether there is anything to change."""
        return bool(self.notes or self.dirty or self._commands or self._frees)

    def check(self, name: str, field: bytes | str, value: bytes | None) -> None:
        """Make sure that a field is still as it was read; a first look counts."""
        field = field.encode() if isinstance(field, str) else field
        self.checks.setdefault((self.keys(name), field), (value or b"")[: layout.STAMP])

    def check_whole(self, name: str, field: str, value: bytes | None) -> None:
        """The same of a value without a stamp, all of it."""
        self.checks.setdefault((self.keys(name), field.encode()), value or b"")

    def do(self, verb: str, key: bytes, *args: Arg) -> None:
        """Change something."""
        self._commands.append([verb, key, *args])

    def free(self, verb: str, key: bytes, args: Iterable[Arg]) -> None:
        """Remove something, before anything else is done."""
        given = [*args]
        if given:
            self._frees.setdefault((verb, key), []).extend(given)

    def forget(self, key: bytes) -> None:
        """Remove a whole key."""
        self._frees["DEL", key] = []

    def watch(self, *names: str) -> None:
        """Tell those who read something together that it changed."""
        self.watched.update(names)

    def count(self, name: str, by: int) -> None:
        """Change a counter."""
        if by:
            self.do("HINCRBY", self.keys("meta"), name, str(by))

    # Entries

    def remove(self, one: Held, versions: Sequence[Version]) -> None:
        """Leave nothing of an entry."""
        keys, entry = self.keys, one.entry
        id = entry.id
        self.dirty.pop(id, None)
        if one.was is None:
            return  # it was never written down
        self.free("HDEL", keys("rows"), [id])
        self.free("HDEL", keys("found"), [id])
        head = layout.digits(one.no)
        self.free("HDEL", keys("past"), [head + b"%d" % old.rev for old in versions])
        for name in dimensions(entry):
            self.free("ZREM", keys("time", name), [head + id.encode()])
            self.free("ZREM", keys("all", name), [id])
        self.free("ZREM", keys("expiry"), [id])
        self.free("HDEL", keys("access"), [id])
        self.free("ZREM", keys("used"), [id])
        self.do("PART", keys("same"), semantics.content_key(one.was), id)
        self.do("ZADD", keys("gone"), [NOW], id)
        self.count("vectors", -bool(one.had))
        self.watch(*dimensions(entry))

    def sweep(self, one: Held) -> None:
        """Take an entry that expired long ago out of the lists that recall looks at."""
        entry = one.entry
        assert entry.expires_at is not None
        for name in dimensions(entry):
            self.do("ZREM", self.keys("all", name), entry.id)
        self.do("ZADD", self.keys("gone"), [NOW], entry.id)
        self.do("ZREM", self.keys("expiry"), entry.id)
        self.do("MOST", self.keys("meta"), "horizon", str(entry.expires_at))

    def _put(self, id: str, one: Held) -> None:
        keys, entry, was = self.keys, one.entry, one.was
        no = numbered(one.no)
        body = layout.put_row(one.first, one.versions[-1], one.model, one.given, one.flips)
        self.do("HSET", keys("rows"), id, [NOW, numbered(one.written), no, body])
        if one.renewed:
            self.do("HSET", keys("found"), id, layout.put_found(one.model, one.found))
            self.count("vectors", bool(one.model) - bool(one.had))
        for old in one.older:
            self.do("HSET", keys("past"), [no, b"%d" % old.rev], layout.put_past(old))
        if was is None or semantics.time_of(was) != semantics.time_of(entry):
            for name in dimensions(entry):
                self.do("ZADD", keys("time", name), str(semantics.time_of(entry)), [no, id.encode()])
        if was is None or semantics.content_key(was) != semantics.content_key(entry):
            if was is not None:
                self.do("PART", keys("same"), semantics.content_key(was), id)
            self.do("JOIN", keys("same"), semantics.content_key(entry), id)
        self._put_live(id, one)
        self.watch(*dimensions(entry))

    def _put_live(self, id: str, one: Held) -> None:
        keys, entry = self.keys, one.entry
        counts = truth.of(entry) == LIVE
        for name in dimensions(entry):
            if counts:
                self.do("ZADD", keys("all", name), [NOW], id)
            else:
                self.do("ZREM", keys("all", name), id)
        if not counts:
            self.do("ZADD", keys("gone"), [NOW], id)
        if counts and entry.expires_at is not None:
            self.do("ZADD", keys("expiry"), str(entry.expires_at), id)
        elif one.was is not None and one.was.expires_at is not None:
            self.do("ZREM", keys("expiry"), id)

    # The commit

    def built(self, place: Any) -> dict[str, Any]:
        """The part as the script takes it; `place` gives the number of a key."""
        for id, one in self.dirty.items():
            self._put(id, one)
        names = sorted(self.watched)
        for at in range(0, len(names), MANY):
            given: list[Arg] = []
            for name in names[at : at + MANY]:
                given += [name, [NOW]]
            self.do("HSET", self.keys("watch"), *given)
        keys = self.keys
        used = {keys("meta"), keys("log"), *(command[1] for command in (*self._frees, *self._commands))}
        frees = [
            [verb, place(key), *args[at : at + MANY]]
            for (verb, key), args in self._frees.items()
            for at in range(0, len(args) or 1, MANY)
        ]
        return {
            "meta": place(keys("meta")),
            "log": place(keys("log")),
            "gate": place(keys("gate")),
            "checks": [[place(key), field, value] for (key, field), value in self.checks.items()],
            "kinds": [[place(key), keys.kind(key)] for key in sorted(used)],
            "notes": self.notes,
            "frees": frees,
            "commands": [[verb, place(key), *args] for verb, key, *args in self._commands],
        }


# known: What does an operation know of the server?


T = TypeVar("T")


class Known(State):
    """What has been asked for, and where it was found."""

    def __init__(self, server: Connections, keys: Callable[[str], Keys], model: str) -> None:
        super().__init__()
        self.parts: dict[str, Part] = {}
        self.trips = 0
        self._server = server
        self._keys = keys
        self._model = model
        self._absent: set[Name] = set()
        self._removed: set[Name] = set()
        self._rested: dict[Name, dict[str, bool]] = {}
        self._invalid: dict[Name, int] = {}
        self._unburied: set[Name] = set()
        self._unlinked: set[LinkKey] = set()
        self._asked: set[Name] = set()
        """The idempotency keys that were looked for."""
        self._models: dict[str, tuple[str, bytes | None]] = {}
        self._oldest: dict[str, list[tuple[str, str, float]]] = {}
        self._quoted: dict[Name, list[str]] = {}
        self._answered: dict[Name, list[str]] = {}
        self._dropped: set[DocumentKey] = set()

    def part(self, namespace: str) -> Part:
        """The share of a namespace."""
        found = self.parts.get(namespace)
        if found is None:
            found = self.parts[namespace] = Part(self._keys(namespace))
        return found

    def ask(self, asks: Sequence[Ask]) -> list[Any]:
        """The answers of the server, all of one moment."""
        if not asks:
            return []
        self.trips += 1
        return self._server.read(asks)

    def _hold(self, key: Name, row: Row) -> Held:
        one = Held(row, self._found_of, self._access_of)
        self.kept[key] = one
        return one

    def _new(self, version: Version, found: Indexed, seq: int) -> Kept:
        model = self._model if found.pooled is not None else ""
        one = Held(
            Row(seq, seq, version.rev, version, model, found.given, []), self._found_of, self._access_of
        )
        one.found, one.renewed = found, True
        return one

    def _found_of(self, one: Held) -> Indexed:
        entry = one.entry
        (raw,) = self.ask([["HGET", self._keys(entry.namespace)("found"), entry.id]])
        return layout.found(raw)[1]

    def _access_of(self, one: Held) -> Access:
        entry = one.entry
        keys = self._keys(entry.namespace)
        count, last = self.ask([["HGET", keys("access"), entry.id], ["ZSCORE", keys("used"), entry.id]])
        return Access(count=int(count or 0), last=None if last is None else int(float(last)))

    # What was told

    def _know_rows(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for id, raw in zip(ids, values, strict=True):
            key = (namespace, id)
            part.check("rows", id, raw)
            if key in self._removed:
                continue
            if raw is None:
                self._absent.add(key)
            elif key not in self.kept:
                self._hold(key, layout.row(raw, id))

    def _know_found(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        for id, raw in zip(ids, values, strict=True):
            one = self.kept.get((namespace, id))
            if one is not None and not held(one).is_described:
                one.found = layout.found(raw)[1]

    def _know_stones(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for id, raw in zip(ids, values, strict=True):
            part.check("stones", id, raw)
            if raw is None:
                self._unburied.add((namespace, id))
            else:
                self.stones[namespace, id] = layout.stones(raw, id, namespace)

    def _know_invalid(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for id, raw in zip(ids, values, strict=True):
            part.check("invalid", id, raw)
            self._invalid[namespace, id] = int(raw or 0)

    def _know_links(self, namespace: str, fields: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for field, raw in zip(fields, values, strict=True):
            source, target, relation = parted(field, 3)
            key = (namespace, source, relation, target)
            part.check("links", field, raw)
            if raw is not None and key not in self._unlinked:
                self.links.setdefault(
                    key, Link(source=source, relation=relation, target=target, created_at=int(raw))
                )

    def _know_receipts(self, namespace: str, names: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.part(namespace)
        for name, raw in zip(names, values, strict=True):
            part.check("receipts", name, raw)
            self._asked.add((namespace, name))
            if raw is not None:
                self.receipts[namespace, name] = layout.receipt(raw)

    def _know_model(self, namespace: str, values: Sequence[bytes | None]) -> None:
        model, vectors = values
        self._models[namespace] = ((model or b"").decode(), vectors)


def held(one: Kept) -> Held:
    """An entry of this store."""
    assert isinstance(one, Held)
    return one


def portions(some: Sequence[T], size: int | None = None) -> Iterator[Sequence[T]]:
    """In portions that fit into one command."""
    step = size or MANY
    return (some[at : at + step] for at in range(0, len(some), step))


# looking: How does an operation find what it asks for?


SWEPT = 16
"""Entries that one write takes out of the lists that recall looks at, once they expired long ago."""
SWEPT_AFTER_MS = 3_600_000


class Looking(Known):
    """The entries that an operation has asked for."""

    def foresee(self, asked: Sequence[WriteRequest]) -> None:
        """Fetch at once what these writes need, if they are not many."""
        for namespace in {request.entry.namespace for request in asked}:
            some = [request for request in asked if request.entry.namespace == namespace]
            given = [request.entry for request in some]
            names = {entry.id for entry in given}
            names.update(request.supersedes for request in some if request.supersedes is not None)
            premises = {ref for entry in given for ref in truth.premises(entry)}
            self._fetch(namespace, [*names], [*(premises - names)], some)

    def _fetch(
        self, namespace: str, names: list[str], premises: list[str], asked: Sequence[WriteRequest]
    ) -> None:
        part = self.part(namespace)
        keys = part.keys
        idempotency = [one.idempotency_key for one in asked if one.idempotency_key is not None]
        asks: list[Ask] = [
            ["HMGET", keys("meta"), "model", "vectors"],
            [
                "ZRANGEBYSCORE",
                keys("expiry"),
                "-inf",
                str(clock.now() - SWEPT_AFTER_MS),
                "LIMIT",
                "0",
                str(SWEPT),
            ],
        ]
        if idempotency:
            asks.append(["ZRANGE", keys("kept"), "0", "7", "WITHSCORES"])
        fixed = len(asks)
        everything = names + premises
        for some in portions(everything):
            asks += [["HMGET", keys(name), *some] for name in ("rows", "stones", "invalid")]
        asks += [["HMGET", keys("found"), *some] for some in portions(names)]
        asks += [["HMGET", keys("receipts"), *some] for some in portions(idempotency)]
        told = iter(self.ask(asks))
        self._know_model(namespace, next(told))
        expired = texts(next(told))
        if fixed > 2:
            pairs = next(told)
            for name, at in zip(pairs[::2], pairs[1::2], strict=True):
                key, of = parted(name, 2)
                self._oldest.setdefault(namespace, []).append((key, of, float(at)))
        for some in portions(everything):
            self._know_rows(namespace, some, next(told))
            self._know_stones(namespace, some, next(told))
            self._know_invalid(namespace, some, next(told))
        for some in portions(names):
            self._know_found(namespace, some, next(told))
        for some in portions(idempotency):
            self._know_receipts(namespace, some, next(told))
        for id, one in self.among(namespace, expired).items():
            if id not in names:
                part.sweep(held(one))

    def find(self, namespace: str, id: str) -> Kept | None:
        """An entry, if there is one."""
        return self.among(namespace, [id]).get(id)

    def among(self, namespace: str, ids: Collection[str]) -> dict[str, Kept]:
        """Those of these that exist."""
        missing = [
            id for id in ids if (namespace, id) not in self.kept and (namespace, id) not in self._absent
        ]
        rows = self._keys(namespace)("rows")
        told = self.ask([["HMGET", rows, *some] for some in portions(missing)])
        for some, values in zip(portions(missing), told, strict=True):
            self._know_rows(namespace, some, values)
        return super().among(namespace, ids)

    def inside(self, scope: Scope) -> list[Kept]:
        """What a scope holds, in the order of its first versions."""
        part, name = self.part(scope.namespace), dimension(scope)
        keys = part.keys
        told = self.ask([["INSIDE", keys("time", name), Key(keys("rows"))], ["HGET", keys("watch"), name]])
        (ids, values), stamp = told
        part.check("watch", name, stamp)
        for id, raw in zip(texts(ids), values, strict=True):
            key = (scope.namespace, id)
            if key not in self.kept and key not in self._removed and raw is not None:
                self._hold(key, layout.row(raw, id))
        return sorted(super().inside(scope), key=lambda one: one.no)

    def complete(self, some: Sequence[Kept]) -> Sequence[Kept]:
        """The same entries, with all of their versions."""
        short = [held(one) for one in some if not held(one).is_complete]
        for namespace in {one.entry.namespace for one in short}:
            mine = [one for one in short if one.entry.namespace == namespace]
            wanted = [(one, rev) for one in mine for rev in range(one.first, one.versions[0].rev)]
            key = self._keys(namespace)("past")
            told = self.ask(
                [
                    ["HMGET", key, *(layout.digits(one.no) + b"%d" % rev for one, rev in pairs)]
                    for pairs in portions(wanted)
                ]
            )
            found: dict[int, list[Version]] = {}
            for (one, _), raw in zip(wanted, (raw for values in told for raw in values), strict=True):
                if raw is not None:
                    found.setdefault(one.no, []).append(layout.past(raw, one.entry.id))
            for one in mine:
                one.versions[:0] = found.get(one.no, [])
        return some

    def describe(self, some: Sequence[Kept]) -> Sequence[Kept]:
        """The same entries, with what they are found by."""
        short = [held(one) for one in some if not held(one).is_described]
        for namespace in {one.entry.namespace for one in short}:
            names = [one.entry.id for one in short if one.entry.namespace == namespace]
            key = self._keys(namespace)("found")
            told = self.ask([["HMGET", key, *few] for few in portions(names)])
            for few, values in zip(portions(names), told, strict=True):
                self._know_found(namespace, few, values)
        return some

    def twins(self, given: Entry) -> list[Kept]:
        """What may say already what another entry would."""
        part, field = self.part(given.namespace), semantics.content_key(given)
        (raw,) = self.ask([["HGET", part.keys("same"), field]])
        part.check("same", field, raw)
        if raw is not None:
            self.among(given.namespace, raw[layout.STAMP :].decode().strip(SEPARATOR).split(SEPARATOR))
        return sorted(super().twins(given), key=lambda one: one.no)

    def rests_on(self, namespace: str, ids: Collection[str]) -> set[str]:
        """What now rests on any of these."""
        part = self.part(namespace)
        missing = [id for id in ids if (namespace, id) not in self.resting]
        asks: list[Ask] = [["ZRANGEBYSCORE", part.keys("on", id), "1", "1"] for id in missing]
        asks += [["HMGET", part.keys("watch"), *map(about, some)] for some in portions(missing)]
        told = self.ask(asks)
        stamps = [stamp for values in told[len(missing) :] for stamp in values]
        for id, found, stamp in zip(missing, told, stamps, strict=False):
            part.check("watch", about(id), stamp)
            now = {*texts(found)}
            for by, present in self._rested.get((namespace, id), {}).items():
                (now.add if present else now.discard)(by)
            self.resting[namespace, id] = now
        return super().rests_on(namespace, ids)

    def invalidated(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        missing = [id for id in ids if (namespace, id) not in self._invalid]
        key = self._keys(namespace)("invalid")
        told = self.ask([["HMGET", key, *some] for some in portions(missing)])
        for some, values in zip(portions(missing), told, strict=True):
            self._know_invalid(namespace, some, values)
        return {id for id in ids if self._invalid[namespace, id] > 0}

    def erased(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these of which there is a tombstone."""
        missing = [
            id for id in ids if (namespace, id) not in self.stones and (namespace, id) not in self._unburied
        ]
        key = self._keys(namespace)("stones")
        told = self.ask([["HMGET", key, *some] for some in portions(missing)])
        for some, values in zip(portions(missing), told, strict=True):
            self._know_stones(namespace, some, values)
        return super().erased(namespace, ids)

    def buried(self, id: str, scope: Scope) -> list[Version]:
        """The tombstones of an id that a scope holds."""
        self.erased(scope.namespace, [id])
        return super().buried(id, scope)

    def quoting(self, namespace: str, id: str) -> list[str]:
        """The entries of which any version rests on this one."""
        self._look_around(namespace, [id])
        found = self._quoted[namespace, id]
        return [other for other in found if (namespace, other) not in self._removed]

    def links_at(self, namespace: str, id: str) -> dict[LinkKey, Link]:
        """The links from and to an entry."""
        self._look_around(namespace, [id])
        return super().links_at(namespace, id)

    def leaving(self, some: Sequence[Kept]) -> Sequence[Kept]:
        """The same entries, which are about to be removed, with all of their versions."""
        for namespace in {one.entry.namespace for one in some}:
            ids = [one.entry.id for one in some if one.entry.namespace == namespace]
            self._look_around(namespace, ids)
            self.erased(namespace, ids)
        return self.complete(some)

    def _look_around(self, namespace: str, ids: Sequence[str]) -> None:
        """Fetch what there is about some entries beside themselves."""
        part, missing = self.part(namespace), [id for id in ids if (namespace, id) not in self._quoted]
        keys = part.keys
        for some in portions(missing):
            asks: list[Ask] = [["HMGET", keys("watch"), *map(about, some)]]
            for id in some:
                asks += [["SMEMBERS", keys("ends", id)], ["ZRANGE", keys("on", id), "0", "-1"]]
                asks += [["SMEMBERS", keys("keys", id)]]
            stamps, *told = self.ask(asks)
            fields: dict[bytes, None] = {}
            for at, (id, stamp) in enumerate(zip(some, stamps, strict=True)):
                part.check("watch", about(id), stamp)
                ends, quoting, receipts = told[3 * at : 3 * at + 3]
                fields.update(dict.fromkeys(ends))
                self._quoted[namespace, id] = texts(quoting)
                self._answered[namespace, id] = texts(receipts)
            links = [*fields]
            found = self.ask([["HMGET", keys("links"), *few] for few in portions(links)])
            for few, values in zip(portions(links), found, strict=True):
                self._know_links(namespace, few, values)

    def links_from(self, namespace: str, ids: Collection[str]) -> int:
        """How many links begin at these."""
        (fields,) = self.ask([["HKEYS", self._keys(namespace)("links")]])
        return sum(parted(field, 3)[0] in ids for field in fields)

    def link_of(self, key: LinkKey) -> Link | None:
        """A link, if it is kept."""
        if key not in self.links and key not in self._unlinked:
            namespace, source, relation, target = key
            field = joined(source, target, relation)
            (raw,) = self.ask([["HGET", self._keys(namespace)("links"), field]])
            self._know_links(namespace, [field], [raw])
        return super().link_of(key)

    def receipt_of(self, name: Name) -> Receipt | None:
        """What was answered under an idempotency key."""
        if name not in self._asked:
            (raw,) = self.ask([["HGET", self._keys(name[0])("receipts"), name[1]]])
            self._know_receipts(name[0], [name[1]], [raw])
        return super().receipt_of(name)
