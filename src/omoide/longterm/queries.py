"""Read and list what a scope holds.

A store that tells everything at once is asked so, as long as that is not far more than was wanted; any other
is asked for one memory after the other.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from omoide import clock
from omoide.core import entry as memory_types
from omoide.core.entry import DELETED, ROOT_TYPE, Entry, Filter, Scope, check_positive
from omoide.core.value import check_instance
from omoide.errors import NotFound
from omoide.stores.protocols import (
    SupportsAccess,
    SupportsFeed,
    SupportsGet,
    SupportsLinks,
    SupportsQuery,
)
from omoide.stores.records import Access, Link, Query, Version
from omoide.verbs import forget, require

# reading: How is what a scope holds read to the end?


PAGE_SIZE = 1_000
LIVE = Filter()
"""Lets pass what still holds."""
ANY_STATUS = Filter(include_superseded=True, include_stale=True, include_expired=True)
"""Lets everything pass, whether it still holds or not."""


async def iter_entries(
    store: Any, scope: Scope, filter: Filter = LIVE, *, at: int | None = None, page_size: int = PAGE_SIZE
) -> AsyncIterator[Entry]:
    """The entries of a scope that pass a filter, newest first, read page by page."""
    able: SupportsQuery = require(store, SupportsQuery, "list memories")
    moment, cursor = clock.resolve(at), None
    while True:
        found = await able.query(Query(scope=scope, filter=filter, limit=page_size, cursor=cursor, at=moment))
        for entry in found.entries:
            yield entry
        cursor = found.cursor
        if cursor is None:
            return


async def get(store: Any, id: str, scope: Scope) -> Entry:
    """The entry, whether it still holds or not; `NotFound` where the scope does not hold it."""
    able: SupportsGet = require(store, SupportsGet, "find a memory by its id")
    return await able.get(id, scope)


async def find(store: Any, id: str, scope: Scope) -> Entry | None:
    """The entry, or None where the scope does not hold it."""
    with suppress(NotFound):
        return await get(store, id, scope)
    return None


async def tombstone(store: Any, id: str, scope: Scope) -> Version | None:
    """What an erasure left of an entry, in a store that remembers it."""
    if isinstance(store, SupportsQuery):
        with suppress(NotFound):
            last = (await store.history(id, scope))[-1]
            return last if last.entry is None else None
    return None


async def links(store: Any, id: str, scope: Scope, relation: str | None = None) -> list[Link]:
    """The links from and to an entry, oldest first."""
    able: SupportsLinks = require(store, SupportsLinks, "relate memories")
    return await able.links(id, scope, relation=relation)


def premises(entry: Entry) -> tuple[str, ...]:
    """The ids of the entries that an entry rests on."""
    return tuple(dict.fromkeys(one.ref for one in entry.evidence if one.kind == "entry"))


class ReverseIndex:
    """What rests on an entry, and what it replaced: found in one pass over the scope, when first asked."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._index: tuple[dict[str, list[Entry]], dict[str, list[Entry]]] | None = None

    async def dependents(self, id: str) -> list[Entry]:
        """The entries whose evidence names it, oldest first."""
        return (await self._load())[0].get(id, [])[::-1]

    async def predecessors(self, id: str) -> list[Entry]:
        """The entries that it superseded, oldest first."""
        return (await self._load())[1].get(id, [])[::-1]

    async def _load(self) -> tuple[dict[str, list[Entry]], dict[str, list[Entry]]]:
        if self._index is None:
            resting: dict[str, list[Entry]] = {}
            replaced: dict[str, list[Entry]] = {}
            async for entry in iter_entries(self._store, self._scope, ANY_STATUS):
                for id in premises(entry):
                    resting.setdefault(id, []).append(entry)
                if entry.superseded_by is not None and entry.superseded_by != DELETED:
                    replaced.setdefault(entry.superseded_by, []).append(entry)
            self._index = resting, replaced
        return self._index


# querying: What does an agent know of a kind?


querying_get = get


async def query_by_type(
    store: Any,
    type: str,
    scope: Scope,
    *,
    limit: int = 20,
    subtypes: bool = True,
    min_confidence: float = 0.0,
    include_superseded: bool = False,
    include_stale: bool = False,
) -> list[Entry]:
    """The memories of a type, and of those that refine it unless told otherwise, newest first."""
    memory_types.check_memory_type(type)
    filter = Filter(
        types=(type,),
        min_confidence=min_confidence,
        include_superseded=include_superseded,
        include_stale=include_stale,
    )
    return await _query_newest(store, scope, filter, limit, None if subtypes else type)


