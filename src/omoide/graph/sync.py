"""Keep the graph up to date with its store.

Each change of a store has a sequence number. The graph stores the last one it has, and applies later changes
before every read, so it is never older than its reader. Its contents can be dropped at any time and are
rebuilt from the store.

Each owner (namespace, agent, session, project) has a named graph, so a scope is a set of graphs. Queries over
several graphs are slow and find shared triples several times; so a scope with more than one graph gets a
union graph, which is created on first use and updated from then on.

Several programs may update a graph at an endpoint. Its sync state is stored beside it, a program that finds
another state reloads, and a lease in the store ensures that one program writes at a time.

All of this runs in a worker thread. A store inside the process is called directly from there; any other store
is awaited on the event loop that waits for the thread.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar

import msgspec
from anyio import from_thread

from omoide import ids
from omoide.concurrency import BackgroundWorker
from omoide.core.entry import Entry, Scope
from omoide.errors import Busy, NotFound
from omoide.forks import ForkSafeLock
from omoide.graph import ontology
from omoide.graph.backend import GraphBackend, GraphSubject, SyncState
from omoide.graph.resources import (
    Description,
    Resource,
    ResourceReader,
    save_resources,
    with_descriptions,
)
from omoide.graph.serializer import datetime_literal, integer_literal, triples_by_graph, triples_to_nquads
from omoide.graph.vocabulary import (
    ONTOLOGY_GRAPH,
    graph_iri,
    memory_iri,
    namespace_prefix,
    owner_of,
    union_iri,
    union_prefix,
    union_scope,
)
from omoide.stores.async_store import AsyncStore
from omoide.stores.protocols import (
    Store,
    SupportsDocuments,
    SupportsFeed,
    SupportsGet,
    SupportsImport,
    SupportsLeases,
    SupportsLinks,
)
from omoide.stores.records import Access, Feed, Link
from omoide.verbs import require

T = TypeVar("T")

LEASE_KIND = "graph"
"""Kind of the lease documents in the store."""
LEASE_TTL_MS = 30_000
LEASE_TIMEOUT = 40.0
"""Seconds to wait for another program that updates a shared graph; longer than `LEASE_TTL_MS`."""


class ChangeSource(Protocol):
    """The store of a graph, as seen from a worker thread."""

    def changes(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        """Return the changes after a sequence number."""

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]
    ) -> int:
        """Import entries as they are and return the number of new ones."""

    def lock(self, graph: str, namespace: str, *, shared: bool) -> AbstractContextManager[None]:
        """Return a lock that keeps other programs which use this store from writing to a shared graph."""

    def has(self, id: str, scope: Scope) -> bool:
        """Return True if the scope has an entry of this id."""

    def describe(self, namespace: str, triples: Mapping[str, str]) -> Mapping[str, Description]:
        """Return the descriptions of what triples refer to, by IRI."""

    def keep(self, resources: Iterable[Resource], owners: Mapping[str | None, Scope]) -> None:
        """Keep descriptions of imported resources; a session belongs to the owner of its memories."""


def source_for(store: Any) -> ChangeSource:
    """Return the change source for a store."""
    if isinstance(store, AsyncStore):
        return _LocalSource(store)
    if isinstance(store, SupportsFeed):
        return _AsyncSource(store)
    return _ListingSource(require(store, Store, "be viewed as a graph"))


class _LeasedSource:
    """Lock shared graphs by a lease in the store."""

    def __init__(self) -> None:
        self._name = ids.new("view_")
        self._leases: set[str] = set()

    @contextmanager
    def lock(self, graph: str, namespace: str, *, shared: bool) -> Iterator[None]:
        key = sha256(graph.encode()).hexdigest()
        # Reentrant: loading a namespace may lock it inside of an update that holds the lease already.
        if not shared or key in self._leases or not self._supports_leases():
            yield
            return
        deadline = monotonic() + LEASE_TIMEOUT
        while not self._claim(key, Scope(namespace=namespace)):
            if monotonic() > deadline:
                raise Busy(graph, "is being updated by another program", "try again later")
            sleep(0.02)
        self._leases.add(key)
        try:
            yield
        finally:
            self._leases.discard(key)
            self._release(key, Scope(namespace=namespace))

    def _supports_leases(self) -> bool:
        raise NotImplementedError

    def _claim(self, key: str, scope: Scope) -> bool:
        raise NotImplementedError

    def _release(self, key: str, scope: Scope) -> None:
        raise NotImplementedError


class _LocalSource(_LeasedSource):
    """A store inside the process."""

    def __init__(self, store: AsyncStore) -> None:
        super().__init__()
        self._store = store.sync

    def _supports_leases(self) -> bool:
        return not self._store.settings.read_only

    def _claim(self, key: str, scope: Scope) -> bool:
        lease = self._store.claim(LEASE_KIND, key, scope, owner=self._name, ttl_ms=LEASE_TTL_MS)
        return lease is not None

    def _release(self, key: str, scope: Scope) -> None:
        self._store.release(LEASE_KIND, key, scope, owner=self._name)

    def changes(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        return self._store.change_feed(namespace, after=after, limit=limit, used_since=used_since)

    def describe(self, namespace: str, triples: Mapping[str, str]) -> Mapping[str, Description]:
        return ResourceReader(self._store, namespace).describe(triples)

    def keep(self, resources: Iterable[Resource], owners: Mapping[str | None, Scope]) -> None:
        save_resources(self._store, resources, owners)

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]
    ) -> int:
        return self._store.import_entries(entries, links, access)

    def has(self, id: str, scope: Scope) -> bool:
        try:
            self._store.get(id, scope)
        except NotFound:
            return False
        return True


class _AwaitedDocuments:
    """The documents of a store that has to be awaited, as seen from a worker thread."""

    def __init__(self, store: Any) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._store, name)
        return lambda *args, **kwargs: _run_in_loop(lambda: method(*args, **kwargs))


class _AsyncSource(_LeasedSource):
    """A store that has to be awaited."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store

    def describe(self, namespace: str, triples: Mapping[str, str]) -> Mapping[str, Description]:
        if not isinstance(self._store, SupportsDocuments):
            return {}
        return ResourceReader(_AwaitedDocuments(self._store), namespace).describe(triples)

    def keep(self, resources: Iterable[Resource], owners: Mapping[str | None, Scope]) -> None:
        if isinstance(self._store, SupportsDocuments):
            save_resources(_AwaitedDocuments(self._store), resources, owners)

    def _supports_leases(self) -> bool:
        return isinstance(self._store, SupportsLeases)

    def _claim(self, key: str, scope: Scope) -> bool:
        lease = _run_in_loop(
            lambda: self._store.claim(LEASE_KIND, key, scope, owner=self._name, ttl_ms=LEASE_TTL_MS)
        )
        return lease is not None

    def _release(self, key: str, scope: Scope) -> None:
        _run_in_loop(lambda: self._store.release(LEASE_KIND, key, scope, owner=self._name))

    def changes(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        store: SupportsFeed = self._store
        return _run_in_loop(
            lambda: store.change_feed(namespace, after=after, limit=limit, used_since=used_since)
        )

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]
    ) -> int:
        store: SupportsImport = require(self._store, SupportsImport, "import memories")
        return _run_in_loop(lambda: store.import_entries(entries, links, access))

    def has(self, id: str, scope: Scope) -> bool:
        store: SupportsGet = require(self._store, SupportsGet, "import memories")
        try:
            _run_in_loop(lambda: store.get(id, scope))
        except NotFound:
            return False
        return True


