"""Agents, executors and checkpoint stores for tests of the runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import anyio

from omoide import Action, Agent, Checkpoint, Context, Signal, action
from omoide.core import ThreadEntry
from omoide.directives import Directive, Error
from omoide.runtime import AgentServer, CheckpointStore, ProviderFailure, ProviderResult, Runtime
from omoide.runtime.checkpoints import StoredCheckpoint, ThreadJournal

RESULT = "jido.memory.result"


class SignalRecorder(list[Signal]):
    """An action that keeps every signal that led to it, outside of the agent, so that no restart loses it."""

    def __call__(self, ctx: Context) -> None:
        assert ctx.signal is not None
        self.append(ctx.signal)

    @property
    def types(self) -> list[str]:
        """The types of the signals, in order."""
        return [signal.type for signal in self]

    @property
    def data(self) -> list[Any]:
        """What the signals brought, in order."""
        return [to_plain(signal.data) for signal in self]


def to_plain(value: Any) -> Any:
    """Return a frozen value as plain Python."""
    return value.to_python() if hasattr(value, "to_python") else value


class ErrorRecorder(list[Error]):
    """An error policy that keeps every error and does nothing about it."""

    def __call__(self, error: Error, server: Any) -> None:
        self.append(error)

    @property
    def kinds(self) -> list[str]:
        """The kinds of the errors, in order."""
        return [error.kind for error in self]

    @property
    def messages(self) -> str:
        """What the errors say."""
        return "\n".join(error.message for error in self)


def an_agent(
    id: str = "a", on: Mapping[str, Any] | None = None, *, kind: str = "a_kind", **parts: Any
) -> Agent:
    """An agent that does something at signals: a function of the context for each pattern."""
    routes = [(pattern, _target(pattern, what)) for pattern, what in (on or {}).items()]
    state = parts.pop("state", {})
    return Agent.new(kind, id=id, state=state, routes=[*routes, *parts.pop("routes", ())], **parts)


def _target(pattern: str, what: Any) -> Any:
    if isinstance(what, Action) or not callable(what):
        return what
    name = "on_" + "".join(letter if letter.isalnum() else "_" for letter in pattern)
    return action(name=name)(what)


def action_returning(*directives: Directive) -> Callable[[Context], Any]:
    """Return an action that changes nothing and returns these directives."""
    return lambda ctx: (None, [*directives])


def count_signals(ctx: Context) -> dict[str, Any]:
    """Count the signals that came."""
    return {"count": ctx.state.get("count", 0) + 1}


def note_data(ctx: Context) -> dict[str, Any]:
    """Keep what the signal brought in the agent's state."""
    assert ctx.signal is not None
    return {"noted": [*ctx.state.get("noted", ()), ctx.signal.data]}


def crash(ctx: Context) -> None:
    """End the agent in a way that no action may."""
    raise SystemExit(7)


def fail(ctx: Context) -> None:
    """Do something wrong."""
    raise ValueError("the secret words")


def sig(type: str, data: Any = None, **more: Any) -> Signal:
    """A signal."""
    return Signal(type=type, data=data, **more)


def server_of(runtime: Runtime, id: str = "a") -> AgentServer:
    """Return the server of a running agent."""
    server = runtime.whereis(id)
    assert server is not None
    return server


async def wait_until_gone(runtime: Runtime, id: str) -> None:
    """Wait until an agent is gone."""
    server = runtime.whereis(id)
    if server is not None:
        with anyio.fail_after(5):
            await server.ended.wait()


class GatedCheckpointStore:
    """A checkpoint store whose operations can be made to wait, or to fail."""

    def __init__(self, checkpoints: CheckpointStore) -> None:
        self.checkpoints = checkpoints
        self.gate: anyio.Event | None = None
        self.entered = anyio.Event()
        self.fails: dict[str, Exception] = {}
        self.calls: list[str] = []

    async def _intercept(self, name: str) -> None:
        self.calls.append(name)
        self.entered.set()
        if self.gate is not None:
            await self.gate.wait()
        if name in self.fails:
            raise self.fails[name]

    async def load(self, id: str) -> StoredCheckpoint:
        """What is kept of an agent."""
        await self._intercept("load")
        return await self.checkpoints.load(id)

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint in place of another."""
        await self._intercept("save")
        return await self.checkpoints.save(id, checkpoint, expected_rev=expected_rev)

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """The journal of a thread."""
        await self._intercept("read_thread")
        return await self.checkpoints.read_thread(id, thread_id)

    async def append_thread(
        self,
        id: str,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        *,
        expected_rev: int,
        after: int | None = None,
    ) -> int:
        """Add to a journal."""
        await self._intercept("append_thread")
        return await self.checkpoints.append_thread(
            id, thread_id, entries, expected_rev=expected_rev, after=after
        )


class Provider:
    """A memory provider that does what a test says."""

    name = "scripted"

    def __init__(self, **does: Any) -> None:
        self.does = does
        self.asked: list[tuple[str, Any]] = []
        self.entered = anyio.Event()

    async def _intercept(self, method: str, state: Any, given: Any) -> Any:
        self.asked.append((method, given))
        self.entered.set()
        does = self.does.get(method)
        if does is None:
            return ProviderResult(state, [])
        answer = does(state, given)
        return await answer if hasattr(answer, "__await__") else answer

    def init(self, opts: Mapping[str, Any]) -> Any:
        """Begin with a count of 0."""
        return 0

    async def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Nothing is there."""
        return ProviderFailure(state, "not_found")

    async def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> Any:
        """Put as the test says."""
        return await self._intercept("put", state, key)

    async def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Delete as the test says."""
        return await self._intercept("delete", state, key)

    async def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Any:
        """Answer as the test says."""
        return await self._intercept("query", state, query)
