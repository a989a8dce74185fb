"""Export, import and copy of a namespace.

Entries as they are, also those that were forgotten or no longer hold, the links between them, and how often
they were used. `parts` cuts it where nothing hangs together, so that each part can be taken over by itself.

Memories come as they are, with what was forgotten and why, what no longer holds, links and figures of use;
documents come with what was appended to them. Earlier versions of memories, and what was erased, stay behind.

Each line is a JSON object with all fields of an entry; beside them stand its `links`, and `access`, how often
it was used, where there are any. Other programs may write less: what a line leaves out is filled in, and
always in the same way.
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
from omoide.stores import semantics, truth
from omoide.stores.async_store import AsyncStore, run_in_thread
from omoide.stores.protocols import (
    Store,
    SupportsDocuments,
    SupportsFeed,
    SupportsGet,
    SupportsImport,
)
from omoide.stores.records import Access, Document, Feed, Link
from omoide.stores.redaction import mask_url
from omoide.stores.sqlite.store import path_of
from omoide.stores.url import atomic_file, map_file_errors
from omoide.verbs import require

# holdings: What does a namespace hold, all of it?


ProgressCallback = Callable[[str, int, int | None], object]
"""Called with what is being done, how much of it is done, and how much there is where that is known."""


def ignore_progress(name: str, done: int, total: int | None) -> None:
    """Tell nobody."""


BATCH_SIZE = 1_000
"""How many entries are taken over at a time, where they can be told apart."""
_FEED_LIMIT = 10_000


class NamespaceDump(msgspec.Struct, kw_only=True):
    """Entries of one namespace, with their links and figures."""

    entries: dict[str, Entry] = {}
    links: list[Link] = []
    access: dict[str, Access] = {}

    def in_scope(self, scope: Scope) -> NamespaceDump:
        """What of it a scope holds; a link belongs there with both its ends."""
        return self._subset({id: entry for id, entry in self.entries.items() if scope.contains(entry)})

    def batches(self, size: int = BATCH_SIZE) -> Iterator[NamespaceDump]:
        """The same in parts of about this size; what rests on one another or is linked stays together."""
        begun: dict[str, list[Link]] = {}
        for link in self.links:
            begun.setdefault(link.source, []).append(link)
        some: dict[str, Entry] = {}
        for group in self._connected_groups():
            some.update((entry.id, entry) for entry in group)
            if len(some) >= size:
                yield self._batch(some, begun)
                some = {}
        if some:
            yield self._batch(some, begun)

    def _subset(self, entries: dict[str, Entry]) -> NamespaceDump:
        links = [link for link in self.links if link.source in entries and link.target in entries]
        access = {id: used for id, used in self.access.items() if id in entries}
        return NamespaceDump(entries=entries, links=links, access=access)

    def _batch(self, entries: dict[str, Entry], links_by_source: dict[str, list[Link]]) -> NamespaceDump:
        links = [link for id in entries for link in links_by_source.get(id, ())]
        access = {id: self.access[id] for id in entries if id in self.access}
        return NamespaceDump(entries=entries, links=links, access=access)

    def _connected_groups(self) -> Iterable[list[Entry]]:
        """The entries that hang together, also by something they rest on that is not here any more."""
        above: dict[str, str] = {}

        def top(id: str) -> str:
            while (next_ := above.get(id, id)) != id:
                above[id] = id = above.get(next_, next_)
            return id

        for entry in self.entries.values():
            for premise in truth.premises(entry):
                above[top(entry.id)] = top(premise)
        for link in self.links:
            above[top(link.source)] = top(link.target)
        groups: dict[str, list[Entry]] = {}
        for entry in self.entries.values():
            groups.setdefault(top(entry.id), []).append(entry)
        return groups.values()


async def dump_namespace(store: Any, namespace: str) -> NamespaceDump:
    """All that a store holds in a namespace, as of one moment after this was asked."""
    able: SupportsFeed = require(store, SupportsFeed, "tell all that it holds")
    feed = await able.change_feed(namespace, limit=_FEED_LIMIT)
    life, found = feed.generation, _FeedCollector()
    found.add(feed)
    while feed.more:
        feed = await able.change_feed(namespace, after=feed.seq, limit=_FEED_LIMIT)
        if feed.generation != life:  # a backup was put in its place meanwhile
            return await dump_namespace(store, namespace)
        found.add(feed)
    return found.to_dump()


class _FeedCollector:
    """What was heard of a namespace so far: what changed again meanwhile is heard again."""

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
        links = [link for begun in self._links.values() for link in begun]
        return NamespaceDump(links=links, access=self._access)._subset(self._entries)


# copying: How does everything get from one store to another?


TOKEN_NAMESPACE = auth.TOKEN_SCOPE.namespace
CONFLICT_REMEDY = "erase one of them, or copy into an empty store"
DOCUMENTS_SKIPPED = "documents (sessions, agents at rest) were not copied: a store cannot keep or list them"


class CopyReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was copied."""

    namespaces: tuple[str, ...] = ()
    memories: int = 0
    new: int = 0
    """How many of them were not there before."""
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
    """Copy some namespaces, or all, from one store to another; what is there already is left as it is.

    Nothing is written where the target holds something else under an id. Tokens are copied only with
    `tokens`. What was copied before a failure stays, and copying again goes on from there.
    """
    refuse_same(source, target)
    require(target, SupportsImport, "take memories over")
    require(target, Store, "list its memories")
    chosen = await _select_namespaces(source, namespaces, tokens=tokens)
    able = _can_copy_documents(source, target)
    total = 0
    for namespace in chosen:
        total += await _check_conflicts(source, target, namespace, documents=able)
    told = progress or ignore_progress
    done = CopyReport(namespaces=tuple(chosen), notices=() if able else (DOCUMENTS_SKIPPED,))
    for namespace in chosen:
        for part in (await dump_namespace(source, namespace)).batches():
            new = await _import_batch(target, part)
            done = _add_counts(done, memories=len(part.entries), new=new)
            told("memories", done.memories, max(total, done.memories))
        if able:
            async for document in _iter_documents(source, namespace):
                saved = await _save_document(target, document)
                done = _add_counts(done, documents=1, new_documents=int(saved))
                told("documents", done.documents, None)
    return done


