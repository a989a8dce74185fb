"""Transport signals over NATS with JetStream.

`NatsTransport` keeps the guarantees of every transport, and these:

- `publish` returns when the server has stored the signal; it waits through an outage, up to `request_timeout`
  seconds, and then raises `Unreachable`;
- a signal is acknowledged when every handler that matches has returned, and delivered again if its receiver
  breaks off before. A handler that raises is called again after a pause, and later signals wait; after
  `max_deliver` failures the signal is a dead letter, and reported;
- a signal that is published again within `duplicate_window` seconds is dropped by the server, one that is
  delivered again by the receiver, both by its source and id;
- a signal to an agent is stored for it, up to `max_age`, whether it runs at the moment or not. So `publish`
  does not know whether an agent is running; a fleet does, from its directory.

A channel reads the signals of one agent, or of one pattern: it pulls a message, passes it to every handler
that matches, acknowledges it when all have accepted, and pulls the next.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self, Unpack

import anyio
from anyio import CancelScope, create_task_group, get_cancelled_exc_class, move_on_after
from anyio.abc import TaskGroup

from omoide import ids
from omoide.core import signal as patterns
from omoide.core.signal import Signal
from omoide.core.value import check_function, check_instance
from omoide.errors import Dropped, Invalid, OmoideError, OwnedElsewhere, SignalTooLarge
from omoide.runtime.nats import connection, streams
from omoide.runtime.nats.connection import RETRY_DELAY_S, NatsConnection, NatsKwargs, NatsSettings
from omoide.runtime.nats.streams import ConsumerRef
from omoide.runtime.tasks import is_cancelled
from omoide.runtime.transport import Handler, RecentSignals, signal_digest

RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.4, 1.0)
"""The pauses before a handler that raised is called again."""

OnError = Callable[[Signal | None, Exception], object]
ErrorReporter = Callable[[str, Signal | None, Exception], None]

POLL_TIMEOUT_S = 20.0
"""The time that one request for the next message stays open."""
LEAVE_TIMEOUT_S = 2.0
"""The time that deleting a consumer may take."""
TAKEOVER_GRACE_S = 1.0
"""The pause after an agent's consumer vanished: the process that removed it creates its own meanwhile."""
DEDUPLICATION_WINDOW = 4_096
"""The number of signals that are remembered, to recognise one that is delivered again."""
log = logging.getLogger("omoide.runtime")
_current_channel: ContextVar[Any] = ContextVar("omoide_nats_inside", default=None)
HEADER_BYTES = 256
"""Room for the headers of a message."""
CLOSE_TIMEOUT_S = 5.0
ChannelKey = tuple[str, str]


class NatsSubscription:
    """A handler on a channel."""

    def __init__(
        self, pattern: str, handler: Handler, on_close: Callable[[NatsSubscription], Awaitable[None]]
    ) -> None:
        self.pattern = pattern
        self.handler = handler
        self.closed = False
        self._on_close = on_close

    async def close(self) -> None:
        """Call the handler no more; the signal of a call that is running is not acknowledged."""
        if not self.closed:
            self.closed = True
            await self._on_close(self)

    def is_closed(self) -> bool:
        """Return whether it is closed; a method, because a handler may close it between two checks."""
        return self.closed


class SignalDelivery:
    """Passes a signal to the handlers of a channel, and repeats those that raise."""

    def __init__(
        self, name: str, max_deliver: int, subscriptions: list[NatsSubscription], report: ErrorReporter
    ) -> None:
        self._name, self._max_deliver = name, max_deliver
        self._subscriptions, self._report = subscriptions, report
        self.has_failed = False
        """True if a handler raised over the last signal."""

    async def deliver(self, signal: Signal, attempts: int) -> bool | None:
        """Return whether all matching handlers accepted a signal; None where no handler is left."""
        self.has_failed = False
        # Delivered too often before: a signal that crashes every owner has to become a dead letter.
        if attempts >= self._max_deliver:
            return False
        matching = [
            subscription for subscription in self._subscriptions if signal.matches(subscription.pattern)
        ]
        if len(matching) == 1:
            return await self._call_handler(matching[0], signal, attempts)
        results: list[bool | None] = []

        async def call(subscription: NatsSubscription) -> None:
            results.append(await self._call_handler(subscription, signal, attempts))

        async with create_task_group() as tasks:
            for subscription in matching:
                tasks.start_soon(call, subscription)
        if matching and all(result is None for result in results):
            return None
        return all(result is not False for result in results)

    async def _call_handler(
        self, subscription: NatsSubscription, signal: Signal, attempts: int
    ) -> bool | None:
        while not subscription.is_closed():
            error: Exception
            try:
                result = subscription.handler(signal)
                if isawaitable(result):
                    await result
                return True
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                error = Dropped(self._name, signal.type, "its handler was cancelled")
            except Exception as exception:
                error = exception
            if subscription.is_closed():
                break
            self._report(self._name, signal, error)
            self.has_failed = True
            attempts += 1
            if attempts >= self._max_deliver:
                return False
            await anyio.sleep(RETRY_DELAYS_S[min(attempts, len(RETRY_DELAYS_S)) - 1])
        return None


