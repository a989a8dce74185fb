"""What goes on for an agent from the first moment of its life?

What its plugins subscribed to is put into its mailbox, and what they have scheduled is begun.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from omoide.core.directives import Cron
from omoide.core.signal import Signal
from omoide.runtime import capabilities

if TYPE_CHECKING:
    from omoide.runtime.runtime import Runtime
    from omoide.runtime.server import AgentServer


def begin(server: AgentServer, runtime: Runtime) -> None:
    """Subscribe and schedule what the plugins of an agent ask for."""
    for plugin in server.agent.definition.plugins:
        for pattern in plugin.subscriptions:
            server.job(partial(_subscribe, str(pattern), server, runtime), "subscription")
        for at, (line, message) in enumerate(plugin.schedules):
            server.carry_out([Cron(expression=line, message=message, job_id=f"{plugin.label}:{at}")])


async def _subscribe(pattern: str, server: AgentServer, runtime: Runtime) -> None:
    life = server.life

    async def heard(signal: Signal) -> None:
        if life.over:
            return  # whoever has the agent by now hears it, too
        if signal.type != capabilities.REQUEST:  # that is answered for all
            await runtime.cast(server.id, signal)

    subscription = await runtime.transport.subscribe(pattern, heard)
    if life.over:
        await subscription.close()
    else:
        life.closing.append(partial(runtime.spawn, subscription.close))
