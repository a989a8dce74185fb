"""Query the memories of a scope: by type, by id, with their links and use counts.

Links and use counts of many memories are read from the change feed of the store, if it has one and that is
not far more than what is needed; otherwise memory by memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import suppress
from typing import Any

import msgspec

from omoide import clock
from omoide.core import entry as memory_types
from omoide.core.entry import (
    DELETED,
    ROOT_TYPE,
    About,
    Entry,
    Filter,
    Scope,
    about_tags,
    check_positive,
)
from omoide.core.value import check_instance
from omoide.errors import NotFound
from omoide.stores.protocols import SupportsAccess, SupportsFeed, SupportsGet, SupportsLinks, SupportsQuery
from omoide.stores.records import Access, Link, Query, Version
from omoide.verbs import forget, require

PAGE_SIZE = 1_000
LIVE = Filter()
"""Passes live memories only."""
ANY_STATUS = Filter(include_superseded=True, include_stale=True, include_expired=True)
"""Passes superseded, stale and expired memories as well."""


async def iter_entries(
    store: Any, scope: Scope, filter: Filter = LIVE, *, at: int | None = None, page_size: int = PAGE_SIZE
) -> AsyncIterator[Entry]:
    """Yield the entries of a scope that pass a filter, newest first, page by page."""
    queryable: SupportsQuery = require(store, SupportsQuery, "list memories")
    # One time for all pages: nothing expires between two of them.
    now, cursor = clock.resolve(at), None
    while True:
        page = await queryable.query(
            Query(scope=scope, filter=filter, limit=page_size, cursor=cursor, at=now)
        )
        for entry in page.entries:
            yield entry
        cursor = page.cursor
        if cursor is None:
            return


async def get(store: Any, id: str, scope: Scope) -> Entry:
    """Return a memory, live or not.

    Raises:
        NotFound: The scope does not contain it.
    """
    readable: SupportsGet = require(store, SupportsGet, "find a memory by its id")
    return await readable.get(id, scope)


async def find(store: Any, id: str, scope: Scope) -> Entry | None:
    """Return a memory, or None if the scope does not contain it."""
    with suppress(NotFound):
        return await get(store, id, scope)
    return None


async def tombstone(store: Any, id: str, scope: Scope) -> Version | None:
    """Return the tombstone of an erased memory, in a store with history."""
    if isinstance(store, SupportsQuery):
        # The last version of an erased memory has no entry, only the reason and the time.
        with suppress(NotFound):
            last = (await store.history(id, scope))[-1]
            return last if last.entry is None else None
    return None


async def links(store: Any, id: str, scope: Scope, relation: str | None = None) -> list[Link]:
    """Return the links from and to a memory, oldest first."""
    linked: SupportsLinks = require(store, SupportsLinks, "relate memories")
    return await linked.links(id, scope, relation=relation)


def premises(entry: Entry) -> tuple[str, ...]:
    """Return the ids of the memories that are evidence for a memory."""
    return tuple(dict.fromkeys(evidence.ref for evidence in entry.evidence if evidence.kind == "entry"))


class ReverseIndex:
    """Dependents and predecessors of memories, read in one pass over the scope on first use."""

    def __init__(self, store: Any, scope: Scope) -> None:
        self._store = store
        self._scope = scope
        self._index: tuple[dict[str, list[Entry]], dict[str, list[Entry]]] | None = None

    async def dependents(self, id: str) -> list[Entry]:
        """Return the memories whose evidence names this one, oldest first."""
        return (await self._load())[0].get(id, [])[::-1]

    async def predecessors(self, id: str) -> list[Entry]:
        """Return the memories that this one superseded, oldest first."""
        return (await self._load())[1].get(id, [])[::-1]

    async def _load(self) -> tuple[dict[str, list[Entry]], dict[str, list[Entry]]]:
        if self._index is None:
            dependents: dict[str, list[Entry]] = {}
            predecessors: dict[str, list[Entry]] = {}
            # Stores index references forward only, so one pass over the scope answers for all ids.
            async for entry in iter_entries(self._store, self._scope, ANY_STATUS):
                for id in premises(entry):
                    dependents.setdefault(id, []).append(entry)
                if entry.superseded_by is not None and entry.superseded_by != DELETED:
                    predecessors.setdefault(entry.superseded_by, []).append(entry)
            self._index = dependents, predecessors
        return self._index


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
    about: About = None,
) -> list[Entry]:
    """Return the memories of a type, newest first.

    Args:
        subtypes: Include memories of subtypes, such as an `architectural_decision` for `decision`.
        about: A file, a module or an artifact that they are about: `lib/web.ex`, `module:Shop.Web`.
    """
    type = memory_types.check_memory_type(type)
    filter = Filter(
        types=(type,),
        min_confidence=min_confidence,
        include_superseded=include_superseded,
        include_stale=include_stale,
        tags=() if about is None else about_tags(about),
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
    about: About = None,
) -> list[Entry]:
    """Return the memories of all types, newest first; `about` names a file, a module or an artifact."""
    filter = Filter(
        min_confidence=min_confidence,
        include_superseded=include_superseded,
        include_stale=include_stale,
        tags=() if about is None else about_tags(about),
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
    """Return the number of live memories of a scope, or of all with `include_superseded`."""
    check_instance(scope, "scope", kind=Scope)
    queryable: SupportsQuery = require(store, SupportsQuery, "count memories")
    stats = await queryable.stats(scope)
    return stats.entries if include_superseded else stats.live


async def supersede(
    store: Any, id: str, scope: Scope, by: str | None = None, *, reason: str | None = None
) -> Entry:
    """Mark a memory as replaced by another, or by nothing; it is kept, and not recalled."""
    return await forget(store, id, scope, replacement=by, reason=reason)


async def record_access(store: Any, ids: Iterable[str], scope: Scope) -> None:
    """Count one use of each memory, in a store that counts; ids outside the scope are ignored."""
    if isinstance(store, SupportsAccess):
        await store.record_access(ids, scope)


MAX_SINGLE_READS = 400
"""Memories up to which each is read by itself; the whole feed takes as long."""
FEED_LIMIT = 10_000
MAX_READ_FACTOR = 20
"""Memories of the feed that may be read in place of one single read."""


class FeedSummary(msgspec.Struct):
    """The links and use counts of the memories of a namespace."""

    links: dict[str, list[Link]] = {}
    access: dict[str, Access] = {}


async def linked_pairs(store: Any, ids: Collection[str], scope: Scope, relation: str) -> set[tuple[str, str]]:
    """Return source and target of each link of a relation between these memories."""
    linked: SupportsLinks = require(store, SupportsLinks, "relate memories")
    summary = await _summarize_feed(store, scope.namespace, len(ids))
    if summary is None:
        found = [link for id in ids for link in await linked.links(id, scope, relation=relation)]
    else:
        found = [link for links in summary.links.values() for link in links if link.relation == relation]
    # Links from or to other memories are left out: the feed has those of the whole namespace.
    known = ids if isinstance(ids, (dict, set, frozenset)) else {*ids}
    return {(link.source, link.target) for link in found if link.source in known and link.target in known}


async def use_counts(store: Any, ids: Collection[str], scope: Scope) -> dict[str, int]:
    """Return the number of uses of each of these memories."""
    counting: SupportsAccess = require(store, SupportsAccess, "count the uses of a memory")
    summary = await _summarize_feed(store, scope.namespace, len(ids))
    if summary is None:
        return {id: (await counting.access(id, scope)).count for id in ids}
    return {id: summary.access.get(id, Access()).count for id in ids}


async def _summarize_feed(store: Any, namespace: str, count: int) -> FeedSummary | None:
    """Read the feed of a namespace; None if single reads of `count` memories are cheaper."""
    if count <= MAX_SINGLE_READS or not isinstance(store, SupportsFeed):
        return None
    summary, after, budget = FeedSummary(), 0, count * MAX_READ_FACTOR
    while True:
        feed = await store.change_feed(namespace, after=after, limit=FEED_LIMIT)
        # An entry that changed twice is in the feed twice, each time with all of its current links.
        summary.links.update({entry.id: [] for entry in feed.entries})
        for link in feed.links:
            summary.links.setdefault(link.source, []).append(link)
        summary.access.update(feed.access)
        if not feed.more:
            return summary
        # In a namespace far larger than the scope, single reads are cheaper after all.
        after, budget = feed.seq, budget - FEED_LIMIT
        if budget <= 0:
            return None