async def query_all(
    store: Any,
    scope: Scope,
    *,
    limit: int = 50,
    min_confidence: float = 0.0,
    include_superseded: bool = False,
    include_stale: bool = False,
) -> list[Entry]:
    """The memories of all types, newest first."""
    filter = Filter(
        min_confidence=min_confidence, include_superseded=include_superseded, include_stale=include_stale
    )
    return await _query_newest(store, scope, filter, limit, None)


async def _query_newest(
    store: Any, scope: Scope, filter: Filter, limit: int, exactly: str | None
) -> list[Entry]:
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    found: list[Entry] = []
    async for entry in iter_entries(store, scope, filter, page_size=min(limit, PAGE_SIZE)):
        if exactly is None or (entry.type or ROOT_TYPE) == exactly:
            found.append(entry)
            if len(found) == limit:
                break
    return found


async def count(store: Any, scope: Scope, *, include_superseded: bool = False) -> int:
    """How many memories a scope holds: those that still hold, or with what was superseded all of them."""
    check_instance(scope, "scope", kind=Scope)
    able: SupportsQuery = require(store, SupportsQuery, "count memories")
    stats = await able.stats(scope)
    return stats.entries if include_superseded else stats.live


async def supersede(
    store: Any, id: str, scope: Scope, by: str | None = None, *, reason: str | None = None
) -> Entry:
    """Replace a memory by another, or by nothing; it stays, and is not recalled."""
    return await forget(store, id, scope, replacement=by, reason=reason)


async def record_access(store: Any, ids: Iterable[str], scope: Scope) -> None:
    """Note that memories were used, in a store that counts; ids that the scope does not hold do no harm."""
    if isinstance(store, SupportsAccess):
        await store.record_access(ids, scope)


# surveying: How are the links and the use of many memories read without asking for each of them?


MAX_SINGLE_READS = 400
"""Up to so many memories are asked for one by one; everything at once takes as long."""
FEED_LIMIT = 10_000
MAX_READ_FACTOR = 20
"""How many memories may be read at once in place of asking for one."""


class FeedSummary(msgspec.Struct):
    """The links that begin at memories, and how often these were used."""

    links: dict[str, list[Link]] = {}
    access: dict[str, Access] = {}


async def linked_pairs(store: Any, ids: Collection[str], scope: Scope, relation: str) -> set[tuple[str, str]]:
    """The ends of the links of a relation between memories of a scope."""
    able: SupportsLinks = require(store, SupportsLinks, "relate memories")
    told = await _summarize_feed(store, scope.namespace, len(ids))
    if told is None:
        found = [link for id in ids for link in await able.links(id, scope, relation=relation)]
    else:
        found = [link for links in told.links.values() for link in links if link.relation == relation]
    held = ids if isinstance(ids, (dict, set, frozenset)) else {*ids}
    return {(one.source, one.target) for one in found if one.source in held and one.target in held}


async def use_counts(store: Any, ids: Collection[str], scope: Scope) -> dict[str, int]:
    """How often each of some memories of a scope was used."""
    able: SupportsAccess = require(store, SupportsAccess, "tell how often a memory was used")
    told = await _summarize_feed(store, scope.namespace, len(ids))
    if told is None:
        return {id: (await able.access(id, scope)).count for id in ids}
    return {id: told.access.get(id, Access()).count for id in ids}


async def _summarize_feed(store: Any, namespace: str, count: int) -> FeedSummary | None:
    if count <= MAX_SINGLE_READS or not isinstance(store, SupportsFeed):
        return None
    found, after, room = FeedSummary(), 0, count * MAX_READ_FACTOR
    while True:
        feed = await store.change_feed(namespace, after=after, limit=FEED_LIMIT)
        found.links.update({entry.id: [] for entry in feed.entries})  # as they are now, if told before
        for link in feed.links:
            found.links.setdefault(link.source, []).append(link)
        found.access.update(feed.access)
        if not feed.more:
            return found
        after, room = feed.seq, room - FEED_LIMIT
        if room <= 0:
            return None
