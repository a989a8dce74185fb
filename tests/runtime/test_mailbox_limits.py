"""Senders to a full mailbox wait, or get an error."""

from __future__ import annotations

from typing import Any

import anyio
import pytest
from tests.support.runtime_agents import (
    GatedCheckpointStore,
    an_agent,
    note_data,
    sig,
    to_plain,
)

from omoide.errors import Dropped, MailboxFull, TimedOut
from omoide.runtime import Runtime
from omoide.testing import eventually


async def block_agent(runtime: Runtime, checkpoints: GatedCheckpointStore, **terms: Any) -> None:
    """Have an agent wait for its checkpoint store, so that its mailbox fills."""
    checkpoints.gate = anyio.Event()
    await runtime.start(an_agent("a", {"note": note_data}), save_every=1, **terms)
    await runtime.cast("a", sig("note", "first"))
    with anyio.fail_after(5):
        await checkpoints.entered.wait()


async def test_who_sends_to_a_full_mailbox_waits(checkpoints: GatedCheckpointStore) -> None:
    """Until there is room; then the signal is handled in its turn."""
    sent: list[str] = []

    async def send(word: str) -> None:
        await runtime.cast("a", sig("note", word))
        sent.append(word)

    async with Runtime(checkpoint_store=checkpoints) as runtime, anyio.create_task_group() as group:
        await block_agent(runtime, checkpoints, mailbox=1)
        for word in ("second", "third", "fourth"):
            group.start_soon(send, word)
            await anyio.wait_all_tasks_blocked()
        assert sent == ["second"]
        assert checkpoints.gate is not None
        checkpoints.gate.set()
        await eventually(lambda: len(sent) == 3)
        after = await runtime.call("a", sig("note", "last"))
        assert to_plain(after.state["noted"]) == ["first", "second", "third", "fourth", "last"]


async def test_who_will_not_wait_is_told_that_the_mailbox_is_full(checkpoints: GatedCheckpointStore) -> None:
    """Nothing is accepted then, and the signal is reported as turned away."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await block_agent(runtime, checkpoints, mailbox=2)
        for word in ("second", "third"):
            await runtime.cast("a", sig("note", word), wait=False)
        with pytest.raises(MailboxFull, match="2 signals are waiting") as caught:
            await runtime.cast("a", sig("note", "fourth"), wait=False)
        assert caught.value.size == 2
        assert [(drop.signal.data, drop.accepted) for drop in runtime.dropped_signals] == [("fourth", False)]
        assert checkpoints.gate is not None
        checkpoints.gate.set()
        after = await runtime.call("a", sig("note", 5))
        assert to_plain(after.state["noted"]) == ["first", "second", "third", 5]


async def test_a_call_that_takes_too_long_is_given_up(checkpoints: GatedCheckpointStore) -> None:
    """The error says of what; the signal itself may still be handled."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await block_agent(runtime, checkpoints)
        with pytest.raises(TimedOut, match=r"'note'.*'a'.*0.01"):
            await runtime.call("a", sig("note", "late"), timeout=0.01)
        assert checkpoints.gate is not None
        checkpoints.gate.set()
        after = await runtime.call("a", sig("note", "on time"), timeout=5)
        assert to_plain(after.state["noted"]) == ["first", "late", "on time"]


async def test_a_sender_that_gives_up_has_sent_nothing(checkpoints: GatedCheckpointStore) -> None:
    """A signal that was still waiting for room is not handled later, and counts nowhere."""
    async with Runtime(checkpoint_store=checkpoints) as runtime:
        await block_agent(runtime, checkpoints, mailbox=1)
        await runtime.cast("a", sig("note", "second"))
        with anyio.move_on_after(0.01):
            await runtime.cast("a", sig("note", "third"))
        assert checkpoints.gate is not None
        checkpoints.gate.set()
        after = await runtime.call("a", sig("note", "last"))
        assert to_plain(after.state["noted"]) == ["first", "second", "last"]
        assert runtime.stats() == {"agents": 1, "accepted": 3, "handled": 3, "waiting": 0, "dropped": 0}


async def test_an_agent_that_is_ending_takes_nobody_in(checkpoints: GatedCheckpointStore) -> None:
    """Who sends to it, and who waits to, is told that it ends, not that it is full."""
    told: list[Dropped] = []

    async def send(**how: Any) -> None:
        try:
            await runtime.cast("a", sig("note"), **how)
        except Dropped as error:
            told.append(error)

    async with Runtime(checkpoint_store=checkpoints) as runtime, anyio.create_task_group() as group:
        await block_agent(runtime, checkpoints, mailbox=1)
        await runtime.cast("a", sig("note", "second"))
        group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        group.start_soon(runtime.stop, "a")
        await anyio.wait_all_tasks_blocked()
        await send(wait=True)
        await send(wait=False)
        assert checkpoints.gate is not None
        checkpoints.gate.set()
    assert len(told) == 3
    for error in told:
        assert "ending" in error.reason
