"""Relate, provenance, review, conflicts, prune."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from omoide import clock
from omoide.cli import output
from omoide.cli.chat import sanitize_text
from omoide.cli.memories import content_with_status
from omoide.cli.output import ROW_WIDTH, format_count, print_table, sanitize, truncate
from omoide.cli.shell import COUNT, NOT_FOUND, OK, CommandContext, apply_options, command
from omoide.core.entry import MEMORY_TYPES, Scope, WriteRequest
from omoide.errors import Invalid, NotFound
from omoide.longterm.relations import RELATIONS
from omoide.stores.records import Link

if TYPE_CHECKING:
    from omoide.longterm.conflicts import Disagreement
    from omoide.longterm.relations import Related
    from omoide.longterm.upkeep import PruneCandidate, PruneReport
    from omoide.stores.async_store import AsyncStore


# relating: How do memories hang together, and who says so?


@command(
    "provenance",
    "omoide provenance mem_0123",
)
@click.argument("id")
@click.option("--depth", type=COUNT, default=20, show_default=True, metavar="N", help="How far to go back.")
def provenance_command(shell: CommandContext, id: str, depth: int) -> None:
    """Show where a memory comes from, back to what was said."""
    import anyio

    from omoide.longterm.lineage import provenance

    with shell.open_store() as store:
        found = anyio.run(partial(provenance, store, id, shell.scope, depth=depth))
    shell.print_result(found, lambda: click.echo(sanitize_text(str(found))))


@command(
    "related",
    "omoide related mem_0123",
    "omoide related mem_0123 --relation derived_from --depth 3",
)
@click.argument("id")
@click.option("--relation", metavar="NAME", help="Only by this one; same_type and same_project, too.")
@click.option("--depth", type=COUNT, default=1, show_default=True, metavar="N", help="How many steps far.")
@click.option("--limit", type=COUNT, default=100, show_default=True, metavar="N", help="At most so many.")
def related_command(shell: CommandContext, id: str, relation: str | None, depth: int, limit: int) -> int:
    """Show the memories that one is related to, nearest first."""
    import anyio

    from omoide.longterm.relations import related

    with shell.open_store() as store:
        search = partial(related, store, id, shell.scope, relation, depth=depth, limit=limit)
        found = anyio.run(search)

    def show() -> None:
        print_table(
            ("id", "how", "type", "content"),
            [
                (
                    one.entry.id,
                    _relation_text(one),
                    one.entry.type or "",
                    truncate(content_with_status(one.entry), ROW_WIDTH),
                )
                for one in found
            ],
        )
        if not found:
            shell.print_nothing_found()

    shell.print_result({"related": found}, show)
    return OK if found else NOT_FOUND


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
    shell: CommandContext,
    source: str,
    relation: str,
    target: str,
    strict: bool,
    reason: str | None,
    undo: bool,
) -> None:
    """Say that SOURCE is related to TARGET.

    derived_from: it rests on it, and no longer holds when that does not. superseded_by, supersedes: one
    replaces the other. All others only say how memories hang together; a wrong RELATION names them.
    """
    import anyio

    from omoide.longterm.relations import relate

    with shell.open_store(load_embedder=relation == "derived_from") as store:
        if undo:
            _undo_relation(store, source, relation, target, shell.scope)
        else:
            anyio.run(
                partial(relate, store, source, relation, target, shell.scope, strict=strict, reason=reason)
            )
    said = f"{_statement(source, relation, target)}{'  undone' if undo else ''}"
    answer = {"source": source, "relation": relation, "target": target, "undone": undo}
    shell.print_result(answer, lambda: click.echo(sanitize_text(said)))


def _relation_text(related: Related) -> str:
    ends = (related.via, related.entry.id) if related.direction == "out" else (related.entry.id, related.via)
    return _statement(ends[0], related.relation, ends[1])


def _statement(source: str, relation: str, target: str) -> str:
    return f"{source} {relation} {target}"


def _undo_relation(store: AsyncStore, source: str, relation: str, target: str, scope: Scope) -> None:
    """Take back what `relate` did, where it is so."""
    match relation:
        case "derived_from":
            entry = store.sync.get(source, scope)
            rest = tuple(one for one in entry.evidence if (one.kind, one.ref) != ("entry", target))
            if done := len(rest) < len(entry.evidence):
                request = WriteRequest(entry=entry.replace(evidence=rest), expected_rev=entry.rev)
                store.sync.write(request)
        case "superseded_by":
            done = _restore_superseded(store, source, target, scope)
        case "supersedes":
            done = _restore_superseded(store, target, source, scope)
        case _:
            for id in (source, target):
                store.sync.get(id, scope)
            done = store.sync.unlink(Link(source=source, relation=relation, target=target), scope)
    if not done:
        remedy = f"see how they are related with omoide related {source}"
        raise NotFound("relation", _statement(source, relation, target), remedy)


def _restore_superseded(store: AsyncStore, old: str, new: str, scope: Scope) -> bool:
    entry = store.sync.get(old, scope)
    if entry.superseded_by != new:
        return False
    store.sync.reinstate(old, scope, expected_rev=entry.rev)
    return True


# reviewing: What needs attention, and what can go?


@command(
    "review",
    "omoide review",
    "omoide review --soon 30d --json",
)
@click.option("--limit", type=COUNT, default=50, show_default=True, metavar="N", help="Of each at most.")
@click.option("--soon", default="7d", show_default=True, metavar="WHEN", help="What expires until then.")
def review_command(shell: CommandContext, limit: int, soon: str) -> None:
    """Show what contradicts, what no longer holds and why, what is not known, and what soon expires.

    Nothing is changed.
    """
    import anyio

    from omoide.longterm.upkeep import review

    now = clock.now()
    ahead = output.parse_future_time(soon, now, "--soon") - now
    if ahead < 0:
        raise Invalid("--soon", f"is {soon!r}, which is over", "write a time to come, such as 7d")
    with shell.open_store() as store:
        report = anyio.run(partial(review, store, shell.scope, limit=limit, soon_ms=ahead, now=now))
    shell.print_result(report, lambda: click.echo(sanitize_text(str(report))))


@command(
    "conflicts",
    "omoide conflicts",
    "omoide conflicts --json | jq '.conflicts[] | .key'",
)
@click.option("--limit", type=COUNT, default=100, show_default=True, metavar="N", help="At most so many.")
def conflicts_command(shell: CommandContext, limit: int) -> int:
    """Show which memories cannot be true together, oldest first.

    Those that somebody related by `contradicts`, and those that give one key two values. Where there are
    none, the code is 1.
    """
    import anyio

    from omoide.longterm.conflicts import find_conflicts

    with shell.open_store() as store:
        found = anyio.run(partial(find_conflicts, store, shell.scope, limit=limit))

    def show() -> None:
        print_table(("about", "id", "says", "id", "says"), [_conflict_row(one) for one in found])
        if not found:
            shell.print_nothing_found()

    shell.print_result({"conflicts": found}, show)
    return OK if found else NOT_FOUND


def _conflict_row(pair: Disagreement) -> tuple[str, ...]:
    about = "declared" if pair.key is None else pair.key
    one, other = pair.one, pair.other
    return about, one.id, truncate(one.content, ROW_WIDTH), other.id, truncate(other.content, ROW_WIDTH)


@command(
    "prune",
    "omoide prune --older-than 90d --max-confidence 0.5 --max-access 0",
    "omoide prune --older-than 90d --max-confidence 0.5 --max-access 0 --apply",
)
@click.option("--older-than", metavar="WHEN", help="From before then: 90d, or a date.")
@click.option("--max-confidence", type=float, metavar="X", help="No surer than this, from 0 to 1.")
@click.option("--max-access", type=COUNT, metavar="N", help="Used by agents no more often.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(MEMORY_TYPES),
    metavar="TYPE",
    help="Of this type; repeated: of any of them.",
)
@click.option("--limit", type=COUNT, default=1_000, show_default=True, metavar="N", help="At most so many.")
@apply_options
def prune_command(
    shell: CommandContext,
    older_than: str | None,
    max_confidence: float | None,
    max_access: int | None,
    types: tuple[str, ...],
    limit: int,
    apply: bool,
) -> None:
    """Forget memories that are old, unsure and unused: those that meet all that is given.

    Decisions, conventions and lessons stay. Nothing is erased: `omoide restore` brings a memory back.
    """
    import anyio

    from omoide.longterm.upkeep import prune

    if older_than is None and max_confidence is None and max_access is None:
        remedy = "pass --older-than, --max-confidence, --max-access or several of them"
        raise Invalid("criteria", "are missing", remedy)
    now = clock.now()
    with shell.open_store() as store:
        report = anyio.run(
            partial(
                prune,
                store,
                shell.scope,
                older_than_ms=None if older_than is None else _age_ms(older_than, now),
                max_confidence=max_confidence,
                max_access=max_access,
                types=types,
                now=now,
                dry_run=not apply,
                limit=limit,
            )
        )
    shell.print_result(report, lambda: _print_prune_report(report))


def _age_ms(text: str, now: int) -> int:
    age = now - output.parse_past_time(text, now, "--older-than")
    if age < 0:
        raise Invalid("--older-than", f"is {text!r}, which is to come", "write 90d, or a date that is over")
    return age


def _print_prune_report(report: PruneReport) -> None:
    gone = {*report.pruned}
    shown = [one for one in report.candidates if report.dry_run or one.entry.id in gone]
    print_table(
        ("id", "type", "why", "content"),
        [
            (
                one.entry.id,
                one.entry.type or "",
                _prune_reason(one),
                truncate(content_with_status(one.entry), ROW_WIDTH),
            )
            for one in shown
        ],
    )
    stay = f"{report.kept:,} stay, {report.protected:,} protected"
    count = format_count(len(shown), "memory", "memories")
    click.echo(f"{count} {'would go' if report.dry_run else 'forgotten'}; {stay}.", err=True)
    if report.cut:
        click.echo(f"{report.cut:,} more could go: see --limit.", err=True)
    for id in report.passed_over:
        click.echo(f"{sanitize(id)} was changed meanwhile, and stays.", err=True)
    if shown:
        told = "--apply forgets them." if report.dry_run else "omoide restore ID brings one back."
        click.echo(told, err=True)


def _prune_reason(candidate: PruneCandidate) -> str:
    resting = [f"{', '.join(candidate.supports)} no longer holds then"] if candidate.supports else []
    return "; ".join([", ".join(candidate.reasons), *resting])
