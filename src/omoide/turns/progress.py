"""How far has a turn come?

What was asked, the agent as it is now, and what the thread tells of the turn. Everything a turn does is noted
here, and kept, before the next thing happens.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from anyio import Lock

from omoide import thread
from omoide.core.agent import Agent
from omoide.core.directives import Directive
from omoide.core.recalling import RecallResult
from omoide.core.thread import ThreadEntry
from omoide.turns import transcript
from omoide.turns.context import Asked, TurnContext, without
from omoide.turns.controls import Decision, Review
from omoide.turns.journal import Journal
from omoide.turns.messages import ToolCall
from omoide.turns.world import Paused, World


class Progress:
    """A turn in progress."""

    def __init__(
        self,
        world: World,
        asked: Asked,
        agent: Agent,
        *,
        entries: Sequence[ThreadEntry] = (),
        recalled: RecallResult | None = None,
        resumed: bool = False,
    ) -> None:
        self.world = world
        self.asked = asked
        self.base = agent
        self.agent = agent
        self.entries = [*entries]
        self.done = transcript.course(entries, asked.id)
        self.recalled = recalled
        self.resumed = resumed
        self.directives: list[Directive] = []
        self.tell = world.events.tell
        self._known = len(thread.of(agent).entries)
        self._lock = Lock()
        self._broken: BaseException | None = None

    @property
    def journal(self) -> Journal:
        """What it did so far."""
        return Journal(request_id=self.asked.id, entries=tuple(self.entries), recalled=self.recalled)

    @property
    def input(self) -> str:
        """What the user said, as the controls left it."""
        said: str = self.asked.input if self.done.user is None else self.done.user.payload["content"]
        return said

    @property
    def live(self) -> bool:
        """Whether anything may be called; a replay only reads."""
        return self.world.model is not None

    async def note(self, entry: transcript.Written) -> None:
        """Write into the thread; the turn goes on when it is kept, with all that was written before it."""
        self.agent = thread.append(self.agent, entry)
        async with self._lock:
            if self._broken is not None:  # what did not get into the thread must not happen
                raise self._broken
            written = [*thread.of(self.agent).entries[self._known :]]
            if written and self.world.record is not None:
                try:
                    await self.world.record(written)
                except BaseException as error:
                    self._broken = error
                    raise
            self._known += len(written)
            for one in written:
                self.entries.append(one)
                self.done.take(one)

    async def controlled(self, boundary: str, stop: Any, rewritten: bool, **data: Any) -> None:
        """Tell what the controls said, if they said anything."""
        if stop is not None or rewritten:
            said = "rewrite" if stop is None else type(stop).__name__.lower()
            await self.tell("control_applied", boundary=boundary, answer=said, **data)

    async def wait(self, reviews: Sequence[Review]) -> NoReturn:
        """Stop until somebody has decided."""
        for review in reviews:
            await self.tell("review_requested", review=review.id, boundary=review.boundary)
        raise Paused("waiting", reviews)

    async def hibernate(self, where: str) -> NoReturn:
        """Stop because it was told to stop here."""
        await self.tell("hibernated", where=where)
        raise Paused("hibernated")

    def review(self, boundary: str, question: str, **fields: Any) -> Review:
        """A question about this turn."""
        return Review(
            id=self._review_id(boundary, fields.get("call")),
            boundary="tool" if boundary == "unknown" else boundary,
            unknown=boundary == "unknown",
            question=without(question, self.world.hidden),
            request_id=self.asked.id,
            **fields,
        )

    def decision(self, boundary: str, call: ToolCall | None = None) -> Decision | None:
        """What was decided about this."""
        return self.world.decisions.get(self._review_id(boundary, call))

    def waiting(self, boundary: str, call: ToolCall | None = None) -> Review | None:
        """What was asked about this before the turn was put aside."""
        id = self._review_id(boundary, call)
        return next((one for one in self.world.reviews if one.id == id), None)

    def settled(self, review: Review) -> bool:
        """Whether what a review is about has happened, or been answered otherwise."""
        if review.call is not None:
            return review.call.id in self.done.ended
        return self.done.user is not None if review.boundary == "input" else self.done.final is not None

    def _review_id(self, boundary: str, call: ToolCall | None = None) -> str:
        parts = [self.asked.id, boundary, *([] if call is None else [call.id])]
        if boundary == "unknown" and call is not None:  # each time it began is a question of its own
            parts.append(str(self.done.tries[call.id]))
        return ":".join(parts)

    def ctx(self, call: ToolCall | None = None) -> TurnContext:
        """What tools and controls get to know."""
        world = self.world
        return TurnContext(
            self.agent,
            self.asked,
            data=world.data,
            secrets=world.secrets,
            store=world.store,
            scope=world.scope,
            reach=world.reach,
            call=call,
        )
