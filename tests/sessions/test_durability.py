"""Tests of short-term memory after a crash, and of notices about losses."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.promotion import FailingStore
from tests.support.sessions import a_spec, lines, reopen, talker

from omoide import Entry, Scope, clock
from omoide.errors import Invalid, StoreFailed
from omoide.promotion import PromotionPolicy
from omoide.sessions import Session
from omoide.stores import open_store

ROOT = Path(__file__).parents[2]
MANY = 100


def make_session(store: Any, id: str = "s1", **options: Any) -> Session:
    """A session to be entered."""
    spec = options.pop("spec", a_spec(memory=True))
    return Session.open(spec, id, **{"store": store, "model": talker(), **options})


async def start_session(store: Any, **options: Any) -> Session:
    """A session that nobody will close."""
    return await Session.start(a_spec(memory=True), "s1", **{"store": store, "model": talker(), **options})


def learn(session: Session, value: Any = "Phoenix", key: str = "framework") -> None:
    """Put a value that is good enough to be promoted."""
    session.context.put(key, value, source="tool", confidence=0.9, memory_type="fact")


async def all_entries(store: Any, **scope: Any) -> list[Entry]:
    """All that is remembered."""
    found: list[Entry] = await store.list_entries(Scope(**scope))
    return found


async def live(store: Any, **scope: Any) -> list[str]:
    """What counts now, in words."""
    return sorted(one.content for one in await all_entries(store, **scope) if one.is_live(clock.now()))


# A process that is killed


async def _live(url: str) -> None:
    """Learn something in a turn and after it, and be killed."""
    async with open_store(url, embedder="none") as store, make_session(store) as session:
        learn(session)
        session.propose("Waiting.", importance=0.3)
        await session.run("Hello.", request_id="r1")
        await session.add_message("user", "Aside.")
        await session.remember("Remembered.")
        session.context.put("framework", "Rails")
        session.context.put("lost", 1)
        session.propose("Lost.", importance=0.3)
        os.kill(os.getpid(), signal.SIGKILL)


async def test_what_was_acknowledged_outlives_the_process(tmp_path: Path) -> None:
    """Messages and memories are all there; the working context and what waits as the last turn left it."""
    url = f"sqlite:///{tmp_path / 'memory.db'}"
    code = f"import anyio; from tests.sessions.test_durability import _live; anyio.run(_live, {url!r})"
    ended = await anyio.run_process(
        [sys.executable, "-c", code], cwd=ROOT, check=False, stderr=subprocess.PIPE
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()
    async with open_store(url, embedder="none") as store:
        async with make_session(store) as session:
            said = ["user: Hello.", "assistant: You said Hello.", "user: Aside."]
            assert lines(session.thread.entries) == said
            assert [one.content for one in session.short_term.conversation.to_list()] == [
                *("Hello.", "You said Hello.", "Aside.")
            ]
            assert await live(store) == ["Remembered."]
            assert session.context.to_dict() == {"framework": "Phoenix"}
            assert [one.content for one in session.short_term.pending.list_implicit()] == ["Waiting."]
            (notice,) = session.notices
            assert "not closed" in notice
            assert "lost" in notice
            assert notice in (await session.assemble_context()).notices
        async with make_session(store) as session:
            assert session.notices == ()


async def test_whoever_loads_it_hears_it_too(store: Any) -> None:
    """A session that was not closed says so, however it is taken up."""
    async with Session.open(a_spec(memory=True), "s0", store=store):
        pass
    session = await start_session(store)
    learn(session)
    await session.pause()
    assert any("not closed" in one for one in (await reopen(session)).notices)
    assert (await Session.load("s0", a_spec(memory=True), store=store)).notices == ()


# When it is saved


async def test_a_turn_saves_what_was_learned_before_its_end(store: Any) -> None:
    """Before it, nothing of it is kept; after it, everything."""
    session = await start_session(store)
    learn(session)
    session.propose("Waiting.", importance=0.3)
    assert (await reopen(session)).short_term.context.size == 0
    await session.run("Hello.")
    for one in (session, await reopen(session)):
        assert one.context.to_dict() == {"framework": "Phoenix"}
        assert [item.content for item in one.short_term.pending.list_implicit()] == ["Waiting."]
    assert (await reopen(session)).short_term.context == session.short_term.context


@pytest.mark.parametrize("how", ["promote", "pause", "add_message"])
async def test_promotion_pause_and_messages_save_as_well(store: Any, how: str) -> None:
    """Each keeps what was noted until then."""
    session = await start_session(store)
    learn(session)
    await getattr(session, how)(*["user", "Hello."][: 2 * (how == "add_message")])
    assert (await reopen(session)).context.to_dict() == {"framework": "Phoenix"}


async def test_a_clean_end_is_not_told(store: Any) -> None:
    """A session that was closed, in either way, has nothing to tell."""
    async with make_session(store) as session:
        learn(session)
        assert session.notices == ()
    async with make_session(store) as session:
        assert session.notices == ()
        await session.close()
        await session.close()
    async with make_session(store) as session:
        assert (session.notices, session.context.to_dict()) == ((), {"framework": "Phoenix"})


async def test_a_turn_is_over_also_where_its_notes_cannot_be_saved(store: Any) -> None:
    """The answer is given with a notice, and a later turn saves what this one could not."""
    ill = FailingStore(store)
    session = await start_session(ill)
    learn(session)
    ill.calls = {"save notes"}
    result = await session.run("Hello.")
    assert result.content == "You said Hello."
    assert any("not saved" in one for one in result.notices)
    ill.calls = set()
    await session.run("Hello again.")
    assert (await reopen(session)).context.to_dict() == {"framework": "Phoenix"}


# Between two writes


async def test_a_crash_after_the_write_makes_nothing_twice(store: Any) -> None:
    """Where a memory was written and the notes were not, the next program finds it again."""
    ill = FailingStore(store)
    session = await start_session(ill)
    learn(session)
    session.propose("Waiting.", importance=0.9)
    await session.add_message("user", "Hello.")
    ill.calls = {"save notes"}
    with pytest.raises(StoreFailed):
        await session.promote()
    before = await all_entries(store)
    assert len(before) == 2
    async with make_session(store) as later:
        await later.promote()
        assert later.short_term.pending.size == 0
        await later.promote()
    assert [(one.id, one.rev) for one in await all_entries(store)] == [(one.id, 1) for one in before]


async def test_a_crash_while_a_value_changes_leaves_one(store: Any) -> None:
    """The new value was written over the old one, and the notes still know the old one only."""
    ill = FailingStore(store)
    session = await start_session(ill)
    for value in ("A", "B"):
        learn(session, value)
        await session.add_message("user", f"Now it is {value}.")
        ill.calls = {"save notes"} if value == "B" else set()
        if value == "B":
            with pytest.raises(StoreFailed):
                await session.promote()
        else:
            await session.promote()
    async with make_session(store) as later:
        assert later.context.peek("framework") == "B"
        await later.promote()
        assert await live(store) == ["framework: B"]
        learn(later, "C")
        await later.promote()
        assert await live(store) == ["framework: C"]


async def test_a_crash_that_lost_the_new_value_leaves_one_too(store: Any) -> None:
    """Where the notes never heard of the value that was promoted last, the next one replaces it."""
    ill = FailingStore(store)
    session = await start_session(ill)
    learn(session, "A")
    await session.promote()
    learn(session, "B")
    ill.calls = {"save notes"}
    with pytest.raises(StoreFailed):
        await session.promote()
    async with make_session(store) as later:
        learn(later, "C")
        await later.promote()
        assert await live(store) == ["framework: C"]


async def test_what_could_not_be_saved_is_saved_by_the_next_try(store: Any) -> None:
    """The same program goes on after the store is well again."""
    ill = FailingStore(store)
    async with make_session(ill) as session:
        learn(session)
        ill.calls = {"save notes"}
        with pytest.raises(StoreFailed):
            await session.promote()
        ill.calls = set()
        await session.promote()
        assert (await reopen(session)).promotion_stats.total_promoted == 1
    assert len(await all_entries(store)) == 1


# Two programs


async def test_what_two_programs_note_is_all_there(store: Any) -> None:
    """Whoever saves second reads what the first one wrote, and adds its own."""
    one = await start_session(store)
    other = await reopen(one, model=talker())
    one.context.put("a", 1)
    one.propose("One.", importance=0.3)
    other.context.put("b", 2)
    other.propose("Two.", importance=0.3)
    await one.pause()
    await other.pause()
    await one.pause()
    one.context.put("c", 3)
    await one.pause()
    read = await reopen(one)
    assert read.context.to_dict() == {"a": 1, "b": 2, "c": 3}
    assert {item.content for item in read.short_term.pending.list_implicit()} == {"One.", "Two."}


async def test_two_programs_promote_a_value_once(store: Any) -> None:
    """Both hold the same value, and there is one memory of it."""
    one = await start_session(store)
    learn(one)
    item = one.propose("Waiting.", importance=0.9)
    await one.add_message("user", "Hello.")
    other = await reopen(one, model=talker())
    await one.promote()
    await other.promote()
    assert await live(store) == ["Waiting.", "framework: Phoenix"]
    assert len(await all_entries(store)) == 2
    assert (await reopen(one)).short_term.pending.get(item.id) is None


async def test_two_programs_that_change_a_value_leave_one(store: Any) -> None:
    """What the second one notes replaces what the first one promoted meanwhile."""
    one = await start_session(store)
    learn(one, "A")
    await one.promote()
    other = await reopen(one, model=talker())
    learn(other, "B")
    await other.promote()
    learn(one, "C")
    await one.promote()
    assert await live(store) == ["framework: C"]


# A block that ends early


class Oops(Exception):
    """What a program raises."""


async def learn_and_fail(store: Any, id: str = "s1", value: str = "Phoenix", *, broken: Any = None) -> None:
    """Learn something and raise."""
    async with make_session(store, id) as session:
        learn(session, value)
        if broken is not None:
            broken.calls = {"save notes"}
        raise Oops("mine")


async def test_an_error_comes_out_as_it_is(store: Any) -> None:
    """Not within a group, and what was learned is kept and promoted."""
    with pytest.raises(Oops) as raised:
        await learn_and_fail(store)
    assert type(raised.value) is Oops
    assert await live(store) == ["framework: Phoenix"]
    async with make_session(store) as session:
        assert (session.notices, session.context.to_dict()) == ((), {"framework": "Phoenix"})


async def test_an_error_comes_out_although_the_store_is_broken(store: Any) -> None:
    """What went wrong first is what is heard; without it, the store's error is."""
    ill = FailingStore(store)
    with pytest.raises(Oops):
        await learn_and_fail(ill, broken=ill)
    ill.calls = set()
    session = await make_session(ill, "s2").__aenter__()
    learn(session)
    ill.calls = {"save notes"}
    with pytest.raises(StoreFailed):
        await session.__aexit__(None, None, None)


