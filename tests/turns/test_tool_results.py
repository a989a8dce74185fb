"""Tests of tool results: what the model receives, and how it is cut."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from tests.support.turns import Spy, Talker, a_spec, tool_calls

from omoide import Action, Agent, Entry, RecallRequest, RecallResult, action, memory, thread
from omoide.errors import ModelMisbehaved, OverBudget
from omoide.retrieval import estimate_tokens
from omoide.turns import Reply, ToolCall, preflight, turn
from omoide.turns.tools import result_text

TEA = Entry(agent_id="memory_agent", content="Tea is at five.")


@dataclass
class Point:
    """A value of somebody else's."""

    x: int


class Shape(msgspec.Struct):
    """A value of yet somebody else's."""

    name: str
    corners: list[Point]


def tool_giving(result: Any, *, pure: bool = False) -> Action:
    """A tool that gives this, or raises it."""

    def give(ctx: Any) -> Any:
        """Give something."""
        if isinstance(result, BaseException):
            raise result
        return result

    return action(give) if pure else action(effectful=True)(give)


async def run_tools(*tools: Action, **fields: Any) -> tuple[Any, list[str]]:
    """A turn in which a model asks for each of the tools, and what it was told."""
    talker = Talker(tool_calls(*[(tool.name, {}) for tool in tools]), "Done.")
    result = await turn(a_spec(memory=None, tools=[*tools], **fields), "hello", model=talker)
    return result, [one.content for one in talker.prompts[-1].messages if one.role == "tool"]


# What tools give


@pytest.mark.parametrize("kind", ["one", "several", "inside", "recalled"])
async def test_a_memory_that_a_tool_found_is_told(kind: str) -> None:
    """A tool that searches memory may return what it found as it is, and the model reads the words."""
    recalled = RecallResult(request=RecallRequest(agent_id="memory_agent", query="tea"), entries=(TEA,))
    found = {"one": TEA, "several": [TEA], "inside": {"found": TEA}, "recalled": recalled}[kind]
    result, told = await run_tools(tool_giving(found))
    assert "Tea is at five." in told[0]
    assert [effect.status for effect in result.journal if effect.kind == "tool"] == ["finished"]


async def test_a_slot_that_a_pure_action_gives_is_not_told() -> None:
    """What a pure action made of the agent's own memory is done, and not read out."""
    _, told = await run_tools(tool_giving(memory.of(Agent.new("a")), pure=True))
    assert told == ["done"]


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (datetime(2025, 6, 10, tzinfo=UTC), '"2025-06-10T00:00:00+00:00"'),
        ({"at": datetime(2025, 6, 10, tzinfo=UTC)}, '{"at":"2025-06-10T00:00:00+00:00"}'),
        (Point(1), '{"x":1}'),
        (Shape("line", [Point(1), Point(2)]), '{"name":"line","corners":[{"x":1},{"x":2}]}'),
        ({1: "one"}, '{"1":"one"}'),
        (b"ab", '"YWI="'),
    ],
)
async def test_data_is_told_in_plain_words(returned: Any, words: str) -> None:
    """Dates, structures and odd keys are told as JSON that anybody can read."""
    told = (await run_tools(tool_giving(returned)))[1][0]
    assert msgspec.json.decode(told) == msgspec.json.decode(words)


def _nest(depth: int) -> Any:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


@pytest.mark.parametrize(
    "returned",
    [
        "a\0b",
        "a\ud800b",
        {"a\0": "x\ud800"},
        float("nan"),
        [float("inf")],
        Point(1),
        [TEA],
        object(),
        _nest(5_000),
    ],
    ids=["nul", "surrogate", "inside", "nan", "inf", "dataclass", "entries", "object", "deep"],
)
async def test_a_tool_that_did_its_work_has_not_failed(returned: Any) -> None:
    """Whatever an effectful tool returns, it is told as done, so that no model does it a second time."""
    result, told = await run_tools(tool_giving(returned))
    assert [effect.status for effect in result.journal if effect.kind == "tool"] == ["finished"]
    assert "tool_failed" not in [event.kind for event in result.events]
    assert told[0]
    assert "\0" not in told[0].encode().decode()


# Tools that were cancelled from inside


async def _awaits_a_cancelled_task(ctx: Any) -> None:
    """Wait for something that is given up."""
    task = asyncio.create_task(asyncio.sleep(0))
    task.cancel()
    await task


@pytest.mark.parametrize("kind", ["task", "plain", "pure"])
@pytest.mark.parametrize("alone", [True, False])
async def test_a_tool_that_was_cancelled_from_inside_is_an_answer(kind: str, alone: bool) -> None:
    """Nobody cancelled the turn: the model is told of this one's failure and of the others' answers."""
    odd = {
        "task": action(effectful=True)(_awaits_a_cancelled_task),
        "plain": tool_giving(asyncio.CancelledError()),
        "pure": tool_giving(asyncio.CancelledError(), pure=True),
    }[kind]

    @action(effectful=True)
    async def fine(ctx: Any) -> str:
        """Work."""
        return "fine"

    result, told = await run_tools(*([odd] if alone else [odd, fine]))
    assert (result.status, result.content) == ("finished", "Done.")
    assert len(told) == (1 if alone else 2)
    assert told[1:] == [] if alone else ["fine"]
    ended = [effect.status for effect in result.journal if effect.kind == "tool"]
    assert ended == (["failed"] if alone else ["failed", "finished"])


# What is counted


