"""What can be asked of a language model?

A `Model` answers a request. A function will do as well: it gets the request and the journal of what the turn
has done so far (and, if it takes three arguments, the context of the turn), and returns text, a `Reply`, or a
mapping such as `{"type": "final", "content": …}` or `{"type": "operations", "operations": […]}`.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from contextvars import copy_context
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import msgspec

from omoide.core.contract import check_tuple
from omoide.core.value import Count, Value, force
from omoide.errors import Invalid, ModelFailed, ModelMisbehaved, WrongType
from omoide.turns.messages import ToolCall, Usage
from omoide.turns.prompt import Prompt


class Request(Value, frozen=True, kw_only=True):
    """What a model is asked: a prompt, in the course of a turn."""

    UNWRITTEN: ClassVar[frozenset[str]] = frozenset({"journal", "context"})

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

    UNWRITTEN: ClassVar[frozenset[str]] = frozenset({"native"})

    content: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = Usage()
    model: str | None = None
    """The model that really answered, where the provider says it."""
    native: Any = None
    """The provider's own form of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        force(self, "calls", check_tuple(self.calls, "calls", ToolCall))


@runtime_checkable
class Model(Protocol):
    """Answers requests. Raises `ModelFailed`, and nothing else, where it cannot."""

    async def complete(self, request: Request) -> Reply:
        """The answer."""
        ...


@runtime_checkable
class Streams(Protocol):
    """Answers piece by piece."""

    def stream(self, request: Request) -> AsyncIterator[str | Reply]:
        """Pieces of text as they come, and the whole answer last."""
        ...


@runtime_checkable
class Connects(Protocol):
    """Can keep its connection open for several requests in a row."""

    def connected(self) -> AbstractAsyncContextManager[Model]:
        """The same model, on a connection that stays open inside the block."""
        ...


Answering = Callable[..., Any]


class FromFunction:
    """A function as a model."""

    def __init__(self, function: Answering, name: str | None = None) -> None:
        own = str(getattr(function, "__name__", type(function).__name__))
        self.name = name or ("llm" if own == "<lambda>" else own)
        self._function = function
        self._takes = _arity(function)
        called = function if inspect.isroutine(function) else type(function).__call__
        self._async = inspect.iscoroutinefunction(inspect.unwrap(called))

    async def complete(self, request: Request) -> Reply:
        """The answer of the function, in the form of a reply."""
        given = (request, request.journal, request.context)[: self._takes]
        try:
            answer = self._function(*given) if self._async else await _apart(self._function, given)
            if inspect.isawaitable(answer):
                answer = await answer
        except ModelFailed:
            raise
        except Exception as error:
            raise ModelFailed(
                self.name, f"failed ({type(error).__name__}: {error})", "see the cause"
            ) from error
        return as_reply(answer, self.name)


async def _apart(function: Answering, given: tuple[Any, ...]) -> Any:
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
                return Reply(content=content, usage=_usage(answer))
            case "operation":
                return Reply(content=answer.get("content", ""), calls=(_call(answer),), usage=_usage(answer))
            case "operations":
                calls = tuple(_call(one) for one in answer["operations"])
                if not calls:
                    raise Invalid("operations", "is empty", "use type final for an answer")
                return Reply(content=answer.get("content", ""), calls=calls, usage=_usage(answer))
            case other:
                raise Invalid("type", f"is {other!r}", "use final, operation or operations")
    except (Invalid, KeyError, TypeError) as error:
        raise ModelMisbehaved(
            model, f"gave an answer that is none ({error})", "correct what the function returns"
        ) from error


def _call(given: Mapping[str, Any]) -> ToolCall:
    params = given.get("params", given.get("arguments"))
    if isinstance(params, str):
        try:
            params = msgspec.json.decode(params) if params.strip() else {}
        except msgspec.DecodeError:
            return ToolCall.new(given["name"], id=given.get("id")).replace(invalid=params)
    return ToolCall.new(given["name"], {} if params is None else params, id=given.get("id"))


def _usage(given: Mapping[str, Any]) -> Usage:
    usage = given.get("usage")
    return usage if isinstance(usage, Usage) else Usage(**(usage or {}))


def _arity(function: Answering) -> int:
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
