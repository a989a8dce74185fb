"""Several programs can maintain one graph at an endpoint."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.sparql_servers import Server

import omoide
from omoide import Scope, WriteRequest, clock, graph, open_store
from omoide.errors import Busy
from omoide.graph import GraphView, sync
from omoide.graph.endpoint import EndpointBackend
from omoide.graph.vocabulary import ONTOLOGY_GRAPH, OWNER_GRAPH, UNION_GRAPH

FIRST = Scope(agent_id="ann", session_id="s1")
SECOND = Scope(agent_id="ann", session_id="s2")
ANN = Scope(agent_id="ann")
SAID = "SELECT ?said WHERE { ?m jido:summary ?said } ORDER BY ?said"
NOW = 1_763_000_000_123

Open = Callable[[Any], GraphView]


@pytest.fixture
def open_there(oxigraph_server: Server) -> Iterator[Open]:
    """Opens views on one endpoint, which is empty at first."""
    backend = EndpointBackend(*oxigraph_server)
    backend.drop(backend.graphs())
    yield partial(graph.open, endpoint=oxigraph_server.query_url, update_endpoint=oxigraph_server.update_url)
    backend.close()


async def contents_of(view: GraphView, scope: Scope = ANN) -> list[str]:
    return [*map(str, (await view.sparql(SAID, scope)).values("said"))]


def statements_in(view: GraphView) -> set[bytes]:
    """All that a graph says about memories and their owners."""
    backend = view.core.backend
    return {*backend.dump(backend.graphs(OWNER_GRAPH)).split(b"\n")}


def dump_all(view: GraphView) -> bytes:
    return view.core.backend.dump(view.core.backend.graphs("urn:omoide:"))


async def test_a_memory_that_two_took_in_has_one_version(open_there: Open) -> None:
    """What one program took in and another finds changed is there once, as it is now."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "zero", FIRST, id="0")
        async with open_there(store) as one, open_there(store) as two:
            assert await contents_of(one) == await contents_of(two) == ["zero"]
            await omoide.remember(store, "as it was", FIRST, id="1")
            assert await contents_of(two) == ["as it was", "zero"]
            await omoide.remember(store, "as it is", FIRST, id="1")
            assert await contents_of(one) == await contents_of(two) == ["as it is", "zero"]
            assert len(await one.sparql("SELECT ?r WHERE { jido:memory_1 jido:revision ?r }", ANN)) == 1


async def test_what_was_erased_is_found_by_nobody(open_there: Open) -> None:
    """An erasure reaches graphs that others made, and nobody who comes later finds what they held."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "zero", FIRST)
        async with open_there(store) as one:
            assert await contents_of(one, FIRST) == ["zero"]
            async with open_there(store) as two:
                await omoide.remember(store, "a secret", SECOND)
                assert await contents_of(two, SECOND) == ["a secret"]
                assert await contents_of(two) == ["a secret", "zero"]
            await omoide.erase(store, SECOND)
            assert await contents_of(one, FIRST) == ["zero"]
            assert b"a secret" not in dump_all(one)
            assert b"session_s2" not in dump_all(one)
        async with open_there(store) as three:
            assert await contents_of(three, SECOND) == []
            assert await contents_of(three) == ["zero"]


async def test_wide_graphs_are_shared_and_followed_by_all(open_there: Open) -> None:
    """A scope of several sessions has one graph at the endpoint, whoever asked for it first."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "one", FIRST)
        await omoide.remember(store, "two", SECOND)
        async with open_there(store) as first, open_there(store) as second:
            assert await contents_of(first) == await contents_of(second) == ["one", "two"]
            assert len(first.core.backend.graphs(UNION_GRAPH)) == 1
            await omoide.remember(store, "three", SECOND)
            assert await contents_of(second) == ["one", "three", "two"]
            assert await contents_of(first) == ["one", "three", "two"]
            assert len(first.core.backend.graphs(UNION_GRAPH)) == 1


