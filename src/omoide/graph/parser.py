"""Parse RDF triples to entries.

What Omoide wrote comes back exactly. Of foreign memories everything is read that the ontology defines; other
properties are kept in the metadata if `ImportDefaults.keep_unknown` says so, and come out again. Missing
values get defaults, and what was passed over is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Any
from urllib.parse import unquote

from omoide.errors import Invalid, InvalidRDF, MissingExtra

try:
    from pyoxigraph import BlankNode, DefaultGraph, Literal, NamedNode, Quad, Triple
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
from omoide.core.frozen import EMPTY_MAP, freeze_map
from omoide.graph import vocabulary
from omoide.graph.resources import ImportSurvey
from omoide.graph.serializer import AS_EVIDENCE, STATED_BY
from omoide.graph.vocabulary import (
    ABOUT_PREFIXES,
    DELETED_MARKER,
    DETAILS,
    FOREIGN_KEY,
    JIDO,
    LEVEL_VALUES,
    OMOIDE,
    RELATION_NAMES,
    SOURCE_NAMES,
    TYPE,
    TYPES,
    UNKNOWN_CONFIDENCE,
    XSD,
    Facet,
    is_foreign_term,
    is_own_property,
    most_specific,
)
from omoide.stores.records import Access, Link

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)

NodeProperties = dict[str, list[Any]]
"""Objects by property."""


def group_by_graph(quads: Iterable[Quad | Triple]) -> dict[str | None, dict[Any, NodeProperties]]:
    """Return the properties of each subject in each graph."""
    graphs: dict[str | None, dict[Any, NodeProperties]] = {}
    for quad in quads:
        if isinstance(quad.object, Triple):
            continue  # memories are never described by statements about statements
        name = None if isinstance(quad, Triple) else quad.graph_name
        graph = None if name is None or isinstance(name, DefaultGraph) else name.value
        objects = (
            graphs.setdefault(graph, {}).setdefault(quad.subject, {}).setdefault(quad.predicate.value, [])
        )
        if quad.object not in objects:
            objects.append(quad.object)
    return graphs


class NodeReader:
    """Read typed values from the properties of a subject; errors name subject and property."""

    def __init__(self, subject: Any, node: NodeProperties) -> None:
        self.subject = subject
        self.node = node

    def error(self, field: str, problem: str, remedy: str) -> InvalidRDF:
        """Return the error for a property of this subject."""
        return InvalidRDF(f"{self.subject} {field}".strip(), problem, remedy)

    def single(self, name: str, prefix: str = JIDO) -> Any:
        """Return the only value of a property of the ontology, or None."""
        values = self.node.get(prefix + name, ())
        if len(values) > 1:
            raise self.error(name, f"has {len(values)} values", "keep one of them")
        return values[0] if values else None

    def text(self, name: str, prefix: str = JIDO) -> str | None:
        """Return a literal as text, or None."""
        term = self.single(name, prefix)
        if term is None:
            return None
        if not isinstance(term, Literal):
            raise self.error(name, "is no text", "write a literal")
        return term.value

    def required_text(self, name: str) -> str:
        """Return a literal as text; raise if it is missing."""
        text = self.text(name)
        if text is None:
            raise self.error(name, "is missing", "say what is remembered")
        return text

    def linked_id(self, name: str, prefix: str) -> str | None:
        """Return the id in the IRI of the object, or None."""
        term = self.single(name)
        return None if term is None else vocabulary.id_of(term.value, prefix)

    def number(self, name: str, convert: Callable[[str], Any] = int) -> Any:
        """Return a literal as a number, or None."""
        text = self.text(name)
        try:
            return None if text is None else convert(text)
        except ValueError as error:
            raise self.error(name, f"is {_short(text)}", "write a number") from error

    def timestamp_ms(self, name: str) -> int | None:
        """Return an `xsd:dateTime` in milliseconds since 1970, or None."""
        text = self.text(name)
        if text is None:
            return None
        try:
            at = datetime.fromisoformat(text.strip())
            return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
        except (ValueError, OverflowError) as error:
            raise self.error(name, f"is {_short(text)}", "write an xsd:dateTime") from error

    def json(self, name: str, type_: Any) -> Any:
        """Return the decoded value of a JSON literal, or None."""
        text = self.text(name)
        try:
            return None if text is None else msgspec.json.decode(text, type=type_)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise self.error(name, f"is not readable ({error})", "leave it as it was written") from error


def _short(text: str | None) -> str:
    return repr(text) if text is None or len(text) <= 60 else repr(f"{text[:60]}…")


_DERIVED_FROM = f"{JIDO}derivedFrom"


_APPLIES_TO_MODULE = f"{JIDO}appliesToModule"
_RELATION_PROPERTIES = vocabulary.RELATION_PROPERTIES


def _facet_word(facet: Facet, term: Any) -> str | None:
    """Return the text in the metadata for an object of a property; None if it would come out differently."""
    if isinstance(term, BlankNode) or facet.names_node() is isinstance(term, Literal):
        return None
    if isinstance(term, Literal):
        datatype = f"{XSD}dateTime" if facet.is_time else f"{XSD}string"
        if term.language is not None or term.datatype.value != datatype:
            return None
    return facet.word(term.value)


class MemoryBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Entries, the links that start at them, and their access counts."""

    entries: tuple[Entry, ...] = ()
    links: tuple[Link, ...] = ()
    access: dict[str, Access] = {}


class ImportDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """Values for what foreign triples do not state."""

    agent_id: str | None = None
    session_id: str | None = None
    project_id: str | None = None
    user_id: str | None = None
    namespace: str = DEFAULT_NAMESPACE
    created_at: int | None = None
    keep_unknown: bool = False
    """Keep properties that no field holds in the metadata; without it those of foreign memories are lost."""


NO_DEFAULTS = ImportDefaults()


def from_quads(
    quads: Iterable[Quad | Triple],
    defaults: ImportDefaults = NO_DEFAULTS,
    is_memory: Callable[[str], bool] | None = None,
    survey: ImportSurvey | None = None,
) -> MemoryBatch:
    """Return the memories that quads of one namespace describe.

    Args:
        quads: quads, or triples of the default graph.
        defaults: values for what foreign triples do not state.
        is_memory: tells whether an IRI that is described elsewhere is a memory.
        survey: collects the other resources, and what was passed over.

    Raises:
        InvalidRDF: a memory is described incompletely or inconsistently.
    """
    batches = parse_by_namespace(quads, defaults, is_memory, survey).values()
    return MemoryBatch(
        entries=tuple(entry for batch in batches for entry in batch.entries),
        links=tuple(link for batch in batches for link in batch.links),
        access={id: counts for batch in batches for id, counts in batch.access.items()},
    )


def parse_by_namespace(
    quads: Iterable[Quad | Triple],
    defaults: ImportDefaults = NO_DEFAULTS,
    is_memory: Callable[[str], bool] | None = None,
    survey: ImportSurvey | None = None,
) -> dict[str, MemoryBatch]:
    """Return the memories that quads describe, by namespace; an id may occur in several namespaces."""
    entries: dict[str, dict[str, Entry]] = {}
    links: dict[str, list[Link]] = {}
    access: dict[str, dict[str, Access]] = {}
    for graph, nodes in group_by_graph(quads).items():
        for subject, node in nodes.items():
            if not is_memory_node(subject, node):
                if survey is not None:
                    survey.add(_namespace_of(graph, defaults), subject, node)
                continue
            reader = _MemoryReader(graph, subject, node, nodes, defaults, is_memory)
            entry = reader.entry()
            first = entries.setdefault(entry.namespace, {}).setdefault(entry.id, entry)
            if first is not entry:
                if first != entry:
                    raise reader.error("", "is described twice, and differently", "keep one description")
                continue
            links.setdefault(entry.namespace, []).extend(reader.links(entry))
            if survey is not None:
                survey.pass_over(*reader.passed_over)
            counts = reader.access()
            if counts is not None:
                access.setdefault(entry.namespace, {})[entry.id] = counts
    return {
        name: MemoryBatch(
            entries=tuple(by_id.values()), links=tuple(links[name]), access=access.get(name, {})
        )
        for name, by_id in entries.items()
    }


