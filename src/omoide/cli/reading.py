"""What is in the store?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from omoide.cli.failing import NOTHING, OK
from omoide.cli.moments import shown
from omoide.cli.printing import ROW, clipped, put_fields, put_rows
from omoide.cli.recalling import filter_of, filter_options
from omoide.cli.shell import NUMBER, Shell, command
from omoide.core.entry import DELETED, Entry
from omoide.core.scope import Scope
from omoide.stores.records import Query, Version

if TYPE_CHECKING:
    from omoide.stores.local import LocalStore


@command(
    "list",
    "omoide list --type decision --since 7d",
    "omoide list --json | jq -r '.entries[].content'",
)
@click.option("--limit", type=NUMBER, default=50, show_default=True, metavar="N", help="At most so many.")
@click.option("--cursor", help="Where the next page begins, as the page before told.")
@filter_options
@click.option("--forgotten", is_flag=True, help="With those that were forgotten or replaced.")
@click.option("--expired", is_flag=True, help="With those that have expired.")
@click.option("--stale", is_flag=True, help="With those that rest on something which no longer holds.")
def list_command(
    shell: Shell, limit: int, cursor: str | None, forgotten: bool, expired: bool, stale: bool, **given: Any
) -> int:
    """List memories, newest first.

    Of a long one the beginning is shown; `omoide show ID` and --json tell all of it.
    """
    chosen = filter_of(given, include_superseded=forgotten, include_expired=expired, include_stale=stale)
    with shell.store() as store:
        page = store.sync.query(Query.new(scope=shell.scope, filter=chosen, limit=limit, cursor=cursor))

    def show() -> None:
        put_rows(
            ("id", "when", "type", "content"),
            [
                (entry.id, shown(_time(entry)), entry.type or "", clipped(marked(entry), ROW))
                for entry in page.entries
            ],
        )
        if page.cursor is not None:
            click.echo(f"There are more: --cursor {page.cursor}", err=True)
        if not page.entries:
            shell.put_nothing()

    shell.put(page, show)
    return OK if page.entries else NOTHING


@command(
    "show",
    "omoide show mem_0123",
)
@click.argument("id")
def show_command(shell: Shell, id: str) -> None:
    """Show one memory with everything that is known of it."""
    with shell.store() as store:
        entry = store.sync.get(id, shell.scope)
        links = store.sync.links(id, shell.scope)
        access = store.sync.access(id, shell.scope)
        chains = _chains(store, entry, shell.scope) if entry.stale else []

    def show() -> None:
        put_fields({**_fields(entry), "stale": "; ".join(chains)})
        put_fields({f"{link.source} {link.relation}": link.target for link in links})
        if access.count:
            put_fields({"recalled": f"{access.count} times, last {shown(access.last)}"})

    shell.put({"entry": entry, "links": links, "access": access}, show)


@command(
    "history",
    "omoide history mem_0123",
)
@click.argument("id")
def history_command(shell: Shell, id: str) -> None:
    """Show the versions of a memory, oldest first."""
    with shell.store() as store:
        versions = store.sync.history(id, shell.scope)
    shell.put(
        {"versions": versions},
        lambda: put_rows(
            ("rev", "when", "content"),
            [(str(version.rev), shown(version.at), _told(version)) for version in versions],
        ),
    )


def _chains(store: LocalStore, entry: Entry, scope: Scope) -> list[str]:
    """Why a memory no longer holds, in words."""
    import anyio

    from omoide.longterm.staleness import why_stale

    return [str(chain) for chain in anyio.run(why_stale, store, entry.id, scope)]


def _time(entry: Entry) -> int:
    return entry.created_at if entry.occurred_at is None else entry.occurred_at


def marked(entry: Entry) -> str:
    """What a memory says, and before it that it no longer counts, if that is so."""
    marks = [] if entry.superseded_by is None else [_ending(entry)]
    if entry.stale:
        marks.append("stale")
    return f"({', '.join(marks)}) {entry.content}" if marks else entry.content


def _ending(entry: Entry) -> str:
    how = "forgotten" if entry.superseded_by == DELETED else f"replaced by {entry.superseded_by}"
    return how if entry.superseded_reason is None else f"{how}: {entry.superseded_reason}"


def _told(version: Version) -> str:
    if version.entry is None:
        return "erased" if version.reason is None else f"erased: {version.reason}"
    return marked(version.entry)


def _fields(entry: Entry) -> dict[str, str]:
    message = entry.message
    return {
        "id": entry.id,
        "content": entry.content,
        "type": entry.type or "",
        "confidence": f"{entry.confidence:g}",
        "importance": "" if entry.importance is None else f"{entry.importance:g}",
        "source": entry.source or "",
        "tags": ", ".join(entry.tags),
        "rationale": entry.rationale or "",
        "namespace": entry.namespace,
        "agent": entry.agent_id,
        "project": entry.project_id or "",
        "session": entry.session_id or "",
        "message": ""
        if message is None
        else f"{message.thread} #{message.seq} {message.speaker or message.role or ''}",
        "evidence": ", ".join(f"{evidence.kind} {evidence.ref}" for evidence in entry.evidence),
        "created": shown(entry.created_at),
        "occurred": shown(entry.occurred_at),
        "expires": shown(entry.expires_at),
        "forgotten": "" if entry.superseded_by is None else f"{shown(entry.superseded_at)}, {_ending(entry)}",
        "rev": str(entry.rev),
        "metadata": "" if not entry.metadata else str(dict(entry.metadata)),
    }
