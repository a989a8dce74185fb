"""Idle sessions are closed, and crashed sessions are opened again."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.session_pools import (
    MANUAL,
    START,
    Gate,
    cancel_background,
    contents,
    fail_on,
    make_pool,
    note_framework,
)
from tests.support.sessions import KINDS, WatchedStore, a_spec, echo_conversation, lines, talker

from omoide import Scope, clock
from omoide.errors import GaveUp, Invalid, RestoreFailed, TooManyAgents
from omoide.promotion import PromotionPolicy
from omoide.sessions import Session, sessions
from omoide.stores import Document, open_store
from omoide.testing import FrozenClock, ScriptedModel


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Any]:
    """A store of each kind that can keep a session."""
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'memory.db'}"
    async with open_store(url, embedder="none") as opened:
        yield opened


@pytest.fixture
async def watched_store(tmp_path: Path) -> AsyncIterator[WatchedStore]:
    """A store in a file whose operations can be made to wait or to fail."""
    async with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as opened:
        yield WatchedStore(opened)


# Idle


async def test_what_nobody_uses_is_closed(store: Any) -> None:
    """After the time that is set, with its final promotion; whoever asks for it or talks to it uses it."""
    with clock.override(FrozenClock(START)) as now:
        conversations = make_pool(store, idle_ms=1_000)
        kept = {id: await conversations.get(id, MANUAL) for id in ("asked", "idle", "talked")}
        note_framework(kept["idle"])
        now.advance(999)
        assert await conversations.sweep() == []
        await kept["talked"].chat("hello")
        await conversations.get("asked")
        now.advance(1)
        assert await conversations.sweep() == ["idle"]
        assert conversations.ids() == ["asked", "talked"]
        assert await contents(store) == ["framework: Phoenix of idle"]
        with pytest.raises(Invalid, match="is closed"):
            await kept["idle"].chat("hello?")
        assert await conversations.sweep(START + 5_000) == ["asked", "talked"]
        assert await conversations.sweep(START + 9_000) == []


async def test_without_a_time_nothing_is_idle(store: Any) -> None:
    """Then sessions live until they are closed."""
    async with make_pool(store) as conversations:
        await conversations.get("s1", MANUAL)
        assert await conversations.sweep(clock.now() + 10**9) == []
        assert conversations.ids() == ["s1"]


async def test_sweeping_forgets_what_is_over(store: Any) -> None:
    """Nothing is held of sessions that others closed, nor of deaths that were long ago."""
    with clock.override(FrozenClock(START)) as now:
        conversations = make_pool(store, restart_window_ms=1_000)
        for at in range(5):
            await cancel_background(await conversations.get(f"s{at}", MANUAL))
            await (await conversations.get(f"s{at}")).close()
        assert (len(conversations._slots), len(conversations._crashes)) == (5, 5)
        now.advance(1_000)
        assert await conversations.sweep() == []
        assert (conversations._slots, conversations._crashes) == ({}, {})


async def test_a_running_turn_is_not_idle(store: Any) -> None:
    """However long it takes."""
    gate = Gate()
    async with make_pool(store, idle_ms=1, llm=gate) as conversations:
        session = await conversations.get("s1", MANUAL)
        async with anyio.create_task_group() as group:
            group.start_soon(session.chat, "hello")
            await gate.asked.wait()
            assert await conversations.sweep(clock.now() + 10**9) == []
            gate.open.set()
        assert conversations.find("s1") is session
        assert await conversations.sweep(clock.now() + 10**9) == ["s1"]


async def test_what_is_held_is_not_idle(store: Any) -> None:
    """As long as one of those who hold it does, and it counts as used when they let go."""
    with clock.override(FrozenClock(START)) as now:
        conversations = make_pool(store, idle_ms=1_000)
        async with conversations.acquire("s1", MANUAL) as session:
            async with conversations.acquire("s1") as again:
                assert again is session
            now.advance(5_000)
            assert await conversations.sweep() == []
            assert await session.chat("hello") == "You said hello"
            now.advance(5_000)
        assert await conversations.sweep() == []
        now.advance(1_000)
        assert await conversations.sweep() == ["s1"]


async def test_a_session_that_is_left_for_dead_is_not_busy(store: Any) -> None:
    """One whose turn ended with another process still says that it runs, and is closed like any other."""
    header = (await Session.start(MANUAL, "s1", store=store, llm=talker())).record
    document = await store.load("session", "s1", Scope())
    crashed = {**document.body, "status": "running"}
    await store.save(
        Document(kind="session", id="s1", agent_id="ada", session_id="s1", body=crashed),
        expected_rev=document.rev,
    )
    conversations = make_pool(store, idle_ms=1)
    assert (await conversations.get("s1")).status == "running"
    assert header.status == "new"
    assert await conversations.sweep(clock.now() + 10**9) == ["s1"]


async def test_what_runs_elsewhere_is_left_alone(store: Any) -> None:
    """While another program has a turn in it, an idle session stays as it is, and that is no failure."""
    gate = Gate()
    conversations = make_pool(store, idle_ms=1)
    session = await conversations.get("s1", MANUAL)
    note_framework(session)
    elsewhere = await Session.load("s1", MANUAL, store=store, llm=gate)
    later = clock.now() + 10**9
    async with anyio.create_task_group() as group:
        group.start_soon(elsewhere.chat, "hello")
        await gate.asked.wait()
        assert await conversations.sweep(later) == []
        assert (conversations.find("s1"), conversations.failures) == (session, {})
        gate.open.set()
    assert await conversations.sweep(later) == ["s1"]
    assert await contents(store) == ["framework: Phoenix of s1"]


async def test_what_cannot_be_saved_stays_until_it_can(watched_store: WatchedStore) -> None:
    """An idle session that a store does not take now is tried again, and others are closed meanwhile."""
    conversations = make_pool(watched_store, idle_ms=1)
    for id in ("s1", "s2"):
        note_framework(await conversations.get(id, MANUAL))
    later = clock.now() + 10**9
    watched_store.before = fail_on("save notes", "s1")
    assert await conversations.sweep(later) == ["s2"]
    assert (conversations.ids(), conversations.failures) == (["s1"], {("default", "s1"): "RuntimeError"})
    watched_store.before = None
    assert await conversations.sweep(later) == ["s1"]
    assert conversations.failures == {}
    assert await contents(watched_store) == ["framework: Phoenix of s1", "framework: Phoenix of s2"]


async def test_who_comes_while_it_is_put_away_can_talk(watched_store: WatchedStore) -> None:
    """A session that somebody asks for while it is closed for being idle is there again, and not busy."""
    conversations = make_pool(watched_store, idle_ms=1)
    note_framework(await conversations.get("s1", MANUAL))
    answers: list[str] = []

    async def come() -> None:
        answers.append(await (await conversations.get("s1")).chat("hello"))

    async with anyio.create_task_group() as group:

        async def before(name: str, args: Any) -> None:
            if name == "claim" and watched_store.calls.count("claim") == 1:
                group.start_soon(come)
                for _ in range(20):
                    await anyio.lowlevel.checkpoint()

        watched_store.before, watched_store.calls = before, []
        assert await conversations.sweep(clock.now() + 10**6) == ["s1"]
    assert answers == ["You said hello"]
    await conversations.close()


async def test_a_listener_cannot_ask_for_the_session_that_tells_it(store: Any) -> None:
    """While the session is closed that would be waiting for oneself: it is refused, and nothing hangs."""
    conversations = make_pool(store, idle_ms=1)
    recorder: list[str] = []

    async def listen(signal: Any) -> None:
        await conversations.close("s1")
        try:
            await conversations.get("s1")
        except Invalid as error:
            recorder.append(error.problem)

    note_framework(await conversations.get("s1", MANUAL, on_signal=listen))
    with anyio.fail_after(20):
        await conversations.close("s1")
    assert set(recorder) == {"'s1' is being closed"}
    assert await contents(store) == ["framework: Phoenix of s1"]


# Restarted


async def test_what_was_closed_by_others_is_opened_anew(store: Any) -> None:
    """As often as they like, with the spec and the options that it had."""
    async with make_pool(store, max_restarts=0) as conversations:
        model = ScriptedModel("a", "b", "c", "d", "e")
        seen = []
        for at in range(5):
            options: dict[str, Any] = {"llm": model, "project_id": "p1"} if at == 0 else {}
            session = await conversations.get("s1", MANUAL if at == 0 else None, **options)
            seen.append(session)
            async with session:
                assert await session.chat(f"turn {at}") == "abcde"[at]
            assert (conversations.find("s1"), conversations.ids()) == (None, [])
        assert len({id(one) for one in seen}) == 5
        assert seen[-1].record.turns == 5
        assert seen[-1].spec is MANUAL
        assert seen[-1].record.project_id == "p1"


async def test_a_session_that_died_is_opened_anew(store: Any) -> None:
    """What it held is kept, and what was said goes on."""
    async with make_pool(store) as conversations:
        old = await conversations.get("s1", MANUAL)
        await old.chat("one")
        old.context.put("current_task", "living")
        other = await conversations.get("s2", MANUAL)
        await cancel_background(old)
        assert conversations.find("s1") is None
        assert conversations.ids() == ["s2"]
        new = await conversations.get("s1")
        assert new is not old
        assert new.context.to_dict() == {"current_task": "living"}
        await new.chat("two")
        assert lines(new.thread.entries) == echo_conversation("one", "two")
        assert new.notices == ()
        assert conversations.find("s2") is other


@pytest.mark.parametrize("off_record", [False, True])
async def test_a_session_that_died_has_its_own_options_again(store: Any, off_record: bool) -> None:
    """Its memory stays in the store it was in, or off, and a model may be named by either name."""
    async with open_store("memory://", embedder="none") as other, make_pool(store) as conversations:
        spec, own = a_spec(memory={"capture": "conversation"}), None if off_record else other
        await cancel_background(await conversations.get("s1", spec, memory_store=own))
        session = await conversations.get("s1", llm=talker())
        await session.chat("hello")
        assert await contents(store) == []
        assert len(await contents(other)) == (0 if off_record else 1)


async def test_a_session_that_died_in_a_turn_finishes_it(store: Any) -> None:
    """Whoever asks for it meanwhile gets the one that is running; only then is it opened anew."""
    gate = Gate()
    async with make_pool(store, llm=gate) as conversations:
        session = await conversations.get("s1", MANUAL)
        async with anyio.create_task_group() as group:
            group.start_soon(session.chat, "hello")
            await gate.asked.wait()
            await cancel_background(session)
            assert await conversations.get("s1") is session
            gate.open.set()
        new = await conversations.get("s1")
        assert new is not session
        assert lines(new.thread.entries) == ["user: hello", "assistant: At last."]


async def test_too_many_deaths_are_not_followed_by_another_life(
    store: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The error says what it died of; others live, and after a while, or when it was closed, it may again."""
    with clock.override(FrozenClock(START)) as now:
        conversations = make_pool(
            store, max_restarts=2, restart_window_ms=1_000, promotion=PromotionPolicy(every_ms=1)
        )
        other = await conversations.get("s2", MANUAL)
        for life in range(3):
            session = await conversations.get("s1", MANUAL)
            await _broken(session, monkeypatch)
            now.advance(100 if life else 500)
        for _ in range(2):
            with pytest.raises(GaveUp, match=r"'s1' failed 3 times within 1\.0 s, last with KeyError"):
                await conversations.get("s1", MANUAL)
        assert conversations.find("s2") is other
        assert "private" not in caplog.text
        now.advance(1_000)
        await _broken(await conversations.get("s1", MANUAL), monkeypatch)
        await conversations.get("s1", MANUAL)
        await conversations.close()


