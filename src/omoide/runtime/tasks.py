"""Jobs and exit of one life; Waiting.

Jobs, timers and sensors belong to one life of an agent: they end with it, whatever ends it.
"""

from __future__ import annotations

from asyncio import current_task
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from anyio import CancelScope, get_cancelled_exc_class, get_current_task

from omoide.core.agent import STOP_SIGNAL

if TYPE_CHECKING:
    from omoide.runtime.scheduler import Timer


# ending: How did a life of an agent end?


SHUTDOWN = "shutdown"
NORMAL_REASONS = ("normal", SHUTDOWN, STOP_SIGNAL)


class Exit(msgspec.Struct, frozen=True):
    """How a life ended."""

    reason: str = "normal"
    requested: bool = False
    """Whether it was asked for from outside: then the agent is not started again."""

    @property
    def is_normal(self) -> bool:
        """Whether nothing went wrong."""
        return self.requested or self.reason in NORMAL_REASONS


# living: What else goes on for an agent while it takes its letters?


Work = Callable[[], Coroutine[Any, Any, object]]
JobKey = tuple[str, str]
"""A kind, such as `sensor`, and the tag of one of them."""
T = TypeVar("T")


class TaskScope:
    """What an agent has going beside its letters."""

    __slots__ = ("_background", "_jobs", "closed", "exit_callbacks", "named_tasks", "timers")

    def __init__(self) -> None:
        self._jobs: set[CancelScope] = set()
        self._background: set[CancelScope] = set()
        self.named_tasks: dict[JobKey, CancelScope | Timer] = {}
        """Sensors, processes and cron jobs, by kind and tag."""
        self.timers: set[Timer] = set()
        self.exit_callbacks: list[Callable[[], object]] = []
        """What is to be done once in the end, such as to cancel a subscription."""
        self.closed = False

    @property
    def is_busy(self) -> bool:
        """Whether work is under way that comes to an end by itself."""
        return bool(self._jobs)

    def create_job(self, tag: JobKey | None = None) -> CancelScope:
        """A scope for another job; one with a tag may go on until it is stopped."""
        scope = CancelScope()
        if tag is None:
            self._jobs.add(scope)
        else:
            self._background.add(scope)
            self.named_tasks[tag] = scope
        return scope

    def discard_job(self, scope: CancelScope, tag: JobKey | None = None) -> None:
        """Forget a job that is over; its tag may be another's by now."""
        self._jobs.discard(scope)
        self._background.discard(scope)
        if tag is not None and self.named_tasks.get(tag) is scope:
            del self.named_tasks[tag]

    def cancel_background(self) -> None:
        """End what would go on for ever."""
        for scope in [*self._background]:
            scope.cancel()
        for timer in [*self.timers]:
            timer.cancel()
        for one in self.named_tasks.values():
            one.cancel()
        self.named_tasks.clear()
        self.timers.clear()
        closing, self.exit_callbacks = self.exit_callbacks, []
        for close in closing:
            close()

    def close(self) -> None:
        """End everything."""
        self.closed = True
        self.cancel_background()
        for scope in [*self._jobs]:
            scope.cancel()


def is_cancelled() -> bool:
    """Whether it is this task that was cancelled, and not something that it waited for."""
    task = current_task()
    return get_current_task().has_pending_cancellation() or (task is not None and task.cancelling() > 0)


async def await_guarded(work: Awaitable[T]) -> T:
    """What a work gives; it has failed where something that it waited for was cancelled, and not the work."""
    try:
        return await work
    except get_cancelled_exc_class() as error:
        if is_cancelled():
            raise
        raise RuntimeError("something that it waited for was cancelled") from error


async def run_job(
    task_scope: TaskScope,
    scope: CancelScope,
    work: Work,
    on_error: Callable[[BaseException], Any],
    tag: JobKey | None = None,
) -> None:
    """Do a job of a life; `failed` is told what went wrong, unless the life is over."""
    try:
        with scope:
            if not task_scope.closed:
                await await_guarded(work())
    except (get_cancelled_exc_class(), KeyboardInterrupt):
        raise
    except BaseException as error:
        if not task_scope.closed:
            on_error(error)
    finally:
        task_scope.discard_job(scope, tag)


# waiting: What makes the next directive wait?


class BlockingWork:
    """What an executor returns when the next directive has to wait until this work is done."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        self.work = work
