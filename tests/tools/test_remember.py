"""Tests of the remember tool: content, repetition and scopes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.longterm import a_store
from tests.support.memory_tools import (
    ADA,
    a_spec,
    agent_with,
    call_error,
    call_tool,
    call_tools,
    remember_entry,
)
from tests.support.sessions import WatchedStore
from tests.support.turns import Spy, Talker, tool_calls

from omoide import Scope, remember, thread
from omoide.core import MEMORY_TYPES
from omoide.errors import StoreFailed
from omoide.longterm import provenance
from omoide.sessions import Session
from omoide.tools import memory_tools
from omoide.turns import TurnContext, turn
from omoide.turns.controls import TurnRequest


async def test_what_is_remembered_is_kept_before_the_answer(store: Any) -> None:
    """The receipt names a memory that is in the store, with the session and the project of the turn."""
    talker = Talker(
        tool_calls(("remember", {"content": " Alex likes tea. ", "rationale": "said so"})), "Done."
    )
    seen: list[int] = []

    async def look(event: Any) -> None:
        if event.kind == "tool_finished":
            seen.append(len(await store.list_entries(ADA)))

    result = await turn(
        a_spec(),
        "I like tea.",
        model=talker,
        store=store,
        session_id="conv",
        project_id="shop",
        on_event=look,
    )
    assert result.content == "Done."
    assert seen == [1]
    answer = json.loads(talker.prompts[-1].messages[-1].content)
    assert {*answer} == {"remembered", "memory_id", "memory_type", "message"}
    assert (answer["remembered"], answer["memory_type"]) == (True, "fact")
    entry = await store.get(answer["memory_id"], ADA)
    assert (entry.content, entry.type, entry.confidence, entry.rationale) == (
        "Alex likes tea.",
        "fact",
        0.8,
        "said so",
    )
    assert (entry.agent_id, entry.session_id, entry.project_id, entry.source) == (
        "ada",
        "conv",
        "shop",
        "agent",
    )


@pytest.mark.parametrize("type", MEMORY_TYPES)
async def test_every_type_can_be_remembered_and_recalled(type: str) -> None:
    """All 25 types go in and come out again, open questions too."""
    async with a_store("memory") as store:
        entry = await remember_entry(store, f"Something of type {type}.", type=type)
        assert entry.type == type
        (found,) = (await call_tool(store, "recall", {"type": type}))["memories"]
        assert (found["id"], found["type"]) == (entry.id, type)


async def test_an_everyday_word_is_kept_and_found_as_its_type(store: Any) -> None:
    """A preference is kept as a fact, a to-do as a task of the agent, and found by word and by type."""
    tea = await remember_entry(store, "Alex prefers tea.", type="preference")
    call = await remember_entry(store, "Call Alex.", type="todo")
    assert (tea.type, call.type, call.metadata["assigned_to"]) == ("fact", "task", "ada")
    for name, kept in (("preference", tea), ("fact", tea), ("reminder", call)):
        (found,) = (await call_tool(store, "recall", {"type": name}))["memories"]
        assert found["id"] == kept.id


@pytest.mark.parametrize(
    ("given", "kept"),
    [("high", 0.9), ("medium", 0.6), ("low", 0.3), (0.77, 0.77), (7, 1.0), (-1, 0.0), (1, 1)],
)
async def test_confidence_is_a_number_or_a_level(store: Any, given: Any, kept: float) -> None:
    """Levels have their numbers, and numbers are kept exactly, brought between 0 and 1."""
    assert (await remember_entry(store, "Something.", confidence=given)).confidence == kept


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({}, "content"),
        ({"content": "  \n "}, "content is empty"),
        ({"content": "é" * 1_001}, "content has 2002 bytes; use at most 2000"),
        ({"content": 7}, "content"),
        ({"content": "x", "type": "rumour"}, "use one of fact, assumption"),
        ({"content": "x", "type": "memory_item"}, "use one of fact, assumption"),
        ({"content": "x", "confidence": "sure"}, "confidence"),
        ({"content": "x", "confidence": True}, "confidence"),
        ({"content": "x", "rationale": "y" * 2_001}, "rationale has 2001 bytes"),
        ({"content": "x", "key": "y" * 201}, "key has 201 bytes"),
        ({"content": "x", "agent_id": "eve"}, "agent_id"),
        ({"content": "x", "session_id": "other"}, "session_id"),
        ({"content": "x", "id": "mem_1"}, "id"),
    ],
)
async def test_what_cannot_be_kept_is_refused_in_words(store: Any, params: Any, words: str) -> None:
    """A model is told what was wrong and what to do; nothing is kept, and nobody else's name is taken."""
    assert words in await call_error(store, "remember", params)
    assert await store.list_entries(Scope()) == []


