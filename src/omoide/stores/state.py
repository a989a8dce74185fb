"""Define the state that store operations read and change.

`omoide.stores.operations` is written against `StateReader` and `StoreState`. A store that keeps its data
elsewhere implements them over the part of the state that one operation needs: it fetches what is read and
records what is changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from omoide.core.entry import Entry, Scope, WriteRequest, WriteResult
from omoide.stores import semantics
from omoide.stores.records import Access, Document, IndexData, Lease, Link, Version
from omoide.stores.semantics import StaleTransition

EntryKey = tuple[str, str]
"""Namespace and id."""
ReceiptKey = tuple[str, str]
"""Namespace and idempotency key."""
LinkKey = tuple[str, str, str, str]
"""Namespace, source, relation and target."""
DocumentKey = tuple[str, str, str]
"""Namespace, kind and id."""
Receipt = tuple[bytes, WriteResult, int]
"""Fingerprint of the request, its result, and the time of the write."""


@dataclass
class StoredEntry:
    """An entry with its versions, index data, use and staleness transitions."""

    number: int
    """Sequence number of its first write; orders entries of equal time."""
    versions: list[Version]
    index_data: IndexData
    written_seq: int
    """Sequence number of its last write."""
    access: Access = field(default_factory=Access)
    transitions: list[StaleTransition] = field(default_factory=list)

    @property
    def entry(self) -> Entry:
        """The current version."""
        return entry_of_version(self.versions[-1], stale=self.is_stale)

    @property
    def first_rev(self) -> int:
        """The first revision in this store; above 1 for an imported entry."""
        return self.versions[0].rev

    @property
    def has_vector(self) -> bool:
        return self.index_data.pooled is not None

    @property
    def is_stale(self) -> bool:
        return bool(self.transitions) and self.transitions[-1].stale

    @property
    def status(self) -> int:
        return semantics.status_of(self.entry)

    def entry_at(self, moment: int | None) -> Entry | None:
        """Return the entry as of a moment, the current one for None; None before it existed."""
        if moment is None:
            return self.entry
        past = [version for version in self.versions if version.at <= moment]
        if not past:
            return None
        return entry_of_version(past[-1], stale=semantics.was_stale_at(self.transitions, moment))

    def history(self) -> list[Version]:
        """Return all versions, each with the staleness that it ended with."""
        return [
            version.replace(
                entry=entry_of_version(
                    version, stale=semantics.was_stale_in_rev(self.transitions, version.rev)
                )
            )
            for version in self.versions
        ]


def entry_of_version(version: Version, *, stale: bool) -> Entry:
    """Return the entry of a version with its `stale` flag set."""
    assert version.entry is not None
    if version.entry.stale == stale:
        return version.entry
    return semantics.replace_unchecked(version.entry, stale=stale)


def tombstone_owner(like: Entry, id: str) -> Entry:
    """Return an empty entry with the owner of another: tombstones are visible where the entry was."""
    return Entry(
        id=id,
        user_id=like.user_id,
        agent_id=like.agent_id,
        session_id=like.session_id,
        project_id=like.project_id,
        namespace=like.namespace,
        content="-",
        created_at=0,
    )


class StateReader(Protocol):
    """Read access to the state of a store.

    Methods that take several entries or ids exist so that a remote state is read in few round trips.
    """

    def damaged_in(self, scope: Scope) -> list[StoredEntry]:
        """Return those entries of a scope that were read and are damaged, as indexes know them."""

    def find(self, namespace: str, id: str) -> StoredEntry | None: ...

    def find_many(self, namespace: str, ids: Collection[str]) -> Mapping[str, StoredEntry]:
        """Return those of these entries that exist."""

    def entries_in(self, scope: Scope) -> list[StoredEntry]:
        """Return the entries of a scope, ordered by their first write."""

    def load_versions(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """Return the same entries, with all of their versions loaded."""

    def load_index_data(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """Return the same entries, with their index data loaded."""

    def dependents_of(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Return the ids of the entries whose current evidence names any of these."""

    def invalidated_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Return those of these with an `invalidated_by` link."""

    def erased_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Return those of these with a tombstone."""

    def tombstones_of(self, id: str, scope: Scope) -> list[Version]: ...

    def links_of(self, namespace: str, id: str) -> dict[LinkKey, Link]:
        """Return the links from and to an entry."""

    def count_links_from(self, namespace: str, ids: Collection[str]) -> int: ...

    def find_document(self, key: DocumentKey) -> Document | None:
        """Return a document without its log."""

    def document_log(self, key: DocumentKey) -> tuple[Any, ...]: ...

    def documents_of_kind(self, kind: str, namespace: str, after: str | None) -> Iterable[Document]:
        """Return the documents of a kind with an id above `after`, ordered by id."""


