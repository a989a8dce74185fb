"""Memories survive the way to a file and back."""

from __future__ import annotations

import errno
import json
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import rdflib
from hypothesis import given
from hypothesis import strategies as st
from pyoxigraph import parse
from tests.support.graph_memories import NOW, memories

from omoide import Entry, Evidence
from omoide.errors import DiskFull, Invalid, InvalidRDF, NotFound, StoreFailed, WrongType
from omoide.graph import ImportDefaults, MemoryBatch, to_nquads
from omoide.graph.files import FORMATS, export, read_pages, resolve_format
from omoide.stores import Access, Link

NAMES = list(FORMATS)
formats = pytest.mark.parametrize("format", NAMES)
Memory = tuple[Entry, tuple[Link, ...], Access | None]


def page(start: int, count: int, namespace: str = "default") -> MemoryBatch:
    entries = tuple(
        Entry(
            id=f"m{at}",
            agent_id="a",
            session_id=f"s{at % 3}",
            namespace=namespace,
            type="fact",
            content=f"fact number {at}",
            evidence=(Evidence(kind="message", ref=f"t:{at % 5}"),),
            created_at=NOW + at,
            rev=1,
        )
        for at in range(start, start + count)
    )
    links = tuple(
        Link(source=entry.id, relation="refines", target="m0", created_at=NOW) for entry in entries[::2]
    )
    return MemoryBatch(entries=entries, links=links, access={entries[0].id: Access(count=2, last=NOW)})


def parts_of(pages: Any) -> tuple[list[Any], list[Any], dict[str, Any]]:
    """All parts of some pages, in an order of their own."""
    pages = list(pages)
    entries = sorted((e for p in pages for e in p.entries), key=lambda e: (e.namespace, e.id))
    links = sorted((link for p in pages for link in p.links), key=str)
    return entries, links, {id: used for p in pages for id, used in p.access.items()}


def export_bytes(pages: list[MemoryBatch], format: str) -> bytes:
    file = BytesIO()
    export(pages, file, format)
    return file.getvalue()


@formats
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_memories_come_back_from_a_file(tmp_path: Path, format: str, small: int) -> None:
    """Every format brings back all memories, links and use, at once or through a triple store on disk."""
    pages = [page(0, 7), page(7, 7), page(14, 3)]
    path = tmp_path / f"memories{FORMATS[format].extension}"
    assert export(pages, path) == 17
    found = list(read_pages(path, page_size=4, max_in_memory=small))
    assert parts_of(found) == parts_of(pages)
    assert max(len(some.entries) for some in found) <= 4


@given(
    st.lists(memories(), max_size=4, unique_by=lambda memory: memory[0].id),
    st.sampled_from(NAMES),
    st.sampled_from((0, 1 << 20)),
)
def test_every_memory_survives_every_format(several: list[Memory], format: str, small: int) -> None:
    """Whatever entries hold, no format and neither way of reading loses any of it."""
    entries = tuple(entry.replace(namespace="n") for entry, _, _ in several)
    links = tuple(link for _, links, _ in several for link in links)
    access = {entry.id: used for entry, _, used in several if used is not None}
    pages = [MemoryBatch(entries=entries, links=links, access=access)]
    assert parts_of(read_pages(export_bytes(pages, format), format, max_in_memory=small)) == parts_of(pages)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:rdflib")
@formats
def test_other_libraries_read_the_files(format: str) -> None:
    """A library that shares no code finds the same number of triples and the same contents in a file."""
    data = export_bytes([page(0, 5)], format)
    graph = rdflib.Dataset().parse(data=data, format={"jsonld": "json-ld"}.get(format, format))
    summary = rdflib.URIRef("https://jido.ai/ontology#summary")
    texts = {str(quad[2]) for quad in graph.quads((None, summary, None, None))}
    assert texts == {f"fact number {at}" for at in range(5)}
    assert len(set(graph.quads())) == len(set(parse(data, FORMATS[format].rdf)))


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_namespaces_stay_apart(small: int) -> None:
    """Memories of one id in two namespaces keep their own links and use, on pages of their own."""
    one = page(0, 2, "one")
    two = MemoryBatch(entries=page(0, 2, "two").entries)
    found = list(read_pages(export_bytes([one, two], "trig"), "trig", max_in_memory=small))
    assert all(len({entry.namespace for entry in some.entries}) == 1 for some in found)
    by_name = {some.entries[0].namespace: some for some in found}
    assert parts_of([by_name["one"]]) == parts_of([one])
    assert parts_of([by_name["two"]]) == parts_of([two])


