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
from omoide.stores.codec import Indexed
from omoide.stores.records import Document, Lease, Link, Version
from omoide.stores.redis import layout
from omoide.stores.redis.connection import Ask, Connections, Writer
from omoide.stores.redis.layout import SEPARATOR, Keys, about, joined, parted, texts
from omoide.stores.redis.snapshot import FRESH, Looking, Part, held, portions
from omoide.stores.state import DocumentKey, Kept, LinkKey, Receipt, State
from omoide.stores.state import Key as Name
from omoide.stores.truth import INVALIDATED_BY

# changing: What will an operation change?


class Changing(Looking):
    """Entries, and what becomes of them."""

    @property
    def changes(self) -> bool:
        """Whether anything is to be changed."""
        return any(part.changes for part in self.parts.values())

    def note(self, entry: Entry, op: str, now: int) -> int:
        """Write a change into the log; its number is not known before the commit."""
        notes = self.part(entry.namespace).notes
        notes.append(layout.note(entry.id, op, entry.rev, now))
        return FRESH + len(notes)

    def add(self, entry: Entry, found: Indexed, now: int) -> Kept:
        """Keep a new entry."""
        one = super().add(entry, self._claimed(entry.namespace, found), now)
        self._absent.discard((entry.namespace, entry.id))
        self.part(entry.namespace).dirty[entry.id] = held(one)
        return one

    def revise(self, one: Kept, new: Entry, op: str, now: int, found: Indexed | None = None) -> None:
        """Keep the next version of an entry, with what is found of it if that was written anew."""
        mine = held(one)
        mine.older.append(mine.versions[-1])
        if found is not None:
            found = self._claimed(new.namespace, found)
            mine.renewed = True
            mine.model, mine.given = self._model if found.pooled is not None else "", found.given
        super().revise(one, new, op, now, found)
        self.part(new.namespace).dirty[new.id] = mine

    def _claimed(self, namespace: str, found: Indexed) -> Indexed:
        """What an entry is found by, without vectors where the namespace holds those of another embedder."""
        if found.pooled is None:
            return found
        part = self.part(namespace)
        if namespace not in self._models:
            (told,) = self.ask([["HMGET", part.keys("meta"), "model", "vectors"]])
            self._know_model(namespace, told)
        model, vectors = self._models[namespace]
        part.check_whole("meta", "model", model.encode())
        if model == self._model:
            return found
        if int(vectors or 0) > 0:
            if found.given:
                raise Invalid("vector", "is not of the embedder that the store has by now", "open it again")
            return found._replace(pooled=None, tokens=None)
        part.check_whole("meta", "vectors", vectors)
        part.do("HSET", part.keys("meta"), "model", self._model)
        self._models[namespace] = (self._model, vectors)
        return found

    def flip(self, one: Kept, now: int, *, stale: bool) -> None:
        """Note that an entry is stale from now on, or current again."""
        super().flip(one, now, stale=stale)
        self.part(one.entry.namespace).dirty[one.entry.id] = held(one)

    def use(self, one: Kept, count: int, last: int | None) -> None:
        """Note that an entry was used so many times more."""
        part, id = self.part(one.entry.namespace), one.entry.id
        part.do("HINCRBY", part.keys("access"), id, str(count))
        if last is not None:
            part.do("ZADD", part.keys("used"), str(last), id)

    def remove(self, one: Kept, stone: Version) -> list[LinkKey]:
        """Leave nothing of an entry but a tombstone; the links that went with it."""
        entry = one.entry
        part, versions = self.part(entry.namespace), [*one.versions]
        cut = super().remove(one, stone)
        part.remove(held(one), versions)
        ever = {ref for old in versions if old.entry is not None for ref in truth.premises(old.entry)}
        for premise in ever:
            part.do("ZREM", part.keys("on", premise), entry.id)
        self._removed.add((entry.namespace, entry.id))
        self._absent.add((entry.namespace, entry.id))
        return cut

    def bury(self, like: Entry, stone: Version) -> None:
        """Keep a tombstone that belongs to whom an entry belongs."""
        self.erased(like.namespace, [stone.id])
        super().bury(like, stone)
        part = self.part(like.namespace)
        told = self.stones[like.namespace, stone.id]
        part.do("HSET", part.keys("stones"), stone.id, layout.put_stones(told))
        part.count("stones", 1)

    def rest(self, old: Entry | None, new: Entry | None) -> None:
        """Note what an entry rests on now, instead of what it rested on."""
        before = frozenset[str]() if old is None else truth.premises(old)
        after = frozenset[str]() if new is None else truth.premises(new)
        entry = new if new is not None else old
        assert entry is not None
        part = self.part(entry.namespace)
        for premise in sorted(before ^ after):
            key, present = (entry.namespace, premise), premise in after
            self._rested.setdefault(key, {})[entry.id] = present
            if key in self.resting:
                (self.resting[key].add if present else self.resting[key].discard)(entry.id)
            part.do("ZADD", part.keys("on", premise), "1" if present else "0", entry.id)
            part.watch(about(premise))

    def add_link(self, key: LinkKey, link: Link) -> None:
        """Keep a link."""
        namespace, source, relation, target = key
        self.links[key] = link
        self._unlinked.discard(key)
        part, field = self.part(namespace), joined(source, target, relation)
        part.do("HSET", part.keys("links"), field, str(link.created_at))
        for end in {source, target}:
            part.do("SADD", part.keys("ends", end), field)
            part.watch(about(end))
        if relation == INVALIDATED_BY:
            self._invalidate(namespace, source, 1)

    def drop_link(self, key: LinkKey) -> bool:
        """Remove a link; whether there was one."""
        if self.link_of(key) is None:
            return False
        namespace, source, relation, target = key
        del self.links[key]
        self._unlinked.add(key)
        part, field = self.part(namespace), joined(source, target, relation)
        part.free("HDEL", part.keys("links"), [field])
        for end in {source, target}:
            part.free("SREM", part.keys("ends", end), [field])
            part.watch(about(end))
        if relation == INVALIDATED_BY:
            self._invalidate(namespace, source, -1)
        return True

    def _invalidate(self, namespace: str, id: str, by: int) -> None:
        self.invalidated(namespace, [id])
        count = self._invalid[namespace, id] = self._invalid[namespace, id] + by
        part = self.part(namespace)
        if count > 0:
            part.do("HSET", part.keys("invalid"), id, str(count))
        else:
            part.do("HDEL", part.keys("invalid"), id)

    def keep_receipt(self, name: Name, receipt: Receipt) -> None:
        """Remember what was answered under an idempotency key, and forget what is too old."""
        namespace, key = name
        _, result, at = receipt
        id = result.entry.id
        self.receipts[name] = receipt
        part = self.part(namespace)
        keys = part.keys
        for old, of, kept in self._oldest.pop(namespace, []):
            if kept < at - semantics.KEY_LIFETIME_MS and old != key:
                part.do("HDEL", keys("receipts"), old)
                part.do("SREM", keys("keys", of), old)
                part.do("ZREM", keys("kept"), joined(old, of))
        part.do("HSET", keys("receipts"), key, layout.put_receipt(receipt))
        part.do("SADD", keys("keys", id), key)
        part.do("ZADD", keys("kept"), str(at), joined(key, id))
        part.watch(about(id))

    def drop_receipts(self, of: Name) -> None:
        """Forget what was answered about an entry."""
        namespace, id = of
        self._look_around(namespace, [id])
        part = self.part(namespace)
        names = self._answered[of]
        if names:
            part.free("HDEL", part.keys("receipts"), names)
            part.free("ZREM", part.keys("kept"), [joined(name, id) for name in names])
            part.forget(part.keys("keys", id))
            part.watch(about(id))


