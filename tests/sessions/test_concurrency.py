"""Tests of many sessions, and of many runners of one session, at once."""

from __future__ import annotations

import gc
import threading
import tracemalloc
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.conftest import SOAK
from tests.support.sessions import (
    Till,
    WatchedStore,
    a_spec,
    captured_entries,
    conversation_of,
    echo_conversation,
    lines,
    reopen,
    talker,
)
from tests.support.turns import tool_calls

from omoide import Scope, action
from omoide.errors import Invalid, SessionBusy
from omoide.runtime import SessionPool
from omoide.sessions import Session, sessions
from omoide.stores import open_store
from omoide.testing import ScriptedModel

MANY = 200 if SOAK else 70
ALIVE = 1_001
EACH = 120_000
"""How many bytes an open session may take."""
RACERS = 20


async def test_many_sessions_at_once_do_not_mix(store: Any) -> None:
    """Many conversations take turns on one store, and each hears only itself."""

    async def tagged(ctx: Any) -> str:
        await anyio.lowlevel.checkpoint()
        return f"{ctx.session_id} {ctx.request_id}"

    tag = action(effectful=True)(tagged)
    spec = a_spec(tools=[tag], memory={"scope": "session", "capture": "conversation"})

    def model(request: Any, journal: Any) -> Any:
        assert all(request.session_id in one.content for one in request.prompt.messages if one.role == "user")
        if request.round == 0 and "tag" in request.prompt.messages[-1].content:
            return tool_calls(("tagged", {}))
        return f"{request.session_id} heard {len(conversation_of(request.prompt))}"

    async def converse(id: str) -> None:
        async with Session.open(spec, id, store=store, model=model) as session:
            for n in range(2):
                await session.run(f"{id} says {n}")
            await session.run(f"{id} wants a tag", request_id="tag")

    with anyio.fail_after(100):
        async with anyio.create_task_group() as group:
            for at in range(MANY):
                group.start_soon(converse, f"s{at:03}-")
    listed = await sessions(store)
    assert [(one.session_id, one.status, one.turns) for one in listed] == [
        (f"s{at:03}-", "finished", 3) for at in range(MANY)
    ]
    for at in range(0, MANY, 7):
        id = f"s{at:03}-"
        read = await Session.load(id, spec, store=store)
        assert lines(read.thread.entries) == [
            *(
                f"user: {id} says 0",
                f"assistant: {id} heard 1",
                f"user: {id} says 1",
                f"assistant: {id} heard 3",
            ),
            *(f"user: {id} wants a tag", "wants tagged", "began tagged", f"ok tagged: {id} tag"),
            f"assistant: {id} heard 7",
        ]
        assert [id in entry.content for entry in await captured_entries(store, session_id=id)] == [True] * 3


class Race:
    """Handles that want to run one session at the same moment; the winner waits until the rest is told."""

    def __init__(self, handles: list[Session], name: str) -> None:
        self.handles = handles
        self.name = name
        self.over = anyio.Event()
        self.busy: list[int] = []
        self.won: list[int] = []

    async def model(self, request: Any, journal: Any) -> str:
        await self.over.wait()
        return "Mine."

    async def enter(self, at: int) -> None:
        try:
            await self.handles[at].run(f"{self.name}: I am {at}", model=self.model)
            self.won.append(at)
        except SessionBusy:
            self.busy.append(at)
            if len(self.busy) == len(self.handles) - 1:
                self.over.set()

    async def run(self) -> int:
        with anyio.fail_after(60):
            async with anyio.create_task_group() as group:
                for at in range(len(self.handles)):
                    group.start_soon(self.enter, at)
        assert len(self.won) == 1
        return self.won[0]


async def test_one_of_many_runners_wins(store: Any) -> None:
    """Whoever is first runs the session, and everybody who comes meanwhile hears that it is busy."""
    first = await Session.start(a_spec(), "s1", store=store)
    handles = [await reopen(first) for _ in range(RACERS)]
    for round in range(3):
        winner = await Race(handles, str(round)).run()
        said = lines((await reopen(first)).thread.entries)
        assert said[2 * round :] == [f"user: {round}: I am {winner}", "assistant: Mine."]
    assert len(await captured_entries(store)) == 3


