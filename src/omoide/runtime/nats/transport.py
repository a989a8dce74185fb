"""NatsTransport.

When every handler that wants it has returned. One that raises is told again after a pause, a few times; a
handler that stopped listening meanwhile counts no more.

A channel reads one agent's post, or what is told to all under one pattern. It asks for a message, hands it to
every handler that wants it, confirms it when all have accepted, and asks for the next. A handler that raises
is told again after a pause, and what comes behind waits; a signal that fails too often is laid aside.

`NatsTransport` is a transport over NATS with JetStream. Beside what every transport promises:

- `publish` returns when the server has written the signal down; it waits through an outage, up to
  `request_timeout` seconds, and raises `Unreachable` then;
- a signal is confirmed when every handler has accepted it, and brought again if its receiver breaks off
  before; one that fails `max_deliver` times is laid aside, and reported;
- a signal that is published again within `duplicate_window` seconds is dropped by the server, one that is
  brought again by the receiver, both by its source and id;
- what is told to an agent is kept for it, up to `max_age`, whether it lives at the moment or not. So
  `publish` knows of no agent that is not running; who keeps an account of agents does, as a fleet.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Iterable
from contextvars import ContextVar
from functools import partial
from inspect import isawaitable
from types import TracebackType
from typing import Any, Self

import anyio
from anyio import CancelScope, create_task_group, get_cancelled_exc_class, move_on_after
from anyio.abc import TaskGroup

from omoide import ids
from omoide.core import signal as patterns
from omoide.core.signal import Signal
from omoide.core.value import check_function, check_instance
from omoide.errors import Dropped, Invalid, OmoideError, OwnedElsewhere, SignalTooLarge
from omoide.runtime.nats import connection, streams
from omoide.runtime.nats.connection import RETRY_DELAY_S, NatsConnection, NatsSettings
from omoide.runtime.nats.streams import ConsumerRef
from omoide.runtime.tasks import is_cancelled
from omoide.runtime.transport import Handler, RecentSignals, signal_digest

# handing: When has a signal been accepted?


RETRY_DELAYS_S = (0.05, 0.1, 0.2, 0.4, 1.0)
"""How many seconds pass before a handler that raised is told again."""

OnError = Callable[[Signal | None, Exception], object]
ErrorReporter = Callable[[str, Signal | None, Exception], None]


class NatsSubscription:
    """A handler on a channel; the subscription that a caller holds."""

    def __init__(
        self, pattern: str, handler: Handler, on_close: Callable[[NatsSubscription], Awaitable[None]]
    ) -> None:
        self.pattern = pattern
        self.handler = handler
        self.closed = False
        self._on_close = on_close

    async def close(self) -> None:
        """Be told no more; a call that is going on ends by itself, and its signal is not confirmed."""
        if not self.closed:
            self.closed = True
            await self._on_close(self)

    def is_closed(self) -> bool:
        """Whether it is told no more; a handler may have changed that."""
        return self.closed


class SignalDelivery:
    """Hands signals to those who listen, in turn."""

    def __init__(
        self, name: str, max_deliver: int, subscriptions: list[NatsSubscription], report: ErrorReporter
    ) -> None:
        self._name, self._max_deliver = name, max_deliver
        self._subscriptions, self._report = subscriptions, report
        self.has_failed = False
        """Whether somebody raised over the last signal."""

    async def deliver(self, signal: Signal, attempts: int) -> bool | None:
        """Whether all who want it accepted a signal; None where nobody is left who listens."""
        self.has_failed = False
        if attempts >= self._max_deliver:
            return False
        wanting = [one for one in self._subscriptions if signal.matches(one.pattern)]
        if len(wanting) == 1:
            return await self._call_handler(wanting[0], signal, attempts)
        answers: list[bool | None] = []

        async def told(one: NatsSubscription) -> None:
            answers.append(await self._call_handler(one, signal, attempts))

        async with create_task_group() as tasks:
            for one in wanting:
                tasks.start_soon(told, one)
        if wanting and all(answer is None for answer in answers):
            return None
        return all(answer is not False for answer in answers)

    async def _call_handler(
        self, subscription: NatsSubscription, signal: Signal, attempts: int
    ) -> bool | None:
        while not subscription.is_closed():
            error: Exception
            try:
                given = subscription.handler(signal)
                if isawaitable(given):
                    await given
                return True
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                error = Dropped(self._name, signal.type, "its handler gave up")
            except Exception as raised:
                error = raised
            if subscription.is_closed():
                break
            self._report(self._name, signal, error)
            self.has_failed = True
            attempts += 1
            if attempts >= self._max_deliver:
                return False
            await anyio.sleep(RETRY_DELAYS_S[min(attempts, len(RETRY_DELAYS_S)) - 1])
        return None


# channel: How does a signal get from a stream to its handlers?


POLL_TIMEOUT_S = 20.0
"""How long one question for the next message stands."""
LEAVE_TIMEOUT_S = 2.0
"""How long leaving a stream may take."""
TAKEOVER_GRACE_S = 1.0
"""How long a reader of an agent's post that is gone waits: whoever removed it makes its own meanwhile."""
DEDUPLICATION_WINDOW = 4_096
"""So many signals are remembered, so that one that is brought again is not handled again."""

