"""How does somebody hear over HTTP that something changed?"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Annotated

import anyio
from litestar.datastructures import State
from litestar.params import Parameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from omoide.core.scope import Scope
from omoide.stores.protocols import Feeds
from omoide.verbs import offering
from omoide.web.asking import reads

PORTION = 200


@reads("/events")
async def events(
    state: State,
    within: Scope,
    after: Annotated[int, Parameter(ge=0, description="The number after which it begins.")] = 0,
) -> ServerSentEvent:
    """What changes in a namespace, as it happens: one event a change, without content.

    Each has its number as id; whoever comes back says the last one as `after`.
    """
    able: Feeds = offering(state.store, Feeds, "tell what changed")
    return ServerSentEvent(_told(able, within.namespace, after, state.poll_seconds))


async def _told(
    store: Feeds, namespace: str, after: int, pause: float
) -> AsyncIterator[ServerSentEventMessage]:
    yield ServerSentEventMessage(comment="following")
    while True:
        found = await store.changes(namespace, after=after, limit=PORTION)
        for change in found:
            after = change.seq
            yield ServerSentEventMessage(id=str(change.seq), event=change.op, data=change.to_json().decode())
        if not found:
            await anyio.sleep(pause)


HANDLERS = [events]
