"""Map entries, vectors, dependencies and documents to rows.

Each embedder has a slot for its vectors. One embedder serves queries; another may be filled beside it until
it takes over. The status of an entry is a column of its row; it changes in the same transaction as what the
entry depends on, and each change is logged, so that caches in other processes notice it. A document is a row
with a log; its lease is claimed beside it.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar
from zlib import crc32

from omoide import clock, ids
from omoide.core import codec
from omoide.core.entry import Entry, Filter, Scope
from omoide.core.value import check_revision, set_field
from omoide.embedders import Embedder
from omoide.errors import Corrupted, IdTaken, NotFound, StoreFailed
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores import records, semantics
from omoide.stores.records import Access, Document, IndexData, Lease
from omoide.stores.semantics import INVALIDATED_BY, LIVE, STALE, SUPERSEDED_AND_STALE, StaleTransition
from omoide.stores.sql.database import SLOTS, AdvisoryLock, Database

T = TypeVar("T")

_log = logging.getLogger("omoide")

WhereClause = tuple[str, list[Any]]
"""An SQL condition and its parameters."""

DocumentRow = tuple[int, str | None, str | None, str | None, int]

MODELS_LOCK = AdvisoryLock("models")
"""Protects which embedder serves."""

VECTORS_LOCK = AdvisoryLock("vectors", shared=True)
"""Shared by writers of vectors, so that the serving embedder stays.

