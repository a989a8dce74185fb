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
from omoide.concurrency import Behind
from omoide.core.entry import Entry, Scope
from omoide.errors import Busy, NotFound
from omoide.graph import ontology
from omoide.graph.backend import Backend, State, Subject
from omoide.graph.serializer import by_graph, integer, moment, to_quads
from omoide.graph.vocabulary import (
    ONTOLOGY_GRAPH,
    graph_iri,
    memory_iri,
    namespace_prefix,
    owner_of,
    wide_iri,
    wide_prefix,
    wide_scope,
)
from omoide.stores.async_store import LocalStore
from omoide.stores.protocols import Claims, Gets, Links, Projects, Store, Takes
from omoide.stores.records import Access, Feed, Link
from omoide.verbs import offering

# sources: What changed in a store since the graph last looked?


T = TypeVar("T")

KIND = "graph"
"""What a lease on a graph is called among the documents of a store."""
TTL_MS = 30_000
PATIENCE = 40.0
"""Seconds to wait for somebody else who brings a shared graph up to date; longer than a lease lasts."""


class Source(Protocol):
    """Where the graph's memories come from, and go to when files are read."""

    def changed(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        """What changed after a number, and what it became."""
        ...

    def take(self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]) -> int:
        """Keep memories as they were elsewhere; how many were new."""
        ...

    def alone(self, graph: str, namespace: str, *, shared: bool) -> AbstractContextManager[None]:
        """A block in which nobody else, who follows this store as well, changes a graph that is shared."""
        ...

    def has(self, id: str, scope: Scope) -> bool:
        """Whether the scope holds a memory of this id."""
        ...


def source(store: Any) -> Source:
    """The source that a store is."""
    if isinstance(store, LocalStore):
        return _Direct(store)
    if isinstance(store, Projects):
        return _Awaited(store)
    return _Listed(offering(store, Store, "be seen as a graph"))


class _Lending:
    """Lends a graph to one of those who follow a store at a time, by a lease in that store."""

    def __init__(self) -> None:
        self._name = ids.new("view_")
        self._held: set[str] = set()

    @contextmanager
    def alone(self, graph: str, namespace: str, *, shared: bool) -> Iterator[None]:
        key = sha256(graph.encode()).hexdigest()
        if not shared or key in self._held or not self._able():
            yield
            return
        deadline = monotonic() + PATIENCE
        while not self._claim(key, Scope(namespace=namespace)):
            if monotonic() > deadline:
                raise Busy(graph, "is being brought up to date by another program", "try again later")
            sleep(0.02)
        self._held.add(key)
        try:
            yield
        finally:
            self._held.discard(key)
            self._release(key, Scope(namespace=namespace))

    def _able(self) -> bool:
        raise NotImplementedError

    def _claim(self, key: str, scope: Scope) -> bool:
        raise NotImplementedError

    def _release(self, key: str, scope: Scope) -> None:
        raise NotImplementedError


class _Direct(_Lending):
    """A store inside the process."""

    def __init__(self, store: LocalStore) -> None:
        super().__init__()
        self._store = store.sync

    def _able(self) -> bool:
        return not self._store.settings.read_only

    def _claim(self, key: str, scope: Scope) -> bool:
        lease = self._store.claim(KIND, key, scope, owner=self._name, ttl_ms=TTL_MS)
        return lease is not None

    def _release(self, key: str, scope: Scope) -> None:
        self._store.release(KIND, key, scope, owner=self._name)

    def changed(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        return self._store.changed(namespace, after=after, limit=limit, used_since=used_since)

    def take(self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]) -> int:
        return self._store.take(entries, links, access)

    def has(self, id: str, scope: Scope) -> bool:
        try:
            self._store.get(id, scope)
        except NotFound:
            return False
        return True