async def test_a_cancelled_block_is_saved(store: Any) -> None:
    """Who stops waiting loses nothing of what was learned."""
    with anyio.move_on_after(30) as scope:
        async with make_session(store) as session:
            learn(session)
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    assert await live(store) == ["framework: Phoenix"]
    async with make_session(store) as session:
        assert (session.notices, session.context.to_dict()) == ((), {"framework": "Phoenix"})


async def test_sessions_can_lie_within_each_other(store: Any) -> None:
    """The inner one ends with its error, and the outer one goes on."""
    async with make_session(store, "outer") as outer:
        learn(outer, "A")
        with pytest.raises(Oops):
            await learn_and_fail(store, "inner", "B")
        assert await outer.chat("Hello.") == "You said Hello."
        assert await live(store) == ["framework: B"]
    assert await live(store, session_id="outer") == ["framework: A"]


async def test_many_sessions_learn_at_once(store: Any) -> None:
    """A hundred of them, with promotion in the background, each with its own memory."""

    async def converse(at: int) -> None:
        async with make_session(store, f"s{at}", promotion=PromotionPolicy(every_ms=60_000)) as session:
            learn(session, at)
            await session.add_message("user", f"This is {at}.")
            await session.promote()
            assert session.context.to_dict() == {"framework": at}

    with anyio.fail_after(60):
        async with anyio.create_task_group() as group:
            for at in range(MANY):
                group.start_soon(converse, at)
    found = {one.session_id: one.content for one in await all_entries(store)}
    assert found == {f"s{at}": f"framework: {at}" for at in range(MANY)}


