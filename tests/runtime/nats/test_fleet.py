"""An agent of a fleet runs in one place at a time, and moves when its runtime is gone.

Two runtimes in one process, each with its own connection to one store and one server.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.fleets import (
    KIND,
    FleetBuilder,
    OpenTransport,
    a_member,
    hang,
    wait_for_takeover,
)
from tests.support.runtime_agents import action_returning, sig
from tests.support.signal_recorders import consumer_names

from omoide import Signal, memory
from omoide.directives import Schedule, SpawnAgent
from omoide.errors import (
    Conflict,
    Dropped,
    IdTaken,
    Invalid,
    MissingStore,
    OwnedElsewhere,
    StoreFailed,
    TooManyAgents,
)
from omoide.runtime import FileCheckpointStore, Runtime
from omoide.stores import open_store
from omoide.testing import ManualTiming, eventually


async def test_an_agent_lives_in_one_place(fleet: FleetBuilder) -> None:
    """Nobody else can start it or thaw it, until it is given back; then it is the one it was."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    await one.start(a_member())
    for attempt in (two.start(a_member()), two.thaw("a", "member")):
        with pytest.raises(OwnedElsewhere, match="runs on node 'one'") as caught:
            await attempt
        assert caught.value.owner == "one"
    with pytest.raises(IdTaken):
        await one.start(a_member())
    assert (await one.call("a", sig("up"))).state["count"] == 1
    assert [await one.locate("a"), await two.locate("a")] == ["one", "one"]
    await one.hibernate("a")
    assert await two.locate("a") is None
    await two.thaw("a", "member")
    assert await one.locate("a") == "two"
    assert (await two.call("a", sig("up"))).state["count"] == 2
    await two.stop("a")
    assert await two.locate("a") is None
    with pytest.raises(Conflict):
        await one.start(a_member())
    assert (await one.thaw("a", KIND)) == "a"
    assert memory.world_get(await one.state("a"), "mood") == "calm"


async def test_an_agent_whose_runtime_hangs_is_taken_over(fleet: FleetBuilder) -> None:
    """Within the lease and one look; the former runtime ends it, and cannot save it."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two", takeover_interval_ms=50)
    await one.start(a_member())
    await one.call("a", sig("up"))
    assert await two.take_over() == []
    hang(one)
    await wait_for_takeover(two)
    assert (await two.call("a", sig("up"))).state["count"] == 2
    with pytest.raises(Dropped, match="its lease expired"):
        await one.checkpoint("a")
    await eventually(lambda: one.whereis("a") is None)
    assert (await fleet.load("a")).state["count"] == 2
    assert await one.locate("a") == "two"


async def test_a_late_save_of_a_former_owner_is_refused_by_the_store(fleet: FleetBuilder) -> None:
    """Even one that believes in its lease: the next owner changed the revision when it took the agent up."""
    one, two = await fleet.runtime("one"), await fleet.runtime("two", takeover_interval_ms=50)
    await one.start(a_member())
    assert one.fleet is not None
    held = one.fleet.leases.owned["a"]
    server = one.whereis("a")
    assert server is not None
    hang(one)
    await wait_for_takeover(two)
    held.deadline, held.is_lost = float("inf"), False
    with pytest.raises(Conflict):
        await held.save(a_member().replace(description="late"), server.persistence.rev)
    assert held.is_lost
    assert (await fleet.load("a")).description != "late"
    assert (await two.call("a", sig("up"))).state["count"] == 1


async def test_a_store_that_cannot_be_asked_ends_the_agent_in_time(
    fleet: FleetBuilder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the lease has run out, whether it could be renewed or not."""
    one = await fleet.runtime("one")
    await one.start(a_member())
    store = one.store
    claim = store.claim

    async def broken(*given: Any, **more: Any) -> Any:
        raise StoreFailed("shared", "is not there", "wait")

    monkeypatch.setattr(type(store), "claim", broken)
    await eventually(lambda: one.whereis("a") is None, timeout=5)
    monkeypatch.undo()
    assert store.claim == claim
    await wait_for_takeover(one)


async def test_agents_at_rest_stay_at_rest(fleet: FleetBuilder) -> None:
    """Hibernated, stopped, or given back when their runtime closed."""
    two = await fleet.runtime("two", takeover_interval_ms=20)
    async with AsyncExitStack() as stack:
        one = await fleet.runtime("one", stack)
        for id in ("a", "b", "c"):
            await one.start(a_member(id))
        await one.hibernate("a")
        await one.stop("b")
    assert [await two.locate(id) for id in ("a", "b", "c")] == [None, None, None]
    assert await two.take_over() == []
    assert two.ids() == []


