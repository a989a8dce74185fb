"""Tests of opening and closing sessions in any order, from any task, with other settings."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sessions import a_spec, talker

from omoide import Scope
from omoide.core.frozen import MAX_INPUT_DEPTH
from omoide.errors import Invalid, InvalidRecord
from omoide.promotion import PromotionPolicy
from omoide.sessions import Session
from omoide.shortterm import PendingItem, TokenBudget
from omoide.stores import open_store
from omoide.testing import eventually

NEVER = PromotionPolicy(enabled=False)
SMALL = TokenBudget(total=2_000, conversation=1_000, context=60)


def words(text: str) -> int:
    """A counter that counts words."""
    return len(text.split())


def options(store: Any, **others: Any) -> dict[str, Any]:
    """What a session is opened with."""
    return {"store": store, "model": talker(), **others}


def make_session(store: Any, id: str = "s1", **others: Any) -> Session:
    """A session to be entered."""
    spec = others.pop("spec", a_spec(memory=True))
    return Session.open(spec, id, **options(store, **others))


def learn(session: Session, value: Any = "Phoenix", key: str = "framework") -> None:
    """Put a value that is good enough to be promoted."""
    session.context.put(key, value, source="tool", confidence=0.9, memory_type="fact")


async def contents(store: Any, **scope: Any) -> list[str]:
    """What is remembered, in words."""
    return sorted(one.content for one in await store.list_entries(Scope(**scope)))


# In any order, from any task


@pytest.mark.parametrize("order", [*permutations("abc")], ids="".join)
async def test_sessions_are_left_in_any_order(store: Any, order: tuple[str, ...]) -> None:
    """Opened one after the other in one task, each of them ends as it should, and the others go on."""
    sessions = {id: make_session(store, id) for id in "abc"}
    for session in sessions.values():
        await session.__aenter__()
        learn(session, session.id)
    for at, id in enumerate(order):
        await sessions[id].__aexit__(None, None, None)
        await asyncio.sleep(0)
        assert await contents(store) == sorted(f"framework: {one}" for one in order[: at + 1])
        for other in order[at + 1 :]:
            assert await sessions[other].chat("Hello.") == "You said Hello."
        with pytest.raises(Invalid, match="is closed"):
            await sessions[id].chat("Hello?")


async def test_a_session_is_left_in_another_task_than_it_was_entered_in(store: Any) -> None:
    """A server may open it in one request, use it in the next, and close it when it shuts down."""
    session = make_session(store)
    await asyncio.create_task(session.__aenter__())
    assert await asyncio.create_task(session.chat("Hello.")) == "You said Hello."
    learn(session)
    await asyncio.create_task(session.__aexit__(None, None, None))
    assert await contents(store) == ["framework: Phoenix"]


async def test_the_background_outlives_the_task_that_opened_the_session(store: Any) -> None:
    """What is due is promoted while the session is open, whoever opened it."""
    session = make_session(store, promotion=PromotionPolicy(every_ms=5))
    await asyncio.create_task(session.__aenter__())
    learn(session)
    await eventually(lambda: session.promotions)
    await session.close()
    assert [one.trigger for one in session.promotions] == ["interval"]


async def test_nothing_goes_on_after_the_last_session_was_left(store: Any) -> None:
    """However many were open, the loop has the tasks that it had before."""
    before = asyncio.all_tasks()
    sessions = [make_session(store, f"s{at}", promotion=PromotionPolicy(every_ms=5)) for at in range(5)]
    for session in sessions:
        await session.__aenter__()
    assert len(asyncio.all_tasks()) > len(before)
    for session in sessions:
        await session.close()
        await session.close()  # once is enough, twice does no harm
    assert asyncio.all_tasks() == before


# With other settings


async def test_a_session_is_of_one_project(store: Any) -> None:
    """Opened or loaded with another, it is refused; without one, or with its own, it goes on there."""
    async with make_session(store, project_id="shop") as session:
        learn(session, "A")
    for take_up in (
        make_session(store, project_id="garden").__aenter__(),
        _load_session(store, project_id="garden"),
    ):
        with pytest.raises(Invalid, match="project_id is 'garden', not that of the session"):
            await take_up
    for known, value in (({}, "B"), ({"project_id": "shop"}, "C")):
        async with make_session(store, **known) as session:
            learn(session, value)
    assert await contents(store, project_id="shop") == [f"framework: {one}" for one in "ABC"]
    assert await contents(store) == [f"framework: {one}" for one in "ABC"]


async def test_a_smaller_working_context_loses_no_memory(store: Any) -> None:
    """Values without room wait for promotion, are named, and are promoted like any others."""
    given: dict[str, Any] = {"promotion": NEVER, "count_tokens": words}
    async with make_session(store, **given) as session:
        for at in range(8):
            learn(session, f"number {at} " + "word " * 10, f"key{at}")
    async with make_session(store, token_budget=SMALL, **given) as session:
        left = {*(f"key{at}" for at in range(8))} - {*session.context}
        assert left
        assert session.context.value.current_tokens <= 60
        waiting = [one.content.split(":")[0] for one in session.short_term.pending.list_implicit()]
        assert {*waiting} == left
        assert {*session.notices} == {
            f"{key!r} does not fit into the working context any more" for key in left
        }
    async with make_session(store, token_budget=SMALL, **given) as session:
        assert session.notices == ()
        await session.promote()
    assert [one.split(":")[0] for one in await contents(store)] == [f"key{at}" for at in range(8)]


def nest(depth: int) -> Any:
    """A value with so many lists around it."""
    value: Any = "core"
    for _ in range(depth):
        value = [value]
    return value


@given(depth=st.integers(1, MAX_INPUT_DEPTH + 5), decided=st.booleans())
async def test_whatever_is_put_can_be_kept(depth: int, decided: bool) -> None:
    """A value is refused at once, or it is there when the session is opened again; both end well."""
    async with open_store("memory://", embedder="none") as store:
        async with make_session(store) as session:
            with suppress(InvalidRecord):
                session.context.put("thing", nest(depth), confidence=1.0, memory_type="fact")
            taken = "thing" in session.context
            assert taken or depth > 20, "what anybody may want is taken"
            if decided:
                session.propose("We use tabs.", decided=True)
            result = await session.run("Hello.")
            assert (result.notices, session.notices) == ((), ())
        async with make_session(store) as session:
            expected = {"thing": nest(depth)} if taken else {}
            assert session.context.to_dict() == expected
            assert session.notices == ()


# What was lost


@pytest.mark.parametrize("how", ["open", "start", "load"])
async def test_what_a_session_lost_is_told_however_it_was_begun(store: Any, how: str) -> None:
    """A process that had a turn and died before it kept the rest has lost that, and the next one says so."""
    if how == "load":
        async with make_session(store):
            pass
        session = await _load_session(store)
    elif how == "start":
        session = await Session.start(a_spec(memory=True), "s1", **options(store))
    else:
        session = await make_session(store).__aenter__()
    await session.chat("Hello.")
    learn(session)
    session.propose("We use tabs.", decided=True)
    await session._stop_background()  # the process dies here
    async with make_session(store) as taken_up:
        assert taken_up.context.to_dict() == {}
        (notice,) = taken_up.notices
        assert "was not closed" in notice
        assert "what came after is lost" in notice
    async with make_session(store) as once_more:
        assert once_more.notices == ()


async def _load_session(store: Any, **others: Any) -> Session:
    return await Session.load("s1", a_spec(memory=True), **options(store, **others))


# Forks


async def test_a_fork_does_not_read_its_past_again(store: Any) -> None:
    """Memories are noticed in what is said after the fork, and not once more in what was said before."""
    heard: list[str] = []

    def extractor(text: str, **about: Any) -> list[PendingItem]:
        heard.append(text)
        return []

    async with make_session(store, extractor=extractor, promotion=NEVER) as session:
        await session.chat("First.")
        async with await session.fork("s2") as fork:
            assert fork.short_term.conversation.size == 2
            await fork.chat("Second.")
    assert heard == ["First.", "You said First.", "Second.", "You said Second."]


async def test_a_fork_does_not_leave_its_past_behind_again(store: Any) -> None:
    """Messages that left the buffer before the fork are no candidates in it; those that leave later are."""
    budget = TokenBudget(total=2_000, conversation=12, context=1_000)
    given: dict[str, Any] = {"token_budget": budget, "count_tokens": words, "promotion": NEVER}
    async with make_session(store, **given) as session:
        for at in range(4):
            await session.chat(f"We decided on number {at}.")
        before = {one.content for one in session.short_term.pending.list_implicit()}
        assert before
        async with await session.fork("s2") as fork:
            assert fork.short_term.pending.size == 0
            await fork.chat("We decided on number 4.")
            fresh = {one.content for one in fork.short_term.pending.list_implicit()}
            assert fresh
            assert not fresh & before
