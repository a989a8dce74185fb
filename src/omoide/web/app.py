"""Build the ASGI application: REST routes, OpenAPI document, and the inspector if it is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from anyio import Lock
from litestar import Litestar, Response, Router
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.middleware import DefineMiddleware

from omoide.errors import OmoideError
from omoide.service.requests import BODY_TIMEOUT, MAX_BODY_BYTES, REQUEST_TIMEOUT, RequestLimits
from omoide.service.schemas import HealthResponse
from omoide.web import inspector, middleware, routes
from omoide.web.inspector import InspectorSessions
from omoide.web.middleware import HostMiddleware, JSONResponse, RateLimiter, authorize
from omoide.web.openapi import OPENAPI_MEDIA_TYPE, build_document
from omoide.web.schemas import public_route, query_scope

VERSION = "v1"
REQUESTS_PER_MINUTE = 6_000
POLL_INTERVAL = 0.5
HANDLERS = [
    *routes.MEMORY_HANDLERS,
    *routes.KNOWLEDGE_HANDLERS,
    *routes.SESSION_HANDLERS,
    *routes.AGENT_HANDLERS,
    *routes.EVENT_HANDLERS,
    *routes.STATUS_HANDLERS,
]


@public_route("/health")
async def health() -> HealthResponse:
    """Report that the service is up; no token is needed."""
    return HealthResponse(status="ok")


@public_route("/schema")
async def schema(state: State) -> Response[bytes]:
    """Return the OpenAPI 3.1 document."""
    return Response(state.document, media_type=OPENAPI_MEDIA_TYPE)


PUBLIC_HANDLERS = [health, schema]


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of all routes."""
    return build_document(
        [
            *(("", handler) for handler in PUBLIC_HANDLERS),
            *((f"/{VERSION}", handler) for handler in HANDLERS),
        ],
        VERSION,
    )


EXCEPTION_HANDLERS: Any = {
    OmoideError: middleware.handle_library_error,
    HTTPException: middleware.handle_http_error,
    RecursionError: middleware.handle_recursion_error,
    Exception: middleware.handle_unexpected_error,
}


def create_app(
    store: Any,
    *,
    hosts: Iterable[str] = (),
    requests_per_minute: int | None = REQUESTS_PER_MINUTE,
    max_body_bytes: int = MAX_BODY_BYTES,
    body_timeout: float = BODY_TIMEOUT,
    request_timeout: float = REQUEST_TIMEOUT,
    poll_interval: float = POLL_INTERVAL,
    inspector_sessions: InspectorSessions | None = None,
) -> Litestar:
    """Return an ASGI application over an open store; closing the store stays with the caller.

    Args:
        store: the store to serve.
        hosts: host names the service answers to, besides those of the loopback interface.
        requests_per_minute: limit of each token; None for no limit.
        max_body_bytes: size limit of a request body.
        body_timeout: seconds in which a request body has to arrive.
        request_timeout: seconds in which a response has to start.
        poll_interval: seconds between two looks for changes, if the store cannot wait for them.
        inspector_sessions: sign-in keys and sessions of the inspector; without them it is not served.
    """
    graph = _LazyGraph(store)
    return Litestar(
        [
            *PUBLIC_HANDLERS,
            *([] if inspector_sessions is None else inspector.HANDLERS),
            _create_router(),
        ],
        guards=[authorize],
        middleware=[
            HostMiddleware(hosts),
            DefineMiddleware(
                RequestLimits,
                max_body_bytes=max_body_bytes,
                body_timeout=body_timeout,
                request_timeout=request_timeout,
            ),
        ],
        before_send=[middleware.protect_response],
        exception_handlers=EXCEPTION_HANDLERS,
        lifespan=[graph.lifespan],
        openapi_config=None,
        request_max_body_size=None,
        state=State(
            {
                "store": store,
                "rate_limiter": RateLimiter(requests_per_minute),
                "slots": {kind: create() for kind, create in middleware.SLOTS.items()},
                "graph": graph.open,
                "poll_interval": poll_interval,
                "inspector_sessions": inspector_sessions,
                "document": msgspec.json.encode(openapi_document()),
            }
        ),
        response_class=JSONResponse,
        logging_config=None,
    )


def _create_router() -> Router:
    scope = Provide(query_scope, sync_to_thread=False)
    return Router(f"/{VERSION}", route_handlers=HANDLERS, dependencies={"memory_scope": scope})


class _LazyGraph:
    """Graph view of a store, opened on first use."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._view: Any = None
        self._lock = Lock()

    async def open(self) -> Any:
        """Return the view."""
        async with self._lock:
            if self._view is None:
                from omoide.graph.view import open as open_graph

                self._view = open_graph(self._store)
            return self._view

    @asynccontextmanager
    async def lifespan(self, app: Litestar) -> AsyncIterator[None]:
        """Close the view when the application shuts down."""
        try:
            yield
        finally:
            if self._view is not None:
                await self._view.close()
