"""What was said in an entry of the thread, and by whom?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from omoide.core.thread import ThreadEntry
from omoide.shortterm.buffer import ROLES

MESSAGE = ("message",)
"""The kinds of entries that projectors read unless they are told otherwise."""

_ALSO = {
    "agent": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "developer": "system",
    "function": "tool",
    "human": "user",
    "model": "assistant",
}


class Said(NamedTuple):
    """One message: where it stands, who said it, and what."""

    entry: ThreadEntry
    role: str
    text: str


def said(entries: Iterable[ThreadEntry], kinds: tuple[str, ...] = MESSAGE) -> Iterator[Said]:
    """The messages among entries that have a text; who gives no role is taken for the user."""
    for entry in entries:
        text = entry.payload.get("content", entry.payload.get("text"))
        if entry.kind in kinds and isinstance(text, str) and text.strip():
            role = str(entry.payload.get("role", "user")).lower()
            yield Said(entry, role if role in ROLES else _ALSO.get(role, "user"), text)
