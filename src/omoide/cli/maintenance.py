"""The commands for backups, vectors, health checks and evaluation."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from omoide import embedders
from omoide.cli.shell import (
    COUNT,
    NOT_FOUND,
    OK,
    CommandContext,
    command,
    format_error,
    format_time,
    progress_bar,
    sanitize,
    store_file,
)
from omoide.core.entry import Scope
from omoide.errors import Corrupted, Invalid, NotFound, OmoideError, StoreFailed
from omoide.service.owners import group_owners
from omoide.stores.records import Finding, Stats
from omoide.stores.redaction import mask_url
from omoide.stores.reindex import reindex_remedy
from omoide.stores.sqlite.connection import may_write
from omoide.stores.sqlite.store import abandoned_copies, network_file_system, remove_copy

if TYPE_CHECKING:
    from omoide.stores.async_store import AsyncStore
    from omoide.stores.sqlite.store import SQLiteStore


_MIN_FREE_BYTES = 200_000_000
_MAX_AGENTS = 10
"""Number of agents that are named for each namespace."""
_EXTRAS = {
    "vector": ("numpy", "onnxruntime", "tokenizers"),
    "models": ("json_repair", "jsonschema_rs", "pydantic_ai"),
    "documents": ("markdown_it", "pypdf", "selectolax"),
    "graph": ("pyoxigraph",),
    "shacl": ("pyoxigraph", "pyshacl"),
    "mcp": ("mcp",),
    "server": ("starlette", "uvicorn"),
    "client": ("httpx2",),
    "postgres": ("psycopg",),
    "redis": ("redis",),
    "nats": ("nats",),
    "schemas": ("jsonschema_rs",),
    "tokens": ("splintr",),
    "yaml": ("yaml",),
    "otel": ("opentelemetry",),
    "testing": ("pytest",),
}


@command("doctor", "omoide doctor", "OMOIDE_STORE=agent.db omoide doctor --json", "omoide doctor --repair")
@click.option("--repair", is_flag=True, help="First repair the store, as far as it is damaged.")
@click.option(
    "--set-aside",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The file for damaged rows; default: beside a SQLite file.",
)
def doctor_command(ctx: CommandContext, repair: bool, set_aside: Path | None) -> int:
    """Check the store, and tell where each setting comes from.

    Ends with code 1 if there is a problem. `--repair` moves damaged rows to a file, keeps a file with damaged
    pages beside the new one, removes what killed backups left there, and rebuilds index terms and
    dependencies of all other memories. It ends with code 0 if all was mended, and with code 1 if rows were
    lost or set aside, which the line `repair` counts.
    """
    findings = [*(_repair(ctx, set_aside) if repair else ()), *_findings(ctx)]
    settings_by_name = ctx.settings._asdict()
    settings_by_name["store"] = ctx.settings.store._replace(value=mask_url(ctx.settings.store.value or ""))
    settings = {
        name: {"value": setting.value, "from": setting.origin} for name, setting in settings_by_name.items()
    }
    ok = all(finding.state != "problem" for finding in findings)

    def show() -> None:
        for name, setting in settings_by_name.items():
            click.echo(f"{name:<10}  {sanitize(setting.value or '(none)')}  [{setting.origin}]")
        click.echo()
        for finding in findings:
            click.echo(f"{finding.state:<8} {finding.name}: {sanitize(finding.detail)}")

    checks = [{"name": check.name, "state": check.state, "detail": check.detail} for check in findings]
    ctx.print_result({"ok": ok, "settings": settings, "checks": checks}, show)
    return OK if ok else NOT_FOUND


def _repair(ctx: CommandContext, set_aside: Path | None) -> Iterator[Finding]:
    """Repair the store of the settings."""
    from omoide.stores.sqlite.salvage import repair_file

    file = store_file(ctx.settings.store.value or "")
    for part in [] if file is None else abandoned_copies(file):
        remove_copy(part)
        yield Finding("backup", "ok", f"removed {part}, which a killed backup left")
    result = repair_file(file) if file is not None and file.exists() else None
    if result is None:
        with ctx.open_store() as store:
            if not hasattr(store.sync, "repair"):
                problem = f"{mask_url(store.url)!r} cannot be repaired"
                raise Invalid("store", problem, "name a SQLite file, or a store on PostgreSQL or Redis")
            result = store.sync.repair(set_aside)
    counts = [f"{result.entries} memories are sound", f"{result.corrected} corrected"]
    counts += [f"{count} rows of {table} set aside" for table, count in result.set_aside.items()]
    counts += [f"{count} rows of {table} lost" for table, count in result.lost.items()]
    counts += [f"{result.links} links without an end deleted"] * bool(result.links)
    counts += [f"{result.checked} rows got a checksum"] * bool(result.checked)
    counts += [f"{result.without_vectors} without vectors: omoide reindex"] * bool(result.without_vectors)
    state = "problem" if result.set_aside or result.lost else "note" if result.file else "ok"
    yield Finding("repair", state, ", ".join(counts))


def _findings(ctx: CommandContext) -> Iterator[Finding]:
    file = store_file(ctx.settings.store.value or "")
    if file is not None:
        yield from _file_findings(file)
    if file is None or file.exists():
        yield from _store_findings(ctx)
    yield from _extra_findings()


def _file_findings(file: Path) -> Iterator[Finding]:
    if file.exists():
        yield Finding("file", "ok", f"{file}, {file.stat().st_size / 1e6:,.1f} MB")
        if not may_write(file):
            yield Finding("access", "note", "you may read it, and not write it or its folder")
    else:
        yield Finding("file", "note", f"{file} does not exist yet; remember something and it will")
    for part in abandoned_copies(file):
        yield Finding("backup", "note", f"a killed backup left {part}; omoide doctor --repair removes it")
    kind = network_file_system(file)
    if kind is None:
        yield Finding("file system", "ok", "on this machine")
    else:
        problem = f"{kind}, over a network, where files get damaged; move it to a local disk"
        yield Finding("file system", "problem", problem)
    free = free_bytes(file)
    text = f"{free / 1e9:,.1f} GB free"
    if free > _MIN_FREE_BYTES:
        yield Finding("space", "ok", text)
    else:
        yield Finding("space", "problem", f"{text}; make room")


def free_bytes(file: Path) -> int:
    """Return the free disk space where a file is, or would be."""
    place = next(place for place in (file, *file.absolute().parents) if place.exists())
    return shutil.disk_usage(place).free


def _store_findings(ctx: CommandContext) -> Iterator[Finding]:
    try:
        with ctx.open_store(load_embedder=True) as store:
            namespaces = store.sync.namespaces()
            counts = {name: store.sync.stats(Scope(namespace=name)) for name in namespaces}
            stats = store.sync.stats(ctx.read_scope)
            yield from store.sync.findings()
            without_vectors = sum(one.without_vectors for one in counts.values()) if stats.embedder else 0
            text = f"vectors of {stats.embedder}" if stats.embedder else "no vectors"
            own = store.sync.embedder
            if own is not None and stats.embedder not in (None, own.name):
                text += f", not of {own.name}; {reindex_remedy(mask_url(store.url), own)}"
                yield Finding("embedder", "problem", text)
            else:
                more = f"; {without_vectors} entries have none: omoide reindex" if without_vectors else ""
                yield Finding("embedder", "note" if without_vectors else "ok", text + more)
            yield Finding("entries", "ok", f"{_count_entries(counts.values())} in the whole store")
            for name in (name for name in namespaces if counts[name].entries):
                yield Finding(f"namespace {name}", "ok", _describe_namespace(store, name, counts[name]))
            if ctx.read_scope != Scope(namespace=ctx.scope.namespace):
                yield Finding("scope", "ok", f"{_count_entries([stats])} in {ctx.scope_text(read=True)}")
            if stats.unchecked:
                text = f"{stats.unchecked} rows of an older version; omoide doctor --repair"
                yield Finding("checksums", "note", text)
            for name in getattr(store.sync, "set_aside_files", list)():
                text = f"{name} has damaged rows or pages; delete it when you need none of them"
                yield Finding("set aside", "note", text)
            problems = store.sync.check()
    except OmoideError as error:
        yield Finding("store", "problem", format_error(error))
        return
    for problem in problems:
        yield Finding("integrity", "problem", f"{problem}; omoide doctor --repair, or restore a backup")
    if not problems:
        yield Finding("integrity", "ok", "everything agrees")


def _count_entries(stats: Iterable[Stats]) -> str:
    names = {"live": "in use", "superseded": "forgotten", "stale": "stale", "expired": "expired"}
    totals = dict.fromkeys(names, 0)
    for one in stats:
        for name in names:
            totals[name] += getattr(one, name)
    return ", ".join(f"{totals[name]} {text}" for name, text in names.items())


def _describe_namespace(store: AsyncStore, namespace: str, stats: Stats) -> str:
    """Return how many memories a namespace has, and how many of them the largest agents."""
    agents = group_owners(store.sync.owners(Scope(namespace=namespace)), "agent_id")
    largest = sorted(agents.items(), key=lambda item: (-item[1].entries, str(item[0])))
    named = [f"{name} {owner.entries}" for name, owner in largest[:_MAX_AGENTS]]
    more = f" and {len(agents) - _MAX_AGENTS} more" if len(agents) > _MAX_AGENTS else ""
    return f"{stats.entries} entries{': agents ' if named else ''}{', '.join(named)}{more}"


def _extra_findings() -> Iterator[Finding]:
    for extra, packages in _EXTRAS.items():
        if missing := [name for name in packages if find_spec(name) is None]:
            text = f"{', '.join(missing)} not installed; pip install 'omoide[{extra}]'"
            yield Finding(f"extra {extra}", "note", text)
        else:
            yield Finding(f"extra {extra}", "ok", "installed")


DATASET_FORMATS = ("locomo", "jsonl")


@command(
    "eval",
    "omoide eval locomo --data locomo10.json",
    "omoide eval jsonl --data own.jsonl --embedder none --json",
)
@click.argument("form", type=click.Choice(DATASET_FORMATS))
@click.option("--data", required=True, type=click.Path(path_type=Path), help="The data file.")
@click.option("--limit", type=COUNT, default=20, show_default=True, metavar="N", help="How many to recall.")
@click.option("--limit-conversations", type=COUNT, metavar="N", help="Take the first N conversations.")
@click.option("--questions", type=COUNT, metavar="N", help="Ask the first N questions of each.")
@click.option("--details", type=click.Path(path_type=Path), help="Write each question's ranking there.")
def eval_command(
    ctx: CommandContext,
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
    from omoide.eval.runner import evaluate, ignore_progress

    store = ctx.settings.store
    with progress_bar() as report_progress:
        report, answers = evaluate(
            form,
            data,
            store=store.value if store.origin == "--store" else None,
            embedder=ctx.settings.embedder.value or "none",
            limit=limit,
            conversations=limit_conversations,
            questions=questions,
            progress=report_progress or ignore_progress,
        )
    if details is not None:
        details.write_text(reports.to_jsonl(answers), "utf-8")
    click.echo(reports.to_json(report) if ctx.json else reports.format_table(report))


_SQLITE_SUFFIXES = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps beside an open database."""


