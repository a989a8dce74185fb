"""Tests of the forget tool: reasons, replacements and memories of others."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.longterm import keep
from tests.support.memory_tools import ADA, a_spec, call_error, call_tool
from tests.support.turns import Spy

from omoide import Scope
from omoide.testing import reproducible
from omoide.tools import memory_tools


async def test_forgetting_without_a_replacement_forgets(store: Any) -> None:
    """A memory that is forgotten is out of recall, with the reason and the time, and can be restored."""
    await keep(store, "one", "Tea is blue.", scope=ADA)
    with reproducible(1_700_000_000_000):
        answer = await call_tool(store, "forget", {"memory_id": " one ", "reason": " It is green. "})
    assert answer == {
        "forgotten": True,
        "memory_id": "one",
        "message": "It is not recalled any more.",
        "reason": "It is green.",
        "at": "2023-11-14T22:13:20Z",
    }
    entry = await store.get("one", ADA)
    assert (entry.superseded_by, entry.superseded_at, entry.superseded_reason) == (
        "deleted",
        1_700_000_000_000,
        "It is green.",
    )
    assert (await call_tool(store, "recall", {"query": "tea"}))["count"] == 0
    await store.reinstate("one", ADA)
    assert (await call_tool(store, "recall", {"query": "tea"}))["count"] == 1


async def test_a_replacement_takes_the_place(store: Any) -> None:
    """The old memory points at the new one, and only the new one is recalled."""
    await keep(store, "old", "Tea is blue.", scope=ADA)
    await keep(store, "new", "Tea is green.", scope=ADA)
    answer = await call_tool(store, "forget", {"memory_id": "old", "replacement_id": "new"})
    assert (answer["forgotten"], answer["replacement_id"]) == (True, "new")
    assert (await store.get("old", ADA)).superseded_by == "new"
    assert [one["id"] for one in (await call_tool(store, "recall", {}))["memories"]] == ["new"]


async def test_a_blank_replacement_is_none(store: Any) -> None:
    """Models that fill in every field do not replace a memory by nothing's name."""
    await keep(store, "one", scope=ADA)
    await call_tool(store, "forget", {"memory_id": "one", "replacement_id": "  ", "reason": ""})
    entry = await store.get("one", ADA)
    assert (entry.superseded_by, entry.superseded_reason) == ("deleted", None)


async def test_the_longest_reason_is_kept(store: Any) -> None:
    """Exactly 500 bytes fit, counted after the space around them is gone."""
    await keep(store, "one", scope=ADA)
    await call_tool(store, "forget", {"memory_id": "one", "reason": " " + "é" * 250 + "\n"})
    assert (await store.get("one", ADA)).superseded_reason == "é" * 250


async def test_forgetting_twice_changes_nothing(store: Any) -> None:
    """What was forgotten or replaced keeps its first reason and its successor."""
    for name in ("old", "new"):
        await keep(store, name, scope=ADA)
    await call_tool(store, "forget", {"memory_id": "old", "replacement_id": "new", "reason": "measured"})
    before = await store.get("old", ADA)
    answer = await call_tool(store, "forget", {"memory_id": "old", "reason": "again"})
    assert (answer["forgotten"], answer["reason"]) == (True, "measured")
    assert await store.get("old", ADA) == before


async def test_what_rests_on_it_falls_with_it(store: Any) -> None:
    """A conclusion is recalled no more once its premise was forgotten."""
    await keep(store, "premise", "Tea is blue.", scope=ADA)
    await keep(store, "conclusion", "Blue tea is cold.", scope=ADA, on=["premise"])
    await call_tool(store, "forget", {"memory_id": "premise"})
    assert (await call_tool(store, "recall", {"query": "tea"}))["count"] == 0
    assert (await store.get("conclusion", ADA)).stale


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "memory_id"),
        ({"memory_id": ""}, "memory_id"),
        ({"memory_id": "  "}, "does not exist"),
        ({"memory_id": "nothing"}, "'nothing' does not exist"),
        ({"memory_id": "one", "replacement_id": "nothing"}, "'nothing' does not exist"),
        ({"memory_id": "one", "replacement_id": "one"}, "itself"),
        ({"memory_id": "one", "reason": "é" * 251}, "reason has 502 bytes; use at most 500"),
        ({"memory_id": "theirs"}, "does not exist"),
        ({"memory_id": "one", "replacement_id": "theirs"}, "does not exist"),
    ],
)
async def test_what_cannot_be_forgotten_is_said_and_left_alone(store: Any, params: Any, words: str) -> None:
    """A memory that is not there, or is not the agent's, is not found, and nothing has changed."""
    await keep(store, "one", scope=ADA)
    await keep(store, "theirs", scope=Scope(agent_id="eve"))
    assert words in await call_error(store, "forget", params)
    for entry in await store.list_entries(Scope()):
        assert (entry.superseded_by, entry.rev) == (None, 1)


async def test_a_wide_reach_does_not_forget_for_others(store: Any) -> None:
    """Whoever sees the whole project still only gives up what is its own."""
    await keep(store, "theirs", scope=Scope(agent_id="eve", project_id="shop"))
    await keep(store, "mine", scope=Scope(agent_id="ada", session_id="before", project_id="shop"))
    where = {"spec": a_spec(memory_tools(reach="project")), "project_id": "shop"}
    assert (await call_tool(store, "recall", {}, **where))["count"] == 2
    assert "does not exist" in await call_error(store, "forget", {"memory_id": "theirs"}, **where)
    assert (await call_tool(store, "forget", {"memory_id": "mine"}, **where))["forgotten"]


async def test_a_store_that_cannot_forget_says_so() -> None:
    """A small store has no way to forget, and the model hears that instead of a success."""
    assert "cannot" in await call_error(Spy(), "forget", {"memory_id": "one"})
