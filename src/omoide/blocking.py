"""Remember, recall and forget without an event loop.

The functions of `omoide.verbs`, and those of a turn, without `await`. A store opened by `open_store` is
called directly in the calling thread; for any other store, and for turns, an event loop runs as long as the
call.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextvars import copy_context
from functools import wraps
from typing import IO, TYPE_CHECKING, Any, ParamSpec, Self, TypedDict, TypeVar, Unpack

from omoide import verbs
from omoide.core.entry import Scope, WriteResult
from omoide.core.frozen import EMPTY_MAP
from omoide.stores.async_store import AsyncStore
from omoide.stores.protocols import AnyStore

if TYPE_CHECKING:
    from omoide.documents.writer import DocumentResult
    from omoide.graph.files import ProgressCallback, StrPath
    from omoide.graph.results import Answer
    from omoide.graph.shacl import ValidationReport
    from omoide.graph.view import GraphView, LoadResult
    from omoide.longterm.lineage import Provenance
    from omoide.longterm.relations import Related
    from omoide.turns.options import TurnKwargs
    from omoide.turns.preview import Preflight
    from omoide.turns.runner import Snapshot, TurnResult
    from omoide.turns.spec import AgentSpec


__all__ = [
    "BlockingGraph",
    "add_document",
    "chat",
    "erase",
    "erase_user",
    "forget",
    "open_graph",
    "pin",
    "pinned",
    "preflight",
    "recall",
    "reindex",
    "reinstate",
    "remember",
    "turn",
    "unpin",
    "write",
]

P = ParamSpec("P")
T = TypeVar("T")


class WriteOptions(verbs.RememberOptions, total=False):
    """Optional arguments of `write`."""

    store: AnyStore | None
    session_id: str | None
    project_id: str | None
    user_id: str | None
    context: Mapping[str, Any]
    include_session: bool
    memory_store: AnyStore | None


class GraphOptions(TypedDict, total=False):
    """Optional arguments of `open_graph`."""

    path: StrPath | None
    endpoint: str | None
    update_endpoint: str | None
    timeout: float


class DocumentOptions(TypedDict, total=False):
    """Optional arguments of `add_document`."""

    name: str | None
    format: str | None
    encoding: str | None
    tags: Sequence[str]


class RelatedOptions(TypedDict, total=False):
    """Optional arguments of `BlockingGraph.related`."""

    direction: str
    limit: int


class ProvenanceOptions(TypedDict, total=False):
    """Optional arguments of `BlockingGraph.provenance`."""

    depth: int
    documents_in: Scope | None


class FileOptions(TypedDict, total=False):
    """Optional arguments of `BlockingGraph.export`."""

    format: str | None
    progress: ProgressCallback | None


class LoadOptions(FileOptions, total=False):
    """Optional arguments of `BlockingGraph.load`."""

    agent_id: str | None


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
    write_many = _inline("write_many")
    write_with_vector = _inline("write_with_vector")
    get = _inline("get")
    query = _inline("query")
    history = _inline("history")
    stats = _inline("stats")
    recall = _inline("recall")
    list_entries = _inline("list_entries")
    supersede = _inline("supersede")
    reinstate = _inline("reinstate")
    erase = _inline("erase")
    scrub = _inline("scrub")
    reindex = _inline("reindex")
    load = _inline("load")
    save = _inline("save")
    append = _inline("append")
    documents = _inline("documents")
    namespaces = _inline("namespaces")
    kinds = _inline("kinds")


def _blocking(verb: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, T]:
    """Return a verb of a store that is called without `await`."""

    @wraps(verb)
    def call(*args: Any, **kwargs: Any) -> T:
        on_store: Callable[..., Coroutine[Any, Any, T]] = verb
        store = args[0] if args else kwargs.get("store")  # the verbs take it by name, too
        if not isinstance(store, AsyncStore):
            return _run(on_store, *args, **kwargs)
        inline = _InlineStore(store.sync)
        if args:
            return _complete(on_store(inline, *args[1:], **kwargs))
        return _complete(on_store(**{**kwargs, "store": inline}))

    call.__module__ = __name__  # pickle looks the function up there; `wraps` set the verb's module
    blocking: Callable[..., T] = call
    return blocking


remember = _blocking(verbs.remember)
recall = _blocking(verbs.recall)
forget = _blocking(verbs.forget)
pin = _blocking(verbs.pin)
unpin = _blocking(verbs.unpin)
pinned = _blocking(verbs.pinned)
reinstate = _blocking(verbs.reinstate)
erase = _blocking(verbs.erase)
erase_user = _blocking(verbs.erase_user)
reindex = _blocking(verbs.reindex)


def turn(spec: AgentSpec, input: str | Snapshot, **options: Unpack[TurnKwargs]) -> TurnResult:
    """Run a turn of an agent and return its result."""
    from omoide.turns import runner as running  # only programs with turns need an event loop

    return _run(running.turn, spec, input, **options)


def chat(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> str:
    """Run a turn of an agent and return its answer."""
    from omoide.turns import runner as running

    return _run(running.chat, spec, input, **options)


def preflight(spec: AgentSpec, input: str, **options: Unpack[TurnKwargs]) -> Preflight:
    """Build the prompt of a turn without calling the model."""
    from omoide.turns import preview as previewing

    return _run(previewing.preflight, spec, input, **options)


def write(spec: AgentSpec, content: str, *others: Any, **options: Unpack[WriteOptions]) -> WriteResult:
    """Store a memory for an agent, in the scope of its policy.

    Args:
        spec: the agent.
        content: the text of the memory.
        others: refused; arguments of `remember`, which takes a store in place of the agent.
        options: `store`, which is required, `session_id`, `project_id`, `user_id`, `context`, and further
            fields of `Entry` and `WriteRequest`.

    Raises:
        MissingStore: no store is given.
        Invalid: the agent has no memory, or a field is wrong.
    """
    from omoide.turns import memory as turn_memory

    running: Callable[..., Coroutine[Any, Any, WriteResult]] = turn_memory.write
    return _run(running, spec, content, *others, **options)


def add_document(
    store: AnyStore, source: StrPath | bytes, scope: Scope, **options: Unpack[DocumentOptions]
) -> DocumentResult:
    """Store a document as passages with their places in it, wholly or not at all.

    Args:
        store: the store.
        source: a path, or the content as bytes.
        scope: the owner; it names the agent.
        options: `name`, `format`, `encoding` and `tags`, as in `omoide.add_document`.
    """
    from omoide.documents import formats, writer  # only programs that add documents need them

    tags = options.get("tags", ())
    reading: dict[str, Any] = {name: value for name, value in options.items() if name != "tags"}
    document = formats.read_document(source, **reading)
    return _blocking(writer.store_document)(store, document, scope, tags=tags)


def open_graph(store: AnyStore, **options: Unpack[GraphOptions]) -> BlockingGraph:
    """Open a graph over a store: in memory, in a folder, or at a SPARQL 1.1 endpoint.

    Args:
        store: the store.
        options: `path`, `endpoint`, `update_endpoint` and `timeout`, as in `graph.open`.
    """
    from omoide.graph import view  # only programs with SPARQL queries need it

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

    def sparql(
        self,
        query: str,
        scope: Scope,
        /,
        *,
        limit: int = 10_000,
        isolated: bool = False,
        timeout: float | None = None,
        graphs: Sequence[str] = (),
        bindings: Mapping[str, Any] = EMPTY_MAP,
        **more: Any,
    ) -> Answer:
        """Run a SPARQL query over a scope.

        Args:
            query: SPARQL query; it can only read.
            scope: memories that the query can see.
            limit: maximum number of rows or triples.
            isolated: True to run the query in a process of its own, which can be stopped.
            timeout: seconds; by default that of the graph.
            graphs: your own graphs to query beside the scope.
            bindings: values for variables of the query.
            more: values for variables, as keywords.

        Raises:
            InvalidQuery: the query cannot be parsed, or does more than read.
            QueryStopped: the query exceeds its time, its memory, or the size of results.
        """
        options = {"limit": limit, "isolated": isolated, "timeout": timeout, "graphs": graphs}
        return _run(self._view.sparql, query, scope, bindings=bindings, **options, **more)

    def related(
        self,
        id: str,
        scope: Scope,
        relation: str | None = None,
        depth: int = 1,
        **options: Unpack[RelatedOptions],
    ) -> list[Related]:
        """Return the memories linked with one, nearest first."""
        return _run(self._view.related, id, scope, relation, depth, **options)

    def provenance(self, id: str, scope: Scope, **options: Unpack[ProvenanceOptions]) -> Provenance:
        """Return the provenance of a memory, back to its messages."""
        return _run(self._view.provenance, id, scope, **options)

    def export(self, target: StrPath | IO[bytes], scope: Scope, **options: Unpack[FileOptions]) -> int:
        """Write the memories of a scope to a file and return their number."""
        return _run(self._view.export, target, scope, **options)

    def load(
        self, source: StrPath | bytes | IO[bytes], scope: Scope, **options: Unpack[LoadOptions]
    ) -> LoadResult:
        """Import the memories of a file, all or none, and return the number of new ones."""
        return _run(self._view.load, source, scope, **options)

    def validate(self, scope: Scope, *, strict: bool = False) -> ValidationReport:
        """Validate the memories of a scope against the shapes of the ontology."""
        return _run(self._view.validate, scope, strict=strict)

    def catch_up(self, namespace: str) -> int:
        """Apply the changes of the store, as every query does first, and return the number of memories."""
        return _run(self._view.catch_up, namespace)

    def rebuild(self, namespace: str) -> int:
        """Rebuild the graph of a namespace from the store; return the number of memories."""
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
    # Reached only if a verb awaits something other than its store, which is a bug of the verb.
    coroutine.close()
    raise RuntimeError("the coroutine needs an event loop")


def _run(call: Callable[..., Awaitable[T]], /, *args: Any, **kwargs: Any) -> T:
    """Run a coroutine to its end; in a new thread if an event loop is running already, as in notebooks."""
    import asyncio
    from concurrent.futures import ThreadPoolExecutor

    context = copy_context()  # overrides of the clock, ids and tracer apply in the new thread, too

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
