"""Store agents in the documents of a memory store.

Each agent has two documents, its checkpoint and the journal of its thread. Both belong to the agent, and to
the user if there is one, so that they are erased with their memories.
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
    """Checkpoints in a store that has documents.

    Args:
        store: The store.
        namespace: The namespace of the documents.
        user_id: The user whose agents these are; another user may have agents of the same ids. None for
            agents that belong to no user.
    """

    def __init__(self, store: Any, *, namespace: str = DEFAULT_NAMESPACE, user_id: str | None = None) -> None:
        self._store: Any = require(store, SupportsDocuments, "store checkpoints")
        self._owner = Scope(namespace=namespace, user_id=user_id)
        self.namespace = self._owner.namespace

    async def load(self, id: str) -> StoredCheckpoint:
        """Return the checkpoint of an agent."""
        document = await self._store.load(CHECKPOINT_KIND, self._name(id), self._scope(id))
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
        document = self._document(CHECKPOINT_KIND, self._name(id), id, body)
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def read_thread(self, id: str, thread_id: str) -> ThreadJournal:
        """Return the journal of an agent's thread."""
        document = await self._store.load(THREAD_KIND, self._journal_name(id, thread_id), self._scope(id))
        if document is None:
            return ThreadJournal()
        return ThreadJournal(parse_entries(id, document.log), document.rev)

    async def append_thread(
        self, id: str, thread_id: str, entries: ThreadEntries, *, expected_rev: int, after: int | None = None
    ) -> int:
        """Append to a journal of a revision, after the first `after` entries or all."""
        lines = [codec.encode(entry).decode() for entry in entries]
        name, scope = self._journal_name(id, thread_id), self._scope(id)
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
                if self._belongs_to(document, id):
                    # Emptied under a new revision, so that a save that builds on the old one is a conflict.
                    await self._store.save(document.replace(body=None, log=()), expected_rev=document.rev)
                    deleted = True
        return deleted

    async def ids(self) -> list[str]:
        """Return the ids of the agents that can be loaded, in order."""
        return [
            document.agent_id or document.id
            async for document in iter_documents(self._store, CHECKPOINT_KIND, self._owner)
            # A scope without a user is open to all users, and agents without one are not.
            if document.body is not None and document.user_id == self._owner.user_id
        ]

    def _document(self, kind: str, name: str, id: str, body: Any) -> Document:
        owner = self._owner
        return Document(
            kind=kind, id=name, namespace=owner.namespace, user_id=owner.user_id, agent_id=id, body=body
        )

    def _scope(self, id: str) -> Scope:
        return self._owner.replace(agent_id=id)

    def _name(self, id: str) -> str:
        """Return the id of the checkpoint of an agent: ids of documents are shared by all users."""
        return id if self._owner.user_id is None else _join_names(id, self._owner.user_id)

    def _journal_name(self, id: str, thread_id: str) -> str:
        """Return the id of a journal: copies of an agent may share the id of their thread."""
        user = self._owner.user_id
        return _join_names(thread_id, id) if user is None else _join_names(thread_id, id, user)

    def _belongs_to(self, document: Document, id: str) -> bool:
        """Return whether a document is part of an agent: transcripts of its sessions are threads, too."""
        if document.kind == CHECKPOINT_KIND:
            return document.id == self._name(id) and document.body is not None
        thread_id = document.body.get("thread") if isinstance(document.body, Mapping) else None
        return isinstance(thread_id, str) and document.id == self._journal_name(id, thread_id)


async def iter_documents(store: Any, kind: str, scope: Scope) -> AsyncIterator[Document]:
    """Yield the documents of a kind in a scope, page by page."""
    after: str | None = None
    while page := await store.documents(kind, scope, limit=PAGE_SIZE, after=after):
        for document in page:
            yield document
        after = page[-1].id


def _join_names(*names: str) -> str:
    """Return names as one id, or their digest if that is too long."""
    name = "@".join(quote(part, safe="") for part in names)
    return name if len(name) <= MAX_BYTES else sha256(name.encode()).hexdigest()
