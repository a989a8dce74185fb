"""Define memory providers, and call them so that nothing they do harms the caller.

Every operation takes the provider's state and returns it in its outcome, also when it failed; the caller
keeps it for the next operation. Methods may be plain or async. Plain ones run in a worker thread, unless the
provider says with `instant = True` that they never wait for anything.
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

MAX_KEY_BYTES = 4096
"""The number of bytes that a key may have."""
MAX_RESULTS = 1000
"""The number of items that a query may return."""

_QUERY_FIELDS = ("prefix", "where", "top_k")

NOT_FOUND = "not_found"
"""The reason of a `get` for a missing key."""
MAX_THREADS = 40
"""The number of plain methods that may run at once; stores have threads of their own."""
MAX_REASON_LENGTH = 300
"""The number of characters that a reason may have."""
_limiter: RunVar[CapacityLimiter] = RunVar("omoide_providers")


def check_key(key: object) -> str:
    """Return a key that is text and not too long; raise `Invalid` otherwise."""
    text = check_text(key, "key")
    size = len(text.encode())
    if size > MAX_KEY_BYTES:
        raise Invalid("key", f"has {size} bytes", f"use at most {MAX_KEY_BYTES}")
    return text


def check_top_k(query: Mapping[str, Any], default: int) -> int:
    """Return the number of results that a query asks for."""
    top_k = check_positive(query.get("top_k", default), "top_k")
    if top_k > MAX_RESULTS:
        raise Invalid("top_k", f"is {top_k}", f"ask for at most {MAX_RESULTS}")
    return top_k


def check_fields(query: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise `Invalid` for a field of a query that would be ignored."""
    for name in query:
        if name not in known:
            raise Invalid(f"query.{name}"[:80], "is not supported here", f"use {', '.join(known)}")


def filter_items(items: Mapping[str, Any], query: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the items whose key begins with `prefix` and whose value has the fields of `where`, by key."""
    check_fields(query, _QUERY_FIELDS)
    prefix = check_str(query.get("prefix", ""), "prefix")
    where = freeze_map(query.get("where", {}), "where")
    keys = sorted(key for key, value in items.items() if key.startswith(prefix) and _matches(value, where))
    return [
        {"key": key, "score": 1.0, "value": items[key]} for key in keys[: check_top_k(query, MAX_RESULTS)]
    ]


def _matches(value: Any, where: Mapping[str, Any]) -> bool:
    if not where:
        return True
    return isinstance(value, Mapping) and all(
        name in value and _is_same(value[name], expected) for name, expected in where.items()
    )


def _is_same(value: Any, expected: Any) -> bool:
    """Return whether two values are equal; unlike in Python, True is not 1."""
    return isinstance(value, bool) == isinstance(expected, bool) and bool(value == expected)


class ProviderResult(msgspec.Struct, frozen=True):
    """An operation succeeded: `value` is what `get` found, or the list that `query` found."""

    state: Any
    value: Any = None


class ProviderFailure(msgspec.Struct, frozen=True):
    """An operation failed."""

    state: Any
    reason: str


Outcome: TypeAlias = ProviderResult | ProviderFailure


@runtime_checkable
class Provider(Protocol):
    """A store of values under keys; the methods may also be async."""

    @property
    def name(self) -> str:
        """The name of the back end in results."""

    def init(self, opts: Mapping[str, Any]) -> Any:
        """Return the initial state; raise where there can be none."""

    def get(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Return a `ProviderResult` with the value under a key, or a `ProviderFailure` with `not_found`."""

    def put(self, state: Any, key: str, value: Any, opts: Mapping[str, Any]) -> Any:
        """Store a value under a key; `opts["embedding"]` is its vector, where the caller has one."""

    def delete(self, state: Any, key: str, opts: Mapping[str, Any]) -> Any:
        """Remove a key; a missing one is no error."""


@runtime_checkable
class QueryableProvider(Protocol):
    """A provider that answers queries."""

    def query(self, state: Any, query: Mapping[str, Any], opts: Mapping[str, Any]) -> Any:
        """Return a `ProviderResult` with a list of `{"key", "score", "value"}`, best first."""


class CallFailure(NamedTuple):
    """The reason why a call of a provider raised."""

    reason: str


async def call_provider(provider: Any, name: str, *args: Any) -> Any:
    """Return what a method of a provider returns, or a `CallFailure`; a call that hangs can be cancelled."""
    try:
        method = getattr(provider, name)
        # An async method is awaited below; an instant one is cheaper than a thread.
        if iscoroutinefunction(method) or getattr(provider, "instant", False) is True:
            result = method(*args)
        else:
            # The thread may never return: a caller that is cancelled goes on without it.
            result = await to_thread.run_sync(
                partial(copy_context().run, method, *args), abandon_on_cancel=True, limiter=_thread_limiter()
            )
        return await result if isawaitable(result) else result
    except CancelledError:
        if is_cancelled():
            raise
        return CallFailure(f"{name} was cancelled")
    except Exception as error:
        return CallFailure(error_reason(error))


async def call_operation(provider: Any, name: str, state: Any, *args: Any) -> Outcome:
    """Return the outcome of an operation; what raises, or returns anything else, is a `ProviderFailure`."""
    result = await call_provider(provider, name, state, *args)
    if isinstance(result, CallFailure):
        return ProviderFailure(state, result.reason)
    if isinstance(result, ProviderFailure):
        return ProviderFailure(result.state, reason_text(result.reason))
    if isinstance(result, ProviderResult):
        return result
    return ProviderFailure(
        state, f"{name} returned {type(result).__name__}, not ProviderResult or ProviderFailure"
    )


def error_reason(error: Exception) -> str:
    """Return an exception as a reason: its type and its message."""
    try:
        # `__str__` of a foreign exception may raise, too.
        message = str(error)
    except Exception:
        message = ""
    name = type(error).__name__
    return reason_text(f"{name}: {message}" if message else name)


def reason_text(reason: object) -> str:
    """Return a reason as short text that every codec can store."""
    if not isinstance(reason, str):
        return f"failed with a {type(reason).__name__} as its reason"
    text = str.__str__(reason).encode(errors="replace").decode().replace("\0", "?")
    return text if len(text) <= MAX_REASON_LENGTH else text[: MAX_REASON_LENGTH - 1] + "…"


def _thread_limiter() -> CapacityLimiter:
    try:
        return _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
        return limiter
