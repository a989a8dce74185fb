"""What is served over HTTP, and to whom?"""

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

from omoide.errors import OmoideError
from omoide.service.schemas import HealthResponse
from omoide.web import inspector, middleware, routes
from omoide.web.inspector import InspectorSessions
from omoide.web.middleware import HostMiddleware, JSONResponse, RateLimiter, authorize
from omoide.web.openapi import OPENAPI_MEDIA_TYPE, build_document
from omoide.web.schemas import public_route, query_scope

VERSION = "v1"
MAX_BODY_BYTES = 2 * 1024 * 1024
BODY_TIMEOUT = 30.0
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
    """Whether the service is there; no token is needed."""
    return HealthResponse(status="ok")


@public_route("/schema")
async def schema(state: State) -> Response[bytes]:
    """What may be asked, and how, in the form of OpenAPI."""
    return Response(state.document, media_type=OPENAPI_MEDIA_TYPE)


PUBLIC_HANDLERS = [health, schema]


def openapi_document() -> dict[str, Any]:
    """What the service says about itself."""
    return build_document(
        [*(("", one) for one in PUBLIC_HANDLERS), *((f"/{VERSION}", one) for one in HANDLERS)], VERSION
    )


def create_app(
    store: Any,
    *,
    hosts: Iterable[str] = (),
    requests_per_minute: int | None = REQUESTS_PER_MINUTE,
    max_body_bytes: int = MAX_BODY_BYTES,
    body_timeout: float = BODY_TIMEOUT,
    poll_interval: float = POLL_INTERVAL,
    inspector_sessions: InspectorSessions | None = None,
) -> Litestar:
    """An ASGI application over an open store, which stays yours to close.

    It answers to the names of this machine's loopback and to `hosts`. A token may ask `requests_per_minute` times a
    minute, and send so many bytes within so many seconds each time. With `visitors` people can look at it in
    a browser, once they are invited.
    """
    graph = _LazyGraph(store)
    return Litestar(
        [
            *PUBLIC_HANDLERS,
            *([] if inspector_sessions is None else inspector.HANDLERS),
            Router(
                f"/{VERSION}",
                route_handlers=HANDLERS,
                dependencies={"within": Provide(query_scope, sync_to_thread=False)},
            ),
        ],
        guards=[authorize],
        middleware=[HostMiddleware(hosts, body_timeout)],
        exception_handlers={
            OmoideError: middleware.handle_library_error,
            HTTPException: middleware.handle_http_error,
            RecursionError: middleware.handle_recursion_error,
            Exception: middleware.handle_unexpected_error,
        },
        lifespan=[graph.lifespan],
        openapi_config=None,
        request_max_body_size=max_body_bytes,
        state=State(
            {
                "store": store,
                "counter": RateLimiter(requests_per_minute),
                "graph": graph.open,
                "poll_seconds": poll_interval,
                "visitors": inspector_sessions,
                "document": msgspec.json.encode(openapi_document()),
            }
        ),
        response_class=JSONResponse,
        logging_config=None,
    )


class _LazyGraph:
    """The graph of a store, opened when somebody asks it first."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._view: Any = None
        self._lock = Lock()

    async def open(self) -> Any:
        """The graph."""
        async with self._lock:
            if self._view is None:
                from omoide.graph.view import open as open_graph

                self._view = open_graph(self._store)
            return self._view

    @asynccontextmanager
    async def lifespan(self, app: Litestar) -> AsyncIterator[None]:
        """For as long as the application lives."""
        try:
            yield
        finally:
            if self._view is not None:
                await self._view.close()
