"""Filter, RecallRequest/Result, WriteRequest/Result."""

from __future__ import annotations

from typing import Any, ClassVar

import msgspec

from omoide import clock
from omoide.core import entry as memory_types
from omoide.core.codec import MapField, TextsField
from omoide.core.entry import DEFAULT_NAMESPACE, Entry, Scope
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import (
    Count,
    Id,
    Millis,
    Name,
    Record,
    check_choice,
    check_count,
    check_instance,
    check_tuple,
    check_unit,
    set_field,
)
from omoide.errors import Invalid, NotFound

# recalling: What is asked of a store, and what did it answer?


RECALL_SCOPES = ("agent", "session", "project", "namespace")


class Filter(Record, frozen=True, kw_only=True):
    """Which entries of a scope are meant at all."""

    LABEL: ClassVar[str] = "memory filter"

    types: TextsField = ()
    """Entries of these types and of those that refine them; none named means all."""
    tags: TextsField = ()
    """Entries that carry every one of these."""
    tags_any: TextsField = ()
    """Entries that carry at least one of these."""
    min_confidence: float = 0.0
    since: Millis | None = None
    """The earliest time; an entry's time is when it occurred, or else when it was created."""
    until: Millis | None = None
    include_superseded: bool = False
    include_stale: bool = False
    """Whether entries pass that rest on something which no longer holds."""
    include_expired: bool = False

    def _check(self) -> None:
        for name in self.types:
            try:
                memory_types.check_memory_type(name)
            except NotFound as error:
                raise Invalid("types", f"holds {name!r}", error.remedy) from error
        if self.min_confidence:
            set_field(self, "min_confidence", check_unit(self.min_confidence, "min_confidence"))
        if self.since is not None and self.until is not None and self.since > self.until:
            raise Invalid("since", "is after until", "swap them")


class RecallRequest(Record, frozen=True, kw_only=True):
    """What a store is asked to remember."""

    LABEL: ClassVar[str] = "memory recall request"

    agent_id: Id
    session_id: Id | None = None
    scope: str = "agent"
    """`agent`: all of the agent's entries; `session`, `project`: those of the one named; `namespace`: all."""
    query: Name
    limit: int = 5
    metadata: MapField = EMPTY_MAP
    namespace: Id = DEFAULT_NAMESPACE
    project_id: Id | None = None
    filter: Filter = Filter()
    max_tokens: int | None = None
    """How much room the entries may take where they will be read, in tokens."""
    at: Millis = msgspec.field(default_factory=clock.now)
    """The moment of asking: what "last week" counts from, and what has expired."""

    def _check(self) -> None:
        check_choice(self.scope, "scope", RECALL_SCOPES)
        check_positive(self.limit, "limit")
        if self.max_tokens is not None:
            check_positive(self.max_tokens, "max_tokens")
        if self.scope == "project" and self.project_id is None:
            raise Invalid("project_id", "is missing for scope 'project'", "name the project")

    @classmethod
    def for_scope(cls, scope: Scope, query: str, **fields: Any) -> RecallRequest:
        """A request that sees exactly what the scope holds."""
        if scope.agent_id is not None:
            reach = "agent" if scope.session_id is None else "session"
        else:
            reach = "namespace" if scope.project_id is None else "project"
        if scope.agent_id is None and scope.session_id is not None:
            raise Invalid("scope.agent_id", "is missing beside session_id", "name the agent of the session")
        return cls.new(
            agent_id=scope.agent_id or "*",
            session_id=scope.session_id,
            project_id=scope.project_id,
            namespace=scope.namespace,
            scope=reach,
            query=query,
            **fields,
        )

    def effective_scope(self) -> Scope | None:
        """The scope it may see; None where it asks for a session and names none, which nothing matches."""
        if self.scope in ("project", "namespace"):
            project = self.project_id if self.scope == "project" else None
            return Scope(namespace=self.namespace, project_id=project)
        session = self.session_id if self.scope == "session" else None
        if self.scope == "session" and session is None:
            return None
        return Scope(
            namespace=self.namespace, agent_id=self.agent_id, session_id=session, project_id=self.project_id
        )


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """One part of a score: what gave it, how much, and the rank it had there."""

    part: str
    value: float
    rank: int | None = None
    note: str | None = None

    def __str__(self) -> str:
        rank = "" if self.rank is None else f" (#{self.rank})"
        return f"{self.part} {self.value:+.2f}{rank}{'' if self.note is None else f': {self.note}'}"


