"""Serialize entries to RDF triples.

Triples are written as text, N-Triples for the named graph of each owner, because that is several times faster
than building terms. All fields of an entry are written, so that parsing returns the same entry. All
triples have the memory as subject except those of nodes that it points to: its evidence, what it is about,
and the ends of relations that the ontology wants to be no memories. Such a node may serve several memories of
a graph, and is deleted with the last triple that points to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache
from typing import Any

import msgspec

from omoide.core import codec
from omoide.core.entry import DELETED, ROOT_TYPE, Entry, Evidence, MessageRef
from omoide.graph.vocabulary import (
    ABOUT_CLASSES,
    CLASSES,
    DELETED_MARKER,
    DETAILS,
    EVIDENCE,
    FOREIGN_KEY,
    JIDO,
    LEVELS,
    MEMORY,
    OMOIDE,
    RDFS,
    SOURCE_INDIVIDUALS,
    TYPE,
    XSD,
    Facet,
    about_iri,
    agent_iri,
    evidence_id,
    foreign_properties,
    graph_iri,
    justification_iri,
    memory_iri,
    percent_encode,
    project_iri,
    property_of,
    relation_iri,
    session_iri,
)
from omoide.longterm import relations
from omoide.stores.records import Access, Link

LINE_END = " .\n"
"""End of a line of N-Triples."""

_json = msgspec.json.Encoder(order="deterministic").encode
_IS_A = f"<{TYPE}> "
_TYPES: dict[str | None, str] = {name: f"{_IS_A}<{iri}>" for name, iri in CLASSES.items()}
_TYPES[None] = _TYPES[ROOT_TYPE]
_SOURCES = {name: f"<{JIDO}hasSourceType> <{iri}>" for name, iri in SOURCE_INDIVIDUALS.items()}
_HIGH, _MEDIUM, _LOW = (f"<{JIDO}hasConfidence> <{JIDO}{name}>" for name, _, _ in LEVELS)
_EVIDENCE = f"{_IS_A}<{JIDO}Evidence>"
_DEFAULT_SOURCE = (f"{_SOURCES['agent']}", f'<{OMOIDE}sourceAssumed> "true"^^<{XSD}boolean>')
"""Every memory has a source; the agent's is assumed where none is given."""
_STATED_TYPES = frozenset(
    {ROOT_TYPE, *(name for name, facets in DETAILS.items() if any(facet.default for facet in facets))}
)
"""Types with properties of their own where the metadata is empty."""
AS_EVIDENCE = f"{OMOIDE}asEvidence"
STATED_BY = f"{OMOIDE}statedBy"
_SUBJECT_PLACEHOLDER = "\0"
"""Stands for the subject in triples that memories share; no text can contain it."""
_MIN_HIGH, _MIN_MEDIUM = LEVELS[0][1], LEVELS[1][1]


def to_nquads(entry: Entry, links: Iterable[Link] = (), access: Access | None = None) -> str:
    """Return one memory as N-Quads, with the links that start at it and its access counts."""
    own_links = [link for link in links if link.source == entry.id]
    return entries_to_nquads([entry], own_links, None if access is None else {entry.id: access})


def entries_to_nquads(
    entries: Iterable[Entry], links: Iterable[Link] = (), access: Mapping[str, Access] | None = None
) -> str:
    """Return memories as N-Quads; what they have in common is serialized once."""
    return triples_to_nquads(triples_by_graph(entries, links, access))


def triples_by_graph(
    entries: Iterable[Entry], links: Iterable[Link] = (), access: Mapping[str, Access] | None = None
) -> dict[str, str]:
    """Return memories as N-Triples, by named graph; what they have in common is serialized once."""
    links_by_source: dict[str, list[Link]] = {}
    for link in links:
        links_by_source.setdefault(link.source, []).append(link)
    counts = {} if access is None else access
    lines_by_graph: dict[str, list[str]] = {}
    for entry in entries:
        graph, owner_lines = _owner(
            entry.namespace, entry.agent_id, entry.session_id, entry.project_id, entry.user_id
        )
        lines = lines_by_graph.get(graph)
        if lines is None:
            lines = lines_by_graph[graph] = [owner_lines]
        lines.append(_entry_triples(entry, links_by_source.get(entry.id, ()), counts.get(entry.id)))
    return {graph: "".join(lines) for graph, lines in lines_by_graph.items()}


