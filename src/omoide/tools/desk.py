"""What may a memory tool touch in this turn?

The store, the scope and the ids come from the turn. A program can set how far the tools reach; a model
cannot.
"""

from __future__ import annotations

from typing import Any

import msgspec

from omoide.core.contract import check_choice
from omoide.core.entry import Evidence
from omoide.core.scope import Scope
from omoide.core.thread import Thread
from omoide.core.value import check_instance
from omoide.errors import Invalid, MissingSession, MissingStore, NotCapable

REACHES = ("session", "project", "agent")
QUERY = "CanQueryMemory"
WRITE = "CanWriteMemory"
_ALIASES = {QUERY: "can_query_memory", WRITE: "can_write_memory"}


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """How a program sets the tools up."""

    reach: str | None = None
    """How far they see; None for as far as the agent's memory policy says."""
    strict: bool = False
    """Whether memories that are incomplete or contradict others are refused."""

    def __post_init__(self) -> None:
        if self.reach is not None:
            check_choice(self.reach, "reach", REACHES)
        check_instance(self.strict, "strict", kind=bool)


class Desk(msgspec.Struct, frozen=True, kw_only=True):
    """What a tool works with during one call."""

    store: Any
    seen: Scope
    """What it may read."""
    own: Scope
    """What it may change: the agent's own part of what it may read."""
    home: Scope
    """Where new memories go: they carry the session and the project of the turn."""
    key: str
    """What this call is called, today and when it is repeated after a crash."""
    evidence: tuple[Evidence, ...] = ()
    """Where the user asked for what is being done."""


def desk_of(ctx: Any, setting: Setting, tool: str, capability: str) -> Desk:
    """The desk for a call, if the agent may use the tool and the turn has a memory."""
    _check_capable(ctx, tool, capability)
    store, scope = getattr(ctx, "store", None), getattr(ctx, "scope", None)
    if store is None:
        raise MissingStore()
    if scope is None:
        raise Invalid("memory", f"of agent {ctx.agent.id!r} is off", "declare memory=True or a MemoryPolicy")
    agent_id = scope.agent_id or ctx.agent.id
    home = Scope(
        namespace=scope.namespace,
        agent_id=agent_id,
        session_id=getattr(ctx, "session_id", None) or scope.session_id,
        project_id=getattr(getattr(ctx, "asked", None), "project_id", None) or scope.project_id,
    )
    seen = _seen(setting.reach, getattr(ctx, "reach", None) or scope, home)
    return Desk(
        store=store,
        seen=seen,
        own=seen.replace(agent_id=agent_id),
        home=home,
        key=str(getattr(ctx, "idempotency_key", "")),
        evidence=_asked_at(ctx),
    )


def _seen(reach: str | None, scope: Scope, home: Scope) -> Scope:
    match reach:
        case "session":
            if home.session_id is None:
                raise MissingSession()
            return home.replace(project_id=None)
        case "project":
            if home.project_id is None:
                raise Invalid("project_id", "is missing for tools that reach the project", "pass project_id=")
            return Scope(namespace=home.namespace, project_id=home.project_id)
        case "agent":
            return Scope(namespace=home.namespace, agent_id=home.agent_id)
        case _:
            return scope


def _check_capable(ctx: Any, tool: str, capability: str) -> None:
    """An identity that declares nothing leaves everything open; one that declares something means it."""
    actions, tags = ctx.identity.actions(), ctx.identity.tags()
    if (actions or tags) and not (tool in actions or {capability, _ALIASES[capability]} & {*tags}):
        raise NotCapable(ctx.agent.id, capability)


def _asked_at(ctx: Any) -> tuple[Evidence, ...]:
    """The place of the user's words in the thread."""
    thread: Thread = ctx.thread
    wanted = getattr(ctx, "request_id", None)
    for seq in range(len(thread.entries) - 1, -1, -1):
        entry = thread.entries[seq]
        said = entry.payload
        if entry.kind == "message" and said.get("role") == "user" and said.get("request_id") == wanted:
            return (Evidence(kind="message", ref=f"{thread.id}:{seq}"),)
    return ()