def test_turtle_holds_one_namespace_only() -> None:
    """A format without graphs would mix up namespaces, so it refuses; and so does a page of several."""
    pages = [page(0, 1, "one"), page(0, 1, "two")]
    with pytest.raises(Invalid, match="several namespaces apart"):
        export(pages, BytesIO(), "turtle")
    mixed = MemoryBatch(entries=pages[0].entries + pages[1].entries)
    with pytest.raises(Invalid, match="pages hold one of several"):
        export([mixed], BytesIO(), "nquads")


@formats
def test_an_empty_export_is_a_valid_file(format: str) -> None:
    """No memories make a file that can be read, and that holds none."""
    assert list(read_pages(export_bytes([], format), format)) == []


def test_progress_is_told(tmp_path: Path) -> None:
    """Both ways say after each page how many memories are done, and of how many where that is known."""
    told: list[tuple[int, int | None]] = []
    path = tmp_path / "x.nq"
    export([page(0, 3), page(3, 2)], path, progress=lambda *at: told.append(at), total=5)
    assert told == [(3, 5), (5, 5)]
    told.clear()
    for _ in read_pages(path, page_size=2, progress=lambda *at: told.append(at)):
        pass
    assert told == [(2, 5), (4, 5), (5, 5)]


@formats
def test_a_file_appears_only_when_it_is_complete(tmp_path: Path, format: str) -> None:
    """When the memories stop coming, the file that was there stays as it was and nothing else is left."""
    path = tmp_path / f"x{FORMATS[format].extension}"
    path.write_text("the old one", "utf-8")

    def failing() -> Iterator[MemoryBatch]:
        yield page(0, 3)
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        export(failing(), path)
    assert [(file.name, file.read_text("utf-8")) for file in tmp_path.iterdir()] == [
        (path.name, "the old one")
    ]
    file = BytesIO()
    with pytest.raises(RuntimeError, match="no more"):
        export(failing(), file, format)
    assert file.getvalue() == b""


def test_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When there is no room, the error says so and no half of a file stays behind."""

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(DiskFull, match="no room left"):
        export([page(0, 1)], tmp_path / "x.ttl")
    assert list(tmp_path.iterdir()) == []


def test_wrong_places_are_told(tmp_path: Path) -> None:
    """A folder that is not there, a file that is a folder, and something that is no file are typed errors."""
    with pytest.raises(NotFound, match="not there"):
        export([page(0, 1)], tmp_path / "not there" / "x.ttl")
    with pytest.raises(NotFound, match="gone"):
        read_pages(tmp_path / "gone.ttl")
    (tmp_path / "folder.ttl").mkdir()
    with pytest.raises(StoreFailed, match="cannot be read"):
        read_pages(tmp_path / "folder.ttl")
    with pytest.raises(StoreFailed, match="cannot be written"):
        export([page(0, 1)], tmp_path / "folder.ttl")
    assert [path.name for path in tmp_path.iterdir()] == ["folder.ttl"]
    with pytest.raises(WrongType, match="source"):
        read_pages(7, "turtle")  # type: ignore[arg-type]


def test_the_format_is_that_of_the_ending_or_the_one_named() -> None:
    """The four endings are known whatever their case; a name that says nothing needs a format."""
    assert [resolve_format(f"a.b/X{kind.extension.upper()}").name for kind in FORMATS.values()] == NAMES
    assert resolve_format("x.ttl", "nquads").name == "nquads"
    for path, format, problem in [("x.txt", None, "x.txt"), (None, None, "missing"), ("x.ttl", "xml", "xml")]:
        with pytest.raises(Invalid, match=problem):
            resolve_format(path, format)


BROKEN = {
    "turtle": b"@prefix a: <urn:a> .\n\na:b c:d 3 .",
    "trig": b"<urn:g> {\n <urn:a> <urn:b> .\n",
    "jsonld": b'[\n{"@id": "urn:a",\n',
    "nquads": b'<urn:a> <urn:b> "x" .\n<urn:a> "x" .\n',
}


@formats
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_broken_file_is_refused_with_its_line(tmp_path: Path, format: str, small: int) -> None:
    """What is not the format it claims to be gives nothing out, and the error names file and line."""
    path = tmp_path / f"x{FORMATS[format].extension}"
    path.write_bytes(BROKEN[format])
    with pytest.raises(InvalidRDF, match=rf"x\{FORMATS[format].extension} line [23] cannot be read"):
        read_pages(path, max_in_memory=small)


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_one_wrong_memory_refuses_the_whole_file(small: int) -> None:
    """Nothing is given out when one memory of many cannot be, and the error names it."""
    data = export_bytes([page(0, 30)], "nquads").replace(b'"1"^^', b'"one"^^', 1)
    with pytest.raises(InvalidRDF, match=r"memory_m\d+> revision is 'one'"):
        read_pages(data, "nquads", page_size=5, max_in_memory=small)


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_context_from_elsewhere_is_not_fetched(small: int) -> None:
    """JSON-LD that names a context on the network is refused, and nothing is asked of the network."""
    data = json.dumps({"@context": "http://127.0.0.1:9/context", "name": "x"}).encode()
    with pytest.raises(InvalidRDF, match="context"):
        read_pages(data, "jsonld", max_in_memory=small)


OTHERS = b"""
@prefix jido: <https://jido.ai/ontology#> .
<urn:m> a jido:Fact, jido:MemoryItem ; jido:summary "one" ; jido:refines <urn:n>, <urn:nothing> ;
    jido:derivedFrom <urn:n>, [ jido:evidenceReference "r" ] .
