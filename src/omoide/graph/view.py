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
from omoide.graph.backend import Backend, asked
from omoide.graph.files import Progress
from omoide.graph.parser import Memories, Missing
from omoide.graph.results import Answer
from omoide.graph.shacl import Report, validate
from omoide.graph.sync import Projection, Source, source
from omoide.graph.terms import check_iri
from omoide.longterm.lineage import Provenance
from omoide.longterm.relations import Related
from omoide.stores.async_store import hop_within
from omoide.stores.records import Access, Link

# core: What can be done with a graph over a store, without an event loop?


LIMIT = 10_000
OURS = "urn:omoide:"
TRIES = 3
PAGE = 1_000
EVERYTHING = 1 << 62

Place = str | PathLike[str]
T = TypeVar("T")


class Question(NamedTuple):
    """A query, and the graphs that it may see."""

    query: str
    scope: Scope
    own: tuple[str, ...]
    """Graphs of the user's own."""
    bindings: dict[str, Any]
    limit: int
    by_name: bool
    """Whether it asks for graphs by their names."""
    default_graphs: Sequence[str] = ()
    named_graphs: Sequence[str] = ()
    generation: object = None

    @property
    def graphs(self) -> list[str]:
        """All graphs that it may see."""
        return [*dict.fromkeys([*self.default_graphs, *self.named_graphs])]


class Graph:
    """A graph over a store."""

    def __init__(self, source: Source, backend: Backend) -> None:
        self._source = source
        self.projection = Projection(source, backend)

    @property
    def backend(self) -> Backend:
        """What keeps the triples."""
        return self.projection.backend

    def question(
        self, query: str, scope: Scope, graphs: Sequence[str], bindings: dict[str, Any], limit: int
    ) -> Question:
        """The query with the graphs that the scope is, brought up to date."""
        check_instance(scope, "scope", kind=Scope)
        for graph in graphs:
            if check_iri(graph, "graphs").startswith(OURS):
                raise Invalid("graphs", f"holds {graph!r}", "name graphs of your own")
        bound = asked(query, bindings, limit)
        by_name = any(token.kind == "word" and token.text.upper() == "GRAPH" for token in bound.tokens)
        return self._placed(Question(query, scope, tuple(graphs), bindings, limit, by_name))

    def ask(self, question: Question, timeout: float | None = None) -> Answer:
        """What a query finds."""
        return self._steady(question, lambda now: self._answer(now, timeout))

    def seen(self, question: Question) -> tuple[Question, bytes]:
        """The query with all that it may see, as N-Quads."""
        return self._steady(question, lambda now: (now, self.backend.dump(now.graphs)))

    def _steady(self, question: Question, done: Callable[[Question], T]) -> T:
        """What is done with graphs of which none was dropped meanwhile."""
        for _ in range(TRIES):
            found = done(question)
            if question.generation == self.projection.generation(question.scope.namespace):
                return found
            question = self._placed(question)
        with self.projection.still(question.scope.namespace):
            return done(self._placed(question))

    def _answer(self, question: Question, timeout: float | None) -> Answer:
        return self.backend.query(
            question.query,
            default_graphs=question.default_graphs,
            named_graphs=question.named_graphs,
            bindings=question.bindings,
            limit=question.limit,
            timeout=timeout,
        )

    def _placed(self, question: Question) -> Question:
        """The query with the graphs that its scope is now."""
        default, named = self.projection.dataset(question.scope)
        generation = self.projection.generation(question.scope.namespace)
        if not question.by_name:
            named = []  # nobody asks for graphs by their names, and there may be thousands
        own = question.own
        return question._replace(
            default_graphs=[*default, *own], named_graphs=[*named, *own], generation=generation
        )

    def export(
        self, target: Place | IO[bytes], scope: Scope, format: str | None, progress: Progress | None
    ) -> int:
        """Write what a scope holds to a file, as it is in one moment; how many memories that are."""
        check_instance(scope, "scope", kind=Scope)
        inside, seq = self._inside(scope)
        if isinstance(target, (str, PathLike)):
            pages = _Pages(self._source, scope, inside, expected=seq)
            with suppress(_Moved):
                return files.export(pages, target, format, progress=progress, total=len(inside))
        # Somebody wrote meanwhile, or what is written cannot be taken back: all of it is read in one moment.
        whole = _Pages(self._source, scope, None, portion=EVERYTHING)
        return files.export(whole, target, format, progress=progress)

    def load(
        self, source: Place | bytes | IO[bytes], scope: Scope, format: str | None, progress: Progress | None
    ) -> int:
        """Take over the memories of a file, all or none; how many were new."""
        check_instance(scope, "scope", kind=Scope)
        missing = Missing(
            agent_id=scope.agent_id,
            session_id=scope.session_id,
            project_id=scope.project_id,
            namespace=scope.namespace,
        )
        given = _joined(files.read(source, format, missing=missing, progress=progress))
        for entry in given.entries:
            if entry.superseded_by == entry.id:
                raise InvalidRDF(f"memory {entry.id!r}", "is superseded by itself", "correct supersededBy")
            if not scope.holds(entry):
                raise Invalid(
                    f"memory {entry.id!r}",
                    "lies outside the scope",
                    "pass a scope that holds it",
                )
        known = {entry.id for entry in given.entries}
        # A link whose end was left behind where the file was written has nowhere to lead to.
        links = [link for link in given.links if link.target in known or self._source.has(link.target, scope)]
        return self._source.take(given.entries, links, given.access)

    def validate(self, scope: Scope, *, strict: bool) -> Report:
        """How the memories of a scope compare to the shapes of the ontology."""
        check_instance(scope, "scope", kind=Scope)
        return validate(_joined(_Pages(self._source, scope, None, portion=EVERYTHING)), strict=strict)

    def _inside(self, scope: Scope) -> tuple[frozenset[str], int]:
        """The ids of what a scope holds, and the number of the last change that they are from."""
        pages = _Pages(self._source, scope, None)
        return frozenset(entry.id for page in pages for entry in page.entries), pages.seq