# units: How does an operation find and change documents?


_PAGE = 200
_DOCUMENTS = "documents"  # what `watch` calls them; no other name begins with a d


class Unit(Changing):
    """The part of the state that one operation has asked for, and what becomes of it."""

    def document(self, key: DocumentKey) -> Document | None:
        """A document without its log, if there is one."""
        part, field = self.part(key[0]), joined(*key[1:])
        (raw,) = self.ask([["HGET", part.keys("docs"), field]])
        part.check("docs", field, raw)
        return None if raw is None else layout.document(raw, key)

    def log_of(self, key: DocumentKey) -> tuple[Any, ...]:
        """What was appended to a document."""
        (found,) = self.ask([["LRANGE", _log(self.part(key[0]), key), "0", "-1"]])
        return tuple(layout.item(raw) for raw in found)

    def listed(self, kind: str, namespace: str, after: str | None) -> Iterator[Document]:
        """The documents of a kind after an id, in the order of their ids."""
        keys = self.part(namespace).keys
        low = "-" if after is None else b"(" + after.encode()
        while True:
            ask: Ask = ["ZRANGEBYLEX", keys("kind", kind), low, "+", "LIMIT", "0", str(_PAGE)]
            names = texts(self.ask([ask])[0])
            if not names:
                return
            (found,) = self.ask([["HMGET", keys("docs"), *(joined(kind, id) for id in names)]])
            for id, raw in zip(names, found, strict=True):
                if raw is not None:
                    yield layout.document(raw, (namespace, kind, id))
            low = b"(" + names[-1].encode()

    def owners(self, namespace: str) -> dict[DocumentKey, Scope]:
        """All documents of a namespace, with whose they are."""
        part = self.part(namespace)
        flat, stamp = self.ask([["HGETALL", part.keys("owners")], ["HGET", part.keys("watch"), _DOCUMENTS]])
        part.check("watch", _DOCUMENTS, stamp)
        found: dict[DocumentKey, Scope] = {}
        for field, raw in zip(flat[::2], flat[1::2], strict=True):
            kind, id = parted(field, 2)
            key = (namespace, kind, id)
            if key not in self._dropped:
                agent, session = (text or None for text in raw.decode().split(SEPARATOR))
                found[key] = Scope(namespace=namespace, agent_id=agent, session_id=session)
        return found

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None:
        """Replace a document and its log."""
        part, field = self.part(key[0]), joined(*key[1:])
        keys = part.keys
        part.do("HSET", keys("docs"), field, layout.put_document(document))
        part.do("DEL", _log(part, key))
        self._append(part, key, log)
        if document.rev == 1:
            owner = f"{document.agent_id or ''}{SEPARATOR}{document.session_id or ''}"
            part.do("HSET", keys("owners"), field, owner)
            part.do("ZADD", keys("kind", key[1]), "0", key[2])
            part.do("SADD", keys("kinds"), key[1])
            part.watch(_DOCUMENTS)

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None:
        """Replace a document and add to its log."""
        part = self.part(key[0])
        part.do("HSET", part.keys("docs"), joined(*key[1:]), layout.put_document(document))
        self._append(part, key, added)

    def _append(self, part: Part, key: DocumentKey, added: Sequence[Any]) -> None:
        for some in portions([codec.encode(item) for item in added]):
            part.do("RPUSH", _log(part, key), *some)

    def drop_document(self, key: DocumentKey) -> None:
        """Remove a document with its log and its lease."""
        part, field = self.part(key[0]), joined(*key[1:])
        for name in ("docs", "owners", "leases"):
            part.free("HDEL", part.keys(name), [field])
        part.free("ZREM", part.keys("kind", key[1]), [key[2]])
        part.forget(_log(part, key))
        part.watch(_DOCUMENTS)
        self._dropped.add(key)

    def lease(self, key: DocumentKey) -> Lease | None:
        """Who holds a document, or held it last."""
        part, field = self.part(key[0]), joined(*key[1:])
        (raw,) = self.ask([["HGET", part.keys("leases"), field]])
        part.check("leases", field, raw)
        return None if raw is None else layout.lease(raw)

    def put_lease(self, key: DocumentKey, lease: Lease) -> None:
        """Note who holds a document."""
        part = self.part(key[0])
        part.do("HSET", part.keys("leases"), joined(*key[1:]), layout.put_lease(lease))

    def drop_leases(self, namespace: str) -> None:
        """Forget who holds what in a namespace."""
        part = self.part(namespace)
        part.forget(part.keys("leases"))


