"""Validate memories against the SHACL shapes of the ontology.

In lenient mode, conventions, errors and agents get the defaults that they need, and anything else that is
incomplete is a warning. In strict mode, everything that the shapes report is a violation.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from omoide.core.entry import Entry, with_subtypes
from omoide.errors import InvalidRDF, MissingExtra
from omoide.graph import ontology, vocabulary
from omoide.graph.parser import MemoryBatch
from omoide.graph.serializer import entries_to_nquads
from omoide.graph.vocabulary import CLASSES, FACETS, JIDO, TYPE

if TYPE_CHECKING:
    from rdflib import Graph


VIOLATION, WARNING = "violation", "warning"

_SHACL = "http://www.w3.org/ns/shacl#"
_INCOMPLETE_CONSTRAINTS = (f"{_SHACL}MinCountConstraintComponent", f"{_SHACL}PatternConstraintComponent")
_AGENT_DEFAULTS: tuple[tuple[str, str], ...] = (
    (f"{JIDO}hasRole", f"{JIDO}MemoryWriter"),
    (f"{JIDO}hasCapability", f"{JIDO}CanWriteMemory"),
)


class ValidationProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One deviation from the shapes."""

    id: str
    """Id of the memory or agent; the IRI of anything else."""
    shape: str
    message: str
    severity: str = VIOLATION


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a validation."""

    conforms: bool
    problems: tuple[ValidationProblem, ...] = ()

    def __str__(self) -> str:
        lines = [f"{item.severity}: {item.id}: {item.message} ({item.shape})" for item in self.problems]
        return "\n".join(["conforms" if self.conforms else "does not conform", *lines])


def validate(memories: str | MemoryBatch | Iterable[Entry], *, strict: bool = False) -> ValidationReport:
    """Validate memories, or N-Quads that describe some, and return the report.

    Args:
        memories: entries, a batch with links, or N-Quads.
        strict: report everything that is incomplete as a violation.

    Raises:
        MissingExtra: `pyshacl` is not installed.
        InvalidRDF: the N-Quads cannot be parsed.
    """
    try:
        import pyshacl
        from rdflib import Graph
    except ImportError as error:
        raise MissingExtra("validation by SHACL", "shacl") from error
    if isinstance(memories, MemoryBatch):
        memories = entries_to_nquads(memories.entries, memories.links)
    nquads = memories if isinstance(memories, str) else entries_to_nquads(memories)
    graph = _graph(nquads)
    if not strict:
        _apply_defaults(graph)
    shapes = _shapes()
    # Shapes apply to instances of subclasses only if the subclass triples are present, hence the ontology.
    _, results, _ = pyshacl.validate(graph, shacl_graph=shapes, ont_graph=_ontology(), inference="none")
    if not isinstance(results, Graph):
        raise InvalidRDF("memories", f"cannot be validated: {results}", "correct them and try again")
    problems = sorted(
        _problems(results, shapes, strict), key=lambda item: (item.id, item.shape, item.message)
    )
    return ValidationReport(
        conforms=all(item.severity != VIOLATION for item in problems), problems=tuple(problems)
    )


def _graph(nquads: str) -> Graph:
    """Parse all triples, ignoring the names of their graphs."""
    from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, parse
    from rdflib import BNode, Graph, URIRef
    from rdflib import Literal as Text

    def term(node: Any) -> Any:
        if isinstance(node, NamedNode):
            return URIRef(node.value)
        if isinstance(node, BlankNode):
            return BNode(node.value)
        if isinstance(node, Literal) and node.language is None:
            # Normalization would rewrite literals such as "01"^^xsd:integer before they are validated.
            return Text(node.value, datatype=URIRef(node.datatype.value), normalize=False)
        return Text(node.value, lang=node.language) if isinstance(node, Literal) else None

    graph = Graph()
    try:
        for quad in parse(nquads, RdfFormat.N_QUADS):
            subject, value = term(quad.subject), term(quad.object)
            if subject is not None and value is not None:
                graph.add((subject, URIRef(quad.predicate.value), value))
    except SyntaxError as error:
        raise InvalidRDF("N-Quads", f"cannot be read ({error})", "correct them and try again") from error
    return graph


@cache
def _ontology() -> Graph:
    return _graph(ontology.nquads())


@cache
def _shapes() -> Graph:
    from rdflib import Graph

    return Graph().parse(data=ontology.turtle(ontology.SHAPES), format="turtle")


def _apply_defaults(graph: Graph) -> None:
    """Add the default values that conventions, errors and agents lack."""
    from rdflib import URIRef

    needs = {JIDO + name: _AGENT_DEFAULTS for name in ("Agent", "PrimaryAgent", "SubAgent")}
    for name in (*with_subtypes("convention"), *with_subtypes("error")):
        needs[CLASSES[name]] = tuple(
            (JIDO + facet.property, facet.default) for facet in FACETS[name] if facet.default is not None
        )
    for kind, defaults in needs.items():
        for subject in list(graph.subjects(URIRef(TYPE), URIRef(kind))):
            for name, value in defaults:
                if (subject, URIRef(name), None) not in graph:
                    graph.add((subject, URIRef(name), URIRef(value)))


def _problems(results: Graph, shapes: Graph, strict: bool) -> Iterable[ValidationProblem]:
    from rdflib import URIRef

    def value_of(node: Any, name: str) -> Any:
        return results.value(node, URIRef(_SHACL + name))

    for result in results.subjects(URIRef(TYPE), URIRef(f"{_SHACL}ValidationResult")):
        incomplete = str(value_of(result, "sourceConstraintComponent")) in _INCOMPLETE_CONSTRAINTS
        # The source of a result is the property shape, a blank node; its parent has the name.
        shape = shapes.value(predicate=URIRef(f"{_SHACL}property"), object=value_of(result, "sourceShape"))
        yield ValidationProblem(
            id=_id(str(value_of(result, "focusNode"))),
            shape=str(shape).removeprefix(JIDO),
            message=str(value_of(result, "resultMessage")),
            severity=WARNING if incomplete and not strict else VIOLATION,
        )


def _id(iri: str) -> str:
    prefix = next(
        (kind_prefix for kind_prefix in (vocabulary.MEMORY, vocabulary.AGENT) if iri.startswith(kind_prefix)),
        "",
    )
    return vocabulary.id_of(iri, prefix) if prefix else iri
