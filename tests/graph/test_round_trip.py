"""A store that leaves as a graph comes back as the same store."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import rdflib
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import EXAMPLES
from tests.support.graph_memories import NOW, entries, moments, relations

from omoide import Entry, Evidence, Scope, WriteRequest, clock, graph
from omoide.core.entry import ROOT_TYPE
from omoide.errors import IdTaken, Invalid, InvalidRDF, OmoideError
from omoide.graph import CLASSES, GraphView
from omoide.graph.files import FORMATS
from omoide.graph.vocabulary import JIDO
from omoide.stores import Access, AsyncStore, Link, open_store
from omoide.testing import FrozenClock

NAMES = list(FORMATS)
formats = pytest.mark.parametrize("format", NAMES)
ADA = Scope(namespace="n", agent_id="ada")


class Held(NamedTuple):
    """All that a store holds of a scope."""

    entries: dict[str, Entry]
    links: set[tuple[str, str, str, int]]
    access: dict[str, Access]


async def contents_of(store: AsyncStore, scope: Scope = ADA) -> Held:
    """What a store tells of a scope, entry by entry."""
    found = {entry.id: entry for entry in await store.list_entries(scope)}
    links = [link for id in found for link in await store.links(id, scope)]
    used = {id: await store.access(id, scope) for id in found}
    return Held(
        found,
        {(one.source, one.relation, one.target, one.created_at) for one in links},
        {id: one for id, one in used.items() if one.count},
    )


@asynccontextmanager
async def open_view(url: str = "memory://") -> AsyncIterator[tuple[AsyncStore, GraphView]]:
    """A store and a graph over it."""
    async with open_store(url, embedder="none") as store, graph.open(store) as view:
        yield store, view


def a_memory(at: int, **fields: Any) -> Entry:
    """One of many plain memories."""
    return Entry.new(
        {
            "id": f"m{at}",
            "agent_id": "ada",
            "session_id": f"s{at % 3}",
            "project_id": "tea" if at % 2 else None,
            "namespace": "n",
            "type": ("fact", "decision", "bug", None)[at % 4],
            "content": f"memory number {at}",
            "metadata": {"at": at, "more": [1.5, None, {"x": "y"}]},
            "created_at": NOW + at,
            **fields,
        }
    )


async def furnish(store: AsyncStore, count: int = 12) -> None:
    """Memories that are related, replaced, forgotten, used, and out of date."""
    rests = (Evidence(kind="entry", ref="m1"), Evidence(kind="message", ref="t:1", quote="so"))
    await store.write_many([WriteRequest(entry=a_memory(at)) for at in range(count)])
    await store.write(WriteRequest(entry=a_memory(count, evidence=rests)))
    await store.write(WriteRequest(entry=a_memory(0, content="changed since", rationale="it was wrong")))
    await store.link(Link(source="m3", relation="refines", target="m4", created_at=NOW), ADA)
    await store.link(Link(source="m3", relation="my own", target="m5", created_at=NOW + 1), ADA)
    await store.link(Link(source="m6", relation="invalidated_by", target="m7", created_at=NOW + 2), ADA)
    await store.supersede("m1", ADA, by="m2", reason="better known")
    await store.supersede("m8", ADA, reason="wrong")
    await store.record_access(["m3", "m4"], ADA)
    await store.record_access(["m3"], ADA)


@formats
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_a_store_comes_back_from_a_file(tmp_path: Path, format: str, kind: str) -> None:
    """Every entry with its revision and state, every link with its time, every use: all as it was."""
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'new.db'}"
    path = tmp_path / f"memories{FORMATS[format].extension}"
    async with open_view() as (store, view), open_view(url) as (fresh, other):
        await furnish(store)
        whole = await contents_of(store)
        assert whole.entries["m12"].stale
        assert whole.entries["m6"].stale
        assert whole.entries["m0"].rev == 2
        assert await view.export(path, ADA) == 13
        assert await other.load(path, ADA) == 13
        assert await contents_of(fresh) == whole
        assert await other.load(path, ADA) == 0, "what is there already is passed over"
        assert await contents_of(fresh) == whole
        query = "SELECT ?m ?p ?o { ?m jido:inNamespace 'n' ; ?p ?o } ORDER BY ?m ?p ?o"
        assert [*await other.sparql(query, ADA)] == [*await view.sparql(query, ADA)]


@given(st.data(), st.sampled_from(NAMES))
@settings(max_examples=max(10, EXAMPLES // 3))
def test_any_store_comes_back(data: st.DataObject, format: str) -> None:
    """Whatever entries hold, however they are linked, replaced, forgotten and used, no format loses it."""
    some = data.draw(st.lists(entries, min_size=1, max_size=5, unique_by=lambda entry: entry.id))
    ids = [entry.id for entry in some]
    one = st.sampled_from(ids)
    links = data.draw(st.lists(st.tuples(one, relations, one, moments), max_size=5))
    changes = data.draw(st.lists(st.tuples(one, st.none() | one, st.none() | st.text("ab")), max_size=3))
    used = data.draw(st.lists(one, max_size=4))

    async def there_and_back() -> None:
        async with open_view() as (store, view), open_view() as (fresh, other):
            for entry in some:
                own = entry.replace(namespace="n", agent_id="ada", superseded_by=None, superseded_at=None)
                await store.write(WriteRequest(entry=own.replace(superseded_reason=None)))
            for source, relation, target, at in links:
                await try_change(
                    store.link(Link(source=source, relation=relation, target=target, created_at=at), ADA)
                )
            for id, by, reason in changes:
                await try_change(store.supersede(id, ADA, by=by, reason=reason))
            await store.record_access(used, ADA)
            file = BytesIO()
            await view.export(file, ADA, format=format)
            await other.load(file.getvalue(), ADA, format=format)
            assert await contents_of(fresh) == await contents_of(store)

    with clock.override(FrozenClock(NOW)):
        anyio.run(there_and_back)


async def try_change(change: Any) -> None:
    """Change something, unless the store has a reason not to."""
    try:
        await change
    except OmoideError:
        return


async def export_bytes(view: GraphView, format: str, scope: Scope = ADA) -> bytes:
    """What a scope holds, as the bytes of a file."""
    file = BytesIO()
    await view.export(file, scope, format=format)
    return file.getvalue()


@pytest.mark.filterwarnings("ignore::DeprecationWarning:rdflib")
@pytest.mark.parametrize(("format", "name"), [("turtle", "turtle"), ("jsonld", "json-ld")])
async def test_another_library_reads_what_was_exported(format: str, name: str) -> None:
    """rdflib finds the same memories in the file, with their classes, texts, numbers and relations."""
    async with open_view() as (store, view):
        await furnish(store)
        whole = await contents_of(store)
        read = rdflib.Dataset(default_union=True).parse(data=await export_bytes(view, format), format=name)
    asked = f"""PREFIX jido: <{JIDO}>
        SELECT ?m ?type ?text ?sure {{ ?m a ?type ; jido:summary ?text ; jido:confidence ?sure }}"""
    found: Any = read.query(asked)
    rows = {tuple(value.toPython() for value in row) for row in found}
    assert {(str(m), str(type), text, sure) for m, type, text, sure in rows} == {
        (f"{JIDO}memory_{one.id}", CLASSES[one.type or ROOT_TYPE], one.content, one.confidence)
        for one in whole.entries.values()
    }
    refined: Any = read.query(f"SELECT ?a ?b {{ ?a <{JIDO}refines> ?b }}")
    assert [(str(a), str(b)) for a, b in refined] == [(f"{JIDO}memory_m3", f"{JIDO}memory_m4")]


@formats
async def test_a_broken_file_imports_nothing(format: str) -> None:
    """Cut off anywhere in its last third, a file is refused as a whole, and the store is as it was."""
    async with open_view() as (store, view), open_view() as (fresh, other):
        await furnish(store)
        data = await export_bytes(view, format)
        before = await contents_of(fresh)
        for cut in range(len(data) * 2 // 3, len(data) - 2, len(data) // 23):
            if data[:cut].endswith((b"\n", b" .", b".")):
                cut -= 4  # at the end of a statement, what is left is a whole file, only a shorter one
            with pytest.raises(InvalidRDF):
                await other.load(data[:cut], ADA, format=format)
        assert await contents_of(fresh) == before == Held({}, set(), {})


WRONG = {
    "a number that is none": (b'confidence> "1.0"', b'confidence> "much"'),
    "more than certain": (b'confidence> "1.0"', b'confidence> "7.0"'),
    "a revision that is none": (b'revision> "1"', b'revision> "-1"'),
    "a time that is none": (b'hasTimestamp> "20', b'hasTimestamp> "x20'),
    "metadata that are none": (b'metadata> "{', b'metadata> "['),
}


@pytest.mark.parametrize("name", WRONG)
async def test_one_wrong_memory_keeps_all_out(name: str) -> None:
    """A file in which a single memory cannot be understood imports nothing, and the error names it."""
    right, wrong = WRONG[name]
    async with open_view() as (store, view), open_view() as (fresh, other):
        await furnish(store)
        lines = (await export_bytes(view, "nquads")).splitlines(keepends=True)
        at = max(at for at, line in enumerate(lines) if right in line and b"memory_m9>" in line)
        lines[at] = lines[at].replace(right, wrong)
        with pytest.raises(InvalidRDF, match="memory_m9"):
            await other.load(b"".join(lines), ADA, format="nquads")
        assert await fresh.list_entries(Scope(namespace="n")) == []


async def test_what_is_there_and_differs_keeps_all_out() -> None:
    """A memory that the store holds with other words is not overwritten, and nothing else comes in."""
    async with open_view() as (store, view), open_view() as (fresh, other):
        await furnish(store)
        await fresh.write(WriteRequest(entry=a_memory(9, content="something else")))
        before = await contents_of(fresh)
        with pytest.raises(IdTaken, match="m9"):
            await other.load(await export_bytes(view, "trig"), ADA, format="trig")
        assert await contents_of(fresh) == before


OUTSIDE = {
    "agent": Scope(namespace="n", agent_id="bob"),
    "session": Scope(namespace="n", agent_id="ada", session_id="s1"),
    "project": Scope(namespace="n", agent_id="ada", project_id="tea"),
    "namespace": Scope(namespace="m", agent_id="ada"),
}


@pytest.mark.parametrize("name", OUTSIDE)
@formats
async def test_nothing_comes_in_from_outside_the_scope(name: str, format: str) -> None:
    """A file with a memory of another agent, session, project or namespace is refused as a whole."""
    async with open_view() as (store, view), open_view() as (fresh, other):
        await furnish(store)
        with pytest.raises(Invalid, match="outside the scope"):
            await other.load(await export_bytes(view, format), OUTSIDE[name], format=format)
        for namespace in ("n", "m"):
            assert await fresh.list_entries(Scope(namespace=namespace)) == []


@formats
async def test_nothing_leaves_from_outside_the_scope(format: str) -> None:
    """A file holds what its scope holds; what its memories are linked with elsewhere is not in it."""
    async with open_view() as (store, view), open_view() as (fresh, other):
        await furnish(store)
        await store.write(WriteRequest(entry=a_memory(50, agent_id="bob", content="of nobody's business")))
        await store.link(Link(source="m9", relation="refines", target="m50"), Scope(namespace="n"))
        session = ADA.replace(session_id="s0")
        data = await export_bytes(view, format, session)
        assert b"nobody's business" not in data
        assert await other.load(data, session, format=format) == 5
        came = await contents_of(fresh)
        assert {*came.entries} == {"m0", "m3", "m6", "m9", "m12"}
        assert came.links == set()


@formats
async def test_several_agents_travel_together(format: str) -> None:
    """What several agents know of a project leaves in one file and comes back from it."""
    project = Scope(namespace="n", project_id="tea")
    async with open_view() as (store, view), open_view() as (fresh, other):
        for at in range(6):
            memory = a_memory(at, agent_id=("ada", "bob")[at % 2], project_id="tea")
            await store.write(WriteRequest(entry=memory))
        await store.link(Link(source="m1", relation="contradicts", target="m2", created_at=NOW), project)
        assert await other.load(await export_bytes(view, format, project), project, format=format) == 6
        assert await contents_of(fresh, project) == await contents_of(store, project)


@formats
@pytest.mark.parametrize("premise", ["erased", "left behind"])
async def test_what_does_not_hold_does_not_come_back_to_life(format: str, premise: str) -> None:
    """What rests on an erased memory, or on a replaced one that stays behind, is stale after an import."""
    session = ADA.replace(session_id="s0")
    rests = (Evidence(kind="entry", ref="m1"),)
    async with open_view() as (store, view), open_view() as (fresh, other):
        await store.write(WriteRequest(entry=a_memory(1)))
        await store.write(WriteRequest(entry=a_memory(6, evidence=rests)))
        if premise == "erased":
            await store.erase(ADA, id="m1")
        else:
            await store.supersede("m1", ADA)
        assert (await contents_of(store, session)).entries["m6"].stale
        await other.load(await export_bytes(view, format, session), session, format=format)
        assert (await contents_of(fresh)).entries["m6"].stale


ROUNDS = 60


def write_changes(path: Path) -> Iterator[None]:
    """Change a store again and again from a connection of its own, one round of changes at each step."""
    with open_store(f"sqlite:///{path}", embedder="none") as store:
        for at in range(ROUNDS):
            new = f"m{10_000 + at}"
            store.sync.write(WriteRequest(entry=a_memory(10_000 + at)))
            store.sync.write(WriteRequest(entry=a_memory(at, content=f"rewritten {at}")))
            store.sync.supersede(f"m{100 + at}", ADA, by=new)
            store.sync.link(Link(source=f"m{200 + at}", relation="refines", target=new), ADA)
            store.sync.erase(ADA, id=f"m{300 + at}")
            yield


def rounds(came: Held) -> list[int]:
    """How often each change of a round was made when this was the store, in the order they are made in."""
    linked = {source for source, _, _, _ in came.links}
    made: tuple[Callable[[int], bool], ...] = (
        lambda at: f"m{10_000 + at}" in came.entries,
        lambda at: came.entries[f"m{at}"].content == f"rewritten {at}",
        lambda at: came.entries[f"m{100 + at}"].superseded_by == f"m{10_000 + at}",
        lambda at: f"m{200 + at}" in linked,
        lambda at: f"m{300 + at}" not in came.entries,
    )
    found = [[at for at in range(ROUNDS) if done(at)] for done in made]
    assert all(one == [*range(len(one))] for one in found), "later rounds come after earlier ones"
    return [len(one) for one in found]


@formats
@pytest.mark.parametrize("target", ["path", "file"])
async def test_others_may_write_during_an_export(tmp_path: Path, format: str, target: str) -> None:
    """The file holds the store of one moment: no change without those made before it."""
    path, out, file = tmp_path / "memory.db", tmp_path / "out", BytesIO()
    async with open_view(f"sqlite:///{path}") as (store, view), open_view() as (fresh, other):
        await store.write_many([WriteRequest(entry=a_memory(at)) for at in range(1_200)])
        others = write_changes(path)
        if target == "path":  # rounds between two pages, and after the last
            told = partial(_each, others, 20)
            count = await view.export(out, ADA, format=format, progress=told)
        else:
            async with anyio.create_task_group() as group:
                group.start_soon(anyio.to_thread.run_sync, _each, others, ROUNDS)
                count = await view.export(file, ADA, format=format)
        source = out if target == "path" else file.getvalue()
        assert await other.load(source, ADA, format=format) == count
        came = await contents_of(fresh)
    assert {f"m{at}" for at in range(400, 1_200)} <= {*came.entries}
    seen = rounds(came)
    assert sorted(seen, reverse=True) == seen
    assert seen[0] - seen[-1] <= 1
    assert target == "file" or seen[0] > 0


def _each(others: Iterator[None], count: int, *progress: object) -> None:
    """Some rounds, whatever is told about the progress of something else."""
    for _ in range(count):
        next(others, None)


async def test_a_file_appears_whole_or_not_at_all(tmp_path: Path) -> None:
    """When the export fails half-way, the file that was there before is still there, and nothing else."""
    path = tmp_path / "memories.ttl"
    async with open_view() as (store, view):
        await furnish(store)
        await view.export(path, ADA)
        before = path.read_bytes()

        def fails(done: int, total: int | None) -> None:
            raise sqlite3.OperationalError("disk I/O error")

        with pytest.raises(sqlite3.OperationalError):
            await view.export(path, ADA, progress=fails)
        assert path.read_bytes() == before
    assert list_files(tmp_path) == [path.name]


def list_files(folder: Path) -> list[str]:
    """The names of the files in a folder."""
    return [one.name for one in folder.iterdir()]
