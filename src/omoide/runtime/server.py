"""Run one agent: its task, its directives, and when it is saved.

One task takes envelopes from the mailbox in order. A signal is handled from top to bottom here: `run` takes
it, `_handle` passes it to the agent (plugins, routes, `cmd`), `execute_directives` queues the directives that
come back, `_drain` takes them one after the other, and `_execute` calls the executor of each. Work that takes
time runs beside the task as a job and comes back as another envelope, so an agent never waits for I/O.

`jido.identity.capabilities.request` is answered here from a snapshot of the agent's identity. It needs no
route and changes nothing; an agent without an identity answers with the actions of its plugins.

Schedules and cron jobs are kept beside their timers, and saved with the agent: a later run resumes them.

An agent is saved after every `save_every` signals, on request, and when it ends. An agent of a fleet is owned
by a lease besides (`Ownership`): the signals it handled and those it sends are saved with it, and a signal is
sent only after that.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Protocol

from anyio import CancelScope, Event, get_cancelled_exc_class, move_on_after
from anyio.lowlevel import checkpoint

from omoide.core.action import Cron, CronCancel, Directive, Emit, Error, Schedule, Stop
from omoide.core.agent import Agent, public_snapshot, receive
from omoide.core.definition import check_outcome, error_directive
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.core.state import Context
from omoide.core.value import shallow_copy
from omoide.errors import ActionFailed, Dropped, TimedOut, Unrouted, WrongType
from omoide.runtime import executors
from omoide.runtime.checkpoints import save_agent
from omoide.runtime.mailbox import (
    AwaitedEffects,
    Envelope,
    Mailbox,
    MailboxItem,
    OwnChange,
    PendingReply,
    PluginChange,
    SaveRequest,
)
from omoide.runtime.policy import AgentOptions, is_error_report, log_error
from omoide.runtime.providers.resolver import ProviderQueues
from omoide.runtime.tasks import (
    SHUTDOWN,
    BlockingWork,
    Exit,
    ExitCallback,
    JobKey,
    TaskScope,
    Work,
    await_guarded,
    is_cancelled,
    run_job,
)

if TYPE_CHECKING:
    from omoide.core.checkpoint import PendingSchedule
    from omoide.core.definition import Definition, Plugin
    from omoide.runtime.checkpoints import SavedAgent
    from omoide.runtime.runtime import Runtime

log = logging.getLogger("omoide.runtime")

CAPABILITIES_REQUEST = "jido.identity.capabilities.request"
CAPABILITIES_RESPONSE = "jido.identity.capabilities.response"
RESTARTED = "the agent was restarted"
SUBSCRIPTION = "subscription"
YIELD_EVERY = 16
"""The number of mailbox items that an agent takes before other tasks have their turn."""

ErrorOrigin = tuple[Signal | None, bool]
"""The signal that an error is about, and whether it came from a directive of the error policy."""
QueuedDirective = tuple[Directive | AwaitedEffects, Signal | None, bool]


class Ownership(Protocol):
    """The exclusive right to run an agent, where several runtimes could."""

    def is_valid(self) -> bool:
        """Return whether the right is still there."""

    def record_handled(self, signal: Signal) -> None:
        """Record that a signal was handled."""

    def send(self, signal: Signal, to: str | None) -> None:
        """Send a signal to an agent, or to all, once the agent is saved."""

    def has_pending(self, *, idle: bool) -> bool:
        """Return whether something has to be saved or sent without waiting for another signal."""

    async def save(self, agent: Agent, rev: int, schedules: Sequence[PendingSchedule] = ()) -> int:
        """Save the agent with what was recorded, and return its new revision."""

    async def flush(self) -> None:
        """Send the signals that are saved."""

    async def load(self, definition: Definition) -> SavedAgent:
        """Return the agent as it was saved last; raise if another owner has it."""

    def revert(self) -> None:
        """Discard what was recorded since the last save: the agent restarts from there."""


class Persistence:
    """The saved revision of an agent, and the replies that wait for the next save."""

    __slots__ = ("_waiters", "ownership", "rev", "unsaved_count")

    def __init__(self, rev: int, ownership: Ownership | None) -> None:
        self.rev = rev
        """The revision of its checkpoint, 0 before there is one. A save builds on it or is a `Conflict`."""
        self.ownership = ownership
        self.unsaved_count = 0
        self._waiters: list[PendingReply] = []

    @property
    def is_owned(self) -> bool:
        """True if the agent may run here; outside of a fleet it always may."""
        return self.ownership is None or self.ownership.is_valid()

    def record_handled(self, signal: Signal, *, internal: bool) -> None:
        """Count a signal that was handled; one of the runtime itself is not deduplicated by the fleet."""
        self.unsaved_count += 1
        if self.ownership is not None and not internal:
            self.ownership.record_handled(signal)

    def is_due(self, every: int | None, *, after_signal: bool = False, idle: bool = False) -> bool:
        """Return whether it is time to save."""
        if after_signal and every is not None and self.unsaved_count >= every:
            return True
        return self.ownership is not None and self.ownership.has_pending(idle=idle)

    def add_waiter(self, reply: PendingReply) -> None:
        """Resolve a reply with the next save."""
        self._waiters.append(reply)

    def pop_waiters(self) -> list[PendingReply]:
        """Return the replies that wait for a save, and forget them."""
        waiters, self._waiters = self._waiters, []
        return waiters

    async def save(self, server: AgentServer) -> bool:
        """Save the agent, resolve the waiting replies, and return whether it was saved."""
        # The agent of this moment: jobs may change it while the store writes.
        agent, schedules, self.unsaved_count = server.agent, server.schedules_to_save(), 0
        try:
            if self.ownership is None:
                store = server.runtime.open_checkpoint_store()
                self.rev = await save_agent(agent, store, expected_rev=self.rev, schedules=schedules)
            else:
                self.rev = await self.ownership.save(agent, self.rev, schedules)
                # Sent only now: a signal must not be known elsewhere before its cause is saved.
                await self.ownership.flush()
        except Exception as error:
            for reply in self.pop_waiters():
                reply.set_exception(error)
            server.report(error_directive(error, "checkpoint"))
            return False
        for reply in self.pop_waiters():
            reply.set_result(agent)
        return True


class AgentServer:
    """The task of one running agent. Others talk to it through the `Runtime`."""

    __slots__ = (
        "_awaited_effects",
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
        "schedules",
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
        schedules: Iterable[PendingSchedule] = (),
    ) -> None:
        self.runtime = runtime
        self.agent = self.initial_agent = agent
        self.options = options
        self.persistence = Persistence(rev, ownership)
        self.parent: tuple[str, str] | None = None
        """The id of its parent, and its tag there."""
        self.children: dict[str, str] = {}
        """The ids of its children, by tag."""
        self.schedules: dict[Hashable, PendingSchedule] = {id(pending): pending for pending in schedules}
        """The schedules and cron jobs that are pending."""
        self.mailbox = Mailbox(options.mailbox)
        self.task_scope = TaskScope()
        self.current_signal: Signal | None = None
        """The signal that is being handled, or whose directive is being executed."""
        self.error_count = 0
        self.handled_count = 0
        self.restart_times: deque[float] = deque(maxlen=options.max_restarts + 1)
        self.cancel_scope = CancelScope()
        self.ended = Event()
        self._policy = options.error_policy
        self._capture_plugins = _find_capture_plugins(agent)
        self._directives: deque[QueuedDirective] = deque()
        self._awaited_effects: dict[int, AwaitedEffects] = {}
        """Those that senders wait for, by the identity of the signal."""
        self._is_draining = False
        self._in_remedy = False
        """True while a directive that the error policy returned is executed."""
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
        """The `source` of the signals that it makes."""
        return f"/omoide/agents/{self.agent.id}"

    def __repr__(self) -> str:
        return f"<agent {self.id!r}, {len(self.mailbox)} items waiting>"

    # One run of the agent, from its start to its exit

    async def run(self) -> Exit:
        """Handle mailbox items until the agent exits; an error is an exit reason, never raised."""
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
        count, persistence, every = 0, self.persistence, self.options.save_every
        while self._exit is None:
            # Checked before each item: after its lease an agent must not act any more.
            if not persistence.is_owned:
                return Exit("its lease expired", requested=True)
            item = self.mailbox.get_nowait()
            if item is None:
                if not self.mailbox.closed or self.task_scope.is_busy:
                    if persistence.is_due(every, idle=True):
                        await self.save()
                        continue
                    await self.mailbox.wait()
                    continue
                hibernation = self._hibernation
                saved = not self._save_on_exit or await self.save(hibernation)
                if hibernation is not self._hibernation:
                    continue  # it timed out meanwhile, and the agent keeps running
                if saved or hibernation is None:
                    return Exit(self._exit_reason, requested=True)
                self._cancel_hibernation()
                continue
            await self._process(item)
            if persistence.is_due(every, after_signal=isinstance(item, Envelope)):
                await self.save()
            count += 1
            if count % YIELD_EVERY == 0:
                await checkpoint()
        return self._exit

    async def _process(self, item: MailboxItem) -> None:
        if isinstance(item, Envelope):
            self._handle(item)
        # Through the mailbox, so that everything before the request is saved with it.
        elif isinstance(item, SaveRequest):
            await self.save(item.reply)
        elif isinstance(item, PluginChange):
            await self._change_plugins(item)
        else:
            self._apply_change(item)

    def _initialize(self) -> None:
        """Call the strategy's `init`, and start what plugins declare, before the first signal."""
        strategy = self.agent.definition.strategy
        result = strategy.init(self.agent, Context(self.agent))
        self.agent, directives = check_outcome(result, "the strategy's init", self.agent)
        resumed = sorted(self.schedules.values(), key=lambda pending: pending.due_at or 0)
        self.schedules = {}
        for pending in resumed:
            try:
                executors.resume_schedule(pending, self)
            except Exception as error:  # a time zone that is not known here, for instance
                self.report(error_directive(error, "directive"))
        for plugin in self.agent.definition.plugins:
            self._start_plugin(plugin)
        # What `init` schedules at every start is pending already if a former run scheduled it.
        known = [_schedule_key(pending.directive) for pending in resumed]
        self.execute_directives([one for one in directives if _schedule_key(one) not in known])

    def _start_plugin(self, plugin: Plugin) -> None:
        for pattern in plugin.subscriptions:
            self.start_job(partial(self._subscribe, plugin.label, str(pattern)), "subscription")
        for (line, message), job_id in zip(plugin.schedules, _cron_job_ids(plugin), strict=True):
            self.execute_directives([Cron(expression=line, message=message, job_id=job_id)])

    def _stop_plugin(self, plugin: Plugin) -> None:
        for job_id in _cron_job_ids(plugin):
            executors.cancel_cron(CronCancel(job_id=job_id), self)
        for pattern in plugin.subscriptions:
            subscription = self.task_scope.named_tasks.pop((SUBSCRIPTION, f"{plugin.label}:{pattern}"), None)
            if subscription is not None:
                subscription.cancel()

    async def _change_plugins(self, request: PluginChange) -> None:
        """Mount or unmount a plugin, start or stop what it declares, and resolve the reply."""
        before = self.agent.definition.plugins
        try:
            # A restart begins with the initial agent, or with the definition that it has.
            agent, self.initial_agent = request.change(self.agent), request.change(self.initial_agent)
        except Exception as error:
            request.reply.set_exception(error)
            return
        self.agent = agent
        self._capture_plugins = _find_capture_plugins(agent)
        for plugin in before:
            if plugin not in agent.definition.plugins:
                self._stop_plugin(plugin)
        for plugin in agent.definition.plugins:
            if plugin not in before:
                self._start_plugin(plugin)
        self.persistence.unsaved_count += 1
        # An older checkpoint has the slice of a plugin that is gone, or lacks that of a new one.
        if self.persistence.rev:
            await self.save()
        request.reply.set_result(self.agent)

    def schedules_to_save(self) -> list[PendingSchedule]:
        """Return the pending schedules but those of plugins, which every run starts by itself."""
        own = {
            (executors.CRON, id) for plugin in self.agent.definition.plugins for id in _cron_job_ids(plugin)
        }
        return [pending for key, pending in self.schedules.items() if key not in own]

    async def _subscribe(self, label: str, pattern: str) -> None:
        """Put published signals of a pattern into the mailbox, until this run ends."""
        scope = self.task_scope

        async def forward(signal: Signal) -> None:
            # After this run, a later one has a subscription of its own. The runtime answers requests for
            # capabilities for all of its agents.
            if not scope.closed and signal.type != CAPABILITIES_REQUEST:
                await self.runtime.cast(self.id, signal)

        subscription = await self.runtime.transport.subscribe(pattern, forward)
        if scope.closed or all(plugin.label != label for plugin in self.agent.definition.plugins):
            await subscription.close()
        else:
            callback = ExitCallback(partial(self.runtime.spawn, subscription.close))
            scope.named_tasks[SUBSCRIPTION, f"{label}:{pattern}"] = callback

    # Signals

    def _handle(self, envelope: Envelope) -> None:
        signal = envelope.signal
        if envelope.awaits_effects:
            signal = shallow_copy(signal)  # the same signal may be sent twice at the same time
        self.current_signal = signal
        try:
            directives = self._receive(signal)
        except BaseException as error:
            self.runtime.drop(self.id, envelope, f"the agent crashed with {type(error).__name__}")
            raise
        self.handled_count += 1
        # Before the directives: what they send is saved together with this signal.
        self.persistence.record_handled(signal, internal=envelope.internal)
        unrouted = next((directive for directive in directives if _is_unrouted(directive)), None)
        if unrouted is not None and envelope.internal:
            directives, unrouted = _internal_errors(signal), None
        awaited = None
        if envelope.reply is not None:
            if envelope.awaits_effects and unrouted is None:
                awaited = self._awaited_effects[id(signal)] = AwaitedEffects(signal, envelope.reply)
            else:
                self._resolve_reply(envelope.reply, signal, unrouted)
        if self._capture_plugins and not is_error_report(signal, self):
            directives += self._run_capture_plugins(signal)
        if directives:
            self.execute_directives(directives)
        if awaited is not None:
            self._directives.append((awaited, signal, False))  # reached when those before it are executed
            self._start_drain()
        self.current_signal = None

    def _receive(self, signal: Signal) -> list[Directive]:
        if signal.type == CAPABILITIES_REQUEST:
            return capabilities_reply(self, signal)
        self.agent, directives = receive(self.agent, signal)
        return directives

    def _resolve_reply(self, reply: PendingReply, signal: Signal, unrouted: Directive | None) -> None:
        if isinstance(unrouted, Error):
            reply.set_exception(Unrouted(self.id, signal.type, unrouted.message))
        # With a save after each signal, the caller gets the reply once the signal cannot be lost.
        elif self.options.save_every == 1:
            self.persistence.add_waiter(reply)
        else:
            reply.set_result(self.agent)

    def _run_capture_plugins(self, signal: Signal) -> list[Directive]:
        """Collect the directives of plugins that capture handled signals; their errors are only reported."""
        directives: list[Directive] = []
        for plugin in self._capture_plugins:
            try:
                directives += plugin.capture(signal, Context(self.agent, signal, plugin.config))
            except Exception as error:
                self.report(error_directive(error, "capture"))
        return directives

    def _apply_change(self, change: OwnChange) -> None:
        self.current_signal = change.signal
        try:
            self.agent, directives = change.apply(self.agent)
        except Exception as error:
            self.report(error_directive(error, "result", change.action))
        else:
            self.persistence.unsaved_count += 1
            self.execute_directives(directives)
        self.current_signal = None
        self.end_effect(change.signal)

    # Effects that a sender waits for

    def begin_effect(self, signal: Signal | None) -> None:
        """Count an effectful action that a signal led to; `end_effect` has to follow."""
        if (awaited := self._awaited_effects.get(id(signal))) is not None:
            awaited.running += 1

    def end_effect(self, signal: Signal | None) -> None:
        """Count the end of an effectful action, and reply to the sender after the last one."""
        if (awaited := self._awaited_effects.get(id(signal))) is not None:
            awaited.running -= 1
            self._reply_after_effects(awaited)

    def _reply_after_effects(self, awaited: AwaitedEffects) -> None:
        if not awaited.began or awaited.running:
            return
        del self._awaited_effects[id(awaited.signal)]
        if awaited.error is not None:
            awaited.reply.set_exception(ActionFailed(self.id, awaited.signal.type, awaited.error))
        elif self.options.save_every != 1 or not self.mailbox.put_internal(SaveRequest(awaited.reply)):
            awaited.reply.set_result(self.agent)

    def _fail_awaited_effects(self, reason: str) -> None:
        """Reply to senders whose effects end with this run."""
        awaited_effects, self._awaited_effects = self._awaited_effects, {}
        for awaited in awaited_effects.values():
            awaited.reply.set_exception(Dropped(self.id, awaited.signal.type, reason))

    # Directives

    def execute_directives(self, directives: Iterable[Directive]) -> None:
        """Execute directives after those that are queued already; those beyond the limit are dropped."""
        excess = 0
        for directive in directives:
            # A directive may lead to further ones without end; the limit keeps that from eating all memory.
            if len(self._directives) >= self.options.max_directives:
                excess += 1
                self.runtime.refuse_directive(self, directive, "queue_overflow")
            else:
                self._directives.append((directive, self.current_signal, False))
        if excess:
            message = f"queue_overflow: {excess} directives beyond {self.options.max_directives} were dropped"
            self.report(Error(message=message, context="directive", kind="QueueOverflow"))
        self._start_drain()

    def _execute_remedy(self, directive: Directive) -> None:
        """Execute a directive of the error policy; up to as many again as the limit are let in for that."""
        if len(self._directives) < 2 * self.options.max_directives:
            self._directives.append((directive, self.current_signal, True))
        self._start_drain()

    def _start_drain(self) -> None:
        if not self._is_draining:
            self._is_draining = True
            self._drain()

    def _drain(self) -> None:
        """Execute queued directives in order, until one of them blocks the others."""
        before = self.current_signal
        while self._directives and self._exit is None:
            directive, self.current_signal, self._in_remedy = self._directives.popleft()
            if isinstance(directive, AwaitedEffects):
                directive.began = True
                self._reply_after_effects(directive)
                continue
            blocking = self._execute(directive)
            if blocking is not None:
                origin = self.current_signal, self._in_remedy
                self.start_job(partial(self._resume_drain, blocking, self.task_scope, origin), "directive")
                self.current_signal, self._in_remedy = before, False
                return
        self.current_signal, self._in_remedy, self._is_draining = before, False, False

    async def _resume_drain(self, blocking: BlockingWork, task_scope: TaskScope, origin: ErrorOrigin) -> None:
        """Execute the directives behind a blocking one, once its work is done."""
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
            result = executor(directive, self)
        except Exception as error:
            self.report(error_directive(error, "directive"))
            return None
        match result:
            case Stop():
                self.stop(result.reason)
            case BlockingWork():
                return result
            case Awaitable():
                self.start_job(partial(_await, result), "directive")
            case _:
                pass
        return None

    # Errors and jobs

    def report(self, error: Error) -> None:
        """Pass an error to the policy, and execute the directive that it returns."""
        self.error_count += 1
        awaited = self._awaited_effects.get(id(self.current_signal))
        if awaited is not None and awaited.error is None:
            awaited.error = error
        if self._in_remedy:  # asking the policy about its own directive could go on for ever
            log_error(error, self)
            return
        remedy = self._policy(error, self)
        if remedy is None:
            return
        if not isinstance(remedy, Directive) or isinstance(remedy, Error):
            raise WrongType("the answer of on_error", "None or a directive that is no Error", remedy)
        if isinstance(remedy, Stop):
            self.stop(remedy.reason)
        else:
            self._execute_remedy(remedy)

    def stop(self, reason: str) -> None:
        """End this run now; queued directives are not executed any more."""
        if self._exit is None:
            self._exit = Exit(reason)
        self.mailbox.wake()

    def start_job(self, work: Work, context: str, *, tag: JobKey | None = None) -> CancelScope:
        """Run work beside the mailbox, and report its errors under a context.

        A job without a tag has to be done before the agent may end; one with a tag is cancelled then.

        Returns:
            The scope that cancels it.
        """
        task_scope, scope = self.task_scope, self.task_scope.create_job(tag)
        origin = self.current_signal, self._in_remedy

        def on_error(error: BaseException) -> None:
            if isinstance(error, Exception):
                self.report_failure(error, context, origin)
            else:
                self.stop(f"crashed: {type(error).__name__}")

        async def job() -> None:
            try:
                await run_job(task_scope, scope, work, on_error, tag)
            finally:
                self.mailbox.wake()

        self.runtime.spawn(job)
        return scope

    def report_failure(
        self, error: Exception, context: str, origin: ErrorOrigin, action: str | None = None
    ) -> None:
        """Report an exception of a job, as an error about the signal that the job came from."""
        before = self.current_signal, self._in_remedy
        self.current_signal, self._in_remedy = origin
        self._stop_on_failure(lambda: self.report(error_directive(error, context, action)))
        self.current_signal, self._in_remedy = before

    def _stop_on_failure(self, call: Callable[[], None]) -> None:
        """End the run if a call outside of the mailbox loop raises, as it would inside."""
        try:
            call()
        except Exception as error:
            self.stop(f"crashed: {type(error).__name__}")

    # What the agent's own work puts into the mailbox

    def enqueue(self, signal: Signal, *, internal: bool = False) -> None:
        """Put a signal of the agent's own work into its mailbox."""
        envelope = Envelope(signal, internal=internal)
        if self.mailbox.put_internal(envelope):
            self.runtime.accepted_count += 1
        else:
            self.runtime.drop(self.id, envelope, "queue_overflow", accepted=False)
            self._report_overflow(f"signal {signal.type!r}")

    def enqueue_change(self, change: OwnChange) -> None:
        """Apply a change to the agent, in its turn."""
        if not self.mailbox.put_internal(change):
            self._report_overflow("the result of a job")
            self.end_effect(change.signal)

    def _report_overflow(self, what: str) -> None:
        message = f"queue_overflow: {what} was dropped; {len(self.mailbox)} items wait already"
        error = Error(message=message, context="mailbox", kind="QueueOverflow")
        self._stop_on_failure(lambda: self.report(error))

    # Saving and ending

    async def save(self, reply: PendingReply | None = None) -> bool:
        """Save the agent, resolve the replies that wait for it, and return whether it was saved."""
        if reply is not None:
            self.persistence.add_waiter(reply)
        return await self.persistence.save(self)

    async def hibernate(self, timeout: float | None) -> None:
        """Finish, save and end; raise what prevents that, and then keep running."""
        self._hibernation = hibernation = self._hibernation or PendingReply()
        self.close(save=True)
        with move_on_after(timeout):
            await hibernation.wait()
            await self.ended.wait()
            return
        self._cancel_hibernation()
        raise TimedOut(f"hibernating agent {self.id!r}", timeout or 0.0)

    def _cancel_hibernation(self) -> None:
        """Keep running after all: the background jobs were cancelled, so initialize again."""
        if self._hibernation is not None:
            self._hibernation.set_exception(Dropped(self.id, "hibernate", "the agent keeps running"))
        self._hibernation, self._save_on_exit = None, False
        self.task_scope.close()
        self.task_scope, self._is_draining = TaskScope(), False
        self._fail_awaited_effects("its effects were cancelled")
        if self._provider_queues is not None:
            self._provider_queues.abort(self, RESTARTED)
        self.mailbox.reopen()
        self._stop_on_failure(self._initialize)

    def close(self, *, save: bool, reason: str = SHUTDOWN) -> None:
        """Accept no more signals, finish what is accepted, and end; with `save`, or `save_every`, saved."""
        # A later close without save does not undo an earlier one with it.
        self._save_on_exit = save or self._save_on_exit or self.options.save_every is not None
        self._exit_reason = reason
        self.task_scope.cancel_background()
        self.mailbox.close()

    def kill(self) -> None:
        """End now, and finish nothing."""
        self.cancel_scope.cancel()

    def clean_up(self, exit: Exit, *, restarting: bool) -> None:
        """After a run, cancel its jobs and fail the replies that cannot come any more."""
        self.task_scope.close()
        self._exit, self.current_signal, self._in_remedy = exit, None, False
        dropped = Dropped(self.id, "?", f"the agent ended ({exit.reason})")
        for reply in self.persistence.pop_waiters():
            reply.set_exception(dropped)
        self._fail_awaited_effects(f"the agent ended ({exit.reason})")
        if self._hibernation is not None and not restarting:
            self._hibernation.set_exception(dropped)
        # Every memory request gets an answer; an agent that is not restarted could not read it.
        if restarting:
            if self._provider_queues is not None:
                self._provider_queues.abort(self, RESTARTED)
            for directive, _, _ in [*self._directives]:
                if isinstance(directive, Directive):
                    self.runtime.refuse_directive(self, directive, RESTARTED)
        self._directives.clear()

    def restart(self, agent: Agent, schedules: Iterable[PendingSchedule] = ()) -> None:
        """Prepare another run, with the mailbox as it is."""
        self.agent = agent
        self.schedules = {id(pending): pending for pending in schedules}
        self.task_scope, self.cancel_scope = TaskScope(), CancelScope()
        self.error_count, self.persistence.unsaved_count = 0, 0
        if self.persistence.ownership is not None:
            # Signals since the last save do not count as handled: their effects are gone.
            self.persistence.ownership.revert()
        self._exit, self._is_draining = None, False

    @property
    def provider_queues(self) -> ProviderQueues:
        """The memory requests of the agent, made on first use."""
        if self._provider_queues is None:
            self._provider_queues = ProviderQueues()
        return self._provider_queues