It is taken exclusively, before `MODELS_LOCK`, to change the embedder.
"""

ONE_OWNER = "owner=?"
ANY_OWNER = "owner IN (SELECT no FROM owners WHERE namespace=?)"

_INSERT_TOMBSTONE = """INSERT INTO tombstones
    (namespace, id, user_id, agent, session, project, rev, at, reason) VALUES (?,?,?,?,?,?,?,?,?)"""

ENTRY_COLUMNS = "id, body, live, changed, written, checksum"
"""The columns from which `decode_row` makes an entry; all others follow from its body."""
ALL_COLUMNS = """namespace, id, user_id, key, owner, session, project, type, live, time, expires, confidence,
    importance, thread, seq, role, speaker, rev, changed, written, twin, body, features, checksum"""
"""The columns that `entry_columns` returns."""
UNDERIVED = (4, 18, 19, 22)
"""Positions of those that an entry does not tell: owner, changed, written, features."""
_INSERT = f"""INSERT INTO entries ({ALL_COLUMNS})
    VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING no"""
_UPDATE = """UPDATE entries SET namespace=?, id=?, user_id=?, key=?, owner=?, session=?, project=?, type=?,
    live=?, time=?, expires=?, confidence=?, importance=?, thread=?, seq=?, role=?, speaker=?, rev=?,
    changed=?, written=?, twin=?, body=?, features=?, checksum=? WHERE no=?"""
_FIND = f"SELECT no, {ENTRY_COLUMNS} FROM entries WHERE namespace=? AND id=?"
_FIND_SLOT = f"""SELECT no, {ENTRY_COLUMNS} FROM entries WHERE owner=? AND key=? AND coalesce(user_id, '')=?
    AND coalesce(session, '')=? AND coalesce(project, '')=? AND key IS NOT NULL AND live IN (1, 2)"""
"""One probe of the unique index of slots, whose expressions and condition these are; no id is empty."""
_PUT_VECTOR = """INSERT INTO vectors (key, pooled, given) VALUES (?,?,?)
    ON CONFLICT (key) DO UPDATE SET pooled = excluded.pooled, given = excluded.given"""
_PUT_CODED_VECTOR = """INSERT INTO vectors (key, pooled, given, code) VALUES (?,?,?,CAST(? AS BIT VARYING))
    ON CONFLICT (key) DO UPDATE SET pooled = excluded.pooled, given = excluded.given, code = excluded.code"""
_PUT_TOKENS = """INSERT INTO tokens (key, tokens) VALUES (?,?)
    ON CONFLICT (key) DO UPDATE SET tokens = excluded.tokens"""

_STALE_SCHEMA = 3
"""First schema version that stores staleness."""
_TRANSITION_OPS = "op IN ('stale', 'current', 'erase')"  # as in the index
_MAX_CACHED_OWNERS = 10_000  # whose numbers a connection remembers


def entries_lock(namespace: str) -> AdvisoryLock:
    """Return the lock for the entries of a namespace and its log, which orders sequence numbers by commit."""
    return AdvisoryLock(f"entries {namespace}", namespace=namespace)


def namespace_locks(namespace: str) -> tuple[AdvisoryLock, AdvisoryLock]:
    """Return the locks for all entries and documents of a namespace."""
    return AdvisoryLock(f"documents {namespace}"), entries_lock(namespace)


def document_locks(namespace: str, kind: str, id: str) -> tuple[AdvisoryLock, AdvisoryLock]:
    """Return the locks for one document, while other documents may change."""
    key = " ".join(f"{len(part)} {part}" for part in (namespace, kind, id))
    return AdvisoryLock(f"documents {namespace}", shared=True), AdvisoryLock(f"document {key}")


def owner_of(db: Database, namespace: str, agent: str) -> int | None:
    """Return the number of an agent in a namespace, or None if it owns nothing."""
    known = db.owners
    no = known.get((namespace, agent))
    if no is None:
        row = db.execute("SELECT no FROM owners WHERE namespace=? AND agent=?", (namespace, agent)).fetchone()
        if row is None:
            return None
        no = known[namespace, agent] = int(row[0])
        if len(known) > _MAX_CACHED_OWNERS:
            known.clear()
    return no


def owner_name(db: Database, owner: int) -> tuple[str, str] | None:
    """Return the namespace and the agent of an owner number."""
    row = db.execute("SELECT namespace, agent FROM owners WHERE no=?", (owner,)).fetchone()
    return None if row is None else (row[0], row[1])


def make_owner(db: Database, namespace: str, agent: str) -> int:
    """Return the number of an agent in a namespace, creating it if needed."""
    known = owner_of(db, namespace, agent)
    if known is not None:
        return known
    ((no,),) = db.execute(
        "INSERT INTO owners (namespace, agent) VALUES (?,?) RETURNING no", (namespace, agent)
    ).fetchall()
    return int(no)


def scope_condition(db: Database, scope: Scope) -> WhereClause | None:
    """Return the condition for rows of a scope; None if the scope is empty."""
    condition, parameters = ANY_OWNER, list[Any]([scope.namespace])
    if scope.agent_id is not None:
        owner = owner_of(db, scope.namespace, scope.agent_id)
        if owner is None:
            return None
        condition, parameters = ONE_OWNER, [owner]
    for column, value in (
        ("user_id", scope.user_id),
        ("session", scope.session_id),
        ("project", scope.project_id),
    ):
        if value is not None:
            condition += f" AND {column}=?"
            parameters.append(value)
    return condition, parameters


def document_condition(scope: Scope) -> WhereClause:
    """Return the condition for documents of a scope; they belong to no project."""
    condition, parameters = "namespace=?", list[Any]([scope.namespace])
    for column, value in (
        ("user_id", scope.user_id),
        ("agent", scope.agent_id),
        ("session", scope.session_id),
    ):
        if value is not None:
            condition += f" AND {column}=?"
            parameters.append(value)
    return condition, parameters


def allowed_statuses(filter: Filter) -> tuple[int, ...]:
    """Return the statuses of rows that a filter admits."""
    return semantics.allowed_statuses(superseded=filter.include_superseded, stale=filter.include_stale)


def status_condition(statuses: Sequence[int]) -> str:
    """Return the condition for rows with one of these statuses, to append to another."""
    return (
        f" AND live IN ({','.join(map(str, statuses))})" if len(statuses) > 1 else f" AND live={statuses[0]}"
    )


def entry_columns(entry: Entry, owner: int, at: int, seq: int, indexed: IndexData) -> tuple[Any, ...]:
    """Return the column values of an entry."""
    message = entry.message
    message_columns = (
        (None, None, None, None)
        if message is None
        else (message.thread, message.seq, message.role, message.speaker)
    )
    scope = (entry.namespace, entry.id, entry.user_id, entry.key, owner, entry.session_id, entry.project_id)
    type_, live, time = semantics.type_of(entry), semantics.status_of(entry), semantics.time_of(entry)
    body = records.encode_entry(entry)
    return (
        *scope, type_, live, time, entry.expires_at, entry.confidence, entry.importance, *message_columns,
        entry.rev, at, seq, semantics.content_key(entry), body, indexed.features,
        crc32(body) + live + at + seq,
    )  # fmt: skip


def insert(db: Database, row: tuple[Any, ...]) -> int:
    """Insert a row; return its number."""
    ((no,),) = db.execute(_INSERT, row).fetchall()
    return int(no)


def update(db: Database, no: int, row: tuple[Any, ...]) -> None:
    """Replace a row."""
    db.execute(_UPDATE, (*row, no))


def insert_postings(db: Database, postings: list[tuple[int, int, int, int]]) -> None:
    """Add entries to the term index."""
    postings.sort()
    db.executemany("INSERT INTO postings (owner, term, no, count) VALUES (?,?,?,?)", postings)


def delete_postings(db: Database, owner: int, no: int, terms: Iterable[int]) -> None:
    """Remove an entry from the term index, also where its list of terms or its owner is damaged."""
    deleted, wanted = 0, {*terms}
    for batch in batches(wanted):
        marks = ",".join("?" * len(batch))
        deleted += db.execute(
            f"DELETE FROM postings WHERE owner=? AND term IN ({marks}) AND no=?", (owner, *batch, no)
        ).rowcount
    if deleted < len(wanted):
        delete_all_postings(db, no)


def delete_all_postings(db: Database, no: int) -> None:
    """Remove a damaged entry from the term index, all of which is read; its number will be used again."""
    db.execute("DELETE FROM postings WHERE no=?", (no,))


def given_vector(db: Database, key: int) -> bytes | None:
    """Return the vector that was supplied with an entry, or None."""
    row = db.execute("SELECT pooled FROM vectors WHERE key=? AND given=1", (key,)).fetchone()
    return None if row is None else bytes(row[0])


def update_premises(db: Database, entry: Entry, no: int) -> None:
    """Store the dependencies of an entry; those of older versions stay, marked as past."""
    if entry.rev > 1:
        db.execute("UPDATE supports SET present = 0 WHERE no=?", (no,))
    db.executemany(
        "INSERT INTO supports (namespace, id, no, present) VALUES (?,?,?,1)"
        " ON CONFLICT (namespace, id, no) DO UPDATE SET present = excluded.present",
        [(entry.namespace, id, no) for id in semantics.premises(entry)],
    )


def delete_vectors(db: Database, no: int, *, keep_given: bool = False) -> None:
    """Delete the vectors of an entry; with `keep_given`, all but a supplied one."""
    between = (no * SLOTS, (no + 1) * SLOTS)
    db.execute(f"DELETE FROM vectors WHERE key >= ? AND key < ?{' AND given=0' * keep_given}", between)
    db.execute("DELETE FROM tokens WHERE key >= ? AND key < ?", between)


def insert_tombstone(
    db: Database, like: Entry | EntryKey, id: str, rev: int, at: int, reason: str | None
) -> None:
    """Record an erased id with the owner of an entry, when and why."""
    owner = (like.user_id, like.agent_id, like.session_id, like.project_id)
    db.execute(_INSERT_TOMBSTONE, (like.namespace, id, *owner, rev, at, reason))


def log_change(db: Database, entry: Entry | EntryKey, no: int, op: str, at: int) -> None:
    """Append a change to the log."""
    db.execute(
        "INSERT INTO log (namespace, id, no, op, rev, at) VALUES (?,?,?,?,?,?)",
        (entry.namespace, entry.id, no, op, entry.rev, at),
    )


def latest_change(db: Database, namespace: str) -> tuple[str, int]:
    """Return the generation of the store and the newest sequence number of a namespace.

    Together they tell whether anything changed. Numbers grow with the commits inside a namespace; numbers
    of other namespaces say nothing about it.
    """
    generation, seq = db.execute(
        "SELECT (SELECT value FROM settings WHERE name='life'), (SELECT max(seq) FROM log WHERE namespace=?)",
        (namespace,),
    ).fetchone()
    return generation or "", seq or 0


def last_seq(db: Database) -> int:
    """Return the sequence number of the newest change."""
    return int(db.execute("SELECT coalesce(max(seq), 0) FROM log").fetchone()[0])


def decode_row(db: Database, row: Sequence[Any], scope: Scope | None = None) -> Entry:
    """Return the entry of a row of `ENTRY_COLUMNS`; what an index or a column misplaced is not in `scope`.

    The checksum is that of the body, plus status and times, so that one statement changes both.

    Raises:
        Corrupted: The row is damaged, or not in the scope.
    """
    id, body, live, changed, written, stored = row
    try:
        if stored is not None and crc32(body) + live + changed + written != stored:
            raise records.damaged(db.name, "entry", id)
        entry = records.decode_entry(body)
        if stored is None and (
            type(entry.content) is not str
            or semantics.is_superseded(live) != (entry.superseded_by is not None)
        ):
            raise records.damaged(db.name, "entry", id)
    except records.DECODE_ERRORS as error:
        raise records.damaged(db.name, "entry", id) from error
    if entry.id != id or (scope is not None and not scope.contains(entry)):
        problem = f"has entry {entry.id!r} under the columns of another"
        raise Corrupted(db.name, problem, records.REPAIR_REMEDY, id=entry.id)
    if live >= semantics.STALE:
        set_field(entry, "stale", True)
    return entry


def decode_rows(db: Database, found: Iterable[Sequence[Any]], scope: Scope | None = None) -> Iterator[Entry]:
    """Yield the entries of rows; damaged ones are left out, and logged."""
    for row in found:
        try:
            yield decode_row(db, row, scope)
        except Corrupted as error:
            log_damage(error)


def log_damage(error: Corrupted) -> None:
    """Log that a damaged value was left out."""
    _log.warning("%s", error)


SELECT_VERSIONS = "SELECT no, rev, changed, body, checksum FROM versions"


def version_checksum(no: int, rev: int, changed: int, body: bytes) -> int:
    """Return the checksum of an older version."""
    return records.checksum((no, rev, changed), body)


def decode_version(db: Database, id: str, row: Sequence[Any]) -> Entry:
    """Return the entry of a row of `no, rev, changed, body, checksum` of `versions`.

    Raises:
        Corrupted: The row is damaged.
    """
    no, rev, changed, body, stored = row
    try:
        entry = records.decode_entry(body)
        if stored is not None and version_checksum(no, rev, changed, body) != stored:
            raise records.damaged(db.name, f"version {rev} of entry", id)
        if (entry.id, entry.rev) != (id, rev):
            raise records.damaged(db.name, f"version {rev} of entry", id)
    except records.DECODE_ERRORS as error:
        raise records.damaged(db.name, f"version {rev} of entry", id) from error
    return entry


def access_of(count: int, last: int) -> Access:
    """Return the access count of a row; the last use of an imported one may be unknown, or a row damaged."""
    if type(count) is not int or type(last) is not int:
        return Access()
    return Access(count=count, last=None if last < 0 else last)


def find(db: Database, namespace: str, id: str) -> tuple[int, Entry] | None:
    """Return an entry and its number, or None."""
    row = db.execute(_FIND, (namespace, id)).fetchone()
    if row is None:
        return None
    entry = decode_row(db, row[1:], Scope(namespace=namespace))
    if entry.id != id:
        raise records.damaged(db.name, "entry", id)
    return int(row[0]), entry


def find_sound(db: Database, namespace: str, id: str) -> tuple[int, Entry] | None:
    """Return an entry and its number, or None; a damaged one is left out, and logged."""
    try:
        return find(db, namespace, id)
    except Corrupted as error:
        log_damage(error)
    except UnicodeEncodeError:  # an id that is damaged itself names no entry
        log_damage(records.damaged(db.name, "change of entry", id))
    return None


class EntryKey(NamedTuple):
    """What the columns of an entry say, also where its body is damaged; an unknown agent is empty."""

    no: int
    namespace: str
    id: str
    user_id: str | None
    agent_id: str
    session_id: str | None
    project_id: str | None
    rev: int
    live: int

    def is_in(self, scope: Scope) -> bool:
        """Return True if the entry is in a scope."""
        own = (self.namespace, self.user_id, self.agent_id, self.session_id, self.project_id)
        wanted = (scope.namespace, scope.user_id, scope.agent_id, scope.session_id, scope.project_id)
        return all(one in (None, other) for one, other in zip(wanted, own, strict=True))


_LOCATE = """SELECT e.no, e.namespace, e.id, e.user_id, coalesce(o.agent, ''), e.session, e.project,
    e.rev, e.live FROM entries e LEFT JOIN owners o ON o.no = e.owner WHERE """


def locate(db: Database, id: str, scope: Scope) -> EntryKey:
    """Return the columns of an entry of the scope; raise `NotFound` otherwise."""
    row = db.execute(f"{_LOCATE}e.namespace=? AND e.id=?", (scope.namespace, id)).fetchone()
    key = None if row is None else _entry_key(row)
    if key is None or not key.is_in(scope):
        raise semantics.entry_not_found(id, scope)
    return key


def locate_number(db: Database, no: int) -> EntryKey:
    """Return the columns of an entry."""
    return _entry_key(db.execute(f"{_LOCATE}e.no=?", (no,)).fetchone())


def _entry_key(row: Sequence[Any]) -> EntryKey:
    """Return the columns of an entry as values that can be written again."""
    key = EntryKey(*map(writable, row))
    return key if type(key.rev) is int else key._replace(rev=0)


def writable(value: Any) -> Any:
    """Return the value of a column, with question marks for damaged bytes of a text."""
    return value.encode(errors="replace").decode() if isinstance(value, str) else value


def find_slot(db: Database, entry: Entry) -> tuple[int, Entry] | None:
    """Return the entry that fills the slot of another, and its number, or None if the slot is empty."""
    row = _find_slot_row(db, entry)
    if row is None:
        return None
    found = decode_row(db, row[1:])
    if not found.shares_slot(entry):
        raise records.damaged(db.name, "entry", found.id)
    return int(row[0]), found


def _find_slot_row(db: Database, entry: Entry) -> Sequence[Any] | None:
    owner = None if entry.key is None else owner_of(db, entry.namespace, entry.agent_id)
    if owner is None:
        return None
    place = (owner, entry.key, entry.user_id or "", entry.session_id or "", entry.project_id or "")
    row: Sequence[Any] | None = db.execute(_FIND_SLOT, place).fetchone()
    return row


def is_place_taken(db: Database, no: int, entry: Entry) -> bool:
    """Return True if a row other than number `no` has the id of an entry, or fills the slot that it fills."""
    found = [db.execute(_FIND, (entry.namespace, entry.id)).fetchone()]
    if entry.fills_slot:
        found.append(_find_slot_row(db, entry))
    return any(row is not None and row[0] != no for row in found)


def get(db: Database, id: str, scope: Scope) -> tuple[int, Entry]:
    """Return an entry of the scope and its number; raise `NotFound` otherwise."""
    try:
        found = find(db, scope.namespace, id)
    except Corrupted:
        locate(db, id, scope)  # in another scope it is not found, damaged or not
        raise
    if found is None or not scope.contains(found[1]):
        raise semantics.entry_not_found(id, scope)
    return found


def batches(keys: Iterable[T], size: int = 500) -> Iterator[list[T]]:
    """Split keys into batches that fit into one statement."""
    batch = []
    for key in keys:
        batch.append(key)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch


class EmbeddingModel(NamedTuple):
    """An embedder with a slot for its vectors."""

    slot: int
    name: str
    dim: int
    serving: bool


def serving_model(db: Database) -> EmbeddingModel | None:
    """Return the embedder whose vectors answer queries."""
    return next((model for model in list_models(db) if model.serving), None)


def model_of(db: Database, embedder: Embedder | None) -> EmbeddingModel | None:
    """Return the slot of an embedder if it serves."""
    if embedder is None:
        return None
    row = db.execute(
        "SELECT slot FROM models WHERE name=? AND dim=? AND serving=1", (embedder.name, embedder.dim)
    ).fetchone()
    return None if row is None else EmbeddingModel(int(row[0]), embedder.name, embedder.dim, True)


def list_models(db: Database) -> list[EmbeddingModel]:
    """Return all embedders that have a slot."""
    cursor = db.execute("SELECT slot, name, dim, serving FROM models ORDER BY slot")
    return [EmbeddingModel(slot, name, dim, bool(is_serving)) for slot, name, dim, is_serving in cursor]


def other_model(db: Database, embedder: Embedder | None) -> EmbeddingModel | None:
    """Return the embedder that a store is bound to, if it is another than this one."""
    current = serving_model(db)
    if embedder is None or current is None or (current.name, current.dim) == (embedder.name, embedder.dim):
        return None
    return None if db.execute("SELECT 1 FROM vectors LIMIT 1").fetchone() is None else current


def claim_model(db: Database, embedder: Embedder | None) -> EmbeddingModel | None:
    """Return the slot of an embedder.

    A store without vectors adopts it; None means that another embedder serves.
    """
    found = model_of(db, embedder)
    if found is not None:
        return found
    if embedder is None or other_model(db, embedder) is not None:
        return None  # it stays so until the end of the transaction, which holds `VECTORS_LOCK`
    db.lock(MODELS_LOCK)
    found = model_of(db, embedder)  # another process may have been faster
    if found is not None:
        return found
    if serving_model(db) is not None:  # the serving embedder may be about to store a first vector
        db.lock(VECTORS_LOCK._replace(shared=False))
    if db.execute("SELECT 1 FROM vectors LIMIT 1").fetchone() is not None:
        return None
    db.execute("DELETE FROM models WHERE serving=1")  # one that is being filled keeps its slot
    renew_generation(db)
    return add_model(db, embedder, serving=True)


def add_model(db: Database, embedder: Embedder, *, serving: bool = False) -> EmbeddingModel:
    """Return a slot for an embedder, the one it had if it has one."""
    models = list_models(db)
    for model in models:
        if (model.name, model.dim) == (embedder.name, embedder.dim):
            return model
    taken = {model.slot for model in models}
    slot = next((slot for slot in range(SLOTS) if slot not in taken), None)
    if slot is None:  # given up half-way, all but one of them
        kept = {slot for (slot,) in db.execute(f"SELECT DISTINCT key % {SLOTS} FROM vectors WHERE given = 1")}
        slot = next((model.slot for model in models if not model.serving and model.slot not in kept), None)
        if slot is None:
            raise StoreFailed(
                "store",
                f"has supplied vectors of {SLOTS - 1} other embedders",
                "reindex it with one of those, or copy it to a new store",
            )
        db.execute("DELETE FROM models WHERE slot=?", (slot,))
    for table in ("vectors", "tokens"):  # whatever lies there is another's
        db.execute(f"DELETE FROM {table} WHERE key % {SLOTS} = ?", (slot,))
    db.execute(
        "INSERT INTO models (slot, name, dim, serving) VALUES (?,?,?,?)",
        (slot, embedder.name, embedder.dim, int(serving)),
    )
    return EmbeddingModel(slot, embedder.name, embedder.dim, serving)


def activate_model(db: Database, model: EmbeddingModel) -> None:
    """Let an embedder serve; `delete_replaced_vectors` then deletes those of all others."""
    db.execute("UPDATE models SET serving = CASE WHEN slot = ? THEN 1 ELSE 0 END", (model.slot,))


def delete_replaced_vectors(db: Database, after: int, limit: int) -> int | None:
    """Delete some vectors of embedders that do not serve; return the last key, None if there are no more.

    Supplied vectors stay under the embedder that they belong to: they cannot be computed anew.
    """
    current = serving_model(db)
    if current is None:
        return None
    replaced = f"key > ? AND key % {SLOTS} != ? AND given = 0"
    found = db.execute(
        f"SELECT key FROM vectors WHERE {replaced} ORDER BY key LIMIT ?", (after, current.slot, limit)
    ).fetchall()
    if not found:
        kept = f"SELECT DISTINCT key % {SLOTS} FROM vectors WHERE given = 1"
        db.execute(f"DELETE FROM models WHERE serving = 0 AND slot NOT IN ({kept})")
        return None
    last = int(found[-1][0])
    key_range = (after, last, current.slot)
    db.execute(f"DELETE FROM tokens WHERE key > ? AND key <= ? AND key % {SLOTS} != ?", key_range)
    db.execute(
        f"DELETE FROM vectors WHERE key > ? AND key <= ? AND key % {SLOTS} != ? AND given = 0", key_range
    )
    return last


def put_vectors(
    db: Database, no: int, model: EmbeddingModel, indexed: IndexData, *, fresh: bool = False
) -> None:
    """Store the vectors of an entry; a computed vector never replaces a supplied one."""
    key = no * SLOTS + model.slot
    if indexed.pooled is None:
        return
    if not indexed.given and not fresh and given_vector(db, key) is not None:
        return
    vector: tuple[object, ...] = (key, indexed.pooled, int(indexed.given))
    if db.dialect.stores_codes:
        from omoide.embedders.vectors import to_bit_string  # needs NumPy, as every embedder does

        db.execute(_PUT_CODED_VECTOR, (*vector, to_bit_string(indexed.pooled, model.dim)))
    else:
        db.execute(_PUT_VECTOR, vector)
    if indexed.tokens is not None:
        db.execute(_PUT_TOKENS, (key, indexed.tokens))


def renew_generation(db: Database) -> None:
    """Start a new generation, which invalidates all caches of the store."""
    put_setting(db, "life", ids.uuid7())


def put_setting(db: Database, name: str, value: str) -> None:
    """Store a setting of the store itself."""
    db.execute(
        "INSERT INTO settings (name, value) VALUES (?,?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )


class SQLDependencyIndex:
    """The statuses and dependencies of the entries of one namespace."""

    def __init__(self, db: Database, namespace: str) -> None:
        self._db = db
        self._namespace = namespace
        self._rows: dict[str, tuple[int, int]] = {}

    def statuses(self, ids: Collection[str]) -> dict[str, int]:
        """Return the status of each of these entries that exists."""
        return self._read_statuses(
            "SELECT id, live, no, rev FROM entries WHERE namespace=? AND id IN ({marks})", ids
        )

    def dependents(self, ids: Collection[str]) -> dict[str, int]:
        """Return the entries that currently depend on any of these, with their statuses."""
        return self._read_statuses(
            f"SELECT e.id, e.live, e.no, e.rev FROM supports s {self._db.dialect.join_order_hint}"
            " JOIN entries e ON e.no = s.no WHERE s.namespace=? AND s.id IN ({marks}) AND s.present = 1",
            ids,
        )

    def _read_statuses(self, statement: str, ids: Collection[str]) -> dict[str, int]:
        statuses = {}
        for id, live, no, rev in self._select(statement, ids):
            statuses[id] = live
            self._rows[id] = no, rev
        return statuses

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Yield each of these ids with each id it currently depends on."""
        return self._select(
            f"SELECT e.id, s.id FROM entries e {self._db.dialect.join_order_hint} JOIN supports s"
            " ON s.no = e.no AND s.present = 1 WHERE e.namespace=? AND e.id IN ({marks})",
            ids,
        )

    def invalidated_ids(self, ids: Collection[str]) -> set[str]:
        """Return those that have an `invalidated_by` link."""
        cursor = self._select(
            "SELECT source FROM links WHERE namespace=? AND source IN ({marks})"
            f" AND relation='{INVALIDATED_BY}'",
            ids,
        )
        return {id for (id,) in cursor}

    def erased_ids(self, ids: Collection[str]) -> set[str]:
        """Return those that have a tombstone."""
        cursor = self._select("SELECT id FROM tombstones WHERE namespace=? AND id IN ({marks})", ids)
        return {id for (id,) in cursor}

    def _select(self, statement: str, ids: Collection[str]) -> Iterator[Any]:
        for batch in batches(ids):
            marks = ",".join("?" * len(batch))
            yield from self._db.execute(statement.format(marks=marks), (self._namespace, *batch))

    def save_statuses(self, changed: Mapping[str, int], now: int) -> None:
        """Store new statuses of entries that were read before, and log the transitions."""
        transitions = [(*self._rows[id], id, live) for id, live in changed.items()]
        self._db.executemany(
            "UPDATE entries SET checksum = checksum - live + ?, live=? WHERE no=?",
            sorted((live, live, no) for no, _, _, live in transitions),
        )
        self._db.executemany(
            "INSERT INTO log (namespace, id, no, op, rev, at) VALUES (?,?,?,?,?,?)",
            [
                (self._namespace, id, no, "stale" if live >= STALE else "current", rev, now)
                for no, rev, id, live in transitions
            ],
        )


