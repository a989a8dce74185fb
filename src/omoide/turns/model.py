"""The `Model` protocol, functions as models, and calls with retries and timeout.

A `Model` completes requests. A function can be one: it gets the request and the journal of the turn so far
(and, with three parameters, the context of the turn), and returns text, a `Reply`, or a mapping such as
`{"type": "final", "content": …}` or `{"type": "operations", "operations": […]}`.

Each attempt has the same timeout. Only transient errors are retried, with exponential backoff from half a
second to eight seconds and jitter. A `retry_after` of the provider is obeyed for up to a minute; a longer one
raises the error at once. There is no retry after a piece of the answer was streamed: it would be repeated.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import anyio
import msgspec

from omoide.core.value import Count, Value, check_tuple, set_field
from omoide.errors import Invalid, ModelFailed, ModelMisbehaved, ModelTimedOut, OmoideError, WrongType
from omoide.turns.prompt import Prompt, ToolCall, Usage


class Request(Value, frozen=True, kw_only=True):
    """A prompt for a model, with the turn that it belongs to."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"journal", "context"})

    prompt: Prompt
    request_id: str
    agent_id: str
    session_id: str | None = None
    round: Count = 0
    journal: Any = None
    """The journal of the turn so far; functions get it as their second argument."""
    context: Any = None
    """The context of the turn; functions with three parameters get it as their third argument."""


class Reply(Value, frozen=True, kw_only=True):
    """A reply of a model: text, tool calls, or both."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"native"})

    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str | None = None
    """The model that answered, if the provider says it."""
    native: Any = None
    """The provider's own form of the reply."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "calls", check_tuple(self.calls, "calls", ToolCall))


@runtime_checkable
class Model(Protocol):
    """Completes requests; raises `ModelFailed`, and nothing else, if it cannot."""

    async def complete(self, request: Request) -> Reply:
        """Return the reply to a request."""


@runtime_checkable
class SupportsStreaming(Protocol):
    """Capability of a model to stream its replies."""

    def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """Yield pieces of text as they arrive, and the whole reply last."""


@runtime_checkable
class SupportsConnection(Protocol):
    """Capability of a model to keep a connection open for several requests."""

    def connect(self) -> AbstractAsyncContextManager[Model]:
        """Yield the model on a connection that stays open inside the block."""


ModelFunction = Callable[..., Any]


class FunctionModel:
    """A model made from a function."""

    def __init__(self, function: ModelFunction, name: str | None = None) -> None:
        own = str(getattr(function, "__name__", type(function).__name__))
        self.name = name or ("llm" if own == "<lambda>" else own)
        self._function = function
        self._arity = _function_arity(function)
        # A callable object is async if its `__call__` is; decorators are looked through.
        called = function if inspect.isroutine(function) else type(function).__call__
        self._async = inspect.iscoroutinefunction(inspect.unwrap(called))

    async def complete(self, request: Request) -> Reply:
        """Call the function and convert its answer."""
        arguments = (request, request.journal, request.context)[: self._arity]
        try:
            answer = (
                self._function(*arguments) if self._async else await _run_in_thread(self._function, arguments)
            )
            if inspect.isawaitable(answer):
                answer = await answer
        except ModelFailed:
            raise
        except Exception as error:
            raise ModelFailed(
                self.name, f"failed ({type(error).__name__}: {error})", "see the cause"
            ) from error
        return as_reply(answer, self.name)


async def _run_in_thread(function: ModelFunction, arguments: tuple[Any, ...]) -> Any:
    """Run a function in a thread, so that it does not block the event loop."""
    from anyio import to_thread

    # A thread cannot be stopped; abandoning it lets the timeout of the model take effect.
    return await to_thread.run_sync(partial(copy_context().run, function, *arguments), abandon_on_cancel=True)


def as_reply(answer: object, model: str) -> Reply:
    """Convert an answer in any of the forms that a function may return."""
    match answer:
        case Reply():
            return answer
        case str():
            return _from_mapping({"content": answer}, model)
        # Tagged tuples, the way in which Elixir functions answer, are accepted as well.
        case ("ok", inner):
            return as_reply(inner, model)
        case ("error", reason):
            raise ModelFailed(model, f"failed ({reason})", "see the cause")
        case Mapping():
            return _from_mapping(answer, model)
        case _:
            raise ModelMisbehaved(
                model, f"answered with {type(answer).__name__}", "return text, a Reply, or a mapping"
            )


def _from_mapping(answer: Mapping[str, Any], model: str) -> Reply:
    try:
        match answer.get("type", "final"):
            case "final":
                content = answer.get("content", "")
                if not isinstance(content, str):
                    raise WrongType("content", "text", content)
                return Reply(content=content, usage=_parse_usage(answer))
            case "operation":
                return Reply(
                    content=answer.get("content", ""),
                    calls=(_parse_tool_call(answer),),
                    usage=_parse_usage(answer),
                )
            case "operations":
                calls = tuple(_parse_tool_call(call) for call in answer["operations"])
                if not calls:
                    raise Invalid("operations", "is empty", "use type final for an answer")
                return Reply(content=answer.get("content", ""), calls=calls, usage=_parse_usage(answer))
            case other:
                raise Invalid("type", f"is {other!r}", "use final, operation or operations")
    except (Invalid, KeyError, TypeError) as error:
        raise ModelMisbehaved(
            model, f"gave an invalid answer ({error})", "correct what the function returns"
        ) from error


