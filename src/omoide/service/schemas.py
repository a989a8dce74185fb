"""What does a service answer with, beside the library's own values?"""

from __future__ import annotations

import msgspec

from omoide.core.codec import Frozen
from omoide.core.entry import Entry
from omoide.core.requests import Hit
from omoide.core.thread import ThreadEntry
from omoide.longterm.conflicts import Disagreement
from omoide.longterm.relations import Related
from omoide.promotion.plan import Candidate, Run
from omoide.service.agents import Card, Choice
from omoide.sessions.storage import Header
from omoide.stores.records import Change, Stats, Version


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
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


class Recalled(msgspec.Struct, frozen=True, kw_only=True):
    """The memories that answer best, each with why it is there; `weak` where nothing matches well."""

    hits: tuple[Hit, ...]
    weak: bool = False
    notices: tuple[str, ...] = ()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """The memories, best first."""
        return tuple(hit.entry for hit in self.hits)


class Versions(msgspec.Struct, frozen=True, kw_only=True):
    """How a memory came to be what it is, oldest first."""

    versions: tuple[Version, ...]


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """What changed, in the order of the commits."""

    changes: tuple[Change, ...]


class Relatives(msgspec.Struct, frozen=True, kw_only=True):
    """What a memory is related to, nearest first."""

    related: tuple[Related, ...]


class Conflicts(msgspec.Struct, frozen=True, kw_only=True):
    """Memories that cannot be true together."""

    conflicts: tuple[Disagreement, ...]


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A session, as far as others may see it."""

    session_id: str
    agent_id: str
    project_id: str | None
    status: str
    turns: int
    created_at: int
    updated_at: int

    @classmethod
    def of(cls, header: Header) -> Conversation:
        """What a session's record says."""
        return cls(**{name: getattr(header, name) for name in cls.__struct_fields__})


class Conversations(msgspec.Struct, frozen=True, kw_only=True):
    """The sessions of a namespace, the one that was used last first."""

    sessions: tuple[Conversation, ...]


class Transcript(msgspec.Struct, frozen=True, kw_only=True):
    """What was said in a session."""

    session: Conversation
    entries: tuple[ThreadEntry, ...]


class Promoted(msgspec.Struct, frozen=True, kw_only=True):
    """What of a session would become lasting memory, or has become it."""

    dry_run: bool
    threshold: float
    candidates: tuple[Candidate, ...]
    run: Run | None = None
    notices: tuple[str, ...] = ()


class Agents(msgspec.Struct, frozen=True, kw_only=True):
    """Who rests in a namespace."""

    agents: tuple[Card, ...]


class Partition(msgspec.Struct, frozen=True, kw_only=True):
    """One space of an agent's memory."""

    name: str
    data: Frozen
    rev: int


class Partitions(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent believes and wants: its spaces, by their names."""

    spaces: tuple[Partition, ...]


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """Who can do something, best first."""

    choices: tuple[Choice, ...]


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the service works."""

    status: str


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """Figures about what a scope holds, and what is wrong with the store, if anything is."""

    version: str
    store: str
    stats: Stats
    problems: tuple[str, ...] = ()
