"""Tests of the relate and review tools."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.longterm import connect, keep
from tests.support.memory_tools import ADA, a_spec, call_error, call_tool

from omoide import Scope
from omoide.tools import memory_tools

SHOP = Scope(agent_id="ada", project_id="shop")


async def test_relating_is_kept(store: Any) -> None:
    """A relation is in the store, found from both ends, however often it is said."""
    await keep(store, "bug", scope=ADA)
    await keep(store, "cause", scope=ADA)
    params = {"source_id": "bug", "relation": "has_root_cause", "target_id": " cause "}
    answer, _ = [await call_tool(store, "relate", params) for _ in range(2)]
    assert (answer["related"], answer["target_id"]) == (True, "cause")
    (link,) = await store.links("cause", ADA)
    assert (link.source, link.relation, link.target) == ("bug", "has_root_cause", "cause")


async def test_what_is_derived_falls_with_its_premise(store: Any) -> None:
    """A model that says what a memory rests on makes it fall when that is forgotten."""
    for name in ("premise", "conclusion"):
        await keep(store, name, scope=ADA)
    await call_tool(
        store, "relate", {"source_id": "conclusion", "relation": "derived_from", "target_id": "premise"}
    )
    await call_tool(store, "forget", {"memory_id": "premise", "reason": "wrong"})
    (stale,) = (await call_tool(store, "review"))["stale"]
    assert stale["id"] == "conclusion"
    assert "conclusion depends on premise: forgotten (wrong" in stale["why"][0]


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"source_id": "one", "relation": "likes", "target_id": "two"}, "use one of refines"),
        ({"source_id": "one", "relation": "refines", "target_id": "nothing"}, "'nothing' does not exist"),
        ({"source_id": "theirs", "relation": "refines", "target_id": "one"}, "'theirs' does not exist"),
        ({"source_id": "one", "relation": "refines", "target_id": "one"}, "same memory"),
        ({"source_id": "one", "relation": "refines"}, "target_id"),
    ],
)
async def test_wrong_relations_are_refused_in_words(store: Any, params: Any, words: str) -> None:
    """Unknown relations and memories that are not there are told, and nothing is linked."""
    for name in ("one", "two"):
        await keep(store, name, scope=ADA)
    await keep(store, "theirs", scope=Scope(agent_id="eve"))
    assert words in await call_error(store, "relate", params)
    assert await store.links("one", Scope()) == []


@pytest.mark.parametrize("relation", ["superseded_by", "invalidated_by", "derived_from"])
async def test_only_the_owner_decides_whether_a_memory_holds(store: Any, relation: str) -> None:
    """In a project, memories of others can be related to, and not be taken out."""
    await keep(store, "mine", scope=SHOP)
    await keep(store, "theirs", scope=Scope(agent_id="eve", project_id="shop"))
    where = {"spec": a_spec(memory_tools(reach="project")), "project_id": "shop"}
    params = {"source_id": "theirs", "relation": relation, "target_id": "mine"}
    assert "does not exist" in await call_error(store, "relate", params, **where)
    theirs = await store.get("theirs", Scope())
    assert (theirs.superseded_by, theirs.stale, theirs.rev) == (None, False, 1)
    assert (await call_tool(store, "relate", {**params, "relation": "contradicts"}, **where))["related"]


async def test_strict_tools_hold_to_the_types_of_the_ontology(store: Any) -> None:
    """Strictly, a fact has no root cause."""
    await keep(store, "fact", scope=ADA, type="fact")
    await keep(store, "cause", scope=ADA, type="root_cause")
    params = {"source_id": "fact", "relation": "has_root_cause", "target_id": "cause"}
    assert "type error" in await call_error(store, "relate", params, spec=a_spec(memory_tools(strict=True)))
    assert (await call_tool(store, "relate", params))["related"]


async def test_a_review_shows_what_needs_attention(store: Any) -> None:
    """Contradictions with both memories, and open questions, are there; others' are not."""
    await keep(store, "pg", "Use Postgres.", scope=SHOP, type="decision", metadata={"key": "database"})
    await keep(store, "my", "Use MySQL.", scope=SHOP, type="decision", metadata={"key": "database"})
    await keep(store, "one", scope=SHOP)
    await connect(store, "one", "contradicts", "pg", SHOP)
    await keep(store, "question", "Which licence is it?", scope=SHOP, type="unknown")
    await keep(store, "theirs", "What does Eve want?", scope=Scope(agent_id="eve"), type="unknown")
    found = await call_tool(store, "review")
    assert {frozenset(one["id"] for one in pair["memories"]) for pair in found["conflicts"]} == {
        frozenset(("pg", "my")),
        frozenset(("pg", "one")),
    }
    assert {pair["about"] for pair in found["conflicts"]} == {"database", "said to contradict"}
    assert [one["content"] for one in found["open_questions"]] == ["Which licence is it?"]
    short = await call_tool(store, "review", {"limit": 1})
    assert len(short["conflicts"]) == 1
    assert "more than is shown" in short["message"]


async def test_a_tidy_memory_needs_nothing(store: Any) -> None:
    """Where there is nothing to look at, a review says so."""
    assert (await call_tool(store, "review"))["message"] == "Nothing needs attention."
    assert "limit" in await call_error(store, "review", {"limit": 0})
