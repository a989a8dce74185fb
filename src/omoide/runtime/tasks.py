"""Own the background jobs, timers and subscriptions of one run of an agent.

They belong to a run, not to the agent: a `TaskScope` ends them when the run ends, however it ends.
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


SHUTDOWN = "shutdown"
NORMAL_REASONS = ("normal", SHUTDOWN, STOP_SIGNAL)

Work = Callable[[], Coroutine[Any, Any, object]]
JobKey = tuple[str, str]
"""A kind, such as `sensor`, and a tag."""
T = TypeVar("T")


class Exit(msgspec.Struct, frozen=True):
    """The end of a run of an agent, and its reason."""

    reason: str = "normal"
    requested: bool = False
    """True if it was requested from outside: then the agent is not restarted."""

    @property
    def is_normal(self) -> bool:
        """True if the run ended without a failure."""
        return self.requested or self.reason in NORMAL_REASONS


class ExitCallback:
    """A function that ends something, for instance a subscription."""

    __slots__ = ("cancel",)

    def __init__(self, cancel: Callable[[], object]) -> None:
        self.cancel = cancel


class TaskScope:
    """The jobs, timers and subscriptions of one run of an agent."""

    __slots__ = ("_background", "_jobs", "closed", "named_tasks", "timers")

    def __init__(self) -> None:
        self._jobs: set[CancelScope] = set()
        self._background: set[CancelScope] = set()
        self.named_tasks: dict[JobKey, CancelScope | Timer | ExitCallback] = {}
        """Sensors, processes, cron jobs and subscriptions, by kind and tag."""
        self.timers: set[Timer] = set()
        self.closed = False

    @property
    def is_busy(self) -> bool:
        """True if jobs are running that end by themselves."""
        return bool(self._jobs)

    def create_job(self, tag: JobKey | None = None) -> CancelScope:
        """Return the cancel scope of a new job; a job with a key may run until it is cancelled."""
        scope = CancelScope()
        if tag is None:
            self._jobs.add(scope)
        else:
            self._background.add(scope)
            self.named_tasks[tag] = scope
        return scope

    def discard_job(self, scope: CancelScope, tag: JobKey | None = None) -> None:
        """Remove a job that ended; its key may belong to another job by now."""
        self._jobs.discard(scope)
        self._background.discard(scope)
        # A job that was replaced ends after its successor began.
        if tag is not None and self.named_tasks.get(tag) is scope:
            del self.named_tasks[tag]

    def cancel_background(self) -> None:
        """Cancel what would run for ever: keyed jobs, timers and subscriptions."""
        for scope in [*self._background]:
            scope.cancel()
        for timer in [*self.timers]:
            timer.cancel()
        for task in self.named_tasks.values():
            task.cancel()
        self.named_tasks.clear()
        self.timers.clear()

    def close(self) -> None:
        """Cancel everything."""
        self.closed = True
        self.cancel_background()
        for scope in [*self._jobs]:
            scope.cancel()


def is_cancelled() -> bool:
    """Return whether this task itself was cancelled, and not something that it awaited."""
    task = current_task()
    # The first sees a cancellation by anyio, the second one by `Task.cancel` of asyncio.
    return get_current_task().has_pending_cancellation() or (task is not None and task.cancelling() > 0)


async def await_guarded(work: Awaitable[T]) -> T:
    """Await work, and turn the cancellation of something that it awaited into an error of the work."""
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
    """Run a job of a task scope; pass what it raises to `on_error`, unless the scope is closed."""
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


class BlockingWork:
    """Work that an executor returns when the next directive has to wait until it is done."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        self.work = work