def propagate(db: Database, namespace: str, was_out: Mapping[str, bool], now: int) -> Mapping[str, int]:
    """Update the statuses of everything that depends on changed entries; return the new statuses."""
    ledger = SQLDependencyIndex(db, namespace)
    changed = semantics.propagate(ledger, was_out)
    if changed:
        ledger.save_statuses(changed, now)
    return changed


def is_premise(db: Database, namespace: str, id: str) -> bool:
    """Return True if any entry currently depends on this one."""
    cursor = db.execute(
        "SELECT 1 FROM supports WHERE namespace=? AND id=? AND present = 1 LIMIT 1", (namespace, id)
    )
    return cursor.fetchone() is not None


def has_stale_reason(db: Database, no: int) -> bool:
    """Return True if an entry depends on anything that is out."""
    cursor = db.execute(
        "SELECT 1 FROM supports s LEFT JOIN entries p ON p.namespace = s.namespace AND p.id = s.id"
        " WHERE s.no=? AND s.present = 1 AND CASE WHEN p.no IS NOT NULL THEN p.live != ? ELSE EXISTS"
        " (SELECT 1 FROM tombstones t WHERE t.namespace = s.namespace AND t.id = s.id) END LIMIT 1",
        (no, LIVE),
    )
    return cursor.fetchone() is not None


