"""Serve a store to MCP clients, with the official SDK.

`server` builds and runs the server, `tools` declares its tools, `schemas` their outputs, `arguments` corrects
what a model sends, and `clients` writes the configuration of MCP clients. The SDK takes a second to import;
it is loaded when an attribute is first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from omoide._lazy import attach

if TYPE_CHECKING:
    from omoide.integrations.mcp.server import MemoryServer, create_server, http_app, serve_http, serve_stdio

__all__ = ["MCP_PATH", "MemoryServer", "create_server", "http_app", "serve_http", "serve_stdio"]

__getattr__, __dir__ = attach(
    __name__,
    attributes={"server": __all__},
    extra=("MCP", "mcp"),
    requires=("mcp", "starlette", "uvicorn"),
)
