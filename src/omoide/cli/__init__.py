"""The `omoide` command.

`app` is the command group, `shell` has what every command shares (settings, options, exit codes, output), and
the other modules hold the commands by subject. Modules are imported when a command runs.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper
from typing import TYPE_CHECKING

from omoide._lazy import attach
from omoide.errors import MissingExtra

if TYPE_CHECKING:
    from omoide.cli.app import COMMANDS
    from omoide.cli.shell import CliSetting, CliSettings, resolve_settings

__all__ = ["COMMANDS", "CliSetting", "CliSettings", "main", "resolve_settings"]

_REQUIRED_MODULES = ("click", "rich")

__getattr__, __dir__ = attach(
    __name__,
    attributes={"app": ("COMMANDS",), "shell": ("CliSetting", "CliSettings", "resolve_settings")},
    extra=("the command line", "cli"),
    requires=_REQUIRED_MODULES,
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the `omoide` command, and exit with its code."""
    try:
        from omoide.cli.app import app
    except ModuleNotFoundError as error:
        if error.name not in _REQUIRED_MODULES:
            raise
        sys.stderr.write(f"omoide: {MissingExtra('the command line', 'cli')}\n")
        sys.exit(2)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a memory may hold what a terminal cannot show
    app.main(arguments)
