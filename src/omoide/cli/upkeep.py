"""How is a store kept well?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omoide import embedders
from omoide.cli.printing import progress
from omoide.cli.shell import Shell, command
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.stores.local import LocalStore
    from omoide.stores.sqlite.store import SQLiteStore


@command(
    "backup",
    "omoide backup monday.db",
)
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def backup_command(shell: Shell, path: Path, force: bool) -> None:
    """Copy the store to PATH while others go on working with it."""
    if path.exists() and not force:
        raise Invalid("path", f"{str(path)!r} exists", "choose another, or replace it with --force")
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    with shell.store() as store, progress() as tell:
        filed(store).backup(fresh, progress=tell and partial(tell, "copying"))
    fresh.replace(path)
    size = path.stat().st_size
    shell.put({"path": str(path), "size_bytes": size}, lambda: click.echo(f"{path}  {size / 1e6:,.1f} MB"))


@command(
    "reindex",
    "omoide models pull && omoide reindex",
)
def reindex_command(shell: Shell) -> None:
    """Compute all vectors anew, with the embedder in use."""
    embedder = embedders.choose(shell.settings.embedder.value)
    with shell.store() as store, progress() as tell:
        filed(store).reindex(embedder, progress=tell and partial(tell, "reading again"))
        stats = store.sync.stats(shell.scope)
    shell.put(
        {"embedder": stats.embedder},
        lambda: click.echo(f"vectors of {stats.embedder or 'no embedder'}"),
    )


def filed(store: LocalStore) -> SQLiteStore:
    """The store, if it lies in a file."""
    from omoide.stores.sqlite.store import SQLiteStore

    if not isinstance(store.sync, SQLiteStore):
        raise Invalid("store", f"{store.url!r} lies in no file", "name a file with --store")
    return store.sync
