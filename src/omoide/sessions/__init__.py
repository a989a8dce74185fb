"""How does a conversation go on, after a pause, a crash, or in another process?

`Session` is one conversation; `sessions` tells which ones a store keeps, each as a `Header`.

"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.sessions.session import Session
    from omoide.sessions.storage import SessionRecord, sessions


_LAZY = {
    "SessionRecord": "omoide.sessions.storage",
    "Session": "omoide.sessions.session",
    "sessions": "omoide.sessions.storage",
}

__all__ = ["Session", "SessionRecord", "sessions"]


def __getattr__(name: str) -> Any:
    """What is asked for is loaded then."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