class _Awaited(_Lending):
    """A store that has to be awaited."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self._store = store

    def _able(self) -> bool:
        return isinstance(self._store, Claims)

    def _claim(self, key: str, scope: Scope) -> bool:
        lease = _awaited(lambda: self._store.claim(KIND, key, scope, owner=self._name, ttl_ms=TTL_MS))
        return lease is not None

    def _release(self, key: str, scope: Scope) -> None:
        _awaited(lambda: self._store.release(KIND, key, scope, owner=self._name))

    def changed(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        able: Projects = self._store
        return _awaited(lambda: able.changed(namespace, after=after, limit=limit, used_since=used_since))

    def take(self, entries: Sequence[Entry], links: Sequence[Link], access: Mapping[str, Access]) -> int:
        able: Takes = offering(self._store, Takes, "take over memories")
        return _awaited(lambda: able.take(entries, links, access))

    def has(self, id: str, scope: Scope) -> bool:
        able: Gets = offering(self._store, Gets, "take over memories")
        try:
            _awaited(lambda: able.get(id, scope))
        except NotFound:
            return False
        return True


class _Listed(_Awaited):
    """A store that cannot tell what changed: all of it is listed, and compared with the last time."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self._life = ids.new("life_")
        self._seq = 0
        self._known: dict[str, dict[int, dict[str, Entry]]] = {}
        """What was listed, by the number it was told under; only what was taken in is asked after."""

    def changed(self, namespace: str, after: int, limit: int, used_since: int | None) -> Feed:
        scope = Scope(namespace=namespace)
        listed: list[Entry] = _awaited(lambda: self._store.list_entries(scope))
        there = {entry.id: entry for entry in listed}
        known = self._known.get(namespace, {}).get(after, {})
        found = [entry for entry in listed if known.get(entry.id) != entry]
        gone = [id for id in known if id not in there]
        if known == there and after:
            return Feed(life=self._life, seq=after)
        self._seq += 1
        self._known[namespace] = {after: known, self._seq: there}
        links: list[Link] = []
        if isinstance(self._store, Links):
            for entry in found:
                links += self._links(entry.id, scope)
        return Feed(
            life=self._life, seq=self._seq, entries=tuple(found), links=tuple(links), gone=tuple(gone)
        )

    def _links(self, id: str, scope: Scope) -> list[Link]:
        links: list[Link] = _awaited(lambda: self._store.links(id, scope))
        return [link for link in links if link.source == id]


def _awaited(call: Callable[[], Awaitable[T]]) -> T:
    async def awaited() -> T:
        return await call()

    return from_thread.run(awaited)


# projecting: How does the graph keep in step with its store?


FEW = 1
"""How many graphs are asked as they are: what stands in two of them, Oxigraph would find twice."""
WIDE = 16
"""How many wide graphs are kept."""
PORTION = 250
PORTION_MOST = 10_000
PORTION_SHARED = 1_000
TRIES = 5
MANY = 200
"""How many uses are told at once."""

_NOTHING = State("", 0)
_TAUGHT = ""
"""In the place of a namespace, which has a name: the ontology that stands beside the memories."""


class Known:
    """What this reader knows of a namespace in the graph."""

    def __init__(self, state: State, owners: Iterable[str], wide: Iterable[str]) -> None:
        self.state = state
        self.build = state.build or ids.new("")
        self.owners = {*owners}
        self.wide: OrderedDict[Scope, str] = OrderedDict((wide_scope(name), name) for name in wide)
        self.used: dict[str, Access] = {}
        """What was used in the very last moment that is known; it may be told again."""
        self.sound = not self.owners
        """Whether the graph holds no more than its state says: a change may have been cut off half-way."""

    def note(self, used: Mapping[str, Access], last: int) -> None:
        """Keep in mind what was used in the last moment."""
        self.used = {id: one for id, one in {**self.used, **used}.items() if one.last == last}


