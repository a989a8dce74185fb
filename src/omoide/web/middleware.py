"""Hosts, tokens, rate limit, errors, responses.

Whoever has a token that allows it, comes by a name that this service has, does not come too often, and sends
what is small enough in good time. The names matter because a page in somebody's browser can have its own name
lead here.

In the form of problem+json. What nobody expected says no more than that it happened: details are in the log,
without what was sent.

By the codec that writes everything else, so that whoever reads it with that codec gets the same values.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from time import monotonic
from traceback import format_tb
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import anyio
import msgspec
from litestar import Request, Response
from litestar.connection import ASGIConnection
from litestar.exceptions import (
    HTTPException,
    NotAuthorizedException,
    PermissionDeniedException,
    ValidationException,
)
from litestar.handlers import BaseRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.serialization import default_serializer
from litestar.types import ASGIApp, Receive, ReceiveMessage, Scope, Send

from omoide.core import codec
from omoide.core.entry import DEFAULT_NAMESPACE
from omoide.errors import Conflict, KeyReused, OmoideError
from omoide.service import auth
from omoide.service.problems import Problem, error_line, to_problem
from omoide.web.schemas import RIGHT_KEY, ROUTE_INFO_KEY, RouteInfo, invalid_parameter

# guarding: Who is let in?


LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
MAX_TRACKED_TOKENS = 10_000
"""How many tokens are counted at once."""


class HostMiddleware(ASGIMiddleware):
    """Turns away who comes by another name, and who does not get on with sending."""

    def __init__(self, hosts: Iterable[str], body_timeout: float) -> None:
        self.hosts = LOOPBACK_HOSTS | {host.lower() for host in hosts}
        self.body_timeout = body_timeout

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Let a request pass, or not."""
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        if host_name(headers.get(b"host", "")) not in self.hosts:
            raise HTTPException("this service does not have that name", status_code=421)
        origin = headers.get(b"origin", f"http://{headers.get(b'host')}")
        if (
            scope.get("method") not in SAFE_METHODS
            and host_name(origin.partition("://")[2]) not in self.hosts
        ):
            raise PermissionDeniedException("pages of other sites may not change anything")
        deadline = monotonic() + self.body_timeout
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


