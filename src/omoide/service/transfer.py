"""Export, import and copy namespaces.

`NamespaceDump` holds the entries of a namespace, forgotten and stale ones included, with links and access
counts. `copy` moves dumps between stores in batches; documents are copied with their appended items. Earlier
versions of entries and tombstones are not copied.

JSON Lines: each line is an object with all fields of an entry, its `links`, and `access` (how often it was
used). Other programs may write fewer fields; missing ones are filled in deterministically, so that importing
a file twice changes nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from omoide import clock, ids
from omoide.core import codec
from omoide.core.entry import Entry, Scope
from omoide.core.value import check_instance, check_texts
from omoide.errors import IdTaken, Invalid, NotFound, WrongType
from omoide.service import auth
from omoide.stores import semantics
from omoide.stores.async_store import AsyncStore, run_in_thread
from omoide.stores.factory import atomic_file, map_file_errors
from omoide.stores.protocols import Store, SupportsDocuments, SupportsFeed, SupportsGet, SupportsImport
from omoide.stores.records import Access, Document, Feed, Link
from omoide.stores.redaction import mask_url
from omoide.stores.sqlite.store import path_of
from omoide.verbs import require

ProgressCallback = Callable[[str, int, int | None], object]
"""Called with the name of a step, the amount done, and the total if it is known."""


def ignore_progress(name: str, done: int, total: int | None) -> None:
    """Do nothing; the default progress callback."""


BATCH_SIZE = 1_000
"""Number of entries per import; groups that depend on each other may exceed it."""
_FEED_LIMIT = 10_000


class NamespaceDump(msgspec.Struct, kw_only=True):
    """Entries of one namespace with their links and access counts."""

    entries: dict[str, Entry] = {}
    links: list[Link] = []
    access: dict[str, Access] = {}

    def in_scope(self, scope: Scope) -> NamespaceDump:
        """Return the part of the dump that a scope holds; a link stays if both its ends do."""
        return self._subset({id: entry for id, entry in self.entries.items() if scope.contains(entry)})

    def batches(self, size: int = BATCH_SIZE) -> Iterator[NamespaceDump]:
        """Yield the dump in batches of about `size` entries.

        Entries that are linked or derived from one another stay in one batch, so that each batch can be
        imported on its own.
        """
        links_by_source: dict[str, list[Link]] = {}
        for link in self.links:
            links_by_source.setdefault(link.source, []).append(link)
        batch: dict[str, Entry] = {}
        for group in self._connected_groups():
            batch.update((entry.id, entry) for entry in group)
            if len(batch) >= size:
                yield self._batch(batch, links_by_source)
                batch = {}
        if batch:
            yield self._batch(batch, links_by_source)

    def _subset(self, entries: dict[str, Entry]) -> NamespaceDump:
        links = [link for link in self.links if link.source in entries and link.target in entries]
        access = {id: used for id, used in self.access.items() if id in entries}
        return NamespaceDump(entries=entries, links=links, access=access)

    def _batch(self, entries: dict[str, Entry], links_by_source: dict[str, list[Link]]) -> NamespaceDump:
        links = [link for id in entries for link in links_by_source.get(id, ())]
        access = {id: self.access[id] for id in entries if id in self.access}
        return NamespaceDump(entries=entries, links=links, access=access)

    def _connected_groups(self) -> Iterable[list[Entry]]:
        """Return the groups of entries connected by links or premises, with union-find.

        Two entries that share a premise belong together even if the premise is gone.
        """
        parents: dict[str, str] = {}

        def root(id: str) -> str:
            while (parent := parents.get(id, id)) != id:
                parents[id] = id = parents.get(parent, parent)
            return id

        for entry in self.entries.values():
            for premise in semantics.premises(entry):
                parents[root(entry.id)] = root(premise)
        for link in self.links:
            parents[root(link.source)] = root(link.target)
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            groups.setdefault(root(entry.id), []).append(entry)
        return groups.values()


async def dump_namespace(store: Any, namespace: str) -> NamespaceDump:
    """Return everything that a store holds in a namespace, consistent as of one moment after the call.

    Raises:
        Invalid: the store has no change feed.
    """
    source: SupportsFeed = require(store, SupportsFeed, "tell all that it holds")
    feed = await source.change_feed(namespace, limit=_FEED_LIMIT)
    generation, collector = feed.generation, _FeedCollector()
    collector.add(feed)
    while feed.more:
        feed = await source.change_feed(namespace, after=feed.seq, limit=_FEED_LIMIT)
        if feed.generation != generation:  # a backup was restored meanwhile: start again
            return await dump_namespace(store, namespace)
        collector.add(feed)
    return collector.to_dump()


class _FeedCollector:
    """Folds the pages of a change feed; an entry that changes while it is read replaces its older state."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._links: dict[str, list[Link]] = {}
        self._access: dict[str, Access] = {}

    def add(self, feed: Feed) -> None:
        for id in (*feed.erased_ids, *(entry.id for entry in feed.entries)):
            self._entries.pop(id, None)
            self._links.pop(id, None)
        self._entries.update((entry.id, entry) for entry in feed.entries)
        for link in feed.links:
            self._links.setdefault(link.source, []).append(link)
        self._access.update(feed.access)

    def to_dump(self) -> NamespaceDump:
        links = [link for outgoing in self._links.values() for link in outgoing]
        return NamespaceDump(links=links, access=self._access)._subset(self._entries)


