"""Which signals were not handled, and why?"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from omoide import clock
from omoide.core.directives import Directive, Error
from omoide.core.signal import Signal

log = logging.getLogger("omoide.runtime")

KEPT = 1_000
"""How many are remembered."""


class Drop(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was accepted, or tried, and will not be handled."""

    agent_id: str
    signal: Signal
    reason: str
    at: int
    accepted: bool = True
    """Whether the agent had accepted it; one that was turned away was never its own."""


class Drops:
    """The last signals that were dropped, and how many there were in all."""

    def __init__(self, listener: Callable[[Drop], Any] | None = None) -> None:
        self._kept: deque[Drop] = deque(maxlen=KEPT)
        self._listener = listener
        self.count = 0

    def __iter__(self) -> Iterator[Drop]:
        return iter([*self._kept])

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, agent_id: str, signal: Signal, reason: str, *, accepted: bool) -> None:
        """Report one; a listener that fails is written down."""
        drop = Drop(agent_id=agent_id, signal=signal, reason=reason, at=clock.now(), accepted=accepted)
        self.count += 1
        self._kept.append(drop)
        log.warning("agent %s: dropped a signal of type %s: %s", agent_id, signal.type, reason)
        if self._listener is not None:
            try:
                self._listener(drop)
            except Exception as error:
                log.warning("on_dropped failed with %s", type(error).__name__)


def is_unrouted(directive: Directive) -> bool:
    """Whether it says that no route leads a signal anywhere."""
    return isinstance(directive, Error) and directive.context == "routing"


def unheard(signal: Signal) -> list[Directive]:
    """What the runtime told and nobody listens to: nothing, unless it is a failure."""
    data = signal.data
    if not hasattr(data, "get") or data.get("status") != "error":
        return []
    reason = str(data.get("error", "no reason given"))
    return [Error(message=f"{signal.type}: {reason}", context="memory", kind="ProviderFailed")]
