"""Validation.

The same as they find in strict mode, from the memory itself and the links that lead to it, and without any
package for it.

The shapes are SHACL. Leniently, conventions, errors and agents get the defaults that they need and whatever
else is incomplete is a warning; strictly, everything that the shapes find is a violation.
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
from omoide.graph.vocabulary import CLASSES, FACETS, JIDO, OPEN_STATUSES, TYPE, assignees
from omoide.longterm import conflicts
from omoide.longterm.conflicts import ASSIGNED_TO
from omoide.stores.records import Link

if TYPE_CHECKING:
    from rdflib import Graph


# completeness: What does a memory lack that the shapes of the ontology ask for?


(_TASK_STATUS,) = FACETS["task"]


def missing_fields(entry: Entry, links: Iterable[Link] = ()) -> tuple[str, ...]:
    """The fields that would have to be given, or changed, for the memory to be complete."""
    found = dict.fromkeys(conflicts.missing_fields(entry))
    if entry.type == "task":
        if not assignees(entry.metadata):
            found[f"metadata.{ASSIGNED_TO}"] = None
        if entry.superseded_by is not None and _TASK_STATUS.value(entry.metadata) in OPEN_STATUSES:
            found[f"metadata.{_TASK_STATUS.key}"] = None
    if entry.type == "root_cause" and not any(
        link.relation == "has_root_cause" and link.target == entry.id for link in links
    ):
        found["has_root_cause"] = None
    return tuple(found)


# validating: Do memories have the shape that the ontology asks for?


VIOLATION, WARNING = "violation", "warning"

_SHACL = "http://www.w3.org/ns/shacl#"
_INCOMPLETE_CONSTRAINTS = (f"{_SHACL}MinCountConstraintComponent", f"{_SHACL}PatternConstraintComponent")
_AGENT_DEFAULTS: tuple[tuple[str, str], ...] = (
    (f"{JIDO}hasRole", f"{JIDO}MemoryWriter"),
    (f"{JIDO}hasCapability", f"{JIDO}CanWriteMemory"),
)


class ValidationProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that has another shape than the ontology asks for."""

    id: str
    """The id of the memory or agent; the IRI of anything else."""
    shape: str
    message: str
    severity: str = VIOLATION


class ValidationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Whether all have the right shape, and what is wrong where not."""

    conforms: bool
    problems: tuple[ValidationProblem, ...] = ()

    def __str__(self) -> str:
        told = [f"{item.severity}: {item.id}: {item.message} ({item.shape})" for item in self.problems]
        return "\n".join(["conforms" if self.conforms else "does not conform", *told])


def validate(memories: str | MemoryBatch | Iterable[Entry], *, strict: bool = False) -> ValidationReport:
    """How memories, or N-Quads that tell of some, compare to the shapes."""
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
    """All triples, whatever graph they are in."""
    from pyoxigraph import BlankNode, Literal, NamedNode, RdfFormat, parse
    from rdflib import BNode, Graph, URIRef
    from rdflib import Literal as Text

    def term(told: Any) -> Any:
        if isinstance(told, NamedNode):
            return URIRef(told.value)
        if isinstance(told, BlankNode):
            return BNode(told.value)
        if isinstance(told, Literal) and told.language is None:
            return Text(told.value, datatype=URIRef(told.datatype.value), normalize=False)
        return Text(told.value, lang=told.language) if isinstance(told, Literal) else None

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
    """Give conventions, errors and agents the defaults of what they need and do not have."""
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

    def said(node: Any, name: str) -> Any:
        return results.value(node, URIRef(_SHACL + name))

    for result in results.subjects(URIRef(TYPE), URIRef(f"{_SHACL}ValidationResult")):
        incomplete = str(said(result, "sourceConstraintComponent")) in _INCOMPLETE_CONSTRAINTS
        shape = shapes.value(predicate=URIRef(f"{_SHACL}property"), object=said(result, "sourceShape"))
        yield ValidationProblem(
            id=_id(str(said(result, "focusNode"))),
            shape=str(shape).removeprefix(JIDO),
            message=str(said(result, "resultMessage")),
            severity=WARNING if incomplete and not strict else VIOLATION,
        )


def _id(iri: str) -> str:
    prefix = next((known for known in (vocabulary.MEMORY, vocabulary.AGENT) if iri.startswith(known)), "")
    return vocabulary.id_of(iri, prefix) if prefix else iri
