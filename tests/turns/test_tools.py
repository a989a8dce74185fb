"""Tests of tool calls in turns."""

from __future__ import annotations

import gc
import threading
from typing import Any

import anyio
import pytest
from tests.support.turns import Spy, Talker, a_spec, kinds_of, tool_calls

from omoide import Action, Agent, Plugin, action, memory
from omoide.errors import NotFound, TooManyRounds
from omoide.retrieval import estimate_tokens
from omoide.turns import Reply, ToolCall, turn


@action(effectful=True)
async def add(ctx: Any, a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


@action(effectful=True)
def shout(ctx: Any, text: str) -> str:
    """Say it louder."""
    return text.upper()


@action
def believe(ctx: Any, key: str, value: str) -> Any:
    """Take something for true."""
    return ctx.memory.world_put(key, value)


@action(effectful=True)
async def fail(ctx: Any) -> str:
    """Go wrong."""
    raise RuntimeError("the printer is on fire")


@action(effectful=True)
async def hang(ctx: Any) -> str:
    """Never answer."""
    await anyio.sleep_forever()
    return "never"


async def observe_tools(
    *tools: Action, calls: tuple[tuple[str, dict[str, Any]], ...], **fields: Any
) -> list[str]:
    """What a model is told after it asked for these tools, in order."""
    talker = Talker(tool_calls(*calls), "Done.")
    result = await turn(a_spec(memory=None, tools=[*tools], **fields), "hello", model=talker)
    assert result.content == "Done."
    return [message.content for message in talker.prompts[-1].messages if message.role == "tool"]


async def test_tools_answer_the_model() -> None:
    """Async and plain tools run, and their answers go back under the ids of their calls."""
    talker = Talker(tool_calls(("add", {"a": 2, "b": 3}), ("shout", {"text": "hi"})), "Done.")
    result = await turn(a_spec(tools=[add, shout]), "hello", model=talker)
    told = [message for message in talker.prompts[1].messages if message.role == "tool"]
    assert [(one.call_id, one.name, one.content) for one in told] == [
        ("call_1", "add", "5"),
        ("call_2", "shout", "HI"),
    ]
    assert (result.rounds, len(talker.requests)) == (2, 2)
    assert kinds_of(result).count("tool_finished") == 2


async def test_defaults_of_parameters_are_filled_in() -> None:
    """A parameter with a default may be left out by the model."""
    assert await observe_tools(add, calls=(("add", {"a": 2}),)) == ["3"]


@pytest.mark.parametrize(
    ("returned", "told"),
    [
        ("text", "text"),
        (7, "7"),
        (None, None),
        ([1, "two"], '[1,"two"]'),
        ({"b": 1}, '{"b":1}'),
        (True, "true"),
    ],
)
async def test_what_a_tool_returns_is_told_as_text_or_json(returned: Any, told: str | None) -> None:
    """Text is told as it is, data as JSON, and nothing as something that is not empty."""

    @action(effectful=True)
    async def give(ctx: Any) -> Any:
        """Give something."""
        return returned

    said = (await observe_tools(give, calls=(("give", {}),)))[0]
    assert said
    if told is not None:
        assert said.replace(" ", "") == told


async def test_calls_of_one_round_run_at_the_same_time() -> None:
    """Two tools that wait for each other both answer, in the order in which they were asked for."""
    here, there = anyio.Event(), anyio.Event()

    @action(effectful=True)
    async def first(ctx: Any) -> str:
        """Come first."""
        here.set()
        await there.wait()
        return "first"

    @action(effectful=True)
    async def second(ctx: Any) -> str:
        """Come second."""
        there.set()
        await here.wait()
        return "second"

    with anyio.fail_after(10):
        assert await observe_tools(first, second, calls=(("first", {}), ("second", {}))) == [
            "first",
            "second",
        ]


async def test_plain_functions_run_at_the_same_time_as_well() -> None:
    """Plain tools have threads of their own and do not hold up the others."""
    together = threading.Barrier(2, timeout=10)

    @action(effectful=True)
    def meet(ctx: Any) -> str:
        """Wait for another one."""
        together.wait()
        return "met"

    assert await observe_tools(meet, calls=(("meet", {}), ("meet", {}))) == ["met", "met"]


@pytest.mark.parametrize("allowed", [1, 3])
async def test_no_more_run_at_once_than_allowed(allowed: int) -> None:
    """However many calls a model makes, only `limits.parallel` of them run at a time."""
    running = most = 0

    @action(effectful=True)
    async def work(ctx: Any) -> str:
        """Work a little."""
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        running -= 1
        return "worked"

    told = await observe_tools(work, calls=(("work", {}),) * 9, limits={"parallel": allowed})
    assert (told, most) == (["worked"] * 9, allowed)


async def test_a_failing_tool_is_an_answer() -> None:
    """What a tool raises is told to the model, which may do better; the turn goes on."""
    talker = Talker(tool_calls(("fail", {}), ("add", {"a": 1})), "Done.")
    result = await turn(a_spec(tools=[fail, add]), "hello", model=talker)
    told = [message.content for message in talker.prompts[1].messages if message.role == "tool"]
    assert "the printer is on fire" in told[0]
    assert told[1] == "2"
    assert (result.content, kinds_of(result).count("tool_failed")) == ("Done.", 1)


@pytest.mark.parametrize("params", [{}, {"a": "two"}, {"a": 1, "b": 2, "c": 3}, {"a": None}])
async def test_wrong_parameters_are_an_answer(params: dict[str, Any]) -> None:
    """The model is told which parameter does not fit, and nothing runs."""
    ran: list[int] = []

    @action(effectful=True)
    async def count(ctx: Any, a: int, b: int = 1) -> int:
        """Count."""
        ran.append(a)
        return a

    told = await observe_tools(count, calls=(("count", params),))
    assert any(f"{name!r}" in told[0] for name in ("a", "c"))
    assert ran == []


async def test_parameters_that_are_no_object_are_an_answer() -> None:
    """A call whose parameters are not even JSON is answered, and nothing runs."""
    call = ToolCall(id="call_1", name="add", invalid='{"a": 1')
    talker = Talker(Reply(calls=(call,)), "Done.")
    result = await turn(a_spec(tools=[add]), "hello", model=talker)
    told = [message for message in talker.prompts[1].messages if message.role == "tool"]
    assert (told[0].call_id, result.content) == ("call_1", "Done.")
    assert "JSON" in told[0].content


async def test_an_unknown_tool_is_an_answer() -> None:
    """A tool that is not among the spec's is said not to be there, and those that are get named."""
    told = await observe_tools(add, calls=(("subtract", {}), ("shout", {"text": "hi"})))
    assert all("add" in one for one in told)
    assert "subtract" in told[0]
    assert "HI" not in told[1]


async def test_a_plugin_brings_tools_only_where_the_spec_lists_them() -> None:
    """What a plugin can do is neither offered to the model nor run for it unless the spec names it."""
    opened: list[str] = []

    @action(effectful=True)
    async def open_vault(ctx: Any) -> str:
        """Open the vault."""
        opened.append("vault")
        return "open"

    class Vault(Plugin):
        name = "vault"
        actions = (open_vault,)

    for tools, times in ((["add"], 0), (["add", "open_vault"], 1)):
        talker = Talker(tool_calls(("open_vault", {})), "Done.")
        spec = a_spec(tools=tools, plugins=[Vault]).bind(tools=[add])
        await turn(spec, "hello", model=talker)
        assert [operation.name for operation in talker.prompts[0].operations] == tools
        assert len(opened) == times


async def test_a_tool_without_code_is_an_error_before_anything_happens() -> None:
    """A spec whose tool is a name only cannot be run, and the error says what to do."""
    talker = Talker()
    with pytest.raises(NotFound, match="nowhere"):
        await turn(a_spec(tools=["nowhere"]), "hello", model=talker, store=Spy())
    assert talker.requests == []


async def test_a_tool_that_takes_too_long_is_an_answer() -> None:
    """After its time a tool is given up, and the model is told that nobody knows whether it took effect."""
    with anyio.fail_after(10):
        told = await observe_tools(
            hang, add, calls=(("hang", {}), ("add", {"a": 1})), limits={"tool_timeout_ms": 500}
        )
    assert "0.5 s" in told[0]
    assert told[1] == "2"


async def test_a_plain_function_that_takes_too_long_is_not_waited_for() -> None:
    """A thread cannot be stopped, but the turn goes on without it."""
    release = threading.Event()

    @action(effectful=True)
    def stuck(ctx: Any) -> str:
        """Hang in a thread."""
        release.wait(30)
        return "late"

    try:
        with anyio.fail_after(10):
            told = await observe_tools(stuck, calls=(("stuck", {}),), limits={"tool_timeout_ms": 50})
    finally:
        release.set()
    assert "0.05 s" in told[0]


async def test_a_tool_that_raises_a_time_out_of_its_own_is_not_said_to_hang() -> None:
    """A `TimeoutError` from inside a tool is an error like any other."""

    @action(effectful=True)
    async def fetch(ctx: Any) -> str:
        """Fetch."""
        raise TimeoutError("the server took 3 s")

    assert "the server took 3 s" in (await observe_tools(fetch, calls=(("fetch", {}),)))[0]


@pytest.mark.parametrize("rounds", [1, 3])
async def test_rounds_are_bounded(rounds: int) -> None:
    """A model that never stops asking is stopped, after exactly as many rounds as allowed."""
    talker, store = Talker(tool_calls(("add", {"a": 1}))), Spy()
    spec = a_spec(tools=[add], memory={"capture": "conversation"}, limits={"max_rounds": rounds})
    with pytest.raises(TooManyRounds, match="max_rounds") as stopped:
        await turn(spec, "hello", model=talker, store=store)
    assert (stopped.value.rounds, len(talker.requests), store.writes) == (rounds, rounds, [])


async def test_an_answer_in_the_last_round_counts() -> None:
    """The answer may come as late as in the last round."""
    talker = Talker(tool_calls(("add", {"a": 1})), tool_calls(("add", {"a": 2})), "Done.")
    result = await turn(a_spec(tools=[add], limits={"max_rounds": 3}), "hello", model=talker)
    assert (result.content, result.rounds) == ("Done.", 3)


async def test_the_same_call_id_in_another_round_is_another_call() -> None:
    """Providers that count their calls from one in each reply get every call run and answered."""
    talker = Talker(tool_calls(("add", {"a": 1})), tool_calls(("add", {"a": 10})), "Done.")
    await turn(a_spec(tools=[add]), "hello", model=talker)
    told = [message.content for message in talker.prompts[-1].messages if message.role == "tool"]
    assert told == ["2", "11"]


async def test_the_same_call_id_twice_in_a_reply_is_two_calls() -> None:
    """Two calls under one id are both run, and both are answered."""
    twins = tuple(ToolCall(id="call_1", name="add", params={"a": a}) for a in (1, 10))
    talker = Talker(Reply(calls=twins), "Done.")
    await turn(a_spec(tools=[add]), "hello", model=talker)
    told = [message.content for message in talker.prompts[-1].messages if message.role == "tool"]
    assert told == ["2", "11"]


async def test_a_pure_action_changes_the_agent() -> None:
    """What a pure action returns becomes part of the agent, for the next call of the round as well."""
    talker = Talker(
        tool_calls(("believe", {"key": "a", "value": "1"}), ("believe", {"key": "b", "value": "2"})), "Done."
    )
    spec = a_spec(tools=[believe])
    result: Any = await turn(spec, "hello", model=talker)
    assert memory.get_in_space(result.agent, "world", "a") == "1"
    assert memory.get_in_space(result.agent, "world", "b") == "2"


async def test_an_agent_may_be_brought_along() -> None:
    """A turn goes on from the agent it is given, and gives back another; the first stays as it was."""
    spec = a_spec(tools=[believe])
    before = memory.put_in_space(Agent.new(spec.definition()), "world", "a", "1")
    talker = Talker(tool_calls(("believe", {"key": "b", "value": "2"})), "Done.")
    result: Any = await turn(spec, "hello", model=talker, agent=before)
    assert memory.get_in_space(result.agent, "world", "a") == "1"
    assert memory.get_in_space(result.agent, "world", "b") == "2"
    assert memory.get_in_space(before, "world", "b") is None


async def test_a_pure_action_that_fails_changes_nothing() -> None:
    """The agent stays as it was, and the model is told what was wrong."""

    @action
    def refuse(ctx: Any) -> Any:
        """Refuse."""
        raise ValueError("not today")

    talker = Talker(tool_calls(("refuse", {})), "Done.")
    spec = a_spec(tools=[refuse])
    agent = Agent.new(spec.definition())
    result: Any = await turn(spec, "hello", model=talker, agent=agent)
    assert memory.get(result.agent) == memory.get(agent)
    assert "not today" in talker.prompts[1].messages[-1].content


@pytest.mark.parametrize("letter", ["x", "命"])
async def test_a_long_answer_is_cut_and_said_to_be(letter: str) -> None:
    """What a tool says beyond its share of the prompt is left out, and the model is told how much."""

    @action(effectful=True)
    async def recite(ctx: Any) -> str:
        """Say a lot."""
        return letter * 100_000

    told = (await observe_tools(recite, calls=(("recite", {}),), limits={"max_observation_tokens": 100}))[0]
    assert told.startswith(letter)
    assert "characters more" in told
    assert estimate_tokens(told) <= 100


@pytest.mark.parametrize("words", ["a\0b", "a\ud800b", ""])
async def test_an_error_that_cannot_be_kept_is_an_answer_as_well(words: str) -> None:
    """Whatever an exception says, the model is told something that can be written down."""

    @action(effectful=True)
    async def rant(ctx: Any) -> str:
        """Complain oddly."""
        raise RuntimeError(words)

    told = (await observe_tools(rant, calls=(("rant", {}),)))[0]
    assert told.startswith("RuntimeError")
    told.encode()


async def test_a_long_error_is_cut_as_well() -> None:
    """An exception cannot fill the prompt either."""

    @action(effectful=True)
    async def rant(ctx: Any) -> str:
        """Complain at length."""
        raise RuntimeError("x" * 100_000)

    told = (await observe_tools(rant, calls=(("rant", {}),), limits={"max_observation_tokens": 100}))[0]
    assert estimate_tokens(told) <= 100


@pytest.mark.parametrize("returned", [object(), {1: 2}, float("nan"), "a\0b", "a\ud800b", lambda: None])
async def test_an_answer_that_cannot_be_kept_is_said_to_be_none(returned: Any) -> None:
    """What cannot be written down is told as an error; the turn is not lost over it."""

    @action(effectful=True)
    async def give(ctx: Any) -> Any:
        """Give something odd."""
        return returned

    told = (await observe_tools(give, calls=(("give", {}),)))[0]
    assert told
    told.encode()
    assert "\0" not in told


async def test_cancelling_a_turn_cancels_its_tools() -> None:
    """The tool that runs is cancelled, those that wait their turn never start, and nothing is captured."""
    started, store, gone = anyio.Event(), Spy(), []

    @action(effectful=True)
    async def wait(ctx: Any) -> str:
        """Wait."""
        started.set()
        try:
            await anyio.sleep_forever()
        finally:
            gone.append(True)
        return "never"

    spec = a_spec(tools=[wait], memory={"capture": "conversation"}, limits={"parallel": 1})
    async with anyio.create_task_group() as group:

        async def run() -> None:
            await turn(spec, "hello", model=Talker(tool_calls(*[("wait", {})] * 3)), store=store)

        group.start_soon(run)
        await started.wait()
        group.cancel_scope.cancel()
    gc.collect()  # whatever was left unawaited would be complained about now
    assert (gone, store.writes) == ([True], [])


async def test_the_journal_names_every_effect() -> None:
    """What was recalled, what the model replied and what each tool answered is there, in order."""
    talker = Talker(tool_calls(("add", {"a": 1}), ("fail", {})), "Done.")
    result = await turn(a_spec(tools=[add, fail]), "hello", model=talker, store=Spy())
    assert [(effect.kind, effect.status) for effect in result.journal] == [
        ("recall", "finished"),
        ("model", "finished"),
        ("tool", "finished"),
        ("tool", "failed"),
        ("model", "finished"),
    ]
    assert [effect.name for effect in result.journal if effect.kind == "tool"] == ["add", "fail"]


async def test_a_model_sees_the_journal_so_far() -> None:
    """A function that takes the journal finds in it what this turn did before."""
    seen: list[list[str]] = []

    def talk(request: Any, journal: Any) -> Any:
        seen.append([effect.kind for effect in journal])
        return tool_calls(("add", {"a": 1})) if len(seen) == 1 else "Done."

    await turn(a_spec(tools=[add], memory=None), "hello", model=talk)
    assert seen == [[], ["model", "tool"]]