@command("backup", "omoide backup monday.db")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def backup_command(ctx: CommandContext, path: Path, force: bool) -> None:
    """Copy the store to PATH while others go on working with it."""
    temporary = _with_suffix(path, ".new")
    refuse_store_file(ctx, path, temporary, _with_suffix(path, ".new.part"))
    if path.exists() and not force:
        raise Invalid("path", f"{str(path)!r} exists", "choose another, or replace it with --force")
    for beside in (_with_suffix(path, ending) for ending in _SQLITE_SUFFIXES):
        if beside.exists():  # SQLite would apply its changes to the new file
            problem = f"{str(path)!r} is in use as a store: {beside.name} lies beside it"
            raise Invalid("path", problem, "choose another path, or close that store")
    target = temporary if path.exists() else path  # the old copy stays until the new one is complete
    with ctx.open_store() as store, progress_bar() as report:
        temporary.unlink(missing_ok=True)
        try:
            require_sqlite(store).backup(target, progress=report and partial(report, "copying"))
            target.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    size = path.stat().st_size
    ctx.print_result(
        {"path": str(path), "size_bytes": size},
        lambda: click.echo(f"{sanitize(str(path))}  {size / 1e6:,.1f} MB"),
    )


@command(
    "restore-backup",
    "omoide restore-backup monday.db",
    "omoide restore-backup monday.db --store other.db --yes",
)
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--yes", is_flag=True, help="Do not ask.")
def restore_backup_command(ctx: CommandContext, path: Path, yes: bool) -> None:
    """Put the backup at PATH in the place of all that the store holds.

    Every namespace, agent, project and session is replaced, and what was written after the backup is gone.
    Programs that have the store open go on with what the backup holds.
    """
    refuse_store_file(ctx, path)
    if not path.exists():
        raise NotFound("backup", str(path), "name a file that `omoide backup` wrote")
    file = store_file(ctx.settings.store.value or "")
    if file is not None and file.exists() and not yes:
        click.echo(f"Everything in {_file_text(file)} will be replaced by {_file_text(path)}.", err=True)
        click.confirm("Replace it?", abort=True, err=True)
    try:
        with ctx.open_store(create=True) as store, progress_bar() as report:
            require_sqlite(store).restore_backup(path, progress=report and partial(report, "restoring"))
    except Corrupted as error:
        if file is None or error.store != str(file):
            raise
        remedy = f"move it away, with any {file.name}-wal and {file.name}-shm, and restore again"
        raise StoreFailed(str(file), "is too damaged to be opened", remedy) from error
    ctx.print_result(
        {"path": str(path), "store": str(file)},
        lambda: click.echo(f"{sanitize(str(file))}  restored from {sanitize(str(path))}"),
    )


