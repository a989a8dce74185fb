"""How is the graph kept inside this process?

With Oxigraph, in memory or in a folder of its own. Each change is one transaction, so whoever asks meanwhile
sees all of it or nothing of it.

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import starmap
from os import PathLike, fspath, makedirs
from threading import RLock
from typing import TYPE_CHECKING, Any

from omoide.errors import Closed
from omoide.graph.backend import (
    OWNED,
    State,
    Subject,
    adding,
    asked,
    copying,
    counting,
    dropping,
    removing,
    state_from,
    state_iri,
    stating,
    unreadable,
)
from omoide.graph.results import Answer, Deadline, answered, asking, oxigraph, translating
from omoide.graph.terms import check_iri
from omoide.graph.vocabulary import META_GRAPH

if TYPE_CHECKING:
    from pyoxigraph import NamedNode, RdfFormat, Store


class Embedded:
    """A graph in this process: in memory, or at a path that no other process has open."""

    shared = False

    def __init__(self, path: str | PathLike[str] | None = None) -> None:
        self._oxigraph = oxigraph()
        self.name = "graph in memory" if path is None else fspath(path)
        self._lock = RLock()
        self._store: Store | None
        with translating(self.name):
            if path is not None:
                makedirs(self.name, mode=0o700, exist_ok=True)  # memories are nobody else's business
            self._store = self._oxigraph.Store() if path is None else self._oxigraph.Store(self.name)

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
        """What a query finds in these graphs, and in no other.

        The clock is looked at between rows only: a query that may think for long before its first row is
        better asked in a process of its own.
        """
        bound = asked(query, bindings, limit)
        store, deadline = self._opened(), Deadline(self.name, timeout)
        with translating(self.name), asking():
            default: list[Any] = [*map(self._node, default_graphs)]
            named: list[Any] = [*map(self._node, named_graphs)]
            # What is found has no name here: only this thread may let go of it.
            return answered(
                store.query(bound.text, default_graph=default, named_graphs=named), bound, limit, deadline
            )

    def replace(self, removed: Iterable[Subject], told: str | bytes, *, into: str | None = None) -> None:
        """Forget what is said about these subjects, and then take in what is told, at once."""
        data = told.encode() if isinstance(told, str) else told
        format = self._oxigraph.RdfFormat.N_QUADS if into is None else self._oxigraph.RdfFormat.N_TRIPLES
        with self._lock, translating(self.name):
            store = self._opened()
            known = [pair for pair in dict.fromkeys(removed) if self._says(store, *pair)]
            try:
                if known:
                    steps = removing(known, self._owned(store, known))
                    steps += starmap(adding, self._by_graph(data, format, into).items())
                    store.update(";\n".join(steps))
                else:
                    graph = None if into is None else self._node(into)
                    store.load(data, format=format, lenient=True, to_graph=graph)
            except SyntaxError as error:
                raise unreadable(error, into) from error

    def use(self, prefixes: Sequence[str], uses: Sequence[tuple[str, str, str]]) -> None:
        """Say how often memories were used, in all graphs whose names begin so."""
        if uses:
            self._update(counting(prefixes, uses))

    def places(self, subjects: Sequence[str], prefixes: Sequence[str]) -> list[Subject]:
        """Where subjects are spoken of, among the graphs whose names begin so."""
        begins = tuple(prefixes)
        with translating(self.name):
            store = self._opened()
            found = (
                (str(_value(quad.graph_name)), subject)
                for subject in subjects
                for quad in store.quads_for_pattern(self._node(subject), None, None, None)
                if isinstance(quad.graph_name, self._oxigraph.NamedNode)
            )
            return [pair for pair in dict.fromkeys(found) if pair[0].startswith(begins)]

    def copy_graphs(self, sources: Sequence[str], target: str) -> None:
        """Make one graph say what several say together, and nothing else."""
        self._update(copying(sources, target))

    def drop(self, graphs: Iterable[str]) -> None:
        """Forget whole graphs; those that do not exist are passed over."""
        self._update(dropping(graphs))

    def graphs(self, prefix: str = "") -> list[str]:
        """The named graphs that hold something, in order."""
        with translating(self.name):
            store = self._opened()
            names = sorted(str(node.value) for node in store.named_graphs())
            return [name for name in names if name.startswith(prefix) and self._says(store, name)]

    def dump(self, graphs: Sequence[str]) -> bytes:
        """All that some graphs say, as N-Quads."""
        with translating(self.name):
            store = self._opened()
            quads = (
                quad
                for graph in dict.fromkeys(graphs)
                for quad in store.quads_for_pattern(None, None, None, self._node(graph))
            )
            told: bytes = self._oxigraph.serialize(quads, format=self._oxigraph.RdfFormat.N_QUADS)
            return told

    def state(self, namespace: str) -> State | None:
        """How far a namespace has been followed; None when it was never set."""
        subject, graph = self._node(state_iri(namespace)), self._node(META_GRAPH)
        with translating(self.name):
            quads = self._opened().quads_for_pattern(subject, None, None, graph)
            return state_from({quad.predicate.value: str(_value(quad.object)) for quad in quads})

    def set_state(self, namespace: str, state: State) -> None:
        """Write down how far a namespace has been followed."""
        self._update(stating(namespace, state))

    def optimize(self) -> None:
        """Put what is on disk in order: what was forgotten leaves the files, and reading gets faster."""
        with self._lock, translating(self.name):
            self._opened().optimize()

    def close(self) -> None:
        """Let go of everything; what is on disk stays."""
        with self._lock:
            self._store = None

    def _opened(self) -> Store:
        store = self._store
        if store is None:
            raise Closed(self.name, "is closed", "open it again")
        return store

    def _update(self, steps: Sequence[str]) -> None:
        with self._lock, translating(self.name):
            self._opened().update(";\n".join(steps))

    def _node(self, iri: str) -> NamedNode:
        node: NamedNode = self._oxigraph.NamedNode(check_iri(iri))
        return node

    def _says(self, store: Store, graph: str, subject: str | None = None) -> bool:
        about = None if subject is None else self._node(subject)
        return any(True for _ in store.quads_for_pattern(about, None, None, self._node(graph)))

    def _owned(self, store: Store, pairs: Iterable[Subject]) -> list[Subject]:
        """The nodes that these subjects name and that belong to whoever names them."""
        named = (
            (graph, str(_value(quad.object)))
            for graph, subject in pairs
            for quad in store.quads_for_pattern(self._node(subject), None, None, self._node(graph))
            if isinstance(quad.object, self._oxigraph.NamedNode)
        )
        return [pair for pair in dict.fromkeys(named) if pair[1].startswith(OWNED)]

    def _by_graph(self, data: bytes, format: RdfFormat, into: str | None) -> dict[str, list[str]]:
        """The triples that are told, as text, by the graph they belong to."""
        found: dict[str, list[str]] = {}
        for quad in self._oxigraph.parse(data, format=format):
            said = found.setdefault(into or quad.graph_name.value, [])
            said.append(f"{quad.subject} {quad.predicate} {quad.object}")
        return found


def _value(node: Any) -> Any:
    return node.value
