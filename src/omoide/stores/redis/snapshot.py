"""Read set: what an operation fetched and must still hold.

It notes everything that it was told, so that a commit can make sure that it still holds.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from omoide import clock
from omoide.core.entry import Entry, Scope, WriteRequest
from omoide.stores import semantics, truth
from omoide.stores.codec import IndexData
from omoide.stores.records import Access, Link, Version
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Command, KeyArgument, RedisConnections
from omoide.stores.redis.layout import (
    COMMIT_TICK,
    SEPARATOR,
    Argument,
    EntryRow,
    NamespaceKeys,
    decode_ids,
    join_ids,
    partition_for,
    partitions_of,
    split_ids,
    watch_field,
)
from omoide.stores.state import DocumentKey, LinkKey, Receipt, StoredEntry, StoreState, entry_of_version
from omoide.stores.state import EntryKey as Name
from omoide.stores.truth import LIVE

# held: How does an entry look that was fetched from the server?


UNASSIGNED = 1 << 60
"""Numbers from here on are not given yet: the server adds what is above this to its last one."""


class FetchedEntry(StoredEntry):
    """An entry as it is; what it is found by, how often it was used and its past come when asked for."""

    def __init__(
        self,
        row: EntryRow,
        fetch: Callable[[FetchedEntry], IndexData],
        used: Callable[[FetchedEntry], Access],
    ) -> None:
        self.number = row.number
        self.written_seq = row.written_seq
        self.versions = [row.version]
        self.transitions = row.transitions
        self.model = row.model
        """Whose vector it has; nobody's if it has none."""
        self.has_custom_vector = row.has_custom_vector
        self.before: Entry | None = (
            None if row.number >= UNASSIGNED else entry_of_version(row.version, stale=self.is_stale)
        )
        """As it is kept, before what is about to change."""
        self.model_before = "" if self.before is None else row.model
        self.replaced_versions: list[Version] = []
        """Versions that this commit makes old ones."""
        self.is_index_changed = False
        """Whether what it is found by is written anew."""
        self._first_rev = row.first_rev
        self._fetch_index_data = fetch
        self._fetch_access = used
        self._index_data: IndexData | None = None

    @property
    def first_rev(self) -> int:
        """The first revision that was kept here."""
        return self._first_rev

    @property
    def has_all_versions(self) -> bool:
        """Whether all of its versions are here."""
        return self.versions[0].rev == self._first_rev

    @property
    def index_data(self) -> IndexData:
        """What it is found by."""
        if self._index_data is None:
            self._index_data = self._fetch_index_data(self)
        return self._index_data

    @index_data.setter
    def index_data(self, value: IndexData) -> None:
        self._index_data = value

    @property
    def has_index_data(self) -> bool:
        """Whether it is known what it is found by."""
        return self._index_data is not None

    @property
    def access(self) -> Access:
        """How often it was used, and when last."""
        return self._fetch_access(self)

    @access.setter
    def access(self, value: Access) -> None:
        raise NotImplementedError  # uses are added up by the server

    @property
    def has_vector(self) -> bool:
        """Whether it has a vector."""
        return bool(self.model)


# parts: What will a commit check and change in one namespace?


MAX_COMMAND_ARGS = 1_000
"""Arguments of one command."""


def number_argument(number: int) -> bytes | int:
    """A number for a command: as it is, or the place of the change that it will be the number of."""
    return number - UNASSIGNED if number >= UNASSIGNED else layout.to_digits(number)


