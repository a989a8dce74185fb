"""Jobs and exit of one life; Waiting.

Jobs, timers and sensors belong to one life of an agent: they end with it, whatever ends it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from anyio import CancelScope, get_cancelled_exc_class

from omoide.core.agent import STOP
from omoide.runtime.providers.protocol import is_cancelled

if TYPE_CHECKING:
    from omoide.runtime.scheduler import Timer


# ending: How did a life of an agent end?


SHUTDOWN = "shutdown"
NORMAL = ("normal", SHUTDOWN, STOP)


class Exit(msgspec.Struct, frozen=True):
    """How a life ended."""

    reason: str = "normal"
    asked: bool = False
    """Whether it was asked for from outside: then the agent is not started again."""

    @property
    def normal(self) -> bool:
        """Whether nothing went wrong."""
        return self.asked or self.reason in NORMAL


# living: What else goes on for an agent while it takes its letters?


Work = Callable[[], Coroutine[Any, Any, object]]
Tag = tuple[str, str]
"""A kind, such as `sensor`, and the tag of one of them."""
T = TypeVar("T")


class Life:
    """What an agent has going beside its letters."""

    __slots__ = ("_jobs", "_lasting", "closing", "named", "over", "timers")

    def __init__(self) -> None:
        self._jobs: set[CancelScope] = set()
        self._lasting: set[CancelScope] = set()
        self.named: dict[Tag, CancelScope | Timer] = {}
        """Sensors, processes and cron jobs, by kind and tag."""
        self.timers: set[Timer] = set()
        self.closing: list[Callable[[], object]] = []
        """What is to be done once in the end, such as to cancel a subscription."""
        self.over = False

    @property
    def busy(self) -> bool:
        """Whether work is under way that comes to an end by itself."""
        return bool(self._jobs)

    def begin(self, tag: Tag | None = None) -> CancelScope:
        """A scope for another job; one with a tag may go on until it is stopped."""
        scope = CancelScope()
        if tag is None:
            self._jobs.add(scope)
        else:
            self._lasting.add(scope)
            self.named[tag] = scope
        return scope

    def done(self, scope: CancelScope, tag: Tag | None = None) -> None:
        """Forget a job that is over; its tag may be another's by now."""
        self._jobs.discard(scope)
        self._lasting.discard(scope)
        if tag is not None and self.named.get(tag) is scope:
            del self.named[tag]

    def quieten(self) -> None:
        """End what would go on for ever."""
        for scope in [*self._lasting]:
            scope.cancel()
        for timer in [*self.timers]:
            timer.cancel()
        for one in self.named.values():
            one.cancel()
        self.named.clear()
        self.timers.clear()
        closing, self.closing = self.closing, []
        for close in closing:
            close()

    def end(self) -> None:
        """End everything."""
        self.over = True
        self.quieten()
        for scope in [*self._jobs]:
            scope.cancel()


async def guarded(work: Awaitable[T]) -> T:
    """What a work gives; it has failed where something that it waited for was cancelled, and not the work."""
    try:
        return await work
    except get_cancelled_exc_class() as error:
        if is_cancelled():
            raise
        raise RuntimeError("something that it waited for was cancelled") from error


async def run(
    life: Life, scope: CancelScope, work: Work, failed: Callable[[BaseException], Any], tag: Tag | None = None
) -> None:
    """Do a job of a life; `failed` is told what went wrong, unless the life is over."""
    try:
        with scope:
            if not life.over:
                await guarded(work())
    except (get_cancelled_exc_class(), KeyboardInterrupt):
        raise
    except BaseException as error:
        if not life.over:
            failed(error)
    finally:
        life.done(scope, tag)


# waiting: What makes the next directive wait?


class Waiting:
    """What an executor returns when the next directive has to wait until this work is done."""

    __slots__ = ("work",)

    def __init__(self, work: Work) -> None:
        self.work = work
