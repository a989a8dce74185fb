"""How does somebody hear over HTTP that something changed?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Annotated, Any

import anyio
from litestar import Request
from litestar.datastructures import State
from litestar.params import QueryParameter
from litestar.response import ServerSentEvent, ServerSentEventMessage

from omoide.core.scope import Scope
from omoide.stores.protocols import Feeds, Wakes
from omoide.verbs import offering
from omoide.web.asking import reads
from omoide.web.guarding import may

PORTION = 200


@reads("/events")
async def events(
    request: Request[Any, Any, Any],
    state: State,
    within: Scope,
    after: Annotated[int, QueryParameter(ge=0, description="The number after which it begins.")] = 0,
) -> ServerSentEvent:
    """What changes in a namespace, as it happens: one event a change, without content.

    Each has its number as id; whoever comes back says the last one as `after`. The stream ends when the token
    no longer counts.
    """
    able: Feeds = offering(state.store, Feeds, "tell what changed")
    still = partial(may, request, "read", within.namespace)
    return ServerSentEvent(_told(able, within.namespace, after, state.poll_seconds, still))


async def _told(
    store: Feeds, namespace: str, after: int, pause: float, still: Callable[[], Awaitable[bool]]
) -> AsyncIterator[ServerSentEventMessage]:
    yield ServerSentEventMessage(comment="following", data=None)
    while await still():
        found = await store.changes(namespace, after=after, limit=PORTION)
        for change in found:
            after = change.seq
            yield ServerSentEventMessage(id=str(change.seq), event=change.op, data=change.to_json().decode())
        if not found and isinstance(store, Wakes):
            await store.wait(namespace, after=after, within=pause)
        elif not found:
            await anyio.sleep(pause)


HANDLERS = [events]
