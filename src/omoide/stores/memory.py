"""Reference store in memory.

The store in memory answers, in the plainest way: every other store must do what this one does. It keeps
nothing when the process ends, which is what tests and short-lived programs want.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from threading import RLock
from typing import Any, ClassVar, TypeVar

from omoide import clock, ids
from omoide.core.entry import Entry, Filter, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.core.frozen import EMPTY_MAP, freeze
from omoide.core.value import set_field, shallow_copy
from omoide.embedders import Embedder
from omoide.errors import Closed, Conflict, Erased, IdTaken, KeyReused, NotFound
from omoide.stores import recall as recalling
from omoide.stores import records, semantics, truth, validation
from omoide.stores.codec import IndexData, index_entries, index_with_vector
from omoide.stores.recall import Candidates, QueryEncoder
from omoide.stores.records import (
    Access,
    Change,
    Document,
    EraseReceipt,
    Feed,
    Finding,
    Lease,
    Link,
    Page,
    Query,
    Stats,
    Version,
)
from omoide.stores.state import DocumentKey, LinkKey, MemoryDependencyIndex, StoredEntry, StoreState
from omoide.stores.truth import INVALIDATED_BY, LIVE
from omoide.stores.validation import StoreSettings, validate_arguments

# reference held: What do the parts of the store in memory share?


T = TypeVar("T")


class MemoryHeld:
    """Entries that last as long as the process, and how they are found."""

    def __init__(self, embedder: Embedder | None, settings: StoreSettings) -> None:
        self.embedder = embedder
        self.settings = settings
        self._state = StoreState()
        self._generation = ids.uuid7()
        self._lock = RLock()
        self._closed = False

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._closed = True
            self._state = StoreState()

    def _run_read(self, operation: Callable[[StoreState], T]) -> T:
        """Do something that changes nothing."""
        with self._lock:
            if self._closed:
                raise Closed("memory://", "is closed", "open another; it kept nothing")
            return operation(self._state)

    def _run_write(self, operation: Callable[[StoreState], T], *, rollback: bool = False) -> T:
        """Do something that may change the state; `undo`: it may fail when a part of it is done."""
        with self._lock:
            before = self._state.copy() if rollback else None
            try:
                return self._run_read(operation)
            except BaseException:
                if before is not None:
                    self._state = before
                raise

    def _check_session_limit(self, state: StoreState, entry: Entry) -> None:
        """Raise when the session of an entry holds more than it may."""
        if self.settings.session_limit is not None and entry.session_id is not None:
            session = Scope(namespace=entry.namespace, agent_id=entry.agent_id, session_id=entry.session_id)
            held = [one for one in state.entries_in(session) if one.status == truth.LIVE]
            semantics.check_session(entry.session_id, len(held), self.settings.session_limit)

    def _propagate_status(
        self, state: StoreState, namespace: str, was_out: Mapping[str, bool], now: int
    ) -> None:
        """Bring what rests on some entries in line with how they are now."""
        settled = truth.propagate(MemoryDependencyIndex(state, namespace), was_out)
        held = state.find_many(namespace, settled)
        for id, live in settled.items():
            state.set_stale(held[id], now, stale=live >= truth.STALE)

    def _require_entry(self, state: StoreState, id: str, scope: Scope) -> StoredEntry:
        kept = state.find(scope.namespace, id)
        if kept is None or not scope.contains(kept.entry):
            raise semantics.entry_not_found(id)
        return kept


# reference documents: What does it mean to keep a document, and to claim one?


@validate_arguments
class MemoryDocuments(MemoryHeld):
    """Documents that last as long as the process."""

    def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """A document with what was appended to it, or None."""
        key = _document_key(kind, id, scope)

        def work(state: StoreState) -> Document | None:
            document = _find_document(state, key, scope)
            return None if document is None else _replace_fields(document, log=state.document_log(key))

        return self._run_read(work)

    def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """The documents of a kind after the one called `after`, by their ids, without their logs."""

        def work(state: StoreState) -> list[Document]:
            found = state.documents_of_kind(kind, scope.namespace, after)
            return [*islice((one for one in found if _scope_contains(scope, one)), limit)]

        return self._run_read(work)

    def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace a document."""
        key = (document.namespace, document.kind, document.id)

        def work(state: StoreState) -> Document:
            known = state.find_document(key)
            owner = (document.agent_id, document.session_id)
            if known is not None and (known.agent_id, known.session_id) != owner:
                raise IdTaken(document.id)
            rev = 0 if known is None else known.rev
            Conflict.check(f"{document.kind} {document.id!r}", expected_rev, rev)
            saved = document.replace(rev=rev + 1, updated_at=clock.now())
            state.put_document(key, _replace_fields(saved, log=()), saved.log)
            return saved

        return self._run_write(work)

    def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Add to a document; its new revision."""
        added = [freeze(item, f"entries[{at}]") for at, item in enumerate(entries)]
        key = _document_key(kind, id, scope)

        def work(state: StoreState) -> int:
            known = _find_document(state, key, scope)
            if known is None:
                raise NotFound(kind, id, "save the document first")
            Conflict.check(f"{kind} {id!r}", expected_rev, known.rev)
            new = _replace_fields(known, rev=known.rev + 1, updated_at=clock.now())
            state.append_document(key, new, added)
            return known.rev + 1

        return self._run_write(work)

    def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """The lease of a document, or None while somebody else holds it."""
        now = clock.now()

        def work(state: StoreState) -> Lease | None:
            key = _claimable_key(state, kind, id, scope)
            held = state.find_lease(key)
            if held is not None and held.owner != owner and held.until > now:
                return None
            same = held is not None and held.owner == owner and held.until > now
            token = (0 if held is None else held.token) + (0 if same else 1)
            lease = Lease(owner=owner, until=now + ttl_ms, token=token)
            state.put_lease(key, lease)
            return lease

        return self._run_write(work)

    def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Give a lease back; whether the owner held it."""

        def work(state: StoreState) -> bool:
            key = _claimable_key(state, kind, id, scope)
            held = state.find_lease(key)
            if held is None or held.owner != owner or held.until <= clock.now():
                return False
            state.put_lease(key, held.replace(until=0))
            return True

        return self._run_write(work)

    def _erase_documents(self, state: StoreState, scope: Scope) -> list[tuple[str, str]]:
        """The kinds and ids of what is removed: documents belong to an agent and a session, not a project."""
        if scope.project_id is not None:
            return []
        gone = [
            key
            for key, owner in state.document_owners(scope.namespace).items()
            if _scope_contains(scope, owner)
        ]
        for key in gone:
            state.remove_document(key)
        if scope == Scope(namespace=scope.namespace):  # also of what was claimed and never saved
            state.remove_leases(scope.namespace)
        return [(kind, id) for _, kind, id in gone]


