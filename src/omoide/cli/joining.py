"""How are several applications served at one address?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Asked = MutableMapping[str, Any]
Application = Callable[[Asked, Callable[..., Any], Callable[..., Any]], Awaitable[None]]


class Joined:
    """One application, and another one under a path; the other one lives as long as the first."""

    def __init__(self, first: Any, path: str, other: Any) -> None:
        self._first: Application = first
        self._path = path
        self._other = other

    async def __call__(self, scope: Asked, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
        """Pass a request to the one whose path it is."""
        if scope["type"] == "lifespan":
            async with self._other.router.lifespan_context(self._other):
                await self._first(scope, receive, send)
        elif scope.get("path", "") == self._path:
            await self._other(scope, receive, send)
        else:
            await self._first(scope, receive, send)
