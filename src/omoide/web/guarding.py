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
from urllib.parse import unquote_to_bytes

import anyio
from litestar.connection import ASGIConnection
from litestar.exceptions import HTTPException, NotAuthorizedException, PermissionDeniedException
from litestar.handlers import BaseRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.types import ASGIApp, Receive, ReceiveMessage, Scope, Send

from omoide.core.scope import DEFAULT_NAMESPACE
from omoide.service import access
from omoide.web.asking import MEANING, RIGHT, Meaning, wrong

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
MANY = 10_000
"""How many tokens are counted at once."""


class Doorkeeper(ASGIMiddleware):
    """Turns away who comes by another name, and who does not get on with sending."""

    def __init__(self, hosts: Iterable[str], body_seconds: float) -> None:
        self.hosts = LOOPBACK | {host.lower() for host in hosts}
        self.body_seconds = body_seconds

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Let a request pass, or not."""
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        if name_of(headers.get(b"host", "")) not in self.hosts:
            raise HTTPException("this service does not have that name", status_code=421)
        origin = headers.get(b"origin", f"http://{headers.get(b'host')}")
        if scope.get("method") not in SAFE and name_of(origin.partition("://")[2]) not in self.hosts:
            raise PermissionDeniedException("pages of other sites may not change anything")
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


def check_query(connection: ASGIConnection[Any, Any, Any, Any], meaning: Meaning) -> None:
    """Raise unless each parameter of the query is known, and given once, in UTF-8.

    Of a parameter that is given twice, one value might be checked and another one used; one that is misspelt
    would be left out, and something else meant.
    """
    try:
        unquote_to_bytes(connection.scope["query_string"]).decode()
    except UnicodeDecodeError:
        raise wrong("query", "is not in UTF-8") from None
    for name in connection.query_params:
        if name not in meaning.names:
            raise wrong("query", f"has a parameter that is unknown; use {', '.join(sorted(meaning.names))}")
        if len(connection.query_params.getall(name)) > 1:
            raise wrong(name, "is given more than once")
        if name in meaning.numbers and connection.query_params[name].lower() == "null":
            raise wrong(name, "is null; leave it out instead")


async def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise where a request may not do what its route does."""
    right = handler.opt.get(RIGHT)
    if right is None:
        return
    token = await _token(connection)
    if token is None:
        raise NotAuthorizedException(
            "a token is needed: Authorization: Bearer …; omoide token create makes one",
            headers={"WWW-Authenticate": 'Bearer realm="omoide"'},
        )
    check_query(connection, handler.opt[MEANING])
    namespace = connection.query_params.get("namespace", DEFAULT_NAMESPACE)
    if not token.allows(right, namespace):
        raise PermissionDeniedException(f"the token does not allow {right} in this namespace")
    wait = connection.app.state.counter.count(token.id, monotonic())
    if wait:
        seconds = str(int(wait) + 1)
        raise HTTPException("too many requests", status_code=429, headers={"Retry-After": seconds})


async def may(connection: ASGIConnection[Any, Any, Any, Any], right: str, namespace: str) -> bool:
    """Whether somebody who was let in would still be."""
    token = await _token(connection)
    return token is not None and token.allows(right, namespace)


async def _token(connection: ASGIConnection[Any, Any, Any, Any]) -> access.Token | None:
    """What somebody may do: by the token that comes along, or because they signed in to look."""
    given = connection.headers.get("authorization")
    if given is None:
        visitors = connection.app.state.visitors
        return None if visitors is None else visitors.token(connection)
    kind, _, secret = given.partition(" ")
    return await access.check(connection.app.state.store, secret) if kind.lower() == "bearer" else None
