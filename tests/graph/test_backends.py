"""Every backend stores what it is given, and a query sees only its own graphs."""

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omoide.errors import (
    Busy,
    Closed,
    Corrupted,
    DiskFull,
    Forked,
    Invalid,
    InvalidRDF,
    QueryStopped,
    ReadOnly,
    StoreFailed,
)
from omoide.graph import graph_iri, memory_iri
from omoide.graph.backend import GraphBackend, SyncState
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.results import oxigraph_error
from omoide.graph.vocabulary import EVIDENCE, ONTOLOGY_GRAPH

ALICE, BOB = graph_iri("home", "alice"), graph_iri("home", "bob")
P = "https://jido.ai/ontology#"


def memory(id: str, said: str, *evidence: str, graph: str = ALICE) -> str:
    """A memory, short, with the nodes it derives from."""
    about = f'<{memory_iri(id)}> <{P}summary> "{said}" <{graph}> .\n'
    for name in evidence:
        about += f"<{memory_iri(id)}> <{P}derivedFrom> <{EVIDENCE}{name}> <{graph}> .\n"
        about += f'<{EVIDENCE}{name}> <{P}reference> "{name}" <{graph}> .\n'
    return about


def lines(backend: GraphBackend, *graphs: str) -> list[str]:
    return sorted(backend.dump(graphs).decode().splitlines(keepends=True))


def lines_of(*said: str) -> list[str]:
    return sorted({line for each in said for line in each.splitlines(keepends=True)})


def test_what_is_given_is_kept(backend: GraphBackend) -> None:
    """What a graph is told it holds, under the name of its graph."""
    assert backend.graphs() == []
    backend.replace([], memory("1", "tea") + memory("2", "rain", graph=BOB))
    assert backend.graphs() == [ALICE, BOB]
    assert backend.graphs(ALICE) == [ALICE]
    assert lines(backend, ALICE, BOB, "urn:none") == lines_of(
        memory("1", "tea"), memory("2", "rain", graph=BOB)
    )


def test_a_subject_is_replaced(backend: GraphBackend) -> None:
    """Replacing a memory leaves nothing of the old one, and doing it again changes nothing."""
    backend.replace([], memory("1", "tea", "a", "b") + memory("2", "rain", "b"))
    for _ in range(2):
        backend.replace([(ALICE, memory_iri("1"))], memory("1", "coffee", "c"))
        assert lines(backend, ALICE) == lines_of(memory("1", "coffee", "c"), memory("2", "rain", "b"))


def test_nodes_go_with_the_last_that_names_them(backend: GraphBackend) -> None:
    """Evidence of two memories stays with the second, goes with both, and never goes from another graph."""
    mine, other = memory("1", "tea", "a") + memory("2", "rain", "a"), memory("1", "tea", "a", graph=BOB)
    backend.replace([], mine + other)
    backend.replace([(ALICE, memory_iri("1"))], "")
    assert lines(backend, ALICE) == lines_of(memory("2", "rain", "a"))
    backend.replace([], memory("1", "tea", "a"))
    backend.replace([(ALICE, memory_iri("1")), (ALICE, memory_iri("2"))], "")
    assert lines(backend, ALICE) == []
    assert lines(backend, BOB) == lines_of(other)


def test_graphs_are_copied_together(backend: GraphBackend) -> None:
    """A wide graph says what its sources say, and forgets what they do not say any more."""
    backend.replace([], memory("1", "tea") + memory("2", "rain", graph=BOB))
    backend.copy_graphs([ALICE, BOB, "urn:none"], "urn:wide")
    assert lines(backend, "urn:wide") == lines_of(
        memory("1", "tea", graph="urn:wide"), memory("2", "rain", graph="urn:wide")
    )
    backend.copy_graphs([BOB], "urn:wide")
    assert lines(backend, "urn:wide") == lines_of(memory("2", "rain", graph="urn:wide"))
    backend.copy_graphs([], "urn:wide")
    assert backend.graphs() == [ALICE, BOB]


def test_graphs_are_dropped(backend: GraphBackend) -> None:
    """A dropped graph is gone, and others stay; one that does not exist is passed over."""
    backend.replace([], memory("1", "tea") + memory("2", "rain", graph=BOB))
    backend.drop([ALICE, "urn:none"])
    backend.drop([])
    assert backend.graphs() == [BOB]


