"""How does an agent get children, and lose them?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omoide.core.agent import Agent
from omoide.core.directives import AdoptChild, Spawn, SpawnAgent, StopChild
from omoide.core.frozen import FrozenMap
from omoide.core.parent import Parent
from omoide.core.signal import Signal
from omoide.core.slot import PARENT
from omoide.errors import IdTaken, Invalid, NotFound, NotRunning, TooManyAgents
from omoide.runtime.waiting import Waiting

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

STARTED = "jido.agent.child.started"
EXITED = "jido.agent.child.exit"
ORPHANED = "jido.agent.orphaned"
PROCESS = "process"


def spawn_agent(directive: SpawnAgent, server: AgentServer) -> Waiting | None:
    """Start a child; it is told who its parent is. In a fleet it has to be claimed first."""
    _check_room(directive.tag, server)
    definition = server.runtime.known.kind(directive.kind)
    agent = Agent.new(definition, id=directive.id, state=directive.state)
    parent = Parent(id=server.id, tag=directive.tag, metadata=directive.metadata)
    agent = PARENT.put(agent, parent)
    if server.runtime.fleet is not None:
        return Waiting(partial(_claimed, agent, directive.tag, server))
    _bind(server.runtime.begin(agent), directive.tag, server)
    return None


async def _claimed(agent: Agent, tag: str, server: AgentServer) -> None:
    id = await server.runtime.start(agent)
    child = server.runtime.whereis(id)
    if child is not None:
        _bind(child, tag, server)


def adopt(directive: AdoptChild, server: AgentServer) -> None:
    """Take an agent that runs, and has no parent that does, as a child."""
    child = server.runtime.whereis(directive.child)
    if child is None:
        raise NotRunning(directive.child)
    _check_room(directive.tag, server)
    if child.parent is not None:
        raise IdTaken(directive.child)
    if child is server or _is_above(child, server):
        raise Invalid("child", f"{directive.child!r} is the agent itself or above it", "adopt another")
    parent = Parent(id=server.id, tag=directive.tag, metadata=directive.metadata)
    child.change(lambda agent: (PARENT.put(agent, parent), []))
    _bind(child, directive.tag, server)


def stop(directive: StopChild, server: AgentServer) -> None:
    """Stop a child, or a process, which is given the time to finish; nothing waits for that."""
    process = server.life.named.pop((PROCESS, directive.tag), None)
    if process is not None:
        process.cancel()
        return
    id = server.children.get(directive.tag)
    if id is None:
        known = ", ".join(sorted(server.children)) or "none"
        raise NotFound("child", directive.tag, f"agent {server.id!r} has: {known}")
    server.runtime.spawn(partial(server.runtime.leave, id, directive.reason))


def spawn(directive: Spawn, server: AgentServer) -> None:
    """Start something that is not an agent; it ends with this one at the latest."""
    run = server.runtime.known.process(directive.target)
    tag = directive.tag or directive.target
    if (PROCESS, tag) in server.life.named:
        raise IdTaken(tag)
    server.job(partial(run, directive.config), "process", tag=(PROCESS, tag))


def tell_exit(server: AgentServer, tag: str, child: str, reason: str) -> None:
    """Tell a parent that a child is gone."""
    data = FrozenMap({"tag": tag, "id": child, "reason": reason})
    server.tell(Signal(type=EXITED, data=data, source=server.runtime.source), own=True)


def tell_orphan(server: AgentServer, parent: str, tag: str, reason: str) -> None:
    """Tell a child that its parent is gone."""
    data = FrozenMap({"parent": parent, "tag": tag, "reason": reason})
    server.tell(Signal(type=ORPHANED, data=data, source=server.runtime.source), own=True)


def _bind(child: AgentServer, tag: str, server: AgentServer) -> None:
    child.parent = (server.id, tag)
    server.children[tag] = child.id
    data = FrozenMap({"tag": tag, "id": child.id, "name": child.agent.name})
    server.tell(Signal(type=STARTED, data=data, source=server.runtime.source), own=True)


def _check_room(tag: str, server: AgentServer) -> None:
    if tag in server.children:
        raise IdTaken(tag)
    limit = server.terms.max_children
    if limit is not None and len(server.children) >= limit:
        raise TooManyAgents(f"agent {server.id!r}", limit)


def _is_above(one: AgentServer, server: AgentServer) -> bool:
    above = server.parent
    while above is not None:
        found = server.runtime.whereis(above[0])
        if found is one:
            return True
        above = None if found is None else found.parent
    return False
