"""When has a signal been accepted?

When every handler that wants it has returned. One that raises is told again after a pause, a few times; a
handler that stopped listening meanwhile counts no more.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from inspect import isawaitable

import anyio
from anyio import create_task_group, get_cancelled_exc_class

from omoide.core.signal import Signal
from omoide.errors import Dropped
from omoide.runtime.providers.calling import is_cancelled
from omoide.runtime.transport import Handler

PAUSES = (0.05, 0.1, 0.2, 0.4, 1.0)
"""How many seconds pass before a handler that raised is told again."""

OnError = Callable[[Signal | None, Exception], object]
Report = Callable[[str, Signal | None, Exception], None]


class Listener:
    """A handler on a channel; the subscription that a caller holds."""

    def __init__(self, pattern: str, handler: Handler, left: Callable[[Listener], Awaitable[None]]) -> None:
        self.pattern = pattern
        self.handler = handler
        self.closed = False
        self._left = left

    async def close(self) -> None:
        """Be told no more; a call that is going on ends by itself, and its signal is not confirmed."""
        if not self.closed:
            self.closed = True
            await self._left(self)

    def is_closed(self) -> bool:
        """Whether it is told no more; a handler may have changed that."""
        return self.closed


class Post:
    """Hands signals to those who listen, in turn."""

    def __init__(self, name: str, max_deliver: int, listeners: list[Listener], report: Report) -> None:
        self._name, self._max_deliver = name, max_deliver
        self._listeners, self._report = listeners, report
        self.failed = False
        """Whether somebody raised over the last signal."""

    async def hand(self, signal: Signal, tries: int) -> bool | None:
        """Whether all who want it accepted a signal; None where nobody is left who listens."""
        self.failed = False
        if tries >= self._max_deliver:
            return False
        wanting = [one for one in self._listeners if signal.matches(one.pattern)]
        if len(wanting) == 1:
            return await self._told(wanting[0], signal, tries)
        answers: list[bool | None] = []

        async def told(one: Listener) -> None:
            answers.append(await self._told(one, signal, tries))

        async with create_task_group() as tasks:
            for one in wanting:
                tasks.start_soon(told, one)
        if wanting and all(answer is None for answer in answers):
            return None
        return all(answer is not False for answer in answers)

    async def _told(self, one: Listener, signal: Signal, tries: int) -> bool | None:
        while not one.is_closed():
            error: Exception
            try:
                given = one.handler(signal)
                if isawaitable(given):
                    await given
                return True
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                error = Dropped(self._name, signal.type, "its handler gave up")
            except Exception as raised:
                error = raised
            if one.is_closed():
                break
            self._report(self._name, signal, error)
            self.failed = True
            tries += 1
            if tries >= self._max_deliver:
                return False
            await anyio.sleep(PAUSES[min(tries, len(PAUSES)) - 1])
        return None