def is_erased(db: Database, namespace: str, id: str) -> bool:
    """Return True if an entry of this id was ever erased."""
    cursor = db.execute("SELECT 1 FROM tombstones WHERE namespace=? AND id=? LIMIT 1", (namespace, id))
    return cursor.fetchone() is not None


def stale_transitions(
    db: Database, condition: str, parameters: Iterable[Any]
) -> dict[int, list[StaleTransition]]:
    """Return when entries became stale or current, by row number; erased entries have none."""
    transitions: dict[int, list[StaleTransition]] = {}
    for no, op, rev, at in db.execute(
        f"SELECT no, op, rev, at FROM log WHERE {_TRANSITION_OPS} AND no {condition} ORDER BY seq",
        [*parameters],
    ):
        if op == "erase":
            transitions.pop(no, None)  # the number may be another's now
        else:
            transitions.setdefault(no, []).append(StaleTransition(rev, at, op == "stale"))
    return transitions


def stale_ids(db: Database, namespace: str) -> set[str]:
    """Return the ids that have to be stale, computed from dependencies alone."""
    dependents: dict[str, list[str]] = {}
    for premise, id in db.execute(
        "SELECT s.id, e.id FROM supports s JOIN entries e ON e.no = s.no"
        " WHERE s.namespace=? AND s.present = 1",
        (namespace,),
    ):
        dependents.setdefault(premise, []).append(id)
    ledger = SQLDependencyIndex(db, namespace)
    statuses = ledger.statuses(dependents)
    erased = ledger.erased_ids([id for id in dependents if id not in statuses])
    superseded = {id for id, live in statuses.items() if semantics.is_superseded(live)}
    cursor = db.execute(
        f"SELECT DISTINCT source FROM links WHERE namespace=? AND relation='{INVALIDATED_BY}'", (namespace,)
    )
    invalidated = {id for (id,) in cursor}
    return invalidated | semantics.reachable([*invalidated, *superseded, *erased], dependents)


