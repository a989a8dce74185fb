"""What does a service answer with, beside the library's own values?"""

from __future__ import annotations

import msgspec

from omoide.core.codec import Frozen
from omoide.core.entry import Entry, Hit
from omoide.core.thread import ThreadEntry
from omoide.longterm.conflicts import Disagreement
from omoide.longterm.relations import Related
from omoide.promotion.plan import PromotionCandidate, PromotionRun
from omoide.service.agents import AgentInfo, AgentMatch
from omoide.sessions.storage import SessionRecord
from omoide.stores.records import Change, Stats, Version


class RememberResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a memory that was to be kept."""

    outcome: str
    entry: Entry
    notices: tuple[str, ...] = ()

    @property
    def id(self) -> str:
        """The id of the memory that is kept."""
        return self.entry.id

    @property
    def rev(self) -> int:
        """Its revision."""
        return self.entry.rev


class RecallResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The memories that answer best, each with why it is there; `weak` where nothing matches well."""

    hits: tuple[Hit, ...]
    weak: bool = False
    notices: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The memories, best first."""
        return tuple(hit.entry for hit in self.hits)


class HistoryResponse(msgspec.Struct, frozen=True, kw_only=True):
    """How a memory came to be what it is, oldest first."""

    versions: tuple[Version, ...]


class ChangesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What changed, in the order of the commits."""

    changes: tuple[Change, ...]


class RelatedResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory is related to, nearest first."""

    related: tuple[Related, ...]


class ConflictsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Memories that cannot be true together."""

    conflicts: tuple[Disagreement, ...]


class SessionInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as far as others may see it."""

    session_id: str
    agent_id: str
    project_id: str | None
    status: str
    turns: int
    created_at: int
    updated_at: int

    @classmethod
    def from_header(cls, header: SessionRecord) -> SessionInfo:
        """What a session's record says."""
        return cls(**{name: getattr(header, name) for name in cls.__struct_fields__})


class SessionsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of a namespace, the one that was used last first."""

    sessions: tuple[SessionInfo, ...]


class TranscriptResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in a session."""

    session: SessionInfo
    entries: tuple[ThreadEntry, ...]


class PromotionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What of a session would become lasting memory, or has become it."""

    dry_run: bool
    threshold: float
    candidates: tuple[PromotionCandidate, ...]
    run: PromotionRun | None = None
    notices: tuple[str, ...] = ()


class AgentsResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Who rests in a namespace."""

    agents: tuple[AgentInfo, ...]


class SpaceInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One space of an agent's memory."""

    name: str
    data: Frozen
    rev: int


class SpacesResponse(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent believes and wants: its spaces, by their names."""

    spaces: tuple[SpaceInfo, ...]


class WhoCanResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Who can do something, best first."""

    choices: tuple[AgentMatch, ...]


class HealthResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service works."""

    status: str


class StatusResponse(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about what a scope holds, and what is wrong with the store, if anything is."""

    version: str
    store: str
    stats: Stats
    problems: tuple[str, ...] = ()
