"""What can a service take?

A server in a process of its own, over a file of 100,000 memories, is asked by many connections at once. Who
asks takes as much of the machine as who answers, so the figures are those of two cores for both.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing, contextmanager
from pathlib import Path
from statistics import quantiles
from tempfile import TemporaryDirectory
from time import monotonic, perf_counter_ns
from typing import Any

import anyio
import httpx2
import uvicorn

from bench import corpus
from bench.measure import Report, shown
from omoide import Entry, WriteRequest, open_store
from omoide.service import auth
from omoide.stores import AsyncStore
from omoide.web import create_app

MEMORIES = 100_000
CONNECTIONS = 64
SECONDS = 30
WHOSE = {"agent": "agent", "session": "s7"}


def run(report: Report) -> None:
    """Recall and remember, for half a minute each."""
    report.title(f"{CONNECTIONS} connections to a service over {MEMORIES:,} memories, {SECONDS} s each")
    with TemporaryDirectory(prefix="omoide-bench-") as folder:
        url = f"sqlite:///{Path(folder) / 'm.db'}"
        secret = _filled(url)
        with _served(url) as base:
            for verb, body in (("recall", _question), ("remember", _memory)):
                waits, failed, taken = anyio.run(_asked, base, secret, verb, body)
                parts = quantiles(waits, n=100)
                rate = f"{len(waits) / taken:,.0f} a second, 99 of 100 within {shown(parts[98])}"
                report.row(f"/{verb}", parts[49], rate)
                report.goal(f"/{verb}: failed, of {len(waits):,}", failed, 0, at_most=True)


def _filled(url: str) -> str:
    """The secret of a token for a store that holds something."""
    with open_store(url, embedder="none", durability="crash") as store:
        assert isinstance(store, AsyncStore)
        for start in range(0, MEMORIES, 5_000):
            store.sync.write_many(
                [_request(start + at, item.text) for at, item in enumerate(corpus.items(5_000))]
            )
        return anyio.run(auth.create, store, "bench", ["read", "write"], ["default"])[0]


def _request(number: int, text: str) -> WriteRequest:
    return WriteRequest(entry=Entry(agent_id="agent", session_id=f"s{number % 1_000}", content=text))


@contextmanager
def _served(url: str) -> Any:
    """The address of a server in another process."""
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "bench.web", url, str(port)])
    base = f"http://127.0.0.1:{port}"
    try:
        with httpx2.Client() as client:
            while True:
                try:
                    client.get(f"{base}/health")
                    break
                except httpx2.TransportError:
                    if process.poll() is not None:
                        raise
        yield base
    finally:
        process.terminate()
        process.wait()


async def _asked(
    base: str, secret: str, verb: str, body: Callable[[int], dict[str, Any]]
) -> tuple[list[int], int, float]:
    """How long each answer took, how many failed, and how long it all was."""
    waits: list[int] = []
    failed, number = 0, 0
    end = monotonic() + SECONDS

    async def ask() -> None:
        nonlocal failed, number
        while monotonic() < end:
            number += 1
            begun = perf_counter_ns()
            answer = await client.post(f"/v1/{verb}", params=WHOSE, json=body(number))
            waits.append(perf_counter_ns() - begun)
            failed += answer.status_code != 200

    limits = httpx2.Limits(max_connections=CONNECTIONS, max_keepalive_connections=CONNECTIONS)
    headers = {"Authorization": f"Bearer {secret}"}
    begun = monotonic()
    async with (
        httpx2.AsyncClient(base_url=base, headers=headers, limits=limits, timeout=60) as client,
        anyio.create_task_group() as group,
    ):
        for _ in range(CONNECTIONS):
            group.start_soon(ask)
    return waits, failed, monotonic() - begun


def _question(number: int) -> dict[str, Any]:
    return {"query": f"what about number {number % 500}?", "limit": 5}


def _memory(number: int) -> dict[str, Any]:
    return {"content": f"Number {number} was seen.", "type": "fact"}


def _serve(url: str, port: int) -> None:
    with open_store(url, embedder="none", durability="crash") as store:
        uvicorn.run(
            create_app(store, requests_per_minute=None), port=port, log_level="warning", access_log=False
        )


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
