"""How does a command wait for an answer and still hear Ctrl-C?

The event loop runs in a thread of its own, for as long as the command does: connections to a model stay open
between answers, and the main thread is free to be interrupted.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from threading import Event
from typing import Any, TypeVar

from anyio.from_thread import BlockingPortal, start_blocking_portal

T = TypeVar("T")


class Loop:
    """An event loop in another thread."""

    def __init__(self, portal: BlockingPortal) -> None:
        self._portal = portal

    def wait(self, work: Callable[..., Awaitable[T]], *given: Any) -> T:
        """What the work comes to; Ctrl-C cancels it and is raised when it has let go of everything."""
        over = Event()

        async def run() -> T:
            try:
                return await work(*given)
            finally:
                over.set()

        future: Future[T] | None = None
        try:
            future = self._portal.start_task_soon(run)
            return future.result()
        except KeyboardInterrupt:
            if future is not None:
                future.cancel()
                over.wait()
            raise

    def held(self, manager: AbstractAsyncContextManager[T]) -> AbstractContextManager[T]:
        """The same block, for code that does not await."""
        return self._portal.wrap_async_context_manager(manager)


@contextmanager
def event_loop() -> Iterator[Loop]:
    """A loop that runs inside the block."""
    with start_blocking_portal() as portal:
        yield Loop(portal)
