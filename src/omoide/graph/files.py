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
from omoide.graph.parser import NO_DEFAULTS, ImportDefaults, MemoryBatch, parse_by_namespace
from omoide.graph.serializer import entries_to_nquads
from omoide.graph.vocabulary import JIDO, PREFIXES, TYPE, TYPES
from omoide.stores import codec
from omoide.stores.records import Access, Link
from omoide.stores.url import atomic_file, map_file_errors

# formats: In which format is a file of triples?


class FileFormat(msgspec.Struct, frozen=True, kw_only=True):
    """One way to write triples down."""

    name: str
    extension: str
    rdf: RdfFormat
    supports_graphs: bool = True
    """Whether it can say in which named graph a triple lies."""


FORMATS = MappingProxyType(
    {
        kind.name: kind
        for kind in (
            FileFormat(name="turtle", extension=".ttl", rdf=RdfFormat.TURTLE, supports_graphs=False),
            FileFormat(name="trig", extension=".trig", rdf=RdfFormat.TRIG),
            FileFormat(name="jsonld", extension=".jsonld", rdf=RdfFormat.JSON_LD),
            FileFormat(name="nquads", extension=".nq", rdf=RdfFormat.N_QUADS),
        )
    }
)

_EXTENSIONS = MappingProxyType({kind.extension: kind for kind in FORMATS.values()})


def resolve_format(path: object = None, format: str | None = None) -> FileFormat:
    """The format that is named, or else the one that the ending of a path stands for."""
    if format is not None:
        if format not in FORMATS:
            raise Invalid("format", f"is {format!r}", f"use one of {', '.join(FORMATS)}")
        return FORMATS[format]
    ending = PurePath(str(path)).suffix.lower() if path is not None else ""
    if ending not in _EXTENSIONS:
        told = f"cannot be told from {PurePath(str(path)).name!r}" if path is not None else "is missing"
        raise Invalid("format", told, f"end the name in {', '.join(_EXTENSIONS)}, or pass format=")
    return _EXTENSIONS[ending]


# files: How do memories leave for a file, and come back from one?


ProgressCallback = Callable[[int, int | None], object]
"""Called with how many memories are done, and how many there are where that is known."""
StrPath = str | os.PathLike[str]

PAGE_SIZE = 500
MAX_IN_MEMORY_BYTES = 16 << 20
"""Up to how many bytes a file is read at once; a larger one goes through a triple store on disk."""

_EVIDENCE = f"<{vocabulary.EVIDENCE}"


def export(
    pages: Iterable[MemoryBatch],
    target: StrPath | IO[bytes],
    format: str | None = None,
    *,
    progress: ProgressCallback | None = None,
    total: int | None = None,
) -> int:
    """Write memories to a file, and say how many; the format follows from the name unless it is given."""
    path = Path(target) if isinstance(target, (str, os.PathLike)) else None
    kind = resolve_format(path, format)
    counted = _CountedPages(pages, kind, progress, total)
    with _map_errors(str(path or "file"), "written"):
        if path is None:
            with SpooledTemporaryFile(max_size=MAX_IN_MEMORY_BYTES) as whole:
                _write(counted, cast("IO[bytes]", whole), kind)
                whole.seek(0)
                copyfileobj(cast("IO[bytes]", whole), cast("IO[bytes]", target))
        else:
            with atomic_file(path) as file:
                _write(counted, file, kind)
    return counted.written


