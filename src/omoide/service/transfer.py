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
from omoide.stores.async_store import LocalStore, hop
from omoide.stores.protocols import Documents, Gets, ListsDocuments, Namespaces, Projects, Store, Takes
from omoide.stores.records import Access, Document, Feed, Link
from omoide.stores.redaction import masked
from omoide.stores.sqlite.store import path_of
from omoide.stores.url import complete, failing
from omoide.verbs import offering

# holdings: What does a namespace hold, all of it?


Progress = Callable[[str, int, int | None], object]
"""Called with what is being done, how much of it is done, and how much there is where that is known."""


def quiet(name: str, done: int, total: int | None) -> None:
    """Tell nobody."""


PART = 1_000
"""How many entries are taken over at a time, where they can be told apart."""
_PORTION = 10_000


class Holdings(msgspec.Struct, kw_only=True):
    """Entries of one namespace, with their links and figures."""

    entries: dict[str, Entry] = {}
    links: list[Link] = []
    access: dict[str, Access] = {}

    def within(self, scope: Scope) -> Holdings:
        """What of it a scope holds; a link belongs there with both its ends."""
        return self._only({id: entry for id, entry in self.entries.items() if scope.holds(entry)})

    def parts(self, size: int = PART) -> Iterator[Holdings]:
        """The same in parts of about this size; what rests on one another or is linked stays together."""
        begun: dict[str, list[Link]] = {}
        for link in self.links:
            begun.setdefault(link.source, []).append(link)
        some: dict[str, Entry] = {}
        for group in self._groups():
            some.update((entry.id, entry) for entry in group)
            if len(some) >= size:
                yield self._part(some, begun)
                some = {}
        if some:
            yield self._part(some, begun)

    def _only(self, entries: dict[str, Entry]) -> Holdings:
        links = [link for link in self.links if link.source in entries and link.target in entries]
        access = {id: used for id, used in self.access.items() if id in entries}
        return Holdings(entries=entries, links=links, access=access)

    def _part(self, entries: dict[str, Entry], begun: dict[str, list[Link]]) -> Holdings:
        links = [link for id in entries for link in begun.get(id, ())]
        access = {id: self.access[id] for id in entries if id in self.access}
        return Holdings(entries=entries, links=links, access=access)

    def _groups(self) -> Iterable[list[Entry]]:
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


async def of(store: Any, namespace: str) -> Holdings:
    """All that a store holds in a namespace, as of one moment after this was asked."""
    able: Projects = offering(store, Projects, "tell all that it holds")
    feed = await able.changed(namespace, limit=_PORTION)
    life, found = feed.life, _Heard()
    found.hear(feed)
    while feed.more:
        feed = await able.changed(namespace, after=feed.seq, limit=_PORTION)
        if feed.life != life:  # a backup was put in its place meanwhile
            return await of(store, namespace)
        found.hear(feed)
    return found.told()


class _Heard:
    """What was heard of a namespace so far: what changed again meanwhile is heard again."""

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}
        self._links: dict[str, list[Link]] = {}
        self._access: dict[str, Access] = {}

    def hear(self, feed: Feed) -> None:
        for id in (*feed.gone, *(entry.id for entry in feed.entries)):
            self._entries.pop(id, None)
            self._links.pop(id, None)
        self._entries.update((entry.id, entry) for entry in feed.entries)
        for link in feed.links:
            self._links.setdefault(link.source, []).append(link)
        self._access.update(feed.access)

    def told(self) -> Holdings:
        links = [link for begun in self._links.values() for link in begun]
        return Holdings(links=links, access=self._access)._only(self._entries)


# copying: How does everything get from one store to another?


PRIVATE = auth.PLACE.namespace
REMEDY = "erase one of them, or copy into an empty store"
NO_DOCUMENTS = "documents (sessions, agents at rest) were not copied: a store cannot keep or list them"


