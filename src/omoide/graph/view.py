"""Public view of a store as a graph.

A view belongs to a store and is never older than it. Its triples are in memory, in a folder, or at an
endpoint; they can be rebuilt from the store at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from os import PathLike
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
from omoide.graph.resources import ImportSurvey
from omoide.graph.results import Answer
from omoide.graph.shacl import ValidationReport, validate
from omoide.graph.sync import ChangeSource, GraphProjection, source_for
from omoide.graph.terms import check_iri
from omoide.longterm.lineage import DEFAULT_DEPTH, Provenance
from omoide.longterm.relations import Related
from omoide.stores.async_store import run_in_thread_with_limiter
from omoide.stores.records import Access, Link

DEFAULT_LIMIT = 10_000
RESERVED_PREFIX = "urn:omoide:"
MAX_ATTEMPTS = 3
PAGE_SIZE = 1_000
NO_LIMIT = 1 << 62

StrPath = str | PathLike[str]
T = TypeVar("T")


class GraphQuery(NamedTuple):
    """A query with the graphs that it may read."""

    query: str
    scope: Scope
    extra_graphs: tuple[str, ...]
    """Graphs of the user beside the scope."""
    bindings: dict[str, Any]
    limit: int
    names_graphs: bool
    """True if the query contains GRAPH."""
    default_graphs: Sequence[str] = ()
    named_graphs: Sequence[str] = ()
    generation: object = None

    @property
    def graphs(self) -> list[str]:
        """All graphs that the query may read."""
        return [*dict.fromkeys([*self.default_graphs, *self.named_graphs])]


class LoadResult(int):
    """The number of new memories of an import, with what else was in the file."""

    resources: int
    """Sessions, agents, projects and the like whose descriptions were kept."""
    passed_over: tuple[str, ...]
    """What could not be kept, in sentences."""

    def __new__(cls, new: int, *, resources: int = 0, passed_over: Sequence[str] = ()) -> Self:
        """Return the number with the report."""
        result = super().__new__(cls, new)
        result.resources, result.passed_over = resources, tuple(passed_over)
        return result


class GraphCore:
    """A graph over a store, without an event loop; called in worker threads."""

    def __init__(self, source: ChangeSource, backend: GraphBackend) -> None:
        self._source = source
        self.projection = GraphProjection(source, backend)

    @property
    def backend(self) -> GraphBackend:
        """Backend that stores the triples."""
        return self.projection.backend

    def prepare(
        self, query: str, scope: Scope, graphs: Sequence[str], bindings: dict[str, Any], limit: int
    ) -> GraphQuery:
        """Check a query and return it with the up-to-date graphs of its scope."""
        check_instance(scope, "scope", kind=Scope)
        for graph in graphs:
            if check_iri(graph, "graphs").startswith(RESERVED_PREFIX):
                raise Invalid("graphs", f"contains the reserved {graph!r}", "name graphs of your own")
        bound = prepare_query(query, bindings, limit)
        names_graphs = any(token.kind == "word" and token.text.upper() == "GRAPH" for token in bound.tokens)
        return self._with_dataset(GraphQuery(query, scope, tuple(graphs), bindings, limit, names_graphs))

    def query(self, query: GraphQuery, timeout: float | None = None) -> Answer:
        """Return the result of a query."""
        return self._run_stable(query, lambda current: self._execute(current, timeout))

    def dump(self, query: GraphQuery) -> tuple[GraphQuery, bytes]:
        """Return the query with all that it may read as N-Quads."""
        return self._run_stable(query, lambda current: (current, self.backend.dump(current.graphs)))

    def _run_stable(self, query: GraphQuery, action: Callable[[GraphQuery], T]) -> T:
        """Run an action on graphs of which none is dropped meanwhile; retry otherwise."""
        for _ in range(MAX_ATTEMPTS):
            result = action(query)
            if query.generation == self.projection.generation(query.scope.namespace):
                return result
            query = self._with_dataset(query)
        # Graphs are dropped again and again: keep writers out for one last attempt.
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
        """Return the query with the current graphs of its scope."""
        default, named = self.projection.dataset(query.scope)
        generation = self.projection.generation(query.scope.namespace)
        if not query.names_graphs:
            named = []  # the query has no GRAPH, and there may be thousands
        extra = query.extra_graphs
        return query._replace(
            default_graphs=[*default, *extra], named_graphs=[*named, *extra], generation=generation
        )

    def export(
        self, target: StrPath | IO[bytes], scope: Scope, format: str | None, progress: ProgressCallback | None
    ) -> int:
        """Write a consistent snapshot of a scope to a file and return the number of memories."""
        check_instance(scope, "scope", kind=Scope)
        # Ids first: whether a link leads outside the scope is unknown until all of it was seen.
        ids, seq = self._ids_in_scope(scope)
        if isinstance(target, (str, PathLike)):
            pages = _ScopePages(self._source, scope, ids, expected_seq=seq)
            describe = self._source.describe
            with suppress(_ChangedMeanwhile):
                return files.export(
                    pages, target, format, progress=progress, total=len(ids), describe=describe
                )
        # The store changed meanwhile, or the target cannot be rewritten: read everything in one page.
        snapshot = _ScopePages(self._source, scope, None, page_size=NO_LIMIT)
        return files.export(snapshot, target, format, progress=progress, describe=self._source.describe)

    def load(
        self,
        source: StrPath | bytes | IO[bytes],
        scope: Scope,
        agent_id: str | None,
        format: str | None,
        progress: ProgressCallback | None,
    ) -> LoadResult:
        """Import the memories of a file, all or none, and return the number of new ones."""
        check_instance(scope, "scope", kind=Scope)
        defaults = ImportDefaults(
            agent_id=agent_id or scope.agent_id,
            session_id=scope.session_id,
            project_id=scope.project_id,
            user_id=scope.user_id,
            namespace=scope.namespace,
            keep_unknown=True,
        )
        survey = ImportSurvey()
        pages = files.read_pages(source, format, defaults=defaults, progress=progress, survey=survey)
        batch = _join_pages(pages)
        for entry in batch.entries:
            if entry.superseded_by == entry.id:
                raise InvalidRDF(f"memory {entry.id!r}", "is superseded by itself", "correct supersededBy")
            if not scope.contains(entry):
                raise Invalid(f"memory {entry.id!r}", "lies outside the scope", "pass a scope that holds it")
        ids = {entry.id for entry in batch.entries}
        # A link to a memory that is neither in the file nor in the scope would lead nowhere, and is left out.
        links = [link for link in batch.links if link.target in ids or self._source.has(link.target, scope)]
        new = self._source.import_entries(batch.entries, links, batch.access)
        resources = [one for one in survey.resources() if one.namespace == scope.namespace]
        self._source.keep(resources, {entry.session_id: entry.scope for entry in batch.entries})
        left_out = [f"{one!r} is outside the scope" for one in {*batch.links} - {*links}]
        return LoadResult(new, resources=len(resources), passed_over=(*survey.notices(), *left_out))

    def validate(self, scope: Scope, *, strict: bool) -> ValidationReport:
        """Validate the memories of a scope against the shapes of the ontology."""
        check_instance(scope, "scope", kind=Scope)
        # One page, and therefore one consistent read of the store.
        return validate(
            _join_pages(_ScopePages(self._source, scope, None, page_size=NO_LIMIT)), strict=strict
        )

    def _ids_in_scope(self, scope: Scope) -> tuple[frozenset[str], int]:
        """Return the ids of all memories in a scope, and the sequence number that they are from."""
        pages = _ScopePages(self._source, scope, None)
        return frozenset(entry.id for page in pages for entry in page.entries), pages.seq


class _ScopePages:
    """Pages of a scope, read from the store; `seq` is the sequence number of the last page read.

    Links that leave the scope are omitted: `ids` are those of the scope, or None if all of it is on one page.
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
        after, seen = 0, set[str]()
        while True:
            feed = self._source.changes(self._scope.namespace, after, self._page_size, None)
            # An entry that changed twice is in the feed twice, each time in its current form.
            entries = tuple(
                item for item in feed.entries if self._scope.contains(item) and item.id not in seen
            )
            page_ids = {entry.id for entry in entries}
            seen |= page_ids
            scope_ids = page_ids if self._ids is None else self._ids
            self.seq = feed.seq
            yield MemoryBatch(
                entries=entries,
                links=tuple(
                    link for link in feed.links if link.source in page_ids and link.target in scope_ids
                ),
                access={id: counts for id, counts in feed.access.items() if id in page_ids},
            )
            if not feed.more:
                if self._expected_seq not in (None, feed.seq):
                    raise _ChangedMeanwhile
                return
            after = feed.seq