def host_name(host: str) -> str:
    """The name in a Host header, without the port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


class RateLimiter:
    """How often each token was used within the last minute or so."""

    def __init__(self, per_minute: int | None) -> None:
        self.per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def acquire(self, id: str, now: float) -> float:
        """Count one use; how many seconds to wait, 0 for none."""
        if self.per_minute is None:
            return 0.0
        rate = self.per_minute / 60
        left, since = self._buckets.pop(id, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - since) * rate)
        self._buckets[id] = (left - 1 if left >= 1 else left), now
        while len(self._buckets) > MAX_TRACKED_TOKENS:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / rate


def check_query(connection: ASGIConnection[Any, Any, Any, Any], info: RouteInfo) -> None:
    """Raise unless each parameter of the query is known, and given once, in UTF-8.

    Of a parameter that is given twice, one value might be checked and another one used; one that is misspelt
    would be left out, and something else meant.
    """
    try:
        unquote_to_bytes(connection.scope["query_string"]).decode()
    except UnicodeDecodeError:
        raise invalid_parameter("query", "is not in UTF-8") from None
    for name in connection.query_params:
        if name not in info.names:
            raise invalid_parameter(
                "query", f"has a parameter that is unknown; use {', '.join(sorted(info.names))}"
            )
        if len(connection.query_params.getall(name)) > 1:
            raise invalid_parameter(name, "is given more than once")
        if name in info.numbers and connection.query_params[name].lower() == "null":
            raise invalid_parameter(name, "is null; leave it out instead")


async def authorize(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
    """Raise where a request may not do what its route does."""
    right = handler.opt.get(RIGHT_KEY)
    if right is None:
        return
    token = await _authenticate(connection)
    if token is None:
        raise NotAuthorizedException(
            "a token is needed: Authorization: Bearer …; omoide token create makes one",
            headers={"WWW-Authenticate": 'Bearer realm="omoide"'},
        )
    check_query(connection, handler.opt[ROUTE_INFO_KEY])
    namespace = connection.query_params.get("namespace", DEFAULT_NAMESPACE)
    if not token.allows(right, namespace):
        raise PermissionDeniedException(f"the token does not allow {right} in this namespace")
    wait = connection.app.state.counter.count(token.id, monotonic())
    if wait:
        seconds = str(int(wait) + 1)
        raise HTTPException("too many requests", status_code=429, headers={"Retry-After": seconds})


async def is_allowed(connection: ASGIConnection[Any, Any, Any, Any], right: str, namespace: str) -> bool:
    """Whether somebody who was let in would still be."""
    token = await _authenticate(connection)
    return token is not None and token.allows(right, namespace)


async def _authenticate(connection: ASGIConnection[Any, Any, Any, Any]) -> auth.ApiToken | None:
    """What somebody may do: by the token that comes along, or because they signed in to look."""
    given = connection.headers.get("authorization")
    if given is None:
        visitors = connection.app.state.visitors
        return None if visitors is None else visitors.token(connection)
    kind, _, secret = given.partition(" ")
    return await auth.verify(connection.app.state.store, secret) if kind.lower() == "bearer" else None


# problems: How does the service say that something went wrong?


log = logging.getLogger("omoide.web")

PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TITLES = {
    400: ("malformed", "Malformed"),
    401: ("not-authorized", "Not authorized"),
    403: ("forbidden", "Forbidden"),
    404: ("no-such-path", "No such path"),
    405: ("no-such-method", "No such method"),
    408: ("too-slow", "Too slow"),
    413: ("body-too-large", "Body too large"),
    415: ("wrong-media-type", "Wrong media type"),
    421: ("wrong-host", "Wrong host"),
    429: ("too-many-requests", "Too many requests"),
}


def handle_library_error(request: Request[Any, Any, Any], error: OmoideError) -> Response[Problem]:
    """An error of the library's own."""
    found = to_problem(error)
    if "if-match" in request.headers and isinstance(error, Conflict) and not isinstance(error, KeyReused):
        found = msgspec.structs.replace(found, status=412)
    log.log(
        logging.WARNING if found.status >= 500 else logging.INFO,
        "%s: %d %s",
        route_name(request),
        found.status,
        found.type,
    )
    return Response(found, status_code=found.status, media_type=PROBLEM_MEDIA_TYPE)


def handle_http_error(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """What the framework does not let pass."""
    status = error.status_code
    kind, title = PROBLEM_TITLES.get(status, ("refused", "Refused"))
    field = None
    detail = error_line(error.detail)
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        first = error.extra[0]
        field = first.get("key") if isinstance(first, dict) else None
        detail = error_line(first.get("message")) if isinstance(first, dict) else detail
    found = Problem(type=kind, title=title, status=status, detail=detail or title, field=field)
    log.info("%s: %d %s", route_name(request), status, kind)
    return Response(found, status_code=status, media_type=PROBLEM_MEDIA_TYPE, headers=error.headers)


def handle_unexpected_error(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """What should not have happened."""
    # What it says may quote what was sent; where it comes from does not.
    trace = "".join(format_tb(error.__traceback__))
    log.error("%s: %s\n%s", route_name(request), type(error).__name__, trace)
    found = Problem(type="failed", title="Failed", status=500, detail="something failed; see the log")
    return Response(found, status_code=500, media_type=PROBLEM_MEDIA_TYPE)


def handle_recursion_error(request: Request[Any, Any, Any], error: RecursionError) -> Response[Problem]:
    """A body that nobody can read to its end."""
    return handle_http_error(request, HTTPException("the body is nested too deeply", status_code=400))


def route_name(request: Request[Any, Any, Any]) -> str:
    """Which route was asked, in words of our own: a path may hold anything, and lines of a log too."""
    return f"{request.method} {request.scope.get('path_template') or '(no route)'}"


# telling: How is an answer written?


T = TypeVar("T")


class JSONResponse(Response[T]):
    """A value of the library's own, or one of `service.answers`."""

    def render(self, content: Any, media_type: str, enc_hook: Any = default_serializer) -> bytes:
        """The value as JSON."""
        return (
            codec.encode(content)
            if isinstance(content, msgspec.Struct)
            else super().render(content, media_type, enc_hook)
        )
