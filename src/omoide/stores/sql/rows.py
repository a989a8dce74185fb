"""How do entries become rows, and rows entries?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from omoide.core.entry import Entry
from omoide.core.recalling import Filter
from omoide.core.scope import Scope
from omoide.core.value import force
from omoide.stores import bodies, rules, standing
from omoide.stores.indexing import Indexed
from omoide.stores.records import Access
from omoide.stores.sql.database import SLOTS, Database

T = TypeVar("T")

Where = tuple[str, list[Any]]
"""A condition of SQL and its parameters."""

_OWNERS = 10_000  # whose numbers a connection remembers

BURY = """INSERT INTO tombstones (namespace, id, agent, session, project, rev, at, reason)
    VALUES (?,?,?,?,?,?,?,?)"""
"""Notes that an entry was erased, by whom it was owned, when and why."""

ONE_OWNER = "owner=?"
ANY_OWNER = "owner IN (SELECT no FROM owners WHERE namespace=?)"

_INSERT = """INSERT INTO entries (namespace, id, owner, session, project, type, live, time, expires,
    confidence, importance, thread, seq, role, speaker, rev, changed, written, twin, body, features)
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING no"""
_UPDATE = """UPDATE entries SET namespace=?, id=?, owner=?, session=?, project=?, type=?, live=?, time=?,
    expires=?, confidence=?, importance=?, thread=?, seq=?, role=?, speaker=?, rev=?, changed=?, written=?,
    twin=?, body=?, features=? WHERE no=?"""


def owner_of(db: Database, namespace: str, agent: str) -> int | None:
    """The number of an agent in a namespace, if it owns anything."""
    known = db.owners
    no = known.get((namespace, agent))
    if no is None:
        row = db.execute("SELECT no FROM owners WHERE namespace=? AND agent=?", (namespace, agent)).fetchone()
        if row is None:
            return None
        no = known[namespace, agent] = int(row[0])
        if len(known) > _OWNERS:
            known.clear()
    return no


def make_owner(db: Database, namespace: str, agent: str) -> int:
    """The number of an agent in a namespace, new if need be."""
    known = owner_of(db, namespace, agent)
    if known is not None:
        return known
    ((no,),) = db.execute(
        "INSERT INTO owners (namespace, agent) VALUES (?,?) RETURNING no", (namespace, agent)
    ).fetchall()
    return int(no)


def where(db: Database, scope: Scope) -> Where | None:
    """The condition that a row lies in a scope, for SQL, and its parameters; None if it can hold nothing."""
    condition, parameters = ANY_OWNER, list[Any]([scope.namespace])
    if scope.agent_id is not None:
        owner = owner_of(db, scope.namespace, scope.agent_id)
        if owner is None:
            return None
        condition, parameters = ONE_OWNER, [owner]
    for column, value in (("session", scope.session_id), ("project", scope.project_id)):
        if value is not None:
            condition += f" AND {column}=?"
            parameters.append(value)
    return condition, parameters


def lives(filter: Filter) -> tuple[int, ...]:
    """How the rows may stand that a filter lets pass."""
    return standing.wanted(superseded=filter.include_superseded, stale=filter.include_stale)


def standing_in(lives: Sequence[int]) -> str:
    """The condition that a row stands in one of these ways, to be added to another."""
    return f" AND live IN ({','.join(map(str, lives))})" if len(lives) > 1 else f" AND live={lives[0]}"


def columns(entry: Entry, owner: int, at: int, seq: int, found: Indexed) -> tuple[Any, ...]:
    """The row of an entry."""
    message = entry.message
    said = (
        (None, None, None, None)
        if message is None
        else (message.thread, message.seq, message.role, message.speaker)
    )
    return (
        entry.namespace, entry.id, owner, entry.session_id, entry.project_id, rules.type_of(entry),
        standing.of(entry), rules.time_of(entry), entry.expires_at, entry.confidence,
        entry.importance, *said, entry.rev, at, seq, rules.content_key(entry), bodies.pack(entry),
        found.features,
    )  # fmt: skip


def insert(db: Database, row: tuple[Any, ...]) -> int:
    """Add a row; its number."""
    ((no,),) = db.execute(_INSERT, row).fetchall()
    return int(no)


def update(db: Database, no: int, row: tuple[Any, ...]) -> None:
    """Replace a row."""
    db.execute(_UPDATE, (*row, no))


def post(db: Database, postings: list[tuple[int, int, int, int]]) -> None:
    """Make entries findable by their terms."""
    postings.sort()
    db.executemany("INSERT INTO postings (owner, term, no, count) VALUES (?,?,?,?)", postings)


def unpost(db: Database, owner: int, no: int, terms: Iterable[int]) -> None:
    """Make an entry unfindable by its terms."""
    db.executemany(
        "DELETE FROM postings WHERE owner=? AND term=? AND no=?", [(owner, term, no) for term in {*terms}]
    )


def given_vector(db: Database, key: int) -> bytes | None:
    """The vector that came with an entry, if one did."""
    row = db.execute("SELECT pooled FROM vectors WHERE key=? AND given=1", (key,)).fetchone()
    return None if row is None else bytes(row[0])


def support(db: Database, entry: Entry, no: int) -> None:
    """Note the entries that an entry rests on; what an old version rested on stays noted."""
    if entry.rev > 1:
        db.execute("UPDATE supports SET present = 0 WHERE no=?", (no,))
    db.executemany(
        "INSERT INTO supports (namespace, id, no, present) VALUES (?,?,?,1)"
        " ON CONFLICT (namespace, id, no) DO UPDATE SET present = excluded.present",
        [(entry.namespace, id, no) for id in standing.premises(entry)],
    )


def drop_vectors(db: Database, no: int, *, but_given: bool = False) -> None:
    """Remove all vectors of an entry, or all but one that was given."""
    between = (no * SLOTS, (no + 1) * SLOTS)
    db.execute(f"DELETE FROM vectors WHERE key >= ? AND key < ?{' AND given=0' * but_given}", between)
    db.execute("DELETE FROM tokens WHERE key >= ? AND key < ?", between)


def log(db: Database, entry: Entry, no: int, op: str, at: int) -> None:
    """Note a change."""
    db.execute(
        "INSERT INTO log (namespace, id, no, op, rev, at) VALUES (?,?,?,?,?,?)",
        (entry.namespace, entry.id, no, op, entry.rev, at),
    )


def state(db: Database, namespace: str) -> tuple[str, int]:
    """What tells whether anything changed: a namespace's newest change, and which life of the store it is of.

    Numbers grow with the commits inside of a namespace; what other namespaces have says nothing about it.
    """
    life, seq = db.execute(
        "SELECT (SELECT value FROM settings WHERE name='life'), (SELECT max(seq) FROM log WHERE namespace=?)",
        (namespace,),
    ).fetchone()
    return life or "", seq or 0


def last_seq(db: Database) -> int:
    """The sequence number of the newest change."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM log").fetchone()[0])


def entry_of(body: bytes, live: int) -> Entry:
    """The entry of a row."""
    entry = bodies.unpack(body)
    if live >= standing.STALE:
        force(entry, "stale", True)
    return entry


def access_of(count: int, last: int) -> Access:
    """The figures of a row; one that was taken over may not know when it was used."""
    return Access(count=count, last=None if last < 0 else last)


def find(db: Database, namespace: str, id: str) -> tuple[int, Entry] | None:
    """An entry and its number."""
    row = db.execute(
        "SELECT no, body, live FROM entries WHERE namespace=? AND id=?", (namespace, id)
    ).fetchone()
    return None if row is None else (int(row[0]), entry_of(row[1], row[2]))


def get(db: Database, id: str, scope: Scope) -> tuple[int, Entry]:
    """An entry that the scope holds, and its number."""
    found = find(db, scope.namespace, id)
    if found is None or not scope.holds(found[1]):
        raise rules.missing(id)
    return found


def batches(keys: Iterable[T], size: int = 500) -> Iterator[list[T]]:
    """Numbers or ids in portions that fit into one statement."""
    portion = []
    for key in keys:
        portion.append(key)
        if len(portion) == size:
            yield portion
            portion = []
    if portion:
        yield portion