class _ChangedMeanwhile(Exception):
    """The store changed while pages were read."""


def _join_pages(pages: Iterable[MemoryBatch]) -> MemoryBatch:
    entries: list[Entry] = []
    links: list[Link] = []
    access: dict[str, Access] = {}
    for page in pages:
        entries += page.entries
        links += page.links
        access.update(page.access)
    return MemoryBatch(entries=tuple(entries), links=tuple(links), access=access)


P = ParamSpec("P")

DEFAULT_TIMEOUT = 30.0
MAX_THREADS = 8
"""Number of concurrent queries; further ones wait without occupying a thread that a store may need."""

# One limiter per event loop; a limiter cannot be shared between loops.
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
    """Return a graph over a store: in memory, in a folder, or at a SPARQL 1.1 endpoint.

    Args:
        store: store to view.
        path: folder for the triples; one process at a time.
        endpoint: URL for queries.
        update_endpoint: URL for updates, if it differs.
        timeout: default timeout of queries in seconds.
    """
    if path is not None and endpoint is not None:
        raise Invalid("path", "is combined with an endpoint", "pass one of them")
    if endpoint is None:
        from omoide.graph.oxigraph import OxigraphBackend

        return GraphView(store, OxigraphBackend(path), timeout=timeout)
    from omoide.graph.endpoint import EndpointBackend

    return GraphView(
        store, EndpointBackend(endpoint, update_endpoint, timeout=timeout), timeout=timeout, remote=True
    )


