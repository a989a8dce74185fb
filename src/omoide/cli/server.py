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
from omoide.cli.output import print_table, sanitize
from omoide.cli.shell import NOT_FOUND, OK, SETTING_NAMES, CommandContext, command, environment_variable
from omoide.errors import Invalid, MissingExtra
from omoide.integrations.mcp import clients
from omoide.service.auth import bind, is_loopback, is_wildcard, url_of
from omoide.stores.redaction import mask_url

if TYPE_CHECKING:
    from omoide.service.auth import ApiToken
    from omoide.stores.async_store import AsyncStore


# joining: How are several applications served at one address?


ASGIScope = MutableMapping[str, Any]
ASGIApp = Callable[[ASGIScope, Callable[..., Any], Callable[..., Any]], Awaitable[None]]


class PathDispatcher:
    """One application, and another one under a path; the other one lives as long as the first."""

    def __init__(self, first: Any, path: str, other: Any) -> None:
        self._first: ASGIApp = first
        self._path = path
        self._other = other

    async def __call__(self, scope: ASGIScope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Pass a request to the one whose path it is."""
        if scope["type"] == "lifespan":
            async with self._other.router.lifespan_context(self._other):
                await self._first(scope, receive, send)
        elif scope.get("path", "") == self._path:
            await self._other(scope, receive, send)
        else:
            await self._first(scope, receive, send)


# mcp: How does an editor, or another MCP client, use the memory?


DEFAULT_PORT = 8765


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
    "--port",
    type=click.IntRange(0, 65535),
    default=DEFAULT_PORT,
    show_default=True,
    help="0 for any that is free.",
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
def mcp_command(shell: CommandContext, print_config: str | None, **given: Any) -> None:
    """Serve the memory to MCP clients: editors, assistants and agents.

    Without --http one client talks to it through standard input and output. Whose memory it is, is fixed by
    the options below; no client can change it. Beyond this machine it answers only who has a token.
    """
    if print_config is not None:
        _print_config(shell, print_config, given)
        return
    import anyio

    with shell.open_store(create=True, load_embedder=True) as store:
        anyio.run(_serve_mcp, shell, store, given)


async def _serve_mcp(shell: CommandContext, store: Any, options: dict[str, Any]) -> None:
    from omoide.integrations.mcp import create_server, serve_http, serve_stdio

    server = create_server(store, shell.scope, all_tools=options["all_tools"], strict=options["strict"])
    if not options["http"]:
        await serve_stdio(server, close=store.sync.close)
        return
    wanted = _requires_token(options)
    if wanted:
        await _check_namespace_token(store, shell.scope.namespace)

    def ready(url: str) -> None:
        click.echo(f"Listening on {url}", err=True)

    await serve_http(
        server,
        host=options["host"],
        port=options["port"],
        require_token=wanted,
        allowed_hosts=options["allow_host"],
        on_ready=ready,
    )


def _requires_token(options: dict[str, Any]) -> bool:
    from omoide.service.auth import is_loopback

    return options["require_token"] or not is_loopback(options["host"])


async def _check_namespace_token(store: Any, namespace: str) -> None:
    """A server that nobody could use is not begun."""
    from omoide import clock
    from omoide.service import auth as access

    now = clock.now()
    known = await access.list_tokens(store)
    if not any(one.is_live(now) and one.allows("read", namespace) for one in known):
        raise Invalid(
            "token",
            f"that may read {namespace!r} does not exist",
            "make one with omoide.service.auth.create",
        )


def _print_config(shell: CommandContext, name: str, options: dict[str, Any]) -> None:
    chosen = clients.get_client(name)
    url = shell.settings.store.value or ""
    hidden = _has_password(url) and not options["http"]
    if options["http"]:
        url = f"http://{options['host']}:{options['port'] or DEFAULT_PORT}/mcp"
        config = clients.http_config(name, url, with_token=options["require_token"])
    else:
        flags = [f"--{flag.replace('_', '-')}" for flag in ("all_tools", "strict") if options[flag]]
        config = clients.stdio_config(
            name, sys.executable, ["-m", "omoide", "mcp", *flags, *_setting_options(shell)]
        )

    def show() -> None:
        click.echo(f"For {chosen.title}, in {chosen.file}:", err=True)
        if hidden:
            click.echo(
                f"The URL of the store has a password: set {environment_variable('store')} for the client.",
                err=True,
            )
        click.echo(clients.format_config(name, config), nl=False)

    shell.print_result({"client": name, "file": chosen.file, "config": config}, show)


def _setting_options(shell: CommandContext) -> list[str]:
    """The settings that somebody has said, as options: a client starts the server who knows where.

    All but a URL with a password in it, which does not belong into a file that others may see.
    """
    said = [(name, getattr(shell.settings, name)) for name in SETTING_NAMES]
    return [
        f"--{name}={setting.value or ''}"
        for name, setting in said
        if setting.origin.startswith(("--", "OMOIDE_")) and not _has_password(setting.value or "")
    ]


def _has_password(url: str) -> bool:
    """Whether a URL has a password in it."""
    return mask_url(url) != url


# serving: How is a memory served to others?


SHUTDOWN_TIMEOUT = 3
"""How long requests that are under way may take when the service is to end."""
CREATE_TOKEN_COMMAND = "omoide token create NAME --right read --right write"
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
    default=DEFAULT_PORT,
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
def serve_command(shell: CommandContext, host: str, port: int, names: tuple[str, ...]) -> None:
    """Serve the store over HTTP, until Ctrl-C.

    Programs need a token, and people open the address that is printed. Beyond this machine nothing is served
    unless there is a token.
    """
    try:
        import uvicorn

        from omoide.web import create_app
        from omoide.web.inspector import InspectorSessions
    except ModuleNotFoundError as error:
        raise MissingExtra("serving", "server") from error

    with shell.open_store(create=True, load_embedder=True) as store, bind(host, port) as listening:
        _check_any_token(shell, store, host)
        address, port = listening.getsockname()[:2]
        known = {*names} if is_wildcard(address) else {*names, address, f"[{address}]", host}
        visitors = InspectorSessions(shell.scope)
        rest = create_app(store, hosts=known, inspector_sessions=visitors)
        app, mcp = _mount_mcp(rest, store, shell, address, known)
        config = uvicorn.Config(
            app,
            http="h11",  # the other one hands on the space after a header's value
            access_log=False,  # its lines would hold what was asked for
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        )
        url = url_of(address, port)
        here = url_of("127.0.0.1", port) if is_wildcard(address) else url
        look = f"{here}/inspect/enter?key={visitors.create_key()}"
        shown = {"url": url, "inspect": look, "mcp": f"{url}{mcp}" if mcp else None}
        shell.print_result(shown, partial(_print_addresses, shown))
        _run_server(uvicorn.Server(config), listening)
    click.echo("Ended.", err=True)


def _print_addresses(addresses: dict[str, str | None]) -> None:
    click.echo(f"{addresses['url']}  (Ctrl-C ends it)")
    click.echo(f"To look at it, open {addresses['inspect']}")
    if addresses["mcp"]:
        click.echo(f"MCP clients find it at {addresses['mcp']}, with a token")


def _check_any_token(shell: CommandContext, store: AsyncStore, host: str) -> None:
    """Refuse to let the whole network in where nobody has a token; say how to make one."""
    import anyio

    from omoide.service import auth as access

    now = clock.now()
    if any(token.is_live(now) for token in anyio.run(access.list_tokens, store)):
        return
    setting = shell.settings.store
    url = setting.value or ""
    make = (
        CREATE_TOKEN_COMMAND
        if setting.origin == "default"
        else f"{CREATE_TOKEN_COMMAND} --store {shlex.quote(url)}"
    )
    if mask_url(url) != url:  # then it is set again from where it came, and not shown
        make = f"{CREATE_TOKEN_COMMAND}, with {environment_variable('store')} set to the URL of the store"
    if not is_loopback(host):
        raise Invalid(
            "--host", f"is {host!r}, which others can reach, and nobody has a token", f"run: {make}"
        )
    click.echo(f"Nobody has a token yet. To make one: {make}", err=True)


def _mount_mcp(
    app: Any, store: AsyncStore, shell: CommandContext, host: str, names: Iterable[str]
) -> tuple[Any, str]:
    """The application with an MCP server beside it, and its path; as it is where the SDK is not installed."""
    try:
        from omoide.integrations.mcp.server import MCP_PATH, create_server, http_app
    except ModuleNotFoundError:
        return app, ""
    server = create_server(store, shell.scope)
    return PathDispatcher(
        app, MCP_PATH, http_app(server, host=host, require_token=True, allowed_hosts=names)
    ), MCP_PATH


def _run_server(server: Any, listening: socket.socket) -> None:
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
def create_command(
    shell: CommandContext, name: str, rights: tuple[str, ...], named: tuple[str, ...], expires: str | None
) -> None:
    """Make a token called NAME and print its secret, which is shown only this once.

    It holds in the namespace in use, unless others are named.
    """
    import anyio

    from omoide.service import auth as access

    now = clock.now()
    ends = None if expires is None else output.parse_future_time(expires, now, "--expires")
    if ends is not None and ends <= now:
        raise Invalid("--expires", f"is {expires!r}, which is over", "write a time to come, such as 30d")
    where = named or (shell.scope.namespace,)
    with shell.open_store(create=True) as store:
        secret, token = anyio.run(partial(access.create, store, name, rights, where, expires_at=ends))
    shell.print_result({"secret": secret, "token": token}, lambda: click.echo(secret))
    click.echo(f"{token.id}  {_token_summary(token)}", err=True)
    click.echo("Keep the secret: it is shown only this once.", err=True)


@command(
    "list",
    "omoide token list",
)
def list_command(shell: CommandContext) -> int:
    """List all tokens, those that no longer count included, oldest first; no secrets."""
    import anyio

    from omoide.service import auth as access

    with shell.open_store() as store:
        found = anyio.run(access.list_tokens, store)
    now = clock.now()

    def show() -> None:
        print_table(
            ("id", "name", "rights", "namespaces", "made", "ends", "state"),
            [
                (
                    one.id,
                    one.name,
                    ", ".join(one.rights),
                    ", ".join(one.namespaces),
                    output.format_time(one.created_at),
                    output.format_time(one.expires_at),
                    _token_status(one, now),
                )
                for one in found
            ],
        )
        if not found:
            click.echo("Nothing found.", err=True)

    shell.print_result({"tokens": found}, show)
    return OK if found else NOT_FOUND


@command(
    "revoke",
    "omoide token revoke tok_0123",
)
@click.argument("id")
def revoke_command(shell: CommandContext, id: str) -> None:
    """Let a token no longer count, from now on."""
    import anyio

    from omoide.service import auth as access

    with shell.open_store() as store:
        token = anyio.run(access.revoke, store, id)
    shell.print_result(token, lambda: click.echo(f"{sanitize(token.id)}  revoked ({sanitize(token.name)})"))


def _token_status(token: ApiToken, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "in use" if token.is_live(now) else "expired"


def _token_summary(token: ApiToken) -> str:
    until = "" if token.expires_at is None else f", until {output.format_time(token.expires_at)}"
    return sanitize(f"{token.name}: {', '.join(token.rights)} in {', '.join(token.namespaces)}{until}")


token_command.add_command(create_command)
token_command.add_command(list_command)
token_command.add_command(revoke_command)
