"""Shell completion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner, Result

from omoide.cli import COMMANDS
from omoide.cli.app import app

Run = Callable[..., Result]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_is_printed_for_each_shell(shell: str, omoide: Run, answer: Callable[..., Any]) -> None:
    """The one that asks this program for what fits; JSON holds the same."""
    script = omoide("completion", shell).stdout
    assert f"_OMOIDE_COMPLETE={shell}_complete" in script
    assert answer("completion", shell) == {"shell": shell, "script": script.removesuffix("\n")}


def test_another_shell_is_refused(omoide: Run) -> None:
    """With the names of those that are known."""
    assert "'bash', 'zsh', 'fish'" in omoide("completion", "tcsh", code=2).stderr


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("words", "found"),
    [("omoide ", {*COMMANDS}), ("omoide who", {"who-can"}), ("omoide token ", {"create", "list", "revoke"})],
)
def test_commands_are_completed(words: str, found: set[str]) -> None:
    """What the script asks for is what there is."""
    asked = {
        "_OMOIDE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split()) - (not words.endswith(" "))),
    }
    told = CliRunner().invoke(app, env=asked, prog_name="omoide").stdout
    assert {line.partition(",")[2] for line in told.splitlines()} == found
