"""Read the part of a store that one operation needs, and remember what must still hold at its commit.

A snapshot is the read set of an operation. Each value that it fetches becomes an expectation: the commit
script compares the stamps of all of them before it writes anything. Values that were fetched or changed once
are answered from memory, so that an operation sees its own changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial as partial_call
from typing import Any, TypeVar

from omoide import clock
from omoide.core.entry import Entry, Evidence, Scope, WriteRequest
from omoide.errors import Corrupted
from omoide.stores import records, semantics
from omoide.stores.records import Access, Document, IndexData, Lease, Link, Version
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Command, KeyArgument, RedisConnections
from omoide.stores.redis.layout import (
    KEY_TYPES,
    SEPARATOR,
    EntryRow,
    NamespaceKeys,
    decode_ids,
    join_ids,
    partition_for,
    split_ids,
    watch_field,
)
from omoide.stores.state import (
    DocumentKey,
    EntryKey,
    LinkKey,
    Receipt,
    ReceiptKey,
    StoredEntry,
    entry_of_version,
)

T = TypeVar("T")

_log = logging.getLogger("omoide")

UNASSIGNED = 1 << 60
"""Sequence numbers from here on are assigned by the commit: it adds what is above this to its last one."""

MAX_COMMAND_ARGS = 1_000

SWEEP_LIMIT = 16
"""Expired entries that one write takes out of the indexes of recall."""
SWEEP_DELAY_MS = 3_600_000

DOCUMENTS_FIELD = "documents"
"""The field of `watch` for the documents of a namespace; no partition begins with a d."""

_PAGE_SIZE = 200


def batches(items: Sequence[T], size: int | None = None) -> Iterator[Sequence[T]]:
    """Yield items in batches that fit into one command."""
    step = size or MAX_COMMAND_ARGS
    return (items[at : at + step] for at in range(0, len(items), step))


class FetchedEntry(StoredEntry):
    """An entry of the server; index data, use and older versions are fetched when they are needed."""

    def __init__(self, row: EntryRow, snapshot: RedisSnapshot) -> None:
        self.number = row.number
        self.written_seq = row.written_seq
        self.versions = [row.version]
        self.transitions = row.transitions
        self.model = row.model
        """The embedder of its vector; empty if it has none."""
        self.has_custom_vector = row.has_custom_vector
        self.before: Entry | None = None
        """The entry before this transaction; None for a new one."""
        if row.number < UNASSIGNED:
            self.before = entry_of_version(row.version, stale=self.is_stale)
        self.model_before = "" if self.before is None else row.model
        self.replaced_versions: list[Version] = []
        """Versions that this transaction moves to the past."""
        self.damaged_versions: dict[int, Corrupted] = {}
        """By revision: the versions that cannot be decoded, which a history leaves out."""
        self.leftovers: list[tuple[str, bytes, bytes]] = []
        """Where the indexes have an entry that cannot be decoded: how to remove it, key and member."""
        self.is_index_changed = False
        self._first_rev = row.first_rev
        self._snapshot = snapshot
        self._index_data: IndexData | None = None

    @property
    def first_rev(self) -> int:
        """The first revision in this store."""
        return self._first_rev

    @first_rev.setter
    def first_rev(self, value: int) -> None:
        self._first_rev = value

    @property
    def has_all_versions(self) -> bool:
        return len(self.versions) + len(self.damaged_versions) > self.versions[-1].rev - self._first_rev

    def entry_at(self, moment: int | None) -> Entry | None:
        """Return the entry as of a moment; raise `Corrupted` if a damaged version may have been it."""
        found = super().entry_at(moment)
        if moment is not None and self.damaged_versions:
            rev = self._first_rev if found is None else found.rev + 1
            if rev in self.damaged_versions:
                raise self.damaged_versions[rev]
        return found

    @property
    def index_data(self) -> IndexData:
        """Features and vectors, fetched on first use."""
        if self._index_data is None:
            self._index_data = self._snapshot.fetch_index_data(self.entry)
        return self._index_data

    @index_data.setter
    def index_data(self, value: IndexData) -> None:
        self._index_data = value

    @property
    def has_index_data(self) -> bool:
        return self._index_data is not None

    @property
    def access(self) -> Access:
        """Count and time of its uses, fetched on each call."""
        return self._snapshot.fetch_access(self.entry)

    @access.setter
    def access(self, value: Access) -> None:
        raise NotImplementedError  # the server adds uses up

    @property
    def has_vector(self) -> bool:
        return bool(self.model)


class DamagedEntry:
    """What the indexes know of an entry that cannot be decoded: enough to erase it."""

    def __init__(self, namespace: str, id: str) -> None:
        self.leftovers: list[tuple[str, bytes, bytes]] = []
        self._namespace = namespace
        self._id = id
        self._number = 0
        self._partitions: dict[str, str] = {}
        self._premises: list[str] = []

    def add_membership(self, name: str, part: str, key: bytes, member: bytes) -> None:
        """Note a sorted set that has the entry."""
        self.leftovers.append(("ZREM", key, member))
        if name == "on":
            self._premises.append(part)
        elif name == "time":
            self._partitions[part[:1]] = part[1:]
            with suppress(ValueError):
                self._number = int(member[: layout.STAMP_LENGTH])

    def is_in(self, scope: Scope) -> bool:
        """Return True if the indexes show the entry in a scope."""
        own = (
            ("u", scope.user_id),
            ("a", scope.agent_id),
            ("s", scope.session_id),
            ("p", scope.project_id),
        )
        return all(id is None or self._partitions.get(letter) == id for letter, id in own)

    def to_stored(self, past: Sequence[bytes], snapshot: RedisSnapshot) -> FetchedEntry:
        """Return an entry without content in its place; `past` lists the older versions of all entries."""
        prefix = layout.to_digits(self._number)
        revs = [
            int(field[layout.STAMP_LENGTH :])
            for field in past
            if field.startswith(prefix) and field[layout.STAMP_LENGTH :].isdigit()
        ]
        entry = semantics.replace_unchecked(
            Entry(id="damaged", agent_id="damaged", content="-", created_at=0),
            id=self._id,
            namespace=self._namespace,
            user_id=self._partitions.get("u"),
            agent_id=self._partitions.get("a", ""),
            session_id=self._partitions.get("s"),
            project_id=self._partitions.get("p"),
            evidence=tuple(Evidence(kind="entry", ref=premise) for premise in self._premises),
            rev=max(revs, default=0) + 1,
        )
        version = layout.version_of(self._id, 0, entry)
        row = EntryRow(0, self._number, min(revs, default=entry.rev), version, "", False, [])
        stored = FetchedEntry(row, snapshot)
        stored.leftovers = self.leftovers
        return stored


def as_fetched(stored: StoredEntry) -> FetchedEntry:
    """Narrow the type of an entry of this store."""
    assert isinstance(stored, FetchedEntry)
    return stored


class RedisSnapshot:
    """The read set of one operation: a `StateReader` over a server.

    The public attributes are the local copy of the state, to which a transaction applies its changes.
    """

    def __init__(self, server: RedisConnections, keys: Callable[[str], NamespaceKeys]) -> None:
        self.keys = keys
        self.round_trips = 0
        self.expectations: dict[str, dict[tuple[bytes, bytes], bytes]] = {}
        """By namespace and by key and field: how the value begins; empty where there was none."""
        self.entries: dict[EntryKey, FetchedEntry] = {}
        self.absent: set[EntryKey] = set()
        self.removed: set[EntryKey] = set()
        self.damaged: dict[EntryKey, Corrupted] = {}
        """Entries that cannot be decoded; what reads several leaves them out."""
        self.damaged_links: set[LinkKey] = set()
        self.tombstones: dict[EntryKey, list[tuple[Entry, Version]]] = {}
        self.links: dict[LinkKey, Link] = {}
        self.removed_links: set[LinkKey] = set()
        self.invalidation_counts: dict[EntryKey, int] = {}
        self.receipts: dict[ReceiptKey, Receipt | None] = {}
        self.receipt_keys: dict[EntryKey, list[str]] = {}
        """The idempotency keys under which an entry was written."""
        self.oldest_receipts: dict[str, list[tuple[str, str, float]]] = {}
        """By namespace: idempotency key, entry id and time of the receipts that expire first."""
        self.models: dict[str, tuple[str, bytes | None]] = {}
        """By namespace: the embedder of its vectors, and the raw count of them."""
        self.removed_documents: set[DocumentKey] = set()
        self.server = server
        self._raw_models: dict[str, bytes | None] = {}
        self._dependents: dict[EntryKey, set[str]] = {}
        self._dependency_changes: dict[EntryKey, dict[str, bool]] = {}
        self._without_tombstone: set[EntryKey] = set()
        self._citing: dict[EntryKey, list[str]] = {}

    @property
    def place(self) -> str:
        """The URL of the server, without a password."""
        return self.server.name

    def integer(self, raw: bytes | None, kind: str, default: int = 0) -> int:
        """Return a stored number; raise `Corrupted` if it is damaged."""
        return self.server.integer(raw, kind, default)

    def fetch(self, commands: Sequence[Command]) -> list[Any]:
        """Return the replies to commands, all read at one moment."""
        if not commands:
            return []
        self.round_trips += 1
        return self.server.read(commands)

    def expect(self, namespace: str, name: str, field: bytes | str, value: bytes | None) -> None:
        """Require that the stamp of a field is unchanged at commit; the first reading counts."""
        self._expect(namespace, name, field, (value or b"")[: layout.STAMP_LENGTH])

    def expect_whole(self, namespace: str, name: str, field: str, value: bytes | None) -> None:
        """Require that a value without a stamp is unchanged at commit."""
        self._expect(namespace, name, field, value or b"")

    def _expect(self, namespace: str, name: str, field: bytes | str, value: bytes) -> None:
        field = field.encode() if isinstance(field, str) else field
        expectations = self.expectations.setdefault(namespace, {})
        expectations.setdefault((self.keys(namespace)(name), field), value)

    # Entries

    def prefetch_namespace(self, namespace: str, requests: Sequence[WriteRequest]) -> list[FetchedEntry]:
        """Fetch what writes to one namespace need in one round trip; return expired entries to sweep."""
        keys = self.keys(namespace)
        ids = {request.entry.id for request in requests}
        ids.update(request.supersedes for request in requests if request.supersedes is not None)
        ids.update(by for request in requests if (by := semantics.successor_id(request.entry)) is not None)
        premises = {ref for request in requests for ref in semantics.premises(request.entry)}
        own, every = [*ids], [*ids, *(premises - ids)]
        receipts = [key for request in requests for key in semantics.receipt_keys(request)]
        until = str(clock.now() - SWEEP_DELAY_MS)
        commands: list[Command] = [
            ["HMGET", keys("meta"), "model", "vectors"],
            ["ZRANGEBYSCORE", keys("expiry"), "-inf", until, "LIMIT", "0", str(SWEEP_LIMIT)],
        ]
        if receipts:
            commands.append(["ZRANGE", keys("kept"), "0", "7", "WITHSCORES"])
        for some in batches(every):
            commands += [["HMGET", keys(name), *some] for name in ("rows", "stones", "invalid")]
        commands += [["HMGET", keys("found"), *some] for some in batches(own)]
        commands += [["HMGET", keys("receipts"), *some] for some in batches(receipts)]
        replies = iter(self.fetch(commands))
        self._cache_model(namespace, next(replies))
        expired = decode_ids(next(replies))
        if receipts:
            pairs = next(replies)
            self.oldest_receipts[namespace] = [
                (*_split_pair(name), float(at))
                for name, at in zip(pairs[::2], pairs[1::2], strict=True)
                if SEPARATOR.encode() in name
            ]
        for some in batches(every):
            self._cache_rows(namespace, some, next(replies))
            self._cache_tombstones(namespace, some, next(replies))
            self._cache_invalidations(namespace, some, next(replies))
        for some in batches(own):
            self._cache_index_data(namespace, some, next(replies))
        for some in batches(receipts):
            self._cache_receipts(namespace, some, next(replies))
        return [stored for id, stored in self.find_many(namespace, expired).items() if id not in ids]

    def find(self, namespace: str, id: str) -> FetchedEntry | None:
        found = self.find_many(namespace, [id]).get(id)
        if found is None and (namespace, id) in self.damaged:
            raise self.damaged[namespace, id]
        return found

    def find_many(self, namespace: str, ids: Collection[str]) -> dict[str, FetchedEntry]:
        known = (self.entries, self.absent, self.damaged)
        missing = [id for id in ids if not any((namespace, id) in some for some in known)]
        self._fetch_fields(namespace, "rows", missing, self._cache_rows)
        return {id: stored for id in ids if (stored := self.entries.get((namespace, id))) is not None}

    def _fetch_fields(
        self,
        namespace: str,
        name: str,
        fields: Sequence[Any],
        cache: Callable[[str, Sequence[Any], Sequence[bytes | None]], None],
    ) -> None:
        """Fetch fields of a hash and hand them to the method that caches them."""
        key = self.keys(namespace)(name)
        replies = self.fetch([["HMGET", key, *some] for some in batches(fields)])
        for some, values in zip(batches(fields), replies, strict=True):
            cache(namespace, some, values)

    def entries_in(self, scope: Scope) -> list[StoredEntry]:
        keys, partition = self.keys(scope.namespace), partition_for(scope)
        (ids, values), stamp = self.fetch(
            [
                ["ENTRIES", keys("time", partition), KeyArgument(keys("rows"))],
                ["HGET", keys("watch"), partition],
            ]
        )
        # One stamp for the whole partition: an entry that comes into the scope changes it, too.
        self.expect(scope.namespace, "watch", partition, stamp)
        for id, raw in zip(decode_ids(ids), values, strict=True):
            key = (scope.namespace, id)
            if key not in self.entries and key not in self.removed and raw is not None:
                self._cache_entry(key, raw)
        entries: list[StoredEntry] = [one for one in self.entries.values() if scope.contains(one.entry)]
        return sorted(entries, key=lambda stored: stored.number)

    def damaged_in(self, scope: Scope) -> list[StoredEntry]:
        namespace = scope.namespace
        ids = {id for name, id in self.damaged if name == namespace and (name, id) not in self.removed}
        if not ids:
            return []
        keys = self.keys(namespace)
        names = [(keys.split(key), key) for key in self.server.scan(keys.pattern)]
        sets = [(name, part, key) for (name, part), key in names if KEY_TYPES.get(name) == "zset"]
        members = self.fetch([["ZRANGE", key, "0", "-1"] for _, _, key in sets])
        hashes: list[Command] = [
            ["HGETALL", keys("same")],
            ["HGETALL", keys("slots")],
            ["HKEYS", keys("past")],
        ]
        same, slots, past = self.fetch(hashes)
        (tick,) = self.fetch([["HGET", keys("meta"), "tick"]])
        self.expect_whole(namespace, "meta", "tick", tick)
        found = {id: DamagedEntry(namespace, id) for id in sorted(ids)}
        for (name, part, key), listed in zip(sets, members, strict=True):
            for member in listed:
                id = layout.member_id(member) if name == "time" else layout.decode_text(member)
                if id in found and name in ("time", "all", "on", "expiry", "used"):
                    found[id].add_membership(name, part, key, member)
        for field, raw in zip(same[::2], same[1::2], strict=True):
            for id in ids.intersection(layout.member_ids(raw)):
                found[id].leftovers.append(("REMOVE_MEMBER", keys("same"), field))
        for field, raw in zip(slots[::2], slots[1::2], strict=True):
            if (id := layout.member_id(raw)) in found:
                found[id].leftovers.append(("HDEL", keys("slots"), field))
        chosen = [one for one in found.values() if one.is_in(scope)]
        return [one.to_stored(past, self) for one in chosen]

    def load_versions(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        partial = [fetched for one in entries if not (fetched := as_fetched(one)).has_all_versions]
        for namespace, group in _by_namespace(partial).items():
            wanted = [(one, rev) for one in group for rev in range(one.first_rev, one.versions[0].rev)]
            key = self.keys(namespace)("past")
            replies = self.fetch(
                [
                    ["HMGET", key, *(layout.to_digits(one.number) + b"%d" % rev for one, rev in pairs)]
                    for pairs in batches(wanted)
                ]
            )
            versions: dict[int, list[Version]] = {}
            for (one, rev), raw in zip(wanted, (raw for values in replies for raw in values), strict=True):
                try:
                    version = self._decode(
                        f"version {rev} of entry",
                        one.entry.id,
                        partial_call(layout.decode_version, raw, one.entry.id, rev),
                    )
                except Corrupted as error:
                    _log.warning("%s", error)
                    one.damaged_versions[rev] = error
                else:
                    versions.setdefault(one.number, []).append(version)
            for one in group:
                one.versions[:0] = versions.get(one.number, [])
        return entries

    def load_index_data(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        partial = [fetched for one in entries if not (fetched := as_fetched(one)).has_index_data]
        for namespace, group in _by_namespace(partial).items():
            ids = [one.entry.id for one in group]
            self._fetch_fields(namespace, "found", ids, self._cache_index_data)
        return entries

    def load_for_removal(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        for namespace, group in _by_namespace([as_fetched(one) for one in entries]).items():
            ids = [one.entry.id for one in group]
            self._fetch_references(namespace, ids)
            self.erased_ids(namespace, ids)
        return self.load_versions(entries)

    def possible_duplicates(self, entry: Entry) -> list[StoredEntry]:
        field = semantics.content_key(entry)
        (raw,) = self.fetch([["HGET", self.keys(entry.namespace)("same"), field]])
        self.expect(entry.namespace, "same", field, raw)
        if raw is not None:
            self.find_many(entry.namespace, layout.member_ids(raw))
        same: list[StoredEntry] = [
            stored for stored in self.entries.values() if stored.entry.content == entry.content
        ]
        return sorted(same, key=lambda stored: stored.number)

    def find_slot(self, entry: Entry) -> StoredEntry | None:
        field = layout.slot_field(entry)
        (raw,) = self.fetch([["HGET", self.keys(entry.namespace)("slots"), field]])
        self.expect(entry.namespace, "slots", field, raw)
        if raw is not None:
            self.find_many(entry.namespace, [layout.member_id(raw)])
        # What this operation has changed so far decides, not what the server has.
        holders = (stored for stored in self.entries.values() if stored.entry.shares_slot(entry))
        return next((stored for stored in holders if stored.entry.fills_slot), None)

    def fetch_index_data(self, entry: Entry) -> IndexData:
        """Fetch the index data of one entry."""
        (raw,) = self.fetch([["HGET", self.keys(entry.namespace)("found"), entry.id]])
        return layout.index_data_of(entry, raw)

    def fetch_access(self, entry: Entry) -> Access:
        """Fetch how often an entry was used, and when last."""
        keys = self.keys(entry.namespace)
        count, last = self.fetch([["HGET", keys("access"), entry.id], ["ZSCORE", keys("used"), entry.id]])
        return Access(
            count=self.server.integer(count, f"count of uses of {entry.id!r}"),
            last=None if last is None else int(float(last)),
        )

    def model_of(self, namespace: str) -> tuple[str, bytes | None]:
        """Return the embedder of the vectors of a namespace, and the raw count of them."""
        if namespace not in self.models:
            (reply,) = self.fetch([["HMGET", self.keys(namespace)("meta"), "model", "vectors"]])
            self._cache_model(namespace, reply)
        return self.models[namespace]

    def expect_model(self, namespace: str) -> None:
        """Require that the embedder of the vectors of a namespace is unchanged at commit."""
        self.model_of(namespace)
        self.expect_whole(namespace, "meta", "model", self._raw_models[namespace])

    # Dependencies, tombstones, links and receipts

    def dependents_of(self, namespace: str, ids: Collection[str]) -> set[str]:
        keys = self.keys(namespace)
        missing = [id for id in ids if (namespace, id) not in self._dependents]
        commands: list[Command] = [["ZRANGEBYSCORE", keys("on", id), "1", "1"] for id in missing]
        commands += [["HMGET", keys("watch"), *map(watch_field, some)] for some in batches(missing)]
        replies = self.fetch(commands)
        stamps = [stamp for values in replies[len(missing) :] for stamp in values]
        for id, raw_ids, stamp in zip(missing, replies, stamps, strict=False):
            self.expect(namespace, "watch", watch_field(id), stamp)
            dependents = {*decode_ids(raw_ids)}
            for dependent, present in self._dependency_changes.get((namespace, id), {}).items():
                (dependents.add if present else dependents.discard)(dependent)
            self._dependents[namespace, id] = dependents
        return {dependent for id in ids for dependent in self._dependents[namespace, id]}

    def set_dependent(self, namespace: str, premise: str, id: str, *, present: bool) -> None:
        """Apply a change of the evidence of an entry, also to dependents that are fetched later."""
        key = (namespace, premise)
        self._dependency_changes.setdefault(key, {})[id] = present
        if key in self._dependents:
            (self._dependents[key].add if present else self._dependents[key].discard)(id)

    def invalidated_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        missing = [id for id in ids if (namespace, id) not in self.invalidation_counts]
        self._fetch_fields(namespace, "invalid", missing, self._cache_invalidations)
        return {id for id in ids if self.invalidation_counts[namespace, id] > 0}

    def erased_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        missing = [
            id
            for id in ids
            if (namespace, id) not in self.tombstones and (namespace, id) not in self._without_tombstone
        ]
        self._fetch_fields(namespace, "stones", missing, self._cache_tombstones)
        return {id for id in ids if (namespace, id) in self.tombstones}

    def tombstones_of(self, id: str, scope: Scope) -> list[Version]:
        self.erased_ids(scope.namespace, [id])
        tombstones = self.tombstones.get((scope.namespace, id), ())
        return [tombstone for owner, tombstone in tombstones if scope.contains(owner)]

    def citing_ids(self, namespace: str, id: str) -> list[str]:
        self._fetch_references(namespace, [id])
        return [other for other in self._citing[namespace, id] if (namespace, other) not in self.removed]

    def links_of(self, namespace: str, id: str) -> dict[LinkKey, Link]:
        self._fetch_references(namespace, [id])
        return {
            key: link for key, link in self.links.items() if key[0] == namespace and id in (key[1], key[3])
        }

    def receipt_keys_of(self, namespace: str, id: str) -> list[str]:
        """Return the idempotency keys under which an entry was written."""
        self._fetch_references(namespace, [id])
        return self.receipt_keys[namespace, id]

    def _fetch_references(self, namespace: str, ids: Sequence[str]) -> None:
        """Fetch the links, citing entries and receipts of entries."""
        keys = self.keys(namespace)
        for some in batches([id for id in ids if (namespace, id) not in self._citing]):
            commands: list[Command] = [["HMGET", keys("watch"), *map(watch_field, some)]]
            for id in some:
                commands += [["SMEMBERS", keys("ends", id)], ["ZRANGE", keys("on", id), "0", "-1"]]
                commands += [["SMEMBERS", keys("keys", id)]]
            stamps, *replies = self.fetch(commands)
            link_fields: dict[bytes, None] = {}
            for at, (id, stamp) in enumerate(zip(some, stamps, strict=True)):
                self.expect(namespace, "watch", watch_field(id), stamp)
                ends, citing, receipts = replies[3 * at : 3 * at + 3]
                link_fields.update(dict.fromkeys(ends))
                self._citing[namespace, id] = decode_ids(citing)
                self.receipt_keys[namespace, id] = decode_ids(receipts)
            self._fetch_fields(namespace, "links", [*link_fields], self._cache_links)

    def count_links_from(self, namespace: str, ids: Collection[str]) -> int:
        (fields,) = self.fetch([["HKEYS", self.keys(namespace)("links")]])
        return sum(split_ids(field, 3)[0] in ids for field in fields)

    def find_link(self, key: LinkKey) -> Link | None:
        if key not in self.links and key not in self.removed_links:
            namespace, source, relation, target = key
            self._fetch_fields(namespace, "links", [join_ids(source, target, relation)], self._cache_links)
        return self.links.get(key)

    def find_receipt(self, key: ReceiptKey) -> Receipt | None:
        if key not in self.receipts:
            self._fetch_fields(key[0], "receipts", [key[1]], self._cache_receipts)
        return self.receipts[key]

    # Documents

    def find_document(self, key: DocumentKey) -> Document | None:
        raw = self._fetch_document_field("docs", key)
        return None if raw is None else self._decode_document(raw, key)

    def _decode_document(self, raw: bytes, key: DocumentKey) -> Document:
        return self._decode(key[1], key[2], lambda: layout.decode_document(raw, key))

    def find_lease(self, key: DocumentKey) -> Lease | None:
        raw = self._fetch_document_field("leases", key)
        if raw is None:
            return None
        return self._decode(f"lease of {key[1]}", key[2], lambda: layout.decode_lease(raw))

    def _fetch_document_field(self, name: str, key: DocumentKey) -> bytes | None:
        field = join_ids(*key[1:])
        raw: bytes | None
        (raw,) = self.fetch([["HGET", self.keys(key[0])(name), field]])
        self.expect(key[0], name, field, raw)
        return raw

    def document_log(self, key: DocumentKey) -> tuple[Any, ...]:
        (items,) = self.fetch([["LRANGE", self.log_key(key), "0", "-1"]])
        return self._decode(
            f"log of {key[1]}", key[2], lambda: tuple(layout.decode_item(raw) for raw in items)
        )

    def log_key(self, key: DocumentKey) -> bytes:
        """Return the key of the list that is the log of a document."""
        return self.keys(key[0])("doclog", join_ids(*key[1:]).decode())

    def documents_of_kind(self, kind: str, namespace: str, after: str | None) -> Iterator[Document]:
        keys = self.keys(namespace)
        low = "-" if after is None else b"(" + after.encode()
        while True:
            page: Command = ["ZRANGEBYLEX", keys("kind", kind), low, "+", "LIMIT", "0", str(_PAGE_SIZE)]
            ids = decode_ids(self.fetch([page])[0])
            if not ids:
                return
            (values,) = self.fetch([["HMGET", keys("docs"), *(join_ids(kind, id) for id in ids)]])
            for id, raw in zip(ids, values, strict=True):
                if raw is not None:
                    try:
                        yield self._decode_document(raw, (namespace, kind, id))
                    except Corrupted as error:
                        _log.warning("%s", error)
            low = b"(" + ids[-1].encode()

    def document_owners(self, namespace: str) -> dict[DocumentKey, Scope]:
        keys = self.keys(namespace)
        flat, stamp = self.fetch([["HGETALL", keys("owners")], ["HGET", keys("watch"), DOCUMENTS_FIELD]])
        self.expect(namespace, "watch", DOCUMENTS_FIELD, stamp)
        owners: dict[DocumentKey, Scope] = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            key = (namespace, *_split_pair(field))
            if key not in self.removed_documents:
                owners[key] = self._decode_owner(raw, key)
        return owners

    def _decode_owner(self, raw: bytes, key: DocumentKey) -> Scope:
        """Decode the owner of a document; a damaged one is known by the whole namespace only."""
        try:
            return self._decode(f"owner of {key[1]}", key[2], lambda: layout.decode_owner(raw, key[0]))
        except Corrupted as error:
            _log.warning("%s", error)
            return Scope(namespace=key[0])

    # Replies

    def _cache_rows(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        for id, raw in zip(ids, values, strict=True):
            key = (namespace, id)
            self.expect(namespace, "rows", id, raw)
            if key in self.removed:
                continue
            if raw is None:
                self.absent.add(key)
            elif key not in self.entries:
                self._cache_entry(key, raw)

    def _cache_entry(self, key: EntryKey, raw: bytes) -> None:
        """Cache a decoded entry; log a damaged one."""
        if key in self.damaged:
            return
        try:
            row = self._decode("entry", key[1], lambda: layout.decode_row(raw, key[1]))
        except Corrupted as error:
            _log.warning("%s", error)
            self.damaged[key] = error
        else:
            self.entries[key] = FetchedEntry(row, self)

    def _decode(self, kind: str, id: str, decode: Callable[[], T]) -> T:
        """Return a decoded value; raise `Corrupted` if it is damaged."""
        try:
            return decode()
        except records.DECODE_ERRORS as error:
            raise records.damaged(self.server.name, kind, id) from error

    def _cache_index_data(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        for id, raw in zip(ids, values, strict=True):
            stored = self.entries.get((namespace, id))
            if stored is not None and not stored.has_index_data:
                stored.index_data = layout.index_data_of(stored.entry, raw)

    def _cache_tombstones(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        for id, raw in zip(ids, values, strict=True):
            self.expect(namespace, "stones", id, raw)
            if raw is None:
                self._without_tombstone.add((namespace, id))
            else:
                self.tombstones[namespace, id] = self._decode_tombstones(namespace, id, raw)

    def _decode_tombstones(self, namespace: str, id: str, raw: bytes) -> list[tuple[Entry, Version]]:
        """Decode the tombstones of an id; damaged ones say that it was erased, and are shown nowhere."""
        try:
            return self._decode("tombstone", id, lambda: layout.decode_tombstones(raw, id, namespace))
        except Corrupted as error:
            _log.warning("%s", error)
            return []

    def _cache_invalidations(
        self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]
    ) -> None:
        for id, raw in zip(ids, values, strict=True):
            self.expect(namespace, "invalid", id, raw)
            self.invalidation_counts[namespace, id] = self.server.integer(
                raw, f"count of invalidations of {id!r}"
            )

    def _cache_links(self, namespace: str, fields: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        for field, raw in zip(fields, values, strict=True):
            self.expect(namespace, "links", field, raw)
            if raw is None:
                continue
            try:
                link = layout.decode_link(field, raw)
            except records.DECODE_ERRORS:
                source, target, relation = split_ids(field, 3)
                _log.warning("%s", records.damaged(self.server.name, "link of entry", source))
                self.damaged_links.add((namespace, source, relation, target))
                continue
            key = (namespace, link.source, link.relation, link.target)
            if key not in self.removed_links:
                self.links.setdefault(key, link)

    def _cache_receipts(
        self, namespace: str, receipt_keys: Sequence[str], values: Sequence[bytes | None]
    ) -> None:
        for receipt_key, raw in zip(receipt_keys, values, strict=True):
            self.expect(namespace, "receipts", receipt_key, raw)
            self.receipts[namespace, receipt_key] = (
                None
                if raw is None
                else self._decode("receipt", receipt_key, partial_call(layout.decode_receipt, raw))
            )

    def _cache_model(self, namespace: str, values: Sequence[bytes | None]) -> None:
        model, vectors = values
        self.models[namespace] = (layout.decode_text(model), vectors)
        self._raw_models[namespace] = model


def _by_namespace(entries: Sequence[FetchedEntry]) -> dict[str, list[FetchedEntry]]:
    groups: dict[str, list[FetchedEntry]] = {}
    for stored in entries:
        groups.setdefault(stored.entry.namespace, []).append(stored)
    return groups


def _split_pair(field: bytes) -> tuple[str, str]:
    first, second = split_ids(field, 2)
    return first, second
