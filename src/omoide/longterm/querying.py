"""What does an agent know of a kind?"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from omoide.core import memory_types
from omoide.core.entry import Entry
from omoide.core.memory_types import ROOT
from omoide.core.recalling import Filter, check_positive
from omoide.core.scope import Scope
from omoide.core.value import check_instance
from omoide.longterm import reading
from omoide.stores.protocols import Counts, RecordsAccess
from omoide.verbs import forget, offering

get = reading.get


async def by_type(
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
    memory_types.check(type)
    filter = Filter(
        types=(type,),
        min_confidence=min_confidence,
        include_superseded=include_superseded,
        include_stale=include_stale,
    )
    return await _newest(store, scope, filter, limit, None if subtypes else type)


async def everything(
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
    return await _newest(store, scope, filter, limit, None)


async def _newest(store: Any, scope: Scope, filter: Filter, limit: int, exactly: str | None) -> list[Entry]:
    check_instance(scope, "scope", kind=Scope)
    check_positive(limit, "limit")
    found: list[Entry] = []
    async for entry in reading.each(store, scope, filter, page=min(limit, reading.PAGE)):
        if exactly is None or (entry.type or ROOT) == exactly:
            found.append(entry)
            if len(found) == limit:
                break
    return found


async def count(store: Any, scope: Scope, *, include_superseded: bool = False) -> int:
    """How many memories a scope holds: those that still hold, or with what was superseded all of them."""
    check_instance(scope, "scope", kind=Scope)
    able: Counts = offering(store, Counts, "count memories")
    stats = await able.stats(scope)
    return stats.entries if include_superseded else stats.live


async def supersede(
    store: Any, id: str, scope: Scope, by: str | None = None, *, reason: str | None = None
) -> Entry:
    """Replace a memory by another, or by nothing; it stays, and is not recalled."""
    return await forget(store, id, scope, replacement=by, reason=reason)


async def record_access(store: Any, ids: Iterable[str], scope: Scope) -> None:
    """Note that memories were used, in a store that counts; ids that the scope does not hold do no harm."""
    if isinstance(store, RecordsAccess):
        await store.record_access(ids, scope)
