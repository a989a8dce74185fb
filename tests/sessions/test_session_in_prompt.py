"""Tests of what a prompt shows of its session: working context, added messages, summary, memories, budget."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.sessions import a_spec
from tests.support.turns import Talker, tool_calls

from omoide import action, open_store
from omoide.errors import Invalid, OverBudget
from omoide.sessions import Session
from omoide.shortterm import TokenBudget
from omoide.turns import AgentSpec, Prompt, turn
from omoide.turns.prompt import message_tokens


def a_budget(total: int) -> TokenBudget:
    """Return a token budget of so many tokens in all."""
    return TokenBudget(total=total, conversation=total // 2, context=total // 3)


def counted(prompt: Prompt, count: Any) -> int:
    """Return the tokens of a prompt without tools."""
    return message_tokens(prompt.messages, count)


async def test_the_prompt_shows_values_and_added_messages() -> None:
    """Values of the working context and messages of no turn are quoted in the system message."""
    async with open_store("memory://") as store:
        model = Talker("Fine.")
        async with Session.open(a_spec(), "s1", store=store, model=model) as session:
            session.context.put("framework", "Phoenix 1.7", source="tool", confidence=0.9)
            await session.add_message("user", 'We deploy on "Fridays".</session>')
            seen = await session.preflight("What do we use?")
            await session.chat("What do we use?")
        system = model.prompts[0].messages[0].content
        assert '- "framework": "Phoenix 1.7" (tool, high confidence)\n' in system
        assert '- user: "We deploy on \\"Fridays\\".\\u003c/session\\u003e"\n' in system
        assert system.count("</session>") == 1
        assert seen.prompt.messages == model.prompts[0].messages
        assert seen.prompt.tokens["context"] > 0
        assert seen.prompt.tokens["messages"] > 0
        assert "context " in str(seen)


async def test_what_left_the_prompt_is_summarised() -> None:
    """Turns that do not fit any more are told in a summary, within the budget."""
    async with open_store("memory://") as store:
        model = Talker("I see, and I will keep that in mind for everything that follows from here on.")
        spec = AgentSpec(id="ada")
        budget = a_budget(600)
        async with Session.open(spec, "s1", store=store, model=model, token_budget=budget) as session:
            for number in range(20):
                await session.chat(f"We decided to use database {number} because it is fast enough.")
            seen = await session.preflight("And now?")
        prompt = seen.prompt
        assert prompt.tokens["summary"] > 0
        visible = {message.content for message in prompt.messages}
        said = [f"We decided to use database {number} because it is fast enough." for number in range(20)]
        gone = [text for text in said if text not in visible]
        assert gone[-1] in prompt.messages[0].content
        assert any(cut.part == "history" for cut in prompt.cut)
        assert prompt.tokens["total"] <= 600


@action(effectful=True)
def note_branch(ctx: Any, branch: str) -> str:
    """Note the branch."""
    before = ctx.context.get("branch")
    ctx.context.put("branch", branch, source="tool")
    return f"was {before}"


async def test_tools_fill_the_working_context() -> None:
    """A tool puts and gets values without a closure, and the next round of the same turn shows them."""
    calls = tool_calls(("note_branch", {"branch": "x"}))
    model = Talker(calls, "Noted.")
    async with open_store("memory://") as store:
        spec = a_spec(tools=[note_branch])
        async with Session.open(spec, "s1", store=store, model=model) as session:
            await session.chat("We are on branch x.")
            assert session.context.get("branch") == "x"
    assert '- "branch": "x" (tool' in model.prompts[1].messages[0].content


async def test_a_turn_without_a_session_has_no_working_context() -> None:
    """A tool of a turn without a session that asks for it gets an error that says what to do."""
    calls = tool_calls(("note_branch", {"branch": "x"}))
    model = Talker(calls, "Noted.")
    await turn(a_spec(tools=[note_branch]), "hello", model=model)
    assert "run it with Session" in model.prompts[1].messages[-1].content


async def test_memories_as_a_message_of_their_own() -> None:
    """With `inject="message"` memories stand right before the user's message, apart from the rest."""
    async with open_store("memory://") as store:
        spec = a_spec(instructions="Be kind.", memory={"inject": "message"})
        model = Talker("Tea.")
        async with Session.open(spec, "s1", store=store, model=model) as session:
            await session.remember("The user likes green tea.")
            seen = await session.preflight("Which tea does the user like?")
            await session.chat("Which tea does the user like?")
    system, memory, user = model.prompts[0].messages
    assert system.content == "Be kind."
    assert (memory.role, user.content) == ("user", "Which tea does the user like?")
    assert "The user likes green tea." in memory.content
    assert seen.prompt.messages == model.prompts[0].messages


@pytest.mark.parametrize("inject", ["instructions", "message"])
async def test_what_must_not_be_cut_and_does_not_fit_is_an_error(inject: str) -> None:
    """Where instructions and message alone exceed the budget, an error comes before the model is called."""
    async with open_store("memory://") as store:
        spec = AgentSpec(id="ada", instructions="Be kind. " * 50, memory={"inject": inject})
        model = Talker("Never.")
        budget = a_budget(60)
        async with Session.open(spec, "s1", store=store, model=model, token_budget=budget) as session:
            with pytest.raises(OverBudget):
                await session.chat("hello")
            with pytest.raises(Invalid):
                await session.preflight("hello")
    assert model.prompts == []


words = st.text('abc \n<"', min_size=1, max_size=300).filter(str.strip)


@given(
    turns=st.lists(st.tuples(words, words), max_size=5),
    added=st.lists(words, max_size=4),
    values=st.lists(words, max_size=4),
    total=st.integers(120, 1_500),
    inject=st.sampled_from(["instructions", "message", "context"]),
    count=st.sampled_from([len, lambda text: len(text.split()), lambda text: -(-len(text) // 4)]),
)
async def test_no_prompt_exceeds_the_budget(
    turns: list[tuple[str, str]],
    added: list[str],
    values: list[str],
    total: int,
    inject: str,
    count: Any,
) -> None:
    """For any history the prompt takes at most the budget, and keeps instructions and the newest message."""
    answers = Talker(*[answer for _, answer in turns], "Yes.")
    spec = AgentSpec(id="ada", instructions="Be kind.", memory={"capture": "messages", "inject": inject})
    options: dict[str, Any] = {"model": answers, "count_tokens": count, "token_budget": a_budget(total)}
    async with (
        open_store("memory://", embedder="none") as store,
        Session.open(spec, "s1", store=store, **options) as session,
    ):
        for at, value in enumerate(values):
            if count(value) < total // 12:
                session.context.put(f"k{at}", value)
        for text in added:
            await session.add_message("user", text)
        for input, _ in turns:
            try:
                await session.chat(input)
            except OverBudget:
                continue
        seen = await session.preflight("a b c?")
        await session.chat("a b c?")
    for prompt in answers.prompts:
        assert counted(prompt, count) == prompt.tokens["total"] <= total
        assert prompt.messages[0].content.startswith("Be kind.")
    assert answers.prompts[-1].messages[-1].content == "a b c?"
    assert seen.prompt.messages == answers.prompts[-1].messages
