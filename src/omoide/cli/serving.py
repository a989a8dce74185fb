"""How is a memory served to others?"""

from __future__ import annotations

import shlex
import signal
import socket
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from omoide import clock
from omoide.cli.joining import Joined
from omoide.cli.settings import variable
from omoide.cli.shell import Shell, command
from omoide.errors import Invalid, MissingExtra
from omoide.service.addresses import bound, is_everywhere, is_loopback, url_of
from omoide.stores.masking import masked

if TYPE_CHECKING:
    from omoide.stores.local import LocalStore

PORT = 8765
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
        from omoide.web.inspecting import Visitors
    except ModuleNotFoundError as error:
        raise MissingExtra("serving", "server") from error

    with shell.store(create=True, embeds=True) as store, bound(host, port) as listening:
        _check_tokens(shell, store, host)
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


def _check_tokens(shell: Shell, store: LocalStore, host: str) -> None:
    """Refuse to let the whole network in where nobody has a token; say how to make one."""
    import anyio

    from omoide.service import access

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
        from omoide.integrations.mcp.server import create_server
        from omoide.integrations.mcp.serving import PATH, http_app
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
