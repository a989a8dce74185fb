"""Tests of the recall tool: ranking, counts and scopes."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from tests.support.longterm import keep
from tests.support.memory_tools import ADA, a_spec, call_error, call_tool, remember_entry

from omoide import Scope
from omoide.testing import reproducible
from omoide.tools import memory_tools


async def test_the_question_decides_what_comes_first(store: Any) -> None:
    """Two questions about the same memories have two answers, each with its reason."""
    await keep(store, "tea", "Alex likes green tea.", scope=ADA)
    await keep(store, "db", "The shop runs on Postgres.", scope=ADA)
    for query, best in (("Which tea?", "tea"), ("Which database, Postgres?", "db")):
        found = await call_tool(store, "recall", {"query": query})
        assert found["memories"][0]["id"] == best
        assert found["memories"][0]["why"]
        assert found["count"] == len(found["memories"])


async def test_a_memory_is_shown_with_everything_a_model_needs(store: Any) -> None:
    """Content, type, confidence, time, source, rationale and the reason why it was found are there."""
    with reproducible(1_700_000_000_000):
        fields: dict[str, Any] = {"type": "decision", "source": "user", "confidence": 0.75}
        await keep(store, "one", "Use Postgres.", scope=ADA, rationale="It has pgvector.", **fields)
    (found,) = (await call_tool(store, "recall", {"query": "Postgres"}))["memories"]
    assert found.pop("why")
    assert 0 < found.pop("relevance") <= 1
    assert found == {
        "id": "one",
        "content": "Use Postgres.",
        "type": "decision",
        "confidence": 0.75,
        "created_at": "2023-11-14T22:13:20Z",
        "source": "user",
        "rationale": "It has pgvector.",
    }


@pytest.mark.parametrize("query", ["", "  \n"])
async def test_no_question_means_the_newest(store: Any, query: str) -> None:
    """A blank query lists what is there, the newest first."""
    with reproducible() as clock:
        for at in range(4):
            clock.advance(1_000)
            await keep(store, f"m{at}", scope=ADA)
    found = await call_tool(store, "recall", {"query": query, "limit": 3})
    assert [one["id"] for one in found["memories"]] == ["m3", "m2", "m1"]
    assert found["count"] == 3


@pytest.mark.parametrize("query", ["", "memory"])
async def test_kind_and_confidence_narrow_the_answer(store: Any, query: str) -> None:
    """A type stands for those that refine it, unsure memories are left out by default, limits come last."""
    for name, type, confidence in (
        ("design", "architectural_decision", 0.9),
        ("choice", "decision", 0.6),
        ("guess", "decision", 0.3),
        ("fact", "fact", 0.9),
    ):
        await keep(store, name, f"A memory of {name}.", scope=ADA, type=type, confidence=confidence)
    by_default = await call_tool(store, "recall", {"query": query, "type": "decision"})
    assert {one["id"] for one in by_default["memories"]} == {"design", "choice"}
    sure = await call_tool(store, "recall", {"query": query, "type": "decision", "min_confidence": "high"})
    assert {one["id"] for one in sure["memories"]} == {"design"}
    everything = await call_tool(store, "recall", {"query": query, "min_confidence": 0})
    assert everything["count"] == 4
    one = await call_tool(store, "recall", {"query": query, "type": "fact", "limit": 1})
    assert [each["id"] for each in one["memories"]] == ["fact"]


@pytest.mark.parametrize("query", ["", "memory"])
async def test_half_sure_is_sure_enough(store: Any, query: str) -> None:
    """Without a floor of its own a question finds what is at least half sure."""
    for name, confidence in (("half", 0.5), ("less", 0.49)):
        await keep(store, name, f"A memory of {name}.", scope=ADA, confidence=confidence)
    found = await call_tool(store, "recall", {"query": query})
    assert [one["id"] for one in found["memories"]] == ["half"]


async def test_the_longest_question_is_answered(store: Any) -> None:
    """Exactly 1000 bytes are a question, counted after the space around them is gone."""
    await keep(store, "tea", "Alex likes green tea.", scope=ADA)
    query = "tea " + "é" * 498
    assert len(query.encode()) == 1_000
    assert (await call_tool(store, "recall", {"query": f" {query}\n"}))["count"] == 1


@pytest.mark.parametrize("query", ["", "memory"])
async def test_ten_are_enough_unless_more_are_wanted(store: Any, query: str) -> None:
    """Ten memories come by default, and at most fifty."""
    for at in range(51):
        await keep(store, f"m{at}", f"A memory of {at}.", scope=ADA)
    for params, count in (({}, 10), ({"limit": 1}, 1), ({"limit": 50}, 50)):
        assert (await call_tool(store, "recall", {"query": query, **params}))["count"] == count


async def test_using_a_memory_is_counted(store: Any) -> None:
    """A memory that recall gives is used once more than by the turn around it, with a question or without."""
    entry = await remember_entry(store, "Alex likes tea.")
    counts = [0]
    for tool, params in (("review", {}), ("recall", {"query": "tea"}), ("recall", {})):
        await call_tool(store, tool, params)
        access = await store.access(entry.id, ADA)
        assert access.last is not None
        counts.append(access.count)
    assert [after - before for before, after in pairwise(counts)] == [1, 2, 2]


async def test_what_no_longer_holds_is_not_recalled(store: Any) -> None:
    """Forgotten, expired and stale memories are in no answer."""
    await keep(store, "gone", "Tea is blue.", scope=ADA)
    await keep(store, "rests", "Blue tea is cold.", scope=ADA, on=["gone"])
    await keep(store, "past", "Tea was hot.", scope=ADA, expires_at=1)
    await keep(store, "holds", "Tea is green.", scope=ADA)
    await store.supersede("gone", ADA)
    for query in ("tea", ""):
        found = await call_tool(store, "recall", {"query": query})
        assert [one["id"] for one in found["memories"]] == ["holds"]


async def test_nothing_found_is_an_answer(store: Any) -> None:
    """An empty memory answers with no memories."""
    for query in ("tea", ""):
        assert await call_tool(store, "recall", {"query": query}) == {"memories": [], "count": 0}


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"limit": 0}, "limit"),
        ({"limit": 51}, "limit"),
        ({"limit": -3}, "limit"),
        ({"limit": "many"}, "limit"),
        ({"query": "é" * 501}, "query has 1002 bytes; use at most 1000"),
        ({"type": "rumour"}, "use one of fact, assumption"),
        ({"min_confidence": "sure"}, "min_confidence"),
        ({"scope": "namespace"}, "scope"),
        ({"agent_id": "eve"}, "agent_id"),
        ({"session_id": "other"}, "session_id"),
    ],
)
async def test_wrong_questions_are_refused_in_words(store: Any, params: Any, words: str) -> None:
    """A model is told what was wrong; it cannot ask for anybody else's memory."""
    assert words in await call_error(store, "recall", params)


