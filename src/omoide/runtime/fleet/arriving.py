"""When has a signal that came over the transport been handled?

When the agent has handled it and is saved, with what it sends. Then, and not before, the transport may forget
it. What hinders that for a while is waited for; only a signal over which the agent crashes is given back as
failed, so that one which always does is laid aside in the end.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from omoide.core.agent import Agent
from omoide.core.signal import Signal
from omoide.errors import Dropped, Invalid, NotRunning, Unrouted
from omoide.runtime.fleet.asking import REPLY, without_reply
from omoide.runtime.fleet.held import Held
from omoide.runtime.mailbox import Letter, Reply, Save

if TYPE_CHECKING:
    from omoide.runtime.fleet.fleet import Fleet
    from omoide.runtime.server import AgentServer

PAUSES = (0.02, 0.05, 0.1, 0.2, 0.5)
"""How many seconds pass before something is tried again that was hindered."""

log = logging.getLogger("omoide.runtime")


class Arriving:
    """The handler of what is told to one agent of a fleet."""

    def __init__(self, fleet: Fleet, held: Held) -> None:
        self._fleet = fleet
        self._held = held

    async def __call__(self, request: Signal) -> None:
        """Return when a signal is handled and saved; raise when it could not be, here."""
        signal, tries = without_reply(request), 0
        lost: Unrouted | None = None
        while True:
            try:
                agent = await self._handled(signal)
            except Unrouted as error:
                lost = error  # it was handled: the agent reported that it knows no such signal
                continue  # what it did about that is not saved yet
            except Dropped:
                if not self._is_ending():
                    raise  # the agent crashed over it
            except NotRunning:
                raise
            except Exception as error:
                # The store, or the transport, is not there: the agent has handled it, and is saved later.
                self._fleet.note_hindered(self._held, error)
            else:
                await self._answer(request, agent if lost is None else None, lost)
                return
            await anyio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
            tries += 1

    async def _handled(self, signal: Signal) -> Agent:
        held = self._held
        server = self._fleet.runtime.whereis(held.id)
        if server is None or server.keeping.hold is not held or not held.holds():
            await held.gone.wait()  # by then nobody listens here, and the next owner is told
            raise NotRunning(held.id)
        if not held.knows(signal):
            return await self._fleet.runtime.handled_by(held.id, Letter(signal, Reply()))
        return server.agent if held.settled else await self._saved(server)

    async def _saved(self, server: AgentServer) -> Agent:
        reply = Reply()
        if not server.mailbox.push(Save(reply)):
            raise Invalid("mailbox", "is full", "try again later")
        agent: Agent = await reply.wait()
        return agent

    def _is_ending(self) -> bool:
        """Whether the agent is about to end here, or has: then nothing is wrong with the signal."""
        server = self._fleet.runtime.whereis(self._held.id)
        return server is None or server.mailbox.closed or not self._held.holds()

    async def _answer(self, request: Signal, agent: Agent | None, error: Exception | None = None) -> None:
        if REPLY not in request.extensions:
            return
        try:
            try:
                await self._fleet.asking.answered(request, agent, error)
            except Invalid as problem:  # a state that is too large to be sent
                await self._fleet.asking.answered(request, None, problem)
        except Exception as problem:
            # The signal was handled and saved: it did not fail because whoever asked cannot be told.
            log.warning("agent %s: could not answer: %s", self._held.id, type(problem).__name__)
