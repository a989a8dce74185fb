"""How does a store keep agents at rest?

Two documents for each agent, the checkpoint and the journal of its thread. Both belong to the agent, so that
they go when it is erased.

"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from omoide.core import codec
from omoide.core.checkpoint import Checkpoint
from omoide.core.entry import DEFAULT_NAMESPACE, Scope
from omoide.core.thread import ThreadEntry
from omoide.errors import Conflict, NotFound
from omoide.ids import MAX_BYTES
from omoide.runtime.vaults.protocol import Journal, Kept, damaged, read_checkpoint, read_entries
from omoide.stores.protocols import Documents, ListsDocuments
from omoide.stores.records import Document
from omoide.verbs import offering

CHECKPOINT = "checkpoint"
THREAD = "thread"
PAGE = 100


class StoreVault:
    """Agents at rest in a store that keeps documents."""

    def __init__(self, store: Any, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._store: Any = offering(store, Documents, "keep agents at rest")
        self._namespace = Scope(namespace=namespace).namespace

    async def load(self, id: str) -> Kept:
        """What is kept of an agent."""
        document = await self._store.load(CHECKPOINT, id, self._scope(id))
        if document is None:
            return Kept()
        if document.body is None:
            return Kept(rev=document.rev)
        if not isinstance(document.body, str):
            raise damaged(id, "its checkpoint is something else")
        return Kept(read_checkpoint(id, document.body), document.rev)

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Put a checkpoint, or none, in place of the one of this revision."""
        body = None if checkpoint is None else codec.encode(checkpoint).decode()
        document = self._document(CHECKPOINT, id, id, body)
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def read_thread(self, id: str, thread_id: str) -> Journal:
        """The journal of an agent's thread."""
        document = await self._store.load(THREAD, _name(id, thread_id), self._scope(id))
        return Journal() if document is None else Journal(read_entries(id, document.log), document.rev)

    async def append_thread(
        self,
        id: str,
        thread_id: str,
        entries: Sequence[ThreadEntry],
        *,
        expected_rev: int,
        after: int | None = None,
    ) -> int:
        """Add to a journal of this revision, after so many of its entries or all."""
        lines = [codec.encode(entry).decode() for entry in entries]
        name, scope = _name(id, thread_id), self._scope(id)
        if after is None and expected_rev:
            try:
                return int(await self._store.append(THREAD, name, lines, scope, expected_rev=expected_rev))
            except NotFound as error:
                raise Conflict(f"journal of {thread_id!r}", expected_rev, 0) from error
        document = self._document(THREAD, name, id, {"thread": thread_id})
        if after:
            known = (await self.read_thread(id, thread_id)).entries[:after]
            lines = [*(codec.encode(entry).decode() for entry in known), *lines]
        saved = await self._store.save(document.replace(log=tuple(lines)), expected_rev=expected_rev)
        return int(saved.rev)

    async def delete(self, id: str) -> bool:
        """Empty what is kept of an agent; whether there was something. Its memories are not touched."""
        found = False
        for kind in (CHECKPOINT, THREAD):
            async for document in self._listed(kind, self._scope(id)):
                if _is_of(document, id):
                    await self._store.save(document.replace(body=None, log=()), expected_rev=document.rev)
                    found = True
        return found

    async def ids(self) -> list[str]:
        """The ids of the agents that can be taken up, in order."""
        everything = Scope(namespace=self._namespace)
        return [one.id async for one in self._listed(CHECKPOINT, everything) if one.body is not None]

    async def _listed(self, kind: str, scope: Scope) -> AsyncIterator[Document]:
        offering(self._store, ListsDocuments, "say whom it keeps")
        after: str | None = None
        while page := await self._store.documents(kind, scope, limit=PAGE, after=after):
            for document in page:
                yield document
            after = page[-1].id

    def _document(self, kind: str, name: str, id: str, body: Any) -> Document:
        return Document(kind=kind, id=name, namespace=self._namespace, agent_id=id, body=body)

    def _scope(self, id: str) -> Scope:
        return Scope(namespace=self._namespace, agent_id=id)


def _is_of(document: Document, id: str) -> bool:
    """Whether a document is something kept of an agent: transcripts of its sessions are threads, too."""
    if document.kind == CHECKPOINT:
        return document.id == id and document.body is not None
    thread_id = document.body.get("thread") if isinstance(document.body, Mapping) else None
    return isinstance(thread_id, str) and document.id == _name(id, thread_id)


def _name(id: str, thread_id: str) -> str:
    """The name of a journal: agents that were made from one another may share the id of their thread."""
    name = f"{quote(thread_id, safe='')}@{quote(id, safe='')}"
    return name if len(name) <= MAX_BYTES else sha256(name.encode()).hexdigest()