def refuse_same(source: Any, target: Any) -> None:
    """Raise where both are one store."""
    if source is target or (
        _store_identity(source) is not None and _store_identity(source) == _store_identity(target)
    ):
        raise Invalid("target", f"{target!r} is the source itself", "name another store")


def _store_identity(store: Any) -> str | None:
    """What tells one store from another, if anything does."""
    if not isinstance(store, AsyncStore):
        return None
    scheme = urlsplit(store.url).scheme
    if scheme == "memory":  # each is another
        return None
    return str(path_of(store.url).resolve()) if scheme == "sqlite" else mask_url(store.url)


async def _select_namespaces(source: Any, names: Iterable[str] | None, *, tokens: bool) -> list[str]:
    if names is not None:
        return check_namespaces(names, tokens=tokens)
    able: SupportsDocuments = require(source, SupportsDocuments, "list its namespaces")
    return [name for name in await able.namespaces() if tokens or name != TOKEN_NAMESPACE]


def check_namespaces(names: Iterable[str], *, tokens: bool) -> list[str]:
    """The namespaces that are named, each once, if they may be copied."""
    chosen = [*dict.fromkeys(ids.check(name, "namespaces") for name in check_texts(names, "namespaces"))]
    if TOKEN_NAMESPACE in chosen and not tokens:
        raise Invalid(
            "namespaces", f"hold {TOKEN_NAMESPACE!r}, where tokens are", "ask for the tokens as well"
        )
    return chosen


def _can_copy_documents(source: Any, target: Any) -> bool:
    return isinstance(source, SupportsDocuments) and isinstance(target, SupportsDocuments)


async def _check_conflicts(source: Any, target: Any, namespace: str, *, documents: bool) -> int:
    """Raise where the target holds something else under an id; how many memories there are to copy."""
    found = await dump_namespace(source, namespace)
    there = {entry.id: entry for entry in await target.list_entries(Scope(namespace=namespace))}
    differing = [
        semantics.replace_unchecked(entry, stale=False)
        for id, entry in found.entries.items()
        if id in there and not _is_same_entry(entry, there[id])
    ]
    # The target has the last word: its guard may have changed what it was given before.
    await _import_batch(target, NamespaceDump(entries={entry.id: entry for entry in differing}))
    if documents:
        async for document in _iter_documents(source, namespace):
            await _has_document(target, document)
    return len(found.entries)


def _is_same_entry(one: Entry, other: Entry) -> bool:
    return semantics.replace_unchecked(one, stale=False) == semantics.replace_unchecked(other, stale=False)


