"""How is a memory told as triples?

As lines of N-Triples for the named graph of its owner, put together as text because that is several times
faster than building terms. Everything that a memory holds is said, so that reading gives the same memory
back. What belongs to it has the memory itself as subject, except for its evidence: such a node may serve
several memories of a graph, and goes when the last `derivedFrom` that points to it goes.

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
"""How a line of N-Triples ends."""

_json = msgspec.json.Encoder(order="deterministic").encode
_IS_A = f"<{TYPE}> "
_TYPES: dict[str | None, str] = {name: f"{_IS_A}<{iri}>" for name, iri in CLASSES.items()}
_TYPES[None] = _TYPES[ROOT_TYPE]
_SOURCES = {name: f"<{JIDO}hasSourceType> <{iri}>" for name, iri in SOURCE_INDIVIDUALS.items()}
_HIGH, _MEDIUM, _LOW = (f"<{JIDO}hasConfidence> <{JIDO}{name}>" for name, _, _ in LEVELS)
_EVIDENCE = f"{_IS_A}<{JIDO}Evidence>"
_TYPES_WITH_FACETS = frozenset({*FACETS, ROOT_TYPE, "task"})
"""The types of which more is said than of others."""
_SUBJECT_PLACEHOLDER = "\0"
"""Where the memory itself is put into what it has in common with others; no text holds it."""
_MIN_HIGH, _MIN_MEDIUM = LEVELS[0][1], LEVELS[1][1]


def to_nquads(entry: Entry, links: Iterable[Link] = (), access: Access | None = None) -> str:
    """One memory as N-Quads, with the links that begin at it and how often it was used."""
    own = [link for link in links if link.source == entry.id]
    return entries_to_nquads([entry], own, None if access is None else {entry.id: access})


def entries_to_nquads(
    entries: Iterable[Entry], links: Iterable[Link] = (), access: Mapping[str, Access] | None = None
) -> str:
    """Many memories as N-Quads; what they have in common is said once."""
    return triples_to_nquads(triples_by_graph(entries, links, access))


def triples_by_graph(
    entries: Iterable[Entry], links: Iterable[Link] = (), access: Mapping[str, Access] | None = None
) -> dict[str, str]:
    """Many memories as N-Triples, by the graph they belong to; what they have in common is said once."""
    begun: dict[str, list[Link]] = {}
    for link in links:
        begun.setdefault(link.source, []).append(link)
    used = {} if access is None else access
    told: dict[str, list[str]] = {}
    for entry in entries:
        graph, around = _owner(entry.namespace, entry.agent_id, entry.session_id, entry.project_id)
        lines = told.get(graph)
        if lines is None:
            lines = told[graph] = [around]
        lines.append(_entry_triples(entry, begun.get(entry.id, ()), used.get(entry.id)))
    return {graph: "".join(lines) for graph, lines in told.items()}


def triples_to_nquads(triples: Mapping[str, str]) -> str:
    """N-Quads of the N-Triples of some graphs."""
    # Each line ends so, and no literal holds a line feed.
    return "".join(text.replace(LINE_END, f" <{graph}>{LINE_END}") for graph, text in triples.items())


def _entry_triples(entry: Entry, links: Sequence[Link], access: Access | None) -> str:
    sure = entry.confidence
    level = _HIGH if sure >= _MIN_HIGH else _MEDIUM if sure >= _MIN_MEDIUM else _LOW
    kind = _common_triples(
        entry.namespace,
        entry.agent_id,
        entry.session_id,
        entry.project_id,
        entry.type,
        entry.source,
        level,
    )
    subject = f"<{MEMORY}{percent_encode(entry.id)}> "
    more = LINE_END + subject  # where a line ends and the next one begins
    said = _optional_fields(entry)
    if entry.type in _TYPES_WITH_FACETS:
        said += _type_facets(entry)
    if links:
        said += _links(links)
    if access is not None:
        said += _access_counts(access)
    nodes = _evidence_nodes(entry.evidence, said) if entry.evidence else ""
    rest = more + more.join(said) if said else ""
    return (
        f"{kind.replace(_SUBJECT_PLACEHOLDER, subject)}{subject}<{JIDO}summary> {string_literal(entry.content)}"
        f'{more}<{JIDO}confidence> "{sure!r}"^^<{XSD}double>'
        f"{more}<{JIDO}hasTimestamp> {datetime_literal(entry.created_at)}"
        f'{more}<{JIDO}revision> "{entry.rev}"^^<{XSD}integer>{rest}{LINE_END}{nodes}'
    )


def _optional_fields(entry: Entry) -> list[str]:
    """What most memories do not have."""
    said = []
    if entry.metadata:
        said.append(f"<{JIDO}metadata> {string_literal(_json(codec.dump(entry.metadata)).decode())}")
    if entry.rationale is not None:
        said.append(f"<{JIDO}rationale> {string_literal(entry.rationale)}")
    if entry.superseded_reason is not None:
        said.append(f"<{JIDO}supersessionReason> {string_literal(entry.superseded_reason)}")
    if entry.occurred_at is not None:
        said.append(f"<{JIDO}occurredAt> {datetime_literal(entry.occurred_at)}")
    if entry.expires_at is not None:
        said.append(f"<{JIDO}expiresAt> {datetime_literal(entry.expires_at)}")
    if entry.importance is not None:
        said.append(f'<{JIDO}importance> "{entry.importance!r}"^^<{XSD}double>')
    if entry.superseded_by is not None or entry.superseded_at is not None:
        said += _supersession(entry)
    if entry.stale:
        said.append(f'<{JIDO}stale> "true"^^<{XSD}boolean>')
    if entry.tags:
        said += _tags(entry.tags)
    if entry.message is not None:
        said += _message_ref(entry.message)
    return said


def _supersession(entry: Entry) -> list[str]:
    said = []
    if entry.superseded_by is not None:
        successor = DELETED_MARKER if entry.superseded_by == DELETED else memory_iri(entry.superseded_by)
        said.append(f"<{JIDO}supersededBy> <{successor}>")
    if entry.superseded_at is not None:
        said.append(f"<{JIDO}supersededAt> {datetime_literal(entry.superseded_at)}")
    return said


@lru_cache(maxsize=4096)
def _owner(namespace: str, agent_id: str, session_id: str | None, project_id: str | None) -> tuple[str, str]:
    """The graph of an owner, and what is said there of its agent, session and project."""
    agent = agent_iri(agent_id)
    said = [
        f"<{agent}> {_IS_A}<{JIDO}Agent>",
        f"<{agent}> <{JIDO}hasRole> <{JIDO}MemoryWriter>",
        f"<{agent}> <{JIDO}hasCapability> <{JIDO}CanWriteMemory>",
    ]
    if session_id is not None:
        said.append(f"<{session_iri(session_id)}> {_IS_A}<{JIDO}WorkSession>")
    if project_id is not None:
        said.append(f"<{project_iri(project_id)}> {_IS_A}<{JIDO}Project>")
    graph = graph_iri(namespace, agent_id, session_id, project_id)
    return graph, "".join(line + LINE_END for line in said)


@lru_cache(maxsize=4096)
def _common_triples(
    namespace: str,
    agent_id: str,
    session_id: str | None,
    project_id: str | None,
    type: str | None,
    source: str | None,
    level: str,
) -> str:
    """What the memories of an owner, a type, a source and a level of confidence have in common."""
    said = [
        _TYPES[type],
        level,
        f"<{JIDO}inNamespace> {string_literal(namespace)}",
        f"<{JIDO}assertedBy> <{agent_iri(agent_id)}>",
    ]
    if session_id is not None:
        said.append(f"<{JIDO}assertedIn> <{session_iri(session_id)}>")
    if project_id is not None:
        said.append(f"<{JIDO}appliesToProject> <{project_iri(project_id)}>")
    if source is not None:
        said.append(_SOURCES[source])
    return "".join(_SUBJECT_PLACEHOLDER + line + LINE_END for line in said)


def _type_facets(entry: Entry) -> list[str]:
    said = []
    for facet in FACETS.get(entry.type or ROOT_TYPE, ()):
        value = facet.value(entry.metadata)
        if value is not None:
            told = string_literal(value) if facet.choices is None else f"<{value}>"
            said.append(f"<{JIDO}{facet.property}> {told}")
    if entry.type == ROOT_TYPE:
        said.append(f'<{JIDO}memoryType> "{ROOT_TYPE}"')
    if entry.type == "task":
        said += [f"<{JIDO}assignedTo> <{agent_iri(agent)}>" for agent in assignees(entry.metadata)]
    return said


def _tags(tags: tuple[str, ...]) -> list[str]:
    said = [f"<{JIDO}tag> {string_literal(tag)}" for tag in tags]
    if list(tags) != sorted(tags):
        said.append(f"<{JIDO}tagOrder> {string_literal(_json(tags).decode())}")
    return said


def _message_ref(message: MessageRef) -> list[str]:
    said = [
        f"<{JIDO}messageThread> {string_literal(message.thread)}",
        f'<{JIDO}messageSeq> "{message.seq}"^^<{XSD}integer>',
    ]
    if message.role is not None:
        said.append(f"<{JIDO}messageRole> {string_literal(message.role)}")
    if message.speaker is not None:
        said.append(f"<{JIDO}messageSpeaker> {string_literal(message.speaker)}")
    return said


def _links(links: Sequence[Link]) -> list[str]:
    said = [f"<{property_of(link.relation)}> <{memory_iri(link.target)}>" for link in links]
    times = [[link.relation, link.target, link.created_at] for link in links]
    return [*said, f"<{JIDO}linkTimes> {string_literal(_json(times).decode())}"]


def _access_counts(access: Access) -> list[str]:
    said = [f'<{JIDO}accessCount> "{access.count}"^^<{XSD}integer>']
    return said if access.last is None else [*said, f"<{JIDO}lastAccessed> {datetime_literal(access.last)}"]


def _evidence_nodes(evidence: tuple[Evidence, ...], said: list[str]) -> str:
    """The nodes of what a memory is derived from; what the memory says of them is added to the rest."""
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
    said += [f"<{JIDO}derivedFrom> <{EVIDENCE}{name}>" for name in names]
    said.append(f'<{JIDO}evidenceOrder> "{" ".join(order)}"')
    return "".join(nodes)


def string_literal(text: str) -> str:
    """Text as N-Quads write it."""
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
    """A number as a literal of type xsd:integer."""
    return f'"{value}"^^<{XSD}integer>'


def datetime_literal(at: int) -> str:
    """Milliseconds since 1970 as a literal of type xsd:dateTime."""
    minute, millis = divmod(at, 60_000)
    return f'"{_minute(minute)}:{millis // 1000:02d}.{millis % 1000:03d}Z"^^<{XSD}dateTime>'


@lru_cache(maxsize=4096)
def _minute(number: int) -> str:
    day, rest = divmod(number, 1440)
    return f"{date.fromordinal(719_163 + day).isoformat()}T{rest // 60:02d}:{rest % 60:02d}"