@command("reindex", "omoide reindex --store agent.db")
def reindex_command(ctx: CommandContext) -> None:
    """Give all memories vectors of the embedder, and index terms of this version.

    The store can be used meanwhile: the old vectors serve until all new ones are there. A run that was
    stopped continues where it was. Without an embedder only index terms are computed, and vectors stay.
    """
    embedder = embedders.choose(ctx.settings.embedder.value)
    with ctx.open_store() as store, progress_bar() as report:
        result = store.sync.reindex(embedder, progress=report and partial(report, "reindexing"))

    def show() -> None:
        click.echo(f"vectors of {result.embedder or 'no embedder'}")
        click.echo(
            f"{result.entries} memories: {result.embedded} embedded, {result.updated_terms} with new terms, "
            f"{result.given_vectors} supplied vectors kept"
        )

    if embedder is None:
        setting = ctx.settings.embedder
        click.echo(
            f"No vectors were computed, only index terms: the embedder is {setting.value or 'none'!r} "
            f"[{setting.origin}]; `omoide reindex --embedder local` computes them.",
            err=True,
        )
    ctx.print_result(msgspec.structs.asdict(result), show)


def require_sqlite(store: AsyncStore) -> SQLiteStore:
    """Return the SQLite store, or raise `Invalid` for stores without a file."""
    from omoide.stores.sqlite.store import SQLiteStore

    if not isinstance(store.sync, SQLiteStore):
        remedy = "use its server's own backups, or `omoide copy --to monday.db`; or name a file with --store"
        raise Invalid("store", f"{mask_url(store.url)!r} lies in no file", remedy)
    return store.sync


def _with_suffix(path: Path, ending: str) -> Path:
    return path.with_name(path.name + ending)


def refuse_store_file(ctx: CommandContext, *paths: Path) -> None:
    """Raise if one of the paths is a file of the store itself."""
    file = store_file(ctx.settings.store.value or "")
    store_files = [] if file is None else [file, *(_with_suffix(file, ending) for ending in _SQLITE_SUFFIXES)]
    for path in paths:
        if any(_is_same_file(path, store_path) for store_path in store_files):
            raise Invalid("path", f"{str(path)!r} belongs to the store itself", "choose another path")


def _is_same_file(one: Path, other: Path) -> bool:
    if os.path.realpath(one) == os.path.realpath(other):
        return True
    return one.exists() and other.exists() and one.samefile(other)


def _file_text(file: Path) -> str:
    stats = file.stat()
    return sanitize(
        f"{file} ({stats.st_size / 1e6:,.1f} MB, written {format_time(int(stats.st_mtime * 1000))})"
    )
