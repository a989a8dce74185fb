"""The graph follows its store through failures, copies and crashes."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import omoide
from omoide import Entry, Evidence, Scope, WriteRequest, graph, open_store
from omoide.errors import EndpointFailed
from omoide.graph import GraphView, sync
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.vocabulary import META_GRAPH, ONTOLOGY_GRAPH, OWNER_GRAPH

FIRST = Scope(agent_id="ann", session_id="s1")
SECOND = Scope(agent_id="ann", session_id="s2")
ANN = Scope(agent_id="ann")
SAID = "SELECT ?said WHERE { ?m jido:summary ?said } ORDER BY ?said"
STEPS = ("state", "graphs", "find_subjects", "replace", "record_uses", "copy_graphs", "drop", "set_state")
SEPARATORS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'm.db'}"
    async with open_store(url, embedder="none") as opened:
        yield opened


async def contents_of(view: GraphView, scope: Scope = ANN) -> list[str]:
    return [*map(str, (await view.sparql(SAID, scope)).values("said"))]


def statements_in(view: GraphView) -> set[bytes]:
    """All that a graph says about memories and their owners."""
    backend = view.core.backend
    return {*backend.dump(backend.graphs(OWNER_GRAPH)).split(b"\n")}


async def store_contents(store: Any, scope: Scope = ANN) -> list[str]:
    return sorted(entry.content for entry in await store.list_entries(scope))


async def is_as_new(view: GraphView, store: Any) -> None:
    """Raise unless a graph says what one says that was just made."""
    async with graph.open(store) as new:
        for scope in (ANN, FIRST, SECOND):
            assert (
                await contents_of(view, scope)
                == await contents_of(new, scope)
                == await store_contents(store, scope)
            )
        assert statements_in(view) == statements_in(new)


def fail_once_backend(at: int, late: bool) -> tuple[OxigraphBackend, list[str]]:
    """A graph that fails once, at the n-th thing it does: before it is done, or after; and what it did."""
    backend, done = OxigraphBackend(), list[str]()

    def tripped(name: str, step: Callable[..., Any]) -> Callable[..., Any]:
        def called(*given: Any, **options: Any) -> Any:
            done.append(name)
            now = len(done) == at
            found = step(*given, **options) if late or not now else None
            if now:
                raise EndpointFailed("graph", f"did not answer to {name}", "try again")
            return found

        return called

    for name in STEPS:
        setattr(backend, name, tripped(name, getattr(backend, name)))
    return backend, done


async def lead_a_life(store: Any, ask: Callable[[], Any]) -> None:
    """Write, change, use and erase memories of two sessions, and ask in between."""
    evidence = [Evidence(kind="document", ref="a paper", quote="so it is")]
    await omoide.remember(store, "one", FIRST, id="1", evidence=evidence)
    await ask()
    await omoide.remember(store, "two", SECOND, id="2", tags=["a"])
    await omoide.remember(store, "three", SECOND, id="3", evidence=evidence)
    await ask()
    await store.record_access(["1", "2"], ANN)
    await ask()
    await store.write(WriteRequest(entry=(await store.get("2", ANN)).replace(content="changed", tags=())))
    await ask()
    await omoide.erase(store, SECOND, id="2")
    await ask()


@pytest.mark.parametrize("portion", [1, sync.MIN_BATCH])
@pytest.mark.parametrize("late", [False, True])
async def test_wherever_it_breaks_off_the_next_query_is_right(
    late: bool, portion: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever step fails, and although more was changed before the next try, nothing is missing or doubled.

    Afterwards the graph says exactly what a new one says, down to the last triple. So it is, too, where a
    portion is taken in while the next one is read.
    """
    monkeypatch.setattr(sync, "MIN_BATCH", portion)
    monkeypatch.setattr(sync, "MAX_BATCH", max(portion, 3))
    reached = set[str]()
    for at in count(1):
        backend, done = fail_once_backend(at, late)
        async with open_store("memory://", embedder="none") as store, GraphView(store, backend) as view:

            async def ask(store: Any = store, view: GraphView = view) -> None:
                try:
                    await contents_of(view)
                except EndpointFailed:
                    for entry in await store.list_entries(ANN):
                        await store.write(WriteRequest(entry=entry.replace(content=f"{entry.content}!")))
                assert await contents_of(view) == await store_contents(store)

            await lead_a_life(store, ask)
            for name in STEPS:
                delattr(backend, name)
            await is_as_new(view, store)
        if len(done) < at:
            break
        reached.add(done[at - 1])
    assert reached == {*STEPS}


