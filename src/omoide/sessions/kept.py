"""What is kept of a session, and is it still true?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from anyio import Event, get_current_task

from omoide import clock, thread
from omoide.core.agent import Agent
from omoide.core.checkpoint import Checkpoint, checkpoint
from omoide.core.definition import Definition
from omoide.core.frozen import EMPTY_MAP
from omoide.core.thread import Thread, ThreadEntry
from omoide.errors import Invalid, NotFound, SessionBusy
from omoide.sessions.header import Header
from omoide.sessions.keeping import Keeper
from omoide.sessions.past import recomputed
from omoide.turns import transcript
from omoide.turns.prompt import Counter
from omoide.turns.restoring import restored
from omoide.turns.spec import AgentSpec
from omoide.turns.window import Exchange, Sizes


class Kept:
    """A session's header, its transcript, and the turns that are over, each as the store has it."""

    def __init__(self, keeper: Keeper, spec: AgentSpec, lease_ms: int) -> None:
        self._keeper = keeper
        self._spec = spec
        self._lease_ms = lease_ms
        self._header: Header | None = None
        self._stale = False
        self._running = False
        self._background: Event | None = None
        """Set when what goes on in the background is over."""
        self._worker: int | None = None
        self._requests: set[str] = set()
        self._sizes: Sizes | None = None
        self.thread = Thread()
        self.history: list[Exchange] = []

    @property
    def opened(self) -> bool:
        """Whether it was read or begun."""
        return self._header is not None

    @property
    def in_background(self) -> bool:
        """Whether whoever asks is what goes on in the background."""
        return self._worker is not None and get_current_task().id == self._worker

    @property
    def lost(self) -> bool:
        """Whether somebody else has taken the session over."""
        return self._keeper.lost

    @property
    def header(self) -> Header:
        """The header as it was kept last."""
        if self._header is None:
            raise Invalid("session", f"{self._keeper.session_id!r} is not open", "use it in `async with`")
        return self._header

    @property
    def agent(self) -> Agent:
        """The agent after the last turn that is over."""
        return thread.put(restored(self.header.checkpoint, self._definition), self.thread)

    def agent_at(self, seq: int) -> Agent:
        """The agent as it was before a place in the transcript."""
        past = Thread(id=self.thread.id, created_at=self.thread.created_at).append(self.thread.entries[:seq])
        new = Agent.new(self._definition, id=self._spec.id)
        return recomputed(self._spec, new, past, self._keeper.session_id)

    @cached_property
    def _definition(self) -> Definition:
        return self._spec.definition()

    async def load(self) -> bool:
        """Read it; whether there was anything to read."""
        kept = await self._keeper.load()
        if kept is None:
            return False
        header, written = kept
        if header.agent_id != self._spec.id:
            raise Invalid(
                "spec", f"is of agent {self._spec.id!r}, the session of {header.agent_id!r}", "pass its own"
            )
        self._header = header.replace(spec=self._spec)
        self._take(written, None if header.turn is None else header.turn.asked.id)
        return True

    async def create(
        self,
        namespace: str,
        project_id: str | None,
        metadata: Mapping[str, Any] = EMPTY_MAP,
        past: Sequence[ThreadEntry] = (),
        state: Checkpoint | None = None,
    ) -> None:
        """Begin it, with a past that another session had or with none; `state` is the agent after that."""
        self._take(Thread().append(past))
        if state is None:
            new = Agent.new(self._definition, id=self._spec.id)
            agent = recomputed(self._spec, new, self.thread, self._keeper.session_id)
        else:
            agent = thread.put(restored(state, self._definition), self.thread)
        last = self.history[-1] if self.history else None
        header = Header(
            session_id=self._keeper.session_id,
            agent_id=self._spec.id,
            namespace=namespace,
            project_id=project_id,
            spec=self._spec,
            status="new" if last is None else "finished",
            thread_id=self.thread.id,
            checkpoint=checkpoint(agent),
            turns=len(self.history),
            last_request_id=None if last is None else last.request_id,
            result=None if last is None else last.messages[-1].content,
            metadata=metadata,
        )
        await self._keeper.create(header, [*self.thread.entries])
        self._header = header

    @asynccontextmanager
    async def alone(self, *, background: bool = False) -> AsyncIterator[None]:
        """A block in which nobody else runs the session, and what is known of it is true.

        What the session does in the background by itself is waited for, and hinders nobody; whoever is
        called from there cannot wait for it.
        """
        session_id = self.header.session_id
        while self._background is not None and not self.in_background:
            await self._background.wait()
        if self._running:  # the lease tells runners apart, not the tasks of one
            raise SessionBusy(session_id)
        self._running = True
        done = self._background = Event() if background else None
        self._worker = get_current_task().id if background else None
        try:
            async with self._keeper.claimed(self._lease_ms):
                await self.refresh()
                self._stale = True  # until all that is written in the block is known to be kept
                yield
                self._stale = False
        finally:
            self._running = False
            if done is not None:
                self._background = self._worker = None
                done.set()

    async def refresh(self) -> None:
        """Read it again, where somebody else wrote it since."""
        if (self._stale or await self._keeper.changed()) and not await self.load():
            raise NotFound("session", self._keeper.session_id, "it was erased")

    async def look(self) -> None:
        """Read it again, unless it is being run here."""
        if not self._running:
            await self.refresh()
            self._stale = False

    def sizes(self, count: Counter) -> Sizes:
        """What the turns take, counted once for each counter."""
        if self._sizes is None or self._sizes.count is not count:
            self._sizes = Sizes(count)
        return self._sizes

    def knows(self, request_id: str) -> bool:
        """Whether this was asked before."""
        return request_id in self._requests

    def entries_of(self, request_id: str) -> list[ThreadEntry]:
        """What a request has led to."""
        return [one for one in self.thread.entries if one.payload.get("request_id") == request_id]

    def _take(self, written: Thread, unfinished: str | None = None) -> None:
        self.thread = written
        self._sizes = None
        self._requests = {*transcript.requests(written.entries)}
        turns = transcript.conversation(written.entries)
        self.history = [turn for turn in turns if turn.request_id != unfinished]

    async def save(self, **changes: Any) -> None:
        """Keep the header with these changes."""
        header = self.header.replace(updated_at=clock.now(), **changes)
        await self._keeper.save(header)
        self._header = header

    async def append(self, entries: Sequence[Any]) -> None:
        """Add to the transcript."""
        longer = self.thread.append(entries)
        added = longer.entries[len(self.thread.entries) :]
        await self._keeper.record(self.header, added)
        self.thread = longer
        self._requests.update(transcript.requests(added))