def _namespace_of(graph: str | None, defaults: ImportDefaults) -> str:
    owner = None if graph is None else vocabulary.owner_of(graph)
    return defaults.namespace if owner is None else owner.namespace


def is_memory_node(subject: Any, node: NodeProperties) -> bool:
    """Return True if a node is a memory: by its class, or by its IRI if it has content."""
    classes = {term.value for term in node.get(TYPE, ()) if isinstance(term, NamedNode)}
    if most_specific(classes) is not None:
        return True
    has_memory_iri = isinstance(subject, NamedNode) and subject.value.startswith(vocabulary.MEMORY)
    return has_memory_iri and f"{JIDO}summary" in node


class _MemoryReader(NodeReader):
    """Read one memory."""

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
        self.is_own = f"{JIDO}revision" in node
        """True for a memory that Omoide wrote, whose metadata are complete."""
        self.passed_over: list[str] = []

    def entry(self) -> Entry:
        """Return the entry."""
        fields = {**self._owner(), **self._optional_fields()}
        evidence, memory_type = self._evidence(), self._type()
        try:
            return Entry(
                id=self._id(),
                type=memory_type,
                content=self.required_text("summary"),
                confidence=self._confidence(),
                source=self._source(),
                metadata=self._metadata(memory_type),
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
        """Return the links that start at the entry."""
        links = []
        for name, objects in [*self.node.items(), *self._said_as_evidence()]:
            relation = RELATION_NAMES.get(name)
            if relation is None and name.startswith(vocabulary.RELATION):
                relation = unquote(name.removeprefix(vocabulary.RELATION))
            if relation is None:
                continue
            for term in filter(self._is_memory, map(self._justifying_memory, objects)):
                target = vocabulary.id_of(term.value, vocabulary.MEMORY)
                at = self.link_times.get((relation, target))
                if at is None and relation == "derived_from":
                    continue
                links.append(self._link(entry, relation, target, at))
        return sorted(links, key=lambda link: (link.created_at, link.relation, link.target))

    def access(self) -> Access | None:
        """Return the access counts, or None if there are none."""
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

    def _said_as_evidence(self) -> list[tuple[str, list[Any]]]:
        """Return the properties of the nodes that stand for the memory where evidence is wanted."""
        nodes = (self.nodes.get(term, {}) for term in self.node.get(AS_EVIDENCE, ()))
        return [item for node in nodes for item in node.items()]

    def _justifying_memory(self, term: Any) -> Any:
        """Return the memory that states a justification, or the term itself."""
        return next(iter(self.nodes.get(term, {}).get(STATED_BY, ())), term)

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
        statements = sorted(
            f"{name} {'' if isinstance(term, BlankNode) else term}"
            for name, terms in self.node.items()
            for term in terms
        )
        return f"blank_{sha256('|'.join(statements).encode()).hexdigest()[:32]}"

    def _owner(self) -> dict[str, str | None]:
        """Return the owner: from the properties, else from the name of the graph, else from the defaults."""
        graph_owner = vocabulary.owner_of(self.graph) if self.graph is not None else None
        owner = self.defaults if graph_owner is None else graph_owner
        user, session, project = owner.user_id, owner.session_id, owner.project_id
        if self.text("inNamespace") is not None:
            user = session = project = None
        agent = self.linked_id("assertedBy", vocabulary.AGENT) or owner.agent_id
        if agent is None:
            raise self.error("assertedBy", "is missing", "pass the agent whose memory this becomes")
        return {
            "namespace": self.text("inNamespace") or owner.namespace,
            "user_id": self.text("ofUser", OMOIDE) or user,
            "agent_id": agent,
            "session_id": self.linked_id("assertedIn", vocabulary.SESSION) or session,
            "project_id": self.linked_id("appliesToProject", vocabulary.PROJECT) or project,
        }

    def _optional_fields(self) -> dict[str, Any]:
        return {
            "key": self.text("key", OMOIDE),
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
        memory_type = most_specific(
            {term.value for term in self.node.get(TYPE, ()) if isinstance(term, NamedNode)}
        )
        return None if memory_type == ROOT_TYPE and self.text("memoryType") != ROOT_TYPE else memory_type

    def _confidence(self) -> float:
        exact = self.number("confidence", float)
        if exact is not None:
            return float(exact)
        level = self.single("hasConfidence")
        if level is not None and level.value not in LEVEL_VALUES:
            self._pass_over("hasConfidence", level, f"read as {UNKNOWN_CONFIDENCE}")
        return UNKNOWN_CONFIDENCE if level is None else LEVEL_VALUES.get(level.value, UNKNOWN_CONFIDENCE)

    def _source(self) -> str | None:
        source = self.single("hasSourceType")
        if source is None or self.text("sourceAssumed", OMOIDE) in ("true", "1"):
            return None
        if source.value not in SOURCE_NAMES:
            self._pass_over("hasSourceType", source, "read as jido:AgentSource")
        return SOURCE_NAMES.get(source.value, "agent")

    def _created_at(self) -> int:
        timestamp = self.timestamp_ms("hasTimestamp")
        return clock.resolve(self.defaults.created_at) if timestamp is None else timestamp

    def _successor(self) -> str | None:
        term = self.single("supersededBy")
        if term is None:
            return None
        if not isinstance(term, NamedNode):
            raise self.error("supersededBy", "names no memory", "point to the IRI of one")
        return DELETED if term.value == DELETED_MARKER else vocabulary.id_of(term.value, vocabulary.MEMORY)

    def _metadata(self, memory_type: str | None) -> Any:
        """Return the metadata: as JSON, and from the properties that its keys determine."""
        stated = self.json("metadata", dict[str, Any])
        metadata = EMPTY_MAP if stated is None else codec.dec_hook(type(EMPTY_MAP), stated)
        found: dict[str, Any] = {}
        left: dict[str, list[Any]] = dict(self.node)
        for facet in DETAILS[memory_type or ROOT_TYPE]:
            name = JIDO + facet.property
            terms = left.pop(name, [])
            words = {term: _facet_word(facet, term) for term in terms}
            known = [word for word in words.values() if word is not None]
            if rest := [term for term, word in words.items() if word is None]:
                left[name] = rest
            # What Omoide wrote follows from the metadata, unless somebody edited it.
            values = {facet.values({facet.key: word})[0] for word in known}
            if known and not (self.is_own and values == {*facet.values(metadata)}):
                found[facet.key] = known[0] if len(known) == 1 else sorted(known)
        foreign = self._foreign_statements(left)
        if foreign and (self.is_own or self.defaults.keep_unknown):
            found[FOREIGN_KEY] = foreign
        elif foreign:
            for name, objects in foreign.items():
                self._pass_over(name, objects[0], "no field holds it")
        return freeze_map({**metadata, **found}) if found else metadata

    def _foreign_statements(self, properties: Mapping[str, list[Any]]) -> dict[str, list[str]]:
        """Return the statements that no field holds, as N-Triples; blank nodes have no name to keep."""
        foreign: dict[str, list[str]] = {}
        for name, objects in properties.items():
            if is_own_property(name) or name.startswith(vocabulary.RELATION):
                continue
            for term in objects:
                if name == TYPE and getattr(term, "value", None) in (*TYPES, f"{JIDO}Entity"):
                    continue
                if name == _APPLIES_TO_MODULE and self._module_tag(term) is not None:
                    continue
                if name in _RELATION_PROPERTIES and self._is_memory(self._justifying_memory(term)):
                    continue
                if isinstance(term, BlankNode) or not is_foreign_term(name, str(term)):
                    self._pass_over(name, term, "a node without a name cannot be kept")
                else:
                    foreign.setdefault(name, []).append(str(term))
        return {name: sorted(terms) for name, terms in foreign.items()}

    def _pass_over(self, name: str, term: Any, reason: str) -> None:
        short = name.removeprefix(JIDO)
        self.passed_over.append(f"{self.subject} {short} {_short(str(term))}: {reason}")

    def _module_tag(self, term: Any) -> str | None:
        """Return the tag for the module that a convention applies to, if its IRI follows from its name."""
        prefix = ABOUT_PREFIXES["module"]
        if not isinstance(term, NamedNode) or not term.value.startswith(prefix):
            return None
        tag = f"module:{vocabulary.id_of(term.value, prefix)}"
        return tag if vocabulary.about_iri(tag) == term.value else None

    def _tags(self) -> tuple[str, ...]:
        tags = {term.value for term in self.node.get(f"{JIDO}tag", ())}
        modules = map(self._module_tag, self.node.get(_APPLIES_TO_MODULE, ()))
        order = {tag: at for at, tag in enumerate(self.json("tagOrder", list[str]) or ())}
        known = sorted({*tags, *(tag for tag in modules if tag is not None)})
        return tuple(sorted(known, key=lambda tag: order.get(tag, len(order))))

    def _message(self) -> MessageRef | None:
        thread, seq = self.text("messageThread"), self.number("messageSeq")
        if thread is None or seq is None:
            return None
        role, speaker = self.text("messageRole"), self.text("messageSpeaker")
        return MessageRef(thread=thread, seq=seq, role=role, speaker=speaker)

    def _evidence(self) -> tuple[Evidence, ...]:
        nodes = {}
        for term in self.node.get(_DERIVED_FROM, ()):
            is_link = ("derived_from", vocabulary.id_of(term.value, vocabulary.MEMORY)) in self.link_times
            if not (is_link and term.value.startswith(vocabulary.MEMORY)):
                nodes[term.value] = term
        ordered = []
        for item_key in (self.text("evidenceOrder") or "").split():
            kind, _, name = item_key.partition(":")
            if vocabulary.EVIDENCE + name in nodes and kind in EVIDENCE_KINDS:
                ordered.append((vocabulary.EVIDENCE + name, kind))
        listed = {name for name, _ in ordered}
        ordered += [(name, "") for name in sorted(nodes) if name not in listed]
        items = (self._evidence_item(nodes[name], kind) for name, kind in ordered)
        return tuple(item for item in items if item is not None)

    def _evidence_item(self, term: Any, kind: str) -> Evidence | None:
        """Return the evidence that a node describes; of an undescribed node only the IRI is known."""
        if isinstance(term, Literal):
            return Evidence(kind="document", ref=term.value)
        if not kind and self._is_memory(term):
            return Evidence(kind="entry", ref=vocabulary.id_of(term.value, vocabulary.MEMORY))
        properties = self.nodes.get(term, {})
        refs, quotes, kinds = (
            [item.value for item in properties.get(JIDO + name, ())]
            for name in ("evidenceReference", "evidenceQuote", "evidenceKind")
        )
        if len(refs) > 1 or len(quotes) > 1:
            raise self.error("derivedFrom", f"leads to {term}, which is two things", "describe each apart")
        if not refs and isinstance(term, BlankNode):
            return None
        stated_kind = next((name for name in sorted(kinds) if name in EVIDENCE_KINDS), "document")
        ref = refs[0] if refs else term.value
        return Evidence(kind=kind or stated_kind, ref=ref, quote=quotes[0] if quotes else None)

    def _parse_link_times(self) -> dict[tuple[str, str], int]:
        times = self.json("linkTimes", list[tuple[str, str, int]]) or ()
        return {(relation, target): at for relation, target, at in times}
