"""Short-term memory becomes long-term memory once, all of it, and nothing else."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.promotion import (
    NOW,
    SAID,
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

from omoide import Scope, clock
from omoide.promotion import Promotion, PromotionMark, PromotionPlan, PromotionPolicy, promote
from omoide.stores import open_store
from omoide.testing import FrozenClock

AB = st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=8)


async def promote_plan(store: Any, plan: PromotionPlan, **given: Any) -> Promotion:
    """Carry a plan out while time stands still."""
    with clock.override(FrozenClock(NOW)):
        return await promote(store, plan, **given)


async def promote_each(store: Any, values: list[str]) -> list[Promotion]:
    """Promote each value that a key has, one after the other."""
    marks: dict[str, PromotionMark] = {}
    done: list[Promotion] = []
    for value in values:
        plan = plan_of(short_term({"framework": fact(value)}), marks=marks)
        done.append(await promote_plan(store, plan))
        marks = marks_after(done[-1].run, marks)
    return done


# What is written


async def test_a_memory_is_kept_as_it_was_planned(store: Any) -> None:
    """What is promoted can be read back with all it had."""
    plan = plan_of(
        short_term(
            {"framework": fact("Phoenix 1.7", now=NOW - 7)}, [item("w", evidence=(SAID,))], [item("d")]
        ),
        origins={"framework": SAID},
    )
    done = await promote_plan(store, plan)
    kept = {one.id: one for one in await all_entries(store)}
    assert kept == {one.id: one.entry.replace(rev=1) for one in plan.to_promote}
    assert done.run is not None
    assert [one.id for one in done.run.promoted] == [one.id for one in plan.to_promote]
    assert all(one.made for one in done.run.promoted)
    assert (done.run.failed, done.run.trigger, done.run.at, done.dry_run) == ((), "demand", NOW, False)
    assert "3 promoted" in str(done)


async def test_what_is_not_chosen_is_not_written(store: Any) -> None:
    """Values without a type, unimportant ones, and those beyond the cap leave no trace."""
    memory = short_term({"mood": {"value": "fine"}}, [item("low", 0.1), item("a", 0.9), item("b", 0.8)])
    await promote_plan(store, plan_of(memory, PromotionPolicy(max_items=1)))
    assert [one.id for one in await all_entries(store)] == ["a"]


async def test_a_store_of_three_methods_is_enough() -> None:
    """Who brings a store that can only write, recall and list has promotion as well."""
    store = ListStore()
    done = await promote_plan(store, plan_of(short_term({"framework": fact("Phoenix")}, [item("w")])))
    assert done.run is not None
    assert (len(done.run.promoted), done.run.failed) == (2, ())
    assert sorted(one.content for one in store.kept) == ["This is w.", "framework: Phoenix"]


# Once


async def test_a_plan_carried_out_again_makes_nothing_new(store: Any) -> None:
    """The ids of what is promoted follow from what it is, so a second try finds the first."""
    plan = plan_of(short_term({"framework": fact("Phoenix")}, [item("w")], [item("d")]))
    first = await promote_plan(store, plan)
    kept = await all_entries(store)
    assert first.run is not None
    made = [one.id for one in first.run.promoted]
    again = await promote(store, plan, promoted_ids=made)
    assert await all_entries(store) == kept
    assert again.run is not None
    assert [one.id for one in again.run.promoted] == made
    assert not any(one.made for one in again.run.promoted)
    assert "memory.stored" not in [one.type for one in again.signals]


async def test_what_a_try_without_an_end_made_is_this_runs_own(store: Any) -> None:
    """What is there and no other run made counts as made now, so that it is told of and can be undone."""
    plan = plan_of(short_term({"framework": fact("Phoenix")}))
    await promote_plan(store, plan)
    kept = await all_entries(store)
    again = await promote(store, plan)
    assert await all_entries(store) == kept
    assert again.run is not None
    assert all(one.made for one in again.run.promoted)
    assert "memory.stored" in [one.type for one in again.signals]


async def test_a_later_try_makes_nothing_new_either(store: Any) -> None:
    """Although importance fades with time, the memory that a crash left behind is found again."""
    memory = short_term({"framework": fact("Phoenix", confidence=1.0)})
    await promote_plan(store, plan_of(memory))
    done = await promote_plan(store, plan_of(memory, now=NOW + 300_000))
    assert done.run is not None
    assert (len(done.run.promoted), done.run.failed) == (1, ())
    assert await live_contents(store) == ["framework: Phoenix"]
    assert len(await all_entries(store)) == 1


async def test_the_same_words_said_again_are_the_same_memory(store: Any) -> None:
    """An item that says what is known already becomes what is known, and is done with."""
    await promote_plan(store, plan_of(short_term(waiting=[item("one", content="We use tabs.")])))
    done = await promote_plan(store, plan_of(short_term(waiting=[item("two", content="We use tabs.")])))
    assert [one.id for one in await all_entries(store)] == ["one"]
    assert done.run is not None
    assert [(one.id, one.item, one.made) for one in done.run.promoted] == [("one", "two", False)]
    assert [one.type for one in done.signals] == ["memory.promoted"]


@given(AB)
async def test_one_value_of_a_key_counts_at_any_time(values: list[str]) -> None:
    """However often a value changes, and back again: one memory is live, and each change has its own."""
    async with open_store("memory://", embedder="none") as store:
        await promote_each(store, values)
        assert await live_contents(store) == [f"framework: {values[-1]}"]
        changes = 1 + sum(one != other for one, other in pairwise(values))
        assert len(await all_entries(store)) == changes


async def test_a_value_that_comes_back_is_a_new_memory(store: Any) -> None:
    """A, then B, then A: each memory names its successor, and the last one counts."""
    runs = [done.run for done in await promote_each(store, ["A", "B", "A"])]
    ids = [run.promoted[0].id for run in runs if run is not None]
    assert len({*ids}) == 3
    kept = {one.id: one for one in await all_entries(store)}
    assert [kept[id].superseded_by for id in ids] == [ids[1], ids[2], None]


async def test_a_changed_value_replaces_only_its_own_memory(store: Any) -> None:
    """What other keys, other sessions and others have written stays."""
    both = {"framework": fact("A"), "language": fact("Elixir")}
    first = await promote_plan(store, plan_of(short_term(both)))
    other = SCOPE.replace(session_id="s2")
    await promote_plan(store, plan_of(short_term({"framework": fact("A")}, session_id="s2"), scope=other))
    both["framework"] = fact("B")
    await promote_plan(store, plan_of(short_term(both), marks=marks_after(first.run)))
    assert await live_contents(store, Scope(session_id="s1")) == ["framework: B", "language: Elixir"]
    assert await live_contents(store, Scope(session_id="s2")) == ["framework: A"]


async def test_what_was_forgotten_meanwhile_is_not_superseded(store: Any) -> None:
    """A memory that somebody removed by hand stays as it is; the new value is kept."""
    first = await promote_plan(store, plan_of(short_term({"framework": fact("A")})))
    (kept,) = await all_entries(store)
    await store.supersede(kept.id, SCOPE, reason="by hand")
    plan = plan_of(short_term({"framework": fact("B")}), marks=marks_after(first.run))
    done = await promote_plan(store, plan)
    assert await live_contents(store) == ["framework: B"]
    assert (await store.get(kept.id, SCOPE)).superseded_reason == "by hand"
    assert done.run is not None
    assert done.run.promoted[0].supersedes is None


# What fails


async def test_what_fails_hinders_nothing_else(store: Any) -> None:
    """The others are kept, and what could not be is named with the reason."""
    memory = short_term(waiting=[item("a"), item("b"), item("c")], decided=[item("d")])
    done = await promote_plan(FailingStore(store, "This is b.", "This is d."), plan_of(memory))
    assert sorted(one.id for one in await all_entries(store)) == ["a", "c"]
    assert done.run is not None
    assert sorted(one.id for one in done.run.promoted) == ["a", "c"]
    assert sorted((one.id, one.kind) for one in done.run.failed) == [
        ("b", "StoreFailed"),
        ("d", "StoreFailed"),
    ]
    assert all("disk is full" in one.problem for one in done.run.failed)
    assert "failed    b" in str(done)


@given(st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)))
async def test_what_is_promoted_and_what_failed_is_all_there_was(there: set[int], failing: set[int]) -> None:
    """Each item is one or the other, the store holds exactly those, and a second try gets the rest."""
    async with open_store("memory://", embedder="none") as real:
        store = FailingStore(real, *(f"This is w{at}." for at in failing))
        plan = plan_of(short_term(waiting=[item(f"w{at}") for at in there]))
        done = (await promote_plan(store, plan)).run
        assert done is not None
        assert {one.id for one in done.promoted} == {f"w{at}" for at in there - failing}
        assert {one.id for one in done.failed} == {f"w{at}" for at in there & failing}
        assert {one.id for one in await all_entries(store)} == {one.id for one in done.promoted}
        store.contents = set()
        await promote_plan(store, plan)
        assert {one.id for one in await all_entries(store)} == {f"w{at}" for at in there}


async def test_a_refused_change_leaves_what_it_would_replace(store: Any) -> None:
    """Where the new value cannot be written, the old memory still counts."""
    first = await promote_plan(store, plan_of(short_term({"framework": fact("A")})))
    plan = plan_of(short_term({"framework": fact("B")}), marks=marks_after(first.run))
    done = await promote_plan(FailingStore(store, "framework: B"), plan)
    assert await live_contents(store) == ["framework: A"]
    assert done.signals == ()


# What is told


async def test_signals_say_what_happened(store: Any) -> None:
    """One for each new memory and each that was replaced, then one for all, each with whose it is."""
    first = await promote_plan(store, plan_of(short_term({"framework": fact("A")})))
    plan = plan_of(short_term({"framework": fact("B")}, [item("w", 0.1)]), marks=marks_after(first.run))
    done = await promote_plan(store, plan)
    assert first.run is not None
    assert done.run is not None
    old, new = first.run.promoted[0].id, done.run.promoted[0].id
    whose = {
        "namespace": "default",
        "user_id": None,
        "agent_id": "ada",
        "session_id": "s1",
        "project_id": "shop",
    }
    run = done.run.id
    assert [(one.type, dict(one.data)) for one in done.signals] == [
        ("memory.stored", {**whose, "id": new, "type": "fact", "run": run}),
        ("memory.superseded", {**whose, "id": old, "by": new, "run": run}),
        (
            "memory.promoted",
            {**whose, "run": run, "trigger": "demand", "ids": [new], "count": 1, "failed": 0},
        ),
    ]


async def test_signals_never_say_what_a_memory_says(store: Any) -> None:
    """Listeners hear ids and types; the words stay in the store."""
    done = await promote_plan(
        store, plan_of(short_term({"framework": fact("hush")}, [item("w", content="hush hush")]))
    )
    assert len(done.signals) == 3
    assert "hush" not in repr(done.signals)


@pytest.mark.parametrize("importance", [0.1, 0.9])
async def test_a_run_that_makes_nothing_tells_nothing(store: Any, importance: float) -> None:
    """Neither where nothing is good enough, nor where everything failed."""
    plan = plan_of(short_term(waiting=[item("w", importance)]))
    assert (await promote_plan(FailingStore(store, "This is w."), plan)).signals == ()


async def test_a_changed_value_leaves_a_notice_where_the_old_one_stays() -> None:
    """A store of three methods cannot find the former value, so both count, and the promotion says so."""
    store, before = ListStore(), plan_of(short_term({"framework": fact("Phoenix 1.6")}))
    first = await promote_plan(store, before)
    assert first.run is not None
    assert first.notices == ()
    (old,) = first.run.promoted
    assert old.mark is not None
    memory = short_term({"framework": fact("Phoenix 1.7")})
    second = await promote_plan(store, plan_of(memory, marks={"framework": old.mark}))
    assert [entry.superseded_by for entry in store.kept] == [None, None]
    assert second.notices == (
        f"the former value of 'framework', memory {old.id!r}, still counts: the store cannot find it by id",
    )
    assert second.notices[0] in str(second)


async def test_a_changed_value_leaves_no_notice_where_it_supersedes(store: Any) -> None:
    """A store that finds memories by id supersedes the former value, and there is nothing to say."""
    first = await promote_plan(store, plan_of(short_term({"framework": fact("Phoenix 1.6")})))
    assert first.run is not None
    marks = {"framework": first.run.promoted[0].mark}
    second = await promote_plan(store, plan_of(short_term({"framework": fact("Phoenix 1.7")}), marks=marks))
    assert second.notices == ()
