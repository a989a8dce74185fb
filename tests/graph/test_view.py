"""A view is never older than its store, nor wider than its scope."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sparql_servers import Server

import omoide
from omoide import Entry, Evidence, Scope, WriteRequest, blocking, clock, graph, open_store
from omoide.errors import Busy, Invalid, InvalidQuery, QueryStopped, WrongType
from omoide.graph import sync
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.sync import GraphProjection, source_for
from omoide.graph.view import GraphCore, GraphView
from omoide.longterm import provenance, related
from omoide.stores import Link
from omoide.stores.sqlite.store import SQLiteStore
from omoide.testing import FrozenClock

SCOPE = Scope(agent_id="ann", session_id="s1", project_id="shop")
SAID = "SELECT ?said WHERE { ?m jido:summary ?said } ORDER BY ?said"


@pytest.fixture(params=["memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'm.db'}"
    async with open_store(url, embedder="none") as opened:
        yield opened


async def contents_of(view: Any, scope: Scope = SCOPE) -> list[str]:
    return [*(await view.sparql(SAID, scope)).values("said")]


async def test_what_was_just_written_is_found(store: Any) -> None:
    """Each query sees all that was written, changed, forgotten, restored and erased before it."""
    async with graph.open(store) as view:
        assert await contents_of(view) == []
        kept = await omoide.remember(store, "one", SCOPE, type="fact")
        assert await contents_of(view) == ["one"]
        await store.write(WriteRequest(entry=kept.entry.replace(content="two")))
        assert await contents_of(view) == ["two"]
        superseded = "ASK { ?m jido:supersededBy jido:DeletedMarker }"
        await omoide.forget(store, kept.id, SCOPE, reason="no longer so")
        assert (await view.sparql(superseded, SCOPE)).truth
        await store.reinstate(kept.id, SCOPE)
        assert not (await view.sparql(superseded, SCOPE)).truth
        await omoide.erase(store, SCOPE, id=kept.id)
        assert await contents_of(view) == []


async def test_a_conclusion_is_stale_in_the_graph_as_soon_as_its_premise_is_gone(store: Any) -> None:
    """What truth maintenance changes is seen by the next query, and so is its undoing."""
    premise = await omoide.remember(store, "premise", SCOPE, type="fact")
    evidence = [Evidence(kind="entry", ref=premise.id)]
    await omoide.remember(store, "conclusion", SCOPE, type="hypothesis", evidence=evidence)
    stale = "SELECT ?said WHERE { ?m jido:stale true ; jido:summary ?said }"
    async with graph.open(store) as view:
        assert not (await view.sparql(stale, SCOPE)).rows
        await omoide.forget(store, premise.id, SCOPE)
        assert (await view.sparql(stale, SCOPE)).values("said") == ("conclusion",)
        await store.reinstate(premise.id, SCOPE)
        assert not (await view.sparql(stale, SCOPE)).rows


async def test_links_and_uses_are_followed(store: Any) -> None:
    """A link that is made or cut, and a use that is counted, is seen by the next query."""
    one = await omoide.remember(store, "one", SCOPE, type="error")
    two = await omoide.remember(store, "two", SCOPE, type="lesson_learned")
    link = Link(source=one.id, relation="produced_lesson", target=two.id)
    linked = "ASK { ?m jido:producedLesson ?lesson }"
    used = "SELECT ?n WHERE { ?m jido:summary 'one' ; jido:accessCount ?n ; jido:lastAccessed ?last }"
    async with graph.open(store) as view:
        assert not (await view.sparql(linked, SCOPE)).truth
        await store.link(link, SCOPE)
        assert (await view.sparql(linked, SCOPE)).truth
        await store.unlink(link, SCOPE)
        assert not (await view.sparql(linked, SCOPE)).truth
        with clock.override(FrozenClock(clock.now())) as time:
            for times in (1, 2, 3):
                time.advance(1_000)
                await store.record_access([one.id], SCOPE)
                assert (await view.sparql(used, SCOPE)).values("n") == (times,)


async def test_what_another_process_writes_is_found(tmp_path: Path) -> None:
    """A graph in this process holds what another one wrote, without being told."""
    path = tmp_path / "m.db"
    async with open_store(f"sqlite:///{path}", embedder="none") as store, graph.open(store) as view:
        await omoide.remember(store, "here", SCOPE)
        assert await contents_of(view) == ["here"]
        code = (
            "import sys; from omoide import *; from omoide import blocking\n"
            "with open_store('sqlite:///' + sys.argv[1], embedder='none') as s:\n"
            "    blocking.remember(s, 'there', Scope(agent_id='ann', session_id='s1', project_id='shop'))"
        )
        await anyio.run_process([sys.executable, "-c", code, str(path)])
        assert await contents_of(view) == ["here", "there"]


async def test_a_restored_backup_is_followed(tmp_path: Path) -> None:
    """After a backup was put in the store's place, the graph holds what the backup holds."""
    async with open_store(f"sqlite:///{tmp_path / 'm.db'}", embedder="none") as store:
        assert isinstance(store.sync, SQLiteStore)
        await omoide.remember(store, "before", SCOPE)
        store.sync.backup(tmp_path / "copy.db")
        async with graph.open(store) as view:
            for number in range(3):
                await omoide.remember(store, f"after {number}", SCOPE)
            assert len(await contents_of(view)) == 4
            store.sync.restore_backup(tmp_path / "copy.db")
            assert await contents_of(view) == ["before"]
            await omoide.remember(store, "later", SCOPE)
            assert await contents_of(view) == ["before", "later"]


