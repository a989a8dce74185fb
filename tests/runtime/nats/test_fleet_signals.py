"""Signals reach the agents of a fleet once, and their effects are saved before they are seen.

Two runtimes in one process, each with its own connection to one store and one server.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.fleets import (
    KIND,
    FleetBuilder,
    OpenTransport,
    a_member,
    hang,
    send_back,
    wait_for_takeover,
)
from tests.support.runtime_agents import crash, sig, to_plain
from tests.support.signal_recorders import SignalRecorder, message_count

from omoide import Agent, identity, memory
from omoide.errors import NotFound, NotRunning, StoreFailed, TimedOut, Unrouted
from omoide.runtime import Bus, Runtime
from omoide.runtime.fleet.fleet import SignalReceiver
from omoide.stores import open_store
from omoide.testing import eventually


async def test_signals_find_an_agent_wherever_it_lives(fleet: FleetBuilder) -> None:
    """Cast, call and ask go over the transport, and so does what agents send each other."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    await one.start(a_member("a"))
    await two.start(a_member("b"))
    for number in range(3):
        await two.cast("a", sig("send", number))
    copy = await one.call("b", sig("up"), timeout=5)
    assert (copy.id, copy.state["count"], memory.world_get(copy, "mood")) == ("b", 1, "calm")
    answer: Any = await two.ask("a", sig("up"))
    assert (answer.data["runtime"], answer.data["agent_id"]) == ("one", "a")
    assert (await two.call("a", sig("up"))).state["count"] == 5

    async def noted() -> bool:
        return bool(to_plain((await two.state("b")).state.get("noted", [])) == [0, 1, 2])

    await eventually(noted)
    with pytest.raises(Unrouted, match="no route for signal 'nonsense'"):
        await two.ask("a", sig("nonsense"))
    for attempt in (one.cast("nobody", sig("up")), one.call("nobody", sig("up")), one.ask("no", sig("up"))):
        with pytest.raises(NotRunning):
            await attempt
    with pytest.raises(NotFound, match="agent of the fleet"):
        await one.locate("nobody")


async def test_no_answer_has_anything_of_the_state(fleet: FleetBuilder) -> None:
    """Whoever listens to everything on the transport hears no state, memory or undisclosed identity."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    heard = SignalRecorder()
    await two.transport.subscribe("**", heard)
    secret = "tulipvelvet9"
    await one.start(memory.world_put(a_member("a"), "mood", secret))
    answer: Any = await two.ask("a", sig("up"))
    copy = await two.call("a", sig("up"))
    assert (copy.state["count"], memory.world_get(copy, "mood")) == (2, secret)
    await eventually(lambda: len(heard) >= 2)
    assert not [one for one in heard if secret in one.to_json().decode()]
    assert answer.data["shown"]["profile"]["age"] == 3


async def test_a_question_that_is_not_answered_ends(fleet: FleetBuilder) -> None:
    """A runtime that is gone answers nothing."""
    one, two = await fleet.runtime("one", lease_ms=60_000), await fleet.runtime("two", lease_ms=60_000)
    await one.start(a_member())
    await one.transport.close()
    with pytest.raises(TimedOut):
        await two.ask("a", sig("up"), timeout=0.2)


async def test_what_is_sent_over_the_transport_is_handled_once(fleet: FleetBuilder) -> None:
    """A signal that comes again after its effect was saved is dropped, by the next owner as well."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    await one.start(a_member())
    again = sig("up", id="sig_again")
    await two.ask("a", again)
    await one.hibernate("a")
    await two.thaw("a", "member")
    assert two.fleet is not None
    held = two.fleet.leases.owned["a"]
    assert held.has_handled(again)
    await SignalReceiver(two.fleet, held)(again)
    assert (await two.state("a")).state["count"] == 1