def test_the_state_of_each_namespace_is_kept(backend: GraphBackend) -> None:
    """How far each namespace was followed is written down, replaced, and not mixed up."""
    assert backend.state("a b") is None
    backend.set_state("a b", SyncState("life", 1, 2))
    backend.set_state("a", SyncState("other", 3))
    backend.set_state("a b", SyncState('li"fe\\n', 4, 5))
    assert backend.state("a b") == SyncState('li"fe\\n', 4, 5)
    assert backend.state("a") == SyncState("other", 3, 0)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT ?o { ?s jido:summary ?o }",
        "SELECT ?o { GRAPH ?g { ?s jido:summary ?o } }",
        f"SELECT ?o {{ GRAPH <{BOB}> {{ ?s jido:summary ?o }} }}",
        "SELECT ?o { { SELECT ?s ?o { ?s jido:summary ?o } } UNION { GRAPH ?g { ?s jido:summary ?o } } }",
        "SELECT ?o { ?s (jido:none|!jido:none)* ?o }",
        "SELECT ?o { VALUES ?s { <https://jido.ai/ontology#memory_2> } ?s ?p ?o }",
        "DESCRIBE jido:memory_2",
        "DESCRIBE ?s WHERE { ?s ?p ?o }",
        "DESCRIBE * WHERE { GRAPH ?g { ?s ?p ?o } }",
        "CONSTRUCT { ?s ?p ?o } WHERE { ?s ?p ?o FILTER NOT EXISTS { ?s jido:none ?x } }",
        "CONSTRUCT WHERE { ?s ?p ?o }",
    ],
)
def test_no_query_leaves_its_scope(backend: GraphBackend, query: str) -> None:
    """What one owner remembers cannot be found, named, described or reached from the scope of another."""
    backend.replace([], memory("1", "tea") + memory("2", "secret of bob", graph=BOB))
    for graphs, named in (([ALICE], [ALICE]), ([ALICE], []), ([], [ALICE]), ([], [])):
        found = backend.query(query, default_graphs=graphs, named_graphs=named)
        assert b"secret" not in found.to_json()


def test_named_graphs_are_those_of_the_scope(backend: GraphBackend) -> None:
    """GRAPH ?g ranges over the named graphs of the scope, and only over these."""
    backend.replace([], memory("1", "tea") + memory("2", "rain", graph=BOB))
    found = backend.query(
        "SELECT ?g ?o { GRAPH ?g { ?s jido:summary ?o } }", default_graphs=[ALICE, BOB], named_graphs=[ALICE]
    )
    assert [dict(row) for row in found] == [{"g": ALICE, "o": "tea"}]


def test_several_graphs_are_asked_as_one(backend: GraphBackend) -> None:
    """Patterns match across the graphs of a scope, and with the ontology beside them subclasses are found."""
    backend.replace(
        [],
        f"<{memory_iri('1')}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{P}Bug> <{ALICE}> .\n"
        f"<{memory_iri('1')}> <{P}relatedError> <{memory_iri('2')}> <{ALICE}> .\n"
        + memory("2", "rain", graph=BOB)
        + f"<{P}Bug> <http://www.w3.org/2000/01/rdf-schema#subClassOf> <{P}Error> <{ONTOLOGY_GRAPH}> .\n",
    )
    query = "SELECT ?o { ?s a/rdfs:subClassOf* jido:Error ; jido:relatedError/jido:summary ?o }"
    assert backend.query(query, default_graphs=[ALICE, BOB, ONTOLOGY_GRAPH]).values("o") == ("rain",)
    assert not backend.query(query, default_graphs=[ALICE, BOB])
    assert not backend.query(query, default_graphs=[ALICE, ONTOLOGY_GRAPH, "urn:none"])


def test_a_graph_that_does_not_exist_is_empty(backend: GraphBackend) -> None:
    """A scope in which nothing was ever said gives empty answers, not errors."""
    count = "SELECT (COUNT(*) AS ?n) { ?s ?p ?o }"
    for graphs in ([], ["urn:none"], ["urn:none", "urn:neither"]):
        assert backend.query(count, default_graphs=graphs, named_graphs=graphs).values("n") == (0,)
        assert backend.query("ASK {}", default_graphs=graphs).truth is True
        assert not backend.query("DESCRIBE <u:a>", default_graphs=graphs)
        assert not backend.query("CONSTRUCT WHERE { ?s ?p ?o }", default_graphs=graphs)


