"""Ontology vocabulary and IRIs.

A memory, session, agent or project has the IRI of its kind followed by its id, percent-encoded, so that any
id is safe and comes back whole. Evidence is named by a digest of what it refers to. Each owner, that is each
namespace with its agent, session and project, has a named graph of its own: any scope is a set of graphs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any
from urllib.parse import quote, unquote

import msgspec

from omoide import ids
from omoide.core.entry import (
    MEMORY_TYPES,
    ROOT_TYPE,
    SOURCES,
    Scope,
    ontology_class,
    supertypes,
    with_subtypes,
)
from omoide.longterm import relations
from omoide.longterm.conflicts import ASSIGNED_TO

# iris: Under which name does a thing stand in the graph?


JIDO = "https://jido.ai/ontology#"
MEMORY = f"{JIDO}memory_"
SESSION = f"{JIDO}session_"
AGENT = f"{JIDO}agent_"
PROJECT = f"{JIDO}project_"
EVIDENCE = f"{JIDO}evidence_"
RELATION = "urn:omoide:relation:"
UNION_GRAPH = "urn:omoide:wide:"
OWNER_GRAPH = "urn:omoide:graph:"
ONTOLOGY_GRAPH = "urn:omoide:ontology"
META_GRAPH = "urn:omoide:meta"

_plain = re.compile(r"[A-Za-z0-9_.~-]*[A-Za-z0-9_~-]").fullmatch


def percent_encode(text: str) -> str:
    """Text as it stands inside an IRI: all but letters, digits and `_.~-` percent-encoded, and a last dot."""
    if _plain(text):
        return text
    safe = quote(text, safe="")
    return f"{safe[:-1]}%2E" if safe.endswith(".") else safe  # some readers stumble over it


def memory_iri(id: str) -> str:
    """The IRI of a memory."""
    return MEMORY + percent_encode(id)


def session_iri(id: str) -> str:
    """The IRI of a session."""
    return SESSION + percent_encode(id)


def agent_iri(id: str) -> str:
    """The IRI of an agent."""
    return AGENT + percent_encode(id)


def project_iri(id: str) -> str:
    """The IRI of a project."""
    return PROJECT + percent_encode(id)


def evidence_iri(ref: str, quote: str | None = None) -> str:
    """The IRI of what a memory refers to; a passage quoted from it is a thing of its own."""
    return EVIDENCE + evidence_id(ref, quote)


@lru_cache(maxsize=1024)
def evidence_id(ref: str, quote: str | None = None) -> str:
    """The part of that IRI that follows the prefix."""
    return _digest(ref) if quote is None else f"{_digest(ref)}_{_digest(quote)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def relation_iri(relation: str) -> str:
    """The IRI of a relation that the ontology does not know."""
    return RELATION + percent_encode(relation)


def id_of(iri: str, prefix: str) -> str:
    """The id in an IRI: what follows the prefix, else the IRI itself, or its digest where that is no id."""
    try:
        name = unquote(iri.removeprefix(prefix), errors="strict") if iri.startswith(prefix) else iri
    except UnicodeDecodeError:
        name = ""
    if not name or len(name.encode()) > ids.MAX_BYTES or ids.has_control_characters(name):
        return f"iri_{sha256(iri.encode()).hexdigest()[:32]}"
    return name


@lru_cache(maxsize=4096)
def graph_iri(
    namespace: str, agent_id: str, session_id: str | None = None, project_id: str | None = None
) -> str:
    """The named graph that holds what exactly this owner remembers."""
    owner = (namespace, agent_id, session_id or "", project_id or "")
    return OWNER_GRAPH + ":".join(map(percent_encode, owner))


def namespace_prefix(namespace: str) -> str:
    """How the named graphs of a namespace begin."""
    return f"{OWNER_GRAPH}{percent_encode(namespace)}:"


def owner_of(graph: str) -> tuple[str, str, str | None, str | None] | None:
    """Namespace, agent, session and project of a named graph; None when it is not one of ours."""
    parts = graph.removeprefix(OWNER_GRAPH).split(":")
    if not graph.startswith(OWNER_GRAPH) or len(parts) != 4:
        return None
    namespace, agent, session, project = map(unquote, parts)
    return (namespace, agent, session or None, project or None) if namespace and agent else None


def union_prefix(namespace: str) -> str:
    """How the wide graphs of a namespace begin."""
    return f"{UNION_GRAPH}{percent_encode(namespace)}:"


def union_iri(scope: Scope) -> str:
    """The graph that holds all that a scope of several owners holds."""
    parts = (scope.agent_id, scope.session_id, scope.project_id)
    return union_prefix(scope.namespace) + ":".join(
        "" if part is None else percent_encode(part) for part in parts
    )


def union_scope(graph: str) -> Scope:
    """The scope that a wide graph holds."""
    namespace, agent, session, project = map(unquote, graph.removeprefix(UNION_GRAPH).split(":"))
    return Scope(
        namespace=namespace, agent_id=agent or None, session_id=session or None, project_id=project or None
    )


# vocabulary: Which words of the ontology say what a memory holds?


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

CLASSES = MappingProxyType({name: JIDO + ontology_class(name) for name in (ROOT_TYPE, *MEMORY_TYPES)})
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
    return max(known, key=lambda name: len(supertypes(name)), default=None)


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
        return said if self.choices is None else self.choices.get(_normalize_word(said), self.default)


def _normalize_word(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _choices(*names: str, suffix: str = "") -> Mapping[str, str]:
    """Each individual under its name and, where it ends in what kind it is, under the shorter one."""
    words = {_normalize_word(name): JIDO + name for name in names}
    return words | {_normalize_word(name.removesuffix(suffix)): JIDO + name for name in names}


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


def assignees(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """The agents that the metadata of a task names: one, or a list of them."""
    said = metadata.get(ASSIGNED_TO)
    several = said if isinstance(said, Sequence) and not isinstance(said, str) else (said,)
    return tuple(agent for agent in several if isinstance(agent, str) and agent)
