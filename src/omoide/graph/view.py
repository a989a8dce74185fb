"""GraphView.

A view belongs to a store, and is never older than it. Its triples are kept in memory, in a folder, or at an
endpoint; whatever is lost of them is built again from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
from types import TracebackType
from typing import IO, Any, NamedTuple, ParamSpec, Self, TypeVar

from anyio import CancelScope, CapacityLimiter
from anyio.lowlevel import RunVar

from omoide import longterm
from omoide.core.entry import Entry, Scope
from omoide.core.frozen import EMPTY_MAP
from omoide.core.value import check_instance
from omoide.errors import Invalid, InvalidRDF, WrongType
from omoide.graph import files
from omoide.graph.backend import GraphBackend, prepare_query
from omoide.graph.files import ProgressCallback
from omoide.graph.parser import ImportDefaults, MemoryBatch
from omoide.graph.results import Answer
from omoide.graph.shacl import ValidationReport, validate
from omoide.graph.sync import ChangeSource, GraphProjection, source_for
from omoide.graph.terms import check_iri
from omoide.longterm.lineage import Provenance
from omoide.longterm.relations import Related
from omoide.stores.async_store import run_in_thread_with_limiter
from omoide.stores.records import Access, Link

# core: What can be done with a graph over a store, without an event loop?


DEFAULT_LIMIT = 10_000
RESERVED_PREFIX = "urn:omoide:"
MAX_ATTEMPTS = 3
PAGE_SIZE = 1_000
NO_LIMIT = 1 << 62

StrPath = str | PathLike[str]
T = TypeVar("T")


class GraphQuery(NamedTuple):
    """A query, and the graphs that it may see."""

    query: str
    scope: Scope
    extra_graphs: tuple[str, ...]
    """Graphs of the user's own."""
    bindings: dict[str, Any]
    limit: int
    names_graphs: bool
    """Whether it asks for graphs by their names."""
    default_graphs: Sequence[str] = ()
    named_graphs: Sequence[str] = ()
    generation: object = None

    @property
    def graphs(self) -> list[str]:
        """All graphs that it may see."""
        return [*dict.fromkeys([*self.default_graphs, *self.named_graphs])]


