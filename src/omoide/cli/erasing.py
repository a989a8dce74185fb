"""How is a memory removed for good?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from omoide.cli.failing import FAILED, OK
from omoide.cli.printing import clipped, counted, safe
from omoide.cli.settings import REPOSITORY
from omoide.cli.shell import Shell, command
from omoide.core.entry import Entry
from omoide.errors import Invalid, OmoideError

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
    if bool(ids) == everything:
        raise Invalid("ids", "must be given, or --all", "name the memories, or the scope with --all")
    if everything and shell.settings.project.origin == REPOSITORY:
        click.echo("Only the repository you are in is meant; --project '' means all projects.", err=True)
    wanted = list(dict.fromkeys(ids))
    with shell.store() as store:
        going = [store.sync.get(id, shell.scope) for id in wanted] or store.sync.list_entries(shell.scope)
        if dry_run:
            answer = {"dry_run": True, "scope": shell.scope, "entries": going}
            shell.put(answer, lambda: _show(going, shell))
            return
        if not yes:
            _show(going, shell, err=True)
            click.confirm("Remove them for good?", abort=True, err=True)
        receipts, failure = _erased(store, wanted or [None], shell, reason)
    if receipts:
        answer = {"dry_run": False, "scope": shell.scope, "receipts": receipts}
        shell.put(answer, lambda: _told(receipts, shell, everything=everything))
    if failure is not None:
        if receipts:
            click.echo(f"not erased: {', '.join(map(safe, wanted[len(receipts) :]))}", err=True)
        raise failure


@command(
    "scrub",
    "omoide scrub",
)
def scrub_command(shell: Shell) -> int:
    """Clear what erased memories may have left in the files of the store.

    Erasing does so itself, unless another program reads just then; this does what was left to do. Where
    somebody still reads, the code is 4.
    """
    with shell.store() as store:
        receipt = store.sync.scrub()

    def show() -> None:
        if receipt.scrubbed:
            click.echo("scrubbed")
        _left([receipt])

    shell.put(receipt, show)
    return OK if receipt.scrubbed else FAILED


def _erased(
    store: LocalStore, ids: Sequence[str | None], shell: Shell, reason: str | None
) -> tuple[list[EraseReceipt], OmoideError | None]:
    """The receipts up to the first failure, and that; each id is erased by itself."""
    from omoide import blocking

    receipts: list[EraseReceipt] = []
    for id in ids:
        try:
            receipts.append(blocking.erase(store, shell.scope, id=id, reason=reason))
        except OmoideError as error:
            return receipts, error
    return receipts, None


def _where(shell: Shell) -> str:
    """The scope in words, and which part of it nobody asked for."""
    parts = []
    for name in ("namespace", "agent", "project", "session"):
        setting = getattr(shell.settings, name)
        if setting.value is not None:
            told = f" [{REPOSITORY}]" if setting.origin == REPOSITORY else ""
            parts.append(f"{name} {safe(setting.value)}{told}")
    return ", ".join(parts)


def _show(going: list[Entry], shell: Shell, *, err: bool = False) -> None:
    click.echo(f"{counted(len(going), 'memory', 'memories')} of {_where(shell)}:", err=err)
    for entry in going[:_SHOWN]:
        click.echo(f"  {entry.id}  {clipped(entry.content, 70)}", err=err)
    if len(going) > _SHOWN:
        click.echo(f"  … and {len(going) - _SHOWN} more", err=err)


def _told(receipts: list[EraseReceipt], shell: Shell, *, everything: bool) -> None:
    for receipt in receipts:
        erased = f"erased, in {counted(receipt.versions, 'version', 'versions')}"
        if everything:
            count = counted(len(receipt.ids), "memory", "memories")
            click.echo(f"{count} of {_where(shell)} {erased}")
        else:
            click.echo(f"{', '.join(receipt.ids)}  {erased}")
    _left(receipts)


def _left(receipts: Sequence[EraseReceipt]) -> None:
    for left in dict.fromkeys(
        part for receipt in receipts for part in (*receipt.pending, *receipt.unreachable)
    ):
        click.echo(f"not reached: {safe(left)}", err=True)