class GraphView:
    """A graph over a store, returned by `graph.open`. Use it in `async with`, or close it."""

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

    async def __aexit__(self, *_: object) -> None:
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
        **variables: Any,
    ) -> Answer:
        """Return the result of a query over a scope: rows, a truth value, or triples.

        Args:
            query: SPARQL query; it can only read.
            scope: memories that the query can see.
            limit: maximum number of rows or triples.
            isolated: run the query in a process of its own, which holds nothing but the scope and can be
                stopped. Otherwise only a query at an endpoint can be stopped.
            timeout: seconds; by default that of the view.
            graphs: your own graphs to query beside the scope.
            bindings: values for variables of the query.
            **variables: further bindings, as keywords.

        Raises:
            InvalidQuery: the query cannot be parsed, or does more than read.
            QueryStopped: the query exceeds its time, its memory, or the size of results.
        """
        if not isinstance(bindings, Mapping):
            raise WrongType("bindings", "a mapping", bindings, "pass a dict of variables and values")
        bound = {**bindings, **variables}
        prepared = await _run_in_thread(self.core.prepare, query, scope, graphs, bound, limit)
        seconds = self._timeout if timeout is None else timeout
        # Oxigraph cannot be interrupted inside of this process; a request to a server can.
        if not isolated or self._remote:
            return await _run_in_thread(self.core.query, prepared, seconds)
        from omoide.graph.sandbox import run_in_process

        prepared, data = await _run_in_thread(self.core.dump, prepared)
        return await run_in_process(
            data,
            query,
            default_graphs=prepared.default_graphs,
            named_graphs=prepared.named_graphs,
            bindings=bound,
            limit=limit,
            timeout=seconds,
            memory_mb=MEMORY_MB,
        )

    async def related(
        self,
        id: str,
        scope: Scope,
        relation: str | None = None,
        depth: int = 1,
        *,
        direction: str = "both",
        limit: int = 100,
    ) -> list[Related]:
        """Return the memories related to one, nearest first; read from the store, see `longterm.related`."""
        return await longterm.related(
            self._store, id, scope, relation, depth=depth, direction=direction, limit=limit
        )

    async def provenance(
        self, id: str, scope: Scope, *, depth: int = DEFAULT_DEPTH, documents_in: Scope | None = None
    ) -> Provenance:
        """Return the provenance of a memory; read from the store, see `longterm.provenance`."""
        return await longterm.provenance(self._store, id, scope, depth=depth, documents_in=documents_in)

    async def export(
        self,
        target: StrPath | IO[bytes],
        scope: Scope,
        *,
        format: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> int:
        """Write a scope to a `.ttl`, `.trig`, `.jsonld` or `.nq` file and return the number of memories.

        Args:
            target: path or binary file.
            scope: memories to write.
            format: name of the format; by default that of the file's suffix.
            progress: called while memories are written.

        Raises:
            Invalid: the format is unknown.
        """
        return await _run_in_thread(self.core.export, target, scope, format, progress)

    async def load(
        self,
        source: StrPath | bytes | IO[bytes],
        scope: Scope,
        *,
        agent_id: str | None = None,
        format: str | None = None,
        progress: ProgressCallback | None = None,
    ) -> LoadResult:
        """Import the memories of a file into the store, all or none, and return the number of new ones.

        The scope is the owner where the file names none, and must contain all of them. `agent_id` is the
        agent where neither names one. Properties of a memory that no field holds are kept in its metadata,
        under `rdf`; what the file says of sessions, agents, projects and the like is kept beside them.
        `passed_over` of the result lists what could not be kept.
        """
        return await _run_in_thread(self.core.load, source, scope, agent_id, format, progress)

    async def validate(self, scope: Scope, *, strict: bool = False) -> ValidationReport:
        """Validate the memories of a scope against the shapes of the ontology."""
        return await _run_in_thread(self.core.validate, scope, strict=strict)

    async def catch_up(self, namespace: str) -> int:
        """Apply the changes of the store, as every query does first; return the number of memories."""
        return await _run_in_thread(self.core.projection.catch_up, namespace)

    async def rebuild(self, namespace: str) -> int:
        """Rebuild the graph of a namespace from the store and return the number of memories."""
        return await _run_in_thread(self.core.projection.rebuild, namespace)

    async def close(self) -> None:
        """Close the graph; the store stays open."""
        await _run_in_thread(self.core.projection.close)


async def _run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function in a worker thread of the graphs' own limiter."""
    try:
        limiter = _limiter.get()
    except LookupError:
        limiter = CapacityLimiter(MAX_THREADS)
        _limiter.set(limiter)
    return await run_in_thread_with_limiter(limiter, function, *args, **kwargs)