class Copied(msgspec.Struct, frozen=True, kw_only=True):
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
    progress: Progress | None = None,
) -> Copied:
    """Copy some namespaces, or all, from one store to another; what is there already is left as it is.

    Nothing is written where the target holds something else under an id. Tokens are copied only with
    `tokens`. What was copied before a failure stays, and copying again goes on from there.
    """
    refuse_same(source, target)
    offering(target, Takes, "take memories over")
    offering(target, Store, "list its memories")
    chosen = await _chosen(source, namespaces, tokens=tokens)
    able = _documents_fit(source, target)
    total = 0
    for namespace in chosen:
        total += await _check(source, target, namespace, documents=able)
    told = progress or quiet
    done = Copied(namespaces=tuple(chosen), notices=() if able else (NO_DOCUMENTS,))
    for namespace in chosen:
        for part in (await of(source, namespace)).parts():
            new = await _taken(target, part)
            done = _more(done, memories=len(part.entries), new=new)
            told("memories", done.memories, max(total, done.memories))
        if able:
            async for document in _each(source, namespace):
                saved = await _saved(target, document)
                done = _more(done, documents=1, new_documents=int(saved))
                told("documents", done.documents, None)
    return done


def refuse_same(source: Any, target: Any) -> None:
    """Raise where both are one store."""
    if source is target or (_place(source) is not None and _place(source) == _place(target)):
        raise Invalid("target", f"{target!r} is the source itself", "name another store")


def _place(store: Any) -> str | None:
    """What tells one store from another, if anything does."""
    if not isinstance(store, LocalStore):
        return None
    scheme = urlsplit(store.url).scheme
    if scheme == "memory":  # each is another
        return None
    return str(path_of(store.url).resolve()) if scheme == "sqlite" else masked(store.url)


async def _chosen(source: Any, named: Iterable[str] | None, *, tokens: bool) -> list[str]:
    if named is not None:
        return check_namespaces(named, tokens=tokens)
    able: Namespaces = offering(source, Namespaces, "list its namespaces")
    return [name for name in await able.namespaces() if tokens or name != PRIVATE]


def check_namespaces(named: Iterable[str], *, tokens: bool) -> list[str]:
    """The namespaces that are named, each once, if they may be copied."""
    chosen = [*dict.fromkeys(ids.check(name, "namespaces") for name in check_texts(named, "namespaces"))]
    if PRIVATE in chosen and not tokens:
        raise Invalid("namespaces", f"hold {PRIVATE!r}, where tokens are", "ask for the tokens as well")
    return chosen


def _documents_fit(source: Any, target: Any) -> bool:
    lists = all(isinstance(source, part) for part in (Documents, ListsDocuments, Namespaces))
    return lists and isinstance(target, Documents)


async def _check(source: Any, target: Any, namespace: str, *, documents: bool) -> int:
    """Raise where the target holds something else under an id; how many memories there are to copy."""
    found = await of(source, namespace)
    there = {entry.id: entry for entry in await target.list_entries(Scope(namespace=namespace))}
    differing = [
        semantics.changed(entry, stale=False)
        for id, entry in found.entries.items()
        if id in there and not _is_same(entry, there[id])
    ]
    # The target has the last word: its guard may have changed what it was given before.
    await _taken(target, Holdings(entries={entry.id: entry for entry in differing}))
    if documents:
        async for document in _each(source, namespace):
            await _known(target, document)
    return len(found.entries)


def _is_same(one: Entry, other: Entry) -> bool:
    return semantics.changed(one, stale=False) == semantics.changed(other, stale=False)


async def _taken(target: Any, part: Holdings) -> int:
    try:
        return int(await target.take([*part.entries.values()], part.links, part.access))
    except IdTaken as error:
        raise Invalid(f"memory {error.id!r}", "is another one in the target", REMEDY) from error


async def _each(source: Any, namespace: str) -> AsyncIterator[Document]:
    """The documents of a namespace, transcripts first, so that nothing ever points to one that is missing."""
    scope = Scope(namespace=namespace)
    for kind in sorted(await source.kinds(namespace), key=lambda kind: kind != semantics.KIND):
        after: str | None = None
        while page := await source.documents(kind, scope, after=after):
            for listed in page:
                document = await source.load(kind, listed.id, scope)
                if document is not None:  # it may have been erased meanwhile
                    yield document
            after = page[-1].id


