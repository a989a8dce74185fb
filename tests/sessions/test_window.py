"""Tests of the window: the part of a long conversation in the prompt."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.sessions import (
    Till,
    a_spec,
    captured_entries,
    conversation_of,
    echo_conversation,
    lines,
    reopen,
    talker,
)
from tests.support.turns import kinds_of, system_of, tool_calls

from omoide.errors import OverBudget
from omoide.sessions import Session
from omoide.stores import open_store

AROUND = 4
NO_MEMORY: dict[str, Any] = {"memory": None}


def words(text: str) -> int:
    """Count words, so that sizes in a test can be read."""
    return len(text.split())


def a_window(tokens: int, **more: Any) -> dict[str, Any]:
    """A window with this much room for what is sent."""
    return {"max_tokens": tokens + 1, "reserve_output_tokens": 1, **more}


async def start_session(store: Any, room: int, *replies: Any, **fields: Any) -> Session:
    """A session that counts words and has room for so many."""
    window = fields.pop("window", a_window(room))
    spec = fields.pop("spec", None) or a_spec(window=window, **{**NO_MEMORY, **fields})
    return await Session.start(spec, "s1", store=store, model=talker(*replies), count_tokens=words)


async def test_the_oldest_turns_leave_first(store: Any) -> None:
    """Each prompt holds the newest whole turns that fit; the transcript holds them all."""
    # A turn takes 4 + 1 and 4 + 3 words; the room is for the input and two turns.
    session = await start_session(store, 5 + 2 * 12)
    for said in "abcde":
        await session.run(said)
    result = await session.run("f")
    assert result.prompt is not None
    assert conversation_of(result.prompt) == [*echo_conversation("d", "e"), "user: f"]
    assert lines((await reopen(session)).thread.entries) == echo_conversation(*"abcdef")
    assert session.record.turns == 6
    left = [cut for cut in result.prompt.cut if cut.part == "history"]
    assert [cut.count for cut in left] == [3]


async def test_it_is_told_when_turns_leave(store: Any) -> None:
    """An event says how many are out of sight, from the first one on and not before."""
    session = await start_session(store, 5 + 12)
    left = []
    for said in "abcd":
        result = await session.run(said)
        left.append([event.data["turns"] for event in result.events if event.kind == "context_compacted"])
    assert left == [[], [], [1], [2]]


async def test_a_tools_result_never_stands_alone(store: Any) -> None:
    """A turn with tools leaves as a whole: question, calls, results and answer."""
    till = Till()
    both = tool_calls(("pay", {"sum": 5}), ("look", {}))
    fields = {"spec": till.spec(memory=None, window=a_window(90))}
    session = await start_session(store, 0, both, "Paid.", *[f"Answer {n}" for n in range(8)], **fields)
    await session.run("pay")
    tools = {"call_1"}
    for n in range(8):
        result = await session.run(f"Question {n} " + "so " * n)
        assert result.prompt is not None
        roles = [message.role for message in result.prompt.messages]
        tools = {call.id for message in result.prompt.messages for call in message.calls}
        answers = {message.call_id for message in result.prompt.messages if message.role == "tool"}
        assert tools == answers
        assert roles[0] == "user"
    assert not tools, "the window was too large to show anything"


async def test_what_cannot_fit_is_not_sent(store: Any) -> None:
    """An input beyond the window is refused before the model is asked, and can be said again shorter."""
    session = await start_session(store, 20)
    model = talker()
    with pytest.raises(OverBudget) as caught:
        await session.run("too long " * 20, model=model)
    assert (caught.value.needed, caught.value.allowed) == (44, 20)
    assert model.requests == []
    assert (session.status, session.requests) == ("new", [])
    assert await session.chat("short", model=model) == "You said short"
    assert conversation_of(model.prompts[0]) == ["user: short"]


async def test_recent_turns_that_must_be_there_are_there_or_nothing_is_sent(store: Any) -> None:
    """With a least number of turns, a prompt that would show fewer is refused."""
    session = await start_session(store, 0, window=a_window(5 + 2 * 12, minimum_recent_turns=2))
    for said in "abc":
        await session.run(said)
    with pytest.raises(OverBudget):
        await session.run("much longer than before")
    result = await session.run("d")
    assert result.prompt is not None
    assert conversation_of(result.prompt) == [*echo_conversation("b", "c"), "user: d"]


async def test_what_left_the_window_comes_back_as_memory(store: Any) -> None:
    """A captured turn is shown as a memory once the conversation no longer shows it, and not before."""
    spec = a_spec(window=a_window(140), memory={"capture": "conversation", "max_tokens": 60})
    session = await start_session(store, 0, "I see.", spec=spec)
    fact = "My parrot is called Baltasar."
    await session.run(fact)
    seen = await session.run("What is my parrot called?")
    assert seen.prompt is not None
    assert f"user: {fact}" in conversation_of(seen.prompt)
    assert not [one for one in seen.prompt.messages if one.role == "system" and "Baltasar" in one.content]
    for n in range(12):
        await session.run(f"Something else, number {n}, about the weather today.")
    gone = await session.run("What is my parrot called?")
    assert gone.prompt is not None
    assert f"user: {fact}" not in conversation_of(gone.prompt)
    assert fact in system_of(gone.prompt)
    assert "memory_recalled" in kinds_of(gone)


async def test_nothing_is_shown_twice(store: Any) -> None:
    """However long the conversation, a turn is either in it or in the memories, never in both."""
    spec = a_spec(window=a_window(250), memory={"capture": "conversation", "max_tokens": 120})
    session = await start_session(store, 0, "Noted.", spec=spec)
    back: set[str] = set()
    for n in range(20):
        result = await session.run(f"Item number{n} of the list is tea.", request_id=f"r{n}")
        assert result.prompt is not None
        assert result.prompt.memory is not None
        remembered = {entry["metadata"]["request_id"] for entry in result.prompt.memory["entries"]}
        seen = conversation_of(result.prompt)
        visible = {f"r{at}" for at in range(n) if f"user: Item number{at} of the list is tea." in seen}
        assert not remembered & visible
        assert result.prompt.tokens["total"] <= 250
        back |= remembered
    assert back, "the window was too large to show anything"
    assert len(await captured_entries(store)) == 20


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 30), st.integers(1, 30), st.integers(0, 2)), min_size=1, max_size=8
    ),
    room=st.integers(45, 160),
)
@settings(max_examples=15)
async def test_the_prompt_is_the_newest_of_the_transcript(
    sizes: list[tuple[int, int, int]], room: int
) -> None:
    """For turns of any size: what is shown is an end of the conversation, as long as fits and no longer."""
    till, spoken = Till(), list[list[str]]()
    async with open_store("memory://", embedder="none") as store:
        spec = till.spec(memory=None, tools=[till.look], window=a_window(room + 100), instructions="Be kind.")
        session = await Session.start(spec, "s1", store=store, count_tokens=words)
        for asked, answered, tools in sizes:
            said, answer = " ".join(["in"] * asked), " ".join(["out"] * answered)
            calls = [tool_calls(*[("look", {})] * tools)] if tools else []
            result = await session.run(said, model=talker(*calls, answer))
            assert result.prompt is not None
            own = [f"user: {said}", *(["assistant: ", *["tool: 12 left"] * tools] if tools else [])]
            seen = conversation_of(result.prompt)
            assert seen[len(seen) - len(own) :] == own
            before = seen[: len(seen) - len(own)]
            turns = 0
            while sum(map(len, spoken[len(spoken) - turns :])) < len(before):
                turns += 1
            assert before == [line for turn in spoken[len(spoken) - turns :] for line in turn]
            total, allowed = result.prompt.tokens["total"], result.prompt.tokens["allowed"]
            assert total <= allowed == room + 100
            if turns < len(spoken):
                # What left may be told in a summary, of an eighth of the room.
                assert total + _size(spoken[len(spoken) - turns - 1]) + room // 8 > allowed
            spoken.append([*own, f"assistant: {answer}"])
        everything = [line for turn in spoken for line in turn]
        kept = [line for line in lines(session.thread.entries) if not line.startswith("began")]
        assert len(kept) == len(everything)


def _size(turn: list[str]) -> int:
    """How many words a turn takes: those of its messages, four around each, and `look{}` for each call."""
    calls = sum(line.startswith("tool:") for line in turn)
    return sum(AROUND + words(line.split(": ", 1)[1]) for line in turn) + (1 if calls else 0)
