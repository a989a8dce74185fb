"""Graph kept in step with its store.

The graph is brought up to date in a worker thread. A store inside the process is called directly from there;
any other is asked through the event loop that waits for the thread.

Each change in a store has a number. The graph knows the last one it holds, and takes in what came after it
before anybody reads: so it is never older than its reader. What it holds can be thrown away at any time, and
is built again from the store.

Each owner (namespace, agent, session, project) has a named graph, so any scope is a set of graphs. Several
graphs that are asked as one are slow, and what they share is found several times; so a scope of more than one
gets a wide graph that holds them all, made when it is first asked for and kept in step from then on.

A graph at an endpoint may be followed by several programs. How far it is stands beside it, and whoever finds
that it moved looks again; changes are made one program at a time.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from hashlib import sha256
from threading import RLock
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar

import msgspec
from anyio import from_thread

from omoide import ids
from omoide.concurrency import BackgroundWorker
from omoide.core.entry import Entry, Scope
from omoide.errors import Busy, NotFound
from omoide.graph import ontology
from omoide.graph.backend import GraphBackend, GraphSubject, SyncState
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
    SupportsFeed,
    SupportsGet,
    SupportsImport,
    SupportsLeases,
    SupportsLinks,
)
from omoide.stores.records import Access, Feed, Link
from omoide.verbs import require

# sources: What changed in a store since the graph last looked?


T = TypeVar("T")

LEASE_KIND = "graph"
"""What a lease on a graph is called among the documents of a store."""
LEASE_TTL_MS = 30_000
LEASE_TIMEOUT = 40.0
"""Seconds to wait for somebody else who brings a shared graph up to date; longer than a lease lasts."""


class ChangeSource(Protocol):
    """Where the graph's memories come from, and go to when files are read."""

    def changes(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        """What changed after a number, and what it became."""
        ...

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]
    ) -> int:
        """Keep memories as they were elsewhere; how many were new."""
        ...

    def lock(self, graph: str, namespace: str, *, shared: bool) -> AbstractContextManager[None]:
        """A block in which nobody else, who follows this store as well, changes a graph that is shared."""
        ...

    def has(self, id: str, scope: Scope) -> bool:
        """Whether the scope holds a memory of this id."""
        ...


def source_for(store: Any) -> ChangeSource:
    """The source that a store is."""
    if isinstance(store, AsyncStore):
        return _LocalSource(store)
    if isinstance(store, SupportsFeed):
        return _AsyncSource(store)
    return _ListingSource(require(store, Store, "be seen as a graph"))


class _LeasedSource:
    """Lends a graph to one of those who follow a store at a time, by a lease in that store."""

    def __init__(self) -> None:
        self._name = ids.new("view_")
        self._leases: set[str] = set()

    @contextmanager
    def lock(self, graph: str, namespace: str, *, shared: bool) -> Iterator[None]:
        key = sha256(graph.encode()).hexdigest()
        if not shared or key in self._leases or not self._supports_leases():
            yield
            return
        deadline = monotonic() + LEASE_TIMEOUT
        while not self._claim(key, Scope(namespace=namespace)):
            if monotonic() > deadline:
                raise Busy(graph, "is being brought up to date by another program", "try again later")
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


