"""The MCP page documents every tool, parameter and client."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.integrations.mcp.test_arguments import SCHEMAS

from omoide.integrations.mcp.clients import CLIENTS

PAGE = (Path(__file__).parents[3] / "docs" / "mcp.md").read_text("utf-8")
ROWS = {
    re.findall(r"`([^`]+)`", cells[0])[0]: cells
    for cells in (line.strip("|").split("|") for line in PAGE.splitlines() if line.startswith("| `"))
}


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_tool_is_documented(name: str) -> None:
    """Each tool has a row with its parameters, in their order."""
    assert re.findall(r"`(\w+)`", ROWS[name][1]) == [*SCHEMAS[name]["properties"]]


@pytest.mark.parametrize("name", CLIENTS)
def test_every_client_is_documented(name: str) -> None:
    """Each client has a row with its name and its file."""
    _, title, where = ROWS[name]
    assert title.strip() == CLIENTS[name].title
    assert CLIENTS[name].file.rpartition("/")[2] in where
