"""How is something done while the next thing is prepared?"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Self


class Behind:
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
