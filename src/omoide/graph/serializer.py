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
from omoide.core.entry import DELETED, ROOT, Entry, Evidence, MessageRef
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
    assigned,
    encoded,
    evidence_name,
    graph_iri,
    memory_iri,
    project_iri,
    property_of,
    session_iri,
)
from omoide.stores.records import Access, Link

END = " .\n"
"""How a line of N-Triples ends."""

_json = msgspec.json.Encoder(order="deterministic").encode
_IS_A = f"<{TYPE}> "
_TYPES: dict[str | None, str] = {name: f"{_IS_A}<{iri}>" for name, iri in CLASSES.items()}
_TYPES[None] = _TYPES[ROOT]
_SOURCES = {name: f"<{JIDO}hasSourceType> <{iri}>" for name, iri in SOURCE_INDIVIDUALS.items()}
_HIGH, _MEDIUM, _LOW = (f"<{JIDO}hasConfidence> <{JIDO}{name}>" for name, _, _ in LEVELS)
_EVIDENCE = f"{_IS_A}<{JIDO}Evidence>"
_OF_TYPE = frozenset({*FACETS, ROOT, "task"})
"""The types of which more is said than of others."""
_SUBJECT = "\0"
"""Where the memory itself is put into what it has in common with others; no text holds it."""
_SURE, _FAIR = LEVELS[0][1], LEVELS[1][1]


def to_nquads(entry: Entry, links: Iterable[Link] = (), access: Access | None = None) -> str:
    """One memory as N-Quads, with the links that begin at it and how often it was used."""
    own = [link for link in links if link.source == entry.id]
    return all_to_nquads([entry], own, None if access is None else {entry.id: access})


def all_to_nquads(
    entries: Iterable[Entry], links: Iterable[Link] = (), access: Mapping[str, Access] | None = None
) -> str:
    """Many memories as N-Quads; what they have in common is said once."""
    return to_quads(by_graph(entries, links, access))


