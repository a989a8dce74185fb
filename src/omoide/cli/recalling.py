"""How is a memory found from a shell?"""

from __future__ import annotations

from typing import Any

import click

from omoide import clock
from omoide.cli import moments
from omoide.cli.explaining import about, explained, put_tree
from omoide.cli.failing import NOTHING, OK
from omoide.cli.printing import clipped, safe
from omoide.cli.shell import NUMBER, Shell, command
from omoide.core.memory_types import MEMORY_TYPES
from omoide.core.recalling import Filter, RecallResult

_SHOWN = 500
"""How many characters of a memory are shown."""


def filter_options(function: Any) -> Any:
    """Give a command the options that say which memories are meant at all."""
    for option in (
        click.option("--min-confidence", type=float, metavar="X", help="How sure they are at least."),
        click.option("--until", metavar="WHEN", help="Not after: a date (all of that day), a time, or 7d."),
        click.option("--since", metavar="WHEN", help="Not before: a date, a time, or 7d for a week ago."),
        click.option("--tag", "tags", multiple=True, help="With this tag; repeated: with all of them."),
        click.option(
            "--type",
            "types",
            multiple=True,
            type=click.Choice(MEMORY_TYPES),
            metavar="TYPE",
            help="Of this type; repeated: of any of them.",
        ),
    ):
        function = option(function)
    return function


def filter_of(given: dict[str, Any], **more: Any) -> Filter:
    """The filter that the options ask for; takes them out of `given`."""
    now = clock.now()
    since, until = given.pop("since"), given.pop("until")
    least = given.pop("min_confidence")
    return Filter(
        types=given.pop("types"),
        tags=given.pop("tags"),
        min_confidence=0.0 if least is None else least,
        since=None if since is None else moments.before(since, now, "--since"),
        until=None if until is None else moments.until(until, now, "--until"),
        **more,
    )


@command(
    "recall",
    'omoide recall "what should I call the user?"',
    'omoide recall "why postgres?" --type decision --since 30d --explain',
)
@click.argument("query")
@click.option("--limit", type=NUMBER, default=5, show_default=True, metavar="N", help="At most so many.")
@filter_options
@click.option(
    "--max-tokens", type=NUMBER, metavar="N", help="What they may take up where a model reads them."
)
@click.option("--explain", is_flag=True, help="Say why each one is there.")
def recall_command(
    shell: Shell, query: str, limit: int, max_tokens: int | None, explain: bool, **given: Any
) -> int:
    """Find the memories that answer QUERY, best first.

    Of a long one the beginning is shown; `omoide show ID` and --json tell all of it.
    """
    from omoide import blocking

    chosen = filter_of(given)
    with shell.store(embeds=True) as store:
        result = blocking.recall(store, query, shell.scope, limit=limit, filter=chosen, max_tokens=max_tokens)
    shell.put(
        {"hits": result.hits, "weak": result.weak, "notices": result.notices},
        lambda: _show(shell, result, explain=explain),
    )
    return OK if result.hits else NOTHING


def _show(shell: Shell, result: RecallResult, *, explain: bool) -> None:
    for hit in result.hits:
        if explain:
            put_tree(explained(hit, _SHOWN))
        else:
            click.echo(f"{hit.rank}. {clipped(hit.entry.content, _SHOWN)}  [{about(hit)}]")
    if result.weak and result.hits:
        click.echo("Nothing matches well; this is the closest there is.", err=True)
    if not result.hits:
        shell.put_nothing()
    for notice in result.notices:
        click.echo(safe(notice), err=True)
