"""Queue the envelopes of an agent, and record the signals that were dropped.

Signals of others wait in a mailbox of limited size: a sender to a full one waits, first come, first served.
Results of the agent's own work are accepted beyond that limit, up to another one. They cannot wait for room,
because the agent that would make it is the one that waits for them.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import msgspec
from anyio import Event

from omoide import clock
from omoide.core.signal import Signal

if TYPE_CHECKING:
    from omoide.core.action import Directive, Error
    from omoide.core.agent import Agent


log = logging.getLogger("omoide.runtime")

MAX_DROPPED = 1_000
"""The number of dropped signals that are remembered."""

INTERNAL_LIMIT = 10_000
"""The number of items of the agent's own work that may wait beyond the size of a mailbox."""
AgentChange = Callable[["Agent"], "tuple[Agent, list[Directive]]"]


class DroppedSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was accepted, or offered, and will not be handled."""

    agent_id: str
    signal: Signal
    reason: str
    at: int
    accepted: bool = True
    """True if the agent had accepted it; False for a signal that was rejected."""


class DroppedSignals:
    """The last dropped signals, and the number of all of them."""

    def __init__(self, listener: Callable[[DroppedSignal], Any] | None = None) -> None:
        self._recent: deque[DroppedSignal] = deque(maxlen=MAX_DROPPED)
        self._listener = listener
        self.count = 0

    def __iter__(self) -> Iterator[DroppedSignal]:
        return iter([*self._recent])

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, agent_id: str, signal: Signal, reason: str, *, accepted: bool) -> None:
        """Record a dropped signal, log it, and pass it to the listener, whose errors are logged."""
        drop = DroppedSignal(
            agent_id=agent_id, signal=signal, reason=reason, at=clock.now(), accepted=accepted
        )
        self.count += 1
        self._recent.append(drop)
        log.warning("agent %s: dropped a signal of type %s: %s", agent_id, signal.type, reason)
        if self._listener is not None:
            try:
                self._listener(drop)
            except Exception as error:
                log.warning("on_dropped failed with %s", type(error).__name__)


class PendingReply:
    """A result that a caller waits for; like a future, but bound to no event loop."""

    __slots__ = ("_error", "_event", "_value")

    def __init__(self) -> None:
        self._event = Event()
        self._value: Any = None
        self._error: Exception | None = None

    def set_result(self, value: Any) -> None:
        """Resolve the reply; only the first result or exception counts."""
        if not self._event.is_set():
            self._value = value
            self._event.set()

    def set_exception(self, error: Exception) -> None:
        """Resolve the reply with an exception."""
        if not self._event.is_set():
            self._error = error
            self._event.set()

    async def wait(self) -> Any:
        """Return the result once it is there, or raise the exception."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Envelope:
    """A signal on its way into an agent, and the reply that its sender waits for."""

    __slots__ = ("awaits_effects", "internal", "reply", "signal")

    def __init__(
        self,
        signal: Signal,
        reply: PendingReply | None = None,
        *,
        internal: bool = False,
        awaits_effects: bool = False,
    ) -> None:
        self.signal = signal
        self.reply = reply
        self.internal = internal
        """True if the runtime itself sent it: an agent need not have a route for it."""
        self.awaits_effects = awaits_effects
        """True if the reply comes after the effectful actions of the signal, and raises their first error."""


class AwaitedEffects:
    """The effectful actions of a signal whose sender waits for them."""

    __slots__ = ("began", "error", "reply", "running", "signal")

    def __init__(self, signal: Signal, reply: PendingReply) -> None:
        self.signal = signal
        self.reply = reply
        self.began = False
        """True once all directives of the signal were executed."""
        self.running = 0
        self.error: Error | None = None
        """The first error about the signal."""


class OwnChange:
    """A change of the agent by its own work, and the signal and the action that led to it."""

    __slots__ = ("action", "apply", "signal")

    def __init__(self, apply: AgentChange, signal: Signal | None = None, action: str | None = None) -> None:
        self.apply = apply
        self.signal = signal
        self.action = action


