"""How is a client told about the server?

Each client has a file, and a shape in it. What `omoide mcp --print-config` prints can be put there as it is.

"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from omoide.errors import Invalid, NotFound

SERVER_NAME = "omoide"
TOKEN_VARIABLE = "OMOIDE_TOKEN"
"""Where a client is told to look for its token, if it can look into the environment."""


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Where and how a client is told about servers."""

    title: str
    file: str
    """Where its configuration lies, seen from the project or the home of its user."""
    under: str = "mcpServers"
    stdio: Mapping[str, Any] = {}
    """What it wants to read beside the command."""
    http: Mapping[str, Any] | None = {}
    """What it wants to read beside the address; None where it takes no address."""
    url: str = "url"
    token: str = f"${{{TOKEN_VARIABLE}}}"
    """How it is told to take the token from its environment."""


CLIENTS: Mapping[str, ClientConfig] = {
    "claude-desktop": ClientConfig(title="Claude Desktop", file="claude_desktop_config.json", http=None),
    "claude-code": ClientConfig(
        title="Claude Code", file=".mcp.json", stdio={"type": "stdio"}, http={"type": "http"}
    ),
    "cursor": ClientConfig(title="Cursor", file=".cursor/mcp.json", token=f"${{env:{TOKEN_VARIABLE}}}"),
    "vscode": ClientConfig(
        title="VS Code",
        file=".vscode/mcp.json",
        under="servers",
        stdio={"type": "stdio"},
        http={"type": "http"},
        token=f"${{env:{TOKEN_VARIABLE}}}",
    ),
    "zed": ClientConfig(
        title="Zed",
        file="~/.config/zed/settings.json",
        under="context_servers",
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
    "codex": ClientConfig(title="Codex", file="~/.codex/config.toml", under="mcp_servers"),
}
"""The clients that are known, by their names."""


def get_client(name: str) -> ClientConfig:
    """The client of a name."""
    if name not in CLIENTS:
        raise NotFound("MCP client", name, f"use one of {', '.join(CLIENTS)}")
    return CLIENTS[name]


def stdio_config(name: str, command: str, arguments: Sequence[str]) -> dict[str, Any]:
    """What a client is told so that it starts the server itself."""
    chosen = get_client(name)
    told = {**chosen.stdio, "command": command, "args": [*arguments]}
    return {chosen.under: {SERVER_NAME: told}}


def http_config(name: str, url: str, *, with_token: bool = False) -> dict[str, Any]:
    """What a client is told so that it finds a server that runs."""
    chosen = get_client(name)
    if chosen.http is None:
        raise Invalid("--http", f"is not for {chosen.title}, which starts its servers", "leave it out")
    told: dict[str, Any] = {**chosen.http, chosen.url: url}
    if with_token and name == "codex":
        told["bearer_token_env_var"] = TOKEN_VARIABLE
    elif with_token:
        told["headers"] = {"Authorization": f"Bearer {chosen.token}"}
    return {chosen.under: {SERVER_NAME: told}}


def format_config(name: str, config: Mapping[str, Any]) -> str:
    """A configuration as it stands in the client's file."""
    if not get_client(name).file.endswith(".toml"):
        return msgspec.json.format(msgspec.json.encode(config), indent=2).decode() + "\n"
    ((under, servers),) = config.items()
    # A string or a list of strings is written in TOML as it is in JSON.
    lines = [f"{key} = {msgspec.json.encode(value).decode()}" for key, value in servers[SERVER_NAME].items()]
    return "\n".join([f"[{under}.{SERVER_NAME}]", *lines]) + "\n"
