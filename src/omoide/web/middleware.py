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
from typing import Any, Generic, TypeVar

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from omoide.core import codec
from omoide.core.entry import DEFAULT_NAMESPACE
from omoide.errors import Conflict, KeyReused, OmoideError, StoreFailed
from omoide.service import auth
from omoide.service.auth import ApiToken
from omoide.service.limits import RETRY_AFTER, Overloaded, Slots
from omoide.service.problems import Problem, error_line, to_problem, without_store_name

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


class HostMiddleware:
    """ASGI middleware that refuses requests for other host names, and changes from other origins."""

    def __init__(self, app: ASGIApp, hosts: Iterable[str]) -> None:
        self._app = app
        self.hosts = LOOPBACK_HOSTS | {host.lower() for host in hosts}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        refusal = self._refusal(scope) if scope["type"] == "http" else None
        app = self._app if refusal is None else problem_response(Request(scope), refusal)
        await app(scope, receive, send)

    def _refusal(self, scope: Scope) -> HTTPException | None:
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if host_name(headers.get(b"host", "")) not in self.hosts:
            return HTTPException(421, "this service does not have that name")
        origin = headers.get(b"origin", f"http://{headers.get(b'host')}")
        if scope["method"] not in SAFE_METHODS and host_name(origin.partition("://")[2]) not in self.hosts:
            return HTTPException(403, "pages of other sites may not change anything")
        return None


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


async def authenticate(request: Request) -> ApiToken:
    """Return the token of a request.

    Raises:
        HTTPException: the token is missing, unknown, expired or revoked.
    """
    token = await _find_token(request)
    if token is None:
        raise HTTPException(
            401,
            "the token is missing, unknown, expired or revoked; "
            "send Authorization: Bearer …, with a token that omoide token create made",
            {"WWW-Authenticate": 'Bearer realm="omoide"'},
        )
    return token


async def admit(request: Request, token: ApiToken, right: str, slots: str, resources: AsyncExitStack) -> None:
    """Take a slot for a request, which `resources` gives back.

    Raises:
        HTTPException: the token lacks the right in the namespace, or it asks too often or too much at once.
    """
    namespace = request.query_params.get("namespace", DEFAULT_NAMESPACE)
    if not token.allows(right, namespace):
        raise HTTPException(403, f"the token does not allow {right} in this namespace")
    wait_seconds = request.app.state.rate_limiter.acquire(token.id, monotonic())
    if wait_seconds:
        raise HTTPException(429, "too many requests", {"Retry-After": str(int(wait_seconds) + 1)})
    try:
        await resources.enter_async_context(request.app.state.slots[slots].hold(token.id))
    except Overloaded as error:
        raise HTTPException(error.status, error.detail, {"Retry-After": str(RETRY_AFTER)}) from None


async def require_right(request: Request, namespace: str) -> None:
    """Raise unless the token has the right of the route in another namespace that the request reaches."""
    right = request.scope["endpoint"].right
    if not await is_allowed(request, right, namespace):
        raise HTTPException(403, f"the token does not allow {right} where this session remembers")


async def is_allowed(request: Request, right: str, namespace: str) -> bool:
    """Return True if a request's token still has a right in a namespace."""
    token = await _find_token(request)
    return token is not None and token.allows(right, namespace)


async def allowed_namespaces(request: Request, right: str, namespaces: Iterable[str]) -> list[str]:
    """Return those of the namespaces in which a request's token has a right."""
    token = await _find_token(request)
    return [] if token is None else [name for name in namespaces if token.allows(right, name)]


async def _find_token(request: Request) -> ApiToken | None:
    """Return the token, or the one of the inspector session, whose secret a request shows."""
    secret = bearer_secret(request)
    if secret is None:
        return None
    sessions = request.app.state.inspector_sessions
    token: ApiToken | None = None if sessions is None else sessions.api_token(secret)
    return token or await auth.verify(request.app.state.store, secret)


def bearer_secret(request: Request) -> str | None:
    """Return the secret in the Authorization header; None if there is none."""
    kind, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret if kind.lower() == "bearer" else None


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


T = TypeVar("T")


class InvalidParameter(HTTPException):
    """A parameter or a header is invalid."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(400, f"{field} {problem}")
        self.field = field


class JSONResponse(Response, Generic[T]):
    """Response with a struct as JSON, encoded by the library's codec."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the content as JSON."""
        return codec.encode(content)


def problem_response(request: Request, error: Exception) -> Response:
    """Log an error, and return it as a problem; an unexpected one without details."""
    if isinstance(error, OmoideError):
        problem = _library_problem(request, error)
    elif isinstance(error, HTTPException):
        problem = _http_problem(error)
    elif isinstance(error, RecursionError):
        problem = _http_problem(HTTPException(400, "the body is nested too deeply"))
    else:
        problem = Problem(type="failed", title="Failed", status=500, detail="something failed; see the log")
        # The message may quote the request; the traceback without it does not.
        trace = "".join(format_tb(error.__traceback__))
        log.error("%s: %s\n%s", _route_name(request), type(error).__name__, trace)
    level = logging.WARNING if problem.status >= 500 else logging.INFO
    log.log(level, "%s: %d %s", _route_name(request), problem.status, problem.type)
    headers = error.headers if isinstance(error, HTTPException) else None
    return Response(msgspec.json.encode(problem), problem.status, headers, PROBLEM_MEDIA_TYPE)


def _library_problem(request: Request, error: OmoideError) -> Problem:
    """Return the problem of an error of the library; a conflict is a 412 if the request has `If-Match`."""
    problem = to_problem(error)
    if isinstance(error, StoreFailed):
        problem = without_store_name(problem, error)
    if "if-match" in request.headers and isinstance(error, Conflict) and not isinstance(error, KeyReused):
        problem = msgspec.structs.replace(problem, status=412)
    return problem


def _http_problem(error: HTTPException) -> Problem:
    kind, title = PROBLEM_TITLES.get(error.status_code, ("refused", "Refused"))
    field = error.field if isinstance(error, InvalidParameter) else None
    return Problem(
        type=kind, title=title, status=error.status_code, detail=error_line(error.detail), field=field
    )


async def unknown_path(request: Request, error: Exception) -> Response:
    """Answer a request that no route takes."""
    return problem_response(request, HTTPException(404, "the path is unknown; GET /schema lists all"))


def _route_name(request: Request) -> str:
    """Return the method and the route's path for the log; the path of the request may hold anything."""
    return f"{request.method} {getattr(request.scope.get('endpoint'), 'path', '(no route)')}"
