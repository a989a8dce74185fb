"""Define what each store operation does to a state.

Functions over `StateReader` and `StoreState`, which the stores in memory and on Redis share. The store in
memory runs them on its own dictionaries; the one on Redis runs them on what it fetched, and commits the
changes. None of them does I/O of its own, so a transaction that loses a race can run them again.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import islice
from operator import attrgetter
from typing import Any

from omoide.core.entry import Entry, Filter, Scope, WriteRequest, WriteResult
from omoide.core.value import check_revision, set_field, shallow_copy
from omoide.embedders import Embedder
from omoide.errors import Corrupted, Erased, IdTaken, KeyReused, NotFound
from omoide.stores import records, semantics
from omoide.stores.recall import Candidates, QueryEncoder
from omoide.stores.records import (
    PINS_KIND,
    Access,
    Change,
    Document,
    EraseReceipt,
    IndexData,
    Lease,
    Link,
    Owner,
    Page,
    Query,
    Stats,
    VectorSet,
    Version,
    model_key,
)
from omoide.stores.semantics import INVALIDATED_BY, LIVE, claim_lease
from omoide.stores.state import (
    DocumentKey,
    LinkKey,
    StateDependencyIndex,
    StateReader,
    StoredEntry,
    StoreState,
)

_log = logging.getLogger("omoide")

FIRST_PAGE = (1 << 63, 1 << 63)
"""Sorts above the time and number of any entry."""


# Shared steps


def require_entry(state: StateReader, id: str, scope: Scope) -> StoredEntry:
    """Return an entry of a scope, or raise `NotFound`."""
    stored = _find_in(state, id, scope)
    if stored is None:
        raise semantics.entry_not_found(id, scope)
    return stored


def _find_in(state: StateReader, id: str, scope: Scope) -> StoredEntry | None:
    """Return an entry of a scope; raise `Corrupted` if it is damaged."""
    try:
        stored = state.find(scope.namespace, id)
    except Corrupted:
        if _find_damaged(state, id, scope) is None:
            return None
        raise
    return stored if stored is not None and scope.contains(stored.entry) else None


def _find_damaged(state: StateReader, id: str, scope: Scope) -> StoredEntry | None:
    return next((one for one in state.damaged_in(scope) if one.entry.id == id), None)


def _propagate(state: StoreState, namespace: str, was_out: Mapping[str, bool], now: int) -> None:
    """Mark dependents stale or current after entries changed; see `truth.propagate` for `was_out`."""
    statuses = semantics.propagate(StateDependencyIndex(state, namespace), was_out)
    entries = state.find_many(namespace, statuses)
    for id, status in statuses.items():
        state.set_stale(entries[id], now, stale=status >= semantics.STALE)


def _check_session_limit(state: StoreState, entry: Entry, limit: int | None) -> None:
    if limit is not None and entry.session_id is not None:
        session = semantics.owner_scope(entry).replace(session_id=entry.session_id)
        live = sum(stored.status == LIVE for stored in state.entries_in(session))
        semantics.check_session(entry.session_id, live, limit)


def _save_revision(state: StoreState, stored: StoredEntry, new: Entry, op: str, now: int) -> Entry:
    was_out = stored.status != LIVE
    state.revise(stored, new, op, now)
    _propagate(state, new.namespace, {new.id: was_out}, now)
    return stored.entry


# Writes


def write_all(
    state: StoreState,
    requests: Sequence[WriteRequest],
    index_data: Sequence[IndexData],
    now: int,
    session_limit: int | None,
) -> list[WriteResult]:
    """Write entries in order, and return their receipts."""
    state.prefetch(requests)
    results = [
        _write_once(state, request, data, now, session_limit)
        for request, data in zip(requests, index_data, strict=True)
    ]
    return [_refresh_receipt(state, result) for result in results]


def _refresh_receipt(state: StoreState, result: WriteResult) -> WriteResult:
    """Return a receipt with the staleness of its entry after all writes: a later one may change it."""
    entry = result.entry
    stored = state.find(entry.namespace, entry.id)
    assert stored is not None
    if stored.is_stale == entry.stale:
        return result
    entry = semantics.replace_unchecked(entry, stale=stored.is_stale)
    return semantics.write_result(result.request, entry, result.outcome, result.metadata.get("superseded"))


def _write_once(
    state: StoreState, request: WriteRequest, data: IndexData, now: int, session_limit: int | None
) -> WriteResult:
    """Write an entry, or return the receipt of an earlier write with the same idempotency key."""
    if request.idempotency_key is None:
        return _write_entry(state, request, data, now, session_limit)
    namespace, fingerprint = request.entry.namespace, semantics.request_fingerprint(request)
    own, older = semantics.receipt_keys(request)
    for key in (own, older):
        receipt = state.find_receipt((namespace, key))
        if receipt is None or receipt[2] < now - semantics.KEY_LIFETIME_MS:
            continue
        if receipt[0] == fingerprint:
            entry, superseded = receipt[1].entry, receipt[1].metadata.get("superseded")
            return semantics.write_result(request, entry, receipt[1].outcome, superseded)
        if key == own:
            raise KeyReused(request.idempotency_key)
    result = _write_entry(state, request, data, now, session_limit)
    state.add_receipt((namespace, own), (fingerprint, result, now))
    return result


def _write_entry(
    state: StoreState, request: WriteRequest, data: IndexData, now: int, session_limit: int | None
) -> WriteResult:
    given = request.entry
    stored = state.find(given.namespace, given.id)
    if request.dedupe and stored is None and request.supersedes is None and given.key is None:
        for other in state.possible_duplicates(given):
            if semantics.is_duplicate(other.entry, given, now):
                return semantics.write_result(request, other.entry, "duplicate_of")
    before = None if stored is None else stored.entry
    # The vector, its tokens and whether the caller gave it; the features follow from the content.
    vector_changed = data.given and stored is not None and data[2:6] != stored.index_data[2:6]
    holder = None if given.key is None else state.find_slot(given)
    by = semantics.successor_id(given)
    successor = None if by is None else state.find(given.namespace, by)
    outcome, entry = semantics.decide_write(
        request,
        before,
        vector_changed=vector_changed,
        holder=None if holder is None else holder.entry,
        successor=None if successor is None else successor.entry,
        now=now,
    )
    if outcome == "duplicate_of":
        return semantics.write_result(request, entry, outcome)
    replaced = None
    if outcome == "stored":
        replaced = semantics.replaced_value(entry, None if holder is None else holder.entry)
    if holder is not None and replaced is not None:
        _replace(state, holder, entry, now)
        before = None if stored is None else stored.entry  # it may derive from what it replaces
    if outcome == "stored":
        if stored is None or before is None:
            state.add(entry, data, now)
            was_out = given.id in state.erased_ids(given.namespace, [given.id])
        else:
            if before.content == entry.content:
                data = _keep_given_vectors(stored.index_data, data)
            state.revise(stored, entry, "write", now, data)
            was_out = semantics.status_of(before) != LIVE
        _propagate(state, entry.namespace, {entry.id: was_out}, now)
    if request.supersedes is not None:
        supersede(state, request.supersedes, semantics.owner_scope(entry), by=entry.id, now=now)
    superseded = semantics.superseded_id(request, replaced)
    if superseded is not None:
        outcome = "superseded"
    _check_session_limit(state, entry, session_limit)
    return semantics.write_result(request, entry, outcome, superseded)


def _replace(state: StoreState, holder: StoredEntry, by: Entry, now: int) -> None:
    """Supersede the value of a slot by the one that is stored next."""
    _save_revision(state, holder, semantics.as_replaced(holder.entry, by, now), "supersede", now)


def _keep_given_vectors(stored: IndexData, data: IndexData) -> IndexData:
    """Return new data with the vectors that the caller gave before: they stay until the content changes."""
    data = data._replace(others=tuple(other for other in stored.others if other.given))
    if not stored.given or data.given or stored.pooled is None:
        return data
    own = VectorSet(stored.model, stored.pooled, given=True)
    if data.pooled is None or data.model == stored.model:
        return data.with_vectors(own)
    return data.with_prepared(own)


def supersede(
    state: StoreState,
    id: str,
    scope: Scope,
    *,
    by: str | None,
    reason: str | None = None,
    expected_rev: int | None = None,
    now: int,
) -> Entry:
    """Mark an entry as replaced by another, or by nothing."""
    stored = require_entry(state, id, scope)
    entry = stored.entry
    check_revision(f"entry {id!r}", expected_rev, entry.rev)
    owned = scope.replace(agent_id=entry.agent_id)
    successor = None if by is None else require_entry(state, by, owned).entry
    new = semantics.as_superseded(entry, successor, reason, now)
    if entry.superseded_by == new.superseded_by:
        return entry
    return _save_revision(state, stored, new, "supersede", now)


def reinstate(state: StoreState, id: str, scope: Scope, expected_rev: int | None, now: int) -> Entry:
    """Undo superseding an entry."""
    stored = require_entry(state, id, scope)
    entry = stored.entry
    check_revision(f"entry {id!r}", expected_rev, entry.rev)
    if entry.superseded_by is None:
        return entry
    holder = None if entry.key is None else state.find_slot(entry)
    if holder is not None:
        _replace(state, holder, semantics.as_reinstated(entry), now)
    return _save_revision(state, stored, semantics.as_reinstated(entry), "restore", now)


def record_access(state: StoreState, ids: Sequence[str], scope: Scope, now: int) -> None:
    """Count one use of each of these entries that the scope contains."""
    entries = state.find_many(scope.namespace, {*ids})
    for id in ids:
        if id in entries and scope.contains(entries[id].entry):
            state.record_use(entries[id], 1, now)


# Imports


def import_entries(
    state: StoreState,
    entries: Sequence[Entry],
    index_data: Sequence[IndexData],
    links: Sequence[Link],
    access: Mapping[str, Access],
    missing_premises: Mapping[str, Entry],
    now: int,
    session_limit: int | None,
) -> int:
    """Add prepared entries of one namespace as they are, and return how many were new."""
    namespace = entries[0].namespace
    state.prefetch([WriteRequest(entry=entry) for entry in entries])
    pairs = zip(entries, index_data, strict=True)
    new = [entry for entry, data in pairs if _import_entry(state, entry, data, access, now)]
    _import_links(state, namespace, links, now)
    absent = _add_missing_tombstones(state, namespace, missing_premises, now)
    sources = [link.source for link in links if link.relation == INVALIDATED_BY]
    was_out = {id: stored.status != LIVE for id, stored in state.find_many(namespace, sources).items()}
    erased = state.erased_ids(namespace, {entry.id for entry in new})
    was_out.update((entry.id, entry.id in erased) for entry in new)
    was_out.update((id, False) for id in absent)
    _propagate(state, namespace, was_out, now)
    for entry in {(entry.user_id, entry.agent_id, entry.session_id): entry for entry in new}.values():
        _check_session_limit(state, entry, session_limit)
    return len(new)


def _import_entry(
    state: StoreState, entry: Entry, data: IndexData, access: Mapping[str, Access], now: int
) -> bool:
    existing = state.find(entry.namespace, entry.id)
    if not semantics.is_new(entry, None if existing is None else existing.entry):
        return False
    holder = state.find_slot(entry) if entry.fills_slot else None
    if holder is not None:
        entry, replaced = semantics.decide_import(entry, holder.entry, now)
        if replaced is not None:
            _replace(state, holder, entry, now)
    stored = state.add(entry, data, now)
    used = access.get(entry.id)
    if used is not None and used.count:
        state.record_use(stored, used.count, used.last)
    return True


def _import_links(state: StoreState, namespace: str, links: Sequence[Link], now: int) -> None:
    ends = state.find_many(namespace, {end for link in links for end in (link.source, link.target)})
    for link in links:
        for end in (link.source, link.target):
            if end not in ends:
                raise semantics.entry_not_found(end, Scope(namespace=namespace))
        key = (namespace, link.source, link.relation, link.target)
        if state.find_link(key) is None:
            state.add_link(key, link)
            state.log_change(ends[link.source].entry, "link", now)


def _add_missing_tombstones(
    state: StoreState, namespace: str, premises: Mapping[str, Entry], now: int
) -> list[str]:
    """Record premises that were not imported as erased, and return their ids."""
    known = state.find_many(namespace, premises).keys() | state.erased_ids(namespace, premises)
    known |= {stored.entry.id for stored in state.damaged_in(Scope(namespace=namespace))}
    absent = [id for id in premises if id not in known]
    for id in absent:
        tombstone = Version(id=id, rev=0, at=now, reason=semantics.MISSING_PREMISE_REASON)
        state.add_tombstone(premises[id], tombstone)
    return absent


# Links


def add_link(state: StoreState, link: Link, scope: Scope, now: int) -> Link:
    """Link two entries, or return the link that exists."""
    key = (scope.namespace, link.source, link.relation, link.target)
    source = require_entry(state, link.source, scope)
    require_entry(state, link.target, scope)
    existing = state.find_link(key)
    if existing is not None:
        return existing
    was_out = source.status != LIVE
    state.add_link(key, link)
    state.log_change(source.entry, "link", now)
    if link.relation == INVALIDATED_BY:
        _propagate(state, scope.namespace, {link.source: was_out}, now)
    return link


def remove_link(state: StoreState, link: Link, scope: Scope, now: int) -> bool:
    """Remove a link and return whether it existed."""
    source = require_entry(state, link.source, scope)
    require_entry(state, link.target, scope)
    was_out = source.status != LIVE
    removed = state.remove_link((scope.namespace, link.source, link.relation, link.target))
    if removed:
        state.log_change(source.entry, "unlink", now)
        if link.relation == INVALIDATED_BY:
            _propagate(state, scope.namespace, {link.source: was_out}, now)
    return removed


def links_of(state: StateReader, id: str, scope: Scope, relation: str | None) -> list[Link]:
    """Return the links of an entry whose other end the scope contains, oldest first."""
    require_entry(state, id, scope)
    others = {
        link: key[3] if key[1] == id else key[1]
        for key, link in state.links_of(scope.namespace, id).items()
        if relation in (None, link.relation)
    }
    entries = state.find_many(scope.namespace, {*others.values()})
    visible = [
        link for link, other in others.items() if other in entries and scope.contains(entries[other].entry)
    ]
    return sorted(visible, key=lambda link: (link.created_at, link.source, link.relation, link.target))


# Erasure


def erase(
    state: StoreState,
    scope: Scope,
    *,
    id: str | Sequence[str] | None,
    reason: str | None,
    now: int,
    unreachable: Sequence[str],
) -> EraseReceipt:
    """Remove one entry or several, or everything in a scope, and leave tombstones."""
    if id is None:
        chosen = [*state.entries_in(scope), *state.damaged_in(scope)]
    else:
        chosen = [_find_erasable(state, one, scope) for one in semantics.unique_ids(id)]
    entries = state.load_for_removal(chosen)
    documents = _erase_documents(state, scope) if id is None else []
    versions = [
        version.entry for stored in entries for version in stored.versions if version.entry is not None
    ]
    was_out = {stored.entry.id: stored.status != LIVE for stored in entries}
    tombstones = [Version(id=one.entry.id, rev=one.entry.rev, at=now, reason=reason) for one in entries]
    removed_links = {
        key
        for stored, tombstone in zip(entries, tombstones, strict=True)
        for key in state.remove(stored, tombstone)
    }
    _propagate_erasure(state, scope.namespace, was_out, removed_links, now)
    return EraseReceipt(
        ids=tuple(was_out),
        versions=sum(stored.entry.rev - stored.first_rev + 1 for stored in entries),
        links=len(removed_links),
        documents=len(documents),
        at=now,
        reason=reason,
        scrubbed=True,
        unreachable=(
            *_remaining_copies(state, scope, [*was_out]),
            *semantics.remaining_transcripts(versions, documents),
            *unreachable,
        ),
    )


def _find_erasable(state: StateReader, id: str, scope: Scope) -> StoredEntry:
    """Return an entry of a scope, also a damaged one, or raise `NotFound`."""
    try:
        return require_entry(state, id, scope)
    except Corrupted:
        damaged = _find_damaged(state, id, scope)
        if damaged is None:
            raise
        return damaged


def _propagate_erasure(
    state: StoreState, namespace: str, was_out: dict[str, bool], removed_links: set[LinkKey], now: int
) -> None:
    """Log which remaining entries lost a link, and update what depended on the erased ones."""
    remaining = [key for key in removed_links if key[1] not in was_out]
    sources = state.find_many(namespace, {key[1] for key in remaining})
    for id in sorted(sources):
        state.log_change(sources[id].entry, "unlink", now)
    # An entry that was invalidated was out.
    invalidated = {key[1]: True for key in remaining if key[2] == INVALIDATED_BY}
    _propagate(state, namespace, {**was_out, **invalidated}, now)


def _remaining_copies(state: StoreState, scope: Scope, erased: Sequence[str]) -> list[str]:
    """Describe what is left in the store that may repeat the erased content."""
    citing = [(other, id) for id in erased for other in state.citing_ids(scope.namespace, id)]
    entries = state.find_many(scope.namespace, {other for other, _ in citing})
    notices = [
        semantics.derived_entry_notice(other, id)
        for other, id in citing
        if other in entries and scope.contains(entries[other].entry)
    ]
    owners = state.document_owners(scope.namespace)
    documents = sum(
        (scope.user_id is None or owner.user_id in (None, scope.user_id))
        and (scope.agent_id is None or owner.agent_id in (None, scope.agent_id))
        for (_, kind, _), owner in owners.items()
        if kind != PINS_KIND
    )
    return semantics.remaining_copies(notices, len(citing) - len(notices), documents)


def _erase_documents(state: StoreState, scope: Scope) -> list[tuple[str, str]]:
    """Remove the documents of a scope and return their kinds and ids.

    Documents belong to a user, an agent and a session, not to a project.
    """
    if scope.project_id is not None:
        return []
    keys = [key for key, owner in state.document_owners(scope.namespace).items() if _is_owned(scope, owner)]
    for key in keys:
        state.remove_document(key)
    if scope == Scope(namespace=scope.namespace):  # leases may exist without a document
        state.remove_leases(scope.namespace)
    return [(kind, id) for _, kind, id in keys]


# Documents


def load_document(state: StateReader, kind: str, id: str, scope: Scope) -> Document | None:
    """Return a document with its log."""
    key = (scope.namespace, kind, id)
    document = state.find_document(key)
    if document is None or not _is_owned(scope, document):
        return None
    return _replace_fields(document, log=state.document_log(key))


def list_documents(
    state: StateReader, kind: str, scope: Scope, limit: int, after: str | None
) -> list[Document]:
    """Return the documents of a kind without their logs, ordered by id."""
    documents = state.documents_of_kind(kind, scope.namespace, after)
    return [*islice((document for document in documents if _is_owned(scope, document)), limit)]


def save_document(state: StoreState, document: Document, expected_rev: int | None, now: int) -> Document:
    """Create or replace a document."""
    key = (document.namespace, document.kind, document.id)
    existing = state.find_document(key)
    if existing is not None and existing.owner != document.owner:
        raise IdTaken(document.id)
    rev = 0 if existing is None else existing.rev
    check_revision(f"{document.kind} {document.id!r}", expected_rev, rev)
    saved = document.replace(rev=rev + 1, updated_at=now)
    state.put_document(key, _replace_fields(saved, log=()), saved.log)
    return saved


def append_document(
    state: StoreState,
    kind: str,
    id: str,
    items: Sequence[Any],
    scope: Scope,
    expected_rev: int | None,
    now: int,
) -> int:
    """Append items to the log of a document and return its new revision."""
    key = (scope.namespace, kind, id)
    document = state.find_document(key)
    if document is None or not _is_owned(scope, document):
        raise NotFound(kind, id, "save the document first")
    check_revision(f"{kind} {id!r}", expected_rev, document.rev)
    new = _replace_fields(document, rev=document.rev + 1, updated_at=now)
    state.append_document(key, new, items)
    return new.rev


def claim_document(
    state: StoreState, place: str, kind: str, id: str, scope: Scope, owner: str, ttl_ms: int, now: int
) -> Lease | None:
    """Acquire or renew the lease of a document; None while another owner holds it."""
    key = _claimable_key(state, kind, id, scope)
    lease = claim_lease(state.find_lease(key), (place, *key), owner, ttl_ms, now)
    if lease is not None:
        state.put_lease(key, lease)
    return lease


def release_document(state: StoreState, kind: str, id: str, scope: Scope, owner: str) -> bool:
    """End a lease and return whether the owner held it."""
    key = _claimable_key(state, kind, id, scope)
    lease = state.find_lease(key)
    if lease is None or lease.owner != owner or lease.until == 0:
        return False
    state.put_lease(key, lease.replace(until=0))
    return True


def _claimable_key(state: StoreState, kind: str, id: str, scope: Scope) -> DocumentKey:
    """Return the key of a document; one that does not exist yet may be claimed by anybody."""
    key = (scope.namespace, kind, id)
    document = state.find_document(key)
    if document is not None and not _is_owned(scope, document):
        raise NotFound(kind, id, f"check the id, and the scope that was searched: {scope.describe()}")
    return key


def _replace_fields(document: Document, **fields: Any) -> Document:
    """Return a copy with fields that are known to be valid, so that the others are not checked again."""
    new = shallow_copy(document)
    for name, value in fields.items():
        set_field(new, name, value)
    return new


def _is_owned(scope: Scope, document: Document | Scope) -> bool:
    return (
        document.namespace == scope.namespace
        and scope.user_id in (None, document.user_id)
        and scope.agent_id in (None, document.agent_id)
        and scope.session_id in (None, document.session_id)
    )


# Reads


def list_entries(state: StateReader, scope: Scope) -> list[Entry]:
    """Return everything in a scope, in the order of the last writes."""
    return [stored.entry for stored in sorted(state.entries_in(scope), key=lambda stored: stored.written_seq)]


def get_entry(state: StateReader, id: str, scope: Scope, as_of: int | None) -> Entry:
    """Return an entry as of a moment, or raise `NotFound` or `Erased`."""
    stored = _find_in(state, id, scope)
    if stored is not None:
        if as_of is not None:
            (stored,) = state.load_versions([stored])
        entry = stored.entry_at(as_of)
        if entry is not None:
            return entry
    tombstones = [] if as_of is None else state.tombstones_of(id, scope)
    if as_of is not None and tombstones:
        last = next((tombstone for tombstone in tombstones if tombstone.at >= as_of), tombstones[-1])
        raise Erased("entry", id, last.at, last.reason)
    raise semantics.entry_not_found(id, scope)


def history(state: StateReader, id: str, scope: Scope) -> list[Version]:
    """Return the tombstones and versions of an id, oldest first."""
    stored = _find_in(state, id, scope)
    visible = [] if stored is None else [stored]
    versions = [version for one in state.load_versions(visible) for version in one.history()]
    found = [*state.tombstones_of(id, scope), *versions]
    if not found:
        raise semantics.entry_not_found(id, scope)
    return found


def changes_in(state: StateReader, changes: Sequence[Change], scope: Scope | None) -> list[Change]:
    """Return the changes of entries that are in a scope, or were until they were erased; all for None."""
    if scope is None or not changes:
        return [*changes]
    own = [change for change in changes if change.namespace == scope.namespace]
    ids = dict.fromkeys(change.id for change in own)
    found = _find_sound(state, scope.namespace, ids)
    erased = state.erased_ids(scope.namespace, ids)
    inside = {
        id
        for id in ids
        if (id in found and scope.contains(found[id].entry))
        or (id in erased and state.tombstones_of(id, scope))
    }
    return [change for change in own if change.id in inside]


def _find_sound(state: StateReader, namespace: str, ids: Collection[str]) -> Mapping[str, StoredEntry]:
    """Return the entries with these ids; damaged ones are left out."""
    try:
        return state.find_many(namespace, ids)
    except Corrupted:
        if len(ids) == 1:
            return {}
    found: dict[str, StoredEntry] = {}
    for id in ids:
        found.update(_find_sound(state, namespace, [id]))
    return found


def query(state: StateReader, query: Query) -> Page:
    """Return the next page of the entries that pass a filter, newest first."""
    before = FIRST_PAGE if query.cursor is None else records.decode_cursor(query.cursor)
    passes = semantics.entry_predicate(query.filter, query.at if query.as_of is None else query.as_of)
    entries: Sequence[StoredEntry] = state.entries_in(query.scope)
    if query.as_of is not None:
        entries = state.load_versions(entries)
    matches = [
        (position, entry)
        for stored in entries
        if (entry := _entry_at(stored, query.as_of)) is not None
        and passes(entry)
        and (position := (semantics.time_of(entry), stored.number)) < before
    ]
    matches.sort(key=lambda match: match[0], reverse=True)
    return build_page(matches, query.limit)


def _entry_at(stored: StoredEntry, moment: int | None) -> Entry | None:
    """Return an entry as of a moment; None also if it is damaged, which is logged."""
    try:
        return stored.entry_at(moment)
    except Corrupted as error:
        _log.warning("%s", error)
        return None


def build_page(matches: Sequence[tuple[tuple[int, ...], Entry]], limit: int) -> Page:
    """Return the first `limit` of sorted matches, with a cursor if there are more."""
    shown = matches[:limit]
    cursor = records.encode_cursor(*shown[-1][0]) if len(matches) > len(shown) else None
    return Page(entries=tuple(entry for _, entry in shown), cursor=cursor)


def speakers(state: StateReader, scope: Scope) -> list[str]:
    """Return the names of the speakers in a scope, each once."""
    messages = [stored.entry.message for stored in state.entries_in(scope)]
    return [*dict.fromkeys(message.speaker for message in messages if message and message.speaker)]


def candidates(
    state: StateReader,
    scope: Scope,
    filter: Filter,
    at: int,
    encode_query: QueryEncoder,
    embedder: Embedder | None,
) -> Candidates | None:
    """Build the candidate pool of a scope; None where it is empty."""
    from omoide.stores.pool import pool_of  # needs NumPy

    statuses = semantics.allowed_statuses(superseded=filter.include_superseded, stale=filter.include_stale)
    entries = [
        stored
        for stored in sorted(state.entries_in(scope), key=lambda stored: stored.written_seq)
        if stored.status in statuses
        and (filter.include_expired or stored.entry.expires_at is None or stored.entry.expires_at > at)
    ]
    if not entries:
        return None
    values = [stored.entry for stored in entries]
    passes = semantics.entry_predicate(filter, at)
    model = model_key(embedder)
    pool, allowed = pool_of(
        [
            (stored.entry, stored.index_data.with_vectors(stored.index_data.vectors_of(model)))
            for stored in state.load_index_data(entries)
        ],
        0 if embedder is None else embedder.dim,
        [*map(passes, values)],
    )
    owner = pool.column("entry").tolist()
    return Candidates(
        pool,
        encode_query(pool.speakers),
        allowed,
        [entries[at].written_seq for at in owner],
        lambda rows: [values[owner[row]] for row in rows],
    )


def stats(state: StateReader, scope: Scope, embedder: Embedder | None, now: int, last_seq: int = 0) -> Stats:
    """Count the entries, versions and links of a scope."""
    stored = state.entries_in(scope)
    entries = [one.entry for one in stored]
    live = [entry for entry in entries if semantics.status_of(entry) == LIVE]
    stale = sum(semantics.status_of(entry) == semantics.STALE for entry in entries)
    expired = sum(not entry.is_live(now) for entry in live)
    by_type: dict[str, int] = {}
    for entry in entries:
        by_type[semantics.type_of(entry)] = by_type.get(semantics.type_of(entry), 0) + 1
    return Stats(
        entries=len(entries),
        live=len(live) - expired,
        superseded=len(entries) - len(live) - stale,
        stale=stale,
        expired=expired,
        versions=sum(one.entry.rev - one.first_rev + 1 for one in stored),
        links=state.count_links_from(scope.namespace, {entry.id for entry in entries}),
        by_type=by_type,
        without_vectors=sum(
            embedder is not None and not one.has_vector and one.status == LIVE for one in stored
        ),
        embedder=None if embedder is None else embedder.name,
        last_seq=last_seq,
    )


def owners(state: StateReader, scope: Scope, now: int) -> list[Owner]:
    """Count the entries of each user, agent and project in a scope."""
    entries = [stored.entry for stored in state.entries_in(scope)]
    owner = attrgetter("user_id", "agent_id", "project_id")
    count, live = Counter(map(owner, entries)), Counter(owner(one) for one in entries if one.is_live(now))
    return semantics.sorted_owners(scope.namespace, [(*key, count[key], live[key]) for key in count])


def latest_ids(ids: Iterable[str]) -> list[str]:
    """Return each id once, in the order of the last occurrences."""
    return [*reversed(dict.fromkeys(reversed([*ids])))]
