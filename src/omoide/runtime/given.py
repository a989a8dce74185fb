"""Is what a runtime was given what it can use?"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from omoide.core.signal import Signal
from omoide.errors import Invalid, WrongType


def check_signal(signal: Signal) -> Signal:
    """A signal."""
    if not isinstance(signal, Signal):
        raise WrongType("signal", "a Signal", signal)
    return signal


def check_seconds(given: float | None, field: str) -> float | None:
    """A number of seconds above 0, or None."""
    if given is not None and (
        isinstance(given, bool) or not isinstance(given, (int, float)) or not given > 0
    ):
        raise Invalid(field, f"is {given!r}", "use a number of seconds above 0, or None")
    return given


async def noting(work: Callable[[], Awaitable[object]], failed: list[Exception]) -> None:
    """Do something, and note what it fails with."""
    try:
        await work()
    except Exception as error:
        failed.append(error)
