"""What does the store in memory hold?

Every operation goes through the methods of a state, so that a store which keeps its state elsewhere can
follow the same rules: it brings what is asked for, and writes down what was changed.

"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omoide.core.entry import Entry, Scope, WriteRequest, WriteResult
from omoide.stores import semantics, truth
from omoide.stores.codec import IndexData
from omoide.stores.records import Access, Change, Document, Lease, Link, Version
from omoide.stores.truth import INVALIDATED_BY, StaleTransition

EntryKey = tuple[str, str]
LinkKey = tuple[str, str, str, str]
DocumentKey = tuple[str, str, str]
Receipt = tuple[bytes, WriteResult, int]


@dataclass
class StoredEntry:
    """An entry with its past."""

    number: int
    versions: list[Version]
    index_data: IndexData
    written_seq: int
    access: Access = field(default_factory=Access)
    transitions: list[StaleTransition] = field(default_factory=list)

    @property
    def entry(self) -> Entry:
        """As it is now."""
        return entry_of_version(self.versions[-1], stale=self.is_stale)

    @property
    def first_rev(self) -> int:
        """The first revision that was kept here."""
        return self.versions[0].rev

    @property
    def has_vector(self) -> bool:
        """Whether it has a vector."""
        return self.index_data.pooled is not None

    @property
    def is_stale(self) -> bool:
        """Whether it rests on what does not hold."""
        return bool(self.transitions) and self.transitions[-1].stale

    @property
    def status(self) -> int:
        """How it stands."""
        return truth.status_of(self.entry)

    def entry_at(self, moment: int | None) -> Entry | None:
        """As it was."""
        if moment is None:
            return self.entry
        past = [version for version in self.versions if version.at <= moment]
        return (
            entry_of_version(past[-1], stale=truth.was_stale_at(self.transitions, moment)) if past else None
        )

    def history(self) -> list[Version]:
        """All versions, each with whether it was stale in the end."""
        return [
            version.replace(
                entry=entry_of_version(version, stale=truth.was_stale_in_rev(self.transitions, version.rev))
            )
            for version in self.versions
        ]


def entry_of_version(version: Version, *, stale: bool) -> Entry:
    """The entry of a version, with whether it is stale."""
    assert version.entry is not None
    return (
        version.entry
        if version.entry.stale == stale
        else semantics.replace_unchecked(version.entry, stale=stale)
    )


@dataclass
class StoreState:
    """All that the store holds; copied before a write, put back when the write fails."""

    entries: dict[EntryKey, StoredEntry] = field(default_factory=dict)
    links: dict[LinkKey, Link] = field(default_factory=dict)
    tombstones: dict[EntryKey, list[tuple[Entry, Version]]] = field(default_factory=dict)
    change_log: list[Change] = field(default_factory=list)
    receipts: dict[EntryKey, Receipt] = field(default_factory=dict)
    dependents: dict[EntryKey, set[str]] = field(default_factory=dict)
    """What now rests on an entry, whether that exists or not."""
    invalidations: dict[EntryKey, set[str]] = field(default_factory=dict)
    """What invalidates an entry."""
    used_keys: set[EntryKey] = field(default_factory=set)
    """What was ever used."""
    documents: dict[DocumentKey, Document] = field(default_factory=dict)
    """Without their logs."""
    document_logs: dict[DocumentKey, list[Any]] = field(default_factory=dict)
    """Apart, so that appending costs what is appended."""
    leases: dict[DocumentKey, Lease] = field(default_factory=dict)

    def copy(self) -> StoreState:
        """One whose entries can be changed without changing this one's; a failed write leaves documents."""
        kept = {
            key: StoredEntry(
                one.number, [*one.versions], one.index_data, one.written_seq, one.access, [*one.transitions]
            )
            for key, one in self.entries.items()
        }
        return StoreState(
            kept, {**self.links}, {key: [*told] for key, told in self.tombstones.items()}, [*self.change_log],
            {**self.receipts}, {key: {*ids} for key, ids in self.dependents.items()},
            {key: {*ids} for key, ids in self.invalidations.items()}, {*self.used_keys},
            self.documents, self.document_logs, self.leases,
        )  # fmt: skip

    # Looking

    def prefetch(self, requests: Sequence[WriteRequest]) -> None:
        """These writes come next; a store that fetches what it is asked for may fetch it at once."""

    def find(self, namespace: str, id: str) -> StoredEntry | None:
        """An entry, if there is one."""
        return self.entries.get((namespace, id))

    def find_many(self, namespace: str, ids: Collection[str]) -> dict[str, StoredEntry]:
        """Those of these that exist."""
        found = ((id, self.entries.get((namespace, id))) for id in ids)
        return {id: one for id, one in found if one is not None}

    def entries_in(self, scope: Scope) -> list[StoredEntry]:
        """What a scope holds, in the order of its first versions."""
        return [one for one in self.entries.values() if scope.contains(one.entry)]

    def load_versions(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """The same entries, with all of their versions."""
        return entries

    def load_index_data(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """The same entries, with what they are found by."""
        return entries

    def load_for_removal(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """The same entries, which are about to be removed, with all of their versions."""
        return self.load_versions(entries)

    def possible_duplicates(self, entry: Entry) -> list[StoredEntry]:
        """What may say already what another entry would."""
        return [one for one in self.entries.values() if one.entry.content == entry.content]

    def dependents_of(self, namespace: str, ids: Collection[str]) -> set[str]:
        """What now rests on any of these."""
        return {by for id in ids for by in self.dependents.get((namespace, id), ())}

    def invalidated_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        return {id for id in ids if self.invalidations.get((namespace, id))}

    def erased_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these of which there is a tombstone."""
        return {id for id in ids if (namespace, id) in self.tombstones}

    def citing_ids(self, namespace: str, id: str) -> list[str]:
        """The entries of which any version rests on this one."""
        return [
            one.entry.id
            for (name, _), one in self.entries.items()
            if name == namespace
            and any(old.entry is not None and semantics.depends_on(old.entry, id) for old in one.versions)
        ]

    def tombstones_of(self, id: str, scope: Scope) -> list[Version]:
        """The tombstones of an id that a scope holds."""
        told = self.tombstones.get((scope.namespace, id), ())
        return [version for entry, version in told if scope.contains(entry)]

    def links_of(self, namespace: str, id: str) -> dict[LinkKey, Link]:
        """The links from and to an entry."""
        return {
            key: link for key, link in self.links.items() if key[0] == namespace and id in (key[1], key[3])
        }

    def count_links_from(self, namespace: str, ids: Collection[str]) -> int:
        """How many links begin at these."""
        return sum(key[0] == namespace and key[1] in ids for key in self.links)

    def find_link(self, key: LinkKey) -> Link | None:
        """A link, if it is kept."""
        return self.links.get(key)

    def find_receipt(self, key: EntryKey) -> Receipt | None:
        """What was answered under an idempotency key."""
        return self.receipts.get(key)

    # Changing

    def log_change(self, entry: Entry, op: str, now: int) -> int:
        """Write a change into the log; its number."""
        seq = len(self.change_log) + 1
        self.change_log.append(
            Change(seq=seq, namespace=entry.namespace, id=entry.id, op=op, rev=entry.rev, at=now)
        )
        return seq

    def add(self, entry: Entry, index_data: IndexData, now: int) -> StoredEntry:
        """Keep a new entry."""
        seq = self.log_change(entry, "write", now)
        version = Version(id=entry.id, rev=entry.rev, at=now, entry=entry)
        one = self.entries[entry.namespace, entry.id] = self._new_entry(version, index_data, seq)
        self.update_dependencies(None, entry)
        return one

    def _new_entry(self, version: Version, index_data: IndexData, seq: int) -> StoredEntry:
        return StoredEntry(seq, [version], index_data, seq)

    def revise(
        self, stored: StoredEntry, new: Entry, op: str, now: int, index_data: IndexData | None = None
    ) -> None:
        """Keep the next version of an entry, with what is found of it if that was written anew."""
        old = stored.entry
        stored.versions.append(Version(id=new.id, rev=new.rev, at=now, entry=new))
        seq = self.log_change(new, op, now)
        if index_data is not None:
            stored.index_data, stored.written_seq = index_data, seq
            self.update_dependencies(old, new)

    def set_stale(self, stored: StoredEntry, now: int, *, stale: bool) -> None:
        """Note that an entry is stale from now on, or current again."""
        stored.transitions.append(StaleTransition(stored.entry.rev, now, stale))
        self.log_change(stored.entry, "stale" if stale else "current", now)

    def record_use(self, stored: StoredEntry, count: int, last: int | None) -> None:
        """Note that an entry was used so many times more."""
        stored.access = Access(count=stored.access.count + count, last=last)
        self.used_keys.add((stored.entry.namespace, stored.entry.id))

    def remove(self, stored: StoredEntry, tombstone: Version) -> list[LinkKey]:
        """Leave nothing of an entry but a tombstone; the links that went with it."""
        entry = stored.entry
        name = (entry.namespace, entry.id)
        self.update_dependencies(entry, None)
        cut = [*self.links_of(*name)]
        for key in cut:
            self.remove_link(key)
        self.remove_receipts(name)
        del self.entries[name]
        self.add_tombstone(entry, tombstone)
        self.log_change(entry, "erase", tombstone.at)
        return cut

    def add_tombstone(self, like: Entry, tombstone: Version) -> None:
        """Keep a tombstone that belongs to whom an entry belongs."""
        blank = Entry(
            id=tombstone.id, agent_id=like.agent_id, session_id=like.session_id, content="-",
            project_id=like.project_id, namespace=like.namespace, created_at=0,
        )  # fmt: skip
        self.tombstones.setdefault((like.namespace, tombstone.id), []).append((blank, tombstone))

    def update_dependencies(self, old: Entry | None, new: Entry | None) -> None:
        """Note what an entry rests on now, instead of what it rested on."""
        if old is not None:
            for id in truth.premises(old):
                self.dependents.setdefault((old.namespace, id), set()).discard(old.id)
        if new is not None:
            for id in truth.premises(new):
                self.dependents.setdefault((new.namespace, id), set()).add(new.id)

    def add_link(self, key: LinkKey, link: Link) -> None:
        """Keep a link."""
        self.links[key] = link
        if link.relation == INVALIDATED_BY:
            self.invalidations.setdefault(key[:2], set()).add(link.target)

    def remove_link(self, key: LinkKey) -> bool:
        """Remove a link; whether there was one."""
        if key[2] == INVALIDATED_BY:
            self.invalidations.get(key[:2], set()).discard(key[3])
        return self.links.pop(key, None) is not None

    def add_receipt(self, key: EntryKey, receipt: Receipt) -> None:
        """Remember what was answered under an idempotency key, and forget what is too old."""
        self.receipts[key] = receipt
        for old, (_, _, at) in [*self.receipts.items()][:8]:
            if at < receipt[2] - semantics.KEY_LIFETIME_MS:
                del self.receipts[old]

    def remove_receipts(self, entry_key: EntryKey) -> None:
        """Forget what was answered about an entry."""
        for name, (_, receipt, _) in [*self.receipts.items()]:
            if (name[0], receipt.entry.id) == entry_key:
                del self.receipts[name]

    # Documents

    def find_document(self, key: DocumentKey) -> Document | None:
        """A document without its log, if there is one."""
        return self.documents.get(key)

    def document_log(self, key: DocumentKey) -> tuple[Any, ...]:
        """What was appended to a document."""
        return tuple(self.document_logs[key])

    def documents_of_kind(self, kind: str, namespace: str, after: str | None) -> Iterable[Document]:
        """The documents of a kind after an id, in the order of their ids."""
        return [
            self.documents[key]
            for key in sorted(key for key in self.documents if key[:2] == (namespace, kind))
            if after is None or key[2] > after
        ]

    def document_owners(self, namespace: str) -> dict[DocumentKey, Scope]:
        """All documents of a namespace, with whose they are."""
        return {
            key: Scope(namespace=namespace, agent_id=one.agent_id, session_id=one.session_id)
            for key, one in self.documents.items()
            if key[0] == namespace
        }

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None:
        """Replace a document and its log."""
        self.documents[key] = document
        self.document_logs[key] = [*log]

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None:
        """Replace a document and add to its log."""
        self.documents[key] = document
        self.document_logs[key] += added

    def remove_document(self, key: DocumentKey) -> None:
        """Remove a document with its log and its lease."""
        del self.documents[key], self.document_logs[key]
        self.leases.pop(key, None)

    def find_lease(self, key: DocumentKey) -> Lease | None:
        """Who holds a document, or held it last."""
        return self.leases.get(key)

    def put_lease(self, key: DocumentKey, lease: Lease) -> None:
        """Note who holds a document."""
        self.leases[key] = lease

    def remove_leases(self, namespace: str) -> None:
        """Forget who holds what in a namespace."""
        for key in [key for key in self.leases if key[0] == namespace]:
            del self.leases[key]


class MemoryDependencyIndex:
    """The entries of one namespace."""

    def __init__(self, state: StoreState, namespace: str) -> None:
        self._state = state
        self._namespace = namespace

    def statuses(self, ids: Collection[str]) -> dict[str, int]:
        """How each of these stands that exists."""
        return {id: one.status for id, one in self._state.find_many(self._namespace, ids).items()}

    def dependents(self, ids: Collection[str]) -> dict[str, int]:
        """The entries that now rest on any of these, and how they stand."""
        return self.statuses(self._state.dependents_of(self._namespace, ids))

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Each of these with each of the ids it now rests on."""
        for id, one in self._state.find_many(self._namespace, ids).items():
            for premise in truth.premises(one.entry):
                yield id, premise

    def invalidated_ids(self, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        return self._state.invalidated_ids(self._namespace, ids)

    def erased_ids(self, ids: Collection[str]) -> set[str]:
        """Those of these, none of which exists, that did exist."""
        return self._state.erased_ids(self._namespace, ids)
