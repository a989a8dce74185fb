"""Sessions are found, opened and closed, each without harm to the others."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.support.session_pools import MANUAL, Gate, contents, fail_on, make_pool, note_framework
from tests.support.sessions import KINDS, WatchedStore, a_spec, echo_conversation, lines, talker

from omoide import Agent, Context, Signal, action
from omoide.errors import Invalid, MissingNamespace, MissingStore, NotFound, WrongType
from omoide.runtime import Runtime, SessionPool
from omoide.sessions import Session, sessions
from omoide.stores import open_store
from omoide.testing import eventually


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


# Found and opened


async def test_a_session_is_opened_when_it_is_asked_for(store: Any) -> None:
    """From then on it is found by its id, and everybody who asks has the same one."""
    async with make_pool(store) as conversations:
        assert (conversations.find("s1"), conversations.ids()) == (None, [])
        session = await conversations.get("s1", MANUAL)
        assert await session.chat("hello") == "You said hello"
        assert conversations.find("s1") is session
        assert await conversations.get("s1", MANUAL) is session
        assert await conversations.get("s1") is session
        other = await conversations.get("s0", MANUAL)
        assert other is not session
        assert conversations.ids() == ["s0", "s1"]
    assert [one.session_id for one in await sessions(store)] == ["s0", "s1"]


async def test_callers_at_once_have_one_session(watched_store: WatchedStore) -> None:
    """However many ask while it is being opened, it is opened once."""
    conversations = make_pool(watched_store)
    found: list[Session] = []

    async def ask() -> None:
        found.append(await conversations.get("s1", MANUAL))

    async with anyio.create_task_group() as group:
        for _ in range(20):
            group.start_soon(ask)
    assert len(found) == 20
    assert len({id(one) for one in found}) == 1
    assert watched_store.calls.count("save session") == 1
    await conversations.close()


async def test_a_session_that_exists_needs_no_spec(store: Any) -> None:
    """It has the one it was begun with, and what was said in it."""
    spec = a_spec(instructions="Be brief.")
    async with make_pool(store) as conversations:
        await (await conversations.get("s1", spec)).chat("hello")
    async with make_pool(store) as conversations:
        session = await conversations.get("s1")
        assert session.spec.instructions == "Be brief."
        await session.chat("again")
        assert lines(session.thread.entries) == echo_conversation("hello", "again")


async def test_what_does_not_exist_cannot_be_had_without_a_spec(store: Any) -> None:
    """It is not found, nothing is left of the attempt, and with a spec it begins."""
    async with make_pool(store, limit=1) as conversations:
        for _ in range(5):
            with pytest.raises(NotFound):
                await conversations.get("s1")
        assert conversations.ids() == []
        assert await sessions(store) == []
        assert (await conversations.get("s1", MANUAL)).status == "new"


async def test_namespaces_stay_apart(store: Any) -> None:
    """One id in two namespaces is two sessions, whether it is said or follows from the context."""
    spec = a_spec(memory={"capture": "conversation", "namespace": ("context", "tenant")})
    async with make_pool(store) as conversations:
        mine = await conversations.get("s1", spec, context={"tenant": "a"})
        yours = await conversations.get("s1", spec, context={"tenant": "b"})
        plain = await conversations.get("s1", MANUAL)
        assert len({id(mine), id(yours), id(plain)}) == 3
        await mine.chat("mine")
        assert (lines(yours.thread.entries), lines(plain.thread.entries)) == ([], [])
        assert conversations.find("s1") is plain
        assert conversations.find("s1", namespace="a") is mine
        assert await conversations.get("s1", namespace="b") is yours
        assert (conversations.ids(), conversations.ids(namespace="a")) == (["s1"] * 3, ["s1"])
        await conversations.close("s1", namespace="a")
        assert conversations.find("s1", namespace="a") is None
        assert conversations.find("s1", namespace="b") is yours


async def test_nobody_gets_the_session_of_somebody_else(store: Any) -> None:
    """Where it is alive as where it is not: another agent, project or tenant is refused."""
    spec = a_spec(memory={"namespace": ("context", "tenant")})
    home: dict[str, Any] = {"namespace": "shared", "project_id": "p1", "context": {"tenant": "a"}}
    async with make_pool(store) as conversations:
        session = await conversations.get("s1", spec, **home)
        with pytest.raises(Invalid, match="spec"):
            await conversations.get("s1", a_spec(id="bob"), **home)
        with pytest.raises(Invalid, match="project_id"):
            await conversations.get("s1", spec, **{**home, "project_id": "p2"})
        for spec_again in (spec, None):
            with pytest.raises(Invalid, match="context"):
                await conversations.get("s1", spec_again, **{**home, "context": {"tenant": "b"}})
        with pytest.raises(MissingNamespace):
            await conversations.get("s1", spec, namespace="shared")
        assert await conversations.get("s1", spec, **home) is session


async def test_bad_input_is_refused(store: Any) -> None:
    """The error names what is wrong, and nothing is opened."""
    with pytest.raises(MissingStore):
        SessionPool(None)
    for field in ("idle_ms", "limit", "restart_window_ms"):
        with pytest.raises(Invalid, match=field):
            SessionPool(store, **{field: 0})  # type: ignore[arg-type]
    with pytest.raises(Invalid, match="store"):
        await make_pool(store).get("s1", MANUAL, store=store)  # type: ignore[call-arg]
    async with make_pool(store) as conversations:
        for id, spec, options in (
            ("", MANUAL, {}),
            ("s1", "ada", {}),
            ("s1", MANUAL, {"namespace": 5}),
            ("s1", a_spec(memory={"namespace": ("context", "t")}), {"context": ["t"]}),
            ("s1", MANUAL, {"nonsense": True}),
        ):
            with pytest.raises((Invalid, WrongType)):
                await conversations.get(id, spec, **options)  # type: ignore[arg-type]
        assert conversations.ids() == []
    assert await sessions(store) == []


# Closed


async def test_closing_promotes(store: Any) -> None:
    """What a session held is in long-term memory after it was closed: one by its id, or all of them."""
    conversations = make_pool(store)
    for at in range(3):
        note_framework(await conversations.get(f"s{at}", MANUAL))
    assert await contents(store) == []
    await conversations.close("s1")
    assert await contents(store) == ["framework: Phoenix of s1"]
    assert conversations.ids() == ["s0", "s2"]
    await conversations.close()
    assert await contents(store) == [f"framework: Phoenix of s{at}" for at in range(3)]
    assert (conversations.ids(), conversations.failures) == ([], {})
    await conversations.close("s1")
    await conversations.close()


async def test_one_that_cannot_be_closed_hinders_no_other(
    watched_store: WatchedStore, caplog: pytest.LogCaptureFixture
) -> None:
    """The others are closed with all they held, and it is told which one failed, without a word of it."""
    conversations = make_pool(watched_store)
    for at in range(30):
        note_framework(await conversations.get(f"s{at:02}", MANUAL))
    watched_store.before = fail_on("save notes", "s07", "s21")
    with caplog.at_level(logging.DEBUG), pytest.raises(ExceptionGroup) as raised:
        await conversations.close()
    assert sorted(note for one in raised.value.exceptions for note in one.__notes__) == [
        "in session 's07'",
        "in session 's21'",
    ]
    assert conversations.failures == {("default", id): "RuntimeError" for id in ("s07", "s21")}
    assert conversations.ids() == []
    assert len(await contents(watched_store)) >= 28
    assert "s07" in caplog.text
    assert "secret" not in caplog.text
    assert "Phoenix" not in caplog.text


async def test_the_error_of_one_session_is_raised(watched_store: WatchedStore) -> None:
    """Whoever closes one by its id hears what it failed with; it is gone, and can be opened again."""
    conversations = make_pool(watched_store)
    note_framework(await conversations.get("s1", MANUAL))
    watched_store.before = fail_on("save notes")
    with pytest.raises(RuntimeError, match="secret words"):
        await conversations.close("s1")
    watched_store.before = None
    assert (await conversations.get("s1")).status == "new"
    await conversations.close("s1")
    assert conversations.failures == {}


async def test_an_error_of_the_block_is_not_hidden(watched_store: WatchedStore) -> None:
    """What was raised in the block comes out of it; where nothing was, what closing failed with."""
    for problem, expected in ((KeyError("mine"), KeyError), (None, ExceptionGroup)):
        watched_store.before = None
        with pytest.raises(expected):
            await _use_pool(watched_store, problem)


async def test_agents_finish_though_a_session_cannot_be_closed(watched_store: WatchedStore) -> None:
    """At the end of a runtime they have their time, and only then it is told which session failed."""
    failed, done = anyio.Event(), list[str]()

    async def before(name: str, args: Any) -> None:
        if name == "save notes":
            failed.set()
            raise RuntimeError("secret words")

    @action(effectful=True)
    async def finish(ctx: Context) -> None:
        await failed.wait()
        await anyio.wait_all_tasks_blocked()
        done.append("finished")

    runtime = await Runtime(store=watched_store).__aenter__()
    await runtime.start(Agent.new("worker", id="a", routes=[("go", finish)]))
    note_framework(await runtime.session("s1", MANUAL, llm=talker()))
    await runtime.cast("a", Signal(type="go"))
    watched_store.before = before
    with pytest.raises(ExceptionGroup, match="some sessions"):
        await runtime.__aexit__(None, None, None)
    assert (done, len(runtime.dropped_signals)) == (["finished"], 0)


async def test_a_session_that_cannot_be_closed_hides_no_error_of_a_runtime(
    watched_store: WatchedStore,
) -> None:
    """What was raised in the block comes out of it."""

    async def used() -> None:
        async with Runtime(store=watched_store) as runtime:
            note_framework(await runtime.session("s1", MANUAL, llm=talker()))
            watched_store.before = fail_on("save notes")
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await used()


async def _use_pool(watched_store: WatchedStore, problem: Exception | None) -> None:
    async with make_pool(watched_store) as conversations:
        note_framework(await conversations.get("s1", MANUAL))
        watched_store.before = fail_on("save notes")
        if problem is not None:
            raise problem


async def test_closing_waits_for_a_turn(store: Any) -> None:
    """A turn that is running is answered first, and what it leads to is kept."""
    gate = Gate()
    conversations = make_pool(store, llm=gate)
    session = await conversations.get("s1", MANUAL)
    answers: list[str] = []

    async def talk_to_it() -> None:
        answers.append(await session.chat("hello"))

    async with anyio.create_task_group() as group:
        group.start_soon(talk_to_it)
        await gate.asked.wait()
        note_framework(session)
        group.start_soon(conversations.close)
        for _ in range(100):
            await anyio.lowlevel.checkpoint()
        assert conversations.find("s1") is session
        gate.open.set()
    assert answers == ["At last."]
    assert session.notices == ()
    assert conversations.ids() == []
    assert await contents(store) == ["framework: Phoenix of s1"]


async def test_closing_does_not_wait_for_ever(store: Any) -> None:
    """When patience is over the session is closed under its turn, whose answer is kept all the same."""
    gate = Gate()
    conversations = make_pool(store, llm=gate, close_timeout_ms=1)
    session = await conversations.get("s1", MANUAL)
    async with anyio.create_task_group() as group:
        group.start_soon(session.chat, "hello")
        await gate.asked.wait()
        await conversations.close("s1")
        assert conversations.find("s1") is None
        gate.open.set()
    again = await conversations.get("s1")
    assert lines(again.thread.entries) == ["user: hello", "assistant: At last."]
    await conversations.close()


async def test_what_there_was_no_time_for_is_named(watched_store: WatchedStore) -> None:
    """Who stops waiting hears at once which sessions are left, and what was begun is still finished."""
    conversations = make_pool(watched_store)
    for at in range(40):
        note_framework(await conversations.get(f"s{at:02}", MANUAL))
    stuck, may_go = anyio.Event(), anyio.Event()

    async def before(name: str, args: Any) -> None:
        if name == "save notes" and args[0].session_id == "s03":
            stuck.set()
            await may_go.wait()

    watched_store.before = before
    with anyio.move_on_after(20) as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(conversations.close)
            await stuck.wait()
            await eventually(lambda: [*conversations._slots] == [("default", "s03")])
            group.cancel_scope.cancel()
    assert not scope.cancelled_caught
    assert conversations.failures == {("default", "s03"): "not closed in time"}
    may_go.set()
    await eventually(lambda: conversations.failures == {})
    assert len(await contents(watched_store)) == 40


async def test_who_asks_for_a_closing_session_gets_the_next(watched_store: WatchedStore) -> None:
    """The old one is closed to its end first, so that nothing of it is missing in the new one."""
    conversations = make_pool(watched_store)
    old = await conversations.get("s1", MANUAL)
    old.context.put("current_task", "waiting")
    begun, may_go = anyio.Event(), anyio.Event()

    async def before(name: str, args: Any) -> None:
        if name == "claim":
            begun.set()
            await may_go.wait()

    watched_store.before = before
    got: list[Session] = []

    async def ask() -> None:
        got.append(await conversations.get("s1"))

    async with anyio.create_task_group() as group:
        group.start_soon(conversations.close, "s1")
        await begun.wait()
        group.start_soon(ask)
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        assert got == []
        may_go.set()
    assert got[0] is not old
    assert got[0].context.to_dict() == {"current_task": "waiting"}
    assert got[0].notices == ()
    await conversations.close()


async def test_what_is_just_being_opened_is_closed_as_well(watched_store: WatchedStore) -> None:
    """Where all are closed while one is opened, it is closed after it was opened, and nothing is left."""
    conversations = make_pool(watched_store)
    begun, may_go = anyio.Event(), anyio.Event()

    async def before(name: str, args: Any) -> None:
        if name == "save session" and not begun.is_set():
            begun.set()
            await may_go.wait()

    watched_store.before = before
    async with anyio.create_task_group() as group:
        group.start_soon(conversations.get, "s1", MANUAL)
        await begun.wait()
        group.start_soon(conversations.close)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        may_go.set()
    assert (conversations.ids(), [*conversations._slots]) == ([], [])


@pytest.mark.parametrize("id", ["../../up", "a/b", "C:\\x", "%2e%2e", "é", "a b", "'; DROP TABLE", "x" * 512])
async def test_an_id_is_only_a_name(watched_store: WatchedStore, tmp_path: Path, id: str) -> None:
    """Whatever it looks like, it names one session of the store, and no file."""
    before = _files(tmp_path)
    async with make_pool(watched_store) as conversations:
        await (await conversations.get(id, MANUAL)).chat("hello")
        assert conversations.ids() == [id]
    assert [one.session_id for one in await sessions(watched_store)] == [id]
    assert _files(tmp_path) == before


def _files(folder: Path) -> set[str]:
    """The names of all files, those of one database as one."""
    return {path.name.split("-")[0] for path in folder.rglob("*")}