class GraphCore:
    """A graph over a store."""

    def __init__(self, source: ChangeSource, backend: GraphBackend) -> None:
        self._source = source
        self.projection = GraphProjection(source, backend)

    @property
    def backend(self) -> GraphBackend:
        """What keeps the triples."""
        return self.projection.backend

    def prepare(
        self, query: str, scope: Scope, graphs: Sequence[str], bindings: dict[str, Any], limit: int
    ) -> GraphQuery:
        """The query with the graphs that the scope is, brought up to date."""
        check_instance(scope, "scope", kind=Scope)
        for graph in graphs:
            if check_iri(graph, "graphs").startswith(RESERVED_PREFIX):
                raise Invalid("graphs", f"holds {graph!r}", "name graphs of your own")
        bound = prepare_query(query, bindings, limit)
        by_name = any(token.kind == "word" and token.text.upper() == "GRAPH" for token in bound.tokens)
        return self._with_dataset(GraphQuery(query, scope, tuple(graphs), bindings, limit, by_name))

    def query(self, query: GraphQuery, timeout: float | None = None) -> Answer:
        """What a query finds."""
        return self._run_stable(query, lambda now: self._execute(now, timeout))

    def dump(self, query: GraphQuery) -> tuple[GraphQuery, bytes]:
        """The query with all that it may see, as N-Quads."""
        return self._run_stable(query, lambda now: (now, self.backend.dump(now.graphs)))

    def _run_stable(self, query: GraphQuery, action: Callable[[GraphQuery], T]) -> T:
        """What is done with graphs of which none was dropped meanwhile."""
        for _ in range(MAX_ATTEMPTS):
            found = action(query)
            if query.generation == self.projection.generation(query.scope.namespace):
                return found
            query = self._with_dataset(query)
        with self.projection.freeze(query.scope.namespace):
            return action(self._with_dataset(query))

    def _execute(self, query: GraphQuery, timeout: float | None) -> Answer:
        return self.backend.query(
            query.query,
            default_graphs=query.default_graphs,
            named_graphs=query.named_graphs,
            bindings=query.bindings,
            limit=query.limit,
            timeout=timeout,
        )

    def _with_dataset(self, query: GraphQuery) -> GraphQuery:
        """The query with the graphs that its scope is now."""
        default, named = self.projection.dataset(query.scope)
        generation = self.projection.generation(query.scope.namespace)
        if not query.names_graphs:
            named = []  # nobody asks for graphs by their names, and there may be thousands
        own = query.extra_graphs
        return query._replace(
            default_graphs=[*default, *own], named_graphs=[*named, *own], generation=generation
        )

    def export(
        self, target: StrPath | IO[bytes], scope: Scope, format: str | None, progress: ProgressCallback | None
    ) -> int:
        """Write what a scope holds to a file, as it is in one moment; how many memories that are."""
        check_instance(scope, "scope", kind=Scope)
        inside, seq = self._ids_in_scope(scope)
        if isinstance(target, (str, PathLike)):
            pages = _ScopePages(self._source, scope, inside, expected_seq=seq)
            with suppress(_ChangedMeanwhile):
                return files.export(pages, target, format, progress=progress, total=len(inside))
        # Somebody wrote meanwhile, or what is written cannot be taken back: all of it is read in one moment.
        whole = _ScopePages(self._source, scope, None, page_size=NO_LIMIT)
        return files.export(whole, target, format, progress=progress)

    def load(
        self,
        source: StrPath | bytes | IO[bytes],
        scope: Scope,
        format: str | None,
        progress: ProgressCallback | None,
    ) -> int:
        """Take over the memories of a file, all or none; how many were new."""
        check_instance(scope, "scope", kind=Scope)
        missing = ImportDefaults(
            agent_id=scope.agent_id,
            session_id=scope.session_id,
            project_id=scope.project_id,
            namespace=scope.namespace,
        )
        given = _join_pages(files.read_pages(source, format, defaults=missing, progress=progress))
        for entry in given.entries:
            if entry.superseded_by == entry.id:
                raise InvalidRDF(f"memory {entry.id!r}", "is superseded by itself", "correct supersededBy")
            if not scope.contains(entry):
                raise Invalid(
                    f"memory {entry.id!r}",
                    "lies outside the scope",
                    "pass a scope that holds it",
                )
        known = {entry.id for entry in given.entries}
        # A link whose end was left behind where the file was written has nowhere to lead to.
        links = [link for link in given.links if link.target in known or self._source.has(link.target, scope)]
        return self._source.import_entries(given.entries, links, given.access)

    def validate(self, scope: Scope, *, strict: bool) -> ValidationReport:
        """How the memories of a scope compare to the shapes of the ontology."""
        check_instance(scope, "scope", kind=Scope)
        return validate(
            _join_pages(_ScopePages(self._source, scope, None, page_size=NO_LIMIT)), strict=strict
        )

    def _ids_in_scope(self, scope: Scope) -> tuple[frozenset[str], int]:
        """The ids of what a scope holds, and the number of the last change that they are from."""
        pages = _ScopePages(self._source, scope, None)
        return frozenset(entry.id for page in pages for entry in page.entries), pages.seq


class _ScopePages:
    """What a scope holds, a page at a time, from the store itself; `seq` is how far the last page reached.

    Links that lead out of the scope are left out: `inside` are the ids of what it holds, where that is known,
    and otherwise all of it has to be on one page.
    """

    def __init__(
        self,
        source: ChangeSource,
        scope: Scope,
        ids: frozenset[str] | None,
        page_size: int = PAGE_SIZE,
        expected_seq: int | None = None,
    ) -> None:
        self._source = source
        self._scope = scope
        self._ids = ids
        self._page_size = page_size
        self._expected_seq = expected_seq
        self.seq = 0

    def __iter__(self) -> Iterator[MemoryBatch]:
        after, told = 0, set[str]()
        while True:
            feed = self._source.changes(self._scope.namespace, after, self._page_size, None)
            # What changed more than once is told more than once; the first time, it is as it is now.
            here = tuple(one for one in feed.entries if self._scope.contains(one) and one.id not in told)
            there = {entry.id for entry in here}
            told |= there
            inside = there if self._ids is None else self._ids
            self.seq = feed.seq
            yield MemoryBatch(
                entries=here,
                links=tuple(link for link in feed.links if link.source in there and link.target in inside),
                access={id: used for id, used in feed.access.items() if id in there},
            )
            if not feed.more:
                if self._expected_seq not in (None, feed.seq):
                    raise _ChangedMeanwhile
                return
            after = feed.seq


