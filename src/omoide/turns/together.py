"""How do several things happen at once, and fail as one?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NoReturn

from anyio import CapacityLimiter, create_task_group

Work = Callable[[], Awaitable[Any]]


def raise_first(several: BaseExceptionGroup[BaseException]) -> NoReturn:
    """Raise the first of several errors as if it had come alone, with the cause it has."""
    error = several.exceptions[0]
    raise error from error.__cause__


async def together(work: Sequence[Work], at_once: int) -> None:
    """Do all of these, some at a time; the first error is raised, and the rest is cancelled."""
    if len(work) == 1:
        await work[0]()
    if len(work) < 2:
        return
    limiter = CapacityLimiter(at_once)

    async def one(waiting: Work) -> None:
        async with limiter:
            await waiting()

    try:
        async with create_task_group() as group:
            for waiting in work:
                group.start_soon(one, waiting)
    except BaseExceptionGroup as several:
        raise_first(several)
