"""Specs, scripted models and recording stores for the tests of turns."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.custom_stores import ListStore

from omoide import Entry, RecallRequest, RecallResult, Scope, WriteRequest, WriteResult
from omoide.stores import open_store
from omoide.turns import AgentSpec, Prompt, Request

KINDS = ("memory", "sqlite", "own")
ALEX = "User prefers the name Alex."
INSTRUCTIONS = "Greet the user and use any remembered facts."


def a_spec(**fields: Any) -> AgentSpec:
    """Return an agent with the default memory policy, unless the fields say otherwise."""
    return AgentSpec.new({"id": "memory_agent", "instructions": INSTRUCTIONS, "memory": True, **fields})


class Talker:
    """A scripted model: it gives its replies in order, repeats the last one, and records its requests."""

    def __init__(self, *replies: Any) -> None:
        self.replies = replies or ("Welcome back, Alex.",)
        self.requests: list[Request] = []

    def __call__(self, request: Request, journal: Any) -> Any:
        reply = self.replies[min(len(self.requests), len(self.replies) - 1)]
        self.requests.append(request)
        if isinstance(reply, Exception):
            raise reply
        return reply(request) if callable(reply) else reply

    @property
    def prompts(self) -> list[Prompt]:
        """The prompts of its requests, in order."""
        return [request.prompt for request in self.requests]


def tool_calls(*calls: tuple[str, dict[str, Any]], prefix: str = "call_") -> dict[str, Any]:
    """Return the reply of a model that calls tools; the ids of the calls are call_1, call_2 and so on."""
    asked = [
        {"id": f"{prefix}{at}", "name": name, "params": params} for at, (name, params) in enumerate(calls, 1)
    ]
    return {"type": "operations", "operations": asked}


class Spy(ListStore):
    """A store with only the three required methods, which records its requests, or fails."""

    def __init__(self) -> None:
        super().__init__()
        self.recalls: list[RecallRequest] = []
        self.writes: list[WriteRequest] = []
        self.recall_fails: Exception | None = None
        self.write_fails: Exception | None = None
        self.log: list[str] = []

    async def recall(self, request: RecallRequest) -> RecallResult:
        self.recalls.append(request)
        self.log.append("recall")
        if self.recall_fails is not None:
            raise self.recall_fails
        return await super().recall(request)

    async def write(self, request: WriteRequest) -> WriteResult:
        self.writes.append(request)
        self.log.append("write")
        if self.write_fails is not None:
            raise self.write_fails
        return await super().write(request)


@asynccontextmanager
async def a_store(kind: str, folder: Path) -> AsyncIterator[Any]:
    """Open a store of a kind: a built-in one, or a small custom one."""
    if kind == "own":
        yield Spy()
        return
    url = "memory://" if kind == "memory" else f"sqlite:///{folder / 'memory.db'}"
    async with open_store(url, embedder="none") as store:
        yield store


async def entries_of(store: Any, agent_id: str = "memory_agent", **scope: Any) -> list[Entry]:
    """Return the memories of an agent in a store, oldest first."""
    found: list[Entry] = await store.list_entries(Scope(agent_id=agent_id, **scope))
    return found


def system_of(prompt: Prompt) -> str:
    """Return the first system message."""
    return next(message.content for message in prompt.messages if message.role == "system")


def text_of(prompt: Prompt) -> str:
    """Return the content of all messages of a prompt."""
    return "\n".join(message.content for message in prompt.messages)


def kinds_of(result: Any) -> list[str]:
    """Return the kinds of the events of a turn, in order."""
    return [event.kind for event in result.events]
