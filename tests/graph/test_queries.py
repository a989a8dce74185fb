"""A query has the right result, and the same one on every backend."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
from tests.support import sparql_servers as servers
from tests.support.graph_queries import (
    ADA,
    EVERYTHING,
    FIRST,
    LINKS,
    NOW,
    QUESTIONS,
    TEA,
    fill_store,
    graph_of,
    read_world,
)

from omoide import Filter, Scope, clock, graph
from omoide.core import MEMORY_TYPES
from omoide.graph import CLASSES, IRI, GraphView, memory_iri
from omoide.stores import AsyncStore, Query, open_store
from omoide.testing import FrozenClock

PLACES = ("memory", "folder", "oxigraph", "rdflib")


class Views(NamedTuple):
    """A store, and a graph over it in each place."""

    store: AsyncStore
    views: dict[str, GraphView]
    path: Path


@pytest.fixture(scope="module")
def views(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Views]:
    """The store with its memories, asked in this process, in a folder, and at two servers."""
    folder = tmp_path_factory.mktemp("questions")
    with ExitStack() as stack, clock.override(FrozenClock(NOW)):
        path = folder / "memory.db"
        store = stack.enter_context(open_store(f"sqlite:///{path}", embedder="none"))
        anyio.run(fill_store, store)
        (folder / "a").mkdir()
        (folder / "b").mkdir()
        oxigraph = stack.enter_context(servers.oxigraph(folder / "a"))
        rdflib = stack.enter_context(servers.rdflib(folder / "b"))
        found = {
            "memory": graph.open(store),
            "folder": graph.open(store, path=folder / "graph"),
            "oxigraph": graph.open(store, endpoint=oxigraph.query_url, update_endpoint=oxigraph.update_url),
            "rdflib": graph.open(store, endpoint=rdflib.query_url, update_endpoint=rdflib.update_url),
        }
        yield Views(store, found, path)
        for view in found.values():
            anyio.run(view.close)


def plain(value: Any) -> Any:
    """A value that can be compared: numbers differ in their last digits from one server to another."""
    if isinstance(value, (float, Decimal)):
        return round(float(value), 6)
    return str(value) if isinstance(value, str) else value


def plain_answer(found: graph.Answer) -> Any:
    """What an answer says, as plain data."""
    if found.kind == "truth":
        return found.truth
    if found.kind == "triples":
        return {tuple(map(plain, triple.values)) for triple in found.triples}
    return [tuple(plain(row[name]) for name in found.variables) for row in found.rows]


def comparable(answer: Any, ordered: bool) -> Any:
    if not isinstance(answer, list):
        return answer
    rows = [tuple(map(plain, row)) for row in answer]
    return rows if ordered else Counter(rows)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", QUESTIONS)
async def test_a_question_is_answered_as_the_entries_say(views: Views, name: str, place: str) -> None:
    """In memory, in a folder and on either server, the answer is what the store's own entries amount to."""
    question = QUESTIONS[name]
    expected = question.answer(await read_world(views.store, question.scope))
    found = await views.views[place].sparql(question.query, question.scope, **question.bindings)
    assert comparable(plain_answer(found), question.ordered) == comparable(expected, question.ordered)
    assert expected or isinstance(expected, bool), "a question without an answer shows nothing"


def test_the_questions_are_worth_asking(views: Views) -> None:
    """There are enough memories, of every type and owner, and something stale and something replaced."""
    world = anyio.run(read_world, views.store, EVERYTHING)
    assert len(world.entries) == 40
    assert {one.type for one in world.entries} == {None, *MEMORY_TYPES}
    assert len({graph_of(one) for one in world.entries}) > 8
    assert any(one.stale for one in world.entries)
    assert len(world.links) == len(LINKS)


@pytest.mark.parametrize("place", PLACES)
async def test_a_scope_hides_the_others(views: Views, place: str) -> None:
    """No question finds a memory, a text or an evidence of another project, agent or session."""
    for scope in (TEA, ADA, FIRST):
        world = await read_world(views.store, scope)
        inside = {one.content for one in world.entries}
        for query in ("SELECT ?t { ?m jido:summary ?t }", "SELECT ?t { GRAPH ?g { ?m jido:summary ?t } }"):
            found = await views.views[place].sparql(query, scope)
            assert {*found.values("t")} == inside
    nobody = Scope(namespace="shops", agent_id="nobody")
    assert plain_answer(await views.views[place].sparql("SELECT ?t { ?m jido:summary ?t }", nobody)) == []
    other = Scope(namespace="other")
    assert plain_answer(await views.views[place].sparql("ASK { ?m jido:summary ?t }", other)) is False


ELSEWHERE = """
import sys
from omoide import Scope, blocking, open_store
with open_store(sys.argv[1], embedder="none") as store:
    {}
"""


def elsewhere(path: Path, *lines: str) -> None:
    """Run some lines in a process of their own, with the store open there."""
    code = ELSEWHERE.format("\n    ".join(lines))
    done = subprocess.run(
        [sys.executable, "-c", code, f"sqlite:///{path}"], check=False, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("place", PLACES)
async def test_another_process_is_heard_at_once(views: Views, place: str) -> None:
    """What another process writes, replaces and erases is there, changed and gone in the very next answer."""
    view, scope = views.views[place], Scope(namespace="n " + place, agent_id="eve")
    query = "SELECT ?text ?by { ?m jido:summary ?text OPTIONAL { ?m jido:supersededBy ?by } } ORDER BY ?text"
    assert plain_answer(await view.sparql(query, scope)) == []
    mine = f"scope = Scope(namespace={scope.namespace!r}, agent_id='eve')"
    write = "blocking.remember(store, {0!r}, scope, id={0!r})"
    elsewhere(views.path, mine, write.format("one"), write.format("two"))
    assert plain_answer(await view.sparql(query, scope)) == [("one", None), ("two", None)]
    elsewhere(views.path, mine, "blocking.forget(store, 'one', scope, replacement='two')")
    assert plain_answer(await view.sparql(query, scope)) == [("one", memory_iri("two")), ("two", None)]
    elsewhere(views.path, mine, "blocking.erase(store, scope, id='one')", write.format("three"))
    assert plain_answer(await view.sparql(query, scope)) == [("three", None), ("two", None)]


async def test_listing_and_asking_agree(views: Views) -> None:
    """The store's own query and the graph find the same memories of a type, live and in a scope."""
    view = views.views["memory"]
    for type in MEMORY_TYPES:
        page = await views.store.query(Query(scope=TEA, filter=Filter(types=(type,)), limit=1_000, at=NOW))
        found = await view.sparql(
            """SELECT ?m { ?m a/rdfs:subClassOf* ?type FILTER NOT EXISTS { ?m jido:supersededBy ?other }
                 FILTER NOT EXISTS { ?m jido:stale true } }""",
            TEA,
            type=IRI(CLASSES[type]),
        )
        assert {*found.values("m")} == {memory_iri(one.id) for one in page.entries}