def triples_to_nquads(triples: Mapping[str, str]) -> str:
    """Return the N-Triples of several graphs as N-Quads."""
    # Every triple ends with LINE_END, and literals contain no line feed.
    return "".join(text.replace(LINE_END, f" <{graph}>{LINE_END}") for graph, text in triples.items())


def _entry_triples(entry: Entry, links: Sequence[Link], access: Access | None) -> str:
    confidence = entry.confidence
    level = _HIGH if confidence >= _MIN_HIGH else _MEDIUM if confidence >= _MIN_MEDIUM else _LOW
    common = _common_triples(
        entry.namespace,
        entry.agent_id,
        entry.session_id,
        entry.project_id,
        entry.user_id,
        entry.type,
        entry.source,
        level,
    )
    subject = f"<{MEMORY}{percent_encode(entry.id)}> "
    next_line = LINE_END + subject
    properties = _optional_fields(entry)
    if entry.metadata or entry.type in _STATED_TYPES:
        properties += _type_facets(entry)
    nodes = _evidence_nodes(entry.evidence, properties) if entry.evidence else ""
    if links:
        nodes += _links(entry, links, properties)
    if access is not None:
        properties += _access_counts(access)
    if about := entry.about:
        nodes += _about_nodes(entry, about, properties)
    tail = next_line + next_line.join(properties) if properties else ""
    head = common.replace(_SUBJECT_PLACEHOLDER, subject)
    return (
        f"{head}{subject}<{JIDO}summary> {string_literal(entry.content)}"
        f'{next_line}<{JIDO}confidence> "{confidence!r}"^^<{XSD}double>'
        f"{next_line}<{JIDO}hasTimestamp> {datetime_literal(entry.created_at)}"
        f'{next_line}<{JIDO}revision> "{entry.rev}"^^<{XSD}integer>{tail}{LINE_END}{nodes}'
    )


def _optional_fields(entry: Entry) -> list[str]:
    """Return the properties that most memories do not have."""
    properties = []
    if entry.key is not None:
        properties.append(f"<{OMOIDE}key> {string_literal(entry.key)}")
    if entry.metadata:
        properties += _metadata(entry.metadata)
    if entry.rationale is not None:
        properties.append(f"<{JIDO}rationale> {string_literal(entry.rationale)}")
    if entry.superseded_reason is not None:
        properties.append(f"<{JIDO}supersessionReason> {string_literal(entry.superseded_reason)}")
    if entry.occurred_at is not None:
        properties.append(f"<{JIDO}occurredAt> {datetime_literal(entry.occurred_at)}")
    if entry.expires_at is not None:
        properties.append(f"<{JIDO}expiresAt> {datetime_literal(entry.expires_at)}")
    if entry.importance is not None:
        properties.append(f'<{JIDO}importance> "{entry.importance!r}"^^<{XSD}double>')
    if entry.superseded_by is not None or entry.superseded_at is not None:
        properties += _supersession(entry)
    if entry.stale:
        properties.append(f'<{JIDO}stale> "true"^^<{XSD}boolean>')
    if entry.tags:
        properties += _tags(entry.tags)
    if entry.message is not None:
        properties += _message_ref(entry.message)
    return properties


def _metadata(metadata: Mapping[str, Any]) -> list[str]:
    """Return the metadata as JSON; what it holds for others are statements of their own."""
    foreign = foreign_properties(metadata)
    data = metadata if foreign is None else {k: v for k, v in metadata.items() if k != FOREIGN_KEY}
    own = [f"<{JIDO}metadata> {string_literal(_json(codec.dump(data)).decode())}"] if data else []
    return own + (foreign or [])


def _supersession(entry: Entry) -> list[str]:
    properties = []
    if entry.superseded_by is not None:
        successor = DELETED_MARKER if entry.superseded_by == DELETED else memory_iri(entry.superseded_by)
        properties.append(f"<{JIDO}supersededBy> <{successor}>")
    if entry.superseded_at is not None:
        properties.append(f"<{JIDO}supersededAt> {datetime_literal(entry.superseded_at)}")
    return properties


