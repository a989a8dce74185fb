"""How does a program use a memory that is served elsewhere?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.client.client import AsyncClient, Client


__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    """What speaks HTTP is loaded when it is needed."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from omoide.client import client as clients
    except ModuleNotFoundError as error:
        from omoide.errors import MissingExtra

        raise MissingExtra("the client", "client") from error
    return getattr(clients, name)
