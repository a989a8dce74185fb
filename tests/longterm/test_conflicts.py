"""Contradictions are found, linked, and refused in strict mode."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.longterm import SHOP, a_store, connect, keep

from omoide import Entry, Scope
from omoide.errors import Contradiction, Incomplete, Invalid
from omoide.longterm import (
    check_complete,
    conflicts_of,
    find_conflicts,
    link_conflicts,
    missing_fields,
    refuse_conflicts,
)
from omoide.testing import reproducible

EVERYBODY = Scope(project_id="shop")


def about(key: str, value: Any = None) -> dict[str, Any]:
    return {"type": "decision", "metadata": {"key": key} if value is None else {"key": key, "value": value}}


async def test_the_same_key_with_another_value_is_a_contradiction(store: Any) -> None:
    """Two live memories of one project and type that give a key different values are found, older first."""
    with reproducible() as clock:
        await keep(store, "pg", "Use Postgres.", **about("database"))
        clock.advance(1_000)
        my = await keep(store, "my", "Use MySQL.", **about("database"))
    (found,) = await find_conflicts(store, SHOP)
    assert (found.ids, found.key) == (("pg", "my"), "database")
    assert "Use Postgres." in str(found)
    assert [one.ids for one in await conflicts_of(store, my)] == [("pg", "my")]


@pytest.mark.parametrize(
    "other",
    [
        about("queue"),
        {**about("database"), "type": "fact"},
        {**about("database"), "type": "architectural_decision"},
        {"type": "decision"},
        {"type": "decision", "metadata": {"key": ""}},
        {"type": "decision", "metadata": {"key": 7}},
    ],
)
async def test_nothing_else_is_one(store: Any, other: dict[str, Any]) -> None:
    """Another key, another type or no key at all makes no contradiction, whatever the words say."""
    await keep(store, "pg", "Use Postgres.", **about("database"))
    await keep(store, "two", "Do not use Postgres.", **other)
    assert await find_conflicts(store, SHOP) == ()


async def test_the_value_counts_where_there_is_one(store: Any) -> None:
    """The same value in other words does not contradict; the same words with another value do."""
    await keep(store, "one", "We use Postgres.", **about("database", "postgres"))
    await keep(store, "two", "Postgres it is.", **about("database", "postgres"))
    assert await find_conflicts(store, SHOP) == ()
    await keep(store, "three", "Postgres it is!", **about("database", "mysql"))
    pairs = {frozenset(one.ids) for one in await find_conflicts(store, SHOP)}
    assert pairs == {frozenset(("one", "three")), frozenset(("two", "three"))}


async def test_true_is_not_one(store: Any) -> None:
    """Values are compared as what they are."""
    await keep(store, "one", **about("tls", True))
    await keep(store, "two", **about("tls", 1))
    assert len(await find_conflicts(store, SHOP)) == 1


async def test_projects_and_sessions_keep_apart_what_is_said_in_them(store: Any) -> None:
    """A project is one place for all its agents and sessions; without a project each session is its own."""
    for at, scope in enumerate(
        [
            Scope(agent_id="ada", project_id="shop"),
            Scope(agent_id="eve", project_id="shop", session_id="s1"),
            Scope(agent_id="ada", project_id="farm"),
            Scope(agent_id="ada"),
            Scope(agent_id="ada", session_id="s1"),
            Scope(agent_id="eve", session_id="s1"),
        ]
    ):
        await keep(store, f"m{at}", scope=scope, **about("database"))
    assert [{*one.ids} for one in await find_conflicts(store, Scope())] == [{"m0", "m1"}]
    await keep(store, "m6", scope=Scope(agent_id="ada", session_id="s1"), **about("database"))
    pairs = {frozenset(one.ids) for one in await find_conflicts(store, Scope())}
    assert pairs == {frozenset(("m0", "m1")), frozenset(("m4", "m6"))}


async def test_only_what_is_live_contradicts(store: Any) -> None:
    """Superseding or invalidating one of both settles it; what is restored contradicts again."""
    await keep(store, "pg", **about("database"))
    my = await keep(store, "my", **about("database"))
    await store.supersede("pg", SHOP, by="my")
    assert await find_conflicts(store, SHOP) == ()
    assert await conflicts_of(store, my) == ()
    await refuse_conflicts(store, my)
    await store.reinstate("pg", SHOP)
    assert len(await find_conflicts(store, SHOP)) == 1
    await connect(store, "pg", "invalidated_by", "my")
    assert await find_conflicts(store, SHOP) == ()
    pg = await store.get("pg", SHOP)
    assert await conflicts_of(store, pg) == ()


async def test_a_declared_contradiction_is_found_from_both_ends(store: Any) -> None:
    """What somebody said contradicts does, once, whatever types and keys the memories have."""
    one = await keep(store, "one", type="fact")
    two = await keep(store, "two", type="assumption")
    await connect(store, "two", "contradicts", "one")
    await connect(store, "one", "contradicts", "two")
    (found,) = await find_conflicts(store, SHOP)
    assert ({*found.ids}, found.key) == ({"one", "two"}, None)
    for entry in (one, two):
        assert [{*each.ids} for each in await conflicts_of(store, entry)] == [{"one", "two"}]
    await store.supersede("one", SHOP)
    assert await find_conflicts(store, SHOP) == ()
    assert await conflicts_of(store, two) == ()


async def test_noting_links_both_and_keeps_both(store: Any) -> None:
    """Leniently, both memories stay, and each leads to the other; noting twice makes no second link."""
    await keep(store, "pg", **about("database"))
    my = await keep(store, "my", **about("database"))
    for _ in range(2):
        assert [{*one.ids} for one in await link_conflicts(store, my, SHOP)] == [{"pg", "my"}]
    await link_conflicts(store, await store.get("pg", SHOP), SHOP)
    for id in ("pg", "my"):
        assert [link.relation for link in await store.links(id, SHOP)] == ["contradicts"]
    assert len(await find_conflicts(store, SHOP)) == 1
    assert {entry.id for entry in await store.list_entries(SHOP)} == {"pg", "my"}


async def test_noting_does_not_repeat_what_somebody_said(store: Any) -> None:
    """A contradiction that was declared the other way round gets no second link."""
    with reproducible() as clock:
        await keep(store, "pg", **about("database"))
        clock.advance(1_000)
        my = await keep(store, "my", **about("database"))
    await connect(store, "pg", "contradicts", "my")
    await link_conflicts(store, my, SHOP)
    (link,) = await store.links("my", SHOP)
    assert (link.source, link.target) == ("pg", "my")


async def test_refusing_comes_before_anything_is_written(store: Any) -> None:
    """Strictly, a contradiction is refused with the ids of what it contradicts, and nothing is kept."""
    await keep(store, "pg", **about("database"))
    mine = Entry(id="my", agent_id="ada", project_id="shop", content="Use MySQL.", **about("database"))
    with pytest.raises(Contradiction) as caught:
        await refuse_conflicts(store, mine)
    assert (caught.value.id, caught.value.others) == ("my", ("pg",))
    assert "supersede" in str(caught.value)
    assert [entry.id for entry in await store.list_entries(SHOP)] == ["pg"]
    same = Entry(id="pg", agent_id="ada", project_id="shop", content="Use pg.", **about("database"))
    await refuse_conflicts(store, same)  # the next version of the same memory contradicts nobody


async def test_a_scope_leaves_out_what_it_does_not_hold(store: Any) -> None:
    """What others say in the project is found by who may see it, and is not linked by who may not."""
    await keep(store, "theirs", scope=Scope(agent_id="eve", project_id="shop"), **about("database"))
    mine = await keep(store, "mine", **about("database"))
    assert len(await conflicts_of(store, mine)) == 1
    assert await link_conflicts(store, mine, SHOP) == ()
    assert await find_conflicts(store, SHOP) == ()
    assert await store.links("mine", EVERYBODY) == []
    assert len(await link_conflicts(store, mine, EVERYBODY)) == 1


async def test_no_more_is_told_than_asked_for(store: Any) -> None:
    """A limit holds for pairs, and a store that cannot list is told so."""
    for at in range(5):
        await keep(store, f"m{at}", **about("database"))
    assert len(await find_conflicts(store, SHOP)) == 10
    assert len(await find_conflicts(store, SHOP, limit=3)) == 3
    with pytest.raises(Invalid, match="limit"):
        await find_conflicts(store, SHOP, limit=0)
    with pytest.raises(Invalid, match="cannot list"):
        await find_conflicts(ListStore(), SHOP)


def test_strict_completeness_names_everything_that_is_missing() -> None:
    """A project and a session are asked for, of a decision its rationale, and of a task who has it."""
    bare = Entry(id="one", agent_id="ada", content="Use Postgres.", type="architectural_decision")
    assert missing_fields(bare) == ("project_id", "session_id", "rationale")
    with pytest.raises(Incomplete) as caught:
        check_complete(bare.replace(project_id="shop", rationale="  "))
    assert caught.value.missing == ("session_id", "rationale")
    whole = bare.replace(project_id="shop", session_id="conv", rationale="It has pgvector.")
    check_complete(whole)
    check_complete(whole.replace(type="fact", rationale=None))
    check_complete(whole.replace(type=None, rationale=None))
    task = whole.replace(type="task")
    assert missing_fields(task) == ("metadata.assigned_to",)
    check_complete(task.replace(metadata={"assigned_to": "ada"}))


Said = list[tuple[str, str, int, bool]]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["fact", "decision"]),
            st.sampled_from(["a", "b"]),
            st.integers(0, 2),
            st.booleans(),
        ),
        max_size=8,
    )
)
async def test_contradictions_are_what_one_would_find_by_hand(said: Said) -> None:
    """Whatever is kept, the pairs are exactly those of one type and key with two values, both live."""
    async with a_store("memory") as store:
        for at, (type, key, value, live) in enumerate(said):
            await keep(store, f"m{at}", type=type, metadata={"key": key, "value": value})
            if not live:
                await store.supersede(f"m{at}", SHOP)
        expected = {
            frozenset((f"m{i}", f"m{j}"))
            for i, one in enumerate(said)
            for j, other in enumerate(said)
            if one[:2] == other[:2] and one[2] != other[2] and one[3] and other[3]
        }
        assert {frozenset(one.ids) for one in await find_conflicts(store, SHOP)} == expected
        for at, one in enumerate(said):
            entry = await store.get(f"m{at}", SHOP)
            mine = {frozenset(each.ids) for each in await conflicts_of(store, entry)}
            assert mine == {pair for pair in expected if f"m{at}" in pair}, one