async def _import_batch(target: Any, batch: NamespaceDump) -> int:
    try:
        return int(await target.import_entries([*batch.entries.values()], batch.links, batch.access))
    except IdTaken as error:
        raise Invalid(f"memory {error.id!r}", "is another one in the target", CONFLICT_REMEDY) from error


async def _iter_documents(source: Any, namespace: str) -> AsyncIterator[Document]:
    """The documents of a namespace, transcripts first, so that nothing ever points to one that is missing."""
    scope = Scope(namespace=namespace)
    for kind in sorted(await source.kinds(namespace), key=lambda kind: kind != semantics.THREAD_KIND):
        after: str | None = None
        while page := await source.documents(kind, scope, after=after):
            for listed in page:
                document = await source.load(kind, listed.id, scope)
                if document is not None:  # it may have been erased meanwhile
                    yield document
            after = page[-1].id


async def _has_document(target: Any, document: Document) -> bool:
    """Whether the target has a document already; raises where it has another one of that id."""
    kept = await target.load(document.kind, document.id, Scope(namespace=document.namespace))
    if kept is None:
        return False
    if document.replace(rev=kept.rev, updated_at=kept.updated_at) != kept:
        raise Invalid(f"{document.kind} {document.id!r}", "is another one in the target", CONFLICT_REMEDY)
    return True


async def _save_document(target: Any, document: Document) -> bool:
    """Keep a document; whether it was new."""
    if await _has_document(target, document):
        return False
    await target.save(document, expected_rev=0)
    return True


def _add_counts(report: CopyReport, **counts: int) -> CopyReport:
    changes = {name: getattr(report, name) + count for name, count in counts.items()}
    return msgspec.structs.replace(report, **changes)


# lines: How are memories written down one a line?


V = TypeVar("V")

MAX_LINE_BYTES = 32 << 20
"""How many bytes a line may have."""
_SCOPE_FIELDS = ("namespace", "agent_id", "session_id", "project_id")
_PROGRESS_STEP = 500


class ImportReport(NamedTuple):
    """What came of a file."""

    memories: int
    new: int
    left_out: int = 0
    """How many messages said nothing that could be remembered."""


class _ImportLine(NamedTuple):
    entry: Entry
    links: tuple[Link, ...]
    access: Access | None
    is_complete: bool
    """Whether the line says itself which memory it is, and when it was noted."""


async def export_jsonl(
    store: Any, path: Path, scope: Scope, *, progress: ProgressCallback | None = None
) -> int:
    """Write what a scope holds to a file; how many memories that were."""
    check_instance(scope, "scope", kind=Scope)
    held = (await dump_namespace(store, scope.namespace)).in_scope(scope)
    await run_in_thread(_write_jsonl, held, path, progress)
    return len(held.entries)


async def import_jsonl(
    store: Any, path: Path, scope: Scope, *, progress: ProgressCallback | None = None
) -> ImportReport:
    """Take over the memories of a file, all or none; what the store has already is left as it is.

    The scope says whose they are where the file does not, and must hold all of them.
    """
    check_instance(scope, "scope", kind=Scope)
    able: SupportsImport = require(store, SupportsImport, "take memories over")
    given = await run_in_thread(_read_lines, path, scope, progress)
    entries = {id: await _resolve_entry(store, line) for id, line in given.items()}
    links = [
        link
        for line in given.values()
        for link in line.links
        # A link whose end was left behind where the file was written has nowhere to lead to.
        if link.target in entries or await _find_entry(store, link.target, scope) is not None
    ]
    access = {id: line.access for id, line in given.items() if line.access is not None}
    return ImportReport(len(entries), await able.import_entries([*entries.values()], links, access))


def iter_jsonl(path: Path) -> Iterator[tuple[str, Any]]:
    """What the lines of a file hold, each with the name of its place; empty ones are passed over."""
    with map_file_errors(str(path), "read"), path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            place = f"{path.name} line {number}"
            if len(line) > MAX_LINE_BYTES:
                raise Invalid(place, f"has more than {MAX_LINE_BYTES >> 20} MiB", "cut it into several")
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield place, decode_json(text, place)


