"""Store agents in the documents of a memory store.

Each agent has two documents, its checkpoint and the journal of its thread. Both belong to the agent, so that
they are erased with its memories.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from hashlib import sha256
from typing import Any
from urllib.parse import quote

from omoide.core import codec
from omoide.core.checkpoint import Checkpoint
from omoide.core.entry import DEFAULT_NAMESPACE, Scope
from omoide.errors import Conflict, NotFound
from omoide.ids import MAX_BYTES
from omoide.runtime.checkpoints.protocol import (
    StoredCheckpoint,
    ThreadEntries,
    ThreadJournal,
    damaged_error,
    parse_checkpoint,
    parse_entries,
)
from omoide.stores.protocols import SupportsDocuments
from omoide.stores.records import Document
from omoide.verbs import require

CHECKPOINT_KIND = "checkpoint"
THREAD_KIND = "thread"
PAGE_SIZE = 100


class DocumentCheckpointStore:
    """Checkpoints in a store that has documents."""

    def __init__(self, store: Any, *, namespace: str = DEFAULT_NAMESPACE) -> None:
        self._store: Any = require(store, SupportsDocuments, "store checkpoints")
        self._namespace = Scope(namespace=namespace).namespace

    async def load(self, id: str) -> StoredCheckpoint:
        """Return the checkpoint of an agent."""
        document = await self._store.load(CHECKPOINT_KIND, id, self._scope(id))
        if document is None:
            return StoredCheckpoint()
        if document.body is None:
            return StoredCheckpoint(rev=document.rev)
        if not isinstance(document.body, str):
            raise damaged_error(id, "its checkpoint is something else")
        return StoredCheckpoint(parse_checkpoint(id, document.body), document.rev)

    async def save(self, id: str, checkpoint: Checkpoint | None, *, expected_rev: int) -> int:
        """Replace the checkpoint of a revision, also by None, and return its own revision."""
        body = None if checkpoint is None else codec.encode(checkpoint).decode()
        document = self._document(CHECKPOINT_KIND, id, id, body)
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """Return the journal of an agent's thread."""
        document = await self._store.load(THREAD_KIND, _journal_id(id, thread_id), self._scope(id))
        if document is None:
            return ThreadJournal()
        return ThreadJournal(parse_entries(id, document.log), document.rev)

    async def append_thread(
        self, id: str, thread_id: str, entries: ThreadEntries, *, expected_rev: int, after: int | None = None
    ) -> int:
        """Append to a journal of a revision, after the first `after` entries or all."""
        lines = [codec.encode(entry).decode() for entry in entries]
        name, scope = _journal_id(id, thread_id), self._scope(id)
        if after is None and expected_rev:
            try:
                return int(
                    await self._store.append(THREAD_KIND, name, lines, scope, expected_rev=expected_rev)
                )
            except NotFound as error:
                raise Conflict(f"journal of {thread_id!r}", expected_rev, 0) from error
        # A first journal, or one whose tail is replaced, is written as a whole.
        document = self._document(THREAD_KIND, name, id, {"thread": thread_id})
        if after:
            kept_entries = (await self.read_thread(id, thread_id)).entries[:after]
            lines = [*(codec.encode(entry).decode() for entry in kept_entries), *lines]
        saved = await self._store.save(document.replace(log=tuple(lines)), expected_rev=expected_rev)
        return int(saved.rev)

    async def delete(self, id: str) -> bool:
        """Empty the documents of an agent, and return whether there was one; its memories are not touched."""
        deleted = False
        for kind in (CHECKPOINT_KIND, THREAD_KIND):
            async for document in iter_documents(self._store, kind, self._scope(id)):
                if _belongs_to(document, id):
                    # Emptied under a new revision, so that a save that builds on the old one is a conflict.
                    await self._store.save(document.replace(body=None, log=()), expected_rev=document.rev)
                    deleted = True
        return deleted

    async def ids(self) -> list[str]:
        """Return the ids of the agents that can be loaded, in order."""
        everything = Scope(namespace=self._namespace)
        return [
            document.id
            async for document in iter_documents(self._store, CHECKPOINT_KIND, everything)
            if document.body is not None
        ]

    def _document(self, kind: str, name: str, id: str, body: Any) -> Document:
        return Document(kind=kind, id=name, namespace=self._namespace, agent_id=id, body=body)

    def _scope(self, id: str) -> Scope:
        return Scope(namespace=self._namespace, agent_id=id)


async def iter_documents(store: Any, kind: str, scope: Scope) -> AsyncIterator[Document]:
    """Yield the documents of a kind in a scope, page by page."""
    after: str | None = None
    while page := await store.documents(kind, scope, limit=PAGE_SIZE, after=after):
        for document in page:
            yield document
        after = page[-1].id


def _belongs_to(document: Document, id: str) -> bool:
    """Return whether a document is part of an agent: transcripts of its sessions are threads, too."""
    if document.kind == CHECKPOINT_KIND:
        return document.id == id and document.body is not None
    thread_id = document.body.get("thread") if isinstance(document.body, Mapping) else None
    return isinstance(thread_id, str) and document.id == _journal_id(id, thread_id)


def _journal_id(id: str, thread_id: str) -> str:
    """Return the id of a journal: copies of an agent may share the id of their thread."""
    name = f"{quote(thread_id, safe='')}@{quote(id, safe='')}"
    return name if len(name) <= MAX_BYTES else sha256(name.encode()).hexdigest()