<urn:n> a jido:Hypothesis ; jido:summary "two" .
jido:memory_x jido:summary "three" .
<urn:g> { jido:memory_x jido:summary "three" . }
<urn:h> { jido:session_1 a jido:WorkSession . }
"""


@pytest.mark.parametrize("page", [1, 100])
@pytest.mark.parametrize("small", [0, 1 << 20])
def test_files_of_others_read_the_same_either_way(page: int, small: int) -> None:
    """Foreign names, several classes, several graphs and evidence without a name give each memory once."""
    missing = ImportDefaults(agent_id="a", created_at=NOW)
    entries, links, _ = parts_of(
        read_pages(OTHERS, "trig", defaults=missing, page_size=page, max_in_memory=small)
    )
    assert [(entry.id, entry.type) for entry in entries] == [
        ("urn:m", "fact"),
        ("urn:n", "hypothesis"),
        ("x", None),
    ]
    assert set(entries[0].evidence) == {
        Evidence(kind="entry", ref="urn:n"),
        Evidence(kind="document", ref="r"),
    }
    assert [(link.source, link.target) for link in links] == [("urn:m", "urn:n")]


@pytest.mark.parametrize("small", [0, 1 << 20])
def test_a_memory_that_is_told_in_two_ways_is_refused(small: int) -> None:
    """Two graphs of one file that contradict each other about a memory are an error, however large it is."""
    data = OTHERS.replace(b'"three"', b'"four"', 1)
    with pytest.raises(InvalidRDF, match="described twice"):
        read_pages(
            data,
            "trig",
            defaults=ImportDefaults(agent_id="a", created_at=NOW),
            page_size=1,
            max_in_memory=small,
        )


def test_open_files_are_read_from_where_they_stand() -> None:
    """Anything that gives bytes can be read, even if it cannot go back."""

    class Stream:
        def __init__(self, data: bytes) -> None:
            self.file = BytesIO(data)

        def read(self, size: int = -1) -> bytes:
            return self.file.read(size)

    data = to_nquads(page(0, 1).entries[0]).encode()
    stream: Any = Stream(data)
    assert parts_of(read_pages(stream, "nquads"))[0] == list(page(0, 1).entries)


def test_large_exports_need_little_memory(tmp_path: Path) -> None:
    """Writing twenty times as many pages does not take more memory than writing a few."""

    def peak(count: int) -> int:
        tracemalloc.start()
        export((page(at * 100, 100) for at in range(count)), tmp_path / "x.ttl")
        size = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return size

    peak(1)
    assert peak(40) < 2 * peak(2)


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After reading through a triple store on disk, whether it went well or not, no file of it is left."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    data = export_bytes([page(0, 30)], "nquads")
    list(read_pages(data, "nquads", max_in_memory=0))
    with pytest.raises(InvalidRDF):
        read_pages(data + b"nonsense", "nquads", max_in_memory=0)
    with pytest.raises(InvalidRDF):
        read_pages(data.replace(b'"1"^^', b'"one"^^', 1), "nquads", max_in_memory=0)
    assert list(tmp_path.iterdir()) == []
