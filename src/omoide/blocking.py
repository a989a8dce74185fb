"""How does a program without an event loop remember, recall and forget?

The verbs of `omoide.verbs`, and those of a turn, without `await`. A store inside the process is called
directly; for any other, and for turns, an event loop runs as long as the call.

"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextvars import copy_context
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from omoide import verbs
from omoide.core.entry import Entry, RecallResult, Scope, WriteResult
from omoide.stores.async_store import AsyncStore
from omoide.stores.protocols import Store, SupportsErase, SupportsSupersede
from omoide.stores.records import EraseReceipt

if TYPE_CHECKING:
    from omoide.graph.results import Answer
    from omoide.graph.shacl import ValidationReport
    from omoide.graph.view import GraphView
    from omoide.longterm.lineage import Provenance
    from omoide.longterm.relations import Related
    from omoide.turns.options import TurnKwargs
    from omoide.turns.preview import Preflight
    from omoide.turns.result import Snapshot, TurnResult
    from omoide.turns.spec import AgentSpec


__all__ = [
    "BlockingGraph",
    "chat",
    "erase",
    "forget",
    "open_graph",
    "preflight",
    "recall",
    "remember",
    "reinstate",
    "turn",
    "write",
]

T = TypeVar("T")


def remember(store: Store, content: str, scope: Scope, **fields: Any) -> WriteResult:
    """Keep a memory."""
    request = verbs.build_write_request(content, scope, fields)
    return store.sync.write(request) if isinstance(store, AsyncStore) else _run(store.write, request)


def recall(store: Store, query: str, scope: Scope, limit: int = 5, **fields: Any) -> RecallResult:
    """The memories that answer a question best."""
    request = verbs.build_recall_request(query, scope, limit, fields)
    return store.sync.recall(request) if isinstance(store, AsyncStore) else _run(store.recall, request)


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
    if isinstance(store, AsyncStore):
        return store.sync.supersede(id, scope, by=replacement, reason=reason, expected_rev=expected_rev)
    able: SupportsSupersede = verbs.require(store, SupportsSupersede, "forget")
    return _run(able.supersede, id, scope, by=replacement, reason=reason, expected_rev=expected_rev)


def reinstate(store: Store, id: str, scope: Scope, *, expected_rev: int | None = None) -> Entry:
    """Bring a forgotten memory back."""
    if isinstance(store, AsyncStore):
        return store.sync.reinstate(id, scope, expected_rev=expected_rev)
    able: SupportsSupersede = verbs.require(store, SupportsSupersede, "restore")
    return _run(able.reinstate, id, scope, expected_rev=expected_rev)


def erase(store: Store, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
    """Remove a memory, or everything in the scope, for good."""
    if isinstance(store, AsyncStore):
        return store.sync.erase(scope, id=id, reason=reason)
    able: SupportsErase = verbs.require(store, SupportsErase, "erase")
    return _run(able.erase, scope, id=id, reason=reason)


def turn(spec: AgentSpec, input: str | Snapshot, **options: Unpack[TurnKwargs]) -> TurnResult:
    """All that came of asking an agent something."""
    from omoide.turns import runner as running  # only programs with turns need an event loop

    return _run(running.turn, spec, input, **options)


def chat(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> str:
    """An agent's answer."""
    from omoide.turns import runner as running

    return _run(running.chat, spec, input, **options)


def preflight(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> Preflight:
    """What the model would see."""
    from omoide.turns import preview as previewing

    return _run(previewing.preflight, spec, input, **options)


def write(spec: AgentSpec, content: str, **options: Any) -> WriteResult:
    """Keep a memory for an agent, where its policy says."""
    from omoide.turns import memory as remembering

    return _run(remembering.write, spec, content, **options)


def open_graph(store: Store, **options: Any) -> BlockingGraph:
    """A graph over a store; options are those of `graph.open`."""
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

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def sparql(self, query: str, scope: Scope, /, **options: Any) -> Answer:
        """What a query finds in the scope."""
        return _run(self._view.sparql, query, scope, **options)

    def related(
        self, id: str, scope: Scope, relation: str | None = None, depth: int = 1, **options: Any
    ) -> list[Related]:
        """The memories that are linked with one, nearest first."""
        return _run(self._view.related, id, scope, relation, depth, **options)

    def provenance(self, id: str, scope: Scope, **options: Any) -> Provenance:
        """Where a memory comes from, back to what was said."""
        return _run(self._view.provenance, id, scope, **options)

    def export(self, target: Any, scope: Scope, **options: Any) -> int:
        """Write what a scope holds to a file; how many memories it is."""
        return _run(self._view.export, target, scope, **options)

    def load(self, source: Any, scope: Scope, **options: Any) -> int:
        """Take over the memories of a file, all or none; how many were new."""
        return _run(self._view.load, source, scope, **options)

    def validate(self, scope: Scope, *, strict: bool = False) -> ValidationReport:
        """How the memories of a scope compare to the shapes of the ontology."""
        return _run(self._view.validate, scope, strict=strict)

    def catch_up(self, namespace: str) -> int:
        """Take in what changed in the store; every query does that first."""
        return _run(self._view.catch_up, namespace)

    def rebuild(self, namespace: str) -> int:
        """Build the graph of a namespace again from the store; how many memories it has."""
        return _run(self._view.rebuild, namespace)

    def close(self) -> None:
        """Let go of the graph; the store stays open."""
        _run(self._view.close)


def _run(call: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
    """Run a coroutine to its end; in a thread of its own where a loop runs already, as in notebooks."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    context = copy_context()

    async def awaited() -> T:
        return await call(*args, **kwargs)

    def whole() -> T:
        # Not anyio.run: the context it would look at may be that of a loop in another thread.
        return context.run(asyncio.run, awaited())

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return whole()
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(whole).result()
