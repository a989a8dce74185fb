"""Serve, mcp, token."""

from __future__ import annotations

import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from omoide import clock
from omoide.cli import output
from omoide.cli.output import put_rows, safe
from omoide.cli.shell import NAMES, NOTHING, OK, Shell, command, variable
from omoide.errors import Invalid, MissingExtra
from omoide.integrations.mcp import clients
from omoide.service.auth import bound, is_everywhere, is_loopback, url_of
from omoide.stores.redaction import masked

if TYPE_CHECKING:
    from omoide.service.auth import Token
    from omoide.stores.async_store import LocalStore


# joining: How are several applications served at one address?


Asked = MutableMapping[str, Any]
Application = Callable[[Asked, Callable[..., Any], Callable[..., Any]], Awaitable[None]]


class Joined:
    """One application, and another one under a path; the other one lives as long as the first."""

    def __init__(self, first: Any, path: str, other: Any) -> None:
        self._first: Application = first
        self._path = path
        self._other = other

    async def __call__(self, scope: Asked, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Pass a request to the one whose path it is."""
        if scope["type"] == "lifespan":
            async with self._other.router.lifespan_context(self._other):
                await self._first(scope, receive, send)
        elif scope.get("path", "") == self._path:
            await self._other(scope, receive, send)
        else:
            await self._first(scope, receive, send)


# mcp: How does an editor, or another MCP client, use the memory?


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
    from omoide.service.auth import is_loopback

    return given["require_token"] or not is_loopback(given["host"])


async def _check_tokens(store: Any, namespace: str) -> None:
    """A server that nobody could use is not begun."""
    from omoide import clock
    from omoide.service import auth as access

    now = clock.now()
    known = await access.tokens(store)
    if not any(one.is_live(now) and one.allows("read", namespace) for one in known):
        raise Invalid(
            "token",
            f"that may read {namespace!r} does not exist",
            "make one with omoide.service.auth.create",
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


# serving: How is a memory served to others?


LAST_SECONDS = 3
"""How long requests that are under way may take when the service is to end."""
MAKE = "omoide token create NAME --right read --right write"
"""What makes a token."""


@command(
    "serve",
    "omoide serve",
    "omoide serve --host 0.0.0.0 --allow-host memory.example.org",
)
@click.option("--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen.")
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    default=PORT,
    show_default=True,
    help="The port; 0 for a free one.",
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="A name by which others know this machine; may be repeated.",
)
def serve_command(shell: Shell, host: str, port: int, names: tuple[str, ...]) -> None:
    """Serve the store over HTTP, until Ctrl-C.

    Programs need a token, and people open the address that is printed. Beyond this machine nothing is served
    unless there is a token.
    """
    try:
        import uvicorn

        from omoide.web import create_app
        from omoide.web.inspector import Visitors
    except ModuleNotFoundError as error:
        raise MissingExtra("serving", "server") from error

    with shell.store(create=True, embeds=True) as store, bound(host, port) as listening:
        _serving_check_tokens(shell, store, host)
        address, port = listening.getsockname()[:2]
        known = {*names} if is_everywhere(address) else {*names, address, f"[{address}]", host}
        visitors = Visitors(shell.scope)
        rest = create_app(store, hosts=known, visitors=visitors)
        app, mcp = _with_mcp(rest, store, shell, address, known)
        config = uvicorn.Config(
            app,
            http="h11",  # the other one hands on the space after a header's value
            access_log=False,  # its lines would hold what was asked for
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=LAST_SECONDS,
        )
        url = url_of(address, port)
        here = url_of("127.0.0.1", port) if is_everywhere(address) else url
        look = f"{here}/inspect/enter?key={visitors.invite()}"
        shown = {"url": url, "inspect": look, "mcp": f"{url}{mcp}" if mcp else None}
        shell.put(shown, partial(_show, shown))
        _run(uvicorn.Server(config), listening)
    click.echo("Ended.", err=True)


def _show(shown: dict[str, str | None]) -> None:
    click.echo(f"{shown['url']}  (Ctrl-C ends it)")
    click.echo(f"To look at it, open {shown['inspect']}")
    if shown["mcp"]:
        click.echo(f"MCP clients find it at {shown['mcp']}, with a token")


def _serving_check_tokens(shell: Shell, store: LocalStore, host: str) -> None:
    """Refuse to let the whole network in where nobody has a token; say how to make one."""
    import anyio

    from omoide.service import auth as access

    now = clock.now()
    if any(token.is_live(now) for token in anyio.run(access.tokens, store)):
        return
    setting = shell.settings.store
    url = setting.value or ""
    make = MAKE if setting.origin == "default" else f"{MAKE} --store {shlex.quote(url)}"
    if masked(url) != url:  # then it is set again from where it came, and not shown
        make = f"{MAKE}, with {variable('store')} set to the URL of the store"
    if not is_loopback(host):
        raise Invalid(
            "--host", f"is {host!r}, which others can reach, and nobody has a token", f"run: {make}"
        )
    click.echo(f"Nobody has a token yet. To make one: {make}", err=True)


def _with_mcp(app: Any, store: LocalStore, shell: Shell, host: str, names: Iterable[str]) -> tuple[Any, str]:
    """The application with an MCP server beside it, and its path; as it is where the SDK is not installed."""
    try:
        from omoide.integrations.mcp.server import PATH, create_server, http_app
    except ModuleNotFoundError:
        return app, ""
    server = create_server(store, shell.scope)
    return Joined(app, PATH, http_app(server, host=host, tokens=True, names=names)), PATH


def _run(server: Any, listening: socket.socket) -> None:
    """Serve until a signal comes; that is how it is meant to end, and no failure."""
    # The server finishes what is under way and then raises the signal again: it must not end the process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])


# tokens: Who may use the store from outside, and who no longer?


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

    from omoide.service import auth as access

    now = clock.now()
    ends = None if expires is None else output.after(expires, now, "--expires")
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

    from omoide.service import auth as access

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
                    output.shown(one.created_at),
                    output.shown(one.expires_at),
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

    from omoide.service import auth as access

    with shell.store() as store:
        token = anyio.run(access.revoke, store, id)
    shell.put(token, lambda: click.echo(f"{safe(token.id)}  revoked ({safe(token.name)})"))


def _state(token: Token, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "in use" if token.is_live(now) else "expired"


def _allowed(token: Token) -> str:
    until = "" if token.expires_at is None else f", until {output.shown(token.expires_at)}"
    return safe(f"{token.name}: {', '.join(token.rights)} in {', '.join(token.namespaces)}{until}")


token_command.add_command(create)
token_command.add_command(list_tokens)
token_command.add_command(revoke)
