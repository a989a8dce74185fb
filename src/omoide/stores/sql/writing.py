"""How is a write carried out?

Everything here happens inside one transaction of the caller's: row, terms, vectors, links and log together.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.core.writing import WriteRequest, WriteResult
from omoide.errors import Conflict, KeyReused
from omoide.stores import bodies, rules, standing
from omoide.stores.indexing import Indexed, indexed
from omoide.stores.sql import models, rows, truth
from omoide.stores.sql.database import SLOTS, Database
from omoide.stores.sql.models import Model


class Batch:
    """Some writes in one transaction; terms are indexed together, in the order of the index."""

    def __init__(self, db: Database, *, model: Model | None, limit: int | None, now: int) -> None:
        self._db = db
        self._model = model
        self._limit = limit
        self._now = now
        self._first = self._seq = rows.last_seq(db)
        self._terms: list[tuple[int, int, int, int]] = []
        self._settled = False

    def write(self, request: WriteRequest, found: Indexed) -> WriteResult:
        """Keep an entry, and say what became of it."""
        key = request.idempotency_key
        if key is None:
            return self._write(request, found)
        db, namespace, print_ = self._db, request.entry.namespace, rules.fingerprint(request)
        known = _receipt(db, request, key, print_, self._now)
        if known is not None:
            return known
        result = self._write(request, found)
        db.execute(
            "INSERT INTO receipts VALUES (?,?,?,?,?,?,?) ON CONFLICT (namespace, key) DO UPDATE SET"
            " print = excluded.print, id = excluded.id, rev = excluded.rev,"
            " outcome = excluded.outcome, at = excluded.at",
            (namespace, key, print_, result.entry.id, result.entry.rev, result.outcome, self._now),
        )
        db.execute(
            "DELETE FROM receipts WHERE (namespace, key) IN"
            f" (SELECT namespace, key FROM receipts WHERE at < ? {db.words.unless_held})",
            (self._now - rules.KEY_LIFETIME_MS,),
        )
        return result

    def take(self, entry: Entry, found: Indexed) -> int:
        """Keep an entry that is not here exactly as it is; its number."""
        no = self._store(entry, None, found)
        if entry.rev != 1:
            self._db.execute("UPDATE entries SET first=? WHERE no=?", (entry.rev, no))
        return no

    def finish(self) -> None:
        """Index what is still to be indexed."""
        if self._terms:
            rows.post(self._db, self._terms)
            self._terms = []

    def _write(self, request: WriteRequest, found: Indexed) -> WriteResult:
        given = request.entry
        kept = rows.find(self._db, given.namespace, given.id)
        if request.dedupe and kept is None and request.supersedes is None:
            twin = _twin(self._db, given, self._now)
            if twin is not None:
                return rules.receipt(request, twin, "duplicate_of")
        renewed = kept is not None and found.given and self._is_new(kept[0], found)
        outcome, entry = rules.decide(request, None if kept is None else kept[1], renewed=renewed)
        if outcome == "stored":
            same = kept is not None and kept[1].content == entry.content
            no = self._store(entry, None if kept is None else kept[0], found, but_given=same)
            if kept is None:
                self._settle_new(entry, no)
            elif standing.premises(entry) != standing.premises(kept[1]):
                self._settle(entry.namespace, entry.id, was_out=standing.of(kept[1]) != standing.LIVE)
        if request.supersedes is not None:
            self.finish()
            self._settled = True
            agent = Scope(namespace=entry.namespace, agent_id=entry.agent_id)
            supersede(
                self._db,
                request.supersedes,
                agent,
                by=entry.id,
                reason=None,
                expected_rev=None,
                now=self._now,
            )
            self._seq = rows.last_seq(self._db)
            outcome = "superseded"
        if self._limit is not None:
            check_session(self._db, entry, self._limit)
        return rules.receipt(request, entry, outcome)

    def _settle_new(self, entry: Entry, no: int) -> None:
        """Find out whether a new entry is stale, or others are because of it; most often neither."""
        db, namespace, id = self._db, entry.namespace, entry.id
        if truth.is_premise(db, namespace, id) or (standing.premises(entry) and truth.has_reason(db, no)):
            self._settle(namespace, id, was_out=truth.is_erased(db, namespace, id))

    def _settle(self, namespace: str, id: str, *, was_out: bool) -> None:
        self._settled = True
        truth.settle(self._db, namespace, {id: was_out}, self._now)
        self._seq = rows.last_seq(self._db)

    def told(self, results: list[WriteResult]) -> list[WriteResult]:
        """The receipts, each saying whether its entry is stale once all is written."""
        if not self._settled:
            return results
        flipped = self._db.execute(
            "SELECT 1 FROM log WHERE seq > ? AND op IN ('stale', 'current') LIMIT 1", (self._first,)
        )
        return results if flipped.fetchone() is None else [self._retold(result) for result in results]

    def _retold(self, result: WriteResult) -> WriteResult:
        kept = rows.find(self._db, result.entry.namespace, result.entry.id)
        if kept is None or kept[1].stale == result.entry.stale:
            return result
        return rules.receipt(result.request, rules.changed(result.entry, stale=kept[1].stale), result.outcome)

    def _is_new(self, no: int, found: Indexed) -> bool:
        """Whether a vector is another than the one that was given before."""
        model = self._model
        return model is not None and rows.given_vector(self._db, no * SLOTS + model.slot) != found.pooled

    def _store(self, entry: Entry, no: int | None, found: Indexed, *, but_given: bool = False) -> int:
        db = self._db
        self._seq += 1
        owner = rows.make_owner(db, entry.namespace, entry.agent_id)
        row = rows.columns(entry, owner, self._now, self._seq, found)
        fresh = no is None
        if no is None:
            no = rows.insert(db, row)
        else:
            self.finish()
            archive(db, no)
            rows.update(db, no, row)
            rows.drop_vectors(db, no, but_given=but_given and not found.given)
        if entry.superseded_by is None:
            self._terms += found.postings(owner, no)
        if self._model is not None:
            models.put_vectors(db, no, self._model, found, fresh=fresh)
        if entry.evidence or entry.rev > 1:
            rows.support(db, entry, no)
        rows.log(db, entry, no, "write", self._now)
        return no


def check_session(db: Database, entry: Entry, limit: int) -> None:
    """Raise when a session holds more entries than the store allows."""
    if entry.session_id is None:
        return
    owner = rows.owner_of(db, entry.namespace, entry.agent_id)
    (count,) = db.execute(
        "SELECT count(*) FROM entries WHERE owner=? AND session=? AND live=1", (owner, entry.session_id)
    ).fetchone()
    rules.check_session(entry.session_id, count, limit)


def check_sessions(db: Database, entries: Sequence[Entry], limit: int | None) -> None:
    """Raise when one of the sessions of some entries holds too many."""
    if limit is not None:
        for entry in {(entry.agent_id, entry.session_id): entry for entry in entries}.values():
            check_session(db, entry, limit)


def _receipt(db: Database, request: WriteRequest, key: str, print_: bytes, now: int) -> WriteResult | None:
    row = db.execute(
        "SELECT print, id, rev, outcome FROM receipts WHERE namespace=? AND key=? AND at >= ?",
        (request.entry.namespace, key, now - rules.KEY_LIFETIME_MS),
    ).fetchone()
    if row is None:
        return None
    if row[0] != print_:
        raise KeyReused(key)
    kept = rows.find(db, request.entry.namespace, row[1])
    if kept is None:
        return None
    no, entry = kept
    if entry.rev != row[2]:
        body = db.execute("SELECT body FROM versions WHERE no=? AND rev=?", (no, row[2])).fetchone()
        entry = entry if body is None else rules.changed(bodies.unpack(body[0]), stale=entry.stale)
    return rules.receipt(request, entry, row[3])


def _twin(db: Database, given: Entry, now: int) -> Entry | None:
    found = db.execute(
        "SELECT body FROM entries WHERE twin=? AND namespace=? AND live=1 ORDER BY no",
        (rules.content_key(given), given.namespace),
    )
    for (body,) in found:
        entry = bodies.unpack(body)
        if rules.is_twin(entry, given, now):
            return entry
    return None


def archive(db: Database, no: int) -> None:
    """Keep the present version of an entry as an old one, and take its terms out of the index."""
    db.execute("INSERT INTO versions SELECT no, rev, changed, body FROM entries WHERE no=?", (no,))
    owner, live, blob = db.execute("SELECT owner, live, features FROM entries WHERE no=?", (no,)).fetchone()
    if not standing.is_superseded(live):
        rows.unpost(db, owner, no, terms_in(blob))


def terms_in(blob: bytes) -> list[int]:
    """The terms that were indexed, as they were then."""
    numbers = array("q")
    numbers.frombytes(blob)
    return numbers.tolist()[1:]


def supersede(
    db: Database,
    id: str,
    scope: Scope,
    *,
    by: str | None,
    reason: str | None,
    expected_rev: int | None,
    now: int,
) -> Entry:
    """Mark an entry as replaced by another, or by nothing."""
    no, entry = rows.get(db, id, scope)
    Conflict.check(f"entry {id!r}", expected_rev, entry.rev)
    other = (
        None if by is None else rows.get(db, by, Scope(namespace=scope.namespace, agent_id=entry.agent_id))[1]
    )
    new = rules.superseded(entry, other, reason, now)
    if entry.superseded_by == new.superseded_by:
        return entry
    return _changed(db, no, entry, new, "supersede", now)


def restore(db: Database, id: str, scope: Scope, *, expected_rev: int | None, now: int) -> Entry:
    """Bring a superseded entry back."""
    no, entry = rows.get(db, id, scope)
    Conflict.check(f"entry {id!r}", expected_rev, entry.rev)
    if entry.superseded_by is None:
        return entry
    return _changed(db, no, entry, rules.restored(entry), "restore", now)


def _changed(db: Database, no: int, old: Entry, new: Entry, op: str, now: int) -> Entry:
    """Keep a new version whose words are the old ones."""
    owner, written = db.execute("SELECT owner, written FROM entries WHERE no=?", (no,)).fetchone()
    archive(db, no)
    found = indexed(new)
    rows.update(db, no, rows.columns(new, owner, now, written, found))
    if new.superseded_by is None:
        rows.post(db, found.postings(owner, no))
    rows.log(db, new, no, op, now)
    changed = truth.settle(db, new.namespace, {new.id: standing.of(old) != standing.LIVE}, now)
    # It may rest on itself, through others.
    return rules.changed(new, stale=changed[new.id] >= standing.STALE) if new.id in changed else new