async def test_a_portion_that_fails_while_the_next_is_read_is_told_and_taken_in_later(store: Any) -> None:
    """Many changes are read in portions: none is lost or told twice when one of them fails."""
    backend = OxigraphBackend()
    async with GraphView(store, backend) as view:
        requests = [
            WriteRequest(entry=Entry(agent_id="ann", session_id=f"s{number % 3}", content=f"memory {number}"))
            for number in range(3 * sync.MIN_BATCH + 1)
        ]
        await store.write_many(requests)
        step, calls = backend.replace, count()

        def failing(*given: Any, **options: Any) -> None:
            if next(calls) == 2:  # the ontology, a portion, and then this one
                raise EndpointFailed("graph", "did not answer", "try again")
            step(*given, **options)

        backend.replace = failing  # type: ignore[method-assign]
        with pytest.raises(EndpointFailed):
            await contents_of(view)
        first = requests[0].entry.replace(content="changed meanwhile", id=requests[0].entry.id)
        await store.write(WriteRequest(entry=first))
        assert await contents_of(view) == await store_contents(store)
        await is_as_new(view, store)


async def test_a_memory_that_was_new_when_writing_it_failed_has_one_version(store: Any) -> None:
    """What changed between a failure and the next try leaves nothing of what it was."""
    backend = OxigraphBackend()
    async with GraphView(store, backend) as view:
        await omoide.remember(store, "zero", FIRST)
        assert await contents_of(view, FIRST) == ["zero"]
        await omoide.remember(store, "as it was", FIRST, id="1")

        def fail(*given: Any, **options: Any) -> None:
            raise EndpointFailed("graph", "did not answer", "try again")

        backend.set_state = fail  # type: ignore[method-assign]
        with pytest.raises(EndpointFailed):
            await contents_of(view, FIRST)
        del backend.set_state
        await omoide.remember(store, "as it is", FIRST, id="1")
        assert await contents_of(view, FIRST) == ["as it is", "zero"]
        revisions = "SELECT ?rev WHERE { jido:memory_1 jido:revision ?rev }"
        assert len(await view.sparql(revisions, FIRST)) == 1


async def test_lines_inside_of_texts_are_no_lines_of_the_graph(store: Any) -> None:
    """Characters that other programs take for the end of a line are kept in a scope of several sessions."""
    async with graph.open(store) as view:
        await omoide.remember(store, "one", FIRST)
        await omoide.remember(store, "two", SECOND)
        assert await contents_of(view) == ["one", "two"]
        texts = [f"a{letter}b" for letter in SEPARATORS]
        for text in texts:
            await omoide.remember(store, text, FIRST, tags=[text])
        assert {*await contents_of(view)} == {"one", "two", *texts}
        assert {*await contents_of(view, FIRST)} == {"one", *texts}
        assert await contents_of(view, SECOND) == ["two"]


async def test_nothing_is_left_of_whose_memories_were_erased(store: Any, tmp_path: Path) -> None:
    """With the last memory of an owner go the names of its agent, session and project, in wide graphs too."""
    other = Scope(agent_id="bob", session_id="s9", project_id="shop")
    async with graph.open(store, path=tmp_path / "graph") as view:
        await omoide.remember(store, "Ann's", FIRST, evidence=[Evidence(kind="document", ref="a secret")])
        await omoide.remember(store, "Ann's too", SECOND)
        await omoide.remember(store, "Bob's", other)
        for scope in (Scope(), ANN, other):
            await contents_of(view, scope)
        await omoide.erase(store, other)
        assert await contents_of(view, Scope()) == ["Ann's", "Ann's too"]
        assert b"bob" not in view.core.backend.dump(view.core.backend.graphs("urn:omoide:"))
        await is_as_new(view, store)
        await omoide.erase(store, ANN)
        assert await contents_of(view, Scope()) == []
        assert view.core.backend.graphs() == [META_GRAPH, ONTOLOGY_GRAPH]


async def test_an_owner_who_comes_back_is_found_again(store: Any) -> None:
    """A session that was emptied and written to again is seen in each scope that holds it."""
    async with graph.open(store) as view:
        await omoide.remember(store, "one", FIRST)
        await omoide.remember(store, "two", SECOND)
        assert await contents_of(view) == ["one", "two"]
        await omoide.erase(store, SECOND)
        assert await contents_of(view) == ["one"]
        await omoide.remember(store, "again", SECOND)
        await is_as_new(view, store)
        assert await contents_of(view) == ["again", "one"]


async def test_what_a_crash_left_behind_is_followed_like_the_rest(store: Any, tmp_path: Path) -> None:
    """A graph that was never closed holds nothing, in any of its graphs, of what was erased after that."""
    await omoide.remember(store, "a secret", FIRST)
    await omoide.remember(store, "two", SECOND)
    view = graph.open(store, path=tmp_path / "graph")
    assert await contents_of(view) == ["a secret", "two"]
    view.core.backend.close()  # nothing was said to the view: so it is when a process dies
    await omoide.erase(store, FIRST)
    async with graph.open(store, path=tmp_path / "graph") as again:
        assert await contents_of(again, SECOND) == ["two"]
        assert b"a secret" not in again.core.backend.dump(again.core.backend.graphs())
        assert await contents_of(again) == ["two"]


def restore_file(older: Path, path: Path) -> None:
    for left in path.parent.glob(f"{path.name}*"):
        left.unlink()
    shutil.copy(older, path)


