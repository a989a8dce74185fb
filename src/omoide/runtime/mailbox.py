"""Mailbox, envelopes, dropped signals.

Signals from others wait in a mailbox of limited size: who sends to a full one waits, in the order of coming.
What the agent's own work brings back is let in beyond that limit, up to another one, because nobody could
wait for it.
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
    from omoide.core.action import Directive
    from omoide.core.agent import Agent


# drops: Which signals were not handled, and why?


log = logging.getLogger("omoide.runtime")

MAX_DROPPED = 1_000
"""How many are remembered."""


class DroppedSignal(msgspec.Struct, frozen=True, kw_only=True):
    """A signal that was accepted, or tried, and will not be handled."""

    agent_id: str
    signal: Signal
    reason: str
    at: int
    accepted: bool = True
    """Whether the agent had accepted it; one that was turned away was never its own."""


class DroppedSignals:
    """The last signals that were dropped, and how many there were in all."""

    def __init__(self, listener: Callable[[DroppedSignal], Any] | None = None) -> None:
        self._recent: deque[DroppedSignal] = deque(maxlen=MAX_DROPPED)
        self._listener = listener
        self.count = 0

    def __iter__(self) -> Iterator[DroppedSignal]:
        return iter([*self._recent])

    def __len__(self) -> int:
        return len(self._recent)

    def add(self, agent_id: str, signal: Signal, reason: str, *, accepted: bool) -> None:
        """Report one; a listener that fails is written down."""
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


# mailbox: What waits for an agent?


INTERNAL_LIMIT = 10_000
"""How many letters of its own making may wait beyond the size of a mailbox."""

AgentChange = Callable[["Agent"], "tuple[Agent, list[Directive]]"]


class PendingReply:
    """An answer that somebody waits for."""

    __slots__ = ("_error", "_event", "_value")

    def __init__(self) -> None:
        self._event = Event()
        self._value: Any = None
        self._error: Exception | None = None

    def set_result(self, value: Any) -> None:
        """Answer; only the first answer counts."""
        if not self._event.is_set():
            self._value = value
            self._event.set()

    def set_exception(self, error: Exception) -> None:
        """Answer with an error."""
        if not self._event.is_set():
            self._error = error
            self._event.set()

    async def wait(self) -> Any:
        """The answer, once it is there."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Envelope:
    """A signal on its way into an agent, with whoever waits for what comes of it."""

    __slots__ = ("internal", "reply", "signal")

    def __init__(self, signal: Signal, reply: PendingReply | None = None, *, internal: bool = False) -> None:
        self.signal = signal
        self.reply = reply
        self.internal = internal
        """Whether the runtime itself tells it: an agent need not have a route for it."""


class SaveRequest:
    """That an agent is to be put into the vault, once all before this is done."""

    __slots__ = ("reply",)

    def __init__(self, reply: PendingReply) -> None:
        self.reply = reply


class _Sender:
    """Somebody who waits for a place."""

    __slots__ = ("accepted", "envelope", "event", "on_accepted", "rejected")

    def __init__(self, envelope: Envelope, on_accepted: Callable[[], object]) -> None:
        self.envelope = envelope
        self.on_accepted = on_accepted
        self.event = Event()
        self.accepted = False
        self.rejected = False


MailboxItem = Envelope | SaveRequest | AgentChange


class Mailbox:
    """A queue with one reader, its agent."""

    __slots__ = ("_arrival", "_closed", "_items", "_senders", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._items: deque[MailboxItem] = deque()
        self._senders: deque[_Sender] | None = None
        self._arrival: Event | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether others are turned away."""
        return self._closed

    def put_nowait(self, envelope: Envelope) -> bool:
        """Take a letter if there is room for it now, and nobody came before."""
        if self._closed or self._senders or len(self._items) >= self.size:
            return False
        self._items.append(envelope)
        self.wake()
        return True

    async def put(self, envelope: Envelope, on_accepted: Callable[[], object] = lambda: None) -> bool:
        """Take a letter, once there is room for it; whether it was taken.

        `on_taken` is called in that moment: whoever waits may be cancelled before it hears of it.
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
            if not sender.accepted and not sender.rejected:
                self._senders.remove(sender)
            raise
        return sender.accepted

    def put_internal(self, item: MailboxItem) -> bool:
        """Take something of the agent's own, beyond the size too; whether there was room."""
        if len(self._items) >= self.size + INTERNAL_LIMIT:
            return False
        self._items.append(item)
        self.wake()
        return True

    def get_nowait(self) -> MailboxItem | None:
        """The next one, if there is any."""
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
        """Until something comes, or somebody wakes the reader."""
        if self._items:
            return
        self._arrival = Event()
        try:
            await self._arrival.wait()
        finally:
            self._arrival = None

    def wake(self) -> None:
        """Have the reader look again."""
        if self._arrival is not None:
            self._arrival.set()

    def close(self) -> None:
        """Turn everybody away from now on, those who wait included."""
        self._closed = True
        while self._senders:
            sender = self._senders.popleft()
            sender.rejected = True
            sender.event.set()
        self.wake()

    def reopen(self) -> None:
        """Let others in again."""
        self._closed = False

    def drain(self) -> list[MailboxItem]:
        """All that still waits, taken out."""
        left = [*self._items]
        self._items.clear()
        return left