def read_pages(
    source: StrPath | bytes | IO[bytes],
    format: str | None = None,
    *,
    defaults: ImportDefaults = NO_DEFAULTS,
    progress: ProgressCallback | None = None,
    page_size: int = PAGE_SIZE,
    max_in_memory: int = MAX_IN_MEMORY_BYTES,
) -> Iterator[MemoryBatch]:
    """The memories of a file, page by page, once all of them are known to be right."""
    path = Path(source) if isinstance(source, (str, os.PathLike)) else None
    kind = resolve_format(path, format)
    kept = SpooledTemporaryFile(max_size=MAX_IN_MEMORY_BYTES)  # noqa: SIM115 - the pages given out close it
    try:
        with _map_errors(str(path or "file"), "read"), _open_source(source, path) as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            found = (
                _read_in_memory(file, kind, defaults, page_size)
                if size <= max_in_memory
                else _read_via_disk(file, kind, defaults, page_size)
            )
            total = 0
            for memories in found:
                total += len(memories.entries)
                _spool_page(memories, cast("IO[bytes]", kept))
    except BaseException:
        kept.close()
        raise
    return _unspool_pages(cast("IO[bytes]", kept), progress, total)


class _CountedPages:
    """Pages on their way to a file."""

    def __init__(
        self,
        pages: Iterable[MemoryBatch],
        kind: FileFormat,
        progress: ProgressCallback | None,
        total: int | None,
    ) -> None:
        self.pages = pages
        self.format = kind
        self.progress = progress
        self.total = total
        self.written = 0
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
            if len(self.namespaces) > 1 and not self.format.supports_graphs:
                raise Invalid(
                    "format",
                    f"{self.format.name} cannot tell the memories of several namespaces apart",
                    "use trig, jsonld or nquads, or export one namespace at a time",
                )
            yield entries_to_nquads(page.entries, page.links, page.access)
            self.written += len(page.entries)
            if self.progress is not None:
                self.progress(self.written, self.total)


def _write(pages: _CountedPages, file: IO[bytes], kind: FileFormat) -> None:
    if kind.rdf == RdfFormat.N_QUADS:
        for text in pages.nquads():
            file.write(text.encode())
        return
    quads = (quad for text in pages.nquads() for quad in parse(text, RdfFormat.N_QUADS))
    told: Iterable[Any] = quads
    if not kind.supports_graphs:
        told = (Triple(quad.subject, quad.predicate, quad.object) for quad in quads)
    serialize(told, file, kind.rdf, prefixes=dict(PREFIXES))


@contextmanager
def _open_source(source: Any, path: Path | None) -> Iterator[IO[bytes]]:
    """What is to be read, as something that can be read twice."""
    if path is not None:
        with path.open("rb") as file:
            yield file
    elif isinstance(source, (bytes, bytearray, memoryview)):
        yield BytesIO(source)
    elif hasattr(source, "read"):
        with SpooledTemporaryFile(max_size=MAX_IN_MEMORY_BYTES) as whole:
            copyfileobj(source, cast("IO[bytes]", whole))
            yield cast("IO[bytes]", whole)
    else:
        raise WrongType("source", "a path, bytes or a file opened for reading bytes", source)


@contextmanager
def _map_errors(name: str, action: str) -> Iterator[None]:
    """What goes wrong with files, in words of ours."""
    try:
        with map_file_errors(name, action):
            yield
    except SyntaxError as error:
        place = f"{name} line {error.lineno}" if error.lineno else name
        raise InvalidRDF(
            place, f"cannot be read ({error.msg})", "correct the file, or name its format"
        ) from error


def _read_in_memory(
    file: IO[bytes], kind: FileFormat, defaults: ImportDefaults, page_size: int
) -> Iterator[MemoryBatch]:
    for whole in parse_by_namespace(parse(file.read(), kind.rdf), defaults).values():
        begun: dict[str, list[Link]] = {}
        for link in whole.links:
            begun.setdefault(link.source, []).append(link)
        for at in range(0, len(whole.entries), page_size):
            entries = whole.entries[at : at + page_size]
            yield MemoryBatch(
                entries=entries,
                links=tuple(link for entry in entries for link in begun.get(entry.id, ())),
                access={entry.id: whole.access[entry.id] for entry in entries if entry.id in whole.access},
            )


def _read_via_disk(
    file: IO[bytes], kind: FileFormat, defaults: ImportDefaults, page_size: int
) -> Iterator[MemoryBatch]:
    """The same through a triple store on disk, which finds together what lies apart in the file."""
    with TemporaryDirectory(prefix="omoide-") as folder:
        yield from _read_from_store(Store(folder), file, kind, defaults, page_size)


