"""What changed in a store since the graph last looked?

The graph is brought up to date in a worker thread. A store inside the process is called directly from there;
any other is asked through the event loop that waits for the thread.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from hashlib import sha256
from time import monotonic, sleep
from typing import Any, Protocol, TypeVar

from anyio import from_thread

from omoide import ids
from omoide.core.entry import Entry
from omoide.core.scope import Scope
from omoide.errors import Busy, NotFound
from omoide.stores.local import LocalStore
from omoide.stores.protocols import Claims, Gets, Links, Projects, Store, Takes
from omoide.stores.records import Access, Feed, Link
from omoide.verbs import offering

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
