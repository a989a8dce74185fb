"""AgentServer: one agent's task.

An agent that is asked so answers from a snapshot of its identity. Nothing about it changes, and no route is
needed; one without an identity says what its plugins offer.

One task takes its letters in order: plugins look at a signal, routes lead it to actions, `cmd` makes another
agent of it, and then its directives are carried out, one after the other. Whatever takes time goes on beside
that and comes back as another letter, so an agent never waits for the world.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any

from anyio import CancelScope, Event, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint

from omoide import identity
from omoide.core.action import Directive, Emit, Error, Stop
from omoide.core.agent import Agent, all_actions, receive
from omoide.core.execution import check_outcome, error_directive
from omoide.core.frozen import FrozenMap
from omoide.core.identity import Identity
from omoide.core.signal import Signal
from omoide.core.state import Context
from omoide.errors import Dropped, TimedOut, Unrouted, WrongType
from omoide.runtime.mailbox import (
    AgentChange,
    Envelope,
    Mailbox,
    PendingReply,
    SaveRequest,
    is_unrouted,
    unrouted_result_errors,
)
from omoide.runtime.persistence import Ownership, Persistence
from omoide.runtime.policy import AgentOptions, is_error_report, log_error
from omoide.runtime.providers.protocol import is_cancelled
from omoide.runtime.tasks import SHUTDOWN, BlockingWork, Exit, JobKey, TaskScope, Work, await_guarded, run_job

if TYPE_CHECKING:
    from omoide.runtime.providers.resolver import ProviderQueues
    from omoide.runtime.runtime import Runtime


# capabilities: Who are you, and what can you do?


CAPABILITIES_REQUEST = "jido.identity.capabilities.request"
CAPABILITIES_RESPONSE = "jido.identity.capabilities.response"


def capabilities_reply(server: AgentServer, request: Signal) -> list[Directive]:
    """The response, sent to whom the request says, else the agent's usual way, else over the bus."""
    data = request.data if isinstance(request.data, FrozenMap) else {}
    wanted = data.get("reply_to")
    dispatch = server.options.dispatch or FrozenMap({"bus": True})
    if isinstance(wanted, str) and wanted:
        dispatch = FrozenMap({"to": wanted})
    return [Emit(signal=capabilities_response(server.agent, request), dispatch=dispatch)]


def capabilities_response(agent: Agent, request: Signal) -> Signal:
    """What an agent shows of itself, in answer to a request."""
    shown = identity.snapshot(agent)
    if shown is None:
        bare = Identity()
        shown = bare.snapshot().set(
            "capabilities", bare.capabilities.set("actions", all_actions(agent, bare))
        )
    data: dict[str, Any] = {
        "request_id": request.id,
        "agent_id": agent.id,
        "name": agent.name,
        **shown,
    }
    return Signal(
        type=CAPABILITIES_RESPONSE, data=data, source=f"/omoide/agents/{agent.id}", subject=request.id
    )


# server: How does one agent live?


log = logging.getLogger("omoide.runtime")

RESTARTED = "the agent was started again"
YIELD_EVERY = 16
"""How many letters an agent takes before others have their turn."""

ErrorOrigin = tuple[Signal | None, bool]
"""The signal that something is about, and whether it is what the error policy wants."""
QueuedDirective = tuple[Directive, Signal | None, bool]


