"""NatsTransport.

When every handler that wants it has returned. One that raises is told again after a pause, a few times; a
handler that stopped listening meanwhile counts no more.

A channel reads one agent's post, or what is told to all under one pattern. It asks for a message, hands it to
every handler that wants it, confirms it when all have accepted, and asks for the next. A handler that raises
is told again after a pause, and what comes behind waits; a signal that fails too often is laid aside.

`NatsTransport` is a transport over NATS with JetStream. Beside what every transport promises:

- `publish` returns when the server has written the signal down; it waits through an outage, up to `patience`
  seconds, and raises `Unreachable` then;
- a signal is confirmed when every handler has accepted it, and brought again if its receiver breaks off
  before; one that fails `max_deliver` times is laid aside, and reported;
- a signal that is published again within `duplicates` seconds is dropped by the server, one that is brought
  again by the receiver, both by its source and id;
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
from omoide.runtime.fleet.leases import Recent, mark
from omoide.runtime.nats import connection, streams
from omoide.runtime.nats.connection import PAUSE_S, Link, Settings
from omoide.runtime.nats.streams import Reader
from omoide.runtime.providers.protocol import is_cancelled
from omoide.runtime.transport import Handler

# handing: When has a signal been accepted?


PAUSES = (0.05, 0.1, 0.2, 0.4, 1.0)
"""How many seconds pass before a handler that raised is told again."""

OnError = Callable[[Signal | None, Exception], object]
Report = Callable[[str, Signal | None, Exception], None]


class Listener:
    """A handler on a channel; the subscription that a caller holds."""

    def __init__(self, pattern: str, handler: Handler, left: Callable[[Listener], Awaitable[None]]) -> None:
        self.pattern = pattern
        self.handler = handler
        self.closed = False
        self._left = left

    async def close(self) -> None:
        """Be told no more; a call that is going on ends by itself, and its signal is not confirmed."""
        if not self.closed:
            self.closed = True
            await self._left(self)

    def is_closed(self) -> bool:
        """Whether it is told no more; a handler may have changed that."""
        return self.closed


class Post:
    """Hands signals to those who listen, in turn."""

    def __init__(self, name: str, max_deliver: int, listeners: list[Listener], report: Report) -> None:
        self._name, self._max_deliver = name, max_deliver
        self._listeners, self._report = listeners, report
        self.failed = False
        """Whether somebody raised over the last signal."""

    async def hand(self, signal: Signal, tries: int) -> bool | None:
        """Whether all who want it accepted a signal; None where nobody is left who listens."""
        self.failed = False
        if tries >= self._max_deliver:
            return False
        wanting = [one for one in self._listeners if signal.matches(one.pattern)]
        if len(wanting) == 1:
            return await self._told(wanting[0], signal, tries)
        answers: list[bool | None] = []

        async def told(one: Listener) -> None:
            answers.append(await self._told(one, signal, tries))

        async with create_task_group() as tasks:
            for one in wanting:
                tasks.start_soon(told, one)
        if wanting and all(answer is None for answer in answers):
            return None
        return all(answer is not False for answer in answers)

    async def _told(self, one: Listener, signal: Signal, tries: int) -> bool | None:
        while not one.is_closed():
            error: Exception
            try:
                given = one.handler(signal)
                if isawaitable(given):
                    await given
                return True
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                error = Dropped(self._name, signal.type, "its handler gave up")
            except Exception as raised:
                error = raised
            if one.is_closed():
                break
            self._report(self._name, signal, error)
            self.failed = True
            tries += 1
            if tries >= self._max_deliver:
                return False
            await anyio.sleep(PAUSES[min(tries, len(PAUSES)) - 1])
        return None


# channel: How does a signal get from a stream to its handlers?


POLL_S = 20.0
"""How long one question for the next message stands."""
LEAVE_S = 2.0
"""How long leaving a stream may take."""
YIELD_S = 1.0
"""How long a reader of an agent's post that is gone waits: whoever removed it makes its own meanwhile."""
KNOWN = 4_096
"""So many signals are remembered, so that one that is brought again is not handled again."""

log = logging.getLogger("omoide.runtime")

_inside: ContextVar[Any] = ContextVar("omoide_nats_inside", default=None)


