"""RDF files.

Both go page by page, so that neither needs room for all memories at once. A file appears under its name only
when it is complete, and nothing is given out from one before all of it was read and understood.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import islice
from pathlib import Path, PurePath
from shutil import copyfileobj
from tempfile import SpooledTemporaryFile, TemporaryDirectory
from types import MappingProxyType
from typing import IO, Any, cast

from omoide.errors import Invalid, InvalidRDF, MissingExtra, WrongType

try:
    from pyoxigraph import RdfFormat
except ImportError as error:
    raise MissingExtra("the graph", "graph") from error
try:
    from pyoxigraph import Literal, NamedNode, Quad, RdfFormat, Store, Triple, parse, serialize
except ImportError as error:
    raise MissingExtra("the graph", "graph") from error

import msgspec

from omoide.core.entry import Entry
from omoide.graph import vocabulary
from omoide.graph.parser import NOTHING, Memories, Missing, by_namespace
from omoide.graph.serializer import all_to_nquads
from omoide.graph.vocabulary import JIDO, PREFIXES, TYPE, TYPES
from omoide.stores import codec
from omoide.stores.records import Access, Link
from omoide.stores.url import complete, failing

# formats: In which format is a file of triples?


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write triples down."""

    name: str
    ending: str
    rdf: RdfFormat
    graphs: bool = True
    """Whether it can say in which named graph a triple lies."""


FORMATS = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            Format(name="turtle", ending=".ttl", rdf=RdfFormat.TURTLE, graphs=False),
            Format(name="trig", ending=".trig", rdf=RdfFormat.TRIG),
            Format(name="jsonld", ending=".jsonld", rdf=RdfFormat.JSON_LD),
            Format(name="nquads", ending=".nq", rdf=RdfFormat.N_QUADS),
        )
    }
)

_ENDINGS = MappingProxyType({kind.ending: kind for kind in FORMATS.values()})


def choose(path: object = None, format: str | None = None) -> Format:
    """The format that is named, or else the one that the ending of a path stands for."""
    if format is not None:
        if format not in FORMATS:
            raise Invalid("format", f"is {format!r}", f"use one of {', '.join(FORMATS)}")
        return FORMATS[format]
    ending = PurePath(str(path)).suffix.lower() if path is not None else ""
    if ending not in _ENDINGS:
        told = f"cannot be told from {PurePath(str(path)).name!r}" if path is not None else "is missing"
        raise Invalid("format", told, f"end the name in {', '.join(_ENDINGS)}, or pass format=")
    return _ENDINGS[ending]


# files: How do memories leave for a file, and come back from one?


Progress = Callable[[int, int | None], object]
"""Called with how many memories are done, and how many there are where that is known."""
Place = str | os.PathLike[str]

PAGE = 500
SMALL = 16 << 20
"""Up to how many bytes a file is read at once; a larger one goes through a triple store on disk."""

_EVIDENCE = f"<{vocabulary.EVIDENCE}"


def export(
    pages: Iterable[Memories],
    target: Place | IO[bytes],
    format: str | None = None,
    *,
    progress: Progress | None = None,
    total: int | None = None,
) -> int:
    """Write memories to a file, and say how many; the format follows from the name unless it is given."""
    path = Path(target) if isinstance(target, (str, os.PathLike)) else None
    kind = choose(path, format)
    counted = _Counted(pages, kind, progress, total)
    with _failing(str(path or "file"), "written"):
        if path is None:
            with SpooledTemporaryFile(max_size=SMALL) as whole:
                _write(counted, cast("IO[bytes]", whole), kind)
                whole.seek(0)
                copyfileobj(cast("IO[bytes]", whole), cast("IO[bytes]", target))
        else:
            with complete(path) as file:
                _write(counted, file, kind)
    return counted.done