def _document_key(kind: str, id: str, scope: Scope) -> DocumentKey:
    return scope.namespace, kind, id


def _find_document(state: StoreState, key: DocumentKey, scope: Scope) -> Document | None:
    document = state.find_document(key)
    return document if document is not None and _scope_contains(scope, document) else None


def _claimable_key(state: StoreState, kind: str, id: str, scope: Scope) -> DocumentKey:
    """A document may be claimed before it exists, but not where the scope does not hold it."""
    key = _document_key(kind, id, scope)
    known = state.find_document(key)
    if known is not None and not _scope_contains(scope, known):
        raise NotFound(kind, id, "check the id and the scope")
    return key


def _replace_fields(document: Document, **fields: Any) -> Document:
    """A document with fields that are known to be right, so that the others are not looked at again."""
    new = shallow_copy(document)
    for name, value in fields.items():
        set_field(new, name, value)
    return new


def _scope_contains(scope: Scope, document: Document | Scope) -> bool:
    return (
        document.namespace == scope.namespace
        and scope.agent_id in (None, document.agent_id)
        and scope.session_id in (None, document.session_id)
    )


# reference erasing: What does it mean to erase?


@validate_arguments
class MemoryErasing(MemoryDocuments):
    """How entries leave a store in memory."""

    UNREACHABLE: ClassVar[tuple[str, ...]] = ("graphs that have not caught up", "what other programs read")

    def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in a scope, for good."""
        now, reason = clock.now(), self.settings.guard_reason(reason)
        return self._run_write(lambda state: self._erase(state, scope, id, reason, now))

    def _erase(
        self, state: StoreState, scope: Scope, id: str | None, reason: str | None, now: int
    ) -> EraseReceipt:
        gone = state.load_for_removal(
            state.entries_in(scope) if id is None else [self._require_entry(state, id, scope)]
        )
        documents = self._erase_documents(state, scope) if id is None else []
        said = [version.entry for one in gone for version in one.versions if version.entry is not None]
        was_out = {one.entry.id: one.status != LIVE for one in gone}
        stones = [Version(id=one.entry.id, rev=one.entry.rev, at=now, reason=reason) for one in gone]
        cut = {key for pair in zip(gone, stones, strict=True) for key in state.remove(*pair)}
        self._propagate_erasure(state, scope.namespace, was_out, cut, now)
        return EraseReceipt(
            ids=tuple(was_out),
            versions=sum(len(one.versions) for one in gone),
            links=len(cut),
            documents=len(documents),
            at=now,
            reason=reason,
            scrubbed=True,
            unreachable=(
                *self._remaining_references(state, scope, [*was_out]),
                *semantics.remaining_transcripts(said, documents),
                *self.UNREACHABLE,
            ),
        )

    def _propagate_erasure(
        self,
        state: StoreState,
        namespace: str,
        was_out: dict[str, bool],
        removed_links: set[LinkKey],
        now: int,
    ) -> None:
        """Note which entries lost a link, and which have lost what they rest on."""
        left = [key for key in removed_links if key[1] not in was_out]
        held = state.find_many(namespace, {key[1] for key in left})
        for source in sorted(held):
            state.log_change(held[source].entry, "unlink", now)
        # Whatever was invalidated was out.
        invalidated = {key[1]: True for key in left if key[2] == truth.INVALIDATED_BY}
        self._propagate_status(state, namespace, {**was_out, **invalidated}, now)

    def _remaining_references(self, state: StoreState, scope: Scope, erased_ids: Sequence[str]) -> list[str]:
        """What is left in the store that may repeat what was erased."""
        found = [
            semantics.derived_entry_notice(other, id)
            for id in erased_ids
            for other in state.citing_ids(scope.namespace, id)
        ]
        owners = state.document_owners(scope.namespace).values()
        documents = sum(
            None
            in (
                scope.agent_id,
                one.agent_id,
            )
            or one.agent_id == scope.agent_id
            for one in owners
        )
        return semantics.remaining_copies(found, documents)

    def scrub(self) -> EraseReceipt:
        """Nothing is left anywhere."""
        return EraseReceipt(scrubbed=True, unreachable=self.UNREACHABLE)


# reference exchange: What does it mean to tell what changed, and to take it over?


@validate_arguments
class MemoryExchange(MemoryHeld):
    """What passes between a store in memory and others."""

    def namespaces(self) -> list[str]:
        """The namespaces that hold an entry or a document, in order."""
        return self._run_read(lambda state: sorted({key[0] for key in (*state.entries, *state.documents)}))

    def kinds(self, namespace: str) -> list[str]:
        """The kinds of the documents in a namespace, in order."""
        return self._run_read(
            lambda state: sorted({kind for name, kind, _ in state.documents if name == namespace})
        )

    def changes(self, namespace: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """The changes after a sequence number, in order."""
        return self._run_read(lambda state: self._changes_after(state, namespace, after)[:limit])

    def _changes_after(self, state: StoreState, namespace: str, after: int) -> list[Change]:
        return [change for change in state.change_log[after:] if change.namespace == namespace]

    def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """What changed after a sequence number, and what it became."""

        def work(state: StoreState) -> Feed:
            told = self._changes_after(state, namespace, after)
            # What is asked for from the start and fits is told at once, however often it changed.
            more = len(told) > limit and (after > 0 or self._count_records(state, namespace) > limit)
            if more:
                told = told[:limit]
            latest = dict.fromkeys(change.id for change in reversed(told))
            ids = dict.fromkeys(reversed(latest))  # in the order of their last changes
            held = {id: one for id in ids if (one := state.entries.get((namespace, id))) is not None}
            written = {(change.id, change.rev) for change in told if change.op == "write"}
            return Feed(
                generation=self._generation,
                seq=told[-1].seq if told else after,
                more=more,
                entries=tuple(held[id].entry for id in ids if id in held),
                links=tuple(
                    state.links[key] for key in sorted(state.links) if _starts_at(key, namespace, ids)
                ),
                access=self._access_counts(state, namespace, held, used_since),
                erased_ids=tuple(dict.fromkeys(change.id for change in told if change.op == "erase")),
                new_ids=frozenset(
                    id
                    for id, one in held.items()
                    if (id, one.first_rev) in written and (namespace, id) not in state.tombstones
                ),
            )

        return self._run_read(work)

    def _count_records(self, state: StoreState, namespace: str) -> int:
        entries = sum(name == namespace for name, _ in state.entries)
        return entries + sum(len(told) for (name, _), told in state.tombstones.items() if name == namespace)

    def _access_counts(
        self, state: StoreState, namespace: str, changed: Mapping[str, StoredEntry], since: int | None
    ) -> dict[str, Access]:
        found = {id: one.access for id, one in changed.items() if one.access.count}
        if since is not None:
            for name, id in state.used_keys:
                kept = state.entries.get((name, id)) if name == namespace else None
                if kept is not None and _is_recent(kept.access, since):
                    found[id] = kept.access
        return found

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Keep entries exactly as they were elsewhere; how many were new."""
        given = validation.prepare_import(entries, links, access, self.settings)
        if not given:
            return 0
        found = index_entries(given, self.embedder)
        now = clock.now()

        def work(state: StoreState) -> int:
            state.prefetch([WriteRequest(entry=entry) for entry in given])
            pairs = zip(given, found, strict=True)
            new = [entry for entry, terms in pairs if self._import_entry(state, entry, terms, access, now)]
            self._import_links(state, given[0].namespace, links, now)
            left = self._add_missing_tombstones(
                state, given[0].namespace, validation.missing_premises(entries), now
            )
            self._propagate_import(state, given[0].namespace, new, links, left, now)
            for entry in {(entry.agent_id, entry.session_id): entry for entry in new}.values():
                self._check_session_limit(state, entry)
            return len(new)

        return self._run_write(work, rollback=True)

    def _import_entry(
        self, state: StoreState, entry: Entry, found: IndexData, access: Mapping[str, Access], now: int
    ) -> bool:
        kept = state.find(entry.namespace, entry.id)
        if not validation.is_new(entry, None if kept is None else kept.entry):
            return False
        one = state.add(entry, found, now)
        used = access.get(entry.id)
        if used is not None and used.count:
            state.record_use(one, used.count, used.last)
        return True

    def _import_links(self, state: StoreState, namespace: str, links: Sequence[Link], now: int) -> None:
        held = state.find_many(namespace, {end for link in links for end in (link.source, link.target)})
        for link in links:
            for end in (link.source, link.target):
                if end not in held:
                    raise semantics.entry_not_found(end)
            key = (namespace, link.source, link.relation, link.target)
            if state.find_link(key) is None:
                state.add_link(key, link)
                state.log_change(held[link.source].entry, "link", now)

    def _add_missing_tombstones(
        self, state: StoreState, namespace: str, left: Mapping[str, Entry], now: int
    ) -> list[str]:
        """Count what was left behind as erased, where it is not here; the ids of it."""
        here = state.find_many(namespace, left).keys() | state.erased_ids(namespace, left)
        gone = [id for id in left if id not in here]
        for id in gone:
            state.add_tombstone(
                left[id], Version(id=id, rev=0, at=now, reason=validation.MISSING_PREMISE_REASON)
            )
        return gone

    def _propagate_import(
        self,
        state: StoreState,
        namespace: str,
        new: Sequence[Entry],
        links: Sequence[Link],
        left: Sequence[str],
        now: int,
    ) -> None:
        sources = [link.source for link in links if link.relation == INVALIDATED_BY]
        was_out = {id: one.status != LIVE for id, one in state.find_many(namespace, sources).items()}
        erased = state.erased_ids(namespace, {entry.id for entry in new})
        was_out.update((entry.id, entry.id in erased) for entry in new)
        was_out.update((id, False) for id in left)
        self._propagate_status(state, namespace, was_out, now)


