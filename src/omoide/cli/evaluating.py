"""How is recall evaluated with the `omoide` command?"""

from __future__ import annotations

from pathlib import Path

import click

from omoide.cli.printing import progress
from omoide.cli.shell import NUMBER, Shell, command

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
    from omoide.eval import report as reports
    from omoide.eval.evaluation import evaluate, quiet

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
