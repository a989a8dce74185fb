"""How is what a scope holds read to the end?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

from omoide import clock
from omoide.core.entry import DELETED, Entry
from omoide.core.recalling import Filter
from omoide.core.scope import Scope
from omoide.errors import NotFound
from omoide.stores.protocols import Gets, KeepsHistory, Links, Queries
from omoide.stores.records import Link, Query, Version
from omoide.verbs import offering

PAGE = 1_000
LIVE = Filter()
"""Lets pass what still holds."""
WHATEVER = Filter(include_superseded=True, include_stale=True, include_expired=True)
"""Lets everything pass, whether it still holds or not."""


async def each(
    store: Any, scope: Scope, filter: Filter = LIVE, *, at: int | None = None, page: int = PAGE
) -> AsyncIterator[Entry]:
    """The entries of a scope that pass a filter, newest first, read page by page."""
    able: Queries = offering(store, Queries, "list memories")
    moment, cursor = clock.resolve(at), None
    while True:
        found = await able.query(Query(scope=scope, filter=filter, limit=page, cursor=cursor, at=moment))
        for entry in found.entries:
            yield entry
        cursor = found.cursor
        if cursor is None:
            return


async def get(store: Any, id: str, scope: Scope) -> Entry:
    """The entry, whether it still holds or not; `NotFound` where the scope does not hold it."""
    able: Gets = offering(store, Gets, "find a memory by its id")
    return await able.get(id, scope)


async def find(store: Any, id: str, scope: Scope) -> Entry | None:
    """The entry, or None where the scope does not hold it."""
    with suppress(NotFound):
        return await get(store, id, scope)
    return None


async def stone(store: Any, id: str, scope: Scope) -> Version | None:
    """What an erasure left of an entry, in a store that remembers it."""
    if isinstance(store, KeepsHistory):
        with suppress(NotFound):
            last = (await store.history(id, scope))[-1]
            return last if last.entry is None else None
    return None


async def links(store: Any, id: str, scope: Scope, relation: str | None = None) -> list[Link]:
    """The links from and to an entry, oldest first."""
    able: Links = offering(store, Links, "relate memories")
    return await able.links(id, scope, relation=relation)


def premises(entry: Entry) -> tuple[str, ...]:
    """The ids of the entries that an entry rests on."""
    return tuple(dict.fromkeys(one.ref for one in entry.evidence if one.kind == "entry"))


class Backwards:
    """What rests on an entry, and what it replaced: found in one pass over the scope, when first asked."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._found: tuple[dict[str, list[Entry]], dict[str, list[Entry]]] | None = None

    async def resting_on(self, id: str) -> list[Entry]:
        """The entries whose evidence names it, oldest first."""
        return (await self._read())[0].get(id, [])[::-1]

    async def replaced_by(self, id: str) -> list[Entry]:
        """The entries that it superseded, oldest first."""
        return (await self._read())[1].get(id, [])[::-1]

    async def _read(self) -> tuple[dict[str, list[Entry]], dict[str, list[Entry]]]:
        if self._found is None:
            resting: dict[str, list[Entry]] = {}
            replaced: dict[str, list[Entry]] = {}
            async for entry in each(self._store, self._scope, WHATEVER):
                for id in premises(entry):
                    resting.setdefault(id, []).append(entry)
                if entry.superseded_by is not None and entry.superseded_by != DELETED:
                    replaced.setdefault(entry.superseded_by, []).append(entry)
            self._found = resting, replaced
        return self._found