def _read_from_store(
    store: Store, file: IO[bytes], kind: FileFormat, defaults: ImportDefaults, page_size: int
) -> Iterator[MemoryBatch]:
    store.bulk_load(file, kind.rdf)

    def is_memory(iri: str) -> bool:
        return _memory_class(store, NamedNode(iri)) is not None

    subjects = _memory_subjects(store)
    while some := list(islice(subjects, page_size)):
        about = (quad for subject in some for quad in _quads_about(store, subject))
        yield from parse_by_namespace(about, defaults, is_memory).values()


def _memory_subjects(store: Store) -> Iterator[Any]:
    """Each memory once: those that have the class of one, and those that have only the name of one."""
    for iri in TYPES:
        for quad in store.quads_for_pattern(None, NamedNode(TYPE), NamedNode(iri)):
            if _memory_class(store, quad.subject) == (iri, str(quad.graph_name)):
                yield quad.subject
    summary = NamedNode(f"{JIDO}summary")
    for quad in store.quads_for_pattern(None, summary, None):
        named = isinstance(quad.subject, NamedNode) and quad.subject.value.startswith(vocabulary.MEMORY)
        if named and _memory_class(store, quad.subject) is None:
            said = map(str, store.quads_for_pattern(quad.subject, summary, None))
            if str(quad) == min(said):
                yield quad.subject


def _memory_class(store: Store, subject: Any) -> tuple[str, str] | None:
    """A class of memories that a subject has, and the graph that says so, the same each time."""
    types = store.quads_for_pattern(subject, NamedNode(TYPE), None)
    said = ((quad.object, quad.graph_name) for quad in types)
    known = ((term.value, str(graph)) for term, graph in said if isinstance(term, NamedNode))
    return min((pair for pair in known if pair[0] in TYPES), default=None)


def _quads_about(store: Store, subject: Any) -> Iterator[Quad]:
    """What is said of a memory, and of its evidence unless that is a memory itself."""
    for quad in store.quads_for_pattern(subject, None, None):
        yield quad
        if quad.predicate.value != f"{JIDO}derivedFrom" or isinstance(quad.object, (Literal, Triple)):
            continue
        if str(quad.object).startswith(_EVIDENCE) or _memory_class(store, quad.object) is None:
            yield from store.quads_for_pattern(quad.object, None, None, quad.graph_name)


def _spool_page(page: MemoryBatch, file: IO[bytes]) -> None:
    links = [(link.source, link.relation, link.target, link.created_at) for link in page.links]
    access = {id: (used.count, used.last) for id, used in page.access.items()}
    entries = [(codec.encode_entry(entry), entry.stale) for entry in page.entries]
    data = msgspec.msgpack.encode((entries, links, access))
    file.write(len(data).to_bytes(8, "big") + data)


_SpooledPage = tuple[
    list[tuple[bytes, bool]], list[tuple[str, str, str, int]], dict[str, tuple[int, int | None]]
]


def _unspool_pages(file: IO[bytes], progress: ProgressCallback | None, total: int) -> Iterator[MemoryBatch]:
    done = 0
    with file:
        file.seek(0)
        while size := file.read(8):
            kept = msgspec.msgpack.decode(file.read(int.from_bytes(size, "big")), type=_SpooledPage)
            entries, links, access = kept
            yield MemoryBatch(
                entries=tuple(_decode_entry(body, stale) for body, stale in entries),
                links=tuple(
                    Link(source=source, relation=relation, target=target, created_at=at)
                    for source, relation, target, at in links
                ),
                access={id: Access(count=count, last=last) for id, (count, last) in access.items()},
            )
            done += len(entries)
            if progress is not None:
                progress(done, total)


def _decode_entry(body: bytes, stale: bool) -> Entry:
    """The entry that was kept; whether it is stale is not part of what stores write down."""
    entry = codec.decode_entry(body)
    return entry.replace(stale=True) if stale else entry
