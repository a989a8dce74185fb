"""How do memories go to a file that other programs read, and come from one?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from omoide.cli.graphs import graph_of
from omoide.cli.printing import Progress, counted, progress, safe
from omoide.cli.shell import Shell, command
from omoide.cli.upkeep import refuse_own
from omoide.errors import Invalid, NotFound

if TYPE_CHECKING:
    from omoide.service.lines import Imported
    from omoide.stores.local import LocalStore

RDF = {".ttl": "turtle", ".trig": "trig", ".jsonld": "jsonld", ".nq": "nquads"}
LINES, CHAT = "jsonl", "chat"
WRITTEN = {**RDF, ".jsonl": LINES}
READ = {**WRITTEN, ".json": CHAT}


@command(
    "export",
    "omoide export memories.jsonl",
    "omoide export all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format",
    type=click.Choice([*WRITTEN.values()]),
    help="The format, if the file's name does not say.",
)
@click.option("--force", is_flag=True, help="Replace a file that is there.")
def export_command(shell: Shell, file: Path, format: str | None, force: bool) -> None:
    """Write the memories that are meant to FILE: .jsonl, or as RDF .ttl, .trig, .jsonld or .nq.

    All of them, also those that were forgotten or no longer hold. The file is there when it is complete.
    """
    refuse_own(shell, file)
    if file.exists() and not force:
        raise Invalid("file", f"{str(file)!r} exists", "choose another, or replace it with --force")
    kind = _kind(file, format, WRITTEN)
    with shell.store() as store, progress() as tell:
        count = _written(shell, store, file, kind, tell)
    shell.put(
        {"path": str(file), "memories": count},
        lambda: click.echo(f"{safe(str(file))}  {counted(count, 'memory', 'memories')}"),
    )


@command(
    "import",
    "omoide import memories.jsonl",
    "omoide import chat.json --thread maria-and-ben",
    "omoide import all.nq --agent '' --project ''",
)
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@click.option(
    "--format", type=click.Choice([*READ.values()]), help="The format, if the file's name does not say."
)
@click.option("--thread", metavar="NAME", help="What a chat is called; usually what the file says.")
def import_command(shell: Shell, file: Path, format: str | None, thread: str | None) -> None:
    """Take over the memories of FILE, or what was said in a chat, all of it or nothing.

    What the store has already is left as it is, so doing it twice does no harm. Memories that do not say
    whose they are become those of the agent, project and session that are meant; others have to be theirs.
    """
    if not file.exists():
        raise NotFound("file", str(file), "check the path")
    kind = _kind(file, format, READ)
    if kind == LINES and format is None:
        from omoide.service.chats import is_chat

        kind = CHAT if is_chat(file) else LINES
    if thread is not None and kind != CHAT:
        raise Invalid("--thread", "is given, and the file is no chat", "leave it out, or pass --format chat")
    with shell.store(create=True, embeds=True) as store, progress() as tell:
        done = _taken(shell, store, file, kind, thread, tell)
    answer: dict[str, Any] = {"path": str(file), "memories": done.memories, "new": done.new}
    if kind == CHAT:
        answer["left_out"] = done.left_out
    shell.put(answer, lambda: _show(file, done))


def _kind(file: Path, format: str | None, known: dict[str, str]) -> str:
    if format is not None:
        return format
    found = known.get(file.suffix.lower())
    if found is None:
        problem, endings = f"cannot be told from {file.name!r}", ", ".join(known)
        raise Invalid("format", problem, f"end the name in one of {endings}, or pass --format")
    return found


def _written(shell: Shell, store: LocalStore, file: Path, kind: str, tell: Progress | None) -> int:
    if kind != LINES:
        told = None if tell is None else partial(tell, "writing")
        with graph_of(store) as graph:
            return graph.export(file, shell.scope, format=kind, progress=told)
    import anyio

    from omoide.service import lines

    return anyio.run(partial(lines.write, store, file, shell.scope, progress=tell))


def _taken(
    shell: Shell, store: LocalStore, file: Path, kind: str, thread: str | None, tell: Progress | None
) -> Imported:
    import anyio

    from omoide.service import hearing, lines

    if kind == LINES:
        return anyio.run(partial(lines.read, store, file, shell.scope, progress=tell))
    if kind == CHAT:
        return anyio.run(partial(hearing.read, store, file, shell.scope, thread=thread, progress=tell))
    seen = 0

    def told(done: int, total: int | None) -> None:
        nonlocal seen
        seen = total or 0
        if tell is not None:
            tell("reading", done, seen)

    with graph_of(store) as graph:
        new = graph.load(file, shell.scope, format=kind, progress=told)
    return lines.Imported(seen, new)


def _show(file: Path, done: Imported) -> None:
    click.echo(f"{safe(str(file))}  {counted(done.memories, 'memory', 'memories')}, {done.new:,} new")
    if done.left_out:
        click.echo(f"{counted(done.left_out, 'message', 'messages')} without text left out", err=True)
