"""Tests of prompts: their parts, and the order of them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.support.turns import (
    ALEX,
    INSTRUCTIONS,
    Spy,
    Talker,
    a_spec,
    kinds_of,
    system_of,
    text_of,
    tool_calls,
)

from omoide import action
from omoide.errors import OverBudget
from omoide.retrieval import estimate_tokens
from omoide.turns import Exchange, Message, Prompt, preflight, turn, write

INJECTS = ("instructions", "context")


@action(effectful=True)
async def look_up(ctx: Any, city: str) -> str:
    """Look up the weather of a city."""
    return f"It is sunny in {city}."


async def prompt_of(input: str = "hello", /, *, facts: tuple[str, ...] = (ALEX,), **fields: Any) -> Prompt:
    """The prompt of a turn whose memory holds some facts."""
    store, talker, spec = Spy(), Talker(), a_spec(**fields)
    for fact in facts:
        await write(spec, fact, store=store)
    await turn(spec, input, model=talker, store=store)
    return talker.prompts[0]


async def test_memory_is_part_of_the_first_and_only_system_message() -> None:
    """What is recalled stands in the system message behind the instructions, not in a message of its own."""
    prompt = await prompt_of()
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert system_of(prompt).startswith(INSTRUCTIONS)
    assert "prefers the name Alex" in system_of(prompt)
    assert prompt.messages[1].content == "hello"


async def test_memory_needs_no_instructions() -> None:
    """An agent without instructions is shown what it remembers as well."""
    prompt = await prompt_of(instructions="")
    assert [message.role for message in prompt.messages] == ["system", "user"]
    assert "prefers the name Alex" in system_of(prompt)


async def test_memory_as_context_is_in_no_message() -> None:
    """Under inject context the model reads nothing of it; the program finds it in `prompt.memory`."""
    prompt = await prompt_of(memory={"inject": "context"})
    assert "Alex" not in text_of(prompt)
    assert system_of(prompt) == INSTRUCTIONS
    assert prompt.memory is not None
    assert prompt.memory["entries"][0]["content"] == ALEX


@pytest.mark.parametrize("inject", INJECTS)
async def test_the_prompt_says_what_was_remembered(inject: str) -> None:
    """`prompt.memory` holds the entries, each with id and content, and their count, in both modes."""
    prompt = await prompt_of(memory={"inject": inject}, facts=("one", "two"))
    memory = prompt.memory
    assert memory is not None
    assert memory["count"] == len(memory["entries"]) == 2
    assert {entry["content"] for entry in memory["entries"]} == {"one", "two"}
    assert all(entry["id"].startswith("mem_") for entry in memory["entries"])


@pytest.mark.parametrize("inject", INJECTS)
async def test_nothing_remembered_adds_nothing(inject: str) -> None:
    """With nothing to recall the system message is the instructions, byte by byte, and the count is 0."""
    prompt = await prompt_of(memory={"inject": inject}, facts=())
    assert system_of(prompt) == INSTRUCTIONS
    assert prompt.memory == {"entries": [], "count": 0}


async def test_nothing_asked_is_no_memory() -> None:
    """Where no store was given, `prompt.memory` is None and the instructions stand alone."""
    talker = Talker()
    await turn(a_spec(), "hello", model=talker)
    assert talker.prompts[0].memory is None
    assert system_of(talker.prompts[0]) == INSTRUCTIONS


async def test_an_agent_without_instructions_and_memory_has_no_system_message() -> None:
    """An empty system message is left out."""
    talker = Talker()
    await turn(a_spec(instructions="", memory=None), "hello", model=talker)
    assert [message.role for message in talker.prompts[0].messages] == ["user"]


async def test_messages_stand_in_the_order_of_the_conversation() -> None:
    """System, what was said before, the input, and what this turn has done so far."""
    store, spec = Spy(), a_spec(tools=[look_up])
    await write(spec, ALEX, store=store)
    talker = Talker(tool_calls(("look_up", {"city": "Kyoto"})), "Sunny.")
    history = (Message(role="user", content="Hi."), Message(role="assistant", content="Hello!"))
    await turn(spec, "And Kyoto?", model=talker, store=store, history=history)
    first, second = talker.prompts
    assert [(one.role, one.content) for one in first.messages[1:]] == [
        ("user", "Hi."),
        ("assistant", "Hello!"),
        ("user", "And Kyoto?"),
    ]
    assert second.messages[: len(first.messages)] == first.messages
    asked, answered = second.messages[len(first.messages) :]
    assert [call.name for call in asked.calls] == ["look_up"]
    assert (answered.role, answered.call_id, answered.name) == ("tool", "call_1", "look_up")
    assert "sunny in Kyoto" in answered.content
    assert "prefers the name Alex" in first.messages[0].content


async def test_a_prompt_says_everything_a_model_is_told() -> None:
    """Model, generation, operations, context and the round are in the prompt as data."""
    talker = Talker(tool_calls(("look_up", {"city": "Kyoto"})), "Sunny.")
    spec = a_spec(model="test:small", tools=[look_up], generation={"temperature": 0.2, "max_tokens": 50})
    await turn(spec, "hello", model=talker, context={"locale": "fr"})
    first, second = talker.prompts
    assert (first.model, first.generation) == ("test:small", {"temperature": 0.2, "max_tokens": 50})
    assert first.context == {"locale": "fr"}
    operation = first.operations[0]
    assert (operation.name, operation.description) == ("look_up", "Look up the weather of a city.")
    assert "city" in operation.schema["properties"]
    assert (first.loop_index, second.loop_index) == (0, 1)
    assert first.result is None


async def test_a_prompt_holds_data_only() -> None:
    """A prompt goes to JSON and back without loss."""
    prompt = await prompt_of(tools=[look_up])
    assert Prompt.from_json(prompt.to_json()) == prompt


async def test_secrets_are_in_no_prompt() -> None:
    """What only tools may see stands nowhere in what a model is shown."""
    talker = Talker()
    result = await turn(a_spec(), "hello", model=talker, context={"locale": "fr"}, secrets={"key": "hunter2"})
    assert b"hunter2" not in talker.prompts[0].to_json()
    assert "hunter2" not in repr(result.events)
    assert b"hunter2" not in talker.requests[0].to_json()


async def test_what_looks_like_a_secret_is_not_shown_from_the_context() -> None:
    """A key or a password that a program put into the context is left out of the prompt."""
    talker = Talker()
    context = {"locale": "fr", "api_key": "sk-hunter2hunter2hunter2hunter2", "connection": object()}
    await turn(a_spec(), "hello", model=talker, context=context)
    assert talker.prompts[0].context == {"locale": "fr"}


async def test_what_a_tool_may_see_it_sees() -> None:
    """A tool finds the context and the secrets of the turn in its own context."""
    seen: list[Any] = []

    @action(effectful=True)
    def peek(ctx: Any) -> str:
        """Look at what is there."""
        seen.append((ctx.secrets["key"], ctx.data["locale"]))
        return "done"

    talker = Talker(tool_calls(("peek", {})), "Done.")
    await turn(
        a_spec(tools=[peek]), "hello", model=talker, context={"locale": "fr"}, secrets={"key": "hunter2"}
    )
    assert seen == [("hunter2", "fr")]
    assert b"hunter2" not in talker.prompts[1].to_json()


async def test_the_same_turn_is_shown_the_same_prompt() -> None:
    """Spec, memory and input decide a prompt: asked twice, it is the same to the byte."""
    store, spec, talker = Spy(), a_spec(), Talker()
    await write(spec, ALEX, store=store)
    for _ in range(2):
        await turn(spec, "hello", model=talker, store=store)
    seen = await preflight(spec, "hello", store=store)
    first, second = talker.prompts
    assert first.to_json() == second.to_json() == seen.prompt.to_json()


async def test_the_last_prompt_comes_with_the_result() -> None:
    """`result.prompt` is what the model saw when it answered."""
    talker = Talker(tool_calls(("look_up", {"city": "Kyoto"})), "Sunny.")
    result = await turn(a_spec(tools=[look_up]), "hello", model=talker)
    assert result.prompt == talker.prompts[-1]


async def test_more_memory_than_allowed_is_left_out_and_said() -> None:
    """What does not fit into the memory's budget is cut or left out, and the prompt says which and why."""
    facts = tuple(f"Fact {at}: {'word ' * 60}" for at in range(5))
    prompt = await prompt_of(memory={"max_tokens": 80}, facts=facts)
    memory = prompt.memory
    assert memory is not None
    inside = [fact for fact in facts if fact[:7] in system_of(prompt)]
    assert 0 < len(inside) < 5
    assert memory["count"] == len(memory["entries"]) == len(inside)
    assert prompt.tokens["memory"] <= 80
    assert len({cut.ref for cut in prompt.cut}) == 5
    assert all(cut.part == "memory" and "max_tokens" in cut.reason for cut in prompt.cut)