def _starts_at(key: LinkKey, namespace: str, ids: Mapping[str, None]) -> bool:
    return key[0] == namespace and key[1] in ids


def _is_recent(access: Access, since: int) -> bool:
    return access.last is not None and access.last >= since


# reference links: What does it mean to link entries?


@validate_arguments
class MemoryLinks(MemoryHeld):
    """Links that last as long as the process."""

    def link(self, link: Link, scope: Scope) -> Link:
        """Keep a link between two entries."""
        key = (scope.namespace, link.source, link.relation, link.target)

        def work(state: StoreState) -> Link:
            source = self._require_entry(state, link.source, scope)
            self._require_entry(state, link.target, scope)
            known = state.find_link(key)
            if known is not None:
                return known
            was_out, now = source.status != LIVE, clock.now()
            state.add_link(key, link)
            state.log_change(source.entry, "link", now)
            if link.relation == INVALIDATED_BY:
                self._propagate_status(state, scope.namespace, {link.source: was_out}, now)
            return link

        return self._run_write(work)

    def unlink(self, link: Link, scope: Scope) -> bool:
        """Remove a link; whether there was one."""

        def work(state: StoreState) -> bool:
            source = self._require_entry(state, link.source, scope)
            self._require_entry(state, link.target, scope)
            was_out, now = source.status != LIVE, clock.now()
            found = state.remove_link((scope.namespace, link.source, link.relation, link.target))
            if found:
                state.log_change(source.entry, "unlink", now)
                if link.relation == INVALIDATED_BY:
                    self._propagate_status(state, scope.namespace, {link.source: was_out}, now)
            return found

        return self._run_write(work)

    def links(self, id: str, scope: Scope, *, relation: str | None = None) -> list[Link]:
        """The links from and to an entry."""

        def work(state: StoreState) -> list[Link]:
            self._require_entry(state, id, scope)
            found = {
                link: key[3] if key[1] == id else key[1]
                for key, link in state.links_of(scope.namespace, id).items()
                if relation in (None, link.relation)
            }
            held = state.find_many(scope.namespace, {*found.values()})
            return [link for link, other in found.items() if scope.contains(held[other].entry)]

        return sorted(
            self._run_read(work), key=lambda link: (link.created_at, link.source, link.relation, link.target)
        )


