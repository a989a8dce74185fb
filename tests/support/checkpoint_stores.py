"""Checkpoint stores, agents and killable processes for tests.

`python -m tests.support.checkpoint_stores JOB …` does one of the jobs below.
"""

from __future__ import annotations

import asyncio
import os
import resource
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from omoide import Agent, Checkpoint, Context, Definition, Signal, action, memory, open_store, thread
from omoide.core import ThreadEntry
from omoide.core.value import check_revision
from omoide.errors import Conflict, DiskFull, NotFound
from omoide.runtime import Runtime
from omoide.runtime.checkpoints import (
    CheckpointStore,
    DocumentCheckpointStore,
    FileCheckpointStore,
    StoredCheckpoint,
    ThreadJournal,
    load_agent,
    save_agent,
)

ROOT = Path(__file__).parents[2]
PLACES = ("memory", "sqlite", "files")
CLERK = Definition.new("clerk")


@asynccontextmanager
async def a_checkpoint_store(place: str, folder: Path, **options: Any) -> AsyncIterator[Any]:
    """A checkpoint store of one of the places."""
    if place == "files":
        yield FileCheckpointStore(folder / "checkpoints", **options)
        return
    url = "memory://" if place == "memory" else f"sqlite:///{(folder / 'checkpoints.db').as_posix()}"
    async with open_store(url, embedder="none", **options) as store:
        yield DocumentCheckpointStore(store)


def clerk(*said: str, id: str = "me") -> Agent:
    """An agent to whom this was said."""
    agent = Agent.new(CLERK, id=id)
    return thread.append(agent, [entry(text) for text in said]) if said else agent


def entry(text: str) -> dict[str, Any]:
    """Something that was said."""
    return {"kind": "message", "payload": {"text": text}}


def messages_of(agent: Agent) -> list[str]:
    """Return all that was said to an agent."""
    return [one.payload["text"] for one in thread.filter_by_kind(agent, "message")]


class DictCheckpointStore:
    """A checkpoint store of somebody's own, in as few lines as it takes."""

    def __init__(self) -> None:
        self.checkpoints: dict[str, StoredCheckpoint] = {}
        self.journals: dict[tuple[str, str], ThreadJournal] = {}

    async def load(self, id: str) -> StoredCheckpoint:
        """What is kept."""
        return self.checkpoints.get(id, StoredCheckpoint())

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Keep it."""
        rev = (await self.load(id)).rev
        check_revision(f"checkpoint {id!r}", expected_rev, rev)
        self.checkpoints[id] = StoredCheckpoint(checkpoint, rev + 1)
        return rev + 1

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """What is kept."""
        return self.journals.get((id, thread_id), ThreadJournal())

    async def append_thread(
        self,
        id: str,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        *,
        expected_rev: int,
        after: int | None = None,
    ) -> int:
        """Keep it."""
        old = await self.read_thread(id, thread_id)
        check_revision(f"journal of {thread_id!r}", expected_rev, old.rev)
        self.journals[id, thread_id] = ThreadJournal((*old.entries[:after], *entries), old.rev + 1)
        return old.rev + 1


class Crash(Exception):
    """The end of a process, as far as a checkpoint store sees it."""


class RecordingCheckpointStore:
    """A checkpoint store that records its calls, and lets `before` and `after` each step do something."""

    def __init__(
        self,
        checkpoints: CheckpointStore,
        before: Callable[[str], Awaitable[None]] | None = None,
        after: Callable[[str], Awaitable[None]] | None = None,
    ) -> None:
        self.checkpoints = checkpoints
        self.steps: list[str] = []
        self.before, self.after = before, after

    async def load(self, id: str) -> StoredCheckpoint:
        """As the checkpoint store does."""
        return cast("StoredCheckpoint", await self._step("load", self.checkpoints.load, id))

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """As the checkpoint store does."""
        return int(await self._step("save", self.checkpoints.save, id, checkpoint, expected_rev=expected_rev))

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """As the checkpoint store does."""
        return cast(
            "ThreadJournal", await self._step("read_thread", self.checkpoints.read_thread, id, thread_id)
        )

    async def append_thread(self, *args: Any, **options: Any) -> int:
        """As the checkpoint store does."""
        return int(await self._step("append_thread", self.checkpoints.append_thread, *args, **options))

    async def _step(self, name: str, step: Callable[..., Awaitable[Any]], *args: Any, **options: Any) -> Any:
        self.steps.append(name)
        if self.before is not None:
            await self.before(name)
        result = await step(*args, **options)
        if self.after is not None:
            await self.after(name)
        return result


def crash_at(checkpoints: CheckpointStore, at: int, *, done: bool) -> RecordingCheckpointStore:
    """Return a checkpoint store whose process ends at its n-th write, before it or after it."""
    left = at

    async def end(name: str) -> None:
        nonlocal left
        if name in ("save", "append_thread"):
            left -= 1
            if left < 0:
                raise Crash

    return (
        RecordingCheckpointStore(checkpoints, after=end)
        if done
        else RecordingCheckpointStore(checkpoints, before=end)
    )


# A life of steps: what an agent is after a step depends on its number alone.


def advance(agent: Agent, n: int) -> Agent:
    """Return the agent after step n: a few entries more, some of them large, and another belief."""
    said = [entry(f"{n}.{part} " + "x" * (n * 37 % 9_000)) for part in range(n % 4)]
    agent = thread.append(agent, said) if said else agent
    return memory.world_put(agent, "n", n)


def expected_messages(n: int) -> list[str]:
    """Return what was said to an agent up to step n."""
    return [f"{at}.{part}" for at in range(n + 1) for part in range(at % 4)]


async def live(place: str, folder: str) -> None:
    """Take the agent up and put it aside again, one step on, and write the step's number, until killed."""
    async with a_checkpoint_store(place, Path(folder)) as checkpoints:
        try:
            agent, rev = await load_agent("me", CLERK, checkpoints)
        except NotFound:
            agent, rev = clerk(), 0
        n = memory.world_get(agent, "n", -1)
        while True:
            n += 1
            agent = advance(agent, n)
            rev = await save_agent(agent, checkpoints, expected_rev=rev)
            os.write(1, f"{n}\n".encode())


