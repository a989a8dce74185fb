"""Restart agents whose run ended, or remove them permanently.

An agent is restarted as its options say, with the mailbox as it is. One that fails more than `max_restarts`
times within `restart_seconds` is given up. It restarts from its last checkpoint if it was ever saved, else as
it was started; a checkpoint that cannot be read is a reason to give up, never to start a fresh agent.
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
from omoide.runtime.checkpoints import SavedAgent, load_saved_agent
from omoide.runtime.mailbox import Envelope, PluginChange, SaveRequest
from omoide.runtime.server import AgentServer
from omoide.runtime.tasks import SHUTDOWN, Exit

if TYPE_CHECKING:
    from omoide.runtime.runtime import Runtime


log = logging.getLogger("omoide.runtime")


async def supervise(server: AgentServer, runtime: Runtime) -> None:
    """Run an agent, and restart it as its options say, until it ends and is not restarted."""
    exit = Exit("shutdown", requested=True)
    try:
        while True:
            exit = await server.run()
            if not _should_restart(server, exit):
                return
            if _restarts_exhausted(server):
                exit = Exit(f"gave up after {len(server.restart_times) - 1} restarts: {exit.reason}")
                return
            log.warning("agent %s: restarted after: %s", server.id, exit.reason)
            try:
                saved = await _reload_agent(server, runtime)
                agent = _with_parent(PARENT.get(server.agent), saved.agent)
            except Exception as error:
                exit = Exit(f"could not be restored: {type(error).__name__}")
                return
            # Only after the reload: pending requests are answered here with "started again".
            server.clean_up(exit, restarting=True)
            server.restart(agent, saved.schedules)
    finally:
        # Also on cancellation: a caller without a reply would wait for ever.
        server.clean_up(exit, restarting=False)
        _finalize(server, runtime, exit)


async def stop_server(server: AgentServer, timeout: float, reason: str = SHUTDOWN) -> None:
    """End an agent once it has finished what it accepted, or after `timeout` seconds."""
    server.close(save=False, reason=reason)
    with move_on_after(timeout):
        await server.ended.wait()
        return
    server.kill()
    await server.ended.wait()


async def stop_tree(server: AgentServer, runtime: Runtime) -> None:
    """Let an agent finish and end, and then its children."""
    server.close(save=False)
    await server.ended.wait()
    async with create_task_group() as group:
        for child in filter(None, map(runtime.whereis, server.children.values())):
            group.start_soon(stop_tree, child, runtime)


def _finalize(server: AgentServer, runtime: Runtime, exit: Exit) -> None:
    """Remove a server, report what it did not handle, and notify its parent and its children."""
    # First, so that no new signal is sent to an agent that will not read it.
    runtime.remove_server(server)
    # Senders that still wait are rejected; they report their signals themselves.
    server.mailbox.close()
    for item in server.mailbox.drain():
        if isinstance(item, Envelope):
            runtime.drop(server.id, item, f"the agent ended ({exit.reason})")
        elif isinstance(item, (SaveRequest, PluginChange)):
            what = "checkpoint" if isinstance(item, SaveRequest) else "change of plugins"
            item.reply.set_exception(Dropped(server.id, what, f"the agent ended ({exit.reason})"))
    if server.parent is not None:
        id, tag = server.parent
        parent = runtime.whereis(id)
        if parent is not None and parent.children.get(tag) == server.id:
            del parent.children[tag]
            executors.notify_child_exit(parent, tag, server.id, exit.reason)
    for tag, id in server.children.items():
        child = runtime.whereis(id)
        if child is not None:
            _orphan(child, server, tag, runtime, exit)
    server.ended.set()


def _orphan(child: AgentServer, parent: AgentServer, tag: str, runtime: Runtime, exit: Exit) -> None:
    child.parent = None
    if child.options.on_parent_exit == "stop":
        child.close(save=False)
        runtime.spawn(partial(stop_server, child, runtime.shutdown_timeout))
    else:
        executors.notify_orphan(child, parent.id, tag, exit.reason)


def _should_restart(server: AgentServer, exit: Exit) -> bool:
    restart = server.options.restart
    if exit.requested or restart == "temporary":
        return False
    return restart == "permanent" or not exit.is_normal


def _restarts_exhausted(server: AgentServer) -> bool:
    now, options = current_time(), server.options
    server.restart_times.append(now)
    recent = [at for at in server.restart_times if now - at <= options.restart_seconds]
    return len(recent) > options.max_restarts


async def _reload_agent(server: AgentServer, runtime: Runtime) -> SavedAgent:
    # It was never saved, so there is nothing to load.
    if not server.persistence.rev:
        return SavedAgent(server.initial_agent, 0)
    definition, ownership = server.initial_agent.definition, server.persistence.ownership
    if ownership is not None:
        saved = await ownership.load(definition)
    else:
        saved = await load_saved_agent(server.id, definition, runtime.open_checkpoint_store())
    server.persistence.rev = saved.rev
    return saved


def _with_parent(parent: Parent | None, agent: Agent) -> Agent:
    """Return the agent with its current parent: it may have been adopted since the checkpoint."""
    return agent if parent is None else PARENT.put(agent, parent)
