"""What changed, and what did it become?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import msgspec

from omoide.stores.records import Access, Change, Feed, Link
from omoide.stores.redis import packing
from omoide.stores.redis.connections import Ask, Connections
from omoide.stores.redis.keys import Keys, parted
from omoide.stores.redis.known import portions
from omoide.stores.redis.units import Unit

Line = tuple[bytes, list[bytes]]


def changes(server: Connections, keys: Keys, namespace: str, after: int, limit: int) -> list[Change]:
    """The changes after a sequence number, in the order of their commits."""
    (lines,) = server.read([_since(keys, after, limit)])
    return [_change(namespace, line) for line in lines]


def changed(unit: Unit, namespace: str, after: int, limit: int, used_since: int | None, life: str) -> Feed:
    """What changed after a sequence number, and what it became since."""
    keys = unit.part(namespace).keys
    meta, here, size, lines = unit.ask(
        [
            ["HMGET", keys("meta"), "seq", "stones"],
            _at(keys, after),
            ["HLEN", keys("rows")],
            _since(keys, after, limit + 1),
        ]
    )
    more = len(lines) > limit
    if more and after == 0 and size + int(meta[1] or 0) <= limit:
        # What is asked for from the start and fits is told at once, however often it changed.
        meta, lines = unit.ask([["HMGET", keys("meta"), "seq", "stones"], _since(keys, after, None)])
        more = False
    told = [_change(namespace, line) for line in (lines[:limit] if more else lines)]
    latest = dict.fromkeys(change.id for change in reversed(told))
    ids = [*reversed(latest)]
    held = unit.among(namespace, ids)
    written = {(change.id, change.rev) for change in told if change.op == "write"}
    born = {id for id, one in held.items() if (id, one.first) in written}
    seq = told[-1].seq if more else int(meta[0] or 0)
    (there,) = unit.ask([_at(keys, seq)])
    return Feed(
        life=life,
        seq=seq,
        since=_mark(namespace, here),
        mark=_mark(namespace, there),
        more=more,
        entries=tuple(held[id].entry for id in ids if id in held),
        links=tuple(_links(unit, namespace, [id for id in ids if id in held])),
        access=_used(unit, namespace, held, used_since),
        gone=tuple(dict.fromkeys(change.id for change in told if change.op == "erase")),
        fresh=frozenset(born - unit.erased(namespace, born)),
    )


def _since(keys: Keys, after: int, limit: int | None) -> Ask:
    count = [] if limit is None else ["COUNT", str(min(limit, 1 << 40))]
    return ["XRANGE", keys("log"), f"({after}-0", "+", *count]


def _at(keys: Keys, seq: int) -> Ask:
    return ["XRANGE", keys("log"), f"{seq}-0", f"{seq}-0"]


def _change(namespace: str, line: Line) -> Change:
    number, fields = line
    id, op, rev, at = packing.noted(fields[1])
    return Change(seq=int(number.split(b"-")[0]), namespace=namespace, id=id, op=op, rev=rev, at=at)


def _mark(namespace: str, lines: Sequence[Line]) -> str:
    if not lines:
        return ""
    told = [namespace, *packing.noted(lines[0][1][1])]
    return blake2b(msgspec.json.encode(told), digest_size=8).hexdigest()


def _links(unit: Unit, namespace: str, ids: Sequence[str]) -> list[Link]:
    """All links that begin at some entries."""
    keys = unit.part(namespace).keys
    (count,) = unit.ask([["HLEN", keys("links")]])
    if not count or not ids:
        return []
    fields: set[bytes] = set()
    for some in portions(ids):
        for id, ends in zip(some, unit.ask([["SMEMBERS", keys("ends", id)] for id in some]), strict=True):
            fields.update(field for field in ends if parted(field, 3)[0] == id)
    found = []
    for few in portions(sorted(fields)):
        (values,) = unit.ask([["HMGET", keys("links"), *few]])
        for field, raw in zip(few, values, strict=True):
            if raw is not None:
                source, target, relation = parted(field, 3)
                found.append(Link(source=source, relation=relation, target=target, created_at=int(raw)))
    return sorted(found, key=lambda link: (link.source, link.relation, link.target))


def _used(unit: Unit, namespace: str, held: Mapping[str, Any], since: int | None) -> dict[str, Access]:
    """How often entries were used: those that changed, and those used since a moment."""
    keys = unit.part(namespace).keys
    names = dict.fromkeys(held)
    if since is not None:
        (recent,) = unit.ask([["ZRANGEBYSCORE", keys("used"), str(since), "+inf"]])
        names.update(dict.fromkeys(name.decode() for name in recent))
    found: dict[str, Access] = {}
    for some in portions([*names]):
        counts, lasts = unit.ask([["HMGET", keys("access"), *some], ["ZMSCORE", keys("used"), *some]])
        for id, count, last in zip(some, counts, lasts, strict=True):
            if count is not None:
                found[id] = Access(count=int(count), last=None if last is None else int(float(last)))
    return found
