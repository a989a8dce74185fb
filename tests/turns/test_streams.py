"""Tests of streams: the events of a turn while it runs."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from tests.support.turns import ALEX, Spy, Talker, a_spec, kinds_of, tool_calls

from omoide import action
from omoide.errors import Blocked, Invalid, ModelFailed, OmoideError
from omoide.turns import Control, Decision, Refuse, Reply, Request, Rewrite, ToolCall, stream, turn, write

CONVERSATION = {"capture": "conversation"}


@action(effectful=True)
async def add(ctx: Any, a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


class Speaker:
    """A model that answers in pieces; an exception among them breaks it off."""

    def __init__(self, *answers: list[Any]) -> None:
        self.answers = answers
        self.given: list[str] = []
        self.asked = 0
        self.closed = 0

    async def complete(self, request: Request) -> Reply:
        self.asked += 1
        return Reply(content="".join(self.answers[self.asked - 1]))

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        pieces = self.answers[self.asked]
        self.asked += 1
        try:
            for piece in pieces:
                if isinstance(piece, Exception):
                    raise piece
                if isinstance(piece, str):
                    self.given.append(piece)
                yield piece
                await anyio.lowlevel.checkpoint()
            if not isinstance(pieces[-1], Reply):
                yield Reply(content="".join(pieces))
        finally:
            self.closed += 1


async def stream_events(spec: Any, model: Any, **options: Any) -> tuple[list[Any], Any]:
    """Every event of a streamed turn, and its result."""
    async with stream(spec, "hello", model=model, **options) as running:
        events = [event async for event in running]
    return events, running.result


async def listen(
    got: list[str], model: Any, input: str = "hello", *, spec: Any = None, **options: Any
) -> None:
    """Put each piece of text into a list as it comes."""
    async with stream(spec or a_spec(), input, model=model, **options) as running:
        async for piece in running.text():
            got.append(piece)  # noqa: PERF401 - what came before an error counts


def words(events: list[Any]) -> list[str]:
    return [event.data["text"] for event in events if event.kind == "text"]


async def test_text_comes_piece_by_piece() -> None:
    """The pieces are given as the model gives them, and together they are the answer."""
    speaker = Speaker(["Wel", "come ", "back."])
    events, result = await stream_events(a_spec(), speaker)
    assert words(events) == ["Wel", "come ", "back."]
    assert result.content == "Welcome back."
    assert result.status == "finished"


async def test_text_is_there_before_the_answer_is_complete() -> None:
    """The first piece arrives while the model has not yet given the second."""
    more = anyio.Event()

    class Slow(Speaker):
        async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
            yield "first "
            await more.wait()
            yield "second"
            yield Reply(content="first second")

    got: list[str] = []
    with anyio.fail_after(10):
        async with stream(a_spec(), "hello", model=Slow()) as running:
            async for event in running:
                if event.kind == "text":
                    got.append(event.data["text"])
                    more.set()
    assert got == ["first ", "second"]


async def test_a_streamed_turn_is_the_same_turn() -> None:
    """Besides the text, events, prompt and what is captured are those of a turn that is not streamed."""
    plain, streamed = Spy(), Spy()
    spec = a_spec(memory=CONVERSATION)
    for store in (plain, streamed):
        await write(spec, ALEX, store=store)
    whole: Any = await turn(spec, "hello", model=Talker("Hi there."), store=plain)
    events, result = await stream_events(spec, Speaker(["Hi ", "there."]), store=streamed)
    kinds = [event.kind for event in events]
    assert [kind for kind in kinds if kind != "text"] == kinds_of(whole) == kinds_of(result)
    assert (result.prompt.messages, result.content) == (whole.prompt.messages, whole.content)
    assert [entry.content for entry in plain.kept] == [entry.content for entry in streamed.kept]


async def test_text_is_an_event_and_is_not_kept() -> None:
    """The events of the result tell what happened, not what was said."""
    _, result = await stream_events(a_spec(), Speaker(["Wel", "come."]))
    assert "text" not in kinds_of(result)
    assert "come." not in repr(result.events)


async def test_a_function_is_streamed_in_one_piece() -> None:
    """A model that cannot stream gives its whole answer as one piece."""
    events, result = await stream_events(a_spec(), Talker("Hi there."))
    assert (words(events), result.content) == (["Hi there."], "Hi there.")


async def test_tools_run_in_a_streamed_turn() -> None:
    """Text before a tool, the tool, and the answer come in this order."""
    call = ToolCall(id="call_1", name="add", params={"a": 2})
    speaker = Speaker(["One moment. ", Reply(content="One moment. ", calls=(call,))], ["It is ", "3."])
    events, result = await stream_events(a_spec(tools=[add]), speaker)
    kinds = [event.kind for event in events]
    assert words(events) == ["One moment. ", "It is ", "3."]
    assert kinds.index("text") < kinds.index("tool_started") < kinds.index("tool_finished")
    assert kinds.index("tool_finished") < len(kinds) - 1 - kinds[::-1].index("text")
    assert (result.content, result.rounds) == ("It is 3.", 2)


async def test_calls_without_text_are_streamed_as_nothing() -> None:
    """A reply that only asks for tools gives no empty piece."""
    events, _ = await stream_events(a_spec(tools=[add]), Talker(tool_calls(("add", {"a": 1})), "Done."))
    assert words(events) == ["Done."]


async def test_a_stream_that_breaks_is_an_error_and_captures_nothing() -> None:
    """What was given stays given; then the error is raised, and there is no second attempt and no capture."""
    store, got = Spy(), list[str]()
    speaker = Speaker(["Wel", RuntimeError("cut off")], ["Welcome."])
    with pytest.raises(ModelFailed, match="cut off"):
        await listen(got, speaker, spec=a_spec(memory=CONVERSATION), store=store)
    assert (got, speaker.asked, store.writes) == (["Wel"], 1, [])


async def test_who_stops_listening_stops_the_turn() -> None:
    """Leaving the block in the middle cancels the model, and nothing is captured."""
    store = Spy()
    endless = Speaker(["more "] * 100_000)
    with anyio.fail_after(10):
        async with stream(a_spec(memory=CONVERSATION), "hello", model=endless, store=store) as running:
            async for event in running:
                if event.kind == "text":
                    break
    assert (store.writes, endless.closed) == ([], 1)
    assert len(endless.given) < 1_000


async def test_an_error_of_the_listener_is_the_one_that_is_raised() -> None:
    """What goes wrong in the block comes out as it is, and the turn is given up."""
    speaker = Speaker(["more "] * 100_000)

    async def fail() -> None:
        async with stream(a_spec(), "hello", model=speaker) as running:
            async for _ in running:
                raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        await fail()
    assert len(speaker.given) < 1_000


async def test_who_does_not_listen_gets_the_result_all_the_same() -> None:
    """A block that takes no event leaves the turn to end, or says that it did not."""
    store = Spy()
    async with stream(a_spec(memory=CONVERSATION), "hello", model=Speaker(["Hi."]), store=store) as running:
        async for _ in running:
            pass
        assert running.result.content == "Hi."


async def test_there_is_no_result_before_the_end() -> None:
    """Asking for the result while the turn runs is an error of ours, not a half-made result."""
    async with stream(a_spec(), "hello", model=Speaker(["Hi."])) as running:
        with pytest.raises(OmoideError):
            _ = running.result


async def test_a_turn_does_not_wait_for_its_reader() -> None:
    """Who reads late, or not at all, holds up nothing: the turn ends, and the events are there."""
    speaker = Speaker(["x"] * 2_000)
    async with stream(a_spec(), "hello", model=speaker) as running:
        with anyio.fail_after(20):
            while len(speaker.given) < 2_000:
                await anyio.lowlevel.checkpoint()
        seen = [event async for event in running if event.kind == "text"]
    assert (len(seen), running.result.content) == (2_000, "x" * 2_000)


@pytest.mark.parametrize("read", ["events", "result", "nothing"])
async def test_an_error_is_raised_where_the_events_are_read(read: str) -> None:
    """After the last event, from `result`, or at the end of the block: the turn's own error and its cause."""

    async def streamed() -> None:
        async with stream(a_spec(), "hello", model=Talker(RuntimeError("no network"))) as running:
            await anyio.wait_all_tasks_blocked()
            if read == "events":
                async for _ in running:
                    pass
            if read == "result":
                _ = running.result.content

    with pytest.raises(ModelFailed, match="no network") as failed:
        await streamed()
    assert isinstance(failed.value.__cause__, RuntimeError)


