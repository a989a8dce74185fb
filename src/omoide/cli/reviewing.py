"""What needs attention, and what can go?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from omoide import clock
from omoide.cli import moments
from omoide.cli.applying import apply_options
from omoide.cli.asking import visible
from omoide.cli.failing import NOTHING, OK
from omoide.cli.printing import ROW, clipped, counted, put_rows, safe
from omoide.cli.reading import marked
from omoide.cli.shell import NUMBER, Shell, command
from omoide.core.memory_types import MEMORY_TYPES
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.longterm.conflicts import Disagreement
    from omoide.longterm.pruning import Candidate, PruneReport


@command(
    "review",
    "omoide review",
    "omoide review --soon 30d --json",
)
@click.option("--limit", type=NUMBER, default=50, show_default=True, metavar="N", help="Of each at most.")
@click.option("--soon", default="7d", show_default=True, metavar="WHEN", help="What expires until then.")
def review_command(shell: Shell, limit: int, soon: str) -> None:
    """Show what contradicts, what no longer holds and why, what is not known, and what soon expires.

    Nothing is changed.
    """
    import anyio

    from omoide.longterm.reviewing import review

    now = clock.now()
    ahead = moments.after(soon, now, "--soon") - now
    if ahead < 0:
        raise Invalid("--soon", f"is {soon!r}, which is over", "write a time to come, such as 7d")
    with shell.store() as store:
        report = anyio.run(partial(review, store, shell.scope, limit=limit, soon_ms=ahead, now=now))
    shell.put(report, lambda: click.echo(visible(str(report))))


@command(
    "conflicts",
    "omoide conflicts",
    "omoide conflicts --json | jq '.conflicts[] | .key'",
)
@click.option("--limit", type=NUMBER, default=100, show_default=True, metavar="N", help="At most so many.")
def conflicts_command(shell: Shell, limit: int) -> int:
    """Show which memories cannot be true together, oldest first.

    Those that somebody related by `contradicts`, and those that give one key two values. Where there are
    none, the code is 1.
    """
    import anyio

    from omoide.longterm.conflicts import conflicts

    with shell.store() as store:
        found = anyio.run(partial(conflicts, store, shell.scope, limit=limit))

    def show() -> None:
        put_rows(("about", "id", "says", "id", "says"), [_disagreement(one) for one in found])
        if not found:
            shell.put_nothing()

    shell.put({"conflicts": found}, show)
    return OK if found else NOTHING


def _disagreement(pair: Disagreement) -> tuple[str, ...]:
    about = "declared" if pair.key is None else pair.key
    one, other = pair.one, pair.other
    return about, one.id, clipped(one.content, ROW), other.id, clipped(other.content, ROW)


@command(
    "prune",
    "omoide prune --older-than 90d --max-confidence 0.5 --max-access 0",
    "omoide prune --older-than 90d --max-confidence 0.5 --max-access 0 --apply",
)
@click.option("--older-than", metavar="WHEN", help="From before then: 90d, or a date.")
@click.option("--max-confidence", type=float, metavar="X", help="No surer than this, from 0 to 1.")
@click.option("--max-access", type=NUMBER, metavar="N", help="Used by agents no more often.")
@click.option(
    "--type",
    "types",
    multiple=True,
    type=click.Choice(MEMORY_TYPES),
    metavar="TYPE",
    help="Of this type; repeated: of any of them.",
)
@click.option("--limit", type=NUMBER, default=1_000, show_default=True, metavar="N", help="At most so many.")
@apply_options
def prune_command(
    shell: Shell,
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

    from omoide.longterm.pruning import prune

    if older_than is None and max_confidence is None and max_access is None:
        remedy = "pass --older-than, --max-confidence, --max-access or several of them"
        raise Invalid("criteria", "are missing", remedy)
    now = clock.now()
    with shell.store() as store:
        report = anyio.run(
            partial(
                prune,
                store,
                shell.scope,
                older_than_ms=None if older_than is None else _age(older_than, now),
                max_confidence=max_confidence,
                max_access=max_access,
                types=types,
                now=now,
                dry_run=not apply,
                limit=limit,
            )
        )
    shell.put(report, lambda: _show(report))


def _age(text: str, now: int) -> int:
    age = now - moments.before(text, now, "--older-than")
    if age < 0:
        raise Invalid("--older-than", f"is {text!r}, which is to come", "write 90d, or a date that is over")
    return age


def _show(report: PruneReport) -> None:
    gone = {*report.pruned}
    shown = [one for one in report.candidates if report.dry_run or one.entry.id in gone]
    put_rows(
        ("id", "type", "why", "content"),
        [(one.entry.id, one.entry.type or "", _why(one), clipped(marked(one.entry), ROW)) for one in shown],
    )
    stay = f"{report.kept:,} stay, {report.protected:,} protected"
    count = counted(len(shown), "memory", "memories")
    click.echo(f"{count} {'would go' if report.dry_run else 'forgotten'}; {stay}.", err=True)
    if report.cut:
        click.echo(f"{report.cut:,} more could go: see --limit.", err=True)
    for id in report.passed_over:
        click.echo(f"{safe(id)} was changed meanwhile, and stays.", err=True)
    if shown:
        told = "--apply forgets them." if report.dry_run else "omoide restore ID brings one back."
        click.echo(told, err=True)


def _why(one: Candidate) -> str:
    resting = [f"{', '.join(one.supports)} no longer holds then"] if one.supports else []
    return "; ".join([", ".join(one.reasons), *resting])
