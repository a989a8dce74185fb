"""How does a server run, and how does it end?

It ends when its client goes, or when the process is told to: by Ctrl-C or SIGTERM.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from threading import current_thread, main_thread

import anyio
import uvicorn
from starlette.applications import Starlette

from omoide.integrations.mcp.guarding import Tokens, allowed_hosts, require_tokens
from omoide.integrations.mcp.server import MemoryServer
from omoide.service.addresses import bound, is_loopback, url_of

PATH = "/mcp"
_PATIENCE_S = 3
_STOPPED = 130
"""The exit code of what was interrupted."""


async def serve_stdio(server: MemoryServer, *, close: Callable[[], object] | None = None) -> None:
    """Talk to one client through standard input and output, until it goes.

    Where the process is told to end before that, `close` is called, and it ends at once.
    """

    def end() -> None:
        if close is not None:
            close()
        os._exit(_STOPPED)  # a thread waits for the next line, and cannot be stopped otherwise

    async with _told_to_end(end):
        await server.run_stdio_async()


def http_app(
    server: MemoryServer, *, host: str = "127.0.0.1", tokens: bool = False, names: Iterable[str] = ()
) -> Starlette:
    """The server as an ASGI application for an address; beyond this machine it always wants tokens.

    `names` are those by which clients call it, beside the address.
    """
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,  # nothing is kept between calls, so that a restart loses nothing
        transport_security=allowed_hosts(host, names),
        host=host,
    )
    if tokens or not is_loopback(host):
        require_tokens(app, Tokens(server.house.store, server.house.scope.namespace))
    return app


async def serve_http(
    server: MemoryServer,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    tokens: bool = False,
    names: Iterable[str] = (),
    ready: Callable[[str], object] = print,
) -> None:
    """Answer over HTTP until the process is told to end; `ready` is told the address."""
    config = uvicorn.Config(
        http_app(server, host=host, tokens=tokens, names=names),
        http="h11",  # the other one hands on the space after a header's value
        log_config=None,
        access_log=False,
        lifespan="on",
        timeout_graceful_shutdown=_PATIENCE_S,
    )
    with bound(host, port) as listening:
        url = f"{url_of(host, listening.getsockname()[1])}{PATH}"
        serving = _Serving(config, lambda: ready(url))
        async with _told_to_end(serving.end):
            await serving.serve(sockets=[listening])


class _Serving(uvicorn.Server):
    """Says when it is ready, and leaves signals to us: it would pass them on when it is done."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], object]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def end(self) -> None:
        """Finish what is being answered, and stop."""
        self.should_exit = True


@asynccontextmanager
async def _told_to_end(end: Callable[[], None]) -> AsyncIterator[None]:
    """Inside the block, a signal to end calls `end`, where this thread may listen to signals."""
    if sys.platform == "win32" or current_thread() is not main_thread():
        yield
        return

    async def listen() -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                end()

    async with anyio.create_task_group() as group:
        group.start_soon(listen)
        yield
        group.cancel_scope.cancel()
