"""The ontology: Turtle files beside this module.

Ten modules of the Jido ontology, the terms that Omoide adds, and the SHACL shapes of complete memories.
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
"""Modules of the Jido ontology, in loading order."""
OWN = "omoide"
SHAPES = "jido-shapes"


@cache
def turtle(name: str) -> str:
    """Return one of the files as Turtle."""
    if name not in (*MODULES, OWN, SHAPES):
        raise NotFound("ontology module", name, f"use one of {', '.join((*MODULES, OWN, SHAPES))}")
    return files(__name__).joinpath(f"{name}.ttl").read_text("utf-8")


@cache
def nquads() -> str:
    """Return all modules, without the shapes, in the named graph of the ontology."""
    try:
        from pyoxigraph import NamedNode, Quad, RdfFormat, parse, serialize
    except ImportError as error:
        raise MissingExtra("the graph", "graph") from error
    graph = NamedNode(ONTOLOGY_GRAPH)
    quads = (
        Quad(triple.subject, triple.predicate, triple.object, graph)
        for name in (*MODULES, OWN)
        for triple in parse(turtle(name), RdfFormat.TURTLE)
    )
    buffer = BytesIO()
    serialize(quads, buffer, RdfFormat.N_QUADS)
    return buffer.getvalue().decode()
