"""What is known about a session, apart from what was said in it?

The header is one document of the store and the transcript another. What is said goes to the transcript as it
is said; the header says how far that is settled.
"""

from __future__ import annotations

from typing import ClassVar

import msgspec

from omoide import clock
from omoide.core import codec
from omoide.core.checkpoint import Checkpoint
from omoide.core.codec import MapField
from omoide.core.contract import Record, check_choice, check_tuple
from omoide.core.frozen import EMPTY_MAP, thaw
from omoide.core.recalling import RecallResult
from omoide.core.scope import DEFAULT_NAMESPACE
from omoide.core.value import Count, Id, Millis, Value, force
from omoide.errors import RestoreFailed
from omoide.turns.context import Asked
from omoide.turns.controls import Review
from omoide.turns.spec import AgentSpec

STATUSES = ("new", "running", "hibernated", "waiting", "finished", "error")
VERSION = 1


class InFlight(Value, frozen=True, kw_only=True):
    """A turn that is not over: what it was asked, what was recalled for it, what was decided about it."""

    asked: Asked
    recalled: RecallResult | None = None
    remembered: bool = False
    """Whether the store was asked: a turn that is taken up again does not ask twice."""
    decisions: MapField = EMPTY_MAP


class Capture(Value, frozen=True, kw_only=True):
    """A turn that is over and whose words are still to be remembered."""

    asked: Asked
    input: str
    content: str
    first: Count
    """Where in the thread the user's words are."""
    last: Count
    """Where the answer is."""


class Header(Record, frozen=True, kw_only=True):
    """A session as data; no processes, no secrets."""

    LABEL: ClassVar[str] = "session"

    schema_version: int = VERSION
    session_id: Id
    agent_id: Id
    namespace: Id = DEFAULT_NAMESPACE
    """Where the session's own documents lie."""
    project_id: Id | None = None
    spec: AgentSpec
    status: str = "new"
    thread_id: Id
    checkpoint: Checkpoint
    """The agent after the last turn that is over, without its thread."""
    turns: Count = 0
    """How many turns are over."""
    last_request_id: Id | None = None
    result: str | None = None
    """The last answer."""
    error: MapField | None = None
    pending_reviews: tuple[Review, ...] = ()
    turn: InFlight | None = None
    captures: tuple[Capture, ...] = ()
    """Turns that are over and not yet remembered, oldest first."""
    metadata: MapField = EMPTY_MAP
    created_at: Millis = msgspec.field(default_factory=clock.now)
    updated_at: Millis = msgspec.field(default_factory=clock.now)

    def _check(self) -> None:
        check_choice(self.status, "status", STATUSES)
        force(self, "pending_reviews", check_tuple(self.pending_reviews, "pending_reviews", Review))
        force(self, "captures", check_tuple(self.captures, "captures", Capture))

    @property
    def snapshots(self) -> tuple[InFlight, ...]:
        """The turn at rest, where there is one."""
        return () if self.turn is None else (self.turn,)


def written(header: Header) -> object:
    """A header as it stands in a document."""
    return codec.to_builtins(header)


def read(body: object, session_id: str) -> Header:
    """The header that a document holds; one of another version is refused, and so is a damaged one."""
    plain = thaw(body)
    version = plain.get("schema_version") if isinstance(plain, dict) else None
    if version != VERSION:
        raise RestoreFailed(
            f"session {session_id!r}", f"it has version {version}, this reads {VERSION}; use another Omoide"
        )
    try:
        return codec.from_builtins(plain, Header)
    except ValueError as error:
        raise RestoreFailed(f"session {session_id!r}", error) from error
