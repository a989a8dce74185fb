"""Agents on several machines keep their guarantees when machines are killed, stopped and started.

Every machine is a process of its own, with a store and a server that are as real: a SQLite file that they
share, a PostgreSQL server, a Redis server.
"""

from __future__ import annotations

import os
import random
import signal as signals
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from tests.support.fleet_process import WORKER, machines
from tests.support.stores import url

from omoide import Agent, Signal
from omoide.runtime.checkpoints import DocumentCheckpointStore, load_agent
from omoide.runtime.nats import NatsTransport
from omoide.stores import open_store
from omoide.testing import NatsServer, eventually

KILLS = max(1, int(os.environ.get("OMOIDE_KILLS", "10")) // 5)
LEASE_MS = 1_000

pytestmark = pytest.mark.timeout(120 + 20 * KILLS)


@pytest.fixture
def start() -> Iterator[Any]:
    """Starts machines."""
    with machines() as start:
        yield start


@pytest.fixture(params=["sqlite", "postgres", "redis"])
def place(nats: NatsServer, tmp_path: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Where the machines of one fleet meet."""
    store = url(request.param, tmp_path, "fleet.db")
    prefix = f"fleet-{os.urandom(6).hex()}"
    return {"nats": nats.url, "store": store, "lease_ms": LEASE_MS, "transport": {"prefix": prefix}}


def a_transport(place: dict[str, Any]) -> NatsTransport:
    """The transport of the fleet, for a test that sends to it."""
    return NatsTransport(place["nats"], **place["transport"])


async def load_saved(place: dict[str, Any], id: str) -> Agent:
    """An agent as the store has it."""
    async with open_store(place["store"], embedder="none") as store:
        return (await load_agent(id, WORKER, DocumentCheckpointStore(store)))[0]


async def seen_numbers(place: dict[str, Any], id: str) -> list[int]:
    """The numbers that an agent was told, as the store has it."""
    return [*(await load_saved(place, id)).state.get("seen", ())]


async def has_seen(place: dict[str, Any], id: str, count: int) -> bool:
    """Whether an agent was told so many."""
    return len(await seen_numbers(place, id)) >= count


async def test_machines_find_each_other_work_and_answer(start: Any, place: dict[str, Any]) -> None:
    """Who can do something is ranked over both, work goes to the other one, and the result comes back."""
    one, two = start(name="one", **place), start(name="two", **place)
    await one.ready()
    await two.ready()
    await one.call(start="young", age=3)
    await two.call(start="old", age=40)
    await two.call(start="middle", age=20)
    ranked = [["old", "two"], ["middle", "two"], ["young", "one"]]
    assert await one.call(who="counting") == ranked
    assert await two.call(who="counting") == ranked
    assert await one.call(who="flying") == []
    for number in range(5):
        await one.call(cast="old", type="count", data=number)
    assert await one.call(ask="old", type="count", data=5) == "two"
    assert await seen_numbers(place, "old") == [*range(6)]
    assert (await one.try_call(start="old"))["error"] == "OwnedElsewhere"
    assert await one.call(where="old") == "two"
    await two.call(hibernate="middle")
    for id in ("middle", "nobody"):
        assert (await one.try_call(cast=id, type="count", data=6))["error"] == "NotRunning"
    two.leave()
    assert await one.call(ids=True) == ["young"], "what was put to rest stays at rest"
    assert await one.call(where="old") is None


async def test_nothing_is_lost_or_done_twice_when_machines_are_killed(
    start: Any, place: dict[str, Any]
) -> None:
    """Each number that was published is handled once and in order, by agents and by those they send to."""
    chance = random.Random(seed := random.randrange(1 << 32))
    print(f"seed {seed}")  # noqa: T201 - shown when the test fails
    ids, numbers = ["sink", "first", "second"], 0
    alive = [start(name="m0", **place), start(name="m1", **place)]
    for machine in alive:
        await machine.ready()
    for at, id in enumerate(ids):
        await alive[at % 2].call(start=id)

    async with a_transport(place) as transport:
        for kill in range(KILLS):
            enough = chance.randrange(20, 80)
            fresh = start(name=f"m{kill + 2}", **place)

            async def publish(first: int, count: int = enough + 40) -> None:
                for number in range(first, first + count):
                    for id in ids[1:]:
                        await transport.publish(Signal(type="relay", data=number), to=id)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(publish, numbers)
                await eventually(partial(has_seen, place, "first", numbers + enough - 40), timeout=60)
                alive.pop(0).kill()
            numbers += enough + 40
            alive.append(await fresh.ready())
        for id in ids[1:]:
            await eventually(partial(has_seen, place, id, numbers), timeout=60)
            assert await seen_numbers(place, id) == [*range(numbers)]
        await eventually(lambda: has_seen(place, "sink", 2 * numbers), timeout=60)
    assert sorted(await seen_numbers(place, "sink")) == sorted([*range(numbers)] * 2)
    living = [id for machine in alive for id in await machine.call(ids=True)]
    assert sorted(living) == sorted(ids)


async def test_a_machine_that_slept_past_its_lease_changes_nothing(start: Any, place: dict[str, Any]) -> None:
    """It wakes up, finds that another has its agent, and neither saves nor sends anything any more."""
    one, two = start(name="one", **place), start(name="two", **place)
    await one.ready()
    await one.call(start="sink")
    await one.call(start="first")
    assert await one.call(ask="first", type="count", data=0) == "one"
    assert await seen_numbers(place, "first") == [0]
    await two.ready()
    async with a_transport(place) as transport:
        one.send(signals.SIGSTOP)
        for number in range(1, 20):
            await transport.publish(Signal(type="relay", data=number), to="first")
        await eventually(lambda: has_seen(place, "first", 20), timeout=30)
        assert await two.call(ids=True) == ["first", "sink"]
        one.send(signals.SIGCONT)

        async def has_none() -> bool:
            return bool(await one.call(ids=True) == [])

        await eventually(has_none, timeout=10)
        for number in range(20, 30):
            await transport.publish(Signal(type="relay", data=number), to="first")
        await eventually(lambda: has_seen(place, "first", 30), timeout=30)
        await eventually(lambda: has_seen(place, "sink", 29), timeout=30)
    assert await seen_numbers(place, "first") == [*range(30)]
    assert await seen_numbers(place, "sink") == [*range(1, 30)]
    assert await one.call(where="first") == "two"
    assert await one.call(ask="first", type="count", data=30) == "two"
