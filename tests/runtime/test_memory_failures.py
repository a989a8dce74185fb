"""An agent survives, and is informed of, all failures of its memory providers."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    RESULT,
    ErrorRecorder,
    GatedCheckpointStore,
    Provider,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    crash,
    sig,
)

from omoide import Agent, Context
from omoide.directives import Directive, MemoryDelete, MemoryQuery, MemoryUpsert, Stop
from omoide.errors import TimedOut
from omoide.runtime import BlockingWork, ProviderFailure, ProviderResult, Runtime
from omoide.strategy import Direct
from omoide.testing import eventually

ASKED = {
    "put": MemoryUpsert(
        provider="p", request_id="put", items=[{"key": key, "value": 1} for key in ("one", "two", "three")]
    ),
    "ask": MemoryQuery(provider="p", request_id="ask", query={"text": "tea"}),
    "del": MemoryDelete(provider="p", request_id="del", keys=["one", "two", "three"]),
}


def make_requester(recorder: Any, *directives: Directive, **more: Any) -> Agent:
    """An agent that asks for these, or for all three, and hears the answers."""
    asked = directives or tuple(ASKED.values())
    return an_agent("a", {"go": action_returning(*asked), RESULT: recorder, "up": count_signals, **more})


async def answers_from(recorder: SignalRecorder, provider: Any, **options: Any) -> dict[str, Any]:
    """What an agent hears of its three requests; afterwards it still does what it is told."""
    async with Runtime(providers={} if provider is None else {"p": provider}, **options) as runtime:
        await runtime.start(make_requester(recorder))
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 3)
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        await anyio.wait_all_tasks_blocked()
    assert len(recorder) == 3
    return {data["request_id"]: data for data in recorder.data}


def boom(state: Any, given: Any) -> Any:
    """Raise."""
    raise ConnectionError("the line is dead")


async def cancel(state: Any, given: Any) -> Any:
    """Give up as if somebody had cancelled it."""
    raise anyio.get_cancelled_exc_class()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (boom, "ConnectionError: the line is dead"),
        (lambda state, given: ProviderFailure(state, "is full"), "is full"),
        (lambda state, given: None, "NoneType"),
        (lambda state, given: "ok", "str"),
        (lambda state, given: (state, []), "tuple"),
        (cancel, "was cancelled"),
    ],
)
async def test_whatever_a_provider_does_wrong_is_an_error_result(
    does: Any, said: str, recorder: SignalRecorder
) -> None:
    """It raises, refuses, or talks nonsense: each request is answered once, and the agent goes on."""
    data = await answers_from(recorder, Provider(put=does, query=does, delete=does))
    assert {one["status"] for one in data.values()} == {"error"}
    for one in data.values():
        assert said in one["error"]
        assert one["result"] == []
        assert one["meta"]["provider"] == "scripted"
    for id in ("put", "del"):
        assert [(one["key"], one["status"]) for one in data[id]["details"]] == [
            (key, "error") for key in ("one", "two", "three")
        ]


@pytest.mark.parametrize("found", [7, "text", [7], [object()], {"key": "a"}, [{"key": object()}]])
async def test_findings_that_are_none_are_an_error_result(found: Any, recorder: SignalRecorder) -> None:
    """A list of maps that a signal can carry is one, and nothing else."""
    data = await answers_from(recorder, Provider(query=lambda state, given: ProviderResult(state, found)))
    assert data["ask"]["status"] == "error"
    assert data["ask"]["result"] == []
    assert (data["put"]["status"], data["del"]["status"]) == ("ok", "ok")


async def test_where_some_keys_fail_the_others_are_kept_and_each_is_told(recorder: SignalRecorder) -> None:
    """The status is an error, since not all was done; nothing is passed over in silence."""

    def some(state: Any, key: str) -> Any:
        return ProviderFailure(state, "no twos") if key == "two" else ProviderResult(state + 1)

    provider = Provider(put=some, delete=some)
    data = await answers_from(recorder, provider)
    for id in ("put", "del"):
        assert data[id]["status"] == "error"
        assert data[id]["error"] == "1 of 3 failed: no twos"
        assert data[id]["details"] == [
            {"key": "one", "status": "ok"},
            {"key": "two", "status": "error", "error": "no twos"},
            {"key": "three", "status": "ok"},
        ]
    assert [key for method, key in provider.asked if method == "put"] == ["one", "two", "three"]


async def test_a_provider_that_nobody_knows_is_an_error_result(recorder: SignalRecorder) -> None:
    """Which says what there is; it is named as it was asked for."""
    data = await answers_from(recorder, None)
    for one in data.values():
        assert one["status"] == "error"
        assert "'p'" in one["error"]
        assert "inline, table" in one["error"]
        assert one["meta"]["provider"] == "p"


class Plain:
    """A provider that answers no questions, with plain methods."""

    name = "plain"

    def init(self, opts: Any) -> int:
        return 0

    def get(self, state: Any, key: str, opts: Any) -> Any:
        return ProviderFailure(state, "not_found")

    def put(self, state: Any, key: str, value: Any, opts: Any) -> Any:
        return ProviderResult(state)

    delete = get


async def test_a_question_to_a_provider_that_answers_none_is_an_error_result(
    recorder: SignalRecorder,
) -> None:
    """The other requests are served."""
    data = await answers_from(recorder, Plain())
    assert (data["ask"]["status"], data["ask"]["error"]) == ("error", "query not supported")
    assert data["put"]["status"] == "ok"
    assert data["ask"]["meta"]["provider"] == "plain"


async def test_a_provider_that_cannot_be_opened_is_an_error_result_and_tried_again(
    recorder: SignalRecorder,
) -> None:
    """With each request."""
    tries: list[int] = []

    class Late(Plain):
        def init(self, opts: Any) -> int:
            tries.append(1)
            if len(tries) < 3:
                raise ConnectionError("not yet")
            return 0

        def query(self, state: Any, query: Any, opts: Any) -> Any:
            return ProviderResult(state, [])

    data = await answers_from(recorder, Late())
    assert [data[id]["status"] for id in ("put", "ask")] == ["error", "error"]
    assert "not yet" in data["put"]["error"]
    assert len(tries) == 3


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_provider_that_hangs_is_left_behind(kind: str, recorder: SignalRecorder) -> None:
    """After the time it has; requests behind it are served, and so are those to other providers."""
    gate, release = anyio.Event(), threading.Event()

    async def hang(state: Any, given: Any) -> Any:
        await gate.wait()

    class Blocking(Plain):
        def put(self, state: Any, key: str, value: Any, opts: Any) -> Any:
            release.wait(30)
            return ProviderResult(state)

    provider = Provider(put=hang) if kind == "async" else Blocking()
    try:
        data = await answers_from(recorder, provider, provider_timeout=0.05)
        assert data["put"]["status"] == "error"
        assert "timed out after 0.05 s" in data["put"]["error"]
        assert [one["status"] for one in data["put"]["details"]] == ["error"] * 3
        assert data["del"]["status"] == ("ok" if kind == "async" else "error")
    finally:
        gate.set()
        release.set()


async def test_a_hanging_provider_of_one_agent_holds_up_no_other(recorder: SignalRecorder) -> None:
    """Nor the same agent's requests to another provider."""
    gate = anyio.Event()

    async def hang(state: Any, given: Any) -> Any:
        await gate.wait()
        return ProviderResult(state, [])

    other = MemoryQuery(provider="table", request_id="other", query={})
    async with Runtime(providers={"p": Provider(query=hang)}) as runtime:
        await runtime.start(make_requester(SignalRecorder(), ASKED["ask"]), id="stuck")
        await runtime.start(make_requester(recorder, ASKED["ask"], other))
        for id in ("stuck", "a"):
            await runtime.call(id, sig("go"))
        await eventually(lambda: [data["request_id"] for data in recorder.data] == ["other"])
        gate.set()


