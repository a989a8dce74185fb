"""Which sessions are there?"""

from __future__ import annotations

import warnings
from typing import Any

from omoide import ids
from omoide.core.scope import DEFAULT_NAMESPACE, Scope
from omoide.errors import MissingStore, NotFound, RestoreFailed
from omoide.sessions.header import Header, read
from omoide.sessions.keeping import SESSION
from omoide.stores.protocols import Documents, ListsDocuments
from omoide.turns.spec import AgentSpec
from omoide.verbs import offering


async def sessions(
    store: Any, *, agent_id: str | None = None, namespace: str = DEFAULT_NAMESPACE
) -> list[Header]:
    """The sessions that a store keeps in a namespace, of one agent or of all, by their ids."""
    able: ListsDocuments = offering(_given(store), ListsDocuments, "list its sessions")
    scope = Scope(namespace=namespace, agent_id=agent_id)
    found: list[Header] = []
    last: str | None = None
    while page := await able.documents(SESSION, scope, after=last):
        for one in page:
            try:
                found.append(read(one.body, one.id))
            except RestoreFailed as error:  # one that cannot be read does not hide the others
                warnings.warn(str(error), stacklevel=2)
        last = page[-1].id
    return found


async def spec_of(store: Any, session_id: str, namespace: str = DEFAULT_NAMESPACE) -> AgentSpec:
    """The spec that a session was begun with, without its code."""
    able: Documents = offering(_given(store), Documents, "keep a session")
    document = await able.load(SESSION, ids.check(session_id, "session_id"), Scope(namespace=namespace))
    if document is None:
        raise missing(session_id)
    return read(document.body, session_id).spec


def missing(session_id: str) -> NotFound:
    """The error for a session that is not there."""
    return NotFound("session", session_id, "start it, or see which there are with sessions()")


def _given(store: Any) -> Any:
    if store is None:
        raise MissingStore("store")
    return store
