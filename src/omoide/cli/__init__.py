"""What can be done with a memory from a shell?"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from io import TextIOWrapper

from omoide.errors import MissingExtra

_REQUIRED_MODULES = ("click", "rich")


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
