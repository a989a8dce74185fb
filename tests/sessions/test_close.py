"""Tests of closing a session, also when something fails."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.session_pools import Gate
from tests.support.sessions import KINDS, WatchedStore, a_spec, captured_entries, talker

from omoide import Entry, Scope, Signal
from omoide.errors import Invalid
from omoide.promotion import PromotionPolicy
from omoide.sessions import Session
from omoide.sessions.memory import MAX_NOTICES
from omoide.shortterm import TokenBudget
from omoide.stores import open_store

NEVER = PromotionPolicy(enabled=False)
TIGHT = TokenBudget(total=2_000, conversation=12, context=1_000)


def words(text: str) -> int:
    """A counter that counts words."""
    return len(text.split())


def make_session(store: Any, id: str = "s1", **options: Any) -> Session:
    """A session to be entered."""
    spec = options.pop("spec", a_spec(memory=True))
    return Session.open(spec, id, **{"store": store, "model": talker(), **options})


async def contents(store: Any) -> list[str]:
    """What is remembered, in words."""
    return sorted(one.content for one in await store.list_entries(Scope()))


class Moody:
    """A guard that breaks when it sees what it does not like."""

    def __init__(self, broken: bool = True) -> None:
        self.broken = broken

    def __call__(self, entry: Entry) -> Entry:
        if self.broken and "tabs" in entry.content:
            raise RuntimeError("the classifier is down")
        return entry


# Errors that are not ours


@pytest.mark.parametrize("kind", KINDS)
async def test_a_guard_that_breaks_costs_no_answer(kind: str, tmp_path: Path) -> None:
    """The turn is over and answered, the session is left without an error, and the memory waits."""
    guard = Moody()
    url = "memory://" if kind == "memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    async with open_store(url, embedder="none", guard=guard) as store:
        async with make_session(store) as session:
            item = session.propose("We use tabs.", decided=True)
            session.propose("We use Python.", decided=True)
            assert await session.chat("Hello.") == "You said Hello."
            assert (session.status, session.error) == ("finished", None)
            assert session.notices == (f"memory {item.id!r} waits: the classifier is down",)
        assert await contents(store) == ["We use Python."]
        guard.broken = False
        async with make_session(store):
            pass
        assert await contents(store) == ["We use Python.", "We use tabs."]


async def test_a_store_that_breaks_after_the_answer_is_told(store: Any) -> None:
    """Where notes cannot be saved for whatever reason, the answer is there, and so is what was learned."""
    watched = WatchedStore(store)
    async with make_session(watched) as session:
        watched.before = _fail_at("save notes")
        session.context.put("framework", "Phoenix")
        result = await session.run("Hello.")
        assert (result.content, session.status) == ("You said Hello.", "finished")
        assert result.notices == ("short-term memory was not saved (RuntimeError: out of order)",)
        watched.before = None
    async with make_session(store) as session:
        assert session.context.to_dict() == {"framework": "Phoenix"}


@pytest.mark.parametrize("name", ["save notes", "claim"])
async def test_what_was_raised_in_the_block_comes_out_of_it(store: Any, name: str) -> None:
    """An error of leaving does not take its place; where there is none, it comes out itself."""
    for problem, expected in ((KeyError("mine"), KeyError), (None, RuntimeError)):
        watched = WatchedStore(store)
        session = make_session(watched)
        with pytest.raises(expected):
            await _use_session(session, watched, name, problem)
        with pytest.raises(Invalid, match="is closed"):
            await session.chat("Hello?")


async def _use_session(session: Session, store: WatchedStore, name: str, problem: Exception | None) -> None:
    """A block whose end fails, and which may fail itself."""
    async with session:
        session.context.put("framework", "Phoenix")
        store.before = _fail_at(name)
        if problem is not None:
            raise problem


def _fail_at(wanted: str) -> Any:
    async def before(name: str, args: Any) -> None:
        if name == wanted:
            raise RuntimeError("out of order")

    return before


# What is told


async def test_what_is_told_again_is_told_once(store: Any) -> None:
    """However often a memory cannot be kept, there is one notice of it."""
    watched = WatchedStore(store)
    async with make_session(watched, promotion=NEVER) as session:
        watched.before = _fail_at("write")
        first, second = (session.propose(f"This is {at}.", decided=True) for at in range(2))
        for _ in range(5):
            await session.promote()
        assert sorted(session.notices) == sorted(
            f"memory {one.id!r} waits: out of order" for one in (first, second)
        )
        watched.before = None


async def test_decisions_for_which_there_is_no_room_are_named(store: Any) -> None:
    """The oldest leaves, as many are kept as there is room for, and each that left is told."""
    async with make_session(store, promotion=NEVER) as session:
        made = [session.propose(f"Decision {at}.", type="decision", decided=True) for at in range(103)]
        assert len(session.notices) == 3
        for notice, left in zip(session.notices, made, strict=False):
            assert f"{left.id!r} is not promoted" in notice
        again = session.propose("Decision 50, again.", type="decision", decided=True, id=made[50].id)
        assert again.id == made[50].id
        assert len(session.notices) == 3, "what takes its own place pushes nothing out"
        await session.promote()
    assert len(await contents(store)) == 100


async def test_notices_are_the_latest_ones(store: Any) -> None:
    """A session that is open for long does not gather them without end."""
    async with make_session(store, promotion=NEVER) as session:
        room = session.short_term.pending.max_agent_decisions
        made = [session.propose(f"{at}.", decided=True) for at in range(room + MAX_NOTICES + 30)]
        assert len(session.notices) == MAX_NOTICES
        assert repr(made[MAX_NOTICES + 29].id) in session.notices[-1]
        assert repr(made[30].id) in session.notices[0]


# What becomes a memory


@pytest.mark.parametrize("capture", ["manual", "off", "conversation", None])
async def test_what_was_merely_said_is_no_memory_when_the_session_ends(store: Any, capture: Any) -> None:
    """What messages that left the buffer state is not written by itself, whoever said it."""
    memory = capture and {"capture": capture}
    async with make_session(
        store, spec=a_spec(memory=memory), token_budget=TIGHT, count_tokens=words
    ) as session:
        for at in range(6):
            await session.chat(f"We decided that condition number {at} is private.")
        assert session.short_term.conversation.size < 12
        waiting = session.short_term.pending.list_implicit()
        assert bool(waiting) == (capture == "manual")
        if capture is not None:
            await session.pause()
    own = await captured_entries(store)
    assert await contents(store) == sorted(one.content for one in own)
    assert bool(own) == (capture == "conversation")


async def test_what_was_said_can_be_promoted_on_demand(store: Any) -> None:
    """Where turns are not captured, what messages that left the buffer state waits for whoever wants it."""
    async with make_session(store, token_budget=TIGHT, count_tokens=words) as session:
        for at in range(4):
            await session.chat(f"We decided on number {at}.")
        waiting = sorted(one.content for one in session.short_term.pending.list_implicit())
        assert waiting
        await session.promote()
        assert await contents(store) == waiting


@pytest.mark.parametrize("ending", ["pause", "close"])
async def test_nobody_waits_for_the_next_run_at_the_end(store: Any, ending: str) -> None:
    """All that is good enough is promoted when the session is paused or closed, whatever one run takes."""
    async with make_session(store, promotion=PromotionPolicy(max_items=3)) as session:
        for at in range(10):
            session.propose(f"Lesson {at}.", type="lesson_learned", confidence=0.9)
            session.context.put(f"key{at}", at, source="tool", confidence=0.9, memory_type="fact")
        assert len((await session.promote(dry_run=True)).plan.to_promote) == 3
        await getattr(session, ending)()
        assert len(await contents(store)) == 20
        assert session.promotion_stats.waiting == 0


# After the end

LATE: dict[str, Any] = {
    "put": lambda session: session.context.put("framework", "Rails"),
    "delete": lambda session: session.context.delete("framework"),
    "clear": lambda session: session.context.clear(),
    "propose": lambda session: session.propose("We use tabs."),
    "decide": lambda session: session.propose("We use tabs.", decided=True),
}


@pytest.mark.parametrize("late", LATE)
async def test_nothing_is_taken_after_the_end(store: Any, late: str) -> None:
    """What could not be kept any more is refused, and what was there can still be looked at."""
    async with make_session(store) as session:
        session.context.put("framework", "Phoenix")
    before = session.short_term
    with pytest.raises(Invalid, match="'s1' is closed"):
        LATE[late](session)
    assert session.short_term == before
    assert session.context.peek("framework") == "Phoenix"


@pytest.mark.parametrize("call", ["close", "promote", "pause"])
async def test_who_is_told_in_the_background_cannot_hold_the_session_up(store: Any, call: str) -> None:
    """A listener that uses the session while it promotes by itself is told so, or obeyed; nobody waits."""
    told = anyio.Event()

    async def listen(signal: Signal) -> None:
        if signal.type == "memory.promoted":
            told.set()
            await getattr(session, call)()

    with anyio.fail_after(20):
        policy = PromotionPolicy(every_ms=5)
        async with make_session(store, promotion=policy, on_signal=listen) as session:
            session.context.put("framework", "Phoenix", source="tool", confidence=0.9)
            await told.wait()
    assert await contents(store) == ["framework: Phoenix"]


async def test_a_session_closed_in_a_turn_promotes_nothing_at_its_end(store: Any) -> None:
    """What was promoted then could not be noted: it waits for the next time, and the turn says so."""
    gate = Gate()
    async with anyio.create_task_group() as group, make_session(store, model=gate) as session:
        session.propose("Indents with tabs", decided=True)
        results: list[Any] = []

        async def ask() -> None:
            results.append(await session.run("hello"))

        group.start_soon(ask)
        await gate.asked.wait()
        await session.close()
        gate.open.set()
    assert "session 's1' is closed" in results[0].notices[-1]
    assert await contents(store) == []
    async with make_session(store) as again:
        assert (again.short_term.pending.size, again.promotions) == (1, ())


async def test_a_resumed_turn_promotes_into_the_project_of_the_session(store: Any) -> None:
    """The project counts that the session is opened with, also where the request was made without one."""
    session = await Session.start(a_spec(memory=True), "s1", store=store, model=talker())
    await session.run("hello", checkpoint="after_prompt")
    async with make_session(store, project_id="p1") as again:
        again.propose("Indents with tabs", decided=True)
        assert (await again.resume()).status == "finished"
        [entry] = await store.list_entries(Scope())
        assert entry.project_id == "p1"