class Channel:
    """One reader of a stream, and the handlers it reads for."""

    def __init__(
        self,
        link: Link,
        settings: Settings,
        report: Report,
        bury: Callable[[bytes, str | None, str], Awaitable[None]],
        *,
        pattern: str,
        agent: str | None,
    ) -> None:
        self.name = pattern if agent is None else agent
        self.listeners: list[Listener] = []
        self._post = Post(self.name, settings.max_deliver, self.listeners, report)
        self.ending = False
        self.done = anyio.Event()
        self.scope = CancelScope()
        self.forget: Callable[[], None] = lambda: None
        self.counts = {"accepted": 0, "again": 0, "dropped": 0}
        self._link, self._settings = link, settings
        self._report, self._bury = report, bury
        self._pattern, self._agent = pattern, agent
        self._reader: Reader | None = None
        self._recent = Recent(KNOWN)
        self._client: Any = None
        self._subscription: Any = None
        self._inbox = ""
        self._asked = 0
        self._pulling: CancelScope | None = None
        self._at: Any = None
        self._stays = False

    async def open(self) -> None:
        """Have a reader on the server; of an agent's post there is one, and this is now it."""
        self._reader = await self._made(take=True)

    async def run(self) -> None:
        """Read until nobody listens any more."""
        _inside.set(self)
        try:
            with self.scope:
                async with create_task_group() as tasks:
                    tasks.start_soon(self._keep)
                    await self._read()
                    tasks.cancel_scope.cancel()
        finally:
            self.ending = True
            self.forget()
            with CancelScope(shield=True):
                await self._leave()
            self.done.set()

    async def left(self, listener: Listener) -> None:
        """A handler is told no more; with the last one the channel ends."""
        if listener in self.listeners:
            self.listeners.remove(listener)
        if self.listeners or self.ending:
            return
        self.ending = True
        self.forget()
        if self._pulling is not None:
            self._pulling.cancel()
        if self._at is None and _inside.get() is not self:
            with move_on_after(LEAVE_S):
                await self.done.wait()

    # Reading

    async def _read(self) -> None:
        while not self.ending:
            try:
                message = await self._next()
                if message is not None and not self.ending:
                    self._at = message
                    await self._take(message)
            except OwnedElsewhere as error:
                self._report(self.name, None, error)
                for listener in self.listeners:  # whoever has one can see that it is told no more
                    listener.closed = True
                return
            except Exception as error:
                # Whatever goes wrong here, the stream has the message still, and is read again.
                if connection.is_of_client(error):
                    log.info("nats: %s: reads again after: %s", self.name, type(error).__name__)
                else:
                    self._report(self.name, None, error)
                await anyio.sleep(PAUSE_S)
            finally:
                self._at = None

    async def _next(self) -> Any:
        """The next message, or None where there was none for a while."""
        await self._link.up()
        if self.ending:  # since then; nobody would cancel what begins now
            return None
        found: Any = None
        gone = False
        with self._link.until_changed(), CancelScope() as self._pulling:
            try:
                found, gone = await self._pulled()
            except get_cancelled_exc_class():
                if is_cancelled():
                    raise
                # The client was closed under us, and cancelled what was waited for.
        self._pulling = None
        if gone and not self.ending:
            await self._revive()
        return found

    async def _pulled(self) -> tuple[Any, bool]:
        """A message if one came, and whether the reader seems to be gone."""
        if self._client is not self._link.client:
            self._client = self._link.client
            self._inbox = self._client.new_inbox()
            self._subscription = await self._client.subscribe(f"{self._inbox}.*")
        assert self._reader is not None
        self._asked += 1
        mine = f"{self._inbox}.{self._asked}"
        question = json.dumps({"batch": 1, "expires": int(POLL_S * 1e9)}).encode()
        name = f"$JS.API.CONSUMER.MSG.NEXT.{self._reader.stream}.{self._reader.name}"
        await self._client.publish(name, question, mine)
        while True:
            try:
                message = await self._subscription.next_msg(timeout=POLL_S + 1)
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
                await anyio.sleep(PAUSE_S)
            if status != "100":
                return None, False

    async def _revive(self) -> None:
        """Read on where the server has lost sight of the reader."""
        assert self._reader is not None
        if await streams.is_there(self._link, self._reader):
            await anyio.sleep(PAUSE_S)  # a leader is being chosen
            return
        with CancelScope() as self._pulling:
            await anyio.sleep(0 if self._agent is None else YIELD_S)
        self._pulling = None
        if self.ending:
            return
        self._reader = await self._made(take=False)
        if self._agent is None:
            problem = "its place in the stream was lost, and signals in between with it"
            self._report(self.name, None, Dropped(self.name, "?", problem))

    async def _made(self, *, take: bool) -> Reader:
        prefix = self._settings.prefix
        if self._agent is None:
            return await streams.listening(
                self._link, self._settings, connection.wanted(prefix, self._pattern)
            )
        subject = connection.inbox(prefix, self._agent)
        return await streams.reading(self._link, self._settings, self._agent, subject, take=take)

    async def _keep(self) -> None:
        """Tell the server that what takes long is still worked on."""
        while True:
            await anyio.sleep(self._settings.ack_wait / 3)
            if self._at is not None:
                await self._confirm(self._at.in_progress)

    async def _leave(self) -> None:
        with move_on_after(LEAVE_S):
            try:
                if self._subscription is not None:
                    await self._subscription.unsubscribe()
                if self._reader is not None and not self._stays:
                    await streams.dropped(self._link, self._reader, within=LEAVE_S)
            except Exception as error:
                # The next reader of the post removes it, or the server does after a while.
                log.info("nats: %s: its reader stays behind: %s", self.name, type(error).__name__)

    # Handing over

    async def _take(self, message: Any) -> None:
        number = message.metadata.sequence.stream
        try:
            signal = self._understood(message)
        except Exception as error:
            self.counts["dropped"] += 1
            self._report(self.name, None, error)
            await self._lay_aside(message, f"unreadable: {type(error).__name__}")
            return
        known = mark(signal)
        if known in self._recent:
            self.counts["again"] += 1
            await self._confirm(message.ack)
            return
        assert self._reader is not None
        tries = message.metadata.num_delivered - 1 + self._reader.before(number)
        accepted = await self._post.hand(signal, tries)
        if accepted is None and self._agent is not None and self._post.failed:
            self._stays = True  # so that the next reader knows that this one ended over the message
        elif accepted is None:
            await self._confirm(message.nak)
        elif accepted:
            self._recent.add(known)
            self.counts["accepted"] += 1
            await self._confirm(message.ack)
        else:
            self.counts["dropped"] += 1
            reason = f"it failed {self._settings.max_deliver} times, and lies in {self._settings.dead}"
            self._report(self.name, signal, Dropped(self.name, signal.type, reason))
            await self._lay_aside(message, "failed too often")

    def _understood(self, message: Any) -> Signal:
        signal = Signal.from_json(message.data)
        if message.subject != connection.told(self._settings.prefix, signal.type, self._agent):
            raise Invalid("subject", "is not that of the signal in it", "publish with a NatsTransport")
        return signal

    async def _lay_aside(self, message: Any, reason: str) -> None:
        try:
            await self._bury(message.data, self._agent, reason)
        except OmoideError as error:
            # Better brought again than lost.
            self._report(self.name, None, error)
            await self._confirm(partial(message.nak, delay=self._settings.ack_wait))
            return
        await self._confirm(message.term)

    async def _confirm(self, saying: Callable[[], Awaitable[object]]) -> None:
        """Tell the server what became of a message; if it does not hear, it brings the message again."""
        try:
            await saying()
        except Exception as error:
            log.info("nats: %s: a message was not confirmed: %s", self.name, type(error).__name__)


