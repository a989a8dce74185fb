"""MCP clients over every transport, and a store with memories for them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CallToolResult, TextContent
from tests.support.longterm import connect, keep

from omoide import Agent, Definition, Scope, identity, memory
from omoide.integrations.mcp import create_server
from omoide.runtime.checkpoints import DocumentCheckpointStore, save_agent

ADA = Scope(agent_id="ada")
DEFAULT_TOOLS = ["remember", "recall", "forget", "memory_status", "who_can"]
EXTRA_TOOLS = ["get", "list", "relate", "related", "provenance", "review", "restore", "history", "sparql"]

CALLS: dict[str, dict[str, Any]] = {
    "remember": {"content": "Prices are kept in cents.", "type": "convention"},
    "recall": {"query": "how are prices kept?"},
    "memory_status": {},
    "who_can": {"action": "summarise"},
    "get": {"memory_id": "one"},
    "list": {"limit": 2},
    "relate": {"source_id": "one", "relation": "refines", "target_id": "two"},
    "related": {"memory_id": "one"},
    "provenance": {"memory_id": "two"},
    "review": {},
    "forget": {"memory_id": "one", "reason": "outdated"},
    "restore": {"memory_id": "one"},
    "history": {"memory_id": "one"},
    "sparql": {"query": "SELECT ?text { ?m jido:summary ?text }"},
}
"""A call of every tool, in an order in which each has something to do."""


async def fill_store(store: Any, scope: Scope = ADA) -> None:
    """Keep two memories that hang together, and put an agent aside that has an identity and a memory."""
    await keep(store, "one", "The shop sells tea.", scope)
    await keep(store, "two", "The shop is open.", scope, on=["one"])
    await connect(store, "two", "confirms", "one", scope)
    agent = Agent.new(Definition.new("coder"), id=scope.agent_id or "ada")
    agent = identity.add_action(agent, "summarise")
    agent = memory.put_in_space(agent, "world", "city", "Ghent")
    await save_agent(agent, DocumentCheckpointStore(store, namespace=scope.namespace))


@asynccontextmanager
async def connect_client(
    store: Any, scope: Scope = ADA, *, mode: str = "auto", **options: Any
) -> AsyncIterator[Client]:
    """A client of a server in this process."""
    async with Client(create_server(store, scope, **options), mode=mode) as client:
        yield client


@asynccontextmanager
async def connect_stdio(folder: Path, *options: str) -> AsyncIterator[Client]:
    """Connect a client over pipes to a server in a process of its own."""
    arguments = ["-m", "omoide", "mcp", *options]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=server_environment(folder))
    with (folder / "stderr.txt").open("a+") as errors:
        async with Client(stdio_client(server, errors)) as client:
            yield client
        errors.seek(0)
        assert errors.read() == ""


@contextmanager
def http_server(folder: Path, *options: str) -> Iterator[str]:
    """The address of a server in a process of its own, that answers over HTTP."""
    command = [sys.executable, "-m", "omoide", "mcp", "--http", "--port", "0", *options]
    process = subprocess.Popen(
        command, env=os.environ | server_environment(folder), stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert line.startswith("Listening on "), line + process.stderr.read()
        yield line.removeprefix("Listening on ").strip()
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(20)
        process.stderr.close()


@asynccontextmanager
async def connect_http(url: str, token: str | None = None) -> AsyncIterator[Client]:
    """Connect a client to a server that answers over HTTP."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(url, http_client=http)) as client,
    ):
        yield client


def server_environment(folder: Path) -> dict[str, str]:
    """An environment in which nothing of this machine is found, and no encoder is loaded."""
    return {
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "OMOIDE_EMBEDDER": "none",
        "OMOIDE_STORE": str(folder / "memory.db"),
        "OMOIDE_AGENT": "ada",
        "OMOIDE_PROJECT": "",
    }


async def call(client: Client, tool: str, /, **params: Any) -> dict[str, Any]:
    """What a tool answers, as data."""
    result = await client.call_tool(tool, params)
    assert not result.is_error, text_of(result)
    answer: dict[str, Any] | None = result.structured_content
    assert answer is not None
    return answer


async def call_error(client: Client, tool: str, /, **params: Any) -> str:
    """What a model is told where a tool did not do it."""
    result = await client.call_tool(tool, params)
    assert result.is_error, text_of(result)
    return text_of(result)


def text_of(result: CallToolResult) -> str:
    """The text of an answer."""
    (block,) = result.content
    assert isinstance(block, TextContent)
    return block.text
