"""Connections have deadlines and limits, whatever the application does."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Event, Thread
from types import FrameType
from typing import Any

import anyio
import httpx2
import pytest

from omoide.service import connections
from omoide.service.connections import (
    ConnectionLimits,
    ConnectionRegistry,
    Server,
    default_limits,
    server_config,
)
from omoide.service.limits import Overloaded, Slots

LIMITS = ConnectionLimits(per_client=3, total=4, head_timeout=0.2, body_timeout=0.2, write_timeout=0.2)
PATIENT = ConnectionLimits(per_client=3, total=4)
GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
WAIT = b"GET /wait HTTP/1.1\r\nHost: x\r\n\r\n"
MUCH = b"GET /much HTTP/1.1\r\nHost: x\r\n\r\n"
HALF_BODY = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nhalf"


class Served:
    """A server of an application that reads bodies, waits or sends much, as it is asked to."""

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.go_on = Event()
        self.ended: list[str] = []

    async def app(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        message = await receive()
        while message.get("more_body"):
            message = await receive()
        if scope["path"] == "/wait":
            await anyio.to_thread.run_sync(self.go_on.wait)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(500 if scope["path"] == "/much" else 1):
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
        await send({"type": "http.response.body"})
        self.ended.append(scope["path"])

    @contextmanager
    def run(self) -> Iterator[int]:
        """Serve in a thread; yield the port."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            server = Server(server_config(self.app, self.limits, lifespan="off", interface="asgi3"))
            thread = Thread(target=server.run, kwargs={"sockets": [listener]})
            thread.start()
            try:
                yield listener.getsockname()[1]
            finally:
                self.go_on.set()
                server.should_exit = True
                thread.join()


def connect(port: int, data: bytes, address: str = "127.0.0.1") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(address, 0))
    connection.sendall(data)
    return connection


