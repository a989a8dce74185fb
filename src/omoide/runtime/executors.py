"""Executors of the directives.

It runs beside the agent's letters, on the agent as it was when it began. What it returns is merged into the
agent as it is by then, in its turn; or it is given to the action that was named for it.

`{"to": id or ids}` to agents, `{"parent": True}`, `{"child": tag}`, `{"children": True}`, `{"self": True}`,
`{"bus": True}` to whoever subscribed; any other word is a way that the runtime was given. Who does not say
where sends the usual way of the agent, or back to itself.

A sensor is an async generator. Each signal that it yields comes into the agent's mailbox, and it goes on once
there is room for it; anything else that it yields is wrapped in a signal named after it.

An executor takes a directive and the server of the agent that asked for it. A plain function does it at once,
and may return `Waiting(work)` where the next directive has to wait, or a `Stop`; an async one goes on beside
the agent's letters.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from omoide.core.action import (
    Action,
    AdoptChild,
    Cron,
    CronCancel,
    Directive,
    Emit,
    Error,
    MemoryDelete,
    MemoryQuery,
    MemoryUpsert,
    RunInstruction,
    Schedule,
    Spawn,
    SpawnAgent,
    StartSensor,
    Stop,
    StopChild,
    StopSensor,
)
from omoide.core.agent import Agent
from omoide.core.execution import apply_result, error_directive
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.core.state import PARENT, SLOTS, Context, Parent, slot_of
from omoide.errors import Conflict, IdTaken, Invalid, NotFound, NotRunning, TooManyAgents, WrongType
from omoide.runtime.scheduler import next_after
from omoide.runtime.tasks import BlockingWork, Work, await_guarded
from omoide.turns.tools import call_action

if TYPE_CHECKING:
    from omoide.runtime.scheduler import Timer
    from omoide.runtime.server import AgentServer


# children: How does an agent get children, and lose them?


CHILD_STARTED = "jido.agent.child.started"
CHILD_EXITED = "jido.agent.child.exit"
ORPHANED = "jido.agent.orphaned"
PROCESS = "process"


def spawn_agent(directive: SpawnAgent, server: AgentServer) -> BlockingWork | None:
    """Start a child; it is told who its parent is. In a fleet it has to be claimed first."""
    _check_child_capacity(directive.tag, server)
    definition = server.runtime.registry.kind(directive.kind)
    agent = Agent.new(definition, id=directive.id, state=directive.state)
    parent = Parent(id=server.id, tag=directive.tag, metadata=directive.metadata)
    agent = PARENT.put(agent, parent)
    if server.runtime.fleet is not None:
        return BlockingWork(partial(_start_claimed, agent, directive.tag, server))
    _attach_child(server.runtime.start_local(agent), directive.tag, server)
    return None


async def _start_claimed(agent: Agent, tag: str, server: AgentServer) -> None:
    id = await server.runtime.start(agent)
    child = server.runtime.whereis(id)
    if child is not None:
        _attach_child(child, tag, server)


def adopt_child(directive: AdoptChild, server: AgentServer) -> None:
    """Take an agent that runs, and has no parent that does, as a child."""
    child = server.runtime.whereis(directive.child)
    if child is None:
        raise NotRunning(directive.child)
    _check_child_capacity(directive.tag, server)
    if child.parent is not None:
        raise IdTaken(directive.child)
    if child is server or _is_ancestor(child, server):
        raise Invalid("child", f"{directive.child!r} is the agent itself or above it", "adopt another")
    parent = Parent(id=server.id, tag=directive.tag, metadata=directive.metadata)
    child.enqueue_change(lambda agent: (PARENT.put(agent, parent), []))
    _attach_child(child, directive.tag, server)


def stop_child(directive: StopChild, server: AgentServer) -> None:
    """Stop a child, or a process, which is given the time to finish; nothing waits for that."""
    process = server.task_scope.named_tasks.pop((PROCESS, directive.tag), None)
    if process is not None:
        process.cancel()
        return
    id = server.children.get(directive.tag)
    if id is None:
        known = ", ".join(sorted(server.children)) or "none"
        raise NotFound("child", directive.tag, f"agent {server.id!r} has: {known}")
    server.runtime.spawn(partial(server.runtime.stop_if_running, id, directive.reason))


def spawn_process(directive: Spawn, server: AgentServer) -> None:
    """Start something that is not an agent; it ends with this one at the latest."""
    run = server.runtime.registry.process(directive.target)
    tag = directive.tag or directive.target
    if (PROCESS, tag) in server.task_scope.named_tasks:
        raise IdTaken(tag)
    server.start_job(partial(run, directive.config), "process", tag=(PROCESS, tag))


def notify_child_exit(server: AgentServer, tag: str, child: str, reason: str) -> None:
    """Tell a parent that a child is gone."""
    data = FrozenMap({"tag": tag, "id": child, "reason": reason})
    server.enqueue(Signal(type=CHILD_EXITED, data=data, source=server.runtime.source), internal=True)


def notify_orphan(server: AgentServer, parent: str, tag: str, reason: str) -> None:
    """Tell a child that its parent is gone."""
    data = FrozenMap({"parent": parent, "tag": tag, "reason": reason})
    server.enqueue(Signal(type=ORPHANED, data=data, source=server.runtime.source), internal=True)


def _attach_child(child: AgentServer, tag: str, server: AgentServer) -> None:
    child.parent = (server.id, tag)
    server.children[tag] = child.id
    data = FrozenMap({"tag": tag, "id": child.id, "name": child.agent.name})
    server.enqueue(Signal(type=CHILD_STARTED, data=data, source=server.runtime.source), internal=True)


def _check_child_capacity(tag: str, server: AgentServer) -> None:
    if tag in server.children:
        raise IdTaken(tag)
    limit = server.options.max_children
    if limit is not None and len(server.children) >= limit:
        raise TooManyAgents(f"agent {server.id!r}", limit)


def _is_ancestor(candidate: AgentServer, server: AgentServer) -> bool:
    above = server.parent
    while above is not None:
        found = server.runtime.whereis(above[0])
        if found is candidate:
            return True
        above = None if found is None else found.parent
    return False


# instructing: How is an action run that touches the world?


CommandResult = tuple[Agent, list[Directive]]


def run_instruction(directive: RunInstruction, server: AgentServer) -> None:
    """Begin it; nobody waits."""
    server.start_job(partial(_run_instruction, directive, server, server.current_signal), "run")


async def _run_instruction(directive: RunInstruction, server: AgentServer, signal: Signal | None) -> None:
    instruction, before = directive.instruction, server.agent
    life = server.task_scope
    status, result, error = "ok", None, None
    try:
        action = instruction.target or before.definition.action(instruction.action)
        params = action.check(instruction.params)
        result = await await_guarded(call_action(action, Context(before, signal), params))
    except Exception as raised:
        status, error = "error", raised
    if life.closed:
        return
    if directive.result_action is not None:
        told = {"action": instruction.action, "status": status, "result": _result_value(result)}
        told["error"] = None if error is None else error_directive(error, "run").message
        server.enqueue_change(partial(_call_result_action, directive.result_action, told, signal))
    elif error is not None:
        server.report_failure(error, "run", (signal, False), instruction.action)
    else:
        server.enqueue_change(partial(_merge_result, before, result))


def _call_result_action(
    name: str, params: Mapping[str, Any], signal: Signal | None, agent: Agent
) -> CommandResult:
    action: Action = agent.definition.action(name)
    known = {field: value for field, value in params.items() if field in action.schema.fields}
    return agent.cmd((action, known), signal=signal)


def _merge_result(before: Agent, result: Any, agent: Agent) -> CommandResult:
    """The agent with a result; a slot that changed meanwhile is not overwritten with an older idea of it."""
    answer = result[0] if isinstance(result, tuple) and result else result
    slot = slot_of(answer)
    touched = [slot.key] if slot is not None else []
    if isinstance(answer, Mapping):
        touched = [key for key in SLOTS if key in answer]
    for key in touched:
        then, now = SLOTS[key].get(before), SLOTS[key].get(agent)
        if then is not now:
            raise Conflict(f"{key} of agent {agent.id!r}", getattr(then, "rev", 0), getattr(now, "rev", 0))
    return apply_result(agent, result)


def _result_value(result: Any) -> Any:
    """What an action returned, without its directives."""
    answer = result[0] if isinstance(result, tuple) and len(result) == 2 else result
    return FrozenMap(answer) if isinstance(answer, dict) else answer


# scheduling: How is an agent told something later, or again and again?


SCHEDULED_SIGNAL = "jido.agent.scheduled"
CRON = "cron"


def schedule(directive: Schedule, server: AgentServer) -> None:
    """Tell it once, so many milliseconds from now."""
    life, runtime = server.task_scope, server.runtime

    def ring() -> None:
        life.timers.discard(timer)
        server.enqueue(signal_of(directive.message, server))

    timer: Timer = runtime.timers.after(directive.delay_ms, ring)
    life.timers.add(timer)


def schedule_cron(directive: Cron, server: AgentServer) -> None:
    """Tell it at the times of a cron line; a job of the same id is replaced."""
    life, runtime = server.task_scope, server.runtime
    key = (CRON, directive.job_id)

    def ring() -> None:
        wind(runtime.timing.now())
        server.enqueue(signal_of(directive.message, server, directive.job_id))

    def wind(after: int) -> None:
        at = next_after(directive.expression, after, directive.timezone)
        life.named_tasks[key] = runtime.timers.at(at, ring)

    before = life.named_tasks.get(key)
    wind(runtime.timing.now())
    if before is not None:
        before.cancel()


def cancel_cron(directive: CronCancel, server: AgentServer) -> None:
    """End what a cron job began; one that is not there is no error."""
    job = server.task_scope.named_tasks.pop((CRON, directive.job_id), None)
    if job is not None:
        job.cancel()


def signal_of(message: Any, server: AgentServer, job_id: str | None = None) -> Signal:
    """The message itself if it is a signal, named by a word, or wrapped in one."""
    if isinstance(message, Signal):
        # Each time it is another event.
        return Signal(
            type=message.type, data=message.data, source=message.source, subject=message.subject,
            extensions=message.extensions,
        )  # fmt: skip
    data = FrozenMap({"message": message} if job_id is None else {"message": message, "job_id": job_id})
    return Signal(type=SCHEDULED_SIGNAL, data=data, source=server.source)


# sending: Where does a signal go that an agent emits?


DISPATCH_TARGETS = ("to", "parent", "child", "children", "self", "bus")


def emit(directive: Emit, server: AgentServer) -> BlockingWork | None:
    """Send a signal; the next directive waits while a mailbox is full."""
    ways = server.options.dispatch if directive.dispatch is None else directive.dispatch
    if ways is None:
        server.enqueue(directive.signal)
        return None
    return dispatch(directive.signal, ways, server)


def dispatch(signal: Signal, targets: FrozenMap[str, Any], server: AgentServer) -> BlockingWork | None:
    """Send a signal these ways; what has to wait is left to whoever asked."""
    for way in targets:
        if way not in DISPATCH_TARGETS and way not in server.runtime.registry.dispatchers:
            known = ", ".join((*DISPATCH_TARGETS, *sorted(server.runtime.registry.dispatchers)))
            raise Invalid("dispatch", f"has no way {way!r}", f"use {known}")
    later: list[Work] = []
    for way in sorted(targets):
        if way == "bus":
            if targets[way] and server.persistence.ownership is not None:
                server.persistence.ownership.send(signal, None)
            elif targets[way]:
                later.append(partial(server.runtime.publish, signal))
        elif way in DISPATCH_TARGETS:
            later += _send_to(signal, _receiver_ids(way, targets[way], server), server)
        else:
            later.append(
                partial(_call_dispatcher, server.runtime.registry.dispatchers[way], signal, targets[way])
            )
    return BlockingWork(partial(_run_in_order, later)) if later else None


def _send_to(signal: Signal, ids: Iterable[str], server: AgentServer) -> list[Work]:
    """Send to these agents; what has to wait for a full mailbox is returned."""
    later: list[Work] = []
    for id in ids:
        if id == server.id:
            server.enqueue(signal)
        elif server.persistence.ownership is not None:
            server.persistence.ownership.send(signal, id)
        elif not server.runtime.cast_nowait(id, signal):
            later.append(partial(server.runtime.cast, id, signal))
    return later


def _receiver_ids(way: str, target: Any, server: AgentServer) -> list[str]:
    if way == "to":
        found = [target] if isinstance(target, str) else [*target]
    elif not target:
        found = []
    elif way == "self":
        found = [server.id]
    elif way == "children":
        found = [*server.children.values()]
    elif way == "parent":
        above = PARENT.get(server.agent)
        if server.parent is None and server.persistence.ownership is not None and above is not None:
            return [above.id]  # it lives somewhere else in the fleet
        if server.parent is None:
            raise NotFound("parent of agent", server.id, "it has none; say {'to': id}")
        found = [server.parent[0]]
    else:
        if target not in server.children:
            known = ", ".join(sorted(server.children)) or "none"
            raise NotFound("child", target, f"agent {server.id!r} has: {known}")
        found = [server.children[target]]
    return found


async def _run_in_order(works: list[Work]) -> None:
    failed: Exception | None = None
    for work in works:
        try:
            await await_guarded(work())
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


async def _call_dispatcher(dispatcher: Callable[..., Any], signal: Signal, config: Any) -> None:
    answer: Awaitable[Any] | Any = dispatcher(signal, config)
    if isawaitable(answer):
        await answer


# sensing: How does an agent perceive the world?


SENSOR = "sensor"


def start_sensor(directive: StartSensor, server: AgentServer) -> None:
    """Start a sensor under a tag."""
    sensor = server.runtime.registry.sensor(directive.sensor)
    if (SENSOR, directive.tag) in server.task_scope.named_tasks:
        raise IdTaken(directive.tag)
    feel = partial(_run_sensor, directive, sensor, server)
    server.start_job(feel, "sensor", tag=(SENSOR, directive.tag))


def stop_sensor(directive: StopSensor, server: AgentServer) -> None:
    """Stop the sensor under a tag."""
    job = server.task_scope.named_tasks.pop((SENSOR, directive.tag), None)
    if job is None:
        known = (
            ", ".join(sorted(tag for kind, tag in server.task_scope.named_tasks if kind == SENSOR)) or "none"
        )
        raise NotFound("sensor", directive.tag, f"agent {server.id!r} has: {known}")
    job.cancel()


async def _run_sensor(directive: StartSensor, sensor: Any, server: AgentServer) -> None:
    readings = sensor(directive.config)
    if not isinstance(readings, AsyncGenerator):
        raise WrongType(f"sensor {directive.sensor!r}", "an async generator", readings)
    async with aclosing(readings):  # one that is stopped may have something to put away
        await _forward_readings(readings, directive, server)


async def _forward_readings(
    readings: AsyncGenerator[Any], directive: StartSensor, server: AgentServer
) -> None:
    async for reading in readings:
        signal = reading if isinstance(reading, Signal) else _reading_signal(reading, directive, server)
        await server.runtime.cast(server.id, signal)


def _reading_signal(reading: Any, directive: StartSensor, server: AgentServer) -> Signal:
    data = FrozenMap({"tag": directive.tag, "reading": reading})
    return Signal(type=f"sensor.{directive.sensor}", data=data, source=server.source)


#   init  : How is each directive carried out?


Executor = Callable[[Any, Any], Any]


def _report_error(directive: Error, server: AgentServer) -> None:
    server.report(directive)


def _stop_agent(directive: Stop, server: AgentServer) -> Stop:
    return directive


def _submit_memory_request(directive: Any, server: AgentServer) -> None:
    server.provider_queues.submit(directive, server)


BUILT_IN_EXECUTORS: dict[type[Directive], Executor] = {
    AdoptChild: adopt_child,
    Cron: schedule_cron,
    CronCancel: cancel_cron,
    Emit: emit,
    Error: _report_error,
    MemoryDelete: _submit_memory_request,
    MemoryQuery: _submit_memory_request,
    MemoryUpsert: _submit_memory_request,
    RunInstruction: run_instruction,
    Schedule: schedule,
    Spawn: spawn_process,
    SpawnAgent: spawn_agent,
    StartSensor: start_sensor,
    Stop: _stop_agent,
    StopChild: stop_child,
    StopSensor: stop_sensor,
}
