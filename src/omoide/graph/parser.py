"""Triples -> Entry.

What was written here comes back exactly. Triples of others are understood as far as they use the ontology's
words: what is not a memory and what no field holds is passed over, and what is missing gets a default.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from omoide.errors import Invalid, InvalidRDF, MissingExtra

try:
    from pyoxigraph import DefaultGraph, Literal, Quad, Triple
except ImportError as error:
    raise MissingExtra("the graph", "graph") from error
try:
    from pyoxigraph import BlankNode, Literal, NamedNode, Quad, Triple
except ImportError as error:
    raise MissingExtra("the graph", "graph") from error

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.entry import (
    DEFAULT_NAMESPACE,
    DELETED,
    EVIDENCE_KINDS,
    ROOT_TYPE,
    Entry,
    Evidence,
    MessageRef,
)
from omoide.core.frozen import EMPTY_MAP
from omoide.graph import vocabulary
from omoide.graph.vocabulary import (
    DELETED_MARKER,
    JIDO,
    LEVEL_VALUES,
    RELATION_NAMES,
    SOURCE_NAMES,
    TYPE,
    UNKNOWN_CONFIDENCE,
    most_specific,
)
from omoide.stores.records import Access, Link

# described: What do triples say about one thing?


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

NodeProperties = dict[str, list[Any]]
"""Property -> objects."""


def group_by_graph(quads: Iterable[Quad | Triple]) -> dict[str | None, dict[Any, NodeProperties]]:
    """What is said in each graph about each subject."""
    graphs: dict[str | None, dict[Any, NodeProperties]] = {}
    for quad in quads:
        if isinstance(quad.object, Triple):
            continue  # statements about statements: nothing of a memory is told so
        name = None if isinstance(quad, Triple) else quad.graph_name
        graph = None if name is None or isinstance(name, DefaultGraph) else name.value
        objects = (
            graphs.setdefault(graph, {}).setdefault(quad.subject, {}).setdefault(quad.predicate.value, [])
        )
        if quad.object not in objects:
            objects.append(quad.object)
    return graphs


class NodeReader:
    """A subject and what is said about it; errors name it and the property."""

    def __init__(self, subject: Any, node: NodeProperties) -> None:
        self.subject = subject
        self.node = node

    def error(self, field: str, problem: str, remedy: str) -> InvalidRDF:
        """The error that names this memory and one of its fields."""
        return InvalidRDF(f"{self.subject} {field}".strip(), problem, remedy)

    def single(self, name: str) -> Any:
        """The only value of a property of the ontology, or None."""
        found = self.node.get(JIDO + name, ())
        if len(found) > 1:
            raise self.error(name, f"has {len(found)} values", "keep one of them")
        return found[0] if found else None

    def text(self, name: str) -> str | None:
        """The text of one."""
        term = self.single(name)
        if term is None:
            return None
        if not isinstance(term, Literal):
            raise self.error(name, "is no text", "write a literal")
        return term.value

    def required_text(self, name: str) -> str:
        """The text of one that must not be missing."""
        text = self.text(name)
        if text is None:
            raise self.error(name, "is missing", "say what is remembered")
        return text

    def linked_id(self, name: str, prefix: str) -> str | None:
        """The id in the IRI of one."""
        term = self.single(name)
        return None if term is None else vocabulary.id_of(term.value, prefix)

    def number(self, name: str, convert: Callable[[str], Any] = int) -> Any:
        """The number of one."""
        text = self.text(name)
        try:
            return None if text is None else convert(text)
        except ValueError as error:
            raise self.error(name, f"is {_short(text)}", "write a number") from error

    def timestamp_ms(self, name: str) -> int | None:
        """The moment of one, in milliseconds since 1970."""
        text = self.text(name)
        if text is None:
            return None
        try:
            at = datetime.fromisoformat(text.strip())
            return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
        except (ValueError, OverflowError) as error:
            raise self.error(name, f"is {_short(text)}", "write an xsd:dateTime") from error

    def json(self, name: str, type_: Any) -> Any:
        """The data of one that holds JSON."""
        text = self.text(name)
        try:
            return None if text is None else msgspec.json.decode(text, type=type_)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self.error(name, f"is not readable ({error})", "leave it as it was written") from error


def _short(text: str | None) -> str:
    return repr(text) if text is None or len(text) <= 60 else repr(f"{text[:60]}…")


# reading: Which memories do triples tell of?


_DERIVED_FROM = f"{JIDO}derivedFrom"


class MemoryBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Memories, the links that begin at them, and how often they were used."""

    entries: tuple[Entry, ...] = ()
    links: tuple[Link, ...] = ()
    access: dict[str, Access] = {}


class ImportDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """What stands in for what triples of others do not say."""

    agent_id: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    created_at: int | None = None


NO_DEFAULTS = ImportDefaults()


def from_quads(
    quads: Iterable[Quad | Triple],
    defaults: ImportDefaults = NO_DEFAULTS,
    is_memory: Callable[[str], bool] | None = None,
) -> MemoryBatch:
    """The memories that quads of one namespace tell of; `is_memory` knows of IRIs described elsewhere."""
    found = parse_by_namespace(quads, defaults, is_memory).values()
    return MemoryBatch(
        entries=tuple(entry for part in found for entry in part.entries),
        links=tuple(link for part in found for link in part.links),
        access={id: used for part in found for id, used in part.access.items()},
    )


def parse_by_namespace(
    quads: Iterable[Quad | Triple],
    defaults: ImportDefaults = NO_DEFAULTS,
    is_memory: Callable[[str], bool] | None = None,
) -> dict[str, MemoryBatch]:
    """The same for quads of several namespaces, in which one id may name several memories."""
    entries: dict[str, dict[str, Entry]] = {}
    links: dict[str, list[Link]] = {}
    access: dict[str, dict[str, Access]] = {}
    for graph, nodes in group_by_graph(quads).items():
        for subject, node in nodes.items():
            if not is_memory_node(subject, node):
                continue
            reader = _MemoryReader(graph, subject, node, nodes, defaults, is_memory)
            entry = reader.entry()
            known = entries.setdefault(entry.namespace, {}).setdefault(entry.id, entry)
            if known is not entry:
                if known != entry:
                    raise reader.error("", "is described twice, and differently", "keep one description")
                continue
            links.setdefault(entry.namespace, []).extend(reader.links(entry))
            used = reader.access()
            if used is not None:
                access.setdefault(entry.namespace, {})[entry.id] = used
    return {
        name: MemoryBatch(
            entries=tuple(found.values()), links=tuple(links[name]), access=access.get(name, {})
        )
        for name, found in entries.items()
    }


def is_memory_node(subject: Any, node: NodeProperties) -> bool:
    """Whether a described node is a memory: by its class, or by its name when it has content."""
    classes = {term.value for term in node.get(TYPE, ()) if isinstance(term, NamedNode)}
    if most_specific(classes) is not None:
        return True
    named = isinstance(subject, NamedNode) and subject.value.startswith(vocabulary.MEMORY)
    return named and f"{JIDO}summary" in node


