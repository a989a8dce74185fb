"""How is a provider called so that nothing it does can hurt the caller?"""

from __future__ import annotations

from asyncio import CancelledError, current_task
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, NamedTuple

from anyio import CapacityLimiter, get_current_task, to_thread
from anyio.lowlevel import RunVar

from omoide.runtime.providers.protocol import Answered, Failed, Outcome

THREADS = 40
"""How many plain methods may run at once; stores have threads of their own."""
REASON = 300
"""How many characters a reason may have."""

_limiter: RunVar[CapacityLimiter] = RunVar("omoide_providers")


class Raised(NamedTuple):
    """A provider did not answer, but raised something."""

    reason: str


async def called(provider: Any, name: str, *args: Any) -> Any:
    """What a method of a provider gives, or that it raised; one that hangs can be left behind."""
    try:
        method = getattr(provider, name)
        if iscoroutinefunction(method) or getattr(provider, "instant", False) is True:
            given = method(*args)
        else:
            # The thread may never come back: whoever stops waiting goes on without it.
            given = await to_thread.run_sync(
                partial(copy_context().run, method, *args), abandon_on_cancel=True, limiter=_threads()
            )
        return await given if isawaitable(given) else given
    except CancelledError:
        if is_cancelled():
            raise
        return Raised(f"{name} gave up by itself")
    except Exception as error:
        return Raised(described(error))


async def answered(provider: Any, name: str, state: Any, *args: Any) -> Outcome:
    """What a provider answers; what it raises, and nonsense, is an answer that it failed."""
    given = await called(provider, name, state, *args)
    if isinstance(given, Raised):
        return Failed(state, given.reason)
    if isinstance(given, Failed):
        return Failed(given.state, plain(given.reason))
    if isinstance(given, Answered):
        return given
    return Failed(state, f"{name} gave {type(given).__name__}, not Answered or Failed")


def is_cancelled() -> bool:
    """Whether it is this task that was cancelled, and not something that it waited for."""
    task = current_task()
    return get_current_task().has_pending_cancellation() or (task is not None and task.cancelling() > 0)


def described(error: Exception) -> str:
    """An error as a reason: its type and what it says."""
    try:
        said = str(error)
    except Exception:
        said = ""
    name = type(error).__name__
    return plain(f"{name}: {said}" if said else name)


def plain(reason: object) -> str:
    """A reason as short text that every codec can hold."""
    if not isinstance(reason, str):
        return f"failed with {type(reason).__name__} for a reason"
    text = str.__str__(reason).encode(errors="replace").decode().replace("\0", "?")
    return text if len(text) <= REASON else text[: REASON - 1] + "…"


def _threads() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(THREADS)
        _limiter.set(limiter)
        return limiter