async def _known(target: Any, document: Document) -> bool:
    """Whether the target has a document already; raises where it has another one of that id."""
    kept = await target.load(document.kind, document.id, Scope(namespace=document.namespace))
    if kept is None:
        return False
    if document.replace(rev=kept.rev, updated_at=kept.updated_at) != kept:
        raise Invalid(f"{document.kind} {document.id!r}", "is another one in the target", REMEDY)
    return True


async def _saved(target: Any, document: Document) -> bool:
    """Keep a document; whether it was new."""
    if await _known(target, document):
        return False
    await target.save(document, expected_rev=0)
    return True


def _more(done: Copied, **counts: int) -> Copied:
    changes = {name: getattr(done, name) + count for name, count in counts.items()}
    return msgspec.structs.replace(done, **changes)


# lines: How are memories written down one a line?


V = TypeVar("V")

LONGEST = 32 << 20
"""How many bytes a line may have."""
_WHOSE = ("namespace", "agent_id", "session_id", "project_id")
_PAGE = 500


class Imported(NamedTuple):
    """What came of a file."""

    memories: int
    new: int
    left_out: int = 0
    """How many messages said nothing that could be remembered."""


class _Line(NamedTuple):
    entry: Entry
    links: tuple[Link, ...]
    access: Access | None
    whole: bool
    """Whether the line says itself which memory it is, and when it was noted."""


async def write(store: Any, path: Path, scope: Scope, *, progress: Progress | None = None) -> int:
    """Write what a scope holds to a file; how many memories that were."""
    check_instance(scope, "scope", kind=Scope)
    held = (await of(store, scope.namespace)).within(scope)
    await hop(_write, held, path, progress)
    return len(held.entries)


async def read(store: Any, path: Path, scope: Scope, *, progress: Progress | None = None) -> Imported:
    """Take over the memories of a file, all or none; what the store has already is left as it is.

    The scope says whose they are where the file does not, and must hold all of them.
    """
    check_instance(scope, "scope", kind=Scope)
    able: Takes = offering(store, Takes, "take memories over")
    given = await hop(_read, path, scope, progress)
    entries = {id: await _meant(store, line) for id, line in given.items()}
    links = [
        link
        for line in given.values()
        for link in line.links
        # A link whose end was left behind where the file was written has nowhere to lead to.
        if link.target in entries or await _kept(store, link.target, scope) is not None
    ]
    access = {id: line.access for id, line in given.items() if line.access is not None}
    return Imported(len(entries), await able.take([*entries.values()], links, access))


def each(path: Path) -> Iterator[tuple[str, Any]]:
    """What the lines of a file hold, each with the name of its place; empty ones are passed over."""
    with failing(str(path), "read"), path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST + 1):
            number += 1
            place = f"{path.name} line {number}"
            if len(line) > LONGEST:
                raise Invalid(place, f"has more than {LONGEST >> 20} MiB", "cut it into several")
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if text.strip():
                yield place, decoded(text, place)


