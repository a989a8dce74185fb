"""Who may use the store from outside, and who no longer?"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import click

from omoide import clock
from omoide.cli import moments
from omoide.cli.failing import NOTHING, OK
from omoide.cli.printing import put_rows, safe
from omoide.cli.shell import Shell, command
from omoide.errors import Invalid

if TYPE_CHECKING:
    from omoide.service.access import Token


@click.group("token")
def token_command() -> None:
    """Make, list and revoke the tokens with which others use the store."""


@command(
    "create",
    "omoide token create dashboard --right read",
    "omoide token create crew --right read --right write --namespace team --expires 30d",
)
@click.argument("name")
@click.option(
    "--right",
    "rights",
    multiple=True,
    required=True,
    metavar="RIGHT",
    help="read, write, erase or admin; may be repeated.",
)
@click.option(
    "--namespace", "named", multiple=True, metavar="NAME", help="Where; may be repeated. '*' is everywhere."
)
@click.option("--expires", metavar="WHEN", help="When it ends: a date, a time, or 30d for in thirty days.")
def create(
    shell: Shell, name: str, rights: tuple[str, ...], named: tuple[str, ...], expires: str | None
) -> None:
    """Make a token called NAME and print its secret, which is shown only this once.

    It holds in the namespace in use, unless others are named.
    """
    import anyio

    from omoide.service import access

    now = clock.now()
    ends = None if expires is None else moments.after(expires, now, "--expires")
    if ends is not None and ends <= now:
        raise Invalid("--expires", f"is {expires!r}, which is over", "write a time to come, such as 30d")
    where = named or (shell.scope.namespace,)
    with shell.store(create=True) as store:
        secret, token = anyio.run(partial(access.create, store, name, rights, where, expires_at=ends))
    shell.put({"secret": secret, "token": token}, lambda: click.echo(secret))
    click.echo(f"{token.id}  {_allowed(token)}", err=True)
    click.echo("Keep the secret: it is shown only this once.", err=True)


@command(
    "list",
    "omoide token list",
)
def list_tokens(shell: Shell) -> int:
    """List all tokens, those that no longer count included, oldest first; no secrets."""
    import anyio

    from omoide.service import access

    with shell.store() as store:
        found = anyio.run(access.tokens, store)
    now = clock.now()

    def show() -> None:
        put_rows(
            ("id", "name", "rights", "namespaces", "made", "ends", "state"),
            [
                (
                    one.id,
                    one.name,
                    ", ".join(one.rights),
                    ", ".join(one.namespaces),
                    moments.shown(one.created_at),
                    moments.shown(one.expires_at),
                    _state(one, now),
                )
                for one in found
            ],
        )
        if not found:
            click.echo("Nothing found.", err=True)

    shell.put({"tokens": found}, show)
    return OK if found else NOTHING


@command(
    "revoke",
    "omoide token revoke tok_0123",
)
@click.argument("id")
def revoke(shell: Shell, id: str) -> None:
    """Let a token no longer count, from now on."""
    import anyio

    from omoide.service import access

    with shell.store() as store:
        token = anyio.run(access.revoke, store, id)
    shell.put(token, lambda: click.echo(f"{safe(token.id)}  revoked ({safe(token.name)})"))


def _state(token: Token, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "in use" if token.is_live(now) else "expired"


def _allowed(token: Token) -> str:
    until = "" if token.expires_at is None else f", until {moments.shown(token.expires_at)}"
    return safe(f"{token.name}: {', '.join(token.rights)} in {', '.join(token.namespaces)}{until}")


token_command.add_command(create)
token_command.add_command(list_tokens)
token_command.add_command(revoke)