class NatsChannel:
    """A consumer of a stream, and the handlers that it reads for."""

    def __init__(
        self,
        connection: NatsConnection,
        settings: NatsSettings,
        report: ErrorReporter,
        publish_dead_letter: Callable[[bytes, str | None, str], Awaitable[None]],
        *,
        pattern: str,
        agent: str | None,
    ) -> None:
        self.name = pattern if agent is None else agent
        self.subscriptions: list[NatsSubscription] = []
        self._delivery = SignalDelivery(self.name, settings.max_deliver, self.subscriptions, report)
        self.is_closing = False
        self.done = anyio.Event()
        self.cancel_scope = CancelScope()
        self.on_close: Callable[[], None] = lambda: None
        self.counts = {"accepted": 0, "again": 0, "dropped": 0}
        self._connection, self._settings = connection, settings
        self._report, self._publish_dead_letter = report, publish_dead_letter
        self._pattern, self._agent = pattern, agent
        self._consumer: ConsumerRef | None = None
        self._recent = RecentSignals(DEDUPLICATION_WINDOW)
        self._client: Any = None
        self._inbox_subscription: Any = None
        self._inbox = ""
        self._request_number = 0
        self._pull_scope: CancelScope | None = None
        self._current_message: Any = None
        self._keep_consumer = False

    async def open(self) -> None:
        """Create the consumer; that of an agent replaces the one of another process."""
        self._consumer = await self._create_consumer(takeover=True)

    async def run(self) -> None:
        """Read until no handler is left."""
        _current_channel.set(self)
        try:
            with self.cancel_scope:
                async with create_task_group() as tasks:
                    tasks.start_soon(self._send_progress)
                    await self._read_loop()
                    tasks.cancel_scope.cancel()
        finally:
            self.is_closing = True
            self.on_close()
            with CancelScope(shield=True):
                await self._release()
            self.done.set()

    async def remove(self, subscription: NatsSubscription) -> None:
        """Remove a handler; the channel ends with the last one."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
        if self.subscriptions or self.is_closing:
            return
        self.is_closing = True
        self.on_close()
        if self._pull_scope is not None:
            self._pull_scope.cancel()
        # A handler that closes its own subscription would wait for itself.
        if self._current_message is None and _current_channel.get() is not self:
            with move_on_after(LEAVE_TIMEOUT_S):
                await self.done.wait()

    # Reading

    async def _read_loop(self) -> None:
        while not self.is_closing:
            try:
                message = await self._next_message()
                if message is not None and not self.is_closing:
                    self._current_message = message
                    await self._process(message)
            except OwnedElsewhere as error:
                self._report(self.name, None, error)
                for subscription in self.subscriptions:  # its owner can see that it is closed
                    subscription.closed = True
                return
            except Exception as error:
                # Whatever goes wrong here, the stream still has the message, and it is read again.
                if connection.is_client_error(error):
                    log.info("nats: %s: reads again after: %s", self.name, type(error).__name__)
                else:
                    self._report(self.name, None, error)
                await anyio.sleep(RETRY_DELAY_S)
            finally:
                self._current_message = None

    async def _next_message(self) -> Any:
        """Return the next message, or None where there was none for a while."""
        await self._connection.wait_connected()
        if self.is_closing:  # closed meanwhile: nothing would cancel a pull that begins now
            return None
        message: Any = None
        is_gone = False
        with self._connection.cancel_on_disconnect(), CancelScope() as self._pull_scope:
            try:
                message, is_gone = await self._pull()
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                # The client was closed meanwhile, and cancelled what we awaited.
        self._pull_scope = None
        if is_gone and not self.is_closing:
            await self._recreate_consumer()
        return message

    async def _pull(self) -> tuple[Any, bool]:
        """Return a message if one came, and whether the consumer seems to be gone."""
        if self._client is not self._connection.client:
            self._client = self._connection.client
            self._inbox = self._client.new_inbox()
            self._inbox_subscription = await self._client.subscribe(f"{self._inbox}.*")
        assert self._consumer is not None
        self._request_number += 1
        reply_subject = f"{self._inbox}.{self._request_number}"
        request = json.dumps({"batch": 1, "expires": int(POLL_TIMEOUT_S * 1e9)}).encode()
        subject = f"$JS.API.CONSUMER.MSG.NEXT.{self._consumer.stream}.{self._consumer.name}"
        await self._client.publish(subject, request, reply_subject)
        while True:
            try:
                message = await self._inbox_subscription.next_msg(timeout=POLL_TIMEOUT_S + 1)
            except TimeoutError:
                return None, False
            # Messages come on their own subject, status replies on that of the request.
            if not message.subject.startswith(self._inbox):
                return message, False
            if message.subject != reply_subject:
                continue  # about an earlier request
            headers = message.headers or {}
            # 503: no consumer answers, 409: it was deleted or refuses the request, 100: a heartbeat.
            status, description = headers.get("Status"), str(headers.get("Description", "")).lower()
            if status == "503" or (status == "409" and "deleted" in description):
                return None, True
            if status == "409":
                await anyio.sleep(RETRY_DELAY_S)
            if status != "100":
                return None, False

    async def _recreate_consumer(self) -> None:
        """Read on with a new consumer, where the server has lost the old one."""
        assert self._consumer is not None
        if await streams.consumer_exists(self._connection, self._consumer):
            await anyio.sleep(RETRY_DELAY_S)  # a leader is being elected
            return
        with CancelScope() as self._pull_scope:
            await anyio.sleep(0 if self._agent is None else TAKEOVER_GRACE_S)
        self._pull_scope = None
        if self.is_closing:
            return
        self._consumer = await self._create_consumer(takeover=False)
        if self._agent is None:
            problem = "its consumer was lost, and with it the signals published since"
            self._report(self.name, None, Dropped(self.name, "?", problem))

    async def _create_consumer(self, *, takeover: bool) -> ConsumerRef:
        prefix = self._settings.prefix
        if self._agent is None:
            return await streams.create_broadcast_consumer(
                self._connection, self._settings, connection.pattern_subjects(prefix, self._pattern)
            )
        subject = connection.agent_subjects(prefix, self._agent)
        return await streams.create_agent_consumer(
            self._connection, self._settings, self._agent, subject, takeover=takeover
        )

    async def _send_progress(self) -> None:
        """Extend the acknowledgement deadline of a message while its handlers run."""
        while True:
            # Three times within the deadline: one lost message does not cause a redelivery.
            await anyio.sleep(self._settings.ack_wait / 3)
            if self._current_message is not None:
                await self._acknowledge(self._current_message.in_progress)

    async def _release(self) -> None:
        with move_on_after(LEAVE_TIMEOUT_S):
            try:
                if self._inbox_subscription is not None:
                    await self._inbox_subscription.unsubscribe()
                if self._consumer is not None and not self._keep_consumer:
                    await streams.delete_consumer(self._connection, self._consumer, timeout=LEAVE_TIMEOUT_S)
            except Exception as error:
                # The next owner of the agent removes it, or the server does after a while.
                log.info("nats: %s: its consumer was not deleted: %s", self.name, type(error).__name__)

    # Delivering

    async def _process(self, message: Any) -> None:
        seq = message.metadata.sequence.stream
        try:
            signal = self._decode(message)
        except Exception as error:
            self.counts["dropped"] += 1
            self._report(self.name, None, error)
            await self._dead_letter(message, f"unreadable: {type(error).__name__}")
            return
        digest = signal_digest(signal)
        if digest in self._recent:
            self.counts["again"] += 1
            await self._acknowledge(message.ack)
            return
        assert self._consumer is not None
        # A new consumer counts from 1; crashes of former owners over this message count, too.
        attempts = message.metadata.num_delivered - 1 + self._consumer.prior_deliveries(seq)
        accepted = await self._delivery.deliver(signal, attempts)
        if accepted is None and self._agent is not None and self._delivery.has_failed:
            # So that the next consumer sees that this one crashed over the message.
            self._keep_consumer = True
        elif accepted is None:
            await self._acknowledge(message.nak)
        elif accepted:
            self._recent.add(digest)
            self.counts["accepted"] += 1
            await self._acknowledge(message.ack)
        else:
            self.counts["dropped"] += 1
            stream = self._settings.dead_letter_stream
            reason = f"it failed {self._settings.max_deliver} times, and is stored in {stream}"
            self._report(self.name, signal, Dropped(self.name, signal.type, reason))
            await self._dead_letter(message, "failed too often")

    def _decode(self, message: Any) -> Signal:
        signal = Signal.from_json(message.data)
        if message.subject != connection.subject_of(self._settings.prefix, signal.type, self._agent):
            raise Invalid("subject", "is not that of the signal in it", "publish with a NatsTransport")
        return signal

    async def _dead_letter(self, message: Any, reason: str) -> None:
        try:
            await self._publish_dead_letter(message.data, self._agent, reason)
        except OmoideError as error:
            # Better delivered again than lost.
            self._report(self.name, None, error)
            await self._acknowledge(partial(message.nak, delay=self._settings.ack_wait))
            return
        await self._acknowledge(message.term)

    async def _acknowledge(self, acknowledge: Callable[[], Awaitable[object]]) -> None:
        """Acknowledge or reject a message; if the server does not receive that, it delivers it again."""
        try:
            await acknowledge()
        except Exception as error:
            log.info("nats: %s: a message was not acknowledged: %s", self.name, type(error).__name__)


class NatsTransport:
    """The transport between processes and machines, used as `async with NatsTransport(url) as transport`.

    Args:
        url: An address, several with commas between them, or a list.
        credentials: The path of a credentials file.
        tls: An `ssl.SSLContext`.
        name: The name of the connection on the server.
        on_error: A function that gets what handlers raise and what is dropped, with the signal, or None where
            none could be read; by default it is logged.
        settings: Fields of `NatsSettings`.
    """

    is_durable = True
    """A published signal is stored until it was handled."""

    def __init__(
        self,
        url: str | Iterable[str],
        *,
        credentials: str | None = None,
        tls: Any = None,
        name: str | None = None,
        on_error: OnError | None = None,
        **settings: Unpack[NatsKwargs],
    ) -> None:
        for field in settings:
            if field not in NatsSettings.__struct_fields__:
                names = ", ".join(NatsSettings.__struct_fields__)
                raise Invalid(field, "is not a setting", f"use {names}")
        self.settings = NatsSettings(**settings)
        options = {"user_credentials": credentials, "tls": tls, "name": name}
        self._connection = NatsConnection(
            url, self.settings, {key: value for key, value in options.items() if value is not None}
        )
        self._on_error = on_error if on_error is None else check_function(on_error, "on_error")
        self._channels: dict[ChannelKey, NatsChannel] = {}
        self._running: set[NatsChannel] = set()
        self._locks: dict[ChannelKey, anyio.Lock] = {}
        self._in_flight = anyio.Semaphore(self.settings.max_in_flight)
        self._tasks: TaskGroup | None = None
        self._closed = False
        self._closed_counts = {"accepted": 0, "again": 0, "dropped": 0}
        self._published = self._repeated = 0

    def __repr__(self) -> str:
        return f"<NatsTransport {self._connection.address} {self.settings.prefix!r}>"

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise Invalid("transport", "was opened before", "make another one")
        await self._connection.open()
        try:
            await streams.ensure_streams(self._connection, self.settings)
        except BaseException:
            with CancelScope(shield=True):
                await self._connection.close()
            raise
        self._tasks = await create_task_group().__aenter__()
        self._tasks.start_soon(self._connection.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._tasks is None:
            return None
        with CancelScope(shield=True):
            await self.close()
        self._tasks.cancel_scope.cancel()
        if isinstance(error, Exception):
            # The task group would wrap it, although none of its tasks failed.
            await self._tasks.__aexit__(None, None, None)
            return None
        return await self._tasks.__aexit__(kind, error, trace)

    async def publish(self, signal: Signal, *, to: str | None = None) -> None:
        """Store a signal for all subscribers, or for one agent.

        Raises:
            SignalTooLarge: The server does not accept so large a message.
            Unreachable: The server could not be reached in time; the signal may have arrived, and can be
                published again.
        """
        check_instance(signal, "signal", kind=Signal)
        self._require_open()
        receiver = () if to is None else (ids.check(to, "to"),)
        subject = connection.subject_of(self.settings.prefix, signal.type, to)
        data, digest = signal.to_json(), signal_digest(signal, *receiver)
        stream = self.settings.broadcast_stream if to is None else self.settings.agent_stream
        self._check_size(signal, data)
        # The message id makes a repeated request harmless: the server drops the copy.
        async with self._in_flight:
            ack = await self._connection.request(
                lambda js: js.publish(subject, data, stream=stream, headers={"Nats-Msg-Id": digest})
            )
        self._published += 1
        self._repeated += bool(ack.duplicate)

    async def subscribe(
        self, pattern: str, handler: Handler, *, agent: str | None = None
    ) -> NatsSubscription:
        """Call a handler with the signals to all from now on, or with all that are stored for one agent.

        An agent's signals are read in one place: the last subscriber reads them; `on_error` of an earlier one
        in another process gets an `OwnedElsewhere`, and it reads no more.
        """
        tasks = self._require_open()
        patterns.check_pattern(pattern)
        check_function(handler, "handler")
        key = ("all", pattern) if agent is None else ("to", ids.check(agent, "agent"))
        # A second subscriber waits until the first has created the consumer.
        async with self._locks.setdefault(key, anyio.Lock()):
            channel = self._channels.get(key)
            if channel is None or channel.is_closing:
                channel = NatsChannel(
                    self._connection,
                    self.settings,
                    self._report,
                    self._publish_dead_letter,
                    pattern=pattern,
                    agent=agent,
                )
                await channel.open()
                self._require_open()  # it may have been closed meanwhile
                channel.on_close = partial(self._remove_channel, key, channel)
                self._channels[key] = channel
                self._running.add(channel)
                tasks.start_soon(self._run_channel, channel)
            subscription = NatsSubscription(pattern, handler, channel.remove)
            channel.subscriptions.append(subscription)
        return subscription

    async def close(self) -> None:
        """Deliver nothing any more, and cancel the handlers that are running."""
        if self._closed:
            return
        self._closed = True
        running = [*self._running]
        for channel in running:
            for subscription in channel.subscriptions:
                subscription.closed = True
            channel.cancel_scope.cancel()
        with anyio.move_on_after(CLOSE_TIMEOUT_S):
            for channel in running:
                await channel.done.wait()
        await self._connection.close()

    def stats(self) -> dict[str, int]:
        """Count the signals so far: `repeated` were dropped by the server, `again` by the receiver."""
        counts = dict(self._closed_counts)
        for channel in self._running:
            for name, count in channel.counts.items():
                counts[name] += count
        return {
            "published": self._published,
            "repeated": self._repeated,
            "channels": len(self._running),
            **counts,
        }

    async def _run_channel(self, channel: NatsChannel) -> None:
        try:
            await channel.run()
        finally:
            self._running.discard(channel)
            for name, count in channel.counts.items():
                self._closed_counts[name] += count

    def _remove_channel(self, key: ChannelKey, channel: NatsChannel) -> None:
        if self._channels.get(key) is channel:
            del self._channels[key]
            self._locks.pop(key, None)

    async def _publish_dead_letter(self, data: bytes, agent: str | None, reason: str) -> None:
        receiver = "all" if agent is None else f"to.{connection.to_token(agent)}"
        subject = f"{self.settings.prefix}.dead.{receiver}"
        # A foreign message may leave no room for the header.
        data = data[: self._connection.max_payload - HEADER_BYTES]
        await self._connection.request(
            lambda js: js.publish(subject, data, headers={"Omoide-Reason": reason}),
            timeout=self.settings.ack_wait,
        )

    def _check_size(self, signal: Signal, data: bytes) -> None:
        largest = self._connection.max_payload - HEADER_BYTES
        if len(data) > largest:
            raise SignalTooLarge(signal.type, largest, len(data))

    def _report(self, name: str, signal: Signal | None, error: Exception) -> None:
        try:
            if self._on_error is not None:
                self._on_error(signal, error)
                return
        except Exception as other:
            log.error("on_error of a transport failed with %s", type(other).__name__)
        what = "a message" if signal is None else f"signal {signal.id}"
        log.error("nats: %s for %s: %s", what, name, type(error).__name__)

    def _require_open(self) -> TaskGroup:
        if self._tasks is None:
            raise Invalid("transport", "is not open", "use it inside async with")
        if self._closed:
            raise connection.closed_error()
        return self._tasks