@lru_cache(maxsize=4096)
def _owner(
    namespace: str, agent_id: str, session_id: str | None, project_id: str | None, user_id: str | None
) -> tuple[str, str]:
    """Return the graph of an owner, and the triples there about its agent, session and project."""
    agent = agent_iri(agent_id)
    statements = [
        f"<{agent}> {_IS_A}<{JIDO}Agent>",
        f"<{agent}> <{JIDO}hasRole> <{JIDO}MemoryWriter>",
        f"<{agent}> <{JIDO}hasCapability> <{JIDO}CanWriteMemory>",
    ]
    if session_id is not None:
        statements.append(f"<{session_iri(session_id)}> {_IS_A}<{JIDO}WorkSession>")
    if project_id is not None:
        statements.append(f"<{project_iri(project_id)}> {_IS_A}<{JIDO}Project>")
    graph = graph_iri(namespace, agent_id, session_id, project_id, user_id)
    return graph, "".join(line + LINE_END for line in statements)


@lru_cache(maxsize=4096)
def _common_triples(
    namespace: str,
    agent_id: str,
    session_id: str | None,
    project_id: str | None,
    user_id: str | None,
    type: str | None,
    source: str | None,
    level: str,
) -> str:
    """Return the triples that memories of one owner, type, source and confidence level share."""
    properties = [
        _TYPES[type],
        level,
        f"<{JIDO}inNamespace> {string_literal(namespace)}",
        f"<{JIDO}assertedBy> <{agent_iri(agent_id)}>",
    ]
    if session_id is not None:
        properties.append(f"<{JIDO}assertedIn> <{session_iri(session_id)}>")
    if project_id is not None:
        properties.append(f"<{JIDO}appliesToProject> <{project_iri(project_id)}>")
    if user_id is not None:
        properties.append(f"<{OMOIDE}ofUser> {string_literal(user_id)}")
    properties += _DEFAULT_SOURCE if source is None else (_SOURCES[source],)
    return "".join(_SUBJECT_PLACEHOLDER + line + LINE_END for line in properties)


def _type_facets(entry: Entry) -> list[str]:
    properties = [
        f"<{JIDO}{facet.property}> {_facet_term(facet, value)}"
        for facet in DETAILS[entry.type or ROOT_TYPE]
        for value in facet.values(entry.metadata)
    ]
    # An entry without a type has the same class; this literal distinguishes them.
    if entry.type == ROOT_TYPE:
        properties.append(f'<{JIDO}memoryType> "{ROOT_TYPE}"')
    return properties


def _facet_term(facet: Facet, value: str) -> str:
    if facet.names_node():
        return f"<{value}>"
    return f'"{value}"^^<{XSD}dateTime>' if facet.is_time else string_literal(value)


def _tags(tags: tuple[str, ...]) -> list[str]:
    properties = [f"<{JIDO}tag> {string_literal(tag)}" for tag in tags]
    # Triples have no order: sorted tags need none, any other order is stored.
    if list(tags) != sorted(tags):
        properties.append(f"<{JIDO}tagOrder> {string_literal(_json(tags).decode())}")
    return properties


def _message_ref(message: MessageRef) -> list[str]:
    properties = [
        f"<{JIDO}messageThread> {string_literal(message.thread)}",
        f'<{JIDO}messageSeq> "{message.seq}"^^<{XSD}integer>',
    ]
    if message.role is not None:
        properties.append(f"<{JIDO}messageRole> {string_literal(message.role)}")
    if message.speaker is not None:
        properties.append(f"<{JIDO}messageSpeaker> {string_literal(message.speaker)}")
    return properties


def _links(entry: Entry, links: Sequence[Link], properties: list[str]) -> str:
    """Append the relations of a memory to `properties`; return the triples of the nodes that they need."""
    nodes: list[str] = []
    for link in links:
        target = memory_iri(link.target)
        if link.relation in _SAID_BY_EVIDENCE:
            # What confirms or contradicts is Evidence, and a memory is none: a node stands for it.
            node = f"{EVIDENCE}of_{evidence_id(entry.id)}"
            properties.append(f"<{AS_EVIDENCE}> <{node}>")
            nodes.append(f"<{node}> {_EVIDENCE}{LINE_END}<{node}> <{JIDO}refersTo> <{memory_iri(entry.id)}>")
            nodes.append(f"<{node}> <{property_of(link.relation)}> <{target}>")
        elif link.relation == "justified_by" and (entry.type is None or relations.is_a(entry, "decision")):
            node = justification_iri(link.target)
            properties.append(f"<{JIDO}justifiedBy> <{node}>")
            nodes.append(f"<{node}> {_IS_A}<{JIDO}Justification>{LINE_END}<{node}> <{STATED_BY}> <{target}>")
        else:
            # The properties of these two lead to nodes that are no memories; a link leads to a memory.
            own = link.relation in ("derived_from", "justified_by")
            name = relation_iri(link.relation) if own else property_of(link.relation)
            properties.append(f"<{name}> <{target}>")
    # A triple has no timestamp, so those of all links are one literal.
    times = [[link.relation, link.target, link.created_at] for link in links]
    properties.append(f"<{JIDO}linkTimes> {string_literal(_json(times).decode())}")
    return "".join(f"{node}{LINE_END}" for node in dict.fromkeys(nodes))


