"""What would a model be sent, seen from a shell?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omoide import ids
from omoide.cli.asking import agent_options, known_session, options_for, spec_for, visible
from omoide.cli.shell import Shell, command

if TYPE_CHECKING:
    from omoide.stores.local import LocalStore
    from omoide.turns.previewing import Preflight


@command(
    "preflight",
    'omoide preflight "what should I call the user?"',
    'omoide preflight "and then?" --spec ada.json --session conv-1 --json',
)
@click.argument("message")
@agent_options
def preflight_command(shell: Shell, message: str, **given: Any) -> None:
    """Show what a model would be sent for MESSAGE, and why.

    Nothing is asked of a model, and nothing is written.
    """
    put_preflight(shell, message, given)


def put_preflight(shell: Shell, message: str, given: dict[str, Any]) -> None:
    """Print what a turn would send."""
    import anyio

    with shell.store(embeds=True) as store:
        found = anyio.run(_previewed, shell, store, message, given)
    shell.put(found, lambda: show_preflight(found))


def show_preflight(found: Preflight) -> None:
    """Print it for a person."""
    click.echo(visible(str(found)).rstrip("\n"))


async def _previewed(shell: Shell, store: LocalStore, message: str, given: dict[str, Any]) -> Preflight:
    from omoide.turns.previewing import preflight

    spec = await spec_for(shell, store, given)
    session = await known_session(shell, store, spec)
    if session is not None:
        return await session.preflight(message)
    return await preflight(
        spec,
        message,
        memory_store=store,
        session_id=shell.settings.session.value or ids.new("sess_"),  # the one that would be begun
        project_id=shell.settings.project.value,
        **options_for(shell, spec),
    )