class _MemoryReader(NodeReader):
    """One described memory."""

    def __init__(
        self,
        graph: str | None,
        subject: Any,
        node: NodeProperties,
        nodes: Mapping[Any, NodeProperties],
        defaults: ImportDefaults,
        is_memory: Callable[[str], bool] | None,
    ) -> None:
        super().__init__(subject, node)
        self.graph = graph
        self.nodes = nodes
        self.defaults = defaults
        self.is_memory = is_memory
        self.link_times = self._parse_link_times()

    def entry(self) -> Entry:
        """The memory itself."""
        fields = {**self._owner(), **self._optional_fields()}
        evidence = self._evidence()
        try:
            return Entry(
                id=self._id(),
                type=self._type(),
                content=self.required_text("summary"),
                confidence=self._confidence(),
                source=self._source(),
                metadata=self._metadata(),
                tags=self._tags(),
                message=self._message(),
                evidence=evidence,
                created_at=self._created_at(),
                superseded_by=self._successor(),
                **fields,
            )
        except InvalidRDF:
            raise
        except Invalid as error:
            raise self.error(error.field, error.problem, error.remedy) from error

    def links(self, entry: Entry) -> list[Link]:
        """The links that begin at it."""
        found = []
        for name, objects in self.node.items():
            relation = RELATION_NAMES.get(name)
            if relation is None and name.startswith(vocabulary.RELATION):
                relation = unquote(name.removeprefix(vocabulary.RELATION))
            if relation is None:
                continue
            for term in objects:
                if not self._is_memory(term):
                    continue
                target = vocabulary.id_of(term.value, vocabulary.MEMORY)
                at = self.link_times.get((relation, target))
                if at is None and relation == "derived_from":
                    continue
                found.append(self._link(entry, relation, target, at))
        return sorted(found, key=lambda link: (link.created_at, link.relation, link.target))

    def access(self) -> Access | None:
        """How often it was used; None when nothing is said."""
        count, last = self.number("accessCount"), self.timestamp_ms("lastAccessed")
        if count is None and last is None:
            return None
        try:
            return Access(count=0 if count is None else count, last=last)
        except Invalid as error:
            raise self.error("accessCount", error.problem, error.remedy) from error

    def _link(self, entry: Entry, relation: str, target: str, at: int | None) -> Link:
        try:
            return Link(
                source=entry.id,
                relation=relation,
                target=target,
                created_at=entry.created_at if at is None else at,
            )
        except Invalid as error:
            raise self.error(relation, error.problem, error.remedy) from error

    def _is_memory(self, term: Any) -> bool:
        if not isinstance(term, NamedNode) or term.value.startswith(vocabulary.EVIDENCE):
            return False
        if term.value.startswith(vocabulary.MEMORY) or (
            self.is_memory is not None and self.is_memory(term.value)
        ):
            return True
        return term in self.nodes and is_memory_node(term, self.nodes[term])

    def _id(self) -> str:
        if isinstance(self.subject, NamedNode):
            return vocabulary.id_of(self.subject.value, vocabulary.MEMORY)
        if not isinstance(self.subject, BlankNode):
            raise self.error("", "is no name for a memory", "name it by an IRI")
        said = sorted(
            f"{name} {'' if isinstance(term, BlankNode) else term}"
            for name, terms in self.node.items()
            for term in terms
        )
        return f"blank_{sha256('|'.join(said).encode()).hexdigest()[:32]}"

    def _owner(self) -> dict[str, str | None]:
        """Whose it is: as it says itself, as the name of its graph says, or as was given for such cases."""
        named = vocabulary.owner_of(self.graph) if self.graph is not None else None
        given = self.defaults
        assumed = (given.namespace, given.agent_id, given.session_id, given.project_id)
        namespace, agent, session, project = assumed if named is None else named
        if self.text("inNamespace") is not None:
            session = project = None
        agent = self.linked_id("assertedBy", vocabulary.AGENT) or agent
        if agent is None:
            raise self.error("assertedBy", "is missing", "pass the agent whose memory this becomes")
        return {
            "namespace": self.text("inNamespace") or namespace,
            "agent_id": agent,
            "session_id": self.linked_id("assertedIn", vocabulary.SESSION) or session,
            "project_id": self.linked_id("appliesToProject", vocabulary.PROJECT) or project,
        }

    def _optional_fields(self) -> dict[str, Any]:
        return {
            "rationale": self.text("rationale"),
            "importance": self.number("importance", float),
            "occurred_at": self.timestamp_ms("occurredAt"),
            "expires_at": self.timestamp_ms("expiresAt"),
            "superseded_at": self.timestamp_ms("supersededAt"),
            "superseded_reason": self.text("supersessionReason"),
            "stale": self.text("stale") in ("true", "1"),
            "rev": self.number("revision") or 0,
        }

    def _type(self) -> str | None:
        known = most_specific({term.value for term in self.node.get(TYPE, ()) if isinstance(term, NamedNode)})
        return None if known == ROOT_TYPE and self.text("memoryType") != ROOT_TYPE else known

    def _confidence(self) -> float:
        exact = self.number("confidence", float)
        if exact is not None:
            return float(exact)
        level = self.single("hasConfidence")
        return UNKNOWN_CONFIDENCE if level is None else LEVEL_VALUES.get(level.value, UNKNOWN_CONFIDENCE)

    def _source(self) -> str | None:
        source = self.single("hasSourceType")
        return None if source is None else SOURCE_NAMES.get(source.value, "agent")

    def _created_at(self) -> int:
        said = self.timestamp_ms("hasTimestamp")
        return clock.resolve(self.defaults.created_at) if said is None else said

    def _successor(self) -> str | None:
        term = self.single("supersededBy")
        if term is None:
            return None
        if not isinstance(term, NamedNode):
            raise self.error("supersededBy", "names no memory", "point to the IRI of one")
        return DELETED if term.value == DELETED_MARKER else vocabulary.id_of(term.value, vocabulary.MEMORY)

    def _metadata(self) -> Any:
        said = self.json("metadata", dict[str, Any])
        return EMPTY_MAP if said is None else codec.dec_hook(type(EMPTY_MAP), said)

    def _tags(self) -> tuple[str, ...]:
        tags = sorted(term.value for term in self.node.get(f"{JIDO}tag", ()))
        order = {tag: at for at, tag in enumerate(self.json("tagOrder", list[str]) or ())}
        return tuple(sorted(tags, key=lambda tag: order.get(tag, len(order))))

    def _message(self) -> MessageRef | None:
        thread, seq = self.text("messageThread"), self.number("messageSeq")
        if thread is None or seq is None:
            return None
        role, speaker = self.text("messageRole"), self.text("messageSpeaker")
        return MessageRef(thread=thread, seq=seq, role=role, speaker=speaker)

    def _evidence(self) -> tuple[Evidence, ...]:
        nodes = {}
        for term in self.node.get(_DERIVED_FROM, ()):
            linked = ("derived_from", vocabulary.id_of(term.value, vocabulary.MEMORY)) in self.link_times
            if not (linked and term.value.startswith(vocabulary.MEMORY)):
                nodes[term.value] = term
        found = []
        for word in (self.text("evidenceOrder") or "").split():
            kind, _, name = word.partition(":")
            if vocabulary.EVIDENCE + name in nodes and kind in EVIDENCE_KINDS:
                found.append((vocabulary.EVIDENCE + name, kind))
        placed = {name for name, _ in found}
        found += [(name, "") for name in sorted(nodes) if name not in placed]
        told = (self._evidence_item(nodes[name], kind) for name, kind in found)
        return tuple(item for item in told if item is not None)

    def _evidence_item(self, term: Any, kind: str) -> Evidence | None:
        """What one node says; of one that is not described only its name is known."""
        if isinstance(term, Literal):
            return Evidence(kind="document", ref=term.value)
        if not kind and self._is_memory(term):
            return Evidence(kind="entry", ref=vocabulary.id_of(term.value, vocabulary.MEMORY))
        said = self.nodes.get(term, {})
        refs, quotes, kinds = (
            [item.value for item in said.get(JIDO + name, ())]
            for name in ("evidenceReference", "evidenceQuote", "evidenceKind")
        )
        if len(refs) > 1 or len(quotes) > 1:
            raise self.error("derivedFrom", f"leads to {term}, which is two things", "describe each apart")
        if not refs and isinstance(term, BlankNode):
            return None
        known = next((name for name in sorted(kinds) if name in EVIDENCE_KINDS), "document")
        ref = refs[0] if refs else term.value
        return Evidence(kind=kind or known, ref=ref, quote=quotes[0] if quotes else None)

    def _parse_link_times(self) -> dict[tuple[str, str], int]:
        said = self.json("linkTimes", list[tuple[str, str, int]]) or ()
        return {(relation, target): at for relation, target, at in said}
