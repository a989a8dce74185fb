"""What does an agent know, as a graph?

Memories are instances of the Jido ontology. `graph.open(store)` gives a view that is asked in SPARQL, says
where a memory comes from, and reads and writes RDF files.

"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.graph.results import Answer
    from omoide.graph.terms import IRI
    from omoide.graph.view import GraphView, open


__all__ = ["IRI", "Answer", "GraphView", "open"]

_LAZY = {"Answer": "results", "GraphView": "view", "IRI": "terms", "open": "view"}


def __getattr__(name: str) -> Any:
    """What a program needs is loaded when it is asked for."""
    if name in _LAZY:
        return getattr(import_module(f"omoide.graph.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
