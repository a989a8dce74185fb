"""Names of a scope's fields in requests, and responses that are not values of the library already."""

from __future__ import annotations

import msgspec

from omoide.core.codec import Frozen
from omoide.core.entry import Entry, Hit, Scope
from omoide.core.thread import ThreadEntry
from omoide.longterm.conflicts import Disagreement
from omoide.longterm.relations import Related
from omoide.promotion.plan import PromotionCandidate, PromotionRun
from omoide.service.agents import AgentInfo, AgentMatch
from omoide.sessions.storage import SessionRecord
from omoide.stores.records import Change, Owner, Stats, Version


def scope_fields(scope: Scope) -> dict[str, str | None]:
    """Return a scope by the names that REST and MCP use for its fields."""
    return {
        "namespace": scope.namespace,
        "user": scope.user_id,
        "agent": scope.agent_id,
        "session": scope.session_id,
        "project": scope.project_id,
    }


class RememberResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Outcome of a write."""

    outcome: str
    entry: Entry
    superseded: str | None = None
    """Id of the entry that it superseded."""
    notices: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """Id of the stored entry."""
        return self.entry.id

    @property
    def rev(self) -> int:
        """Revision of the stored entry."""
        return self.entry.rev


class RecallResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Entries that match a query, best first, with reasons; `weak` if nothing matches well."""

    hits: tuple[Hit, ...]
    withheld: tuple[Hit, ...] = ()
    """Those below the `min_relevance` of the request."""
    weak: bool = False
    notices: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Entries, best first."""
        return tuple(hit.entry for hit in self.hits)


class HistoryResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Versions of an entry, oldest first."""

    versions: tuple[Version, ...]


class PinsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Pinned memories, the first pinned first."""

    entries: tuple[Entry, ...]


class ChangesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Changes in commit order."""

    changes: tuple[Change, ...]


class RelatedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Entries related to an entry, nearest first."""

    related: tuple[Related, ...]


class ConflictsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of entries that contradict each other."""

    conflicts: tuple[Disagreement, ...]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Public fields of a session's header."""

    session_id: str
    agent_id: str
    user_id: str | None
    project_id: str | None
    status: str
    turns: int
    created_at: int
    updated_at: int

    @classmethod
    def from_header(cls, header: SessionRecord) -> SessionInfo:
        """Return the public fields of a session's header."""
        return cls(**{name: getattr(header, name) for name in cls.__struct_fields__})


class SessionsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Sessions of a namespace, last used first."""

    sessions: tuple[SessionInfo, ...]


class OwnersResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Users, agents and projects that have memories, with their numbers."""

    owners: tuple[Owner, ...]


class NamespacesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Names of namespaces, sorted."""

    namespaces: tuple[str, ...]


class TranscriptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Session with the entries of its thread."""

    session: SessionInfo
    entries: tuple[ThreadEntry, ...]


class PromotionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Promotion of a session's short-term memory: planned with `dry_run`, else applied."""

    dry_run: bool
    threshold: float
    candidates: tuple[PromotionCandidate, ...]
    run: PromotionRun | None = None
    notices: tuple[str, ...] = ()


class AgentsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Hibernated agents of a namespace."""

    agents: tuple[AgentInfo, ...]


class SpaceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One space of an agent's memory."""

    name: str
    data: Frozen
    rev: int


class SpacesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Spaces of an agent's memory, ordered by name."""

    spaces: tuple[SpaceInfo, ...]


class WhoCanResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Agents that can do an action, best first."""

    choices: tuple[AgentMatch, ...]


class HealthResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Health of the service."""

    status: str


class StatusResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Statistics of a scope, and the problems that an integrity check found."""

    version: str
    store: str
    stats: Stats
    problems: tuple[str, ...] = ()
