"""IRIs, and the vocabulary of the ontology.

The IRI of a memory, session, agent or project is the prefix of its kind followed by its id, percent-encoded,
so that any id is safe and can be recovered. Evidence is named by a digest of what it refers to. Each owner,
that is each namespace with its user, agent, session and project, has a named graph: a scope is a set of
graphs.
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
from omoide.longterm.relations import ASSIGNED_TO

JIDO = "https://jido.ai/ontology#"
MEMORY = f"{JIDO}memory_"
SESSION = f"{JIDO}session_"
AGENT = f"{JIDO}agent_"
PROJECT = f"{JIDO}project_"
EVIDENCE = f"{JIDO}evidence_"
RELATION = "urn:omoide:relation:"
UNION_GRAPH = "urn:omoide:wide:"  # "wide" is part of the data format
OWNER_GRAPH = "urn:omoide:graph:"
ONTOLOGY_GRAPH = "urn:omoide:ontology"
META_GRAPH = "urn:omoide:meta"

_plain = re.compile(r"[A-Za-z0-9_.~-]*[A-Za-z0-9_~-]").fullmatch


def percent_encode(text: str) -> str:
    """Percent-encode all but letters, digits and `_.~-`, and a final dot, for use in an IRI."""
    if _plain(text):
        return text
    safe = quote(text, safe="")
    return f"{safe[:-1]}%2E" if safe.endswith(".") else safe  # Turtle parsers differ on a final dot


def memory_iri(id: str) -> str:
    """Return the IRI of a memory."""
    return MEMORY + percent_encode(id)


def session_iri(id: str) -> str:
    """Return the IRI of a session."""
    return SESSION + percent_encode(id)


def agent_iri(id: str) -> str:
    """Return the IRI of an agent."""
    return AGENT + percent_encode(id)


def project_iri(id: str) -> str:
    """Return the IRI of a project."""
    return PROJECT + percent_encode(id)


def evidence_iri(ref: str, quote: str | None = None) -> str:
    """Return the IRI of evidence; a quoted passage has an IRI of its own."""
    return EVIDENCE + evidence_id(ref, quote)


@lru_cache(maxsize=1024)
def evidence_id(ref: str, quote: str | None = None) -> str:
    """Return the part of the IRI of evidence after the prefix."""
    return _digest(ref) if quote is None else f"{_digest(ref)}_{_digest(quote)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def relation_iri(relation: str) -> str:
    """Return the IRI of a relation that the ontology does not define."""
    return RELATION + percent_encode(relation)


def id_of(iri: str, prefix: str) -> str:
    """Return the id in an IRI: the part after the prefix, else the IRI itself, or its digest if invalid."""
    try:
        name = unquote(iri.removeprefix(prefix), errors="strict") if iri.startswith(prefix) else iri
    except UnicodeDecodeError:
        name = ""
    # IRIs of other programs may not be valid ids; a digest of them is stable when they are imported twice.
    if not name or len(name.encode()) > ids.MAX_BYTES or ids.has_control_characters(name):
        return f"iri_{sha256(iri.encode()).hexdigest()[:32]}"
    return name


@lru_cache(maxsize=4096)
def graph_iri(
    namespace: str,
    agent_id: str,
    session_id: str | None = None,
    project_id: str | None = None,
    user_id: str | None = None,
) -> str:
    """Return the named graph of one owner."""
    # Colons are encoded in each part, so that `owner_of` can split them again. No id is empty.
    owner = (namespace, agent_id, session_id or "", project_id or "", *([] if user_id is None else [user_id]))
    return OWNER_GRAPH + ":".join(map(percent_encode, owner))


def namespace_prefix(namespace: str) -> str:
    """Return the prefix of all owner graphs of a namespace."""
    return f"{OWNER_GRAPH}{percent_encode(namespace)}:"


def owner_of(graph: str) -> Scope | None:
    """Return the exact owner of a named graph as a scope; None if it is no owner graph."""
    parts = graph.removeprefix(OWNER_GRAPH).split(":")
    if not graph.startswith(OWNER_GRAPH) or len(parts) not in (4, 5):
        return None
    namespace, agent, session, project, user = (*map(unquote, parts), "")[:5]
    if not (namespace and agent):
        return None
    return Scope(
        namespace=namespace,
        user_id=user or None,
        agent_id=agent,
        session_id=session or None,
        project_id=project or None,
    )


def union_prefix(namespace: str) -> str:
    """Return the prefix of all union graphs of a namespace."""
    return f"{UNION_GRAPH}{percent_encode(namespace)}:"


def union_iri(scope: Scope) -> str:
    """Return the union graph of a scope with several owners."""
    parts = [scope.agent_id, scope.session_id, scope.project_id]
    if scope.user_id is not None:
        parts.append(scope.user_id)
    return union_prefix(scope.namespace) + ":".join(
        "" if part is None else percent_encode(part) for part in parts
    )


def union_scope(graph: str) -> Scope:
    """Return the scope of a union graph."""
    parts = (*map(unquote, graph.removeprefix(UNION_GRAPH).split(":")), "")
    namespace, agent, session, project, user = parts[:5]
    return Scope(
        namespace=namespace,
        user_id=user or None,
        agent_id=agent or None,
        session_id=session or None,
        project_id=project or None,
    )


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
"""Class by memory type."""
TYPES = MappingProxyType({iri: name for name, iri in CLASSES.items()})
"""Memory type by class."""

# Minimum and assumed value of each level are those of JidoCode.
LEVELS = (("High", 0.8, 0.9), ("Medium", 0.5, 0.6), ("Low", 0.0, 0.3))
"""Levels of confidence: name, minimum, and the value assumed if only the level is known."""
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
    {
        name: relation.property
        for name, relation in relations.RELATIONS.items()
        if relation.property != "supersededBy"
    }
)
"""Property by relation; supersession is a field of an entry and not a link, so it is not here."""
RELATION_NAMES = MappingProxyType({JIDO + name: relation for relation, name in RELATIONS.items()})


def property_of(relation: str) -> str:
    """Return the property of a relation: that of the ontology, or one made from its name."""
    name = RELATIONS.get(relation)
    return relation_iri(relation) if name is None else JIDO + name


def level_of(confidence: float) -> str:
    """Return the level of a confidence: High, Medium or Low."""
    return next(name for name, minimum, _ in LEVELS if confidence >= minimum)


def most_specific(classes: set[str]) -> str | None:
    """Return the most specific memory type among several classes; None if there is none."""
    # RDF written by others may state superclasses, too; the class with most ancestors is the narrowest.
    types = [name for name in TYPES.values() if CLASSES[name] in classes]
    return max(types, key=lambda name: len(supertypes(name)), default=None)


class Facet(msgspec.Struct, frozen=True, kw_only=True):
    """A property that a key of the metadata determines."""

    key: str
    property: str
    choices: Mapping[str, str] | None = None
    """Individual by normalized word; without choices the text itself is the value."""
    default: str | None = None

    def value(self, metadata: Mapping[str, Any]) -> str | None:
        """Return the IRI of the individual, or the text, that the metadata has; else the default."""
        value = metadata.get(self.key)
        if not isinstance(value, str):
            return self.default
        return value if self.choices is None else self.choices.get(_normalize_word(value), self.default)


def _normalize_word(text: str) -> str:
    return "".join(filter(str.isalnum, text)).lower()


def _choices(*names: str, suffix: str = "") -> Mapping[str, str]:
    """Return individuals by their name and by their name without the suffix."""
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
"""Facets by memory type."""


def assignees(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the agents that the metadata of a task names: one, or a list of them."""
    value = metadata.get(ASSIGNED_TO)
    agents = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    return tuple(agent for agent in agents if isinstance(agent, str) and agent)
