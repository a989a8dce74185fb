"""Serialize entries to RDF triples.

Triples are written as text, N-Triples for the named graph of each owner, because that is several times faster
than building terms. All fields of an entry are written, so that parsing returns the same entry. All
triples have the memory as subject except those of its evidence: an evidence node may serve several memories
of a graph, and is deleted with the last `derivedFrom` that points to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from functools import lru_cache

import msgspec

from omoide.core import codec
from omoide.core.entry import DELETED, ROOT_TYPE, Entry, Evidence, MessageRef
from omoide.graph.vocabulary import (
    CLASSES,
    DELETED_MARKER,
    EVIDENCE,
    FACETS,
    JIDO,
    LEVELS,
    MEMORY,
    OMOIDE,
    SOURCE_INDIVIDUALS,
    TYPE,
    XSD,
    agent_iri,
    assignees,
    evidence_id,
    graph_iri,
    memory_iri,
    percent_encode,
    project_iri,
    property_of,
    session_iri,
)
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
_TYPES_WITH_FACETS = frozenset({*FACETS, ROOT_TYPE, "task"})
"""Types with properties of their own."""
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
    if entry.type in _TYPES_WITH_FACETS:
        properties += _type_facets(entry)
    if links:
        properties += _links(links)
    if access is not None:
        properties += _access_counts(access)
    nodes = _evidence_nodes(entry.evidence, properties) if entry.evidence else ""
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
        properties.append(f"<{JIDO}metadata> {string_literal(_json(codec.dump(entry.metadata)).decode())}")
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
    if source is not None:
        properties.append(_SOURCES[source])
    return "".join(_SUBJECT_PLACEHOLDER + line + LINE_END for line in properties)


def _type_facets(entry: Entry) -> list[str]:
    properties = []
    for facet in FACETS.get(entry.type or ROOT_TYPE, ()):
        value = facet.value(entry.metadata)
        if value is not None:
            object_term = string_literal(value) if facet.choices is None else f"<{value}>"
            properties.append(f"<{JIDO}{facet.property}> {object_term}")
    # An entry without a type has the same class; this literal distinguishes them.
    if entry.type == ROOT_TYPE:
        properties.append(f'<{JIDO}memoryType> "{ROOT_TYPE}"')
    if entry.type == "task":
        properties += [f"<{JIDO}assignedTo> <{agent_iri(agent)}>" for agent in assignees(entry.metadata)]
    return properties


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


def _links(links: Sequence[Link]) -> list[str]:
    properties = [f"<{property_of(link.relation)}> <{memory_iri(link.target)}>" for link in links]
    # A triple has no timestamp, so those of all links are one literal.
    times = [[link.relation, link.target, link.created_at] for link in links]
    return [*properties, f"<{JIDO}linkTimes> {string_literal(_json(times).decode())}"]


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
