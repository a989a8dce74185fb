"""Check hosts, tokens and rate limits; report errors; encode responses.

The Host header is checked because a page in a browser can have its own host name resolve to this machine (DNS
rebinding). Errors are problem+json. An unexpected error reveals only that it happened; the log has its
traceback, without the request's content. Responses are encoded by `omoide.core.codec`, so that a client that
decodes with it gets equal values.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import AsyncExitStack
from functools import partial
from time import monotonic
from traceback import format_tb
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

import msgspec
from litestar import Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotAuthorizedException,
    NotFoundException,
    PermissionDeniedException,
    ValidationException,
)
from litestar.handlers import BaseRouteHandler
from litestar.middleware import ASGIMiddleware
from litestar.serialization import default_serializer
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from omoide.core import codec
from omoide.core.entry import DEFAULT_NAMESPACE
from omoide.errors import Conflict, KeyReused, OmoideError, StoreFailed
from omoide.service import auth
from omoide.service.limits import RETRY_AFTER, Overloaded, Slots, mark_private
from omoide.service.problems import Problem, error_line, to_problem, without_store_name
from omoide.web.schemas import (
    RIGHT_KEY,
    ROUTE_INFO_KEY,
    SLOTS_KEY,
    HTTPConnection,
    HTTPRequest,
    RouteInfo,
    invalid_parameter,
)

LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing."""
MAX_TRACKED_TOKENS = 10_000
"""Number of tokens whose rate is tracked; the least recently used are dropped."""


SLOTS = {
    "requests": partial(Slots, "requests", 16, 64, patience=10.0),
    "streams": partial(Slots, "event streams", 16, 64),
    "processes": partial(Slots, "queries", 2, 4, patience=1.0),
}
"""Slots of a service by kind, for each token and in total."""
_RESOURCES = "omoide.resources"
"""Key in the ASGI scope: what a request holds until it ends."""


class HostMiddleware(ASGIMiddleware):
    """Refuses requests for other host names, and changes from other origins."""

    def __init__(self, hosts: Iterable[str]) -> None:
        self.hosts = LOOPBACK_HOSTS | {host.lower() for host in hosts}

    async def handle(self, scope: Scope, receive: Receive, send: Send, next_app: ASGIApp) -> None:
        """Check a request, and pass it on; release what it holds when it ends."""
        headers = {name: value.decode("latin-1") for name, value in scope.get("headers", ())}
        if host_name(headers.get(b"host", "")) not in self.hosts:
            raise HTTPException("this service does not have that name", status_code=421)
        origin = headers.get(b"origin", f"http://{headers.get(b'host')}")
        if (
            scope.get("method") not in SAFE_METHODS
            and host_name(origin.partition("://")[2]) not in self.hosts
        ):
            raise PermissionDeniedException("pages of other sites may not change anything")
        async with AsyncExitStack() as resources:
            scope[_RESOURCES] = resources  # type: ignore[literal-required]
            await next_app(scope, receive, send)


def host_name(host: str) -> str:
    """Return the name in a Host header, without the port."""
    name, colon, port = host.lower().rpartition(":")
    return name if colon and port.isdigit() else host.lower()


class RateLimiter:
    """Token bucket for each API token."""

    def __init__(self, per_minute: int | None) -> None:
        self.per_minute = per_minute
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def acquire(self, id: str, now: float) -> float:
        """Take one request from a token's bucket; return the seconds to wait, 0 if it is allowed."""
        if self.per_minute is None:
            return 0.0
        rate = self.per_minute / 60  # the bucket refills continuously, up to one minute's worth
        left, since = self._buckets.pop(id, (float(self.per_minute), now))
        left = min(float(self.per_minute), left + (now - since) * rate)
        self._buckets[id] = (left - 1 if left >= 1 else left), now
        while len(self._buckets) > MAX_TRACKED_TOKENS:
            self._buckets.popitem(last=False)
        return 0.0 if left >= 1 else (1 - left) / rate


def check_query(connection: HTTPConnection, info: RouteInfo) -> None:
    """Raise unless each query parameter is known, given once, and UTF-8.

    If a parameter were given twice, one value might be checked and another one used. A misspelt `agent` would
    be ignored, and the request would apply to a larger scope.
    """
    try:
        unquote_to_bytes(connection.scope["query_string"]).decode()
    except UnicodeDecodeError:
        raise invalid_parameter("query", "is not in UTF-8") from None
    for name in connection.query_params:
        if name not in info.parameters:
            known = ", ".join(sorted(info.parameters))
            raise invalid_parameter(name[:40], f"is an unknown parameter; use {known}")
        if len(connection.query_params.getall(name)) > 1:
            raise invalid_parameter(name, "is given more than once")
        if name in info.non_text and connection.query_params[name].lower() == "null":
            raise invalid_parameter(name, "is null; leave it out instead")


async def authorize(connection: HTTPConnection, handler: BaseRouteHandler) -> None:
    """Raise if a request has no valid token, lacks the right of its route, or exceeds the rate limit."""
    right = handler.opt.get(RIGHT_KEY)
    if right is None:
        return
    token = await _authenticate(connection)
    if token is None:
        raise NotAuthorizedException(
            "the token is missing, unknown, expired or revoked; "
            "send Authorization: Bearer …, with a token that omoide token create made",
            headers={"WWW-Authenticate": 'Bearer realm="omoide"'},
        )
    check_query(connection, handler.opt[ROUTE_INFO_KEY])
    namespace = connection.query_params.get("namespace", DEFAULT_NAMESPACE)
    if not token.allows(right, namespace):
        raise PermissionDeniedException(f"the token does not allow {right} in this namespace")
    wait_seconds = connection.app.state.rate_limiter.acquire(token.id, monotonic())
    if wait_seconds:
        retry_after = str(int(wait_seconds) + 1)
        raise HTTPException("too many requests", status_code=429, headers={"Retry-After": retry_after})
    slots: Slots = connection.app.state.slots[handler.opt[SLOTS_KEY]]
    resources: AsyncExitStack = connection.scope[_RESOURCES]  # type: ignore[literal-required]
    try:
        await resources.enter_async_context(slots.hold(token.id))
    except Overloaded as error:
        headers = {"Retry-After": str(RETRY_AFTER)}
        raise HTTPException(error.detail, status_code=error.status, headers=headers) from None