async def test_what_is_sent_leaves_after_it_was_saved(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the store refuses, nothing leaves; when it takes the agent again, all does, once."""
    one, two = await fleet.runtime("one", lease_ms=3_000), await fleet.runtime("two", lease_ms=3_000)
    await one.start(a_member("a"))
    await two.start(a_member("b"))
    real, refusing = one.store.save, True

    async def sometimes(document: Any, **more: Any) -> Any:
        if refusing and document.id == "a":
            raise StoreFailed("shared", "is not there", "wait")
        return await real(document, **more)

    monkeypatch.setattr(one.store, "save", sometimes)
    await two.cast("a", sig("send", 1))
    await eventually(lambda: one.stats()["handled"] == 1)
    await anyio.wait_all_tasks_blocked()
    assert "noted" not in (await two.state("b")).state
    refusing = False

    async def noted() -> bool:
        return bool(to_plain((await two.state("b")).state.get("noted", [])) == [1])

    await eventually(noted, timeout=10)
    assert (await fleet.load("a")).state["count"] == 1


async def test_what_was_saved_and_not_sent_is_sent_by_the_next_owner(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under the same id, so that it is handled once even if it was sent before."""
    one, two = (
        await fleet.runtime("one", shutdown_timeout=0.1),
        await fleet.runtime("two", takeover_interval_ms=50),
    )
    await one.start(a_member("a"))
    await two.start(a_member("b"))
    assert one.fleet is not None
    monkeypatch.setattr(one.fleet, "deliver", lambda *_: anyio.sleep_forever())
    await two.cast("a", sig("send", 7))

    async def is_saved() -> bool:
        return (await fleet.load("a")).state.get("count") == 1

    await eventually(is_saved)
    hang(one)
    await wait_for_takeover(two)

    async def noted() -> bool:
        return bool(to_plain((await two.state("b")).state.get("noted", [])) == [7])

    await eventually(noted)
    assert (await two.state("a")).state["count"] == 1


async def test_a_store_that_is_away_for_a_while_costs_no_signal(
    fleet: FleetBuilder, a_transport: OpenTransport, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often it was tried: nothing is laid aside, and each is handled once."""
    one = await fleet.runtime("one", lease_ms=60_000)
    await one.start(a_member("a"))
    real, tries, refusing = one.store.save, 0, True

    async def sometimes(document: Any, **more: Any) -> Any:
        nonlocal tries
        if refusing:
            tries += 1
            raise StoreFailed("shared", "is not there", "wait")
        return await real(document, **more)

    monkeypatch.setattr(one.store, "save", sometimes)
    async with a_transport() as sender:
        for number in range(3):
            await sender.publish(sig("note", number), to="a")
        await eventually(lambda: tries > 8, timeout=10)
        refusing = False

        async def is_saved() -> bool:
            return bool(to_plain((await fleet.load("a")).state.get("noted", [])) == [0, 1, 2])

        await eventually(is_saved, timeout=10)
        assert await message_count(sender, sender.settings.dead_letter_stream) == 0


async def test_a_signal_that_crashes_its_agent_is_laid_aside(
    fleet: FleetBuilder, a_transport: OpenTransport
) -> None:
    """After a few tries, each with the agent as it was saved; the next one is handled."""
    one = await fleet.runtime("one")
    await one.start(a_member("a", crash=crash), max_restarts=100)
    async with a_transport() as sender:
        await sender.publish(sig("crash"), to="a")
        await sender.publish(sig("note", 1), to="a")

        async def noted() -> bool:
            return bool(to_plain((await one.state("a")).state.get("noted", [])) == [1])

        await eventually(noted, timeout=10)
        assert await message_count(sender, sender.settings.dead_letter_stream) == 1


async def test_runtimes_that_share_a_bus_are_a_fleet_too() -> None:
    """In one process, with agents that send to each other and wait for nobody."""
    async with open_store("memory://", embedder="none") as store, Bus() as bus:
        given: dict[str, Any] = {"transport": bus, "store": store, "kinds": [KIND]}
        async with Runtime(name="one", **given) as one, Runtime(name="two", **given) as two:
            await one.start(a_member("a"))
            await two.start(a_member("b", back=send_back))
            for _ in range(5):
                await one.cast("b", sig("back"))

            async def noted() -> bool:
                return bool(to_plain((await two.state("b")).state.get("noted", [])) == [1] * 5)

            await eventually(noted)
            assert (await two.call("a", sig("up"))).state["count"] == 6


async def test_a_signal_for_nobody_is_reported(fleet: FleetBuilder) -> None:
    """What an agent sends to one that is not there is dropped, and hinders nothing else."""
    one = await fleet.runtime("one")
    await one.start(a_member("a"))
    await one.call("a", sig("send", 1))
    await eventually(lambda: [drop.agent_id for drop in one.dropped_signals] == ["b"])
    await one.start(a_member("b"))
    await one.call("a", sig("send", 2))

    async def noted() -> bool:
        return bool(to_plain((await one.state("b")).state.get("noted", [])) == [2])

    await eventually(noted)


async def test_all_are_told_what_an_agent_tells_all(fleet: FleetBuilder, a_transport: OpenTransport) -> None:
    """Over the same transport, once."""
    recorder = SignalRecorder()
    one = await fleet.runtime("one")
    async with a_transport() as listening:
        await listening.subscribe("news", recorder)
        await one.start(a_member("a"))
        await one.call("a", sig("tell", "hello"))
        await eventually(lambda: recorder.data == ["hello"])


async def test_who_can_do_something_is_ranked_over_all(fleet: FleetBuilder) -> None:
    """As if all agents lived here; runtimes outside of the fleet say nothing."""

    def able(id: str, age: int | None) -> Agent:
        agent = identity.put_profile(a_member(id), "age", age)
        return identity.add_tag(identity.add_action(agent, "fly"), "bird")

    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    await one.start(able("crow", 4))
    await one.start(able("egg", None))
    await two.start(able("raven", 30))
    await two.start(a_member("mole"))
    found = await one.who_can(action="fly", tags=["bird"], timeout=0.5)
    assert [(bird.agent_id, bird.runtime, bird.age) for bird in found] == [
        ("raven", "two", 30),
        ("crow", "one", 4),
        ("egg", "one", None),
    ]
    assert "declares fly" in found[0].reason
    assert found[0].shown["profile"]["age"] == 30
    assert await two.who_can(action="swim", timeout=0.2) == []
    for needed, who in ((True, []), (False, ["raven", "crow", "egg"])):
        found = await one.who_can(action="fly", io={"network": needed}, timeout=0.5)
        assert [bird.agent_id for bird in found] == who
