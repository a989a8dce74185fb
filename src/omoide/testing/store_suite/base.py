"""What does the store under test offer, and how is it spoken to?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from inspect import isawaitable
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import pytest

from omoide.core.entry import Entry, Scope
from omoide.core.requests import RecallRequest, WriteRequest, WriteResult
from omoide.stores import protocols
from omoide.stores.protocols import Store, SupportsClose
from omoide.stores.records import Query

ADA = Scope(agent_id="ada")
BOB = Scope(agent_id="bob")
ELSEWHERE = Scope(agent_id="ada", namespace="elsewhere")
DAY_MS = 24 * 3_600_000

_REQUEST_FIELDS = ("expected_rev", "idempotency_key", "dedupe", "supersedes")


class FullStore(
    protocols.Store,
    protocols.SupportsGet,
    protocols.SupportsQuery,
    protocols.SupportsLinks,
    protocols.SupportsSupersede,
    protocols.SupportsAccess,
    protocols.SupportsErase,
    protocols.SupportsHistory,
    protocols.SupportsChanges,
    protocols.SupportsFeed,
    protocols.SupportsImport,
    protocols.SupportsBatchWrite,
    protocols.SupportsVectors,
    protocols.SupportsStats,
    protocols.SupportsDocuments,
    protocols.SupportsDocumentList,
    protocols.SupportsNamespaces,
    protocols.SupportsLeases,
    Protocol,
):
    """A store with everything; a test only uses what it asked for."""


StoreOrOpener = Store | AbstractAsyncContextManager[Store] | Awaitable[Store]


class StoreFixtures:
    """Opens the store for each test, and knows which tests are meant for it."""

    pytestmark = pytest.mark.anyio

    complete: ClassVar[bool] = False
    """Whether the store claims to offer everything: what is missing is then a failure and no skip."""

    def open_store(self, folder: Path) -> StoreOrOpener:
        """A fresh store, or what becomes one: a context manager or an awaitable."""
        raise NotImplementedError("say how a fresh store is opened: def open_store(self, folder)")

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        """A store that nothing was written to."""
        async with AsyncExitStack() as stack:
            opened = self.open_store(tmp_path)
            if isinstance(opened, AbstractAsyncContextManager):
                opened = await stack.enter_async_context(opened)
            elif isawaitable(opened):
                opened = await opened
            if isinstance(opened, SupportsClose):
                stack.push_async_callback(opened.close)
            yield opened

    def require(self, store: Store, *capabilities: type) -> FullStore:
        """The store, if it offers all these protocols; otherwise the test is not for it."""
        for part in capabilities:
            if not isinstance(store, part):
                said = f"store does not offer {part.__name__}"
                pytest.fail(said) if self.complete else pytest.skip(said)
        return cast(FullStore, store)


def make_entry(content: str = "The kettle is on.", /, **fields: Any) -> Entry:
    """An entry of Ada's, unless the fields say otherwise."""
    return Entry.new({"agent_id": "ada", "content": content, **fields})


def write_request(content: str = "The kettle is on.", /, **fields: Any) -> WriteRequest:
    """A request to keep an entry; fields of the request and of the entry may be mixed."""
    own = {name: fields.pop(name) for name in _REQUEST_FIELDS if name in fields}
    return WriteRequest.new(entry=make_entry(content, **fields), **own)


async def write_entry(store: Store, content: str = "The kettle is on.", /, **fields: Any) -> WriteResult:
    """Write an entry, and the receipt for it."""
    return await store.write(write_request(content, **fields))


async def recall_ids(store: Store, query: str = "anything", /, **fields: Any) -> list[str]:
    """The ids of what Ada recalls, best first."""
    result = await store.recall(RecallRequest.new({"agent_id": "ada", "query": query, **fields}))
    return [entry.id for entry in result.entries]


async def list_ids(store: Store, scope: Scope = ADA) -> list[str]:
    """The ids in a scope, oldest first."""
    return [entry.id for entry in await store.list_entries(scope)]


async def query_ids(store: FullStore, scope: Scope = ADA, /, **fields: Any) -> list[str]:
    """The ids that a query of one page finds."""
    page = await store.query(Query.new({"scope": scope, **fields}))
    return [entry.id for entry in page.entries]
