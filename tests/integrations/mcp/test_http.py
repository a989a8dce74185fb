"""Access to the MCP server over HTTP."""

from __future__ import annotations

import socket
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from threading import Timer
from typing import Any, NamedTuple

import anyio
import httpx2
import pytest
from mcp import MCPError
from starlette.testclient import TestClient
from tests.support.longterm import a_store
from tests.support.mcp_clients import ADA, call, call_error, connect_http, http_server

from omoide import clock
from omoide.errors import Invalid
from omoide.integrations.mcp import create_server, http_app, serve_http
from omoide.service import auth
from omoide.service.auth import is_loopback
from omoide.stores import open_store

HEADERS = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
STATUS = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "tools/call",
    "params": {"name": "memory_status", "arguments": {}},
}


class Served(NamedTuple):
    """A server that wants tokens, and some of them."""

    url: str
    store: str
    tokens: dict[str, str]


async def tokens_in(store: Any) -> dict[str, str]:
    """Secrets of tokens with all kinds of rights."""
    wanted: dict[str, tuple[list[str], list[str]]] = {
        "reader": (["read"], ["default"]),
        "writer": (["read", "write"], ["default", "other"]),
        "admin": (["admin"], ["*"]),
        "stranger": (["read", "write"], ["other"]),
        "write-only": (["write"], ["default"]),
        "revoked": (["read"], ["default"]),
        "expired": (["read"], ["default"]),
    }
    found = {}
    for name, (rights, namespaces) in wanted.items():
        ends = clock.now() - 1 if name == "expired" else None
        secret, token = await auth.create(store, name, rights, namespaces, expires_at=ends)
        if name == "revoked":
            await auth.revoke(store, token.id)
        found[name] = secret
    return found


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on this machine that wants tokens all the same."""
    folder = tmp_path_factory.mktemp("served")
    file = f"sqlite:///{folder / 'memory.db'}"

    async def furnish() -> dict[str, str]:
        async with open_store(file, embedder="none") as store:
            return await tokens_in(store)

    secrets = anyio.run(furnish)
    with http_server(folder, "--require-token") as url:
        yield Served(url, file, secrets)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server on this machine that is open to it."""
    with http_server(tmp_path_factory.mktemp("open")) as address:
        yield address


