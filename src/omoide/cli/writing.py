"""How are memories written, forgotten and brought back from a shell?"""

from __future__ import annotations

import sys
from typing import Any

import click

from omoide import clock
from omoide.cli import moments
from omoide.cli.printing import clipped
from omoide.cli.shell import NUMBER, Shell, command
from omoide.core.entry import SOURCES, Entry
from omoide.core.memory_types import MEMORY_TYPES
from omoide.errors import Invalid


@command(
    "remember",
    'omoide remember "User prefers the name Alex." --type fact --confidence 0.9',
    "git log -1 --format=%B | omoide remember - --type decision --tag release",
    'omoide remember "The staging server is down." --expires 2h',
)
@click.argument("text")
@click.option(
    "--type", type=click.Choice(MEMORY_TYPES), metavar="TYPE", help="Its kind: fact, decision, convention, …"
)
@click.option("--tag", "tags", multiple=True, help="A tag; may be repeated.")
@click.option("--confidence", type=float, help="How sure it is, from 0 to 1.")
@click.option("--importance", type=float, help="How much it matters, from 0 to 1.")
@click.option("--source", type=click.Choice(SOURCES), help="Where it comes from.")
@click.option("--rationale", help="Why it is so.")
@click.option("--at", metavar="WHEN", help="When it happened: a date, a time, or 2d for two days ago.")
@click.option("--expires", metavar="WHEN", help="When it ends: a date, a time, or 7d for in a week.")
@click.option("--supersedes", metavar="ID", help="The memory that it replaces.")
@click.option("--id", help="Its id; a stored one with that id gets a new revision.")
@click.option("--expected-rev", type=NUMBER, metavar="N", help="The revision stored now; 0 for none.")
@click.option("--idempotency-key", metavar="KEY", help="Repeating the command with it changes nothing.")
@click.option("--dedupe/--no-dedupe", default=None, help="Whether the same words are stored only once.")
def remember_command(
    shell: Shell, text: str, tags: tuple[str, ...], at: str | None, expires: str | None, **given: Any
) -> None:
    """Store TEXT as a memory; - reads standard input."""
    from omoide import blocking

    now = clock.now()
    fields = {name: value for name, value in given.items() if value is not None}
    if at is not None:
        fields["occurred_at"] = moments.before(at, now, "--at")
    if expires is not None:
        fields["expires_at"] = moments.after(expires, now, "--expires")
    content = from_stdin() if text == "-" else text
    with shell.store(create=True, embeds=True) as store:
        receipt = blocking.remember(store, content, shell.scope, tags=tags, **fields)
    shell.put(
        {"outcome": receipt.outcome, "entry": receipt.entry, "notices": receipt.notices},
        lambda: click.echo(f"{receipt.entry.id}  {receipt.outcome}, rev {receipt.entry.rev}"),
    )


@command(
    "forget",
    'omoide forget mem_0123 --reason "moved to another city"',
)
@click.argument("id")
@click.option("--reason", help="Why; it is kept with the memory.")
@click.option("--replacement", metavar="ID", help="The memory that takes its place.")
@click.option("--expected-rev", type=NUMBER, metavar="N", help="The revision stored now.")
def forget_command(shell: Shell, id: str, **given: Any) -> None:
    """Take a memory out of recall; restore brings it back."""
    from omoide import blocking

    with shell.store() as store:
        entry = blocking.forget(store, id, shell.scope, **_said(given))
    shell.put(entry, lambda: _changed("forgotten", entry))


@command(
    "restore",
    "omoide restore mem_0123",
)
@click.argument("id")
@click.option("--expected-rev", type=NUMBER, metavar="N", help="The revision stored now.")
def restore_command(shell: Shell, id: str, **given: Any) -> None:
    """Bring a forgotten memory back."""
    from omoide import blocking

    with shell.store() as store:
        before = store.sync.get(id, shell.scope)
        entry = blocking.restore(store, id, shell.scope, **_said(given))
    outcome = "restored" if entry.rev != before.rev else "unchanged, it was not forgotten"
    shell.put(entry, lambda: _changed(outcome, entry))


def from_stdin() -> str:
    """What standard input holds, without the end of its last line."""
    try:
        return sys.stdin.buffer.read().decode().rstrip("\n")
    except UnicodeDecodeError as error:
        raise Invalid("standard input", "is not UTF-8", "convert it first") from error


def _said(given: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in given.items() if value is not None}


def _changed(what: str, entry: Entry) -> None:
    click.echo(f"{entry.id}  {what}, rev {entry.rev}: {clipped(entry.content, 60)}")
