"""An undone promotion leaves everything as it was."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.promotion import (
    NOW,
    SCOPE,
    FailingStore,
    all_entries,
    fact,
    item,
    live_contents,
    marks_after,
    plan_of,
    short_term,
)

from omoide import Entry, RecallRequest, WriteRequest, clock
from omoide.errors import StoreFailed
from omoide.promotion import PromotionRun, promote, undo
from omoide.stores import open_store
from omoide.testing import FrozenClock


async def run(store: Any, **given: Any) -> PromotionRun:
    """Promote what is given, and give the run."""
    marks = given.pop("marks", {})
    with clock.override(FrozenClock(NOW)):
        done = await promote(store, plan_of(short_term(**given), marks=marks))
    assert done.run is not None
    return done.run


async def recall_contents(store: Any, query: str) -> list[str]:
    """What memory says to this."""
    found = await store.recall(RecallRequest.for_scope(SCOPE, query))
    return [one.content for one in found.entries]


async def test_what_a_run_made_is_forgotten_again(store: Any) -> None:
    """Its memories are not recalled any more, and it is told which ones."""
    await run(store, waiting=[item("old", content="Tea is at four.")])
    made = await run(
        store, context={"framework": fact("Phoenix")}, waiting=[item("w", content="Cake is at five.")]
    )
    signals, taken = await undo(store, made, SCOPE)
    assert await live_contents(store) == ["Tea is at four."]
    assert await recall_contents(store, "Cake at five, Phoenix framework") == ["Tea is at four."]
    assert {one.id for one in taken} == {one.id for one in made.promoted}
    assert [(one.type, one.data["by"]) for one in signals] == [("memory.superseded", None)] * 2
    assert {one.data["id"] for one in signals} == {one.id for one in made.promoted}


async def test_what_was_replaced_counts_again(store: Any) -> None:
    """The memory of the value before is live once more."""
    first = await run(store, context={"framework": fact("A")})
    second = await run(store, context={"framework": fact("B")}, marks=marks_after(first))
    await undo(store, second, SCOPE)
    assert await live_contents(store) == ["framework: A"]
    (old,) = [one for one in await all_entries(store) if one.is_live(NOW)]
    assert (old.superseded_by, old.superseded_at, old.superseded_reason) == (None, None, None)


@given(st.lists(st.sampled_from("ABC"), min_size=1, max_size=6), st.integers(1, 6))
async def test_taking_back_the_last_runs_leads_to_where_one_was(values: list[str], back: int) -> None:
    """After some changes of a value, the last of them undone one by one, what counted then counts."""
    async with open_store("memory://", embedder="none") as store:
        marks: Any = {}
        runs: list[PromotionRun] = []
        seen: list[list[str]] = [[]]
        for value in values:
            runs.append(await run(store, context={"framework": fact(value)}, marks=marks))
            marks = marks_after(runs[-1], marks)
            seen.append(await live_contents(store))
        for one in runs[: -back - 1 : -1]:
            await undo(store, one, SCOPE)
        assert await live_contents(store) == seen[max(len(values) - back, 0)]


async def test_what_was_there_before_the_run_stays(store: Any) -> None:
    """A memory that the run only found again is not taken back with it."""
    await run(store, waiting=[item("one", content="We use tabs.")])
    again = await run(store, waiting=[item("two", content="We use tabs."), item("three")])
    _, taken = await undo(store, again, SCOPE)
    assert [one.id for one in taken] == ["three"]
    assert await live_contents(store) == ["We use tabs."]


async def test_what_somebody_replaced_since_stays_as_it_is(store: Any) -> None:
    """A memory that has a successor is left alone, and so is the successor."""
    made = await run(store, waiting=[item("w"), item("v")])
    newer = Entry(id="newer", content="By hand.", **_owner())
    await store.write(WriteRequest(entry=newer, supersedes="w"))
    _, taken = await undo(store, made, SCOPE)
    assert [one.id for one in taken] == ["v"]
    assert await live_contents(store) == ["By hand."]
    assert (await store.get("w", SCOPE)).superseded_by == "newer"


async def test_what_somebody_rewrote_since_stays_as_it_is(store: Any) -> None:
    """A memory with other words under its id is no longer what the run made."""
    made = await run(store, waiting=[item("w")])
    kept = await store.get("w", SCOPE)
    await store.write(WriteRequest(entry=kept.replace(content="Corrected by hand.")))
    await undo(store, made, SCOPE)
    assert await live_contents(store) == ["Corrected by hand."]


async def test_what_replaced_something_else_since_is_not_brought_back(store: Any) -> None:
    """Where the value before was given another successor, it stays superseded."""
    first = await run(store, context={"framework": fact("A")})
    second = await run(store, context={"framework": fact("B")}, marks=marks_after(first))
    old = first.promoted[0].id
    await store.write(WriteRequest(entry=Entry(id="newer", content="By hand.", **_owner())))
    await store.reinstate(old, SCOPE)
    await store.supersede(old, SCOPE, by="newer")
    await undo(store, second, SCOPE)
    assert await live_contents(store) == ["By hand."]


async def test_what_is_gone_hinders_nothing(store: Any) -> None:
    """A memory that was erased is passed over."""
    made = await run(store, waiting=[item("w"), item("v")])
    await store.erase(SCOPE, id="w")
    _, taken = await undo(store, made, SCOPE)
    assert [one.id for one in taken] == ["v"]
    assert await live_contents(store) == []


@pytest.mark.parametrize("broken", ["supersede", "restore"])
async def test_a_failed_undo_can_be_tried_again(store: Any, broken: str) -> None:
    """Where the store fails halfway, the next try brings back what was replaced."""
    first = await run(store, context={"framework": fact("A")})
    second = await run(store, context={"framework": fact("B")}, marks=marks_after(first))
    ill = FailingStore(store)
    ill.calls = {broken}
    with pytest.raises(StoreFailed):
        await undo(ill, second, SCOPE)
    ill.calls = set()
    await undo(ill, second, SCOPE)
    assert await live_contents(store) == ["framework: A"]


async def test_a_second_try_knows_what_the_first_took_back(store: Any) -> None:
    """What was forgotten before the store failed is among what was taken back in the end."""
    made = await run(store, waiting=[item("v", 0.7), item("w", 0.9)])
    ill = FailingStore(store)
    ill.calls = {"supersede w"}
    with pytest.raises(StoreFailed):
        await undo(ill, made, SCOPE)
    ill.calls = set()
    _, taken = await undo(ill, made, SCOPE)
    assert {one.id for one in taken} == {"v", "w"}
    assert await live_contents(store) == []


def _owner() -> dict[str, Any]:
    return {"agent_id": "ada", "session_id": "s1", "project_id": "shop"}