async def test_an_id_that_moved_to_another_owner_is_nowhere_twice(store: Any) -> None:
    """What is erased and written again by somebody else leaves nothing in its old place."""
    other = Scope(agent_id="bob")
    async with graph.open(store) as view:
        await omoide.remember(store, "Ann's", SCOPE, id="m1")
        assert await contents_of(view) == ["Ann's"]
        await omoide.erase(store, SCOPE, id="m1")
        await omoide.remember(store, "Bob's", other, id="m1")
        assert await contents_of(view) == []
        assert await contents_of(view, other) == ["Bob's"]


async def test_a_graph_in_a_folder_goes_on_where_it_stopped(store: Any, tmp_path: Path) -> None:
    """What is on disk is used again, what came meanwhile is taken in, and nobody else can open it."""
    await omoide.remember(store, "one", SCOPE)
    async with graph.open(store, path=tmp_path / "graph") as view:
        assert await contents_of(view) == ["one"]
        with pytest.raises(Busy):
            graph.open(store, path=tmp_path / "graph")
    await omoide.remember(store, "two", SCOPE)
    async with graph.open(store, path=tmp_path / "graph") as view:
        assert await view.catch_up("default") == 1
        assert await contents_of(view) == ["one", "two"]
        assert await view.rebuild("default") == 2
        assert await contents_of(view) == ["one", "two"]


async def test_a_graph_that_was_interrupted_is_completed(store: Any, tmp_path: Path) -> None:
    """Where the process died between the triples and the note of how far they are, nothing is doubled."""
    await omoide.remember(store, "one", SCOPE, tags=["a"])
    view = graph.open(store, path=tmp_path / "graph")

    def die(*given: Any) -> None:
        raise KeyboardInterrupt

    view.core.backend.set_state = die  # type: ignore[assignment,method-assign]
    with pytest.raises(KeyboardInterrupt):
        await contents_of(view)
    del view.core.backend.set_state
    await view.close()
    kept = (await store.list_entries(SCOPE))[0]
    await store.write(WriteRequest(entry=kept.replace(content="two", tags=("b",))))
    async with graph.open(store, path=tmp_path / "graph") as again:
        assert await contents_of(again) == ["two"]
        tags = await again.sparql("SELECT ?t WHERE { ?m jido:tag ?t }", SCOPE)
        assert tags.values("t") == ("b",)


