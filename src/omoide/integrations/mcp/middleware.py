"""Limit calls before the SDK sees them, and mark responses as private."""

from __future__ import annotations

from typing import Any

import anyio
import anyio.lowlevel
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from omoide.service.limits import Overloaded, Slots, refusal

CALLS_PER_CLIENT = 8
TOTAL_CALLS = 32
CALL_PATIENCE = 10.0
"""Seconds that a call may wait for another one of its client."""


class CallLimits:
    """ASGI middleware that limits calls in number, and drops those of clients that left.

    The SDK would log a traceback for each client that disconnects.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._calls = Slots("calls", CALLS_PER_CLIENT, TOTAL_CALLS, CALL_PATIENCE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on if it is within the limits."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            body = await self._read_body(receive)
            if body is not None:
                await self._call(scope, body, receive, send)
        except Overloaded as error:
            type = "too-many-requests" if error.status == 429 else "overloaded"
            await _refuse(send, error.status, type, error.detail)

    async def _call(self, scope: Scope, body: bytes, receive: Receive, send: Send) -> None:
        """Pass a request on when it is its turn, unless the client disconnects before."""
        unread: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive_body() -> Message:
            if not unread:
                await anyio.sleep_forever()  # a call that runs is finished, so that it leaves no half result
            return unread.pop()

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        refused: Overloaded | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(watch)
            await anyio.lowlevel.checkpoint()
            try:
                async with self._calls.hold(_client(scope)):
                    with anyio.CancelScope(shield=True):
                        await self._app(scope, receive_body, send)
            except Overloaded as error:
                refused = error  # raised below: a task group would wrap it
            group.cancel_scope.cancel()
        if refused is not None:
            raise refused

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Return the body; None if the client disconnects."""
        body = bytearray()
        while True:
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            body += message.get("body", b"")
            if not message.get("more_body", False):
                return bytes(body)


class NoEventStreams:
    """ASGI middleware that refuses GET, before any token is checked.

    The SDK answers it with an event stream that never carries an event, because the server keeps no sessions.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on every request but GET."""
        if scope["type"] == "http" and scope["method"] == "GET":
            await _refuse(send, 405, "no-such-method", "there are no event streams here; use POST")
        else:
            await self._app(scope, receive, send)


def _client(scope: Scope) -> str:
    """Return the token or the address of a client."""
    user: Any = scope.get("user")
    if isinstance(user, AuthenticatedUser):
        return user.access_token.client_id
    return scope["client"][0] if scope.get("client") else ""


async def _refuse(send: Send, status: int, type: str, detail: str) -> None:
    headers, body = refusal(status, type, detail)
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
