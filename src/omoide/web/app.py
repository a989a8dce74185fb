"""What is served over HTTP, and to whom?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Any

from anyio import Lock
from litestar import Litestar, Router, get
from litestar.datastructures import State
from litestar.di import Provide
from litestar.exceptions import HTTPException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.plugins import JsonRenderPlugin
from litestar.openapi.spec import Components, SecurityScheme

from omoide.core import codec
from omoide.core.frozen import FrozenList, FrozenMap
from omoide.errors import OmoideError
from omoide.web import agents, conversations, events, knowledge, memories, problems
from omoide.web.answers import Health
from omoide.web.asking import whose
from omoide.web.guarding import Counter, Doorkeeper, guard

VERSION = "v1"
BODY_BYTES = 2 * 1024 * 1024
BODY_SECONDS = 30.0
A_MINUTE = 6_000
POLL_SECONDS = 0.5
HANDLERS = [
    *memories.HANDLERS,
    *knowledge.HANDLERS,
    *conversations.HANDLERS,
    *agents.HANDLERS,
    *events.HANDLERS,
]


@get("/health", opt={})
async def health() -> Health:
    """Whether the service is there; no token is needed."""
    return Health(status="ok")


def create_app(
    store: Any,
    *,
    hosts: Iterable[str] = (),
    a_minute: int | None = A_MINUTE,
    body_bytes: int = BODY_BYTES,
    body_seconds: float = BODY_SECONDS,
    poll_seconds: float = POLL_SECONDS,
) -> Litestar:
    """An ASGI application over an open store, which stays yours to close.

    It answers to the names of this machine's loopback and to `hosts`. A token may ask `a_minute` times a
    minute, and send so many bytes within so many seconds each time.
    """
    graph = _Graph(store)
    return Litestar(
        [
            health,
            Router(
                f"/{VERSION}",
                route_handlers=HANDLERS,
                dependencies={"within": Provide(whose, sync_to_thread=False)},
            ),
        ],
        guards=[guard],
        middleware=[Doorkeeper(hosts, body_seconds)],
        exception_handlers={
            OmoideError: problems.told,
            HTTPException: problems.refused,
            Exception: problems.unexpected,
        },
        lifespan=[graph.kept],
        openapi_config=OpenAPIConfig(
            title="Omoide",
            version=VERSION,
            description="Memory that agents can explain, and an identity others can route to.",
            components=Components(security_schemes={"token": SecurityScheme(type="http", scheme="bearer")}),
            security=[{"token": []}],
            path="/schema",
            render_plugins=[JsonRenderPlugin()],  # the others load code from other hosts
        ),
        request_max_body_size=body_bytes,
        state=State(
            {
                "store": store,
                "counter": Counter(a_minute),
                "graph": graph.opened,
                "poll_seconds": poll_seconds,
            }
        ),
        type_encoders={FrozenMap: codec.dump, FrozenList: codec.dump},
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
