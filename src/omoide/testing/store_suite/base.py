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
from omoide.stores.protocols import Closes, Store
from omoide.stores.records import Query

ADA = Scope(agent_id="ada")
BOB = Scope(agent_id="bob")
ELSEWHERE = Scope(agent_id="ada", namespace="elsewhere")
DAY = 24 * 3_600_000

_OF_THE_REQUEST = ("expected_rev", "idempotency_key", "dedupe", "supersedes")


class Full(
    protocols.Store,
    protocols.Gets,
    protocols.Queries,
    protocols.Links,
    protocols.Supersedes,
    protocols.RecordsAccess,
    protocols.Erases,
    protocols.KeepsHistory,
    protocols.Feeds,
    protocols.Projects,
    protocols.Takes,
    protocols.WritesMany,
    protocols.WritesVectors,
    protocols.Counts,
    protocols.Documents,
    protocols.ListsDocuments,
    protocols.Namespaces,
    protocols.Claims,
    Protocol,
):
    """A store with everything; a test only uses what it asked for."""


Opened = Store | AbstractAsyncContextManager[Store] | Awaitable[Store]


class Offered:
    """Opens the store for each test, and knows which tests are meant for it."""

    pytestmark = pytest.mark.anyio

    complete: ClassVar[bool] = False
    """Whether the store claims to offer everything: what is missing is then a failure and no skip."""

    def open_store(self, folder: Path) -> Opened:
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
            if isinstance(opened, Closes):
                stack.push_async_callback(opened.close)
            yield opened

    def offering(self, store: Store, *parts: type) -> Full:
        """The store, if it offers all these protocols; otherwise the test is not for it."""
        for part in parts:
            if not isinstance(store, part):
                said = f"store does not offer {part.__name__}"
                pytest.fail(said) if self.complete else pytest.skip(said)
        return cast(Full, store)


def note(content: str = "The kettle is on.", /, **fields: Any) -> Entry:
    """An entry of Ada's, unless the fields say otherwise."""
    return Entry.new({"agent_id": "ada", "content": content, **fields})


def asked(content: str = "The kettle is on.", /, **fields: Any) -> WriteRequest:
    """A request to keep an entry; fields of the request and of the entry may be mixed."""
    own = {name: fields.pop(name) for name in _OF_THE_REQUEST if name in fields}
    return WriteRequest.new(entry=note(content, **fields), **own)


async def keep(store: Store, content: str = "The kettle is on.", /, **fields: Any) -> WriteResult:
    """Write an entry, and the receipt for it."""
    return await store.write(asked(content, **fields))


async def recall(store: Store, query: str = "anything", /, **fields: Any) -> list[str]:
    """The ids of what Ada recalls, best first."""
    result = await store.recall(RecallRequest.new({"agent_id": "ada", "query": query, **fields}))
    return [entry.id for entry in result.entries]


async def listed(store: Store, scope: Scope = ADA) -> list[str]:
    """The ids in a scope, oldest first."""
    return [entry.id for entry in await store.list_entries(scope)]


async def found(store: Full, scope: Scope = ADA, /, **fields: Any) -> list[str]:
    """The ids that a query of one page finds."""
    page = await store.query(Query.new({"scope": scope, **fields}))
    return [entry.id for entry in page.entries]
