"""Turn, chat, stream, replay, restore.

`turn` gives all that came of it, `chat` the answer alone, and `stream` both while they come.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Unpack

from anyio import CancelScope, create_memory_object_stream, create_task_group, move_on_after

from omoide import observe, thread
from omoide.concurrency import raise_first_error
from omoide.core import codec
from omoide.core.agent import Agent, mount_plugins
from omoide.core.checkpoint import Checkpoint, checkpoint, restore
from omoide.core.definition import Definition
from omoide.core.entry import WriteResult
from omoide.core.frozen import EMPTY_MAP
from omoide.core.state import SLOTS
from omoide.core.thread import ThreadEntry
from omoide.core.value import check_instance
from omoide.errors import Diverged, Invalid, OmoideError, RestoreFailed, ReviewNeeded, TurnFailed
from omoide.turns.controls import check_same_controls, redact
from omoide.turns.journal import Event, EventEmitter, EventListener, Journal, conversation, progress_of
from omoide.turns.loop import Turn
from omoide.turns.memory import capture_turn, resume_context
from omoide.turns.messages import as_exchanges
from omoide.turns.options import Paused, TurnKwargs, TurnOptions
from omoide.turns.result import Snapshot, TurnResult, parse_output
from omoide.turns.spec import AgentSpec

# restoring: How does an agent come back with all that its plugins own?


def restore_with_plugins(saved: Checkpoint, definition: Definition) -> Agent:
    """The agent with every plugin's slice: one that was dropped, or is new to the agent, is mounted anew."""
    agent = restore(saved, definition)
    keys = saved.externalized_keys or EMPTY_MAP
    pointed = {keys.get(key, key) for key in saved.externalized}
    lost = [key for key in pointed if key not in agent.state and key not in SLOTS]
    if lost:
        raise RestoreFailed(f"slice {lost[0]!r} of agent {saved.id!r}", "its plugin has no on_restore for it")
    absent = {plugin.key for plugin in definition.plugins} - {*saved.state} - pointed - {*SLOTS}
    return mount_plugins(agent, absent) if absent else agent


# running: How is an agent asked something?


FINAL_EVENT_TIMEOUT = 5
"""Seconds that a listener has for what is told after the answer."""


async def turn(spec: AgentSpec, input: str | Snapshot, **options: Unpack[TurnKwargs]) -> TurnResult:
    """Recall, prompt, model and tools, capture: all that came of asking the agent this.

    A snapshot in place of the input goes on with a turn that was put aside.
    """
    return await _run_turn(spec, input, TurnOptions.from_kwargs(options), streaming=False)


