"""Runtime.

What its plugins subscribed to is put into its mailbox, and what they have scheduled is begun.

A runtime holds agents and sessions under supervision. It is the only place where directives touch the world.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
from anyio import CancelScope, create_task_group, fail_after, move_on_after

from omoide.core.action import Cron, Directive, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.core.agent import Agent, Candidate, check_agent, rank
from omoide.core.definition import Definition
from omoide.core.entry import check_positive
from omoide.core.frozen import EMPTY_MAP
from omoide.core.signal import Signal
from omoide.core.value import check_function, check_instance
from omoide.errors import (
    Closed,
    Dropped,
    IdTaken,
    Invalid,
    MailboxFull,
    MissingStore,
    NotRunning,
    TimedOut,
    TooManyAgents,
    WrongType,
)
from omoide.runtime import server as capabilities
from omoide.runtime.checkpoints import CheckpointStore, DocumentCheckpointStore, load_agent
from omoide.runtime.executors import Executor
from omoide.runtime.fleet.directory import REPLY_ATTRIBUTE, FleetCandidate, as_agent
from omoide.runtime.fleet.fleet import LEASE_MS, Fleet
from omoide.runtime.fleet.leases import OwnedAgent
from omoide.runtime.mailbox import DroppedSignal, DroppedSignals, Envelope, PendingReply, SaveRequest
from omoide.runtime.persistence import Ownership
from omoide.runtime.policy import AgentOptions
from omoide.runtime.providers import resolver
from omoide.runtime.providers.resolver import Providers
from omoide.runtime.registry import NamedFunctions, Registry
from omoide.runtime.scheduler import SystemTiming, Timers, Timing
from omoide.runtime.server import AgentServer
from omoide.runtime.sessions import SessionPool
from omoide.runtime.supervisor import stop_server, stop_tree, supervise
from omoide.runtime.transport import Bus, Subscription, Transport
from omoide.sessions.session import Session
from omoide.stores.protocols import SupportsDocuments
from omoide.turns.spec import AgentSpec

# beginning: What goes on for an agent from the first moment of its life?


def _start_plugins(server: AgentServer, runtime: Runtime) -> None:
    """Subscribe and schedule what the plugins of an agent ask for."""
    for plugin in server.agent.definition.plugins:
        for pattern in plugin.subscriptions:
            server.start_job(partial(_subscribe_server, str(pattern), server, runtime), "subscription")
        for at, (line, message) in enumerate(plugin.schedules):
            server.execute_directives([Cron(expression=line, message=message, job_id=f"{plugin.label}:{at}")])


async def _subscribe_server(pattern: str, server: AgentServer, runtime: Runtime) -> None:
    life = server.task_scope

    async def heard(signal: Signal) -> None:
        if life.closed:
            return  # whoever has the agent by now hears it, too
        if signal.type != capabilities.CAPABILITIES_REQUEST:  # that is answered for all
            await runtime.cast(server.id, signal)

    subscription = await runtime.transport.subscribe(pattern, heard)
    if life.closed:
        await subscription.close()
    else:
        life.exit_callbacks.append(partial(runtime.spawn, subscription.close))


# given: Is what a runtime was given what it can use?


def check_signal(signal: Signal) -> Signal:
    """A signal."""
    if not isinstance(signal, Signal):
        raise WrongType("signal", "a Signal", signal)
    return signal


def check_seconds(value: float | None, field: str) -> float | None:
    """A number of seconds above 0, or None."""
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0
    ):
        raise Invalid(field, f"is {value!r}", "use a number of seconds above 0, or None")
    return value


async def collect_error(work: Callable[[], Awaitable[object]], errors: list[Exception]) -> None:
    """Do something, and note what it fails with."""
    try:
        await work()
    except Exception as error:
        errors.append(error)


# member: What can a runtime be asked about the fleet that it is one of?


ASK_TIMEOUT_S = 30.0
"""Longer than a takeover needs with the usual lease."""
WHO_CAN_TIMEOUT_S = 1.0


class FleetMember:
    """A runtime with a name among others; one without has no fleet to ask."""

    fleet: Fleet | None = None
    """What the runtime does as one of several, if it has a name among them."""

    async def ask(self, id: str, signal: Signal, *, timeout: float | None = None) -> Signal:
        """The answer of an agent elsewhere in the fleet: `agent_id`, `name`, `runtime` and `state`, as data.

        It comes when the agent has handled the signal and was saved; `TimedOut` where it does not.
        """
        check_signal(signal)
        return await self._require_fleet().requests.ask(
            id, signal, check_seconds(timeout, "timeout") or ASK_TIMEOUT_S
        )

    async def who_can(
        self,
        *,
        action: str | None = None,
        tags: Iterable[str] = (),
        limits: Mapping[str, Any] = EMPTY_MAP,
        timeout: float = WHO_CAN_TIMEOUT_S,
    ) -> list[FleetCandidate]:
        """The agents of the whole fleet that can do something, best first, as far as they answer in time."""
        seconds = check_seconds(timeout, "timeout") or WHO_CAN_TIMEOUT_S
        return await self._require_fleet().requests.who_can(action, tags, limits, seconds)

    async def locate(self, id: str) -> str | None:
        """The name of the runtime where an agent lives, or did until it was gone; None for one at rest."""
        return await self._require_fleet().locate(id)

    async def take_over(self) -> list[str]:
        """Take up agents whose runtime is gone, now; their ids. A fleet looks by itself, too."""
        return await self._require_fleet().take_over()

    def _require_fleet(self) -> Fleet:
        if self.fleet is None:
            raise Invalid("name", "is missing", "pass name= and a store that the fleet shares")
        return self.fleet

    async def _wait_released(self, id: str) -> None:
        """Return when an agent that ended may be let live by others."""
        if self.fleet is not None:
            await self.fleet.wait_released(id)


# runtime: Where do agents live?


beginning_begin = _start_plugins


log = logging.getLogger("omoide.runtime")

SHUTDOWN_TIMEOUT_S = 10.0
SWEEP_INTERVAL_MS = 60_000


class Runtime(FleetMember):
    """Agents that live, from `async with` to its end."""

    source = "/omoide/runtime"

    def __init__(
        self,
        *,
        store: Any = None,
        checkpoint_store: CheckpointStore | None = None,
        providers: Mapping[str, Any] = EMPTY_MAP,
        kinds: Iterable[Definition] = (),
        sensors: NamedFunctions = EMPTY_MAP,
        processes: NamedFunctions = EMPTY_MAP,
        dispatchers: NamedFunctions = EMPTY_MAP,
        executors: Mapping[type[Directive], Executor] = EMPTY_MAP,
        transport: Transport | None = None,
        timing: Timing | None = None,
        agent_options: AgentOptions | Mapping[str, Any] | None = None,
        max_agents: int | None = None,
        provider_timeout: float | None = 30.0,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT_S,
        idle_ms: int | None = None,
        on_dropped: Callable[[DroppedSignal], Any] | None = None,
        name: str | None = None,
        lease_ms: int = LEASE_MS,
        takeover_interval_ms: int | None = None,
    ) -> None:
        self.store = store
        self.agent_options = (
            agent_options
            if isinstance(agent_options, AgentOptions)
            else AgentOptions().merge(agent_options or {})
        )
        self.providers = Providers(providers, store=store)
        self.provider_timeout = check_seconds(provider_timeout, "provider_timeout")
        self._bus = Bus() if transport is None else None
        self.transport: Transport = self._bus or check_instance(transport, "transport", kind=Transport)
        self.timing: Timing = SystemTiming() if timing is None else timing
        self.timers = Timers(self.timing)
        listener = None if on_dropped is None else check_function(on_dropped, "on_dropped")
        self.dropped_signals = DroppedSignals(listener)
        """The signals that were not handled, with their reasons."""
        self.registry = Registry(
            kinds=kinds, sensors=sensors, processes=processes, dispatchers=dispatchers, executors=executors
        )
        self.fleet = None if name is None else Fleet(self, store, name, lease_ms, takeover_interval_ms)
        if self.fleet is not None and checkpoint_store is not None:
            raise Invalid(
                "checkpoint_store", "is not shared by a fleet", "leave it out: the store keeps its agents"
            )
        self._checkpoint_store = checkpoint_store
        self._max_agents = None if max_agents is None else check_positive(max_agents, "max_agents")
        self.shutdown_timeout = check_seconds(shutdown_timeout, "shutdown_timeout") or SHUTDOWN_TIMEOUT_S
        self._servers: dict[str, AgentServer] = {}
        self._sessions = None if store is None else SessionPool(store, idle_ms=idle_ms)
        self._idle_ms = idle_ms
        self._task_group: anyio.abc.TaskGroup | None = None
        self._capabilities_subscription: Subscription | None = None
        self._closing = False
        self.accepted_count = 0
        """How many signals agents took in."""
        self.handled_count = 0
        """How many signals agents that are gone had handled; see `stats`."""

    # From the beginning to the end

    async def __aenter__(self) -> Self:
        if self._task_group is not None or self._closing:
            raise Closed("runtime", "was entered before", "make another one")
        await self.providers.open()
        if self._bus is not None:
            await self._bus.__aenter__()
        self._task_group = create_task_group()
        await self._task_group.__aenter__()
        self._task_group.start_soon(self.timers.run)
        try:
            self._capabilities_subscription = await self.transport.subscribe(
                capabilities.CAPABILITIES_REQUEST, self._on_capabilities_request
            )
            if self.fleet is not None:
                await self.fleet.open()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        if self._idle_ms is not None:
            self._schedule_sweep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group = self._task_group
        if group is None:
            return
        # A group would wrap what was raised in the block, which is none of its tasks' fault.
        given = (None, None, None) if isinstance(error, Exception) else (kind, error, trace)
        try:
            with CancelScope(shield=True):
                await self.close()
        except Exception:
            if error is None:  # what was raised in the block is what matters
                raise
        finally:
            group.cancel_scope.cancel()
            try:
                await group.__aexit__(*given)
            finally:
                self._task_group = None
                await self._close_resources(given)

    async def _close_resources(self, exc_info: tuple[Any, Any, Any]) -> None:
        try:
            if self._bus is not None:
                await self._bus.__aexit__(*exc_info)
        finally:
            with CancelScope(shield=True):
                await self.providers.close()

    async def close(self) -> None:
        """Finish what is under way, within the deadline; what could not be finished is reported.

        What sessions fail with is raised when all is at its end.
        """
        if self._closing:
            return
        self._closing = True
        failed: list[Exception] = []
        with move_on_after(self.shutdown_timeout):
            async with create_task_group() as group:
                for server in [one for one in self._servers.values() if one.parent is None]:
                    group.start_soon(stop_tree, server, self)
                if self._sessions is not None:
                    group.start_soon(collect_error, self._sessions.close, failed)
        for server in [*self._servers.values()]:
            server.kill()
            await server.ended.wait()
        if self.fleet is not None:
            await self.fleet.close(self.shutdown_timeout)
        if self._capabilities_subscription is not None:  # a transport may live longer
            await collect_error(self._capabilities_subscription.close, failed)
        if failed:
            raise failed[0]

    # Agents

    async def start(self, agent: Agent, *, id: str | None = None, **options: Any) -> str:
        """Let an agent live here; its id. Terms are those of `Terms`, over those of the runtime."""
        check_agent(agent)
        if id is not None and id != agent.id:
            agent = agent.replace(id=id)
        self._check_capacity(agent.id)
        if self.fleet is not None:
            return (await self.fleet.start(agent, options)).id
        return self.start_local(agent, **options).id

    def start_local(
        self, agent: Agent, *, rev: int = 0, ownership: Ownership | None = None, **options: Any
    ) -> AgentServer:
        """Let an agent live here, at once."""
        self._check_capacity(agent.id)
        server = AgentServer(self, agent, self.agent_options.merge(options), rev=rev, ownership=ownership)
        if server.options.save_every is not None:
            self.open_checkpoint_store()
        self._servers[agent.id] = server
        self._require_open().start_soon(supervise, server, self)
        return server

    async def call(self, id: str, signal: Signal, *, timeout: float | None = None) -> Agent:
        """The agent after a signal; its directives may still be under way.

        `Unrouted` where it knows no such signal, `Dropped` where it ended before. Of one that lives elsewhere
        in a fleet it is a copy without its thread, and its kind has to be known here; see `ask`.
        """
        letter = Envelope(check_signal(signal), PendingReply())
        if self._is_remote(id):
            return as_agent(await self.ask(id, signal, timeout=timeout), self.registry.kind)
        if timeout is None:
            return await self.deliver_and_wait(id, letter)
        seconds = check_seconds(timeout, "timeout")
        try:
            with fail_after(seconds):
                return await self.deliver_and_wait(id, letter)
        except TimeoutError as error:
            raise TimedOut(f"signal {signal.type!r} to agent {id!r}", seconds or 0.0) from error

    async def deliver_and_wait(self, id: str, envelope: Envelope) -> Agent:
        """The agent after a letter that has somebody who waits for what comes of it."""
        await self._put(id, envelope)
        agent: Agent = await (envelope.reply or PendingReply()).wait()
        return agent

    async def cast(self, id: str, signal: Signal, *, wait: bool = True) -> None:
        """Have a signal accepted; where the mailbox is full, wait, or raise `MailboxFull`.

        For an agent elsewhere in a fleet it is accepted when the transport has it.
        """
        letter = Envelope(check_signal(signal))
        if self.fleet is not None and self._is_remote(id):
            await self.fleet.send_to_agent(id, signal)
            return
        if wait:
            await self._put(id, letter)
            return
        server = self._server(id)
        if self._put_nowait(server, letter):
            return
        if server.mailbox.closed:
            raise self._rejection(id, signal)
        self.dropped_signals.add(id, signal, "the mailbox is full", accepted=False)
        raise MailboxFull(id, signal.type, server.mailbox.size)

    async def state(self, id: str) -> Agent:
        """The agent as it is now."""
        return self._server(id).agent

    def whereis(self, id: str) -> AgentServer | None:
        """The server of a live agent, or None."""
        return self._servers.get(id)

    def ids(self) -> list[str]:
        """The ids of all live agents, oldest first."""
        return [*self._servers]

    def agents(self) -> list[Agent]:
        """All live agents that take signals."""
        return [server.agent for server in self._servers.values() if not server.mailbox.closed]

    async def stop(self, id: str, *, timeout: float | None = None) -> None:
        """End an agent once it has handled what it accepted; after so many seconds it is ended anyway."""
        await stop_server(self._server(id), check_seconds(timeout, "timeout") or self.shutdown_timeout)
        await self._wait_released(id)

    async def stop_if_running(self, id: str, reason: str) -> None:
        """End an agent that may have ended already."""
        server = self._servers.get(id)
        if server is not None:
            log.info("agent %s: is stopped: %s", id, reason)
            await stop_server(server, self.shutdown_timeout, reason)
            await self._wait_released(id)

    async def find(
        self,
        *,
        action: str | None = None,
        tags: Iterable[str] = (),
        limits: Mapping[str, Any] = EMPTY_MAP,
    ) -> list[Candidate]:
        """The live agents that can do something, best first, each with the reason."""
        return rank(self.agents(), action, tags, limits)

    async def publish(self, signal: Signal) -> None:
        """Tell everybody who subscribed to such signals."""
        await self.transport.publish(check_signal(signal))

    def stats(self) -> dict[str, int]:
        """How many agents live, and what became of signals so far."""
        handled = sum(server.handled_count for server in self._servers.values())
        waiting = sum(len(server.mailbox) for server in self._servers.values())
        return {
            "agents": len(self._servers),
            "accepted": self.accepted_count,
            "handled": self.handled_count + handled,
            "waiting": waiting,
            "dropped": self.dropped_signals.count,
        }

    # Agents at rest

    async def checkpoint(self, id: str) -> Agent:
        """Put an agent into the vault, with all that it accepted before; it goes on living."""
        server = self._server(id)
        self.open_checkpoint_store()
        reply = PendingReply()
        if not server.mailbox.put_internal(SaveRequest(reply)):
            raise MailboxFull(id, "checkpoint", server.mailbox.size)
        saved: Agent = await reply.wait()
        return saved

    async def hibernate(self, id: str, *, timeout: float | None = None) -> None:
        """Let an agent finish, put it into the vault, and end it; if it cannot be saved, it lives on."""
        server = self._server(id)
        self.open_checkpoint_store()
        await server.hibernate(check_seconds(timeout, "timeout"))
        await self._wait_released(id)

    async def thaw(self, id: str, kind: Definition | str, **options: Any) -> str:
        """Take an agent up again from the vault; where that is not possible, an error, never a fresh one."""
        definition = self.registry.kind(kind) if isinstance(kind, str) else kind
        check_instance(definition, "kind", kind=Definition)
        if id in self._servers:
            raise IdTaken(id)
        if self.fleet is not None:
            self._check_capacity(id)
            return (await self.fleet.thaw(id, definition, options)).id
        agent, rev = await load_agent(id, definition, self.open_checkpoint_store())
        return self.start_local(agent, rev=rev, **options).id

    def open_checkpoint_store(self) -> CheckpointStore:
        """Where agents are kept."""
        if self._checkpoint_store is None:
            if self.store is None:
                raise MissingStore("store")
            if not isinstance(self.store, SupportsDocuments):
                raise Invalid(
                    "store", "keeps no documents", "pass checkpoint_store=FileCheckpointStore(path)"
                )
            self._checkpoint_store = DocumentCheckpointStore(self.store)
        return self._checkpoint_store

    # Sessions

    @property
    def sessions(self) -> SessionPool:
        """The live sessions."""
        if self._sessions is None:
            raise MissingStore("store")
        return self._sessions

    async def session(self, id: str, spec: AgentSpec | None = None, **options: Any) -> Session:
        """The live session of this id, opened if need be; it is closed with the runtime."""
        self._require_open()
        return await self.sessions.get(id, spec, **options)

    def _schedule_sweep(self) -> None:
        every = min(self._idle_ms or SWEEP_INTERVAL_MS, SWEEP_INTERVAL_MS)

        def ring() -> None:
            if not self._closing:
                self.spawn(self._sweep)
                self._schedule_sweep()

        self.timers.after(every, ring)

    async def _sweep(self) -> None:
        await self.sessions.sweep(self.timing.now())

    # For servers and executors

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do something in the background."""
        self._require_open(allow_closing=True).start_soon(work)

    def cast_nowait(self, id: str, signal: Signal) -> bool:
        """Have a signal accepted, if that needs no waiting."""
        server = self._servers.get(id)
        return server is not None and self._put_nowait(server, Envelope(signal))

    def drop(self, id: str, envelope: Envelope, reason: str, *, accepted: bool = True) -> None:
        """Report that a letter will not be handled; who waits for it is told."""
        self.dropped_signals.add(id, envelope.signal, reason, accepted=accepted)
        if envelope.reply is not None:
            envelope.reply.set_exception(Dropped(id, envelope.signal.type, reason))

    def refuse_directive(self, server: AgentServer, directive: Directive, reason: str) -> None:
        """A directive will not be carried out; a memory request is answered nevertheless."""
        if isinstance(directive, (MemoryQuery, MemoryUpsert, MemoryDelete)):
            resolver.send_refusal(directive, server, reason)

    def register(self, directive: type[Directive], executor: Executor) -> None:
        """Carry out a directive of one's own: a function of the directive and the server, plain or async."""
        self.registry.add_executor(directive, executor)

    def add_kind(self, kind: Definition) -> None:
        """Know another kind of agent."""
        self.registry.add_kind(kind)

    def start_plugins(self, server: AgentServer) -> None:
        """At the begin of a life: what its plugins subscribed to, and what they have scheduled."""
        beginning_begin(server, self)

    def remove_server(self, server: AgentServer) -> None:
        """An agent is gone, and its id is free again."""
        self._servers.pop(server.id, None)
        self.handled_count += server.handled_count
        if self.fleet is not None and isinstance(server.persistence.ownership, OwnedAgent):
            self.fleet.on_agent_ended(server.persistence.ownership)

    async def _on_capabilities_request(self, request: Signal) -> None:
        """Somebody asks all agents what they can do."""
        if REPLY_ATTRIBUTE in request.extensions:
            if self.fleet is not None:
                await self.fleet.requests.reply_with_candidates(request)
            return
        for server in [*self._servers.values()]:
            server.enqueue(request, internal=True)

    async def _put(self, id: str, envelope: Envelope) -> None:
        if not await self._server(id).mailbox.put(envelope, self._count_accepted):
            raise self._rejection(id, envelope.signal)

    def _count_accepted(self) -> None:
        self.accepted_count += 1

    def _rejection(self, id: str, signal: Signal) -> Dropped:
        reason = "the agent is ending"
        self.dropped_signals.add(id, signal, reason, accepted=False)
        return Dropped(id, signal.type, reason)

    def _put_nowait(self, server: AgentServer, envelope: Envelope) -> bool:
        taken = server.mailbox.put_nowait(envelope)
        self.accepted_count += taken
        return taken

    def _server(self, id: str) -> AgentServer:
        server = self._servers.get(id)
        if server is None:
            raise NotRunning(id)
        return server

    @property
    def has_capacity(self) -> bool:
        """Whether another agent could live here."""
        return self._max_agents is None or len(self._servers) < self._max_agents

    def _check_capacity(self, id: str) -> None:
        self._require_open()
        if id in self._servers:
            raise IdTaken(id)
        if not self.has_capacity:
            raise TooManyAgents("the runtime", self._max_agents or 0)

    def _is_remote(self, id: str) -> bool:
        return self.fleet is not None and id not in self._servers

    def _require_open(self, *, allow_closing: bool = False) -> anyio.abc.TaskGroup:
        if self._task_group is None or (self._closing and not allow_closing):
            raise Closed("runtime", "is not open", "use it inside of `async with Runtime(…)`")
        return self._task_group
