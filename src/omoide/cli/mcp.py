"""How does an editor, or another MCP client, use the memory?"""

from __future__ import annotations

import sys
from typing import Any

import click

from omoide.cli.settings import NAMES, variable
from omoide.cli.shell import Shell, command
from omoide.errors import Invalid
from omoide.integrations.mcp import clients
from omoide.stores.masking import masked

PORT = 8765


@command(
    "mcp",
    "omoide mcp",
    "omoide mcp --print-config cursor",
    "omoide mcp --http --port 8765",
)
@click.option("--all-tools", is_flag=True, help="Offer all tools, not only five.")
@click.option("--strict", is_flag=True, help="Refuse memories that are incomplete or contradict others.")
@click.option("--http", is_flag=True, help="Answer over HTTP instead of standard input and output.")
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="0 for any that is free."
)
@click.option("--require-token", is_flag=True, help="Want a token even from this machine.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name that clients call it by.")
@click.option(
    "--print-config",
    metavar="CLIENT",
    is_flag=False,
    flag_value="claude-desktop",
    help=f"Print what a client has to be told: {', '.join(clients.CLIENTS)}.",
)
def mcp_command(shell: Shell, print_config: str | None, **given: Any) -> None:
    """Serve the memory to MCP clients: editors, assistants and agents.

    Without --http one client talks to it through standard input and output. Whose memory it is, is fixed by
    the options below; no client can change it. Beyond this machine it answers only who has a token.
    """
    if print_config is not None:
        _print(shell, print_config, given)
        return
    import anyio

    with shell.store(create=True, embeds=True) as store:
        anyio.run(_served, shell, store, given)


async def _served(shell: Shell, store: Any, given: dict[str, Any]) -> None:
    from omoide.integrations.mcp import create_server, serve_http, serve_stdio

    server = create_server(store, shell.scope, all_tools=given["all_tools"], strict=given["strict"])
    if not given["http"]:
        await serve_stdio(server, close=store.sync.close)
        return
    wanted = _tokens(given)
    if wanted:
        await _check_tokens(store, shell.scope.namespace)

    def ready(url: str) -> None:
        click.echo(f"Listening on {url}", err=True)

    await serve_http(
        server,
        host=given["host"],
        port=given["port"],
        tokens=wanted,
        names=given["allow_host"],
        ready=ready,
    )


def _tokens(given: dict[str, Any]) -> bool:
    from omoide.service.addresses import is_loopback

    return given["require_token"] or not is_loopback(given["host"])


async def _check_tokens(store: Any, namespace: str) -> None:
    """A server that nobody could use is not begun."""
    from omoide import clock
    from omoide.service import access

    now = clock.now()
    known = await access.tokens(store)
    if not any(one.is_live(now) and one.allows("read", namespace) for one in known):
        raise Invalid(
            "token",
            f"that may read {namespace!r} does not exist",
            "make one with omoide.service.access.create",
        )


def _print(shell: Shell, name: str, given: dict[str, Any]) -> None:
    chosen = clients.client(name)
    url = shell.settings.store.value or ""
    hidden = _is_secret(url) and not given["http"]
    if given["http"]:
        url = f"http://{given['host']}:{given['port'] or PORT}/mcp"
        config = clients.over_http(name, url, token=given["require_token"])
    else:
        flags = [f"--{flag.replace('_', '-')}" for flag in ("all_tools", "strict") if given[flag]]
        config = clients.over_stdio(name, sys.executable, ["-m", "omoide", "mcp", *flags, *_said(shell)])

    def show() -> None:
        click.echo(f"For {chosen.title}, in {chosen.file}:", err=True)
        if hidden:
            click.echo(
                f"The URL of the store has a password: set {variable('store')} for the client.", err=True
            )
        click.echo(clients.written(name, config), nl=False)

    shell.put({"client": name, "file": chosen.file, "config": config}, show)


def _said(shell: Shell) -> list[str]:
    """The settings that somebody has said, as options: a client starts the server who knows where.

    All but a URL with a password in it, which does not belong into a file that others may see.
    """
    said = [(name, getattr(shell.settings, name)) for name in NAMES]
    return [
        f"--{name}={setting.value or ''}"
        for name, setting in said
        if setting.origin.startswith(("--", "OMOIDE_")) and not _is_secret(setting.value or "")
    ]


def _is_secret(url: str) -> bool:
    """Whether a URL has a password in it."""
    return masked(url) != url
