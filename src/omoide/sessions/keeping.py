"""How does a session outlive its process?

Two documents of a store: the header, saved anew at each step, and the transcript, which is only ever added
to. One runner at a time holds a lease on the session; every write names the revision it builds on, so that a
runner which lost its lease cannot write any more.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from anyio import CancelScope, create_task_group, current_time, sleep

from omoide import ids
from omoide.core import codec
from omoide.core.frozen import thaw
from omoide.core.scope import DEFAULT_NAMESPACE, Scope
from omoide.core.thread import Thread, ThreadEntry
from omoide.errors import Conflict, IdTaken, NotFound, RestoreFailed, SessionBusy, StoreFailed
from omoide.sessions.header import Header, read, written
from omoide.stores.protocols import Claims, Documents
from omoide.stores.records import Document
from omoide.turns.together import raise_first
from omoide.verbs import offering

SESSION = "session"
THREAD = "thread"


class Keeper:
    """Reads and writes one session."""

    def __init__(self, store: Any, session_id: str, namespace: str = DEFAULT_NAMESPACE) -> None:
        offering(store, Claims, "lend a session to one runner at a time")
        self._store: Any = offering(store, Documents, "keep a session")
        self._scope = Scope(namespace=namespace)
        self.session_id = session_id
        self._owner = ids.new("run_")
        self.lost = False
        self._rev = 0
        self._thread_rev = 0

    async def load(self) -> tuple[Header, Thread] | None:
        """The session as it is kept, or None."""
        document = await self._store.load(SESSION, self.session_id, self._scope)
        if document is None:
            return None
        header = read(document.body, self.session_id)
        journal = await self._store.load(THREAD, header.thread_id, self._scope)
        if journal is None:
            raise RestoreFailed(f"session {self.session_id!r}", "its transcript is missing")
        self._rev, self._thread_rev = document.rev, journal.rev
        return header, _thread(header, journal)

    async def create(self, header: Header, entries: Sequence[ThreadEntry] = ()) -> None:
        """Keep a new session; its transcript first, so that no header ever points to nothing."""
        if await self._store.load(SESSION, self.session_id, self._scope) is not None:
            raise IdTaken(self.session_id)
        journal = self._document(THREAD, header.thread_id, header, None).replace(
            log=tuple(codec.to_builtins(entry) for entry in entries)
        )
        self._thread_rev = (await self._store.save(journal, expected_rev=0)).rev
        try:
            await self._save(header, 0)
        except Conflict as error:
            raise IdTaken(self.session_id) from error

    async def changed(self) -> bool:
        """Whether somebody else wrote the session since it was read."""
        document = await self._store.load(SESSION, self.session_id, self._scope)
        if document is None:
            raise NotFound("session", self.session_id, "it was erased")
        return bool(document.rev != self._rev)

    async def save(self, header: Header) -> None:
        """Keep the header, if nobody else did since."""
        with self._fenced():
            await self._save(header, self._rev)

    async def record(self, header: Header, entries: Sequence[ThreadEntry]) -> None:
        """Add to the transcript, if nobody else did since."""
        plain = [codec.to_builtins(entry) for entry in entries]
        with self._fenced():
            self._thread_rev = await self._store.append(
                THREAD, header.thread_id, plain, self._scope, expected_rev=self._thread_rev
            )

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        """A block in which a conflict means that somebody else has the session."""
        try:
            yield
        except Conflict:
            self.lost = True
            raise

    @asynccontextmanager
    async def claimed(self, ttl_ms: int) -> AsyncIterator[None]:
        """A block in which this runner, and no other, may run the session."""
        try:
            if not await self._claim(ttl_ms):
                raise SessionBusy(self.session_id)
            self.lost = False
            async with create_task_group() as group:
                group.start_soon(self._renew, ttl_ms)
                yield
                group.cancel_scope.cancel()
        except BaseExceptionGroup as several:
            raise_first(several)
        finally:
            with CancelScope(shield=True), suppress(StoreFailed):  # it ends by itself, a little later
                await self._store.release(SESSION, self.session_id, self._scope, owner=self._owner)

    async def _renew(self, ttl_ms: int) -> None:
        """Hold on to the lease; a store that is out of reach for a moment does not end it."""
        held = current_time()
        while True:
            await sleep(ttl_ms / 3000)
            try:
                self.lost = not await self._claim(ttl_ms)
            except StoreFailed:
                self.lost = current_time() - held >= ttl_ms / 1000
            else:
                held = current_time()
            if self.lost:
                raise SessionBusy(self.session_id)

    async def _claim(self, ttl_ms: int) -> bool:
        lease = await self._store.claim(
            SESSION, self.session_id, self._scope, owner=self._owner, ttl_ms=ttl_ms
        )
        return lease is not None

    async def _save(self, header: Header, rev: int) -> None:
        document = self._document(SESSION, self.session_id, header, written(header))
        self._rev = (await self._store.save(document, expected_rev=rev)).rev

    def _document(self, kind: str, id: str, header: Header, body: Any) -> Document:
        return Document(
            kind=kind,
            id=id,
            namespace=header.namespace,
            agent_id=header.agent_id,
            session_id=header.session_id,
            body=body,
        )


def _thread(header: Header, journal: Document) -> Thread:
    try:
        entries = [codec.from_builtins(thaw(item), ThreadEntry) for item in journal.log]
        return Thread(id=header.thread_id, created_at=header.created_at).append(entries)
    except ValueError as error:
        raise RestoreFailed(f"session {header.session_id!r}", f"its transcript: {error}") from error