class _ChangedMeanwhile(Exception):
    """Somebody wrote while pages were read one after the other."""


def _join_pages(pages: Iterable[MemoryBatch]) -> MemoryBatch:
    entries: list[Entry] = []
    links: list[Link] = []
    access: dict[str, Access] = {}
    for page in pages:
        entries += page.entries
        links += page.links
        access.update(page.access)
    return MemoryBatch(entries=tuple(entries), links=tuple(links), access=access)


# view: How is a store asked in SPARQL?


P = ParamSpec("P")

DEFAULT_TIMEOUT = 30.0
MAX_THREADS = 8
"""How many queries run at once; the others wait without holding a thread that a store may need."""

_limiter: RunVar[CapacityLimiter] = RunVar("omoide_graph_limiter")
MEMORY_MB = 2_048


def open(
    store: Any,
    *,
    path: str | PathLike[str] | None = None,
    endpoint: str | None = None,
    update_endpoint: str | None = None,
    timeout: float = DEFAULT_TIMEOUT,
) -> GraphView:
    """A graph over a store: in memory, in a folder of its own, or at a SPARQL 1.1 endpoint."""
    if path is not None and endpoint is not None:
        raise Invalid("path", "comes with an endpoint besides", "keep the graph in one place")
    if endpoint is None:
        from omoide.graph.oxigraph import OxigraphBackend

        return GraphView(store, OxigraphBackend(path), timeout=timeout)
    from omoide.graph.endpoint import EndpointBackend

    return GraphView(
        store, EndpointBackend(endpoint, update_endpoint, timeout=timeout), timeout=timeout, remote=True
    )


class GraphView:
    """A graph over a store. Made with `graph.open`; use it in `async with`, or close it."""

    def __init__(
        self, store: Any, backend: GraphBackend, *, timeout: float = DEFAULT_TIMEOUT, remote: bool = False
    ) -> None:
        self._store = store
        self._remote = remote
        self._timeout = timeout
        self.core = GraphCore(source_for(store), backend)

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
        limit: int = DEFAULT_LIMIT,
        isolated: bool = False,
        timeout: float | None = None,
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
        question = await _run_in_thread(self.core.prepare, query, scope, graphs, bound, limit)
        seconds = self._timeout if timeout is None else timeout
        if not isolated or self._remote:
            return await _run_in_thread(self.core.query, question, seconds)
        from omoide.graph.sandbox import run_isolated

        question, data = await _run_in_thread(self.core.dump, question)
        return await run_isolated(
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
        return await longterm.related(self._store, id, scope, relation, depth=depth, **options)

    async def provenance(self, id: str, scope: Scope, **options: Any) -> Provenance:
        """Where a memory comes from, back to what was said; read from the store itself."""
        return await longterm.provenance(self._store, id, scope, **options)

    async def export(
        self,
        target: StrPath | IO[bytes],
        scope: Scope,
        *,
        format: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> int:
        """Write what a scope holds to a `.ttl`, `.trig`, `.jsonld` or `.nq` file; how many memories it is."""
        return await _run_in_thread(self.core.export, target, scope, format, progress)

    async def load(
        self,
        source: StrPath | bytes | IO[bytes],
        scope: Scope,
        *,
        format: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> int:
        """Take over the memories of a file into the store, all or none; how many were new.

        The scope says whose they are where the file does not, and must hold all of them.
        """
        return await _run_in_thread(self.core.load, source, scope, format, progress)

    async def validate(self, scope: Scope, *, strict: bool = False) -> ValidationReport:
        """How the memories of a scope compare to the shapes of the ontology."""
        return await _run_in_thread(self.core.validate, scope, strict=strict)

    async def catch_up(self, namespace: str) -> int:
        """Take in what changed in the store; every query does that first. How many memories that were."""
        return await _run_in_thread(self.core.projection.catch_up, namespace)

    async def rebuild(self, namespace: str) -> int:
        """Build the graph of a namespace again from the store; how many memories it has."""
        return await _run_in_thread(self.core.projection.rebuild, namespace)

    async def close(self) -> None:
        """Let go of the graph; the store stays open."""
        await _run_in_thread(self.core.projection.close)


async def _run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a worker thread of the graphs' own."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
    return await run_in_thread_with_limiter(limiter, function, *args, **kwargs)
