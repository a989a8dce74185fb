"""Tests of preflight: the prompt of a turn without the turn."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.turns import ALEX, KINDS, Spy, Talker, a_spec, a_store, entries_of, kinds_of, system_of

from omoide import action, turns
from omoide.errors import NotFound, OmoideError
from omoide.turns import Message, preflight, turn, write


@action(effectful=True)
async def explode(ctx: Any) -> str:
    """Do what must not be done."""
    raise AssertionError("a preflight ran a tool")


@pytest.mark.parametrize("kind", KINDS)
async def test_a_preflight_shows_the_prompt_and_changes_nothing(kind: str, tmp_path: Path) -> None:
    """The prompt is that of the turn, and the store holds afterwards what it held before."""
    spec = a_spec(memory={"scope": "session", "capture": "conversation"}, tools=[explode])
    async with a_store(kind, tmp_path) as store:
        await write(spec, ALEX, store=store, session_id="conv-1")
        before = await entries_of(store)
        seen = await preflight(spec, "hello", store=store, session_id="conv-1")
        assert "prefers the name Alex" in system_of(seen.prompt)
        assert await entries_of(store) == before
        talker = Talker()
        await turn(spec, "hello", model=talker, store=store, session_id="conv-1")
        assert talker.prompts[0] == seen.prompt


async def test_preflight_is_a_verb_however_it_is_found() -> None:
    """The function and the module of the same name do not get in each other's way."""
    found = [getattr(turns, "preflight") for _ in range(2)]  # noqa: B009 - what a program would find
    assert found == [preflight, preflight]


async def test_a_preflight_needs_no_model() -> None:
    """A spec without a model, or with one that nobody can reach, is shown all the same."""
    for model in (None, "nobody:knows-it"):
        seen = await preflight(a_spec(model=model), "hello", store=Spy())
        assert seen.prompt.model == model
        assert seen.prompt.messages[-1].content == "hello"


async def test_a_preflight_asks_the_store_what_the_turn_asks() -> None:
    """The same request goes to the store, once."""
    store, spec = Spy(), a_spec(memory={"max_entries": 3})
    await preflight(spec, "hello", store=store)
    await turn(spec, "hello", model=Talker(), store=store)
    assert len(store.recalls) == 2
    assert store.recalls[0].replace(at=0) == store.recalls[1].replace(at=0)
    assert store.log == ["recall", "recall"]


async def test_a_preflight_says_who_asks_what() -> None:
    """Agent, plan, request, prompt, events, timeline and diagnostics are there."""
    store, spec = Spy(), a_spec(tools=[explode])
    await write(spec, ALEX, store=store)
    seen = await preflight(
        spec, "hello", store=store, session_id="conv-1", request_id="req_1", context={"locale": "fr"}
    )
    assert "memory_agent" in str(seen.agent)
    assert (seen.request.input, seen.request.id, seen.request.session_id) == ("hello", "req_1", "conv-1")
    assert seen.request.context == {"locale": "fr"}
    assert seen.plan
    assert [operation.name for operation in seen.prompt.operations] == ["explode"]
    kinds = kinds_of(seen)
    assert kinds.index("memory_recalled") < kinds.index("prompt_assembled")
    assert not {"model_called", "tool_started", "memory_written", "turn_finished"} & {*kinds}
    assert seen.timeline


async def test_a_preflight_has_no_recall_event_for_nothing() -> None:
    """As in a turn, an empty recall is no event."""
    seen = await preflight(a_spec(), "hello", store=Spy())
    assert "memory_recalled" not in kinds_of(seen)
    assert seen.prompt.memory == {"entries": [], "count": 0}


async def test_a_forgotten_store_is_pointed_out() -> None:
    """Memory without a store is no error, and the diagnostics say why nothing was remembered."""
    seen = await preflight(a_spec(), "hello")
    assert seen.prompt.memory is None
    assert any("No store" in str(one) for one in seen.diagnostics)
    assert "No store" in str(seen)


async def test_nothing_wrong_is_nothing_said() -> None:
    """With a store, and with memory that is off, there is no remark about a store."""
    for memory, store in ((True, Spy()), (None, None), ({"enabled": False}, None)):
        seen = await preflight(a_spec(memory=memory), "hello", store=store)
        assert not any("No store" in str(one) for one in seen.diagnostics)


async def test_secrets_are_not_shown() -> None:
    """Neither the values nor what is printed holds a secret."""
    seen = await preflight(a_spec(), "hello", store=Spy(), secrets={"key": "hunter2"})
    assert "hunter2" not in str(seen) + repr(seen)


async def test_a_printed_preflight_tells_the_whole_story() -> None:
    """Printed, it has the messages, the memory with its reasons, the tools, the tokens and what was cut."""
    store, spec = Spy(), a_spec(tools=[explode], memory={"max_tokens": 80})
    await write(spec, ALEX, store=store)
    await write(spec, "hello " * 500, store=store)
    seen = await preflight(spec, "hello", store=store)
    printed = str(seen)
    for part in ("memory_agent", "Greet the user", "prefers the name Alex", "hello", "explode", "tokens"):
        assert part in printed, part
    assert "cut" in printed or "max_tokens" in printed


async def test_a_printed_preflight_cannot_steer_a_terminal() -> None:
    """Control characters of a memory or an input are not sent to the terminal as they are."""
    store, spec = Spy(), a_spec()
    await write(spec, "a\x1b[2Jb\x07\u202ec", store=store)
    history = (Message(role="user", content="x\x1b[31m"), Message(role="assistant", content="y\x9b2J"))
    seen = await preflight(spec, "hello\x1b[2J", store=store, history=history)
    assert not {"\x1b", "\x07", "\x9b", "\u202e"} & {*str(seen)}


async def test_what_a_turn_would_refuse_a_preflight_refuses() -> None:
    """A tool without code, and a recall that fails, are errors here as well."""
    store = Spy()
    with pytest.raises(NotFound, match="nowhere"):
        await preflight(a_spec(tools=["nowhere"]), "hello", store=store)
    store.recall_fails = RuntimeError("the disk is on fire")
    with pytest.raises(OmoideError, match="on fire"):
        await preflight(a_spec(), "hello", store=store)
