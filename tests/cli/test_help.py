"""The page of commands matches their help."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.test_process import program

from omoide.cli import COMMANDS
from omoide.cli.app import commands_page, help_texts

PAGE = Path(__file__).parent.parent.parent / "docs" / "commands.md"


def test_the_page_of_the_commands_is_up_to_date() -> None:
    """Where it is not: `python -m omoide.cli.app > docs/commands.md`."""
    assert PAGE.read_text("utf-8") == commands_page()


def test_every_command_is_on_the_page() -> None:
    """Those of groups, too, each once."""
    names = [name for name, _ in help_texts()]
    assert {name.split()[1] for name in names[1:]} == {*COMMANDS}
    assert {"omoide", "omoide token create", "omoide sessions show"} <= {*names}
    assert len(names) == len({*names})


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("name", ["omoide", "omoide recall", "omoide token create"])
def test_the_page_shows_what_a_terminal_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one that is as wide."""
    monkeypatch.setenv("COLUMNS", "100")
    shown = program(*name.split()[1:], "--help").stdout.decode()
    assert [line.rstrip() for line in shown.splitlines()] == dict(help_texts())[name].splitlines()
