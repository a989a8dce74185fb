"""Read entries: get, list, page, history and change feed.

Each type of each owner is an ordered range of an index. A page merges the heads of the ranges it needs, so
that it costs the same in a store of a thousand entries and of a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from heapq import merge
from itertools import product
from typing import Any

import msgspec

from omoide import ids
from omoide.core.entry import MEMORY_TYPES, ROOT_TYPE, Entry, Scope
from omoide.core.value import set_field, shallow_copy
from omoide.errors import Corrupted, Erased, NotFound, OmoideError
from omoide.stores import records, semantics
from omoide.stores.records import Access, Change, Document, Feed, Link, Page, Query, Version
from omoide.stores.semantics import StaleTransition
from omoide.stores.sql import rows
from omoide.stores.sql.database import Database

_EMPTY_LINK = Link(source="-", relation="-", target="-", created_at=0)


def changes(
    db: Database, namespace: str, after: int, until: int | None, limit: int, scope: Scope | None
) -> list[Change]:
    """Return the changes after a sequence number, in commit order; with a scope, those of its entries."""
    inside, parameters = ("", []) if scope is None else _logged_in_scope(db, scope)
    cursor = db.execute(
        "SELECT seq, id, op, rev, at FROM log WHERE namespace = ? AND seq > ? AND seq <= ?"
        f"{inside} ORDER BY seq LIMIT ?",
        (namespace, after, _MAX_INT64 if until is None else until, *parameters, limit),
    )
    found = []
    for seq, id, op, rev, at in cursor:
        try:
            ids.check(id, "id")  # those of changes are not checked otherwise
            found.append(Change(seq=seq, namespace=namespace, id=id, op=op, rev=rev, at=at))
        except OmoideError:
            rows.log_damage(records.damaged(db.name, "change", seq))
    return found


def _logged_in_scope(db: Database, scope: Scope) -> tuple[str, list[Any]]:
    """Return the condition for rows of the log whose entry is in a scope, or was until it was erased."""
    inside, parameters = rows.scope_condition(db, scope) or ("1=0", [])
    condition = f"EXISTS (SELECT 1 FROM entries WHERE namespace=log.namespace AND id=log.id AND {inside})"
    erased = "namespace=? AND namespace=log.namespace AND id=log.id"
    parameters = [*parameters, scope.namespace]
    for column, value in (
        ("user_id", scope.user_id),
        ("agent", scope.agent_id),
        ("session", scope.session_id),
        ("project", scope.project_id),
    ):
        if value is not None:
            erased += f" AND {column}=?"
            parameters.append(value)
    return f" AND ({condition} OR EXISTS (SELECT 1 FROM tombstones WHERE {erased}))", parameters


class _LoggedEntry:
    """The changes of one id in a part of the log: row number, erased or not, and first revision."""

    __slots__ = ("erased", "first_rev", "no")

    def __init__(self, no: int) -> None:
        self.no = no
        self.erased = False
        self.first_rev: int | None = None


def change_feed(db: Database, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
    """Return what changed after a sequence number and its current state."""
    generation, last = rows.latest_change(db, namespace)
    until, more = _batch_end(db, namespace, after, limit)
    whole = after == 0 and more and _fits(db, namespace, limit)
    if whole or not more:
        until, more = max(last, after), False
    logged = _logged_entries(db, namespace, after, until)
    changed = _changed_entries(db, namespace, logged)
    access = _access_of(db, [logged[id].no for id in changed]) if changed else {}
    if used_since is not None:
        access.update(_used_since(db, namespace, used_since))
    written = {id for id, (_, first) in changed.items() if logged[id].first_rev == first}
    return Feed(
        generation=generation,
        seq=until,
        after_fingerprint=_fingerprint(db, after),
        seq_fingerprint=_fingerprint(db, until),
        more=more,
        entries=tuple(entry for entry, _ in changed.values()),
        links=tuple(_links(db, namespace, changed)),
        access=access,
        erased_ids=tuple(id for id, one in logged.items() if one.erased),
        new_ids=frozenset(written - _with_tombstone(db, namespace, written)),
    )


def _logged_entries(db: Database, namespace: str, after: int, until: int) -> dict[str, _LoggedEntry]:
    """Return what the log says between two sequence numbers, by id, ordered by last change.

    The rows are combined here: one pass over the log is faster than grouping and joining it in SQL.
    """
    logged: dict[str, _LoggedEntry] = {}
    for id, no, op, rev in db.execute(
        "SELECT id, no, op, rev FROM log WHERE namespace = ? AND seq > ? AND seq <= ? ORDER BY seq",
        (namespace, after, until),
    ):
        entry = logged.pop(id, None) or _LoggedEntry(no)
        logged[id] = entry
        entry.no = no
        if op == "erase":
            entry.erased = True
        elif op == "write" and type(rev) is int and (entry.first_rev is None or rev < entry.first_rev):
            entry.first_rev = rev
    return logged


def _changed_entries(
    db: Database, namespace: str, logged: dict[str, _LoggedEntry]
) -> dict[str, tuple[Entry, int]]:
    """Return the logged entries that still exist, each with the first revision stored here."""
    found: dict[str, tuple[Entry, int]] = {}
    for batch in rows.batches(item.no for item in logged.values()):
        marks = ",".join("?" * len(batch))
        for first, *row in db.execute(
            f"SELECT first, {rows.ENTRY_COLUMNS} FROM entries WHERE no IN ({marks}) AND namespace = ?",
            (*batch, namespace),
        ):
            for entry in rows.decode_rows(db, [row]):
                if entry.id in logged:  # numbers are used again
                    found[entry.id] = entry, first
    for id in logged.keys() - found.keys():  # erased, and perhaps written anew since: under another number
        stored = rows.find_sound(db, namespace, id)
        if stored is not None:
            logged[id].no, entry = stored
            (first,) = db.execute("SELECT first FROM entries WHERE no = ?", (stored[0],)).fetchone()
            found[id] = entry, first
    return {id: found[id] for id in logged if id in found}


def _access_of(db: Database, numbers: list[int]) -> dict[str, Access]:
    """Return the access counts of entries."""
    found: dict[str, Access] = {}
    for batch in rows.batches(numbers):
        marks = ",".join("?" * len(batch))
        for id, count, last in db.execute(
            "SELECT e.id, a.count, a.last FROM access a JOIN entries e ON e.no = a.no"
            f" WHERE a.no IN ({marks})",
            batch,
        ):
            found[id] = rows.access_of(count, last)
    return found


def _with_tombstone(db: Database, namespace: str, ids: set[str]) -> set[str]:
    """Return those of the ids under which another entry was erased before."""
    any_tombstone = db.execute(
        "SELECT 1 FROM tombstones WHERE namespace = ? LIMIT 1", (namespace,)
    ).fetchone()
    if any_tombstone is None:
        return set()
    return {
        id
        for id in ids
        if db.execute(
            "SELECT 1 FROM tombstones WHERE namespace = ? AND id = ? LIMIT 1", (namespace, id)
        ).fetchone()
    }


def _fingerprint(db: Database, seq: int) -> str:
    """Return the digest of a change, to tell it from another one with the same number."""
    row = db.execute("SELECT namespace, id, op, rev, at FROM log WHERE seq = ?", (seq,)).fetchone()
    if row is None:
        return ""
    return blake2b(msgspec.json.encode([*map(rows.writable, row)]), digest_size=8).hexdigest()


def _batch_end(db: Database, namespace: str, after: int, limit: int) -> tuple[int, bool]:
    """Return the last sequence number of a batch of changes, and whether more follow."""
    found = db.execute(
        "SELECT seq FROM log WHERE namespace = ? AND seq > ? ORDER BY seq LIMIT 2 OFFSET ?",
        (namespace, after, limit - 1),
    ).fetchall()
    return (found[0][0] if found else after), len(found) == 2


def _fits(db: Database, namespace: str, limit: int) -> bool:
    """Return True if all entries of the namespace fit into one batch, however often they changed."""
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
            link = shallow_copy(_EMPTY_LINK)  # checked when it was kept
            for name, value in (
                ("source", source),
                ("relation", relation),
                ("target", target),
                ("created_at", at),
            ):
                set_field(link, name, value)
            yield link


def _used_since(db: Database, namespace: str, since: int) -> dict[str, Access]:
    cursor = db.execute(
        f"SELECT e.id, a.count, a.last FROM access a {db.dialect.join_order_hint} JOIN entries e"
        " ON e.no = a.no WHERE a.last >= ? AND e.namespace = ?",
        (since, namespace),
    )
    return {id: rows.access_of(count, last) for id, count, last in cursor}


_MAX_INT64 = (1 << 63) - 1
_MAX_BATCH = 4_096
_ALL_TYPES = (ROOT_TYPE, *MEMORY_TYPES)

OrderedRow = tuple[Any, ...]
"""Time and number of an entry, and its columns."""


def query(db: Database, request: Query) -> Page:
    """Return one page of the entries that match."""
    if request.as_of is not None:
        return _query_as_of(db, request, request.as_of)
    position = (_MAX_INT64, _MAX_INT64) if request.cursor is None else records.decode_cursor(request.cursor)
    filter = request.filter
    # The database has looked at keys, types, times, expiry and what is forgotten already.
    rest = filter.tags or filter.tags_any or filter.min_confidence
    passes = semantics.entry_predicate(filter, request.at) if rest else None
    found: list[Entry] = []
    last = position
    for row in _newest(db, request, position):
        if passes is None and len(found) == request.limit:
            return Page(entries=tuple(found), cursor=records.encode_cursor(*last))
        try:
            entry = rows.decode_row(db, row[2:], request.scope)
        except Corrupted as error:
            rows.log_damage(error)
            continue
        if passes is None or passes(entry):
            if len(found) == request.limit:
                return Page(entries=tuple(found), cursor=records.encode_cursor(*last))
            found.append(entry)
            last = row[:2]
    return Page(entries=tuple(found))


def _newest(db: Database, request: Query, position: tuple[int, ...]) -> Iterator[OrderedRow]:
    inside = rows.scope_condition(db, request.scope)
    types = semantics.filter_types(request.filter)
    statuses = rows.allowed_statuses(request.filter)
    if inside is None:
        return iter(())
    if request.filter.key is not None:
        # Few entries share a key, and its index has them together.
        condition, parameters = f"{inside[0]} AND key=?", [*inside[1], request.filter.key]
        if types is not None:
            condition += f" AND {db.dialect.no_index_prefix}type IN ({','.join('?' * len(types))})"
            parameters += types
        return _scan_index(db, request, (condition, parameters), statuses, position)
    if request.scope.agent_id is None:
        # Many owners: one statement that sorts is better than a stretch for each of them.
        all_types = types or _ALL_TYPES
        marks = ",".join("?" * len(all_types))
        return _scan_index(
            db, request, (f"{inside[0]} AND type IN ({marks})", [*inside[1], *all_types]), statuses, position
        )
    if db.dialect.supports_lateral:
        return _scan_lateral(db, request, inside, types or _ALL_TYPES, statuses, position)
    condition, parameters = inside
    scans = [
        _scan_index(db, request, (f"{condition} AND type=?", [*parameters, type_]), (live,), position)
        for type_ in types or _ALL_TYPES
        for live in statuses
    ]
    if len(scans) == 1:
        return scans[0]
    return merge(*scans, key=lambda placed: placed[:2], reverse=True)


def _scan_index(
    db: Database,
    request: Query,
    where: rows.WhereClause,
    statuses: tuple[int, ...],
    position: tuple[int, ...],
) -> Iterator[OrderedRow]:
    """Scan the rows of a condition, newest first, in batches."""
    marks = "live=?" if len(statuses) == 1 else f"live IN ({','.join('?' * len(statuses))})"
    statement = _statement(f"{where[0]} AND {marks}", request.filter.include_expired)
    return _scan_batches(db, request, statement, [*where[1], *statuses], position)


def _scan_lateral(
    db: Database,
    request: Query,
    where: rows.WhereClause,
    types: Sequence[str],
    statuses: tuple[int, ...],
    position: tuple[int, ...],
) -> Iterator[OrderedRow]:
    """Scan several index ranges at once, where the database can merge them."""
    kinds = [*product(types, statuses)]
    each = _statement(f"{where[0]} AND type = kind AND live = life", request.filter.include_expired)
    statement = (
        "SELECT n.* FROM unnest(CAST(? AS text[]), CAST(? AS smallint[]))"
        f" AS kinds (kind, life) CROSS JOIN LATERAL ({each}) AS n ORDER BY n.at DESC, n.no DESC LIMIT ?"
    )
    fixed = [[type_ for type_, _ in kinds], [life for _, life in kinds], *where[1]]
    return _scan_batches(db, request, statement, fixed, position, limits=2)


def _scan_batches(
    db: Database,
    request: Query,
    statement: str,
    fixed: Sequence[Any],
    position: tuple[int, ...],
    *,
    limits: int = 1,
) -> Iterator[OrderedRow]:
    """Yield the rows of a statement in batches; it takes the batch size `limits` times."""
    size = min(request.limit, _MAX_BATCH) + 1
    filter = request.filter
    until = _MAX_INT64 if filter.until is None else filter.until
    since = -1 if filter.since is None else filter.since
    parameters = [*fixed, *([] if filter.include_expired else [request.at]), since]
    while True:
        sizes = [size] * limits
        found = db.execute(statement, (*parameters, min(until, position[0]), *position, *sizes)).fetchall()
        yield from found
        if len(found) < size:
            return
        position, size = found[-1][:2], min(size * 2, _MAX_BATCH)


@lru_cache(256)
def _statement(condition: str, include_expired: bool) -> str:
    if not include_expired:
        condition += " AND (expires IS NULL OR expires > ?)"
    return (
        f"SELECT time AS at, no, {rows.ENTRY_COLUMNS} FROM entries WHERE {condition}"
        " AND time >= ? AND time <= ? AND (time, no) < (?, ?) ORDER BY time DESC, no DESC LIMIT ?"
    )


def is_single_statement(request: Query) -> bool:
    """Return True if one statement answers, so that no transaction is needed for a consistent view."""
    types = semantics.filter_types(request.filter)
    return (
        request.as_of is None
        and request.scope.agent_id is not None
        and types is not None
        and len(types) == 1
        and not (request.filter.include_superseded or request.filter.include_stale)
    )


def get(db: Database, id: str, scope: Scope, as_of: int | None) -> Entry:
    """Return an entry, as it is or as it was at a time."""
    if as_of is None:
        return rows.get(db, id, scope)[1]
    try:
        found = rows.get(db, id, scope)
    except NotFound:
        found = None
    if found is not None:
        transitions = rows.stale_transitions(db, "= ?", [found[0]])
        version = _version_at(db, *found, as_of, transitions.get(found[0], ()))
        if version is not None:
            return version
    tombstones_found = tombstones(db, id, scope)
    if tombstones_found:
        # Of several lives of one id, the one that ended first after that moment is meant.
        tombstone = next(
            (tombstone for tombstone in tombstones_found if tombstone.at >= as_of), tombstones_found[-1]
        )
        raise Erased("entry", id, tombstone.at, tombstone.reason)
    raise semantics.entry_not_found(id, scope)


def _version_at(
    db: Database, no: int, entry: Entry, as_of: int, transitions: Sequence[StaleTransition]
) -> Entry | None:
    (changed,) = db.execute("SELECT changed FROM entries WHERE no=?", (no,)).fetchone()
    if changed > as_of:
        row = db.execute(
            f"{rows.SELECT_VERSIONS} WHERE no=? AND changed <= ? ORDER BY rev DESC LIMIT 1", (no, as_of)
        ).fetchone()
        if row is None:
            return None
        entry = rows.decode_version(db, entry.id, row)
    return semantics.replace_unchecked(
        entry, stale=bool(transitions) and semantics.was_stale_at(transitions, as_of)
    )


def _query_as_of(db: Database, request: Query, as_of: int) -> Page:
    """Return a page of an earlier state; reads every entry of the scope."""
    position = (_MAX_INT64, _MAX_INT64) if request.cursor is None else records.decode_cursor(request.cursor)
    inside = rows.scope_condition(db, request.scope)
    if inside is None:
        return Page()
    found = db.execute(
        f"SELECT no, {rows.ENTRY_COLUMNS} FROM entries WHERE {inside[0]}", inside[1]
    ).fetchall()
    transitions = rows.stale_transitions(db, f"IN (SELECT no FROM entries WHERE {inside[0]})", inside[1])
    passes = semantics.entry_predicate(request.filter, as_of)
    matches = []
    for no, *row in found:
        try:
            entry = _version_at(
                db, no, rows.decode_row(db, row, request.scope), as_of, transitions.get(no, ())
            )
        except Corrupted as error:
            rows.log_damage(error)
            continue
        if entry is not None and passes(entry):
            key = (semantics.time_of(entry), no)
            if key < position:
                matches.append((key, entry))
    matches.sort(key=lambda pair: pair[0], reverse=True)
    shown = matches[: request.limit]
    more = len(matches) > len(shown)
    return Page(
        entries=tuple(entry for _, entry in shown),
        cursor=records.encode_cursor(*shown[-1][0]) if more else None,
    )


def list_entries(db: Database, scope: Scope) -> list[Entry]:
    """List all entries of a scope, oldest first."""
    inside = rows.scope_condition(db, scope)
    if inside is None:
        return []
    cursor = db.execute(
        f"SELECT {rows.ENTRY_COLUMNS} FROM entries WHERE {inside[0]} ORDER BY written", inside[1]
    )
    return [*rows.decode_rows(db, cursor, scope)]


def history(db: Database, id: str, scope: Scope) -> list[Version]:
    """Return the versions of an entry, oldest first."""
    erased = [
        Version(id=id, rev=tombstone.rev, at=tombstone.at, reason=tombstone.reason)
        for tombstone in tombstones(db, id, scope)
    ]
    try:
        no, entry = rows.get(db, id, scope)
    except NotFound:
        if not erased:
            raise
        return erased
    old = db.execute(f"{rows.SELECT_VERSIONS} WHERE no=? ORDER BY rev", (no,)).fetchall()
    (changed,) = db.execute("SELECT changed FROM entries WHERE no=?", (no,)).fetchone()
    transitions = rows.stale_transitions(db, "= ?", [no]).get(no, ())

    versions = []
    for row in old:
        try:
            version = rows.decode_version(db, id, row)
        except Corrupted as error:
            rows.log_damage(error)
            continue
        stale = semantics.was_stale_in_rev(transitions, version.rev)
        was = semantics.replace_unchecked(version, stale=stale)
        versions.append(Version(id=id, rev=version.rev, at=row[2], entry=was))
    return [*erased, *versions, Version(id=id, rev=entry.rev, at=changed, entry=entry)]


def tombstones(db: Database, id: str, scope: Scope) -> list[Version]:
    """Return the tombstones of an id that are in the scope, oldest first."""
    cursor = db.execute(
        "SELECT user_id, agent, session, project, rev, at, reason FROM tombstones"
        " WHERE namespace=? AND id=? ORDER BY rowid",
        (scope.namespace, id),
    )
    found = []
    for user, agent, session, project, rev, at, reason in cursor:
        if (
            scope.user_id in (None, user)
            and scope.agent_id in (None, agent)
            and scope.session_id in (None, session)
            and scope.project_id in (None, project)
        ):
            try:
                found.append(Version(id=id, rev=rev, at=at, reason=reason))
            except OmoideError:
                rows.log_damage(records.damaged(db.name, "tombstone of entry", id))
    return found


def list_documents(db: Database, kind: str, scope: Scope, limit: int, after: str | None) -> list[Document]:
    """List documents of a kind after an id, without their logs."""
    condition, parameters = rows.document_condition(scope)
    cursor = db.execute(
        f"{rows.SELECT_DOCUMENTS} WHERE {condition} AND kind=? AND id > ? ORDER BY id LIMIT ?",
        (*parameters, kind, after or "", limit),
    )
    documents = []
    for row in cursor:
        try:
            documents.append(rows.decode_document(db, row))
        except Corrupted as error:
            rows.log_damage(error)
    return documents


def document_kinds(db: Database, namespace: str) -> list[str]:
    """List the kinds of documents in a namespace."""
    cursor = db.execute("SELECT DISTINCT kind FROM documents WHERE namespace=? ORDER BY kind", (namespace,))
    return [kind for (kind,) in cursor]
