"""Tests of turns whose models, tools, stores or listeners fail."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from tests.support.turns import ALEX, Spy, Talker, a_spec, tool_calls

from omoide import Signal, action, directives
from omoide.errors import Busy, Invalid, ModelFailed, ModelTimedOut
from omoide.stores import Access, open_store
from omoide.turns import (
    Control,
    Exchange,
    Interrupt,
    Message,
    Preflight,
    TurnResult,
    capture_turn,
    preflight,
    stream,
    turn,
    write,
)

CONVERSATION = {"capture": "conversation"}


@action(effectful=True)
async def look(ctx: Any) -> str:
    """Look it up."""
    return "3"


# Errors


async def test_an_error_keeps_its_cause_in_a_stream() -> None:
    """What a model raised is the cause of our error, streamed or not."""
    trouble = ValueError("no network")

    async def listen() -> None:
        async with stream(a_spec(), "hello", model=Talker(trouble)) as running:
            async for _ in running:
                pass

    with pytest.raises(ModelFailed) as failed:
        await listen()
    assert failed.value.__cause__ is trouble


async def test_an_error_of_the_reader_keeps_its_cause() -> None:
    """What a program raises in the block of a stream comes out with the cause it was given."""
    first = KeyError("inner")

    async def fail() -> None:
        async with stream(a_spec(), "hello", model=Talker()):
            raise RuntimeError("outer") from first

    with pytest.raises(RuntimeError) as failed:
        await fail()
    assert failed.value.__cause__ is first


async def test_an_error_among_parallel_tools_keeps_its_cause() -> None:
    """An error that ends a turn while several tools run comes out with the cause it was given."""
    first = OSError("the line is cut")

    def listen(event: Any) -> None:
        if event.kind == "tool_started":
            raise Busy("store", "is held", "try again") from first

    talker = Talker(tool_calls(("look", {}), ("look", {})))
    with pytest.raises(Busy) as failed:
        await turn(a_spec(memory=None, tools=[look]), "hello", model=talker, on_event=listen)
    assert failed.value.__cause__ is first


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("decisions", None),
        ("decisions", {"a": "approve"}),
        ("count_tokens", None),
        ("count_tokens", 7),
        ("count_tokens", lambda text: len(text) / 4),
        ("count_tokens", lambda text: -1),
        ("count_tokens", lambda text: None),
        ("on_event", 5),
        ("secrets", None),
        ("secrets", {1: "x"}),
    ],
    ids=[
        "no-decisions",
        "no-decision",
        "no-counter",
        "odd-counter",
        "fractions",
        "negative",
        "nothing",
        "listener",
        "no-secrets",
        "odd-secrets",
    ],
)
async def test_an_option_of_another_kind_is_named(option: str, value: Any) -> None:
    """An option that cannot work is refused by its name before anything happens."""
    talker, options = Talker(), {option: value}
    with pytest.raises(Invalid, match=option):
        await turn(a_spec(memory=None), "hello", **{"model": talker, **options})
    assert talker.requests == []


# Plain functions as models


async def test_a_plain_function_does_not_hold_up_the_loop() -> None:
    """While a model that is a plain function waits, everything else goes on."""
    asked, go_on = threading.Event(), threading.Event()

    def model(request: Any, journal: Any) -> str:
        asked.set()
        return "Done." if go_on.wait(10) else "Nobody else could run."

    async def elsewhere() -> None:
        while not asked.is_set():
            await anyio.lowlevel.checkpoint()
        go_on.set()

    async with anyio.create_task_group() as group:
        group.start_soon(elsewhere)
        assert (await turn(a_spec(memory=None), "hello", model=model)).content == "Done."


async def test_a_plain_function_has_no_more_time_than_other_models() -> None:
    """A plain function that does not come back is a model that took too long."""
    go_on = threading.Event()

    def model(request: Any, journal: Any) -> str:
        go_on.wait(10)
        return "Too late."

    spec = a_spec(memory=None, limits={"model_timeout_ms": 20, "retries": 0})
    try:
        with pytest.raises(ModelTimedOut):
            await turn(spec, "hello", model=model)
    finally:
        go_on.set()


async def test_a_parameter_with_a_default_is_the_functions_own() -> None:
    """Only what a function cannot do without, or what is called context, is given to it."""

    def own(request: Any, journal: Any, temperature: float = 0.5) -> str:
        return f"{temperature}"

    def with_context(request: Any, journal: Any, ctx: Any = None) -> str:
        return f"{ctx.data['day']}"

    for model, said in ((own, "0.5"), (with_context, "Monday")):
        result = await turn(a_spec(memory=None), "hello", model=model, context={"day": "Monday"})
        assert result.content == said


# Listeners and streams


async def test_a_listener_that_fails_after_the_answer_does_not_undo_it() -> None:
    """The turn is over and captured; that the listener failed is a notice."""

    def listen(event: Any) -> None:
        if event.kind == "memory_written":
            raise RuntimeError("the screen is gone")

    store = Spy()
    result = await turn(
        a_spec(memory=CONVERSATION), "hello", model=Talker("Hi."), store=store, on_event=listen
    )
    assert (result.content, len(store.kept)) == ("Hi.", 1)
    assert result.memory is not None
    assert any("the screen is gone" in notice for notice in result.notices)


async def test_text_says_in_which_round_it_was_said() -> None:
    """Words beside a tool's call and words of the answer can be told apart while they come."""
    before = {**tool_calls(("look", {})), "content": "Let me look. "}
    async with stream(
        a_spec(memory=None, tools=[look]), "hello", model=Talker(before, "It is 3.")
    ) as running:
        said = [(event.data["round"], event.data["text"]) async for event in running if event.kind == "text"]
    assert said == [(0, "Let me look. "), (1, "It is 3.")]
    assert running.result.content == "".join(text for round, text in said if round == 1)