class _AsyncSource(_LeasedSource):
    """A store that has to be awaited."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store

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
        able: SupportsFeed = self._store
        return _run_in_loop(
            lambda: able.change_feed(namespace, after=after, limit=limit, used_since=used_since)
        )

    def import_entries(
        self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]
    ) -> int:
        able: SupportsImport = require(self._store, SupportsImport, "take over memories")
        return _run_in_loop(lambda: able.import_entries(entries, links, access))

    def has(self, id: str, scope: Scope) -> bool:
        able: SupportsGet = require(self._store, SupportsGet, "take over memories")
        try:
            _run_in_loop(lambda: able.get(id, scope))
        except NotFound:
            return False
        return True


class _ListingSource(_AsyncSource):
    """A store that cannot tell what changed: all of it is listed, and compared with the last time."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._generation = ids.new("life_")
        self._seq = 0
        self._listed: dict[str, dict[int, dict[str, Entry]]] = {}
        """What was listed, by the number it was told under; only what was taken in is asked after."""

    def changes(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        scope = Scope(namespace=namespace)
        listed: list[Entry] = _run_in_loop(lambda: self._store.list_entries(scope))
        there = {entry.id: entry for entry in listed}
        known = self._listed.get(namespace, {}).get(after, {})
        found = [entry for entry in listed if known.get(entry.id) != entry]
        gone = [id for id in known if id not in there]
        if known == there and after:
            return Feed(generation=self._generation, seq=after)
        self._seq += 1
        self._listed[namespace] = {after: known, self._seq: there}
        links: list[Link] = []
        if isinstance(self._store, SupportsLinks):
            for entry in found:
                links += self._links(entry.id, scope)
        return Feed(
            generation=self._generation,
            seq=self._seq,
            entries=tuple(found),
            links=tuple(links),
            erased_ids=tuple(gone),
        )

    def _links(self, id: str, scope: Scope) -> list[Link]:
        links: list[Link] = _run_in_loop(lambda: self._store.links(id, scope))
        return [link for link in links if link.source == id]


def _run_in_loop(call: Callable[[], Awaitable[T]]) -> T:
    async def awaited() -> T:
        return await call()

    return from_thread.run(awaited)


# projecting: How does the graph keep in step with its store?


MAX_SEPARATE_GRAPHS = 1
"""How many graphs are asked as they are: what stands in two of them, Oxigraph would find twice."""
MAX_UNION_GRAPHS = 16
"""How many wide graphs are kept."""
MIN_BATCH = 250
MAX_BATCH = 10_000
SHARED_BATCH = 1_000
MAX_ATTEMPTS = 5
USES_PER_UPDATE = 200
"""How many uses are told at once."""

_EMPTY_STATE = SyncState("", 0)
_ONTOLOGY_KEY = ""
"""In the place of a namespace, which has a name: the ontology that stands beside the memories."""


class NamespaceState:
    """What this reader knows of a namespace in the graph."""

    def __init__(self, state: SyncState, owners: Iterable[str], unions: Iterable[str]) -> None:
        self.state = state
        self.build_id = state.build_id or ids.new("")
        self.owners = {*owners}
        self.unions: OrderedDict[Scope, str] = OrderedDict((union_scope(name), name) for name in unions)
        self.last_uses: dict[str, Access] = {}
        """What was used in the very last moment that is known; it may be told again."""
        self.is_consistent = not self.owners
        """Whether the graph holds no more than its state says: a change may have been cut off half-way."""

    def record_uses(self, uses: Mapping[str, Access], last: int) -> None:
        """Keep in mind what was used in the last moment."""
        self.last_uses = {id: one for id, one in {**self.last_uses, **uses}.items() if one.last == last}


class GraphProjection:
    """A graph that follows a store."""

    def __init__(self, source: ChangeSource, backend: GraphBackend) -> None:
        self._source = source
        self.backend = backend
        self._lock = RLock()
        self._namespaces: dict[str, NamespaceState] = {}
        self._ontology_loaded = False
        self._generation = 0

    def dataset(self, scope: Scope) -> tuple[list[str], list[str]]:
        """The graphs that hold what the scope holds, as it is now: to be asked as one, and by their names.

        The ontology is beside them.
        """
        with self._lock:
            self._load_ontology()
            for _ in range(MAX_ATTEMPTS):
                self.catch_up(scope.namespace)
                known = self._namespaces[scope.namespace]
                own = [graph for graph in sorted(known.owners) if _scope_covers(scope, graph)]
                whole = own if len(own) <= MAX_SEPARATE_GRAPHS else self._union_graph(known, scope, own)
                if whole is not None:
                    return [*whole, ONTOLOGY_GRAPH], own
        raise Busy(self.backend.name, "is changed by others all the time", "try again later")

    def generation(self, namespace: str) -> object:
        """What is another once a graph was dropped that somebody may just have asked."""
        if not self.backend.shared:
            return self._generation
        return self.backend.state(namespace)

    @contextmanager
    def freeze(self, namespace: str) -> Iterator[None]:
        """A block in which nothing changes."""
        with self._lock, self._namespace_lock(namespace):
            yield

    def catch_up(self, namespace: str) -> int:
        """Take in what changed since; how many memories that were."""
        with self._lock:
            return (
                self._apply_shared_changes(namespace)
                if self.backend.shared
                else self._apply_changes(namespace)
            )

    def rebuild(self, namespace: str) -> int:
        """Throw away what the graph holds of a namespace, and build it again; how many memories it has."""
        with self._lock:
            with self._namespace_lock(namespace):
                self._load_namespace(namespace)
                self._reset_namespace(namespace)
            return self.catch_up(namespace)

    def close(self) -> None:
        """Let go of the graph; what it holds stays, if it is on disk or at an endpoint."""
        with self._lock:
            self.backend.close()

    # Inside

    def _apply_changes(self, namespace: str) -> int:
        """While one portion is taken in, the next one is read and told."""
        with BackgroundWorker("omoide-graph") as behind:
            known, taken = self._load_namespace(namespace), 0
            state, sound = known.state, known.is_consistent
            while True:
                feed = self._source.changes(namespace, state.seq, _batch_size(taken), state.last_use_ms)
                if _is_other_store(state, feed):
                    behind.wait()
                    known = self._reset_namespace(namespace)
                    state, sound = known.state, known.is_consistent
                    continue
                told = _changed_triples(known, feed)
                old = [one for one in feed.entries if not sound or one.id not in feed.new_ids]
                used = _new_uses(known, feed)
                behind.wait()
                if feed.seq == state.seq and not used:
                    self._save_state(namespace, known, state)
                    break
                state = _state_after(known, state, feed)
                known.is_consistent = False
                if feed.more and not feed.erased_ids and not used and state.seq - known.state.seq < MAX_BATCH:
                    behind.start(partial(self._replace_subjects, _subjects(known, old), told))
                else:
                    self._apply_feed(namespace, known, feed, told, old, state, consistent=sound)
                known.record_uses(feed.access, state.last_use_ms)
                taken += len(feed.entries)
                if not feed.more:
                    break
            known.is_consistent = True
        return taken

    def _apply_shared_changes(self, namespace: str) -> int:
        """Others may have been here: what is told is what is true once nobody else is at it."""
        known, taken = self._load_namespace(namespace), 0
        while True:
            feed = self._source.changes(namespace, known.state.seq, SHARED_BATCH, known.state.last_use_ms)
            if _is_other_store(known.state, feed):
                with self._namespace_lock(namespace):
                    known = self._reset_namespace(namespace)
                continue
            if feed.seq == known.state.seq and not _new_uses(known, feed):
                return taken
            with self._namespace_lock(namespace):
                known = self._load_namespace(namespace)
                feed = self._source.changes(namespace, known.state.seq, SHARED_BATCH, known.state.last_use_ms)
                if _is_other_store(known.state, feed):
                    continue
                state = _state_after(known, known.state, feed)
                self._apply_feed(
                    namespace,
                    known,
                    feed,
                    _changed_triples(known, feed),
                    feed.entries,
                    state,
                    consistent=False,
                )
                known.record_uses(feed.access, state.last_use_ms)
                taken += len(feed.entries)
            if not feed.more:
                return taken

    def _namespace_lock(self, namespace: str) -> AbstractContextManager[None]:
        return self._source.lock(self.backend.name, namespace, shared=self.backend.shared)

    def _load_namespace(self, namespace: str) -> NamespaceState:
        """What is in the graph: looked up the first time, and again whenever somebody else changed it."""
        known = self._namespaces.get(namespace)
        if known is not None and not self.backend.shared:
            return known
        state = self.backend.state(namespace) or _EMPTY_STATE
        if known is not None and known.state == state:
            return known
        with self._namespace_lock(namespace):  # others may be at it: what is found belongs together
            state = self.backend.state(namespace) or _EMPTY_STATE
            there = self.backend.graphs(namespace_prefix(namespace))
            wide = self.backend.graphs(union_prefix(namespace))
            if state == _EMPTY_STATE and (there or wide):  # it was interrupted before it ever was complete
                self._drop([*there, *wide])
                there, wide = [], []
        known = self._namespaces[namespace] = NamespaceState(state, there, wide)
        return known

    def _reset_namespace(self, namespace: str) -> NamespaceState:
        """Begin again, because the store is not the one it was."""
        known = self._namespaces[namespace]
        self.backend.set_state(namespace, _EMPTY_STATE)
        known.state = _EMPTY_STATE
        self._drop([*known.owners, *known.unions.values()])
        known = self._namespaces[namespace] = NamespaceState(_EMPTY_STATE, (), ())
        return known

    def _drop(self, graphs: Iterable[str]) -> None:
        self._generation += 1
        self.backend.drop(graphs)

    def _apply_feed(
        self,
        namespace: str,
        known: NamespaceState,
        feed: Feed,
        triples: Mapping[str, str],
        old: Sequence[Entry],
        state: SyncState,
        *,
        consistent: bool,
    ) -> None:
        """Take in what changed; done again after a crash, it comes to the same.

        Told is what is to be said, by graph; old are the memories that may be spoken of already.
        """
        prefixes = [namespace_prefix(namespace), union_prefix(namespace)]
        gone = (
            self.backend.find_subjects([*map(memory_iri, feed.erased_ids)], prefixes)
            if feed.erased_ids
            else []
        )
        if triples or gone:
            self._replace_subjects([*gone, *_subjects(known, old)], triples)
        touched = {graph for graph, _ in gone}
        if feed.erased_ids and not consistent:  # they may have gone in a try that came to no end
            touched = {*known.owners}
        self._drop_empty_graphs(known, touched)
        self._record_uses(_new_uses(known, feed), prefixes)
        self._save_state(namespace, known, state)

    def _save_state(self, namespace: str, known: NamespaceState, state: SyncState) -> None:
        if state != known.state:
            self.backend.set_state(namespace, state)
            known.state = state

    def _replace_subjects(self, subjects: Iterable[GraphSubject], triples_by_name: Mapping[str, str]) -> None:
        """Change the graph at once; most often one graph, which costs less."""
        if len(triples_by_name) == 1:
            ((graph, triples),) = triples_by_name.items()
            self.backend.replace(subjects, triples, graph_name=graph)
        else:
            self.backend.replace(subjects, triples_to_nquads(triples_by_name))

    def _drop_empty_graphs(self, known: NamespaceState, touched: set[str]) -> None:
        """Forget owners of whom nothing is left, in the wide graphs as well."""
        empty = [graph for graph in touched & known.owners if not self._has_memories(graph)]
        if empty:
            wide = [scope for scope in known.unions if any(_scope_covers(scope, graph) for graph in empty)]
            self._drop([*empty, *(known.unions.pop(scope) for scope in wide)])
            known.owners -= {*empty}

    def _has_memories(self, graph: str) -> bool:
        """Whether a graph tells of any memory."""
        answer = self.backend.query("ASK { ?m jido:summary ?said }", default_graphs=[graph])
        return bool(answer.truth)

    def _record_uses(self, uses: Mapping[str, Access], prefixes: Sequence[str]) -> None:
        """Take in how often memories were used that did not change otherwise."""
        told = [
            (memory_iri(id), integer_literal(one.count), datetime_literal(one.last or 0))
            for id, one in uses.items()
        ]
        for at in range(0, len(told), USES_PER_UPDATE):
            self.backend.record_uses(prefixes, told[at : at + USES_PER_UPDATE])

    def _union_graph(self, known: NamespaceState, scope: Scope, own: Sequence[str]) -> list[str] | None:
        """The wide graph of a scope; None where somebody else changed something just now."""
        if scope in known.unions:
            known.unions.move_to_end(scope)
            return [known.unions[scope]]
        name = union_iri(scope)
        with self._namespace_lock(scope.namespace):
            if self.backend.shared and self.backend.state(scope.namespace) != known.state:
                return None
            self.backend.copy_graphs(own, name)
            known.unions[scope] = name
            if self.backend.shared:  # by another state the others see that there is one graph more
                known.build_id = ids.new("")
                state = msgspec.structs.replace(known.state, build_id=known.build_id)
                self.backend.set_state(scope.namespace, state)
                known.state = state
        if len(known.unions) > MAX_UNION_GRAPHS and not self.backend.shared:
            _, oldest = known.unions.popitem(last=False)
            self._drop([oldest])
        return [name]

    def _load_ontology(self) -> None:
        """Have the ontology beside the memories."""
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
    """Whether a store is not the one that the graph followed: another, an older copy, a backup."""
    if state.seq == 0:
        return False
    return (feed.generation, feed.after_fingerprint) != (
        state.generation,
        state.seq_fingerprint,
    ) or feed.seq < state.seq


def _batch_size(taken: int) -> int:
    """How many changes are read at once: few at first, so that reading and taking in soon overlap."""
    return min(max(MIN_BATCH, taken // 2), MAX_BATCH)


def _state_after(known: NamespaceState, state: SyncState, feed: Feed) -> SyncState:
    """How far the graph is once it has taken in what changed."""
    used = max((one.last or 0 for one in feed.access.values()), default=0)
    return SyncState(
        feed.generation, feed.seq, max(used, state.last_use_ms), feed.seq_fingerprint, known.build_id
    )


def _changed_triples(known: NamespaceState, feed: Feed) -> dict[str, str]:
    """What is to be said of what changed, by graph, the wide ones included."""
    told = triples_by_graph(feed.entries, feed.links, feed.access)
    known.owners.update(told)
    return {**told, **_union_triples(known, feed)}


def _new_uses(known: NamespaceState, feed: Feed) -> dict[str, Access]:
    """The uses that the graph does not know of yet."""
    changed = {entry.id for entry in feed.entries}
    return {
        id: one for id, one in feed.access.items() if id not in changed and known.last_uses.get(id) != one
    }


def _subjects(known: NamespaceState, entries: Iterable[Entry]) -> list[GraphSubject]:
    """Where memories stand in the graph."""
    return [
        (graph, memory_iri(entry.id))
        for entry in entries
        for graph in (
            _graph_of(entry),
            *(name for scope, name in known.unions.items() if scope.contains(entry)),
        )
    ]


def _union_triples(known: NamespaceState, feed: Feed) -> dict[str, str]:
    """What changed, once more for each wide graph that it belongs to."""
    inside = {
        name: [entry for entry in feed.entries if scope.contains(entry)]
        for scope, name in known.unions.items()
    }
    return {
        name: "".join(triples_by_graph(entries, feed.links, feed.access).values())
        for name, entries in inside.items()
        if entries
    }


def _graph_of(entry: Entry) -> str:
    return graph_iri(entry.namespace, entry.agent_id, entry.session_id, entry.project_id)


def _scope_covers(scope: Scope, graph: str) -> bool:
    owner = owner_of(graph)
    if owner is None:
        return False
    namespace, agent, session, project = owner
    return (
        namespace == scope.namespace
        and scope.agent_id in (None, agent)
        and scope.session_id in (None, session)
        and scope.project_id in (None, project)
    )
