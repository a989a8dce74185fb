"""The `omoide` command group.

The module of a command is imported when it is called, so that quick commands stay quick. `python -m
omoide.cli.app > docs/commands.md` writes the page of commands; a test keeps it up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from click.exceptions import NoArgsIsHelpError

from omoide.cli.shell import (
    FAILED,
    INTERRUPTED,
    NOT_FOUND,
    OK,
    CommandContext,
    command,
    common_options,
    exit_code,
    format_error,
    format_examples,
    report_error,
)
from omoide.errors import OmoideError

_MODULES = {
    "memories": (
        *("remember", "recall", "forget", "restore", "pin", "unpin"),
        *("list", "show", "history", "erase", "scrub"),
    ),
    "knowledge": ("relate", "related", "provenance", "review", "conflicts", "prune"),
    "transfer": ("add", "sparql", "validate", "export", "import", "copy"),
    "chat": ("chat", "preflight"),
    "sessions": ("sessions", "context", "promote", "undo-promotion"),
    "agents": ("agents", "spaces", "identity", "who-can", "owners"),
    "server": ("token", "serve", "mcp"),
    "maintenance": ("backup", "restore-backup", "reindex", "doctor", "eval"),
    "app": ("completion",),
}
COMMANDS = {name: module for module, names in _MODULES.items() for name in names}
"""Module of each command, in the order of the help."""


class CommandGroup(click.Group):
    """Command group that imports commands by name, and reports every failure as one line and an exit code."""

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
        if matches := [] if known else get_close_matches(args[0], COMMANDS):
            ctx.fail(f"No such command {args[0]!r} (did you mean {' or '.join(matches)}?)")
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, prog_name: str | None = None, **extra: Any) -> None:  # type: ignore[override]
        extra["standalone_mode"] = False
        try:
            code = super().main(args, "omoide", **extra)
        except OmoideError as error:
            code = report_error(format_error(error), exit_code(error))
        except click.Abort as error:
            interrupted = isinstance(error.__cause__, KeyboardInterrupt)
            code = report_error("stopped; nothing more was done", INTERRUPTED if interrupted else NOT_FOUND)
        except NoArgsIsHelpError as error:
            error.show()
            code = error.exit_code
        except click.UsageError as error:
            path = error.ctx.command_path if error.ctx is not None else "omoide"
            code = report_error(
                f"{format_error(error.format_message()).rstrip('.')}; see {path} --help", error.exit_code
            )
        except click.ClickException as error:
            code = report_error(format_error(error.format_message()), error.exit_code)
        except OSError as error:
            message = f"{error.strerror or error}" + (f": {error.filename}" if error.filename else "")
            code = report_error(f"{message}; check the path and the disk", FAILED)
        sys.exit(code if isinstance(code, int) else OK)


@click.group(
    cls=CommandGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=format_examples(
        'omoide remember "User prefers the name Alex." --type fact',
        'omoide recall "what should I call the user?" --explain',
        "omoide recall --help",
    ),
)
@click.version_option(package_name="omoide", prog_name="omoide", message="%(prog)s %(version)s")
def app() -> None:
    """Keep and find memories, from the shell.

    Memories are stored in one SQLite file, or on a server; `omoide doctor` shows where, and why. The options
    below may stand before or after a command, and each has a variable, such as OMOIDE_STORE.

    Exit codes: 0 done, 1 nothing found, 2 wrong input, 3 conflict, 4 the store or a model failed.
    """


app.params += common_options()


SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    'eval "$(omoide completion bash)"',
    "omoide completion fish > ~/.config/fish/completions/omoide.fish",
)
@click.argument("name", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
def completion_command(ctx: CommandContext, name: str) -> None:
    """Print the script with which a shell completes commands and options."""
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    completion_class = get_completion_class(name)
    assert completion_class is not None
    script = completion_class(root, {}, "omoide", "_OMOIDE_COMPLETE").source()
    ctx.print_result({"shell": name, "script": script}, lambda: click.echo(script))


HELP_WIDTH = 98
"""Usable width of a terminal of 100 columns."""

_PAGE_HEADER = """\
# Commands

**What does each command take?** This is what `omoide COMMAND --help` says of all of them;
[Command line](cli.md) explains them with examples. The page is written by `python -m omoide.cli.app`.

```python
from omoide.cli import COMMANDS

COMMANDS["recall"]  # → 'memories'
```
"""


def help_texts() -> Iterator[tuple[str, str]]:
    """Yield the full name and the help text of every command; a group comes before its commands."""
    yield from _iter_help("omoide", app, None)


def _iter_help(name: str, command: click.Command, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    context = command.make_context(
        name,
        [],
        parent=parent,
        resilient_parsing=True,  # do not require arguments
        terminal_width=HELP_WIDTH,
        color=False,
    )
    text = command.get_help(context)
    yield context.command_path, "\n".join(line.rstrip() for line in text.splitlines())
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            subcommand = command.get_command(context, part)
            assert subcommand is not None
            yield from _iter_help(part, subcommand, context)


def commands_page() -> str:
    """Return the Markdown page of all commands."""
    return "\n".join([_PAGE_HEADER, *(f"## {name}\n\n```text\n{text}\n```\n" for name, text in help_texts())])


if __name__ == "__main__":
    click.echo(commands_page(), nl=False)
