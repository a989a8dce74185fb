"""Related memories are found from either end, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.custom_stores import ListStore
from tests.support.longterm import SHOP, a_store, connect, keep

from omoide import Scope
from omoide.errors import Invalid, NotFound, WrongType
from omoide.longterm import RELATIONS, Related, related
from omoide.testing import reproducible


def steps(found: list[Related]) -> list[tuple[str, str, str, int, str]]:
    return [(one.via, one.relation, one.entry.id, one.depth, one.direction) for one in found]


@pytest.mark.parametrize(
    "relation", [name for name in RELATIONS if name not in ("derived_from", "superseded_by", "supersedes")]
)
async def test_links_are_found_from_both_ends(store: Any, relation: str) -> None:
    """Every relation is found by its name, out of its source and into its target, with the whole memory."""
    for name in ("one", "two", "three"):
        await keep(store, name)
    await connect(store, "one", relation, "two")
    await connect(store, "one", "other", "three")
    out = await related(store, "one", SHOP, relation)
    assert steps(out) == [("one", relation, "two", 1, "out")]
    assert out[0].entry.content == "This is two."
    assert steps(await related(store, "two", SHOP, relation)) == [("two", relation, "one", 1, "in")]
    assert await related(store, "one", SHOP, relation, direction="in") == []
    assert await related(store, "two", SHOP, relation, direction="out") == []
    assert {one.entry.id for one in await related(store, "one", SHOP)} == {"two", "three"}


async def test_evidence_and_supersession_are_relations_too(store: Any) -> None:
    """What a memory rests on and what replaced it is known without a link, both ways."""
    await keep(store, "premise")
    await keep(store, "old", on=["premise"])
    await keep(store, "new")
    await store.supersede("old", SHOP, by="new")
    assert steps(await related(store, "old", SHOP)) == [
        ("old", "derived_from", "premise", 1, "out"),
        ("old", "superseded_by", "new", 1, "out"),
    ]
    assert steps(await related(store, "premise", SHOP, "derived_from")) == [
        ("premise", "derived_from", "old", 1, "in")
    ]
    assert steps(await related(store, "new", SHOP, "supersedes", direction="out")) == [
        ("new", "supersedes", "old", 1, "out")
    ]
    assert steps(await related(store, "old", SHOP, "supersedes")) == [("old", "supersedes", "new", 1, "in")]
    assert steps(await related(store, "new", SHOP, "superseded_by")) == [
        ("new", "superseded_by", "old", 1, "in")
    ]


async def test_the_nearest_come_first_and_each_comes_once(store: Any) -> None:
    """A search goes breadth first, says by which way each memory was reached, and stops at its depth."""
    for name in "abcde":
        await keep(store, name)
    for source, target in ("ab", "bc", "cd", "de", "ac"):
        await connect(store, source, "depends_on", target)
    found = steps(await related(store, "a", SHOP, "depends_on", depth=2, direction="out"))
    assert found == [
        ("a", "depends_on", "b", 1, "out"),
        ("a", "depends_on", "c", 1, "out"),
        ("c", "depends_on", "d", 2, "out"),
    ]
    deepest = await related(store, "a", SHOP, "depends_on", depth=5)
    assert [one.depth for one in deepest] == [1, 1, 2, 3]
    assert str(deepest[0]) == "a —depends_on→ b: This is b."


async def test_circles_end(store: Any) -> None:
    """Memories that lead back to where the search began are not told again, and do not go on forever."""
    for name in "abc":
        await keep(store, name)
    for source, target in ("ab", "bc", "ca", "aa"):
        await connect(store, source, "related_error", target)
    found = await related(store, "a", SHOP, depth=5)
    assert sorted(one.entry.id for one in found) == ["b", "c"]


async def test_what_is_alike_has_to_be_asked_for(store: Any) -> None:
    """Memories of the same type or project are found by that name only, the newest first and live."""
    with reproducible() as clock:
        for at, (name, type, project) in enumerate(
            [("a", "fact", "shop"), ("b", "fact", "shop"), ("c", "bug", "shop"), ("d", "fact", "farm")]
        ):
            clock.at = 1_000 + at
            await keep(store, name, type=type, scope=Scope(agent_id="ada", project_id=project))
    ada = Scope(agent_id="ada")
    assert await related(store, "a", ada) == []
    assert [one.entry.id for one in await related(store, "a", ada, "same_type")] == ["d", "b"]
    assert [one.entry.id for one in await related(store, "a", ada, "same_project")] == ["c", "b"]
    assert [one.entry.id for one in await related(store, "a", SHOP, "same_type", limit=1)] == ["b"]
    await store.supersede("b", SHOP)
    assert await related(store, "a", SHOP, "same_type") == []


async def test_the_same_type_is_the_very_same(store: Any) -> None:
    """A type that refines another is not the same, and untyped memories are alike."""
    for name, type in (("error", "error"), ("bug", "bug"), ("other", "error"), ("a", None), ("b", None)):
        await keep(store, name, type=type)
    assert [one.entry.id for one in await related(store, "error", SHOP, "same_type")] == ["other"]
    assert [one.entry.id for one in await related(store, "a", SHOP, "same_type")] == ["b"]


async def test_same_project_means_nothing_without_one(store: Any) -> None:
    """A memory of no project has no neighbours there."""
    ada = Scope(agent_id="ada")
    for name in ("one", "two"):
        await keep(store, name, scope=ada)
    assert await related(store, "one", ada, "same_project") == []


async def test_nothing_outside_the_scope_is_reached(store: Any) -> None:
    """Neither a link, nor evidence, nor a successor leads a reader out of its scope, near or far."""
    theirs = Scope(agent_id="eve", project_id="shop")
    everybody = Scope(project_id="shop")
    await keep(store, "secret", scope=theirs)
    await keep(store, "mine", on=["secret"])
    await keep(store, "bridge", scope=theirs, on=["mine"])
    await connect(store, "mine", "contradicts", "secret", everybody)
    for relation in (None, "derived_from", "contradicts"):
        assert await related(store, "mine", SHOP, relation, depth=5) == []
    assert {one.entry.id for one in await related(store, "mine", everybody)} == {"secret", "bridge"}
    with pytest.raises(NotFound):
        await related(store, "secret", SHOP)


async def test_bad_searches_are_refused(store: Any) -> None:
    """Depths beyond the limit, unknown directions and other nonsense are told before anything is read."""
    await keep(store, "one")
    wrongs: list[dict[str, Any]] = [{"depth": 6}, {"depth": 0}, {"direction": "up"}, {"limit": 0}]
    for wrong in wrongs:
        with pytest.raises(Invalid, match=next(iter(wrong))):
            await related(store, "one", SHOP, **wrong)
    with pytest.raises(WrongType):
        await related(store, "one", SHOP, 7)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        await related(store, "nothing", SHOP)
    with pytest.raises(Invalid, match="cannot find"):
        await related(ListStore(), "one", SHOP)


async def test_a_search_stops_at_its_limit(store: Any) -> None:
    """No more memories are told than were asked for, and those are the nearest."""
    await keep(store, "hub")
    for at in range(5):
        await keep(store, f"m{at}")
        await connect(store, "hub", "depends_on", f"m{at}")
    assert len(await related(store, "hub", SHOP, limit=3)) == 3


Edges = list[tuple[int, int]]


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=14), st.integers(1, 5))
async def test_a_search_finds_what_can_be_reached(edges: Edges, depth: int) -> None:
    """Whatever the graph, what is found is what lies within so many steps, each at its distance."""
    async with a_store("memory") as store:
        for at in range(7):
            await keep(store, f"m{at}")
        for source, target in edges:
            await connect(store, f"m{source}", "depends_on", f"m{target}")
        distance, frontier = {0: 0}, [0]
        for step in range(1, depth + 1):
            frontier = [b for a, b in edges if a in frontier and b not in distance]
            distance.update(dict.fromkeys(frontier, step))
        del distance[0]
        found = await related(store, "m0", SHOP, "depends_on", depth=depth, direction="out")
        assert {one.entry.id: one.depth for one in found} == {f"m{at}": d for at, d in distance.items()}
        assert [one.depth for one in found] == sorted(one.depth for one in found)
