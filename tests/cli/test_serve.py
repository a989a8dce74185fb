"""The `serve` command."""

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio
import httpx2
import mcp
import pytest
from click.testing import Result
from mcp.client.streamable_http import streamable_http_client

from omoide import Scope
from omoide.client import Client

ADA = Scope(agent_id="ada")
Run = Callable[..., Result]


@contextmanager
def start_server(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves, and its URL; it is up when it says so, or soon after."""
    command = [sys.executable, "-m", "omoide", "serve", "--port", "0", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().split()[0]
        finally:
            process.kill()


def create_token(omoide: Run, *rights: str) -> str:
    """The secret of a new token."""
    given = [part for right in rights for part in ("--right", right)]
    return omoide("token", "create", "test", *given).stdout.strip()


def test_a_program_elsewhere_uses_the_store_of_the_shell(omoide: Run) -> None:
    """What the shell remembers a client finds, and the other way round."""
    omoide("remember", "Alex drinks tea.", "--agent", "ada", "--project", "", "--id", "tea")
    secret = create_token(omoide, "read", "write")
    with start_server() as (_, url), Client(url, secret) as client:
        assert client.get("tea", ADA).content == "Alex drinks tea."
        client.remember("Alex drinks milk.", ADA, id="milk")
    assert "Alex drinks milk." in omoide("show", "milk", "--agent", "ada", "--project", "").stdout


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_in_good_order(omoide: Run, number: signal.Signals) -> None:
    """Ctrl-C, or being told to stop, ends it with code 0, also while somebody listens to events."""
    secret = create_token(omoide, "read")
    with start_server() as (process, url):
        headers = {"Authorization": f"Bearer {secret}"}
        with httpx2.stream("GET", f"{url}/v1/events", headers=headers, timeout=20) as stream:
            assert next(stream.iter_lines()).startswith(":")
            process.send_signal(number)
            said = process.communicate(timeout=30)[1]
    assert (process.returncode, said.splitlines()[-1]) == (0, "Ended.")
    assert "Traceback" not in said
    assert not list(Path("data/omoide").glob("*-wal"))


def test_without_a_token_it_says_how_to_make_one(omoide: Run) -> None:
    """On this machine alone it starts, lets nobody in, and tells the command, which works as it is told."""
    with start_server() as (process, url):
        assert httpx2.get(f"{url}/v1/agents").status_code == 401
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=30)[1]
    told = re.search(r"To make one: omoide (.+)", said)
    assert told is not None
    assert omoide(*told[1].split()).stdout.startswith("omd_")


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_the_network_is_not_let_in_without_a_token(omoide: Run, host: str) -> None:
    """Beyond this machine nothing is served while nobody has a token; a revoked one is none."""
    omoide("remember", "x")
    refused = omoide("serve", "--host", host, "--port", "0", code=2)
    assert "run: omoide token create NAME --right read" in refused.stderr
    create_token(omoide, "read")
    id = omoide("token", "list").stdout.split()
    token = next(word for word in id if word.startswith("tok_"))
    omoide("token", "revoke", token)
    omoide("serve", "--host", host, "--port", "0", code=2)


def test_people_look_at_it_by_the_address_that_is_printed(omoide: Run) -> None:
    """The address lets somebody in once; it is not the token of a program."""
    omoide("remember", "x")
    with start_server() as (process, _):
        assert process.stdout is not None
        address, _, key = process.stdout.readline().split()[-1].partition("#key=")
        assert httpx2.get(address).status_code == 200
        first, second = (httpx2.post(f"{address}sign-in", json={"key": key}) for _ in range(2))
        assert (first.status_code, second.status_code) == (200, 401)  # somebody else, with the same address


def test_a_program_that_starts_it_reads_where_it_is(omoide: Run) -> None:
    """With `--json` the addresses are one JSON value."""
    omoide("remember", "x")
    command = [sys.executable, "-m", "omoide", "serve", "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            lines = list(iter(process.stdout.readline, "}\n"))
        finally:
            process.kill()
    told = json.loads("".join([*lines, "}"]))
    assert set(told) == {"url", "inspect", "mcp"}
    assert told["inspect"].startswith(told["url"])


def test_names_of_this_machine_can_be_allowed(omoide: Run) -> None:
    """Whoever comes by a name that was not allowed is turned away, and by one that was is not."""
    create_token(omoide, "read")
    with start_server("--host", "0.0.0.0", "--allow-host", "memory.example") as (_, url):
        local = url.replace("0.0.0.0", "127.0.0.1")
        hosts = ("memory.example", "127.0.0.1", "other.example")
        codes = [httpx2.get(f"{local}/health", headers={"Host": host}).status_code for host in hosts]
    assert codes == [200, 200, 421]


@pytest.mark.usefixtures("home")
def test_a_port_in_use_is_told(omoide: Run) -> None:
    """A port that somebody else has is one line and a code."""
    create_token(omoide, "read")
    with start_server() as (_, url):
        port = url.rpartition(":")[2]
        refused = omoide("serve", "--port", port, code=2)
    assert "cannot be used" in refused.stderr


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("missing", ["starlette", "uvicorn"])
def test_a_missing_extra_is_named(missing: str) -> None:
    """Without the packages there is one line that says what to install."""
    program = f"import sys; sys.modules[{missing!r}] = None; from omoide.cli import main; main(['serve'])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 2
    assert done.stderr.endswith("packages that are not installed; pip install 'omoide[server]'\n")
    assert done.stderr.count("\n") == 1


def test_an_mcp_client_uses_the_store_of_the_shell(omoide: Run) -> None:
    """At the same address as everybody else, with a token, and in the scope of the shell."""
    secret = create_token(omoide, "read", "write")
    with start_server("--agent", "ada") as (_, url):
        found = anyio.run(_call_mcp, f"{url}/mcp", secret)
        refused = httpx2.post(f"{url}/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        with Client(url, secret) as client:
            kept = [one.content for one in client.list(ADA)]
    assert found == kept == ["Prices are kept in cents."]
    assert refused.status_code == 401


async def _call_mcp(url: str, secret: str) -> list[str]:
    """What is recalled after something was remembered, both over MCP."""
    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {secret}"}) as http,
        mcp.Client(streamable_http_client(url, http_client=http)) as client,
    ):
        await client.call_tool("remember", {"content": "Prices are kept in cents."})
        answer = await client.call_tool("recall", {"query": "how are prices kept?"})
    assert answer.structured_content is not None
    return [memory["content"] for memory in answer.structured_content["memories"]]
