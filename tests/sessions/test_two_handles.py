"""Tests of two handles of one session, which share its memory."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.sessions import WatchedStore, a_spec, reopen, talker

from omoide import Scope, clock
from omoide.errors import NotFound, SessionBusy
from omoide.promotion import PromotionPolicy
from omoide.sessions import Session
from omoide.testing import ScriptedModel

NEVER = PromotionPolicy(enabled=False)


def make_session(store: Any, **options: Any) -> Session:
    """A session to be entered."""
    return Session.open(a_spec(memory=True), "s1", **{"store": store, "model": talker(), **options})


def learn(session: Session, value: Any = "Phoenix", key: str = "framework") -> None:
    """Put a value that is good enough to be promoted."""
    session.context.put(key, value, source="tool", confidence=0.9, memory_type="fact")


async def live(store: Any) -> list[str]:
    """What counts now, in words."""
    now, found = clock.now(), await store.list_entries(Scope())
    return sorted(one.content for one in found if one.is_live(now))


async def test_one_value_of_a_key_counts_whoever_promotes(store: Any) -> None:
    """A handle that was opened before the other promoted still replaces what that made."""
    async with make_session(store, promotion=NEVER) as one, make_session(store, promotion=NEVER) as other:
        for at, session in enumerate([one, other, one, other, other, one]):
            learn(session, at)
            await session.promote()
            assert await live(store) == [f"framework: {at}"]
        assert [len(run.promoted) for run in one.promotions] == [1] * 6


async def test_what_the_other_promoted_is_not_promoted_again(store: Any) -> None:
    """The same value, put by both, is one memory, and the second run makes nothing."""
    async with make_session(store, promotion=NEVER) as one, make_session(store, promotion=NEVER) as other:
        for session in (one, other):
            learn(session)
            await session.promote()
        assert len(await store.list_entries(Scope())) == 1
        assert other.promotion_stats.total_promoted == 1


@pytest.mark.parametrize("own", [{}, {"own": "mine"}], ids=["idle", "busy"])
@pytest.mark.parametrize("call", ["chat", "promote", "undo"])
async def test_what_the_other_noted_is_seen(store: Any, call: str, own: dict[str, str]) -> None:
    """After a turn, a promotion or an undo a handle knows what the other put, and keeps its own."""
    async with make_session(store, promotion=NEVER) as one:
        learn(one, "old", "before")
        await one.promote()
        async with make_session(store, promotion=NEVER) as other:
            learn(other)
            await other.chat("Hello.")
            for key, value in own.items():
                learn(one, value, key)
            calls: dict[str, Any] = {
                "chat": lambda: one.chat("Hi."),
                "promote": one.promote,
                "undo": one.undo_promotion,
            }
            await calls[call]()
            expected = {"before": "old", "framework": "Phoenix", **own}
            assert one.context.to_dict() == expected
            assert (await reopen(one)).context.to_dict() == expected


async def test_a_run_of_the_other_can_be_taken_back(store: Any) -> None:
    """The last promotion is the last of both, and whoever takes it back leaves it so for the other."""
    async with make_session(store, promotion=NEVER) as one, make_session(store, promotion=NEVER) as other:
        learn(one, "A")
        await one.promote()
        learn(other, "B")
        await other.promote()
        undone = await one.undo_promotion()
        assert undone.id == other.promotions[-1].id
        assert await live(store) == ["framework: A"]
        with pytest.raises(NotFound):
            await other.undo_promotion(undone.id)


async def test_leaving_while_the_other_runs_loses_nothing(store: Any) -> None:
    """What was noted and decided is kept at once, and promoted by whoever has the session."""
    asked, go = anyio.Event(), anyio.Event()

    async def slowly(request: Any) -> str:
        asked.set()
        await go.wait()
        return "Done."

    async with make_session(store) as one:
        other = await reopen(one, model=ScriptedModel(slowly))
        async with anyio.create_task_group() as group:
            group.start_soon(other.run, "Take your time.")
            await asked.wait()
            learn(one)
            decided = one.propose("We use tabs.", type="convention", decided=True)
            with pytest.raises(SessionBusy):
                await one.promote()
            await one.close()
            kept = await reopen(one)
            assert kept.context.to_dict() == {"framework": "Phoenix"}
            assert [item.id for item in kept.short_term.pending.list_agent_decisions()] == [decided.id]
            assert await live(store) == []
            go.set()
    assert await live(store) == ["We use tabs.", "framework: Phoenix"]


@pytest.mark.parametrize("call", ["promote", "pause", "add_message", "close"])
async def test_what_is_erased_meanwhile_stays_erased(store: Any, call: str) -> None:
    """Erased just before its notes are saved, a session leaves none of them behind."""
    watched = WatchedStore(store)
    session = await make_session(watched).__aenter__()
    await session.chat("Hello.")
    learn(session, "a secret")

    async def erase(name: str, args: Any) -> None:
        if name == "save notes":
            watched.before = None
            await store.erase(Scope(agent_id="ada", session_id="s1"))

    watched.before = erase
    if call == "close":
        await session.close()
    elif call == "add_message":
        with pytest.raises(NotFound, match="it was erased"):
            await session.add_message("user", "Hi.")
    else:
        with pytest.raises(NotFound, match="it was erased"):
            await getattr(session, call)()
    assert "save notes" in watched.calls
    await session.close()
    for kind in ("notes", "session"):
        assert await store.load(kind, "s1", Scope()) is None
    assert await live(store) == []
    async with make_session(store) as new:
        assert new.context.to_dict() == {}
