"""Own, start and take over the agents of a fleet.

A runtime of a fleet claims an agent in the store before it runs it, and renews that lease as long as it does.
A lease that was neither released nor renewed expires; then another runtime loads the agent as it was last
saved. A runtime that loses a lease ends the agent at once, and can neither save it nor send for it any more.

A signal to an agent of a fleet counts as handled when the agent has handled it and is saved, with what it
sends. Then, and not before, the transport may forget it. What prevents that for a while is waited for; only a
signal over which the agent crashes is returned as failed, so that one which always does becomes a dead
letter.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from anyio import move_on_after

from omoide import clock, ids
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
from omoide.runtime.checkpoints import SavedAgent, load_agent, load_saved_agent, save_agent
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
)
from omoide.runtime.mailbox import Envelope, PendingReply, SaveRequest
from omoide.stores.protocols import SupportsDocuments, SupportsLeases
from omoide.verbs import require

if TYPE_CHECKING:
    from omoide.runtime.runtime import Runtime
    from omoide.runtime.server import AgentServer


RETRY_DELAYS_S = (0.02, 0.05, 0.1, 0.2, 0.5)
"""The pauses before something that failed for a while is tried again."""

log = logging.getLogger("omoide.runtime")

LEASE_MS = 15_000


class SignalReceiver:
    """The transport handler of one owned agent."""

    def __init__(self, fleet: Fleet, owned: OwnedAgent) -> None:
        self._fleet = fleet
        self._owned = owned

    async def __call__(self, request: Signal) -> None:
        """Return when a signal is handled and saved; raise when it could not be, here."""
        signal, attempts = without_reply_address(request), 0
        unrouted: Unrouted | None = None
        while True:
            try:
                agent = await self._handle(signal)
            except Unrouted as error:
                unrouted = error  # it was handled: the agent reported that it has no route for it
                continue  # what it did about that is to be saved, too
            except Dropped:
                if not self._is_ending():
                    raise  # the agent crashed over it
            except NotRunning:
                raise
            except Exception as error:
                # The store or the transport cannot be reached: the signal is handled, and saved later.
                self._fleet.log_save_delay(self._owned, error)
            else:
                await self._reply(request, agent if unrouted is None else None, unrouted)
                return
            await anyio.sleep(RETRY_DELAYS_S[min(attempts, len(RETRY_DELAYS_S) - 1)])
            attempts += 1

    async def _handle(self, signal: Signal) -> Agent:
        owned = self._owned
        server = self._fleet.runtime.whereis(owned.id)
        if server is None or server.persistence.ownership is not owned or not owned.is_valid():
            await owned.done.wait()  # by then the subscription is closed, and the next owner gets the signal
            raise NotRunning(owned.id)
        if not owned.has_handled(signal):
            return await self._fleet.runtime.deliver_and_wait(owned.id, Envelope(signal, PendingReply()))
        return server.agent if owned.is_flushed else await self._save(server)

    async def _save(self, server: AgentServer) -> Agent:
        reply = PendingReply()
        if not server.mailbox.put_internal(SaveRequest(reply)):
            raise Invalid("mailbox", "is full", "try again later")
        agent: Agent = await reply.wait()
        return agent

    def _is_ending(self) -> bool:
        """Return whether the agent is about to end here, or has: then nothing is wrong with the signal."""
        server = self._fleet.runtime.whereis(self._owned.id)
        return server is None or server.mailbox.closed or not self._owned.is_valid()

    async def _reply(self, request: Signal, agent: Agent | None, error: Exception | None = None) -> None:
        if REPLY_ATTRIBUTE not in request.extensions:
            return
        try:
            try:
                await self._fleet.requests.reply(request, agent, error)
            except Invalid as problem:  # an identity that is too large to be sent
                await self._fleet.requests.reply(request, None, problem)
        except Exception as problem:
            # The signal was handled and saved: a reply that cannot be sent does not make it fail.
            log.warning("agent %s: could not reply: %s", self._owned.id, type(problem).__name__)


class Fleet:
    """The part of a runtime that shares agents with other runtimes."""

    def __init__(
        self, runtime: Runtime, store: Any, name: str, lease_ms: int, takeover_interval_ms: int | None = None
    ) -> None:
        if store is None:
            raise MissingStore("store")
        for protocol in (SupportsLeases, SupportsDocuments):
            require(store, protocol, "lease agents")
        self.runtime = runtime
        self.store: Any = store
        self.name = check_text(name, "name")
        self.member = f"{self.name}@{ids.uuid7()}"
        """This run of the runtime: a restarted one has to wait until its old leases expire."""
        self.leases = Leases(store, self.member, lease_ms, self.lose_agent)
        self.directory = AgentDirectory(store, DEFAULT_NAMESPACE)
        self.requests = FleetRequests(self)
        interval = max(1, self.leases.lease_ms // 3) if takeover_interval_ms is None else takeover_interval_ms
        self._takeover_interval_ms = check_positive(interval, "takeover_interval_ms")
        self._running_until: dict[str, float] = {}
        self._is_taking_over = False
        self._closing = False

    @property
    def has_durable_transport(self) -> bool:
        """True if the transport stores a signal until it was handled; then sending waits for no receiver."""
        return bool(getattr(self.runtime.transport, "is_durable", False))

    # Opening and closing

    async def open(self) -> None:
        """Listen for replies, renew leases, and look for agents of runtimes that are gone."""
        await self.requests.open()
        self.runtime.spawn(self.leases.run)
        self._schedule_takeover()

    async def close(self, timeout: float) -> None:
        """Release every agent; all have ended by now."""
        self._closing = True
        with move_on_after(timeout):
            for owned in [*self.leases.owned.values()]:
                await owned.done.wait()
        self.leases.cancel_scope.cancel()
        await self.requests.close()

    def _schedule_takeover(self) -> None:
        def take_over() -> None:
            if not self._closing:
                self.runtime.spawn(self.take_over)
                self._schedule_takeover()

        self.runtime.timers.after(self._takeover_interval_ms, take_over)

    def lose_agent(self, owned: OwnedAgent, reason: str) -> None:
        """End an agent that another runtime may own; nothing of it is saved or sent any more."""
        owned.is_lost = True
        log.warning("agent %s: ended here: %s", owned.id, reason)
        server = self.runtime.whereis(owned.id)
        if server is not None and server.persistence.ownership is owned:
            server.kill()

    async def _claim(self, id: str) -> OwnedAgent:
        owned = await self.leases.acquire(id, self)
        if owned is None:
            location, _ = await self.directory.find(id)
            raise OwnedElsewhere(id, (location and location.runtime) or "another runtime")
        return owned

    # Agents

    async def start(self, agent: Agent, options: Mapping[str, Any]) -> AgentServer:
        """Start a new agent; it is saved at once, so that another runtime could take it over."""
        owned = await self._claim(agent.id)
        try:
            record = OwnershipRecord(member=self.member, token=owned.token)
            rev = await save_agent(agent, FencedCheckpointStore(self.store, record), expected_rev=0)
            return await self._start_owned(owned, SavedAgent(agent, rev), options)
        except BaseException:
            await self._release_unused(owned)
            raise

    async def thaw(self, id: str, definition: Definition, options: Mapping[str, Any]) -> AgentServer:
        """Load an agent from the store and start it; its former owner cannot save it any more."""
        owned = await self._claim(id)
        try:
            return await self._load_and_start(owned, definition, options)
        except BaseException:
            await self._release_unused(owned)
            raise

    async def _load_and_start(
        self, owned: OwnedAgent, definition: Definition, options: Mapping[str, Any]
    ) -> AgentServer:
        store = FencedCheckpointStore(self.store, OwnershipRecord(member=self.member, token=owned.token))
        # Fence only an agent that can be loaded; one that cannot is left as it is.
        await load_agent(owned.id, definition, store)
        self._check_owned(owned)
        record = await store.fence(owned.id)
        saved = await load_saved_agent(owned.id, definition, store)
        if record is not None:
            owned.restore(record)
        return await self._start_owned(owned, saved, options)

    async def _start_owned(
        self, owned: OwnedAgent, saved: SavedAgent, options: Mapping[str, Any]
    ) -> AgentServer:
        agent, rev, schedules = saved
        location = AgentLocation(
            id=owned.id, kind=agent.definition.name, runtime=self.name, member=self.member, token=owned.token
        )
        self._check_owned(owned)
        # Before the agent runs, so that others find it if this process dies in the next moment.
        owned.location_rev = await self.directory.set_owner(location)
        self._check_owned(owned)
        # A signal counts as handled when it is saved; a larger number trades safety for speed.
        if self.runtime.agent_options.save_every is None:
            options = {"save_every": 1, **options}
        server = self.runtime.start_local(agent, rev=rev, ownership=owned, schedules=schedules, **options)
        hibernated, owned.hibernates_on_exit = owned.hibernates_on_exit, True
        try:
            receiver = SignalReceiver(self, owned)
            owned.subscription = await self.runtime.transport.subscribe("**", receiver, agent=owned.id)
        except BaseException:
            owned.hibernates_on_exit = hibernated
            server.kill()
            raise
        if server.ended.is_set():
            # It ended before it had the subscription to close, which would take the next owner's signals.
            with anyio.CancelScope(shield=True):
                await owned.subscription.close()
            raise OwnedElsewhere(owned.id, "another runtime")
        owned.wake()
        return server

    def _check_owned(self, owned: OwnedAgent) -> None:
        if not owned.is_valid():
            raise OwnedElsewhere(owned.id, "another runtime")

    async def _release_unused(self, owned: OwnedAgent) -> None:
        """Release what was claimed in vain, unless the agent started already and is released by its end."""
        server = self.runtime.whereis(owned.id)
        if (server is not None and server.persistence.ownership is owned) or owned.is_releasing:
            return
        owned.is_releasing = True
        with anyio.CancelScope(shield=True):
            await self._release(owned)

    def on_agent_ended(self, owned: OwnedAgent) -> None:
        """Release an agent that ended here; it hibernates, unless it was lost to another runtime."""
        owned.is_releasing = True
        self.runtime.spawn(partial(self._release, owned))

    async def wait_released(self, id: str) -> None:
        """Wait until an agent that ended may be owned by another runtime."""
        owned = self.leases.owned.get(id)
        if owned is not None:
            await owned.done.wait()

    async def _release(self, owned: OwnedAgent) -> None:
        try:
            # Closed before the lease is released, so that the next owner is the only reader.
            if owned.subscription is not None:
                await owned.subscription.close()
            if owned.is_valid() and owned.hibernates_on_exit:
                location, rev = await self.directory.find(owned.id)
                if location is not None and rev == owned.location_rev:
                    await self.directory.save(location.replace(runtime=None, member=None), expected_rev=rev)
            await self.leases.release(owned)
        except Exception as error:
            log.warning("agent %s: could not be released: %s", owned.id, type(error).__name__)
        finally:
            self.leases.remove(owned)

    # Takeover

    async def take_over(self) -> list[str]:
        """Load and start agents of runtimes that are gone, while there is capacity, and return their ids."""
        ids: list[str] = []
        if self._is_taking_over or self._closing:
            return ids
        self._is_taking_over = True
        try:
            async for location in self.directory.iter_running():
                if self._closing or not self.runtime.has_capacity:
                    break
                if location.id not in self.leases.owned and location.kind in self.runtime.registry.kinds:
                    ids += await self._take_over_agent(location)
        except Exception as error:
            log.warning("fleet: could not look for agents: %s", type(error).__name__)
        finally:
            self._is_taking_over = False
        return ids

    async def _take_over_agent(self, location: AgentLocation) -> list[str]:
        try:
            owned = await self._claim(location.id)
        except (OwnedElsewhere, IdTaken):
            return []
        # Until it runs here: a takeover that fails must not mark it as hibernated.
        owned.hibernates_on_exit = False
        try:
            # Read again under the lease: the location was read before it.
            current, _ = await self.directory.find(location.id)
            if current is None or current.runtime is None:  # it was hibernated meanwhile
                await self._release_unused(owned)
                return []
            await self._load_and_start(owned, self.runtime.registry.kind(current.kind), {})
        except Exception as error:
            log.warning("agent %s: could not be taken over: %s", location.id, type(error).__name__)
            await self._release_unused(owned)
            return []
        log.warning("agent %s: taken over from %s", location.id, location.runtime)
        return [location.id]

    # Signals

    def log_save_delay(self, owned: OwnedAgent, error: Exception) -> None:
        """Log that something handled could not be saved or sent yet."""
        log.warning("agent %s: could not be saved yet: %s", owned.id, type(error).__name__)

    async def locate(self, id: str) -> str | None:
        """Return the name of the runtime that owns an agent, or owned it last; None if it hibernates."""
        location, _ = await self.directory.find(ids.check(id))
        if location is None:
            raise NotFound("agent of the fleet", id, "start it")
        return location.runtime

    async def deliver(self, signal: Signal, to: str | None) -> None:
        """Publish a signal to all, or send it to one agent."""
        if to is None:
            await self.runtime.transport.publish(signal)
        else:
            await self.send_to_agent(to, signal)

    async def send_to_agent(self, id: str, signal: Signal) -> None:
        """Send a signal to an agent, wherever it runs, or is about to run."""
        if self.runtime.whereis(id) is None and self._running_until.get(id, 0.0) < clock.monotonic():
            location, _ = await self.directory.find(ids.check(id))
            if location is None or location.runtime is None:
                raise NotRunning(id)
            self._cache_running(id)
        await self.runtime.transport.publish(signal, to=id)

    def _cache_running(self, id: str) -> None:
        """Remember for the time of a lease that an agent is running somewhere."""
        # Cleared as a whole: a lost entry costs one lookup in the directory.
        if len(self._running_until) >= 10_000:
            self._running_until.clear()
        self._running_until[id] = clock.monotonic() + self.leases.lease_ms / 1000