class StoreState(StateReader, Protocol):
    """Read and write access to the state of a store, inside one write operation."""

    def prefetch(self, requests: Sequence[WriteRequest]) -> None:
        """Load what these writes will read."""

    def load_for_removal(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """Return the same entries, with all versions and everything that refers to them loaded."""

    def possible_duplicates(self, entry: Entry) -> list[StoredEntry]:
        """Return entries with the same content, ordered by their first write."""

    def find_slot(self, entry: Entry) -> StoredEntry | None:
        """Return the entry that fills the slot of another; None if the slot is empty."""

    def citing_ids(self, namespace: str, id: str) -> list[str]:
        """Return the ids of the entries of which any version names this one as evidence."""

    def find_link(self, key: LinkKey) -> Link | None: ...

    def find_receipt(self, key: ReceiptKey) -> Receipt | None: ...

    def document_owners(self, namespace: str) -> dict[DocumentKey, Scope]: ...

    def find_lease(self, key: DocumentKey) -> Lease | None:
        """Return the current or the last lease of a document."""

    def log_change(self, entry: Entry, op: str, now: int) -> int:
        """Append to the change log and return the sequence number."""

    def add(self, entry: Entry, index_data: IndexData, now: int) -> StoredEntry: ...

    def revise(
        self, stored: StoredEntry, new: Entry, op: str, now: int, index_data: IndexData | None = None
    ) -> None:
        """Add a version; with index data when its content was written anew."""

    def set_stale(self, stored: StoredEntry, now: int, *, stale: bool) -> None: ...

    def record_use(self, stored: StoredEntry, count: int, last: int | None) -> None: ...

    def remove(self, stored: StoredEntry, tombstone: Version) -> list[LinkKey]:
        """Replace an entry by a tombstone, and return the links that were removed with it."""

    def add_tombstone(self, like: Entry, tombstone: Version) -> None:
        """Add a tombstone with the owner of an entry."""

    def add_link(self, key: LinkKey, link: Link) -> None: ...

    def remove_link(self, key: LinkKey) -> bool:
        """Remove a link and return whether it existed."""

    def add_receipt(self, key: ReceiptKey, receipt: Receipt) -> None:
        """Store the result of a write under its idempotency key, and drop expired ones."""

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None: ...

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None: ...

    def remove_document(self, key: DocumentKey) -> None:
        """Remove a document with its log and its lease."""

    def put_lease(self, key: DocumentKey, lease: Lease) -> None: ...

    def remove_leases(self, namespace: str) -> None: ...


class StateDependencyIndex:
    """The `truth.DependencyIndex` of one namespace of a state."""

    def __init__(self, state: StateReader, namespace: str) -> None:
        self._state = state
        self._namespace = namespace

    def statuses(self, ids: Collection[str]) -> dict[str, int]:
        """Return the status of each of these that exists."""
        return {id: stored.status for id, stored in self._state.find_many(self._namespace, ids).items()}

    def dependents(self, ids: Collection[str]) -> dict[str, int]:
        """Return the status of each entry that depends on any of these."""
        return self.statuses(self._state.dependents_of(self._namespace, ids))

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Yield each of these with each id of its evidence."""
        for id, stored in self._state.find_many(self._namespace, ids).items():
            for premise in semantics.premises(stored.entry):
                yield id, premise

    def invalidated_ids(self, ids: Collection[str]) -> set[str]:
        return self._state.invalidated_ids(self._namespace, ids)

    def erased_ids(self, ids: Collection[str]) -> set[str]:
        return self._state.erased_ids(self._namespace, ids)
