"""A query by type returns all memories of it, newest first, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.longterm import SHOP, a_store, keep

from omoide.core import MEMORY_TYPES
from omoide.core.entry import ROOT_TYPE, with_subtypes
from omoide.errors import Invalid, NotFound
from omoide.longterm import queries
from omoide.testing import reproducible


async def one_of_each(store: Any, *, confidence: float = 1.0) -> list[str]:
    """A memory of every type, each a second after the other; the types in that order."""
    with reproducible() as clock:
        for type in MEMORY_TYPES:
            clock.advance(1_000)
            await keep(store, type, type=type, confidence=confidence)
    return [*MEMORY_TYPES]


def ids(entries: list[Any]) -> list[str]:
    return [entry.id for entry in entries]


async def test_all_types_are_listed(store: Any) -> None:
    """Nothing that can be written is left out of everything, whatever its type."""
    written = await one_of_each(store)
    assert ids(await queries.query_all(store, SHOP)) == written[::-1]


@pytest.mark.parametrize("type", ["decision", "convention", "error", "fact", ROOT_TYPE])
async def test_a_type_stands_for_those_that_refine_it(store: Any, type: str) -> None:
    """Decisions are all decisions, also architectural ones; asked for exactly, only those of the name."""
    await one_of_each(store)
    found = ids(await queries.query_by_type(store, type, SHOP, limit=100))
    assert {*found} == {*with_subtypes(type)} - {ROOT_TYPE}
    exact = ids(await queries.query_by_type(store, type, SHOP, limit=100, subtypes=False))
    assert exact == ([] if type == ROOT_TYPE else [type])


async def test_filters_come_before_limits(store: Any) -> None:
    """A limit counts what passes: unsure and superseded memories take nobody's place, the newest win."""
    with reproducible() as clock:
        for at in range(6):
            clock.advance(1_000)
            await keep(store, f"m{at}", type="fact", confidence=0.9 if at % 2 else 0.2)
    await store.supersede("m5", SHOP)
    assert ids(await queries.query_by_type(store, "fact", SHOP, limit=2, min_confidence=0.5)) == ["m3", "m1"]
    assert ids(await queries.query_all(store, SHOP, limit=1, min_confidence=0.5)) == ["m3"]
    assert ids(await queries.query_by_type(store, "fact", SHOP, limit=2)) == ["m4", "m3"]


async def test_an_answer_has_an_end_of_its_own(store: Any) -> None:
    """The 20 newest of a type, the 50 newest of everything; whoever wants more says so."""
    with reproducible() as clock:
        for at in range(55):
            clock.advance(1_000)
            await keep(store, f"m{at:02}", type="fact")
    newest = [f"m{at:02}" for at in reversed(range(55))]
    assert ids(await queries.query_by_type(store, "fact", SHOP)) == newest[:20]
    assert ids(await queries.query_all(store, SHOP)) == newest[:50]
    assert ids(await queries.query_all(store, SHOP, limit=1_000)) == newest
    assert await queries.count(store, SHOP) == 55


async def test_what_is_unsure_is_listed_unless_a_floor_is_named(store: Any) -> None:
    """Nothing is left out for its confidence by default, and what is as sure as the floor passes it."""
    for at, confidence in enumerate((0.0, 0.3, 1.0)):
        await keep(store, f"m{at}", type="fact", confidence=confidence)
    assert len(await queries.query_by_type(store, "fact", SHOP)) == 3
    assert len(await queries.query_all(store, SHOP)) == 3
    assert len(await queries.query_all(store, SHOP, min_confidence=0.3)) == 2


async def test_an_exact_type_is_found_behind_many_that_refine_it(store: Any) -> None:
    """Asking exactly goes on until enough were found."""
    with reproducible() as clock:
        for at in range(10):
            clock.advance(1_000)
            await keep(store, f"m{at}", type="decision" if at < 2 else "architectural_decision")
    found = await queries.query_by_type(store, "decision", SHOP, limit=2, subtypes=False)
    assert ids(found) == ["m1", "m0"]


async def test_superseded_memories_are_left_out_unless_asked_for(store: Any) -> None:
    """What was forgotten is in no answer, by type or not, until somebody asks for it."""
    await keep(store, "old", type="fact")
    await keep(store, "new", type="fact")
    await queries.supersede(store, "old", SHOP, "new", reason="measured again")
    for ask in (
        queries.query_all,
        lambda *args, **how: queries.query_by_type(args[0], "fact", args[1], **how),
    ):
        assert ids(await ask(store, SHOP)) == ["new"]
        assert {*ids(await ask(store, SHOP, include_superseded=True))} == {"old", "new"}
    old = await queries.get(store, "old", SHOP)
    assert (old.superseded_by, old.superseded_reason) == ("new", "measured again")


