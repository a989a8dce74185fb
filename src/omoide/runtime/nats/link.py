"""Is there a connection to NATS?

The link holds one connection. When it breaks it is made again, on the same server or on another one of the
cluster; whoever waits for something is told, and asks again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeVar
from urllib.parse import urlsplit

import anyio
from anyio import CancelScope, current_time, fail_after, move_on_after

from omoide.errors import MissingExtra, ServiceFailed
from omoide.runtime.nats import failures
from omoide.runtime.nats.settings import Settings, servers, shown

PAUSE_S = 0.1
"""How long to wait before something that failed is tried again."""

AGAIN_S = 0.2
LOOK_S = 0.25
PING_S = 5.0
ANSWER_S = 5.0
"""How long one question may take before it is asked again."""

_TLS = (b'"tls_required":true', b'"tls_available":true')

log = logging.getLogger("omoide.runtime")

T = TypeVar("T")


class Link:
    """One connection at a time, from `open` to `close`.

    nats-py could connect again by itself; it is not let do so, because what it does then leaves sockets open,
    and cannot be told from a connection that works. A new client is made instead.
    """

    def __init__(self, url: Any, settings: Settings, options: dict[str, Any]) -> None:
        self._addresses = servers(url)
        self.where = shown(self._addresses)
        self._settings = settings
        self._options = options
        self._client: Any = None
        self._js: Any = None
        self._up = anyio.Event()
        self._lost = anyio.Event()
        self._waiting: set[CancelScope] = set()
        self._closing = False

    @property
    def client(self) -> Any:
        """The connection of the moment."""
        return self._client

    @property
    def largest(self) -> int:
        """How many bytes the server takes at once."""
        return int(self._client.max_payload)

    @property
    def keeps(self) -> bool:
        """Whether the server that we are connected to says that it has JetStream."""
        return bool(self._client._server_info.get("jetstream"))

    async def open(self) -> None:
        """Connect, within the time that was set."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            raise failures.wrong_loop() from None
        await self._connect(self._settings.connect)

    async def run(self) -> None:
        """Connect anew whenever the connection breaks, for as long as it takes."""
        while not self._closing:
            with move_on_after(LOOK_S):
                await self._lost.wait()
            if self._client.is_connected:
                continue
            # A client that fails while it closes does not say that it has.
            self._broke()
            try:
                await self._connect(self._settings.connect)
            except Exception as error:
                log.warning("nats: %s", error)
                await anyio.sleep(AGAIN_S)

    async def close(self) -> None:
        """Let go of the connection."""
        self._closing = True
        if self._client is not None:
            await self._client.close()

    async def up(self) -> None:
        """Return when there is a connection."""
        await self._up.wait()

    @contextmanager
    def until_changed(self) -> Iterator[CancelScope]:
        """A block that is left at once when the connection breaks."""
        with CancelScope() as scope:
            self._waiting.add(scope)
            try:
                yield scope
            finally:
                self._waiting.discard(scope)

    async def asked(self, call: Callable[[Any], Awaitable[T]], *, within: float | None = None) -> T:
        """What a question to JetStream gives; it is asked again while that may help, and not for ever."""
        seconds = self._settings.patience if within is None else within
        deadline, last = current_time() + seconds, None
        while (left := deadline - current_time()) > 0:
            try:
                with fail_after(left):
                    await self.up()
                    with self.until_changed():
                        return await call(self._js)
            except Exception as error:
                if not failures.is_passing(error):
                    raise failures.mapped(error, self.where) from error
                last = error
            await anyio.sleep(min(PAUSE_S, max(left, 0)))
        why = "no connection" if last is None else failures.said(last)
        raise failures.unreachable(self.where, f"did not do it within {seconds:g} s ({why})") from last

    async def _connect(self, within: float) -> None:
        """Connect to any of the servers; whoever is turned away is not let in by asking again."""
        deadline, last = current_time() + within, None
        while not self._closing and (left := deadline - current_time()) > 0:
            client = self._made()
            try:
                with fail_after(left):
                    await self._check_tls()
                    await client.connect(self._addresses, closed_cb=self._ending(client), **self._how(left))
                self._lost = anyio.Event()
                self._client, self._js = client, client.jetstream(timeout=ANSWER_S)
                self._up.set()
                return
            except BaseException as error:
                with CancelScope(shield=True), suppress(Exception):
                    await client.close()
                if not isinstance(error, Exception):
                    raise
                if isinstance(error, ServiceFailed):
                    raise
                if failures.is_sign_in(error):
                    raise failures.mapped(error, self.where) from error
                last = error
            await anyio.sleep(min(AGAIN_S, max(0.0, deadline - current_time())))
        why = "no answer" if last is None else failures.said(last)
        raise failures.unreachable(self.where, f"cannot be reached within {within:g} s ({why})") from last

    async def _check_tls(self) -> None:
        """Raise where TLS is wanted and a server has none: nats-py would sign in without it."""
        for address in self._addresses:
            parts = urlsplit(address)
            if parts.scheme != "tls" and "tls" not in self._options:
                continue
            try:
                reader, writer = await asyncio.open_connection(parts.hostname, parts.port or 4222)
            except OSError:
                continue  # one that is not there learns nothing
            try:
                told = await reader.readline()
            finally:
                writer.close()
            if not any(sign in told for sign in _TLS):
                raise failures.no_tls(self.where)

    def _made(self) -> Any:
        try:
            from nats.aio.client import Client
        except ImportError as error:
            raise MissingExtra("nats://", "nats") from error
        return Client()

    def _how(self, left: float) -> dict[str, Any]:
        return {
            "allow_reconnect": False,
            "max_reconnect_attempts": 1,
            "reconnect_time_wait": 0.01,
            "connect_timeout": max(0.1, left / 2),
            "ping_interval": PING_S,
            "max_outstanding_pings": 2,
            "error_cb": self._failed,
            **self._options,
        }

    # What nats-py tells

    async def _failed(self, error: Exception) -> None:
        log.info("nats: %s: %s", self.where, type(error).__name__)

    def _ending(self, client: Any) -> Callable[[], Awaitable[None]]:
        async def ended() -> None:
            if client is self._client:
                self._broke()

        return ended

    def _broke(self) -> None:
        if self._closing or self._lost.is_set():
            return
        log.warning("nats: %s: the connection broke", self.where)
        self._up = anyio.Event()
        self._lost.set()
        for scope in [*self._waiting]:
            scope.cancel()
