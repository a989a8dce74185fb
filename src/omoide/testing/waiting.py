"""How does a test wait for something that happens elsewhere?"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from inspect import isawaitable
from typing import Any, TypeVar, overload

import anyio

T = TypeVar("T")


@overload
async def eventually(
    look: Callable[[], Coroutine[Any, Any, T]], *, within: float = ..., every: float = ...
) -> T: ...
@overload
async def eventually(look: Callable[[], T], *, within: float = ..., every: float = ...) -> T: ...
async def eventually(look: Callable[[], Any], *, within: float = 5.0, every: float = 0.005) -> Any:
    """What `look()` gives, as soon as that is true; `AssertionError` when it is not within so many seconds.

    An `AssertionError` from `look` itself counts as "not yet", and is shown in the end.
    """
    last: object = None
    with anyio.move_on_after(within):
        while True:
            try:
                found = look()
                seen = await found if isawaitable(found) else found
                if seen:
                    return seen
                last = seen
            except AssertionError as error:
                last = error
            await anyio.sleep(every)
    cause = last if isinstance(last, AssertionError) else None
    raise AssertionError(f"not within {within} s; last seen: {last!r}") from cause
