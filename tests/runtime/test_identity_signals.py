"""Agents answer requests for their capabilities."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    ErrorRecorder,
    GatedCheckpointStore,
    SignalRecorder,
    action_returning,
    an_agent,
    count_signals,
    server_of,
    sig,
    to_plain,
)

from omoide import Agent, Plugin, Signal, action, identity
from omoide.core.state import IDENTITY
from omoide.directives import Emit
from omoide.errors import Invalid
from omoide.runtime import Runtime
from omoide.testing import eventually

REQUEST = "jido.identity.capabilities.request"
RESPONSE = "jido.identity.capabilities.response"


def agent_with_identity(id: str, age: int | None = None, **parts: Any) -> Agent:
    """An agent with an identity."""
    agent = an_agent(id, {"up": count_signals, **parts.pop("on", {})}, **parts)
    agent = identity.ensure(agent, profile={"age": age}, capabilities={"actions": ["fetch"], "tags": ["web"]})
    return identity.put_extension(
        agent, "character", {"secret": "fears water", "__public__": {"role": "pilot"}}
    )


async def answers(runtime: Runtime) -> list[Signal]:
    """What will be answered over the bus."""
    kept: list[Signal] = []
    await runtime.transport.subscribe(RESPONSE, kept.append)
    return kept


# Asked by a signal


async def test_an_agent_answers_with_its_name_and_a_snapshot() -> None:
    """Without a route for it; nothing that is not public is told."""
    agent = agent_with_identity("a", 7)
    async with Runtime() as runtime:
        kept = await answers(runtime)
        await runtime.start(agent)
        await runtime.call("a", sig(REQUEST, {}, id="who"))
        await eventually(lambda: kept)
        (told,) = kept
        assert (told.type, told.subject, told.source) == (RESPONSE, "who", "/omoide/agents/a")
        snapshot = identity.snapshot(agent)
        assert snapshot is not None
        data = to_plain(told.data)
        assert data == {"request_id": "who", "agent_id": "a", "name": "a_kind", **to_plain(snapshot)}
        assert data["capabilities"]["actions"] == ["fetch"]
        assert data["extensions"] == {"character": {"role": "pilot"}}
        assert data["profile"]["age"] == 7
        assert "fears" not in told.to_json().decode()


async def test_to_be_asked_changes_nothing() -> None:
    """Neither the agent, nor the revision of its identity, and one without an identity gets none."""
    async with Runtime() as runtime:
        await runtime.start(agent_with_identity("a", 7))
        await runtime.start(an_agent("b"))
        for id in "ab":
            before = await runtime.state(id)
            after = await runtime.call(id, sig(REQUEST))
            await runtime.publish(sig(REQUEST))
            assert after is before
            assert (await runtime.state(id)) is before
        assert not IDENTITY.has(await runtime.state("b"))
        assert (
            IDENTITY.get_or_new(await runtime.state("a")).rev
            == IDENTITY.get_or_new(agent_with_identity("a", 7)).rev
        )


async def test_an_agent_without_an_identity_answers_with_what_its_plugins_offer() -> None:
    """Empty capabilities rather than an error that there is no route."""
    fetch = action(name="fetch")(lambda ctx: None)
    plugin = type("P", (Plugin,), {"name": "p", "actions": [fetch]})
    errors = ErrorRecorder()
    async with Runtime(agent_options={"on_error": errors}) as runtime:
        kept = await answers(runtime)
        await runtime.start(an_agent("bare"))
        await runtime.start(an_agent("able", plugins=[plugin]))
        for id in ("bare", "able"):
            await runtime.call(id, sig(REQUEST))
        await eventually(lambda: len(kept) == 2)
        bare, able = (to_plain(one.data) for one in kept)
        assert bare["capabilities"] == {"actions": [], "tags": [], "limits": {}, "io": {}}
        assert (bare["profile"]["age"], bare["extensions"]) == (None, {})
        assert able["capabilities"]["actions"] == ["fetch"]
        assert errors == []


async def test_all_who_live_answer_a_request_on_the_bus_once() -> None:
    """Also those whose plugins subscribed to everything; each answer has the id of the request."""
    everything = type("P", (Plugin,), {"name": "p", "subscriptions": ["**"]})
    async with Runtime() as runtime:
        kept = await answers(runtime)
        for id in "ab":
            await runtime.start(agent_with_identity(id))
        await runtime.start(agent_with_identity("c", plugins=[everything]))
        await runtime.start(agent_with_identity("gone"))
        await runtime.stop("gone")
        await anyio.wait_all_tasks_blocked()
        for asked in ("first", "second"):
            await runtime.publish(sig(REQUEST, id=asked))
        await anyio.wait_all_tasks_blocked()
        told = sorted((one.data["request_id"], one.data["agent_id"]) for one in kept)
        assert told == [(asked, id) for asked in ("first", "second") for id in "abc"]


async def test_one_who_cannot_answer_keeps_nobody_from_it() -> None:
    """A crash over it is that agent's own: it is started again, and carries out directives as before."""

    def broken(error: Any, server: Any) -> Any:
        raise ValueError("who guards the guards")

    sent = SignalRecorder()
    tell = action_returning(Emit(signal=sig("news"), dispatch={"to": "b"}))
    async with Runtime() as runtime:
        kept = await answers(runtime)
        await runtime.start(an_agent("a", {"tell": tell}), dispatch={"pigeon": 1}, on_error=broken)
        await runtime.start(agent_with_identity("b", on={"news": sent}))
        await runtime.publish(sig(REQUEST))
        await eventually(lambda: [one.data["agent_id"] for one in kept] == ["b"])
        await runtime.call("a", sig("tell"))
        await eventually(lambda: sent.types == ["news"])
        assert len(server_of(runtime).restart_times) == 1


