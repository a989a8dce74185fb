"""Serve an ASGI application over HTTP/1.1, with deadlines and limits for connections.

A client has to send the head of a request, send its body, and read the response in time. The connections of
one address are limited, and so are all together. When a limit is reached, the connection that has stalled
longest is closed in favour of the new one; only if none stalls, because all have requests under way, the new
one is refused. A client that stalls therefore never keeps others out.
"""

from __future__ import annotations

import socket
from asyncio import TimerHandle, Transport
from functools import partial
from http import HTTPStatus
from typing import Any

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from omoide.service.limits import refusal

SHUTDOWN_TIMEOUT = 3
"""Seconds that requests under way may take on shutdown."""
_LISTEN_QUEUE = 2048
_LINGER = 0.5
"""Seconds in which a refused client may read why."""


class ConnectionLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Numbers of connections, and times in seconds."""

    per_client: int = 128
    """Connections of one address."""
    total: int = 512
    head_timeout: float = 10.0
    """Time in which the head of a request has to arrive, from the start of the connection."""
    body_timeout: float = 30.0
    """Time in which the body of a request has to arrive."""
    write_timeout: float = 30.0
    """Time in which a client has to continue reading."""


def default_limits() -> ConnectionLimits:
    """Return the limits that the file descriptors of this process allow."""
    limits = ConnectionLimits()
    try:
        import resource
    except ImportError:  # Windows
        return limits
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    # A quarter is for connections that are not counted yet, an eighth for those that are refused.
    total = limits.total if soft == resource.RLIM_INFINITY else max(1, min(limits.total, soft // 2))
    return msgspec.structs.replace(limits, total=total, per_client=min(limits.per_client, total))


def server_config(app: Any, limits: ConnectionLimits | None = None, **options: Any) -> uvicorn.Config:
    """Return the configuration of a server that applies limits to its connections."""
    limits = limits or default_limits()
    return uvicorn.Config(
        app,
        # h11: httptools keeps trailing spaces of header values.
        http=partial(LimitedConnection, limits=limits, registry=ConnectionRegistry()),  # type: ignore[arg-type]
        ws="none",
        proxy_headers=False,  # they would let a client choose its address
        access_log=False,  # it would log queries, which may quote memories
        log_config=None,
        server_header=False,
        backlog=max(16, limits.total // 2),  # accepted at a time, before the limits apply
        timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        **options,
    )


class Server(uvicorn.Server):
    """Server with a long queue of connections to be accepted.

    Uvicorn has one setting for the length of the queue and for the number of connections that are accepted at
    a time. The latter has to be small; with a short queue, clients would wait a second before they try again.
    """

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to serve."""
        await super().startup(sockets)
        for listener in sockets or ():
            listener.listen(_LISTEN_QUEUE)


class ConnectionGroup:
    """Connections of one address, or all of a server."""

    def __init__(self) -> None:
        self.count = 0
        self.stalled: dict[LimitedConnection, None] = {}
        """Connections whose clients have to send something, longest first."""

    def close_stalled(self, new: LimitedConnection) -> bool:
        """Close the connection that has stalled longest, besides a new one; return False if none has."""
        for connection in self.stalled:
            if connection is not new:
                connection.time_out()
                return True
        return False


class ConnectionRegistry:
    """The connections of a server. To add, remove or find one takes the same time, however many there are."""

    def __init__(self) -> None:
        self.all = ConnectionGroup()
        self.by_address: dict[str | None, ConnectionGroup] = {}

    def add(self, address: str | None) -> ConnectionGroup:
        """Count a connection; return the group of its address."""
        group = self.by_address.setdefault(address, ConnectionGroup())
        group.count += 1
        self.all.count += 1
        return group

    def remove(self, address: str | None) -> None:
        """Count a connection no more."""
        self.all.count -= 1
        self.by_address[address].count -= 1
        if not self.by_address[address].count:
            del self.by_address[address]


