"""Runtimes of a fleet for tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.support.runtime_agents import an_agent, count_signals, fail, note_data, sig

from omoide import Agent, Context, identity, memory
from omoide.directives import Emit
from omoide.runtime import Runtime
from omoide.runtime.checkpoints import DocumentCheckpointStore, load_agent
from omoide.runtime.nats import NatsTransport
from omoide.stores import open_store
from omoide.testing import eventually

LEASE_MS = 600

OpenTransport = Callable[..., NatsTransport]


def send_on(ctx: Context) -> Any:
    """Count, and send on to `b`."""
    assert ctx.signal is not None
    onward = Emit(signal=sig("note", ctx.signal.data), dispatch={"to": "b"})
    return {"count": ctx.state.get("count", 0) + 1}, [onward]


def broadcast(ctx: Context) -> Any:
    """Send a signal to every agent."""
    assert ctx.signal is not None
    return None, [Emit(signal=sig("news", ctx.signal.data), dispatch={"bus": True})]


def send_back(ctx: Context) -> Any:
    """Send something new to `a`."""
    return None, [Emit(signal=sig("send", 1), dispatch={"to": "a"})]


def a_member(id: str = "a", **more: Any) -> Agent:
    """An agent of the only kind that these fleets know."""
    on = {"up": count_signals, "note": note_data, "send": send_on, "tell": broadcast, "fail": fail}
    agent = an_agent(id, {**on, **more}, kind="member")
    return identity.ensure(memory.world_put(agent, "mood", "calm"), profile={"age": 3})


KIND = a_member().definition


class FleetBuilder:
    """Opens the runtimes of one fleet, over one store and one transport."""

    def __init__(self, path: Path, transport: OpenTransport, stack: AsyncExitStack) -> None:
        self.url = f"sqlite://{path}/fleet.db"
        self._transport, self._stack = transport, stack

    async def store(self) -> Any:
        """Open a connection to the store."""
        return await self._stack.enter_async_context(open_store(self.url, embedder="none"))

    async def runtime(self, name: str, stack: AsyncExitStack | None = None, **more: Any) -> Runtime:
        """Open a runtime until the end of the test, or of a block."""
        stack = stack or self._stack
        transport = await stack.enter_async_context(self._transport())
        given = {"kinds": [KIND], "lease_ms": LEASE_MS, "store": await self.store(), **more}
        return await stack.enter_async_context(Runtime(transport=transport, name=name, **given))

    async def load(self, id: str) -> Agent:
        """Load an agent from the store."""
        return (await load_agent(id, KIND, DocumentCheckpointStore(await self.store())))[0]


def hang(runtime: Runtime) -> None:
    """Stop the renewals and claims of a runtime, as if its process hung."""
    assert runtime.fleet is not None
    runtime.fleet.leases.cancel_scope.cancel()
    runtime.fleet._closing = True


async def wait_for_takeover(by: Runtime, id: str = "a") -> None:
    """Wait until a runtime has taken an agent over."""
    await eventually(lambda: by.whereis(id), timeout=10)
