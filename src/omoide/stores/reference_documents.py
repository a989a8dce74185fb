"""What does it mean to keep a document, and to claim one?"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any

from omoide import clock
from omoide.core.frozen import freeze
from omoide.core.scope import Scope
from omoide.core.value import copied, force
from omoide.errors import Conflict, IdTaken, NotFound
from omoide.stores.arguments import checked
from omoide.stores.records import Document, Lease
from omoide.stores.reference_held import MemoryHeld
from omoide.stores.reference_state import DocumentKey, State


@checked
class MemoryDocuments(MemoryHeld):
    """Documents that last as long as the process."""

    def load(self, kind: str, id: str, scope: Scope) -> Document | None:
        """A document with what was appended to it, or None."""
        key = _key(kind, id, scope)

        def work(state: State) -> Document | None:
            document = _find(state, key, scope)
            return None if document is None else _changed(document, log=state.log_of(key))

        return self._look(work)

    def documents(
        self, kind: str, scope: Scope, *, limit: int = 100, after: str | None = None
    ) -> list[Document]:
        """The documents of a kind after the one called `after`, by their ids, without their logs."""

        def work(state: State) -> list[Document]:
            found = state.listed(kind, scope.namespace, after)
            return [*islice((one for one in found if _holds(scope, one)), limit)]

        return self._look(work)

    def save(self, document: Document, *, expected_rev: int | None = None) -> Document:
        """Replace a document."""
        key = (document.namespace, document.kind, document.id)

        def work(state: State) -> Document:
            known = state.document(key)
            owner = (document.agent_id, document.session_id)
            if known is not None and (known.agent_id, known.session_id) != owner:
                raise IdTaken(document.id)
            rev = 0 if known is None else known.rev
            Conflict.check(f"{document.kind} {document.id!r}", expected_rev, rev)
            saved = document.replace(rev=rev + 1, updated_at=clock.now())
            state.put_document(key, _changed(saved, log=()), saved.log)
            return saved

        return self._do(work)

    def append(
        self, kind: str, id: str, entries: Iterable[Any], scope: Scope, *, expected_rev: int | None = None
    ) -> int:
        """Add to a document; its new revision."""
        added = [freeze(item, f"entries[{at}]") for at, item in enumerate(entries)]
        key = _key(kind, id, scope)

        def work(state: State) -> int:
            known = _find(state, key, scope)
            if known is None:
                raise NotFound(kind, id, "save the document first")
            Conflict.check(f"{kind} {id!r}", expected_rev, known.rev)
            new = _changed(known, rev=known.rev + 1, updated_at=clock.now())
            state.append_document(key, new, added)
            return known.rev + 1

        return self._do(work)

    def claim(self, kind: str, id: str, scope: Scope, *, owner: str, ttl_ms: int) -> Lease | None:
        """The lease of a document, or None while somebody else holds it."""
        now = clock.now()

        def work(state: State) -> Lease | None:
            key = _claimable(state, kind, id, scope)
            held = state.lease(key)
            if held is not None and held.owner != owner and held.until > now:
                return None
            same = held is not None and held.owner == owner and held.until > now
            token = (0 if held is None else held.token) + (0 if same else 1)
            lease = Lease(owner=owner, until=now + ttl_ms, token=token)
            state.put_lease(key, lease)
            return lease

        return self._do(work)

    def release(self, kind: str, id: str, scope: Scope, *, owner: str) -> bool:
        """Give a lease back; whether the owner held it."""

        def work(state: State) -> bool:
            key = _claimable(state, kind, id, scope)
            held = state.lease(key)
            if held is None or held.owner != owner or held.until <= clock.now():
                return False
            state.put_lease(key, held.replace(until=0))
            return True

        return self._do(work)

    def _erase_documents(self, state: State, scope: Scope) -> list[tuple[str, str]]:
        """The kinds and ids of what is removed: documents belong to an agent and a session, not a project."""
        if scope.project_id is not None:
            return []
        gone = [key for key, owner in state.owners(scope.namespace).items() if _holds(scope, owner)]
        for key in gone:
            state.drop_document(key)
        if scope == Scope(namespace=scope.namespace):  # also of what was claimed and never saved
            state.drop_leases(scope.namespace)
        return [(kind, id) for _, kind, id in gone]


def _key(kind: str, id: str, scope: Scope) -> DocumentKey:
    return scope.namespace, kind, id


def _find(state: State, key: DocumentKey, scope: Scope) -> Document | None:
    document = state.document(key)
    return document if document is not None and _holds(scope, document) else None


def _claimable(state: State, kind: str, id: str, scope: Scope) -> DocumentKey:
    """A document may be claimed before it exists, but not where the scope does not hold it."""
    key = _key(kind, id, scope)
    known = state.document(key)
    if known is not None and not _holds(scope, known):
        raise NotFound(kind, id, "check the id and the scope")
    return key


def _changed(document: Document, **fields: Any) -> Document:
    """A document with fields that are known to be right, so that the others are not looked at again."""
    new = copied(document)
    for name, value in fields.items():
        force(new, name, value)
    return new


def _holds(scope: Scope, document: Document | Scope) -> bool:
    return (
        document.namespace == scope.namespace
        and scope.agent_id in (None, document.agent_id)
        and scope.session_id in (None, document.session_id)
    )