async def test_the_longest_content_is_kept(store: Any) -> None:
    """Exactly 2000 bytes fit, counted after the space around them is gone."""
    assert len((await remember_entry(store, " " + "é" * 1_000 + "\n")).content) == 1_000


async def test_a_repeated_call_is_the_same_memory(store: Any) -> None:
    """After a crash the same call finds the same memory, whatever became of it; other calls make others."""
    call = ("remember", {"content": "Alex likes tea."})
    options: dict[str, Any] = {"session_id": "conv", "request_id": "r1"}
    first, again = [json.loads((await call_tools(store, call, **options))[0]) for _ in range(2)]
    assert first["memory_id"] == again["memory_id"]
    (entry,) = await store.list_entries(ADA)
    assert entry.rev == 1
    await store.supersede(entry.id, ADA, reason="changed my mind")
    await call_tools(store, call, **options)
    assert [one.superseded_reason for one in await store.list_entries(ADA)] == ["changed my mind"]
    await call_tools(store, ("remember", {"content": "Alex likes milk."}), **options)
    await call_tools(store, call, session_id="other", request_id="r1")
    contents = sorted(one.content for one in await store.list_entries(ADA))
    assert contents == ["Alex likes milk.", "Alex likes tea.", "Alex likes tea."]


async def test_a_crash_between_keeping_and_saying_so_keeps_one_memory(store: Any) -> None:
    """A session that dies after the memory was kept goes on by itself, with that memory and no second one."""

    async def die(name: str, args: tuple[Any, ...]) -> None:
        if name == "append thread" and any(entry["kind"] == "tool_result" for entry in args[0]):
            raise StoreFailed("disk", "is gone", "plug it in")

    talker = Talker(tool_calls(("remember", {"content": "Alex likes tea."})), "Noted.")
    broken = WatchedStore(store, die)
    session = await Session.start(a_spec(), "conv", store=broken, model=talker)
    with pytest.raises(StoreFailed):
        await session.chat("I like tea.")
    (entry,) = await store.list_entries(ADA)
    resumed = await (await Session.load("conv", a_spec(), store=store, model=talker)).resume()
    assert resumed.content == "Noted."
    assert await store.list_entries(ADA) == [entry]


async def test_what_is_known_already_is_not_kept_twice(store: Any) -> None:
    """The same words in the same place lead to the memory that is there, and the model is told."""
    first = await remember_entry(store, "Alex likes tea.")
    answer = await call_tool(store, "remember", {"content": "Alex likes tea."})
    assert answer["memory_id"] == first.id
    assert "known already" in answer["message"]
    assert len(await store.list_entries(ADA)) == 1


async def test_two_calls_of_one_turn_are_two_memories(store: Any) -> None:
    """Each call of a reply keeps its own memory."""
    answers = await call_tools(store, *(("remember", {"content": text}) for text in ("One.", "Two.")))
    assert len({json.loads(answer)["memory_id"] for answer in answers}) == 2
    assert len(await store.list_entries(ADA)) == 2


