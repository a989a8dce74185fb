"""Sessions: conversations that go on after a pause, a crash, or in another process.

- `session`: `Session`, one conversation; `runner`: its turns, each step persisted.
- `storage`: `SessionRecord`, the transcript and the lease; `sessions` lists what a store has.
- `memory`: short-term memory and its promotion; `extractor`: memories that the session's model finds in
  messages; `context`: context assembly for a prompt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.sessions.context import SessionContext
    from omoide.sessions.memory import PromotionStats, Scratchpad
    from omoide.sessions.session import Session, SessionKwargs
    from omoide.sessions.storage import SessionRecord, sessions

__all__ = [
    "PromotionStats",
    "Scratchpad",
    "Session",
    "SessionContext",
    "SessionKwargs",
    "SessionRecord",
    "sessions",
]

__getattr__, __dir__ = attach(
    __name__,
    attributes={
        "context": ("SessionContext",),
        "memory": ("PromotionStats", "Scratchpad"),
        "session": ("Session", "SessionKwargs"),
        "storage": ("SessionRecord", "sessions"),
    },
)
