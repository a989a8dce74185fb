"""Run turns: `turn` returns the whole result, `chat` the answer, `stream` the events while they happen.

`replay` runs a turn again from its journal. A turn that waits or hibernates returns a `Snapshot`, which
`turn` accepts in place of an input.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, ClassVar, Self, Unpack

from anyio import CancelScope, create_memory_object_stream, create_task_group, move_on_after

from omoide import observe, thread
from omoide.concurrency import raise_first_error
from omoide.core import codec
from omoide.core.action import Directive
from omoide.core.agent import Agent, mount_plugins
from omoide.core.checkpoint import Checkpoint, checkpoint, restore
from omoide.core.codec import MapField, TextsField
from omoide.core.definition import Definition
from omoide.core.entry import RecallResult, WriteResult
from omoide.core.frozen import EMPTY_MAP
from omoide.core.state import SLOTS
from omoide.core.thread import ThreadEntry
from omoide.core.value import Count, Id, Value, check_instance, check_tuple, set_field
from omoide.errors import Diverged, Invalid, OmoideError, RestoreFailed, ReviewNeeded, TurnFailed
from omoide.turns.controls import Review, TurnRequest, check_same_controls, decode_decisions, redact
from omoide.turns.journal import Event, EventEmitter, EventListener, Journal, conversation, progress_of
from omoide.turns.loop import Turn, TurnState
from omoide.turns.memory import capture_turn, restated_memories, resume_context
from omoide.turns.model import Model
from omoide.turns.options import Paused, TurnKwargs, TurnOptions
from omoide.turns.prompt import Exchange, Prompt, Usage, as_exchanges
from omoide.turns.spec import AgentSpec

SNAPSHOT_VERSION = 1
FINAL_EVENT_TIMEOUT = 5
"""Seconds that a listener gets for the events after the answer."""


class Snapshot(Value, frozen=True, kw_only=True):
    """A suspended turn: all that is needed to resume it, without secrets."""

    schema_version: int = SNAPSHOT_VERSION
    asked: TurnRequest
    base: Checkpoint
    """The agent before the turn."""
    past: tuple[ThreadEntry, ...] = ()
    """The agent's thread before the turn."""
    entries: tuple[ThreadEntry, ...] = ()
    """The entries that the turn wrote so far."""
    recalled: RecallResult | None = None
    reviews: tuple[Review, ...] = ()
    history: tuple[Exchange, ...] = ()
    decisions: MapField = EMPTY_MAP
    """Decisions on the reviews so far, by review id."""
    digest: str = ""
    """SHA-256 of the other fields, which detects changes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "past", check_tuple(self.past, "past", ThreadEntry))
        set_field(self, "entries", check_tuple(self.entries, "entries", ThreadEntry))
        set_field(self, "reviews", check_tuple(self.reviews, "reviews", Review))
        set_field(self, "history", check_tuple(self.history, "history", Exchange))

    def with_digest(self) -> Self:
        """Return the snapshot with its digest."""
        return self.replace(digest=self._compute_digest())

    def check(self) -> Self:
        """Return the snapshot itself.

        Raises:
            Invalid: it has another version, or was changed after it was made.
        """
        if self.schema_version != SNAPSHOT_VERSION:
            raise Invalid(
                "snapshot.schema_version",
                f"is {self.schema_version}, this reads {SNAPSHOT_VERSION}",
                "resume it with the version of Omoide that made it",
            )
        if self.digest != self._compute_digest():
            raise Invalid("snapshot", "was changed since it was made", "pass it as it was given")
        return self

    def _compute_digest(self) -> str:
        return sha256(codec.encode(self.replace(digest=""), sort_keys=True)).hexdigest()


class TurnResult(Value, frozen=True, kw_only=True):
    """The result of a turn. `content` is the answer; a turn that waits has none yet."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"agent", "directives"})

    content: str = ""
    status: str = "finished"
    """`finished`; `waiting` for a decision on its `reviews`; or `hibernated` at a checkpoint."""
    request_id: Id
    session_id: Id | None = None
    agent: Agent | None = None
    """The agent after the turn."""
    prompt: Prompt | None = None
    """The last prompt that was sent, or would have been."""
    events: tuple[Event, ...] = ()
    usage: Usage = Usage()
    journal: Journal
    memory: WriteResult | None = None
    """The receipt of the captured memory."""
    notices: TextsField = ()
    """Problems that did not stop the turn."""
    reviews: tuple[Review, ...] = ()
    snapshot: Snapshot | None = None
    directives: tuple[Directive, ...] = ()
    """Directives of pure actions; a turn does not execute them. They are not part of the JSON form."""
    rounds: Count = 0
    value: Any = None
    """The answer as data, where the spec has a `result`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, kind in (("events", Event), ("reviews", Review), ("directives", Directive)):
            set_field(self, field, check_tuple(getattr(self, field), field, kind))

    @property
    def recalled(self) -> RecallResult | None:
        """The memories that were recalled for the turn."""
        return self.journal.recalled

    def __str__(self) -> str:
        return self.content


def restore_with_plugins(saved: Checkpoint, definition: Definition) -> Agent:
    """Restore an agent and mount the plugins whose slice the checkpoint does not have."""
    agent = restore(saved, definition)
    keys = saved.externalized_keys or EMPTY_MAP
    externalized = {keys.get(key, key) for key in saved.externalized}
    lost = [key for key in externalized if key not in agent.state and key not in SLOTS]
    if lost:
        raise RestoreFailed(f"slice {lost[0]!r} of agent {saved.id!r}", "its plugin has no on_restore for it")
    absent = {plugin.key for plugin in definition.plugins} - {*saved.state} - externalized - {*SLOTS}
    return mount_plugins(agent, absent) if absent else agent


async def turn(spec: AgentSpec, input: str | Snapshot, **options: Unpack[TurnKwargs]) -> TurnResult:
    """Run a turn: recall, assemble the prompt, call the model and its tools, capture.

    Args:
        spec: the agent.
        input: the user's message, or the snapshot of a suspended turn to resume.
        options: see `TurnKwargs`.

    Raises:
        ModelFailed: the model did not answer.
        Blocked: a control refused the input or the answer.
        TooManyRounds: the model asked for tools more often than `spec.limits` allows.
        OverBudget: instructions, tools and input do not fit into the window.
    """
    return await _run_turn(spec, input, TurnOptions.from_kwargs(options), streaming=False)


async def chat(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> str:
    """Run a turn and return the answer.

    Raises:
        ReviewNeeded: the turn waits for a decision; use `turn` to get its snapshot.
    """
    return answer_of(await turn(spec, input, **options))


def answer_of(result: TurnResult) -> str:
    """Return the answer of a finished turn; a suspended one raises."""
    if result.reviews:
        raise ReviewNeeded(result.request_id, [review.id for review in result.reviews])
    if result.status != "finished":
        raise TurnFailed(result.request_id, "is suspended and has no answer yet", "resume it")
    return result.content


@asynccontextmanager
async def stream(
    spec: AgentSpec, input: str | Snapshot, **options: Unpack[TurnKwargs]
) -> AsyncIterator[TurnStream]:
    """Run a turn whose events can be read meanwhile; `text` events carry the answer piece by piece."""
    turn_options = TurnOptions.from_kwargs(options)

    async def run(listener: EventListener) -> TurnResult:
        turn_options.on_event = listener
        return await _run_turn(spec, input, turn_options, streaming=True)

    async with open_stream(run, turn_options.on_event) as streaming:
        yield streaming


async def replay(spec: AgentSpec, journal: Journal, *, agent: Agent | None = None) -> TurnResult:
    """Run a turn again from its journal, without calling, recalling or writing anything.

    Args:
        spec: the agent.
        journal: the journal of the turn.
        agent: the agent as it was before the turn; default: a new one.

    Raises:
        Diverged: the journal lacks something that the turn needs now.
    """
    check_instance(journal, "journal", kind=Journal)
    options = TurnOptions.from_kwargs({"request_id": journal.request_id})
    request = options.build_request(spec, _input_of(journal))
    base = agent or Agent.new(spec.definition(), id=spec.id)
    state = TurnState(
        options.build_environment(spec, events=EventEmitter(), model=None),
        request,
        _with_entries(base, journal.entries),
        entries=journal.entries,
        recalled=journal.recalled,
        has_recalled=True,
        resumed=True,
    )
    return await execute(state)


class TurnStream:
    """The events of a running turn; `result` is there when they have ended."""

    def __init__(self, events: AsyncIterator[Event]) -> None:
        self._events = events
        self._result: TurnResult | None = None
        self._error: Exception | None = None
        self._raised = False

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Yield each event as it happens; a turn that fails raises its error after the last."""
        async for event in self._events:
            yield event
        self._raise_failure()

    async def text(self) -> AsyncIterator[str]:
        """Yield the model's text piece by piece, before its tools run as well as at the end."""
        async for event in self:
            if event.kind == "text":
                yield event.data["text"]

    @property
    def result(self) -> TurnResult:
        """The result of the turn; raises the error that it failed with."""
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
    """Run a turn in the background and yield its events; leaving the block early cancels it."""
    # Unbounded: a turn whose reader stopped reading still finishes, and releases its session.
    send, receive = create_memory_object_stream[Event](math.inf)
    streaming = TurnStream(receive)

    async def forward(event: Event) -> None:
        if listener is not None:
            pending = listener(event)
            if isinstance(pending, Awaitable):
                await pending
        await send.send(event)

    async def work() -> None:
        async with send:
            try:
                streaming._result = await run(forward)
            except Exception as error:  # raised where the events are read
                streaming._error = error

    try:
        async with receive, create_task_group() as group:
            group.start_soon(work)
            yield streaming
            receive.close()
            group.cancel_scope.cancel()
    except BaseExceptionGroup as several:
        raise_first_error(several)
    # A reader that stopped before the end still gets the error of the turn.
    if not streaming._raised:
        streaming._raise_failure()


