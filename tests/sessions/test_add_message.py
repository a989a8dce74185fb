"""Tests of messages that are added to a session outside of a turn."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sessions import a_spec, conversation_of, lines, reopen, talker

from omoide import Evidence
from omoide.errors import Invalid
from omoide.sessions import Session
from omoide.shortterm import TokenBudget
from omoide.stores import open_store

TINY = TokenBudget(total=100, conversation=30, context=60)


def words(text: str) -> int:
    """A counter that counts words."""
    return len(text.split())


async def start_session(store: Any, **options: Any) -> Session:
    """A new session."""
    spec = options.pop("spec", a_spec(memory=True))
    return await Session.start(spec, "s1", store=store, model=talker(), **options)


async def test_a_message_is_added_to_the_transcript(store: Any) -> None:
    """With its role, its words and what else is known of it, also for whoever reads it later."""
    session = await start_session(store)
    for role in ("user", "assistant", "system", "tool"):
        assert await session.add_message(role, f"I am the {role}.", channel="mail") == 0
    for one in (session, await reopen(session)):
        assert lines(one.thread.entries) == [
            f"{role}: I am the {role}." for role in ("user", "assistant", "system", "tool")
        ]
        assert [entry.payload["channel"] for entry in one.thread.entries] == ["mail"] * 4
        assert [said.content for said in one.short_term.conversation.to_list()] == [
            f"I am the {role}." for role in ("user", "assistant", "system", "tool")
        ]


async def test_it_is_no_turn(store: Any) -> None:
    """The session's status, turns and answers stay as they are, and a turn can follow."""
    session = await start_session(store)
    await session.add_message("user", "Aside.")
    assert (session.status, session.record.turns, session.requests) == ("new", 0, [])
    assert await session.chat("Hello.") == "You said Hello."
    await session.add_message("user", "Another aside.")
    assert (session.status, session.record.turns) == ("finished", 1)


async def test_memory_hears_it(store: Any) -> None:
    """It is in the context that a model is given."""
    session = await start_session(store)
    await session.add_message("user", "We use Phoenix.")
    assert 'user: "We use Phoenix."' in (await session.assemble_context()).text


async def test_details_cannot_pass_for_the_message(store: Any) -> None:
    """A detail named like a request makes no turn of it."""
    session = await start_session(store)
    await session.add_message("user", "Aside.", request_id="r1", final=True)
    model = talker("Hi.")
    await session.run("Hello.", model=model)
    assert conversation_of(model.prompts[0]) == ["user: Hello."]


@pytest.mark.parametrize("role", ["", "developer", "User", None, 7, ["user"]])
async def test_a_role_that_is_none_is_refused(store: Any, role: Any) -> None:
    """Nothing is added."""
    session = await start_session(store)
    with pytest.raises(Invalid, match="role"):
        await session.add_message(role, "Hello.")
    assert len((await reopen(session)).thread.entries) == 0


@pytest.mark.parametrize("content", ["", "  \n", None, 7, b"bytes"])
async def test_empty_words_are_refused(store: Any, content: Any) -> None:
    """Nothing is added."""
    session = await start_session(store)
    with pytest.raises(Invalid, match="content"):
        await session.add_message("user", content)
    assert len((await reopen(session)).thread.entries) == 0


async def test_a_closed_session_hears_nothing(store: Any) -> None:
    """It is refused, and so are proposals to read, promote or assemble."""
    session = await start_session(store)
    await session.close()
    for call in (session.add_message("user", "Hello."), session.promote(), session.assemble_context()):
        with pytest.raises(Invalid, match="closed"):
            await call


# What leaves


async def test_it_is_told_how_many_messages_left(store: Any) -> None:
    """Ten words each in a buffer of thirty: the fourth message pushes the first one out."""
    session = await start_session(store, token_budget=TINY, count_tokens=words)
    said = [f"{at} " + "word " * 9 for at in range(5)]
    assert [await session.add_message("user", one) for one in said] == [0, 0, 0, 1, 1]
    assert await session.add_message("user", "word " * 25) == 3
    assert [one.content.split()[0] for one in session.short_term.conversation.to_list()] == ["word"]


@given(st.lists(st.integers(1, 40), max_size=10))
async def test_what_left_and_what_is_held_is_all_that_was_said(sizes: list[int]) -> None:
    """The numbers told add up, and the buffer holds the last messages, within its budget."""
    async with open_store("memory://", embedder="none") as store:
        session = await start_session(store, token_budget=TINY, count_tokens=words)
        gone = sum([await session.add_message("user", "word " * size) for size in sizes])
        held = session.short_term.conversation.to_list()
        assert gone + len(held) == len(sizes)
        assert [one.token_count for one in held] == sizes[gone:]
        assert sum(sizes[gone:]) <= 30 or len(held) == 1


async def test_what_leaves_waits_for_promotion(store: Any) -> None:
    """What is stated in a message that is pushed out of the buffer may become a memory, and quotes it."""
    session = await start_session(store, token_budget=TINY, count_tokens=words)
    await session.add_message("system", "Be kind.")
    await session.add_message("user", "We deploy from the main branch only.")
    await session.add_message("user", "word " * 28)
    (waiting,) = session.short_term.pending.list_implicit()
    place = f"{session.thread.id}:1"
    assert waiting.content == "We deploy from the main branch only."
    assert waiting.evidence == (Evidence(kind="message", ref=place, quote=waiting.content),)
    assert (waiting.memory_type, waiting.from_eviction) == ("fact", True)
    assert (waiting.source_type, waiting.created_at) == ("user", session.thread.entries[1].at)


async def test_what_is_written_down_anyway_does_not_wait(store: Any) -> None:
    """An agent that captures its conversations does not remember their messages twice."""
    session = await start_session(store, spec=a_spec(), token_budget=TINY, count_tokens=words)
    for _ in range(4):
        await session.add_message("user", "word " * 20)
    assert session.short_term.pending.size == 0


async def test_what_left_once_does_not_leave_again(store: Any) -> None:
    """Whoever opens the session later does not propose the old messages again."""
    session = await start_session(store, token_budget=TINY, count_tokens=words)
    for at in range(3):
        await session.add_message("user", f"We decided on plan {at}. " + "word " * 20)
    first = {one.id for one in session.short_term.pending.list_implicit()}
    await session.promote(threshold=0.0)
    assert len(first) == 2
    later = await reopen(session, token_budget=TINY, count_tokens=words, model=talker())
    assert later.short_term.pending.size == 0
    await later.add_message("user", "Short.")
    assert later.short_term.pending.size == 0


async def test_others_may_have_spoken_meanwhile(store: Any) -> None:
    """Where another program added messages, the number of those that left is never negative."""
    session = await start_session(store)
    other = await reopen(session)
    for at in range(3):
        await other.add_message("user", f"This is {at}.")
    assert await session.add_message("user", "Me too.") == 0
    assert [one.content for one in session.short_term.conversation.to_list()] == [
        "This is 0.",
        "This is 1.",
        "This is 2.",
        "Me too.",
    ]
