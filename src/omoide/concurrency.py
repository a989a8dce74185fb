"""Task helpers: gather with one error, background worker."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn, Self

from anyio import CapacityLimiter, create_task_group

# behind: How is something done while the next thing is prepared?


class BackgroundWorker:
    """Does one thing at a time in a thread of its own, which ends with the block."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future[None] | None = None

    def start(self, call: Callable[[], None]) -> None:
        """Begin something, once the last thing is done."""
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, self._name)
        self._job = self._pool.submit(call)

    def wait(self) -> None:
        """Until all is done; raises what went wrong."""
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()


# together: How do several things happen at once, and fail as one?


AsyncCall = Callable[[], Awaitable[Any]]


def raise_first_error(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the first of several errors as if it had come alone, with the cause it has."""
    error = group.exceptions[0]
    raise error from error.__cause__


async def gather(calls: Sequence[AsyncCall], max_concurrency: int) -> None:
    """Do all of these, some at a time; the first error is raised, and the rest is cancelled."""
    if len(calls) == 1:
        await calls[0]()
    if len(calls) < 2:
        return
    limiter = CapacityLimiter(max_concurrency)

    async def one(waiting: AsyncCall) -> None:
        async with limiter:
            await waiting()

    try:
        async with create_task_group() as group:
            for waiting in calls:
                group.start_soon(one, waiting)
    except BaseExceptionGroup as several:
        raise_first_error(several)
