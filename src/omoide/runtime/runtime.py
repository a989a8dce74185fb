"""Run the agents and sessions of one process under supervision.

The runtime is the only place where directives touch the world. `Runtime.call` puts a signal into the mailbox
of an `AgentServer`; the server's task passes it to the agent, and executes the directives that come back.

A runtime with a `name` is a member of a fleet: it owns an agent by a lease in the shared store before it runs
it, and reaches agents of other runtimes over the transport.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, Unpack

import anyio
from anyio import CancelScope, create_task_group, fail_after, move_on_after

from omoide.core.action import Action, Directive, MemoryDelete, MemoryQuery, MemoryUpsert
from omoide.core.agent import Agent, Candidate, Requirements, check_agent, mount, rank, unmount
from omoide.core.checkpoint import PendingSchedule
from omoide.core.definition import Definition, PluginLike
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
from omoide.runtime.checkpoints import (
    CheckpointStore,
    DocumentCheckpointStore,
    load_agent,
    load_saved_agent,
)
from omoide.runtime.executors import Executor
from omoide.runtime.fleet.directory import REPLY_ATTRIBUTE, FleetCandidate
from omoide.runtime.fleet.fleet import LEASE_MS, Fleet
from omoide.runtime.fleet.leases import OwnedAgent
from omoide.runtime.mailbox import (
    DroppedSignal,
    DroppedSignals,
    Envelope,
    PendingReply,
    PluginChange,
    SaveRequest,
)
from omoide.runtime.policy import AgentKwargs, AgentOptions
from omoide.runtime.providers import resolver
from omoide.runtime.providers.resolver import Providers
from omoide.runtime.registry import NamedFunctions, Registry
from omoide.runtime.scheduler import SystemTiming, Timers, Timing
from omoide.runtime.server import CAPABILITIES_REQUEST, AgentServer, Ownership
from omoide.runtime.sessions import PoolKwargs, SessionPool
from omoide.runtime.supervisor import stop_server, stop_tree, supervise
from omoide.runtime.transport import Bus, Subscription, Transport
from omoide.sessions.session import Session
from omoide.stores.protocols import SupportsDocuments
from omoide.turns.spec import AgentSpec

log = logging.getLogger("omoide.runtime")

ASK_TIMEOUT_S = 30.0
"""Longer than a takeover takes with the default lease."""
WHO_CAN_TIMEOUT_S = 1.0
SHUTDOWN_TIMEOUT_S = 10.0
SWEEP_INTERVAL_MS = 60_000


class Runtime:
    """The running agents and sessions of one process, from `async with` to its end.

    Args:
        store: The store of sessions, of checkpoints and of the provider `store`.
        checkpoint_store: Where agents are saved; by default documents of `store`. Not for a fleet.
        providers: Memory providers by alias; see `Providers`.
        kinds: The definitions that `SpawnAgent` and `thaw` may name.
        sensors: Async generators that `StartSensor` may name.
        processes: Async functions that `Spawn` may name.
        dispatchers: Functions of a signal and a config, as further targets of `Emit`.
        executors: Executors of your own directives, or in place of built-in ones.
        transport: The transport of signals; by default a `Bus` inside the process.
        timing: Another clock, for tests.
        agent_options: Defaults of `AgentOptions` for all agents.
        max_agents: The number of agents that may run at once.
        provider_timeout: Seconds that one memory directive may take; None for no limit.
        shutdown_timeout: Seconds that agents and sessions have to finish in the end.
        idle_ms: Milliseconds after which an unused session is closed; None for never.
        on_dropped: A function that is called with each `DroppedSignal`.
        name: The name of this runtime in a fleet; None for a runtime of its own.
        lease_ms: Milliseconds that a lease on an agent lasts without renewal.
        takeover_interval_ms: Milliseconds between searches for agents of runtimes that are gone; by default a
            third of the lease.
    """

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
        if not isinstance(agent_options, AgentOptions):
            agent_options = AgentOptions().merge(agent_options or {})
        self.agent_options = agent_options
        self.providers = Providers(providers, store=store)
        self.provider_timeout = check_seconds(provider_timeout, "provider_timeout")
        self._bus = Bus() if transport is None else None
        self.transport: Transport = self._bus or check_instance(transport, "transport", kind=Transport)
        self.timing: Timing = SystemTiming() if timing is None else timing
        self.timers = Timers(self.timing)
        listener = None if on_dropped is None else check_function(on_dropped, "on_dropped")
        self.dropped_signals = DroppedSignals(listener)
        """The last signals that were not handled, with their reasons."""
        self.registry = Registry(
            kinds=kinds, sensors=sensors, processes=processes, dispatchers=dispatchers, executors=executors
        )
        self.fleet = None if name is None else Fleet(self, store, name, lease_ms, takeover_interval_ms)
        if self.fleet is not None and checkpoint_store is not None:
            raise Invalid(
                "checkpoint_store", "is not shared by a fleet", "leave it out: the store holds its agents"
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
        """The number of signals that agents accepted."""
        self.handled_count = 0
        """The number of signals handled by agents that have ended; `stats` adds the running ones."""

    # Opening and closing

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
                CAPABILITIES_REQUEST, self._on_capabilities_request
            )
            if self.fleet is not None:
                await self.fleet.open()
        # Not entered: `async with` would not call `__aexit__`.
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
        # A task group would wrap an error of the block in a group, although none of its tasks failed.
        exc_info = (None, None, None) if isinstance(error, Exception) else (kind, error, trace)
        try:
            with CancelScope(shield=True):
                await self.close()
        except Exception:
            if error is None:  # an error of the block matters more
                raise
        finally:
            group.cancel_scope.cancel()
            try:
                await group.__aexit__(*exc_info)
            finally:
                self._task_group = None
                await self._close_resources(exc_info)

    async def _close_resources(self, exc_info: tuple[Any, Any, Any]) -> None:
        try:
            if self._bus is not None:
                await self._bus.__aexit__(*exc_info)
        finally:
            with CancelScope(shield=True):
                await self.providers.close()

    async def close(self) -> None:
        """Let agents and sessions finish within `shutdown_timeout`, then end those that did not.

        Raises:
            Exception: The first error of a session or subscription, after everything has been closed.
        """
        if self._closing:
            return
        self._closing = True
        errors: list[Exception] = []
        with move_on_after(self.shutdown_timeout):
            async with create_task_group() as group:
                # Only the roots: `stop_tree` ends the children of each after it.
                for server in [server for server in self._servers.values() if server.parent is None]:
                    group.start_soon(stop_tree, server, self)
                if self._sessions is not None:
                    group.start_soon(collect_error, self._sessions.close, errors)
        for server in [*self._servers.values()]:
            server.kill()
            await server.ended.wait()
        # After the agents: their leases are renewed until they have ended.
        if self.fleet is not None:
            await self.fleet.close(self.shutdown_timeout)
        if self._capabilities_subscription is not None:  # a transport may outlive the runtime
            await collect_error(self._capabilities_subscription.close, errors)
        if errors:
            raise errors[0]

    # Agents

    async def start(self, agent: Agent, *, id: str | None = None, **options: Unpack[AgentKwargs]) -> str:
        """Run an agent here.

        Args:
            agent: The agent, a value; the runtime works on its own copy.
            id: Another id for it.
            options: Fields of `AgentOptions`, over those of the runtime.

        Returns:
            The id of the agent.
        """
        check_agent(agent)
        if id is not None and id != agent.id:
            agent = agent.replace(id=id)
        self._check_capacity(agent.id)
        if self.fleet is not None:
            return (await self.fleet.start(agent, options)).id
        return self.start_local(agent, **options).id

    def start_local(
        self,
        agent: Agent,
        *,
        rev: int = 0,
        ownership: Ownership | None = None,
        schedules: Iterable[PendingSchedule] = (),
        **options: Unpack[AgentKwargs],
    ) -> AgentServer:
        """Start the task of an agent in this process, without claiming it in a fleet."""
        self._check_capacity(agent.id)
        merged = self.agent_options.merge(options)
        server = AgentServer(self, agent, merged, rev=rev, ownership=ownership, schedules=schedules)
        if server.options.save_every is not None:
            self.open_checkpoint_store()
        self._servers[agent.id] = server
        self._require_open().start_soon(supervise, server, self)
        return server

    async def call(
        self, id: str, signal: Signal, *, timeout: float | None = None, raise_errors: bool = False
    ) -> Agent:
        """Have a signal handled, and return the agent after it; its directives may still be under way.

        Of an agent that runs elsewhere in a fleet, the result is loaded from the store that the fleet shares,
        as it was last saved, and its kind has to be registered here.

        Args:
            id: The agent.
            signal: The signal.
            timeout: The seconds to wait at most.
            raise_errors: True to wait for the effectful actions of the signal too, until their results are
                merged, and to raise the first error about the signal.

        Raises:
            NotRunning: No agent of this id runs.
            Unrouted: The agent has no route for the signal.
            ActionFailed: An action failed, and `raise_errors` is set.
            Invalid: `raise_errors` is set, and the agent runs elsewhere in a fleet.
            Dropped: The agent ended before it handled the signal.
            TimedOut: It took longer than `timeout` seconds; the signal may still be handled.
        """
        envelope = Envelope(
            check_signal(signal),
            PendingReply(),
            awaits_effects=check_instance(raise_errors, "raise_errors", kind=bool),
        )
        if self._is_remote(id):
            if raise_errors:
                raise Invalid("raise_errors", f"is not possible: {id!r} runs on another node", "leave it out")
            reply: Any = await self.ask(id, signal, timeout=timeout)
            agent, _ = await load_agent(
                id, self.registry.kind(reply.data["name"]), self.open_checkpoint_store()
            )
            return agent
        if timeout is None:
            return await self.deliver_and_wait(id, envelope)
        seconds = check_seconds(timeout, "timeout")
        try:
            with fail_after(seconds):
                return await self.deliver_and_wait(id, envelope)
        except TimeoutError as error:
            raise TimedOut(f"signal {signal.type!r} to agent {id!r}", seconds or 0.0) from error

    async def deliver_and_wait(self, id: str, envelope: Envelope) -> Agent:
        """Put an envelope into the mailbox of a local agent, and return what its reply resolves to."""
        await self._put(id, envelope)
        agent: Agent = await (envelope.reply or PendingReply()).wait()
        return agent

    async def cast(self, id: str, signal: Signal, *, wait: bool = True) -> None:
        """Have a signal accepted, and do not wait until it is handled.

        A signal to an agent elsewhere in a fleet is accepted when the transport has it.

        Args:
            id: The agent.
            signal: The signal.
            wait: True to wait while the mailbox is full.

        Raises:
            MailboxFull: The mailbox is full, and `wait` is False.
        """
        envelope = Envelope(check_signal(signal))
        if self.fleet is not None and self._is_remote(id):
            await self.fleet.send_to_agent(id, signal)
            return
        if wait:
            await self._put(id, envelope)
            return
        server = self._server(id)
        if self._put_nowait(server, envelope):
            return
        if server.mailbox.closed:
            raise self._rejection(id, signal)
        self.dropped_signals.add(id, signal, "the mailbox is full", accepted=False)
        raise MailboxFull(id, signal.type, server.mailbox.size)

    async def state(self, id: str) -> Agent:
        """Return the agent as it is now."""
        return self._server(id).agent

    def whereis(self, id: str) -> AgentServer | None:
        """Return the server of a running agent, or None."""
        return self._servers.get(id)

    def ids(self) -> list[str]:
        """Return the ids of all running agents, oldest first."""
        return [*self._servers]

    def agents(self) -> list[Agent]:
        """Return all running agents that accept signals."""
        return [server.agent for server in self._servers.values() if not server.mailbox.closed]

    async def stop(self, id: str, *, timeout: float | None = None) -> None:
        """End an agent once it has handled what it accepted, or after `timeout` seconds."""
        await stop_server(self._server(id), check_seconds(timeout, "timeout") or self.shutdown_timeout)
        await self._wait_released(id)

    async def stop_if_running(self, id: str, reason: str) -> None:
        """End an agent for a reason; do nothing if it has ended already."""
        server = self._servers.get(id)
        if server is not None:
            log.info("agent %s: stopped: %s", id, reason)
            await stop_server(server, self.shutdown_timeout, reason)
            await self._wait_released(id)

    async def mount(self, id: str, plugin: PluginLike) -> Agent:
        """Mount a plugin on a running agent, in its turn, and return the agent with it.

        The plugin belongs to the agent's definition from then on: pass that one to `thaw`.

        Raises:
            InvalidDefinition: The plugin does not fit the agent.
            MountFailed: Its mount fails; the agent stays as it was.
        """
        return await self._change_plugins(id, lambda agent: mount(agent, plugin))

    async def unmount(self, id: str, label: str) -> Agent:
        """Unmount a plugin of a running agent, by its label, in its turn, and return the agent without it.

        Raises:
            NotFound: The agent has no such plugin.
            InvalidDefinition: Another plugin or a route needs it.
        """
        return await self._change_plugins(id, lambda agent: unmount(agent, label))

    async def _change_plugins(self, id: str, change: Callable[[Agent], Agent]) -> Agent:
        server, reply = self._server(id), PendingReply()
        if not server.mailbox.put_internal(PluginChange(change, reply)):
            raise MailboxFull(id, "change of plugins", server.mailbox.size)
        changed: Agent = await reply.wait()
        return changed

    async def find(
        self,
        *,
        action: str | Action | None = None,
        tags: Iterable[str] = (),
        limits: Mapping[str, Any] = EMPTY_MAP,
        io: Mapping[str, Any] = EMPTY_MAP,
    ) -> list[Candidate]:
        """Return the running agents with a capability, best first, each with the reason."""
        return rank(self.agents(), Requirements.new(action, tags, limits, io))

    async def publish(self, signal: Signal) -> None:
        """Publish a signal to all subscribers of its type."""
        await self.transport.publish(check_signal(signal))

    def stats(self) -> dict[str, int]:
        """Count the running agents, and the signals accepted, handled, waiting and dropped so far."""
        handled = sum(server.handled_count for server in self._servers.values())
        waiting = sum(len(server.mailbox) for server in self._servers.values())
        return {
            "agents": len(self._servers),
            "accepted": self.accepted_count,
            "handled": self.handled_count + handled,
            "waiting": waiting,
            "dropped": self.dropped_signals.count,
        }

    # Checkpoints

    async def checkpoint(self, id: str) -> Agent:
        """Save an agent after everything it accepted before, and return it; it keeps running."""
        server = self._server(id)
        self.open_checkpoint_store()
        reply = PendingReply()
        if not server.mailbox.put_internal(SaveRequest(reply)):
            raise MailboxFull(id, "checkpoint", server.mailbox.size)
        saved: Agent = await reply.wait()
        return saved

    async def hibernate(self, id: str, *, timeout: float | None = None) -> None:
        """Let an agent finish, save it, and end it; an agent that cannot be saved keeps running.

        Raises:
            TimedOut: It took longer than `timeout` seconds.
        """
        server = self._server(id)
        self.open_checkpoint_store()
        await server.hibernate(check_seconds(timeout, "timeout"))
        await self._wait_released(id)

    async def thaw(self, id: str, kind: Definition | str, **options: Unpack[AgentKwargs]) -> str:
        """Load an agent from its checkpoint and run it; a failure never starts a fresh agent.

        Its schedules and cron jobs go on. What was due meanwhile is sent at once; a cron job that would have
        fired waits for the next time.

        Args:
            id: The agent.
            kind: Its definition, or the name of one of the runtime's `kinds`.
            options: Fields of `AgentOptions`, over those of the runtime.

        Returns:
            The id of the agent.

        Raises:
            NotFound: The agent was never saved.
            RestoreFailed: Its checkpoint cannot be read, or is of another kind.
        """
        definition = self.registry.kind(kind) if isinstance(kind, str) else kind
        check_instance(definition, "kind", kind=Definition)
        if id in self._servers:
            raise IdTaken(id)
        if self.fleet is not None:
            self._check_capacity(id)
            return (await self.fleet.thaw(id, definition, options)).id
        saved = await load_saved_agent(id, definition, self.open_checkpoint_store())
        return self.start_local(saved.agent, rev=saved.rev, schedules=saved.schedules, **options).id

    def open_checkpoint_store(self) -> CheckpointStore:
        """Return the checkpoint store; by default one over the documents of the store."""
        if self._checkpoint_store is None:
            if self.store is None:
                raise MissingStore("store")
            if not isinstance(self.store, SupportsDocuments):
                raise Invalid(
                    "store", "stores no documents", "pass checkpoint_store=FileCheckpointStore(path)"
                )
            self._checkpoint_store = DocumentCheckpointStore(self.store)
        return self._checkpoint_store

    # Fleet

    async def ask(self, id: str, signal: Signal, *, timeout: float | None = None) -> Signal:
        """Have a signal handled by an agent of the fleet, and return its reply.

        The reply comes when the agent has handled the signal and was saved. Its data has `agent_id`, `name`,
        `runtime`, and in `shown` the public part of the agent's identity. It has nothing of the state,
        because others may listen on the transport; see `call`.

        Raises:
            TimedOut: No reply came within `timeout` seconds, 30 by default.
        """
        check_signal(signal)
        seconds = check_seconds(timeout, "timeout") or ASK_TIMEOUT_S
        return await self._require_fleet().requests.ask(id, signal, seconds)

    async def who_can(
        self,
        *,
        action: str | Action | None = None,
        tags: Iterable[str] = (),
        limits: Mapping[str, Any] = EMPTY_MAP,
        io: Mapping[str, Any] = EMPTY_MAP,
        timeout: float = WHO_CAN_TIMEOUT_S,
    ) -> list[FleetCandidate]:
        """Return the agents of the fleet with a capability, best first, of runtimes that reply in time."""
        seconds = check_seconds(timeout, "timeout") or WHO_CAN_TIMEOUT_S
        requirements = Requirements.new(action, tags, limits, io)
        return await self._require_fleet().requests.who_can(requirements, seconds)

    async def locate(self, id: str) -> str | None:
        """Return the name of the runtime that owns an agent, or owned it last; None if it hibernates."""
        return await self._require_fleet().locate(id)

    async def take_over(self) -> list[str]:
        """Run the agents of runtimes that are gone, and return their ids; a fleet also does so by itself."""
        return await self._require_fleet().take_over()

    def _require_fleet(self) -> Fleet:
        if self.fleet is None:
            raise Invalid("name", "is missing", "pass name= and a store that the fleet shares")
        return self.fleet

    async def _wait_released(self, id: str) -> None:
        """Wait until the lease of an agent that ended has been released."""
        if self.fleet is not None:
            await self.fleet.wait_released(id)

    # Sessions

    @property
    def sessions(self) -> SessionPool:
        """The live sessions."""
        if self._sessions is None:
            raise MissingStore("store")
        return self._sessions

    async def session(self, id: str, spec: AgentSpec | None = None, **options: Unpack[PoolKwargs]) -> Session:
        """Return the live session of this id, and open it if need be; it is closed with the runtime."""
        self._require_open()
        return await self.sessions.get(id, spec, **options)

    def _schedule_sweep(self) -> None:
        def sweep() -> None:
            if not self._closing:
                self.spawn(self._sweep)
                self._schedule_sweep()

        self.timers.after(min(self._idle_ms or SWEEP_INTERVAL_MS, SWEEP_INTERVAL_MS), sweep)

    async def _sweep(self) -> None:
        await self.sessions.sweep(self.timing.now())

    # For servers and executors

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Run something in the background, for as long as the runtime is open."""
        self._require_open(allow_closing=True).start_soon(work)

    def cast_nowait(self, id: str, signal: Signal) -> bool:
        """Have a signal accepted if there is room in the mailbox of a local agent now."""
        server = self._servers.get(id)
        return server is not None and self._put_nowait(server, Envelope(signal))

    def drop(self, id: str, envelope: Envelope, reason: str, *, accepted: bool = True) -> None:
        """Report that a signal will not be handled, and fail the reply that a caller waits for."""
        self.dropped_signals.add(id, envelope.signal, reason, accepted=accepted)
        if envelope.reply is not None:
            envelope.reply.set_exception(Dropped(id, envelope.signal.type, reason))

    def refuse_directive(self, server: AgentServer, directive: Directive, reason: str) -> None:
        """Answer a memory directive that will not be executed; other directives need no answer."""
        if isinstance(directive, (MemoryQuery, MemoryUpsert, MemoryDelete)):
            resolver.send_refusal(directive, server, reason)

    def register(self, directive: type[Directive], executor: Executor) -> None:
        """Add an executor of a directive: a function of the directive and the server, plain or async."""
        self.registry.add_executor(directive, executor)

    def add_kind(self, kind: Definition) -> None:
        """Register another kind of agent."""
        self.registry.add_kind(kind)

    def remove_server(self, server: AgentServer) -> None:
        """Remove the server of an agent that ended, and free its id."""
        self._servers.pop(server.id, None)
        self.handled_count += server.handled_count
        if self.fleet is not None and isinstance(server.persistence.ownership, OwnedAgent):
            self.fleet.on_agent_ended(server.persistence.ownership)

    async def _on_capabilities_request(self, request: Signal) -> None:
        """Answer a request for capabilities that was published to all agents."""
        # A request of another runtime gets one reply for all agents here, with those that qualify.
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
        accepted = server.mailbox.put_nowait(envelope)
        self.accepted_count += accepted
        return accepted

    def _server(self, id: str) -> AgentServer:
        server = self._servers.get(id)
        if server is None:
            raise NotRunning(id)
        return server

    @property
    def has_capacity(self) -> bool:
        """True if another agent may be started."""
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


def check_signal(signal: Signal) -> Signal:
    """Return a signal; raise `WrongType` for anything else."""
    if not isinstance(signal, Signal):
        raise WrongType("signal", "a Signal", signal)
    return signal


def check_seconds(value: float | None, field: str) -> float | None:
    """Return a number of seconds above 0, or None; raise `Invalid` for anything else."""
    if value is not None and (
        isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0
    ):
        raise Invalid(field, f"is {value!r}", "use a number of seconds above 0, or None")
    return value


async def collect_error(work: Callable[[], Awaitable[object]], errors: list[Exception]) -> None:
    """Await work, and append the exception that it raises to a list."""
    try:
        await work()
    except Exception as error:
        errors.append(error)
