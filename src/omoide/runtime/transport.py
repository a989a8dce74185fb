"""Move signals between agents: the transport protocol, and the bus inside a process.

A transport has three methods. `publish` sends a signal to all subscribers of its type, or `to` one agent by
its id, wherever it runs. Every transport guarantees:

- a handler is called with one signal at a time, in the order in which one publisher published them;
- what a handler raises is reported, and does not keep the signal from other handlers;
- `publish` returns when the signal was handed over, to the handlers or to storage for them, so that a
  publisher that is too fast is slowed down;
- after a subscription or the transport is closed, its handlers are called no more.

Not guaranteed: that a signal arrives only once (a transport with storage may deliver it again; `source` and
`id` are unique together, see `RecentSignals`), an order among signals of several publishers, or an answer,
which is another signal.

The bus needs nothing but an event loop. Each subscription has a queue of its own: a slow handler holds up the
publisher, who waits for it, but no other subscriber. A handler that publishes does not wait, so that no two
handlers can wait for each other.
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

Handler = Callable[[Signal], Awaitable[object] | object]
"""A plain or async function that takes a signal; the signal is accepted when it returns."""

DIGEST_BYTES = 16
YIELD_EVERY = 16
"""The number of signals that a handler gets before other tasks have their turn."""
OnError = Callable[[Signal, Exception], object]
_log = logging.getLogger("omoide")
_handler_context: ContextVar[_HandlerContext | None] = ContextVar("omoide_bus_handling", default=None)


class Subscription(Protocol):
    """A handler that is subscribed to signals."""

    async def close(self) -> None:
        """Call the handler no more; closing again is no error."""


@runtime_checkable
class Transport(Protocol):
    """Delivers signals to subscribers."""

    async def publish(self, signal: Signal, *, to: str | None = None) -> None:
        """Send a signal to all subscribers of its type, or only to those for one agent.

        Raises:
            NotRunning: The transport knows that there is no subscription for that agent.
        """

    async def subscribe(self, pattern: str, handler: Handler, *, agent: str | None = None) -> Subscription:
        """Call a handler with each signal whose type matches a pattern.

        Without `agent`, these are the signals that were published to all; with it, those to that agent and no
        others.
        """

    async def close(self) -> None:
        """Deliver nothing any more; closing again is no error."""


def signal_digest(signal: Signal, *prefix: str) -> str:
    """Return a short digest that identifies a signal, and the prefix that tells its copies apart.

    Neither a source nor an id has a control character, so the parts cannot run into each other.
    """
    parts = "\0".join((*prefix, signal.source, signal.id))
    return urlsafe_b64encode(blake2b(parts.encode(), digest_size=DIGEST_BYTES).digest()).decode().rstrip("=")


class RecentSignals:
    """The digests of the last signals, oldest first, to recognise one that is delivered again."""

    __slots__ = ("_digests", "size")

    def __init__(self, size: int, digests: Iterable[str] = ()) -> None:
        self.size = size
        self._digests = dict.fromkeys(digests)

    def __contains__(self, digest: str) -> bool:
        return digest in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, digest: str) -> None:
        """Add a digest, and remove the oldest ones beyond the size."""
        self._digests.pop(digest, None)
        self._digests[digest] = None
        while len(self._digests) > self.size:
            del self._digests[next(iter(self._digests))]

    def digests(self) -> tuple[str, ...]:
        """Return all digests, oldest first."""
        return tuple(self._digests)


class _HandlerContext:
    """State of a handler call; `active` while it runs, here or in a task that started this one."""

    def __init__(self) -> None:
        self.active = True


class _Delivery:
    """A published signal, and the number of subscriptions that have not accepted it yet."""

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
    """A handler on the bus, and the queue of its signals."""

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
        """The agent that it is for, or else its pattern."""
        return self.pattern if self.agent is None else self.agent

    async def close(self) -> None:
        """Call the handler no more; a call that is running ends by itself."""
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
        node = self
        for segment in subscription.pattern.split("."):
            node = node.children.setdefault(segment, _PatternNode(segment))
        node.subscriptions[subscription._number] = subscription

    def remove(self, subscription: BusSubscription) -> None:
        """Remove a subscription, and the branch that it leaves empty."""
        path = [self]
        for segment in subscription.pattern.split("."):
            if segment not in path[-1].children:
                return
            path.append(path[-1].children[segment])
        path[-1].subscriptions.pop(subscription._number, None)
        while len(path) > 1 and not path[-1].subscriptions and not path[-1].children:
            del path[-2].children[path.pop()._segment]

    def find(self, signal_type: str) -> list[BusSubscription]:
        """Return the subscriptions that match a signal type, oldest first."""
        nodes = set(self._expand_wildcards())
        for segment in signal_type.split("."):
            # `**` matches any number of segments, so its node stays reached.
            reached = {node for node in nodes if node._segment == patterns.MULTI_WILDCARD}
            for node in nodes:
                for branch in (segment, patterns.SINGLE_WILDCARD):
                    if (child := node.children.get(branch)) is not None:
                        reached.update(child._expand_wildcards())
            nodes = reached
        matches = (subscription for node in nodes for subscription in node.subscriptions.values())
        return sorted(matches, key=lambda subscription: subscription._number)

    def all_subscriptions(self) -> list[BusSubscription]:
        """Return every subscription at this node and below."""
        below = (subscription for node in self.children.values() for subscription in node.all_subscriptions())
        return [*self.subscriptions.values(), *below]

    def _expand_wildcards(self) -> Iterator[_PatternNode]:
        node: _PatternNode | None = self
        while node is not None:
            yield node
            node = node.children.get(patterns.MULTI_WILDCARD)


class Bus:
    """The transport inside a process, used as `async with Bus() as bus`.

    Args:
        on_error: A function that gets the signal and what a handler raised; by default it is logged.
        max_pending: The number of signals that may wait for one subscription. What handlers publish beyond
            that is dropped, and reported as `MailboxFull`.
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
            # The task group would wrap it, although none of its tasks failed.
            await tasks.__aexit__(None, None, None)
            return None
        return await tasks.__aexit__(kind, error, trace)

    async def publish(self, signal: Signal, *, to: str | None = None) -> None:
        """Send a signal to all subscribers of its type, or to one agent; return when every handler has.

        If it is cancelled while it waits, the signal is delivered nevertheless.

        Raises:
            NotRunning: There is no subscription for the agent.
        """
        check_instance(signal, "signal", kind=Signal)
        tasks = self._require_open(for_use=True)
        root = self._roots.get(None if to is None else ids.check(to, "to"))
        if root is None:
            if to is not None:
                raise NotRunning(to)
            return
        # The context variable is inherited by tasks that a handler starts, and may outlive its call.
        in_handler = (context := _handler_context.get()) is not None and context.active
        receivers = [
            subscription
            for subscription in root.find(signal.type)
            if not in_handler or self._has_capacity(subscription, signal)
        ]
        delivery = _Delivery(signal, len(receivers))
        for subscription in receivers:
            subscription._queue.append(delivery)
            # A worker runs only while there is something to deliver, so that an idle subscription needs no
            # task.
            if not subscription._busy:
                subscription._busy = True
                tasks.start_soon(self._run_subscription, subscription)
        if receivers and not in_handler:
            await delivery.done.wait()
            if delivery.lost:
                raise _closed_error()

    async def subscribe(self, pattern: str, handler: Handler, *, agent: str | None = None) -> BusSubscription:
        """Call a handler with what is published to all, or with what is published to one agent."""
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
        """Deliver nothing any more, and cancel the handlers that are running."""
        self._closed = True
        for scope in self._worker_scopes:
            scope.cancel()
        roots = [*self._roots.values()]
        for root in roots:
            for subscription in root.all_subscriptions():
                subscription._cancel(lost=True)

    async def _run_subscription(self, subscription: BusSubscription) -> None:
        """Deliver the queue of a subscription, until it is empty."""
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
        context = _HandlerContext()
        _handler_context.set(context)
        lost = False
        try:
            result = subscription._handler(delivery.signal)
            if isawaitable(result):
                await result
        except anyio.get_cancelled_exc_class():
            # A cancellation of this task has a deadline of -inf; any other comes from inside the handler.
            lost = anyio.current_effective_deadline() == -inf
            if lost:
                raise
            self._report(
                subscription,
                delivery.signal,
                Dropped(subscription.name, delivery.signal.type, "its handler was cancelled"),
            )
        except Exception as error:
            self._report(subscription, delivery.signal, error)
        finally:
            context.active = False
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
        root = self._roots.get(subscription.agent)
        if root is not None:
            root.remove(subscription)
            if not root.children:
                del self._roots[subscription.agent]

    def _require_open(self, *, for_use: bool = False) -> TaskGroup:
        if self._tasks is None:
            raise Invalid("bus", "is not open", "use it inside async with")
        if self._closed and for_use:
            raise _closed_error()
        return self._tasks


def _closed_error() -> Invalid:
    return Invalid("bus", "is closed", "publish and subscribe before that, or open another one")