async def test_an_agent_that_is_ended_does_not_wait_for_a_provider_that_hangs(
    recorder: SignalRecorder,
) -> None:
    """Longer than it is given time."""

    async def hang(state: Any, given: Any) -> Any:
        await anyio.sleep_forever()

    provider = Provider(query=hang)
    async with Runtime(providers={"p": provider}, provider_timeout=None) as runtime:
        await runtime.start(make_requester(recorder, ASKED["ask"]))
        await runtime.call("a", sig("go"))
        await provider.entered.wait()
        with anyio.fail_after(5):
            await runtime.stop("a", timeout=0.01)
        assert recorder == []


# From one life to the next


class Hold(Directive, frozen=True, kw_only=True):
    """A directive that the others wait for."""


@pytest.mark.parametrize("where", ["asked", "behind it", "not yet asked"])
async def test_what_was_open_when_an_agent_crashed_is_answered_in_its_next_life(
    where: str, recorder: SignalRecorder
) -> None:
    """Once, with an error: whether the provider was at it, or it still waited for its turn."""
    gate = anyio.Event()

    async def hang(state: Any, given: Any) -> Any:
        await gate.wait()
        return ProviderResult(state, [])

    provider = Provider(query=hang)
    first = MemoryQuery(provider="p", request_id="first", query={})
    asked: list[Directive] = {
        "asked": [ASKED["ask"]],
        "behind it": [first, ASKED["ask"]],
        "not yet asked": [first, Hold(), ASKED["ask"]],
    }[where]
    holding: Any = {Hold: lambda directive, server: BlockingWork(gate.wait)}
    async with Runtime(providers={"p": provider}, executors=holding) as runtime:
        await runtime.start(make_requester(recorder, *asked, crash=crash))
        await runtime.call("a", sig("go"))
        await provider.entered.wait()
        await runtime.cast("a", sig("crash"))
        await eventually(lambda: "ask" in [data["request_id"] for data in recorder.data])
        gate.set()
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        await anyio.wait_all_tasks_blocked()
        (told,) = [data for data in recorder.data if data["request_id"] == "ask"]
        assert (told["status"], told["error"]) == ("error", "the agent was restarted")
        assert len(recorder) == len(asked) - (where == "not yet asked")