async def _run_turn(
    spec: AgentSpec, input: str | Snapshot, options: TurnOptions, *, streaming: bool
) -> TurnResult:
    check_instance(spec, "spec", kind=AgentSpec)
    model = options.resolve_model(spec)
    events = EventEmitter(options.on_event)
    if isinstance(input, Snapshot):
        state = _resume_state(spec, input.check(), options, events, model, streaming)
    else:
        request = options.build_request(spec, input)
        agent = options.agent or Agent.new(spec.definition(), id=spec.id)
        environment = options.build_environment(spec, events=events, model=model, streaming=streaming)
        history = as_exchanges(options.history) or conversation(thread.of(agent).entries)
        state = TurnState(environment, request, agent, history=history)
    with observe.span("invoke_agent", name=spec.id, agent_id=spec.id, conversation_id=options.session_id):
        result = await execute(state)
        if result.status == "finished":
            with CancelScope(shield=True):  # an answer is captured even if the caller is cancelled now
                result = await capture_result(state, await emit_finished(state, result))
        return result


def _resume_state(
    spec: AgentSpec,
    saved: Snapshot,
    options: TurnOptions,
    events: EventEmitter,
    model: Model,
    streaming: bool,
) -> TurnState:
    request = saved.asked
    for field in ("session_id", "project_id", "user_id", "request_id"):
        passed = getattr(options, field)
        own = request.id if field == "request_id" else getattr(request, field)
        if passed is not None and passed != own:
            raise Invalid(field, f"is {passed!r}, the snapshot's is {own!r}", "leave it out")
    check_same_controls(request, options.controls)
    options.session_id = request.session_id
    options.project_id = request.project_id
    options.user_id = request.user_id
    # Decisions of this call override those that the snapshot holds.
    options.decisions = {**decode_decisions(saved.decisions), **options.decisions}
    options.context = resume_context(spec, request, options.context)
    options.reviews = saved.reviews
    base = options.agent or restore_with_plugins(saved.base, spec.definition())
    return TurnState(
        options.build_environment(spec, events=events, model=model, streaming=streaming),
        request,
        _with_entries(base, (*saved.past, *saved.entries)),
        history=saved.history,
        entries=saved.entries,
        recalled=saved.recalled,
        # A turn that was suspended at its input has no entries, and recalled nothing yet.
        has_recalled=bool(saved.entries),
        resumed=True,
    )