async def protect_response(message: Message, scope: Scope) -> None:
    """Mark a response as private, errors included."""
    mark_private(message)  # type: ignore[arg-type]


async def require_right(request: HTTPRequest, namespace: str) -> None:
    """Raise unless the token has the right of the route in another namespace that the request reaches."""
    right = request.route_handler.opt[RIGHT_KEY]
    if not await is_allowed(request, right, namespace):
        raise PermissionDeniedException(f"the token does not allow {right} where this session remembers")


async def is_allowed(connection: HTTPConnection, right: str, namespace: str) -> bool:
    """Return True if a request's token still has a right in a namespace."""
    token = await _authenticate(connection)
    return token is not None and token.allows(right, namespace)


async def allowed_namespaces(connection: HTTPConnection, right: str, namespaces: Iterable[str]) -> list[str]:
    """Return those of the namespaces in which a request's token has a right."""
    token = await _authenticate(connection)
    return [] if token is None else [name for name in namespaces if token.allows(right, name)]


async def _authenticate(connection: HTTPConnection) -> auth.ApiToken | None:
    """Return the token, or the one of the inspector session, whose secret a request shows."""
    kind, _, secret = connection.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer":
        return None
    sessions = connection.app.state.inspector_sessions
    token = None if sessions is None else sessions.api_token(secret)
    return token or await auth.verify(connection.app.state.store, secret)


log = logging.getLogger("omoide.web")

PROBLEM_MEDIA_TYPE = "application/problem+json"
PROBLEM_TITLES = {
    400: ("malformed", "Malformed"),
    401: ("not-authorized", "Not authorized"),
    403: ("forbidden", "Forbidden"),
    404: ("no-such-path", "No such path"),
    405: ("no-such-method", "No such method"),
    415: ("wrong-media-type", "Wrong media type"),
    421: ("wrong-host", "Wrong host"),
    429: ("too-many-requests", "Too many requests"),
    503: ("overloaded", "Overloaded"),
}


def handle_library_error(request: HTTPRequest, error: OmoideError) -> Response[Problem]:
    """Return an error of the library as a problem; a conflict becomes 412 if the request has `If-Match`."""
    problem = to_problem(error)
    if isinstance(error, StoreFailed):
        problem = without_store_name(problem, error)
    if "if-match" in request.headers and isinstance(error, Conflict) and not isinstance(error, KeyReused):
        problem = msgspec.structs.replace(problem, status=412)
    log.log(
        logging.WARNING if problem.status >= 500 else logging.INFO,
        "%s: %d %s",
        route_name(request),
        problem.status,
        problem.type,
    )
    return Response(problem, status_code=problem.status, media_type=PROBLEM_MEDIA_TYPE)


def handle_http_error(request: HTTPRequest, error: HTTPException) -> Response[Problem]:
    """Return an error of Litestar as a problem."""
    status = error.status_code
    kind, title = PROBLEM_TITLES.get(status, ("refused", "Refused"))
    field = None
    detail = error_line(error.detail)
    if isinstance(error, NotFoundException):
        detail = "the path is unknown; GET /schema lists all"
    elif isinstance(error, MethodNotAllowedException):
        allowed = {name.lower(): value for name, value in (error.headers or {}).items()}["allow"]
        detail = f"the path takes {', '.join(sorted(allowed.split(', ')))}"
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        first = error.extra[0]
        field = first.get("key") if isinstance(first, dict) else None
        detail = error_line(first.get("message")) if isinstance(first, dict) else detail
    problem = Problem(type=kind, title=title, status=status, detail=detail or title, field=field)
    log.info("%s: %d %s", route_name(request), status, kind)
    return Response(problem, status_code=status, media_type=PROBLEM_MEDIA_TYPE, headers=error.headers)


def handle_unexpected_error(request: HTTPRequest, error: Exception) -> Response[Problem]:
    """Log an unexpected error, and return a problem without details."""
    # The message may quote the request; the traceback without it does not.
    trace = "".join(format_tb(error.__traceback__))
    log.error("%s: %s\n%s", route_name(request), type(error).__name__, trace)
    problem = Problem(type="failed", title="Failed", status=500, detail="something failed; see the log")
    return Response(problem, status_code=500, media_type=PROBLEM_MEDIA_TYPE)


def handle_recursion_error(request: HTTPRequest, error: RecursionError) -> Response[Problem]:
    """Return a problem for a body that is nested too deeply to decode."""
    return handle_http_error(request, HTTPException("the body is nested too deeply", status_code=400))


def route_name(request: HTTPRequest) -> str:
    """Return the method and the route's template for the log; the path itself may hold anything."""
    return f"{request.method} {request.scope.get('path_template') or '(no route)'}"


T = TypeVar("T")


class JSONResponse(Response[T]):
    """Response whose structs are encoded by the library's codec."""

    def render(self, content: Any, media_type: str, enc_hook: Any = default_serializer) -> bytes:
        """Return the content as JSON."""
        if isinstance(content, msgspec.Struct):
            return codec.encode(content)
        return super().render(content, media_type, enc_hook)
