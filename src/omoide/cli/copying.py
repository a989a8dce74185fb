"""How does everything get from one store to another from a shell?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from omoide.cli.printing import counted, progress, safe
from omoide.cli.shell import Shell, command, file_of
from omoide.cli.upkeep import refuse_own
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.service.copying import Copied


@command(
    "copy",
    "omoide copy --from old.db --to new.db",
    "omoide copy --to postgresql://ada@db.example/agents",
    "omoide copy --to team.db --namespace team --tokens",
)
@click.option("--from", "source", metavar="URL", help="The store that is copied; usually the one in use.")
@click.option("--to", "target", required=True, metavar="URL", help="The store that it is copied to.")
@click.option(
    "--namespace", "named", multiple=True, metavar="NAME", help="Only this one; may be repeated. Usually all."
)
@click.option("--tokens", is_flag=True, help="The tokens of the store, too.")
def copy_command(shell: Shell, source: str | None, target: str, named: tuple[str, ...], tokens: bool) -> None:
    """Copy everything from one store to another, as it is.

    Memories come with what was forgotten and why, links and figures of use, and with them sessions and
    agents at rest. What is there already is left as it is, so doing it twice does no harm; where the other
    store has something else under an id, nothing is copied.
    """
    import anyio

    from omoide.service.copying import check_namespaces, copy

    for name in ("agent", "project", "session"):
        if getattr(shell.settings, name).origin == f"--{name}":
            raise Invalid(f"--{name}", "is given", "leave it out: whole namespaces are copied")
    chosen = _namespaces(shell, named)
    check_namespaces(chosen or (), tokens=tokens)
    here = shell if source is None else shell.at(source, "--from")
    there = shell.at(target, "--to")
    file = file_of(there.settings.store.value or "")
    refuse_own(here, *([] if file is None else [file]))
    with (
        here.store() as one,
        there.store(create=True, embeds=True) as other,
        progress() as tell,
    ):
        done = anyio.run(partial(copy, one, other, namespaces=chosen, tokens=tokens, progress=tell))
    shell.put(done, lambda: _show(done))


def _namespaces(shell: Shell, named: tuple[str, ...]) -> list[str] | None:
    """Those that are named, here or before the command or by the variable; None for all."""
    if named:
        return [*named]
    setting = shell.settings.namespace
    return None if setting.origin == "default" else [shell.scope.namespace]


def _show(done: Copied) -> None:
    memories = f"{counted(done.memories, 'memory', 'memories')}, {done.new:,} new"
    documents = f"{counted(done.documents, 'document', 'documents')}, {done.new_documents:,} new"
    click.echo(f"{memories}; {documents}")
    click.echo(f"namespaces: {', '.join(map(safe, done.namespaces)) or 'none'}", err=True)
    for notice in done.notices:
        click.echo(safe(notice), err=True)
