"""Which words of the ontology say what a memory holds?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from omoide.core.entry import SOURCES
from omoide.core.memory_types import MEMORY_TYPES, ROOT, ancestors, ontology_class, with_subtypes
from omoide.graph.iris import JIDO as JIDO
from omoide.graph.iris import relation_iri
from omoide.longterm import relations
from omoide.longterm.completeness import ASSIGNED_TO as ASSIGNED_TO

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
RDFS = "http://www.w3.org/2000/01/rdf-schema#"
XSD = "http://www.w3.org/2001/XMLSchema#"
OWL = "http://www.w3.org/2002/07/owl#"
OMOIDE = "urn:omoide:"

PREFIXES = MappingProxyType(
    {"jido": JIDO, "omoide": OMOIDE, "owl": OWL, "rdf": RDF, "rdfs": RDFS, "xsd": XSD}
)

TYPE = f"{RDF}type"
DELETED_MARKER = f"{JIDO}DeletedMarker"

CLASSES = MappingProxyType({name: JIDO + ontology_class(name) for name in (ROOT, *MEMORY_TYPES)})
"""Memory type -> class."""
TYPES = MappingProxyType({iri: name for name, iri in CLASSES.items()})
"""Class -> memory type."""

LEVELS = (("High", 0.8, 0.9), ("Medium", 0.5, 0.6), ("Low", 0.0, 0.3))
"""The levels of confidence: from which number on, and which number one stands for when only it is known."""
LEVEL_VALUES = MappingProxyType({JIDO + name: value for name, _, value in LEVELS})
UNKNOWN_CONFIDENCE = 0.5

SOURCE_INDIVIDUALS = MappingProxyType(
    dict(
        zip(
            SOURCES,
            (f"{JIDO}{name}Source" for name in ("User", "Agent", "Tool", "ExternalDocument")),
            strict=True,
        )
    )
)
SOURCE_NAMES = MappingProxyType({iri: name for name, iri in SOURCE_INDIVIDUALS.items()})

RELATIONS = MappingProxyType(
    {name: known.property for name, known in relations.RELATIONS.items() if known.property != "supersededBy"}
)
"""Relation -> property. What superseded a memory is a field of it and no link, so it is not here."""
RELATION_NAMES = MappingProxyType({JIDO + name: relation for relation, name in RELATIONS.items()})


def property_of(relation: str) -> str:
    """The property that says a relation: the ontology's own, or one made from its name."""
    known = RELATIONS.get(relation)
    return relation_iri(relation) if known is None else JIDO + known


def level_of(confidence: float) -> str:
    """The level of a confidence: High, Medium or Low."""
    return next(name for name, least, _ in LEVELS if confidence >= least)


def most_specific(classes: set[str]) -> str | None:
    """The memory type that says most among several classes; None when none of them is a memory's."""
    known = [name for name in TYPES.values() if CLASSES[name] in classes]
    return max(known, key=lambda name: len(ancestors(name)), default=None)


class Facet(msgspec.Struct, frozen=True, kw_only=True):
    """A property that one key of a memory's metadata tells."""

    key: str
    property: str
    choices: Mapping[str, str] | None = None
    """Word -> individual; without them any text is told as it is."""
    default: str | None = None

    def value(self, metadata: Mapping[str, Any]) -> str | None:
        """The IRI of the individual, or the text, that the metadata names; else the default."""
        said = metadata.get(self.key)
        if not isinstance(said, str):
            return self.default
        return said if self.choices is None else self.choices.get(_word(said), self.default)


def _word(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _choices(*names: str, suffix: str = "") -> Mapping[str, str]:
    """Each individual under its name and, where it ends in what kind it is, under the shorter one."""
    words = {_word(name): JIDO + name for name in names}
    return words | {_word(name.removesuffix(suffix)): JIDO + name for name in names}


TASK_STATUSES = ("Planned", "InProgress", "Blocked", "Completed", "Abandoned")
OPEN_STATUSES = frozenset(JIDO + name for name in TASK_STATUSES[:3])

_FACETS: Mapping[str, tuple[Facet, ...]] = {
    "convention": (
        Facet(
            key="convention_scope",
            property="hasConventionScope",
            choices=_choices("GlobalScope", "ProjectScope", "AgentScope", suffix="Scope"),
            default=f"{JIDO}ProjectScope",
        ),
        Facet(
            key="enforcement_level",
            property="hasEnforcementLevel",
            choices=_choices("Advisory", "Required", "Strict"),
            default=f"{JIDO}Advisory",
        ),
    ),
    "error": (
        Facet(
            key="error_status",
            property="hasErrorStatus",
            choices=_choices("Reported", "Investigating", "Resolved", "Deferred"),
            default=f"{JIDO}Reported",
        ),
        Facet(key="severity_level", property="severityLevel"),
    ),
    "decision": (
        Facet(key="decision_status", property="decisionStatus"),
        Facet(key="impact_level", property="impactLevel"),
    ),
    "task": (Facet(key="task_status", property="hasTaskStatus", choices=_choices(*TASK_STATUSES)),),
}

FACETS = MappingProxyType({name: facets for root, facets in _FACETS.items() for name in with_subtypes(root)})
"""Memory type -> the properties that its metadata can tell."""


def assigned(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The agents that the metadata of a task names: one, or a list of them."""
    said = metadata.get(ASSIGNED_TO)
    several = said if isinstance(said, Sequence) and not isinstance(said, str) else (said,)
    return tuple(agent for agent in several if isinstance(agent, str) and agent)
