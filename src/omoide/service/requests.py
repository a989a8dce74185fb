"""Limit the requests to an ASGI application in size and time, and keep its responses private.

REST and MCP use the same middleware. It answers 408, 413 and 504 in place of the application, and marks every
response as private.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from functools import partial
from typing import Any

import anyio

from omoide.errors import TimedOut
from omoide.service.limits import PRIVATE_HEADERS, problem_response, refusal
from omoide.service.problems import to_problem

MAX_BODY_BYTES = 2 * 1024 * 1024
BODY_TIMEOUT = 30.0
REQUEST_TIMEOUT = 90.0
"""Seconds: more than a request waits for its turn, and then for a SPARQL query of 60 s."""
BODY_START = 64 * 1024
"""Bytes of a body that are read before the application sees the request: what a server buffers anyway."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


class PrivateResponses:
    """ASGI middleware that adds `PRIVATE_HEADERS` to every response."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on, and mark its response."""

        async def send_marked(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = [header for header in message.get("headers", ()) if header[0] not in PRIVATE_HEADERS]
                message["headers"] = [*own, *PRIVATE_HEADERS.items()]
            await send(message)

        await self._app(scope, receive, send_marked)


class RequestLimits:
    """ASGI middleware that passes requests on, and answers those that are too large or take too long.

    The application sees a request only once its body, or the start of a large one, has arrived: bodies that
    never come cost no check of a token. The deadline of a request ends when its response starts; from then on
    the client has to read, and an event stream goes on for as long as it is open.

    A late request is cancelled after its client was answered. A thread cannot be cancelled: what it writes is
    written, and the request keeps its slots until the thread ends.

    Args:
        app: the application.
        max_body_bytes: size limit of a body.
        body_timeout: seconds in which a body has to arrive.
        request_timeout: seconds in which a response has to start.
    """

    def __init__(
        self,
        app: Callable[..., Awaitable[None]],
        max_body_bytes: int = MAX_BODY_BYTES,
        body_timeout: float = BODY_TIMEOUT,
        request_timeout: float = REQUEST_TIMEOUT,
    ) -> None:
        self._app = app
        self.max_body_bytes = max_body_bytes
        self.body_timeout = body_timeout
        self.request_timeout = request_timeout

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass a request on within the limits."""
        if scope["type"] == "http":
            await _Request(self, scope, receive, send).run(partial(self._app, scope))
        else:
            await self._app(scope, receive, send)


class _Request:
    """A request under way: how much of its body was received, and whether it was answered."""

    def __init__(self, limits: RequestLimits, scope: Any, receive: Receive, send: Send) -> None:
        self._limits = limits
        self._announced = int(dict(scope["headers"]).get(b"content-length", 0))
        self._receive = receive
        self._send = send
        self._started = anyio.current_time()
        self._unread: deque[Message] = deque()
        self._size = 0
        self._is_complete = False
        self._is_answered = False
        self._is_refused = False
        self._application = anyio.CancelScope()

    async def run(self, app: Callable[[Receive, Send], Awaitable[None]]) -> None:
        """Run the application, until it has answered or a limit is exceeded."""
        with self._application:
            with anyio.move_on_after(self._limits.body_timeout) as waiting:
                if not await self._receive_start():
                    return
            if waiting.cancelled_caught:
                await self._refuse_slow_body()
            else:
                await self._run_application(app)

    async def _run_application(self, app: Callable[[Receive, Send], Awaitable[None]]) -> None:
        failure: Exception | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(self._watch_response)
            if not self._is_complete:
                group.start_soon(self._watch_body)
            try:
                await app(self._receive_next, self._send_response)
            except Exception as error:  # noqa: BLE001 - raised below: a task group would wrap it
                failure = error
            group.cancel_scope.cancel()
        if failure is not None and not self._is_refused:
            raise failure

    async def _receive_start(self) -> bool:
        """Receive the start of the body; return False if the client disconnects."""
        await self._check_size(self._announced)
        while not self._is_complete and self._size < BODY_START:
            message = await self._receive_message()
            if message["type"] == "http.disconnect":
                return False
            self._unread.append(message)
        return True

    async def _receive_next(self) -> Message:
        return self._unread.popleft() if self._unread else await self._receive_message()

    async def _receive_message(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.request":
            self._size += len(message.get("body", b""))
            self._is_complete = not message.get("more_body", False)
            await self._check_size(self._size)
        return message

    async def _check_size(self, size: int) -> None:
        most = self._limits.max_body_bytes
        if size > most:
            await self._refuse(413, *refusal(413, "body-too-large", f"the body is larger than {most} bytes"))
            await anyio.sleep_forever()  # until the application is cancelled

    async def _send_response(self, message: Message) -> None:
        if not self._is_refused:
            self._is_answered = True
            await self._send(message)

    async def _watch_body(self) -> None:
        await anyio.sleep_until(self._started + self._limits.body_timeout)
        if not self._is_complete:
            await self._refuse_slow_body()

    async def _watch_response(self) -> None:
        seconds = self._limits.request_timeout
        await anyio.sleep_until(self._started + seconds)
        problem = to_problem(TimedOut("the request", seconds))
        await self._refuse(problem.status, *problem_response(problem))

    async def _refuse_slow_body(self) -> None:
        await self._refuse(408, *refusal(408, "too-slow", "the body did not come in time"))

    async def _refuse(self, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        """Answer in place of the application, and cancel it, unless it has answered."""
        if self._is_answered:
            return
        self._is_answered = self._is_refused = True
        with anyio.CancelScope(shield=True):  # the application may end meanwhile
            await self._send({"type": "http.response.start", "status": status, "headers": headers})
            await self._send({"type": "http.response.body", "body": body})
        self._application.cancel()