def check_staleness(db: Database) -> list[str]:
    """Return the namespaces whose stored statuses differ from the computed ones."""
    problems = []
    for (namespace,) in db.execute("SELECT DISTINCT namespace FROM owners").fetchall():
        cursor = db.execute("SELECT id FROM entries WHERE namespace=? AND live >= ?", (namespace, STALE))
        differing = {id for (id,) in cursor} ^ stale_ids(db, namespace)
        if differing:
            problems.append(
                f"entries that are stale and should not be, or the other way round: {len(differing)}"
            )
    return problems


def migrate_staleness(db: Database, version: int) -> None:
    """Compute the staleness of entries in a file from before schema 3."""
    if not 0 < version < _STALE_SCHEMA:
        return
    entries = db.execute("SELECT no, body FROM entries WHERE no IN (SELECT no FROM supports)").fetchall()
    for no, body in entries:
        with suppress(*records.DECODE_ERRORS):  # damage is not found here
            update_premises(db, records.decode_entry(body), no)
    for (namespace,) in db.execute("SELECT DISTINCT namespace FROM owners").fetchall():
        ids = sorted(stale_ids(db, namespace))
        ledger = SQLDependencyIndex(db, namespace)
        statuses = ledger.statuses(ids)
        ledger.save_statuses(
            {id: STALE if statuses[id] == LIVE else SUPERSEDED_AND_STALE for id in ids}, clock.now()
        )


