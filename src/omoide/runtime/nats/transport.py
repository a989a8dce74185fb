"""How do agents on several machines talk?

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

import logging
from collections.abc import Iterable
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
from anyio import CancelScope, create_task_group
from anyio.abc import TaskGroup

from omoide import ids
from omoide.core import pattern as patterns
from omoide.core.signal import Signal
from omoide.core.value import check_function, check_instance
from omoide.errors import Invalid, SignalTooLarge
from omoide.runtime.nats import failures, streams, subjects
from omoide.runtime.nats.channel import Channel
from omoide.runtime.nats.handing import Listener, OnError
from omoide.runtime.nats.link import Link
from omoide.runtime.nats.settings import Settings
from omoide.runtime.recent import mark
from omoide.runtime.transport import Handler

HEADERS = 256
"""Room for what the server is told about a signal beside it."""
CLOSE_S = 5.0

log = logging.getLogger("omoide.runtime")

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
        subject = subjects.told(self.settings.prefix, signal.type, to)
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
        whom = "all" if agent is None else f"to.{subjects.token(agent)}"
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
            raise failures.closed()
        return self._tasks
