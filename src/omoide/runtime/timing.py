"""When is it time?

`Timing` tells the time and waits for it. `Timers` keeps any number of moments in one task: `at` goes by the
clock on the wall, `after` counts milliseconds. When that clock is set back, nothing fires twice, and a delay
grows by no more than what passed since the timers last looked: a few seconds, and not the hour that the
clock was wrong.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Protocol

import anyio
from anyio.lowlevel import checkpoint

from omoide import clock
from omoide.core.value import check_count, check_function, check_number
from omoide.errors import Invalid

BATCH = 256
"""How many timers fire before other tasks get their turn."""

FEW = 64
"""So many cancelled timers may lie about without being cleared away."""

NEVER = clock.LATEST + 1

_log = logging.getLogger("omoide")


class Timing(Protocol):
    """Tells the time and waits for it."""

    def now(self) -> int:
        """Milliseconds since 1970 UTC."""
        ...

    async def wait(self, until: int) -> None:
        """Return at a moment, or earlier: who waits looks again. Other tasks run in the meantime."""
        ...


class SystemTiming:
    """The time of the clock in use; it sleeps in slices, so that a clock that was set is noticed."""

    def __init__(self, longest: float = 5.0) -> None:
        if not check_number(longest, "longest") > 0:
            raise Invalid("longest", f"is {longest}", "pass seconds above 0")
        self._longest = longest

    def now(self) -> int:
        """Milliseconds since 1970 UTC."""
        return clock.now()

    async def wait(self, until: int) -> None:
        """Sleep until a moment, but not longer than one slice."""
        await anyio.sleep(min(max(0, until - clock.now()) / 1000, self._longest))


class Timer:
    """One call that is to be made at about `when`, unless it is cancelled."""

    __slots__ = ("_call", "_line", "when")

    def __init__(self, when: int, call: Callable[[], object], line: _Line) -> None:
        self.when = when
        self._call: Callable[[], object] | None = call
        self._line = line

    @property
    def active(self) -> bool:
        """Whether the call is still to come."""
        return self._call is not None

    def cancel(self) -> None:
        """Call nothing any more; of a timer that fired or was cancelled this is no error."""
        if self._call is not None:
            self._call = None
            self._line.forget_one()

    def _fire(self) -> None:
        call, self._call = self._call, None
        try:
            if call is not None:
                call()
        except Exception as error:
            _log.error("what a timer called failed with %s", type(error).__name__)


class _Line:
    """Timers in the order of their moments; those of one moment in the order they were set."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Timer]] = []
        self._cancelled = 0
        self._count = count()

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def add(self, when: int, call: Callable[[], object], shift: int = 0) -> Timer:
        timer = Timer(when, check_function(call, "call"), self)
        heappush(self._heap, (when + shift, next(self._count), timer))
        return timer

    def first(self) -> int | None:
        """The moment of the next timer."""
        while self._heap and not self._heap[0][2].active:
            heappop(self._heap)
            self._cancelled -= 1
        return self._heap[0][0] if self._heap else None

    def pop(self) -> Timer:
        return heappop(self._heap)[2]

    def forget_one(self) -> None:
        self._cancelled += 1
        if self._cancelled > FEW and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].active]
            heapify(self._heap)
            self._cancelled = 0


class Timers:
    """Any number of timers in one task: start `run` in a task group, and set timers from the same loop."""

    def __init__(self, timing: Timing | None = None) -> None:
        self.timing: Timing = SystemTiming() if timing is None else timing
        self._wall, self._elapsed = _Line(), _Line()
        self._seen = self.timing.now()
        self._set_back = 0
        self._until = NEVER
        self._waiting: anyio.CancelScope | None = None
        self._running = False

    def __len__(self) -> int:
        return len(self._wall) + len(self._elapsed)

    def at(self, when: int, call: Callable[[], object]) -> Timer:
        """Make a call when the clock shows a moment, or at once if that has passed."""
        timer = self._wall.add(clock.check(when, "when"), call)
        self._hurry(when)
        return timer

    def after(self, ms: int, call: Callable[[], object]) -> Timer:
        """Make a call when so many milliseconds have passed."""
        due = self._now() + check_count(ms, "ms")
        timer = self._elapsed.add(due, call, self._set_back)
        self._hurry(due)
        return timer

    async def run(self) -> None:
        """Fire what is due, until cancelled; timers that are left then wait for the next run."""
        if self._running:
            raise Invalid("timers", "are run by another task", "run them once")
        self._running = True
        try:
            while True:
                if self._fire_due():
                    await checkpoint()
                else:
                    await self._wait()
        finally:
            self._running = False

    def _fire_due(self) -> int:
        """Fire up to a batch of what is due, the earliest first; how many there were."""
        now, fired = self._now(), 0
        while fired < BATCH and (line := self._line_due(now)) is not None:
            line.pop()._fire()
            fired += 1
        return fired

    def _line_due(self, now: int) -> _Line | None:
        when, line = min((self._first_at(), 0), (self._first_after(), 1))
        return None if when > now else (self._wall, self._elapsed)[line]

    async def _wait(self) -> None:
        self._until = min(self._first_at(), self._first_after())
        with anyio.CancelScope() as self._waiting:
            if self._until > clock.LATEST:
                await anyio.sleep_forever()
            await self.timing.wait(self._until)
        self._waiting = None

    def _hurry(self, when: int) -> None:
        """Wake the task that waits for something later."""
        if self._waiting is not None and when < self._until:
            self._waiting.cancel()

    def _now(self) -> int:
        now = self.timing.now()
        self._set_back += max(0, self._seen - now)
        self._seen = now
        return now

    def _first_at(self) -> int:
        first = self._wall.first()
        return NEVER if first is None else first

    def _first_after(self) -> int:
        first = self._elapsed.first()
        return NEVER if first is None else first - self._set_back