_SAID_BY_EVIDENCE = frozenset({"confirms", "contradicts"})


def _about_nodes(entry: Entry, about: Sequence[str], properties: list[str]) -> str:
    """Return the triples of what a memory is about; references to it are appended to `properties`."""
    nodes = []
    for tag in about:
        kind, _, name = tag.partition(":")
        node, label = about_iri(tag), f"{JIDO}filePath" if kind == "file" else f"{RDFS}label"
        properties.append(f"<{OMOIDE}about> <{node}>")
        if kind == "module" and relations.is_a(entry, "convention"):
            properties.append(f"<{JIDO}appliesToModule> <{node}>")
        nodes.append(f"<{node}> {_IS_A}<{JIDO}{ABOUT_CLASSES[kind]}>{LINE_END}")
        nodes.append(f"<{node}> <{label}> {string_literal(name)}{LINE_END}")
    return "".join(nodes)


def _access_counts(access: Access) -> list[str]:
    properties = [f'<{JIDO}accessCount> "{access.count}"^^<{XSD}integer>']
    if access.last is not None:
        properties.append(f"<{JIDO}lastAccessed> {datetime_literal(access.last)}")
    return properties


def _evidence_nodes(evidence: tuple[Evidence, ...], properties: list[str]) -> str:
    """Return the triples of the evidence nodes; references to them are appended to `properties`."""
    # Triples have no order, and one node may be evidence of several kinds, so both are listed in a literal.
    order: list[str] = []
    nodes: list[str] = []
    names: dict[str, None] = {}
    for item in evidence:
        name = evidence_id(item.ref, item.quote)
        names[name] = None
        order.append(f"{item.kind}:{name}")
        subject = f"<{EVIDENCE}{name}> "
        nodes.append(
            f'{subject}{_EVIDENCE}{LINE_END}{subject}<{JIDO}evidenceKind> "{item.kind}"{LINE_END}'
            f"{subject}<{JIDO}evidenceReference> {string_literal(item.ref)}{LINE_END}"
        )
        if item.quote is not None:
            nodes.append(f"{subject}<{JIDO}evidenceQuote> {string_literal(item.quote)}{LINE_END}")
        if item.kind == "entry":
            nodes.append(f"{subject}<{JIDO}refersTo> <{memory_iri(item.ref)}>{LINE_END}")
    properties += [f"<{JIDO}derivedFrom> <{EVIDENCE}{name}>" for name in names]
    properties.append(f'<{JIDO}evidenceOrder> "{" ".join(order)}"')
    return "".join(nodes)


def string_literal(text: str) -> str:
    """Return text as a quoted literal."""
    # N-Triples requires these four escapes; the backslash comes first, as the others add some.
    if "\\" in text:
        text = text.replace("\\", "\\\\")
    if '"' in text:
        text = text.replace('"', '\\"')
    if "\n" in text:
        text = text.replace("\n", "\\n")
    if "\r" in text:
        text = text.replace("\r", "\\r")
    return f'"{text}"'


def integer_literal(value: int) -> str:
    """Return a number as a literal of type `xsd:integer`."""
    return f'"{value}"^^<{XSD}integer>'


def datetime_literal(at: int) -> str:
    """Return milliseconds since 1970 as a literal of type `xsd:dateTime`."""
    minute, millis = divmod(at, 60_000)
    return f'"{_minute(minute)}:{millis // 1000:02d}.{millis % 1000:03d}Z"^^<{XSD}dateTime>'


@lru_cache(maxsize=4096)
def _minute(number: int) -> str:
    day, rest = divmod(number, 1440)
    # 719,163 is the ordinal of 1970-01-01.
    return f"{date.fromordinal(719_163 + day).isoformat()}T{rest // 60:02d}:{rest % 60:02d}"