async def chat(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> str:
    """The agent's answer, and nothing else."""
    return answer_of(await turn(spec, input, **options))


def answer_of(result: TurnResult) -> str:
    """The answer of a turn that is over; one that waits has none."""
    if result.reviews:
        raise ReviewNeeded(result.request_id, [review.id for review in result.reviews])
    if result.status != "finished":
        raise TurnFailed(result.request_id, "was put aside and has no answer yet", "resume it")
    return result.content


@asynccontextmanager
async def stream(
    spec: AgentSpec, input: str | Snapshot, **options: Unpack[TurnKwargs]
) -> AsyncIterator[TurnStream]:
    """A turn whose events can be read while it runs; `text` events carry the answer piece by piece."""
    given = TurnOptions.from_kwargs(options)

    async def run(listener: EventListener) -> TurnResult:
        given.on_event = listener
        return await _run_turn(spec, input, given, streaming=True)

    async with open_stream(run, given.on_event) as streaming:
        yield streaming


async def replay(spec: AgentSpec, journal: Journal, *, agent: Agent | None = None) -> TurnResult:
    """The turn again from its journal: nothing is called, recalled or written."""
    check_instance(journal, "journal", kind=Journal)
    given = TurnOptions.from_kwargs({"request_id": journal.request_id})
    asked = given.build_request(spec, _input_of(journal))
    base = agent or Agent.new(spec.definition(), id=spec.id)
    run = Turn(
        given.build_environment(spec, events=EventEmitter(), model=None),
        asked,
        _with_entries(base, journal.entries),
        entries=journal.entries,
        recalled=journal.recalled,
        has_recalled=True,
        resumed=True,
    )
    return await execute(run)


class TurnStream:
    """The events of a turn on their way; `result` is there when they have ended."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events
        self._result: TurnResult | None = None
        self._error: Exception | None = None
        self._raised = False

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Each event as it comes; a turn that fails raises its error after the last."""
        async for event in self._events:
            yield event
        self._raise_failure()

    async def text(self) -> AsyncIterator[str]:
        """Only what the model says, piece by piece: before its tools run as well as at the end."""
        async for event in self:
            if event.kind == "text":
                yield event.data["text"]

    @property
    def result(self) -> TurnResult:
        """What came of the turn, or the error that it failed with."""
        self._raise_failure()
        if self._result is None:
            raise Invalid("result", "is not there yet", "read the events to their end first")
        return self._result

    def _raise_failure(self) -> None:
        if self._error is not None:
            self._raised = True
            raise self._error


@asynccontextmanager
async def open_stream(
    run: Callable[[EventListener], Awaitable[TurnResult]], listener: EventListener | None = None
) -> AsyncIterator[TurnStream]:
    """Run a turn in the background and hand out its events; leaving early cancels it."""
    # Without a bound: a turn whose reader is gone comes to its end, and lets go of its session.
    send, receive = create_memory_object_stream[Event](math.inf)
    streaming = TurnStream(receive)

    async def tell(event: Event) -> None:
        if listener is not None:
            answer = listener(event)
            if isinstance(answer, Awaitable):
                await answer
        await send.send(event)

    async def work() -> None:
        async with send:
            try:
                streaming._result = await run(tell)
            except Exception as error:  # it is raised where the events are read
                streaming._error = error

    try:
        async with receive, create_task_group() as group:
            group.start_soon(work)
            yield streaming
            receive.close()
            group.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        raise_first_error(several)
    if not streaming._raised:
        streaming._raise_failure()


async def _run_turn(
    spec: AgentSpec, input: str | Snapshot, given: TurnOptions, *, streaming: bool
) -> TurnResult:
    check_instance(spec, "spec", kind=AgentSpec)
    model = given.resolve_model(spec)
    events = EventEmitter(given.on_event)
    if isinstance(input, Snapshot):
        run = _resume_turn(spec, input.check(), given, events, model, streaming)
    else:
        asked = given.build_request(spec, input)
        agent = given.agent or Agent.new(spec.definition(), id=spec.id)
        world = given.build_environment(spec, events=events, model=model, streaming=streaming)
        said = as_exchanges(given.history) or conversation(thread.of(agent).entries)
        run = Turn(world, asked, agent, history=said)
    with observe.span("invoke_agent", name=spec.id, agent_id=spec.id, conversation_id=given.session_id):
        result = await execute(run)
        if result.status == "finished":
            with CancelScope(shield=True):  # what is answered is captured, also if nobody waits any more
                result = await capture_result(run, await emit_finished(run, result))
        return result


def _resume_turn(
    spec: AgentSpec, saved: Snapshot, given: TurnOptions, events: EventEmitter, model: Any, streaming: bool
) -> Turn:
    asked = saved.asked
    for field in ("session_id", "project_id", "request_id"):
        said, kept = getattr(given, field), asked.id if field == "request_id" else getattr(asked, field)
        if said is not None and said != kept:
            raise Invalid(field, f"is {said!r}, the snapshot's is {kept!r}", "leave it out")
    check_same_controls(asked, given.controls)
    given.session_id = asked.session_id
    given.project_id = asked.project_id
    given.decisions = {**saved.decode_decisions(), **given.decisions}
    given.context = resume_context(spec, asked, given.context)
    given.reviews = saved.reviews
    base = given.agent or restore_with_plugins(saved.base, spec.definition())
    return Turn(
        given.build_environment(spec, events=events, model=model, streaming=streaming),
        asked,
        _with_entries(base, (*saved.past, *saved.entries)),
        history=saved.history,
        entries=saved.entries,
        recalled=saved.recalled,
        has_recalled=bool(saved.entries),
        resumed=True,
    )


def _with_entries(agent: Agent, entries: Sequence[ThreadEntry]) -> Agent:
    """The agent with the entries of a turn in its thread, as far as they are not there."""
    written = thread.of(agent)
    known = {entry.id for entry in written.entries}
    return thread.put(agent, written.append([entry for entry in entries if entry.id not in known]))


def _input_of(journal: Journal) -> str:
    """What the user said, in the turn of a journal."""
    user = progress_of(journal.entries, journal.request_id).user
    if user is None:
        raise Diverged(journal.request_id, "what the user said")
    said: str = user.payload["content"]
    return said


async def execute(run: Turn) -> TurnResult:
    """Run a turn to its end, or to where it stops for now; what is not ours is raised as ours."""
    try:
        reply = await run.run()
    except Paused as paused:
        return result_of(run, status=paused.status, reviews=paused.reviews)
    except OmoideError:
        raise
    except Exception as error:
        raise TurnFailed(
            run.request.id, f"failed ({type(error).__name__}: {error})", "see the cause"
        ) from error
    value = parse_output(run.environment.spec, reply.content, run.environment.model_name)
    return result_of(run, content=reply.content).replace(value=value)


def result_of(run: Turn, *, status: str = "finished", content: str = "", reviews: Any = ()) -> TurnResult:
    """All that is known of a turn that stops here."""
    snapshot = None
    if status != "finished" and run.environment.record is None:  # what is kept elsewhere need not be copied
        snapshot = Snapshot(
            asked=run.request,
            base=checkpoint(run.initial_agent),
            past=_entries_before(run),
            entries=tuple(run.entries),
            recalled=run.recalled,
            reviews=tuple({one.id: one for one in (*run.environment.reviews, *reviews)}.values()),
            history=tuple(run.history),
            decisions={key: codec.to_builtins(one) for key, one in run.environment.decisions.items()},
        ).with_digest()
    return TurnResult(
        content=content,
        status=status,
        request_id=run.request.id,
        session_id=run.request.session_id,
        agent=run.agent,
        prompt=run.prompt,
        events=tuple(run.environment.events.log),
        usage=run.progress.usage,
        journal=run.journal,
        reviews=reviews,
        snapshot=snapshot,
        directives=tuple(run.directives),
        rounds=run.progress.rounds,
    )


def _entries_before(run: Turn) -> tuple[ThreadEntry, ...]:
    """What the agent's thread held before the turn."""
    written = thread.of(run.initial_agent).entries
    return tuple(one for one in written if one.payload.get("request_id") != run.request.id)


async def emit_finished(run: Turn, result: TurnResult) -> TurnResult:
    """The result, after it was told that the turn is over."""
    done = run.progress
    notices = await emit_final_event(run, "turn_finished", rounds=done.rounds, tokens=done.usage.total_tokens)
    return result.replace(notices=(*result.notices, *notices), events=tuple(run.environment.events.log))


async def emit_final_event(run: Turn, kind: str, **data: Any) -> list[str]:
    """Tell something of a turn that is over, whatever a listener makes of it."""
    try:
        with move_on_after(FINAL_EVENT_TIMEOUT, shield=True):
            await run.environment.events.emit(kind, **data)
    except Exception as error:
        return [f"a listener failed ({type(error).__name__}: {error})"]
    return []


async def capture_result(run: Turn, result: TurnResult, **more: Any) -> TurnResult:
    """The result with the receipt of what was captured; a failure is told and stops nothing."""
    world, asked = run.environment, run.request
    receipt: WriteResult | None = None
    failure: Exception | None = None
    notices: list[str] = []
    try:
        receipt = await capture_turn(
            world.spec,
            run.input,
            result.content,
            request_id=asked.id,
            memory_store=world.store,
            session_id=asked.session_id,
            project_id=asked.project_id,
            context=world.data,
            at=asked.at,
            **more,
        )
    except Exception as error:
        failure = error
        problem = redact(str(error), world.hidden)
        notices.append(f"the turn was not captured ({type(error).__name__}: {problem})")
    if failure is not None:
        notices += await emit_final_event(run, "memory_not_written", error=type(failure).__name__)
    elif receipt is not None:
        notices += await emit_final_event(run, "memory_written", id=receipt.id, outcome=receipt.outcome)
    return result.replace(memory=receipt, notices=(*result.notices, *notices), events=tuple(world.events.log))
