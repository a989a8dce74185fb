"""How is a memory removed for good?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omoide.cli.printing import clipped, counted
from omoide.cli.shell import Shell, command
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.stores.local import LocalStore
    from omoide.stores.records import EraseReceipt

_SHOWN = 20


@command(
    "erase",
    'omoide erase mem_0123 --reason "asked for by the user"',
    "omoide erase --all --session conv-1 --dry-run",
)
@click.argument("ids", nargs=-1, metavar="[ID]…")
@click.option(
    "--all", "everything", is_flag=True, help="Everything in the namespace, agent, project and session."
)
@click.option("--reason", help="Why; it stays with the id.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def erase_command(
    shell: Shell, ids: tuple[str, ...], everything: bool, reason: str | None, dry_run: bool, yes: bool
) -> None:
    """Remove memories for good, with all that came of them.

    Versions, vectors, links and index terms go; only the id, the time and the reason are kept. What
    `omoide forget` does can be undone, this cannot.
    """
    from omoide import blocking

    if bool(ids) == everything:
        raise Invalid("ids", "must be given, or --all", "name the memories, or the scope with --all")
    with shell.store() as store:
        going = _going(store, ids, shell.scope)
        if dry_run:
            shell.put({"dry_run": True, "entries": going}, lambda: _show(going, shell.scope))
            return
        if not yes:
            _show(going, shell.scope, err=True)
            click.confirm("Remove them for good?", abort=True, err=True)
        receipts = [blocking.erase(store, shell.scope, id=id, reason=reason) for id in (ids or (None,))]
    shell.put({"dry_run": False, "receipts": receipts}, lambda: _told(receipts))


def _going(store: LocalStore, ids: tuple[str, ...], scope: Scope) -> list[Entry]:
    if ids:
        return [store.sync.get(id, scope) for id in dict.fromkeys(ids)]
    return store.sync.list_entries(scope)


def _show(going: list[Entry], scope: Scope, *, err: bool = False) -> None:
    where = ", ".join(
        f"{name} {value}"
        for name, value in (
            ("namespace", scope.namespace),
            ("agent", scope.agent_id),
            ("project", scope.project_id),
            ("session", scope.session_id),
        )
        if value is not None
    )
    click.echo(f"{counted(len(going), 'memory', 'memories')} of {where}:", err=err)
    for entry in going[:_SHOWN]:
        click.echo(f"  {entry.id}  {clipped(entry.content, 70)}", err=err)
    if len(going) > _SHOWN:
        click.echo(f"  … and {len(going) - _SHOWN} more", err=err)


def _told(receipts: list[EraseReceipt]) -> None:
    count = sum(len(receipt.ids) for receipt in receipts)
    versions = sum(receipt.versions for receipt in receipts)
    told = f"{counted(count, 'memory', 'memories')} erased"
    click.echo(f"{told}, in {counted(versions, 'version', 'versions')}")
    for left in dict.fromkeys(
        part for receipt in receipts for part in (*receipt.pending, *receipt.unreachable)
    ):
        click.echo(f"not reached: {left}", err=True)