def _parse_tool_call(source: Mapping[str, Any]) -> ToolCall:
    params = source.get("params", source.get("arguments"))
    if isinstance(params, str):
        try:
            params = msgspec.json.decode(params) if params.strip() else {}
        except msgspec.DecodeError:
            # Not an error of the turn: the model reads in the tool result that this is no JSON, and may try
            # again.
            return ToolCall.new(source["name"], id=source.get("id")).replace(invalid=params)
    return ToolCall.new(source["name"], {} if params is None else params, id=source.get("id"))


def _parse_usage(source: Mapping[str, Any]) -> Usage:
    usage = source.get("usage")
    return usage if isinstance(usage, Usage) else Usage(**(usage or {}))


def _function_arity(function: ModelFunction) -> int:
    """Return how many of request, journal and context a function takes."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 2  # some built-in callables have no signature
    if any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
        return 3
    positional = [
        parameter
        for parameter in parameters
        if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    ]
    required = [parameter for parameter in positional if parameter.default is parameter.empty]
    if (
        not positional
        or len(required) > 3
        or any(
            parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty
            for parameter in parameters
        )
    ):
        raise WrongType("model", "a function of (request, journal) or (request, journal, context)", function)
    accepted = [*required]
    for parameter in positional[len(required) : 3]:  # one with a default is only passed if its name is known
        if parameter.name not in ("journal", "context", "ctx"):
            break
        accepted.append(parameter)
    return min(3, len(accepted) or 1)


INITIAL_BACKOFF = 0.5
MAX_BACKOFF = 8.0
MAX_RETRY_AFTER = 60.0
"""The longest `retry_after` of a provider that is obeyed, in seconds."""

OnText = Callable[[str], Any]
OnRetry = Callable[[ModelFailed, int, float], Any]
Sleep = Callable[[float], Awaitable[object]]


async def call_model(
    model: Model,
    request: Request,
    *,
    retries: int,
    timeout_ms: int,
    on_text: OnText | None = None,
    on_retry: OnRetry | None = None,
    sleep: Sleep = anyio.sleep,
) -> Reply:
    """Complete a request, with retries.

    Args:
        model: the model.
        request: the request.
        retries: number of retries after transient errors.
        timeout_ms: milliseconds that each attempt may take.
        on_text: receives the text piece by piece if the model streams, else in one piece; may be async.
        on_retry: receives the error, the number of the retry and the seconds until then; may be async.
        sleep: waits for a number of seconds; tests replace it.

    Raises:
        ModelFailed: the last attempt failed.
    """
    text = None if on_text is None else _TextSink(on_text)
    retry = 0
    while True:
        try:
            return await _attempt(model, request, timeout_ms / 1000, text)
        except ModelFailed as error:
            streamed = text is not None and text.has_output
            retry_after = error.retry_after or 0.0
            if not error.transient or streamed or retry >= retries or retry_after > MAX_RETRY_AFTER:
                raise
            wait = max(retry_after, backoff(retry))
            retry += 1
            await _notify(on_retry, error, retry, wait)
        await sleep(wait)


def backoff(attempt: int) -> float:
    """Return the seconds to wait before a retry, with jitter of up to half."""
    # The exponent is bounded, because a large one would overflow.
    return float(min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1.0))


class _TextSink:
    """Passes text on; `has_output` is True once there was any."""

    def __init__(self, function: OnText) -> None:
        self._function = function
        self.has_output = False

    async def write(self, piece: str) -> None:
        if piece:
            self.has_output = True
            await _notify(self._function, piece)


async def _attempt(model: Model, request: Request, seconds: float, text: _TextSink | None) -> Reply:
    answer: Any = None
    with anyio.move_on_after(seconds) as scope:
        if text is None or not isinstance(model, SupportsStreaming):
            answer = await _map_errors(model, model.complete(request))
        else:
            answer = await _consume_stream(model, model.stream(request), text, scope)
    if scope.cancelled_caught:
        problem = f"gave no answer within {seconds:g} s"
        raise ModelTimedOut(_model_name(model), problem, "try again, or raise limits.model_timeout_ms")
    reply = as_reply(answer, _model_name(model))
    # A model that does not stream still delivers its text through `on_text`, in one piece.
    if text is not None and not text.has_output:
        await text.write(reply.content)
    return reply


async def _consume_stream(
    model: Model, pieces: AsyncIterator[str | Reply], text: _TextSink, scope: anyio.CancelScope
) -> Reply:
    try:
        while True:
            piece = await _map_errors(model, anext(pieces, None))
            if isinstance(piece, Reply):
                return piece
            if not isinstance(piece, str):
                raise ModelMisbehaved(
                    _model_name(model), "ended without its whole answer", "yield a Reply last"
                )
            # The time that the reader takes does not count against the model's timeout.
            left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
            await text.write(piece)
            scope.deadline = anyio.current_time() + left
    finally:
        # Closed here and not by the garbage collector, so that its connection is closed in this task.
        if isinstance(pieces, AsyncGenerator):
            await pieces.aclose()


async def _map_errors(model: Model, answer: Awaitable[Any]) -> Any:
    try:
        return await answer
    except OmoideError:
        raise
    except Exception as error:
        raise ModelFailed(
            _model_name(model), f"failed ({type(error).__name__}: {error})", "see the cause"
        ) from error


async def _notify(function: Callable[..., Any] | None, *news: object) -> None:
    if function is not None:
        answer = function(*news)
        if inspect.isawaitable(answer):
            await answer


def _model_name(model: Model) -> str:
    return str(getattr(model, "name", type(model).__name__))