async def test_a_stream_left_at_its_end_is_captured() -> None:
    """Whoever stops reading when the turn is finished has lost nothing."""

    class Slow(Spy):
        async def write(self, request: Any) -> Any:
            await anyio.lowlevel.checkpoint()
            return await super().write(request)

    store = Slow()
    with anyio.fail_after(10):
        async with stream(a_spec(memory=CONVERSATION), "hello", model=Talker("Hi."), store=store) as running:
            async for event in running:
                if event.kind == "turn_finished":
                    break
    assert [entry.content for entry in store.kept] == ["User: hello\nAssistant: Hi."]


# Data that comes back


@action
def announce(ctx: Any) -> Any:
    """Tell others."""
    return {"told": True}, [directives.Emit(signal=Signal(type="tea.ready"))]


async def test_a_result_can_be_written_and_read(tmp_path: Any) -> None:
    """Through JSON a result is the same, but for the agent and the directives, which are not part of it."""
    async with open_store("memory://", embedder="none") as store:
        spec = a_spec(memory=CONVERSATION, tools=[announce, look])
        await write(spec, ALEX, store=store)
        result = await turn(
            spec,
            "Who am I?",
            model=Talker(tool_calls(("announce", {}), ("look", {})), "Alex."),
            store=store,
            session_id="s1",
            context={"day": "Monday"},
        )
    assert len(result.directives) == 1
    assert TurnResult.from_json(result.to_json()) == result.replace(agent=None, directives=())


async def test_a_result_that_waits_can_be_written_and_read() -> None:
    """With its reviews and its snapshot, from which the turn can go on."""
    spec = a_spec(memory=None, tools=[announce, look], approve=["look"])
    wish = tool_calls(("announce", {}), ("look", {}))
    result = await turn(spec, "hello", model=Talker(wish, "Done."))
    read = TurnResult.from_json(result.to_json())
    assert (read.status, read.reviews, read.snapshot) == ("waiting", result.reviews, result.snapshot)


async def test_a_preflight_can_be_written_and_read() -> None:
    """Through JSON a preflight shows the same as before."""
    shown = await preflight(a_spec(memory=None, tools=[look]), "hello", context={"day": "Monday"})
    read = Preflight.from_json(shown.to_json())
    assert (read.prompt, read.plan, read.request, str(read)) == (
        shown.prompt,
        shown.plan,
        shown.request,
        str(shown),
    )


