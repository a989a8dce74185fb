"""Several MCP servers share one file.

`OMOIDE_MCP_SERVERS` says how many there are, and `OMOIDE_MCP_CALLS` how often each is called; `make soak`
sets them high.
"""

from __future__ import annotations

import os
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import pytest
from mcp import Client
from tests.support.longterm import a_store
from tests.support.mcp_clients import ADA, call, connect_stdio

SERVERS = int(os.environ.get("OMOIDE_MCP_SERVERS", "2"))
CALLS = int(os.environ.get("OMOIDE_MCP_CALLS", "25"))


@pytest.mark.timeout(60 + SERVERS * CALLS)
async def test_nothing_is_lost_between_servers(tmp_path: Path) -> None:
    """All remember, recall and forget in turn; in the end the file and every server know the same."""
    kept: set[str] = set()
    forgotten: set[str] = set()

    async def use(client: Client, number: int) -> None:
        last = ""
        for step in range(CALLS):
            match step % 5:
                case 3:
                    found = await call(client, "recall", query=f"window {number}", limit=3)
                    assert found["count"] > 0
                case 4:
                    await call(client, "forget", memory_id=last, reason="tidied up")
                    forgotten.add(last)
                case _:
                    content = f"Window {number} noted step {step}."
                    last = (await call(client, "remember", content=content))["memory_id"]
                    assert last not in kept
                    kept.add(last)

    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect_stdio(tmp_path)) for _ in range(SERVERS)]
        async with anyio.create_task_group() as group:
            for number, client in enumerate(clients):
                group.start_soon(use, client, number)
        figures = [await call(client, "memory_status") for client in clients]
    assert {(one["memories"], one["forgotten"]) for one in figures} == {
        (len(kept) - len(forgotten), len(forgotten))
    }
    async with a_store("sqlite", tmp_path) as store:
        entries = await store.list_entries(ADA)
        assert {entry.id for entry in entries} == kept
        assert {entry.id for entry in entries if entry.superseded_by is not None} == forgotten
        assert store.sync.check() == []


async def test_what_one_window_remembers_another_knows_at_once(tmp_path: Path) -> None:
    """Between two calls of one server there may be one of another; the same words are kept once by both."""
    async with connect_stdio(tmp_path) as one, connect_stdio(tmp_path) as other:
        kept = await call(one, "remember", content="The meeting moved to Thursday.")
        (found,) = (await call(other, "recall", query="when is the meeting?"))["memories"]
        assert found["id"] == kept["memory_id"]
        again = await call(other, "remember", content="The meeting moved to Thursday.")
        assert again["memory_id"] == kept["memory_id"]
        await call(other, "forget", memory_id=kept["memory_id"])
        assert (await call(one, "recall", query="when is the meeting?"))["count"] == 0


async def test_the_same_words_said_by_all_at_once_are_kept_once(tmp_path: Path) -> None:
    """Servers that race to keep the same statement end up with one memory of it."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connect_stdio(tmp_path)) for _ in range(2)]
        found: set[str] = set()

        async def say(client: Client) -> None:
            for number in range(10):
                answer = await call(client, "remember", content=f"Step {number} is done.")
                found.add(answer["memory_id"])

        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(say, client)
    assert len(found) == 10


async def test_a_client_need_not_wait_for_an_answer_to_ask_again(tmp_path: Path) -> None:
    """Many calls at once through one pipe are all answered, each with its own."""
    async with connect_stdio(tmp_path) as client:
        answers: dict[int, str] = {}

        async def say(number: int) -> None:
            answers[number] = (await call(client, "remember", content=f"Step {number}."))["memory_id"]

        async with anyio.create_task_group() as group:
            for number in range(50):
                group.start_soon(say, number)
        assert len({*answers.values()}) == 50
        assert (await call(client, "memory_status"))["memories"] == 50
