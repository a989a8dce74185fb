"""Remember, recall and forget without an event loop.

The functions of `omoide.verbs`, and those of a turn, without `await`. A store opened by `open_store` is
called directly in the calling thread; for any other store, and for turns, an event loop runs as long as the
call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from contextvars import copy_context
from functools import wraps
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, Unpack

from omoide import verbs
from omoide.core.entry import Scope, WriteResult
from omoide.stores.async_store import AsyncStore
from omoide.stores.protocols import Store

if TYPE_CHECKING:
    from omoide.graph.results import Answer
    from omoide.graph.shacl import ValidationReport
    from omoide.graph.view import GraphView
    from omoide.longterm.lineage import Provenance
    from omoide.longterm.relations import Related
    from omoide.turns.options import TurnKwargs
    from omoide.turns.preview import Preflight
    from omoide.turns.runner import Snapshot, TurnResult
    from omoide.turns.spec import AgentSpec


__all__ = [
    "BlockingGraph",
    "chat",
    "erase",
    "forget",
    "open_graph",
    "preflight",
    "recall",
    "reinstate",
    "remember",
    "turn",
    "write",
]

P = ParamSpec("P")
T = TypeVar("T")


def _inline(name: str) -> Any:
    """Return an async method that calls the synchronous store directly, and so never suspends."""

    async def call(self: _InlineStore, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._sync, name)(*args, **kwargs)

    return call


class _InlineStore:
    """A synchronous store with the async methods that verbs call, which run in the calling thread."""

    def __init__(self, sync: Any) -> None:
        self._sync = sync

    write = _inline("write")
    recall = _inline("recall")
    list_entries = _inline("list_entries")
    supersede = _inline("supersede")
    reinstate = _inline("reinstate")
    erase = _inline("erase")
    scrub = _inline("scrub")


def _blocking(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a verb of a store that is called without `await`."""

    @wraps(verb)
    def call(store: Store, *args: Any, **kwargs: Any) -> T:
        on_store: Callable[..., Coroutine[Any, Any, T]] = verb
        if isinstance(store, AsyncStore):
            return _complete(on_store(_InlineStore(store.sync), *args, **kwargs))
        return _run(on_store, store, *args, **kwargs)

    call.__module__ = __name__  # where pickle finds it
    blocking: Callable[..., T] = call
    return blocking


remember = _blocking(verbs.remember)
recall = _blocking(verbs.recall)
forget = _blocking(verbs.forget)
reinstate = _blocking(verbs.reinstate)
erase = _blocking(verbs.erase)


def turn(spec: AgentSpec, input: str | Snapshot, **options: Unpack[TurnKwargs]) -> TurnResult:
    """Run a turn of an agent and return its result."""
    from omoide.turns import runner as running  # only programs with turns need an event loop

    return _run(running.turn, spec, input, **options)


def chat(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> str:
    """Run a turn of an agent and return its answer."""
    from omoide.turns import runner as running

    return _run(running.chat, spec, input, **options)


def preflight(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> Preflight:
    """Return what the model would see, without calling it."""
    from omoide.turns import preview as previewing

    return _run(previewing.preflight, spec, input, **options)


def write(spec: AgentSpec, content: str, **options: Any) -> WriteResult:
    """Store a memory for an agent, in the scope of its policy."""
    from omoide.turns import memory as turn_memory

    return _run(turn_memory.write, spec, content, **options)


def open_graph(store: Store, **options: Any) -> BlockingGraph:
    """Open a graph over a store; options are those of `graph.open`."""
    from omoide.graph import view  # only programs that ask in SPARQL need it

    return BlockingGraph(view.open(store, **options))


class BlockingGraph:
    """`GraphView` without `await`."""

    def __init__(self, view: GraphView) -> None:
        self._view = view

    def __repr__(self) -> str:
        return repr(self._view)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def sparql(self, query: str, scope: Scope, /, **options: Any) -> Answer:
        """Run a SPARQL query over a scope."""
        return _run(self._view.sparql, query, scope, **options)

    def related(
        self, id: str, scope: Scope, relation: str | None = None, depth: int = 1, **options: Any
    ) -> list[Related]:
        """Return the memories linked with one, nearest first."""
        return _run(self._view.related, id, scope, relation, depth, **options)

    def provenance(self, id: str, scope: Scope, **options: Any) -> Provenance:
        """Return where a memory comes from, back to its messages."""
        return _run(self._view.provenance, id, scope, **options)

    def export(self, target: Any, scope: Scope, **options: Any) -> int:
        """Write the memories of a scope to a file; return how many."""
        return _run(self._view.export, target, scope, **options)

    def load(self, source: Any, scope: Scope, **options: Any) -> int:
        """Import the memories of a file, all or none; return how many were new."""
        return _run(self._view.load, source, scope, **options)

    def validate(self, scope: Scope, *, strict: bool = False) -> ValidationReport:
        """Validate the memories of a scope against the shapes of the ontology."""
        return _run(self._view.validate, scope, strict=strict)

    def catch_up(self, namespace: str) -> int:
        """Apply the changes of the store; every query does this first."""
        return _run(self._view.catch_up, namespace)

    def rebuild(self, namespace: str) -> int:
        """Rebuild the graph of a namespace from the store; return how many memories it has."""
        return _run(self._view.rebuild, namespace)

    def close(self) -> None:
        """Close the graph; the store stays open."""
        _run(self._view.close)


def _complete(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise RuntimeError("the coroutine waits for an event loop")


def _run(call: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
    """Run a coroutine to its end; in a new thread if an event loop is running already, as in notebooks."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    context = copy_context()

    async def coroutine() -> T:
        return await call(*args, **kwargs)

    def run_all() -> T:
        # Not anyio.run: the context it would look at may be that of a loop in another thread.
        return context.run(asyncio.run, coroutine())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return run_all()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(run_all).result()
