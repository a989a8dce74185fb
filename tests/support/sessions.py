"""Specs, scripted models, tools and a watched store for the tests of sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

from tests.support.turns import Talker, tool_calls

from omoide import Entry, Scope, action
from omoide.core import ThreadEntry
from omoide.sessions import Session
from omoide.stores import AsyncStore
from omoide.turns import AgentSpec, Prompt

CONVERSATION = {"capture": "conversation"}
KINDS = ("memory", "sqlite")
LATER = 10_000_000
"""Milliseconds after which no lease is held any more."""


def a_spec(**fields: Any) -> AgentSpec:
    """Return an agent that captures its conversations, unless the fields say otherwise."""
    return AgentSpec.new({"id": "ada", "memory": CONVERSATION, **fields})


def echo(request: Any) -> str:
    """Answer with what was asked."""
    return f"You said {request.prompt.messages[-1].content}"


def talker(*replies: Any) -> Talker:
    """Return a model with these replies, or one that repeats its input."""
    return Talker(*(replies or (echo,)))


@action
def believe(ctx: Any, key: str, value: str) -> Any:
    """Take something for true."""
    return ctx.memory.world_put(key, value)


class Till:
    """A tool that must not run twice, one that may, and a log of what they did."""

    def __init__(self) -> None:
        self.log: list[str] = []

        @action(effectful=True)
        async def pay(ctx: Any, sum: int) -> str:
            """Pay."""
            self.log.append(f"pay {sum}")
            return f"paid {sum}"

        @action(effectful=True, idempotent=True)
        async def look(ctx: Any) -> str:
            """Look how much is left."""
            self.log.append("look")
            return "12 left"

        self.pay, self.look = pay, look

    def spec(self, **fields: Any) -> AgentSpec:
        """Return an agent with both tools."""
        return a_spec(**{"tools": [self.pay, self.look], **fields})


PAY = tool_calls(("pay", {"sum": 5}))
BOTH = tool_calls(("pay", {"sum": 5}), ("look", {}))


def describe(entry: ThreadEntry) -> str:
    """Describe an entry of a transcript in one line."""
    payload = entry.payload
    match entry.kind, payload.get("role"):
        case "message", "assistant" if "calls" in payload:
            return "wants " + " ".join(call["name"] for call in payload["calls"])
        case "message", role:
            return f"{role}: {payload['content']}"
        case "tool_call", _:
            return f"began {payload['name']}"
        case "tool_result", _:
            return f"{payload['status']} {payload['name']}: {payload['content']}"
        case "error", _:
            return f"error {payload['error']}"
        case kind, _:
            return kind


def lines(entries: Iterable[ThreadEntry]) -> list[str]:
    """Describe a transcript, a line for each entry except the notes about resumed turns."""
    return [describe(entry) for entry in entries if entry.kind != "note"]


def conversation_of(prompt: Prompt) -> list[str]:
    """Return the conversation in a prompt, without system messages."""
    return [f"{one.role}: {one.content}" for one in prompt.messages if one.role != "system"]


def echo_conversation(*turns: str) -> list[str]:
    """Return the conversation of these inputs with the model that repeats its input."""
    return [line for input in turns for line in (f"user: {input}", f"assistant: You said {input}")]


async def captured_entries(store: Any, **scope: Any) -> list[Entry]:
    """Return the memories captured from conversations of the agent, oldest first."""
    found: list[Entry] = await store.list_entries(Scope(**{"agent_id": "ada", **scope}))
    return [entry for entry in found if entry.metadata.get("source") == "omoide_capture"]


async def reopen(session: Session, **options: Any) -> Session:
    """Load the same session through another handle."""
    return await Session.load(session.id, session.spec, **{"store": session._store, **options})


Before = Callable[[str, tuple[Any, ...]], Awaitable[None]]


class WatchedStore(AsyncStore):
    """A store that calls `before` with the name of each operation of a session, and records the names."""

    def __init__(self, store: AsyncStore, before: Before | None = None) -> None:
        super().__init__(store.sync, store.url)
        self.before = before
        self.calls: list[str] = []

    async def _intercept(self, name: str, *args: Any) -> None:
        self.calls.append(name)
        if self.before is not None:
            await self.before(name, args)

    async def write(self, request: Any) -> Any:
        await self._intercept("write", request)
        return await super().write(request)

    async def recall(self, request: Any) -> Any:
        await self._intercept("recall", request)
        return await super().recall(request)

    async def save(self, document: Any, *, expected_rev: int | None = None) -> Any:
        await self._intercept(f"save {document.kind}", document)
        return await super().save(document, expected_rev=expected_rev)

    async def append(self, kind: str, id: str, entries: Any, scope: Any, **given: Any) -> int:
        await self._intercept(f"append {kind}", entries)
        return await super().append(kind, id, entries, scope, **given)

    async def claim(self, kind: str, id: str, scope: Any, **given: Any) -> Any:
        await self._intercept("claim", kind)
        return await super().claim(kind, id, scope, **given)


def everything_in(folder: Path) -> bytes:
    """Return all bytes of all files of a folder."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
