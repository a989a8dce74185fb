"""Model protocol, retry and timeout.

A `Model` answers a request. A function will do as well: it gets the request and the journal of what the turn
has done so far (and, if it takes three arguments, the context of the turn), and returns text, a `Reply`, or a
mapping such as `{"type": "final", "content": …}` or `{"type": "operations", "operations": […]}`.

Each attempt has the same time. Only what may be better later is tried again: after half a second, then twice
as long each time, up to eight seconds, with some chance in it so that those who failed together do not come
back together. A provider that says how long to wait is obeyed for up to a minute; if it wants more, its error
is raised at once. Once a piece of the answer was given away there is no second attempt: it would repeat it.
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

# model: What can be asked of a language model?


class Request(Value, frozen=True, kw_only=True):
    """What a model is asked: a prompt, in the course of a turn."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"journal", "context"})

    prompt: Prompt
    request_id: str
    agent_id: str
    session_id: str | None = None
    round: Count = 0
    journal: Any = None
    """What the turn has done so far; functions get it as their second argument."""
    context: Any = None
    """What the program said about this turn; functions with three arguments get it as their third."""


class Reply(Value, frozen=True, kw_only=True):
    """What a model answered: text, or tools it wants to have run, or both."""

    EXCLUDED_FIELDS: ClassVar[frozenset[str]] = frozenset({"native"})

    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str | None = None
    """The model that really answered, where the provider says it."""
    native: Any = None
    """The provider's own form of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        set_field(self, "calls", check_tuple(self.calls, "calls", ToolCall))


@runtime_checkable
class Model(Protocol):
    """Answers requests. Raises `ModelFailed`, and nothing else, where it cannot."""

    async def complete(self, request: Request) -> Reply:
        """The answer."""
        ...


@runtime_checkable
class SupportsStreaming(Protocol):
    """Answers piece by piece."""

    def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """Pieces of text as they come, and the whole answer last."""
        ...


@runtime_checkable
class SupportsConnection(Protocol):
    """Can keep its connection open for several requests in a row."""

    def connect(self) -> AbstractAsyncContextManager[Model]:
        """The same model, on a connection that stays open inside the block."""
        ...


ModelFunction = Callable[..., Any]


class FunctionModel:
    """A function as a model."""

    def __init__(self, function: ModelFunction, name: str | None = None) -> None:
        own = str(getattr(function, "__name__", type(function).__name__))
        self.name = name or ("llm" if own == "<lambda>" else own)
        self._function = function
        self._arity = _function_arity(function)
        called = function if inspect.isroutine(function) else type(function).__call__
        self._async = inspect.iscoroutinefunction(inspect.unwrap(called))

    async def complete(self, request: Request) -> Reply:
        """The answer of the function, in the form of a reply."""
        given = (request, request.journal, request.context)[: self._arity]
        try:
            answer = self._function(*given) if self._async else await _run_in_thread(self._function, given)
            if inspect.isawaitable(answer):
                answer = await answer
        except ModelFailed:
            raise
        except Exception as error:
            raise ModelFailed(
                self.name, f"failed ({type(error).__name__}: {error})", "see the cause"
            ) from error
        return as_reply(answer, self.name)


async def _run_in_thread(function: ModelFunction, given: tuple[Any, ...]) -> Any:
    """What a function says, in a thread: it may take its time without holding up everything else."""
    from anyio import to_thread

    return await to_thread.run_sync(partial(copy_context().run, function, *given), abandon_on_cancel=True)


def as_reply(answer: object, model: str) -> Reply:
    """An answer in any of the forms a function may give it."""
    match answer:
        case Reply():
            return answer
        case str():
            return _from_mapping({"content": answer}, model)
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
                calls = tuple(_parse_tool_call(one) for one in answer["operations"])
                if not calls:
                    raise Invalid("operations", "is empty", "use type final for an answer")
                return Reply(content=answer.get("content", ""), calls=calls, usage=_parse_usage(answer))
            case other:
                raise Invalid("type", f"is {other!r}", "use final, operation or operations")
    except (Invalid, KeyError, TypeError) as error:
        raise ModelMisbehaved(
            model, f"gave an answer that is none ({error})", "correct what the function returns"
        ) from error


def _parse_tool_call(given: Mapping[str, Any]) -> ToolCall:
    params = given.get("params", given.get("arguments"))
    if isinstance(params, str):
        try:
            params = msgspec.json.decode(params) if params.strip() else {}
        except msgspec.DecodeError:
            return ToolCall.new(given["name"], id=given.get("id")).replace(invalid=params)
    return ToolCall.new(given["name"], {} if params is None else params, id=given.get("id"))


def _parse_usage(given: Mapping[str, Any]) -> Usage:
    usage = given.get("usage")
    return usage if isinstance(usage, Usage) else Usage(**(usage or {}))


def _function_arity(function: ModelFunction) -> int:
    """How many of request, journal and context a function takes: all three, where it does not say."""
    try:
        parameters = [*inspect.signature(function).parameters.values()]
    except (TypeError, ValueError):
        return 2
    if any(one.kind is one.VAR_POSITIONAL for one in parameters):
        return 3
    placed = [one for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    needed = [one for one in placed if one.default is one.empty]
    if (
        not placed
        or len(needed) > 3
        or any(one.kind is one.KEYWORD_ONLY and one.default is one.empty for one in parameters)
    ):
        raise WrongType("llm", "a function of (request, journal) or (request, journal, context)", function)
    meant = [*needed]
    for one in placed[len(needed) : 3]:  # one with a default of its own is taken only where its name says so
        if one.name not in ("journal", "context", "ctx"):
            break
        meant.append(one)
    return min(3, len(meant) or 1)


# calling: How long is a model waited for, and how often is it asked again?


INITIAL_BACKOFF = 0.5
MAX_BACKOFF = 8.0
MAX_RETRY_AFTER = 60.0
"""The longest wait a provider may ask for, in seconds."""

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
    """The answer of a model, or the `ModelFailed` that is left after so many retries.

    `on_text` gets the text piece by piece where the model streams, and in one piece where it does not;
    `on_retry` gets the error, the number of the retry and the seconds until then. Both may be async.
    """
    text = None if on_text is None else _TextSink(on_text)
    tried = 0
    while True:
        try:
            return await _attempt(model, request, timeout_ms / 1000, text)
        except ModelFailed as error:
            given = text is not None and text.has_output
            asked = error.retry_after or 0.0
            if not error.transient or given or tried >= retries or asked > MAX_RETRY_AFTER:
                raise
            wait = max(asked, backoff(tried))
            tried += 1
            await _notify(on_retry, error, tried, wait)
        await sleep(wait)


def backoff(attempt: int) -> float:
    """How many seconds to wait after so many retries; at least half of what it could be."""
    return float(min(MAX_BACKOFF, INITIAL_BACKOFF * 2.0 ** min(attempt, 10)) * random.uniform(0.5, 1.0))


class _TextSink:
    """Where the pieces of an answer go."""

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
            # Whoever takes the text may take their time: it is not the model's.
            left, scope.deadline = scope.deadline - anyio.current_time(), math.inf
            await text.write(piece)
            scope.deadline = anyio.current_time() + left
    finally:
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
