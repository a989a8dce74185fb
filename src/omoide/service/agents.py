"""Read hibernated agents from their checkpoints.

A checkpoint holds an agent's memory and identity, so both can be read without the agent's code.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from omoide import identity
from omoide.core.agent import Agent, Requirements, capabilities, experience_sort_key
from omoide.core.checkpoint import Checkpoint
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.memory import Memory, Space
from omoide.core.state import IDENTITY, MEMORY
from omoide.errors import Invalid, NotFound, RestoreFailed
from omoide.runtime.checkpoints import DocumentCheckpointStore


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Public description of a hibernated agent."""

    id: str
    name: str
    description: str = ""
    rev: int = 0
    """Revision of its checkpoint."""
    identity: FrozenMap[str, Any] | None = None
    """Public part of its identity, if it has one."""
    spaces: tuple[str, ...] = ()
    problem: str | None = None
    """Reason why its checkpoint cannot be read."""


class AgentMatch(msgspec.Struct, frozen=True, kw_only=True):
    """Agent that can do an action, and the reason."""

    id: str
    name: str
    reason: str
    age: int | None = None


async def list_agents(store: Any, *, namespace: str) -> list[AgentInfo]:
    """Return all hibernated agents of a namespace, ordered by id.

    An agent whose checkpoint cannot be read is listed with its `problem`.
    """
    checkpoints = DocumentCheckpointStore(store, namespace=namespace)
    infos: list[AgentInfo] = []
    for id in await checkpoints.ids():
        try:
            infos.append(_agent_info(*await _load_agent(checkpoints, id)))
        except RestoreFailed as error:
            infos.append(AgentInfo(id=id, name="", problem=str(error)))
    return infos


async def get_agent(store: Any, id: str, *, namespace: str) -> AgentInfo:
    """Return the description of one hibernated agent.

    Raises:
        NotFound: the namespace has no checkpoint of that id.
        RestoreFailed: the checkpoint cannot be read.
    """
    return _agent_info(*await _load_agent(DocumentCheckpointStore(store, namespace=namespace), id))


async def get_spaces(store: Any, id: str, *, namespace: str) -> dict[str, Space]:
    """Return the spaces of an agent's memory by name; none if it has no memory yet."""
    agent, _ = await _load_agent(DocumentCheckpointStore(store, namespace=namespace), id)
    memory: Memory | None = MEMORY.get(agent)
    return {} if memory is None else {name: memory.spaces[name].live() for name in sorted(memory.spaces)}


async def who_can(
    store: Any,
    action: str | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, Any] = EMPTY_MAP,
    io: Mapping[str, Any] = EMPTY_MAP,
    *,
    namespace: str,
) -> list[AgentMatch]:
    """Return the hibernated agents that can do an action, best first.

    An agent is judged by the snapshot that was saved with it, which has the actions of its plugins.
    """
    requirements = Requirements.new(action, tags, limits, io)
    checkpoints = DocumentCheckpointStore(store, namespace=namespace)
    matches: list[AgentMatch] = []
    for id in await checkpoints.ids():
        try:
            agent, saved = await _load_agent(checkpoints, id)
        except RestoreFailed:
            continue
        known = IDENTITY.get(agent)
        reason = requirements.explain_fit(_stored_capabilities(agent, saved), known)
        if reason is not None:
            age = None if known is None else known.age
            matches.append(AgentMatch(id=id, name=agent.name, reason=f"{agent.name}: {reason}", age=age))
    return sorted(matches, key=lambda match: experience_sort_key(match.age))


def _stored_capabilities(agent: Agent, saved: Checkpoint) -> FrozenMap[str, Any]:
    """Return the capabilities that were saved with an agent, or those that it declares."""
    stored = None if saved.snapshot is None else saved.snapshot.get("capabilities")
    return stored if isinstance(stored, FrozenMap) else capabilities(agent)


def agent_not_found(id: str, namespace: str) -> NotFound:
    """Return the error for an agent that is not stored, or not in the scope."""
    return NotFound("stored agent", id, f"list the stored agents of namespace {namespace}, and pass one's id")


async def _load_agent(checkpoints: DocumentCheckpointStore, id: str) -> tuple[Agent, Checkpoint]:
    """Load an agent with an empty definition, and its checkpoint."""
    saved = (await checkpoints.load(id)).checkpoint
    if saved is None:
        raise agent_not_found(id, checkpoints.namespace)
    try:
        agent = Agent(
            id=saved.id,
            name=saved.name,
            description=saved.description,
            state=saved.state,
            definition=Definition.new(saved.name),
        )
    except Invalid as error:
        raise RestoreFailed(f"agent {id!r}", error) from error
    return agent, saved


def _agent_info(agent: Agent, saved: Checkpoint) -> AgentInfo:
    memory: Memory | None = MEMORY.get(agent)
    public = identity.snapshot(agent)
    if public is not None:
        public = public.set("capabilities", _stored_capabilities(agent, saved))
    return AgentInfo(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        rev=saved.rev,
        identity=public,
        spaces=() if memory is None else tuple(sorted(memory.spaces)),
    )