# transport: How do agents on several machines talk?


HEADERS = 256
"""Room for what the server is told about a signal beside it."""
CLOSE_S = 5.0

Key = tuple[str, str]


class NatsTransport:
    """The transport between processes and machines, used as `async with NatsTransport(url) as transport`.

    `url` is an address, several with commas between them, or a list. `credentials` is the path of a
    credentials file, `tls` an `ssl.SSLContext`. Further settings are those of `Settings`: `prefix` keeps
    fleets on one server apart, `replicas` says how many servers keep each signal. `on_error` is told what
    handlers raise and what is dropped, with the signal, or None where none could be read.
    """

    keeps = True
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
            if field not in Settings.__struct_fields__:
                known = ", ".join(Settings.__struct_fields__)
                raise Invalid(field, "is nothing that can be set", f"use {known}")
        self.settings = Settings(**settings)
        options = {"user_credentials": credentials, "tls": tls, "name": name}
        self._link = Link(url, self.settings, {key: one for key, one in options.items() if one is not None})
        self._on_error = on_error if on_error is None else check_function(on_error, "on_error")
        self._channels: dict[Key, Channel] = {}
        self._running: set[Channel] = set()
        self._locks: dict[Key, anyio.Lock] = {}
        self._room = anyio.Semaphore(self.settings.in_flight)
        self._tasks: TaskGroup | None = None
        self._closed = False
        self._gone = {"accepted": 0, "again": 0, "dropped": 0}
        self._published = self._repeated = 0

    def __repr__(self) -> str:
        return f"<NatsTransport {self._link.where} {self.settings.prefix!r}>"

    async def __aenter__(self) -> Self:
        if self._tasks is not None:
            raise Invalid("transport", "was opened before", "make another one")
        await self._link.open()
        try:
            await streams.opened(self._link, self.settings)
        except BaseException:
            with CancelScope(shield=True):
                await self._link.close()
            raise
        self._tasks = await create_task_group().__aenter__()
        self._tasks.start_soon(self._link.run)
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
        self._opened()
        whom = () if to is None else (ids.check(to, "to"),)
        subject = connection.told(self.settings.prefix, signal.type, to)
        data, known = signal.to_json(), mark(signal, *whom)
        stream = self.settings.all if to is None else self.settings.to
        self._check_size(signal, data)
        async with self._room:
            done = await self._link.asked(
                lambda js: js.publish(subject, data, stream=stream, headers={"Nats-Msg-Id": known})
            )
        self._published += 1
        self._repeated += bool(done.duplicate)

    async def subscribe(self, pattern: str, handler: Handler, *, agent: str | None = None) -> Listener:
        """Have a handler told of what is told to all from now on, or of all that is kept for one agent.

        An agent's post is read in one place: who subscribes for it last reads it, and whoever did so in
        another process is told by `on_error`, and reads no more.
        """
        tasks = self._opened()
        patterns.check(pattern)
        check_function(handler, "handler")
        key = ("all", pattern) if agent is None else ("to", ids.check(agent, "agent"))
        async with self._locks.setdefault(key, anyio.Lock()):
            channel = self._channels.get(key)
            if channel is None or channel.ending:
                channel = Channel(
                    self._link, self.settings, self._report, self._bury, pattern=pattern, agent=agent
                )
                await channel.open()
                self._opened()
                channel.forget = partial(self._forget, key, channel)
                self._channels[key] = channel
                self._running.add(channel)
                tasks.start_soon(self._run, channel)
            listener = Listener(pattern, handler, channel.left)
            channel.listeners.append(listener)
        return listener

    async def close(self) -> None:
        """Tell nobody anything any more; handlers that are at work are cancelled."""
        if self._closed:
            return
        self._closed = True
        running = [*self._running]
        for channel in running:
            for listener in channel.listeners:
                listener.closed = True
            channel.scope.cancel()
        with anyio.move_on_after(CLOSE_S):
            for channel in running:
                await channel.done.wait()
        await self._link.close()

    def stats(self) -> dict[str, int]:
        """What became of signals so far: `repeated` were dropped by the server, `again` by the receiver."""
        counts = dict(self._gone)
        for channel in self._running:
            for name, count in channel.counts.items():
                counts[name] += count
        return {
            "published": self._published,
            "repeated": self._repeated,
            "channels": len(self._running),
            **counts,
        }

    async def _run(self, channel: Channel) -> None:
        try:
            await channel.run()
        finally:
            self._running.discard(channel)
            for name, count in channel.counts.items():
                self._gone[name] += count

    def _forget(self, key: Key, channel: Channel) -> None:
        if self._channels.get(key) is channel:
            del self._channels[key]
            self._locks.pop(key, None)

    async def _bury(self, data: bytes, agent: str | None, reason: str) -> None:
        whom = "all" if agent is None else f"to.{connection.token(agent)}"
        subject = f"{self.settings.prefix}.dead.{whom}"
        data = data[: self._link.largest - HEADERS]  # one that is not ours may leave no room for the reason
        await self._link.asked(
            lambda js: js.publish(subject, data, headers={"Omoide-Reason": reason}),
            within=self.settings.ack_wait,
        )

    def _check_size(self, signal: Signal, data: bytes) -> None:
        largest = self._link.largest - HEADERS
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

    def _opened(self) -> TaskGroup:
        if self._tasks is None:
            raise Invalid("transport", "is not open", "use it inside async with")
        if self._closed:
            raise connection.closed()
        return self._tasks