async def test_stale_memories_are_left_out_unless_asked_for(store: Any) -> None:
    """What rests on something forgotten is in no answer until somebody asks for it."""
    await keep(store, "premise")
    await keep(store, "conclusion", type="fact", on=["premise"])
    await queries.supersede(store, "premise", SHOP)
    assert await queries.query_by_type(store, "fact", SHOP) == []
    (found,) = await queries.query_by_type(store, "fact", SHOP, include_stale=True)
    assert found.stale


async def test_superseding_without_a_successor_deletes_softly(store: Any) -> None:
    """A memory replaced by nothing is marked as deleted, stays there by id, and counts as superseded."""
    await keep(store, "one")
    await queries.supersede(store, "one", SHOP)
    assert (await queries.get(store, "one", SHOP)).superseded_by == "deleted"
    assert await queries.count(store, SHOP) == 0
    assert await queries.count(store, SHOP, include_superseded=True) == 1
    with pytest.raises(NotFound):
        await queries.supersede(store, "nothing", SHOP)


@pytest.mark.parametrize(
    "other", [{"agent_id": "eve"}, {"session_id": "s2"}, {"project_id": "farm"}, {"namespace": "inc"}]
)
async def test_what_belongs_to_others_is_not_found(store: Any, other: dict[str, str]) -> None:
    """By id and by type, a scope only gives what it holds, whatever it is that differs."""
    mine = SHOP.replace(session_id="s1")
    await keep(store, "theirs", type="fact", scope=mine.replace(**other))
    assert await queries.query_all(store, mine) == []
    assert await queries.query_by_type(store, "fact", mine) == []
    assert await queries.count(store, mine, include_superseded=True) == 0
    with pytest.raises(NotFound):
        await queries.get(store, "theirs", mine)
    with pytest.raises(NotFound):
        await queries.supersede(store, "theirs", mine)


async def test_using_a_memory_counts_up(store: Any) -> None:
    """Each use adds one and moves the time of the last, and ids of nothing do no harm."""
    await keep(store, "one")
    with reproducible() as clock:
        for at in (5_000, 9_000):
            clock.at = at
            await queries.record_access(store, ["one", "nothing"], SHOP)
    access = await store.access("one", SHOP)
    assert (access.count, access.last) == (2, 9_000)
    await queries.record_access(ListStore(), ["one"], SHOP)


async def test_bad_questions_are_refused(store: Any) -> None:
    """Unknown types, limits of none, impossible confidences and stores that cannot list are refused."""
    with pytest.raises(NotFound, match="lesson_learned"):
        await queries.query_by_type(store, "gossip", SHOP)
    with pytest.raises(Invalid, match="limit"):
        await queries.query_all(store, SHOP, limit=0)
    with pytest.raises(Invalid, match="min_confidence"):
        await queries.query_all(store, SHOP, min_confidence=1.5)
    with pytest.raises(Invalid, match="cannot list"):
        await queries.query_all(ListStore(), SHOP)
    with pytest.raises(Invalid, match="cannot count"):
        await queries.count(ListStore(), SHOP)


Kept = tuple[str | None, float, bool]


@given(
    st.lists(st.tuples(st.sampled_from([None, *MEMORY_TYPES]), st.floats(0, 1), st.booleans()), max_size=12),
    st.sampled_from(MEMORY_TYPES),
    st.floats(0, 1),
    st.integers(1, 5),
)
async def test_a_list_is_what_one_would_pick_by_hand(
    written: list[Kept], type: str, floor: float, limit: int
) -> None:
    """Whatever is kept, the answer is the newest of those that pass, cut to the limit."""
    async with a_store("memory") as store:
        expected: list[str] = []
        with reproducible() as clock:
            for at, (kind, confidence, forgotten) in enumerate(written):
                clock.advance(1_000)
                await keep(store, f"m{at}", type=kind, confidence=confidence)
                if forgotten:
                    await store.supersede(f"m{at}", SHOP)
                elif kind in with_subtypes(type) and confidence >= floor:
                    expected.insert(0, f"m{at}")
        found = await queries.query_by_type(store, type, SHOP, min_confidence=floor, limit=limit)
        assert ids(found) == expected[:limit]
