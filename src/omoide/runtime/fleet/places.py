"""Where does each agent of a fleet live?

One document for each agent, beside its checkpoint: who lets it live, or that it is at rest. The lease says
who may; this says who does, so that others know where to look when the lease has run out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

from omoide.core.codec import MapField
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.scope import Scope
from omoide.core.value import Count, Id, Name, Value
from omoide.errors import Conflict
from omoide.stores.records import Document

PLACE = "place"
PAGE = 100


class Place(Value, frozen=True, kw_only=True):
    """Where an agent lives, or lived last."""

    id: Id
    kind: Name
    """What kind of agent it is."""
    runtime: Name | None = None
    """The name of the runtime that lets it live; None while it is at rest."""
    member: Name | None = None
    """Which life of that runtime."""
    token: Count = 0
    """How often the agent was taken by somebody."""
    metadata: MapField = EMPTY_MAP


class Places:
    """The places of all agents in a store."""

    def __init__(self, store: Any, namespace: str) -> None:
        self._store = store
        self._namespace = namespace

    async def find(self, id: str) -> tuple[Place | None, int]:
        """The place of an agent, and the revision of what is written about it."""
        document = await self._store.load(PLACE, id, self._scope(id))
        return (None, 0) if document is None else (_read(document), document.rev)

    async def put(self, place: Place, *, expected_rev: int) -> int:
        """Write a place down; `Conflict` where somebody else did so since."""
        body = {field: getattr(place, field) for field in Place.__struct_fields__}
        document = Document(
            kind=PLACE, id=place.id, namespace=self._namespace, agent_id=place.id, body=FrozenMap(body)
        )
        return int((await self._store.save(document, expected_rev=expected_rev)).rev)

    async def taken(self, place: Place) -> int:
        """Write down who lets an agent live; whoever lost it may be writing at the same time."""
        for _ in range(3):
            _, rev = await self.find(place.id)
            try:
                return await self.put(place, expected_rev=rev)
            except Conflict:
                continue
        _, rev = await self.find(place.id)
        return await self.put(place, expected_rev=rev)

    async def living(self) -> AsyncIterator[Place]:
        """The places of all agents that live, or would if their runtime did."""
        after: str | None = None
        scope = Scope(namespace=self._namespace)
        while page := await self._store.documents(PLACE, scope, limit=PAGE, after=after):
            for document in page:
                place = _read(document)
                if place is not None and place.runtime is not None:
                    yield place
            after = page[-1].id

    def _scope(self, id: str) -> Scope:
        return Scope(namespace=self._namespace, agent_id=id)


def _read(document: Document) -> Place | None:
    """What a document says; one that was emptied, or is something else, says nothing."""
    try:
        return Place(**document.body) if isinstance(document.body, FrozenMap) else None
    except (TypeError, ValueError):
        return None