async def test_a_memory_leads_back_to_what_the_user_said(store: Any) -> None:
    """In a session, the evidence is the message in which it was asked for, and it can be read again."""
    talker = Talker("Hello.", tool_calls(("remember", {"content": "Alex likes tea."})), "Noted.")
    session = await Session.start(a_spec(), "conv", store=store, model=talker, project_id="shop")
    await session.chat("Good morning.")
    await session.chat("Remember that I like tea.")
    (entry,) = [one for one in await store.list_entries(ADA) if one.source == "agent"]
    (source,) = (await provenance(store, entry.id, entry.scope)).sources()
    assert source.said is not None
    assert (source.said.role, source.said.content) == ("user", "Remember that I like tea.")


async def test_the_evidence_is_of_the_request_and_no_other(store: Any) -> None:
    """Where several requests are in one thread, a memory points at the words of its own."""
    agent = agent_with()
    for request in ("r1", "r2"):
        said = {"role": "user", "content": f"Asked by {request}.", "request_id": request}
        agent = thread.append(agent, {"kind": "message", "payload": said})
    for at, request in enumerate(("r1", "r2")):
        ctx = TurnContext(agent, TurnRequest(id=request, input="x", at=0), store=store, scope=ADA)
        answer = await memory_tools("remember")[0](ctx, content=f"Known from {request}.")
        entry = await store.get(answer["memory_id"], ADA)
        assert [one.ref for one in entry.evidence] == [f"{thread.of(agent).id}:{at}"]


async def test_a_store_that_fails_is_not_a_success() -> None:
    """Where the store could not keep it, the model is told so, and no receipt is made up."""
    spy = Spy()
    spy.write_fails = StoreFailed("spy", "is full", "make room")
    words = await call_error(spy, "remember", {"content": "Something."})
    assert "is full; make room" in words


async def test_without_a_store_or_a_memory_the_model_is_told() -> None:
    """A turn without a store, and an agent without a memory, have nothing to remember in."""
    assert "store" in await call_error(None, "remember", {"content": "x"})
    spec = a_spec(memory=None)
    assert "is off" in await call_error(Spy(), "remember", {"content": "x"}, spec=spec)


async def test_a_small_store_is_enough_to_remember() -> None:
    """A store with three methods keeps what is remembered and finds it by words."""
    spy = Spy()
    await call_tools(spy, ("remember", {"content": "Alex likes tea.", "key": "drink"}))
    assert [entry.content for entry in spy.kept] == ["Alex likes tea."]
    found = await call_tool(spy, "recall", {"query": "What does Alex like?"})
    assert found["count"] == 1
    assert "SupportsQuery" in await call_error(spy, "recall")


async def test_a_contradiction_is_kept_linked_and_told(store: Any) -> None:
    """Values of one key in two slots of a project both stay, related, and the model learns of it."""
    own = Scope(agent_id="ada", session_id="earlier", project_id="shop")
    first = (await remember(store, "Use Postgres.", own, type="decision", key="database")).entry
    answer = await call_tool(
        store,
        "remember",
        {"content": "Use MySQL.", "type": "decision", "key": "database"},
        project_id="shop",
        session_id="later",
    )
    assert answer["contradicts"] == [first.id]
    (link,) = await store.links(first.id, ADA)
    assert (link.relation, {link.source, link.target}) == ("contradicts", {first.id, answer["memory_id"]})


async def test_the_next_value_of_a_key_replaces_the_one_before(store: Any) -> None:
    """In a later session, too, of the same user and project; the one before stays in the history."""
    first = await remember_entry(store, "Alex lives in Berlin.", key="home_city", session_id="one")
    answer = await call_tool(
        store, "remember", {"content": "Alex lives in Paris.", "key": " home_city "}, session_id="two"
    )
    assert answer["replaced"] == first.id
    assert "contradicts" not in answer
    assert (first.key, first.session_id, first.evidence[0].kind) == ("home_city", None, "message")
    assert (await store.get(first.id, ADA)).superseded_by == answer["memory_id"]
    (found,) = (await call_tool(store, "recall", {"query": "Where does Alex live?"}))["memories"]
    assert (found["content"], found["key"]) == ("Alex lives in Paris.", "home_city")


