"""How do signals get from one agent to another?

A transport has three methods. `publish` tells a signal to all who subscribed to its type, or `to` one agent
by its id, wherever it lives. Every transport promises this:

- a handler is called with one signal at a time, in the order in which one publisher published them;
- what a handler raises is reported, and keeps the signal from nobody else;
- `publish` has to be waited for: it returns when the signal was handed over, to the handlers or to
  something that keeps it for them, so that whoever publishes too fast is slowed down;
- once a subscription is closed, its handler is called no more, and so it is once the transport is closed.

It does not promise that a signal arrives once: one that keeps signals on a network may bring them again.
A handler that minds remembers `source` and `id`, which are unique together. Nor is there an order among
signals of several publishers, or an answer: that is another signal.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol, runtime_checkable

from omoide.core.signal import Signal

Handler = Callable[[Signal], Awaitable[object] | object]
"""A plain or async function that takes a signal; with its return the signal is accepted."""


class Subscription(Protocol):
    """The wish to be told."""

    async def close(self) -> None:
        """Be told no more; doing it again is no error."""
        ...


@runtime_checkable
class Transport(Protocol):
    """Brings signals to those who want them."""

    async def publish(self, signal: Signal, *, to: str | None = None) -> None:
        """Tell all who subscribed to the type of a signal, or only one agent.

        `NotRunning` where it is known that nobody subscribed for that agent.
        """
        ...

    async def subscribe(self, pattern: str, handler: Handler, *, agent: str | None = None) -> Subscription:
        """Have a handler told of signals whose type fits a pattern.

        Without `agent` these are the signals that were told to all, with it those to that agent and no
        others.
        """
        ...

    async def close(self) -> None:
        """Tell nobody anything any more; doing it again is no error."""
        ...
