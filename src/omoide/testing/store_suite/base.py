"""Fixtures and helpers of the conformance tests of stores."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from inspect import isawaitable
from pathlib import Path
from typing import Any, ClassVar, Protocol, cast

import pytest

from omoide.core.entry import Entry, RecallRequest, Scope, WriteRequest, WriteResult
from omoide.stores import protocols
from omoide.stores.adapter import as_store
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
    protocols.SupportsOwners,
    protocols.SupportsLinks,
    protocols.SupportsSupersede,
    protocols.SupportsAccess,
    protocols.SupportsErase,
    protocols.SupportsFeed,
    protocols.SupportsImport,
    protocols.SupportsBatchWrite,
    protocols.SupportsDocuments,
    protocols.SupportsLeases,
    Protocol,
):
    """A store with every capability; a test uses only those it required."""


StoreOrOpener = Store | AbstractAsyncContextManager[Store] | Awaitable[Store]


class StoreFixtures:
    """Opens a store for each test, and skips tests of capabilities that the store lacks."""

    pytestmark = pytest.mark.anyio

    complete: ClassVar[bool] = False
    """Set it when the store has every capability: a missing one then fails instead of skipping."""

    def open_store(self, folder: Path) -> StoreOrOpener:
        """Return a fresh store, or a context manager or awaitable that gives one."""
        raise NotImplementedError("say how a fresh store is opened: def open_store(self, folder)")

    @pytest.fixture
    async def store(self, tmp_path: Path) -> AsyncIterator[Store]:
        """Yield an empty store, and close it after the test."""
        async with AsyncExitStack() as stack:
            store = self.open_store(tmp_path)
            if isinstance(store, AbstractAsyncContextManager):
                store = await stack.enter_async_context(store)
            elif isawaitable(store):
                store = await store
            if isinstance(store, SupportsClose):
                stack.push_async_callback(store.close)
            yield as_store(store)

    def require(self, store: Store, *capabilities: type) -> FullStore:
        """Return the store if it has these capabilities (protocols); skip the test otherwise."""
        for capability in capabilities:
            if not isinstance(store, capability):
                message = f"store does not offer {capability.__name__}"
                pytest.fail(message) if self.complete else pytest.skip(message)
        return cast(FullStore, store)


def make_entry(content: str = "The kettle is on.", /, **fields: Any) -> Entry:
    """Return an entry of the agent "ada", unless the fields name another."""
    return Entry.new({"agent_id": "ada", "content": content, **fields})


def write_request(content: str = "The kettle is on.", /, **fields: Any) -> WriteRequest:
    """Return a write request; fields of the request and of the entry may be mixed."""
    request_fields = {name: fields.pop(name) for name in _REQUEST_FIELDS if name in fields}
    return WriteRequest.new(entry=make_entry(content, **fields), **request_fields)


async def write_entry(store: Store, content: str = "The kettle is on.", /, **fields: Any) -> WriteResult:
    """Write an entry and return the receipt."""
    return await store.write(write_request(content, **fields))


async def recall_ids(store: Store, query: str = "anything", /, **fields: Any) -> list[str]:
    """Return the ids that "ada" recalls, best first."""
    result = await store.recall(RecallRequest.new({"agent_id": "ada", "query": query, **fields}))
    return [entry.id for entry in result.entries]


async def list_ids(store: Store, scope: Scope = ADA) -> list[str]:
    """Return the ids in a scope, oldest first."""
    return [entry.id for entry in await store.list_entries(scope)]


async def query_ids(store: FullStore, scope: Scope = ADA, /, **fields: Any) -> list[str]:
    """Return the ids of the first page of a query."""
    page = await store.query(Query.new({"scope": scope, **fields}))
    return [entry.id for entry in page.entries]
