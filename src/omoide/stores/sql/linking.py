"""How are links kept?"""

from __future__ import annotations

from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.stores import standing
from omoide.stores.records import Link
from omoide.stores.sql import rows, truth
from omoide.stores.sql.database import Database


def link(db: Database, given: Link, scope: Scope, now: int) -> Link:
    """Keep a link; the scope must hold both ends."""
    source = rows.get(db, given.source, scope)
    rows.get(db, given.target, scope)
    link = add(db, given, scope.namespace, source, now)
    _settle(db, given, scope, source[1], now)
    return link


def add(db: Database, given: Link, namespace: str, source: tuple[int, Entry], now: int) -> Link:
    """Keep a link between entries that are known to be there."""
    key = (namespace, given.source, given.relation, given.target)
    known = db.execute(
        "SELECT at FROM links WHERE namespace=? AND source=? AND relation=? AND target=?", key
    ).fetchone()
    if known is not None:
        return given.replace(created_at=known[0])
    db.execute(
        "INSERT INTO links (namespace, source, relation, target, at) VALUES (?,?,?,?,?)",
        (*key, given.created_at),
    )
    rows.log(db, source[1], source[0], "link", now)
    return given


def unlink(db: Database, given: Link, scope: Scope, now: int) -> bool:
    """Remove a link; whether there was one."""
    no, entry = rows.get(db, given.source, scope)
    rows.get(db, given.target, scope)
    done = db.execute(
        "DELETE FROM links WHERE namespace=? AND source=? AND relation=? AND target=?",
        (scope.namespace, given.source, given.relation, given.target),
    )
    if done.rowcount == 0:
        return False
    rows.log(db, entry, no, "unlink", now)
    _settle(db, given, scope, entry, now)
    return True


def _settle(db: Database, given: Link, scope: Scope, source: Entry, now: int) -> None:
    if given.relation == standing.INVALIDATED_BY:
        truth.settle(db, scope.namespace, {source.id: standing.of(source) != standing.LIVE}, now)


def links(db: Database, id: str, scope: Scope, relation: str | None) -> list[Link]:
    """The links from and to an entry whose other end the scope holds, oldest first."""
    rows.get(db, id, scope)
    found = db.execute(
        "SELECT source, relation, target, at FROM links WHERE namespace=? AND source=?"
        " UNION SELECT source, relation, target, at FROM links WHERE namespace=? AND target=?"
        " ORDER BY at, source, relation, target",
        (scope.namespace, id, scope.namespace, id),
    ).fetchall()
    kept = []
    for source, name, target, at in found:
        other = rows.find(db, scope.namespace, target if source == id else source)
        if relation in (None, name) and other is not None and scope.holds(other[1]):
            kept.append(Link(source=source, relation=name, target=target, created_at=at))
    return kept
