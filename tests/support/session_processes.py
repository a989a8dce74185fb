"""Processes that run a turn of a session and are killed at given points.

`python -m tests.support.session_processes FOLDER PLAN` runs one turn of a session for each name of the plan,
each in a file of its own. A plan lists the points at which each name is killed: the first kills the turn, the
next ones the processes that resume it. A point is an operation, its number, and `before` or `after`:
`reply 1 before`.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import anyio
from tests.support.turns import tool_calls

from omoide import RecallRequest, action, clock
from omoide.sessions import Session
from omoide.stores import AsyncStore, open_store
from omoide.testing import FrozenClock
from omoide.turns import AgentSpec, TurnResult

ROOT = Path(__file__).parents[2]
STEP = 10_000_000
"""Milliseconds from one process to the next: no lease lasts that long."""

Plan = Mapping[str, Sequence[str]]


class Life:
    """One process: it logs each point that it reaches, and is killed at the given one."""

    def __init__(self, folder: Path, name: str, n: int = 0, point: str = "") -> None:
        self.folder, self.name, self.n, self.point = folder, name, n, point
        self._counts: Counter[str] = Counter()

    def note(self, kind: str, line: str) -> None:
        """Write a line to a file, so that it is there after the kill."""
        with open(self.folder / f"{self.name}.{kind}", "ab", buffering=0) as file:
            file.write(f"{line}\n".encode())

    def reach(self, what: str, when: str) -> None:
        """Log a point, and kill the process if it is the last."""
        self._counts[what] += when == "before"
        here = f"{what} {self._counts[what]} {when}"
        self.note("points", f"{self.n} {here}")
        if here == self.point:
            os.kill(os.getpid(), signal.SIGKILL)

    @property
    def url(self) -> str:
        """The URL of the store with the session."""
        return f"sqlite:///{self.folder / self.name}.db"

    @property
    def clock(self) -> FrozenClock:
        """The clock of this process, after every lease of the one before."""
        return FrozenClock(1_000_000_000_000 + self.n * STEP)

    def spec(self) -> AgentSpec:
        """Return an agent with a tool that must not run twice, one that may, and a pure one."""

        @action(effectful=True)
        async def pay(ctx: Any) -> str:
            """Pay."""
            self.reach("pay", "before")
            self.note("done", "pay")
            self.reach("pay", "after")
            return "paid"

        @action(effectful=True, idempotent=True)
        async def look(ctx: Any) -> str:
            """Look how much is left."""
            self.reach("look", "before")
            self.note("done", "look")
            self.reach("look", "after")
            return "12 left"

        @action
        def count(ctx: Any) -> Any:
            """Count one more."""
            return ctx.memory.world_put("n", ctx.memory.world_get("n", 0) + 1)

        return AgentSpec.new(id="ada", memory={"capture": "conversation"}, tools=[pay, look, count])

    def model(self, request: Any, journal: Any) -> Any:
        """Call all three tools, then answer."""
        self.reach("model", "before")
        self.note("asked", f"{request.request_id} {request.round}")
        wanted = request.request_id == "r2" and request.round == 0
        return tool_calls(("pay", {}), ("look", {}), ("count", {})) if wanted else "Done."


class KillableStore(AsyncStore):
    """A store that can kill the process before and after each operation."""

    def __init__(self, store: AsyncStore, life: Life) -> None:
        super().__init__(store.sync, store.url)
        self._life = life

    async def _step(self, what: str, work: Any) -> Any:
        self._life.reach(what, "before")
        result = await work
        self._life.reach(what, "after")
        return result

    async def write(self, *args: Any) -> Any:
        return await self._step("write", super().write(*args))

    async def recall(self, *args: Any) -> Any:
        return await self._step("recall", super().recall(*args))

    async def save(self, document: Any, **given: Any) -> Any:
        return await self._step(_status_of(document.body), super().save(document, **given))

    async def append(self, kind: str, id: str, entries: Any, *args: Any, **given: Any) -> Any:
        return await self._step(_entry_name(entries), super().append(kind, id, entries, *args, **given))

    async def claim(self, *args: Any, **given: Any) -> Any:
        return await self._step("claim", super().claim(*args, **given))

    async def release(self, *args: Any, **given: Any) -> Any:
        return await self._step("release", super().release(*args, **given))


def _status_of(header: Any) -> str:
    """Return the status in a session record that is about to be saved."""
    if header["status"] == "running":
        return "keep recalled" if header["turn"].get("remembered") else "mark running"
    if header["status"] == "finished":
        return "commit" if header.get("captures") else "mark captured"
    return f"mark {header['status']}"


def _entry_name(entries: Any) -> str:
    """Return the name of an entry that is about to be written to the transcript."""
    kind, said = entries[0]["kind"], entries[0]["payload"]
    match kind:
        case "tool_call" | "tool_result":
            return f"{'begin' if kind == 'tool_call' else 'end'} {said['name']}"
        case "message" if said["role"] == "assistant":
            return "answer" if said.get("final") else "reply"
        case _:
            return str(said.get("role", kind))


async def finish(session: Session) -> TurnResult:
    """Run or resume the turn until it is finished; decide on calls whose outcome is unknown."""
    if session.record.turn is None and "r2" not in session.requests:
        result = await session.run("pay", request_id="r2")
    else:
        result = await resolve_reviews(session)
    while result.status == "waiting":
        result = await resolve_reviews(session)
    return result


async def resolve_reviews(session: Session) -> TurnResult:
    """Resume the turn after a decision on all its reviews."""
    for review in session.pending_reviews:
        assert review.unknown
        assert review.call is not None
        assert review.call.name == "pay"
        await session.settle(review.id, "by hand")
    return await session.resume()


async def begin(life: Life) -> None:
    """Start a session and run its first turn."""
    async with open_store(life.url, embedder="none") as store:
        session = await Session.start(life.spec(), "s1", store=store, model=life.model)
        await session.run("hello", request_id="r1")


async def live(life: Life) -> None:
    """Open the session and finish its turn."""
    async with open_store(life.url, embedder="none") as opened:
        store = KillableStore(opened, life)
        await finish(await Session.load("s1", life.spec(), store=store, model=life.model))


def child(work: Any, life: Life) -> int:
    """Run a process, and return how it ended."""
    pid = os.fork()
    if pid == 0:
        try:
            with clock.override(life.clock):
                anyio.run(work, life)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - a child must not go on as its parent
            traceback.print_exc()
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def warm_up(folder: Path) -> None:
    """Import what every child needs without starting a thread: a process with threads must not fork."""
    import_module("anyio._backends._asyncio")
    import_module("omoide.sessions.session")
    with open_store(f"sqlite:///{folder / 'warm.db'}", embedder="none") as store:
        store.sync.recall(RecallRequest(agent_id="ada", query="Is it warm?"))


def carry_out(folder: Path, plan: Plan) -> dict[str, list[int]]:
    """Run every process of the plan, and return how each ended."""
    warm_up(folder)
    if child(begin, Life(folder, "base")):
        raise SystemExit(1)
    ended: dict[str, list[int]] = {}
    for name, points in plan.items():
        shutil.copy(folder / "base.db", folder / f"{name}.db")
        ended[name] = [child(live, Life(folder, name, n, point)) for n, point in enumerate(points, 1)]
    return ended


def run_in_process(folder: Path, plan: Plan) -> dict[str, list[int]]:
    """Run the plan in a process from which it is safe to fork."""
    command = [sys.executable, "-m", "tests.support.session_processes", str(folder), json.dumps(plan)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, check=False, text=True)
    assert done.returncode == 0, done.stderr
    ended: dict[str, list[int]] = json.loads(done.stdout)
    assert not any(code == 1 for codes in ended.values() for code in codes), done.stderr
    return ended


if __name__ == "__main__":
    sys.stdout.write(json.dumps(carry_out(Path(sys.argv[1]), json.loads(sys.argv[2]))))