def _with_entries(agent: Agent, entries: Sequence[ThreadEntry]) -> Agent:
    """Append the entries that the agent's thread does not have."""
    # Matched by id: the agent that the caller passes may have some of them already.
    written = thread.of(agent)
    known = {entry.id for entry in written.entries}
    return thread.put(agent, written.append([entry for entry in entries if entry.id not in known]))


def _input_of(journal: Journal) -> str:
    user = progress_of(journal.entries, journal.request_id).user
    if user is None:
        raise Diverged(journal.request_id, "what the user said")
    text: str = user.payload["content"]
    return text


async def execute(state: TurnState) -> TurnResult:
    """Run a turn until it ends or pauses; foreign exceptions are raised as `TurnFailed`."""
    environment = state.environment
    try:
        reply = await Turn(state).run()
    except Paused as paused:
        return result_of(state, status=paused.status, reviews=paused.reviews)
    except OmoideError:
        raise
    except Exception as error:
        problem = f"failed ({type(error).__name__}: {error})"
        raise TurnFailed(state.request.id, problem, "see the cause") from error
    value = environment.spec.parse_output(reply.content, environment.model_name)
    return result_of(state, content=reply.content).replace(value=value)


def result_of(
    state: TurnState, *, status: str = "finished", content: str = "", reviews: Any = ()
) -> TurnResult:
    """Return the result of a turn that stops here."""
    environment = state.environment
    snapshot = None
    if status != "finished" and environment.recorder is None:  # else the session has it all
        snapshot = Snapshot(
            asked=state.request,
            base=checkpoint(state.initial_agent),
            past=_entries_before(state),
            entries=tuple(state.entries),
            recalled=state.recalled,
            reviews=tuple({review.id: review for review in (*environment.reviews, *reviews)}.values()),
            history=tuple(state.history),
            decisions={key: codec.to_builtins(one) for key, one in environment.decisions.items()},
        ).with_digest()
    return TurnResult(
        content=content,
        status=status,
        request_id=state.request.id,
        session_id=state.request.session_id,
        agent=state.agent,
        prompt=state.prompt,
        events=tuple(environment.events.log),
        usage=state.progress.usage,
        journal=state.journal,
        reviews=reviews,
        snapshot=snapshot,
        directives=tuple(state.directives),
        rounds=state.progress.rounds,
    )


