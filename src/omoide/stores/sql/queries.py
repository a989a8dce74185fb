"""Get, list, page, history, change feed.

Each type of each owner is an ordered stretch of an index. A page merges the heads of the stretches it needs,
so that it costs the same in a store of a thousand entries and of a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import merge
from itertools import product
from typing import Any

import msgspec

from omoide.core.entry import MEMORY_TYPES, ROOT, Entry, Scope
from omoide.core.value import copied, force
from omoide.errors import Erased
from omoide.stores import codec, records, semantics
from omoide.stores import truth as standing
from omoide.stores.records import Access, Change, Feed, Link, Page, Query, Version
from omoide.stores.sql import rows, truth
from omoide.stores.sql.database import Database
from omoide.stores.truth import Flip

# feeding: What changed, and what did it become?


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


# querying: Which entries fit, newest first?


_LAST = (1 << 63) - 1
_PORTION = 4_096
_ALL_TYPES = (ROOT, *MEMORY_TYPES)

Placed = tuple[int, int, bytes, int]


def query(db: Database, asked: Query) -> Page:
    """A page of the entries that fit."""
    if asked.as_of is not None:
        return _as_of(db, asked, asked.as_of)
    place = (_LAST, _LAST) if asked.cursor is None else records.read(asked.cursor)
    filter = asked.filter
    # The database has looked at types, times, expiry and what is forgotten already.
    rest = filter.tags or filter.tags_any or filter.min_confidence
    passes = semantics.passing(filter, asked.at) if rest else None
    found: list[Entry] = []
    last = place
    for time, no, body, live in _newest(db, asked, place):
        if passes is None and len(found) == asked.limit:
            return Page(entries=tuple(found), cursor=records.write(*last))
        entry = rows.entry_of(body, live)
        if passes is None or passes(entry):
            if len(found) == asked.limit:
                return Page(entries=tuple(found), cursor=records.write(*last))
            found.append(entry)
            last = (time, no)
    return Page(entries=tuple(found))


def _newest(db: Database, asked: Query, place: tuple[int, ...]) -> Iterator[Placed]:
    inside = rows.where(db, asked.scope)
    types = semantics.wanted_types(asked.filter)
    lives = rows.lives(asked.filter)
    if inside is None:
        return iter(())
    if asked.scope.agent_id is None:
        # Many owners: one statement that sorts is better than a stretch for each of them.
        wanted = types or _ALL_TYPES
        marks = ",".join("?" * len(wanted))
        return _stretch(
            db, asked, (f"{inside[0]} AND type IN ({marks})", [*inside[1], *wanted]), lives, place
        )
    if db.words.lateral:
        return _at_once(db, asked, inside, types or _ALL_TYPES, lives, place)
    condition, parameters = inside
    stretches = [
        _stretch(db, asked, (f"{condition} AND type=?", [*parameters, type_]), (live,), place)
        for type_ in types or _ALL_TYPES
        for live in lives
    ]
    if len(stretches) == 1:
        return stretches[0]
    return merge(*stretches, key=lambda placed: placed[:2], reverse=True)


def _stretch(
    db: Database, asked: Query, inside: rows.Where, lives: tuple[int, ...], place: tuple[int, ...]
) -> Iterator[Placed]:
    """The entries that a condition names, newest first, a portion at a time."""
    marks = "live=?" if len(lives) == 1 else f"live IN ({','.join('?' * len(lives))})"
    statement = _statement(f"{inside[0]} AND {marks}", asked.filter.include_expired)
    return _portions(db, asked, statement, [*inside[1], *lives], place)


def _at_once(
    db: Database,
    asked: Query,
    inside: rows.Where,
    types: Sequence[str],
    lives: tuple[int, ...],
    place: tuple[int, ...],
) -> Iterator[Placed]:
    """The same of several types, where the database itself can merge their stretches."""
    kinds = [*product(types, lives)]
    each = _statement(f"{inside[0]} AND type = kind AND live = life", asked.filter.include_expired)
    statement = (
        "SELECT n.time, n.no, n.body, n.live FROM unnest(CAST(? AS text[]), CAST(? AS smallint[]))"
        f" AS kinds (kind, life) CROSS JOIN LATERAL ({each}) AS n ORDER BY n.time DESC, n.no DESC LIMIT ?"
    )
    fixed = [[type_ for type_, _ in kinds], [life for _, life in kinds], *inside[1]]
    return _portions(db, asked, statement, fixed, place, cuts=2)


def _portions(
    db: Database,
    asked: Query,
    statement: str,
    fixed: Sequence[Any],
    place: tuple[int, ...],
    *,
    cuts: int = 1,
) -> Iterator[Placed]:
    """What a statement finds, a portion at a time; it is told `cuts` times how many that are."""
    portion = min(asked.limit, _PORTION) + 1
    filter = asked.filter
    until = _LAST if filter.until is None else filter.until
    since = -1 if filter.since is None else filter.since
    given = [*fixed, *([] if filter.include_expired else [asked.at]), since]
    while True:
        many = [portion] * cuts
        found = db.execute(statement, (*given, min(until, place[0]), *place, *many)).fetchall()
        yield from found
        if len(found) < portion:
            return
        place, portion = found[-1][:2], min(portion * 2, _PORTION)


@lru_cache(256)
def _statement(condition: str, expired: bool) -> str:
    if not expired:
        condition += " AND (expires IS NULL OR expires > ?)"
    return (
        f"SELECT time, no, body, live FROM entries WHERE {condition}"
        " AND time >= ? AND time <= ? AND (time, no) < (?, ?) ORDER BY time DESC, no DESC LIMIT ?"
    )


def is_glance(asked: Query) -> bool:
    """Whether one look at one index answers, so that no transaction is needed to see one state."""
    types = semantics.wanted_types(asked.filter)
    return (
        asked.as_of is None
        and asked.scope.agent_id is not None
        and types is not None
        and len(types) == 1
        and not (asked.filter.include_superseded or asked.filter.include_stale)
    )


def get(db: Database, id: str, scope: Scope, as_of: int | None) -> Entry:
    """An entry as it is, or as it was."""
    if as_of is None:
        return rows.get(db, id, scope)[1]
    found = rows.find(db, scope.namespace, id)
    if found is not None and scope.holds(found[1]):
        flips = truth.flips(db, "= ?", [found[0]])
        past = _version_at(db, found[0], as_of, flips.get(found[0], ()))
        if past is not None:
            return past
    stones = tombstones(db, id, scope)
    if stones:
        # Of several lives of one id, the one that ended first after that moment is meant.
        stone = next((stone for stone in stones if stone.at >= as_of), stones[-1])
        raise Erased("entry", id, stone.at, stone.reason)
    raise semantics.missing(id)


def _version_at(db: Database, no: int, as_of: int, flips: Sequence[Flip]) -> Entry | None:
    changed, body = db.execute("SELECT changed, body FROM entries WHERE no=?", (no,)).fetchone()
    if changed > as_of:
        row = db.execute(
            "SELECT body FROM versions WHERE no=? AND changed <= ? ORDER BY rev DESC LIMIT 1", (no, as_of)
        ).fetchone()
        if row is None:
            return None
        body = row[0]
    entry = codec.unpack(body)
    return semantics.changed(entry, stale=True) if flips and standing.stale_at(flips, as_of) else entry


def _as_of(db: Database, asked: Query, as_of: int) -> Page:
    """A page of an older state; every entry of the scope is looked at."""
    place = (_LAST, _LAST) if asked.cursor is None else records.read(asked.cursor)
    inside = rows.where(db, asked.scope)
    if inside is None:
        return Page()
    numbers = db.execute(f"SELECT no FROM entries WHERE {inside[0]}", inside[1]).fetchall()
    flips = truth.flips(db, f"IN (SELECT no FROM entries WHERE {inside[0]})", inside[1])
    passes = semantics.passing(asked.filter, as_of)
    found = []
    for (no,) in numbers:
        entry = _version_at(db, no, as_of, flips.get(no, ()))
        if entry is not None and passes(entry):
            at = (semantics.time_of(entry), no)
            if at < place:
                found.append((at, entry))
    found.sort(key=lambda pair: pair[0], reverse=True)
    shown = found[: asked.limit]
    more = len(found) > len(shown)
    return Page(
        entries=tuple(entry for _, entry in shown), cursor=records.write(*shown[-1][0]) if more else None
    )


def list_entries(db: Database, scope: Scope) -> list[Entry]:
    """Everything in a scope, oldest first."""
    inside = rows.where(db, scope)
    if inside is None:
        return []
    found = db.execute(f"SELECT body, live FROM entries WHERE {inside[0]} ORDER BY written", inside[1])
    return [rows.entry_of(body, live) for body, live in found]


def history(db: Database, id: str, scope: Scope) -> list[Version]:
    """The versions of an entry, oldest first."""
    stones = [
        Version(id=id, rev=stone.rev, at=stone.at, reason=stone.reason) for stone in tombstones(db, id, scope)
    ]
    found = rows.find(db, scope.namespace, id)
    if found is None or not scope.holds(found[1]):
        if not stones:
            raise semantics.missing(id)
        return stones
    no, entry = found
    old = db.execute("SELECT rev, changed, body FROM versions WHERE no=? ORDER BY rev", (no,)).fetchall()
    (changed,) = db.execute("SELECT changed FROM entries WHERE no=?", (no,)).fetchone()
    flips = truth.flips(db, "= ?", [no]).get(no, ())

    def past(rev: int, body: bytes) -> Entry:
        return semantics.changed(codec.unpack(body), stale=standing.stale_in(flips, rev))

    return [
        *stones,
        *(Version(id=id, rev=rev, at=at, entry=past(rev, body)) for rev, at, body in old),
        Version(id=id, rev=entry.rev, at=changed, entry=entry),
    ]


def tombstones(db: Database, id: str, scope: Scope) -> list[Version]:
    """What is left of erased entries of this id, newest last."""
    found = db.execute(
        "SELECT agent, session, project, rev, at, reason FROM tombstones"
        " WHERE namespace=? AND id=? ORDER BY rowid",
        (scope.namespace, id),
    )
    return [
        Version(id=id, rev=rev, at=at, reason=reason)
        for agent, session, project, rev, at, reason in found
        if scope.agent_id in (None, agent)
        and scope.session_id in (None, session)
        and scope.project_id in (None, project)
    ]
