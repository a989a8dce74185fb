"""What becomes of an agent when its life ends?

By its terms it is started again, with the letters that still wait, or it is gone. One that fails too often
within a short time is given up. It begins again with its last checkpoint where it was ever saved, else as it
was when it was started; a checkpoint that cannot be read is a reason to give up, never to begin afresh.

"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from anyio import create_task_group, current_time, move_on_after

from omoide.core.agent import Agent
from omoide.core.state import PARENT, Parent
from omoide.errors import Dropped
from omoide.runtime import executors
from omoide.runtime.mailbox import Letter, Save
from omoide.runtime.server import AgentServer
from omoide.runtime.tasks import SHUTDOWN, Exit
from omoide.runtime.vaults import taken_up

if TYPE_CHECKING:
    from omoide.runtime.runtime import Runtime


log = logging.getLogger("omoide.runtime")


async def supervise(server: AgentServer, runtime: Runtime) -> None:
    """Let an agent live, as often as its terms say."""
    exit = Exit("shutdown", asked=True)
    try:
        while True:
            exit = await server.live()
            if not _again(server, exit):
                return
            if _too_often(server):
                exit = Exit(f"gave up after {len(server.restarts) - 1} restarts: {exit.reason}")
                return
            log.warning("agent %s: started again after: %s", server.id, exit.reason)
            try:
                agent = _child_of(PARENT.get(server.agent), await _anew(server, runtime))
            except Exception as error:
                exit = Exit(f"could not be taken up again: {type(error).__name__}")
                return
            server.clear(exit, again=True)
            server.renew(agent)
    finally:
        server.clear(exit, again=False)
        _part(server, runtime, exit)


async def ended_within(server: AgentServer, seconds: float, reason: str = SHUTDOWN) -> None:
    """End an agent once it has finished what it accepted; after so many seconds anyway."""
    server.close(save=False, reason=reason)
    with move_on_after(seconds):
        await server.ended.wait()
        return
    server.kill()
    await server.ended.wait()


async def finished(server: AgentServer, runtime: Runtime) -> None:
    """Let an agent finish and end, and then its children."""
    server.close(save=False)
    await server.ended.wait()
    async with create_task_group() as group:
        for child in filter(None, map(runtime.whereis, server.children.values())):
            group.start_soon(finished, child, runtime)


def _part(server: AgentServer, runtime: Runtime, exit: Exit) -> None:
    """Report what an agent that is gone did not handle, and tell its parent and its children."""
    runtime.forget(server)
    server.mailbox.close()
    for item in server.mailbox.empty():
        if isinstance(item, Letter):
            runtime.drop(server.id, item, f"the agent ended ({exit.reason})")
        elif isinstance(item, Save):
            item.reply.fail(Dropped(server.id, "checkpoint", f"the agent ended ({exit.reason})"))
    if server.parent is not None:
        id, tag = server.parent
        parent = runtime.whereis(id)
        if parent is not None and parent.children.get(tag) == server.id:
            del parent.children[tag]
            executors.tell_exit(parent, tag, server.id, exit.reason)
    for tag, id in server.children.items():
        child = runtime.whereis(id)
        if child is not None:
            _orphan(child, server, tag, runtime, exit)
    server.ended.set()


def _orphan(child: AgentServer, parent: AgentServer, tag: str, runtime: Runtime, exit: Exit) -> None:
    child.parent = None
    if child.terms.on_parent_exit == "stop":
        child.close(save=False)
        runtime.spawn(partial(ended_within, child, runtime.shutdown))
    else:
        executors.tell_orphan(child, parent.id, tag, exit.reason)


def _again(server: AgentServer, exit: Exit) -> bool:
    restart = server.terms.restart
    if exit.asked or restart == "temporary":
        return False
    return restart == "permanent" or not exit.normal


def _too_often(server: AgentServer) -> bool:
    now, terms = current_time(), server.terms
    server.restarts.append(now)
    recent = [at for at in server.restarts if now - at <= terms.restart_seconds]
    return len(recent) > terms.max_restarts


async def _anew(server: AgentServer, runtime: Runtime) -> Agent:
    if not server.keeping.rev:
        return server.origin
    definition, hold = server.origin.definition, server.keeping.hold
    if hold is not None:
        agent, server.keeping.rev = await hold.taken_up(definition)
    else:
        agent, server.keeping.rev = await taken_up(server.id, definition, runtime.open_vault())
    return agent


def _child_of(parent: Parent | None, agent: Agent) -> Agent:
    """The agent with the parent that it has by now; it may have been adopted since."""
    return agent if parent is None else PARENT.put(agent, parent)
