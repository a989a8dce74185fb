"""Who is let in?

Whoever has a token that allows it, comes by a name that this service has, does not come too often, and sends
what is small enough in good time. The names matter because a page in somebody's browser can have its own name
lead here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from time import monotonic
from typing import Any

import anyio
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, ReceiveMessage, Scope, Send

from omoide.core.scope import DEFAULT_NAMESPACE
from omoide.service import access

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
RIGHT = "right"
"""Where a route says what it takes; one that says nothing is open to all."""
MANY = 10_000
"""How many tokens are counted at once."""


class Doorkeeper(ASGIMiddleware):
    """Turns away who comes by another name, and who does not get on with sending."""

    def __init__(self, hosts: Iterable[str], body_seconds: float) -> None:
        self.hosts = LOOPBACK | {host.lower() for host in hosts}
        self.body_seconds = body_seconds

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Let a request pass, or not."""
        host = next((value for name, value in scope.get("headers", ()) if name == b"host"), b"")
        if name_of(host.decode("latin-1")) not in self.hosts:
            raise HTTPException("this service does not have that name", status_code=421)
        deadline = monotonic() + self.body_seconds
        whole = False

        async def in_time() -> ReceiveMessage:
            nonlocal whole
            if whole:
                return await receive()
            with anyio.move_on_after(deadline - monotonic()):
                message = await receive()
                whole = not message.get("more_body", False)
                return message
            raise HTTPException("the body did not come in time", status_code=408)

        await next_app(scope, in_time, send)


def name_of(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


class Counter:
    """How often each token was used within the last minute or so."""

    def __init__(self, a_minute: int | None) -> None:
        self.a_minute = a_minute
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def count(self, id: str, now: float) -> float:
        """Count one use; how many seconds to wait, 0 for none."""
        if self.a_minute is None:
            return 0.0
        rate = self.a_minute / 60
        left, since = self._left.pop(id, (float(self.a_minute), now))
        left = min(float(self.a_minute), left + (now - since) * rate)
        self._left[id] = (left - 1 if left >= 1 else left), now
        while len(self._left) > MANY:
            self._left.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / rate


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise where a request may not do what its route does."""
    right = handler.opt.get(RIGHT)
    if right is None:
        return
    secret = connection.headers.get("authorization", "")
    kind, _, value = secret.partition(" ")
    token = await access.check(connection.app.state.store, value) if kind.lower() == "bearer" else None
    if token is None:
        raise NotAuthorizedException(
            "a token is needed: Authorization: Bearer …; omoide token create makes one",
            headers={"WWW-Authenticate": 'Bearer realm="omoide"'},
        )
    namespace = connection.query_params.get("namespace", DEFAULT_NAMESPACE)
    if not token.allows(right, namespace):
        raise PermissionDeniedException(f"the token does not allow {right} in this namespace")
    wait = connection.app.state.counter.count(token.id, monotonic())
    if wait:
        seconds = str(int(wait) + 1)
        raise HTTPException("too many requests", status_code=429, headers={"Retry-After": seconds})