class _ListingSource(_AsyncSource):
    """A store without a change feed: all of it is listed and compared with the previous listing."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._generation = ids.new("life_")
        self._seq = 0
        self._listed: dict[str, dict[int, dict[str, Entry]]] = {}
        """Listings by namespace and sequence number; the previous one is kept in case it was not applied."""

    def changes(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        scope = Scope(namespace=namespace)
        listed: list[Entry] = _run_in_loop(lambda: self._store.list_entries(scope))
        current = {entry.id: entry for entry in listed}
        previous = self._listed.get(namespace, {}).get(after, {})
        changed = [entry for entry in listed if previous.get(entry.id) != entry]
        erased = [id for id in previous if id not in current]
        if previous == current and after:
            return Feed(generation=self._generation, seq=after)
        self._seq += 1
        self._listed[namespace] = {after: previous, self._seq: current}
        linked = changed if isinstance(self._store, SupportsLinks) else []
        links = [link for entry in linked for link in self._links(entry.id, scope)]
        return Feed(
            generation=self._generation,
            seq=self._seq,
            entries=tuple(changed),
            links=tuple(links),
            erased_ids=tuple(erased),
        )

    def _links(self, id: str, scope: Scope) -> list[Link]:
        links: list[Link] = _run_in_loop(lambda: self._store.links(id, scope))
        return [link for link in links if link.source == id]


def _run_in_loop(call: Callable[[], Awaitable[T]]) -> T:
    async def await_call() -> T:
        return await call()

    return from_thread.run(await_call)


MAX_SEPARATE_GRAPHS = 1
"""Number of graphs that are queried directly: a triple that is in two of them would be found twice."""
MAX_UNION_GRAPHS = 16
"""Number of union graphs that are kept per namespace."""
MIN_BATCH = 250
MAX_BATCH = 10_000
SHARED_BATCH = 1_000
MAX_ATTEMPTS = 5
USES_PER_UPDATE = 200
"""Number of access counts in one update."""

_EMPTY_STATE = SyncState("", 0)
_ONTOLOGY_KEY = ""
"""Stored in place of a namespace; namespaces are never empty."""


class NamespaceState:
    """State of one namespace of the graph, as known to this process."""

    def __init__(self, state: SyncState, owners: Iterable[str], unions: Iterable[str]) -> None:
        self.state = state
        self.build_id = state.build_id or ids.new("")
        self.owners = {*owners}
        self.unions: OrderedDict[Scope, str] = OrderedDict((union_scope(name), name) for name in unions)
        self.last_uses: dict[str, Access] = {}
        """Accesses at the latest timestamp; the feed may return them again."""
        self.is_consistent = not self.owners
        """False if an interrupted update may have left more in the graph than its state says."""

    def record_uses(self, uses: Mapping[str, Access], last: int) -> None:
        """Remember the accesses at the latest timestamp."""
        self.last_uses = {
            id: access for id, access in {**self.last_uses, **uses}.items() if access.last == last
        }


class GraphProjection:
    """A graph that follows a store."""

    def __init__(self, source: ChangeSource, backend: GraphBackend) -> None:
        self._source = source
        self.backend = backend
        self._lock = ForkSafeLock()
        self._namespaces: dict[str, NamespaceState] = {}
        self._ontology_loaded = False
        self._generation = 0

    def dataset(self, scope: Scope) -> tuple[list[str], list[str]]:
        """Return the up-to-date graphs of a scope: default graphs (ontology included) and named graphs."""
        with self._lock:
            self._load_ontology()
            for _ in range(MAX_ATTEMPTS):
                self.catch_up(scope.namespace)
                tracked = self._namespaces[scope.namespace]
                owner_graphs = [graph for graph in sorted(tracked.owners) if _scope_covers(scope, graph)]
                if len(owner_graphs) <= MAX_SEPARATE_GRAPHS:
                    return [*owner_graphs, ONTOLOGY_GRAPH], owner_graphs
                union = self._union_graph(tracked, scope, owner_graphs)
                if union is not None:
                    return [union, ONTOLOGY_GRAPH], owner_graphs
        raise Busy(self.backend.name, "keeps being changed by other programs", "try again later")

    def generation(self, namespace: str) -> object:
        """Return a value that changes when a graph is dropped that a reader may have used."""
        if not self.backend.shared:
            return self._generation
        return self.backend.state(namespace)

    @contextmanager
    def freeze(self, namespace: str) -> Iterator[None]:
        """Prevent all changes inside the block."""
        with self._lock, self._namespace_lock(namespace):
            yield

    def catch_up(self, namespace: str) -> int:
        """Apply the changes since the last call and return the number of memories."""
        with self._lock:
            # Other programs may change a shared graph at any time, so each batch is applied under the lock.
            if self.backend.shared:
                return self._apply_shared_changes(namespace)
            return self._apply_changes(namespace)

    def rebuild(self, namespace: str) -> int:
        """Drop the graphs of a namespace, build them again, and return the number of memories."""
        with self._lock:
            with self._namespace_lock(namespace):
                self._load_namespace(namespace)
                self._reset_namespace(namespace)
            return self.catch_up(namespace)

    def close(self) -> None:
        """Close the backend; what is on disk or at an endpoint stays."""
        with self._lock:
            self.backend.close()

    def _apply_changes(self, namespace: str) -> int:
        """Apply changes to a private graph; the next batch is read while the previous one is written."""
        with BackgroundWorker("omoide-graph") as writer:
            tracked, applied = self._load_namespace(namespace), 0
            state, consistent = tracked.state, tracked.is_consistent
            while True:
                feed = self._source.changes(namespace, state.seq, _batch_size(applied), state.last_use_ms)
                if _is_other_store(state, feed):
                    writer.wait()
                    tracked = self._reset_namespace(namespace)
                    state, consistent = tracked.state, tracked.is_consistent
                    continue
                triples, described = self._describe(namespace, _changed_triples(tracked, feed))
                # A new entry has no triples to delete, unless an interrupted update may have written some.
                outdated = [entry for entry in feed.entries if not consistent or entry.id not in feed.new_ids]
                subjects = [*described, *_subjects(tracked, outdated)]
                uses = _new_uses(tracked, feed)
                writer.wait()
                if feed.seq == state.seq and not uses:
                    self._save_state(namespace, tracked, state)
                    break
                state = _state_after(tracked, state, feed)
                tracked.is_consistent = False
                only_writes = not feed.erased_ids and not uses
                if feed.more and only_writes and state.seq - tracked.state.seq < MAX_BATCH:
                    # The state is not saved with every batch: an interrupted build repeats a few of them.
                    writer.start(partial(self._replace_subjects, subjects, triples))
                else:
                    self._apply_feed(namespace, tracked, feed, triples, subjects, state, consistent)
                tracked.record_uses(feed.access, state.last_use_ms)
                applied += len(feed.entries)
                if not feed.more:
                    break
            tracked.is_consistent = True
        return applied

    def _apply_shared_changes(self, namespace: str) -> int:
        """Apply changes to a shared graph; what to apply is determined again under the lock."""
        tracked, applied = self._load_namespace(namespace), 0
        while True:
            feed = self._source.changes(namespace, tracked.state.seq, SHARED_BATCH, tracked.state.last_use_ms)
            if _is_other_store(tracked.state, feed):
                with self._namespace_lock(namespace):
                    tracked = self._reset_namespace(namespace)
                continue
            if feed.seq == tracked.state.seq and not _new_uses(tracked, feed):
                return applied
            with self._namespace_lock(namespace):
                tracked = self._load_namespace(namespace)
                feed = self._source.changes(
                    namespace, tracked.state.seq, SHARED_BATCH, tracked.state.last_use_ms
                )
                if _is_other_store(tracked.state, feed):
                    continue
                state = _state_after(tracked, tracked.state, feed)
                triples, described = self._describe(namespace, _changed_triples(tracked, feed))
                # Another program may have been interrupted, so the graph counts as inconsistent.
                subjects = [*described, *_subjects(tracked, feed.entries)]
                self._apply_feed(namespace, tracked, feed, triples, subjects, state, consistent=False)
                tracked.record_uses(feed.access, state.last_use_ms)
                applied += len(feed.entries)
            if not feed.more:
                return applied

    def _namespace_lock(self, namespace: str) -> AbstractContextManager[None]:
        return self._source.lock(self.backend.name, namespace, shared=self.backend.shared)

    def _load_namespace(self, namespace: str) -> NamespaceState:
        """Return what is in the graph; read on first use, and again whenever another program changed it."""
        tracked = self._namespaces.get(namespace)
        if tracked is not None and not self.backend.shared:
            return tracked
        state = self.backend.state(namespace) or _EMPTY_STATE
        if tracked is not None and tracked.state == state:
            return tracked
        with self._namespace_lock(namespace):  # a consistent read while others may write
            state = self.backend.state(namespace) or _EMPTY_STATE
            owners = self.backend.graphs(namespace_prefix(namespace))
            unions = self.backend.graphs(union_prefix(namespace))
            if state == _EMPTY_STATE and (owners or unions):  # the first build was interrupted
                self._drop([*owners, *unions])
                owners, unions = [], []
        tracked = self._namespaces[namespace] = NamespaceState(state, owners, unions)
        return tracked

    def _reset_namespace(self, namespace: str) -> NamespaceState:
        """Start over, because the store is not the one that the graph followed."""
        tracked = self._namespaces[namespace]
        # The state goes first: graphs without a state are dropped when the namespace is loaded again, so an
        # interrupted reset loses nothing.
        self.backend.set_state(namespace, _EMPTY_STATE)
        tracked.state = _EMPTY_STATE
        self._drop([*tracked.owners, *tracked.unions.values()])
        tracked = self._namespaces[namespace] = NamespaceState(_EMPTY_STATE, (), ())
        return tracked

    def _drop(self, graphs: Iterable[str]) -> None:
        self._generation += 1
        self.backend.drop(graphs)

    def _apply_feed(
        self,
        namespace: str,
        tracked: NamespaceState,
        feed: Feed,
        triples: Mapping[str, str],
        subjects: Sequence[GraphSubject],
        state: SyncState,
        consistent: bool,
    ) -> None:
        """Apply a batch of changes; idempotent, so it can be repeated after a crash.

        Args:
            namespace: namespace of the changes.
            tracked: state of the namespace.
            feed: changes to apply.
            triples: new triples by graph.
            subjects: what the graph may describe already.
            state: sync state after the changes.
            consistent: False if an interrupted update may have left something behind.
        """
        prefixes = [namespace_prefix(namespace), union_prefix(namespace)]
        erased: list[GraphSubject] = []
        if feed.erased_ids:
            erased = self.backend.find_subjects([*map(memory_iri, feed.erased_ids)], prefixes)
        if triples or erased:
            self._replace_subjects([*erased, *subjects], triples)
        touched = {graph for graph, _ in erased}
        if feed.erased_ids and not consistent:  # an interrupted attempt may have erased them already
            touched = {*tracked.owners}
        self._drop_empty_graphs(tracked, touched)
        self._record_uses(_new_uses(tracked, feed), prefixes)
        # The state comes last, so that an interrupted batch is applied again.
        self._save_state(namespace, tracked, state)

    def _describe(
        self, namespace: str, triples: Mapping[str, str]
    ) -> tuple[dict[str, str], list[GraphSubject]]:
        """Add what is known of sessions, agents and other resources; also return these as subjects."""
        described = self._source.describe(namespace, triples) if triples else {}
        return with_descriptions(triples, described)

    def _save_state(self, namespace: str, tracked: NamespaceState, state: SyncState) -> None:
        if state != tracked.state:
            self.backend.set_state(namespace, state)
            tracked.state = state

    def _replace_subjects(self, subjects: Iterable[GraphSubject], triples_by_name: Mapping[str, str]) -> None:
        """Change the graph in one update; a single graph, the usual case, is cheaper."""
        if len(triples_by_name) == 1:
            ((graph, triples),) = triples_by_name.items()
            self.backend.replace(subjects, triples, graph_name=graph)
        else:
            self.backend.replace(subjects, triples_to_nquads(triples_by_name))

    def _drop_empty_graphs(self, tracked: NamespaceState, touched: set[str]) -> None:
        """Drop the graphs of owners without memories, and the union graphs that include them."""
        empty = [graph for graph in touched & tracked.owners if not self._has_memories(graph)]
        if empty:
            unions = [
                scope for scope in tracked.unions if any(_scope_covers(scope, graph) for graph in empty)
            ]
            self._drop([*empty, *(tracked.unions.pop(scope) for scope in unions)])
            tracked.owners -= {*empty}

    def _has_memories(self, graph: str) -> bool:
        """Return True if a graph describes any memory."""
        # The triples about agent, session and project remain, so a graph without memories is not empty.
        return bool(self.backend.query("ASK { ?m jido:summary ?said }", default_graphs=[graph]).truth)

    def _record_uses(self, uses: Mapping[str, Access], prefixes: Sequence[str]) -> None:
        """Write the access counts of memories that did not change otherwise."""
        rows = [
            (memory_iri(id), integer_literal(access.count), datetime_literal(access.last or 0))
            for id, access in uses.items()
        ]
        for at in range(0, len(rows), USES_PER_UPDATE):
            self.backend.record_uses(prefixes, rows[at : at + USES_PER_UPDATE])

    def _union_graph(self, tracked: NamespaceState, scope: Scope, owner_graphs: Sequence[str]) -> str | None:
        """Return the union graph of a scope; None if another program changed the namespace meanwhile."""
        if scope in tracked.unions:
            tracked.unions.move_to_end(scope)
            return tracked.unions[scope]
        name = union_iri(scope)
        with self._namespace_lock(scope.namespace):
            if self.backend.shared and self.backend.state(scope.namespace) != tracked.state:
                return None
            self.backend.copy_graphs(owner_graphs, name)
            tracked.unions[scope] = name
            if self.backend.shared:  # a new state tells other programs about the graph
                tracked.build_id = ids.new("")
                state = msgspec.structs.replace(tracked.state, build_id=tracked.build_id)
                self.backend.set_state(scope.namespace, state)
                tracked.state = state
        # Another program may be querying a union graph of a shared backend, so those are kept.
        if len(tracked.unions) > MAX_UNION_GRAPHS and not self.backend.shared:
            _, oldest = tracked.unions.popitem(last=False)
            self._drop([oldest])
        return name

    def _load_ontology(self) -> None:
        """Write the ontology to the backend if it is missing or outdated."""
        if self._ontology_loaded:
            return
        text = ontology.nquads()
        wanted = SyncState(sha256(text.encode()).hexdigest(), 1)
        if self.backend.state(_ONTOLOGY_KEY) != wanted:
            self.backend.drop([ONTOLOGY_GRAPH])
            self.backend.replace([], text)
            self.backend.set_state(_ONTOLOGY_KEY, wanted)
        self._ontology_loaded = True


def _is_other_store(state: SyncState, feed: Feed) -> bool:
    """Return True if the store is not the one that the graph followed, but another, a copy or a backup."""
    if state.seq == 0:
        return False
    # Copies of a store share the generation; the fingerprint of the last change differs once they diverge.
    if feed.generation != state.generation or feed.after_fingerprint != state.seq_fingerprint:
        return True
    return feed.seq < state.seq  # a backup from before that change


def _batch_size(applied: int) -> int:
    """Return the number of changes to read: few at first, so that reading and writing soon overlap."""
    return min(max(MIN_BATCH, applied // 2), MAX_BATCH)


def _state_after(tracked: NamespaceState, state: SyncState, feed: Feed) -> SyncState:
    """Return the sync state after a batch of changes."""
    last_use = max((access.last or 0 for access in feed.access.values()), default=0)
    return SyncState(
        feed.generation, feed.seq, max(last_use, state.last_use_ms), feed.seq_fingerprint, tracked.build_id
    )


def _changed_triples(tracked: NamespaceState, feed: Feed) -> dict[str, str]:
    """Return the triples of changed entries by graph, union graphs included."""
    triples = triples_by_graph(feed.entries, feed.links, feed.access)
    tracked.owners.update(triples)
    return {**triples, **_union_triples(tracked, feed)}


def _new_uses(tracked: NamespaceState, feed: Feed) -> dict[str, Access]:
    """Return the accesses that the graph does not have yet."""
    changed = {entry.id for entry in feed.entries}
    return {
        id: access
        for id, access in feed.access.items()
        if id not in changed and tracked.last_uses.get(id) != access
    }


def _subjects(tracked: NamespaceState, entries: Iterable[Entry]) -> list[GraphSubject]:
    """Return the subjects of entries, in the graphs of their owners and in union graphs."""
    return [
        (graph, memory_iri(entry.id))
        for entry in entries
        for graph in (
            _graph_of(entry),
            *(name for scope, name in tracked.unions.items() if scope.contains(entry)),
        )
    ]


def _union_triples(tracked: NamespaceState, feed: Feed) -> dict[str, str]:
    """Return the triples of changed entries by union graph."""
    entries_by_union = {
        name: [entry for entry in feed.entries if scope.contains(entry)]
        for scope, name in tracked.unions.items()
    }
    return {
        name: "".join(triples_by_graph(entries, feed.links, feed.access).values())
        for name, entries in entries_by_union.items()
        if entries
    }


def _graph_of(entry: Entry) -> str:
    return graph_iri(entry.namespace, entry.agent_id, entry.session_id, entry.project_id, entry.user_id)


def _scope_covers(scope: Scope, graph: str) -> bool:
    owner = owner_of(graph)
    return owner is not None and scope.contains(owner)
