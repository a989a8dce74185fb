"""Every error is passed to the policy of the agent, and its directive is executed."""

from __future__ import annotations

import logging
from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    Provider,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    fail,
    server_of,
    sig,
    to_plain,
    wait_until_gone,
)

from omoide import Agent, action
from omoide.directives import Directive, Emit, Error, Stop, StopSensor
from omoide.errors import Invalid, WrongType
from omoide.projection import CaptureRule, SignalCapture
from omoide.runtime import (
    AgentOptions,
    EmitErrors,
    LogErrors,
    MaxErrors,
    ProviderFailure,
    Runtime,
    StopOnError,
)
from omoide.testing import eventually

ERROR = "jido.agent.error"


def failing_agent(recorder: Any = count_signals, **more: Any) -> Agent:
    """An agent that can do things wrong."""
    return an_agent(
        "a",
        {
            "fail": fail,
            "up": count_signals,
            "say": action_returning(Error(message="alas")),
            ERROR: recorder,
            **more,
        },
    )


async def test_a_default_policy_writes_down_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """Who, where and of what kind; what was said in the error is not in the log."""
    async with Runtime() as runtime:
        await runtime.start(failing_agent())
        with caplog.at_level(logging.WARNING, "omoide"):
            for _ in range(5):
                await runtime.call("a", sig("fail"))
        assert caplog.text.count("agent a: ValueError in run of on_fail") == 5
        assert "secret" not in caplog.text
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        server = runtime.whereis("a")
        assert server is not None
        assert (server.error_count, len(server.restart_times)) == (5, 0)


async def test_every_kind_of_error_comes_to_the_policy(errors: ErrorRecorder) -> None:
    """What an action did, what it said, wrong parameters, no route, a directive that fails."""

    @action
    def needs(ctx: Any, number: int) -> None: ...

    agent = failing_agent(needs=needs, wrong=action_returning(StopSensor(tag="nobody")))
    async with Runtime() as runtime:
        await runtime.start(agent, on_error=errors)
        for type in ("fail", "say", "needs", "nowhere", "wrong"):
            await runtime.cast("a", sig(type, {"number": "no"}))
        await eventually(lambda: len(errors) == 5)
    assert [one.context for one in errors] == ["run", "run", "params", "routing", "directive"]
    assert errors[1].message == "alas"


@pytest.mark.parametrize(
    "policy", ["stop", StopOnError(), lambda error, server: Stop(reason="error: " + error.kind)]
)
async def test_a_policy_may_stop_the_agent(policy: Any) -> None:
    """As failed, with the first error: what comes after it is not handled, and is reported."""
    async with Runtime() as runtime:
        await runtime.start(failing_agent(), on_error=policy, restart="temporary")
        await runtime.cast("a", sig("fail"))
        await runtime.cast("a", sig("up"))
        await wait_until_gone(runtime, "a")
        assert [(drop.signal.type, drop.reason) for drop in runtime.dropped_signals] == [
            ("up", "the agent ended (error: ValueError)")
        ]


async def test_the_caller_is_answered_before_the_policy_stops_the_agent() -> None:
    """It gets the agent as it was."""
    async with Runtime() as runtime:
        await runtime.start(failing_agent(), on_error="stop")
        after = await runtime.call("a", sig("fail"))
        assert "count" not in after.state


async def test_after_so_many_errors_the_agent_is_stopped() -> None:
    """The last one of them does it; a new life counts from the beginning."""
    async with Runtime() as runtime:
        await runtime.start(failing_agent(), on_error=MaxErrors(3))
        server = runtime.whereis("a")
        assert server is not None
        for _ in range(2):
            await runtime.call("a", sig("fail"))
        await runtime.call("a", sig("up"))
        assert len(server.restart_times) == 0
        await runtime.call("a", sig("fail"))
        await eventually(lambda: len(server.restart_times) == 1)
        for _ in range(2):
            await runtime.call("a", sig("fail"))
        assert (await runtime.call("a", sig("up"))).state["count"] == 1
        assert len(server.restart_times) == 1


async def test_errors_can_be_told_by_a_signal(recorder: SignalRecorder) -> None:
    """It says who, where, what and about which signal, and comes back to the agent itself."""
    async with Runtime() as runtime:
        await runtime.start(failing_agent(recorder), on_error="emit")
        cause = sig("fail")
        await runtime.call("a", cause)
        await eventually(lambda: recorder.types == [ERROR])
        assert recorder[0].source == "/omoide/agents/a"
        assert recorder.data == [
            {
                "agent_id": "a",
                "message": "ValueError: the secret words",
                "context": "run",
                "action": "on_fail",
                "field": None,
                "kind": "ValueError",
                "signal_id": cause.id,
            }
        ]
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