def read_all(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    while part := connection.recv(65_536):
        parts.append(part)
    return b"".join(parts)


@pytest.mark.parametrize(
    ("data", "what"), [(b"", "head"), (b"GET / HT", "head"), (HALF_BODY, "body"), (GET + b"GET /", "head")]
)
def test_what_does_not_come_in_time_is_a_408(data: bytes, what: str) -> None:
    """A client that sends nothing, or only half of a head or a body, is told and closed."""
    with Served(LIMITS).run() as port, connect(port, data) as connection:
        answer = read_all(connection)
    assert answer.count(b"HTTP/1.1 408 Request Timeout") == 1
    assert f"the {what} of the request did not come in time".encode() in answer
    assert b"application/problem+json" in answer


def test_a_connection_that_was_used_ends_without_an_answer() -> None:
    """An idle connection is closed, as clients expect it; a 408 would be taken for an answer."""
    with Served(LIMITS).run() as port, connect(port, GET) as connection:
        answer = read_all(connection)
    assert (answer.count(b"HTTP/1.1 200"), answer.count(b"HTTP/1.1 408")) == (1, 0)


def test_a_client_that_does_not_read_is_cut_off() -> None:
    """The application goes on, and the connection is gone, with what was not sent."""
    served = Served(LIMITS)
    with served.run() as port, connect(port, MUCH) as connection:
        while not served.ended:
            Event().wait(0.01)
        assert len(read_all(connection)) < 500 * 65_536


@pytest.mark.parametrize(
    ("addresses", "status", "type"),
    [
        (["127.0.0.1"] * 3, b"429 Too Many Requests", b"too-many-requests"),
        (["127.0.0.2", "127.0.0.2", "127.0.0.3", "127.0.0.3"], b"503 Service Unavailable", b"overloaded"),
    ],
)
def test_connections_are_limited_for_each_address_and_in_total(
    addresses: list[str], status: bytes, type: bytes
) -> None:
    """Where all have requests under way, one more is told when to come again."""
    served = Served(PATIENT)
    with served.run() as port, ExitStack() as stack:
        busy = [stack.enter_context(connect(port, WAIT, address)) for address in addresses]
        answer = read_all(stack.enter_context(connect(port, GET)))
        assert answer.startswith(b"HTTP/1.1 " + status)
        assert type in answer
        assert b"\r\nretry-after: 1\r\n" in answer
        served.go_on.set()
        assert all(connection.recv(12) == b"HTTP/1.1 200" for connection in busy)
        assert httpx2.get(f"http://127.0.0.1:{port}/").status_code == 200


@pytest.mark.parametrize("data", [b"", b"GET / HT", HALF_BODY])
def test_who_stalls_makes_room(data: bytes) -> None:
    """A new client is answered, and one that stalled is closed for it; the others are not."""
    with Served(PATIENT).run() as port, ExitStack() as stack:
        stalled = [stack.enter_context(connect(port, data)) for _ in range(3)]
        assert httpx2.get(f"http://127.0.0.1:{port}/").status_code == 200
        closed = select.select(stalled, [], [], 10)[0]
        assert [read_all(one)[:12] for one in closed] == [b"HTTP/1.1 408"]


def calls_for_each_connection(count: int) -> float:
    """Calls that the module makes to take a connection that stalls, on average over so many that stay."""
    calls = 0

    def count_calls(frame: FrameType, event: str, argument: object) -> None:
        nonlocal calls
        calls += event == "call" and frame.f_code.co_filename == connections.__file__

    threading.setprofile(count_calls)
    try:
        with Served(ConnectionLimits(per_client=40, total=80)).run() as port, ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(connect(port, b"GET"))
            with closing(connect(port, GET)) as last:
                assert last.recv(12) == b"HTTP/1.1 200"
            return calls / count
    finally:
        threading.setprofile(None)


def test_a_connection_costs_the_same_however_many_there_are() -> None:
    """Below the limit, and beyond it, where each closes another one."""
    few, many, too_many = (calls_for_each_connection(count) for count in (10, 40, 160))
    assert many <= few * 1.5
    assert too_many <= few * 3


def test_a_connection_that_ended_leaves_nothing() -> None:
    """Neither a number nor the name of its address."""
    registry = ConnectionRegistry()
    assert registry.add("a") is registry.add("a")
    assert (registry.all.count, registry.by_address["a"].count) == (2, 2)
    registry.remove("a")
    assert (registry.all.count, registry.by_address["a"].count) == (1, 1)
    registry.remove("a")
    assert (registry.all.count, registry.by_address) == (0, {})


def test_the_limits_fit_the_descriptors_of_the_process() -> None:
    """Connections never take more than half of the files that may be open."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (200, hard))
    try:
        assert (default_limits().total, default_limits().per_client) == (100, 100)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


async def test_slots_are_limited_for_each_client_and_in_total() -> None:
    """A client that has its share is told 429, and where all are taken everybody is told 503."""
    slots = Slots("queries", 2, 3)
    async with slots.hold("ada"), slots.hold("ada"):
        with pytest.raises(Overloaded) as own:
            await slots.hold("ada").__aenter__()
        async with slots.hold("bob"):
            with pytest.raises(Overloaded) as all_taken:
                await slots.hold("eve").__aenter__()
    assert (own.value.status, all_taken.value.status) == (429, 503)
    assert slots.used == 0
    async with slots.hold("ada"):
        assert slots.used == 1


async def test_a_request_waits_for_a_slot_of_its_client() -> None:
    """It gets the slot when it is free, and one that is cancelled while it waits leaves it to others."""
    slots = Slots("requests", 1, 1, patience=10.0)
    held: list[str] = []

    async def hold(name: str) -> None:
        async with slots.hold("ada"):
            held.append(name)

    async with anyio.create_task_group() as group, slots.hold("ada"):
        with anyio.move_on_after(0.01):
            await hold("cancelled")
        group.start_soon(hold, "waiting")
        await anyio.wait_all_tasks_blocked()
        assert held == []
    assert held == ["waiting"]
    assert slots.used == 0