def _log(part: Part, key: DocumentKey) -> bytes:
    return part.keys("doclog", joined(*key[1:]).decode())


# working: How does an operation become one commit?


T = TypeVar("T")

_PATIENCE = 3
"""Times that an operation is overtaken before it asks the others to wait."""
_ALONE_MS = 5_000
_PAUSE_S = 0.001
_LOOKS = 5


class Work:
    """The operations of one process on one store."""

    def __init__(self, server: Connections, prefix: str, *, read_only: bool = False) -> None:
        self.server = server
        self.prefix = prefix
        self.model = ""
        """Whose vectors this process writes."""
        self._read_only = read_only
        self._known: dict[str, Keys] = {}
        self._registered: tuple[int, set[str]] = (-1, set())

    def keys(self, namespace: str) -> Keys:
        """The keys of a namespace."""
        found = self._known.get(namespace)
        if found is None:
            if len(self._known) > 10_000:
                self._known.clear()
            found = self._known[namespace] = Keys(self.prefix, namespace)
        return found

    def unit(self) -> Unit:
        """What a new operation knows: nothing."""
        return Unit(self.server, self.keys, self.model)

    def look(self, work: Callable[[State], T]) -> T:
        """Do something that changes nothing, on what was so at one moment."""
        for left in reversed(range(_LOOKS)):
            unit = self.unit()
            try:
                found = work(unit)
            except Exception:
                if unit.trips > 1 and left and not self._holds(unit):
                    continue
                raise
            if unit.trips < 2 or not left or self._holds(unit):
                return found
        raise AssertionError("the last look is taken as it is")

    def do(self, work: Callable[[State], T]) -> T:
        """Do something that may change the state, once and completely or not at all."""
        if self._read_only:
            raise ReadOnly(self.server.name, "was opened to be read only", "open it without mode=ro")
        until = time.monotonic() + self.server.timeout
        with self.server.writer() as writer:
            attempt = 0
            gates: list[bytes] = []
            try:
                while True:
                    unit = self.unit()
                    found, error = _tried(work, unit)
                    told = self._handed_in(writer, unit, failed=error is not None, alone=bool(gates))
                    if told == "done":
                        gates = [] if unit.changes and error is None else gates
                        if error is not None:
                            raise error
                        return found  # type: ignore[return-value]  # there was no error
                    attempt += told == "changed"
                    if time.monotonic() > until:
                        raise Busy(self.server.name, "is changed by others all the time", "try again")
                    time.sleep(min(_PAUSE_S * (attempt + 1), 0.02) if attempt > 1 or told == "wait" else 0)
                    if attempt >= _PATIENCE:
                        gates = self._alone(unit, writer)
            finally:
                for gate in gates:
                    self.server.leave(gate, writer)

    def _holds(self, unit: Unit) -> bool:
        """Whether what was read in several steps is still so."""
        with self.server.writer() as writer:
            return self._handed_in(writer, unit, failed=True) == "done"

    def _handed_in(self, writer: Writer, unit: Unit, *, failed: bool, alone: bool = False) -> str:
        """Commit what a unit wants, or only make sure of what it read; what the server said."""
        look = failed or not unit.changes
        if not unit.parts or (look and unit.trips < 2):
            return "done"
        if self.server.cluster and len(unit.parts) > 1:
            raise Invalid("requests", f"lie in {len(unit.parts)} namespaces", "write one namespace at a time")
        if not look:
            self._register(unit)
        place: dict[bytes, int] = {}

        def number(key: bytes) -> int:
            return place.setdefault(key, len(place) + 1)

        first = next(iter(unit.parts.values()))
        wanted = {name: part for name, part in unit.parts.items() if part.changes or part.checks or look}
        if look:
            parts = [_checking(part.keys, part.checks, number) for part in wanted.values()]
        else:
            parts = [part.built(number) for part in wanted.values()]
        job: dict[str, Any] = {
            "done": number(first.keys("done", writer.token)),
            "look": int(look),
            "alone": int(alone),
            "parts": parts,
        }
        told, *more = self.server.commit(writer, [*place], job)
        if told == b"broken":
            raise Corrupted(
                self.server.name,
                f"holds something else under {more[0]!r}",
                "let nobody else write under its prefix, or choose another with ?prefix=",
            )
        if not look and told == b"done" and layout.digits(0) in more[0].split():
            self._registered = (-1, set())  # a namespace began: was the server emptied, and its list too?
            self._register(unit)
        return told.decode()

    def _alone(self, unit: Unit, writer: Writer) -> list[bytes]:
        """Ask everybody else to wait with the namespaces of a unit; the keys of those who wait."""
        mine: list[bytes] = []
        for gate in (self.keys(name)("gate") for name in sorted(unit.parts)):
            if not self.server.enter(gate, writer, _ALONE_MS):
                for other in mine:  # who waits while others wait for him would wait for long
                    self.server.leave(other, writer)
                return []
            mine.append(gate)
        return mine

    def _register(self, unit: Unit) -> None:
        """Note that the namespaces exist, before anything is in them: too early does no harm."""
        epoch, known = self._registered
        if epoch != self.server.epoch:
            known = set()
        new = unit.parts.keys() - known
        if new:
            self.server.ask("SADD", layout.of_store(self.prefix, "namespaces"), *new)
            self._registered = (self.server.epoch, known | new)


def _tried(work: Callable[[State], T], unit: Unit) -> tuple[T | None, Exception | None]:
    """What an operation gives, or why it does not."""
    try:
        return work(unit), None
    except OmoideError as error:
        return None, error
    except (KeyError, AssertionError) as error:  # what was read in two steps may not fit together
        return None, error


def _checking(keys: Keys, checks: dict[tuple[bytes, bytes], bytes], place: Callable[[bytes], int]) -> Any:
    return {
        "gate": place(keys("nobody")),
        "checks": [[place(key), field, value] for (key, field), value in checks.items()],
        "kinds": [],
    }
