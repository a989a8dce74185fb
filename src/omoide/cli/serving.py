"""How is a memory served to others?"""

from __future__ import annotations

import shlex
import signal
import socket
from contextlib import suppress
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import click

from omoide import clock
from omoide.cli.shell import Shell, command
from omoide.errors import Invalid, MissingExtra

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

    with shell.store(create=True, embeds=True) as store, _listening(host, port) as listening:
        _check_tokens(shell, store, host)
        address, port = listening.getsockname()[:2]
        known = {*names} if _is_everywhere(address) else {*names, address, f"[{address}]", host}
        visitors = Visitors(shell.scope)
        config = uvicorn.Config(
            create_app(store, hosts=known, visitors=visitors),
            access_log=False,  # its lines would hold what was asked for
            log_config=None,
            server_header=False,
            timeout_graceful_shutdown=LAST_SECONDS,
        )
        url = _url(address, port)
        here = _url("127.0.0.1", port) if _is_everywhere(address) else url
        look = f"{here}/inspect/enter?key={visitors.invite()}"
        shell.put(
            {"url": url, "inspect": look},
            lambda: click.echo(f"{url}  (Ctrl-C ends it)\nTo look at it, open {look}"),
        )
        _run(uvicorn.Server(config), listening)
    click.echo("Ended.", err=True)


def _check_tokens(shell: Shell, store: LocalStore, host: str) -> None:
    """Refuse to let the whole network in where nobody has a token; say how to make one."""
    import anyio

    from omoide.service import access

    now = clock.now()
    if any(token.is_live(now) for token in anyio.run(access.tokens, store)):
        return
    setting = shell.settings.store
    make = MAKE if setting.origin == "default" else f"{MAKE} --store {shlex.quote(setting.value or '')}"
    if not _is_loopback(host):
        raise Invalid(
            "--host", f"is {host!r}, which others can reach, and nobody has a token", f"run: {make}"
        )
    click.echo(f"Nobody has a token yet. To make one: {make}", err=True)


def _listening(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise Invalid("--host, --port", f"cannot be used ({problem})", "choose others") from error


def _url(address: str, port: int) -> str:
    return f"http://[{address}]:{port}" if ":" in address else f"http://{address}:{port}"


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_address(host) and ip_address(host).is_loopback)


def _is_everywhere(host: str) -> bool:
    return _is_address(host) and ip_address(host).is_unspecified


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _run(server: Any, listening: socket.socket) -> None:
    """Serve until a signal comes; that is how it is meant to end, and no failure."""
    # The server finishes what is under way and then raises the signal again: it must not end the process.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        server.run(sockets=[listening])