class AgentServer:
    """One agent that lives. Others talk to it through the `Runtime`."""

    __slots__ = (
        "_capture_plugins",
        "_directives",
        "_exit",
        "_exit_reason",
        "_hibernation",
        "_in_remedy",
        "_is_draining",
        "_policy",
        "_provider_queues",
        "_save_on_exit",
        "agent",
        "cancel_scope",
        "children",
        "current_signal",
        "ended",
        "error_count",
        "handled_count",
        "initial_agent",
        "mailbox",
        "options",
        "parent",
        "persistence",
        "restart_times",
        "runtime",
        "task_scope",
    )

    def __init__(
        self,
        runtime: Runtime,
        agent: Agent,
        options: AgentOptions,
        *,
        rev: int = 0,
        ownership: Ownership | None = None,
    ) -> None:
        self.runtime = runtime
        self.agent = self.initial_agent = agent
        self.options = options
        self.persistence = Persistence(rev, ownership)
        self.parent: tuple[str, str] | None = None
        """Its parent, and the tag it has there."""
        self.children: dict[str, str] = {}
        """Its children, by their tags."""
        self.mailbox = Mailbox(options.mailbox)
        self.task_scope = TaskScope()
        self.current_signal: Signal | None = None
        """The signal that it is about."""
        self.error_count = 0
        self.handled_count = 0
        self.restart_times: deque[float] = deque(maxlen=options.max_restarts + 1)
        self.cancel_scope = CancelScope()
        self.ended = Event()
        self._policy = options.error_policy
        # Asked once: to ask whether something follows a protocol takes longer than to handle a signal.
        self._capture_plugins: tuple[Any, ...] = tuple(
            plugin for plugin in agent.definition.plugins if hasattr(plugin, "capture")
        )
        self._directives: deque[QueuedDirective] = deque()
        self._is_draining = False
        self._in_remedy = False
        self._exit: Exit | None = None
        self._save_on_exit = False
        self._hibernation: PendingReply | None = None
        self._exit_reason = SHUTDOWN
        self._provider_queues: ProviderQueues | None = None

    @property
    def id(self) -> str:
        """The id of its agent."""
        return self.agent.id

    @property
    def source(self) -> str:
        """Where its signals say that they come from."""
        return f"/omoide/agents/{self.agent.id}"

    def __repr__(self) -> str:
        return f"<agent {self.id!r}, {len(self.mailbox)} letters waiting>"

    # One life

    async def run(self) -> Exit:
        """Take letters until the end; what goes wrong is a reason, never an exception."""
        with self.cancel_scope:
            try:
                self._initialize()
                return await self._run()
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a SystemExit, too, ends this agent and no other
                if isinstance(error, get_cancelled_exc_class()) and is_cancelled():
                    raise
                log.warning("agent %s: crashed with %s", self.id, type(error).__name__)
                return Exit(f"crashed: {type(error).__name__}")
        return self._exit or Exit("killed", requested=True)

    async def _run(self) -> Exit:
        taken, keeping, every = 0, self.persistence, self.options.save_every
        while self._exit is None:
            if not keeping.is_owned:
                return Exit("its lease ended", requested=True)
            item = self.mailbox.get_nowait()
            if item is None:
                if not self.mailbox.closed or self.task_scope.is_busy:
                    if keeping.is_due(every, idle=True):
                        await self.save()
                        continue
                    await self.mailbox.wait()
                    continue
                sleeper = self._hibernation
                saved = not self._save_on_exit or await self.save(sleeper)
                if sleeper is not self._hibernation:
                    continue  # nobody waits for that any more, and it lives on
                if saved or sleeper is None:
                    return Exit(self._exit_reason, requested=True)
                self._cancel_hibernation()
                continue
            if isinstance(item, Envelope):
                self._handle(item)
            elif isinstance(item, SaveRequest):
                await self.save(item.reply)
            else:
                self._apply_change(item)
            if keeping.is_due(every, after_signal=isinstance(item, Envelope)):
                await self.save()
            taken += 1
            if taken % YIELD_EVERY == 0:
                await checkpoint()
        return self._exit

    def _initialize(self) -> None:
        """What comes before the first letter: the strategy's init, and what plugins declare."""
        strategy = self.agent.definition.strategy
        result = strategy.init(self.agent, Context(self.agent))
        self.agent, directives = check_outcome(result, "the strategy's init", self.agent)
        self.runtime.start_plugins(self)
        self.execute_directives(directives)

    def _handle(self, envelope: Envelope) -> None:
        signal = self.current_signal = envelope.signal
        try:
            directives = self._receive(signal)
        except BaseException as error:
            self.runtime.drop(self.id, envelope, f"the agent crashed with {type(error).__name__}")
            raise
        self.handled_count += 1
        self.persistence.record_handled(signal, internal=envelope.internal)
        lost = next((one for one in directives if is_unrouted(one)), None)
        if lost is not None and envelope.internal:
            directives, lost = unrouted_result_errors(signal), None
        if envelope.reply is not None:
            self._resolve_reply(envelope.reply, signal, lost)
        if self._capture_plugins and not is_error_report(signal, self):
            directives += self._run_capture_plugins(signal)
        if directives:
            self.execute_directives(directives)
        self.current_signal = None

    def _receive(self, signal: Signal) -> list[Directive]:
        if signal.type == CAPABILITIES_REQUEST:
            return capabilities_reply(self, signal)
        self.agent, directives = receive(self.agent, signal)
        return directives

    def _resolve_reply(self, reply: PendingReply, signal: Signal, unrouted: Directive | None) -> None:
        if isinstance(unrouted, Error):
            reply.set_exception(Unrouted(self.id, signal.type, unrouted.message))
        elif self.options.save_every == 1:
            self.persistence.add_waiter(reply)
        else:
            reply.set_result(self.agent)

    def _run_capture_plugins(self, signal: Signal) -> list[Directive]:
        """What plugins make of a signal that was handled; their errors never come in its way."""
        found: list[Directive] = []
        for plugin in self._capture_plugins:
            try:
                found += plugin.capture(signal, Context(self.agent, signal, plugin.config))
            except Exception as error:
                self.report(error_directive(error, "capture"))
        return found

    def _apply_change(self, change: AgentChange) -> None:
        try:
            self.agent, directives = change(self.agent)
        except Exception as error:
            self.report(error_directive(error, "result"))
        else:
            self.persistence.unsaved_count += 1
            self.execute_directives(directives)

    # What it asks for

    def execute_directives(self, directives: Iterable[Directive]) -> None:
        """Carry directives out, after those that wait already."""
        over = 0
        for directive in directives:
            if len(self._directives) >= self.options.max_directives:
                over += 1
                self.runtime.refuse_directive(self, directive, "queue_overflow")
            else:
                self._directives.append((directive, self.current_signal, False))
        if over:
            message = f"queue_overflow: {over} directives beyond {self.options.max_directives} were dropped"
            self.report(Error(message=message, context="directive", kind="QueueOverflow"))
        self._start_drain()

    def _execute_remedy(self, directive: Directive) -> None:
        """Carry out what the policy wants; there is room for that beyond the limit, but not without end."""
        if len(self._directives) < 2 * self.options.max_directives:
            self._directives.append((directive, self.current_signal, True))
        self._start_drain()

    def _start_drain(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._drain()

    def _drain(self) -> None:
        before = self.current_signal
        while self._directives and self._exit is None:
            directive, self.current_signal, self._in_remedy = self._directives.popleft()
            waiting = self._execute(directive)
            if waiting is not None:
                about = self.current_signal, self._in_remedy
                self.start_job(partial(self._resume_drain, waiting, self.task_scope, about), "directive")
                self.current_signal, self._in_remedy = before, False
                return
        self.current_signal, self._in_remedy, self._is_draining = before, False, False

    async def _resume_drain(self, blocking: BlockingWork, task_scope: TaskScope, origin: ErrorOrigin) -> None:
        """Carry on with the directives once one of them is done that the others wait for."""
        try:
            await await_guarded(blocking.work())
        except Exception as error:
            if not task_scope.closed:
                self.report_failure(error, "directive", origin)
        if not task_scope.closed:
            self._stop_on_failure(self._drain)

    def _execute(self, directive: Directive) -> BlockingWork | None:
        executor = self.runtime.registry.executor(directive)
        if executor is None:
            log.warning("agent %s: ignored a directive of type %s", self.id, type(directive).__name__)
            return None
        try:
            if iscoroutinefunction(executor):
                self.start_job(partial(executor, directive, self), "directive")
                return None
            answer = executor(directive, self)
        except Exception as error:
            self.report(error_directive(error, "directive"))
            return None
        match answer:
            case Stop():
                self.stop(answer.reason)
            case BlockingWork():
                return answer
            case Awaitable():
                self.start_job(partial(_await, answer), "directive")
            case _:
                pass
        return None

    def report(self, error: Error) -> None:
        """Have the policy decide about an error."""
        self.error_count += 1
        if self._in_remedy:  # to ask again about its own answer could go on for ever
            log_error(error, self)
            return
        wanted = self._policy(error, self)
        if wanted is None:
            return
        if not isinstance(wanted, Directive) or isinstance(wanted, Error):
            raise WrongType("the answer of on_error", "None or a directive that is no Error", wanted)
        if isinstance(wanted, Stop):
            self.stop(wanted.reason)
        else:
            self._execute_remedy(wanted)

    def stop(self, reason: str) -> None:
        """End this life now; what waits is not carried out any more."""
        if self._exit is None:
            self._exit = Exit(reason)
        self.mailbox.wake()

    def start_job(self, work: Work, context: str, *, tag: JobKey | None = None) -> CancelScope:
        """Do something beside the letters; a job with a tag is not waited for in the end."""
        life, scope = self.task_scope, self.task_scope.create_job(tag)
        about = self.current_signal, self._in_remedy

        def failed(error: BaseException) -> None:
            if isinstance(error, Exception):
                self.report_failure(error, context, about)
            else:
                self.stop(f"crashed: {type(error).__name__}")

        async def done() -> None:
            try:
                await run_job(life, scope, work, failed, tag)
            finally:
                self.mailbox.wake()

        self.runtime.spawn(done)
        return scope

    def report_failure(
        self, error: Exception, context: str, origin: ErrorOrigin, action: str | None = None
    ) -> None:
        """Report what went wrong beside the letters."""
        before = self.current_signal, self._in_remedy
        self.current_signal, self._in_remedy = origin
        self._stop_on_failure(lambda: self.report(error_directive(error, context, action)))
        self.current_signal, self._in_remedy = before

    def _stop_on_failure(self, call: Callable[[], None]) -> None:
        """A policy that fails ends the life, also where no letter is being taken."""
        try:
            call()
        except Exception as error:
            self.stop(f"crashed: {type(error).__name__}")

    # What it is told

    def enqueue(self, signal: Signal, *, internal: bool = False) -> None:
        """Put a signal of its own into its mailbox."""
        self._push(Envelope(signal, internal=internal))

    def enqueue_change(self, change: AgentChange) -> None:
        """Have the agent changed, in its turn."""
        if not self.mailbox.put_internal(change):
            self._report_overflow("the result of a job")

    def _push(self, envelope: Envelope) -> None:
        if self.mailbox.put_internal(envelope):
            self.runtime.accepted_count += 1
        else:
            self.runtime.drop(self.id, envelope, "queue_overflow", accepted=False)
            self._report_overflow(f"signal {envelope.signal.type!r}")

    def _report_overflow(self, what: str) -> None:
        message = f"queue_overflow: {what} was dropped; {len(self.mailbox)} letters wait already"
        error = Error(message=message, context="mailbox", kind="QueueOverflow")
        self._stop_on_failure(lambda: self.report(error))

    # How it is kept

    async def save(self, reply: PendingReply | None = None) -> bool:
        """Put the agent into the vault; whether that was done. Those who wait for it are told."""
        if reply is not None:
            self.persistence.add_waiter(reply)
        return await self.persistence.save(self)

    async def hibernate(self, timeout: float | None) -> None:
        """Finish what is here, be saved, and end; raises what keeps it from that, and then lives on."""
        self._hibernation = sleeper = self._hibernation or PendingReply()
        self.close(save=True)
        with move_on_after(timeout):
            await sleeper.wait()
            await self.ended.wait()
            return
        self._cancel_hibernation()
        raise TimedOut(f"hibernating agent {self.id!r}", timeout or 0.0)

    def _cancel_hibernation(self) -> None:
        """Live on, though it was to end."""
        if self._hibernation is not None:
            self._hibernation.set_exception(Dropped(self.id, "hibernate", "the agent lives on"))
        self._hibernation, self._save_on_exit = None, False
        self.task_scope.close()
        self.task_scope, self._is_draining = TaskScope(), False
        if self._provider_queues is not None:
            self._provider_queues.abort(self, RESTARTED)
        self.mailbox.reopen()
        self._stop_on_failure(self._initialize)

    def close(self, *, save: bool, reason: str = SHUTDOWN) -> None:
        """Let nobody in any more, finish what is here, and end; saved in the end, if that is wanted."""
        self._save_on_exit = save or self._save_on_exit or self.options.save_every is not None
        self._exit_reason = reason
        self.task_scope.cancel_background()
        self.mailbox.close()

    def kill(self) -> None:
        """End now, whatever is going on."""
        self.cancel_scope.cancel()

    def clean_up(self, exit: Exit, *, restarting: bool) -> None:
        """After a life: end what went on beside it, and answer those who wait in vain."""
        self.task_scope.close()
        self._exit, self.current_signal, self._in_remedy = exit, None, False
        gone = Dropped(self.id, "?", f"the agent ended ({exit.reason})")
        for one in self.persistence.pop_waiters():
            one.set_exception(gone)
        if self._hibernation is not None and not restarting:
            self._hibernation.set_exception(gone)
        if restarting:
            if self._provider_queues is not None:
                self._provider_queues.abort(self, RESTARTED)
            for directive, _, _ in [*self._directives]:
                self.runtime.refuse_directive(self, directive, RESTARTED)
        self._directives.clear()

    def restart(self, agent: Agent) -> None:
        """Begin another life, with the letters that still wait."""
        self.agent = agent
        self.task_scope, self.cancel_scope = TaskScope(), CancelScope()
        self.error_count, self.persistence.unsaved_count = 0, 0
        if self.persistence.ownership is not None:
            self.persistence.ownership.revert()
        self._exit, self._is_draining = None, False

    @property
    def provider_queues(self) -> ProviderQueues:
        """The memory providers that it uses."""
        if self._provider_queues is None:
            from omoide.runtime.providers.resolver import ProviderQueues

            self._provider_queues = ProviderQueues()
        return self._provider_queues


async def _await(answer: Awaitable[Any]) -> None:
    await answer
