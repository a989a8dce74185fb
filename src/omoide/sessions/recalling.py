"""Which long-term memories belong into a session's context?"""

from __future__ import annotations

from typing import Any

from omoide import clock
from omoide.core.entry import Entry
from omoide.core.recalling import Filter, RecallRequest
from omoide.core.scope import Scope
from omoide.errors import OmoideError
from omoide.stores.protocols import Queries, RecordsAccess, Store
from omoide.stores.records import Query

HINTED = 10
"""How many memories answer a hint."""
UNHINTED = 5
SURE = 0.7
"""How sure a memory has to be that nobody asked for."""


async def remembered(store: Any, scope: Scope, hint: str | None) -> tuple[list[Entry], list[str]]:
    """What memory says to a hint, best first, or else the surest of what is newest, and what went wrong.

    A store that fails leaves the context without memories; the rest of it is still worth having.
    """
    if not isinstance(store, Store):
        return [], []
    try:
        found = await _recalled(store, scope, hint)
        if found and isinstance(store, RecordsAccess):
            await store.record_access([entry.id for entry in found], scope)
    except OmoideError as error:
        return [], [f"memory could not be asked ({type(error).__name__}: {error})"]
    return found, []


async def _recalled(store: Store, scope: Scope, hint: str | None) -> list[Entry]:
    if hint is not None and hint.strip():
        return [*(await store.recall(RecallRequest.within(scope, hint, limit=HINTED))).entries]
    if isinstance(store, Queries):
        sure = Filter(min_confidence=SURE)
        found = [*(await store.query(Query(scope=scope, filter=sure, limit=UNHINTED))).entries]
    else:
        now = clock.now()
        live = [one for one in await store.list_entries(scope) if one.is_live(now) and one.confidence >= SURE]
        found = live[: -UNHINTED - 1 : -1]
    return sorted(found, key=lambda entry: -entry.confidence)
