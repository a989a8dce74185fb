"""How does the service say that something went wrong?

In the form of problem+json. What nobody expected says no more than that it happened: details are in the log,
without what was sent.
"""

from __future__ import annotations

import logging
from typing import Any

from litestar import Request, Response
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi.datastructures import ResponseSpec

from omoide.errors import Conflict, KeyReused, OmoideError
from omoide.service.problems import Problem, line, problem

log = logging.getLogger("omoide.web")

MEDIA = "application/problem+json"
_TITLES = {
    400: ("malformed", "Malformed"),
    401: ("not-authorized", "Not authorized"),
    403: ("forbidden", "Forbidden"),
    404: ("no-such-path", "No such path"),
    405: ("no-such-method", "No such method"),
    408: ("too-slow", "Too slow"),
    413: ("too-large", "Too large"),
    415: ("wrong-media-type", "Wrong media type"),
    421: ("wrong-host", "Wrong host"),
    429: ("too-many-requests", "Too many requests"),
}


def told(request: Request[Any, Any, Any], error: OmoideError) -> Response[Problem]:
    """An error of the library's own."""
    found = problem(error)
    if "if-match" in request.headers and isinstance(error, Conflict) and not isinstance(error, KeyReused):
        found = Problem(**{**_fields(found), "status": 412})
    if found.status >= 500:
        log.warning("%s %s: %s", request.method, request.url.path, type(error).__name__)
    return Response(found, status_code=found.status, media_type=MEDIA)


def refused(request: Request[Any, Any, Any], error: HTTPException) -> Response[Problem]:
    """What the framework does not let pass."""
    status = error.status_code
    kind, title = _TITLES.get(status, ("refused", "Refused"))
    field = None
    detail = line(error.detail)
    if isinstance(error, ValidationException) and isinstance(error.extra, list) and error.extra:
        first = error.extra[0]
        field = first.get("key") if isinstance(first, dict) else None
        detail = line(first.get("message")) if isinstance(first, dict) else detail
    found = Problem(type=kind, title=title, status=status, detail=detail or title, field=field)
    return Response(found, status_code=status, media_type=MEDIA, headers=error.headers)


def unexpected(request: Request[Any, Any, Any], error: Exception) -> Response[Problem]:
    """What should not have happened."""
    log.error("%s %s: %s", request.method, request.url.path, type(error).__name__, exc_info=error)
    found = Problem(type="failed", title="Failed", status=500, detail="something failed; see the log")
    return Response(found, status_code=500, media_type=MEDIA)


def documented(*statuses: int) -> dict[int, ResponseSpec]:
    """What a route may answer with when it does not do what was asked."""
    return {
        status: ResponseSpec(Problem, media_type=MEDIA, description="What went wrong, and what to do.")
        for status in sorted({400, 401, 403, 408, 413, 421, 422, 429, 503, *statuses})
    }


def _fields(found: Problem) -> dict[str, Any]:
    return {name: getattr(found, name) for name in found.__struct_fields__}