async def test_deaths_that_are_long_ago_do_not_count(store: Any) -> None:
    """A session may die as often as it likes, if only seldom enough."""
    with clock.override(FrozenClock(START)) as now:
        async with make_pool(store, max_restarts=2, restart_window_ms=1_000) as conversations:
            for _ in range(6):
                await cancel_background(await conversations.get("s1", MANUAL))
                now.advance(501)
            await conversations.get("s1")


async def test_closing_forgives(store: Any) -> None:
    """Whoever closes a session that was given up may open it at once."""
    with clock.override(FrozenClock(START)):
        async with make_pool(store, max_restarts=0) as conversations:
            for closing in ("s1", None):
                await cancel_background(await conversations.get("s1", MANUAL))
                with pytest.raises(GaveUp):
                    await conversations.get("s1", MANUAL)
                await conversations.close(closing)
            assert (await conversations.get("s1", MANUAL)).status == "new"


async def _broken(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the background work of a session meet something that it does not expect."""

    def due(now: int) -> str:
        raise KeyError("private words")

    monkeypatch.setattr(session._memory, "due_trigger", due)
    ticking = session._background_task
    assert ticking is not None
    await asyncio.wait([ticking])


async def test_a_session_that_cannot_be_opened_harms_no_other(store: Any) -> None:
    """Everybody who asks for it hears why, others are opened, and so is it once it is mended."""
    await Session.start(MANUAL, "bad", store=store, llm=talker())
    document = await store.load("session", "bad", Scope())
    fields: dict[str, Any] = {"kind": "session", "id": "bad", "agent_id": "ada", "session_id": "bad"}
    broken = await store.save(Document(**fields, body={"schema_version": 99}), expected_rev=document.rev)
    errors: list[Exception] = []
    async with make_pool(store, limit=8) as conversations:

        async def ask(id: str) -> None:
            try:
                assert await (await conversations.get(id, MANUAL)).chat("hello") == "You said hello"
            except RestoreFailed as error:
                errors.append(error)

        async with anyio.create_task_group() as group:
            for at in range(6):
                group.start_soon(ask, f"s{at}")
                group.start_soon(ask, "bad")
        assert len(errors) == 6
        assert conversations.ids() == [f"s{at}" for at in range(6)]
        await store.save(Document(**fields, body=document.body), expected_rev=broken.rev)
        assert (await conversations.get("bad")).status == "new"


async def test_who_stops_waiting_for_an_opening_takes_nothing_along(watched_store: WatchedStore) -> None:
    """Where the one that opens it is cancelled, the next in line opens it."""
    conversations = make_pool(watched_store)
    begun, may_go = anyio.Event(), anyio.Event()

    async def before(name: str, args: Any) -> None:
        if name == "save session" and not begun.is_set():
            begun.set()
            await may_go.wait()

    watched_store.before = before
    got: list[Session] = []

    async def ask() -> None:
        got.append(await conversations.get("s1", MANUAL))

    async with anyio.create_task_group() as outer, anyio.create_task_group() as inner:
        inner.start_soon(ask)
        await begun.wait()
        outer.start_soon(ask)
        await anyio.lowlevel.checkpoint()
        inner.cancel_scope.cancel()
    assert len(got) == 1
    assert await got[0].chat("hello") == "You said hello"
    assert conversations.find("s1") is got[0]
    await conversations.close()


# A limit


async def test_with_a_limit_the_longest_unused_is_closed(store: Any) -> None:
    """With its final promotion; there are never more at once."""
    with clock.override(FrozenClock(START)) as now:
        conversations = make_pool(store, limit=3)
        for at in range(3):
            note_framework(await conversations.get(f"s{at}", MANUAL))
            now.advance(10)
        await conversations.get("s0")
        now.advance(10)
        await (await conversations.get("s3", MANUAL)).chat("hello")
        assert conversations.ids() == ["s0", "s2", "s3"]
        assert await contents(store) == ["framework: Phoenix of s1"]
        await conversations.get("s4", MANUAL)
        assert conversations.ids() == ["s0", "s3", "s4"]
        await conversations.close()


async def test_what_is_in_use_makes_no_room(store: Any) -> None:
    """Where each session runs a turn or is held, a new one is refused; those that live are still found."""
    gate = Gate()
    async with make_pool(store, limit=2) as conversations:
        async with conversations.acquire("held", MANUAL), anyio.create_task_group() as group:
            session = await conversations.get("talking", MANUAL, llm=gate)
            group.start_soon(session.chat, "hello")
            await gate.asked.wait()
            with pytest.raises(TooManyAgents, match="at most 2"):
                await conversations.get("s3", MANUAL)
            assert await conversations.get("talking") is session
            assert conversations.ids() == ["held", "talking"]
            gate.open.set()
        await conversations.get("s3", MANUAL)
        assert len(conversations.ids()) == 2


async def test_what_others_closed_makes_room(store: Any) -> None:
    """It does not count any more, and nothing else is closed for it."""
    async with make_pool(store, limit=2) as conversations:
        first = await conversations.get("s1", MANUAL)
        second = await conversations.get("s2", MANUAL)
        await second.close()
        await conversations.get("s3", MANUAL)
        assert conversations.find("s1") is first


async def test_a_session_that_cannot_be_saved_is_not_given_up_for_another(
    watched_store: WatchedStore,
) -> None:
    """The next one makes room in its place; where there is none, the new one is refused."""
    conversations = make_pool(watched_store, limit=2)
    for id in ("s1", "s2"):
        note_framework(await conversations.get(id, MANUAL))
    watched_store.before = fail_on("save notes", "s1", "s2")
    with pytest.raises(TooManyAgents):
        await conversations.get("s3", MANUAL)
    watched_store.before = fail_on("save notes", "s1")
    await conversations.get("s3", MANUAL)
    assert conversations.ids() == ["s1", "s3"]
    watched_store.before = None
    await conversations.close()
    assert await contents(watched_store) == ["framework: Phoenix of s1", "framework: Phoenix of s2"]


async def test_many_sessions_in_little_room(store: Any) -> None:
    """Callers of many sessions at once are served a few at a time, and what ended leaves nothing behind."""
    conversations = make_pool(store, limit=8)
    refs: list[weakref.ref[Session]] = []
    most = 0

    async def converse(at: int) -> None:
        nonlocal most
        session: Session | None = None
        while session is None:
            try:
                session = await conversations.get(f"s{at % 30}", MANUAL)
            except TooManyAgents:
                await anyio.lowlevel.checkpoint()
        refs.append(weakref.ref(session))
        assert (await session.chat(f"turn {at}")) == f"You said turn {at}"
        most = max(most, len(conversations.ids()))

    with anyio.fail_after(100):
        for begin in range(0, 90, 30):
            async with anyio.create_task_group() as group:
                for at in range(begin, begin + 30):
                    group.start_soon(converse, at)
    assert 1 < most <= 8
    listed = await sessions(store)
    assert [one.turns for one in listed] == [3] * 30
    gc.collect()
    assert len({id(one()) for one in refs if one() is not None}) <= 8
    await conversations.close()
    gc.collect()
    assert [one() for one in refs if one() is not None] == []
