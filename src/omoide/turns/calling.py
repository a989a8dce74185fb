"""How long is a model waited for, and how often is it asked again?

Each attempt has the same time. Only what may be better later is tried again: after half a second, then twice
as long each time, up to eight seconds, with some chance in it so that those who failed together do not come
back together. A provider that says how long to wait is obeyed for up to a minute; if it wants more, its error
is raised at once. Once a piece of the answer was given away there is no second attempt: it would repeat it.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any

import anyio

from omoide.errors import ModelFailed, ModelMisbehaved, ModelTimedOut, OmoideError
from omoide.turns.model import Model, Reply, Request, Streams, as_reply

FIRST_WAIT = 0.5
LONGEST_WAIT = 8.0
PATIENCE = 60.0
"""The longest wait a provider may ask for, in seconds."""

OnText = Callable[[str], Any]
OnRetry = Callable[[ModelFailed, int, float], Any]
Sleep = Callable[[float], Awaitable[object]]


async def ask(
    model: Model,
    request: Request,
    *,
    retries: int,
    timeout_ms: int,
    on_text: OnText | None = None,
    on_retry: OnRetry | None = None,
    sleep: Sleep = anyio.sleep,
) -> Reply:
    """The answer of a model, or the `ModelFailed` that is left after so many retries.

    `on_text` gets the text piece by piece where the model streams, and in one piece where it does not;
    `on_retry` gets the error, the number of the retry and the seconds until then. Both may be async.
    """
    text = None if on_text is None else _Text(on_text)
    tried = 0
    while True:
        try:
            return await _attempt(model, request, timeout_ms / 1000, text)
        except ModelFailed as error:
            given = text is not None and text.given
            asked = error.retry_after or 0.0
            if not error.transient or given or tried >= retries or asked > PATIENCE:
                raise
            wait = max(asked, backoff(tried))
            tried += 1
            await _told(on_retry, error, tried, wait)
        await sleep(wait)


def backoff(tried: int) -> float:
    """How many seconds to wait after so many retries; at least half of what it could be."""
    return float(min(LONGEST_WAIT, FIRST_WAIT * 2.0 ** min(tried, 10)) * random.uniform(0.5, 1.0))


class _Text:
    """Where the pieces of an answer go."""

    def __init__(self, function: OnText) -> None:
        self._function = function
        self.given = False

    async def give(self, piece: str) -> None:
        if piece:
            self.given = True
            await _told(self._function, piece)


async def _attempt(model: Model, request: Request, seconds: float, text: _Text | None) -> Reply:
    answer: Any = None
    with anyio.move_on_after(seconds) as scope:
        if text is None or not isinstance(model, Streams):
            answer = await _guarded(model, model.complete(request))
        else:
            answer = await _streamed(model, model.stream(request), text, scope)
    if scope.cancelled_caught:
        problem = f"gave no answer within {seconds:g} s"
        raise ModelTimedOut(_name(model), problem, "try again, or raise limits.model_timeout_ms")
    reply = as_reply(answer, _name(model))
    if text is not None and not text.given:
        await text.give(reply.content)
    return reply


async def _streamed(
    model: Model, pieces: AsyncIterator[str | Reply], text: _Text, scope: anyio.CancelScope
) -> Reply:
    try:
        while True:
            piece = await _guarded(model, anext(pieces, None))
            if isinstance(piece, Reply):
                return piece
            if not isinstance(piece, str):
                raise ModelMisbehaved(_name(model), "ended without its whole answer", "yield a Reply last")
            # Whoever takes the text may take their time: it is not the model's.
            left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
            await text.give(piece)
            scope.deadline = anyio.current_time() + left
    finally:
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


async def _guarded(model: Model, answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except OmoideError:
        raise
    except Exception as error:
        raise ModelFailed(
            _name(model), f"failed ({type(error).__name__}: {error})", "see the cause"
        ) from error


async def _told(function: Callable[..., Any] | None, *news: object) -> None:
    if function is not None:
        answer = function(*news)
        if inspect.isawaitable(answer):
            await answer


def _name(model: Model) -> str:
    return str(getattr(model, "name", type(model).__name__))
