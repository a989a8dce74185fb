"""Runtimes of a fleet for tests."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.support.runtime_agents import an_agent, counting, fail, noting, sig

from omoide import Agent, Context, identity, memory
from omoide.directives import Emit
from omoide.runtime import Runtime
from omoide.runtime.checkpoints import DocumentCheckpointStore, load_agent
from omoide.runtime.nats import NatsTransport
from omoide.stores.factory import open_store
from omoide.testing import eventually

LEASE_MS = 600

OpenTransport = Callable[..., NatsTransport]


def sends(ctx: Context) -> Any:
    """Count, and send on to `b`."""
    assert ctx.signal is not None
    onward = Emit(signal=sig("note", ctx.signal.data), dispatch={"to": "b"})
    return {"count": ctx.state.get("count", 0) + 1}, [onward]


def tells_all(ctx: Context) -> Any:
    """Tell everybody."""
    assert ctx.signal is not None
    return None, [Emit(signal=sig("news", ctx.signal.data), dispatch={"bus": True})]


def sends_back(ctx: Context) -> Any:
    """Send something new to `a`."""
    return None, [Emit(signal=sig("send", 1), dispatch={"to": "a"})]


def a_member(id: str = "a", **more: Any) -> Agent:
    """An agent of the only kind that these fleets know."""
    on = {"up": counting, "note": noting, "send": sends, "tell": tells_all, "fail": fail}
    agent = an_agent(id, {**on, **more}, kind="member")
    return identity.ensure(memory.world_put(agent, "mood", "calm"), profile={"age": 3})


KIND = a_member().definition


class Yard:
    """A place where runtimes of one fleet are made."""

    def __init__(self, path: Path, transport: OpenTransport, stack: AsyncExitStack) -> None:
        self.url = f"sqlite://{path}/fleet.db"
        self._transport, self._stack = transport, stack

    async def store(self) -> Any:
        """A connection to the store."""
        return await self._stack.enter_async_context(open_store(self.url, embedder="none"))

    async def runtime(self, name: str, stack: AsyncExitStack | None = None, **more: Any) -> Runtime:
        """A runtime that is open until the end of the test, or of a block."""
        stack = stack or self._stack
        transport = await stack.enter_async_context(self._transport())
        given = {"kinds": [KIND], "lease_ms": LEASE_MS, "store": await self.store(), **more}
        return await stack.enter_async_context(Runtime(transport=transport, name=name, **given))

    async def saved(self, id: str) -> Agent:
        """An agent as the store has it."""
        return (await load_agent(id, KIND, DocumentCheckpointStore(await self.store())))[0]


def gone(runtime: Runtime) -> None:
    """Let a runtime stop renewing and looking, as if its process hung."""
    assert runtime.fleet is not None
    runtime.fleet.leases.cancel_scope.cancel()
    runtime.fleet._closing = True


async def taken_over(by: Runtime, id: str = "a") -> None:
    """Until a runtime has taken an agent up."""
    await eventually(lambda: by.whereis(id), timeout=10)
