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
from omoide.core.entry import Evidence, MessageRef
from omoide.core.frozen import EMPTY_MAP, thaw
from omoide.core.requests import RecallResult
from omoide.errors import Erased, Invalid, KeyReused, OmoideError, ReviewNeeded, TurnPending
from omoide.sessions.storage import Capture, InFlight, Kept
from omoide.stores.protocols import Store
from omoide.turns import journal, memory, tools
from omoide.turns.controls import Asked, Decision, check_watched, without
from omoide.turns.journal import Events
from omoide.turns.loop import Turn
from omoide.turns.memory import enabled, taken_up
from omoide.turns.model import Model
from omoide.turns.options import Given
from omoide.turns.prompt import check_fits
from omoide.turns.result import TurnResult
from omoide.turns.runner import captured, concluded, finished
from omoide.turns.spec import AgentSpec

UNFINISHED = ("running", "hibernated", "waiting")
LAST_WORDS = 5
"""Seconds to write down that a turn was cancelled."""
MOST_WAITING = 100
"""How many turns may wait to be remembered, while their store cannot be written to."""


class Runs:
    """The turns of one session."""

    def __init__(
        self, spec: AgentSpec, kept: Kept, home: Store | None, over: Callable[[], Awaitable[None]]
    ) -> None:
        self._spec = spec
        self._kept = kept
        self._over = over
        """What is to be done at the end of each turn."""
        self._home = home
        """The store that the session's memory lies in, unless a turn says otherwise."""

    async def begin(self, input: str, given: Given, *, streaming: bool) -> TurnResult:
        """A new turn."""
        asked, model = given.asked(self._spec, input), given.model(self._spec)
        check_fits(self._spec, asked.input, tools.operations(self._spec), given.count_tokens)
        async with self._kept.alone():
            header = self._kept.header
            if header.status in UNFINISHED:
                raise TurnPending(header.session_id, header.status)
            if self._kept.knows(asked.id):
                raise Invalid("request_id", f"{asked.id!r} was asked here before", "choose another")
            notices = await self._catch_up(given)
            await self._leave_behind(given, model)
            flight = InFlight(asked=asked)
            result = await self._go(
                flight, self._kept.agent, given, model, resumed=False, streaming=streaming
            )
            return result.replace(notices=(*notices, *result.notices))

    async def resume(self, given: Given, *, streaming: bool = False) -> TurnResult | None:
        """The turn that did not finish, from where it stopped; None where there is none."""
        async with self._kept.alone():
            notices = await self._catch_up(given)
            header, flight = self._kept.header, self._kept.header.turn
            if flight is None:
                return None
            check_watched(flight.asked, given.controls)
            given.decisions = {**decided(flight), **given.decisions}
            given.reviews = header.pending_reviews
            undecided = [one.id for one in header.pending_reviews if one.id not in given.decisions]
            if undecided:
                raise ReviewNeeded(flight.asked.id, undecided)
            given.context = taken_up(self._spec, flight.asked, given.context)
            if flight.asked.off_record:
                given.memory_store = None
            model = given.model(self._spec)
            # A runner that lost the session finds the transcript changed, and can write no more.
            await self._kept.append([journal.resumed(flight.asked.id)])
            agent = self._kept.agent
            await self._kept.save(status="running", error=None)
            result = await self._go(flight, agent, given, model, resumed=True, streaming=streaming)
            return result.replace(notices=(*notices, *result.notices))

    async def _catch_up(self, given: Given) -> list[str]:
        """Remember the turns that were over before they could be captured; what is to be told about it."""
        waiting = [*self._kept.header.captures]
        told: list[str] = []
        while waiting:
            one = waiting[0]
            try:
                await self._capture(one, given)
            except (Invalid, KeyReused, Erased) as error:  # what is wrong with it will stay wrong
                told.append(f"turn {one.asked.id!r} is not captured ({type(error).__name__})")
            except OmoideError as error:  # this may pass: the next turn tries again
                told.append(f"{len(waiting)} earlier turns wait to be captured ({type(error).__name__})")
                break
            waiting.pop(0)
        if len(waiting) > MOST_WAITING:
            told.append(f"{len(waiting) - MOST_WAITING} earlier turns will not be captured: too many wait")
            waiting = waiting[-MOST_WAITING:]
        if len(waiting) != len(self._kept.header.captures):
            await self._kept.save(captures=tuple(waiting))
        return told

    async def _capture(self, one: Capture, given: Given) -> None:
        await memory.capture_turn(
            self._spec,
            one.input,
            one.content,
            request_id=one.asked.id,
            memory_store=given.memory_store,
            session_id=one.asked.session_id,
            project_id=one.asked.project_id,
            context=taken_up(self._spec, one.asked, given.context),
            at=one.asked.at,
            **self._source(one.first, one.last),
        )

    async def _leave_behind(self, given: Given, model: Model) -> None:
        """Something else is asked: a turn that failed will not be gone on with, unless it has its answer."""
        left = self._kept.header.turn
        if left is None:
            return
        done = journal.course(self._kept.entries_of(left.asked.id), left.asked.id)
        if done.final is not None:
            quiet = msgspec.structs.replace(
                given,
                on_event=None,
                decisions=EMPTY_MAP,
                context=taken_up(self._spec, left.asked, given.context),
                memory_store=None if left.asked.off_record else self._home,
            )
            await self._go(left, self._kept.agent, quiet, model, resumed=True, streaming=False)
        else:
            await self._kept.append([journal.given_up(left.asked.id, "something else was asked")])
            status = "finished" if self._kept.header.turns else "new"
            await self._kept.save(turn=None, status=status, error=None)

    async def _go(
        self, flight: InFlight, agent: Agent, given: Given, model: Model, *, resumed: bool, streaming: bool
    ) -> TurnResult:
        world = given.world(
            self._spec,
            events=Events(given.on_event),
            model=model,
            begin=self._begun,
            record=self._kept.append,
            remember=self._remembered,
            streaming=streaming,
            sizes=self._kept.sizes(given.count_tokens),
        )
        run = Turn(
            world,
            flight.asked,
            agent,
            history=self._kept.history,
            entries=self._kept.entries_of(flight.asked.id) if resumed else (),
            recalled=flight.recalled,
            remembered=flight.remembered,
            resumed=resumed,
        )
        spec, session_id = self._spec, flight.asked.session_id
        with observe.span("invoke_agent", name=spec.id, agent_id=spec.id, conversation_id=session_id):
            try:
                result = await concluded(run)
            except Exception as error:
                await self._failed(flight.asked.id, error, without(str(error), world.hidden))
                raise
            except get_cancelled_exc_class():
                with move_on_after(LAST_WORDS, shield=True):
                    await self._cancelled(flight.asked.id)
                raise
            # What is answered is kept, also for a program that does not wait for it any more.
            with CancelScope(shield=True):
                if result.status == "finished":
                    await self._commit(run, result)
                    result = await self._captured(run, await finished(run, result))
                else:
                    await self._rest(run, result)
                learned = await self._learned()
            return result.replace(notices=(*result.notices, *learned)) if learned else result

    async def _learned(self) -> list[str]:
        """Keep what short-term memory has of the turn; where that fails, the turn is over all the same."""
        try:
            await self._over()
        except Exception as error:
            return [f"short-term memory was not saved ({type(error).__name__}: {error})"]
        return []

    async def _begun(self, asked: Asked) -> None:
        """Keep what was asked, as the controls left it."""
        await self._kept.save(status="running", turn=InFlight(asked=asked), error=None, pending_reviews=())

    async def _remembered(self, recalled: RecallResult | None) -> None:
        """Keep what was recalled, so that a turn which is taken up again does not recall twice."""
        flight = self._kept.header.turn
        if flight is not None:
            await self._kept.save(turn=flight.replace(recalled=recalled, remembered=True))

    async def _rest(self, run: Turn, result: TurnResult) -> None:
        """Put the turn aside; one that waits at its input has not begun before."""
        flight = self._kept.header.turn
        if flight is None or flight.asked.id != run.asked.id:
            await self._begun(run.asked)
            flight = InFlight(asked=run.asked)
        # What was decided and has not happened yet stays as it was shown; a new question needs a new answer.
        open_ones = {one.id: one for one in self._kept.header.pending_reviews if not run.settled(one)}
        decisions = {key: one for key, one in flight.decisions.items() if key in open_ones}
        flight = (self._kept.header.turn or flight).replace(decisions=decisions)
        reviews = open_ones | {one.id: one for one in result.reviews}
        await self._kept.save(status=result.status, pending_reviews=tuple(reviews.values()), turn=flight)

    async def _failed(self, request_id: str, error: Exception, words: str) -> None:
        """Keep what went wrong; the turn stays, so that it can be resumed or left behind."""
        flight = self._kept.header.turn
        if flight is None or flight.asked.id != request_id:
            return  # it was refused before it began: nothing of it is kept
        if self._kept.lost:
            return  # somebody else has the session now
        told = {"kind": type(error).__name__, "message": words, "request_id": request_id}
        with suppress(OmoideError):  # the first error is the one to hear about
            await self._kept.append([journal.failed(request_id, told["kind"], told["message"])])
            await self._kept.save(status="error", error=told)

    async def _cancelled(self, request_id: str) -> None:
        """Keep that nobody waits for the turn any more: it can be resumed, or left behind."""
        flight = self._kept.header.turn
        if flight is not None and flight.asked.id == request_id and not self._kept.lost:
            told = {"kind": "Cancelled", "message": "the program stopped waiting", "request_id": request_id}
            with suppress(OmoideError):
                await self._kept.save(status="error", error=told)

    async def _commit(self, run: Turn, result: TurnResult) -> None:
        """From here on the turn is part of the conversation."""
        done, policy = run.done, enabled(self._spec)
        captures = self._kept.header.captures
        if policy is not None and policy.capture == "conversation" and run.world.store is self._home:
            first = 0 if done.user is None else done.user.seq
            captures += (
                Capture(
                    asked=run.asked,
                    input=run.input,
                    content=result.content,
                    first=first,
                    last=done.final_seq or first,
                ),
            )
        await self._kept.save(
            status="finished",
            turn=None,
            pending_reviews=(),
            error=None,
            checkpoint=checkpoint(run.agent),
            turns=self._kept.header.turns + 1,
            last_request_id=run.asked.id,
            result=result.content,
            captures=captures,
        )
        self._kept.history.append(journal.exchange(done, run.asked.id))

    async def _captured(self, run: Turn, result: TurnResult) -> TurnResult:
        waiting = self._kept.header.captures
        first = 0 if run.done.user is None else run.done.user.seq
        result = await captured(run, result, **self._source(first, run.done.final_seq or first))
        if result.memory is not None and waiting and waiting[-1].asked.id == run.asked.id:
            await self._kept.save(captures=waiting[:-1])
        return result

    def _source(self, first: int, last: int) -> dict[str, Any]:
        """Where in the transcript a captured turn is found."""
        place = self._kept.thread.id
        return {
            "message": MessageRef(thread=place, seq=first),
            "evidence": tuple(Evidence(kind="message", ref=f"{place}:{seq}") for seq in (first, last)),
        }


def decided(flight: InFlight) -> dict[str, Decision]:
    """What was decided about a turn."""
    return {key: codec.from_builtins(thaw(one), Decision) for key, one in flight.decisions.items()}
