"""How does a test make time pass?"""

from __future__ import annotations

import anyio
from anyio.lowlevel import checkpoint

from omoide import clock
from omoide.core.value import check_count

ROUNDS = 25
"""How often the loop goes round before anybody looks whether all tasks wait."""


class ManualTiming:
    """A timing that stands still until `advance` moves it.

    It is a clock as well: `clock.using(timing)` stamps values with its time.
    """

    def __init__(self, at: int = 1_000) -> None:
        self._at = clock.check(at, "at")
        self._waiting: list[tuple[int, anyio.Event]] = []

    def __call__(self) -> int:
        return self._at

    def now(self) -> int:
        """Milliseconds since 1970 UTC."""
        return self._at

    async def wait(self, until: int) -> None:
        """Return when it has been moved to a moment, or beyond."""
        if until <= self._at:
            return await checkpoint()
        waiting = until, anyio.Event()
        self._waiting.append(waiting)
        try:
            await waiting[1].wait()
        finally:
            self._waiting.remove(waiting)

    async def advance(self, ms: int) -> int:
        """Let time pass: it stops at each moment that somebody waits for, until all that follows is done.

        Work in threads is not waited for: `eventually` does that. The new time.
        """
        end = clock.check(self._at + check_count(ms, "ms"), "now")
        await _settled()
        while (moment := min((until for until, _ in self._waiting), default=end + 1)) <= end:
            await self._show(max(moment, self._at))
        await self._show(end)
        return end

    async def jump(self, to: int) -> int:
        """Show another time at once, earlier or later, as when somebody sets the clock."""
        clock.check(to, "to")
        await _settled()
        self._at = to
        for _, event in self._waiting:
            event.set()
        await _settled()
        return to

    async def _show(self, at: int) -> None:
        self._at = at
        for until, event in self._waiting:
            if until <= at:
                event.set()
        await _settled()


async def _settled() -> None:
    """Every other task of the loop waits for something."""
    for _ in range(ROUNDS):
        await checkpoint()
    # By now this is so, nearly always, and then the look costs nothing.
    await anyio.wait_all_tasks_blocked()
