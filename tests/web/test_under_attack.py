"""A service answers other clients while one client attacks it, and has back what the attack took afterwards.

Each attack runs against `omoide serve` in a process of its own, from the same address as the other clients.
`OMOIDE_ATTACKS` says how many connections an attack opens; `make soak` sets it high.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from tests.support.rest import bearer, make_entry, open_test_store, start_server

from omoide import WriteRequest
from omoide.service import auth

COUNT = int(os.environ.get("OMOIDE_ATTACKS", "300"))
"""Connections of an attack: more than the server has descriptors for."""
DESCRIPTORS = COUNT * 10 // 11
PATIENCE = 2.0
"""Seconds in which other clients are answered."""
PROBES = 4
MORE_MB = 64
"""Memory that a process keeps for later use; the attacks would take more."""
MEMORIES = 20
ENDLESS = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"


class Target(NamedTuple):
    """The server that is attacked, with a token of the attacker and one of the others."""

    folder: Path
    url: str
    port: int
    pid: int
    attacker: str
    other: str

    def descriptors(self) -> int:
        """Open file descriptors, besides those of the store, which keeps connections for later."""
        found = 0
        for link in Path(f"/proc/{self.pid}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += not os.readlink(link).startswith(str(self.folder))
        return found

    def megabytes(self) -> float:
        """Memory that nothing but the process holds."""
        status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        lines = dict(line.split(":", 1) for line in status.splitlines())
        return int(lines["RssAnon"].split()[0]) / 1024

    def children(self) -> int:
        """Processes that it started."""
        tasks = Path(f"/proc/{self.pid}/task").iterdir()
        return sum(len((task / "children").read_text("utf-8").split()) for task in tasks)

    def request(self, path: str, body: Any = None, *, announce: int = 0, accept: str = "*/*") -> bytes:
        """A request of the attacker; a larger body may be announced than is sent."""
        data = b"" if body is None else json.dumps(body).encode()
        lines = [
            f"{'GET' if body is None else 'POST'} {path} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            f"Authorization: Bearer {self.attacker}",
            f"Accept: {accept}",
        ]
        if body is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {announce or len(data)}"]
        return "\r\n".join([*lines, "", ""]).encode() + data

    def connect(self) -> socket.socket:
        """A connection of the attacker."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=20)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    folder = tmp_path_factory.mktemp("attacked")

    async def fill() -> tuple[str, str]:
        async with open_test_store(folder) as store:
            for number in range(MEMORIES):
                entry = make_entry(f"memory-{number}", f"Cup {number} of Ada holds tea.")
                await store.write(WriteRequest.new(entry=entry))
            names = ("attacker", "other")
            first, second = [
                (await auth.create(store, name, ["read", "write"], ["default"]))[0] for name in names
            ]
            return first, second

    attacker, other = anyio.run(fill)
    with start_server(folder, DESCRIPTORS, guard="refuse") as (url, pid):
        found = Target(folder, url, int(url.rpartition(":")[2]), pid, attacker, other)
        ask(found)  # everything that is loaded once
        run(found, found.request("/v1/sparql", {"query": "ASK { ?s ?p ?o }"}))
        run(found, found.request("/mcp", call("recall"), accept="application/json, text/event-stream"))
        yield found


def call(tool: str) -> dict[str, Any]:
    arguments = {"query": "what does Ada drink?"}
    return {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }


def run(target: Target, request: bytes) -> bytes:
    """The beginning of what a request of the attacker is answered."""
    with target.connect() as connection:
        connection.sendall(request)
        return connection.recv(65_536)


def ask(target: Target) -> float:
    """Ask as another client, by a new connection; return how long that took."""
    before = time.monotonic()
    with httpx2.Client(base_url=target.url, headers=bearer(target.other), timeout=PATIENCE) as client:
        assert client.get("/v1/entries").status_code == 200
        answer = client.post("/v1/recall", json={"query": "which cup holds tea?"})
        assert answer.json()["hits"]
    return time.monotonic() - before


Attack = Callable[[Target, ExitStack], Any]


def send_each(target: Target, stack: ExitStack, count: int, data: bytes) -> list[socket.socket]:
    """Send data by many connections that stay open; the server may close some of them already."""
    connections = []
    for _ in range(count):
        connection = stack.enter_context(target.connect())
        try:
            connection.sendall(data)
        except ConnectionError:
            continue
        connections.append(connection)
    return connections


def half_heads(target: Target, stack: ExitStack) -> None:
    send_each(target, stack, COUNT, b"GET /health HTTP/1.1\r\nHost: loc")


def half_bodies(target: Target, stack: ExitStack) -> None:
    send_each(target, stack, COUNT, target.request("/v1/remember?agent=eve", {"content": "x"}, announce=900))


def half_mcp_bodies(target: Target, stack: ExitStack) -> None:
    send_each(target, stack, COUNT, target.request("/mcp", call("recall"), announce=900))


def idle_connections(target: Target, stack: ExitStack) -> None:
    send_each(target, stack, COUNT, b"")


def aborted_mcp_calls(target: Target, stack: ExitStack) -> None:
    request = target.request("/mcp", call("recall"), accept="application/json, text/event-stream")
    for number in range(COUNT):
        with target.connect() as connection:
            connection.sendall(request if number % 2 else request[:-10])


def mcp_streams(target: Target, stack: ExitStack) -> None:
    send_each(target, stack, COUNT, target.request("/mcp", accept="text/event-stream"))


def event_streams(target: Target, stack: ExitStack) -> None:
    send_each(target, stack, COUNT, target.request("/v1/events"))


def queries(target: Target, stack: ExitStack) -> None:
    body = {"query": ENDLESS, "timeout": 5}
    answers = send_each(target, stack, 24, target.request("/v1/sparql", body))
    assert target.children() <= 4
    statuses = [int(answer.recv(65_536).split()[1]) for answer in answers]
    assert statuses.count(429) >= 20


def long_question(target: Target, stack: ExitStack) -> None:
    body = {"query": "which cup of tea did Ada take " * 60_000}
    send_each(target, stack, 2, target.request("/v1/recall", body))


def dates(target: Target, stack: ExitStack) -> None:
    send_each(target, stack, 2, target.request("/v1/recall", {"query": "May 2 " * 5_400}))


def passwords(target: Target, stack: ExitStack) -> None:
    body = {"content": "pwd:" * 25_000}
    send_each(target, stack, 2, target.request("/v1/remember?agent=eve", body))


@pytest.mark.parametrize(
    "attack",
    [
        half_heads,
        half_bodies,
        half_mcp_bodies,
        idle_connections,
        aborted_mcp_calls,
        mcp_streams,
        event_streams,
        queries,
        long_question,
        dates,
        passwords,
    ],
)
def test_others_are_answered_under_attack(target: Target, attack: Attack) -> None:
    """Another client is answered in time, and afterwards memory and descriptors are as before."""
    descriptors, megabytes = target.descriptors(), target.megabytes()
    with ExitStack() as stack:
        attack(target, stack)
        assert max(ask(target) for _ in range(PROBES)) < PATIENCE
    wait_until(lambda: target.descriptors() <= descriptors + 2 and not target.children())
    ask(target)
    assert target.megabytes() <= megabytes + MORE_MB


def wait_until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    """Look again until it is so."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
