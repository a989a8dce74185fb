"""The service keeps its memory use and speed over time.

`OMOIDE_WEB_SECONDS` says for how long; `make soak` sets it high. How much memory the server took all along is
printed, and can be read in `.cache/memory.txt` afterwards.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from tests.support.rest import bearer, open_test_store, start_server

from omoide.service import auth

SECONDS = float(os.environ.get("OMOIDE_WEB_SECONDS", "2"))
CURVE = Path(__file__).parents[2] / ".cache" / "memory.txt"
CONNECTIONS = 8
TOKENS = 64
"""So many that none of them is used too often."""
POOL = 100
"""How many memories a connection keeps writing anew: what is known does not grow, so what grows is a leak."""
SAMPLES, FEWEST = 60, 6
"""How often the server is looked at: at most about so often, and at least so often, were it that slow."""
MORE_MB = 16
"""What the last third may take above the second: old versions stay in the file, and SQLite caches what it
reads, up to 64 MB for the writer and 16 MB for each reader. A soak shows a leak of 300 bytes a request."""


class Sample(NamedTuple):
    """What a process takes, so many seconds after its first request."""

    seconds: float
    own: float
    """Megabytes that nothing but the process holds."""
    resident: float
    """These, and the parts of files that are mapped: of the store, they come and go with its size."""


class Usage:
    """What was answered, and what the server took meanwhile."""

    def __init__(self, pid: int, seconds: float) -> None:
        self.answers: Counter[str] = Counter()
        self.samples: list[Sample] = []
        self.begun = monotonic()
        self._status = Path(f"/proc/{pid}/status")
        self._seconds = seconds

    def goes_on(self) -> bool:
        """Whether there is time left; looks at the server when that is due."""
        passed = monotonic() - self.begun
        if passed >= len(self.samples) * self._seconds / SAMPLES:
            lines = dict(line.split(":", 1) for line in self._status.read_text("utf-8").splitlines())
            own, resident = (int(lines[name].split()[0]) / 1024 for name in ("RssAnon", "VmRSS"))
            self.samples.append(Sample(passed, own, resident))
        return passed < self._seconds or len(self.samples) < FEWEST

    def curve(self) -> str:
        """A line for each look at the server."""
        most = max(sample.own for sample in self.samples)
        lines = [
            f"{seconds:7.1f} s {own:8.1f} MB {resident:8.1f} MB  {'#' * round(40 * own / most)}"
            for seconds, own, resident in self.samples
        ]
        answers = ", ".join(f"{count:,} × {what}" for what, count in sorted(self.answers.items()))
        head = "after      its own     resident"
        return "\n".join([f"{self._seconds:g} seconds: {answers}", head, *lines, ""])


async def secrets(folder: Path) -> list[str]:
    """What lets a client in."""
    async with open_test_store(folder) as store:
        return [(await auth.create(store, f"t{n}", ["read", "write"], ["default"]))[0] for n in range(TOKENS)]


async def run_requests(
    client: httpx2.AsyncClient, name: str, step: int
) -> AsyncIterator[tuple[str, httpx2.Response, int]]:
    """What one connection asks in a step, the answer, and the status that it should have."""
    whose = {"agent": name}
    id = f"{name}-{step // 4 % POOL}"

    async def post(verb: str, status: int = 200, **body: Any) -> tuple[str, httpx2.Response, int]:
        return verb, await client.post(f"/v1/{verb}", params=whose, json=body), status

    if step % 4 == 0:
        yield await post("remember", id=id, content=f"Step {step} of {name} was taken.", type="fact")
    yield await post("recall", query=f"which step did {name} take?")
    yield "entries", await client.get("/v1/entries", params=whose), 200
    if step % 8 == 4:
        yield await post("forget", id=id, reason="outdated")
    match step % 5:
        case 0:
            yield await post("forget", 404, id="nobody's")
        case 1:
            yield await post("remember", 422, content="x", mood="bad")
        case 2:
            yield "no token", await client.get("/v1/entries", headers={"Authorization": ""}), 401
        case 3:
            yield "no type", await client.post("/v1/recall", params=whose, content=b"{"), 415
        case _:
            yield "no route", await client.get("/v1/nothing"), 404


async def use(url: str, keys: list[str], usage: Usage) -> None:
    """Ask by several connections at once, as long as it goes on."""

    async def connect(name: str) -> None:
        step = 0
        async with httpx2.AsyncClient(base_url=url, timeout=60) as client:
            while usage.goes_on():
                client.headers.update(bearer(keys[(step * CONNECTIONS + int(name)) % TOKENS]))
                async for what, answer, status in run_requests(client, name, step):
                    assert answer.status_code == status, (what, answer.status_code, answer.text)
                    assert (what, status) != ("recall", 200) or answer.json()["hits"]
                    usage.answers[f"{what} {status}"] += 1
                step += 1

    async with anyio.create_task_group() as group:
        for number in range(CONNECTIONS):
            group.start_soon(connect, str(number))


@pytest.mark.timeout(60 + 2 * SECONDS)
def test_a_service_takes_no_more_memory_the_longer_it_runs(tmp_path: Path) -> None:
    """Whatever is asked for, right or wrong, is answered as it should be, and leaves nothing behind."""
    keys = anyio.run(secrets, tmp_path)
    with start_server(tmp_path) as (url, pid):
        usage = Usage(pid, SECONDS)
        try:
            anyio.run(use, url, keys, usage)
        finally:
            sys.stdout.write(usage.curve())
            CURVE.parent.mkdir(exist_ok=True)
            CURVE.write_text(usage.curve(), "utf-8")
    third = len(usage.samples) // 3
    second, last = (
        median(sample.own for sample in part)
        for part in (usage.samples[third:-third], usage.samples[-third:])
    )
    assert last <= second + MORE_MB