TOKEN_NAMESPACE = auth.TOKEN_SCOPE.namespace
CONFLICT_REMEDY = "erase one of them, or copy into an empty store"
DOCUMENTS_SKIPPED = "documents (sessions, stored agents) were not copied: a store cannot keep or list them"


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a copy."""

    namespaces: tuple[str, ...] = ()
    memories: int = 0
    new: int = 0
    """Number of entries that the target did not have."""
    documents: int = 0
    new_documents: int = 0
    notices: tuple[str, ...] = ()


async def copy(
    source: Any,
    target: Any,
    *,
    namespaces: Iterable[str] | None = None,
    tokens: bool = False,
    progress: ProgressCallback | None = None,
) -> CopyReport:
    """Copy namespaces from one store to another; entries that are there already stay as they are.

    Conflicts are found before anything is written. What was copied before a failure stays, and copying again
    continues from there.

    Args:
        source: store to copy from.
        target: store to copy to.
        namespaces: the namespaces to copy; by default all.
        tokens: copy API tokens as well.
        progress: called after each batch.

    Raises:
        Invalid: the target has a different entry or document under an id, or is the source.
    """
    refuse_same(source, target)
    require(target, SupportsImport, "take memories over")
    require(target, Store, "list its memories")
    selected = await _select_namespaces(source, namespaces, tokens=tokens)
    with_documents = _can_copy_documents(source, target)
    total = 0
    for namespace in selected:
        total += await _check_conflicts(source, target, namespace, documents=with_documents)
    report_progress = progress or ignore_progress
    report = CopyReport(namespaces=tuple(selected), notices=() if with_documents else (DOCUMENTS_SKIPPED,))
    for namespace in selected:
        for batch in (await dump_namespace(source, namespace)).batches():
            new = await _import_batch(target, batch)
            report = _add_counts(report, memories=len(batch.entries), new=new)
            report_progress("memories", report.memories, max(total, report.memories))
        if with_documents:
            async for document in _iter_documents(source, namespace):
                is_new = await _save_document(target, document)
                report = _add_counts(report, documents=1, new_documents=int(is_new))
                report_progress("documents", report.documents, None)
    return report


def refuse_same(source: Any, target: Any) -> None:
    """Raise if both are the same store."""
    identity = _store_identity(source)
    if source is target or (identity is not None and identity == _store_identity(target)):
        raise Invalid("target", f"{target!r} is the source itself", "name another store")


def _store_identity(store: Any) -> str | None:
    """Return a string that identifies a store; None if nothing does."""
    if not isinstance(store, AsyncStore):
        return None
    scheme = urlsplit(store.url).scheme
    if scheme == "memory":  # every handle is a store of its own
        return None
    return str(path_of(store.url).resolve()) if scheme == "sqlite" else mask_url(store.url)


async def _select_namespaces(source: Any, names: Iterable[str] | None, *, tokens: bool) -> list[str]:
    if names is not None:
        return check_namespaces(names, tokens=tokens)
    lister: SupportsDocuments = require(source, SupportsDocuments, "list its namespaces")
    return [name for name in await lister.namespaces() if tokens or name != TOKEN_NAMESPACE]


def check_namespaces(names: Iterable[str], *, tokens: bool) -> list[str]:
    """Return the names without duplicates; raise if they include the tokens' namespace without `tokens`."""
    names_once = [*dict.fromkeys(ids.check(name, "namespaces") for name in check_texts(names, "namespaces"))]
    if TOKEN_NAMESPACE in names_once and not tokens:
        raise Invalid(
            "namespaces", f"hold {TOKEN_NAMESPACE!r}, where tokens are", "ask for the tokens as well"
        )
    return names_once


