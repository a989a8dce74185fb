"""A session pool behaves like a table of turns, under any order of operations."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sessions import a_spec, echo_conversation, lines, talker

from omoide import clock
from omoide.errors import GaveUp
from omoide.runtime import SessionPool
from omoide.sessions import Session
from omoide.stores import open_store
from omoide.testing import FrozenClock

IDLE = 1_000
LIMIT = 3
SPEC = a_spec(memory=True)
IDS = st.sampled_from(("a", "b", "c", "d", "e"))
STEPS = st.one_of(
    st.tuples(st.sampled_from(("talk", "talk", "note", "leave", "die", "close", "hold", "both")), IDS),
    st.tuples(st.just("wait"), st.integers(0, 2 * IDLE)),
    st.tuples(st.just("close all"), st.none()),
)


class Table:
    """What was said and noted in each session, and when each was used."""

    def __init__(self, conversations: SessionPool, now: FrozenClock) -> None:
        self.conversations = conversations
        self.now = now
        self.said: dict[str, list[str]] = {}
        self.notes: dict[str, str] = {}
        self.used: dict[str, int] = {}
        """The sessions that live, by the moment of their last use."""
        self.count = 0

    async def get(self, id: str) -> Session:
        """The session, as it has to be."""
        before = self.conversations.find(id)
        session = await self.conversations.get(id, SPEC)
        if id not in self.used and len(self.used) == LIMIT:
            first = min(self.used.values())
            gone = [one for one in self.used if one not in self.conversations.ids()]
            assert len(gone) == 1
            assert self.used.pop(gone[0]) == first, "the longest unused makes room"
        self.used[id] = self.now.at
        assert before in (None, session)
        assert lines(session.thread.entries) == echo_conversation(*self.said.get(id, []))
        assert session.context.peek("current_task") == self.notes.get(id)
        return session

    async def talk(self, id: str) -> None:
        """One turn."""
        self.count += 1
        await (await self.get(id)).chat(f"turn {self.count}")
        self.said.setdefault(id, []).append(f"turn {self.count}")

    async def note(self, id: str) -> None:
        """Something that is only in short-term memory."""
        self.count += 1
        (await self.get(id)).context.put("current_task", f"task {self.count}", source="explicit")
        self.notes[id] = f"task {self.count}"

    async def leave(self, id: str) -> None:
        """Somebody closes it on their own."""
        await (await self.get(id)).close()
        del self.used[id]

    async def die(self, id: str) -> None:
        """Its background work ends; it counts as living until somebody asks for it."""
        ticking = (await self.get(id))._background_task
        assert ticking is not None
        ticking.cancel()
        await asyncio.wait([ticking])
        assert self.conversations.find(id) is None
        again = await self.get(id)
        assert self.conversations.find(id) is again

    async def close(self, id: str) -> None:
        """It is closed by its id, whether it lives or not."""
        await self.conversations.close(id)
        self.used.pop(id, None)

    async def hold(self, id: str) -> None:
        """It is held for a long time."""
        session = await self.get(id)
        async with self.conversations.acquire(id) as held:
            assert held is session
            await self.wait(5 * IDLE)
            assert self.conversations.find(id) is session
        self.used[id] = self.now.at

    async def both(self, id: str) -> None:
        """Two ask at once."""
        await self.get(id)
        async with anyio.create_task_group() as group:
            group.start_soon(self.get, id)
            group.start_soon(self.get, id)

    async def wait(self, ms: int) -> None:
        """Time goes by, and what was idle is closed."""
        self.now.advance(ms)
        closed = await self.conversations.sweep()
        held = {id for (_, id), place in self.conversations._slots.items() if place.holders}
        idle = {id for id, at in self.used.items() if self.now.at - at >= IDLE} - held
        assert closed == sorted(idle)
        for id in idle:
            del self.used[id]

    async def step(self, what: str, about: Any) -> None:
        """One thing that is done to them."""
        if what == "close all":
            await self.conversations.close()
            self.used.clear()
        else:
            await getattr(self, what)(about)
        assert self.conversations.ids() == sorted(self.used)
        assert len(self.used) <= LIMIT
        assert self.conversations.failures == {}


@given(steps=st.lists(STEPS, max_size=25))
async def test_sessions_come_and_go_and_lose_nothing(steps: list[tuple[str, Any]]) -> None:
    """Opened, used, held, left, dead, idle, crowded out or closed: each knows all that it was told."""
    with clock.override(FrozenClock(1_800_000_000_000)) as now:
        async with open_store("memory://", embedder="none") as store:
            conversations = SessionPool(store, idle_ms=IDLE, limit=LIMIT, max_restarts=100, llm=talker())
            table = Table(conversations, now)
            for what, about in steps:
                now.advance(1)
                await table.step(what, about)
            await conversations.close()
            for id, said in table.said.items():
                session = await Session.load(id, SPEC, store=store)
                assert lines(session.thread.entries) == echo_conversation(*said)


@given(restarts=st.integers(0, 4), pauses=st.lists(st.integers(0, 400), max_size=12))
async def test_a_session_lives_again_as_often_as_it_may(restarts: int, pauses: list[int]) -> None:
    """It is given up exactly when more deaths than allowed fall into the time that counts."""
    with clock.override(FrozenClock(1_800_000_000_000)) as now:
        async with open_store("memory://", embedder="none") as store:
            conversations = SessionPool(store, max_restarts=restarts, restart_window_ms=1_000, llm=talker())
            deaths: list[int] = []
            alive: Session | None = await conversations.get("s1", SPEC)
            for pause in pauses:
                if alive is not None and alive._background_task is not None:
                    alive._background_task.cancel()
                    await asyncio.wait([alive._background_task])
                now.advance(pause)
                if alive is not None:
                    deaths.append(now.at)
                recent = [at for at in deaths if now.at - at < 1_000]
                if len(recent) <= restarts:
                    alive = await conversations.get("s1", SPEC)
                else:
                    alive = None
                    with pytest.raises(GaveUp, match=f"failed {len(recent)} times"):
                        await conversations.get("s1", SPEC)
            await conversations.close()
