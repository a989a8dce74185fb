"""How does a session run a turn, and what of it is kept when?

Before anything happens, that the turn was asked; then what was recalled, each message, tool call and result
as it comes; at the end the answer, with which the turn is part of the conversation; and only then what is to
be remembered of it.

"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import msgspec
from anyio import CancelScope, get_cancelled_exc_class, move_on_after

from omoide import observe
from omoide.core import codec
from omoide.core.agent import Agent
from omoide.core.checkpoint import checkpoint
from omoide.core.entry import Evidence, MessageRef, RecallResult
from omoide.core.frozen import EMPTY_MAP, thaw
from omoide.errors import Erased, Invalid, KeyReused, OmoideError, ReviewNeeded, TurnPending
from omoide.sessions.storage import InFlight, PendingCapture, SessionState
from omoide.stores.protocols import Store
from omoide.turns import journal, memory, tools
from omoide.turns.controls import Decision, TurnRequest, check_same_controls, redact
from omoide.turns.journal import EventEmitter
from omoide.turns.loop import Turn
from omoide.turns.memory import memory_policy, resume_context
from omoide.turns.model import Model
from omoide.turns.options import TurnOptions
from omoide.turns.prompt import check_fits
from omoide.turns.result import TurnResult
from omoide.turns.runner import capture_result, emit_finished, execute
from omoide.turns.spec import AgentSpec

UNFINISHED_STATUSES = ("running", "hibernated", "waiting")
CANCEL_TIMEOUT = 5
"""Seconds to write down that a turn was cancelled."""
MAX_PENDING_CAPTURES = 100
"""How many turns may wait to be remembered, while their store cannot be written to."""


class TurnRunner:
    """The turns of one session."""

    def __init__(
        self,
        spec: AgentSpec,
        state: SessionState,
        store: Store | None,
        on_turn_end: Callable[[], Awaitable[None]],
    ) -> None:
        self._spec = spec
        self._state = state
        self._on_turn_end = on_turn_end
        """What is to be done at the end of each turn."""
        self._store = store
        """The store that the session's memory lies in, unless a turn says otherwise."""

    async def begin(self, input: str, options: TurnOptions, *, streaming: bool) -> TurnResult:
        """A new turn."""
        asked, model = options.build_request(self._spec, input), options.resolve_model(self._spec)
        check_fits(self._spec, asked.input, tools.operations(self._spec), options.count_tokens)
        async with self._state.lock():
            header = self._state.record
            if header.status in UNFINISHED_STATUSES:
                raise TurnPending(header.session_id, header.status)
            if self._state.has_request(asked.id):
                raise Invalid("request_id", f"{asked.id!r} was asked here before", "choose another")
            notices = await self._capture_pending(options)
            await self._close_previous_turn(options, model)
            flight = InFlight(asked=asked)
            result = await self._run(
                flight, self._state.agent, options, model, resumed=False, streaming=streaming
            )
            return result.replace(notices=(*notices, *result.notices))

    async def resume(self, options: TurnOptions, *, streaming: bool = False) -> TurnResult | None:
        """The turn that did not finish, from where it stopped; None where there is none."""
        async with self._state.lock():
            notices = await self._capture_pending(options)
            header, flight = self._state.record, self._state.record.turn
            if flight is None:
                return None
            check_same_controls(flight.asked, options.controls)
            options.decisions = {**decode_decisions(flight), **options.decisions}
            options.reviews = header.pending_reviews
            undecided = [one.id for one in header.pending_reviews if one.id not in options.decisions]
            if undecided:
                raise ReviewNeeded(flight.asked.id, undecided)
            options.context = resume_context(self._spec, flight.asked, options.context)
            if flight.asked.off_record:
                options.memory_store = None
            model = options.resolve_model(self._spec)
            # A runner that lost the session finds the transcript changed, and can write no more.
            await self._state.append([journal.resumed_entry(flight.asked.id)])
            agent = self._state.agent
            await self._state.save(status="running", error=None)
            result = await self._run(flight, agent, options, model, resumed=True, streaming=streaming)
            return result.replace(notices=(*notices, *result.notices))

    async def _capture_pending(self, given: TurnOptions) -> list[str]:
        """Remember the turns that were over before they could be captured; what is to be told about it."""
        waiting = [*self._state.record.captures]
        told: list[str] = []
        while waiting:
            one = waiting[0]
            try:
                await self._capture_one(one, given)
            except (Invalid, KeyReused, Erased) as error:  # what is wrong with it will stay wrong
                told.append(f"turn {one.asked.id!r} is not captured ({type(error).__name__})")
            except OmoideError as error:  # this may pass: the next turn tries again
                told.append(f"{len(waiting)} earlier turns wait to be captured ({type(error).__name__})")
                break
            waiting.pop(0)
        if len(waiting) > MAX_PENDING_CAPTURES:
            told.append(
                f"{len(waiting) - MAX_PENDING_CAPTURES} earlier turns will not be captured: too many wait"
            )
            waiting = waiting[-MAX_PENDING_CAPTURES:]
        if len(waiting) != len(self._state.record.captures):
            await self._state.save(captures=tuple(waiting))
        return told

    async def _capture_one(self, one: PendingCapture, given: TurnOptions) -> None:
        await memory.capture_turn(
            self._spec,
            one.input,
            one.content,
            request_id=one.asked.id,
            memory_store=given.memory_store,
            session_id=one.asked.session_id,
            project_id=one.asked.project_id,
            context=resume_context(self._spec, one.asked, given.context),
            at=one.asked.at,
            **self._message_source(one.first, one.last),
        )

    async def _close_previous_turn(self, given: TurnOptions, model: Model) -> None:
        """Something else is asked: a turn that failed will not be gone on with, unless it has its answer."""
        left = self._state.record.turn
        if left is None:
            return
        done = journal.progress_of(self._state.entries_of(left.asked.id), left.asked.id)
        if done.final_reply is not None:
            quiet = msgspec.structs.replace(
                given,
                on_event=None,
                decisions=EMPTY_MAP,
                context=resume_context(self._spec, left.asked, given.context),
                memory_store=None if left.asked.off_record else self._store,
            )
            await self._run(left, self._state.agent, quiet, model, resumed=True, streaming=False)
        else:
            await self._state.append([journal.abandoned_entry(left.asked.id, "something else was asked")])
            status = "finished" if self._state.record.turns else "new"
            await self._state.save(turn=None, status=status, error=None)

    async def _run(
        self,
        flight: InFlight,
        agent: Agent,
        given: TurnOptions,
        model: Model,
        *,
        resumed: bool,
        streaming: bool,
    ) -> TurnResult:
        world = given.build_environment(
            self._spec,
            events=EventEmitter(given.on_event),
            model=model,
            begin=self._record_start,
            record=self._state.append,
            remember=self._record_recall,
            streaming=streaming,
            sizes=self._state.token_counts(given.count_tokens),
        )
        run = Turn(
            world,
            flight.asked,
            agent,
            history=self._state.history,
            entries=self._state.entries_of(flight.asked.id) if resumed else (),
            recalled=flight.recalled,
            has_recalled=flight.remembered,
            resumed=resumed,
        )
        spec, session_id = self._spec, flight.asked.session_id
        with observe.span("invoke_agent", name=spec.id, agent_id=spec.id, conversation_id=session_id):
            try:
                result = await execute(run)
            except Exception as error:
                await self._record_failure(flight.asked.id, error, redact(str(error), world.hidden))
                raise
            except get_cancelled_exc_class():
                with move_on_after(CANCEL_TIMEOUT, shield=True):
                    await self._record_cancellation(flight.asked.id)
                raise
            # What is answered is kept, also for a program that does not wait for it any more.
            with CancelScope(shield=True):
                if result.status == "finished":
                    await self._commit(run, result)
                    result = await self._capture_result(run, await emit_finished(run, result))
                else:
                    await self._suspend(run, result)
                learned = await self._save_short_term()
            return result.replace(notices=(*result.notices, *learned)) if learned else result

    async def _save_short_term(self) -> list[str]:
        """Keep what short-term memory has of the turn; where that fails, the turn is over all the same."""
        try:
            await self._on_turn_end()
        except Exception as error:
            return [f"short-term memory was not saved ({type(error).__name__}: {error})"]
        return []

    async def _record_start(self, asked: TurnRequest) -> None:
        """Keep what was asked, as the controls left it."""
        await self._state.save(status="running", turn=InFlight(asked=asked), error=None, pending_reviews=())

    async def _record_recall(self, recalled: RecallResult | None) -> None:
        """Keep what was recalled, so that a turn which is taken up again does not recall twice."""
        flight = self._state.record.turn
        if flight is not None:
            await self._state.save(turn=flight.replace(recalled=recalled, remembered=True))

    async def _suspend(self, run: Turn, result: TurnResult) -> None:
        """Put the turn aside; one that waits at its input has not begun before."""
        flight = self._state.record.turn
        if flight is None or flight.asked.id != run.request.id:
            await self._record_start(run.request)
            flight = InFlight(asked=run.request)
        # What was decided and has not happened yet stays as it was shown; a new question needs a new answer.
        open_ones = {one.id: one for one in self._state.record.pending_reviews if not run.is_resolved(one)}
        decisions = {key: one for key, one in flight.decisions.items() if key in open_ones}
        flight = (self._state.record.turn or flight).replace(decisions=decisions)
        reviews = open_ones | {one.id: one for one in result.reviews}
        await self._state.save(status=result.status, pending_reviews=tuple(reviews.values()), turn=flight)

    async def _record_failure(self, request_id: str, error: Exception, words: str) -> None:
        """Keep what went wrong; the turn stays, so that it can be resumed or left behind."""
        flight = self._state.record.turn
        if flight is None or flight.asked.id != request_id:
            return  # it was refused before it began: nothing of it is kept
        if self._state.lease_lost:
            return  # somebody else has the session now
        told = {"kind": type(error).__name__, "message": words, "request_id": request_id}
        with suppress(OmoideError):  # the first error is the one to hear about
            await self._state.append([journal.error_entry(request_id, told["kind"], told["message"])])
            await self._state.save(status="error", error=told)

    async def _record_cancellation(self, request_id: str) -> None:
        """Keep that nobody waits for the turn any more: it can be resumed, or left behind."""
        flight = self._state.record.turn
        if flight is not None and flight.asked.id == request_id and not self._state.lease_lost:
            told = {"kind": "Cancelled", "message": "the program stopped waiting", "request_id": request_id}
            with suppress(OmoideError):
                await self._state.save(status="error", error=told)

    async def _commit(self, run: Turn, result: TurnResult) -> None:
        """From here on the turn is part of the conversation."""
        done, policy = run.progress, memory_policy(self._spec)
        captures = self._state.record.captures
        if policy is not None and policy.capture == "conversation" and run.environment.store is self._store:
            first = 0 if done.user is None else done.user.seq
            captures += (
                PendingCapture(
                    asked=run.request,
                    input=run.input,
                    content=result.content,
                    first=first,
                    last=done.final_seq or first,
                ),
            )
        await self._state.save(
            status="finished",
            turn=None,
            pending_reviews=(),
            error=None,
            checkpoint=checkpoint(run.agent),
            turns=self._state.record.turns + 1,
            last_request_id=run.request.id,
            result=result.content,
            captures=captures,
        )
        self._state.history.append(journal.to_exchange(done, run.request.id))

    async def _capture_result(self, run: Turn, result: TurnResult) -> TurnResult:
        waiting = self._state.record.captures
        first = 0 if run.progress.user is None else run.progress.user.seq
        result = await capture_result(
            run, result, **self._message_source(first, run.progress.final_seq or first)
        )
        if result.memory is not None and waiting and waiting[-1].asked.id == run.request.id:
            await self._state.save(captures=waiting[:-1])
        return result

    def _message_source(self, first: int, last: int) -> dict[str, Any]:
        """Where in the transcript a captured turn is found."""
        place = self._state.thread.id
        return {
            "message": MessageRef(thread=place, seq=first),
            "evidence": tuple(Evidence(kind="message", ref=f"{place}:{seq}") for seq in (first, last)),
        }


def decode_decisions(flight: InFlight) -> dict[str, Decision]:
    """What was decided about a turn."""
    return {key: codec.from_builtins(thaw(one), Decision) for key, one in flight.decisions.items()}
