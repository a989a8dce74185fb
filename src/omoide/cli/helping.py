"""What does each command say of itself?

`python -m omoide.cli.helping > docs/commands.md` writes the page of the commands; a test holds it to what
they say.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from omoide.cli.app import app

WIDTH = 98
"""What a terminal of a hundred columns shows."""

_BEGINNING = """\
# Commands

**What does each command take?** This is what `omoide COMMAND --help` says of all of them;
[Command line](cli.md) explains them with examples. The page is written by `python -m omoide.cli.helping`.

```python
from omoide.cli.app import COMMANDS

COMMANDS["recall"]  # → 'recalling'
```
"""


def helps() -> Iterator[tuple[str, str]]:
    """The full name and the help of every command, in the order of the help, a group before its parts."""
    yield from _helps("omoide", app, None)


def _helps(name: str, command: click.Command, parent: click.Context | None) -> Iterator[tuple[str, str]]:
    context = command.make_context(
        name,
        [],
        parent=parent,
        resilient_parsing=True,  # nothing is run, and nothing has to be given
        terminal_width=WIDTH,
        color=False,
    )
    text = command.get_help(context)
    yield context.command_path, "\n".join(line.rstrip() for line in text.splitlines())
    if isinstance(command, click.Group):
        for part in command.list_commands(context):
            found = command.get_command(context, part)
            assert found is not None
            yield from _helps(part, found, context)


def page() -> str:
    """The page of the commands."""
    return "\n".join([_BEGINNING, *(f"## {name}\n\n```text\n{text}\n```\n" for name, text in helps())])


if __name__ == "__main__":
    click.echo(page(), nl=False)
