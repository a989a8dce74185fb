"""Under which name does a thing stand in the graph?

A memory, session, agent or project has the IRI of its kind followed by its id, percent-encoded, so that any
id is safe and comes back whole. Evidence is named by a digest of what it refers to. Each owner, that is each
namespace with its agent, session and project, has a named graph of its own: any scope is a set of graphs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from urllib.parse import quote, unquote

from omoide import ids
from omoide.core.scope import Scope

JIDO = "https://jido.ai/ontology#"
MEMORY = f"{JIDO}memory_"
SESSION = f"{JIDO}session_"
AGENT = f"{JIDO}agent_"
PROJECT = f"{JIDO}project_"
EVIDENCE = f"{JIDO}evidence_"
RELATION = "urn:omoide:relation:"
WIDE = "urn:omoide:wide:"
GRAPH = "urn:omoide:graph:"
ONTOLOGY_GRAPH = "urn:omoide:ontology"
META_GRAPH = "urn:omoide:meta"

_plain = re.compile(r"[A-Za-z0-9_.~-]*[A-Za-z0-9_~-]").fullmatch


def encoded(text: str) -> str:
    """Text as it stands inside an IRI: all but letters, digits and `_.~-` percent-encoded, and a last dot."""
    if _plain(text):
        return text
    safe = quote(text, safe="")
    return f"{safe[:-1]}%2E" if safe.endswith(".") else safe  # some readers stumble over it


def memory_iri(id: str) -> str:
    """The IRI of a memory."""
    return MEMORY + encoded(id)


def session_iri(id: str) -> str:
    """The IRI of a session."""
    return SESSION + encoded(id)


def agent_iri(id: str) -> str:
    """The IRI of an agent."""
    return AGENT + encoded(id)


def project_iri(id: str) -> str:
    """The IRI of a project."""
    return PROJECT + encoded(id)


def evidence_iri(ref: str, quote: str | None = None) -> str:
    """The IRI of what a memory refers to; a passage quoted from it is a thing of its own."""
    return EVIDENCE + evidence_name(ref, quote)


@lru_cache(maxsize=1024)
def evidence_name(ref: str, quote: str | None = None) -> str:
    """The part of that IRI that follows the prefix."""
    return _digest(ref) if quote is None else f"{_digest(ref)}_{_digest(quote)}"


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def relation_iri(relation: str) -> str:
    """The IRI of a relation that the ontology does not know."""
    return RELATION + encoded(relation)


def id_of(iri: str, prefix: str) -> str:
    """The id in an IRI: what follows the prefix, else the IRI itself, or its digest where that is no id."""
    try:
        name = unquote(iri.removeprefix(prefix), errors="strict") if iri.startswith(prefix) else iri
    except UnicodeDecodeError:
        name = ""
    if not name or len(name.encode()) > ids.MAX_BYTES or ids.has_controls(name):
        return f"iri_{sha256(iri.encode()).hexdigest()[:32]}"
    return name


@lru_cache(maxsize=4096)
def graph_iri(
    namespace: str, agent_id: str, session_id: str | None = None, project_id: str | None = None
) -> str:
    """The named graph that holds what exactly this owner remembers."""
    owner = (namespace, agent_id, session_id or "", project_id or "")
    return GRAPH + ":".join(map(encoded, owner))


def namespace_prefix(namespace: str) -> str:
    """How the named graphs of a namespace begin."""
    return f"{GRAPH}{encoded(namespace)}:"


def owner_of(graph: str) -> tuple[str, str, str | None, str | None] | None:
    """Namespace, agent, session and project of a named graph; None when it is not one of ours."""
    parts = graph.removeprefix(GRAPH).split(":")
    if not graph.startswith(GRAPH) or len(parts) != 4:
        return None
    namespace, agent, session, project = map(unquote, parts)
    return (namespace, agent, session or None, project or None) if namespace and agent else None


def wide_prefix(namespace: str) -> str:
    """How the wide graphs of a namespace begin."""
    return f"{WIDE}{encoded(namespace)}:"


def wide_iri(scope: Scope) -> str:
    """The graph that holds all that a scope of several owners holds."""
    parts = (scope.agent_id, scope.session_id, scope.project_id)
    return wide_prefix(scope.namespace) + ":".join("" if part is None else encoded(part) for part in parts)


def wide_scope(graph: str) -> Scope:
    """The scope that a wide graph holds."""
    namespace, agent, session, project = map(unquote, graph.removeprefix(WIDE).split(":"))
    return Scope(
        namespace=namespace, agent_id=agent or None, session_id=session or None, project_id=project or None
    )
