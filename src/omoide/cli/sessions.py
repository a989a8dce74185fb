"""Which conversations are kept, and what was said in them?"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from omoide.cli.asking import visible
from omoide.cli.failing import NOTHING, OK
from omoide.cli.moments import shown
from omoide.cli.printing import put_rows, safe
from omoide.cli.settings import REPOSITORY, Setting
from omoide.cli.shell import Shell, command, common_options, shown_examples
from omoide.core import codec

if TYPE_CHECKING:
    from omoide.core.thread import ThreadEntry
    from omoide.sessions.header import Header

_TOLD = (
    "session_id",
    "agent_id",
    "project_id",
    "status",
    "turns",
    "created_at",
    "updated_at",
    "last_request_id",
    "error",
    "pending_reviews",
)


@click.group(
    "sessions",
    invoke_without_command=True,
    epilog=shown_examples("omoide sessions", "omoide sessions show conv-1"),
)
@click.pass_context
def sessions_command(context: click.Context) -> Any:
    """See which conversations there are, and what was said."""
    return None if context.invoked_subcommand else context.invoke(list_command)


@command(
    "list",
    "omoide sessions list --agent ada",
)
def list_command(shell: Shell) -> int:
    """List the sessions of the namespace, the one that was used last first.

    Those of all agents and projects, unless one is named.
    """
    import anyio

    from omoide.sessions.listing import sessions

    agent, project = _said(shell.settings.agent), _said(shell.settings.project)
    with shell.store() as store:
        listed = partial(sessions, store, agent_id=agent, namespace=shell.scope.namespace)
        found = [one for one in anyio.run(listed) if project in (None, one.project_id)]
    found.sort(key=lambda one: one.updated_at, reverse=True)

    def show() -> None:
        titles = ("id", "agent", "status", "turns", "used last")
        put_rows(
            titles,
            [
                (one.session_id, one.agent_id, one.status, str(one.turns), shown(one.updated_at))
                for one in found
            ],
        )
        if not found:
            click.echo("Nothing found.", err=True)

    shell.put({"sessions": [_summary(one) for one in found]}, show)
    return OK if found else NOTHING


@command(
    "show",
    "omoide sessions show conv-1",
)
@click.argument("id")
def show_command(shell: Shell, id: str) -> None:
    """Show what was said in a session, and where it stands."""
    import anyio

    from omoide.sessions.keeping import Keeper
    from omoide.sessions.listing import missing

    with shell.store() as store:
        kept = anyio.run(Keeper(store, id, shell.scope.namespace).load)
    if kept is None:
        raise missing(id)
    header, thread = kept

    def show() -> None:
        for entry in thread.entries:
            for line in _lines(entry):
                click.echo(visible(line))
        for review in header.pending_reviews:
            click.echo(f"waits for a decision: {safe(review.question)} ({safe(review.id)})")
        click.echo(f"{header.status}, {shown(header.updated_at)}", err=True)

    shell.put({"session": _summary(header), "entries": [*thread.entries]}, show)


def _said(setting: Setting) -> str | None:
    """A value that somebody asked for."""
    return None if setting.origin in ("default", REPOSITORY) else setting.value


def _summary(header: Header) -> dict[str, Any]:
    written = codec.to_builtins(header)
    return {name: written.get(name) for name in _TOLD}


def _lines(entry: ThreadEntry) -> Iterator[str]:
    """What an entry says, for a person; notes of actions are not shown."""
    said = entry.payload
    match entry.kind:
        case "message":
            if said.get("content"):
                yield f"{said.get('role')}> {said['content']}"
        case "tool_call":
            yield f"  → {said.get('name')} {codec.encode(said.get('params')).decode()}"
        case "tool_result":
            yield f"  ← {said.get('name')}: {said.get('content')}"
        case "error":
            yield f"  ! {said.get('problem') or said.get('error')}"
        case _:
            pass


sessions_command.params += common_options()
sessions_command.add_command(list_command)
sessions_command.add_command(show_command)
