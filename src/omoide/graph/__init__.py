"""View an agent's memories as an RDF graph.

Memories are instances of the Jido ontology. `open(store)` returns a `GraphView` that answers SPARQL queries
and imports, exports and validates RDF.

`view` is the public interface and `sync` keeps the graph up to date with its store. `backend` is the protocol
that `oxigraph` (embedded) and `endpoint` (SPARQL server) implement. `sparql` checks queries and binds values;
`sandbox` and `worker` run a query in its own process. `serializer`, `parser` and `files` convert memories to
and from RDF, and `resources` describes the sessions, agents and projects that they refer to; `vocabulary`,
`ontology` and `shacl` define IRIs, classes and shapes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.graph.files import ProgressCallback
    from omoide.graph.parser import ImportDefaults, MemoryBatch, from_quads
    from omoide.graph.results import Answer, ResultRow, Triple
    from omoide.graph.serializer import to_nquads
    from omoide.graph.shacl import ValidationProblem, ValidationReport
    from omoide.graph.terms import IRI, BlankNode, RDFTerm
    from omoide.graph.view import GraphView, LoadResult, open
    from omoide.graph.vocabulary import (
        CLASSES,
        MEMORY,
        PREFIXES,
        TYPES,
        graph_iri,
        id_of,
        memory_iri,
        most_specific,
    )


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
    "LoadResult",
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

__getattr__, __dir__ = attach(
    __name__,
    attributes={  # on first use: only the graph needs pyoxigraph
        "files": ("ProgressCallback",),
        "parser": ("ImportDefaults", "MemoryBatch", "from_quads"),
        "results": ("Answer", "ResultRow", "Triple"),
        "serializer": ("to_nquads",),
        "shacl": ("ValidationProblem", "ValidationReport"),
        "terms": ("IRI", "BlankNode", "RDFTerm"),
        "view": ("GraphView", "LoadResult", "open"),
        "vocabulary": (
            "CLASSES", "MEMORY", "PREFIXES", "TYPES", "graph_iri", "id_of", "memory_iri", "most_specific",
        ),
    },
)  # fmt: skip