@pytest.mark.parametrize("way", ["copy", "backup"])
@pytest.mark.parametrize("more", [0, 1, 2, 5])
async def test_an_older_file_in_the_place_of_the_store_is_followed(
    way: str, more: int, tmp_path: Path
) -> None:
    """However much was written after an older file was put back, the graph has what the file has."""
    path, older, folder = tmp_path / "m.db", tmp_path / "older.db", tmp_path / "graph"
    async with open_store(f"sqlite:///{path}", embedder="none") as store:
        await omoide.remember(store, "old", FIRST, id="1")
        if way == "backup":
            store.sync.backup(older)  # type: ignore[union-attr]
    if way == "copy":
        shutil.copy(path, older)
    async with open_store(f"sqlite:///{path}", embedder="none") as store:
        await omoide.remember(store, "lost", FIRST, id="2")
        await omoide.remember(store, "lost as well", SECOND, id="3")
        async with graph.open(store, path=folder) as view:
            assert await contents_of(view) == ["lost", "lost as well", "old"]
    restore_file(older, path)
    async with open_store(f"sqlite:///{path}", embedder="none") as store:
        for number in range(more):
            await omoide.remember(store, f"new {number}", FIRST, id=f"n{number}")
        async with graph.open(store, path=folder) as view:
            await is_as_new(view, store)
            await omoide.remember(store, "later", SECOND)
            await is_as_new(view, store)


async def test_several_graphs_follow_one_store(store: Any, tmp_path: Path) -> None:
    """Views in memory and in a folder, asked in turn or seldom, say the same."""
    async with (
        graph.open(store) as often,
        graph.open(store, path=tmp_path / "graph") as seldom,
        graph.open(store) as once,
    ):
        turn = count()

        async def ask() -> None:
            assert await contents_of(often) == await store_contents(store)
            if next(turn) % 2:
                assert await contents_of(seldom) == await store_contents(store)

        await lead_a_life(store, ask)
        for view in (often, seldom, once):
            await is_as_new(view, store)


async def test_a_store_that_only_lists_is_asked_again_after_a_failure(tmp_path: Path) -> None:
    """What such a store told and the graph could not take in is not taken for known."""
    from examples.own_store import JsonLinesStore

    store, backend = JsonLinesStore(tmp_path / "m.jsonl"), OxigraphBackend()
    async with GraphView(store, backend) as view:
        await store.write(WriteRequest(entry=Entry(agent_id="ann", session_id="s1", content="one")))
        assert await contents_of(view) == ["one"]

        def fail(*given: Any, **options: Any) -> None:
            raise EndpointFailed("graph", "did not answer", "try again")

        backend.replace = fail  # type: ignore[method-assign]
        await store.write(WriteRequest(entry=Entry(agent_id="ann", session_id="s1", content="two")))
        for _ in range(2):
            with pytest.raises(EndpointFailed):
                await contents_of(view)
        del backend.replace
        assert await contents_of(view) == ["one", "two"]


async def test_many_that_are_erased_at_once_are_looked_for_at_once(store: Any) -> None:
    """How often the graph is asked where they stand depends on their owners, not on their number."""
    backend, asked = OxigraphBackend(), list[str]()
    async with GraphView(store, backend) as view:
        for number in range(60):
            await omoide.remember(store, f"memory {number}", (FIRST, SECOND)[number % 2])
        assert len(await contents_of(view)) == 60
        await omoide.erase(store, ANN)
        for name in ("query", "find_subjects"):
            step = getattr(backend, name)

            def noted(*given: Any, name: str = name, step: Callable[..., Any] = step, **options: Any) -> Any:
                asked.append(name)
                return step(*given, **options)

            setattr(backend, name, noted)
        assert await contents_of(view) == []
        assert asked.count("find_subjects") == 1
        assert len(asked) < 8


@pytest.mark.skipif(os.name != "posix", reason="has no such permissions")
async def test_nobody_else_can_look_into_the_folder_of_a_graph(store: Any, tmp_path: Path) -> None:
    """The folder belongs to its owner, as the file of a store does."""
    async with graph.open(store, path=tmp_path / "graph") as view:
        await contents_of(view)
        assert (tmp_path / "graph").stat().st_mode & 0o777 == 0o700


async def test_a_file_shows_one_moment_although_somebody_erases_meanwhile(store: Any, tmp_path: Path) -> None:
    """What is erased while a file is written is not in the file, also when it was written down already."""
    entries = [Entry(id=f"m{n}", agent_id="ann", session_id="s1", content=f"<{n}>") for n in range(1_200)]
    await store.write_many([WriteRequest(entry=entry) for entry in entries])
    target, there = tmp_path / "m.nq", list[bool]()

    def erase(done: int, total: int | None) -> None:
        if not there:
            store.sync.erase(ANN, id="m3")
        there.append(target.exists())

    async with graph.open(store) as view:
        assert await view.export(target, ANN, progress=erase) == 1_199
    assert there
    assert not any(there), "a file of two moments was put in place"
    written = target.read_bytes().decode()
    assert '"<3>"' not in written
    assert written.count("#summary>") == 1_199
