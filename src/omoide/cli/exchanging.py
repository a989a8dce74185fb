"""How do memories go to a file that other programs read, and come from one?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from omoide.cli.graphs import graph_of
from omoide.cli.printing import Progress, counted, progress, safe
from omoide.cli.shell import Shell, command
from omoide.cli.upkeep import refuse_own
from omoide.errors import Invalid, NotFound

FORMATS = ("turtle", "trig", "jsonld", "nquads")


@command(
    "export",
    "omoide export memories.ttl",
    "omoide export all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--format", type=click.Choice(FORMATS), help="The format, if the file's name does not say.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def export_command(shell: Shell, file: Path, format: str | None, force: bool) -> None:
    """Write the memories that are meant to FILE, as RDF: .ttl, .trig, .jsonld or .nq.

    All of them, also those that were forgotten or no longer hold. The file is there when it is complete.
    """
    refuse_own(shell, file)
    if file.exists() and not force:
        raise Invalid("file", f"{str(file)!r} exists", "choose another, or replace it with --force")
    with shell.store() as store, graph_of(store) as graph, progress() as tell:
        count = graph.export(file, shell.scope, format=format, progress=_told("writing", tell))
    shell.put(
        {"path": str(file), "memories": count},
        lambda: click.echo(f"{safe(str(file))}  {counted(count, 'memory', 'memories')}"),
    )


@command(
    "import",
    "omoide import memories.ttl",
    "omoide import all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--format", type=click.Choice(FORMATS), help="The format, if the file's name does not say.")
def import_command(shell: Shell, file: Path, format: str | None) -> None:
    """Take over the memories of FILE, all of them or none.

    What the store has already is left as it is, so doing it twice does no harm. Memories that do not say
    whose they are become those of the agent, project and session that are meant; others have to be theirs.
    """
    if not file.exists():
        raise NotFound("file", str(file), "check the path")
    seen = 0

    def told(done: int, total: int | None) -> None:
        nonlocal seen
        seen = total or 0
        if tell is not None:
            tell("reading", done, seen)

    with shell.store(create=True, embeds=True) as store, graph_of(store) as graph, progress() as tell:
        new = graph.load(file, shell.scope, format=format, progress=told)
    shell.put(
        {"path": str(file), "memories": seen, "new": new},
        lambda: click.echo(f"{safe(str(file))}  {counted(seen, 'memory', 'memories')}, {new:,} new"),
    )


def _told(name: str, tell: Progress | None) -> Callable[[int, int | None], None] | None:
    return None if tell is None else lambda done, total: tell(name, done, total)