def test_limits_cut_answers_and_say_so(backend: GraphBackend) -> None:
    """An answer has at most `limit` rows or triples, and tells when there were more."""
    backend.replace([], "".join(memory(str(n), f"said {n}") for n in range(5)))

    def ask(query: str, limit: int) -> tuple[int, bool]:
        found = backend.query(query, default_graphs=[ALICE], limit=limit)
        return len(found), found.truncated

    every = "SELECT ?o { ?s ?p ?o } ORDER BY ?o"
    assert ask(every, 5) == (5, False)
    assert ask(every, 4) == (4, True)
    assert ask(f"{every} LIMIT 3", 3) == (3, False)
    assert ask(f"{every} LIMIT 3", 2) == (2, True)
    assert ask(f"{every} LIMIT 9 OFFSET 3", 2) == (2, False)
    assert ask(f"{every} OFFSET 3 LIMIT 9", 1) == (1, True)
    assert ask("SELECT ?o { { SELECT ?o { ?s ?p ?o } LIMIT 2 } }", 1) == (1, True)
    assert ask("SELECT ?o { ?s ?p ?o } VALUES ?o { 'said 1' 'said 2' 'none' }", 1) == (1, True)
    assert ask("SELECT ?o { ?s ?p ?o } VALUES ?o { 'said 1' 'said 2' 'none' }", 2) == (2, False)
    assert ask("CONSTRUCT WHERE { ?s ?p ?o }", 2) == (2, True)
    assert ask("CONSTRUCT { <u:a> <u:p> 1 } WHERE { ?s ?p ?o }", 1) == (1, False)
    assert ask("DESCRIBE ?s WHERE { ?s ?p ?o }", 3) == (3, True)
    with pytest.raises(Invalid, match="limit"):
        ask(every, 0)


def test_an_order_is_kept(backend: GraphBackend) -> None:
    """Rows come in the order that the query asks for."""
    backend.replace([], "".join(memory(str(n), f"said {n}") for n in range(9)))
    found = backend.query("SELECT ?o { ?s ?p ?o } ORDER BY DESC(?o)", default_graphs=[ALICE])
    assert found.values("o") == tuple(f"said {n}" for n in range(8, -1, -1))


@pytest.mark.parametrize("names", [["no iri"], ["u:a> { } } #"], ["relative"], [3]])
def test_names_of_graphs_are_iris(backend: GraphBackend, names: list[str]) -> None:
    """What is no IRI is refused as a graph, whatever is done with it, and nothing happens."""
    backend.replace([], memory("1", "tea"))
    for attempt in (
        lambda: backend.query("ASK {}", default_graphs=names),
        lambda: backend.query("ASK {}", default_graphs=[ALICE], named_graphs=names),
        lambda: backend.drop(names),
        lambda: backend.copy_graphs(names, "urn:wide"),
        lambda: backend.copy_graphs([ALICE], names[0]),
        lambda: backend.dump(names),
        lambda: backend.replace([(names[0], memory_iri("1"))], memory("2", "x")),
        lambda: backend.replace([(ALICE, names[0])], memory("2", "x")),
    ):
        with pytest.raises(Invalid):
            attempt()
    assert lines(backend, ALICE) == lines_of(memory("1", "tea"))


@pytest.mark.parametrize("broken", ['<u:a> <u:p> "open', "no triples", "<u:a> <u:p> ."])
def test_broken_statements_change_nothing(backend: GraphBackend, broken: str) -> None:
    """What cannot be read is refused as a whole, with what was to be removed still in place."""
    backend.replace([], memory("1", "tea"))
    for removed in ([], [(ALICE, memory_iri("1"))]):
        with pytest.raises(InvalidRDF):
            backend.replace(removed, memory("2", "rain") + broken)
    assert lines(backend, ALICE) == lines_of(memory("1", "tea"))


@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=30))
def test_any_text_is_kept_exactly(text: str) -> None:
    """A text of any characters is kept as it is, when it is new and when it replaces another."""
    from pyoxigraph import Literal

    graph = OxigraphBackend()
    for _ in range(2):
        graph.replace([("u:g", "u:a")], f"<u:a> <u:p> {Literal(text)} <u:g> .")
        assert graph.query("SELECT ?o { ?s ?p ?o }", default_graphs=["u:g"]).values("o") == (text,)


def test_a_replacement_is_seen_whole() -> None:
    """Whoever asks while a memory is replaced sees the old one or the new one, never none and never both."""
    graph = OxigraphBackend()
    graph.replace([], memory("1", "0", "a"))
    seen: set[int] = set()
    done = threading.Event()

    def look() -> None:
        while not done.is_set():
            seen.add(len(graph.query("SELECT ?o { ?s jido:summary ?o }", default_graphs=[ALICE])))

    watcher = threading.Thread(target=look)
    watcher.start()
    for n in range(300):
        graph.replace([(ALICE, memory_iri("1"))], memory("1", str(n), "a"))
    done.set()
    watcher.join()
    assert seen <= {1}


def test_many_threads_write_at_once() -> None:
    """What several threads write at the same time is all there."""
    graph = OxigraphBackend()

    def write(thread: int) -> None:
        for n in range(30):
            graph.replace([(ALICE, memory_iri(f"{thread}-{n}"))], memory(f"{thread}-{n}", "x", str(n % 3)))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(graph.query("SELECT ?s { ?s jido:summary ?o }", default_graphs=[ALICE])) == 120