def load_document(db: Database, kind: str, id: str, scope: Scope) -> Document | None:
    """Return a document with its log, or None."""
    row = _find_document(db, kind, id, scope)
    if row is None:
        return None
    body = db.execute(f"{SELECT_DOCUMENTS} WHERE no=?", (row[0],)).fetchone()
    log = db.execute(
        "SELECT document, n, body, checksum FROM document_log WHERE document=? ORDER BY n", (row[0],)
    ).fetchall()
    if [item[1] for item in log] != [*range(1, body[-1] + 1)]:  # read by another way than the number of them
        raise records.damaged(db.name, f"log of {kind}", id)
    return decode_document(db, body, tuple(decode_log_item(db, kind, id, item) for item in log))


DOCUMENT_COLUMNS = "namespace, kind, id, user_id, agent, session, rev, at, body, checksum"


LOG_FACTOR = 7_919
"""How much each item of its log adds to the checksum of a document; no damaged byte adds a multiple."""
SELECT_DOCUMENTS = f"""SELECT {DOCUMENT_COLUMNS},
    (SELECT coalesce(max(n), 0) FROM document_log WHERE document_log.document = documents.no)
    FROM documents"""


def document_checksum(owner: Sequence[Any], rev: int, at: int, body: bytes, items: int) -> int:
    """Return the checksum of a document: of its owner and body, plus what each append changes."""
    return records.checksum(owner, body) + rev + at + LOG_FACTOR * items


