"""What does it mean to keep a document, and to claim one?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Any

from omoide import clock
from omoide.core.frozen import freeze
from omoide.core.scope import Scope
from omoide.errors import Closed, Conflict, IdTaken, NotFound
from omoide.stores.arguments import checked
from omoide.stores.records import Document, Lease

Key = tuple[str, str, str]


@checked
class MemoryDocuments:
    """Documents that last as long as the process."""

    def __init__(self) -> None:
        self._documents: dict[Key, Document] = {}
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
            self._leases.clear()

    def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """A document with what was appended to it, or None."""
        with self._alone():
            document = self._documents.get(_key(kind, id, scope))
            return document if document is not None and _holds(scope, document) else None

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
            self._documents[key] = document.replace(rev=rev + 1, updated_at=clock.now())
            return self._documents[key]

    def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Add to a document; its new revision."""
        added = [freeze(item, f"entries[{at}]") for at, item in enumerate(entries)]
        with self._alone():
            known = self.load(kind, id, scope)
            if known is None:
                raise NotFound(kind, id, "save the document first")
            Conflict.check(f"{kind} {id!r}", expected_rev, known.rev)
            new = known.replace(rev=known.rev + 1, updated_at=clock.now(), log=(*known.log, *added))
            self._documents[scope.namespace, kind, id] = new
            return new.rev

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

    def _claimable(self, kind: str, id: str, scope: Scope) -> Key:
        """A document may be claimed before it exists, but not where the scope does not hold it."""
        key = _key(kind, id, scope)
        known = self._documents.get(key)
        if known is not None and not _holds(scope, known):
            raise NotFound(kind, id, "check the id and the scope")
        return key

    def _erase_documents(self, scope: Scope) -> int:
        """Documents belong to an agent and a session, never to a project."""
        if scope.project_id is not None:
            return 0
        gone = [key for key, one in self._documents.items() if _holds(scope, one)]
        for key in gone:
            del self._documents[key]
            self._leases.pop(key, None)
        return len(gone)


def _key(kind: str, id: str, scope: Scope) -> Key:
    return scope.namespace, kind, id


def _holds(scope: Scope, document: Document) -> bool:
    return (
        document.namespace == scope.namespace
        and scope.agent_id in (None, document.agent_id)
        and scope.session_id in (None, document.session_id)
    )