def _can_copy_documents(source: Any, target: Any) -> bool:
    return isinstance(source, SupportsDocuments) and isinstance(target, SupportsDocuments)


async def _check_conflicts(source: Any, target: Any, namespace: str, *, documents: bool) -> int:
    """Raise if the target holds different content under an id; return the number of entries to copy."""
    dump = await dump_namespace(source, namespace)
    stored = {entry.id: entry for entry in await target.list_entries(Scope(namespace=namespace))}
    differing = [
        semantics.replace_unchecked(entry, stale=False)
        for id, entry in dump.entries.items()
        if id in stored and not _is_same_entry(entry, stored[id])
    ]
    # The target decides: its guard (redaction) may have changed these entries when they were first copied,
    # and changes them in the same way again. It raises for those that really differ.
    await _import_batch(target, NamespaceDump(entries={entry.id: entry for entry in differing}))
    if documents:
        async for document in _iter_documents(source, namespace):
            await _has_document(target, document)
    return len(dump.entries)


def _is_same_entry(entry: Entry, stored: Entry) -> bool:
    """Return True if entries are equal but for `stale`, which each store derives for itself."""
    return semantics.replace_unchecked(entry, stale=False) == semantics.replace_unchecked(stored, stale=False)


async def _import_batch(target: Any, batch: NamespaceDump) -> int:
    try:
        return int(await target.import_entries([*batch.entries.values()], batch.links, batch.access))
    except IdTaken as error:
        raise Invalid(f"memory {error.id!r}", "is another one in the target", CONFLICT_REMEDY) from error


async def _iter_documents(source: Any, namespace: str) -> AsyncIterator[Document]:
    """Yield the documents of a namespace, transcripts first, so that no document refers to a missing one."""
    scope = Scope(namespace=namespace)
    for kind in sorted(await source.kinds(namespace), key=lambda kind: kind != semantics.THREAD_KIND):
        after: str | None = None
        while page := await source.documents(kind, scope, after=after):
            for header in page:
                document = await source.load(kind, header.id, scope)
                if document is not None:  # None if it was erased since the page was listed
                    yield document
            after = page[-1].id


async def _has_document(target: Any, document: Document) -> bool:
    """Return True if the target has the document; raise if it has a different one of that id."""
    stored = await target.load(document.kind, document.id, Scope(namespace=document.namespace))
    if stored is None:
        return False
    if document.replace(rev=stored.rev, updated_at=stored.updated_at) != stored:
        raise Invalid(f"{document.kind} {document.id!r}", "is another one in the target", CONFLICT_REMEDY)
    return True


async def _save_document(target: Any, document: Document) -> bool:
    """Save a document if it is new; return True if it was."""
    if await _has_document(target, document):
        return False
    await target.save(document, expected_rev=0)
    return True


def _add_counts(report: CopyReport, **counts: int) -> CopyReport:
    changes = {name: getattr(report, name) + count for name, count in counts.items()}
    return msgspec.structs.replace(report, **changes)


V = TypeVar("V")

