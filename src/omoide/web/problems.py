"""How does the service say that something went wrong?

In the form of problem+json. What nobody expected says no more than that it happened: details are in the log,
without what was sent.
"""

from __future__ import annotations

import logging
from traceback import format_tb
from typing import Any

import msgspec
from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException

from omoide.errors import Conflict, KeyReused, OmoideError
from omoide.service.problems import Problem, line, problem

log = logging.getLogger("omoide.web")

MEDIA = "application/problem+json"
TITLES = {
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


def told(request: Request[Any, Any, Any], error: OmoideError) -> Response[Problem]:
    """An error of the library's own."""
    found = problem(error)
    if "if-match" in request.headers and isinstance(error, Conflict) and not isinstance(error, KeyReused):
        found = msgspec.structs.replace(found, status=412)
    log.log(
        logging.WARNING if found.status >= 500 else logging.INFO,
        "%s: %d %s",
        place(request),
        found.status,
        found.type,
    )
    return Response(found, status_code=found.status, media_type=MEDIA)


def refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """What the framework does not let pass."""
    status = error.status_code
    kind, title = TITLES.get(status, ("refused", "Refused"))
    field = None
    detail = line(error.detail)
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        first = error.extra[0]
        field = first.get("key") if isinstance(first, dict) else None
        detail = line(first.get("message")) if isinstance(first, dict) else detail
    found = Problem(type=kind, title=title, status=status, detail=detail or title, field=field)
    log.info("%s: %d %s", place(request), status, kind)
    return Response(found, status_code=status, media_type=MEDIA, headers=error.headers)


def unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """What should not have happened."""
    # What it says may quote what was sent; where it comes from does not.
    trace = "".join(format_tb(error.__traceback__))
    log.error("%s: %s\n%s", place(request), type(error).__name__, trace)
    found = Problem(type="failed", title="Failed", status=500, detail="something failed; see the log")
    return Response(found, status_code=500, media_type=MEDIA)


def too_deep(request: Request[Any, Any, Any], error: RecursionError) -> Response[Problem]:
    """A body that nobody can read to its end."""
    return refused(request, HTTPException("the body is nested too deeply", status_code=400))


def place(request: Request[Any, Any, Any]) -> str:
    """Which route was asked, in words of our own: a path may hold anything, and lines of a log too."""
    return f"{request.method} {request.scope.get('path_template') or '(no route)'}"
