"""Which commands are there?

Each is loaded when it is called, so that the quick ones stay quick.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from omoide.cli.failing import FAILED, INTERRUPTED, NOTHING, OK, code_of, line_of
from omoide.cli.printing import safe
from omoide.cli.shell import common_options, shown_examples
from omoide.errors import OmoideError

COMMANDS = {
    "remember": "writing",
    "recall": "recalling",
    "forget": "writing",
    "restore": "writing",
    "list": "reading",
    "show": "reading",
    "history": "reading",
    "erase": "erasing",
    "scrub": "erasing",
    "relate": "relating",
    "related": "relating",
    "provenance": "relating",
    "review": "reviewing",
    "conflicts": "reviewing",
    "prune": "reviewing",
    "sparql": "querying",
    "validate": "validating",
    "export": "exchanging",
    "import": "exchanging",
    "copy": "copying",
    "chat": "chatting",
    "preflight": "preflighting",
    "sessions": "sessions",
    "context": "promoting",
    "promote": "promoting",
    "undo-promotion": "promoting",
    "agents": "agents",
    "spaces": "agents",
    "identity": "agents",
    "who-can": "agents",
    "token": "tokens",
    "serve": "serving",
    "mcp": "mcp",
    "backup": "upkeep",
    "restore-backup": "upkeep",
    "reindex": "upkeep",
    "doctor": "doctor",
    "models": "models",
    "eval": "evaluating",
    "completion": "completing",
}
"""The module of each command, in the order of the help."""


class App(click.Group):
    """The `omoide` command: its parts are found by name, and every failure is one line and a code."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"omoide.cli.{COMMANDS[cmd_name]}")
        command: click.Command = getattr(module, f"{cmd_name.replace('-', '_')}_command")
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = args[0] in COMMANDS or ctx.resilient_parsing
        if near := [] if known else get_close_matches(args[0], COMMANDS):
            ctx.fail(f"No such command {args[0]!r} (did you mean {' or '.join(near)}?)")
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> None:  # type: ignore[override]
        extra["standalone_mode"] = False
        try:
            code = super().main(args, "omoide", **extra)
        except OmoideError as error:
            code = _failed(line_of(error), code_of(error))
        except click.Abort as error:
            stopped = isinstance(error.__cause__, KeyboardInterrupt)
            code = _failed("stopped; nothing more was done", INTERRUPTED if stopped else NOTHING)
        except NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx is not None else "omoide"
            code = _failed(
                f"{line_of(error.format_message()).rstrip('.')}; see {path} --help", error.exit_code
            )
        except click.ClickException as error:
            code = _failed(line_of(error.format_message()), error.exit_code)
        except OSError as error:
            told = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
            code = _failed(f"{told}; check the path and the disk", FAILED)
        sys.exit(code if isinstance(code, int) else OK)


def _failed(line: str, code: int) -> int:
    click.echo(f"omoide: {safe(line)}", err=True)
    return code


@click.group(
    cls=App,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=shown_examples(
        'omoide remember "User prefers the name Alex." --type fact',
        'omoide recall "what should I call the user?" --explain',
        "omoide recall --help",
    ),
)
@click.version_option(package_name="omoide", prog_name="omoide", message="%(prog)s %(version)s")
def app() -> None:
    """Keep and find memories, from the shell.

    Memories lie in one SQLite file, or on a server; `omoide doctor` tells where, and why. The options below
    may stand before or after a command, and each has a variable, such as OMOIDE_STORE.

    Exit codes: 0 done, 1 nothing found, 2 wrong input, 3 conflict, 4 the store or a model failed.
    """


app.params += common_options()