scopes = st.builds(
    Scope,
    agent_id=st.sampled_from(["ann", "bob"]),
    session_id=st.sampled_from([None, "s1", "s2"]),
    project_id=st.sampled_from([None, "shop"]),
    namespace=st.sampled_from(["default", "other"]),
)
asked = st.builds(
    Scope,
    agent_id=st.sampled_from([None, "ann", "bob"]),
    session_id=st.sampled_from([None, "s1", "s2"]),
    project_id=st.sampled_from([None, "shop"]),
    namespace=st.sampled_from(["default", "other"]),
)


@pytest.mark.parametrize("few", [0, 8])
@given(owners=st.lists(scopes, max_size=12), questions=st.lists(asked, min_size=1, max_size=6))
@settings(max_examples=25)
def test_a_query_sees_exactly_its_scope(few: int, owners: list[Scope], questions: list[Scope]) -> None:
    """Whatever is stored and asked, also by way of wide graphs, the answer is what the scope holds."""
    before, sync.MAX_SEPARATE_GRAPHS = sync.MAX_SEPARATE_GRAPHS, few
    try:
        with open_store("memory://", embedder="none") as store:
            projection = GraphCore(source_for(store), OxigraphBackend())
            for number, owner in enumerate(owners):
                blocking.remember(store, f"memory {number}", owner)
                for scope in questions:
                    query = projection.prepare(SAID, scope, (), {}, 1000)
                    found = [*projection.query(query).values("said")]
                    kept = list_blocking(store, scope)
                    assert found == sorted(entry.content for entry in kept)
    finally:
        sync.MAX_SEPARATE_GRAPHS = before


def list_blocking(store: Any, scope: Scope) -> list[Entry]:
    found: list[Entry] = store.sync.list_entries(scope)
    return found


async def test_a_wide_scope_is_kept_in_step(store: Any) -> None:
    """A scope of many sessions is asked as one graph, which follows every change in any of them."""
    everything = Scope(agent_id="ann")
    async with graph.open(store) as view:
        for number in range(sync.MAX_SEPARATE_GRAPHS + 3):
            session = Scope(agent_id="ann", session_id=f"s{number}")
            await omoide.remember(store, f"in {number}", session, id=f"m{number}")
        assert len(await contents_of(view, everything)) == sync.MAX_SEPARATE_GRAPHS + 3
        await omoide.erase(store, everything, id="m0")
        changed = (await store.get("m1", everything)).replace(content="changed")
        await store.write(WriteRequest(entry=changed))
        await omoide.remember(store, "new", Scope(agent_id="ann", session_id="s99"))
        found = await contents_of(view, everything)
        assert found == sorted(entry.content for entry in await store.list_entries(everything))
        assert "changed" in found


async def test_nothing_of_another_scope_can_be_reached(store: Any) -> None:
    """GRAPH, DESCRIBE and IRIs of others find nothing of what lies outside the scope."""
    other = Scope(agent_id="bob", session_id="s9")
    kept = await omoide.remember(store, "Bob's secret", other, id="b1")
    await omoide.remember(store, "Ann's", SCOPE)
    async with graph.open(store) as view:
        await view.sparql(SAID, other)
        for query in (
            "SELECT ?s WHERE { GRAPH ?g { ?m jido:summary ?s } FILTER(CONTAINS(?s, 'secret')) }",
            "SELECT ?s WHERE { GRAPH <urn:omoide:graph:default:bob:s9:> { ?m jido:summary ?s } }",
            f"SELECT ?s WHERE {{ jido:memory_{kept.id} jido:summary ?s }}",
            "SELECT ?s WHERE { GRAPH <urn:omoide:meta> { ?s ?p ?o } }",
        ):
            assert not (await view.sparql(query, SCOPE)).rows, query
        assert not (await view.sparql(f"DESCRIBE jido:memory_{kept.id}", SCOPE)).triples
        with pytest.raises(InvalidQuery, match="FROM"):
            await view.sparql(
                "SELECT ?s FROM <urn:omoide:graph:default:bob:s9:> WHERE { ?m jido:summary ?s }", SCOPE
            )
        with pytest.raises(Invalid, match="graphs"):
            await view.sparql(SAID, SCOPE, graphs=["urn:omoide:graph:default:bob:s9:"])


