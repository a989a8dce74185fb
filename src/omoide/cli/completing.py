"""How does a shell learn to complete the commands?"""

from __future__ import annotations

import click

from omoide.cli.shell import Shell, command

SHELLS = ("bash", "zsh", "fish")


@command(
    "completion",
    'eval "$(omoide completion bash)"',
    "omoide completion fish > ~/.config/fish/completions/omoide.fish",
)
@click.argument("name", type=click.Choice(SHELLS), metavar="bash|zsh|fish")
def completion_command(shell: Shell, name: str) -> None:
    """Print the script with which a shell completes commands and options."""
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    kind = get_completion_class(name)
    assert kind is not None
    script = kind(root, {}, "omoide", "_OMOIDE_COMPLETE").source()
    shell.put({"shell": name, "script": script}, lambda: click.echo(script))
