"""Do memories have the shape that the ontology asks for?"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from omoide.cli.failing import NOTHING, OK
from omoide.cli.graphs import graph_of
from omoide.cli.printing import put_rows
from omoide.cli.shell import Shell, command

if TYPE_CHECKING:
    from omoide.graph.validating import Report


@command(
    "validate",
    "omoide validate",
    "omoide validate --strict --json",
)
@click.option("--strict", is_flag=True, help="What is incomplete counts as wrong, too.")
def validate_command(shell: Shell, strict: bool) -> int:
    """Check the memories that are meant against the shapes of the ontology.

    Ends with code 1 if they do not conform.
    """
    with shell.store() as store, graph_of(store) as graph:
        report = graph.validate(shell.scope, strict=strict)
    shell.put(report, lambda: _show(report))
    return OK if report.conforms else NOTHING


def _show(report: Report) -> None:
    click.echo("conforms" if report.conforms else "does not conform")
    put_rows(
        ("how bad", "id", "what", "shape"),
        [(one.severity, one.id, one.message, one.shape) for one in report.problems],
    )
