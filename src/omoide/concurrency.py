"""Concurrency helpers: a background worker, and a gather that raises one error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, NoReturn, Self

from anyio import CapacityLimiter, create_task_group


class BackgroundWorker:
    """A thread that runs one call at a time and ends with the block."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._pool: ThreadPoolExecutor | None = None
        self._job: Future[None] | None = None

    def start(self, call: Callable[[], None]) -> None:
        """Run a call in the background, after the previous one has finished."""
        # A caller that is ahead of the worker waits here, so pending work stays bounded.
        self.wait()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, self._name)
        self._job = self._pool.submit(call)

    def wait(self) -> None:
        """Wait for the running call, and raise its error."""
        # Taken before waiting, so that an error is raised once and not again at the end of the block.
        job, self._job = self._job, None
        if job is not None:
            job.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:  # an error of the block must not be replaced by one of the worker
                self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()


AsyncCall = Callable[[], Awaitable[Any]]


def raise_first_error(group: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the first error of a group as if it had come alone, with its own cause."""
    error = group.exceptions[0]
    raise error from error.__cause__


async def gather(calls: Sequence[AsyncCall], max_concurrency: int) -> None:
    """Run calls concurrently; the first error is raised and cancels the rest.

    Args:
        calls: functions that return awaitables.
        max_concurrency: the number of calls that run at the same time.
    """
    if len(calls) == 1:  # needs no task group
        await calls[0]()
    if len(calls) < 2:
        return
    limiter = CapacityLimiter(max_concurrency)

    async def run(call: AsyncCall) -> None:
        async with limiter:
            await call()

    try:
        async with create_task_group() as tasks:
            for call in calls:
                tasks.start_soon(run, call)
    except BaseExceptionGroup as group:
        raise_first_error(group)
