"""Transport protocol and in-process bus.

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

The bus is a transport that needs nothing but an event loop. Each subscription has a queue of its own: a slow
handler holds up the publisher, who waits for it, but no other subscriber. A handler may publish; it does not
wait then, so that no two handlers wait for each other.
"""

from __future__ import annotations

import logging
from base64 import urlsafe_b64encode
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextvars import ContextVar
from hashlib import blake2b
from inspect import isawaitable
from itertools import count
from math import inf
from types import TracebackType
from typing import Protocol, Self, runtime_checkable

import anyio
from anyio.abc import TaskGroup
from anyio.lowlevel import checkpoint

from omoide import ids
from omoide.core import signal as patterns
from omoide.core.signal import Signal
from omoide.core.value import check_count, check_function, check_instance
from omoide.errors import Dropped, Invalid, MailboxFull, NotRunning

# transport: How do signals get from one agent to another?


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


DIGEST_BYTES = 16


def signal_digest(signal: Signal, *prefix: str) -> str:
    """A short text that stands for a signal, and for what else makes it another one.

    Neither a source nor an id holds a control character, so the parts cannot run into each other.
    """
    parts = "\0".join((*prefix, signal.source, signal.id))
    return urlsafe_b64encode(blake2b(parts.encode(), digest_size=DIGEST_BYTES).digest()).decode().rstrip("=")


class RecentSignals:
    """The marks of the last signals, oldest first."""

    __slots__ = ("_digests", "size")

    def __init__(self, size: int, digests: Iterable[str] = ()) -> None:
        self.size = size
        self._digests = dict.fromkeys(digests)

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, digest: str) -> None:
        """Remember a mark, and forget the oldest where there are too many."""
        self._digests.pop(digest, None)
        self._digests[digest] = None
        while len(self._digests) > self.size:
            del self._digests[next(iter(self._digests))]

    def digests(self) -> tuple[str, ...]:
        """All of them, oldest first."""
        return tuple(self._digests)


# bus: How do signals travel inside one process?


YIELD_EVERY = 16
"""How many signals a handler is told of before others have their turn."""

OnError = Callable[[Signal, Exception], object]

_log = logging.getLogger("omoide")


class _HandlerContext:
    """Whether a handler is at work in this task, or in the one that started it."""

    def __init__(self) -> None:
        self.active = True


_handler_context: ContextVar[_HandlerContext | None] = ContextVar("omoide_bus_handling", default=None)


class _Delivery:
    """A signal that was published, and how many have not accepted it yet."""

    def __init__(self, signal: Signal, receivers: int) -> None:
        self.signal = signal
        self.remaining = receivers
        self.lost = False
        self.done = anyio.Event()

    def complete(self, *, lost: bool = False) -> None:
        self.remaining -= 1
        self.lost = self.lost or lost
        if not self.remaining:
            self.done.set()


class BusSubscription:
    """A handler on the bus, and what waits for it."""

    def __init__(self, bus: Bus, pattern: str, handler: Handler, agent: str | None, number: int) -> None:
        self.pattern = pattern
        self.agent = agent
        self._handler = handler
        self._bus = bus
        self._number = number
        self._queue: deque[_Delivery] = deque()
        self._busy = False

    @property
    def name(self) -> str:
        """Whom it is for: an agent, or else a pattern."""
        return self.pattern if self.agent is None else self.agent

    async def close(self) -> None:
        """Be told no more; a call that is going on ends by itself."""
        self._cancel(lost=False)

    def _cancel(self, *, lost: bool) -> None:
        self._bus._remove(self)
        while self._queue:
            self._queue.popleft().complete(lost=lost)


class _PatternNode:
    """A node in the tree of patterns, one segment deeper each time, so that publishing scans no list."""

    def __init__(self, segment: str = "") -> None:
        self.subscriptions: dict[int, BusSubscription] = {}
        self.children: dict[str, _PatternNode] = {}
        self._segment = segment

    def add(self, subscription: BusSubscription) -> None:
        place = self
        for segment in subscription.pattern.split("."):
            place = place.children.setdefault(segment, _PatternNode(segment))
        place.subscriptions[subscription._number] = subscription

    def remove(self, subscription: BusSubscription) -> None:
        """Forget a subscription, and the branch that it leaves empty."""
        way = [self]
        for segment in subscription.pattern.split("."):
            if segment not in way[-1].children:
                return
            way.append(way[-1].children[segment])
        way[-1].subscriptions.pop(subscription._number, None)
        while len(way) > 1 and not way[-1].subscriptions and not way[-1].children:
            del way[-2].children[way.pop()._segment]

    def find(self, signal_type: str) -> list[BusSubscription]:
        """Who subscribed to a type of signal, the oldest subscription first."""
        places = set(self._expand_wildcards())
        for segment in signal_type.split("."):
            onward = {place for place in places if place._segment == patterns.MULTI_WILDCARD}
            for place in places:
                for wanted in (segment, patterns.SINGLE_WILDCARD):
                    if (found := place.children.get(wanted)) is not None:
                        onward.update(found._expand_wildcards())
            places = onward
        found_here = (subscription for place in places for subscription in place.subscriptions.values())
        return sorted(found_here, key=lambda subscription: subscription._number)

    def all_subscriptions(self) -> list[BusSubscription]:
        """Every subscription from here on."""
        deeper = (one for place in self.children.values() for one in place.all_subscriptions())
        return [*self.subscriptions.values(), *deeper]

    def _expand_wildcards(self) -> Iterator[_PatternNode]:
        place: _PatternNode | None = self
        while place is not None:
            yield place
            place = place.children.get(patterns.MULTI_WILDCARD)


