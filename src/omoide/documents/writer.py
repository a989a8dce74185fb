"""Store documents: one entry for the document, and one for each passage of it.

The entry of the document names it and its sections, and has the digest of what was read. Each passage has two
pieces of evidence: its place in the document, and that entry. So forgetting the entry of the document makes
its passages stale, and the receipt of erasing it names them. All that changes is written in one transaction.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any

from omoide.core.entry import Entry, Evidence, Filter, Scope, WriteRequest
from omoide.core.value import Count, Id, Name, Value, check_instance, check_texts
from omoide.documents.formats import DocumentText, read_document
from omoide.documents.passages import SEPARATOR, DocumentPassage, split
from omoide.errors import NotFound
from omoide.longterm.queries import iter_entries
from omoide.stores.async_store import run_in_thread
from omoide.stores.protocols import SupportsBatchWrite, SupportsGet, SupportsQuery, SupportsSupersede
from omoide.verbs import require

TAG = "document"
"""Tag of the entries of documents."""
_MAX_SECTIONS = 1_000
"""Characters of the section titles that the entry of a document lists."""


class DocumentResult(Value, frozen=True, kw_only=True):
    """What adding a document changed; `id` is that of the entry of the document."""

    id: Id
    name: Name
    outcome: str
    """`stored`, `unchanged`, `updated`, or `restored` if it had been forgotten."""
    passages: Count
    added: Count = 0
    superseded: Count = 0
    """Passages that took the place of others."""
    removed: Count = 0
    """Passages that are in the document no more."""
    moved: Count = 0
    """Passages that stand at another place, in a new revision."""


async def add_document(
    store: Any,
    source: str | os.PathLike[str] | bytes,
    scope: Scope,
    *,
    name: str | None = None,
    format: str | None = None,
    encoding: str | None = None,
    tags: Sequence[str] = (),
) -> DocumentResult:
    """Store a document as passages with their places in it.

    A document that is stored already in exactly this scope is compared with what was stored: what is
    unchanged stays, what changed supersedes what was there before. It is stored wholly or not at all.

    Args:
        store: A store that writes several entries at once.
        source: A path, or the content as bytes.
        scope: The owner; it names the agent.
        name: What the document is called; by default its absolute path.
        format: `text`, `markdown`, `html` or `pdf`; by default what the file's ending says, else text.
        encoding: Of text; by default UTF-8, or what a byte order mark or an HTML page says.
        tags: Tags for its passages.

    Raises:
        InvalidDocument: The file cannot be read; the error names it and says what to do.
        NotFound: There is no such file.
        Conflict: Another program adds the same document at this moment.
    """
    document = await run_in_thread(read_document, source, name=name, format=format, encoding=encoding)
    return await store_document(store, document, scope, tags=tags)


async def store_document(
    store: Any, document: DocumentText, scope: Scope, *, tags: Sequence[str] = ()
) -> DocumentResult:
    """Store a document that was read."""
    check_instance(scope, "scope", kind=Scope)
    own_tags = check_texts(tags, "tags")
    writer: SupportsBatchWrite = require(store, SupportsBatchWrite, "store a document")
    head = _head(document, scope, own_tags)
    stored_head = await _find(store, head)
    restored = stored_head is not None and stored_head.superseded_by is not None
    if stored_head is not None and restored:
        forgetting: SupportsSupersede = require(store, SupportsSupersede, "restore a document")
        stored_head = await forgetting.reinstate(head.id, scope)
    was_there = stored_head is not None or await _was_erased(store, head)
    stored = await _stored_passages(store, head) if was_there else []
    plan = _Plan(stored, [_passage_entry(one, head, own_tags) for one in split(document)])
    rev = 0 if stored_head is None else stored_head.rev
    if stored_head is None or plan.changes or not _says_same(stored_head, head):
        await writer.write_many([*plan.requests(head, rev)])
        outcome = "stored" if stored_head is None else "updated"
    else:
        outcome = "unchanged"
    return DocumentResult(
        id=head.id,
        name=document.name,
        outcome="restored" if restored else outcome,
        passages=plan.count,
        added=len(plan.added) if stored_head is not None else plan.count,
        superseded=len(plan.replaced),
        removed=len(plan.removed),
        moved=len(plan.moved),
    )


class _Plan:
    """What to write so that the passages of a document are those that were read."""

    def __init__(self, stored: Sequence[Entry], read: Sequence[Entry]) -> None:
        self.count = len(read)
        self.moved: list[Entry] = []
        by_content: dict[tuple[str, tuple[str, ...]], list[Entry]] = {}
        in_use = [entry for entry in stored if _is_live(entry)]
        taken_out = [entry for entry in stored if not _is_live(entry)]
        for entry in reversed([*in_use, *taken_out]):  # the last is taken first
            by_content.setdefault((entry.content, entry.tags), []).append(entry)
        new = []
        for entry in read:
            same = by_content.get((entry.content, entry.tags))
            if not same:
                new.append(entry)
            elif _is_live(kept := same.pop()) and not _says_same(kept, entry):
                self.moved.append(entry.replace(id=kept.id))
        gone = {entry.id for entries in by_content.values() for entry in entries}
        old = [entry for entry in in_use if entry.id in gone]
        self.replaced, self.removed, self.added = _pair(old, new)

    @property
    def changes(self) -> bool:
        """True if there is anything to write."""
        return bool(self.replaced or self.removed or self.added or self.moved)

    def requests(self, head: Entry, rev: int) -> Iterator[WriteRequest]:
        """Yield the writes; the entry of the document supersedes the passages that are gone."""
        yield WriteRequest(entry=head, expected_rev=rev)
        for entry in self.moved:
            yield WriteRequest(entry=entry)
        for old, new in self.replaced:
            yield WriteRequest(entry=new, supersedes=old.id)
        for entry in self.added:
            yield WriteRequest(entry=entry)
        for old in self.removed:
            yield WriteRequest(entry=head, supersedes=old.id)


def _pair(
    old: Sequence[Entry], new: Sequence[Entry]
) -> tuple[list[tuple[Entry, Entry]], list[Entry], list[Entry]]:
    """Return which new passage supersedes which old one, the old ones left, and the new ones left.

    In order, first under the same heading, then among those that are left.
    """
    pairs: list[tuple[Entry, Entry]] = []
    for key in (_heading_of, lambda _: None):
        waiting: dict[str | None, list[Entry]] = {}
        for entry in reversed(old):
            waiting.setdefault(key(entry), []).append(entry)
        left = []
        for entry in new:
            if candidates := waiting.get(key(entry)):
                pairs.append((candidates.pop(), entry))
            else:
                left.append(entry)
        paired = {one.id for one, _ in pairs}
        old, new = [entry for entry in old if entry.id not in paired], left
    return pairs, [*old], [*new]


def _is_live(entry: Entry) -> bool:
    return entry.superseded_by is None


def _heading_of(entry: Entry) -> str | None:
    heading = entry.metadata.get("heading")
    return heading if isinstance(heading, str) else None


def _head(document: DocumentText, scope: Scope, tags: Iterable[str]) -> Entry:
    """Return the entry of a document; its id follows from the owner and the name."""
    identity = "\0".join([*(getattr(scope, field) or "" for field in Scope.__struct_fields__), document.name])
    titles = dict.fromkeys(block.title for block in document.blocks if block.title)
    sections, length = list[str](), 0
    for title in titles:
        length += len(title)
        if length > _MAX_SECTIONS:
            sections.append("…")
            break
        sections.append(title)
    base = document.name.rstrip("/").rpartition("/")[2] or document.name
    return Entry.new(
        id=f"doc_{sha256(identity.encode()).hexdigest()[:32]}",
        content=f"Document {base}" + (f": {'; '.join(sections)}" if sections else ""),
        source="external_document",
        tags=[TAG, *tags],
        evidence=[Evidence(kind="document", ref=document.name)],
        metadata={"path": document.name, "format": document.format, "sha256": document.digest},
        **_owner_fields(scope),
    )


def _passage_entry(passage: DocumentPassage, head: Entry, tags: Iterable[str]) -> Entry:
    name = head.metadata["path"]
    page = "" if passage.page is None else f"page={passage.page}&"
    place = {"path": name, "start": passage.start, "end": passage.end}
    if passage.headings:
        place["heading"] = SEPARATOR.join(passage.headings)
    if passage.page is not None:
        place["page"] = passage.page
    return Entry.new(
        content=passage.content,
        source="external_document",
        tags=[head.id, *tags],
        evidence=[
            Evidence(kind="document", ref=f"{name}#{page}char={passage.start},{passage.end}"),
            Evidence(kind="entry", ref=head.id),
        ],
        metadata=place,
        **_owner_fields(head.scope),
    )


def _owner_fields(scope: Scope) -> dict[str, Any]:
    fields = {name: getattr(scope, name) for name in Scope.__struct_fields__}
    return {**fields, "agent_id": scope.require_agent_id()}


def _says_same(stored: Entry, entry: Entry) -> bool:
    """Return True if a stored entry says and cites what another one does."""
    names = ("content", "tags", "metadata", "evidence", "source")
    return all(getattr(stored, name) == getattr(entry, name) for name in names)


async def _find(store: Any, head: Entry) -> Entry | None:
    reader: SupportsGet = require(store, SupportsGet, "find a document")
    try:
        return await reader.get(head.id, head.scope)
    except NotFound:
        return None


async def _was_erased(store: Any, head: Entry) -> bool:
    """Return True if the entry of a document was erased; its passages may be there still."""
    reader: SupportsQuery = require(store, SupportsQuery, "find a document")
    try:
        return bool(await reader.history(head.id, head.scope))
    except NotFound:
        return False


async def _stored_passages(store: Any, head: Entry) -> list[Entry]:
    """Return the stored passages of a document, in their order.

    Also those that were forgotten, or superseded by a memory from elsewhere: they stay so while the document
    says the same.
    """
    filter = Filter(tags=(head.id,), include_stale=True, include_superseded=True)
    found = [entry async for entry in iter_entries(store, head.scope, filter) if entry.scope == head.scope]
    own = {head.id, *(entry.id for entry in found)}
    kept = [entry for entry in found if entry.superseded_by is None or entry.superseded_by not in own]
    return sorted(kept, key=lambda entry: (entry.metadata.get("start", 0), entry.id))
