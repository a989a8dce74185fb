"""How does a program without an event loop remember, recall and forget?

The verbs of `omoide.verbs` without `await`. A store inside the process is called directly; for any other an
event loop runs as long as the call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from functools import partial
from typing import Any, TypeVar

from omoide import verbs
from omoide.core.entry import Entry
from omoide.core.recalling import RecallResult
from omoide.core.scope import Scope
from omoide.core.writing import WriteResult
from omoide.stores.local import LocalStore
from omoide.stores.protocols import Erases, Store, Supersedes
from omoide.stores.records import EraseReceipt

__all__ = ["erase", "forget", "recall", "remember", "restore"]

T = TypeVar("T")


def remember(store: Store, content: str, scope: Scope, **fields: Any) -> WriteResult:
    """Keep a memory."""
    request = verbs.remembering(content, scope, fields)
    return store.sync.write(request) if isinstance(store, LocalStore) else _run(store.write, request)


def recall(store: Store, query: str, scope: Scope, limit: int = 5, **fields: Any) -> RecallResult:
    """The memories that answer a question best."""
    request = verbs.recalling(query, scope, limit, fields)
    return store.sync.recall(request) if isinstance(store, LocalStore) else _run(store.recall, request)


def forget(
    store: Store,
    id: str,
    scope: Scope,
    *,
    reason: str | None = None,
    replacement: str | None = None,
    expected_rev: int | None = None,
) -> Entry:
    """Forget a memory, or replace it by another."""
    if isinstance(store, LocalStore):
        return store.sync.supersede(id, scope, by=replacement, reason=reason, expected_rev=expected_rev)
    able: Supersedes = verbs.offering(store, Supersedes, "forget")
    return _run(able.supersede, id, scope, by=replacement, reason=reason, expected_rev=expected_rev)


def restore(store: Store, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
    """Bring a forgotten memory back."""
    if isinstance(store, LocalStore):
        return store.sync.restore(id, scope, expected_rev=expected_rev)
    able: Supersedes = verbs.offering(store, Supersedes, "restore")
    return _run(able.restore, id, scope, expected_rev=expected_rev)


def erase(store: Store, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
    """Remove a memory, or everything in the scope, for good."""
    if isinstance(store, LocalStore):
        return store.sync.erase(scope, id=id, reason=reason)
    able: Erases = verbs.offering(store, Erases, "erase")
    return _run(able.erase, scope, id=id, reason=reason)


def _run(call: Callable[..., Awaitable[T]], *args: Any, **kwargs: Any) -> T:
    """Run a coroutine to its end; in a thread of its own where a loop runs already, as in notebooks."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    import anyio

    context = copy_context()

    def whole() -> T:
        return context.run(anyio.run, partial(call, *args, **kwargs))

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return whole()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(whole).result()