async def test_a_key_belongs_to_the_session_where_memory_does(store: Any) -> None:
    """With a policy of scope `session`, two sessions keep values of their own."""
    spec = a_spec(memory={"scope": "session"})
    for session in ("one", "two"):
        kept = await remember_entry(store, f"In {session}.", key="topic", session_id=session, spec=spec)
        assert (kept.session_id, kept.superseded_by) == (session, None)
    assert len([entry for entry in await store.list_entries(ADA) if entry.superseded_by is None]) == 2


async def test_strict_tools_refuse_what_contradicts_or_is_incomplete(store: Any) -> None:
    """Strictly, decisions need their rationale and project, and contradictions are not kept."""
    spec = a_spec(memory_tools(strict=True))
    where: dict[str, Any] = {"spec": spec, "project_id": "shop", "session_id": "conv"}
    decision = {"content": "Use Postgres.", "type": "decision", "key": "database", "rationale": "pgvector"}
    bare = {**decision, "rationale": " "}
    assert "lacks rationale" in await call_error(store, "remember", bare, **where)
    assert "lacks project_id" in await call_error(store, "remember", decision, spec=spec, session_id="conv")
    assert await store.list_entries(Scope()) == []
    own = Scope(agent_id="ada", session_id="earlier", project_id="shop")
    kept = (await remember(store, "Use MySQL.", own, type="decision", key="database")).id
    assert f"contradicts '{kept}'" in await call_error(store, "remember", decision, **where)
    assert len(await store.list_entries(Scope())) == 1
    await store.supersede(kept, ADA)
    first = await call_tool(store, "remember", decision, **where)
    second = await call_tool(store, "remember", {**decision, "content": "Use Oracle."}, **where)
    assert second["replaced"] == first["memory_id"]  # the next value is no contradiction
    task = await call_tool(store, "remember", {"content": "Set up Postgres.", "type": "task"}, **where)
    assert (await store.get(task["memory_id"], ADA)).metadata["assigned_to"] == "ada"


@given(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50),
    st.sampled_from(MEMORY_TYPES),
    st.floats(0, 1),
)
async def test_words_and_figures_come_back_as_they_went_in(
    content: str, type: str, confidence: float
) -> None:
    """Whatever a model says, it is refused, or comes back from recall exactly as it was said."""
    async with a_store("memory") as store:
        params = {"content": content, "type": type, "confidence": confidence}
        (answer,) = await call_tools(store, ("remember", params))
        if not content.strip():
            assert await store.list_entries(Scope()) == []
            return
        assert json.loads(answer)["remembered"]
        (found,) = (await call_tool(store, "recall", {"min_confidence": 0}))["memories"]
        assert (found["content"], found["type"], found["confidence"]) == (content.strip(), type, confidence)


async def test_a_turn_of_a_user_remembers_for_that_user_alone(store: Any) -> None:
    """What is remembered in the turn of one user is in no turn of another, whatever the reach."""
    tools = memory_tools(reach="user")
    for reach in (tools, memory_tools()):
        spec = a_spec(reach)
        kept = await remember_entry(store, "Ann likes tea.", key="drink", user_id="ann", spec=spec)
        assert kept.user_id == "ann"
        asked = {"query": "Who likes tea?", "min_confidence": 0}
        assert (await call_tool(store, "recall", asked, user_id="ann", spec=spec))["count"] == 1
        assert (await call_tool(store, "recall", asked, user_id="bob", spec=spec))["count"] == 0
        stolen = {"memory_id": kept.id}
        assert "does not exist" in await call_error(store, "forget", stolen, user_id="bob", spec=spec)
    assert "user_id" in await call_error(store, "recall", {"query": "x"}, spec=a_spec(tools))
