"""A stale memory is explained by the chain to its cause."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.longterm import SHOP, a_store, connect, keep

from omoide import Scope
from omoide.errors import Invalid, NotFound
from omoide.longterm import Chain, why_stale
from omoide.testing import reproducible


async def chain_of(store: Any, length: int) -> None:
    """Memories m0, m1 and so on, each resting on the one before."""
    await keep(store, "m0")
    for at in range(1, length):
        await keep(store, f"m{at}", on=[f"m{at - 1}"])


async def test_a_memory_that_holds_has_no_reason_not_to(store: Any) -> None:
    """Nothing is told of what is not stale, even if it is superseded itself."""
    await chain_of(store, 2)
    assert await why_stale(store, "m1", SHOP) == ()
    await store.supersede("m1", SHOP)
    assert await why_stale(store, "m1", SHOP) == ()


async def test_the_way_to_the_premise_is_told_with_reason_and_time(store: Any) -> None:
    """The chain begins with the memory and ends with what is out, by what, why and when."""
    await chain_of(store, 4)
    await keep(store, "new")
    with reproducible(7_000):
        await store.supersede("m0", SHOP, by="new", reason="measured again")
    (chain,) = await why_stale(store, "m3", SHOP)
    assert chain == Chain(
        path=("m3", "m2", "m1", "m0"), cause="superseded", by="new", reason="measured again", at=7_000
    )
    path, cause = "m3 depends on m2 depends on m1 depends on m0", "superseded by new"
    assert str(chain) == f"{path}: {cause} (measured again, 1970-01-01 00:00)"
    await store.reinstate("m0", SHOP)
    assert await why_stale(store, "m3", SHOP) == ()


async def test_every_way_of_being_out_has_its_name(store: Any) -> None:
    """Forgotten, replaced, invalidated and erased premises are told apart."""
    for name in ("forgotten", "replaced", "invalid", "erased", "other"):
        await keep(store, name)
    await keep(store, "one", on=["forgotten", "replaced", "invalid", "erased", "other"])
    with reproducible(7_000):
        await store.supersede("forgotten", SHOP)
        await store.supersede("replaced", SHOP, by="other")
        await store.erase(SHOP, id="erased", reason="asked for")
        await connect(store, "invalid", "invalidated_by", "other")
    chains = await why_stale(store, "one", SHOP)
    assert {(one.path[-1], one.cause, one.by, one.reason, one.at) for one in chains} == {
        ("forgotten", "forgotten", None, None, 7_000),
        ("replaced", "superseded", "other", None, 7_000),
        ("erased", "erased", None, "asked for", 7_000),
        ("invalid", "invalidated", "other", None, 7_000),
    }


async def test_an_invalidated_memory_is_its_own_reason(store: Any) -> None:
    """What was invalidated itself is told without a way."""
    await keep(store, "claim")
    await keep(store, "finding")
    await connect(store, "claim", "invalidated_by", "finding")
    (chain,) = await why_stale(store, "claim", SHOP)
    assert (chain.path, chain.cause, chain.by) == (("claim",), "invalidated", "finding")
    assert await why_stale(store, "finding", SHOP) == ()


async def test_what_invalidates_another_is_not_invalid_itself(store: Any) -> None:
    """A finding that fell for its own reason is told with that reason, and not with what it invalidated."""
    for name in ("claim", "premise"):
        await keep(store, name)
    await keep(store, "finding", on=["premise"])
    await connect(store, "claim", "invalidated_by", "finding")
    await store.supersede("premise", SHOP)
    assert [one.path for one in await why_stale(store, "finding", SHOP)] == [("finding", "premise")]


async def test_a_chain_ends_where_something_is_out(store: Any) -> None:
    """What was superseded is the end of the way, even if it would not hold anyway."""
    await chain_of(store, 3)
    for out in ("m0", "m1"):
        await store.supersede(out, SHOP)
    assert [one.path for one in await why_stale(store, "m2", SHOP)] == [("m2", "m1")]


async def test_the_shortest_way_comes_first(store: Any) -> None:
    """Several reasons are told by their distance, and no more than asked for."""
    await chain_of(store, 4)
    await keep(store, "near")
    await keep(store, "top", on=["m3", "near"])
    for out in ("m0", "near"):
        await store.supersede(out, SHOP)
    assert [one.path for one in await why_stale(store, "top", SHOP)] == [
        ("top", "near"),
        ("top", "m3", "m2", "m1", "m0"),
    ]
    assert [one.path[-1] for one in await why_stale(store, "top", SHOP, limit=1)] == ["near"]


async def test_circles_end(store: Any) -> None:
    """Memories that rest on each other are followed once."""
    await keep(store, "out")
    await keep(store, "a", on=["b"])
    await keep(store, "b", on=["a", "out"])
    await store.supersede("out", SHOP)
    assert [one.path for one in await why_stale(store, "a", SHOP)] == [("a", "b", "out")]


async def test_a_reason_outside_the_scope_is_not_told(store: Any) -> None:
    """Whoever may not see the premise learns that there is a reason, and not which."""
    theirs = Scope(agent_id="eve", project_id="shop")
    await keep(store, "theirs", scope=theirs)
    await keep(store, "mine", on=["theirs"])
    await store.supersede("theirs", theirs, reason="Eve has secrets")
    (chain,) = await why_stale(store, "mine", SHOP)
    assert (chain.path, chain.cause, chain.reason) == (("mine",), "outside the scope", None)
    assert "secrets" not in str(chain)
    (seen,) = await why_stale(store, "mine", Scope(project_id="shop"))
    assert (seen.path, seen.reason) == (("mine", "theirs"), "Eve has secrets")


async def test_bad_questions_are_refused(store: Any) -> None:
    """Memories that are not there and limits of none are said to be wrong."""
    with pytest.raises(NotFound):
        await why_stale(store, "nothing", SHOP)
    with pytest.raises(Invalid, match="limit"):
        await why_stale(store, "nothing", SHOP, limit=0)


Graph = list[list[int]]


@given(
    st.lists(st.lists(st.integers(0, 5), max_size=3, unique=True), min_size=6, max_size=6),
    st.sets(st.integers(0, 5), max_size=3),
)
async def test_chains_are_real_and_complete(graph: Graph, out: set[int]) -> None:
    """What is stale has a chain and nothing else has; a chain goes along evidence to what is out."""
    async with a_store("memory") as store:
        for at, premises in enumerate(graph):
            await keep(store, f"m{at}", on=[f"m{other}" for other in premises])
        for at in out:
            await store.supersede(f"m{at}", SHOP)
        for at in range(6):
            entry = await store.get(f"m{at}", SHOP)
            chains = await why_stale(store, entry.id, SHOP)
            assert bool(chains) == entry.stale
            for chain in chains:
                path = [int(id[1:]) for id in chain.path]
                assert path[0] == at
                assert path[-1] in out
                assert all(b in graph[a] for a, b in pairwise(path))
