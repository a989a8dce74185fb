"""Who rests in a store, what do they believe, and who of them can do something?

Agents that a runtime put into the store can be looked at without their code: their checkpoints hold their
memory and their identity.

"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from omoide import identity
from omoide.core.agent import Agent, Candidate, rank
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.memory import Memory, Space
from omoide.core.state import MEMORY
from omoide.errors import Invalid, NotFound, RestoreFailed
from omoide.runtime.checkpoints import DocumentCheckpointStore


class AgentInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent shows of itself."""

    id: str
    name: str
    description: str = ""
    rev: int = 0
    """How often it was put aside."""
    identity: FrozenMap[str, Any] | None = None
    """The public part of its identity, if it has one."""
    spaces: tuple[str, ...] = ()
    problem: str | None = None
    """Why it cannot be read."""


class AgentMatch(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that can do what was asked, and the reason to think so."""

    id: str
    name: str
    reason: str
    age: int | None = None


async def list_agents(store: Any, *, namespace: str) -> list[AgentInfo]:
    """Everybody who rests in a namespace, by id; one that cannot be read says why."""
    vault = DocumentCheckpointStore(store, namespace=namespace)
    found: list[AgentInfo] = []
    for id in await vault.ids():
        try:
            found.append(_agent_info(*await _load_agent(vault, id)))
        except RestoreFailed as error:
            found.append(AgentInfo(id=id, name="", problem=str(error)))
    return found


async def get_agent(store: Any, id: str, *, namespace: str) -> AgentInfo:
    """What one agent shows of itself."""
    return _agent_info(*await _load_agent(DocumentCheckpointStore(store, namespace=namespace), id))


async def get_spaces(store: Any, id: str, *, namespace: str) -> dict[str, Space]:
    """The spaces of an agent's memory, by their names; none where it has no memory yet."""
    agent, _ = await _load_agent(DocumentCheckpointStore(store, namespace=namespace), id)
    memory: Memory | None = MEMORY.get(agent)
    return {} if memory is None else {name: memory.spaces[name] for name in sorted(memory.spaces)}


async def who_can(
    store: Any,
    action: str | None = None,
    tags: Iterable[str] = (),
    limits: Mapping[str, Any] = EMPTY_MAP,
    *,
    namespace: str,
) -> list[AgentMatch]:
    """The agents at rest that can do something, best first; what their plugins would offer is not known."""
    vault = DocumentCheckpointStore(store, namespace=namespace)
    agents: list[Agent] = []
    for id in await vault.ids():
        try:
            agents.append((await _load_agent(vault, id))[0])
        except RestoreFailed:
            continue
    return [_agent_match(one) for one in rank(agents, action, tags, limits)]


async def _load_agent(checkpoints: DocumentCheckpointStore, id: str) -> tuple[Agent, int]:
    """An agent as it was put aside, without its code, and its revision."""
    saved = (await checkpoints.load(id)).checkpoint
    if saved is None:
        raise NotFound("agent at rest", id, "see which there are")
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
    return agent, saved.rev


def _agent_info(agent: Agent, rev: int) -> AgentInfo:
    memory: Memory | None = MEMORY.get(agent)
    return AgentInfo(
        id=agent.id,
        name=agent.name,
        description=agent.description,
        rev=rev,
        identity=identity.snapshot(agent),
        spaces=() if memory is None else tuple(sorted(memory.spaces)),
    )


def _agent_match(candidate: Candidate) -> AgentMatch:
    return AgentMatch(
        id=candidate.agent.id, name=candidate.agent.name, reason=candidate.reason, age=candidate.age
    )