async def test_takeover_needs_room_and_a_kind(fleet: FleetBuilder) -> None:
    """A runtime takes as many as it has room for, and only what it knows."""
    one = await fleet.runtime("one")
    for id in ("a", "b", "c"):
        await one.start(a_member(id))
    stranger = await fleet.runtime("stranger", kinds=[], takeover_interval_ms=20)
    small = await fleet.runtime("small", max_agents=2, takeover_interval_ms=20)
    hang(one)
    await eventually(lambda: len(small.ids()) == 2, timeout=10)
    assert await small.take_over() == []
    assert stranger.ids() == []
    with pytest.raises(TooManyAgents):
        await small.start(a_member("d"))


async def test_looking_is_a_matter_of_the_runtimes_timing(fleet: FleetBuilder) -> None:
    """With a timing that stands still nobody looks, until it is moved or somebody says so."""
    timing = ManualTiming()
    one = await fleet.runtime("one")
    two = await fleet.runtime("two", timing=timing, takeover_interval_ms=1_000)
    await one.start(a_member())
    assert one.fleet is not None
    held = one.fleet.leases.owned["a"]
    hang(one)
    await eventually(lambda: not held.is_valid())
    assert two.ids() == []

    async def looked() -> bool:
        await timing.advance(1_000)  # the store may find later than we that the lease is over
        return two.ids() == ["a"]

    await eventually(looked)
    await wait_for_takeover(two)


async def test_pending_schedules_move_with_the_agent(fleet: FleetBuilder) -> None:
    """To the runtime that thaws it, and to the one that takes it over."""
    later = action_returning(Schedule(delay_ms=60_000, message=sig("up")))
    agent = a_member("a", later=later)
    timings = [ManualTiming(0), ManualTiming(0)]
    one, two = [
        await fleet.runtime(name, timing=timing, kinds=[agent.definition])
        for name, timing in zip(("one", "two"), timings, strict=True)
    ]
    await one.start(agent)
    await one.call("a", sig("later"))
    await one.hibernate("a")
    await two.thaw("a", "member")
    await timings[1].advance(59_999)
    assert (await two.state("a")).state.get("count") is None
    await two.call("a", sig("later"))
    await timings[1].advance(1)
    await eventually(lambda: counted(two, 1))
    await eventually(partial(is_saved, fleet, 1))
    hang(two)

    async def taken() -> bool:
        await one.take_over()
        return one.whereis("a") is not None

    await eventually(taken, timeout=10)
    await timings[0].advance(119_999)
    await eventually(lambda: counted(one, 2))


def counted(runtime: Runtime, count: int) -> bool:
    server = runtime.whereis("a")
    return server is not None and bool(server.agent.state.get("count") == count)


async def is_saved(fleet: FleetBuilder, count: int) -> bool:
    return bool((await fleet.load("a")).state.get("count") == count)


async def test_children_are_claimed_too(fleet: FleetBuilder) -> None:
    """And their parent hears of them, as everywhere."""
    born = SpawnAgent(tag="kid", kind="member", id="kid")
    one, two = await fleet.runtime("one"), await fleet.runtime("two")
    await one.start(a_member("a", bear=action_returning(born)))
    await one.call("a", sig("bear"))
    await eventually(lambda: one.whereis("kid"))
    assert await two.locate("kid") == "one"
    with pytest.raises(OwnedElsewhere):
        await two.start(a_member("kid"))


async def test_a_fleet_needs_a_store_that_can_say_who_has_an_agent(tmp_path: Path) -> None:
    """And no checkpoints of its own; without a name there is no fleet to ask."""
    with pytest.raises(MissingStore):
        Runtime(name="one")
    async with open_store("memory://", embedder="none") as store:
        with pytest.raises(Invalid, match="checkpoint_store"):
            Runtime(name="one", store=store, checkpoint_store=FileCheckpointStore(tmp_path))
        with pytest.raises(Invalid, match="lease_ms"):
            Runtime(name="one", store=store, lease_ms=0)
        async with Runtime(store=store) as runtime:
            for attempt in (runtime.locate("a"), runtime.take_over(), runtime.ask("a", Signal(type="x"))):
                with pytest.raises(Invalid, match="pass name="):
                    await attempt


async def test_nothing_is_left_after_the_end(fleet: FleetBuilder, a_transport: OpenTransport) -> None:
    """No reader on the server, and no task here."""
    before = len(asyncio.all_tasks())
    async with AsyncExitStack() as stack:
        one = await fleet.runtime("one", stack)
        for id in ("a", "b"):
            await one.start(a_member(id))
        await one.call("a", sig("send", 1))
    async with a_transport() as watching:
        for name in (watching.settings.broadcast_stream, watching.settings.agent_stream):
            assert await consumer_names(watching, name) == []
    await eventually(lambda: len(asyncio.all_tasks()) <= before)
