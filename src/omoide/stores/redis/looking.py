"""How does an operation find what it asks for?"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.core.writing import WriteRequest
from omoide.stores import rules, standing
from omoide.stores.records import Link, Version
from omoide.stores.redis import packing
from omoide.stores.redis.connections import Ask, Key
from omoide.stores.redis.keys import SEPARATOR, about, dimension, joined, parted, texts
from omoide.stores.redis.known import Known, held, portions
from omoide.stores.reference_state import Kept, LinkKey, Receipt
from omoide.stores.reference_state import Key as Name

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
            premises = {ref for entry in given for ref in standing.premises(entry)}
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
                self._hold(key, packing.row(raw, id))
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
                    ["HMGET", key, *(packing.digits(one.no) + b"%d" % rev for one, rev in pairs)]
                    for pairs in portions(wanted)
                ]
            )
            found: dict[int, list[Version]] = {}
            for (one, _), raw in zip(wanted, (raw for values in told for raw in values), strict=True):
                if raw is not None:
                    found.setdefault(one.no, []).append(packing.past(raw, one.entry.id))
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
        part, field = self.part(given.namespace), rules.content_key(given)
        (raw,) = self.ask([["HGET", part.keys("same"), field]])
        part.check("same", field, raw)
        if raw is not None:
            self.among(given.namespace, raw[packing.STAMP :].decode().strip(SEPARATOR).split(SEPARATOR))
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
