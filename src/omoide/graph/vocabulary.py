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
JUSTIFICATION = f"{JIDO}justification_"
DOMAIN = f"{JIDO}domain_"
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


def justification_iri(id: str) -> str:
    """Return the IRI of the justification that a memory states."""
    return JUSTIFICATION + evidence_id(id)


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
    """Individual by normalized word; an IRI stands for itself."""
    default: str | None = None
    prefix: str | None = None
    """Prefix of the IRIs of what it names, such as agents; their ids are the values."""
    is_time: bool = False
    """True if the values are an `xsd:dateTime`."""

    def names_node(self) -> bool:
        """True if the values are IRIs, and no literals."""
        return self.choices is not None or self.prefix is not None

    def value(self, metadata: Mapping[str, Any]) -> str | None:
        """Return the first of the values, or None."""
        return next(iter(self.values(metadata)), None)

    def values(self, metadata: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the IRIs, or the texts, that the metadata has: one, or a list of them; else the default."""
        given = metadata.get(self.key)
        items = given if isinstance(given, Sequence) and not isinstance(given, (str, bytes)) else (given,)
        found = (self._value(item) for item in items if isinstance(item, str) and item)
        values = tuple(dict.fromkeys(value for value in found if value is not None))
        return values or (() if self.default is None else (self.default,))

    def _value(self, item: str) -> str | None:
        if self.choices is not None:
            return self.choices.get(normalize_word(item)) or (item if is_iri(item) else None)
        if self.prefix is not None:
            return self.prefix + percent_encode(item)
        return item if not self.is_time or _is_datetime(item) else None

    def word(self, value: str) -> str | None:
        """Return the text in the metadata for an IRI or a text; None if there is none."""
        if self.choices is not None:
            word = value if value not in self.choices.values() else _WORDS[value]
        elif self.prefix is not None:
            word = id_of(value, self.prefix)
        else:
            word = value
        return word if word and self._value(word) == value else None


_is_datetime = re.compile(r"-?\d{4,}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)?", re.ASCII).fullmatch
_is_iri = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*").fullmatch


def is_iri(text: str) -> bool:
    """Return True if a text is an absolute IRI, which can be written between angle brackets."""
    return _is_iri(text) is not None


_is_term = re.compile(
    r"<[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*>"
    r"|\"(?:[^\"\\\n\r]|\\[tbnrf\"'\\]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*\""
    r"(?:@[A-Za-z]+(?:-[A-Za-z0-9]+)*(?:--(?:ltr|rtl))?|\^\^<[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*>)?"
).fullmatch


def normalize_word(text: str) -> str:
    """Return the letters and digits of a word in lower case."""
    return "".join(filter(str.isalnum, text)).lower()


_WORDS: dict[str, str] = {}
"""The word for each individual: `in_progress` for `InProgress`, `global` for `GlobalScope`."""


def _choices(*names: str, suffix: str = "") -> Mapping[str, str]:
    """Return individuals by their name and by their name without the suffix."""
    words = {normalize_word(name): JIDO + name for name in names}
    for name in names:
        _WORDS[JIDO + name] = re.sub(r"(?<!^)(?=[A-Z])", "_", name.removesuffix(suffix)).lower()
    return words | {normalize_word(name.removesuffix(suffix)): JIDO + name for name in names}


SESSION_STATUSES = _choices("Active", "Paused", "Closed", "Abandoned")
SESSION_PHASES = _choices(
    "PlanningPhase", "ImplementationPhase", "DebuggingPhase", "ReviewPhase", suffix="Phase"
)
AGENT_ROLES = _choices(
    "Planner", "Architect", "Implementer", "Reviewer", "Debugger", "MemoryWriter", "MemoryReader"
)
CAPABILITIES = _choices(
    "CanPlan", "CanWriteCode", "CanReviewCode", "CanDebug", "CanWriteMemory", "CanQueryMemory"
)
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
"""Facets that say the state of a memory, by memory type."""

_ASSIGNEES = Facet(key=ASSIGNED_TO, property="assignedTo", prefix=AGENT)

_DETAILS: Mapping[str, tuple[Facet, ...]] = {
    ROOT_TYPE: (Facet(key="detailed_explanation", property="detailedExplanation"),),
    "convention": (
        Facet(key="convention_name", property="conventionName"),
        Facet(key="convention_description", property="conventionDescription"),
        Facet(key="violation_consequence", property="violationConsequence"),
        Facet(key="applies_to_domain", property="appliesToDomain", prefix=DOMAIN),
    ),
    "agent_rule": (Facet(key="governs_agent", property="governsAgent", prefix=AGENT),),
    "error": (Facet(key="error_code", property="errorCode"),),
    "task": (
        _ASSIGNEES,
        Facet(key="created_by", property="createdBy", prefix=AGENT),
        Facet(key="task_created_at", property="taskCreatedAt", is_time=True),
        Facet(key="task_started_at", property="taskStartedAt", is_time=True),
        Facet(key="task_completed_at", property="taskCompletedAt", is_time=True),
    ),
}

DETAILS = MappingProxyType(
    {
        name: FACETS.get(name, ())
        + tuple(facet for root, facets in _DETAILS.items() if name in with_subtypes(root) for facet in facets)
        for name in (ROOT_TYPE, *MEMORY_TYPES)
    }
)
"""All facets by memory type."""


def assignees(metadata: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the agents that the metadata of a task names: one, or a list of them."""
    return tuple(id_of(iri, AGENT) for iri in _ASSIGNEES.values(metadata))


FOREIGN_KEY = "rdf"
"""Key of the metadata with the properties of a memory that have no other place: N-Triples terms by IRI."""

_OWN_PROPERTIES = frozenset(
    JIDO + name
    for name in (
        *("summary", "rationale", "hasConfidence", "confidence", "hasSourceType", "hasTimestamp", "revision"),
        *("inNamespace", "assertedBy", "assertedIn", "appliesToProject", "derivedFrom", "supersededBy"),
        *("metadata", "supersessionReason", "occurredAt", "expiresAt", "importance", "supersededAt", "stale"),
        *("tag", "tagOrder", "messageThread", "messageSeq", "messageRole", "messageSpeaker", "linkTimes"),
        *("accessCount", "lastAccessed", "evidenceOrder", "memoryType"),
    )
)


def is_own_property(iri: str) -> bool:
    """Return True if a property holds a field of an entry."""
    return iri in _OWN_PROPERTIES or iri.startswith(OMOIDE)


def foreign_properties(metadata: Mapping[str, Any]) -> list[str] | None:
    """Return property and object of each statement that the metadata holds for others.

    None if it holds none, or something else under this key, which is then data like any other.
    """
    foreign = metadata.get(FOREIGN_KEY)
    if not isinstance(foreign, Mapping) or not foreign:
        return None
    statements = []
    for name, terms in foreign.items():
        if not isinstance(name, str) or not is_iri(name) or is_own_property(name):
            return None
        if not isinstance(terms, Sequence) or isinstance(terms, (str, bytes)) or not terms:
            return None
        if not all(isinstance(term, str) and is_foreign_term(name, term) for term in terms):
            return None
        if [*terms] != sorted({*terms}):  # as they are read: a repeated or moved one would be lost
            return None
        statements += [f"<{name}> {term}" for term in terms]
    return statements


def is_statement(text: object) -> bool:
    """Return True if a text is a property and an object, as in a line of N-Triples."""
    name, _, term = text.partition(" ") if isinstance(text, str) else ("", "", "")
    return name[:1] == "<" and name[-1:] == ">" and is_iri(name[1:-1]) and _is_term(term) is not None


def is_foreign_term(name: str, term: str) -> bool:
    """Return True if a term, as N-Triples, can be the object of a property that is kept for others."""
    if _is_term(term) is None:
        return False
    if name == TYPE:
        return term[1:-1] not in TYPES and not term.startswith('"')
    return not (name in RELATION_PROPERTIES and term.startswith(f"<{MEMORY}"))


RELATION_PROPERTIES = frozenset(JIDO + name for name in RELATIONS.values())


ABOUT_CLASSES = MappingProxyType({"file": "SourceFile", "module": "Module", "artifact": "Entity"})
"""Class of what a memory is about, by its kind."""
ABOUT_PREFIXES = MappingProxyType({kind: f"{JIDO}{kind}_" for kind in ABOUT_CLASSES})


def about_iri(tag: str) -> str:
    """Return the IRI of what a memory is about, named by a tag such as `file:lib/web.ex`."""
    kind, _, name = tag.partition(":")
    return ABOUT_PREFIXES[kind] + percent_encode(name)
