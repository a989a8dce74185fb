"""Provider protocol and guarded calls.

Every operation takes the provider's state and hands it back in its answer, also when it failed; whoever calls
keeps it for the next operation. Methods may be plain or async. Plain ones are called in a worker thread,
unless the provider says with `instant = True` that they never wait for anything.
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Mapping
from contextvars import copy_context
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec
from anyio import CapacityLimiter, to_thread
from anyio.lowlevel import RunVar

from omoide.core.entry import check_positive
from omoide.core.frozen import check_str, check_text, freeze_map
from omoide.errors import Invalid
from omoide.runtime.tasks import is_cancelled

# items: Which of some keys and values does a question mean?


MAX_KEY_BYTES = 4096
"""Bytes that a key may have."""
MAX_RESULTS = 1000
"""How many items one question may be answered with."""

_QUERY_FIELDS = ("prefix", "where", "top_k")


def check_key(key: object) -> str:
    """A key itself, if it is text that can be kept and is not too long."""
    text = check_text(key, "key")
    size = len(text.encode())
    if size > MAX_KEY_BYTES:
        raise Invalid("key", f"has {size} bytes", f"use at most {MAX_KEY_BYTES}")
    return text


def check_top_k(query: Mapping[str, Any], default: int) -> int:
    """How many results a question asks for."""
    top_k = check_positive(query.get("top_k", default), "top_k")
    if top_k > MAX_RESULTS:
        raise Invalid("top_k", f"is {top_k}", f"ask for at most {MAX_RESULTS}")
    return top_k


def check_fields(query: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise for a part of a question that would be passed over."""
    for name in query:
        if name not in known:
            raise Invalid(f"query.{name}"[:80], "is not understood here", f"use {', '.join(known)}")


def filter_items(items: Mapping[str, Any], query: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The items whose key begins with `prefix` and whose value has the fields of `where`, by their keys."""
    check_fields(query, _QUERY_FIELDS)
    prefix = check_str(query.get("prefix", ""), "prefix")
    where = freeze_map(query.get("where", {}), "where")
    found = sorted(key for key, value in items.items() if key.startswith(prefix) and _matches(value, where))
    return [
        {"key": key, "score": 1.0, "value": items[key]} for key in found[: check_top_k(query, MAX_RESULTS)]
    ]


def _matches(value: Any, where: Mapping[str, Any]) -> bool:
    if not where:
        return True
    return isinstance(value, Mapping) and all(
        name in value and _is_same(value[name], wanted) for name, wanted in where.items()
    )


def _is_same(value: Any, wanted: Any) -> bool:
    """Equality, in which True is no 1."""
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


# protocol: What does a memory provider have to offer?


NOT_FOUND = "not_found"
"""Why a `get` failed that asked for a key which is not there."""


class ProviderResult(msgspec.Struct, frozen=True):
    """It was done: `value` is what `get` found, or the list that `query` found."""

    state: Any
    value: Any = None


class ProviderFailure(msgspec.Struct, frozen=True):
    """It could not be done."""

    state: Any
    reason: str


Outcome: TypeAlias = ProviderResult | ProviderFailure


@runtime_checkable
class Provider(Protocol):
    """Keeps values under keys; the methods may also be async."""

    @property
    def name(self) -> str:
        """What the backend is called in results."""
        ...

    def init(self, opts: Mapping[str, Any]) -> Any:
        """The state to begin with; raises where there can be none."""
        ...

    def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Answered with the value under a key; Failed with `not_found` where there is none."""
        ...

    def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> Any:
        """Keep a value under a key; `opts["embedding"]` is its vector, where the caller has one."""
        ...

    def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Remove a key, whether it is there or not."""
        ...


@runtime_checkable
class QueryableProvider(Protocol):
    """Answers questions."""

    def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Any:
        """Answered with a list of `{"key", "score", "value"}`, best first."""
        ...


# calling: How is a provider called so that nothing it does can hurt the caller?


MAX_THREADS = 40
"""How many plain methods may run at once; stores have threads of their own."""
MAX_REASON_LENGTH = 300
"""How many characters a reason may have."""

_limiter: RunVar[CapacityLimiter] = RunVar("omoide_providers")


class CallFailure(NamedTuple):
    """A provider did not answer, but raised something."""

    reason: str


async def call_provider(provider: Any, name: str, *args: Any) -> Any:
    """What a method of a provider gives, or that it raised; one that hangs can be left behind."""
    try:
        method = getattr(provider, name)
        if iscoroutinefunction(method) or getattr(provider, "instant", False) is True:
            given = method(*args)
        else:
            # The thread may never come back: whoever stops waiting goes on without it.
            given = await to_thread.run_sync(
                partial(copy_context().run, method, *args), abandon_on_cancel=True, limiter=_thread_limiter()
            )
        return await given if isawaitable(given) else given
    except CancelledError:
        if is_cancelled():
            raise
        return CallFailure(f"{name} gave up by itself")
    except Exception as error:
        return CallFailure(error_reason(error))


async def call_operation(provider: Any, name: str, state: Any, *args: Any) -> Outcome:
    """What a provider answers; what it raises, and nonsense, is an answer that it failed."""
    given = await call_provider(provider, name, state, *args)
    if isinstance(given, CallFailure):
        return ProviderFailure(state, given.reason)
    if isinstance(given, ProviderFailure):
        return ProviderFailure(given.state, reason_text(given.reason))
    if isinstance(given, ProviderResult):
        return given
    return ProviderFailure(state, f"{name} gave {type(given).__name__}, not Answered or Failed")


def error_reason(error: Exception) -> str:
    """An error as a reason: its type and what it says."""
    try:
        said = str(error)
    except Exception:
        said = ""
    name = type(error).__name__
    return reason_text(f"{name}: {said}" if said else name)


def reason_text(reason: object) -> str:
    """A reason as short text that every codec can hold."""
    if not isinstance(reason, str):
        return f"failed with {type(reason).__name__} for a reason"
    text = str.__str__(reason).encode(errors="replace").decode().replace("\0", "?")
    return text if len(text) <= MAX_REASON_LENGTH else text[: MAX_REASON_LENGTH - 1] + "…"


def _thread_limiter() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
        return limiter
