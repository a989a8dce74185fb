"""Races in a fleet that once went wrong.

Each test is about something that went wrong once: when several things happen at the same time.
"""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.fleets import FleetBuilder, OpenTransport, a_member, hang, wait_for_takeover
from tests.support.runtime_agents import an_agent, crash, sig
from tests.support.signal_recorders import (
    ErrorRecorder,
    SignalRecorder,
    consumer_names,
    jetstream,
    message_count,
)

from omoide import identity
from omoide.errors import OwnedElsewhere, TooManyAgents, Unreachable
from omoide.runtime import Runtime
from omoide.runtime import server as capabilities
from omoide.runtime.fleet.leases import OwnedAgent
from omoide.testing import eventually


class Late:
    """Has something of an object wait, and says when it was asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, of: Any, name: str) -> None:
        self.asked, self.go = anyio.Event(), anyio.Event()
        before = getattr(of, name)

        async def late(*given: Any, **more: Any) -> Any:
            self.asked.set()
            await self.go.wait()
            return await before(*given, **more)

        monkeypatch.setattr(of, name, late)


def ownership_of(runtime: Runtime, id: str = "a") -> OwnedAgent:
    """The right of a runtime to let an agent live."""
    assert runtime.fleet is not None
    return runtime.fleet.leases.owned[id]


async def test_whoever_lost_an_agent_while_it_subscribed_reads_none_of_its_post(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would take signals from the next owner, fail over each of them, and lay them aside."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    assert one.fleet is not None
    leases, late = one.fleet.leases, Late(monkeypatch, one.transport, "subscribe")
    mine: Any = one.transport
    theirs: Any = two.transport
    before = mine.stats()["channels"]
    failed: list[Exception] = []

    async def begin() -> None:
        try:
            await one.start(a_member())
        except OwnedElsewhere as error:
            failed.append(error)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(begin)
        await late.asked.wait()
        one.fleet.lose_agent(ownership_of(one), "a test wants it")
        await eventually(lambda: not leases.owned)
        await two.take_over()
        await wait_for_takeover(two)
        hang(one)
        late.go.set()
    assert failed
    await eventually(lambda: mine.stats()["channels"] == before)
    assert (await two.call("a", sig("up"))).state["count"] == 1
    for _ in range(3):
        await one.cast("a", sig("up"))

    def counted() -> bool:
        server = two.whereis("a")
        return server is not None and server.agent.state.get("count") == 4

    await eventually(counted, timeout=10)
    assert await message_count(theirs, theirs.settings.dead_letter_stream) == 0


async def test_an_agent_that_could_not_be_taken_over_is_not_put_to_rest(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The transport was away for a moment: whoever looks next takes it up."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two", takeover_interval_ms=60_000)
    await one.start(a_member())

    async def broken(*given: Any, **more: Any) -> Any:
        raise Unreachable("nats", "is away", "wait")

    held = ownership_of(one)
    hang(one)
    await eventually(lambda: not held.is_valid())
    assert two.fleet is not None
    leases = two.fleet.leases
    with monkeypatch.context() as patched:
        patched.setattr(two.transport, "subscribe", broken)
        await eventually(lambda: _try_claim(two))
        await eventually(lambda: not leases.owned)
    assert await two.locate("a") == "two"
    assert await two.take_over() == ["a"]
    assert (await two.call("a", sig("up"))).state["count"] == 1


async def _try_claim(runtime: Runtime) -> bool:
    """Look, until an agent is claimed: a place that names the runtime says so."""
    assert await runtime.take_over() == []
    return await runtime.locate("a") != "one"


async def test_a_renewal_that_is_answered_late_does_not_give_back_the_next_lease(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent was put to rest and thawed here meanwhile, and for the store both leases are of one owner."""
    one, two = await fleet.runtime("one", lease_ms=30_000), await fleet.runtime("two", lease_ms=30_000)
    await one.start(a_member())
    assert one.fleet is not None
    leases, former = one.fleet.leases, ownership_of(one)
    with monkeypatch.context() as patched:
        late = Late(patched, leases, "_claim")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leases._renew, former)
            await late.asked.wait()
            patched.undo()
            async with anyio.create_task_group() as others:

                async def again() -> None:
                    await one.hibernate("a")
                    await one.thaw("a", "member")

                others.start_soon(again)
                with anyio.move_on_after(0.5):
                    await eventually(lambda: leases.owned.get("a") not in (former, None) and one.whereis("a"))
                late.go.set()
    assert ownership_of(one) is not former
    with pytest.raises(OwnedElsewhere):
        await two.thaw("a", "member")