class Beside(Directive, frozen=True, kw_only=True):
    """A directive that is carried out beside the agent."""


async def break_beside(directive: Beside, server: Any) -> None:
    """Fail at it."""
    raise OSError("no paper")


@action(name="touch", effectful=True)
async def touch(ctx: Any) -> None:
    """Fail at something in the world."""
    raise OSError("no paper")


@pytest.mark.parametrize("how", ["waiting", "async", "effectful"])
async def test_an_error_beside_the_agent_is_about_the_signal_that_led_to_it(
    how: str, recorder: SignalRecorder
) -> None:
    """Though others were handled meanwhile."""
    nowhere = action_returning(Emit(signal=sig("x"), dispatch={"to": "ghost"}))
    go = {"waiting": nowhere, "async": action_returning(Beside()), "effectful": touch}[how]
    async with Runtime(executors={Beside: break_beside}) as runtime:
        await runtime.start(failing_agent(recorder, go=go), on_error="emit")
        cause = sig("go")
        await runtime.call("a", cause)
        await eventually(lambda: recorder.types == [ERROR])
        assert recorder.data[0]["signal_id"] == cause.id


async def test_errors_can_be_told_to_others(recorder: SignalRecorder) -> None:
    """Under a name and on a way of one's own."""
    async with Runtime() as runtime:
        await runtime.start(an_agent("nurse", {"trouble": recorder}))
        await runtime.start(failing_agent(), on_error=EmitErrors("trouble", {"to": "nurse"}))
        await runtime.call("a", sig("fail"))
        await eventually(lambda: recorder.types == ["trouble"])
        assert recorder.data[0]["agent_id"] == "a"
    with pytest.raises(Invalid):
        EmitErrors("no..type")


async def test_an_error_about_an_error_signal_is_not_told_again(recorder: SignalRecorder) -> None:
    """No route for it, or an action that fails over it: it is written down, and that is all."""
    for routes in ({"fail": fail}, {"fail": fail, ERROR: fail}):
        async with Runtime() as runtime:
            await runtime.start(an_agent("a", routes), on_error="emit")
            await runtime.call("a", sig("fail"))
            await anyio.wait_all_tasks_blocked()
            server = runtime.whereis("a")
            assert server is not None
            assert server.error_count == 2
            assert runtime.stats()["accepted"] == 2