class Projection:
    """A graph that follows a store."""

    def __init__(self, source: Source, backend: Backend) -> None:
        self._source = source
        self.backend = backend
        self._lock = RLock()
        self._spaces: dict[str, Known] = {}
        self._taught = False
        self._generation = 0

    def dataset(self, scope: Scope) -> tuple[list[str], list[str]]:
        """The graphs that hold what the scope holds, as it is now: to be asked as one, and by their names.

        The ontology is beside them.
        """
        with self._lock:
            self._teach()
            for _ in range(TRIES):
                self.catch_up(scope.namespace)
                known = self._spaces[scope.namespace]
                own = [graph for graph in sorted(known.owners) if _holds(scope, graph)]
                whole = own if len(own) <= FEW else self._merged(known, scope, own)
                if whole is not None:
                    return [*whole, ONTOLOGY_GRAPH], own
        raise Busy(self.backend.name, "is changed by others all the time", "try again later")

    def generation(self, namespace: str) -> object:
        """What is another once a graph was dropped that somebody may just have asked."""
        if not self.backend.shared:
            return self._generation
        return self.backend.state(namespace)

    @contextmanager
    def still(self, namespace: str) -> Iterator[None]:
        """A block in which nothing changes."""
        with self._lock, self._alone(namespace):
            yield

    def catch_up(self, namespace: str) -> int:
        """Take in what changed since; how many memories that were."""
        with self._lock:
            return self._follow_shared(namespace) if self.backend.shared else self._follow(namespace)

    def rebuild(self, namespace: str) -> int:
        """Throw away what the graph holds of a namespace, and build it again; how many memories it has."""
        with self._lock:
            with self._alone(namespace):
                self._look(namespace)
                self._forget(namespace)
            return self.catch_up(namespace)

    def close(self) -> None:
        """Let go of the graph; what it holds stays, if it is on disk or at an endpoint."""
        with self._lock:
            self.backend.close()

    # Inside

    def _follow(self, namespace: str) -> int:
        """While one portion is taken in, the next one is read and told."""
        with Behind("omoide-graph") as behind:
            known, taken = self._look(namespace), 0
            state, sound = known.state, known.sound
            while True:
                feed = self._source.changed(namespace, state.seq, _portion(taken), state.used)
                if _is_another(state, feed):
                    behind.wait()
                    known = self._forget(namespace)
                    state, sound = known.state, known.sound
                    continue
                told = _told(known, feed)
                old = [one for one in feed.entries if not sound or one.id not in feed.fresh]
                used = _unseen(known, feed)
                behind.wait()
                if feed.seq == state.seq and not used:
                    self._reach(namespace, known, state)
                    break
                state = _reached(known, state, feed)
                known.sound = False
                if feed.more and not feed.gone and not used and state.seq - known.state.seq < PORTION_MOST:
                    behind.start(partial(self._put, _subjects(known, old), told))
                else:
                    self._take(namespace, known, feed, told, old, state, sound=sound)
                known.note(feed.access, state.used)
                taken += len(feed.entries)
                if not feed.more:
                    break
            known.sound = True
        return taken

    def _follow_shared(self, namespace: str) -> int:
        """Others may have been here: what is told is what is true once nobody else is at it."""
        known, taken = self._look(namespace), 0
        while True:
            feed = self._source.changed(namespace, known.state.seq, PORTION_SHARED, known.state.used)
            if _is_another(known.state, feed):
                with self._alone(namespace):
                    known = self._forget(namespace)
                continue
            if feed.seq == known.state.seq and not _unseen(known, feed):
                return taken
            with self._alone(namespace):
                known = self._look(namespace)
                feed = self._source.changed(namespace, known.state.seq, PORTION_SHARED, known.state.used)
                if _is_another(known.state, feed):
                    continue
                state = _reached(known, known.state, feed)
                self._take(namespace, known, feed, _told(known, feed), feed.entries, state, sound=False)
                known.note(feed.access, state.used)
                taken += len(feed.entries)
            if not feed.more:
                return taken

    def _alone(self, namespace: str) -> AbstractContextManager[None]:
        return self._source.alone(self.backend.name, namespace, shared=self.backend.shared)

    def _look(self, namespace: str) -> Known:
        """What is in the graph: looked up the first time, and again whenever somebody else changed it."""
        known = self._spaces.get(namespace)
        if known is not None and not self.backend.shared:
            return known
        state = self.backend.state(namespace) or _NOTHING
        if known is not None and known.state == state:
            return known
        with self._alone(namespace):  # others may be at it: what is found belongs together
            state = self.backend.state(namespace) or _NOTHING
            there = self.backend.graphs(namespace_prefix(namespace))
            wide = self.backend.graphs(wide_prefix(namespace))
            if state == _NOTHING and (there or wide):  # it was interrupted before it ever was complete
                self._drop([*there, *wide])
                there, wide = [], []
        known = self._spaces[namespace] = Known(state, there, wide)
        return known

    def _forget(self, namespace: str) -> Known:
        """Begin again, because the store is not the one it was."""
        known = self._spaces[namespace]
        self.backend.set_state(namespace, _NOTHING)
        known.state = _NOTHING
        self._drop([*known.owners, *known.wide.values()])
        known = self._spaces[namespace] = Known(_NOTHING, (), ())
        return known

    def _drop(self, graphs: Iterable[str]) -> None:
        self._generation += 1
        self.backend.drop(graphs)

    def _take(
        self,
        namespace: str,
        known: Known,
        feed: Feed,
        told: Mapping[str, str],
        old: Sequence[Entry],
        state: State,
        *,
        sound: bool,
    ) -> None:
        """Take in what changed; done again after a crash, it comes to the same.

        Told is what is to be said, by graph; old are the memories that may be spoken of already.
        """
        prefixes = [namespace_prefix(namespace), wide_prefix(namespace)]
        gone = self.backend.places([*map(memory_iri, feed.gone)], prefixes) if feed.gone else []
        if told or gone:
            self._put([*gone, *_subjects(known, old)], told)
        touched = {graph for graph, _ in gone}
        if feed.gone and not sound:  # they may have gone in a try that came to no end
            touched = {*known.owners}
        self._tidy(known, touched)
        self._use(_unseen(known, feed), prefixes)
        self._reach(namespace, known, state)

    def _reach(self, namespace: str, known: Known, state: State) -> None:
        if state != known.state:
            self.backend.set_state(namespace, state)
            known.state = state

    def _put(self, removed: Iterable[Subject], told: Mapping[str, str]) -> None:
        """Change the graph at once; most often one graph, which costs less."""
        if len(told) == 1:
            ((graph, triples),) = told.items()
            self.backend.replace(removed, triples, into=graph)
        else:
            self.backend.replace(removed, to_quads(told))

    def _tidy(self, known: Known, touched: set[str]) -> None:
        """Forget owners of whom nothing is left, in the wide graphs as well."""
        empty = [graph for graph in touched & known.owners if not self._speaks(graph)]
        if empty:
            wide = [scope for scope in known.wide if any(_holds(scope, graph) for graph in empty)]
            self._drop([*empty, *(known.wide.pop(scope) for scope in wide)])
            known.owners -= {*empty}

    def _speaks(self, graph: str) -> bool:
        """Whether a graph tells of any memory."""
        answer = self.backend.query("ASK { ?m jido:summary ?said }", default_graphs=[graph])
        return bool(answer.truth)

    def _use(self, used: Mapping[str, Access], prefixes: Sequence[str]) -> None:
        """Take in how often memories were used that did not change otherwise."""
        told = [(memory_iri(id), integer(one.count), moment(one.last or 0)) for id, one in used.items()]
        for at in range(0, len(told), MANY):
            self.backend.use(prefixes, told[at : at + MANY])

    def _merged(self, known: Known, scope: Scope, own: Sequence[str]) -> list[str] | None:
        """The wide graph of a scope; None where somebody else changed something just now."""
        if scope in known.wide:
            known.wide.move_to_end(scope)
            return [known.wide[scope]]
        name = wide_iri(scope)
        with self._alone(scope.namespace):
            if self.backend.shared and self.backend.state(scope.namespace) != known.state:
                return None
            self.backend.copy_graphs(own, name)
            known.wide[scope] = name
            if self.backend.shared:  # by another state the others see that there is one graph more
                known.build = ids.new("")
                state = msgspec.structs.replace(known.state, build=known.build)
                self.backend.set_state(scope.namespace, state)
                known.state = state
        if len(known.wide) > WIDE and not self.backend.shared:
            _, oldest = known.wide.popitem(last=False)
            self._drop([oldest])
        return [name]

    def _teach(self) -> None:
        """Have the ontology beside the memories."""
        if self._taught:
            return
        text = ontology.nquads()
        wanted = State(sha256(text.encode()).hexdigest(), 1)
        if self.backend.state(_TAUGHT) != wanted:
            self.backend.drop([ONTOLOGY_GRAPH])
            self.backend.replace([], text)
            self.backend.set_state(_TAUGHT, wanted)
        self._taught = True


