"""Stores, memories and links for the tests of long-term memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from omoide import Entry, Evidence, Scope, remember
from omoide.stores import Document, Link, open_store

KINDS = ("memory", "sqlite")
SHOP = Scope(agent_id="ada", project_id="shop")


@asynccontextmanager
async def a_store(kind: str, folder: Path | None = None) -> AsyncIterator[Any]:
    """A store of the kind, for a block."""
    url = "memory://" if kind == "memory" or folder is None else f"sqlite:///{folder / 'memory.db'}"
    async with open_store(url, embedder="none") as store:
        yield store


async def keep(store: Any, id: str, content: str = "", scope: Scope = SHOP, **fields: Any) -> Entry:
    """Keep a memory under an id; `on` names the memories that it rests on."""
    on: Iterable[str] = fields.pop("on", ())
    resting = [Evidence(kind="entry", ref=ref) for ref in on]
    evidence = [*resting, *fields.pop("evidence", ())]
    kept = await remember(store, content or f"This is {id}.", scope, id=id, evidence=evidence, **fields)
    return kept.entry


async def connect(store: Any, source: str, relation: str, target: str, scope: Scope = SHOP) -> None:
    """Link two memories."""
    await store.link(Link(source=source, relation=relation, target=target), scope)


async def keep_transcript(
    store: Any,
    thread: str,
    *said: str,
    agent_id: str = "ada",
    session_id: str = "conv",
    project_id: str | None = "shop",
    namespace: str = "default",
) -> None:
    """Keep a conversation of a session, in which the user and the assistant speak by turns."""
    log = [
        {
            "id": f"{thread}_{seq}",
            "seq": seq,
            "at": 1_000 + seq,
            "kind": "message",
            "payload": {"role": ("user", "assistant")[seq % 2], "content": content},
            "refs": {},
        }
        for seq, content in enumerate(said)
    ]
    owner: dict[str, Any] = {"agent_id": agent_id, "session_id": session_id, "namespace": namespace}
    await store.save(Document(kind="thread", id=thread, log=tuple(log), **owner))
    await store.save(Document(kind="session", id=session_id, body={"project_id": project_id}, **owner))