@pytest.mark.parametrize(
    "way", [{"parent": True}, {"to": "ghost"}, {"child": "x"}, {"pigeon": 1}, {"void": 1}]
)
async def test_what_the_policy_wants_and_cannot_be_done_is_written_down_once(
    way: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """The policy is not asked again about its own answer, which could go on for ever."""

    async def void(signal: Any, where: Any) -> None:
        raise OSError("nobody there")

    async with Runtime(dispatchers={"void": void}) as runtime:
        await runtime.start(failing_agent(), on_error=EmitErrors(dispatch=way))
        with caplog.at_level(logging.WARNING, "omoide"):
            await runtime.call("a", sig("fail"))
            await anyio.wait_all_tasks_blocked()
        server = runtime.whereis("a")
        assert server is not None
        assert server.error_count == 2
        assert " in directive" in caplog.text
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


async def test_what_the_policy_wants_may_fail_beside_the_agent_too() -> None:
    """It is not asked about that either."""
    asked: list[Error] = []

    def remedy(error: Error, server: Any) -> Directive:
        asked.append(error)
        return Beside()

    async with Runtime(executors={Beside: break_beside}) as runtime:
        await runtime.start(failing_agent(), on_error=remedy)
        await runtime.call("a", sig("fail"))
        await anyio.wait_all_tasks_blocked()
        assert [error.kind for error in asked] == ["ValueError"]
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


async def test_a_policy_is_asked_about_what_comes_after_its_answer(errors: ErrorRecorder) -> None:
    """Only its own directive is exempt: the one behind it in the queue is not."""

    def remedy(error: Error, server: Any) -> Any:
        errors.append(error)
        return None if len(errors) > 1 else Emit(signal=sig("x"), dispatch={"to": "ghost"})

    wrong = action_returning(StopSensor(tag="one"), StopSensor(tag="two"))
    async with Runtime() as runtime:
        await runtime.start(an_agent("a", {"go": wrong, "up": count_signals}), on_error=remedy)
        await runtime.call("a", sig("go"))
        await anyio.wait_all_tasks_blocked()
        await runtime.call("a", sig("go"))
        assert len(errors) == 4
        assert "ghost" not in errors.messages


async def test_too_many_directives_are_told_by_a_signal_too(recorder: SignalRecorder) -> None:
    """There is room for what the policy wants, though there is none for anything else."""
    many = action_returning(*[Emit(signal=sig("up"))] * 5)
    async with Runtime() as runtime:
        await runtime.start(failing_agent(recorder, many=many), on_error="emit", max_directives=3)
        await runtime.call("a", sig("many"))
        await eventually(lambda: recorder.types == [ERROR])
        assert recorder.data[0]["kind"] == "QueueOverflow"
        server = runtime.whereis("a")
        assert server is not None
        assert (server.agent.state["count"], len(server.restart_times)) == (3, 0)


async def test_a_full_mailbox_of_ones_own_is_no_endless_loop() -> None:
    """An agent that cannot even tell itself that it is flooded goes on, and so do the others."""
    flood = action_returning(*[Emit(signal=sig("more"))] * 6_000)
    async with Runtime() as runtime:
        await runtime.start(failing_agent(flood=flood, more=count_signals), on_error="emit", mailbox=1)
        await runtime.start(an_agent("b", {"up": count_signals}))
        server = runtime.whereis("a")
        assert server is not None
        for _ in range(3):
            server.enqueue(sig("flood"))
        with anyio.fail_after(30):
            assert (await runtime.call("b", sig("up"))).state["count"] == 1
            await eventually(lambda: not len(server.mailbox), timeout=30)
        assert runtime.dropped_signals.count > 0
        assert len(server.restart_times) == 0


async def test_a_function_may_decide(recorder: SignalRecorder) -> None:
    """It is given the error and the server; what it returns is carried out."""
    seen: list[tuple[str, str]] = []

    def decide(error: Error, server: Any) -> Any:
        seen.append((error.kind, server.id))
        return Emit(signal=sig("help"))

    async with Runtime() as runtime:
        await runtime.start(failing_agent(help=recorder), on_error=decide)
        await runtime.call("a", sig("fail"))
        await eventually(lambda: recorder.types == ["help"])
        assert seen == [("ValueError", "a")]


@pytest.mark.parametrize("answer", [7, "stop", Error(message="again"), [Stop()], ValueError])
@pytest.mark.parametrize("where", ["letter", "beside", "waiting"])
async def test_a_policy_that_fails_is_a_crash_of_its_agent_alone(answer: Any, where: str) -> None:
    """It raises, or gives nonsense: the agent is started again, the others do not notice."""

    def broken(error: Error, server: Any) -> Any:
        if answer is ValueError:
            raise ValueError("who guards the guards")
        return answer

    @action(effectful=True)
    async def beside(ctx: Any) -> None:
        raise OSError

    waiting = action_returning(Emit(signal=sig("x"), dispatch={"to": "ghost"}))
    async with Runtime() as runtime:
        await runtime.start(failing_agent(letter=fail, beside=beside, waiting=waiting), on_error=broken)
        await runtime.start(an_agent("b", {"up": count_signals}))
        server = runtime.whereis("a")
        assert server is not None
        await runtime.call("a", sig("up"))
        await runtime.call("a", sig(where))
        await eventually(lambda: len(server.restart_times) == 1)
        assert to_plain((await runtime.call("a", sig("up"))).state) == {"count": 1}
        assert (await runtime.call("b", sig("up"))).state["count"] == 1


@pytest.mark.parametrize("wrong", ["explode", None, 7, StopOnError, MaxErrors])
def test_what_is_no_policy_is_refused_at_once(wrong: Any) -> None:
    """Where the agent is started, and where the terms are made."""
    with pytest.raises(WrongType, match="on_error"):
        AgentOptions(on_error=wrong)


def test_policies_have_names() -> None:
    """Three of them need no settings."""
    named = [type(AgentOptions(on_error=name).error_policy) for name in ("log", "stop", "emit")]
    assert named == [LogErrors, StopOnError, EmitErrors]
    for limit in (0, -1, True, 1.5):
        with pytest.raises(Invalid, match="limit"):
            MaxErrors(limit)  # type: ignore[arg-type]


async def test_a_report_of_an_error_is_not_captured_by_whoever_made_it() -> None:
    """Where nothing can be captured, each report would lead to another one, for ever."""
    provider = Provider(put=lambda state, given: ProviderFailure(state, "is full"))
    capture = SignalCapture(rules=[CaptureRule(pattern="**")])
    agent = an_agent("a", {"up": count_signals, "app.error": count_signals}, plugins=[capture])
    async with Runtime(providers={"memory": provider}) as runtime:
        await runtime.start(agent, on_error=EmitErrors("app.error"))
        await runtime.call("a", sig("up", {"text": "hello"}))
        await eventually(lambda: server_of(runtime).agent.state["count"] == 2)
        await runtime.call("a", sig("app.error", {"text": "of somebody else"}))
        await eventually(lambda: server_of(runtime).agent.state["count"] == 4)
        await anyio.wait_all_tasks_blocked()
    assert len(provider.asked) == 2