MAX_LINE_BYTES = 32 << 20
"""Size limit of one line."""
_SCOPE_FIELDS = ("namespace", "user_id", "agent_id", "session_id", "project_id")
_PROGRESS_STEP = 500


class ImportReport(NamedTuple):
    """Counts of an import."""

    memories: int
    new: int
    left_out: int = 0
    """Number of messages without text."""


class _ImportLine(NamedTuple):
    entry: Entry
    links: tuple[Link, ...]
    access: Access | None
    is_complete: bool
    """True if the line has an id and a creation time of its own."""


async def export_jsonl(
    store: Any, path: Path, scope: Scope, *, progress: ProgressCallback | None = None
) -> int:
    """Write the entries of a scope to a JSON Lines file; return their number."""
    check_instance(scope, "scope", kind=Scope)
    dump = (await dump_namespace(store, scope.namespace)).in_scope(scope)
    await run_in_thread(_write_jsonl, dump, path, progress)
    return len(dump.entries)


async def import_jsonl(
    store: Any,
    path: Path,
    scope: Scope,
    *,
    agent_id: str | None = None,
    progress: ProgressCallback | None = None,
) -> ImportReport:
    """Import the entries of a JSON Lines file, all or none; entries that are stored already stay as they are.

    Args:
        store: a store that imports entries.
        path: the file.
        scope: fills in the owner where a line names none, and must hold every entry.
        agent_id: the agent of lines that name none, where the scope is that of all agents.
        progress: called while the file is read.

    Raises:
        Invalid: a line is malformed, lies outside the scope, or has the id of a different entry.
    """
    check_instance(scope, "scope", kind=Scope)
    importer: SupportsImport = require(store, SupportsImport, "take memories over")
    lines = await run_in_thread(_read_lines, path, scope, agent_id or scope.agent_id, progress)
    entries = {id: await _resolve_entry(store, line) for id, line in lines.items()}
    links = [
        link
        for line in lines.values()
        for link in line.links
        # If only a part of a namespace was exported, the target may be missing; such a link is dropped.
        if link.target in entries or await _find_entry(store, link.target, scope) is not None
    ]
    access = {id: line.access for id, line in lines.items() if line.access is not None}
    return ImportReport(len(entries), await importer.import_entries([*entries.values()], links, access))


def iter_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield the location and the value of each line of a JSON Lines file; empty lines are skipped."""
    with map_file_errors(str(path), "read"), path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            location = f"{path.name} line {number}"
            if len(line) > MAX_LINE_BYTES:
                raise Invalid(location, f"has more than {MAX_LINE_BYTES >> 20} MiB", "cut it into several")
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield location, decode_json(text, location)


def decode_json(data: bytes, location: str) -> Any:
    """Decode JSON; raise `Invalid` with the location if that fails."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(
            location, f"is not readable JSON ({error})", "correct it, or name the format"
        ) from error
    except RecursionError:
        raise Invalid(location, "is nested too deeply", "flatten it") from None


def error_at(location: str, error: Invalid) -> Invalid:
    """Return a copy of an error that names the location in a file."""
    field = error.field.removeprefix("Entry").removeprefix(".")
    return Invalid(f"{location}: {field}" if field else location, error.problem, error.remedy)


def _write_jsonl(dump: NamespaceDump, path: Path, progress: ProgressCallback | None) -> None:
    links_by_source: dict[str, list[Link]] = {}
    for link in dump.links:
        links_by_source.setdefault(link.source, []).append(link)
    ordered = sorted(dump.entries.values(), key=lambda entry: (entry.created_at, entry.id))
    with map_file_errors(str(path), "written"), atomic_file(path) as file:
        for done, entry in enumerate(ordered, 1):
            fields = _line_fields(entry, links_by_source.get(entry.id, ()), dump.access.get(entry.id))
            file.write(msgspec.json.encode(fields) + b"\n")
            if progress is not None and (done % _PROGRESS_STEP == 0 or done == len(ordered)):
                progress("writing", done, len(ordered))


