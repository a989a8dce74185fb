"""How does a server answer what a store is asked?

By the rules of the reference: each operation fetches the part of the state that it needs, does with it what
the store in memory would do, and hands in what changed.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, Lock
from typing import TYPE_CHECKING, ClassVar, TypeVar
from weakref import WeakSet

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.frozen import EMPTY_MAP
from omoide.core.recalling import Filter, RecallRequest, RecallResult
from omoide.core.scope import Scope
from omoide.core.writing import WriteRequest, WriteResult
from omoide.embedders import Embedder
from omoide.errors import EmbedderChanged
from omoide.retrieval import features
from omoide.stores import recalling
from omoide.stores.arguments import checked
from omoide.stores.findings import Finding
from omoide.stores.recalling import Candidates, Read
from omoide.stores.records import Access, Change, EraseReceipt, Feed, Link, Page, Query, Stats
from omoide.stores.redis import checking, feeding, pages, reindexing, upkeep
from omoide.stores.redis.connections import Connections
from omoide.stores.redis.keys import of_store
from omoide.stores.redis.working import Work
from omoide.stores.reference import MemoryStore
from omoide.stores.reference_state import State
from omoide.stores.settings import Settings

if TYPE_CHECKING:
    from omoide.stores.redis.shelves import RedisSource

T = TypeVar("T")

SCHEMA = "1"

_log = logging.getLogger("omoide")
_OPEN: WeakSet[RedisStore] = WeakSet()


@checked
class RedisStore(MemoryStore):
    """Memories on a Redis server, for several threads, processes and machines at once."""

    UNREACHABLE: ClassVar[tuple[str, ...]] = (
        "replicas that have not caught up",
        "backups and snapshots made before",
        "exports and copies",
        "graphs that have not caught up",
        "what other programs read",
    )

    def __init__(
        self, server: Connections, prefix: str, embedder: Embedder | None, settings: Settings
    ) -> None:
        super().__init__(embedder, settings)
        self._server = server
        self._prefix = prefix
        self._work = Work(server, prefix, read_only=settings.read_only)
        self._store_key = of_store(prefix, "store")
        self._open()
        self._begin()
        _OPEN.add(self)

    def _begin(self) -> None:
        """Hold nothing in memory yet; also what a forked process does, whose locks may be held for ever."""
        self._server.begin()
        self._source: RedisSource | None = None
        self._source_lock = Lock()
        self._swap = Condition()
        self._embedding = 0

    def _open(self) -> None:
        upkeep.check_opening(self._server, self.settings)
        upkeep.enter(self._server, self._store_key, SCHEMA, read_only=self.settings.read_only)
        if self.embedder is not None:
            self._check_embedder(self.embedder)
        self._work.model = model_of(self.embedder)
        version = self._server.ask("HGET", self._store_key, "features")
        if version not in (None, str(features.VERSION).encode()):
            _log.warning(
                "%s was indexed by another version of Omoide: recall finds less until it is reindexed "
                "(omoide reindex)",
                self._server.name,
            )

    def _check_embedder(self, embedder: Embedder) -> None:
        """Raise when the store holds vectors of another embedder; say whose it will hold."""
        for namespace in self.namespaces_known():
            model, vectors = self._server.ask("HMGET", self._work.keys(namespace)("meta"), "model", "vectors")
            if int(vectors or 0) > 0 and model.decode() != model_of(embedder):
                name, dim = read_model(model)
                raise EmbedderChanged(self._server.name, name, dim, embedder.name, embedder.dim)

    def namespaces_known(self) -> list[str]:
        """The namespaces in which anything was ever written."""
        found = self._server.ask("SMEMBERS", of_store(self._prefix, "namespaces"))
        return sorted(name.decode() for name in found)

    # How the reference works on the server

    def _look(self, work: Callable[[State], T]) -> T:
        return self._work.look(work)

    def _do(self, work: Callable[[State], T], *, undo: bool = False) -> T:
        del undo  # nothing is changed before all of it is
        return self._work.do(work)

    @contextmanager
    def _with_embedder(self) -> Iterator[None]:
        """A block in which the embedder stays the one whose name vectors are kept under."""
        with self._swap:
            self._embedding += 1
        try:
            yield
        finally:
            with self._swap:
                self._embedding -= 1
                self._swap.notify_all()

    def write_many(self, requests: Sequence[WriteRequest]) -> list[WriteResult]:
        """Keep all of these entries, or none."""
        with self._with_embedder():
            return super().write_many(requests)

    def write_with_vector(self, request: WriteRequest, vector: Sequence[float]) -> WriteResult:
        """Keep an entry that comes with its own vector."""
        with self._with_embedder():
            return super().write_with_vector(request, vector)

    def take(
        self, entries: Sequence[Entry], links: Sequence[Link] = (), access: Mapping[str, Access] = EMPTY_MAP
    ) -> int:
        """Keep entries exactly as they were elsewhere; how many were new."""
        with self._with_embedder():
            return super().take(entries, links, access)

    def record_access(self, ids: Iterable[str], scope: Scope) -> None:
        """Note that entries were used."""
        if not self.settings.read_only:
            super().record_access(ids, scope)

    # Reading

    def recall(self, request: RecallRequest) -> RecallResult:
        """The entries that answer best."""
        if not recalling.is_able():
            return recalling.by_words(request, self, self.settings.count_tokens)
        return recalling.recall(request, self._shelved(), self.embedder, self.settings.count_tokens)

    def _shelved(self) -> RedisSource:
        from omoide.stores.redis.shelves import RedisSource  # needs NumPy

        with self._source_lock:
            if self._source is None:
                self._source = RedisSource(self._work, self.embedder, self.all_candidates)
            return self._source

    @contextmanager
    def all_candidates(
        self, scope: Scope, filter: Filter, at: int, limit: int, read: Read
    ) -> Iterator[Candidates | None]:
        """All entries of a scope that count, fetched for this question alone."""
        with super().candidates(scope, filter, at, limit, read) as found:
            yield found

    def query(self, query: Query) -> Page:
        """The entries that fit, newest first."""
        if query.as_of is not None:
            return super().query(query)
        return self._work.look(lambda state: pages.page(state, query))

    def stats(self, scope: Scope) -> Stats:
        """Figures about a scope."""
        found = super().stats(scope)
        return found.replace(**upkeep.sizes(self._server, self._work.keys(scope.namespace)))

    def namespaces(self) -> list[str]:
        """The namespaces that hold an entry or a document, in order."""
        return [name for name in self.namespaces_known() if self._holds_any(name)]

    def _holds_any(self, namespace: str) -> bool:
        keys = self._work.keys(namespace)
        return any(self._server.read([["HLEN", keys("rows")], ["HLEN", keys("docs")]]))

    def kinds(self, namespace: str) -> list[str]:
        """The kinds of the documents in a namespace, in order."""
        keys = self._work.keys(namespace)
        names = sorted(kind.decode() for kind in self._server.read([["SMEMBERS", keys("kinds")]])[0])
        sizes = self._server.read([["ZCARD", keys("kind", name)] for name in names]) if names else []
        return [name for name, size in zip(names, sizes, strict=True) if size]

    def changes(self, namespace: str, *, after: int = 0, limit: int = 1000) -> list[Change]:
        """The changes after a sequence number, in the order of their commits."""
        return feeding.changes(self._server, self._work.keys(namespace), namespace, after, limit)

    def changed(
        self, namespace: str, *, after: int = 0, limit: int = 10_000, used_since: int | None = None
    ) -> Feed:
        """What changed after a sequence number, and what it became."""
        # Asked each time: a server that was emptied lives another life.
        life = upkeep.enter(self._server, self._store_key, SCHEMA, read_only=True)
        return feeding.changed(self._work.unit(), namespace, after, limit, used_since, life)

    # Erasing and upkeep

    def erase(self, scope: Scope, *, id: str | None = None, reason: str | None = None) -> EraseReceipt:
        """Remove an entry, or everything in a scope, for good."""
        receipt = super().erase(scope, id=id, reason=reason)
        return upkeep.told(self._server, receipt)

    def scrub(self) -> EraseReceipt:
        """Have the server write its files anew, without what was erased."""
        receipt = EraseReceipt(at=clock.now(), unreachable=self.UNREACHABLE)
        return upkeep.scrubbed(self._server, receipt)

    def findings(self) -> list[Finding]:
        """What there is to know about the server's upkeep."""
        return upkeep.findings(self._server, SCHEMA)

    def check(self) -> list[str]:
        """What is wrong with the store; empty when it is sound."""
        return [
            problem
            for name in self.namespaces_known()
            for problem in checking.check(self._server, self._work.keys(name), name)
        ]

    def reindex(
        self, embedder: Embedder | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Give all entries new terms and vectors, by this embedder if one is given, while in use.

        It serves from the beginning: until an entry has its new vector, it is found by its words.
        """
        chosen = embedder or self.embedder
        with self._swap:
            self._swap.wait_for(lambda: not self._embedding)
            with self._source_lock:
                self.embedder, self._source = chosen, None
                self._work.model = model_of(chosen)
        reindexing.reindex(self._work, self.namespaces_known(), chosen, progress)
        self._server.ask("HSET", self._store_key, "features", str(features.VERSION))

    def close(self) -> None:
        """Let go of all connections."""
        if not self._server.closed:
            self._server.close()


def model_of(embedder: Embedder | None) -> str:
    """What tells whose vectors can be compared."""
    return "" if embedder is None else f"{embedder.name}\x1f{embedder.dim}\x1f"


def read_model(model: bytes) -> tuple[str, int]:
    """The name of an embedder, and how many numbers its vectors have."""
    name, dim, _ = model.decode().split("\x1f")
    return name, int(dim)


def kept_in(server: Connections, prefix: str) -> str | None:
    """The name of the embedder whose vectors a store holds, if it holds any."""
    work = Work(server, prefix)
    for namespace in sorted(server.ask("SMEMBERS", of_store(prefix, "namespaces"))):
        model, vectors = server.ask("HMGET", work.keys(namespace.decode())("meta"), "model", "vectors")
        if int(vectors or 0) > 0:
            return read_model(model)[0]
    return None


def _after_fork() -> None:
    for store in _OPEN:
        store._begin()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