log = logging.getLogger("omoide.runtime")

_current_channel: ContextVar[Any] = ContextVar("omoide_nats_inside", default=None)


class NatsChannel:
    """One reader of a stream, and the handlers it reads for."""

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
        """Have a reader on the server; of an agent's post there is one, and this is now it."""
        self._consumer = await self._create_consumer(takeover=True)

    async def run(self) -> None:
        """Read until nobody listens any more."""
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
        """A handler is told no more; with the last one the channel ends."""
        if subscription in self.subscriptions:
            self.subscriptions.remove(subscription)
        if self.subscriptions or self.is_closing:
            return
        self.is_closing = True
        self.on_close()
        if self._pull_scope is not None:
            self._pull_scope.cancel()
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
                for listener in self.subscriptions:  # whoever has one can see that it is told no more
                    listener.closed = True
                return
            except Exception as error:
                # Whatever goes wrong here, the stream has the message still, and is read again.
                if connection.is_client_error(error):
                    log.info("nats: %s: reads again after: %s", self.name, type(error).__name__)
                else:
                    self._report(self.name, None, error)
                await anyio.sleep(RETRY_DELAY_S)
            finally:
                self._current_message = None

    async def _next_message(self) -> Any:
        """The next message, or None where there was none for a while."""
        await self._connection.wait_connected()
        if self.is_closing:  # since then; nobody would cancel what begins now
            return None
        found: Any = None
        gone = False
        with self._connection.cancel_on_disconnect(), CancelScope() as self._pull_scope:
            try:
                found, gone = await self._pull()
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                # The client was closed under us, and cancelled what was waited for.
        self._pull_scope = None
        if gone and not self.is_closing:
            await self._recreate_consumer()
        return found

    async def _pull(self) -> tuple[Any, bool]:
        """A message if one came, and whether the reader seems to be gone."""
        if self._client is not self._connection.client:
            self._client = self._connection.client
            self._inbox = self._client.new_inbox()
            self._inbox_subscription = await self._client.subscribe(f"{self._inbox}.*")
        assert self._consumer is not None
        self._request_number += 1
        mine = f"{self._inbox}.{self._request_number}"
        question = json.dumps({"batch": 1, "expires": int(POLL_TIMEOUT_S * 1e9)}).encode()
        name = f"$JS.API.CONSUMER.MSG.NEXT.{self._consumer.stream}.{self._consumer.name}"
        await self._client.publish(name, question, mine)
        while True:
            try:
                message = await self._inbox_subscription.next_msg(timeout=POLL_TIMEOUT_S + 1)
            except TimeoutError:
                return None, False
            if not message.subject.startswith(self._inbox):
                return message, False
            if message.subject != mine:
                continue  # about an earlier question
            headers = message.headers or {}
            status, told = headers.get("Status"), str(headers.get("Description", "")).lower()
            if status == "503" or (status == "409" and "deleted" in told):
                return None, True
            if status == "409":
                await anyio.sleep(RETRY_DELAY_S)
            if status != "100":
                return None, False

    async def _recreate_consumer(self) -> None:
        """Read on where the server has lost sight of the reader."""
        assert self._consumer is not None
        if await streams.consumer_exists(self._connection, self._consumer):
            await anyio.sleep(RETRY_DELAY_S)  # a leader is being chosen
            return
        with CancelScope() as self._pull_scope:
            await anyio.sleep(0 if self._agent is None else TAKEOVER_GRACE_S)
        self._pull_scope = None
        if self.is_closing:
            return
        self._consumer = await self._create_consumer(takeover=False)
        if self._agent is None:
            problem = "its place in the stream was lost, and signals in between with it"
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
        """Tell the server that what takes long is still worked on."""
        while True:
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
                # The next reader of the post removes it, or the server does after a while.
                log.info("nats: %s: its reader stays behind: %s", self.name, type(error).__name__)

    # Handing over

    async def _process(self, message: Any) -> None:
        number = message.metadata.sequence.stream
        try:
            signal = self._decode(message)
        except Exception as error:
            self.counts["dropped"] += 1
            self._report(self.name, None, error)
            await self._dead_letter(message, f"unreadable: {type(error).__name__}")
            return
        known = signal_digest(signal)
        if known in self._recent:
            self.counts["again"] += 1
            await self._acknowledge(message.ack)
            return
        assert self._consumer is not None
        tries = message.metadata.num_delivered - 1 + self._consumer.prior_deliveries(number)
        accepted = await self._delivery.deliver(signal, tries)
        if accepted is None and self._agent is not None and self._delivery.has_failed:
            self._keep_consumer = True  # so that the next reader knows that this one ended over the message
        elif accepted is None:
            await self._acknowledge(message.nak)
        elif accepted:
            self._recent.add(known)
            self.counts["accepted"] += 1
            await self._acknowledge(message.ack)
        else:
            self.counts["dropped"] += 1
            stream = self._settings.dead_letter_stream
            reason = f"it failed {self._settings.max_deliver} times, and lies in {stream}"
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
            # Better brought again than lost.
            self._report(self.name, None, error)
            await self._acknowledge(partial(message.nak, delay=self._settings.ack_wait))
            return
        await self._acknowledge(message.term)

    async def _acknowledge(self, acknowledge: Callable[[], Awaitable[object]]) -> None:
        """Tell the server what became of a message; if it does not hear, it brings the message again."""
        try:
            await acknowledge()
        except Exception as error:
            log.info("nats: %s: a message was not confirmed: %s", self.name, type(error).__name__)