# Memory


@pytest.mark.parametrize("content", [None, "", " \n", 7])
async def test_only_an_answer_is_captured(content: Any) -> None:
    """Without words, or with something that is no text, there is nothing to capture."""
    store = Spy()
    with pytest.raises(Invalid, match="content"):
        await capture_turn(a_spec(memory=CONVERSATION), "hello", content, request_id="r1", store=store)
    assert store.writes == []


async def test_a_turn_that_waits_is_no_answer() -> None:
    """The result of a turn that is not over cannot be captured in place of its words."""

    class Asks(Control):
        def at_output(self, text: str, ctx: Any) -> Any:
            return Interrupt("Sure?")

    store, spec = Spy(), a_spec(memory=CONVERSATION)
    waits: Any = await turn(spec, "hello", model=Talker("Hi."), controls=[Asks()])
    with pytest.raises(Invalid):
        await capture_turn(spec, "hello", waits, request_id=waits.request_id, store=store)
    assert store.writes == []


class Counts(Spy):
    """A store that is to count what was used, and cannot."""

    def __init__(self, trouble: Exception) -> None:
        super().__init__()
        self.trouble = trouble

    async def record_access(self, ids: Any, scope: Any) -> None:
        self.log.append("count")
        raise self.trouble

    async def access(self, id: str, scope: Any) -> Access:
        return Access()


@pytest.mark.parametrize(
    "trouble", [Busy("store", "is held", "try again"), OSError("the disk is away")], ids=["ours", "its-own"]
)
async def test_counting_that_fails_does_not_fail_the_turn(trouble: Exception) -> None:
    """What was recalled is shown and answered, whether or not the store could count it."""
    store, spec = Counts(trouble), a_spec()
    await write(spec, ALEX, store=store)
    result = await turn(spec, "What is the name of the user?", model=Talker("Alex."), store=store)
    assert (result.content, "count" in store.log) == ("Alex.", True)
    assert result.prompt is not None
    assert result.prompt.memory is not None
    assert result.prompt.memory["count"] == 1


async def test_what_was_erased_while_a_turn_waited_is_not_shown() -> None:
    """A snapshot that holds an erased memory goes on without it; the others stay."""
    async with open_store("memory://", embedder="none") as store:
        spec = a_spec()
        first = await write(spec, "Bob has a peanut allergy.", store=store)
        await write(spec, "Bob has a cat.", store=store)
        waits = await turn(spec, "What has Bob?", model=Talker(), store=store, checkpoint="after_prompt")
        await store.erase(first.entry.scope, id=first.entry.id)
        talker = Talker("A cat.")
        assert waits.snapshot is not None
        await turn(spec, waits.snapshot, model=talker, store=store)
    shown = talker.prompts[0].messages[0].content
    assert ("peanut" in shown, "cat" in shown) == (False, True)


HOST = "The database host is db7, which Ann has chosen."


@pytest.mark.parametrize("verb", ["turn", "preflight"])
async def test_a_long_conversation_does_not_crowd_out_what_else_is_remembered(verb: str) -> None:
    """However many turns of the conversation match best, what is not in it is found behind them."""
    async with open_store("memory://", embedder="none") as store:
        spec = a_spec(memory={"capture": "conversation", "max_entries": 3})
        await write(spec, HOST, store=store)
        history = []
        for at in range(60):
            said, answer = f"Tell me about the database host {at}.", "The database host, again."
            await capture_turn(spec, said, answer, request_id=f"r{at}", store=store)
            words = (Message(role="user", content=said), Message(role="assistant", content=answer))
            history.append(Exchange(request_id=f"r{at}", messages=words))
        options: dict[str, Any] = {"store": store, "history": history, "model": Talker("db7.")}
        run: Any = turn if verb == "turn" else preflight
        prompt = (await run(spec, "Tell me about the database host.", **options)).prompt
    assert [entry["content"] for entry in prompt.memory["entries"]] == [HOST]