async def scatter_memories(store: Any) -> None:
    """Memories of two agents, sessions, projects and namespaces."""
    for name, scope in {
        "here": Scope(agent_id="ada", session_id="conv", project_id="shop"),
        "earlier": Scope(agent_id="ada", session_id="before", project_id="shop"),
        "farm": Scope(agent_id="ada", session_id="other", project_id="farm"),
        "colleague": Scope(agent_id="eve", session_id="eves", project_id="shop"),
        "tenant": Scope(agent_id="ada", session_id="conv", project_id="shop", namespace="other"),
    }.items():
        await keep(store, name, f"A memory of {name}.", scope=scope)


@pytest.mark.parametrize("query", ["", "memory"])
@pytest.mark.parametrize(
    ("reach", "policy", "seen"),
    [
        (None, "agent", {"here", "earlier", "farm"}),
        (None, "project", {"here", "earlier", "colleague"}),
        (None, "session", {"here"}),
        ("session", "agent", {"here"}),
        ("project", "session", {"here", "earlier", "colleague"}),
        ("agent", "session", {"here", "earlier", "farm"}),
    ],
)
async def test_the_program_says_how_far_a_model_sees(
    store: Any, query: str, reach: str | None, policy: str, seen: set[str]
) -> None:
    """By default a model sees what its policy says; a program can set another reach, within the tenant."""
    await scatter_memories(store)
    spec = a_spec(memory_tools(reach=reach), memory={"scope": policy})
    where = {"spec": spec, "session_id": "conv", "project_id": "shop"}
    found = await call_tool(store, "recall", {"query": query, "limit": 50}, **where)
    assert {one["id"] for one in found["memories"]} == seen


@pytest.mark.parametrize("reach", [None, "session", "project", "agent"])
async def test_no_reach_leaves_the_namespace(store: Any, reach: str | None) -> None:
    """However far the tools reach, they read and write in the namespace of the agent's memory."""
    await scatter_memories(store)
    spec = a_spec(memory_tools(reach=reach), memory={"namespace": "other"})
    where = {"spec": spec, "session_id": "conv", "project_id": "shop"}
    found = await call_tool(store, "recall", {"limit": 50}, **where)
    assert [one["id"] for one in found["memories"]] == ["tenant"]
    await call_tool(store, "remember", {"content": "Something new."}, **where)
    kept = await store.list_entries(Scope(namespace="other"))
    assert [entry.content for entry in kept] == ["A memory of tenant.", "Something new."]


async def test_earlier_sessions_of_a_project_are_remembered(store: Any) -> None:
    """What was kept in one session of a project is known in the next one, and not in another project."""
    spec = a_spec(memory_tools(reach="project"), memory={"scope": "session"})
    await remember_entry(store, "Use Postgres.", spec=spec, session_id="monday", project_id="shop")
    for project, count in (("shop", 1), ("farm", 0)):
        found = await call_tool(
            store, "recall", {"query": "Postgres"}, spec=spec, session_id="tuesday", project_id=project
        )
        assert found["count"] == count


@pytest.mark.parametrize(("reach", "words"), [("session", "session_id"), ("project", "project_id")])
async def test_a_reach_needs_what_it_names(store: Any, reach: str, words: str) -> None:
    """Tools that reach a session or a project say so where the turn has none."""
    spec = a_spec(memory_tools(reach=reach))
    for tool, params in (("recall", {}), ("remember", {"content": "x"}), ("review", {})):
        assert words in await call_error(store, tool, params, spec=spec)
    assert await store.list_entries(Scope()) == []


@pytest.mark.parametrize("query", ["", "the office"])
async def test_tags_narrow_the_answer(store: Any, query: str) -> None:
    """What was kept with tags is found by them: only what carries all that are named, without empty ones."""
    await remember_entry(store, "The office is in Ghent.", tags=["place", " work ", "", "work"])
    await remember_entry(store, "The office has a garden.", tags=["place"])
    for tags, contents in (
        (["place", "work"], {"The office is in Ghent."}),
        (["place"], {"The office is in Ghent.", "The office has a garden."}),
        (["absent"], set()),
        ([""], {"The office is in Ghent.", "The office has a garden."}),
    ):
        found = await call_tool(store, "recall", {"query": query, "tags": tags})
        assert {one["content"] for one in found["memories"]} == contents
    assert "use at most 100" in await call_error(store, "recall", {"tags": ["x" * 101]})
    assert "tags" in await call_error(store, "remember", {"content": "x", "tags": ["x"] * 21})