def read(
    source: Place | bytes | IO[bytes],
    format: str | None = None,
    *,
    missing: Missing = NOTHING,
    progress: Progress | None = None,
    page: int = PAGE,
    small: int = SMALL,
) -> Iterator[Memories]:
    """The memories of a file, page by page, once all of them are known to be right."""
    path = Path(source) if isinstance(source, (str, os.PathLike)) else None
    kind = choose(path, format)
    kept = SpooledTemporaryFile(max_size=SMALL)  # noqa: SIM115 - the pages given out close it
    try:
        with _failing(str(path or "file"), "read"), _opened(source, path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            found = (
                _at_once(file, kind, missing, page)
                if size <= small
                else _by_subject(file, kind, missing, page)
            )
            total = 0
            for memories in found:
                total += len(memories.entries)
                _keep(memories, cast("IO[bytes]", kept))
    except BaseException:
        kept.close()
        raise
    return _given_out(cast("IO[bytes]", kept), progress, total)


class _Counted:
    """Pages on their way to a file."""

    def __init__(
        self, pages: Iterable[Memories], kind: Format, progress: Progress | None, total: int | None
    ) -> None:
        self.pages = pages
        self.kind = kind
        self.progress = progress
        self.total = total
        self.done = 0
        self.namespaces: set[str] = set()

    def nquads(self) -> Iterator[str]:
        """Each page as N-Quads."""
        for page in self.pages:
            here = {entry.namespace for entry in page.entries}
            if len(here) > 1:
                raise Invalid(
                    "pages", "hold one of several namespaces", "give each namespace pages of its own"
                )
            self.namespaces |= here
            if len(self.namespaces) > 1 and not self.kind.graphs:
                raise Invalid(
                    "format",
                    f"{self.kind.name} cannot tell the memories of several namespaces apart",
                    "use trig, jsonld or nquads, or export one namespace at a time",
                )
            yield all_to_nquads(page.entries, page.links, page.access)
            self.done += len(page.entries)
            if self.progress is not None:
                self.progress(self.done, self.total)


def _write(pages: _Counted, file: IO[bytes], kind: Format) -> None:
    if kind.rdf == RdfFormat.N_QUADS:
        for text in pages.nquads():
            file.write(text.encode())
        return
    quads = (quad for text in pages.nquads() for quad in parse(text, RdfFormat.N_QUADS))
    told: Iterable[Any] = quads
    if not kind.graphs:
        told = (Triple(quad.subject, quad.predicate, quad.object) for quad in quads)
    serialize(told, file, kind.rdf, prefixes=dict(PREFIXES))


@contextmanager
def _opened(source: Any, path: Path | None) -> Iterator[IO[bytes]]:
    """What is to be read, as something that can be read twice."""
    if path is not None:
        with path.open("rb") as file:
            yield file
    elif isinstance(source, (bytes, bytearray, memoryview)):
        yield BytesIO(source)
    elif hasattr(source, "read"):
        with SpooledTemporaryFile(max_size=SMALL) as whole:
            copyfileobj(source, cast("IO[bytes]", whole))
            yield cast("IO[bytes]", whole)
    else:
        raise WrongType("source", "a path, bytes or a file opened for reading bytes", source)


@contextmanager
def _failing(name: str, done: str) -> Iterator[None]:
    """What goes wrong with files, in words of ours."""
    try:
        with failing(name, done):
            yield
    except SyntaxError as error:
        place = f"{name} line {error.lineno}" if error.lineno else name
        raise InvalidRDF(
            place, f"cannot be read ({error.msg})", "correct the file, or name its format"
        ) from error


def _at_once(file: IO[bytes], kind: Format, missing: Missing, page: int) -> Iterator[Memories]:
    for whole in by_namespace(parse(file.read(), kind.rdf), missing).values():
        begun: dict[str, list[Link]] = {}
        for link in whole.links:
            begun.setdefault(link.source, []).append(link)
        for at in range(0, len(whole.entries), page):
            entries = whole.entries[at : at + page]
            yield Memories(
                entries=entries,
                links=tuple(link for entry in entries for link in begun.get(entry.id, ())),
                access={entry.id: whole.access[entry.id] for entry in entries if entry.id in whole.access},
            )


def _by_subject(file: IO[bytes], kind: Format, missing: Missing, page: int) -> Iterator[Memories]:
    """The same through a triple store on disk, which finds together what lies apart in the file."""
    with TemporaryDirectory(prefix="omoide-") as folder:
        yield from _from_store(Store(folder), file, kind, missing, page)


def _from_store(
    store: Store, file: IO[bytes], kind: Format, missing: Missing, page: int
) -> Iterator[Memories]:
    store.bulk_load(file, kind.rdf)

    def is_memory(iri: str) -> bool:
        return _first(store, NamedNode(iri)) is not None

    subjects = _subjects(store)
    while some := list(islice(subjects, page)):
        about = (quad for subject in some for quad in _about(store, subject))
        yield from by_namespace(about, missing, is_memory).values()


def _subjects(store: Store) -> Iterator[Any]:
    """Each memory once: those that have the class of one, and those that have only the name of one."""
    for iri in TYPES:
        for quad in store.quads_for_pattern(None, NamedNode(TYPE), NamedNode(iri)):
            if _first(store, quad.subject) == (iri, str(quad.graph_name)):
                yield quad.subject
    summary = NamedNode(f"{JIDO}summary")
    for quad in store.quads_for_pattern(None, summary, None):
        named = isinstance(quad.subject, NamedNode) and quad.subject.value.startswith(vocabulary.MEMORY)
        if named and _first(store, quad.subject) is None:
            said = map(str, store.quads_for_pattern(quad.subject, summary, None))
            if str(quad) == min(said):
                yield quad.subject


def _first(store: Store, subject: Any) -> tuple[str, str] | None:
    """A class of memories that a subject has, and the graph that says so, the same each time."""
    types = store.quads_for_pattern(subject, NamedNode(TYPE), None)
    said = ((quad.object, quad.graph_name) for quad in types)
    known = ((term.value, str(graph)) for term, graph in said if isinstance(term, NamedNode))
    return min((pair for pair in known if pair[0] in TYPES), default=None)


def _about(store: Store, subject: Any) -> Iterator[Quad]:
    """What is said of a memory, and of its evidence unless that is a memory itself."""
    for quad in store.quads_for_pattern(subject, None, None):
        yield quad
        if quad.predicate.value != f"{JIDO}derivedFrom" or isinstance(quad.object, (Literal, Triple)):
            continue
        if str(quad.object).startswith(_EVIDENCE) or _first(store, quad.object) is None:
            yield from store.quads_for_pattern(quad.object, None, None, quad.graph_name)


def _keep(page: Memories, file: IO[bytes]) -> None:
    links = [(link.source, link.relation, link.target, link.created_at) for link in page.links]
    access = {id: (used.count, used.last) for id, used in page.access.items()}
    entries = [(codec.pack(entry), entry.stale) for entry in page.entries]
    data = msgspec.msgpack.encode((entries, links, access))
    file.write(len(data).to_bytes(8, "big") + data)


_Kept = tuple[list[tuple[bytes, bool]], list[tuple[str, str, str, int]], dict[str, tuple[int, int | None]]]


def _given_out(file: IO[bytes], progress: Progress | None, total: int) -> Iterator[Memories]:
    done = 0
    with file:
        file.seek(0)
        while size := file.read(8):
            kept = msgspec.msgpack.decode(file.read(int.from_bytes(size, "big")), type=_Kept)
            entries, links, access = kept
            yield Memories(
                entries=tuple(_entry(body, stale) for body, stale in entries),
                links=tuple(
                    Link(source=source, relation=relation, target=target, created_at=at)
                    for source, relation, target, at in links
                ),
                access={id: Access(count=count, last=last) for id, (count, last) in access.items()},
            )
            done += len(entries)
            if progress is not None:
                progress(done, total)


def _entry(body: bytes, stale: bool) -> Entry:
    """The entry that was kept; whether it is stale is not part of what stores write down."""
    entry = codec.unpack(body)
    return entry.replace(stale=True) if stale else entry
