"""The `mcp` command, and the configuration of clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.mcp_clients import DEFAULT_TOOLS, call, connect_stdio, server_environment

from omoide.cli.app import app
from omoide.integrations.mcp.clients import CLIENTS

BUDGET_S = 0.5
"""CPU seconds that printing a configuration may take: the SDK alone takes more."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, which is where the command runs, and nothing said by the environment."""
    for name in [name for name in os.environ if name.startswith(("OMOIDE_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(*arguments: str, code: int = 0) -> Result:
    """What the command gives in this process."""
    result = CliRunner().invoke(app, ["mcp", *arguments])
    assert result.exit_code == code, (result.output, result.exception)
    return result


def server_in(config: dict[str, Any]) -> dict[str, Any]:
    """What a configuration says about our server, wherever it says it."""
    ((_, servers),) = config.items()
    found: dict[str, Any] = servers["omoide"]
    return found


@pytest.mark.parametrize("name", CLIENTS)
async def test_what_is_printed_starts_a_server(name: str, home: Path) -> None:
    """The command in each client's configuration serves the memory that was named."""
    printed = ran("--print-config", name, "--store", "notes.db", "--agent", "ada", "--project", "").stdout
    file = CLIENTS[name].file
    config = tomllib.loads(printed) if file.endswith(".toml") else json.loads(printed)
    server = server_in(config)
    assert [server["command"], *server["args"][:3]] == [sys.executable, "-m", "omoide", "mcp"]
    options = server["args"][3:]
    assert options == [f"--store=sqlite:///{home / 'notes.db'}", "--agent=ada", "--project="]
    if name == "claude-desktop":
        async with connect_stdio(home, *options, "--embedder=none") as client:
            assert [tool.name for tool in (await client.list_tools()).tools] == DEFAULT_TOOLS
            assert (await call(client, "memory_status"))["scope"] == {"namespace": "default", "agent": "ada"}
        assert (home / "notes.db").exists()


def test_only_what_was_said_is_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Variables and options are written down, what is usual is not: it may differ where the client runs."""
    assert server_in(json.loads(ran("--print-config").stdout))["args"] == ["-m", "omoide", "mcp"]
    monkeypatch.setenv("OMOIDE_NAMESPACE", "team")
    printed = ran("--all-tools", "--strict", "--print-config", "cursor").stdout
    assert server_in(json.loads(printed))["args"][3:] == ["--all-tools", "--strict", "--namespace=team"]


@pytest.mark.parametrize("name", [name for name, client in CLIENTS.items() if client.http is not None])
def test_a_server_that_runs_is_named_by_its_address(name: str) -> None:
    """With --http the address is printed, and with tokens where the client finds its own; never a token."""
    printed = ran("--print-config", name, "--http", "--port", "9000", "--require-token", "--json").stdout
    answer = json.loads(printed)
    assert (answer["client"], answer["file"]) == (name, CLIENTS[name].file)
    server = server_in(answer["config"])
    assert "http://127.0.0.1:9000/mcp" in server.values()
    assert "OMOIDE_TOKEN" in json.dumps(server) or "<the token>" in json.dumps(server)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--print-config", "emacs"), 1, "use one of claude-desktop"),
        (("--print-config", "claude-desktop", "--http"), 2, "leave it out"),
        (("--http", "--host", "0.0.0.0"), 2, "token that may read 'default' does not exist"),
        (("--http", "--require-token"), 2, "token that may read 'default' does not exist"),
        (("--http", "--port", "99999"), 2, "99999"),
        (("--http", "--allow-host", "a b"), 2, "host"),
    ],
)
def test_what_cannot_be_is_refused(arguments: tuple[str, ...], code: int, words: str) -> None:
    """Wrong clients, ports and names, and servers for others without tokens, end in one line."""
    result = ran(*arguments, "--embedder", "none", code=code)
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_missing_extra_names_itself(home: Path) -> None:
    """Without the SDK the command ends with how to install it."""
    code = "import sys; sys.modules['mcp'] = None; from omoide.cli import main; main(['mcp'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        text=True,
        env=os.environ | server_environment(home),
    )
    assert done.returncode == 2
    assert done.stderr == "omoide: MCP needs packages that are not installed; pip install 'omoide[mcp]'\n"


def test_the_sdk_is_loaded_only_to_serve() -> None:
    """Printing a configuration, and everything else, does without the second that it takes to load."""
    script = (
        "import sys; from click.testing import CliRunner; from omoide.cli.app import app\n"
        "assert CliRunner().invoke(app, ['mcp', '--print-config']).exit_code == 0\n"
        "assert not {'mcp', 'mcp_types', 'starlette', 'uvicorn', 'pydantic'} & {*sys.modules}"
    )
    before = os.times()
    subprocess.run([sys.executable, "-c", script], check=True)
    after = os.times()
    spent = after.children_user - before.children_user + after.children_system - before.children_system
    assert spent < BUDGET_S


@pytest.mark.parametrize("way", ["stdio", "http"])
def test_a_server_ends_when_it_is_told_to(way: str, home: Path) -> None:
    """Ctrl-C ends it at once, and the file is whole."""
    options = ["--http", "--port", "0"] if way == "http" else []
    command = [sys.executable, "-m", "omoide", "mcp", *options]
    process = subprocess.Popen(
        command,
        env=os.environ | server_environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdin, process.stdout, process.stderr:
        if way == "http":
            assert process.stderr.readline().startswith("Listening on http://127.0.0.1:")
        else:
            process.stdin.write(json.dumps(HELLO) + "\n")
            process.stdin.flush()
            assert "omoide" in process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.wait(20)
        assert "Traceback" not in process.stderr.read()
    listed = [sys.executable, "-m", "omoide", "doctor", "--json"]
    done = subprocess.run(listed, env=os.environ | server_environment(home), capture_output=True, check=False)
    checks = {check["name"]: check["state"] for check in json.loads(done.stdout)["checks"]}
    assert checks["integrity"] == "ok"


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    },
}


def test_standard_output_holds_nothing_but_the_protocol(home: Path) -> None:
    """Every line that a client reads is a message; what is no message is answered as an error."""
    lines = [json.dumps(HELLO), "nonsense", '{"jsonrpc": "2.0", "method": "notifications/initialized"}']
    lines += [json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})]
    process = subprocess.Popen(
        [sys.executable, "-m", "omoide", "mcp"],
        env=os.environ | server_environment(home),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    with process.stdin, process.stdout, process.stderr:
        process.stdin.write("\n".join(lines) + "\n")
        process.stdin.flush()
        answers: list[dict[str, Any]] = []
        while not any(answer.get("id") == 2 for answer in answers):
            answers.append(json.loads(process.stdout.readline()))
        process.stdin.close()
        assert process.wait(20) == 0
    assert all(answer["jsonrpc"] == "2.0" for answer in answers)
    (tools,) = [answer["result"]["tools"] for answer in answers if answer.get("id") == 2]
    assert [tool["name"] for tool in tools] == DEFAULT_TOOLS
