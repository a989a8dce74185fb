"""Provenance of memories, and the causes of staleness.

Provenance follows the evidence of a memory: messages of a transcript, tool results, documents, and other
memories with their own provenance. A staleness chain leads from a memory along its evidence to a premise that
was superseded, invalidated or erased. Both are rendered as trees for people.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from omoide.core.entry import DELETED, Entry, Evidence, MessageRef, Scope, check_positive
from omoide.core.value import check_instance
from omoide.errors import Invalid
from omoide.longterm import queries
from omoide.longterm.relations import INVALIDATED_BY
from omoide.stores.protocols import SupportsDocuments
from omoide.stores.records import Document, Link
from omoide.stores.semantics import THREAD_KIND

MAX_TEXT_LENGTH = 160
"""Characters of a text that are shown."""

Branch = tuple[str, "Sequence[Branch]"]
"""A line, and the branches below it."""


def render_tree(root: Branch) -> str:
    """Render a tree as lines with box-drawing stems."""
    lines: list[str] = []
    left: list[tuple[Branch, str, str]] = [(root, "", "")]
    while left:
        (line, below), stem, indent = left.pop()
        lines.append(stem + escape_unprintable(line))
        shown = [
            (branch, f"{indent}└── ", f"{indent}    ")
            if at == len(below) - 1
            else (branch, f"{indent}├── ", f"{indent}│   ")
            for at, branch in enumerate(below)
        ]
        left += reversed(shown)
    return "\n".join(lines)


def render_entry(entry: Entry) -> str:
    """Render a memory in one line."""
    details = [
        entry.type or "memory",
        entry.id,
        f"confidence {entry.confidence:g}",
        format_time(entry.created_at),
    ]
    if entry.source is not None:
        details.insert(2, f"from {entry.source}")
    if entry.superseded_by is not None:
        details.append("superseded")
    if entry.stale:
        details.append("stale")
    return f"{quote_text(entry.content)} ({', '.join(details)})"


def render_event(event: str, entry: Entry | None, reason: str | None, at: int | None) -> str:
    """Render an event with the memory, reason and time that are known."""
    content = "" if entry is None else f" {quote_text(entry.content)}"
    details = ", ".join(part for part in (reason, None if at is None else format_time(at)) if part)
    return f"{event}{content}" + (f" ({details})" if details else "")


def escape_unprintable(text: str) -> str:
    """Escape line breaks and control characters, which would break the tree or steer a terminal."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def quote_text(text: str) -> str:
    """Return a text in one line and in quotes, truncated where it is long."""
    line = " ".join(text.split())
    return f"“{line if len(line) <= MAX_TEXT_LENGTH else line[: MAX_TEXT_LENGTH - 1] + '…'}”"


def format_time(at: int) -> str:
    """Format milliseconds since the epoch as UTC."""
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M")


SESSION_KIND = "session"


class TranscriptMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a transcript: a message or a tool result."""

    thread: str
    seq: int
    kind: str
    role: str | None = None
    content: str = ""
    at: int | None = None

    def __str__(self) -> str:
        when = "" if self.at is None else f" ({format_time(self.at)})"
        return f"{self.role or self.kind}{when}: {quote_text(self.content)}"


class Transcripts:
    """The transcripts that a scope may read; each is loaded once."""

    def __init__(self, store: Any, scope: Scope, documents_in: Scope | None = None) -> None:
        self._store = store if isinstance(store, SupportsDocuments) else None
        self._scope = scope.replace(project_id=None) if documents_in is None else documents_in
        # A document belongs to an agent and a session; only its session knows the project.
        self._project = scope.project_id if documents_in is None else None
        self._loaded: dict[str, dict[int, Mapping[str, Any]]] = {}

    async def message_at(self, ref: str) -> TranscriptMessage | None:
        """Return the message at `<thread>:<seq>`, or None if there is none in the scope."""
        # From the right, because the id of a thread may contain colons; `isdecimal` alone would accept the
        # digits of other scripts.
        thread, _, place = ref.rpartition(":")
        if self._store is None or not thread or not (place.isascii() and place.isdecimal()):
            return None
        if thread not in self._loaded:
            self._loaded[thread] = await self._load(self._store, thread)
        entry = self._loaded[thread].get(int(place))
        return None if entry is None else _to_message(thread, int(place), entry)

    async def _load(self, store: SupportsDocuments, thread: str) -> dict[int, Mapping[str, Any]]:
        document = await store.load(THREAD_KIND, thread, self._scope)
        if document is None or not await self._is_in_project(store, document):
            return {}
        return {item["seq"]: item for item in document.log if isinstance(item, Mapping) and "seq" in item}

    async def _is_in_project(self, store: SupportsDocuments, document: Document) -> bool:
        if self._project is None:
            return True
        if document.session_id is None:
            return False
        header = await store.load(SESSION_KIND, document.session_id, self._scope)
        body = None if header is None else header.body
        return isinstance(body, Mapping) and body.get("project_id") == self._project


def _to_message(thread: str, seq: int, entry: Mapping[str, Any]) -> TranscriptMessage:
    payload = entry.get("payload")
    fields = payload if isinstance(payload, Mapping) else {}
    role, content, at = fields.get("role") or fields.get("name"), fields.get("content"), entry.get("at")
    return TranscriptMessage(
        thread=thread,
        seq=seq,
        kind=str(entry.get("kind", "note")),
        role=role if isinstance(role, str) else None,
        content="" if content is None else content if isinstance(content, str) else str(content),
        at=at if isinstance(at, int) else None,
    )


DEFAULT_DEPTH = 20
"""Default length of a followed chain of memories."""
# Tracing and rendering recurse a few frames per step; this stays below the recursion limit of 1,000.
MAX_DEPTH = 100

FOUND = "found"
OUTSIDE_SCOPE = "outside the scope"
ERASED = "erased"
SHOWN_ABOVE = "shown above"
TOO_DEEP = "deeper than was asked for"
NAMED_ONLY = "named only"


class Supersession(msgspec.Struct, frozen=True, kw_only=True):
    """The replacement of one memory by another, with its time and reason."""

    id: str
    """The id of the other memory, or `deleted` if there is none."""
    at: int | None = None
    reason: str | None = None
    entry: Entry | None = None
    """The other memory, if the scope contains it."""


class TracedEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """One piece of evidence with what it refers to."""

    evidence: Evidence
    status: str = FOUND
    """`found`, or the reason why nothing can be shown."""
    said: TranscriptMessage | None = None
    memory: Provenance | None = None
    at: int | None = None
    """Timestamp of the erasure."""
    reason: str | None = None
    """Reason of the erasure."""


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """A memory with everything that it was derived from."""

    entry: Entry
    message: TracedEvidence | None = None
    """The message that the memory was made of."""
    evidence: tuple[TracedEvidence, ...] = ()
    supersedes: tuple[Supersession, ...] = ()
    superseded_by: Supersession | None = None
    links: tuple[Link, ...] = ()

    def sources(self) -> tuple[TracedEvidence, ...]:
        """Return the messages, tool results and documents at the ends of all chains, nearest first."""
        ends: list[TracedEvidence] = []
        level = [self]
        while level:
            traced = [one for each in level for one in (each.message, *each.evidence) if one is not None]
            ends += [one for one in traced if one.evidence.kind != "entry"]
            level = [one.memory for one in traced if one.memory is not None]
        return tuple(ends)

    def __str__(self) -> str:
        return render_tree(_to_branch(self))


async def provenance(
    store: Any, id: str, scope: Scope, *, depth: int = DEFAULT_DEPTH, documents_in: Scope | None = None
) -> Provenance:
    """Return the provenance of a memory, as far as the scope contains it.

    Args:
        store: store of the memories and transcripts.
        id: id of the memory.
        scope: memories that may be shown.
        depth: maximum length of a chain of memories, at most `MAX_DEPTH`.
        documents_in: scope of the transcripts, if it is another one.

    Raises:
        NotFound: the scope does not contain the memory.
        Invalid: the depth is too large.
    """
    check_instance(scope, "scope", kind=Scope)
    if check_positive(depth, "depth") > MAX_DEPTH:
        raise Invalid("depth", f"is {depth}", f"follow at most {MAX_DEPTH} memories")
    if documents_in is not None:
        check_instance(documents_in, "documents_in", kind=Scope)
    entry = await queries.get(store, id, scope)
    return await _ProvenanceWalk(store, scope, Transcripts(store, scope, documents_in)).trace(entry, depth)


class _ProvenanceWalk:
    """One traversal, with what it visited and loaded."""

    def __init__(self, store: Any, scope: Scope, places: Transcripts) -> None:
        self._store = store
        self._scope = scope
        self._transcripts = places
        self._reverse = queries.ReverseIndex(store, scope)
        self._seen: set[str] = set()

    async def trace(self, entry: Entry, depth: int) -> Provenance:
        # Each memory is expanded once, so cycles end and shared premises are not repeated.
        self._seen.add(entry.id)
        evidence = [await self._follow(one, depth) for one in entry.evidence]
        return Provenance(
            entry=entry,
            message=None if entry.message is None else await self._trace_message(_to_evidence(entry.message)),
            evidence=tuple(evidence),
            supersedes=tuple(
                Supersession(id=old.id, at=old.superseded_at, reason=old.superseded_reason, entry=old)
                for old in await self._reverse.predecessors(entry.id)
            ),
            superseded_by=await self._successor(entry),
            links=tuple(await queries.links(self._store, entry.id, self._scope)),
        )

    async def _follow(self, evidence: Evidence, depth: int) -> TracedEvidence:
        match evidence.kind:
            case "entry":
                return await self._trace_entry(evidence, depth)
            case "document":
                return TracedEvidence(evidence=evidence, status=NAMED_ONLY)
            case _:
                return await self._trace_message(evidence)

    async def _trace_entry(self, evidence: Evidence, depth: int) -> TracedEvidence:
        id = evidence.ref
        if id in self._seen:
            return TracedEvidence(evidence=evidence, status=SHOWN_ABOVE)
        entry = await queries.find(self._store, id, self._scope)
        if entry is None:
            # An id of another scope and one that never existed get the same status: neither is disclosed.
            stone = await queries.tombstone(self._store, id, self._scope)
            if stone is None:
                return TracedEvidence(evidence=evidence, status=OUTSIDE_SCOPE)
            return TracedEvidence(evidence=evidence, status=ERASED, at=stone.at, reason=stone.reason)
        if depth == 1:
            return TracedEvidence(evidence=evidence, status=TOO_DEEP)
        return TracedEvidence(evidence=evidence, memory=await self.trace(entry, depth - 1))

    async def _trace_message(self, evidence: Evidence) -> TracedEvidence:
        message = await self._transcripts.message_at(evidence.ref)
        if message is not None:
            return TracedEvidence(evidence=evidence, said=message)
        return TracedEvidence(
            evidence=evidence, status=OUTSIDE_SCOPE if evidence.kind == "message" else NAMED_ONLY
        )

    async def _successor(self, entry: Entry) -> Supersession | None:
        by = entry.superseded_by
        if by is None:
            return None
        known = None if by == DELETED else await queries.find(self._store, by, self._scope)
        return Supersession(id=by, at=entry.superseded_at, reason=entry.superseded_reason, entry=known)


def _to_evidence(message: MessageRef) -> Evidence:
    return Evidence(kind="message", ref=f"{message.thread}:{message.seq}")


def _to_branch(provenance: Provenance) -> Branch:
    """Return the branch of a memory in the rendered tree."""
    below = [
        _evidence_branch(traced)
        for traced in (provenance.message, *provenance.evidence)
        if traced is not None
    ]
    if provenance.superseded_by is not None:
        by = provenance.superseded_by
        label = "forgotten" if by.id == DELETED else f"superseded by {by.id}"
        below.append((render_event(label, by.entry, by.reason, by.at), []))
    below += [
        (render_event(f"supersedes {old.id}", old.entry, old.reason, old.at), [])
        for old in provenance.supersedes
    ]
    for link in provenance.links:
        out = link.source == provenance.entry.id
        label = f"{link.relation} {link.target}" if out else f"{link.source} {link.relation} this"
        below.append((f"{label} ({format_time(link.created_at)})", []))
    return render_entry(provenance.entry), below


def _evidence_branch(traced: TracedEvidence) -> Branch:
    label = f"{traced.evidence.kind} {traced.evidence.ref}"
    if traced.memory is not None:
        branch, below = _to_branch(traced.memory)
        return f"entry {branch}", below
    if traced.said is not None:
        return f"{label}: {traced.said}", []
    quote = "" if not traced.evidence.quote else f": {quote_text(traced.evidence.quote)}"
    if traced.status == NAMED_ONLY:
        return label + quote, []
    return render_event(f"{label} — {traced.status}", None, traced.reason, traced.at) + quote, []


SUPERSEDED = "superseded"
FORGOTTEN = "forgotten"
INVALIDATED = "invalidated"
UNKNOWN_CAUSE = "outside the scope"


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """The path from a stale memory to the premise that made it stale."""

    path: tuple[str, ...]
    """The ids on the path: the stale memory first, the cause last."""
    cause: str
    """`superseded`, `forgotten`, `invalidated`, `erased`, or `outside the scope`."""
    by: str | None = None
    """The id of the memory that superseded or invalidated it."""
    reason: str | None = None
    at: int | None = None

    def __str__(self) -> str:
        path = " depends on ".join(self.path)
        by = "" if self.by is None else f" by {self.by}"
        cause = "the cause is outside the scope" if self.cause == UNKNOWN_CAUSE else f"{self.cause}{by}"
        return render_event(f"{path}: {cause}", None, self.reason, self.at)


async def why_stale(store: Any, id: str, scope: Scope, *, limit: int = 10) -> tuple[Chain, ...]:
    """Return the chains that made a memory stale, shortest first; empty if it is not stale.

    Raises:
        NotFound: the scope does not contain the memory.
    """
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    first = await queries.get(store, id, scope)
    if not first.stale:
        return ()
    chains: list[Chain] = []
    parents: dict[str, str | None] = {first.id: None}
    frontier = [first]
    # Breadth first, so that the shortest chains are found first.
    while frontier and len(chains) < limit:
        reached: list[Entry] = []
        for entry in frontier:
            invalid = await _invalidation(store, entry, scope)
            chains += () if invalid is None else (_complete_chain(parents, entry.id, invalid),)
            for premise in queries.premises(entry):
                if premise in parents:
                    continue
                parents[premise] = entry.id
                other = await queries.find(store, premise, scope)
                out = await _erasure(store, premise, scope) if other is None else _supersession(other)
                chains += () if out is None else (_complete_chain(parents, premise, out),)
                # A premise that is out itself is the end of the chain.
                if other is not None and out is None:
                    reached.append(other)
        # A premise that is live has no part in the staleness.
        frontier = [entry for entry in reached if entry.stale]
    # The cause may be outside the scope: it is not disclosed, only that there is one.
    return tuple(chains[:limit]) or (Chain(path=(first.id,), cause=UNKNOWN_CAUSE),)


def _complete_chain(parents: dict[str, str | None], last: str, end: Chain) -> Chain:
    return msgspec.structs.replace(end, path=tuple(_walk_back(parents, last))[::-1])


def _walk_back(parents: dict[str, str | None], last: str) -> Iterator[str]:
    at: str | None = last
    while at is not None:
        yield at
        at = parents[at]


def _supersession(entry: Entry) -> Chain | None:
    by = entry.superseded_by
    if by is None:
        return None
    return Chain(
        path=(),
        cause=FORGOTTEN if by == DELETED else SUPERSEDED,
        by=None if by == DELETED else by,
        reason=entry.superseded_reason,
        at=entry.superseded_at,
    )


async def _erasure(store: Any, id: str, scope: Scope) -> Chain | None:
    stone = await queries.tombstone(store, id, scope)
    return None if stone is None else Chain(path=(), cause=ERASED, reason=stone.reason, at=stone.at)


async def _invalidation(store: Any, entry: Entry, scope: Scope) -> Chain | None:
    for link in await queries.links(store, entry.id, scope, INVALIDATED_BY):
        if link.source == entry.id:
            return Chain(path=(), cause=INVALIDATED, by=link.target, at=link.created_at)
    return None
