"""How is a memory met over HTTP?"""

from __future__ import annotations

from typing import Any

__all__ = ["create_app"]


def __getattr__(name: str) -> Any:
    """The framework is loaded when it is needed."""
    if name != "create_app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from omoide.web.app import create_app
    except ModuleNotFoundError as error:
        from omoide.errors import MissingExtra

        raise MissingExtra("REST", "server") from error
    return create_app
