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
from omoide.core.action import Directive, Error
from omoide.core.signal import Signal

if TYPE_CHECKING:
    from omoide.core.agent import Agent


# drops: Which signals were not handled, and why?


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


# mailbox: What waits for an agent?


OWN_LIMIT = 10_000
"""How many letters of its own making may wait beyond the size of a mailbox."""

Change = Callable[["Agent"], "tuple[Agent, list[Directive]]"]


class Reply:
    """An answer that somebody waits for."""

    __slots__ = ("_error", "_event", "_value")

    def __init__(self) -> None:
        self._event = Event()
        self._value: Any = None
        self._error: Exception | None = None

    def give(self, value: Any) -> None:
        """Answer; only the first answer counts."""
        if not self._event.is_set():
            self._value = value
            self._event.set()

    def fail(self, error: Exception) -> None:
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


class Letter:
    """A signal on its way into an agent, with whoever waits for what comes of it."""

    __slots__ = ("own", "reply", "signal")

    def __init__(self, signal: Signal, reply: Reply | None = None, *, own: bool = False) -> None:
        self.signal = signal
        self.reply = reply
        self.own = own
        """Whether the runtime itself tells it: an agent need not have a route for it."""


class Save:
    """That an agent is to be put into the vault, once all before this is done."""

    __slots__ = ("reply",)

    def __init__(self, reply: Reply) -> None:
        self.reply = reply


class _Sender:
    """Somebody who waits for a place."""

    __slots__ = ("event", "letter", "on_taken", "refused", "taken")

    def __init__(self, letter: Letter, on_taken: Callable[[], object]) -> None:
        self.letter = letter
        self.on_taken = on_taken
        self.event = Event()
        self.taken = False
        self.refused = False


Item = Letter | Save | Change


class Mailbox:
    """A queue with one reader, its agent."""

    __slots__ = ("_arrived", "_closed", "_items", "_senders", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._items: deque[Item] = deque()
        self._senders: deque[_Sender] | None = None
        self._arrived: Event | None = None
        self._closed = False

    def __len__(self) -> int:
        return len(self._items)

    @property
    def closed(self) -> bool:
        """Whether others are turned away."""
        return self._closed

    def offer(self, letter: Letter) -> bool:
        """Take a letter if there is room for it now, and nobody came before."""
        if self._closed or self._senders or len(self._items) >= self.size:
            return False
        self._items.append(letter)
        self.wake()
        return True

    async def put(self, letter: Letter, on_taken: Callable[[], object] = lambda: None) -> bool:
        """Take a letter, once there is room for it; whether it was taken.

        `on_taken` is called in that moment: whoever waits may be cancelled before it hears of it.
        """
        if self.offer(letter):
            on_taken()
            return True
        if self._closed:
            return False
        if self._senders is None:
            self._senders = deque()
        sender = _Sender(letter, on_taken)
        self._senders.append(sender)
        try:
            await sender.event.wait()
        except BaseException:
            if not sender.taken and not sender.refused:
                self._senders.remove(sender)
            raise
        return sender.taken

    def push(self, item: Item) -> bool:
        """Take something of the agent's own, beyond the size too; whether there was room."""
        if len(self._items) >= self.size + OWN_LIMIT:
            return False
        self._items.append(item)
        self.wake()
        return True

    def take(self) -> Item | None:
        """The next one, if there is any."""
        if not self._items:
            return None
        item = self._items.popleft()
        if self._senders and len(self._items) < self.size:
            sender = self._senders.popleft()
            self._items.append(sender.letter)
            sender.taken = True
            sender.on_taken()
            sender.event.set()
        return item

    async def wait(self) -> None:
        """Until something comes, or somebody wakes the reader."""
        if self._items:
            return
        self._arrived = Event()
        try:
            await self._arrived.wait()
        finally:
            self._arrived = None

    def wake(self) -> None:
        """Have the reader look again."""
        if self._arrived is not None:
            self._arrived.set()

    def close(self) -> None:
        """Turn everybody away from now on, those who wait included."""
        self._closed = True
        while self._senders:
            sender = self._senders.popleft()
            sender.refused = True
            sender.event.set()
        self.wake()

    def reopen(self) -> None:
        """Let others in again."""
        self._closed = False

    def empty(self) -> list[Item]:
        """All that still waits, taken out."""
        left = [*self._items]
        self._items.clear()
        return left
