"""How are commands tried? In a folder and an environment of their own, without an encoder."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from omoide.cli.app import app

Run = Callable[..., Result]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, which is where the command runs."""
    for name in [name for name in os.environ if name.startswith(("OMOIDE_", "XDG_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("OMOIDE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMOIDE_EMBEDDER", "none")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def omoide(home: Path) -> Run:
    """Runs a command and checks its exit code, which is 0 unless said otherwise."""

    def run(*arguments: str, code: int = 0, input: str | bytes | None = None) -> Result:
        result = CliRunner().invoke(app, list(arguments), input=input)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


@pytest.fixture
def answer(omoide: Run) -> Callable[..., Any]:
    """Runs a command with `--json` and reads its answer."""

    def run(*arguments: str, code: int = 0) -> Any:
        return json.loads(omoide(*arguments, "--json", code=code).stdout)

    return run


@pytest.fixture
def three(omoide: Run) -> None:
    """A store with three memories."""
    for number in (1, 2, 3):
        omoide("remember", f"Memory number {number}.", "--id", f"m{number}", "--at", f"2024-01-0{number}")