async def test_parameters_that_are_no_json_are_counted_and_cut() -> None:
    """A model that writes megabytes of nonsense does not get them back, and what it gets back is counted."""
    nonsense = Reply(calls=(ToolCall(id="c1", name="give", invalid="{ broken " * 400_000),))
    talker = Talker(nonsense, "Done.")
    spec = a_spec(memory=None, tools=[tool_giving("x")], limits={"max_observation_tokens": 500})
    result = await turn(spec, "hello", model=talker)
    sent = [call.invalid for message in talker.prompts[1].messages for call in message.calls]
    assert sent[0] is not None
    assert estimate_tokens(sent[0]) <= 500
    assert talker.prompts[1].tokens["turn"] >= estimate_tokens(sent[0])
    assert len(result.journal.to_json()) < 50_000


async def test_the_shape_of_the_answer_is_counted() -> None:
    """A schema that fills the window is refused before the model is asked, and a small one takes its room."""
    small = await preflight(a_spec(memory=None, result=Shape), "hello")
    assert small.prompt.tokens["tools"] > 10
    large = msgspec.defstruct("Large", [(f"field_number_{at}", int) for at in range(2_000)])
    talker = Talker()
    with pytest.raises(OverBudget):
        await turn(a_spec(memory=None, result=large, window={"max_tokens": 8_000}), "hello", model=talker)
    assert talker.requests == []


async def test_many_long_answers_share_the_room() -> None:
    """Tools that together say more than the window holds are all told, each cut, and the turn ends."""

    @action(effectful=True)
    async def read(ctx: Any, part: int) -> str:
        """Read a long text."""
        return f"part {part}: " + "word " * 2_000

    @action(effectful=True)
    async def short(ctx: Any) -> str:
        """Say little."""
        return "It is short."

    talker = Talker(tool_calls(*[("read", {"part": part}) for part in range(30)], ("short", {})), "Done.")
    spec = a_spec(
        memory=None, tools=[read, short], window={"max_tokens": 12_000, "reserve_output_tokens": 1_000}
    )
    result = await turn(spec, "hello", model=talker)
    prompt = talker.prompts[-1]
    told = [message.content for message in prompt.messages if message.role == "tool"]
    assert (result.content, len(told), told[-1]) == ("Done.", 31, "It is short.")
    assert all(f"part {at}:" in words for at, words in enumerate(told[:-1]))
    assert prompt.tokens["total"] <= prompt.tokens["allowed"]
    assert {cut.ref for cut in prompt.cut if cut.part == "turn"} == {f"call_{at}" for at in range(1, 31)}


# What models say


@pytest.mark.parametrize("reply", ["", "  \n", Reply(), {"type": "operations", "operations": []}])
async def test_nothing_is_no_answer(reply: Any) -> None:
    """A model that says nothing and wants nothing has not answered, and nothing is captured."""
    store = Spy()
    with pytest.raises(ModelMisbehaved):
        await turn(a_spec(memory={"capture": "conversation"}), "hello", model=Talker(reply), store=store)
    assert store.writes == []


@pytest.mark.parametrize("params", [None, "{}", "", " ", {}])
async def test_no_parameters_may_be_said_in_many_ways(params: Any) -> None:
    """Nothing, an empty text and an empty object all mean that a tool is called without parameters."""
    wish = {"type": "operations", "operations": [{"id": "c1", "name": "give", "params": params}]}
    talker = Talker(wish, "Done.")
    result = await turn(a_spec(memory=None, tools=[tool_giving("given")]), "hello", model=talker)
    assert (result.content, talker.prompts[1].messages[-1].content) == ("Done.", "given")


async def test_parameters_may_come_as_text() -> None:
    """Parameters written as JSON text are read, and a text that is no JSON is told to the model."""
    got: list[int] = []

    @action(effectful=True)
    async def count(ctx: Any, to: int) -> str:
        """Count."""
        got.append(to)
        return "counted"

    operations = [{"name": "count", "params": '{"to": 3}'}, {"name": "count", "params": '{"to": '}]
    talker = Talker({"type": "operations", "operations": operations}, "Done.")
    result = await turn(a_spec(memory=None, tools=[count]), "hello", model=talker)
    told = [one.content for one in talker.prompts[1].messages if one.role == "tool"]
    assert (result.content, got, told[0]) == ("Done.", [3], "counted")
    assert "JSON" in told[1]


# What actions write into the thread


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "message", "payload": {"role": "assistant", "content": "aside"}},
        {"kind": "message", "payload": {"role": "assistant"}},
        {"kind": "tool_result", "payload": {"name": "jot"}},
        {"kind": "tool_call", "payload": {"call_id": 7}},
        {"kind": "error", "payload": {}},
        {"kind": "tool_result", "payload": {"call_id": "x", "name": "y", "status": "ok", "content": 5}},
    ],
    ids=["aside", "no-content", "no-call", "odd-call", "error", "odd-content"],
)
async def test_what_an_action_writes_into_the_thread_is_not_taken_for_ours(entry: dict[str, Any]) -> None:
    """Entries that look like a turn's own and lack what those have neither fail the turn nor answer it."""

    @action
    def jot(ctx: Any) -> Any:
        """Write something down."""
        said = {**entry["payload"], "request_id": ctx.request_id}
        return thread.of(ctx.agent).append({"kind": entry["kind"], "payload": said})

    result, told = await run_tools(jot)
    assert (result.content, told) == ("Done.", ["done"])


def test_a_set_that_a_tool_gives_is_told_in_order() -> None:
    """The members of a set are sorted, so that the text is the same in every process."""
    members = [f"room {number}" for number in range(10, 40)]
    assert json.loads(result_text({"rooms": {*members}})) == {"rooms": members}
    assert json.loads(result_text(frozenset(members))) == members
