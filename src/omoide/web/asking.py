"""What does a request mean: whose memory, and which revision of it?"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any

from litestar import Request, get, post
from litestar.exceptions import ValidationException
from litestar.params import Parameter

from omoide.core.scope import DEFAULT_NAMESPACE, Scope
from omoide.web.guarding import RIGHT
from omoide.web.problems import documented

_REV = re.compile(r'(?:W/)?"(\d{1,15})"')

Handler = Callable[..., Any]


def whose(
    namespace: Annotated[str, Parameter(description="The namespace.")] = DEFAULT_NAMESPACE,
    agent: Annotated[str | None, Parameter(description="The agent; usually any.")] = None,
    session: Annotated[str | None, Parameter(description="The session; usually any.")] = None,
    project: Annotated[str | None, Parameter(description="The project; usually any.")] = None,
) -> Scope:
    """The part of the store that a request means."""
    return Scope(namespace=namespace, agent_id=agent, session_id=session, project_id=project)


def expected_rev(request: Request[Any, Any, Any]) -> int | None:
    """The revision that `If-Match` expects."""
    given = request.headers.get("if-match")
    if given is None:
        return None
    found = _REV.fullmatch(given.strip())
    if found is None:
        raise ValidationException('if-match must be one revision in quotes, such as "3"')
    return int(found[1])


def idempotency_key(request: Request[Any, Any, Any]) -> str | None:
    """The key under which a request counts once."""
    return request.headers.get("idempotency-key")


def etag(rev: int) -> dict[str, str]:
    """The header that tells a revision."""
    return {"ETag": f'"{rev}"'}


def route(method: Handler, right: str, path: str, *statuses: int, **options: Any) -> Handler:
    """A route that needs a right, and may answer with these problems beside the usual ones."""
    made: Handler = method(path, opt={RIGHT: right}, responses=documented(*statuses), **options)
    return made


reads = partial(route, get, "read")
asks = partial(route, post, "read", status_code=200)
writes = partial(route, post, "write", status_code=200)
erases = partial(route, post, "erase", status_code=200)