async def test_an_agent_that_stops_for_good_asks_nothing_more(recorder: SignalRecorder) -> None:
    """What was behind the stop is dropped, as all directives are."""
    provider = Provider()
    async with Runtime(providers={"p": provider}) as runtime:
        await runtime.start(make_requester(recorder, Stop(), ASKED["ask"]))
        server = runtime.whereis("a")
        assert server is not None
        await runtime.call("a", sig("go"))
        await server.ended.wait()
    assert (provider.asked, recorder) == ([], [])


async def test_an_error_result_can_be_what_the_next_life_begins_with(
    recorder: SignalRecorder, errors: ErrorRecorder
) -> None:
    """A strategy that asks at its beginning is answered in every life anew."""

    class Asking(Direct):
        def init(self, agent: Agent, ctx: Context) -> Any:
            return agent, [MemoryQuery(provider="nobody", request_id="begin", query={})]

    async with Runtime() as runtime:
        await runtime.start(
            an_agent("a", {RESULT: recorder, "crash": crash}, strategy=Asking()), on_error=errors
        )
        await eventually(lambda: len(recorder) == 1)
        await runtime.cast("a", sig("crash"))
        await eventually(lambda: len(recorder) == 2)
        assert {(data["request_id"], data["status"]) for data in recorder.data} == {("begin", "error")}
        assert errors == []


async def test_requests_are_answered_where_an_agent_was_to_sleep_and_lives_on(
    recorder: SignalRecorder, checkpoints: GatedCheckpointStore
) -> None:
    """The one that is under way and those behind it, each once; later ones are served as before."""
    gate = anyio.Event()

    async def slow(state: Any, given: Any) -> Any:
        await gate.wait()
        return ProviderResult(state, [])

    provider = Provider(put=slow)
    async with Runtime(checkpoint_store=checkpoints, providers={"p": provider}) as runtime:
        await runtime.start(make_requester(recorder))
        await runtime.call("a", sig("go"))
        await provider.entered.wait()
        with pytest.raises(TimedOut):
            await runtime.hibernate("a", timeout=0.01)
        await eventually(lambda: len(recorder) == 3)
        assert [data["status"] for data in recorder.data] == ["error"] * 3
        gate.set()
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 6)
        assert [data["status"] for data in recorder.data[3:]] == ["ok"] * 3


async def test_a_request_is_answered_whatever_its_id(recorder: SignalRecorder) -> None:
    """One that no signal can be about is still named in the answer."""
    async with Runtime(providers={"p": Provider()}) as runtime:
        asked = MemoryQuery(provider="p", request_id=" ", query={"text": "tea"})
        await runtime.start(make_requester(recorder, asked))
        await runtime.call("a", sig("go"))
        await eventually(lambda: len(recorder) == 1)
    assert (recorder.data[0]["request_id"], recorder[0].subject) == (" ", None)