def log_checksum(document: int, n: int, body: bytes) -> int:
    """Return the checksum of an item of a document's log."""
    return records.checksum((document, n), body)


def decode_document(db: Database, row: Sequence[Any], log: tuple[Any, ...] = ()) -> Document:
    """Return the document of a row of `SELECT_DOCUMENTS`; raise `Corrupted` if it is damaged."""
    namespace, kind, id, user, agent, session, rev, at, body, stored, items = row
    try:
        if stored is not None and document_checksum(row[:6], rev, at, body, items) != stored:
            raise records.damaged(db.name, kind, id)
        return Document(
            kind=kind,
            id=id,
            namespace=namespace,
            user_id=user,
            agent_id=agent,
            session_id=session,
            rev=rev,
            updated_at=at,
            body=codec.decode(body, codec.Frozen),
            log=log,
        )
    except records.DECODE_ERRORS as error:
        raise records.damaged(db.name, kind, id) from error


def decode_log_item(db: Database, kind: str, id: str, row: Sequence[Any]) -> Any:
    """Return an item of a document's log; raise `Corrupted` if it is damaged."""
    document, n, body, stored = row
    try:
        if stored is not None and log_checksum(document, n, body) != stored:
            raise records.damaged(db.name, f"log of {kind}", id)
        return codec.decode(body, codec.Frozen)
    except records.DECODE_ERRORS as error:
        raise records.damaged(db.name, f"log of {kind}", id) from error


