"""What does it cost to see a store as a graph?

A catch-up takes in what was written since the last query; it stands beside Oxigraph taking in the same quads
that somebody else had ready. Queries stand beside Oxigraph answering the same over the same graph.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import perf_counter_ns
from typing import Any

import pyoxigraph as ox

from bench import corpus
from bench.measure import Report, Work, side_by_side
from omoide import Entry, Evidence, Filter, Scope, WriteRequest, open_store
from omoide.graph import PREFIXES, graph_iri, ontology
from omoide.graph.oxigraph import OxigraphBackend
from omoide.graph.serializer import entries_to_nquads
from omoide.graph.sync import source_for
from omoide.graph.view import GraphCore
from omoide.graph.vocabulary import ONTOLOGY_GRAPH
from omoide.stores import AsyncStore, Query

BATCH = 1_000
ROUNDS = 9
AGENT = "agent"
TYPES = ("fact", "decision", "discovery", "lesson_learned")
QUESTIONS = (
    "SELECT ?what WHERE { ?m a jido:Decision ; jido:summary ?what ; jido:confidence ?c FILTER(?c > 0.8) }",
    "SELECT ?what WHERE { ?m a jido:Fact ; jido:summary ?what ; jido:hasTimestamp ?t }"
    " ORDER BY DESC(?t) LIMIT 10",
)


def run(report: Report, *, full: bool) -> None:
    """Catching up, asking, and the queries that never need the graph."""
    catching_up(report)
    asking(report)
    hot(report, full=full)


def catching_up(report: Report) -> None:
    """After a thousand writes."""
    report.title(f"a graph catches up with {BATCH:,} writes")
    for kind in ("in memory", "on disk"):
        with TemporaryDirectory(prefix="omoide-bench-") as folder:
            taken = _caught_up(Path(folder), on_disk=kind == "on disk")
            report.row(f"{kind}: ours, from the store", taken["ours"], f"{taken['quads']:,.0f} quads")
            report.row(f"{kind}: Oxigraph extend, quads ready", taken["raw"])
            report.goal(f"catching up {kind}, of raw extend", taken["ours"] / taken["raw"], 2, at_most=True)


def _caught_up(folder: Path, *, on_disk: bool) -> dict[str, float]:
    ours: list[float] = []
    raw: list[float] = []
    quads: list[ox.Quad] = []
    with open_store(f"sqlite:///{folder / 'm.db'}", embedder="none", durability="crash") as store:
        graph = GraphCore(source_for(store), OxigraphBackend(folder / "graph" if on_disk else None))
        bare = ox.Store(str(folder / "bare")) if on_disk else ox.Store()
        graph.projection.catch_up("default")
        for round in range(ROUNDS):
            entries = _entries(BATCH, session=f"s{round}", start=round * BATCH)
            kept = store.sync.write_many([WriteRequest(entry=entry) for entry in entries])
            start = perf_counter_ns()
            graph.projection.catch_up("default")
            ours.append(perf_counter_ns() - start)
            told = entries_to_nquads([one.entry for one in kept])
            quads = [*ox.parse(told, ox.RdfFormat.N_QUADS)]
            start = perf_counter_ns()
            bare.extend(quads)
            raw.append(perf_counter_ns() - start)
        graph.projection.close()
    figures = {"ours": ours, "raw": raw}
    return {**{name: quantiles(taken, n=4)[0] for name, taken in figures.items()}, "quads": len(quads)}


def asking(report: Report) -> None:
    """SPARQL about a session of a thousand memories among ten thousand."""
    report.title("SPARQL in a session, 1,000 of 10,000 memories")
    with open_store("memory://", embedder="none") as store:
        graph = GraphCore(source_for(store), OxigraphBackend())
        bare = ox.Store()
        for number in range(10):
            entries = _entries(1_000, session=f"s{number}", start=number * 1_000)
            kept = store.sync.write_many([WriteRequest(entry=entry) for entry in entries])
            bare.load(entries_to_nquads([one.entry for one in kept]), ox.RdfFormat.N_QUADS)
        bare.load(ontology.nquads(), ox.RdfFormat.N_QUADS)
        scope = Scope(agent_id=AGENT, session_id="s3")
        graphs = [ox.NamedNode(graph_iri("default", AGENT, "s3")), ox.NamedNode(ONTOLOGY_GRAPH)]
        for number, query in enumerate(QUESTIONS, 1):
            taken = side_by_side(
                {"ours": partial(_ours, graph, query, scope), "raw": partial(_raw, bare, query, graphs)}
            )
            report.row(f"question {number}: ours, caught up", taken["ours"])
            report.row(f"question {number}: Oxigraph alone", taken["raw"])
            report.goal(f"SPARQL, question {number}, of raw", taken["ours"] / taken["raw"], 2, at_most=True)


def _ours(graph: GraphCore, query: str, scope: Scope) -> int:
    return len(graph.query(graph.prepare(query, scope, (), {}, 10_000)))


def _raw(bare: ox.Store, query: str, graphs: Sequence[ox.NamedNode]) -> int:
    found: Any = bare.query(query, prefixes=dict(PREFIXES), default_graph=[*graphs], named_graphs=[])
    return len([[*row] for row in found])


def hot(report: Report, *, full: bool) -> None:
    """What a session asks all the time, in sessions of several sizes; no SPARQL is involved."""
    sizes = (1_000, 100_000, 1_000_000) if full else (1_000, 100_000)
    report.title("by type, newest 10, not superseded, by confidence")
    taken: dict[int, dict[str, float]] = {}
    for size in sizes:
        with TemporaryDirectory(prefix="omoide-bench-") as folder:
            path = Path(folder) / "m.db"
            with open_store(f"sqlite:///{path}", embedder="none", durability="crash") as store:
                _fill(store, size)
                taken[size] = side_by_side(_hot(store))
    for name in taken[sizes[0]]:
        for size in sizes:
            report.row(f"{name}, session of {size:>9,}", taken[size][name])
        grown = max(taken[size][name] for size in sizes) / taken[sizes[0]][name]
        report.goal(f"{name}: largest of smallest", grown, 1.5, at_most=True)


def _hot(store: AsyncStore) -> dict[str, Work]:
    scope = Scope(agent_id=AGENT, session_id="s")
    asked = {
        "newest of a type": Filter(types=("lesson_learned",)),
        "newest of a type and its subtypes": Filter(types=("decision",)),
        "newest": Filter(),
        "newest of a type, sure": Filter(types=("fact",), min_confidence=0.7),
    }
    return {
        name: partial(store.sync.query, Query(scope=scope, filter=filter, limit=10))
        for name, filter in asked.items()
    }


def _fill(store: AsyncStore, size: int) -> None:
    for start in range(0, size, 5_000):
        entries = _entries(min(5_000, size - start), session="s", start=start)
        store.sync.write_many([WriteRequest(entry=entry) for entry in entries])


def _entries(count: int, *, session: str, start: int = 0) -> list[Entry]:
    return [
        Entry(
            id=f"m{start + number}",
            agent_id=AGENT,
            session_id=session,
            content=item.text,
            type=TYPES[number % len(TYPES)],
            confidence=0.5 + (number % 50) / 100,
            source="agent",
            evidence=(Evidence(kind="message", ref=f"thread:{number}"),),
            created_at=1_700_000_000_000 + start + number,
        )
        for number, item in enumerate(corpus.items(count))
    ]
