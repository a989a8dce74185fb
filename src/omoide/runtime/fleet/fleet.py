"""Fleet: ownership and takeover.

When the agent has handled it and is saved, with what it sends. Then, and not before, the transport may forget
it. What hinders that for a while is waited for; only a signal over which the agent crashes is given back as
failed, so that one which always does is laid aside in the end.

A runtime of a fleet claims an agent before it lets it live, and renews that lease as long as it does. A lease
that was not given back and not renewed runs out; then another runtime takes the agent up as it was saved
last. Whoever loses a lease ends the agent at once, and can neither save it nor send for it any more.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import move_on_after

from omoide import ids
from omoide.core.agent import Agent
from omoide.core.definition import Definition
from omoide.core.entry import DEFAULT_NAMESPACE, check_positive
from omoide.core.frozen import check_text
from omoide.core.signal import Signal
from omoide.errors import (
    Dropped,
    IdTaken,
    Invalid,
    MissingStore,
    NotFound,
    NotRunning,
    OwnedElsewhere,
    Unrouted,
)
from omoide.runtime.checkpoints import load_agent, save_agent
from omoide.runtime.fleet.directory import (
    REPLY_ATTRIBUTE,
    AgentDirectory,
    AgentLocation,
    FleetRequests,
    without_reply_address,
)
from omoide.runtime.fleet.leases import (
    FencedCheckpointStore,
    Leases,
    OwnedAgent,
    OwnershipRecord,
    monotonic_now,
)
from omoide.runtime.mailbox import Envelope, PendingReply, SaveRequest
from omoide.stores.protocols import SupportsDocuments, SupportsLeases
from omoide.verbs import require

if TYPE_CHECKING:
    from omoide.runtime.runtime import Runtime
    from omoide.runtime.server import AgentServer


# arriving: When has a signal that came over the transport been handled?


RETRY_DELAYS_S = (0.02, 0.05, 0.1, 0.2, 0.5)
"""How many seconds pass before something is tried again that was hindered."""

log = logging.getLogger("omoide.runtime")


class SignalReceiver:
    """The handler of what is told to one agent of a fleet."""

    def __init__(self, fleet: Fleet, owned: OwnedAgent) -> None:
        self._fleet = fleet
        self._owned = owned

    async def __call__(self, request: Signal) -> None:
        """Return when a signal is handled and saved; raise when it could not be, here."""
        signal, tries = without_reply_address(request), 0
        lost: Unrouted | None = None
        while True:
            try:
                agent = await self._handle(signal)
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
                self._fleet.log_save_delay(self._owned, error)
            else:
                await self._reply(request, agent if lost is None else None, lost)
                return
            await anyio.sleep(RETRY_DELAYS_S[min(tries, len(RETRY_DELAYS_S) - 1)])
            tries += 1

    async def _handle(self, signal: Signal) -> Agent:
        held = self._owned
        server = self._fleet.runtime.whereis(held.id)
        if server is None or server.persistence.ownership is not held or not held.is_valid():
            await held.done.wait()  # by then nobody listens here, and the next owner is told
            raise NotRunning(held.id)
        if not held.has_handled(signal):
            return await self._fleet.runtime.deliver_and_wait(held.id, Envelope(signal, PendingReply()))
        return server.agent if held.is_flushed else await self._save(server)

    async def _save(self, server: AgentServer) -> Agent:
        reply = PendingReply()
        if not server.mailbox.put_internal(SaveRequest(reply)):
            raise Invalid("mailbox", "is full", "try again later")
        agent: Agent = await reply.wait()
        return agent

    def _is_ending(self) -> bool:
        """Whether the agent is about to end here, or has: then nothing is wrong with the signal."""
        server = self._fleet.runtime.whereis(self._owned.id)
        return server is None or server.mailbox.closed or not self._owned.is_valid()

    async def _reply(self, request: Signal, agent: Agent | None, error: Exception | None = None) -> None:
        if REPLY_ATTRIBUTE not in request.extensions:
            return
        try:
            try:
                await self._fleet.requests.reply(request, agent, error)
            except Invalid as problem:  # a state that is too large to be sent
                await self._fleet.requests.reply(request, None, problem)
        except Exception as problem:
            # The signal was handled and saved: it did not fail because whoever asked cannot be told.
            log.warning("agent %s: could not answer: %s", self._owned.id, type(problem).__name__)


# fleet: Who lets which agent live, and who takes over from a runtime that is gone?


LEASE_MS = 15_000


class Fleet:
    """What a runtime does as one of several."""

    def __init__(
        self, runtime: Runtime, store: Any, name: str, lease_ms: int, takeover_interval_ms: int | None = None
    ) -> None:
        if store is None:
            raise MissingStore("store")
        for protocol in (SupportsLeases, SupportsDocuments):
            require(store, protocol, "say who lets an agent live")
        self.runtime = runtime
        self.store: Any = store
        self.name = check_text(name, "name")
        self.member = f"{self.name}@{ids.uuid7()}"
        """This life of the runtime: one that was started again has to wait until its old leases end."""
        self.leases = Leases(store, self.member, lease_ms, self.lose_agent)
        self.directory = AgentDirectory(store, DEFAULT_NAMESPACE)
        self.requests = FleetRequests(self)
        every = max(1, self.leases.lease_ms // 3) if takeover_interval_ms is None else takeover_interval_ms
        self._takeover_interval_ms = check_positive(every, "takeover_interval_ms")
        self._running_until: dict[str, float] = {}
        self._is_taking_over = False
        self._closing = False

    @property
    def has_durable_transport(self) -> bool:
        """Whether the transport keeps a signal until it was handled; then nobody is waited for in sending."""
        return bool(getattr(self.runtime.transport, "is_durable", False))

    # From the beginning to the end

    async def open(self) -> None:
        """Listen to answers, keep leases, and look for agents that nobody lets live any more."""
        await self.requests.open()
        self.runtime.spawn(self.leases.run)
        self._schedule_takeover()

    async def close(self, timeout: float) -> None:
        """Give every agent back; all have ended by now."""
        self._closing = True
        with move_on_after(timeout):
            for held in [*self.leases.owned.values()]:
                await held.done.wait()
        self.leases.cancel_scope.cancel()
        await self.requests.close()

    def _schedule_takeover(self) -> None:
        def ring() -> None:
            if not self._closing:
                self.runtime.spawn(self.take_over)
                self._schedule_takeover()

        self.runtime.timers.after(self._takeover_interval_ms, ring)

    def lose_agent(self, owned: OwnedAgent, reason: str) -> None:
        """Somebody else may let an agent live: it ends here, and nothing of it is saved or sent."""
        owned.is_lost = True
        log.warning("agent %s: ended here: %s", owned.id, reason)
        server = self.runtime.whereis(owned.id)
        if server is not None and server.persistence.ownership is owned:
            server.kill()

    async def _claim(self, id: str) -> OwnedAgent:
        held = await self.leases.acquire(id, self)
        if held is None:
            place, _ = await self.directory.find(id)
            raise OwnedElsewhere(id, (place and place.runtime) or "another runtime")
        return held

    # Agents

    async def start(self, agent: Agent, options: Mapping[str, Any]) -> AgentServer:
        """Let a new agent live; it is saved at once, so that another runtime could take it up."""
        held = await self._claim(agent.id)
        try:
            note = OwnershipRecord(member=self.member, token=held.token)
            rev = await save_agent(agent, FencedCheckpointStore(self.store, note), expected_rev=0)
            return await self._start_owned(held, agent, rev, options)
        except BaseException:
            await self._release_unused(held)
            raise

    async def thaw(self, id: str, definition: Definition, options: Mapping[str, Any]) -> AgentServer:
        """Take an agent up from the store; whoever had it before cannot save it any more."""
        held = await self._claim(id)
        try:
            return await self._load_and_start(held, definition, options)
        except BaseException:
            await self._release_unused(held)
            raise

    async def _load_and_start(
        self, owned: OwnedAgent, definition: Definition, options: Mapping[str, Any]
    ) -> AgentServer:
        vault = FencedCheckpointStore(self.store, OwnershipRecord(member=self.member, token=owned.token))
        # Not before it is known that the agent can be taken up: one that cannot is left as it is.
        await load_agent(owned.id, definition, vault)
        self._check_owned(owned)
        note = await vault.fence(owned.id)
        agent, rev = await load_agent(owned.id, definition, vault)
        if note is not None:
            owned.restore(note)
        return await self._start_owned(owned, agent, rev, options)

    async def _start_owned(
        self, owned: OwnedAgent, agent: Agent, rev: int, options: Mapping[str, Any]
    ) -> AgentServer:
        place = AgentLocation(
            id=owned.id, kind=agent.definition.name, runtime=self.name, member=self.member, token=owned.token
        )
        self._check_owned(owned)
        owned.location_rev = await self.directory.set_owner(place)
        self._check_owned(owned)
        if self.runtime.agent_options.save_every is None:
            options = {"save_every": 1, **options}
        server = self.runtime.start_local(agent, rev=rev, ownership=owned, **options)
        rested, owned.hibernates_on_exit = owned.hibernates_on_exit, True
        try:
            arriving = SignalReceiver(self, owned)
            owned.subscription = await self.runtime.transport.subscribe("**", arriving, agent=owned.id)
        except BaseException:
            owned.hibernates_on_exit = rested
            server.kill()
            raise
        if server.ended.is_set():
            # Nobody knew of the subscription then: it would take the post of the next owner.
            with anyio.CancelScope(shield=True):
                await owned.subscription.close()
            raise OwnedElsewhere(owned.id, "another runtime")
        owned.wake()
        return server

    def _check_owned(self, owned: OwnedAgent) -> None:
        if not owned.is_valid():
            raise OwnedElsewhere(owned.id, "another runtime")

    async def _release_unused(self, owned: OwnedAgent) -> None:
        """Give back what was taken in vain, unless the agent lived already and is given back by its end."""
        server = self.runtime.whereis(owned.id)
        if (server is not None and server.persistence.ownership is owned) or owned.is_releasing:
            return
        owned.is_releasing = True
        with anyio.CancelScope(shield=True):
            await self._release(owned)

    def on_agent_ended(self, owned: OwnedAgent) -> None:
        """An agent ended here; it is at rest, unless it was lost to another runtime."""
        owned.is_releasing = True
        self.runtime.spawn(partial(self._release, owned))

    async def wait_released(self, id: str) -> None:
        """Return when an agent that ended may be let live by another runtime."""
        held = self.leases.owned.get(id)
        if held is not None:
            await held.done.wait()

    async def _release(self, owned: OwnedAgent) -> None:
        try:
            if owned.subscription is not None:
                await owned.subscription.close()
            if owned.is_valid() and owned.hibernates_on_exit:
                place, rev = await self.directory.find(owned.id)
                if place is not None and rev == owned.location_rev:
                    await self.directory.save(place.replace(runtime=None, member=None), expected_rev=rev)
            await self.leases.release(owned)
        except Exception as error:
            log.warning("agent %s: could not be given back: %s", owned.id, type(error).__name__)
        finally:
            self.leases.remove(owned)

    # Takeover

    async def take_over(self) -> list[str]:
        """Take up agents whose runtime is gone, as far as there is room; their ids."""
        taken: list[str] = []
        if self._is_taking_over or self._closing:
            return taken
        self._is_taking_over = True
        try:
            async for place in self.directory.iter_running():
                if self._closing or not self.runtime.has_capacity:
                    break
                if place.id not in self.leases.owned and place.kind in self.runtime.registry.kinds:
                    taken += await self._take_over_agent(place)
        except Exception as error:
            log.warning("fleet: could not look for agents: %s", type(error).__name__)
        finally:
            self._is_taking_over = False
        return taken

    async def _take_over_agent(self, location: AgentLocation) -> list[str]:
        try:
            held = await self._claim(location.id)
        except (OwnedElsewhere, IdTaken):
            return []
        held.hibernates_on_exit = False
        try:
            found, _ = await self.directory.find(location.id)
            if found is None or found.runtime is None:  # it was put to rest since
                await self._release_unused(held)
                return []
            await self._load_and_start(held, self.runtime.registry.kind(found.kind), {})
        except Exception as error:
            log.warning("agent %s: could not be taken over: %s", location.id, type(error).__name__)
            await self._release_unused(held)
            return []
        log.warning("agent %s: taken over from %s", location.id, location.runtime)
        return [location.id]

    # Signals

    def log_save_delay(self, owned: OwnedAgent, error: Exception) -> None:
        """Something that was handled could not be saved or sent yet."""
        log.warning("agent %s: waits to be saved: %s", owned.id, type(error).__name__)

    async def locate(self, id: str) -> str | None:
        """The name of the runtime that lets an agent live, or did until it was gone; None for one at rest."""
        place, _ = await self.directory.find(ids.check(id))
        if place is None:
            raise NotFound("agent of the fleet", id, "start it")
        return place.runtime

    async def deliver(self, signal: Signal, to: str | None) -> None:
        """Tell all, or hand over to one agent."""
        if to is None:
            await self.runtime.transport.publish(signal)
        else:
            await self.send_to_agent(to, signal)

    async def send_to_agent(self, id: str, signal: Signal) -> None:
        """Have a signal brought to an agent, wherever it lives, or is about to live."""
        if self.runtime.whereis(id) is None and self._running_until.get(id, 0.0) < monotonic_now():
            place, _ = await self.directory.find(ids.check(id))
            if place is None or place.runtime is None:
                raise NotRunning(id)
            self._cache_running(id)
        await self.runtime.transport.publish(signal, to=id)

    def _cache_running(self, id: str) -> None:
        """That an agent lives somewhere is looked up once in the time of a lease."""
        if len(self._running_until) >= 10_000:
            self._running_until.clear()
        self._running_until[id] = monotonic_now() + self.leases.lease_ms / 1000
