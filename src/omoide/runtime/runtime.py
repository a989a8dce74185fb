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
from omoide.core.frozen import EMPTY_MAP
from omoide.core.requests import check_positive
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
from omoide.runtime.executors import Executor
from omoide.runtime.fleet.directory import REPLY, Found, as_agent
from omoide.runtime.fleet.fleet import LEASE_MS, Fleet
from omoide.runtime.fleet.leases import Held
from omoide.runtime.mailbox import Drop, Drops, Letter, Reply, Save
from omoide.runtime.persistence import Hold
from omoide.runtime.policy import Terms
from omoide.runtime.providers import resolver
from omoide.runtime.providers.resolver import Providers
from omoide.runtime.registry import Known, Named
from omoide.runtime.scheduler import SystemTiming, Timers, Timing
from omoide.runtime.server import AgentServer
from omoide.runtime.sessions import Conversations
from omoide.runtime.supervisor import ended_within, finished, supervise
from omoide.runtime.transport import Bus, Subscription, Transport
from omoide.runtime.vaults import StoreVault, Vault, taken_up
from omoide.sessions.session import Session
from omoide.stores.protocols import Documents
from omoide.turns.spec import AgentSpec

# beginning: What goes on for an agent from the first moment of its life?


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


# given: Is what a runtime was given what it can use?


def check_signal(signal: Signal) -> Signal:
    """A signal."""
    if not isinstance(signal, Signal):
        raise WrongType("signal", "a Signal", signal)
    return signal


def check_seconds(given: float | None, field: str) -> float | None:
    """A number of seconds above 0, or None."""
    if given is not None and (
        isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0
    ):
        raise Invalid(field, f"is {given!r}", "use a number of seconds above 0, or None")
    return given


async def noting(work: Callable[[], Awaitable[object]], failed: list[Exception]) -> None:
    """Do something, and note what it fails with."""
    try:
        await work()
    except Exception as error:
        failed.append(error)


# member: What can a runtime be asked about the fleet that it is one of?


ASK_S = 30.0
"""Longer than a takeover needs with the usual lease."""
WHO_CAN_S = 1.0


class Member:
    """A runtime with a name among others; one without has no fleet to ask."""

    fleet: Fleet | None = None
    """What the runtime does as one of several, if it has a name among them."""

    async def ask(self, id: str, signal: Signal, *, within: float | None = None) -> Signal:
        """The answer of an agent elsewhere in the fleet: `agent_id`, `name`, `runtime` and `state`, as data.

        It comes when the agent has handled the signal and was saved; `TimedOut` where it does not.
        """
        check_signal(signal)
        return await self._in_fleet().asking.ask(id, signal, check_seconds(within, "within") or ASK_S)

    async def who_can(
        self,
        *,
        action: str | None = None,
        tags: Iterable[str] = (),
        limits: Mapping[str, Any] = EMPTY_MAP,
        within: float = WHO_CAN_S,
    ) -> list[Found]:
        """The agents of the whole fleet that can do something, best first, as far as they answer in time."""
        seconds = check_seconds(within, "within") or WHO_CAN_S
        return await self._in_fleet().asking.who_can(action, tags, limits, seconds)

    async def where(self, id: str) -> str | None:
        """The name of the runtime where an agent lives, or did until it was gone; None for one at rest."""
        return await self._in_fleet().where(id)

    async def look(self) -> list[str]:
        """Take up agents whose runtime is gone, now; their ids. A fleet looks by itself, too."""
        return await self._in_fleet().look()

    def _in_fleet(self) -> Fleet:
        if self.fleet is None:
            raise Invalid("name", "is missing", "pass name= and a store that the fleet shares")
        return self.fleet

    async def _given_back(self, id: str) -> None:
        """Return when an agent that ended may be let live by others."""
        if self.fleet is not None:
            await self.fleet.given_back(id)


# runtime: Where do agents live?


beginning_begin = begin


log = logging.getLogger("omoide.runtime")

SHUTDOWN_S = 10.0
SWEEP_MS = 60_000