def capabilities_reply(server: AgentServer, request: Signal) -> list[Directive]:
    """Return the directive that answers a request for capabilities.

    The response goes to the agent in `reply_to`, else where the agent's options say, else over the bus.
    """
    data = request.data if isinstance(request.data, FrozenMap) else {}
    reply_to = data.get("reply_to")
    dispatch = server.options.dispatch or FrozenMap({"bus": True})
    if isinstance(reply_to, str) and reply_to:
        dispatch = FrozenMap({"to": reply_to})
    return [Emit(signal=capabilities_response(server.agent, request), dispatch=dispatch)]


def capabilities_response(agent: Agent, request: Signal) -> Signal:
    """Return the signal with the public part of an agent's identity, in answer to a request."""
    data: dict[str, Any] = {"request_id": request.id, "agent_id": agent.id, "name": agent.name}
    data |= public_snapshot(agent)
    return Signal(
        type=CAPABILITIES_RESPONSE, data=data, source=f"/omoide/agents/{agent.id}", subject=request.id
    )


def _find_capture_plugins(agent: Agent) -> tuple[Any, ...]:
    # Looked up once: an isinstance check against a protocol takes longer than handling a signal.
    return tuple(plugin for plugin in agent.definition.plugins if hasattr(plugin, "capture"))


def _cron_job_ids(plugin: Plugin) -> list[str]:
    return [f"{plugin.label}:{number}" for number in range(len(plugin.schedules))]


def _schedule_key(directive: Directive) -> object:
    """Return what two equal schedules have in common; each other directive is unlike all others."""
    if isinstance(directive, Schedule):
        return "schedule", directive.message
    if isinstance(directive, Cron):
        return "cron", directive.expression, directive.timezone, directive.message
    return object()


def _is_unrouted(directive: Directive) -> bool:
    return isinstance(directive, Error) and directive.context == "routing"


def _internal_errors(signal: Signal) -> list[Directive]:
    """Return what replaces the routing error of a signal from the runtime: nothing, unless it is a failure.

    An agent need not have a route for the result of a memory directive, but a failure has to be reported.
    """
    data = signal.data
    if not hasattr(data, "get") or data.get("status") != "error":
        return []
    reason = str(data.get("error", "no reason given"))
    return [Error(message=f"{signal.type}: {reason}", context="memory", kind="ProviderFailed")]


async def _await(result: Awaitable[Any]) -> None:
    await result