def decode_json(data: bytes, location: str) -> Any:
    """What JSON says."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(
            location, f"is not readable JSON ({error})", "correct it, or name the format"
        ) from error
    except RecursionError:
        raise Invalid(location, "is nested too deeply", "flatten it") from None


def error_at(location: str, error: Invalid) -> Invalid:
    """An error of a value that stands at a place of a file."""
    field = error.field.removeprefix("Entry").removeprefix(".")
    return Invalid(f"{location}: {field}" if field else location, error.problem, error.remedy)


def _write_jsonl(dump: NamespaceDump, path: Path, progress: ProgressCallback | None) -> None:
    begun: dict[str, list[Link]] = {}
    for link in dump.links:
        begun.setdefault(link.source, []).append(link)
    ordered = sorted(dump.entries.values(), key=lambda entry: (entry.created_at, entry.id))
    with map_file_errors(str(path), "written"), atomic_file(path) as file:
        for done, entry in enumerate(ordered, 1):
            fields = _line_fields(entry, begun.get(entry.id, ()), dump.access.get(entry.id))
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


def _read_lines(path: Path, scope: Scope, progress: ProgressCallback | None) -> dict[str, _ImportLine]:
    found: dict[str, _ImportLine] = {}
    places: dict[str, str] = {}
    now = clock.now()  # once, so that two lines that say the same are the same
    for done, (place, fields) in enumerate(iter_jsonl(path), 1):
        line = _parse_line(fields, scope, place, now)
        id = line.entry.id
        if id in found and found[id].entry != line.entry:
            raise Invalid(f"{place}: id", f"{id!r} is that of {places[id]}", "give each memory its own")
        if not scope.contains(line.entry):
            raise Invalid(f"{place}: memory {id!r}", "lies outside the scope", "pass a scope that holds it")
        if line.entry.superseded_by == id:
            raise Invalid(f"{place}: superseded_by", "names the memory itself", "name another")
        found[id], places[id] = line, place
        if progress is not None and done % _PROGRESS_STEP == 0:
            progress("reading", done, None)
    if progress is not None:
        progress("reading", len(found), len(found))
    return found


def _parse_line(fields: Any, scope: Scope, location: str, now: int) -> _ImportLine:
    if not isinstance(fields, dict):
        raise WrongType(location, "a JSON object", fields, "write each memory as an object of its fields")
    links, access = fields.pop("links", None), fields.pop("access", None)
    said = {**fields, **{name: getattr(scope, name) for name in _SCOPE_FIELDS if fields.get(name) is None}}
    if said["agent_id"] is None:
        raise Invalid(
            f"{location}: agent_id", "is missing", "add it, or name the agent whose memory it becomes"
        )
    whole = said.get("id") is not None and said.get("created_at") is not None
    try:
        if said.get("id") is None:
            said["id"] = content_id("mem_", [[name, said[name]] for name in sorted(said)])
        if said.get("created_at") is None:
            said["created_at"] = now
        entry = codec.from_builtins(said, Entry)
    except Invalid as error:
        raise error_at(location, error) from error
    used = None if access is None else _decode_value(access, Access, f"{location}: access")
    return _ImportLine(entry, _parse_links(entry.id, links, location), used, whole)


def _parse_links(source: str, values: Any, location: str) -> tuple[Link, ...]:
    if values is None:
        return ()
    if not isinstance(values, list) or not all(isinstance(one, Mapping) for one in values):
        raise WrongType(f"{location}: links", "a list of objects", values)
    return tuple(
        _decode_value({**one, "source": source}, Link, f"{location}: links[{at}]")
        for at, one in enumerate(values)
    )


def _decode_value(value: Any, kind: type[V], location: str) -> V:
    try:
        return codec.from_builtins(value, kind)
    except Invalid as error:
        field = error.field.removeprefix(kind.__name__)
        raise Invalid(f"{location}{field}", error.problem, error.remedy) from error


def content_id(prefix: str, content: Any) -> str:
    """An id that is always the same for what says the same."""
    return prefix + sha256(msgspec.json.encode(content)).hexdigest()[:32]


async def _resolve_entry(store: Any, line: _ImportLine) -> Entry:
    """The entry; where the line leaves open which, the one that is kept and says the same."""
    kept = None if line.is_complete else await _find_entry(store, line.entry.id, line.entry.scope)
    same = kept is not None and (kept.content, kept.type) == (line.entry.content, line.entry.type)
    return semantics.replace_unchecked(kept, stale=False) if kept is not None and same else line.entry


async def _find_entry(store: Any, id: str, scope: Scope) -> Entry | None:
    able: SupportsGet = require(store, SupportsGet, "find a memory by its id")
    try:
        return await able.get(id, scope)
    except NotFound:
        return None