async def test_the_ontology_is_beside_the_memories(store: Any) -> None:
    """A query may follow the classes of the ontology."""
    await omoide.remember(store, "Use Postgres.", SCOPE, type="architectural_decision")
    async with graph.open(store) as view:
        query = "SELECT ?said WHERE { ?m a/rdfs:subClassOf* jido:Decision ; jido:summary ?said }"
        assert (await view.sparql(query, SCOPE)).values("said") == ("Use Postgres.",)


async def test_graphs_of_ones_own_can_be_joined_and_are_left_alone(
    store: Any, oxigraph_server: Server
) -> None:
    """What a user keeps at the endpoint under another name can be asked with the scope, and survives."""
    own = "https://example.com/owners"
    async with graph.open(store, endpoint=oxigraph_server[0], update_endpoint=oxigraph_server[1]) as view:
        view.core.backend.replace(
            [], f'<https://jido.ai/ontology#project_shop> <https://example.com/owner> "Ann" <{own}> .\n'
        )
        await omoide.remember(store, "joined", SCOPE)
        query = (
            "SELECT ?said ?who WHERE"
            " { ?m jido:summary ?said ; jido:appliesToProject/<https://example.com/owner> ?who }"
        )
        assert not (await view.sparql(query, SCOPE)).rows
        assert (await view.sparql(query, SCOPE, graphs=[own])).values("who") == ("Ann",)
        await view.rebuild("default")
        await omoide.erase(store, SCOPE)
        assert await contents_of(view) == []
        assert own in view.core.backend.graphs()
        view.core.backend.drop([own])


async def test_a_query_that_runs_for_ever_is_stopped(store: Any) -> None:
    """In a process of its own, a query ends when its time is over, and the next one is answered."""
    entries = [Entry(agent_id="ann", session_id="s1", project_id="shop", content=f"m{n}") for n in range(300)]
    await store.write_many([WriteRequest(entry=entry) for entry in entries])
    triples = " ".join(f"?a{n} ?p{n} ?o{n} ." for n in range(6))
    async with graph.open(store) as view:
        with pytest.raises(QueryStopped):
            await view.sparql(
                f"SELECT (COUNT(*) AS ?n) WHERE {{ {triples} }}", SCOPE, isolated=True, timeout=1
            )
        answer = await view.sparql(
            "SELECT (COUNT(?m) AS ?n) WHERE { ?m jido:summary ?s }", SCOPE, isolated=True
        )
        assert answer.values("n") == (300,)


async def test_what_is_isolated_answers_the_same(store: Any) -> None:
    """A query gives the same rows in this process and in one of its own, bindings included."""
    for number in range(20):
        await omoide.remember(store, f"memory {number}", SCOPE, type="fact", confidence=number / 20)
    query = "SELECT ?s ?c WHERE { ?m jido:summary ?s ; jido:confidence ?c FILTER(?c >= ?least) } ORDER BY ?s"
    async with graph.open(store) as view:
        here = await view.sparql(query, SCOPE, least=0.5)
        apart = await view.sparql(query, SCOPE, isolated=True, least=0.5)
        assert [*here.rows] == [*apart.rows]
        assert len(here) == 10


async def test_a_store_with_three_methods_is_enough(tmp_path: Path) -> None:
    """A store that cannot tell what changed is seen as a graph all the same."""
    from examples.own_store import JsonLinesStore

    store = JsonLinesStore(tmp_path / "m.jsonl")
    async with graph.open(store) as view:
        assert await contents_of(view) == []
        first = Entry(agent_id="ann", session_id="s1", project_id="shop", content="one")
        await store.write(WriteRequest(entry=first))
        assert await contents_of(view) == ["one"]
        await store.write(WriteRequest(entry=first.replace(content="two")))
        assert await contents_of(view) == ["two"]


def test_without_an_event_loop_the_same_is_found() -> None:
    """Programs without `await` ask, trace, export and import through `blocking.open_graph`."""
    with open_store("memory://", embedder="none") as store:
        kept = blocking.remember(store, "plain", SCOPE, type="fact")
        with blocking.open_graph(store) as view:
            assert view.sparql(SAID, SCOPE).values("said") == ("plain",)
            assert view.provenance(kept.id, SCOPE).entry.content == "plain"
            assert view.related(kept.id, SCOPE) == []
            assert view.validate(SCOPE).conforms