async def test_a_fork_understands_what_the_first_one_did(store: Any) -> None:
    """It starts with the same working context, and each goes its own way from there."""
    async with make_session(store) as session:
        learn(session)
        await session.run("Hello.")
        fork = await session.fork("s2")
        fork.context.put("framework", "Rails")
        await fork.close()
        assert session.context.to_dict() == {"framework": "Phoenix"}
        assert (await reopen(fork)).context.to_dict() == {"framework": "Rails"}


# What makes no sense


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"id": ""}, "session_id"),
        ({"id": "a\0b"}, "session_id"),
        ({"project_id": ""}, "project_id"),
        ({"project_id": 7}, "project_id"),
        ({"promotion": {"threshold": 2}}, "threshold"),
        ({"promotion": "often"}, "promotion"),
        ({"token_budget": {"total": 1}}, "total"),
        ({"token_budget": 7}, "token budget|token_budget"),
        ({"extractor": "regex"}, "extractor"),
        ({"on_signal": 7}, "on_signal"),
        ({"nonsense": 1}, "nonsense"),
    ],
)
async def test_a_session_that_makes_no_sense_is_not_begun(
    store: Any, options: dict[str, Any], field: str
) -> None:
    """The field is named, and nothing is written."""
    with pytest.raises(Invalid, match=field):
        async with make_session(store, **options):
            raise AssertionError("it was begun")
    assert await store.changes("default") == []