class SaveRequest:
    """A request to save the agent, once everything before it is handled."""

    __slots__ = ("reply",)

    def __init__(self, reply: PendingReply) -> None:
        self.reply = reply


class PluginChange:
    """A change of an agent's plugins, and the reply that its caller waits for."""

    __slots__ = ("change", "reply")

    def __init__(self, change: Callable[[Agent], Agent], reply: PendingReply) -> None:
        self.change = change
        self.reply = reply


class _Sender:
    """A sender that waits until there is room."""

    __slots__ = ("accepted", "envelope", "event", "on_accepted", "rejected")

    def __init__(self, envelope: Envelope, on_accepted: Callable[[], object]) -> None:
        self.envelope = envelope
        self.on_accepted = on_accepted
        self.event = Event()
        self.accepted = False
        self.rejected = False


MailboxItem = Envelope | SaveRequest | PluginChange | OwnChange


class Mailbox:
    """A queue with one reader, its agent."""

    __slots__ = ("_arrival", "_closed", "_items", "_senders", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._items: deque[MailboxItem] = deque()
        # Made on first use: most of many thousand agents never have a full mailbox.
        self._senders: deque[_Sender] | None = None
        self._arrival: Event | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """True if signals of others are rejected."""
        return self._closed

    def put_nowait(self, envelope: Envelope) -> bool:
        """Add an envelope if there is room now and no sender waits, and return whether it was added."""
        # A waiting sender goes first, even where an item was just taken.
        if self._closed or self._senders or len(self._items) >= self.size:
            return False
        self._items.append(envelope)
        self.wake()
        return True

    async def put(self, envelope: Envelope, on_accepted: Callable[[], object] = lambda: None) -> bool:
        """Add an envelope, once there is room, and return whether it was added.

        `on_accepted` is called at that moment, because the sender may be cancelled before it resumes.
        """
        if self.put_nowait(envelope):
            on_accepted()
            return True
        if self._closed:
            return False
        if self._senders is None:
            self._senders = deque()
        sender = _Sender(envelope, on_accepted)
        self._senders.append(sender)
        try:
            await sender.event.wait()
        except BaseException:
            # An accepted or rejected sender has left the queue already.
            if not sender.accepted and not sender.rejected:
                self._senders.remove(sender)
            raise
        return sender.accepted

    def put_internal(self, item: MailboxItem) -> bool:
        """Add an item of the agent's own work, also beyond the size, and return whether there was room."""
        if len(self._items) >= self.size + INTERNAL_LIMIT:
            return False
        self._items.append(item)
        self.wake()
        return True

    def get_nowait(self) -> MailboxItem | None:
        """Return the next item, or None, and let the next waiting sender in."""
        if not self._items:
            return None
        item = self._items.popleft()
        if self._senders and len(self._items) < self.size:
            sender = self._senders.popleft()
            self._items.append(sender.envelope)
            sender.accepted = True
            sender.on_accepted()
            sender.event.set()
        return item

    async def wait(self) -> None:
        """Wait until an item arrives, or until `wake` is called."""
        if self._items:
            return
        # An event cannot be cleared, so each wait makes its own.
        self._arrival = Event()
        try:
            await self._arrival.wait()
        finally:
            self._arrival = None

    def wake(self) -> None:
        """Resume the reader, so that it checks its state again."""
        if self._arrival is not None:
            self._arrival.set()

    def close(self) -> None:
        """Reject all senders from now on, those that wait included."""
        self._closed = True
        while self._senders:
            sender = self._senders.popleft()
            sender.rejected = True
            sender.event.set()
        self.wake()

    def reopen(self) -> None:
        """Accept signals of others again."""
        self._closed = False

    def drain(self) -> list[MailboxItem]:
        """Remove and return all items."""
        items = [*self._items]
        self._items.clear()
        return items
