"""Run the turns of a session and persist each step.

First the request is persisted, then what was recalled, then each message, tool call and result. The final
reply makes the turn part of the conversation; only after that it is captured and short-term memory is
promoted.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from typing import Any

import msgspec
from anyio import CancelScope, get_cancelled_exc_class, move_on_after

from omoide import clock, observe
from omoide.core.agent import Agent
from omoide.core.checkpoint import checkpoint
from omoide.core.entry import Evidence, MessageRef, RecallResult
from omoide.core.frozen import EMPTY_MAP
from omoide.core.thread import ThreadEntry
from omoide.errors import Erased, Invalid, KeyReused, OmoideError, ReviewNeeded, TurnPending
from omoide.retrieval.text import TokenCounter
from omoide.sessions.memory import Scratchpad, SessionMemory
from omoide.sessions.storage import InFlight, PendingCapture, SessionState
from omoide.stores.protocols import Store
from omoide.turns import journal, tools
from omoide.turns.controls import TurnRequest, check_same_controls, decode_decisions, redact, secret_texts
from omoide.turns.journal import EventEmitter
from omoide.turns.loop import TurnState
from omoide.turns.memory import capture_turn, memory_policy, resume_context, scope_of
from omoide.turns.model import Model
from omoide.turns.options import TurnOptions
from omoide.turns.prompt import SessionBlock, SessionView, check_fits, shown_ids
from omoide.turns.runner import TurnResult, capture_result, emit_finished, execute, restated_by
from omoide.turns.spec import AUTOMATIC_CAPTURES, AgentSpec

UNFINISHED_STATUSES = ("running", "hibernated", "waiting")
CANCEL_TIMEOUT = 5
"""Seconds to persist that a turn was cancelled."""
MAX_PENDING_CAPTURES = 100
"""Turns that may wait to be captured while their store cannot be written to."""


class TurnRunner:
    """Runs the turns of one session; it is the `TurnRecorder` of each."""

    def __init__(
        self, spec: AgentSpec, state: SessionState, memory: SessionMemory, store: Store | None
    ) -> None:
        self._spec = bounded_spec(spec, memory.budget.total)
        self._state = state
        self._memory = memory
        self._store = store
        """The store of the session's memory; a turn may use another."""

    async def begin(self, input: str, options: TurnOptions, *, streaming: bool) -> TurnResult:
        """Run a new turn."""
        # Validated before the lock, so that a wrong call fails without the session.
        request, model = options.build_request(self._spec, input), options.resolve_model(self._spec)
        check_fits(self._spec, request.input, tools.operations(self._spec), options.count_tokens)
        async with self._state.lock():
            record = self._state.record
            if record.status in UNFINISHED_STATUSES:
                raise TurnPending(record.session_id, record.status)
            if self._state.has_request(request.id):
                raise Invalid("request_id", f"{request.id!r} was asked here before", "choose another")
            notices = await self._capture_pending(options)
            await self._close_previous_turn(options, model)
            turn = InFlight(asked=request)
            result = await self._run(turn, self._state.agent, options, model, streaming=streaming)
            return result.replace(notices=(*notices, *result.notices))

    async def resume(self, options: TurnOptions, *, streaming: bool = False) -> TurnResult | None:
        """Resume the turn that did not finish; return None if there is none."""
        async with self._state.lock():
            notices = await self._capture_pending(options)
            reviews, turn = self._state.record.pending_reviews, self._state.record.turn
            if turn is None:
                return None
            check_same_controls(turn.asked, options.controls)
            options.decisions = {**decode_decisions(turn.decisions), **options.decisions}
            options.reviews = reviews
            undecided = [review.id for review in reviews if review.id not in options.decisions]
            if undecided:
                raise ReviewNeeded(turn.asked.id, undecided)
            options.context = resume_context(self._spec, turn.asked, options.context)
            if turn.asked.off_record:
                options.store = None
            model = options.resolve_model(self._spec)
            # A process that lost its lease finds the transcript changed by this, and can no longer write.
            await self._state.append([journal.resumed_entry(turn.asked.id)])
            agent = self._state.agent
            await self._state.save(status="running", error=None)
            result = await self._run(turn, agent, options, model, resumed=True, streaming=streaming)
            return result.replace(notices=(*notices, *result.notices))

    async def _capture_pending(self, options: TurnOptions) -> list[str]:
        """Capture earlier turns whose capture failed; return notices."""
        # Oldest first, and none after one that has to wait: memories are captured in order.
        waiting = [*self._state.record.captures]
        notices: list[str] = []
        while waiting:
            capture = waiting[0]
            try:
                await self._capture_one(capture, options)
            except (Invalid, KeyReused, Erased) as error:  # these will not pass with time
                notices.append(f"turn {capture.asked.id!r} is not captured ({type(error).__name__})")
            except OmoideError as error:
                notices.append(f"{len(waiting)} earlier turns wait to be captured ({type(error).__name__})")
                break
            waiting.pop(0)
        excess = len(waiting) - MAX_PENDING_CAPTURES
        if excess > 0:
            notices.append(f"{excess} earlier turns will not be captured: too many wait")
            waiting = waiting[excess:]
        if len(waiting) != len(self._state.record.captures):
            await self._state.save(captures=tuple(waiting))
        return notices

    async def _capture_one(self, capture: PendingCapture, options: TurnOptions) -> None:
        request = capture.asked
        await capture_turn(
            self._spec,
            capture.input,
            capture.content,
            request_id=request.id,
            store=options.store,
            session_id=request.session_id,
            project_id=request.project_id,
            user_id=request.user_id,
            context=resume_context(self._spec, request, options.context),
            at=request.at,
            restated=capture.restated,
            **self._message_source(capture.first, capture.last),
        )

    async def _close_previous_turn(self, options: TurnOptions, model: Model) -> None:
        """Finish a failed turn that has its answer, and abandon one that has not."""
        turn = self._state.record.turn
        if turn is None:
            return
        request = turn.asked
        progress = journal.progress_of(self._state.entries_of(request.id), request.id)
        if progress.final_reply is None:
            await self._state.abandon_turn(request.id, "something else was asked")
            return
        # Listener and decisions of the new request do not belong to the older turn.
        quiet = msgspec.structs.replace(
            options,
            on_event=None,
            decisions=EMPTY_MAP,
            context=resume_context(self._spec, request, options.context),
            store=None if request.off_record else self._store,
        )
        await self._run(turn, self._state.agent, quiet, model, resumed=True)

    async def _run(
        self,
        turn: InFlight,
        agent: Agent,
        options: TurnOptions,
        model: Model,
        *,
        resumed: bool = False,
        streaming: bool = False,
    ) -> TurnResult:
        request = turn.asked
        environment = options.build_environment(
            self._spec,
            events=EventEmitter(options.on_event),
            model=model,
            recorder=self,
            streaming=streaming,
            token_counts=self._state.token_counts(options.count_tokens),
            session=self.view(options),
            scratchpad=Scratchpad(self._memory, self._state),
        )
        state = TurnState(
            environment,
            request,
            agent,
            history=self._state.history,
            entries=self._state.entries_of(request.id) if resumed else (),
            recalled=turn.recalled,
            has_recalled=turn.remembered,
            resumed=resumed,
        )
        agent_id, session_id = self._spec.id, request.session_id
        with observe.span("invoke_agent", name=agent_id, agent_id=agent_id, conversation_id=session_id):
            try:
                result = await execute(state)
            except Exception as error:
                await self._record_failure(request.id, error, redact(str(error), environment.hidden))
                raise
            except get_cancelled_exc_class():
                # Shielded, because every await in a cancelled task raises at once; bounded, because the store
                # may hang.
                with move_on_after(CANCEL_TIMEOUT, shield=True):
                    await self._record_cancellation(request.id)
                raise
            # An answer is persisted even if the caller is cancelled now.
            with CancelScope(shield=True):
                if result.status == "finished":
                    await self._commit(state, result)
                    result = await self._capture_result(state, await emit_finished(state, result))
                else:
                    await self._suspend(state, result)
                # A resumed turn counted its memories before it was suspended.
                shown = () if turn.remembered else shown_ids(state.prompt)
                notices = await self._update_memory(options, request, shown)
            return result.replace(notices=(*result.notices, *notices)) if notices else result

    def view(self, options: TurnOptions) -> SessionView:
        """Return what the prompts of a turn with these options show of the session."""
        self._memory.follow(self._state.thread)
        return _View(self._memory, secret_texts(options.context, options.secrets))

    async def _update_memory(
        self, options: TurnOptions, request: TurnRequest, shown: Sequence[str]
    ) -> list[str]:
        """Read the turn into short-term memory, promote what is due, and save; return notices."""
        try:
            memory, policy = self._memory, memory_policy(self._spec)
            await memory.refresh()
            memory.follow(self._state.thread)
            memory.check_open()  # the session may have been closed during the turn
            memory.record_use(shown, clock.now())
            trigger = memory.due_trigger(clock.now())
            if trigger is not None and self._store is not None and policy is not None:
                scope = scope_of(
                    self._spec,
                    policy,
                    session_id=request.session_id,
                    # A resumed request may be older than these.
                    project_id=memory.project_id,
                    user_id=memory.user_id,
                    context=options.context,
                    include_session=True,
                )
                await memory.promote(self._store, self._state.thread, scope, trigger)
            await memory.save(closed=False)
        except Exception as error:  # the turn has its answer, whatever happens here
            return [f"short-term memory was not saved ({type(error).__name__}: {error})"]
        return []

    # TurnRecorder

    async def record_start(self, request: TurnRequest) -> None:
        """Persist the request, as the controls left it."""
        await self._state.save(status="running", turn=InFlight(asked=request), error=None, pending_reviews=())

    async def record_recall(self, recalled: RecallResult | None) -> None:
        """Persist the recalled memories, so that a resumed turn does not recall again."""
        turn = self._state.record.turn
        if turn is not None:
            await self._state.save(turn=turn.replace(recalled=recalled, remembered=True))

    async def record_entries(self, entries: Sequence[ThreadEntry]) -> None:
        """Append entries to the transcript."""
        await self._state.append(entries)

    # The end of a turn

    async def _suspend(self, state: TurnState, result: TurnResult) -> None:
        """Persist a turn that waits or hibernates; one that waits at its input was not persisted before."""
        turn = self._state.record.turn
        if turn is None or turn.asked.id != state.request.id:
            await self.record_start(state.request)
            turn = InFlight(asked=state.request)
        # Decisions that did not take effect yet stay; a new question needs a new decision.
        unresolved = {
            review.id: review
            for review in self._state.record.pending_reviews
            if not state.is_resolved(review)
        }
        decisions = {key: decision for key, decision in turn.decisions.items() if key in unresolved}
        turn = (self._state.record.turn or turn).replace(decisions=decisions)
        reviews = unresolved | {review.id: review for review in result.reviews}
        await self._state.save(status=result.status, pending_reviews=tuple(reviews.values()), turn=turn)

    async def _record_failure(self, request_id: str, error: Exception, message: str) -> None:
        """Persist the error; the turn stays, so that it can be resumed or abandoned."""
        turn = self._state.record.turn
        if turn is None or turn.asked.id != request_id:
            return  # it was refused before anything of it was persisted
        if self._state.lease_lost:
            return  # another process runs the session
        kind = type(error).__name__
        details = {"kind": kind, "message": message, "request_id": request_id}
        with suppress(OmoideError):  # the first error is the one to raise
            await self._state.append([journal.error_entry(request_id, kind, message)])
            await self._state.save(status="error", error=details)

    async def _record_cancellation(self, request_id: str) -> None:
        """Persist that the turn was cancelled; it can be resumed or abandoned."""
        turn = self._state.record.turn
        if turn is not None and turn.asked.id == request_id and not self._state.lease_lost:
            message = "the turn was cancelled"
            details = {"kind": "Cancelled", "message": message, "request_id": request_id}
            with suppress(OmoideError):
                await self._state.save(status="error", error=details)

    async def _commit(self, state: TurnState, result: TurnResult) -> None:
        """Persist the end of the turn: from here on it is part of the conversation."""
        progress, policy = state.progress, memory_policy(self._spec)
        captures = self._state.record.captures
        is_captured = policy is not None and policy.capture in AUTOMATIC_CAPTURES
        if is_captured and state.environment.store is self._store:
            # Saved with the end of the turn, so that a crash before the capture does not lose it.
            first, last = _positions(state)
            captures += (
                PendingCapture(
                    asked=state.request,
                    input=state.input,
                    content=result.content,
                    first=first,
                    last=last,
                    restated=tuple(restated_by(state, result.content)),
                ),
            )
        await self._state.save(
            status="finished",
            turn=None,
            pending_reviews=(),
            error=None,
            checkpoint=checkpoint(state.agent),
            turns=self._state.record.turns + 1,
            last_request_id=state.request.id,
            result=result.content,
            captures=captures,
        )
        self._state.history.append(journal.to_exchange(progress, state.request.id))

    async def _capture_result(self, state: TurnState, result: TurnResult) -> TurnResult:
        waiting = self._state.record.captures
        result = await capture_result(state, result, **self._message_source(*_positions(state)))
        if result.memory is not None and waiting and waiting[-1].asked.id == state.request.id:
            await self._state.save(captures=waiting[:-1])
        return result

    def _message_source(self, first: int, last: int) -> dict[str, Any]:
        """Return message and evidence of a memory that is captured from the transcript."""
        thread_id = self._state.thread.id
        return {
            "message": MessageRef(thread=thread_id, seq=first),
            "evidence": tuple(Evidence(kind="message", ref=f"{thread_id}:{seq}") for seq in (first, last)),
        }


class _View:
    """The session as a prompt shows it, without the secrets of the turn."""

    def __init__(self, memory: SessionMemory, hidden: tuple[str, ...]) -> None:
        self._memory = memory
        self._hidden = hidden

    def block(self, dropped: Set[str | None], budget: int, count: TokenCounter) -> SessionBlock:
        """Return what fits into the budget."""
        return self._memory.prompt_block(dropped, budget, count, lambda text: redact(text, self._hidden))


def bounded_spec(spec: AgentSpec, total: int) -> AgentSpec:
    """Return the spec with a window in which no prompt is longer than the token budget of the session."""
    window = spec.window
    most = total + window.reserve_output_tokens
    return spec if window.max_tokens <= most else spec.replace(window=window.replace(max_tokens=most))


def _positions(state: TurnState) -> tuple[int, int]:
    """Return the positions of the input and the answer in the thread."""
    progress = state.progress
    first = 0 if progress.user is None else progress.user.seq
    return first, progress.final_seq or first
