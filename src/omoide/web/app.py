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
from omoide.service.schemas import Health
from omoide.web import inspector, middleware, routes
from omoide.web.inspector import Visitors
from omoide.web.middleware import Counter, Doorkeeper, Told, guard
from omoide.web.openapi import OPENAPI, described
from omoide.web.schemas import open_to_all, whose

VERSION = "v1"
BODY_BYTES = 2 * 1024 * 1024
BODY_SECONDS = 30.0
A_MINUTE = 6_000
POLL_SECONDS = 0.5
HANDLERS = [
    *routes.HANDLERS_MEMORIES,
    *routes.HANDLERS_KNOWLEDGE,
    *routes.HANDLERS_CONVERSATIONS,
    *routes.HANDLERS,
    *routes.HANDLERS_EVENTS,
    *routes.HANDLERS_STANDING,
]


@open_to_all("/health")
async def health() -> Health:
    """Whether the service is there; no token is needed."""
    return Health(status="ok")


@open_to_all("/schema")
async def schema(state: State) -> Response[bytes]:
    """What may be asked, and how, in the form of OpenAPI."""
    return Response(state.document, media_type=OPENAPI)


OPEN = [health, schema]


def document() -> dict[str, Any]:
    """What the service says about itself."""
    return described([*(("", one) for one in OPEN), *((f"/{VERSION}", one) for one in HANDLERS)], VERSION)


def create_app(
    store: Any,
    *,
    hosts: Iterable[str] = (),
    a_minute: int | None = A_MINUTE,
    body_bytes: int = BODY_BYTES,
    body_seconds: float = BODY_SECONDS,
    poll_seconds: float = POLL_SECONDS,
    visitors: Visitors | None = None,
) -> Litestar:
    """An ASGI application over an open store, which stays yours to close.

    It answers to the names of this machine's loopback and to `hosts`. A token may ask `a_minute` times a
    minute, and send so many bytes within so many seconds each time. With `visitors` people can look at it in
    a browser, once they are invited.
    """
    graph = _Graph(store)
    return Litestar(
        [
            *OPEN,
            *([] if visitors is None else inspector.HANDLERS),
            Router(
                f"/{VERSION}",
                route_handlers=HANDLERS,
                dependencies={"within": Provide(whose, sync_to_thread=False)},
            ),
        ],
        guards=[guard],
        middleware=[Doorkeeper(hosts, body_seconds)],
        exception_handlers={
            OmoideError: middleware.told,
            HTTPException: middleware.refused,
            RecursionError: middleware.too_deep,
            Exception: middleware.unexpected,
        },
        lifespan=[graph.kept],
        openapi_config=None,
        request_max_body_size=body_bytes,
        state=State(
            {
                "store": store,
                "counter": Counter(a_minute),
                "graph": graph.opened,
                "poll_seconds": poll_seconds,
                "visitors": visitors,
                "document": msgspec.json.encode(document()),
            }
        ),
        response_class=Told,
        logging_config=None,
    )


class _Graph:
    """The graph of a store, opened when somebody asks it first."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._view: Any = None
        self._lock = Lock()

    async def opened(self) -> Any:
        """The graph."""
        async with self._lock:
            if self._view is None:
                from omoide.graph.view import open as open_graph

                self._view = open_graph(self._store)
            return self._view

    @asynccontextmanager
    async def kept(self, app: Litestar) -> AsyncIterator[None]:
        """For as long as the application lives."""
        try:
            yield
        finally:
            if self._view is not None:
                await self._view.close()
