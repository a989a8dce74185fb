"""How is a memory told as triples?

As lines of N-Quads in the named graph of its owner, put together as text because that is several times
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
from omoide.core.entry import DELETED, Entry, Evidence, MessageRef
from omoide.core.memory_types import ROOT
from omoide.graph.iris import (
    EVIDENCE,
    MEMORY,
    agent_iri,
    encoded,
    evidence_name,
    graph_iri,
    memory_iri,
    project_iri,
    session_iri,
)
from omoide.graph.vocabulary import (
    CLASSES,
    DELETED_MARKER,
    FACETS,
    JIDO,
    LEVELS,
    SOURCE_INDIVIDUALS,
    TYPE,
    XSD,
    assigned,
    property_of,
)
from omoide.stores.records import Access, Link

DAY = 86_400_000

_json = msgspec.json.Encoder(order="deterministic").encode
_IS_A = f"<{TYPE}> "
_TYPES: dict[str | None, str] = {name: f"{_IS_A}<{iri}>" for name, iri in CLASSES.items()}
_TYPES[None] = _TYPES[ROOT]
_SOURCES = {name: f"<{JIDO}hasSourceType> <{iri}>" for name, iri in SOURCE_INDIVIDUALS.items()}
_HIGH, _MEDIUM, _LOW = (f"<{JIDO}hasConfidence> <{JIDO}{name}>" for name, _, _ in LEVELS)
_EVIDENCE = f"{_IS_A}<{JIDO}Evidence>"
_OF_TYPE = frozenset({*FACETS, ROOT, "task"})
"""The types of which more is said than of others."""
_SURE, _FAIR = LEVELS[0][1], LEVELS[1][1]


def to_nquads(entry: Entry, links: Iterable[Link] = (), access: Access | None = None) -> str:
    """One memory as N-Quads, with the links that begin at it and how often it was used."""
    own = [link for link in links if link.source == entry.id]
    return neighbours(entry) + _told(entry, own, access)


def all_to_nquads(
    entries: Iterable[Entry], links: Iterable[Link] = (), access: Mapping[str, Access] | None = None
) -> str:
    """Many memories as N-Quads; what they have in common is said once."""
    begun: dict[str, list[Link]] = {}
    for link in links:
        begun.setdefault(link.source, []).append(link)
    used = {} if access is None else access
    told: list[str] = []
    owners: set[str] = set()
    for entry in entries:
        around = neighbours(entry)
        if around not in owners:
            owners.add(around)
            told.append(around)
        told.append(_told(entry, begun.get(entry.id, ()), used.get(entry.id)))
    return "".join(told)


def neighbours(entry: Entry) -> str:
    """What the graph says about the agent, the session and the project of a memory."""
    return _owner(entry.namespace, entry.agent_id, entry.session_id, entry.project_id)[2]


def _told(entry: Entry, links: Sequence[Link], access: Access | None) -> str:
    graph, owner, _ = _owner(entry.namespace, entry.agent_id, entry.session_id, entry.project_id)
    subject = f"<{MEMORY}{encoded(entry.id)}> "
    more = graph + subject  # where a line ends and the next one begins
    sure = entry.confidence
    level = _HIGH if sure >= _SURE else _MEDIUM if sure >= _FAIR else _LOW
    said = _optional(entry)
    if entry.type in _OF_TYPE:
        said += _of_type(entry)
    if links:
        said += _links(links)
    if access is not None:
        said += _use(access)
    nodes = ""
    if entry.evidence:
        nodes = _derived(entry.evidence, graph, said)
    return (
        f"{subject}{_TYPES[entry.type]}{more}<{JIDO}summary> {literal(entry.content)}{more}{level}"
        f'{more}<{JIDO}confidence> "{sure!r}"^^<{XSD}double>'
        f"{more}<{JIDO}hasTimestamp> {moment(entry.created_at)}"
        f'{more}<{JIDO}revision> "{entry.rev}"^^<{XSD}integer>'
        f"{more}{more.join([*owner, *said])}{graph}{nodes}"
    )


def _optional(entry: Entry) -> list[str]:
    """What most memories do not have."""
    said = []
    if entry.source is not None:
        said.append(_SOURCES[entry.source])
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
def _owner(
    namespace: str, agent_id: str, session_id: str | None, project_id: str | None
) -> tuple[str, tuple[str, ...], str]:
    """How a line of this owner ends, what each of its memories says of it, and what is said of it once."""
    graph = f" <{graph_iri(namespace, agent_id, session_id, project_id)}> .\n"
    agent = agent_iri(agent_id)
    said = [f"<{JIDO}inNamespace> {literal(namespace)}", f"<{JIDO}assertedBy> <{agent}>"]
    around = [
        f"<{agent}> {_IS_A}<{JIDO}Agent>",
        f"<{agent}> <{JIDO}hasRole> <{JIDO}MemoryWriter>",
        f"<{agent}> <{JIDO}hasCapability> <{JIDO}CanWriteMemory>",
    ]
    if session_id is not None:
        said.append(f"<{JIDO}assertedIn> <{session_iri(session_id)}>")
        around.append(f"<{session_iri(session_id)}> {_IS_A}<{JIDO}WorkSession>")
    if project_id is not None:
        said.append(f"<{JIDO}appliesToProject> <{project_iri(project_id)}>")
        around.append(f"<{project_iri(project_id)}> {_IS_A}<{JIDO}Project>")
    return graph, tuple(said), "".join(line + graph for line in around)


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


def _derived(evidence: tuple[Evidence, ...], graph: str, said: list[str]) -> str:
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
            f'{subject}{_EVIDENCE}{graph}{subject}<{JIDO}evidenceKind> "{item.kind}"{graph}'
            f"{subject}<{JIDO}evidenceReference> {literal(item.ref)}{graph}"
        )
        if item.quote is not None:
            nodes.append(f"{subject}<{JIDO}evidenceQuote> {literal(item.quote)}{graph}")
        if item.kind == "entry":
            nodes.append(f"{subject}<{JIDO}refersTo> <{memory_iri(item.ref)}>{graph}")
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
    day, rest = divmod(at, DAY)
    minutes, rest = divmod(rest, 60_000)
    seconds, millis = divmod(rest, 1000)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:{seconds:02d}.{millis:03d}"
    return f'"{_date(day)}T{clock}Z"^^<{XSD}dateTime>'


@lru_cache(maxsize=512)
def _date(day: int) -> str:
    return date.fromordinal(719_163 + day).isoformat()