def test_a_folder_survives_its_process(tmp_path: Path) -> None:
    """A graph at a path is there again when it is opened again."""
    graph = OxigraphBackend(tmp_path / "graph")
    graph.replace([], memory("1", "tea"))
    graph.set_state("home", SyncState("life", 7))
    graph.optimize()
    graph.close()
    again = OxigraphBackend(tmp_path / "graph")
    assert lines(again, ALICE) == lines_of(memory("1", "tea"))
    assert again.state("home") == SyncState("life", 7)


def test_a_folder_has_one_owner(tmp_path: Path) -> None:
    """A graph that is open cannot be opened again, here or in another process; the error says what to do."""
    path = tmp_path / "graph"
    graph = OxigraphBackend(path)
    with pytest.raises(Busy, match="a path of its own"):
        OxigraphBackend(path)
    script = (
        "import sys; from omoide.errors import Busy; from omoide.graph.oxigraph import OxigraphBackend\n"
        "try: OxigraphBackend(sys.argv[1])\nexcept Busy: print('busy')"
    )
    other = subprocess.run(
        [sys.executable, "-c", script, str(path)], capture_output=True, text=True, check=True
    )
    assert other.stdout == "busy\n"
    graph.close()
    OxigraphBackend(path).close()


def test_a_closed_graph_says_so() -> None:
    """After it was closed a graph answers nothing, and closing it again does no harm."""
    graph = OxigraphBackend()
    graph.close()
    graph.close()
    with pytest.raises(Closed):
        graph.query("ASK {}", default_graphs=[])
    with pytest.raises(Closed):
        graph.replace([], "")


def test_a_place_that_cannot_be_is_told(tmp_path: Path) -> None:
    """A file where a folder should be, and a folder of rubbish, are errors with a remedy."""
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreFailed, match="folder"):
        OxigraphBackend(tmp_path / "file")
    path = tmp_path / "graph"
    graph = OxigraphBackend(path)
    graph.replace([], memory("1", "tea"))
    graph.close()
    for part in path.glob("MANIFEST*"):
        part.write_bytes(b"rubbish" * 100)
    with pytest.raises(Corrupted, match="built again"):
        OxigraphBackend(path)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (OSError("IO error: While lock file: x/LOCK: Resource temporarily unavailable"), Busy),
        (OSError("IO error: lock hold by current process: x/LOCK: No locks available"), Busy),
        (OSError(28, "No space left on device"), DiskFull),
        (OSError("IO error: No space left on device: While appending to file"), DiskFull),
        (PermissionError(13, "Permission denied"), ReadOnly),
        (OSError("IO error: Read-only file system"), ReadOnly),
        (OSError("Corruption: block checksum mismatch"), Corrupted),
        (OSError("something else"), StoreFailed),
        (RuntimeError("something else"), StoreFailed),
    ],
)
def test_errors_of_the_engine_are_told_as_ours(
    error: OSError | RuntimeError, kind: type[StoreFailed]
) -> None:
    """Whatever the engine complains about has a name and a remedy here."""
    assert type(oxigraph_error(error, "here")) is kind


def test_time_is_looked_at_between_rows() -> None:
    """A query that gives row after row for too long is stopped."""
    graph = OxigraphBackend()
    graph.replace([], "".join(memory(str(n), "x") for n in range(200)))
    with pytest.raises(QueryStopped, match="took longer"):
        graph.query(
            "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }", default_graphs=[ALICE], limit=10**7, timeout=0.2
        )


def test_new_memories_need_no_removal_work() -> None:
    """Naming subjects that are new as removed gives the same graph as naming none."""
    said = "".join(memory(str(n), f"said {n}", "a") for n in range(50))
    named, plain = OxigraphBackend(), OxigraphBackend()
    named.replace([(ALICE, memory_iri(str(n))) for n in range(50)], said)
    plain.replace([], said)
    assert lines(named, ALICE) == lines(plain, ALICE)


def test_a_child_leaves_the_files_of_an_inherited_graph_alone(tmp_path: Path) -> None:
    """A graph on disk is the parent's, which goes on; one in memory is copied."""
    disk, memory = OxigraphBackend(tmp_path / "graph"), OxigraphBackend()
    for graph in (disk, memory):
        graph.replace([], "<urn:a> <urn:b> <urn:c> <urn:g> .")
    child = os.fork()
    if child == 0:
        try:
            disk.query("ASK { ?s ?p ?o }", default_graphs=["urn:g"])
        except Forked:
            os._exit(0 if memory.query("ASK { ?s ?p ?o }", default_graphs=["urn:g"]).truth else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    disk.replace([], "<urn:d> <urn:b> <urn:c> <urn:g> .")
    assert disk.query("ASK { <urn:d> ?p ?o }", default_graphs=["urn:g"]).truth
    disk.close()
