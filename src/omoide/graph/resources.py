"""Descriptions of what memories refer to: sessions, agents, projects, modules and the like.

A session and an agent that the store knows are described by their documents: status, phase, times and
participants of a session, roles and capabilities that the identity of an agent declares. What an imported
file says of such resources is kept as documents of the kind `resource`, and comes out again. A description is
a set of statements, each a property and an object in N-Triples.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from omoide.core.entry import DEFAULT_NAMESPACE, Scope
from omoide.graph import vocabulary
from omoide.graph.serializer import LINE_END, STATED_BY, datetime_literal
from omoide.graph.vocabulary import (
    AGENT,
    JIDO,
    MEMORY,
    OWL,
    PROJECT,
    SESSION,
    TYPE,
    TYPES,
    agent_iri,
    session_iri,
)
from omoide.longterm.lineage import SESSION_KIND
from omoide.stores.records import Document

RESOURCE_KIND = "resource"
"""Kind of the documents with descriptions from imported files."""
_CHECKPOINT_KIND = "checkpoint"
_NOTES_KIND = "notes"
SOURCE_KINDS = frozenset({RESOURCE_KIND, SESSION_KIND, _CHECKPOINT_KIND})
"""Kinds of documents that describe resources."""

MAX_RESOURCES = 1_000
"""Resources that are described beside the memories of one page."""
MAX_NOTICES = 100

_CLASSES = (
    "WorkSession Agent PrimaryAgent SubAgent Project Repository Module Domain Justification CodeConcept"
    " SourceFile ElixirModule AshResource DSL Command Event Projection"
)
RESOURCE_CLASSES = frozenset(JIDO + name for name in _CLASSES.split())
"""Classes of the resources that an import keeps."""
_DEFAULT_ROLE = f"<{JIDO}hasRole> <{JIDO}MemoryWriter>"
_DEFAULT_CAPABILITY = f"<{JIDO}hasCapability> <{JIDO}CanWriteMemory>"
_DEFAULTS = {
    AGENT: {f"<{TYPE}> <{JIDO}Agent>", _DEFAULT_ROLE, _DEFAULT_CAPABILITY},
    SESSION: {f"<{TYPE}> <{JIDO}WorkSession>"},
    PROJECT: {f"<{TYPE}> <{JIDO}Project>"},
}
"""What every export states of a resource, by the prefix of its IRI."""
_OWN_NODES = (vocabulary.EVIDENCE, vocabulary.JUSTIFICATION, *vocabulary.ABOUT_PREFIXES.values())
_NODE_PROPERTIES = frozenset(
    {TYPE, vocabulary.RDFS + "label", STATED_BY}
    | {JIDO + name for name in ("evidenceKind", "evidenceReference", "evidenceQuote", "refersTo")}
    | {JIDO + name for name in ("confirms", "contradicts", "filePath")}
)
_object = re.compile(r"<([^<>]*)> \.\n").findall

_owner_of_memory = re.compile(rf"<{re.escape(JIDO)}asserted(?:In|By)> <([^<>]*)> \.\n").findall


class Description(NamedTuple):
    """The statements about a resource."""

    own: tuple[str, ...] = ()
    """What the store knows of a session or an agent; only for graphs with its memories."""
    imported: tuple[str, ...] = ()
    """What a file said of it."""


Describe = Callable[[str, Mapping[str, str]], Mapping[str, Description]]
"""Returns the descriptions, by IRI, of what the triples of a namespace refer to."""


class Resource(msgspec.Struct, frozen=True, kw_only=True):
    """A resource of an imported file that is kept beside the memories."""

    iri: str
    namespace: str = DEFAULT_NAMESPACE
    statements: tuple[str, ...] = ()

    def to_document(self, owners: Mapping[str | None, Scope]) -> Document:
        """Return the document that keeps it; one about a session is erased with its memories."""
        session = _id_in(self.iri, SESSION)
        owner = None if session is None else owners.get(session)
        return Document(
            kind=RESOURCE_KIND,
            id=_document_id(self.iri),
            namespace=self.namespace,
            user_id=None if owner is None else owner.user_id,
            agent_id=_id_in(self.iri, AGENT) if owner is None else owner.agent_id,
            session_id=None if owner is None else session,
            body={"iri": self.iri, "statements": list(self.statements)},
        )


class ImportSurvey:
    """What a file has beside memories: resources to keep, and what is passed over."""

    def __init__(self) -> None:
        self._statements: dict[tuple[str, str], dict[str, None]] = {}
        self._classes: Counter[str] = Counter()
        self._notices: dict[str, None] = {}

    def pass_over(self, *notices: str) -> None:
        """Add sentences about statements that are passed over."""
        self._notices.update(dict.fromkeys(notices))

    def add(self, namespace: str, subject: Any, node: Mapping[str, Sequence[Any]]) -> None:
        """Add a node that is no memory."""
        iri = str(subject)[1:-1] if str(subject).startswith("<") else ""
        classes = {getattr(term, "value", "") for term in node.get(TYPE, ())}
        if iri.startswith(_OWN_NODES) or iri == f"{JIDO}DeletedMarker":
            for name in {*node} - _NODE_PROPERTIES:  # the rest is read with the memories that point to it
                self.pass_over(f"{subject} {name.removeprefix(JIDO)}: no field holds it")
            return
        if not iri or not (classes & RESOURCE_CLASSES or _has_resource_iri(iri)):
            name = min(classes, default="no class")
            self._classes[name.removeprefix(JIDO)] += 1
            return
        statements = self._statements.setdefault((namespace, iri), {})
        for name, objects in node.items():
            for term in objects:
                if str(term).startswith("_:"):
                    self.pass_over(
                        f"{subject} {name.removeprefix(JIDO)}: a node without a name cannot be kept"
                    )
                else:
                    statements[f"<{name}> {term}"] = None

    def resources(self) -> list[Resource]:
        """Return the resources of which more is said than every export says."""
        return [
            Resource(iri=iri, namespace=namespace, statements=tuple(sorted(statements)))
            for (namespace, iri), statements in self._statements.items()
            if not {*statements} <= _default_statements(iri)
        ]

    def notices(self) -> tuple[str, ...]:
        """Return what was passed over, in sentences."""
        found = [
            *self._notices,
            *(f"{count} of class {name}: no memory" for name, count in sorted(self._classes.items())),
        ]
        more = len(found) - MAX_NOTICES
        return (*found[:MAX_NOTICES], f"and {more} more") if more > 0 else tuple(found)


def _has_resource_iri(iri: str) -> bool:
    return iri.startswith((AGENT, SESSION, PROJECT))


def _default_statements(iri: str) -> set[str]:
    return next((stated for prefix, stated in _DEFAULTS.items() if iri.startswith(prefix)), set())


def _id_in(iri: str, prefix: str) -> str | None:
    return vocabulary.id_of(iri, prefix) if iri.startswith(prefix) else None


def _document_id(iri: str) -> str:
    return sha256(iri.encode()).hexdigest()[:32]


def save_resources(store: Any, resources: Iterable[Resource], owners: Mapping[str | None, Scope]) -> None:
    """Save the documents of resources in a store that need not be awaited; a later file replaces them."""
    for resource in resources:
        document = resource.to_document(owners)
        known = store.load(document.kind, document.id, Scope(namespace=document.namespace))
        if known is None or known.body != document.body:
            store.save(document, expected_rev=0 if known is None else known.rev)


# Reading


class ResourceReader:
    """Reads the descriptions of a namespace from the documents of a store."""

    def __init__(self, store: Any, namespace: str) -> None:
        self._store = store  # synchronous
        self._scope = Scope(namespace=namespace)
        self._kinds = SOURCE_KINDS & {*store.kinds(namespace)}
        self._sessions: dict[str, Mapping[str, Any] | None] = {}

    def describe(self, triples: Mapping[str, str]) -> dict[str, Description]:
        """Return what is known of the resources that triples refer to, and of what imported ones refer to."""
        found: dict[str, Description] = {}
        if not self._kinds or not triples:
            return found
        owners = {iri for text in triples.values() for iri in _owner_of_memory(text)}
        seen = {iri for text in triples.values() for iri in _object(text)}
        pending = [*sorted(seen)]
        while pending and len(found) < MAX_RESOURCES:
            iri = pending.pop()
            if iri.startswith((MEMORY, OWL)) or iri in TYPES:
                continue
            description = Description(self._own(iri) if iri in owners else (), self._imported(iri))
            if description != Description():
                found[iri] = description
                more = {one for text in description.imported for one in _object(f"{text}{LINE_END}")} - seen
                pending += sorted(more)
                seen |= more
        return found

    def _own(self, iri: str) -> tuple[str, ...]:
        session, agent = _id_in(iri, SESSION), _id_in(iri, AGENT)
        if session is not None:
            return tuple(dict.fromkeys(self._session_statements(session)))
        return () if agent is None else tuple(dict.fromkeys(self._agent_statements(agent)))

    def _imported(self, iri: str) -> tuple[str, ...]:
        if RESOURCE_KIND not in self._kinds:
            return ()
        document = self._store.load(RESOURCE_KIND, _document_id(iri), self._scope)
        body = None if document is None else document.body
        stated = body.get("statements") if isinstance(body, Mapping) else None
        # Documents can be written by other programs: what is no statement must not become one of others.
        return tuple(filter(vocabulary.is_statement, stated)) if isinstance(stated, Sequence) else ()

    def _session(self, id: str) -> Mapping[str, Any] | None:
        if id not in self._sessions and SESSION_KIND in self._kinds:
            document = self._store.load(SESSION_KIND, id, self._scope)
            body = None if document is None else document.body
            self._sessions[id] = body if isinstance(body, Mapping) else None
        return self._sessions.get(id)

    def _session_statements(self, id: str) -> Iterator[str]:
        record = self._session(id)
        if record is None:
            return
        metadata = record.get("metadata") or {}
        agent = agent_iri(str(record["agent_id"]))
        notes = self._store.load(_NOTES_KIND, id, self._scope)
        closed = bool(notes is not None and isinstance(notes.body, Mapping) and notes.body.get("closed"))
        status = _individual(metadata.get("status"), vocabulary.SESSION_STATUSES)
        status = status or _session_status(str(record["status"]), closed=closed)
        yield f"<{TYPE}> <{JIDO}WorkSession>"
        yield f"<{JIDO}hasStatus> <{status}>"
        yield f"<{JIDO}hasPrimaryAgent> <{agent}>"
        yield f"<{JIDO}hasParticipatingAgent> <{agent}>"
        yield f"<{JIDO}startedAt> {datetime_literal(int(record['created_at']))}"
        if status in (f"{JIDO}Closed", f"{JIDO}Abandoned"):
            yield f"<{JIDO}endedAt> {datetime_literal(int(record['updated_at']))}"
        phase = _individual(metadata.get("phase"), vocabulary.SESSION_PHASES)
        if phase is not None:
            yield f"<{JIDO}hasPhase> <{phase}>"
        for key, name in (("continues", "continuesSession"), ("previous", "hasPreviousSession")):
            if isinstance(metadata.get(key), str) and metadata[key]:
                yield f"<{JIDO}{name}> <{session_iri(metadata[key])}>"
        for other in _texts(metadata.get("participants")):
            yield f"<{JIDO}hasParticipatingAgent> <{agent_iri(other)}>"

    def _agent_statements(self, id: str) -> Iterator[str]:
        for identity in self._identities(id):
            profile, capabilities = identity.get("profile") or {}, identity.get("capabilities") or {}
            tags = _texts(capabilities.get("tags"))
            for word in (*_texts(profile.get("role")), *_texts(profile.get("roles")), *tags):
                if (role := _individual(word, vocabulary.AGENT_ROLES)) is not None:
                    yield f"<{JIDO}hasRole> <{role}>"
            for word in (
                *tags,
                *(_ACTION_CAPABILITIES.get(name, "") for name in _texts(capabilities.get("actions"))),
            ):
                if (capability := _individual(word, vocabulary.CAPABILITIES)) is not None:
                    yield f"<{JIDO}hasCapability> <{capability}>"

    def _identities(self, id: str) -> Iterator[Mapping[str, Any]]:
        """Yield the identities of an agent: of its checkpoints, and of the agents of known sessions."""
        scope = self._scope.replace(agent_id=id)
        if _CHECKPOINT_KIND in self._kinds:
            for header in self._store.documents(_CHECKPOINT_KIND, scope, limit=10):
                if isinstance(header.body, str):
                    yield from _identity_in(msgspec.json.decode(header.body))
        for record in self._sessions.values():
            if record is not None and record.get("agent_id") == id:
                yield from _identity_in(record.get("checkpoint"))


_ACTION_CAPABILITIES = {"remember": "CanWriteMemory", "forget": "CanWriteMemory", "recall": "CanQueryMemory"}


def _identity_in(checkpoint: Any) -> Iterator[Mapping[str, Any]]:
    state = checkpoint.get("state") if isinstance(checkpoint, Mapping) else None
    identity = state.get("__identity__") if isinstance(state, Mapping) else None
    while isinstance(identity, Mapping) and "capabilities" not in identity and len(identity) == 1:
        identity = next(iter(identity.values()))  # a tagged value
    if isinstance(identity, Mapping):
        yield identity


def _texts(value: Any) -> tuple[str, ...]:
    items = value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    return tuple(item for item in items if isinstance(item, str) and item)


def _individual(word: Any, choices: Mapping[str, str]) -> str | None:
    return choices.get(vocabulary.normalize_word(word)) if isinstance(word, str) else None


def _session_status(status: str, *, closed: bool) -> str:
    if status == "hibernated":
        return f"{JIDO}Paused"
    return f"{JIDO}Closed" if closed and status in ("new", "finished") else f"{JIDO}Active"


# Writing


def with_descriptions(
    triples: Mapping[str, str], described: Mapping[str, Description]
) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the triples by graph with descriptions of what they refer to, and the subjects of these."""
    result, subjects = dict(triples), list[tuple[str, str]]()
    for graph, text in triples.items() if described else ():
        owners, seen, lines = {*_owner_of_memory(text)}, set[str](), []
        pending = [iri for iri in dict.fromkeys(_object(text)) if iri in described]
        while pending:
            iri = pending.pop()
            statements = _merge(described[iri], with_own=iri in owners)
            if iri in seen or not statements:
                continue
            seen.add(iri)
            subjects.append((graph, iri))
            stated = "".join(f"<{iri}> {statement}{LINE_END}" for statement in statements)
            lines.append(stated)
            pending += [one for one in _object(stated) if one in described]
            text = _without_defaults(text, iri, statements)
        result[graph] = "".join([text, *lines])
    return result, subjects


def _merge(description: Description, *, with_own: bool) -> dict[str, None]:
    """Return the statements of a description; what the store knows itself goes before what a file said."""
    own = description.own if with_own else ()
    known = {_property_in(statement) for statement in own} - _MANY_VALUED
    if f"<{JIDO}hasStatus>" in known:
        known.add(f"<{JIDO}endedAt>")  # a session that goes on has none
    kept = (statement for statement in description.imported if _property_in(statement) not in known)
    return dict.fromkeys((*own, *kept))


_MANY_VALUED = frozenset({f"<{TYPE}>", f"<{JIDO}hasParticipatingAgent>"})


def _property_in(statement: str) -> str:
    return statement.partition(" ")[0]


def _without_defaults(text: str, iri: str, statements: Iterable[str]) -> str:
    """Return triples without the role and the capability assumed of an agent, if others are known."""
    names = {*map(_property_in, statements)}
    for default in (_DEFAULT_ROLE, _DEFAULT_CAPABILITY):
        if _property_in(default) in names:
            text = text.replace(f"<{iri}> {default}{LINE_END}", "")
    return text
