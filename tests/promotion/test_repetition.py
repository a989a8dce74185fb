"""A repeated, interrupted or undone promotion stores each memory once."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import anyio
import pytest
from tests.support.promotion import (
    NOW,
    SCOPE,
    FailingStore,
    fact,
    item,
    live_contents,
    marks_after,
    plan_of,
    short_term,
)
from tests.support.sessions import WatchedStore, a_spec, reopen, talker

from omoide import Scope, Signal, WriteRequest, WriteResult, clock
from omoide.errors import StoreFailed
from omoide.promotion import PromotionPolicy, PromotionRun, promote, undo
from omoide.sessions import Session
from omoide.stores import AsyncStore
from omoide.testing import FrozenClock, eventually

NEVER = PromotionPolicy(enabled=False)


def make_session(store: Any, **options: Any) -> Session:
    """A session to be entered."""
    return Session.open(a_spec(memory=True), "s1", **{"store": store, "llm": talker(), **options})


def learn(session: Session, value: Any) -> None:
    """Put a value that is good enough to be promoted."""
    session.context.put("framework", value, source="tool", confidence=0.9, memory_type="fact")


async def counts(store: Any) -> list[str]:
    """What is live now, in words."""
    now, found = clock.now(), await store.list_entries(Scope())
    return sorted(one.content for one in found if one.is_live(now))


# Undone in any order


@pytest.mark.parametrize("order", [*permutations(range(3))], ids=str)
async def test_when_all_runs_are_undone_nothing_of_them_counts(store: Any, order: tuple[int, ...]) -> None:
    """In whatever order: what a run made does not come back with the run that replaced it."""
    async with make_session(store, promotion=NEVER) as session:
        runs = []
        for value in "ABC":
            learn(session, value)
            done = await session.promote()
            assert done.run is not None
            runs.append(done.run)
        for at in order:
            await session.undo_promotion(runs[at].id)
        assert await counts(store) == []
        assert all(one.undone_at is not None for one in session.promotions)


async def test_what_other_undone_runs_made_does_not_come_back(store: Any) -> None:
    """An undo brings back what a run replaced, unless that is gone for good."""
    with clock.override(FrozenClock(NOW)):
        runs: list[PromotionRun] = []
        marks: Any = {}
        for value in "AB":
            done = await promote(store, plan_of(short_term({"framework": fact(value)}), marks=marks))
            assert done.run is not None
            runs.append(done.run)
            marks = marks_after(done.run, marks)
        (old,) = runs[0].promoted
        await undo(store, runs[1], SCOPE, undone={old.id: old})
        assert await live_contents(store) == []
        await undo(store, runs[1], SCOPE)
        assert await live_contents(store) == ["framework: A"]


# Interrupted


@pytest.mark.parametrize("elsewhere", [True, False])
async def test_an_interrupted_promotion_is_finished_by_the_next(store: Any, elsewhere: bool) -> None:
    """What was written before the notes were saved is the next run's own: it counts, tells and undoes it."""
    ill = FailingStore(store)
    heard: list[Signal] = []
    session = await make_session(ill, promotion=NEVER, on_signal=heard.append).__aenter__()
    learn(session, "A")
    decided = session.propose("We use tabs.", decided=True)
    await session.add_message("user", "Go on.")
    ill.calls = {"save notes"}
    with pytest.raises(StoreFailed):
        await session.promote()
    assert await counts(store) == ["We use tabs.", "framework: A"]
    ill.calls = set()
    if elsewhere:
        await session._stop_background()  # the process dies here
        session = await reopen(session, promotion=NEVER, on_signal=heard.append)
    heard.clear()
    done = await session.promote()
    if elsewhere:
        assert done.run is not None
        assert {one.made for one in done.run.promoted} == {True}
        assert decided.id in {one.id for one in done.run.promoted}
        assert [one.type for one in heard] == ["memory.stored", "memory.stored", "memory.promoted"]
    assert session.promotion_stats.total_promoted == 2
    assert len(await store.list_entries(Scope())) == 2
    await session.undo_promotion()
    assert await counts(store) == []
    await session.close()


class Hanging(AsyncStore):
    """A store that does not answer after its first write."""

    def __init__(self, store: AsyncStore) -> None:
        super().__init__(store.sync, store.url)
        self.written = anyio.Event()

    async def write(self, request: WriteRequest) -> WriteResult:
        result = await super().write(request)
        if not self.written.is_set():
            self.written.set()
            await anyio.sleep_forever()
        return result


