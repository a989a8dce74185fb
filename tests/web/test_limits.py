"""Size and time limits of requests."""

import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.support.rest import Service, bearer, open_test_store, serve

from omoide import Scope
from omoide.client import Client
from omoide.errors import TimedOut
from omoide.service import auth
from omoide.service.requests import BODY_START
from omoide.web import create_app
from omoide.web.middleware import RateLimiter, host_name

START = "POST /v1/remember?agent=ada HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    with open_test_store(tmp_path) as store, serve(store, max_body_bytes=1_000, body_timeout=0.05) as server:
        yield server


def send_partial(server: Service, head: str, *parts: bytes) -> tuple[int, bytes]:
    """What comes back for a request of which not all may have been sent."""
    shown = f"Authorization: {bearer(server.secrets.all)['Authorization']}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall((START + shown + head + "\r\n").encode())
        for part in parts:
            connection.sendall(part)
        answer = connection.recv(65_536)
        return int(answer.split(b" ")[1]), answer


def test_a_body_that_does_not_come_is_not_waited_for(service: Service) -> None:
    """Whoever announces a body and sends only some of it is told 408, and holds nobody up."""
    status, answer = send_partial(service, "Content-Length: 500\r\n", b'{"content": "Slow')
    assert (status, b'"too-slow"' in answer, b"application/problem+json" in answer) == (408, True, True)
    assert httpx2.get(f"{service.url}/health").status_code == 200


def test_a_body_that_is_announced_too_large_is_not_read(service: Service) -> None:
    """A length beyond the limit is a 413 at once."""
    status, answer = send_partial(service, "Content-Length: 5000000\r\n")
    assert (status, b'"body-too-large"' in answer) == (413, True)


def test_a_body_that_grows_too_large_is_cut_off(service: Service) -> None:
    """A body without a length is read up to the limit, and no further."""
    chunk = b"400\r\n" + b"x" * 1024 + b"\r\n"
    status, answer = send_partial(service, "Transfer-Encoding: chunked\r\n", chunk, chunk, chunk)
    assert (status, b'"body-too-large"' in answer) == (413, True)


def test_a_body_of_the_allowed_size_is_taken(service: Service) -> None:
    """The limit itself is allowed."""
    body = b'{"content": "' + b"x" * 985 + b'"}'
    assert len(body) == 1_000
    assert send_partial(service, f"Content-Length: {len(body)}\r\n", body)[0] == 200


def test_uses_are_counted_for_each_token() -> None:
    """A token that used up its minute waits for one part of it; others do not, and none without a limit."""
    counter = RateLimiter(60)
    assert [counter.acquire("a", 0.0) for _ in range(60)] == [0.0] * 60
    assert counter.acquire("a", 0.0) == 1.0
    assert counter.acquire("b", 0.0) == 0.0
    assert counter.acquire("a", 1.0) == 0.0
    assert RateLimiter(None).acquire("a", 0.0) == 0.0


@pytest.mark.parametrize(
    ("host", "name"),
    [("Localhost:8765", "localhost"), ("[::1]:80", "[::1]"), ("[::1]", "[::1]"), ("a.b", "a.b"), ("", "")],
)
def test_the_name_of_a_host_is_without_its_port(host: str, name: str) -> None:
    """A port is left out, and letters are small."""
    assert host_name(host) == name


@pytest.mark.parametrize("path", ["/health", "/schema", "/v1/entries", "/v1/nothing", "/v1/entry?id=x", "/"])
@pytest.mark.parametrize("host", ["localhost", "evil.example"])
def test_every_answer_is_private(service: Service, path: str, host: str) -> None:
    """No answer is stored by caches or taken for another type, errors included."""
    for headers in ({}, bearer(service.secrets.all)):
        answer = httpx2.get(f"{service.url}{path}", headers={"Host": host, **headers})
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


def test_event_streams_are_limited_for_each_token(tmp_path: Path) -> None:
    """One more is told when to come again, other tokens get theirs, and streams that end make room."""
    with open_test_store(tmp_path) as store, serve(store) as server, ExitStack() as stack:
        client = stack.enter_context(httpx2.Client(base_url=server.url, timeout=20))

        def follow(secret: str) -> httpx2.Response:
            return stack.enter_context(client.stream("GET", "/v1/events", headers=bearer(secret)))

        streams = [follow(server.secrets.all) for _ in range(16)]
        assert [stream.status_code for stream in streams] == [200] * 16
        refused = follow(server.secrets.all)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert follow(server.secrets.read).status_code == 200
        for stream in streams:
            stream.close()
        deadline = time.monotonic() + 10
        while follow(server.secrets.all).status_code != 200:
            assert time.monotonic() < deadline


def test_a_body_that_does_not_come_costs_no_check_of_a_token(service: Service) -> None:
    """A wrong token is noticed only once the body is there: stalled requests cost next to nothing."""
    start = START + "Authorization: Bearer omd_wrong.secret\r\nContent-Length: 21\r\n\r\n"
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(start.encode() + b'{"content": ')
        assert b" 408 " in connection.recv(65_536)
    with socket.create_connection(("127.0.0.1", service.port), timeout=20) as connection:
        connection.sendall(start.encode() + b'{"content": "Right."}')
        assert b" 401 " in connection.recv(65_536)


def test_a_request_that_takes_too_long_is_answered(tmp_path: Path) -> None:
    """The client is told so in time, and what it asked for may still be done."""
    with (
        open_test_store(tmp_path) as store,
        serve(store, request_timeout=1.0) as server,
        Client(server.url, server.secrets.all) as client,
    ):
        ada = Scope(agent_id="ada")
        with closing(sqlite3.connect(tmp_path / "memory.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(TimedOut) as failure:
                client.remember("Ada drinks tea.", ada, id="tea")
            assert failure.value.seconds == 1.0
            assert "tea" not in [entry.id for entry in client.list(ada)]
        deadline = time.monotonic() + 20
        while "tea" not in [entry.id for entry in client.list(ada)]:
            assert time.monotonic() < deadline


async def test_a_client_that_leaves_in_the_middle_of_a_body_is_no_error(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The request ends without a write, and the log has no traceback."""
    with open_test_store(tmp_path) as store:
        secret, _ = await auth.create(store, "test", ["write"], ["default"])
        parts = [b'{"content": "', b"x" * BODY_START]

        async def receive() -> dict[str, Any]:
            if not parts:
                return {"type": "http.disconnect"}
            return {"type": "http.request", "body": parts.pop(0), "more_body": True}

        async def send(message: Any) -> None:
            """Take an answer that nobody reads."""

        headers = {"host": "localhost", "content-type": "application/json", **bearer(secret)}
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/remember",
            "query_string": b"agent=ada",
            "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
        }
        await create_app(store)(scope, receive, send)
        assert store.sync.stats(Scope()).entries == 0
    assert [record.levelname for record in caplog.records if record.levelname != "INFO"] == []
