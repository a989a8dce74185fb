"""Execute directives.

An executor takes a directive and the server of the agent that returned it. A plain function acts at once; it
may return `BlockingWork` where the next directive has to wait, or a `Stop`. An async function runs beside the
mailbox.

`RunInstruction` runs an action on the agent as it was when the action began. Its result is merged into the
agent as it is by then, in its turn, or given to the `result_action`.

`Emit` sends to `{"to": id or ids}`, `{"parent": True}`, `{"child": tag}`, `{"children": True}`, `{"self":
True}`, `{"bus": True}`, or a dispatcher of the runtime; without a target, where the agent's options say, or
to itself.

A sensor is an async generator. Each signal that it yields is put into the mailbox, and it continues when
there is room; anything else that it yields is wrapped in a signal named after it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from omoide.clock import MAX_TIMESTAMP
from omoide.core import action as directives
from omoide.core.action import Action, Directive
from omoide.core.agent import Agent, with_origin
from omoide.core.checkpoint import PendingSchedule
from omoide.core.definition import apply_late_result, changes_since, error_directive
from omoide.core.frozen import FrozenMap
from omoide.core.identity import Identity
from omoide.core.signal import Signal
from omoide.core.state import IDENTITY, PARENT, Context, Parent
from omoide.errors import IdTaken, Invalid, NotFound, NotRunning, TooManyAgents, WrongType
from omoide.runtime.mailbox import OwnChange
from omoide.runtime.scheduler import next_after
from omoide.runtime.tasks import BlockingWork, Work, await_guarded
from omoide.turns.tools import call_action

if TYPE_CHECKING:
    from omoide.runtime.scheduler import Timer
    from omoide.runtime.server import AgentServer


CHILD_STARTED = "jido.agent.child.started"
CHILD_EXITED = "jido.agent.child.exit"
ORPHANED = "jido.agent.orphaned"
PROCESS = "process"

CommandResult = tuple[Agent, list[Directive]]
SCHEDULED_SIGNAL = "jido.agent.scheduled"
CRON = "cron"
DISPATCH_TARGETS = ("to", "parent", "child", "children", "self", "bus")
SENSOR = "sensor"
Executor = Callable[[Any, Any], Any]


def spawn_agent(directive: directives.SpawnAgent, server: AgentServer) -> BlockingWork | None:
    """Start a child that knows its parent; in a fleet it has to be claimed first."""
    _check_child_capacity(directive.tag, server)
    definition = server.runtime.registry.kind(directive.kind)
    agent = _with_spawned_origin(
        Agent.new(definition, id=directive.id, state=directive.state), directive, server
    )
    agent = PARENT.put(agent, Parent(id=server.id, tag=directive.tag, metadata=directive.metadata))
    if server.runtime.fleet is not None:
        return BlockingWork(partial(_start_claimed, agent, directive.tag, server))
    _attach_child(server.runtime.start_local(agent), directive.tag, server)
    return None


def _with_spawned_origin(agent: Agent, directive: directives.SpawnAgent, server: AgentServer) -> Agent:
    """Return a child whose identity says that it was spawned, unless the directive says something else."""
    given = directive.state.get(IDENTITY.key)
    if isinstance(given, Identity) and given.get_profile("origin") is not None:
        return agent
    return with_origin(agent, "spawned", server.agent)


async def _start_claimed(agent: Agent, tag: str, server: AgentServer) -> None:
    child = server.runtime.whereis(await server.runtime.start(agent))
    if child is not None:
        _attach_child(child, tag, server)


def adopt_child(directive: directives.AdoptChild, server: AgentServer) -> None:
    """Make a running agent without a running parent a child."""
    child = server.runtime.whereis(directive.child)
    if child is None:
        raise NotRunning(directive.child)
    _check_child_capacity(directive.tag, server)
    if child.parent is not None:
        raise IdTaken(directive.child)
    # A cycle would have no root, from which the runtime ends its agents.
    if child is server or _is_ancestor(child, server):
        raise Invalid("child", f"{directive.child!r} is the agent itself or its ancestor", "adopt another")
    parent = Parent(id=server.id, tag=directive.tag, metadata=directive.metadata)
    child.enqueue_change(OwnChange(lambda agent: (PARENT.put(agent, parent), [])))
    _attach_child(child, directive.tag, server)


def stop_child(directive: directives.StopChild, server: AgentServer) -> None:
    """Stop a child, which may finish first, or a process; nothing waits for that."""
    process = server.task_scope.named_tasks.pop((PROCESS, directive.tag), None)
    if process is not None:
        process.cancel()
        return
    id = _child_id(directive.tag, server)
    server.runtime.spawn(partial(server.runtime.stop_if_running, id, directive.reason))


def spawn_process(directive: directives.Spawn, server: AgentServer) -> None:
    """Start a process that is not an agent; it ends with this agent at the latest."""
    process = server.runtime.registry.process(directive.target)
    tag = directive.tag or directive.target
    if (PROCESS, tag) in server.task_scope.named_tasks:
        raise IdTaken(tag)
    server.start_job(partial(process, directive.config), "process", tag=(PROCESS, tag))


def notify_child_exit(server: AgentServer, tag: str, child: str, reason: str) -> None:
    """Send a parent the signal that a child ended."""
    _notify(server, CHILD_EXITED, tag=tag, id=child, reason=reason)


def notify_orphan(server: AgentServer, parent: str, tag: str, reason: str) -> None:
    """Send a child the signal that its parent ended."""
    _notify(server, ORPHANED, parent=parent, tag=tag, reason=reason)


def _notify(server: AgentServer, type: str, **data: Any) -> None:
    signal = Signal(type=type, data=FrozenMap(data), source=server.runtime.source)
    server.enqueue(signal, internal=True)


def _attach_child(child: AgentServer, tag: str, server: AgentServer) -> None:
    child.parent = (server.id, tag)
    server.children[tag] = child.id
    _notify(server, CHILD_STARTED, tag=tag, id=child.id, name=child.agent.name)


def _child_id(tag: str, server: AgentServer) -> str:
    if tag not in server.children:
        raise _lookup_error("child", tag, server.children, server)
    return server.children[tag]


def _lookup_error(kind: str, tag: str, known: Iterable[str], server: AgentServer) -> NotFound:
    return NotFound(kind, tag, f"agent {server.id!r} has: {', '.join(sorted(known)) or 'none'}")


def _check_child_capacity(tag: str, server: AgentServer) -> None:
    if tag in server.children:
        raise IdTaken(tag)
    limit = server.options.max_children
    if limit is not None and len(server.children) >= limit:
        raise TooManyAgents(f"agent {server.id!r}", limit)


def _is_ancestor(candidate: AgentServer, server: AgentServer) -> bool:
    parent = server.parent
    while parent is not None:
        server_above = server.runtime.whereis(parent[0])
        if server_above is candidate:
            return True
        parent = None if server_above is None else server_above.parent
    return False


def run_instruction(directive: directives.RunInstruction, server: AgentServer) -> None:
    """Run an action beside the mailbox; nothing waits for it."""
    server.begin_effect(server.current_signal)
    server.start_job(partial(_run_instruction, directive, server, server.current_signal), "run")


async def _run_instruction(
    directive: directives.RunInstruction, server: AgentServer, signal: Signal | None
) -> None:
    task_scope, change = server.task_scope, None
    try:
        change = await _await_result(directive, server.agent, signal)
    except Exception as error:
        if not task_scope.closed:
            server.report_failure(error, "run", (signal, False), directive.instruction.action)
    if task_scope.closed:
        return
    if change is None:
        server.end_effect(signal)
    else:
        server.enqueue_change(change)


async def _await_result(
    directive: directives.RunInstruction, before: Agent, signal: Signal | None
) -> OwnChange:
    """Run an action, and return the change of the agent that its result is."""
    instruction, wanted = directive.instruction, directive.result_action
    status, result, message = "ok", None, None
    try:
        action = instruction.target or before.definition.action(instruction.action)
        params = action.check(instruction.params)
        result = await await_guarded(call_action(action, Context(before, signal), params))
        result = changes_since(before, result)
    except Exception as error:
        if wanted is None:
            raise
        status, message = "error", error_directive(error, "run").message
    if wanted is None:
        return OwnChange(partial(_merge_result, before, result), signal, instruction.action)
    report = {
        "action": instruction.action,
        "status": status,
        "result": _result_value(result),
        "error": message,
    }
    return OwnChange(partial(_call_result_action, wanted, report, signal), signal, wanted)


def _merge_result(before: Agent, result: Any, agent: Agent) -> CommandResult:
    return apply_late_result(before, agent, result)


def _call_result_action(
    name: str, params: Mapping[str, Any], signal: Signal | None, agent: Agent
) -> CommandResult:
    action: Action = agent.definition.action(name)
    # An action declares which parts of the report it takes.
    accepted = {field: value for field, value in params.items() if field in action.schema.fields}
    return agent.cmd((action, accepted), signal=signal)


def _result_value(result: Any) -> Any:
    """Return what an action returned, without its directives."""
    value = result[0] if isinstance(result, tuple) and len(result) == 2 else result
    return FrozenMap(value) if isinstance(value, dict) else value


def schedule(directive: directives.Schedule, server: AgentServer) -> None:
    """Send the agent a signal once, so many milliseconds from now."""
    due_at = min(server.runtime.timing.now() + directive.delay_ms, MAX_TIMESTAMP)
    _start_schedule(PendingSchedule(directive=directive, due_at=due_at), directive.delay_ms, server)


def resume_schedule(pending: PendingSchedule, server: AgentServer) -> None:
    """Set the timer of a schedule of a former run; what was due meanwhile is sent at once."""
    if isinstance(pending.directive, directives.Cron):
        schedule_cron(pending.directive, server)
        return
    delay_ms = max(0, (pending.due_at or 0) - server.runtime.timing.now())
    _start_schedule(pending, delay_ms, server)


def _start_schedule(pending: PendingSchedule, delay_ms: int, server: AgentServer) -> None:
    task_scope, runtime = server.task_scope, server.runtime

    def fire() -> None:
        task_scope.timers.discard(timer)
        server.schedules.pop(id(pending), None)
        server.enqueue(signal_of(pending.directive.message, server))

    server.schedules[id(pending)] = pending
    timer: Timer = runtime.timers.after(delay_ms, fire)
    task_scope.timers.add(timer)


def schedule_cron(directive: directives.Cron, server: AgentServer) -> None:
    """Send the agent a signal whenever a cron expression fires; a job of the same id is replaced."""
    task_scope, runtime = server.task_scope, server.runtime
    key = (CRON, directive.job_id)

    def fire() -> None:
        set_timer(runtime.timing.now())
        server.enqueue(signal_of(directive.message, server, directive.job_id))

    def set_timer(after: int) -> None:
        at = next_after(directive.expression, after, directive.timezone)
        task_scope.named_tasks[key] = runtime.timers.at(at, fire)

    before = task_scope.named_tasks.get(key)
    # Set before the old job is cancelled: an invalid expression leaves that one running.
    set_timer(runtime.timing.now())
    server.schedules[key] = PendingSchedule(directive=directive)
    if before is not None:
        before.cancel()


def cancel_cron(directive: directives.CronCancel, server: AgentServer) -> None:
    """Cancel a cron job; one that does not exist is no error."""
    server.schedules.pop((CRON, directive.job_id), None)
    job = server.task_scope.named_tasks.pop((CRON, directive.job_id), None)
    if job is not None:
        job.cancel()


def signal_of(message: Any, server: AgentServer, job_id: str | None = None) -> Signal:
    """Return the message as a new signal: a copy of a signal, or anything else as its data."""
    if isinstance(message, Signal):
        # A new id and time: each firing is another event.
        return Signal(
            type=message.type, data=message.data, source=message.source, subject=message.subject,
            extensions=message.extensions,
        )  # fmt: skip
    data = FrozenMap({"message": message} if job_id is None else {"message": message, "job_id": job_id})
    return Signal(type=SCHEDULED_SIGNAL, data=data, source=server.source)


def emit(directive: directives.Emit, server: AgentServer) -> BlockingWork | None:
    """Send a signal; the next directive waits while a mailbox is full."""
    targets = server.options.dispatch if directive.dispatch is None else directive.dispatch
    if targets is None:
        server.enqueue(directive.signal)
        return None
    return dispatch(directive.signal, targets, server)


def dispatch(signal: Signal, targets: FrozenMap[str, Any], server: AgentServer) -> BlockingWork | None:
    """Send a signal to targets, and return the work that has to wait, if any."""
    for target in targets:
        if target not in DISPATCH_TARGETS and target not in server.runtime.registry.dispatchers:
            names = ", ".join((*DISPATCH_TARGETS, *sorted(server.runtime.registry.dispatchers)))
            raise Invalid("dispatch", f"has no target {target!r}", f"use {names}")
    blocking: list[Work] = []
    # Sorted, so that the order of effects does not depend on how the map was written.
    for target in sorted(targets):
        if target == "bus":
            if targets[target] and server.persistence.ownership is not None:
                server.persistence.ownership.send(signal, None)
            elif targets[target]:
                blocking.append(partial(server.runtime.publish, signal))
        elif target in DISPATCH_TARGETS:
            blocking += _send_to(signal, _receiver_ids(target, targets[target], server), server)
        else:
            dispatcher = server.runtime.registry.dispatchers[target]
            blocking.append(partial(_call_dispatcher, dispatcher, signal, targets[target]))
    return BlockingWork(partial(_run_in_order, blocking)) if blocking else None


def _send_to(signal: Signal, ids: Iterable[str], server: AgentServer) -> list[Work]:
    """Send to agents, and return the work of those whose mailbox is full."""
    blocking: list[Work] = []
    for id in ids:
        if id == server.id:
            server.enqueue(signal)
        elif server.persistence.ownership is not None:
            server.persistence.ownership.send(signal, id)
        elif not server.runtime.cast_nowait(id, signal):
            blocking.append(partial(server.runtime.cast, id, signal))
    return blocking


def _receiver_ids(kind: str, target: Any, server: AgentServer) -> list[str]:
    if kind == "to":
        receivers = [target] if isinstance(target, str) else [*target]
    elif not target:
        receivers = []
    elif kind == "self":
        receivers = [server.id]
    elif kind == "children":
        receivers = [*server.children.values()]
    elif kind == "parent":
        parent = PARENT.get(server.agent)
        if server.parent is None and server.persistence.ownership is not None and parent is not None:
            return [parent.id]  # it runs elsewhere in the fleet
        if server.parent is None:
            raise NotFound("parent of agent", server.id, "it has none; use {'to': id}")
        receivers = [server.parent[0]]
    else:
        receivers = [_child_id(target, server)]
    return receivers


async def _run_in_order(works: list[Work]) -> None:
    """Run every work, also after one failed, and raise the first error in the end."""
    first_error: Exception | None = None
    for work in works:
        try:
            await await_guarded(work())
        except Exception as error:
            first_error = first_error or error
    if first_error is not None:
        raise first_error


async def _call_dispatcher(dispatcher: Callable[..., Any], signal: Signal, config: Any) -> None:
    result: Awaitable[Any] | Any = dispatcher(signal, config)
    if isawaitable(result):
        await result


def start_sensor(directive: directives.StartSensor, server: AgentServer) -> None:
    """Start a sensor under a tag."""
    sensor = server.runtime.registry.sensor(directive.sensor)
    if (SENSOR, directive.tag) in server.task_scope.named_tasks:
        raise IdTaken(directive.tag)
    work = partial(_run_sensor, directive, sensor, server)
    server.start_job(work, "sensor", tag=(SENSOR, directive.tag))


def stop_sensor(directive: directives.StopSensor, server: AgentServer) -> None:
    """Stop the sensor under a tag."""
    job = server.task_scope.named_tasks.pop((SENSOR, directive.tag), None)
    if job is None:
        tags = [tag for kind, tag in server.task_scope.named_tasks if kind == SENSOR]
        raise _lookup_error("sensor", directive.tag, tags, server)
    job.cancel()


async def _run_sensor(directive: directives.StartSensor, sensor: Any, server: AgentServer) -> None:
    readings = sensor(directive.config)
    if not isinstance(readings, AsyncGenerator):
        raise WrongType(f"sensor {directive.sensor!r}", "an async generator", readings)
    async with aclosing(readings):  # a sensor that is stopped may have to clean up
        await _forward_readings(readings, directive, server)


async def _forward_readings(
    readings: AsyncGenerator[Any], directive: directives.StartSensor, server: AgentServer
) -> None:
    async for reading in readings:
        signal = reading if isinstance(reading, Signal) else _reading_signal(reading, directive, server)
        await server.runtime.cast(server.id, signal)


def _reading_signal(reading: Any, directive: directives.StartSensor, server: AgentServer) -> Signal:
    data = FrozenMap({"tag": directive.tag, "reading": reading})
    return Signal(type=f"sensor.{directive.sensor}", data=data, source=server.source)


def _report_error(directive: directives.Error, server: AgentServer) -> None:
    server.report(directive)


def _stop_agent(directive: directives.Stop, server: AgentServer) -> directives.Stop:
    return directive


def _submit_memory_request(directive: Any, server: AgentServer) -> None:
    server.provider_queues.submit(directive, server)


BUILT_IN_EXECUTORS: dict[type[Directive], Executor] = {
    directives.AdoptChild: adopt_child,
    directives.Cron: schedule_cron,
    directives.CronCancel: cancel_cron,
    directives.Emit: emit,
    directives.Error: _report_error,
    directives.MemoryDelete: _submit_memory_request,
    directives.MemoryQuery: _submit_memory_request,
    directives.MemoryUpsert: _submit_memory_request,
    directives.RunInstruction: run_instruction,
    directives.Schedule: schedule,
    directives.Spawn: spawn_process,
    directives.SpawnAgent: spawn_agent,
    directives.StartSensor: start_sensor,
    directives.Stop: _stop_agent,
    directives.StopChild: stop_child,
    directives.StopSensor: stop_sensor,
}