class NamespaceChanges:
    """The share of one namespace in a commit."""

    def __init__(self, keys: NamespaceKeys) -> None:
        self.keys = keys
        self.checks: dict[tuple[bytes, bytes], bytes] = {}
        """What was read: the beginning of each field's value, nothing where there was none."""
        self.log_records: list[bytes] = []
        self.changed_entries: dict[str, FetchedEntry] = {}
        self.touched_fields: set[str] = set()
        """What `watch` says has changed."""
        self._deletions: dict[tuple[str, bytes], list[Argument]] = {}
        self._commands: list[list[Any]] = []

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to change."""
        return bool(self.log_records or self.changed_entries or self._commands or self._deletions)

    def expect(self, name: str, field: bytes | str, value: bytes | None) -> None:
        """Make sure that a field is still as it was read; a first look counts."""
        field = field.encode() if isinstance(field, str) else field
        self.checks.setdefault((self.keys(name), field), (value or b"")[: layout.STAMP_LENGTH])

    def expect_whole(self, name: str, field: str, value: bytes | None) -> None:
        """The same of a value without a stamp, all of it."""
        self.checks.setdefault((self.keys(name), field.encode()), value or b"")

    def command(self, verb: str, key: bytes, *args: Argument) -> None:
        """Change something."""
        self._commands.append([verb, key, *args])

    def delete(self, verb: str, key: bytes, args: Iterable[Argument]) -> None:
        """Remove something, before anything else is done."""
        given = [*args]
        if given:
            self._deletions.setdefault((verb, key), []).extend(given)

    def delete_key(self, key: bytes) -> None:
        """Remove a whole key."""
        self._deletions["DEL", key] = []

    def touch(self, *names: str) -> None:
        """Tell those who read something together that it changed."""
        self.touched_fields.update(names)

    def increment(self, name: str, by: int) -> None:
        """Change a counter."""
        if by:
            self.command("HINCRBY", self.keys("meta"), name, str(by))

    # Entries

    def remove_entry(self, one: FetchedEntry, versions: Sequence[Version]) -> None:
        """Leave nothing of an entry."""
        keys, entry = self.keys, one.entry
        id = entry.id
        self.changed_entries.pop(id, None)
        if one.before is None:
            return  # it was never written down
        self.delete("HDEL", keys("rows"), [id])
        self.delete("HDEL", keys("found"), [id])
        head = layout.to_digits(one.number)
        self.delete("HDEL", keys("past"), [head + b"%d" % old.rev for old in versions])
        for name in partitions_of(entry):
            self.delete("ZREM", keys("time", name), [head + id.encode()])
            self.delete("ZREM", keys("all", name), [id])
        self.delete("ZREM", keys("expiry"), [id])
        self.delete("HDEL", keys("access"), [id])
        self.delete("ZREM", keys("used"), [id])
        self.command("PART", keys("same"), semantics.content_key(one.before), id)
        self.command("ZADD", keys("gone"), [COMMIT_TICK], id)
        self.increment("vectors", -bool(one.model_before))
        self.touch(*partitions_of(entry))

    def remove_expired(self, one: FetchedEntry) -> None:
        """Take an entry that expired long ago out of the lists that recall looks at."""
        entry = one.entry
        assert entry.expires_at is not None
        for name in partitions_of(entry):
            self.command("ZREM", self.keys("all", name), entry.id)
        self.command("ZADD", self.keys("gone"), [COMMIT_TICK], entry.id)
        self.command("ZREM", self.keys("expiry"), entry.id)
        self.command("MOST", self.keys("meta"), "horizon", str(entry.expires_at))

    def _write_entry(self, id: str, one: FetchedEntry) -> None:
        keys, entry, was = self.keys, one.entry, one.before
        no = number_argument(one.number)
        body = layout.encode_row(
            one.first_rev, one.versions[-1], one.model, one.has_custom_vector, one.transitions
        )
        self.command("HSET", keys("rows"), id, [COMMIT_TICK, number_argument(one.written_seq), no, body])
        if one.is_index_changed:
            self.command("HSET", keys("found"), id, layout.encode_index_data(one.model, one.index_data))
            self.increment("vectors", bool(one.model) - bool(one.model_before))
        for old in one.replaced_versions:
            self.command("HSET", keys("past"), [no, b"%d" % old.rev], layout.encode_version(old))
        if was is None or semantics.time_of(was) != semantics.time_of(entry):
            for name in partitions_of(entry):
                self.command("ZADD", keys("time", name), str(semantics.time_of(entry)), [no, id.encode()])
        if was is None or semantics.content_key(was) != semantics.content_key(entry):
            if was is not None:
                self.command("PART", keys("same"), semantics.content_key(was), id)
            self.command("JOIN", keys("same"), semantics.content_key(entry), id)
        self._write_live_indexes(id, one)
        self.touch(*partitions_of(entry))

    def _write_live_indexes(self, id: str, one: FetchedEntry) -> None:
        keys, entry = self.keys, one.entry
        counts = truth.status_of(entry) == LIVE
        for name in partitions_of(entry):
            if counts:
                self.command("ZADD", keys("all", name), [COMMIT_TICK], id)
            else:
                self.command("ZREM", keys("all", name), id)
        if not counts:
            self.command("ZADD", keys("gone"), [COMMIT_TICK], id)
        if counts and entry.expires_at is not None:
            self.command("ZADD", keys("expiry"), str(entry.expires_at), id)
        elif one.before is not None and one.before.expires_at is not None:
            self.command("ZREM", keys("expiry"), id)

    # The commit

    def to_job(self, key_index: Any) -> dict[str, Any]:
        """The part as the script takes it; `place` gives the number of a key."""
        for id, one in self.changed_entries.items():
            self._write_entry(id, one)
        names = sorted(self.touched_fields)
        for at in range(0, len(names), MAX_COMMAND_ARGS):
            given: list[Argument] = []
            for name in names[at : at + MAX_COMMAND_ARGS]:
                given += [name, [COMMIT_TICK]]
            self.command("HSET", self.keys("watch"), *given)
        keys = self.keys
        used = {keys("meta"), keys("log"), *(command[1] for command in (*self._deletions, *self._commands))}
        frees = [
            [verb, key_index(key), *args[at : at + MAX_COMMAND_ARGS]]
            for (verb, key), args in self._deletions.items()
            for at in range(0, len(args) or 1, MAX_COMMAND_ARGS)
        ]
        return {
            "meta": key_index(keys("meta")),
            "log": key_index(keys("log")),
            "gate": key_index(keys("gate")),
            "checks": [[key_index(key), field, value] for (key, field), value in self.checks.items()],
            "kinds": [[key_index(key), keys.type_of(key)] for key in sorted(used)],
            "notes": self.log_records,
            "frees": frees,
            "commands": [[verb, key_index(key), *args] for verb, key, *args in self._commands],
        }


# known: What does an operation know of the server?


T = TypeVar("T")


class FetchedState(StoreState):
    """What has been asked for, and where it was found."""

    def __init__(self, server: RedisConnections, keys: Callable[[str], NamespaceKeys], model: str) -> None:
        super().__init__()
        self.namespaces: dict[str, NamespaceChanges] = {}
        self.round_trips = 0
        self._server = server
        self._keys = keys
        self._model = model
        self._absent: set[Name] = set()
        self._removed: set[Name] = set()
        self._dependency_changes: dict[Name, dict[str, bool]] = {}
        self._invalidation_counts: dict[Name, int] = {}
        self._without_tombstone: set[Name] = set()
        self._removed_links: set[LinkKey] = set()
        self._fetched_receipts: set[Name] = set()
        """The idempotency keys that were looked for."""
        self._models: dict[str, tuple[str, bytes | None]] = {}
        self._oldest_receipts: dict[str, list[tuple[str, str, float]]] = {}
        self._citing: dict[Name, list[str]] = {}
        self._receipt_keys: dict[Name, list[str]] = {}
        self._removed_documents: set[DocumentKey] = set()

    def changes_in(self, namespace: str) -> NamespaceChanges:
        """The share of a namespace."""
        found = self.namespaces.get(namespace)
        if found is None:
            found = self.namespaces[namespace] = NamespaceChanges(self._keys(namespace))
        return found

    def fetch(self, commands: Sequence[Command]) -> list[Any]:
        """The answers of the server, all of one moment."""
        if not commands:
            return []
        self.round_trips += 1
        return self._server.read(commands)

    def _cache_row(self, key: Name, row: EntryRow) -> FetchedEntry:
        one = FetchedEntry(row, self._fetch_index_data, self._fetch_access)
        self.entries[key] = one
        return one

    def _new_entry(self, version: Version, index_data: IndexData, seq: int) -> StoredEntry:
        model = self._model if index_data.pooled is not None else ""
        one = FetchedEntry(
            EntryRow(seq, seq, version.rev, version, model, index_data.given, []),
            self._fetch_index_data,
            self._fetch_access,
        )
        one.index_data, one.is_index_changed = index_data, True
        return one

    def _fetch_index_data(self, one: FetchedEntry) -> IndexData:
        entry = one.entry
        (raw,) = self.fetch([["HGET", self._keys(entry.namespace)("found"), entry.id]])
        return layout.decode_index_data(raw)[1]

    def _fetch_access(self, one: FetchedEntry) -> Access:
        entry = one.entry
        keys = self._keys(entry.namespace)
        count, last = self.fetch([["HGET", keys("access"), entry.id], ["ZSCORE", keys("used"), entry.id]])
        return Access(count=int(count or 0), last=None if last is None else int(float(last)))

    # What was told

    def _cache_rows(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.changes_in(namespace)
        for id, raw in zip(ids, values, strict=True):
            key = (namespace, id)
            part.expect("rows", id, raw)
            if key in self._removed:
                continue
            if raw is None:
                self._absent.add(key)
            elif key not in self.entries:
                self._cache_row(key, layout.decode_row(raw, id))

    def _cache_index_data(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        for id, raw in zip(ids, values, strict=True):
            one = self.entries.get((namespace, id))
            if one is not None and not as_fetched(one).has_index_data:
                one.index_data = layout.decode_index_data(raw)[1]

    def _cache_tombstones(self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.changes_in(namespace)
        for id, raw in zip(ids, values, strict=True):
            part.expect("stones", id, raw)
            if raw is None:
                self._without_tombstone.add((namespace, id))
            else:
                self.tombstones[namespace, id] = layout.decode_tombstones(raw, id, namespace)

    def _cache_invalidations(
        self, namespace: str, ids: Sequence[str], values: Sequence[bytes | None]
    ) -> None:
        part = self.changes_in(namespace)
        for id, raw in zip(ids, values, strict=True):
            part.expect("invalid", id, raw)
            self._invalidation_counts[namespace, id] = int(raw or 0)

    def _cache_links(self, namespace: str, fields: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        part = self.changes_in(namespace)
        for field, raw in zip(fields, values, strict=True):
            source, target, relation = split_ids(field, 3)
            key = (namespace, source, relation, target)
            part.expect("links", field, raw)
            if raw is not None and key not in self._removed_links:
                self.links.setdefault(
                    key, Link(source=source, relation=relation, target=target, created_at=int(raw))
                )

    def _cache_receipts(self, namespace: str, names: Sequence[str], values: Sequence[bytes | None]) -> None:
        part = self.changes_in(namespace)
        for name, raw in zip(names, values, strict=True):
            part.expect("receipts", name, raw)
            self._fetched_receipts.add((namespace, name))
            if raw is not None:
                self.receipts[namespace, name] = layout.decode_receipt(raw)

    def _cache_model(self, namespace: str, values: Sequence[bytes | None]) -> None:
        model, vectors = values
        self._models[namespace] = ((model or b"").decode(), vectors)


def as_fetched(one: StoredEntry) -> FetchedEntry:
    """An entry of this store."""
    assert isinstance(one, FetchedEntry)
    return one


def batches(some: Sequence[T], size: int | None = None) -> Iterator[Sequence[T]]:
    """In portions that fit into one command."""
    step = size or MAX_COMMAND_ARGS
    return (some[at : at + step] for at in range(0, len(some), step))


# looking: How does an operation find what it asks for?


SWEEP_LIMIT = 16
"""Entries that one write takes out of the lists that recall looks at, once they expired long ago."""
SWEEP_DELAY_MS = 3_600_000


class RedisSnapshot(FetchedState):
    """The entries that an operation has asked for."""

    def prefetch(self, requests: Sequence[WriteRequest]) -> None:
        """Fetch at once what these writes need, if they are not many."""
        for namespace in {request.entry.namespace for request in requests}:
            some = [request for request in requests if request.entry.namespace == namespace]
            given = [request.entry for request in some]
            names = {entry.id for entry in given}
            names.update(request.supersedes for request in some if request.supersedes is not None)
            premises = {ref for entry in given for ref in truth.premises(entry)}
            self._prefetch_namespace(namespace, [*names], [*(premises - names)], some)

    def _prefetch_namespace(
        self, namespace: str, names: list[str], premises: list[str], asked: Sequence[WriteRequest]
    ) -> None:
        part = self.changes_in(namespace)
        keys = part.keys
        idempotency = [one.idempotency_key for one in asked if one.idempotency_key is not None]
        asks: list[Command] = [
            ["HMGET", keys("meta"), "model", "vectors"],
            [
                "ZRANGEBYSCORE",
                keys("expiry"),
                "-inf",
                str(clock.now() - SWEEP_DELAY_MS),
                "LIMIT",
                "0",
                str(SWEEP_LIMIT),
            ],
        ]
        if idempotency:
            asks.append(["ZRANGE", keys("kept"), "0", "7", "WITHSCORES"])
        fixed = len(asks)
        everything = names + premises
        for some in batches(everything):
            asks += [["HMGET", keys(name), *some] for name in ("rows", "stones", "invalid")]
        asks += [["HMGET", keys("found"), *some] for some in batches(names)]
        asks += [["HMGET", keys("receipts"), *some] for some in batches(idempotency)]
        told = iter(self.fetch(asks))
        self._cache_model(namespace, next(told))
        expired = decode_ids(next(told))
        if fixed > 2:
            pairs = next(told)
            for name, at in zip(pairs[::2], pairs[1::2], strict=True):
                key, of = split_ids(name, 2)
                self._oldest_receipts.setdefault(namespace, []).append((key, of, float(at)))
        for some in batches(everything):
            self._cache_rows(namespace, some, next(told))
            self._cache_tombstones(namespace, some, next(told))
            self._cache_invalidations(namespace, some, next(told))
        for some in batches(names):
            self._cache_index_data(namespace, some, next(told))
        for some in batches(idempotency):
            self._cache_receipts(namespace, some, next(told))
        for id, one in self.find_many(namespace, expired).items():
            if id not in names:
                part.remove_expired(as_fetched(one))

    def find(self, namespace: str, id: str) -> StoredEntry | None:
        """An entry, if there is one."""
        return self.find_many(namespace, [id]).get(id)

    def find_many(self, namespace: str, ids: Collection[str]) -> dict[str, StoredEntry]:
        """Those of these that exist."""
        missing = [
            id for id in ids if (namespace, id) not in self.entries and (namespace, id) not in self._absent
        ]
        rows = self._keys(namespace)("rows")
        told = self.fetch([["HMGET", rows, *some] for some in batches(missing)])
        for some, values in zip(batches(missing), told, strict=True):
            self._cache_rows(namespace, some, values)
        return super().find_many(namespace, ids)

    def entries_in(self, scope: Scope) -> list[StoredEntry]:
        """What a scope holds, in the order of its first versions."""
        part, name = self.changes_in(scope.namespace), partition_for(scope)
        keys = part.keys
        told = self.fetch(
            [["INSIDE", keys("time", name), KeyArgument(keys("rows"))], ["HGET", keys("watch"), name]]
        )
        (ids, values), stamp = told
        part.expect("watch", name, stamp)
        for id, raw in zip(decode_ids(ids), values, strict=True):
            key = (scope.namespace, id)
            if key not in self.entries and key not in self._removed and raw is not None:
                self._cache_row(key, layout.decode_row(raw, id))
        return sorted(super().entries_in(scope), key=lambda one: one.number)

    def load_versions(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """The same entries, with all of their versions."""
        short = [as_fetched(one) for one in entries if not as_fetched(one).has_all_versions]
        for namespace in {one.entry.namespace for one in short}:
            mine = [one for one in short if one.entry.namespace == namespace]
            wanted = [(one, rev) for one in mine for rev in range(one.first_rev, one.versions[0].rev)]
            key = self._keys(namespace)("past")
            told = self.fetch(
                [
                    ["HMGET", key, *(layout.to_digits(one.number) + b"%d" % rev for one, rev in pairs)]
                    for pairs in batches(wanted)
                ]
            )
            found: dict[int, list[Version]] = {}
            for (one, _), raw in zip(wanted, (raw for values in told for raw in values), strict=True):
                if raw is not None:
                    found.setdefault(one.number, []).append(layout.decode_version(raw, one.entry.id))
            for one in mine:
                one.versions[:0] = found.get(one.number, [])
        return entries

    def load_index_data(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """The same entries, with what they are found by."""
        short = [as_fetched(one) for one in entries if not as_fetched(one).has_index_data]
        for namespace in {one.entry.namespace for one in short}:
            names = [one.entry.id for one in short if one.entry.namespace == namespace]
            key = self._keys(namespace)("found")
            told = self.fetch([["HMGET", key, *few] for few in batches(names)])
            for few, values in zip(batches(names), told, strict=True):
                self._cache_index_data(namespace, few, values)
        return entries

    def possible_duplicates(self, entry: Entry) -> list[StoredEntry]:
        """What may say already what another entry would."""
        part, field = self.changes_in(entry.namespace), semantics.content_key(entry)
        (raw,) = self.fetch([["HGET", part.keys("same"), field]])
        part.expect("same", field, raw)
        if raw is not None:
            self.find_many(
                entry.namespace, raw[layout.STAMP_LENGTH :].decode().strip(SEPARATOR).split(SEPARATOR)
            )
        return sorted(super().possible_duplicates(entry), key=lambda one: one.number)

    def dependents_of(self, namespace: str, ids: Collection[str]) -> set[str]:
        """What now rests on any of these."""
        part = self.changes_in(namespace)
        missing = [id for id in ids if (namespace, id) not in self.dependents]
        asks: list[Command] = [["ZRANGEBYSCORE", part.keys("on", id), "1", "1"] for id in missing]
        asks += [["HMGET", part.keys("watch"), *map(watch_field, some)] for some in batches(missing)]
        told = self.fetch(asks)
        stamps = [stamp for values in told[len(missing) :] for stamp in values]
        for id, found, stamp in zip(missing, told, stamps, strict=False):
            part.expect("watch", watch_field(id), stamp)
            now = {*decode_ids(found)}
            for by, present in self._dependency_changes.get((namespace, id), {}).items():
                (now.add if present else now.discard)(by)
            self.dependents[namespace, id] = now
        return super().dependents_of(namespace, ids)

    def invalidated_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        missing = [id for id in ids if (namespace, id) not in self._invalidation_counts]
        key = self._keys(namespace)("invalid")
        told = self.fetch([["HMGET", key, *some] for some in batches(missing)])
        for some, values in zip(batches(missing), told, strict=True):
            self._cache_invalidations(namespace, some, values)
        return {id for id in ids if self._invalidation_counts[namespace, id] > 0}

    def erased_ids(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these of which there is a tombstone."""
        missing = [
            id
            for id in ids
            if (namespace, id) not in self.tombstones and (namespace, id) not in self._without_tombstone
        ]
        key = self._keys(namespace)("stones")
        told = self.fetch([["HMGET", key, *some] for some in batches(missing)])
        for some, values in zip(batches(missing), told, strict=True):
            self._cache_tombstones(namespace, some, values)
        return super().erased_ids(namespace, ids)

    def tombstones_of(self, id: str, scope: Scope) -> list[Version]:
        """The tombstones of an id that a scope holds."""
        self.erased_ids(scope.namespace, [id])
        return super().tombstones_of(id, scope)

    def citing_ids(self, namespace: str, id: str) -> list[str]:
        """The entries of which any version rests on this one."""
        self._fetch_references(namespace, [id])
        found = self._citing[namespace, id]
        return [other for other in found if (namespace, other) not in self._removed]

    def links_of(self, namespace: str, id: str) -> dict[LinkKey, Link]:
        """The links from and to an entry."""
        self._fetch_references(namespace, [id])
        return super().links_of(namespace, id)

    def load_for_removal(self, entries: Sequence[StoredEntry]) -> Sequence[StoredEntry]:
        """The same entries, which are about to be removed, with all of their versions."""
        for namespace in {one.entry.namespace for one in entries}:
            ids = [one.entry.id for one in entries if one.entry.namespace == namespace]
            self._fetch_references(namespace, ids)
            self.erased_ids(namespace, ids)
        return self.load_versions(entries)

    def _fetch_references(self, namespace: str, ids: Sequence[str]) -> None:
        """Fetch what there is about some entries beside themselves."""
        part, missing = self.changes_in(namespace), [id for id in ids if (namespace, id) not in self._citing]
        keys = part.keys
        for some in batches(missing):
            asks: list[Command] = [["HMGET", keys("watch"), *map(watch_field, some)]]
            for id in some:
                asks += [["SMEMBERS", keys("ends", id)], ["ZRANGE", keys("on", id), "0", "-1"]]
                asks += [["SMEMBERS", keys("keys", id)]]
            stamps, *told = self.fetch(asks)
            fields: dict[bytes, None] = {}
            for at, (id, stamp) in enumerate(zip(some, stamps, strict=True)):
                part.expect("watch", watch_field(id), stamp)
                ends, quoting, receipts = told[3 * at : 3 * at + 3]
                fields.update(dict.fromkeys(ends))
                self._citing[namespace, id] = decode_ids(quoting)
                self._receipt_keys[namespace, id] = decode_ids(receipts)
            links = [*fields]
            found = self.fetch([["HMGET", keys("links"), *few] for few in batches(links)])
            for few, values in zip(batches(links), found, strict=True):
                self._cache_links(namespace, few, values)

    def count_links_from(self, namespace: str, ids: Collection[str]) -> int:
        """How many links begin at these."""
        (fields,) = self.fetch([["HKEYS", self._keys(namespace)("links")]])
        return sum(split_ids(field, 3)[0] in ids for field in fields)

    def find_link(self, key: LinkKey) -> Link | None:
        """A link, if it is kept."""
        if key not in self.links and key not in self._removed_links:
            namespace, source, relation, target = key
            field = join_ids(source, target, relation)
            (raw,) = self.fetch([["HGET", self._keys(namespace)("links"), field]])
            self._cache_links(namespace, [field], [raw])
        return super().find_link(key)

    def find_receipt(self, key: Name) -> Receipt | None:
        """What was answered under an idempotency key."""
        if key not in self._fetched_receipts:
            (raw,) = self.fetch([["HGET", self._keys(key[0])("receipts"), key[1]]])
            self._cache_receipts(key[0], [key[1]], [raw])
        return super().find_receipt(key)
