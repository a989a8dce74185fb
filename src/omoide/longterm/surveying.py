"""How are the links and the use of many memories read without asking for each of them?

A store that tells everything at once is asked so, as long as that is not far more than was wanted; any other
is asked for one memory after the other.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from omoide.core.scope import Scope
from omoide.stores.protocols import Links, Projects, RecordsAccess
from omoide.stores.records import Access, Link
from omoide.verbs import offering

FEW = 400
"""Up to so many memories are asked for one by one; everything at once takes as long."""
PORTION = 10_000
WORTH = 20
"""How many memories may be read at once in place of asking for one."""


class Survey(msgspec.Struct):
    """The links that begin at memories, and how often these were used."""

    links: dict[str, list[Link]] = {}
    access: dict[str, Access] = {}


async def ends(store: Any, ids: Collection[str], scope: Scope, relation: str) -> set[tuple[str, str]]:
    """The ends of the links of a relation between memories of a scope."""
    able: Links = offering(store, Links, "relate memories")
    told = await _told(store, scope.namespace, len(ids))
    if told is None:
        found = [link for id in ids for link in await able.links(id, scope, relation=relation)]
    else:
        found = [link for links in told.links.values() for link in links if link.relation == relation]
    held = ids if isinstance(ids, (dict, set, frozenset)) else {*ids}
    return {(one.source, one.target) for one in found if one.source in held and one.target in held}


async def uses(store: Any, ids: Collection[str], scope: Scope) -> dict[str, int]:
    """How often each of some memories of a scope was used."""
    able: RecordsAccess = offering(store, RecordsAccess, "tell how often a memory was used")
    told = await _told(store, scope.namespace, len(ids))
    if told is None:
        return {id: (await able.access(id, scope)).count for id in ids}
    return {id: told.access.get(id, Access()).count for id in ids}


async def _told(store: Any, namespace: str, wanted: int) -> Survey | None:
    if wanted <= FEW or not isinstance(store, Projects):
        return None
    found, after, room = Survey(), 0, wanted * WORTH
    while True:
        feed = await store.changed(namespace, after=after, limit=PORTION)
        found.links.update({entry.id: [] for entry in feed.entries})  # as they are now, if told before
        for link in feed.links:
            found.links.setdefault(link.source, []).append(link)
        found.access.update(feed.access)
        if not feed.more:
            return found
        after, room = feed.seq, room - PORTION
        if room <= 0:
            return None
