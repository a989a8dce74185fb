"""What changed, and what did it become?"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from omoide.core.entry import Entry
from omoide.core.value import copied, force
from omoide.stores.records import Access, Change, Feed, Link
from omoide.stores.sql import rows
from omoide.stores.sql.database import Database

_LINK = Link(source="-", relation="-", target="-", created_at=0)


def changes(db: Database, namespace: str, after: int, limit: int) -> list[Change]:
    """The changes after a sequence number, in the order of their commits."""
    found = db.execute(
        "SELECT seq, id, op, rev, at FROM log WHERE namespace = ? AND seq > ? ORDER BY seq LIMIT ?",
        (namespace, after, limit),
    )
    return [
        Change(seq=seq, namespace=namespace, id=id, op=op, rev=rev, at=at) for seq, id, op, rev, at in found
    ]


class _Told:
    """What the log says of one id: the row it has now, whether it was erased, and its first revision."""

    __slots__ = ("erased", "no", "written")

    def __init__(self, no: int) -> None:
        self.no = no
        self.erased = False
        self.written: int | None = None


def changed(db: Database, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
    """What changed after a sequence number, as it is at this moment."""
    life, last = rows.state(db, namespace)
    until, more = _portion(db, namespace, after, limit)
    whole = after == 0 and more and _is_small(db, namespace, limit)
    if whole or not more:
        until, more = max(last, after), False
    told = _told(db, namespace, after, until)
    found = _rows(db, namespace, told)
    access = _figures(db, [told[id].no for id in found]) if found else {}
    if used_since is not None:
        access.update(_used(db, namespace, used_since))
    born = {id for id, (_, first) in found.items() if told[id].written == first}
    return Feed(
        life=life,
        seq=until,
        since=_mark(db, after),
        mark=_mark(db, until),
        more=more,
        entries=tuple(entry for entry, _ in found.values()),
        links=tuple(_links(db, namespace, found)),
        access=access,
        gone=tuple(id for id, one in told.items() if one.erased),
        fresh=frozenset(born - _buried(db, namespace, born)),
    )


def _told(db: Database, namespace: str, after: int, until: int) -> dict[str, _Told]:
    """What the log says between two numbers, by id, in the order of the last changes.

    Read row by row, and put together here: one pass over the log costs less than to group and join it.
    """
    found: dict[str, _Told] = {}
    for id, no, op, rev in db.execute(
        "SELECT id, no, op, rev FROM log WHERE namespace = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (namespace, after, until),
    ):
        one = found.pop(id, None) or _Told(no)
        found[id] = one
        one.no = no
        if op == "erase":
            one.erased = True
        elif op == "write" and (one.written is None or rev < one.written):
            one.written = rev
    return found


def _rows(db: Database, namespace: str, told: dict[str, _Told]) -> dict[str, tuple[Entry, int]]:
    """The entries that are told of and still there, each with the first revision kept here."""
    kept: dict[str, tuple[Entry, int]] = {}
    for some in rows.batches(one.no for one in told.values()):
        marks = ",".join("?" * len(some))
        for id, body, live, first in db.execute(
            f"SELECT id, body, live, first FROM entries WHERE no IN ({marks}) AND namespace = ?",
            (*some, namespace),
        ):
            if id in told:  # numbers are used again
                kept[id] = rows.entry_of(body, live), first
    for id in told.keys() - kept.keys():  # erased, and perhaps written anew since: under another number
        row = db.execute(
            "SELECT no, body, live, first FROM entries WHERE namespace = ? AND id = ?", (namespace, id)
        ).fetchone()
        if row is not None:
            told[id].no = row[0]
            kept[id] = rows.entry_of(row[1], row[2]), row[3]
    return {id: kept[id] for id in told if id in kept}


def _figures(db: Database, numbers: list[int]) -> dict[str, Access]:
    found: dict[str, Access] = {}
    for some in rows.batches(numbers):
        marks = ",".join("?" * len(some))
        for id, count, last in db.execute(
            "SELECT e.id, a.count, a.last FROM access a JOIN entries e ON e.no = a.no"
            f" WHERE a.no IN ({marks})",
            some,
        ):
            found[id] = rows.access_of(count, last)
    return found


def _buried(db: Database, namespace: str, ids: set[str]) -> set[str]:
    """Those of some ids under which something else was erased before."""
    one = db.execute("SELECT 1 FROM tombstones WHERE namespace = ? LIMIT 1", (namespace,)).fetchone()
    if one is None:
        return set()
    return {
        id
        for id in ids
        if db.execute(
            "SELECT 1 FROM tombstones WHERE namespace = ? AND id = ? LIMIT 1", (namespace, id)
        ).fetchone()
    }


def _mark(db: Database, seq: int) -> str:
    row = db.execute("SELECT namespace, id, op, rev, at FROM log WHERE seq = ?", (seq,)).fetchone()
    return "" if row is None else blake2b(msgspec.json.encode(row), digest_size=8).hexdigest()


def _portion(db: Database, namespace: str, after: int, limit: int) -> tuple[int, bool]:
    """The number that some changes reach, and whether there are more."""
    found = db.execute(
        "SELECT seq FROM log WHERE namespace = ? AND seq > ? ORDER BY seq LIMIT 2 OFFSET ?",
        (namespace, after, limit - 1),
    ).fetchall()
    return (found[0][0] if found else after), len(found) == 2


def _is_small(db: Database, namespace: str, limit: int) -> bool:
    """Whether everything there is fits into one portion, however often it changed."""
    (count,) = db.execute(
        "SELECT (SELECT count(*) FROM (SELECT 1 FROM entries WHERE namespace=? LIMIT ?) AS kept)"
        " + (SELECT count(*) FROM (SELECT 1 FROM tombstones WHERE namespace=? LIMIT ?) AS gone)",
        (namespace, limit + 1, namespace, limit + 1),
    ).fetchone()
    return int(count) <= limit


def _links(db: Database, namespace: str, ids: Iterable[str]) -> Iterable[Link]:
    if db.execute("SELECT 1 FROM links WHERE namespace = ? LIMIT 1", (namespace,)).fetchone() is None:
        return
    for id in sorted(ids):
        for source, relation, target, at in db.execute(
            "SELECT source, relation, target, at FROM links WHERE namespace = ? AND source = ?"
            " ORDER BY relation, target",
            (namespace, id),
        ):
            link = copied(_LINK)  # checked when it was kept
            for name, value in (
                ("source", source),
                ("relation", relation),
                ("target", target),
                ("created_at", at),
            ):
                force(link, name, value)
            yield link


def _used(db: Database, namespace: str, since: int) -> dict[str, Access]:
    found = db.execute(
        f"SELECT e.id, a.count, a.last FROM access a {db.words.as_given} JOIN entries e ON e.no = a.no"
        " WHERE a.last >= ? AND e.namespace = ?",
        (since, namespace),
    )
    return {id: rows.access_of(count, last) for id, count, last in found}