def decoded(data: bytes, place: str) -> Any:
    """What JSON says."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeError) as error:
        raise Invalid(place, f"is not readable JSON ({error})", "correct it, or name the format") from error
    except RecursionError:
        raise Invalid(place, "is nested too deeply", "flatten it") from None


def under(place: str, error: Invalid) -> Invalid:
    """An error of a value that stands at a place of a file."""
    field = error.field.removeprefix("Entry").removeprefix(".")
    return Invalid(f"{place}: {field}" if field else place, error.problem, error.remedy)


def _write(held: Holdings, path: Path, progress: Progress | None) -> None:
    begun: dict[str, list[Link]] = {}
    for link in held.links:
        begun.setdefault(link.source, []).append(link)
    ordered = sorted(held.entries.values(), key=lambda entry: (entry.created_at, entry.id))
    with failing(str(path), "written"), complete(path) as file:
        for done, entry in enumerate(ordered, 1):
            fields = _fields(entry, begun.get(entry.id, ()), held.access.get(entry.id))
            file.write(msgspec.json.encode(fields) + b"\n")
            if progress is not None and (done % _PAGE == 0 or done == len(ordered)):
                progress("writing", done, len(ordered))


def _fields(entry: Entry, links: Sequence[Link], access: Access | None) -> dict[str, Any]:
    fields: dict[str, Any] = codec.to_builtins(entry)
    if links:
        fields["links"] = [
            {"relation": link.relation, "target": link.target, "created_at": link.created_at}
            for link in links
        ]
    if access is not None and access.count:
        fields["access"] = codec.to_builtins(access)
    return fields


def _read(path: Path, scope: Scope, progress: Progress | None) -> dict[str, _Line]:
    found: dict[str, _Line] = {}
    places: dict[str, str] = {}
    now = clock.now()  # once, so that two lines that say the same are the same
    for done, (place, fields) in enumerate(each(path), 1):
        line = _line(fields, scope, place, now)
        id = line.entry.id
        if id in found and found[id].entry != line.entry:
            raise Invalid(f"{place}: id", f"{id!r} is that of {places[id]}", "give each memory its own")
        if not scope.holds(line.entry):
            raise Invalid(f"{place}: memory {id!r}", "lies outside the scope", "pass a scope that holds it")
        if line.entry.superseded_by == id:
            raise Invalid(f"{place}: superseded_by", "names the memory itself", "name another")
        found[id], places[id] = line, place
        if progress is not None and done % _PAGE == 0:
            progress("reading", done, None)
    if progress is not None:
        progress("reading", len(found), len(found))
    return found


def _line(fields: Any, scope: Scope, place: str, now: int) -> _Line:
    if not isinstance(fields, dict):
        raise WrongType(place, "a JSON object", fields, "write each memory as an object of its fields")
    links, access = fields.pop("links", None), fields.pop("access", None)
    said = {**fields, **{name: getattr(scope, name) for name in _WHOSE if fields.get(name) is None}}
    if said["agent_id"] is None:
        raise Invalid(f"{place}: agent_id", "is missing", "add it, or name the agent whose memory it becomes")
    whole = said.get("id") is not None and said.get("created_at") is not None
    try:
        if said.get("id") is None:
            said["id"] = digest("mem_", [[name, said[name]] for name in sorted(said)])
        if said.get("created_at") is None:
            said["created_at"] = now
        entry = codec.from_builtins(said, Entry)
    except Invalid as error:
        raise under(place, error) from error
    used = None if access is None else _read_part(access, Access, f"{place}: access")
    return _Line(entry, _links(entry.id, links, place), used, whole)


def _links(source: str, given: Any, place: str) -> tuple[Link, ...]:
    if given is None:
        return ()
    if not isinstance(given, list) or not all(isinstance(one, Mapping) for one in given):
        raise WrongType(f"{place}: links", "a list of objects", given)
    return tuple(
        _read_part({**one, "source": source}, Link, f"{place}: links[{at}]") for at, one in enumerate(given)
    )


def _read_part(given: Any, kind: type[V], place: str) -> V:
    try:
        return codec.from_builtins(given, kind)
    except Invalid as error:
        field = error.field.removeprefix(kind.__name__)
        raise Invalid(f"{place}{field}", error.problem, error.remedy) from error


def digest(prefix: str, said: Any) -> str:
    """An id that is always the same for what says the same."""
    return prefix + sha256(msgspec.json.encode(said)).hexdigest()[:32]


async def _meant(store: Any, line: _Line) -> Entry:
    """The entry; where the line leaves open which, the one that is kept and says the same."""
    kept = None if line.whole else await _kept(store, line.entry.id, line.entry.scope)
    same = kept is not None and (kept.content, kept.type) == (line.entry.content, line.entry.type)
    return semantics.changed(kept, stale=False) if kept is not None and same else line.entry


async def _kept(store: Any, id: str, scope: Scope) -> Entry | None:
    able: Gets = offering(store, Gets, "find a memory by its id")
    try:
        return await able.get(id, scope)
    except NotFound:
        return None
