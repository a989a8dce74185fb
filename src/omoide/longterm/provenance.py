"""Where does a memory come from?

From a memory back to the words it rests on: messages of a transcript, results of tools, documents, and other
memories with their own provenance.
"""

from __future__ import annotations

from typing import Any

import msgspec

from omoide.core.entry import DELETED, Entry, Evidence, MessageRef
from omoide.core.recalling import check_positive
from omoide.core.scope import Scope
from omoide.core.value import check_instance
from omoide.errors import Invalid
from omoide.longterm import reading, rendering
from omoide.longterm.places import Places, Said
from omoide.stores.records import Link

DEPTH = 20
"""How far a chain of memories is followed unless the caller says otherwise."""
DEEPEST = 100

FOUND = "found"
OUTSIDE = "outside the scope"
ERASED = "erased"
ABOVE = "shown above"
DEEPER = "deeper than was asked for"
NAMED = "named only"


class Succession(msgspec.Struct, frozen=True, kw_only=True):
    """That one memory took the place of another, when and why."""

    id: str
    """The other memory, or `deleted` where nothing took the place."""
    at: int | None = None
    reason: str | None = None
    entry: Entry | None = None
    """The other memory itself, where the scope holds it."""


class Traced(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence, followed to where it leads."""

    evidence: Evidence
    status: str = FOUND
    """`found`, or why there is nothing to show."""
    said: Said | None = None
    memory: Provenance | None = None
    at: int | None = None
    """When it was erased."""
    reason: str | None = None
    """Why it was erased."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """A memory and everything it comes from."""

    entry: Entry
    message: Traced | None = None
    """The message that the memory is."""
    evidence: tuple[Traced, ...] = ()
    supersedes: tuple[Succession, ...] = ()
    superseded_by: Succession | None = None
    links: tuple[Link, ...] = ()

    def sources(self) -> tuple[Traced, ...]:
        """Everything that it rests on in the end, the nearest first: messages, tools, documents."""
        found: list[Traced] = []
        level = [self]
        while level:
            own = [one for each in level for one in (each.message, *each.evidence) if one is not None]
            found += [one for one in own if one.evidence.kind != "entry"]
            level = [one.memory for one in own if one.memory is not None]
        return tuple(found)

    def __str__(self) -> str:
        return rendering.tree(_told(self))


async def provenance(
    store: Any, id: str, scope: Scope, *, depth: int = DEPTH, documents_in: Scope | None = None
) -> Provenance:
    """Where a memory comes from, as far as the scope may see.

    Transcripts are looked for in the scope as well; `documents_in` says where else they lie.
    """
    check_instance(scope, "scope", kind=Scope)
    if check_positive(depth, "depth") > DEEPEST:
        raise Invalid("depth", f"is {depth}", f"follow at most {DEEPEST} memories")
    if documents_in is not None:
        check_instance(documents_in, "documents_in", kind=Scope)
    entry = await reading.get(store, id, scope)
    return await _Trace(store, scope, Places(store, scope, documents_in)).of(entry, depth)


class _Trace:
    """One walk: what was seen on it, and what was read for it already."""

    def __init__(self, store: Any, scope: Scope, places: Places) -> None:
        self._store = store
        self._scope = scope
        self._places = places
        self._backwards = reading.Backwards(store, scope)
        self._seen: set[str] = set()

    async def of(self, entry: Entry, depth: int) -> Provenance:
        self._seen.add(entry.id)
        evidence = [await self._followed(one, depth) for one in entry.evidence]
        return Provenance(
            entry=entry,
            message=None if entry.message is None else await self._place(_as_evidence(entry.message)),
            evidence=tuple(evidence),
            supersedes=tuple(
                Succession(id=old.id, at=old.superseded_at, reason=old.superseded_reason, entry=old)
                for old in await self._backwards.replaced_by(entry.id)
            ),
            superseded_by=await self._successor(entry),
            links=tuple(await reading.links(self._store, entry.id, self._scope)),
        )

    async def _followed(self, evidence: Evidence, depth: int) -> Traced:
        match evidence.kind:
            case "entry":
                return await self._premise(evidence, depth)
            case "document":
                return Traced(evidence=evidence, status=NAMED)
            case _:
                return await self._place(evidence)

    async def _premise(self, evidence: Evidence, depth: int) -> Traced:
        id = evidence.ref
        if id in self._seen:
            return Traced(evidence=evidence, status=ABOVE)
        entry = await reading.find(self._store, id, self._scope)
        if entry is None:
            stone = await reading.stone(self._store, id, self._scope)
            if stone is None:
                return Traced(evidence=evidence, status=OUTSIDE)
            return Traced(evidence=evidence, status=ERASED, at=stone.at, reason=stone.reason)
        if depth == 1:
            return Traced(evidence=evidence, status=DEEPER)
        return Traced(evidence=evidence, memory=await self.of(entry, depth - 1))

    async def _place(self, evidence: Evidence) -> Traced:
        said = await self._places.said(evidence.ref)
        if said is not None:
            return Traced(evidence=evidence, said=said)
        return Traced(evidence=evidence, status=OUTSIDE if evidence.kind == "message" else NAMED)

    async def _successor(self, entry: Entry) -> Succession | None:
        by = entry.superseded_by
        if by is None:
            return None
        known = None if by == DELETED else await reading.find(self._store, by, self._scope)
        return Succession(id=by, at=entry.superseded_at, reason=entry.superseded_reason, entry=known)


def _as_evidence(message: MessageRef) -> Evidence:
    return Evidence(kind="message", ref=f"{message.thread}:{message.seq}")


def _told(one: Provenance) -> rendering.Branch:
    """A memory as a branch of a tree that people read."""
    below = [_told_evidence(traced) for traced in (one.message, *one.evidence) if traced is not None]
    if one.superseded_by is not None:
        by = one.superseded_by
        said = "forgotten" if by.id == DELETED else f"superseded by {by.id}"
        below.append((rendering.line(said, by.entry, by.reason, by.at), []))
    below += [
        (rendering.line(f"supersedes {old.id}", old.entry, old.reason, old.at), []) for old in one.supersedes
    ]
    for link in one.links:
        out = link.source == one.entry.id
        said = f"{link.relation} {link.target}" if out else f"{link.source} {link.relation} this"
        below.append((f"{said} ({rendering.moment(link.created_at)})", []))
    return rendering.memory(one.entry), below


def _told_evidence(one: Traced) -> rendering.Branch:
    said = f"{one.evidence.kind} {one.evidence.ref}"
    if one.memory is not None:
        branch, below = _told(one.memory)
        return f"entry {branch}", below
    if one.said is not None:
        return f"{said}: {one.said}", []
    quote = "" if not one.evidence.quote else f": {rendering.quoted(one.evidence.quote)}"
    if one.status == NAMED:
        return said + quote, []
    return rendering.line(f"{said} — {one.status}", None, one.reason, one.at) + quote, []
