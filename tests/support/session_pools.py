"""Session pools and gated models for tests."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio
import anyio.lowlevel
from tests.support.sessions import a_spec, talker

from omoide import Scope
from omoide.runtime import SessionPool
from omoide.sessions import Session

MANUAL = a_spec(memory=True)
START = 1_800_000_000_000


def make_pool(store: Any, **options: Any) -> SessionPool:
    """Return a session pool with a model that repeats its input."""
    return SessionPool(store, **{"llm": talker(), **options})


class Gate:
    """A model that answers when it may."""

    def __init__(self) -> None:
        self.asked = anyio.Event()
        self.open = anyio.Event()

    async def __call__(self, request: Any, journal: Any) -> str:
        self.asked.set()
        await self.open.wait()
        return "At last."


async def contents(store: Any) -> list[str]:
    """What is remembered, in words."""
    return sorted(one.content for one in await store.list_entries(Scope()))


def note_framework(session: Session) -> None:
    """Note what is a memory only with the lower threshold that counts at the end."""
    session.context.put("framework", f"Phoenix of {session.id}", source="tool", confidence=0.5)


def fail_on(kind: str, *wanted: str) -> Any:
    """Return a hook of a watched store that breaks an operation on the documents of some sessions."""

    async def before(name: str, args: Any) -> None:
        if name == kind and (not wanted or args[0].session_id in wanted):
            raise RuntimeError("secret words")

    return before


async def cancel_background(session: Session) -> None:
    """Cancel the background task of a session, as nothing should."""
    ticking = session._background_task
    assert ticking is not None
    ticking.cancel()
    await asyncio.wait([ticking])
