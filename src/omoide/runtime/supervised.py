"""How is a session that somebody else holds: alive, busy, the one that is asked for?"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from anyio import Lock

from omoide import clock, ids
from omoide.core.scope import DEFAULT_NAMESPACE
from omoide.core.value import check_instance
from omoide.errors import Invalid
from omoide.sessions.session import Session
from omoide.turns.context import check_context
from omoide.turns.routing import enabled, namespace_of
from omoide.turns.spec import AgentSpec

Key = tuple[str, str]
"""A namespace, and an id in it."""


def is_busy(session: Session) -> bool:
    """Whether a turn or a promotion is going on in it."""
    return session._kept._running


def is_closed(session: Session) -> bool:
    """Whether somebody has closed it."""
    return session._closed


def is_alive(session: Session) -> bool:
    """Whether it can be used; while a turn runs, it is not the time to ask what else died."""
    return not session._closed and (is_busy(session) or cause_of_death(session) is None)


def cause_of_death(session: Session) -> str | None:
    """What ended its background work, which should go on for as long as the session is open."""
    ticking = session._ticking
    if session._closed or ticking is None or not ticking.done():
        return None
    error = None if ticking.cancelled() else ticking.exception()
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return "cancellation" if error is None else type(error).__name__


class Place:
    """Where one session lives; the lock is held while it is opened or closed."""

    __slots__ = ("closing", "holders", "lock", "session", "used_at")

    def __init__(self) -> None:
        self.session: Session | None = None
        self.lock = Lock()
        self.used_at = clock.now()
        self.holders = 0
        self.closing: asyncio.Task[Exception | None] | None = None

    @property
    def last_used(self) -> int:
        """When somebody asked for it, or it did something."""
        session = self.session
        return self.used_at if session is None else max(self.used_at, session.record.updated_at)

    @property
    def live(self) -> Session | None:
        """The session, if it can be used."""
        session = self.session
        return session if session is not None and self.closing is None and is_alive(session) else None

    @property
    def free(self) -> bool:
        """Whether nobody would miss it."""
        return self.session is not None and self.holders == 0 and not is_busy(self.session)


def made_with(session: Session) -> dict[str, Any]:
    """The options that a session was opened with."""
    own = {"project_id": session._project_id, "lease_ms": session._lease_ms}
    return {**session._options, **session._learns, **own}


def key_of(id: str, spec: AgentSpec | None, options: Mapping[str, Any]) -> Key:
    """Where a session lies: in the namespace that is given, or else in that of the agent's memory."""
    if spec is not None:
        check_instance(spec, "spec", kind=AgentSpec)
    namespace = options.get("namespace")
    if namespace is None:
        policy = None if spec is None else spec.memory
        namespace = DEFAULT_NAMESPACE if policy is None else namespace_of(policy, _context(options))
    return ids.check(namespace, "namespace"), ids.check(id, "session_id")


def check_same(session: Session, spec: AgentSpec | None, options: Mapping[str, Any]) -> None:
    """Raise where somebody asks for the session of another agent, project or tenant."""
    if spec is not None and spec.id != session.spec.id:
        raise Invalid("spec", f"is of agent {spec.id!r}, the session of {session.spec.id!r}", "pass its own")
    project, own = options.get("project_id"), session.record.project_id
    if project is not None and project != own:
        raise Invalid("project_id", f"is {project!r}, the session's is {own!r}", "leave it out")
    policy = enabled(session.spec)
    if policy is None or (spec is None and "context" not in options):
        return
    if namespace_of(policy, _context(options)) != session._memory_namespace:
        raise Invalid("context", "names another namespace", "open a session for each of them")


def _context(options: Mapping[str, Any]) -> Mapping[str, Any]:
    context: Mapping[str, Any] = options.get("context", {})
    check_context(context)
    return context
