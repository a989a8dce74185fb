"""The command as a process of its own."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from omoide.cli import COMMANDS

BUDGET_S = 0.5
"""CPU seconds that a simple command may take from start to end."""


def program(*arguments: str, code: int = 0, input: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    done = subprocess.run(
        [sys.executable, "-m", "omoide", *arguments], capture_output=True, check=False, input=input
    )
    assert done.returncode == code, done.stderr
    return done


def cpu_seconds(*arguments: str) -> float:
    """The CPU time of a command."""
    before = os.times()
    program(*arguments)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def without(modules: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A run in which some packages are not installed."""
    absent = dict.fromkeys(modules)
    code = f"import sys; sys.modules.update({absent!r}); from omoide.cli import main; main(sys.argv[1:])"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


@pytest.mark.usefixtures("home")
def test_memories_survive_the_process() -> None:
    """What one process remembers another recalls, and codes tell scripts what happened."""
    program("remember", "Alex likes café.", "--id", "m1")
    found = json.loads(program("recall", "café", "--json").stdout)
    assert [hit["entry"]["content"] for hit in found["hits"]] == ["Alex likes café."]
    program("show", "absent", code=1)
    program("remember", "", code=2)
    program("forget", "m1", "--expected-rev", "7", code=3)
    Path("broken.db").write_bytes(b"nonsense" * 2000)
    failed = program("list", "--store", "broken.db", code=4)
    assert b"Traceback" not in failed.stderr
    assert failed.stderr.count(b"\n") == 1


@pytest.mark.usefixtures("home")
def test_what_a_terminal_cannot_show_is_written_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal without these letters gets escapes instead of a failure."""
    program("remember", "-", "--id", "m1", input="思い出 café".encode())
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    assert b"\\u601d\\u3044\\u51fa caf\xe9" in program("show", "m1").stdout


@pytest.mark.usefixtures("home")
def test_a_reader_may_stop_early() -> None:
    """A pipe that is closed ends the command without a word."""
    program("remember", "x" * 100_000)
    running = subprocess.Popen(
        [sys.executable, "-m", "omoide", "list"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    assert running.stderr.read() == b""
    running.wait()
    running.stderr.close()


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "arguments",
    [["--help"], ["recall", "--help"], ["list"], ["show", "m1"], ["scrub"], ["completion", "zsh"]],
    ids=" ".join,
)
def test_simple_commands_start_quickly(arguments: list[str]) -> None:
    """Half a second of CPU is enough for a simple command."""
    program("remember", "x", "--id", "m1")
    # Other programs may slow one run down, but not make one fast.
    assert any(cpu_seconds(*arguments) <= BUDGET_S for _ in range(3))


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    "arguments",
    [
        ["--help"],
        ["list"],
        ["recall", "x"],
        ["forget", "m1"],
        ["export", "m.jsonl"],
        ["copy", "--to", "c.db"],
    ],
    ids=" ".join,
)
def test_heavy_packages_are_not_loaded_for_simple_commands(arguments: list[str]) -> None:
    """Neither NumPy nor a model's runtime nor rich is imported where nothing needs them."""
    program("remember", "x", "--id", "m1")
    done = without(["numpy", "onnxruntime", "tokenizers", "rich"], *arguments)
    assert done.returncode == 0, done.stderr


@pytest.mark.usefixtures("home")
def test_a_missing_extra_is_named() -> None:
    """Without click there is one line that says what to install."""
    done = without(["click"], "--help")
    assert done.returncode == 2
    assert done.stderr == (
        "omoide: the command line needs packages that are not installed; pip install 'omoide[cli]'\n"
    )


@pytest.mark.usefixtures("home")
def test_every_command_has_help_with_an_example() -> None:
    """Help names every command, and that of each shows how it is called."""
    listed = program("--help").stdout.decode()
    assert [name for name in COMMANDS if f"\n  {name} " not in listed] == []
    assert b"omoide 0." in program("--version").stdout
