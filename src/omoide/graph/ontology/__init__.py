"""What do the words of the graph mean?

The Jido ontology in ten modules, the few words that a memory needs beyond it, and the shapes that a complete
memory has: Turtle files beside this one.

"""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from io import BytesIO

from omoide.errors import MissingExtra, NotFound
from omoide.graph.vocabulary import ONTOLOGY_GRAPH

MODULES = (
    "jido-core",
    "jido-knowledge",
    "jido-decision",
    "jido-convention",
    "jido-error",
    "jido-session",
    "jido-agent",
    "jido-project",
    "jido-task",
    "jido-code",
)
"""The modules of the Jido ontology, in the order in which they are loaded."""
OWN = "omoide"
SHAPES = "jido-shapes"


@cache
def turtle(name: str) -> str:
    """One of the files, as Turtle."""
    if name not in (*MODULES, OWN, SHAPES):
        raise NotFound("ontology module", name, f"use one of {', '.join((*MODULES, OWN, SHAPES))}")
    return files(__name__).joinpath(f"{name}.ttl").read_text("utf-8")


@cache
def nquads() -> str:
    """All modules, without the shapes, in the named graph of the ontology."""
    try:
        from pyoxigraph import NamedNode, Quad, RdfFormat, parse, serialize
    except ImportError as error:
        raise MissingExtra("the graph", "graph") from error
    graph = NamedNode(ONTOLOGY_GRAPH)
    quads = (
        Quad(told.subject, told.predicate, told.object, graph)
        for name in (*MODULES, OWN)
        for told in parse(turtle(name), RdfFormat.TURTLE)
    )
    written = BytesIO()
    serialize(quads, written, RdfFormat.N_QUADS)
    return written.getvalue().decode()