def _is_another(state: State, feed: Feed) -> bool:
    """Whether a store is not the one that the graph followed: another, an older copy, a backup."""
    if state.seq == 0:
        return False
    return (feed.life, feed.since) != (state.life, state.mark) or feed.seq < state.seq


def _portion(taken: int) -> int:
    """How many changes are read at once: few at first, so that reading and taking in soon overlap."""
    return min(max(PORTION, taken // 2), PORTION_MOST)


def _reached(known: Known, state: State, feed: Feed) -> State:
    """How far the graph is once it has taken in what changed."""
    used = max((one.last or 0 for one in feed.access.values()), default=0)
    return State(feed.life, feed.seq, max(used, state.used), feed.mark, known.build)


def _told(known: Known, feed: Feed) -> dict[str, str]:
    """What is to be said of what changed, by graph, the wide ones included."""
    told = by_graph(feed.entries, feed.links, feed.access)
    known.owners.update(told)
    return {**told, **_widened(known, feed)}


def _unseen(known: Known, feed: Feed) -> dict[str, Access]:
    """The uses that the graph does not know of yet."""
    changed = {entry.id for entry in feed.entries}
    return {id: one for id, one in feed.access.items() if id not in changed and known.used.get(id) != one}


def _subjects(known: Known, entries: Iterable[Entry]) -> list[Subject]:
    """Where memories stand in the graph."""
    return [
        (graph, memory_iri(entry.id))
        for entry in entries
        for graph in (_graph(entry), *(name for scope, name in known.wide.items() if scope.holds(entry)))
    ]


def _widened(known: Known, feed: Feed) -> dict[str, str]:
    """What changed, once more for each wide graph that it belongs to."""
    inside = {
        name: [entry for entry in feed.entries if scope.holds(entry)] for scope, name in known.wide.items()
    }
    return {
        name: "".join(by_graph(entries, feed.links, feed.access).values())
        for name, entries in inside.items()
        if entries
    }


def _graph(entry: Entry) -> str:
    return graph_iri(entry.namespace, entry.agent_id, entry.session_id, entry.project_id)


def _holds(scope: Scope, graph: str) -> bool:
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