def keywords(call: Any) -> dict[str, Any]:
    parameters = inspect.signature(call).parameters.items()
    return {
        name: parameter.default for name, parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY
    }


@pytest.mark.parametrize(
    ("options", "call"),
    [
        (blocking.GraphOptions, graph.open),
        (blocking.FileOptions, GraphView.export),
        (blocking.LoadOptions, GraphView.load),
        (blocking.ProvenanceOptions, provenance),
    ],
)
def test_blocking_functions_declare_the_options_of_the_async_ones(options: Any, call: Any) -> None:
    """Type checkers and completion see each option that exists, and no other one."""
    assert options.__annotations__.keys() == keywords(call).keys()


def test_blocking_queries_have_the_options_and_defaults_of_the_async_ones() -> None:
    """A query has the same limit with and without an event loop; `related` takes `depth` by position, too."""
    assert keywords(blocking.BlockingGraph.sparql) == keywords(GraphView.sparql)
    assert {*blocking.RelatedOptions.__annotations__, "depth"} == {*keywords(related)}


async def test_many_ask_at_once(store: Any) -> None:
    """Readers and writers at once see whole memories, and in the end everything."""
    async with graph.open(store) as view:

        async def write(number: int) -> None:
            await omoide.remember(store, f"memory {number}", SCOPE, type="fact")

        async def ask() -> None:
            whole = "SELECT ?m WHERE { ?m a jido:Fact FILTER NOT EXISTS { ?m jido:summary ?s } }"
            for _ in range(5):
                assert not (await view.sparql(whole, SCOPE)).rows

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(write, number)
            for _ in range(4):
                tasks.start_soon(ask)
        assert len(await contents_of(view)) == 20


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("INSERT DATA { <urn:a> <urn:b> <urn:c> }", "INSERT"),
        ("DELETE WHERE { ?s ?p ?o }", "DELETE"),
        ("SELECT * WHERE { SERVICE <http://localhost/> { ?s ?p ?o } }", "SERVICE"),
        ("LOAD <http://localhost/>", "LOAD"),
        ("SELECT ?s WHERE { ?s ?p }", "query cannot be read"),
        ("", "query"),
    ],
)
async def test_what_no_query_may_do_is_refused(query: str, problem: str, store: Any) -> None:
    """Updates, SERVICE and LOAD, and what is no SPARQL, are refused with words that say so."""
    async with graph.open(store) as view:
        with pytest.raises(InvalidQuery, match=problem):
            await view.sparql(query, SCOPE)


async def test_what_is_wrong_around_a_query_is_named(store: Any) -> None:
    """A scope that is none, a limit of 0, an unknown variable, and two places at once are refused."""
    with pytest.raises(Invalid, match="path"):
        graph.open(store, path="x", endpoint="http://localhost:1/")
    async with graph.open(store) as view:
        with pytest.raises(WrongType, match="scope"):
            await view.sparql(SAID, "everything")  # type: ignore[arg-type]
        with pytest.raises(Invalid, match="limit"):
            await view.sparql(SAID, SCOPE, limit=0)
        with pytest.raises(InvalidQuery, match="nobody"):
            await view.sparql(SAID, SCOPE, nobody=1)
        answer = await view.sparql("SELECT ?c WHERE { ?c a owl:Class }", SCOPE, limit=5)
        assert answer.truncated
        assert len(answer) == 5


def test_a_projection_can_be_closed_before_it_was_used() -> None:
    """Opening a graph and closing it reads nothing."""
    with open_store("memory://") as store:
        GraphProjection(source_for(store), OxigraphBackend()).close()


def test_the_graph_is_not_loaded_by_those_who_do_not_ask() -> None:
    """Importing Omoide does not import Oxigraph."""
    code = "import sys, omoide; omoide.graph; sys.exit('pyoxigraph' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