def by_graph(
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
        lines.append(_told(entry, begun.get(entry.id, ()), used.get(entry.id)))
    return {graph: "".join(lines) for graph, lines in told.items()}


def to_quads(triples: Mapping[str, str]) -> str:
    """N-Quads of the N-Triples of some graphs."""
    # Each line ends so, and no literal holds a line feed.
    return "".join(text.replace(END, f" <{graph}>{END}") for graph, text in triples.items())


def _told(entry: Entry, links: Sequence[Link], access: Access | None) -> str:
    sure = entry.confidence
    level = _HIGH if sure >= _SURE else _MEDIUM if sure >= _FAIR else _LOW
    kind = _kind(
        entry.namespace,
        entry.agent_id,
        entry.session_id,
        entry.project_id,
        entry.type,
        entry.source,
        level,
    )
    subject = f"<{MEMORY}{encoded(entry.id)}> "
    more = END + subject  # where a line ends and the next one begins
    said = _optional(entry)
    if entry.type in _OF_TYPE:
        said += _of_type(entry)
    if links:
        said += _links(links)
    if access is not None:
        said += _use(access)
    nodes = _derived(entry.evidence, said) if entry.evidence else ""
    rest = more + more.join(said) if said else ""
    return (
        f"{kind.replace(_SUBJECT, subject)}{subject}<{JIDO}summary> {literal(entry.content)}"
        f'{more}<{JIDO}confidence> "{sure!r}"^^<{XSD}double>'
        f"{more}<{JIDO}hasTimestamp> {moment(entry.created_at)}"
        f'{more}<{JIDO}revision> "{entry.rev}"^^<{XSD}integer>{rest}{END}{nodes}'
    )


def _optional(entry: Entry) -> list[str]:
    """What most memories do not have."""
    said = []
    if entry.metadata:
        said.append(f"<{JIDO}metadata> {literal(_json(codec.dump(entry.metadata)).decode())}")
    if entry.rationale is not None:
        said.append(f"<{JIDO}rationale> {literal(entry.rationale)}")
    if entry.superseded_reason is not None:
        said.append(f"<{JIDO}supersessionReason> {literal(entry.superseded_reason)}")
    if entry.occurred_at is not None:
        said.append(f"<{JIDO}occurredAt> {moment(entry.occurred_at)}")
    if entry.expires_at is not None:
        said.append(f"<{JIDO}expiresAt> {moment(entry.expires_at)}")
    if entry.importance is not None:
        said.append(f'<{JIDO}importance> "{entry.importance!r}"^^<{XSD}double>')
    if entry.superseded_by is not None or entry.superseded_at is not None:
        said += _superseded(entry)
    if entry.stale:
        said.append(f'<{JIDO}stale> "true"^^<{XSD}boolean>')
    if entry.tags:
        said += _tags(entry.tags)
    if entry.message is not None:
        said += _place(entry.message)
    return said


def _superseded(entry: Entry) -> list[str]:
    said = []
    if entry.superseded_by is not None:
        successor = DELETED_MARKER if entry.superseded_by == DELETED else memory_iri(entry.superseded_by)
        said.append(f"<{JIDO}supersededBy> <{successor}>")
    if entry.superseded_at is not None:
        said.append(f"<{JIDO}supersededAt> {moment(entry.superseded_at)}")
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
    return graph, "".join(line + END for line in said)


@lru_cache(maxsize=4096)
def _kind(
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
        f"<{JIDO}inNamespace> {literal(namespace)}",
        f"<{JIDO}assertedBy> <{agent_iri(agent_id)}>",
    ]
    if session_id is not None:
        said.append(f"<{JIDO}assertedIn> <{session_iri(session_id)}>")
    if project_id is not None:
        said.append(f"<{JIDO}appliesToProject> <{project_iri(project_id)}>")
    if source is not None:
        said.append(_SOURCES[source])
    return "".join(_SUBJECT + line + END for line in said)


def _of_type(entry: Entry) -> list[str]:
    said = []
    for facet in FACETS.get(entry.type or ROOT, ()):
        value = facet.value(entry.metadata)
        if value is not None:
            told = literal(value) if facet.choices is None else f"<{value}>"
            said.append(f"<{JIDO}{facet.property}> {told}")
    if entry.type == ROOT:
        said.append(f'<{JIDO}memoryType> "{ROOT}"')
    if entry.type == "task":
        said += [f"<{JIDO}assignedTo> <{agent_iri(agent)}>" for agent in assigned(entry.metadata)]
    return said


def _tags(tags: tuple[str, ...]) -> list[str]:
    said = [f"<{JIDO}tag> {literal(tag)}" for tag in tags]
    if list(tags) != sorted(tags):
        said.append(f"<{JIDO}tagOrder> {literal(_json(tags).decode())}")
    return said


def _place(message: MessageRef) -> list[str]:
    said = [
        f"<{JIDO}messageThread> {literal(message.thread)}",
        f'<{JIDO}messageSeq> "{message.seq}"^^<{XSD}integer>',
    ]
    if message.role is not None:
        said.append(f"<{JIDO}messageRole> {literal(message.role)}")
    if message.speaker is not None:
        said.append(f"<{JIDO}messageSpeaker> {literal(message.speaker)}")
    return said


def _links(links: Sequence[Link]) -> list[str]:
    said = [f"<{property_of(link.relation)}> <{memory_iri(link.target)}>" for link in links]
    times = [[link.relation, link.target, link.created_at] for link in links]
    return [*said, f"<{JIDO}linkTimes> {literal(_json(times).decode())}"]


def _use(access: Access) -> list[str]:
    said = [f'<{JIDO}accessCount> "{access.count}"^^<{XSD}integer>']
    return said if access.last is None else [*said, f"<{JIDO}lastAccessed> {moment(access.last)}"]


def _derived(evidence: tuple[Evidence, ...], said: list[str]) -> str:
    """The nodes of what a memory is derived from; what the memory says of them is added to the rest."""
    order: list[str] = []
    nodes: list[str] = []
    names: dict[str, None] = {}
    for item in evidence:
        name = evidence_name(item.ref, item.quote)
        names[name] = None
        order.append(f"{item.kind}:{name}")
        subject = f"<{EVIDENCE}{name}> "
        nodes.append(
            f'{subject}{_EVIDENCE}{END}{subject}<{JIDO}evidenceKind> "{item.kind}"{END}'
            f"{subject}<{JIDO}evidenceReference> {literal(item.ref)}{END}"
        )
        if item.quote is not None:
            nodes.append(f"{subject}<{JIDO}evidenceQuote> {literal(item.quote)}{END}")
        if item.kind == "entry":
            nodes.append(f"{subject}<{JIDO}refersTo> <{memory_iri(item.ref)}>{END}")
    said += [f"<{JIDO}derivedFrom> <{EVIDENCE}{name}>" for name in names]
    said.append(f'<{JIDO}evidenceOrder> "{" ".join(order)}"')
    return "".join(nodes)


def literal(text: str) -> str:
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


def integer(value: int) -> str:
    """A number as a literal of type xsd:integer."""
    return f'"{value}"^^<{XSD}integer>'


def moment(at: int) -> str:
    """Milliseconds since 1970 as a literal of type xsd:dateTime."""
    minute, millis = divmod(at, 60_000)
    return f'"{_minute(minute)}:{millis // 1000:02d}.{millis % 1000:03d}Z"^^<{XSD}dateTime>'


@lru_cache(maxsize=4096)
def _minute(number: int) -> str:
    day, rest = divmod(number, 1440)
    return f"{date.fromordinal(719_163 + day).isoformat()}T{rest // 60:02d}:{rest % 60:02d}"