# reference: What does it mean to keep and to recall?


@validate_arguments
class MemoryStore(MemoryLinks, MemoryErasing, MemoryExchange):
    """Memories that last as long as the process."""

    # Writing

    def write(self, request: WriteRequest) -> WriteResult:
        """Keep an entry."""
        return self.write_many([request])[0]

    def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Keep all of these entries, or none."""
        asked = [self.settings.guard_request(request) for request in requests]
        return self._write_all(asked, index_entries([request.entry for request in asked], self.embedder))

    def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Keep an entry that comes with its own vector."""
        asked = self.settings.guard_request(request)
        found = index_with_vector(request.entry, asked.entry, vector, self.embedder)
        return self._write_all([asked], [found])[0]

    def _write_all(
        self, requests: Sequence[WriteRequest], index_data: Sequence[IndexData]
    ) -> list[WriteResult]:
        now = clock.now()

        def work(state: StoreState) -> list[WriteResult]:
            state.prefetch(requests)
            told = [self._write_once(state, *pair, now) for pair in zip(requests, index_data, strict=True)]
            return [self._refresh_receipt(state, result) for result in told]

        return self._run_write(work, rollback=len(requests) > 1 or self._needs_rollback(requests))

    def _refresh_receipt(self, state: StoreState, result: WriteResult) -> WriteResult:
        """A receipt that says whether its entry is stale once all is written."""
        entry = result.entry
        kept = state.find(entry.namespace, entry.id)
        assert kept is not None
        stale = kept.is_stale
        if stale == entry.stale:
            return result
        return semantics.write_result(
            result.request, semantics.replace_unchecked(entry, stale=stale), result.outcome
        )

    def _needs_rollback(self, requests: Sequence[WriteRequest]) -> bool:
        """Whether something can go wrong after a part of the work is done."""
        compound = any(request.supersedes is not None for request in requests)
        return compound or self.settings.session_limit is not None

    def _write_once(
        self, state: StoreState, request: WriteRequest, found: IndexData, now: int
    ) -> WriteResult:
        name = (request.entry.namespace, request.idempotency_key or "")
        if request.idempotency_key is None:
            return self._write_entry(state, request, found, now)
        print_ = semantics.request_fingerprint(request)
        known = state.find_receipt(name)
        if known is not None and known[2] >= now - semantics.KEY_LIFETIME_MS:
            if known[0] != print_:
                raise KeyReused(request.idempotency_key)
            return semantics.write_result(request, known[1].entry, known[1].outcome)
        result = self._write_entry(state, request, found, now)
        state.add_receipt(name, (print_, result, now))
        return result

    def _write_entry(
        self, state: StoreState, request: WriteRequest, found: IndexData, now: int
    ) -> WriteResult:
        given = request.entry
        kept = state.find(given.namespace, given.id)
        if request.dedupe and kept is None and request.supersedes is None:
            for other in state.possible_duplicates(given):
                twin = other.entry
                if semantics.is_duplicate(twin, given, now):
                    return semantics.write_result(request, twin, "duplicate_of")
        before = None if kept is None else kept.entry
        renewed = found.given and kept is not None and found[2:] != kept.index_data[2:]
        outcome, entry = semantics.decide_write(request, before, vector_changed=renewed)
        if outcome == "stored":
            if kept is None or before is None:
                state.add(entry, found, now)
                was_out = given.id in state.erased_ids(given.namespace, [given.id])
            else:
                if kept.index_data.given and not found.given and before.content == entry.content:
                    found = found._replace(pooled=kept.index_data.pooled, tokens=None, given=True)
                state.revise(kept, entry, "write", now, found)
                was_out = truth.status_of(before) != LIVE
            self._propagate_status(state, entry.namespace, {entry.id: was_out}, now)
        if request.supersedes is not None:
            agent = Scope(namespace=entry.namespace, agent_id=entry.agent_id)
            self._supersede(state, request.supersedes, agent, entry.id, None, None, now)
            outcome = "superseded"
        self._check_session_limit(state, entry)
        return semantics.write_result(request, entry, outcome)

    def supersede(
        self,
        id: str,
        scope: Scope,
        *,
        by: str | None = None,
        reason: str | None = None,
        expected_rev: int | None = None,
    ) -> Entry:
        """Mark an entry as replaced by another, or by nothing."""
        reason = self.settings.guard_reason(reason)
        now = clock.now()
        return self._run_write(lambda state: self._supersede(state, id, scope, by, reason, expected_rev, now))

    def _supersede(
        self,
        state: StoreState,
        id: str,
        scope: Scope,
        by: str | None,
        reason: str | None,
        expected_rev: int | None,
        now: int,
    ) -> Entry:
        kept = self._require_entry(state, id, scope)
        entry = kept.entry
        Conflict.check(f"entry {id!r}", expected_rev, entry.rev)
        owner = Scope(namespace=scope.namespace, agent_id=entry.agent_id)
        new = semantics.as_superseded(
            entry, None if by is None else self._require_entry(state, by, owner).entry, reason, now
        )
        if entry.superseded_by == new.superseded_by:
            return entry
        return self._save_revision(state, kept, new, "supersede", now)

    def reinstate(self, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
        """Bring a superseded entry back."""

        def work(state: StoreState) -> Entry:
            kept = self._require_entry(state, id, scope)
            Conflict.check(f"entry {id!r}", expected_rev, kept.entry.rev)
            if kept.entry.superseded_by is None:
                return kept.entry
            return self._save_revision(
                state, kept, semantics.as_reinstated(kept.entry), "restore", clock.now()
            )

        return self._run_write(work)

    def _save_revision(self, state: StoreState, kept: StoredEntry, new: Entry, op: str, now: int) -> Entry:
        was_out = kept.status != LIVE
        state.revise(kept, new, op, now)
        self._propagate_status(state, new.namespace, {new.id: was_out}, now)
        return kept.entry

    # Reading

    def recall(self, request: RecallRequest) -> RecallResult:
        """The entries that answer best."""
        if not recalling.has_numpy():
            return recalling.recall_by_words(request, self, self.settings.count_tokens)
        return recalling.recall(request, self, self.embedder, self.settings.count_tokens)

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Who speaks in a scope."""
        held = self._run_read(lambda state: state.entries_in(scope))
        messages = [one.entry.message for one in held]
        return [*dict.fromkeys(said.speaker for said in messages if said and said.speaker)]

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> Iterator[Candidates | None]:
        """All entries of a scope that count."""
        from omoide.stores.pool import pool_of

        wanted = truth.allowed_statuses(superseded=filter.include_superseded, stale=filter.include_stale)

        def work(state: StoreState) -> Candidates | None:
            held = [
                one
                for one in sorted(state.entries_in(scope), key=lambda one: one.written_seq)
                if one.status in wanted
                and (filter.include_expired or one.entry.expires_at is None or one.entry.expires_at > at)
            ]
            if not held:
                return None
            dim = 0 if self.embedder is None else self.embedder.dim
            entries = [one.entry for one in held]
            pool, allowed = pool_of(
                [(one.entry, one.index_data) for one in state.load_index_data(held)],
                dim,
                [*map(semantics.entry_predicate(filter, at), entries)],
            )
            written = [one.written_seq for one in held]
            return Candidates(
                pool,
                encode_query(pool.speakers),
                allowed,
                written,
                lambda places: [entries[at] for at in places],
            )

        yield self._run_read(work)

    def list_entries(self, scope: Scope) -> list[Entry]:
        """Everything in a scope, oldest first."""
        held = self._run_read(lambda state: state.entries_in(scope))
        return [one.entry for one in sorted(held, key=lambda one: one.written_seq)]

    def get(self, id: str, scope: Scope, *, as_of: int | None = None) -> Entry:
        """An entry, as it is or as it was."""

        def work(state: StoreState) -> Entry:
            kept = state.find(scope.namespace, id)
            if kept is not None and scope.contains(kept.entry):
                (kept,) = [kept] if as_of is None else state.load_versions([kept])
                entry = kept.entry_at(as_of)
                if entry is not None:
                    return entry
            if as_of is not None:
                stones = state.tombstones_of(id, scope)
                if stones:
                    stone = next((stone for stone in stones if stone.at >= as_of), stones[-1])
                    raise Erased("entry", id, stone.at, stone.reason)
            raise semantics.entry_not_found(id)

        return self._run_read(work)

    def query(self, query: Query) -> Page:
        """The entries that fit, newest first."""
        place = (1 << 63, 1 << 63) if query.cursor is None else records.decode_cursor(query.cursor)
        passes = semantics.entry_predicate(query.filter, query.at if query.as_of is None else query.as_of)

        def work(state: StoreState) -> list[tuple[tuple[int, int], Entry]]:
            held = state.entries_in(query.scope)
            seen = [
                (one, one.entry_at(query.as_of))
                for one in (held if query.as_of is None else state.load_versions(held))
            ]
            return [
                ((semantics.time_of(entry), one.number), entry)
                for one, entry in seen
                if entry is not None and passes(entry) and (semantics.time_of(entry), one.number) < place
            ]

        found = self._run_read(work)
        found.sort(key=lambda pair: pair[0], reverse=True)
        shown = found[: query.limit]
        cursor = records.encode_cursor(*shown[-1][0]) if len(found) > len(shown) else None
        return Page(entries=tuple(entry for _, entry in shown), cursor=cursor)

    def history(self, id: str, scope: Scope) -> list[Version]:
        """The versions of an entry, oldest first."""

        def work(state: StoreState) -> list[Version]:
            kept = state.find(scope.namespace, id)
            held = state.load_versions([kept]) if kept is not None and scope.contains(kept.entry) else []
            found = [*state.tombstones_of(id, scope), *(version for one in held for version in one.history())]
            if not found:
                raise semantics.entry_not_found(id)
            return found

        return self._run_read(work)

    def stats(self, scope: Scope) -> Stats:
        """Figures about a scope."""
        now = clock.now()
        return self._run_read(lambda state: self._stats(state, scope, now))

    def _stats(self, state: StoreState, scope: Scope, now: int) -> Stats:
        held = state.entries_in(scope)
        entries = [one.entry for one in held]
        current = [entry for entry in entries if truth.status_of(entry) == LIVE]
        stale = sum(truth.status_of(entry) == truth.STALE for entry in entries)
        expired = sum(not entry.is_live(now) for entry in current)
        by_type: dict[str, int] = {}
        for entry in entries:
            by_type[semantics.type_of(entry)] = by_type.get(semantics.type_of(entry), 0) + 1
        return Stats(
            entries=len(entries),
            live=len(current) - expired,
            superseded=len(entries) - len(current) - stale,
            stale=stale,
            expired=expired,
            versions=sum(one.entry.rev - one.first_rev + 1 for one in held),
            links=state.count_links_from(scope.namespace, {entry.id for entry in entries}),
            by_type=by_type,
            without_vectors=sum(
                self.embedder is not None and not one.has_vector and one.status == LIVE for one in held
            ),
            embedder=None if self.embedder is None else self.embedder.name,
            last_seq=len(state.change_log),
        )

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Note that entries were used."""
        now = clock.now()
        named = [*ids]

        def work(state: StoreState) -> None:
            held = state.find_many(scope.namespace, {*named})
            for id in named:
                if id in held and scope.contains(held[id].entry):
                    state.record_use(held[id], 1, now)

        self._run_write(work)

    def access(self, id: str, scope: Scope) -> Access:
        """How often an entry was used, and when last."""
        return self._run_read(lambda state: self._require_entry(state, id, scope).access)

    # Upkeep

    def findings(self) -> list[Finding]:
        """What there is to know about upkeep; a store in memory needs none."""
        return [Finding("kept", "note", "in memory only: it is gone when the program ends")]

    def check(self) -> list[str]:
        """What is wrong; a store in memory has nothing that could disagree."""
        return []

    def reindex(
        self, embedder: Embedder | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Give all entries new terms and vectors."""

        def work(state: StoreState) -> None:
            same = embedder is None or _model_key(embedder) == _model_key(self.embedder)
            self.embedder = embedder or self.embedder
            held = [one for one in state.entries.values() if not (same and one.index_data.given)]
            for one, found in zip(
                held, index_entries([one.entry for one in held], self.embedder), strict=True
            ):
                one.index_data = found
            if progress is not None:
                progress(len(held), len(held))

        self._run_write(work)


def _model_key(embedder: Embedder | None) -> tuple[str, int] | None:
    """What tells whose vectors can be compared."""
    return None if embedder is None else (embedder.name, embedder.dim)
