"""Write set and optimistic commit.

A unit is the part of a store's state that one operation has asked for, and what is to become of it. A commit
makes sure that the one still holds and does the other, all at once.

It reads, decides, and hands in what it wants; where somebody else was faster, it begins again. One that loses
again and again asks the others to wait, so that everybody gets through.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

from omoide.core import codec
from omoide.core.entry import Entry, Scope
from omoide.errors import Busy, Corrupted, Invalid, OmoideError, ReadOnly
from omoide.stores import semantics, truth
from omoide.stores.codec import IndexData
from omoide.stores.records import Document, Lease, Link, Version
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Command, CommitWriter, RedisConnections
from omoide.stores.redis.layout import SEPARATOR, NamespaceKeys, decode_ids, join_ids, split_ids, watch_field
from omoide.stores.redis.snapshot import UNASSIGNED, NamespaceChanges, RedisSnapshot, as_fetched, batches
from omoide.stores.state import DocumentKey, LinkKey, Receipt, StoredEntry, StoreState
from omoide.stores.state import EntryKey as Name
from omoide.stores.truth import INVALIDATED_BY

# changing: What will an operation change?


class EntryTransaction(RedisSnapshot):
    """Entries, and what becomes of them."""

    @property
    def has_changes(self) -> bool:
        """Whether anything is to be changed."""
        return any(part.has_changes for part in self.namespaces.values())

    def log_change(self, entry: Entry, op: str, now: int) -> int:
        """Write a change into the log; its number is not known before the commit."""
        notes = self.changes_in(entry.namespace).log_records
        notes.append(layout.encode_change(entry.id, op, entry.rev, now))
        return UNASSIGNED + len(notes)

    def add(self, entry: Entry, index_data: IndexData, now: int) -> StoredEntry:
        """Keep a new entry."""
        one = super().add(entry, self._accept_vectors(entry.namespace, index_data), now)
        self._absent.discard((entry.namespace, entry.id))
        self.changes_in(entry.namespace).changed_entries[entry.id] = as_fetched(one)
        return one

    def revise(
        self, stored: StoredEntry, new: Entry, op: str, now: int, index_data: IndexData | None = None
    ) -> None:
        """Keep the next version of an entry, with what is found of it if that was written anew."""
        mine = as_fetched(stored)
        mine.replaced_versions.append(mine.versions[-1])
        if index_data is not None:
            index_data = self._accept_vectors(new.namespace, index_data)
            mine.is_index_changed = True
            mine.model, mine.has_custom_vector = (
                self._model if index_data.pooled is not None else "",
                index_data.given,
            )
        super().revise(stored, new, op, now, index_data)
        self.changes_in(new.namespace).changed_entries[new.id] = mine

    def _accept_vectors(self, namespace: str, found: IndexData) -> IndexData:
        """What an entry is found by, without vectors where the namespace holds those of another embedder."""
        if found.pooled is None:
            return found
        part = self.changes_in(namespace)
        if namespace not in self._models:
            (told,) = self.fetch([["HMGET", part.keys("meta"), "model", "vectors"]])
            self._cache_model(namespace, told)
        model, vectors = self._models[namespace]
        part.expect_whole("meta", "model", model.encode())
        if model == self._model:
            return found
        if int(vectors or 0) > 0:
            if found.given:
                raise Invalid("vector", "is not of the embedder that the store has by now", "open it again")
            return found._replace(pooled=None, tokens=None)
        part.expect_whole("meta", "vectors", vectors)
        part.command("HSET", part.keys("meta"), "model", self._model)
        self._models[namespace] = (self._model, vectors)
        return found

    def set_stale(self, stored: StoredEntry, now: int, *, stale: bool) -> None:
        """Note that an entry is stale from now on, or current again."""
        super().set_stale(stored, now, stale=stale)
        self.changes_in(stored.entry.namespace).changed_entries[stored.entry.id] = as_fetched(stored)

    def record_use(self, stored: StoredEntry, count: int, last: int | None) -> None:
        """Note that an entry was used so many times more."""
        part, id = self.changes_in(stored.entry.namespace), stored.entry.id
        part.command("HINCRBY", part.keys("access"), id, str(count))
        if last is not None:
            part.command("ZADD", part.keys("used"), str(last), id)

    def remove(self, stored: StoredEntry, tombstone: Version) -> list[LinkKey]:
        """Leave nothing of an entry but a tombstone; the links that went with it."""
        entry = stored.entry
        part, versions = self.changes_in(entry.namespace), [*stored.versions]
        cut = super().remove(stored, tombstone)
        part.remove_entry(as_fetched(stored), versions)
        ever = {ref for old in versions if old.entry is not None for ref in truth.premises(old.entry)}
        for premise in ever:
            part.command("ZREM", part.keys("on", premise), entry.id)
        self._removed.add((entry.namespace, entry.id))
        self._absent.add((entry.namespace, entry.id))
        return cut

    def add_tombstone(self, like: Entry, tombstone: Version) -> None:
        """Keep a tombstone that belongs to whom an entry belongs."""
        self.erased_ids(like.namespace, [tombstone.id])
        super().add_tombstone(like, tombstone)
        part = self.changes_in(like.namespace)
        told = self.tombstones[like.namespace, tombstone.id]
        part.command("HSET", part.keys("stones"), tombstone.id, layout.encode_tombstones(told))
        part.increment("stones", 1)

    def update_dependencies(self, old: Entry | None, new: Entry | None) -> None:
        """Note what an entry rests on now, instead of what it rested on."""
        before = frozenset[str]() if old is None else truth.premises(old)
        after = frozenset[str]() if new is None else truth.premises(new)
        entry = new if new is not None else old
        assert entry is not None
        part = self.changes_in(entry.namespace)
        for premise in sorted(before ^ after):
            key, present = (entry.namespace, premise), premise in after
            self._dependency_changes.setdefault(key, {})[entry.id] = present
            if key in self.dependents:
                (self.dependents[key].add if present else self.dependents[key].discard)(entry.id)
            part.command("ZADD", part.keys("on", premise), "1" if present else "0", entry.id)
            part.touch(watch_field(premise))

    def add_link(self, key: LinkKey, link: Link) -> None:
        """Keep a link."""
        namespace, source, relation, target = key
        self.links[key] = link
        self._removed_links.discard(key)
        part, field = self.changes_in(namespace), join_ids(source, target, relation)
        part.command("HSET", part.keys("links"), field, str(link.created_at))
        for end in {source, target}:
            part.command("SADD", part.keys("ends", end), field)
            part.touch(watch_field(end))
        if relation == INVALIDATED_BY:
            self._count_invalidation(namespace, source, 1)

    def remove_link(self, key: LinkKey) -> bool:
        """Remove a link; whether there was one."""
        if self.find_link(key) is None:
            return False
        namespace, source, relation, target = key
        del self.links[key]
        self._removed_links.add(key)
        part, field = self.changes_in(namespace), join_ids(source, target, relation)
        part.delete("HDEL", part.keys("links"), [field])
        for end in {source, target}:
            part.delete("SREM", part.keys("ends", end), [field])
            part.touch(watch_field(end))
        if relation == INVALIDATED_BY:
            self._count_invalidation(namespace, source, -1)
        return True

    def _count_invalidation(self, namespace: str, id: str, by: int) -> None:
        self.invalidated_ids(namespace, [id])
        count = self._invalidation_counts[namespace, id] = self._invalidation_counts[namespace, id] + by
        part = self.changes_in(namespace)
        if count > 0:
            part.command("HSET", part.keys("invalid"), id, str(count))
        else:
            part.command("HDEL", part.keys("invalid"), id)

    def add_receipt(self, key: Name, receipt: Receipt) -> None:
        """Remember what was answered under an idempotency key, and forget what is too old."""
        namespace, name = key
        _, result, at = receipt
        id = result.entry.id
        self.receipts[key] = receipt
        part = self.changes_in(namespace)
        keys = part.keys
        for old, of, kept in self._oldest_receipts.pop(namespace, []):
            if kept < at - semantics.KEY_LIFETIME_MS and old != name:
                part.command("HDEL", keys("receipts"), old)
                part.command("SREM", keys("keys", of), old)
                part.command("ZREM", keys("kept"), join_ids(old, of))
        part.command("HSET", keys("receipts"), name, layout.encode_receipt(receipt))
        part.command("SADD", keys("keys", id), name)
        part.command("ZADD", keys("kept"), str(at), join_ids(name, id))
        part.touch(watch_field(id))

    def remove_receipts(self, entry_key: Name) -> None:
        """Forget what was answered about an entry."""
        namespace, id = entry_key
        self._fetch_references(namespace, [id])
        part = self.changes_in(namespace)
        names = self._receipt_keys[entry_key]
        if names:
            part.delete("HDEL", part.keys("receipts"), names)
            part.delete("ZREM", part.keys("kept"), [join_ids(name, id) for name in names])
            part.delete_key(part.keys("keys", id))
            part.touch(watch_field(id))


# units: How does an operation find and change documents?


_PAGE_SIZE = 200
_DOCUMENTS_FIELD = "documents"  # what `watch` calls them; no other name begins with a d


class RedisTransaction(EntryTransaction):
    """The part of the state that one operation has asked for, and what becomes of it."""

    def find_document(self, key: DocumentKey) -> Document | None:
        """A document without its log, if there is one."""
        part, field = self.changes_in(key[0]), join_ids(*key[1:])
        (raw,) = self.fetch([["HGET", part.keys("docs"), field]])
        part.expect("docs", field, raw)
        return None if raw is None else layout.decode_document(raw, key)

    def document_log(self, key: DocumentKey) -> tuple[Any, ...]:
        """What was appended to a document."""
        (found,) = self.fetch([["LRANGE", _log_key(self.changes_in(key[0]), key), "0", "-1"]])
        return tuple(layout.decode_item(raw) for raw in found)

    def documents_of_kind(self, kind: str, namespace: str, after: str | None) -> Iterator[Document]:
        """The documents of a kind after an id, in the order of their ids."""
        keys = self.changes_in(namespace).keys
        low = "-" if after is None else b"(" + after.encode()
        while True:
            ask: Command = ["ZRANGEBYLEX", keys("kind", kind), low, "+", "LIMIT", "0", str(_PAGE_SIZE)]
            names = decode_ids(self.fetch([ask])[0])
            if not names:
                return
            (found,) = self.fetch([["HMGET", keys("docs"), *(join_ids(kind, id) for id in names)]])
            for id, raw in zip(names, found, strict=True):
                if raw is not None:
                    yield layout.decode_document(raw, (namespace, kind, id))
            low = b"(" + names[-1].encode()

    def document_owners(self, namespace: str) -> dict[DocumentKey, Scope]:
        """All documents of a namespace, with whose they are."""
        part = self.changes_in(namespace)
        flat, stamp = self.fetch(
            [["HGETALL", part.keys("owners")], ["HGET", part.keys("watch"), _DOCUMENTS_FIELD]]
        )
        part.expect("watch", _DOCUMENTS_FIELD, stamp)
        found: dict[DocumentKey, Scope] = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            kind, id = split_ids(field, 2)
            key = (namespace, kind, id)
            if key not in self._removed_documents:
                agent, session = (text or None for text in raw.decode().split(SEPARATOR))
                found[key] = Scope(namespace=namespace, agent_id=agent, session_id=session)
        return found

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None:
        """Replace a document and its log."""
        part, field = self.changes_in(key[0]), join_ids(*key[1:])
        keys = part.keys
        part.command("HSET", keys("docs"), field, layout.encode_document(document))
        part.command("DEL", _log_key(part, key))
        self._append_log(part, key, log)
        if document.rev == 1:
            owner = f"{document.agent_id or ''}{SEPARATOR}{document.session_id or ''}"
            part.command("HSET", keys("owners"), field, owner)
            part.command("ZADD", keys("kind", key[1]), "0", key[2])
            part.command("SADD", keys("kinds"), key[1])
            part.touch(_DOCUMENTS_FIELD)

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None:
        """Replace a document and add to its log."""
        part = self.changes_in(key[0])
        part.command("HSET", part.keys("docs"), join_ids(*key[1:]), layout.encode_document(document))
        self._append_log(part, key, added)

    def _append_log(self, part: NamespaceChanges, key: DocumentKey, added: Sequence[Any]) -> None:
        for some in batches([codec.encode(item) for item in added]):
            part.command("RPUSH", _log_key(part, key), *some)

    def remove_document(self, key: DocumentKey) -> None:
        """Remove a document with its log and its lease."""
        part, field = self.changes_in(key[0]), join_ids(*key[1:])
        for name in ("docs", "owners", "leases"):
            part.delete("HDEL", part.keys(name), [field])
        part.delete("ZREM", part.keys("kind", key[1]), [key[2]])
        part.delete_key(_log_key(part, key))
        part.touch(_DOCUMENTS_FIELD)
        self._removed_documents.add(key)

    def find_lease(self, key: DocumentKey) -> Lease | None:
        """Who holds a document, or held it last."""
        part, field = self.changes_in(key[0]), join_ids(*key[1:])
        (raw,) = self.fetch([["HGET", part.keys("leases"), field]])
        part.expect("leases", field, raw)
        return None if raw is None else layout.decode_lease(raw)

    def put_lease(self, key: DocumentKey, lease: Lease) -> None:
        """Note who holds a document."""
        part = self.changes_in(key[0])
        part.command("HSET", part.keys("leases"), join_ids(*key[1:]), layout.encode_lease(lease))

    def remove_leases(self, namespace: str) -> None:
        """Forget who holds what in a namespace."""
        part = self.changes_in(namespace)
        part.delete_key(part.keys("leases"))


def _log_key(part: NamespaceChanges, key: DocumentKey) -> bytes:
    return part.keys("doclog", join_ids(*key[1:]).decode())


# working: How does an operation become one commit?


T = TypeVar("T")

_MAX_CONFLICTS = 3
"""Times that an operation is overtaken before it asks the others to wait."""
_LOCK_TTL_MS = 5_000
_RETRY_DELAY_S = 0.001
_READ_ATTEMPTS = 5


class TransactionRunner:
    """The operations of one process on one store."""

    def __init__(self, server: RedisConnections, prefix: str, *, read_only: bool = False) -> None:
        self.server = server
        self.prefix = prefix
        self.model = ""
        """Whose vectors this process writes."""
        self._read_only = read_only
        self._keys_by_namespace: dict[str, NamespaceKeys] = {}
        self._registered: tuple[int, set[str]] = (-1, set())

    def keys(self, namespace: str) -> NamespaceKeys:
        """The keys of a namespace."""
        found = self._keys_by_namespace.get(namespace)
        if found is None:
            if len(self._keys_by_namespace) > 10_000:
                self._keys_by_namespace.clear()
            found = self._keys_by_namespace[namespace] = NamespaceKeys(self.prefix, namespace)
        return found

    def begin(self) -> RedisTransaction:
        """What a new operation knows: nothing."""
        return RedisTransaction(self.server, self.keys, self.model)

    def run_read(self, operation: Callable[[StoreState], T]) -> T:
        """Do something that changes nothing, on what was so at one moment."""
        for left in reversed(range(_READ_ATTEMPTS)):
            unit = self.begin()
            try:
                found = operation(unit)
            except Exception:
                if unit.round_trips > 1 and left and not self._is_unchanged(unit):
                    continue
                raise
            if unit.round_trips < 2 or not left or self._is_unchanged(unit):
                return found
        raise AssertionError("the last look is taken as it is")

    def run_write(self, operation: Callable[[StoreState], T]) -> T:
        """Do something that may change the state, once and completely or not at all."""
        if self._read_only:
            raise ReadOnly(self.server.name, "was opened to be read only", "open it without mode=ro")
        until = time.monotonic() + self.server.timeout
        with self.server.writer() as writer:
            attempt = 0
            gates: list[bytes] = []
            try:
                while True:
                    unit = self.begin()
                    found, error = _attempt(operation, unit)
                    told = self._commit(writer, unit, failed=error is not None, locked=bool(gates))
                    if told == "done":
                        gates = [] if unit.has_changes and error is None else gates
                        if error is not None:
                            raise error
                        return found  # type: ignore[return-value]  # there was no error
                    attempt += told == "changed"
                    if time.monotonic() > until:
                        raise Busy(self.server.name, "is changed by others all the time", "try again")
                    time.sleep(
                        min(_RETRY_DELAY_S * (attempt + 1), 0.02) if attempt > 1 or told == "wait" else 0
                    )
                    if attempt >= _MAX_CONFLICTS:
                        gates = self._lock_namespaces(unit, writer)
            finally:
                for gate in gates:
                    self.server.release_lock(gate, writer)

    def _is_unchanged(self, unit: RedisTransaction) -> bool:
        """Whether what was read in several steps is still so."""
        with self.server.writer() as writer:
            return self._commit(writer, unit, failed=True) == "done"

    def _commit(
        self, writer: CommitWriter, unit: RedisTransaction, *, failed: bool, locked: bool = False
    ) -> str:
        """Commit what a unit wants, or only make sure of what it read; what the server said."""
        look = failed or not unit.has_changes
        if not unit.namespaces or (look and unit.round_trips < 2):
            return "done"
        if self.server.cluster and len(unit.namespaces) > 1:
            raise Invalid(
                "requests", f"lie in {len(unit.namespaces)} namespaces", "write one namespace at a time"
            )
        if not look:
            self._register_namespaces(unit)
        place: dict[bytes, int] = {}

        def number(key: bytes) -> int:
            return place.setdefault(key, len(place) + 1)

        first = next(iter(unit.namespaces.values()))
        wanted = {
            name: part for name, part in unit.namespaces.items() if part.has_changes or part.checks or look
        }
        if look:
            parts = [_check_job(part.keys, part.checks, number) for part in wanted.values()]
        else:
            parts = [part.to_job(number) for part in wanted.values()]
        job: dict[str, Any] = {
            "done": number(first.keys("done", writer.token)),
            "look": int(look),
            "alone": int(locked),
            "parts": parts,
        }
        told, *more = self.server.commit(writer, [*place], job)
        if told == b"broken":
            raise Corrupted(
                self.server.name,
                f"holds something else under {more[0]!r}",
                "let nobody else write under its prefix, or choose another with ?prefix=",
            )
        if not look and told == b"done" and layout.to_digits(0) in more[0].split():
            self._registered = (-1, set())  # a namespace began: was the server emptied, and its list too?
            self._register_namespaces(unit)
        return told.decode()

    def _lock_namespaces(self, unit: RedisTransaction, writer: CommitWriter) -> list[bytes]:
        """Ask everybody else to wait with the namespaces of a unit; the keys of those who wait."""
        mine: list[bytes] = []
        for gate in (self.keys(name)("gate") for name in sorted(unit.namespaces)):
            if not self.server.acquire_lock(gate, writer, _LOCK_TTL_MS):
                for other in mine:  # who waits while others wait for him would wait for long
                    self.server.release_lock(other, writer)
                return []
            mine.append(gate)
        return mine

    def _register_namespaces(self, unit: RedisTransaction) -> None:
        """Note that the namespaces exist, before anything is in them: too early does no harm."""
        epoch, known = self._registered
        if epoch != self.server.epoch:
            known = set()
        new = unit.namespaces.keys() - known
        if new:
            self.server.execute("SADD", layout.store_key(self.prefix, "namespaces"), *new)
            self._registered = (self.server.epoch, known | new)


def _attempt(work: Callable[[StoreState], T], unit: RedisTransaction) -> tuple[T | None, Exception | None]:
    """What an operation gives, or why it does not."""
    try:
        return work(unit), None
    except OmoideError as error:
        return None, error
    except (KeyError, AssertionError) as error:  # what was read in two steps may not fit together
        return None, error


def _check_job(
    keys: NamespaceKeys, checks: dict[tuple[bytes, bytes], bytes], place: Callable[[bytes], int]
) -> Any:
    return {
        "gate": place(keys("nobody")),
        "checks": [[place(key), field, value] for (key, field), value in checks.items()],
        "kinds": [],
    }