async def test_leaving_in_the_midst_of_a_promotion_finishes_it(store: Any) -> None:
    """The run in the background has written and not saved: the last one counts it, and can be undone."""
    slow = Hanging(store)
    async with make_session(slow, promotion=PromotionPolicy(every_ms=5)) as session:
        session.propose("We use tabs.", decided=True)
        await slow.written.wait()
        assert await counts(store) == ["We use tabs."]
    async with make_session(store) as session:
        assert session.promotion_stats.total_promoted == 1
        assert [one.made for run in session.promotions for one in run.promoted] == [True]
        await session.undo_promotion()
        assert await counts(store) == []


async def test_what_an_earlier_run_made_is_not_this_runs_own(store: Any) -> None:
    """Found again by a later run, a memory is neither counted nor undone with it."""
    with clock.override(FrozenClock(NOW)):
        plan = plan_of(short_term(waiting=[item("w")]))
        first = await promote(store, plan)
        assert first.run is not None
        later = await promote(store, plan, promoted_ids={one.id for one in first.run.promoted})
        assert later.run is not None
        assert [one.made for one in later.run.promoted] == [False]
        await undo(store, later.run, SCOPE)
        assert await live_contents(store) == ["This is w."]


# Decided again


@pytest.mark.parametrize("decided", [True, False])
async def test_what_was_undone_is_promoted_when_it_is_proposed_again(store: Any, decided: bool) -> None:
    """By itself it stays back; who proposes it again wants it, and it is the same memory."""
    async with make_session(store, promotion=NEVER) as session:
        made = session.propose("We use tabs.", type="convention", importance=0.9, decided=decided)
        await session.promote()
        await session.undo_promotion()
        held = await session.promote()
        assert [one.verdict for one in held.plan.candidates] == ["held"]
        assert await counts(store) == []
        session.propose("We use tabs.", type="convention", importance=0.9, decided=decided, id=made.id)
        done = await session.promote()
        assert [one.origin for one in done.plan.to_promote] == ["decision" if decided else "pending"]
        assert await counts(store) == ["We use tabs."]
        (kept,) = await store.list_entries(Scope())
        assert kept.id == made.id
        await session.undo_promotion()
        assert await counts(store) == []


async def test_what_stood_before_undone_runs_comes_back(store: Any) -> None:
    """When the runs after one are undone, in whatever order, the value of that one counts again."""
    for order in ((1, 2), (2, 1)):
        async with make_session(store, promotion=NEVER) as session:
            runs = []
            for value in (f"1{order}", f"2{order}", f"3{order}"):
                session.context.put("framework", value, source="tool", confidence=0.9)
                done = await session.promote()
                assert done.run is not None
                runs.append(done.run)
            for at in order:
                await session.undo_promotion(runs[at].id)
            assert await counts(store) == [f"framework: 1{order}"]


# Errors that are not ours


async def test_a_foreign_error_is_a_failure_like_any_other(store: Any) -> None:
    """Whatever a store raises for one memory is named, and the others are kept."""

    async def before(name: str, args: Any) -> None:
        if name == "write" and args[0].entry.id == "bad":
            raise ZeroDivisionError("by zero")

    plan = plan_of(short_term(waiting=[item("bad", 0.9), item("good", 0.8)]))
    done = await promote(WatchedStore(store, before), plan)
    assert done.run is not None
    assert [(one.id, one.kind, one.problem) for one in done.run.failed] == [
        ("bad", "ZeroDivisionError", "by zero")
    ]
    assert [one.id for one in done.run.promoted] == ["good"]


async def test_the_background_goes_on_with_one_notice(store: Any) -> None:
    """What cannot be kept is tried again and again, and told once."""

    async def before(name: str, args: Any) -> None:
        if name == "write":
            raise RuntimeError("out of order")

    watched = WatchedStore(store, before)
    async with make_session(watched, promotion=PromotionPolicy(every_ms=1)) as session:
        item = session.propose("We use tabs.", decided=True)
        await eventually(lambda: watched.calls.count("write") >= 5)
        assert session.notices == (f"memory {item.id!r} waits: out of order",)
        watched.before = None
        await eventually(lambda: session.promotions)
    assert await counts(store) == ["We use tabs."]