class Bus:
    """The transport inside a process, used as `async with Bus() as bus`.

    `on_error` is told what handlers raise; otherwise it is logged. At most `waiting` signals wait for one
    subscription: what handlers publish beyond that is dropped, and reported as `MailboxFull`.
    """

    def __init__(self, *, on_error: OnError | None = None, max_pending: int = 10_000) -> None:
        self._on_error = on_error if on_error is None else check_function(on_error, "on_error")
        self._max_pending = check_count(max_pending, "max_pending")
        self._roots: dict[str | None, _PatternNode] = {}
        self._count = count()
        self._tasks: TaskGroup | None = None
        self._worker_scopes: set[anyio.CancelScope] = set()
        self._closed = False

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise Invalid("bus", "was opened before", "make another one")
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        tasks = self._require_open()
        await self.close()
        if isinstance(error, Exception):
            # The group would wrap it, and it is none of its tasks that failed.
            await tasks.__aexit__(None, None, None)
            return None
        return await tasks.__aexit__(kind, error, trace)

    async def publish(self, signal: Signal, *, to: str | None = None) -> None:
        """Tell all who subscribed to its type, or one agent; it returns when every handler has.

        If it is cancelled while it waits, the signal arrives nevertheless. `NotRunning` if nobody subscribed
        for the agent.
        """
        check_instance(signal, "signal", kind=Signal)
        tasks = self._require_open(for_use=True)
        place = self._roots.get(None if to is None else ids.check(to, "to"))
        if place is None:
            if to is not None:
                raise NotRunning(to)
            return
        inside = (handling := _handler_context.get()) is not None and handling.active
        told = [one for one in place.find(signal.type) if not inside or self._has_capacity(one, signal)]
        sending = _Delivery(signal, len(told))
        for one in told:
            one._queue.append(sending)
            if not one._busy:
                one._busy = True
                tasks.start_soon(self._run_subscription, one)
        if told and not inside:
            await sending.done.wait()
            if sending.lost:
                raise _closed_error()

    async def subscribe(self, pattern: str, handler: Handler, *, agent: str | None = None) -> BusSubscription:
        """Have a handler told of what is published to all, or of what is published to one agent."""
        self._require_open(for_use=True)
        subscription = BusSubscription(
            self,
            patterns.check_pattern(pattern),
            check_function(handler, "handler"),
            None if agent is None else ids.check(agent, "agent"),
            next(self._count),
        )
        self._roots.setdefault(agent, _PatternNode()).add(subscription)
        return subscription

    async def close(self) -> None:
        """Tell nobody anything any more; handlers that are at work are cancelled."""
        self._closed = True
        for scope in self._worker_scopes:
            scope.cancel()
        places = [*self._roots.values()]
        for place in places:
            for one in place.all_subscriptions():
                one._cancel(lost=True)

    async def _run_subscription(self, subscription: BusSubscription) -> None:
        """Hand over what waits for a subscription, until nothing does."""
        handled = 0
        with anyio.CancelScope() as scope:
            self._worker_scopes.add(scope)
            try:
                while subscription._queue:
                    await self._deliver(subscription, subscription._queue.popleft())
                    handled += 1
                    if handled % YIELD_EVERY == 0:
                        await checkpoint()
            finally:
                subscription._busy = False
                self._worker_scopes.discard(scope)

    async def _deliver(self, subscription: BusSubscription, delivery: _Delivery) -> None:
        handling = _HandlerContext()
        _handler_context.set(handling)
        lost = False
        try:
            given = subscription._handler(delivery.signal)
            if isawaitable(given):
                await given
        except anyio.get_cancelled_exc_class():
            lost = anyio.current_effective_deadline() == -inf
            if lost:
                raise
            self._report(
                subscription,
                delivery.signal,
                Dropped(subscription.name, delivery.signal.type, "its handler gave up"),
            )
        except Exception as error:
            self._report(subscription, delivery.signal, error)
        finally:
            handling.active = False
            delivery.complete(lost=lost)

    def _has_capacity(self, subscription: BusSubscription, signal: Signal) -> bool:
        if len(subscription._queue) < self._max_pending:
            return True
        self._report(subscription, signal, MailboxFull(subscription.name, signal.type, self._max_pending))
        return False

    def _report(self, subscription: BusSubscription, signal: Signal, error: Exception) -> None:
        try:
            if self._on_error is not None:
                self._on_error(signal, error)
                return
        except Exception as other:
            _log.error("on_error of a bus failed with %s", type(other).__name__)
        _log.error(
            "signal %s: the handler for %s failed with %s", signal.id, subscription.name, type(error).__name__
        )

    def _remove(self, subscription: BusSubscription) -> None:
        place = self._roots.get(subscription.agent)
        if place is not None:
            place.remove(subscription)
            if not place.children:
                del self._roots[subscription.agent]

    def _require_open(self, *, for_use: bool = False) -> TaskGroup:
        if self._tasks is None:
            raise Invalid("bus", "is not open", "use it inside async with")
        if self._closed and for_use:
            raise _closed_error()
        return self._tasks


def _closed_error() -> Invalid:
    return Invalid("bus", "is closed", "publish and subscribe before that, or open another one")
