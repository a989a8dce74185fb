"""Tests of pinned memories: they stand in every prompt, first, within a budget of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.sessions import KINDS, a_spec
from tests.support.turns import Talker, a_store, tool_calls

import omoide
from omoide import Scope, action
from omoide.errors import Invalid, OverBudget, WrongType
from omoide.sessions import Session
from omoide.shortterm import TokenBudget
from omoide.verbs import pinned

SCOPE = Scope(agent_id="ada")


async def pinned_memory(store: Any, content: str, scope: Scope = SCOPE, **fields: Any) -> str:
    """Remember something, pin it and return its id."""
    receipt = await omoide.remember(store, content, scope, **fields)
    await omoide.pin(store, receipt.entry.id, scope)
    return receipt.entry.id


async def pinned_text(session: Session) -> str:
    """Return the pinned part of the next prompt."""
    text = (await session.preflight("hello")).prompt.messages[0].content
    return text.partition("<pinned>")[2].partition("</pinned>")[0]


@pytest.mark.parametrize("kind", KINDS)
async def test_a_pinned_memory_is_in_every_prompt(kind: str, tmp_path: Path) -> None:
    """It stands first, whole and with its source, whatever is asked, until it is unpinned."""
    model, seen = Talker("Fine."), None
    async with a_store(kind, tmp_path) as store:
        id = await pinned_memory(store, "Answer in Portuguese.", source="user", type="convention")
        for number in range(3):
            spec = a_spec(instructions="Be kind.")
            async with Session.open(spec, f"s{number}", store=store, model=model) as session:
                session.context.put("framework", "Phoenix")
                seen = await session.preflight(f"question {number}")
                await session.chat(f"question {number}")
                assert seen.prompt.messages == model.prompts[-1].messages
                if number == 1:
                    assert (await session.unpin(id)).id == id
    system = [prompt.messages[0].content for prompt in model.prompts]
    line = '(from user, convention): "Answer in Portuguese."\n</pinned>'
    assert [line in text for text in system] == [True, True, False]
    assert system[0].index("<pinned>") < system[0].index("<session>")
    assert seen is not None
    assert seen.prompt.tokens.get("pinned") is None
    assert model.prompts[0].tokens["pinned"] > 0


async def test_a_pinned_memory_is_shown_once() -> None:
    """What is pinned and recalled stands among the pins alone."""
    model = Talker("Fine.")
    async with omoide.open_store("memory://") as store:
        await pinned_memory(store, "The user lives in Lyon.")
        async with Session.open(a_spec(), "s", store=store, model=model) as session:
            await session.chat("Where does the user live?")
    assert model.prompts[0].messages[0].content.count("Lyon") == 1


async def test_a_pinned_memory_is_not_reported_as_left_out() -> None:
    """One that recall withheld as not relevant stands among the pins all the same."""
    spec = a_spec(memory={"min_relevance": 0.9})
    async with omoide.open_store("memory://") as store:
        id = await pinned_memory(store, "The user lives in Lyon.")
        other = (await omoide.remember(store, "The user lives near Lyon.", SCOPE)).entry.id
        async with Session.open(spec, "s", store=store, model=Talker("Fine.")) as session:
            prompt = (await session.preflight("Has the user seen Lyon?")).prompt
    assert "in Lyon" in prompt.messages[0].content
    left_out = [cut.ref for cut in prompt.cut]
    assert (id in left_out, other in left_out) == (False, True)


async def test_pins_have_a_budget_of_their_own() -> None:
    """A pin that does not fit into it is left out and named; those that fit are never cut."""
    spec = a_spec(memory={"max_pinned_tokens": 60})
    async with omoide.open_store("memory://", embedder="none") as store:
        await pinned_memory(store, "Short.")
        long = await pinned_memory(store, "long " * 200)
        async with Session.open(spec, "s", store=store, model=Talker("Fine.")) as session:
            seen = await session.preflight("hello")
        assert '"Short."' in seen.prompt.messages[0].content
        assert [(cut.part, cut.ref) for cut in seen.prompt.cut if cut.part == "pinned"] == [("pinned", long)]
        small = TokenBudget(total=40, conversation=20, context=20)
        async with Session.open(spec, "t", store=store, model=Talker("Fine."), token_budget=small) as session:
            with pytest.raises(OverBudget):
                await session.chat("hello there, how are you")


async def test_pins_are_listed_of_all_agents_and_users() -> None:
    """A scope that names no agent or no user lists the pins of all; a prompt shows those of its own."""
    async with omoide.open_store("memory://", embedder="none") as store:
        await pinned_memory(store, "Ines likes tea.", SCOPE.replace(user_id="ines"))
        await pinned_memory(store, "Be brief.")
        await pinned_memory(store, "Be loud.", Scope(agent_id="bob"))
        listed = {entry.content for entry in await pinned(store, Scope())}
        assert listed == {"Ines likes tea.", "Be brief.", "Be loud."}
        assert {entry.content for entry in await pinned(store, SCOPE)} == {"Ines likes tea.", "Be brief."}
        async with Session.open(a_spec(), "s", store=store, model=Talker("Fine.")) as session:
            text = await pinned_text(session)
    assert ["Be brief." in text, "Ines" in text, "Be loud." in text] == [True, False, False]


async def test_a_policy_of_the_user_shows_the_pins_of_all_their_agents() -> None:
    """A memory of another agent that a session pins stands in its prompts, its own pins first."""
    spec = a_spec(memory={"scope": "user"})
    other = Scope(agent_id="bob", user_id="ines")
    async with omoide.open_store("memory://", embedder="none") as store:
        await pinned_memory(store, "Ben likes rum.", Scope(agent_id="bob", user_id="ben"))
        receipt = await omoide.remember(store, "Call her Ines.", other)
        async with Session.open(spec, "s", store=store, model=Talker("Fine."), user_id="ines") as session:
            await session.pin(receipt.entry.id)
            await pinned_memory(store, "Be brief.", SCOPE.replace(user_id="ines"))
            text = await pinned_text(session)
    assert "Ben" not in text
    assert 0 < text.index("Be brief.") < text.index("Call her Ines.")


async def test_a_session_without_a_user_pins_nothing_of_one() -> None:
    """Such a pin would be for the user, and never in a prompt of the session."""
    async with omoide.open_store("memory://", embedder="none") as store:
        receipt = await omoide.remember(store, "Likes tea.", SCOPE.replace(user_id="ines"))
        async with Session.open(a_spec(), "s", store=store, model=Talker("Fine.")) as session:
            with pytest.raises(Invalid, match="belongs to user 'ines'"):
                await session.pin(receipt.entry.id)
        assert await pinned(store, Scope()) == []


async def test_pins_that_leave_no_room_leave_no_turn_behind() -> None:
    """The error names them before anything is persisted, and the session goes on without them."""
    spec = a_spec(memory={"max_pinned_tokens": 300})
    small = TokenBudget(total=200, conversation=100, context=100)
    async with omoide.open_store("memory://", embedder="none") as store:
        long = await pinned_memory(store, "long " * 200)
        async with Session.open(spec, "s", store=store, model=Talker("Fine."), token_budget=small) as session:
            with pytest.raises(OverBudget, match=r"of them for pins, and 200 are allowed; .* unpin memories"):
                await session.chat("hello there")
            assert (session.status, len(session.thread.entries)) == ("new", 0)
            await session.unpin(long)
            assert await session.chat("hello there") == "Fine."


async def test_pins_have_their_room_beside_the_results_of_tools() -> None:
    """A long result is shortened to what pins leave; it never takes the turn over its budget."""

    @action(effectful=True)
    def read_log(ctx: Any) -> str:
        """Read the log."""
        return "line of the log. " * 500

    model = Talker(tool_calls(("read_log", {})), "Done.")
    small = TokenBudget(total=600, conversation=300, context=300)
    async with omoide.open_store("memory://", embedder="none") as store:
        await pinned_memory(store, "Be brief, and never guess. " * 10)
        spec = a_spec(tools=[read_log])
        async with Session.open(spec, "s", store=store, model=model, token_budget=small) as session:
            assert await session.chat("read it") == "Done."
    assert "never guess" in model.prompts[-1].messages[0].content
    assert max(prompt.tokens["total"] for prompt in model.prompts) <= 600


async def test_pins_are_those_of_a_scope() -> None:
    """Anything else is refused, with the name of the argument."""
    async with omoide.open_store("memory://", embedder="none") as store:
        with pytest.raises(WrongType, match="scope must be a Scope"):
            await pinned(store, "ada")  # type: ignore[arg-type]