async def test_what_a_control_refuses_is_not_streamed() -> None:
    """With a control at the output, nothing of a refused answer reaches the reader."""

    class Discreet(Control):
        def at_output(self, text: str, ctx: Any) -> Any:
            return Refuse("too frank") if "1234" in text else None

    got: list[str] = []
    with pytest.raises(Blocked, match="too frank"):
        await listen(got, Speaker(["The code ", "is 1234."]), controls=[Discreet()])
    assert "1234" not in "".join(got)


async def test_what_a_control_rewrites_is_streamed_as_rewritten() -> None:
    """With a control at the output, the reader gets the words that it leaves, and no others."""

    class Discreet(Control):
        async def at_output(self, text: str, ctx: Any) -> Any:
            return Rewrite(text.replace("1234", "****"))

    events, result = await stream_events(a_spec(), Speaker(["The code ", "is 1234."]), controls=[Discreet()])
    assert "".join(words(events)) == result.content == "The code is ****."


async def test_controls_elsewhere_do_not_hold_text_back() -> None:
    """A control that only looks at the input or at tools leaves the stream as it is."""

    class Watches(Control):
        def at_input(self, text: str, ctx: Any) -> Any:
            return None

    events, _ = await stream_events(a_spec(), Speaker(["Wel", "come."]), controls=[Watches()])
    assert words(events) == ["Wel", "come."]


async def test_a_turn_that_waits_ends_the_stream() -> None:
    """A review ends the events, and the result says what is to be decided."""
    talker = Talker(tool_calls(("add", {"a": 1})), "Done.")
    events, result = await stream_events(a_spec(tools=[add], approve=["add"]), talker)
    assert (events[-1].kind, result.status) == ("review_requested", "waiting")
    async with stream(
        a_spec(tools=[add], approve=["add"]),
        result.snapshot,
        model=talker,
        decisions={result.reviews[0].id: Decision(verdict="approve")},
    ) as running:
        assert [piece async for piece in running.text()] == ["Done."]
    assert running.result.content == "Done."


async def test_bad_input_is_refused_at_the_door() -> None:
    """What a turn refuses a streamed turn refuses, with the same error."""
    with pytest.raises(Invalid, match="input"):
        await listen([], Talker(), "  ")