async def test_what_a_crash_left_at_the_endpoint_is_followed(open_there: Open) -> None:
    """Graphs of a program that was never closed hold nothing of what is erased later."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "a secret", FIRST)
        await omoide.remember(store, "two", SECOND)
        gone = open_there(store)
        assert await contents_of(gone) == ["a secret", "two"]
        gone.core.backend.close()  # nothing was said to the view: so it is when a process dies
        await omoide.erase(store, FIRST)
        async with open_there(store) as later:
            assert await contents_of(later, SECOND) == ["two"]
            assert b"a secret" not in dump_all(later)
            assert await contents_of(later) == ["two"]


async def test_two_stores_at_one_endpoint_are_not_mixed_up(open_there: Open) -> None:
    """Each view has the memories of its own store, although both call their namespace the same."""
    async with open_store("memory://", embedder="none") as mine, open_store("memory://") as yours:
        await omoide.remember(mine, "mine", FIRST, id="m")
        await omoide.remember(yours, "yours", FIRST, id="y")
        async with open_there(mine) as one, open_there(yours) as two:
            for _ in range(2):
                assert await contents_of(one) == ["mine"]
                assert await contents_of(two) == ["yours"]
            await omoide.remember(mine, "mine too", SECOND)
            assert await contents_of(two) == ["yours"]
            assert await contents_of(one) == ["mine", "mine too"]


async def test_when_one_builds_the_graph_again_the_others_still_have_all_of_it(open_there: Open) -> None:
    """Whoever asks after another program threw the graph away and built it again gets the whole answer."""
    async with open_store("memory://", embedder="none") as store:
        for number in range(40):
            await omoide.remember(store, f"memory {number}", FIRST)
        async with open_there(store) as one, open_there(store) as two:
            assert len(await contents_of(one, FIRST)) == 40
            assert await two.rebuild("default") == 40
            assert len(await contents_of(one, FIRST)) == 40


async def test_the_ontology_is_never_away(open_there: Open) -> None:
    """A program that comes later leaves the ontology where it is, and does not load it once more."""
    async with open_store("memory://", embedder="none") as store:
        async with open_there(store) as one:
            assert (await one.sparql("ASK { jido:Bug rdfs:subClassOf jido:Error }", ANN)).truth
        two = open_there(store)
        changed = list[Any]()
        for name in ("drop", "replace"):
            step = getattr(two.core.backend, name)

            def noted(*given: Any, step: Callable[..., Any] = step) -> Any:
                changed.append(given)
                return step(*given)

            setattr(two.core.backend, name, noted)
        async with two:
            assert (await two.sparql("ASK { jido:Bug rdfs:subClassOf jido:Error }", ANN)).truth
            assert changed == []
            assert ONTOLOGY_GRAPH in two.core.backend.graphs()


async def test_whoever_changes_the_graph_waits_for_the_other(
    open_there: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While one program brings the graph up to date another is told so; who has nothing to change just asks.

    What a program that died held is free again when its time is over.
    """
    monkeypatch.setattr(sync, "LEASE_TIMEOUT", 0.05)
    namespace = Scope(namespace="default")
    async with open_store("memory://", embedder="none") as store, open_there(store) as view:
        with clock.override(lambda: NOW):
            await omoide.remember(store, "one", FIRST)
            assert await contents_of(view, FIRST) == ["one"]
            key = sha256(view.core.backend.name.encode()).hexdigest()
            lease = await store.claim(sync.LEASE_KIND, key, namespace, owner="dead", ttl_ms=sync.LEASE_TTL_MS)
            assert lease is not None
            assert await contents_of(view, FIRST) == ["one"]
            await omoide.remember(store, "two", FIRST)
            with pytest.raises(Busy, match="another program"):
                await contents_of(view, FIRST)
        with clock.override(lambda: NOW + sync.LEASE_TTL_MS + 1):
            assert await contents_of(view, FIRST) == ["one", "two"]
            assert await store.claim(sync.LEASE_KIND, key, namespace, owner="other", ttl_ms=1) is not None


def test_a_lease_ends_before_patience_does() -> None:
    """Nobody gives up because of a program that died."""
    assert sync.LEASE_TTL_MS / 1_000 < sync.LEASE_TIMEOUT


async def test_many_views_of_many_stores_write_at_once(open_there: Open, tmp_path: Path) -> None:
    """Several programs that write and ask at once leave a graph as one that was just made."""
    url = f"sqlite:///{tmp_path / 'm.db'}"

    async def work(name: int) -> None:
        async with open_store(url, embedder="none") as store, open_there(store) as view:
            for number in range(4):
                scope = (FIRST, SECOND)[number % 2]
                await omoide.remember(store, f"{name}, {number}", scope, id=f"m{name}{number}")
                assert f"{name}, {number}" in await contents_of(view, scope)
                entry = await store.get(f"m{name}{number}", ANN)
                await store.write(WriteRequest(entry=entry.replace(content=f"{name}, {number}!")))
                if number == 2:
                    await omoide.erase(store, ANN, id=f"m{name}0")
            assert {f"{name}, {number}!" for number in (1, 3)} <= {*await contents_of(view, SECOND)}

    async with open_store(url, embedder="none") as store, open_there(store) as view:
        await omoide.remember(store, "before", FIRST)
        assert await contents_of(view, FIRST) == ["before"]
    async with anyio.create_task_group() as tasks:
        for name in range(3):
            tasks.start_soon(work, name)
    async with open_store(url, embedder="none") as store, open_there(store) as view, graph.open(store) as new:
        assert await contents_of(view) == await contents_of(new)
        assert len(await contents_of(view)) == 10
        assert statements_in(view) == statements_in(new)