# transport: How do agents on several machines talk?


HEADER_BYTES = 256
"""Room for what the server is told about a signal beside it."""
CLOSE_TIMEOUT_S = 5.0

ChannelKey = tuple[str, str]


class NatsTransport:
    """The transport between processes and machines, used as `async with NatsTransport(url) as transport`.

    `url` is an address, several with commas between them, or a list. `credentials` is the path of a
    credentials file, `tls` an `ssl.SSLContext`. Further settings are those of `NatsSettings`: `prefix` keeps
    fleets on one server apart, `replicas` says how many servers keep each signal. `on_error` is told what
    handlers raise and what is dropped, with the signal, or None where none could be read.
    """

    is_durable = True
    """A signal that was published is kept until it was handled."""

    def __init__(
        self,
        url: str | Iterable[str],
        *,
        credentials: str | None = None,
        tls: Any = None,
        name: str | None = None,
        on_error: OnError | None = None,
        **settings: Any,
    ) -> None:
        for field in settings:
            if field not in NatsSettings.__struct_fields__:
                known = ", ".join(NatsSettings.__struct_fields__)
                raise Invalid(field, "is nothing that can be set", f"use {known}")
        self.settings = NatsSettings(**settings)
        options = {"user_credentials": credentials, "tls": tls, "name": name}
        self._connection = NatsConnection(
            url, self.settings, {key: one for key, one in options.items() if one is not None}
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
            # The group would wrap it, and it is none of its tasks that failed.
            await self._tasks.__aexit__(None, None, None)
            return None
        return await self._tasks.__aexit__(kind, error, trace)

    async def publish(self, signal: Signal, *, to: str | None = None) -> None:
        """Have a signal written down for all who subscribed, or for one agent.

        `SignalTooLarge` where the server takes no such message, `Unreachable` where it could not be asked in
        time; the signal may have arrived then, and can be published again.
        """
        check_instance(signal, "signal", kind=Signal)
        self._require_open()
        whom = () if to is None else (ids.check(to, "to"),)
        subject = connection.subject_of(self.settings.prefix, signal.type, to)
        data, known = signal.to_json(), signal_digest(signal, *whom)
        stream = self.settings.broadcast_stream if to is None else self.settings.agent_stream
        self._check_size(signal, data)
        async with self._in_flight:
            done = await self._connection.request(
                lambda js: js.publish(subject, data, stream=stream, headers={"Nats-Msg-Id": known})
            )
        self._published += 1
        self._repeated += bool(done.duplicate)

    async def subscribe(
        self, pattern: str, handler: Handler, *, agent: str | None = None
    ) -> NatsSubscription:
        """Have a handler told of what is told to all from now on, or of all that is kept for one agent.

        An agent's post is read in one place: who subscribes for it last reads it, and whoever did so in
        another process is told by `on_error`, and reads no more.
        """
        tasks = self._require_open()
        patterns.check_pattern(pattern)
        check_function(handler, "handler")
        key = ("all", pattern) if agent is None else ("to", ids.check(agent, "agent"))
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
                self._require_open()
                channel.on_close = partial(self._remove_channel, key, channel)
                self._channels[key] = channel
                self._running.add(channel)
                tasks.start_soon(self._run_channel, channel)
            listener = NatsSubscription(pattern, handler, channel.remove)
            channel.subscriptions.append(listener)
        return listener

    async def close(self) -> None:
        """Tell nobody anything any more; handlers that are at work are cancelled."""
        if self._closed:
            return
        self._closed = True
        running = [*self._running]
        for channel in running:
            for listener in channel.subscriptions:
                listener.closed = True
            channel.cancel_scope.cancel()
        with anyio.move_on_after(CLOSE_TIMEOUT_S):
            for channel in running:
                await channel.done.wait()
        await self._connection.close()

    def stats(self) -> dict[str, int]:
        """What became of signals so far: `repeated` were dropped by the server, `again` by the receiver."""
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
        whom = "all" if agent is None else f"to.{connection.to_token(agent)}"
        subject = f"{self.settings.prefix}.dead.{whom}"
        data = data[
            : self._connection.max_payload - HEADER_BYTES
        ]  # one that is not ours may leave no room for the reason
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
