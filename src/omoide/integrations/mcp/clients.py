"""Write the configuration with which MCP clients find the server.

Each client has its own file and layout. The output of `omoide mcp --print-config` can be pasted there as it
is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from omoide.errors import Invalid, NotFound

SERVER_NAME = "omoide"
TOKEN_VARIABLE = "OMOIDE_TOKEN"
"""Environment variable for the token, in clients that can refer to one."""


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Configuration file and layout of an MCP client."""

    title: str
    file: str
    """Path of the configuration file, relative to the project or in the user's home."""
    servers_key: str = "mcpServers"
    stdio: Mapping[str, Any] = {}
    """Entries besides the command."""
    http: Mapping[str, Any] | None = {}
    """Entries besides the URL; None if the client cannot connect to a URL."""
    url: str = "url"
    token: str = f"${{{TOKEN_VARIABLE}}}"
    """Reference to the token's environment variable."""


CLIENTS: Mapping[str, ClientConfig] = {
    "claude-desktop": ClientConfig(title="Claude Desktop", file="claude_desktop_config.json", http=None),
    "claude-code": ClientConfig(
        title="Claude Code", file=".mcp.json", stdio={"type": "stdio"}, http={"type": "http"}
    ),
    "cursor": ClientConfig(title="Cursor", file=".cursor/mcp.json", token=f"${{env:{TOKEN_VARIABLE}}}"),
    "vscode": ClientConfig(
        title="VS Code",
        file=".vscode/mcp.json",
        servers_key="servers",
        stdio={"type": "stdio"},
        http={"type": "http"},
        token=f"${{env:{TOKEN_VARIABLE}}}",
    ),
    "zed": ClientConfig(
        title="Zed",
        file="~/.config/zed/settings.json",
        servers_key="context_servers",
        stdio={"source": "custom"},
        http={"source": "custom"},
        token="<the token>",
    ),
    "windsurf": ClientConfig(
        title="Windsurf",
        file="~/.codeium/windsurf/mcp_config.json",
        url="serverUrl",
        token=f"${{env:{TOKEN_VARIABLE}}}",
    ),
    "gemini": ClientConfig(title="Gemini CLI", file="~/.gemini/settings.json", url="httpUrl"),
    "codex": ClientConfig(title="Codex", file="~/.codex/config.toml", servers_key="mcp_servers"),
}
"""Supported clients by name."""


def get_client(name: str) -> ClientConfig:
    """Return the client of a name, or raise `NotFound`."""
    if name not in CLIENTS:
        raise NotFound("MCP client", name, f"use one of {', '.join(CLIENTS)}")
    return CLIENTS[name]


def stdio_config(name: str, command: str, arguments: Sequence[str]) -> dict[str, Any]:
    """Return the configuration with which a client starts the server itself."""
    client = get_client(name)
    entry = {**client.stdio, "command": command, "args": [*arguments]}
    return {client.servers_key: {SERVER_NAME: entry}}


def http_config(name: str, url: str, *, with_token: bool = False) -> dict[str, Any]:
    """Return the configuration with which a client connects to a running server."""
    client = get_client(name)
    if client.http is None:
        raise Invalid("--http", f"is not for {client.title}, which starts its servers", "leave it out")
    entry: dict[str, Any] = {**client.http, client.url: url}
    if with_token and name == "codex":
        entry["bearer_token_env_var"] = TOKEN_VARIABLE
    elif with_token:
        entry["headers"] = {"Authorization": f"Bearer {client.token}"}
    return {client.servers_key: {SERVER_NAME: entry}}


def format_config(name: str, config: Mapping[str, Any]) -> str:
    """Return a configuration in the format of the client's file: JSON, or TOML for Codex."""
    if not get_client(name).file.endswith(".toml"):
        return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"
    ((servers_key, servers),) = config.items()
    # Strings and lists of strings have the same syntax in TOML and JSON.
    lines = [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in servers[SERVER_NAME].items()]
    return "\n".join([f"[{servers_key}.{SERVER_NAME}]", *lines]) + "\n"
