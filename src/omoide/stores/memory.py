"""Store entries in memory.

The reference store: every other store must behave like this one. Nothing is kept when the process ends,
which is what tests and short-lived programs want.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any, ClassVar, NamedTuple, TypeVar

from omoide import clock, forks, ids
from omoide.core.entry import Entry, Filter, RecallRequest, RecallResult, Scope, WriteRequest
from omoide.embedders import Embedder, choose
from omoide.errors import Closed
from omoide.forks import ForkListener
from omoide.stores import operations, semantics
from omoide.stores import recall as recall_engine
from omoide.stores.recall import Candidates, QueryEncoder
from omoide.stores.records import (
    Access,
    Change,
    Document,
    EraseReceipt,
    Feed,
    Finding,
    IndexData,
    Lease,
    Link,
    Owner,
    ReindexResult,
    Stats,
    Version,
    check_arguments,
    index_entries,
    index_entry,
    model_key,
    text_of,
)
from omoide.stores.reindex import LAST_BATCH, ProgressCallback, ReindexClaim
from omoide.stores.semantics import INVALIDATED_BY, StaleTransition, StoreSettings
from omoide.stores.state import (
    DocumentKey,
    EntryKey,
    LinkKey,
    Receipt,
    ReceiptKey,
    StoredEntry,
    tombstone_owner,
)
from omoide.stores.state_store import EmbedderGate, StateStore

T = TypeVar("T")

SlotKey = tuple[Scope, str | None]
"""The exact scope and the key of a slot."""
_REINDEX_BATCH = 256


@dataclass
class MemoryState:
    """A `StoreState` of dictionaries; copied before a write that may fail halfway, to roll it back."""

    entries: dict[EntryKey, StoredEntry] = field(default_factory=dict)
    links: dict[LinkKey, Link] = field(default_factory=dict)
    tombstones: dict[EntryKey, list[tuple[Entry, Version]]] = field(default_factory=dict)
    """By id: an empty entry that carries the owner, and the tombstone."""
    change_log: list[Change] = field(default_factory=list)
    receipts: dict[ReceiptKey, Receipt] = field(default_factory=dict)
    dependents: dict[EntryKey, set[str]] = field(default_factory=dict)
    """The ids of the entries whose evidence names an id, whether that exists or not."""
    invalidations: dict[EntryKey, set[str]] = field(default_factory=dict)
    """The targets of the `invalidated_by` links of an entry."""
    slots: dict[SlotKey, str] = field(default_factory=dict)
    """The id of the entry that fills a slot."""
    used_keys: set[EntryKey] = field(default_factory=set)
    documents: dict[DocumentKey, Document] = field(default_factory=dict)
    """Without their logs, so that an append does not copy a log."""
    document_logs: dict[DocumentKey, list[Any]] = field(default_factory=dict)
    leases: dict[DocumentKey, Lease] = field(default_factory=dict)

    def copy(self) -> MemoryState:
        """Return a copy whose entries can change independently; documents are shared.

        Operations on documents change the state in their last step, so they need no rollback.
        """
        entries = {
            key: StoredEntry(
                one.number, [*one.versions], one.index_data, one.written_seq, one.access, [*one.transitions]
            )
            for key, one in self.entries.items()
        }
        return MemoryState(
            entries,
            {**self.links},
            {key: [*tombstones] for key, tombstones in self.tombstones.items()},
            [*self.change_log],
            {**self.receipts},
            {key: {*ids} for key, ids in self.dependents.items()},
            {key: {*ids} for key, ids in self.invalidations.items()},
            {**self.slots},
            {*self.used_keys},
            self.documents,
            self.document_logs,
            self.leases,
        )

    # Reads of entries

    def prefetch(self, requests: Sequence[WriteRequest]) -> None:
        """Do nothing: everything is in memory."""

    def find(self, namespace: str, id: str) -> StoredEntry | None:
        return self.entries.get((namespace, id))

    def find_many(self, namespace: str, ids: Collection[str]) -> dict[str, StoredEntry]:
        return {id: stored for id in ids if (stored := self.entries.get((namespace, id))) is not None}

    def damaged_in(self, scope: Scope) -> list[StoredEntry]:
        return []  # what is in memory is not decoded

    def entries_in(self, scope: Scope) -> list[StoredEntry]:
        return [stored for stored in self.entries.values() if scope.contains(stored.entry)]

    def load_versions(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        return entries

    def load_index_data(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        return entries

    def load_for_removal(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        return entries

    def possible_duplicates(self, entry: Entry) -> list[StoredEntry]:
        return [stored for stored in self.entries.values() if stored.entry.content == entry.content]

    def find_slot(self, entry: Entry) -> StoredEntry | None:
        id = self.slots.get((entry.scope, entry.key))
        return None if id is None else self.entries[entry.namespace, id]

    def _move_slot(self, old: Entry | None, new: Entry | None) -> None:
        """Empty the slot that an entry filled, and fill the one that it fills now."""
        if old is not None and old.fills_slot:
            self.slots.pop((old.scope, old.key), None)
        if new is not None and new.fills_slot:
            self.slots[new.scope, new.key] = new.id

    def dependents_of(self, namespace: str, ids: Collection[str]) -> set[str]:
        return {dependent for id in ids for dependent in self.dependents.get((namespace, id), ())}

    def invalidated_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        return {id for id in ids if self.invalidations.get((namespace, id))}

    def erased_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        return {id for id in ids if (namespace, id) in self.tombstones}

    def citing_ids(self, namespace: str, id: str) -> list[str]:
        return [
            stored.entry.id
            for (name, _), stored in self.entries.items()
            if name == namespace
            and any(old.entry is not None and semantics.depends_on(old.entry, id) for old in stored.versions)
        ]

    def tombstones_of(self, id: str, scope: Scope) -> list[Version]:
        tombstones = self.tombstones.get((scope.namespace, id), ())
        return [tombstone for owner, tombstone in tombstones if scope.contains(owner)]

    def links_of(self, namespace: str, id: str) -> dict[LinkKey, Link]:
        return {
            key: link for key, link in self.links.items() if key[0] == namespace and id in (key[1], key[3])
        }

    def count_links_from(self, namespace: str, ids: Collection[str]) -> int:
        return sum(key[0] == namespace and key[1] in ids for key in self.links)

    def find_link(self, key: LinkKey) -> Link | None:
        return self.links.get(key)

    def find_receipt(self, key: ReceiptKey) -> Receipt | None:
        return self.receipts.get(key)

    # Writes of entries

    def log_change(self, entry: Entry, op: str, now: int) -> int:
        seq = len(self.change_log) + 1
        self.change_log.append(
            Change(seq=seq, namespace=entry.namespace, id=entry.id, op=op, rev=entry.rev, at=now)
        )
        return seq

    def add(self, entry: Entry, index_data: IndexData, now: int) -> StoredEntry:
        seq = self.log_change(entry, "write", now)
        version = Version(id=entry.id, rev=entry.rev, at=now, entry=entry)
        stored = self.entries[entry.namespace, entry.id] = StoredEntry(seq, [version], index_data, seq)
        self._update_dependencies(None, entry)
        self._move_slot(None, entry)
        return stored

    def revise(
        self, stored: StoredEntry, new: Entry, op: str, now: int, index_data: IndexData | None = None
    ) -> None:
        old = stored.entry
        stored.versions.append(Version(id=new.id, rev=new.rev, at=now, entry=new))
        seq = self.log_change(new, op, now)
        self._move_slot(old, new)
        if index_data is not None:
            stored.index_data, stored.written_seq = index_data, seq
            self._update_dependencies(old, new)

    def set_stale(self, stored: StoredEntry, now: int, *, stale: bool) -> None:
        stored.transitions.append(StaleTransition(stored.entry.rev, now, stale))
        self.log_change(stored.entry, "stale" if stale else "current", now)

    def record_use(self, stored: StoredEntry, count: int, last: int | None) -> None:
        stored.access = Access(count=stored.access.count + count, last=last)
        self.used_keys.add((stored.entry.namespace, stored.entry.id))

    def remove(self, stored: StoredEntry, tombstone: Version) -> list[LinkKey]:
        entry = stored.entry
        key = (entry.namespace, entry.id)
        self._update_dependencies(entry, None)
        self._move_slot(entry, None)
        removed_links = [*self.links_of(*key)]
        for link_key in removed_links:
            self.remove_link(link_key)
        self._remove_receipts(key)
        del self.entries[key]
        self.add_tombstone(entry, tombstone)
        self.log_change(entry, "erase", tombstone.at)
        return removed_links

    def add_tombstone(self, like: Entry, tombstone: Version) -> None:
        owner = tombstone_owner(like, tombstone.id)
        self.tombstones.setdefault((like.namespace, tombstone.id), []).append((owner, tombstone))

    def _update_dependencies(self, old: Entry | None, new: Entry | None) -> None:
        if old is not None:
            for id in semantics.premises(old):
                self.dependents.setdefault((old.namespace, id), set()).discard(old.id)
        if new is not None:
            for id in semantics.premises(new):
                self.dependents.setdefault((new.namespace, id), set()).add(new.id)

    def add_link(self, key: LinkKey, link: Link) -> None:
        self.links[key] = link
        if link.relation == INVALIDATED_BY:
            self.invalidations.setdefault(key[:2], set()).add(link.target)

    def remove_link(self, key: LinkKey) -> bool:
        if key[2] == INVALIDATED_BY:
            self.invalidations.get(key[:2], set()).discard(key[3])
        return self.links.pop(key, None) is not None

    def add_receipt(self, key: ReceiptKey, receipt: Receipt) -> None:
        self.receipts[key] = receipt
        # The dictionary is ordered by age; a few at a time keep up with what is added.
        for old, (_, _, at) in [*self.receipts.items()][:8]:
            if at < receipt[2] - semantics.KEY_LIFETIME_MS:
                del self.receipts[old]

    def _remove_receipts(self, entry_key: EntryKey) -> None:
        for key, (_, result, _) in [*self.receipts.items()]:
            if (key[0], result.entry.id) == entry_key:
                del self.receipts[key]

    # Documents

    def find_document(self, key: DocumentKey) -> Document | None:
        return self.documents.get(key)

    def document_log(self, key: DocumentKey) -> tuple[Any, ...]:
        return tuple(self.document_logs[key])

    def documents_of_kind(self, kind: str, namespace: str, after: str | None) -> Iterable[Document]:
        return [
            self.documents[key]
            for key in sorted(key for key in self.documents if key[:2] == (namespace, kind))
            if after is None or key[2] > after
        ]

    def document_owners(self, namespace: str) -> dict[DocumentKey, Scope]:
        return {key: document.owner for key, document in self.documents.items() if key[0] == namespace}

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None:
        self.documents[key] = document
        self.document_logs[key] = [*log]

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None:
        self.documents[key] = document
        self.document_logs[key] += added

    def remove_document(self, key: DocumentKey) -> None:
        del self.documents[key], self.document_logs[key]
        self.leases.pop(key, None)

    def find_lease(self, key: DocumentKey) -> Lease | None:
        return self.leases.get(key)

    def put_lease(self, key: DocumentKey, lease: Lease) -> None:
        self.leases[key] = lease

    def remove_leases(self, namespace: str) -> None:
        for key in [key for key in self.leases if key[0] == namespace]:
            del self.leases[key]


class MemoryStore(StateStore, ForkListener):
    """A store whose entries last as long as the process."""

    UNREACHABLE: ClassVar[tuple[str, ...]] = ("graphs that have not caught up", "what other programs read")

    def __init__(self, embedder: Embedder | None, settings: StoreSettings) -> None:
        super().__init__(embedder, settings)
        self._state = MemoryState()
        self._generation = ids.uuid7()
        self._place = f"memory://{self._generation}"
        self._lock = RLock()
        self._closed = False
        self._locked_for_fork = False
        self._reindex_lock = Lock()
        forks.register(self)

    def before_fork(self, deadline: float) -> None:
        """Wait for a running operation, so that the child gets a whole state."""
        self._locked_for_fork = self._lock.acquire(timeout=max(0.0, deadline - time.monotonic()))

    def after_fork_in_parent(self) -> None:
        """Let operations begin again."""
        if self._locked_for_fork:
            self._lock.release()

    def after_fork_in_child(self) -> None:
        """Go on with a copy of the state; it is closed if an operation was changing it."""
        self._closed = self._closed or not self._locked_for_fork
        self._lock, self._reindex_lock = RLock(), Lock()
        self._embedder_gate = EmbedderGate()

    def close(self) -> None:
        """Close the store and drop its data."""
        with self._lock:
            self._closed = True
            self._state = MemoryState()

    def _run_read(self, operation: Callable[[MemoryState], T]) -> T:
        with self._lock:
            if self._closed:
                raise Closed("memory://", "is closed", "open another; it kept nothing")
            return operation(self._state)

    def _run_write(self, operation: Callable[[MemoryState], T], *, rollback: bool = False) -> T:
        # A copy of the state is too slow for every write.
        with self._lock:
            before = self._state.copy() if rollback else None
            try:
                return self._run_read(operation)
            except BaseException:
                if before is not None:
                    self._state = before
                raise

    def recall(self, request: RecallRequest) -> RecallResult:
        """Return the entries that answer best."""
        check_arguments(recall_request=request)
        if not recall_engine.has_numpy():
            return recall_engine.recall_by_words(request, self, self.settings)
        return recall_engine.recall(request, self, self.embedder, self.settings)

    def speakers(self, scope: Scope) -> Sequence[str]:
        """Return the names of the speakers in a scope."""
        return self._run_read(lambda state: operations.speakers(state, scope))

    @contextmanager
    def candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, encode_query: QueryEncoder
    ) -> Iterator[Candidates | None]:
        """Yield all entries of a scope that may answer."""
        yield self._candidates(scope, filter, at, encode_query)

    def stats(self, scope: Scope) -> Stats:
        """Count the entries, versions and links of a scope."""
        check_arguments(scope=scope)
        now = clock.now()
        return self._run_read(
            lambda state: operations.stats(
                state, scope, self.embedder, now, _last_seq(state, scope.namespace)
            )
        )

    def owners(self, scope: Scope) -> list[Owner]:
        """Return the users, agents and projects that have entries in a scope."""
        check_arguments(scope=scope)
        now = clock.now()
        return self._run_read(lambda state: operations.owners(state, scope, now))

    def namespaces(self) -> list[str]:
        """Return the namespaces that have an entry or a document, sorted."""
        return self._run_read(lambda state: sorted({key[0] for key in (*state.entries, *state.documents)}))

    def kinds(self, namespace: str) -> list[str]:
        """Return the kinds of the documents in a namespace, sorted."""
        check_arguments(namespace=namespace)
        return self._run_read(
            lambda state: sorted({kind for name, kind, _ in state.documents if name == namespace})
        )

    def changes(
        self,
        namespace: str,
        *,
        after: int = 0,
        until: int | None = None,
        limit: int = 1000,
        scope: Scope | None = None,
    ) -> list[Change]:
        """Return the changes after a sequence number, in order."""
        check_arguments(namespace=namespace, after=after, until=until, limit=limit, optional_scope=scope)

        def read(state: MemoryState) -> list[Change]:
            found = _changes_after(state, namespace, after, until)
            return operations.changes_in(state, found, scope)[:limit]

        return self._run_read(read)

    def change_feed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """Return what changed after a sequence number, in its current form."""
        check_arguments(namespace=namespace, after=after, limit=limit, used_since=used_since)
        return self._run_read(
            lambda state: _read_feed(state, self._generation, namespace, after, limit, used_since)
        )

    def scrub(self) -> EraseReceipt:
        """Report that nothing is left of erased entries: memory has no files."""
        return EraseReceipt(scrubbed=True, unreachable=self.UNREACHABLE)

    def findings(self) -> list[Finding]:
        """Report on the upkeep of the store; a store in memory needs none."""
        return [Finding("kept", "note", "in memory only: it is gone when the program ends")]

    def check(self) -> list[str]:
        """Return the inconsistencies; a store in memory has no copies that could disagree."""
        return []

    def reindex(self, embedder: Any = None, progress: ProgressCallback | None = None) -> ReindexResult:
        """Rebuild the index data of all entries while in use, with another embedder if one is given."""
        chosen = self.embedder if embedder is None else choose(embedder)
        if not self._reindex_lock.acquire(blocking=False):
            raise ReindexClaim.create().refusal("memory://")
        try:
            prepared: dict[EntryKey, Prepared] = {}
            while missing := self._find_unprepared(chosen, prepared):
                if len(missing) <= LAST_BATCH:
                    break
                _prepare(missing[:_REINDEX_BATCH], chosen, prepared)
                if progress is not None:
                    progress(len(prepared), max(len(prepared), len(missing)))
            with self._embedder_gate.closed():  # what is written from now on has the new vectors
                _prepare(self._find_unprepared(chosen, prepared), chosen, prepared)
                result = self._run_write(lambda state: self._switch(state, chosen, prepared))
            if progress is not None:
                progress(result.entries, result.entries)
            return result
        finally:
            self._reindex_lock.release()

    def _find_unprepared(
        self, embedder: Embedder | None, prepared: Mapping[EntryKey, Prepared]
    ) -> list[StoredEntry]:
        """Return the entries without prepared index data, or with that of an earlier revision."""
        model = model_key(embedder)

        def is_missing(key: EntryKey, stored: StoredEntry) -> bool:
            found = prepared.get(key)
            if found is None or text_of(found.entry) != text_of(stored.entry):
                return True
            return bool(model) and not (found.data.vectors_of(model) or stored.index_data.vectors_of(model))

        return self._run_read(
            lambda state: [stored for key, stored in state.entries.items() if is_missing(key, stored)]
        )

    def _switch(
        self, state: MemoryState, chosen: Embedder | None, prepared: Mapping[EntryKey, Prepared]
    ) -> ReindexResult:
        """Let prepared vectors serve, and drop those that they replace."""
        model = model_key(chosen)
        embedded = updated = 0
        for key, stored in state.entries.items():
            if key not in prepared:  # written without vectors meanwhile
                continue
            before, data = stored.index_data, prepared[key].data
            updated += before.features != data.features
            embedded += bool(model) and before.vectors_of(model) is None
            stored.index_data = before._replace(features=data.features, terms=data.terms)
            if model:
                own = before.vectors_of(model) or data.vectors_of(model)
                stored.index_data = stored.index_data.with_vectors(own)
        self.embedder = chosen
        every = [stored.index_data for stored in state.entries.values()]
        return ReindexResult(
            embedder=None if chosen is None else chosen.name,
            entries=len(every),
            embedded=embedded,
            updated_terms=updated,
            given_vectors=sum(data.count_given() for data in every),
        )


class Prepared(NamedTuple):
    """New index data of an entry, and the entry that it was computed from."""

    entry: Entry
    data: IndexData


def _prepare(
    entries: Sequence[StoredEntry], embedder: Embedder | None, prepared: dict[EntryKey, Prepared]
) -> None:
    """Compute the terms of entries, and the vectors of those that have none by this embedder."""
    model = model_key(embedder)
    has_vectors = [not model or one.index_data.vectors_of(model) is not None for one in entries]
    lacking = [one.entry for one, found in zip(entries, has_vectors, strict=True) if not found]
    fresh = iter(index_entries(lacking, embedder))
    for one, found in zip(entries, has_vectors, strict=True):
        data = index_entry(one.entry) if found else next(fresh)
        prepared[one.entry.namespace, one.entry.id] = Prepared(one.entry, data)


def _changes_after(state: MemoryState, namespace: str, after: int, until: int | None = None) -> list[Change]:
    return [change for change in state.change_log[after:until] if change.namespace == namespace]


def _last_seq(state: MemoryState, namespace: str) -> int:
    """Return the sequence number of the newest change in a namespace."""
    return next((change.seq for change in reversed(state.change_log) if change.namespace == namespace), 0)


def _read_feed(
    state: MemoryState, generation: str, namespace: str, after: int, limit: int, used_since: int | None
) -> Feed:
    changes = _changes_after(state, namespace, after)
    # From the start, a namespace that fits is returned whole, however often its entries changed.
    more = len(changes) > limit and (after > 0 or _count_records(state, namespace) > limit)
    if more:
        changes = changes[:limit]
    ids = dict.fromkeys(operations.latest_ids(change.id for change in changes))
    entries = state.find_many(namespace, ids)
    written = {(change.id, change.rev) for change in changes if change.op == "write"}
    return Feed(
        generation=generation,
        seq=changes[-1].seq if changes else after,
        more=more,
        entries=tuple(stored.entry for stored in entries.values()),
        links=tuple(state.links[key] for key in sorted(state.links) if key[0] == namespace and key[1] in ids),
        access=_access_counts(state, namespace, entries, used_since),
        erased_ids=tuple(dict.fromkeys(change.id for change in changes if change.op == "erase")),
        new_ids=frozenset(
            id
            for id, stored in entries.items()
            if (id, stored.first_rev) in written and (namespace, id) not in state.tombstones
        ),
    )


def _count_records(state: MemoryState, namespace: str) -> int:
    entries = sum(name == namespace for name, _ in state.entries)
    return entries + sum(len(found) for (name, _), found in state.tombstones.items() if name == namespace)


def _access_counts(
    state: MemoryState, namespace: str, changed: Mapping[str, StoredEntry], since: int | None
) -> dict[str, Access]:
    """Return the use of the changed entries, and of those used since a moment."""
    counts = {id: stored.access for id, stored in changed.items() if stored.access.count}
    if since is not None:
        for name, id in state.used_keys:
            stored = state.entries.get((name, id)) if name == namespace else None
            if stored is not None and stored.access.last is not None and stored.access.last >= since:
                counts[id] = stored.access
    return counts
