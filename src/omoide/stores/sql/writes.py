"""Write, link, import and erase entries.

Everything happens inside one transaction of the caller: row, terms, vectors, links and log together.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from omoide.core.entry import Entry, Scope, WriteRequest, WriteResult
from omoide.core.value import check_revision
from omoide.errors import Corrupted, KeyReused
from omoide.retrieval.text import split_features
from omoide.stores import records, semantics
from omoide.stores.records import PINS_KIND, Access, EraseReceipt, IndexData, Link, index_entry
from omoide.stores.sql import rows
from omoide.stores.sql.database import SLOTS, Database
from omoide.stores.sql.rows import EmbeddingModel


def link(db: Database, new: Link, scope: Scope, now: int) -> Link:
    """Store a link between two entries of the scope."""
    source = rows.get(db, new.source, scope)
    rows.get(db, new.target, scope)
    link = insert_link(db, new, scope.namespace, source, now)
    _propagate_link(db, new, scope, source[1], now)
    return link


def insert_link(db: Database, link: Link, namespace: str, source: tuple[int, Entry], now: int) -> Link:
    """Store a link between entries that are known to exist."""
    key = (namespace, link.source, link.relation, link.target)
    known = db.execute(
        "SELECT at FROM links WHERE namespace=? AND source=? AND relation=? AND target=?", key
    ).fetchone()
    if known is not None:
        return link.replace(created_at=known[0])
    db.execute(
        "INSERT INTO links (namespace, source, relation, target, at) VALUES (?,?,?,?,?)",
        (*key, link.created_at),
    )
    rows.log_change(db, source[1], source[0], "link", now)
    return link


def unlink(db: Database, old: Link, scope: Scope, now: int) -> bool:
    """Delete a link; return False if it did not exist."""
    no, entry = rows.get(db, old.source, scope)
    rows.get(db, old.target, scope)
    cursor = db.execute(
        "DELETE FROM links WHERE namespace=? AND source=? AND relation=? AND target=?",
        (scope.namespace, old.source, old.relation, old.target),
    )
    if cursor.rowcount == 0:
        return False
    rows.log_change(db, entry, no, "unlink", now)
    _propagate_link(db, old, scope, entry, now)
    return True


def _propagate_link(db: Database, link: Link, scope: Scope, source: Entry, now: int) -> None:
    """Update staleness after an `invalidated_by` link changed."""
    if link.relation == semantics.INVALIDATED_BY:
        rows.propagate(db, scope.namespace, {source.id: semantics.status_of(source) != semantics.LIVE}, now)


def links(db: Database, id: str, scope: Scope, relation: str | None) -> list[Link]:
    """Return the links of an entry whose other end is in the scope, oldest first."""
    rows.get(db, id, scope)
    rows_found = db.execute(
        "SELECT source, relation, target, at FROM links WHERE namespace=? AND source=?"
        " UNION SELECT source, relation, target, at FROM links WHERE namespace=? AND target=?"
        " ORDER BY at, source, relation, target",
        (scope.namespace, id, scope.namespace, id),
    ).fetchall()
    visible = []
    for source, name, target, at in rows_found:
        other = rows.find_sound(db, scope.namespace, target if source == id else source)
        if relation in (None, name) and other is not None and scope.contains(other[1]):
            visible.append(Link(source=source, relation=name, target=target, created_at=at))
    return visible


class WriteBatch:
    """Writes in one transaction; postings are inserted together, in index order."""

    def __init__(self, db: Database, *, model: EmbeddingModel | None, limit: int | None, now: int) -> None:
        self._db = db
        self._model = model
        self._limit = limit
        self._now = now
        self._first_seq = self._seq = rows.last_seq(db)
        self._postings: list[tuple[int, int, int, int]] = []
        self._propagated = False

    def write(self, request: WriteRequest, indexed: IndexData) -> WriteResult:
        """Write an entry and return the outcome."""
        if request.idempotency_key is None:
            return self._write(request, indexed)
        db, namespace, print_ = self._db, request.entry.namespace, semantics.request_fingerprint(request)
        key = semantics.receipt_keys(request)[0]
        known = _stored_result(db, request, print_, self._now)
        if known is not None:
            return known
        result = self._write(request, indexed)
        db.execute(
            "INSERT INTO receipts (namespace, key, print, id, rev, outcome, at, superseded)"
            " VALUES (?,?,?,?,?,?,?,?) ON CONFLICT (namespace, key) DO UPDATE SET"
            " print = excluded.print, id = excluded.id, rev = excluded.rev,"
            " outcome = excluded.outcome, at = excluded.at, superseded = excluded.superseded",
            (
                namespace,
                key,
                print_,
                result.entry.id,
                result.entry.rev,
                result.outcome,
                self._now,
                result.metadata.get("superseded"),
            ),
        )
        db.execute(
            "DELETE FROM receipts WHERE (namespace, key) IN"
            f" (SELECT namespace, key FROM receipts WHERE at < ? {db.dialect.skip_locked})",
            (self._now - semantics.KEY_LIFETIME_MS,),
        )
        return result

    def import_entry(self, entry: Entry, indexed: IndexData) -> int:
        """Insert a new entry unchanged, unless a newer one fills its slot; return its row number."""
        if entry.fills_slot:
            holder = rows.find_slot(self._db, entry)
            if holder is not None:
                entry, replaced = semantics.decide_import(entry, holder[1], self._now)
                if replaced is not None:
                    self._replace(holder, entry)
        return self._insert(entry, indexed)

    def _insert(self, entry: Entry, indexed: IndexData) -> int:
        """Insert a new entry, whose first revision here may be a later one; return its row number."""
        no = self._save(entry, None, indexed)
        if entry.rev != 1:
            self._db.execute("UPDATE entries SET first=? WHERE no=?", (entry.rev, no))
        return no

    def flush_postings(self) -> None:
        """Insert the collected postings."""
        if self._postings:
            rows.insert_postings(self._db, self._postings)
            self._postings = []

    def _write(self, request: WriteRequest, indexed: IndexData) -> WriteResult:
        """Write an entry without looking at its idempotency key."""
        new = request.entry
        existing, holder = rows.find(self._db, new.namespace, new.id), rows.find_slot(self._db, new)
        outcome, entry = self._decide(request, existing, holder, indexed)
        if outcome == "duplicate_of":
            return semantics.write_result(request, entry, outcome)
        replaced = None
        if outcome == "stored":
            replaced = semantics.replaced_value(entry, None if holder is None else holder[1])
            if holder is not None and replaced is not None:
                self._replace(holder, entry)
                existing = rows.find(self._db, new.namespace, new.id)  # it may derive from what it replaces
            self._store(entry, existing, indexed)
        if request.supersedes is not None:
            self.flush_postings()
            self._propagated = True
            owned = semantics.owner_scope(entry)
            supersede(self._db, request.supersedes, owned, by=entry.id, now=self._now)
            self._seq = rows.last_seq(self._db)
        superseded = semantics.superseded_id(request, replaced)
        if superseded is not None:
            outcome = "superseded"
        if self._limit is not None:
            check_session(self._db, entry, self._limit)
        return semantics.write_result(request, entry, outcome, superseded)

    def _decide(
        self,
        request: WriteRequest,
        existing: tuple[int, Entry] | None,
        holder: tuple[int, Entry] | None,
        indexed: IndexData,
    ) -> semantics.WriteDecision:
        """Decide what a write does, given the entry under its id and the one that fills its slot."""
        new = request.entry
        # The holder of a slot is the only duplicate that a value can have.
        if request.dedupe and existing is None and request.supersedes is None and new.key is None:
            duplicate = _find_duplicate(self._db, new, self._now)
            if duplicate is not None:
                return semantics.WriteDecision("duplicate_of", duplicate)
        by = semantics.successor_id(new)
        successor = None if by is None else rows.find(self._db, new.namespace, by)
        return semantics.decide_write(
            request,
            None if existing is None else existing[1],
            vector_changed=existing is not None
            and indexed.given
            and self._is_new_vector(existing[0], indexed),
            holder=None if holder is None else holder[1],
            successor=None if successor is None else successor[1],
            now=self._now,
        )

    def _store(self, entry: Entry, existing: tuple[int, Entry] | None, indexed: IndexData) -> None:
        """Store a new entry or revision, and update what depends on it."""
        if existing is None:
            self._propagate_new(entry, self._insert(entry, indexed))
            return
        no, before = existing
        entry = semantics.replace_unchecked(entry, stale=before.stale)
        self._save(entry, no, indexed, keep_given=before.content == entry.content)
        if semantics.premises(entry) != semantics.premises(before):
            self._propagate(entry.namespace, entry.id, was_out=semantics.status_of(before) != semantics.LIVE)

    def _replace(self, holder: tuple[int, Entry], by: Entry) -> None:
        """Supersede the value of a slot, before the next one is stored: the index admits one at a time."""
        self.flush_postings()
        self._propagated = True
        _replace(self._db, holder, by, self._now)
        self._seq = rows.last_seq(self._db)

    def _propagate_new(self, entry: Entry, no: int) -> None:
        """Update staleness after an insert; most often nothing depends on the entry."""
        db, namespace, id = self._db, entry.namespace, entry.id
        if rows.is_premise(db, namespace, id) or (
            semantics.premises(entry) and rows.has_stale_reason(db, no)
        ):
            self._propagate(namespace, id, was_out=rows.is_erased(db, namespace, id))

    def _propagate(self, namespace: str, id: str, *, was_out: bool) -> None:
        self._propagated = True
        rows.propagate(self._db, namespace, {id: was_out}, self._now)
        self._seq = rows.last_seq(self._db)

    def with_current_status(self, results: list[WriteResult]) -> list[WriteResult]:
        """Return the results with the staleness that entries have after the whole batch."""
        if not self._propagated:
            return results
        transitions = self._db.execute(
            "SELECT 1 FROM log WHERE seq > ? AND op IN ('stale', 'current') LIMIT 1", (self._first_seq,)
        )
        return results if transitions.fetchone() is None else [*map(self._with_status, results)]

    def _with_status(self, result: WriteResult) -> WriteResult:
        """Return a result with the current staleness of its entry."""
        stored = rows.find(self._db, result.entry.namespace, result.entry.id)
        if stored is None or stored[1].stale == result.entry.stale:
            return result
        return semantics.write_result(
            result.request,
            semantics.replace_unchecked(result.entry, stale=stored[1].stale),
            result.outcome,
            result.metadata.get("superseded"),
        )

    def _is_new_vector(self, no: int, indexed: IndexData) -> bool:
        """Return True if a supplied vector differs from the stored one."""
        model = self._model
        return model is not None and rows.given_vector(self._db, no * SLOTS + model.slot) != indexed.pooled

    def _save(self, entry: Entry, no: int | None, indexed: IndexData, *, keep_given: bool = False) -> int:
        """Insert or update the row of an entry with its index data; return its number."""
        db = self._db
        self._seq += 1
        owner = rows.make_owner(db, entry.namespace, entry.agent_id)
        row = rows.entry_columns(entry, owner, self._now, self._seq, indexed)
        fresh = no is None
        if no is None:
            no = rows.insert(db, row)
        else:
            self.flush_postings()
            archive_version(db, no)
            rows.update(db, no, row)
            rows.delete_vectors(db, no, keep_given=keep_given and not indexed.given)
        if entry.superseded_by is None:
            self._postings += indexed.postings(owner, no)
        if self._model is not None:
            rows.put_vectors(db, no, self._model, indexed, fresh=fresh)
        if entry.evidence or entry.rev > 1:
            rows.update_premises(db, entry, no)
        rows.log_change(db, entry, no, "write", self._now)
        return no


def check_session(db: Database, entry: Entry, limit: int) -> None:
    """Raise `Invalid` if the session of an entry is over its limit."""
    if entry.session_id is None:
        return
    session = semantics.owner_scope(entry).replace(session_id=entry.session_id)
    inside, parameters = rows.scope_condition(db, session) or ("1=0", [])
    (count,) = db.execute(f"SELECT count(*) FROM entries WHERE {inside} AND live=1", parameters).fetchone()
    semantics.check_session(entry.session_id, count, limit)


def check_sessions(db: Database, entries: Sequence[Entry], limit: int | None) -> None:
    """Raise `Invalid` if a session of these entries is over its limit."""
    if limit is not None:
        for entry in {(entry.user_id, entry.agent_id, entry.session_id): entry for entry in entries}.values():
            check_session(db, entry, limit)


def _stored_result(db: Database, request: WriteRequest, fingerprint: bytes, now: int) -> WriteResult | None:
    """Return the result of an earlier request with the same idempotency key, or None."""
    own, older = semantics.receipt_keys(request)
    found = {
        key: rest
        for key, *rest in db.execute(
            "SELECT key, print, id, rev, outcome, superseded FROM receipts"
            " WHERE namespace=? AND key IN (?, ?) AND at >= ?",
            (request.entry.namespace, own, older, now - semantics.KEY_LIFETIME_MS),
        )
    }
    if own in found and found[own][0] != fingerprint:
        raise KeyReused(request.idempotency_key or "")
    row = next((found[key] for key in (own, older) if key in found and found[key][0] == fingerprint), None)
    if row is None:
        return None
    stored = rows.find(db, request.entry.namespace, row[1])
    if stored is None:
        return None
    no, entry = stored
    if entry.rev != row[2]:
        version = db.execute(f"{rows.SELECT_VERSIONS} WHERE no=? AND rev=?", (no, row[2])).fetchone()
        if version is not None:
            entry = semantics.replace_unchecked(rows.decode_version(db, entry.id, version), stale=entry.stale)
    return semantics.write_result(request, entry, row[3], row[4])


def _find_duplicate(db: Database, new: Entry, now: int) -> Entry | None:
    """Return a live entry with the same scope, type and content, or None."""
    cursor = db.execute(
        f"SELECT {rows.ENTRY_COLUMNS} FROM entries WHERE twin=? AND namespace=? AND live=1 ORDER BY no",
        (semantics.content_key(new), new.namespace),
    )
    for entry in rows.decode_rows(db, cursor):
        if semantics.is_duplicate(entry, new, now):
            return entry
    return None


def archive_version(db: Database, no: int) -> None:
    """Copy the current version of an entry to its history, and remove its terms from the index."""
    owner, live, blob, rev, changed, body = db.execute(
        "SELECT owner, live, features, rev, changed, body FROM entries WHERE no=?", (no,)
    ).fetchone()
    db.execute(
        "INSERT INTO versions (no, rev, changed, body, checksum) VALUES (?,?,?,?,?)",
        (no, rev, changed, body, rows.version_checksum(no, rev, changed, body)),
    )
    if not semantics.is_superseded(live):
        rows.delete_postings(db, owner, no, decode_terms(blob))


_NO_TERM = -1
"""Its deletion finds nothing, so that `rows.delete_postings` looks for the terms that an entry has."""


def decode_terms(blob: bytes) -> list[int]:
    """Return the indexed terms stored in a features column; of a damaged one, a term that is in no index."""
    if not isinstance(blob, bytes) or len(blob) < 8:
        return [_NO_TERM]
    terms: list[int] = []
    for part in split_features(blob[: len(blob) // 8 * 8]):
        numbers = array("q")
        numbers.frombytes(part)
        terms += numbers.tolist()[1:]
    return terms


def supersede(
    db: Database,
    id: str,
    scope: Scope,
    *,
    by: str | None,
    reason: str | None = None,
    expected_rev: int | None = None,
    now: int,
) -> Entry:
    """Mark an entry as superseded by another one, or forgotten."""
    no, entry = rows.get(db, id, scope)
    check_revision(f"entry {id!r}", expected_rev, entry.rev)
    other = None if by is None else rows.get(db, by, scope.replace(agent_id=entry.agent_id))[1]
    new = semantics.as_superseded(entry, other, reason, now)
    if entry.superseded_by == new.superseded_by:
        return entry
    return _save_revision(db, no, entry, new, "supersede", now)


def reinstate(db: Database, id: str, scope: Scope, *, expected_rev: int | None, now: int) -> Entry:
    """Make a superseded entry current again."""
    no, entry = rows.get(db, id, scope)
    check_revision(f"entry {id!r}", expected_rev, entry.rev)
    if entry.superseded_by is None:
        return entry
    holder = rows.find_slot(db, entry)
    if holder is not None:
        _replace(db, holder, semantics.as_reinstated(entry), now)
        no, entry = rows.get(db, id, scope)  # its staleness may have changed
    return _save_revision(db, no, entry, semantics.as_reinstated(entry), "restore", now)


def _replace(db: Database, holder: tuple[int, Entry], by: Entry, now: int) -> None:
    """Supersede the value of a slot by the one that is stored next."""
    no, entry = holder
    _save_revision(db, no, entry, semantics.as_replaced(entry, by, now), "supersede", now)


def _save_revision(db: Database, no: int, old: Entry, new: Entry, op: str, now: int) -> Entry:
    """Store a new revision with unchanged content."""
    owner, written = db.execute("SELECT owner, written FROM entries WHERE no=?", (no,)).fetchone()
    archive_version(db, no)
    found = index_entry(new)
    rows.update(db, no, rows.entry_columns(new, owner, now, written, found))
    if new.superseded_by is None:
        rows.insert_postings(db, found.postings(owner, no))
    rows.log_change(db, new, no, op, now)
    changed = rows.propagate(db, new.namespace, {new.id: semantics.status_of(old) != semantics.LIVE}, now)
    # It may depend on itself, through others.
    if new.id not in changed:
        return new
    return semantics.replace_unchecked(new, stale=changed[new.id] >= semantics.STALE)


def save_access(db: Database, counts: Mapping[tuple[int, str], tuple[int, int]]) -> None:
    """Add to the access counts of entries that still exist; keys are their numbers and ids."""
    db.executemany(
        "INSERT INTO access (no, count, last)"
        f" SELECT no, ?, ? FROM entries WHERE no=? AND id=? {db.dialect.key_share_lock}"
        " ON CONFLICT (no) DO UPDATE SET count = access.count + excluded.count,"
        " last = CASE WHEN excluded.last > access.last THEN excluded.last ELSE access.last END",
        [(count, last, no, id) for (no, id), (count, last) in sorted(counts.items())],
    )


UNREACHABLE = (
    "backups made before",
    "exports and copies",
    "graphs that have not caught up",
    "what other programs read",
)


def erase(
    db: Database, scope: Scope, *, id: str | Sequence[str] | None, reason: str | None, now: int
) -> EraseReceipt:
    """Erase one entry or several, or everything in a scope."""
    documents: list[tuple[str, str]] = []
    if id is not None:
        numbers = [rows.locate(db, one, scope).no for one in semantics.unique_ids(id)]
    else:
        numbers = _numbers(db, scope)
        documents = _erase_documents(db, scope)
    transcripts = semantics.remaining_transcripts(_versions(db, numbers), documents)
    erased = [_erase_one(db, no, scope.namespace, reason, now) for no in numbers]
    ids = tuple(entry.id for entry in erased)
    _propagate_erasure(db, scope.namespace, erased, now)
    return EraseReceipt(
        ids=ids,
        versions=sum(entry.versions for entry in erased),
        links=sum(entry.links for entry in erased),
        documents=len(documents),
        at=now,
        reason=reason,
        unreachable=(*_remaining_copies(db, scope, ids), *transcripts, *UNREACHABLE),
    )


def _numbers(db: Database, scope: Scope) -> list[int]:
    inside = rows.scope_condition(db, scope)
    if inside is None:
        return []
    # Of a whole namespace by its column: the owner of a damaged row may be unknown.
    condition = inside[0].replace(rows.ANY_OWNER, "namespace=?")
    found = db.execute(f"SELECT no FROM entries WHERE {condition} ORDER BY no", inside[1])
    return [no for (no,) in found.fetchall()]


def _versions(db: Database, numbers: Sequence[int]) -> Iterator[Entry]:
    """Yield all versions of entries."""
    for no in numbers:
        cursor = db.execute(
            "SELECT rev, body FROM versions WHERE no=? UNION ALL SELECT rev, body FROM entries WHERE no=?"
            " ORDER BY rev",
            (no, no),
        )
        for _, body in cursor:
            with suppress(*records.DECODE_ERRORS):  # a damaged old version does not stand in the way
                yield records.decode_entry(body)


def _remaining_copies(db: Database, scope: Scope, ids: Sequence[str]) -> list[str]:
    """Describe what is left in the store that may repeat erased content."""
    notices, outside = [], 0
    inside, bound = rows.scope_condition(db, scope) or ("1=0", [])
    for id in ids:
        cursor = db.execute(
            f"SELECT e.id, CASE WHEN e.no IN (SELECT no FROM entries WHERE no = e.no AND {inside}) THEN 1"
            " ELSE 0 END FROM supports s JOIN entries e ON e.no = s.no WHERE s.namespace=? AND s.id=?",
            (*bound, scope.namespace, id),
        )
        for other, is_inside in cursor:
            if is_inside:
                notices.append(semantics.derived_entry_notice(other, id))
            else:
                outside += 1
    condition, parameters = "namespace=? AND kind<>?", [scope.namespace, PINS_KIND]
    for column, value in (("user_id", scope.user_id), ("agent", scope.agent_id)):
        if value is not None:
            condition += f" AND ({column} IS NULL OR {column}=?)"
            parameters.append(value)
    (documents,) = db.execute(f"SELECT count(*) FROM documents WHERE {condition}", parameters).fetchone()
    return semantics.remaining_copies(notices, outside, documents)


class _ErasedEntry(NamedTuple):
    """An erased entry, and what was removed with it."""

    id: str
    versions: int
    links: int
    was_out: bool
    sources: list[tuple[str, str]]
    """Ids and relations of the links that led to it."""


def _erase_one(db: Database, no: int, namespace: str, reason: str | None, now: int) -> _ErasedEntry:
    """Erase an entry, damaged or not, and leave a tombstone."""
    entry = rows.locate_number(db, no)
    owner, live, blob, *row = db.execute(
        f"SELECT owner, live, features, {rows.ENTRY_COLUMNS} FROM entries WHERE no=?", (no,)
    ).fetchone()
    try:
        rows.decode_row(db, row)
        is_sound = type(owner) is int
    except Corrupted:
        is_sound = False
    if not is_sound:
        rows.delete_all_postings(db, no)
    elif not semantics.is_superseded(live):
        rows.delete_postings(db, owner, no, decode_terms(blob))
    rows.delete_vectors(db, no)
    versions = db.execute("DELETE FROM versions WHERE no=?", (no,)).rowcount + 1
    sources = db.execute(
        "SELECT source, relation FROM links WHERE namespace=? AND target=?", (namespace, entry.id)
    ).fetchall()
    sources = [(rows.writable(source), relation) for source, relation in sources]
    links = db.execute(
        "DELETE FROM links WHERE namespace=? AND (source=? OR target=?)", (namespace, entry.id, entry.id)
    ).rowcount
    db.execute("DELETE FROM supports WHERE no=?", (no,))
    db.execute("DELETE FROM receipts WHERE namespace=? AND id=?", (namespace, entry.id))
    # The entry before its figures, as others do who note uses, so that no two wait for each other.
    db.execute("DELETE FROM entries WHERE no=?", (no,))
    db.execute("DELETE FROM access WHERE no=?", (no,))
    rows.insert_tombstone(db, entry, entry.id, entry.rev, now, reason)
    rows.log_change(db, entry, no, "erase", now)
    return _ErasedEntry(entry.id, versions, links, live != semantics.LIVE, sources)


def _propagate_erasure(db: Database, namespace: str, erased: Sequence[_ErasedEntry], now: int) -> None:
    """Log the entries that lost a link, and update staleness."""
    was_out = {entry.id: entry.was_out for entry in erased}
    sources = sorted(
        {source_link for entry in erased for source_link in entry.sources if source_link[0] not in was_out}
    )
    for source in sorted({id for id, _ in sources}):
        found = rows.find_sound(db, namespace, source)
        if found is not None:
            rows.log_change(db, found[1], found[0], "unlink", now)
    # Whatever was invalidated was out.
    was_out.update((id, True) for id, relation in sources if relation == semantics.INVALIDATED_BY)
    rows.propagate(db, namespace, was_out, now)


def _erase_documents(db: Database, scope: Scope) -> list[tuple[str, str]]:
    """Erase the documents of a scope; return their kinds and ids.

    Documents belong to a user, an agent and a session, not to a project.
    """
    if scope.project_id is not None:
        return []
    condition, parameters = rows.document_condition(scope)
    found = db.execute(f"SELECT no, kind, id FROM documents WHERE {condition}", parameters).fetchall()
    db.execute(
        f"DELETE FROM leases WHERE (namespace, kind, id) IN"
        f" (SELECT namespace, kind, id FROM documents WHERE {condition})",
        parameters,
    )
    if scope == Scope(namespace=scope.namespace):  # also of what was claimed and never saved
        db.execute("DELETE FROM leases WHERE namespace=?", (scope.namespace,))
    numbers = [(no,) for no, _, _ in found]
    db.executemany("DELETE FROM document_log WHERE document=?", numbers)
    db.executemany("DELETE FROM documents WHERE no=?", numbers)
    return [(kind, id) for _, kind, id in found]


def not_stored(db: Database, entries: Sequence[Entry]) -> list[Entry]:
    """Return the entries that are not stored unchanged."""
    pairs = ((entry, _find_stored(db, entry)) for entry in entries)
    return [entry for entry, existing in pairs if existing is None or not semantics.is_same(entry, existing)]


def _find_stored(db: Database, entry: Entry) -> Entry | None:
    found = rows.find(db, entry.namespace, entry.id)
    return None if found is None else found[1]


def import_entries(
    db: Database, batch: WriteBatch, fresh: Sequence[tuple[Entry, IndexData]], access: Mapping[str, Access]
) -> list[Entry]:
    """Insert imported entries with their access counts; return those that were new."""
    new = []
    for entry, found in fresh:
        if not semantics.is_new(entry, _find_stored(db, entry)):
            continue
        no = batch.import_entry(entry, found)
        new.append(entry)
        used = access.get(entry.id)
        if used is not None and used.count:
            last = -1 if used.last is None else used.last
            db.execute("INSERT INTO access (no, count, last) VALUES (?,?,?)", (no, used.count, last))
    batch.flush_postings()
    return new


def insert_missing_tombstones(
    db: Database, namespace: str, missing: Mapping[str, Entry], now: int
) -> list[str]:
    """Record missing premises as erased if they are not stored here; return their ids."""
    added = []
    for id, entry in missing.items():
        if rows.find(db, namespace, id) is None and not rows.is_erased(db, namespace, id):
            rows.insert_tombstone(db, entry, id, 0, now, semantics.MISSING_PREMISE_REASON)
            added.append(id)
    return added


def propagate_import(
    db: Database,
    namespace: str,
    new: Sequence[Entry],
    links: Sequence[Link],
    missing: Sequence[str],
    now: int,
) -> None:
    """Compute staleness after an import."""
    linked = [link.source for link in links if link.relation == semantics.INVALIDATED_BY]
    was_out = {
        id: live != semantics.LIVE
        for id, live in rows.SQLDependencyIndex(db, namespace).statuses(linked).items()
    }
    was_out.update((entry.id, rows.is_erased(db, namespace, entry.id)) for entry in new)
    was_out.update((id, False) for id in missing)
    rows.propagate(db, namespace, was_out, now)


def import_links(db: Database, namespace: str, links: Sequence[Link], now: int) -> None:
    """Insert imported links; raise `NotFound` if an end is missing."""
    for link in links:
        source = rows.find(db, namespace, link.source)
        if source is None or rows.find(db, namespace, link.target) is None:
            end = link.source if source is None else link.target
            raise semantics.entry_not_found(end, Scope(namespace=namespace))
        insert_link(db, link, namespace, source, now)
