"""What answers in place of a model, so that a test knows the answers beforehand?"""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator
from typing import Any

from omoide.errors import ModelFailed
from omoide.turns.model import Reply, Request, as_reply

_WORDS = re.compile(r"\s*\S+\s*")


class ScriptedModel:
    """A model that gives the replies it was made with, one after the other, and keeps what it was asked.

    A reply is text, a `Reply`, a mapping such as `{"type": "operations", …}`, an exception to raise, or a
    function of the request that gives any of these and may be async. With `repeat` they start over.
    """

    name = "scripted"

    def __init__(self, *replies: Any, repeat: bool = False) -> None:
        self.replies = replies
        self.repeat = repeat
        self.requests: list[Request] = []
        """What it was asked, in turn."""

    async def complete(self, request: Request) -> Reply:
        """The next reply."""
        self.requests.append(request)
        at, count = len(self.requests) - 1, len(self.replies)
        if at >= count and not (self.repeat and count):
            raise ModelFailed(
                self.name,
                f"was asked {at + 1} times and has {count} replies",
                "script more of them",
            )
        return await self._given(self.replies[at % count], request)

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """The words of the next reply, then the reply."""
        reply = await self.complete(request)
        for word in _WORDS.findall(reply.content):
            yield word
        yield reply

    async def _given(self, reply: Any, request: Request) -> Reply:
        if isinstance(reply, BaseException) or (isinstance(reply, type) and issubclass(reply, BaseException)):
            raise reply
        if callable(reply):
            answer = reply(request)
            return await self._given(await answer if inspect.isawaitable(answer) else answer, request)
        return as_reply(reply, self.name)