class _Pages:
    """What a scope holds, a page at a time, from the store itself; `seq` is how far the last page reached.

    Links that lead out of the scope are left out: `inside` are the ids of what it holds, where that is known,
    and otherwise all of it has to be on one page.
    """

    def __init__(
        self,
        source: Source,
        scope: Scope,
        inside: frozenset[str] | None,
        portion: int = PAGE,
        expected: int | None = None,
    ) -> None:
        self._source = source
        self._scope = scope
        self._inside = inside
        self._portion = portion
        self._expected = expected
        self.seq = 0

    def __iter__(self) -> Iterator[Memories]:
        after, told = 0, set[str]()
        while True:
            feed = self._source.changed(self._scope.namespace, after, self._portion, None)
            # What changed more than once is told more than once; the first time, it is as it is now.
            here = tuple(one for one in feed.entries if self._scope.holds(one) and one.id not in told)
            there = {entry.id for entry in here}
            told |= there
            inside = there if self._inside is None else self._inside
            self.seq = feed.seq
            yield Memories(
                entries=here,
                links=tuple(link for link in feed.links if link.source in there and link.target in inside),
                access={id: used for id, used in feed.access.items() if id in there},
            )
            if not feed.more:
                if self._expected not in (None, feed.seq):
                    raise _Moved
                return
            after = feed.seq


class _Moved(Exception):
    """Somebody wrote while pages were read one after the other."""


def _joined(pages: Iterable[Memories]) -> Memories:
    entries: list[Entry] = []
    links: list[Link] = []
    access: dict[str, Access] = {}
    for page in pages:
        entries += page.entries
        links += page.links
        access.update(page.access)
    return Memories(entries=tuple(entries), links=tuple(links), access=access)


# view: How is a store asked in SPARQL?


P = ParamSpec("P")

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
        from omoide.graph.oxigraph import Embedded

        return GraphView(store, Embedded(path), timeout=timeout)
    from omoide.graph.endpoint import Remote

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
        from omoide.graph.sandbox import run

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
        return await longterm.related(self._store, id, scope, relation, depth=depth, **options)

    async def provenance(self, id: str, scope: Scope, **options: Any) -> Provenance:
        """Where a memory comes from, back to what was said; read from the store itself."""
        return await longterm.provenance(self._store, id, scope, **options)

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
