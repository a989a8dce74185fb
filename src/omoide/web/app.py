"""Build the ASGI application: REST routes, OpenAPI document, and the inspector if it is wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from anyio import Lock
from starlette.applications import Starlette
from starlette.datastructures import State
from starlette.middleware import Middleware
from starlette.responses import Response
from starlette.routing import Route

from omoide.service.requests import (
    BODY_TIMEOUT,
    MAX_BODY_BYTES,
    REQUEST_TIMEOUT,
    PrivateResponses,
    RequestLimits,
)
from omoide.service.schemas import HealthResponse
from omoide.web import inspector, routes
from omoide.web.endpoints import PREFIX, public_route
from omoide.web.inspector import InspectorSessions
from omoide.web.middleware import SLOTS, HostMiddleware, RateLimiter, unknown_path
from omoide.web.openapi import build_document

REQUESTS_PER_MINUTE = 6_000
POLL_INTERVAL = 0.5
OPENAPI_MEDIA_TYPE = "application/vnd.oai.openapi+json"


@public_route("/health")
async def health() -> HealthResponse:
    """Report that the service is up; no token is needed."""
    return HealthResponse(status="ok")


@public_route("/schema", media_type=OPENAPI_MEDIA_TYPE)
async def schema(state: State) -> Response:
    """Return the OpenAPI 3.1 document."""
    return Response(state.document, media_type=OPENAPI_MEDIA_TYPE)


ENDPOINTS = [
    *routes.MEMORY_ENDPOINTS,
    *routes.KNOWLEDGE_ENDPOINTS,
    *routes.SESSION_ENDPOINTS,
    *routes.AGENT_ENDPOINTS,
    *routes.EVENT_ENDPOINTS,
    *routes.STATUS_ENDPOINTS,
    health,
    schema,
]


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of all routes."""
    return build_document(ENDPOINTS, version=PREFIX.strip("/"))


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
) -> Starlette:
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
    endpoints = ENDPOINTS if inspector_sessions is None else [*ENDPOINTS, *inspector.ENDPOINTS]
    app = Starlette(
        routes=[Route(endpoint.path, endpoint) for endpoint in endpoints],
        middleware=[
            Middleware(PrivateResponses),
            Middleware(HostMiddleware, hosts=hosts),
            Middleware(
                RequestLimits,
                max_body_bytes=max_body_bytes,
                body_timeout=body_timeout,
                request_timeout=request_timeout,
            ),
        ],
        exception_handlers={404: unknown_path},
        lifespan=graph.lifespan,
    )
    app.router.redirect_slashes = False  # every path has one form
    app.state = State(
        {
            "store": store,
            "rate_limiter": RateLimiter(requests_per_minute),
            "slots": {kind: create() for kind, create in SLOTS.items()},
            "graph": graph.open,
            "poll_interval": poll_interval,
            "inspector_sessions": inspector_sessions,
            "document": msgspec.json.encode(openapi_document()),
        }
    )
    return app


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
    async def lifespan(self, app: Starlette) -> AsyncIterator[None]:
        """Close the view when the application shuts down."""
        try:
            yield
        finally:
            if self._view is not None:
                await self._view.close()
