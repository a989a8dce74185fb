"""Compare the derived values of a namespace on Redis with those that follow from bodies, and repair it.

A value that cannot be decoded, or does not agree with its checksum, is set aside: its bytes go to a file, and
the transaction deletes it. Lists, counters, terms and statuses are computed from what is sound, and what
differs is written. A check makes the same plan in a transaction that is not committed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

from omoide import clock, ids
from omoide.core.entry import Entry
from omoide.retrieval.text import FEATURES_VERSION
from omoide.stores import damage, records, semantics
from omoide.stores.damage import DamagedValues
from omoide.stores.records import IndexData, Link, RepairResult, features_of
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Command, RedisConnections
from omoide.stores.redis.layout import (
    KEY_TYPES,
    SEPARATOR,
    STAMP_LENGTH,
    NamespaceKeys,
    decode_text,
    join_ids,
    partitions_of,
)
from omoide.stores.redis.snapshot import FetchedEntry, batches
from omoide.stores.redis.transaction import RedisTransaction, TransactionRunner
from omoide.stores.semantics import INVALIDATED_BY, LIVE

_TABLES = {
    "rows": "entries",
    "past": "versions",
    "docs": "documents",
    "doclog": "document_log",
    "stones": "tombstones",
}
"""Names of tables in the file, where they are not those of keys."""

_MAX_AT_ONCE = 10_000
"""Entries of a namespace up to which it is read by one script."""

_READ = {
    "hash": ("HGETALL",),
    "zset": ("ZRANGE", "0", "-1", "WITHSCORES"),
    "set": ("SMEMBERS",),
    "list": ("LRANGE", "0", "-1"),
    "stream": ("XRANGE", "-", "+"),
}
_REMOVE = {"hash": "HDEL", "zset": "ZREM", "set": "SREM"}

_DIFFERS = {
    "time": "the lists by time differ from it",
    "all": "the lists that recall looks at differ from it",
    "expiry": "the list by expiry differs from it",
    "same": "it is not known by what it says",
    "slots": "the value of its key is another",
    "on": "its stored dependencies differ from its evidence",
    "ends": "an end of a link does not know it",
    "invalid": "the number of its invalidations differs",
    "keys": "its idempotency keys differ from its receipts",
    "kept": "the list of receipts differs",
    "owners": "the owner of a document differs from it",
    "kind": "the list of documents differs",
    "kinds": "the list of kinds differs",
}
"""What is wrong where a derived value differs, by the name of its key."""

Derived = dict[tuple[str, str], dict[bytes, Any]]
"""Fields or members by name and part of a key, with the value, the score, or None for any."""


class NamespaceResult(NamedTuple):
    """What the plan for one namespace found."""

    problems: list[str]
    entries: int
    corrected: int
    checked: int
    links: int
    without_vectors: int


class NamespaceRepair:
    """The repair of one namespace, inside a transaction that reads all of it."""

    def __init__(self, state: RedisTransaction, namespace: str, aside: DamagedValues) -> None:
        self._state = state
        self._namespace = namespace
        self._aside = aside
        self._keys = state.keys(namespace)
        self._changes = state.changes_in(namespace)
        self._problems: list[str] = []
        self._corrected: set[str] = set()
        self._entries: dict[str, FetchedEntry] = {}
        self._links: list[Link] = []
        self._wanted: Derived = {}
        self._checked = self._dangling = self._without_vectors = 0

    def run(self) -> NamespaceResult:
        """Plan all changes, and return what they are for."""
        self._read()
        self._repair_entries()
        self._repair_versions()
        self._repair_links()
        erased = self._repair_tombstones()
        self._repair_staleness(erased)
        self._repair_index_data()
        self._repair_receipts()
        self._repair_documents()
        self._repair_uses()
        self._repair_log()
        self._want_indexes()
        self._write_differences()
        self._repair_counters()
        if not self._changes.is_empty:
            self._changes.command("HSET", self._keys("meta"), "life", ids.uuid7())
            self._changes.touch(*map(decode_text, self._hash("watch")))
        return NamespaceResult(
            self._problems, len(self._entries), len(self._corrected), self._checked, self._dangling,
            self._without_vectors,
        )  # fmt: skip

    # Contents

    def _read(self) -> None:
        """Read all keys; no commit may come between."""
        server, keys, state = self._state.server, self._keys, self._state
        (tick,) = state.fetch([["HGET", keys("meta"), "tick"]])
        state.expect_whole(self._namespace, "meta", "tick", tick)
        names = [(keys.split(key), key) for key in server.scan(keys.pattern)]
        read = [(name, part, key) for (name, part), key in names if KEY_TYPES.get(name) in _READ]
        commands: list[Command] = []
        for name, _, key in read:
            verb, *rest = _READ[KEY_TYPES[name]]
            commands.append([verb, key, *rest])
        (size,) = state.fetch([["HLEN", keys("rows")]])
        # At one moment, unless that would keep others waiting: a busy store would have to be read again.
        step = 1 if size > _MAX_AT_ONCE else len(commands)
        replies = [reply for some in batches(commands, step) for reply in state.fetch(some)]
        self._contents: dict[tuple[str, str], Any] = {
            (name, part): _decode_reply(KEY_TYPES[name], reply)
            for (name, part, _), reply in zip(read, replies, strict=True)
        }

    def _hash(self, name: str) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = self._contents.get((name, ""), {})
        return {**found}

    def _parts(self, *names: str) -> Iterable[tuple[str, str, Any]]:
        return [(name, part, found) for (name, part), found in self._contents.items() if name in names]

    def _set_aside(self, name: str, field: bytes | int, value: bytes, part: str = "") -> None:
        table = _TABLES.get(name, name)
        text = decode_text(field) if isinstance(field, bytes) else field
        key = decode_text(self._keys(name, part))
        self._aside.add(table, {"key": key, "field": text, "value": value})
        self._problems.append(f"damaged value of {table}: {str(text).replace(SEPARATOR, ' ')!r}")

    def _remove(self, name: str, field: bytes, part: str = "") -> None:
        self._changes.delete(_REMOVE[KEY_TYPES[name]], self._keys(name, part), [field])

    def _differs(self, id: str, problem: str) -> None:
        self._problems.append(f"entry {id!r}: {problem}")
        self._corrected.add(id)

    # Bodies

    def _repair_entries(self) -> None:
        numbers: dict[str, Counter[int]] = {}
        for _, _, members in self._parts("time"):
            for member in members:
                if (digits := member[:STAMP_LENGTH]).isdigit():
                    numbers.setdefault(layout.member_id(member), Counter())[int(digits)] += 1
        for field, raw in self._hash("rows").items():
            id = decode_text(field)
            try:
                row = layout.decode_row(_with_number(raw, numbers.get(id, Counter())), field.decode())
                entry = row.version.entry
                if entry is None or (entry.id, entry.namespace) != (id, self._namespace):
                    raise ValueError("the entry is another")
                is_sealed = layout.is_sealed(raw[3 * STAMP_LENGTH :])
                if not is_sealed:
                    records.check_decoded(entry)
            except records.DECODE_ERRORS:
                self._set_aside("rows", field, raw)
                self._problems.append(f"entry {id!r} is missing or cannot be read")
                self._remove("rows", field)
                continue
            stored = FetchedEntry(row, self._state)
            self._entries[id] = self._state.entries[self._namespace, id] = stored
            self._checked += not is_sealed
            if _numbers_of(raw) != (row.written_seq, row.number):
                self._differs(id, "its numbers differ from the lists by time")
                self._state.mark_changed(stored)
            elif not is_sealed:
                self._state.mark_changed(stored)
        for _, _, members in self._parts("time"):
            listed = {*map(layout.member_id, members)}
            missing = listed - self._entries.keys() - {*map(decode_text, self._hash("rows"))}
            self._problems += [f"entry {id!r} is missing or cannot be read" for id in sorted(missing)]

    def _repair_versions(self) -> None:
        by_number = {stored.number: stored for stored in self._entries.values()}
        found: dict[str, dict[int, tuple[bytes, bytes]]] = {id: {} for id in self._entries}
        sound: dict[str, dict[int, Any]] = {id: {} for id in self._entries}
        for field, raw in self._hash("past").items():
            try:
                stored, rev = by_number[int(field[:STAMP_LENGTH])], int(field[STAMP_LENGTH:])
                version = layout.decode_version(raw, stored.entry.id, rev)
                if rev >= stored.entry.rev:
                    raise ValueError("it is not older than its entry")
                if not layout.is_sealed(raw) and version.entry is not None:
                    records.check_decoded(version.entry)
            except records.DECODE_ERRORS:
                self._set_aside("past", field, raw)
                self._remove("past", field)
                continue
            found[stored.entry.id][rev], sound[stored.entry.id][rev] = (field, raw), version
        for id, stored in self._entries.items():
            first = stored.entry.rev
            while first - 1 in sound[id]:
                first -= 1
            for rev, (field, raw) in found[id].items():
                if rev < first:  # a history has no gaps
                    self._set_aside("past", field, raw)
                    self._remove("past", field)
                elif not layout.is_sealed(raw):
                    self._checked += 1
                    value = layout.encode_version(sound[id][rev])
                    self._changes.command("HSET", self._keys("past"), field, value)
            stored.versions[:0] = [sound[id][rev] for rev in range(first, stored.entry.rev)]
            if first != stored.first_rev:
                self._differs(id, "a version is missing")
                stored.first_rev = first
                self._state.mark_changed(stored)

    def _repair_links(self) -> None:
        for field, raw in self._hash("links").items():
            try:
                link = layout.decode_link(field, raw)
            except records.DECODE_ERRORS:
                self._set_aside("links", field, raw)
                self._remove("links", field)
                continue
            if link.source in self._entries and link.target in self._entries:
                self._links.append(link)
                continue
            self._dangling += 1
            text = f"link {link.source!r} {link.relation} {link.target!r}"
            self._problems.append(f"{text}: an end does not exist")
            self._remove("links", field)

    def _repair_tombstones(self) -> set[str]:
        """Return the erased ids; one whose tombstone is damaged stays erased, and has none to show."""
        count = 0
        for field, raw in self._hash("stones").items():
            try:
                count += len(layout.decode_tombstones(raw, field.decode(), self._namespace))
            except records.DECODE_ERRORS:
                self._set_aside("stones", field, raw)
                self._changes.command("HSET", self._keys("stones"), field, layout.encode_tombstones([]))
        self._tombstones = count
        return {*map(decode_text, self._hash("stones"))} - self._entries.keys()

    def _repair_staleness(self, erased: set[str]) -> None:
        dependents: dict[str, list[str]] = {}
        for id, stored in self._entries.items():
            for premise in semantics.premises(stored.entry):
                dependents.setdefault(premise, []).append(id)
        out = {id for id, stored in self._entries.items() if semantics.is_superseded(stored.status)}
        invalidated = {link.source for link in self._links if link.relation == INVALIDATED_BY}
        stale = invalidated | semantics.reachable([*invalidated, *out, *erased], dependents)
        now = clock.now()
        for id, stored in self._entries.items():
            if stored.is_stale != (id in stale):
                self._differs(id, "its status differs from that of its evidence")
                self._state.set_stale(stored, now, stale=id in stale)

    def _repair_index_data(self) -> None:
        found = self._hash("found")
        for id, stored in self._entries.items():
            raw = found.pop(id.encode(), None)
            try:
                data = layout.decode_index_data(raw)
            except records.DECODE_ERRORS:
                data = IndexData(b"", ())
            features = features_of(stored.entry).to_bytes()
            if data.features != features:
                self._differs(id, "its terms are not those of its text")
            if data.model != stored.model or bool(data.model) != (data.pooled is not None):
                self._differs(id, "its vector is not the one that it should have")
                self._without_vectors += stored.status == LIVE
            else:
                if data.features == features:
                    continue
            data = data._replace(features=features)
            self._state.replace_index_data(stored, data if data.pooled else data.with_vectors(None))
        for field in found:
            self._problems.append(f"terms of {decode_text(field)!r}, which does not exist")
            self._remove("found", field)

    # Others

    def _repair_receipts(self) -> None:
        for field, raw in self._hash("receipts").items():
            try:
                _, result, at = layout.decode_receipt(raw)
                key, id = field.decode(), result.entry.id
            except records.DECODE_ERRORS:
                self._set_aside("receipts", field, raw)
                self._remove("receipts", field)
                continue
            self._want("keys", id, field)
            self._want("kept", "", join_ids(key, id), float(at))

    def _repair_documents(self) -> None:
        known: set[str] = set()
        owners = self._hash("owners")
        for field, raw in self._hash("docs").items():
            kind, _, id = decode_text(field).partition(SEPARATOR)
            key = (self._namespace, kind, id)
            try:
                document = layout.decode_document(raw, key)
            except records.DECODE_ERRORS:
                self._set_aside("docs", field, raw)
                self._remove("docs", field)
                continue
            known.add(decode_text(field))
            if not layout.is_sealed(raw[STAMP_LENGTH:]):
                self._checked += 1
                self._changes.command("HSET", self._keys("docs"), field, layout.encode_document(document))
            owner = layout.encode_owner(document).encode()
            without_user = owner.removesuffix(layout.SEPARATOR.encode())  # as schema 1 has it
            is_old = owners.get(field) == without_user
            self._want("owners", "", field, without_user if is_old else owner)
            self._want("kind", kind, id.encode(), 0.0)
            self._want("kinds", "", kind.encode())
        for _, part, items in self._parts("doclog"):
            self._repair_document_log(part, items, exists=part in known)
        for field, raw in self._hash("leases").items():
            if _is_damaged(layout.decode_lease, raw):
                self._set_aside("leases", field, raw)
                self._remove("leases", field)

    def _repair_document_log(self, part: str, items: Sequence[bytes], *, exists: bool) -> None:
        kept: list[bytes] = []
        for n, raw in enumerate(items, 1):
            if not exists or _is_damaged(layout.decode_item, raw):
                self._set_aside("doclog", n, raw, part)
            elif layout.is_sealed(raw):
                kept.append(raw)
            else:
                self._checked += 1
                kept.append(layout.encode_item(layout.decode_item(raw)))
        if kept != [*items]:
            key = self._keys("doclog", part)
            self._changes.command("DEL", key)
            for some in batches(kept):
                self._changes.command("RPUSH", key, *some)

    def _repair_uses(self) -> None:
        for field, raw in self._hash("access").items():
            if not raw.isdigit():
                self._set_aside("access", field, raw)
                self._remove("access", field)

    def _repair_log(self) -> None:
        """Set damaged changes aside, and log the last change of entries whose record is gone."""
        logged: set[tuple[str, int]] = set()
        for _, _, lines in self._parts("log"):
            for number, fields in lines:
                try:
                    id, _, rev, _ = layout.decode_change(fields[1])
                    logged.add((id, rev))
                except records.DECODE_ERRORS:
                    self._set_aside("log", number, fields[1])
                    self._changes.command("XDEL", self._keys("log"), number)
        now = clock.now()
        for id, stored in self._entries.items():
            if (id, stored.entry.rev) not in logged:
                self._differs(id, "its last change is not in the log")
                self._state.log_change(stored.entry, "write", now)

    # Derived values

    def _want(self, name: str, part: str, field: bytes, value: Any = None) -> None:
        self._wanted.setdefault((name, part), {})[field] = value

    def _has(self, name: str, part: str, field: bytes) -> bool:
        return field in self._contents.get((name, part), ())

    def _want_indexes(self) -> None:
        horizon = _to_int(self._hash("meta").get(b"horizon"), -1)
        same: dict[bytes, list[tuple[int, str]]] = {}
        for id, stored in self._entries.items():
            entry, field = stored.entry, id.encode()
            # Lists need not have what has expired; what was written after that is swept with the next.
            swept = entry.expires_at is not None and entry.expires_at <= horizon
            for partition in partitions_of(entry):
                member = layout.to_digits(stored.number) + field
                self._want("time", partition, member, float(semantics.time_of(entry)))
                if stored.status == LIVE and (not swept or self._has("all", partition, field)):
                    self._want("all", partition, field)
            is_listed = not swept or self._has("expiry", "", field)
            if entry.expires_at is not None and stored.status == LIVE and is_listed:
                self._want("expiry", "", field, float(entry.expires_at))
            same.setdefault(semantics.content_key(entry), []).append((stored.number, id))
            if entry.fills_slot:
                self._want("slots", "", layout.slot_field(entry), id)
            self._want_dependencies(entry, stored)
        for key, members in same.items():
            self._want("same", "", key, tuple(id for _, id in sorted(members)))
        for link in self._links:
            field = join_ids(link.source, link.target, link.relation)
            for end in {link.source, link.target}:
                self._want("ends", end, field)
        invalid = Counter(link.source for link in self._links if link.relation == INVALIDATED_BY)
        for id, count in invalid.items():
            self._want("invalid", "", id.encode(), b"%d" % count)

    def _want_dependencies(self, entry: Entry, stored: FetchedEntry) -> None:
        current = semantics.premises(entry)
        for version in stored.versions:
            for premise in () if version.entry is None else semantics.premises(version.entry):
                self._want("on", premise, entry.id.encode(), float(premise in current))

    def _write_differences(self) -> None:
        found: Derived = {(name, part): values for name, part, values in self._parts(*_DIFFERS)}
        for name, part in found.keys() | self._wanted.keys():
            present, wanted = found.get((name, part), {}), self._wanted.get((name, part), {})
            for field in present.keys() - wanted.keys() if name != "kinds" else ():  # an empty kind may stay
                self._report(name, part, field, present[field])
                self._remove(name, field, part)
            for field, value in wanted.items():
                if field not in present or not _agrees(name, present[field], value):
                    self._report(name, part, field, value)
                    self._put(name, part, field, value)

    def _put(self, name: str, part: str, field: bytes, value: Any) -> None:
        key, kind = self._keys(name, part), KEY_TYPES[name]
        if kind == "set":
            self._changes.command("SADD", key, field)
        elif kind == "zset":
            self._changes.command(
                "ZADD", key, [layout.COMMIT_TICK] if value is None else str(int(value)), field
            )
        elif name == "slots":
            self._changes.command("HSET", key, field, [layout.COMMIT_TICK, value.encode()])
        elif name == "same":
            text = SEPARATOR.join(("", *value, "")).encode()
            self._changes.command("HSET", key, field, [layout.COMMIT_TICK, text])
        else:
            self._changes.command("HSET", key, field, value)

    def _report(self, name: str, part: str, field: bytes, value: Any) -> None:
        """Name the entries of a derived value that differs."""
        if name == "time":
            owners = [layout.member_id(field)]
        elif name in ("all", "expiry", "on", "invalid"):
            owners = [decode_text(field)]
        elif name in ("same", "slots"):
            text = value if isinstance(value, (str, tuple)) else tuple(layout.member_ids(value))
            owners = [text] if isinstance(text, str) else [*text]
        else:
            owners = [part] if name in ("ends", "keys") else []
        for id in owners:
            if id in self._entries:
                self._corrected.add(id)
        where = ", ".join(f"entry {id!r}" for id in owners) or repr(
            decode_text(field).replace(SEPARATOR, " ")
        )
        self._problems.append(f"{where}: {_DIFFERS[name]}")

    def _repair_counters(self) -> None:
        meta = self._hash("meta")
        stored = self._entries.values()
        counts = {"vectors": sum(bool(one.model_before) for one in stored), "stones": self._tombstones}
        for name, count in counts.items():
            if _to_int(meta.get(name.encode()), 0) != count:
                self._problems.append(f"counter of {name} differs")
                self._changes.command("HSET", self._keys("meta"), name, str(count))
        models = Counter(one.model for one in stored if one.model)
        if models and (own := decode_text(meta.get(b"model"))) not in models:
            self._problems.append(f"embedder {own!r} has no vectors")
            self._changes.command("HSET", self._keys("meta"), "model", models.most_common(1)[0][0])
        if _to_int(meta.get(b"horizon"), None) is None and b"horizon" in meta:
            self._problems.append("horizon of expiry is damaged")
            self._changes.command("HDEL", self._keys("meta"), "horizon")


def _decode_reply(kind: str, reply: Any) -> Any:
    """Return the content of a key: a dictionary, except for lists and streams."""
    if kind == "set":
        return dict.fromkeys(reply)
    if kind == "hash":
        return dict(zip(reply[::2], reply[1::2], strict=True))
    if kind == "zset":
        return dict(zip(reply[::2], map(float, reply[1::2]), strict=True))
    return reply


def _with_number(raw: bytes, listed: Counter[int]) -> bytes:
    """Return a value of `rows` with the numbers that the lists by time have, if its own are not there."""
    written, number = (raw[at * STAMP_LENGTH : (at + 1) * STAMP_LENGTH] for at in (1, 2))
    if listed and not (number.isdigit() and int(number) in listed):
        number = layout.to_digits(listed.most_common(1)[0][0])
    written = written if written.isdigit() else number
    return raw[:STAMP_LENGTH] + written + number + raw[3 * STAMP_LENGTH :]


def _numbers_of(raw: bytes) -> tuple[int | None, int | None]:
    written, number = (raw[at * STAMP_LENGTH : (at + 1) * STAMP_LENGTH] for at in (1, 2))
    return _to_int(written, None), _to_int(number, None)


def _to_int(raw: bytes | None, default: Any) -> Any:
    digits = (raw or b"").removeprefix(b"-")
    return int(raw or b"") if digits.isdigit() else default


def _is_damaged(decode: Callable[[bytes], Any], raw: bytes) -> bool:
    try:
        decode(raw)
    except records.DECODE_ERRORS:
        return True
    return False


def _agrees(name: str, found: Any, wanted: Any) -> bool:
    if name == "same":
        return sorted(layout.member_ids(found)) == sorted(wanted)
    if name == "slots":
        return layout.member_id(found) == str(wanted)
    return wanted is None or bool(found == wanted)


# The whole store


def check(state: RedisTransaction, namespace: str) -> list[str]:
    """Return what a repair of a namespace would be for."""
    counters = _damaged_counters(state.server, state.keys(namespace))
    problems = [f"counter {name!r} is damaged" for name in counters]
    return [*problems, *NamespaceRepair(state, namespace, DamagedValues()).run().problems]


def repair(transactions: TransactionRunner, key: bytes, path: Path | None) -> RepairResult:
    """Repair all namespaces of a store, each in one transaction; damaged values go to the file at `path`."""
    server, aside = transactions.server, DamagedValues()
    results = [_repair_namespace(transactions, name, aside, key, path) for name in register(transactions)]
    settings = ["features", str(FEATURES_VERSION), "life", ids.uuid7(), layout.SEALED_SETTING, "1"]
    server.execute("HSET", key, *settings)
    return RepairResult(
        entries=sum(result.entries for result in results),
        corrected=sum(result.corrected for result in results),
        checked=sum(result.checked for result in results),
        links=sum(result.links for result in results),
        without_vectors=sum(result.without_vectors for result in results),
        set_aside=aside.counts,
        file=str(path.absolute()) if aside and path is not None else None,
    )


def _repair_namespace(
    transactions: TransactionRunner, namespace: str, aside: DamagedValues, key: bytes, path: Path | None
) -> NamespaceResult:
    server = transactions.server

    def run(state: RedisTransaction) -> NamespaceResult:
        result = NamespaceRepair(state, namespace, aside).run()
        if aside.write(path) and path is not None:
            server.execute("HSET", key, damage.FILES_SETTING, damage.encode_files(files(server, key), path))
        return result

    if counters := _damaged_counters(server, transactions.keys(namespace)):
        server.execute("HSET", transactions.keys(namespace)("meta"), *_as_arguments(counters))
    return transactions.run_write(run)


def _as_arguments(counters: Mapping[str, int]) -> list[str | bytes]:
    return [part for name, count in counters.items() for part in (name, layout.to_digits(count))]


def _damaged_counters(server: RedisConnections, keys: NamespaceKeys) -> dict[str, int]:
    """Return the counters of a namespace that are no numbers or too low, as they have to be."""
    commands: list[Command] = [
        ["HMGET", keys("meta"), "seq", "tick", "vectors", "stones"],
        ["XREVRANGE", keys("log"), "+", "-", "COUNT", "1"],
        ["HVALS", keys("watch")],
    ]
    (seq, tick, vectors, stones), lines, stamps = server.read(commands)
    last = int(lines[0][0].split(b"-")[0]) if lines else 0
    newest = max((int(stamp) for stamp in stamps if stamp.isdigit()), default=0)
    found = {"seq": (seq, last), "tick": (tick, newest), "vectors": (vectors, 0), "stones": (stones, 0)}
    return {
        name: least
        for name, (raw, least) in found.items()
        if raw is not None
        and ((number := _to_int(raw, None)) is None or (name in ("seq", "tick") and number < least))
    }


def register(transactions: TransactionRunner) -> list[str]:
    """Add namespaces that have keys and are not in the list of all, and return all of them, sorted."""
    server, key = transactions.server, layout.store_key(transactions.prefix, "namespaces")
    known, present = {*layout.decode_ids(server.execute("SMEMBERS", key))}, namespaces_with_keys(transactions)
    if missing := present - known:
        server.execute("SADD", key, *sorted(missing))
    return sorted(present)


def namespaces_with_keys(transactions: TransactionRunner) -> set[str]:
    """Return the namespaces that have counters."""
    pattern = NamespaceKeys(transactions.prefix, "").pattern.replace("}", "*}", 1).removesuffix("*") + "meta"
    start = len(f"{transactions.prefix}{{n".encode())
    found = transactions.server.scan(pattern)
    return {unquote(decode_text(name[start : name.rindex(b"}")])) for name in found}


def files(server: RedisConnections, key: bytes) -> list[str]:
    """Return the files with values that earlier repairs set aside."""
    return damage.decode_files(server.execute("HGET", key, damage.FILES_SETTING))
