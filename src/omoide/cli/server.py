"""The `serve`, `mcp` and `token` commands."""

from __future__ import annotations

import shlex
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from omoide import clock
from omoide.cli import shell
from omoide.cli.shell import (
    NOT_FOUND,
    OK,
    SETTING_NAMES,
    CommandContext,
    command,
    environment_variable,
    print_table,
    run_async,
    sanitize,
)
from omoide.errors import Invalid, MissingExtra
from omoide.integrations.mcp import clients
from omoide.service import auth
from omoide.service.auth import bind, is_loopback, is_wildcard, url_of
from omoide.service.requests import REQUEST_TIMEOUT
from omoide.stores.redaction import mask_url

if TYPE_CHECKING:
    from omoide.service.auth import ApiToken
    from omoide.stores.async_store import AsyncStore


ASGIScope = MutableMapping[str, Any]
ASGIApp = Callable[[ASGIScope, Callable[..., Any], Callable[..., Any]], Awaitable[None]]


class PathDispatcher:
    """ASGI application that sends one path to a second application, whose lifespan it runs as well."""

    def __init__(self, first: Any, path: str, other: Any) -> None:
        self._first: ASGIApp = first
        self._path = path
        self._other = other

    async def __call__(self, scope: ASGIScope, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Pass a request to the application of its path."""
        if scope["type"] == "lifespan":
            async with self._other.router.lifespan_context(self._other):
                await self._first(scope, receive, send)
        elif scope.get("path", "") == self._path:
            await self._other(scope, receive, send)
        else:
            await self._first(scope, receive, send)


DEFAULT_PORT = 8765
_host_option = click.option(
    "--host", default="127.0.0.1", show_default=True, metavar="ADDRESS", help="Where to listen."
)
_port_option = partial(
    click.option, "--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True
)


@command("mcp", "omoide mcp", "omoide mcp --print-config cursor", "omoide mcp --http --port 8765")
@click.option("--all-tools", is_flag=True, help="Offer all tools, not only five.")
@click.option("--strict", is_flag=True, help="Refuse memories that are incomplete or contradict others.")
@click.option("--http", is_flag=True, help="Answer over HTTP instead of standard input and output.")
@_host_option
@_port_option(help="0 for any that is free.")
@click.option("--require-token", is_flag=True, help="Want a token even from this machine.")
@click.option("--allow-host", multiple=True, metavar="NAME", help="A name that clients call it by.")
@click.option(
    "--print-config",
    metavar="CLIENT",
    is_flag=False,
    flag_value="claude-desktop",
    help=f"Print the configuration of a client: {', '.join(clients.CLIENTS)}.",
)
def mcp_command(ctx: CommandContext, print_config: str | None, **options: Any) -> None:
    """Serve the memory to MCP clients: editors, assistants and agents.

    Without --http one client talks to it through standard input and output. Whose memory it is, is fixed by
    the options below; no client can change it. Beyond this machine it answers only who has a token.
    """
    if print_config is not None:
        _print_config(ctx, print_config, options)
        return
    with ctx.open_store(create=True, load_embedder=True) as store:
        run_async(_serve_mcp, ctx, store, options)


async def _serve_mcp(ctx: CommandContext, store: Any, options: dict[str, Any]) -> None:
    from omoide.integrations.mcp import create_server, serve_http, serve_stdio

    server = create_server(store, ctx.scope, all_tools=options["all_tools"], strict=options["strict"])
    if not options["http"]:
        await serve_stdio(server, close=store.sync.close)
        return
    require_token = _requires_token(options)
    if require_token:
        await _check_namespace_token(store, ctx.scope.namespace)

    def ready(url: str) -> None:
        click.echo(f"Listening on {url}", err=True)

    await serve_http(
        server,
        host=options["host"],
        port=options["port"],
        require_token=require_token,
        allowed_hosts=options["allow_host"],
        on_ready=ready,
    )


def _requires_token(options: dict[str, Any]) -> bool:
    return options["require_token"] or not is_loopback(options["host"])


async def _check_namespace_token(store: Any, namespace: str) -> None:
    """Raise if no valid token can read the namespace: nobody could use the server."""
    now = clock.now()
    tokens = await auth.list_tokens(store)
    if not any(token.is_live(now) and token.allows("read", namespace) for token in tokens):
        raise Invalid(
            "token", f"that may read {namespace!r} does not exist", "make one with omoide.service.auth.create"
        )


def _print_config(ctx: CommandContext, name: str, options: dict[str, Any]) -> None:
    client = clients.get_client(name)
    url = ctx.settings.store.value or ""
    hidden = _has_password(url) and not options["http"]
    if options["http"]:
        url = f"http://{options['host']}:{options['port'] or DEFAULT_PORT}/mcp"
        config = clients.http_config(name, url, with_token=options["require_token"])
    else:
        flags = [f"--{flag.replace('_', '-')}" for flag in ("all_tools", "strict") if options[flag]]
        config = clients.stdio_config(
            name, sys.executable, ["-m", "omoide", "mcp", *flags, *_setting_options(ctx)]
        )

    def show() -> None:
        click.echo(f"For {client.title}, in {client.file}:", err=True)
        if hidden:
            click.echo(
                f"The URL of the store has a password: set {environment_variable('store')} for the client.",
                err=True,
            )
        click.echo(clients.format_config(name, config), nl=False)

    ctx.print_result({"client": name, "file": client.file, "config": config}, show)


def _setting_options(ctx: CommandContext) -> list[str]:
    """Return the settings given explicitly, as options for the configuration of an MCP client.

    The client may start the server in any directory. A URL with a password is left out: the configuration
    file may be readable by others.
    """
    settings = [(name, getattr(ctx.settings, name)) for name in SETTING_NAMES]
    return [
        f"--{name}={setting.value or ''}"
        for name, setting in settings
        if setting.origin.startswith(("--", "OMOIDE_")) and not _has_password(setting.value or "")
    ]


def _has_password(url: str) -> bool:
    """Return True if a URL has a password."""
    return mask_url(url) != url


CREATE_TOKEN_COMMAND = "omoide token create NAME --right read --right write"
"""Command line that creates a token."""


@command("serve", "omoide serve", "omoide serve --host 0.0.0.0 --allow-host memory.example.org")
@_host_option
@_port_option(help="The port; 0 for a free one.")
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="A name by which others know this machine; may be repeated.",
)
@click.option(
    "--request-timeout",
    type=click.FloatRange(0, min_open=True),
    default=REQUEST_TIMEOUT,
    show_default=True,
    metavar="SECONDS",
    help="How long a request may take; a later answer is a 504.",
)
def serve_command(
    ctx: CommandContext, host: str, port: int, names: tuple[str, ...], request_timeout: float
) -> None:
    """Serve the store over HTTP, until Ctrl-C.

    Programs need a token, and people open the address that is printed. Beyond this machine nothing is served
    unless there is a token.
    """
    try:
        from omoide.service.connections import Server, server_config
        from omoide.web import InspectorSessions, create_app
    except (MissingExtra, ModuleNotFoundError) as error:
        raise MissingExtra("serving", "server") from error

    with ctx.open_store(create=True, load_embedder=True) as store, bind(host, port) as listener:
        _check_any_token(ctx, store, host)
        address, port = listener.getsockname()[:2]
        hosts = {*names} if is_wildcard(address) else {*names, address, f"[{address}]", host}
        sessions = InspectorSessions(ctx.read_scope)
        rest = create_app(store, hosts=hosts, request_timeout=request_timeout, inspector_sessions=sessions)
        mcp_options = {"host": address, "allowed_hosts": hosts, "request_timeout": request_timeout}
        app, mcp = _mount_mcp(rest, store, ctx, mcp_options)
        url = url_of(address, port)
        here = url_of("127.0.0.1", port) if is_wildcard(address) else url
        inspector_url = f"{here}/inspect/#key={sessions.create_key()}"
        addresses = {"url": url, "inspect": inspector_url, "mcp": f"{url}{mcp}" if mcp else None}
        ctx.print_result(addresses, partial(_print_addresses, addresses))
        _run_server(Server(server_config(app)), listener)
    click.echo("Ended.", err=True)


def _print_addresses(addresses: dict[str, str | None]) -> None:
    click.echo(f"{addresses['url']}  (Ctrl-C ends it)")
    click.echo(f"To look at it, open {addresses['inspect']}")
    if addresses["mcp"]:
        click.echo(f"MCP clients find it at {addresses['mcp']}, with a token")


def _check_any_token(ctx: CommandContext, store: AsyncStore, host: str) -> None:
    """Raise if other machines can reach the address and there is no valid token.

    On a loopback address, print how to create a token instead.
    """
    now = clock.now()
    if any(token.is_live(now) for token in run_async(auth.list_tokens, store)):
        return
    setting = ctx.settings.store
    url = setting.value or ""
    command_line = CREATE_TOKEN_COMMAND
    if _has_password(url):  # never print the password
        command_line += f", with {environment_variable('store')} set to the URL of the store"
    elif setting.origin != "default":
        command_line += f" --store {shlex.quote(url)}"
    if not is_loopback(host):
        raise Invalid(
            "--host", f"is {host!r}, which others can reach, and nobody has a token", f"run: {command_line}"
        )
    click.echo(f"Nobody has a token yet. To make one: {command_line}", err=True)


def _mount_mcp(app: Any, store: AsyncStore, ctx: CommandContext, options: dict[str, Any]) -> tuple[Any, str]:
    """Return the application with an MCP server mounted, and its path.

    If the SDK is not installed, the application is returned as it is, with an empty path.
    """
    try:
        from omoide.integrations.mcp import MCP_PATH, create_server, http_app
    except MissingExtra:
        return app, ""
    server = create_server(store, ctx.scope)
    return PathDispatcher(app, MCP_PATH, http_app(server, require_token=True, **options)), MCP_PATH


def _run_server(server: Any, listener: socket.socket) -> None:
    """Serve until SIGINT or SIGTERM, which is a normal end."""
    # Uvicorn finishes the requests under way, then raises the signal again. As KeyboardInterrupt it is caught
    # here, and the store is closed.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listener])


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
    ctx: CommandContext, name: str, rights: tuple[str, ...], named: tuple[str, ...], expires: str | None
) -> None:
    """Make a token called NAME and print its secret, which is shown only this once.

    It holds in the namespace in use, unless others are named.
    """
    now = clock.now()
    expires_at = None if expires is None else shell.parse_future_time(expires, now, "--expires")
    if expires_at is not None and expires_at <= now:
        raise Invalid("--expires", f"is {expires!r}, which is over", "write a time to come, such as 30d")
    namespaces = named or (ctx.scope.namespace,)
    with ctx.open_store(create=True) as store:
        secret, token = run_async(auth.create, store, name, rights, namespaces, expires_at=expires_at)
    ctx.print_result({"secret": secret, "token": token}, lambda: click.echo(secret))
    click.echo(f"{token.id}  {_token_summary(token)}", err=True)
    click.echo("Keep the secret: it is shown only this once.", err=True)


@command("list", "omoide token list")
def list_command(ctx: CommandContext) -> int:
    """List all tokens, those that no longer count included, oldest first; no secrets."""
    with ctx.open_store() as store:
        tokens = run_async(auth.list_tokens, store)
    now = clock.now()

    def show() -> None:
        print_table(
            ("id", "name", "rights", "namespaces", "made", "ends", "state"),
            [
                (
                    token.id,
                    token.name,
                    ", ".join(token.rights),
                    ", ".join(token.namespaces),
                    shell.format_time(token.created_at),
                    shell.format_time(token.expires_at),
                    _token_status(token, now),
                )
                for token in tokens
            ],
        )
        if not tokens:
            click.echo("Nothing found.", err=True)

    ctx.print_result({"tokens": tokens}, show)
    return OK if tokens else NOT_FOUND


@command("revoke", "omoide token revoke tok_0123")
@click.argument("id")
def revoke_command(ctx: CommandContext, id: str) -> None:
    """Let a token no longer count, from now on."""
    with ctx.open_store() as store:
        token = run_async(auth.revoke, store, id)
    ctx.print_result(token, lambda: click.echo(f"{sanitize(token.id)}  revoked ({sanitize(token.name)})"))


def _token_status(token: ApiToken, now: int) -> str:
    if token.revoked_at is not None:
        return "revoked"
    return "in use" if token.is_live(now) else "expired"


def _token_summary(token: ApiToken) -> str:
    until = "" if token.expires_at is None else f", until {shell.format_time(token.expires_at)}"
    return sanitize(f"{token.name}: {', '.join(token.rights)} in {', '.join(token.namespaces)}{until}")


token_command.add_command(create_command)
token_command.add_command(list_command)
token_command.add_command(revoke_command)
