"""Tests of model calls: retries, timeouts and streams."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import anyio
import pytest
from tests.support.http_model import Answer, error_answer, make_request, serve_model

from omoide.errors import (
    Invalid,
    ModelFailed,
    ModelMisbehaved,
    ModelOverloaded,
    ModelRefused,
    ModelTimedOut,
    ModelUnreachable,
)
from omoide.testing import ScriptedModel, eventually
from omoide.turns import Model, ProviderModel, Reply, Request, SupportsStreaming
from omoide.turns.model import FunctionModel, backoff, call_model


class Naps:
    """A sleep that takes no time and keeps how long it should have been."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await anyio.lowlevel.checkpoint()


def busy(retry_after: float | None = None) -> ModelOverloaded:
    return ModelOverloaded("m", "is busy", "try again later", retry_after=retry_after)


async def call_with_retries(model: Model, naps: Naps | None = None, **options: Any) -> Reply:
    given = {"retries": 2, "timeout_ms": 5_000, **options}
    return await call_model(model, make_request(), sleep=naps or Naps(), **given)


async def never(request: Request) -> str:
    await anyio.sleep_forever()
    return "never"


async def test_what_may_be_better_later_is_tried_again() -> None:
    """Transient errors are retried, each time after a longer wait, and each retry is told."""
    naps, told = Naps(), list[tuple[str, int, float]]()
    lost = ModelUnreachable("m", "is gone", "try again")
    model = ScriptedModel(busy(), lost, "Hi.")

    async def on_retry(error: ModelFailed, number: int, wait: float) -> None:
        told.append((type(error).__name__, number, wait))

    assert (await call_with_retries(model, naps, on_retry=on_retry)).content == "Hi."
    assert told == [("ModelOverloaded", 1, naps.seconds[0]), ("ModelUnreachable", 2, naps.seconds[1])]
    assert 0.25 <= naps.seconds[0] <= 0.5 <= naps.seconds[1] <= 1.0


@pytest.mark.parametrize("retries", [0, 1, 3])
async def test_the_last_error_is_raised(retries: int) -> None:
    """After so many retries the error is raised as it is."""
    model = ScriptedModel(busy(), repeat=True)
    with pytest.raises(ModelOverloaded, match="is busy"):
        await call_with_retries(model, retries=retries)
    assert len(model.requests) == retries + 1


async def test_what_stays_wrong_is_not_tried_again() -> None:
    """A refusal is raised at once, and so is an error of ours that is not about the model."""
    for error in (ModelRefused("m", "says no", "ask others"), Invalid("base_url", "is wrong", "correct it")):
        model = ScriptedModel(error, "Hi.")
        with pytest.raises(type(error)) as caught:
            await call_with_retries(model)
        assert caught.value is error
        assert len(model.requests) == 1


async def test_a_foreign_error_becomes_ours() -> None:
    """Whatever else a model raises is a `ModelFailed` that holds it as its cause."""
    with pytest.raises(ModelFailed, match=r"model 'scripted' failed \(KeyError: 'city'\)") as caught:
        await call_with_retries(ScriptedModel(KeyError("city")))
    assert isinstance(caught.value.__cause__, KeyError)


def test_waits_grow_up_to_eight_seconds() -> None:
    """The wait doubles from half a second to eight, and chance takes away up to half of it."""
    for tried, most in [(0, 0.5), (1, 1), (2, 2), (3, 4), (4, 8), (5, 8), (10_000, 8)]:
        waits = {backoff(tried) for _ in range(50)}
        assert most / 2 <= min(waits) <= max(waits) <= most
        assert len(waits) > 1


async def test_a_provider_says_how_long_to_wait() -> None:
    """Its wait holds where it is longer than ours, up to a minute; if it wants more, it is an error."""
    naps = Naps()
    await call_with_retries(ScriptedModel(busy(60.0), busy(0.0), "Hi."), naps)
    assert naps.seconds[0] == 60.0
    assert naps.seconds[1] >= 0.5
    model = ScriptedModel(busy(60.5), "Hi.")
    with pytest.raises(ModelOverloaded):
        await call_with_retries(model, naps)
    assert (len(model.requests), len(naps.seconds)) == (1, 2)


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_model_that_is_silent_times_out(streaming: bool) -> None:
    """Each attempt has its own time, and running out of it may be tried again."""
    model = ScriptedModel(never, "Hi.")
    options: dict[str, Any] = {"timeout_ms": 20, "on_text": (lambda piece: None) if streaming else None}
    assert (await call_with_retries(model, **options)).content == "Hi."
    with pytest.raises(ModelTimedOut, match=r"no answer within 0\.02 s"):
        await call_with_retries(ScriptedModel(never), retries=0, **options)


async def test_being_cancelled_is_no_error_of_the_model() -> None:
    """Who cancels the call ends it at once: in the model, and between two attempts."""
    for model in (ScriptedModel(never), ScriptedModel(busy(), repeat=True)):
        async with anyio.create_task_group() as group:

            async def asks(model: ScriptedModel = model) -> None:
                await call_model(
                    model, make_request(), retries=9, timeout_ms=60_000, sleep=lambda _: anyio.sleep_forever()
                )
                pytest.fail("it was cancelled")

            group.start_soon(asks)
            await anyio.wait_all_tasks_blocked()
            group.cancel_scope.cancel()
        assert len(model.requests) == 1


async def test_text_is_given_away_in_pieces() -> None:
    """A model that streams gives its words as they come, to a function that may be async."""
    plain, waiting = list[str](), list[str]()

    async def later(piece: str) -> None:
        waiting.append(piece)

    for take in (plain.append, later):
        assert (
            await call_with_retries(ScriptedModel("Hello, old friend."), on_text=take)
        ).content == "Hello, old friend."
    assert plain == waiting == ["Hello, ", "old ", "friend."]