class LimitedConnection(H11Protocol):
    """Connection of one client."""

    def __init__(
        self, *args: Any, limits: ConnectionLimits, registry: ConnectionRegistry, **options: Any
    ) -> None:
        super().__init__(*args, **options)
        self.limits = limits
        self.waits_for: str | None = None
        """What the client has to send: the head or the body of a request."""
        self._registry = registry
        self._groups: tuple[ConnectionGroup, ...] = ()
        self._read_timer: TimerHandle | None = None
        self._write_timer: TimerHandle | None = None
        self._refused = False

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Take the connection, at the cost of one that stalls if there are too many."""
        super().connection_made(transport)
        own, everyone = self._registry.add(self._address), self._registry.all
        self._groups = (own, everyone)
        self._update()
        if own.count > self.limits.per_client and not own.close_stalled(self):
            self._refuse(429, "too-many-requests", "this address has too many connections")
        elif everyone.count > self.limits.total and not everyone.close_stalled(self):
            self._refuse(503, "overloaded", "there are too many connections")
        if self._refused and everyone.count > self.limits.total + self.limits.total // 4:
            transport.abort()  # even those that are refused are too many

    def connection_lost(self, exc: Exception | None) -> None:
        """Release what the connection holds."""
        self._stop_timers()
        self._registry.remove(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, with a deadline for what comes next."""
        if self._refused:
            return
        super().data_received(data)
        self._update()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        super().on_response_complete()
        self._update()

    def pause_writing(self) -> None:
        """Give the client time to read."""
        super().pause_writing()
        self._write_timer = self.loop.call_later(self.limits.write_timeout, self.transport.abort)

    def resume_writing(self) -> None:
        """Continue writing."""
        super().resume_writing()
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None

    def time_out(self) -> None:
        """Close the connection, because what the client has to send did not come in time."""
        if self.transport.is_closing():
            return
        if self.cycle is not None and self.cycle.response_started and not self.cycle.response_complete:
            self.transport.abort()  # the answer began before the body was complete
        elif self.cycle is not None and self.cycle.response_complete and not self.conn.trailing_data[0]:
            self._stop_timers()
            self.transport.close()  # it is idle: a 408 would be taken for the answer to the next request
        else:
            self._refuse(408, "too-slow", f"the {self.waits_for} of the request did not come in time")

    @property
    def _address(self) -> str | None:
        return self.client[0] if self.client else None

    def _refuse(self, status: int, type: str, detail: str) -> None:
        """Answer outside of the application, and close."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application is told, and what it answers is dropped
            self.cycle.message_event.set()
        self._stop_timers()
        self._refused = True
        headers, body = refusal(status, type, detail)
        lines = [b"HTTP/1.1 %d %s" % (status, HTTPStatus(status).phrase.encode())]
        lines += [b"%s: %s" % header for header in (*headers, (b"connection", b"close"))]
        self.transport.write(b"\r\n".join([*lines, b"", body]))
        if status == 408:
            self.transport.close()
        else:  # closing at once, with bytes of the client unread, would discard the answer
            self.transport.write_eof()
            self._read_timer = self.loop.call_later(_LINGER, self.transport.abort)

    def _update(self) -> None:
        """Start the deadline for what the client has to send next."""
        if self._refused or self.transport.is_closing():
            return
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            waits_for: str | None = "head"
        else:
            waits_for = "body" if cycle.more_body else None
        if waits_for == self.waits_for:
            return
        self._wait_for(waits_for)
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None
        if waits_for is not None:
            timeout = self.limits.head_timeout if waits_for == "head" else self.limits.body_timeout
            self._read_timer = self.loop.call_later(timeout, self.time_out)

    def _stop_timers(self) -> None:
        for timer in (self._read_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._read_timer = self._write_timer = None
        self._wait_for(None)

    def _wait_for(self, what: str | None) -> None:
        """Note what the client has to send, from now on."""
        self.waits_for = what
        for group in self._groups:
            group.stalled.pop(self, None)
            if what is not None:
                group.stalled[self] = None