async def test_an_answer_goes_to_whom_the_request_names(recorder: SignalRecorder) -> None:
    """And to nobody else, whatever the agent's usual way is."""
    async with Runtime() as runtime:
        kept = await answers(runtime)
        await runtime.start(an_agent("boss", {RESPONSE: recorder}))
        await runtime.start(agent_with_identity("a"), dispatch={"bus": True})
        await runtime.call("a", sig(REQUEST, {"reply_to": "boss"}, id="who"))
        await eventually(lambda: recorder.types == [RESPONSE])
        assert recorder.data[0]["request_id"] == "who"
        assert kept == []


async def test_an_answer_goes_the_usual_way_of_the_agent(recorder: SignalRecorder) -> None:
    """Where the request names nobody."""
    async with Runtime() as runtime:
        kept = await answers(runtime)
        await runtime.start(an_agent("boss", {RESPONSE: recorder}))
        await runtime.start(agent_with_identity("a"), dispatch={"to": "boss"})
        await runtime.call("a", sig(REQUEST))
        await eventually(lambda: recorder.types == [RESPONSE])
        assert kept == []


@pytest.mark.parametrize(
    "data", [None, "who", ["who"], {}, {"reply_to": None}, {"reply_to": 7}, {"reply_to": ""}]
)
async def test_a_request_with_strange_data_is_answered_over_the_bus(data: Any) -> None:
    """Nothing in it but the name of somebody counts."""
    async with Runtime() as runtime:
        kept = await answers(runtime)
        await runtime.start(agent_with_identity("a"))
        await runtime.call("a", sig(REQUEST, data))
        await eventually(lambda: len(kept) == 1)


async def test_an_answer_that_nobody_takes_is_reported(errors: ErrorRecorder) -> None:
    """The agent that was asked goes on."""
    async with Runtime() as runtime:
        await runtime.start(agent_with_identity("a"), on_error=errors)
        await runtime.call("a", sig(REQUEST, {"reply_to": "ghost"}))
        await eventually(lambda: errors.kinds == ["NotRunning"])
        assert (await runtime.call("a", sig("up"))).state["count"] == 1


async def test_one_agent_can_ask_another(recorder: SignalRecorder) -> None:
    """With a directive, and it has the answer as a signal."""
    ask = Emit(signal=sig(REQUEST, {"reply_to": "boss"}, id="who"), dispatch={"to": "a"})
    async with Runtime() as runtime:
        await runtime.start(an_agent("boss", {"go": action_returning(ask), RESPONSE: recorder}))
        await runtime.start(agent_with_identity("a", 3))
        await runtime.call("boss", sig("go"))
        await eventually(lambda: recorder.types == [RESPONSE])
        assert recorder.data[0]["agent_id"] == "a"


# Found by what they can do


async def test_the_most_experienced_who_fits_comes_first_and_no_age_last() -> None:
    """Each with the reason; who lacks the action or a tag is left out."""
    async with Runtime() as runtime:
        ages: dict[str, int | None] = {"none": None, "young": 1, "zero": 0, "old": 7}
        for id, age in ages.items():
            await runtime.start(agent_with_identity(id, age))
        await runtime.start(identity.ensure(an_agent("cook"), profile={"age": 99}))
        await runtime.start(an_agent("nobody"))
        found = await runtime.find(action="fetch", tags=["web"])
        assert [one.agent.id for one in found] == ["old", "young", "zero", "none"]
        assert found[0].reason == "a_kind: declares fetch; carries the tag web; is 7 years old"
        assert found[-1].reason.endswith("has no age yet")


@pytest.mark.parametrize(
    "wanted", [{"action": "fly"}, {"tags": ["web", "sea"]}, {"action": "fetch", "tags": ["sea"]}]
)
async def test_where_nobody_fits_nobody_is_found(wanted: dict[str, Any]) -> None:
    """No error, and nobody who fits in part."""
    async with Runtime() as runtime:
        assert await runtime.find(**wanted) == []
        await runtime.start(agent_with_identity("a", 7))
        assert await runtime.find(**wanted) == []


async def test_limits_are_part_of_what_is_asked_for() -> None:
    """Who allows for less than is needed is left out."""
    async with Runtime() as runtime:
        for id, tokens in (("small", 10), ("large", 100)):
            await runtime.start(identity.set_limit(agent_with_identity(id), "tokens", tokens))
        assert [one.agent.id for one in await runtime.find(action="fetch", limits={"tokens": 50})] == [
            "large"
        ]
        with pytest.raises(Invalid):
            await runtime.find(action="")


async def test_only_those_who_take_signals_are_found(checkpoints: GatedCheckpointStore) -> None:
    """As they are now: what an agent learned while it lived counts, and one that is ending does not."""

    def learn(ctx: Any) -> Any:
        return ctx.identity.add_action("swim")

    checkpoints.gate = anyio.Event()
    async with Runtime(checkpoint_store=checkpoints) as runtime, anyio.create_task_group() as group:
        await runtime.start(an_agent("a", {"learn": learn}))
        assert await runtime.find(action="swim") == []
        await runtime.call("a", sig("learn"))
        assert [one.agent.id for one in await runtime.find(action="swim")] == ["a"]
        group.start_soon(runtime.hibernate, "a")
        await checkpoints.entered.wait()
        assert await runtime.find(action="swim") == []
        checkpoints.gate.set()