@action(name="step")
def take_step(ctx: Context) -> dict[str, Any]:
    """Live on by one step."""
    agent = advance(ctx.agent, memory.world_get(ctx.agent, "n", -1) + 1)
    return {"__memory__": memory.of(agent), "__thread__": thread.of(agent)}


DWELLER = Definition.new("clerk", routes=[("step", take_step)])


async def dwell(place: str, folder: str) -> None:
    """The same in a runtime that saves the agent with each signal, which is answered once that is done."""
    async with (
        a_checkpoint_store(place, Path(folder)) as checkpoints,
        Runtime(checkpoint_store=checkpoints) as runtime,
    ):
        try:
            await runtime.thaw("me", DWELLER, save_every=1)
        except NotFound:
            await runtime.start(Agent.new(DWELLER, id="me"), save_every=1)
        while True:
            agent = await runtime.call("me", Signal(type="step"))
            os.write(1, f"{memory.world_get(agent, 'n')}\n".encode())


async def fill(place: str, folder: str, size: str) -> None:
    """Say more and more until the system lets no file grow; print how often it was put aside before."""
    async with a_checkpoint_store(place, Path(folder)) as checkpoints:
        agent = clerk("first")
        rev = await save_agent(agent, checkpoints)
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(size), int(size)))
        try:
            while True:
                agent = thread.append(agent, entry("x" * 1_000))
                agent = memory.world_put(agent, "n", rev)
                rev = await save_agent(agent, checkpoints, expected_rev=rev)
        except DiskFull:
            os.write(1, str(rev).encode())


async def count(place: str, folder: str, name: str, times: str) -> None:
    """Take the agent up, say something to it and put it aside, so often that nobody was faster."""
    async with a_checkpoint_store(place, Path(folder)) as checkpoints:
        for n in range(int(times)):
            while True:
                agent, rev = await load_agent("me", CLERK, checkpoints)
                try:
                    await save_agent(thread.append(agent, entry(f"{name}{n}")), checkpoints, expected_rev=rev)
                except Conflict:
                    continue
                break


def start(job: str, *args: object) -> subprocess.Popen[bytes]:
    """A process that does a job."""
    command = [sys.executable, "-m", "tests.support.checkpoint_stores", job, *map(str, args)]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE)


if __name__ == "__main__":
    jobs: list[Callable[..., Any]] = [live, dwell, fill, count]
    asyncio.run({job.__name__: job for job in jobs}[sys.argv[1]](*sys.argv[2:]))
