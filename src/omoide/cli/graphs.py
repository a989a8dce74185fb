"""Where is the graph that a command asks?

In memory unless told otherwise: built from the store when the command begins, and gone when it ends. In a
folder or at an endpoint it stays, and only what changed since is taken in.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from omoide.blocking import Graph
    from omoide.stores.local import LocalStore


def graph_options(function: Any) -> Any:
    """Give a command the options that say where its graph is."""
    for option in (
        click.option(
            "--update-endpoint", metavar="URL", help="Where the endpoint takes changes, if not there too."
        ),
        click.option("--endpoint", metavar="URL", help="A SPARQL 1.1 endpoint that keeps the graph."),
        click.option(
            "--graph",
            "folder",
            type=click.Path(path_type=Path, file_okay=False),
            metavar="FOLDER",
            help="A folder that keeps the graph.",
        ),
    ):
        function = option(function)
    return function


def graph_of(store: LocalStore, given: dict[str, Any] | None = None) -> Graph:
    """The graph over a store, where the options say; takes them out of `given`."""
    from omoide import blocking

    if given is None:
        return blocking.open_graph(store)
    return blocking.open_graph(
        store,
        path=given.pop("folder"),
        endpoint=given.pop("endpoint"),
        update_endpoint=given.pop("update_endpoint"),
    )
