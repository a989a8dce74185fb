"""Neither a hostile query nor a cancelled caller does harm."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

import omoide
from omoide import Scope, blocking, graph, open_store
from omoide.errors import InvalidQuery, InvalidRDF, WrongType
from omoide.graph import GraphView, sync
from omoide.graph.backend import prepare_query, with_limit
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.results import check_syntax
from omoide.graph.sparql import MAX_BYTES, MAX_PREFIX_LENGTH, MAX_VARIABLES, check_query
from omoide.graph.view import MAX_ATTEMPTS

ANN = Scope(agent_id="ann")
BOB = Scope(agent_id="bob")
SAID = "SELECT ?said WHERE { ?m jido:summary ?said } ORDER BY ?said"

TOO_MUCH = {
    "objects": "SELECT * { ?s ?p " + ",".join("1" * 20_000) + " }",
    "a collection": "SELECT * { ?s ?p (" + "1 " * 900 + ") }",
    "a long collection": "SELECT * { ?s ?p (" + "1 " * 20_000 + ") }",
    "things described": "DESCRIBE " + " ".join(f"<a:b{n}>" for n in range(6_000)),
    "steps of a path": "SELECT * { ?s " + "/".join(["<a:b>"] * 990) + " ?o }",
    "ways of a path": "SELECT * { ?s " + "|".join(["<a:b>"] * 990) + " ?o }",
    "patterns": "SELECT * { " + "?s ?p ?o." * 900 + " }",
    "predicates": "SELECT * { ?s " + "?p ?o;" * 900 + " }",
    "variables": "SELECT " + " ".join(f"?x{n}" for n in range(1_000)) + " { ?s ?p ?o }",
    "variables in a table": "SELECT * { VALUES (" + " ".join(f"?x{n}" for n in range(999)) + ") { } }",
    "a sum in a list": "SELECT * { FILTER(1 IN (" + "+".join("1" * 30_000) + ")) }",
    "a denial in a list": "SELECT * { FILTER(1 IN (" + "!" * 40_000 + "true)) }",
    "patterns in a list": "SELECT * { FILTER(1 IN (EXISTS { " + "?s ?p ?o." * 400 + " })) }",
    "triples in a table": "SELECT * { VALUES ?x { "
    + "<<( " * 5_000
    + "<a:b> <a:b> 1 "
    + ")>> " * 5_000
    + "} }",
}  # fmt: skip


@pytest.mark.parametrize("query", TOO_MUCH.values(), ids=TOO_MUCH.keys())
def test_what_would_break_an_engine_is_not_asked(query: str) -> None:
    """A query with very much of anything is refused before an engine reads it."""
    assert len(query) < MAX_BYTES
    with pytest.raises(InvalidQuery, match=r"too long|variables"):
        check_query(query)


def test_tables_of_values_may_be_long() -> None:
    """What is plainly data may come by the thousand."""
    numbers = " ".join(map(str, range(5_000)))
    here = OxigraphBackend()
    many = here.query(f"SELECT * {{ VALUES ?n {{ {numbers} }} }}", default_graphs=[])
    assert len(many) == 5_000
    listed = numbers.replace(" ", ", ")
    few = here.query(f"SELECT * {{ VALUES ?n {{ 7 -7 }} FILTER(?n IN ({listed})) }}", default_graphs=[])
    assert few.values("n") == (7,)


def test_a_query_of_as_many_variables_as_allowed_is_answered() -> None:
    """The limit itself is within the limit."""
    names = " ".join(f"?x{n}" for n in range(MAX_VARIABLES - 3))
    answer = OxigraphBackend().query(f"SELECT {names} {{ ?s ?p ?o }}", default_graphs=[])
    assert len(answer.variables) == MAX_VARIABLES - 3
    with pytest.raises(InvalidQuery, match="variables"):
        check_query(f"SELECT {names} ?more {{ ?s ?p ?o }}")


def test_prefixes_do_not_make_a_query_grow_without_bounds() -> None:
    """A prefix is short, and a query is not much longer with its prefixes written out than a query may be."""
    with pytest.raises(InvalidQuery, match="prefix of more than"):
        check_query(f"PREFIX x: <u:{'x' * MAX_PREFIX_LENGTH}> ASK {{ VALUES ?s {{ x:a }} }}")
    most = f"PREFIX x: <u:{'x' * (MAX_PREFIX_LENGTH - 10)}>"
    with pytest.raises(InvalidQuery, match="prefixes are written out"):
        check_query(f"{most} ASK {{ VALUES ?s {{ {'x:a ' * 20_000} }} }}")
    assert (
        len(check_query(f"{most} ASK {{ VALUES ?s {{ {'x:a ' * 100} }} }}").text)
        > 100 * MAX_PREFIX_LENGTH * 0.9
    )


def test_a_query_is_read_and_not_carried_out_to_see_whether_it_can_be_read() -> None:
    """What a question of yes or no would take is left to the endpoint, which has a limit of time."""
    table = " ".join(map(str, range(250)))
    values = " ".join(f"VALUES ?{name} {{ {table} }}" for name in "abc")
    before = time.monotonic()
    assert check_syntax(prepare_query(f"ASK {{ {values} FILTER(?a + ?b + ?c < 0) }}", {}, 1)).form == "ASK"
    assert time.monotonic() - before < 1  # 15 million sums take far longer
    with pytest.raises(InvalidQuery, match="cannot be read"):
        check_syntax(prepare_query("ASK { ?s ?p }", {}, 1))


@pytest.mark.parametrize("end", ["LIMIT", "LIMIT OFFSET", "LIMIT ?n", "LIMIT 'x'"])
def test_a_limit_has_a_number(end: str) -> None:
    """A LIMIT that says nothing is told as that."""
    with pytest.raises(InvalidQuery, match="LIMIT"):
        with_limit(prepare_query(f"SELECT * {{ ?s ?p ?o }} {end}", {}, 5), 5)


async def test_graphs_are_asked_by_name_however_that_is_spelled() -> None:
    """GRAPH finds the graphs of the scope in any case, and written with escapes."""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        await omoide.remember(store, "one", ANN)
        for word in ("GRAPH", "graph", "GR\\u0041PH"):
            found = await view.sparql(f"SELECT ?s {{ {word} ?g {{ ?m jido:summary ?s }} }}", ANN)
            assert found.values("s") == ("one",)


async def test_bindings_are_a_mapping() -> None:
    """Values for variables come as a mapping, and what is none is told so."""
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        with pytest.raises(WrongType, match="bindings"):
            await view.sparql(SAID, ANN, bindings="x")  # type: ignore[arg-type]


async def test_a_file_cannot_reach_memories_of_others() -> None:
    """A link to what lies outside the scope is left out, exactly as one to what does not exist."""
    told = (
        b"@prefix jido: <https://jido.ai/ontology#> . jido:memory_q a jido:Fact ; jido:summary 'q' ;"
        b" jido:contradicts jido:memory_b, jido:memory_a, jido:memory_nowhere ."
    )
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        await omoide.remember(store, "Ann's", ANN, id="a")
        await omoide.remember(store, "Bob's", BOB, id="b")
        assert await view.load(told, ANN, format="turtle") == 1
        assert [link.target for link in await store.links("q", Scope())] == ["a"]
        assert await store.links("b", Scope()) == []


async def test_a_file_cannot_have_a_memory_replace_itself() -> None:
    """What is superseded by itself would never hold, so the file is refused and nothing is kept."""
    told = (
        b"@prefix jido: <https://jido.ai/ontology#> ."
        b" jido:memory_p a jido:Fact ; jido:summary 'p' ."
        b" jido:memory_q a jido:Fact ; jido:summary 'q' ; jido:supersededBy jido:memory_q ."
    )
    async with open_store("memory://", embedder="none") as store, graph.open(store) as view:
        with pytest.raises(InvalidRDF, match="superseded by itself"):
            await view.load(told, ANN, format="turtle")
        assert await store.list_entries(ANN) == []


async def test_a_view_is_closed_also_when_its_block_is_cancelled(tmp_path: Path) -> None:
    """Whoever is cancelled inside of the block leaves the folder free for the next."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "one", ANN)
        with anyio.CancelScope() as cancelled:
            async with graph.open(store, path=tmp_path / "graph") as view:
                await view.sparql(SAID, ANN)
                cancelled.cancel()
                await anyio.lowlevel.checkpoint()
        assert cancelled.cancelled_caught
        async with graph.open(store, path=tmp_path / "graph") as again:
            assert (await again.sparql(SAID, ANN)).values("said") == ("one",)


