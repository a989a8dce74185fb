"""What does the store in memory hold?

Every operation goes through the methods of a state, so that a store which keeps its state elsewhere can
follow the same rules: it brings what is asked for, and writes down what was changed.

"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from omoide.core.entry import Entry, Scope
from omoide.core.requests import WriteRequest, WriteResult
from omoide.stores import semantics, truth
from omoide.stores.codec import Indexed
from omoide.stores.records import Access, Change, Document, Lease, Link, Version
from omoide.stores.truth import INVALIDATED_BY, Flip

Key = tuple[str, str]
LinkKey = tuple[str, str, str, str]
DocumentKey = tuple[str, str, str]
Receipt = tuple[bytes, WriteResult, int]


@dataclass
class Kept:
    """An entry with its past."""

    no: int
    versions: list[Version]
    found: Indexed
    written: int
    access: Access = field(default_factory=Access)
    flips: list[Flip] = field(default_factory=list)

    @property
    def entry(self) -> Entry:
        """As it is now."""
        return marked(self.versions[-1], stale=self.stale)

    @property
    def first(self) -> int:
        """The first revision that was kept here."""
        return self.versions[0].rev

    @property
    def embedded(self) -> bool:
        """Whether it has a vector."""
        return self.found.pooled is not None

    @property
    def stale(self) -> bool:
        """Whether it rests on what does not hold."""
        return bool(self.flips) and self.flips[-1].stale

    @property
    def standing(self) -> int:
        """How it stands."""
        return truth.of(self.entry)

    def at(self, moment: int | None) -> Entry | None:
        """As it was."""
        if moment is None:
            return self.entry
        past = [version for version in self.versions if version.at <= moment]
        return marked(past[-1], stale=truth.stale_at(self.flips, moment)) if past else None

    def history(self) -> list[Version]:
        """All versions, each with whether it was stale in the end."""
        return [
            version.replace(entry=marked(version, stale=truth.stale_in(self.flips, version.rev)))
            for version in self.versions
        ]


def marked(version: Version, *, stale: bool) -> Entry:
    """The entry of a version, with whether it is stale."""
    assert version.entry is not None
    return version.entry if version.entry.stale == stale else semantics.changed(version.entry, stale=stale)


@dataclass
class State:
    """All that the store holds; copied before a write, put back when the write fails."""

    kept: dict[Key, Kept] = field(default_factory=dict)
    links: dict[LinkKey, Link] = field(default_factory=dict)
    stones: dict[Key, list[tuple[Entry, Version]]] = field(default_factory=dict)
    log: list[Change] = field(default_factory=list)
    receipts: dict[Key, Receipt] = field(default_factory=dict)
    resting: dict[Key, set[str]] = field(default_factory=dict)
    """What now rests on an entry, whether that exists or not."""
    invalid: dict[Key, set[str]] = field(default_factory=dict)
    """What invalidates an entry."""
    used: set[Key] = field(default_factory=set)
    """What was ever used."""
    documents: dict[DocumentKey, Document] = field(default_factory=dict)
    """Without their logs."""
    logs: dict[DocumentKey, list[Any]] = field(default_factory=dict)
    """Apart, so that appending costs what is appended."""
    leases: dict[DocumentKey, Lease] = field(default_factory=dict)

    def copy(self) -> State:
        """One whose entries can be changed without changing this one's; a failed write leaves documents."""
        kept = {
            key: Kept(one.no, [*one.versions], one.found, one.written, one.access, [*one.flips])
            for key, one in self.kept.items()
        }
        return State(
            kept, {**self.links}, {key: [*told] for key, told in self.stones.items()}, [*self.log],
            {**self.receipts}, {key: {*ids} for key, ids in self.resting.items()},
            {key: {*ids} for key, ids in self.invalid.items()}, {*self.used},
            self.documents, self.logs, self.leases,
        )  # fmt: skip

    # Looking

    def foresee(self, asked: Sequence[WriteRequest]) -> None:
        """These writes come next; a store that fetches what it is asked for may fetch it at once."""

    def find(self, namespace: str, id: str) -> Kept | None:
        """An entry, if there is one."""
        return self.kept.get((namespace, id))

    def among(self, namespace: str, ids: Collection[str]) -> dict[str, Kept]:
        """Those of these that exist."""
        found = ((id, self.kept.get((namespace, id))) for id in ids)
        return {id: one for id, one in found if one is not None}

    def inside(self, scope: Scope) -> list[Kept]:
        """What a scope holds, in the order of its first versions."""
        return [one for one in self.kept.values() if scope.holds(one.entry)]

    def complete(self, some: Sequence[Kept]) -> Sequence[Kept]:
        """The same entries, with all of their versions."""
        return some

    def describe(self, some: Sequence[Kept]) -> Sequence[Kept]:
        """The same entries, with what they are found by."""
        return some

    def leaving(self, some: Sequence[Kept]) -> Sequence[Kept]:
        """The same entries, which are about to be removed, with all of their versions."""
        return self.complete(some)

    def twins(self, given: Entry) -> list[Kept]:
        """What may say already what another entry would."""
        return [one for one in self.kept.values() if one.entry.content == given.content]

    def rests_on(self, namespace: str, ids: Collection[str]) -> set[str]:
        """What now rests on any of these."""
        return {by for id in ids for by in self.resting.get((namespace, id), ())}

    def invalidated(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        return {id for id in ids if self.invalid.get((namespace, id))}

    def erased(self, namespace: str, ids: Collection[str]) -> set[str]:
        """Those of these of which there is a tombstone."""
        return {id for id in ids if (namespace, id) in self.stones}

    def quoting(self, namespace: str, id: str) -> list[str]:
        """The entries of which any version rests on this one."""
        return [
            one.entry.id
            for (name, _), one in self.kept.items()
            if name == namespace
            and any(old.entry is not None and semantics.rests_on(old.entry, id) for old in one.versions)
        ]

    def buried(self, id: str, scope: Scope) -> list[Version]:
        """The tombstones of an id that a scope holds."""
        told = self.stones.get((scope.namespace, id), ())
        return [version for entry, version in told if scope.holds(entry)]

    def links_at(self, namespace: str, id: str) -> dict[LinkKey, Link]:
        """The links from and to an entry."""
        return {
            key: link for key, link in self.links.items() if key[0] == namespace and id in (key[1], key[3])
        }

    def links_from(self, namespace: str, ids: Collection[str]) -> int:
        """How many links begin at these."""
        return sum(key[0] == namespace and key[1] in ids for key in self.links)

    def link_of(self, key: LinkKey) -> Link | None:
        """A link, if it is kept."""
        return self.links.get(key)

    def receipt_of(self, name: Key) -> Receipt | None:
        """What was answered under an idempotency key."""
        return self.receipts.get(name)

    # Changing

    def note(self, entry: Entry, op: str, now: int) -> int:
        """Write a change into the log; its number."""
        seq = len(self.log) + 1
        self.log.append(Change(seq=seq, namespace=entry.namespace, id=entry.id, op=op, rev=entry.rev, at=now))
        return seq

    def add(self, entry: Entry, found: Indexed, now: int) -> Kept:
        """Keep a new entry."""
        seq = self.note(entry, "write", now)
        version = Version(id=entry.id, rev=entry.rev, at=now, entry=entry)
        one = self.kept[entry.namespace, entry.id] = self._new(version, found, seq)
        self.rest(None, entry)
        return one

    def _new(self, version: Version, found: Indexed, seq: int) -> Kept:
        return Kept(seq, [version], found, seq)

    def revise(self, one: Kept, new: Entry, op: str, now: int, found: Indexed | None = None) -> None:
        """Keep the next version of an entry, with what is found of it if that was written anew."""
        old = one.entry
        one.versions.append(Version(id=new.id, rev=new.rev, at=now, entry=new))
        seq = self.note(new, op, now)
        if found is not None:
            one.found, one.written = found, seq
            self.rest(old, new)

    def flip(self, one: Kept, now: int, *, stale: bool) -> None:
        """Note that an entry is stale from now on, or current again."""
        one.flips.append(Flip(one.entry.rev, now, stale))
        self.note(one.entry, "stale" if stale else "current", now)

    def use(self, one: Kept, count: int, last: int | None) -> None:
        """Note that an entry was used so many times more."""
        one.access = Access(count=one.access.count + count, last=last)
        self.used.add((one.entry.namespace, one.entry.id))

    def remove(self, one: Kept, stone: Version) -> list[LinkKey]:
        """Leave nothing of an entry but a tombstone; the links that went with it."""
        entry = one.entry
        name = (entry.namespace, entry.id)
        self.rest(entry, None)
        cut = [*self.links_at(*name)]
        for key in cut:
            self.drop_link(key)
        self.drop_receipts(name)
        del self.kept[name]
        self.bury(entry, stone)
        self.note(entry, "erase", stone.at)
        return cut

    def bury(self, like: Entry, stone: Version) -> None:
        """Keep a tombstone that belongs to whom an entry belongs."""
        blank = Entry(
            id=stone.id, agent_id=like.agent_id, session_id=like.session_id, content="-",
            project_id=like.project_id, namespace=like.namespace, created_at=0,
        )  # fmt: skip
        self.stones.setdefault((like.namespace, stone.id), []).append((blank, stone))

    def rest(self, old: Entry | None, new: Entry | None) -> None:
        """Note what an entry rests on now, instead of what it rested on."""
        if old is not None:
            for id in truth.premises(old):
                self.resting.setdefault((old.namespace, id), set()).discard(old.id)
        if new is not None:
            for id in truth.premises(new):
                self.resting.setdefault((new.namespace, id), set()).add(new.id)

    def add_link(self, key: LinkKey, link: Link) -> None:
        """Keep a link."""
        self.links[key] = link
        if link.relation == INVALIDATED_BY:
            self.invalid.setdefault(key[:2], set()).add(link.target)

    def drop_link(self, key: LinkKey) -> bool:
        """Remove a link; whether there was one."""
        if key[2] == INVALIDATED_BY:
            self.invalid.get(key[:2], set()).discard(key[3])
        return self.links.pop(key, None) is not None

    def keep_receipt(self, name: Key, receipt: Receipt) -> None:
        """Remember what was answered under an idempotency key, and forget what is too old."""
        self.receipts[name] = receipt
        for old, (_, _, at) in [*self.receipts.items()][:8]:
            if at < receipt[2] - semantics.KEY_LIFETIME_MS:
                del self.receipts[old]

    def drop_receipts(self, of: Key) -> None:
        """Forget what was answered about an entry."""
        for name, (_, receipt, _) in [*self.receipts.items()]:
            if (name[0], receipt.entry.id) == of:
                del self.receipts[name]

    # Documents

    def document(self, key: DocumentKey) -> Document | None:
        """A document without its log, if there is one."""
        return self.documents.get(key)

    def log_of(self, key: DocumentKey) -> tuple[Any, ...]:
        """What was appended to a document."""
        return tuple(self.logs[key])

    def listed(self, kind: str, namespace: str, after: str | None) -> Iterable[Document]:
        """The documents of a kind after an id, in the order of their ids."""
        return [
            self.documents[key]
            for key in sorted(key for key in self.documents if key[:2] == (namespace, kind))
            if after is None or key[2] > after
        ]

    def owners(self, namespace: str) -> dict[DocumentKey, Scope]:
        """All documents of a namespace, with whose they are."""
        return {
            key: Scope(namespace=namespace, agent_id=one.agent_id, session_id=one.session_id)
            for key, one in self.documents.items()
            if key[0] == namespace
        }

    def put_document(self, key: DocumentKey, document: Document, log: Sequence[Any]) -> None:
        """Replace a document and its log."""
        self.documents[key] = document
        self.logs[key] = [*log]

    def append_document(self, key: DocumentKey, document: Document, added: Sequence[Any]) -> None:
        """Replace a document and add to its log."""
        self.documents[key] = document
        self.logs[key] += added

    def drop_document(self, key: DocumentKey) -> None:
        """Remove a document with its log and its lease."""
        del self.documents[key], self.logs[key]
        self.leases.pop(key, None)

    def lease(self, key: DocumentKey) -> Lease | None:
        """Who holds a document, or held it last."""
        return self.leases.get(key)

    def put_lease(self, key: DocumentKey, lease: Lease) -> None:
        """Note who holds a document."""
        self.leases[key] = lease

    def drop_leases(self, namespace: str) -> None:
        """Forget who holds what in a namespace."""
        for key in [key for key in self.leases if key[0] == namespace]:
            del self.leases[key]


class MemoryLedger:
    """The entries of one namespace."""

    def __init__(self, state: State, namespace: str) -> None:
        self._state = state
        self._namespace = namespace

    def standing(self, ids: Collection[str]) -> dict[str, int]:
        """How each of these stands that exists."""
        return {id: one.standing for id, one in self._state.among(self._namespace, ids).items()}

    def resting(self, ids: Collection[str]) -> dict[str, int]:
        """The entries that now rest on any of these, and how they stand."""
        return self.standing(self._state.rests_on(self._namespace, ids))

    def premises(self, ids: Collection[str]) -> Iterable[tuple[str, str]]:
        """Each of these with each of the ids it now rests on."""
        for id, one in self._state.among(self._namespace, ids).items():
            for premise in truth.premises(one.entry):
                yield id, premise

    def invalidated(self, ids: Collection[str]) -> set[str]:
        """Those of these at which a link begins that says so."""
        return self._state.invalidated(self._namespace, ids)

    def erased(self, ids: Collection[str]) -> set[str]:
        """Those of these, none of which exists, that did exist."""
        return self._state.erased(self._namespace, ids)
