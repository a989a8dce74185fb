"""The commands for relations, provenance, conflicts, review and pruning."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omoide import clock
from omoide.cli import shell
from omoide.cli.memories import types_option
from omoide.cli.shell import (
    COUNT,
    NOT_FOUND,
    OK,
    ROW_WIDTH,
    CommandContext,
    apply_options,
    command,
    content_with_status,
    format_count,
    print_table,
    run_async,
    sanitize,
    sanitize_text,
    truncate,
)
from omoide.core.entry import Scope, WriteRequest
from omoide.errors import Invalid, NotFound
from omoide.longterm.relations import RELATIONS
from omoide.stores.records import Link

if TYPE_CHECKING:
    from omoide.longterm.conflicts import Disagreement
    from omoide.longterm.relations import Related
    from omoide.longterm.upkeep import PruneCandidate, PruneReport
    from omoide.stores.async_store import AsyncStore


@command("provenance", "omoide provenance mem_0123")
@click.argument("id")
@click.option("--depth", type=COUNT, default=20, show_default=True, metavar="N", help="How far to go back.")
def provenance_command(ctx: CommandContext, id: str, depth: int) -> None:
    """Show the provenance of a memory, back to its sources."""
    from omoide.longterm.lineage import provenance

    with ctx.open_store() as store:
        tree = run_async(provenance, store, id, ctx.read_scope, depth=depth)
    ctx.print_result(tree, lambda: click.echo(sanitize_text(str(tree))))


@command("related", "omoide related mem_0123", "omoide related mem_0123 --relation derived_from --depth 3")
@click.argument("id")
@click.option("--relation", metavar="NAME", help="Only by this one; same_type and same_project, too.")
@click.option("--depth", type=COUNT, default=1, show_default=True, metavar="N", help="How many steps far.")
@click.option("--limit", type=COUNT, default=100, show_default=True, metavar="N", help="At most so many.")
def related_command(ctx: CommandContext, id: str, relation: str | None, depth: int, limit: int) -> int:
    """Show the memories that one is related to, nearest first."""
    from omoide.longterm.relations import related

    with ctx.open_store() as store:
        neighbours = run_async(related, store, id, ctx.read_scope, relation, depth=depth, limit=limit)

    def show() -> None:
        print_table(
            ("id", "how", "type", "content"),
            [
                (
                    neighbour.entry.id,
                    _relation_text(neighbour),
                    neighbour.entry.type or "",
                    truncate(content_with_status(neighbour.entry), ROW_WIDTH),
                )
                for neighbour in neighbours
            ],
        )
        if not neighbours:
            ctx.print_nothing_found()

    ctx.print_result({"related": neighbours}, show)
    return OK if neighbours else NOT_FOUND


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
    ctx: CommandContext, source: str, relation: str, target: str, strict: bool, reason: str | None, undo: bool
) -> None:
    """Say that SOURCE is related to TARGET.

    derived_from: SOURCE depends on TARGET, and is stale when TARGET is superseded or stale. superseded_by,
    supersedes: one replaces the other. All others only relate memories; a wrong RELATION names them.
    """
    from omoide.longterm.relations import relate

    with ctx.open_store(load_embedder=relation == "derived_from") as store:
        if undo:
            _undo_relation(store, source, relation, target, ctx.read_scope)
        else:
            run_async(relate, store, source, relation, target, ctx.read_scope, strict=strict, reason=reason)
    text = f"{_statement(source, relation, target)}{'  undone' if undo else ''}"
    answer = {"source": source, "relation": relation, "target": target, "undone": undo}
    ctx.print_result(answer, lambda: click.echo(sanitize_text(text)))


def _relation_text(related: Related) -> str:
    ends = (related.via, related.entry.id) if related.direction == "out" else (related.entry.id, related.via)
    return _statement(ends[0], related.relation, ends[1])


def _statement(source: str, relation: str, target: str) -> str:
    return f"{source} {relation} {target}"


def _undo_relation(store: AsyncStore, source: str, relation: str, target: str, scope: Scope) -> None:
    """Undo what `relate` did, or raise `NotFound`."""
    match relation:
        case "derived_from":
            entry = store.sync.get(source, scope)
            remaining = tuple(
                evidence for evidence in entry.evidence if (evidence.kind, evidence.ref) != ("entry", target)
            )
            if undone := len(remaining) < len(entry.evidence):
                request = WriteRequest(entry=entry.replace(evidence=remaining), expected_rev=entry.rev)
                store.sync.write(request)
        case "superseded_by":
            undone = _restore_superseded(store, source, target, scope)
        case "supersedes":
            undone = _restore_superseded(store, target, source, scope)
        case _:
            for id in (source, target):
                store.sync.get(id, scope)
            undone = store.sync.unlink(Link(source=source, relation=relation, target=target), scope)
    if not undone:
        remedy = f"see how they are related with omoide related {source}"
        raise NotFound("relation", _statement(source, relation, target), remedy)


def _restore_superseded(store: AsyncStore, old: str, new: str, scope: Scope) -> bool:
    entry = store.sync.get(old, scope)
    if entry.superseded_by != new:
        return False
    store.sync.reinstate(old, scope, expected_rev=entry.rev)
    return True


@command("review", "omoide review", "omoide review --soon 30d --json")
@click.option("--limit", type=COUNT, default=50, show_default=True, metavar="N", help="Of each at most.")
@click.option("--soon", default="7d", show_default=True, metavar="WHEN", help="What expires until then.")
def review_command(ctx: CommandContext, limit: int, soon: str) -> None:
    """Show contradictions, stale memories with the reason, gaps, and what expires soon.

    Nothing is changed.
    """
    from omoide.longterm.upkeep import review

    now = clock.now()
    soon_ms = shell.parse_future_time(soon, now, "--soon") - now
    if soon_ms < 0:
        raise Invalid("--soon", f"is {soon!r}, which is over", "write a time to come, such as 7d")
    with ctx.open_store() as store:
        report = run_async(review, store, ctx.read_scope, limit=limit, soon_ms=soon_ms, now=now)
    ctx.print_result(report, lambda: click.echo(sanitize_text(str(report))))


@command("conflicts", "omoide conflicts", "omoide conflicts --json | jq '.conflicts[] | .key'")
@click.option("--limit", type=COUNT, default=100, show_default=True, metavar="N", help="At most so many.")
def conflicts_command(ctx: CommandContext, limit: int) -> int:
    """Show which memories cannot be true together, oldest first.

    Those that are related by `contradicts`, and those that give one key two values. Where there are
    none, the code is 1.
    """
    from omoide.longterm.conflicts import find_conflicts

    with ctx.open_store() as store:
        pairs = run_async(find_conflicts, store, ctx.read_scope, limit=limit)
        notices = () if pairs else ctx.elsewhere(store)

    def show() -> None:
        print_table(("about", "id", "says", "id", "says"), [_conflict_row(pair) for pair in pairs])
        if not pairs:
            ctx.print_nothing_found(notices)

    ctx.print_result({"conflicts": pairs}, show)
    return OK if pairs else NOT_FOUND


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
@click.option("--max-access", type=COUNT, metavar="N", help="Used by agents at most N times.")
@types_option
@click.option("--limit", type=COUNT, default=1_000, show_default=True, metavar="N", help="At most so many.")
@apply_options
def prune_command(
    ctx: CommandContext,
    older_than: str | None,
    max_confidence: float | None,
    max_access: int | None,
    types: tuple[str, ...],
    limit: int,
    apply: bool,
) -> None:
    """Forget memories that are old, unused and of low confidence: those that meet all that is given.

    Decisions, conventions and lessons stay. Nothing is erased: `omoide restore` brings a memory back.
    """
    from omoide.longterm.upkeep import prune

    if older_than is None and max_confidence is None and max_access is None:
        remedy = "pass --older-than, --max-confidence, --max-access or several of them"
        raise Invalid("criteria", "are missing", remedy)
    now = clock.now()
    with ctx.open_store() as store:
        report = run_async(
            prune,
            store,
            ctx.scope,
            older_than_ms=None if older_than is None else _age_ms(older_than, now),
            max_confidence=max_confidence,
            max_access=max_access,
            types=types,
            now=now,
            dry_run=not apply,
            limit=limit,
        )
    ctx.print_result(report, lambda: _print_prune_report(report))


def _age_ms(text: str, now: int) -> int:
    age = now - shell.parse_past_time(text, now, "--older-than")
    if age < 0:
        raise Invalid("--older-than", f"is {text!r}, which is to come", "write 90d, or a date that is over")
    return age


def _print_prune_report(report: PruneReport) -> None:
    pruned = {*report.pruned}
    candidates = [
        candidate for candidate in report.candidates if report.dry_run or candidate.entry.id in pruned
    ]
    print_table(
        ("id", "type", "why", "content"),
        [
            (
                candidate.entry.id,
                candidate.entry.type or "",
                _prune_reason(candidate),
                truncate(content_with_status(candidate.entry), ROW_WIDTH),
            )
            for candidate in candidates
        ],
    )
    summary = f"{report.kept:,} stay, {report.protected:,} protected"
    count = format_count(len(candidates), "memory", "memories")
    click.echo(f"{count} {'would go' if report.dry_run else 'forgotten'}; {summary}.", err=True)
    if report.cut:
        click.echo(f"{report.cut:,} more could go: see --limit.", err=True)
    for id in report.passed_over:
        click.echo(f"{sanitize(id)} was changed meanwhile, and stays.", err=True)
    if candidates:
        hint = "--apply forgets them." if report.dry_run else "omoide restore ID brings one back."
        click.echo(hint, err=True)


def _prune_reason(candidate: PruneCandidate) -> str:
    dependents = [f"{', '.join(candidate.supports)} becomes stale"] if candidate.supports else []
    return "; ".join([", ".join(candidate.reasons), *dependents])
