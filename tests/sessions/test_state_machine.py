"""A state machine that compares a session, through several handles, with a list of its turns."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import anyio
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.conftest import EXAMPLES
from tests.support.sessions import PAY, Till, WatchedStore, captured_entries, conversation_of, echo, talker

from omoide import Scope
from omoide.errors import Invalid, ModelFailed, ReviewNeeded, TurnPending
from omoide.sessions import Session, sessions
from omoide.stores import open_store
from omoide.turns import Request

T = TypeVar("T")
HANDLES = st.sampled_from((0, 1))
OFF = ModelFailed("m", "is off", "wait")


def now(work: Callable[[], Awaitable[T]]) -> T:
    """Do it in an event loop of its own."""
    return anyio.run(work)


class Sessions(RuleBasedStateMachine):
    """One session in a file, two handles, and a list of what was said."""

    @initialize()
    def begin(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        self.till = Till()
        self.spec = self.till.spec(tools=[self.till.pay, self.till.look], approve=["look"])
        self.broken = False
        self.opened = open_store(f"sqlite:///{self.folder / 'memory.db'}", embedder="none")
        self.store = WatchedStore(self.opened, self._meet)
        self.said = 0
        self.turns: list[list[str]] = []
        """What the model is shown of each turn that is over."""
        self.open: list[str] = []
        """The same, as far as it got, of one that is not."""
        self.status = "new"
        self.rest: list[str] = []
        """What the open turn adds when it goes on."""
        self.verdict: str | None = None
        self.paid = 0
        self.handles: list[Session] = []

        async def start() -> None:
            self.handles = [await Session.start(self.spec, "s1", store=self.store), await self._loaded()]

        now(start)

    def teardown(self) -> None:
        if hasattr(self, "opened"):
            self.opened.sync.close()
            shutil.rmtree(self.folder)

    async def _meet(self, name: str, args: Any) -> None:
        if self.broken and name == "write":
            raise OSError("the disk is away")

    async def _loaded(self) -> Session:
        return await Session.load("s1", self.spec, store=self.store)

    # What is expected

    def _ended(self) -> None:
        self.turns.append([*self.open, *self.rest])
        self.open, self.rest, self.verdict, self.status = [], [], None, "finished"

    def _stopped(self, status: str, open: list[str], rest: list[str]) -> None:
        self.open, self.rest, self.status, self.verdict = open, rest, status, None

    def _input(self) -> str:
        self.said += 1
        return f"number {self.said}"

    @property
    def free(self) -> bool:
        """Whether something new may be said."""
        return self.status in ("new", "finished", "error")

    # Turns

    @rule(at=HANDLES, streamed=st.booleans())
    def chat(self, at: int, streamed: bool) -> None:
        said, session = self._input(), self.handles[at]

        async def work() -> str:
            if not streamed:
                return await session.chat(said, model=talker())
            async with session.stream(said, model=talker()) as events:
                async for _ in events:
                    pass
            return events.result.content

        try:
            assert now(work) == f"You said {said}"
        except TurnPending:
            assert not self.free
            return
        assert self.free
        self._stopped("", [f"user: {said}"], [f"assistant: You said {said}"])
        self._ended()

    @precondition(lambda self: self.free)
    @rule(at=HANDLES)
    def pay(self, at: int) -> None:
        said = self._input()
        now(lambda: self.handles[at].run(said, model=talker(PAY, "Paid.")))
        self.paid += 1
        self._stopped("", [f"user: {said}", "assistant: ", "tool: paid 5"], ["assistant: Paid."])
        self._ended()

    @precondition(lambda self: self.free)
    @rule(at=HANDLES, late=st.booleans())
    def fail(self, at: int, late: bool) -> None:
        said = self._input()
        model = talker(PAY, OFF) if late else talker(OFF)
        try:
            now(lambda: self.handles[at].run(said, model=model))
            raise AssertionError("it did not fail")
        except ModelFailed:
            self.paid += late
        done = ["assistant: ", "tool: paid 5"] if late else []
        self._stopped("error", [f"user: {said}", *done], ["assistant: Better."])

    @precondition(lambda self: self.free)
    @rule(at=HANDLES)
    def break_off(self, at: int) -> None:
        """The task that runs the turn is cancelled."""
        said = self._input()

        async def work() -> None:
            async def hang(request: Request, journal: Any) -> str:
                scope.cancel()
                await anyio.sleep_forever()
                return "never"

            with anyio.CancelScope() as scope:
                await self.handles[at].run(said, model=hang)

        now(work)
        self._stopped("error", [f"user: {said}"], ["assistant: Better."])

    @precondition(lambda self: self.free)
    @rule(at=HANDLES)
    def hibernate(self, at: int) -> None:
        said = self._input()
        result = now(lambda: self.handles[at].run(said, model=talker(), checkpoint="after_prompt"))
        assert result.status == "hibernated"
        self._stopped("hibernated", [f"user: {said}"], ["assistant: Better."])

    @precondition(lambda self: self.free)
    @rule(at=HANDLES)
    def ask(self, at: int) -> None:
        """The model wants something that a person has to allow."""
        said = self._input()
        wanted = {"type": "operation", "name": "look", "id": "call_1"}
        result = now(lambda: self.handles[at].run(said, model=talker(wanted)))
        assert result.status == "waiting"
        self._stopped("waiting", [f"user: {said}"], [])

    @precondition(lambda self: self.status == "waiting")
    @rule(at=HANDLES, verdict=st.sampled_from(("approve", "deny", "settle")))
    def decide(self, at: int, verdict: str) -> None:
        session = self.handles[at]

        async def work() -> None:
            [review] = (await self._loaded()).record.pending_reviews
            given = {"settle": ("by hand",)}.get(verdict, ())
            await getattr(session, verdict)(review.id, *given)

        now(work)
        self.verdict = verdict

    @rule(at=HANDLES)
    def resume(self, at: int) -> None:
        model = talker("Better.")
        try:
            result = now(lambda: self.handles[at].resume(model=model))
        except ReviewNeeded:
            assert (self.status, self.verdict) == ("waiting", None)
            return
        except Invalid:
            assert (self.status, self.turns) == ("new", [])
            return
        assert result.status == "finished"
        if self.status in ("new", "finished"):
            assert f"assistant: {result.content}" == self.turns[-1][-1]
            assert model.requests == []
            return
        if self.status == "waiting":
            told = {"approve": "12 left", "settle": "by hand", "deny": "This was refused: denied"}
            self.rest = ["assistant: ", f"tool: {told[str(self.verdict)]}", "assistant: Better."]
        assert result.content == "Better."
        self._ended()

    @rule(at=HANDLES)
    def cancel(self, at: int) -> None:
        now(self.handles[at].cancel)
        if self.open:
            self._stopped("finished" if self.turns else "new", [], [])

    # Around them

    @rule(at=HANDLES)
    def reopen(self, at: int) -> None:
        self.handles[at] = now(self._loaded)

    @rule()
    def break_or_mend(self) -> None:
        """The store stops taking memories, or takes them again."""
        self.broken = not self.broken

    @precondition(lambda self: self.turns)
    @rule(at=HANDLES, data=st.data())
    def fork(self, at: int, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, len(self.turns)))

        async def work() -> list[str]:
            session = await self._loaded()
            after = [turn.request_id for turn in session._state.history][count - 1]
            fork = await session.fork(f"fork {self.said}", after=after, memory_store=None)
            model = talker(echo)
            await fork.run("fork", model=model)
            await self.opened.erase(Scope(agent_id="ada", session_id=fork.id))
            return conversation_of(model.prompts[0])

        self.said += 1
        assert now(work) == [*(line for turn in self.turns[:count] for line in turn), "user: fork"]

    @invariant()
    def is_what_was_said(self) -> None:
        """Whoever opens the session now finds what was said, and where it stands."""
        if not hasattr(self, "handles"):
            return

        async def work() -> None:
            fresh = await self._loaded()
            assert (fresh.status, fresh.record.turns) == (self.status, len(self.turns))
            seen = (await fresh.preflight("next")).prompt
            assert conversation_of(seen) == [*(line for turn in self.turns for line in turn), "user: next"]
            assert (fresh.record.turn is not None) == bool(self.open)
            assert self.till.log.count("pay 5") == self.paid
            assert [one.session_id for one in await sessions(self.opened)] == ["s1"]

        now(work)

    @precondition(lambda self: not self.broken and self.free and self.turns)
    @rule(at=HANDLES)
    def everything_is_remembered(self, at: int) -> None:
        """Once the store takes memories, every turn that is over is remembered, once, and nothing else."""
        self.chat(at, streamed=False)
        kept = [entry.content for entry in now(lambda: captured_entries(self.opened))]
        assert sorted(kept) == sorted(
            f"User: {_of(turn[0])}\nAssistant: {_of(turn[-1])}" for turn in self.turns
        )


def _of(line: str) -> str:
    return line.split(": ", 1)[1]


TestSessions = Sessions.TestCase
# Every step opens the session anew and asks for its prompt, so that a few examples say much.
TestSessions.settings = settings(max_examples=max(6, EXAMPLES // 5))
