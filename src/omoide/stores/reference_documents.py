"""What does it mean to keep a document, and to claim one?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from heapq import nsmallest
from operator import itemgetter
from threading import RLock
from typing import Any

from omoide import clock
from omoide.core.frozen import freeze
from omoide.core.scope import Scope
from omoide.core.value import copied, force
from omoide.errors import Closed, Conflict, IdTaken, NotFound
from omoide.stores.arguments import checked
from omoide.stores.records import Document, Lease

Key = tuple[str, str, str]


@checked
class MemoryDocuments:
    """Documents that last as long as the process."""

    def __init__(self) -> None:
        self._documents: dict[Key, Document] = {}  # without their logs
        self._logs: dict[Key, list[Any]] = {}  # apart, so that appending costs what is appended
        self._leases: dict[Key, Lease] = {}
        self._lock = RLock()
        self._closed = False

    @contextmanager
    def _alone(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise Closed("memory://", "is closed", "open another; it kept nothing")
            yield

    def close(self) -> None:
        """Let go of everything."""
        with self._lock:
            self._closed = True
            self._documents.clear()
            self._logs.clear()
            self._leases.clear()

    def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """A document with what was appended to it, or None."""
        with self._alone():
            key = _key(kind, id, scope)
            document = self._find(key, scope)
            return None if document is None else _changed(document, log=tuple(self._logs[key]))

    def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """The documents of a kind after the one called `after`, by their ids, without their logs."""
        with self._alone():
            found = [
                (id, document)
                for (_, of, id), document in self._documents.items()
                if of == kind and (after is None or id > after) and _holds(scope, document)
            ]
        return [document for _, document in nsmallest(limit, found, key=itemgetter(0))]

    def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace a document."""
        key = (document.namespace, document.kind, document.id)
        with self._alone():
            known = self._documents.get(key)
            owner = (document.agent_id, document.session_id)
            if known is not None and (known.agent_id, known.session_id) != owner:
                raise IdTaken(document.id)
            rev = 0 if known is None else known.rev
            Conflict.check(f"{document.kind} {document.id!r}", expected_rev, rev)
            saved = document.replace(rev=rev + 1, updated_at=clock.now())
            self._documents[key] = _changed(saved, log=())
            self._logs[key] = [*saved.log]
            return saved

    def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Add to a document; its new revision."""
        added = [freeze(item, f"entries[{at}]") for at, item in enumerate(entries)]
        with self._alone():
            key = _key(kind, id, scope)
            known = self._find(key, scope)
            if known is None:
                raise NotFound(kind, id, "save the document first")
            Conflict.check(f"{kind} {id!r}", expected_rev, known.rev)
            self._documents[key] = _changed(known, rev=known.rev + 1, updated_at=clock.now())
            self._logs[key] += added
            return known.rev + 1

    def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """The lease of a document, or None while somebody else holds it."""
        now = clock.now()
        with self._alone():
            key = self._claimable(kind, id, scope)
            held = self._leases.get(key)
            if held is not None and held.owner != owner and held.until > now:
                return None
            same = held is not None and held.owner == owner and held.until > now
            token = (0 if held is None else held.token) + (0 if same else 1)
            self._leases[key] = Lease(owner=owner, until=now + ttl_ms, token=token)
            return self._leases[key]

    def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Give a lease back; whether the owner held it."""
        with self._alone():
            key = self._claimable(kind, id, scope)
            held = self._leases.get(key)
            if held is None or held.owner != owner or held.until <= clock.now():
                return False
            self._leases[key] = held.replace(until=0)
            return True

    def _find(self, key: Key, scope: Scope) -> Document | None:
        document = self._documents.get(key)
        return document if document is not None and _holds(scope, document) else None

    def _claimable(self, kind: str, id: str, scope: Scope) -> Key:
        """A document may be claimed before it exists, but not where the scope does not hold it."""
        key = _key(kind, id, scope)
        known = self._documents.get(key)
        if known is not None and not _holds(scope, known):
            raise NotFound(kind, id, "check the id and the scope")
        return key

    def _erase_documents(self, scope: Scope) -> list[tuple[str, str]]:
        """The kinds and ids of what is removed: documents belong to an agent and a session, not a project."""
        if scope.project_id is not None:
            return []
        gone = [key for key, one in self._documents.items() if _holds(scope, one)]
        for key in gone:
            del self._documents[key], self._logs[key]
            self._leases.pop(key, None)
        if scope == Scope(namespace=scope.namespace):  # also of what was claimed and never saved
            self._leases = {key: one for key, one in self._leases.items() if key[0] != scope.namespace}
        return [(kind, id) for _, kind, id in gone]


def _key(kind: str, id: str, scope: Scope) -> Key:
    return scope.namespace, kind, id


def _changed(document: Document, **fields: Any) -> Document:
    """A document with fields that are known to be right, so that the others are not looked at again."""
    new = copied(document)
    for name, value in fields.items():
        force(new, name, value)
    return new


def _holds(scope: Scope, document: Document) -> bool:
    return (
        document.namespace == scope.namespace
        and scope.agent_id in (None, document.agent_id)
        and scope.session_id in (None, document.session_id)
    )
