"""A machine of a fleet: a runtime in a process of its own, told what to do line by line.

`python fleet_process.py '{"nats": …, "store": …, "name": …}'` answers each line of JSON with another.
`Machine` is the other end, for tests.
"""

from __future__ import annotations

import json
import os
import select
import signal as signals
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
from anyio import to_thread

from omoide import Agent, Context, Signal, action, identity
from omoide.directives import Emit
from omoide.errors import OmoideError
from omoide.runtime import Runtime
from omoide.runtime.nats import NatsTransport
from omoide.stores import open_store

PATIENCE_S = 60.0


@action
def count(ctx: Context) -> dict[str, Any]:
    """Keep the number that a signal brings."""
    assert ctx.signal is not None
    return {"seen": [*ctx.state.get("seen", ()), ctx.signal.data]}


@action
def relay(ctx: Context) -> Any:
    """Keep the number, and send it on to the agent `sink`."""
    assert ctx.signal is not None
    onward = Emit(signal=Signal(type="count", data=ctx.signal.data), dispatch={"to": "sink"})
    return {"seen": [*ctx.state.get("seen", ()), ctx.signal.data]}, [onward]


WORKER = Agent.new("worker", id="worker", routes=[("count", count), ("relay", relay)]).definition


def a_worker(id: str, age: int = 1) -> Agent:
    """Return an agent that can count."""
    return identity.ensure(
        Agent.new(WORKER, id=id), profile={"age": age}, capabilities={"actions": ["counting"]}
    )


async def _execute(runtime: Runtime, told: dict[str, Any]) -> Any:
    match told:
        case {"start": id}:
            return await runtime.start(a_worker(id, told.get("age", 1)))
        case {"cast": id}:
            return await runtime.cast(id, Signal(type=told["type"], data=told["data"]))
        case {"ask": id}:
            answer: Any = await runtime.ask(id, Signal(type=told["type"], data=told["data"]), timeout=20)
            return answer.data["runtime"]
        case {"who": name}:
            found = await runtime.who_can(action=name, timeout=told.get("within", 1.0))
            return [[one.agent_id, one.runtime] for one in found]
        case {"where": id}:
            return await runtime.locate(id)
        case {"ids": _}:
            return sorted(runtime.ids())
        case {"hibernate": id}:
            return await runtime.hibernate(id)
        case {"dropped": _}:
            return [one.reason for one in runtime.dropped_signals]
        case _:
            raise SystemExit(f"cannot {told}")


async def _live(given: dict[str, Any]) -> None:
    def problem(signal: Signal | None, error: Exception) -> None:
        print("transport:", repr(error), file=sys.stderr, flush=True)  # noqa: T201

    async with (
        open_store(given["store"], embedder="none") as store,
        NatsTransport(given["nats"], on_error=problem, **given.get("transport", {})) as transport,
        Runtime(
            transport=transport,
            store=store,
            name=given["name"],
            kinds=[WORKER],
            lease_ms=given.get("lease_ms", 1_000),
            takeover_interval_ms=given.get("takeover_interval_ms", 200),
        ) as runtime,
    ):
        print(json.dumps("ready"), flush=True)  # noqa: T201
        while line := await to_thread.run_sync(sys.stdin.readline):
            try:
                answer = {"done": await _execute(runtime, json.loads(line))}
            except OmoideError as error:
                answer = {"error": type(error).__name__, "told": str(error)}
            print(json.dumps(answer), flush=True)  # noqa: T201


class Machine:
    """A handle on a running machine."""

    def __init__(self, **given: Any) -> None:
        self.name = given["name"]
        self.process = subprocess.Popen(
            [sys.executable, __file__, json.dumps(given)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._read = b""

    def answer(self) -> Any:
        """Return the next line that it writes."""
        assert self.process.stdout is not None
        pipe = self.process.stdout.fileno()
        while b"\n" not in self._read:
            ready = select.select([pipe], [], [], PATIENCE_S)[0]
            more = os.read(pipe, 65_536) if ready else b""
            assert more, f"machine {self.name} says nothing any more"
            self._read += more
        line, _, self._read = self._read.partition(b"\n")
        return json.loads(line)

    async def ready(self) -> Machine:
        """Wait until it takes orders."""
        assert await to_thread.run_sync(self.answer) == "ready"
        return self

    async def call(self, **told: Any) -> Any:
        """Return the result of an order."""
        answer = await self.try_call(**told)
        assert "error" not in answer, answer
        return answer["done"]

    async def try_call(self, **told: Any) -> Any:
        """Return the answer to an order: its result, or its error."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(told).encode() + b"\n")
        self.process.stdin.flush()
        return await to_thread.run_sync(self.answer)

    def send(self, number: signals.Signals) -> None:
        """Stop it, let it go on, or kill it."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self._wait()

    def leave(self) -> None:
        """Let it end in order, when nothing more is asked."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self._wait()

    def _wait(self) -> None:
        self.process.wait(PATIENCE_S)
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


@contextmanager
def machines() -> Iterator[Any]:
    """A function that starts machines, all of which end with the block."""
    started: list[Machine] = []

    def start(**given: Any) -> Machine:
        started.append(Machine(**given))
        return started[-1]

    try:
        yield start
    finally:
        for machine in started:
            if machine.process.poll() is None:
                machine.kill()


if __name__ == "__main__":
    anyio.run(_live, json.loads(sys.argv[1]))
