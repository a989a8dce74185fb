"""How does an MCP client meet a memory?

`create_server(store, scope)` makes a server of the official SDK; `omoide mcp` runs it. The SDK takes a second
to load, and is loaded when it is needed.

"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from omoide.integrations.mcp.server import create_server, serve_http, serve_stdio


__all__ = ["create_server", "serve_http", "serve_stdio"]

_LAZY = {"create_server": "server", "serve_http": "server", "serve_stdio": "server"}
_REQUIRED_MODULES = ("mcp", "mcp_types", "starlette", "uvicorn")


def __getattr__(name: str) -> Any:
    """What is asked for, with the SDK that it needs."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    try:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in _REQUIRED_MODULES:
            raise
        from omoide.errors import MissingExtra

        raise MissingExtra("MCP", "mcp") from error