async def test_text_of_a_model_that_does_not_stream_is_one_piece() -> None:
    """Whoever waits for text gets all of it at once, and none where there is none."""
    taken = list[str]()
    await call_with_retries(FunctionModel(lambda request, journal: "Hello there."), on_text=taken.append)
    await call_with_retries(FunctionModel(lambda request, journal: ""), on_text=taken.append)
    assert taken == ["Hello there."]


class Breaking:
    """A model that streams what it was given, and may break anywhere."""

    name = "breaking"

    def __init__(self, *pieces: Any) -> None:
        self.pieces = pieces
        self.streams = self.closed = 0

    async def complete(self, request: Request) -> Reply:
        return Reply(content="whole")

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        self.streams += 1
        try:
            for piece in self.pieces:
                if isinstance(piece, Exception):
                    raise piece
                yield piece
        finally:
            self.closed += 1


async def test_text_that_was_given_away_is_not_repeated() -> None:
    """A stream that breaks before its first words is tried again; after them, the error is raised."""
    taken = list[str]()
    early, late = Breaking("", busy()), Breaking("Hello", busy())
    for model, streams in ((early, 3), (late, 1)):
        with pytest.raises(ModelOverloaded):
            await call_with_retries(model, on_text=taken.append)
        assert (model.streams, model.closed) == (streams, streams)
    assert taken == ["Hello"]


async def test_a_stream_has_to_end_with_its_reply() -> None:
    """A stream without a reply makes no sense, and neither does an answer that is none."""
    with pytest.raises(ModelMisbehaved, match="'breaking' ended without its whole answer"):
        await call_with_retries(Breaking("Hello"), on_text=lambda piece: None)
    with pytest.raises(ModelMisbehaved):
        await call_with_retries(Breaking(), on_text=lambda piece: None)


async def test_whoever_takes_the_text_may_take_their_time() -> None:
    """What is done with a piece does not count as time of the model."""
    deadlines = list[float]()

    async def take(piece: str) -> None:
        deadlines.append(anyio.current_effective_deadline())

    model = ScriptedModel("one two")
    await call_with_retries(model, on_text=take)
    assert deadlines == [math.inf, math.inf]


async def test_an_error_of_whoever_takes_the_text_is_theirs() -> None:
    """What the function raises comes out as it is, and the stream is closed."""
    model = Breaking("Hello", Reply(content="Hello"))

    def take(piece: str) -> None:
        raise LookupError(piece)

    with pytest.raises(LookupError, match="Hello"):
        await call_with_retries(model, on_text=take)
    assert (model.streams, model.closed) == (1, 1)


async def test_the_server_sees_each_attempt_once() -> None:
    """Over HTTP there are as many requests as attempts: nobody below tries again in secret."""
    naps = Naps()
    with serve_model(error_answer(500), error_answer(429, retry_after="2"), "Hi.") as site:
        model = ProviderModel("openai-chat:local", base_url=site.url)
        assert (await call_with_retries(model, naps)).content == "Hi."
        assert len(site.requests) == 3
        with pytest.raises(ModelOverloaded):
            await call_with_retries(model, retries=2)
        assert len(site.requests) == 6
    assert naps.seconds[1] == 2.0


async def test_a_server_that_hangs_times_out() -> None:
    """A server that says nothing, or nothing more, is a model that took too long."""
    taken = list[str]()
    silent = Answer(hang=True)
    with serve_model(silent, Answer(content="one two", cut=2, hang=True), "Hi.") as site:
        model = ProviderModel("openai-chat:local", base_url=site.url)
        with pytest.raises(ModelTimedOut):
            await call_with_retries(model, retries=0, timeout_ms=300)
        with pytest.raises(ModelTimedOut):
            await call_with_retries(model, retries=1, timeout_ms=2_000, on_text=taken.append)
        assert (await call_with_retries(model)).content == "Hi."
    assert taken == ["one"]


async def test_a_scripted_model_gives_its_replies_in_turn() -> None:
    """Text, replies, mappings and functions, and an error that says so when they have run out."""
    wants = {"type": "operation", "name": "weather", "params": {"city": "Kyoto"}}

    async def later(request: Request) -> Any:
        return lambda request: request.agent_id

    model = ScriptedModel("one", Reply(content="two"), wants, lambda request: "four", later, TimeoutError)
    assert isinstance(model, Model)
    assert isinstance(model, SupportsStreaming)
    said = [await model.complete(make_request()) for _ in range(5)]
    assert [reply.content for reply in said] == ["one", "two", "", "four", "greeter"]
    assert said[2].calls[0].name == "weather"
    with pytest.raises(TimeoutError):
        await model.complete(make_request())
    with pytest.raises(ModelFailed, match="was asked 7 times and has 6 replies"):
        await model.complete(make_request())
    assert len(model.requests) == 7
    again = ScriptedModel("a", "b", repeat=True)
    assert [(await again.complete(make_request())).content for _ in range(3)] == ["a", "b", "a"]
    with pytest.raises(ModelFailed):
        await ScriptedModel(repeat=True).complete(make_request())


async def test_being_cancelled_between_two_pieces_closes_the_connection() -> None:
    """Whoever stops while a piece is being taken leaves no connection behind."""
    started = anyio.Event()

    async def take(piece: str) -> None:
        started.set()
        await anyio.sleep_forever()

    with serve_model(Answer(content="one two", cut=2, hang=True)) as site:
        model = ProviderModel("openai-chat:local", base_url=site.url)
        async with anyio.create_task_group() as group:
            group.start_soon(partial(call_with_retries, model, on_text=take))
            await started.wait()
            group.cancel_scope.cancel()
        await eventually(lambda: site.open == 0)
