"""How does an agent reach its memory providers?

Requests to one provider are served one after the other, in the order of the directives, because each hands
its state to the next; different providers are asked at the same time. Each request is answered by exactly
one signal, also when the agent begins another life meanwhile.
"""

from __future__ import annotations

from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from omoide import ids
from omoide.core.directives import MEMORY_RESULT
from omoide.core.frozen import EMPTY_MAP, FrozenMap
from omoide.core.signal import Signal
from omoide.core.slot import MEMORY
from omoide.core.space import Space
from omoide.errors import Invalid, OmoideError
from omoide.runtime.providers.operating import UNOPENED, MemoryDirective, carried_out, name_of, refused
from omoide.runtime.providers.resolving import Resolved

if TYPE_CHECKING:
    from omoide.runtime.server import AgentServer

INLINE = "inline:"
"""How the spaces are called that hold what an agent keeps inline."""


class Line:
    """What is asked of one provider, under the alias that an agent has for it."""

    __slots__ = ("provider", "queue", "state", "told", "working")

    def __init__(self) -> None:
        self.queue: deque[MemoryDirective] = deque()
        self.provider: object = None
        self.told: FrozenMap[str, Any] = EMPTY_MAP
        self.state: Any = UNOPENED
        self.working = False


class Adapters:
    """The providers that an agent uses, by their aliases."""

    __slots__ = ("_lines", "_open")

    def __init__(self) -> None:
        self._lines: dict[str, Line] = {}
        self._open: dict[str, MemoryDirective] = {}
        """What was asked and not answered yet, by request id."""

    def ask(self, directive: MemoryDirective, server: AgentServer) -> None:
        """Have a provider asked, after what it was asked before."""
        if directive.request_id in self._open:
            directive = msgspec.structs.replace(directive, request_id=ids.new("req_"))
        self._open[directive.request_id] = directive
        line = self._lines.setdefault(directive.provider, Line())
        line.queue.append(directive)
        if not line.working:
            line.working = True
            server.job(partial(self._serve, line, server), "memory")

    async def _serve(self, line: Line, server: AgentServer) -> None:
        try:
            while line.queue:
                directive = line.queue.popleft()
                data = await self._served(line, directive, server)
                self._answer(directive, data, server)
        finally:
            line.working = False

    async def _served(self, line: Line, directive: MemoryDirective, server: AgentServer) -> dict[str, Any]:
        try:
            found = server.runtime.providers.resolve(directive.provider, server.agent)
        except OmoideError as error:
            return refused(directive, str(error))
        inline = bool(getattr(found.provider, "keeps_in_memory", False))
        state = _held(server, found) if inline else _state(line, found)
        timeout = server.runtime.provider_timeout
        state, data = await carried_out(directive, found.provider, state, found.opts, timeout=timeout)
        if not inline:
            line.state = state
            return data
        try:
            _hold(server, found, state)
        except OmoideError as error:
            return refused(directive, str(error), provider=name_of(found.provider))
        return data

    def _answer(self, directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> None:
        if self._open.pop(directive.request_id, None) is not None:
            server.tell(_signal(directive, data, server), own=True)

    def give_up(self, server: AgentServer, reason: str) -> None:
        """Answer whatever is still open, and begin with every provider anew."""
        unanswered, self._open, self._lines = self._open, {}, {}
        for directive in unanswered.values():
            server.tell(_signal(directive, refused(directive, reason), server), own=True)


def refuse(directive: MemoryDirective, server: AgentServer, reason: str) -> None:
    """Answer a request that is not even passed on."""
    server.tell(_signal(directive, refused(directive, reason), server), own=True)


def _signal(directive: MemoryDirective, data: dict[str, Any], server: AgentServer) -> Signal:
    """The answer; one that cannot be named as was wished has the usual name."""
    about = directive.request_id if directive.request_id.strip() else None  # which no subject may be
    told = Signal(type=MEMORY_RESULT, data=data, source=server.source, subject=about)
    try:
        return told.replace(type=directive.reply_signal_type)
    except Invalid:
        return told


def _state(line: Line, found: Resolved) -> Any:
    """The state of a provider, new where the alias now means another one."""
    told = FrozenMap(found.opts)
    if line.provider is not found.provider or line.told != told:
        line.provider, line.told, line.state = found.provider, told, UNOPENED
    return line.state


def _held(server: AgentServer, found: Resolved) -> Any:
    space = MEMORY.value(server.agent).space(INLINE + found.alias)
    return UNOPENED if space is None else space.data


def _hold(server: AgentServer, found: Resolved, state: Any) -> None:
    """Keep in the agent's memory what it keeps inline, within the limits that were set there.

    Nothing was awaited since it was read.
    """
    if state is UNOPENED or state is _held(server, found):
        return
    name, memory = INLINE + found.alias, MEMORY.value(server.agent)
    space = (memory.space(name) or Space()).replace(data=state)
    server.agent = MEMORY.put(server.agent, memory.put_space(name, space))
