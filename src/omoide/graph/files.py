"""Export memories to RDF files, and read them back.

Both work page by page, so that memory use does not grow with the number of memories. A file appears under its
name only when it is complete, and a page is returned only after the whole file was parsed and validated.
Files are parsed in a process of their own (`sandbox`), which their content may end without harm.
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

from omoide.errors import Invalid, MissingExtra, WrongType

try:
    from pyoxigraph import Literal, NamedNode, Quad, RdfFormat, Store, Triple, parse, serialize
except ImportError as error:
    raise MissingExtra("the graph", "graph") from error

import msgspec

from omoide.core.entry import Entry
from omoide.graph import vocabulary
from omoide.graph.parser import NO_DEFAULTS, ImportDefaults, MemoryBatch, parse_by_namespace
from omoide.graph.resources import Describe, ImportSurvey, with_descriptions
from omoide.graph.sandbox import parse_in_process
from omoide.graph.serializer import AS_EVIDENCE, triples_by_graph, triples_to_nquads
from omoide.graph.vocabulary import JIDO, PREFIXES, TYPE, TYPES
from omoide.stores import records
from omoide.stores.factory import atomic_file, map_file_errors
from omoide.stores.records import Access, Link


class FileFormat(msgspec.Struct, frozen=True, kw_only=True):
    """An RDF serialization."""

    name: str
    extension: str
    rdf: RdfFormat
    supports_graphs: bool = True
    """True if the format can hold several named graphs."""


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
    """Return the format of this name, or else the one that the extension of the path stands for."""
    if format is not None:
        if format not in FORMATS:
            raise Invalid("format", f"is {format!r}", f"use one of {', '.join(FORMATS)}")
        return FORMATS[format]
    extension = PurePath(str(path)).suffix.lower() if path is not None else ""
    if extension not in _EXTENSIONS:
        problem = f"cannot be derived from {PurePath(str(path)).name!r}" if path is not None else "is missing"
        raise Invalid("format", problem, f"end the name in {', '.join(_EXTENSIONS)}, or pass format=")
    return _EXTENSIONS[extension]


ProgressCallback = Callable[[int, int | None], object]
"""Called with the number of memories processed, and their total if it is known."""
StrPath = str | os.PathLike[str]

PAGE_SIZE = 500
MAX_IN_MEMORY_BYTES = 16 << 20
"""Size of statements up to which they are kept in memory; more are loaded into a triple store on disk."""

_EVIDENCE = f"<{vocabulary.EVIDENCE}"
_NODE_PROPERTIES = frozenset({f"{JIDO}derivedFrom", f"{JIDO}justifiedBy", AS_EVIDENCE})
"""Properties of memories whose objects are read with them."""


def export(
    pages: Iterable[MemoryBatch],
    target: StrPath | IO[bytes],
    format: str | None = None,
    *,
    progress: ProgressCallback | None = None,
    total: int | None = None,
    describe: Describe | None = None,
) -> int:
    """Write memories to a file and return their number.

    Args:
        pages: memories; each page is of one namespace.
        target: path, or binary file object.
        format: name of the format; by default the extension of the path decides.
        progress: called after each page.
        total: number of memories, for `progress`.
        describe: returns the descriptions of sessions, agents and the like.

    Raises:
        Invalid: the format is unknown or cannot hold several namespaces.
    """
    path = Path(target) if isinstance(target, (str, os.PathLike)) else None
    kind = resolve_format(path, format)
    counted = _CountedPages(pages, kind, progress, total, describe)
    with map_file_errors(str(path or "file"), "written"):
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
    survey: ImportSurvey | None = None,
) -> Iterator[MemoryBatch]:
    """Return the memories of a file, page by page, after all of it was validated.

    Args:
        source: path, bytes, or binary file object.
        format: name of the format; by default the extension of the path decides.
        defaults: values for what foreign triples do not state.
        progress: called after each page.
        page_size: memories per page.
        max_in_memory: size in bytes up to which the statements of the file, as N-Quads, are kept in memory.
        survey: collects the other resources, and what was passed over.

    Raises:
        InvalidRDF: the file cannot be parsed, or describes an invalid memory.
    """
    path = Path(source) if isinstance(source, (str, os.PathLike)) else None
    kind = resolve_format(path, format)
    spool = SpooledTemporaryFile(max_size=MAX_IN_MEMORY_BYTES)  # noqa: SIM115 - closed by the returned pages
    try:
        with map_file_errors(str(path or "file"), "read"), _open_source(source, path) as file:
            total = 0
            with parse_in_process(str(path or "file"), file, kind.rdf.media_type) as statements:
                size = statements.seek(0, os.SEEK_END)
                statements.seek(0)
                read = _read_in_memory if size <= max_in_memory else _read_via_disk
                for page in read(statements, defaults, page_size, survey):
                    total += len(page.entries)
                    _spool_page(page, cast("IO[bytes]", spool))
    except BaseException:
        spool.close()
        raise
    return _unspool_pages(cast("IO[bytes]", spool), progress, total)


class _CountedPages:
    """Pages that count the memories written and check their namespaces."""

    def __init__(
        self,
        pages: Iterable[MemoryBatch],
        kind: FileFormat,
        progress: ProgressCallback | None,
        total: int | None,
        describe: Describe | None,
    ) -> None:
        self.describe = describe
        self.pages = pages
        self.format = kind
        self.progress = progress
        self.total = total
        self.written = 0
        self.namespaces: set[str] = set()

    def nquads(self) -> Iterator[str]:
        """Yield each page as N-Quads."""
        for page in self.pages:
            namespaces = {entry.namespace for entry in page.entries}
            if len(namespaces) > 1:
                raise Invalid(
                    "pages", "hold one of several namespaces", "give each namespace pages of its own"
                )
            self.namespaces |= namespaces
            if len(self.namespaces) > 1 and not self.format.supports_graphs:
                raise Invalid(
                    "format",
                    f"{self.format.name} cannot tell the memories of several namespaces apart",
                    "use trig, jsonld or nquads, or export one namespace at a time",
                )
            triples = triples_by_graph(page.entries, page.links, page.access)
            if self.describe is not None and namespaces:
                described = self.describe(next(iter(namespaces)), triples)
                triples, _ = with_descriptions(triples, described)
            yield triples_to_nquads(triples)
            self.written += len(page.entries)
            if self.progress is not None:
                self.progress(self.written, self.total)


def _write(pages: _CountedPages, file: IO[bytes], kind: FileFormat) -> None:
    if kind.rdf == RdfFormat.N_QUADS:
        for text in pages.nquads():
            file.write(text.encode())
        return
    quads = (quad for text in pages.nquads() for quad in parse(text, RdfFormat.N_QUADS))
    statements: Iterable[Any] = quads
    if not kind.supports_graphs:
        statements = (Triple(quad.subject, quad.predicate, quad.object) for quad in quads)
    serialize(statements, file, kind.rdf, prefixes=dict(PREFIXES))


@contextmanager
def _open_source(source: Any, path: Path | None) -> Iterator[IO[bytes]]:
    """Open a source as a file that can be read twice."""
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


def _read_in_memory(
    statements: IO[bytes], defaults: ImportDefaults, page_size: int, survey: ImportSurvey | None
) -> Iterator[MemoryBatch]:
    """Yield pages of N-Quads."""
    quads = parse(statements.read(), RdfFormat.N_QUADS)
    for batch in parse_by_namespace(quads, defaults, survey=survey).values():
        links_by_source: dict[str, list[Link]] = {}
        for link in batch.links:
            links_by_source.setdefault(link.source, []).append(link)
        for at in range(0, len(batch.entries), page_size):
            entries = batch.entries[at : at + page_size]
            yield MemoryBatch(
                entries=entries,
                links=tuple(link for entry in entries for link in links_by_source.get(entry.id, ())),
                access={entry.id: batch.access[entry.id] for entry in entries if entry.id in batch.access},
            )


def _read_via_disk(
    statements: IO[bytes], defaults: ImportDefaults, page_size: int, survey: ImportSurvey | None
) -> Iterator[MemoryBatch]:
    """Yield pages of N-Quads through a triple store on disk, which collects those that lie apart."""
    with TemporaryDirectory(prefix="omoide-") as folder:
        yield from _read_from_store(Store(folder), statements, defaults, page_size, survey)


def _read_from_store(
    store: Store,
    statements: IO[bytes],
    defaults: ImportDefaults,
    page_size: int,
    survey: ImportSurvey | None = None,
) -> Iterator[MemoryBatch]:
    store.bulk_load(statements, RdfFormat.N_QUADS)

    def is_memory(iri: str) -> bool:
        return _memory_class(store, NamedNode(iri)) is not None

    subjects = _memory_subjects(store)
    while chunk := list(islice(subjects, page_size)):
        quads = (quad for subject in chunk for quad in _quads_about(store, subject))
        own = None if survey is None else _MemorySurvey(survey)
        yield from parse_by_namespace(quads, defaults, is_memory, own).values()
    if survey is not None:
        for subject in _other_subjects(store):
            others = store.quads_for_pattern(subject, None, None)
            parse_by_namespace(others, defaults, survey=survey)


class _MemorySurvey(ImportSurvey):
    """Passes on what was passed over of memories; other nodes come later, each once and whole."""

    def __init__(self, survey: ImportSurvey) -> None:
        super().__init__()
        self.pass_over = survey.pass_over  # type: ignore[method-assign]

    def add(self, namespace: str, subject: Any, node: Any) -> None:
        pass


def _other_subjects(store: Store) -> Iterator[Any]:
    """Yield each subject that is no memory once."""
    last = None
    for quad in store.quads_for_pattern(None, None, None):  # ordered by subject
        if quad.subject != last and _memory_class(store, quad.subject) is None:
            yield quad.subject
        last = quad.subject


def _memory_subjects(store: Store) -> Iterator[Any]:
    """Yield each memory once: subjects with a memory class, and subjects with only the IRI of a memory."""
    for iri in TYPES:
        for quad in store.quads_for_pattern(None, NamedNode(TYPE), NamedNode(iri)):
            if _memory_class(store, quad.subject) == (iri, str(quad.graph_name)):
                yield quad.subject
    summary = NamedNode(f"{JIDO}summary")
    for quad in store.quads_for_pattern(None, summary, None):
        is_memory_iri = isinstance(quad.subject, NamedNode) and quad.subject.value.startswith(
            vocabulary.MEMORY
        )
        if is_memory_iri and _memory_class(store, quad.subject) is None:
            statements = map(str, store.quads_for_pattern(quad.subject, summary, None))
            if str(quad) == min(statements):
                yield quad.subject


def _memory_class(store: Store, subject: Any) -> tuple[str, str] | None:
    """Return the first memory class of a subject and the graph that states it; the same on every call."""
    types = store.quads_for_pattern(subject, NamedNode(TYPE), None)
    statements = ((quad.object, quad.graph_name) for quad in types)
    classes = ((term.value, str(graph)) for term, graph in statements if isinstance(term, NamedNode))
    return min((pair for pair in classes if pair[0] in TYPES), default=None)


def _quads_about(store: Store, subject: Any) -> Iterator[Quad]:
    """Yield the quads about a memory, and about its evidence unless that is a memory itself."""
    for quad in store.quads_for_pattern(subject, None, None):
        yield quad
        if quad.predicate.value not in _NODE_PROPERTIES or isinstance(quad.object, (Literal, Triple)):
            continue
        if str(quad.object).startswith(_EVIDENCE) or _memory_class(store, quad.object) is None:
            yield from store.quads_for_pattern(quad.object, None, None, quad.graph_name)


def _spool_page(page: MemoryBatch, file: IO[bytes]) -> None:
    links = [(link.source, link.relation, link.target, link.created_at) for link in page.links]
    access = {id: (counts.count, counts.last) for id, counts in page.access.items()}
    entries = [(records.encode_entry(entry), entry.stale) for entry in page.entries]
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
            spooled = msgspec.msgpack.decode(file.read(int.from_bytes(size, "big")), type=_SpooledPage)
            entries, links, access = spooled
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
    """Return a spooled entry; staleness is not part of the stored form."""
    entry = records.decode_entry(body)
    return entry.replace(stale=True) if stale else entry