class Runtime(Member):
    """Agents that live, from `async with` to its end."""

    source = "/omoide/runtime"

    def __init__(
        self,
        *,
        store: Any = None,
        vault: Vault | None = None,
        providers: Mapping[str, Any] = EMPTY_MAP,
        kinds: Iterable[Definition] = (),
        sensors: Named = EMPTY_MAP,
        processes: Named = EMPTY_MAP,
        dispatchers: Named = EMPTY_MAP,
        executors: Mapping[type[Directive], Executor] = EMPTY_MAP,
        transport: Transport | None = None,
        timing: Timing | None = None,
        terms: Terms | Mapping[str, Any] | None = None,
        max_agents: int | None = None,
        provider_timeout: float | None = 30.0,
        shutdown: float = SHUTDOWN_S,
        idle_ms: int | None = None,
        on_dropped: Callable[[Drop], Any] | None = None,
        name: str | None = None,
        lease_ms: int = LEASE_MS,
        look_ms: int | None = None,
    ) -> None:
        self.store = store
        self.terms = terms if isinstance(terms, Terms) else Terms().but(terms or {})
        self.providers = Providers(providers, store=store)
        self.provider_timeout = check_seconds(provider_timeout, "provider_timeout")
        self._bus = Bus() if transport is None else None
        self.transport: Transport = self._bus or check_instance(transport, "transport", kind=Transport)
        self.timing: Timing = SystemTiming() if timing is None else timing
        self.timers = Timers(self.timing)
        listener = None if on_dropped is None else check_function(on_dropped, "on_dropped")
        self.dropped = Drops(listener)
        """The signals that were not handled, with their reasons."""
        self.known = Known(
            kinds=kinds, sensors=sensors, processes=processes, dispatchers=dispatchers, executors=executors
        )
        self.fleet = None if name is None else Fleet(self, store, name, lease_ms, look_ms)
        if self.fleet is not None and vault is not None:
            raise Invalid("vault", "is not shared by a fleet", "leave it out: the store keeps its agents")
        self._vault = vault
        self._max_agents = None if max_agents is None else check_positive(max_agents, "max_agents")
        self.shutdown = check_seconds(shutdown, "shutdown") or SHUTDOWN_S
        self._servers: dict[str, AgentServer] = {}
        self._sessions = None if store is None else Conversations(store, idle_ms=idle_ms)
        self._idle_ms = idle_ms
        self._group: anyio.abc.TaskGroup | None = None
        self._hearing: Subscription | None = None
        self._closing = False
        self.accepted = 0
        """How many signals agents took in."""
        self.handled = 0
        """How many signals agents that are gone had handled; see `stats`."""

    # From the beginning to the end

    async def __aenter__(self) -> Self:
        if self._group is not None or self._closing:
            raise Closed("runtime", "was entered before", "make another one")
        await self.providers.open()
        if self._bus is not None:
            await self._bus.__aenter__()
        self._group = create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self.timers.run)
        try:
            self._hearing = await self.transport.subscribe(capabilities.REQUEST, self._asked)
            if self.fleet is not None:
                await self.fleet.open()
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        if self._idle_ms is not None:
            self._sweep_later()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        group = self._group
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
                self._group = None
                await self._let_go(given)

    async def _let_go(self, given: tuple[Any, Any, Any]) -> None:
        try:
            if self._bus is not None:
                await self._bus.__aexit__(*given)
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
        with move_on_after(self.shutdown):
            async with create_task_group() as group:
                for server in [one for one in self._servers.values() if one.parent is None]:
                    group.start_soon(finished, server, self)
                if self._sessions is not None:
                    group.start_soon(noting, self._sessions.close, failed)
        for server in [*self._servers.values()]:
            server.kill()
            await server.ended.wait()
        if self.fleet is not None:
            await self.fleet.close(self.shutdown)
        if self._hearing is not None:  # a transport may live longer
            await noting(self._hearing.close, failed)
        if failed:
            raise failed[0]

    # Agents

    async def start(self, agent: Agent, *, id: str | None = None, **terms: Any) -> str:
        """Let an agent live here; its id. Terms are those of `Terms`, over those of the runtime."""
        check_agent(agent)
        if id is not None and id != agent.id:
            agent = agent.replace(id=id)
        self._check_room(agent.id)
        if self.fleet is not None:
            return (await self.fleet.start(agent, terms)).id
        return self.begin(agent, **terms).id

    def begin(self, agent: Agent, *, rev: int = 0, hold: Hold | None = None, **terms: Any) -> AgentServer:
        """Let an agent live here, at once."""
        self._check_room(agent.id)
        server = AgentServer(self, agent, self.terms.but(terms), rev=rev, hold=hold)
        if server.terms.save_every is not None:
            self.open_vault()
        self._servers[agent.id] = server
        self._open().start_soon(supervise, server, self)
        return server

    async def call(self, id: str, signal: Signal, *, within: float | None = None) -> Agent:
        """The agent after a signal; its directives may still be under way.

        `Unrouted` where it knows no such signal, `Dropped` where it ended before. Of one that lives elsewhere
        in a fleet it is a copy without its thread, and its kind has to be known here; see `ask`.
        """
        letter = Letter(check_signal(signal), Reply())
        if self._is_elsewhere(id):
            return as_agent(await self.ask(id, signal, within=within), self.known.kind)
        if within is None:
            return await self.handled_by(id, letter)
        seconds = check_seconds(within, "within")
        try:
            with fail_after(seconds):
                return await self.handled_by(id, letter)
        except TimeoutError as error:
            raise TimedOut(f"signal {signal.type!r} to agent {id!r}", seconds or 0.0) from error

    async def handled_by(self, id: str, letter: Letter) -> Agent:
        """The agent after a letter that has somebody who waits for what comes of it."""
        await self._put(id, letter)
        agent: Agent = await (letter.reply or Reply()).wait()
        return agent

    async def cast(self, id: str, signal: Signal, *, wait: bool = True) -> None:
        """Have a signal accepted; where the mailbox is full, wait, or raise `MailboxFull`.

        For an agent elsewhere in a fleet it is accepted when the transport has it.
        """
        letter = Letter(check_signal(signal))
        if self.fleet is not None and self._is_elsewhere(id):
            await self.fleet.hand_over(id, signal)
            return
        if wait:
            await self._put(id, letter)
            return
        server = self._server(id)
        if self._offer(server, letter):
            return
        if server.mailbox.closed:
            raise self._turned_away(id, signal)
        self.dropped.add(id, signal, "the mailbox is full", accepted=False)
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

    async def stop(self, id: str, *, within: float | None = None) -> None:
        """End an agent once it has handled what it accepted; after so many seconds it is ended anyway."""
        await ended_within(self._server(id), check_seconds(within, "within") or self.shutdown)
        await self._given_back(id)

    async def leave(self, id: str, reason: str) -> None:
        """End an agent that may have ended already."""
        server = self._servers.get(id)
        if server is not None:
            log.info("agent %s: is stopped: %s", id, reason)
            await ended_within(server, self.shutdown, reason)
            await self._given_back(id)

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
        handled = sum(server.handled for server in self._servers.values())
        waiting = sum(len(server.mailbox) for server in self._servers.values())
        return {
            "agents": len(self._servers),
            "accepted": self.accepted,
            "handled": self.handled + handled,
            "waiting": waiting,
            "dropped": self.dropped.count,
        }

    # Agents at rest

    async def checkpoint(self, id: str) -> Agent:
        """Put an agent into the vault, with all that it accepted before; it goes on living."""
        server = self._server(id)
        self.open_vault()
        reply = Reply()
        if not server.mailbox.push(Save(reply)):
            raise MailboxFull(id, "checkpoint", server.mailbox.size)
        saved: Agent = await reply.wait()
        return saved

    async def hibernate(self, id: str, *, within: float | None = None) -> None:
        """Let an agent finish, put it into the vault, and end it; if it cannot be saved, it lives on."""
        server = self._server(id)
        self.open_vault()
        await server.put_to_sleep(check_seconds(within, "within"))
        await self._given_back(id)

    async def thaw(self, id: str, kind: Definition | str, **terms: Any) -> str:
        """Take an agent up again from the vault; where that is not possible, an error, never a fresh one."""
        definition = self.known.kind(kind) if isinstance(kind, str) else kind
        check_instance(definition, "kind", kind=Definition)
        if id in self._servers:
            raise IdTaken(id)
        if self.fleet is not None:
            self._check_room(id)
            return (await self.fleet.thaw(id, definition, terms)).id
        agent, rev = await taken_up(id, definition, self.open_vault())
        return self.begin(agent, rev=rev, **terms).id

    def open_vault(self) -> Vault:
        """Where agents are kept."""
        if self._vault is None:
            if self.store is None:
                raise MissingStore("vault")
            if not isinstance(self.store, Documents):
                raise Invalid("store", "keeps no documents", "pass vault=FileVault(path)")
            self._vault = StoreVault(self.store)
        return self._vault

    # Sessions

    @property
    def sessions(self) -> Conversations:
        """The live sessions."""
        if self._sessions is None:
            raise MissingStore("store")
        return self._sessions

    async def session(self, id: str, spec: AgentSpec | None = None, **options: Any) -> Session:
        """The live session of this id, opened if need be; it is closed with the runtime."""
        self._open()
        return await self.sessions.get(id, spec, **options)

    def _sweep_later(self) -> None:
        every = min(self._idle_ms or SWEEP_MS, SWEEP_MS)

        def ring() -> None:
            if not self._closing:
                self.spawn(self._sweep)
                self._sweep_later()

        self.timers.after(every, ring)

    async def _sweep(self) -> None:
        await self.sessions.sweep(self.timing.now())

    # For servers and executors

    def spawn(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Do something in the background."""
        self._open(ending=True).start_soon(work)

    def offer(self, id: str, signal: Signal) -> bool:
        """Have a signal accepted, if that needs no waiting."""
        server = self._servers.get(id)
        return server is not None and self._offer(server, Letter(signal))

    def drop(self, id: str, letter: Letter, reason: str, *, accepted: bool = True) -> None:
        """Report that a letter will not be handled; who waits for it is told."""
        self.dropped.add(id, letter.signal, reason, accepted=accepted)
        if letter.reply is not None:
            letter.reply.fail(Dropped(id, letter.signal.type, reason))

    def refused(self, server: AgentServer, directive: Directive, reason: str) -> None:
        """A directive will not be carried out; a memory request is answered nevertheless."""
        if isinstance(directive, (MemoryQuery, MemoryUpsert, MemoryDelete)):
            resolver.refuse(directive, server, reason)

    def register(self, directive: type[Directive], executor: Executor) -> None:
        """Carry out a directive of one's own: a function of the directive and the server, plain or async."""
        self.known.add_executor(directive, executor)

    def add_kind(self, kind: Definition) -> None:
        """Know another kind of agent."""
        self.known.add_kind(kind)

    def begun(self, server: AgentServer) -> None:
        """At the begin of a life: what its plugins subscribed to, and what they have scheduled."""
        beginning_begin(server, self)

    def forget(self, server: AgentServer) -> None:
        """An agent is gone, and its id is free again."""
        self._servers.pop(server.id, None)
        self.handled += server.handled
        if self.fleet is not None and isinstance(server.keeping.hold, Held):
            self.fleet.ended(server.keeping.hold)

    async def _asked(self, request: Signal) -> None:
        """Somebody asks all agents what they can do."""
        if REPLY in request.extensions:
            if self.fleet is not None:
                await self.fleet.asking.introduce(request)
            return
        for server in [*self._servers.values()]:
            server.tell(request, own=True)

    async def _put(self, id: str, letter: Letter) -> None:
        if not await self._server(id).mailbox.put(letter, self._count):
            raise self._turned_away(id, letter.signal)

    def _count(self) -> None:
        self.accepted += 1

    def _turned_away(self, id: str, signal: Signal) -> Dropped:
        reason = "the agent is ending"
        self.dropped.add(id, signal, reason, accepted=False)
        return Dropped(id, signal.type, reason)

    def _offer(self, server: AgentServer, letter: Letter) -> bool:
        taken = server.mailbox.offer(letter)
        self.accepted += taken
        return taken

    def _server(self, id: str) -> AgentServer:
        server = self._servers.get(id)
        if server is None:
            raise NotRunning(id)
        return server

    @property
    def has_room(self) -> bool:
        """Whether another agent could live here."""
        return self._max_agents is None or len(self._servers) < self._max_agents

    def _check_room(self, id: str) -> None:
        self._open()
        if id in self._servers:
            raise IdTaken(id)
        if not self.has_room:
            raise TooManyAgents("the runtime", self._max_agents or 0)

    def _is_elsewhere(self, id: str) -> bool:
        return self.fleet is not None and id not in self._servers

    def _open(self, *, ending: bool = False) -> anyio.abc.TaskGroup:
        if self._group is None or (self._closing and not ending):
            raise Closed("runtime", "is not open", "use it inside of `async with Runtime(…)`")
        return self._group
