"""What happened in the course of a turn, in one vocabulary?

Events tell what was done, with ids and figures and never with content. The one exception is `text`, a piece
of an answer on its way to the reader, which is streamed and not kept.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from omoide import clock
from omoide.core.codec import MapField
from omoide.core.contract import check_choice
from omoide.core.frozen import EMPTY_MAP, FrozenList
from omoide.core.value import Millis, Value

KINDS = (
    "turn_started",
    "resumed",
    "control_applied",
    "memory_recalled",
    "context_compacted",
    "prompt_assembled",
    "model_called",
    "model_retried",
    "model_replied",
    "tool_started",
    "tool_finished",
    "tool_failed",
    "review_requested",
    "hibernated",
    "turn_finished",
    "memory_written",
    "memory_not_written",
    "text",
)


class Event(Value, frozen=True, kw_only=True):
    """One thing that happened in a turn."""

    kind: str
    at: Millis = msgspec.field(default_factory=clock.now)
    data: MapField = EMPTY_MAP

    def __post_init__(self) -> None:
        super().__post_init__()
        check_choice(self.kind, "kind", KINDS)

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"{key}={_short(self.data[key])}" for key in sorted(self.data))])


def _short(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, FrozenList) else str(value)


Listener = Callable[[Event], Awaitable[Any] | Any]
"""Somebody who is told each event as it happens."""


class Events:
    """The events of one turn, and who listens."""

    def __init__(self, listener: Listener | None = None) -> None:
        self.kept: list[Event] = []
        self._listener = listener

    async def tell(self, kind: str, **data: Any) -> None:
        """Keep an event and pass it on; what a listener raises ends the turn."""
        event = Event(kind=kind, data={key: value for key, value in data.items() if value is not None})
        if kind != "text":
            self.kept.append(event)
        if self._listener is not None:
            answer = self._listener(event)
            if isinstance(answer, Awaitable):
                await answer
