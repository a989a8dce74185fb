"""Is everything in order, and why are the settings what they are?"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import click

from omoide.cli.failing import NOTHING, OK, line_of
from omoide.cli.printing import safe
from omoide.cli.shell import Shell, command, file_of
from omoide.embedders import cache
from omoide.errors import OmoideError
from omoide.stores.findings import Finding
from omoide.stores.masking import masked
from omoide.stores.sqlite.opening import network_file_system

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