async def test_an_agent_that_could_not_be_started_is_not_taken_up_by_others(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever started it was told that there is no room; it is at rest."""
    one, two = await fleet.runtime("one", max_agents=1), await fleet.runtime("two")
    assert one.fleet is not None
    leases, late = one.fleet.leases, Late(monkeypatch, one.fleet.directory, "set_owner")
    failed: list[str] = []

    async def begin(id: str) -> None:
        try:
            await one.start(a_member(id))
        except TooManyAgents:
            failed.append(id)

    async with anyio.create_task_group() as tasks:
        for id in "ab":
            tasks.start_soon(begin, id)
        await late.asked.wait()
        await eventually(lambda: len([held for held in leases.owned.values() if held.token]) == 2)
        late.go.set()
    [id] = failed
    assert await two.locate(id) is None
    assert await two.take_over() == []


async def test_a_runtime_that_ended_listens_to_nothing(a_transport: OpenTransport) -> None:
    """A transport may live longer than the runtimes that use it."""
    async with a_transport() as transport:
        for _ in range(3):
            async with Runtime(transport=transport):
                pass
        await eventually(lambda: transport.stats()["channels"] == 0)
        assert await consumer_names(transport, transport.settings.broadcast_stream) == []


async def test_a_crashed_agent_begins_again_with_nothing_that_another_owner_saved(
    fleet: FleetBuilder,
) -> None:
    """Else it would have the revision of the next owner, and could save over what that one did."""
    kinds = [a_member(crash=crash).definition]
    one, two = await fleet.runtime("one", kinds=kinds), await fleet.runtime("two", kinds=kinds)
    await one.start(a_member(crash=crash))
    held = ownership_of(one)
    hang(one)
    await wait_for_takeover(two)
    held.deadline, held.is_lost = float("inf"), False  # as if its clock went after
    await one.cast("a", sig("crash"))
    await one.cast("a", sig("up"))
    await eventually(lambda: one.whereis("a") is None)
    assert (await two.call("a", sig("up"))).state["count"] == 1
    assert await two.locate("a") == "two"


async def test_an_agent_whose_post_somebody_else_took_is_taken_up_anew(
    fleet: FleetBuilder, a_transport: OpenTransport
) -> None:
    """It has the lease, and would hear nothing for as long as it lives."""
    one = await fleet.runtime("one", takeover_interval_ms=50)
    await one.start(a_member())
    async with a_transport() as stranger:
        subscription = await stranger.subscribe("**", SignalRecorder(), agent="a")
        listener: Any = ownership_of(one).subscription
        await eventually(lambda: listener.closed, timeout=10)
        await subscription.close()
    await one.transport.publish(sig("up"), to="a")

    def counted() -> bool:
        server = one.whereis("a")
        return server is not None and server.agent.state.get("count") == 1

    await eventually(counted, timeout=10)


async def test_a_runtime_names_the_best_of_its_agents_where_not_all_fit(fleet: FleetBuilder) -> None:
    """An answer that is too large would not be sent, and name nobody."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    for number in range(4):
        agent = an_agent(f"m{number}", kind="member")
        able = {"actions": ["up"], "io": {"text": "x" * 400_000}}
        await one.start(identity.ensure(agent, profile={"age": number}, capabilities=able))
    found = await two.who_can(action="up", timeout=1.5)
    assert [(one.agent_id, one.runtime) for one in found] == [("m3", "one"), ("m2", "one")]


async def test_a_message_that_is_as_large_as_may_be_is_laid_aside(a_transport: OpenTransport) -> None:
    """Beside it there is no room to say why; what comes behind it is told."""
    problems, told = ErrorRecorder(), SignalRecorder()
    async with a_transport(on_error=problems, ack_wait=1.0) as transport:
        js, prefix = jetstream(transport), transport.settings.prefix
        await js.publish(f"{prefix}.to.a.x", b"\xff" * transport._connection.max_payload)
        await transport.subscribe("**", told, agent="a")
        await transport.publish(sig("x", 1), to="a")
        await eventually(lambda: told.data == [1], timeout=5)
        assert await message_count(transport, transport.settings.dead_letter_stream) == 1


async def test_a_signal_over_which_an_agent_is_given_up_again_and_again_is_laid_aside(
    fleet: FleetBuilder,
) -> None:
    """Also under the usual terms, by which an agent is given up before the signal has failed too often."""
    kind = a_member(crash=crash).definition
    one = await fleet.runtime("one", kinds=[kind])
    transport: Any = one.transport
    before = transport.stats()["channels"]
    await one.start(a_member(crash=crash))
    await transport.publish(sig("crash"), to="a")
    await transport.publish(sig("up"), to="a")
    for _ in range(2):
        await eventually(lambda: transport.stats()["channels"] == before, timeout=10)
        await one.thaw("a", kind)

    def counted() -> bool:
        server = one.whereis("a")
        return server is not None and server.agent.state.get("count") == 1

    await eventually(counted, timeout=10)
    assert await message_count(transport, transport.settings.dead_letter_stream) == 1
    assert len(await consumer_names(transport, transport.settings.agent_stream)) == 1


async def test_what_was_handled_is_not_laid_aside_because_nobody_can_be_answered(fleet: FleetBuilder) -> None:
    """The address may be nonsense; the signal was handled and saved all the same, and the next one comes."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    transport: Any = one.transport
    await one.start(a_member())
    await two.cast("a", sig("up", extensions={"omoidereply": "no..address"}))
    assert (await two.call("a", sig("up"), timeout=5)).state["count"] == 2
    assert await message_count(transport, transport.settings.dead_letter_stream) == 0


async def test_a_question_that_is_nonsense_keeps_no_other_from_being_answered(fleet: FleetBuilder) -> None:
    """To be told it again and again would only take time."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    transport: Any = one.transport
    await one.start(a_member())
    for data in ({"tags": 5}, {"action": {"x": 1}}, {"limits": [1]}):
        nonsense = sig(capabilities.CAPABILITIES_REQUEST, data, extensions={"omoidereply": "x"})
        await two.transport.publish(nonsense)
    assert [found.agent_id for found in await two.who_can(timeout=0.5)] == ["a"]
    assert await message_count(transport, transport.settings.dead_letter_stream) == 0


async def test_a_signal_that_an_agent_does_not_know_is_confirmed_when_that_is_saved(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its error policy sent about it would be lost with the process."""
    one = await fleet.runtime("one", lease_ms=60_000)
    transport: Any = one.transport
    await one.start(a_member())
    late = Late(monkeypatch, one.store, "save")
    await transport.publish(sig("nonsense"), to="a")
    await late.asked.wait()
    assert [await message_count(transport, transport.settings.agent_stream) for _ in range(20)] == [1] * 20
    late.go.set()

    async def confirmed() -> bool:
        return await message_count(transport, transport.settings.agent_stream) == 0

    await eventually(confirmed)