async def test_threads_claim_a_session_like_tasks(tmp_path: Path) -> None:
    """Event loops in several threads, each with its own store on one file, never run a session at once."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    inside, met = threading.Lock(), threading.Barrier(4, timeout=60)
    overlaps: list[str] = []
    done: list[str] = []

    async def model(request: Any, journal: Any) -> str:
        if not inside.acquire(blocking=False):
            overlaps.append(request.request_id)
            return "Overlap."
        try:
            for _ in range(5):
                await anyio.lowlevel.checkpoint()
            return "Alone."
        finally:
            inside.release()

    async def work(name: int) -> None:
        async with (
            open_store(url, embedder="none") as store,
            Session.open(a_spec(), "s1", store=store, model=model) as session,
        ):
            met.wait()
            for n in range(10):
                try:
                    await session.run(f"{name} {n}", request_id=f"{name}-{n}")
                    done.append(f"{name}-{n}")
                except SessionBusy:
                    continue

    async with open_store(url, embedder="none") as store:
        await Session.start(a_spec(), "s1", store=store)
    threads = [threading.Thread(target=partial(anyio.run, work, name)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)
    async with open_store(url, embedder="none") as store:
        session = await Session.load("s1", a_spec(), store=store)
        assert (overlaps, sorted(session.requests)) == ([], sorted(done))
        assert done
        assert (session.status, session.record.turns) == ("finished", len(done))
        kept = await captured_entries(store)
        assert sorted(str(entry.metadata["request_id"]) for entry in kept) == sorted(done)
        said = lines(session.thread.entries)
        assert [line.split(":")[0] for line in said] == ["user", "assistant"] * len(done)


async def test_many_may_open_a_session_that_nobody_began(store: Any) -> None:
    """Where several open the same new id at once, all of them have the one session."""
    opened: list[Session] = []

    async def open_it() -> None:
        async with Session.open(a_spec(), "s1", store=store, model=talker()) as session:
            opened.append(session)

    async with anyio.create_task_group() as group:
        for _ in range(RACERS):
            group.start_soon(open_it)
    assert {session.thread.id for session in opened} == {opened[0].thread.id}
    other = await reopen(opened[0], model=talker())
    assert await other.chat("hello") == "You said hello"


async def test_who_comes_too_late_leaves_nothing_behind(store: Any) -> None:
    """An id that is taken cannot be started again, and trying does not fill the store."""
    await Session.start(a_spec(), "s1", store=store)
    for _ in range(3):
        with pytest.raises(Invalid):
            await Session.start(a_spec(), "s1", store=store)
    assert len(await store.documents("thread", Scope())) == 1


async def test_two_decisions_at_once_are_both_kept(store: Any) -> None:
    """Handles that decide about one turn at the same time are busy or heard, never forgotten."""
    till = Till()
    calls = [("pay", {"sum": n}) for n in range(6)]
    session = await Session.start(
        till.spec(approve=["pay"]), "s1", store=store, model=talker(tool_calls(*calls), "Done.")
    )
    await session.run("pay")
    heard: list[str] = []

    async def decide(review: str) -> None:
        other = await reopen(session)
        while True:
            try:
                await other.approve(review)
            except SessionBusy:
                await anyio.lowlevel.checkpoint()
            else:
                heard.append(review)
                return

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for review in session.pending_reviews:
                group.start_soon(decide, review.id)
    assert len(heard) == 6
    assert (await session.resume()).content == "Done."
    assert sorted(till.log) == [f"pay {n}" for n in range(6)]


async def test_tools_at_once_are_all_written_down(store: Any) -> None:
    """Thirty calls of one reply that end in any order have one beginning and one end each."""
    till, watched = Till(), WatchedStore(store)
    calls = [("pay", {"sum": n}) for n in range(30)]
    session = await Session.start(till.spec(), "s1", store=watched, model=talker(tool_calls(*calls), "Done."))
    await session.run("pay")
    said = lines((await reopen(session)).thread.entries)
    assert (said[:2], said[-1]) == (["user: pay", "wants " + " ".join(["pay"] * 30)], "assistant: Done.")
    assert said.count("began pay") == 30
    assert sorted(line for line in said if line.startswith("ok")) == sorted(
        f"ok pay: paid {n}" for n in range(30)
    )
    assert (await session.replay()).content == "Done."


async def test_a_session_under_load_ends_in_order(file: Any) -> None:
    """Handles that try again until they get their turn all get it, and nothing is lost or said twice."""
    first = await Session.start(a_spec(), "s1", store=file)

    async def insist(name: str) -> None:
        session = await reopen(first, model=talker())
        for n in range(3):
            while True:
                try:
                    await session.run(f"{name}{n}")
                    break
                except SessionBusy:
                    await anyio.lowlevel.checkpoint()

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for name in "abcd":
                group.start_soon(insist, name)
    said = lines((await reopen(first)).thread.entries)
    users = [line.removeprefix("user: ") for line in said if line.startswith("user")]
    assert sorted(users) == sorted(f"{name}{n}" for name in "abcd" for n in range(3))
    assert said == echo_conversation(*users)


def _echo_session(request: Any) -> str:
    return f"{request.session_id} said {request.prompt.messages[-1].content}"


async def test_more_than_a_thousand_sessions_live_at_once(file: Any) -> None:
    """There is no limit of a thousand: each of them answers, remembers its own, and ends well."""
    spec, model = a_spec(memory=True), ScriptedModel(_echo_session, repeat=True)
    conversations = SessionPool(file, model=model)
    answers: dict[str, str] = {}

    async def converse(id: str) -> None:
        session = await conversations.get(id, spec)
        answers[id] = await session.chat(f"I am {id}")
        session.context.put("framework", f"framework of {id}", source="tool", confidence=0.9)

    ids = [f"s{at:04}" for at in range(ALIVE)]
    with anyio.fail_after(110):
        async with anyio.create_task_group() as group:
            for id in ids:
                group.start_soon(converse, id)
        assert conversations.ids() == ids
        assert answers == {id: f"{id} said I am {id}" for id in ids}
        await conversations.close()
    assert (conversations.ids(), conversations.failures) == ([], {})
    assert [(one.session_id, one.turns) for one in await sessions(file)] == [(id, 1) for id in ids]
    remembered = await file.list_entries(Scope(agent_id="ada"))
    assert {one.session_id: one.content for one in remembered} == {
        id: f"framework: framework of {id}" for id in ids
    }


async def test_a_session_takes_little_memory_and_gives_it_back(file: Any) -> None:
    """What is held grows with the sessions that live, not with those that ever lived."""
    spec, model = a_spec(memory=True), talker()
    conversations = SessionPool(file, model=model)

    async def converse(first: int, count: int) -> int:
        for at in range(first, first + count):
            await (await conversations.get(f"s{at}", spec)).chat(f"I am {at}")
        model.requests.clear()
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        begun = await converse(0, 10)
        grown = await converse(10, 30)
        await conversations.close()
        left = await converse(40, 10)
        await conversations.close()
    finally:
        tracemalloc.stop()
    assert grown - begun < 30 * EACH
    assert left - begun < 5 * EACH