class Why(msgspec.Struct, frozen=True, kw_only=True):
    """Why an entry was recalled: the parts of its score, largest first, and what it rests on."""

    reasons: tuple[Reason, ...] = ()
    evidence: tuple[str, ...] = ()

    def __str__(self) -> str:
        parts = ", ".join(map(str, self.reasons)) or "nothing matched: among the newest"
        return parts + ("" if not self.evidence else f"; from {', '.join(self.evidence)}")


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """An entry that was recalled, with its score and why."""

    entry: Entry
    score: float = 0.0
    rank: int = 1
    why: Why = Why()


class RecallResult(Record, frozen=True, kw_only=True):
    """What a store remembered, best first."""

    LABEL: ClassVar[str] = "memory recall result"

    request: RecallRequest
    entries: tuple[Entry, ...] = ()
    metadata: MapField = EMPTY_MAP
    hits: tuple[Hit, ...] = ()
    weak: bool = False
    """Whether nothing good enough was found: what is here is the best of what does not really match."""
    notices: TextsField = ()
    """What the caller should know: a part of the search that could not run, results that were cut."""

    def _check(self) -> None:
        check_instance(self.request, "request", kind=RecallRequest)
        set_field(self, "entries", check_tuple(self.entries, "entries", Entry))
        set_field(self, "hits", check_tuple(self.hits, "hits", Hit))
        if self.hits and not self.entries:
            set_field(self, "entries", tuple(hit.entry for hit in self.hits))
        elif self.entries and not self.hits:
            ranked = enumerate(self.entries, 1)
            set_field(self, "hits", tuple(Hit(entry=entry, rank=rank) for rank, entry in ranked))


def check_positive(value: object, field: str) -> int:
    """An int from 1 upwards."""
    if type(value) is int and value < 1:
        raise Invalid(field, f"is {value}", "pass 1 or more")
    return check_count(value, field)


# writing: What is a store asked to keep, and what became of it?


WRITE_OUTCOMES = ("stored", "unchanged", "duplicate_of", "superseded")


class WriteRequest(Record, frozen=True, kw_only=True):
    """An entry to keep: a new one, or the next revision of the one with its id."""

    LABEL: ClassVar[str] = "memory write request"

    entry: Entry
    metadata: MapField = EMPTY_MAP
    expected_rev: Count | None = None
    """The revision the stored entry must have; 0 for an entry that must not exist yet."""
    idempotency_key: Id | None = None
    """A repeated request with the same key gets the first receipt; kept for seven days."""
    dedupe: bool = False
    """Whether a live entry of the same scope, type and content makes this one a duplicate."""
    supersedes: Id | None = None
    """The entry that this one replaces, in the same moment."""

    def _check(self) -> None:
        check_instance(self.entry, "entry", kind=Entry)
        if self.supersedes == self.entry.id:
            raise Invalid("supersedes", "names the entry itself", "give the new entry another id")


class WriteResult(Record, frozen=True, kw_only=True):
    """A receipt: the entry as it is stored."""

    LABEL: ClassVar[str] = "memory write result"

    request: WriteRequest
    entry: Entry
    status: str = "ok"
    metadata: MapField = EMPTY_MAP
    outcome: str = "stored"
    """`stored`, `unchanged`, `duplicate_of` (which the entry here is), or `superseded` (an older one was)."""
    notices: TextsField = ()

    def _check(self) -> None:
        check_instance(self.request, "request", kind=WriteRequest)
        check_instance(self.entry, "entry", kind=Entry)
        check_choice(self.status, "status", ("ok",))
        check_choice(self.outcome, "outcome", WRITE_OUTCOMES)

    @property
    def id(self) -> str:
        """The id of the entry that is stored."""
        return self.entry.id

    @property
    def rev(self) -> int:
        """Its revision."""
        return self.entry.rev
