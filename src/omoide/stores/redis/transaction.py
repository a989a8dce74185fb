"""Collect the changes of one operation, and commit them optimistically.

A transaction is a write set over a snapshot: an operation reads and changes it without changing the server.
The commit script checks the expectations of the snapshot and applies the changes at once. When another
process was faster, the operation runs again on a new snapshot. After losing several times it locks the
namespaces, so that everybody gets through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from omoide.core.entry import DEFAULT_NAMESPACE, Entry, WriteRequest
from omoide.errors import Busy, Corrupted, Invalid, OmoideError, ReadOnly, StoreFailed
from omoide.stores import records, semantics
from omoide.stores.records import Document, IndexData, Lease, Link, Version
from omoide.stores.redis import layout
from omoide.stores.redis.connection import CommitWriter, RedisConnections
from omoide.stores.redis.layout import (
    COMMIT_TICK,
    DEFAULT_PREFIX,
    Argument,
    EntryRow,
    NamespaceKeys,
    join_ids,
    partitions_of,
    watch_field,
)
from omoide.stores.redis.snapshot import (
    DOCUMENTS_FIELD,
    MAX_COMMAND_ARGS,
    UNASSIGNED,
    FetchedEntry,
    RedisSnapshot,
    as_fetched,
    batches,
)
from omoide.stores.semantics import INVALIDATED_BY, LIVE, StaleTransition
from omoide.stores.state import DocumentKey, LinkKey, Receipt, ReceiptKey, StoredEntry, tombstone_owner

T = TypeVar("T")

_MAX_CONFLICTS = 3
"""Conflicts after which an operation locks its namespaces."""
_LOCK_TTL_MS = 5_000
_RETRY_DELAY_S = 0.001
_READ_ATTEMPTS = 5


def _number_argument(number: int) -> bytes | int:
    """Return a sequence number as digits, or as a placeholder that the commit fills in."""
    return number - UNASSIGNED if number >= UNASSIGNED else layout.to_digits(number)


class NamespaceChanges:
    """The changes of a transaction to one namespace, as commands of the commit script."""

    def __init__(self, keys: NamespaceKeys) -> None:
        self.keys = keys
        self.log_records: list[bytes] = []
        self.changed_entries: dict[str, FetchedEntry] = {}
        self._touched: set[str] = set()
        self._emptied_slots: set[bytes] = set()
        self._deletions: dict[tuple[str, bytes], list[Argument]] = {}
        self._commands: list[list[Any]] = []

    @property
    def is_empty(self) -> bool:
        return not (self.log_records or self.changed_entries or self._commands or self._deletions)

    def command(self, verb: str, key: bytes, *args: Argument) -> None:
        """Add a command."""
        self._commands.append([verb, key, *args])

    def delete(self, verb: str, key: bytes, args: Iterable[Argument]) -> None:
        """Add arguments to a command that only frees memory; these run before all others."""
        arguments = [*args]
        if arguments:
            self._deletions.setdefault((verb, key), []).extend(arguments)

    def delete_key(self, key: bytes) -> None:
        self._deletions["DEL", key] = []

    def touch(self, *fields: str) -> None:
        """Give fields of `watch` a new stamp, so that transactions which read them conflict."""
        self._touched.update(fields)

    def increment(self, counter: str, by: int) -> None:
        if by:
            self.command("HINCRBY", self.keys("meta"), counter, str(by))

    def remove_entry(self, stored: FetchedEntry) -> None:
        """Delete everything that is stored of an entry."""
        keys, entry = self.keys, stored.entry
        id = entry.id
        self.changed_entries.pop(id, None)
        if stored.before is None:
            return  # added by this transaction, and never on the server
        self.delete("HDEL", keys("rows"), [id])
        self.delete("HDEL", keys("found"), [id])
        number = layout.to_digits(stored.number)
        self.delete(
            "HDEL", keys("past"), [number + b"%d" % rev for rev in range(stored.first_rev, entry.rev)]
        )
        for partition in partitions_of(entry):
            self.delete("ZREM", keys("time", partition), [number + id.encode()])
            self.delete("ZREM", keys("all", partition), [id])
        if stored.before.fills_slot:
            self._emptied_slots.add(layout.slot_field(stored.before))
        self.delete("ZREM", keys("expiry"), [id])
        self.delete("HDEL", keys("access"), [id])
        self.delete("ZREM", keys("used"), [id])
        self.command("REMOVE_MEMBER", keys("same"), semantics.content_key(stored.before), id)
        self.command("ZADD", keys("gone"), [COMMIT_TICK], id)
        self.increment("vectors", -bool(stored.model_before))
        self.touch(*partitions_of(entry))

    def remove_expired(self, stored: FetchedEntry) -> None:
        """Take an expired entry out of the indexes of recall; `horizon` tells caches up to when."""
        entry = stored.entry
        assert entry.expires_at is not None
        for partition in partitions_of(entry):
            self.command("ZREM", self.keys("all", partition), entry.id)
        self.command("ZADD", self.keys("gone"), [COMMIT_TICK], entry.id)
        self.command("ZREM", self.keys("expiry"), entry.id)
        self.command("HSET_MAX", self.keys("meta"), "horizon", str(entry.expires_at))

    def to_job(
        self, expectations: Mapping[tuple[bytes, bytes], bytes], key_index: Callable[[bytes], int]
    ) -> dict[str, Any]:
        """Return the changes as an argument of the commit script; `key_index` numbers the keys."""
        for id, stored in self.changed_entries.items():
            self._write_entry(id, stored)
        self._write_slots()
        for fields in batches(sorted(self._touched)):
            stamps: list[Argument] = []
            for field in fields:
                stamps += [field, [COMMIT_TICK]]
            self.command("HSET", self.keys("watch"), *stamps)
        keys = self.keys
        used = {keys("meta"), keys("log"), *(command[1] for command in (*self._deletions, *self._commands))}
        deletions = [
            [verb, key_index(key), *args[at : at + MAX_COMMAND_ARGS]]
            for (verb, key), args in self._deletions.items()
            for at in range(0, len(args) or 1, MAX_COMMAND_ARGS)
        ]
        return {
            "meta": key_index(keys("meta")),
            "log": key_index(keys("log")),
            "lock": key_index(keys("gate")),
            "checks": _checks(expectations, key_index),
            "types": [[key_index(key), keys.type_of(key)] for key in sorted(used)],
            "log_records": self.log_records,
            "deletions": deletions,
            "commands": [[verb, key_index(key), *args] for verb, key, *args in self._commands],
        }

    def _write_entry(self, id: str, stored: FetchedEntry) -> None:
        keys, entry, before = self.keys, stored.entry, stored.before
        number = _number_argument(stored.number)
        row = layout.encode_row(
            stored.first_rev, stored.versions[-1], stored.model, stored.has_custom_vector, stored.transitions
        )
        self.command(
            "HSET", keys("rows"), id, [COMMIT_TICK, _number_argument(stored.written_seq), number, row]
        )
        if stored.is_index_changed:
            self.command("HSET", keys("found"), id, layout.encode_index_data(stored.index_data))
            self.increment("vectors", bool(stored.model) - bool(stored.model_before))
        for old in stored.replaced_versions:
            self.command("HSET", keys("past"), [number, b"%d" % old.rev], layout.encode_version(old))
        member: Argument = [number, id.encode()]
        former = [] if before is None else partitions_of(before)
        for partition in partitions_of(entry):
            if before is None or partition not in former or not _has_same_time(before, entry):
                self.command("ZADD", keys("time", partition), str(semantics.time_of(entry)), member)
        for partition in {*former} - {*partitions_of(entry)}:  # its key is another one now
            self.command("ZREM", keys("time", partition), member)
            self.command("ZREM", keys("all", partition), id)
            self.touch(partition)
        if before is None or semantics.content_key(before) != semantics.content_key(entry):
            if before is not None:
                self.command("REMOVE_MEMBER", keys("same"), semantics.content_key(before), id)
            self.command("ADD_MEMBER", keys("same"), semantics.content_key(entry), id)
        self._write_live_indexes(id, stored)
        self.touch(*partitions_of(entry))

    def _write_slots(self) -> None:
        """Fill and empty slots as the changed entries end up, in whatever order they changed."""
        slots = self.keys("slots")
        changed = self.changed_entries.values()
        filled = {
            layout.slot_field(stored.entry): stored.entry.id for stored in changed if stored.entry.fills_slot
        }
        for stored in changed:
            if stored.before is not None and stored.before.fills_slot:
                self._emptied_slots.add(layout.slot_field(stored.before))
        for field in sorted(self._emptied_slots - filled.keys()):
            self.command("HDEL", slots, field)
        for field, id in filled.items():
            self.command("HSET", slots, field, [COMMIT_TICK, id.encode()])

    def _write_live_indexes(self, id: str, stored: FetchedEntry) -> None:
        keys, entry = self.keys, stored.entry
        is_live = semantics.status_of(entry) == LIVE
        for partition in partitions_of(entry):
            if is_live:
                self.command("ZADD", keys("all", partition), [COMMIT_TICK], id)
            else:
                self.command("ZREM", keys("all", partition), id)
        if not is_live:
            self.command("ZADD", keys("gone"), [COMMIT_TICK], id)
        if is_live and entry.expires_at is not None:
            self.command("ZADD", keys("expiry"), str(entry.expires_at), id)
        elif stored.before is not None and stored.before.expires_at is not None:
            self.command("ZREM", keys("expiry"), id)


def _has_same_time(one: Entry, other: Entry) -> bool:
    return semantics.time_of(one) == semantics.time_of(other)


class RedisTransaction(RedisSnapshot):
    """A `StoreState` over a server: a snapshot that collects changes for the commit."""

    def __init__(self, server: RedisConnections, keys: Callable[[str], NamespaceKeys], model: str) -> None:
        super().__init__(server, keys)
        self.changes: dict[str, NamespaceChanges] = {}
        self._model = model

    @property
    def has_changes(self) -> bool:
        return not all(changes.is_empty for changes in self.changes.values())

    @property
    def namespaces(self) -> list[str]:
        """The namespaces that were read or changed."""
        changed = [name for name, changes in self.changes.items() if not changes.is_empty]
        return [*dict.fromkeys([*self.expectations, *changed])]

    def changes_in(self, namespace: str) -> NamespaceChanges:
        """Return the changes to a namespace, to add to them."""
        changes = self.changes.get(namespace)
        if changes is None:
            changes = self.changes[namespace] = NamespaceChanges(self.keys(namespace))
        return changes

    # Entries

    def prefetch(self, requests: Sequence[WriteRequest]) -> None:
        """Load what these writes read, and sweep a few expired entries on the way."""
        for namespace in {request.entry.namespace for request in requests}:
            own = [request for request in requests if request.entry.namespace == namespace]
            for expired in self.prefetch_namespace(namespace, own):
                self.changes_in(namespace).remove_expired(expired)

    def log_change(self, entry: Entry, op: str, now: int) -> int:
        """Append to the change log; the number is a placeholder until the commit."""
        log_records = self.changes_in(entry.namespace).log_records
        log_records.append(layout.encode_change(entry.id, op, entry.rev, now))
        return UNASSIGNED + len(log_records)

    def add(self, entry: Entry, index_data: IndexData, now: int) -> StoredEntry:
        index_data = self._accept_vectors(entry.namespace, index_data)
        model = index_data.model
        seq = self.log_change(entry, "write", now)
        version = Version(id=entry.id, rev=entry.rev, at=now, entry=entry)
        row = EntryRow(seq, seq, version.rev, version, model, index_data.given, [])
        stored = FetchedEntry(row, self)
        stored.index_data, stored.is_index_changed = index_data, True
        key = (entry.namespace, entry.id)
        self.entries[key] = stored
        self.absent.discard(key)
        self._update_dependencies(None, entry)
        self.mark_changed(stored)
        return stored

    def revise(
        self, stored: StoredEntry, new: Entry, op: str, now: int, index_data: IndexData | None = None
    ) -> None:
        fetched, old = as_fetched(stored), stored.entry
        fetched.replaced_versions.append(fetched.versions[-1])
        fetched.versions.append(Version(id=new.id, rev=new.rev, at=now, entry=new))
        if index_data is None:
            self.log_change(new, op, now)
        else:
            index_data = self._accept_vectors(new.namespace, index_data)
            fetched.written_seq = self.log_change(new, op, now)
            fetched.index_data, fetched.is_index_changed = index_data, True
            fetched.model = index_data.model
            fetched.has_custom_vector = index_data.given
            self._update_dependencies(old, new)
        self.mark_changed(fetched)

    def mark_changed(self, stored: StoredEntry) -> None:
        """Write an entry with the commit."""
        entry = stored.entry
        self.changes_in(entry.namespace).changed_entries[entry.id] = as_fetched(stored)

    def _accept_vectors(self, namespace: str, index_data: IndexData) -> IndexData:
        """Return index data without vectors if the namespace has those of another embedder.

        The first vectors of a namespace make their embedder its own.
        """
        if index_data.pooled is None:
            return index_data._replace(model="")
        if index_data.model != self._model:
            return index_data  # supplied before, and kept
        model, vectors = self.model_of(namespace)
        self.expect_model(namespace)
        if model == self._model:
            return index_data
        if self.server.integer(vectors, "count of vectors") > 0:
            if index_data.given:
                raise Invalid("vector", "is not of the embedder that the store has", "reindex the store")
            return index_data.with_vectors(None)
        self.expect_whole(namespace, "meta", "vectors", vectors)
        self.claim_model(namespace, self._model)
        self.models[namespace] = (self._model, vectors)
        return index_data

    def claim_model(self, namespace: str, model: str) -> None:
        """Set the embedder of the vectors of a namespace."""
        changes = self.changes_in(namespace)
        changes.command("HSET", changes.keys("meta"), "model", model)

    def replace_index_data(self, stored: FetchedEntry, index_data: IndexData) -> None:
        """Replace the index data of an entry without a new version."""
        stored.index_data, stored.is_index_changed = index_data, True
        stored.model, stored.has_custom_vector = index_data.model, index_data.given
        self.mark_changed(stored)

    def set_stale(self, stored: StoredEntry, now: int, *, stale: bool) -> None:
        stored.transitions.append(StaleTransition(stored.entry.rev, now, stale))
        self.log_change(stored.entry, "stale" if stale else "current", now)
        self.mark_changed(stored)

    def record_use(self, stored: StoredEntry, count: int, last: int | None) -> None:
        changes, id = self.changes_in(stored.entry.namespace), stored.entry.id
        changes.command("HINCRBY", changes.keys("access"), id, str(count))
        if last is not None:
            changes.command("ZADD", changes.keys("used"), str(last), id)

    def remove(self, stored: StoredEntry, tombstone: Version) -> list[LinkKey]:
        fetched, entry, versions = as_fetched(stored), stored.entry, [*stored.versions]
        key, changes = (entry.namespace, entry.id), self.changes_in(entry.namespace)
        self._update_dependencies(entry, None)
        removed_links = [*self.links_of(*key)]
        removed_links += [one for one in self.damaged_links if one[0] == key[0] and key[1] in one[1::2]]
        for link_key in removed_links:
            self.remove_link(link_key)
        self._remove_receipts(*key)
        self.entries.pop(key, None)
        self.add_tombstone(entry, tombstone)
        self.log_change(entry, "erase", tombstone.at)
        changes.remove_entry(fetched)
        for verb, place, member in fetched.leftovers:
            changes.command(verb, place, member, *([entry.id] if verb == "REMOVE_MEMBER" else ()))
        changes.delete_key(changes.keys("ends", entry.id))
        # `on` lists an entry under the evidence of all its versions, for `citing_ids`.
        for premise in {
            ref for old in versions if old.entry is not None for ref in semantics.premises(old.entry)
        }:
            changes.command("ZREM", changes.keys("on", premise), entry.id)
        self.removed.add(key)
        self.absent.add(key)
        return removed_links

    def add_tombstone(self, like: Entry, tombstone: Version) -> None:
        self.erased_ids(like.namespace, [tombstone.id])
        tombstones = self.tombstones.setdefault((like.namespace, tombstone.id), [])
        tombstones.append((tombstone_owner(like, tombstone.id), tombstone))
        changes = self.changes_in(like.namespace)
        changes.command("HSET", changes.keys("stones"), tombstone.id, layout.encode_tombstones(tombstones))
        changes.increment("stones", 1)

    def _update_dependencies(self, old: Entry | None, new: Entry | None) -> None:
        before = frozenset[str]() if old is None else semantics.premises(old)
        after = frozenset[str]() if new is None else semantics.premises(new)
        entry = new if new is not None else old
        assert entry is not None
        changes = self.changes_in(entry.namespace)
        for premise in sorted(before ^ after):
            present = premise in after
            self.set_dependent(entry.namespace, premise, entry.id, present=present)
            # Score 1: the current version depends on it; 0: an older one did.
            changes.command("ZADD", changes.keys("on", premise), "1" if present else "0", entry.id)
            changes.touch(watch_field(premise))

    # Links and receipts

    def add_link(self, key: LinkKey, link: Link) -> None:
        namespace, source, relation, target = key
        self.links[key] = link
        self.removed_links.discard(key)
        changes, field = self.changes_in(namespace), join_ids(source, target, relation)
        changes.command("HSET", changes.keys("links"), field, str(link.created_at))
        for end in {source, target}:
            changes.command("SADD", changes.keys("ends", end), field)
            changes.touch(watch_field(end))
        if relation == INVALIDATED_BY:
            self._count_invalidation(namespace, source, 1)

    def remove_link(self, key: LinkKey) -> bool:
        if self.find_link(key) is None and key not in self.damaged_links:
            return False
        namespace, source, relation, target = key
        self.links.pop(key, None)
        self.damaged_links.discard(key)
        self.removed_links.add(key)
        changes, field = self.changes_in(namespace), join_ids(source, target, relation)
        changes.delete("HDEL", changes.keys("links"), [field])
        for end in {source, target}:
            changes.delete("SREM", changes.keys("ends", end), [field])
            changes.touch(watch_field(end))
        if relation == INVALIDATED_BY:
            self._count_invalidation(namespace, source, -1)
        return True

    def _count_invalidation(self, namespace: str, id: str, by: int) -> None:
        self.invalidated_ids(namespace, [id])
        count = self.invalidation_counts[namespace, id] + by
        self.invalidation_counts[namespace, id] = count
        changes = self.changes_in(namespace)
        if count > 0:
            changes.command("HSET", changes.keys("invalid"), id, str(count))
        else:
            changes.command("HDEL", changes.keys("invalid"), id)

    def add_receipt(self, key: ReceiptKey, receipt: Receipt) -> None:
        namespace, receipt_key = key
        _, result, now = receipt
        id = result.entry.id
        self.receipts[key] = receipt
        changes = self.changes_in(namespace)
        keys = changes.keys
        for old_key, entry_id, at in self.oldest_receipts.pop(namespace, []):
            if at < now - semantics.KEY_LIFETIME_MS and old_key != receipt_key:
                changes.command("HDEL", keys("receipts"), old_key)
                changes.command("SREM", keys("keys", entry_id), old_key)
                changes.command("ZREM", keys("kept"), join_ids(old_key, entry_id))
        changes.command("HSET", keys("receipts"), receipt_key, layout.encode_receipt(receipt))
        changes.command("SADD", keys("keys", id), receipt_key)
        changes.command("ZADD", keys("kept"), str(now), join_ids(receipt_key, id))
        changes.touch(watch_field(id))

    def _remove_receipts(self, namespace: str, id: str) -> None:
        receipt_keys = self.receipt_keys_of(namespace, id)
        if receipt_keys:
            changes = self.changes_in(namespace)
            keys = changes.keys
            changes.delete("HDEL", keys("receipts"), receipt_keys)
            changes.delete("ZREM", keys("kept"), [join_ids(receipt_key, id) for receipt_key in receipt_keys])
            changes.delete_key(keys("keys", id))
            changes.touch(watch_field(id))

    # Documents

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None:
        changes, field = self.changes_in(key[0]), join_ids(*key[1:])
        keys = changes.keys
        changes.command("HSET", keys("docs"), field, layout.encode_document(document))
        changes.command("DEL", self.log_key(key))
        self._append_log(key, log)
        if document.rev == 1:
            changes.command("HSET", keys("owners"), field, layout.encode_owner(document))
            changes.command("ZADD", keys("kind", key[1]), "0", key[2])
            changes.command("SADD", keys("kinds"), key[1])
            changes.touch(DOCUMENTS_FIELD)

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None:
        changes = self.changes_in(key[0])
        field = join_ids(*key[1:])
        changes.command("HSET", changes.keys("docs"), field, layout.encode_document(document))
        self._append_log(key, added)

    def _append_log(self, key: DocumentKey, added: Sequence[Any]) -> None:
        for items in batches([layout.encode_item(item) for item in added]):
            self.changes_in(key[0]).command("RPUSH", self.log_key(key), *items)

    def remove_document(self, key: DocumentKey) -> None:
        changes, field = self.changes_in(key[0]), join_ids(*key[1:])
        for name in ("docs", "owners", "leases"):
            changes.delete("HDEL", changes.keys(name), [field])
        changes.delete("ZREM", changes.keys("kind", key[1]), [key[2]])
        changes.delete_key(self.log_key(key))
        changes.touch(DOCUMENTS_FIELD)
        self.removed_documents.add(key)

    def put_lease(self, key: DocumentKey, lease: Lease) -> None:
        changes = self.changes_in(key[0])
        changes.command("HSET", changes.keys("leases"), join_ids(*key[1:]), layout.encode_lease(lease))

    def remove_leases(self, namespace: str) -> None:
        changes = self.changes_in(namespace)
        changes.delete_key(changes.keys("leases"))


class TransactionRunner:
    """Runs the operations of one process on one store, each as one transaction."""

    def __init__(self, server: RedisConnections, prefix: str, *, read_only: bool = False) -> None:
        self.server = server
        self.prefix = prefix
        self.place = server.name if prefix == DEFAULT_PREFIX else f"{server.name}?prefix={prefix}"
        """The URL of the store, without a password."""
        self.model = ""
        """The embedder of the vectors that this process writes."""
        self._read_only = read_only
        self._keys_by_namespace: dict[str, NamespaceKeys] = {}
        self._registered: tuple[int, set[str]] = (-1, set())
        self._is_sharded = server.cluster
        """True if a script reads the keys of one namespace alone, and none of the store as a whole."""

    def keys(self, namespace: str) -> NamespaceKeys:
        """Return the keys of a namespace."""
        keys = self._keys_by_namespace.get(namespace)
        if keys is None:
            if len(self._keys_by_namespace) > 10_000:
                self._keys_by_namespace.clear()
            keys = self._keys_by_namespace[namespace] = NamespaceKeys(self.prefix, namespace)
        return keys

    def find_shards(self) -> None:
        """Find out whether the server is one node of a cluster, also where it is not addressed as one."""
        keys = (layout.store_key(self.prefix, "store"), self.keys(DEFAULT_NAMESPACE)("meta"))
        try:
            if not self.server.cluster:
                self.server.read([["EXISTS", key] for key in keys])
        except StoreFailed as error:
            if type(error) is not StoreFailed:  # it is not that the keys lie in two slots
                raise
            self._is_sharded = True

    def snapshot(self) -> RedisSnapshot:
        """Return an empty snapshot, for reads that need no check."""
        return RedisSnapshot(self.server, self.keys)

    def _transaction(self) -> RedisTransaction:
        return RedisTransaction(self.server, self.keys, self.model)

    def run_read(self, operation: Callable[[RedisSnapshot], T]) -> T:
        """Run an operation that changes nothing, on a consistent state.

        One round trip is consistent by itself. After several, the expectations are checked, and the operation
        runs again if something changed in between; the last attempt counts as it is.
        """
        for left in reversed(range(_READ_ATTEMPTS)):
            transaction = self._transaction()
            try:
                result = operation(transaction)
            except Exception:
                if transaction.round_trips > 1 and left and not self._is_unchanged(transaction):
                    continue
                raise
            if transaction.round_trips < 2 or not left or self._is_unchanged(transaction):
                return result
        raise AssertionError("the last attempt returns or raises")

    def run_plan(self, operation: Callable[[RedisTransaction], T]) -> T:
        """Run an operation on a consistent state, and drop its changes."""
        return self.run_read(operation)  # type: ignore[arg-type]  # it gets a transaction

    def run_write(self, operation: Callable[[RedisTransaction], T]) -> T:
        """Run an operation that may change the state, and commit it completely or not at all.

        Raises:
            Busy: Others changed what it reads until the timeout.
            ReadOnly: The store was opened to be read only.
        """
        if self._read_only:
            raise ReadOnly(self.server.name, "was opened to be read only", "open it without mode=ro")
        until = time.monotonic() + self.server.timeout
        with self.server.writer() as writer:
            conflicts = 0
            locks: list[bytes] = []
            try:
                while True:
                    transaction = self._transaction()
                    result, error = _attempt(operation, transaction)
                    reply = self._commit(writer, transaction, failed=error is not None, locked=bool(locks))
                    if reply == "done":
                        # The commit script releases the locks itself.
                        locks = [] if transaction.has_changes and error is None else locks
                        if error is not None:
                            raise error
                        return result  # type: ignore[return-value]  # there was no error
                    conflicts += reply == "changed"
                    if time.monotonic() > until:
                        raise Busy(self.server.name, "is changed by others all the time", "try again")
                    delay = min(_RETRY_DELAY_S * (conflicts + 1), 0.02)
                    time.sleep(delay if conflicts > 1 or reply == "wait" else 0)
                    if conflicts >= _MAX_CONFLICTS:
                        locks = self._lock_namespaces(transaction.namespaces, writer)
            finally:
                for lock in locks:
                    self.server.release_lock(lock, writer)

    def _is_unchanged(self, transaction: RedisTransaction) -> bool:
        """Check that the values of several round trips still hold, and so held together."""
        with self.server.writer() as writer:
            return self._commit(writer, transaction, failed=True) == "done"

    def _commit(
        self, writer: CommitWriter, transaction: RedisTransaction, *, failed: bool, locked: bool = False
    ) -> str:
        """Commit a transaction, or only check what it read if it failed or changes nothing.

        Returns:
            `done`; `changed` if an expectation does not hold; `wait` if another writer has the lock.
        """
        namespaces, expectations = transaction.namespaces, transaction.expectations
        check_only = failed or not transaction.has_changes
        if not namespaces or (check_only and transaction.round_trips < 2):
            return "done"
        if self.server.cluster and len(namespaces) > 1:
            raise Invalid("requests", f"lie in {len(namespaces)} namespaces", "write one namespace at a time")
        numbers: dict[bytes, int] = {}

        def key_index(key: bytes) -> int:
            return numbers.setdefault(key, len(numbers) + 1)

        if check_only:
            jobs = [_check_job(self.keys(name), expectations.get(name, {}), key_index) for name in namespaces]
        else:
            self._register_namespaces(namespaces)
            jobs = [
                transaction.changes_in(name).to_job(expectations.get(name, {}), key_index)
                for name in namespaces
            ]
        job: dict[str, Any] = {
            "done": key_index(self.keys(namespaces[0])("done", writer.token)),
            "check_only": int(check_only),
            "unlock": int(locked),
            "namespaces": jobs,
        }
        if not check_only:
            self._check_schema(job, key_index)
        reply, *values = self.server.commit(writer, [*numbers], job)
        if reply == b"schema":
            layout.check_schema(values[0], self.server.name)
        if reply == b"damaged":
            raise records.damaged(self.server.name, "counter", layout.decode_text(values[0]))
        if reply == b"broken":
            raise Corrupted(
                self.server.name,
                f"holds something else under {values[0]!r}",
                "let nobody else write under its prefix, or choose another with ?prefix=",
            )
        if not check_only and reply == b"done" and layout.to_digits(0) in values[0].split():
            # The first change of a namespace: perhaps the server was emptied, and its list of them, too.
            self._registered = (-1, set())
            self._register_namespaces(namespaces)
        return reply.decode()

    def _check_schema(self, job: dict[str, Any], key_index: Callable[[bytes], int]) -> None:
        """Have a commit refused where a newer Omoide has migrated the store meanwhile."""
        key = layout.store_key(self.prefix, "store")
        if self._is_sharded:
            layout.check_schema(self.server.execute("HGET", key, "schema"), self.server.name)
        else:
            job.update(store=key_index(key), schema=layout.SCHEMA_VERSION)

    def _lock_namespaces(self, namespaces: Sequence[str], writer: CommitWriter) -> list[bytes]:
        """Lock namespaces and return the keys of the locks; none if any of them is taken."""
        locks: list[bytes] = []
        for key in (self.keys(namespace)("gate") for namespace in sorted(namespaces)):
            if not self.server.acquire_lock(key, writer, _LOCK_TTL_MS):
                for other in locks:  # holding some while waiting for others would block both
                    self.server.release_lock(other, writer)
                return []
            locks.append(key)
        return locks

    def _register_namespaces(self, namespaces: Sequence[str]) -> None:
        """Add namespaces to the list of the store, before anything is in them: too early does no harm."""
        epoch, known = self._registered
        if epoch != self.server.epoch:
            known = set()
        new = {*namespaces} - known
        if new:
            self.server.execute("SADD", layout.store_key(self.prefix, "namespaces"), *new)
            self._registered = (self.server.epoch, known | new)


def _attempt(
    operation: Callable[[RedisTransaction], T], transaction: RedisTransaction
) -> tuple[T | None, Exception | None]:
    """Run an operation and return its result or its error."""
    try:
        return operation(transaction), None
    except OmoideError as error:
        return None, error
    except (KeyError, AssertionError) as error:  # values of two round trips may contradict each other
        return None, error


def _check_job(
    keys: NamespaceKeys, expectations: Mapping[tuple[bytes, bytes], bytes], key_index: Callable[[bytes], int]
) -> dict[str, Any]:
    """Return a job that checks expectations and ignores locks."""
    return {"lock": key_index(keys("nobody")), "checks": _checks(expectations, key_index), "types": []}


def _checks(
    expectations: Mapping[tuple[bytes, bytes], bytes], key_index: Callable[[bytes], int]
) -> list[list[Any]]:
    return [[key_index(key), field, value] for (key, field), value in expectations.items()]