def _insert_log(db: Database, document: int, first: int, items: Iterable[Any]) -> None:
    bodies = ((n, codec.encode(item)) for n, item in enumerate(items, first))
    db.executemany(
        "INSERT INTO document_log (document, n, body, checksum) VALUES (?,?,?,?)",
        [(document, n, body, log_checksum(document, n, body)) for n, body in bodies],
    )


def save_document(db: Database, document: Document, expected_rev: int | None, now: int) -> Document:
    """Replace a document and its log."""
    namespace_scope = Scope(namespace=document.namespace)
    row = _find_document(db, document.kind, document.id, namespace_scope)
    rev = 0 if row is None else row[4]
    if row is not None and row[1:4] != (document.user_id, document.agent_id, document.session_id):
        raise IdTaken(document.id)
    check_revision(_document_name(document.kind, document.id), expected_rev, rev)
    body = codec.encode(document.body)
    owner = (
        document.namespace, document.kind, document.id,
        document.user_id, document.agent_id, document.session_id,
    )  # fmt: skip
    checksum = document_checksum(owner, rev + 1, now, body, len(document.log))
    values = (rev + 1, now, body, checksum)
    if row is None:
        ((no,),) = db.execute(
            f"INSERT INTO documents ({DOCUMENT_COLUMNS}) VALUES (?,?,?,?,?,?,?,?,?,?) RETURNING no",
            (*owner, *values),
        ).fetchall()
    else:
        no = row[0]
        db.execute("UPDATE documents SET rev=?, at=?, body=?, checksum=? WHERE no=?", (*values, no))
        db.execute("DELETE FROM document_log WHERE document=?", (no,))
    _insert_log(db, no, 1, document.log)
    return document.replace(rev=rev + 1, updated_at=now)


def append_to_document(
    db: Database,
    kind: str,
    id: str,
    entries: Iterable[Any],
    scope: Scope,
    expected_rev: int | None,
    now: int,
) -> int:
    """Append to the log of a document; return the new revision."""
    row = _find_document(db, kind, id, scope)
    if row is None:
        raise NotFound(kind, id, "save the document first")
    no, rev = row[0], row[4]
    check_revision(_document_name(kind, id), expected_rev, rev)
    first = db.execute("SELECT coalesce(max(n), 0) + 1 FROM document_log WHERE document=?", (no,)).fetchone()[
        0
    ]
    added = [*entries]
    _insert_log(db, no, first, added)
    db.execute(
        "UPDATE documents SET checksum = checksum - rev - at + ?, rev=?, at=? WHERE no=?",
        (rev + 1 + now + LOG_FACTOR * len(added), rev + 1, now, no),
    )
    return rev + 1


def claim_lease(
    db: Database, place: str, kind: str, id: str, scope: Scope, owner: str, ttl_ms: int, now: int
) -> Lease | None:
    """Acquire or renew the lease of a document; return None while another owner holds it."""
    _check_claimable(db, kind, id, scope)
    key = (scope.namespace, kind, id)
    row = db.execute(
        "SELECT owner, until, token, ttl FROM leases WHERE namespace=? AND kind=? AND id=?", key
    ).fetchone()
    held = None if row is None else Lease(owner=row[0], until=row[1], token=row[2], ttl=row[3])
    lease = semantics.claim_lease(held, (place, *key), owner, ttl_ms, now)
    if lease is not None:
        db.execute(
            "INSERT INTO leases (namespace, kind, id, owner, until, token, ttl) VALUES (?,?,?,?,?,?,?)"
            " ON CONFLICT (namespace, kind, id) DO UPDATE SET owner = excluded.owner,"
            " until = excluded.until, token = excluded.token, ttl = excluded.ttl",
            (*key, owner, lease.until, lease.token, lease.ttl),
        )
    return lease


def release_lease(db: Database, kind: str, id: str, scope: Scope, owner: str) -> bool:
    """Release a lease; its token stays, so that the next owner gets a higher one."""
    _check_claimable(db, kind, id, scope)
    cursor = db.execute(
        "UPDATE leases SET until=0 WHERE namespace=? AND kind=? AND id=? AND owner=? AND until > 0",
        (scope.namespace, kind, id, owner),
    )
    return cursor.rowcount > 0


def _check_claimable(db: Database, kind: str, id: str, scope: Scope) -> None:
    """Allow claims of documents that do not exist yet, but not of those outside the scope."""
    if (
        _find_document(db, kind, id, scope) is None
        and _find_document(db, kind, id, Scope(namespace=scope.namespace)) is not None
    ):
        raise NotFound(kind, id, f"check the id, and the scope that was searched: {scope.describe()}")


def _find_document(db: Database, kind: str, id: str, scope: Scope) -> DocumentRow | None:
    row: DocumentRow | None = db.execute(
        "SELECT no, user_id, agent, session, rev FROM documents WHERE namespace=? AND kind=? AND id=?",
        (scope.namespace, kind, id),
    ).fetchone()
    if row is None:
        return None
    owner = zip((scope.user_id, scope.agent_id, scope.session_id), row[1:4], strict=True)
    return row if all(wanted in (None, own) for wanted, own in owner) else None


def _document_name(kind: str, id: str) -> str:
    return f"{kind} {id!r}"


def is_index_current(db: Database) -> bool:
    """Return True if the stored terms are those of this version of Omoide."""
    row = db.execute("SELECT value FROM settings WHERE name='features'").fetchone()
    return row is None or row[0] == str(FEATURES_VERSION)
