"""Graph backend embedded in this process.

Oxigraph stores the triples in memory or in a folder. Each change is one transaction, so a concurrent query
sees all of it or nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from os import PathLike, fspath, makedirs
from threading import RLock
from typing import TYPE_CHECKING, Any

from omoide import forks
from omoide.errors import Closed, Forked
from omoide.forks import ForkListener
from omoide.graph.backend import (
    OWNED_PREFIXES,
    GraphSubject,
    SyncState,
    copy_steps,
    delete_steps,
    drop_steps,
    insert_step,
    parse_state,
    prepare_query,
    state_iri,
    state_steps,
    unreadable_rdf,
    usage_steps,
)
from omoide.graph.results import (
    Answer,
    Deadline,
    load_oxigraph,
    map_oxigraph_errors,
    map_syntax_errors,
    to_answer,
)
from omoide.graph.terms import check_iri
from omoide.graph.vocabulary import META_GRAPH

if TYPE_CHECKING:
    from pyoxigraph import NamedNode, RdfFormat, Store


class OxigraphBackend(ForkListener):
    """A graph in this process: in memory, or at a path that no other process has open."""

    shared = False

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self._oxigraph = load_oxigraph()
        self.name = "graph in memory" if path is None else fspath(path)
        self._lock = RLock()
        self._store: Store | None
        with map_oxigraph_errors(self.name):
            if path is not None:
                makedirs(self.name, mode=0o700, exist_ok=True)  # memories are private
            self._store = self._oxigraph.Store() if path is None else self._oxigraph.Store(self.name)
        self._on_disk, self._forked = path is not None, False
        forks.register(self)

    def after_fork_in_child(self) -> None:
        """Go on with a copy of a graph in memory; leave files alone, which are open in the parent."""
        self._lock = RLock()
        if self._on_disk and self._store is not None:
            forks.leak(self._store)  # closing it would write to the files of the parent
            self._store, self._forked = None, True

    def query(
        self,
        query: str,
        *,
        default_graphs: Sequence[str],
        named_graphs: Sequence[str] = (),
        bindings: Mapping[str, Any] = {},
        limit: int = 10_000,
        timeout: float | None = None,
    ) -> Answer:
        """Return the result of a query over these graphs and no others.

        The timeout is checked between rows only. A query that may run long before its first row belongs into
        a process of its own (see `sandbox`).
        """
        bound = prepare_query(query, bindings, limit)
        store, deadline = self._require_store(), Deadline(self.name, timeout)
        with map_oxigraph_errors(self.name), map_syntax_errors():
            default: list[Any] = [*map(self._node, default_graphs)]
            named: list[Any] = [*map(self._node, named_graphs)]
            # The result is not bound to a name: Oxigraph requires that this thread releases it.
            return to_answer(
                store.query(bound.text, default_graph=default, named_graphs=named), bound, limit, deadline
            )

    def replace(
        self, subjects: Iterable[GraphSubject], rdf: str | bytes, *, graph_name: str | None = None
    ) -> None:
        """Delete all triples about these subjects and insert triples, in one transaction."""
        data = rdf.encode() if isinstance(rdf, str) else rdf
        format = (
            self._oxigraph.RdfFormat.N_QUADS if graph_name is None else self._oxigraph.RdfFormat.N_TRIPLES
        )
        with self._lock, map_oxigraph_errors(self.name):
            store = self._require_store()
            existing = [pair for pair in dict.fromkeys(subjects) if self._has_triples(store, *pair)]
            try:
                if existing:
                    steps = delete_steps(existing, self._owned_nodes(store, existing))
                    steps += starmap(insert_step, self._triples_by_graph(data, format, graph_name).items())
                    store.update(";\n".join(steps))
                else:
                    # With nothing to delete, the data need not be rewritten as an update. `lenient` skips
                    # the validation of IRIs and literals, which the serializer writes correctly.
                    graph = None if graph_name is None else self._node(graph_name)
                    store.load(data, format=format, lenient=True, to_graph=graph)
            except SyntaxError as error:
                raise unreadable_rdf(error, graph_name) from error

    def record_uses(self, prefixes: Sequence[str], uses: Sequence[tuple[str, str, str]]) -> None:
        """Set the access counts of memories in all graphs with these prefixes."""
        if uses:
            self._update(usage_steps(prefixes, uses))

    def find_subjects(self, subjects: Sequence[str], prefixes: Sequence[str]) -> list[GraphSubject]:
        """Return the graphs with these prefixes in which the subjects are described."""
        starts = tuple(prefixes)
        with map_oxigraph_errors(self.name):
            store = self._require_store()
            pairs = (
                (str(_value(quad.graph_name)), subject)
                for subject in subjects
                for quad in store.quads_for_pattern(self._node(subject), None, None, None)
                if isinstance(quad.graph_name, self._oxigraph.NamedNode)
            )
            return [pair for pair in dict.fromkeys(pairs) if pair[0].startswith(starts)]

    def copy_graphs(self, sources: Sequence[str], target: str) -> None:
        """Replace a graph by the union of several graphs."""
        self._update(copy_steps(sources, target))

    def drop(self, graphs: Iterable[str]) -> None:
        """Delete whole graphs; unknown ones are ignored."""
        self._update(drop_steps(graphs))

    def graphs(self, prefix: str = "") -> list[str]:
        """Return the names of all graphs that are not empty, sorted."""
        with map_oxigraph_errors(self.name):
            store = self._require_store()
            # Oxigraph keeps the names of graphs that became empty.
            names = sorted(str(node.value) for node in store.named_graphs())
            return [name for name in names if name.startswith(prefix) and self._has_triples(store, name)]

    def dump(self, graphs: Sequence[str]) -> bytes:
        """Return all triples of some graphs as N-Quads."""
        with map_oxigraph_errors(self.name):
            store = self._require_store()
            quads = (
                quad
                for graph in dict.fromkeys(graphs)
                for quad in store.quads_for_pattern(None, None, None, self._node(graph))
            )
            data: bytes = self._oxigraph.serialize(quads, format=self._oxigraph.RdfFormat.N_QUADS)
            return data

    def state(self, namespace: str) -> SyncState | None:
        """Return the sync state of a namespace, or None if it was never set."""
        subject, graph = self._node(state_iri(namespace)), self._node(META_GRAPH)
        with map_oxigraph_errors(self.name):
            quads = self._require_store().quads_for_pattern(subject, None, None, graph)
            return parse_state({quad.predicate.value: str(_value(quad.object)) for quad in quads})

    def set_state(self, namespace: str, state: SyncState) -> None:
        """Store the sync state of a namespace."""
        self._update(state_steps(namespace, state))

    def optimize(self) -> None:
        """Compact the files: deleted triples leave them, and reads become faster."""
        with self._lock, map_oxigraph_errors(self.name):
            self._require_store().optimize()

    def close(self) -> None:
        """Release the store; files on disk stay."""
        with self._lock:
            # Oxigraph has no close: it releases its files with the last reference.
            self._store = None

    def _require_store(self) -> Store:
        forks.check_process()
        store = self._store
        if self._forked:
            raise Forked(
                self.name,
                "was open when this process was forked, and one process at a time can use it",
                "use it in the parent, or open a graph in memory",
            )
        if store is None:
            raise Closed(self.name, "is closed", "open it again")
        return store

    def _update(self, steps: Sequence[str]) -> None:
        with self._lock, map_oxigraph_errors(self.name):
            self._require_store().update(";\n".join(steps))

    def _node(self, iri: str) -> NamedNode:
        node: NamedNode = self._oxigraph.NamedNode(check_iri(iri))
        return node

    def _has_triples(self, store: Store, graph: str, subject: str | None = None) -> bool:
        node = None if subject is None else self._node(subject)
        return any(True for _ in store.quads_for_pattern(node, None, None, self._node(graph)))

    def _owned_nodes(self, store: Store, pairs: Iterable[GraphSubject]) -> list[GraphSubject]:
        """Return the nodes that these subjects reference and own."""
        references = (
            (graph, str(_value(quad.object)))
            for graph, subject in pairs
            for quad in store.quads_for_pattern(self._node(subject), None, None, self._node(graph))
            if isinstance(quad.object, self._oxigraph.NamedNode)
        )
        return [pair for pair in dict.fromkeys(references) if pair[1].startswith(OWNED_PREFIXES)]

    def _triples_by_graph(
        self, data: bytes, format: RdfFormat, graph_name: str | None
    ) -> dict[str, list[str]]:
        """Return the triples as text, grouped by graph."""
        by_graph: dict[str, list[str]] = {}
        for quad in self._oxigraph.parse(data, format=format):
            triples = by_graph.setdefault(graph_name or quad.graph_name.value, [])
            triples.append(f"{quad.subject} {quad.predicate} {quad.object}")
        return by_graph


def _value(node: Any) -> Any:
    return node.value
