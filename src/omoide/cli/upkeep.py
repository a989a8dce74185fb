"""How is a store kept well?"""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omoide import embedders
from omoide.cli.moments import shown
from omoide.cli.printing import progress, safe
from omoide.cli.shell import Shell, command, file_of
from omoide.errors import Corrupted, Invalid, NotFound, StoreFailed
from omoide.stores.masking import masked

if TYPE_CHECKING:
    from omoide.stores.local import LocalStore
    from omoide.stores.sqlite.store import SQLiteStore

_BESIDE = ("-wal", "-shm", "-journal")
"""What SQLite puts beside a file that is in use."""


@command(
    "backup",
    "omoide backup monday.db",
)
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def backup_command(shell: Shell, path: Path, force: bool) -> None:
    """Copy the store to PATH while others go on working with it."""
    fresh = _beside(path, ".new")
    refuse_own(shell, path, fresh, _beside(path, ".new.part"))
    if path.exists() and not force:
        raise Invalid("path", f"{str(path)!r} exists", "choose another, or replace it with --force")
    for beside in (_beside(path, ending) for ending in _BESIDE):
        if beside.exists():  # it holds changes to the older file, and would spoil the new one
            problem = f"{str(path)!r} is in use as a store: {beside.name} lies beside it"
            raise Invalid("path", problem, "choose another path, or close that store")
    with shell.store() as store, progress() as tell:
        fresh.unlink(missing_ok=True)
        try:
            filed(store).backup(fresh, progress=tell and partial(tell, "copying"))
            fresh.replace(path)
        finally:
            fresh.unlink(missing_ok=True)
    size = path.stat().st_size
    shell.put(
        {"path": str(path), "size_bytes": size},
        lambda: click.echo(f"{safe(str(path))}  {size / 1e6:,.1f} MB"),
    )


@command(
    "restore-backup",
    "omoide restore-backup monday.db",
    "omoide restore-backup monday.db --store other.db --yes",
)
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore_backup_command(shell: Shell, path: Path, yes: bool) -> None:
    """Put the backup at PATH in the place of all that the store holds.

    Every namespace, agent, project and session is replaced, and what was written after the backup is gone.
    Programs that have the store open go on with what the backup holds.
    """
    refuse_own(shell, path)
    if not path.exists():
        raise NotFound("backup", str(path), "name a file that `omoide backup` wrote")
    file = file_of(shell.settings.store.value or "")
    if file is not None and file.exists() and not yes:
        click.echo(f"Everything in {_described(file)} will be replaced by {_described(path)}.", err=True)
        click.confirm("Replace it?", abort=True, err=True)
    try:
        with shell.store(create=True) as store, progress() as tell:
            filed(store).restore_backup(path, progress=tell and partial(tell, "restoring"))
    except Corrupted as error:
        if file is None or error.store != str(file):
            raise
        remedy = f"move it away, with any {file.name}-wal and {file.name}-shm, and restore again"
        raise StoreFailed(str(file), "is too damaged to be opened", remedy) from error
    shell.put(
        {"path": str(path), "store": str(file)},
        lambda: click.echo(f"{safe(str(file))}  restored from {safe(str(path))}"),
    )


@command(
    "reindex",
    "omoide models pull && omoide reindex",
)
def reindex_command(shell: Shell) -> None:
    """Compute all vectors anew, with the embedder in use."""
    embedder = embedders.choose(shell.settings.embedder.value)
    with shell.store() as store, progress() as tell:
        store.sync.reindex(embedder, progress=tell and partial(tell, "reading again"))
        stats = store.sync.stats(shell.scope)
    shell.put(
        {"embedder": stats.embedder},
        lambda: click.echo(f"vectors of {stats.embedder or 'no embedder'}"),
    )


def filed(store: LocalStore) -> SQLiteStore:
    """The store, if it lies in a file."""
    from omoide.stores.sqlite.store import SQLiteStore

    if not isinstance(store.sync, SQLiteStore):
        remedy = "use its server's own backups, or `omoide copy --to monday.db`; or name a file with --store"
        raise Invalid("store", f"{masked(store.url)!r} lies in no file", remedy)
    return store.sync


def _beside(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def refuse_own(shell: Shell, *paths: Path) -> None:
    """Raise if one of these is a file of the store itself."""
    file = file_of(shell.settings.store.value or "")
    own = [] if file is None else [file, *(_beside(file, ending) for ending in _BESIDE)]
    for path in paths:
        if any(_same(path, mine) for mine in own):
            raise Invalid("path", f"{str(path)!r} belongs to the store itself", "choose another path")


def _same(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return one.exists() and other.exists() and one.samefile(other)


def _described(file: Path) -> str:
    known = file.stat()
    return safe(f"{file} ({known.st_size / 1e6:,.1f} MB, written {shown(int(known.st_mtime * 1000))})")
