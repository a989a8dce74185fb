"""A change notifies everyone who waits for it at once, and nobody is left waiting."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import anyio
import pytest
from tests.support.servers import postgres
from tests.support.stores import write_request

from omoide.stores import SupportsWait, open_store
from omoide.stores.postgres import store as waking
from omoide.testing import eventually

pytestmark = pytest.mark.anyio

LONG = 30.0
"""Seconds that nobody waits in a test that passes."""


@pytest.fixture
async def both() -> AsyncIterator[tuple[Any, Any]]:
    """Two stores at one place, as two machines would have them."""
    url = postgres().fresh_url()
    async with open_store(url, embedder="none") as one, open_store(url, embedder="none") as other:
        yield one, other


async def until_change(store: Any, namespace: str, after: int, within: float = LONG) -> bool:
    found: bool = await store.wait(namespace, after=after, timeout=within)
    return found


async def test_who_waits_is_woken_by_a_write_of_another(
    both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The message alone wakes: nobody looks by himself in this test."""
    monkeypatch.setattr(waking, "POLL_INTERVAL_S", LONG)  # nothing but the bell can wake
    one, other = both
    assert isinstance(other, SupportsWait)
    woken: list[bool] = []
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as group:

            async def wait() -> None:
                woken.append(await until_change(other, "default", 0, 2 * LONG))

            group.start_soon(wait)
            await eventually(lambda: listening(one))
            await one.write(write_request())
    assert woken == [True]


async def test_a_change_that_is_there_already_needs_no_waiting(both: tuple[Any, Any]) -> None:
    """Whoever comes late is told at once."""
    one, other = both
    await one.write(write_request())
    assert await until_change(other, "default", 0)


async def test_nothing_new_is_told_when_the_time_is_over(both: tuple[Any, Any]) -> None:
    """Waiting ends, and says that nothing came."""
    one, other = both
    await one.write(write_request())
    (change,) = await other.changes("default")
    assert not await until_change(other, "default", change.seq, within=0.05)


async def test_changes_of_another_namespace_wake_nobody_for_good(both: tuple[Any, Any]) -> None:
    """A namespace has changes of its own."""
    one, other = both
    await one.write(write_request(namespace="theirs"))
    assert not await until_change(other, "default", 0, within=0.05)


async def test_who_looks_by_himself_needs_no_bell(
    both: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As behind a pooler that passes no messages on."""
    one, other = both
    monkeypatch.setattr(waking, "POLL_INTERVAL_S", 0.01)
    monkeypatch.setattr(waking.ChangeListener, "_wake", lambda *_: None)
    with anyio.fail_after(LONG):
        async with anyio.create_task_group() as group:
            group.start_soon(one.write, write_request())
            assert await until_change(other, "default", 0)


async def test_a_closed_store_leaves_no_listener_behind() -> None:
    """Its connection is gone from the server."""
    url = postgres().fresh_url()
    async with open_store(url, embedder="none") as watcher:
        async with open_store(url, embedder="none") as store:
            await until_change(store, "default", 0, within=0.05)
            assert await eventually(lambda: listening(watcher))
        assert await eventually(lambda: not listening(watcher))


def listening(store: Any) -> bool:
    """Whether anybody listens on the store's channel."""
    with store.sync._db.read_transaction() as db:
        found = db.execute(
            "SELECT count(*) FROM pg_catalog.pg_stat_activity WHERE query LIKE 'LISTEN omoide%'"
        )
        return bool(found.fetchone()[0])
