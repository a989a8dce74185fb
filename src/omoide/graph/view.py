"""How is a store asked in SPARQL?

A view belongs to a store, and is never older than it. Its triples are kept in memory, in a folder, or at an
endpoint; whatever is lost of them is built again from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import IO, Any, ParamSpec, Self, TypeVar

from anyio import CancelScope, CapacityLimiter
from anyio.lowlevel import RunVar

from omoide.core.frozen import EMPTY_MAP
from omoide.core.scope import Scope
from omoide.errors import Invalid, WrongType
from omoide.graph.answers import Answer
from omoide.graph.asking import Backend
from omoide.graph.core import LIMIT, Graph, Place
from omoide.graph.files import Progress
from omoide.graph.sources import source
from omoide.graph.validating import Report
from omoide.longterm import tracing
from omoide.longterm.tracing import Provenance, Related
from omoide.stores.local import hop_within

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT = 30.0
THREADS = 8
"""How many queries run at once; the others wait without holding a thread that a store may need."""

_limiter: RunVar[CapacityLimiter] = RunVar("omoide_graph_limiter")
MEMORY_MB = 2_048


def open(
    store: Any,
    *,
    path: str | PathLike[str] | None = None,
    endpoint: str | None = None,
    update_endpoint: str | None = None,
    timeout: float = TIMEOUT,
) -> GraphView:
    """A graph over a store: in memory, in a folder of its own, or at a SPARQL 1.1 endpoint."""
    if path is not None and endpoint is not None:
        raise Invalid("path", "comes with an endpoint besides", "keep the graph in one place")
    if endpoint is None:
        from omoide.graph.embedded import Embedded

        return GraphView(store, Embedded(path), timeout=timeout)
    from omoide.graph.remote import Remote

    return GraphView(store, Remote(endpoint, update_endpoint, timeout=timeout), timeout=timeout, remote=True)


class GraphView:
    """A graph over a store. Made with `graph.open`; use it in `async with`, or close it."""

    def __init__(
        self, store: Any, backend: Backend, *, timeout: float = TIMEOUT, remote: bool = False
    ) -> None:
        self._store = store
        self._remote = remote
        self._timeout = timeout
        self.core = Graph(source(store), backend)

    def __repr__(self) -> str:
        return f"<{self.core.backend.name} over {self._store!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with CancelScope(shield=True):  # also when the block was cancelled
            await self.close()

    async def sparql(
        self,
        query: str,
        scope: Scope,
        /,
        *,
        limit: int = LIMIT,
        isolated: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109 - it is the query that is stopped, in its own process
        graphs: Sequence[str] = (),
        bindings: Mapping[str, Any] = EMPTY_MAP,
        **more: Any,
    ) -> Answer:
        """What a query finds in the scope: rows, a truth, or triples.

        Keywords are values for the variables of their names, and so are `bindings`. `isolated` runs the query
        in a process of its own, which holds nothing but the scope and is stopped when the time is over;
        without it, only an endpoint can be stopped. `graphs` names graphs of your own to be seen beside the
        scope.
        """
        if not isinstance(bindings, Mapping):
            raise WrongType("bindings", "a mapping", bindings, "pass a dict of variables and values")
        bound = {**bindings, **more}
        question = await _hop(self.core.question, query, scope, graphs, bound, limit)
        seconds = self._timeout if timeout is None else timeout
        if not isolated or self._remote:
            return await _hop(self.core.ask, question, seconds)
        from omoide.graph.isolating import run

        question, data = await _hop(self.core.seen, question)
        return await run(
            data,
            query,
            default_graphs=question.default_graphs,
            named_graphs=question.named_graphs,
            bindings=bound,
            limit=limit,
            timeout=seconds,
            memory_mb=MEMORY_MB,
        )

    async def related(
        self, id: str, scope: Scope, relation: str | None = None, depth: int = 1, **options: Any
    ) -> list[Related]:
        """The memories that are linked with one, nearest first; read from the store itself."""
        return await tracing.related(self._store, id, scope, relation, depth=depth, **options)

    async def provenance(self, id: str, scope: Scope, **options: Any) -> Provenance:
        """Where a memory comes from, back to what was said; read from the store itself."""
        return await tracing.provenance(self._store, id, scope, **options)

    async def export(
        self,
        target: Place | IO[bytes],
        scope: Scope,
        *,
        format: str | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Write what a scope holds to a `.ttl`, `.trig`, `.jsonld` or `.nq` file; how many memories it is."""
        return await _hop(self.core.export, target, scope, format, progress)

    async def load(
        self,
        source: Place | bytes | IO[bytes],
        scope: Scope,
        *,
        format: str | None = None,
        progress: Progress | None = None,
    ) -> int:
        """Take over the memories of a file into the store, all or none; how many were new.

        The scope says whose they are where the file does not, and must hold all of them.
        """
        return await _hop(self.core.load, source, scope, format, progress)

    async def validate(self, scope: Scope, *, strict: bool = False) -> Report:
        """How the memories of a scope compare to the shapes of the ontology."""
        return await _hop(self.core.validate, scope, strict=strict)

    async def catch_up(self, namespace: str) -> int:
        """Take in what changed in the store; every query does that first. How many memories that were."""
        return await _hop(self.core.projection.catch_up, namespace)

    async def rebuild(self, namespace: str) -> int:
        """Build the graph of a namespace again from the store; how many memories it has."""
        return await _hop(self.core.projection.rebuild, namespace)

    async def close(self) -> None:
        """Let go of the graph; the store stays open."""
        await _hop(self.core.projection.close)


async def _hop(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a worker thread of the graphs' own."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(THREADS)
        _limiter.set(limiter)
    return await hop_within(limiter, function, *args, **kwargs)
