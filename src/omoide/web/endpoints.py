"""Declare routes, and run their requests.

A handler gets its arguments by name: `request` and `state` (that of the application), `memory_scope` (the
`Scope` of the query string), and `payload` (the decoded JSON body); all others are query parameters. The
first line of its docstring is the summary in the OpenAPI document.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from functools import partial
from inspect import Parameter, signature
from types import NoneType
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote_to_bytes

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from omoide.core import codec, entry
from omoide.web.middleware import InvalidParameter, JSONResponse, admit, authenticate, problem_response
from omoide.web.schemas import SCOPE_PARAMETERS, ScopeQuery

PREFIX = "/v1"
"""Start of the path of every route that needs a token."""
JSON_MEDIA_TYPE = "application/json"
INJECTED_PARAMETERS = frozenset({"payload", "request", "return", "state", "memory_scope"})
"""Names in a handler's annotations that are no query parameters."""
_JSON_CONTENT_TYPE = re.compile(
    r'application/(?:[\w.-]+\+)?json\s*(?:;\s*charset="?utf-?8"?\s*)?', re.IGNORECASE
)

Handler = Callable[..., Awaitable[Any]]
T = TypeVar("T")


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Route with its handler; the ASGI application that runs the requests to it."""

    handler: Handler
    method: str
    path: str
    right: str | None
    """Right that a token needs; None for a public route."""
    hints: Mapping[str, Any]
    """Annotations of the handler."""
    query: type[msgspec.Struct]
    """Query parameters of the handler, without those of the scope."""
    scope: tuple[str, ...] = ()
    """Scope parameters that the route takes; it refuses the others."""
    required: tuple[str, ...] = ()
    """Scope parameters that are optional elsewhere and required here."""
    headers: tuple[str, ...] = ()
    """Request headers that the handler reads."""
    statuses: tuple[int, ...] = ()
    """Error statuses besides the common ones."""
    slots: str = "requests"
    """Kind of slots that a request holds while it runs."""
    media_type: str = JSON_MEDIA_TYPE
    """Media type of the response."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Run a request; what it holds is released when the response was sent."""
        request = Request(scope, receive)
        async with AsyncExitStack() as resources:
            try:
                response = await self._respond(request, resources)
            except Exception as error:  # noqa: BLE001 - the client is told of every error
                response = problem_response(request, error)
            await response(scope, receive, send)

    async def _respond(self, request: Request, resources: AsyncExitStack) -> Response:
        """Check method, token, parameters and limits, in this order, and call the handler."""
        if request.method != self.method:
            return self._tell_method(request)
        if self.right is not None:
            token = await authenticate(request)
            self._check_query(request)
            await admit(request, token, self.right, self.slots, resources)
        result = await self.handler(**await self._arguments(request))
        return result if isinstance(result, Response) else JSONResponse(result)

    def _tell_method(self, request: Request) -> Response:
        """Answer OPTIONS, and refuse any other method that is not that of the route."""
        allowed = ", ".join(sorted((self.method, "OPTIONS")))
        if request.method == "OPTIONS":
            return Response(status_code=204, headers={"Allow": allowed})
        raise HTTPException(405, f"the path takes {allowed}", {"Allow": allowed})

    def _check_query(self, request: Request) -> None:
        """Raise unless each query parameter is known, given once, and UTF-8.

        If a parameter were given twice, one value might be checked and another one used. A misspelt `agent`
        would be ignored, and the request would apply to a larger scope.
        """
        try:
            unquote_to_bytes(request.scope["query_string"]).decode()
        except UnicodeDecodeError:
            raise InvalidParameter("query", "is not in UTF-8") from None
        known = {*self.scope, *self.query.__struct_fields__}
        given: set[str] = set()
        for name, value in request.query_params.multi_items():
            if name not in known:
                raise InvalidParameter(name[:40], f"is an unknown parameter; use {', '.join(sorted(known))}")
            if name in given:
                raise InvalidParameter(name, "is given more than once")
            if value.lower() == "null" and name in self.hints and not _is_text(self.hints[name]):
                raise InvalidParameter(name, "is null; leave it out instead")
            given.add(name)

    async def _arguments(self, request: Request) -> dict[str, Any]:
        """Return the arguments of the handler."""
        query = dict(request.query_params)
        arguments = msgspec.structs.asdict(_convert_query(query, self.query))
        if "memory_scope" in self.hints:
            arguments["memory_scope"] = _memory_scope(_convert_query(query, ScopeQuery))
        if "payload" in self.hints:
            arguments["payload"] = await _read_body(request, self.hints["payload"])
        if "request" in self.hints:
            arguments["request"] = request
        if "state" in self.hints:
            arguments["state"] = request.app.state
        return arguments


def _memory_scope(query: ScopeQuery) -> entry.Scope:
    return entry.Scope(
        namespace=query.namespace,
        user_id=query.user,
        agent_id=query.agent,
        session_id=query.session,
        project_id=query.project,
    )


def _convert_query(query: dict[str, str], kind: type[T]) -> T:
    try:
        return msgspec.convert(query, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidParameter(*codec.parse_error_message(str(error))) from None


async def _read_body(request: Request, kind: type[T]) -> T:
    """Decode the JSON body with the library's codec."""
    if _JSON_CONTENT_TYPE.fullmatch(request.headers.get("content-type", "").strip()) is None:
        raise HTTPException(415, "send application/json, in UTF-8")
    try:
        data = msgspec.json.decode(await request.body())
    except ClientDisconnect:
        raise HTTPException(400, "the body did not arrive") from None
    except (msgspec.DecodeError, UnicodeError):
        raise HTTPException(400, "the body is not readable as JSON in UTF-8") from None
    try:
        return msgspec.convert(data, kind, dec_hook=codec.dec_hook)
    except msgspec.ValidationError as error:
        raise codec.translate_error(error) from None


def route(
    method: str,
    right: str | None,
    path: str,
    *statuses: int,
    scope: tuple[str, ...] = tuple(SCOPE_PARAMETERS),
    **facts: Any,
) -> Callable[[Handler], Endpoint]:
    """Return a decorator that makes an endpoint of a handler.

    Args:
        method: HTTP method.
        right: right that a token needs; None for a public route.
        path: path, below the prefix unless the route is public.
        statuses: error statuses besides the common ones.
        scope: scope parameters that narrow what the route is about; the others are refused.
        facts: further fields of the endpoint.
    """

    def declare(handler: Handler) -> Endpoint:
        hints = get_type_hints(handler, include_extras=True)
        query = [
            (name, hints[name]) if given.default is Parameter.empty else (name, hints[name], given.default)
            for name, given in signature(handler).parameters.items()
            if name not in INJECTED_PARAMETERS
        ]
        return Endpoint(
            handler=handler,
            method=method,
            path=path if right is None else PREFIX + path,
            right=right,
            hints=hints,
            query=msgspec.defstruct(f"{path}?", query, frozen=True, kw_only=True),
            scope=scope if "memory_scope" in hints else (),
            statuses=statuses,
            **facts,
        )

    return declare


public_route = partial(route, "GET", None)
read_route = partial(route, "GET", "read")
query_route = partial(route, "POST", "read")
write_route = partial(route, "POST", "write")
erase_route = partial(route, "POST", "erase")


def without_null(hint: Any) -> Any:
    """Return an annotation without null, which no query string can say."""
    return get_args(hint)[0] if NoneType in get_args(hint) else hint


def _is_text(hint: Any) -> bool:
    kind = without_null(hint)
    return (get_args(kind)[0] if get_origin(kind) is Annotated else kind) is str
