"""How do memories hang together, and who says so?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from omoide.cli.asking import visible
from omoide.cli.failing import NOTHING, OK
from omoide.cli.printing import ROW, clipped, put_rows
from omoide.cli.reading import marked
from omoide.cli.shell import NUMBER, Shell, command
from omoide.core.scope import Scope
from omoide.core.writing import WriteRequest
from omoide.errors import NotFound
from omoide.longterm.relations import RELATIONS
from omoide.stores.records import Link

if TYPE_CHECKING:
    from omoide.longterm.tracing import Related
    from omoide.stores.local import LocalStore


@command(
    "provenance",
    "omoide provenance mem_0123",
)
@click.argument("id")
@click.option("--depth", type=NUMBER, default=20, show_default=True, metavar="N", help="How far to go back.")
def provenance_command(shell: Shell, id: str, depth: int) -> None:
    """Show where a memory comes from, back to what was said."""
    import anyio

    from omoide.longterm.tracing import provenance

    with shell.store() as store:
        found = anyio.run(partial(provenance, store, id, shell.scope, depth=depth))
    shell.put(found, lambda: click.echo(visible(str(found))))


@command(
    "related",
    "omoide related mem_0123",
    "omoide related mem_0123 --relation derived_from --depth 3",
)
@click.argument("id")
@click.option("--relation", metavar="NAME", help="Only by this one; same_type and same_project, too.")
@click.option("--depth", type=NUMBER, default=1, show_default=True, metavar="N", help="How many steps far.")
@click.option("--limit", type=NUMBER, default=100, show_default=True, metavar="N", help="At most so many.")
def related_command(shell: Shell, id: str, relation: str | None, depth: int, limit: int) -> int:
    """Show the memories that one is related to, nearest first."""
    import anyio

    from omoide.longterm.tracing import related

    with shell.store() as store:
        search = partial(related, store, id, shell.scope, relation, depth=depth, limit=limit)
        found = anyio.run(search)

    def show() -> None:
        put_rows(
            ("id", "how", "type", "content"),
            [
                (one.entry.id, _how(one), one.entry.type or "", clipped(marked(one.entry), ROW))
                for one in found
            ],
        )
        if not found:
            shell.put_nothing()

    shell.put({"related": found}, show)
    return OK if found else NOTHING


@command(
    "relate",
    "omoide relate mem_0123 justified_by mem_0456",
    "omoide relate mem_0123 contradicts mem_0456 --undo",
)
@click.argument("source")
@click.argument("relation", type=click.Choice([*RELATIONS]), metavar="RELATION")
@click.argument("target")
@click.option("--strict", is_flag=True, help="Only if both are of the types that the relation connects.")
@click.option("--reason", help="Why; it is kept where one memory replaces the other.")
@click.option("--undo", is_flag=True, help="They are not, after all.")
def relate_command(
    shell: Shell, source: str, relation: str, target: str, strict: bool, reason: str | None, undo: bool
) -> None:
    """Say that SOURCE is related to TARGET.

    derived_from: it rests on it, and no longer holds when that does not. superseded_by, supersedes: one
    replaces the other. All others only say how memories hang together; a wrong RELATION names them.
    """
    import anyio

    from omoide.longterm.relating import relate

    with shell.store(embeds=relation == "derived_from") as store:
        if undo:
            _undo(store, source, relation, target, shell.scope)
        else:
            anyio.run(
                partial(relate, store, source, relation, target, shell.scope, strict=strict, reason=reason)
            )
    said = f"{_statement(source, relation, target)}{'  undone' if undo else ''}"
    answer = {"source": source, "relation": relation, "target": target, "undone": undo}
    shell.put(answer, lambda: click.echo(visible(said)))


def _how(one: Related) -> str:
    ends = (one.via, one.entry.id) if one.direction == "out" else (one.entry.id, one.via)
    return _statement(ends[0], one.relation, ends[1])


def _statement(source: str, relation: str, target: str) -> str:
    return f"{source} {relation} {target}"


def _undo(store: LocalStore, source: str, relation: str, target: str, scope: Scope) -> None:
    """Take back what `relate` did, where it is so."""
    match relation:
        case "derived_from":
            entry = store.sync.get(source, scope)
            rest = tuple(one for one in entry.evidence if (one.kind, one.ref) != ("entry", target))
            if done := len(rest) < len(entry.evidence):
                request = WriteRequest(entry=entry.replace(evidence=rest), expected_rev=entry.rev)
                store.sync.write(request)
        case "superseded_by":
            done = _restored(store, source, target, scope)
        case "supersedes":
            done = _restored(store, target, source, scope)
        case _:
            for id in (source, target):
                store.sync.get(id, scope)
            done = store.sync.unlink(Link(source=source, relation=relation, target=target), scope)
    if not done:
        remedy = f"see how they are related with omoide related {source}"
        raise NotFound("relation", _statement(source, relation, target), remedy)


def _restored(store: LocalStore, old: str, new: str, scope: Scope) -> bool:
    entry = store.sync.get(old, scope)
    if entry.superseded_by != new:
        return False
    store.sync.restore(old, scope, expected_rev=entry.rev)
    return True