def _entries_before(state: TurnState) -> tuple[ThreadEntry, ...]:
    """Return the entries of the agent's thread that belong to earlier turns."""
    entries = thread.of(state.initial_agent).entries
    return tuple(entry for entry in entries if entry.payload.get("request_id") != state.request.id)


async def emit_finished(state: TurnState, result: TurnResult) -> TurnResult:
    """Emit `turn_finished` and return the result with that event."""
    progress = state.progress
    notices = await _emit_final_event(
        state, "turn_finished", rounds=progress.rounds, tokens=progress.usage.total_tokens
    )
    events = tuple(state.environment.events.log)
    return result.replace(notices=(*result.notices, *notices), events=events)


async def _emit_final_event(state: TurnState, kind: str, **data: Any) -> list[str]:
    """Emit an event after the answer; a listener that fails or hangs only causes a notice."""
    try:
        # Shielded, so that a cancelled caller still gets the event; bounded, because a listener may hang.
        with move_on_after(FINAL_EVENT_TIMEOUT, shield=True):
            await state.environment.events.emit(kind, **data)
    except Exception as error:
        return [f"a listener failed ({type(error).__name__}: {error})"]
    return []


def restated_by(state: TurnState, answer: str) -> list[str]:
    """Return the ids of the memories that the answer of a turn only repeats."""
    used = [] if state.prompt is None or state.prompt.memory is None else state.prompt.memory["entries"]
    ids, hits = {entry["id"] for entry in used}, () if state.recalled is None else state.recalled.hits
    shown = {hit.entry.id: hit.text for hit in hits if hit.entry.id in ids}
    shown |= {entry.id: entry.content for entry in state.pinned}
    return restated_memories(state.input, answer, shown)


async def capture_result(state: TurnState, result: TurnResult, **source: Any) -> TurnResult:
    """Capture a finished turn and return the result with the receipt; a failure only causes a notice.

    Args:
        state: the turn.
        result: its result so far.
        source: `message` and `evidence` of the captured memory.
    """
    environment, request = state.environment, state.request
    receipt: WriteResult | None = None
    failure: Exception | None = None
    notices: list[str] = []
    try:
        receipt = await capture_turn(
            environment.spec,
            state.input,
            result.content,
            request_id=request.id,
            store=environment.store,
            session_id=request.session_id,
            project_id=request.project_id,
            user_id=request.user_id,
            context=environment.data,
            at=request.at,
            restated=restated_by(state, result.content),
            **source,
        )
    except Exception as error:
        failure = error
        problem = redact(str(error), environment.hidden)
        notices.append(f"the turn was not captured ({type(error).__name__}: {problem})")
    if failure is not None:
        notices += await _emit_final_event(state, "memory_not_written", error=type(failure).__name__)
    elif receipt is not None:
        notices += await _emit_final_event(state, "memory_written", id=receipt.id, outcome=receipt.outcome)
    return result.replace(
        memory=receipt, notices=(*result.notices, *notices), events=tuple(environment.events.log)
    )
