"""Where does a signal go that an agent emits?

`{"to": id or ids}` to agents, `{"parent": True}`, `{"child": tag}`, `{"children": True}`, `{"self": True}`,
`{"bus": True}` to whoever subscribed; any other word is a way that the runtime was given. Who does not say
where sends the usual way of the agent, or back to itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any

from omoide.core.directives import Emit
from omoide.core.frozen import FrozenMap
from omoide.core.signal import Signal
from omoide.core.slot import PARENT
from omoide.errors import Invalid, NotFound
from omoide.runtime.living import Work, guarded
from omoide.runtime.waiting import Waiting

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

WAYS = ("to", "parent", "child", "children", "self", "bus")


def emit(directive: Emit, server: AgentServer) -> Waiting | None:
    """Send a signal; the next directive waits while a mailbox is full."""
    ways = server.terms.dispatch if directive.dispatch is None else directive.dispatch
    if ways is None:
        server.tell(directive.signal)
        return None
    return dispatched(directive.signal, ways, server)


def dispatched(signal: Signal, ways: FrozenMap[str, Any], server: AgentServer) -> Waiting | None:
    """Send a signal these ways; what has to wait is left to whoever asked."""
    for way in ways:
        if way not in WAYS and way not in server.runtime.known.dispatchers:
            known = ", ".join((*WAYS, *sorted(server.runtime.known.dispatchers)))
            raise Invalid("dispatch", f"has no way {way!r}", f"use {known}")
    later: list[Work] = []
    for way in sorted(ways):
        if way == "bus":
            if ways[way] and server.keeping.hold is not None:
                server.keeping.hold.send(signal, None)
            elif ways[way]:
                later.append(partial(server.runtime.publish, signal))
        elif way in WAYS:
            later += _sent(signal, _receivers(way, ways[way], server), server)
        else:
            later.append(partial(_handed, server.runtime.known.dispatchers[way], signal, ways[way]))
    return Waiting(partial(_in_turn, later)) if later else None


def _sent(signal: Signal, ids: Iterable[str], server: AgentServer) -> list[Work]:
    """Send to these agents; what has to wait for a full mailbox is returned."""
    later: list[Work] = []
    for id in ids:
        if id == server.id:
            server.tell(signal)
        elif server.keeping.hold is not None:
            server.keeping.hold.send(signal, id)
        elif not server.runtime.offer(id, signal):
            later.append(partial(server.runtime.cast, id, signal))
    return later


def _receivers(way: str, target: Any, server: AgentServer) -> list[str]:
    if way == "to":
        found = [target] if isinstance(target, str) else [*target]
    elif not target:
        found = []
    elif way == "self":
        found = [server.id]
    elif way == "children":
        found = [*server.children.values()]
    elif way == "parent":
        above = PARENT.get(server.agent)
        if server.parent is None and server.keeping.hold is not None and above is not None:
            return [above.id]  # it lives somewhere else in the fleet
        if server.parent is None:
            raise NotFound("parent of agent", server.id, "it has none; say {'to': id}")
        found = [server.parent[0]]
    else:
        if target not in server.children:
            known = ", ".join(sorted(server.children)) or "none"
            raise NotFound("child", target, f"agent {server.id!r} has: {known}")
        found = [server.children[target]]
    return found


async def _in_turn(works: list[Work]) -> None:
    failed: Exception | None = None
    for work in works:
        try:
            await guarded(work())
        except Exception as error:
            failed = failed or error
    if failed is not None:
        raise failed


async def _handed(way: Callable[..., Any], signal: Signal, config: Any) -> None:
    answer: Awaitable[Any] | Any = way(signal, config)
    if isawaitable(answer):
        await answer