def _line_fields(entry: Entry, links: Sequence[Link], access: Access | None) -> dict[str, Any]:
    fields: dict[str, Any] = codec.to_builtins(entry)
    if links:
        fields["links"] = [
            {"relation": link.relation, "target": link.target, "created_at": link.created_at}
            for link in links
        ]
    if access is not None and access.count:
        fields["access"] = codec.to_builtins(access)
    return fields


def _read_lines(
    path: Path, scope: Scope, agent_id: str | None, progress: ProgressCallback | None
) -> dict[str, _ImportLine]:
    lines: dict[str, _ImportLine] = {}
    locations: dict[str, str] = {}
    now = clock.now()  # read once, so that two equal lines become equal entries
    for done, (location, fields) in enumerate(iter_jsonl(path), 1):
        line = _parse_line(fields, scope.replace(agent_id=agent_id), location, now)
        id = line.entry.id
        if id in lines and lines[id].entry != line.entry:
            raise Invalid(f"{location}: id", f"{id!r} is that of {locations[id]}", "give each memory its own")
        if not scope.contains(line.entry):
            raise Invalid(
                f"{location}: memory {id!r}", "lies outside the scope", "pass a scope that holds it"
            )
        if line.entry.superseded_by == id:
            raise Invalid(f"{location}: superseded_by", "names the memory itself", "name another")
        lines[id], locations[id] = line, location
        if progress is not None and done % _PROGRESS_STEP == 0:
            progress("reading", done, None)
    if progress is not None:
        progress("reading", len(lines), len(lines))
    return lines


def _parse_line(fields: Any, scope: Scope, location: str, now: int) -> _ImportLine:
    if not isinstance(fields, dict):
        raise WrongType(location, "a JSON object", fields, "write each memory as an object of its fields")
    links, access = fields.pop("links", None), fields.pop("access", None)
    values = {**fields, **{name: getattr(scope, name) for name in _SCOPE_FIELDS if fields.get(name) is None}}
    if values["user_id"] is None:
        del values["user_id"]  # ids that follow from the fields stay as they were before there were users
    if values["agent_id"] is None:
        raise Invalid(
            f"{location}: agent_id", "is missing", "add it, or name the agent whose memory it becomes"
        )
    whole = values.get("id") is not None and values.get("created_at") is not None
    try:
        if values.get("id") is None:
            values["id"] = content_id("mem_", [[name, values[name]] for name in sorted(values)])
        if values.get("created_at") is None:
            values["created_at"] = now
        entry = codec.from_builtins(values, Entry)
    except Invalid as error:
        raise error_at(location, error) from error
    access_count = None if access is None else _decode_value(access, Access, f"{location}: access")
    return _ImportLine(entry, _parse_links(entry.id, links, location), access_count, whole)


def _parse_links(source: str, values: Any, location: str) -> tuple[Link, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(value, Mapping) for value in values):
        raise WrongType(f"{location}: links", "a list of objects", values)
    return tuple(
        _decode_value({**value, "source": source}, Link, f"{location}: links[{index}]")
        for index, value in enumerate(values)
    )


def _decode_value(value: Any, kind: type[V], location: str) -> V:
    try:
        return codec.from_builtins(value, kind)
    except Invalid as error:
        field = error.field.removeprefix(kind.__name__)
        raise Invalid(f"{location}{field}", error.problem, error.remedy) from error


def content_id(prefix: str, content: Any) -> str:
    """Return an id derived from content: the same content has the same id."""
    return prefix + sha256(msgspec.json.encode(content)).hexdigest()[:32]


async def _resolve_entry(store: Any, line: _ImportLine) -> Entry:
    """Return the entry of a line; if the line has no id, the stored entry with the same content and type."""
    stored = None if line.is_complete else await _find_entry(store, line.entry.id, line.entry.scope)
    matches = stored is not None and (stored.content, stored.type) == (line.entry.content, line.entry.type)
    return semantics.replace_unchecked(stored, stale=False) if stored is not None and matches else line.entry


async def _find_entry(store: Any, id: str, scope: Scope) -> Entry | None:
    reader: SupportsGet = require(store, SupportsGet, "find a memory by its id")
    try:
        return await reader.get(id, scope)
    except NotFound:
        return None