async def test_two_processes_keep_one_graph(
    open_there: Open, oxigraph_server: Server, tmp_path: Path
) -> None:
    """What another process wrote and took in, this one changes and erases, and the other way round."""
    path = tmp_path / "m.db"
    code = (
        "import sys; from omoide import *; from omoide import blocking\n"
        "scope = Scope(agent_id='ann', session_id='s2')\n"
        "with open_store('sqlite:///' + sys.argv[1], embedder='none') as store:\n"
        "    blocking.remember(store, 'there', scope, id='1')\n"
        "    blocking.erase(store, Scope(agent_id='ann', session_id='s1'))\n"
        "    with blocking.open_graph(store, endpoint=sys.argv[2], update_endpoint=sys.argv[3]) as view:\n"
        "        assert len(view.sparql('SELECT ?m { ?m jido:summary ?s }', Scope(agent_id='ann'))) == 1\n"
    )
    async with open_store(f"sqlite:///{path}", embedder="none") as store, open_there(store) as view:
        await omoide.remember(store, "here", FIRST)
        await omoide.remember(store, "as it was", SECOND, id="1")
        assert await contents_of(view) == ["as it was", "here"]
        await anyio.run_process([sys.executable, "-c", code, str(path), *oxigraph_server])
        assert await contents_of(view) == ["there"]
        assert await contents_of(view, FIRST) == []
        await omoide.erase(store, ANN)
        assert await contents_of(view) == []
        assert view.core.backend.graphs(OWNER_GRAPH) == view.core.backend.graphs(UNION_GRAPH) == []


async def test_a_wide_graph_is_followed_by_those_who_never_asked_for_it(open_there: Open) -> None:
    """Who takes in a change puts it into wide graphs as well that others made meanwhile."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "one", FIRST)
        await omoide.remember(store, "two", SECOND)
        async with open_there(store) as wide, open_there(store) as narrow:
            assert await contents_of(narrow, FIRST) == ["one"]
            assert await contents_of(wide) == ["one", "two"]
            await omoide.remember(store, "three", SECOND)
            assert await contents_of(narrow, FIRST) == ["one"]
            assert await contents_of(wide) == ["one", "three", "two"]


async def test_a_wide_graph_that_another_dropped_is_made_again(open_there: Open) -> None:
    """Who built the graph again took no answer away from others, in scopes of several sessions too."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "one", FIRST)
        await omoide.remember(store, "two", SECOND)
        async with open_there(store) as one, open_there(store) as two:
            assert await contents_of(one) == ["one", "two"]
            assert await two.rebuild("default") == 2
            assert await contents_of(one) == ["one", "two"]


async def test_an_answer_from_the_midst_of_a_rebuild_is_not_given(open_there: Open) -> None:
    """What was found while another program had emptied the graph is asked again."""
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "one", FIRST)
        async with open_there(store) as one, open_there(store) as two:
            assert await contents_of(one, FIRST) == await contents_of(two, FIRST) == ["one"]
            query, replace = one.core.backend.query, two.core.backend.replace
            found = list[Any]()

            def amid(*given: Any, **options: Any) -> Any:
                if found:
                    return query(*given, **options)

                def refill(*told: Any, **into: Any) -> None:
                    found.append(query(*given, **options))
                    replace(*told, **into)

                setattr(two.core.backend, "replace", refill)  # noqa: B010
                two.core.projection.rebuild("default")
                return found[0]

            setattr(one.core.backend, "query", amid)  # noqa: B010
            assert await contents_of(one, FIRST) == ["one"]
            assert found[0].values("said") == ()


async def test_who_comes_while_the_graph_is_first_filled_leaves_it_alone(
    open_there: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another program is just taking in for the first time is not taken for what a crash left."""
    monkeypatch.setattr(sync, "LEASE_TIMEOUT", 0.05)
    async with open_store("memory://", embedder="none") as store:
        await omoide.remember(store, "one", FIRST)
        async with open_there(store) as one, open_there(store) as two:
            set_state = one.core.backend.set_state

            def late(namespace: str, state: Any) -> None:
                if namespace:
                    with suppress(Busy):
                        two.core.projection.catch_up(namespace)
                set_state(namespace, state)

            setattr(one.core.backend, "set_state", late)  # noqa: B010
            assert await contents_of(one, FIRST) == ["one"]