async def test_the_parts_of_a_prompt_add_up() -> None:
    """What each part takes is counted on what is sent, and the total is their sum."""
    prompt = await prompt_of(tools=[look_up])
    parts = {name: tokens for name, tokens in prompt.tokens.items() if name not in ("total", "allowed")}
    assert sum(parts.values()) == prompt.tokens["total"]
    assert all(parts[name] > 0 for name in ("instructions", "memory", "input", "tools"))
    assert estimate_tokens(text_of(prompt)) <= prompt.tokens["total"]


async def test_the_oldest_turns_leave_whole() -> None:
    """A full window loses whole turns, the oldest first, never the input, and says which."""
    history = [
        Exchange(
            request_id=f"req_{at}",
            messages=(
                Message(role="user", content=f"question {at} " + "word " * 50),
                Message(role="assistant", content=f"answer {at} " + "word " * 50),
            ),
        )
        for at in range(10)
    ]
    talker = Talker()
    spec = a_spec(memory=None, window={"max_tokens": 800, "reserve_output_tokens": 100})
    result = await turn(spec, "hello", model=talker, history=history)
    prompt = talker.prompts[0]
    said = [message for message in prompt.messages if message.role != "system"]
    assert said[-1].content == "hello"
    kept = [at for at in range(10) if any(f"question {at} " in one.content for one in said)]
    assert kept == [*range(10)][-len(kept) :]
    assert 0 < len(kept) < 10
    assert len(said) == 2 * len(kept) + 1
    assert prompt.tokens["total"] <= 700
    assert [(cut.part, cut.ref, cut.count) for cut in prompt.cut] == [
        ("history", f"req_{9 - len(kept)}", 10 - len(kept))
    ]
    assert "context_compacted" in kinds_of(result)


async def test_an_input_that_does_not_fit_is_refused() -> None:
    """Words that leave no room are an error before the model is asked; nothing is cut in silence."""
    talker = Talker()
    spec = a_spec(window={"max_tokens": 200, "reserve_output_tokens": 100})
    with pytest.raises(OverBudget, match="tokens"):
        await turn(spec, "word " * 1_000, model=talker)
    assert talker.requests == []


async def test_turns_that_must_stay_are_not_dropped() -> None:
    """Where the least number of recent turns does not fit, the turn is refused instead."""
    history = [Message(role="user", content="word " * 500), Message(role="assistant", content="Fine.")]
    window = {"max_tokens": 300, "reserve_output_tokens": 100, "minimum_recent_turns": 1}
    with pytest.raises(OverBudget):
        await turn(a_spec(window=window), "hello", model=Talker(), history=history)