def two_sessions(store: Any, agents: int) -> None:
    for number in range(agents):
        for session in ("s1", "s2"):
            blocking.remember(store, session, Scope(agent_id=f"a{number}", session_id=session))


@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("times", [1, MAX_ATTEMPTS])
async def test_an_answer_is_whole_although_its_graph_was_dropped_meanwhile(
    isolated: bool, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes room for other scopes, or builds the graph again, takes nothing from who asks."""
    monkeypatch.setattr(sync, "MAX_UNION_GRAPHS", 1)
    name = "dump" if isolated else "query"
    for disturb in ("others", "rebuild"):
        with open_store("memory://", embedder="none") as store:
            two_sessions(store, 2)
            backend = OxigraphBackend()
            async with GraphView(store, backend) as view:
                await view.sparql(SAID, Scope(agent_id="a0"))
                real: Callable[..., Any] = getattr(backend, name)
                left = [times]

                def disturbed(
                    *given: Any,
                    real: Callable[..., Any] = real,
                    left: list[int] = left,
                    view: GraphView = view,
                    disturb: str = disturb,
                    **options: Any,
                ) -> Any:
                    if left[0]:
                        left[0] -= 1
                        if disturb == "others":
                            view.core.projection.dataset(Scope(agent_id="a1"))
                        else:
                            view.core.projection.rebuild("default")
                    return real(*given, **options)

                setattr(backend, name, disturbed)
                found = await view.sparql(SAID, Scope(agent_id="a0"), isolated=isolated)
                assert found.values("said") == ("s1", "s2"), disturb
                assert left == [0]


async def test_more_wide_scopes_than_are_kept_are_asked_at_once() -> None:
    """Many who ask about many scopes at once all get whole answers."""
    agents = sync.MAX_UNION_GRAPHS + 8
    with open_store("memory://", embedder="none") as store:
        two_sessions(store, agents)
        async with graph.open(store) as view:

            async def ask(number: int) -> None:
                for turn in range(4):
                    scope = Scope(agent_id=f"a{(number + turn * 7) % agents}")
                    assert (await view.sparql(SAID, scope)).values("said") == ("s1", "s2")

            async with anyio.create_task_group() as tasks:
                for number in range(agents):
                    tasks.start_soon(ask, number)
            assert len(view.core.backend.graphs("urn:omoide:wide:")) <= sync.MAX_UNION_GRAPHS


AWAITED = """
import anyio
from anyio import to_thread
import omoide
from omoide import Scope, graph, open_store

class Awaited:
    def __init__(self, store):
        self._store = store
    def __getattr__(self, name):
        return getattr(self._store, name)

async def main():
    to_thread.current_default_thread_limiter().total_tokens = 4
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "one", Scope(agent_id="ann"))
        done = []
        async with graph.open(Awaited(store)) as view:
            async def ask(number):
                await omoide.remember(store, f"memory {number}", Scope(agent_id="ann"))
                answer = await view.sparql("SELECT ?s { ?m jido:summary ?s }", Scope(agent_id="ann"))
                done.append(len(answer))
            async with anyio.create_task_group() as tasks:
                for number in range(60):
                    tasks.start_soon(ask, number)
        assert len(done) == 60
        assert max(done) == 61

anyio.run(main)
"""


def test_many_may_ask_a_store_that_is_awaited() -> None:
    """Queries that wait for each other do not take the threads that the store needs to go on."""
    told = subprocess.run([sys.executable, "-c", AWAITED], timeout=60, capture_output=True, check=False)
    assert told.returncode == 0, told.stderr.decode()
