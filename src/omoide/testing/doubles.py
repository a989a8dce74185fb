"""Test doubles: a scripted model, a manual timing, and polling for conditions."""

from __future__ import annotations

import inspect
import re
from collections.abc import AsyncIterator, Callable, Coroutine
from inspect import isawaitable
from typing import Any, TypeVar, overload

import anyio
from anyio.lowlevel import checkpoint

from omoide import clock
from omoide.core.value import check_count
from omoide.errors import ModelFailed
from omoide.turns.model import Reply, Request, as_reply

_WORD_PATTERN = re.compile(r"\s*\S+\s*")


class ScriptedModel:
    """A model that returns its replies one after the other, and records the requests.

    A reply is text, a `Reply`, a mapping such as `{"type": "operations", …}`, an exception to raise, or a
    function of the request that returns any of these and may be async. With `repeat` the replies start over.
    """

    name = "scripted"

    def __init__(self, *replies: Any, repeat: bool = False) -> None:
        self.replies = replies
        self.repeat = repeat
        self.requests: list[Request] = []
        """The requests received so far, in order."""

    async def complete(self, request: Request) -> Reply:
        """Return the next reply.

        Raises:
            ModelFailed: No reply is left.
        """
        self.requests.append(request)
        at, count = len(self.requests) - 1, len(self.replies)
        if at >= count and not (self.repeat and count):
            raise ModelFailed(
                self.name, f"was asked {at + 1} times and has {count} replies", "script more of them"
            )
        return await self._resolve_reply(self.replies[at % count], request)

    async def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """Yield the words of the next reply, then the reply itself."""
        reply = await self.complete(request)
        for word in _WORD_PATTERN.findall(reply.content):
            yield word
        yield reply

    async def _resolve_reply(self, reply: Any, request: Request) -> Reply:
        if isinstance(reply, BaseException) or (isinstance(reply, type) and issubclass(reply, BaseException)):
            raise reply
        if callable(reply):
            result = reply(request)
            return await self._resolve_reply(await result if inspect.isawaitable(result) else result, request)
        return as_reply(reply, self.name)


CHECKPOINT_ROUNDS = 25
"""Rounds of the event loop before the more expensive check that all other tasks are blocked."""


class ManualTiming:
    """A timing that moves only when `advance` or `jump` is called.

    It is a clock as well: `clock.using(timing)` stamps values with its time.
    """

    def __init__(self, at: int = 1_000) -> None:
        self._at = clock.check(at, "at")
        self._waiters: list[tuple[int, anyio.Event]] = []

    def __call__(self) -> int:
        return self._at

    def now(self) -> int:
        """Return the current time in milliseconds since 1970 UTC."""
        return self._at

    async def wait(self, until: int) -> None:
        """Return once the time is at `until` or later."""
        if until <= self._at:
            return await checkpoint()
        waiting = until, anyio.Event()
        self._waiters.append(waiting)
        try:
            await waiting[1].wait()
        finally:
            self._waiters.remove(waiting)

    async def advance(self, ms: int) -> int:
        """Move time on by `ms`, stopping at each deadline until all tasks it wakes are idle again.

        Work in threads is not waited for; use `eventually` for that.

        Returns:
            The new time.
        """
        end = clock.check(self._at + check_count(ms, "ms"), "now")
        await _wait_until_idle()
        while (moment := min((until for until, _ in self._waiters), default=end + 1)) <= end:
            await self._set_time(max(moment, self._at))
        await self._set_time(end)
        return end

    async def jump(self, to: int) -> int:
        """Set the time at once, earlier or later, as when a system clock is changed."""
        clock.check(to, "to")
        await _wait_until_idle()
        self._at = to
        for _, event in self._waiters:
            event.set()
        await _wait_until_idle()
        return to

    async def _set_time(self, at: int) -> None:
        self._at = at
        for until, event in self._waiters:
            if until <= at:
                event.set()
        await _wait_until_idle()


async def _wait_until_idle() -> None:
    """Wait until every other task of the event loop is blocked."""
    for _ in range(CHECKPOINT_ROUNDS):
        await checkpoint()
    # By now this is so, nearly always, and then the look costs nothing.
    await anyio.wait_all_tasks_blocked()


T = TypeVar("T")


@overload
async def eventually(
    condition: Callable[[], Coroutine[Any, Any, T]], *, timeout: float = ..., interval: float = ...
) -> T: ...
@overload
async def eventually(condition: Callable[[], T], *, timeout: float = ..., interval: float = ...) -> T: ...
async def eventually(condition: Callable[[], Any], *, timeout: float = 5.0, interval: float = 0.005) -> Any:
    """Poll a condition until it is true, and return its value.

    Args:
        condition: A function, sync or async. An `AssertionError` that it raises means "not yet".
        timeout: Seconds after which to give up.
        interval: Seconds between two calls.

    Raises:
        AssertionError: The condition is still false after `timeout`; it shows the last value or error.
    """
    last: object = None
    with anyio.move_on_after(timeout):
        while True:
            try:
                result = condition()
                value = await result if isawaitable(result) else result
                if value:
                    return value
                last = value
            except AssertionError as error:
                last = error
            await anyio.sleep(interval)
    cause = last if isinstance(last, AssertionError) else None
    raise AssertionError(f"not within {timeout} s; last seen: {last!r}") from cause