def post_call(url: str, **headers: str) -> httpx2.Response:
    """What the server answers to a call with these headers."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.post(url, json=STATUS, headers={**HEADERS, **names})


@pytest.mark.parametrize("name", ["stranger", "write-only", "revoked", "expired"])
async def test_tokens_that_do_not_count_here_are_refused(server: Served, name: str) -> None:
    """One of another namespace, one that may not read, and one that no longer counts are as good as none."""
    answer = post_call(server.url, Authorization=f"Bearer {server.tokens[name]}")
    assert (answer.status_code, answer.json()["error"]) == (401, "invalid_token")
    with pytest.raises((MCPError, BaseExceptionGroup)):
        async with connect_http(server.url, server.tokens[name]) as client:
            await client.list_tools()


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer nonsense",
        "Basic YTpi",
        "Bearer omd_tok_1.x",
        "Bearer omd_x.\u00e9",
    ],
)
def test_without_a_token_nothing_is_answered(server: Served, header: str | None) -> None:
    """Missing and made-up tokens are refused, on every path and for every method; GET is for nobody."""
    headers = {} if header is None else {"Authorization": header.encode()}
    for method, path in (("POST", "/mcp"), ("DELETE", "/mcp"), ("OPTIONS", "/mcp"), ("POST", "/other")):
        url = server.url.replace("/mcp", path)
        answer = httpx2.request(method, url, headers={**HEADERS, **headers}, json=STATUS)  # type: ignore[arg-type]
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
    for path in ("/mcp", "/other"):
        answer = httpx2.get(server.url.replace("/mcp", path), headers=headers)  # type: ignore[arg-type]
        assert answer.status_code == 405


def test_a_secret_with_another_ending_is_refused(server: Served) -> None:
    """The id alone is not enough, nor is a secret that is almost right."""
    secret = server.tokens["reader"]
    for wrong in (secret[:-1], secret + "x", secret.partition(".")[0], secret.upper()):
        assert post_call(server.url, Authorization=f"Bearer {wrong}").status_code == 401
    assert post_call(server.url, Authorization=f"Bearer {secret}").status_code == 200


async def test_rights_say_what_a_token_may_do(server: Served) -> None:
    """A reader reads, a writer and an admin also write; a reader that tries is told, and nothing is kept."""
    async with connect_http(server.url, server.tokens["reader"]) as client:
        said = await call_error(client, "remember", content="The reader was here.")
        assert said == "this token may not write in 'default'; use a token with the right 'write'"
        assert (await call(client, "recall", query="reader"))["count"] == 0
        await client.read_resource("memory://index")
    for name in ("writer", "admin"):
        async with connect_http(server.url, server.tokens[name]) as client:
            assert (await call(client, "remember", content=f"The {name} was here."))["remembered"]


async def test_a_token_that_is_revoked_counts_no_more_at_once(server: Served) -> None:
    """A server that runs notices at the next request."""
    async with open_store(server.store, embedder="none") as store:
        secret, token = await auth.create(store, "guest", ["read"], ["default"])
        assert post_call(server.url, Authorization=f"Bearer {secret}").status_code == 200
        await auth.revoke(store, token.id)
        assert post_call(server.url, Authorization=f"Bearer {secret}").status_code == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Origin": "http://localhost:3000"}, 200),
        ({"Host": "evil.example"}, 421),
        ({"Host": "evil.example:80"}, 421),
        ({"Host": "127.0.0.1.evil.example"}, 421),
        ({"Host": "localhost.evil.example:80"}, 421),
        ({"Host": "0.0.0.0"}, 421),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost.evil.example"}, 403),
        ({"Origin": "null"}, 403),
        ({"Content-Type": "text/plain"}, 400),
        ({"Content-Type": "application/x-www-form-urlencoded"}, 400),
    ],
)
def test_pages_of_others_cannot_reach_it(url: str, headers: dict[str, str], status: int) -> None:
    """A browser that was led here under another name, or by another page, is refused; so are simple forms."""
    answer = httpx2.post(url, json=STATUS, headers={**HEADERS, **headers})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_names_that_were_allowed_are_served() -> None:
    """A server behind a name answers to it, and still to no other."""
    with open_store("memory://", embedder="none") as store:
        app = http_app(create_server(store, ADA), allowed_hosts=["memory.example"])
        with TestClient(app, base_url="http://127.0.0.1") as client:
            for host, status in (("memory.example", 200), ("memory.example:8", 200), ("evil.example", 421)):
                answer = client.post("/mcp", json=STATUS, headers={**HEADERS, "Host": host})
                assert answer.status_code == status
        for wrong in ("", "a b", "http://x", "x:8", "*"):
            with pytest.raises(Invalid, match="host"):
                http_app(create_server(store, ADA), allowed_hosts=[wrong])


@pytest.mark.parametrize("token", ["reader", "revoked"])
def test_there_is_no_event_stream(server: Served, token: str) -> None:
    """It would never carry anything, so it is refused before a token is checked."""
    answer = httpx2.get(server.url, headers={**HEADERS, "Authorization": f"Bearer {server.tokens[token]}"})
    assert (answer.status_code, answer.json()["type"]) == (405, "no-such-method")


def test_a_call_that_takes_too_long_is_answered(tmp_path: Path) -> None:
    """The client is told 504 in time; the call is finished, so that it leaves no half result."""
    remember = {"name": "remember", "arguments": {"content": "Ada drinks tea.", "type": "fact"}}
    with open_store(f"sqlite:///{tmp_path / 'memory.db'}", embedder="none") as store:
        app = http_app(create_server(store, ADA), request_timeout=0.5)
        with TestClient(app, base_url="http://127.0.0.1") as client:
            path = tmp_path / "memory.db"
            with closing(sqlite3.connect(path, isolation_level=None, check_same_thread=False)) as other:
                other.execute("BEGIN IMMEDIATE")
                release = Timer(1.0, other.rollback)
                release.start()
                answer = client.post("/mcp", json={**STATUS, "params": remember}, headers=HEADERS)
                release.join()
            assert (answer.status_code, answer.json()["type"]) == (504, "timed-out")
        assert [entry.content for entry in store.sync.list_entries(ADA)] == ["Ada drinks tea."]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "memory.example"])
async def test_beyond_this_machine_tokens_are_always_wanted(host: str) -> None:
    """An address that others can reach is never served without, whatever the program says."""
    async with a_store("memory") as store:
        secrets = await tokens_in(store)
        app = http_app(create_server(store, ADA), host=host, require_token=False)
        with TestClient(app, base_url="http://localhost") as client:
            assert client.post("/mcp", json=STATUS, headers=HEADERS).status_code == 401
            allowed = {**HEADERS, "Authorization": f"Bearer {secrets['reader']}"}
            assert client.post("/mcp", json=STATUS, headers=allowed).status_code == 200


def test_only_this_machine_is_this_machine() -> None:
    """Addresses of the loopback are told apart from all others."""
    assert all(is_loopback(host) for host in ("127.0.0.1", "127.8.9.1", "::1", "[::1]", "localhost"))
    others = (
        "0.0.0.0",
        "::",
        "10.0.0.1",
        "example.org",
        "localhost.example.org",
        "",
        "127.0.0.1.example.org",
    )
    assert not any(is_loopback(host) for host in others)


async def test_a_port_that_is_taken_is_said_to_be() -> None:
    """The error names the port, and what to do."""
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        open_store("memory://", embedder="none") as store,
        pytest.raises(Invalid, match="cannot be used"),
    ):
        await serve_http(create_server(store, ADA), port=other.getsockname()[1])
