"""How does a conversation go on, after a pause, a crash, or in another process?

`Session` is one conversation; `sessions` tells which ones a store keeps, each as a `Header`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.sessions.header import Header as Header
    from omoide.sessions.listing import sessions as sessions
    from omoide.sessions.session import Session as Session

_LAZY = {
    "Header": "omoide.sessions.header",
    "Session": "omoide.sessions.session",
    "sessions": "omoide.sessions.listing",
}

__all__ = ["Header", "Session", "sessions"]


def __getattr__(name: str) -> Any:
    """What is asked for is loaded then."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LAZY[name]), name)
