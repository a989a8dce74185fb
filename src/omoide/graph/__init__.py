"""View an agent's memories as an RDF graph.

Memories are instances of the Jido ontology. `open(store)` returns a `GraphView` that answers SPARQL queries and
imports, exports and validates RDF. `view` is the public interface, `sync` keeps the graph up to date with its
store, `backend` is the protocol that `oxigraph` (embedded) and `endpoint` (SPARQL server) implement, `sparql` checks
queries and binds values, `sandbox` and `worker` run a query in its own process, `serializer`, `parser` and `files`
convert memories to and from RDF, and `vocabulary`, `ontology` and `shacl` hold names, meaning and shapes.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.graph.files import ProgressCallback
    from omoide.graph.parser import ImportDefaults, MemoryBatch, from_quads
    from omoide.graph.results import Answer, ResultRow, Triple
    from omoide.graph.serializer import to_nquads
    from omoide.graph.shacl import ValidationProblem, ValidationReport
    from omoide.graph.terms import IRI, BlankNode, RDFTerm
    from omoide.graph.view import GraphView, open
    from omoide.graph.vocabulary import CLASSES, MEMORY, PREFIXES, TYPES, graph_iri, id_of, memory_iri, most_specific


_LAZY = {
    "Answer": "results",
    "BlankNode": "terms",
    "CLASSES": "vocabulary",
    "GraphView": "view",
    "IRI": "terms",
    "ImportDefaults": "parser",
    "MEMORY": "vocabulary",
    "MemoryBatch": "parser",
    "PREFIXES": "vocabulary",
    "ProgressCallback": "files",
    "RDFTerm": "terms",
    "ResultRow": "results",
    "TYPES": "vocabulary",
    "Triple": "results",
    "ValidationProblem": "shacl",
    "ValidationReport": "shacl",
    "from_quads": "parser",
    "graph_iri": "vocabulary",
    "id_of": "vocabulary",
    "memory_iri": "vocabulary",
    "most_specific": "vocabulary",
    "open": "view",
    "to_nquads": "serializer",
}

__all__ = [
    "CLASSES",
    "IRI",
    "MEMORY",
    "PREFIXES",
    "TYPES",
    "Answer",
    "BlankNode",
    "GraphView",
    "ImportDefaults",
    "MemoryBatch",
    "ProgressCallback",
    "RDFTerm",
    "ResultRow",
    "Triple",
    "ValidationProblem",
    "ValidationReport",
    "from_quads",
    "graph_iri",
    "id_of",
    "memory_iri",
    "most_specific",
    "open",
    "to_nquads",
]


def __getattr__(name: str) -> Any:
    """Load a name of the package on first use: only the graph needs pyoxigraph."""
    if name in _LAZY:
        return getattr(import_module(f"omoide.graph.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
